"""Every relative link and every picture of README, the docs and the notebooks exists. No network is asked.

And README is short, and says what is so.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / ".docs"
MADE = {DOCS / "warp_names.rst"}  # with gallery/: written when the pages are built
PAGES = sorted({*DOCS.glob("*.rst"), *DOCS.glob("guides/*.rst")} - MADE)
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MARKDOWN = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
DOC = re.compile(r":doc:`(?:[^`<]*<)?([^`>]+)>?`")
FILE = re.compile(r"^\s*(?:\.\. (?:image|figure|include|literalinclude)::|:file:) (\S+)", re.MULTILINE)
ELSEWHERE = ("http:", "https:", "mailto:", "data:", "#")


def broken_in_markdown(text: str, folder: Path, attached: Collection[str] = ()) -> list[str]:
    """Targets that are neither elsewhere, nor files below a folder, nor attached."""
    targets = ["".join(found) for found in MARKDOWN.findall(text)]
    near = [t.partition("#")[0] for t in targets if not t.startswith(ELSEWHERE)]
    files = [t for t in near if not t.startswith("attachment:") and not (folder / t).exists()]
    return files + [t for t in near if t.startswith("attachment:") and t.removeprefix("attachment:") not in attached]


def page_exists(name: str, near: Path) -> bool:
    """A page of the docs as `:doc:` names it, also one that is made when they are built."""
    path = DOCS / name[1:] if name.startswith("/") else (near.parent / name).resolve()
    if path.parent == DOCS / "gallery":
        return path.name == "index" or (ROOT / "notebooks" / f"{path.name}.ipynb").exists()
    return path.with_suffix(".rst") in MADE or path.with_suffix(".rst").exists()


def broken_in_page(text: str, page: Path) -> list[str]:
    pages = [name for name in DOC.findall(text) if not page_exists(name, page)]
    files = [name for name in FILE.findall(text) if not name.startswith("_made/")]
    return pages + [name for name in files if not (page.parent / name).exists()]


def test_the_links_of_the_readme_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(MARKDOWN.findall(text)) >= 8
    assert broken_in_markdown(text, ROOT) == []


def test_the_readme_is_one_screen_and_its_first_command_opens_the_tour() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split()) <= 900
    install = next(line for line in text.splitlines() if line.startswith("python3 -m venv"))
    assert "pip install '.[lab]'" in install
    assert (ROOT / install.split()[-1]).exists() and install.endswith(".ipynb")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert broken_in_page(page.read_text("utf-8"), page) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_links_of_a_notebook_lead_somewhere(path: Path) -> None:
    broken = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            broken += broken_in_markdown("".join(cell["source"]), path.parent, set(cell.get("attachments", {})))
    assert broken == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_that_a_notebook_names_are_there(path: Path) -> None:
    stems = {p.stem for p in NOTEBOOKS}
    cells = json.loads(path.read_text("utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert set(re.findall(r"`(\d\d_[a-z_]+)`", text)) - stems == set()


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    newest = re.findall(r"^(\d+\.\d+\.\d+)$", (DOCS / "changelog.rst").read_text("utf-8"), re.MULTILINE)[0]
    assert newest == version
    assert f"\nversion: {version}\n" in (DOCS / "CITATION.cff").read_text("utf-8")


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "here.md").touch()
    text = '[a](here.md#part) [b](gone.md) ![c](https://x.org/y.png) <img src="gone.png"> ![d](attachment:a.png)'
    assert broken_in_markdown(text, tmp_path) == ["gone.md", "gone.png", "attachment:a.png"]
    assert broken_in_markdown("![d](attachment:a.png)", tmp_path, {"a.png"}) == []
    page = ":doc:`x <guides/fit>` :doc:`nowhere` :doc:`/gallery/99_none`\n\n.. image:: gone.png\n"
    assert broken_in_page(page, DOCS / "index.rst") == ["nowhere", "/gallery/99_none", "gone.png"]

"""The reference: every public name has a docstring with an example, and the examples do what they say."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb

DOCS = Path(__file__).resolve().parents[1] / ".docs"
MADE = {DOCS / "warp_names.rst", *DOCS.glob("gallery/*.rst")}  # when the pages are built, perhaps this moment
PAGES = sorted({*DOCS.glob("*.rst"), *DOCS.glob("guides/*.rst")} - MADE)
REFERENCE = re.findall(r"^   (\w+)$", (DOCS / "reference.rst").read_text("utf-8"), re.MULTILINE)
TEXT = "\n".join(page.read_text("utf-8") for page in PAGES if page.parent == DOCS and page.stem in REFERENCE)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
DIRECTIVES = set(re.findall(r"^\.\. auto(?!module)\w+:: (?:workbench\.)?([\w.]+)", TEXT, re.MULTILINE))
MENTION = re.compile(r"``wb\.(\w+)``")
MENTIONED = set(MENTION.findall(TEXT))
NEEDS = {"torch": "needs_torch", "jax": "needs_jax", "warp": "needs_warp"}


def needs(name: str) -> list:
    return [getattr(pytest.mark, m) for part, m in NEEDS.items() if name.endswith(f"_{part}") or f".{part}." in name]


def page_that_needs(page: Path) -> Any:
    """The page as a parameter, marked by the libraries that its examples import: they start slowly."""
    imported = re.findall(r"^ *>>> import (\w+)", page.read_text("utf-8"), re.MULTILINE)
    marks = [getattr(pytest.mark, NEEDS[name]) for name in imported if name in NEEDS]
    marks += [pytest.mark.slow] if marks else []
    return pytest.param(page, marks=marks, id=page.relative_to(DOCS).with_suffix("").as_posix())


def check(text: str, name: str) -> int:
    """Run the examples of a text; the number of them."""
    test = doctest.DocTestParser().get_doctest(text, {"wb": wb, "np": np}, name, None, 0)
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=said.append)
    assert outcome.failed == 0, "".join(said)
    return outcome.attempted


def documented(name: str) -> str:
    found = wb
    for part in name.split("."):
        found = getattr(found, part)
    return inspect.getdoc(type(found) if isinstance(found, type(wb.config)) else found) or ""


@pytest.mark.sampled
@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in sorted(DIRECTIVES)])
def test_the_example_of_a_name_does_what_it_says(name: str) -> None:
    assert check(documented(name), name) > 0, f"{name}: no example"


@pytest.mark.parametrize("page", [page_that_needs(page) for page in PAGES])
def test_the_examples_on_the_pages_do_what_they_say(page: Path) -> None:
    check(page.read_text("utf-8"), page.name)


def test_every_public_name_is_in_the_reference() -> None:
    assert set(dir(wb)) - {n for n in dir(wb) if n.startswith("_")} - DIRECTIVES - MENTIONED == set()


def test_the_pages_have_no_name_that_is_not_there() -> None:
    everywhere = {name for page in PAGES for name in MENTION.findall(page.read_text("utf-8"))}
    assert sorted(name for name in {n.split(".")[0] for n in DIRECTIVES} | everywhere if not hasattr(wb, name)) == []

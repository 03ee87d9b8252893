"""The docs, as offline pages: `python -m sphinx -W .docs build/docs`. Every warning is an error.

The docstrings of the workbench are plain text, read in terminals and notebooks; `as_markup` turns them into what Sphinx
reads: names in backticks become code, and lines of `name    what it is` a list.
"""

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")  # read at the first import of tqdm

import workbench

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gallery
import house
import warp_table

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"

for made in (warp_table, gallery, house):
    made.write()

project = "workbench"
author = "the authors of workbench"
version = release = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["version"]
extensions = ["sphinx.ext.autodoc", "myst_nb", "shown"]
nb_execution_mode = "off"
templates_path: list[str] = []
html_theme = "furo"
html_title = "workbench"
html_show_copyright = False
html_copy_source = False
html_static_path = ["pages.css", "pages.js"]
html_css_files = ["pages.css"]
html_js_files = ["pages.js"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_docstring_signature = False
nitpicky = False
add_module_names = False

ENTRY = re.compile(r"^(\S+(?: \S+)*) {2,}(\S.*)$")


def code(line: str) -> str:
    """Backticks as code, and nothing else of the line as markup."""
    parts = re.split(r"(`[^`]+`)", line)
    return "".join(f"`{part}`" if k % 2 else re.sub(r"([*_|\\])", r"\\\1", part) for k, part in enumerate(parts))


def paragraph(lines: list[str]) -> list[str]:
    """One paragraph of a docstring: a session, a list of entries, an indented block, or text."""
    if lines[0].lstrip().startswith(">>>") or lines[0].startswith("    "):
        plain = lines[0].lstrip().startswith(">>>")
        return lines if plain else ["::", "", *lines]
    out: list[str] = []
    for line in lines:
        entry = ENTRY.match(line)
        if entry:
            out += ["", f"``{entry[1].strip('`')}``", f"    {code(entry[2])}"]
        elif line.startswith(" ") and out:
            out.append(f"    {code(line.strip())}")
        else:
            out += ([""] if out and out[-1].startswith("    ") else []) + [code(line)]
    return out


def as_markup(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    lines[:] = [line for block in blocks if block for line in (*paragraph(block), "")]


def signature(app: Any, what: str, name: str, obj: Any, options: Any, given: Any, returned: Any) -> Any:
    """Builtins say their signature in the first line of their docstring."""
    if isinstance(obj, workbench.kernels.ops.Row) or name.removeprefix("workbench.") in workbench.kernels.ops.BUILTINS:
        return "(…)", None
    return None


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_markup)
    app.connect("autodoc-process-signature", signature)

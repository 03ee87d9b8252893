"""One runnable example for every builtin: what `help(wb.dot)` and the reference show, and a test runs.

They stand in `examples.txt`, each under its name. Values are those of the host, where a builtin called with numbers
computes at once; `...` stands for digits that differ between processors.
"""

from __future__ import annotations

import os


def paragraphs(file: str, beside: str = __file__) -> dict[str, str]:
    """{first line: the lines below it} of each paragraph of a text file beside another file."""
    with open(os.path.join(os.path.dirname(beside), file), encoding="utf-8") as text:
        return dict(part.split("\n", 1) for part in text.read().strip().split("\n\n"))


EXAMPLES = paragraphs("examples.txt")


def documented(doc: str, name: str) -> str:
    """The docstring of the builtin `name`, with its example below it where there is one."""
    return f"{doc}\n\n{EXAMPLES[name]}" if name in EXAMPLES else doc

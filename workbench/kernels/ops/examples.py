"""The runnable examples of builtins, those of `examples.txt`, below their docstrings."""

from __future__ import annotations

import os
import re


def text_of(file: str) -> str:
    """The text of a file beside this one. (`pathlib` takes long to import.)"""
    with open(os.path.join(os.path.dirname(__file__), file), encoding="utf-8") as text:
        return text.read()


_SECTION = re.compile(r"^(\w+)\n(>>> .*?)\n(?:\n|\Z)", re.DOTALL | re.MULTILINE)
EXAMPLES: dict[str, str] = dict(_SECTION.findall(text_of("examples.txt")))


def documented(doc: str, name: str) -> str:
    """The docstring of the builtin `name`, with its example below it where there is one."""
    return f"{doc}\n\n{EXAMPLES[name]}" if name in EXAMPLES else doc

"""The runnable examples of builtins, those of `examples.txt`, below their docstrings."""

from __future__ import annotations

import re
from pathlib import Path

_TEXT = Path(__file__).with_name("examples.txt").read_text("utf-8")
EXAMPLES: dict[str, str] = dict(re.findall(r"^(\w+)\n(>>> .*?)\n(?:\n|\Z)", _TEXT, re.DOTALL | re.MULTILINE))


def documented(doc: str, name: str) -> str:
    """The docstring of the builtin `name`, with its example below it where there is one."""
    return f"{doc}\n\n{EXAMPLES[name]}" if name in EXAMPLES else doc

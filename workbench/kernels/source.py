"""From a Python function to its syntax tree, with true lines and columns of the user's file or cell.

`Source` is the one that knows how a node of the tree maps to a `Where`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import KernelError, Where


@dataclass(frozen=True)
class Source:
    """The text of one function. `first` is its first line in `file`, `shift` the columns removed by dedenting."""

    fn: Callable[..., Any]
    tree: ast.FunctionDef
    text: str
    file: str
    first: int
    shift: int
    lines: tuple[str, ...]

    def where(self, node: ast.AST, caller: Where | None = None) -> Where:
        """The place of a node; the end column stays on the first line of the node."""
        row = getattr(node, "lineno", 1)
        col = getattr(node, "col_offset", 0)
        line = self.lines[row - 1] if row <= len(self.lines) else ""
        shifted = line[self.shift :]
        col = len(shifted.encode()[:col].decode(errors="ignore"))
        end_row = getattr(node, "end_lineno", row) or row
        end = getattr(node, "end_col_offset", 0) or 0
        end = len(shifted.encode()[:end].decode(errors="ignore")) if end_row == row else len(shifted)
        return Where(
            self.file, self.first + row - 1, col + self.shift, end + self.shift, line, self.fn.__name__, caller
        )


def source(fn: Callable[..., Any]) -> Source:
    """Read the text of a Python function. Raises KernelError [no-source] where Python keeps none."""
    fn = inspect.unwrap(fn)
    try:
        raw, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        raise KernelError(
            f"the source of `{getattr(fn, '__name__', fn)}` cannot be found",
            slug="no-source",
            why="A kernel is read from its text; a function made by exec() has none unless it is in linecache.",
            instead="define it in a file or a notebook cell",
        ) from None
    raw = [line.rstrip("\n") for line in raw]
    text = textwrap.dedent("\n".join(raw)) + "\n"
    shift = len(raw[0]) - len(text.split("\n", 1)[0])
    file = inspect.getsourcefile(fn) or fn.__code__.co_filename
    return Source(fn, _definition(fn, text), text, file, max(first, 1), shift, tuple(raw))


def _definition(fn: Callable[..., Any], text: str) -> ast.FunctionDef:
    try:
        body = ast.parse(text).body
    except SyntaxError:
        body = []
    for node in body:
        if isinstance(node, ast.FunctionDef):
            return node
    raise KernelError(
        f"`{fn.__name__}` is not a function defined with `def`",
        slug="no-source",
        why="Its text cannot be read by itself.",
        instead="def f(x: float): return x * x",
    )

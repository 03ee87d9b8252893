"""From a Python function to its syntax tree, with true lines and columns of the user's file or cell.

`Source` is the one that knows how a node of the tree maps to a `Where`.
"""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
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
    tree = _definition(fn, text)
    if not _same_code(fn, tree):
        raise KernelError(
            f"the text of `{fn.__name__}` in its file is not the text that Python runs",
            slug="stale-source", where=Where(file, max(first, 1), text=raw[0], function=fn.__name__),
            why="The file was edited after it was imported; the kernel would be another function than yours.",
            instead="import the module anew, or restart the kernel of the notebook",
        )  # fmt: skip
    return Source(fn, tree, text, file, max(first, 1), shift, tuple(raw))


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


def _same_code(fn: Callable[..., Any], tree: ast.FunctionDef) -> bool:
    """Does this text compile to the function's own code: the file may have changed since."""
    code = fn.__code__
    bare = copy.copy(tree)
    bare.decorator_list, bare.returns, bare.name = [], None, "text of a kernel"  # no name that it could itself mean
    bare.args = copy.deepcopy(tree.args)
    for arg in [*bare.args.posonlyargs, *bare.args.args, *bare.args.kwonlyargs, bare.args.vararg, bare.args.kwarg]:
        if arg is not None:
            arg.annotation = None
    free = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(0)) for name in code.co_freevars]
    outer = ast.parse("def around():\n    pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [*free, bare]
    module = ast.fix_missing_locations(ast.Module([outer], []))
    around = next(c for c in compile(module, "kernel", "exec", dont_inherit=True).co_consts if isinstance(c, CodeType))
    again = next((c for c in around.co_consts if isinstance(c, CodeType) and c.co_name == bare.name), None)
    return again is not None and _essence(again) == _essence(code)


_FORM = {"CACHE", "PUSH_NULL", "PRECALL", "RESUME", "NOP", "EXTENDED_ARG"}  # differ by what a module imports


def _essence(code: CodeType) -> list[tuple[str, str]]:
    """What a function does: its instructions, with names and constants in place of numbers."""
    out = []
    for step in dis.get_instructions(code):
        if step.opname in _FORM:
            continue
        jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        value = "" if jumps or isinstance(step.argval, CodeType) else repr(step.argval)
        out.append((step.opname.replace("LOAD_METHOD", "LOAD_ATTR"), value))
    return out

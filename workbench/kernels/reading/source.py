"""From a Python function to its syntax tree, with true lines and columns of the user's file or cell.

`Source` is the one that knows how a node of the tree maps to a `Where`.
"""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary, ref

from ...errors import KernelError, Where


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
        end_row = getattr(node, "end_lineno", row) or row
        end = getattr(node, "end_col_offset", 0) or 0
        shifted = line[self.shift :].encode()  # columns are bytes
        ends = col, end if end_row == row else len(shifted)
        col, end = [len(shifted[:at].decode(errors="ignore")) for at in ends]
        return Where(
            self.file, self.first + row - 1, col + self.shift, end + self.shift, line, self.fn.__name__, caller
        )


@dataclass(frozen=True)
class _Text:
    """Cache entry of a function: its code, the place of its text, and the tree while a `Source` holds it."""

    code: CodeType
    tree: ref[ast.FunctionDef]
    place: tuple[str, str, int, int, tuple[str, ...]]


_known: WeakKeyDictionary[Callable[..., Any], _Text] = WeakKeyDictionary()


def source(fn: Callable[..., Any]) -> Source:
    """Read the text of a Python function. Raises KernelError [no-source] where Python keeps none.

    Once for each function: what was found to be the text of its code stays that, whatever becomes of the file.
    """
    fn = inspect.unwrap(fn)
    known = _known.get(fn)
    if known is None or known.code is not fn.__code__:
        made = _read(fn)
        if fn.__code__.co_name != "<lambda>":
            place = made.text, made.file, made.first, made.shift, made.lines
            _known[fn] = _Text(fn.__code__, ref(made.tree), place)
        return made
    return Source(fn, known.tree() or _definition(fn, known.place[0]), *known.place)


def _read(fn: Callable[..., Any]) -> Source:
    try:
        lines, before = inspect.findsource(fn)
        if fn.__code__.co_name == "<lambda>":
            return _lambda(fn, [line.rstrip("\n") for line in lines])
        for block in _block, inspect.getblock:
            raw = [line.rstrip("\n") for line in block(lines[before:])]
            text = textwrap.dedent("\n".join(raw)) + "\n"
            with suppress(SyntaxError):
                tree = _definition(fn, text)
                break
        else:
            raise _no_def(fn)
    except (OSError, TypeError):
        what = f"the source of `{getattr(fn, '__name__', fn)}` cannot be found"
        why = "A kernel is read from its text; a function made by exec() has none unless it is in linecache."
        raise KernelError(what, slug="no-source", why=why, instead="its `def` in a file or a notebook cell") from None
    shift = len(raw[0]) - len(text.split("\n", 1)[0])
    file = inspect.getsourcefile(fn) or fn.__code__.co_filename
    if not _same_code(fn, tree):
        raise KernelError(
            f"the text of `{fn.__name__}` in its file is not the text that Python runs",
            slug="stale-source",
            where=Where(file, before + 1, text=raw[0], function=fn.__name__),
            why="The file was edited after it was imported; the kernel would be another function than yours.",
            instead="importlib.reload(module), or a restart of the notebook's kernel",
        )
    return Source(fn, tree, text, file, before + 1, shift, tuple(raw))


def _block(lines: list[str]) -> list[str]:
    """The lines of the definition that they begin with, as `inspect.getblock` finds them, which takes all to tokens.

    A line no deeper than the first ends it; where that lies in a string or brackets, what is returned is no Python.
    """
    shift, end, defined = len(lines[0]) - len(lines[0].lstrip()), 1, False
    for k, line in enumerate(lines):
        outside = line[: shift + 1].strip()
        if defined and outside and outside[0] not in "#)]}":
            break
        defined = defined or line.lstrip().startswith("def ")
        if line.strip() and outside[:1] != "#":
            end = k + 1
    return lines[:end]


def _lambda(fn: Callable[..., Any], lines: list[str]) -> Source:
    """A lambda as a function that returns its expression: of those on its line the one that compiles to its code."""
    first = fn.__code__.co_firstlineno
    own = fn.__name__ == "<lambda>"  # not the code of one that was put into another function
    for node in ast.walk(ast.parse("\n".join(lines))) if own else ():
        if isinstance(node, ast.Lambda) and node.lineno == first:
            body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node)]
            tree = ast.copy_location(ast.FunctionDef("made", node.args, body, []), node)
            if _same_code(fn, tree):
                text = "\n".join(lines[first - 1 : node.end_lineno])
                tree = ast.increment_lineno(tree, 1 - first)
                return Source(fn, tree, text, inspect.getsourcefile(fn) or "", first, 0, tuple(lines[first - 1 :]))
    raise _no_def(fn)


def _definition(fn: Callable[..., Any], text: str) -> ast.FunctionDef:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            return node
    raise _no_def(fn)


def _no_def(fn: Callable[..., Any]) -> KernelError:
    text = f"`{fn.__name__}` is not a function defined with `def`"
    why = "Its text cannot be read by itself."
    return KernelError(text, slug="no-source", why=why, instead="def f(x: float): return x * x")


def _same_code(fn: Callable[..., Any], tree: ast.FunctionDef) -> bool:
    """True if this text compiles to the function's own code: the file may have changed since."""
    code = fn.__code__
    if any(name.startswith("@") for name in code.co_names):  # no name of Python's: pytest has rewritten its assertions
        return True
    bare = copy.copy(tree)
    bare.decorator_list, bare.name = [], "text of a kernel"  # no name that it could itself mean
    free = "".join(f"    {name} = 0\n" for name in code.co_freevars)
    imports = "".join(f"import {n}\n" for n in code.co_names if isinstance(fn.__globals__.get(n), ModuleType))
    # Python compiles calls of what the same file imports otherwise than of what an earlier cell has imported.
    around = [f"{before}def around():\n{free}    pass" for before in dict.fromkeys((imports, ""))]
    if any((again := _compiled(bare, text)) is not None and _plainly(again) == _plainly(code) for text in around):
        return True
    again = _compiled(bare, around[0])
    return again is not None and _essence(again) == _essence(code)


def _compiled(tree: ast.FunctionDef, around: str) -> CodeType | None:
    """The code of a function defined at the end of this text, inside of the function that the text ends with."""
    module = ast.parse(around)
    assert isinstance(module.body[-1], ast.FunctionDef)
    module.body[-1].body[-1] = tree
    made = codes(compile(module, "kernel", "exec", dont_inherit=True))
    return next((code for code in made if code.co_name == tree.name), None)


def _plainly(code: CodeType) -> tuple:
    """The instructions and all that they name: equal only if the functions are."""
    constants = [(type(c), repr(c)) for c in code.co_consts if not isinstance(c, CodeType)]
    inner = len(code.co_consts) - len(constants)
    return code.co_code, constants, inner, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


_FORM = {"CACHE", "PUSH_NULL", "PRECALL", "RESUME", "NOP", "EXTENDED_ARG"}  # differ by what a module imports


def _essence(code: CodeType) -> list[tuple[str, str]]:
    """(opcode, argument) per instruction, with names and constants in place of their indices."""
    out = []
    for step in dis.get_instructions(code):
        if step.opname in _FORM:
            continue
        jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        value = "" if jumps or isinstance(step.argval, CodeType) else repr(step.argval)
        out.append((step.opname.replace("LOAD_METHOD", "LOAD_ATTR"), value))
    return out


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yields code, and that of all that is defined in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


def names_around(code: CodeType) -> dict[str, None]:
    """The names that code, and what is defined in it, looks up in its module, in order."""
    steps = (step for part in codes(code) for step in dis.get_instructions(part))
    return dict.fromkeys(step.argval for step in steps if "GLOBAL" in step.opname or step.opname == "LOAD_NAME")

"""Proposals in error messages of the reader, from the text around a mistake."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...errors import KernelError

if TYPE_CHECKING:
    from .base import ReaderBase

_ROOT = __name__.partition(".")[0]


def spelled(name: str, around: Mapping[str, Any]) -> str:
    """A type of this name as the user would write it: `float64` where that is imported, else `wb.float64`."""
    if str(around.get(name)) == name:
        return name
    modules = (n for n, x in around.items() if isinstance(x, ModuleType) and x.__name__ == _ROOT)
    return f"{next(modules, 'wb')}.{name}"


@contextmanager
def mixed_types(reader: ReaderBase, *operands: ast.expr) -> Iterator[None]:
    """Inside, operands of two types where one is a name that began as a plain number: the error names that line."""
    try:
        yield
    except (TypeError, KernelError) as error:
        if getattr(error, "slug", "") == "mixed-types":
            for node in operands:
                begun = _begun(reader.frame.source.tree, node)
                if begun is not None:
                    raise _began(reader, begun, operands[0], getattr(error, "what", str(error))) from None
        raise


def _begun(tree: ast.AST, node: ast.expr) -> ast.Assign | None:
    """The first assignment of a plain number to the name `node`."""
    if not isinstance(node, ast.Name):
        return None
    given = (s for s in ast.walk(tree) if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == node.id)
    return next((s for s in given if isinstance(s.value, ast.Constant) and type(s.value.value) in (int, float)), None)


def _began(reader: ReaderBase, begun: ast.Assign, node: ast.expr, text: str) -> Exception:
    name, value = ast.unparse(begun.targets[0]), begun.value.value  # type: ignore[attr-defined]  # `_begun` looked
    kind = "whole number" if isinstance(value, int) else "float32"
    others = [t for t in text.partition(", got ")[2].partition(":")[0].split(" and ") if t != "int32"]
    wanted = next((t for t in others if kind != "float32" or t != "float32"), "float32")
    number = repr(float(value)) if wanted.startswith("float") else repr(value)
    typed = number if wanted == "float32" else f"{spelled(wanted, reader.frame.around)}({number})"
    what = f"`{name}` began as the {kind} {value!r} in line {reader.where(begun).line}: {text}"
    return reader.error(what, "mixed-types", node, "", f"{name} = {typed}   in that line")


def instead_of_value(x: object, name: str) -> tuple[str, str]:
    """(what it is, line to write) for a Python object that a kernel cannot take from outside."""
    kind = type(x).__name__
    if not name:
        return f"a Python {kind} is not a value of the kernel language", "its numbers, as arguments of the kernel"
    if kind == "array" and hasattr(x, "dtype"):
        type_text = f"wb.array{'' if x.ndim == 1 else f'{x.ndim}d'}[wb.{x.dtype}]"  # type: ignore[attr-defined]
        return f"`{name}` is an array of the workbench", f"def kernel(..., {name}: {type_text}), inputs=[..., {name}]"
    if kind == "ndarray":
        return f"`{name}` is a NumPy array", f"def kernel(..., {name}: wb.array[float]), inputs=[..., wb.array({name})]"
    if isinstance(x, list | dict | set):
        way = f"tuple({name})" if isinstance(x, list) else "one name per number"
        return f"`{name}` is a Python {kind}, which may change between launches", f"{way}, or an array as an argument"
    what = f"`{name}`, a Python {kind}, is not a value of the kernel language"
    return what, f"the numbers of {name}, as arguments of the kernel"


_LOOPS = {"sum": "s = 0.0, then: for j in range(...): s += x[j]", "T": "x[j, i] for x.T[i, j]"}
_LOOPS |= {n: f"s = x[0], then: for j in range(...): s = wb.{n}(s, x[j])" for n in ("min", "max")}


def instead_of_method(node: ast.Attribute) -> str:
    """The line to write for an attribute of NumPy arrays that arrays have not in kernels."""
    return _LOOPS.get(node.attr, "x.shape[0]").replace("x", ast.unparse(node.value).partition("[")[0])

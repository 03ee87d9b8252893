"""The table of rows, and what their rules are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import KernelError
from .. import ir
from ..ir import Components, constant, kind, type_as
from ..row import Operand, Row, refuse
from ..types import Composite, Scalar, Type, is_float
from .examples import documented, paragraphs

ROWS: dict[str, Row] = {ir.CONST.name: ir.CONST}
DOCS = paragraphs("rows.txt")  # what the rows do, by their names


def plus(a: Operand | None, b: Operand | None) -> Any:
    """The sum of two derivatives, of which None is 0."""
    return b if a is None else a if b is None else ROWS["add"](a, b)


def diagonal(adjoint: Callable[..., Any]) -> Callable[..., Any]:
    """The tangent of a rule whose Jacobians are diagonal: each of them equals its transpose."""

    def tangent(ts, y, *args, **attr):
        total = None
        for i, t in enumerate(ts):
            total = plus(total, None if t is None else adjoint(t, y, *args, **attr)[i])
        return total

    return tangent


def linear_tangent(name: str) -> Callable[..., Any]:
    """Tangent rule of a row linear in all its arguments together: the row itself, applied to the tangents."""

    def tangent(ts, y, *args, **attr):
        if all(t is None for t in ts):
            return None
        full = [
            zero(a) if t is None and is_float(kind(a)) else a if t is None else t for t, a in zip(ts, args, strict=True)
        ]
        return ROWS[name](*full, **attr)

    return tangent


def row(name: str, facts: str = "", **fields: Any) -> Row:
    """Make a row and enter it in the table. `facts`: the names of those fields that are True."""
    fields |= dict.fromkeys(facts.split(), True)
    adjoint = fields.get("adjoint")
    if fields.get("linear") and not fields.get("elementwise"):
        fields.setdefault("tangent", linear_tangent(name))
    if callable(adjoint) and fields.get("expand") is None:
        fields.setdefault("tangent", diagonal(adjoint))
    fields.setdefault("vectorised", fields.get("elementwise", False) or isinstance(fields.get("meaning"), np.ufunc))
    fields.setdefault("doc", DOCS.get(name, ""))
    made = Row(name, **fields)
    assert name not in ROWS, f"two rows named {name}"
    made.__dict__["__doc__"] = documented(made.doc, name) or None
    ROWS[name] = made
    return made


def overload(of: type, function: Callable[[str], Callable[..., Any]]) -> None:
    """Give a class the operators that rules are written with, each by the function for the row of that name."""

    def forms(f: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return (lambda *operands: f(*operands)), (lambda a, b: f(b, a))

    for method, name in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div"}.items():
        plain, reflected = forms(function(name))
        setattr(of, f"__{method}__", plain)
        setattr(of, f"__r{method}__", reflected)
    for name in ("neg", "lt", "le", "gt", "ge"):
        setattr(of, f"__{name}__", forms(function(name))[0])


def stop(operands: tuple, text: str, slug: str = "type", instead: str = "") -> Exception:
    """The error that a builtin raises before it reaches a row: the user's line is known where operands are IR."""
    if any(isinstance(a, ir.Value) for a in operands):
        return KernelError(text, slug=slug, where=ir.current().where, instead=instead)
    return refuse(text, slug, instead)


def calls_library(stmt: ir.Stmt) -> bool:
    """True if C calls its math library for this statement."""
    of = stmt.row.library
    return of if isinstance(of, bool) else getattr(stmt.args[0].type, "scalar", stmt.args[0].type) in of


def hosted(type: Type, value: Components) -> Any:
    """A value of `type` on the host."""
    return type(value) if isinstance(type, Scalar) else type_as(type, Composite)(*np.ravel(value))


def like(x: Operand, type: Type, value: Components = 0) -> Any:
    """A constant of `type` where `x` lives: in IR beside IR values, on the host beside numbers."""
    return constant(type, value) if isinstance(x, ir.Value) else hosted(type, value)


def zero(x: Operand) -> Any:
    """Zero of the type of `x`."""
    return like(x, kind(x))

"""The table of rows, and what their rules are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import KernelError
from .. import ir
from ..ir import constant, kind
from ..row import Row, refuse
from ..types import Scalar, Type
from .examples import documented

ROWS: dict[str, Row] = {ir.CONST.name: ir.CONST}


def diagonal(adjoint: Callable[..., Any]) -> Callable[..., Any]:
    """The tangent of a rule whose Jacobians are diagonal: each of them equals its transpose."""

    def tangent(ts, y, *args, **attr):
        total = None
        for i, t in enumerate(ts):
            part = None if t is None else adjoint(t, y, *args, **attr)[i]
            if part is not None:
                total = part if total is None else ROWS["add"](total, part)
        return total

    return tangent


def row(name: str, **fields: Any) -> Row:
    """Make a row and enter it in the table."""
    adjoint = fields.get("adjoint")
    if callable(adjoint) and fields.get("expand") is None:
        fields.setdefault("tangent", diagonal(adjoint))
    vectors = fields.get("elementwise", False) or isinstance(fields.get("meaning"), np.ufunc)
    if fields.setdefault("vectorised", vectors or None) is True:
        fields["vectorised"] = fields.get("meaning")
    made = Row(name, **fields)
    assert name not in ROWS, f"two rows named {name}"
    made.__dict__["__doc__"] = documented(made.doc, name) or None
    ROWS[name] = made
    return made


def stop(operands: tuple, text: str, slug: str = "type", instead: str = "") -> Exception:
    """The error that a builtin raises before it reaches a row: the user's line is known where operands are IR."""
    if any(isinstance(a, ir.Value) for a in operands):
        return KernelError(text, slug=slug, where=ir.current().where, instead=instead)
    return refuse(text, slug, instead)


def calls_library(stmt: ir.Stmt) -> bool:
    """True if C calls its math library for this statement."""
    of = stmt.row.library
    return of if isinstance(of, bool) else getattr(stmt.args[0].type, "scalar", stmt.args[0].type) in of


def like(x: Any, type: Type, value: Any = 0) -> Any:
    """A constant of `type` where `x` lives: in IR beside IR values, on the host beside numbers."""
    if isinstance(x, ir.Value):
        return constant(type, value)
    return type(value) if isinstance(type, Scalar) else type(*np.ravel(value))  # type: ignore[operator]


def zero(x: Any) -> Any:
    """Zero of the type of `x`."""
    return like(x, kind(x))

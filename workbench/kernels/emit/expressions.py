"""C expressions as operands: a row that is written over components (`Row.expand`) writes C by computing with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import numeric, type_as
from ..ops.row import ROWS, overload
from ..row import Operand, Row, weak_type
from ..types import Scalar, Type, float16, float64, scalar_of
from .c_names import literal


class ExpressionText:
    """Mixin of `Body`: the C text of one operation on scalars."""

    variable: Callable[..., str]

    def short(self, e: Expr) -> Expr:
        """`e`, put into a variable if its text is long."""
        if len(e.text) > 48:
            e.text = self.variable(e.type, e.text)
        return e

    def scalar_text(self, row: Row, types: Sequence[Type], out: Type, texts: Sequence[str], attr: object) -> str:
        """The C text of a row on scalars, parenthesised. float16 is computed in float and rounded at every step."""
        if float16 in types:
            texts = [f"((float){x})" if t is float16 else x for t, x in zip(types, texts, strict=True)]
        if callable(row.c):
            text = row.c(types, *texts, **row.extra(attr))
        else:
            assert isinstance(row.c, str), f"row {row.name} has no C text"
            floats = [t for t in (out, *types) if isinstance(t, Scalar) and t.kind == "f"]
            wide = floats[0] if floats else float64
            text = row.c.format(*texts, T=numeric(out).scalar.c, f="" if wide is float64 else "f")
        narrow = isinstance(out, Scalar) and out.bits < 32 and out.kind != "b"
        return f"(({type_as(out, Scalar).c})({text}))" if narrow else f"({text})"


class Expr(Operand if TYPE_CHECKING else object):
    """A scalar C expression: rows applied to it write C. Long texts are put into a variable."""

    def __init__(self, body: ExpressionText, text: str, type: Scalar):
        self.body, self.text, self.type = body, text, type

    def apply_row(self, row: Row, args: tuple, attr: object) -> Any:
        beside: list[Type] = [a.type for a in args if isinstance(a, Expr)]
        exprs = [a if isinstance(a, Expr) else self._constant(a, beside) for a in args]
        types = [e.type for e in exprs]
        out = row.type(*types, **row.extra(attr))
        if row.expand is not None:
            return row.expand(*exprs, types=types, out=out, **row.extra(attr))
        text = self.body.scalar_text(row, types, out, [e.text for e in exprs], attr)
        return self.body.short(Expr(self.body, text, out))

    def _constant(self, value: float | np.generic, beside: list[Type]) -> Expr:
        type = scalar_of(value.dtype) if isinstance(value, np.generic) else weak_type(value, beside)
        return Expr(self.body, literal(type, value), type)

    def __bool__(self) -> bool:
        raise TypeError("a C expression has no truth value: use where(...)")


overload(Expr, ROWS.__getitem__)

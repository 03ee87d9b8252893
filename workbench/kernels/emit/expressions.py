"""C expressions as operands: a row that is written over components (`Row.expand`) writes C by computing with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..ops.row import ROWS
from ..row import Row, weak_type
from ..types import Scalar, Type, scalar_of
from .c_names import literal

if TYPE_CHECKING:
    from .body import Body


class Expr:
    """A scalar C expression: rows applied to it write C. Long texts are put into a variable."""

    def __init__(self, body: Body, text: str, type: Scalar):
        self.body, self.text, self.type = body, text, type

    def apply_row(self, row: Row, args: tuple, attr: Any) -> Any:
        beside: list[Type] = [a.type for a in args if isinstance(a, Expr)]
        exprs = [a if isinstance(a, Expr) else self._constant(a, beside) for a in args]
        types = [e.type for e in exprs]
        out = row.type(*types, **({"attr": attr} if row.typed_by_attr else {}))
        if row.expand is not None:
            extra = {"attr": attr} if row.typed_by_attr else {}
            return row.expand(*exprs, types=types, out=out, **extra)
        text = self.body.scalar_text(row, types, out, [e.text for e in exprs], attr)
        return self.body.short(Expr(self.body, text, out))

    def _constant(self, value: Any, beside: list[Type]) -> Expr:
        type = scalar_of(value.dtype) if isinstance(value, np.generic) else weak_type(value, beside)
        return Expr(self.body, literal(type, value), type)

    def __bool__(self) -> bool:
        raise TypeError("a C expression has no truth value: use where(...)")


def _operator(method: str, name: str, reflected: bool) -> None:
    def apply(self: Expr, *others: Any) -> Any:
        args = (*others, self) if reflected else (self, *others)
        return self.apply_row(ROWS[name], args, None)

    setattr(Expr, method, apply)


for _method, _name in {
    "__add__": "add",
    "__sub__": "sub",
    "__mul__": "mul",
    "__truediv__": "div",
    "__neg__": "neg",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
}.items():
    _operator(_method, _name, False)
for _method, _name in {"__radd__": "add", "__rsub__": "sub", "__rmul__": "mul", "__rtruediv__": "div"}.items():
    _operator(_method, _name, True)

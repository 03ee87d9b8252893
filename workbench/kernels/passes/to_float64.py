"""The same program in float64: every float of a kernel, in memory too, becomes a double.

For checks by differences: in float64 they are good to ten digits, in float32 to three. Constants take the value that
was written (`0.1` is the double nearest to 0.1); casts between floats stay, and do nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir import CONST, Function, Stmt, Value, numeric
from ..ops.bits import SAME_BITS
from ..ops.row import ROWS
from ..types import Array, Composite, Scalar, Type, float64
from .named import named_pass
from .retyped import Retyped


def wide(type: Type) -> Type:
    """The type with float64 in place of every float."""
    if isinstance(type, Array):
        return Array(wide(type.dtype), type.ndim)
    if not isinstance(type, (Scalar, Composite)) or type.scalar.kind != "f":
        return type
    return type.over(float64)


def _wide_attr(attr: object) -> object:
    """An attribute with the types in it made wide."""
    if isinstance(attr, tuple):
        return tuple(_wide_attr(a) for a in attr)
    return wide(attr) if isinstance(attr, Type) else attr


@named_pass("to float64")
def widen(function: Function) -> Function:
    """`function` over float64, with parameters of the same names."""
    return _Wide().function(function)


class _Wide(Retyped):
    def type_of(self, value: Value) -> Type:
        return wide(value.type)

    def attr_of(self, attr: Any) -> Any:
        return _wide_attr(attr)

    def plain(self, stmt: Stmt, args: list[Value], attr: Any) -> Sequence[Value]:
        types = [wide(o.type) for o in stmt.outs]
        if stmt.row is SAME_BITS:  # of what the number was
            old = [a.type for a in stmt.args]
            args = [ROWS["cast"](a, attr=t) if a.type != t else a for a, t in zip(args, old, strict=True)]
            made = self.builder.append(stmt.row, args, [o.type for o in stmt.outs], (), stmt.attr)
        else:
            found = types
            if stmt.row is not CONST and stmt.outs:
                given = stmt.row.type(*[a.type for a in args], **stmt.row.extra(attr))
                found = list(given) if isinstance(given, tuple) else [given]
            made = self.builder.append(stmt.row, args, found, (), attr)
        # a random number is float32 whatever is around it
        pairs = zip(made.outs, types, strict=True)
        return [new if new.type == want else ROWS["cast"](new, attr=numeric(want).scalar) for new, want in pairs]

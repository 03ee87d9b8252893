"""The text of a thread, line by line: C expressions as operands, and components of vectors and matrices.

A row that is written over components (`Row.expand`) writes C by computing with `Expr`. Of components at indices that
are known only at run time, those of small composites are chosen one by one, so that threads stay vectorised; large ones
are read and written in memory. Outside: an error where the launch checks bounds; else a first component is read, and
nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import Stmt, Value, numeric, type_as
from ..ops import vectors
from ..ops.row import ROWS, overload
from ..row import Operand, Row, weak_type
from ..types import Composite, Scalar, Type, float16, float32, float64, scalar_of
from .c_names import CNames, literal, type_name

CHOSEN = 36  # as many components are compared one by one


class ThreadText:
    """Base of `Body`: lines and variables, the C text of one operation, components at run-time indices."""

    names: CNames
    lines: list[str]
    depth: int
    texts: dict[Value, str]
    outside: Callable[..., str]
    product: str
    checks: Callable[[Stmt], bool]
    value_row: Callable[[Stmt], None]

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def declare(self, value: Value, text: str) -> None:
        """Declare the C variable of an SSA value."""
        name = self.names.new(value.name or "t")
        self.texts[value] = name
        self.put(f"{type_name(value.type)} {name} = {text};")

    def variable(self, type: Type, text: str, wish: str = "e") -> str:
        name = self.names.new(wish)
        self.put(f"{type_name(type)} {name} = {text};" if text else f"{type_name(type)} {name};")
        return name

    def text(self, value: Value) -> str:
        return self.texts[value]

    def short(self, e: Expr) -> Expr:
        """`e`, put into a variable if its text is long."""
        if len(e.text) > 30:
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
        if row is ROWS["mul"] and out in (float32, float64):
            return f"{self.product}({text})"
        narrow = isinstance(out, Scalar) and out.bits < 32 and out.kind != "b"
        return f"(({type_as(out, Scalar).c})({text}))" if narrow else f"({text})"

    # -- components at run-time indices

    def row_component(self, stmt: Stmt) -> None:
        """`extract_at` and `insert_at`."""
        whole, reads = stmt.args[0], stmt.row is vectors.EXTRACT_AT
        indices = list(stmt.args[1:] if reads else stmt.args[1:-1])
        type = type_as(whole, Composite)
        tests = [_inside(self.text(i), i.type, n) for i, n in zip(indices, type.shape, strict=False)]
        if type.size > CHOSEN:
            self._in_memory(
                stmt, [self._place(self.text(i), i.type, n) for i, n in zip(indices, type.shape, strict=False)], tests
            )
        else:
            self.value_row(stmt)
        if self.checks(stmt):
            failure = self.outside(stmt, [*map(self.text, indices)], type.shape[: len(indices)])
            self.put(f"if (!({' && '.join(tests)})) {failure}")

    def each_component(self, stmt: Stmt, text: str) -> None:
        """A row that maps over the components of a large composite, as a loop over `wb_c`."""
        out = stmt.outs[0]
        self.declare(out, "{{0}}")
        self.put(f"for (int32_t wb_c = 0; wb_c < {numeric(out).size}; ++wb_c) {self.text(out)}.c[wb_c] = {text};")

    @staticmethod
    def _place(text: str, type: Type, n: int) -> str:
        unsigned = numeric(type).scalar.kind == "u"
        return text if unsigned else f"({text} < 0 ? {text} + {n} : {text})"

    def _in_memory(self, stmt: Stmt, places: list[str], tests: list[str]) -> None:
        whole, out, reads = stmt.args[0], stmt.outs[0], stmt.row is vectors.EXTRACT_AT
        shape = type_as(whole, Composite).shape
        part = len(places) < len(shape)  # a row of a matrix
        flat = places[0] if len(shape) == 1 else f"{places[0]} * {shape[-1]} + {'wb_c' if part else places[1]}"
        every = f"for (int32_t wb_c = 0; wb_c < {shape[-1]}; ++wb_c) " if part else ""
        inside = " && ".join(tests)
        if reads:
            self.declare(out, "{{0}}" if part else f"{self.text(whole)}.c[0]")
            to = f"{self.text(out)}{'.c[wb_c]' if part else ''}"
            source = f"{self.text(whole)}.c[{flat}]"
            other = f" else {every}{to} = {self.text(whole)}.c[wb_c];" if part else ""
            self.put(f"if ({inside}) {every}{to} = {source};{other}")
        else:
            self.declare(out, self.text(whole))
            new = f"{self.text(stmt.args[-1])}{'.c[wb_c]' if part else ''}"
            self.put(f"if ({inside}) {every}{self.text(out)}.c[{flat}] = {new};")


def component(text: str, type: Type, k: int | str) -> str:
    """The C expression of component k of a value; of a scalar the value itself."""
    return f"{text}.c[{k}]" if isinstance(type, Composite) else text


def _inside(text: str, type: Type, n: int) -> str:
    """C condition: the index names one of n places, counted from either end."""
    return f"({text} < {n})" if numeric(type).scalar.kind == "u" else f"({text} >= -{n} && {text} < {n})"


class Expr(Operand if TYPE_CHECKING else object):
    """A scalar C expression: rows applied to it write C. Long texts are put into a variable."""

    def __init__(self, body: ThreadText, text: str, type: Scalar):
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

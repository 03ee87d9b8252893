"""Components of vectors and matrices at indices that are known only at run time.

Small ones are chosen component by component, so that threads stay vectorised; large ones are read and written in
memory. Outside: an error where the launch checks bounds; else a first component is read, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir import Stmt, Value, numeric, type_as
from ..ops import vectors
from ..types import Composite, Type
from .signature import Variant

CHOSEN = 36  # as many components are compared one by one


class ComponentText:
    """Mixin of `Body`: reads and updates of components at run-time indices."""

    variant: Variant
    text: Callable[..., str]
    put: Callable[[str], None]
    block: Callable[..., Any]
    declare: Callable[..., None]
    outside: Callable[..., str]
    checks: Callable[[Stmt], bool]
    texts: dict[Value, str]

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

    value_row: Callable[[Stmt], None]

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


def _inside(text: str, type: Type, n: int) -> str:
    """C condition: the index names one of n places, counted from either end."""
    return f"wb_in({text}, {n})" if numeric(type).scalar.kind == "u" else f"({text} >= -{n} && {text} < {n})"

"""Proof that the interpreter takes the same branches, turns and addresses as compiled code.

Sums, products, quotients, roots and comparisons are rounded in one way everywhere; sines and powers are not. So
it holds unless a value that depends on one of those decides about control flow or an address. In doubt: no.
"""

from __future__ import annotations

from ..ir import Function, Stmt, Value, root, type_as, walk
from ..ops import control, memory, scalar
from ..types import Array, Composite, Scalar, is_float


def certain(function: Function, shared: frozenset[str] = frozenset()) -> bool:
    """True if no value that backends may round differently reaches a condition, bound or index.

    `shared`: arrays that share memory with others, or whose elements do.
    """
    statements = list(walk(function.body))
    unsure: set[Value | str] = {out for s in statements if not s.regions and _inexact(s) for out in s.outs}
    while unsure and _spread(statements, unsure, shared):
        pass
    return not any(v in unsure for s in statements for v in _decides(s))


def _inexact(stmt: Stmt) -> bool:
    scalars = [o.type.scalar for o in stmt.outs if isinstance(o.type, Scalar | Composite)]
    floats = [t for t in scalars if is_float(t)]
    half = any(t.itemsize == 2 for t in floats)  # rounded once more, but for what is only handed on
    if stmt.row is scalar.CAST:
        return half
    return bool(floats) and (not stmt.row.exact or (half and not stmt.row.moves))


def _spread(statements: list[Stmt], unsure: set[Value | str], shared: frozenset[str]) -> bool:
    """One step of taint propagation: add what depends on `unsure`, through memory too. True if anything was added."""
    before = len(unsure)
    for stmt in statements:
        if stmt.regions:
            for group in control.flows(stmt):
                if any(v in unsure for v in group):
                    unsure.update(group[1:])
            continue
        touched = _memory(stmt, shared) if stmt.row.touches else None
        if any(a in unsure for a in stmt.args) or touched in unsure:
            unsure.update(stmt.outs)
            if touched is not None and stmt.row is not memory.LOAD:
                unsure.add(touched)
    return len(unsure) > before


def _memory(stmt: Stmt, shared: frozenset[str]) -> str:
    """The name of the array that a statement touches; "" for all that may alias."""
    name = root(stmt.args[0]).name
    return "" if name in shared else name


def _decides(stmt: Stmt) -> list[Value]:
    """The values that decide which statements run and which cells they touch: conditions, bounds, indices."""
    if stmt.row.touches:
        return list(stmt.args[1 : 1 + type_as(stmt.args[0], Array).ndim])
    return control.deciding(stmt)

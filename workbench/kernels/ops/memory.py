"""Rows that touch arrays. Indices are integer scalars, one per axis, already wrapped where they may be negative.

load(a, *i) -> element;  store(a, *i, v);  atomics(a, *i, v) -> the cell's old value;  cas(a, *i, expected, new) -> old.
`components(a)` sees an array of vectors as an array of scalars with the component axes appended: the same memory.
`accumulate(a, *i, v)` is `atomic_add` whose old value nobody reads: the update of a shadow. How it is made safe
(plain, private, atomic) is chosen by the emitter and the launch, never by the adjoint.
`wrap(i, n)` is i + n where i < 0: negative indices count from the end.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..row import NO_GRADIENT, Effect, Row, refuse
from ..types import Array, Composite, Type, int32, int64, is_int
from .row import row
from .scalar import ADD, BIT_AND, BIT_OR, BIT_XOR, EQ, MAX, MIN, SUB, WHERE


def _indexed(array: Type, indices: tuple[Type, ...]) -> Array:
    if not isinstance(array, Array):
        raise refuse(f"{array} is not an array", slug="not-an-array")
    if len(indices) != array.ndim:
        raise refuse(f"{array} takes {array.ndim} indices, got {len(indices)}", slug="rank")
    for i in indices:
        if not is_int(i):
            raise refuse(f"an index must be an integer, not {i}", slug="index-type", instead="int(...)")
    return array


def _value(array: Type, *rest: Type) -> Array:
    a = _indexed(array, rest[:-1])
    if rest[-1] != a.dtype:
        raise refuse(f"a value of type {rest[-1]} cannot go into {a}", slug="store-type", instead=f"{a.dtype}(...)")
    return a


def _store(array: Type, *rest: Type) -> None:
    _value(array, *rest)


def _atomic(array: Type, *rest: Type) -> Type:
    return _value(array, *rest).dtype


def _cas(array: Type, *rest: Type) -> Type:
    if rest[-1] != rest[-2]:
        raise refuse(f"compare and new value differ in type: {rest[-2]} and {rest[-1]}", slug="store-type")
    return _value(array, *rest[:-1]).dtype


def _components(array: Type) -> Type:
    assert isinstance(array, Array) and isinstance(array.dtype, Composite)
    return Array(array.dtype.scalar, array.ndim + len(array.dtype.shape))


def _shape(array: Type, attr: int) -> Type:
    assert isinstance(array, Array) and 0 <= attr < array.ndim
    return int32


LOAD = row("load", type=lambda array, *i: _indexed(array, i).dtype, effect=Effect.READS, facts="exact moves cheap")
STORE = row("store", type=_store, effect=Effect.WRITES, sign="=")
COMPONENTS = row("components", type=_components, cheap=True, cost=0)
SHAPE = row("shape", type=_shape, facts="typed_by_attr cheap", cost=0)
ACCUMULATE = row("accumulate", type=_store, effect=Effect.ACCUMULATES, update=ADD, adds=True, sign="+=")


def _bits(name: str, array: Type, *rest: Type) -> Type:
    made = _atomic(array, *rest)
    if not is_int(made):
        raise refuse(f"`{name}` works on an array of integers, not {array}", slug="operand-type")
    return made


def _changing(name: str, update: Row, becomes: str, of: str, c: str, sign: str = "", adds: bool = False) -> Row:
    """`becomes`: in words what happens to the cell; `of`: the type of its contents, T for any, I for an integer."""
    doc = f"{name}(a: array, *i: int, v: {of}) -> {of}: a[i] {becomes}, atomically; returns the old value."
    facts: dict[str, Any] = {"effect": Effect.ACCUMULATES, "exact": True, "adds": adds, "doc": doc}
    return row(name, type=partial(_bits, name) if of == "I" else _atomic, update=update, c=c, sign=sign, **facts)


def _updating(name: str, sign: str, update: Row, of: str = "I", adds: bool = False) -> Row:
    return _changing(name, update, f"{sign}= v", of, f"({{T}})({{0}} {sign} {{1}})", f"{sign}=", adds)


def _better(name: str, sign: str, update: Row) -> Row:
    c = f"{{1}} {sign} {{0}} ? {{1}} : {{0}}"
    return _changing(f"atomic_{name}", update, f"= {name}(a[i], v)", "T", c)


ATOMIC_ADD = _updating("atomic_add", "+", ADD, "T", adds=True)
ATOMIC_SUB = _updating("atomic_sub", "-", SUB, "T", adds=True)
ATOMIC_MIN, ATOMIC_MAX = _better("min", "<", MIN), _better("max", ">", MAX)
_EXCHANGE: dict[str, Any] = {"effect": Effect.WRITES, "adjoint": NO_GRADIENT, "exact": True}
ATOMIC_EXCH = row("atomic_exch", type=_atomic, **_EXCHANGE, update=lambda old, new: new, c="{1}")
ATOMIC_CAS = row(
    "atomic_cas",
    type=_cas,
    **_EXCHANGE,
    update=lambda old, expected, new: WHERE(EQ(old, expected), new, old),
    c="{0} == {1} ? {2} : {0}",
)
ATOMIC_AND = _updating("atomic_and", "&", BIT_AND)
ATOMIC_OR = _updating("atomic_or", "|", BIT_OR)
ATOMIC_XOR = _updating("atomic_xor", "^", BIT_XOR)

# The private copy of a replay: `log_store` remembers what it overwrites; `rollback(mark())` puts it back.
LOG_STORE = row("log_store", type=_store, effect=Effect.WRITES, sign="~=")
MARK = row("mark", type=lambda: int64, effect=Effect.IO)
ROLLBACK = row("rollback", type=lambda mark: None, effect=Effect.IO)

ATOMICS = (ATOMIC_ADD, ATOMIC_SUB, ATOMIC_MIN, ATOMIC_MAX, ATOMIC_EXCH, ATOMIC_CAS, ATOMIC_AND, ATOMIC_OR, ATOMIC_XOR)
CHANGES = (STORE, ACCUMULATE, *ATOMICS)  # what changes a cell, but for the private copy of a replay


WRAP = row(
    "wrap",
    type=lambda i, n: i,
    cheap=True,
    meaning=lambda i, n: np.where(i < 0, i + n.astype(i.dtype), i),
    vectorised=True,
    c="({0} < 0 ? {0} + {1} : {0})",
)

# turns of `for`: max(0, ceil((stop - start) / step)), 0 for step 0
TRIPS = row(
    "trips",
    type=lambda start, stop, step: int32,
    meaning=lambda start, stop, step: np.int32(0 if step == 0 else max(0, -((int(start) - int(stop)) // int(step)))),
    c=lambda types, a, b, s: (
        f"({s} > 0 ? ({b} > {a} ? (int32_t)(((int64_t){b} - {a} + {s} - 1) / {s}) : 0)"
        f" : {s} < 0 ? ({b} < {a} ? (int32_t)(((int64_t){a} - {b} - {s} - 1) / -(int64_t){s}) : 0) : 0)"
    ),
)

"""Builders of rows over components: type rules, and tangents of linear, bilinear and other functions.

A row is written once, as components in and components out: the interpreter, the emitter and the derivative all run the
same `expand`; inside it functions are rows, so that they go where their operand goes. Adjoint rules stay on whole
values. A row whose derivative is not again one of these rows gets its tangent by running `expand` on dual numbers (row
`d_<name>`; forward mode by dual numbers: Griewank and Walther, Evaluating Derivatives, 2008, chapter 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from ..ir import Sort, kind
from ..row import NO_GRADIENT, Numeric, Operand, Row, refuse
from ..types import Composite, Scalar, Tile, Type, is_float
from .row import ROWS, linear_tangent, overload, plus, row, zero
from .scalar import MOVES, TIMES, same_type

# ---- type rules


def wants(name: str, type: Type, classes: type[Sort] | tuple[type[Sort], ...], what: str) -> Sort:
    if not isinstance(type, classes):
        raise refuse(f"`{name}` takes {what}, not {type}", slug="operand-type")
    return type


def scalars_agree(name: str, a: Numeric, b: Numeric) -> None:
    if a.scalar != b.scalar:
        wide = max(a.scalar, b.scalar, key=lambda s: (s.kind == "f", s.bits))
        raise refuse(
            f"`{name}` takes operands over one scalar type, got {a} and {b}",
            slug="mixed-types",
            instead=f"{wide}(...) around one of them",
        )


def one_type(
    name: str, classes: type[Sort] | tuple[type[Sort], ...], what: str, result: Callable[[Sort], Type]
) -> Callable[..., Type]:
    """Type rule: operands of one composite type among `classes`; `result` maps it to the result type."""

    def rule(*types: Type) -> Type:
        found = [wants(name, t, classes, what) for t in types]
        same_type(name, types)
        return result(found[0])

    return rule


def floating(
    name: str, rule: Callable[..., Type], what: str = "floats", kinds: str = "f", instead: str = "float(...)"
) -> Callable[..., Type]:
    """The type rule, restricted to components of NumPy's `kinds`: floats."""

    def checked(*types: Type) -> Type:
        for t in types:
            if isinstance(t, (Scalar, Composite)) and t.scalar.kind not in kinds:
                raise refuse(f"`{name}` takes {what}, not {t}", slug="operand-type", instead=instead)
        return rule(*types)

    return checked


def numbers(name: str, rule: Callable[..., Type]) -> Callable[..., Type]:
    """The type rule, restricted to numeric components (no bools)."""
    return floating(name, rule, "numbers", "fiu", "a cast, as vec3i(...)")


# ---- derivatives shared by rows


def all_zero(x: Operand) -> Any:
    """True where every component is 0."""
    if isinstance(kind(x), Tile):
        x = ROWS["tile_total"](ROWS["abs"](x))
    return ROWS["all_eq"](x, zero(x)) if isinstance(kind(x), Composite) else ROWS["eq"](x, zero(x))


def nothing_of_zero(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The adjoint rule, guarded: an adjoint that is 0 in all components gives 0, even at infinite Jacobians."""

    def adjoint(g, y, *args, **attr):
        none = all_zero(g)
        made = rule(g, y, *args, **attr)
        return tuple(None if d is None else ROWS["where"](none, zero(d), d) for d in made)

    return adjoint


def moved_by_some(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The tangent rule, guarded: tangents that are 0 in all components give 0, even at infinite Jacobians."""

    def tangent(ts, y, *args, **attr):
        made = rule(ts, y, *args, **attr)
        for t in ts:
            if t is not None and made is not None:
                others = [None if u is t else u for u in ts]
                rest = rule(others, y, *args, **attr) if any(u is not None for u in others) else None
                made = ROWS["where"](all_zero(t), zero(made) if rest is None else rest, made)
        return made

    return tangent


def bilinear_tangent(name: str) -> Callable[..., Any]:
    def tangent(ts, y, a, b):
        product = ROWS[f"{name}_both"]
        return plus(None if ts[0] is None else product(ts[0], b), None if ts[1] is None else product(a, ts[1]))

    return tangent


@dataclass
class Factor:
    """A component that is multiplied: where it is `part` of an adjoint, by `times`; what comes of it is part of it."""

    value: Any
    part: bool
    times: Row

    def __mul__(self, other):
        if not isinstance(other, Factor):
            return Factor(self.value * other, self.part, self.times)
        if not (self.part or other.part):
            return Factor(self.value * other.value, False, self.times)
        g, f = (self, other) if self.part else (other, self)
        return Factor(self.times(g.value, f.value), True, self.times)

    __rmul__ = __mul__

    def __add__(self, other):
        return Factor(self.value + other.value, self.part or other.part, self.times)

    def __sub__(self, other):
        other = other.value if isinstance(other, Factor) else other
        return Factor(self.value - other, self.part, self.times)

    def __neg__(self):
        return Factor(-self.value, self.part, self.times)


def _passing(expand: Callable[..., Any], parts: tuple[int, ...], times: Row) -> Callable[..., Any]:
    """`expand` of a row linear in the operands `parts`, with products by `times`, which keep a 0 exactly 0."""

    @wraps(expand)
    def wrapped(*operands, types, out):
        made = [
            [Factor(x, k in parts, times) for x in a] if isinstance(a, list) else Factor(a, k in parts, times)
            for k, a in enumerate(operands)
        ]
        result = expand(*made, types=types, out=out)
        return [x.value for x in result] if isinstance(result, list) else result.value

    return wrapped


def passed(of: Row, k: int) -> Row:
    """The variant of row `of` that takes an adjoint as operand k: its components of 0 contribute exactly 0."""
    return ROWS[f"{of.name}_{k}"]


def passing(of: Row, *places: int) -> None:
    """Register the variants that `passed` returns for operands `places`."""
    for k in places:
        _variant(of, f"{of.name}_{k}", (k,), TIMES)


def _variant(of: Row, name: str, parts: tuple[int, ...], times: Row) -> None:
    assert of.expand is not None
    made = {"type": of.type, "expand": _passing(of.expand, parts, times), "shown": of, "exact": of.exact}
    row(name, **made, adjoint=of.adjoint, tangent=of.tangent, bilinear=of.bilinear, cost=of.cost)


@dataclass
class Dual(Operand if TYPE_CHECKING else object):
    """A component and its tangent."""

    value: Any
    tangent: Any

    def apply_row(self, row: Row, args: tuple, attr: object) -> Any:
        duals = [a if isinstance(a, Dual) else Dual(a, None) for a in args]
        extra = row.extra(attr)
        y = row(*[d.value for d in duals], **extra)
        known = [d.tangent for d in duals]
        if row.tangent is None or all(t is None for t in known):
            return Dual(y, None)
        return Dual(y, row.tangent(known, y, *[d.value for d in duals], **extra))


overload(Dual, ROWS.__getitem__)


def plain(x: object) -> Any:
    """The value of a dual number without its tangent; anything else as it is."""
    return x.value if isinstance(x, Dual) else x


def _dual_tangent(name: str) -> Callable[..., Any]:
    """Tangent by row `d_<name>`, which runs `expand` of the row on dual numbers."""

    def tangent(ts, y, *args):
        full = [zero(a) if t is None else t for t, a in zip(ts, args, strict=True)]
        return ROWS[f"d_{name}"](*args, *full)

    return tangent


def _paired(value: Any, tangent: Any) -> Any:
    if isinstance(value, list):
        return [Dual(v, t) for v, t in zip(value, tangent, strict=True)]
    return Dual(value, tangent)


def _dual_row(of: Row) -> Row:
    def rule(*types: Type) -> Type:
        return of.type(*types[: len(types) // 2])

    def expand(*operands, types, out):
        assert of.expand is not None
        n = len(operands) // 2
        halves = zip(types, operands[:n], operands[n:], strict=False)
        pairs = [_paired(v, t) if is_float(type) else v for type, v, t in halves]
        made = of.expand(*pairs, types=types[:n], out=out)
        return [p.tangent for p in made] if isinstance(made, list) else made.tangent

    return row(
        f"d_{of.name}",
        type=rule,
        expand=expand,
        adjoint=NO_GRADIENT,
        doc=f"Derivative of {of.name} in the direction given by the second half of the arguments.",
    )


def curved(name: str, **fields: Any) -> Row:
    """A row that is no linear or bilinear form: its tangent comes from dual numbers."""
    made = row(name, tangent=_dual_tangent(name), **fields)
    _dual_row(made)
    return made


def multilinear(name: str, operands: int, **fields: Any) -> Row:
    """Linear in its one operand, or in each of its two."""
    tangent = (linear_tangent if operands == 1 else bilinear_tangent)(name)
    made = row(name, tangent=tangent, exact=True, **fields)
    if operands == 2:
        passing(made, 0, 1)
        _variant(made, f"{name}_both", (0, 1), MOVES)
    return made

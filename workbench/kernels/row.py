"""One row per operation: the only place that knows it, and the builtin that users call.

A row says its type rule, its meaning, its C text, its adjoint, its tangent and its effect. Meaning and adjoint are
plain Python over overloaded operands: applied to IR values a row writes IR, to C expressions it writes C, to numbers
it computes, so every rule can be tested with no compiler.

Two shapes of value rows:
* scalar rows have `meaning` (on NumPy scalars) and `c` (a template); `elementwise` ones also map over components;
* linear rows have `expand`: components in, components out, written once with `+ * sqrt(...)`; NumPy meaning and
  C text both come from it.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from .types import Composite, Scalar, Small, Type, matrix, scalar_of, vector


class Effect(enum.Enum):
    """The side effect of a statement."""

    PURE = "pure"
    READS = "reads"
    WRITES = "writes"
    ACCUMULATES = "accumulates"
    IO = "io"


Numeric: TypeAlias = "Scalar | Composite"  # a type made of numbers


class Operand(Protocol):
    """An operand of a rule: an IR value, a C expression, a NumPy number or array of components, a Python number."""

    def __add__(self, other: Any, /) -> Any:
        return other

    __sub__ = __mul__ = __truediv__ = __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __add__
    __lt__ = __le__ = __gt__ = __ge__ = __add__

    def __neg__(self) -> Any:
        return self


class _NoGradient:
    """Marks an operation that has no derivative (refused on an active path), as against a derivative of zero."""

    def __repr__(self) -> str:
        return "NO_GRADIENT"


NO_GRADIENT = _NoGradient()


def refuse(text: str, slug: str = "type", instead: str = "") -> TypeError:
    """The error that a type rule raises; the builder adds the user's line."""
    error = TypeError(text)
    error.slug, error.instead = slug, instead  # type: ignore[attr-defined]
    return error


@dataclass(frozen=True)
class Singular:
    """The arguments of a row at which it has no derivative. `met(g, y, *args)` is true there; `text` says so in words.

    `instead`: what has a derivative there. `refused`: a reverse pass raises if an adjoint other than 0 comes to it.
    """

    met: Callable[..., Any]
    text: str
    instead: str
    refused: bool = False


# The fields of a row:
#
# type(*types, attr?)      -> result Type, tuple of Types, or None; raises TypeError (see `refuse`)
# meaning(*args, attr?)    -> result on NumPy scalars (arrays of components too where `elementwise`)
# vectorised               `meaning` takes vectors too, with a number per thread, numbers among them, as do NumPy's
#                          functions and those of `elementwise` rows; else threads call it one by one
# c                        template over {0} {1} ... and {T} (C name of the result's scalar) {f} (suffix '' or 'f')
#                          or a callable (types, *texts, attr?) -> text; `types` are the arguments' scalar types.
#                          float16: the emitter hands in arguments converted to float and casts the result
# expand(*operands, types=, out=, attr?)  for linear rows: a composite comes as the list of its components, a scalar
#                          as itself; -> list of the result's components (or one scalar); Python numbers may be
#                          among them
# adjoint(g, y, *args, attr?)  -> one gradient per argument (None: no gradient flows there), NO_GRADIENT, or None when
#                          the derivative is zero everywhere. Components of g that are exactly 0 count for nothing,
#                          whatever the partial derivative is: what is made of g is multiplied by `times`, divided by
#                          `over`, and goes through `passed(row, k)` of rows over components
# tangent(ts, y, *args, attr?) -> tangent of the result (None: zero); ts holds None for arguments without one, not all.
#                          Scalar and elementwise rows without one get it from the adjoint (see `diagonal`)
# fills                    of a row with a `meaning` over components: the C function that writes those of the result,
#                          from those of its one operand; of float32 the one with an f behind the name
# elementwise              maps over components; a scalar argument beside composites serves every component
# cut                      no gradient passes, and that is meant: no finding and no comparison calls it a mistake
# fused(stmt)              -> a statement or None: the one whose derivative rule to use in place of this one's, where
#                          that and the rule of what made its arguments would give 0 * inf, or a needless quotient
# whole                    the row that takes over for composites (`eq` of vectors is one bool)
# singular                 where it has no derivative: its rule gives a convention, which is said, or refused
# shown                    the row as which it is printed: the same but for the zeros of adjoints
# sign                     how it is written: between two operands, before one, between a cell and a value
# update                   of an atomic: what the cell holds afterwards, from what it held and the values given;
#                          `c` says the same in C
# adds                     its `update` adds or subtracts: in whatever order threads do it, it comes to the same
#
# Facts by which passes choose; what nobody has said does not hold, so a new row is treated with care:
# linear                   linear in its float arguments together: adjoints and tangents pass it as a whole; its tangent
#                          is the row itself (see `linear_tangent`)
# bilinear                 linear in each of two arguments
# exact                    a float result has the same bits from NumPy and from any compiler without contraction
# moves                    hands values on as they are: nothing is rounded, in float16 either
# cheap                    sooner worked out again than stored and loaded
# library                  C calls its math library for it, so compilers cannot vectorise it over threads; or the
#                          types of operands of which that is so
# block(types, type, out, *texts, attr?)  of rows over tiles, in place of `c`: C by which the threads of a block
#                          together fill `out`; `texts` name the operands, tiles as structs with the array c
# onto                     of a row over tiles: the operand that `out` holds already, and that is changed in place
#
# cost                     what it costs, counted in additions
#
# `attr?`: the keyword `attr=` is passed to every function of a row with `typed_by_attr`, and to no other.
@dataclass(frozen=True, eq=False)
class Row:
    """One operation of the kernel language: its type rule, meaning, C text, derivative rules and effect."""

    name: str
    type: Callable[..., Any]
    meaning: Callable[..., Any] | None = None
    vectorised: bool = False
    c: str | Callable[..., str] | None = None
    expand: Callable[..., Any] | None = None
    adjoint: Any = None
    tangent: Callable[..., Any] | None = None
    effect: Effect = Effect.PURE
    fills: str = ""
    elementwise: bool = False
    cut: bool = False
    typed_by_attr: bool = False
    whole: Row | None = None
    singular: Singular | None = None
    shown: Row | None = None
    fused: Callable[..., Any] | None = None
    sign: str = ""
    update: Callable[..., Any] | None = None
    adds: bool = False
    linear: bool = False
    bilinear: bool = False
    exact: bool = False
    moves: bool = False
    cheap: bool = False
    library: bool | tuple[Scalar, ...] = False
    block: Callable[..., str] | None = None
    onto: int | None = None
    cost: int = 1
    doc: str = ""

    def __post_init__(self) -> None:
        """Named and documented as a function is: users call rows."""
        self.__dict__.update(__name__=self.name, __doc__=self.doc or None)

    def __call__(self, *args, **kwargs):
        """Apply to IR values or C expressions (writes code) or to numbers (computes)."""
        attr = kwargs.pop("attr", None)
        for a in args:
            apply = getattr(type(a), "apply_row", None)
            if apply is not None:
                return apply(a, self, args, attr)
        return self.compute(*args, attr=attr)

    def __repr__(self) -> str:
        return f"<row {self.name}>"

    def extra(self, attr: object) -> dict[str, Any]:
        """The keyword `attr` for its functions, which take it beside the operands if it is typed by it."""
        return {"attr": attr} if self.typed_by_attr else {}

    def on(self, type: Type) -> Row:
        """The row for operands of this type: `whole` for composites, if it has one."""
        return self.whole if self.whole is not None and isinstance(type, Composite) else self

    @property
    def writes(self) -> bool:
        """True if it changes a cell of an array: its first argument, then the indices, last the value."""
        return self.effect in (Effect.WRITES, Effect.ACCUMULATES)

    @property
    def touches(self) -> bool:
        """True if it reads or changes a cell of an array: its first argument, then the indices."""
        return self.effect is Effect.READS or self.writes

    def compute(self, *args, attr=None, types=None):
        """The meaning on numbers: NumPy scalars, or arrays of components for composites.

        Python numbers take the type of the NumPy values beside them. `types` says what plain arrays stand for
        (a quaternion looks like a vec4).
        """
        extra = self.extra(attr)
        if types is None:
            args = weak(args)
            types = [type_of(a) for a in args]
        if types and (row := self.on(types[0])) is not self:
            return row.compute(*args, attr=attr, types=types)
        out = self.type(*types, **extra)
        with np.errstate(all="ignore"):
            if self.expand is None:
                assert self.meaning is not None, f"{self.name} has no value on the host"
                return host(out, on_components(self.meaning, *args, **extra))
            parts = [list(np.ravel(a)) if isinstance(t, Composite) else a for a, t in zip(args, types, strict=True)]
            return host(out, self.expand(*parts, types=types, out=out, **extra))


def on_components(meaning: Callable, *args: object, **extra: object) -> Any:
    """The result of `meaning` with composites as plain arrays, where `*` goes component by component."""
    return meaning(*[np.asarray(a) if isinstance(a, Small) else a for a in args], **extra)


def arity(row: Row) -> int | None:
    """The number of operands of a row; None if it takes any number, or has neither meaning nor `expand`."""
    rule = row.meaning or row.expand
    if rule is None or isinstance(rule, np.ufunc):
        return None if rule is None else rule.nin
    named = inspect.signature(rule).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in named.values()):
        return None
    return len([name for name in named if name not in ("attr", "types", "out")])


def host(type: Type, value: object) -> Any:
    """`value` as the host holds a value of `type`."""
    if isinstance(type, Composite):
        return type(np.array(value, type.numpy).reshape(type.shape))
    if isinstance(type, Scalar):
        return type.numpy.type(value)
    return value


def weak_type(value: object, beside: list[Type]) -> Scalar:
    """The type of a Python number: that of the values beside it, else that of a literal."""
    wanted = "b" if isinstance(value, bool) else "f" if isinstance(value, float) else "fiu"
    for t in beside:
        if isinstance(t, (Scalar, Composite)) and t.scalar.kind in wanted:
            return t.scalar
    return scalar_of(type(value))


def weak(args: tuple) -> tuple:
    """Python numbers among `args` turned into NumPy scalars of the type beside them."""
    beside = [type_of(a) for a in args if isinstance(a, (np.generic, np.ndarray))]

    def taken(a: object) -> Any:
        number = isinstance(a, (bool, int, float)) and not isinstance(a, np.generic)
        return weak_type(a, beside).numpy.type(a) if number else a

    return tuple(taken(a) for a in args)


def type_of(x: object) -> Type:
    """The type of a host number: Python's bool, int and float are bool, int32 and float32, as literals are."""
    if isinstance(x, Small) and x.type is not None and x.shape == x.type.shape:
        return x.type
    if isinstance(x, np.ndarray):
        if x.ndim == 1:
            return vector(len(x), scalar_of(x.dtype))
        if x.ndim == 2:
            return matrix(x.shape, scalar_of(x.dtype))
    if isinstance(x, np.generic):
        return scalar_of(x.dtype)
    if isinstance(x, (bool, int, float)):
        return scalar_of(type(x))
    text = "is not a value of the kernel language; wb.map(f, x) applies a function to every element of an array"
    raise TypeError(f"{type(x).__name__} {text}")

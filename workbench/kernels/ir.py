"""Structured SSA: statements with regions, no mutable locals, no goto, a place in the source on every statement.

A `Value` is assigned once. A `Stmt` is one row of the operation table applied to values. Control flow is three rows
with regions (`ops.control`): `if` has two regions without parameters; `for` and `while` carry values in and out.
No statement is made except by `Builder`. Rules and passes write through the builder that is `current()`.
"""

from __future__ import annotations

import enum
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from ..errors import KernelError, Where
from .row import Numeric, Operand, Row, type_of, weak_type
from .types import Array, Composite, Scalar, Stack, Tile, Type, bool_

Sort = TypeVar("Sort", bound=Type)
Components: TypeAlias = "float | Sequence[float] | np.ndarray | np.generic"  # one number for all of them, or each


class Role(enum.Enum):
    """Role of a parameter that a pass adds, relative to its owner. The value is its name, if that is free."""

    SHADOW = "d_{}"  # its adjoint
    TANGENT = "t_{}"
    AFTER = "after_{}"  # what it held after the launch
    TIES = "ties_{}"  # among how many contributors a cell's adjoint is shared
    EXTENT = "launch.dim{}"  # of the launch grid, along an axis
    OWNER = "owner_{}"  # the last thread that stored to each cell (race_finder)
    BY = "by_{}"  # in which statement
    ADDER = "adder_{}"  # the last thread that changed it by an atomic
    KIND = "kind_{}"  # in which statement
    FOUND = "found"  # two threads that met
    GAP = "{}_gap"  # bytes from the first element of its shadow to the watched one (ledger_adjoint)
    STEP = "{}_step"  # a stride of its shadow
    LOG = "log_{}"

    @property
    def mirrors(self) -> bool:
        """True for an array laid out like the one it belongs to."""
        return self in (Role.SHADOW, Role.TANGENT, Role.AFTER, Role.TIES)


@dataclass(frozen=True)
class Companion:
    """The role of a parameter that a pass added, and the kernel's parameter that it belongs to: its name, or ""."""

    role: Role
    of: str


@dataclass(eq=False)
class Value(Operand if TYPE_CHECKING else object):  # `ops.functions` gives it Python's
    """Assigned once; `name` is the user's name for it where there is one (may repeat: `show` numbers them)."""

    type: Type
    name: str = ""
    where: Where | None = None
    stmt: Stmt | None = field(default=None, repr=False)  # the statement that makes it; None for parameters
    companion: Companion | None = None  # of parameters that a pass added

    @property
    def belongs_to(self) -> str:
        """The name of the kernel's parameter that this one is, or is a companion of."""
        return self.name if self.companion is None else self.companion.of

    @property
    def role(self) -> Role | None:
        """The role of a companion parameter; None for the kernel's own."""
        return None if self.companion is None else self.companion.role

    def copied(self) -> Value:
        """The same parameter, for another function."""
        return Value(self.type, self.name, self.where, None, self.companion)

    def apply_row(self, row: Row, args: tuple, attr: object) -> Any:
        """The result of a row of which this is an operand, written by the current builder."""
        beside = [kind(a) for a in args if isinstance(a, (Value, np.generic, np.ndarray))]
        values = []
        for a in args:
            if isinstance(a, (bool, int, float)) and not isinstance(a, np.generic):
                a = constant(weak_type(a, beside), a)
            values.append(a if isinstance(a, Value) else constant(type_of(a), a))
        return current().emit(row.on(values[0].type), *values, attr=attr)


@dataclass(eq=False)
class Stmt:
    """One row applied to values. `of` is the primal statement that an adjoint or replayed statement stems from."""

    row: Row
    args: tuple[Value, ...]
    outs: tuple[Value, ...] = ()
    regions: tuple[Region, ...] = ()
    attr: Any = None
    where: Where | None = None
    of: Stmt | None = None
    role: str = "primal"  # primal | replay | adjoint | tangent: what the views colour by

    @property
    def operands(self) -> tuple[Value, ...]:
        """All values it reads: its arguments, and the results of its regions."""
        return (*self.args, *(v for r in self.regions for v in r.results)) if self.regions else self.args


@dataclass(eq=False)
class Region:
    """Parameters in, results out."""

    params: list[Value] = field(default_factory=list)
    body: list[Stmt] = field(default_factory=list)
    results: tuple[Value, ...] = ()


@dataclass(eq=False)
class Function:
    """One kernel as IR. `body.params` are the flat parameters: arrays and value types, structs taken apart.

    Parameter names are paths (`s.x`). `rank` is the number of launch dimensions that `tid()` unpacks (1 to 4).
    """

    name: str
    body: Region
    rank: int = 1
    where: Where | None = None
    source: str = ""
    first_line: int = 1
    file: str = ""
    processor_only: Where | None = None  # the call of a snippet that says something else for CUDA

    @property
    def params(self) -> list[Value]:
        return self.body.params

    @property
    def arrays(self) -> list[Value]:
        return [p for p in self.params if isinstance(p.type, Array)]

    def with_body(self, body: Region, name: str = "", rank: int = 0) -> Function:
        """Another program that stands for the same place in the source."""
        return replace(self, body=body, name=name or self.name, rank=rank or self.rank)


def companion(
    params: list[Value], role: Role, of: str, type: Type, where: Where | None = None, name: str = ""
) -> Value:
    """One more of `params`, with a name that is free there: `d_x`, or `d_x_1` where the user has a `d_x`."""
    wish, taken = name or role.value.format(of), {p.name for p in params}
    names = itertools.chain((wish,), (f"{wish}_{k}" for k in itertools.count(1)))
    made = Value(type, next(n for n in names if n not in taken), where, None, Companion(role, of))
    params.append(made)
    return made


def walk(region: Region) -> Iterator[Stmt]:
    """Every statement of a region in program order, outer before inner."""
    open_ = [iter(region.body)]  # no recursion: regions may lie in each other a thousand deep
    while open_:
        for stmt in open_[-1]:
            yield stmt
            if stmt.regions:
                open_ += [iter(inner.body) for inner in reversed(stmt.regions)]
                break
        else:
            open_.pop()


def used(region: Region) -> set[Value]:
    """Every value that a statement of the region reads, or that is one of its results."""
    return {*region.results, *(v for stmt in walk(region) for v in stmt.operands)}


def root(array: Value) -> Value:
    """The parameter behind an array, or behind the array of its components; anything else is its own root."""
    while array.stmt is not None and isinstance(array.type, Array):
        array = array.stmt.args[0]
    return array


_local = threading.local()


def current() -> Builder:
    """The builder that operators and rows write to."""
    stack = getattr(_local, "stack", None)
    if not stack:
        raise RuntimeError("no builder is open: IR values can only be combined while a kernel is being built")
    return stack[-1]


class _Inside:
    """`with builder.inside(region)`. A class, as this and `At` are entered for every statement that is written."""

    __slots__ = ("builder", "region", "outer")

    def __init__(self, builder: Builder, region: Region):
        self.builder, self.region = builder, region

    def __enter__(self) -> Region:
        self.outer, self.builder.region = self.builder.region, self.region
        return self.region

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.builder.region = self.outer


class At:
    """`with builder.at(where, of)`."""

    __slots__ = ("builder", "where", "of", "before")

    def __init__(self, builder: Builder, where: Where | None, of: Stmt | None = None):
        self.builder, self.where, self.of = builder, where, of

    def __enter__(self) -> None:
        builder = self.builder
        self.before = builder.where, builder.of
        builder.where, builder.of = self.where, self.of

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.builder.where, self.builder.of = self.before


class Builder:
    """Writes statements into one region at a time. `where`, `of` and `role` are stamped on what is written."""

    def __init__(self, region: Region | None = None):
        self.region = region if region is not None else Region()
        self.where: Where | None = None
        self.of: Stmt | None = None
        self.role = "primal"

    @contextmanager
    def open(self) -> Iterator[Builder]:
        """Make this the current builder."""
        stack = _local.__dict__.setdefault("stack", [])
        stack.append(self)
        try:
            yield self
        finally:
            stack.pop()

    def inside(self, region: Region) -> _Inside:
        """Write into `region` for a while."""
        return _Inside(self, region)

    def at(self, where: Where | None, of: Stmt | None = None) -> At:
        """Stamp what follows with a place in the source and the primal statement it stems from."""
        return At(self, where, of)

    def emit(self, row: Row, *args: Value, attr: object = None, name: str = "") -> Any:
        """Append one statement of a row without regions; its type rule decides the result."""
        numbers_alone = row.block is None and not row.elementwise and row.effect.value == "pure"
        if numbers_alone and Tile in [a.type.__class__ for a in args]:
            raise KernelError(
                f"`{row.name}` does not take tiles", slug="tile-operand", where=self.where, instead="tile_map(f, t)"
            )
        try:
            type = row.type(*[a.type for a in args], **row.extra(attr))
        except TypeError as e:
            raise KernelError(
                str(e), slug=getattr(e, "slug", "type"), where=self.where, instead=getattr(e, "instead", "")
            ) from None
        types = type if isinstance(type, tuple) else () if type is None else (type,)
        stmt = self.append(row, args, types, attr=attr, name=name)
        return stmt.outs[0] if len(stmt.outs) == 1 else stmt.outs or None

    def append(
        self,
        row: Row,
        args: tuple[Value, ...] | list[Value],
        types: tuple[Type, ...] | list[Type],
        regions: tuple[Region, ...] = (),
        attr: object = None,
        name: str = "",
    ) -> Stmt:
        """Append a statement whose result types are given (control flow, constants)."""
        where = self.where
        outs = tuple([Value(t, name, where) for t in types])
        stmt = Stmt(row, tuple(args), outs, regions, attr, where, self.of, self.role)
        for out in outs:
            out.stmt = stmt
        self.region.body.append(stmt)
        return stmt

    def repeat(self, stmt: Stmt, args: Sequence[Value], known: dict, regions: tuple[Region, ...] = ()) -> Stmt:
        """Append a statement like `stmt`, over `args`. Its results are entered in `known`."""
        made = self.append(stmt.row, [*args], [o.type for o in stmt.outs], regions, stmt.attr)
        enter(known, stmt.outs, made.outs)
        return made

    def like(self, region: Region, known: dict, write: Callable[[Region, dict], object]) -> tuple[Region, dict]:
        """A region like `region`, in which `write(region, scope)` writes the statements; and that scope."""
        new, scope = Region([Value(p.type, p.name, p.where) for p in region.params]), dict(known)
        scope.update(zip(region.params, new.params, strict=True))
        with self.inside(new):
            write(region, scope)
        new.results = tuple(scope[r] for r in region.results)
        return new, scope


def enter(known: dict, outs: Sequence[Value], made: Sequence[Value]) -> None:
    """Let values stand for others in `known`, under the same names."""
    for out, new in zip(outs, made, strict=False):
        new.name, known[out] = out.name, new


def with_types(attr: object, change: Callable[[Type], Type]) -> Any:
    """An attribute with the types in it changed."""
    if isinstance(attr, tuple):
        return tuple([with_types(part, change) for part in attr])
    return change(attr) if isinstance(attr, Type) else attr


def is_value(type: Type) -> bool:
    """True for the types that control flow can carry: all but arrays and stacks."""
    return not isinstance(type, (Array, Stack))


# attr: a Python number for scalars; for composites one number for all components or a flat tuple of them
CONST = Row("const", type=lambda attr: None, typed_by_attr=True, exact=True, moves=True, cheap=True, cost=0)


def constant(type: Type, value: Components) -> Value:
    """A constant of `type` in the current builder: `value` is one number, or all components."""
    flat = [value] if value.__class__ in (bool, int, float) else np.ravel(value).tolist()
    if getattr(type, "scalar", None) is bool_:
        flat = [bool(x) for x in flat]
    attr = flat[0] if len(flat) == 1 else tuple(flat)
    return current().append(CONST, (), (type,), attr=attr).outs[0]


def kind(x: object) -> Type:
    """The type of an operand of a rule: IR value or number."""
    return x.type if isinstance(x, Value) else type_of(x)


def type_as(x: object, sort: type[Sort]) -> Sort:
    """The type of an operand, or a type, that is known to be of this sort where it is asked for."""
    found = x if isinstance(x, Type) else kind(x)
    assert isinstance(found, sort)
    return found


def numeric(x: object) -> Numeric:
    """The type of an operand, or a type, that is known to be made of numbers."""
    found = x if isinstance(x, Type) else kind(x)
    assert isinstance(found, (Scalar, Composite))
    return found

"""The things a name can stand for while a function is read, and the state that branches copy and merge.

Everything here is immutable except `State`: writing a field or a component makes a new tree and rebinds the name.
Leaves that control flow carries are `ir.Value`s. Of arrays, which are handles, it carries where their parts lie, and
which of several a name stands for (`Choice`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, final

import numpy as np

from .. import ir
from ..types import Array, Struct, Tile, TileOf

Int = ir.Value | int

FRESH = {"$stop": False, "$go": True, "$return": False}  # at the start of a function


@dataclass(frozen=True)
class Turn:
    """A free axis of a cut: its elements lie `step` apart, and there are `length` of them.

    An index from 0 to `safe` leaves it only where it leaves the whole array too.
    """

    step: Int
    length: Int
    safe: float = 0


@dataclass(frozen=True)
class SlicedAxis:
    """A cut through an axis of an array, or a local array: its first element, and its remaining axes."""

    start: Int
    turns: tuple[Turn, ...] = ()


Entry = ir.Value | SlicedAxis | None


@dataclass(frozen=True)
class ArrayView:
    """An array, or a row or slice of it. `prefix`: of leading axes the index taken, a cut, or None for all of it."""

    root: ir.Value
    prefix: tuple[Any, ...] = ()

    @property
    def type(self) -> Array:
        assert isinstance(self.root.type, Array)
        taken = sum(1 - free(entry) for entry in self.prefix) if self.prefix else 0
        return Array(self.root.type.dtype, self.root.type.ndim - taken)

    def at(self, indices: tuple[ir.Value, ...]) -> ArrayView:
        return ArrayView(self.root, self.prefix + indices)


def free(entry: Entry) -> int:
    """The number of axes that an entry of a prefix leaves."""
    return len(entry.turns) if isinstance(entry, SlicedAxis) else int(entry is None)


@dataclass(frozen=True)
class Fields:
    """An array of structs: one array per field."""

    type: Array
    parts: dict[str, ArrayView | Fields | Local | Choice]

    @property
    def struct(self) -> Struct:
        assert isinstance(self.type.dtype, Struct)
        return self.type.dtype

    def at(self, indices: tuple[ir.Value, ...]) -> Fields:
        return self.each(lambda part: part.at(indices))

    def each(self, change: Callable[[Any], Any]) -> Fields:
        """The same over other arrays."""
        return self.remade({name: change(part) for name, part in self.parts.items()})

    def remade(self, parts: dict[str, Any]) -> Fields:
        """The same with other fields."""
        return Fields(Array(self.type.dtype, next(iter(parts.values())).type.ndim), parts)

    @property
    def first(self) -> ArrayView | Local | Choice:
        part = next(iter(self.parts.values()))
        return part.first if isinstance(part, Fields) else part


@dataclass(frozen=True)
class StructParts:
    """A struct taken apart."""

    type: Struct
    fields: dict[str, Any]

    @property
    def parts(self) -> dict[str, Any]:
        return self.fields

    def remade(self, parts: dict[str, Any]) -> StructParts:
        """The same with other fields."""
        return StructParts(self.type, parts)

    def with_field(self, name: str, value: object) -> StructParts:
        return self.remade({**self.fields, name: value})


@dataclass(frozen=True)
class Shape:
    """`x.shape`."""

    array: ArrayView | Local | Choice


@dataclass(frozen=True)
class Local:
    """An array made inside the kernel, or part of it: `key` names its contents, which all aliases share."""

    key: str
    dtype: Any
    cut: SlicedAxis

    @property
    def type(self) -> Array:
        return Array(self.dtype, len(self.cut.turns))


@dataclass(frozen=True)
class Choice:
    """One of several arrays of one type, which one is known when the kernel runs. Exactly one of `flags` holds."""

    options: tuple[ArrayView | Local, ...]
    flags: tuple[ir.Value | bool, ...]

    @property
    def type(self) -> Array:
        return self.options[0].type

    def each(self, change: Callable[[Any], Any]) -> Choice:
        """The same choice among other arrays."""
        return Choice(tuple([change(option) for option in self.options]), self.flags)

    def at(self, indices: tuple[ir.Value, ...]) -> Choice:
        return self.each(lambda option: option.at(indices))


@dataclass(frozen=True)
class TilePart:
    """A part or another form of a tile: the row that makes it, the indices and the type that the row takes."""

    row: Any
    indices: tuple[ir.Value, ...]
    attr: Any


@dataclass(frozen=True)
class Shown:
    """A tile whose memory several names share: what the cell `key` holds, or the part of it that the steps lead to."""

    key: str
    type: Tile
    steps: tuple[TilePart, ...] = ()


@dataclass(frozen=True)
class LocalPart:
    """A part of a local: `load` gives its value, `store` rebinds the local with the part replaced."""

    load: Callable[[], Any]
    store: Callable[[Any], None]


@dataclass(frozen=True)
class Unusable:
    """A name that may not be read here; reading raises what `error` makes."""

    error: Callable[[Any], Exception]


@dataclass
class State:
    """Bindings at one point of the program. `cells` holds the contents of local arrays, shared by all frames."""

    names: dict[str, Any] = field(default_factory=dict)
    cells: dict[str, ir.Value] = field(default_factory=dict)

    def copy(self) -> State:
        return State(dict(self.names), dict(self.cells))


AnyArray: TypeAlias = ArrayView | Fields | Local | Choice
Part: TypeAlias = ArrayView | Local | Choice  # of one array, or of one of several

if TYPE_CHECKING:  # a tile of numbers, and one of composites or structs, as `tile_parts.is_tile` finds them

    @final
    class TileValue(ir.Value):
        type: Tile  # type: ignore[assignment]  narrower than a value's, which nobody assigns

    @final
    class TileParts(StructParts):
        type: TileOf
else:
    TileValue, TileParts = ir.Value, StructParts


AnyTileValue: TypeAlias = "TileValue | TileParts"


def is_array(x: object) -> TypeGuard[AnyArray]:
    return isinstance(x, (ArrayView, Fields, Local, Choice))


def atoms(x: object) -> Iterator[Any]:
    """The parts of a tree of structs and tuples, in order: values, arrays, shown tiles, Python objects."""
    if isinstance(x, StructParts | Fields | tuple):
        for part in x if isinstance(x, tuple) else x.parts.values():
            yield from atoms(part)
    else:
        yield x


def mapped(x: object, kind: Any, change: Callable[[Any], Any]) -> Any:
    """The same tree with its atoms of this kind changed."""
    if isinstance(x, StructParts | Fields):
        return x.remade({name: mapped(part, kind, change) for name, part in x.parts.items()})
    if isinstance(x, tuple):
        return tuple([mapped(part, kind, change) for part in x])
    return change(x) if isinstance(x, kind) else x


def leaves(x: object) -> Iterator[ir.Value]:
    """The IR values of a tree, in order, as control flow carries them; of an array view its places."""
    for atom in atoms(x):
        if isinstance(atom, ir.Value):
            yield atom
        elif isinstance(atom, Part):
            yield from (n for n in places(atom) if isinstance(n, ir.Value))
        elif isinstance(atom, Shown):
            for step in atom.steps:
                yield from step.indices


def rebuild(x: object, values: Iterator[ir.Value]) -> Any:
    """The same tree with its leaves, in order, taken from `values`."""

    def moved(atom: Any) -> Any:
        if isinstance(atom, ir.Value):
            return next(values)
        if isinstance(atom, Shown):
            steps = [replace(step, indices=tuple([next(values) for _ in step.indices])) for step in atom.steps]
            return replace(atom, steps=tuple(steps))
        if isinstance(atom, ArrayView) and not atom.prefix:
            return atom
        return placed_at(atom, [next(values) if isinstance(n, ir.Value) else n for n in places(atom)], True)

    return mapped(x, ir.Value | Shown | Part, moved)


def places(x: object) -> list[Int]:
    """The places of a view: all numbers (constants or IR values) that tell which part or which array it is."""
    if isinstance(x, Choice):
        return [*x.flags, *(n for option in x.options for n in places(option))]
    assert isinstance(x, ArrayView | Local)
    found: list[Int] = []
    for entry in x.prefix if isinstance(x, ArrayView) else (x.cut,):
        if isinstance(entry, SlicedAxis):
            found += [entry.start, *(n for turn in entry.turns for n in (turn.step, turn.length))]
        elif entry is not None:
            found.append(entry)
    return found


def same_parts(a: object, b: object) -> bool:
    """True for two parts of one array that differ in their `places` alone."""
    if isinstance(a, Choice) and isinstance(b, Choice):
        return len(a.options) == len(b.options) and all(map(same_parts, a.options, b.options))
    if isinstance(a, Local) and isinstance(b, Local):
        return a.key == b.key and free(a.cut) == free(b.cut)
    return (
        isinstance(a, ArrayView)
        and isinstance(b, ArrayView)
        and a.root is b.root
        and len(a.prefix) == len(b.prefix)
        and all(type(x) is type(y) and free(x) == free(y) for x, y in zip(a.prefix, b.prefix, strict=True))
    )


def placed_at(x: Part, numbers: list[Int], safe: bool = False) -> Any:
    """The same kind of part at other places; `safe`: where it is known to be safe, so are they."""
    rest = iter(numbers)
    if isinstance(x, Choice):
        flags = tuple([next(rest) for _ in x.flags])
        options = [placed_at(o, [next(rest) for _ in places(o)], safe) for o in x.options]
        return Choice(tuple(options), flags)  # type: ignore[arg-type]

    def entry(e: Entry) -> Any:
        if not isinstance(e, SlicedAxis):
            return None if e is None else next(rest)
        start = next(rest)
        return SlicedAxis(start, tuple([Turn(next(rest), next(rest), t.safe if safe else 0) for t in e.turns]))

    if isinstance(x, ArrayView):
        return ArrayView(x.root, tuple([entry(e) for e in x.prefix]))
    return replace(x, cut=entry(x.cut))


def local_keys(x: object) -> set[str]:
    """The contents of local arrays and of shared tiles that a tree has a part of."""
    if isinstance(x, Local | Shown):
        return {x.key}
    if isinstance(x, Unusable):
        return local_keys(getattr(x, "tree", None))
    inner = x.options if isinstance(x, Choice) else atoms(x) if isinstance(x, Fields | StructParts | tuple) else ()
    return {key for part in inner for key in local_keys(part)}


def describe(x: object) -> str:
    """The type of what a name stands for, as users write it."""
    if isinstance(x, (ir.Value, ArrayView, Fields, StructParts, Choice)):
        return str(x.type)
    if isinstance(x, Local):
        return f"local {x.type}"
    if isinstance(x, tuple):
        return f"({', '.join(describe(part) for part in x)})"
    return type(x).__name__


def is_literal(x: object) -> TypeGuard[bool | int | float]:
    """A Python number whose type in the kernel is not fixed yet."""
    return isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)

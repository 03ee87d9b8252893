"""What a name can stand for while a function is read, and the state that branches copy and merge.

Everything here is immutable except `State`: writing a field or a component makes a new tree and rebinds the name.
Leaves that control flow carries are `ir.Value`s; arrays are handles that control flow cannot choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import ir
from ..types import Array, Struct, Type


@dataclass(frozen=True)
class View:
    """An array, or a row of it: the root array and the leading indices already taken."""

    root: ir.Value
    prefix: tuple[ir.Value, ...] = ()

    @property
    def type(self) -> Array:
        assert isinstance(self.root.type, Array)
        return Array(self.root.type.dtype, self.root.type.ndim - len(self.prefix))

    def at(self, indices: tuple[ir.Value, ...]) -> View:
        return View(self.root, self.prefix + indices)


@dataclass(frozen=True)
class Fields:
    """An array of structs: one array per field."""

    type: Array
    parts: dict[str, View | Fields]

    @property
    def struct(self) -> Struct:
        assert isinstance(self.type.dtype, Struct)
        return self.type.dtype

    def at(self, indices: tuple[ir.Value, ...]) -> Fields:
        parts = {name: part.at(indices) for name, part in self.parts.items()}
        return Fields(Array(self.type.dtype, self.type.ndim - len(indices)), parts)

    @property
    def first(self) -> View:
        part = next(iter(self.parts.values()))
        return part if isinstance(part, View) else part.first


@dataclass(frozen=True)
class Record:
    """A struct taken apart."""

    type: Struct
    fields: dict[str, Any]

    def with_field(self, name: str, value: Any) -> Record:
        return Record(self.type, {**self.fields, name: value})


@dataclass(frozen=True)
class Shape:
    """`x.shape`."""

    array: View


@dataclass(frozen=True)
class Local:
    """An array made inside the kernel: `key` names the vector that all aliases share."""

    key: str
    dtype: Type
    shape: tuple[int, ...]


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


def is_array(x: Any) -> bool:
    return isinstance(x, (View, Fields, Local))


def leaves(x: Any) -> Iterator[ir.Value]:
    """The values of a tree that control flow can carry, in order."""
    if isinstance(x, ir.Value):
        yield x
    elif isinstance(x, Record):
        for part in x.fields.values():
            yield from leaves(part)
    elif isinstance(x, tuple):
        for part in x:
            yield from leaves(part)


def rebuild(x: Any, values: Iterator[ir.Value]) -> Any:
    """The same tree with other leaves."""
    if isinstance(x, ir.Value):
        return next(values)
    if isinstance(x, Record):
        return Record(x.type, {name: rebuild(part, values) for name, part in x.fields.items()})
    if isinstance(x, tuple):
        return tuple(rebuild(part, values) for part in x)
    return x


def describe(x: Any) -> str:
    """The type of what a name stands for, as users write it."""
    if isinstance(x, (ir.Value, View, Fields, Record)):
        return str(x.type)
    if isinstance(x, Local):
        return f"local array(dtype={x.dtype})"
    if isinstance(x, tuple):
        return f"({', '.join(describe(part) for part in x)})"
    return type(x).__name__


def is_literal(x: Any) -> bool:
    """A Python number whose type in the kernel is not fixed yet."""
    return isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)

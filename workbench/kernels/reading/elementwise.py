"""A func of numbers becomes a kernel: one thread per element loads the arguments, applies the func, stores the results.

The kernel is IR like any other, written by the reader while it reads the func, so every statement keeps the line of
the func it stems from. Parameters are named as the func names them, results `out` (or `out0`, `out1` ... for several).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ...errors import KernelError, Where
from .. import ir, ops
from ..ops import control
from ..row import Row, weak_type
from ..types import Array, Composite, Scalar, Struct, Type
from . import python_names
from .calls import FUNCTIONS, type_of_value
from .declare import Func
from .func_grad import call_custom
from .overload_calls import overload
from .reader import Reader, Reading
from .scope import FRESH, ArrayView, Fields, State, describe


@dataclass(frozen=True, eq=False)
class Mapped:
    """The reading of an elementwise kernel. `outs`: element types of the results; `several`: the func gave a tuple."""

    reading: Reading
    outs: tuple[Type, ...]
    several: bool


def callable_in_kernels(f: object) -> Any:
    """`f` as kernels call it: a Func, a plain function (read as a func), or a builtin. None for anything else."""
    if isinstance(f, (Func, Row)) or id(f) in FUNCTIONS:
        return f
    if isinstance(f, (FunctionType, type, type(len))) and f in ops.PYTHON:
        return ops.PYTHON[f]
    return f if isinstance(f, FunctionType) else None


def elementwise(f: Callable[..., Any], types: Sequence[Type | type], ndim: int) -> Mapped:
    """Read `f` over parameters of these types: arrays of `ndim` axes, values, or int, float, bool for Python numbers.

    A Python number takes the annotated type, else the scalar type of the values beside it. Raises KernelError.
    """
    return _Mapper().mapped(f, types, ndim)


class _Mapper(Reader):
    """Reads one func as the body of a kernel."""

    def mapped(self, f: Callable[..., Any], types: Sequence[Type | type], ndim: int) -> Mapped:
        f = self.meant(f, types)
        if isinstance(f, Func) and f.refused is not None:
            raise f.refused
        fn = f.fn if isinstance(f, Func) else f if isinstance(f, FunctionType) and id(f) not in FUNCTIONS else None
        where, known = self.opened(fn, len(types))
        params = list(zip(known, self.element_types(fn, known, types), strict=True))
        self.rank = ndim
        with self.builder.open(), self.builder.at(where):
            given = [self.parameter(name, type, where) for name, type in params]
            index = tuple(self.builder.emit(control.TID, attr=control.Tid(axis)) for axis in range(ndim))
            values = [self.loaded(g.at(index)) if isinstance(g, ArrayView | Fields) else g for g in given]
            result = f(*values) if fn is None else self.applied(f, fn, dict(zip(known, values, strict=True)))
            several = isinstance(result, tuple)
            parts = result if several else (result,)
            labels = [f"out{k}" if several else "out" for k in range(len(parts))]
            outs = [self.stored(part, label, index, where) for part, label in zip(parts, labels, strict=True)]
        params += [(label, Array(t, ndim)) for label, t in zip(labels, outs, strict=True)]
        return Mapped(Reading(self.written(f, where), params, self.lookups), tuple(outs), several)

    def meant(self, f: Callable[..., Any], types: Sequence[Type | type]) -> Any:
        """Of overloads the one for these types."""
        if not (isinstance(f, Func) and f.overloads):
            return f
        known = self.element_types(None, [""] * len(types), types)
        return overload(self, f, [ir.Value(t.dtype if isinstance(t, Array) else t) for t in known], {}, None)

    def written(self, f: object, where: Where | None) -> ir.Function:
        region, rank, name = self.builder.region, self.rank or 1, getattr(f, "__name__", "map")
        if not self.frames:
            return ir.Function(name, region, rank)
        src = self.frame.source
        divided = where if getattr(self.frame.fn, "snippet", False) else self.processor_only
        return ir.Function(name, region, rank, where, src.text, src.first, src.file, divided)

    def opened(self, fn: Callable[..., Any] | None, count: int) -> tuple[Where | None, list[str]]:
        """Begin with the func as the function being read; the place of its `def`, and the names of its parameters."""
        if fn is None:
            return None, list("abcdefgh"[:count])
        self.push(fn, None)
        tree = self.frame.source.tree
        self.frame.caller = self.where(tree)  # it returns values, as a func does that is called
        known = [a.arg for a in self.parameters(tree)]
        required = [p for p in inspect.signature(fn).parameters.values() if p.default is p.empty]
        if not len(required) <= count <= len(known):
            shown = f"It is {fn.__name__}({', '.join(known)})."
            raise self.error(f"`{fn.__name__}` gets {count} arguments", "arguments", tree, shown, "as many as it takes")
        return self.where(tree), known[:count]

    def element_types(
        self, fn: Callable[..., Any] | None, known: list[str], types: Sequence[Type | type]
    ) -> list[Type]:
        """The types of the parameters, with one chosen for each Python number."""
        beside = [t.dtype if isinstance(t, Array) else t for t in types if isinstance(t, Type)]
        made: list[Type] = []
        for name, type in zip(known, types, strict=True):
            if not isinstance(type, Type):
                wanted = None
                if fn is not None:
                    wanted = python_names.annotation(fn, name, self.frame.around, self.place_of(name), self.lookups)
                type = wanted if isinstance(wanted, (Scalar, Composite)) else weak_type(type(), beside)
            made.append(type)
        return made

    def place_of(self, name: str) -> Where:
        return self.where(next(a for a in self.parameters(self.frame.source.tree) if a.arg == name))

    def applied(self, f: object, fn: Callable[..., Any], values: dict[str, Any]) -> Any:
        """The body of the func over these values: what it returns."""
        tree = self.frame.source.tree
        bound = inspect.signature(fn).bind(**values)
        bound.apply_defaults()
        params = {name: self.taken(name, value) for name, value in bound.arguments.items()}
        if isinstance(f, Func) and self.custom(f):
            result = call_custom(self, f, params, tree)
        else:
            self.state = State({**FRESH, **params}, {})
            self.body()
            result = self.returned()
        if result is None:
            text = f"`{fn.__name__}` returns no value"
            raise self.error(text, "missing-return", tree, "map stores what it returns.", "return ...")
        return self.checked(result, tree)

    def taken(self, name: str, value: object) -> Any:
        try:
            return self.argument(name, value)
        except KernelError as e:
            raise KernelError(e.what, slug=e.slug, where=self.place_of(name), why=e.why, instead=e.instead) from None

    def stored(self, part: object, label: str, index: tuple[ir.Value, ...], where: Where | None) -> Type:
        """Store one result; the array for it is the next parameter."""
        part = self.materialised(part, "")
        type = type_of_value(part)
        if not isinstance(type, (Scalar, Composite, Struct)):
            text = f"this func returns {describe(part)}"
            raise KernelError(text, slug="map-result", where=where, why="map stores numbers, vectors and structs.")
        place = self.parameter(label, Array(type, len(index)), where)
        self.write(place.at(index), part, ast.Name(label))
        return type

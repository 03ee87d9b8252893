"""Operators of arrays, and errors for methods that only other libraries have: they say what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import LaunchError, compose
from ..kernels.ops.examples import paragraphs

_INSTEAD = paragraphs("missing_methods.txt", __file__)  # what to write -> the names of others


class Absent:
    """In place of a method of other libraries: raises AttributeError with what to write. (`__getattr__` is slower.)"""

    def __init__(self, what: str, instead: str):
        self.what, self.instead = what, instead

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: object, owner: type) -> Any:
        text = compose(f"{self.what} has no attribute {self.name!r}", None, "", self.instead, "attribute")
        raise AttributeError(text, name=self.name, obj=obj)

    def __set__(self, obj: object, value: object) -> None:
        self.__get__(obj, type(obj))


def place_absent(kind: type, what: str, meant: dict[str, str]) -> None:
    """Give a class an `Absent` for each of the names in `meant` that it does not have."""
    wanted = ((name, line) for line, names in meant.items() for name in names.split())
    absent = {name: Absent(what, line) for name, line in wanted if not hasattr(kind, name)}
    for name, stand_in in absent.items():
        setattr(kind, name, stand_in)
        stand_in.__set_name__(kind, name)


def _compared(sign: str) -> Callable[[Any, Any], Any]:
    """A comparison method that raises LaunchError [array-comparison]; NotImplemented beside objects of other kinds."""

    def compare(a: Any, b: Any) -> Any:
        if not isinstance(b, type(a) | int | float | np.generic | np.ndarray | list | tuple):
            return NotImplemented
        other = b.label if isinstance(b, type(a)) else "..."
        values = f"{a.label}.numpy() {sign} " + (f"{other}.numpy()" if isinstance(b, type(a)) else other)
        same = f"{a.label} is {other} for one object, " if sign in ("==", "!=") and isinstance(b, type(a)) else ""
        text = f"`{sign}` of the array {a.label} and {other if isinstance(b, type(a)) else type(b).__name__}."
        why = "It would read values on the host, where no tape sees what depends on them."
        instead = f"{same}{values} for the values of now, or wb.map(f, ...) for an array of them"
        raise LaunchError(text, slug="array-comparison", why=why, instead=instead)

    return compare


_COMPARISONS = {"__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def install(kind: Any, operators: dict[str, Callable[[Any, Any], Any]]) -> None:
    """Give a class of arrays these operators, by name (`__imul__`, ...), and the errors of this module for the rest."""
    for name in "add sub mul truediv floordiv mod pow matmul".split():
        for how in ("i", "", "r"):
            setattr(kind, f"__{how}{name}__", _operator(f"__{how}{name}__", operators))
    kind.__abs__ = lambda self: _operator("__abs__", operators)(self, None)
    kind.__neg__ = lambda self: _operator("__neg__", operators)(self, None)
    for name, sign in _COMPARISONS.items():
        setattr(kind, name, _compared(sign))
    kind.__hash__ = object.__hash__
    place_absent(kind, "an array", _INSTEAD)


def _operator(name: str, operators: dict[str, Callable[[Any, Any], Any]]) -> Callable[[Any, Any], Any]:
    def apply(self: object, other: object) -> Any:
        if name in operators:
            return operators[name](self, other)
        ways = {"abs": "wb.map(wb.abs, x)", "matmul": "wb.utils.array_inner, wb.sparse, or tiles: wb.tile_matmul"}
        why = "Arrays are memory; arithmetic on their elements belongs in a kernel."
        instead = f"{ways.get(name.strip('_'), 'a kernel, wb.map(...)')}, or x.numpy() for plain NumPy"
        raise LaunchError(f"no operator {name.strip('_')} on arrays", slug="array-operator", why=why, instead=instead)

    apply.__name__ = name
    return apply


def check_is_array(what: str, value: object, kind: type, instead: str) -> None:
    """Raise LaunchError [argument-type] if a value is no array."""
    if not issubclass(type(value), kind):  # to `isinstance` annotations are arrays
        wanted = "a NumPy array" if kind is np.ndarray else "an array"
        text = f"{what} takes {wanted}, not {type(value).__name__}"
        raise LaunchError(text, slug="argument-type", instead=instead)

"""The objects that a reading looked up in Python: names, attributes, contents of vectors, static expressions.

Each link of `a.b.k` is noted with the object found there. A program holds while every link still leads to that object,
or to the same number: an equal one of its type, where -0.0 is not 0.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from ..types import Type
from .declare import Func, Instance, struct_of
from .scope import is_literal

Link = tuple[str, Any, str, Any]  # how to follow it, from which object, by which name, and what was found

FOLLOWED: dict[str, tuple[Callable[[Any, str], Any], str]] = {  # each way: as a function, and as text
    "attribute": (getattr, "{0}.{1}"),
    "item": (lambda holder, name: holder[name], "{0}[{1!r}]"),
    "presence": (lambda holder, name: name in holder, "({1!r} in {0})"),
}


class Lookups:
    """Record of all that one reading took from Python."""

    def __init__(self) -> None:
        self.links: dict[tuple[str, int, str], Link] = {}
        self.vectors: dict[int, tuple[np.ndarray, bytes]] = {}  # each, and what it held
        self.expressions: list[tuple[Callable[[], Any], Any]] = []  # each, and a copy of what it gave
        self._identical: Callable[[], bool] | None = None

    def link(self, kind: str, base: object, name: str, found: object) -> None:
        """Note what `base` has under this name: by a kind of `FOLLOWED`, of "presence" whether it has it."""
        self.links[kind, id(base), name] = kind, base, name, found

    def vector(self, value: np.ndarray) -> None:
        """Note the contents of a vector or matrix, which may change in place."""
        self.vectors.setdefault(id(value), (value, value.tobytes()))

    def expression(self, evaluate: Callable[[], Any], found: object) -> None:
        """Note what an expression of Python gives, which is evaluated again each time."""
        self.expressions.append((evaluate, copied(found)))

    def values(self) -> list[Any]:
        """The floats, vectors and tuples that were found, and what expressions gave.

        A float that was replaced by an equal one is that one.
        """
        found: list[Any] = []
        for kind, base, name, x in self.links.values():
            if isinstance(x, float | np.floating | tuple):
                with suppress(Exception):  # as what is gone by now
                    now = FOLLOWED[kind][0](base, name)
                    x = now if self._same_object(now, x) else x
                found.append(x)
        return [*found, *(v for v, _ in self.vectors.values()), *(then for _, then in self.expressions)]

    def current(self) -> bool:
        """True if all of it is still the same, so that nothing need be read anew."""
        if self._identical is None:
            self._identical = _comparison(self.links.values())
        try:
            if not self._identical():
                links = self.links.values()
                if not all(self._same_object(FOLLOWED[k][0](x, n), o) for k, x, n, o in links):
                    return False
            if self.vectors and any(v.tobytes() != then for v, then in self.vectors.values()):
                return False
            return not self.expressions or all(_same_value(now(), then) for now, then in self.expressions)
        except Exception:  # noqa: BLE001  said with its line when the kernel is read anew
            return False

    def _same_object(self, now: Any, then: Any) -> bool:
        """True for the same object or number, and for another object that holds the same where this one was read."""
        if now is then or same_number(now, then):
            return True
        if type(now) is not type(then) or callable(then) or isinstance(then, Type):
            return False
        if isinstance(then, tuple):
            return len(now) == len(then) and all(map(self._same_object, now, then))
        if id(then) in self.vectors:
            return now.type is then.type and now.tobytes() == self.vectors[id(then)][1]
        read = [(kind, name, found) for kind, base, name, found in self.links.values() if base is then]
        return bool(read) and all(self._same_object(FOLLOWED[kind][0](now, n), found) for kind, n, found in read)


def _comparison(links: Iterable[Link]) -> Callable[[], bool]:
    """A function that follows all links: True if each leads to the very object. A few dozen nanoseconds a link."""
    names: dict[str, Any] = {}
    tests = []
    for k, (kind, base, name, found) in enumerate(links):
        names |= {f"b{k}": base, f"f{k}": found}
        tests.append(f"{FOLLOWED[kind][1].format(f'b{k}', name)} is f{k}")
    return eval(f"lambda {', '.join(f'{n}={n}' for n in names)}: {' and '.join(tests) or True}", names)


def same_number(a: Any, b: Any) -> bool:
    """True for equal numbers of one type; 0.0 and -0.0 are two, a NaN is equal to itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float) and not isinstance(a, np.generic):
        return struct.pack("d", a) == struct.pack("d", b)
    return a.tobytes() == b.tobytes() if isinstance(a, np.generic) else is_literal(a) and a == b


def _same_value(now: Any, then: Any) -> bool:
    """True for what a kernel would read alike: of what an expression gave, the contents count."""
    if isinstance(then, np.ndarray):
        same = type(now) is type(then) and (now.dtype, now.shape) == (then.dtype, then.shape)
        return same and now.tobytes() == then.tobytes()
    if type(now) is not type(then):
        return False
    if isinstance(then, list | tuple):
        return len(now) == len(then) and all(map(_same_value, now, then))
    if isinstance(then, dict):
        return list(now) == list(then) and all(map(_same_value, now.values(), then.values()))
    if isinstance(then, Instance):
        return all(_same_value(getattr(now, name), getattr(then, name)) for name, _ in struct_of(then).fields)
    if isinstance(then, Func) and now is not then:
        return not then.custom and not now.custom and _same_function(now.fn, then.fn)
    return now is then or same_number(now, then) or (isinstance(then, str | range | Type) and now == then)


def _same_function(now: Any, then: Any) -> bool:
    """True for functions made by one `def` around the same objects."""
    around, before = [[cell.cell_contents for cell in fn.__closure__ or ()] for fn in (now, then)]
    same = now.__code__ is then.__code__ and now.__globals__ is then.__globals__
    return same and _same_value([*around, now.__defaults__], [*before, then.__defaults__])


def copied(x: Any) -> Any:
    """A copy of what may change in place."""
    if type(x) in (list, tuple):
        return type(x)(map(copied, x))
    if type(x) is dict:
        return {key: copied(value) for key, value in x.items()}
    if isinstance(x, Instance):
        return type(x)(**{name: copied(getattr(x, name)) for name, _ in struct_of(x).fields})
    return x.copy() if isinstance(x, np.ndarray) else x

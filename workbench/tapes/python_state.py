"""The Python objects that a function can reach, and whether they are still what they were.

Walked from the names in its code: closure, globals, defaults, then attributes and items, and the functions of the
user's that it finds there. Arrays are compared by identity (their contents may change), NumPy arrays by contents,
numbers and text by value, everything else by identity.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.names import is_users
from ..errors import KernelError, LaunchError, Where
from ..kernels.program import Kernel
from ..kernels.reading.declare import Func, Instance
from ..kernels.reading.source import Source, source

MOST = 10_000  # objects that a function may reach
_MISSING = object()
_PLAIN = frozenset((int, float, bool, complex, str, bytes, type(None)))
_LEAVES = (Kernel, Func, CodeType)  # kernels watch what they read themselves
_WALKED = ("optim", "sparse")  # rooms of this package whose objects hold arrays and numbers of the user's


@dataclass(frozen=True, eq=False, slots=True)
class Link:
    """One thing a function can reach: what the program calls it, how it is read, and what it was."""

    label: str
    read: Callable[[], Any]
    was: Any


class PythonState:
    """Everything a function can reach, as it is when this is made.

    memories    allocations of the arrays among it.
    functions   the user's functions among it, itself included.
    """

    def __init__(self, function: Callable[..., Any], given: Iterable[tuple[str, object]] = ()):
        self.links: list[Link] = []
        self.memories: set[Allocation] = set()
        self.functions: list[FunctionType] = []
        self._kept: dict[int, object] = {}  # by id: alive as long as they are compared
        self._visit(getattr(function, "__name__", "it"), function)
        for label, value in given:
            self._visit(label, value)

    def changes(self) -> list[Link]:
        """The links that lead to something else now."""
        return [link for link in self.links if not same(link.read(), link.was)]

    def changed(self) -> bool:
        """True if any link leads to something else now."""
        return any(not same(link.read(), link.was) for link in self.links)

    def drop(self, links: Iterable[Link]) -> None:
        """Compare these no longer."""
        gone = {*links}
        self.links = [link for link in self.links if link not in gone]

    def only_counts(self, link: Link) -> bool:
        """True if the user's functions add plain values to what a link leads to, and never look at it."""
        before = {id(leaf) for leaf in _leaves(link.was)}
        plain = all(type(leaf) in _PLAIN or id(leaf) in before for leaf in _leaves(link.read()))
        return plain and not any(_reads(text.tree, link.label) for text in self._texts())

    def place_of(self, link: Link) -> Where | None:
        """The line at which one of the user's functions changes what a link leads to; None if none is found."""
        for text in self._texts():
            for node in ast.walk(text.tree):
                if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                    named = node.value if isinstance(node, ast.Subscript) else node
                    if ast.unparse(named) == link.label:
                        return text.where(node)
        return None

    def _texts(self) -> Iterator[Source]:
        for function in self.functions:
            try:
                yield source(function)
            except KernelError:  # no text: then nothing is known of what it reads
                continue

    # ---- the walk

    def _link(self, label: str, read: Callable[[], Any]) -> Any:
        if len(self.links) >= MOST:
            text = f"{label}: the function reaches more than {MOST} Python objects."
            why = "All of them are compared at each call, so that nothing old is replayed."
            raise LaunchError(text, slug="jit", why=why, instead="arguments for what it needs of them")
        was = read()
        self.links.append(Link(label, read, was))
        return was

    def _visit(self, label: str, value: object) -> None:
        kind = type(value)
        if kind in _PLAIN or isinstance(value, _LEAVES) or id(value) in self._kept:
            return
        self._kept[id(value)] = value
        if isinstance(value, array):
            self.memories.add(value.allocation)
        elif isinstance(value, np.ndarray):
            self._link(label, functools.partial(digest, value))
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._visit(label.rpartition(".")[0] or "self", value.__self__)
            self._visit(label, value.__func__)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._visit(label, part)
        elif isinstance(value, list | tuple | deque | dict | set):
            self._items(label, value)
        elif isinstance(value, Iterator | np.random.Generator | Random):
            self._link(label, object)  # each use changes it, and nobody can tell: it counts as changed
        elif isinstance(value, property):
            self._visit(label, value.fget)
        elif isinstance(value, type):
            if is_users(value.__module__.partition(".")[0]):
                self._attributes(label, vars(value), [name for name in vars(value) if not name.startswith("__")])
        elif (wrapped := getattr(value, "__wrapped__", None)) is not None:
            self._visit(label, wrapped)
        else:
            self._object(label, value)

    def _items(self, label: str, value: Any) -> None:
        read = functools.partial(_pairs, value) if isinstance(value, dict) else functools.partial(tuple, value)
        for k, item in enumerate(self._link(label, read)):
            name, inner = item if isinstance(value, dict) else (k, item)
            self._visit(f"{label}[{name!r}]", inner)

    def _object(self, label: str, value: object) -> None:
        """The attributes of an object of the user's, and its class."""
        kind = type(value)
        package, _, room = kind.__module__.partition(".")
        ours = package == __name__.partition(".")[0] and room.partition(".")[0] in _WALKED
        if not (is_users(package) or ours or isinstance(value, Instance)):
            return
        if not ours and not isinstance(value, Instance):
            for base in kind.__mro__[:-1]:
                self._visit(base.__name__, base)
        fields = getattr(value, "__dict__", {})
        self._link(label, functools.partial(tuple, fields))
        self._attributes(label, fields, fields)
        for base in kind.__mro__:
            for name in base.__dict__.get("__slots__", ()):
                read = functools.partial(getattr, value, name, _MISSING)
                self._visit(f"{label}.{name}", self._link(f"{label}.{name}", read))

    def _attributes(self, label: str, fields: Mapping[str, Any], names: Iterable[str]) -> None:
        for name in tuple(names):
            found = self._link(f"{label}.{name}", functools.partial(fields.get, name, _MISSING))
            self._visit(f"{label}.{name}", found)

    def _function(self, function: FunctionType) -> None:
        if not is_users(str(function.__globals__.get("__name__", "__main__")).partition(".")[0]):
            self._visit(function.__name__, getattr(function, "__wrapped__", None))
            return
        self.functions.append(function)
        around = function.__globals__
        names = dict.fromkeys(name for code in _codes(function.__code__) for name in code.co_names)
        for name in names:
            if name in around:
                found = self._link(name, functools.partial(around.get, name, _MISSING))
                self._visit(name, found)
                if isinstance(found, ModuleType) and is_users(found.__name__.partition(".")[0]):
                    self._attributes(name, vars(found), [n for n in names if n in vars(found)])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._visit(name, self._link(name, functools.partial(_inside, cell)))
        given = function.__defaults__ or ()
        taken = function.__code__.co_varnames[: function.__code__.co_argcount]
        defaults = dict(zip(taken[len(taken) - len(given) :], given, strict=True)) | (function.__kwdefaults__ or {})
        for name, default in defaults.items():
            self._visit(name, default)


def same(now: object, then: object) -> bool:
    """True for the same object, an equal number or text of the same type, or tuples of such."""
    if now is then:
        return True
    kind = type(now)
    if kind is not type(then):
        return False
    if isinstance(now, tuple) and isinstance(then, tuple):
        return len(now) == len(then) and all(map(same, now, then))
    if isinstance(now, float | np.floating) and isinstance(then, float | np.floating):
        return (now == then and math.copysign(1.0, now) == math.copysign(1.0, then)) or (now != now and then != then)
    return (kind in _PLAIN or isinstance(now, np.generic | np.dtype)) and bool(now == then)


def digest(values: np.ndarray) -> bytes:
    """A digest of dtype, shape and contents."""
    made = hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16)
    made.update(f"{values.dtype.str}{values.shape}".encode())
    return made.digest()


def _leaves(value: object) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _pairs(value: dict) -> tuple:
    return tuple(value.items())


def _inside(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return _MISSING


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


_ADDING = ("append", "add", "update")


def _reads(tree: ast.AST, label: str) -> bool:
    """True if code looks at what it calls `label`, other than to add to it: `n += 1`, `n[k] += 1`, `n.append(1)`.

    Of an attribute only the name counts: another function may call the object something else.
    """
    adding: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            adding.add(node.target.value)
        elif isinstance(node, ast.Expr) and isinstance(called := getattr(node.value, "func", None), ast.Attribute):
            adding.update([called.value] if called.attr in _ADDING else ())
    whole, _, name = label.rpartition(".")
    kind, called = (ast.Attribute, "attr") if whole else (ast.Name, "id")
    return any(
        getattr(node, called) == name
        for node in ast.walk(tree)
        if isinstance(node, kind) and isinstance(node.ctx, ast.Load) and node not in adding
    )

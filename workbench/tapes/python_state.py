"""The Python objects that a function can reach, and whether they are still what they were.

Walked from the names in its code: closure, globals, defaults, then items, and attributes that the code of any of the
user's functions found so far names. Arrays are compared by identity (their contents may change), NumPy arrays and
buffers by contents, tensors by the count that torch keeps of their changes, numbers and text by value, everything else
by identity. Objects of libraries are walked whole, as the code of their methods is not; what cannot be walked, an
object of compiled code, is refused. Functions of libraries are taken to read nothing but their arguments.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation, known_memory
from ..arrays.array import array
from ..arrays.indexed import indexedarray
from ..arrays.names import is_users
from ..arrays.scalar import scalar
from ..errors import KernelError, LaunchError, Where
from ..kernels.program import Kernel
from ..kernels.reading.declare import Func, Instance
from ..kernels.reading.source import Source, codes, names_around, source

MOST = 10_000  # objects that a function may reach
_MISSING = object()
PLAIN = frozenset((int, float, bool, complex, str, bytes, type(None)))
_RANDOM = (Random, np.random.RandomState)
_LEAVES = (Kernel, Func, CodeType)  # kernels watch what they read themselves
_OURS = __name__.partition(".")[0]
_WALKED = ("optim", "sparse")  # rooms of this package whose objects hold arrays and numbers of the user's
_MAKING = ("__init__", "__new__", "__post_init__")  # what an object that is there does no more
_ALL_GLOBALS = frozenset(("globals", "eval", "exec"))
_BY_TEXT = frozenset(("getattr", "vars", "__dict__", "attrgetter", *_ALL_GLOBALS))  # may name any attribute
_CONSTANT = ("builtins", "numpy", "torch", "jaxlib", "operator", "typing", "_thread", "_collections")


@dataclass(frozen=True, eq=False, slots=True)
class Link:
    """One thing a function can reach: what the program calls it, how it is read, and what it was."""

    label: str
    read: Callable[[], Any]
    was: Any


class PythonState:
    """Everything a function can reach, as it is when this is made.

    memories    allocations of the arrays among it.
    foreign     True if there are tensors of other libraries among it, which may share memory with any array.
    functions   the user's functions among it, itself included.
    """

    def __init__(self, function: Callable[..., Any], given: Iterable[tuple[str, object]] = ()):
        self._names: set[str] = set()  # in the code of the user's functions
        known = -1
        while known < len(self._names):  # what a name leads to may have functions, with other names
            known = len(self._names)
            self.links: list[Link] = []
            self.memories: set[Allocation] = set()
            self.functions: list[FunctionType] = []
            self.foreign = False
            self._kept: dict[int, object] = {}  # by id: alive as long as they are compared
            self._classes: set[type] = set()  # of the user's
            self._visit(getattr(function, "__name__", "it"), function)
            for label, value in given:
                self._visit(label, value)

    def changes(self) -> list[Link]:
        """The links that lead to something else now."""
        return [link for link in self.links if not same(link.read(), link.was)]

    def only_counts(self, link: Link) -> bool:
        """True if the user's functions add plain values to what a link leads to, and never look at it."""
        before = {id(leaf) for leaf in _leaves(link.was)}
        plain = all(type(leaf) in PLAIN or id(leaf) in before for leaf in _leaves(link.read()))
        return plain and not any(_reads(text.tree, link.label) for text in self._sources())

    def place_of(self, link: Link) -> Where | None:
        """The line at which one of the user's functions changes what a link leads to; None if none is found."""
        for text in self._sources():
            for node in ast.walk(text.tree):
                if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                    named = node.value if isinstance(node, ast.Subscript) else node
                    if ast.unparse(named) == link.label:
                        return text.where(node)
        return None

    def _sources(self) -> Iterator[Source]:
        """The texts of the functions, and of all methods of the classes, of which others may be called next."""
        members = [m for kind in self._classes for m in vars(kind).values()]
        methods = [getattr(m, "fget", None) or getattr(m, "__func__", m) for m in members]
        for function in dict.fromkeys((*self.functions, *(m for m in methods if isinstance(m, FunctionType)))):
            try:
                yield source(function)
            except KernelError:  # no text: then nothing is known of what it reads
                continue

    # ---- the walk

    def _link(self, label: str, read: Callable[[], Any]) -> Any:
        if len(self.links) >= MOST:
            text = f"{label}: the function reaches more than {MOST} Python objects."
            why = "All of them are compared at each call, so that nothing old is replayed."
            raise LaunchError(text, slug="jit", why=why, instead=_INSTEAD)
        was = read()
        self.links.append(Link(label, read, was))
        return was

    def _visit(self, label: str, value: object) -> None:
        if type(value) in PLAIN or isinstance(value, _LEAVES) or id(value) in self._kept:
            return
        self._kept[id(value)] = value
        if isinstance(value, array):
            self.memories.add(value.allocation)
        elif isinstance(value, scalar):
            self._link(label, functools.partial(getattr, value, "value"))
        elif isinstance(value, np.ndarray):
            self._link(label, functools.partial(exact, value))
            if value.dtype.hasobject:
                self._items(label, value.ravel().tolist())
            if (known := known_memory(value)) is not None:
                self.memories.add(known[0])
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType | BuiltinFunctionType | MethodWrapperType):
            if not isinstance(value.__self__, _RANDOM):  # what they give is compared in the first two calls
                self._visit(label.rpartition(".")[0] or "self", value.__self__)
                self._visit(label, getattr(value, "__func__", None))
        elif isinstance(value, weakref.ref | ContextVar):
            read = functools.partial(value.get, None) if isinstance(value, ContextVar) else value
            self._visit(label, self._link(label, read))
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._visit(label, part)
        elif isinstance(value, list | tuple | deque | Mapping | set):
            self._items(label, value)
            if is_users(_package(type(value))):
                self._object(label, value)
        elif isinstance(value, (Iterator, np.random.Generator, *_RANDOM)):
            self._link(label, object)  # each use changes it, and nobody can tell: it counts as changed
        elif isinstance(value, property):
            self._visit(label, value.fget)
        elif isinstance(value, type):
            for kind in (type(value), *value.__bases__):
                self._visit(label, kind)
            if is_users(_package(value)):
                self._classes.add(value)
                self._attributes(label, vars(value), self._named(label, vars(value)))
        elif isinstance(value, staticmethod | classmethod):
            self._visit(label, value.__func__)
        elif isinstance(value, ModuleType):
            self._attributes(label, vars(value), [name for name in self._names if name in vars(value)])
        else:
            self._object(label, value)

    def _items(self, label: str, value: Any) -> None:
        mapping = isinstance(value, Mapping)
        read = (lambda: tuple(value.items())) if mapping else functools.partial(tuple, value)
        for k, item in enumerate(self._link(label, read)):
            name, inner = item if mapping else (k, item)
            self._visit(label, name)
            self._visit(f"{label}[{name!r}]", inner)

    def _object(self, label: str, value: object) -> None:
        """Visit what an object holds, and a class of the user's. Raises LaunchError [jit] where nobody can tell."""
        kind = type(value)
        package, _, room = kind.__module__.partition(".")
        holds = kind.__dictoffset__ or isinstance(value, threading.local)
        fields = vars(value) if holds else {}
        self._visit(label, fields.get("__wrapped__"))
        walked = isinstance(value, Instance | indexedarray) or room.partition(".")[0] in _WALKED
        if package == _OURS and not walked:
            if "__wrapped__" in fields:  # a jit function
                self._attributes(label, fields, [n for n in self._named(label, fields) if n != "replays"])
            return
        self.foreign = self.foreign or hasattr(kind, "__dlpack__")
        listed = [base.__dict__.get("__slots__") or () for base in kind.__mro__]
        slots = [name for names in listed for name in ((names,) if isinstance(names, str) else names)]
        if (contents := _contents(value)) is not None:
            self._link(label, contents)
        # What is compared by value never changes: dates, decimals, patterns. Nor do objects of these libraries.
        elif not (slots or holds or package in _CONSTANT or kind.__hash__ not in (None, object.__hash__)):
            text = f"{label}: of {package}.{kind.__name__} nobody can tell whether it has changed."
            raise LaunchError(text, slug="jit", instead=_INSTEAD)
        users = [base for base in kind.__mro__[:-1] if is_users(_package(base))]
        for base in {*users} - self._classes:
            self._classes.add(base)
            named = self._named(base.__name__, vars(base))
            self._attributes(base.__name__, vars(base), [n for n in named if n not in _MAKING])
        if len(users) == len(kind.__mro__) - 1:
            self._attributes(label, fields, self._named(label, fields))
        else:
            self._link(f"{label}.*", functools.partial(tuple, fields))
            self._attributes(label, fields, fields)
        for name in slots:
            read = functools.partial(getattr, value, name, _MISSING)
            self._visit(f"{label}.{name}", self._link(f"{label}.{name}", read))

    def _attributes(self, label: str, fields: Mapping[str, Any], names: Iterable[str]) -> None:
        for name in tuple(names):
            found = self._link(f"{label}.{name}", functools.partial(fields.get, name, _MISSING))
            self._visit(f"{label}.{name}", found)

    def _named(self, label: str, fields: Mapping[str, Any]) -> list[str]:
        """Attributes of an object or a class that code may ask for, be it by an operator; that others stay absent."""
        if self._names & _BY_TEXT:
            self._link(f"{label}.*", functools.partial(tuple, fields))
            return list(fields)
        absent = [name for name in self._names if name not in fields]
        self._link(f"{label}.*", lambda: any(map(fields.__contains__, absent)))
        return [n for n in fields if n in self._names or (n.startswith("__") and callable(fields[n]))]

    def _function(self, function: FunctionType) -> None:
        around = function.__globals__
        package = str(around.get("__name__", "__main__")).partition(".")[0]
        self._visit(function.__name__, getattr(function, "__wrapped__", None))
        if package == _OURS:
            return
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._visit(name, self._link(name, functools.partial(_inside, cell)))
        if not is_users(package):
            return
        self.functions.append(function)
        names = dict.fromkeys(name for code in codes(function.__code__) for name in _texts(code))
        self._names.update(names)
        self._attributes(function.__name__, vars(function), self._named(function.__name__, vars(function)))
        for name in around if names.keys() & _ALL_GLOBALS else names_around(function.__code__):
            self._visit(name, self._link(name, functools.partial(around.get, name, _MISSING)))
        for module in _imported(names, around):
            self._visit(module.__name__, module)
        self._link("__code__", lambda: (function.__code__, *(function.__kwdefaults__ or {}).items()))
        given = self._link("__defaults__", functools.partial(getattr, function, "__defaults__")) or ()
        taken = function.__code__.co_varnames[: function.__code__.co_argcount]
        defaults = dict(zip(taken[len(taken) - len(given) :], given, strict=True)) | (function.__kwdefaults__ or {})
        for name, default in defaults.items():
            self._visit(name, default)


_INSTEAD = "arguments for what the function needs of it, or @wb.jit(off=True)"


def same(now: object, then: object) -> bool:
    """True for the same object, an equal number or text of the same type, or tuples of such."""
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, tuple) and isinstance(then, tuple):
        return len(now) == len(then) and all(map(same, now, then))
    return (type(now) in PLAIN or isinstance(now, np.generic | np.dtype | np.ndarray)) and exact(now) == exact(then)


def exact(value: object) -> tuple:
    """A key of a number, a text or an array of numbers: equal for the same bits of the same type, and for no others."""
    if isinstance(value, np.ndarray | complex | np.complexfloating):
        data = hashlib.blake2b(np.asanyarray(value).tobytes(), digest_size=16).digest()
        return type(value), getattr(value, "dtype", None), np.shape(value), data, getattr(value, "type", None)
    return type(value), float(value).hex() if isinstance(value, float | np.floating) else value


def _contents(value: object) -> Callable[[], Any] | None:
    """Reads what tells a change of a tensor or a buffer; None for other objects."""
    if _package(type(value)) == "torch" and hasattr(value, "_version"):
        return functools.partial(getattr, value, "_version")
    try:
        memoryview(value).release()  # type: ignore[arg-type]
    except TypeError:
        return None
    return functools.partial(bytes, value)  # type: ignore[arg-type]


def _texts(code: CodeType) -> tuple[str, ...]:
    """The names in code, and its texts, which may be names of attributes."""
    return *code.co_names, *(part for part in _leaves(code.co_consts) if isinstance(part, str))


def _imported(names: Iterable[str], around: Mapping[str, Any]) -> Iterator[ModuleType]:
    """Modules that code with these names may import where it runs, from the package of its own module too."""
    packages, package = [""], str(around.get("__package__") or "")
    while package:
        packages.append(f"{package}.")
        package = package.rpartition(".")[0]
    for name in names:
        for package in packages:
            if isinstance(found := sys.modules.get(f"{package}{name}".rstrip(".")), ModuleType):
                yield found


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _leaves(value: object) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _inside(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return _MISSING


def _reads(tree: ast.AST, label: str) -> bool:
    """True if code looks at what it calls `label`, other than to add to it: `n += 1`, `n[k] += 1`, `n.append(1)`.

    Of an attribute only the name counts: another function may call the object something else. What has no name is read.
    """
    adding: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            adding.add(node.target.value)
        elif isinstance(node, ast.Expr) and isinstance(called := getattr(node.value, "func", None), ast.Attribute):
            adding.update([called.value] if called.attr in ("append", "add", "update") else ())
    whole, _, name = label.partition("[")[0].rpartition(".")
    kind, called = (ast.Attribute, "attr") if whole else (ast.Name, "id")
    return not name.isidentifier() or any(
        getattr(node, called) == name
        for node in ast.walk(tree)
        if isinstance(node, kind) and isinstance(node.ctx, ast.Load) and node not in adding
    )

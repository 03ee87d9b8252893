"""Translation of Warp's kernels, funcs, structs, types and constants, declared by any package, to the workbench's.

Code objects are not changed: a function's globals and closure are replaced by copies in which every object of Warp is
the workbench's of the same name.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import linecache
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import warp
from warp._src import codegen, context, types as warp_types

from ...arrays import names
from ...errors import KernelError
from ...kernels.reading.declare import Refused
from ...kernels.reading.overloads import beside
from .hooks import is_between

CACHED = type(functools.cache(abs))  # a function that keeps what it returned
SMALL = 4096  # bytes of an array of NumPy that may be a constant of a kernel


def parts_of(thing: object) -> tuple[Any, ...]:
    """The parts of a function, func, class or container, nested containers flattened: compared by identity."""
    if isinstance(thing, types.FunctionType):
        given = thing.__code__, thing.__defaults__, thing.__kwdefaults__
        return tuple(_leaves([*given, *_contents(thing)], set()))
    if isinstance(thing, context.Function):
        others = [*thing.user_templates.values(), *thing.user_overloads.values()]
        snippets = [getattr(thing, name, None) for name in ("native_snippet", "adj_native_snippet", "replay_snippet")]
        own = [custom for f in (thing, *others) for custom in (f.func, f.custom_grad_func, f.custom_replay_func)]
        return (*own, *snippets)
    if isinstance(thing, type):
        own = [part for name, part in vars(thing).items() if name != "_value2member_map_"]  # grows with each `A | B`
        return tuple(_leaves(own, set()))
    return tuple(_leaves(thing, set()))


def is_same(then: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return len(then) == len(now) and all(a is b for a, b in zip(then, now, strict=True))


def holds_memory(thing: object, around: frozenset[int] = frozenset()) -> bool:
    """True if an object is or contains one that may own the program's memory: all but code, types and numbers."""
    if isinstance(thing, list | tuple | dict | types.FunctionType):
        if id(thing) in around:
            return False
        is_code = isinstance(thing, types.FunctionType)
        inner = _contents(thing) if is_code else thing.values() if isinstance(thing, dict) else thing
        return any(holds_memory(part, around | {id(thing)}) for part in inner)
    if isinstance(thing, CACHED):
        return holds_memory(thing.__wrapped__, around)
    if isinstance(thing, np.ndarray):
        return thing.nbytes > SMALL
    return not isinstance(thing, _CODE) and not hasattr(type(thing), "_wp_scalar_type_")


def _contents(fn: types.FunctionType) -> list[Any]:
    """The values in the closure of a function; None for an empty cell."""
    found = []
    for cell in fn.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # empty
            found.append(None)
    return found


def _leaves(thing: Any, around: set[int]) -> Iterator[Any]:
    if type(thing) not in (list, tuple, dict) or id(thing) in around:
        yield thing
        return
    around.add(id(thing))
    for part in thing.values() if isinstance(thing, dict) else thing:
        yield from _leaves(part, around)
    around.discard(id(thing))


_VALUES = (int, float, complex, str, bytes, type(None), type, enum.Enum, np.generic)
_PYTHON = (types.ModuleType, types.CodeType, types.BuiltinFunctionType, property, staticmethod, classmethod)
_CODE = (*_VALUES, *_PYTHON, functools.partial, context.Function, context.Kernel, codegen.Struct)


wb: Any = sys.modules[__name__.partition(".")[0]]  # the public names, which are Warp's
_LEFT = "__builtins__ __cached__ __loader__ __spec__".split()


class Rebinder:
    """Translates objects of Warp, and caches the results.

    packages      prefixes of the modules whose functions and classes are translated too.
    own_adjoints  False: a func's custom adjoint and replay are left out, so that its derivative is that of its code.
    """

    def __init__(self, packages: tuple[str, ...], own_adjoints: bool = True):
        self.packages, self.own_adjoints = packages, own_adjoints
        self.clear()
        self.names = {id(thing): f"types.{name}" for name, thing in _public(warp.types).items() if callable(thing)}
        self.names |= {id(thing): name for name, thing in _public(warp).items()}

    def clear(self) -> None:
        """Drop the cache."""
        self.made: dict[int, Any] = {}
        self.kept: dict[int, Any] = {}  # so that no id is used twice
        self.parts: dict[int, tuple[Any, ...]] = {}  # of funcs, functions, classes and containers, when translated
        self.tables: dict[int, dict[str, Any]] = {}
        self.waiting: list[tuple[dict[str, Any], dict[str, Any]]] = []  # tables still to be filled, and from what
        self.depth = 0
        self.broken: dict[str, Exception] = {}  # funcs, structs and constants that are refused when declared

    def __call__(self, thing: object) -> Any:
        if type(thing) in _NUMBERS:
            return thing
        refills = type(thing) in (dict, list)  # a container may have been filled anew
        known = id(thing) in self.made
        if not known or (refills and not is_same(self.parts.get(id(thing), ()), parts_of(thing))):
            self.kept[id(thing)] = thing
            self.made[id(thing)] = thing  # what refers to itself ends here
            with self.outermost():
                self.made[id(thing)] = self.translated(thing)
        return self.made[id(thing)]

    @contextlib.contextmanager
    def outermost(self) -> Iterator[None]:
        """Context of a translation. The outermost one fills the deferred tables at its end: imports may be cyclic."""
        self.depth += 1
        try:
            yield
            while self.depth == 1 and self.waiting:
                table, names = self.waiting.pop()
                for name, thing in list(names.items()):
                    table[name] = thing if name in _LEFT else self.safely(name, thing)
        finally:
            self.depth -= 1

    def covers(self, module: str) -> bool:
        """True if the functions and classes of this module are translated too."""
        return module.startswith(self.packages)

    def translated(self, thing: object) -> Any:
        if thing is warp:
            return wb
        if isinstance(thing, types.ModuleType):
            return self.module(thing)
        if isinstance(thing, context.Function):
            return ours(thing.key) if thing.is_builtin() else self.func(thing)
        if isinstance(thing, context.Kernel):
            return thing  # no kernel refers to another: it is made when it is counted, by `kernel`
        if isinstance(thing, codegen.Struct):
            return self.struct(thing)
        if id(thing) in self.names:
            return ours(self.names[id(thing)])
        if (found := self.annotation(thing)) is not thing:
            return found
        if isinstance(thing, dict | list | tuple) and type(thing) in (dict, list, tuple):
            return self.container(thing)
        if isinstance(thing, types.FunctionType) and self.covers(thing.__module__):
            return self.function(thing)
        if isinstance(thing, CACHED) and self.covers(thing.__module__):
            return functools.lru_cache(**thing.cache_parameters())(self(thing.__wrapped__))
        return thing

    def container(self, thing: Any) -> Any:
        self.parts[id(thing)] = parts_of(thing)
        if isinstance(thing, dict):
            return {key: self(value) for key, value in thing.items()}
        return type(thing)(map(self, thing))

    def module(self, module: types.ModuleType) -> Any:
        name = module.__name__
        if not self.covers(name):
            within = name.removeprefix("warp.").removeprefix("_src.")
            return ours(within) if name.startswith("warp.") else module
        made = types.ModuleType(name)
        self.fill(vars(made), vars(module))
        return made

    def table(self, names: dict[str, Any]) -> dict[str, Any]:
        """The translated globals of a module: one table shared by all of its functions."""
        if id(names) not in self.tables:
            self.fill({}, names)
        return self.tables[id(names)]

    def fill(self, table: dict[str, Any], names: dict[str, Any]) -> None:
        """Defer filling `table` with the translated entries of `names` until no other translation runs."""
        self.tables[id(names)], self.kept[id(names)] = table, names
        self.waiting.append((table, names))

    def renew(self) -> None:
        """Retranslate what has changed, or drop the whole cache if more than functions changed."""
        known = ((self.kept[key], parts) for key, parts in self.parts.items())
        code = ((thing, parts) for thing, parts in known if type(thing) not in (dict, list, tuple))
        changed = [thing for thing, parts in code if not is_same(parts, parts_of(thing))]
        if any(not isinstance(thing, types.FunctionType) for thing in changed):
            self.clear()
            return
        with self.outermost():
            self.waiting += [(table, self.kept[key]) for key, table in self.tables.items()]
            for function in changed:
                self.parts[id(function)] = parts_of(function)
                self.fill_cells(function, self.made[id(function)])

    def let_go(self) -> None:
        """Drop cached objects that hold the program's memory, so that it can be freed."""
        for key, table in self.tables.items():
            for name in [name for name, thing in self.kept[key].items() if holds_memory(thing)]:
                table.pop(name, None)
        for key in [key for key, thing in self.kept.items() if key not in self.tables and holds_memory(thing)]:
            for known in (self.kept, self.made, self.parts):
                known.pop(key, None)

    def safely(self, name: str, thing: object) -> Any:
        try:
            return self(thing)
        except Exception as error:  # noqa: BLE001  whoever uses it is told
            self.broken[name] = error
            return Refused(name, str(error))

    def function(self, fn: types.FunctionType) -> types.FunctionType:
        closure = tuple(types.CellType() for _ in fn.__closure__) if fn.__closure__ else None
        made = types.FunctionType(fn.__code__, self.table(fn.__globals__), fn.__name__, None, closure)
        self.made[id(fn)], self.kept[id(fn)], self.parts[id(fn)] = made, fn, parts_of(fn)
        self.fill_cells(fn, made)
        made.__module__, made.__qualname__, made.__doc__ = fn.__module__, fn.__qualname__, fn.__doc__
        made.__defaults__ = self(fn.__defaults__)
        made.__kwdefaults__ = self(fn.__kwdefaults__)
        made.__annotations__ = {name: self(_meant(kind, fn)) for name, kind in fn.__annotations__.items()}
        return made

    def fill_cells(self, fn: types.FunctionType, made: types.FunctionType) -> None:
        """Fill the closure of `made` with the translated closure of `fn`."""
        for cell, old in zip(made.__closure__ or (), fn.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # empty
                cell.cell_contents = self(old.cell_contents)

    def func(self, f: Any) -> Any:
        """A translated func with its overloads, custom adjoint and replay."""
        self.parts[id(f)] = parts_of(f)
        if getattr(f, "native_snippet", None):
            snippets = f.native_snippet, *((f.adj_native_snippet, f.replay_snippet) if self.own_adjoints else ())
            return wb.func_native(*snippets)(self.function(f.func))
        parts = list({id(p): p for p in [*f.user_templates.values(), *f.user_overloads.values()]}.values()) or [f]
        made: Any = None
        try:
            for part in parts:
                before, made = made, wb.func(self.function(_with_text(part)))
                made.overloads = beside(made, before)
                for own, attach in ((part.custom_grad_func, wb.func_grad), (part.custom_replay_func, wb.func_replay)):
                    if own is not None and self.own_adjoints:
                        attach(made)(self.function(own.func))
        except (KernelError, TypeError) as error:
            self.broken[f.key] = error
            return Refused(f.key, f"broken func {f.key}")
        return made

    def kernel(self, k: Any) -> Any:
        """A Warp kernel as one of ours. Raises KernelError if its declaration is refused."""
        with self.outermost():
            if id(k.func.__globals__) in self.tables:
                self.waiting.append((self.tables[id(k.func.__globals__)], k.func.__globals__))
            function = self.function(k.func)
        if function.__code__.co_filename == "<string>":  # made by `wp.map`: Warp alone knows its text
            function.__code__ = function.__code__.replace(co_filename=_known_text(k.key, k.adj.source))
        return wb.kernel(function)

    def struct(self, s: Any) -> Any:
        fields = {name: self(var.type) for name, var in s.vars.items()}
        try:
            return wb.struct(type(s.cls.__name__, (), {"__annotations__": fields, "__module__": s.cls.__module__}))
        except TypeError as error:
            self.broken[s.key] = error
            return Refused(s.key, str(error))

    def annotation(self, thing: Any) -> Any:
        """The translation of a type, annotation or value of Warp; `thing` itself if it is none."""
        kind: Any = type(thing)
        if kind.__name__ == "_ArrayAnnotation" or (issubclass(kind, warp.array) and thing.ptr is None):
            return wb.array(dtype=self(thing.dtype), ndim=thing.ndim)
        if kind.__name__ == "_IndexedArrayAnnotation" or isinstance(thing, warp.indexedarray):
            return wb.indexedarray(dtype=self(thing.dtype), ndim=thing.ndim)
        if isinstance(thing, enum.Enum) and self(kind) is not kind:
            return self(kind)(thing.value)
        if kind is typing.TypeVar:
            return ours(thing.__name__)
        if isinstance(thing, type):
            return self.type(thing)
        if hasattr(kind, "_wp_scalar_type_"):
            made = self(kind)
            parts = [thing[i] for i in range(len(thing))]  # type: ignore[arg-type, index]
            return made(*parts) if callable(made) and not isinstance(made, Refused) else made
        if kind in warp_types.scalar_types:
            return self(kind)(thing.value)
        return thing

    def namespace(self, kind: type) -> Any:
        """A copy of a class that holds funcs or functions, with those translated; `kind` itself if it holds none."""
        others = {name: thing for name, thing in vars(kind).items() if not name.startswith("__")}
        held = {name: others.pop(name) for name in list(others) if has_code(others[name])}
        if not self.covers(kind.__module__) or not held:
            return kind
        self.parts[id(kind)] = parts_of(kind)
        if issubclass(kind, enum.Enum):
            base: Any = next(b for b in kind.__mro__ if b.__module__ == "enum")
            made = base(kind.__name__, [(name, member.value) for name, member in kind.__members__.items()])
        else:
            made = types.new_class(kind.__name__)
            for name, thing in others.items():
                setattr(made, name, thing)
        self.made[id(kind)] = made
        for name, thing in held.items():
            setattr(made, name, self.member(thing))
        return made

    def member(self, thing: object) -> Any:
        """The translation of a class attribute: an object of Warp, a function, property, static or class method."""
        if isinstance(thing, property):
            return property(self(thing.fget))
        if isinstance(thing, staticmethod | classmethod):
            return type(thing)(self.safely(thing.__name__, thing.__func__))
        return self.safely(getattr(thing, "__name__", "?"), thing)

    def type(self, kind: type) -> Any:
        named = getattr(wb, kind.__name__, None) if hasattr(kind, "_wp_scalar_type_") else None
        if named is not None:
            return named
        generic = getattr(kind, "_wp_generic_type_str_", None)
        if generic is None:
            return self.namespace(kind)
        scalar, shape = self(kind._wp_scalar_type_), kind._shape_  # type: ignore[attr-defined]
        try:
            shape = tuple(n or typing.Any for n in shape)
            if generic == "vec_t":
                return wb.types.vector(length=shape[0], dtype=scalar)
            if generic == "mat_t":
                return wb.types.matrix(shape=shape, dtype=scalar)
            return wb.types.quaternion(scalar) if generic == "quat_t" else wb.types.transformation(scalar)
        except (TypeError, ValueError, AttributeError, OverflowError):
            return Refused(f"{generic} of {shape} {scalar}", "A generic vector or matrix type.")


class Programs(Rebinder):
    """The translation cache for kernels of every package that uses Warp, shared by all watches of a process.

    What was read, differentiated and compiled for one watch serves the next. What has changed since (constants,
    closures, redefined funcs and kernels) is read again.
    """

    def __init__(self) -> None:
        super().__init__((), own_adjoints=False)

    def clear(self) -> None:
        super().clear()
        self.covered: dict[str, bool] = {}
        self.opened: set[str] = set()  # packages whose objects hold arrays with names
        self.twins: dict[int, tuple[Any, Any]] = {}
        self.refused: dict[int, Exception] = {}
        self.met: set[int] = set()  # kernels, since `open`

    def covers(self, module: str) -> bool:
        module = module or ""  # what Warp makes at run time has none
        if module not in self.covered:
            self.covered[module] = _uses_warp(module)
        return self.covered[module]

    def twin(self, kernel: Any) -> Any:
        """Our kernel for one of Warp's. Raises what it raised before, where it could not be read."""
        key = id(kernel)
        if key not in self.met:
            self.met.add(key)
            package = (kernel.func.__module__ or "warp").partition(".")[0]
            if package != "warp" and package not in names.opened:
                names.opened.add(package)
                self.opened.add(package)
            if key not in self.twins:
                self.twins[key] = kernel, self.kernel(kernel)
        if key in self.refused:
            raise self.refused[key]
        return self.twins[key][1]

    def failed(self, kernel: object, failure: Exception) -> None:
        """Remember that a kernel cannot be read: it is not tried again during this watch."""
        self.refused[id(kernel)] = failure

    def open(self) -> None:
        """Begin a watch: drop or refresh what has changed since the last one."""
        if len(self.twins) > MOST_KERNELS or any(_uses_warp(m) is not was for m, was in self.covered.items()):
            self.clear()
        self.renew()

    def close(self) -> None:
        """End a watch. Kernels that could not be read are tried again by the next."""
        names.opened.difference_update(self.opened)
        self.opened.clear()
        self.met.clear()
        for key in self.refused:
            self.twins.pop(key, None)
        self.refused.clear()
        self.let_go()
        self.twins = {key: pair for key, pair in self.twins.items() if id(pair[0].func) in self.made}


MOST_KERNELS = 4096  # that are remembered: programs may make new ones all the time


def _uses_warp(module: str) -> bool:
    package = module.partition(".")[0]
    space = vars(sys.modules[module]) if module in sys.modules else {}
    foreign = is_between(module) or (package in sys.stdlib_module_names and package != "__main__")
    found = list(space.values())
    return not foreign and any(v is warp or isinstance(v, context.Function | context.Kernel) for v in found)


@functools.cache
def programs() -> Programs:
    """The process-wide `Programs`."""
    return Programs()


def has_code(thing: object) -> bool:
    """True for a func, struct or type of Warp, and for functions, which may make such."""
    wraps = property | staticmethod | classmethod | types.FunctionType
    return isinstance(thing, wraps | context.Function | codegen.Struct) or hasattr(thing, "_wp_scalar_type_")


_NUMBERS = frozenset((int, float, bool, str, bytes, complex, type(None)))
_PLAIN = (int, float, str, tuple, list, dict, types.ModuleType)


def _public(module: object) -> dict[str, Any]:
    """The public attributes of a module, without numbers and modules."""
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {name: thing for name, thing in found.items() if not isinstance(thing, _PLAIN)}


def ours(path: str) -> Any:
    """The workbench's object of a Warp name; a `Refused` if there is none."""
    found: Any = wb
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return Refused(path, "unknown to the workbench")
    return found


def _meant(kind: object, fn: types.FunctionType) -> Any:
    """An annotation, evaluated if it is a string; the string itself if evaluation fails."""
    if isinstance(kind, str):
        with contextlib.suppress(Exception):
            return eval(kind, fn.__globals__)
    return kind


def _with_text(f: Any) -> types.FunctionType:
    """The function of a func; for a lambda given to `wp.map`, the function that Warp generated source for."""
    if f.func.__name__ != "<lambda>":
        return f.func
    code = f.func.__code__
    text = f"def make({', '.join(code.co_freevars)}):\n{textwrap.indent(f.adj.source, '    ')}\n    return {f.key}\n"
    space: dict[str, Any] = {}
    exec(compile(text, _known_text(f.key, text), "exec"), space)
    made = space["make"](*code.co_freevars).__code__
    cells = dict(zip(code.co_freevars, f.func.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in made.co_freevars)
    return types.FunctionType(made, f.func.__globals__, f.key, f.func.__defaults__, closure)


def _known_text(name: str, text: str) -> str:
    """A file name under which `linecache` gives this source."""
    path = f"<{name} #{len(linecache.cache)}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    return path

"""Declarations around kernels: func, struct, constant, static, and names that exist only inside.

Declaring reads nothing: a `Func` keeps the Python function, the reader takes it apart at each call.
A struct becomes a `types.Struct` whose `host` is the class of its instances on the host.
"""

from __future__ import annotations

import collections.abc
import inspect
import numbers
import sys
import typing
from collections.abc import Callable, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import KernelError, LaunchError
from .. import types as T
from ..ir import Region
from ..ops.examples import documented
from ..ops.signatures import signature
from ..parameter_types import IndexedArray
from ..recursion import recursive
from . import refused_syntax
from .overloads import attached, beside, candidates, cell


class Func(T.Itself):
    """A function for use in kernels: inlined there, plain Python on the host.

    `grad` is the Python function of a custom adjoint, `replay` the one to run in its place in the reverse pass.
    """

    def __init__(self, fn: Callable[..., Any]):
        self.fn = fn
        self.key = fn.__qualname__.replace("<locals>.", "")
        self.grad: Callable[..., Any] | None = None
        self.replay: Callable[..., Any] | None = None
        self.overloads: tuple[Func, ...] = ()  # all funcs of this name, this one among them; none if it is alone
        self.cell: tuple[str, int] | None = None
        self.refused: KernelError | None = None  # why no kernel can call it
        self.__name__, self.__doc__, self.__module__ = fn.__name__, fn.__doc__, fn.__module__
        self.__wrapped__ = fn

    @property
    def types(self) -> tuple[Any, ...]:
        """The types of its parameters, open ones among them; Any where the annotation says nothing."""
        return parameters(self.fn)

    @property
    def parts(self) -> tuple[Func, ...]:
        """All funcs of this name."""
        return self.overloads or (self,)

    @property
    def custom(self) -> bool:
        """True if it has an adjoint or a replay of its own: then a call stays a `call` statement."""
        return self.grad is not None or self.replay is not None

    def __call__(self, *args: object, **kwargs: object) -> Any:
        found = candidates(self, args, kwargs) if self.overloads else [self]
        if len(found) != 1:
            raise TypeError(f"{self.key}: {len(found)} of its overloads take these arguments")
        return found[0].fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<func {self.key}>"


def func(
    f: Callable[..., Any] | None = None, *, name: str | None = None, module: object = None, inline: object = None
) -> Any:
    """Decorator: a function that kernels and other funcs may call. Raises KernelError for what these do not have.

    With `name` for messages, or Warp's other options, which change nothing: `@wb.func(name="spring")`.

    Use it for what several kernels share: a force law, an integrator step. Several of one name and other parameters
    are overloads: a call means the one whose types are those of its arguments, else the one that leaves them open
    (`Any`, `Float`, `vector(Any, Float)`); a call that may mean two is refused.

    >>> @wb.func
    ... def spring(x: float, k: float):
    ...     return -k * x
    >>> wb.map(spring, wb.array([1.0, 2.0]), 10.0)
    array([-10., -20.], dtype=float32, shape=(2,))
    >>> @wb.func
    ... def spring(x: wb.vec3, k: float):
    ...     return -k * x
    >>> wb.map(spring, wb.array([(1.0, 2.0, 3.0)], dtype=wb.vec3), 10.0).list()[0][2]
    np.float32(-30.0)
    """
    around = sys._getframe(1).f_locals
    return (lambda fn: _func(fn, name, around)) if f is None else _func(f, name, around)


def _func(fn: Callable[..., Any], name: str | None, around: dict[str, Any]) -> Func:
    recursive(refused_syntax.check)(fn)
    resolve(fn, around)
    made = Func(fn)
    made.key = name or made.key
    made.cell = cell()
    made.overloads = beside(made, around.get(fn.__name__))
    return made


def _attach(f: Func, slot: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if not isinstance(f, Func):
        raise TypeError(f"func_{slot} takes a function decorated with func, not {f!r}")

    def attach(fn: Callable[..., Any]) -> Callable[..., Any]:
        recursive(refused_syntax.check)(fn)
        resolve(fn, sys._getframe(1).f_locals)
        setattr(attached(f, fn, parameters(fn), slot == "replay"), slot, fn)
        return fn

    return attach


def func_grad(forward_fn: Func) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the adjoint of a func f. Parameters: those of f, then one `adj_` per returned value.

    It is for funcs, which kernels call; for work on whole arrays outside of kernels there is `Tape.record_func`. Use it
    where you know a better derivative than that of the statements: of an iteration, of a table, of a clipped force.
    `wb.verify.check_rule(f)` says whether it is the derivative of `f`.

    >>> @wb.func
    ... def clipped(x: float):
    ...     return wb.min(x, 1.0)
    >>> @wb.func_grad(clipped)
    ... def adj_clipped(x: float, adj: float):
    ...     wb.adjoint[x] += adj  # passes the gradient above the clip as well
    >>> x = wb.array([0.5, 3.0], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     y = wb.map(clipped, x)
    >>> tape.backward(grads={y: wb.ones(2)})
    >>> x.grad.list()
    [1.0, 1.0]
    """
    return _attach(forward_fn, "grad")


def func_replay(forward_fn: Func) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: what the reverse pass runs in place of a func f; it must return what f returned.

    Use it where `f` has an effect that must not happen twice, such as taking a slot by `atomic_add`.

    >>> @wb.func
    ... def power(x: float, n: int):
    ...     p = float(1.0)
    ...     for k in range(n):
    ...         p = p * x
    ...     return p
    >>> @wb.func_replay(power)
    ... def power_again(x: float, n: int):
    ...     return wb.pow(x, float(n))
    """
    return _attach(forward_fn, "replay")


@dataclass(frozen=True, eq=False)
class CustomAdjoint:
    """Attribute of a `call` statement: the func, and its own adjoint and replay as regions closed in themselves.

    `replay` has the parameters and results of the call's region. `grad` has as parameters the call's arguments, one
    shadow array per array argument in `arrays`, one gradient per result in `outs`; as results one gradient per
    argument in `values`. These are positions among the arguments and results; all of them have float types.
    `grad` adds to shadows by `accumulate`; its results are what this one call adds to the gradients.
    """

    func: Func
    grad: Region | None
    replay: Region | None
    arrays: tuple[int, ...]
    values: tuple[int, ...]
    outs: tuple[int, ...]


# ---- markers: names that the reader knows by identity


class Marker:
    """A name that means something only inside a kernel."""

    def __init__(self, name: str, doc: str):
        self.__name__, self.__doc__ = name, documented(doc, name)
        if doc.startswith(f"{name}("):
            self.__signature__ = signature(doc)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise TypeError(f"{self.__name__}() can only be called inside a kernel or a func")

    def __repr__(self) -> str:
        return f"<kernel builtin {self.__name__}>"


class _Adjoint(Marker):
    def __getitem__(self, item: object) -> Any:
        raise TypeError("adjoint[...] can only be used inside a function decorated with func_grad")


class Refused(Marker):
    """A name of NVIDIA Warp that is not here: using it says why, in a kernel at its line, on the host at once."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise LaunchError(f"`{self.__name__}` of NVIDIA Warp is not in the workbench. {self.__doc__}", slug="not-here")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Refused(f"{self.__name__}.{name}", self.__doc__ or "")

    def __or__(self, other: object) -> Any:
        return typing.Union[self, other]  # noqa: UP007  as a type, in an annotation

    __ror__ = __or__

    def __instancecheck__(self, value: object) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self.__name__}: not in the workbench>"


tid = Marker(
    "tid",
    "tid() -> int or ints: index of this thread, `i = tid()`, or `i, j = tid()` for a launch over two dimensions.",
)
printf = Marker(
    "printf", r"""printf(format: text, *values): print from a thread, with C's format, `printf("%d %f\n", i, x)`."""
)


class _Len(Marker):
    def __call__(self, x: Sized) -> int:  # type: ignore[override]  one argument, where a marker takes any
        return len(x)


len_ = _Len(
    "len",
    "len(x) -> int: an array's first extent, the length of a vector, the rows of a matrix. Python's `len` does it too.",
)
adjoint = _Adjoint("adjoint", "Inside func_grad: `adjoint[a] += g` adds to the gradient of the argument `a`.")

# Functions of the host that have a form inside kernels: the array module enters its `zeros` here.
LOCAL_ZEROS: set[Any] = set()


def static(value: object) -> Any:
    """Inside a kernel: evaluate the expression when the kernel is read. On the host: the value itself.

    Before each launch it is evaluated again, unless it is made of numbers alone: if it gives something else, the kernel
    is read anew. So it should be cheap: give what takes long to compute a name outside.

    >>> wb.static(2 * 3)
    6
    """
    return value


def constant(x: object) -> Any:
    """Mark a value that kernels use as a compile-time constant. Returns it.

    >>> GRAVITY = wb.constant(-9.81)
    >>> GRAVITY
    -9.81
    """
    if isinstance(x, (bool, numbers.Number, np.generic, T.Small)):
        return x
    raise TypeError(f"a constant is a number, a vector or a matrix, not {type(x).__name__}")


# ---- types from annotations


def type_from(annotation: object) -> T.Type:
    """The kernel type that an annotation stands for. Raises TypeError.

    >>> type_from(float)
    float32
    """
    if isinstance(annotation, T.Array):
        return T.Array(annotation.dtype if T.is_open(annotation) else type_from(annotation.dtype), annotation.ndim)
    if isinstance(annotation, T.Type):
        return annotation
    number = isinstance(annotation, type) and (annotation in (int, float, bool) or issubclass(annotation, np.generic))
    if number or isinstance(annotation, np.dtype):
        return T.scalar_of(annotation)
    if isinstance(annotation, Refused):
        raise TypeError(f"`{annotation.__name__}` of NVIDIA Warp is not in the workbench. {annotation.__doc__}")
    raise TypeError(f"{annotation!r} is not a type of the kernel language")


def takes_function(annotation: object) -> bool:
    """True for annotations of parameters that stand for a func or a builtin."""
    called = collections.abc.Callable
    return annotation in (typing.Callable, called, Func) or typing.get_origin(annotation) is called


def parameters(fn: Callable[..., Any]) -> tuple[Any, ...]:
    """The type of each parameter by its annotation; Any where there is none."""
    found = []
    for name in inspect.signature(fn).parameters:
        raw = fn.__annotations__.get(name, Any)
        with suppress(TypeError):
            raw = raw if raw is Any else T.FUNCTION if takes_function(raw) else type_from(raw)
        found.append(raw)
    return tuple(found)


def resolve(fn: Callable[..., Any], around: Mapping[str, Any]) -> None:
    """Replace annotations that are text by what they mean where the function is defined, as far as they can be known.

    Called by decorators: names of a surrounding function that stand in annotations alone are gone later.
    """
    for name, raw in fn.__annotations__.items():
        if isinstance(raw, str):
            with suppress(Exception):  # said with its place when the function is read
                fn.__annotations__[name] = eval(raw, {**fn.__globals__, **around})


# ---- structs


class Instance:
    """Base of struct instances on the host: fields by name, numbers and lists converted to the field's type."""

    _struct: T.Struct

    def __init__(self, *args: object, **fields: object):
        names = [name for name, _ in self._struct.fields]
        if len(args) > len(names):
            raise TypeError(f"{self._struct.name} has {len(names)} fields, got {len(args)} values")
        given = dict(zip(names, args, strict=False))
        twice = given.keys() & fields.keys()
        if twice:
            raise TypeError(f"{self._struct.name}: field {min(twice)!r} given twice")
        given |= fields
        for name, type in self._struct.fields:
            object.__setattr__(self, name, default(type))
        for name, value in given.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        known = dict(self._struct.fields)
        if name not in known:
            raise AttributeError(f"{self._struct.name} has no field {name!r}; it has {', '.join(known)}")
        object.__setattr__(self, name, convert(known[name], value, f"{self._struct.name}.{name}"))

    def __reduce__(self) -> Any:
        return instance, (self._struct, {name: getattr(self, name) for name, _ in self._struct.fields})

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in self._struct.fields)
        return f"{self._struct.name}({inner})"


def struct_of(value: Instance) -> T.Struct:
    """The struct that an instance on the host is one of. (No attribute of its: those are the user's fields.)"""
    return value._struct


def instance(struct: T.Struct, values: dict[str, Any]) -> Instance:
    """An instance with these fields."""
    return struct(**values)


def new_struct(name: str, fields: tuple[tuple[str, T.Type], ...], **members: object) -> T.Struct:
    """A struct with a class for its instances on the host."""
    host = type(name, (Instance,), members)
    made = host._struct = T.Struct(name, fields, host)
    _structs[name, fields] = made
    return made


_structs: dict[tuple[str, tuple[tuple[str, T.Type], ...]], T.Struct] = {}


def same_struct(name: str, fields: tuple[tuple[str, T.Type], ...]) -> T.Struct:
    """The struct last declared with this name and these fields, or a new one: for what another process has sent."""
    return _structs.get((name, fields)) or new_struct(name, fields)


def default(type: T.Type) -> Any:
    """The initial value of a field: zeros; None for an array."""
    return None if isinstance(type, T.Array | IndexedArray) else type()  # type: ignore[operator]


def convert(type: T.Type, value: Any, label: str) -> Any:
    """A host value as a field of `type` holds it. Raises TypeError, ValueError."""
    if isinstance(type, T.Array):
        return _array_field(type, value, label)
    if isinstance(type, IndexedArray):
        if getattr(value, "type", None) == type or isinstance(getattr(value, "dtype", None), T.Type):
            return value
        raise TypeError(f"{label} takes an {type}, not {value!r}")
    if isinstance(type, T.Struct):
        if isinstance(value, Instance) and value._struct == type:
            return value
        raise TypeError(f"{label} takes a {type.name}, not {value!r}")
    assert isinstance(type, T.Scalar | T.Composite)
    if hasattr(value, "sources") and T.is_float(type) and np.shape(value) == type.shape:
        # read from an array under a tape: it stays one with it
        return value.copy() if getattr(value, "type", None) is type else value.astype(type.numpy)
    if hasattr(value, "memory"):  # a declared scalar: launches take its value of that moment, with its gradient
        if value.dtype == type:
            return value
        text, instead = f"{label} takes a {type}, not {value!r}.", f"wb.scalar(..., dtype=wb.{type})"
        raise LaunchError(text, slug="struct-scalar", why="A declared scalar is not converted.", instead=instead)
    if isinstance(type, T.Scalar) and getattr(value, "shape", ()) != ():
        raise TypeError(f"{label} takes a {type}, not {value.__class__.__name__} of shape {value.shape}")
    try:
        return type(*value) if isinstance(type, T.Composite) and isinstance(value, (tuple, list)) else type(value)
    except (TypeError, ValueError) as e:
        raise TypeError(f"{label} takes a {type}, not {value!r}: {e}") from None


def _array_field(type: T.Array, value: object, label: str) -> Any:
    """An array for a field, refused where no launch could take it."""
    made, got = "array", value.__class__.__name__
    if isinstance(value, np.ndarray):
        made = "from_numpy"
    elif not isinstance(value, (np.generic, list, tuple, int, float, str)):
        have = getattr(value, "dtype", None)
        if not isinstance(have, T.Type) or not isinstance(type.dtype, T.Type) or have == type.dtype:
            return value
        got = f"one of {have}"
    dtype = type.dtype if isinstance(type.dtype, T.Struct) else f"wb.{type.dtype}"
    raise LaunchError(
        f"{label} takes an {type}, not {got}", slug="struct-field", instead=f"{label} = wb.{made}(..., dtype={dtype})"
    )


def struct(c: type | None = None, *, module: object = None) -> Any:
    """Decorator: a class of annotated fields becomes a struct for kernels and the host.

    A field starts as 0: no other default value is taken (Warp takes any, and starts with 0 all the same).

    >>> @wb.struct
    ... class Ball:
    ...     mass: float
    >>> Ball(mass=2).mass
    np.float32(2.0)
    """
    around = dict(sys._getframe(1).f_locals)
    return (lambda cls: _struct(cls, around)) if c is None else _struct(c, around)


def _struct(cls: type, around: dict[str, Any]) -> T.Struct:
    try:
        hints = typing.get_type_hints(cls, localns=around)
    except NameError as e:
        raise TypeError(f"struct {cls.__name__}: {e}") from None
    fields = []
    for name, annotation in hints.items():
        if (default := vars(cls).get(name)) is not None and not (isinstance(default, int | float) and default == 0):
            raise TypeError(f"field {name!r} of struct {cls.__name__} has a default value; give it to the instance")
        if isinstance(annotation, Refused):  # said where the struct is used
            return Refused(cls.__name__, f"Its field {name!r}: {annotation.__doc__}")  # type: ignore[return-value]
        try:
            fields.append((name, type_from(annotation)))
        except TypeError as e:
            raise TypeError(f"field {name!r} of struct {cls.__name__}: {e}") from None
    return new_struct(cls.__name__, tuple(fields), __doc__=cls.__doc__, __module__=cls.__module__)

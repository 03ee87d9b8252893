"""The arguments of a launch: checked against the kernel's parameters, and taken apart into flat arrays and numbers.

Every refusal names the kernel, the argument and the line of the kernel's signature.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from ..arrays import capture_log, ports
from ..arrays.array import array
from ..arrays.creation import from_numpy
from ..arrays.host_reads import given_away, sources_of
from ..arrays.indexed import as_indexed, indexedarray
from ..arrays.scalar import scalar
from ..errors import LaunchError
from ..kernels.ir import Function
from ..kernels.ops.functions import is_meant, mean
from ..kernels.parameter_types import IndexedArray
from ..kernels.program import Leaf, Program
from ..kernels.reading.declare import Instance, struct_of
from ..kernels.types import Array, Composite, Scalar, Small, Struct, Type, matrix, scalar_of, vector
from .handles import NotBuilt, living, part_of


def flatten(program: Program, args: Sequence[Any]) -> list[Any]:
    """Arrays and numbers in the order of the flat parameters. Raises LaunchError."""
    params = program.params
    if len(args) != len(params):
        names = ", ".join(f"{n}: {t}" for n, t in params)
        text = f"Kernel {program.name!r} takes {len(params)} arguments, got {len(args)}."
        why = f"Its parameters are ({names}).{_defaults(program)}"
        raise LaunchError(text, slug="argument-count", where=program.function.where, why=why)
    flat = []
    kept = living() if program.chooses else ()  # what a kernel chooses from has one row each in every field
    type: Any  # which it is says `kind`
    for leaf, getter, kind in program.sources:
        arg, type = args[leaf.arg], leaf.type
        if getter is not None:
            try:
                arg = getter(arg)
            except AttributeError:
                kind = ""
        given = arg.__class__
        if kind == "array" and given is array:
            if arg.dtype is not type.dtype or arg.ndim != type.ndim:
                _check_array(program, leaf, arg)
            flat.append(arg)
        elif kind == "f" and given is float and held(arg, type):
            flat.append(arg)
        elif kind == "f" and (given is np.float32 or given is np.float64) and held(arg, type):
            flat.append(mean(float(arg)) if is_meant(arg) else float(arg))
        elif (kind == "i" or kind == "f") and given is int and arg in exact_ints(type):
            flat.append(arg if kind == "i" else float(arg))
        elif kind == "small" and given is Small and is_one(arg, type):
            flat.append(given_away(np.array(arg), sources_of(arg)))  # a copy: the user may change theirs
        else:
            flat.append(_argument(program, leaf, args[leaf.arg]))
    del kept
    return flat


_LARGEST = {16: 65504.0, 32: float(np.finfo(np.float32).max), 64: math.inf}


def held(number: float, type: Scalar) -> bool:
    """True for a float that does not become infinite in this type of floats."""
    most = _LARGEST[type.bits]
    return -most <= number <= most or not math.isfinite(number)


def is_one(value: Small, type: Any) -> bool:
    """True for a value of the host that is one of this type as it is."""
    return value.type is type and value.shape == type.shape and value.dtype == type.numpy


def check_lists(kernel: str, inputs: object, outputs: object) -> None:
    """Raise LaunchError for inputs or outputs that are one argument, not a list: an array would be iterated."""
    for name, given in (("inputs", inputs), ("outputs", outputs)):
        single = isinstance(
            given, dict | array | scalar | Instance | np.ndarray | np.generic | Small | str | int | float
        )
        single = single or not isinstance(given, Iterable) or hasattr(given, "__dlpack__")
        if not single:
            continue
        what = f"the array {given.label}" if isinstance(given, array) else shown(given)
        called = given.label if isinstance(given, array | scalar) else "..."
        text = f"Kernel {kernel!r}: {name} is a list of arguments, got {what}."
        why = f"`{name}` is in the order of the kernel's parameters." if isinstance(given, dict) else ""
        instead = f"wb.launch({kernel}, dim, {name}=[{called}], ...)"
        raise LaunchError(text, slug="argument-list", why=why, instead=instead)


def _defaults(program: Program) -> str:
    """Returns the sentence about a kernel whose parameters have defaults, or ""."""
    if program.kernel is None:
        return ""
    parameters = inspect.signature(program.kernel.func).parameters.values()
    given = ", ".join(f"{p.name}={p.default!r}" for p in parameters if p.default is not p.empty)
    return f" Defaults are not used: {given} must be given too." if given else ""


@cache
def exact_ints(type: Scalar) -> range:
    """The ints that parameters of this type take: of floats those that are small enough for all."""
    if type.kind in "iu":
        info = np.iinfo(type.numpy)
        return range(int(info.min), int(info.max) + 1)
    most = int(_LARGEST[16]) if type.bits == 16 else 1 << 20
    return range(-most, most + 1) if type.kind == "f" else range(0)


def _refuse(program: Program, leaf: Leaf, text: str, slug: str, instead: str = "") -> LaunchError:
    where = next((p.where for p in program.function.params if p.name == leaf.name), None)
    name = leaf.name.removesuffix(f".{leaf.path[-1]}") if leaf.opened is not None else leaf.name
    what = f"Kernel {program.name!r}, argument {name!r}: {text}"
    return LaunchError(what, slug=slug, where=where or program.function.where, instead=instead)


def _argument(program: Program, leaf: Leaf, arg: object) -> Any:
    if leaf.opened is not None:
        return _opened(program, leaf, arg)
    if isinstance(program.params[leaf.arg][1], IndexedArray):
        arg = as_indexed(arg)
    for name in leaf.path[: leaf.structs]:
        try:
            arg = getattr(arg, name)
        except AttributeError:
            instead = f"{program.params[leaf.arg][1]}(...), an instance"
            text = f"takes a struct with {name!r}, got {shown(arg)}"
            raise _refuse(program, leaf, text, "argument-type", instead) from None
    if leaf.structs is not None:
        return _elements(program, leaf, arg)
    if isinstance(leaf.type, Array):
        if isinstance(arg, np.ndarray):
            arg = _shared(arg, leaf.type)
        if not isinstance(arg, array):
            tensors = (wrap(arg, leaf.type) for wrap in ports.wrappers)
            arg = next((a for a in tensors if a is not None), arg)
        _check_array(program, leaf, arg)
        return arg
    return _number(program, leaf, arg)


def _shared(data: np.ndarray, want: Array) -> Any:
    """An array on the memory of a NumPy array that fits the parameter; else the NumPy array itself."""
    inner = getattr(want.dtype, "shape", ())
    fits = data.dtype == getattr(want.dtype, "numpy", None) and data.shape[want.ndim :] == inner
    return from_numpy(data, want.dtype) if fits and data.flags.writeable else data


def _opened(program: Program, leaf: Leaf, arg: Any) -> Any:
    """A field of the mesh, tree or grid whose number is the argument."""
    assert leaf.opened is not None
    *path, field = leaf.path
    for name in path:
        arg = getattr(arg, name)  # the number itself is a parameter, and was taken already
    try:
        return part_of(leaf.opened, arg, field)
    except LookupError as e:
        text, instead = e.args
        refusal = _refuse(program, leaf, text, "handle", instead)
        if isinstance(e, NotBuilt) and capture_log.may_wait():
            raise NotBuilt(refusal) from None
        raise refusal from None


def _elements(program: Program, leaf: Leaf, arg: object) -> array:
    """One field of the elements of an array of structs."""
    assert isinstance(leaf.type, Array)
    want: Any = dict(program.params)[leaf.name.partition(".")[0]]
    for name in leaf.path[: leaf.structs]:
        want = dict(want.fields)[name]
    if not isinstance(arg, array) or arg.dtype != want.dtype:
        hint = "" if arg is not None else "; a struct's array field must be assigned before the launch"
        raise _refuse(program, leaf, f"takes {want}, got {shown(arg)}{hint}", "argument-type")
    if arg.ndim != leaf.type.ndim:
        text = f"takes {leaf.type.ndim} axes, got {arg.ndim} (shape {arg.shape})"
        raise _refuse(program, leaf, text, "argument-rank")
    return arg.field(".".join(leaf.path[leaf.structs :]))


def value_type(arg: object) -> Type | type | None:
    """The type of a number, vector or struct instance; bool, int or float for Python's numbers. None for all else."""
    if isinstance(arg, Small) and arg.type is not None and arg.shape == arg.type.shape:
        return arg.type
    if isinstance(arg, Instance):
        return struct_of(arg)
    if isinstance(arg, indexedarray):
        return arg.type
    if isinstance(arg, np.generic) and arg.dtype.kind in "fiub":
        return scalar_of(arg.dtype)
    return next((kind for kind in (bool, int, float) if isinstance(arg, kind)), None)


def shown(value: object) -> str:
    return f"{type(value).__name__} {value!r}"[:80]


def _check_array(program: Program, leaf: Leaf, arg: Any) -> None:
    want = leaf.type
    assert isinstance(want, Array)
    if not issubclass(arg.__class__, array):  # an annotation is an instance, and no subclass
        hint = "; a struct's array field must be assigned before the launch" if arg is None and leaf.path else ""
        instead = _array_of(leaf.name, want, arg)
        kind = f"a NumPy array of {arg.dtype}, shape {arg.shape}" if isinstance(arg, np.ndarray) else shown(arg)
        raise _refuse(program, leaf, f"takes {want}, got {kind}{hint}", "argument-type", instead)
    if arg.dtype != want.dtype:
        text = f"takes {want}, got dtype {arg.dtype}" + (f" of shape {arg.shape}" if arg.ndim > want.ndim else "")
        instead = _other_dtype(leaf.name, want, arg)
        raise _refuse(program, leaf, text, "argument-dtype", instead)
    if arg.ndim != want.ndim:
        text = f"takes {want.ndim} axes, got {arg.ndim} (shape {arg.shape})"
        raise _refuse(program, leaf, text, "argument-rank", f"{leaf.name}.flatten() or .reshape(...)")


def _spelt(dtype: Type) -> str:
    """The dtype as source text (`wb.float32`), for messages."""
    return dtype.name if isinstance(dtype, Struct) else f"wb.{dtype}"


def _array_of(parameter: str, want: Array, arg: object) -> str:
    """The code, for a message, that makes an array of this argument, which is none."""
    dtype = _spelt(want.dtype)
    if isinstance(arg, np.ndarray):
        shares = arg.dtype == getattr(want.dtype, "numpy", None)
        return f"wb.from_numpy(..., dtype={dtype}), which {'shares its memory' if shares else 'copies'}"
    if isinstance(arg, scalar):
        return f"{parameter}: {want.dtype} in the kernel, or wb.array([value], dtype={dtype})"
    return f"wb.array(..., dtype={dtype})"


def _other_dtype(parameter: str, want: Array, arg: array) -> str:
    """The code, for a message, that makes an array of the wanted dtype of `arg`: a view if the bytes fit."""
    dtype, have = _spelt(want.dtype), arg.dtype
    a = parameter if arg.label == f"{arg.allocation}" else arg.label  # of memory that has no name
    if getattr(have, "scalar", have) is getattr(want.dtype, "scalar", None):
        with suppress(LaunchError):
            seen = arg.view(want.dtype)
            if seen.ndim == want.ndim or (want.ndim == 1 and seen.is_contiguous):
                return f"{a}.view({dtype})" + (".flatten()" if seen.ndim > 1 == want.ndim else "")
    if isinstance(want.dtype, Composite):
        inner = ", ".join(map(str, want.dtype.shape))
        own = ""
        if isinstance(have, Scalar) and have != want.dtype.scalar:
            other = vector(*want.dtype.shape, have) if len(want.dtype.shape) == 1 else matrix(want.dtype.shape, have)
            own = f"; or {parameter}: wb.array[wb.{other}]"
        return f"wb.array(values, dtype={dtype}), of values of shape (n, {inner}){own}"
    if isinstance(want.dtype, Scalar) and isinstance(have, Scalar):
        ways = (
            f"wb.array(..., dtype={dtype}) where {a} is made",
            f"wb.map(f, {a}) with f(v: wb.{have}): return {dtype}(v)",
        )
        return f"{'; '.join(ways)}; or {parameter}: wb.array[wb.{have}]"
    return f"wb.array(..., dtype={dtype})"


def _number(program: Program, leaf: Leaf, arg: Any) -> Any:
    """A number or composite converted to the parameter's type; raises LaunchError instead of rounding to an integer."""
    type = leaf.type
    assert isinstance(type, Scalar | Composite)
    if isinstance(arg, scalar):
        if arg.dtype != type:
            instead = f"wb.scalar(..., dtype=wb.{type})"
            raise _refuse(program, leaf, f"takes {type}, got {shown(arg)}", "argument-dtype", instead)
        arg = arg.value
    try:
        if isinstance(arg, array | str):
            raise TypeError
        if isinstance(type, Composite):
            data = np.array(arg, dtype=type.numpy)  # a copy: the user may change theirs
            if data.size != type.size:
                raise ValueError
            data = data.reshape(type.shape)
            return given_away(data, sources_of(arg), getattr(arg, "cell", None))
        if np.ndim(arg) != 0:
            raise TypeError
        if type.kind in "iu":
            if int(arg) != arg or not np.iinfo(type.numpy).min <= arg <= np.iinfo(type.numpy).max:
                raise ValueError
            return int(arg)
        if type.kind == "b":
            return bool(arg)
        number = float(arg)
        if not held(number, type):
            raise OverflowError
        return mean(number) if is_meant(arg) else number
    except (TypeError, ValueError, OverflowError):
        text, instead = f"takes {type}, got {shown(arg)}", f"wb.{type}(...)"
        if isinstance(arg, array):
            one = f"a number, wb.scalar(value, requires_grad=True) for one with gradient, or {leaf.name}: wb.array[...]"
            text, instead = f"takes {type}, got the array {arg.label} of shape {arg.shape}", one
        raise _refuse(program, leaf, text, "argument-type", instead) from None


def views(function: Function, flat: Sequence[Any]) -> list:
    """The arguments as the interpreter takes them: NumPy arrays and NumPy numbers."""
    out = []
    for p, a in zip(function.params, flat, strict=True):
        out.append(a.data if isinstance(a, array) else p.type.numpy.type(a) if isinstance(p.type, Scalar) else a)
    return out

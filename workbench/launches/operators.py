"""Arithmetic on whole arrays: `map(f, x, y)` and the operators `+ - * / // % **`, each one elementwise launch.

The kernel is made from the func (or builtin) and the types at the first call, and kept with the func. Under a tape the
launch is an event like any other, so a gradient passes through it exactly, in place included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.allocation import caller_frame
from ..arrays.array import array, copied
from ..arrays.creation import empty
from ..arrays.dtypes import differentiable, inner_shape
from ..arrays.host_reads import carrying, sources_of, stripped
from ..arrays.ports import array_operators
from ..device import DeviceLike
from ..errors import KernelError, LaunchError
from ..kernels import ops
from ..kernels.program import Program, program
from ..kernels.reading.elementwise import Mapped, callable_in_kernels, elementwise
from ..kernels.types import Array, Small, Type, float32
from .arguments import flatten, value_type
from .command import Command
from .plan import grid, plan

Outs = array | Sequence[array] | None  # where results are written


@dataclass(eq=False)
class _Made:
    mapped: Mapped
    program: Program


def map(
    func: Callable[..., Any],
    *args: object,
    out: Outs = None,
    return_kernel: bool = False,
    block_dim: int | None = None,
    device: DeviceLike = None,
) -> Any:
    """`func` of every element: a new array (a tuple of them where it returns several values).

    func   a func, a plain function, or a builtin such as `sin`; it takes and returns numbers, vectors or structs.
    args   arrays of one shape (1 to 4 axes), and numbers, vectors or structs that serve every element.
           A Python number takes the type annotated in `func`, else that of the arrays beside it.
    out    array to write to (a tuple for several results); it may be one of `args`. It is then what is returned.

    The results require a gradient if an argument does. Raises LaunchError, and KernelError with the line of `func`;
    [map-func] for `return_kernel`. `block_dim` and `device` change nothing: arrays say where work runs.

    Use it for one line of arithmetic on whole arrays that is not worth a kernel; it is recorded and differentiated
    alike.

    >>> @wb.func
    ... def kinetic(m: float, v: wb.vec3):
    ...     return 0.5 * m * wb.dot(v, v)
    >>> m, v = wb.array([1.0, 2.0]), wb.ones(2, dtype=wb.vec3)
    >>> wb.map(kinetic, m, v)
    array([1.5, 3. ], dtype=float32, shape=(2,))
    """
    known = callable_in_kernels(func)
    name = getattr(func, "__name__", None) or type(func).__name__
    if return_kernel:
        text = "map(return_kernel=True): there is no kernel to be had"
        raise LaunchError(text, slug="map-func", instead=f"a kernel that calls {name}")
    if known is None:
        instead = f"wb.map(wb.{name}, ...)" if name in ops.BUILTINS else "@wb.func above its def"
        raise LaunchError(f"map takes a func, not {name}", slug="map-func", instead=instead)
    return _mapped(known, name, args, out)


def _mapped(f: Callable[..., Any], name: str, args: Sequence[Any], out: Outs) -> Any:
    """`map`, with `name` for messages."""
    arrays = [a for a in args if isinstance(a, array)]
    shape = _shape(name, arrays)
    made = _made(f, tuple([_type(name, a) for a in args]), len(shape))
    outs = _results(made.mapped, arrays, shape) if out is None else _given(name, made.mapped, out, shape)
    run(made.program, shape, [*[_apart(a, outs) for a in args], *outs])
    return tuple(outs) if made.mapped.several else outs[0]


def run(made: Program, dim: int | Sequence[int], args: Sequence[Any], record_tape: bool = True) -> None:
    """Launch a program that was made here, as an event at the user's line."""
    flat = flatten(made, args)
    command = Command(made, plan(made, grid(made.name, dim), flat, None), flat)
    command.launch(record_tape, caller_frame())


def _made(f: Callable[..., Any], types: tuple, ndim: int) -> _Made:
    """The kernel for these types, kept on the func itself: it is read anew when what it uses was redefined."""
    kept = vars(f).setdefault("_elementwise", {})
    custom = getattr(f, "grad", None), getattr(f, "replay", None)
    key = types, ndim, custom
    found = kept.get(key)
    if found is None or not found.mapped.reading.lookups.current():
        mapped = elementwise(f, types, ndim)
        found = kept[key] = _Made(mapped, program(mapped.reading, mapped.reading.function.name))
    return found


# ---- arguments


def _shape(name: str, arrays: list[array]) -> tuple[int, ...]:
    if not arrays:
        text = f"map({name}, ...) takes at least one array"
        raise LaunchError(text, slug="map-arrays", instead=f"{name}(...), or wb.from_numpy(data) for what NumPy holds")
    odd = next((a for a in arrays if a.shape != arrays[0].shape), None)
    if odd is not None:
        text = f"{name}: arrays of shapes {arrays[0].shape} and {odd.shape}"
        why = "Every array gives one element to each call: nothing is stretched or repeated."
        instead = f"x.reshape({arrays[0].shape}), or a number in its place"
        raise LaunchError(text, slug="shape", why=why, instead=instead)
    return arrays[0].shape


def _type(name: str, arg: object) -> Type | type:
    """The parameter type for an argument; int, float or bool for a Python number, which has none of its own."""
    if isinstance(arg, array):
        return Array(arg.dtype, arg.ndim)
    found = value_type(arg)
    if found is not None:
        return found
    made = "from_numpy(data)" if hasattr(arg, "__array_interface__") else "array(data, dtype=...)"
    text = f"{name}: {type(arg).__name__} is neither an array nor a number"
    raise LaunchError(text, slug="argument-type", instead=f"wb.{made} in its place")


def _results(mapped: Mapped, arrays: list[array], shape: tuple[int, ...]) -> list[array]:
    wanted = any(a.requires_grad for a in arrays)
    device = arrays[0].device
    return [empty(shape, t, device, requires_grad=wanted and differentiable(t)) for t in mapped.outs]


def _given(name: str, mapped: Mapped, out: Any, shape: tuple[int, ...]) -> list[array]:
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(outs) != len(mapped.outs) or not all(isinstance(o, array) for o in outs):
        raise LaunchError(f"{name} gives {len(mapped.outs)} results, out must be as many arrays", slug="map-out")
    for k, (o, t) in enumerate(zip(outs, mapped.outs, strict=True)):
        if o.dtype != t or o.shape != shape:
            text = f"{name} gives {t} of shape {shape}, out {o.label} is {o.dtype} of shape {o.shape}"
            raise LaunchError(text, slug="shape" if o.dtype == t else "dtype")
        if any(o.span.overlaps(other.span) is not False for other in outs[:k]):
            text = f"{name}: two results would be written to one memory"
            raise LaunchError(text, slug="race", instead="out=(a, b), two arrays that share no memory")
    return outs


def _apart(arg: object, outs: list[array]) -> Any:
    """The argument, or a copy if it overlaps a result at shifted places, where other threads would overwrite it."""
    if isinstance(arg, array):
        for out in outs:
            if arg.span != out.span and arg.span.overlaps(out.span) is not False:
                return copied(arg)
    return arg


# ---- operators

_SIGNS: dict[str, tuple[str, str, Any]] = {  # Python's name: (NumPy's name, sign, function)
    "add": ("add", "+", ops.BUILTINS["add"]),
    "sub": ("subtract", "-", ops.BUILTINS["sub"]),
    "mul": ("multiply", "*", ops.BUILTINS["mul"]),
    "truediv": ("divide", "/", ops.BUILTINS["div"]),
    "floordiv": ("floor_divide", "//", ops.BUILTINS["floordiv"]),
    "mod": ("remainder", "%", ops.ROWS["pymod"]),
    "pow": ("power", "**", ops.BUILTINS["pow"]),
}


def _operate(f: Callable[..., Any], sign: str, args: Sequence[Any], out: array | None = None) -> array:
    """Apply one operator. Types that it does not take are reported at the user's line, not as a kernel's mistake."""
    beside = next(a for a in args if isinstance(a, array))
    args = [_beside(a, beside) for a in args]
    if sign.startswith("/") and not sign.startswith("//") and getattr(beside.dtype, "scalar", float32).kind in "iu":
        text = f"`{sign}` of arrays divides floats, and these are integers"
        why = "NumPy gives floats here, kernels give integers rounded towards zero."
        raise LaunchError(text, slug="int-division", why=why, instead="a // b (rounds down), or arrays of floats")
    try:
        return _mapped(f, f"`{sign}`", args, out)
    except KernelError as e:
        raise LaunchError(f"`{sign}` of arrays: {e.what}", slug=e.slug, why=e.why, instead=e.instead) from None


def _beside(arg: object, other: array) -> Any:
    """The operand beside array `other`: a NumPy array becomes an array, a NumPy float takes its scalar type."""
    if isinstance(arg, np.ndarray) and not isinstance(arg, Small):
        return array(arg, dtype=other.dtype, device=other.device)
    scalar = getattr(other.dtype, "scalar", None)
    if isinstance(arg, np.floating) and scalar is not None and scalar.kind == "f":
        return carrying(scalar(stripped(arg)), sources_of(arg)) if arg.dtype != scalar.numpy else arg
    return arg


def _numpy_operator(f: Callable[..., Any], sign: str) -> Callable[..., Any]:
    """The operator for NumPy's ufunc of that name; it returns NotImplemented for shapes or types left to NumPy."""

    def apply(*args: Any) -> Any:
        other = next(a for a in args if isinstance(a, array))
        kind = getattr(other.dtype, "scalar", None)
        for a in args:
            if isinstance(a, array):
                continue
            fits = isinstance(a, np.generic) or np.shape(a) == other.shape + inner_shape(other.dtype)
            if kind is None or not fits or np.asarray(a).dtype.kind not in ("fiu" if kind.kind == "f" else "i"):
                return NotImplemented
        return _operate(f, sign, args)

    return apply


def _operators(name: str, sign: str, f: Callable[..., Any]) -> dict[str, Callable[[Any, Any], Any]]:
    return {
        f"__{name}__": lambda a, b: _operate(f, sign, (a, b)),
        f"__r{name}__": lambda a, b: _operate(f, sign, (b, a)),
        f"__i{name}__": lambda a, b: _operate(f, f"{sign}=", (a, b), a),
    }


for _name, (_of_numpy, _sign, _f) in _SIGNS.items():
    array_operators.update(_operators(_name, _sign, _f))
    array_operators[_of_numpy] = _numpy_operator(_f, _sign)
array_operators["__neg__"] = lambda a, _: _operate(ops.BUILTINS["neg"], "-", (a,))

"""JAX arrays as arrays and back; kernels as functions that JAX can call, jit and differentiate.

A JAX array never changes. So memory that comes from JAX can be read by kernels and not written, and memory that is
lent to JAX cannot be written until JAX has dropped it. Kernels become primitives of JAX: see `jax_primitives`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, cast

import jax
import numpy as np
from jax.core import Tracer

from ..arrays.array import array, read_values
from ..arrays.creation import zeros
from ..arrays.dtypes import DTypeLike, differentiable, dtype_of
from ..arrays.host_reads import sources_of
from ..arrays.provenance import source_of
from ..arrays.scalar import scalar
from ..device import Device, get_device
from ..errors import LaunchError, Where
from ..kernels.program import Kernel
from ..kernels.types import Array, Composite, Scalar, Struct, Type, scalar_of
from ..launches.launch import launch
from .dlpack import Constant, guard, share
from .jax_primitives import HostCall, called
from .pure_calls import Dims, GridLike, OutputsLike, arrived, check_writes, form, refuse_leaving

__all__ = ["device_to_jax", "dtype_from_jax", "dtype_to_jax", "from_jax", "function", "to_jax"]
__dir__ = __all__.copy


def from_jax(x: jax.Array, dtype: DTypeLike = None, requires_grad: bool = False, copy: bool = False) -> array:
    """An array on the memory of a JAX array, for reading: a write to it is refused [read-only].

    dtype  element type; for vec, mat and quat the trailing axes of `x` are the components.
    copy   True: memory of its own, which can be written.

    JAX does not see the gradient of this array: use `interop.jax.function` for gradients through both.
    Raises LaunchError [tracer] inside jit and grad, [dtype], [components].
    """
    if isinstance(x, Tracer):
        text = "from_jax inside a function that JAX traces: there is no memory yet."
        raise LaunchError(text, slug="tracer", instead="wb.interop.jax.function(kernel, dim=n)(x)")
    if not isinstance(x, jax.Array):
        raise LaunchError(f"from_jax takes a JAX array, got {type(x).__name__}", slug="argument-type")
    if x.devices() and next(iter(x.devices())).platform == "gpu":
        import cupy

        data: Any = cupy.from_dlpack(x)
    else:
        data = np.asarray(x)
    if copy:
        made = array(data, dtype_of(data.dtype if dtype is None else dtype), requires_grad=requires_grad)
        arrived(made, ())
        return made
    return share(data, dtype, requires_grad, None, "a JAX array", constant=True)


def to_jax(a: array, copy: bool = True) -> jax.Array:
    """A JAX array of the values, components as trailing axes.

    copy  False: on the memory of `a`, which then cannot be written as long as JAX holds it. XLA takes only memory
          that is contiguous and starts at a multiple of 64 bytes.

    Raises LaunchError [dtype] for structs and where JAX has 64-bit types switched off, [layout]; GradientError
    [host-values] under a tape, of an array on an active path: what JAX makes of the values is on no tape.
    """
    if not isinstance(a, array):
        raise LaunchError(f"to_jax takes an array, got {type(a).__name__}", slug="argument-type")
    if isinstance(a.dtype, Struct):
        raise LaunchError(f"{a.dtype} has no JAX dtype", slug="dtype", instead="one field of it: to_jax(a.field(name))")
    check_width(a.dtype)
    if not a.is_gradient and differentiable(a.dtype) and (source := source_of(a.span, a.label)) is not None:
        refuse_leaving((source,), "JAX", _WAY_OUT.format(f"wb.to_jax(wb.detach({a.label}))"))
    if copy:
        return jax.numpy.asarray(np.array(read_values(a)))
    a.allocation.expose()
    view = a.data[...]
    try:
        made = jax.dlpack.from_dlpack(view, copy=False)
    except (ValueError, RuntimeError, TypeError) as error:
        text = str(error).partition(".")[0]
        raise LaunchError(f"{a.label} cannot be lent to JAX: {text}", slug="layout", instead="wb.to_jax(a)") from None
    guard(a, Constant(a.span, "a JAX array", weakref.ref(view)))  # JAX holds the view as long as its buffer
    return made


_WAY_OUT = "this line after the `with` block, a kernel in place of what JAX does, or {} if the gradient is to end there"


def scalar_in(type: Type) -> Scalar:
    """A scalar type itself, or that of the components."""
    return type.scalar if isinstance(type, Composite) else cast(Scalar, type)


def check_width(type: Type) -> None:
    """Raises LaunchError [dtype] for 64-bit types that JAX has switched off."""
    wanted = scalar_in(type).numpy
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        text = f"JAX would turn {wanted} into {jax.dtypes.canonicalize_dtype(wanted)}."
        raise LaunchError(text, slug="dtype", instead='jax.config.update("jax_enable_x64", True)')


def dtype_from_jax(dtype: Any) -> Scalar:
    """The scalar type of a JAX dtype. Raises LaunchError [dtype]."""
    return scalar_of(np.dtype(dtype))


def dtype_to_jax(dtype: DTypeLike) -> Any:
    """The JAX dtype of a scalar type, or of the components of a vector, matrix or quaternion type."""
    name = scalar_in(dtype_of(dtype)).numpy.name
    return getattr(jax.numpy, "bool_" if name == "bool" else name)


def device_to_jax(device: Device | str | None) -> Any:
    """The device of JAX that a device (or its name) stands for. Raises RuntimeError if JAX sees no such device."""
    ours = get_device(device)
    if not ours.is_cuda:
        return jax.devices("cpu")[0]
    return next(d for d in jax.local_devices(backend="gpu") if d.local_hardware_id == ours.ordinal)


# ---- kernels as JAX functions


def function(kernel: Kernel, dim: GridLike = None, outputs: OutputsLike = None) -> JaxFunction:
    """A kernel as a function of JAX: `y = function(kernel)(x1, x2, 3.0)`, for `jit`, `grad`, `jvp`, `hessian`, `vmap`.

    The arguments of a call are the first parameters of the kernel: arrays, numbers, vectors (as arrays). The parameters
    that remain are the outputs: zeros, which the kernel fills and the call returns, one alone or a tuple. Float
    arguments have gradients, numbers too. The kernel must not write to its inputs.

    dim      the launch grid: an int, a tuple, or a function of the call's arguments. By default the shape of the first
             output; without `outputs` that of the inputs, where the kernel reads them at `tid()`.
    outputs  shapes of the outputs, without component axes: a list of ints or tuples, or a function of the call's
             arguments that gives one. By default every output has the shape of the grid.

    Derivatives are exact, in reverse and forward mode and of any order. Runs on the CPU, through `jax.pure_callback`;
    `vmap` launches once per element; what is differentiated is launched again. What `wb.hvp` refuses is refused where a
    second derivative is asked for (under `jax.jit` by an error of JAX that has ours in its text).
    Raises LaunchError [function], [dtype] for arguments that do not fit, or that the grid would not read to the end.
    """
    return JaxFunction(kernel, dim, outputs)


class JaxFunction:
    """A kernel that JAX can call and differentiate. Made by `function`."""

    def __init__(self, kernel: Kernel, dim: GridLike, outputs: OutputsLike):
        self.kernel, self.dim, self.outputs = kernel, dim, outputs
        self.__name__, self.__doc__ = kernel.__name__, kernel.__doc__

    def __repr__(self) -> str:
        return f"<JAX function of {self.kernel!r}>"

    def __call__(self, *args: object) -> Any:
        program = self.kernel.program()
        what, where = f"function of {program.name!r}", program.function.where
        count, params = len(args), program.params
        given = [argument(what, where, param, arg) for param, arg in zip(params, args, strict=False)]
        dims, shapes = form(program, given if count <= len(params) else args, self.dim, self.outputs, dtype_of)
        check_writes(program, count, "A JAX array never changes.")
        specs = [spec(type, shape) for (_, type), shape in zip(params[count:], shapes, strict=True)]
        made = called(HostCall(self, (dims, tuple(shapes)), specs), given)
        return made[0] if len(made) == 1 else tuple(made)

    def evaluate(
        self, form: tuple[Dims, tuple[Dims, ...]], values: Sequence[object], wanted: frozenset[int]
    ) -> tuple[list[Any], list[array]]:
        """Launch on these values. Returns (the arguments as they were launched, the outputs)."""
        params, (dims, shapes) = self.kernel.program().params, form
        inputs = [leaf(type, v, k in wanted) for k, ((_, type), v) in enumerate(zip(params, values, strict=False))]
        rest = zip(params[len(values) :], shapes, strict=True)
        outs = [zeros(shape, type.dtype, "cpu") for (_, type), shape in rest if isinstance(type, Array)]
        launch(self.kernel, dims, inputs, outs, device="cpu")
        return inputs, outs


def spec(type: Type, shape: Dims) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an output, components as trailing axes. Raises LaunchError [dtype]."""
    assert isinstance(type, Array)
    check_width(type.dtype)
    return jax.ShapeDtypeStruct((*shape, *getattr(type.dtype, "shape", ())), scalar_in(type.dtype).numpy)


def leaf(type: Type, value: object, wanted: bool) -> Any:
    """A value of JAX for a launch. `wanted`: in memory of its own, with a gradient."""
    data = np.asarray(value)
    if isinstance(type, Array):
        if wanted:
            return array(np.array(data), type.dtype, device="cpu", requires_grad=True)
        return share(data, type.dtype, False, None, "a JAX array", constant=True)
    if wanted:
        return scalar(data, type, requires_grad=True, device="cpu")
    return data if data.ndim else data[()]


def argument(what: str, where: Where | None, param: tuple[str, Type], arg: object) -> jax.Array:
    """An argument of `what` as a JAX array of exactly the parameter's type; Python numbers take it.

    Raises LaunchError [function], [dtype].
    """
    name, type = param
    element = type.dtype if isinstance(type, Array) else type
    if isinstance(element, Struct) or isinstance(arg, array | scalar):
        given = f"of {element}, a struct" if isinstance(element, Struct) else f"given {arg.__class__.__name__}"
        raise LaunchError(
            f"{what}: {name!r} is {given}, not a JAX array.",
            slug="function",
            where=where,
            instead="one array per field" if isinstance(element, Struct) else "wb.to_jax(a)",
        )
    check_width(element)
    refuse_leaving(sources_of(arg), "JAX", _WAY_OUT.format("wb.detach(values)"))
    assert isinstance(element, Scalar | Composite)
    wanted = scalar_in(element).numpy
    have = getattr(arg, "dtype", None)
    given = jax.numpy.asarray(arg, dtype=wanted if have is None else None)
    inner = element.shape
    outer = given.ndim - len(inner)
    rank = type.ndim if isinstance(type, Array) else 0
    if (have is not None and have != wanted) or outer != rank or given.shape[outer:] != inner:
        raise LaunchError(
            f"{what}: {name!r} takes {type}, got {have or given.dtype} of shape {given.shape}.",
            slug="dtype" if have is not None and have != wanted else "function",
            where=where,
            instead=f"x.astype({wanted})" if have != wanted else "",
        )
    return given

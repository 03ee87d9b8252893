"""JAX arrays as arrays and back; kernels as functions that JAX can call, jit and differentiate.

A JAX array never changes. So memory that comes from JAX can be read by kernels and not written, and memory that is
lent to JAX cannot be written until JAX has dropped it. A kernel becomes a `jax.custom_vjp` of two callbacks to the
host: the launch, and the launch again under a tape with its reverse pass. Nothing is kept between the two.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..arrays.array import array, read_values
from ..arrays.creation import zeros
from ..arrays.dtypes import dtype_of
from ..arrays.scalar import scalar
from ..device import get_device
from ..errors import LaunchError, Where
from ..kernels.analysis.accesses import accesses_by_array
from ..kernels.program import Kernel, Program
from ..kernels.types import Array, Scalar, Struct, Type, is_float, shadow_type
from ..launches.launch import launch
from ..launches.plan import grid
from ..tapes.tape import Tape
from .dlpack import Constant, guard, share

__all__ = ["device_to_jax", "dtype_from_jax", "dtype_to_jax", "from_jax", "function", "to_jax"]


def from_jax(x: jax.Array, dtype: Any = None, requires_grad: bool = False, copy: bool = False) -> array:
    """An array on the memory of a JAX array, for reading: a write to it is refused [read-only].

    dtype  element type; for vec, mat and quat the trailing axes of `x` are the components.
    copy   True: memory of its own, which can be written.

    JAX does not see the gradient of this array: use `interop.jax.function` for gradients through both.
    Raises LaunchError [tracer] inside jit and grad, [dtype], [components].
    """
    if isinstance(x, jax.core.Tracer):
        raise LaunchError(
            "from_jax inside a function that JAX traces: there is no memory yet.",
            slug="tracer",
            instead="wb.interop.jax.function(kernel, dim=n)(x)",
        )
    if not isinstance(x, jax.Array):
        raise LaunchError(f"from_jax takes a JAX array, got {type(x).__name__}", slug="argument-type")
    if x.devices() and next(iter(x.devices())).platform == "gpu":
        import cupy

        data: Any = cupy.from_dlpack(x)
    else:
        data = np.asarray(x)
    if copy:
        return array(data, dtype_of(data.dtype if dtype is None else dtype), requires_grad=requires_grad)
    return share(data, dtype, requires_grad, None, "a JAX array", constant=True)


def to_jax(a: array, copy: bool = True) -> jax.Array:
    """A JAX array of the values, components as trailing axes.

    copy  False: on the memory of `a`, which then cannot be written as long as JAX holds it. XLA takes only memory
          that is contiguous and starts at a multiple of 64 bytes.

    Raises LaunchError [dtype] for structs and where JAX has 64-bit types switched off, [layout].
    """
    if not isinstance(a, array):
        raise LaunchError(f"to_jax takes an array, got {type(a).__name__}", slug="argument-type")
    if isinstance(a.dtype, Struct):
        raise LaunchError(f"{a.dtype} has no JAX dtype", slug="dtype", instead="one field of it: to_jax(a.field(name))")
    check_width(a.dtype)
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


def check_width(type: Type) -> None:
    """Raises LaunchError [dtype] for 64-bit types that JAX has switched off."""
    wanted = type.scalar.numpy  # type: ignore[attr-defined]
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        raise LaunchError(
            f"JAX would turn {wanted} into {jax.dtypes.canonicalize_dtype(wanted)}.",
            slug="dtype",
            instead='jax.config.update("jax_enable_x64", True)',
        )


def dtype_from_jax(dtype: Any) -> Scalar:
    """The scalar type of a JAX dtype. Raises LaunchError [dtype]."""
    return dtype_of(np.dtype(dtype))  # type: ignore[return-value]


def dtype_to_jax(dtype: Any) -> Any:
    """The JAX dtype of a scalar type, or of the components of a vector, matrix or quaternion type."""
    name = np.dtype(dtype_of(dtype).scalar.numpy).name  # type: ignore[attr-defined]
    return getattr(jax.numpy, "bool_" if name == "bool" else name)


def device_to_jax(device: Any) -> Any:
    """The device of JAX that a device (or its name) stands for. Raises RuntimeError if JAX sees no such device."""
    ours = get_device(device)
    if not ours.is_cuda:
        return jax.devices("cpu")[0]
    return next(d for d in jax.local_devices(backend="gpu") if d.local_hardware_id == ours.ordinal)


# ---- kernels as JAX functions


def function(kernel: Kernel, dim: Any = None, outputs: Any = None) -> JaxFunction:
    """A kernel as a function of JAX: `y = function(kernel, dim=n)(x1, x2, 3.0)`, for `jax.jit`, `grad`, `vjp`, `vmap`.

    The arguments of a call are the first parameters of the kernel: arrays, numbers, vectors (as arrays). The parameters
    that remain are the outputs: zeros, which the kernel fills and the call returns, one alone or a tuple. Float
    arguments have gradients, numbers too. The kernel must not write to its inputs.

    dim      the launch grid: an int, a tuple, or a function of the call's arguments. By default the shape of the first
             output.
    outputs  shapes of the outputs, without component axes: a list of ints or tuples, or a function of the call's
             arguments that gives one. By default every output has the shape of the grid.

    Runs on the CPU, through `jax.pure_callback`; `vmap` launches once per element. The reverse pass launches the kernel
    again. Second derivatives are refused by JAX. Raises LaunchError [function], [dtype] for arguments that do not fit.
    """
    if dim is None and outputs is None:
        raise LaunchError("function needs the grid or the shapes of the outputs", slug="function", instead="dim=n")
    return JaxFunction(kernel, dim, outputs)


Form = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]  # the grid, and one shape per output


class JaxFunction:
    """A kernel that JAX can call and differentiate. Made by `function`."""

    def __init__(self, kernel: Kernel, dim: Any, outputs: Any):
        self.kernel, self.dim, self.outputs = kernel, dim, outputs
        self.__name__, self.__doc__ = kernel.__name__, kernel.__doc__
        self.vjp = jax.custom_vjp(self._call, nondiff_argnums=(0,))
        self.vjp.defvjp(lambda form, *args: (self._call(form, *args), args), self._backward)

    def __repr__(self) -> str:
        return f"<JAX function of {self.kernel!r}>"

    def __call__(self, *args: Any) -> Any:
        program = self.kernel.program()
        form = self._form(program, args)
        self._check_writes(program, len(args))
        what, where = f"function of {program.name!r}", program.function.where
        given = [argument(what, where, param, arg) for param, arg in zip(program.params, args, strict=False)]
        made = self.vjp(form, *given)
        return made[0] if len(made) == 1 else tuple(made)

    def _form(self, program: Program, args: tuple) -> Form:
        rest = program.params[len(args) :]
        dim = self.dim(*args) if callable(self.dim) else self.dim
        given: Any = self.outputs(*args) if callable(self.outputs) else self.outputs
        dims = None if dim is None else grid(program.name, dim)
        shapes = [dims or ()] * len(rest) if given is None else [_shape(s) for s in given]
        if not rest or len(shapes) != len(rest):
            names = ", ".join(name for name, _ in program.params)
            raise LaunchError(
                f"function of {program.name!r}: {len(args)} arguments leave {len(rest)} of the parameters ({names})"
                f" for {len(shapes)} outputs.",
                slug="function",
                where=program.function.where,
                why="The arguments of a call are the first parameters, the outputs are all the others.",
            )
        for (name, type), shape in zip(rest, shapes, strict=True):
            if not isinstance(type, Array) or isinstance(type.dtype, Struct) or len(shape) != type.ndim:
                raise LaunchError(
                    f"function of {program.name!r}: the output {name!r} is {type}, its shape was given as {shape}.",
                    slug="function",
                    where=program.function.where,
                    instead="outputs=[shape, ...], without component axes",
                )
            check_width(type.dtype)
        return (shapes[0] if dims is None else dims), tuple(shapes)

    def _check_writes(self, program: Program, count: int) -> None:
        inputs = {name for name, _ in program.params[:count]}
        for name, group in accesses_by_array(program.function).items():
            if name in inputs and (group.writes or group.accumulates):
                raise LaunchError(
                    f"function of {program.name!r}: the kernel writes to {name!r}, an input.",
                    slug="function",
                    where=program.function.where,
                    why="A JAX array never changes.",
                    instead="a kernel that writes to another array, which is then an output",
                )

    # ---- what JAX traces

    def _call(self, form: Form, *args: Any) -> tuple:
        program = self.kernel.program()
        rest = program.params[len(args) :]
        specs = [
            jax.ShapeDtypeStruct((*shape, *type.dtype.shape), type.dtype.scalar.numpy)  # type: ignore[attr-defined]
            for (_, type), shape in zip(rest, form[1], strict=True)
        ]

        def run(*values: Any) -> tuple:
            return tuple([a.numpy() for a in self._launch(program, form, _inputs(program, values, False))])

        return tuple(jax.pure_callback(run, tuple(specs), *args, vmap_method="sequential"))

    def _backward(self, form: Form, args: tuple, seeds: Sequence[Any]) -> tuple:
        program = self.kernel.program()
        rest = program.params[len(args) :]
        floats = [k for k, (_, type) in enumerate(program.params[: len(args)]) if is_float(type)]
        seeded = [k for k, (_, type) in enumerate(rest) if is_float(type)]
        specs = tuple(jax.ShapeDtypeStruct(args[k].shape, args[k].dtype) for k in floats)

        def run(values: Sequence[Any], given: Sequence[Any]) -> tuple:
            inputs = _inputs(program, values, True)
            with Tape() as tape:
                outs = self._launch(program, form, inputs)
            tape.backward(
                grads={
                    outs[k]: array(np.asarray(g), shadow_type(outs[k].dtype), shape=outs[k].shape, device="cpu")
                    for k, g in zip(seeded, given, strict=True)
                }
            )
            found = [inputs[k].grad.numpy() for k in floats]
            return tuple([g.reshape(s.shape).astype(s.dtype) for g, s in zip(found, specs, strict=True)])

        if not floats or not seeded:
            return (None,) * len(args)
        found = jax.pure_callback(run, specs, args, [seeds[k] for k in seeded], vmap_method="sequential")
        gradients = dict(zip(floats, found, strict=True))
        return tuple(gradients.get(k) for k in range(len(args)))

    def _launch(self, program: Program, form: Form, inputs: list[Any]) -> list[array]:
        dims, shapes = form
        rest = program.params[len(inputs) :]
        outs = [zeros(s, t.dtype, "cpu") for (_, t), s in zip(rest, shapes, strict=True)]  # type: ignore[attr-defined]
        launch(self.kernel, dims, inputs, outs, device="cpu")
        return outs


def _shape(given: Any) -> tuple[int, ...]:
    return (int(given),) if isinstance(given, int | np.integer) else tuple(int(n) for n in given)


def argument(what: str, where: Where | None, param: tuple[str, Type], arg: Any) -> jax.Array:
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
    wanted = element.scalar.numpy  # type: ignore[attr-defined]
    have = getattr(arg, "dtype", None)
    given = jax.numpy.asarray(arg, dtype=wanted if have is None else None)
    inner = element.shape  # type: ignore[attr-defined]
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


def _inputs(program: Program, values: Sequence[Any], record: bool) -> list[Any]:
    """The values of one call for a launch. `record`: each in memory of its own, with a gradient."""
    made: list[Any] = []
    for (_, type), value in zip(program.params, values, strict=False):
        data = np.asarray(value)
        if isinstance(type, Array):
            wanted = record and is_float(type)
            made.append(
                array(data, type.dtype, device="cpu", requires_grad=wanted)
                if record
                else share(data, type.dtype, False, None, "a JAX array", constant=True)
            )
        elif record and is_float(type):
            made.append(scalar(data, type, requires_grad=True, device="cpu"))
        else:
            made.append(data if data.ndim else data[()])
    return made


def __dir__() -> list[str]:
    return __all__

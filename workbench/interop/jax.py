"""JAX arrays as arrays and back; kernels as functions that JAX can call, jit and differentiate.

A JAX array never changes. So memory that comes from JAX can be read by kernels and not written, and memory that is
lent to JAX cannot be written until JAX has dropped it. Kernels become primitives of JAX: see `jax_primitives`.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
from jax.core import Tracer

from ..arrays.array import array, read_values
from ..arrays.creation import copy, zeros
from ..arrays.dtypes import DTypeLike, differentiable, dtype_of, scalar_in
from ..arrays.host_reads import sources_of
from ..arrays.read_values import source_of
from ..arrays.scalar import scalar
from ..device import Device, DeviceLike, ScopedDevice, get_device
from ..errors import LaunchError, Where
from ..kernels.program import Kernel
from ..kernels.reading.declare import parameters, resolve
from ..kernels.types import Array, Composite, Scalar, Struct, Type, scalar_of
from ..launches.launch import launch
from ..launches.plan import grid as grid_of
from .dlpack import Constant, guard, share
from .jax_primitives import HostCall, called
from .pure_calls import Dims, Extent, GridLike, OutputsLike, arrived, check_writes, form, refuse_leaving

__all__ = [
    "device_from_jax",
    "device_to_jax",
    "dtype_from_jax",
    "dtype_to_jax",
    "from_jax",
    "function",
    "jax_callable",
    "jax_kernel",
    "to_jax",
]
__dir__ = __all__.copy


def from_jax(jax_array: jax.Array, dtype: DTypeLike = None, requires_grad: bool = False, copy: bool = False) -> array:
    """An array on the memory of a JAX array, for reading: a write to it is refused [read-only].

    dtype  element type; for vec, mat and quat the trailing axes of `jax_array` are the components.
    copy   True: memory of its own, which can be written.

    JAX does not see the gradient of this array: use `interop.jax.function` for gradients through both.
    Raises LaunchError [tracer] inside jit and grad, [dtype], [components].

    >>> import jax.numpy as jnp
    >>> wb.from_jax(jnp.ones(2))
    array([1., 1.], dtype=float32, shape=(2,))
    """
    if isinstance(jax_array, Tracer):
        text = "from_jax inside a function that JAX traces: there is no memory yet."
        raise LaunchError(text, slug="tracer", instead="wb.interop.jax.function(kernel, dim=n)(x)")
    if not isinstance(jax_array, jax.Array):
        raise LaunchError(f"from_jax takes a JAX array, got {type(jax_array).__name__}", slug="argument-type")
    if jax_array.devices() and next(iter(jax_array.devices())).platform == "gpu":
        import cupy

        data: Any = cupy.from_dlpack(jax_array)
    else:
        data = np.asarray(jax_array)
    if copy:
        made = array(data, dtype_of(data.dtype if dtype is None else dtype), requires_grad=requires_grad)
        arrived(made, ())
        return made
    return share(data, dtype, requires_grad, None, "a JAX array", constant=True)


def to_jax(warp_array: array, copy: bool = True) -> jax.Array:
    """A JAX array of the values, components as trailing axes.

    copy  False: on the memory of the array, which then cannot be written as long as JAX holds it. XLA takes only memory
          that is contiguous and starts at a multiple of 64 bytes.

    Raises LaunchError [dtype] for structs and where JAX has 64-bit types switched off, [layout]; GradientError
    [host-values] under a tape, of an array on an active path: what JAX makes of the values is on no tape.

    >>> wb.to_jax(wb.ones(2)).shape
    (2,)
    """
    a = warp_array
    if not isinstance(a, array):
        raise LaunchError(f"to_jax takes an array, got {type(a).__name__}", slug="argument-type")
    if isinstance(a.dtype, Struct):
        raise LaunchError(f"{a.dtype} has no JAX dtype", slug="dtype", instead="one field of it: to_jax(a.field(name))")
    check_width(a.dtype)
    if not a.is_gradient and differentiable(a.dtype) and (source := source_of(a.span, a)) is not None:
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


def dtype_from_jax(jax_dtype: npt.DTypeLike) -> Scalar:
    """The scalar type of a JAX dtype. Raises LaunchError [dtype].

    >>> import jax.numpy as jnp
    >>> wb.dtype_from_jax(jnp.float32)
    float32
    """
    return scalar_of(np.dtype(jax_dtype))


def dtype_to_jax(warp_dtype: DTypeLike) -> Any:
    """The JAX dtype of a scalar type, or of the components of a vector, matrix or quaternion type.

    >>> wb.dtype_to_jax(wb.vec3).dtype
    dtype('float32')
    """
    name = scalar_in(dtype_of(warp_dtype)).numpy.name
    return getattr(jax.numpy, "bool_" if name == "bool" else name)


def device_from_jax(jax_device: Any) -> Device:
    """The device that a device of JAX stands for. Raises LaunchError [device].

    >>> import jax
    >>> wb.device_from_jax(jax.devices("cpu")[0])
    cpu
    """
    return get_device("cpu" if jax_device.platform == "cpu" else f"cuda:{jax_device.local_hardware_id}")


def device_to_jax(warp_device: DeviceLike) -> Any:
    """The device of JAX that a device (or its name) stands for. Raises RuntimeError of JAX if it sees no such device.

    >>> wb.device_to_jax("cpu").platform
    'cpu'
    """
    ours = get_device(warp_device)
    if not ours.is_cuda:
        return jax.devices("cpu")[0]
    return next(d for d in jax.local_devices(backend="gpu") if d.local_hardware_id == ours.ordinal)


def check_width(type: Type) -> None:
    """Raises LaunchError [dtype] for 64-bit types that JAX has switched off."""
    wanted = scalar_in(type).numpy
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        text = f"JAX would turn {wanted} into {jax.dtypes.canonicalize_dtype(wanted)}."
        raise LaunchError(text, slug="dtype", instead='jax.config.update("jax_enable_x64", True)')


# ---- kernels as JAX functions


def function(kernel: Kernel, dim: GridLike = None, outputs: OutputsLike = None) -> JaxFunction:
    """A kernel as a function of JAX: `y = function(kernel)(x1, x2, 3.0)`, for `jit`, `grad`, `jvp`, `hessian`, `vmap`.

    The arguments of a call are the first parameters of the kernel: arrays, numbers, vectors (as arrays). The parameters
    that remain are the outputs: zeros, which the kernel fills and the call returns, one alone or a tuple. Float
    arguments have gradients, numbers too. The kernel must not write to its inputs.

    `dim`, `outputs`: the launch grid and the shapes of the outputs, as for `interop.torch.function`.

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
        self._with_outputs = cache(partial(JaxCall, "jax_kernel", kernel))  # so many of them: JAX knows each call again

    def __repr__(self) -> str:
        return f"<JAX function of {self.kernel!r}>"

    def __call__(self, *args: object) -> Any:
        program = self.kernel.program()
        what, where = f"function of {program.name!r}", program.function.where
        count, params = len(args), program.params
        given = [argument(what, where, param, arg) for param, arg in zip(params, args, strict=False)]
        dims, shapes = form(program, given if count <= len(params) else args, self.dim, self.outputs, dtype_of)
        check_writes(program, count, "A JAX array never changes.")
        made = self._with_outputs(len(params) - count)._call(given, Form(dims, tuple(shapes), ()))
        return tuple(made) if isinstance(made, list) else made


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
        text = f"{what}: {name!r} is {given}, not a JAX array."
        instead = "one array per field" if isinstance(element, Struct) else "wb.to_jax(a)"
        raise LaunchError(text, slug="function", where=where, instead=instead)
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
        text = f"{what}: {name!r} takes {type}, got {have or given.dtype} of shape {given.shape}."
        slug = "dtype" if have is not None and have != wanted else "function"
        raise LaunchError(text, slug=slug, where=where, instead=f"x.astype({wanted})" if have != wanted else "")
    return given


# ---- `jax_kernel` and `jax_callable`


OutputDims = Extent | dict[str, Extent] | None  # one shape for all outputs, or one for each by its name


class Form(NamedTuple):
    """The static part of a call, all but the contents of arrays: JAX compiles once for each."""

    grid: Dims | None  # of a kernel
    outputs: tuple[Dims, ...]  # shapes of the pure outputs, without component axes
    static: tuple[tuple[int, Any], ...]  # numbers of a Python function, by the place of their parameter


class JaxCall:
    """A kernel, or a Python function that launches some, that JAX can call, jit and differentiate.

    Made by `jax_kernel` and `jax_callable`. To a Python function numbers are static.
    """

    where: Where | None = None

    def __init__(
        self,
        what: str,
        fn: Any,
        num_outputs: int,
        in_out: Iterable[str] | None = None,
        output_dims: OutputDims = None,
        launch_dims: Extent | None = None,
    ):
        self.what, self.fn = f"{what} of {fn.__name__!r}", fn
        self.output_dims, self.launch_dims = output_dims, launch_dims
        self.__name__, self.__doc__ = fn.__name__, fn.__doc__
        self.num_outputs, self.in_out = num_outputs, tuple(in_out or ())

    def __repr__(self) -> str:
        return f"<{self.what} for JAX>"

    def __call__(self, *args: Any, output_dims: OutputDims = None, vmap_method: object = None, **grid: Any) -> Any:
        """The outputs for these inputs, of a kernel over `launch_dims`. Raises LaunchError [function], [dtype]."""
        if len(args) != self.split:
            wanted = ", ".join(name for name, _ in self.params[: self.split])
            why = "The other parameters are outputs."
            raise self._refuse(f"{len(args)} arguments for its inputs ({wanted}).", why=why)
        seen = self._arrays()
        static = [(k, self._static(k, arg)) for k, arg in enumerate(args) if k not in seen]
        given = tuple(argument(self.what, self.where, self.params[k], args[k]) for k in seen)
        dims = None
        if isinstance(self.fn, Kernel):
            launch_dims = grid.pop("launch_dims", None)
            launch_dims = self.launch_dims if launch_dims is None else launch_dims
            dims = self._outer(given) if launch_dims is None else grid_of(self.fn.__name__, launch_dims)
        if grid:
            raise TypeError(f"{self.what} takes no {min(grid)!r}")
        default = self.output_dims if output_dims is None else output_dims
        shapes = self._shapes(default, lambda: self._outer(args) if dims is None else dims)
        return self._call(given, Form(dims, shapes, tuple(static)))

    def _read(self) -> list[tuple[str, Type]]:
        if isinstance(self.fn, Kernel):
            program = self.fn.program()
            self.where = program.function.where
            return list(program.params)
        code = self.fn.__code__
        self.where = Where(code.co_filename, code.co_firstlineno, 0)
        resolve(self.fn, {})
        return list(zip(inspect.signature(self.fn).parameters, parameters(self.fn), strict=True))

    def _static(self, k: int, arg: Any) -> Any:
        if isinstance(arg, Tracer):
            instead = "static_argnames of jax.jit, or an array of one element"
            why = "The function is called with numbers of Python, which have no gradient."
            raise self._refuse(f"the number {self.params[k][0]!r} is traced.", instead, why)
        return arg.item() if hasattr(arg, "item") else arg

    # ---- parameters and shapes

    def _refuse(self, text: str, instead: str = "", why: str = "") -> LaunchError:
        return LaunchError(f"{self.what}: {text}", slug="function", where=self.where, why=why, instead=instead)

    @cached_property
    def params(self) -> list[tuple[str, Type]]:
        """The (name, type) of each parameter, checked once. Raises LaunchError [function]."""
        params = self._read()
        pure = self.num_outputs - len(self.in_out)
        names = [name for name, _ in params]
        inputs = names[: len(names) - pure] if pure >= 0 else []
        if self.num_outputs < 1 or pure < 0 or pure > len(names) or any(n not in inputs for n in self.in_out):
            text = f"{self.num_outputs} outputs, {list(self.in_out)} changed in place, of ({', '.join(names)})."
            why = "The last parameters are the outputs; in_out_argnames come before, and count."
            raise self._refuse(text, "num_outputs=1", why)
        for k, (name, type) in enumerate(params):
            written = k >= len(inputs) or name in self.in_out
            plain = not isinstance(type.dtype if isinstance(type, Array) else type, Struct)
            if not (plain and isinstance(type, Type)) or (written and not isinstance(type, Array)):
                raise self._refuse(f"{name!r} is {type}.", "an array of numbers, vectors or matrices, or a number")
        return params

    @property
    def split(self) -> int:
        """The number of inputs, those changed in place included: later parameters are pure outputs."""
        return len(self.params) - self.num_outputs + len(self.in_out)

    def _outer(self, args: Sequence[Any]) -> Dims:
        """The shape of the first array argument, without components. Raises LaunchError if there is none."""
        for (_, type), arg in zip(self.params, args, strict=False):
            if isinstance(type, Array):
                return tuple(np.shape(arg))[: type.ndim]
        raise self._refuse("no array is given that would say the shape.", "launch_dims=n, output_dims=n")

    def _shapes(self, output_dims: OutputDims, default: Callable[[], Dims]) -> tuple[Dims, ...]:
        found = []
        for name, type in self.params[self.split :]:
            dims = output_dims.get(name) if isinstance(output_dims, dict) else output_dims
            if dims is None and isinstance(output_dims, dict):
                raise self._refuse(f"output_dims says nothing about {name!r}.", f'output_dims={{"{name}": n}}')
            dims = default() if dims is None else (dims,) if isinstance(dims, int | np.integer) else tuple(dims)
            assert isinstance(type, Array)
            inner = getattr(type.dtype, "shape", ())
            outer = dims[: type.ndim]
            if len(outer) != type.ndim or dims[type.ndim :] not in ((), inner):
                raise self._refuse(f"the output {name!r} is {type}, its shape would be {dims}.", "output_dims={...}")
            found.append(tuple(int(n) for n in outer))
        return tuple(found)

    # ---- what JAX traces

    def _call(self, args: Sequence[jax.Array], form: Form) -> Any:
        """The outputs: one alone, or a list of the inputs changed in place, then the pure outputs."""
        changed = [args[self._arrays().index(k)] for k in self._changed()]
        specs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in changed]
        specs += [spec(type, s) for (_, type), s in zip(self.params[self.split :], form.outputs, strict=True)]
        made = called(HostCall(self, form, specs), args)
        return made[0] if len(made) == 1 else list(made)

    def _arrays(self) -> list[int]:
        """The positions of the arguments that JAX sees: all inputs but static numbers."""
        seen = range(self.split)
        return [k for k in seen if isinstance(self.fn, Kernel) or isinstance(self.params[k][1], Array)]

    def _changed(self) -> list[int]:
        """The positions of the inputs that are outputs too."""
        return [k for k, (name, _) in enumerate(self.params) if name in self.in_out]

    def evaluate(self, form: Form, values: Sequence[object], wanted: frozenset[int]) -> tuple[list[Any], list[array]]:
        """Run the function on these values. Returns (the leaves that get their gradients, the outputs)."""
        with ScopedDevice("cpu"):
            seen = zip(self._arrays(), values, strict=True)
            leaves = [leaf(self.params[k][1], value, at in wanted) for at, (k, value) in enumerate(seen)]
            given: dict[int, Any] = dict(form.static) | dict(zip(self._arrays(), leaves, strict=True))
            for k in self._changed():
                source, given[k] = given[k], zeros(given[k].shape, given[k].dtype)
                copy(given[k], source)
            rest = zip(self.params[self.split :], form.outputs, strict=True)
            made = [zeros(shape, type.dtype) for (_, type), shape in rest if isinstance(type, Array)]
            arguments = [*(given[k] for k in range(self.split)), *made]
            if form.grid is None:
                self.fn(*arguments)
            else:
                launch(self.fn, form.grid, arguments, device="cpu")
        return leaves, [*(given[k] for k in self._changed()), *made]


def check_side_effects(what: str, has_side_effect: bool) -> None:
    """Raises LaunchError [launch-keyword] for has_side_effect=True: JAX may call a function any number of times."""
    if has_side_effect:
        text = f"{what}(..., has_side_effect=True)."
        why = "The reverse pass calls it again, so its effects would come twice."
        raise LaunchError(text, slug="launch-keyword", why=why, instead="what it changes, as an output")


def jax_kernel(
    kernel: Kernel,
    num_outputs: int = 1,
    vmap_method: str = "broadcast_all",
    launch_dims: int | Sequence[int] | None = None,
    output_dims: int | Sequence[int] | dict[str, int | Sequence[int]] | None = None,
    in_out_argnames: Iterable[str] | None = None,
    module_preload_mode: object = None,
    enable_backward: bool = False,
    has_side_effect: bool = False,
    block_dim: int | None = None,
) -> Any:
    """A kernel as a function of JAX, for `jax.jit`, `grad`, `vjp`, `vmap`: `y = wb.jax_kernel(k)(x)`.

    The last `num_outputs` parameters are the outputs, arrays that begin with zeros; `in_out_argnames` are inputs that
    the kernel changes, counted as outputs too, which come first. No other input may be written.

    launch_dims  the grid; without it the shape of the first array. Also in a call.
    output_dims  shape of the outputs, or a dict of shapes by name; without it the grid. Also in a call.

    Gradients are exact for all float arguments, in-out arrays and numbers too, whatever `enable_backward` says (Warp
    has none without it). `vmap` launches once per element whatever `vmap_method` says. Runs on the CPU, through
    `jax.pure_callback`. Raises LaunchError [function], [dtype], and [launch-keyword] for has_side_effect=True.

    >>> import jax, jax.numpy as jnp
    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> f = jax.jit(wb.jax_kernel(square))
    >>> f(jnp.arange(3.0))
    Array([0., 1., 4.], dtype=float32)
    >>> jax.grad(lambda x: f(x).sum())(jnp.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    """
    check_side_effects("jax_kernel", has_side_effect)
    return JaxCall("jax_kernel", kernel, num_outputs, in_out_argnames, output_dims, launch_dims)


def jax_callable(
    func: Callable[..., Any],
    num_outputs: int = 1,
    graph_mode: object = None,
    vmap_method: str | None = "broadcast_all",
    output_dims: int | Sequence[int] | dict[str, int | Sequence[int]] | None = None,
    in_out_argnames: Iterable[str] | None = None,
    stage_in_argnames: Iterable[str] | None = None,
    stage_out_argnames: Iterable[str] | None = None,
    graph_cache_max: int | None = None,
    module_preload_mode: object = None,
    has_side_effect: bool = False,
) -> Any:
    """A Python function that launches kernels as a function of JAX: `y = wb.jax_callable(f)(x)`.

    Its parameters are annotated as those of a kernel; see `jax_kernel` for outputs and `in_out_argnames`. Numbers are
    static: it is called with them as they are. Without `output_dims` outputs have the shape of the first array.

    Gradients are exact (Warp has none): the reverse pass calls the function again, under a tape. So it must do the same
    each time it is called. Raises LaunchError [function], [dtype], and [launch-keyword] for what would change results.

    >>> import jax, jax.numpy as jnp
    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> def power4(x: wb.array[float], y: wb.array[float]):
    ...     half = wb.zeros_like(x)
    ...     wb.launch(square, x.size, [x], [half])
    ...     wb.launch(square, x.size, [half], [y])
    >>> f = wb.jax_callable(power4)
    >>> jax.grad(lambda x: f(x).sum())(jnp.arange(3.0))
    Array([ 0.,  4., 32.], dtype=float32)
    """
    check_side_effects("jax_callable", has_side_effect)
    if stage_in_argnames is not None:
        text = "jax_callable(..., stage_in_argnames=...)."
        why = "In Warp the other arrays keep the values of the first call."
        raise LaunchError(text, slug="launch-keyword", why=why, instead="wb.jax_callable(f)")
    return JaxCall("jax_callable", func, num_outputs, in_out_argnames, output_dims)

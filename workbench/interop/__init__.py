"""Other libraries, each in its own file, imported on demand: importing the workbench imports none of them.

The functions here only forward. A tensor that is passed straight to a launch is recognised without an import,
by asking whether its library has been loaded. Imports `launches` and `tapes`. To add a library: a file of its own, that
imports it, with the functions here that forward to it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import ports
from ..arrays.array import array
from ..arrays.dtypes import DTypeLike, dtype_of, scalar_in
from ..device import Device, DeviceLike, get_device
from ..errors import LaunchError
from ..kernels.program import Kernel
from ..kernels.types import Array, Scalar, Type, scalar_of

__all__ = [
    "JaxCallableGraphMode",
    "JaxModulePreloadMode",
    "clear_jax_callable_graph_cache",
    "device_from_jax",
    "device_from_torch",
    "device_to_jax",
    "device_to_torch",
    "dlpack",
    "dtype_from_jax",
    "dtype_from_torch",
    "dtype_to_jax",
    "dtype_to_torch",
    "from_dlpack",
    "from_jax",
    "from_torch",
    "jax",
    "jax_callable",
    "jax_kernel",
    "to_jax",
    "to_torch",
    "torch",
    "warp",
]
__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    """`wb.interop.torch`: the module is imported when it is first named."""
    if name in ("torch", "jax", "dlpack", "warp"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _bridge() -> Any:
    return importlib.import_module(".tensors", __name__)


def from_torch(
    t: object,
    dtype: object = None,
    requires_grad: bool | None = None,
    grad: object = None,
    return_ctype: bool = False,
    retain_grad: bool = False,
) -> array:
    """An array on the memory of a torch tensor: see `interop.torch.from_torch`.

    >>> import torch
    >>> t = torch.ones(3)
    >>> x = wb.from_torch(t)
    >>> _ = x.fill_(2.0)  # one memory
    >>> t
    tensor([2., 2., 2.])
    """
    if grad is not None or return_ctype:
        raise LaunchError(
            f"from_torch({'return_ctype' if return_ctype else 'grad'}=...) is not here.",
            slug="from-torch",
            why="Gradients are made by backward(), and go out through t.grad.",
            instead="wb.from_torch(t)",
        )
    made = _bridge().from_torch(t, dtype, requires_grad)
    made.retain_grad = retain_grad or made.retain_grad
    return made


def to_torch(a: array, requires_grad: bool = False) -> Any:
    """A torch tensor on the memory of an array: see `interop.torch.to_torch`.

    >>> wb.to_torch(wb.ones(2))
    tensor([1., 1.])
    """
    return _bridge().to_torch(a, requires_grad)


def dtype_from_torch(torch_dtype: object) -> Scalar:
    """The scalar type of a torch dtype. Raises LaunchError [dtype].

    >>> import torch
    >>> wb.dtype_from_torch(torch.float64)
    float64
    """
    return _bridge().dtype_from_torch(torch_dtype)


def dtype_to_torch(warp_dtype: object) -> Any:
    """The torch dtype of a scalar type, or of the components of a vector, matrix or quaternion type.

    >>> wb.dtype_to_torch(wb.vec3)
    torch.float32
    """
    return _bridge().dtype_to_torch(warp_dtype)


def device_from_torch(torch_device: object) -> Device:
    """The device that a torch device (or its name) stands for. Raises LaunchError [device].

    >>> wb.device_from_torch("cpu")
    cpu
    """
    return _bridge().device_from_torch(torch_device)


def device_to_torch(warp_device: DeviceLike) -> str:
    """The name by which torch knows a device.

    >>> wb.device_to_torch("cpu")
    'cpu'
    """
    return get_device(warp_device).name


def from_dlpack(source: object, dtype: object = None, requires_grad: bool = False, name: str | None = None) -> array:
    """An array on the memory of anything with `__dlpack__`: see `interop.dlpack.from_dlpack`.

    >>> data = np.arange(3, dtype=np.float32)
    >>> wb.from_dlpack(data).list() == [0, 1, 2]
    True
    """
    return importlib.import_module(".dlpack", __name__).from_dlpack(source, dtype, requires_grad, name)


def from_jax(jax_array: object, dtype: object = None, requires_grad: bool = False, copy: bool = False) -> array:
    """An array on the memory of a JAX array, for reading: see `interop.jax.from_jax`.

    >>> import jax.numpy as jnp
    >>> wb.from_jax(jnp.ones(2))
    array([1., 1.], dtype=float32, shape=(2,))
    """
    return importlib.import_module(".jax", __name__).from_jax(jax_array, dtype, requires_grad, copy)


def to_jax(warp_array: array, copy: bool = True) -> Any:
    """A JAX array of the values of an array: see `interop.jax.to_jax`.

    >>> wb.to_jax(wb.ones(2)).shape
    (2,)
    """
    return importlib.import_module(".jax", __name__).to_jax(warp_array, copy)


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
    return getattr(importlib.import_module("jax.numpy"), "bool_" if name == "bool" else name)


def device_from_jax(jax_device: Any) -> Device:
    """The device that a device of JAX stands for. Raises LaunchError [device].

    >>> import jax
    >>> wb.device_from_jax(jax.devices("cpu")[0])
    cpu
    """
    kind = "cpu" if jax_device.platform == "cpu" else f"cuda:{jax_device.local_hardware_id}"
    return get_device(kind)


def device_to_jax(warp_device: DeviceLike) -> Any:
    """The device of JAX that a device (or its name) stands for. Raises RuntimeError of JAX if it sees no such device.

    >>> wb.device_to_jax("cpu").platform
    'cpu'
    """
    ours, jax = get_device(warp_device), importlib.import_module("jax")
    if not ours.is_cuda:
        return jax.devices("cpu")[0]
    return next(d for d in jax.local_devices(backend="gpu") if d.local_hardware_id == ours.ordinal)


JaxCallableGraphMode = IntEnum("JaxCallableGraphMode", "NONE JAX WARP WARP_STAGED WARP_STAGED_EX", start=0)
JaxCallableGraphMode.__doc__ = """Warp's ways to capture a `jax_callable`. Without effect: it is called each time.

>>> wb.JaxCallableGraphMode.JAX.value
1
"""


JaxModulePreloadMode = IntEnum("JaxModulePreloadMode", "NONE CURRENT_DEVICE ALL_DEVICES", start=0)
JaxModulePreloadMode.__doc__ = """Warp's devices to preload on. Without effect: kernels compile at first launch.

>>> wb.JaxModulePreloadMode.NONE.value
0
"""


def clear_jax_callable_graph_cache(callable: object = None) -> None:
    """Nothing to do: functions of `jax_callable` keep no graphs.

    >>> wb.clear_jax_callable_graph_cache()
    """


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
    calls = importlib.import_module(".jax", __name__)
    calls.check_side_effects("jax_kernel", has_side_effect)
    return calls.KernelCall(kernel, num_outputs, tuple(in_out_argnames or ()), output_dims, launch_dims)


def jax_callable(
    func: Callable[..., Any],
    num_outputs: int = 1,
    graph_mode: object = JaxCallableGraphMode.JAX,
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
    calls = importlib.import_module(".jax", __name__)
    calls.check_side_effects("jax_callable", has_side_effect)
    if stage_in_argnames is not None:
        raise LaunchError(
            "jax_callable(..., stage_in_argnames=...).",
            slug="launch-keyword",
            why="In Warp the other arrays keep the values of the first call.",
            instead="wb.jax_callable(f)",
        )
    return calls.FunctionCall("jax_callable", func, num_outputs, tuple(in_out_argnames or ()), output_dims)


def is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _wrapped(value: object, type: Type) -> array | None:
    """For `ports.wrappers`: a tensor passed straight to a launch."""
    return _bridge().straight(value, type) if is_tensor(value) and isinstance(type, Array) else None


def _known(value: object) -> Iterator[array]:
    """For `ports.arrays_behind`: the arrays that launches have wrapped a tensor as."""
    return _bridge().wrappers(value) if is_tensor(value) else iter(())


ports.wrappers.append(_wrapped)
ports.arrays_behind.append(_known)

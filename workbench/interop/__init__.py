"""Other libraries, each in its own file, imported on demand: importing the workbench imports none of them.

The functions here only forward. A tensor that is passed straight to a launch is recognised without an import,
by asking whether its library has been loaded. Imports `launches` and `tapes`. To add a library: a file of its own, that
imports it, with the functions here that forward to it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

from ..arrays.array import array
from ..arrays.names import known
from ..device import Device
from ..errors import LaunchError
from ..kernels.types import Array, Scalar, Type
from ..launches.arguments import foreign


def __getattr__(name: str) -> Any:
    """`wb.interop.torch`: the module is imported when it is first named."""
    if name in ("torch", "jax", "dlpack", "warp"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _bridge() -> Any:
    return importlib.import_module(".torch", __name__)


def from_torch(
    t: Any, dtype: Any = None, requires_grad: bool | None = None, grad: Any = None, return_ctype: bool = False,
    retain_grad: bool = False,
) -> array:  # fmt: skip
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
            f"from_torch({'return_ctype' if return_ctype else 'grad'}=...) is not here.", slug="from-torch",
            why="Gradients are made by backward(), and go out through t.grad.", instead="wb.from_torch(t)",
        )  # fmt: skip
    made = _bridge().from_torch(t, dtype, requires_grad)
    made.retain_grad = retain_grad or made.retain_grad
    return made


def to_torch(a: array, requires_grad: bool = False) -> Any:
    """A torch tensor on the memory of an array: see `interop.torch.to_torch`.

    >>> wb.to_torch(wb.ones(2))
    tensor([1., 1.])
    """
    return _bridge().to_torch(a, requires_grad)


def dtype_from_torch(torch_dtype: Any) -> Scalar:
    """The scalar type of a torch dtype. Raises LaunchError [dtype].

    >>> import torch
    >>> wb.dtype_from_torch(torch.float64)
    float64
    """
    return _bridge().dtype_from_torch(torch_dtype)


def dtype_to_torch(warp_dtype: Any) -> Any:
    """The torch dtype of a scalar type, or of the components of a vector, matrix or quaternion type.

    >>> wb.dtype_to_torch(wb.vec3)
    torch.float32
    """
    return _bridge().dtype_to_torch(warp_dtype)


def device_from_torch(torch_device: Any) -> Device:
    """The device that a torch device (or its name) stands for. Raises LaunchError [device].

    >>> wb.device_from_torch("cpu")
    cpu
    """
    return _bridge().device_from_torch(torch_device)


def device_to_torch(warp_device: Any) -> str:
    """The name by which torch knows a device.

    >>> wb.device_to_torch("cpu")
    'cpu'
    """
    return _bridge().device_to_torch(warp_device)


def from_dlpack(source: Any, dtype: Any = None, requires_grad: bool = False, name: str | None = None) -> array:
    """An array on the memory of anything with `__dlpack__`: see `interop.dlpack.from_dlpack`.

    >>> data = np.arange(3, dtype=np.float32)
    >>> wb.from_dlpack(data).list() == [0, 1, 2]
    True
    """
    return importlib.import_module(".dlpack", __name__).from_dlpack(source, dtype, requires_grad, name)


def from_jax(jax_array: Any, dtype: Any = None, requires_grad: bool = False, copy: bool = False) -> array:
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


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _wrapped(value: Any, type: Type) -> array | None:
    """For `launch.foreign`: a tensor passed straight to a launch."""
    return _bridge().straight(value, type) if is_tensor(value) and isinstance(type, Array) else None


def _known(value: Any) -> Iterator[array]:
    """For `arrays.names.known`: what a tensor has been wrapped as by launches."""
    return _bridge().wrappers(value) if is_tensor(value) else iter(())


foreign.append(_wrapped)
known.append(_known)

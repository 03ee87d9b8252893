"""DLPack: memory of other libraries as arrays, without a copy. CuPy and NumPy come the same way.

An array gives itself away by `__dlpack__`, so `np.from_dlpack(a)` and `torch.from_dlpack(a)` need nothing from here.
Memory that its library holds for constant (JAX, read-only NumPy) is guarded: a write by the workbench is refused
before it happens. Whatever comes in or goes out is exposed, so tapes find writes behind their back.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..arrays.allocation import LOCK, Allocation, caller_where
from ..arrays.array import array
from ..arrays.dtypes import DTypeLike, dtype_of
from ..arrays.host_reads import sources_of
from ..arrays.read_values import HostRead
from ..arrays.span import AddressedMemory, Span
from ..device import get_device, xp
from ..errors import LaunchError, Where
from . import is_tensor
from .pure_calls import arrived

__all__ = ["from_dlpack"]
__dir__ = __all__.copy
CPU, CUDA = 1, 2  # DLPack's numbers for kinds of devices


def from_dlpack(source: Any, dtype: DTypeLike = None, requires_grad: bool = False, name: str | None = None) -> array:
    """An array on the memory of anything with `__dlpack__`: NumPy, CuPy, JAX arrays, torch tensors, arrays of ours.

    dtype  element type; for vec, mat and quat the trailing axes of the data are the components.

    Read-only data makes an array that kernels may read and not write. Torch tensors go through `from_torch`.
    Raises LaunchError [dlpack] for what has no DLPack form here, [dtype], [components], [layout]; [read-only] later,
    at a write to constant memory.

    >>> data = np.arange(3, dtype=np.float32)
    >>> wb.from_dlpack(data).list() == [0, 1, 2]
    True
    """
    if is_tensor(source):
        from .tensors import from_torch

        return from_torch(source, dtype, requires_grad or None)
    if not hasattr(source, "__dlpack__"):
        text = f"from_dlpack takes an object with __dlpack__, got {type(source).__name__}"
        raise LaunchError(text, slug="dlpack", instead="wb.array(data)")
    if isinstance(source, array) and dtype is None:
        made = source[...]  # the memory itself
        made.requires_grad = made.requires_grad or requires_grad
        return made
    whose = f"a {type(source).__module__.partition('.')[0]} array"
    return share(_opened(source), dtype, requires_grad, name, whose, sources=sources_of(source))


def _opened(data: Any) -> Any:
    """The data as a NumPy or CuPy array on the same memory."""
    kind, ordinal = data.__dlpack_device__()
    if int(kind) not in (CPU, CUDA):
        text = f"memory on DLPack device {int(kind)} cannot be shared"
        raise LaunchError(text, slug="dlpack", instead="wb.array(...)")
    try:
        module: Any = np if int(kind) == CPU else xp(get_device(f"cuda:{ordinal}"))
        return module.from_dlpack(data)
    except (BufferError, RuntimeError, TypeError) as error:
        text = f"this {type(data).__name__} cannot be shared: {error}"
        raise LaunchError(text, slug="dlpack", instead="wb.array(...) of a copy") from None


def share(
    data: Any,
    dtype: DTypeLike,
    requires_grad: bool,
    name: str | None,
    whose: str,
    constant: bool = False,
    sources: tuple[HostRead, ...] = (),
) -> array:
    """An array on the memory of a NumPy or CuPy array, guarded if that is read-only. `sources`: of its values."""
    constant = constant or (isinstance(data, np.ndarray) and not data.flags.writeable)
    if constant and isinstance(data, np.ndarray):
        address = data.__array_interface__["data"][0]  # as writable memory: `Constant` refuses the writes instead
        owner = AddressedMemory(address, data.shape, data.strides, data.itemsize, data)
        data = np.asarray(owner).view(data.dtype)
    made = array(data, dtype_of(data.dtype if dtype is None else dtype), copy=False, name=name)
    if constant:
        guard(made, Constant(made.span, whose))
        if isinstance(data, np.ndarray) and made.allocation.owner is data.base:
            made.allocation.bytes.flags.writeable = False  # nor does numpy() let anybody write
    made.requires_grad = made.requires_grad or requires_grad
    arrived(made, sources)
    return made


class Constant:
    """A watcher that refuses writes to memory of its allocation. Holds no reference to it.

    `until`: a weak reference to what another library holds as long as it uses the memory; None: for ever.
    """

    def __init__(self, span: Span, whose: str, until: weakref.ref | None = None):
        self.span, self.whose, self.until = span.weak(), whose, until

    @property
    def over(self) -> bool:
        return self.until is not None and self.until() is None

    deaf = False

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Refuse a write of ours to these bytes while they are in use. Raises LaunchError [read-only]."""
        if not self.over and self.span.overlaps(span) is not False:
            text = f"{what} would write to memory of {self.whose}, which is taken for constant there."
            where = where or caller_where()
            raise LaunchError(text, slug="read-only", where=where, instead="wb.clone(a), and write to that")

    def exposing(self, allocation: Allocation) -> None:
        """No-op: shared memory is exposed from the start."""


_guards: weakref.WeakKeyDictionary[Allocation, list[Constant]] = weakref.WeakKeyDictionary()


def guard(a: array, constant: Constant) -> None:
    """Make writes to the memory of `a` ask this guard from now on."""
    with LOCK:
        known = [g for g in _guards.get(a.allocation, ()) if not g.over]
        if constant.until is None and any(g.until is None and g.span == constant.span for g in known):
            return
        _guards[a.allocation] = [*known, constant]
        a.allocation.watch(constant)

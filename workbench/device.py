"""Devices of this machine: the CPU always, `cuda:0` ... where CuPy finds a GPU.

A device is named by a string everywhere in the API; `get_device` turns the name into the one object for it.
`xp(device)` is the array module of that device (NumPy or CuPy). CuPy is imported on first need, never at import.
Work for a GPU is queued on CuPy's current stream. A library that shares memory with us (torch) queues its own on a
current stream of its own: `catch_up` and `let_follow` put the two in order on the GPU, without waiting on the host.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from .config import config
from .errors import LaunchError


class Device:
    """One processor with its memory. There is one object per device; compares equal to its name."""

    __slots__ = ("name", "is_cuda", "ordinal", "is_cpu")

    def __init__(self, name: str, ordinal: int = -1):
        self.name, self.ordinal = name, ordinal
        self.is_cuda, self.is_cpu = ordinal >= 0, ordinal < 0

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and _full_name(other) == self.name)

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    @property
    def alias(self) -> str:
        return self.name

    @property
    def is_capturing(self) -> bool:
        """Always False: captures are of the whole program, see `capture`."""
        return False

    is_mempool_supported = is_mempool_enabled = False  # memory is NumPy's and CuPy's
    is_uva = True


DeviceLike = Device | str | None
XpArray = np.ndarray  # or one of CuPy, which has no types and the same interface: an array of `xp(device)`

cpu = Device("cpu")
_default: Device = cpu


def _full_name(name: str) -> str:
    return "cuda:0" if name == "cuda" else name


@cache
def cuda_count() -> int:
    """The number of GPUs that CuPy can use; 0 without CuPy, driver or GPU."""
    try:
        return int(importlib.import_module("cupy").cuda.runtime.getDeviceCount())
    except (ImportError, RuntimeError, OSError, AttributeError):  # no CuPy, no driver, one too old: all mean "no GPU"
        return 0


def is_cuda_available() -> bool:
    """True if there is a GPU that kernels can run on.

    >>> wb.is_cuda_available() in (True, False)
    True
    """
    return cuda_count() > 0


def get_devices() -> list[Device]:
    """Every device here, the CPU first.

    >>> wb.get_devices()[0]
    cpu
    """
    return [cpu, *(get_device(f"cuda:{i}") for i in range(cuda_count()))]


def get_device(ident: str | Device | None = None) -> Device:
    """The device of this name; the default device for None. Raises LaunchError for one that is not here.

    With `config.backend = "cuda"` the default is the first GPU.

    >>> wb.get_device("cpu")
    cpu
    """
    if ident is None:
        return get_device("cuda:0") if config.backend == "cuda" else _default
    if isinstance(ident, Device):
        return ident
    full = _full_name(str(ident))
    if full == "cpu":
        return cpu
    kind, _, number = full.partition(":")
    if kind == "cuda" and number.isdigit() and int(number) < cuda_count():
        return _gpu(int(number))
    here = ", ".join(["cpu", *(f"cuda:{i}" for i in range(cuda_count()))])
    raise LaunchError(f"there is no device {ident!r}", slug="device", why=f"Here: {here}.", instead='device="cpu"')


@cache
def _gpu(number: int) -> Device:
    return Device(f"cuda:{number}", number)


def set_device(ident: str | Device) -> None:
    """Make this the default device of arrays and launches.

    >>> wb.set_device("cpu")
    """
    global _default
    _default = get_device(ident)


@contextmanager
def ScopedDevice(device: str | Device) -> Iterator[Device]:
    """`with wb.ScopedDevice("cuda:0"):` arrays made inside live there unless they say otherwise.

    >>> with wb.ScopedDevice("cpu"):
    ...     wb.zeros(2).device
    cpu
    """
    before = _default
    set_device(device)
    try:
        yield _default
    finally:
        set_device(before)


def xp(device: Device) -> ModuleType:
    """The array module of the device: `numpy` or `cupy`."""
    return importlib.import_module("cupy") if device.is_cuda else np


followed: list[Callable[[int], int]] = []  # per library: the address of its current stream of a GPU, by ordinal


def _others(device: Device) -> Iterator[tuple[Any, Any]]:
    """Pairs of CuPy's current stream and each different current stream of another library."""
    if followed and device.is_cuda:
        cuda = xp(device).cuda
        mine = cuda.get_current_stream(device.ordinal)
        for address in {current(device.ordinal) for current in followed} - {mine.ptr}:
            yield mine, cuda.ExternalStream(address, device.ordinal)


def _behind(later: Any, earlier: Any, device: Device) -> None:
    event = xp(device).cuda.Event(disable_timing=True)
    earlier.record(event)
    later.wait_event(event)


def catch_up(device: Device) -> None:
    """Order later work of the workbench behind the work that libraries sharing its memory have queued so far."""
    for mine, other in _others(device):
        _behind(mine, other, device)


def let_follow(device: Device) -> None:
    """Order later work of libraries that share memory behind the work that the workbench has queued so far."""
    for mine, other in _others(device):
        _behind(other, mine, device)


reports: dict[Any, Callable[[], None]] = {}  # per code queued on a GPU: raises the error that it reported there, if any


def settle() -> None:
    """Raise the error of a launch that was queued on a GPU and has used an index outside its array."""
    while reports:
        reports.pop(next(iter(reports)))()


def on_host(data: Any) -> np.ndarray:
    """A NumPy or CuPy array as a NumPy array; from a GPU, a copy. Raises what `settle` does."""
    if not hasattr(data, "get"):
        return data
    made = movable(data).get().view(data.dtype).reshape(data.shape)
    settle()
    return made


def movable(data: Any) -> Any:
    """A NumPy or CuPy array itself; for records on a GPU, which CuPy does not copy, a view of their bytes."""
    if data.dtype.names is None or not hasattr(data, "get"):
        return data
    return type(data)((*data.shape, data.itemsize), np.uint8, data.data, (*data.strides, 1))


def synchronize(device: str | Device | None = None) -> None:
    """Wait until everything launched on the device has finished.

    Use it before measuring time on a GPU; on the CPU nothing is ever pending. Raises BoundsError for an index that left
    its array on a GPU since the last time.

    >>> wb.synchronize()
    """
    where = get_device(device)
    if where.is_cuda:
        with xp(where).cuda.Device(where.ordinal):
            xp(where).cuda.get_current_stream().synchronize()
        settle()

"""Streams and events: names for an order that work has here anyway; and timing a block.

All work of a device is queued in one order, which is one of the orders that a program with several streams allows.
So nothing waits in `wait_event`, and every result is that of a correctly synchronised program.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...device import Device, get_device, synchronize, xp

log = logging.getLogger("workbench")
LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
# What traces would hold: ScopedTimer takes them and makes none.
TIMING_KERNEL, TIMING_KERNEL_BUILTIN, TIMING_MEMCPY, TIMING_MEMSET, TIMING_GRAPH = 1, 2, 4, 8, 16
TIMING_ALL = 0xFFFFFFFF


class Stream:
    """A stream of a device. All streams of a device are one: work runs in the order in which it was launched.

    >>> stream = wb.Stream("cpu")
    >>> stream.device, stream.is_complete
    (cpu, True)
    """

    def __init__(self, device: Device | str | None = None, priority: int = 0, cuda_stream: Any = None, **_: object):
        self.device, self.priority = get_device(device), priority
        self.cached_event: DeviceEvent | None = None

    def __repr__(self) -> str:
        return f"<stream of {self.device}>"

    @property
    def is_complete(self) -> bool:
        """True if all work has finished; always on a CPU."""
        if not self.device.is_cuda:
            return True
        return bool(xp(self.device).cuda.get_current_stream(self.device.ordinal).done)

    @property
    def is_capturing(self) -> bool:
        """Always False: captures are of the whole program, see `capture`."""
        return False

    def record_event(self, event: DeviceEvent | None = None, external: bool = False) -> DeviceEvent:
        """Note the present moment of the device's work."""
        event = event or DeviceEvent(self.device, enable_timing=True)
        event.note(self.device)
        return event

    def wait_event(self, event: DeviceEvent, external: bool = False) -> None:
        """No-op: work runs in the order in which it was launched."""

    def wait_stream(self, other_stream: Stream, event: DeviceEvent | None = None, external: bool = False) -> None:
        """No-op: work runs in the order in which it was launched."""


class DeviceEvent:
    """A moment in the work of a device: `record_event` sets it, `get_event_elapsed_time` measures between two.

    >>> wb.record_event(wb.Event("cpu", enable_timing=True)).is_complete
    True
    """

    def __init__(
        self, device: Device | str | None = None, cuda_event: Any = None, enable_timing: bool = False, **_: object
    ):
        self.device, self.enable_timing = get_device(device), enable_timing
        self.moment: Any = None

    def note(self, device: Device) -> None:
        """Set the event to the present moment."""
        self.device = device
        if not device.is_cuda:
            self.moment = time.perf_counter()
            return
        cuda = xp(device).cuda
        self.moment = cuda.Event()
        self.moment.record(cuda.get_current_stream(device.ordinal))

    @property
    def is_complete(self) -> bool:
        """True if the device has reached it; always on a CPU."""
        return True if self.moment is None or not self.device.is_cuda else bool(self.moment.done)


Event = DeviceEvent  # the public name, as Warp has it


_streams: dict[Device, Stream] = {}


def get_stream(device: Device | str | None = None) -> Stream:
    """The stream of a device.

    >>> wb.get_stream("cpu") is wb.get_stream("cpu")
    True
    """
    where = get_device(device)
    return _streams.setdefault(where, Stream(where))


def set_stream(stream: Stream, device: Device | str | None = None, sync: bool = False) -> None:
    """Make this the stream that `get_stream` returns.

    >>> wb.set_stream(wb.Stream("cpu"))
    """
    _streams[stream.device if device is None else get_device(device)] = stream


@contextmanager
def ScopedStream(stream: Stream | None, sync_enter: bool = True, sync_exit: bool = False) -> Iterator[Stream | None]:
    """`with wb.ScopedStream(stream):` what is launched inside runs in that order, as everything does.

    >>> with wb.ScopedStream(wb.Stream("cpu")) as stream:
    ...     wb.get_stream("cpu") is stream
    True
    """
    if stream is None:
        yield None
        return
    before = get_stream(stream.device)
    set_stream(stream)
    try:
        yield stream
    finally:
        set_stream(before, stream.device)


def record_event(event: DeviceEvent | None = None, external: bool = False) -> DeviceEvent:
    """Note the present moment of the work of the event's device.

    >>> wb.record_event().is_complete
    True
    """
    return get_stream(event.device if event else None).record_event(event)


def synchronize_device(device: Device | str | None = None) -> None:
    """`synchronize` of one device.

    >>> wb.synchronize_device("cpu")
    """
    synchronize(device)


def synchronize_stream(stream_or_device: Stream | Device | str | None = None) -> None:
    """Wait until the work of the stream's device has finished.

    >>> wb.synchronize_stream(wb.get_stream("cpu"))
    """
    synchronize(stream_or_device.device if isinstance(stream_or_device, Stream) else stream_or_device)


def synchronize_event(event: DeviceEvent) -> None:
    """Wait until the device has come to the event.

    >>> wb.synchronize_event(wb.record_event())
    """
    if event.device.is_cuda and event.moment is not None:
        event.moment.synchronize()


def get_event_elapsed_time(start_event: DeviceEvent, end_event: DeviceEvent, synchronize: bool = True) -> float:
    """Milliseconds between two recorded events.

    >>> wb.get_event_elapsed_time(wb.record_event(), wb.record_event()) >= 0.0
    True
    """
    if synchronize:
        synchronize_event(end_event)
    if start_event.device.is_cuda:
        return float(xp(start_event.device).cuda.get_elapsed_time(start_event.moment, end_event.moment))
    return 1e3 * (end_event.moment - start_event.moment)


# ---- timing


class ScopedTimer:
    """`with wb.ScopedTimer("step") as timer:` the time of the block in milliseconds, in `timer.elapsed`.

    It is written to the logger "workbench" (level INFO), not to stdout. `dict` gets it in a list under `name`;
    `synchronize` waits for the GPU first and last. What asks for traces of single kernels is taken and ignored.

    >>> times = {}
    >>> with wb.ScopedTimer("step", dict=times) as timer:
    ...     pass
    >>> timer.elapsed == times["step"][0] >= 0.0
    True
    """

    def __init__(
        self,
        name: str,
        active: bool = True,
        print: bool = True,
        detailed: bool = False,
        dict: dict[str, list[float]] | None = None,
        use_nvtx: bool = False,
        color: Any = "rapids",
        synchronize: bool = False,
        cuda_filter: int = 0,
        report_func: Any = None,
        skip_tape: bool = False,
    ):
        self.name, self.active, self.print, self.dict, self.synchronize = name, active, print, dict, synchronize
        self.report_func = report_func
        self.start, self.elapsed, self.timing_results = 0.0, 0.0, []
        if dict is not None:
            dict.setdefault(name, [])

    def __enter__(self) -> ScopedTimer:
        if self.active:
            if self.synchronize:
                synchronize()
            self.start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.active:
            return
        if self.synchronize:
            synchronize()
        self.elapsed = 1e3 * (time.perf_counter() - self.start)
        if self.dict is not None:
            self.dict[self.name].append(self.elapsed)
        if self.report_func is not None:
            self.report_func(self.timing_results, "")
        if self.print:
            log.info("%s took %.2f ms", self.name, self.elapsed)

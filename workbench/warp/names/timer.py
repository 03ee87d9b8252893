"""Timing a block, under Warp's name."""

from __future__ import annotations

import logging
import time
from typing import Any

from ...device import synchronize

log = logging.getLogger("workbench")
LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
# What traces would hold: ScopedTimer takes them and makes none.
TIMING_KERNEL, TIMING_KERNEL_BUILTIN, TIMING_MEMCPY, TIMING_MEMSET, TIMING_GRAPH = 1, 2, 4, 8, 16
TIMING_ALL = 0xFFFFFFFF


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

"""CUDA graphs: consecutive work of a capture on one GPU, launched with one call.

The one idea: at the first replay the steps are called on a private stream that notes instead of running; what it noted
is launched, then and ever after, on CuPy's current stream. What the steps allocate on the way comes from memory that
nobody else gets before the graph is gone. Where CUDA refuses a step, the steps are called one by one, as they always
can be. Tested with a stand-in for CuPy; no GPU has run it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..device import catch_up, get_device, let_follow, xp

log = logging.getLogger("workbench")


class QueuedSteps:
    """Steps that only queue work on one GPU, to be run in order, between what torch did and what it will do."""

    def __init__(self, steps: Sequence[Callable[[], None]], ordinal: int):
        self.steps, self.ordinal = steps, ordinal
        self.held: list[Any] = []  # memory the graph works on that nothing else refers to
        self.graph: Any = None
        self.one_by_one = len(steps) == 1

    def __call__(self) -> None:
        device = get_device(f"cuda:{self.ordinal}")
        cupy = xp(device)
        with cupy.cuda.Device(self.ordinal):
            if self.graph is None and not self.one_by_one:
                self._make(cupy)
            catch_up(device)
            if self.graph is not None:
                self.graph.launch()
            else:
                for step in self.steps:
                    step()
            let_follow(device)

    def _make(self, cupy: Any) -> None:
        """Capture the steps as a CUDA graph. Nothing runs, so a refusal leaves nothing to undo."""
        pool, stream = cupy.cuda.MemoryPool(), cupy.cuda.Stream(non_blocking=True)

        def room(nbytes: int) -> Any:
            self.held.append(pool.malloc(nbytes))
            return self.held[-1]

        self.held.append(pool)
        try:
            with stream, cupy.cuda.using_allocator(room):
                stream.begin_capture()
                try:
                    for step in self.steps:
                        step()
                finally:
                    graph = stream.end_capture()
            self.graph = graph
        except (RuntimeError, MemoryError) as refusal:
            log.info("no CUDA graph of %d steps: %s", len(self.steps), refusal)
            self.one_by_one = True
            self.held.clear()

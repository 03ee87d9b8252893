"""The workloads on a GPU: the workbench, Warp, JAX and torch beside each other, compared with the hand-written C first.

    python -m tests.benchmarks.gpu [--workloads wave springs] [--sizes S M] [--rounds 5]

Each call ends when the device has finished. JAX's memory is not taken in advance. Prints a table of milliseconds,
forward and backward (forward alone in brackets), medians of interleaved rounds. A system that fails, or whose loss or
gradient differs from that of the C by more than 1e-3, is left out, with a line that says so.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import numpy as np

from . import mpm, nbody, springs, wave
from .compare import TOLERANCE, check
from .report import line
from .rounds import interleaved
from .workload import Launched, Size, System, Workload

WORKLOADS = {
    "wave": (wave.WORKLOAD, {**wave.WORKLOAD.sizes, "XX": Size(8192, 8)}),
    "springs": (springs.WORKLOAD, {**springs.WORKLOAD.sizes, "X": Size(2048, 8)}),
    "mpm": (mpm.WORKLOAD, dict(mpm.WORKLOAD.sizes)),
    "nbody": (nbody.WORKLOAD, dict(nbody.WORKLOAD.sizes)),
}
SYSTEMS = ("workbench", "workbench graph", "Warp", "Warp graph", "JAX", "torch")


def waits() -> dict[str, Callable[[], object]]:
    """By the first word of a system, what waits until the GPU has finished."""
    found: dict[str, Callable[[], object]] = {"JAX": lambda: None}  # its calls wait themselves
    import workbench

    found["workbench"] = lambda: workbench.synchronize("cuda:0")
    try:
        import warp

        found["Warp"] = warp.synchronize
    except ImportError:
        pass
    try:
        import torch

        torch.set_default_device("cuda")
        found["torch"] = torch.cuda.synchronize
    except ImportError:
        pass
    return found


def made(workload: Workload, size: Size, data: Any, names: list[str]) -> dict[str, System]:
    """The systems that agree with the hand-written C, which runs on the processor."""
    reference = workload.systems["c"](size, data)
    assert reference is not None
    reference.both()
    found = {}
    for name in names:
        try:
            system = workload.systems[name](size, data)
            if system is not None:
                system.both()
                check(name, system, reference, 10 * TOLERANCE["float32"])
                found[name] = system
        except Exception as error:
            print(f"{workload.name} {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return found


def row(workload: Workload, label: str, size: Size, rounds: int, wait: dict[str, Callable[[], object]]) -> str:
    """A line of the table."""
    data = workload.data(size, np.float32)
    systems = made(workload, size, data, [name for name in SYSTEMS if name.split()[0] in wait])

    def timed(kind: str) -> dict[str, list[float]]:
        def call(name: str) -> Callable[[], None]:
            run, done = getattr(systems[name], kind), wait[name.split()[0]]
            return lambda: (run(), done())[0]

        return interleaved({name: call(name) for name in systems}, rounds, 3, warm_up=2)

    both, forward = timed("both"), timed("forward")
    cells = [
        f"{1e3 * statistics.median(both[n]):.3g} ({1e3 * statistics.median(forward[n]):.3g})" if n in both else "-"
        for n in SYSTEMS
    ]
    return line([f"{workload.name} {label}", f"{workload.elements(size):,}", str(size.steps), *cells])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--sizes", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    Launched.device = "cuda:0"
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    packages = [f"{p.metadata['Name']} {p.version}" for p in importlib.metadata.distributions()]
    known = ("cupy", "jax ", "torch ", "warp-lang", "numpy ")
    when = time.strftime("%Y-%m-%d", time.gmtime())
    print(f"{name}, {when}, {', '.join(sorted(p for p in packages if p.startswith(known)))}")
    print(line(["", "elements", "steps", *SYSTEMS]))
    print(line(["---"] * (3 + len(SYSTEMS))), flush=True)
    wait = waits()
    for key in given.workloads:
        workload, sizes = WORKLOADS[key]
        for label, size in sizes.items():
            if not given.sizes or label in given.sizes:
                print(row(workload, label, size, given.rounds, wait), flush=True)
                gc.collect()


if __name__ == "__main__":
    main()

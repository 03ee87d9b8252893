"""The peak of memory of one system: a fresh process that imports, compiles and warms up on the tiny size, then runs.

What is reported is the largest resident set during making, one `forward` and one `both`, above what was resident after
the warm-up and with the data in place. Linux only: the mark is reset through /proc.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np

from .workload import Workload

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
ROOT = Path(__file__).resolve().parents[2]


def resident(field: str) -> float:
    """VmRSS (now) or VmHWM (the highest since the reset), in MB."""
    line = next(line for line in STATUS.read_text("utf-8").splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024 / 1e6


def peak(workload: str, size: str, system: str) -> float:
    """MB; raises RuntimeError where the process failed."""
    command = [sys.executable, "-m", "tests.benchmarks", "--child", workload, size, system]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{workload} {size}, {system}: {done.stderr}")
    return float(done.stdout.splitlines()[-1])


def used(workload: Workload, size: str, system: str) -> float:
    """MB, in this process, which ends after that."""
    make = workload.systems[system]
    warm = make(workload.tiny, workload.data(workload.tiny, np.float32))
    assert warm is not None, f"{system} is not here"
    warm.forward()
    warm.both()
    shape = workload.size(size)
    data = workload.data(shape, np.float32)
    gc.collect()
    RESET.write_text("5", "utf-8")
    before = resident("VmRSS")
    made = make(shape, data)
    assert made is not None
    made.forward()
    made.both()
    return resident("VmHWM") - before

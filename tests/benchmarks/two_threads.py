"""Two threads beside one, while other programs use the processors: captured steps of the wave workload.

    python -m tests.benchmarks.two_threads [--busy 1] [--sizes S M L] [--rounds 20]

`--busy` programs that never rest are started beside it, and ended after it. Each contender is a captured graph,
in interleaved rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

import numpy as np

import workbench

from . import wave
from .rounds import heading, interleaved, ratio

SHORT = 0.05  # seconds a turn


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.two_threads")
    parser.add_argument("--busy", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", default=["S", "M", "L"])
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    print(heading(f"Two threads beside one, {given.busy} busy loops beside, load average {os.getloadavg()[0]:.1f}"))
    print("| wave | ms on one thread, median (mean) | on two | ratio of medians within a round | of means |")
    print("|---|---|---|---|---|")
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
    try:
        for size in given.sizes:
            print(row(size, given.rounds), flush=True)
    finally:
        for program in beside:
            program.kill()


def beside_one(size: str, rounds: int, busy: int) -> float:
    """The ratio of the medians within a round, with so many busy loops beside."""
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        times = measured(size, rounds)
    finally:
        for program in beside:
            program.kill()
    return ratio(times["2"], times["1"])


def measured(size: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of forward and backward of one size, on one and two threads."""
    made = {}
    for threads in (1, 2):
        workbench.config.threads = threads
        shape = wave.WORKLOAD.size(size)
        made[threads] = wave.Fields(workbench, shape, wave.WORKLOAD.data(shape, np.float32), graph=True)
        made[threads].both()
    np.testing.assert_allclose(made[2].gradients()["p0"], made[1].gradients()["p0"], rtol=1e-4, atol=1e-7)
    return interleaved({f"{k}": m.both for k, m in made.items()}, rounds, max(1, int(SHORT / 0.01)))


def row(size: str, rounds: int) -> str:
    times = measured(size, rounds)
    cells = [f"{1e3 * statistics.median(t):.2f} ({1e3 * statistics.mean(t):.2f})" for t in times.values()]
    means = statistics.mean(times["2"]) / statistics.mean(times["1"])
    return f"| {size} | {' | '.join(cells)} | {ratio(times['2'], times['1']):.2f} | {means:.2f} |"


if __name__ == "__main__":
    main()

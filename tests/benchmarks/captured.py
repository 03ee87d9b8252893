"""The workloads as captured graphs beside hand-written C, on one thread each, in turns, in time of the processor.

    python -m tests.benchmarks.captured --rounds 15

The second column is of a process in which both C compilers do without AVX-512 (`-mno-avx512f`). Ratios are those of the
least times, for forward and backward (forward).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import numpy as np

import workbench as wb

from . import mpm, nbody, springs, wave
from .hand import leave_out
from .workload import Workload

SYSTEMS = ("workbench graph", "c 1 thread")
LONG = 0.03  # seconds of a turn


def ratios(workload: Workload, size: str, rounds: int) -> tuple[float, float]:
    """(forward and backward, forward) of the graph over those of C."""
    shape = workload.size(size)
    data = workload.data(shape, np.float32)
    systems = [workload.systems[name](shape, data) for name in SYSTEMS]
    found = []
    for call in ("both", "forward"):
        took = [np.inf, np.inf]
        repeat = 1
        for turn in range(rounds + 2):
            for k in (0, 1):
                begin = time.process_time()
                for _ in range(repeat):
                    getattr(systems[k], call)()
                spent = (time.process_time() - begin) / repeat
                took[k] = min(took[k], spent) if turn > 1 else np.inf
            if turn == 1:
                repeat = max(1, int(LONG / max(spent, 1e-6)))
        found.append(took[0] / took[1])
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.captured")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--without", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--sizes", nargs="+", default=["S", "M", "L"])
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    leave_out(given.without)
    wb.config.threads = 1
    if not given.json:
        rest = ["--rounds", str(given.rounds), "--sizes", *given.sizes, "--json"]
        columns = []
        for without in ([], ["--without", "avx512f"]):
            command = [sys.executable, "-m", "tests.benchmarks.captured", *rest, *without]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            columns.append(json.loads(done.stdout.strip().splitlines()[-1]))
        print("| graph / C | time | without AVX-512 |\n|---|---|---|")
        for name, first in columns[0].items():
            print(f"| {name} | " + " | ".join(f"{b:.2f} ({f:.2f})" for b, f in (first, columns[1][name])) + " |")
        return
    found = {}
    for module in (wave, springs, mpm, nbody):
        for size in given.sizes:
            if size in module.WORKLOAD.sizes:
                found[f"{module.WORKLOAD.name} {size}"] = ratios(module.WORKLOAD, size, given.rounds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""What testing indices costs: `check_bounds` True beside "affine", in turns on one thread, in time of the processor.

    python -m tests.benchmarks.bounds --rounds 60

Single kernels, then the workloads as captured graphs.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import workbench as wb

from . import mpm, nbody, springs as springs_workload, wave
from .workload import Workload

N = 200_000


@wb.kernel
def springs(p: wb.array[wb.vec3], a: wb.array[int], b: wb.array[int], f: wb.array[wb.vec3]):
    k = wb.tid()
    i = a[k]
    j = b[k]
    d = p[j] - p[i]
    g = d * ((wb.length(d) - 1.0) / wb.length(d))
    wb.atomic_add(f, i, g)
    wb.atomic_add(f, j, -g)


@wb.kernel
def gather(x: wb.array[float], a: wb.array[int], y: wb.array[float]):
    k = wb.tid()
    y[k] = x[a[k]] * 2.0 + 1.0


@wb.kernel
def periodic(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    m = x.shape[0]
    y[i] = x[(i + 1) % m] - 2.0 * x[i] + x[(i + m - 1) % m]


@wb.kernel
def components(v: wb.array[wb.vec3], y: wb.array[float]):
    i = wb.tid()
    s = 0.0
    for k in range(3):
        s += v[i][k] * v[i][k]
    y[i] = s


def best(kernel: wb.Kernel, args: list, rounds: int) -> dict[bool | str, float]:
    """The shortest of launches in turns: microseconds by what `check_bounds` was."""
    found: dict[bool | str, float] = {True: np.inf, "affine": np.inf}
    for checked in (*found, *found):
        wb.launch(kernel, N, args, check_bounds=checked)
    for _ in range(rounds):
        for checked in found:
            begin = time.process_time()
            wb.launch(kernel, N, args, check_bounds=checked)
            found[checked] = min(found[checked], 1e6 * (time.process_time() - begin))
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.bounds")
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    wb.config.threads = 1
    r = np.random.default_rng(0)
    p = wb.array(10 * r.random((N, 3)).astype(np.float32), dtype=wb.vec3)
    x, y, f = wb.array(r.random(N).astype(np.float32)), wb.zeros(N), wb.zeros(N, dtype=wb.vec3)
    a, b = (wb.array(r.integers(0, N, N).astype(np.int32)) for _ in range(2))
    print("| kernel, 200,000 threads | tested | not | ratio |\n|---|---|---|---|")
    for kernel, args in ((springs, [p, a, b, f]), (gather, [x, a, y]), (periodic, [x, y]), (components, [p, y])):
        took = best(kernel, args, rounds)
        tested, free = took[True], took["affine"]
        print(f"| {kernel.__name__} | {tested:.0f} us | {free:.0f} us | {tested / free:.2f} |")
    print("\n| captured | tested, both (forward) | not | ratio |\n|---|---|---|---|")
    for module in (wave, springs_workload, mpm, nbody):
        for size in module.WORKLOAD.sizes:
            print(row(module.WORKLOAD, size, max(3, rounds // 6)), flush=True)


def row(workload: Workload, size: str, rounds: int) -> str:
    """The line of one workload: milliseconds, the least of `rounds`, and their ratios."""
    shape = workload.size(size)
    data = workload.data(shape, np.float32)
    systems = {}
    for checked in (True, "affine"):
        wb.config.check_bounds = checked
        systems[checked] = workload.systems["workbench graph"](shape, data)
    took = {}
    for call in ("both", "forward"):
        for checked in (True, "affine") * rounds:
            wb.config.check_bounds = checked  # a replay asks for what it was captured with
            begin = time.process_time()
            for _ in range(3):
                getattr(systems[checked], call)()
            spent = 1e3 * (time.process_time() - begin) / 3
            took[call, checked] = min(took.get((call, checked), np.inf), spent)
    wb.config.check_bounds = True
    cells = [f"{took['both', c]:.2f} ({took['forward', c]:.2f})" for c in (True, "affine")]
    ratios = [took[call, True] / took[call, "affine"] for call in ("both", "forward")]
    return f"| {workload.name} {size} | {cells[0]} | {cells[1]} | {ratios[0]:.2f} ({ratios[1]:.2f}) |"


if __name__ == "__main__":
    main()

"""Without a compiler: threads together, as NumPy vectors, beside the same threads one after the other.

    python tests/benchmarks/interpreter.py [--threads 100 1000 10000] [--rounds 5]

A kernel of ten lines with a branch and a loop, and its adjoint, on the backend `numpy`. Both leave the same bits.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np
from rounds import heading, interleaved

import workbench as wb
from workbench.kernels.interpreter import lanes

REPEAT = 10  # launches in a row, as in a loop: the first finds the caches cold


@wb.kernel
def ten_lines(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    a = x[i]
    b = wb.sin(a) * 2.0 + a
    c = b * b - a
    if c > 0.5:
        c = c * 0.5
    for j in range(3):
        c = c + a * 0.1 * float(j)
    d = wb.exp(-c * c) + wb.sqrt(a * a + 1.0)
    y[i] = d * b + c


def measure(count: int, rounds: int) -> list[float]:
    """Milliseconds: forward together, one by one, and the ratio; the same of the adjoint."""
    x = wb.array(np.random.default_rng(0).normal(size=count).astype(np.float32), requires_grad=True)
    y, seed = wb.zeros(count), wb.ones(count)
    found: list[float] = []
    with wb.Tape() as tape:
        wb.launch(ten_lines, count, [x], [y])
    runs = {
        "forward": lambda: wb.launch(ten_lines, count, [x], [y], record_tape=False),
        "adjoint": lambda: tape.backward(grads={y: seed}),
    }
    for run in runs.values():

        def one_by_one(run=run) -> None:
            as_built = lanes.LaneProgram.run
            lanes.LaneProgram.run = lambda launch, args: lanes.run(launch.function, launch.dims, args)  # type: ignore[method-assign]
            try:
                run()
            finally:
                lanes.LaneProgram.run = as_built  # type: ignore[method-assign]

        turns = {"together": REPEAT, "one by one": 1}
        times = interleaved({"together": run, "one by one": one_by_one}, rounds, turns, warm_up=1)
        together, alone = (statistics.median(times[n]) * 1e3 for n in ("together", "one by one"))
        ratio = statistics.median(b / a for a, b in zip(times["together"], times["one by one"], strict=True))
        found += [together, alone, ratio]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    wb.config.backend = "numpy"
    print(heading("threads of a kernel of ten lines, in the interpreter; medians in milliseconds"))
    print("\n| threads | forward together | one by one | ratio | adjoint together | one by one | ratio |")
    print("|---|---|---|---|---|---|---|")
    for count in asked.threads:
        a, b, c, d, e, f = measure(count, asked.rounds)
        print(f"| {count:,} | {a:.2f} | {b:.1f} | {c:.0f} | {d:.2f} | {e:.1f} | {f:.0f} |")


if __name__ == "__main__":
    main()

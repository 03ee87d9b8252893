"""What it costs to look for races: the first backward of a launch whose stores are not proven apart, beside later ones.

    python tests/benchmarks/owner_mask.py [--threads 1048576] [--rounds 12]

`proven` stores to its own element, so there is nothing to look for; `scattered` stores to y[index[i]], which only the
data can tell apart. Both are differentiated with `config.race_guard` on and off. An event is looked at once: `again`
walks the same tape a second time. Milliseconds per backward, the recording not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from rounds import heading

import workbench as wb


@wb.kernel
def proven(x: wb.array(dtype=float), index: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def scattered(x: wb.array(dtype=float), index: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    y[index[i]] = x[i] * x[i]


@wb.kernel
def gathered(x: wb.array(dtype=float), index: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[index[i]] * x[index[i]]


class Case:
    """One kernel with its arrays."""

    def __init__(self, kernel: wb.Kernel, threads: int) -> None:
        rng = np.random.default_rng(0)
        self.kernel, self.threads = kernel, threads
        self.x = wb.array(rng.random(threads, np.float32), requires_grad=True)
        self.index = wb.array(rng.permutation(threads).astype(np.int32))
        self.y, self.seed = wb.zeros(threads, dtype=float), wb.ones(threads, dtype=float)

    def times(self) -> tuple[float, float, wb.Tape]:
        """Seconds of the first backward of a fresh tape, and of the second."""
        with wb.Tape() as tape:
            wb.launch(self.kernel, dim=self.threads, inputs=[self.x, self.index], outputs=[self.y])
        found = []
        for _ in range(2):
            start = time.perf_counter()
            tape.backward(grads={self.y: self.seed})
            found.append(time.perf_counter() - start)
        return *found, tape


def measure(threads: int, rounds: int) -> list[str]:
    """A table: rows are kernels, columns what was measured."""
    lines = ["| kernel | looked at | guard on | guard off | again | the mask |", "|---|---|---|---|---|---|"]
    for kernel in (proven, gathered, scattered):
        case = Case(kernel, threads)
        on, off, again = [], [], []
        for number in range(rounds + 2):
            for guard in (True, False) if number % 2 else (False, True):
                wb.config.race_guard = guard
                first, second, tape = case.times()
                if number >= 2:  # the first rounds compile
                    (on if guard else off).append(first)
                    again.append(second)
                if guard:
                    looked = tape.launches[0].reverse.races is not None
        middle = [1e3 * statistics.median(series) for series in (on, off, again)]
        mask = 1e3 * statistics.median(a - b for a, b in zip(on, off, strict=True))
        cells = " | ".join(f"{ms:.2f}" for ms in (*middle, mask))
        lines.append(f"| {kernel.__name__} | {'yes' if looked else 'no'} | {cells} |")
    wb.config.reset()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1 << 20)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    print(heading(f"The owner mask, {args.threads:,} threads, milliseconds per backward"))
    print("\n".join(measure(args.threads, args.rounds)))


if __name__ == "__main__":
    main()

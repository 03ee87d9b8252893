"""What can be asked of a tape of large arrays: seconds of the processor, and memory in units of one array.

python -m tests.benchmarks.large [--elements 100000000] [--only backward diagnose]

Two arrays of float32 and three launches, one of them in place, so that the tape keeps one copy. An array of 10^8
elements has 400 MB: about 5 GB are needed. `most` is the peak above what was there before, `stays` what stays of it.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import workbench as wb

from .memory import RESET, resident


@wb.kernel
def curve(x: wb.array[float], k: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] + k * x[i] * x[i]


@wb.kernel
def damp(x: wb.array[float], k: float):
    i = wb.tid()
    x[i] = x[i] - k * x[i] * x[i]


@wb.kernel
def total(x: wb.array[float], weight: float, loss: wb.array[float]):
    wb.atomic_add(loss, 0, weight * x[wb.tid()])


class Program:
    def __init__(self, n: int):
        self.n = n
        self.x, self.y, self.loss = wb.full(n, 0.5, requires_grad=True), wb.zeros(n), wb.zeros(1)
        self.y.zero_()

    def record(self) -> None:
        with wb.Tape() as self.tape:
            wb.launch(curve, self.n, inputs=[self.x, 0.1], outputs=[self.y])
            wb.launch(damp, self.n, inputs=[self.y, 0.1])
            wb.launch(total, self.n, inputs=[self.y, 1.0 / self.n], outputs=[self.loss])


ASKED: dict[str, Callable[[Program], Any]] = {
    "record": Program.record,
    "backward": lambda p: p.tape.backward(p.loss),
    "backward again": lambda p: p.tape.backward(p.loss),
    "memory": lambda p: repr(p.tape.memory()),
    "adjoint": lambda p: p.tape.adjoint(p.y),
    "ledger": lambda p: repr(p.tape.ledger(p.x, 7)),
    "microscope": lambda p: repr(p.tape.microscope(0, 7)),
    "diagnose": lambda p: repr(p.tape.diagnose()),
    "show": lambda p: p.tape.show()._repr_mimebundle_(),
    "seeds": lambda p: p.tape.seeds(p.loss)._repr_mimebundle_(),
    "jvp": lambda p: wb.jvp(p.tape, {p.x: wb.ones(p.n)}),
}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.large")
    parser.add_argument("--elements", type=lambda text: int(float(text)), default=10**8)
    parser.add_argument("--only", nargs="*", choices=ASKED, default=list(ASKED))
    given = parser.parse_args()
    small, large = Program(1000), Program(given.elements)
    unit = large.x.nbytes / 1e6
    print("| | s | most | stays |\n|---|---|---|---|")
    for name in ASKED:
        if name not in given.only and name != "record":
            continue
        ASKED[name](small)  # compiled, and imported
        gc.collect()
        RESET.write_text("5", "utf-8")
        before, start = resident("VmRSS"), time.process_time()
        ASKED[name](large)
        seconds, peak = time.process_time() - start, resident("VmHWM")
        most, stays = (peak - before) / unit, (resident("VmRSS") - before) / unit
        print(f"| {name} | {seconds:.2f} | {most:.1f} | {stays:.1f} |", flush=True)


if __name__ == "__main__":
    main()

"""What `tape.trust` costs: per program its launches, one gradient (forward and backward), `trust`, and the ratio.

python -m tests.benchmarks.trust_time [--rounds 5] [--backend c]

Times are of the processor, best of the rounds, with gradient and `trust` in turn: on a busy machine the ratios hold.
`first` is the first `trust` of a program, which compiles it in float64 and with a record of its decisions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import workbench as wb
from tests.support.trust_programs import CASES, bouncing, diffused, integrated, swing

PROGRAMS: dict[str, tuple[Callable, list[float]]] = {
    **{name: (CASES[name].loss, CASES[name].start) for name in ("staircase", "billiards, 6 collisions", "five bodies")},
    "three balls": (CASES["three balls"].loss, CASES["three balls"].start),
    "bounce, 120 steps": (bouncing(120, 0.01), [1.0]),
    "bounce, 1,000 steps": (bouncing(1000, 0.0012), [1.0]),
    "10,000 pendulums, 100 steps": (integrated(swing, 100, 0.02, 10_000), np.linspace(0.1, 1.0, 10_000).tolist()),
    "heat, 100,000 cells, 50 steps": (diffused(50), np.sin(np.arange(100_000) * 1e-3).tolist()),
    "logistic map, 60 steps": (CASES["logistic map"].loss, CASES["logistic map"].start),
    "two pendulums, 2,500 turns": (CASES["two pendulums, long"].loss, CASES["two pendulums, long"].start),
}


def recorded(loss: Callable, start: list[float]) -> tuple[wb.Tape, wb.array, wb.array]:
    x = wb.array(np.array(start, np.float32), requires_grad=True)
    with wb.Tape(keep="all") as tape:
        end = loss(x)
    return tape, end, x


def gradient(loss: Callable, start: list[float]) -> None:
    tape, end, _ = recorded(loss, start)
    tape.backward(end)


def spent(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return 1e3 * (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backend", default="c")
    chosen = parser.parse_args()
    wb.config.backend = chosen.backend
    print("| program | launches | gradient ms | backward ms | first ms | trust ms | gradients | replays | kind |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, (loss, start) in PROGRAMS.items():
        tape, end, x = recorded(loss, start)
        gradient(loss, start)
        first = spent(lambda tape=tape, end=end, x=x: tape.trust(end, x))
        grads, backs, asked = [], [], []
        for _ in range(chosen.rounds):
            grads.append(spent(lambda loss=loss, start=start: gradient(loss, start)))
            backs.append(spent(lambda tape=tape, end=end: tape.backward(end)))
            asked.append(spent(lambda tape=tape, end=end, x=x: tape.trust(end, x)))
        found, ratio = tape.trust(end, x), min(asked) / min(grads)
        times = " | ".join(f"{t:.3g}" for t in (min(grads), min(backs), first, min(asked), ratio))
        print(f"| {name} | {len(tape.launches)} | {times} | {found.replays} | {found.kind} |")


if __name__ == "__main__":
    main()

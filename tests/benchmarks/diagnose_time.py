"""Seconds of the processor that `tape.diagnose()` takes on a loop of launches with loops and comparisons in kernels.

python tests/benchmarks/diagnose_time.py [--launches 250] [--cells 64] [--turns 16] [--backend c] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time

import numpy as np

import workbench as wb


@wb.kernel
def collide(x: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    v = x[i]
    for k in range(turns):
        d = v - 0.25 * float(k)
        if d < 0.0:
            v = v + 0.001 * d * d
        v = wb.max(v, -100.0) * 0.999
    y[i] = v


def tape_of(launches: int, cells: int, turns: int) -> tuple[wb.Tape, wb.array]:
    """A time loop with a fresh array for each step."""
    x = wb.array(np.linspace(0.1, 2.0, cells).astype(np.float32), requires_grad=True)
    with wb.Tape() as tape:
        for _ in range(launches):
            y = wb.zeros(cells)
            wb.launch(collide, dim=cells, inputs=[x, turns], outputs=[y])
            x = y
    return tape, x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("launches", 250), ("cells", 64), ("turns", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--backend", default="c")
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    wb.config.backend = chosen.backend
    tape, y = tape_of(chosen.launches, chosen.cells, chosen.turns)
    seed = {y: wb.ones(chosen.cells)}
    begin = time.process_time()
    tape.backward(grads=seed)
    print(f"backward: {time.process_time() - begin:.2f} s")
    profile = cProfile.Profile()
    begin = time.process_time()
    found = profile.runcall(tape.diagnose) if chosen.profile else tape.diagnose()
    print(f"{len(tape.events)} events: {time.process_time() - begin:.2f} s, {[f.slug for f in found]}")
    if chosen.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(25)


if __name__ == "__main__":
    main()

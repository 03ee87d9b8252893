"""Time loops of stencils: captured, beside JAX's `scan`, C by hand, and the memory.

    python -m tests.benchmarks.time_loops [--rounds 12] [--threads 1] [--rows sine-Gordon wave]

Sine-Gordon on a line, and the wave of `wave.py`: nanoseconds per cell and step, forward and backward (forward), the
best of all rounds, each of which calls every contender once. Times are those of the process, all of its threads: on a
machine that others use too, what the clock shows says little; `--clock` takes it all the same. The memory's limit is
what it takes to fill an array of 128 MB that is in no cache, per float: each step must at least write its field.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import workbench as wb
from workbench.kernels.compile import c_compiler

from . import wave
from .hand import EXACT
from .rounds import cpu_model
from .workload import Size

STREAM = """
void fill(float *restrict a, long n) { for (long i = 0; i < n; ++i) a[i] = 1.0f; }
void triad(float *restrict a, const float *restrict b, const float *restrict c, long n) {
    for (long i = 0; i < n; ++i) a[i] = b[i] + 3.0f * c[i];
}
"""
K, D = 0.25, 0.01
LINES = {
    "1,000": Size(1_000, 1_000),
    "10,000": Size(10_000, 1_000),
    "100,000": Size(100_000, 200),
    "1,000,000": Size(1_000_000, 40),
}


@wb.kernel
def swing(up: wb.array[float], u: wb.array[float], out: wb.array[float], k: float, d: float):
    i = wb.tid()
    if i > 0 and i < u.shape[0] - 1:
        out[i] = 2.0 * u[i] - up[i] + k * (u[i - 1] - 2.0 * u[i] + u[i + 1]) - d * wb.sin(u[i])


@wb.kernel
def energy(u: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(e, 0, u[i] * u[i])


def start(n: int) -> np.ndarray:
    return (2.0 * np.exp(-(((np.arange(n) - n / 2) / 50.0) ** 2))).astype(np.float32)


class Line:
    """Sine-Gordon as launches, captured."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.u0 = wb.array(start(size.n), requires_grad=True)
        self.fields = [self.u0, self.u0, *(wb.zeros(size.n) for _ in range(size.steps))]
        self.e, self.tape = wb.zeros(1), wb.Tape()
        graphs = self.capture(self.run), self.capture(self.walk)
        self.forward, self.both = (g.replay for g in graphs)

    def capture(self, call: Callable[[], None]) -> Any:
        call()
        with wb.ScopedCapture() as captured:
            call()
        return captured.graph

    def run(self) -> None:
        self.e.zero_()
        for t in range(self.size.steps):
            wb.launch(swing, self.size.n, [*self.fields[t : t + 3], K, D])
        wb.launch(energy, self.size.n, [self.fields[-1], self.e])

    def walk(self) -> None:
        self.tape.reset()
        self.u0.grad.zero_()
        with self.tape:
            self.run()
        self.tape.backward(self.e)

    def gradient(self) -> np.ndarray:
        return self.u0.grad.numpy()


class Scan:
    """The same with JAX."""

    def __init__(self, size: Size) -> None:
        import jax

        def loss(p0: Any) -> Any:
            def step(state: Any, _: None) -> Any:
                up, u = state
                inner = u[1:-1]
                new = 2 * inner - up[1:-1] + K * (u[:-2] - 2 * inner + u[2:]) - D * jax.numpy.sin(inner)
                return (u, jax.numpy.pad(new, 1)), None

            (_, last), _ = jax.lax.scan(step, (p0, p0), None, length=size.steps)
            return jax.numpy.sum(last * last)

        value, slope, p0 = jax.jit(loss), jax.jit(jax.value_and_grad(loss)), jax.numpy.asarray(start(size.n))
        self.forward = lambda: value(p0).block_until_ready()
        self.both = lambda: jax.block_until_ready(slope(p0))

    def gradient(self) -> np.ndarray:
        return np.asarray(self.both()[1])


def lines(size: Size) -> dict[str, Any]:
    made = {"captured": Line(size), "JAX": Scan(size)}
    for one in made.values():
        one.both()
    ours, theirs = (m.gradient() for m in made.values())
    np.testing.assert_allclose(ours, theirs, atol=2e-3 * np.abs(theirs).max())
    return made


class Turns(wave.Fields):
    """The wave on three fields that take turns: no history is written."""

    def prepare(self, data: Any) -> None:
        super().prepare(data)
        first, three = self.fields[0], self.fields[2:5]
        self.fields = [first, first, *(three[t % 3] for t in range(self.size.steps))]


def waves(size: Size, threads: int, made_of: type[wave.Fields] = wave.Fields) -> dict[str, Any]:
    import jax

    data = wave.data(size, np.float32)
    made = {
        "captured": made_of(wb, size, data, True),
        "JAX": wave.Jax(jax, size, data),
        "C": wave.Hand(size, data, EXACT, threads),
    }
    for one in made.values():
        one.both()
    ours, theirs, by_hand = (m.gradients()["p0"] for m in made.values())
    for found in (theirs, by_hand):
        np.testing.assert_allclose(ours, found, atol=1e-4 * np.abs(found).max())
    return made


def best(runs: dict[Any, Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> dict[Any, float]:
    found: dict[Any, float] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(0.005)
            begun = clock()
            run()
            found[name] = min(found.get(name, np.inf), clock() - begun)
    return found


def memory(rounds: int, clock: Callable[[], float]) -> None:
    library, n = ctypes.CDLL(str(c_compiler.build(STREAM))), 1 << 25
    arrays = [np.ones(n, np.float32) for _ in range(3)]
    at = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
    found = best(
        {"fill": lambda: library.fill(at[0], ctypes.c_long(n)), "triad": lambda: library.triad(*at, ctypes.c_long(n))},
        rounds,
        clock,
    )
    fill, triad = (1e9 * s / n for s in found.values())
    print(f"Memory, one thread: fill {fill:.2f} ns a float ({4 / fill:.1f} GB/s), triad {triad:.2f} ({12 / triad:.1f})")


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.time_loops")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", nargs="+", default=["sine-Gordon", "wave"])
    parser.add_argument("--clock", action="store_true")
    given = parser.parse_args()
    wb.config.backend, wb.config.threads = "c", given.threads
    clock = time.perf_counter if given.clock else time.process_time
    print(f"{cpu_model()}, {time.strftime('%Y-%m-%d', time.gmtime())}: {' '.join(sys.argv[1:])}")
    memory(given.rounds, clock)
    names = ("captured", "C", "JAX")
    print(f"| ns per cell and step | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    rows: list[tuple[str, Size, Callable[[], dict[str, Any]], int]] = []
    if "sine-Gordon" in given.rows:
        rows += [(f"sine-Gordon {n}", s, lambda s=s: lines(s), s.n) for n, s in LINES.items()]
    if "wave" in given.rows:
        sizes = wave.WORKLOAD.sizes
        rows += [(f"wave {n}", s, lambda s=s: waves(s, given.threads), s.n**2) for n, s in sizes.items()]
        rows += [
            (f"wave {n}, three fields", s, lambda s=s: waves(s, given.threads, Turns), s.n**2)
            for n, s in sizes.items()
            if n in "LX"
        ]
    for title, size, make, cells in rows:
        made = make()
        runs = {(name, way): getattr(one, way) for name, one in made.items() for way in ("both", "forward")}
        found, each = best(runs, given.rounds, clock), 1e9 / cells / size.steps
        parts = [
            f"{found[n, 'both'] * each:.2f} ({found[n, 'forward'] * each:.2f})" if n in made else "-" for n in names
        ]
        print(f"| {title}, {size.steps} steps | {' | '.join(parts)} |", flush=True)
        del made, runs
        gc.collect()


if __name__ == "__main__":
    main()

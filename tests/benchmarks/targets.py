"""`python -m tests.benchmarks --check`: the figures that are wanted, measured now, and which of them fall short.

Each ratio is measured beside what it is compared with, in the same run. Absolute times are the best of many turns; what
others do on the machine makes them larger, so the load average is printed with them.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

import workbench

from . import import_time, memory, mpm, nbody, springs, time_loops, two_threads, wave
from .report import line, load
from .rounds import interleaved, ratio

sys.path.insert(0, str(Path(__file__).parent))  # the following are scripts

import compile_large  # noqa: E402
import compile_latency  # noqa: E402
import corpus_latency  # noqa: E402
import interpreter  # noqa: E402
import launch_overhead  # noqa: E402
from peers import peers  # noqa: E402

LAUNCHES, ROUNDS = 200, 15


class Figure(NamedTuple):
    name: str
    wanted: float
    now: float
    at_least: bool = False

    @property
    def short(self) -> bool:
        return self.now < self.wanted if self.at_least else self.now > self.wanted

    def row(self) -> str:
        sign = ">=" if self.at_least else "<="
        return line([self.name, f"{sign} {self.wanted:g}", f"{self.now:.3g}", "short" if self.short else "reached"])


def small_workloads() -> Iterator[Figure]:
    """Plain launches beside hand-written C, one thread each, as grids so small are not shared by either."""
    for module in (wave, springs, nbody):
        work, (threads, workbench.config.threads) = module.WORKLOAD, (workbench.config.threads, 1)
        shape = work.size("S")
        data = work.data(shape, np.float32)
        made = {name: work.systems[name](shape, data) for name in ("workbench", "c 1 thread")}
        times = interleaved({name: m.both for name, m in made.items() if m is not None}, ROUNDS, 2)
        workbench.config.threads = threads
        yield Figure(f"{work.name} S, plain launches, time / C", 2.5, ratio(times["workbench"], times["c 1 thread"]))


def launches() -> Iterator[Figure]:
    """Launches of a chain beside Warp's."""
    apis = peers(("warp", "workbench"))
    chains = {name: launch_overhead.Chain(api, LAUNCHES) for name, api in apis.items()}
    fresh = {name: launch_overhead.Chain(api, LAUNCHES) for name, api in apis.items()}
    runs: dict[str, Callable[[], None]] = {}
    for name, chain in chains.items():
        chain.check()
        runs |= {f"turn {name}": chain.turn, f"backward {name}": chain.backward, f"plain {name}": chain.plain}
        new = fresh[name]
        runs |= {f"make {name}": new.make, f"fresh {name}": new.fresh, f"fresh turn {name}": new.fresh_turn}
    times = interleaved(runs, ROUNDS, launch_overhead.REPEAT)

    def each(way: str, less: str = "") -> dict[str, float]:
        return {n: 1e6 / LAUNCHES * (min(times[f"{way} {n}"]) - min(times.get(f"{less} {n}", [0]))) for n in apis}

    rows = (
        ("a launch without a tape", each("plain"), 0.6),
        ("a recorded launch in a loop", each("turn", "backward"), 0.8),
        ("its backward", each("backward"), 0.5),
        ("a recorded launch of new arrays", each("fresh", "make"), 1.0),
        ("a turn with new arrays", each("fresh turn"), 0.8),
    )
    for name, taken, wanted in rows:
        text = f"{name}, time / Warp ({taken['workbench']:.1f} us)"
        yield Figure(text, wanted, taken["workbench"] / taken["warp"] if "warp" in taken else np.inf)


def stencils() -> Iterator[Figure]:
    """Processor time of captured time loops beside JAX, and beside C launch by launch."""
    rows = {f"sine-Gordon {n}": (time_loops.lines, s, "JAX") for n, s in time_loops.LINES.items()}
    rows |= {f"wave {n}": (lambda s: time_loops.waves(s, 1), wave.WORKLOAD.sizes[n], "C") for n in "LX"}
    for name, (make, size, other) in rows.items():
        made = make(size)
        runs = {(who, way): getattr(made[who], way) for who in ("captured", other) for way in ("both", "forward")}
        found = time_loops.best(runs, ROUNDS // 2, time_loops.time.process_time)
        for way in ("both", "forward"):
            yield Figure(f"{name}, {way}, time / {other}", 1, found["captured", way] / found[other, way])


def threads() -> Iterator[Figure]:
    """Two threads beside one, with another program on a processor."""
    for size in "SML":
        text = two_threads.beside_one(size, ROUNDS, busy=1)
        yield Figure(f"wave {size} on two threads / on one, one busy loop beside", 1, text)


def first_gradients(**variables: str) -> tuple[float, float]:
    """Milliseconds to the gradient of ten lines, with an empty cache and with what that left there: best of some."""
    runs: list[tuple[float, ...]] = []
    for _ in range(ROUNDS // 2):
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = (compile_latency.measured("workbench", cache, **variables)["first"] for _ in range(2))
            runs.append((1e3 * cold, 1e3 * warm))
    return min(cold for cold, _ in runs), min(warm for _, warm in runs)


def first_minute() -> Iterator[Figure]:
    times = import_time.medians(ROUNDS)
    yield Figure("import / import warp, by the clock", 0.5, times["workbench"][1] / times["warp"][1])
    cold, warm = first_gradients()
    yield Figure("ten lines cold, ms", 60, cold)
    yield Figure("ten lines warm, ms", 8, warm)
    if importlib.util.find_spec("ziglang") is not None:
        with tempfile.TemporaryDirectory() as empty:
            yield Figure("ten lines cold with ziglang, ms", 80, first_gradients(CC="", PATH=empty)[0])
    with tempfile.TemporaryDirectory() as cache:
        each = statistics.mean(corpus_latency.measured(cache))
    yield Figure("258 kernels of the corpus cold, s", 8, 258 * each / 1e3)
    yield Figure("2,000 lines cold, s", 10, compile_large.measured("workbench", 2000)["wall"])


def without_compiler() -> Iterator[Figure]:
    backend, workbench.config.backend = workbench.config.backend, "numpy"
    _, _, forward, _, _, adjoint = interpreter.measure(1000, 3)
    workbench.config.backend = backend
    yield Figure("interpreter, 1,000 threads together, times faster", 50, forward, at_least=True)
    yield Figure("its adjoint", 50, adjoint, at_least=True)


def memory_kept() -> Iterator[Figure]:
    """Peak memory beside hand-written C, which keeps what its adjoint must."""
    for module in (wave, springs, mpm):
        name = module.WORKLOAD.name
        peaks = [memory.peak(name, "M", system) for system in ("workbench", "c")]
        yield Figure(f"{name} M, peak memory / C", 1.2, peaks[0] / peaks[1])


PARTS: Mapping[str, Callable[[], Iterator[Figure]]] = {
    "small": small_workloads,
    "launches": launches,
    "stencils": stencils,
    "threads": threads,
    "minute": first_minute,
    "interpreter": without_compiler,
    "memory": memory_kept,
}


def main(parts: list[str]) -> None:
    """Measure these parts, all if there are none, and print the figures; those that fall short once more at the end."""
    print(f"Load average {load()}.\n")
    print(line(["figure", "wanted", "now", ""]), line(["---"] * 4), sep="\n")
    short = []
    for name in parts or PARTS:
        for figure in PARTS[name]():
            print(figure.row(), flush=True)
            short += [figure.name] * figure.short
    print(f"\n{len(short)} fall short: {'; '.join(short)}. Load average {load()}." if short else "\nAll are reached.")

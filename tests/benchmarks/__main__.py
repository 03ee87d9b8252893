"""Every workload on every system, forward and backward: what is compared first, timed then, and reported.

    python -m tests.benchmarks [--workloads wave springs] [--sizes S M] [--systems workbench Warp] [--rounds 20]
                               [--memory] [--write] [--without avx512f]
    python -m tests.benchmarks --check [small launches stencils threads minute interpreter memory]

Per workload and size all systems are made once, their losses and gradients compared with "c", and all forwards and
backwards interleaved in rounds. `--write` puts the report of this run into RESULTS.md, with plot.png. `--without` has
hand-written and generated C compiled as for a processor without these instructions. `--check` measures the figures of
`targets.py` instead.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
from tqdm import tqdm

from . import memory, mpm, nbody, report, springs, wave
from .compare import TOLERANCE, check
from .hand import THREADS, leave_out
from .peers import peer
from .report import Row
from .rounds import interleaved
from .workload import System, Workload

WORKLOADS = {module.WORKLOAD.name: module.WORKLOAD for module in (wave, springs, mpm, nbody)}
ROUNDS = 20
LONG = 2.0  # seconds a call: who takes longer takes part in a quarter of the rounds
SHORT = 0.02  # seconds a turn: who takes less is called several times in a row


def main() -> None:
    given, before = arguments(), report.load()
    two_threads()
    if given.check is not None:
        from . import targets  # imports JAX

        targets.main(given.check)
        return
    leave_out(given.without)
    if given.child:
        name, size, system = given.child
        print(memory.used(WORKLOADS[name], size, system))
        return
    workloads = [WORKLOADS[name] for name in given.workloads]
    rows = [measured(w, s, given) for w in workloads for s in (*w.sizes, "tiny") if s in (given.sizes or w.sizes)]
    print(report.summary(rows))
    if given.write:
        report.write(report.section(rows, " ".join(["python -m tests.benchmarks", *sys.argv[1:]]), before), rows)


def two_threads() -> None:
    """As many for everybody as the hand-written C has. Before JAX and torch are imported, which look at it once."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    if workbench := peer("workbench"):
        workbench.config.threads = THREADS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.benchmarks")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--sizes", nargs="+", help="S M L X, or tiny; all but tiny unless said")
    parser.add_argument("--systems", nargs="+", help='beside "c"; all unless said')
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--memory", action="store_true", help="run each system in a process of its own, for its peak")
    parser.add_argument("--without", nargs="+", default=[], metavar="FEATURE", help="as avx512f")
    parser.add_argument("--write", action="store_true", help="rewrite the section of RESULTS.md and plot.png")
    parser.add_argument("--check", nargs="*", metavar="PART", help="the wanted figures, and which fall short")
    parser.add_argument("--child", nargs=3, metavar=("WORKLOAD", "SIZE", "SYSTEM"), help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(workload: Workload, size: str, given: argparse.Namespace) -> Row:
    """One row of the report, printed as a table at once."""
    shape = workload.size(size)
    data = workload.data(shape, np.float32)
    wanted = [n for n in workload.systems if n == "c" or not given.systems or n in given.systems]
    row = Row(workload.name, size, workload.elements(shape), shape.steps)
    systems: dict[str, System] = {}
    for name in tqdm(wanted, desc=f"{row.name}: made and compared", leave=False):
        system = workload.systems[name](shape, data)
        if system is None:
            row.missing.append(name)
            continue
        system.both()
        check(f"{row.name}, {name}", system, systems.get("c", system), TOLERANCE["float32"])
        systems[name] = system
    row.both, row.forward = raced(row.name, systems, given.rounds)
    if given.memory:
        row.peaks = {name: memory.peak(workload.name, size, name) for name in tqdm(systems, desc="memory", leave=False)}
    print(row.table(), flush=True)
    return row


def raced(title: str, systems: dict[str, System], rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of `both` and of `forward`, by system."""
    contenders: dict[str, Callable[[], None]] = {f"{n} both": s.both for n, s in systems.items()}
    contenders |= {f"{n} forward": s.forward for n, s in systems.items()}
    once = {name: shortest(run) for name, run in contenders.items()}
    turns = {name: rounds if seconds < LONG else max(2, rounds // 4) for name, seconds in once.items()}
    repeat = {name: max(1, int(SHORT / seconds)) for name, seconds in once.items()}
    gc.collect()
    gc.freeze()  # what lives now lives on: collections between turns need not look at it
    with tqdm(total=sum(turns.values()), desc=f"{title}: timed", leave=False) as bar:
        times = interleaved(contenders, turns, repeat, warm_up=0, tick=bar.update)
    gc.unfreeze()
    return tuple({n: times[f"{n} {kind}"] for n in systems} for kind in ("both", "forward"))  # type: ignore[return-value]


def shortest(run: Callable[[], None], calls: Sequence[int] = range(3)) -> float:
    """A warm-up, and about how long a call takes; the first may compile."""
    best = float("inf")
    for _ in calls:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        if best > LONG:
            break
    return best


if __name__ == "__main__":
    main()

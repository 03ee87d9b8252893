"""Interleaved rounds: every contender once per round, so that a busy neighbour slows all of them alike.

Reported are medians over rounds and, for ratios, the median of the ratios *within* a round: what the machine did
to one round cancels. Nothing here is collected by pytest.
"""

from __future__ import annotations

import gc
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

Contender = Callable[[], None]
WARM_UP = 5
SETTLE = 0.02  # seconds: OpenMP's threads spin for a while after their last loop, beside whoever comes next


def interleaved(
    contenders: dict[str, Contender],
    rounds: int | Mapping[str, int],
    repeat: int | Mapping[str, int],
    warm_up: int = WARM_UP,
    tick: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds per call of each contender in each round; a round calls each of them `repeat` times in a row.

    Where `rounds` differ, a contender takes part in the first of them only: the n-th entries of all belong together.
    `tick` is called after each turn.
    """
    for run in contenders.values():
        for _ in range(warm_up):
            run()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    of = {name: rounds if isinstance(rounds, int) else rounds[name] for name in contenders}
    for number in range(max(of.values())):
        names = [name for name in contenders if number < of[name]]
        # The order turns from round to round, so that nobody always runs on a neighbour's warm cache.
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(timed(contenders[name], repeat if isinstance(repeat, int) else repeat[name]))
            tick()
    return times


def timed(run: Contender, repeat: int) -> float:
    gc.collect()
    time.sleep(SETTLE)
    start = time.perf_counter()
    for _ in range(repeat):
        run()
    return (time.perf_counter() - start) / repeat


def ratio(times: list[float], against: list[float]) -> float:
    """The median ratio within a round, over the rounds in which both took part."""
    return statistics.median(a / b for a, b in zip(times, against))


def table(times: dict[str, list[float]], against: str, scale: float, unit: str) -> str:
    """Median, best and spread of each contender, and the median ratio to `against` within a round."""
    lines = [f"| | median {unit} | best {unit} | spread | time / {against} |", "|---|---|---|---|---|"]
    for name, series in times.items():
        ninth = sorted(series)[int(0.9 * (len(series) - 1))]
        middle, best = statistics.median(series), min(series)
        cells = f"{middle * scale:.3f} | {best * scale:.3f} | {ninth / best:.2f} | {ratio(series, times[against]):.2f}"
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()


def heading(title: str) -> str:
    when = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{title}\n{cpu_model()}, Python {platform.python_version()}, {when}\ncommand: python {' '.join(sys.argv)}\n"

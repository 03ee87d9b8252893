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
from collections.abc import Callable
from pathlib import Path

Contender = Callable[[], None]
WARM_UP = 5


def interleaved(contenders: dict[str, Contender], rounds: int, repeat: int) -> dict[str, list[float]]:
    """Seconds per call of each contender in each round; a round calls each of them `repeat` times in a row."""
    for run in contenders.values():
        for _ in range(WARM_UP):
            run()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        # The order turns from round to round, so that nobody always runs on a neighbour's warm cache.
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            run = contenders[name]
            gc.collect()
            start = time.perf_counter()
            for _ in range(repeat):
                run()
            times[name].append((time.perf_counter() - start) / repeat)
    return times


def table(times: dict[str, list[float]], against: str, scale: float, unit: str) -> str:
    """Median, best and spread of each contender, and the median ratio to `against` within a round."""
    lines = [f"| | median {unit} | best {unit} | spread | time / {against} |", "|---|---|---|---|---|"]
    for name, series in times.items():
        ratio = statistics.median(a / b for a, b in zip(series, times[against], strict=True))
        ninth = sorted(series)[int(0.9 * (len(series) - 1))]
        middle, best = statistics.median(series), min(series)
        lines.append(f"| {name} | {middle * scale:.3f} | {best * scale:.3f} | {ninth / best:.2f} | {ratio:.2f} |")
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

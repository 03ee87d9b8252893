"""Tables of a run, and the section of RESULTS.md that holds them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import chart, hand
from .rounds import cpu_model, ratio

RESULTS = Path(__file__).with_name("RESULTS.md")
PLOT = Path(__file__).with_name("plot.png")
BEGIN, END = "<!-- python -m tests.benchmarks: begin -->", "<!-- python -m tests.benchmarks: end -->"
PACKAGES = ("workbench", "warp-lang", "jax", "torch", "taichi", "drjit", "numpy")
METHOD = """\
Float32, same arrays, sizes and steps; losses and gradients were compared with those of `c` (to 1e-4) before anything
was timed. Milliseconds of forward and backward, in brackets of forward alone; ratios are medians of those within one
round. `c`: written by hand, with its adjoint, two threads and the flags of the workbench; `c fast`: the same text with
`-ffast-math`; `graph`: launches captured once, then replayed; Taichi has its fast math on, as it has unless told
otherwise. Peak: the largest resident set of a fresh process above what it held with the program compiled and the data
in place."""
Times = dict[str, list[float]]


@dataclass
class Row:
    """One workload at one size: seconds per call in each round, by system."""

    workload: str
    size: str
    elements: int
    steps: int
    missing: list[str] = field(default_factory=list)
    both: Times = field(default_factory=dict)
    forward: Times = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.workload} {self.size}"

    def ratios(self, system: str) -> str:
        if system not in self.both:
            return "-"
        ratios = (ratio(times[system], times["c"]) for times in (self.both, self.forward))
        return "{:.2f} ({:.2f})".format(*ratios)

    def table(self) -> str:
        """Forward and backward, in brackets forward alone."""
        lines = [f"\n### {self.name}: {self.elements:,} elements, {self.steps} steps\n"]
        head = ["", "median ms", "best ms", "time / c", "rounds"] + ["peak MB"] * bool(self.peaks)
        lines += [line(head), line(["---"] * len(head))]
        for system, times in self.both.items():
            middle, best = (
                f"{1e3 * of(times):.3g} ({1e3 * of(self.forward[system]):.3g})" for of in (statistics.median, min)
            )
            cells = [system, middle, best, self.ratios(system), str(len(times))]
            cells += [f"{self.peaks[system]:.1f}"] if self.peaks else []
            lines.append(line(cells))
        if self.missing:
            lines.append(f"\nNot here: {', '.join(self.missing)}.")
        return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def summary(rows: Sequence[Row]) -> str:
    """The ratios of all rows; only they carry over to other machines."""
    systems = list(dict.fromkeys(name for row in rows for name in row.both if name != "c"))
    lines = [
        "\n### Time / c, forward and backward (forward)\n",
        line(["", *systems]),
        line(["---"] * (len(systems) + 1)),
    ]
    return "\n".join(lines + [line([row.name, *map(row.ratios, systems)]) for row in rows])


def versions() -> str:
    found = [f"gcc {compiler()}", f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} {'of this tree' if name == 'workbench' else 'not installed'}")
    return ", ".join(found)


def compiler() -> str:
    done = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "not found"


def load() -> str:
    """Over the last minute."""
    return f"{os.getloadavg()[0]:.2f}"


def section(rows: Sequence[Row], command: str, before: str) -> str:
    """What goes between the markers; `before`: the load when the run began, which itself makes some."""
    machine = (
        f"{cpu_model()}, {len(os.sched_getaffinity(0))} of them used, {platform.system()} {platform.release()}, "
        f"{hand.instruction_set()}, no GPU. "
        f"{versions()}. {time.strftime('%Y-%m-%d', time.gmtime())}; load average {before}, at the end {load()}."
    )
    paragraphs = [
        "## Four workloads on all systems",
        f"    {command}",
        machine,
        METHOD,
        "![Time of a step against elements](plot.png)",
    ]
    return "\n\n".join(paragraphs) + "\n" + summary(rows) + "\n" + "\n".join(row.table() for row in rows) + "\n"


def replaced(text: str, section: str) -> str:
    """`text` with its marked section replaced, or with one at its end."""
    block = f"{BEGIN}\n{section}{END}\n"
    if BEGIN not in text:
        return f"{text.rstrip()}\n\n{block}"
    before, rest = text.split(BEGIN, 1)
    return before + block + rest.split(END, 1)[1].lstrip("\n")


def write(section: str, rows: Sequence[Row]) -> None:
    RESULTS.write_text(replaced(RESULTS.read_text("utf-8"), section), "utf-8")
    chart.draw(rows, PLOT)

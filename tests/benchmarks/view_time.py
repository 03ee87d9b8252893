"""Seconds of the processor that the tape view takes: pages, pictures, findings, opening. By hand, on a quiet machine.

python tests/benchmarks/view_time.py [--long] [--profile "to_html, 600"]

Until the picture stands in a notebook: view_open.py. What a frame of it costs the browser: view_frames.py.

The wanted figures are those of a quiet machine: to_html 0.5 s (600 launches) and 5 s (10,000), show 1 s (10,000),
diagnose 1 s (2,000), opening 3 s (100,000). `walks` counts how often the tape was walked for it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import workbench as wb
from tests.support import view_samples as samples
from workbench.viz.live.offline import to_html
from workbench.viz.live.view import View


def opened(tape: wb.Tape) -> None:
    """What happens until the page has all columns, and the first picture of the notebook."""
    view = tape.explore()
    view.still()
    view.close()


def levels(tape: wb.Tape) -> None:
    view = View(tape)
    view.answer({"ask": "levels"})
    view.close()


def works(folder: Path) -> dict[str, tuple[int, float, Callable[[wb.Tape], Any]]]:
    """Per name the launches, the wanted seconds, and what to do."""
    other = samples.crowd(200, 12, 0.02)[0]
    return {
        "show(against=), 2 x 200": (200, 0.7, lambda tape: tape.show(against=other)._repr_mimebundle_()),
        "to_html, 600": (600, 0.5, lambda tape: to_html(tape, folder / "page.html")),
        "show, 10,000": (10_000, 1.0, lambda tape: tape.show()._repr_mimebundle_()),
        "diagnose, 2,000": (2000, 1.0, lambda tape: tape.diagnose()),
        "open, 10,000": (10_000, 1.0, opened),
        "to_html, 10,000": (10_000, 5.0, lambda tape: to_html(tape, folder / "page.html")),
        "open, 100,000": (100_000, 3.0, opened),
        "open with adjoints, 100,000": (100_000, 10.0, levels),
        "to_html, 100,000": (100_000, 60.0, lambda tape: to_html(tape, folder / "page.html")),
    }


def measured(work: Callable[[wb.Tape], Any], tape: wb.Tape, rounds: int) -> tuple[float, int]:
    walks, real = 0, tape.retrace

    def retrace(*given: Any) -> Any:
        nonlocal walks
        walks += 1
        return real(*given)

    tape.retrace = retrace  # type: ignore[method-assign]
    took = []
    for _ in range(rounds):
        walks, begin = 0, time.process_time()
        work(tape)
        took.append(time.process_time() - begin)
    return min(took), walks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="the tapes of 100,000 launches too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", default="")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, (launches, wanted, work) in works(Path(folder)).items():
            if (launches > 10_000 and not chosen.long) or (chosen.profile and chosen.profile != name):
                continue
            tape, _ = samples.crowd(launches, 200 if launches > 200 else 12)
            took, walks = measured(work, tape, chosen.rounds)
            print(f"{name:28} {took:7.2f} s, wanted {wanted:g} s, {walks} walks", flush=True)
            if chosen.profile:
                profile = cProfile.Profile()
                profile.runcall(work, tape)
                pstats.Stats(profile).sort_stats("cumulative").print_stats(40)


if __name__ == "__main__":
    main()

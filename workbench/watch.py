"""`python -m workbench.watch script.py [args]`: a Warp program as it is, and a report of its gradients.

The program runs unchanged, with its own arguments, under `interop.warp.watch`. What it prints comes first, then the
table of `compare()`; one HTML file holds the tape too. The exit status is that of the program where it failed, 1 where
a gradient is wrong, else 0.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

FAILED, WRONG = 2, 1
ABOUT = "Run a Warp program and check its gradients."


def main(arguments: list[str] | None = None) -> int:
    """Run a script under a watch and report. Returns the exit status."""
    parser = argparse.ArgumentParser("python -m workbench.watch", description=ABOUT)
    parser.add_argument("--html", help="the page to write; default: NAME.watch.html in the working directory")
    parser.add_argument("--check", choices=("gradient", "forward"), default="gradient", help="what to compare")
    parser.add_argument("script", help="a file of Python")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="those of the script")
    asked = parser.parse_args(arguments)
    script = Path(asked.script)
    if not script.is_file():
        sys.stderr.write(f"{script}: there is no such file\n")
        return FAILED
    from .warp.watch import watch

    with watch(check=asked.check) as seen:
        status = run(script, asked.arguments)
    report(seen, Path(asked.html or f"{script.stem}.watch.html"))
    return status or (WRONG if seen.compare().wrong else 0)


def run(script: Path, arguments: list[str]) -> int:
    """Run a script as `python script.py` would. Returns its exit status; a traceback of its own goes to stderr."""
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[0] = [str(script), *arguments], str(script.resolve().parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return FAILED
    finally:
        sys.argv, sys.path[:] = before
    return 0


def report(seen: Any, page: Path) -> None:
    """Write the table to the terminal and the page to its file. A page that cannot be drawn is only reported."""
    sys.stdout.write(f"\n{said(seen)}\n")
    if not seen.tape.events:
        return
    try:
        sys.stdout.write(f"{seen.to_html(page)}\n")
    except Exception as failure:
        sys.stderr.write(f"{page}: not written, {type(failure).__name__}: {failure}\n")


def said(seen: Any) -> str:
    """Text of the summary and table; gradients that were not asked for are only counted, if there are others."""
    from .warp.watch.compare import VerdictTable

    found = seen.compare()
    asked = [row for row in found if row.verdict != "not asked"]
    if not asked or len(asked) == len(found):
        return repr(seen)
    left = f"{len(found) - len(asked)} more are not asked: launches overwrite these arrays"
    return f"{seen.summary()}\n{VerdictTable(asked)!r}\n{left}"


if __name__ == "__main__":
    sys.exit(main())

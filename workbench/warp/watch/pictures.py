"""The pictures of a watched program: the verdict, the exact adjoints of one backward, and Warp's around them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from ...tapes.events import Event, Scope
from ...tapes.late_imports import ask
from .backward_calls import Backwards
from .compare import VerdictTable
from .events import WarpStep
from .published import PublishedBackward, findings

SHORTEST = 2  # events that make a block


class Pictures:
    """Shows a watched program. Nothing is computed: every number was recorded."""

    def __init__(self, backwards: Backwards):
        self.session, self.backwards = backwards.session, backwards

    def ask(self, question: str, *args: object) -> Any:
        """The answer of a tool of our tape about the shown backward: "show", "explore" or "to_html"."""
        one, tape = self.backwards.shown, self.session.tape
        before = tape.last_seeds, tape.within
        tape.names.guess()
        if one is not None and one.seeds:
            one.show()
        try:
            over = PublishedBackward(one) if one is not None and any(r.verdict == "wrong" for r in one.rows) else None
            return ask(question, tape, *args, against=over, findings=findings(self.session, one))
        finally:
            if question != "explore" and self.session.seeded:
                tape.last_seeds, tape.within = before

    def write(self, path: Any, table: VerdictTable) -> Path:
        """Write the verdict and the live picture as one file. Returns the path."""
        written = Path(self.ask("to_html", path))
        text = written.read_text("utf-8")
        head, body, rest = text.partition("<body")
        start, close, after = rest.partition(">")
        shown = f'<div style="font:13px/1.45 system-ui,sans-serif;margin:12px">{table.html(asked=True)}</div>'
        written.write_text(f"{head}{body}{start}{close}{shown}{after}" if body else text, "utf-8")
        return written


def by_module(steps: list[WarpStep], events: list[Event]) -> Iterator[Scope]:
    """Blocks of consecutive events whose kernels are defined in one module of a package, named after the module.

    Copies and fills belong to the launch before them. Kernels of a script or a notebook have no block.
    """
    homes = {id(step.event): _home(step.kernel) for step in steps if step.kernel is not None}
    home, found = "", []
    for event in events:
        home = homes.get(id(event), home)
        found.append(home)
    first = 0
    for name, run in groupby(found):
        count = len(list(run))
        if name and count >= SHORTEST:
            yield Scope(name, first, first + count)
        first += count


def _home(kernel: Any) -> str:
    """The last part of a kernel's module name; "" outside of packages."""
    package, _, name = (kernel.func.__module__ or "").rpartition(".")
    return name if package else ""

"""The pictures of a watched program: the verdict, the exact adjoints of one backward, and Warp's around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...tapes.late_imports import ask
from ...tapes.naming import guess_names
from .backward_calls import Backwards
from .compare import VerdictTable
from .published import PublishedBackward, findings


class Pictures:
    """Shows a watched program. Nothing is computed: every number was recorded."""

    def __init__(self, backwards: Backwards):
        self.session, self.backwards = backwards.session, backwards

    def ask(self, question: str, *args: Any) -> Any:
        """The answer of a tool of our tape about the shown backward: "show", "explore" or "to_html"."""
        one, tape = self.backwards.shown, self.session.tape
        before = tape.last_seeds, tape.within
        guess_names(tape)
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

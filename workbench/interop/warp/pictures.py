"""The pictures of a watched program: the verdict, the exact adjoints of one backward, and Warp's around them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...tapes.late_imports import ask
from .compare import VerdictTable
from .deferred import Deferring
from .published import PublishedBackward, findings

if TYPE_CHECKING:
    from .passes import WarpBackward


class Pictures(Deferring):
    """The mixin of `Watch` for pictures. Nothing is computed: every number was recorded."""

    seeded: bool

    def compare(self) -> VerdictTable:
        """The rows of all backward passes."""
        raise NotImplementedError

    @property
    def shown(self) -> WarpBackward | None:
        """The backward that pictures are about: the first with a wrong gradient, else the last; None without any."""
        wrong = (one for one in self.passes if any(row.verdict == "wrong" for row in one.rows))
        return next(wrong, self.passes[-1] if self.passes else None)

    def forget_glimpses(self) -> None:
        """Drop the snapshots of all backwards but the one shown, and point the tape's tools at it."""
        shown = self.shown
        for one in self.passes:
            if one is not shown:
                one.glimpses.clear()
        if shown is not None and self.passes[-1] is shown:
            shown.show()

    def show(self) -> Any:
        """The static picture: the verdict, then their launches as lanes with the exact adjoints.

        Where a gradient of Warp's is wrong, what Warp's buffers held is drawn around the exact adjoints, and a tag says
        both numbers where they first part.
        """
        return self._asked("show")

    def explore(self) -> Any:
        """The same as a live picture, as `tape.explore()`. The tools of `tape` are then about this backward."""
        return self._asked("explore")

    def to_html(self, path: Any) -> Path:
        """Write the verdict and the live picture as one file that needs no network. Returns the path."""
        written = Path(self._asked("to_html", path))
        text = written.read_text("utf-8")
        head, body, rest = text.partition("<body")
        start, close, after = rest.partition(">")
        said = f'<div style="font:13px/1.45 system-ui,sans-serif;margin:12px">{self.compare().html(asked=True)}</div>'
        written.write_text(f"{head}{body}{start}{close}{said}{after}" if body else text, "utf-8")
        return written

    def _asked(self, question: str, *args: Any) -> Any:
        one = self.shown
        before = self.tape.last_seeds, self.tape.within
        self.tape.names.guess()
        if one is not None and one.seeds:
            one.show()
        try:
            over = PublishedBackward(one) if one is not None and any(r.verdict == "wrong" for r in one.rows) else None
            return ask(question, self.tape, *args, against=over, findings=findings(self, one))
        finally:
            if question != "explore" and self.seeded:
                self.tape.last_seeds, self.tape.within = before

"""The tape view: a static picture with its table (`show`), and a live one with panels (`explore`, `to_html`, `seeds`).

data (plain data and marks) < picture (SVG, table) < inspect (ledger, microscope) < live (widgets, *.js). Nothing here
computes a derivative: every number comes with the trace. Which rows there are and how a mark looks is decided once, in
`data/rows.py` and `data/marks.py`: both pictures draw from the tables of `data/columns.py`, and add only x.

To add a panel to the live view: (1) a method in `View.answer` (live/view.py) that returns plain data and buffers for a
question `{ask: "name", ...}`; (2) a file live/name_panel.js like ledger_panel.js, which asks by `v.keen("name", ...)`;
(3) its name in `SCRIPTS` (live/view.py), its lines in `panelsOf` (live/panels.js); (4) for pages without a kernel, its
answers and a sentence for a missing one in live/offline.py; (5) a test in tests/browser/test_page.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..arrays.array import array
from ..derivatives.pitfalls import Wrong
from ..diagnose import Finding
from ..tapes.tape import Tape
from .data.gather import gather, no_collector
from .data.headline import AT_ONCE, verdict
from .picture.figure import TapeFigure

if TYPE_CHECKING:
    from .data.against import Against

__all__ = ["TapeFigure", "exercise", "explore", "film", "predict", "seal", "seeds", "show", "solution", "to_html"]
__dir__ = __all__.copy


def show(
    tape: Tape, wrong: Wrong | None = None, against: Against = None, findings: Sequence[Finding] = ()
) -> TapeFigure:
    """The static tape view: a picture and a table that survive wherever a notebook is rendered.

    wrong     a pass that is wrong on purpose, to draw instead.
    against   another pass, drawn over this one in outline: a tape, a `Wrong`, or seeds of this tape {array: seed}.
              An exact pass and one that is wrong on purpose change places: the exact one is the outline.
    findings  further findings of the caller's: they come first.
    """
    with no_collector():
        if against is None:
            found = verdict(tape, limit=AT_ONCE, first=findings) if wrong is None else None
            return TapeFigure(gather(tape, wrong), verdict=found)
        from .data.against import compare  # a second pass is rare

        made = compare(tape, wrong, against)
        other = against if wrong is None and isinstance(against, Tape) else None
        found = None if other is None else verdict(tape, other, runs=made.runs)
        if findings:
            found = verdict(tape, limit=AT_ONCE, first=findings)
        made.runs = None
        return TapeFigure(made.trace, against=made, verdict=found)


def seeds(tape: Tape, y: array) -> Any:
    """The seeding panel. Widgets are imported when somebody asks for one."""
    from .live.seed_panel import SeedPanel

    return SeedPanel(tape, y)


def explore(
    tape: Tape,
    wrong: Wrong | None = None,
    against: Against = None,
    findings: Sequence[Finding] = (),
    film: object = None,
) -> Any:
    """The live tape view; `wrong`, `against` and `findings` as in `show`. film: the film above the lanes."""
    from .live.view_kinds import view_of

    return view_of(tape, wrong, against, findings, film)


def film(tape: Tape, points: object, **choices: object) -> Any:
    """The film of a tape; see `Tape.film`."""
    from .live import film as made  # a widget

    return made.film(tape, points, **choices)


def __getattr__(name: str) -> Any:
    """A name that needs widgets or launches, imported when first asked for: a page, and the questions of a lesson."""
    if name not in ("to_html", "predict", "seal", "exercise", "solution"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .live import offline, quiz

    return getattr(offline if hasattr(offline, name) else quiz, name)

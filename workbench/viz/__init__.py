"""The tape view: gather (tape -> plain data) -> layout (positions) -> scene (marks) -> svg or text.

Nothing in this package computes a derivative: every number comes in with the trace.
"""

from typing import Any

from .. import replay as _replay  # noqa: F401  (registers itself)
from ..array import array
from ..tape import Tape, pictures
from . import ledger, microscope
from .figure import TapeFigure
from .gather import gather


def show(tape: Tape) -> TapeFigure:
    """The static tape view: a picture and a table that survive wherever a notebook is rendered."""
    return TapeFigure(gather(tape))


def seeds(tape: Tape, y: array) -> Any:
    """The seeding panel. Widgets are imported when somebody asks for one."""
    from .panel import SeedPanel

    return SeedPanel(tape, y)


def explore(tape: Tape, wrong: Any = None) -> Any:
    """The live tape view; `wrong`: of a pass that is wrong on purpose."""
    from .view import View

    return View(tape, wrong)


def to_html(tape: Tape, path: Any, **choices: Any) -> Any:
    """The live view as one file."""
    from .offline import to_html

    return to_html(tape, path, **choices)


pictures["show"] = show
pictures["explore"] = explore
pictures["to_html"] = to_html
pictures["wrong"] = lambda wrong: TapeFigure(gather(wrong.tape, wrong))
pictures["ledger"] = ledger.ledger
pictures["seeds"] = seeds
pictures["microscope"] = microscope.microscope

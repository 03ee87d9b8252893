"""The tape view: gather (tape -> plain data) -> layout (positions) -> scene (marks) -> svg or text.

Nothing in this package computes a derivative: every number comes in with the trace.
"""

from typing import Any

from ..arrays.array import array
from ..derivatives.pitfalls import Wrong
from ..tapes.tape import Tape
from .data.gather import gather
from .picture.figure import TapeFigure


def show(tape: Tape, wrong: Wrong | None = None) -> TapeFigure:
    """The static tape view: a picture and a table that survive wherever a notebook is rendered.

    `wrong`: of a pass that is wrong on purpose.
    """
    return TapeFigure(gather(tape, wrong))


def seeds(tape: Tape, y: array) -> Any:
    """The seeding panel. Widgets are imported when somebody asks for one."""
    from .live.seed_panel import SeedPanel

    return SeedPanel(tape, y)


def explore(tape: Tape, wrong: Wrong | None = None) -> Any:
    """The live tape view; `wrong`: of a pass that is wrong on purpose."""
    from .live.view import View

    return View(tape, wrong)


def to_html(tape: Tape, path: Any, **choices: Any) -> Any:
    """The live view as one file."""
    from .live.offline import to_html

    return to_html(tape, path, **choices)


def __getattr__(name: str) -> Any:
    """`predict`, the question of a lesson, needs ipywidgets: imported when first asked for."""
    if name != "predict":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .live.quiz import predict

    return predict

"""Why a gradient of Warp's is wrong, and the smallest change of the program that mends it, in Warp's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tapes.naming import name_of

if TYPE_CHECKING:
    from .compare import Row
    from .passes import Pass
    from .watch import Watch


def explain(seen: Watch, one: Pass, row: Row) -> tuple[str, str]:
    """The cause of a wrong row, and the remedy: a sentence each, "" where nothing is known.

    Called when a row of `one` has been found wrong. `row.step` is the launch at which Warp's buffers first leave the
    exact ones, `row.theirs` and `row.exact` the two gradients, `seen.steps` everything that happened, `one.events` our
    events of the pass, `one.seeds` what it started from. What later events overwrote is in `event.kept`, with the
    events that need it.
    """
    return overwritten(seen, one, row)


def overwritten(seen: Watch, one: Pass, row: Row) -> tuple[str, str]:
    """Memory that the adjoint of the wrong launch reads, and that a later event has overwritten."""
    if row.step is None or row.step.event is None:
        return "", ""
    event = row.step.event
    for step in seen.steps[row.step.number + 1 :]:
        for kept in step.event.kept if step.event is not None else ():
            for need in kept.needs:
                if need.event is event:
                    name = name_of(seen.tape, need.array, need.name)
                    cause = f"its adjoint reads `{name}` as it is now; `{name}` was overwritten by {step!r}"
                    return cause, f"write the result of {step!r} to an array of its own instead of `{name}`"
    return "", ""

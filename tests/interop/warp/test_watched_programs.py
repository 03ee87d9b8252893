"""Every program of the collection under a watch: its verdict, the launch to blame, and the cause in a word."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

from tests.interop.warp import programs
from tests.interop.warp.declare import Program, programs_of

pytestmark = [pytest.mark.needs_warp, pytest.mark.filterwarnings("ignore:Running the tape backwards:UserWarning")]
FAMILIES = sorted(m.name for m in pkgutil.iter_modules(programs.__path__))
ADDED_TO = {("added_in_place", "y"): "not asked"}  # what launches add to has no one gradient in Warp


def watched(program: Program) -> tuple[Any, Any]:
    """A program run under a watch, and without: what was seen, and what each published."""
    from workbench.warp.watch import watch

    given = {n: np.array(v, np.float32) for n, v in program.given.items()}
    alone = program.run(**{n: v.copy() for n, v in given.items()})
    with watch() as seen:
        outcome = program.run(**given)
    for name, a in outcome.arrays.items():
        assert np.array_equal(a.numpy(), alone.arrays[name].numpy(), equal_nan=True)
        assert np.array_equal(a.grad.numpy(), alone.arrays[name].grad.numpy(), equal_nan=True)
    return seen, outcome


def rows_of(seen: Any, a: Any) -> list[Any]:
    """The rows of the last backward, or adjoint launch, about an array of Warp, or about views of it."""
    from workbench.warp.watch.memory import root_of

    rows = [r for one in (*seen.passes, *seen.launches.adjoints) for r in one.rows if root_of(r.subject.theirs) is a]
    return [r for r in rows if r.backward == rows[-1].backward]


def told(program: Program, seen: Any, outcome: Any) -> list[str]:
    """What the watch says otherwise than the collection does."""
    amiss = []
    for name, a in outcome.arrays.items():
        rows = rows_of(seen, a)
        wanted = program.seen or ADDED_TO.get((program.name, name)) or ("wrong" if name in program.wrong else "agrees")
        if {r.verdict for r in rows} != ({wanted} - {"no row"}):
            amiss.append(f"{program.name}, {name}: not {wanted}; {[r.texts() for r in rows]}")
        amiss += [
            f"{program.name}, {name}: {said}" for row in rows if wanted == "wrong" for said in blamed(program, row)
        ]
    return amiss


def blamed(program: Program, row: Any) -> list[str]:
    """What is amiss with the cause, the launch and the line of a wrong row."""
    assert program.cause is not None
    cause = program.cause
    amiss = [] if row.cause.startswith(f"{cause}: ") and row.remedy else [f"{row.cause!r}, not {cause}"]
    if program.launch is not None and row.launch.partition(" ")[2] != program.launch:
        amiss.append(f"blames {row.launch}, not {program.launch}")
    return amiss if ".py:" in row.line else [*amiss, f"line {row.line!r}"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_watch_tells_right_from_wrong_and_why(family: str) -> None:
    module = importlib.import_module(f"{programs.__name__}.{family}")
    amiss = [line for p in programs_of(module).values() for line in told(p, *watched(p))]
    assert not amiss, "\n".join(amiss)

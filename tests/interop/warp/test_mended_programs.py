"""Remedies mend: after the change that a wrong row names, the row of the same array agrees, on the same derivative."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

from tests.interop.warp import programs
from tests.interop.warp.declare import Program, programs_of
from tests.interop.warp.test_watched_programs import rows_of, watched

pytestmark = [pytest.mark.needs_warp, pytest.mark.filterwarnings("ignore:Running the tape backwards:UserWarning")]
BARE = {
    "gradients_of_the_step_before": "x stays, so that a sum of gradients is what the program may have meant",
    "cut_by_a_clone": "meant",
    "sum_by_utils": "an opaque call",
    "scan_by_utils": "an opaque call",
    "started_before_the_tape": "x is not on the tape",
}
CLOSE = {"while_loop": 0.02}  # eight turns are some more than it takes


def collected() -> dict[str, Program]:
    modules = [
        importlib.import_module(f"{programs.__name__}.{m.name}") for m in pkgutil.iter_modules(programs.__path__)
    ]
    return {name: p for m in modules for name, p in programs_of(m).items()}


def test_every_remedy_mends_its_program() -> None:
    from tests.interop.warp import mended_copies
    from tests.interop.warp.mended import MENDED

    assert mended_copies  # which enters its own

    amiss = []
    for name, wrong in collected().items():
        if wrong.cause is None or name in BARE:
            continue
        words, run = MENDED[name]
        mended = Program(run, wrong.given, (), None, None, None, "")
        before, after = watched(wrong), watched(mended)
        for array in wrong.wrong:
            row, now = (rows_of(seen, outcome.arrays[array])[-1] for seen, outcome in (before, after))
            if words not in row.remedy:
                amiss.append(f"{name}: {words!r} is no part of the remedy {row.remedy!r}")
            if now.verdict != "agrees":
                amiss.append(f"{name}: mended, and {now.texts()}")
            elif row.verdict == "wrong" and not np.allclose(now.theirs, row.exact, rtol=CLOSE.get(name, 1e-4)):
                amiss.append(f"{name}: {now.theirs} after, {row.exact} is the derivative")
    assert not amiss, "\n".join(amiss)

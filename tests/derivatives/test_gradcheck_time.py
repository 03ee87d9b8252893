"""`gradcheck(seconds=)`: launches of a long tape are checked evenly, and the report says how many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import workbench as wb
from workbench.derivatives import verify


def test_a_long_tape_is_checked_in_the_time_there_is(monkeypatch):
    """Launches spread evenly, and the report says how many; each takes a second of a clock of its own here."""
    clock = [0.0]
    checked = []
    check = verify._check_case

    def slowly(case: Any, *rest: Any) -> Any:
        clock[0] += 1.0
        checked.append(case.label)
        return check(case, *rest)

    monkeypatch.setattr(verify, "_check_case", slowly)
    monkeypatch.setattr(verify, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    x = wb.array([0.5, 0.25], requires_grad=True)
    with wb.Tape(keep="all") as tape:
        for _ in range(24):
            y = wb.zeros(2)
            wb.launch(halved, 2, [x, y])
            x = y
    report = wb.gradcheck(tape, seconds=6.0)
    numbers = [int(label[1:].split()[0]) for label in checked if label[0] == "#"]
    assert 5 <= len(numbers) <= 7 and max(np.diff(numbers)) <= 6 and numbers[-1] > 16
    assert f"{len(numbers)} of 24 launches were checked in 6 s" in str(report) and report
    del checked[:]
    assert wb.gradcheck(tape, seconds=float("inf")) and len(checked) == 25


@wb.kernel
def halved(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 0.5 * x[i] + x[i] * x[i]

"""`gradcheck(seconds=)`: launches of a long tape are checked evenly, and the report says how many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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
    said = f"{len(numbers)} of 24 launches were checked in 6 s, along 2 random directions."
    many = len(report.rows)
    assert report.summary == f"{many} of {many} gradients agree with differences; {said}" and report
    with ThreadPoolExecutor(1) as pool:  # whose launches each have that long
        assert "were checked in" not in wb.gradcheck(tape, seconds=6.0, executor=pool).summary
    del checked[:]
    assert wb.gradcheck(tape, seconds=float("inf")) and len(checked) == 25


@wb.kernel
def halved(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 0.5 * x[i] + x[i] * x[i]


@wb.kernel
def folded(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.abs(x[i]) + 2.0 * x[i]


def test_elements_that_are_not_looked_at_are_counted():
    """A direction does not tell at a kink; of 1,000 elements the quarter that disagrees most is looked at singly."""
    x = np.where(np.arange(1000) % 50 == 0, 0.0, 1.0).astype(np.float32)
    report = wb.gradcheck(folded, 1000, [wb.array(x)], [wb.zeros(1000)])
    row = report.rows[0]
    assert (row.compared, row.skipped, row.left) == (2 * 245, 2 * 5, 750) and not report.wrong
    assert report.summary.endswith("; 750 elements were looked at in sums only (full=True looks at each).")
    whole = wb.gradcheck(folded, 1000, [wb.array(x)], [wb.zeros(1000)], full=True)
    assert whole.rows[0].compared == 980 and "in sums only" not in whole.summary

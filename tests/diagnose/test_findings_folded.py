"""What a finding holds, and that equal ones are told once."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.diagnose import Finding, Findings
from workbench.diagnose.finding import folded
from workbench.errors import Where

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def root(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.sqrt(x[i])


@wb.kernel
def near(x: wb.array2d[float], y: wb.array2d[float]):
    i, j = wb.tid()
    y[i, j] = x[i, j] / (x[i, j] - 1.0)


def test_a_finding_has_launch_thread_line_and_arrays():
    pressure, speed = wb.array(np.float32([4.0, -1.0]), requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(root, dim=2, inputs=[pressure], outputs=[speed])
    (found,) = tape.diagnose(grads={speed: wb.ones(2)}).named("not-finite")
    assert (found.launch, found.thread, found.arrays, found.count) == ("#0 root", 1, ("speed",), 1)
    assert found.line == found.where.line and "sqrt" in found.where.text
    assert tape.microscope(found.launch, found.thread).thread == (1,)
    text = repr(found)
    assert "#0 root, thread 1" in text and ": speed" in text.split("\n")[0]


def test_a_headline_says_what_launch_thread_and_line():
    pressure, speed = wb.array(np.float32([4.0, -1.0]), requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(root, dim=2, inputs=[pressure], outputs=[speed])
    (found,) = tape.diagnose(grads={speed: wb.ones(2)}).named("not-finite")
    born = f"NaN born in #0 root, thread 1, line {found.line}: sqrt(-1) = nan in speed"
    assert found.headline == f"{born}: the square root of a negative number"


def test_a_headline_of_no_own_words_is_the_sentence_behind_its_place():
    place = Where("models/run.py", 7)
    sentence = "f is lost, which #1 pull (models/run.py:6) computed."
    assert Finding("lost", "info", "#2 gust", place, sentence).headline == (
        "#2 gust, line 7: f is lost, which #1 pull (line 6) computed."
    )
    assert Finding("no-leaf", "warning", "", None, "nothing.", brief="{at}: nothing").headline == "nothing"


def test_causes_come_before_what_follows_from_them():
    slugs = ["overwritten-kept", "growing", "unread", "died", "not-finite", "what-is-new", "aliased"]
    found = Findings([Finding(s, "info", "", None, "") for s in slugs])
    assert [f.slug for f in found] == [
        "not-finite",
        "died",
        "growing",
        "what-is-new",
        "aliased",
        "unread",
        "overwritten-kept",
    ]


def test_a_thread_of_a_grid_is_a_tuple():
    x, y = wb.array(np.float32([[2.0, 1.0]]), requires_grad=True), wb.zeros((1, 2))
    with wb.Tape() as tape:
        wb.launch(near, dim=(1, 2), inputs=[x], outputs=[y])
    (found,) = tape.diagnose().named("not-finite")
    assert found.thread == (0, 1)


def test_findings_that_differ_in_launch_and_numbers_are_one():
    where = Where("f.py", 3)
    same = [Finding("a", "info", f"#{n} k", where, f"q[{n}] holds {n}.5", "", (f"q[{n}]",)) for n in range(200)]
    other = Finding("a", "info", "#4 k", Where("f.py", 4), "q[4] holds 4.5", "", ("q[4]",))
    (first, second) = folded([*same, other])
    assert first.count == 200 and first.launch == "#0 k" and len(first.arrays) == 200
    assert "#0 k, and in 199 more launches" in str(first)
    assert second is not first and second.count == 1 and "more" not in str(second)

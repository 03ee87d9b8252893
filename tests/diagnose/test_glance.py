"""A long tape is sampled: the same launch and line as a full diagnosis names, from few looks at many launches."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.diagnose import diagnose
from workbench.diagnose.finite import SAMPLES, glance
from workbench.viz.data.headline import verdict

N = 8


@wb.kernel
def step(x: wb.array(dtype=float), v: wb.array(dtype=float)):
    i = wb.tid()
    x[i] = x[i] + 0.01 * wb.sin(v[i])


@wb.kernel
def pull(x: wb.array(dtype=float), v: wb.array(dtype=float)):
    i = wb.tid()
    v[i] = v[i] - 0.01 * x[i]


@wb.kernel
def drain(h: wb.array(dtype=float), rate: float):
    i = wb.tid()
    h[i] = h[i] - rate * wb.sqrt(h[i])


@wb.kernel
def grow(x: wb.array(dtype=float), factor: float):
    i = wb.tid()
    x[i] = x[i] * factor


@wb.kernel
def saturate(x: wb.array(dtype=float), scale: float):
    i = wb.tid()
    x[i] = wb.tanh(scale * x[i])


@wb.kernel
def root(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = y[i] + wb.sqrt(wb.max(x[i], 0.0))


@wb.kernel
def total(x: wb.array(dtype=float), loss: wb.array(dtype=float)):
    wb.atomic_add(loss, 0, x[wb.tid()])


def run(kind: str, count: int) -> wb.Tape:
    """A tape of about `count` launches in which one kind of thing goes wrong."""
    start = np.linspace(0.1, 1, N)
    x, v, y = (wb.array(start, dtype=float, requires_grad=True, name=name) for name in "xvy")
    loss = wb.zeros(1, dtype=float, requires_grad=True, name="loss")
    zero = wb.array(np.r_[0.0, start[1:]], dtype=float, requires_grad=True, name="zero")
    with wb.Tape() as tape:
        for k in range(count // 2):
            if kind == "nan":
                wb.launch(drain, dim=N, inputs=[x, 2.0 / count])
            elif kind == "explodes":
                wb.launch(grow, dim=N, inputs=[x, 1.0 + 60.0 / count])
            elif kind == "vanishes":
                wb.launch(saturate, dim=N, inputs=[x, 0.9])
            elif kind == "slope" and k == count // 3:
                wb.launch(root, dim=N, inputs=[zero], outputs=[x])
            else:
                wb.launch(step, dim=N, inputs=[x, v])
            wb.launch(pull, dim=N, inputs=[y if kind in ("explodes", "vanishes") else x, v])
        wb.launch(total, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    return tape


@pytest.mark.parametrize(
    ("kind", "slug", "says"),
    [
        ("nan", "not-finite", "the square root of a negative number"),
        ("slope", "adjoint-not-finite", "the slope of sqrt at 0 is infinite"),
        ("explodes", "growing", "explodes"),
    ],
)
@pytest.mark.parametrize("count", [2 * SAMPLES + 1, 5 * SAMPLES])
def test_what_goes_wrong_in_a_long_tape_is_said_with_its_launch_and_line(
    kind: str, slug: str, says: str, count: int
) -> None:
    tape = run(kind, count)
    quick, full = glance(tape)[0], next(f for f in diagnose(tape) if f.severity != "info")
    assert quick.slug == full.slug == slug and says in quick.headline
    assert (quick.launch, quick.line, quick.thread, quick.arrays) == (full.launch, full.line, full.thread, full.arrays)
    (row, *_) = verdict(tape, limit=count // 2).rows
    assert row.position == int(full.launch.split()[0][1:]) and f"line {full.line}" in row.headline


def test_a_long_tape_in_which_nothing_is_wrong_has_no_alarm_and_says_what_was_looked_at() -> None:
    tape = run("fine", 3 * SAMPLES)
    found = glance(tape)
    assert [f.slug for f in found] == [] and "no problem found there" in found.note
    assert f"Of {len(tape.events)} events" in found.note and "only the ends and" in found.note


def test_a_gradient_that_arrives_nowhere_is_no_alarm_and_one_that_ends_on_the_way_is() -> None:
    assert [f.slug for f in glance(run("explodes", 2500))] == ["growing"], "v is no part of the loss"
    x = wb.array(np.linspace(0.1, 1, N), dtype=float, requires_grad=True, name="x")
    v, loss = wb.zeros(N, dtype=float, name="v"), wb.zeros(1, dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(grow, dim=N, inputs=[x, 0.0])
        for _ in range(1500):
            wb.launch(step, dim=N, inputs=[x, v])
        wb.launch(total, dim=N, inputs=[x], outputs=[loss])
    tape.backward(loss)
    assert [(f.slug, f.arrays) for f in glance(tape)] == [("died", ("x",))]


def calls(tape: wb.Tape) -> int:
    profile = cProfile.Profile()
    profile.runcall(glance, tape)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "most"), [("fine", 40), ("nan", 150)])
def test_each_further_launch_costs_few_calls(kind: str, most: int) -> None:
    few, many = (run(kind, count) for count in (3 * SAMPLES, 9 * SAMPLES))
    assert calls(many) - calls(few) <= most * (len(many.events) - len(few.events))


def test_as_many_launches_are_looked_at_however_long_the_tape_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.diagnose import walk_record

    looked: list[Any] = []
    real = walk_record.accesses
    monkeypatch.setattr(walk_record, "accesses", lambda tape, event: looked.append(event) or real(tape, event))
    for count in (3 * SAMPLES, 9 * SAMPLES):
        tape = run("nan", count)
        looked.clear()
        glance(tape)
        assert len(looked) <= 2 * SAMPLES

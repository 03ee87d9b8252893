"""The strip above a tape view names a planted bug: in the static picture, its table, and what the page is told."""

from __future__ import annotations

import html
import threading
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support import ten_bugs, view_samples as samples
from workbench.viz.data.headline import Verdict, verdict


@cache
def planted(name: str) -> tuple[Any, ten_bugs.Planted]:
    return ten_bugs.BUGS[name]()


@cache
def said(name: str) -> Verdict:
    tape, bug = planted(name)
    return verdict(tape, bug.other)


def in_order(name: str) -> tuple[str, ...]:
    """What a strip must say of a bug."""
    bug = planted(name)[1]
    return bug.launch, f"line {bug.line}", bug.says, *bug.arrays


@pytest.mark.parametrize("name", ten_bugs.BUGS)
def test_the_first_finding_names_launch_line_and_arrays(name):
    bug, first = planted(name)[1], said(name).rows[0]
    assert first.slug == bug.slug and first.arrays == bug.arrays
    assert first.position == int(bug.launch.split()[0][1:])
    for words in in_order(name):
        assert words in first.title, first.title
    if bug.thread is not None:
        assert first.thread == (bug.thread,) and f"thread {bug.thread}" in first.title
    assert first.place["line"] == bug.statement, first.place
    assert first.lanes


@pytest.mark.parametrize("name", [n for n in ten_bugs.BUGS if n != "missing_dt"])
def test_the_still_picture_has_all_of_it_above_and_what_is_ordinary_folded(name):
    figure = planted(name)[0].show()
    above, _, below = html.unescape(figure.html).partition("<img")
    assert 'class="wb-findings"' in above and 'class="wb-findings"' not in below
    told, _, folded = above.partition("<details>")
    for words in in_order(name)[:2]:
        assert words in told
    for row in said(name).rows:
        here = folded if row.ordinary else told
        assert all(words in here for words in (row.title, row.line, row.fix, row.mended))
        assert row.title in figure.text and row.fix in figure.text


def test_a_race_that_was_repaired_is_no_finding():
    assert {row.slug for row in verdict(ten_bugs.repaired()).rows} == {"overwritten-kept"}


def chain(values: Any, steps: int = 1) -> wb.Tape:
    x, states = wb.array(values, dtype=float, requires_grad=True), [wb.zeros(len(values)) for _ in range(steps)]
    with wb.Tape() as tape:
        for y in states:
            wb.launch(samples.root, dim=len(values), inputs=[x], outputs=[y])
    tape.backward(grads={states[0]: wb.ones(len(values))})
    return tape


def test_where_nothing_is_wrong_it_says_so_quietly_with_the_range_of_adjoints():
    figure = chain([2.0, 5.0]).show()
    assert figure.verdict.calmly("adjoints from 0.5 to 1") == "no problem found, adjoints from 0.5 to 1"
    assert "no problem found, adjoints from 0.5 to 1" in figure.html and "<li>" not in figure.html
    assert "no problem found, adjoints from 0.5 to 1" in figure.text


def test_of_a_long_tape_the_ends_are_looked_at_and_the_strip_says_so():
    ill, fine = verdict(chain([0.5, 5.0], 9), limit=8), verdict(chain([2.0, 5.0], 9), limit=8)
    assert [row.slug for row in ill.rows] == ["adjoint-not-finite", "not-finite"] or ill.rows
    assert "not looked" in ill.note or "only the ends" in ill.note
    assert fine.rows == () and not fine.calmly("") and fine.note, "what was not looked for is not called fine"


def test_a_finding_whose_values_were_not_kept_says_so():
    assert {row.slug: row.known for row in said("nan").rows}["not-finite"] is False
    x, y = wb.array([0.5, 2.0], requires_grad=True), wb.zeros(2)
    with wb.Tape(keep="all") as tape:
        wb.launch(samples.root, dim=2, inputs=[x], outputs=[y])
    assert all(row.known for row in verdict(tape).rows)


def test_what_goes_wrong_while_looking_is_a_note(monkeypatch):
    monkeypatch.setattr("workbench.viz.data.headline.diagnose", lambda tape: 1 / 0)
    tape = chain([2.0, 5.0])
    assert "could not be looked for: division by zero" in tape.show().text


@wb.kernel
def tank(level: wb.array(dtype=float), out: wb.array(dtype=float)):
    i = wb.tid()
    out[i] = wb.tanh(300.0 * level[i])


@wb.kernel
def throw(x: wb.array(dtype=float), v: wb.array(dtype=float), dt: float):
    i = wb.tid()
    v[i] = v[i] - dt * 4.0 * x[i]
    x[i] = x[i] + dt * v[i]


def flat() -> tuple[wb.Tape, wb.array]:
    x, y = wb.array([0.9, 0.8], requires_grad=True, name="x"), wb.zeros(2, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(tank, dim=2, inputs=[x], outputs=[y])
    return tape, y


def unstable() -> tuple[wb.Tape, wb.array]:
    x, v = (wb.array([1.0, 0.5], requires_grad=True, name=name) for name in "xv")
    with wb.Tape() as tape:
        for _ in range(24):
            wb.launch(throw, dim=2, inputs=[x, v, 5.0])  # milliseconds, taken for seconds
    return tape, x


@pytest.mark.parametrize(
    ("program", "slug", "says", "line", "way_out"),
    [
        (flat, "died", "the derivative of `tanh` is zero", "out[i] = wb.tanh(300.0 * level[i])", "of another size"),
        (unstable, "not-finite", "grown beyond the largest", "v[i] = v[i] - dt * 4.0 * x[i]", "a smaller time step"),
    ],
)
def test_a_stranger_s_mistake_comes_with_its_line_and_a_way_out(program, slug, says, line, way_out):
    tape, y = program()
    tape.backward(grads={y: wb.ones_like(y)})
    first = verdict(tape).rows[0]
    assert first.slug == slug and says in first.title and first.position >= 0 and first.arrays
    assert line in first.line and way_out in first.fix


def test_names_in_a_strip_are_text():
    x = wb.array([0.5, 2.0], dtype=float, requires_grad=True, name="<b>x</b>\u202e")
    y = wb.zeros(2, name="</svg>")
    with wb.Tape() as tape:
        wb.launch(samples.root, dim=2, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.ones(2)})
    figure = tape.show()
    assert "not-finite" in {row.slug for row in figure.verdict.rows}
    assert "</svg>" in figure.verdict.rows[0].title and "\u202e" not in figure.text
    assert figure.svg.count("</svg>") == 1 and "</svg>" not in figure.html


def test_a_second_run_knows_the_values_that_were_not_kept():
    from workbench.viz.live.view import View

    tape, bug = planted("nan")
    view = View(tape)
    told, _ = view.answer({"ask": "findings"})
    assert told["again"] is True and told["rows"][0]["lanes"]
    n, k = told["rows"][0]["position"], next(k for k, a in enumerate(view.arrays) if view._name(a) == "v")
    asked = {"ask": "heat", "array": k, "cursor": n, "element": []}
    before, _ = view.answer(asked)
    view.answer({"ask": "again"})
    after, blobs = view.answer(asked)
    assert (before["value"]["state"], after["value"]["state"]) == ("not kept", "known")
    assert view.answer({"ask": "findings"})[0]["again"] is False
    found, _ = view.answer({"ask": "microscope", "launch": n, "thread": [bug.thread]})
    assert found["event"] == n and found["heading"] == bug.launch
    assert not any("not kept" in str(step["value"]) for step in found["steps"])
    copy = np.frombuffer(blobs[0], np.float32)
    assert np.isfinite(copy).all()
    view.close()


def test_while_a_cell_runs_beside_it_nothing_is_looked_for(monkeypatch):
    from workbench.viz.live import view as view_module

    view = view_module.View(planted("dead")[0])
    monkeypatch.setattr(view_module.cells, "running", True)
    replies: list[Any] = []
    for ask in ("findings", "again"):
        refused = partial(pytest.raises, view_module.Busy, view.answer, {"ask": ask})
        other = threading.Thread(target=lambda refused=refused: replies.append(refused()))
        other.start()
        other.join()
    assert ["a cell is running" in str(reply.value) for reply in replies] == [True, True]
    view.close()


def test_a_tape_that_is_refused_is_walked_once_and_its_values_are_shown(monkeypatch):
    from workbench.viz.live.view import View

    tape, walks = planted("race")[0], []
    retrace = type(tape).retrace
    monkeypatch.setattr(type(tape), "retrace", lambda self, *given: walks.append(1) or retrace(self, *given))
    view = View(tape)
    walks.clear()
    for cursor in (400, 200, 100, 0):
        found, _ = view.answer({"ask": "heat", "array": 0, "cursor": cursor, "element": []})
        assert found["adjoint"] is None and "touch one element" in found["value"]["note"]
    assert len(walks) <= 1
    view.close()

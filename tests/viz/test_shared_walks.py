"""Many answers in few walks: a page without a kernel, and what a view remembers when its arrays are used again."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support import view_samples as samples
from workbench.diagnose import against
from workbench.viz.data.against import compare
from workbench.viz.inspect.ledger import ledger, ledgers
from workbench.viz.inspect.microscope import microscope, microscopes
from workbench.viz.live import offline
from workbench.viz.live.view import View
from workbench.viz.live.view_kinds import AgainstView

pytest.importorskip("anywidget")
KINDS = "heat", "ledger", "microscope"


@pytest.fixture(scope="module", params=["springs", "ill", "extreme"])
def tape(request) -> wb.Tape:
    if request.param == "springs":
        return samples.springs(3)[0]
    return samples.ill(4)[0] if request.param == "ill" else extreme()


@wb.kernel
def lowest(x: wb.array[float], y: wb.array[float], m: wb.array[float]):
    i = wb.tid()
    wb.atomic_min(m, 0, x[i] * x[i])
    y[i] = y[i] + x[i] * x[i]


def extreme() -> wb.Tape:
    x = wb.array([3.0, -1.0, 2.0], dtype=float, requires_grad=True, name="x")
    y, m = wb.zeros(3, dtype=float, name="y"), wb.array([100.0, 2.0], dtype=float, requires_grad=True, name="m")
    with wb.Tape() as tape:
        wb.launch(samples.double, dim=3, inputs=[x])
        wb.launch(lowest, dim=3, inputs=[x], outputs=[y, m])
        wb.launch(samples.double, dim=2, inputs=[m])
    tape.backward(grads={m: wb.ones_like(m), y: wb.ones_like(y)})
    return tape


def counted(monkeypatch, tape) -> list[int]:
    walks, real = [], tape.retrace

    def retrace(*given):
        walks.append(1)
        return real(*given)

    monkeypatch.setattr(tape, "retrace", retrace)
    return walks


def test_ledgers_of_one_walk_are_those_of_many(tape, monkeypatch):
    arrays = [a for a in tape.arrays.values() if a.allocation.asked]
    moments = range(len(tape.events))
    wanted = [
        (a, index, moments) for a in arrays for index in [*np.ndindex(*a.shape, *getattr(a.dtype, "shape", ()))][:3]
    ]
    want = [{n: ledger(tape, a, index, n).to_json() for n in moments} for a, index, _ in wanted]
    walks = counted(monkeypatch, tape)
    found = [{n: one.to_json() for n, one in some.items()} for some in ledgers(tape, wanted)]
    assert found == want and len(walks) == 1 and any(some[0]["rows"] for some in found)


def test_microscopes_of_one_walk_are_those_of_many(tape, monkeypatch):
    wanted = [(n, thread) for n, e in enumerate(tape.events) if e.command is not None for thread in (0, 1)]
    wanted = [one for one in wanted if np.prod(tape.events[one[0]].command.plan.form.dims) > one[1]]
    want = [microscope(tape, *one).to_json() for one in wanted]
    walks = counted(monkeypatch, tape)
    assert [found.to_json() for found in microscopes(tape, wanted)] == want and len(walks) == 1


@pytest.mark.parametrize("steps", [4, 40])
def test_a_page_takes_a_few_walks_however_much_it_answers(tmp_path, monkeypatch, steps):
    tape, _ = samples.springs(steps)
    walks = counted(monkeypatch, tape)
    view = View(tape)
    page = offline._Page(view, None, None)
    assert sum(key.startswith("ledger") for key in page.answers) > 20
    assert sum(key.startswith("microscope") for key in page.answers) > 8
    assert sum(key.startswith("heat") for key in page.answers) > 20
    assert len(walks) <= 4


def test_a_page_says_what_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.setattr(offline, "MAPS", 20)
    tape, _ = samples.springs(4)
    page = offline._Page(View(tape), None, None)
    stored = sum(key.startswith("heat") for key in page.answers)
    assert 10 < stored <= 20 + len(list(page.led_to()))  # those that findings show are always there
    every = sum(len(moments) + 1 for moments in page.moments)
    assert f"{stored} of {every} heat-maps" in page.left_out() and page.left_out() in page.text()


def test_the_stored_answers_are_those_of_the_view():
    tape, _ = samples.springs(3)
    page, view = offline._Page(View(tape), None, None), View(tape)
    for key, stored in page.answers.items():
        what, *numbers = key.split()
        if what == "heat":
            found, blobs = view.answer({"ask": "heat", "array": int(numbers[0]), "cursor": int(numbers[1])})
            assert stored["ok"] == found
            assert [b"".join(page.blobs)[at : at + n] for at, n in stored["buffers"]] == blobs


def two_passes(name: str):
    """A view that is of two passes or of a wrong one, made anew at each call, by name."""
    (tape, arrays), (other, _) = samples.springs(3), samples.springs(4)
    wrong = tape.backward(arrays["loss"], pitfall=wb.pitfalls.alias)
    x = arrays["velocities"]
    made = {
        "two tapes": lambda: AgainstView(compare(tape, None, other)),
        "two seeds": lambda: AgainstView(compare(tape, None, {x: wb.ones_like(x)})),
        "exact and wrong": lambda: AgainstView(compare(tape, wrong, tape)),
        "wrong": lambda: View(tape, wrong),
    }
    return made[name]


@pytest.mark.parametrize("name", ["two tapes", "two seeds", "exact and wrong", "wrong"])
def test_the_stored_answers_of_two_passes_are_those_of_their_view(name):
    view_of = two_passes(name)
    page, view = offline._Page(view_of(), None, None), view_of()
    heats = ledgers_ = microscopes_ = 0
    for key, stored in page.answers.items():
        what, *numbers = key.split()
        numbers = [int(n) for n in numbers]
        if what == "heat":
            asked = {"ask": what, "array": numbers[0], "cursor": numbers[1], "element": []}
        elif what == "ledger":
            asked = {"ask": what, "array": numbers[0], "element": numbers[1:-1], "cursor": numbers[-1]}
        elif what == "microscope":
            asked = {"ask": what, "launch": numbers[0], "thread": numbers[1:]}
        else:
            continue
        heats, ledgers_, microscopes_ = (n + (what == k) for n, k in zip((heats, ledgers_, microscopes_), KINDS))
        found, blobs = View.answer(view, asked)  # by events, as the page stores them
        assert stored["ok"] == found
        assert [b"".join(page.blobs)[at : at + n] for at, n in stored["buffers"]] == blobs
    exact = name in ("two tapes", "two seeds")
    assert heats > 10 and (ledgers_ > 5) == (microscopes_ > 3) == exact


def test_the_programs_of_two_tapes_run_once_for_their_picture_and_its_findings(monkeypatch):
    tape, other = samples.springs(3)[0], samples.springs(4)[0]
    runs, real = [], against.keep_all
    monkeypatch.setattr(against, "keep_all", lambda tape: runs.append(tape) or real(tape))
    shown = tape.show(against=other)
    assert runs == [tape, other] and "run" in shown.text
    view = tape.explore(against=other)
    first, _ = view.answer({"ask": "findings"})
    assert runs == [tape, other] * 2 and first["rows"]
    assert view.answer({"ask": "findings", "all": True})[0]["rows"] == first["rows"]


# --- arrays that are used again


def test_a_view_keeps_what_it_showed_when_its_arrays_are_used_again():
    tape, arrays = samples.springs()
    x, view = arrays["positions"], View(tape)
    k, count = view.number_of(x), len(tape.events)
    shown = {"ask": "heat", "array": k, "cursor": 2, "element": []}
    rows = {"ask": "ledger", "array": k, "element": [7, 0], "cursor": 0}
    heat, summands = view.answer(shown), view.answer(rows)
    end = x.numpy().copy()
    other = {"ask": "heat", "array": view.number_of(arrays["velocities"]), "cursor": 1, "element": []}
    want = View(tape).answer(other)
    x.fill_(7.0)
    arrays["velocities"].fill_(0.0)
    assert view.answer(shown) == heat and view.answer(rows) == summands
    assert view.answer(other) == want  # not asked for before, and taken in the same walk
    found, blobs = view.answer({"ask": "heat", "array": k, "cursor": count, "element": []})
    assert found["value"]["state"] == "known"
    cells = np.frombuffer(blobs[0], np.float32).reshape(found["value"]["rows"], found["value"]["columns"])
    assert np.array_equal(np.sort(cells.ravel()), np.sort(end.ravel()))


def test_another_backward_is_not_answered_with_what_is_remembered():
    tape, arrays = samples.springs()
    x, view = arrays["positions"], View(tape)
    asked = {"ask": "heat", "array": view.number_of(x), "cursor": 0, "element": []}
    before = view.answer(asked)[1][2]
    tape.backward(grads={x: wb.array(np.full((12, 3), 2.0, np.float32), dtype=wb.vec3)})
    after = view.answer(asked)[1][2]
    assert after != before and after == View(tape).answer(asked)[1][2]


def test_of_a_tape_that_was_recorded_anew_only_what_was_shown_is_told():
    tape, arrays = samples.springs()
    view = View(tape)
    shown = {"ask": "heat", "array": 0, "cursor": 2, "element": []}
    heat = view.answer(shown)
    with tape:
        wb.launch(samples.double, dim=1, inputs=[arrays["loss"]])
    assert view.answer(shown) == heat
    with pytest.raises(ValueError, match="has changed since"):
        view.answer({**shown, "cursor": 1})

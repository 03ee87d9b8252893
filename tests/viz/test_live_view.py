"""The live view without a browser: its columns say what the trace says, and its answers are those of the tape."""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from tests.support import view_samples as samples, viz_samples
from workbench.arrays import allocation as memory
from workbench.viz.data.columns import LEVELS, TABLES, Columns, levels_of
from workbench.viz.data.gather import Gather, gather
from workbench.viz.data.loops import folds
from workbench.viz.data.marks import STATES
from workbench.viz.data.snapshot import TapeMoments, frame_of, reduced
from workbench.viz.live import view as view_module
from workbench.viz.live.film import FILM
from workbench.viz.live.view import BUSY, SCRIPTS, Busy, View, module
from workbench.viz.live.view_kinds import ABOVE

pytest.importorskip("anywidget")


@pytest.fixture(scope="module")
def springs():
    return samples.springs()


@pytest.fixture
def view(springs):
    made = View(springs[0])
    yield made
    made.close()


def table(columns: Columns, name: str) -> dict[str, np.ndarray]:
    return columns_of(columns.meta["tables"], columns.data, name)


def columns_of(tables: dict, data: bytes, name: str) -> dict[str, np.ndarray]:
    place = tables[name]
    data = np.frombuffer(data, np.float32)
    at, rows = place["at"], place["rows"]
    return {f: data[at + k * rows : at + (k + 1) * rows] for k, f in enumerate(place["fields"])}


# --- columns


@pytest.mark.parametrize("trace", [viz_samples.springs(), viz_samples.overlap()], ids=["springs", "overlap"])
def test_the_columns_say_what_the_trace_says(trace):
    columns = Columns(trace)
    texts, ranges = columns.meta["texts"], columns.meta["ranges"]
    touches, events = table(columns, "touches"), table(columns, "events")
    found = []
    for k in range(len(touches["range"])):
        lane, lo, hi, strided = ranges[int(touches["range"][k])]
        how = columns.meta["how"][int(touches["how"][k])]
        found.append(
            (
                trace.allocations[lane].id,
                texts[int(touches["name"][k])],
                lo,
                hi,
                how,
                int(touches["before"][k]),
                int(touches["after"][k]),
                strided,
            )
        )
    assert found == [
        (t.allocation, t.name, t.lo, t.hi, t.how, t.version_before, t.version_after, t.strided)
        for e in trace.events
        for t in e.touches
    ]
    assert [texts[int(k)] for k in events["label"]] == [e.label for e in trace.events]
    assert [texts[int(k)] for k in events["where"]] == [e.where for e in trace.events]


def test_the_columns_of_levels_say_what_the_trace_says():
    trace = viz_samples.springs()
    columns = Columns(trace)
    meta, data, *_ = columns.side(levels_of(trace))
    bars = columns_of(meta["tables"], data, "bars")
    lanes = columns.lanes
    found = {
        (int(lane), int(e1)): (most, STATES[int(state)])
        for lane, e1, most, state in zip(bars["lane"], bars["e1"], bars["max"], bars["state"])
    }
    given = [(n, level) for n, e in enumerate(trace.events) for level in e.adjoint]
    given.append((len(trace.events), trace.seeds[0].level))
    assert found == {(lanes[level.allocation], n): (pytest.approx(level.max_abs), level.state) for n, level in given}


@pytest.mark.slow
def test_a_structure_with_the_levels_of_a_walk_is_the_trace(springs):
    tape = springs[0]
    whole, bare, walked = gather(tape), Gather(tape).structure(), Gather(tape).levels()
    assert [e.touches for e in bare.events] == [e.touches for e in whole.events]
    assert [tuple(found) for found in walked.events] == [e.adjoint for e in whole.events]
    assert walked.seeds == whole.seeds
    assert all(not e.adjoint for e in bare.events)


def test_sizes_that_float32_cannot_hold_stay_sizes():
    huge = viz_samples.level("m0", 1e300)
    trace = viz_samples.springs()
    columns = Columns(trace)
    data = columns.side(levels_of(trace)._replace(events=[[huge], [], [], [], []], seeds=[])).data
    assert np.isfinite(np.frombuffer(data, np.float32)).all()


# --- folds


def test_a_time_loop_folds_into_one_and_scopes_into_theirs():
    tape, _ = samples.springs(steps=10)
    found = folds(tape)
    assert [(f.name, f.kind, f.count) for f in found if f.parent == -1] == [("step ×10", "repeat", 10)]
    assert {f.kind for f in found if f.parent != -1} == {"scope"}
    for f in found:
        assert f.first < f.last <= len(tape.events)
        if f.parent >= 0:
            outer = found[f.parent]
            assert outer.first <= f.first and f.last <= outer.last


def test_inner_loops_fold_inside_outer_ones():
    x = wb.zeros(2, dtype=float)
    y = wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        for _ in range(3):
            for _ in range(4):
                wb.launch(samples.step, dim=2, inputs=[x, y, 0.1])
            wb.launch(samples.double, dim=2, inputs=[x])
    found = folds(tape)
    assert [(f.name, f.first, f.last, f.parent) for f in found] == [
        ("step ×4, double ×3", 0, 15, -1),
        ("step ×4", 0, 4, 0),
        ("step ×4", 5, 9, 0),
        ("step ×4", 10, 14, 0),
    ]


def test_two_of_a_kind_are_no_loop():
    tape, _ = samples.forgotten()
    assert folds(tape) == []


# --- moments


def test_a_value_of_the_past_is_what_it_was_or_is_not_known(springs):
    tape, arrays = springs
    x, moments = arrays["positions"], TapeMoments(tape)
    values, known, note = moments.value(x, 0)
    assert known.all() and note == ""
    assert np.array_equal(values, arrays["start"])
    now, known, _ = moments.value(x, len(tape.events))
    assert known.all() and np.array_equal(now, x.numpy())
    assert not np.array_equal(now, values)


def test_what_was_overwritten_and_not_kept_is_never_shown():
    tape, h = samples.forgotten()
    moments = TapeMoments(tape)
    assert moments.value(h, 3)[1].all()
    for cursor in (2, 1, 0):
        assert not moments.value(h, cursor)[1].any()
    view = View(tape)
    view.select(h)
    found, blobs = view.answer({"ask": "heat", "array": view.array, "cursor": 1})
    assert found["value"]["state"] == "not kept"
    assert not np.frombuffer(blobs[0], np.float32).any() and not np.frombuffer(blobs[1], np.uint8).any()


def test_memory_that_changed_since_is_no_past_value(springs):
    tape, h = samples.forgotten()
    assert TapeMoments(tape).value(h, 3)[1].all()
    h.fill_(7.0)
    assert not TapeMoments(tape).value(h, 3)[1].any()


def test_the_adjoint_at_a_moment_is_that_of_the_tape(springs):
    tape, arrays = springs
    x, moments = arrays["positions"], TapeMoments(tape)
    frame = frame_of((12, 3))
    for n in range(len(tape.events)):
        cells = moments.adjoint(x, n, frame)[1]
        assert np.allclose(cells.T, tape.adjoint(x, tape.events[n]))
    assert not moments.adjoint(x, len(tape.events), frame)[1].any()


def test_one_walk_serves_every_step_of_the_cursor(springs):
    tape, arrays = springs
    walks = []

    def counted(*given):
        walks.append(1)
        return tape.retrace(*given)

    moments = TapeMoments(tape, counted)
    for n in reversed(range(len(tape.events) + 1)):
        moments.adjoint(arrays["positions"], n, frame_of((12, 3)))
    assert len(walks) == 1


@pytest.mark.parametrize("shape", [(), (5,), (1000,), (12, 3), (40, 50), (300, 400), (6, 7, 3), (4, 5, 6, 2)])
def test_a_frame_shows_every_number_of_its_plane_once(shape):
    frame = frame_of(shape)
    values = np.arange(1, 1 + int(np.prod(shape)), dtype=np.float64).reshape(shape)
    plane = frame.plane(values, 0)
    seen = plane[plane > 0]
    index = tuple(slice(None) if axis in frame.axes else frame.fixed[axis] for axis in range(len(shape)))
    assert sorted(seen) == sorted(np.asarray(values[index]).reshape(-1))
    assert max(reduced(plane, frame.block).shape) <= 128


def test_a_block_shows_its_largest_number_with_its_sign_and_nan_wins():
    values = np.array([[1.0, -5.0, 0.0, 2.0], [3.0, 4.0, 0.0, np.nan]])
    cells = reduced(values, (2, 2))
    assert cells[0, 0] == -5.0 and np.isnan(cells[0, 1])


# --- the widget


NUMBERS = itertools.count()


def ask(view: View, **content):
    sent = []
    view.send = lambda message, blobs=None: sent.append((message, blobs))
    view._heard(view, {"id": f"q-{next(NUMBERS)}", **content}, [])
    (reply,) = sent
    return reply


def test_a_view_says_what_the_page_needs(view, springs):
    assert view.meta["count"] == 5 and view.cursor == 0
    assert view.arrays[view.array].allocation is springs[1]["positions"].allocation
    names = [a[0] for a in view.meta["arrays"]]
    assert {"positions", "velocities", "loss"} <= set(names)
    assert "tables" in json.loads(json.dumps(view.meta))
    assert view.levels_meta["tables"]["bars"]["rows"] > 0
    assert view.meta["grids"] == [[11], [12]]


def test_names_of_the_user_are_cleaned_of_what_a_page_cannot_carry():
    x = wb.array([1.0], dtype=float, requires_grad=True, name="<b>\u202e\x00")
    y = wb.zeros(1, dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(samples.root, dim=1, inputs=[x], outputs=[y])
    tape.names.noted.clear()
    texts = json.dumps(View(tape).meta)
    assert "\\u202e" not in texts and "\\u0000" not in texts and "<b>" in texts


def test_the_ledger_of_a_view_sums_to_the_gradient(view, springs):
    x = springs[1]["positions"]
    message, _ = ask(view, ask="ledger", array=view.number_of(x), element=[7, 0], cursor=0)
    assert message["ok"]["published"] == pytest.approx(float(x.grad.numpy()[7, 0]))
    assert sum(row["value"] for row in message["ok"]["rows"]) == pytest.approx(message["ok"]["total"])


def test_at_the_end_of_the_tape_the_ledger_is_the_seed(view, springs):
    message, _ = ask(view, ask="ledger", array=view.number_of(springs[1]["loss"]), element=[0], cursor=5)
    assert [row["kind"] for row in message["ok"]["rows"]] == ["seed"] and message["ok"]["published"] == 1.0


def test_the_microscope_of_a_view_is_that_of_the_tape(view, springs):
    message, _ = ask(view, ask="microscope", launch=2, thread=[7])
    assert message["ok"] == springs[0].microscope(2, 7).to_json()


def test_findings_come_with_their_place(view):
    message, _ = ask(view, ask="findings")
    assert any(row["slug"] == "aliased" and row["position"] == 1 for row in message["ok"]["rows"])


@pytest.mark.parametrize(
    "content, said",
    [
        ({"ask": "ledger", "array": 0, "element": [99, 0], "cursor": 0}, "outside axis 0"),
        ({"ask": "microscope", "launch": 2, "thread": [99]}, "no thread"),
        ({"ask": "nonsense"}, "nonsense"),
        ({"ask": "heat", "array": 10_000, "cursor": 0}, "range"),
    ],
)
def test_what_goes_wrong_in_an_answer_is_text_for_the_view(view, content, said):
    message, _ = ask(view, **content)
    assert said in message["error"] and "\ufffd" not in message["error"]


def test_a_message_that_is_no_question_is_ignored(view):
    view.send = lambda *given: pytest.fail("answered")
    view._heard(view, "hello", [])
    view._heard(view, {"id": 3}, [])


def test_an_answer_does_not_wait_for_memory_that_is_in_use(view):
    held, done = threading.Event(), threading.Event()

    def hold():
        with memory.LOCK:
            held.set()
            done.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(60)
    try:
        message, _ = ask(view, ask="heat", array=0, cursor=0)
        with pytest.raises(Busy):
            view.answer({"ask": "findings"})
        assert not done.is_set() and other.is_alive(), "neither waited for the one who has the lock"
    finally:
        done.set()
        other.join()
    assert message["busy"] == BUSY
    assert "ok" in ask(view, ask="heat", array=0, cursor=0)[0]


def test_a_question_whose_answer_was_lost_is_not_worked_out_again(view, monkeypatch):
    made = []
    look = view._verdict
    monkeypatch.setattr(view, "_verdict", lambda limit: made.append(limit) or look(limit))
    first = view.answer({"id": "page-1", "ask": "findings"})
    assert view.answer({"id": "page-1", "ask": "findings"}) is first and len(made) == 1
    view.answer({"id": "page-2", "ask": "findings"})
    assert len(made) == 2, "another question: memory may have been written since"


def test_while_a_cell_runs_beside_it_no_answer_rewinds_memory(view, monkeypatch):
    monkeypatch.setattr(view_module.cells, "running", True)
    replies = []
    other = threading.Thread(target=lambda: replies.append(ask(view, ask="heat", array=0, cursor=2)[0]))
    other.start()
    other.join()
    assert "a cell is running" in replies[0]["busy"]
    assert "ok" in ask(view, ask="heat", array=0, cursor=2)[0]  # in the cell's own thread nothing runs beside it


def test_questions_change_no_gradient_no_memory_and_no_tape(view, springs):
    tape, arrays = springs
    before = [a.numpy().copy() for a in tape.arrays.values()]
    grads = {a: g.numpy().copy() for a, g in tape.gradients.items()}
    kept = [len(e.kept) for e in tape.events]
    for k in range(len(view.arrays)):
        for cursor in (5, 3, 0):
            ask(view, ask="heat", array=k, cursor=cursor)
    ask(view, ask="ledger", array=0, element=[1, 1], cursor=2)
    ask(view, ask="microscope", launch=4, thread=[3])
    ask(view, ask="findings")
    view.set_seeds({arrays["positions"]: wb.ones_like(arrays["positions"])})
    assert [len(e.kept) for e in tape.events] == kept
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(tape.arrays.values(), before))
    assert all(np.array_equal(tape.gradients[a].numpy(), g) for a, g in grads.items())


def test_a_tape_that_has_grown_is_not_shown_by_an_old_view():
    tape, h = samples.forgotten()
    view = View(tape)
    with tape:
        wb.launch(samples.double, dim=3, inputs=[h])
    assert "has changed" in ask(view, ask="heat", array=0, cursor=0)[0]["error"]


def level_of(view: View, position: int, a) -> float:
    bars = columns_of(view.levels_meta["tables"], view.levels, "bars")
    lane = view._columns.lanes[str(a.allocation)]
    (found,) = {float(bars["max"][k]) for k in np.nonzero((bars["lane"] == lane) & (bars["e1"] == position))[0]}
    return found


def test_seeds_of_the_users_own_are_walked_beside_the_last_ones(view, springs):
    tape, arrays = springs
    x = arrays["positions"]
    before = level_of(view, 0, x)
    seed = wb.array(np.full((12, 3), 2.0, np.float32), dtype=wb.vec3)
    view.set_seeds({x: seed}, text="two everywhere")
    assert view.levels_meta["seed"] == "two everywhere" and level_of(view, 0, x) != before
    found, blobs = view.answer({"ask": "heat", "array": view.number_of(x), "cursor": 5})
    assert np.all(np.frombuffer(blobs[2], np.float32) == 2.0)
    view.set_seeds(None)
    assert level_of(view, 0, x) == before


def test_two_equal_seeds_differ_by_exactly_nothing(view, springs):
    x = springs[1]["positions"]
    view.set_seeds({x: wb.ones_like(x)}, minus={x: wb.ones_like(x)})
    assert level_of(view, 0, x) == 0.0


def test_a_wrong_pass_is_marked_as_wrong(springs):
    tape, arrays = springs
    wrong = tape.backward(arrays["loss"], pitfall=wb.pitfalls.alias)
    view = wrong.explore()
    assert "rong" in view.warning and view.meta["title"] == wrong.title
    assert "belongs to the seeds" in ask(view, ask="ledger", array=0, element=[0, 0], cursor=0)[0]["error"]


def test_from_python_an_array_an_element_a_thread_and_the_cursor_are_chosen(view, springs):
    tape, arrays = springs
    view.select(arrays["velocities"], (3, 1))
    assert view.arrays[view.array].span == arrays["velocities"].span and view.element == [3, 1]
    view.look_into(tape.events[1], 4)
    assert (view.launch, view.thread) == (1, [4])
    view.step(99)
    assert view.cursor == 5
    with pytest.raises(ValueError, match="has not touched"):
        view.select(wb.zeros(3, dtype=float))


def test_beside_the_widget_lies_a_picture_for_readers_without_one(view):
    data, _ = view._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/html"].startswith('<div class="wb-tape-view"') and "data:image/svg+xml" in data["text/html"]
    assert "#0 forces" in data["text/plain"]


def test_a_long_tape_is_walked_only_when_the_page_asks(monkeypatch):
    monkeypatch.setattr(view_module, "AT_ONCE", 2)
    tape, _ = samples.springs()
    view = View(tape)
    assert view.levels_meta == {} and view.levels == b""
    assert "ok" in ask(view, ask="levels")[0]
    assert view.levels_meta["tables"]["bars"]["rows"] > 0 and view.walks == 1


def test_a_tape_without_backward_and_one_with_a_func_are_still_shown():
    x = wb.array([1.0, 2.0], dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(samples.double, dim=2, inputs=[x])
    view = View(tape)
    assert view.levels_meta["tables"]["bars"]["rows"] == 0
    found, _ = view.answer({"ask": "heat", "array": 0, "cursor": 1})
    assert found["adjoint"] is None and found["value"]["state"] == "known"
    with wb.Tape() as other:
        wb.launch(samples.double, dim=2, inputs=[x])
        other.record_func(lambda: None, [x])
    other.backward(grads={x: wb.ones_like(x)})
    assert View(other).meta["count"] == 2


def test_an_empty_tape_is_shown_as_empty():
    with wb.Tape() as tape:
        pass
    assert View(tape).meta["count"] == 0


# --- the files


def test_the_module_is_one_small_file_without_imports_or_markup():
    text = module(*SCRIPTS)
    assert (
        not re.search(r"^import ", text, re.MULTILINE)
        and "innerHTML" not in text
        and "http" not in text.replace("http://www.w3.org/2000/svg", "")
    )
    assert len(text) < 145_000 and "</" not in text
    assert text.count("export default") == 1
    files = "\n".join(Path(view_module.__file__).with_name(name).read_text("utf-8") for name in SCRIPTS)
    declared = re.findall(r"^(?:export )?(?:async )?(?:function|const|let) (\w+)", files, re.MULTILINE)
    assert [name for name in declared if declared.count(name) > 1] == []  # the files are joined into one module


PANEL = ("elements.js", "heat.js", "late_messages.js", "seeds.js")
QUIZ = ("elements.js", "late_messages.js", "quiz.js")


@pytest.mark.parametrize("files", [SCRIPTS, ABOVE, FILM, PANEL, QUIZ], ids=["view", "above", "film", "panel", "quiz"])
def test_no_two_files_that_are_joined_declare_one_name(files):
    text = "\n".join(Path(view_module.__file__).with_name(name).read_text("utf-8") for name in files)
    names = []
    for what, rest in re.findall(r"^(?:export )?(?:async )?(function\*?|class|const|let) (.+)$", text, re.MULTILINE):
        names += re.findall(r"(?:^|, )(\w+) = ", rest) if what in ("const", "let") else re.findall(r"^\w+", rest)
    assert len(names) > 10 and [name for name in names if names.count(name) > 1] == []


def test_the_wheel_carries_the_page(tmp_path):
    from hatchling.builders.wheel import WheelBuilder

    root = Path(__file__).resolve().parents[2]
    (wheel,) = WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"workbench/viz/live/{n}" for n in (*SCRIPTS, "seeds.js", "view.css")} <= names
    assert "workbench/viz/picture/marks.css" in names


@pytest.mark.slow
def test_to_look_costs_a_recording_nothing():
    code = "import workbench as wb, sys; print('anywidget' in sys.modules, 'workbench.viz.live.view' in sys.modules)"
    import subprocess

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]


def test_the_tables_of_the_columns_are_named_once():
    assert all(len(set(fields)) == len(fields) for fields in (*TABLES.values(), *LEVELS.values()))

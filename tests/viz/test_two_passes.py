"""Two passes as one picture: what is drawn of both, the first launch and lane where they part, and both numbers."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import workbench as wb
from tests.support.drawn import box_of, labels_of
from workbench import pitfalls
from workbench.diagnose.against import aligned
from workbench.viz.data.against import PassComparison, compare, distinct_digits
from workbench.viz.data.trace import Trace
from workbench.viz.picture.figure import event_rows
from workbench.viz.picture.scene import Picture
from workbench.viz.picture.svg import Scene

N = 3


@wb.kernel
def force(q: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = -k * wb.sin(q[i])


@wb.kernel
def move(f: wb.array[float], v: wb.array[float], q: wb.array[float], dt: float):
    i = wb.tid()
    v[i] = v[i] + dt * f[i]
    q[i] = q[i] + dt * v[i]


@wb.kernel
def forgot(f: wb.array[float], v: wb.array[float], q: wb.array[float], dt: float):
    i = wb.tid()
    v[i] = v[i] + f[i]
    q[i] = q[i] + dt * v[i]


@wb.kernel
def energy(q: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    a = q[i]
    b = a
    wb.atomic_add(e, 0, b * b)


def swing(steps=3, k=1.0, odd=-1, kernel=move, skip=(), dt=0.1, start=0.5, backward=True):
    """A pendulum of which one step is another one, and some launches are left out."""
    q, v, f, e = wb.array(np.linspace(start, 1, N), dtype=float, requires_grad=True), *map(wb.zeros, (N, N, 1))
    with wb.Tape() as tape:
        for n in range(steps):
            if ("force", n) not in skip:
                wb.launch(force, dim=N, inputs=[q, k], outputs=[f])
            if ("move", n) not in skip:
                wb.launch(kernel if n == odd else move, dim=N, inputs=[f, v, q, dt])
        wb.launch(energy, dim=N, inputs=[q], outputs=[e])
    if backward:
        tape.backward(e)
    return tape, q, e


def precise(dtype, steps=4, growth=1.0):
    T = wb.array[dtype]

    @wb.kernel
    def grow(x: T, y: T, a: dtype):
        i = wb.tid()
        y[i] = x[i] + a * x[i] - x[i]

    x = wb.array([1.0, 2.0], dtype=dtype, requires_grad=True)
    arrays = [x, *(wb.zeros(2, dtype=dtype) for _ in range(steps))]
    with wb.Tape() as tape:
        for a, b in pairwise(arrays):
            wb.launch(grow, dim=2, inputs=[a, b, dtype(growth)])
    tape.backward(grads={arrays[-1]: wb.ones(2, dtype=dtype)})
    return tape


def texts(scene: Scene, start: str) -> list[str]:
    return [mark.text for mark in scene.marks if mark.id.startswith(start) and mark.kind == "label"]


def drawn(made: PassComparison) -> Scene:
    return Picture(made.trace, against=made).drawn()


# ---- the first launch, lane and both numbers


def test_a_pass_that_is_wrong_on_purpose_is_filled_and_hatched_and_the_exact_one_is_its_outline():
    tape, q, e = swing()
    wrong = tape.backward(e, pitfall=pitfalls.alias)
    exact = tape.adjoint(q, at=tape.events[-1])
    made = compare(tape, None, wrong)
    first = made.first
    assert first is not None and (first.kind, first.position, first.cell) == ("adjoint", 6, "q[0]")
    assert first.here == 0.0 and first.there == pytest.approx(float(exact[0]))
    number = f"0 instead of {exact[0]:.4g}"
    assert "#6 energy" in made.said[0] and number in made.said[0] and made.said[0].startswith("Values are the same")
    scene = drawn(made)
    assert texts(scene, "parts-tag") == [f"q[0]: {number}"] and texts(scene, "title") == [wrong.title]
    (tag,) = [mark for mark in scene.marks if mark.id == "parts-tag"]
    (box,) = [mark for mark in scene.marks if mark.id == "event-6"]
    assert tag.x <= box.x + box.w / 2 <= tag.x + tag.w
    assert {m.cls for m in scene.marks if " parted" in m.cls} >= {"bar zero parted wrong"}
    rows = {row[0][0]: row for row in event_rows(made.trace, against=made)}
    assert any(number in line for line in rows["#6 energy"][-2]) and "parts" in rows["#6 energy"][-1]


def test_wrong_against_exact_is_the_same_picture_from_either_side_and_wrong_alone_is_hatched_too():
    tape, _, e = swing()
    wrong = tape.backward(e, pitfall=pitfalls.alias)
    assert wrong.show(against=tape).svg == tape.show(against=wrong).svg
    alone = Picture(wrong.show().trace).drawn()
    bars = [m for m in alone.marks if m.id.startswith("bar-") and m.cls.startswith("bar")]
    assert bars and all(m.cls.endswith(" parted wrong") for m in bars)
    assert "WRONG ON PURPOSE" in wrong.show().svg and not any(
        "parted" in m.cls for m in Picture(tape.show().trace).drawn().marks
    )


def test_before_and_after_a_fix_part_in_a_value_with_the_line_that_was_mended():
    made = compare(swing(odd=1, kernel=forgot)[0], None, swing()[0])
    first = made.first
    assert first is not None and (first.kind, first.position, first.cell) == ("value", 3, "v[0]")
    q, v = np.float32(0.5), np.float32(0)
    for dt in (0.1, 1.0):
        f = -np.sin(q)
        v = v + np.float32(dt) * f
        q = q + np.float32(0.1) * v
    assert first.here == pytest.approx(float(v), rel=1e-5)
    assert "#3 forgot" in made.said[0] and f"{first.here:.4g} instead of {first.there:.4g}" in made.said[0]
    assert "v[i] + f[i]" in made.said[0]
    scene = drawn(made)
    blocks = {
        m.id: m.cls for m in scene.marks if m.id.startswith("block-") and m.kind == "rect" and "start" not in m.id
    }
    assert any("parted" in cls for cls in blocks.values()) and any("parted" not in cls for cls in blocks.values())


def test_two_seeds_of_one_tape():
    tape, q, e = swing()
    made = compare(tape, None, {e: wb.full(1, 2.0)})
    assert (
        made.first is not None and made.first.position == 6 and made.first.there == pytest.approx(2 * made.first.here)
    )
    assert "The seeds differ: e[0] is 1 instead of 2." in made.said
    assert tape.show(against={e: wb.full(1, 2.0)}).text.count("instead of") >= 8
    assert compare(tape, None, e).first is None and compare(tape, None, e).said == [
        "Both passes agree but for rounding."
    ]
    assert q.grad.numpy().any()  # nothing was published, nothing taken away


def test_only_what_was_compared_is_said_to_agree():
    some, none = swing()[0], swing(backward=False)[0]
    assert compare(some, None, none).said[0] == "The values of both passes agree but for rounding."
    lost = [swing()[:2] for _ in range(2)]
    for tape, q in lost:
        with tape:
            q.numpy()[:] = 3.0
            tape.record_func(lambda: None, [q])
    said = compare(lost[0][0], None, lost[1][0]).said
    assert any("not compared" in s for s in said) and "Both passes agree but for rounding." not in said


def test_float32_and_float64_agree_until_rounding_is_more_than_rounding():
    assert compare(precise(wb.float32), None, precise(wb.float64)).first is None
    made = compare(precise(wb.float32, growth=1e-5), None, precise(wb.float64, growth=1e-5))
    assert made.first is not None and made.first.kind == "value" and made.first.position == 0
    lanes = {track.id: track for track in made.trace.allocations}
    for some in made.other.events:
        assert all(level.hi <= lanes[level.allocation].nbytes for level in some)


# ---- what one of both lacks


def test_a_launch_too_few_stays_as_a_column_of_its_own_and_is_said_to_be_missing():
    short, full = swing(skip=[("force", 1)])[0], swing()[0]
    for one, two, flag, where in ((short, full, "there", "in the other"), (full, short, "here", "in this pass")):
        made = compare(one, None, two)
        assert [sorted(e.flags & {"there", "here"}) for e in made.trace.events].count([flag]) == 1
        assert made.trace.events[2].label == "force" and flag in made.trace.events[2].flags
        assert f"1 launch only {where}: #2 force." in made.said
        assert made.first is not None and made.first.position == 2 and "which only" in made.said[0]
        scene = drawn(made)
        assert [m.id for m in scene.marks if m.cls == "event lacking"] == (["event-2"] if flag == "there" else [])
        assert texts(scene, "flag-2") == ["parts · only here" if flag == "here" else "parts · only there"]
        assert len(event_rows(made.trace, against=made)) == 7


def test_memory_that_only_one_has_is_a_lane_and_is_said():
    def run(extra):
        x, y, z = wb.ones(N, requires_grad=True), wb.zeros(N), wb.zeros(N)
        with wb.Tape() as tape:
            wb.launch(force, dim=N, inputs=[x, 1.0], outputs=[y])
            if extra:
                wb.copy(z, y)
        tape.backward(grads={y: wb.ones(N)})
        return tape

    made = compare(run(False), None, run(True))
    assert "Memory only in the other: z." in made.said and "1 launch only in the other: #1 copy." in made.said
    assert len(made.trace.allocations) == 3 and Picture(made.trace, against=made).drawn().marks
    assert "Memory only in this pass: z." in compare(run(True), None, run(False)).said


def test_tapes_that_share_nothing_are_laid_beside_each_other_all_the_same():
    empty = wb.Tape()
    with empty:
        pass
    for other in (precise(wb.float64), empty, swing(backward=False)[0]):
        for one, two in ((swing()[0], other), (other, swing()[0])):
            figure = one.show(against=two)
            assert figure.svg and re.search("only|backward", figure.text)


def test_what_is_no_pass_is_refused_with_the_line_to_write():
    with pytest.raises(wb.errors.LaunchError, match="against="):
        swing()[0].show(against=3)
    tape, _, e = swing()
    with pytest.raises(wb.errors.GradientError):
        tape.show(against={e: 1.0})


def test_a_tape_without_backward_is_compared_by_its_values():
    made = compare(swing(backward=False)[0], None, swing(k=2.0)[0])
    assert made.first is not None and made.first.kind == "value" and "k is 1 here, 2 there" in made.said[0]
    assert any("no backward()" in text for text in made.said)


# ---- what is drawn is what both tapes hold


def levels_at(trace: Trace, made: PassComparison) -> None:
    """Every bar of either pass is the largest adjoint that a walk of its tape leaves there."""
    tracks = Picture(trace, against=made).rows[0].tracks
    assert tracks.other is not None
    names = {track.id: track.names[0].name for track in trace.allocations}
    for side, drawn_side, place in ((made.here, tracks.side, 0), (made.there, tracks.other, 1)):
        adjoints: dict[tuple[int, str], float] = {}

        def note(event, space, tape=side.tape, adjoints=adjoints):
            for a in tape.arrays.values():
                size = float(np.abs(space[a.allocation].data.view(np.float32)).max()) if a.allocation in space else 0.0
                adjoints[tape.events.index(event), tape.names.noted[id(a)]] = size

        side.tape.retrace(note)
        for bar in drawn_side.found.bars:
            if bar.level is None or not bar.given:
                continue
            n = made.places[bar.e1][place]
            assert n is not None
            assert bar.level.max_abs == pytest.approx(adjoints[n, names[bar.allocation]], rel=1e-6)


changes = st.fixed_dictionaries(
    {},
    optional={
        "k": st.sampled_from([1.0, 2.0]),
        "steps": st.integers(1, 4),
        "dt": st.sampled_from([0.1, 0.2]),
        "skip": st.lists(st.tuples(st.sampled_from(["force", "move"]), st.integers(0, 3)), max_size=2),
    },
)


@settings(max_examples=15, deadline=None)
@given(one=changes, two=changes)
def test_both_passes_are_drawn_with_their_own_numbers_whatever_one_of_them_lacks(one, two):
    (first, q, _), (second, p, _) = swing(**one), swing(**two)
    made = compare(first, None, second)
    assert [n for n, _ in made.places if n is not None] == list(range(len(first.events)))
    assert [m for _, m in made.places if m is not None] == list(range(len(second.events)))
    ours, theirs = ({e.label for e in tape.events} for tape in (first, second))
    for n, m in made.places:
        if n is not None and m is not None:
            a, b = first.events[n].label, second.events[m].label
            assert a == b or a not in theirs or b not in ours
    levels_at(made.trace, made)
    assert made.first is not None or np.allclose(q.grad.numpy(), p.grad.numpy(), rtol=1e-4)
    scene = drawn(made)
    assert bool(texts(scene, "parts-tag")) == (made.first is not None)
    boxes = [box_of(label) for label in labels_of(scene)]
    assert not [
        (a, b)
        for k, a in enumerate(boxes)
        for b in boxes[k + 1 :]
        if a[0] < b[2] - 1 and b[0] < a[2] - 1 and a[1] < b[3] - 1 and b[1] < a[3] - 1
    ]
    filled = [m for m in scene.marks if m.id.startswith("bar-") and "parted" in m.cls]
    assert filled or not any(p.kind == "adjoint" for p in made.partings)


def test_bars_are_filled_in_the_other_colour_exactly_where_the_numbers_differ():
    tape, _, e = swing()
    wrong = tape.backward(e, pitfall=pitfalls.frozen_loops)  # no loop in this program: nothing changes
    assert compare(tape, None, wrong).first is None
    assert not any("parted" in m.cls for m in drawn(compare(tape, None, wrong)).marks if m.id.startswith("bar-"))
    made = compare(swing(k=1.0)[0], None, swing(k=1.0, odd=0, kernel=forgot)[0])
    tracks = Picture(made.trace, against=made).rows[0].tracks
    parts = {(p.allocation, p.position) for p in made.partings if p.kind == "adjoint"}
    for row, bar in zip(tracks.tables["bars"], tracks.side.sources["bars"], strict=True):
        if bar.given:
            assert row.parts == ((bar.allocation, bar.e1) in parts)


# ---- alignment


class Fake:
    """A tape of which only kinds and labels are asked."""

    def __init__(self, labels, kind=None):
        self.events = [type("E", (), {"kind": kind or c, "label": c, "where": None})() for c in labels]


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_alignment_is_in_order_and_as_long_as_it_can_be(ours, theirs):
    pairs = aligned(Fake(ours), Fake(theirs))
    assert all(ours[n] == theirs[m] for n, m in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))
    table = np.zeros((len(ours) + 1, len(theirs) + 1), int)
    for i, a in enumerate(ours):
        for j, b in enumerate(theirs):
            table[i + 1, j + 1] = table[i, j] + 1 if a == b else max(table[i, j + 1], table[i + 1, j])
    assert len(pairs) == table[-1, -1]


def test_renamed_kernels_and_much_that_differs_are_laid_beside_each_other_by_place():
    names = ["force", "move"] * 400
    pairs = aligned(Fake(names, "L"), Fake([name.replace("move", "moved") for name in names], "L"))
    assert pairs == [(n, n) for n in range(800)]
    pairs = aligned(Fake(["a", "b", "c", "d"], "L"), Fake(["a", "x", "c"], "L"))
    assert pairs == [(0, 0), (1, 1), (2, 2)]


def test_numbers_have_as_many_digits_as_tell_them_apart():
    assert distinct_digits(-0.10081, -0.11023) == ("-0.1008", "-0.1102")
    one, two = distinct_digits(1.0, float(np.nextafter(np.float32(1), np.float32(2))))
    assert one != two and re.fullmatch(r"1\.\d+", two)
    assert distinct_digits(float("nan"), 1.0) == ("nan", "1")


# ---- many launches and lanes


@wb.kernel
def root(u: wb.array[float], k: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = u[i] + 0.1 * wb.sqrt(k[i] - u[i])


def chain(scale, steps=16):
    """A list of arrays, each made of the one before."""
    u = [wb.array(np.linspace(0.1, 1, N, dtype=np.float32), requires_grad=True), *(wb.zeros(N) for _ in range(steps))]
    k = wb.array(np.full(N, scale, np.float32), requires_grad=True)
    with wb.Tape() as tape:
        for n in range(steps):
            wb.launch(root, dim=N, inputs=[u[n], k], outputs=[u[n + 1]])
    tape.backward(grads={u[steps]: wb.ones(N)})
    return tape


def test_a_list_that_is_one_row_shows_both_passes_and_that_its_numbers_differ():
    made = compare(chain(4.0), None, chain(4.4))
    scene = drawn(made)
    tops = [m.y for m in scene.marks if m.id.startswith("name-family-0-0") and m.kind == "rect"]
    names = [m.text for m in labels_of(scene) if m.id.startswith("name-")]
    assert names == ["u[0…16] ×17", "k"] * len(tops) and len(tops) == 3, "in each row of launches"
    near = [m for m in scene.marks if any(top - 12 < m.y < top + 40 for top in tops)]
    assert {"strip band", "strip band twin"} <= {m.cls for m in near}
    lines = [m for m in near if m.cls == "partedline"]
    assert len(lines) == 32 and all(m.w > 30 for m in lines), "of values and adjoints, at each of 16 launches"
    assert not [m for m in drawn(compare(chain(4.0), None, chain(4.0))).marks if m.cls == "partedline"]


def test_a_folded_loop_of_two_passes_shows_both_and_its_tag_above_it():
    tape, other = swing(40)[0], swing(40, odd=1, kernel=forgot)[0]
    scene = drawn(compare(tape, None, other))
    order = [m.id for m in scene.marks]
    assert "force, move ×40" in texts(scene, "gap-label")
    assert order.index("gap") < order.index("parts-tag"), "or the fold would hide it"
    assert any(m.cls.endswith(" twin") for m in scene.marks)
    assert next(m for m in scene.marks if m.id == "gap-flag").cls == "badge odd"


def test_what_is_nan_is_black_in_a_comparison_too():
    made = compare(chain(0.5), None, chain(4.0))
    assert made.trace.values and any("nan" in m.cls for m in drawn(made).marks if m.cls.startswith("strip block"))


def test_where_two_runs_part_is_said_once():
    figure = swing(6)[0].show(against=swing(6, odd=2, kernel=forgot)[0])
    for text in (figure.text, figure.html.partition("<img")[0]):
        assert text.count("the runs part in") >= 1 and "They part first" not in text
    tape, _, e = swing()
    wrong = tape.show(against=tape.backward(e, pitfall=pitfalls.overwritten))
    assert "part first" in wrong.text, "no strip says it"

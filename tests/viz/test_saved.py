"""What a live view leaves in a saved notebook: a picture of bounded size that says what the tape was."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter

import pytest

import workbench as wb
from tests.support import view_samples as samples
from workbench.viz.data.envelope import ill_blocks
from workbench.viz.data.event_kinds import excerpt
from workbench.viz.data.gather import Gather, gather, with_levels
from workbench.viz.data.lanes import Adjoints, cut_memory, versions_of
from workbench.viz.data.trace import fold_flags
from workbench.viz.live.view import STYLE, View

pytest.importorskip("anywidget")
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def displayed(monkeypatch):
    """What is displayed, as (data, display id or None, is it an update)."""
    import IPython.display as ipython

    found = []

    class Handle:
        def update(self, data, raw):
            found.append((data, "x", True))

    def display(data, raw, display_id=None, metadata=None):
        found.append((data, display_id, False))
        return Handle()

    monkeypatch.setattr(ipython, "display", display)
    return found


def svg_of(html: str) -> str:
    return base64.b64decode(re.findall(r"base64,([A-Za-z0-9+/=]+)", html)[0]).decode()


def test_a_view_is_displayed_as_a_picture_and_then_a_widget(displayed):
    View(samples.springs()[0])._ipython_display_()
    (still, handle, _), (live, none, _) = displayed
    assert WIDGET not in still and STYLE in still["text/html"] and "forces #0" in svg_of(still["text/html"])
    assert "#0 forces" in still["text/plain"] and handle and none is None
    assert WIDGET in live and (live["text/plain"], live["text/html"]) == ("", "")


@pytest.mark.parametrize("launches", [10, 1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_live_output_adds_at_most_300_kilobytes_to_a_notebook(displayed, launches):
    tape, _ = samples.crowd(launches, min(launches, 200))
    view = View(tape)
    view._ipython_display_()
    view.answer({"ask": "levels"})
    stored = [displayed[-1][0], displayed[1][0]] if displayed[-1][2] else [data for data, _, _ in displayed]
    assert len(json.dumps(stored)) <= 300_000
    assert f"{launches:,} launches".replace(",", "\u202f") in svg_of(stored[0]["text/html"])


def test_long_names_do_not_make_it_larger(displayed):
    x = wb.zeros(4, dtype=float, requires_grad=True, name="ä" * 5000)
    with wb.Tape() as tape:
        for _ in range(300):
            wb.launch(samples.double, dim=4, inputs=[x])
    View(tape)._ipython_display_()
    assert len(json.dumps([data for data, _, _ in displayed])) <= 300_000


def test_adjoints_that_come_later_come_into_the_picture(displayed, monkeypatch):
    monkeypatch.setattr("workbench.viz.live.view.AT_ONCE", 2)
    view = View(samples.springs()[0])
    view._ipython_display_()
    assert "seed  loss" not in svg_of(displayed[0][0]["text/html"])
    view.answer({"ask": "levels"})
    data, _, update = displayed[-1]
    assert update and "seed  loss" in svg_of(data["text/html"])


def test_the_picture_is_of_the_tape_as_it_was_when_the_view_was_made():
    tape, arrays = samples.springs()
    view = View(tape)
    before = view.still()
    arrays["positions"].fill_(7.0)
    with tape:
        wb.launch(samples.double, dim=1, inputs=[arrays["loss"]])
    assert view.still() == before


def test_a_structure_with_levels_is_the_whole_trace():
    tape = samples.ill(3)[0]
    assert with_levels(Gather(tape).structure(), Gather(tape).levels()) == gather(tape)


# --- long tapes


@pytest.fixture(scope="module")
def long():
    return gather(samples.ill(60)[0]), gather(samples.springs(40)[0])


def test_a_shortened_tape_says_what_the_whole_one_does(long):
    for whole in long:
        short = excerpt(whole, 10)
        assert len(short.events) < len(whole.events) and short.summary == whole.summary
        assert fold_flags(short.events) == fold_flags(whole.events)
        assert sum(event.count for event in short.events) == len(whole.events)
        kinds = Counter(event.kind for event in whole.events)
        assert kinds == sum((Counter({event.kind: event.count}) for event in short.events), Counter())


def test_both_ends_of_a_shortened_tape_are_drawn_as_they_are(long):
    for whole in long:
        short = excerpt(whole, 10)
        shift = len(whole.events) - len(short.events)
        ends = {*range(-1, 10), *range(len(whole.events) - 10, len(whole.events) + 1)}
        want, got = drawn(whole, 0, ends), drawn(short, shift, ends)
        assert want and want == got


def drawn(trace, shift, ends):
    """Versions and adjoints that begin or end at the ends of a tape."""
    cuts = cut_memory(trace, [])
    count = len(trace.events)

    def place(moment):
        return moment if moment < count // 2 else moment + shift

    bars = Adjoints(trace, cuts, [event.adjoint for event in trace.events], trace.seeds, ()).bars
    found = {(b.allocation, b.lo, b.hi, b.version, place(b.e0), place(b.e1)) for b in versions_of(trace, cuts)}
    found = {(key, lo, hi, v.number, e0, e1) for key, lo, hi, v, e0, e1 in found}
    found |= {(b.allocation, b.lo, b.hi, b.level, place(b.e0), place(b.e1)) for b in bars}
    cut = {tuple(e if k < 4 or e in ends else "gap" for k, e in enumerate(one)) for one in found}
    return {one for one in cut if one[4:] != ("gap", "gap")}


def test_the_extremes_of_what_is_left_out_stay(long):
    for whole in long:
        short = excerpt(whole, 10)
        keys = {track.id for track in short.allocations}
        for key in keys:
            assert extremes(whole, key) == extremes(short, key)


def test_the_first_ill_value_that_is_left_out_stays():
    x = wb.array([1.0, 2.0], dtype=float, requires_grad=True)
    y = wb.zeros(2, dtype=float, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        for k in range(60):
            wb.launch(samples.step, dim=2, inputs=[y, y, 0.5])
            if k == 29:
                wb.launch(samples.root, dim=2, inputs=[wb.zeros_like(x), y])
    whole = gather(tape)
    short = excerpt(whole, 10)
    cuts = cut_memory(short, [])
    ill = {versions_of(short, cuts)[n].e0 for n in ill_blocks(versions_of(short, cuts), short.values)}
    labels = [short.events[e0].heading for e0 in sorted(ill) if short.events[e0].index >= 0]
    assert labels[0] == "#30 root" and all(int(label.split()[0][1:]) >= 30 for label in labels)


def extremes(trace, key):
    found = [level for event in trace.events for level in event.adjoint if level.allocation == key]
    sizes = [level.max_abs for level in found if level.state == "value"]
    return max(sizes, default=0), min(sizes, default=0), {level.state for level in found}

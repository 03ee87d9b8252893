"""The static tape view: scenes as data, valid SVG, the same facts as a table, and a display that never raises."""

from __future__ import annotations

import base64
import re
import unicodedata
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support import viz_samples as samples
from tests.support.drawn import box_of, labels_of
from workbench.viz.data import lanes, rows
from workbench.viz.data.envelope import Scale
from workbench.viz.data.marks import DARK, LIGHT, thickness
from workbench.viz.data.text import apart, clean, clean_lines, fit, fit_ends, fit_middle, text_width
from workbench.viz.data.trace import (
    AdjointLevel,
    EventColumn,
    KeptRange,
    Seed,
    TouchMark,
    Trace,
    event_flags,
    fold_flags,
    join_levels,
)
from workbench.viz.picture.figure import TapeFigure, event_rows
from workbench.viz.picture.scene import Picture
from workbench.viz.picture.svg import Mark, Scene, render
from workbench.viz.picture.window import LEFT, PAGE, ROWS

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('1')</script>&\"]]>\x00\x1b[31m\u202eevil\ud800\n長い名前"


def hostile() -> Trace:
    track = samples.track_of(HOSTILE, 64, [(HOSTILE, 0, 64), (HOSTILE, 8, 16, True)], HOSTILE, 4)
    touches = [samples.read(HOSTILE, HOSTILE, 0, hi=64), samples.write(HOSTILE, HOSTILE, 1, hi=32)]
    event = EventColumn(
        HOSTILE,
        0,
        "launch",
        HOSTILE,
        HOSTILE,
        HOSTILE,
        touches,
        [KeptRange(HOSTILE, 0, 32, 32, HOSTILE)],
        [samples.level(HOSTILE, 1.0, 2, hi=64)],
    )
    return Trace([track], [event], [Seed(HOSTILE)], HOSTILE)


def crowd(number: int) -> Trace:
    tracks = [samples.track_of(f"m{n}", 8, [(f"a{n}", 0, 8)]) for n in range(number)]
    events = [
        EventColumn(f"L{n}", n, "launch", "step", touches=[samples.read(f"m{n}", f"a{n}", 0, hi=8)])
        for n in range(number)
    ]
    return Trace(tracks, events)


def family(number: int) -> Trace:
    """One allocation with very many names."""
    names = [(f"state[{n}].q", 8 * n, 8 * n + 8) for n in range(number)]
    return Trace([samples.track_of("m0", 8 * number, names, "float64", 8)], [])


TRACES = {
    "springs": samples.springs,
    "overlap": samples.overlap,
    "ill": samples.ill,
    "hostile": hostile,
    "empty": lambda: Trace([], []),
    "long": lambda: samples.long(1000),
    "narrow": lambda: samples.long(60),
    "many": lambda: samples.many_names("integrate_semi_implicit", 40),
    "crowd": lambda: crowd(300),
    "wide": lambda: samples.many_names("f", 24),
    "family": lambda: family(100),
    "one": lambda: samples.many_names("a_kernel_with_a_name_that_nobody_would_want_to_read_in_full", 1),
}


@pytest.fixture(params=TRACES)
def trace(request: pytest.FixtureRequest) -> Trace:
    return TRACES[request.param]()


def marks(scene: Scene, prefix: str) -> list[Mark]:
    return [mark for mark in scene.marks if mark.id.startswith(prefix)]


def looks(scene: Scene, cls: str) -> list[Mark]:
    return [mark for mark in scene.marks if set(cls.split()) <= set(mark.cls.split()) and "legend" not in mark.id]


def mark(scene: Scene, key: str) -> Mark:
    found = [item for item in scene.marks if item.id == key]
    assert len(found) == 1, f"{key}: {[item.id for item in scene.marks]}"
    return found[0]


def spans(picture: Picture, table: str, key: str) -> list[tuple[float, float, Any]]:
    """(x0, x1, source) of the versions ("blocks") or adjoints ("bars") that are drawn of a memory."""
    (row,) = picture.rows
    tracks = row.tracks
    sources = tracks.columns.order if table == "blocks" else tracks.side.sources[table]
    ends = [row.window.stretch(source.e0, source.e1) for source in sources]
    drawn = [(*at, source) for at, source in zip(ends, sources) if at is not None and source.allocation == key]
    boxes = [(mark.x, mark.x + mark.w) for mark in picture.drawn().marks]
    assert all(any(box == pytest.approx(one[:2], abs=0.02) for box in boxes) for one in drawn)
    return drawn


def moments(picture: Picture) -> list[float]:
    return [column.x for row in picture.rows for column in row.window.ones]


def overlap_of(a: Mark, b: Mark) -> bool:
    (al, at, ar, ab), (bl, bt, br, bb) = box_of(a), box_of(b)
    return al < br and bl < ar and at < bb and bt < ab


# ---- the scene as data


@pytest.mark.sampled
def test_ids_are_unique_and_the_same_trace_gives_the_same_picture(trace: Trace) -> None:
    scene = Picture(trace).drawn()
    assert [key for key, number in Counter(item.id for item in scene.marks).items() if number > 1] == []
    assert render(Picture(trace).drawn()) == render(scene)


@pytest.mark.sampled
def test_no_two_labels_overlap_and_none_leaves_the_picture(trace: Trace) -> None:
    scene = Picture(trace).drawn()
    labels = labels_of(scene)
    for n, a in enumerate(labels):
        left, top, right, bottom = box_of(a)
        assert left >= 0 and top >= 0 and right <= scene.width and bottom <= scene.height, a
        assert not [b for b in labels[n + 1 :] if overlap_of(a, b)], a


def test_version_labels_and_read_marks_do_not_collide(trace: Trace) -> None:
    scene = Picture(trace).drawn()
    labels = [item for item in labels_of(scene) if item.id.startswith("block-")]
    signs = [item for item in scene.marks if item.kind in ("circle", "square", "diamond") and "meet" not in item.cls]
    assert not [(a.text, b.id) for a in labels for b in signs if overlap_of(a, b)]


def test_drawing_order_is_ground_values_adjoints_accesses() -> None:
    order = [item.id.split("-")[0] for item in Picture(samples.springs()).drawn().marks]
    first = {key: order.index(key) for key in ("ground", "title", "event", "block", "bar", "arrow", "meet", "read")}
    assert sorted(first, key=first.__getitem__) == list(first)


def test_every_access_is_a_mark_of_its_own_shape_at_its_event() -> None:
    trace = samples.springs()
    scene, columns = Picture(trace).drawn(), {}
    for n in range(5):
        box = mark(scene, f"event-{n}")
        columns[n] = box.x + box.w / 2
    kinds = {"read": "circle", "write": "square", "accumulate": "diamond"}
    for n, event in enumerate(trace.events):
        for k, touch in enumerate(event.touches):
            sign = mark(scene, f"{touch.how}-{n}-{k}")
            assert sign.kind == kinds[touch.how]
            middle = sign.x + sign.w / 2
            assert (middle < columns[n]) if touch.how == "read" else (middle > columns[n])
            assert abs(middle - columns[n]) < 30


def test_a_new_block_starts_at_every_write_and_ends_at_the_next() -> None:
    picture = Picture(samples.springs())
    found, x = spans(picture, "blocks", "m0"), moments(picture)
    assert [block.version.number for _, _, block in found] == [0, 1, 2]
    assert [x1 for _, x1, _ in found] == [x[1] - 3, x[3] - 3, picture.right]
    assert [x0 for x0, _, _ in found[1:]] == [x[1] + 3, x[3] + 3]


def test_contents_that_nobody_read_before_they_were_overwritten_are_no_version() -> None:
    found = spans(Picture(samples.springs()), "blocks", "m2")
    assert [block.version.number for _, _, block in found] == [1, 2]


def test_a_part_of_the_memory_is_a_band_at_its_own_height() -> None:
    lane = Picture(samples.overlap()).rows[0].tracks.columns.rows["m0"]
    top, tall = lane.value_span(0, 48)
    assert (top, tall) == (lane.value_top, lane.track_height / 2)
    assert lane.value_span(32, 96) == pytest.approx((lane.value_top + lane.track_height / 3, lane.track_height * 2 / 3))
    scene = Picture(samples.overlap()).drawn()
    (sign,) = [item for item in marks(scene, "write-1-") if item.kind == "square"]
    halves = [item for item in marks(scene, "block-m0") if item.cls == "block" and item.y <= sign.y]
    block = max(halves, key=lambda item: item.y)
    assert block.y <= sign.y + sign.h / 2 <= block.y + 24


def test_a_write_of_a_part_leaves_the_version_of_the_rest() -> None:
    blocks = [block for _, _, block in spans(Picture(samples.overlap()), "blocks", "m0")]
    halves = {(block.lo, block.hi, block.version.number) for block in blocks}
    assert (48, 96, 0) in halves and (32, 48, 1) in halves
    assert not [block for block in blocks if block.version.number == 1 and block.hi > 48]


def test_names_of_one_memory_are_hatched_and_said() -> None:
    scene = Picture(samples.springs()).drawn()
    assert {mark(scene, f"name-m0-{n}").cls for n in (0, 1)} == {"chip shared"}
    assert mark(scene, "note-m0").text == "one memory, two names"
    assert mark(scene, "name-m1-0").cls == "chip"
    assert mark(Picture(samples.overlap()).drawn(), "note-m0").text == "one memory, three names"


def test_a_name_of_a_part_shows_its_range() -> None:
    scene = Picture(samples.overlap()).drawn()
    texts = [item.text for item in labels_of(scene) if item.id.startswith("name-m0")]
    assert texts == ["x", "left [0:12)", "right [8:24)"]
    bytes_only = samples.track_of("m", 96, [("a", 0, 96), ("b", 0, 48)])
    assert bytes_only.range_text(0, 48) == "[0:48) B"


def test_a_strided_write_is_hatched_and_never_solid() -> None:
    scene = Picture(samples.overlap()).drawn()
    strided = looks(scene, "block strided")
    assert len(strided) >= 1


def test_many_names_become_one_label_that_counts_them() -> None:
    texts = [item.text for item in labels_of(Picture(family(100)).drawn()) if item.id.startswith("name-")]
    assert len(texts) == 7 and texts[-1] == "+94 names"


def test_the_title_line_counts_and_names_the_seed() -> None:
    scene = Picture(samples.springs()).drawn()
    assert mark(scene, "summary").text == "5 launches · 4 allocations · 5 names"
    assert mark(scene, "seed").text == "seed  loss[0] = 1"
    assert "1 copy · 1 fill" in mark(Picture(samples.overlap()).drawn(), "summary").text


# ---- the adjoint track


def test_a_level_holds_to_the_left_of_its_event_until_another_event_changes_it() -> None:
    picture = Picture(samples.springs())
    x, right = moments(picture), picture.right
    bars = {(x0, x1): bar.level.max_abs for x0, x1, bar in spans(picture, "bars", "m1")}
    assert bars[LEFT, x[1] - 3] == 0.4
    assert bars[x[1] + 3, x[3] - 3] == 2.0
    assert bars[x[3] + 3, x[4] - 3] == 0.02
    assert (x[4] + 3, right) not in bars and (x[4] + 3, right) in [s[:2] for s in spans(picture, "absent", "m1")]


def test_the_seed_is_the_level_after_the_last_event() -> None:
    picture = Picture(samples.springs())
    _, x1, last = max(spans(picture, "bars", "m3"), key=lambda one: one[1])
    assert x1 == picture.right and last.level.max_abs == 1.0


def test_thickness_is_the_clamped_logarithm() -> None:
    sizes = [thickness(AdjointLevel("m", 0, 4, size), Scale(-6.0, 3.0)) for size in (1e-30, 1e-6, 1e-3, 1.0, 1e3, 1e30)]
    assert sizes == pytest.approx([2.5, 2.5, 2.5 + 11.5 / 3, 2.5 + 23 / 3, 14, 14])


def test_nan_inf_zero_and_nothing_are_four_different_looks() -> None:
    scene = Picture(samples.ill()).drawn()
    (nan,) = looks(scene, "bar nan")
    (inf,) = looks(scene, "bar inf")
    assert mark(scene, f"{nan.id}-sign").cls == "sign nan" and mark(scene, f"{inf.id}-sign").cls == "sign inf"
    assert looks(scene, "bar zero") and looks(scene, "absent")


def test_a_level_without_a_number_worth_a_logarithm_still_draws() -> None:
    level = AdjointLevel("m0", 0, 64, 0.0, 0.0)
    trace = samples.many_names("f", 1)
    assert render(Picture(Trace(trace.allocations, trace.events, [Seed("f", level)])).drawn())


def test_arrows_run_from_right_to_left_along_what_the_event_says() -> None:
    scene = Picture(samples.springs()).drawn()
    found = {item.id for item in looks(scene, "arrow")}
    assert found == {
        "arrow-0-1-0",
        "arrow-1-4-0",
        "arrow-1-3-1",
        "arrow-2-1-0",
        "arrow-3-4-0",
        "arrow-3-3-1",
        "arrow-4-2-0",
        "arrow-4-2-1",
    }
    for arrow in looks(scene, "arrow"):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", arrow.path)]
        assert numbers[0] > numbers[-2]


def test_no_arrow_where_no_adjoint_arrives_and_a_dotted_one_where_it_dies() -> None:
    scene = Picture(samples.ill()).drawn()
    assert mark(scene, "arrow-4-1-0").cls == "arrow dead"
    assert mark(scene, "arrow-0-1-0").cls == "arrow ill"
    events = [
        EventColumn("L0", 0, "launch", "f", touches=[TouchMark("m0", "a", 0, 64), TouchMark("m1", "b", 0, 64, "write")])
    ]
    tracks = [samples.track_of("m0", 64, [("a", 0, 64)]), samples.track_of("m1", 64, [("b", 0, 64)])]
    assert not looks(Picture(Trace(tracks, events)).drawn(), "arrow")


def test_contributions_that_meet_are_counted_once_per_level() -> None:
    assert [item.text for item in labels_of(Picture(samples.springs()).drawn()) if item.id.startswith("meet")] == [
        "+2"
    ] * 3
    assert len(looks(Picture(samples.overlap()).drawn(), "meet")) == 2


# ---- flags and folding


def test_flags_come_from_the_levels_and_from_the_tape() -> None:
    flags = [event_flags(event) for event in samples.ill().events]
    assert flags == [{"nan", "inf"}, {"inf"}, set(), set(), {"died"}]
    assert event_flags(samples.overlap().events[1]) == {"kept", "aliased"}
    assert "aliased" not in event_flags(samples.springs().events[1])


def test_the_hidden_middle_says_how_many_and_keeps_its_flags() -> None:
    trace = samples.long(1000)
    scene = Picture(trace).drawn()
    shown = len([item for item in marks(scene, "event-") if not item.id.endswith("label")])
    first, last = shown - shown // 2, 999 - shown // 2
    assert mark(scene, "gap-label").text == f"step #{first}-#{last}"
    assert mark(scene, "gap-flag-label").text == "NaN ×1"
    assert fold_flags(trace.events)["nan"] == 1


@pytest.mark.slow
def test_the_mark_budget_holds_however_long_or_wide_the_tape_is() -> None:
    for trace in (samples.long(5000), crowd(1000), samples.many_names("f", 5000)):
        scene = Picture(trace).drawn()
        assert len(scene.marks) <= 2000 and scene.width <= 3300
        assert marks(scene, "event-0") and marks(scene, f"event-{len(trace.events) - 1}")


def test_a_bracket_spans_neighbours_of_one_scope_only() -> None:
    """Neither over another scope, nor over the gap of what is left out."""
    track = samples.track_of("m0", 8, [("a", 0, 8)])

    def brackets(scopes: list[str]) -> list[float]:
        events = [
            EventColumn(f"L{n}", n, "launch", "step", scope=scope, touches=[samples.read("m0", "a", 0, hi=8)])
            for n, scope in enumerate(scopes)
        ]
        scene = Picture(Trace([track], events), page=1e4).drawn()  # in one row of launches
        found = [m for m in marks(scene, "scope-") if m.kind == "path"]
        ends = [[float(x) for x in re.findall(r"[MH]([\d.]+)", m.path)] for m in found]
        return [to - at for at, to in ends]

    one = brackets(["a"])[0]
    pitch = brackets(["a", "a"])[0] - one
    assert [round((wide - one) / pitch) for wide in brackets(["a", "a", "", "a", "b", "b"])] == [1, 0, 1]
    long = brackets(["run"] * 1000)
    assert len(long) == 2 and all(wide < 600 * pitch for wide in long)


@pytest.mark.parametrize("name", ["narrow", "long", "many", "crowd", "springs"])
def test_a_tape_wider_than_a_page_goes_on_in_further_rows_of_launches(name: str) -> None:
    """Each event is in one row, at its place; a version or an adjoint that lasts longer is drawn in each of them."""
    trace = TRACES[name]()
    picture = Picture(trace)
    scene, windows = picture.drawn(), [row.window for row in picture.rows]
    assert scene.width <= PAGE and len(windows) <= ROWS
    assert all(one.first == before.last for before, one in pairwise(windows)) and windows[0].first == 0
    assert windows[-1].last == len(trace.events)
    for row, window in zip(picture.rows, windows):
        assert all(LEFT <= column.x0 and column.x1 <= picture.right for column in window.columns)
        for column in window.ones:
            box = mark(scene, f"event-{column.a}")
            assert box.x + box.w / 2 == pytest.approx(column.x, abs=0.02) and box.y + box.h <= row.tracks.top
        title = [label.text for label in labels_of(scene) if label.id == f"row-{row.number}"]
        ends = f"row {row.number + 1} of {len(windows)}: #{window.first} to #{window.last - 1}"
        assert [text.removesuffix(", goes on below") for text in title] == [ends] * (len(windows) > 1)
        assert all(text.endswith("below") == (row is not picture.rows[-1]) for text in title)
    drawn = [m.id for m in marks(scene, "block-") if m.kind == "rect" and not m.id.endswith("start")]
    found = Counter(re.sub(r"(-m\d+-\d+)-\d$", r"\1", key) for key in drawn)
    order = picture.rows[0].tracks.columns.order
    shown = [(k, block) for k, block in enumerate(order) if picture.rows[0].tracks.row_of(block.allocation)]
    lasts = {f"block-{b.allocation}-{k}": sum(bool(w.stretch(b.e0, b.e1)) for w in windows) for k, b in shown}
    assert found == Counter(lasts) and (len(windows) == 1 or max(lasts.values()) == len(windows))


def test_name_labels_have_rows_enough() -> None:
    """Short names share lines as far as they have room; the rest is one more name; the row is as high as its lines."""

    def lines(*names: tuple[str, int, int], narrow: int = 0) -> int:
        lane = lanes.Lane(samples.track_of("m0", 16, list(names), "", 4), 15.0, (0, 16))
        size = rows.picture_rows({"m0": lane})[0].sizes[narrow]
        edge, ends = rows.NAMES[narrow] - rows.BESIDE, {}
        for label in size.labels:
            assert label.x >= ends.get(label.line, 0) and label.x + label.wide <= edge + 0.1
            ends[label.line] = label.x + label.wide
        assert size.height >= 12 + 24 * len(ends) + 18
        return len(ends)

    short, wide, part = ("x", 0, 16), ("positions_of_all", 0, 16), ("p", 0, 8)
    assert [lines(*[(f"abcdef{n}", 0, 16) for n in range(k)]) for k in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]
    assert lines(wide) == lines(part) == lines(short) == 1 and lines(wide, ("q", 0, 16), part) == 2
    many = [(f"of_some_length_{n}", 0, 16) for n in range(rows.NAME_BUDGET)]
    assert lines(*many) == rows.NAME_BUDGET and lines(*many, short) == rows.NAME_BUDGET + 1
    assert lines(short, ("y", 0, 16), narrow=3) == 1 and lines(wide, short, narrow=3) == 2


def test_the_range_of_a_name_is_never_cut_off() -> None:
    lane = lanes.Lane(
        samples.track_of("m0", 96, [("a_name_that_is_long", 0, 96), ("another_name", 0, 48)], "", 4), 15.0, (0, 96)
    )
    (row,) = rows.picture_rows({"m0": lane})
    assert all(size.labels[1].text.endswith(" [0:12)") for size in row.sizes)
    assert [size.labels[1].text for size in row.sizes][0] == "another_name [0:12)"


def test_allocations_without_room_are_counted() -> None:
    picture = Picture(crowd(300))
    scene, shown = picture.drawn(), [row.tracks.rows for row in picture.rows]
    lanes = len(shown[0])
    assert len(marks(scene, "value-")) == lanes * len(shown) and all(len(rows) == lanes for rows in shown)
    assert mark(scene, "more-lanes").text == f"… {300 - lanes} more allocations, in the table"


def test_what_hidden_events_did_shows_to_the_right_of_the_gap() -> None:
    tracks = [samples.track_of("m0", 8, [("a", 0, 8)])]
    events = [
        EventColumn(
            f"L{n}",
            n,
            "launch",
            "f",
            touches=[TouchMark("m0", "a", 0, 8, "accumulate", n)],
            adjoint=[AdjointLevel("m0", 0, 8, float(n), 1.0)],
        )
        for n in range(1000)
    ]
    trace = Trace(tracks, events, [Seed("a", AdjointLevel("m0", 0, 8, 1000.0))])
    picture = Picture(trace, 2)
    (gap,) = picture.rows[0].window.groups
    assert (gap.a, gap.b) == (1, 999)
    assert [block.version.number for _, _, block in spans(picture, "blocks", "m0")] == [0, 1, 999, 1000]
    levels = [bar.level.max_abs for _, _, bar in sorted(spans(picture, "bars", "m0"), key=lambda one: one[0])]
    assert levels == [0, 1, 999, 1000]


def test_a_short_tape_is_exact_however_many_pieces_of_memory_it_names() -> None:
    """More than a live view cuts a lane into."""
    track = samples.track_of("m0", 488, [("x", 0, 488)], "", 4)
    touches = [TouchMark("m0", "x", 8 * n, 8 * n + 16, "write", n) for n in range(60)]
    events = [EventColumn(f"L{n}", n, "launch", "step", touches=[touch]) for n, touch in enumerate(touches)]
    blocks = [item for item in marks(Picture(Trace([track], events)).drawn(), "block-m0") if "start" not in item.id]
    assert len(blocks) > 60 and not any("v≤" in item.text for item in blocks)


def test_partly_changed_pieces_are_only_bounds_and_say_so() -> None:
    assert any(block.version.mixed for block in Picture(samples.long(1000)).rows[0].tracks.columns.order)


@pytest.mark.slow
def test_the_work_grows_linearly_with_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Counter[str]()
    places = ((lanes, "pieces"), (lanes, "runs"), (lanes.Adjoints, "_close"), (lanes.PieceValues, "close"))
    for place, name in places:
        real = getattr(place, name)

        def counted(*args: object, real: object = real, name: str = name) -> object:
            calls[name] += 1
            return real(*args)  # type: ignore[operator]

        monkeypatch.setattr(place, name, counted)
    work = []
    for number in (1000, 2000, 4000):
        calls.clear()
        scene = Picture(samples.long(number)).drawn()
        work.append(sum(calls.values()))
        assert len(scene.marks) <= 2000
    assert work[2] - work[1] == pytest.approx(2 * (work[1] - work[0]), rel=0.01)


def test_joined_levels_keep_the_worst() -> None:
    a, b = AdjointLevel("m", 0, 4, 3.0, 3.0, inf=True), AdjointLevel("m", 4, 8, 4.0, 4.0, nan=True)
    both = join_levels([a, b])
    assert both is not None and (both.lo, both.hi, both.max_abs, both.l2) == (0, 8, 4.0, 5.0)
    assert both.nan and both.inf and not both.zero and join_levels([]) is None


# ---- SVG


def test_the_svg_is_valid_and_labelled(trace: Trace) -> None:
    root = ElementTree.fromstring(render(Picture(trace).drawn()).encode("utf-8"))
    assert root.get("role") == "img" and len(root.get("aria-label", "")) > 20
    assert not root.findall(f".//{SVG}title"), "an image shows no tooltips"


def test_hostile_names_stay_text() -> None:
    svg = render(Picture(hostile()).drawn())
    root = ElementTree.fromstring(svg.encode("utf-8"))
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "style", "defs", "pattern", "marker", "rect", "circle", "path", "text", "title"}
    assert "<script" not in svg
    for bad in ("\x00", "\x1b", "\u202e", "\ud800"):
        assert bad not in svg and bad not in TapeFigure(hostile()).text
    assert "<script" not in TapeFigure(hostile()).html
    assert not {key for element in root.iter() for key in element.attrib if key.startswith("on")}


def test_the_svg_needs_nothing_from_outside() -> None:
    svg = render(Picture(samples.overlap()).drawn()).replace("http://www.w3.org/2000/svg", "")
    assert "http" not in svg and "@import" not in svg and "@font-face" not in svg and "<script" not in svg


def test_auto_holds_both_themes_and_the_others_one() -> None:
    scene = Picture(samples.springs()).drawn()
    auto, light, dark = (render(scene, theme) for theme in ("auto", "light", "dark"))
    assert "prefers-color-scheme:dark" in auto and "prefers-color-scheme" not in light + dark
    assert LIGHT["ground"] in light and DARK["ground"] not in light
    assert DARK["ground"] in dark and LIGHT["tint"] not in dark and DARK["tint"] in auto
    with pytest.raises(ValueError, match="auto"):
        render(scene, "sepia")


def test_text_that_has_no_room_is_shortened() -> None:
    assert fit("integrate", 1000, 12) == "integrate"
    short = fit("integrate", 40, 12)
    assert short.endswith("…") and text_width(short, 12) <= 40
    assert fit("integrate", 2, 12) == "" and text_width("長", 10) == 2 * text_width("a", 10)


# ---- the table


MUCH_ALIKE = (
    ["body.mass_left_front_wheel", "body.mass_right_front_wheel"],
    ["integrate_forces_of_every_particle_x", "integrate_forces_of_every_particle_y"],
    [f"{part}_{end}" for part in ("wheel_stiffness", "wheel_damping") for end in ("front", "rear")],
    [f"layers.{k}.attention.weight" for k in range(12)],
)


@pytest.mark.parametrize("names", MUCH_ALIKE)
@pytest.mark.parametrize("room", [150, 110, 90])
def test_what_names_differ_in_is_in_sight_where_they_have_no_room(names: list[str], room: float) -> None:
    spans = apart(names)
    shown = [fit_ends(name, room, 11.5, True, spans[name]) for name in names]
    assert len({*shown}) == len(names) and all(text_width(text, 11.5, True) <= room for text in shown)
    assert all(re.search(".*".join(map(re.escape, text.split("…"))), name) for text, name in zip(shown, names))
    heads = [fit_middle(f"{name} #{n}", room + 30, 11.5, True, spans[name]) for n, name in enumerate(names)]
    assert len({head.rpartition(" ")[0] for head in heads}) == len(names), "apart without their numbers"


def test_names_that_are_not_alike_are_cut_as_if_alone() -> None:
    assert apart(["positions", "velocities", "loss"]) == {} and apart(["x"]) == {} == apart(["x", "x"])
    assert apart(["mass_left", "mass_right"]) == {"mass_left": (5, 9), "mass_right": (5, 10)}
    assert fit_ends("a_name_of_some_length", 60, 11.5, True) == "a_na…gth"
    assert fit_ends("a_name", 5, 11.5, True) == "" == fit_ends("a_name", 5, 11.5, True, (2, 6))


def test_lanes_and_heads_show_what_their_names_differ_in() -> None:
    names = ["state.bodies.mass_left_front_wheel_hub", "state.bodies.mass_right_front_wheel_hub"]
    tracks = [samples.track_of(f"m{n}", 8, [(name, 0, 8)]) for n, name in enumerate(names)]
    kernels = ["integrate_left_front_wheel_hub", "integrate_right_front_wheel_hub"]
    events = [
        EventColumn(f"L{n}", n, "launch", name, touches=[samples.read(f"m{n}", names[n], 0, hi=8)])
        for n, name in enumerate(kernels)
    ]
    scene = Picture(Trace(tracks, events)).drawn()
    for key, side in ((0, "left"), (1, "right")):
        lane, head = mark(scene, f"name-m{key}-0-label").text, mark(scene, f"event-{key}-label").text
        assert side in lane and "…" in lane and side in head and "…" in head and head.endswith(f" #{key}")


def test_the_table_has_the_facts_of_the_picture() -> None:
    text = TapeFigure(samples.springs()).text
    row = next(line for line in text.splitlines() if line.startswith("#4 energy"))
    assert re.search(r"springs\.py:35\s+positions v2\s+loss v0→v1 accumulate", row)
    assert "384 B: forces #0 reads positions v0" in text and "seed  loss[0] = 1" in text
    assert "(2 names, one memory)" in text and "5 launches · 4 allocations · 5 names" in text


def test_the_table_gives_the_adjoint_after_and_before_each_event() -> None:
    row = event_rows(samples.springs())[2]
    assert row[0] == ("#2 forces",)
    assert row[5] == ("positions 0.6", "forces 0.1") and row[6] == ("positions 3", "forces 0 exactly")
    ill = event_rows(samples.ill())
    assert ill[0][6] == ("x NaN and Inf", "distance 0 exactly") and ill[4][7] == ("died",)
    assert ill[0][5][0] == "x none"


def test_the_table_names_parts_by_their_range() -> None:
    rows = event_rows(samples.overlap())
    assert rows[1][2] == ("right [8:24) v0",) and rows[1][3] == ("left [0:12) v0→v1",)
    assert rows[2][3] == ("grid[:, 0] [0:23) strided v1→v2",)


def test_columns_of_the_table_are_aligned() -> None:
    lines = TapeFigure(samples.springs()).text.splitlines()[2:]
    rule = lines[1]
    starts = [n for n, c in enumerate(rule) if c == "─" and (n == 0 or rule[n - 1] == " ")]
    for line in lines[2 : lines.index("")]:
        assert all(n >= len(line) or n == 0 or line[n - 1] == " " for n in starts), line


def test_a_long_table_is_cut_and_says_so() -> None:
    rows = event_rows(samples.long(1000), 20)
    assert len(rows) == 21 and rows[10][0] == ("… 980 more launches", "step #10-#989") and rows[10][7] == ("nan ×1",)
    assert "… 100 more" in TapeFigure(crowd(300)).text


# ---- the figure


def test_the_bundle_is_an_image_with_its_table_and_no_widget() -> None:
    bundle = TapeFigure(samples.springs())._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == TapeFigure(samples.springs()).text
    html = bundle["text/html"]
    assert 'alt="tape: 5 launches' in html and "<details>" in html and html.count("<table>") == 2
    data = re.search(r"data:image/svg\+xml;base64,([^\"]+)", html)
    assert data and base64.b64decode(data[1]).decode("utf-8") == TapeFigure(samples.springs()).svg
    assert "<svg" not in html and "<script" not in html


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message either")


class Trap:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(name) if name.startswith("__") else Unprintable()


@pytest.mark.parametrize("broken", [None, 3, Trap(), Trace([], [None])])  # type: ignore[list-item]
def test_showing_never_raises_and_shows_the_reason_in_the_frame(broken: object) -> None:
    figure = TapeFigure(broken)  # type: ignore[arg-type]
    bundle = figure._repr_mimebundle_()
    assert "could not be drawn" in bundle["text/html"] and "data:image/svg+xml" in bundle["text/html"]
    assert "Error" in bundle["text/plain"] or "Unprintable" in bundle["text/plain"]


def test_events_on_unknown_memory_are_left_out_of_the_picture_and_explained_in_the_frame() -> None:
    event = EventColumn("L0", 0, "launch", "f", touches=[TouchMark("nowhere", "a", 0, 4)])
    assert render(Picture(Trace([], [event])).drawn())
    assert TapeFigure(Trace([], [event]))._repr_mimebundle_()["text/html"]


def test_saving_writes_svg_or_a_page(tmp_path: Path) -> None:
    figure = TapeFigure(samples.ill(), theme="dark")
    assert figure.save(tmp_path / "t.svg").read_text(encoding="utf-8") == figure.svg
    page = figure.save(str(tmp_path / "t.html")).read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "color-scheme:dark" in page
    with pytest.raises(ValueError, match=r"\.png"):
        figure.save(tmp_path / "t.png")
    with pytest.raises(ValueError, match="theme"):
        TapeFigure(samples.ill(), theme="blue")


def test_wrong_words_are_refused_where_they_are_written() -> None:
    with pytest.raises(ValueError, match="touch"):
        TouchMark("m0", "a", 0, 4, "peek")
    with pytest.raises(ValueError, match="event"):
        EventColumn("L0", 0, "party", "f")
    assert EventColumn("F0", 0, "zero_", "zero_").kind == "zero"


def test_text_that_is_plain_is_cleaned_and_measured_as_any_other() -> None:
    bad = ("Cc", "Cs", "Cf", "Co", "Cn", "Zl", "Zp")
    for c in map(chr, [*range(0x3100), 0xD800, 0xE000, 0xFEFF, 0xFFFF, 0x1F600, 0xE0001]):
        assert clean(f"a{c}b") == ("a\ufffdb" if unicodedata.category(c) in bad else f"a{c}b")
        assert text_width(f"a{c}", 10) == pytest.approx(text_width(f"é{c}", 10))  # of a letter that is not ASCII


def test_clean_text_can_go_anywhere() -> None:
    assert clean("a\x00b\nc\u202e\ud800") == "a\ufffdb\ufffdc\ufffd\ufffd"
    assert clean("δx 長い") == "δx 長い"
    assert clean_lines("a\x00b\nc") == "a\ufffdb\nc"


def test_two_views_side_by_side_are_both_there_and_say_what_they_are():
    one, other = TapeFigure(Trace((), (), title="one tape")), TapeFigure(Trace((), (), title="other tape"))
    both = one.beside(other)
    page = both._repr_mimebundle_()["text/html"]
    assert page.count("<img alt=") == 2 and "display:grid" in page
    assert "one tape" in repr(both) and "other tape" in repr(both)

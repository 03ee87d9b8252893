"""The static picture and the live view draw the same marks: same classes, heights, texts, sizes, at the same events.

Both are drawn from the same tables, as elements of SVG: what differs is where along time an event lies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

import workbench as wb
from tests.support import view_samples, viz_samples
from workbench.viz.data.columns import Columns, levels_of
from workbench.viz.data.gather import gather
from workbench.viz.data.loops import folds
from workbench.viz.data.trace import Trace
from workbench.viz.live.view import SCRIPTS, module
from workbench.viz.picture.scene import Picture
from workbench.viz.picture.svg import render
from workbench.viz.picture.window import LEFT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
Drawn = set[tuple[Any, ...]]
SAME = 12  # letters of a heading: how many have room is for each of the two to say
SVG = "{http://www.w3.org/2000/svg}"


def parts() -> wb.Tape:
    """Two names of overlapping parts, written through one and read through the other, and what was kept of them."""
    whole = wb.array([float(i) for i in range(24)], dtype=float, requires_grad=True)
    y = wb.zeros(24, dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        left, right = whole[0:8], whole[4:24]
        wb.launch(view_samples.double, dim=8, inputs=[left])
        wb.launch(view_samples.step, dim=8, inputs=[y, right, 0.5])
        wb.launch(view_samples.step, dim=4, inputs=[right, left, 0.5])
    tape.backward(grads={y: wb.ones_like(y)})
    return tape


TAPES = {
    "springs": lambda: view_samples.springs(3)[0],  # two names of one memory, scopes, kept bytes
    "loop": lambda: view_samples.springs(9)[0],  # turns that fold
    "ill": lambda: view_samples.ill(2)[0],  # NaN and Inf
    "forgotten": lambda: view_samples.forgotten()[0],  # overwritten, not kept; exact zeros
    "parts": parts,
}
TRACES = {
    **{f"drawn {name}": getattr(viz_samples, name) for name in ("springs", "overlap", "ill")},
    "many names": lambda: viz_samples.many_names("a name of some length", 3),
    "captured": lambda: _captured(),
    "wrong": lambda: _wrong(),
}


def _captured() -> Trace:
    """A tape that a capture has recorded, with its backward pass."""
    x = wb.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
    y = wb.zeros(3, dtype=float, requires_grad=True)
    with wb.capture():
        with wb.Tape() as tape:
            wb.launch(view_samples.step, dim=3, inputs=[y, x, 0.5])
            wb.launch(view_samples.double, dim=3, inputs=[y])
        tape.backward(grads={y: wb.ones_like(y)})
    return gather(tape)


def _wrong() -> Trace:
    """A pass that is wrong on purpose."""
    tape, arrays = view_samples.springs()
    wrong = tape.backward(arrays["loss"], pitfall=wb.pitfalls.alias)
    return gather(wrong.tape, wrong)


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Any]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


COMPOSE = """async ([text, state, blobs, pitch]) => {
    const m = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    for (const [name, list] of Object.entries(blobs)) state[name] = new DataView(Uint8Array.from(list).buffer);
    const v = m.stateOf(m.offlineModel(state, async () => ({ ok: {} })), null);
    v.plot = { scrollTop: 0, clientHeight: 1e6 };
    v.spacer = { style: {} };
    v.tallest = 1e6;
    v.levels = m.decodeLevels(state.levels_meta, state.levels, v.tape);
    v.wide = v.left + m.RIGHT + pitch * v.all.count;
    v.u1 = v.all.count;
    m.placeRows(v);
    m.composed(v);
    const marks = v.marks.map(({ tag, cls, given, text, e }) => ({ tag, cls, given, text, e }));
    return { marks, columns: v.cols.map((c) => [c.a, c.b, c.x]), left: v.left, head: v.head, lanes: v.lanes };
}"""


def live_marks(page: Any, trace: Trace, found: list[Any], pitch: float) -> dict[str, Any]:
    columns = Columns(trace, found)
    meta, data, *_ = columns.side(levels_of(trace))
    state = json.loads(json.dumps({"meta": columns.meta, "levels_meta": meta, "cursor": 0}))
    blobs = {"columns": list(columns.data), "levels": list(data)}
    return page.evaluate(COMPOSE, [module(*SCRIPTS), state, blobs, pitch])


def static_marks(trace: Trace) -> dict[str, Any]:
    """The elements of the static picture, as those of the live view."""
    (row,) = (picture := Picture(trace, page=1e5)).rows  # as wide as one row of launches needs
    marks, window = [], row.window
    assert not window.groups
    for node in ElementTree.fromstring(render(picture.drawn())).iter():
        given = {key: number(value) for key, value in node.attrib.items()}
        if "class" in given and not str(given.get("id", "")).startswith("legend"):
            text = (node[0].tail if len(node) else node.text) or ""  # a tooltip comes first
            cls = given.pop("class").removeprefix("label ")
            marks.append({"tag": node.tag.removeprefix(SVG), "cls": cls, "given": given, "text": text})
    columns = [[c.a, c.b, c.x] for c in window.ones]
    return {"marks": marks, "columns": columns, "left": LEFT, "top": row.tracks.top, "pitch": window.pitch}


def number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


@pytest.mark.parametrize("name", [*TAPES, *TRACES])
def test_the_live_view_draws_the_marks_of_the_static_picture(page: Any, name: str) -> None:
    tape = TAPES[name]() if name in TAPES else None
    trace = gather(tape) if tape is not None else TRACES[name]()
    static = static_marks(trace)
    live = live_marks(page, trace, folds(tape) if tape is not None else [], static["pitch"])
    assert [c[:2] for c in live["columns"]] == [[n, n + 1] for n in range(len(trace.events))]
    want, got = (facts(picture, len(trace.events)) for picture in (static, live))
    assert {kind for kind, found in want.items() if found} >= {"block", "chip", "note", "touch", "event"}
    for kind, found in want.items():
        assert without_partner(found, got[kind]) == without_partner(got[kind], found) == [], kind


def test_what_a_fold_hides_is_hidden_and_the_rest_is_as_in_the_static_picture(page: Any) -> None:
    tape = view_samples.springs(9)[0]
    trace = gather(tape)
    outer = [fold for fold in folds(tape) if fold.parent == -1]
    columns = Columns(trace, outer)
    meta, data, *_ = columns.side(levels_of(trace))
    state = json.loads(json.dumps({"meta": columns.meta, "levels_meta": meta, "cursor": 0}))
    shut = COMPOSE.replace("v.wide =", "v.open = new Set(); v.all = m.units(v.meta.folds, v.n, v.open); v.wide =")
    live = page.evaluate(shut, [module(*SCRIPTS), state, {"columns": list(columns.data), "levels": list(data)}, 128.0])
    last = outer[-1].last
    assert live["columns"][0][:2] == [outer[0].first, outer[0].last] and len(live["columns"]) < len(trace.events)
    pictures = static_marks(trace), {**live, "top": 0}
    want, got = ({f for f in facts(p, len(trace.events))["touch"] if f[-2] >= last} for p in pictures)
    assert without_partner(want, got) == without_partner(got, want) == [] and want


# ---- marks as facts: (class, heights, texts, ..., events)


def without_partner(facts: Drawn, others: Drawn) -> list[tuple[Any, ...]]:
    """Facts that the other side does not have: numbers may differ by what float32 and two decimals lose."""

    def same(a: Any, b: Any) -> bool:
        return abs(a - b) < 0.06 if isinstance(a, float) and isinstance(b, float | int) else a == b

    return [f for f in facts if not any(len(f) == len(o) and all(map(same, f, o)) for o in others)]


def near(value: float) -> float:
    return round(float(value), 3)


class Moments:
    """Which event an x belongs to: -1 the left edge, the count the right one."""

    def __init__(self, columns: list[tuple[int, float]], count: int, left: float):
        self.columns, self.count, self.left = columns, count, left

    def at(self, x: float, slack: float = 4.0) -> int:
        for n, place in self.columns:
            if abs(place - x) <= slack:
                return n
        return -1 if x <= self.left + slack else self.count

    def beside(self, x: float) -> tuple[int, float]:
        """The nearest event, and how far right of it."""
        n, place = min(self.columns, key=lambda column: abs(column[1] - x))
        return n, near(x - place)


def facts(picture: dict[str, Any], count: int) -> dict[str, Drawn]:
    moments = Moments([(a, x) for a, _, x in picture["columns"]], count, picture["left"])
    out: dict[str, Drawn] = {k: set() for k in KINDS}
    marks, top = picture["marks"], picture.get("top", 0)
    for k, m in enumerate(marks):
        g, cls = m["given"], m["cls"].split()
        following = next((one["text"] for one in marks[k + 1 : k + 3] if one["tag"] == "text"), "")
        ends = (moments.at(g["x"]), moments.at(g["x"] + g["width"])) if "width" in g and "x" in g else ()
        if cls[0] == "block":
            texts = [
                one["text"] for one in marks[k + 2 : k + 4] if one["tag"] == "text" and not one["given"]["x"] < g["x"]
            ]
            text = next((text for text in texts if re.fullmatch(r"v≤?\d+", text)), "")
            out["block"].add((m["cls"], near(g["y"] - top), near(g["height"]), near(g["rx"]), text, *ends))
        elif cls[0] == "bar":
            out["bar"].add((m["cls"], near(g["y"] - top), near(g["height"]), near(g.get("opacity", 1)), *ends))
        elif cls[0] == "absent":
            out["absent"].add((near(g["y"] - top), near(g["height"]), *ends))
        elif cls[0] == "sign":
            out["sign"].add(m["cls"])
        elif cls[0] == "meet":
            text = following if following.startswith("+") else ""
            out["meet"].add((near(g["cy"] - top), near(g["r"]), text, *moments.beside(g["cx"])))
        elif cls[0] == "arrow":
            x0, y0, *_, y1 = numbers(g["d"])
            out["arrow"].add((m["cls"], near(y0 - top), near(y1 - top), near(g["stroke-width"]), moments.beside(x0)[0]))
        elif cls[0] in ("read", "write", "accumulate"):
            x, y, r = center(m)
            out["touch"].add((cls[0], m["tag"], near(y - top), near(r), *moments.beside(x)))
        elif cls[0] == "kept":
            x, y0, y1, *_ = numbers(g["d"])
            out["kept"].add((near((y0 + y1) / 2 - top), near(y1 - y0), *moments.beside(x)))
        elif cls[0] == "chip":
            text = next(later["text"] for later in marks[k + 1 :] if later["tag"] == "text")
            out["chip"].add((m["cls"], text, near(g["y"] - top), near(g["width"])))
        elif cls[0] in ("note", "faint") and g.get("x") == 16:
            out["note"].add((cls[0], m["text"], near(g["y"] - top)))
        elif cls[0] == "event":
            out["event"].add(
                (m["cls"].replace(" current", ""), following[:SAME], moments.beside(g["x"] + g["width"] / 2)[0])
            )
        elif cls[0] == "badge":
            out["badge"].add((following, moments.beside(g["x"] + g["width"] / 2)[0]))
    return out


KINDS = ("block", "bar", "absent", "sign", "meet", "arrow", "touch", "kept", "chip", "note", "event", "badge")


def center(mark: dict[str, Any]) -> tuple[float, float, float]:
    g = mark["given"]
    if mark["tag"] == "circle":
        return g["cx"], g["cy"], g["r"]
    if mark["tag"] == "rect":
        return g["x"] + g["width"] / 2, g["y"] + g["height"] / 2, g["width"] / 2
    x, y, r, *_ = numbers(g["d"])
    return x, y + r, r


def numbers(path: str) -> list[float]:
    return [float(text) for text in re.findall(r"-?[\d.]+(?:e-?\d+)?", path)]

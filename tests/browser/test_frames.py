"""A frame of the live view costs what is in sight, not what the tape has; and is the frame that the plain way draws."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import workbench as wb
from tests.support import view_samples
from workbench.viz.data.columns import Columns, levels_of
from workbench.viz.data.gather import gather
from workbench.viz.data.loops import folds
from workbench.viz.live.view import SCRIPTS, module

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

MAKE = """async ([text, state, blobs]) => {
    const m = await import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })));
    for (const [name, packed] of Object.entries(blobs))
        state[name] = new DataView(Uint8Array.from(atob(packed), (c) => c.charCodeAt(0)).buffer);
    const v = m.stateOf(m.offlineModel(state, async () => ({ ok: {} })), null);
    Object.assign(v, { plot: { scrollTop: 0, clientHeight: 800 }, spacer: { style: {} }, tallest: 800, wide: 1200 });
    v.open = new Set(v.meta.folds.keys());
    v.all = m.units(v.meta.folds, v.n, v.open);
    v.levels = m.decodeLevels(state.levels_meta, state.levels, v.tape);
    m.placeRows(v);
    Object.assign(window, { m, v, reads: 0 });
    const counted = (table) => new Proxy(table, { get: (of, name) => {
        if (typeof name === "string" && /^[0-9]+$/.test(name)) window.reads++;
        const found = of[name];
        return typeof found === "function" ? found.bind(of) : found;
    } });
    const { bars, absent, meets } = v.levels, { blocks, touches } = v.tape;
    if (state.counting) for (const table of [bars, absent, meets, blocks, touches])
        for (const field of Object.keys(table)) table[field] = counted(table[field]);
    window.frame = (u0, u1) => {
        Object.assign(v, { u0, u1 });
        window.reads = 0;
        m.composed(v);
        const { reads } = window;
        const facts = ({ tag, cls, given, text, e, label }) => ({ tag, cls, given, text, e, label });
        return { reads, marks: v.marks.map(facts) };
    };
    return v.all.count;
}"""
AGREE = """([lanes, lane, e0, e1, late, windows]) => {
    const on = m.spans(lanes, lane, Float32Array.from(e0), Float32Array.from(e1), late);
    return windows.map(([k, a, b]) => {
        const found = [];
        m.eachWithin(on, k, a, b, (row) => found.push(row));
        return found;
    });
}"""


def parts(steps: int) -> wb.Tape:
    """Ranges of one memory that overlap, so that what is drawn of them is out of order; and an array beside them."""
    rng = np.random.default_rng(4)
    whole, y = (wb.array(rng.random(40), dtype=float, requires_grad=True) for _ in range(2))
    with wb.Tape() as tape:
        for _ in range(steps):
            at, size = int(rng.integers(0, 32)), int(rng.integers(1, 8))
            one, two = whole[at : at + size], y[at : at + size]
            wb.launch(view_samples.step, dim=size, inputs=[one, two, 0.1] if rng.random() < 0.5 else [two, one, 0.1])
    tape.backward(grads={y: wb.ones_like(y)})
    return tape


@pytest.fixture
def page(browser: Browser) -> Iterator[Any]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def made(page: Any, tape: wb.Tape, counting: bool = False) -> int:
    trace = gather(tape)
    columns = Columns(trace, folds(tape))
    meta, data, *_ = columns.side(levels_of(trace))
    state = json.loads(json.dumps({"meta": columns.meta, "levels_meta": meta, "cursor": 0, "counting": counting}))
    blobs = {"columns": columns.data, "levels": data}
    texts = {name: base64.b64encode(blob).decode() for name, blob in blobs.items()}
    return page.evaluate(MAKE, [module(*SCRIPTS), state, texts])


def frame(page: Any, u0: float, u1: float) -> dict[str, Any]:
    return page.evaluate("([u0, u1]) => frame(u0, u1)", [u0, u1])


@pytest.mark.parametrize("tape", [lambda: view_samples.springs(700)[0], lambda: view_samples.crowd(2000, 40)[0]])
def test_a_frame_looks_only_at_what_is_in_sight(page: Any, tape: Any) -> None:
    count = made(page, tape(), counting=True)
    frame(page, 0, 20)  # what is made once
    near = [frame(page, at, at + 20) for at in (100, 101, count // 2, count // 2 + 1, count - 30)]
    assert all(one["reads"] < 6000 and len(one["marks"]) <= 1900 for one in near), [one["reads"] for one in near]
    first, again, moved = (frame(page, at, count // 2 + at) for at in (0, 0, count // 30))
    assert again["reads"] < first["reads"] / 3 and moved["reads"] < first["reads"] / 2
    assert again["marks"] == first["marks"] and len(first["marks"]) <= 1900


def test_frames_that_remember_are_those_that_do_not(page: Any) -> None:
    count = made(page, parts(400))
    rng = np.random.default_rng(1)
    for _ in range(12):
        size = float(rng.choice([8, 40, 150, count]))
        at = float(rng.random() * (count - size))
        frame(page, at + 1, at + size + 1)
        seen = frame(page, at, at + size)["marks"]
        page.evaluate("[v.levels.seen, v.tape.seen].forEach((one) => one.clear())")
        assert seen == frame(page, at, at + size)["marks"]


@pytest.mark.parametrize("late", [False, True])
def test_rows_in_sight_are_those_that_last_into_the_window(page: Any, late: bool) -> None:
    made(page, parts(5))
    rng = np.random.default_rng(7)
    lane, e0 = rng.integers(0, 3, 300), rng.integers(-1, 100, 300)
    e1 = e0 + rng.integers(1, 60, 300)
    windows = [(int(rng.integers(0, 3)), *sorted(map(int, rng.choice(130, 2, replace=False)))) for _ in range(60)]
    found = page.evaluate(AGREE, [3, lane.tolist(), e0.tolist(), e1.tolist(), late, windows])
    for (k, a, b), rows in zip(windows, found, strict=True):
        assert sorted(rows) == np.flatnonzero((lane == k) & (e1 >= a) & (e0 < b)).tolist()

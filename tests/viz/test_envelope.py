"""What many events are drawn as is the envelope of every launch inside: in Python and in the page, at any zoom."""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from workbench.viz.data.columns import Columns, levels_of, scale_of_levels
from workbench.viz.data.envelope import Bars, Scale, envelope_text, envelopes, ill_blocks, scale_of, stretches
from workbench.viz.data.lanes import Adjoints, cut_memory, versions_of
from workbench.viz.data.marks import THICK, strip_marks, thick
from workbench.viz.data.trace import (
    AdjointLevel,
    AllocationTrack,
    EventColumn,
    Fold,
    NameRange,
    Seed,
    TouchMark,
    Trace,
    ValueLevel,
)
from workbench.viz.live.view import SCRIPTS, module
from workbench.viz.picture.scene import Picture

SIZE = 64
HALVES = ((0, 64), (0, 32), (32, 64))
LEVELS = ("none", "value", "zero", "nan", "inf", "both", "huge", "tiny")


def level_of(kind: str, key: str, lo: int, hi: int, size: float) -> AdjointLevel:
    size = {"huge": 1e30, "tiny": 1e-30}.get(kind, size)
    nan, inf, zero = kind in ("nan", "both"), kind in ("inf", "both"), kind == "zero"
    return AdjointLevel(key, lo, hi, 0.0 if zero else size, 0.0 if zero else size, nan, inf, zero)


@st.composite
def traces(draw: Any, least: int = 1, most: int = 40) -> Trace:
    """Launches on two memories, whole or in halves, whose adjoints grow, die, explode or turn NaN."""
    count, parts = draw(st.integers(least, most)), draw(st.booleans())
    events = []
    for n in range(count):
        touches, adjoint = [], []
        for key in ("m0", "m1"):
            kind = draw(st.sampled_from(LEVELS))
            if kind == "none" and n:
                continue
            lo, hi = draw(st.sampled_from(HALVES)) if parts and key == "m0" else HALVES[0]
            touches.append(TouchMark(key, key, lo, hi, draw(st.sampled_from(("read", "write"))), n))
            if kind != "none":
                adjoint.append(level_of(kind, key, lo, hi, draw(st.sampled_from((0.1, 5.5, 92.0, 6.23)))))
        events.append(EventColumn(f"L{n}", n, "launch", "step", "", "", touches, adjoint=adjoint))
    tracks = [AllocationTrack(key, SIZE, [NameRange(key, 0, SIZE)], "", 4) for key in ("m0", "m1")]
    return Trace(tracks, events, [Seed("m1 = 1", AdjointLevel("m1", 0, SIZE, 1.0, 8.0))])


def history(trace: Trace, key: str) -> list[list[AdjointLevel | None]]:
    """Per moment the level of each half of a memory, by walking backwards: what any picture has to be true to."""
    now: list[AdjointLevel | None] = [None, None]
    for seed in trace.seeds:
        if seed.level is not None and seed.level.allocation == key:
            now = [seed.level, seed.level]
    found = [list(now)]
    for event in reversed(trace.events):
        for level in event.adjoint:
            if level.allocation == key:
                now = [level if level.lo <= lo < level.hi else old for lo, old in zip((0, 32), now, strict=True)]
        found.append(list(now))
    return found[::-1]


def facts(levels: Iterable[AdjointLevel | None]) -> dict[str, Any]:
    some = list(levels)
    there = [level for level in some if level is not None]
    plain = [level.max_abs for level in there if level.state == "value"]
    return {
        "most": max((level.max_abs for level in there), default=0.0),
        "least": min(plain, default=0.0),
        "value": bool(plain),
        "zero": any(level.zero for level in there),
        "nan": any(level.nan for level in there),
        "inf": any(level.inf for level in there),
        "absent": len(there) < len(some),
    }


def bars_of(trace: Trace) -> dict[str, Bars]:
    cuts = cut_memory(trace, trace.events)
    cuts = {key: (0, 32, 64) for key in cuts}
    found = Adjoints(trace, cuts, [event.adjoint for event in trace.events], trace.seeds, ())
    return {key: Bars.of([bar for bar in found.bars if bar.allocation == key]) for key in cuts}


@given(traces(), st.data())
@settings(max_examples=150, deadline=None)
def test_an_envelope_is_true_of_every_moment_inside(trace: Trace, data: Any) -> None:
    count = len(trace.events)
    a = data.draw(st.integers(0, count - 1))
    edges = stretches(a, data.draw(st.integers(a + 1, count)), data.draw(st.integers(1, 50)))
    for key, bars in bars_of(trace).items():
        found, truth = envelopes(bars, edges), history(trace, key)
        for k, (first, last) in enumerate(pairwise(edges)):
            one, inside = found.at(k), facts(level for moment in truth[first : last + 1] for level in moment)
            assert {name: getattr(one, name) for name in inside} == inside
            check_words(one, inside)
        check_strip(found, scale_of_levels(levels_of(trace)), truth, edges)


def check_words(one: Any, inside: dict[str, Any]) -> None:
    said = envelope_text(one, lambda moment: f"#{moment}", "#1..#2")
    only_zero = inside["zero"] and not (inside["value"] or inside["nan"] or inside["inf"] or inside["absent"])
    assert ("exactly" in said) == only_zero
    assert ("NaN" in said, "Inf" in said) == (inside["nan"], inside["inf"])
    if inside["value"] and inside["zero"] and not (inside["nan"] or inside["inf"]):
        assert said.startswith("0 to ")


def check_strip(found: Any, scale: Scale, truth: Any, edges: Any) -> None:
    """Every stretch has the marks of what is in it: no NaN, no zero and no size is lost."""
    marks = strip_marks(found, scale)
    for k, (first, last) in enumerate(pairwise(edges)):
        here = {mark.look: mark.thick for mark in marks if mark.first <= k < mark.last}
        inside = facts(level for moment in truth[first : last + 1] for level in moment)
        ill = "nan" if inside["nan"] else "inf" if inside["inf"] else ""
        wanted = {"band": round(thick(inside["most"], scale), 2)} if inside["value"] else {}
        if ill:
            assert here == {**wanted, f"bar {ill}": THICK}
            continue
        if inside["zero"]:
            wanted["bar zero"] = here["bar zero"]
        elif inside["value"]:
            wanted["bar value"] = round(thick(inside["least"], scale), 2)
        assert here == wanted


@given(traces(61, 75), st.data())
@settings(max_examples=25, deadline=None)
def test_the_static_picture_shows_what_is_inside_a_fold_and_a_cut_middle(trace: Trace, data: Any) -> None:
    count = len(trace.events)
    first, last = sorted(data.draw(st.lists(st.integers(0, count), min_size=2, max_size=2, unique=True)))
    ill = [ValueLevel("m1", 0, SIZE, m, nan=True) for m in data.draw(st.sets(st.integers(0, count), max_size=3))]
    folded = replace(trace, folds=(Fold("step ×7", first, last, "repeat", 7),), values=ill)
    for made, budget in ((folded, 2000), (trace, 400)):
        picture = Picture(made, budget)
        check_groups(made, picture, picture.drawn().marks)


def check_groups(trace: Trace, picture: Picture, marks: list[Any]) -> None:
    tracks = picture.rows[0].tracks
    blocks = versions_of(trace, tracks.columns.cuts)
    ill = [blocks[k] for k in ill_blocks(blocks, trace.values)]
    for n, group in enumerate(group for row in picture.rows for group in row.window.groups):
        for key in ("m0", "m1"):
            strips = [m for m in marks if m.id.startswith(f"gap{n or ''}-{key}-")]
            truth = facts(level for moment in history(trace, key)[group.a : group.b + 1] for level in moment)
            looks = " ".join(m.cls for m in strips if "-adjoint-" in m.id)
            assert ("nan" in looks) == truth["nan"]
            assert "inf" in looks or not truth["inf"] or truth["nan"]
            assert "zero" in looks or not truth["zero"] or truth["nan"] or truth["inf"]
            if truth["value"] and not truth["nan"] and not truth["inf"]:
                most = round(min(thick(truth["most"], tracks.scale), 15.0), 1)
                assert max(heights(strips)) >= most - 0.11
            black = any("block nan" in m.cls for m in strips)
            assert black == any(b.allocation == key and b.e1 >= group.a and b.e0 < group.b for b in ill)


def heights(strips: list[Any]) -> list[float]:
    return [float(v) for m in strips if "-adjoint-" in m.id for v in re.findall(r"v([\d.]+)", m.path)]


NODE = """
import { readFileSync } from "node:fs";
import { adjointsOf, decode, decodeLevels, envelopeText, stripMarks } from "./module.mjs";
const view = (text) => new DataView(Uint8Array.from(Buffer.from(text, "base64")).buffer);
const out = JSON.parse(readFileSync("cases.json", "utf8")).map(({ meta, data, lmeta, levels, asked }) => {
  const tape = decode(meta, view(data)), side = decodeLevels(lmeta, view(levels), tape);
  return asked.map(({ lane, edges }) => {
    const found = adjointsOf(tape, side, [lane], [edges]);
    const words = edges.slice(1).map((_, k) => envelopeText(found, k, (m) => `#${m}`, "#1..#2"));
    return { most: [...found.most], least: [...found.least], has: [...found.has], illAt: [...found.illAt], words,
      marks: stripMarks(found, lmeta.scale, meta.drawing.thick) };
  });
});
console.log(JSON.stringify(out));
"""


def in_the_page(folder: Path, cases: list[dict[str, Any]], script: str = NODE) -> list[Any]:
    """What the functions of the page make of these cases, run by Node."""
    (folder / "module.mjs").write_text(module(*SCRIPTS), "utf-8")
    (folder / "run.mjs").write_text(script, "utf-8")
    (folder / "cases.json").write_text(json.dumps(cases), "utf-8")
    done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def as_case(trace: Trace, asked: list[tuple[int, list[int]]], folds: Sequence[Fold] = ()) -> dict[str, Any]:
    columns = Columns(trace, folds)
    lmeta, levels, *_ = columns.side(levels_of(trace))
    wanted = [{"lane": lane, "edges": edges} for lane, edges in asked]
    texts = [base64.b64encode(part).decode() for part in (columns.data, levels)]
    return {"meta": columns.meta, "data": texts[0], "lmeta": lmeta, "levels": texts[1], "asked": wanted}


@pytest.mark.skipif(shutil.which("node") is None, reason="the functions of the page are run by Node")
def test_the_page_and_python_have_the_same_envelopes_marks_and_words(tmp_path: Path) -> None:
    made: list[tuple[Trace, list[tuple[int, list[int]]]]] = []

    @given(traces(), st.data())
    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def collect(trace: Trace, data: Any) -> None:
        a = data.draw(st.integers(0, len(trace.events) - 1))
        b, most = data.draw(st.integers(a + 1, len(trace.events))), data.draw(st.integers(1, 50))
        made.append((trace, [(lane, [int(e) for e in stretches(a, b, most)]) for lane in (0, 1)]))

    collect()
    answers = in_the_page(tmp_path, [as_case(trace, asked) for trace, asked in made])
    for (trace, asked), answer in zip(made, answers, strict=True):
        scale = scale_of_levels(levels_of(trace))
        for (lane, edges), page in zip(asked, answer, strict=True):
            one = envelopes(bars_of(trace)[f"m{lane}"], np.array(edges))
            assert page["most"] == pytest.approx(np.float32(one.most).tolist())
            assert page["least"] == pytest.approx(np.float32(one.least).tolist())
            parts = zip(one.value, one.zero, one.nan, one.inf, one.absent, strict=True)
            assert [bits & 31 for bits in page["has"]] == [sum(1 << k for k, b in enumerate(bs) if b) for bs in parts]
            assert page["illAt"] == one.ill_at.tolist()
            assert page["words"] == [
                envelope_text(one.at(k), lambda m: f"#{m}", "#1..#2") for k in range(len(one.most))
            ]
            marks = [[m.look, m.first, m.last, m.thick] for m in strip_marks(one, scale)]
            assert [m[:3] for m in page["marks"]] == [m[:3] for m in marks]
            assert [m[3] for m in page["marks"]] == pytest.approx([m[3] for m in marks], abs=0.011)


ZOOMS = """
import { readFileSync } from "node:fs";
import * as m from "./module.mjs";
const view = (text) => new DataView(Uint8Array.from(Buffer.from(text, "base64")).buffer);
const out = JSON.parse(readFileSync("cases.json", "utf8")).map(({ meta, data, lmeta, levels, asked }) => {
  const state = { meta, columns: view(data), levels: view(levels), levels_meta: lmeta };
  state.cursor = 0;
  const v = m.stateOf(m.offlineModel(state, async () => ({ ok: {} })), null);
  Object.assign(v, { plot: { scrollTop: 0, clientHeight: 1e6 }, spacer: { style: {} }, tallest: 1e6 });
  v.levels = m.decodeLevels(lmeta, state.levels, v.tape);
  v.sums = m.tallies(v.tape, v.levels);
  return asked.map(({ open, wide, from, to }) => {
    v.open = new Set(open);
    v.all = m.units(meta.folds, v.n, v.open);
    Object.assign(v, { wide, u0: from * v.all.count, u1: Math.max(to * v.all.count, from * v.all.count + 1) });
    m.placeRows(v);
    m.composed(v);
    const lanes = v.lanes.map((lane) => ({ value: lane.value, adjoint: lane.adjoint, tall: lane.tall }));
    const marks = v.marks.filter((one) => one.cls.startsWith("strip ")).map((one) => [one.cls, one.given.d]);
    const text = v.marks.filter((one) => one.cls === "mono" && (one.given.transform || one.given["text-anchor"]));
    const heads = text.filter((one) => !(one.given.x < v.left)).map((one) => one.text);
    const said = (col) => v.lanes.map((lane) => m.describe(v, col, lane));
    const cols = v.cols.map((col) => ({ a: col.a, b: col.b, said: said(col) }));
    const strips = v.strips.map(({ a, b, from, to }) => ({ a, b, from: from[0], to: to[to.length - 1] }));
    return { cols, strips, lanes, marks, heads };
  });
});
console.log(JSON.stringify(out));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="the functions of the page are run by Node")
def test_at_every_zoom_and_fold_the_page_shows_and_says_what_every_launch_inside_holds(tmp_path: Path) -> None:
    made: list[tuple[Trace, list[dict[str, Any]]]] = []

    @given(traces(1, 75), st.data())
    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def collect(trace: Trace, data: Any) -> None:
        count = len(trace.events)
        first, last = sorted(data.draw(st.lists(st.integers(0, count), min_size=2, max_size=2, unique=True)))
        ill = [ValueLevel("m1", 0, SIZE, m, nan=True) for m in data.draw(st.sets(st.integers(0, count), max_size=3))]
        asked = []
        for _ in range(3):
            ends = sorted((data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))))
            opened, wide = data.draw(st.sampled_from(([], [0]))), data.draw(st.sampled_from((500, 900, 1400)))
            asked.append({"open": opened, "wide": wide, "from": ends[0], "to": ends[1]})
        made.append((replace(trace, folds=(Fold("step ×7", first, last, "repeat", 7),), values=ill), asked))

    collect()
    cases = [{**as_case(trace, [], trace.folds), "asked": asked} for trace, asked in made]
    for (trace, asked), answers in zip(made, in_the_page(tmp_path, cases, ZOOMS), strict=True):
        for zoom, page in zip(asked, answers, strict=True):
            check_page(trace, page, zoom)


def check_page(trace: Trace, page: dict[str, Any], zoom: dict[str, Any]) -> None:
    covered = [n for strip in page["strips"] for n in range(strip["a"], strip["b"])]
    assert covered == [n for col in page["cols"] if col["b"] - col["a"] > 1 for n in range(col["a"], col["b"])]
    assert not any(head.startswith("#") for head in page["heads"]), zoom
    blocks = versions_of(trace, cut_memory(trace, trace.events))
    ill = [blocks[k] for k in ill_blocks(blocks, trace.values)]
    for k, (key, lane) in enumerate(zip(("m0", "m1"), page["lanes"], strict=True)):
        moments = history(trace, key)
        for col in page["cols"]:
            inside = [level for moment in moments[col["a"] : col["b"] + 1] for level in moment]
            truth, said = facts(inside), col["said"][k]
            adjoint = said.split("adjoint", 1)[1].split("values:")[0]
            assert (truth["nan"], truth["inf"]) == ("NaN" in adjoint, "Inf" in adjoint), said
            if col["b"] - col["a"] > 1:
                whole = truth["zero"] and not (truth["value"] or truth["nan"] or truth["inf"] or truth["absent"])
                assert ("exactly" in adjoint) == whole, said
        for strip in page["strips"]:
            truth = facts(level for moment in moments[strip["a"] : strip["b"] + 1] for level in moment)
            looks = looks_at(page["marks"], strip, lane["adjoint"], lane["tall"])
            assert ("strip bar nan" in looks) == truth["nan"]
            assert "strip bar inf" in looks or not truth["inf"] or truth["nan"]
            assert "strip bar zero" in looks or not truth["zero"] or truth["nan"] or truth["inf"]
            assert "strip band" in looks or not truth["value"] or truth["nan"] or truth["inf"]
            here = any(b.allocation == key and b.e1 >= strip["a"] and b.e0 < strip["b"] for b in ill)
            assert ("strip block nan" in looks_at(page["marks"], strip, lane["value"], lane["tall"])) == here


def looks_at(marks: list[list[str]], strip: dict[str, Any], top: float, tall: float) -> set[str]:
    """The looks of what is drawn on a track within a strip."""
    found = set()
    for look, path in marks:
        for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)h", path):
            if strip["from"] - 0.1 <= float(x) <= strip["to"] + 0.1 and top - 0.1 <= float(y) <= top + tall:
                found.add(look)
    return found


# ---- the scale


def test_sizes_of_one_tape_are_told_apart() -> None:
    scale = scale_of([5.5, 92.0])
    assert thick(92.0, scale) - thick(5.5, scale) > 8


@given(st.lists(st.floats(1e-40, 1e38), max_size=30))
def test_a_scale_has_three_numbers_and_holds_what_it_is_made_for(sizes: list[float]) -> None:
    scale = scale_of(sizes)
    assert 3 <= len(scale.ticks) <= 5 and list(scale.ticks) == sorted(set(scale.ticks))
    assert len(set(scale.texts)) == len(scale.texts)
    for size in sizes:
        assert math.log10(size) <= scale.high + 1e-6
        assert scale.below or math.log10(size) >= scale.low - 1e-6
    assert [scale.part(scale.ticks[0]), scale.part(scale.ticks[-1])] == pytest.approx([0, 1], abs=0.05)


def test_a_few_tiny_sizes_do_not_hide_the_others() -> None:
    scale = scale_of([1e-44] + [float(k) for k in range(1, 100)])
    assert scale.high - scale.low <= 13 and scale.below and scale.texts[0].startswith("≤ ")


def test_nothing_and_one_size_have_a_scale_too() -> None:
    assert len(scale_of([]).ticks) >= 3
    assert scale_of([1.0]).low < 0 < scale_of([1.0]).high

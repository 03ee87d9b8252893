"""A trace as columns of numbers: what the live view is sent, whether by a kernel or inside a page of its own.

One idea: texts once, in one list, and everything that there is per event as float32 columns in one run of bytes; the
page draws from them at any zoom without asking again. Adjoint levels travel apart, because they change with the seed
and take a walk. Invariants: events and touches are in their order; a range is (lane, lo, hi, strided), bytes half-open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .fold import Fold
from .gather import Levels
from .text import clean, sentence
from .trace import FLAGS, HOW, AdjointLevel, EventColumn, Seed, Trace, event_flags

TABLES = {
    "events": ("label", "kind", "where", "flags", "touches", "kept", "scope", "grid"),
    "touches": ("range", "name", "how", "before", "after"),
    "kept": ("range", "nbytes", "reason"),
    "arrows": ("event", "from", "to"),
}
LEVELS = ("event", "range", "max", "l2", "state", "met")
STATES = ("value", "zero", "nan", "inf")
BITS = {flag: 1 << n for n, flag in enumerate(FLAGS)}
LARGEST = float(np.finfo(np.float32).max)


class Texts:
    """Texts and ranges by number, each of them once."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.ranges: dict[tuple[int, int, int, bool], int] = {}

    def text(self, text: str) -> int:
        found = self.texts.get(text)
        if found is None:
            found = self.texts[text] = len(self.texts)
        return found

    def range(self, lane: int, lo: int, hi: int, strided: bool = False) -> int:
        key = lane, lo, hi, strided
        found = self.ranges.get(key)
        if found is None:
            found = self.ranges[key] = len(self.ranges)
        return found


class Columns:
    """The columns of one trace. `meta` is plain data for JSON, `data` the bytes of all tables one after the other."""

    def __init__(self, trace: Trace, folds: Sequence[Fold] = (), grids: Sequence[int] = ()):
        """`grids`: per event which grid its threads have, by a number of the caller's; -1 for none."""
        self.trace, self.names, self.grids = trace, Texts(), grids
        self.tally: dict[str, int] = {}
        self.lanes = {track.id: n for n, track in enumerate(trace.allocations)}
        rows: dict[str, list[float]] = {table: [] for table in TABLES}
        for event in trace.events:
            self._event(event, rows)
        tables, parts, at = {}, [], 0
        for table, fields in TABLES.items():
            columns = np.array(rows[table], np.float32).reshape(-1, len(fields)).T
            tables[table] = {"at": at, "rows": columns.shape[1], "fields": fields}
            parts.append(np.ascontiguousarray(columns))
            at += columns.size
        self.data = b"".join(part.tobytes() for part in parts)
        self.meta: dict[str, Any] = {
            "title": clean(trace.title), "summary": trace.summary, "sentence": sentence(trace, self.tally),
            "count": len(trace.events), "tables": tables, "flags": FLAGS, "how": HOW, "lanes": self._lanes(),
            "texts": [clean(text) for text in self.names.texts], "ranges": [list(r) for r in self.names.ranges],
            "folds": [fold.to_json() for fold in folds],
        }  # fmt: skip

    def _event(self, event: EventColumn, rows: dict[str, list[float]]) -> None:
        text, ranges, lanes = self.names.text, self.names.range, self.lanes
        flags = 0
        for flag in event_flags(event):
            flags |= BITS.get(flag, 0)
            self.tally[flag] = self.tally.get(flag, 0) + 1
        position = len(rows["events"]) // len(TABLES["events"])
        rows["events"] += (
            text(event.label), text(event.kind), text(event.where), flags,
            len(rows["touches"]) // len(TABLES["touches"]), len(rows["kept"]) // len(TABLES["kept"]), text(event.scope),
            self.grids[position] if self.grids else -1,
        )  # fmt: skip
        for touch in event.touches:
            rows["touches"] += (
                ranges(lanes[touch.allocation], touch.lo, touch.hi, touch.strided), text(touch.name),
                HOW.index(touch.how), touch.version_before, touch.version_after or 0,
            )  # fmt: skip
        for kept in event.kept:
            if kept.allocation in lanes:
                rows["kept"] += (ranges(lanes[kept.allocation], kept.lo, kept.hi), kept.nbytes, text(kept.reason))
        written = sum(touch.how != "read" for touch in event.touches)
        if len(event.arrows or ()) != written * (len(event.touches) - written):
            rows["arrows"] += (position, -1, -1)  # says that the arrows of this event are listed
            for a, b in event.arrows or ():
                rows["arrows"] += (position, a, b)

    def _lanes(self) -> list[dict[str, Any]]:
        return [
            {
                "id": clean(track.id), "nbytes": track.nbytes, "itemsize": track.itemsize, "text": clean(track.text),
                "names": [[clean(name.name), name.lo, name.hi, bool(name.strided)] for name in track.names],
            }
            for track in self.trace.allocations
        ]  # fmt: skip

    def levels(self, levels: Levels) -> tuple[dict[str, Any], bytes]:
        """The adjoint side: meta and bytes. Seeds are rows of the event after the last one."""
        rows: list[float] = []
        for position, found in enumerate(levels.events):
            for level in found:
                self._level(rows, position, level)
        for seed in levels.seeds:
            if seed.level is not None:
                self._level(rows, len(self.trace.events), seed.level)
        columns = np.array(rows, np.float32).reshape(-1, len(LEVELS)).T
        text = ", ".join(clean(seed.text) for seed in levels.seeds)
        meta = {
            "rows": columns.shape[1], "fields": LEVELS, "states": STATES, "seed": text, "died": levels.died,
            "ranges": [list(r) for r in self.names.ranges],
        }  # fmt: skip
        return meta, np.ascontiguousarray(columns).tobytes()

    def _level(self, rows: list[float], position: int, level: AdjointLevel) -> None:
        lane = self.lanes.get(level.allocation)
        if lane is not None:
            state = 2 if level.nan else 3 if level.inf else 1 if level.zero else 0
            rows += (
                position, self.names.range(lane, level.lo, level.hi), _held(level.max_abs), _held(level.l2), state,
                level.contributions,
            )  # fmt: skip


def _held(value: float) -> float:
    """A size as float32: one that is too large becomes the largest, not infinite."""
    return min(value, LARGEST) if math.isfinite(value) else value


def levels_of(trace: Trace) -> Levels:
    """The adjoint side of a whole trace."""
    died = [n for n, event in enumerate(trace.events) if "died" in event.flags]
    return Levels([list(event.adjoint) for event in trace.events], list(trace.seeds), died)


__all__ = ["Columns", "Levels", "Seed", "levels_of"]

"""The static picture: a title, the events along time, the rows below them (`tracks`), and the legend.

A tape wider than a page goes on in a further row of launches, with all lanes again. Invariants: the order is the
drawing order, the same trace gives the same marks, and no two labels overlap: a label that has no room is shortened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.columns import Columns, levels_of, scale_of_levels
from ..data.marks import LEGEND, WEDGE, odd
from ..data.text import BADGES, ODD, apart, clean, fit, fit_middle, sentence, text_width
from ..data.trace import Trace, event_flags, fold_flags, within_memory
from .svg import Scene
from .tracks import Sides, Tracks
from .window import ALONG, LEFT, MARGIN, MARK_BUDGET, PAGE, PITCH_MAX, RIGHT, TimeColumn, group_name, windows_of

if TYPE_CHECKING:
    from ..data.against import PassComparison

BETWEEN = 4.0  # two rows of launches
WEDGE_LEFT = 84.4  # where it begins in the legend
SIGNS = Path(__file__).with_name("legend.svg").read_text("utf-8")


class Picture:
    """A picture before it is drawn: its rows of launches on a `page` so wide.

    against   the other pass, to draw over it, whose columns `trace` must have.
    """

    def __init__(
        self, trace: Trace, budget: int = MARK_BUDGET, against: PassComparison | None = None, page: float = PAGE
    ):
        keys = {track.id for track in trace.allocations}
        trace = self.trace = replace(trace, events=[within_memory(event, keys) for event in trace.events])
        self.against, self.windows = against, windows_of(trace, len(keys), budget, page)
        self.right = self.windows[0].right
        self.scene = Scene(self.right + RIGHT, 0.0, sentence(trace))
        columns = Columns(trace, against=against, sight={one.a for window in self.windows for one in window.ones})
        sides = self._sides(columns)
        self.rows: list[LaunchRow] = []
        top = 14.0 if against is None else 42.0
        for number in range(len(self.windows)):
            self.rows.append(LaunchRow(self, columns, sides, number, top))
            top = self.rows[-1].bottom + BETWEEN
        self.bottom = self.rows[-1].bottom
        self.scene.height = self.bottom + 76

    def _sides(self, columns: Columns) -> Sides:
        """The adjoints of one pass or of both on one scale."""
        ours, theirs = levels_of(self.trace), None if self.against is None else self.against.other
        scale = scale_of_levels(ours) if theirs is None else scale_of_levels(ours, theirs)
        other = None if theirs is None else columns.side(theirs, scale, second=True)
        return columns.side(ours, scale), other, scale

    def drawn(self) -> Scene:
        self._title()
        self._two_passes()
        for row in self.rows:
            row.draw()
        self._legend()
        return self.scene

    def _title(self) -> None:
        trace, right, scene = self.trace, self.right, self.scene
        scene.add("rect", "ground", "ground", 0, 0, scene.width, scene.height, radius=8)
        title = fit(clean(trace.title), 360, 15)
        scene.label("title", "title wrong" if trace.wrong else "title", MARGIN, 26, title, 15)
        x = MARGIN + text_width(title, 15) + 4 * sum(c.isupper() for c in title) + 12  # bold capitals are wide
        scene.label("summary", "muted", x, 26, fit(trace.summary, right - x, 12), 12)
        if trace.seeds:
            seed = "seed  " + clean(trace.seed_text)
            room = right - x - text_width(trace.summary, 12) - 24
            scene.label("seed", "muted", right, 26, fit(seed, room, 12), 12, anchor="end")

    def _two_passes(self) -> None:
        """Draw the legend of both passes below the title."""
        made, scene = self.against, self.scene
        if made is None:
            return
        x, y = MARGIN, 48.0
        look = f"bar{odd(True, self.trace.wrong)}"
        signs = (("here", look, f"{made.here.title}, where it differs"), ("there", "outline", made.there.title))
        for key, cls, text in signs:
            scene.add("rect", f"pass-{key}", cls, x, y - 9, 26, 9, radius=4)
            text = fit(clean(text), self.right - x - 32, 12)
            scene.label(f"pass-{key}-label", "name", x + 32, y, text, 12)
            x += 32 + text_width(text, 12) + 18

    def _legend(self) -> None:
        """Draw the names of all signs, and the numbers of the scale of thickness below its wedge."""
        scene, scale, y = self.scene, self.rows[0].tracks.scale, self.bottom + 29
        words = {key: escape(text) for key, text in LEGEND.items()}
        scene.add("drawing", "legend", "", path=SIGNS.format_map({**words, "at": f"translate(0 {y:g})"}))
        for n, (tick, text) in enumerate(zip(scale.ticks, scale.texts, strict=True)):
            at = WEDGE_LEFT + WEDGE * scale.part(tick)
            scene.label(f"legend-scale-{n}", "faint", at, y + 41, text, 9, anchor="middle")


class LaunchRow:
    """One row of launches from `above` on: the boxes of its events along time, brackets over them, and all lanes."""

    def __init__(self, picture: Picture, columns: Columns, sides: Sides, number: int, above: float):
        windows, trace = picture.windows, picture.trace
        self.trace, self.scene, self.number, self.count = trace, picture.scene, number, len(windows)
        self.window = windows[number]
        self.spans = apart({clean(event.label) for event in trace.events})
        self.groups = sum(len(window.groups) for window in windows[:number])  # in the rows above
        ones = [trace.events[column.a] for window in windows for column in window.ones]
        widest = max((text_width(clean(event.name), 12, True) for event in ones), default=0.0)
        self.boxes = above + 30 + 16 * any(event.scope for event in ones)
        self.turned = self.window.pitch < ALONG and widest + 16 > self.window.pitch
        self.tall = min(widest, PITCH_MAX) + 16 if self.turned else 26
        flagged = any(event_flags(event) & BADGES.keys() for event in trace.events)
        top = self.boxes + self.tall + (28 if flagged else 14)
        self.tracks = Tracks(self.scene, columns, sides, windows, number, top)
        self.bottom = self.tracks.bottom

    def draw(self) -> None:
        tracks = self.tracks
        self._scopes()
        self._header()
        tracks.names()
        tracks.values()
        tracks.adjoints()
        tracks.families()
        tracks.outlines()
        tracks.touches()
        self._groups()
        tracks.parted()
        tracks.tag()
        self._group_badges()

    def _header(self) -> None:
        if self.count > 1:
            inside = self.trace.events[self.window.first : self.window.last]
            numbers = [event.index for event in inside if event.index >= 0] or [0]  # others stand for many
            on = ", goes on below" if self.number < self.count - 1 else ""
            text = f"row {self.number + 1} of {self.count}: #{numbers[0]} to #{numbers[-1]}{on}"
            self.scene.label(f"row-{self.number}", "muted", MARGIN, self.boxes + 17, text, 11)
        for column in self.window.ones:
            self._event_box(column)
        if not self.window.columns:
            self.scene.label("empty", "muted", LEFT, self.boxes + 18, "no events recorded", 12)

    def _event_box(self, column: TimeColumn) -> None:
        scene, event, key, pitch = self.scene, self.trace.events[column.a], column.a, self.window.pitch
        name, x, top, tall = clean(event.name), column.x, self.boxes, self.tall
        span = self.spans.get(clean(event.label))
        if self.turned:
            text, wide = fit_middle(name, tall - 14, 12, True, span), 20.0
        else:
            text = fit_middle(name, pitch - 22, 12, True, span)
            wide = max(text_width(text, 12, True) + 14, min(84.0, pitch - 10))
        scene.add("path", f"guide-{key}", "guide", path=f"M{x:.1f} {top + tall:.1f}V{self.bottom:.1f}")
        look = "event lacking" if "there" in event.flags else "event" if event.facts.step == "launch" else "event other"
        scene.add("rect", f"event-{key}", look, x - wide / 2, top, wide, tall, radius=6)
        x, y, anchor = (x + 4, top + tall - 7, "start") if self.turned else (x, top + 17, "middle")
        label, turned = f"event-{key}-label", self.turned
        scene.label(label, "name", x, y, text, 12, mono=True, anchor=anchor, turned=turned)
        flags = event_flags(event)
        words = [word for flag, word in BADGES.items() if flag in flags]
        self._badge(f"flag-{key}", words, column.x, top + tall + 16, pitch - 6)

    def _badge(self, key: str, words: Sequence[str], x: float, y: float, room: float) -> None:
        """Draw the flags of an event below its box; only the first letter where there is no room for the word."""
        if not words:
            return
        text = " · ".join(words)
        short = text if text_width(text, 9.5) + 12 <= room else "".join(word[0] for word in words)
        wide = text_width(short, 9.5) + 12
        of_two = {word.split(" ×")[0] for word in words} <= {BADGES[flag] for flag in ODD}
        look = "badge odd" if of_two else "badge"
        self.scene.add("rect", key, look, x - wide / 2, y - 11, wide, 14, radius=7)
        self.scene.label(f"{key}-label", "badgetext", x, y - 0.5, short, 9.5, anchor="middle")

    def _scopes(self) -> None:
        """Draw a bracket over neighbouring events of one loop or block."""
        ones, start, y = self.window.ones, 0, self.boxes - 8
        names = [self.trace.events[column.a].scope for column in ones]
        for n in range(1, len(ones) + 1):
            if n < len(ones) and names[n] == names[start] and ones[n].a == ones[n - 1].b:
                continue
            scope, room = clean(names[start]), 0.42 * self.window.pitch
            if scope:
                x0, x1 = ones[start].x - room, ones[n - 1].x + room
                path = f"M{x0:.1f} {y + 4:.1f}V{y - 1:.1f}H{x1:.1f}V{y + 4:.1f}"
                self.scene.add("path", f"scope-{ones[start].a}", "scope", path=path)
                place = (x0 + x1) / 2, y - 5, fit(scope, x1 - x0, 10), 10
                self.scene.label(f"scope-{ones[start].a}-label", "muted", *place, anchor="middle")
            start = n

    # ---- many events in one column

    def _groups(self) -> None:
        """Draw the columns of many events, each with its name in a box."""
        scene, top = self.scene, self.tracks.top
        for n, group in enumerate(self.window.groups, self.groups):
            key, x0, x1 = f"gap{n or ''}", group.x0 + 3, group.x1 - 3
            scene.add("rect", key, "gap", x0, top, x1 - x0, self.bottom - top)
            path = f"M{x0:.1f} {top:.1f}V{self.bottom:.1f}M{x1:.1f} {top:.1f}V{self.bottom:.1f}"
            scene.add("path", f"{key}-edges", "gapedge", path=path)
            self.tracks.strips(group, key)
            wide, look = group.x1 - group.x0 - 12, "event" if group.fold else "event other"
            scene.add("rect", f"{key}-box", look, group.x0 + 6, self.boxes, wide, 26, radius=6)
            text = fit_middle(group_name(self.trace, group), wide - 8, 12, True)
            place = group.x, self.boxes + 17, text, 12
            scene.label(f"{key}-label", "name", *place, mono=True, anchor="middle")

    def _group_badges(self) -> None:
        for n, group in enumerate(self.window.groups, self.groups):
            tally = fold_flags(self.trace.events[group.a : group.b])
            words = [f"{word} ×{tally[flag]}" for flag, word in BADGES.items() if flag in tally]
            place = group.x, self.boxes + 44, group.x1 - group.x0
            self._badge(f"gap{n or ''}-flag", words, *place)

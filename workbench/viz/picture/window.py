"""The fixed window of the static picture: where along time each event lies, as far as there is room.

A column is an event, or many: a fold that is shut, or the middle of a long tape. It decides nothing but x.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..data.marks import MOMENT
from ..data.text import clean, text_width
from ..data.trace import EventColumn, Fold, Trace

MARK_BUDGET = 2000
LANE_BUDGET = 48
WIDTH_CAP = 3200
LEFT, RIGHT, MARGIN = 280.0, 30.0, 16.0
PITCH, PITCH_MAX, PITCH_MIN = 128.0, 190.0, 36.0
GAP_WIDTH, GROUP_WIDTH, GROUPS_WIDTH = 176.0, 620.0, 1500.0  # of many events at least, at most; of all at most
OPEN = 60  # events up to which nothing is folded
FOLDS = 8  # columns of folds
Span = tuple[int, int, Fold | None]  # events [first, last), and the fold that they are


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """Events [a, b) between x0 and x1."""

    a: int
    b: int
    x0: float
    x1: float
    fold: Fold | None = None

    @property
    def many(self) -> bool:
        return self.b - self.a > 1

    @property
    def x(self) -> float:
        """Its middle: the moment of one event."""
        return (self.x0 + self.x1) / 2

    def place(self, position: float) -> float:
        """The x of a moment inside many events; with a half: of an event."""
        return self.x0 + (self.x1 - self.x0) * (position - self.a) / (self.b - self.a)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """All columns in their order; `pitch`: the width of one event; `right`: where the tracks end."""

    columns: tuple[TimeColumn, ...]
    pitch: float
    right: float

    @property
    def count(self) -> int:
        return self.columns[-1].b if self.columns else 0

    @property
    def ones(self) -> list[TimeColumn]:
        return [column for column in self.columns if not column.many]

    @property
    def groups(self) -> list[TimeColumn]:
        return [column for column in self.columns if column.many]

    def number(self, position: int) -> int:
        """The number of the column that an event is in; -1 before the first event."""
        return bisect_right(self.columns, position, key=lambda column: column.a) - 1

    def x(self, position: int) -> float:
        """The x of an event; the left end for -1, the right end for their count."""
        if position < 0 or position >= self.count:
            return LEFT if position < 0 else self.right
        return self.columns[self.number(position)].place(position + 0.5)

    def stretch(self, e0: int, e1: int) -> tuple[float, float] | None:
        """The ends of what lasts from after event `e0` to before event `e1`; None inside of many events."""
        x0, x1 = LEFT, self.right
        if e0 >= 0:
            column = self.columns[self.number(e0)]
            x0 = column.x1 if column.many else column.x + MOMENT
        if e1 < self.count:
            column = self.columns[self.number(e1)]
            x1 = column.x0 if column.many else column.x - MOMENT
        return (x0, x1) if x0 < x1 else None

    def alone(self, position: int) -> bool:
        """True if an event has a column of its own."""
        return not self.columns[self.number(position)].many

    def lasts(self, e0: int, e1: int) -> bool:
        """True if what lasts from after event `e0` to before event `e1` is in sight."""
        return self.stretch(e0, e1) is not None

    def gaps(self) -> Iterator[tuple[int, float, float]]:
        """Yields (moment, x0, x1) between the columns."""
        x = LEFT
        for column in self.columns:
            yield column.a, x, column.x0 if column.many else column.x
            x = column.x1 if column.many else column.x
        yield self.count, x, self.right


def window_of(trace: Trace, rows: int, budget: int = MARK_BUDGET) -> TimeWindow:
    """The window of a trace drawn in so many rows with so many marks."""
    events, spans = trace.events, _spans(trace, rows, budget)
    ones = [events[a] for a, b, _ in spans if b - a == 1]
    widest = max((text_width(clean(event.name), 12, True) for event in ones), default=0.0)
    widths = [0.0 if b - a == 1 else _group_width(b - a, fold) for a, b, fold in spans]
    shrink = min(GROUPS_WIDTH / max(sum(widths), 1), 1)
    room = WIDTH_CAP - LEFT - RIGHT - shrink * sum(widths)
    natural = min(max(widest + 28.0, PITCH), PITCH_MAX)
    pitch = max(PITCH_MIN, min(natural, room / max(len(ones), 1)))
    columns, x = [], LEFT + 0.04 * pitch
    for (a, b, fold), wide in zip(spans, widths, strict=True):
        x0, x = x, x + (shrink * wide or pitch)
        columns.append(TimeColumn(a, b, x0, x, fold))
    return TimeWindow(tuple(columns), pitch, max(x, LEFT + 3.5 * PITCH))


def _spans(trace: Trace, rows: int, budget: int) -> list[Span]:
    """Events one by one and folds; in the middle of a long tape runs of events that have no room."""
    folds = shut_folds(trace)
    shut = {fold.first: fold for fold in folds}
    spans: list[Span] = []
    while (n := spans[-1][1] if spans else 0) < len(trace.events):
        spans.append((n, shut[n].last if n in shut else n + 1, shut.get(n)))
    ones = [a for a, _, fold in spans if fold is None]
    head, tail = visible([trace.events[n] for n in ones], rows, budget - 60 * len(folds))
    hidden = set(ones[head : len(ones) - tail])
    found: list[Span] = []
    for a, b, fold in spans:
        run = a in hidden and found and found[-1][0] in hidden
        found[-1:] = [(found[-1][0], b, None)] if run else [*found[-1:], (a, b, fold)]
    return found


def shut_folds(trace: Trace) -> list[Fold]:
    """The outermost folds of a long tape: each is one column. None where they are too many."""
    found = [fold for fold in trace.folds if fold.parent == -1 and fold.last - fold.first > 1]
    return found if len(trace.events) > OPEN and len(found) <= FOLDS else []


def visible(events: Sequence[EventColumn], rows: int, budget: int) -> tuple[int, int]:
    """(head, tail): the numbers of events drawn from the start and from the end, all or within the mark budget."""
    total = len(events)
    room = budget - 22 * min(rows, LANE_BUDGET) - 40
    most = int((WIDTH_CAP - LEFT - RIGHT) / PITCH_MIN)
    head, tail = 0, 0
    while head + tail < min(total, most + 1) and room > 0:
        event = events[head] if head <= tail else events[total - 1 - tail]
        room -= 6 + 4 * len(event.touches) + 2 * len(event.kept) + 3 * len(event.adjoint) + len(event.arrows or ())
        head, tail = (head + 1, tail) if head <= tail else (head, tail + 1)
    if head + tail >= total and room > 0:
        return total, 0
    most -= int(GAP_WIDTH / PITCH_MIN) + 1
    return max(min(head, (most + 1) // 2), 1), max(min(tail, most // 2), 1)


def _group_width(events: int, fold: Fold | None) -> float:
    return GAP_WIDTH if fold is None else min(max(GAP_WIDTH, 3.0 * fold.count, 1.5 * events), GROUP_WIDTH)


def group_name(trace: Trace, column: TimeColumn) -> str:
    """`step ×200`, or `springs #3-#40`."""
    if column.fold is not None:
        return clean(column.fold.name)
    events = trace.events[column.a : column.b]
    names = list(dict.fromkeys(event.label for event in events if event.index >= 0))
    return clean(f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} {within(trace, column).replace('..', '-')}")


def within(trace: Trace, column: TimeColumn) -> str:
    """`#3..#40`: the events inside of a column of many, some of which may stand for others."""
    events, a, b = trace.events, column.a, column.b
    low = events[a - 1].index + 1 if a else events[0].index
    high = events[b].index - 1 if b < len(events) else events[-1].index
    return f"#{low}..#{high}"

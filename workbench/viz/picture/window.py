"""The fixed windows of the static picture: where along time each event lies, in one row of launches or in several.

A column is an event, or many: a fold that is shut, or the middle of a long tape. Nothing but x is decided here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..data.marks import MOMENT
from ..data.text import clean, text_width
from ..data.trace import EventColumn, Fold, Trace

MARK_BUDGET = 2000
LANE_BUDGET, LANE_MARKS, AGAIN = 48, 22, 12  # lanes; marks of a lane, and in each further row
PAGE, ROWS = 900.0, 4  # width of the picture, which A4 holds at four fifths; rows of launches
LEFT, RIGHT, MARGIN = 280.0, 30.0, 16.0
PITCH, PITCH_MAX, PITCH_MIN = 128.0, 190.0, 36.0
ALONG = 84.0  # the pitch from which names lie along
GAP_WIDTH, GROUP_WIDTH = 176.0, 460.0  # of many events at least, and at most
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


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The columns of one row in their order; `pitch`: the width of one event; `right`: where the tracks end."""

    columns: tuple[TimeColumn, ...]
    pitch: float
    right: float

    @property
    def first(self) -> int:
        return self.columns[0].a if self.columns else 0

    @property
    def last(self) -> int:
        """The event after its last one."""
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

    def column(self, position: int) -> TimeColumn | None:
        """The column that an event is in; None for one of another row."""
        return self.columns[self.number(position)] if self.first <= position < self.last else None

    def x(self, position: int) -> float:
        """The x of an event; the left end for one before, the right end for one after."""
        column = self.column(position)
        if column is None:
            return LEFT if position < self.first else self.right
        return column.x0 + (column.x1 - column.x0) * (position + 0.5 - column.a) / (column.b - column.a)

    def stretch(self, e0: int, e1: int) -> tuple[float, float] | None:
        """The ends of what lasts from after event `e0` to before event `e1`; None inside of many events."""
        x0, x1 = LEFT, self.right
        if e0 >= self.last > 0 or e1 < self.first:
            return None
        if (column := self.column(e0)) is not None:
            x0 = column.x1 if column.many else column.x + MOMENT
        if (column := self.column(e1)) is not None:
            x1 = column.x0 if column.many else column.x - MOMENT
        return (x0, x1) if x0 < x1 else None

    def alone(self, position: int) -> TimeColumn | None:
        """The column of an event that has one of its own."""
        column = self.column(position)
        return None if column is None or column.many else column

    def gaps(self) -> Iterator[tuple[int, float, float]]:
        """Yields (moment, x0, x1) between the columns."""
        x = LEFT
        for column in self.columns:
            yield column.a, x, column.x0 if column.many else column.x
            x = column.x1 if column.many else column.x
        yield self.last, x, self.right


def windows_of(trace: Trace, lanes: int, budget: int = MARK_BUDGET, page: float = PAGE) -> list[TimeWindow]:
    """The window of each row of a trace drawn in so many lanes with so many marks, on a page so wide."""
    events, room = trace.events, page - LEFT - RIGHT
    spans = _spans(trace, lanes, budget, room)
    ones = [events[a] for a, b, _ in spans if b - a == 1]
    widest = max((text_width(clean(event.name), 12, True) for event in ones), default=0.0)
    groups = [0.0 if b - a == 1 else _group_width(b - a, fold) for a, b, fold in spans]
    shrink = min(ROWS * room / 2 / max(sum(groups), 1), 1)
    widths = [min(shrink * wide, room) for wide in groups]
    natural = min(max(widest + 28.0, PITCH), PITCH_MAX)
    rows = min(len(_broken(widths, min(natural, ALONG), room)), ROWS)
    pitches = (natural - k for k in range(int(natural - PITCH_MIN)))
    pitch = next((one for one in pitches if len(_broken(widths, one, room)) <= rows), PITCH_MIN)
    found, ends = [], [LEFT + 3.5 * PITCH]
    for first, last in pairwise([*_broken(widths, pitch, room), len(spans)]):
        columns, x = [], LEFT + 0.04 * pitch
        for (a, b, fold), wide in zip(spans[first:last], widths[first:last], strict=True):
            x0, x = x, x + (wide or pitch)
            columns.append(TimeColumn(a, b, x0, x, fold))
        found.append(tuple(columns))
        ends.append(x)
    return [TimeWindow(columns, pitch, max(ends)) for columns in found]


def _broken(widths: Sequence[float], pitch: float, room: float) -> list[int]:
    """The number of the first column of each row; a column without a width is one event."""
    starts, x = [0], 0.04 * pitch
    for n, wide in enumerate(widths):
        x += wide or pitch
        if x > room and n > starts[-1]:
            starts.append(n)
            x = 0.04 * pitch + (wide or pitch)
    return starts


def _spans(trace: Trace, lanes: int, budget: int, room: float) -> list[Span]:
    """Events one by one and folds; in the middle of a long tape runs of events that have no room."""
    folds = [fold for fold in trace.folds if fold.parent == -1 and fold.last - fold.first > 1]
    if len(trace.events) <= OPEN or len(folds) > FOLDS:
        folds = []
    shut = {fold.first: fold for fold in folds}
    spans: list[Span] = []
    while (n := spans[-1][1] if spans else 0) < len(trace.events):
        spans.append((n, shut[n].last if n in shut else n + 1, shut.get(n)))
    ones = [a for a, _, fold in spans if fold is None]
    taken = sum(_group_width(fold.last - fold.first, fold) for fold in folds)
    head, tail = visible([trace.events[n] for n in ones], lanes, budget - 60 * len(folds), room, taken)
    hidden = set(ones[head : len(ones) - tail])
    found: list[Span] = []
    for a, b, fold in spans:
        run = a in hidden and found and found[-1][0] in hidden
        found[-1:] = [(found[-1][0], b, None)] if run else [*found[-1:], (a, b, fold)]
    return found


def visible(events: Sequence[EventColumn], lanes: int, budget: int, room: float, taken: float = 0.0) -> tuple[int, int]:
    """(head, tail): the numbers of events drawn from the start and from the end, all or within the mark budget.

    In as many rows, each so wide, as show the most of them; folds have `taken` of that width.
    """
    lanes, best = min(lanes, LANE_BUDGET), (0, 0)
    for rows in range(1, min(ROWS, max(2 * LANE_BUDGET // max(lanes, 1), 1)) + 1):
        left = budget - lanes * (LANE_MARKS + AGAIN * (rows - 1)) - 40
        most = int((rows * room - min(taken, rows * room / 2)) / PITCH_MIN) - rows + 1
        best = max(best, _fitting(events, left, most), key=sum)
    return best


def _fitting(events: Sequence[EventColumn], room: int, most: int) -> tuple[int, int]:
    """The numbers of events from the start and from the end that `most` columns and room for so many marks hold."""
    total, head, tail = len(events), 0, 0
    while head + tail < min(total, most) and room > 0:
        event = events[head] if head <= tail else events[total - 1 - tail]
        room -= 6 + 4 * len(event.touches) + 2 * len(event.kept) + 3 * len(event.adjoint) + len(event.arrows or ())
        head, tail = (head + 1, tail) if head <= tail else (head, tail + 1)
    if head + tail >= total and room > 0:
        return total, 0
    most -= 2 * int(GAP_WIDTH / PITCH_MIN) + 1  # of what stands for the others, and at the end of the row above it
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

"""Interval indexes: items on bytes of one allocation, found by an interval without looking at all of them.

A grid of cells on every scale (a hierarchical grid, as Ericson, Real-Time Collision Detection, 2005, section 7.2): an
interval enters the one or two cells, at least as long as it is, that it meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar

from .span import Span

T = TypeVar("T")
K = TypeVar("K")
FEW = 8  # so many are looked at one by one


class Intervals(Generic[T]):
    """An interval index: items in insertion order, each on an interval [low, high) of integers."""

    __slots__ = ("ends", "_scales")

    def __init__(self) -> None:
        self.ends: dict[T, tuple[int, int]] = {}
        self._scales: dict[int, dict[int, dict[T, None]]] | None = None  # log2 of the cells' length, cell, its items

    def __contains__(self, item: object) -> bool:
        return item in self.ends

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[T]:
        return iter(self.ends)

    def enter(self, item: T, low: int, high: int) -> None:
        """Add an item on [low, high), unless it is here already."""
        if item in self.ends:
            return
        self.ends[item] = low, high
        if self._scales is not None:
            self._mark(item)
        elif len(self.ends) > FEW:
            self._scales = {}
            for one in self.ends:
                self._mark(one)

    def remove(self, item: T) -> None:
        ends = self.ends.pop(item)
        if self._scales is not None:
            scale, cells = _cells(*ends)
            for cell in cells:
                del self._scales[scale][cell][item]
                if not self._scales[scale][cell]:
                    del self._scales[scale][cell]

    def meeting(self, low: int, high: int) -> list[T]:
        """The items whose interval overlaps [low, high), or is empty and lies strictly inside."""
        found = self.ends if self._scales is None else self._found(low, high)
        return [x for x in found if self.ends[x][0] < high and low < self.ends[x][1]]

    def _mark(self, item: T) -> None:
        assert self._scales is not None
        scale, cells = _cells(*self.ends[item])
        for cell in cells:
            self._scales.setdefault(scale, {}).setdefault(cell, {})[item] = None

    def _found(self, low: int, high: int) -> dict[T, None]:
        assert self._scales is not None
        found: dict[T, None] = {}
        for scale, cells in self._scales.items():
            first, last = low >> scale, (high - 1) >> scale
            if last - first < len(cells):
                met = [cells[cell] for cell in range(first, last + 1) if cell in cells]
            else:
                met = [items for cell, items in cells.items() if first <= cell <= last]
            for items in met:
                found.update(items)
        return found


class SpanIndex(Intervals[T]):
    """A span index: items in insertion order, each on a span of the same allocation."""

    __slots__ = ("spans",)

    def __init__(self) -> None:  # as above, in one: there are many
        self.ends, self._scales, self.spans = {}, None, {}

    @staticmethod
    def alone(item: K, span: Span) -> SpanIndex[K]:
        """An index with this one item."""
        made: SpanIndex[Any] = object.__new__(SpanIndex)
        made.ends, made._scales, made.spans = {item: span.hull()}, None, {item: span}
        return made

    def copy(self) -> Self:
        made = type(self)()
        for item, span in self.spans.items():
            made.put(item, span)
        return made

    def put(self, item: T, span: Span) -> None:
        """Add an item on a span, unless it is here already."""
        if self.spans or self._scales is not None:
            self.spans.setdefault(item, span)
            self.enter(item, *span.hull())
        else:  # the first, which most often is the only one
            self.spans[item], self.ends[item] = span, span.hull()

    def remove(self, item: T) -> None:
        super().remove(item)
        del self.spans[item]

    def near(self, span: Span) -> list[T]:
        """The items whose hull overlaps that of `span`: candidates for `Span.overlaps`."""
        return self.meeting(*span.hull())

    def met(self, span: Span) -> list[T]:
        """The items that may share a byte with `span`."""
        return [x for x in self.near(span) if self.spans[x].overlaps(span) is not False]


class SpanSet(SpanIndex[Span]):
    """A set of spans of one allocation."""

    __slots__ = ()

    @property
    def everything(self) -> bool:
        """True if one of them is the whole allocation."""
        return any(span.dense and span.nbytes == span.allocation.nbytes for span in self.spans)

    def add(self, span: Span) -> None:
        """Add a span, unless it is here already."""
        if span not in self.spans:
            self.put(span, span)

    def drop(self, span: Span) -> None:
        """Remove the spans that lie within this one."""
        for mark in self.near(span):
            if span.contains(mark):
                self.remove(mark)

    def touch(self, span: Span) -> bool:
        """True if a span of the set overlaps this one, or may; for an empty `span`, if there is any."""
        if not self.spans:
            return False
        if span in self.spans or span.nbytes == 0:
            return True
        return any(mark.contains(span) or mark.overlaps(span) is not False for mark in self.near(span))


class WeakSpanSet(SpanSet):
    """A set of weak spans for the allocation itself: without a reference cycle, memory goes with its last array."""

    __slots__ = ()

    def put(self, item: Span, span: Span) -> None:
        own = span.weak()
        super().put(own, own)


NO_SPANS = WeakSpanSet()
"""Of memory of which nothing is marked; nothing is ever added."""


def _cells(low: int, high: int) -> tuple[int, range]:
    """(log2 of the cell length, cell numbers) of the one or two cells that an interval enters."""
    high = max(high, low + 1)
    scale = (high - low - 1).bit_length()
    return scale, range(low >> scale, ((high - 1) >> scale) + 1)

"""What lies on which bytes of one allocation, found by the bytes: a lookup does not look at all there is.

A grid of cells on every scale (a hierarchical grid, as Ericson, Real-Time Collision Detection, 2005, section 7.2): a
span enters the one or two cells, at least as long as it is, that its hull meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from .span import Span

T = TypeVar("T")
FEW = 8  # so many are looked at one by one


class Nearby(Generic[T]):
    """Items, in the order in which they came, each on a span of the same allocation."""

    __slots__ = ("spans", "_scales")

    def __init__(self) -> None:
        self.spans: dict[T, Span] = {}
        self._scales: dict[int, dict[int, dict[T, None]]] | None = None  # log2 of the cells' length, cell, its items

    def __contains__(self, item: T) -> bool:
        return item in self.spans

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[T]:
        return iter(self.spans)

    def copy(self) -> Nearby[T]:
        made: Nearby[T] = Nearby()
        for item, span in self.spans.items():
            made.put(item, span)
        return made

    def put(self, item: T, span: Span) -> None:
        """An item that is here already stays as it is."""
        if item in self.spans:
            return
        self.spans[item] = span
        if self._scales is not None:
            self._enter(item, span)
        elif len(self.spans) > FEW:
            self._scales = {}
            for one, its in self.spans.items():
                self._enter(one, its)

    def remove(self, item: T) -> None:
        span = self.spans.pop(item)
        if self._scales is not None:
            scale, cells = _cells(span)
            for cell in cells:
                del self._scales[scale][cell][item]
                if not self._scales[scale][cell]:
                    del self._scales[scale][cell]

    def near(self, span: Span) -> list[T]:
        """The items whose hull meets that of `span`; whether they share a byte is for `Span.overlaps` to say."""
        low, high = span.hull()
        found = self.spans if self._scales is None else self._found(low, high)
        return [x for x in found if self.spans[x].hull()[0] < high and low < self.spans[x].hull()[1]]

    def met(self, span: Span) -> list[T]:
        """The items that may share a byte with `span`."""
        return [x for x in self.near(span) if self.spans[x].overlaps(span) is not False]

    def _enter(self, item: T, span: Span) -> None:
        assert self._scales is not None
        scale, cells = _cells(span)
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


class Marks(Nearby[Span]):
    """Spans of one allocation, for the question whether any of them overlaps a given span.

    `everything`: one of them is the whole allocation.
    """

    __slots__ = ("everything",)

    def __init__(self) -> None:
        super().__init__()
        self.everything = False

    def add(self, span: Span) -> None:
        if span in self.spans:
            return
        self.put(span, span)
        self.everything = self.everything or _whole(span)

    def drop(self, span: Span) -> None:
        """Forget the spans that lie within this one."""
        for mark in self.near(span):
            if span.contains(mark):
                self.remove(mark)
        self.everything = self.everything and any(map(_whole, self.spans))

    def touch(self, span: Span) -> bool:
        """Does any marked span overlap this one (undecided counts as yes; an empty span: is anything marked)."""
        if not self.spans:
            return False
        if self.everything or span in self.spans or span.nbytes == 0:
            return True
        return bool(self.met(span))


def _whole(span: Span) -> bool:
    return span.dense and span.nbytes == span.allocation.nbytes


def _cells(span: Span) -> tuple[int, range]:
    """The scale of the cells that a span enters, and their numbers."""
    low, high = span.hull()
    high = max(high, low + 1)
    scale = (high - low - 1).bit_length()
    return scale, range(low >> scale, ((high - 1) >> scale) + 1)

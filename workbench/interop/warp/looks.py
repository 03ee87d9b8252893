"""Looks at Warp's buffers before and behind a call: which the host has changed, and what the call has left.

Most calls have a few buffers, and each is looked at by itself. A graph has hundreds: the short ones are joined to one
string, which takes a tenth of the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from .memory import LITTLE, Kept, Noted, Region

PIECE = 1 << 22  # bytes, for which NumPy asks the system for large pages
Left = tuple[Iterable[tuple[Region, Noted]], int]  # buffers and what they hold, and how many bytes were copied for it


class Apart:
    """Looks at the buffers of a call one by one. `written`: those that it may write; None where that is to be seen."""

    __slots__ = ("regions", "written")

    def __init__(self, regions: list[Region], written: list[Region] | None):
        self.regions, self.written = regions, written

    def moved_on(self) -> list[Region]:
        """Those that have other bytes than at the last event. The common case is written out: it is asked often."""
        found = []
        for region in self.regions:
            latest = region.latest
            if not (type(latest) is bytes and region.live.tobytes() == latest) and region.moved_on():
                found.append(region)
        return found

    def noted(self) -> Left:
        """Note what the call has left."""
        found: list[tuple[Region, Noted]] = []
        size = 0
        for region in self.moved_on() if self.written is None else self.written:
            if region.size <= LITTLE:
                region.latest = latest = region.live.tobytes()
                found.append((region, latest))
            else:
                found.append((region, region.note()))
            size += region.size
        return found, size


class Together:
    """Looks at the buffers of a graph, the short ones all at once.

    latest  what was noted of each at the last event when they were looked at last; `texts`: the bytes, joined, of those
            that the graph only reads and of those that it writes.
    """

    def __init__(self, regions: list[Region], written: list[Region], store: Store):
        ours, short = set(written), [r for r in regions if r.size <= LITTLE]
        self.read, self.written = [r for r in short if r not in ours], [r for r in short if r in ours]
        self.short = self.read + self.written
        self.long = Apart([r for r in regions if r.size > LITTLE], [r for r in written if r.size > LITTLE])
        self.spans = [r.live.data for r in self.read], [r.live.data for r in self.written]
        ends = list(itertools.accumulate(r.size for r in self.written))
        self.places = {r: slice(end - r.size, end) for r, end in zip(self.written, ends, strict=True)}
        self.latest: list[Noted | None] = []
        self.texts = b"", b""
        self.kept: Kept | None = None
        self.store = store

    def moved_on(self) -> list[Region]:
        """Those that have other bytes than at the last event."""
        if self.latest != [r.latest for r in self.short]:
            self.texts = b"".join([r.held() for r in self.read]), b"".join([r.held() for r in self.written])
            self.latest, self.kept = [r.latest for r in self.short], None
        read, written = self.spans
        if (b"".join(read), b"".join(written)) == self.texts:
            return self.long.moved_on()
        return [r for r in self.short if r.moved_on()] + self.long.moved_on()

    def noted(self) -> Left:
        """Note what the graph has left. What is the same as behind its last launch is not copied again."""
        read, last = self.texts
        text, size = b"".join(self.spans[1]), 0
        if self.kept is None or text != last:
            self.kept, size = Kept(self.store.put(text), self.places), len(text)
        kept = self.kept
        for region in self.written:
            region.latest = kept
        self.latest[len(self.read) :] = [kept] * len(self.written)
        self.texts = read, text
        long, more = self.long.noted()
        return Pairs(self.written, kept, long), size + more


class Store:
    """Memory for what is noted, in large pieces: a fresh page for each short string takes longer than its copy."""

    def __init__(self) -> None:
        self.left = np.empty(0, np.uint8)

    def put(self, text: bytes) -> np.ndarray:
        """A copy of this text."""
        if len(text) > len(self.left):
            self.left = np.empty(max(PIECE, len(text)), np.uint8)
        made, self.left = self.left[: len(text)], self.left[len(text) :]
        made[...] = np.frombuffer(text, np.uint8)
        return made


class Pairs:
    """Buffers and what they held: short ones, of one string, then long ones."""

    __slots__ = ("kept", "long", "short")

    def __init__(self, short: list[Region], kept: Kept, long: Iterable[tuple[Region, Noted]]):
        self.short, self.kept, self.long = short, kept, long

    def __iter__(self) -> Iterator[tuple[Region, Noted]]:
        for region in self.short:
            yield region, self.kept
        yield from self.long

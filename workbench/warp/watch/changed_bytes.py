"""Change detection on Warp's buffers: the bytes the host changed before a call, and snapshots of those the call left.

Most calls have a few buffers, compared one by one. A graph has hundreds: the short ones are joined into one byte
string, which takes a tenth of the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from .memory import LITTLE, PackedSnapshot, Snapshot, TwinBuffer

PIECE = 1 << 22  # bytes, for which NumPy asks the system for large pages
Written = tuple[Iterable[tuple[TwinBuffer, Snapshot]], int]  # buffers and what they hold, and the bytes copied for it


class EachBuffer:
    """Change detection buffer by buffer. `written`: the buffers that the call may write; None if unknown."""

    __slots__ = ("regions", "written")

    def __init__(self, regions: list[TwinBuffer], written: list[TwinBuffer] | None):
        self.regions, self.written = regions, written

    def moved_on(self) -> list[TwinBuffer]:
        """The buffers whose bytes differ from the last event's. The common case is inlined for speed."""
        found = []
        for region in self.regions:
            latest = region.latest
            if not (type(latest) is bytes and region.live.tobytes() == latest) and region.moved_on():
                found.append(region)
        return found

    def snapshots(self) -> Written:
        """Snapshot the buffers that the call may have written."""
        found: list[tuple[TwinBuffer, Snapshot]] = []
        size = 0
        for region in self.moved_on() if self.written is None else self.written:
            if region.size <= LITTLE:
                region.latest = latest = region.live.tobytes()
                found.append((region, latest))
            else:
                found.append((region, region.snapshot()))
            size += region.size
        return found, size


class PackedBuffers:
    """Change detection on the buffers of a graph, the short ones packed into one byte string.

    latest  the snapshot of each short buffer when they were last packed; `texts`: the packed bytes of those that the
            graph only reads, and of those that it writes.
    """

    def __init__(self, regions: list[TwinBuffer], written: list[TwinBuffer], store: StoredBytes):
        ours, short = set(written), [r for r in regions if r.size <= LITTLE]
        self.read, self.written = [r for r in short if r not in ours], [r for r in short if r in ours]
        self.short = self.read + self.written
        self.long = EachBuffer([r for r in regions if r.size > LITTLE], [r for r in written if r.size > LITTLE])
        self.spans = [r.live.data for r in self.read], [r.live.data for r in self.written]
        ends = list(itertools.accumulate(r.size for r in self.written))
        self.places = {r: slice(end - r.size, end) for r, end in zip(self.written, ends, strict=True)}
        self.latest: list[Snapshot | None] = []
        self.texts = b"", b""
        self.packed: PackedSnapshot | None = None
        self.store = store

    def moved_on(self) -> list[TwinBuffer]:
        """The buffers whose bytes differ from the last event's."""
        if self.latest != [r.latest for r in self.short]:
            self.texts = b"".join([r.held() for r in self.read]), b"".join([r.held() for r in self.written])
            self.latest, self.packed = [r.latest for r in self.short], None
        read, written = self.spans
        if (b"".join(read), b"".join(written)) == self.texts:
            return self.long.moved_on()
        return [r for r in self.short if r.moved_on()] + self.long.moved_on()

    def snapshots(self) -> Written:
        """Snapshot what the graph has written. Bytes equal to those of its last launch are not copied again."""
        read, last = self.texts
        text, size = b"".join(self.spans[1]), 0
        if self.packed is None or text != last:
            self.packed, size = PackedSnapshot(self.store.put(text), self.places), len(text)
        packed = self.packed
        for region in self.written:
            region.latest = packed
        self.latest[len(self.read) :] = [packed] * len(self.written)
        self.texts = read, text
        long, more = self.long.snapshots()
        return WrittenSnapshots(self.written, packed, long), size + more


class StoredBytes:
    """An arena for snapshots, allocated in large pieces: a fresh page per short string costs more than its copy."""

    def __init__(self) -> None:
        self.left = np.empty(0, np.uint8)

    def put(self, text: bytes) -> np.ndarray:
        """A copy of these bytes in the arena, as uint8."""
        if len(text) > len(self.left):
            self.left = np.empty(max(PIECE, len(text)), np.uint8)
        made, self.left = self.left[: len(text)], self.left[len(text) :]
        made[...] = np.frombuffer(text, np.uint8)
        return made


class WrittenSnapshots:
    """An iterable of (buffer, snapshot): short buffers share one packed snapshot, long ones have their own."""

    __slots__ = ("packed", "long", "short")

    def __init__(self, short: list[TwinBuffer], packed: PackedSnapshot, long: Iterable[tuple[TwinBuffer, Snapshot]]):
        self.short, self.packed, self.long = short, packed, long

    def __iter__(self) -> Iterator[tuple[TwinBuffer, Snapshot]]:
        for region in self.short:
            yield region, self.packed
        yield from self.long

"""The memory that has an address: an index of the live memories of one device, which it does not keep alive."""

from __future__ import annotations

import bisect
import weakref
from typing import Generic

from .span import M

FEW = 1 << 10  # new ones, of which the dead are not looked for


class AddressRanges(Generic[M]):
    """Sorted index of the live memories of one device by address; its methods are called under `LOCK`.

    What is new enters it once somebody asks: most memory is gone by then.
    """

    def __init__(self) -> None:
        self.recent: list[weakref.ref[M]] = []
        self.starts: list[int] = []
        self.entries: dict[int, weakref.ref[M]] = {}
        self.sweep_at, self.sweep_recent_at = 256, FEW

    def add(self, new: M) -> None:
        self.recent.append(weakref.ref(new))
        if len(self.recent) > self.sweep_recent_at:
            self.recent = [ref for ref in self.recent if ref() is not None]
            self.sweep_recent_at = 2 * len(self.recent) + FEW

    def _enter_recent(self) -> None:
        recent, self.recent = self.recent, []
        for new in [m for ref in recent if (m := ref()) is not None]:
            for stale in self.meeting(new.address, new.address + new.nbytes):  # a bare pointer that outlived its memory
                del self.entries[stale.address]
                self.starts.remove(stale.address)
            if new.address not in self.entries:
                bisect.insort(self.starts, new.address)
            self.entries[new.address] = weakref.ref(new)
        if len(self.starts) > self.sweep_at:
            self.entries = {a: ref for a, ref in self.entries.items() if ref() is not None}
            self.starts = sorted(self.entries)
            self.sweep_at = 2 * len(self.starts) + 256

    def meeting(self, low: int, high: int) -> list[M]:
        """The live memories that share a byte with [low, high), by address; dead ones that it meets are forgotten."""
        self._enter_recent()
        start = end = bisect.bisect_right(self.starts, low)
        found = []
        while start > 0:  # live ones never overlap: the first live one below decides
            if (below := self.entries[self.starts[start - 1]]()) is not None:
                found += [below] if below.address + below.nbytes > low else []
                break
            start -= 1
        stale = self.starts[start:end]
        while end < len(self.starts) and self.starts[end] < high:
            if (above := self.entries[self.starts[end]]()) is not None:
                found.append(above)
            else:
                stale.append(self.starts[end])
            end += 1
        if stale:
            self.starts[start:end] = [m.address for m in found if m.address > low]
            for address in stale:
                del self.entries[address]
        return found

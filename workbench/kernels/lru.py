"""A dict of limited size, from which the least recently used entry goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class RecentlyUsed(OrderedDict[Any, Any]):
    """A dict of at most `most` entries. Threads may use it at once: one may remove what another has just found."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def find(self, key: Hashable) -> Any:
        """The value, which counts as used now; None if there is none."""
        try:
            self.move_to_end(key)
            return self[key]
        except KeyError:
            return None

    def enter(self, key: Hashable, value: object) -> None:
        """Set the value, which counts as used now."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.most:
            self.popitem(last=False)

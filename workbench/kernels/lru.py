"""Caches: one whose entries live as long as their keys; one of limited size, which forgets the least recently used."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
V = TypeVar("V")


def once_for_each(make: Callable[[K], V]) -> Callable[[K], V]:
    """Decorator: what is made of an object is kept as long as that lives. It must not change meanwhile."""
    known: WeakKeyDictionary[K, V] = WeakKeyDictionary()

    @functools.wraps(make)
    def found(of: K) -> V:
        if of not in known:
            known[of] = make(of)
        return known[of]

    vars(found)["cache_clear"] = known.clear
    return found


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

"""Lanes that are one list or one kind, and fold into one row: `u[k]`, `state[k].q`, arrays made anew each step.

Names alone decide: memory that has a further name of its own, or whose names cover only parts of it, keeps its lane, so
that a fold never hides an alias. A fold is drawn as an envelope of its members, never as one memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...tables import bytes_text
from .text import clean
from .trace import AllocationTrack, NameRange

LEAST = 4  # lanes of one kind from which they fold
INDEX = re.compile(r"\[(-?\d+)\]")


@dataclass(frozen=True, slots=True)
class Family:
    """Lanes under one name: `members` are their numbers, in the order of their indices."""

    name: str
    what: str
    nbytes: int
    members: tuple[int, ...]

    @property
    def note(self) -> str:
        return f"{self.what} · {bytes_text(self.nbytes, 1000)}"

    def track(self, key: str) -> AllocationTrack:
        """The track that stands for the members in a list of allocations."""
        return AllocationTrack(key, self.nbytes, (NameRange(self.title, 0, self.nbytes),), self.what)

    @property
    def title(self) -> str:
        return f"{self.name} ×{len(self.members)}"


def families(tracks: Sequence[AllocationTrack]) -> list[Family]:
    """The lanes that fold, in the order of their first members."""
    found: dict[tuple[str, ...], list[int]] = {}
    for n, track in enumerate(tracks):
        if track.names and not any(track.partial(name.lo, name.hi) or name.strided for name in track.names):
            found.setdefault(tuple(sorted(INDEX.sub("[]", name.name) for name in track.names)), []).append(n)
    return [_family(tracks, kind, members) for kind, members in found.items() if len(members) >= LEAST]


def _family(tracks: Sequence[AllocationTrack], kind: tuple[str, ...], members: list[int]) -> Family:
    indices = {n: tuple(int(k) for k in INDEX.findall(", ".join(x.name for x in tracks[n].names))) for n in members}
    members = sorted(members, key=lambda n: (indices[n], n))
    name = ", ".join(_ranged(one, sorted({indices[n] for n in members})) for one in kind)
    texts = dict.fromkeys(tracks[n].text for n in members)
    what = f"{next(iter(texts))} each" if len(texts) == 1 else "of several shapes"
    nbytes = sum(tracks[n].nbytes for n in members)
    return Family(clean(name), clean(f"{len(members)} arrays, {what}"), nbytes, tuple(members))


def _ranged(kind: str, indices: Sequence[tuple[int, ...]]) -> str:
    """`u[0…103]` for `u[]`, where the indices have no holes; `u[…]` else."""
    ones = [index[0] for index in indices if len(index) == 1]
    whole = len(ones) == len(indices) > 1 and ones[-1] - ones[0] + 1 == len(ones)
    return kind.replace("[]", f"[{ones[0]}…{ones[-1]}]" if whole else "[…]")

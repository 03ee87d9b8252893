"""Two tapes aligned: which event of one corresponds to which of the other, which memory, and where values differ.

Events go by kind, label and call site, in order: what both have in common is a longest common subsequence, found by the
greedy algorithm of Myers (1986). Memory goes by the names that the user gave, then by the order in which both tapes
meet it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation
from ..tapes.tape import Tape
from .walk_step import accesses

ROUNDING = 32  # units in the last place of the largest number: the order of a sum is no difference
EDITS = 300  # events that may be lacking in the midst of two tapes; what differs more is not laid side by side
Pair = tuple[int, int]


def aligned(tape: Tape, other: Tape) -> list[Pair]:
    """The pairs (event of `tape`, event of `other`) that are the same step of both programs, by position, in order.

    A kernel that only one of them has counts as the same as what stands in its place in the other."""
    if tape is other:
        return [(n, n) for n in range(len(tape.events))]
    kinds = [[e.kind for e in t.events] for t in (tape, other)]
    ours, theirs = _keys(tape, other)
    known = [{key[1] for key in keys} for keys in (ours, theirs)]
    pairs, i, j = [], 0, 0
    for n, m in [*_common(ours, theirs), (len(ours), len(theirs))]:
        if n - i == m - j and kinds[0][i:n] == kinds[1][j:m]:  # as many of each kind: renamed
            places = zip(range(i, n), range(j, m), strict=True)
            labels = ((a, b, ours[a][1], theirs[b][1]) for a, b in places)
            pairs += [(a, b) for a, b, x, y in labels if x == y or x not in known[1] or y not in known[0]]
        if n < len(ours):
            pairs.append((n, m))
        i, j = n + 1, m + 1
    return pairs


def _keys(tape: Tape, other: Tape) -> tuple[list[Any], list[Any]]:
    """Kind and label of every event, and its call site if both tapes have events from there."""
    sites = [[(e.where.file, e.where.line) if e.where else None for e in t.events] for t in (tape, other)]
    shared = set(sites[0]) & set(sites[1])
    ours, theirs = (
        [(e.kind, e.label, site if site in shared else None) for e, site in zip(t.events, at, strict=True)]
        for t, at in ((tape, sites[0]), (other, sites[1]))
    )
    return ours, theirs


def _common(ours: Sequence[Any], theirs: Sequence[Any]) -> list[Pair]:
    """A longest common subsequence as pairs of positions; only common ends if the middle differs too much."""
    most = min(len(ours), len(theirs))
    head = next((k for k in range(most) if ours[k] != theirs[k]), most)
    tail = next((k for k in range(most - head) if ours[-1 - k] != theirs[-1 - k]), most - head)
    n, m = len(ours) - tail, len(theirs) - tail
    middle = _myers(ours[head:n], theirs[head:m])
    ends = zip(range(n, len(ours)), range(m, len(theirs)), strict=True)
    return [*((k, k) for k in range(head)), *((head + i, head + j) for i, j in middle), *ends]


def _myers(a: Sequence[Any], b: Sequence[Any]) -> list[Pair]:
    """E. W. Myers, An O(ND) difference algorithm and its variations, Algorithmica 1 (1986)."""
    reach, trail = {1: 0}, []
    for d in range(min(len(a) + len(b), EDITS) + 1):
        trail.append(dict(reach))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and reach.get(k - 1, -1) < reach.get(k + 1, -1))
            x = reach[k + 1] if down else reach[k - 1] + 1
            while x < len(a) and 0 <= x - k < len(b) and a[x] == b[x - k]:
                x += 1
            reach[k] = x
            if x >= len(a) and x - k >= len(b):
                return _backwards(trail, len(a), len(b))
    return []


def _backwards(trail: list[dict[int, int]], x: int, y: int) -> list[Pair]:
    pairs = []
    for d in range(len(trail) - 1, -1, -1):
        reach, k = trail[d], x - y
        down = k == -d or (k != d and reach.get(k - 1, -1) < reach.get(k + 1, -1))
        before = k + 1 if down else k - 1
        start = reach[before]
        while x > start and y > start - before:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start, start - before
    return pairs[::-1]


def memories(tape: Tape, other: Tape, pairs: Sequence[Pair]) -> dict[Allocation, Allocation]:
    """{allocation of `other`: the corresponding allocation of `tape`}, without those that have none."""
    if tape is other:
        return {a: a for a in {a.allocation for a in tape.arrays.values()}}
    found: dict[Allocation, Allocation] = {}
    taken: set[Allocation] = set()
    for theirs, ours in (*_by_name(tape, other), *_as_met(tape, other, pairs)):
        if theirs not in found and ours not in taken:
            found[theirs] = ours
            taken.add(ours)
    return found


def _by_name(tape: Tape, other: Tape) -> Iterator[tuple[Allocation, Allocation]]:
    """Pairs of allocations with the same name: the whole name first, then its part after the last dot."""
    for whole in (True, False):
        ours, theirs = _names(tape, whole), _names(other, whole)
        for name, a in theirs.items():
            b = ours.get(name)
            if a is not None and b is not None:
                yield a, b


def _names(tape: Tape, whole: bool) -> dict[str, Allocation | None]:
    """{name: its allocation}, None for a name that several have."""
    found: dict[str, Allocation | None] = {}
    for a in tape.arrays.values():
        name = tape.names.given(a)
        name = name if whole else name.rpartition(".")[2]
        if name:
            found[name] = a.allocation if found.get(name, a.allocation) is a.allocation else None
    return found


def _as_met(tape: Tape, other: Tape, pairs: Sequence[Pair]) -> Iterator[tuple[Allocation, Allocation]]:
    for n, m in pairs:
        ours, theirs = accesses(tape, tape.events[n]), accesses(other, other.events[m])
        for one, two in zip(ours, theirs, strict=False):
            yield two.span.allocation, one.span.allocation


@dataclass(frozen=True)
class FirstDifference:
    """The first place where two arrays differ by more than rounding, how many do, and `most`, the largest difference.

    `most` is NaN if a difference is."""

    index: tuple[int, ...]
    here: float
    there: float
    count: int
    most: float


def first_difference(a: np.ndarray, b: np.ndarray) -> FirstDifference | None:
    """The first difference of two arrays of one shape beyond rounding in the coarser type; None if there is none."""
    if a.dtype == b.dtype and np.array_equal(a, b):
        return None
    differ = a != b
    floats = [x.dtype for x in (a, b) if x.dtype.kind == "f"]
    wide, wider = a.astype(float), b.astype(float)
    if floats:
        eps = max(float(np.finfo(kind).eps) for kind in floats)
        size = max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in (wide, wider))
        with np.errstate(invalid="ignore"):
            near = np.abs(wide - wider) <= ROUNDING * eps * size
        differ &= ~near & ~(np.isnan(wide) & np.isnan(wider))
    if not differ.any():
        return None
    at = tuple(int(i) for i in np.argwhere(differ)[0])
    with np.errstate(invalid="ignore"):
        most = float(np.abs(wide[differ] - wider[differ]).max())
    return FirstDifference(at, float(a[at]), float(b[at]), int(differ.sum()), most)

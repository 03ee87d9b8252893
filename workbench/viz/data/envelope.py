"""Envelopes of stretches of the tape, and the scale of sizes: folding a stretch hides no extreme and no NaN.

An envelope has the largest and the smallest adjoint of all moments a .. b in and beside a stretch, events [a, b), and
whether any is exactly 0, NaN, infinite or missing: arrays with one entry per stretch. A moment is as in `lanes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ...arrays.grouping import grouped
from .lanes import Bar, VersionBlock
from .trace import AdjointLevel, ValueLevel

VALUE, ZERO, NAN, INF, BOTH, ABSENT = 0, 1, 2, 3, 4, -1  # states of a bar; BOTH: NaN and Inf
DECADES = 12.0  # that a scale has at least, before sizes are left below it
TICKS = 5
Array = np.ndarray


class Bars(NamedTuple):
    """Bars as column arrays: moments e0 + 1 .. e1, state, largest finite adjoint, and True if that is only a bound.

    share   the part that is not finite, where any is.
    """

    e0: Array
    e1: Array
    state: Array
    most: Array
    bound: Array
    share: Array

    @staticmethod
    def of(bars: Sequence[Bar]) -> Bars:
        drawn = [(bar, part) for bar in bars for part in (bar.level.parts if bar.level is not None else [None])]
        levels = [level for _, level in drawn]
        return Bars(
            np.array([bar.e0 for bar, _ in drawn], np.int64),
            np.array([bar.e1 for bar, _ in drawn], np.int64),
            np.array([state_of(level) for level in levels], np.int64),
            np.array([0.0 if level is None else level.max_abs for level in levels], np.float64),
            np.array([level is not None and level.mixed for level in levels], bool),
            np.array([1.0 if level is None else level.share for level in levels], np.float64),
        )


def version_bars(blocks: Sequence[VersionBlock], ill: Sequence[tuple[int, float]]) -> Bars:
    """Versions with these (states, shares) as bars without sizes: `envelopes` finds NaN and infinity."""
    e0, e1 = np.array([(block.e0, block.e1) for block in blocks], np.int64).reshape(-1, 2).T
    states, shares = np.array(ill).reshape(-1, 2).T
    nothing = np.zeros(len(blocks))
    return Bars(e0, e1, states.astype(np.int64), nothing, nothing.astype(bool), shares)


def state_of(level: AdjointLevel | None) -> int:
    """The state of a bar with this level."""
    if level is None:
        return ABSENT
    if level.nan:
        return BOTH if level.inf else NAN
    return INF if level.inf else ZERO if level.zero else VALUE


class Envelope(NamedTuple):
    """The summary of one lane per stretch: numbers, or arrays of one length.

    most, least    of the finite sizes: the largest, and the smallest of those that are not exactly 0 (0: there is none)
    value ... absent    True if there is such an adjoint in the stretch; absent: none has arrived
    bound    True if `most` is only a bound, because events that are not drawn changed parts of the bytes
    ill_at   the moment at which the reverse pass first had the NaN or Inf that is in the stretch, -1 for none
    share    the largest part of a memory that is NaN or Inf
    """

    most: Array
    least: Array
    value: Array
    zero: Array
    nan: Array
    inf: Array
    absent: Array
    bound: Array
    ill_at: Array
    share: Array

    def at(self, k: int) -> Envelope:
        """The envelope of stretch `k` alone."""
        return Envelope(*(column[k] for column in self))

    @property
    def state(self) -> str:
        """The worst state of one stretch: `nan`, `inf`, `value`, `zero` (all of it is exactly 0) or `absent`."""
        found = ("nan", self.nan), ("inf", self.inf), ("value", self.value), ("zero", self.zero)
        return next((name for name, there in found if there), "absent")


def envelopes(bars: Bars, edges: Array) -> Envelope:
    """The envelope of one lane's bars over the stretches [edges[k], edges[k + 1]); the edges ascend."""
    edges = np.asarray(edges, np.int64)
    count = len(edges) - 1
    first = np.searchsorted(edges[1:], bars.e0 + 1, "left")
    last = np.minimum(np.searchsorted(edges[:-1], bars.e1, "right"), count)
    many = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(many)), many)  # the bar of each (bar, stretch) that meet
    where = np.arange(len(which)) - np.repeat(np.cumsum(many) - many - first, many)
    state, size = bars.state[which], bars.most[which]
    sized = (state != ABSENT) & np.isfinite(size) & (size > 0)
    most, least = np.zeros(count), np.full(count, np.inf)
    np.maximum.at(most, where[sized], size[sized])
    plain = sized & (state == VALUE)
    np.minimum.at(least, where[plain], size[plain])
    ill_at = np.full(count, -1, np.int64)
    ill = state >= NAN
    np.maximum.at(ill_at, where[ill], bars.e1[which][ill])
    share = np.zeros(count)
    np.maximum.at(share, where[ill], bars.share[which][ill])

    def any_of(there: Array) -> Array:
        found = np.zeros(count, bool)
        found[where[there]] = True
        return found

    least[~np.isfinite(least)] = 0.0
    value, zero, nan, inf, absent = (
        any_of(np.isin(state, ones)) for ones in ([VALUE], [ZERO], [NAN, BOTH], [INF, BOTH], [ABSENT])
    )
    bound = any_of(bars.bound[which] & (state != ABSENT))
    return Envelope(most, least, value, zero, nan, inf, absent, bound, ill_at, share)


def ill_blocks(blocks: Sequence[VersionBlock], values: Iterable[ValueLevel]) -> dict[int, tuple[int, float]]:
    """By number the blocks with a known NaN or infinity: the state NAN, INF or BOTH, and the share of their numbers."""
    found: dict[int, tuple[int, float]] = {}
    values = list(values)
    ending = grouped(((block.allocation, block.e1), n) for n, block in enumerate(blocks if values else ()))
    for value in values:  # known because they were kept when they were overwritten, or at the end: where a block ends
        for n in ending.get((value.allocation, value.moment), ()):
            if blocks[n].lo < value.hi and value.lo < blocks[n].hi:
                state, share = found.get(n, (0, 0.0))
                nan, inf = value.nan or state in (NAN, BOTH), value.inf or state in (INF, BOTH)
                found[n] = BOTH if nan and inf else NAN if nan else INF, max(share, value.share)
    return found


def stretches(a: int, b: int, most: int) -> Array:
    """The edges of at most `most` equal stretches of events [a, b); whole turns, if they fit."""
    count = max(min(b - a, most), 1)
    return a + (np.arange(count + 1, dtype=np.int64) * (b - a)) // count


# ---- the scale


class Scale(NamedTuple):
    """log10 of the sizes that are drawn thinnest and thickest. `below`: True if there are smaller ones."""

    low: float
    high: float
    below: bool = False

    def part(self, size: float) -> float:
        """The place of a size between thinnest (0) and thickest (1)."""
        if not size > 0:
            return 0.0
        return min(max((math.log10(size) - self.low) / (self.high - self.low), 0.0), 1.0)

    @property
    def ticks(self) -> tuple[float, ...]:
        """Three to five sizes to write beside the scale, its ends among them."""
        low, high = _round(10**self.low), _round(10**self.high)
        tens = range(math.floor(self.low) + 1, math.ceil(self.high - 1e-9))
        room = 0.1 * (self.high - self.low)
        inner = [10.0**k for k in tens if self.low + room < k < self.high - room]
        step = math.ceil(len(inner) / (TICKS - 2)) or 1
        inner = inner[(len(inner) - 1) % step // 2 :: step]
        if not inner:
            middle = (k * 10.0 ** math.floor(self.low) for k in (2.0, 5.0, 20.0, 50.0))
            inner = [size for size in middle if low < size < high]
        return low, *inner[: TICKS - 2], high

    @property
    def texts(self) -> tuple[str, ...]:
        """The ticks as they are written."""
        texts = [size_text(tick) for tick in self.ticks]
        return ("≤ " + texts[0] if self.below else texts[0], *texts[1:])


def scale_of(sizes: Iterable[float]) -> Scale:
    """The scale that fits these sizes: all of them, unless a few small ones would take more than `DECADES`."""
    found = np.fromiter(sizes, np.float64)
    found = found[np.isfinite(found) & (found > 0)]
    if not len(found):
        return Scale(-1.0, 1.0)
    logs = np.log10(found)
    high, least = float(logs.max()), float(logs.min())
    low = max(least, min(float(np.quantile(logs, 0.02, method="lower")), high - DECADES))
    below = low > least
    low, high = _below(low), _above(high)
    while high - low < 0.99:  # at least one decade: rounding is not drawn as growth
        high = _above(high + 0.01)
        if high - low < 0.99:
            low = _below(low - 0.01)
    return Scale(low, high, below)


_STEPS = tuple(math.log10(k) for k in (1, 2, 5, 10))


def _below(log: float) -> float:
    """log10 of the largest 1, 2 or 5 times a power of ten that is not above."""
    whole = math.floor(log + 1e-9)
    return whole + max(step for step in _STEPS if step <= log - whole + 1e-9)


def _above(log: float) -> float:
    whole = math.floor(log)
    return whole + min(step for step in _STEPS if step >= log - whole - 1e-9)


def _round(size: float) -> float:
    return float(f"{size:.1e}")


def size_text(size: float) -> str:
    """A short number, as `6.23`, `1e-6`."""
    if size == 0 or not math.isfinite(size) or 1e-3 <= size < 1e5:
        return f"{size:.3g}" if size < 1000 else f"{size:.0f}"
    mantissa, exponent = f"{size:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


# ---- in words


def envelope_text(one: Envelope, place: Callable[[int], str], within: str = "") -> str:
    """The envelope of one stretch in a few words, as `0 to 6.23`, `NaN first in #18 springs`.

    place   the name of a moment that the reverse pass came from, as `#18 springs`
    within  the stretch, as `#12..#40`: said with what is not true of all of it
    """
    said = f" in {within}" if within else ""
    bound = "≤ " if one.bound else ""
    if one.nan or one.inf:
        names = " and ".join(name for name, there in (("NaN", one.nan), ("Inf", one.inf)) if there)
        rest = f", finite ones {bound}{size_text(float(one.most))}" if one.most > 0 else ""
        return f"{names} first in {place(int(one.ill_at))}{rest}{said}"
    if one.value:
        least = 0.0 if one.zero or one.bound else float(one.least)
        low, high = size_text(least), size_text(float(one.most))
        return f"{high}{said}" if low == high else f"{low} to {bound}{high}{said}"
    if one.zero:
        return f"0 or none{said}" if one.absent else "0 exactly"
    return "none"

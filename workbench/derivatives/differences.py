"""Verdicts of finite differences on one derivative: right, wrong, or not measurable.

A step that is too long meets kinks and curvature, one that is too short drowns in rounding. So there are many, each a
quarter of the one before, each with one-sided and central slopes and a bar: how far off they may be by what they show
themselves. A verdict needs three steps in a row that agree far better than they differ from what is asked about.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

FACTOR = 4.0
DOWN, UP = 10, 6  # how many steps shorter, and longer, than the first
RIGHT, WRONG, UNSURE, KINK = "right", "wrong", "not measurable", "kink"


@dataclass(frozen=True)
class Slope:
    """The derivative measured at one step: between `low` and `high` (unequal at a kink), with the error bar `bar`."""

    step: float
    low: float
    high: float
    bar: float
    moved: tuple[bool, bool]  # did anything change to the left, to the right

    def off(self, value: float) -> float:
        """The distance of a value from [low, high]."""
        return max(self.low - value, value - self.high, 0.0)


class Judgement(NamedTuple):
    """The judgement of differences on a derivative: RIGHT, WRONG, UNSURE or KINK, and the best measured slope.

    At a KINK the derivative lies between `slope` and `other`, the slopes to either side.
    """

    said: str
    slope: float
    other: float = float("nan")


Values = tuple[float, float, float, float]  # at a step and at half of it, forward and back, counted from the middle


def slope(values: Values, step: float, noise: float) -> Slope:
    """The slope at 0 of a function with f(0) = 0, from values with absolute noise `noise`."""
    right, left = values[:2], (-values[2], -values[3])
    with np.errstate(all="ignore"):
        (after, after_bar), (before, before_bar) = _one_sided(*right, step), _one_sided(*left, step)
        floor = noise / step
        moved = any(left), any(right)
        if abs(after - before) > 2 * (after_bar + before_bar + floor):
            low, high = sorted((before, after))
            return Slope(step, low, high, max(after_bar, before_bar) + floor, moved)
        wide, narrow = (right[0] + left[0]) / (2 * step), (right[1] + left[1]) / step
        best = (4 * narrow - wide) / 3
        return Slope(step, best, best, abs(best - narrow) + floor, moved)


def _one_sided(whole: float, half: float, step: float) -> tuple[float, float]:
    """(second-order one-sided difference from two points, its distance from the first-order one)."""
    value = (4 * half - whole) / step
    return value, abs(value - 2 * half / step)


def verdict(f: Callable[[float], float], got: float, step: float, noise: float, rtol: float) -> Judgement:
    """Judge `got` as the slope of f at 0.

    f(0) = 0. `step`: the first one. `rtol`: the relative error that a right derivative may have.
    """
    seen: dict[float, Values] = {}

    def at(k: int) -> None:
        h = step / FACTOR**k
        with np.errstate(all="ignore"):
            seen[h] = f(h), f(h / 2), f(-h), f(-h / 2)

    for k in [0, *range(-1, -UP - 1, -1), *range(1, DOWN + 1)]:  # rounding shows at the long ones
        at(k)
        found = _slopes(seen, noise)
        usable = _usable(found)
        flat = got == 0 and -UP < k <= 0 and not any(all(s.moved) for s in found)  # or a step of a staircase
        if not flat and any(_agrees(s, got, rtol) for s in usable):
            return Judgement(RIGHT, got)
        if k > 1 and _wrong(usable, got, rtol):
            for rest in range(k + 1, DOWN + 1):
                at(rest)
            return _last_word(seen, got, noise, rtol)
        if k == 2 and _kinked(found[:3], got, 1e-6):
            return Judgement(KINK, found[0].low, found[0].high)
    found = _slopes(seen, noise)
    usable = _usable(found)
    for three in zip(usable, usable[1:], usable[2:], strict=False):
        if _kinked(three, got, 1e-2):
            return Judgement(KINK, three[0].low, three[0].high)
    return Judgement(UNSURE, _best(found))


def _slopes(seen: dict[float, Values], noise: float) -> list[Slope]:
    return [slope(values, step, noise) for step, values in sorted(seen.items())]


def _best(found: list[Slope]) -> float:
    best = min((s for s in found if np.isfinite(s.bar)), key=lambda s: s.bar, default=None)
    return float("nan") if best is None else (best.low + best.high) / 2


def _wrong(usable: list[Slope], got: float, rtol: float) -> tuple[Slope, ...] | None:
    """Three consecutive steps that exclude `got`, uncontradicted by any other step; None if there are none."""
    for three in zip(usable, usable[1:], usable[2:], strict=False):
        if _disagree(three, got, rtol) and not _contradicted(three, usable, got):
            return three
    return None


def _last_word(seen: dict[float, Values], got: float, noise: float, rtol: float) -> Judgement:
    """WRONG or UNSURE: WRONG only if the values do not fit a rounding staircase of slope `got` either."""
    riser = _riser(seen)
    found = _slopes(seen, max(noise, 2 * riser))
    three = None if riser and _fits(seen, got, riser) else _wrong(_usable(found), got, rtol)
    if three is None:
        return Judgement(UNSURE, _best(found))
    return Judgement(WRONG, min((three[0].low, three[0].high), key=lambda side: abs(side - got)))


def _usable(found: list[Slope]) -> list[Slope]:
    """Finite slopes; not those of steps that leave f as it is where a longer one moves it: rounding, not flatness."""
    longest = max((s.step for s in found if all(s.moved)), default=0.0)
    return [s for s in found if np.isfinite(s.bar) and (any(s.moved) or s.step >= longest)]


def _riser(seen: dict[float, Values]) -> float:
    """The step height of a rounding staircase: the first change of f, if it did not change at once; else 0."""
    heights = [0.0]
    for whole, half in ((0, 1), (2, 3)):
        values = [abs(v[n]) for _, v in sorted(seen.items()) for n in (half, whole)]
        first = next((n for n, v in enumerate(values) if v), 0)
        heights += [values[first]] if first and np.isfinite(values[first]) else []
    return max(heights)


def _fits(seen: dict[float, Values], got: float, riser: float) -> bool:
    """True if all values lie within two risers, or a tenth of the climb, of a straight line of slope `got`."""
    places = [
        (v, sign * h * part)
        for h, values in seen.items()
        for v, sign, part in zip(values, (1, 1, -1, -1), (1, 0.5, 1, 0.5), strict=True)
    ]
    return all(abs(v - got * t) <= 2 * riser + 0.1 * abs(got * t) for v, t in places)


def _kinked(found: Sequence[Slope], got: float, rtol: float) -> bool:
    """True if both one-sided slopes are stable and different, and `got` lies between them."""
    between = all(s.low < s.high and s.off(got) <= s.bar for s in found)
    spread = max(np.ptp([s.low for s in found]), np.ptp([s.high for s in found]))
    return between and bool(spread < rtol * (found[0].high - found[0].low))


def _agrees(s: Slope, got: float, rtol: float) -> bool:
    if got == 0 and not any(s.moved):
        return True
    size = max(abs(got), abs(s.low))
    return s.low == s.high and s.off(got) <= rtol * size and s.bar <= 1e-3 * size


def _contradicted(three: tuple[Slope, ...], usable: list[Slope], got: float) -> bool:
    """True if other steps speak for `got`.

    One without a kink that is precise and far closer to it: the three then agree by rounding. Or three shorter ones
    between whose one-sided slopes it lies: a kink so weak that longer steps see only the curvature beside it.
    """
    if not np.isfinite(got):
        return False
    off, shorter = min(s.off(got) for s in three), [s for s in usable if s.step < three[0].step]
    precise = any(s.low == s.high and 10 * max(s.off(got), s.bar) < off for s in usable)
    return precise or any(_kinked(k, got, 1e-2) for k in zip(shorter, shorter[1:], shorter[2:], strict=False))


def _disagree(three: tuple[Slope, ...], got: float, rtol: float) -> bool:
    """True if three consecutive steps agree with each other and leave `got` far outside."""
    if any(b.step > 1.01 * FACTOR * a.step for a, b in itertools.pairwise(three)):
        return False
    if not np.isfinite(got):
        size = max(max(abs(s.low), abs(s.high)) for s in three)
        off = 1e-2 * size
        outside = size > 0 and all(s.low == s.high for s in three)
    else:
        off = min(s.off(got) for s in three)
        outside = all(s.off(got) > 10 * s.bar + rtol * max(abs(got), abs(s.low), abs(s.high)) for s in three)
    spread = max(np.ptp([s.low for s in three]), np.ptp([s.high for s in three]), max(s.bar for s in three))
    return outside and bool(10 * spread < off)

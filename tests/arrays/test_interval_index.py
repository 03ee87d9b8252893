"""Spans that are found by their bytes, beside looking at all of them."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.arrays.interval_index import FEW, SpanIndex, SpanSet

N = 4096


def random_spans(rng: np.random.Generator, whole: wb.array, count: int) -> list:
    found = []
    for _ in range(count):
        long = int(2 ** rng.uniform(0, 11))
        first = int(rng.integers(0, N - long + 1))
        found.append(whole[first : first + long : int(rng.choice([1, 1, 2, 7]))].span)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [3, FEW + 1, 300])
def test_nearby_finds_what_a_look_at_all_finds(seed, count):
    rng = np.random.default_rng(seed)
    whole = wb.zeros(N)
    spans, nearby, marks = random_spans(rng, whole, count), SpanIndex(), SpanSet()
    for n, span in enumerate(spans):
        nearby.put(n, span)
        marks.add(span)
    gone = set(rng.choice(count, count // 3, replace=False).tolist())
    for n in gone:
        nearby.remove(n)
    for span in random_spans(rng, whole, 50):
        expected = {n for n, s in enumerate(spans) if n not in gone and s.overlaps(span) is not False}
        assert set(nearby.met(span)) == expected
        assert marks.touch(span) == any(s.overlaps(span) is not False for s in spans)
    dropped = whole[: N // 2].span
    marks.drop(dropped)
    assert set(marks) == {s for s in spans if not dropped.contains(s)}


def test_few_of_many_are_looked_at():
    whole = wb.zeros(N)
    nearby = SpanIndex()
    for n in range(1000):
        nearby.put(n, whole[4 * n : 4 * n + 4].span)
    assert nearby.near(whole[400:408].span) == [100, 101]
    assert len(nearby._found(1600, 1632)) <= 4

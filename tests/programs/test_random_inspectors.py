"""A sample of the fuzzers of inspectors and of indices."""

from __future__ import annotations

import collections

import pytest

import workbench as wb
from tests.fuzz import bounds, inspectors


@pytest.mark.parametrize("seed", range(4))
def test_all_inspectors_tell_one_story(seed, backend):
    counts: collections.Counter[str] = collections.Counter()
    for k in range(15):
        assert inspectors.outcome(200 * seed + k, counts) == "right"
    assert all(counts[name] >= 5 for name in ("adjoint", "ledger", "jacobian", "jvp", "seeds", "replay"))


@pytest.mark.needs_cc
@pytest.mark.parametrize("seed", range(4))
def test_both_backends_refuse_the_same_indices_and_touch_nothing_else(seed):
    found = collections.Counter(bounds.outcome(500 * seed + k).partition(":")[0] for k in range(25))
    assert not found["WRONG"] and found["right"] > 2 and found["bounds"] > 5
    wb.config.reset()

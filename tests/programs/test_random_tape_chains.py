"""A handful of the random programs of several tapes; thousands are run by hand with `tests/fuzz/tapes.py`."""

from __future__ import annotations

import collections

import pytest

from tests.fuzz.tapes import outcome

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("first", [0, 1_000_000, 2_000_000])
@pytest.mark.host_memory
def test_every_gradient_is_exact_or_refused_and_what_stops_is_told(first):
    counts = collections.Counter(outcome(first + k).partition(":")[0] for k in range(40))
    assert counts["exact"] > 15 and counts["refused"] < 20, counts


@pytest.mark.host_memory
def test_a_backward_that_writes_no_gradient_inside_two_tapes():
    assert outcome(700_913) == "exact"


@pytest.mark.host_memory
def test_a_second_backward_that_would_replace_what_was_not_handed_on():
    assert outcome(269) == "refused: not-handed-on"

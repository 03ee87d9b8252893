"""A handful of the random loops, which see what is remembered; thousands are run by hand with `tests/fuzz/loops.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fuzz import loops as fuzz_loops
from tests.fuzz.loop_texts import Program
from tests.fuzz.loops import verdict
from workbench.arrays import ports
from workbench.launches import launch_cache

pytestmark = pytest.mark.needs_cc


@pytest.fixture(autouse=True)
def met(monkeypatch: pytest.MonkeyPatch) -> Any:
    """How often what is remembered was met."""
    monkeypatch.setattr(ports, "gradient_takers", [])  # another file may have imported PyTorch, which ends all lists
    fuzz_loops.counts.clear()
    return fuzz_loops.counts


def test_what_is_remembered_changes_nothing(met: Any) -> None:
    for number in range(16):
        assert verdict(Program(number), number) == ""
    assert met["walks as lists"] > 30 and met["launches found"] > 300, met


def test_a_turn_that_is_taken_for_another_is_noticed(met: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_cache.CachedLaunch, "fits", lambda self, flat: True)
    monkeypatch.setattr(launch_cache.VaryingArgument, "taken", lambda self, now: self.number)
    assert any(verdict(Program(number), number) for number in range(16))

"""A sample of `tests.fuzz.rebinding`: chains of Python objects in kernels, links of which are bound anew."""

from __future__ import annotations

import pytest

from tests.fuzz import rebinding


@pytest.mark.parametrize("seed", range(24))
def test_the_launch_is_that_of_the_present_state(seed, monkeypatch):
    monkeypatch.setattr(rebinding.wb.config, "backend", "numpy")
    what, why = rebinding.outcome(10_000 + seed, 4)
    assert what == "right", why


@pytest.mark.parametrize("seed", range(4))
def test_the_same_of_compiled_kernels(seed, monkeypatch):
    monkeypatch.setattr(rebinding.wb.config, "backend", "c")
    what, why = rebinding.outcome(20_000 + seed, 2)
    assert what == "right", why

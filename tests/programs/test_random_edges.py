"""Random kernels at the edges (`fuzz/edges.py`): factors in conditions, wrapping stencils, nested constants, crossed
bounds, NaN, held gradient memory, odd strides. Exact, or refused; the same on both backends, split or whole."""

from __future__ import annotations

import collections

import pytest

import workbench as wb
from tests.fuzz import edges
from tests.fuzz.stencils import Stencil
from workbench.launches import executable, thresholds


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """Puts back what `edges.settings` sets."""
    for limit in ("PARALLEL_FROM", "PULL_FROM"):
        monkeypatch.setattr(thresholds, limit, getattr(thresholds, limit))
    monkeypatch.setattr(executable, "WORTH", executable.WORTH)


@pytest.mark.needs_cc
@pytest.mark.parametrize(("first", "programs"), [(100, 3), pytest.param(200, 10, marks=pytest.mark.slow)])
def test_gradients_at_the_edges_are_exact_or_refused(first, programs):
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(first, first + programs):
        what, word = edges.verdict(seed)
        counts[what] += 1
        assert what != "WRONG", f"program {seed}: {word}\n{edges.make(seed).source}"
    assert counts["exact"] > programs // 2, counts


def test_every_edge_is_drawn():
    programs = [edges.make(seed) for seed in range(60)]
    text = "\n".join(p.source for p in programs)
    for part in ("3 * i", "-2 * i", "i - 1]", "wb.clamp(", "F(3.0) +", "        q = ", "% 5]"):
        assert part in text, part
    assert {p.layout for p in programs} == set(edges.LAYOUTS) and {p.held for p in programs} == {True, False}
    assert len({p.spread for p in programs}) == 2


def test_the_oracle_notices_a_gradient_that_is_wrong_by_a_thousandth(monkeypatch):
    exact = Stencil.gradient

    def wrong(self):
        grads, final = exact(self)
        return {name: 1.001 * g for name, g in grads.items()}, final

    monkeypatch.setattr(Stencil, "gradient", wrong)
    wb.config.backend = "numpy"
    assert "WRONG" in [edges.verdict(seed, compiled=False)[0] for seed in (101, 102, 104)]

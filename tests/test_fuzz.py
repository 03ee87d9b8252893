"""Random programs: exact or refused. `fuzz` makes them; a failure prints the program, cut down."""

from __future__ import annotations

import collections

import fuzz
import pytest

PROGRAMS = 60


@pytest.fixture(scope="module")
def outcomes():
    """Verdicts of the first programs on the interpreter."""
    return {seed: fuzz.check(fuzz.make(seed)) for seed in range(PROGRAMS)}


def report(seed, c=False):
    small = fuzz.minimise(fuzz.make(seed), c, 30.0)
    return f"program {seed}: {fuzz.check(small, c).detail}\n{fuzz.describe(small)}"


def test_no_random_program_gets_a_wrong_gradient_or_breaks_us(outcomes):
    bad = [seed for seed, outcome in outcomes.items() if outcome.verdict in ("wrong", "crash")]
    assert not bad, report(bad[0])


def test_almost_all_random_programs_are_answered_and_not_refused(outcomes):
    counts = collections.Counter(outcome.verdict for outcome in outcomes.values())
    assert counts["exact"] >= 0.9 * PROGRAMS, counts


@pytest.mark.needs_cc
@pytest.mark.parametrize("seed", range(1000, 1006))
def test_the_c_backend_agrees_with_the_interpreter(seed):
    assert fuzz.check(fuzz.make(seed), c=True).verdict in ("exact", "refused", "unsure", "wild"), report(seed, True)


def test_the_oracle_notices_a_wrong_gradient(monkeypatch):
    whole = fuzz.Program.gradient

    def spoiled(self, twice=False):
        grads, final = whole(self, twice)
        return {name: g * 1.001 for name, g in grads.items()}, final

    monkeypatch.setattr(fuzz.Program, "gradient", spoiled)
    assert any(fuzz.check(fuzz.make(seed)).verdict == "wrong" for seed in range(3))

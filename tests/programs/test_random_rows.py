"""Random kernels over decompositions, noise, odd types, overloads, C and custom adjoints: see `fuzz/rows.py`."""

from __future__ import annotations

import pytest

from tests.fuzz.rows import verdict

FAR_FACTORS = 811302  # a decomposition so far behind a slope that its own rule is not read


@pytest.mark.parametrize("seed", [*range(1, 8), FAR_FACTORS])
def test_a_gradient_is_that_of_differences_and_of_wider_floats(seed, tmp_path):
    what, word = verdict(seed, tmp_path, compiled=False)
    assert what in ("exact", "unsure") or (what == "refused" and "mixed-types" in word), word


@pytest.mark.needs_cc
def test_generated_code_agrees_with_the_interpreter(tmp_path):
    assert verdict(8, tmp_path, compiled=True)[0] in ("exact", "unsure")

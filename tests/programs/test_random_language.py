"""Random kernels over transforms, quaternions, spatial vectors and the words around them: see `fuzz/language.py`."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.fuzz.language import verdict
from workbench.kernels.ops import ROWS


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_gradient_is_that_of_differences(seed, tmp_path):
    what, word = verdict(seed, tmp_path, compiled=False)
    assert what in ("exact", "unsure") or (what == "refused" and word.startswith("mixed-types")), word


@pytest.mark.needs_cc
@pytest.mark.parametrize("seed", [4, 5])
def test_generated_code_agrees_with_the_interpreter(seed, tmp_path):
    assert verdict(seed, tmp_path, compiled=True)[0] in ("exact", "unsure", "refused")


def test_a_wrong_adjoint_is_noticed(tmp_path, monkeypatch):
    for row in ("sin", "dot", "times"):
        right = ROWS[row].adjoint
        monkeypatch.setitem(
            ROWS[row].__dict__,
            "adjoint",
            lambda g, *a, right=right: tuple(None if p is None else p * 1.25 for p in right(g, *a)),
        )
    assert any(verdict(seed, tmp_path, compiled=False)[0] == "WRONG" for seed in range(1, 13))
    assert wb.config.backend == "numpy"

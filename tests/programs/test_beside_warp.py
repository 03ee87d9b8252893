"""A sample of the builtins beside Warp's: `python -m tests.support.beside_warp` runs all of them at all operands."""

from __future__ import annotations

import re

import numpy as np
import pytest

import workbench as wb
from tests.support.beside_warp import DIFFERENT, Case, cases, differences, known, operands

SAMPLE = [c for k, c in enumerate(cases()) if k % 16 == 3]


@pytest.mark.needs_warp
@pytest.mark.needs_cc
def test_a_sample_of_builtins_is_warps_or_differs_as_said(tmp_path):
    assert len(SAMPLE) >= 18
    assert [d for d in differences(SAMPLE, 40, tmp_path) if not known(d)] == []


@pytest.mark.needs_warp
@pytest.mark.needs_cc
def test_a_difference_that_nobody_has_said_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.support.beside_warp.DIFFERENT", [])
    found = list(differences([Case("a % b", ("int32", "int32"), "int32")], 400, tmp_path))
    assert found and not any(map(known, found))


def test_what_is_said_is_of_cases_that_exist():
    texts = [c.text for c in cases()]
    assert [p for p, _, _ in DIFFERENT if not any(re.search(p, text) for text in texts)] == []


def test_no_integer_division_that_ends_warps_process_is_drawn():
    drawn = operands(Case("a // b", ("int32", "int32"), "int32"), 10**6)
    assert not np.isin(drawn[1], [0, -1]).any()


def test_a_quaternion_of_zeros_turns_nothing(backend):
    @wb.kernel
    def unit(q: wb.array[wb.quat], y: wb.array[wb.quat], n: wb.array[float]):
        i = wb.tid()
        y[i] = wb.normalize(q[i])
        n[i] = wb.length(q[i])

    wb.config.backend = backend
    q = wb.array([[0, 0, 0, 0], [0, 0, 3, 4], [0, 0, 0, -2]], dtype=wb.quat, requires_grad=True)
    y, n = wb.zeros(3, dtype=wb.quat), wb.zeros(3)
    with wb.Tape() as tape:
        wb.launch(unit, 3, [q, y, n])
    np.testing.assert_allclose(y.numpy(), [[0, 0, 0, 1], [0, 0, 0.6, 0.8], [0, 0, 0, -1]], rtol=1e-6)
    with pytest.warns(UserWarning, match="slope of `length` at a zero vector"):
        tape.backward(grads={n: wb.ones(3)})
    np.testing.assert_allclose(q.grad.numpy(), [[0, 0, 0, 0], [0, 0, 0.6, 0.8], [0, 0, 0, -1]], rtol=1e-6)
    q.grad.zero_()
    with pytest.warns(UserWarning, match="slope of `normalize` at a zero vector"):
        tape.backward(grads={y: wb.ones(3, dtype=wb.quat)})
    assert np.isfinite(q.grad.numpy()).all() and not q.grad.numpy()[0].any()

"""Work that a kernel leaves out where a number is 0: the derivative by that number is there all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]
FORCES = [0, 2, 0]


def gradients(k: Any, places: list[int]) -> tuple[Any, list[list[float]]]:
    """What was seen of sums at some places, and the gradients of their total by forces and arms."""
    wp = k.wp
    f, x = (wp.array(v, dtype=float) for v in (FORCES, [3, 5, 7]))
    y, at = wp.zeros(2, dtype=float), wp.array(places, dtype=int)
    with wb.interop.warp.watch() as seen:
        for _ in range(3):  # the third is repeated
            wp.launch(k.forces, 3, [f, x, at], [y])
    assert y.numpy().sum() == 30
    seen.backward(grads={y: np.ones(2, np.float32)})
    return seen, [seen.gradients[a].tolist() for a in (f, x)]


def test_the_gradient_by_a_force_of_zero_is_its_arm(k: Any) -> None:
    seen, found = gradients(k, [0, 1, 1])
    assert found == [[9, 15, 21], [0, 6, 0]]
    assert not seen.opaque_steps and not any(step.difference for step in seen.steps)


def test_work_outside_of_an_array_is_left_out_as_in_the_program(k: Any) -> None:
    assert gradients(k, [0, 1, 1 << 28])[1] == [[0, 15, 0], [0, 6, 0]]


def test_work_that_would_be_no_number_is_left_out_as_in_the_program(k: Any) -> None:
    wp = k.wp
    x, y = wp.array([0.0, 0.5, 2.0], dtype=float), wp.zeros(1, dtype=float)
    with wb.interop.warp.watch() as seen:
        for _ in range(3):
            wp.launch(k.entropy, 3, [x], [y])
    seen.backward(grads={y: np.ones(1, np.float32)})
    np.testing.assert_allclose(seen.gradients[x], [0.0, *(3 * (1 + np.log([0.5, 2.0])))], rtol=1e-6)
    assert not any(step.difference for step in seen.steps)

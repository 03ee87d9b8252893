"""Dense Jacobians of every kind of tape: rows or columns, and what stops forward mode."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import X, cube, empty, leaf, square

pytestmark = pytest.mark.usefixtures("backend")


def recorded(kind: str):
    x, h, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [h])
        if kind == "record_func":
            tape.record_func(lambda: None, [h])
        if kind == "checkpoint":
            wb.checkpoint(1, 1)(lambda t, h, y: wb.launch(cube, 4, [h], [y]))(h, y)
        else:
            wb.launch(cube, 4, [h], [y])
    return tape, x, y


@pytest.mark.parametrize("part", [slice(None), slice(0, 3)])
@pytest.mark.parametrize("kind", ["launches", "record_func", "checkpoint"])
def test_a_jacobian_is_exact_through_what_only_the_reverse_pass_can_cross(kind, part):
    tape, x, y = recorded(kind)
    exact = np.diag(6 * X**5)
    np.testing.assert_allclose(wb.jacobian(tape, y, x[part]), exact[:, part], rtol=1e-13)
    np.testing.assert_allclose(wb.jacobian(tape, y[part], x), exact[part], rtol=1e-13)
    np.testing.assert_allclose(wb.jacobian(tape, y, x[part], mode="rows"), exact[:, part], rtol=1e-13)
    if kind == "launches":
        np.testing.assert_allclose(wb.jacobian(tape, y, x[part], mode="columns"), exact[:, part], rtol=1e-13)
        return
    with pytest.raises(wb.GradientError) as found:
        wb.jacobian(tape, y, x, mode="columns")
    assert found.value.slug == "jvp-func"


def test_a_jacobian_has_two_modes():
    tape, x, y = recorded("launches")
    with pytest.raises(ValueError, match="mode is"):
        wb.jacobian(tape, y, x, mode="forward")

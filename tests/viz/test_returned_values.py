"""What a function returns has a step of its own, also where it goes straight into an array."""

from __future__ import annotations

import math

import pytest

import workbench as wb


@wb.func
def wavy(a: float, b: float):
    c = a * b
    return wb.sin(c) + a


@wb.kernel
def straight_in(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 3.0 * wavy(x[i], 2.0)


def test_a_returned_value_has_a_step_though_it_goes_straight_into_an_array():
    x, y = wb.array([0.5, 2.0], requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(straight_in, 2, [x, y])
    tape.backward(grads={y: wb.ones(2)})
    seen = tape.microscope(0, 1)
    (down,), (up,) = seen.find("return"), seen.find("return", phase="reverse")
    assert down.where.text.strip() == "return wb.sin(c) + a" and down.depth == 1
    assert down.value == pytest.approx(math.sin(4.0) + 2.0) and up.adjoint == 3.0

"""Memory whose raw address is out of our hands: the tape's own writes are no strangers, everybody else's are found."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def add_squares(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] += x[i] * x[i]


@wb.kernel
def square_all_but_the_first(x: wb.array(dtype=float)):
    i = wb.tid() + 1
    x[i] = x[i] * x[i]


def recorded(expose: str) -> tuple[wb.Tape, wb.array, wb.array, np.ndarray | None]:
    x, y, seen = wb.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True), wb.zeros(3, dtype=float), None
    if expose == "before":
        seen = x.numpy()
    with wb.Tape() as tape:
        for step in range(2):
            wb.launch(add_squares, dim=3, inputs=[x, y])
            if expose == "between" and step == 0:
                seen = x.numpy()
            # A part of what the adjoint of `add_squares` reads.
            wb.launch(square_all_but_the_first, dim=2, inputs=[x])
    return tape, x, y, seen


@pytest.mark.parametrize("expose", ["never", "before", "between"])
def test_writing_a_part_of_what_is_needed_is_kept_and_not_refused(expose: str) -> None:
    tape, x, y, _ = recorded(expose)
    for _ in range(2):
        x.grad = None
        tape.backward(grads={y: wb.ones(3, dtype=float)})
        # y is 2 x^2 for the first element, x^2 + x^4 for the others.
        assert x.grad.numpy().tolist() == [4.0, 4.0 + 32.0, 6.0 + 108.0]
        assert x.numpy().tolist() == [1.0, 16.0, 81.0]


def test_a_stranger_s_write_to_the_rest_is_still_found() -> None:
    x, y = wb.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True), wb.zeros(3, dtype=float)
    seen = x.numpy()
    with wb.Tape() as tape:
        wb.launch(add_squares, dim=3, inputs=[x, y])
        seen[0] = 7.0
        wb.launch(square_all_but_the_first, dim=2, inputs=[x])
    with pytest.raises(wb.GradientError, match="'x' was changed"):
        tape.backward(grads={y: wb.ones(3, dtype=float)})

"""Arrays from lists of NumPy views of other arrays: copies on the tape, or refused where the values were converted."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

F = wb.float32
X = np.array([1.0, 2.0, 3.0], np.float32)
V = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


@wb.struct
class Ball:
    mass: wb.float32
    place: wb.vec3


CASES = {
    "twice": (lambda x, v: wb.array([x.numpy(), x.numpy()], dtype=F), [2, 2, 2], 0),
    "pieces": (lambda x, v: wb.array([x.numpy()[:2], x.numpy()[1:]], dtype=F), [1, 2, 1], 0),
    "a tuple": (lambda x, v: wb.array((x.numpy(),), dtype=F), [1, 1, 1], 0),
    "vectors": (lambda x, v: wb.array([v.numpy()[1], v.numpy()[0]], dtype=wb.vec3), [0, 0, 0], 1),
    "components": (lambda x, v: wb.array([v.numpy()[1], v.numpy()[0]], dtype=F), [0, 0, 0], 1),
    "whole": (lambda x, v: wb.array([v.numpy()], dtype=wb.vec3), [0, 0, 0], 1),
    "transposed": (lambda x, v: wb.array([v.numpy().T], dtype=F), [0, 0, 0], 1),
}


@pytest.mark.host_memory
@pytest.mark.parametrize("name", CASES)
def test_a_list_of_views_is_copies(name, backend):
    make, by_x, by_v = CASES[name]
    x, v = wb.array(X, dtype=F, requires_grad=True), wb.array(V, dtype=wb.vec3, requires_grad=True)
    want = make(wb.array(X, dtype=F), wb.array(V, dtype=wb.vec3)).numpy()
    with wb.Tape() as tape:
        made = make(x, v)
    np.testing.assert_array_equal(made.numpy(), want)
    tape.backward(grads={made: wb.ones_like(made)})
    np.testing.assert_array_equal(x.grad.numpy(), by_x)
    np.testing.assert_array_equal(v.grad.numpy(), np.full((2, 3), by_v))


@pytest.mark.host_memory
def test_a_list_of_views_that_is_converted_is_refused(backend):
    x = wb.array(X, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        made = wb.array([x.numpy(), x.numpy()], dtype=wb.float64)
    with pytest.raises(wb.GradientError, match="values that the host made from x"):
        tape.backward(grads={made: wb.ones_like(made)})


@pytest.mark.parametrize("zero", [0, 0.0, np.float32(0)])
def test_structs_are_filled_with_zero_alone(zero, backend):
    balls = wb.array([Ball(2.0, wb.vec3(1.0, 2.0, 3.0))] * 3, dtype=Ball)
    for made in (wb.full(3, zero, dtype=Ball), wb.full_like(balls, zero), balls.fill_(zero)):
        assert not made.field("mass").numpy().any() and not made.field("place").numpy().any()
    for one in (1, 2.5, np.float32(1)):
        with pytest.raises(wb.LaunchError, match=r"fill of Ball with the number [\d.]+\nWrite instead:   a Ball\(\)"):
            wb.full(3, one, dtype=Ball)

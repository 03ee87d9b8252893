"""Values and slopes of functions that choose among their arguments, for every order of these and for NaN."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.ops.row import ROWS

F = wb.float64
NUMBERS = (-1.0, 0.0, 0.5, 2.0)

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def clamped(a: wb.array2d(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = wb.clamp(a[i, 0], a[i, 1], a[i, 2])


@wb.kernel
def least(a: wb.array2d(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = wb.min(wb.min(a[i, 0], a[i, 1]), a[i, 2])


@wb.kernel
def most(a: wb.array2d(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = wb.max(wb.max(a[i, 0], a[i, 1]), a[i, 2])


# what it gives, and which argument it gives (the first of equal ones; of a clamp on its bound, x)
MEANING = {
    clamped: (lambda x, lo, hi: min(max(lo, x), hi), lambda x, lo, hi: 2 if hi < lo or hi < x else 1 if x < lo else 0),
    least: (min, lambda *a: a.index(min(a))),
    most: (max, lambda *a: a.index(max(a))),
}


def run(kernel, rows):
    a, y = wb.array(np.array(rows), dtype=F, requires_grad=True), wb.zeros(len(rows), dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, len(rows), [a, y])
    tape.backward(grads={y: wb.full(len(rows), 3.0, dtype=F)})
    return y.numpy(), a.grad.numpy()


@pytest.mark.parametrize("kernel", MEANING, ids=lambda k: k.__name__)
def test_one_argument_is_chosen_and_has_the_whole_slope(kernel):
    rows = list(itertools.product(NUMBERS, repeat=3))
    value, which = MEANING[kernel]
    y, slopes = run(kernel, rows)
    np.testing.assert_array_equal(y, [value(*row) for row in rows])
    np.testing.assert_array_equal(slopes, [3.0 * np.eye(3)[which(*row)] for row in rows])


def test_what_was_in_a_cell_comes_back_and_has_a_slope():
    @wb.kernel
    def taken(s: wb.array(dtype=F), x: wb.array(dtype=F), y: wb.array(dtype=F)):
        y[0] = wb.atomic_add(s, 0, x[0]) * F(5.0)

    s, x = (wb.array([v], dtype=F, requires_grad=True) for v in (2.0, 7.0))
    y = wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(taken, 1, [s, x, y])
    tape.backward(grads={y: wb.ones(1, dtype=F)})
    assert y.list() == [10.0] and s.list() == [9.0] and x.grad.list() == [0.0]
    assert tape.adjoint(s, at=tape.launches[0]).tolist() == [5.0]


@wb.kernel
def stored_again(k: wb.array(dtype=int), x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
    i = wb.tid()
    j = k[i]
    y[i] = x[i]
    y[j] = x[i] * F(3.0)
    z[i] = y[i]


@wb.kernel
def added_again(k: wb.array(dtype=int), x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
    i = wb.tid()
    j = k[i]
    y[i] = x[i]
    y[j] += x[i] * F(2.0)
    z[i] = y[i]


@pytest.mark.parametrize("kernel", [stored_again, added_again], ids=lambda k: k.__name__)
def test_a_cell_written_under_another_index_is_read_again(kernel):
    x, y, z = wb.array([5.0, 7.0], dtype=F, requires_grad=True), wb.zeros(2, dtype=F), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, 2, [wb.array([0, 1], dtype=int), x, y, z])
    tape.backward(grads={z: wb.ones(2, dtype=F)})
    assert z.list() == [15.0, 21.0] and x.grad.list() == [3.0, 3.0]


def test_numbers_of_numpy_keep_their_type_beside_others():
    assert ROWS["add"](np.float32(1.0), 2.0).dtype == np.float32
    for other in (np.float64(2.0), np.float16(2.0), np.int32(2)):
        with pytest.raises(TypeError, match="operands of one type"):
            ROWS["add"](np.float32(1.0), other)


@wb.kernel
def blended(a: wb.array2d(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = wb.smoothstep(a[i, 0], a[i, 1], a[i, 2]) + F(10.0) * wb.lerp(a[i, 0], a[i, 1], a[i, 2])


def test_smoothstep_and_lerp_take_their_arguments_in_order():
    rows = [(1.0, 3.0, x) for x in (0.0, 1.5, 2.0, 2.75, 4.0)]
    y, _ = run(blended, rows)
    t = np.clip([(x - lo) / (hi - lo) for lo, hi, x in rows], 0, 1)
    np.testing.assert_allclose(y, t * t * (3 - 2 * t) + [10 * (lo + (hi - lo) * x) for lo, hi, x in rows], rtol=1e-15)

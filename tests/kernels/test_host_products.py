"""`*` between small values on the host means what it means in a kernel."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

A, B = wb.mat22(1.0, 2.0, 3.0, 4.0), wb.mat22(0.5, -1.0, 2.0, 3.0)
V, N = wb.vec2(1.0, 1.0), wb.types.matrix((2, 3), float)(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
Q, R = wb.quat_from_axis_angle(wb.vec3(0.0, 0.0, 1.0), 0.5), wb.quat_rpy(0.1, 0.2, 0.3)
T, U = wb.transform(wb.vec3(1.0, 2.0, 3.0), Q), wb.transform(wb.vec3(-1.0, 0.5, 2.0), R)
PAIRS = {
    "matrices": (A, B),
    "matrix and vector": (A, V),
    "vector and matrix": (V, A),
    "sizes": (A, N),
    "quat": (Q, R),
    "transforms": (T, U),
}


def in_a_kernel(a, b, out):
    left, right = a.type, b.type

    @wb.kernel
    def times(a: left, b: right, y: wb.array[out]):  # type: ignore[valid-type]
        y[0] = a * b

    y = wb.zeros(1, dtype=out)
    wb.launch(times, 1, [a, b, y])
    return y.numpy()[0]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_product_is_that_of_a_kernel(pair):
    a, b = PAIRS[pair]
    made = a * b
    assert isinstance(made, made.type)
    np.testing.assert_allclose(made, in_a_kernel(a, b, made.type), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(made, wb.mul(a, b), rtol=1e-6, atol=1e-6)


def test_numbers_and_vectors_go_component_by_component():
    assert (2.0 * A).tolist() == [[2, 4], [6, 8]] and (V * 3.0).tolist() == [3, 3] and (A / 2.0)[1, 1] == 2.0
    assert wb.cw_mul(A, B).tolist() == [[0.5, -2], [6, 12]] and (Q * 2.0).tolist() == [2 * float(q) for q in Q]
    assert (A * np.ones((2, 2), np.float32)).tolist() == A.tolist()
    c = wb.mat22(1.0, 2.0, 3.0, 4.0)
    c *= B
    assert c.tolist() == (A @ B).tolist()


def test_two_scalar_types_are_refused():
    with pytest.raises(TypeError, match="one scalar type"):
        _ = A * wb.mat22d(1.0, 2.0, 3.0, 4.0)


def test_elements_of_arrays_multiply_alike():
    a = wb.array([A, B], dtype=wb.mat22)
    np.testing.assert_allclose(a[0] * a[1], A @ B, rtol=1e-6)

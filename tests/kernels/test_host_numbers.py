"""Numbers of the host: vectors of NumPy in builtins, parts that are not finite, literals that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

INF, NAN = float("inf"), float("nan")


def test_vectors_and_matrices_of_numpy_are_taken():
    v, m = np.array([3.0, 4.0], np.float32), np.array([[1.0, 2.0], [3.0, 4.0]])
    assert wb.length(v) == 5.0 and wb.dot(v, wb.vec2(1.0, 2.0)) == 11.0
    assert wb.determinant(m) == pytest.approx(-2.0) and wb.transpose(m).tolist() == m.T.tolist()


@wb.kernel
def parts_of(x: wb.array[wb.vec3], out: wb.array2d[wb.bool]):
    i = wb.tid()
    out[i, 0] = wb.isnan(x[i])
    out[i, 1] = wb.isinf(x[i])
    out[i, 2] = wb.isfinite(x[i])


@pytest.mark.usefixtures("backend")
def test_one_component_is_enough_to_be_infinite_and_all_are_needed_to_be_finite():
    values = np.array([[1, 2, 3], [INF, 0, 0], [0, 0, -INF], [0, NAN, 0], [INF, INF, INF], [NAN, INF, 0]], np.float32)
    out = wb.zeros((6, 3), dtype=wb.bool)
    wb.launch(parts_of, 6, [wb.array(values, dtype=wb.vec3), out])
    want = np.stack([np.isnan(values).any(1), np.isinf(values).any(1), np.isfinite(values).all(1)], 1)
    assert out.numpy().tolist() == want.tolist()
    assert [wb.isinf(wb.vec3(*row)) for row in values.tolist()] == want[:, 1].tolist()


@wb.kernel
def of_one_row(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    m = wb.matrix(x[0], x[1], x[2], shape=(1, 3))
    n = wb.matrix(x[0], x[1], shape=(2, 1))
    y[i] = m[0, 0] + 10.0 * m[0, 1] + 100.0 * m[0, 2] + 1000.0 * n[1, 0]


@pytest.mark.usefixtures("backend")
def test_a_matrix_may_have_one_row_or_one_column():
    y = wb.zeros(1)
    wb.launch(of_one_row, 1, [wb.array([1.0, 2.0, 3.0]), y])
    assert y.list() == [2321.0]


@wb.kernel
def a_tenth(x: wb.array[wb.float16], y: wb.array[wb.float16]):
    i = wb.tid()
    y[i] = x[i] * 0.1


@pytest.mark.usefixtures("backend")
def test_a_literal_takes_the_type_beside_it_though_it_is_rounded_there():
    x = np.array([1.0, 3.0, 7.0, -11.0], np.float16)
    y = wb.zeros(4, dtype=wb.float16)
    wb.launch(a_tenth, 4, [wb.array(x, dtype=wb.float16), y])
    assert y.numpy().tolist() == (x * np.float16(0.1)).tolist()


def test_a_literal_that_would_be_0_in_the_type_beside_it_is_not_taken():
    @wb.kernel
    def lost(x: wb.array[wb.float16]):
        i = wb.tid()
        x[i] = x[i] * 1e-30

    with pytest.raises(wb.KernelError, match=r"\[mixed-types\]"):
        lost.program()

"""Indices that come from data: under `check_bounds` none reads or writes outside, and the first one ends the launch."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

FAR = 100_000_000
Long = wb.types.vector(80, wb.float32)
Wide = wb.types.matrix((9, 9), wb.float32)


def indexed(type: object):
    @wb.kernel
    def store(j: wb.array(dtype=type), y: wb.array[float]):
        y[j[wb.tid()]] = 1.0

    return store


@wb.kernel
def vector_read(j: wb.array[int], y: wb.array[float]):
    v = wb.vec3(1.0, 2.0, 3.0)
    y[wb.tid()] = v[j[wb.tid()]]


@wb.kernel
def vector_write(j: wb.array[int], y: wb.array[float]):
    v = wb.vec3(1.0, 2.0, 3.0)
    v[j[wb.tid()]] = y[0]
    y[wb.tid()] = v[0]


@wb.kernel
def local_write(j: wb.array[int], y: wb.array[float]):
    v = wb.zeros(shape=(50,), dtype=float)
    v[j[wb.tid()]] = 1.0
    y[wb.tid()] = v[0]


@wb.kernel
def matrix_row(j: wb.array[int], y: wb.array[float]):
    m = wb.mat33(1.0)
    r = m[j[wb.tid()]]
    y[wb.tid()] = r[0]


@wb.kernel
def matrix_entry(j: wb.array[int], y: wb.array[float]):
    m = Wide(1.0)
    m[0, j[wb.tid()]] = 2.0
    y[wb.tid()] = m[0, 1]


@wb.kernel
def quaternion_read(j: wb.array[int], y: wb.array[float]):
    q = wb.quat_identity()
    y[wb.tid()] = q[j[wb.tid()]]


@wb.kernel
def long_loop(j: wb.array[int], y: wb.array[float]):
    for k in range(j[0]):
        y[k] = 1.0


COMPONENTS = [vector_read, vector_write, local_write, matrix_row, matrix_entry, quaternion_read, long_loop]


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    monkeypatch.setattr(wb.config, "check_bounds", True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "type, number",
    [
        (wb.uint8, 255),
        (wb.uint32, 2**32 - 1),
        (wb.uint64, 2**64 - 1),
        (wb.uint64, 2**63),
        (wb.int8, -128),
        (wb.int64, 2**62),
        (wb.int64, -(2**63)),
        (wb.int32, -5),
        (wb.int32, 4),
    ],
)
def test_no_integer_type_gets_past_the_check(type, number, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    guard = wb.zeros(12)
    with pytest.raises(wb.BoundsError, match="'y'"):
        wb.launch(indexed(type), 1, [wb.array([number], dtype=type), guard[4:8]])
    assert not guard.numpy().any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [FAR, -FAR, 2**31 - 1])
@pytest.mark.parametrize("kernel", COMPONENTS, ids=lambda k: k.__name__)
def test_components_and_loops_end_at_the_first_index_outside(kernel, number, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    if kernel is long_loop and number < 0:
        number = 5
    with pytest.raises((wb.BoundsError, wb.LaunchError)) as caught:
        wb.launch(kernel, 1, [wb.array([number]), wb.zeros(4)])
    assert caught.value.slug == "bounds" and caught.value.where is not None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [0, 2, -1, -3])
def test_indices_inside_are_served_from_either_end(number, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    y = wb.zeros(1)
    wb.launch(vector_read, 1, [wb.array([number]), y])
    assert y.list() == [[1, 2, 3][number]]


@wb.kernel
def large(x: wb.array[float], j: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    v = Long(x[i])
    m = Wide(x[i])
    for k in range(60):
        v[(k * j[i]) % 80] = x[k % 4] * v[k % 80]
        m[k % 9, (k * j[i]) % 9] = v[k % 80] + m[(k + j[i]) % 9][k % 9]
    w = v * 0.5 + wb.cw_mul(v, v)
    v[-j[i]] = w[j[i]]
    y[i] = v[-j[i]] + w[-1] + m[5][j[i]] + m[-j[i], -1]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.needs_cc
def test_large_local_values_are_the_interpreters_with_their_gradients(checked, monkeypatch):
    found = []
    for backend in ("numpy", "c"):
        monkeypatch.setattr(wb.config, "backend", backend)
        monkeypatch.setattr(wb.config, "check_bounds", checked)
        x = wb.array([0.9, -1.1, 0.7, 1.2], requires_grad=True)
        y = wb.zeros(4)
        with wb.Tape() as tape:
            wb.launch(large, 4, [x, wb.array([1, 2, 3, 5]), y])
        tape.backward(grads={y: wb.ones(4)})
        found.append((y.numpy(), x.grad.numpy()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=2e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=2e-5)
    assert np.abs(found[0][1]).min() > 1e-3


@pytest.mark.needs_cc
def test_a_local_array_of_hundreds_of_numbers_compiles(monkeypatch):
    @wb.kernel
    def fill(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        v = wb.zeros(shape=(500,), dtype=float)
        for k in range(500):
            v[k] = x[i] + float(k)
        y[i] = v[int(x[i])]

    monkeypatch.setattr(wb.config, "backend", "c")
    monkeypatch.setattr(wb.config, "check_bounds", False)
    y = wb.zeros(2)
    wb.launch(fill, 2, [wb.array([3.0, 499.0]), y])
    assert y.list() == [6, 998]

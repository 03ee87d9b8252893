"""Numbers that a func returns on one path take the type of what another path returns, also inside of tuples."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

F = wb.float64
TENTH = np.float64(0.1)


@wb.func
def pair(x: F):
    if x > F(0.0):
        return 0.1, x
    return x, x * x


@wb.func
def pair_of_a_constant(x: F):
    if x > F(0.0):
        return TENTH, x
    return x, x * x


@wb.func
def pair_in_a_pair(x: F):
    if x > F(0.0):
        return wb.sin(F(0.0)) * x, (0.1, x)
    return x * F(0.0), (x, x * x)


@wb.kernel
def of_a_pair(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    p, q = pair(x[i])
    y[i] = p + F(10.0) * q


@wb.kernel
def of_a_constant(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    p, q = pair_of_a_constant(x[i])
    y[i] = p + F(10.0) * q


@wb.kernel
def of_a_pair_in_a_pair(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    _, (p, q) = pair_in_a_pair(x[i])
    y[i] = p + F(10.0) * q


@pytest.mark.parametrize("kernel", [of_a_pair, of_a_constant, of_a_pair_in_a_pair])
def test_a_number_in_a_returned_tuple_keeps_all_of_its_digits(kernel, backend):
    x, y = wb.array([1.0, -2.0], dtype=F, requires_grad=True), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, 2, [x, y])
    assert y.list() == [0.1 + 10.0, -2.0 + 40.0]
    tape.backward(grads={y: wb.ones(2, dtype=F)})
    assert x.grad.list() == [10.0, 1.0 - 40.0]

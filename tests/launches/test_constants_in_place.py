"""Constants of Python that a kernel uses: the next launch honours what became of them, recorded ones keep theirs."""

from __future__ import annotations

import types

import numpy as np
import pytest

import workbench as wb

F = wb.float64
V = wb.vector(2, F)
GLOBAL = V(2.0, 3.0)
CONSTANT = wb.constant(V(2.0, 3.0))
MATRIX = wb.matrix((2, 2), F)(1.0, 2.0, 3.0, 4.0)
MODULE = types.ModuleType("constants_of_a_test")
MODULE.vector = V(2.0, 3.0)
DEFAULT = V(2.0, 3.0)


class Parameters:
    vector = V(2.0, 3.0)
    number = 2.0


class State:
    def __init__(self):
        self.vector = V(2.0, 3.0)


STATE = State()


@wb.func
def first(v: V = DEFAULT):
    return v[0]


@wb.kernel
def by_global(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * GLOBAL[0]


@wb.kernel
def by_constant(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * CONSTANT.x


@wb.kernel
def by_module(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * MODULE.vector[0]


@wb.kernel
def by_class(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * Parameters.vector[0]


@wb.kernel
def by_object(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * STATE.vector[0]


@wb.kernel
def by_default(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * first()


@wb.kernel
def by_static(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * F(wb.static(GLOBAL[0]))


PLACES = {
    "global": (by_global, GLOBAL),
    "constant": (by_constant, CONSTANT),
    "module": (by_module, MODULE.vector),
    "class": (by_class, Parameters.vector),
    "object": (by_object, STATE.vector),
    "default": (by_default, DEFAULT),
    "static": (by_static, GLOBAL),
}


def run(kernel, x):
    y = wb.zeros(2, dtype=F)
    wb.launch(kernel, dim=2, inputs=[x, y])
    return y


@pytest.mark.parametrize("place", PLACES)
def test_a_vector_changed_in_place_is_honoured_by_the_next_launch(backend, place):
    kernel, vector = PLACES[place]
    x = wb.array([1.0, 3.0], dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        before = run(kernel, x)
    vector[0] = 5.0
    try:
        assert list(run(kernel, x).numpy()) == [5, 45]
        tape.backward(grads={before: wb.ones(2, dtype=F)})  # the recorded launch keeps what it ran with
        assert list(before.numpy()) == [2, 18]
        assert list(x.grad.numpy()) == [4, 12]
    finally:
        vector[0] = 2.0
    assert list(run(kernel, x).numpy()) == [2, 18]


def test_a_matrix_and_a_closure(backend):
    own = wb.matrix((2, 2), F)(1.0, 2.0, 3.0, 4.0)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * own[1, 0] + MATRIX[0][1]

    x = wb.array([1.0, 2.0], dtype=F)
    assert list(run(k, x).numpy()) == [5, 8]
    own[1, 0] = 7.0
    assert list(run(k, x).numpy()) == [9, 16]
    MATRIX[0, 1] = 0.0
    assert list(run(k, x).numpy()) == [7, 14]
    MATRIX[0, 1] = 2.0


def test_attributes_bound_anew(backend, monkeypatch):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * STATE.vector[0] * F(Parameters.number) * MODULE.vector[1]

    x = wb.array([1.0, 2.0], dtype=F)
    assert list(run(k, x).numpy()) == [12, 24]
    monkeypatch.setattr(STATE, "vector", V(3.0, 0.0))
    assert list(run(k, x).numpy()) == [18, 36]
    monkeypatch.setattr(Parameters, "number", 1.0)
    assert list(run(k, x).numpy()) == [9, 18]
    monkeypatch.setattr(MODULE, "vector", V(0.0, 1.0))
    assert list(run(k, x).numpy()) == [3, 6]


def test_nothing_is_read_again_where_nothing_changed(backend):
    x = wb.array([1.0, 2.0], dtype=F)
    run(by_object, x)
    program = by_object.program()
    run(by_object, x)
    assert by_object.program() is program
    STATE.vector = V(np.array(STATE.vector))  # another with the same contents
    assert by_object.program() is program
    STATE.vector[1] = 0.0
    assert by_object.program() is not program
    STATE.vector[1] = 3.0


SIZES = [2.0, 3.0]
TABLE = {"a": np.array([2.0, 3.0])}


def test_what_static_looked_at(backend):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * F(wb.static(SIZES[0])) * F(wb.static(TABLE["a"][0]))

    x = wb.array([1.0, 2.0], dtype=F)
    assert list(run(k, x).numpy()) == [4, 8]
    SIZES[0], TABLE["a"][0] = 5.0, 1.0
    assert list(run(k, x).numpy()) == [5, 10]
    SIZES[0], TABLE["a"][0] = 2.0, 2.0

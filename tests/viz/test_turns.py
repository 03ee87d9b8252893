"""To which turn of a loop the microscope counts what stands in the condition of a `while`."""

import numpy as np
import pytest

import workbench as wb

F = wb.float64

pytestmark = pytest.mark.usefixtures("backend")


@wb.func
def tripled(r: F):
    h = r * F(3.0)
    return h


@wb.kernel
def until_triple(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    r = x[i]
    for _ in range(2):
        while tripled(r) < F(10.0):
            r = r * F(2.0)
        r = r - F(3.0)
    y[i] = r


def test_a_condition_belongs_to_the_turn_that_it_lets_in():
    x, y = wb.array(np.ones(1), dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(until_triple, 1, [x], [y])
    tape.backward(grads={y: wb.ones(1, dtype=F)})
    m = tape.microscope(0, 0)
    tests = [(s.value, s.iteration) for s in m.find("h", phase="forward")]
    assert tests == [(3.0, (0, 0)), (6.0, (0, 1)), (12.0, (0, 2)), (3.0, (1, 0)), (6.0, (1, 1)), (12.0, (1, 2))]
    turns = [(s.value, s.iteration) for s in m.find("r", phase="forward") if len(s.iteration) == 2]
    assert turns == [(2.0, (0, 0)), (4.0, (0, 1)), (2.0, (1, 0)), (4.0, (1, 1))]

"""Memory goes with its last array: no circle of references keeps it until Python looks for circles."""

from __future__ import annotations

import gc
import weakref

import workbench as wb


@wb.kernel
def squares(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


def test_memory_goes_with_its_last_array() -> None:
    gc.collect()
    gc.disable()
    try:
        x, y, z = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2, requires_grad=True), wb.zeros(2)
        with wb.Tape() as tape:
            wb.launch(squares, 2, [x], [y])
            wb.launch(squares, 2, [y], [z])
        tape.backward(grads={z: wb.ones(2)})
        assert x.grad.list() == [4.0, 32.0]
        assert y.allocation.grad_notes  # what was overwritten
        gone = [weakref.ref(thing) for thing in (x.allocation, y.allocation, z.allocation, tape)]
        del x, y, z, tape
        assert [ref() for ref in gone] == [None] * 4
    finally:
        gc.enable()

"""Much memory begins at a large page, and is one allocation by whatever name."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.arrays import allocation


@pytest.mark.parametrize("make", [wb.zeros, wb.empty])
def test_much_memory_begins_at_a_large_page(make):
    x = make(allocation.LARGE_FROM // 4, device="cpu")
    assert x.ptr % allocation.LARGE_PAGE == 0 and x.numpy().nbytes == allocation.LARGE_FROM
    assert make is wb.empty or not x.numpy().any()


def test_views_of_numpy_join_the_memory_and_keep_it(monkeypatch):
    monkeypatch.setattr(allocation, "LARGE_FROM", 16)
    x = wb.zeros(100, requires_grad=True, device="cpu")
    same, part = wb.from_numpy(x.numpy()), wb.from_numpy(x.numpy()[10:20])
    assert same.allocation is part.allocation is x.allocation
    part.fill_(3.0)
    kept = x.numpy()
    del x, same, part
    np.testing.assert_array_equal(kept[8:22], [0.0] * 2 + [3.0] * 10 + [0.0] * 2)


def test_gradients_are_the_same(monkeypatch):
    @wb.kernel
    def square(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        y[i] = x[i] * x[i]

    monkeypatch.setattr(allocation, "LARGE_FROM", 16)
    x, y = wb.array(np.arange(50, dtype=np.float32), requires_grad=True), wb.zeros(50)
    with wb.Tape() as tape:
        wb.launch(square, 50, [x, y])
    tape.backward(grads={y: wb.ones(50)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * np.arange(50, dtype=np.float32))

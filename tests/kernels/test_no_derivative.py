"""A row that is said to have no derivative stops both modes where its result reaches what is differentiated."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.ops.row import ROWS
from workbench.kernels.row import NO_GRADIENT

F = wb.float64


@pytest.fixture
def sine_without_a_derivative(monkeypatch):
    """No row of the language is one at present, but for those of memory."""
    monkeypatch.setitem(ROWS["sin"].__dict__, "adjoint", NO_GRADIENT)
    monkeypatch.setitem(ROWS["sin"].__dict__, "tangent", None)
    wb.config.backend = "numpy"


def kernels():
    @wb.kernel
    def straight(x: wb.array(dtype=F), k: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.sin(x[i])

    @wb.kernel
    def onward(x: wb.array(dtype=F), k: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        a = wb.sin(x[i])
        b = a * F(2.0)
        y[i] = b + x[i]

    @wb.kernel
    def carried(x: wb.array(dtype=F), k: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for _ in range(k[i]):
            s = wb.sin(s)
        y[i] = s

    @wb.kernel
    def aside(x: wb.array(dtype=F), k: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        k[i] = int(wb.sin(x[i]))
        y[i] = x[i] * x[i]

    return {"straight": straight, "onward": onward, "carried": carried, "aside": aside}


@pytest.mark.usefixtures("sine_without_a_derivative")
@pytest.mark.parametrize("mode", ["backward", "jvp"])
@pytest.mark.parametrize("name", ["straight", "onward", "carried", "aside"])
def test_its_result_may_not_reach_what_is_differentiated(name, mode):
    x, k, y = wb.array([0.5, 2.0], dtype=F, requires_grad=True), wb.ones(2, dtype=int), wb.zeros(2, dtype=F)

    def run():
        with wb.Tape(keep="all") as tape:
            wb.launch(kernels()[name], 2, [x, k, y])
        if mode == "jvp":
            return wb.jvp(tape, {x: np.ones(2)})[y]
        tape.backward(grads={y: wb.ones(2, dtype=F)})
        return x.grad.numpy()

    if name == "aside":
        np.testing.assert_array_equal(run(), [1.0, 4.0])
        return
    with pytest.raises((wb.KernelError, wb.GradientError)) as found:
        run()
    assert found.value.slug == "no-derivative"

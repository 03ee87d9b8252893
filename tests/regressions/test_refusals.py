"""Refusals that no other test meets: each names its slug, the kernel's line where there is one, and the way out."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.emit.signature import STATUS_WORDS
from workbench.kernels.ir import walk
from workbench.launches.executable import Executable

F = wb.float64


pytestmark = pytest.mark.usefixtures("backend")


def leaf(*values):
    return wb.array(np.array(values, float), dtype=F, requires_grad=True)


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


def test_a_kernel_without_a_backward_pass_may_not_lie_on_the_way_to_a_gradient():
    @wb.kernel(enable_backward=False)
    def half(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = F(0.5) * x[i]

    x, y = leaf(1, 2), wb.zeros(2, dtype=F)
    with wb.Tape() as tape, pytest.raises(wb.GradientError, match=r"'half'(.|\n)*no-backward"):
        wb.launch(half, 2, [x], [y])
    assert len(tape) == 0 and not y.numpy().any()
    with wb.Tape() as tape:
        wb.launch(half, 2, [wb.array([1.0, 2.0], dtype=F)], [y])
    assert y.numpy().tolist() == [0.5, 1.0] and len(tape) == 1


def test_kernels_of_others_without_a_backward_pass_are_differentiated_where_that_is_asked_for():
    @wb.kernel(enable_backward=False)
    def half(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = F(0.5) * x[i]

    x, y = leaf(1, 2), wb.zeros(2, dtype=F)
    wb.config.all_adjoints = True
    try:
        with wb.Tape() as tape:
            wb.launch(half, 2, [x], [y])
        tape.backward(grads={y: wb.ones(2, dtype=F)})
    finally:
        wb.config.reset()
    assert x.grad.numpy().tolist() == [0.5, 0.5]


def test_looking_at_a_tape_never_calls_a_recorded_function_again():
    x, y, calls = leaf(1, 2), wb.zeros(2, dtype=F), []
    with wb.Tape() as tape:
        wb.launch(square, 2, [x], [y])
        tape.record_func(lambda: calls.append(1), [y])
    tape.backward(grads={y: wb.ones(2, dtype=F)})
    with pytest.raises(wb.GradientError, match=r"record_func(.|\n)*func-replay"):
        tape.adjoint(x)
    assert calls == [1] and x.grad.numpy().tolist() == [2, 4]


def test_a_replay_of_a_func_that_writes_arrays_needs_an_adjoint_too():
    @wb.func
    def store(a: F, y: wb.array(dtype=F)):
        y[0] = a * a
        return a

    @wb.func_replay(store)
    def store_again(a: F, y: wb.array(dtype=F)):
        return a

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        x[1] = store(x[0], y)

    with wb.Tape(), pytest.raises((wb.KernelError, wb.GradientError), match=r"store(.|\n)*replay-effect"):
        wb.launch(k, 1, [leaf(1, 2), leaf(0)])


def test_loop_values_that_do_not_fit_are_a_gradient_error():
    """The device reports it; here the report is made up, since memory does not run out on request."""

    @wb.kernel
    def loop(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        v = x[i]
        while v < F(100.0):
            v = v * v + F(1.0)
        y[i] = v

    x, y = leaf(1, 2), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(loop, 2, [x], [y])
    executable = tape.events[0].reverse.executable
    assert isinstance(executable, Executable) and executable.can_fail
    assert any(s.row.name == "stack" for s in walk(executable.function.body))
    with pytest.raises(wb.GradientError, match=r"'loop(.|\n)*ran out of the memory(.|\n)*stack-full"):
        executable.fail([2] + [0] * (STATUS_WORDS - 1))

"""`ScopedCapture` records a block and does not do it: memory is afterwards what it was before, and a launch does it."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def total(y: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, y[wb.tid()])


@wb.kernel
def step(x: wb.array[float], rate: float):
    i = wb.tid()
    x[i] = x[i] - rate * x[i]


def test_a_captured_step_is_not_done_and_each_launch_does_it_once():
    x = wb.ones(3)
    with wb.ScopedCapture(device="cpu") as scope:
        for _ in range(2):
            wb.launch(step, 3, [x, 0.5])
        made = wb.full(2, 7.0)
    assert x.numpy().tolist() == [1.0, 1.0, 1.0]
    wb.capture_launch(scope.graph)
    assert x.numpy().tolist() == [0.25, 0.25, 0.25] and made.numpy().tolist() == [7.0, 7.0]


@pytest.mark.parametrize("before", [0, 1], ids=["first backward", "gradients from before"])
@pytest.mark.parametrize("inside", [False, True], ids=["zeroed outside", "zeroed inside"])
def test_gradients_of_a_captured_training_step_are_those_of_one_step(before, inside):
    x, y, loss = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2), wb.zeros(1)
    tape = wb.Tape()

    def run():
        if inside:
            tape.zero()
        loss.zero_()
        with tape:
            wb.launch(square, 2, [x, y])
            wb.launch(total, 2, [y, loss])
        tape.backward(loss)

    for _ in range(before):
        run()
    kept = x.grad.numpy().copy()
    tape = wb.Tape()
    with wb.ScopedCapture() as scope:
        run()
    np.testing.assert_array_equal(x.grad.numpy(), kept)
    assert loss.item() == (5.0 if before else 0.0)
    for _ in range(2):
        tape.zero()
        wb.capture_launch(scope.graph)
        np.testing.assert_array_equal(x.grad.numpy(), [2.0, 4.0])
        assert loss.item() == 5.0


def test_a_tape_of_the_block_is_walked_only_after_a_launch():
    x, y = wb.array([3.0], requires_grad=True), wb.zeros(1)
    with wb.ScopedCapture() as scope, wb.Tape() as tape:
        wb.launch(square, 1, [x, y])
    with pytest.raises(wb.GradientError, match=r"has not been launched(.|\n)*\[capture\]"):
        tape.backward(grads={y: wb.ones(1)})
    x.assign([5.0])
    wb.capture_launch(scope.graph)
    tape.backward(grads={y: wb.ones(1)})
    assert x.grad.item() == 10.0


def test_a_block_that_fails_leaves_memory_as_it_was():
    x = wb.ones(2)
    with pytest.raises(ZeroDivisionError), wb.ScopedCapture():
        x.fill_(3.0)
        _ = 1 / 0
    assert x.numpy().tolist() == [1.0, 1.0]


def test_a_tensor_of_torch_gets_its_gradient_when_it_is_launched():
    torch = pytest.importorskip("torch")
    t, y = torch.tensor([1.0, 2.0], requires_grad=True), wb.zeros(2)
    with wb.ScopedCapture() as scope:
        with wb.Tape() as tape:
            wb.launch(square, 2, [t, y])
        tape.backward(grads={y: wb.ones(2)})
    assert t.grad is None or t.grad.tolist() == [0.0, 0.0]
    wb.capture_launch(scope.graph)
    assert t.grad.tolist() == [2.0, 4.0]


def test_steps_of_an_optimizer_count_when_they_are_launched():
    x = wb.array([1.0], requires_grad=True)
    x.grad.fill_(1.0)
    adam = wb.optim.Adam([x], lr=0.1)
    with wb.ScopedCapture() as scope:
        adam.step([x.grad])
    assert x.item() == 1.0
    wb.capture_launch(scope.graph)
    assert abs(x.item() - 0.9) < 1e-5

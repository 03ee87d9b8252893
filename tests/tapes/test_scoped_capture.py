"""`ScopedCapture` records a block and does not do it: memory is afterwards what it was before, and a launch does it."""

from __future__ import annotations

import tracemalloc

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


def block(choices: list[int], tape: wb.Tape, x, y, loss, z) -> None:
    """A random block: host writes, copies, launches, then a step of training."""
    for k in choices:
        if k == 0:
            y.fill_(2.0)
        elif k == 1:
            wb.copy(z, x, 1, 0, 2)
        elif k == 2:
            z[1:].assign(np.arange(2, dtype=np.float32))
        elif k == 3:
            wb.launch(square, 3, [wb.clone(z), z])
        elif k == 4:
            tape.zero()
        else:
            x.grad.zero_()
    with tape:
        loss.zero_()
        wb.launch(square, 3, [x, y])
        wb.launch(total, 3, [y, loss])
    tape.backward(loss)


def memory_of(choices: list[int], made, times: int) -> tuple[list[bytes], list[bytes]]:
    """All bytes behind the block, and after it was launched so often."""
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3, requires_grad=True)
    loss, z, tape = wb.zeros(1), wb.ones(3), wb.Tape()
    memories = [*(a.allocation for a in (x, y, loss, z)), x.grad.allocation, y.grad.allocation]
    with made() as opened:
        block(choices, tape, x, y, loss, z)
    graph = getattr(opened, "graph", opened)
    behind = [bytes(m.bytes) for m in memories]
    for _ in range(times):
        wb.capture_launch(graph)
    return behind, [bytes(m.bytes) for m in memories]


@pytest.mark.parametrize("seed", range(12))
def test_random_blocks_leave_no_trace_and_do_what_a_capture_does(seed):
    choices = np.random.default_rng(seed).integers(0, 6, 4).tolist()
    behind, after = memory_of(choices, wb.ScopedCapture, 2)
    start, _ = memory_of([], lambda: wb.ScopedCapture(), 0)
    _, once_more = memory_of(choices, wb.capture, 1)
    assert behind == start and after == once_more


def test_a_graph_does_not_hold_what_memory_was_before_its_block():
    size = 1 << 18
    x = wb.ones(size)
    tracemalloc.start()
    with wb.ScopedCapture() as scope:
        wb.launch(step, size, [x, 0.5])
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak > x.nbytes > 4 * held
    wb.capture_launch(scope.graph)
    assert x.numpy()[0] == 0.5

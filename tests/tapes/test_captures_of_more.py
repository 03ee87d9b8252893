"""What a capture takes besides launches: graphs, conditions and loops, Python functions with their own adjoint."""

from __future__ import annotations

import numpy as np
import pytest
from test_scoped_capture import square, total

import workbench as wb
from workbench.errors import LaunchError


@wb.kernel
def descend(x: wb.array[float], slope: wb.array[float], left: wb.array[int]):
    i = wb.tid()
    x[i] = x[i] - 0.25 * slope[i]
    if i == 0:
        left[0] = left[0] - 1


@wb.kernel
def pick(index: wb.array[int], x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[index[i]] = 2.0 * x[i]


def gradient_of_squares(x, y, loss):
    """A graph that leaves the gradient of sum(x**2) in x.grad."""
    tape = wb.Tape()
    with wb.capture() as graph:
        tape.zero()
        loss.zero_()
        with tape:
            wb.launch(square, 2, [x, y])
            wb.launch(total, 2, [y, loss])
        tape.backward(loss)
    return graph


@pytest.mark.parametrize("scope", [wb.capture, wb.ScopedCapture])
def test_a_graph_in_a_graph_is_done_as_often_as_it_stands_there(scope, backend):
    x, y, loss, left = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2), wb.zeros(1), wb.array([9])
    inner = gradient_of_squares(x, y, loss)
    with scope() as outer:
        for _ in range(3):
            inner.replay()
            wb.launch(descend, 2, [x, x.grad, left])
    graph = outer.graph
    before = 0 if scope is wb.ScopedCapture else 1
    np.testing.assert_allclose(x.numpy(), np.array([1.0, 2.0]) / 8**before)
    x.assign([8.0, 16.0])
    graph.replay()
    np.testing.assert_allclose(x.numpy(), [1.0, 2.0])
    np.testing.assert_allclose(x.grad.numpy(), [4.0, 8.0])
    np.testing.assert_allclose(loss.numpy(), [4.0 + 16.0])
    inner.replay()
    np.testing.assert_allclose(x.grad.numpy(), [2.0, 4.0])


def test_a_tape_that_read_what_a_graph_in_a_graph_writes_refuses_to_walk():
    x, y, z = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2), wb.zeros(2)
    with wb.capture() as inner:
        x.assign([5.0, 6.0])
    with wb.capture() as outer:
        inner.replay()
    with wb.Tape() as tape:
        wb.launch(square, 2, [x, y])
        wb.launch(square, 2, [y, z])
    outer.replay()
    with pytest.raises(wb.GradientError):
        tape.backward(grads={z: wb.ones(2)})


def test_indices_that_the_outer_graph_computes_are_refused_in_the_inner_one():
    index, x, y = wb.array([0, 1]), wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    with wb.capture() as inner, wb.Tape() as tape:
        wb.launch(pick, 2, [index, x, y])
        tape.backward(grads={y: wb.ones(2)})
    with pytest.raises(LaunchError, match="indices"), wb.capture():
        index.zero_()
        inner.replay()


def test_a_tape_recorded_in_an_inner_graph_is_walked_in_the_outer_one():
    x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    tape, seed = wb.Tape(), wb.ones(2)
    with wb.capture() as forward, tape:
        wb.launch(square, 2, [x, y])
    with pytest.raises(LaunchError, match=r"graph\.replay\(\) of the capture that has it"), wb.capture():
        tape.backward(grads={y: seed})
    with wb.capture() as both:
        tape.zero()
        forward.replay()
        tape.backward(grads={y: seed})
    x.assign([3.0, 4.0])
    both.replay()
    np.testing.assert_allclose(x.grad.numpy(), [6.0, 8.0])


@pytest.mark.parametrize("scope", [wb.capture, wb.ScopedCapture])
@pytest.mark.parametrize("as_graph", [False, True])
def test_a_loop_in_a_graph_makes_as_many_turns_as_the_condition_asks_for(scope, as_graph, backend):
    x, slope, left = wb.array([16.0, 32.0]), wb.zeros(2), wb.array([2])

    def body():
        wb.copy(slope, x)
        wb.launch(descend, 2, [x, slope, left])

    made = body
    if as_graph:
        with wb.ScopedCapture() as kept:
            body()
        made = kept.graph
    with scope() as outer:
        wb.capture_while(left, made)
    done = 0 if scope is wb.ScopedCapture else 2
    np.testing.assert_allclose(x.numpy(), np.array([16.0, 32.0]) * 0.75**done)
    for turns in (0, 1, 3):
        x.assign([16.0, 32.0])
        left.fill_(turns)
        outer.graph.replay()
        np.testing.assert_allclose(x.numpy(), np.array([16.0, 32.0]) * 0.75**turns)
        assert left.list() == [0]


def test_a_condition_in_a_graph_is_looked_at_by_each_replay():
    x, sign = wb.zeros(1), wb.array([1])
    with wb.capture() as graph:
        wb.capture_if(sign, on_true=lambda value: x.fill_(value), on_false=lambda value: x.fill_(-value), value=2.0)
    assert x.list() == [2.0]
    sign.zero_()
    graph.replay()
    assert x.list() == [-2.0]


def test_loops_under_a_tape_in_a_capture_are_refused():
    x, left = wb.array([1.0], requires_grad=True), wb.array([1])
    with pytest.raises(LaunchError, match="capture_while"), wb.capture(), wb.Tape():
        wb.capture_while(left, lambda: left.zero_())
    with pytest.raises(LaunchError, match="with a tape"), wb.capture():
        wb.capture_while(left, lambda: gradient_in_a_block(x, left))
    with wb.capture() as graph:
        left.zero_()
    graph.replay()


def gradient_in_a_block(x, left):
    y = wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(square, 1, [x, y])
    tape.backward(grads={y: wb.ones(1)})
    left.zero_()


@pytest.mark.parametrize("scope", [wb.capture, wb.ScopedCapture])
@pytest.mark.host_memory
def test_a_function_with_its_own_adjoint_is_called_by_each_replay(scope, backend):
    x, y, z, loss = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2), wb.zeros(2), wb.zeros(1)
    calls = []

    def forward():
        calls.append("forward")
        z.numpy()[:] = np.sin(y.numpy())

    def pull_back():
        calls.append("backward")
        y.grad.numpy()[:] += np.cos(y.numpy()) * z.grad.numpy()
        z.grad.zero_()

    tape = wb.Tape()
    with scope() as outer:
        tape.zero()
        loss.zero_()
        with tape:
            wb.launch(square, 2, [x, y])
            tape.record_func(pull_back, [y, z], forward=forward)
            wb.launch(total, 2, [z, loss])
        tape.backward(loss)
    assert calls == ["forward", "backward"]
    for values in ([0.5, 1.5], [0.2, 0.4]):
        x.assign(values)
        outer.graph.replay()
        v = np.array(values)
        np.testing.assert_allclose(loss.numpy(), [np.sin(v * v).sum()], rtol=1e-6)
        np.testing.assert_allclose(x.grad.numpy(), 2 * v * np.cos(v * v), rtol=1e-6)
    assert calls == ["forward", "backward"] * 3


def test_outside_of_captures_forward_is_called_once():
    x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2, requires_grad=True)

    def pull_back():
        x.grad.numpy()[:] += 3.0 * y.grad.numpy()
        y.grad.zero_()

    with wb.Tape() as tape:
        tape.record_func(pull_back, [x, y], forward=lambda: y.assign(3.0 * x.numpy()))
    tape.backward(grads={y: wb.ones(2)})
    np.testing.assert_allclose(x.grad.numpy(), [3.0, 3.0])
    with pytest.raises(LaunchError, match=r"forward=step"), wb.capture(), wb.Tape() as late:
        late.record_func(pull_back, [x, y])


def test_a_torch_tensor_without_a_gradient_gets_one_from_each_replay():
    torch = pytest.importorskip("torch")
    t, y = torch.tensor([1.0, 2.0], requires_grad=True), wb.zeros(2, requires_grad=True)
    with wb.capture() as graph, wb.Tape() as tape:
        wb.launch(square, 2, [t, y])
        tape.backward(grads={y: wb.ones(2)})
    for value in (3.0, 5.0):
        t.grad = None
        with torch.no_grad():
            t[:] = value
        graph.replay()
        assert t.grad.tolist() == [2 * value] * 2


@pytest.mark.parametrize("part", [slice(1), slice(None, None, 2), slice(3)], ids=["first", "gaps", "all"])
def test_a_replay_clears_the_adjoint_of_what_the_block_overwrites(part, backend):
    x, loss = wb.array([1.0, 2.0, 3.0], dtype=wb.float32, requires_grad=True), wb.zeros(1)
    y = wb.zeros(3)
    with wb.capture() as graph:
        tape = wb.Tape()
        with tape:
            wb.launch(square, 3, inputs=[x, y])
            y[part].zero_()
            wb.launch(total, 3, inputs=[y, loss])
        tape.backward(loss)
    want = np.array([1.0, 2.0, 3.0], np.float32) * 2
    want[part] = 0
    np.testing.assert_array_equal(x.grad.numpy(), want)
    x.assign(np.array([2.0, 4.0, 6.0], np.float32))
    graph.replay()
    np.testing.assert_array_equal(x.grad.numpy(), 3 * want)


@pytest.mark.needs_cc
@pytest.mark.host_memory
def test_steps_with_cleared_buffers_are_one_native_call():
    wb.config.backend = "c"
    x, loss, y = wb.array([1.0, 2.0], dtype=wb.float32, requires_grad=True), wb.zeros(1), wb.zeros(2)
    with wb.capture() as graph, wb.Tape() as tape:
        for _ in range(5):
            y.zero_()
            wb.launch(square, 2, inputs=[x, y])
            wb.launch(total, 2, inputs=[y, loss])
        tape.backward(loss)
    runs = [getattr(run, "__qualname__", "") for run in graph.graph._segments]
    assert sum("_native" in run for run in runs) < 5

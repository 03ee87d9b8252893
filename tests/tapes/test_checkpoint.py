"""Checkpointed time loops: the plain tape's gradient to the last bit, in the memory of the budget."""

from __future__ import annotations

import math

import numpy as np
import pytest

import workbench as wb
from workbench import GradientError, LaunchError
from workbench.arrays import allocation

F = wb.float64
N = 5
X = np.linspace(-1.0, 1.3, N)


pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def swing(x: wb.array(dtype=F), v: wb.array(dtype=F), k: wb.array(dtype=F), t: int):
    i = wb.tid()
    a = -k[i] * wb.sin(x[i]) + F(0.01) * F(t)
    v[i] = v[i] + F(0.1) * a
    x[i] = x[i] + F(0.1) * v[i]


@wb.kernel
def step_into(x: wb.array(dtype=F), y: wb.array(dtype=F), k: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] - F(0.1) * k[i] * wb.sin(x[i])


@wb.kernel
def squares(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i] * x[i])


def leaf(values):
    return wb.array(np.array(values, float), dtype=F, requires_grad=True)


def pendulums(steps: int, budget: int | None, seeds=(1.0,)):
    """Gradients by start and stiffness, for each seed; the tape, and the loop."""
    start, k = leaf(X), leaf(np.linspace(0.5, 2.0, N))
    x, v, loss = wb.zeros(N, dtype=F), wb.zeros(N, dtype=F), wb.zeros(1, dtype=F)

    def step(t, x, v):
        wb.launch(swing, dim=N, inputs=[x, v, k, t])

    loop = wb.checkpoint(steps, budget)(step) if budget else None
    with wb.Tape() as tape:
        wb.copy(x, start)
        if loop:
            loop(x, v)
        else:
            for t in range(steps):
                step(t, x, v)
        wb.launch(squares, dim=N, inputs=[x, loss])
    found = []
    for s in seeds:
        start.grad.zero_(), k.grad.zero_()
        tape.backward(grads={loss: wb.array([s], dtype=F)})
        found.append((start.grad.numpy().copy(), k.grad.numpy().copy()))
    np.testing.assert_array_equal(x.numpy(), pendulum_end(steps, k.numpy()))
    return found, tape, loop


def pendulum_end(steps: int, k: np.ndarray) -> np.ndarray:
    x, v = X.copy(), np.zeros(N)
    for t in range(steps):
        a = -k * np.array([math.sin(n) for n in x]) + 0.01 * t
        v = v + 0.1 * a
        x = x + 0.1 * v
    return x


@pytest.mark.sampled
@pytest.mark.parametrize("budget", [1, 2, 3, 7, 19, 20, 50])
@pytest.mark.parametrize("steps", [1, 2, 20])
def test_the_gradient_is_that_of_the_plain_tape_to_the_last_bit(steps, budget):
    seeds = (1.0, -2.5, 1.0)
    plain, _, _ = pendulums(steps, None, seeds)
    kept, _, _ = pendulums(steps, budget, seeds)
    for one, other in zip(plain, kept, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    assert plain[0][0].all() and plain[0][1].any()


def fewest(steps: int, copies: int) -> int:
    """Steps to run again, at the least: r n - C(s + r, s + 1) with C(s + r, s) >= n (Griewank and Walther, TOMS 26)."""
    r = 0
    while math.comb(copies + r, copies) < steps:
        r += 1
    return r * steps - math.comb(copies + r, copies + 1)


@pytest.mark.sampled
@pytest.mark.parametrize(("steps", "budget"), [(20, 3), (33, 5), (50, 1), (64, 64)])
def test_as_few_steps_run_again_as_theory_allows(steps, budget):
    _, _, loop = pendulums(steps, budget)
    assert loop.recomputed == fewest(steps, min(budget, steps - 1))


@pytest.mark.slow
@pytest.mark.needs_cc
@pytest.mark.parametrize("backend", ["c"], indirect=True)  # it is about steps: 12,000 launches
def test_a_thousand_steps_in_the_memory_of_thirty(backend):
    _, plain, _ = pendulums(1000, None)
    seen, tape, loop = pendulums(1000, 30)
    bytes_of_state = 2 * N * 8
    loose = [e for e in tape.events if e.kind == "loop"][0].loop
    assert loose.nbytes <= 30 * bytes_of_state
    assert loop.recomputed == fewest(1000, 30) == 2472
    assert sum(k.data.nbytes for e in plain.events for k in e.kept) >= 1000 * bytes_of_state / 2
    assert len(tape.events) == 3
    np.testing.assert_array_equal(seen[0][0], pendulums(1000, None)[0][0][0])


def test_no_more_copies_exist_at_any_time_than_the_budget(monkeypatch):
    most = []
    loops = __import__("workbench.tapes.checkpoint", fromlist=["_Loop"])._Loop
    old = loops._copies

    def counted(self):
        most.append(len(self.kept) + 1)
        return old(self)

    monkeypatch.setattr(loops, "_copies", counted)
    pendulums(60, 4, (1.0, 2.0))
    assert max(most) == 4


def test_two_buffers_in_turn_and_a_loop_after_a_loop():
    def run(budget):
        start, k = leaf(X), leaf(np.linspace(0.5, 2.0, N))
        a, b, loss = wb.zeros(N, dtype=F), wb.zeros(N, dtype=F), wb.zeros(1, dtype=F)

        def step(t, a, b):
            wb.launch(step_into, dim=N, inputs=[a, b, k] if t % 2 == 0 else [b, a, k])

        def go():
            if budget is None:
                for t in range(10):
                    step(t, a, b)
            else:
                wb.checkpoint(10, budget)(step)(a, b)

        with wb.Tape() as tape:
            wb.copy(a, start)
            go()
            go()
            wb.launch(squares, dim=N, inputs=[a, loss])
            a.zero_()  # what comes after may overwrite the state
        tape.backward(loss)
        assert not a.numpy().any()
        return start.grad.numpy().copy(), k.grad.numpy().copy()

    for one, other in zip(run(None), run(3), strict=True):
        np.testing.assert_array_equal(one, other)


def test_memory_is_as_it_was_after_a_walk_and_without_a_tape_the_loop_just_runs():
    k = leaf(np.ones(N))
    x, v = wb.array(X, dtype=F), wb.zeros(N, dtype=F)

    @wb.checkpoint(steps=7, budget=2)
    def go(t, x, v):
        wb.launch(swing, dim=N, inputs=[x, v, k, t])

    go(x, v)
    np.testing.assert_array_equal(x.numpy(), pendulum_end(7, np.ones(N)))
    y, w = wb.array(X, dtype=F), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        go(y, w)
    before = y.numpy().copy(), w.numpy().copy()
    for _ in range(2):
        tape.backward(grads={y: wb.ones(N, dtype=F)})
        np.testing.assert_array_equal(y.numpy(), before[0])
        np.testing.assert_array_equal(w.numpy(), before[1])


# ---- what would make it wrong is refused


def run_refused(step, steps=6, state=None, after=None):
    x, v = leaf(X), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.checkpoint(steps, 2)(step)(*(state or (x, v)))
    if after:
        after()
    tape.backward(grads={v: wb.ones(N, dtype=F)})


def test_a_step_that_does_something_else_the_second_time():
    k, calls = leaf(np.ones(N)), []

    def step(t, x, v):
        calls.append(t)
        wb.launch(swing, dim=N, inputs=[x, v, k, len(calls)])

    with pytest.raises(GradientError, match=r"test_checkpoint.py[\s\S]*checkpoint-step"):
        run_refused(step)


def test_a_step_that_writes_random_numbers_from_the_host():
    k, random = leaf(np.ones(N)), np.random.default_rng()

    def step(t, x, v):
        v.assign(random.normal(size=N))
        wb.launch(swing, dim=N, inputs=[x, v, k, t])

    with pytest.raises(GradientError, match=r"checkpoint-step"):
        run_refused(step)


def test_a_step_that_writes_what_is_not_its_state():
    k, other = leaf(np.ones(N)), wb.zeros(N, dtype=F)

    def step(t, x, v):
        wb.launch(swing, dim=N, inputs=[x, other, k, t])

    with pytest.raises(LaunchError, match=r"other, which is not among its state"):
        run_refused(step)


@pytest.mark.host_memory
def test_a_write_behind_the_back_of_the_loop():
    k = leaf(np.ones(N))

    def step(t, x, v):
        v.numpy()[0] = 3.0
        wb.launch(swing, dim=N, inputs=[x, v, k, t])

    with pytest.raises(GradientError, match="overwritten"):
        run_refused(step)


def test_a_parameter_that_changes_between_forward_and_backward():
    k = leaf(np.ones(N))

    def step(t, x, v):
        wb.launch(swing, dim=N, inputs=[x, v, k, t])

    with pytest.raises(GradientError, match="overwritten"):
        run_refused(step, after=lambda: k.fill_(2.0))


def test_functions_of_the_user_cannot_be_run_again():
    def step(t, x, v):
        wb.launch(squares, dim=N, inputs=[x, v])
        wb.Tape.record_func(allocation.recorder(), lambda: None, [x])

    with pytest.raises(LaunchError, match=r"checkpoint-step"):
        run_refused(step)


def test_a_loop_inside_a_step_is_refused():
    k = leaf(np.ones(N))

    def step(t, x, v):
        def inner(s, x, v):
            wb.launch(swing, dim=N, inputs=[x, v, k, t + s])

        wb.checkpoint(2, 1)(inner)(x, v)

    with pytest.raises(LaunchError, match=r"checkpoint-step"):
        run_refused(step)


@pytest.mark.parametrize(("steps", "budget"), [(0, 3), (3, 0), (2.5, 1), (True, 1)])
def test_counts_are_whole_numbers(steps, budget):
    with pytest.raises(LaunchError, match=r"\[checkpoint\]"):
        wb.checkpoint(steps, budget)


def test_state_is_arrays_that_lie_apart():
    x = leaf(X)
    go = wb.checkpoint(3, 1)(lambda k, *state: None)
    with pytest.raises(LaunchError, match="share memory"):
        go(x, x[1:])
    with pytest.raises(LaunchError, match="not an array"):
        go(x, 3.0)


# ---- looking at it


def test_the_loop_is_an_event_that_can_be_looked_at():
    _, tape, _ = pendulums(9, 2)
    assert "time loop" in repr(tape.show()) and "step" in tape.show().svg
    assert not [f for f in tape.diagnose() if f.severity in ("error", "warning")]
    assert tape.memory().sum("checkpoint") == tape.events[1].loop.nbytes > 0


def test_derivative_products_are_exact_or_refused():
    _, plain, _ = pendulums(6, None)
    _, tape, _ = pendulums(6, 2)

    def jacobian(t):
        y = next(a for a in t.arrays.values() if a.size == 1)
        x = next(a for a in t.arrays.values() if a.requires_grad)
        return wb.jacobian(t, y, x)

    np.testing.assert_array_equal(jacobian(tape), jacobian(plain))
    x = next(a for a in tape.arrays.values() if a.requires_grad)
    with pytest.raises(GradientError, match="checkpointed loop"):
        wb.jvp(tape, {x: np.ones(N)})


def with_scratch(steps: int, budget: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Gradients by start and stiffness of a loop whose steps make memory for themselves."""
    start, k = leaf(X), leaf(np.linspace(0.5, 2.0, N))
    x, loss = wb.zeros(N, dtype=F), wb.zeros(1, dtype=F)

    def step(t, x):
        before, half = wb.clone(x), wb.zeros(N, dtype=F)
        wb.launch(step_into, dim=N, inputs=[before, half, k])
        wb.launch(step_into, dim=N, inputs=[half, x, k])

    with wb.Tape() as tape:
        wb.copy(x, start)
        if budget:
            wb.checkpoint(steps, budget)(step)(x)
        else:
            for t in range(steps):
                step(t, x)
        wb.launch(squares, dim=N, inputs=[x, loss])
    tape.backward(loss)
    tape.backward(loss)  # a second walk runs the loop from its start again
    return start.grad.numpy(), k.grad.numpy()


@pytest.mark.parametrize("budget", [1, 3, 7])
def test_a_step_may_make_memory_of_its_own(budget):
    for mine, plain in zip(with_scratch(20, budget), with_scratch(20, None), strict=True):
        np.testing.assert_array_equal(mine, plain)


def test_memory_that_an_earlier_step_made_is_refused():
    k, made = leaf(np.ones(N)), []

    def step(t, x, v):
        made.append(wb.clone(x))
        wb.launch(step_into, dim=N, inputs=[made[-2] if t else x, x, k])

    with pytest.raises(LaunchError, match="which an earlier step made"):
        run_refused(step)

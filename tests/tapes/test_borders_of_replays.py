"""Borders of tapes in captures and jit functions: replays queue, tell and refuse what the block itself would."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS
from tests.support.replays import N, X, leaf, square, total


@wb.kernel
def move(x: wb.array[float], v: wb.array[float]):
    i = wb.tid()
    x[i] = x[i] + 0.5 * v[i]


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


def physics(q):
    """A step with a tape of its own, whose loss is sum(q**4): its gradient 4 q**3 is left in q.grad."""
    y, loss = wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(square, N, [q], [y])
        wb.launch(total, N, [y], [loss])
    tape.backward(loss)
    return loss


def encode(p, q):
    with wb.Tape() as tape:
        wb.launch(square, N, [p], [q])
    return tape


def stops(name):
    return pytest.warns(UserWarning, match=f"{name} was written by an earlier tape from p; this gradient stops")


def chained(step):
    """Gradients of p in three turns p -> q -> loss, each handed on from a step to the tape that wrote q."""
    found, q = [], wb.zeros(N, requires_grad=True)
    for turn in range(3):
        p = leaf(X + turn)
        tape = encode(p, q)
        q.grad.zero_()
        step(q)
        tape.backward(grads={q: q.grad})
        found.append(p.grad.numpy().copy())
    return found


def test_a_gradient_is_handed_on_from_a_capture_and_from_a_jit_function():
    plain = chained(physics)
    for turn, grad in enumerate(plain):
        np.testing.assert_allclose(grad, 8.0 * (X + turn) ** 7, rtol=1e-5)
    captured = {}

    def replayed(q):
        if not captured:
            with wb.capture() as captured[0]:
                physics(q)
        else:
            captured[0].replay()

    for step in (replayed, fast := wb.jit(physics)):
        np.testing.assert_array_equal(plain, chained(step))
    assert fast.replays == 1


def test_a_replay_tells_where_a_gradient_stops_that_was_not_handed_on():
    p, q = leaf(), wb.array(X, requires_grad=True)
    with wb.capture() as graph:  # nobody has written q yet
        physics(q)
    graph.replay()
    tape = encode(p, q)
    graph.replay()
    with stops("q"):
        assert not p.grad.numpy().any()
    assert len(tape) == 1


def test_a_replay_tells_that_the_tape_is_gone_which_wrote_what_it_reads():
    p, q = leaf(), wb.array(X, requires_grad=True)
    with wb.capture() as graph:
        physics(q)
    encode(p, q)
    with stops("q"):
        graph.replay()


def test_a_replay_does_not_replace_a_gradient_that_waits_to_be_handed_on():
    p, q, v = leaf(), wb.zeros(N, requires_grad=True), wb.ones(N)
    tape = encode(p, q)

    def step():
        loss = wb.zeros(1)
        with wb.Tape() as inner:
            wb.launch(total, N, [q], [loss])
            wb.launch(move, N, [q, v])
        inner.backward(loss)

    with wb.capture() as graph:
        step()
    with pytest.raises(wb.GradientError, match=r"would replace q\.grad") as refused:
        graph.replay()
    assert refused.value.slug == "not-handed-on"
    before = q.numpy().copy()
    tape.backward(grads={q: q.grad})
    np.testing.assert_allclose(p.grad.numpy(), 4.0 * X**3, rtol=1e-6)
    tape = encode(p, q)
    assert q.numpy().tolist() == (before - 0.5).tolist()  # the refused replay has changed nothing
    graph.replay()
    tape.backward(grads={q: q.grad})
    np.testing.assert_allclose(p.grad.numpy(), 8.0 * X**3, rtol=1e-6)


def told(program):
    """What a program returns, with jit and without, and what is raised and warned of; both have to be the same."""
    seen = []
    for on in (True, False):
        wb.config.jit = on
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                result = program()
            except wb.GradientError as error:
                result = error.slug
        told = {str(w.message).partition(";")[0] for w in said if not str(w.message).endswith("[jit]")}
        seen.append((result, told))
    wb.config.jit = True
    assert seen[0] == seen[1]
    return seen[0]


def in_place(q, v):
    loss = wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(move, N, [q, v])
        wb.launch(total, N, [q, loss])
    tape.backward(loss)
    return loss


def test_a_jit_function_refuses_what_its_replay_would_replace():
    def program():
        step, q, v, p = wb.jit(in_place), wb.array(X, requires_grad=True), wb.ones(N), leaf()
        for _ in range(3):
            step(q, v)
        tape = encode(p, q)
        step(q, v)
        step(q, v)
        return tape

    assert told(program)[0] == "not-handed-on"


def test_a_jit_function_tells_of_the_tape_of_its_last_call():
    def program():
        step, p, q, v = wb.jit(in_place), leaf(), wb.array(X, requires_grad=True), wb.ones(N)
        return [step(q, v).list() for _ in range(5)], p.grad.list()

    _, said = told(program)
    assert said == {"q was written by an earlier tape from q"}


@pytest.mark.parametrize("new", [False, True])
def test_what_a_replay_wrote_has_its_tape_as_origin(new):
    def program():
        step, q, v, w = wb.jit(in_place), wb.array(X, requires_grad=True), wb.ones(N), wb.zeros(N)
        for _ in range(4):
            q = wb.array(X, requires_grad=True) if new else q
            q.assign(X)
            step(q, v)
        with wb.Tape() as tape:
            wb.launch(square, N, [q], [w])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tape.backward(grads={w: wb.ones(N)})
        return [str(w.message).partition(";")[0] for w in said]

    assert told(program)[0] == ["q was written by an earlier tape from q"]


def test_arrays_that_a_jit_function_made_have_its_tape_as_origin():
    @wb.jit
    def made(p):
        y = wb.zeros(N)
        with wb.Tape():
            wb.launch(square, N, [p], [y])
        return y

    def program():
        p, w = leaf(), wb.zeros(N)
        for _ in range(3):
            y = made(p)
        with wb.Tape() as tape:
            wb.launch(square, N, [y], [w])
            wb.launch(square, N, [p], [w])
        tape.backward(grads={w: wb.ones(N)})
        with wb.Tape() as tape:
            wb.launch(move, N, [p, y])
        tape.backward(grads={p: wb.ones(N)})

    assert told(program)[1] == {"y was written by an earlier tape from p"}


def test_a_jit_function_with_tapes_that_hand_on_to_each_other_runs_plainly_and_says_so():
    @wb.jit
    def two(p, q):
        tape = encode(p, q)
        physics(q)
        tape.backward(grads={q: q.grad})

    p, q = leaf(), wb.zeros(N, requires_grad=True)
    with pytest.warns(UserWarning, match=r"a tape in @wb.jit two reads what another one in it wrote.*\[jit\]"):
        for _ in range(4):
            p.grad.zero_()
            q.grad.zero_()
            two(p, q)
    assert two.replays == 0
    np.testing.assert_allclose(p.grad.numpy(), 8.0 * X**7, rtol=1e-5)


@pytest.mark.parametrize("new", [False, True])
def test_a_replay_says_that_a_gradient_is_zero_because_its_array_was_overwritten(new):
    @wb.jit
    def fill(q):
        loss = wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(total, N, [q, loss])
            q.zero_()
            wb.launch(total, N, [q, loss])
        tape.backward(loss)

    def program():
        q = leaf()
        for _ in range(4):
            q = leaf() if new else q
            q.assign(X)
            fill(q)
        return q.grad.list()

    grads, said = told(program)
    np.testing.assert_allclose(grads, 2.0 * X)
    assert not said


def test_an_argument_that_the_function_also_reaches_itself_is_no_copy():
    """A kept recording on copies would not see that both are one memory."""
    shared, y = wb.array(X), wb.zeros(N)

    def both(x):
        wb.launch(move, N, [x, shared])
        wb.launch(square, N, [shared], [y])
        return y

    def program():
        step, found = wb.jit(both), []
        shared.assign(X)
        for x in (wb.ones(N), wb.ones(N), wb.ones(N), shared, wb.ones(N), shared[:], shared):
            found.append(step(x).list())
        return found, step.replays if wb.config.jit else 2

    def first_shared():
        step = wb.jit(both)
        shared.assign(X)
        return [step(x).list() for x in (shared, wb.ones(N), wb.ones(N), wb.ones(N), shared, shared)]

    (found, replays), _ = told(program)
    np.testing.assert_allclose(found[3], (1.5 * X) ** 2)
    assert replays == 2
    np.testing.assert_allclose(told(first_shared)[0][-1], (1.5**3 * X) ** 2, rtol=1e-6)


def test_a_gradient_that_no_adjoint_reaches_is_replaced_where_the_tape_wrote():
    """Of what an event wrote, what an earlier backward published does not stay."""
    z, y, w = leaf(), leaf(), wb.zeros(N)
    with wb.Tape() as tape:
        wb.launch(square, N, [z], [w])
    tape.backward(grads={w: wb.ones(N)})
    np.testing.assert_array_equal(z.grad.numpy(), 2.0 * X)
    with wb.Tape() as tape:
        z.zero_()
        wb.launch(square, N, [y], [w])
    for _ in range(3):  # the third from the list of calls
        tape.backward(grads={w: wb.ones(N)})
        assert not z.grad.numpy().any()
    np.testing.assert_array_equal(y.grad.numpy(), 6.0 * X)


def test_a_scoped_capture_tells_of_borders_when_it_is_launched():
    p, q = leaf(), wb.zeros(N, requires_grad=True)
    tape = encode(p, q)
    with wb.ScopedCapture() as scope:
        physics(q)
    assert not p.grad.numpy().any()  # nothing has been walked yet
    wb.capture_launch(scope.graph)
    with stops("q"):
        assert not p.grad.numpy().any()
    tape.backward(grads={q: q.grad})
    np.testing.assert_allclose(p.grad.numpy(), 8.0 * X**7, rtol=1e-5)

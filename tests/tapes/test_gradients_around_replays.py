"""Gradients around replays of captures: cleared, seeded from and told of as if the block ran again."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS
from tests.support.replays import N, X, leaf, square, total


@wb.kernel
def add_square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(y, i, x[i] * x[i])


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


def plainly(block):
    return block


def captured(block):
    """A function that captures the block at its first call, and replays it then."""
    graph = []

    def run():
        if graph:
            graph[0].replay()
        else:
            with wb.capture() as made:
                block()
            graph.append(made)

    return run


def scoped(block):
    """As `captured`, by a scoped capture."""
    graph = []

    def run():
        if not graph:
            with wb.ScopedCapture() as scope:
                block()
            graph.append(scope.graph)
        wb.capture_launch(graph[0])

    return run


def same(program):
    """What a program returns, told of how to run its block; and what is warned of. Captured or not, both are one."""
    seen = []
    for way in (plainly, captured, scoped):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = program(way)
        seen.append((result, {str(w.message).partition(";")[0] for w in said}))
    assert seen[0] == seen[1] == seen[2]
    return seen[0]


def test_a_gradient_that_is_zeroed_ahead_and_handed_on_is_zeroed_by_replays():
    def program(way):
        p, q, loss, tape = leaf(), wb.zeros(N, requires_grad=True), wb.zeros(1), wb.Tape()
        with tape:
            wb.launch(add_square, N, [p], [q])

        def block():
            tape.reset()
            q.zero_()
            with tape:
                wb.launch(add_square, N, [p], [q])
            with wb.Tape() as later:
                wb.launch(total, N, [q], [loss])
            later.backward(loss)
            tape.backward(grads={q: q.grad})

        run, found = way(block), []
        for _ in range(3):
            loss.zero_()
            run()
            found.append((q.grad.list(), p.grad.list()))
        return found

    found, said = same(program)
    np.testing.assert_allclose(found[2][1], 4 * X**3)
    assert not said


def test_a_tape_is_zeroed_by_replays_though_it_had_no_gradient_yet():
    def program(way):
        p, loss, tape = leaf(), wb.zeros(1), wb.Tape()

        def block():
            tape.reset()
            loss.zero_()
            with tape:
                wb.launch(total, N, [p], [loss])

        run, found = way(block), []
        for _ in range(3):
            run()
            tape.backward(loss)
            found.append(p.grad.list())
        return found

    np.testing.assert_allclose(same(program)[0], [2 * X] * 3)


def test_a_tape_that_is_reset_has_what_a_replay_makes_to_be_zeroed():
    def program(way):
        p, loss, tape = leaf(), wb.zeros(1), wb.Tape()

        def block():
            loss.zero_()
            with tape:
                wb.launch(total, N, [p], [loss])
            tape.backward(loss)

        run, found = way(block), []
        for _ in range(3):
            run()
            found.append(p.grad.list())
            tape.reset()
        return found, p.grad.list()

    found, left = same(program)[0]
    np.testing.assert_allclose(found, [2 * X] * 3)
    assert left == [0.0] * N


def test_a_mark_set_since_on_what_a_capture_zeroes_is_refused():
    p, r, loss, tape = wb.array(X), leaf(), wb.zeros(1), wb.Tape()
    with tape:
        wb.launch(total, N, [p], [loss])
        wb.launch(total, N, [r], [loss])
    with wb.capture() as graph:
        tape.zero()
    p.requires_grad = True
    with pytest.raises(wb.LaunchError, match=r"requires_grad or retain_grad of .* has changed"):
        graph.replay()


def stopped(way, inside, zeroed=False, first=True):
    """p -> q -> loss by two tapes, of which the second is walked alone; `inside`: both are in the block."""
    p, q, loss = leaf(), wb.array(X, requires_grad=True), wb.zeros(1)

    def encode():
        with wb.Tape() as tape:
            wb.launch(square, N, [p], [q])
        return tape

    def block():
        loss.zero_()
        if zeroed:
            q.grad.zero_()
        tape = encode() if inside and first else None
        with wb.Tape() as later:
            wb.launch(total, N, [q], [loss])
        later.backward(loss)
        if inside and not first:
            encode()
        del tape

    run = way(block)
    for _ in range(3):
        kept = None if inside else encode()
        run()
    del kept
    return q.grad.list(), p.grad.list()


@pytest.mark.parametrize("first", [True, False], ids=["written ahead", "written behind"])
@pytest.mark.parametrize("zeroed", [False, True], ids=["adding up", "zeroed"])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_where_a_gradient_stops_is_told(inside, zeroed, first):
    (_, grad), said = same(lambda way: stopped(way, inside, zeroed, first))
    assert grad == [0.0] * N and said == {"q was written by an earlier tape from p"}


def test_what_the_replay_before_wrote_is_told_of_once():
    def program(way):
        q, loss = leaf(), wb.zeros(1)

        def block():
            loss.zero_()
            with wb.Tape() as tape:
                wb.launch(add_square, N, [q], [q])
                wb.launch(total, N, [q], [loss])
            tape.backward(loss)

        run = way(block)
        for _ in range(3):
            run()
        return q.grad.list()

    q, loss = leaf(), wb.zeros(1)
    assert same(program)[1] == {"q was written by an earlier tape from q"}
    with wb.capture() as graph, wb.Tape() as tape:
        wb.launch(add_square, N, [q], [q])
        wb.launch(total, N, [q], [loss])
        tape.backward(loss)
    for told in (1, 0):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            graph.replay()
        assert len(said) == told


@pytest.mark.host_memory
def test_what_is_written_to_an_older_array_of_a_gradient_is_told():
    def program(way):
        p, loss = leaf(), wb.zeros(1)

        def block():
            with wb.Tape() as tape:
                wb.launch(total, N, [p], [loss])
            tape.backward(loss)

        run = way(block)
        run()
        old = p.grad.numpy()
        for _ in range(3):
            run()
            old[0] = 9.0
        return p.grad.list()

    _, said = same(program)
    assert any("gave before the last backward() was written to" in text for text in said)


def jitted(block):
    """The block as a jit function that has been replayed."""
    step = wb.jit(block)
    for _ in range(3):
        step()
    assert step.replays == 1
    return step


@pytest.mark.parametrize("way", [plainly, captured, scoped, jitted])
def test_what_a_replay_in_a_thread_reads_of_an_open_tape_is_refused_where_an_adjoint_comes(way):
    x, y, z, w = leaf(), wb.zeros(N), wb.zeros(N), wb.zeros(N)
    run = way(lambda: wb.launch(square, N, [y, z]))
    run()
    with wb.Tape() as tape:
        wb.launch(square, N, [x, y])
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        wb.launch(square, N, [z, w])
        wb.launch(add_square, N, [x, w])
    np.testing.assert_allclose(w.numpy(), X**8 + X**2)
    with pytest.raises(wb.GradientError, match=r"\[tape-thread\]"):
        tape.backward(grads={w: wb.ones(N)})


def test_tapes_of_graphs_in_a_graph_hand_on_to_each_other_without_a_word():
    p, q, loss = leaf(), wb.zeros(N, requires_grad=True), wb.zeros(1)
    with wb.capture() as first, wb.Tape() as tape:
        wb.launch(square, N, [p], [q])
    with wb.capture() as second:
        loss.zero_()
        q.grad.zero_()
        with wb.Tape() as later:
            wb.launch(total, N, [q], [loss])
        later.backward(loss)
    tape.backward(grads={q: q.grad})
    with wb.ScopedCapture() as scope:
        first.replay()
        second.replay()
    for _ in range(2):
        wb.capture_launch(scope.graph)
        tape.backward(grads={q: q.grad})
    np.testing.assert_allclose(p.grad.numpy(), 3 * 4 * X**3)


def test_a_ledger_behind_a_replay_adds_up_to_the_gradient_with_what_it_was_added_to():
    def program(way):
        p, loss, tapes, found = leaf(), wb.zeros(1), [], []

        def block():
            loss.zero_()
            with wb.Tape() as tape:
                wb.launch(total, N, [p], [loss])
            tape.backward(loss)
            tapes.append(tape)

        run = way(block)
        for turn in range(3):
            run()
            found.append((tapes[-1].ledger(p, 1).total, p.grad.list()[1]))
            found.append([f.slug for f in tapes[-1].diagnose()])
            if turn == 1:
                p.grad.zero_()
        return found

    found, _ = same(program)
    assert all(total == grad for total, grad in found[::2])
    assert found[1::2] == [[], ["piled-up"], []]


def test_a_tape_is_looked_at_with_the_seeds_of_the_last_replay():
    def program(way):
        p, y, loss, tapes, found = leaf(), wb.zeros(N), wb.zeros(1), [], []

        def block():
            loss.zero_()
            with wb.Tape() as tape:
                wb.launch(square, N, [p], [y])
                wb.launch(total, N, [y], [loss])
            tape.backward(loss)
            tapes.append(tape)

        run = way(block)
        for _ in range(3):
            run()
            found.append(tapes[-1].adjoint(y).tolist())
            tapes[-1].backward(grads={y: wb.ones(N)})
        return found

    np.testing.assert_allclose(same(program)[0], [2 * X**2] * 3)


def test_what_one_tape_of_a_block_left_for_another_may_be_replaced_by_the_next_replay():
    def program(way):
        p, q, loss = leaf(), wb.zeros(N, requires_grad=True), wb.zeros(1)

        def block():
            loss.zero_()
            with wb.Tape() as first:
                wb.launch(square, N, [p], [q])
            with wb.Tape() as second:
                wb.launch(total, N, [q], [loss])
                wb.launch(add_square, N, [q], [q])
            second.backward(loss)
            del first

        run, found = way(block), []
        for _ in range(3):
            run()
            found.append(q.grad.list())
        return found

    np.testing.assert_allclose(same(program)[0], [2 * X**2] * 3)


def test_a_replay_of_a_tape_that_was_reset_meets_what_another_wrote():
    p, q, loss = leaf(), wb.array(X, requires_grad=True), wb.zeros(1)
    with wb.capture() as graph, wb.Tape() as tape:
        wb.launch(total, N, [q], [loss])
        tape.backward(loss)
    tape.reset()
    with wb.Tape() as earlier:
        wb.launch(square, N, [p], [q])
    graph.replay()
    earlier.backward(grads={q: q.grad})
    np.testing.assert_allclose(p.grad.numpy(), 4 * X**3)


def test_a_loss_that_adds_up_over_replays_is_no_border():
    def program(way):
        v, q, seed = wb.array(X), leaf(), wb.ones(N)

        def block():
            with wb.Tape() as tape:
                wb.launch(add_square, N, [v], [q])
            tape.backward(grads={q: seed})

        run = way(block)
        for _ in range(3):
            run()
        return q.list()

    assert not same(program)[1]

"""Findings about several tapes: gradients that stop at a border, pile up, or were read too early."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, N, X, both, empty, leaf, seed, square, times

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def descend(w: wb.array(dtype=F), g: wb.array(dtype=F)):
    i = wb.tid()
    w[i] = w[i] - F(0.1) * g[i]


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def slugs(tape):
    return [f.slug for f in tape.diagnose().problems]


def one(tape, slug):
    (found,) = tape.diagnose().named(slug)
    return found


def recorded(x, y):
    with wb.Tape() as tape:
        wb.launch(square, N, [x], [y])
    return tape


@pytest.mark.parametrize("marked", [False, True])
def test_what_an_earlier_tape_wrote_is_found_until_it_is_handed_on(marked):
    x, w, q, y = leaf(), leaf(), empty(requires_grad=marked), empty()
    first = recorded(x, q)
    with wb.Tape() as second:
        wb.launch(times, N, [q, w], [y])
    quietly(lambda: second.backward(grads={y: seed(*ONE)}))
    found = one(second, "earlier-tape")
    assert "q was written by an earlier tape from x; this gradient stops there" in found.sentence
    assert "one tape around both" in found.fix and found.arrays == ("q", "x") and "times, N" in found.where.text
    if marked:
        first.backward(grads={q: q.grad})
        assert slugs(second) == [] and slugs(first) == []


def test_a_half_chained_state_is_found_from_both_sides():
    x, p, q, y = leaf(), empty(requires_grad=True), empty(requires_grad=True), empty()
    with wb.Tape() as first:
        wb.launch(both, N, [x], [p, q])
    with wb.Tape() as second:
        wb.launch(times, N, [p, q], [y])
    second.backward(grads={y: seed(*ONE)})
    quietly(lambda: first.backward(grads={p: p.grad}))
    assert one(second, "earlier-tape").arrays == ("q", "x")
    assert one(first, "not-handed-on").arrays == ("q", "x")


def test_detached_memory_is_no_border():
    x, w, q, y = leaf(), leaf(), empty(), empty()
    recorded(x, q)
    with wb.Tape() as second:
        wb.launch(times, N, [wb.detach(q), w], [y])
    second.backward(grads={y: seed(*ONE)})
    assert slugs(second) == []


def training(zero, steps=3):
    w, y = leaf(), empty()
    for _ in range(steps):
        tape = recorded(w, y)
        tape.backward(grads={y: seed(*ONE)})
        wb.launch(descend, N, [w, w.grad])
        zero(tape, w)
    tape = recorded(w, y)
    tape.backward(grads={y: seed(*ONE)})
    return tape, w, y


def test_a_loop_that_never_zeroes_is_found():
    tape, _, _ = training(lambda tape, w: None)
    found = one(tape, "piled-up")
    assert found.severity == "warning" and "other values" in found.sentence


@pytest.mark.parametrize(
    "zero",
    [
        lambda tape, w: tape.zero(),
        lambda tape, w: w.grad.zero_(),
        lambda tape, w: w.grad.numpy().fill(0),
        lambda tape, w: setattr(w, "grad", None),
    ],
)
@pytest.mark.host_memory("<lambda>2")
def test_a_loop_that_zeroes_is_healthy(zero):
    assert slugs(training(zero)[0]) == []


def test_one_tape_walked_twice_is_told_and_batches_are_only_noted():
    x, y = leaf(), empty()
    tape = recorded(x, y)
    tape.backward(grads={y: seed(*ONE)})
    assert not tape.diagnose().named("piled-up")
    other = recorded(x, y)
    other.backward(grads={y: seed(*ONE)})
    assert one(other, "piled-up").severity == "info"
    other.backward(grads={y: seed(*ONE)})
    assert one(other, "piled-up").severity == "warning"


def test_a_leaf_that_two_chained_tapes_share_is_no_pile():
    w, x, q, y = leaf(), leaf(), empty(requires_grad=True), empty()
    with wb.Tape() as first:
        wb.launch(times, N, [x, w], [q])
    with wb.Tape() as second:
        wb.launch(times, N, [q, w], [y])
    second.backward(grads={y: seed(*ONE)})
    first.backward(grads={q: q.grad})
    np.testing.assert_allclose(w.grad.numpy(), 2 * X**2)
    assert slugs(first) == [] and slugs(second) == []


def test_a_ledger_says_what_earlier_backwards_left():
    tape, w, y = training(lambda tape, w: None)
    for i in range(N):
        ledger = tape.ledger(w, i)
        assert ledger.rows[-1].heading == "from earlier backward"
        assert ledger.published == w.grad[i] and "earlier" in str(ledger)
        assert sum(r.value for r in ledger.rows) == pytest.approx(w.grad[i], rel=1e-14)
        assert sum(r.value for r in ledger.rows[:-1]) == pytest.approx(2 * w.numpy()[i])
    tape.zero()
    tape.backward(grads={y: seed(*ONE)})
    assert all(r.kind != "earlier" for r in tape.ledger(w, 0).rows)


def test_a_gradient_read_before_its_own_backward_is_found_afterwards():
    w, y = leaf(), empty()
    for k in range(3):
        tape = recorded(w, y)
        w.grad.numpy()
        tape.backward(grads={y: seed(*ONE)})
        assert one(tape, "read-before-backward").arrays == ("w",), k
        tape.zero()
        assert one(tape, "read-before-backward"), "also when it has been zeroed since"


def test_gradients_read_after_their_backward_are_no_finding_of_later_tapes():
    x, y, z = leaf(), empty(), empty()
    first, second = recorded(x, y), recorded(x, z)
    first.backward(grads={y: seed(*ONE)})
    x.grad.numpy()
    second.backward(grads={z: seed(*ONE)})
    assert not second.diagnose().named("read-before-backward")
    third = recorded(x, y)
    assert not third.diagnose().named("read-before-backward")
    rows = []
    for i in range(N):
        third.zero()
        third.backward(grads={y: seed(*np.eye(N)[i])})
        rows.append(x.grad.numpy())
    assert slugs(third) == []

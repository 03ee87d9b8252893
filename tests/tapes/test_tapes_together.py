"""Several tapes: what one publishes is the seed of the one before; leaves that two of them share; nesting."""

from __future__ import annotations

import re

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, N, X, cube, empty, leaf, seed, square, times

pytestmark = pytest.mark.usefixtures("backend")


def run(kernel, x, y, **kw):
    wb.launch(kernel, dim=len(x), inputs=[x], outputs=[y], **kw)


@pytest.mark.parametrize("marked", [False, True])
def test_chained_tapes_hand_the_gradient_on(marked):
    x, h, y = leaf(), wb.zeros(N, dtype=F, requires_grad=True), wb.zeros(N, dtype=F, requires_grad=marked)
    with wb.Tape() as first:
        run(square, x, h)
    with wb.Tape() as second:
        run(cube, h, y)
    second.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(h.grad.numpy(), 3 * X**4, rtol=1e-14)
    first.backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * X**5, rtol=1e-14)


def test_the_innermost_tape_records():
    x, h, y = leaf(), wb.zeros(N, dtype=F, requires_grad=True), empty()
    with wb.Tape() as outer:
        run(square, x, h)
        with wb.Tape() as inner:
            run(cube, h, y)
        run(square, x, y, record_tape=False)
        run(cube, x, x[:])
    assert [e.label for e in outer.launches] == ["square", "cube"] and [e.label for e in inner.launches] == ["cube"]
    outer.backward(grads={h: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)


def test_three_tapes_in_a_row():
    x, a, b, y = leaf(), empty(), empty(), empty()
    a.requires_grad = b.requires_grad = True
    tapes = []
    for source, target in ((x, a), (a, b), (b, y)):
        with wb.Tape() as tape:
            run(square, source, target)
        tapes.append(tape)
    tapes[2].backward(grads={y: seed(*ONE)})
    tapes[1].backward()
    tapes[0].backward()
    np.testing.assert_allclose(x.grad.numpy(), 8 * X**7, rtol=1e-14)


def test_a_chain_can_be_walked_again_and_leaves_add_up():
    x, h, y = leaf(), wb.zeros(N, dtype=F, requires_grad=True), empty()
    with wb.Tape() as first:
        run(square, x, h)
    with wb.Tape() as second:
        run(square, h, y)
    for k in (1, 2, 3):
        second.backward(grads={y: seed(*ONE)})
        first.backward()
        np.testing.assert_allclose(x.grad.numpy(), k * 4 * X**3, rtol=1e-14)
    with pytest.raises(wb.GradientError, match="no-seed"):
        first.backward()
    np.testing.assert_allclose(x.grad.numpy(), 12 * X**3, rtol=1e-14)


def test_the_first_tape_alone_has_no_seed():
    x, h, y = leaf(), wb.zeros(N, dtype=F, requires_grad=True), empty()
    with wb.Tape() as first:
        run(square, x, h)
    with wb.Tape():
        run(square, h, y)
    with pytest.raises(wb.GradientError, match="no-seed"):
        first.backward()


def test_only_the_part_that_the_second_tape_read_is_seeded():
    x, h, y = leaf(), wb.zeros(N, dtype=F, requires_grad=True), empty(2)
    with wb.Tape() as first:
        run(square, x, h)
    with wb.Tape() as second:
        run(square, h[1:3], y)
    second.backward(grads={y: seed(1, 1)})
    first.backward()
    np.testing.assert_allclose(x.grad.numpy(), [0, 4 * X[1] ** 3, 4 * X[2] ** 3, 0], rtol=1e-14)


def test_what_the_second_tape_overwrites_is_handed_on_by_its_first_contents():
    x, h, y = leaf(), wb.zeros(N, dtype=F, requires_grad=True), empty()
    with wb.Tape(keep="all") as first:
        run(square, x, h)
    with wb.Tape() as second:
        run(square, h, y)
        run(cube, h, h)
    second.backward(grads={y: seed(*ONE), h: seed(*ONE)})
    first.backward()
    np.testing.assert_allclose(x.grad.numpy(), (2 * X**2 + 3 * X**4) * 2 * X, rtol=1e-14)


def test_two_tapes_on_one_leaf_add_up():
    x, y, z = leaf(), wb.zeros(N, dtype=F, requires_grad=True), empty()
    with wb.Tape() as first:
        run(square, x, y)
    with wb.Tape() as second:
        run(cube, x, z)
    second.backward(grads={z: seed(*ONE)})
    y.grad.fill_(1.0)
    first.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * X + 3 * X**2, rtol=1e-14)


# ---- a gradient that is replaced before it was handed on


@wb.kernel
def grow(w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = y[i] + w[i] * w[i]


def three(refill=False):
    """x -> h on a first tape, (h, w) -> y on a second; a third adds to h."""
    x, w, y, h = leaf(), leaf(X + 1), empty(), wb.zeros(N, dtype=F, requires_grad=True)
    tapes = [wb.Tape(keep="all") for _ in range(3)]
    with tapes[0]:
        run(square, x, h)
    with tapes[1]:
        wb.launch(times, N, [h, w], [y])
    if refill:
        h.fill_(1.0)
    with tapes[2]:
        run(grow, w, h)
    return (*tapes, x, w, h, y)


def walks(which, first, second, third, x, w, h, y):
    """The walks whose numbers stand in `which`."""
    at_y, at_h = {y: seed(1, 2, 3, 4)}, {h: seed(4, 0, 2, 1)}
    for walk in which:
        second.backward(grads=at_y) if walk == "2" else third.backward(grads=at_h)


@pytest.mark.parametrize("refill", [False, True])
@pytest.mark.parametrize("which", ["23", "223", "233", "33"])
def test_a_walk_that_would_replace_what_was_not_handed_on_is_refused(which, refill):
    """A tape replaces the gradient of what it wrote: h.grad would lack what an earlier walk had found for it."""
    made = three(refill)
    if refill and "2" not in which:  # h is what the host wrote: nothing is owed to the first tape
        return walks(which, *made)
    with pytest.raises(wb.GradientError) as error:
        walks(which, *made)
    assert error.value.slug == "not-handed-on" and error.value.where.file == __file__
    assert "grad, which has not been handed on" in str(error.value) and ".grad.zero_()" in str(error.value)
    (lost,) = {int(n) for n in re.findall(r"The backward\(\) at \S+:(\d+)", str(error.value))}
    assert lost == error.value.where.line  # both stand in the same line of `walks`
    first, _, _, x, _, h, _ = made
    first.backward(grads={h: h.grad})  # nothing was published
    found = which.count("2") * np.array([1, 2, 3, 4]) * (X + 1) if "2" in which else np.array([4, 0, 2, 1])
    np.testing.assert_allclose(x.grad.numpy(), found * 2 * X, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:.*this gradient stops there:UserWarning")
def test_what_was_found_for_one_gradient_can_be_handed_on_in_other_ways():
    first, second, third, x, w, h, y = three()
    at_y, at_h = seed(1, 2, 3, 4).numpy(), seed(4, 0, 2, 1).numpy()
    wanted = (at_y * (X + 1) + at_h) * 2 * X

    second.backward(grads={y: at_y})  # walk by walk
    first.backward(grads={h: h.grad})
    third.backward(grads={h: at_h})
    first.backward(grads={h: h.grad})
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-14)

    x.grad.zero_(), h.grad.zero_()  # the sum of both
    second.backward(grads={y: at_y})
    kept = h.grad.numpy().copy()
    h.grad.zero_()
    third.backward(grads={h: at_h})
    first.backward(grads={h: kept + h.grad.numpy()})
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-14)

    x.grad.zero_(), h.grad.zero_()  # the second alone: the first was meant to be forgotten
    second.backward(grads={y: at_y})
    h.grad.zero_()
    third.backward(grads={h: at_h})
    first.backward(grads={h: h.grad})
    np.testing.assert_allclose(x.grad.numpy(), at_h * 2 * X, rtol=1e-14)

    x.grad.zero_(), h.grad.zero_()  # a leaf of the second tape adds up
    for _ in range(2):
        second.backward(grads={y: at_y})
    first.backward(grads={h: h.grad})
    np.testing.assert_allclose(x.grad.numpy(), 2 * at_y * (X + 1) * 2 * X, rtol=1e-14)

"""The border of a tape: memory that an earlier tape wrote, or one inside it; and nothing to take a derivative by."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, N, X, both, cube, empty, leaf, seed, square, times

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def total(x: wb.array(dtype=F), s: wb.array(dtype=F)):
    wb.atomic_add(s, 0, x[wb.tid()] * x[wb.tid()])


@wb.kernel
def only_decides(q: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if q[i] > F(0.0):
        y[i] = w[i] * w[i]


@wb.kernel
def add_product(q: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(y, i, q[i] * w[i])


def run(kernel, *arrays):
    wb.launch(kernel, dim=len(arrays[0]), inputs=[*arrays[:-1]], outputs=[arrays[-1]])


def two(marked=False, **between):
    """x -> q on a first tape, (q, w) -> y on a second."""
    x, w, q, y = leaf(), leaf(X + 1), empty(requires_grad=marked), empty()
    with wb.Tape() as first:
        run(square, x, q)
    with wb.Tape() as second:
        run(times, between.get("by", lambda a: a)(q), w, y)
    return first, second, x, w, q, y


def stops(name="q", source="x"):
    return pytest.warns(UserWarning, match=f"{name} was written by an earlier tape from {source}; this gradient stops")


def test_a_gradient_that_stops_at_an_earlier_tape_is_told_at_backward():
    _, second, _, w, _, y = two()
    with stops() as said:
        second.backward(grads={y: seed(*ONE)})
    assert "q.requires_grad = True" in str(said[0].message) and "wb.detach(q)" in str(said[0].message)
    assert said[0].filename == __file__
    np.testing.assert_allclose(w.grad.numpy(), X**2)


def test_it_is_told_also_where_nothing_but_the_first_tape_has_a_leaf_on_the_way():
    x, w, q, h, y = leaf(), leaf(), empty(), empty(), empty()
    with wb.Tape():
        run(square, x, q)
    with wb.Tape() as second:
        run(square, q, h)
        run(times, h, w, y)
    with stops():
        second.backward(grads={y: seed(*ONE)})
    with wb.Tape() as third:
        run(square, q, h)
        wb.copy(z := empty(), h)
        run(square, w, y)
    with stops():
        third.backward(grads={z: seed(*ONE)})


def test_a_copy_into_a_part_of_a_leaf_is_told_where_the_gradient_comes_to_it():
    x, w, q, y = leaf(), leaf(X + 1), empty(), empty()
    with wb.Tape():
        run(square, x, q)
    with wb.Tape() as second:
        wb.copy(w[:2], q[:2])
        run(square, w, y)
    with stops(r"q\[:2\]"):
        second.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(w.grad.numpy(), [0, 0, *2 * (X[2:] + 1)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second.backward(grads={y: seed(0, 0, 1, 1)})
    np.testing.assert_allclose(w.grad.numpy(), [0, 0, *4 * (X[2:] + 1)])


@pytest.mark.parametrize("marked", [False, True])
def test_detach_says_that_it_is_meant(marked):
    _, second, _, w, _, y = two(marked, by=wb.detach)
    second.backward(grads={y: seed(*ONE)})
    q = wb.detach(y)
    with wb.Tape() as third:
        run(times, q, w, z := empty())
    third.backward(grads={z: seed(*ONE)})


def test_a_chain_that_is_seeded_is_silent_and_exact():
    first, second, x, w, q, y = two(True)
    for k in (1, 2):
        second.zero()
        second.backward(grads={y: seed(*ONE)})
        first.backward(grads={q: q.grad})
        np.testing.assert_allclose(x.grad.numpy(), k * 2 * X * (X + 1))


def test_a_chain_that_is_not_seeded_is_told_when_the_gradient_is_looked_at():
    first, second, x, w, q, y = two(True)
    second.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(q.grad.numpy(), X + 1)
    with stops():
        assert not x.grad.numpy().any()
    x.grad.numpy()  # once


def test_a_part_that_is_not_seeded_is_told():
    x, p, q, y = leaf(), empty(requires_grad=True), empty(requires_grad=True), empty()
    with wb.Tape() as first:
        wb.launch(both, N, [x], [p, q])
    with wb.Tape() as second:
        run(times, p, q, y)
    second.backward(grads={y: seed(*ONE)})
    with stops() as said:
        first.backward(grads={p: p.grad})
    assert "This backward() has set q.grad to zero" in str(said[0].message)
    x.grad.numpy()  # once
    second.zero()
    second.backward(grads={y: seed(*ONE)})
    with stops("p"):
        first.backward(grads={p[:2]: p.grad[:2], q: q.grad})
    second.zero(), first.zero()
    second.backward(grads={y: seed(*ONE)})
    first.backward(grads={p: p.grad, q: q.grad})
    np.testing.assert_allclose(x.grad.numpy(), 2 * X * np.sin(X) + X**2 * np.cos(X))


def test_a_tape_that_is_gone_cannot_be_seeded():
    for forget in (lambda tape: tape.reset(), lambda tape: None):
        first, second, _, _, _, y = two(True)
        forget(first)
        del first
        gc.collect()
        with stops():
            second.backward(grads={y: seed(*ONE)})


def test_a_state_that_goes_from_tape_to_tape_in_place_is_told():
    s, w = leaf(), leaf()
    s.requires_grad = False
    for k in range(3):
        with wb.Tape() as tape:
            wb.launch(times, N, [s, w], [s])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            tape.backward(grads={s: seed(*ONE)})
        assert len(said) == (k > 0), k


def test_what_is_written_anew_between_tapes_is_a_leaf_like_any_other():
    def assigned(x, q):
        q.assign(X)

    def filled(x, q):
        q.fill_(2.0)

    def launched(x, q):
        run(square, x, q)

    for renew in (assigned, filled, launched):
        x, w, q, y = leaf(), leaf(), empty(), empty()
        with wb.Tape():
            run(square, x, q)
        renew(x, q)
        with wb.Tape() as second:
            run(times, q, w, y)
        second.backward(grads={y: seed(*ONE)})


def test_memory_that_is_used_again_is_no_border():
    x, q, s = leaf(), empty(), empty(1)
    for _ in range(3):
        with wb.Tape() as tape:
            s.zero_()
            run(square, x, q)
            run(total, q, s)
        tape.backward(s)


def test_a_loss_that_adds_up_over_tapes_is_whole():
    x, s = leaf(), empty(1)
    for k in (1, 2, 3):
        with wb.Tape() as tape:
            run(total, x, s)
        tape.backward(s)
        np.testing.assert_allclose(x.grad.numpy(), 2 * k * X)


def test_what_only_decides_has_no_gradient_to_lose():
    x, w, q, y = leaf(), leaf(), empty(), empty()
    with wb.Tape():
        run(square, x, q)
    with wb.Tape() as second:
        run(only_decides, q, w, y)
    second.backward(grads={y: seed(*ONE)})


def test_rows_of_one_memory_are_told_apart():
    u = wb.zeros((3, N), dtype=F)
    x, w = leaf(), leaf()
    u[2].assign(X)
    with wb.Tape():
        run(square, x, u[0])
    with wb.Tape() as second:
        run(times, u[2], w, u[1])
    second.backward(grads={u[1]: seed(*ONE)})
    with wb.Tape() as third:
        run(times, u[0], w, u[2])
    with stops(r"u.*"):
        third.backward(grads={u[2]: seed(*ONE)})


def test_a_tape_goes_on_where_it_left_off():
    x, q, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, q)
    with tape:
        run(cube, q, y)
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 6 * X**5)


def test_a_tape_entered_in_itself_records_once():
    x, q, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, q)
        with tape:
            run(cube, q, y)
        tape.backward(grads={y: seed(*ONE)})
        np.testing.assert_allclose(x.grad.numpy(), 6 * X**5)
        run(square, y, z := empty())
    tape.zero()
    tape.backward(grads={z: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 12 * X**11)
    assert len(tape) == 3


@pytest.mark.parametrize(
    "fill", [lambda x: x.zero_(), lambda x: x.fill_(0.7), lambda x: wb.copy(x, empty().fill_(0.3))]
)
def test_what_was_computed_from_a_leaf_that_was_filled_is_no_border(fill):
    x, w, q, y = leaf(), leaf(X + 1), empty(), empty()
    with wb.Tape():
        fill(x)
        run(square, x, q)
    with wb.Tape() as second:
        run(times, q, w, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(w.grad.numpy(), q.numpy())


def _first_part(x, w, q):
    x[:1].zero_()
    run(square, x, q)


def _read_with_it(x, w, q):
    x.zero_()
    run(times, x, w, q)


def _after_it(x, w, q):
    run(square, x, q)
    x.zero_()


def _added_to(x, w, q):
    run(square, x, q)
    x.zero_()
    wb.launch(total, dim=N, inputs=[x], outputs=[q])


def _written_again(x, w, q):
    x.zero_()
    wb.copy(x, w)
    run(square, x, q)


@pytest.mark.parametrize("first", [_first_part, _read_with_it, _after_it, _added_to, _written_again])
def test_what_depends_on_a_leaf_beside_the_filled_bytes_is_told(first):
    x, w, q, v, y = leaf(), leaf(X + 1), empty(), leaf(), empty()
    with wb.Tape():
        first(x, w, q)
    with wb.Tape() as second:
        run(times, q, v, y)
    with pytest.warns(UserWarning, match="q was written by an earlier tape"):
        second.backward(grads={y: seed(*ONE)})


def test_what_a_cut_made_and_another_tape_changed_is_refused():
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        q = wb.detach(x)
        q.requires_grad = True
        with wb.Tape():
            q[1:3].fill_(0.5)
        run(square, q, y)
    assert refused(lambda: tape.backward(grads={y: seed(*ONE)})).slug == "overwritten"


def test_a_constant_that_a_cut_made_may_change():
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        q = wb.detach(x)
        run(times, q, x, y)
    q.fill_(0.5)
    with tape:
        run(times, q, y, z := empty())
    assert refused(lambda: tape.backward(grads={z: seed(*ONE)})).slug == "overwritten"  # the first launch needs it
    with wb.Tape() as tape:
        q = wb.detach(x)
    q.fill_(0.5)
    with tape:
        run(times, q, x, y)
    x.grad.zero_()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 0.5)


def refused(call):
    with pytest.raises(wb.GradientError) as found:
        call()
    return found.value


def nested(marked=False):
    x, w, q, y, z = leaf(), leaf(X + 1), empty(requires_grad=marked), empty(requires_grad=marked), empty()
    with wb.Tape() as outer:
        run(square, x, q)
        with wb.Tape() as inner:
            run(times, q, w, y)
        run(cube, y, z)
    return outer, inner, x, w, q, y, z


def test_what_a_tape_inside_another_would_lose_is_refused():
    outer, inner, x, w, q, y, z = nested()
    error = refused(lambda: inner.backward(grads={y: seed(*ONE)}))
    assert error.slug == "nested-tape" and "q was written by a tape around this one" in str(error)
    error = refused(lambda: outer.backward(grads={z: seed(*ONE)}))
    assert error.slug == "nested-tape" and "y was written by a tape inside this one" in str(error)
    assert not x.grad.numpy().any() and not w.grad.numpy().any()


def test_a_tape_inside_another_can_be_chained():
    outer, inner, x, w, q, y, z = nested(True)
    outer.backward(grads={z: seed(*ONE)})
    inner.backward(grads={y: y.grad})
    outer.backward(grads={q: q.grad})
    d = 3 * (X**2 * (X + 1)) ** 2
    np.testing.assert_allclose(w.grad.numpy(), d * X**2)
    np.testing.assert_allclose(x.grad.numpy(), d * (X + 1) * 2 * X)


def test_two_tapes_can_be_entered_inside_one_another_in_turns():
    x, p, q, y = leaf(), empty(), empty(), empty()
    a, b, earlier = wb.Tape(), wb.Tape(), wb.Tape()
    with earlier:
        run(square, x, p)
    with b, a:
        run(square, x, q)
    with a, b:
        run(times, x, p, y)
    with pytest.warns(UserWarning, match="p was written by an earlier tape from x"):
        b.backward(grads={y: seed(*ONE)})


def test_a_tape_without_a_leaf_is_refused():
    x, y = wb.array(X, dtype=F), empty()
    with wb.Tape() as tape:
        run(square, x, y)
    error = refused(lambda: tape.backward(grads={y: seed(*ONE)}))
    assert error.slug == "no-leaf" and "requires_grad=True" in error.instead
    x.requires_grad = True
    assert refused(lambda: tape.backward(grads={y: seed(*ONE)})).slug == "late-grad"


def test_a_seed_off_every_active_path_is_told():
    x, c, y, z = leaf(), wb.array(X, dtype=F), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        run(square, c, z)
    with pytest.warns(UserWarning, match="every gradient is zero"):
        tape.backward(grads={z: seed(*ONE)})
    tape.backward(grads={z: seed(*ONE), y: seed(*ONE)})


def test_a_checkpointed_loop_has_the_border_of_its_tape():
    x, s, w = leaf(), empty(), leaf()

    @wb.checkpoint(steps=4, budget=2)
    def loop(k, s):
        wb.launch(times, N, [s, w], [s])

    with wb.Tape():
        run(square, x, s)
    with wb.Tape() as second:
        loop(s)
    with stops("s"):
        second.backward(grads={s: seed(*ONE)})
    np.testing.assert_allclose(w.grad.numpy(), 4 * X**2 * X**3)
    with wb.Tape() as third:
        s.assign(X)
        loop(s)
    third.backward(grads={s: seed(*ONE)})


def test_rows_of_one_array_are_one_border():
    x, w, rows, y = leaf(), leaf(X + 1), wb.zeros((20, N), dtype=F), empty()
    with wb.Tape():
        for k in range(20):
            run(square, x, rows[k])
    with wb.Tape() as second:
        for k in range(20):
            wb.launch(add_product, dim=N, inputs=[rows[k], w], outputs=[y])
    with stops("rows") as said:
        second.backward(grads={y: seed(*ONE)})
    assert len(said) == 1
    np.testing.assert_allclose(w.grad.numpy(), 20 * X**2)
    assert len(second.diagnose().named("earlier-tape")) == 1


def test_rows_are_handed_on_one_by_one():
    x, rows, loss = leaf(), wb.zeros((20, N), dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape() as first:
        for k in range(20):
            run(square, x, rows[k])
    with wb.Tape() as second:
        for k in range(20):
            run(total, rows[k], loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second.backward(loss)
        first.backward(grads={rows: rows.grad})
    np.testing.assert_allclose(x.grad.numpy(), 20 * 4 * X**3, rtol=1e-5)

"""Tapes: what is recorded and in which order, host writes with their adjoints, walks that can be repeated.

Every gradient is compared with its closed form, on every backend.
"""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, N, X, cube, empty, leaf, seed, square
from workbench.launches import thresholds

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def total(x: wb.array(dtype=F), s: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(s, 0, x[i])


@wb.kernel
def pick(x: wb.array(dtype=F), index: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[index[i]] * x[index[i]]


def run(kernel, x, y, **kw):
    wb.launch(kernel, dim=len(x), inputs=[x], outputs=[y], **kw)


# --- what is recorded


def test_events_stand_in_the_order_in_which_things_happened():
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        wb.copy(z, y)
        y.zero_()
        y.fill_(2.0)
        y.assign(X)
        y[0:1] = 5.0
        w = wb.clone(z)
        run(cube, w, y)
    kinds = [e.kind for e in tape.events]
    assert kinds == ["launch", "copy", "zero_", "fill_", "assign", "fill_", "copy", "launch"]
    assert [e.label for e in tape.launches] == ["square", "cube"]
    assert [e.id for e in tape.events] == sorted(e.id for e in tape.events)
    assert all(e.where is not None and e.where.file == __file__ for e in tape.events)
    assert "run(" in tape.launches[0].where.text or "wb.launch" in tape.launches[0].where.text


def test_nothing_is_recorded_before_the_block_after_it_or_with_record_tape_false():
    x, y = leaf(), empty()
    run(square, x, y)
    with wb.Tape() as tape:
        run(square, x, y, record_tape=False)
    run(square, x, y)
    y.zero_()
    assert len(tape) == 0 and tape.launches == []


def test_making_arrays_is_no_event():
    with wb.Tape() as tape:
        wb.zeros(3), wb.ones(3), wb.full(3, 2.0), wb.array([1.0]), wb.empty(2)
        wb.zeros_like(leaf()), wb.from_numpy(X.copy())
    assert len(tape) == 0


def test_a_recorded_command_is_an_event_each_time_it_is_launched():
    x, y, s = leaf(), empty(), empty(1)
    with wb.Tape() as tape:
        command = wb.launch(square, dim=N, inputs=[x], outputs=[y], record_cmd=True)
        assert len(tape) == 0 and not y.numpy().any()
        add = wb.launch(total, dim=N, inputs=[y], outputs=[s], record_cmd=True)
        for _ in range(3):
            command.launch()
            add.launch()
    assert len(tape.launches) == 6
    tape.backward(s)
    np.testing.assert_allclose(x.grad.numpy(), 3 * 2 * X, rtol=1e-15)


def test_a_launch_on_an_empty_grid_does_nothing():
    x, y, none = leaf(), empty(), wb.zeros(0, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, dim=0, inputs=[x], outputs=[y])
        wb.launch(square, dim=0, inputs=[none], outputs=[none])
        run(cube, x, y)
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2, rtol=1e-15)
    assert none.grad.shape == (0,)


# --- functions of the user's own


def test_a_recorded_function_sees_and_changes_the_adjoint_at_its_place():
    x, h, y = leaf(), empty(), empty()
    seen = []

    def halve() -> None:
        seen.append(h.grad.numpy().copy())
        h.grad = wb.array(h.grad.numpy() * 0.5, dtype=F)

    h.requires_grad = True
    with wb.Tape() as tape:
        run(square, x, h)
        tape.record_func(halve, [h])
        run(cube, h, y)
    for _ in range(2):
        x.grad.zero_()
        tape.backward(grads={y: seed(1, 2, 3, 4)})
        np.testing.assert_allclose(seen.pop(), np.array([1, 2, 3, 4]) * 3 * X**4, rtol=1e-14)
        np.testing.assert_allclose(x.grad.numpy(), np.array([1, 2, 3, 4]) * 3 * X**5, rtol=1e-14)


@pytest.mark.host_memory
def test_a_recorded_function_carries_a_gradient_past_code_that_the_tape_cannot_see():
    x, h, y = leaf(), wb.zeros(N, dtype=F, requires_grad=True), empty()

    def chain() -> None:
        x.grad = wb.array(x.grad.numpy() + h.grad.numpy() * np.cos(X), dtype=F)
        h.grad.zero_()

    with wb.Tape() as tape:
        h.numpy()[...] = np.sin(x.numpy())
        tape.record_func(chain, [x, h])
        run(square, h, y)
    for _ in range(2):
        tape.backward(grads={y: seed(*ONE)})
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.sin(X) * np.cos(X), rtol=1e-14)


# --- walking again, reset, zero


def through_sum():
    x, s, y = leaf([1.0, 2.0, 3.0]), empty(1), empty(1)
    with wb.Tape() as tape:
        wb.launch(total, dim=3, inputs=[x], outputs=[s])
        wb.launch(square, dim=1, inputs=[s], outputs=[y])
    return tape, x, s, y


def test_a_tape_is_walked_again_with_other_seeds_over_an_accumulated_intermediate():
    @wb.kernel
    def rows(x: wb.array(dtype=F), acc: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(acc, 0, x[i] * x[i])

    @wb.kernel
    def spread(acc: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = acc[0] * F(i + 1)

    x, acc, y = leaf([1.0, 2.0, 3.0]), wb.zeros(1, dtype=F, requires_grad=True), empty(2)
    with wb.Tape() as tape:
        wb.launch(rows, dim=3, inputs=[x], outputs=[acc])
        wb.launch(spread, dim=2, inputs=[acc], outputs=[y])
    found = []
    for row in ((1, 0), (0, 1), (1, 0), (0, 1)):
        x.grad.zero_()
        tape.backward(grads={y: seed(*row)})
        found.append(x.grad.numpy().tolist())
    assert found == [[2, 4, 6], [4, 8, 12]] * 2


def test_leaves_accumulate_until_zero_is_called():
    tape, x, s, y = through_sum()
    tape.backward(y)
    tape.backward(y)
    assert x.grad.numpy().tolist() == [24, 24, 24]
    tape.zero()
    assert x.grad.numpy().tolist() == [0, 0, 0]
    tape.backward(y)
    assert x.grad.numpy().tolist() == [12, 12, 12]


def test_reset_forgets_the_events_and_clears_the_gradients():
    tape, x, s, y = through_sum()
    tape.backward(y)
    tape.reset()
    assert len(tape) == 0 and tape.gradients == {} and x.grad.numpy().tolist() == [0, 0, 0]
    with tape:
        wb.launch(square, dim=1, inputs=[x[0:1]], outputs=[y])
    tape.backward(y)
    assert x.grad.numpy().tolist() == [2, 0, 0]


def test_gradients_are_listed_by_array():
    tape, x, s, y = through_sum()
    tape.backward(y)
    assert set(tape.gradients) == {x} and tape.gradients[x] is x.grad


def test_memory_is_bitwise_what_it_was_after_a_walk():
    x, h = leaf(), empty()
    with wb.Tape() as tape:
        run(square, x, h)
        for _ in range(5):
            wb.launch(square, dim=N, inputs=[h], outputs=[h])
        h[1:2] = np.nan
        x.assign(np.array([np.nan, -0.0, np.inf, 1e-320]))
    before = [a.numpy().tobytes() for a in (x, h)]
    tape.backward(grads={h: seed(*ONE)})
    assert [a.numpy().tobytes() for a in (x, h)] == before
    want = 64 * X**63
    want[1] = 0
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-13)


def test_a_tape_that_keeps_everything_is_exact_after_any_write():
    x, y = leaf(), empty()
    with wb.Tape(keep="all") as tape:
        run(square, x, y)
    x.zero_()
    x.assign(9 * X)
    wb.launch(square, dim=N, inputs=[x], outputs=[x])
    for k in (1, 2):
        tape.backward(grads={y: seed(*ONE)})
        np.testing.assert_array_equal(x.grad.numpy(), k * 2 * X)
    np.testing.assert_array_equal(x.numpy(), (9 * X) ** 2)
    with pytest.raises(ValueError, match="needed"):
        wb.Tape(keep="some")


def test_integers_that_choose_what_is_read_are_kept():
    x, index, y = leaf(), wb.array([3, 3, 0, 1], dtype=int), empty()
    with wb.Tape() as tape:
        wb.launch(pick, dim=N, inputs=[x, index], outputs=[y])
        index.zero_()
    tape.backward(grads={y: seed(1, 10, 100, 1000)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X * np.array([100, 1000, 0, 11]))
    assert index.numpy().tolist() == [0, 0, 0, 0]


# --- odd moments


def test_backward_inside_the_block_walks_what_is_there_so_far():
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        tape.backward(grads={y: seed(*ONE)})
        np.testing.assert_array_equal(x.grad.numpy(), 2 * X)
        run(cube, x, z)
    assert len(tape) == 2
    x.grad.zero_()
    tape.backward(grads={z: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2, rtol=1e-15)


@pytest.mark.host_memory
def test_a_launch_that_fails_makes_the_tape_refuse():
    x, h, y = leaf(), empty(), empty()
    wb.config.check_bounds = True
    wrong = wb.array([0, 1, 99, 2], dtype=int)
    with wb.Tape() as tape:
        run(square, x, h)
        with pytest.raises(wb.BoundsError):
            wb.launch(pick, dim=N, inputs=[h, wrong], outputs=[y])
        run(square, h, y)
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={y: seed(*ONE)})
    assert found.value.slug == "failed-launch"
    assert not x.grad.numpy().any()


def test_a_launch_that_is_refused_before_it_ran_leaves_the_tape_whole():
    x, h, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, h)
        with pytest.raises(wb.LaunchError):
            wb.launch(square, dim=N + 1, inputs=[h], outputs=[y])
        run(cube, h, y)
    assert len(tape) == 2
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 6 * X**5, rtol=1e-14)


def recorded() -> tuple[wb.Tape, weakref.ref]:
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
    return tape, weakref.ref(y)


@pytest.mark.slow
def test_a_tape_keeps_its_arrays_alive_until_it_is_reset():
    tape, y = recorded()
    gc.collect()
    assert y() is not None, "the event needs it"
    tape.reset()
    gc.collect()
    assert y() is None


# --- a walk that breaks off


@wb.kernel
def scatter(x: wb.array(dtype=F), index: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    y[index[i]] = x[i] * x[i]


def test_a_walk_that_is_refused_half_way_leaves_memory_and_gradients_alone():
    x, h, double = leaf(), wb.zeros(N, dtype=F, requires_grad=True), wb.array([0, 1, 1, 2], dtype=int)
    x.grad.fill_(5.0)
    with wb.Tape() as tape:
        wb.launch(scatter, dim=N, inputs=[x, double, h])
        double.zero_()
        for _ in range(3):
            run(square, h, h)
        h.assign(X)
    for _ in range(2):
        with pytest.raises(wb.GradientError, match="race"):
            tape.backward(grads={h: seed(*ONE)})
        np.testing.assert_array_equal(h.numpy(), X)
        np.testing.assert_array_equal(x.numpy(), X)
        assert double.numpy().tolist() == [0, 0, 0, 0]
        assert x.grad.numpy().tolist() == [5, 5, 5, 5] and not h.grad.numpy().any()


def test_an_error_in_a_recorded_function_leaves_memory_and_gradients_alone():
    x, h, y = leaf(), wb.zeros(N, dtype=F, requires_grad=True), empty()
    broken = [True]

    def callback() -> None:
        h.grad.fill_(99.0)
        if broken:
            raise RuntimeError("not today")
        h.grad.fill_(1.0)

    with wb.Tape() as tape:
        run(square, x, h)
        tape.record_func(callback, [h])
        run(cube, h, y)
        h.zero_()
    with pytest.raises(RuntimeError, match="not today"):
        tape.backward(grads={y: seed(*ONE)})
    assert not h.numpy().any() and not x.grad.numpy().any() and not h.grad.numpy().any()
    broken.clear()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)


@wb.kernel
def outputs_first(y: wb.array(dtype=F), z: wb.array(dtype=F), a: wb.array(dtype=F), x: wb.array(dtype=F)):
    i = wb.tid()
    z[i] = a[i] * x[i]
    y[i] = z[i] * z[i]


def test_what_a_launch_writes_is_followed_whatever_the_order_of_its_parameters():
    x, a, y, z = leaf(), wb.array(X + 2, dtype=F), empty(), empty()
    for _ in range(2):  # the second tape knows that x is active from its first launch
        with wb.Tape() as tape:
            wb.launch(square, dim=N, inputs=[x], outputs=[z])
            wb.launch(outputs_first, dim=N, inputs=[y, z, a, x])
        x.grad.zero_()
        tape.backward(grads={y: seed(1.0, 1.0, 1.0, 1.0)})
        np.testing.assert_allclose(x.grad.numpy(), 2 * (X + 2) ** 2 * X, rtol=1e-12)


def test_two_targets_of_one_pull_are_told_apart_by_identity(monkeypatch):
    """Arrays refuse `==`: asking which of them are fresh must not compare them."""
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    wb.config.backend = "c"

    @wb.kernel
    def pulled(a: wb.array2d(dtype=float), b: wb.array2d(dtype=float), y: wb.array2d(dtype=float)):
        i, j = wb.tid()
        if i > 0 and i < y.shape[0] - 1:
            y[i, j] = a[i - 1, j] + 2.0 * a[i + 1, j] + 3.0 * b[i - 1, j] + 5.0 * b[i, j]

    a, b, y = (wb.ones((8, 8), dtype=float, requires_grad=True) for _ in range(3))
    with wb.Tape() as tape:
        wb.launch(pulled, (8, 8), [a, b], [y])
    tape.backward(grads={y: wb.ones((8, 8), dtype=float)})
    np.testing.assert_array_equal(a.grad.numpy()[:, 0], [1, 1, 3, 3, 3, 3, 2, 2])
    np.testing.assert_array_equal(b.grad.numpy()[:, 0], [3, 8, 8, 8, 8, 8, 5, 0])


@pytest.mark.host_memory
def test_leaves_that_a_recorded_function_only_read_accumulate():
    def twice(only_read):
        x, y = wb.array([2.0, 3.0], requires_grad=True), wb.zeros(2)

        def pull_back():
            x.grad.numpy()[:] += 2 * x.numpy() * y.grad.numpy()
            y.grad.zero_()

        with wb.Tape() as tape:
            y.numpy()[:] = x.numpy() ** 2
            tape.record_func(pull_back, [x, y], only_read=[x] if only_read else [])
        found = []
        for _ in range(2):
            tape.backward(grads={y: wb.ones(2)})
            found.append(x.grad.numpy().tolist())
        return found

    assert twice(False) == [[4.0, 6.0], [4.0, 6.0]]
    assert twice(True) == [[4.0, 6.0], [8.0, 12.0]]
    with pytest.raises(wb.LaunchError, match="record-func"):
        wb.Tape().record_func(lambda: None, [wb.zeros(1)], only_read=[wb.zeros(1)])


def test_the_right_side_of_a_solve_is_a_leaf_that_accumulates():
    A = wb.sparse.bsr_from_triplets(2, 2, wb.array([0, 1]), wb.array([0, 1]), wb.array([2.0, 4.0]))
    A.values.requires_grad = True
    b, x = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2, requires_grad=True)
    with wb.Tape() as tape:
        wb.optim.linear.cg(A, b, x, tol=1e-6)
    for k in (1, 2):
        tape.backward(grads={x: wb.ones(2)})
        np.testing.assert_allclose(b.grad.numpy(), [0.5 * k, 0.25 * k], rtol=1e-5)
        np.testing.assert_allclose(A.values.grad.numpy(), [-0.25 * k, -0.125 * k], rtol=1e-5)

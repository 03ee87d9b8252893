"""Gradients as values: a backward inside another tape is an event with an exact second derivative, or is refused."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.fuzz import inner
from tests.fuzz.inner import F, N, energy, push, spread, squares
from tests.support.squares import ONE, X, cube, empty, leaf, seed, square, times

STEP = 1e-30


def slopes(function, *starts):
    """The derivative of a function of complex arrays by each of them, by complex steps."""
    found = []
    for n, start in enumerate(starts):
        by = []
        for k in range(len(start)):
            moved = [np.array(s, complex) for s in starts]
            moved[n][k] += 1j * STEP
            by.append(np.sum(function(*moved)).imag / STEP)
        found.append(np.array(by))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed, backend):
    assert inner.outcome(seed)


def test_the_random_programs_are_mostly_exact():
    found = [inner.outcome(seed) for seed in range(60)]
    assert found.count("twice") > 20 and found.count("exact") + found.count("twice") > 40
    assert {*found} <= {"exact", "twice", "refused [inner-backward]", "refused [host-values]", "refused [overwritten]"}


def force(x: wb.array, keep: str = "all") -> wb.array:
    """The gradient of sum(x^3) by an inner tape: 3 x^2."""
    y = empty()
    with wb.Tape(keep=keep) as tape:
        wb.launch(cube, 4, [x], [y])
    tape.backward(grads={y: seed(*ONE)})
    return x.grad


def test_an_intermediate_state_of_the_outer_tape_is_a_leaf_of_the_inner_one(backend):
    x, z, y = leaf(), empty(requires_grad=True), empty()
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [z])
        wb.launch(times, 4, [z, force(z)], [y])  # x^2 * 3 x^4
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 18 * X**5, rtol=1e-12)


def test_what_the_outer_tape_wrote_for_the_inner_one_is_no_border_of_it(backend):
    """Of two arrays that the inner tape starts from, the outer one goes on with the gradient of one."""
    x, z, w, m, e, y = leaf(), *(empty(requires_grad=True) for _ in range(3)), empty(), empty()
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [z])
        wb.launch(cube, 4, [x], [w])
        with wb.Tape(keep="all") as inner:
            wb.launch(times, 4, [z, w], [m])
            wb.launch(cube, 4, [m], [e])
        inner.backward(grads={e: seed(*ONE)})
        wb.launch(times, 4, [w, z.grad], [y])  # x^3 * 3 (x^5)^2 x^3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape.backward(grads={y: seed(*ONE)})
        np.testing.assert_allclose(x.grad.numpy(), 48 * X**15, rtol=1e-12)


def test_a_gradient_that_was_not_handed_on_is_still_said(backend):
    x, z, e = leaf(), empty(requires_grad=True), empty()
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [z])
    with wb.Tape(keep="all") as other:
        wb.launch(cube, 4, [z], [e])
    other.backward(grads={e: seed(*ONE)})
    with pytest.warns(UserWarning, match="without being seeded with it"):
        tape.backward(grads={z: seed(0, 0, 0, 0)})


def test_a_seed_of_the_inner_backward_may_depend_on_the_outer_tape(backend):
    x, s, z, y = leaf(), empty(), empty(), empty()
    with wb.Tape(keep="all") as tape:
        wb.launch(square, 4, [x], [s])
        with wb.Tape(keep="all") as one:
            wb.launch(cube, 4, [x], [z])
        one.backward(grads={z: s})  # x^2 * 3 x^2
        wb.launch(times, 4, [x, x.grad], [y])
    x.grad.zero_()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 15 * X**4, rtol=1e-12)


def test_what_tape_zero_clears_is_cleared_for_the_outer_tape_too(backend):
    x, y, z = leaf(), empty(), empty()
    with wb.Tape(keep="all") as tape:
        with wb.Tape(keep="all") as one:
            wb.launch(cube, 4, [x], [z])
        one.backward(grads={z: seed(*ONE)})
        one.zero()
        one.backward(grads={z: seed(*ONE)})
        wb.launch(times, 4, [x, x.grad], [y])
    x.grad.zero_()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 9 * X**2, rtol=1e-12)


def test_vectors_and_parts_of_one_memory(backend):
    @wb.kernel
    def norms(x: wb.array(dtype=wb.vec3d), e: wb.array(dtype=F)):
        v = x[wb.tid()]
        wb.atomic_add(e, 0, wb.dot(v, v) * v[0])

    @wb.kernel
    def firsts(x: wb.array(dtype=wb.vec3d), f: wb.array(dtype=wb.vec3d), loss: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(loss, 0, wb.dot(x[i], f[i]) * f[i][1])

    start = np.linspace(0.3, 1.4, 12).reshape(4, 3)
    x = wb.array(start, dtype=wb.vec3d, requires_grad=True)
    e, loss = wb.zeros(1, dtype=F), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        with wb.Tape(keep="all") as one:
            wb.launch(norms, 2, [x[1:3]], [e])
        one.backward(e)
        wb.launch(firsts, 2, [x[1:3], x[1:3].grad], [loss])
    x.grad.zero_()
    with pytest.raises(wb.GradientError, match="overwritten"):
        tape.backward(loss)

    def program(flat):
        v = flat.reshape(4, 3)[1:3]
        f = 2 * v * v[:, :1]
        f[:, 0] += np.sum(v * v, axis=1)
        return np.sum(np.sum(v * f, axis=1) * f[:, 1])

    x = wb.array(start, dtype=wb.vec3d, requires_grad=True)
    e, loss = wb.zeros(1, dtype=F), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        with wb.Tape(keep="all") as one:
            wb.launch(norms, 2, [x[1:3]], [e])
        one.backward(e)
        wb.launch(firsts, 2, [x[1:3], x[1:3].grad], [loss])
    x.grad.zero_()
    tape.backward(loss)
    (exact,) = slopes(program, start.ravel())
    np.testing.assert_allclose(x.grad.numpy().ravel(), exact, rtol=1e-12)


def test_a_time_loop_of_forces_from_an_energy():
    x, p = wb.array(np.array([0.4, 0.9, 1.1]), dtype=F, requires_grad=True), wb.ones(N, dtype=F, requires_grad=True)
    first, loss = x, wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        for _ in range(20):
            e, y = wb.zeros(1, dtype=F), wb.zeros(N, dtype=F, requires_grad=True)
            with wb.Tape(keep="all") as one:
                wb.launch(energy, N, [x, p], [e])
            one.backward(e)
            wb.launch(push, N, [x, x.grad], [y])
            x = y
        wb.launch(squares, N, [x], [loss])
    first.grad.zero_()
    p.grad.zero_()
    tape.backward(loss)

    def program(x, p):
        for _ in range(20):
            x = x - 0.1 * inner.energy_slopes(x, p)[0]
        return x * x

    by_x, by_p = slopes(program, np.array([0.4, 0.9, 1.1]), np.ones(N))
    np.testing.assert_allclose(first.grad.numpy(), by_x, rtol=1e-10)
    np.testing.assert_allclose(p.grad.numpy(), by_p, rtol=1e-10)


def test_it_is_an_event_that_can_be_looked_at():
    x, y = leaf(), empty()
    with wb.Tape(keep="all") as tape:
        wb.launch(times, 4, [x, force(x)], [y])
    assert [e.kind for e in tape.events] == ["backward", "launch"]
    x.grad.zero_()
    tape.backward(grads={y: seed(*ONE)})
    ledger = tape.ledger(x, 0)
    assert {r.heading for r in ledger.rows} == {"#1 times", "#0 backward"}
    np.testing.assert_allclose(sum(r.value for r in ledger.rows), 9 * X[0] ** 2, rtol=1e-12)
    assert "backward" in tape.show().text
    assert tape.diagnose() is not None


# ---- refused, by name of both lines


def refusal(tape, y):
    with pytest.raises(wb.GradientError) as refused:
        tape.backward(grads={y: seed(*ONE)})
    return refused.value


def test_an_inner_tape_that_keeps_only_what_it_needs_is_refused_with_the_way_out():
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        wb.launch(times, 4, [x, force(x, "needed")], [y])
    error = refusal(tape, y)
    assert error.slug == "inner-backward" and 'wb.Tape(keep="all")' in str(error)
    assert error.where.text.strip() == "tape.backward(grads={y: seed(*ONE)})"


def test_the_gradient_of_what_the_inner_tape_computed_has_no_second_derivative():
    x, h, z, y = leaf(), empty(requires_grad=True), empty(), empty()
    with wb.Tape(keep="all") as tape:
        with wb.Tape(keep="all") as other:
            wb.launch(square, 4, [x, h])
            wb.launch(cube, 4, [h, z])
        other.backward(grads={z: seed(*ONE)})
        wb.launch(times, 4, [x, h.grad], [y])
    error = refusal(tape, y)
    assert error.slug == "inner-backward" and "h is no leaf of it" in str(error)
    assert "wb.detach(h.grad)" in str(error)


@pytest.mark.parametrize("around", [True, False])
def test_a_gradient_that_the_tape_has_not_recorded_is_refused(around):
    x, y, z = leaf(), empty(), empty()
    with wb.Tape(keep="all") as tape:
        if around:  # a backward inside its own tape
            wb.launch(cube, 4, [x], [z])
            tape.backward(grads={z: seed(*ONE)})
        else:
            with wb.Tape(keep="all") as other:
                wb.launch(cube, 4, [x], [z])
    if not around:
        other.backward(grads={z: seed(*ONE)})
    with tape:
        wb.launch(times, 4, [x, x.grad], [y])
    error = refusal(tape, y)
    assert error.slug == "gradient-value" and "x.grad is a gradient" in str(error)
    assert "backward(grads={z: seed(*ONE)})" not in error.where.text and "times" in error.where.text
    assert "test_inner_backward.py:" in str(error).splitlines()[0]


def test_a_detached_gradient_is_a_constant():
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as other:
        wb.launch(cube, 4, [x], [z])
    other.backward(grads={z: seed(*ONE)})
    with wb.Tape(keep="all") as tape:
        wb.launch(times, 4, [x, wb.detach(x.grad)], [y])
    x.grad.zero_()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2, rtol=1e-12)


@pytest.mark.parametrize("cleared", ["zero_", "tape.zero", "assign"])
def test_a_gradient_that_was_cleared_or_written_is_a_value_of_the_users(cleared):
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as other:
        wb.launch(cube, 4, [x], [z])
    other.backward(grads={z: seed(*ONE)})
    if cleared == "zero_":
        x.grad.zero_()
    elif cleared == "tape.zero":
        other.zero()
    else:
        x.grad.assign(np.full(4, 2.0))
    with wb.Tape(keep="all") as tape:
        wb.launch(times, 4, [x, x.grad], [y])
    constant = x.grad.numpy().copy()
    x.grad.zero_()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), constant, rtol=1e-12)


def test_tangents_and_second_derivatives_go_through_it(backend):
    x, y, loss = leaf(), empty(), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        wb.launch(times, 4, [x, force(x)], [y])  # 3 x^3
        wb.utils.array_sum(y, out=loss)
    np.testing.assert_allclose(wb.jvp(tape, {x: ONE})[y], 9 * X**2, rtol=1e-12)
    for _ in range(2):  # nothing piles up
        np.testing.assert_allclose(wb.hvp(tape, loss, {x: ONE})[x], 18 * X, rtol=1e-12)
    np.testing.assert_allclose(wb.hessian(tape, loss, x), np.diag(18 * X), rtol=1e-12)
    with pytest.raises(wb.GradientError, match="backward"):
        tape.replay()


@wb.kernel
def vector_energy(x: wb.array(dtype=wb.vec3), s: wb.array(dtype=float), e: wb.array(dtype=float)):
    i = wb.tid()
    e[i] = s[i] * wb.dot(x[i], x[i]) * x[i][0]


def test_second_derivatives_of_vectors_by_a_seed_that_is_computed(backend):
    """The inner gradient of vectors in float32, seeded by a function of them and by numbers."""
    start = np.linspace(0.3, 1.4, 6).reshape(2, 3).astype(np.float32)
    v = np.linspace(-1, 1, 6).reshape(2, 3).astype(np.float32)
    x, s, e, b = wb.array(start, dtype=wb.vec3, requires_grad=True), wb.full(2, 0.5), wb.zeros(2), wb.zeros(2)
    loss = wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        wb.launch(vector_energy, 2, [x, s], [b])
        with wb.Tape(keep="all") as one:
            wb.launch(vector_energy, 2, [x, s], [e])
        one.backward(grads={e: b})
        wb.utils.array_inner(x.grad, x.grad, out=loss)

    def loss_of(flat):
        u = flat.reshape(2, 3)
        energy = 0.5 * np.sum(u * u, axis=1) * u[:, 0]
        g = u * u[:, :1]
        g[:, 0] += 0.5 * np.sum(u * u, axis=1)
        return np.sum((energy[:, None] * g) ** 2)

    flat, way = start.ravel().astype(np.float64), v.ravel().astype(np.float64)
    (slope,) = slopes(loss_of, flat)
    moved = [slopes(loss_of, flat + k * 1e-4 * way)[0] for k in (1, -1)]
    np.testing.assert_allclose(wb.jvp(tape, {x: v})[loss], [slope @ way], rtol=1e-5)
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: v})[x].ravel(), (moved[0] - moved[1]) / 2e-4, rtol=2e-5)


def test_two_seeds_on_one_memory_of_which_one_is_computed_are_refused_for_second_derivatives():
    x, s, y, loss = leaf(), empty(), empty(), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        wb.launch(square, 4, [x], [s])
        with wb.Tape(keep="all") as one:
            wb.launch(cube, 4, [x], [y])
        one.backward(grads={y[:2]: s[:2], y[2:]: seed(1, 1)})
        wb.utils.array_inner(x.grad, x.grad, out=loss)
    with pytest.raises(wb.GradientError, match="two of its seeds share memory"):
        wb.hvp(tape, loss, {x: ONE})


def test_a_third_tape_between_them():
    """x^3 differentiated by two tapes inside a third: 6 x, and its first and second derivative."""
    x, middle, slope, y, loss = leaf(), empty(requires_grad=True), empty(), empty(), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        wb.copy(middle, x)
        with wb.Tape(keep="all") as two:
            wb.copy(slope, force(middle))
        middle.grad.zero_()
        two.backward(grads={slope: seed(*ONE)})
        wb.launch(times, 4, [middle, middle.grad], [y])  # 6 x^2
        wb.utils.array_sum(y, out=loss)
    np.testing.assert_allclose(wb.jvp(tape, {x: ONE})[y], 12 * X, rtol=1e-12)
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: ONE})[x], 12 * ONE, rtol=1e-12)


def test_a_constant_of_the_inner_tape_that_depends_on_the_outer_one_is_refused():
    x, p, s, z = leaf(), leaf(), empty(), empty()
    with wb.Tape():
        wb.launch(square, 4, [p], [s])
        with wb.Tape(keep="all") as one:
            wb.launch(times, 4, [x, s], [z])
        with pytest.raises(wb.GradientError, match="requires_grad = True") as refused:
            one.backward(grads={z: seed(*ONE)})
    assert refused.value.slug == "nested-tape"


def test_the_state_must_not_change_between_the_inner_tape_and_its_backward():
    x, z, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        with wb.Tape(keep="all") as one:
            wb.launch(spread, 3, [x, x], [z])
        x.fill_(2.0)
        one.backward(grads={z: seed(*ONE)})
        wb.launch(times, 4, [x, x.grad], [y])
    assert refusal(tape, y).slug in ("inner-backward", "overwritten")


def test_an_adjoint_launch_under_a_tape_has_no_second_derivative():
    x, y, d_x, z = leaf(), empty(), empty(), empty()
    with wb.Tape() as tape:
        wb.launch(cube, 4, [x], [y], adjoint=True, adj_inputs=[d_x], adj_outputs=[seed(*ONE)])
        wb.launch(times, 4, [x, d_x], [z])
    np.testing.assert_allclose(z.numpy(), 3 * X**3, rtol=1e-12)
    error = refusal(tape, z)
    assert error.slug == "opaque" and "adjoint of cube" in str(error)


@pytest.mark.parametrize("derivative", ["jvp", "hvp", "jacobian", "numpy"])
def test_derivatives_as_numbers_count_as_read_from_what_they_depend_on(derivative):
    x, y, z, e = leaf(), empty(), empty(), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as one:
        wb.launch(cube, 4, [x], [y])
        wb.utils.array_sum(y, out=e)
    with wb.Tape(keep="all") as tape:
        if derivative == "jvp":
            values = wb.jvp(one, {x: ONE})[y]
        elif derivative == "hvp":
            values = wb.hvp(one, e, {x: ONE})[x]
        elif derivative == "numpy":
            one.backward(e)
            values = x.grad.numpy()
        else:
            values = wb.jacobian(one, y, x).diagonal()
        wb.launch(times, 4, [x, wb.array(values, dtype=F)], [z])
    assert refusal(tape, z).slug == "host-values"


def test_a_tape_that_read_a_gradient_can_be_pickled():
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as other:
        wb.launch(cube, 4, [x], [z])
    other.backward(grads={z: seed(*ONE)})
    with wb.Tape(keep="all") as tape:
        wb.launch(times, 4, [x, wb.detach(x.grad)], [y])
    tape, x, y = pickle.loads(pickle.dumps((tape, x, y)))
    x.grad.zero_()
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2, rtol=1e-12)


def of_a_force(x):
    """The sum of x * 3 x^4, by the gradient that an inner tape leaves in z.grad, and 3 x^2 in x.grad."""
    z, y, loss = empty(requires_grad=True), empty(), wb.zeros(1, dtype=F)
    force(x)
    wb.launch(square, 4, [x], [z])
    wb.launch(times, 4, [x, force(z)], [y])
    return wb.utils.array_sum(y, out=loss)


def test_losses_for_optimizers_give_their_gradient_alone(backend):
    exact = 15 * X**4
    np.testing.assert_allclose(wb.value_and_grad(of_a_force)(X)[1], exact, rtol=1e-12)
    x = leaf()
    wb.descend(of_a_force, x, wb.optim.SGD([x], lr=1e-3), rounds=1, jit=False, progress=False)
    np.testing.assert_allclose(x.numpy(), X - 1e-3 * exact, rtol=1e-6)


def test_a_captured_loss_refuses_it_by_its_line():
    loss = wb.value_and_grad(of_a_force, jit=True)
    loss(X)
    with pytest.raises(wb.LaunchError, match=r"a tape inside another inside @wb\.jit of_a_force") as refused:
        loss(X)
    assert refused.value.slug == "capture"


def test_a_leaf_that_holds_what_the_inner_backward_published_is_said():
    x = leaf()
    with wb.Tape(keep="all") as tape:
        loss = of_a_force(x)
    with pytest.warns(UserWarning, match=r"gradient of x was added to what backward\(\) inside this tape"):
        tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2 + 15 * X**4, rtol=1e-12)

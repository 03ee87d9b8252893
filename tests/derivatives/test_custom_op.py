"""Custom ops: NumPy, SciPy and torch inside a tape, with rules for their derivatives."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import scipy.linalg

import workbench as wb
from tests.support.backends import BACKENDS

F = wb.float64
X = np.array([0.5, -1.0, 2.0])
A = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.custom_op
def solved(a, b):
    """The solution of a dense system."""
    return scipy.linalg.solve(a, b)


@solved.vjp
def solved_vjp(a, b, x, adj):
    w = scipy.linalg.solve(a.T, adj)
    return -np.outer(w, x), w


@solved.jvp
def solved_jvp(a, b, x, da, db):
    return scipy.linalg.solve(a, db - da @ x)


def test_a_jacobian_takes_the_fewer_columns_where_ops_have_tangents():
    asked = []

    @wb.custom_op
    def twice(x):
        return np.repeat(2.0 * x, 5)

    @twice.vjp
    def back(x, y, adj):
        asked.append("row")
        return 2.0 * adj.reshape(-1, 5).sum(1)

    x = leaf(X[:2])
    for expected in (["row"] * 10, ["column"] * 2):
        with wb.Tape() as tape:
            y = twice(x)
        asked.clear()
        np.testing.assert_array_equal(wb.jacobian(tape, y, x), np.repeat(2.0 * np.eye(2), 5, axis=0))
        assert asked == expected

        @twice.jvp
        def forth(x, y, dx):
            asked.append("column")
            return np.repeat(2.0 * dx, 5)


def leaf(values):
    return wb.array(np.array(values, float), dtype=F, requires_grad=True)


def program(keep="needed", after=lambda *arrays: None):
    """y = solve(a, x^2)^2, with what stands in the arrays afterwards."""
    x, a = leaf(X), leaf(A)
    with wb.Tape(keep=keep) as tape:
        b = wb.zeros(3, dtype=F)
        wb.launch(square, 3, [x, b])
        z = solved(a, b)
        y = wb.zeros(3, dtype=F)
        wb.launch(square, 3, [z, y])
        after(b, z)
    return tape, x, a, y


SEED = np.array([1.0, -2.0, 0.5])
Z = np.linalg.solve(A, X * X)
W = np.linalg.solve(A.T, SEED * 2 * Z)


@pytest.mark.parametrize("keep", ["needed", "all"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_gradient_is_that_of_the_closed_form_whatever_became_of_the_arrays(keep, overwrite):
    tape, x, a, y = program(keep, (lambda b, z: (b.fill_(7.0), z.fill_(9.0))) if overwrite else lambda b, z: None)
    np.testing.assert_allclose(y.numpy(), Z * Z, rtol=1e-13)
    for _ in range(2):
        x.grad.zero_(), a.grad.zero_()
        tape.backward(grads={y: SEED})
        np.testing.assert_allclose(x.grad.numpy(), W * 2 * X, rtol=1e-12)
        np.testing.assert_allclose(a.grad.numpy(), -np.outer(W, Z), rtol=1e-12)
    found = wb.jvp(tape, {x: np.ones(3), a: np.eye(3)})[y]
    np.testing.assert_allclose(found, 2 * Z * np.linalg.solve(A, 2 * X - Z), rtol=1e-12)
    assert tape.events[1].kind == "op" and tape.events[1].label == "solved"


def test_it_is_drawn_and_in_the_ledger_and_its_adjoint_can_be_read():
    tape, x, a, y = program()
    tape.backward(grads={y: SEED})
    figure = tape.show()
    assert "#1 solved (op)" in figure.text and "1 custom op" in figure.text and ">solved #1<" in figure.svg
    (row,) = tape.ledger(a, (0, 1)).rows
    assert row.heading == "#1 solved"
    np.testing.assert_allclose(row.value, -W[0] * Z[1], rtol=1e-12)
    np.testing.assert_allclose(tape.adjoint(a, at=tape.events[1]), -np.outer(W, Z), rtol=1e-12)
    assert not [f for f in tape.diagnose() if f.severity in ("error", "warning")]


def test_jacobians_and_value_and_grad():
    tape, x, _, y = program()
    want = 2 * Z[:, None] * np.linalg.inv(A) * 2 * X
    for mode in ("rows", "columns"):
        np.testing.assert_allclose(wb.jacobian(tape, y, x, mode=mode), want, rtol=1e-11)

    def loss(x):
        b, out = wb.zeros(3, dtype=F), wb.zeros(1, dtype=F)
        wb.launch(square, 3, [x, b])
        return wb.utils.array_sum(solved(wb.array(A, dtype=F), b), out=out)

    _, slope = wb.value_and_grad(loss)(leaf(X))
    np.testing.assert_allclose(np.asarray(slope), np.linalg.solve(A.T, np.ones(3)) * 2 * X, rtol=1e-12)


@pytest.mark.parametrize("keep", ["needed", "all"])
def test_a_tape_with_it_runs_again_on_other_inputs(keep):
    tape, x, a, y = program(keep)
    moved, other = X + 0.5, A + 0.1 * np.eye(3)
    again = tape.replay({x: moved, a: other})
    z = np.linalg.solve(other, moved**2)
    np.testing.assert_allclose(again[y].numpy(), z * z, rtol=1e-12)
    w = np.linalg.solve(other.T, SEED * 2 * z)
    again.backward(grads={again.of(y): SEED})
    np.testing.assert_allclose(again.of(x).grad.numpy(), w * 2 * moved, rtol=1e-12)
    np.testing.assert_array_equal(y.numpy(), program()[3].numpy())
    assert [e.label for e in again.events] == [e.label for e in tape.events]


@pytest.mark.parametrize("keep", ["needed", "all"])
def test_trust_runs_the_function_and_not_a_copy(keep):
    @wb.custom_op
    def bent(x):
        return np.abs(x - 0.3)

    @bent.vjp
    def bent_vjp(x, y, adj):
        return adj * np.sign(x - 0.3)

    x, out = leaf([0.5]), wb.zeros(1, dtype=F)
    with wb.Tape(keep=keep) as tape:
        wb.utils.array_sum(bent(x), out=out)
    found = tape.trust(out, x)
    moves, losses = found.samples
    np.testing.assert_allclose(losses, np.abs(0.2 + moves), rtol=1e-9, atol=1e-12)
    assert 0.1 < found.radius < 0.21 and moves.min() < -0.3


def test_steps_of_a_loop_may_call_it():
    def run(budget):
        x = leaf(X)

        def step(k, y):
            wb.copy(y, solved(wb.array(A, dtype=F), y))

        with wb.Tape() as tape:
            y = wb.clone(x)
            wb.integrate(step, y, 5, budget, progress=False)
        tape.backward(grads={y: SEED})
        return x.grad.numpy()

    np.testing.assert_array_equal(run(2), run(None))
    np.testing.assert_allclose(run(2), np.linalg.matrix_power(np.linalg.inv(A).T, 5) @ SEED, rtol=1e-12)


def test_a_step_whose_op_gives_something_else_the_second_time_is_refused():
    rng = np.random.default_rng(0)

    @wb.custom_op
    def noisy(x):
        return x + rng.normal(size=x.shape)

    @noisy.vjp
    def noisy_vjp(x, y, adj):
        return adj

    x = leaf(X)
    with wb.Tape() as tape:
        y = wb.clone(x)
        wb.integrate(lambda k, y: wb.copy(y, noisy(y)), y, 4, 1, progress=False)
    with pytest.raises(wb.GradientError, match="did something else than the first time"):
        tape.backward(grads={y: SEED})


# ---- forms of arguments and results


@wb.custom_op
def parts(x, power, v):
    return x**power, np.sum(x), np.argsort(x), 2.0 * v


@parts.vjp
def parts_vjp(x, power, v, y, total, order, twice, g_y, g_total, g_order, g_twice):
    assert g_order is None and order.dtype.kind == "i"
    return g_y * power * x ** (power - 1) + g_total[0], 2.0 * g_twice


def test_numbers_vectors_and_several_results():
    x, v = leaf(np.abs(X)), wb.array(np.ones((2, 3)), dtype=wb.vec3, requires_grad=True)
    with wb.Tape() as tape:
        y, total, order, twice = parts(x, 3, v)
    assert (total.shape, order.list(), twice.shape, twice.dtype) == ((1,), [0, 1, 2], (2, 3), wb.float32)
    tape.backward(grads={y: np.ones(3), total: np.array([10.0]), twice: np.full((2, 3), 0.5)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2 + 10.0)
    np.testing.assert_array_equal(v.grad.numpy(), np.ones((2, 3)))


def test_one_array_twice_and_views():
    @wb.custom_op
    def product(a, b):
        return a * b

    @product.vjp
    def product_vjp(a, b, y, adj):
        return adj * b, adj * a

    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with wb.Tape() as tape:
        y = product(x[:, 0], x[:, 0])
        z = product(y, x[:, 1])
    tape.backward(grads={z: np.ones(2)})
    np.testing.assert_array_equal(x.grad.numpy(), [[2 * 1 * 2, 1], [2 * 3 * 4, 9]])


@pytest.mark.needs_torch
def test_torch_inside():
    import torch

    @wb.custom_op
    def activated(x):
        return torch.nn.functional.softplus(torch.from_numpy(x)).numpy()

    @activated.vjp
    def activated_vjp(x, y, adj):
        t = torch.from_numpy(x).requires_grad_()
        return torch.autograd.grad(torch.nn.functional.softplus(t), t, torch.from_numpy(adj))[0].numpy()

    x = leaf(X)
    with wb.Tape() as tape:
        y = activated(x)
    tape.backward(grads={y: np.ones(3)})
    np.testing.assert_allclose(x.grad.numpy(), 1 / (1 + np.exp(-X)), rtol=1e-12)
    assert wb.verify.check_rule(activated, X)


# ---- what is refused


def test_what_is_not_known_is_refused_and_not_zero():
    @wb.custom_op
    def bare(x):
        return 2.0 * x

    x = leaf(X)
    with wb.Tape() as tape:
        y = bare(x)
    for walk in (lambda: tape.backward(grads={y: SEED}), lambda: wb.jvp(tape, {x: SEED})):
        with pytest.raises(wb.GradientError, match=r"bare has no [vj][jv]p") as refused:
            walk()
        assert "test_custom_op.py" in str(refused.value)
    for wrong in (lambda x, y, adj: adj[:2], lambda x, y, adj: (adj, adj)):
        bare.vjp(wrong)
        with pytest.raises(wb.GradientError, match="the vjp of bare returned"):
            tape.backward(grads={y: SEED})
    with pytest.raises(wb.LaunchError, match="without an array"):
        bare(2.0)
    loss = wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        wb.utils.array_sum(bare(x), out=loss)
    with pytest.raises(wb.GradientError, match="bare has no second derivative"):
        wb.hvp(tape, loss, {x: SEED})


def test_a_gradient_that_is_asked_for_too_late_is_refused():
    x, a = wb.array(X, dtype=F), leaf(A)
    with wb.Tape() as tape:
        y = solved(a, x)
    x.requires_grad = True
    with pytest.raises(wb.GradientError, match="late-grad"):
        tape.backward(grads={y: SEED})


@pytest.mark.host_memory
def test_an_input_changed_behind_the_back_of_the_tape_is_refused():
    a, b = leaf(A), leaf(X)
    raw = b.numpy()
    with wb.Tape() as tape:
        y = solved(a, b)
    raw[0] = 5.0
    with pytest.raises(wb.GradientError, match="overwritten"):
        tape.backward(grads={y: SEED})


def test_without_anything_to_follow_nothing_depends_on_it():
    x = wb.array(X, dtype=F)
    y = solved(wb.array(A, dtype=F), x)
    np.testing.assert_allclose(y.numpy(), np.linalg.solve(A, X))
    z, w = leaf(X), wb.zeros(3, dtype=F)
    with wb.Tape() as tape:
        y = solved(wb.array(A, dtype=F), x)
        wb.launch(square, 3, [z, w])
    tape.backward(grads={w: SEED})
    np.testing.assert_array_equal(z.grad.numpy(), SEED * 2 * X)


def test_check_rule_compares_with_differences():
    report = wb.verify.check_rule(solved, A, X)
    named = [f"argument {k}{how}" for k in (0, 1) for how in ("", ", by the jvp")]
    assert report and [r.input for r in report.rows] == named
    assert wb.verify.check_rule(parts, np.abs(X), 3, np.ones((2, 3)))

    @wb.custom_op
    def cubed(x):
        return x**3

    @cubed.vjp
    def cubed_vjp(x, y, adj):
        return adj * 2 * x**2

    with pytest.raises(wb.GradientError, match="the rule of cubed is wrong for argument 0"):
        wb.verify.check_rule(cubed, X)
    cubed.vjp(lambda x, y, adj: adj * 3 * x**2)
    cubed.jvp(lambda x, y, dx: dx * 3 * x)
    report = wb.verify.check_rule(cubed, X, raise_exception=False)
    assert [r.wrong for r in report.rows] == [False, True]


def squared(b):
    c = wb.zeros(3, dtype=F)
    wb.launch(square, 3, [b, c])
    return c


def test_between_tapes_nothing_is_lost_in_silence():
    fixed, other = wb.array(A, dtype=F), leaf(X)
    x = leaf(X)
    with wb.Tape() as outer:
        b = squared(x)
        with wb.Tape():
            c = solved(fixed, b)
            squared(other)
        y = squared(c)
        squared(x)
    with pytest.raises(wb.GradientError, match="nested-tape"):
        outer.backward(grads={y: SEED})
    x = leaf(X)
    with wb.Tape():
        b = squared(x)
    with wb.Tape() as later:
        y = solved(fixed, b)
        squared(other)
    with pytest.warns(UserWarning, match="b was written by an earlier tape"):
        later.backward(grads={y: SEED})


def test_what_is_followed_only_later_is_refused():
    x, a = wb.array(X, dtype=F), wb.array(A, dtype=F)
    with wb.Tape() as tape:
        y = solved(a, x)
        x.requires_grad = True
        z = squared(x)
    with pytest.raises(wb.GradientError, match="late-grad"):
        tape.backward(grads={y: SEED, z: SEED})
    with pytest.raises(wb.GradientError, match="late-grad"):
        wb.jvp(tape, {x: SEED})


def test_a_tangent_of_arrays_gives_second_derivatives_and_is_checked():
    @wb.custom_op
    def bent(x, power):
        return x**power

    @bent.vjp
    def bent_vjp(x, power, y, adj):
        return power * x ** (power - 1) * adj

    @bent.tangent
    def bent_tangent(x, power, y, dx):
        return bent(x, power - 1) * dx * float(power) if power else None

    values, along = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.5, -2.0])
    x = leaf(values)
    with wb.Tape(keep="all") as tape:
        y = bent(x, 3)
        y.fill_(0.0)  # what it read and left is kept
        y = bent(x, 3)
        loss = wb.utils.array_inner(y, y, out=wb.zeros(1, dtype=F))
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: along})[x], 30 * values**4 * along, rtol=1e-13)
    np.testing.assert_allclose(np.diag(wb.hessian(tape, loss, x)), 30 * values**4, rtol=1e-13)
    np.testing.assert_allclose(wb.jvp(tape, {x: along})[y], 3 * values**2 * along, rtol=1e-13)
    assert len(wb.verify.check_rule(bent, x, 3).rows) == 2

    @bent.tangent
    def wrong(x, power, y, dx):
        return bent(x, power - 1) * dx

    with pytest.raises(wb.GradientError, match="by the jvp"):
        wb.verify.check_rule(bent, x, 3)


def test_a_tangent_of_vectors_takes_vectors_in_every_walk():
    vec = wb.types.vector(2, F)

    @wb.kernel
    def crossed(v: wb.array(dtype=vec), dv: wb.array(dtype=vec), out: wb.array(dtype=F)):
        out[wb.tid()] = v[wb.tid()][0] * dv[wb.tid()][1] + dv[wb.tid()][0] * v[wb.tid()][1]

    area = wb.custom_op(lambda v: v[:, 0] * v[:, 1])
    area.vjp(lambda v, y, adj: v[:, ::-1] * adj[:, None])

    @area.tangent
    def along(v, y, dv):
        wb.launch(crossed, v.size, [v, dv], [made := wb.zeros(v.size, dtype=F)])
        return made

    x = wb.array(np.array([[2.0, 3.0], [-1.0, 4.0]]), dtype=vec, requires_grad=True)
    moved = np.array([[1.0, 0.5], [2.0, -1.0]])
    with wb.Tape(keep="all") as tape:
        y, loss = area(x), wb.zeros(1, dtype=F)
        wb.utils.array_inner(y, y, out=loss)
    np.testing.assert_allclose(wb.jvp(tape, {x: moved})[y], [4.0, 9.0])
    (a, b), (da, db) = x.numpy().T, moved.T
    want = np.stack((2 * b * b * da + 4 * a * b * db, 2 * a * a * db + 4 * a * b * da), -1)
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: moved})[x], want)
    assert len(wb.verify.check_rule(area, x).rows) == 2


def test_an_op_that_returns_whole_numbers_needs_no_rules():
    order = wb.custom_op(lambda x: np.argsort(x).astype(np.int32))
    x = leaf([3.0, 1.0, 2.0])
    with wb.Tape(keep="all") as tape:
        at, y, loss = order(x), wb.zeros(3, dtype=F), wb.zeros(1, dtype=F)
        wb.launch(picked, 3, [x, at], [y])
        wb.launch(square, 1, [y], [loss])
    tape.backward(loss)
    np.testing.assert_array_equal(x.grad.numpy(), [0.0, 2.0, 0.0])
    np.testing.assert_array_equal(wb.jvp(tape, {x: np.array([1.0, 5.0, 7.0])})[y], [5.0, 7.0, 1.0])
    np.testing.assert_array_equal(wb.hvp(tape, loss, {x: np.ones(3)})[x], [0.0, 2.0, 0.0])
    assert tape.replay({x: np.array([0.5, 4.0, 2.0])})[loss].list() == [0.25]


@wb.kernel
def picked(x: wb.array(dtype=F), at: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[at[i]]


def test_a_tangent_of_float16_is_refused_by_second_derivatives():
    @wb.custom_op
    def square(x):
        return x * x

    square.vjp(lambda x, y, adj: 2 * x * adj)
    square.tangent(lambda x, y, dx: wb.clone(dx))
    x = wb.array([0.5], dtype=wb.float16, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        y = square(x)
    with pytest.raises(wb.GradientError, match="square takes or returns a float16") as refused:
        wb.hvp(tape, y, {x: np.ones(1, np.float32)})
    assert refused.value.slug == "hvp-half" and "test_custom_op.py" in str(refused.value)


def by_launch(z):
    y = wb.zeros(z.shape, dtype=F)
    wb.launch(square, z.shape, [z, y])
    return y.numpy()


READ = [lambda z: z.numpy(), lambda z: z[0], lambda z: np.sum(z), by_launch, lambda z: wb.clone(z).numpy()]


@pytest.mark.parametrize("read", READ, ids=["numpy", "element", "sum", "launch", "copy"])
@pytest.mark.parametrize("other", [True, False])
def test_what_the_function_reads_beside_its_arguments_is_no_constant_in_silence(read, other):
    @wb.custom_op
    def scaled(x):
        return x * read(z)

    @scaled.vjp
    def back(x, y, adj):
        return adj * y / x

    p, x = leaf(X), wb.array(X, dtype=F, requires_grad=other)
    with wb.Tape() as tape:
        z = p * p
        y = scaled(x)
    with pytest.raises(wb.GradientError, match=r"y was written with .* from z, read(.|\n)*y = scaled\(x\)") as refused:
        tape.backward(grads={y: wb.ones_like(y)})
    assert refused.value.slug == "host-values"
    with wb.Tape() as tape:
        z = wb.detach(p * p)
        y = scaled(x if other else p)
    tape.backward(grads={y: wb.ones_like(y)})
    np.testing.assert_allclose((x if other else p).grad.numpy(), y.numpy() / X)


@pytest.mark.parametrize(
    "given", [[2.0], (np.array([2.0]),), {0: 2.0}, np.array([2.0])], ids=lambda g: type(g).__name__
)
def test_arguments_that_are_no_arrays_count_as_they_were(given):
    @wb.custom_op
    def scaled(x, by):
        return x * by[0]

    @scaled.vjp
    def back(x, by, y, adj):
        return adj * by[0]

    x, given = leaf(X), copy.deepcopy(given)
    with wb.Tape(keep="all") as tape:
        y = scaled(x, given)
    (given[0] if isinstance(given, tuple) else given)[0] = 5.0
    tape.backward(grads={y: wb.ones_like(y)})
    np.testing.assert_array_equal(x.grad.numpy(), np.full(len(X), 2.0))
    np.testing.assert_array_equal(tape.replay({x: X})[y].numpy(), 2.0 * X)

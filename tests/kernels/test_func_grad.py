"""func_grad and func_replay: the user's own adjoint in place of a call, wherever the call stands."""

import numpy as np
import pytest

import workbench as wb

F = wb.float64
pytestmark = pytest.mark.usefixtures("backend")
X = np.array([0.7, -1.3, 2.1, 0.4])
SEED = np.array([1.0, -2.0, 0.5, 3.0])


def gradient(kernel, x=X, *more, outputs=None, seed=SEED, dim=None):
    """The value of y and the gradients of x and of the further arrays."""
    arrays = [wb.array(np.asarray(a), dtype=F, requires_grad=True) for a in (x, *more)]
    y = wb.zeros(len(seed), dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, dim or len(seed), arrays, [y])
    tape.backward(grads={y: wb.array(seed, dtype=F)})
    found = [a.grad.numpy().copy() for a in arrays]
    return (y.numpy().copy(), *found)


# ---- values


@wb.func
def tripled(a: F):
    return a * a


@wb.func_grad(tripled)
def adj_tripled(a: F, g: F):
    """Three times the truth, so that nobody confuses it with the adjoint that would be made."""
    wb.adjoint[a] += F(6.0) * a * g


def test_the_user_s_adjoint_replaces_the_one_that_would_be_made():
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = tripled(x[i])

    y, dx = gradient(k)
    np.testing.assert_allclose(y, X * X)
    np.testing.assert_allclose(dx, 6 * X * SEED)


def test_what_other_uses_of_the_argument_add_is_kept():
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i] * F(3.0)
        y[i] = tripled(a) + F(5.0) * a + tripled(a) * a

    _, dx = gradient(k)
    a = 3 * X
    np.testing.assert_allclose(dx, 3 * (6 * a + 5 + 6 * a * a + a * a) * SEED)


def test_a_call_of_a_call_goes_through_both_adjoints():
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = tripled(tripled(x[i]))

    _, dx = gradient(k)
    np.testing.assert_allclose(dx, 36 * X**3 * SEED)


def test_one_value_for_two_arguments_gets_both_shares():
    @wb.func
    def product(a: F, b: F):
        return a * b

    @wb.func_grad(product)
    def adj(a: F, b: F, g: F):
        wb.adjoint[a] += F(10.0) * b * g
        wb.adjoint[b] -= -(F(100.0) * a * g)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = product(x[i], x[i])

    np.testing.assert_allclose(gradient(k)[1], 110 * X * SEED)


def test_several_contributions_in_one_adjoint_add_up():
    @wb.func
    def f(a: F):
        return a

    @wb.func_grad(f)
    def adj(a: F, g: F):
        for _ in range(3):
            wb.adjoint[a] += g
        if a > F(0.0):
            wb.adjoint[a] -= F(10.0) * g

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x[i])

    np.testing.assert_allclose(gradient(k)[1], np.where(X > 0, -7, 3) * SEED)


def test_an_adjoint_may_leave_a_branch_at_zero():
    @wb.func
    def root(a: F):
        return wb.sqrt(a)

    @wb.func_grad(root)
    def adj(a: F, g: F):
        if a > F(0.0):
            wb.adjoint[a] += g / (F(2.0) * wb.sqrt(a))

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = root(x[i])

    _, dx = gradient(k, [0.0, 4.0], seed=np.array([1.0, 1.0]))
    assert dx.tolist() == [0.0, 0.25]


def test_a_tuple_has_one_gradient_per_result():
    @wb.func
    def f(a: F, b: F):
        return a * b, a + b * b

    @wb.func_grad(f)
    def adj(a: F, b: F, p: F, q: F):
        wb.adjoint[a] += p * b + F(2.0) * q
        wb.adjoint[b] += p * a + F(4.0) * b * q

    @wb.kernel
    def both(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        p, q = f(x[i], F(3.0) * x[i])
        y[i] = p + F(10.0) * q

    @wb.kernel
    def second(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        _p, q = f(x[i], F(3.0) * x[i])
        y[i] = q

    np.testing.assert_allclose(gradient(both)[1], (6 * X + 20 + 3 * 4 * 3 * X * 10) * SEED)
    np.testing.assert_allclose(gradient(second)[1], (2 + 3 * 4 * 3 * X) * SEED)


def test_vectors_and_their_components():
    @wb.func
    def mass(v: wb.vec3d, s: F):
        return v * s

    @wb.func_grad(mass)
    def adj(v: wb.vec3d, s: F, g: wb.vec3d):
        wb.adjoint[v] += F(2.0) * s * g
        wb.adjoint[v][1] += F(1000.0)
        wb.adjoint[v].z -= F(5.0)
        wb.adjoint[s] += wb.dot(v, g)

    @wb.kernel
    def k(x: wb.array(dtype=wb.vec3d), y: wb.array(dtype=wb.vec3d)):
        i = wb.tid()
        y[i] = mass(x[i], F(3.0))

    x = wb.array([[1.0, 2.0, 4.0]], dtype=wb.vec3d, requires_grad=True)
    y = wb.zeros(1, dtype=wb.vec3d)
    with wb.Tape() as tape:
        wb.launch(k, 1, [x], [y])
    tape.backward(grads={y: wb.array([[1.0, 10.0, 100.0]], dtype=wb.vec3d)})
    assert x.grad.numpy().tolist() == [[6.0, 1060.0, 595.0]]


# ---- where the call stands


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_in_a_loop_every_turn_has_its_own_call(turns):
    @wb.kernel
    def k(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for _ in range(n):
            s = tripled(s) * F(0.5)
        y[i] = s

    x = wb.array(X, dtype=F, requires_grad=True)
    y = wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch(k, 4, [x, turns], [y])
    tape.backward(grads={y: wb.array(SEED, dtype=F)})
    s, slope = X.copy(), np.ones(4)
    for _ in range(turns):
        slope, s = slope * 3 * s, s * s / 2
    np.testing.assert_allclose(x.grad.numpy(), slope * SEED, rtol=1e-12)


def test_in_a_while_with_break_and_in_branches():
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        n = wb.int(0)
        while n < 6:
            if s > F(2.0):
                break
            if s > F(0.0):
                s = tripled(s) + F(0.5)
            else:
                s = -s
            n += 1
        y[i] = s

    _, dx = gradient(k)
    want = []
    for v in X:
        slope, n = 1.0, 0
        while n < 6 and v <= 2.0:
            v, slope = (v * v + 0.5, slope * 6 * v) if v > 0 else (-v, -slope)
            n += 1
        want.append(slope)
    np.testing.assert_allclose(dx, np.array(want) * SEED, rtol=1e-12)


def test_inside_another_func_and_after_an_early_return():
    @wb.func
    def outer(a: F):
        if a < F(0.0):
            return F(0.0) * a
        return tripled(a) * F(2.0)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = outer(x[i])

    np.testing.assert_allclose(gradient(k)[1], np.where(X > 0, 12 * X, 0) * SEED)


def test_a_func_with_an_adjoint_that_calls_one():
    @wb.func
    def outer(a: F):
        return tripled(a) + a

    @wb.func_grad(outer)
    def adj(a: F, g: F):
        wb.adjoint[a] += tripled(a) * g

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = outer(x[i])

    np.testing.assert_allclose(gradient(k)[1], X * X * SEED)


# ---- arrays


@wb.func
def squared(a: wb.array(dtype=F), i: int):
    return a[i] * a[i]


@wb.func_grad(squared)
def adj_squared(a: wb.array(dtype=F), i: int, g: F):
    wb.adjoint[a][i] += F(6.0) * a[i] * g


def test_the_gradient_of_an_array_argument_is_added_to_its_memory():
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = squared(x, i) * squared(x, (i + 1) % 4) + x[i]

    _, dx = gradient(k)
    after, before = np.roll(X, -1), np.roll(X, 1)
    np.testing.assert_allclose(dx, SEED * (6 * X * after**2 + 1) + np.roll(SEED, 1) * before**2 * 6 * X)


@pytest.mark.slow
def test_many_threads_may_add_to_one_cell():
    n = 20_000

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = squared(x, i % 2)

    _, dx = gradient(k, [1.0, 2.0], seed=np.ones(n))
    assert dx.tolist() == [6.0 * n / 2, 12.0 * n / 2]


def test_a_row_of_an_array_is_an_array():
    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = squared(x[i], 1)

    x = wb.array(np.arange(6.0).reshape(3, 2), dtype=F, requires_grad=True)
    y = wb.zeros(3, dtype=F)
    with wb.Tape() as tape:
        wb.launch(k, 3, [x], [y])
    tape.backward(grads={y: wb.ones(3, dtype=F)})
    assert x.grad.numpy().tolist() == [[0, 6], [0, 18], [0, 30]]


def test_half_precision_adds_up_in_single_precision():
    H = wb.float16

    @wb.func
    def f(a: H, v: wb.vec2h, x: wb.array(dtype=H), i: int):
        return a * x[i] + v[0]

    @wb.func_grad(f)
    def adj(a: H, v: wb.vec2h, x: wb.array(dtype=H), i: int, g: H):
        wb.adjoint[a] += H(2.0) * x[i] * g
        wb.adjoint[v] += wb.vec2h(g, H(0.0))
        wb.adjoint[x][i] += H(2.0) * a * g

    @wb.kernel
    def k(x: wb.array(dtype=H), y: wb.array(dtype=H)):
        i = wb.tid()
        y[i] = f(x[i], wb.vec2h(x[i], x[i]), x, i) + x[i]

    x, y = wb.array([1.0, 2.0], dtype=H, requires_grad=True), wb.zeros(2, dtype=H)
    with wb.Tape() as tape:
        wb.launch(k, 2, [x], [y])
    tape.backward(grads={y: wb.ones(2)})
    assert y.numpy().tolist() == [3.0, 8.0] and x.grad.numpy().tolist() == [6.0, 10.0]


def test_an_array_without_gradient_is_left_alone():
    @wb.kernel
    def k(x: wb.array(dtype=F), c: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = squared(c, i) * x[i]

    x, c, y = wb.array(X, dtype=F, requires_grad=True), wb.array(X, dtype=F), wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch(k, 4, [x, c], [y])
    tape.backward(grads={y: wb.array(SEED, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), X * X * SEED)
    assert c.grad is None


def test_a_func_that_writes_finds_its_incoming_gradient_in_the_array():
    @wb.func
    def put(y: wb.array(dtype=F), i: int, v: F):
        y[i] = v * v

    @wb.func_grad(put)
    def adj(y: wb.array(dtype=F), i: int, v: F):
        g = wb.adjoint[y][i]
        wb.adjoint[v] += F(6.0) * v * g
        wb.adjoint[y][i] -= g

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        put(y, i, x[i])

    y, dx = gradient(k)
    np.testing.assert_allclose(y, X * X)
    np.testing.assert_allclose(dx, 6 * X * SEED)


def test_an_adjoint_that_would_read_what_was_written_later_is_refused():
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = squared(x, i)
        x[i] = F(0.0)

    with pytest.raises((wb.KernelError, wb.GradientError), match="grad-reads-written"):
        gradient(k)


@wb.func
def weighted(a: F, d_x: wb.array(dtype=F), i: int):
    return a * d_x[i]


@wb.func_grad(weighted)
def adj_weighted(a: F, d_x: wb.array(dtype=F), i: int, g: F):
    wb.adjoint[a] += g * d_x[i]
    wb.adjoint[d_x][i] += g * a


def test_an_array_of_the_user_is_no_gradient_whatever_its_name():
    @wb.kernel
    def k(x: wb.array(dtype=F), d_x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        d_x[i] = d_x[i] * d_x[i]
        y[i] = weighted(x[i], d_x, i)

    with pytest.raises((wb.KernelError, wb.GradientError), match="grad-reads-written"):
        gradient(k, X, SEED)


# ---- replay


@pytest.mark.host_memory
def test_a_replay_runs_in_place_of_the_func_in_the_reverse_pass():
    @wb.func
    def ticket(counter: wb.array(dtype=int), tickets: wb.array(dtype=int), i: int):
        mine = wb.atomic_add(counter, 0, 1)
        tickets[i] = mine
        return mine

    @wb.func_replay(ticket)
    def again(counter: wb.array(dtype=int), tickets: wb.array(dtype=int), i: int):
        return tickets[i]

    @wb.kernel
    def k(x: wb.array(dtype=F), counter: wb.array(dtype=int), tickets: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        n = ticket(counter, tickets, i)
        y[n] = x[i] * x[i]

    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(4, dtype=F)
    counter, tickets = wb.zeros(1, dtype=int), wb.zeros(4, dtype=int)
    with wb.Tape() as tape:
        wb.launch(k, 4, [x, counter, tickets], [y])
    tape.backward(grads={y: wb.array(SEED, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * X * SEED[tickets.numpy()])
    assert counter.numpy()[0] == 4


def test_a_replay_that_reads_its_own_writes_is_exact():
    @wb.func
    def f(a: F, scratch: wb.array(dtype=F), i: int):
        scratch[i] = a * a
        return scratch[i]

    @wb.func_replay(f)
    def again(a: F, scratch: wb.array(dtype=F), i: int):
        scratch[i] = a * a
        return scratch[i]

    @wb.kernel
    def k(x: wb.array(dtype=F), scratch: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for _ in range(2):
            s = f(s, scratch, i) * s
        y[i] = s

    x, scratch = wb.array(X, dtype=F, requires_grad=True), wb.zeros(4, dtype=F)
    y = wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch(k, 4, [x, scratch], [y])
    before = scratch.numpy().copy()
    tape.backward(grads={y: wb.array(SEED, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), 9 * X**8 * SEED, rtol=1e-12)
    np.testing.assert_array_equal(scratch.numpy(), before)


def test_the_value_of_the_replay_is_what_the_adjoint_sees():
    @wb.func
    def f(a: F):
        return wb.sin(a)

    @wb.func_replay(f)
    def again(a: F):
        return wb.sin(a) + F(0.0)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for _ in range(3):
            s = s * f(s)
        y[i] = s

    def slope(x):
        s, d = x, 1.0
        for _ in range(3):
            s, d = s * np.sin(s), d * (np.sin(s) + s * np.cos(s))
        return d

    np.testing.assert_allclose(gradient(k)[1], slope(X) * SEED, rtol=1e-12)


def test_a_replay_may_read_arrays_and_rows_that_nobody_writes():
    @wb.func
    def f(table: wb.array(dtype=F), a: F, i: int):
        return table[i] * a * a

    @wb.func_replay(f)
    def again(table: wb.array(dtype=F), a: F, i: int):
        return a * a * table[i]

    @wb.func
    def outer(table: wb.array2d(dtype=F), a: F, i: int):
        return f(table[1], a, i) * F(2.0)

    @wb.kernel
    def k(x: wb.array(dtype=F), table: wb.array2d(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        if s > F(0.0):
            for _ in range(2):
                s = outer(table, s, i)
        y[i] = s

    t = wb.array([[9.0] * 4, [0.5, 1.0, 0.25, 2.0]], dtype=F, requires_grad=True)
    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch(k, 4, [x, t], [y])
    tape.backward(grads={y: wb.array(SEED, dtype=F)})
    row = t.numpy()[1]
    np.testing.assert_allclose(x.grad.numpy(), np.where(X > 0, 32 * row**3 * X**3, 1) * SEED, rtol=1e-12)
    np.testing.assert_allclose(t.grad.numpy()[1], np.where(X > 0, 24 * row**2 * X**4, 0) * SEED, rtol=1e-12)
    assert not t.grad.numpy()[0].any()


def test_a_replay_that_returns_something_else_is_found_by_the_interpreter():
    wb.config.backend = "numpy"

    @wb.func
    def f(a: F):
        return a * a

    @wb.func_replay(f)
    def again(a: F):
        return a * a + F(1.0)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x[i])

    with pytest.raises(wb.GradientError, match=r"func_replay of `.*f` returned 1.49(.|\n)*replay-differs"):
        gradient(k)


def test_an_adjoint_and_a_replay_together():
    @wb.func
    def f(a: F):
        return a * a

    @wb.func_replay(f)
    def again(a: F):
        return a * a

    @wb.func_grad(f)
    def adj(a: F, g: F):
        wb.adjoint[a] += F(6.0) * a * g

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x[i]) * x[i]

    np.testing.assert_allclose(gradient(k)[1], (6 * X * X + X * X) * SEED)


# ---- refused


def refused(adj, match, f=None):
    """Attach `adj` to a func of one or two values and read a kernel that calls it."""
    if f is None:

        @wb.func
        def f(a: F):
            return a * a

    wb.func_grad(f)(adj)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x[i])

    with pytest.raises(wb.KernelError, match=match):
        gradient(k)


def test_plain_assignment_is_refused_with_the_line_to_write():
    def adj(a: F, g: F):
        wb.adjoint[a] = F(2.0) * a * g

    refused(adj, r"wb.adjoint\[a\] = F(.|\n)*wb.adjoint\[a\] \+= \.\.\.(.|\n)*adjoint-assign")


def test_other_operators_are_refused():
    def adj(a: F, g: F):
        wb.adjoint[a] *= g

    refused(adj, "adjoint-assign")


def test_assignment_to_a_component_is_refused():
    @wb.func
    def f(v: wb.vec2d):
        return wb.dot(v, v)

    def adj(v: wb.vec2d, g: F):
        wb.adjoint[v].x = g

    wb.func_grad(f)(adj)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(wb.vec2d(x[i], x[i]))

    with pytest.raises(wb.KernelError, match=r"adjoint\[v\].x \+= (.|\n)*adjoint-assign"):
        gradient(k)


def test_assignment_to_the_gradient_of_an_array_is_refused_under_any_name():
    @wb.func
    def f(a: wb.array(dtype=F), i: int):
        return a[i]

    @wb.func
    def fill(to: wb.array(dtype=F), i: int, g: F):
        to[i] = g

    def direct(a: wb.array(dtype=F), i: int, g: F):
        wb.adjoint[a][i] = g

    def renamed(a: wb.array(dtype=F), i: int, g: F):
        to = wb.adjoint[a]
        to[i] = g

    def passed(a: wb.array(dtype=F), i: int, g: F):
        fill(wb.adjoint[a], i, g)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x, i)

    for adj in (direct, renamed, passed):
        wb.func_grad(f)(adj)
        with pytest.raises(wb.KernelError, match="adjoint-assign"):
            gradient(k)


def test_a_helper_may_add_to_the_gradient_of_an_array():
    @wb.func
    def f(a: wb.array(dtype=F), i: int):
        return a[i]

    @wb.func
    def add(to: wb.array(dtype=F), i: int, g: F):
        to[i] += g

    @wb.func_grad(f)
    def adj(a: wb.array(dtype=F), i: int, g: F):
        add(wb.adjoint[a], i, F(7.0) * g)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x, i)

    np.testing.assert_allclose(gradient(k)[1], 7 * SEED)


def test_reading_the_gradient_of_a_value_is_refused():
    def adj(a: F, g: F):
        wb.adjoint[a] += g
        wb.adjoint[a] += wb.adjoint[a]

    refused(adj, "adjoint-read")


def test_a_forgotten_argument_is_refused():
    def adj(a: F, g: F):
        _b = a * g

    refused(adj, r"never adds to adjoint\[a\](.|\n)*adjoint-missing")


def test_a_wrong_number_of_parameters_is_refused():
    def adj(a: F):
        wb.adjoint[a] += a

    refused(adj, r"takes 2 parameters(.|\n)*adjoint-signature")


def test_adjoint_of_what_is_no_parameter_is_refused():
    def adj(a: F, g: F):
        b = a * g
        wb.adjoint[a] += b
        wb.adjoint[b] += g

    refused(adj, "adjoint-name")


def test_adjoint_outside_a_func_grad_is_refused():
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.adjoint[x][i] += F(1.0)
        y[i] = x[i]

    with pytest.raises(wb.KernelError, match="adjoint-outside"):
        gradient(k)
    with pytest.raises(TypeError, match="func_grad"):
        wb.adjoint[0]


def test_a_replay_of_another_type_is_refused():
    @wb.func
    def f(a: F):
        return a * a

    @wb.func_replay(f)
    def again(a: F):
        return wb.float32(a)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x[i])

    with pytest.raises(wb.KernelError, match="replay-type"):
        gradient(k)


def test_an_adjoint_that_writes_to_memory_is_refused():
    @wb.func
    def f(a: wb.array(dtype=F), i: int):
        return a[i]

    def stores(a: wb.array(dtype=F), i: int, g: F):
        wb.adjoint[a][i] += g
        a[i] = F(0.0)

    def adds(a: wb.array(dtype=F), i: int, g: F):
        wb.adjoint[a][i] += g
        a[i] += F(1.0)

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x, i)

    for adj in (stores, adds):
        wb.func_grad(f)(adj)
        with pytest.raises(wb.KernelError, match="grad-effect"):
            gradient(k)


def test_an_adjoint_belongs_to_a_func():
    with pytest.raises(TypeError, match="takes a function decorated with func"):
        wb.func_grad(len)(len)


def test_an_adjoint_attached_later_is_used_by_later_launches_only():
    @wb.func
    def f(a: F):
        return a * a

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = f(x[i])

    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch(k, 4, [x], [y])

    @wb.func_grad(f)
    def adj(a: F, g: F):
        wb.adjoint[a] += g

    tape.backward(grads={y: wb.array(SEED, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * X * SEED)
    np.testing.assert_allclose(gradient(k)[1], SEED)


half3 = wb.types.vector(3, wb.float16)


@wb.func
def length_squared(x: wb.array(dtype=half3), i: int):
    return wb.dot(x[i], x[i])


@wb.func_grad(length_squared)
def adj_length_squared(x: wb.array(dtype=half3), i: int, g: wb.float16):
    wb.adjoint[x][i] += x[i] * (g * wb.float16(2.0))


@wb.kernel
def halves(x: wb.array(dtype=half3), y: wb.array(dtype=wb.float16)):
    i = wb.tid()
    y[i] = length_squared(x, i)


def test_the_gradient_of_an_array_of_half_vectors_is_added_up_in_float32():
    x = wb.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]], dtype=half3, requires_grad=True)
    y = wb.zeros(2, dtype=wb.float16)
    with wb.Tape() as tape:
        wb.launch(halves, 2, [x, y])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    assert x.grad.numpy().tolist() == [[2.0, 4.0, 6.0], [0.0, 2.0, 0.0]]


def test_a_struct_is_an_argument_of_a_func_with_its_own_adjoint():
    @wb.struct
    class Inner:
        n: int
        w: wb.vec3

    @wb.struct
    class Outer:
        a: float
        inner: Inner

    @wb.func
    def f(x: Outer, k: float):
        return x.a * x.a * k + wb.dot(x.inner.w, x.inner.w) * float(x.inner.n), x.a

    @wb.func_grad(f)
    def adj_f(x: Outer, k: float, g: float, h: float):
        wb.adjoint[x.a] += 2.0 * x.a * k * g + h
        wb.adjoint[k] += x.a * x.a * g
        wb.adjoint[x.inner.w][0] += 2.0 * x.inner.w[0] * g * float(x.inner.n)
        wb.adjoint[x.inner.w] += wb.vec3(0.0, 2.0 * x.inner.w[1], 2.0 * x.inner.w[2]) * g * float(x.inner.n)

    @wb.kernel
    def run(xs: wb.array[Outer], ks: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        a, b = f(xs[i], ks[i])
        y[i] = a + 3.0 * b

    one = Outer(a=2.0, inner=Inner(n=4, w=wb.vec3(1.0, 2.0, 3.0)))
    x = wb.array([one, one], dtype=Outer, requires_grad=True)
    k = wb.array([1.0, 2.0], requires_grad=True)
    y = wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(run, 2, [x, k], [y])
    tape.backward(grads={y: wb.ones(2)})
    assert k.grad.list() == [4, 4]
    assert [g.a for g in x.grad.list()] == [7, 11]
    assert [g.inner.w.tolist() for g in x.grad.list()] == [[8, 16, 24], [8, 16, 24]]


def test_a_field_that_an_adjoint_forgets_is_refused():
    @wb.struct
    class Two:
        a: float
        b: float

    @wb.func
    def f(x: Two):
        return x.a * x.b

    @wb.func_grad(f)
    def adj_f(x: Two, g: float):
        wb.adjoint[x.a] += x.b * g

    @wb.kernel
    def run(xs: wb.array[Two], y: wb.array[float]):
        y[wb.tid()] = f(xs[wb.tid()])

    with pytest.raises(wb.KernelError, match=r"never adds to adjoint\[x.b\]"):
        wb.launch(run, 1, [wb.zeros(1, dtype=Two), wb.zeros(1)])

"""The tables of programs whose gradients other tools get wrong, literally: routes, seeds, micro-batches and loops.

Every number is a closed form. Each table runs on every backend; what cannot be exact must be refused by name.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import WITH_GPU

F = wb.float64
X = np.array([0.7, -1.3, 2.1, 0.4])
N = len(X)


pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.parametrize("backend", WITH_GPU, indirect=True)]


def leaf(values=X, requires_grad=True):
    return wb.array(np.asarray(values, float), dtype=F, requires_grad=requires_grad)


def zeros(n=N, **kw):
    return wb.zeros(n, dtype=F, **kw)


def run(kernel, *arrays, dim=None, **kw):
    wb.launch(kernel, dim=len(arrays[0]) if dim is None else dim, inputs=arrays, **kw)


# --- the seventeen routes: y = x**2, and x overwritten


@wb.struct
class Holder:
    inner: wb.array(dtype=F)


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def nine(x: wb.array(dtype=F)):
    x[wb.tid()] = F(9.0)


@wb.kernel
def add_nine(x: wb.array(dtype=F)):
    x[wb.tid()] += F(9.0)


@wb.kernel
def nine_held(h: Holder):
    h.inner[wb.tid()] = F(9.0)


@wb.kernel
def square_then_nine(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]
    x[i] = F(9.0)


def flat_before(x):
    alias = x.flatten()
    return lambda: run(nine, alias)


def slice_before(x):
    alias = x[1:3]
    return lambda: run(nine, alias)


# name -> function of x, called before the read, that gives what happens after it
ROUTES: dict[str, Callable] = {
    "kernel store": lambda x: lambda: run(nine, x),
    "atomic": lambda x: lambda: run(add_nine, x),
    "copy onto it, source without gradient": lambda x: lambda: wb.copy(x, leaf([9] * N, False)),
    "copy onto it, source with gradient": lambda x: lambda: wb.copy(x, leaf([9] * N)),
    "read a view, write the parent": lambda x: lambda: run(nine, x),
    "flatten made before the read": flat_before,
    "flatten made after the read": lambda x: lambda: run(nine, x.flatten()),
    "inside one kernel": lambda x: lambda: None,
    "kernel store outside the tape": lambda x: lambda: run(nine, x, record_tape=False),
    "zero_": lambda x: lambda: x.zero_(),
    "fill_": lambda x: lambda: x.fill_(9.0),
    "assign of NumPy data": lambda x: lambda: x.assign(np.full(x.shape, 9.0)),
    "write through numpy()": lambda x: lambda: x.numpy().fill(9.0),
    "slice made before the read": slice_before,
    "slice made after the read": lambda x: lambda: run(nine, x[1:3]),
    "second array over the pointer": lambda x: lambda: run(nine, wb.array(ptr=x.ptr, shape=x.shape, dtype=F)),
    "array held in a struct": lambda x: lambda: run(nine_held, Holder(inner=x), dim=N),
}
UNSEEN = {"kernel store outside the tape", "write through numpy()"}


def recorded(name: str, inside: bool, keep: str = "needed"):
    x, y = leaf(), zeros()
    overwrite = ROUTES[name](x)
    with wb.Tape(keep=keep) as tape:
        if name == "inside one kernel":
            run(square_then_nine, x, y)
        elif name == "read a view, write the parent":
            run(square, x[0:N], y)
        else:
            run(square, x, y)
        if inside:
            overwrite()
    if not inside:
        overwrite()
    return tape, x, y


@pytest.mark.parametrize("keep", ["needed", "all"])
@pytest.mark.parametrize("inside", [True, False], ids=["inside", "behind"])
@pytest.mark.parametrize("name", ROUTES)
def test_seventeen_routes_give_the_exact_gradient_or_the_error(name: str, inside: bool, keep: str, backend: str):
    assert len(ROUTES) == 17
    if name == "write through numpy()" and backend == "cuda":
        return  # numpy() of an array on a GPU is a copy
    tape, x, y = recorded(name, inside, keep)
    after = x.numpy().copy()
    assert (after != X).any(), "the route overwrites x"
    seen = name == "inside one kernel" or (inside and name not in UNSEEN)
    if seen or (keep == "all" and name != "write through numpy()"):
        for k in (1, 2):
            tape.backward(grads={y: leaf([1, 2, 3, 4], False)})
            turns = np.where((after != X) & seen, 1, k)  # what the tape overwrote is replaced, leaves add up
            np.testing.assert_allclose(x.grad.numpy(), 2 * X * [1, 2, 3, 4] * turns, rtol=1e-15)
    else:
        with pytest.raises(wb.GradientError) as found:
            tape.backward(grads={y: leaf([1, 2, 3, 4], False)})
        text = str(found.value)
        assert (
            found.value.slug == "overwritten" and "'x'" in text and "square" in text and "test_known_traps.py" in text
        )
        assert not x.grad.numpy().any()
    np.testing.assert_array_equal(x.numpy(), after)


def test_a_write_through_the_raw_pointer_is_the_error(backend: str):
    """Memory whose address has been asked for is compared before it is used."""
    if backend == "cuda":
        return
    x, y = leaf(), zeros()
    address = x.ptr
    with wb.Tape() as tape:
        run(square, x, y)
    ctypes.memset(address + 8, 0, 8)
    with pytest.raises(wb.GradientError, match="'x' was changed by a write through its raw memory"):
        tape.backward(grads={y: leaf([1] * N, False)})


# --- seeds over an intermediate that is accumulated, row by row


@wb.kernel
def sum_of_squares(x: wb.array(dtype=F), acc: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(acc, 0, x[i] * x[i])


@wb.kernel
def multiples(acc: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = acc[0] * F(i + 1)


@pytest.mark.parametrize("requires", [True, False])
@pytest.mark.parametrize("clear", ["zero", "x.grad.zero_", "by hand"])
def test_rows_of_a_jacobian_over_an_accumulated_intermediate(requires: bool, clear: str):
    x, acc, y = leaf([1, 2, 3]), zeros(1, requires_grad=requires), zeros(3, requires_grad=requires)
    with wb.Tape() as tape:
        run(sum_of_squares, x, acc)
        run(multiples, acc, y, dim=3)
    rows, last = [], np.zeros(3)
    for row in np.eye(3):
        tape.backward(grads={y: leaf(row, False)})
        rows.append((x.grad.numpy() - (last if clear == "by hand" else 0)).tolist())
        last = x.grad.numpy().copy()
        if clear == "zero":
            tape.zero()
        elif clear == "x.grad.zero_":
            x.grad.zero_()
    assert rows == [[2, 4, 6], [4, 8, 12], [6, 12, 18]]
    np.testing.assert_array_equal(wb.jacobian(tape, y, x), rows)


def test_a_seed_buffer_used_twice_is_never_changed():
    x, acc, y = leaf([1, 2, 3]), zeros(1, requires_grad=True), zeros(3, requires_grad=True)
    with wb.Tape() as tape:
        run(sum_of_squares, x, acc)
        run(multiples, acc, y, dim=3)
    buffer = leaf([1, 0, 0], False)
    for k in (1, 2, 3):
        tape.backward(grads={y: buffer})
        assert x.grad.numpy().tolist() == [2 * k, 4 * k, 6 * k]
        assert buffer.numpy().tolist() == [1, 0, 0]


@wb.kernel
def weighted(w: wb.array(dtype=F), batch: wb.array(dtype=F), loss: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(loss, 0, w[0] * batch[i])


def test_micro_batches_through_a_clone_accumulate_to_one_two_three():
    w, found = leaf([5.0]), []
    for _ in range(3):
        loss = zeros(1)
        with wb.Tape() as tape:
            mine = wb.clone(w)
            run(weighted, mine, leaf([0.25, 0.75], False), loss, dim=2)
        tape.backward(loss)
        found.append(w.grad.numpy().tolist())
    assert found == [[1.0], [2.0], [3.0]]


# --- loops: what a local carries from turn to turn


@wb.kernel
def sum_in_for(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    s = F(0.0)
    for k in range(n):
        s = s + x[i] * x[i]
    y[i] = s


@wb.kernel
def product_in_for(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    p = F(1.0)
    for k in range(n):
        p = p * x[i]
    y[i] = p


@wb.kernel
def sine_in_for(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    v = x[i]
    for k in range(n):
        v = v + F(0.1) * wb.sin(v)
    y[i] = v


@wb.kernel
def sine_in_while(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    v, k = x[i], 0
    while k < n:
        v = v + F(0.1) * wb.sin(v)
        k += 1
    y[i] = v


@wb.kernel
def sine_in_static_for(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    v = x[i]
    for k in range(20):
        v = v + F(0.1) * wb.sin(v)
    y[i] = v


@wb.kernel
def break_on_size(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    v = x[i]
    for k in range(n):
        if v * v > F(3.0):
            break
        v = v * F(1.25)
    y[i] = v * v


@wb.kernel
def continue_on_odd(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    v = x[i]
    for k in range(n):
        if k % 2 == 1:
            continue
        v = v * x[i]
    y[i] = v


@wb.kernel
def running_maximum(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    m = x[0] * x[0]
    for k in range(i + 1):
        m = wb.max(m, x[k] * x[k])
    y[i] = m


@wb.kernel
def nested_product(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    v = F(1.0)
    for a in range(3):
        for b in range(a + 1):
            v = v * x[i]
        v = v * F(0.5)
    y[i] = v


@wb.kernel
def carried_vector(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    v = wb.vec2d(x[i], F(1.0))
    for k in range(n):
        v = wb.vec2d(v[0] * x[i], v[1] + v[0])
    y[i] = v[1]


def sines(x, n: int):
    """v = v + 0.1 sin v, n times, and its derivative by the chain rule."""
    v, d = x.copy(), np.ones_like(x)
    for _ in range(n):
        d = d * (1 + 0.1 * np.cos(v))
        v = v + 0.1 * np.sin(v)
    return v, d


def breaks(x, n: int):
    v, d = x.copy(), np.ones_like(x)
    for _ in range(n):
        go = v * v <= 3
        v, d = np.where(go, 1.25 * v, v), np.where(go, 1.25 * d, d)
    return v * v, 2 * v * d


TURNS = 7
LOOPS: dict = {
    "sum": (sum_in_for, lambda x: (TURNS * x * x, 2 * TURNS * x)),
    "product": (product_in_for, lambda x: (x**TURNS, TURNS * x ** (TURNS - 1))),
    "sine in for": (sine_in_for, lambda x: sines(x, TURNS)),
    "sine in while": (sine_in_while, lambda x: sines(x, TURNS)),
    "sine in a static loop of 20": (sine_in_static_for, lambda x: sines(x, 20)),
    "break": (break_on_size, lambda x: breaks(x, TURNS)),
    "continue": (continue_on_odd, lambda x: (x**5, 5 * x**4)),
    "nested": (nested_product, lambda x: (x**6 / 8, 6 * x**5 / 8)),
    "carried vector": (
        carried_vector,
        lambda x: (1 + sum(x ** (k + 1) for k in range(TURNS)), sum((k + 1) * x**k for k in range(TURNS))),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", LOOPS)
def test_loops_have_the_derivative_of_what_they_carry(name: str):
    kernel, closed = LOOPS[name]
    x, y = leaf(), zeros()
    with wb.Tape() as tape:
        wb.launch(kernel, dim=N, inputs=[x, TURNS, y])
    value, slope = closed(X)
    np.testing.assert_allclose(y.numpy(), value, rtol=1e-14)
    tape.backward(grads={y: leaf([1, 2, 3, 4], False)})
    np.testing.assert_allclose(x.grad.numpy(), slope * [1, 2, 3, 4], rtol=1e-13)


def test_a_running_maximum_sends_the_gradient_to_the_winner():
    x, y = leaf([1.0, -2.0, 1.5, 3.0]), zeros()
    with wb.Tape() as tape:
        wb.launch(running_maximum, dim=N, inputs=[x, 0, y])
    assert y.numpy().tolist() == [1, 4, 4, 9]
    tape.backward(grads={y: leaf([1, 10, 100, 1000], False)})
    assert x.grad.numpy().tolist() == [2, -4 * 110, 0, 6000]


# --- what users of Warp rely on


def test_an_array_written_by_stores_reads_zero_after_backward_and_leaves_double():
    x, h, y = leaf(), zeros(requires_grad=True), zeros(requires_grad=True)
    with wb.Tape() as tape:
        run(square, x, h)
        run(square, h, y)
    for k in (1, 2):
        tape.backward(grads={y: leaf([1] * N, False)})
        np.testing.assert_allclose(x.grad.numpy(), 4 * k * X**3, rtol=1e-15)
    with pytest.warns(UserWarning, match="tape.adjoint"):
        assert not h.grad.numpy().any()
    assert tape.gradients[x] is x.grad and set(tape.gradients) == {x, h, y}
    np.testing.assert_allclose(tape.adjoint(h), 2 * X * X, rtol=1e-15)


def test_a_hundred_steps_of_a_pendulum_in_place_have_the_slope_of_the_steps():
    """In one buffer, 100 launches: the derivative is the product of the steps' own."""

    @wb.kernel
    def step(x: wb.array(dtype=F)):
        i = wb.tid()
        x[i] = x[i] + F(0.01) * wb.sin(x[i])

    x = leaf()
    with wb.Tape() as tape:
        for _ in range(100):
            run(step, x)
    tape.backward(grads={x: leaf([1] * N, False)})
    v, d = X.copy(), np.ones(N)
    for _ in range(100):
        v, d = v + 0.01 * np.sin(v), d * (1 + 0.01 * np.cos(v))
    np.testing.assert_allclose(x.grad.numpy(), d, rtol=1e-13)
    assert math.isclose(x.numpy()[0], v[0], rel_tol=1e-14)

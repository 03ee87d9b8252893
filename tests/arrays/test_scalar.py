"""Declared scalars: numbers and vectors with a gradient, taken by value at each launch."""

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.usefixtures("backend")
MANY = 20_000  # threads: above the size from which the C backend takes several workers


@wb.kernel
def axpy(a: float, x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = a * a * x[i]


@wb.kernel
def shift(c: wb.vec3, x: wb.array(dtype=wb.vec3), y: wb.array(dtype=wb.float32)):
    i = wb.tid()
    y[i] = wb.dot(wb.cw_mul(c, c), x[i])


@wb.kernel
def power(n: int, a: wb.float64, b: wb.float64, y: wb.array(dtype=wb.float64)):
    i = wb.tid()
    p = wb.float64(1.0)
    for _ in range(n):
        p = p * a
    if i % 2 == 0:
        y[i] = p + b * wb.float64(i)
    else:
        y[i] = p * b


def ones(n, dtype=float):
    return wb.ones(n, dtype=dtype)


def test_a_declared_scalar_has_the_exact_gradient():
    a = wb.scalar(3.0, requires_grad=True)
    x, y = wb.array([1.0, 2.0, 4.0], requires_grad=True), wb.zeros(3)
    with wb.Tape() as tape:
        wb.launch(axpy, 3, [a, x], [y])
    tape.backward(grads={y: wb.array([1.0, 10.0, 100.0])})
    assert y.numpy().tolist() == [9.0, 18.0, 36.0]
    assert a.grad.numpy().tolist() == [2 * 3 * (1 + 20 + 400)]
    assert x.grad.numpy().tolist() == [9.0, 90.0, 900.0]


def test_only_the_scalar_needs_a_gradient():
    a, y = wb.scalar(3.0, requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(axpy, 2, [a, ones(2)], [y])
    tape.backward(grads={y: ones(2)})
    assert a.grad.numpy().tolist() == [12.0]


def test_two_scalars_and_a_plain_one_in_loops_and_branches():
    a, b = (wb.scalar(v, dtype=wb.float64, requires_grad=True) for v in (1.5, -2.0))
    y = wb.zeros(4, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(power, 4, [3, a, b], [y])
    tape.backward(grads={y: ones(4, wb.float64)})
    slope = 3 * 1.5**2
    np.testing.assert_allclose(a.grad.numpy(), [2 * slope + 2 * slope * -2.0], rtol=1e-14)
    np.testing.assert_allclose(b.grad.numpy(), [0 + 2 + 2 * 1.5**3], rtol=1e-14)


def test_one_scalar_for_two_parameters_gets_both_contributions():
    a, y = wb.scalar(1.5, dtype=wb.float64, requires_grad=True), wb.zeros(2, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(power, 2, [2, a, a], [y])
    tape.backward(grads={y: ones(2, wb.float64)})
    np.testing.assert_allclose(a.grad.numpy(), [2 * 1.5 + 3 * 1.5**2], rtol=1e-14)


def test_a_vector_has_a_gradient_component_by_component():
    c = wb.scalar(wb.vec3(1.0, 2.0, 3.0), requires_grad=True)
    x, y = wb.array([[1.0, 0.0, 2.0], [3.0, 1.0, 1.0]], dtype=wb.vec3), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(shift, 2, [c, x], [y])
    tape.backward(grads={y: wb.array([1.0, 10.0])})
    assert c.dtype is wb.vec3 and c.grad.numpy().tolist() == [[2 * 31.0, 4 * 10.0, 6 * 12.0]]


def test_many_threads_add_up_without_a_race():
    a, y = wb.scalar(2.0, requires_grad=True), wb.zeros(MANY)
    x = wb.ones(MANY, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(axpy, MANY, [a, x], [y])
    for turn in range(1, 4):
        tape.backward(grads={y: ones(MANY)})
        assert a.grad.item() == turn * 4 * MANY and (x.grad.numpy() == 4 * turn).all()


@pytest.mark.host_memory
def test_a_sum_over_very_many_threads_keeps_its_digits(backend):
    @wb.kernel
    def count(a: float, c: wb.vec2, total: wb.array2d(dtype=wb.float32)):
        _i, _j = wb.tid()
        wb.atomic_add(total, 0, 0, a + c[0] + 3.0 * c[1])

    rows, columns = (5, 7) if backend == "numpy" else (4_000_001, 5)
    a, c = wb.scalar(1.0, requires_grad=True), wb.scalar(wb.vec2(1.0, 2.0), requires_grad=True)
    total = wb.zeros((1, 1))
    with wb.Tape() as tape:
        wb.launch(count, (rows, columns), [a, c], [total])
    tape.backward(grads={total: wb.ones((1, 1))})
    n = rows * columns
    np.testing.assert_allclose(a.grad.numpy(), [n], rtol=1e-6)  # in single precision 1 + 2**24 is 2**24
    np.testing.assert_allclose(c.grad.numpy(), [[n, 3 * n]], rtol=1e-6)


def test_a_scalar_beside_a_scattered_gradient_stays_exact():
    @wb.kernel
    def neighbours(a: float, x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = a * x[i] * x[i + 1]

    a, x, y = wb.scalar(2.0, requires_grad=True), wb.ones(MANY + 1, requires_grad=True), wb.zeros(MANY)
    with wb.Tape() as tape:
        wb.launch(neighbours, MANY, [a, x], [y])
    tape.backward(grads={y: ones(MANY)})
    assert a.grad.item() == MANY
    assert x.grad.numpy().tolist() == [2.0] + [4.0] * (MANY - 1) + [2.0]


def test_a_scalar_that_decides_without_a_derivative_has_the_gradient_zero():
    @wb.kernel
    def neighbours(a: float, x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        if a > 1.0:
            y[i] = x[i] * x[i + 1]

    a, x, y = wb.scalar(2.0, requires_grad=True), wb.ones(MANY + 1, requires_grad=True), wb.zeros(MANY)
    with wb.Tape() as tape:
        wb.launch(neighbours, MANY, [a, x], [y])
    tape.backward(grads={y: ones(MANY)})
    assert a.grad.item() == 0.0
    assert x.grad.numpy().tolist() == [1.0] + [2.0] * (MANY - 1) + [1.0]


def test_launches_own_the_value():
    a, y = wb.scalar(3.0, requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(axpy, 1, [a, ones(1)], [y])
    a.value = 100.0
    tape.backward(grads={y: ones(1)})
    assert a.value == 100.0 and a.grad.item() == 6.0


def test_a_scalar_is_a_leaf_it_accumulates_over_launches_and_backwards():
    a, y, z = wb.scalar(3.0, requires_grad=True), wb.zeros(1), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(axpy, 1, [a, ones(1)], [y])
        wb.launch(axpy, 1, [a, y], [z])
    tape.backward(grads={z: ones(1)})
    assert a.grad.item() == 4 * 27
    tape.backward(grads={z: ones(1)})
    assert a.grad.item() == 2 * 4 * 27
    tape.zero()
    assert a.grad.item() == 0.0


def test_descent_on_a_scalar_finds_the_minimum():
    a, y = wb.scalar(1.0, dtype=wb.float64, requires_grad=True), wb.zeros(1, dtype=wb.float64)
    for _ in range(60):
        with wb.Tape() as tape:
            wb.launch(power, 1, [2, a, wb.float64(0.0)], [y])
        tape.backward(grads={y: wb.array([float(y.numpy()[0] - 4.0)], dtype=wb.float64)})
        a.value = a.value - 0.05 * a.grad.item()
        tape.zero()
    assert abs(a.value - 2.0) < 1e-6


def test_a_value_assigned_under_the_tape_is_an_event():
    a, y, z = wb.scalar(3.0, requires_grad=True), wb.zeros(1), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(axpy, 1, [a, ones(1)], [y])
        a.value = 5.0
        wb.launch(axpy, 1, [a, ones(1)], [z])
    assert (y.numpy()[0], z.numpy()[0]) == (9.0, 25.0)
    tape.backward(grads={y: ones(1), z: ones(1)})
    assert a.grad.item() == 6.0, "the derivative by what it held when the tape started"


def test_a_value_changed_between_two_launches_behind_the_tape_is_refused():
    a, y = wb.scalar(3.0, requires_grad=True), wb.zeros(1)
    tape = wb.Tape()
    with tape:
        wb.launch(axpy, 1, [a, ones(1)], [y])
    a.value = 5.0
    with tape:
        wb.launch(axpy, 1, [a, ones(1)], [y])
    with pytest.raises(wb.GradientError, match="'a' was changed"):
        tape.backward(grads={y: ones(1)})


def test_a_scalar_without_gradient_is_a_number():
    a, y = wb.scalar(3.0), wb.zeros(1, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(axpy, 1, [a, wb.ones(1, requires_grad=True)], [y])
    assert y.numpy()[0] == 9.0 and a.grad is None and len(tape) == 1
    wb.launch(power, 1, [wb.scalar(2), 3.0, 0.0], [wb.zeros(1, dtype=wb.float64)])


def test_the_bounds_check_sees_the_value():
    @wb.kernel
    def at(k: int, x: wb.array(dtype=float)):
        x[k] = 1.0

    k, x = wb.scalar(2), wb.zeros(3)
    wb.launch(at, 1, [k], [x])
    k.value = 3
    with pytest.raises(wb.BoundsError):
        wb.launch(at, 1, [k], [x])
    assert x.numpy().tolist() == [0, 0, 1]


def test_half_precision_scalars_have_single_precision_gradients():
    @wb.kernel
    def half(a: wb.float16, y: wb.array(dtype=wb.float32)):
        y[wb.tid()] = wb.float32(a * a)

    a, y = wb.scalar(1.5, dtype=wb.float16, requires_grad=True), wb.zeros(8)
    with wb.Tape() as tape:
        wb.launch(half, 8, [a], [y])
    tape.backward(grads={y: ones(8)})
    assert a.grad.dtype is wb.float32 and a.grad.item() == 24.0


def test_what_would_lose_the_gradient_is_refused():
    a, x, y = wb.scalar(3.0, requires_grad=True), ones(1), wb.zeros(1)
    with pytest.raises(wb.LaunchError, match=r"takes float64(.|\n)*wb.scalar\(..., dtype=wb.float64\)"):
        wb.launch(power, 1, [1, a, a], [wb.zeros(1, dtype=wb.float64)])
    with pytest.raises(wb.LaunchError, match="command-scalar"):
        wb.launch(axpy, 1, [a, x], [y], record_cmd=True)
    with pytest.raises(wb.LaunchError, match="grad-of-int"):
        wb.scalar(3, requires_grad=True)
    with pytest.raises((TypeError, wb.LaunchError)):
        wb.array([1.0, a])
    with pytest.raises((TypeError, wb.LaunchError)):
        y.fill_(a)
    with pytest.raises(TypeError):
        float(a)
    with pytest.raises(TypeError):
        a * 2.0
    with pytest.raises(wb.LaunchError):
        x * a


@pytest.mark.needs_torch
def test_torch_does_not_lose_the_gradient_of_a_scalar():
    import torch

    f = wb.interop.torch.function(axpy, dim=1)
    with pytest.raises(wb.GradientError, match="array-in-function"):
        f(wb.scalar(3.0, requires_grad=True), torch.ones(1, requires_grad=True))
    assert f(wb.scalar(3.0), torch.ones(1)).tolist() == [9.0]


def test_an_array_is_no_vector_argument():
    c = wb.array([[1.0, 2.0, 3.0]], dtype=wb.vec3, requires_grad=True)
    with pytest.raises(wb.LaunchError, match="takes vec3"):
        wb.launch(shift, 1, [c, wb.zeros(1, dtype=wb.vec3)], [wb.zeros(1)])


@wb.struct
class Contact:
    mu: float
    normal: wb.vec2


@wb.struct
class Model:
    contact: Contact
    mass: wb.float64
    n: int
    x: wb.array(dtype=float)


@wb.kernel
def friction(m: Model, y: wb.array(dtype=float)):
    i = wb.tid()
    for _ in range(m.n):
        y[i] += m.contact.mu * m.contact.mu * m.x[i] * m.contact.normal[1] / wb.float32(m.mass)


def model(n=2):
    m = Model(contact=Contact(normal=(0.0, 3.0)), mass=4.0, n=n, x=wb.array([1.0, 10.0], requires_grad=True))
    m.contact.mu = wb.scalar(0.5, requires_grad=True)
    return m


def test_a_field_of_a_struct_may_be_a_declared_scalar():
    m, y = model(), wb.zeros(2)
    m.contact.normal = wb.scalar((0.0, 3.0), dtype=wb.vec2, requires_grad=True)
    m.mass = wb.scalar(4.0, dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(friction, 2, [m], [y])
    tape.backward(grads={y: ones(2)})
    one = 0.25 * 3.0 / 4.0
    assert y.numpy().tolist() == [2 * one, 20 * one]
    assert m.contact.mu.grad.numpy().tolist() == [22 * one * 2 / 0.5]
    assert m.contact.normal.grad.numpy().tolist() == [[0.0, 22 * one / 3.0]]
    assert m.mass.grad.numpy().tolist() == [-22 * one / 4.0]
    assert m.x.grad.numpy().tolist() == [2 * one, 2 * one]
    assert tape.gradients[m].contact.mu is m.contact.mu.grad and tape.gradients[m.contact].mu is not None
    assert wb.jvp(tape, {m.contact.mu.memory: [1.0]})[y].tolist() == [2 * one * 4, 20 * one * 4]


def test_a_launch_takes_the_value_of_a_field_at_that_moment():
    m = model(n=1)
    for k in range(1, 6):  # the later ones find their arrays in the launch cache
        m.contact.mu.value = 0.5 * k
        m.contact.mu.grad.zero_()
        y = wb.zeros(2)
        with wb.Tape() as tape:
            wb.launch(friction, 2, [m], [y])
        tape.backward(grads={y: ones(2)})
        assert y.numpy().tolist() == [0.1875 * k * k, 1.875 * k * k]
        assert m.contact.mu.grad.numpy().tolist() == [11 * 0.5 * k * 3.0 / 4.0 * 2]


def test_a_field_takes_scalars_of_its_own_type_only():
    contact = Contact()
    for put in (lambda a: Contact(mu=a), lambda a: setattr(contact, "mu", a)):
        with pytest.raises(wb.LaunchError, match=r"Contact\.mu takes a float32") as refused:
            put(wb.scalar(1.0, dtype=wb.float64, requires_grad=True))
        assert refused.value.slug == "struct-scalar" and "dtype=wb.float32" in str(refused.value)


def test_where_a_field_with_a_gradient_would_lose_it_it_is_refused():
    m = model()
    with pytest.raises(TypeError, match="scalar"):
        wb.array([m.contact], dtype=Contact)
    contact = m.contact

    @wb.kernel
    def fixed(y: wb.array(dtype=float)):
        y[0] = wb.static(contact).mu

    with pytest.raises(wb.KernelError, match="not a value of the kernel language"):
        wb.launch(fixed, 1, [wb.zeros(1)])
    with pytest.raises(wb.LaunchError, match="declared scalar"), wb.capture():
        wb.launch(friction, 2, [m], [wb.zeros(2)])
    with pytest.raises(wb.LaunchError, match="command-scalar"):
        wb.launch(friction, 2, [m], [wb.zeros(2)], record_cmd=True)


def test_a_parameter_may_be_named_like_the_gradient_of_a_number():
    @wb.kernel
    def k(a: float, d_a: wb.array(dtype=float), t_a: float, y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = a * d_a[i] * t_a

    a, t_a = wb.scalar(2.0, requires_grad=True), wb.scalar(3.0, requires_grad=True)
    d_a, y = wb.array([5.0, 7.0], requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(k, 2, [a, d_a, t_a], [y])
    tape.backward(grads={y: ones(2)})
    assert a.grad.numpy().tolist() == [36.0] and t_a.grad.numpy().tolist() == [24.0]
    assert d_a.grad.numpy().tolist() == [6.0, 6.0]
    assert wb.jvp(tape, {d_a: [1.0, 2.0]})[y].tolist() == [6.0, 12.0]


def test_values_read_back_as_their_type():
    assert wb.scalar(2.5).value == np.float32(2.5) and wb.scalar(2).dtype is wb.int32
    v = wb.scalar([1.0, 2.0], dtype=wb.vec2, requires_grad=True)
    got = v.value
    got[0] = 9.0
    assert v.value.tolist() == [1.0, 2.0] and "requires_grad=True" in repr(v)
    v.value = wb.vec2(3.0, 4.0)
    assert v.value.tolist() == [3.0, 4.0]


@wb.kernel
def gated(x: wb.array(dtype=wb.float64), limit: wb.float64, y: wb.array(dtype=wb.float64)):
    i = wb.tid()
    if i > 0:
        if x[i] > limit:
            y[i] = x[i - 1] * x[i]


def test_a_scalar_that_only_decides_takes_nothing_from_a_stencil():
    x = wb.array(np.linspace(1, 2, MANY), requires_grad=True)
    limit, y = wb.scalar(0.5, dtype=wb.float64, requires_grad=True), wb.zeros(MANY, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(gated, MANY, [x, limit], [y])
    tape.backward(grads={y: ones(MANY, wb.float64)})
    around = np.pad(np.linspace(1, 2, MANY), 1)
    want = around[:-2] + around[2:]
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-14)
    assert limit.grad.numpy().tolist() == [0.0]

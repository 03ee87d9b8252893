"""map, array operators and sums: right values, exact gradients under a tape, clear refusals."""

from __future__ import annotations

import linecache
import math
import warnings

import numpy as np
import pytest

import workbench as wb
from workbench.launches import operators

F = wb.float64


pytestmark = pytest.mark.usefixtures("backend")


def leaf(values, dtype=F):
    return wb.array(np.array(values, dtype=float), dtype=dtype, requires_grad=True)


def seed(shape):
    return np.linspace(0.7, 1.9, math.prod(shape)).reshape(shape) * np.where(np.indices(shape).sum(0) % 2, -1, 1)


def differences(reference, inputs, weights, eps=1e-6):
    """Central differences of sum(weights * reference(*inputs)) by every input."""
    made = []
    for k, x in enumerate(inputs):
        grad = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                moved = [v.copy() for v in inputs]
                moved[k][at] += sign * eps
                ends.append((weights * reference(*moved)).sum())
            grad[at] = (ends[0] - ends[1]) / (2 * eps)
        made.append(grad)
    return made


def check(compute, reference, *inputs):
    """Values and gradients of `compute` on arrays against `reference` on NumPy."""
    arrays = [leaf(x) for x in inputs]
    inputs = [np.array(x, dtype=float) for x in inputs]
    with wb.Tape() as tape:
        y = compute(*arrays)
    np.testing.assert_allclose(y.numpy(), reference(*inputs), rtol=1e-12)
    weights = seed(y.shape)
    tape.backward(grads={y: wb.array(weights, dtype=F)})
    for a, want in zip(arrays, differences(reference, inputs, weights), strict=True):
        np.testing.assert_allclose(a.grad.numpy(), want, rtol=1e-7, atol=1e-7)


A, B = [0.7, -1.3, 2.1, 0.4], [1.4, 0.8, -1.2, 3.0]


@wb.func
def swing(a: F, b: F):
    return a * wb.sin(b)


@wb.func
def both(a: F, b: F):
    return a * b, a - b


@wb.func
def branchy(a: F):
    if a > F(0.5):
        return a * a
    total = a
    for _ in range(3):
        total = total * a + a
    return total


@wb.func
def damped(a: F, k: F = 0.5, n: wb.int32 = 2):
    return a * k * F(n)


# ---- map


def test_a_func_is_mapped_and_its_gradient_is_exact():
    check(lambda x, z: wb.map(swing, x, z), lambda x, z: x * np.sin(z), A, B)


def test_branches_and_loops_of_a_func_are_mapped_with_exact_gradients():
    def reference(x):
        chain = x
        for _ in range(3):
            chain = chain * x + x
        return np.where(x > 0.5, x * x, chain)

    check(lambda x: wb.map(branchy, x), reference, A)


def test_builtins_and_functions_of_math_are_mapped():
    check(lambda x: wb.map(wb.sin, x), np.sin, A)
    check(lambda x: wb.map(math.exp, x), np.exp, A)
    check(lambda x, y: wb.map(wb.atan2, x, y), np.arctan2, A, B)


def test_a_plain_function_is_read_as_a_func():
    def cube(a):
        return a * a * a

    check(lambda x: wb.map(cube, x), lambda x: x**3, A)


def test_several_results_come_as_a_tuple_of_arrays():
    x, y = leaf(A), leaf(B)
    with wb.Tape() as tape:
        made = wb.map(both, x, y)
    assert isinstance(made, tuple) and len(made) == 2
    np.testing.assert_array_equal(made[0].numpy(), np.multiply(A, B))
    np.testing.assert_array_equal(made[1].numpy(), np.subtract(A, B))
    tape.backward(grads={made[0]: wb.full(4, 2.0, dtype=F), made[1]: wb.full(4, 10.0, dtype=F)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.array(B) + 10)
    np.testing.assert_allclose(y.grad.numpy(), 2 * np.array(A) - 10)


def test_one_result_in_a_tuple_stays_a_tuple():
    def alone(a):
        return (a,)

    made = wb.map(alone, leaf(A))
    assert isinstance(made, tuple) and len(made) == 1


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 1, 3), (2, 3, 2, 2)])
def test_map_takes_one_to_four_axes_and_any_strides(shape):
    values = np.arange(math.prod(shape), dtype=float).reshape(shape)
    x = leaf(values)
    np.testing.assert_allclose(wb.map(wb.sin, x).numpy(), np.sin(values))
    np.testing.assert_allclose(wb.map(wb.sin, x.transpose()).numpy(), np.sin(values.T))


def test_an_empty_array_maps_to_an_empty_array():
    assert wb.map(wb.sin, wb.zeros((0, 3), dtype=F)).shape == (0, 3)


def test_numbers_serve_every_element_and_take_the_type_of_the_arrays():
    check(lambda x: wb.map(swing, x, 0.4), lambda x: x * np.sin(0.4), A)
    assert wb.map(wb.max, wb.array([1.0, 3.0]), 2).dtype is wb.float32


def test_an_annotated_number_keeps_its_type_and_defaults_are_used():
    x = leaf(A)
    np.testing.assert_array_equal(wb.map(damped, x).numpy(), A)
    np.testing.assert_array_equal(wb.map(damped, x, 3.0, 5).numpy(), np.multiply(A, 3) * 5)
    with pytest.raises(wb.LaunchError, match="argument-type"):
        wb.map(damped, x, 3.0, 2.5)


def test_vectors_map_to_vectors_and_numbers():
    values = np.arange(6.0).reshape(2, 3)
    v = wb.array(values, dtype=wb.vec3d, requires_grad=True)
    with wb.Tape() as tape:
        y = wb.map(wb.dot, v, v)
    assert y.dtype is F
    np.testing.assert_array_equal(y.numpy(), (values**2).sum(1))
    tape.backward(grads={y: wb.array([1.0, -2.0], dtype=F)})
    np.testing.assert_array_equal(v.grad.numpy(), values * [[2.0], [-4.0]])


@wb.struct
class Ball:
    q: wb.vec3d
    m: F


@wb.func
def pushed(b: Ball, dt: F):
    return Ball(b.q * dt, b.m * b.m)


def test_structs_are_taken_and_returned():
    balls = wb.array([Ball(wb.vec3d(1, 2, 3), 2.0), Ball(wb.vec3d(4, 5, 6), 3.0)], dtype=Ball, requires_grad=True)
    with wb.Tape() as tape:
        made = wb.map(pushed, balls, 0.5)
    assert made.requires_grad
    np.testing.assert_array_equal(made.numpy()["q"], [[0.5, 1, 1.5], [2, 2.5, 3]])
    ones = wb.array([Ball(wb.vec3d(1, 1, 1), 1.0)] * 2, dtype=Ball)
    tape.backward(grads={made: ones})
    np.testing.assert_array_equal(balls.grad.numpy()["m"], [4.0, 6.0])
    np.testing.assert_array_equal(balls.grad.numpy()["q"], np.full((2, 3), 0.5))


def test_results_require_a_gradient_if_an_argument_does():
    plain = wb.array([1.0, 2.0], dtype=F)
    assert not wb.map(swing, plain, plain).requires_grad
    assert wb.map(swing, plain, leaf([1, 2])).requires_grad

    def above(a):
        return a > F(0.5)

    flags = wb.map(above, leaf(A))
    assert flags.dtype == wb.bool and not flags.requires_grad


def test_a_func_with_its_own_adjoint_is_mapped_with_it():
    @wb.func
    def clipped(a: F):
        return wb.min(a, F(1.0))

    @wb.func_grad(clipped)
    def through(a: F, g: F):
        wb.adjoint[a] += g * F(10.0)

    x = leaf(A)
    with wb.Tape() as tape:
        y = wb.map(clipped, x)
    np.testing.assert_array_equal(y.numpy(), np.minimum(A, 1))
    tape.backward(grads={y: wb.ones_like(y)})
    np.testing.assert_array_equal(x.grad.numpy(), np.full(4, 10.0))


def test_out_receives_the_result_and_is_returned():
    x, y = leaf(A), wb.zeros(4, dtype=F)
    assert wb.map(wb.sin, x, out=y) is y
    np.testing.assert_array_equal(y.numpy(), wb.map(wb.sin, x).numpy())
    with pytest.raises(wb.LaunchError, match="shape"):
        wb.map(wb.sin, x, out=wb.zeros(3, dtype=F))
    with pytest.raises(wb.LaunchError, match="dtype"):
        wb.map(wb.sin, x, out=wb.zeros(4))
    with pytest.raises(wb.LaunchError, match="map-out"):
        wb.map(both, x, x, out=y)
    with pytest.raises(wb.LaunchError, match="race"):
        wb.map(both, x, x, out=(y, y))


def test_the_kernel_is_made_once_for_the_same_types():
    made = operators._made(swing, tuple(operators._type("", x) for x in (leaf(A), leaf(B))), 1)
    wb.map(swing, leaf(A), leaf(B))
    assert operators._made(swing, tuple(operators._type("", x) for x in (leaf(A), leaf(B))), 1) is made


factor = 2.0


def test_a_constant_that_changed_is_read_anew(monkeypatch):
    @wb.func
    def scaled(a: F):
        return a * F(factor)

    x = leaf(A)
    np.testing.assert_array_equal(wb.map(scaled, x).numpy(), np.multiply(A, 2))
    monkeypatch.setitem(globals(), "factor", 5.0)
    np.testing.assert_array_equal(wb.map(scaled, x).numpy(), np.multiply(A, 5))


def line_of(f, text):
    lines = linecache.getlines(f.fn.__code__.co_filename)
    return next(n for n, line in enumerate(lines, 1) if text in line and n >= f.fn.__code__.co_firstlineno)


@wb.func
def mixed(a: F):
    b = a * a
    return b + wb.float32(1.0)


@wb.func
def silent(a: F):
    b = a


def test_errors_point_into_the_func():
    with pytest.raises(wb.KernelError, match="mixed-types") as e:
        wb.map(mixed, leaf(A))
    assert e.value.lineno == line_of(mixed, "return b + wb.float32(1.0)")
    with pytest.raises(wb.KernelError, match="missing-return") as e:
        wb.map(silent, leaf(A))
    assert e.value.lineno == line_of(silent, "def silent")
    with pytest.raises(wb.KernelError, match="argument-type") as e:
        wb.map(swing, leaf(A, wb.float32), leaf(B))
    assert e.value.lineno == line_of(swing, "def swing")
    with pytest.raises(wb.KernelError, match="gets 1 arguments"):
        wb.map(swing, leaf(A))


def test_what_cannot_be_mapped_is_refused():
    with pytest.raises(wb.LaunchError, match="shape"):
        wb.map(swing, leaf(A), leaf([1, 2]))
    with pytest.raises(wb.LaunchError, match="map-arrays"):
        wb.map(swing, 1.0, 2.0)
    with pytest.raises(wb.LaunchError, match="map-func"):
        wb.map("sin", leaf(A))
    with pytest.raises(wb.LaunchError, match="argument-type"):
        wb.map(swing, leaf(A), np.ones(4))
    with pytest.raises(wb.KernelError, match="no-source"):
        wb.map(eval("lambda a: a"), leaf(A))


def test_the_event_of_a_map_names_the_func_and_the_user_s_line():
    with wb.Tape() as tape:
        wb.map(swing, leaf(A), leaf(B))
    (event,) = tape.launches
    assert event.label == "swing"
    assert "wb.map(swing, leaf(A), leaf(B))" in event.where.text


# ---- operators


@pytest.mark.sampled
@pytest.mark.parametrize(
    "formula",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: (x * x) ** y,
        lambda x, y: -x * y,
        lambda x, y: 2.0 * x + y * 3 - 1,
        lambda x, y: 1 / x - 2.0 / y,
        lambda x, y: x**2 * y,
        lambda x, y: 2.0**x - y,
        lambda x, y: (x % 0.37) * y,
    ],
)
def test_operators_of_arrays_are_exact(formula):
    check(formula, formula, A, B)


@pytest.mark.slow
def test_operators_in_place_read_before_they_overwrite():
    def updated(x, y):
        h = x * 1.0
        h *= y
        h += x
        h -= 2.0
        h /= y
        h *= h
        h **= 2
        return h

    check(updated, updated, A, B)


def test_in_place_after_a_launch_is_exact_and_returns_the_same_array():
    x, h = leaf(A), wb.zeros(4, dtype=F, requires_grad=True)
    same = h
    with wb.Tape() as tape:
        wb.map(wb.sin, x, out=h)
        h *= x
    assert h is same
    tape.backward(grads={h: wb.ones_like(h)})
    a = np.array(A)
    np.testing.assert_allclose(x.grad.numpy(), np.cos(a) * a + np.sin(a))


def test_in_place_on_a_slice_writes_the_slice_alone():
    x = leaf(A)
    with wb.Tape() as tape:
        x[1:3] *= 2.0
    np.testing.assert_array_equal(x.numpy(), np.multiply(A, [1, 2, 2, 1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tape.backward(grads={x: wb.ones_like(x)})
        np.testing.assert_array_equal(x.grad.numpy(), [1, 2, 2, 1])


def test_in_place_with_a_shifted_overlap_reads_what_was_there_before():
    x = leaf(A)
    with wb.Tape() as tape:
        part = x[1:]
        part *= x[:-1]
    a = np.array(A)
    np.testing.assert_array_equal(x.numpy(), [a[0], a[1] * a[0], a[2] * a[1], a[3] * a[2]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tape.backward(grads={x: wb.ones_like(x)})
        np.testing.assert_allclose(x.grad.numpy(), [1 + a[1], a[0] + a[2], a[1] + a[3], a[2]])


def test_integers_have_floor_division_and_modulo_and_no_division():
    n = wb.array([7, -7, 5])
    np.testing.assert_array_equal((n // 2).numpy(), [3, -4, 2])
    np.testing.assert_array_equal((n % 3).numpy(), [1, 2, 2])
    with pytest.raises(wb.LaunchError, match="int-division"):
        n / 2
    with pytest.raises(wb.LaunchError, match="mixed-types"):
        n * 1.5


def test_operators_on_vectors_scale_and_add():
    v = wb.array([[1.0, 2.0, 3.0]], dtype=wb.vec3)
    np.testing.assert_array_equal((v * 2.0 + wb.vec3(1, 1, 1)).numpy(), [[3, 5, 7]])
    s = wb.array([2.0])
    v *= s
    np.testing.assert_array_equal(v.numpy(), [[2, 4, 6]])
    with pytest.raises(wb.LaunchError, match="product"):
        v * v


def test_operators_refuse_other_dtypes_shapes_and_things():
    x = leaf(A)
    with pytest.raises(wb.LaunchError, match="mixed-types"):
        x * leaf(A, wb.float32)
    with pytest.raises(wb.LaunchError, match="shape"):
        x + leaf([1, 2])
    with pytest.raises(wb.LaunchError, match="argument-type"):
        x + "1"
    v = wb.array([[1.0, 2.0, 3.0]], dtype=wb.vec3)
    s = wb.array([2.0])
    with pytest.raises(wb.LaunchError, match="dtype"):
        s *= v


# ---- sums


def test_the_sum_into_out_is_recorded_and_its_gradient_is_one_everywhere():
    x = leaf(np.arange(600.0).reshape(20, 30))
    loss = wb.full(1, 77.0, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        y = x * x
        assert wb.utils.array_sum(y, out=loss) is loss
    assert loss.item() == (x.numpy() ** 2).sum()
    tape.backward(loss)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * x.numpy())


def test_the_sum_of_a_strided_array_and_of_vectors():
    x = leaf(np.arange(12.0).reshape(3, 4))
    loss = wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.utils.array_sum(x[:, 1], out=loss)
    assert loss.item() == 1 + 5 + 9
    tape.backward(loss)
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 1, 0, 0]] * 3)
    v = wb.array(np.arange(6.0).reshape(2, 3), dtype=wb.vec3)
    np.testing.assert_array_equal(wb.utils.array_sum(v), [3, 5, 7])


@pytest.mark.parametrize("shape", [(3,), (300,), (2, 3)])
def test_the_inner_product_is_exact_also_of_an_array_with_itself(shape):
    a, b = seed(shape), seed(shape)[::-1] + 0.5
    x, y = leaf(a), leaf(b)
    loss = wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.utils.array_inner(x, y, out=loss)
    np.testing.assert_allclose(loss.item(), (a * b).sum())
    tape.backward(loss)
    np.testing.assert_array_equal(x.grad.numpy(), b)
    np.testing.assert_array_equal(y.grad.numpy(), a)
    x = leaf(a)
    with wb.Tape() as tape:
        wb.utils.array_inner(x, x, out=loss)
    tape.backward(loss)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * a)


def test_inner_products_of_vectors_and_matrices_are_numbers():
    v = wb.array(np.arange(6.0).reshape(2, 3), dtype=wb.vec3)
    assert wb.utils.array_inner(v, v) == 55.0
    m = wb.array(np.arange(8.0).reshape(2, 2, 2), dtype=wb.mat22)
    assert wb.utils.array_inner(m, m) == 140.0


def test_a_sum_may_be_written_into_the_array_that_it_sums():
    x = leaf(A)
    with wb.Tape() as tape:
        wb.utils.array_sum(x, out=x[1:2])
    a = np.array(A)
    np.testing.assert_allclose(x.numpy(), [a[0], a.sum(), a[2], a[3]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tape.backward(grads={x: wb.array([1.0, 10.0, 100.0, 1000.0], dtype=F)})
        np.testing.assert_array_equal(x.grad.numpy(), [11, 10, 110, 1010])


def test_without_out_a_sum_is_a_number():
    assert wb.utils.array_sum(wb.array([1, 2, 3])) == 6
    assert wb.utils.array_sum(wb.zeros(0)) == 0.0
    assert wb.utils.array_inner(wb.array([1.0, 2.0]), wb.array([3.0, 4.0])) == 11.0


def test_the_sum_of_many_float32_keeps_its_digits(backend):
    n = 100_000 if backend == "c" else 2_000
    values = np.full(n, 0.1, np.float32)
    exact = values.astype(float).sum()
    assert abs(wb.utils.array_sum(wb.array(values)) - exact) < 3e-6 * exact


def test_a_number_may_not_leave_the_tape_if_its_gradient_would_be_lost():
    x = leaf(A)
    with wb.Tape() as tape:
        y = x * x
        for call in (lambda: wb.utils.array_sum(y), lambda: wb.utils.array_inner(y, y)):
            with pytest.raises(wb.GradientError, match="value-leaves-tape") as e:
                call()
        assert "out=loss" in str(e.value)
        assert wb.utils.array_sum(wb.array([1.0, 2.0])) == 3.0
    assert len(tape.launches) == 1
    assert wb.utils.array_sum(y) == pytest.approx(np.square(A).sum())


def test_sums_refuse_what_they_cannot_add():
    for bad in ([1.0, 2.0], wb.zeros(3, dtype=wb.bool), wb.zeros(2, dtype=Ball)):
        with pytest.raises(wb.LaunchError, match="argument-type"):
            wb.utils.array_sum(bad)
    with pytest.raises(wb.LaunchError, match=r"\[out\]"):
        wb.utils.array_sum(wb.zeros(3), out=wb.zeros(1, dtype=F))
    with pytest.raises(wb.LaunchError, match=r"\[out\]"):
        wb.utils.array_sum(wb.zeros(3), out=wb.zeros(2))
    with pytest.raises(wb.LaunchError, match="shape"):
        wb.utils.array_inner(wb.zeros(3), wb.zeros(4))

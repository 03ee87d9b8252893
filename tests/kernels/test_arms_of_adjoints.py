"""What an adjoint must not do, one test for each arm of a condition: aliases, results of atomics, risky values."""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.ops.row import ROWS
from workbench.kernels.row import NO_GRADIENT, Effect

F = wb.float64

pytestmark = pytest.mark.usefixtures("backend")


def made(text: str) -> wb.Kernel:
    """The kernel `k` of a source text."""
    file = f"<arms {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile("import workbench as wb\nF = wb.float64\n" + text, file, "exec"), scope := {})
    return wb.Kernel(func=scope["k"])


def leaf(*values: float) -> wb.array:
    return wb.array(np.array(values, float), dtype=F, requires_grad=True)


@wb.func
def scaled(a: wb.array(dtype=F), v: F, i: int):
    return a[i] * v


@wb.func_grad(scaled)
def adj_scaled(a: wb.array(dtype=F), v: F, i: int, g: F):
    wb.adjoint[v] += g * a[i]
    wb.adjoint[a][i] += g * v


@wb.kernel
def through_another_name(a: wb.array(dtype=F), b: wb.array(dtype=F), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = scaled(a, x[i], i)
    b[i] = F(9.0)


def test_a_func_grad_that_reads_what_the_kernel_writes_under_another_name_is_refused():
    a, x, y = leaf(2.0, 3.0), leaf(5.0, 7.0), wb.zeros(2, dtype=F)
    with pytest.raises((wb.KernelError, wb.GradientError), match="grad-reads-written"):
        with wb.Tape() as tape:
            wb.launch(through_another_name, 2, [a, a, x, y])
        tape.backward(grads={y: wb.ones(2, dtype=F)})
    other = wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(through_another_name, 2, [leaf(2.0, 3.0), other, x, y])
    tape.backward(grads={y: wb.ones(2, dtype=F)})
    np.testing.assert_array_equal(x.grad.numpy(), [2.0, 3.0])


@wb.kernel
def least_before(lo: wb.array(dtype=F), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    y[0] = wb.atomic_min(lo, 0, x[0])


@wb.kernel
def least(lo: wb.array(dtype=F), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    wb.atomic_min(lo, 0, x[0])


@wb.kernel
def least_and_most(lo: wb.array(dtype=F), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    wb.atomic_min(lo, 0, x[0])
    wb.atomic_max(lo, 0, y[0])


@wb.kernel
def least_and_read(lo: wb.array(dtype=F), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    wb.atomic_min(lo, 0, x[0])
    y[0] = lo[1]


@wb.kernel
def least_under_two_names(lo: wb.array(dtype=F), x: wb.array(dtype=F), y: wb.array(dtype=F)):
    wb.atomic_min(lo, 0, x[0])
    wb.atomic_min(y, 1, x[0])


@pytest.mark.parametrize("kernel", [least_before, least_and_most, least_and_read, least_under_two_names])
def test_an_extreme_whose_memory_is_used_otherwise_too_is_refused(kernel):
    lo, x = leaf(1.0, 1.0), leaf(4.0)
    y = lo if kernel is least_under_two_names else wb.zeros(2, dtype=F, requires_grad=True)
    asked = y if kernel is least_before else lo  # what the atomic returned, else what it left
    with wb.Tape() as tape:
        wb.launch(kernel, 1, [lo, x, y])
    text = "and that value is used" if kernel is least_before else "another use of the same memory"
    with pytest.raises(wb.GradientError, match="atomic-mixed") as refused:
        tape.backward(grads={asked: wb.ones(2, dtype=F)})
    assert text in str(refused.value)


def test_another_element_of_that_memory_has_its_derivative():
    lo, x, y = leaf(1.0, 1.0), leaf(4.0), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(least_and_read, 1, [lo, x, y])
    tape.backward(grads={y: wb.ones(2, dtype=F)})
    assert lo.grad.list() == [0.0, 1.0] and x.grad.list() == [0.0]


def test_an_extreme_alone_has_a_derivative():
    lo, x = leaf(1.0), leaf(4.0)
    with wb.Tape() as tape:
        wb.launch(least, 1, [lo, x, wb.zeros(1, dtype=F)])
    tape.backward(grads={lo: wb.ones(1, dtype=F)})
    assert x.grad.list() == [0.0] and lo.numpy().tolist() == [1.0]


def unary() -> list[str]:
    """Differentiable functions of one float."""
    found = []
    for name, row in ROWS.items():
        if row.effect is not Effect.PURE or row.adjoint in (None, NO_GRADIENT) or row.typed_by_attr:
            continue
        try:
            fits = callable(getattr(wb, name, None)) and row.type(F) is F
        except (wb.KernelError, TypeError, AttributeError):
            continue
        alone = row.doc.startswith(f"{name}(") and "," not in row.doc.partition(")")[0]
        found += [name] if fits and alone else []
    return found


@pytest.mark.parametrize("name", unary())
def test_a_function_behind_an_infinite_value_passes_an_adjoint_of_zero_as_zero(name):
    kernel = made(
        "def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):\n    i = wb.tid()\n"
        f"    y[i] = wb.where(x[i] == F(0.0), x[i], wb.{name}(F(1.0) / x[i]) * x[i] / F(3.0))\n"
    )
    x, y = leaf(0.0, -0.0), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, 2, [x, y])
    tape.backward(grads={y: wb.array([2.0, 3.0], dtype=F)})
    assert x.grad.list() == [2.0, 3.0]


def test_the_functions_of_one_float_are_found():
    assert {"sin", "cos", "exp", "sqrt", "tanh"} <= set(unary())


@wb.kernel
def cosine_times_zero(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = wb.cos(F(1.0) / x[i]) * F(0.0)


def test_the_cosine_of_infinity_times_zero_has_the_slope_zero():
    x, y = leaf(0.0, 2.0), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(cosine_times_zero, 2, [x, y])
    tape.backward(grads={y: wb.ones(2, dtype=F)})
    assert x.grad.list() == [0.0, 0.0]


@wb.kernel
def unit(v: wb.array(dtype=wb.vec3d), u: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    u[i] = wb.normalize(v[i])


def test_the_direction_of_nan_has_the_gradient_nan():
    v = wb.array(np.array([[np.nan, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]]), dtype=wb.vec3d, requires_grad=True)
    u = wb.zeros(3, dtype=wb.vec3d)
    with wb.Tape() as tape:
        wb.launch(unit, 3, [v, u])
    with pytest.warns(UserWarning, match="`normalize` at a zero vector"):
        tape.backward(grads={u: wb.ones(3, dtype=wb.vec3d)})
    assert np.isnan(v.grad.numpy()[0]).all()
    np.testing.assert_array_equal(v.grad.numpy()[1:], [[0, 0, 0], [0.5, 0, 0.5]])


SILENT = 2519049623  # the next state is 7, from which randf makes 0


@wb.kernel
def normal_numbers(state: wb.array(dtype=wb.uint32), unit: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    s = state[i]
    t = state[i]
    unit[i] = wb.randf(t)
    y[i] = wb.randn(s)


def test_the_state_whose_unit_is_zero_makes_a_finite_normal_number():
    unit, y = wb.zeros(1), wb.zeros(1)
    wb.launch(normal_numbers, 1, [wb.array(np.array([SILENT], np.uint32)), unit, y])
    assert unit.list() == [0.0] and np.isfinite(y.numpy()).all() and abs(y.list()[0]) > 8


@wb.kernel
def beside_other_atomics(
    x: wb.array(dtype=wb.float64),
    w: wb.array(dtype=wb.float64),
    count: wb.array(dtype=int),
    total: wb.array(dtype=wb.float64),
    top: wb.array(dtype=wb.float64),
):
    i = wb.tid()
    v = x[i] * w[i % 3]
    wb.atomic_add(count, i % 2, 1)
    wb.atomic_sub(total, 0, v * v)
    wb.atomic_max(top, i % 2, v)
    wb.atomic_add(total, 1, w[i % 3] * v)


def test_extremes_beside_sums_and_counts_share_their_ties_and_leave_the_others_alone():
    xs, ws, g, h = np.array([1.0, 2, 3, 3, 1, 6]), np.array([3.0, 1, 1]), np.array([1.0, 10]), np.array([5.0, 7])
    x, w = (wb.array(a, dtype=wb.float64, requires_grad=True) for a in (xs, ws))
    count, total, top = wb.zeros(2, dtype=int), wb.zeros(2, dtype=wb.float64), wb.zeros(2, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(beside_other_atomics, 6, [x, w], [count, total, top])
    tape.backward(grads={total: wb.array(h), top: wb.array(g)})
    at, v = np.arange(6), xs * ws[np.arange(6) % 3]  # 3, 2, 3 and 9, 1, 6: the first extreme is one of two alike
    share = np.array([g[0] / 2, 0, g[0] / 2, g[1], 0, 0])
    slope = share - 2 * h[0] * v + h[1] * ws[at % 3]
    assert count.list() == [3, 3] and top.list() == [3.0, 9.0]
    np.testing.assert_allclose(total.numpy(), [-(v**2).sum(), (ws[at % 3] * v).sum()])
    np.testing.assert_allclose(x.grad.numpy(), slope * ws[at % 3])
    np.testing.assert_allclose(w.grad.numpy(), np.bincount(at % 3, slope * xs + h[1] * v))

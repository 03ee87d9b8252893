"""gradcheck finds what is wrong and says where, and never succeeds at nothing; Jacobians; losses for optimizers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from corpus import Program, load

import workbench as wb
from tests.support.backends import BACKENDS
from workbench.kernels.ops.row import ROWS

PROGRAMS = load()
pytestmark = pytest.mark.filterwarnings("ignore:.*overw:UserWarning")


def f32(values, **rest) -> wb.array:
    return wb.array(np.array(values, np.float32), **rest)


def f64(values, **rest) -> wb.array:
    return wb.array(np.array(values, np.float64), **rest)


@wb.func
def cube(x: float):
    return x * x * x


@wb.func_grad(cube)
def cube_grad(x: float, g: float):
    wb.adjoint[x] += 3.0 * x * x * g


@wb.func
def bent(x: float, y: wb.vec3):
    return x * wb.dot(y, y), x + y[0]


@wb.func_grad(bent)
def bent_grad(x: float, y: wb.vec3, g: float, h: float):
    wb.adjoint[x] += wb.dot(y, y) * g + h
    wb.adjoint[y] += 2.0 * x * y * g  # forgets h


@wb.func
def forgotten(x: float):
    return x * x * x


@wb.func_grad(forgotten)
def forgotten_grad(x: float, g: float):
    wb.adjoint[x] += 2.0 * x * x * g


@wb.kernel
def right(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = wb.sin(x[i]) * x[i] + cube(x[i])


@wb.kernel
def wrong(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = forgotten(x[i]) + x[i]


@wb.kernel
def wrong_at_four(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    if i == 4:
        y[i] = forgotten(x[i])
    else:
        y[i] = x[i]


@wb.kernel
def absolute(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = wb.abs(x[i])


@wb.kernel
def steps(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = wb.floor(x[i])


@wb.kernel
def whole(x: wb.array(dtype=int), y: wb.array(dtype=int)):
    i = wb.tid()
    y[i] = x[i] + 1


X = [0.5, 0.7, 0.9, 1.1, 1.3, 1.5]


# ---- gradcheck says yes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("full", [False, True])
def test_a_right_gradient_agrees_to_nine_digits(backend: str, full: bool):
    wb.config.backend = backend
    x, y = f32(X), wb.zeros(6)
    report = wb.gradcheck(right, 6, [x], [y], full=full)
    (row, still) = report.rows
    assert report and row.input == "x" and not row.skipped
    assert row.max_rel < 1e-8 and row.largest > 1
    assert row.compared == (6 if full else 2) and (row.worst is None) != full
    assert still.input == "y" and still.largest == 0
    np.testing.assert_array_equal(y.numpy(), np.zeros(6))
    assert not x.requires_grad and x.grad is None


def test_a_program_is_checked_in_its_own_types_when_asked():
    report = wb.gradcheck(right, 6, [f32(X)], [wb.zeros(6)], dtype=None)
    assert 1e-8 < report.rows[0].max_rel < 1e-2


@pytest.mark.sampled
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_every_program_of_the_corpus_passes(program: Program):
    """Launch by launch and end to end; only where every derivative is zero there is nothing to check."""
    wb.config.backend = "numpy"
    F = wb.float32 if wb.float32 in program.dtypes else program.dtypes[0]
    arrays, made = program.arrays(F, program.start()), program.make(F)

    def whole_program(*given):
        made(SimpleNamespace(**dict(zip(arrays, given, strict=True))))

    try:
        if isinstance(made, wb.Kernel):
            report = wb.gradcheck(made, program.dim, list(arrays.values()))
        else:
            report = wb.gradcheck(whole_program, inputs=list(arrays.values()))
        ties = program.name == "extremes_that_feed_a_loss"  # its second launch starts where the first has put a tie
        assert not report.wrong and bool(report) is not ties
    except wb.GradientError as error:
        assert error.slug == "gradcheck-vacuous", str(error)
        assert program.name in ("function_floor", "function_trunc", "an_array_overwritten_by_constants")


def test_a_report_prints_as_text_and_as_a_table():
    report = wb.gradcheck(right, 6, [f32(X)], [wb.zeros(6)])
    first, *lines = str(report).splitlines()
    assert first == report.summary == "2 of 2 gradients agree with differences."
    assert lines[0].split()[:2] == ["launch", "input"] and "right  x" in lines[1] and lines[1].endswith("ok")
    assert report._repr_html_().count("<tr") == 3 and "<td>x</td>" in report._repr_html_()


# ---- gradcheck says no, and where


def test_a_wrong_func_grad_is_found_and_its_element_named():
    with pytest.raises(wb.GradientError) as error:
        wb.gradcheck(wrong_at_four, 6, [f32(X)], [wb.zeros(6)])
    assert error.value.slug == "gradcheck"
    assert "wrong_at_four, input 'x', element (4,)" in str(error.value)
    assert error.value.where.text.strip() == "def forgotten_grad(x: float, g: float):"
    report = wb.gradcheck(wrong_at_four, 6, [f32(X)], [wb.zeros(6)], raise_exception=False)
    (row,) = report.wrong
    assert not report and "WRONG" in str(report) and "#C0189B" in report._repr_html_()
    assert row.worst == (4,) and row.adjoint / row.measured == pytest.approx(2 / 3, rel=1e-4)


def test_an_element_is_found_among_many():
    @wb.kernel
    def late(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        if i == 777:
            y[i] = forgotten(x[i])
        else:
            y[i] = x[i]

    x = f32(np.linspace(0.5, 1.5, 1000))
    report = wb.gradcheck(late, 1000, [x], [wb.zeros(1000)], raise_exception=False)
    assert report.wrong[0].worst == (777,)


@pytest.mark.parametrize("backend", BACKENDS)
def test_among_several_launches_the_wrong_one_is_named(backend: str):
    wb.config.backend = backend

    def model(x):
        h, y = wb.zeros(6, requires_grad=True), wb.zeros(6)
        wb.launch(right, 6, [x], [h])
        wb.launch(wrong, 6, [h], [y])
        wb.launch(right, 6, [y], [h])
        return h

    report = wb.gradcheck(model, inputs=[f32(X)], raise_exception=False)
    moving = [r for r in report.rows if r.largest]
    launches = {r.launch.split()[1] if r.launch.startswith("#") else r.launch: bool(r.wrong) for r in moving}
    assert launches == {"right": False, "wrong": True, "end to end": True}
    assert {(r.input, r.wrong) for r in moving if r.launch == "end to end"} == {("x", True)}
    with pytest.raises(wb.GradientError, match="wrong, input 'x'") as error:
        wb.gradcheck(model, inputs=[f32(X)])
    assert "def forgotten_grad" in error.value.where.text


def test_a_broken_rule_of_a_row_is_found(monkeypatch: pytest.MonkeyPatch):
    @wb.kernel
    def k(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = wb.cos(x[i])

    rule = ROWS["cos"].adjoint
    monkeypatch.setitem(ROWS["cos"].__dict__, "adjoint", lambda g, y, x: (ROWS["neg"](rule(g, y, x)[0]),))
    assert not wb.gradcheck(k, 6, [f32(X)], [wb.zeros(6)], raise_exception=False)


def test_a_gradient_that_is_not_finite_is_wrong():
    @wb.func
    def same(x: float):
        return x

    @wb.func_grad(same)
    def nothing(x: float, g: float):
        wb.adjoint[x] += g * wb.nan

    @wb.kernel
    def k(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = same(x[i])

    report = wb.gradcheck(k, 6, [f32(X)], [wb.zeros(6)], raise_exception=False)
    assert report.wrong and report.wrong[0].max_abs == np.inf


@pytest.mark.slow
def test_a_recorded_tape_is_checked_with_its_host_writes_and_left_as_it_was():
    x, h, y = f32(X, requires_grad=True), wb.zeros(6), wb.zeros(6)
    with wb.Tape(keep="all") as tape:
        wb.launch(right, 6, [x], [h])
        wb.copy(x, h)
        h.fill_(0.25)
        wb.launch(right, 6, [x], [x])
        wb.launch(absolute, 6, [x], [y])
    before = [a.data.copy() for a in (x, h, y)]
    report = wb.gradcheck(tape)
    assert {r.launch for r in report.rows if r.largest} >= {"end to end"} and report
    for a, values in zip((x, h, y), before, strict=True):
        np.testing.assert_array_equal(a.data, values)
    with wb.Tape() as needed:
        wb.launch(right, 6, [x], [h])
    with pytest.raises(wb.GradientError) as error:
        wb.gradcheck(needed)
    assert error.value.slug == "not-kept"


def test_arguments_that_share_memory_are_checked_as_what_they_are():
    @wb.kernel
    def moved(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = x[i] * x[i]

    a = f32(X)
    assert wb.gradcheck(moved, 6, [a, a])
    np.testing.assert_array_equal(a.numpy(), np.float32(X))


def test_structs_vectors_and_declared_scalars_are_inputs():
    @wb.struct
    class Ball:
        at: wb.array(dtype=wb.vec3)
        mass: float

    @wb.kernel
    def energy(ball: Ball, g: float, e: wb.array(dtype=float)):
        i = wb.tid()
        wb.atomic_add(e, 0, ball.mass * g * g * wb.length(ball.at[i]))

    ball = Ball(at=wb.array(np.arange(1, 7, dtype=np.float32).reshape(2, 3), dtype=wb.vec3), mass=2.0)
    g = wb.scalar(3.0, requires_grad=True)

    def model(ball, e):
        wb.launch(energy, 2, [ball, g, e])
        return e

    report = wb.gradcheck(model, inputs=[ball, wb.zeros(1)])
    assert {r.input for r in report.rows if r.largest} >= {"ball.at", "g", "e"}
    assert report and ball.at.grad is None and g.grad.item() == 0


# ---- never vacuously true


def refused(*args, **rest) -> str:
    with pytest.raises(wb.GradientError) as error:
        wb.gradcheck(*args, **rest)
    return error.value.slug


def test_a_check_that_compared_nothing_is_an_error():
    integers = [wb.array(np.arange(3, dtype=np.int32)), wb.zeros(3, dtype=int)]
    assert refused(whole, 3, integers) == "gradcheck-vacuous"
    assert refused(right, 0, [f32(X), wb.zeros(6)]) == "gradcheck-vacuous"
    assert refused(lambda x: None, inputs=[f32(X)]) == "gradcheck-vacuous"


def test_a_check_that_compared_only_zeros_is_an_error():
    assert refused(steps, 6, [f32(X)], [wb.zeros(6)]) == "gradcheck-vacuous"
    assert refused(steps, 6, [f32(X)], [wb.zeros(6)], raise_exception=False) == "gradcheck-vacuous"


def test_a_kink_is_skipped_and_said_and_alone_it_proves_nothing():
    report = wb.gradcheck(absolute, 3, [f32([0.0, 1.0, -2.0])], [wb.zeros(3)], full=True)
    assert (report.rows[0].compared, report.rows[0].skipped) == (2, 1)
    report = wb.gradcheck(absolute, 3, [f32([0.0, 1.0, -2.0])], [wb.zeros(3)])
    assert report.rows[0].skipped and report.rows[0].compared
    assert refused(absolute, 2, [f32([0.0, 0.0])], [wb.zeros(2)], full=True) == "gradcheck-vacuous"


def test_a_derivative_that_drowns_in_the_outputs_is_not_called_right():
    @wb.kernel
    def drowned(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = forgotten(x[i]) + 1.0e15

    assert refused(drowned, 6, [f32(X)], [wb.zeros(6)]) == "gradcheck-vacuous"


def test_what_cannot_be_checked_says_what_can():
    with pytest.raises(TypeError, match="launch dimensions"):
        wb.gradcheck(right, inputs=[f32(X), wb.zeros(6)])
    with pytest.raises(TypeError, match="a kernel, a function or a tape"):
        wb.gradcheck(3)
    with pytest.raises(ValueError, match="float64"):
        wb.gradcheck(right, 6, [f32(X)], [wb.zeros(6)], dtype=wb.float32)


# ---- check_rule


def test_a_right_rule_agrees_to_rounding():
    report = wb.verify.check_rule(cube)
    assert report and report.rows[0].compared == 64 and report.rows[0].max_rel < 1e-12


def test_a_wrong_rule_is_named_with_its_argument_and_point():
    with pytest.raises(wb.GradientError) as error:
        wb.verify.check_rule(forgotten)
    assert error.value.slug == "check-rule"
    assert "func_grad of forgotten is wrong for 'x': at x=" in str(error.value)
    report = wb.verify.check_rule(bent, raise_exception=False)
    assert [(r.input, r.wrong) for r in report.rows] == [
        ("x -> out0", False),
        ("x -> out1", False),
        ("y -> out0", False),
        ("y -> out1", True),
    ]
    assert report.rows[3].worst[1] == 0 and (report.rows[3].adjoint, report.rows[3].measured) == (0.0, 1.0)


def test_a_rule_without_annotations_is_given_types():
    @wb.func
    def plain(x, y):
        return x * y

    @wb.func_grad(plain)
    def plain_grad(x, y, g):
        wb.adjoint[x] += y * g
        wb.adjoint[y] += x * g

    with pytest.raises(TypeError, match="needs the types"):
        wb.verify.check_rule(plain)
    assert wb.verify.check_rule(plain, wb.float32, wb.float32)
    with pytest.raises(TypeError, match="with a func_grad"):
        wb.verify.check_rule(right)


# ---- Jacobians


def stretched():
    x, v = f64([2, 3], requires_grad=True), wb.array(np.array([[1.0, 2], [3, 4]]), dtype=wb.vec2d, requires_grad=True)
    y = wb.zeros(2, dtype=wb.vec2d)

    @wb.kernel
    def stretch(x: wb.array(dtype=wb.float64), v: wb.array(dtype=wb.vec2d), y: wb.array(dtype=wb.vec2d)):
        i = wb.tid()
        y[i] = x[0] * x[1] * v[i]

    with wb.Tape() as tape:
        wb.launch(stretch, 2, [x, v], [y])
    return tape, x, v, y


@pytest.mark.parametrize("mode", ["rows", "columns", None])
def test_a_jacobian_has_the_axes_of_y_then_those_of_x(mode):
    tape, x, v, y = stretched()
    x.grad.fill_(7.0)
    by_x, by_v = wb.jacobian(tape, y, x, mode), wb.jacobian(tape, y, v, mode)
    assert by_x.shape == (2, 2, 2) and by_v.shape == (2, 2, 2, 2)
    np.testing.assert_array_equal(by_x, np.stack([3 * v.numpy(), 2 * v.numpy()], axis=-1))
    np.testing.assert_array_equal(by_v.reshape(4, 4), 6 * np.eye(4))
    np.testing.assert_array_equal(x.grad.numpy(), [7, 7])
    np.testing.assert_array_equal(wb.jacobian(tape, y, x[1:], mode), by_x[..., 1:])


def test_rows_and_columns_agree_over_an_accumulated_and_overwritten_intermediate():
    @wb.kernel
    def mix(x: wb.array(dtype=wb.float64), h: wb.array(dtype=wb.float64)):
        i = wb.tid()
        wb.atomic_add(h, i // 2, x[i] * x[i])

    @wb.kernel
    def twist(h: wb.array(dtype=wb.float64), y: wb.array(dtype=wb.float64)):
        i = wb.tid()
        y[i] = wb.exp(h[i]) * h[1 - i]

    x = f64([0.1, 0.2, 0.3, 0.4], requires_grad=True)
    h, y = wb.zeros(2, dtype=wb.float64), wb.zeros(2, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(mix, 4, [x], [h])
        wb.launch(twist, 2, [h], [y])
        h.zero_()
    rows, columns = wb.jacobian(tape, y, x, "rows"), wb.jacobian(tape, y, x, "columns")
    a, b = 0.01 + 0.04, 0.09 + 0.16
    dh = np.array([[np.exp(a) * b, np.exp(a)], [np.exp(b), np.exp(b) * a]])
    want = dh[:, [0, 0, 1, 1]] * 2 * x.numpy()
    np.testing.assert_allclose(rows, want, rtol=1e-14)
    np.testing.assert_allclose(columns, rows, rtol=1e-14)


def test_a_jacobian_by_what_was_not_followed_is_refused():
    x, c, y = f32(X, requires_grad=True), f32(X), wb.zeros(6)
    with wb.Tape() as tape:
        wb.launch(right, 6, [x], [y])
    for (of, by), slug in {(y, c): "not-active", (c, x): "seed-untouched", (3, x): "seed-type"}.items():
        with pytest.raises(wb.GradientError) as error:
            wb.jacobian(tape, of, by)
        assert error.value.slug == slug
    with pytest.raises(ValueError, match="rows"):
        wb.jacobian(tape, y, x, "diagonals")


# ---- losses for optimizers


@wb.kernel
def rosenbrock(x: wb.array(dtype=wb.float64), loss: wb.array(dtype=wb.float64)):
    i = wb.tid()
    a = x[i + 1] - x[i] * x[i]
    b = wb.float64(1.0) - x[i]
    wb.atomic_add(loss, 0, wb.float64(100.0) * a * a + b * b)


def valley(x):
    loss = wb.zeros(1, dtype=wb.float64)
    wb.launch(rosenbrock, x.size - 1, [x], [loss])
    return loss


@pytest.mark.slow
def test_scipy_minimizes_a_kernel():
    from scipy.optimize import check_grad, minimize, rosen, rosen_der

    loss = wb.value_and_grad(valley)
    x = np.array([0.3, -1.2, 0.7])
    value, grad = loss(x)
    assert isinstance(value, float) and grad.dtype == np.float64
    np.testing.assert_allclose(value, rosen(x), rtol=1e-14)
    np.testing.assert_allclose(grad, rosen_der(x), rtol=1e-13)
    assert check_grad(lambda p: loss(p)[0], lambda p: loss(p)[1], x) < 1e-4
    found = minimize(loss, np.zeros(4), jac=True, method="BFGS")
    np.testing.assert_allclose(found.x, np.ones(4), atol=1e-4)
    assert len(loss.tape) == 1


@pytest.mark.slow
@pytest.mark.needs_torch
def test_an_optimizer_of_torch_minimizes_a_kernel():
    import torch

    loss = wb.value_and_grad(valley)
    x = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    value, grad = loss(x)
    assert value == 3.0 and grad.dtype == torch.float64 and grad.shape == x.shape and x.grad is None
    optimizer = torch.optim.LBFGS([x], max_iter=200, line_search_fn="strong_wolfe")
    optimizer.step(loss.closure(x))
    np.testing.assert_allclose(x.detach().numpy(), np.ones(4), atol=1e-4)


def test_a_flat_vector_is_folded_into_the_array_that_the_function_wants():
    @wb.kernel
    def lengths(p: wb.array(dtype=wb.vec3), loss: wb.array(dtype=float)):
        wb.atomic_add(loss, 0, wb.length_sq(p[wb.tid()]))

    def fn(p):
        assert p.shape == (2,) and p.dtype is wb.vec3
        loss = wb.zeros(1)
        wb.launch(lengths, 2, [p], [loss])
        return loss

    flat = np.arange(6.0)
    value, grad = wb.value_and_grad(fn, like=wb.zeros(2, dtype=wb.vec3))(flat)
    assert value == 55.0 and grad.dtype == np.float64
    np.testing.assert_array_equal(grad, 2 * flat)


def test_several_arguments_have_several_gradients_and_arrays_stay_arrays():
    @wb.kernel
    def product(a: wb.array(dtype=float), b: wb.array(dtype=float), s: float, loss: wb.array(dtype=float)):
        i = wb.tid()
        wb.atomic_add(loss, 0, s * a[i] * b[i])

    def fn(a, b, s):
        loss = wb.zeros(1)
        wb.launch(product, 2, [a, b, s], [loss])
        return loss

    a, b = f32([1, 2]), np.array([3, 4], np.float32)
    value, (da, db) = wb.value_and_grad(fn, argnums=(0, 1))(a, b, 2.0)
    assert value == 22.0 and isinstance(da, wb.array) and isinstance(db, np.ndarray) and db.dtype == np.float32
    np.testing.assert_array_equal(da.numpy(), [6, 8])
    np.testing.assert_array_equal(db, [2, 4])
    assert not a.requires_grad


def test_a_loss_that_is_none_is_refused():
    def unused(x):
        loss = wb.zeros(1, dtype=wb.float64)
        wb.launch(rosenbrock, 1, [f64([1, 2])], [loss])
        return loss

    same = {(lambda x: 3.0): "loss-shape", unused: "unused-argument", (lambda x: x): "unused-argument"}
    for fn, slug in same.items():
        with pytest.raises(wb.GradientError) as error:
            wb.value_and_grad(fn)(np.zeros(3))
        assert error.value.slug == slug
    with pytest.raises(TypeError, match="a function of arrays"):
        wb.value_and_grad(3)


# ---- second derivatives


@wb.kernel
def squares(a: wb.array(dtype=wb.float64), w: wb.array(dtype=wb.float64), loss: wb.array(dtype=wb.float64)):
    i = wb.tid()
    wb.atomic_add(loss, 0, w[i] * a[i] * a[i])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hessian_times_a_vector_is_exact(backend: str):
    from scipy.optimize import rosen_hess

    wb.config.backend = backend
    at, v = np.array([0.3, -1.2, 0.7, 2.0]), np.array([1.0, 2.0, -3.0, 0.5])
    x = f64(at, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        loss = valley(x)
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: v})[x], rosen_hess(at) @ v, rtol=1e-13)
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros(4))


@pytest.mark.slow
def test_a_hessian_reaches_through_copies_fills_and_stores_in_place():
    @wb.kernel
    def powers(x: wb.array(dtype=wb.float64), h: wb.array(dtype=wb.float64)):
        i = wb.tid()
        h[i] = x[i] * x[i]
        x[i] = h[i] * x[i]

    x, h = f64([2, 3], requires_grad=True), wb.zeros(2, dtype=wb.float64)
    loss, ones = wb.zeros(1, dtype=wb.float64), wb.ones(2, dtype=wb.float64)
    with wb.Tape(keep="all") as tape:
        wb.launch(powers, 2, [x, h])  # x**3
        wb.copy(h, x)
        x.fill_(1.0)
        wb.launch(squares, 2, [h, ones], [loss])  # x**6
    got = wb.hvp(tape, loss, {x: np.array([1.0, -1.0])})[x]
    np.testing.assert_allclose(got, 30 * np.array([16.0, -81.0]))
    np.testing.assert_array_equal(x.numpy(), [1, 1])


@wb.kernel
def even(x: wb.array(dtype=wb.float64), y: wb.array2d(dtype=wb.float64)):
    i = wb.tid()
    s = x[i] * x[i]
    u, v = s + wb.float64(1.0), wb.vec2d(s, wb.float64(1.0))
    y[i, 0] = wb.sqrt(u)
    y[i, 1] = wb.log(u)
    y[i, 2] = wb.float64(1.0) / u
    y[i, 3] = u * wb.sqrt(u)
    y[i, 4] = u ** wb.float64(0.75)
    y[i, 5] = wb.cbrt(u)
    y[i, 6] = wb.acos(s / wb.float64(2.0))
    y[i, 7] = wb.atan2(s, u)
    y[i, 8] = wb.normalize(v)[0]
    y[i, 9] = (v / (u + wb.float64(2.0)))[1]
    y[i, 10] = wb.inverse(wb.mat22d(u, wb.float64(0.0), wb.float64(0.0), wb.float64(2.0)))[0, 0]
    y[i, 11] = wb.sqrt(x[i])


@wb.kernel
def pick(y: wb.array2d(dtype=wb.float64), n: int, loss: wb.array(dtype=wb.float64)):
    wb.atomic_add(loss, 0, y[wb.tid(), n])


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:The slope of `sqrt` at 0 has no bound")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n, second", [*enumerate([1, 2, -2, 3, 1.5, 2 / 3, -1, 2, 2, -2 / 9, -2, -np.inf])])
def test_what_happens_to_have_the_tangent_zero_has_a_second_derivative(n: int, second: float, backend: str):
    """The square of x has the tangent 0 at 0, and everything is made of it; where x does not move nothing does."""
    wb.config.backend = backend
    x, y, loss = f64([0, 0], requires_grad=True), wb.zeros((2, 12), dtype=wb.float64), wb.zeros(1, dtype=wb.float64)
    with wb.Tape(keep="all") as tape:
        wb.launch(even, 2, [x], [y])
        wb.launch(pick, 2, [y, n], [loss])
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: [1.0, 0.0]})[x], [second, 0.0], rtol=1e-12)


REFUSED = {
    "atomic_min_of_squares",
    "atomic_max_of_groups",
    "atomic_extremes_in_loops_and_branches",
    "extremes_that_feed_a_loss",
    "custom_adjoints",
    "names_of_companions_of_extremes",
    "names_of_extremes_over_shared_memory",
}


@pytest.mark.sampled
@pytest.mark.parametrize("program", [p for p in PROGRAMS.values() if wb.float64 in p.dtypes], ids=str)
def test_the_hessian_of_every_program_of_the_corpus_is_the_slope_of_its_gradient(program: Program):
    wb.config.backend = "numpy"
    start, rng = program.start(), np.random.default_rng(0)
    v = {n: rng.integers(-8, 9, s.shape) / 8.0 for n, s in start.items() if s.dtype.kind == "f"}
    w = {n: rng.integers(-8, 9, s.size) / 8.0 for n, s in start.items()}

    def recorded(step: float):
        moved = {n: s + step * v[n] if n in v else s for n, s in start.items()}
        arrays, loss = program.arrays(wb.float64, moved), wb.zeros(1, dtype=wb.float64)
        mine = {n: a for n, a in arrays.items() if n in v and a.dtype.scalar is wb.float64}
        with wb.Tape(keep="all") as tape:
            program.run(wb.float64, arrays)
            for n, a in mine.items():
                flat = (a if a.dtype is wb.float64 else a.view(wb.float64)).flatten()
                wb.launch(squares, flat.size, [flat, f64(w[n])], [loss])
        return tape, loss, {n: a for n, a in mine.items() if a.allocation in tape.active}

    def gradient(step: float) -> dict[str, np.ndarray]:
        tape, loss, arrays = recorded(step)
        tape.backward(loss)
        return {n: a.grad.numpy() for n, a in arrays.items()}

    tape, loss, arrays = recorded(0.0)
    try:
        got = wb.hvp(tape, loss, {a: v[n] for n, a in arrays.items()})
    except (wb.GradientError, wb.KernelError) as error:
        assert program.name in REFUSED and error.slug == "second-derivative"
        return
    assert program.name not in REFUSED
    ahead, behind = gradient(1e-6), gradient(-1e-6)
    for n, a in arrays.items():
        want = (ahead[n] - behind[n]) / 2e-6
        scale = max(1.0, float(np.max(np.abs(want), initial=0)), float(np.max(np.abs(ahead[n]), initial=0)))
        assert np.all(np.abs(got[a] - want) <= 1e-6 * scale), f"{n}: {got[a]} want {want}"


def test_second_derivatives_need_a_tape_that_keeps_all():
    x = f64([1, 2], requires_grad=True)
    with wb.Tape() as tape:
        loss = valley(x)
    with pytest.raises(wb.GradientError) as error:
        wb.hvp(tape, loss, {x: np.ones(2)})
    assert error.value.slug == "not-kept"


def test_second_derivatives_of_float16_are_refused():
    @wb.kernel
    def k(x: wb.array(dtype=wb.float16), y: wb.array(dtype=float)):
        wb.atomic_add(y, 0, float(x[wb.tid()]))

    x, y = wb.array(np.ones(2, np.float16), requires_grad=True), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        wb.launch(k, 2, [x], [y])
    with pytest.raises(wb.GradientError) as error:
        wb.hvp(tape, y, {x: np.ones(2)})
    assert error.value.slug == "hvp-half"

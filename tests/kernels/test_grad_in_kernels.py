"""`grad(f)(x)` in a kernel: against closed forms, differentiated again, and refused where it would be wrong."""

import numpy as np
import pytest

import workbench as wb


@wb.func
def energy(v: wb.vec3, n: int, s: float):
    t = wb.float32(0.0)
    for _ in range(n):
        t += wb.dot(v, v) * s
        if t > 10.0:
            t = t * 0.5
    return t, v * s


def test_several_results_loops_and_integers(backend):
    @wb.kernel
    def k(out: wb.array[float]):
        by_v, by_n, by_s = wb.grad(energy)(wb.vec3(1.0, 2.0, 3.0), 3, 0.5)
        for j in range(3):
            out[j] = by_v[j]
        out[3] = float(by_n)
        out[4] = by_s

    out = wb.zeros(5)
    wb.launch(k, 1, [out])
    np.testing.assert_allclose(
        out.numpy(), [1.5, 2.5, 3.5, 0, 20], rtol=1e-6
    )  # warp-lang 1.19.0 gives 2.25, 4 ... 30.5


def test_builtins_overloads_names_and_functions_as_arguments(backend):
    @wb.func
    def f(x: float):
        return x * x

    @wb.func
    def f(x: float, y: float = 3.0):
        return x * y

    @wb.func
    def applied(g: wb.Function, x: float):
        return g(x)

    slope = wb.grad(f)

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = slope(5.0)
        a, b = slope(y=2.0, x=7.0)
        out[1] = a
        out[2] = b
        out[3] = wb.grad(wb.length)(wb.vec2(3.0, 4.0))[1]
        a, b = wb.grad(wb.atan2)(1.0, 2.0)
        out[4] = a
        out[5] = wb.grad(applied)(wb.sin, 0.5)
        out[6] = wb.grad(wb.max)(out[0], 1.0)[0]
        out[7] = wb.grad(abs)(-2.0)

    out = wb.zeros(8)
    wb.launch(k, 1, [out])
    np.testing.assert_allclose(out.numpy(), [10, 2, 7, 0.8, 0.4, np.cos(0.5), 1, -1], rtol=1e-6)


def test_the_gradient_goes_through_it(backend):
    @wb.func
    def cube(x: wb.float64, c: wb.float64):
        return c * x * x * x

    @wb.kernel
    def k(x: wb.array[wb.float64], c: wb.array[wb.float64], y: wb.array[wb.float64]):
        i = wb.tid()
        by_x, by_c = wb.grad(cube)(x[i], c[i])
        y[i] = by_x + by_c

    x, c = (wb.array(v, dtype=wb.float64, requires_grad=True) for v in ([2.0, -1.0], [0.5, 3.0]))
    y = wb.zeros(2, dtype=wb.float64)
    with wb.Tape(keep="all") as tape:
        wb.launch(k, 2, [x, c, y])
    wb.gradcheck(tape)
    tape.backward(grads={y: wb.ones(2, dtype=wb.float64)})
    np.testing.assert_allclose(x.grad.numpy(), 6 * c.numpy() * x.numpy() + 3 * x.numpy() ** 2)
    np.testing.assert_allclose(c.grad.numpy(), 3 * x.numpy() ** 2)


@wb.func
def kept(x: float):
    return x * x


@wb.func_grad(kept)
def adj_kept(x: float, adj: float):
    wb.adjoint[x] += 100.0 * adj


@wb.func
def around(x: float):
    return kept(x)


@wb.func
def writes(x: float, a: wb.array[float]):
    a[0] = x
    return x


@wb.func
def whole(x: float):
    return int(x)


@wb.func
def indexed(a: wb.array[float], x: float):
    return a[0] * x


@pytest.mark.parametrize(
    "f, args, text",
    [
        (kept, "1.0", "adjoint or a replay of its own"),
        (around, "1.0", "adjoint or a replay of its own"),
        (writes, "1.0, out", "writes to memory"),
        (whole, "1.0", "gives no float"),
        (3.0, "1.0", "takes a func or a builtin"),
        (len, "out", "takes a func or a builtin"),
        (wb.randf, "1", "takes a func or a builtin"),
    ],
)
def test_what_has_no_derivative_here_is_refused(f, args, text, tmp_path):
    import importlib.util

    path = tmp_path / "one.py"
    path.write_text(f"""
import workbench as wb
f = None

@wb.kernel
def k(out: wb.array[float]):
    out[1] = wb.grad(f)({args})
""")
    spec = importlib.util.spec_from_file_location("one", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    made.f = f
    with pytest.raises(wb.KernelError, match=text) as e:
        made.k.program()
    assert e.value.where.line == 7


def test_there_is_none_by_an_array():
    @wb.kernel
    def fine(out: wb.array[float]):
        _, by_x = wb.grad(indexed)(out, 2.0)
        out[0] = by_x

    @wb.kernel
    def bad(out: wb.array[float]):
        by_a, _ = wb.grad(indexed)(out, 2.0)
        out[0] = by_a

    out = wb.full(1, 5.0)
    wb.launch(fine, 1, [out])
    assert out.numpy().tolist() == [5]
    with pytest.raises(wb.KernelError, match="no derivative by `a`"):
        bad.program()


def test_what_a_func_claims_holds_for_its_derivative(backend):
    @wb.func
    def root(x: float):
        wb.expect_neq(x, 0.0)
        return wb.sqrt(x)

    @wb.kernel
    def k(x: wb.array[float], out: wb.array[float]):
        out[0] = wb.grad(root)(x[0])

    out = wb.zeros(1)
    wb.launch(k, 1, [wb.array([4.0]), out])
    assert out.numpy().tolist() == [0.25]
    with pytest.raises(wb.LaunchError):
        wb.launch(k, 1, [wb.zeros(1), out])


def test_it_is_seen_in_the_steps_and_runs_nowhere_else():
    @wb.kernel
    def k(x: wb.array[float], out: wb.array[float]):
        out[0] = wb.grad(wb.sin)(x[0])

    shown = dict(k.steps)
    assert "grad" in str(shown["read"]) and "cos" in str(shown["ir"]) and "grad (" not in str(shown["ir"])
    with pytest.raises(TypeError, match="inside a kernel"):
        wb.grad(wb.sin)(1.0)
    with pytest.raises(TypeError, match="a func or a builtin"):
        wb.grad(print)


def test_a_func_grad_may_ask_for_the_derivative_of_another_func(backend):
    @wb.func
    def root(x: float):
        return wb.sqrt(x)

    @wb.func_grad(root)
    def adj_root(x: float, g: float):
        if x > 0.0:
            wb.adjoint[x] += wb.grad(wb.sqrt)(x) * g

    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float]):
        y[wb.tid()] = root(x[wb.tid()])

    x, y = wb.array([1.0, 4.0, 0.0], requires_grad=True), wb.zeros(3)
    with wb.Tape() as tape:
        wb.launch(k, 3, [x], [y])
    tape.backward(grads={y: wb.ones(3)})
    assert x.grad.list() == [0.5, 0.25, 0.0]

"""JAX: arrays both ways, and kernels as functions that JAX jits and differentiates."""

import gc

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.needs_jax


@pytest.fixture
def jax():
    import jax

    return jax


@pytest.fixture
def x64(jax):
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@wb.kernel
def mix(x: wb.array(dtype=float), w: wb.array(dtype=float), a: float, y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = wb.sin(a * x[i]) * w[i] + x[i] * x[i]


def mixed(jnp, x, w, a):
    return jnp.sin(a * x) * w + x * x


@wb.kernel
def double(x: wb.array(dtype=wb.float64), n: int, y: wb.array(dtype=wb.float64), z: wb.array(dtype=wb.float64)):
    i = wb.tid()
    s = wb.float64(1.0)
    for _ in range(n):
        s *= x[i]
    y[i] = s
    wb.atomic_add(z, 0, s * x[i])


@wb.kernel
def turn(v: wb.array(dtype=wb.vec3), axis: wb.vec3, out: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    out[i] = wb.cross(v[i], axis)


X = np.array([0.3, -1.2, 2.0], dtype=np.float32)
W = np.array([1.0, 2.0, -0.5], dtype=np.float32)


# ---- arrays


@pytest.mark.slow
def test_a_jax_array_is_read_without_a_copy_and_cannot_be_written(jax):
    x = jax.numpy.arange(6.0).reshape(2, 3)
    a = wb.from_jax(x)
    assert a._address == x.unsafe_buffer_pointer() and a.shape == (2, 3) and a.dtype is wb.float32
    with pytest.raises(wb.LaunchError, match=r"JAX array(.|\n)*read-only"):
        a.fill_(0.0)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    v = wb.from_jax(x, dtype=wb.vec3)
    assert v.shape == (2,) and v.allocation is a.allocation
    del x
    gc.collect()
    assert a.numpy().tolist() == [[0, 1, 2], [3, 4, 5]], "the array keeps the buffer alive"


def test_a_copy_of_a_jax_array_can_be_written(jax):
    x = jax.numpy.arange(3.0)
    a = wb.from_jax(x, copy=True, requires_grad=True)
    a.fill_(5.0)
    assert x.tolist() == [0, 1, 2] and a.requires_grad


def test_kernels_read_jax_memory_and_have_gradients_of_it(jax):
    x = wb.from_jax(jax.numpy.asarray(X), requires_grad=True)
    y = wb.zeros(3)
    with wb.Tape() as tape:
        wb.launch(mix, 3, [x, wb.array(W), 2.0], [y])
    tape.backward(grads={y: wb.ones(3)})
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.cos(2 * X) * W + 2 * X, rtol=1e-5)


def test_to_jax_copies_by_default(jax):
    a = wb.array([1.0, 2.0])
    j = wb.to_jax(a)
    a.fill_(7.0)
    assert isinstance(j, jax.Array) and j.tolist() == [1.0, 2.0]
    assert wb.to_jax(wb.array([[1.0, 2.0, 3.0]], dtype=wb.vec3)).shape == (1, 3)


def aligned(n):
    raw = np.zeros(4 * n + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return wb.from_numpy(np.ndarray((n,), np.float32, raw, start))


@pytest.mark.slow
def test_memory_lent_to_jax_cannot_be_written_until_jax_drops_it(jax):
    a = aligned(32)
    a.fill_(3.0)
    j = wb.to_jax(a[0:16], copy=False)
    assert j.unsafe_buffer_pointer() == a._address
    a[16:].fill_(1.0)
    with pytest.raises(wb.LaunchError, match="read-only"):
        a.fill_(4.0)
    assert j.sum() == 48.0
    del j
    gc.collect()
    a.fill_(4.0)
    with pytest.raises(wb.LaunchError, match=r"cannot be lent(.|\n)*layout"):
        wb.to_jax(a[1:], copy=False)


def test_what_jax_would_change_in_silence_is_refused(jax):
    with pytest.raises(wb.LaunchError, match=r"float64 into float32(.|\n)*jax_enable_x64"):
        wb.to_jax(wb.zeros(2, dtype=wb.float64))
    with pytest.raises(wb.LaunchError, match="takes a JAX array"):
        wb.from_jax(np.zeros(2))
    with pytest.raises(wb.LaunchError, match="tracer"):
        jax.jit(lambda x: wb.from_jax(x) and x)(jax.numpy.ones(2))


# ---- functions


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", pytest.param("c", marks=pytest.mark.needs_cc)])
@pytest.mark.parametrize("jit", [False, True])
def test_gradients_agree_with_those_of_jax(jax, backend, jit):
    wb.config.backend = backend
    jnp = jax.numpy
    f = wb.interop.jax.function(mix, dim=3)

    def ours(x, w, a):
        return jnp.sum(f(2.0 * x, w, a) ** 2)

    def theirs(x, w, a):
        return jnp.sum(mixed(jnp, 2.0 * x, w, a) ** 2)

    got, want = (jax.value_and_grad(g, argnums=(0, 1, 2)) for g in (ours, theirs))
    got, want = (jax.jit(got), jax.jit(want)) if jit else (got, want)
    args = jnp.asarray(X), jnp.asarray(W), jnp.float32(0.7)
    (value, grads), (expected, wanted) = got(*args), want(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for g, w in zip(grads, wanted, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=2e-5)


@pytest.mark.slow
def test_python_numbers_and_integers_and_several_outputs_in_float64(jax, x64):
    f = wb.interop.jax.function(double, outputs=[3, 1], dim=3)
    x = jax.numpy.asarray(X, dtype="float64")
    y, z = f(x, 3)
    np.testing.assert_allclose(y, np.float64(X) ** 3, rtol=1e-14)
    np.testing.assert_allclose(z, [np.sum(np.float64(X) ** 4)], rtol=1e-14)
    g = jax.grad(lambda x: jax.numpy.sum(f(x, 3)[0]) + 2.0 * f(x, 3)[1][0])(x)
    assert g.dtype == np.float64
    np.testing.assert_allclose(g, 3 * np.float64(X) ** 2 + 8 * np.float64(X) ** 3, rtol=1e-13)


@pytest.mark.slow
def test_vectors_are_trailing_axes(jax):
    jnp = jax.numpy
    f = wb.interop.jax.function(turn, dim=lambda v, axis: v.shape[0])
    v, axis = jnp.asarray(np.arange(6.0).reshape(2, 3) - 2), jnp.asarray([0.5, -1.0, 2.0])
    seed = jnp.asarray([[1.0, 2.0, 3.0], [-1.0, 0.5, 4.0]])
    got, back = jax.vjp(f, v, axis)
    want, expected = jax.vjp(lambda v, a: jnp.cross(v, a[None]), v, axis)
    np.testing.assert_allclose(got, want)
    for g, w in zip(back(seed), expected(seed), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6)


def test_one_array_for_two_arguments_has_two_gradients(jax):
    f = wb.interop.jax.function(mix, dim=3)
    x = jax.numpy.asarray(X)

    def both(x):
        return jax.numpy.sum(jax.jit(f)(x, x, 1.0))

    want = jax.grad(lambda x: jax.numpy.sum(mixed(jax.numpy, x, x, 1.0)))(x)
    np.testing.assert_allclose(jax.grad(both)(x), want, rtol=1e-5)
    dx, dw = jax.grad(lambda x, w: jax.numpy.sum(f(x, w, 1.0)), argnums=(0, 1))(x, x)
    np.testing.assert_allclose(dw, np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(dx, np.cos(X) * X + 2 * X, rtol=1e-6)


@pytest.mark.slow
def test_vmap_launches_once_per_element(jax):
    jnp = jax.numpy
    f = wb.interop.jax.function(mix, dim=3)
    xs = jnp.stack([jnp.asarray(X), jnp.asarray(W)])
    got = jax.vmap(jax.grad(lambda x: jnp.sum(f(x, jnp.asarray(W), 1.0))))(xs)
    want = jax.vmap(jax.grad(lambda x: jnp.sum(mixed(jnp, x, jnp.asarray(W), 1.0))))(xs)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_half_precision(jax):
    @wb.kernel
    def squares(x: wb.array(dtype=wb.float16), y: wb.array(dtype=wb.float16)):
        i = wb.tid()
        y[i] = x[i] * x[i]

    x = jax.numpy.asarray([1.0, 2.0, -3.0], dtype="float16")
    g = jax.grad(lambda x: jax.numpy.sum(wb.interop.jax.function(squares, dim=3)(x)))(x)
    assert g.dtype == np.float16 and g.tolist() == [2.0, 4.0, -6.0]


def test_many_calls_leave_nothing_behind(jax):
    f = jax.jit(jax.grad(lambda x: jax.numpy.sum(wb.interop.jax.function(mix, dim=3)(x, x, 1.0))))
    x = jax.numpy.asarray(X)
    first = f(x)
    for _ in range(50):
        assert (f(x) == first).all()
    with wb.Tape() as tape:
        f(x)
    assert len(tape) == 0


def test_large_arrays_pass_the_callback(jax):
    n = 200_000
    f = wb.interop.jax.function(mix, dim=n)
    x = jax.numpy.linspace(0.0, 1.0, n)
    g = jax.jit(jax.grad(lambda x: jax.numpy.sum(f(x, x, 1.0))))(x)
    np.testing.assert_allclose(g, np.sin(x) + x * np.cos(x) + 2 * x, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True])
def test_second_and_third_derivatives_are_exact_in_both_modes(jax, x64, jit):
    jnp = jax.numpy
    f = wb.interop.jax.function(double, dim=3, outputs=[3, 1])

    def ours(x):
        y, z = f(x, 3)
        return jnp.sum(jnp.sin(y)) * z[0]

    def theirs(x):
        return jnp.sum(jnp.sin(x**3)) * jnp.sum(x**4)

    x = jnp.asarray(X, dtype="float64")
    ways = [
        jax.hessian,
        lambda g: jax.jacrev(jax.jacrev(g)),
        lambda g: jax.jacfwd(jax.jacfwd(g)),
        lambda g: jax.jacrev(jax.hessian(g)),
        lambda g: lambda x: jax.jvp(g, (x,), (x * x,))[1],
        lambda g: lambda x: jax.vmap(jax.hessian(g))(jnp.stack([x, 2 * x])),
    ]
    for way in ways:
        got, want = (jax.jit(way(g)) if jit else way(g) for g in (ours, theirs))
        np.testing.assert_allclose(got(x), want(x), rtol=1e-9, atol=1e-9)


def test_a_second_derivative_that_does_not_exist_is_refused(jax):
    @wb.kernel
    def largest(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        wb.atomic_max(y, 0, x[i] * x[i])

    f = wb.interop.jax.function(largest, dim=3, outputs=[1])
    loss = lambda x: jax.numpy.sum(f(x))  # noqa: E731
    assert jax.grad(loss)(jax.numpy.asarray(X)).tolist() == [0, 0, 4]
    with pytest.raises(wb.KernelError, match="second-derivative"):
        jax.grad(lambda x: jax.numpy.sum(jax.grad(loss)(x)))(jax.numpy.asarray(X))


@wb.kernel
def squares(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


def through(way):
    """The gradient of a tape whose values go through `way` and come back."""
    x, y, z = wb.array(X, requires_grad=True), wb.zeros(3), wb.zeros(3)
    with wb.Tape() as tape:
        wb.launch(squares, 3, [x], [y])
        wb.launch(squares, 3, [way(y)], [z])
    tape.backward(grads={z: wb.ones(3)})
    return x.grad.numpy()


def test_values_that_jax_would_take_off_a_tape_are_refused(jax):
    jnp, function = jax.numpy, wb.interop.jax.function(squares)
    for way in (
        lambda y: wb.from_jax(jnp.sin(wb.to_jax(y))),
        lambda y: wb.full(3, float(wb.to_jax(y)[0])),
        lambda y: wb.from_jax(function(y.numpy())),
    ):
        with pytest.raises(wb.GradientError, match=r"(?s)'?y'? is on an active path.*leave for JAX.*host-values"):
            through(way)
    assert through(lambda y: y * wb.from_jax(wb.to_jax(wb.detach(y)))).any()
    with pytest.warns(UserWarning, match=r"(?s)values of another library.*of y, read at.*host-number"):
        through(lambda y: wb.from_jax(jnp.asarray(y.numpy()) * 2))
    before = wb.from_jax(jnp.asarray(X))
    assert through(lambda y: y * before).any()


def test_arguments_that_do_not_fit_are_refused_before_anything_runs(jax):
    jnp = jax.numpy
    f = wb.interop.jax.function(mix, dim=3)
    x = jnp.asarray(X)
    with pytest.raises(wb.LaunchError, match=r"int32(.|\n)*dtype"):
        f(jnp.arange(3), x, 1.0)
    with pytest.raises(wb.LaunchError, match=r"float64(.|\n)*dtype"):
        f(np.zeros(3), x, 1.0)
    with pytest.raises(wb.LaunchError, match="of shape"):
        f(x[None], x, 1.0)
    with pytest.raises(wb.LaunchError, match="leave 0 of the parameters"):
        f(x, x, 1.0, x)
    with pytest.raises(wb.LaunchError, match="to_jax"):
        f(wb.zeros(3), x, 1.0)
    with pytest.raises(wb.LaunchError, match="writes to 'x', an input"):
        wb.interop.jax.function(scale, dim=3)(x)
    assert wb.interop.jax.function(mix)(x, x, 1.0).shape == (3,)
    with pytest.raises(wb.LaunchError, match="'x' has 3 elements along axis 0"):
        wb.interop.jax.function(mix, dim=2)(x, x, 1.0)
    with pytest.raises(wb.LaunchError, match="jax_enable_x64"):
        wb.interop.jax.function(double, dim=3)(np.zeros(3), 2)


@wb.kernel
def scale(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    x[i] *= 2.0
    y[i] = x[i]

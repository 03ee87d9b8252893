"""`jax_kernel` and `jax_callable`: values and gradients beside functions of JAX itself, and what is refused."""

import importlib
from functools import partial

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.needs_jax


@pytest.fixture
def jnp():
    import jax.numpy

    return jax.numpy


@pytest.fixture
def x64():
    import jax

    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@wb.kernel
def waves(x: wb.array[float], s: float, y: wb.array[float], z: wb.array[float]):
    i = wb.tid()
    y[i] = wb.sin(s * x[i])
    z[i] = x[i] * x[i]


@wb.kernel
def product(a: wb.array2d[float], b: wb.array2d[float], c: wb.array2d[float]):
    i, j = wb.tid()
    s = 0.0
    for k in range(a.shape[1]):
        s += a[i, k] * b[k, j]
    c[i, j] = s


@wb.kernel
def grow(a: wb.array[float], b: wb.array[float], c: wb.array[float]):
    i = wb.tid()
    b[i] = b[i] * b[i] + a[i] * b[i]
    c[i] = 2.0 * a[i]


@wb.kernel
def turn(v: wb.array[wb.vec3], s: float, out: wb.array[wb.vec3]):
    i = wb.tid()
    out[i] = wb.cross(v[i], wb.vec3(s, 1.0, 0.0))


@wb.kernel
def diagonal(out: wb.array[wb.mat22]):
    d = float(wb.tid() + 1)
    out[wb.tid()] = wb.mat22(d, 0.0, 0.0, 2.0 * d)


X = np.array([0.3, -1.2, 2.0], dtype=np.float32)
A = np.array([1.5, -0.5, 0.25], dtype=np.float32)


def gradients(f, *args):
    """Of a weighted sum of all that `f` gives, by every argument."""
    import jax

    def loss(*args):
        made = f(*args)
        made = made if isinstance(made, list | tuple) else [made]
        return sum((w * jax.numpy.cos(m)).sum() for w, m in enumerate(made, 1))

    return jax.value_and_grad(loss, argnums=tuple(range(len(args))))(*args)


def same(ours, theirs, *args):
    for got, want in zip(gradients(ours, *args), gradients(theirs, *args), strict=True):
        for a, b in zip(
            got if isinstance(got, tuple) else [got], want if isinstance(want, tuple) else [want], strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_of_a_kernel_are_those_of_jax(jnp, jit):
    import jax

    wrap = jax.jit if jit else lambda f: f
    f = wrap(wb.jax_kernel(waves, num_outputs=2))
    assert all(np.allclose(a, b) for a, b in zip(f(X, 3.0), (np.sin(3.0 * X), X * X), strict=True))
    same(f, lambda x, s: [jnp.sin(s * x), x * x], X, np.float32(3.0))
    same(wrap(wb.jax_kernel(grow, 2, in_out_argnames=["b"])), lambda a, b: [b * b + a * b, 2.0 * a], A, X)
    v = np.arange(6, dtype=np.float32).reshape(2, 3) / 3
    same(wrap(wb.jax_kernel(turn)), lambda v, s: jnp.cross(v, jnp.stack([s, s * 0 + 1.0, s * 0])), v, np.float32(0.5))


def test_the_grid_and_the_shapes_of_outputs_are_said_before_or_in_a_call(jnp):
    a, b = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(8, dtype=np.float32).reshape(2, 4)
    for f in (
        wb.jax_kernel(product, launch_dims=(3, 4)),
        partial(wb.jax_kernel(product), launch_dims=(3, 4)),
        partial(wb.jax_kernel(product, launch_dims=3, output_dims=9), launch_dims=(3, 4), output_dims={"c": (3, 4)}),
    ):
        np.testing.assert_array_equal(f(a, b), a @ b)
        same(f, lambda a, b: a @ b, a, b)
    two = wb.jax_kernel(diagonal)(launch_dims=2)
    assert two.tolist() == [[[1, 0], [0, 2]], [[2, 0], [0, 4]]]
    assert wb.jax_kernel(diagonal)(launch_dims=1, output_dims=(3, 2, 2)).shape == (3, 2, 2)


def test_vmap_launches_once_per_element(jnp):
    import jax

    many = np.stack([X, A, X + A])
    y, z = jax.vmap(wb.jax_kernel(waves, 2), in_axes=(0, None))(many, 2.0)
    np.testing.assert_allclose(y, np.sin(2 * many), rtol=1e-5)
    np.testing.assert_array_equal(z, many * many)


def steps(
    a: wb.array[float], v: wb.array[wb.vec3], s: float, b: wb.array[float], c: wb.array[float], w: wb.array[wb.vec3]
):
    for _ in range(2):
        wb.launch(grow, a.size, [a, b, c])
    half = wb.zeros_like(v)
    wb.launch(turn, v.shape, [v, s], [half])
    wb.launch(turn, v.shape, [half, s + 1.0], [w])


def in_jax(jnp, s, a, v, b):
    for _ in range(2):
        b = b * b + a * b
    for by in (s, s + 1.0):
        v = jnp.cross(v, jnp.array([by, 1.0, 0.0]))
    return [b, 2.0 * a, v]


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_of_a_python_function_are_those_of_jax(jnp, jit):
    import jax

    v = np.arange(6, dtype=np.float32).reshape(2, 3) / 3
    given = wb.jax_callable(
        steps,
        num_outputs=3,
        in_out_argnames=["b"],
        output_dims={"c": 3, "w": (2, 3)},
        graph_mode=wb.JaxCallableGraphMode.WARP,
    )
    ours = lambda a, v, b: given(a, v, 0.5, b)  # noqa: E731
    same(jax.jit(ours) if jit else ours, lambda a, v, b: in_jax(jnp, 0.5, a, v, b), A, v, X)
    assert np.array_equal(X, np.array([0.3, -1.2, 2.0], dtype=np.float32)), "inputs are not written"


@pytest.mark.usefixtures("x64")
def test_in_float64_gradients_are_exact(jnp):
    @wb.kernel
    def cubes(x: wb.array[wb.float64], y: wb.array[wb.float64]):
        i = wb.tid()
        wb.atomic_add(y, 0, x[i] * x[i] * x[i])

    def twice(x: wb.array[wb.float64], y: wb.array[wb.float64]):
        wb.launch(cubes, x.size, [x, y])
        wb.launch(cubes, x.size, [x, y])

    import jax

    x = jnp.asarray([0.3, -1.2, 2.0])
    f = wb.jax_callable(twice, output_dims=1)
    np.testing.assert_allclose(jax.grad(lambda x: f(x)[0])(x), 6 * x * x, rtol=1e-14)
    k = wb.jax_kernel(cubes, output_dims=1, enable_backward=True)
    np.testing.assert_allclose(jax.grad(lambda x: k(x)[0])(x), 3 * x * x, rtol=1e-14)


def test_what_does_not_fit_is_refused(jnp):
    import jax

    with pytest.raises(wb.LaunchError, match=r"1 arguments for its inputs \(x, s\)(.|\n)*\[function\]"):
        wb.jax_kernel(waves, 2)(X)
    with pytest.raises(wb.LaunchError, match=r"takes array\(dtype=float32\), got float64(.|\n)*\[dtype\]"):
        wb.jax_kernel(waves, 2)(X.astype(float), 1.0)
    with pytest.raises(wb.LaunchError, match=r"changed in place, of \(a, b, c\)(.|\n)*\[function\]"):
        wb.jax_kernel(grow, 2, in_out_argnames=["c"])(A, X)
    with pytest.raises(wb.LaunchError, match=r"the output 'c' is array2d(.|\n)*\[function\]"):
        wb.jax_kernel(product, launch_dims=(2, 2), output_dims=2)(
            np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32)
        )
    with pytest.raises(wb.LaunchError, match=r"says nothing about 'c'"):
        wb.jax_kernel(grow, output_dims={})(A, X)
    with pytest.raises(wb.LaunchError, match=r"no array is given"):
        wb.jax_kernel(diagonal)()
    with pytest.raises(wb.LaunchError, match=r"the number 's' is traced(.|\n)*static_argnames"):
        jax.jit(wb.jax_callable(steps, 3, in_out_argnames=["b"]))(A, np.ones((2, 3), np.float32), 0.5, X)
    with pytest.raises(wb.LaunchError, match=r"has_side_effect=True"):
        wb.jax_kernel(waves, has_side_effect=True)
    with pytest.raises(wb.LaunchError, match=r"stage_in_argnames"):
        wb.jax_callable(steps, stage_in_argnames=["a"])
    with pytest.raises(wb.LaunchError, match=r"'x' is Any|'x' is typing.Any"):
        wb.jax_callable(lambda x, y: None)(X)


def test_a_write_to_an_input_that_was_not_declared_is_refused():
    with pytest.raises(Exception, match=r"taken for constant there(.|\n)*\[read-only\]"):
        wb.jax_kernel(grow, 1)(A, X)


def test_the_old_places_of_the_names_import():
    for name in ("jax_experimental", "jax_experimental.ffi", "jax_experimental.custom_call"):
        assert importlib.import_module(f"workbench.{name}").jax_kernel is wb.jax_kernel
    assert wb.interop.jax_kernel is wb.jax_kernel and wb.interop.from_torch is wb.from_torch


def test_types_and_devices_have_names_in_both():
    import jax
    import jax.numpy as jnp

    for ours, theirs in ((wb.float32, jnp.float32), (wb.int8, jnp.int8), (wb.bool, jnp.bool_), (wb.uint64, jnp.uint64)):
        assert wb.dtype_to_jax(ours) is theirs and wb.dtype_from_jax(theirs) is ours
    assert wb.dtype_to_jax(wb.vec3) is jnp.float32 and wb.dtype_from_jax(jnp.zeros(2).dtype) is wb.float32
    assert wb.device_from_jax(wb.device_to_jax("cpu")) == "cpu" and wb.device_to_jax("cpu") in jax.devices("cpu")


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("jit", [False, True])
def test_second_derivatives_are_exact_in_both_modes(jnp, jit):
    import jax

    @wb.kernel
    def bent(x: wb.array[wb.float64], b: wb.array[wb.float64], y: wb.array[wb.float64]):
        i = wb.tid()
        b[i] = b[i] * b[i] * x[i]
        y[i] = wb.sin(x[i]) * x[(i + 1) % x.shape[0]]

    def both(x: wb.array[wb.float64], b: wb.array[wb.float64], y: wb.array[wb.float64]):
        half = wb.zeros_like(y)
        wb.launch(bent, x.size, [x, b, half])
        wb.launch(bent, x.size, [half, b, y])

    def one(x, b):
        return b * b * x, jnp.sin(x) * jnp.roll(x, -1)

    kernel = wb.jax_kernel(bent, 2, in_out_argnames=["b"])
    function = wb.jax_callable(both, 2, in_out_argnames=["b"])
    x, b = jnp.asarray([0.3, -1.2, 2.0]), jnp.asarray([0.7, 0.4, -0.9])

    def twice(x, b):
        b, y = one(x, b)
        return b * b * y, None

    for ours, theirs in ((kernel, one), (function, twice)):

        def loss(f):
            return lambda x, b: jnp.sum(jnp.cos(f(x, b)[0]) * x)

        ways = [
            lambda g: jax.hessian(g),
            lambda g: jax.jacrev(jax.jacrev(g)),
            lambda g: lambda x, b: jax.jvp(lambda x: g(x, b), (x,), (x * x,))[1],
            lambda g: lambda x, b: jax.grad(lambda x: jnp.sum(jax.grad(g, 1)(x, b) ** 2))(x),
        ]
        for way in ways:
            got, want = (jax.jit(way(loss(f))) if jit else way(loss(f)) for f in (ours, theirs))
            np.testing.assert_allclose(got(x, b), want(x, b), rtol=1e-9, atol=1e-9)

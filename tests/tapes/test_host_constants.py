"""Values read from a tape that become constants of kernels, parts of vectors and structs, or bits: exact or refused."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import GradientError

F, V, M = wb.float64, wb.vec3d, wb.mat22d
X = np.array([0.5, 0.31237, 0.9, 1.3])
RIGHT = 2 * X * X[1] ** 2
RIGHT[1] += 2 * X[1] * np.sum(X**2)


class Parameters:
    k = 1.0


@wb.struct
class Struct:
    k: F
    v: V


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def by_number(x: wb.array(dtype=F), c: F, loss: wb.array(dtype=F)):
    wb.atomic_add(loss, 0, x[wb.tid()] * c)


@wb.kernel
def by_vector(x: wb.array(dtype=F), v: V, loss: wb.array(dtype=F)):
    wb.atomic_add(loss, 0, x[wb.tid()] * v[1])


@wb.kernel
def by_matrix(x: wb.array(dtype=F), m: M, loss: wb.array(dtype=F)):
    wb.atomic_add(loss, 0, x[wb.tid()] * m[0, 1])


@wb.kernel
def by_struct(x: wb.array(dtype=F), s: Struct, loss: wb.array(dtype=F)):
    wb.atomic_add(loss, 0, x[wb.tid()] * s.k * s.v[1])


@wb.kernel
def by_array(x: wb.array(dtype=F), z: wb.array(dtype=F), loss: wb.array(dtype=F)):
    wb.atomic_add(loss, 0, x[wb.tid()] * z[1])


@wb.kernel
def by_attribute(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
    wb.atomic_add(loss, 0, x[wb.tid()] * F(Parameters.k))


@wb.kernel
def move(a: wb.array(dtype=wb.int64), b: wb.array(dtype=wb.int64)):
    i = wb.tid()
    b[i] = a[i]


def constant(c):
    @wb.kernel
    def k(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
        wb.atomic_add(loss, 0, x[wb.tid()] * F(c))

    return k


def part(c):
    @wb.kernel
    def k(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
        wb.atomic_add(loss, 0, x[wb.tid()] * F(c[1]))

    return k


def static(c):
    @wb.kernel
    def k(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
        wb.atomic_add(loss, 0, x[wb.tid()] * F(wb.static(c["k"])))

    return k


def called(c):
    @wb.func
    def f(v: F):
        return F(c) * v

    @wb.kernel
    def k(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
        wb.atomic_add(loss, 0, f(x[wb.tid()]))

    return k


def default(c):
    @wb.func
    def f(v: F, k=c):
        return F(k) * v

    @wb.kernel
    def k(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
        wb.atomic_add(loss, 0, f(x[wb.tid()]))

    return k


def attribute(c):
    Parameters.k = c
    return by_attribute


NUMBERS = {
    "element": lambda y: y[1],
    "product": lambda y: y[1] * 2.0 * 0.5,
    "round": lambda y: round(y[1], 15),
    "NumPy's round": lambda y: y[1].round(15),
    "rounded array": lambda y: y.numpy().round(decimals=15)[1],
    "float": lambda y: float(y[1]),
    "item": lambda y: y[1].item(),
    "list": lambda y: y.list()[1],
    "remainder": lambda y: divmod(y[1], 1.0)[1],
    "sum": lambda y: y.numpy()[1:2].sum(),
}
KERNELS = {
    "closure": constant,
    "attribute": attribute,
    "tuple": lambda c: part((1.0, c)),
    "vector": lambda c: part(V(1.0, c, 2.0)),
    "static": lambda c: static({"k": c}),
    "func": called,
    "default": default,
}


def gradient(use):
    """The gradient of the sum of y over y[1], y = x * x, as `use` computes it."""
    x, y, loss = wb.array(X, dtype=F, requires_grad=True), wb.zeros(4, dtype=F), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [y])
        use(y, loss)
    tape.backward(loss)
    return x.grad.numpy()


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("how", NUMBERS)
def test_a_constant_that_was_read_is_refused(how, kind, backend):
    use = lambda y, loss: wb.launch(KERNELS[kind](NUMBERS[how](y)), 4, [y, loss])  # noqa: E731
    if how == "float" and kind == "vector":  # whose components are copies
        with pytest.warns(UserWarning, match="host-number"):
            gradient(use)
        return
    with pytest.raises(GradientError, match="loss was written by a kernel that has a constant from y") as error:
        gradient(use)
    assert error.value.slug == "host-values"


@pytest.mark.parametrize("how", NUMBERS)
def test_the_same_number_as_an_argument(how, backend):
    try:
        got = gradient(lambda y, loss: wb.launch(by_number, 4, [y, NUMBERS[how](y), loss]))
    except GradientError as error:
        assert error.slug == "host-values"
        assert how not in ("element", "float", "item", "list")
    else:
        np.testing.assert_allclose(got, RIGHT, rtol=1e-12)


def test_a_constant_of_the_same_bytes_is_told(backend):
    with pytest.warns(UserWarning, match="host-number"):
        gradient(lambda y, loss: wb.launch(constant(float(str(float(y[1])))), 4, [y, loss]))


def test_what_is_no_such_constant(backend, recwarn):
    own = float(X[1] ** 2)
    kernel = constant(own)

    def use(y, loss):
        wb.launch(kernel, 4, [y, loss])  # the user's own, which is equal to what is read later
        assert float(y[1]) == y[1]
        wb.launch(kernel, 4, [y, loss])
        wb.launch(constant(wb.detach(y[2])), 4, [y, loss])
        wb.launch(constant(int(y[3] * 2)), 4, [y, loss])

    np.testing.assert_allclose(gradient(use), 2 * X * (2 * own + X[2] ** 2 + 3), rtol=1e-12)
    kept = []
    gradient(lambda y, loss: (kept.append(y[1]), wb.launch(by_number, 4, [y, 2.0, loss])))
    np.testing.assert_allclose(  # of another tape it is a number like any other
        gradient(lambda y, loss: wb.launch(constant(kept[0]), 4, [y, loss])), 2 * X * own, rtol=1e-12
    )
    assert not recwarn.list


def test_a_constant_where_no_gradient_passes(backend):
    z = wb.zeros(1, dtype=F)

    def use(y, loss):
        wb.launch(constant(y[1]), 4, [y, z])  # looked at alone
        wb.launch(by_number, 4, [y, 2.0, loss])

    np.testing.assert_allclose(gradient(use), 4 * X, rtol=1e-12)


def test_a_mapped_func_with_such_a_constant(backend):
    def use(y, loss):
        c = y[1]

        def scaled(v: F):
            return F(c) * v

        wb.launch(by_number, 4, [wb.map(scaled, y), 1.0, loss])

    with pytest.raises(GradientError, match="constant"):
        gradient(use)


def put(path):
    def into(v, y):
        v[path] = y[1]

    return into


def set_y(v, y):
    v.y = y[1]


def add(v, y):
    v[1] -= v[1]
    v[1] += y[1]


def row(m, y):
    m[0] = (1.0, y[1])


def in_row(m, y):
    m[0][1] = y[1]


def few(v, y):
    v[1:3] = y.numpy()[1:3]


PARTS = {
    "v[1]": (by_vector, V, put(1)),
    "v.y": (by_vector, V, set_y),
    "v[1] +=": (by_vector, V, add),
    "v[1:3]": (by_vector, V, few),
    "fill": (by_vector, V, lambda v, y: v.fill(y[1])),
    "m[0, 1]": (by_matrix, M, put((0, 1))),
    "m[0]": (by_matrix, M, row),
    "m[0][1]": (by_matrix, M, in_row),
    "s.k": (by_struct, lambda *_: Struct(k=1.0, v=V(1.0, 1.0, 1.0)), lambda s, y: setattr(s, "k", y[1])),
    "s.v": (by_struct, lambda *_: Struct(k=1.0), lambda s, y: setattr(s, "v", V(1.0, y[1], 1.0))),
    "s.v[1]": (by_struct, lambda *_: Struct(k=1.0), lambda s, y: put(1)(s.v, y)),
}


@pytest.mark.parametrize("case", PARTS)
def test_a_part_of_a_value_of_the_host(case, backend):
    kernel, made, write = PARTS[case]

    def use(y, loss):
        value = made(*range(1, 5)[: 4 if made is M else 3])
        write(value, y)
        wb.launch(kernel, 4, [y, value, loss])

    try:
        got = gradient(use)
    except GradientError as error:
        assert error.slug == "host-values" and case != "s.k"
    else:
        np.testing.assert_allclose(got, RIGHT, rtol=1e-12)


def hops(z, y):
    between = wb.zeros(4, dtype=wb.int64)
    wb.copy(between, y.view(wb.int64))
    wb.copy(z.view(wb.int64), between)


BITS = {
    "copy": lambda z, y: wb.copy(z.view(wb.int64), y.view(wb.int64)),
    "assign": lambda z, y: z.view(wb.int32).assign(y.view(wb.int32)),
    "launch": lambda z, y: wb.launch(move, 4, [y.view(wb.int64), z.view(wb.int64)]),
    "by an array of integers": hops,
}


@pytest.mark.parametrize("how", BITS)
def test_floats_moved_as_integers_are_refused(how, backend):
    def use(y, loss):
        z = wb.zeros(4, dtype=F)
        BITS[how](z, y)
        wb.launch(by_array, 4, [y, z, loss])

    with pytest.raises(GradientError) as error:
        gradient(use)
    assert error.value.slug == "two-types"


def test_integers_beside_floats_are_not(backend):
    marks, kept = wb.array([1, 2, 3, 4], dtype=wb.int64), wb.zeros(4, dtype=wb.int64)

    def use(y, loss):
        wb.copy(kept, marks)
        wb.launch(move, 4, [kept, marks])
        wb.launch(by_number, 4, [y, 2.0, loss])

    np.testing.assert_allclose(gradient(use), 4 * X, rtol=1e-12)


def test_a_number_that_was_read_in_place_of_an_equal_one(backend):
    Parameters.k = float(X[1] * X[1])
    wb.launch(by_attribute, 4, [wb.zeros(4, dtype=F), wb.zeros(1, dtype=F)])  # read with the user's own

    def use(y, loss):
        Parameters.k = float(y[1])
        wb.launch(by_attribute, 4, [y, loss])

    with pytest.raises(GradientError, match="constant"):
        gradient(use)

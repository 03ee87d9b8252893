"""Generic kernels: parameters of `Any`, and arrays of `Any`, read anew for the types of each launch."""

from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def scaled(x: wb.array(dtype=Any), s: Any, y: wb.array(dtype=Any)):
    i = wb.tid()
    y[i] = x[i] * s


@wb.kernel
def halves(x: wb.array(dtype=Any), y: wb.array(dtype=Any)):
    i = wb.tid()
    y[i] = x[i] * x.dtype(0.5) + type(x[i])(1.0)


@wb.kernel
def sums(x: wb.array2d(dtype=Any), y: wb.array(dtype=Any)):
    i = wb.tid()
    for j in range(x.shape[1]):
        y[i] += x[i, j]


@wb.struct
class Ball:
    mass: float
    place: wb.vec3


@pytest.mark.parametrize("dtype", [wb.float16, wb.float32, wb.float64, wb.int32, wb.int64])
def test_one_kernel_for_every_scalar(dtype):
    x, y = wb.array([1, 2, 4], dtype=dtype), wb.zeros(3, dtype=dtype)
    wb.launch(scaled, 3, [x, dtype(3)], [y])
    assert y.numpy().tolist() == [3, 6, 12]


@pytest.mark.parametrize("dtype", [wb.vec2, wb.vec3d, wb.mat22])
def test_composites_and_a_gradient(dtype):
    shape = (2, *dtype.shape)
    values = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    x, y = wb.array(values, dtype=dtype, requires_grad=True), wb.zeros(2, dtype=dtype)
    with wb.Tape() as tape:
        wb.launch(scaled, 2, [x, dtype.scalar(3.0)], [y])
    tape.backward(grads={y: wb.ones(2, dtype=dtype)})
    np.testing.assert_array_equal(y.numpy(), 3 * values)
    np.testing.assert_array_equal(x.grad.numpy(), np.full(shape, 3.0))


def test_python_numbers_have_their_default_types():
    y = wb.zeros(1)
    wb.launch(scaled, 1, [wb.ones(1), 2.0], [y])
    assert y.numpy()[0] == 2.0
    wb.launch(scaled, 1, [wb.ones(1, dtype=int), 2], [wb.zeros(1, dtype=int)])
    with pytest.raises(wb.KernelError, match=r"float64(.|\n)*float32"):
        wb.launch(scaled, 1, [wb.ones(1, dtype=wb.float64), 2.0], [wb.zeros(1, dtype=wb.float64)])


def test_a_declared_scalar_for_a_generic_parameter():
    s, y = wb.scalar(2.0, dtype=wb.float64, requires_grad=True), wb.zeros(2, dtype=wb.float64)
    x = wb.array([1.0, 5.0], dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(scaled, 2, [x, s], [y])
    tape.backward(grads={y: wb.ones(2, dtype=wb.float64)})
    assert s.grad.item() == 6.0


@pytest.mark.parametrize("dtype", [wb.float32, wb.float64, wb.vec3d])
def test_literals_take_the_type_at_hand(dtype):
    x, y = wb.ones(2, dtype=dtype), wb.zeros(2, dtype=dtype)

    @wb.kernel
    def component(x: wb.array(dtype=Any), y: wb.array(dtype=Any)):
        i = wb.tid()
        a = x[i]
        y[i] = a * a.dtype(0.1)

    wb.launch(component, 2, [x], [y])
    np.testing.assert_array_equal(y.numpy(), np.ones(y.numpy().shape, y.numpy().dtype) * y.numpy().dtype.type(0.1))
    if dtype is not wb.vec3d:
        wb.launch(halves, 2, [x], [y])
        assert (y.numpy() == 1.5).all()


def test_axes_are_declared_and_checked():
    x, y = wb.ones((2, 3), dtype=wb.vec2), wb.zeros(2, dtype=wb.vec2)
    wb.launch(sums, 2, [x], [y])
    assert y.numpy().tolist() == [[3.0, 3.0]] * 2
    with pytest.raises(wb.LaunchError, match="argument-rank"):
        wb.launch(sums, 2, [y], [y])


def test_a_parameter_of_any_takes_arrays_structs_and_numbers():
    @wb.kernel
    def weigh(b: Any, x: Any, y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = b.mass * x[i, 0] + b.place.y

    y = wb.zeros(2)
    wb.launch(weigh, 2, [Ball(mass=2.0, place=wb.vec3(0.0, 5.0, 0.0)), wb.ones((2, 1))], [y])
    assert y.numpy().tolist() == [7.0, 7.0]


def test_arrays_of_structs():
    @wb.kernel
    def masses(b: wb.array(dtype=Any), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = b[i].mass

    y = wb.zeros(2)
    wb.launch(masses, 2, [wb.array([Ball(mass=1.0), Ball(mass=3.0)], dtype=Ball)], [y])
    assert y.numpy().tolist() == [1.0, 3.0]


def test_generic_funcs_inside_generic_kernels():
    @wb.func
    def twice(a: Any):
        return a + a

    @wb.kernel
    def k(x: wb.array(dtype=Any), y: wb.array(dtype=Any)):
        i = wb.tid()
        y[i] = twice(x[i])

    for dtype in (wb.float64, wb.vec2):
        y = wb.zeros(1, dtype=dtype)
        wb.launch(k, 1, [wb.ones(1, dtype=dtype)], [y])
        assert (y.numpy() == 2).all()


def test_the_form_for_given_types_is_read_once_and_can_be_looked_at():
    one = wb.overload(scaled, {"x": wb.array(dtype=wb.vec3), "s": wb.float32, "y": wb.array(dtype=wb.vec3)})
    assert one is wb.overload(scaled, [wb.array(dtype=wb.vec3), float, wb.array(dtype=wb.vec3)])
    assert one is scaled.overload({"x": wb.array[wb.vec3], "s": wb.float32, "y": wb.array[wb.vec3]})
    assert "vec3" in str(one.ir) and "d_x" in str(one.adjoint)
    y = wb.zeros(1, dtype=wb.vec3)
    wb.launch(one, 1, [wb.ones(1, dtype=wb.vec3), 2.0], [y])
    before = dict(scaled._overloads)
    for _ in range(2):
        wb.launch(scaled, 1, [wb.ones(1, dtype=wb.vec3), 2.0], [y])
    assert scaled._overloads == before
    with pytest.raises(wb.KernelError, match=r"any type as 'x' and 's' and 'y'(.|\n)*overload\(scaled"):
        scaled.program()
    with pytest.raises(wb.KernelError, match="takes no type for 'z'"):
        wb.overload(scaled, {"z": float})


def test_a_redefined_constant_is_seen_by_every_form():
    factor = 2.0

    @wb.kernel
    def k(x: wb.array(dtype=Any), y: wb.array(dtype=Any)):
        i = wb.tid()
        y[i] = x[i] * x.dtype(factor)

    forms = [(wb.ones(1, dtype=d), wb.zeros(1, dtype=d)) for d in (wb.float32, wb.float64)]
    for wanted in (2.0, 3.0):
        factor = wanted
        for x, y in forms:
            wb.launch(k, 1, [x], [y])
            assert y.numpy()[0] == wanted


def test_annotations_given_as_text():
    def k(x: "wb.array(dtype=Any)", y: "Any"):
        i = wb.tid()
        y[i] = x[i] + x[i]

    for made in (wb.kernel(k), wb.Kernel(func=k, key="doubled")):
        y = wb.zeros(1, dtype=wb.float64)
        wb.launch(made, 1, [wb.ones(1, dtype=wb.float64)], [y])
        assert y.numpy()[0] == 2.0


def test_what_has_no_type_is_refused():
    x = wb.ones(1)
    with pytest.raises(wb.LaunchError, match=r"'s'(.|\n)*any type, got str"):
        wb.launch(scaled, 1, [x, "2.0"], [x])
    with pytest.raises(wb.LaunchError, match=r"'x'(.|\n)*takes an array, got float"):
        wb.launch(scaled, 1, [1.0, 2.0], [x])
    with pytest.raises(wb.LaunchError, match=r"takes 3 arguments, got 1(.|\n)*\(x, s, y\)"):
        wb.launch(scaled, 1, [x])
    with pytest.raises(wb.LaunchError, match="argument-type"):
        wb.launch(scaled, 1, [np.ones(1), 2.0], [x])


@pytest.mark.needs_torch
def test_tensors_for_generic_arrays():
    import torch

    t, y = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True), wb.zeros(2, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(scaled, 2, [t, wb.float64(3.0)], [y])
    tape.backward(grads={y: wb.ones(2, dtype=wb.float64)})
    assert t.grad.tolist() == [3.0, 3.0]

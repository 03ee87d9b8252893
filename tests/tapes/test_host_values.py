"""Steps of the host that the workbench can do itself are events: the gradient is that of central differences."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.host_steps import Kind, check

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture(params=[32, 64])
def kind(request) -> Kind:
    return Kind(request.param)


# ---- what the workbench can do itself


def assigned_to_itself(kind, y):
    y.assign(y.numpy())
    return y


def assigned_view(kind, y):
    z = kind.new(2)
    z.assign(y.numpy()[::2])
    return z


def assigned_asarray(kind, y):
    z = kind.new()
    z.assign(np.asarray(y))
    return z


def filled_by_one(kind, y):
    return kind.new(2).fill_(y[1:2])


def filled_by_element(kind, y):
    return kind.new(2).fill_(y[1])


def filled_by_item(kind, y):
    return kind.new(2).fill_(y[1:2].item())


def filled_by_float(kind, y):
    return kind.new(2).fill_(float(y[1]))


def full(kind, y):
    return wb.full(2, y[1:2])


def full_typed(kind, y):
    return wb.full((2,), y[1], dtype=kind.dtype)


def full_like(kind, y):
    return wb.full_like(y, y[1:2])


def array_of_arrays(kind, y):
    return wb.array([y, y], dtype=kind.dtype).flatten()


def array_of_elements(kind, y):
    return wb.array([y[0], 2.0, y[2]], dtype=kind.dtype)


def array_of_list(kind, y):
    return wb.array(y.list(), dtype=kind.dtype)


def array_of_tolist(kind, y):
    return wb.array(np.asarray(y), dtype=kind.dtype)


def array_of_numpy(kind, y):
    return wb.array(y.numpy())


def array_of_element(kind, y):
    return wb.array(y[1], dtype=kind.dtype)


def assigned_arrays(kind, y):
    z = wb.zeros((2, 3), dtype=kind.dtype)
    z.assign([y, y])
    return z.flatten()


def swapped(kind, y):
    y.assign([y[1], y[0], y[2]])
    return y


def one_element(kind, y):
    z = kind.new()
    z[0] = y[1]
    return z


def one_element_of_itself(kind, y):
    y[0] = y[1]
    return y


def part_by_element(kind, y):
    z = kind.new()
    z[1:] = y[0]
    return z


def number_times_array(kind, y):
    return np.float64(3) * y


def float32_times_array(kind, y):
    return np.float32(3) * y


def numpy_times_array(kind, y):
    return np.full(3, 3.0) * y


def array_times_numpy(kind, y):
    return y * np.full(3, 3.0) - np.arange(3)


def numpy_minus_array(kind, y):
    return np.arange(3.0) - y


def element_times_array(kind, y):
    return y[1] * y


def array_times_element(kind, y):
    return y / y[1]


def declared_scalar(kind, y):
    s = wb.scalar(1.0, dtype=kind.dtype)
    s.value = y[1]
    return kind.scaled(s, y)


def scalar_made_of_an_element(kind, y):
    return kind.scaled(wb.scalar(y[1], dtype=kind.dtype, requires_grad=True), y)


def value_of_a_scalar(kind, y):
    s = wb.scalar(1.0, dtype=kind.dtype)
    s.value = y[1]
    return kind.scaled(s.value, y)


def launched_with_element(kind, y):
    return kind.scaled(y[1], y)


def launched_with_item(kind, y):
    return kind.scaled(y[1:2].item(), kind.ones())


def launched_with_float(kind, y):
    return kind.scaled(float(y[1]), y)


def launched_with_field(kind, y):
    s = kind.spring(2.0, 0.5)
    s.k = y[1]
    z = kind.new()
    wb.launch(kind.pull, dim=3, inputs=[s, y], outputs=[z])
    return z


def launched_with_field_of_the_constructor(kind, y):
    s, z = kind.spring(rest=y[0]), kind.new()
    s.k = 2.0
    wb.launch(kind.pull, dim=3, inputs=[s, y], outputs=[z])
    return z


def filled_by_its_own_type(kind, y):
    z = kind.new()
    z.fill_(kind.dtype(y[1]))
    return z


def launched_with_steps_of_elements(kind, y):
    return kind.scaled(wb.floor(y[1] * 0.01) + wb.sign(y[0]), y)


EXACT = [
    filled_by_its_own_type,
    launched_with_steps_of_elements,
    assigned_to_itself,
    assigned_view,
    assigned_asarray,
    filled_by_one,
    filled_by_element,
    filled_by_item,
    filled_by_float,
    full,
    full_typed,
    full_like,
    array_of_arrays,
    array_of_elements,
    array_of_list,
    array_of_tolist,
    array_of_numpy,
    array_of_element,
    assigned_arrays,
    swapped,
    one_element,
    one_element_of_itself,
    part_by_element,
    number_times_array,
    float32_times_array,
    numpy_times_array,
    array_times_numpy,
    numpy_minus_array,
    element_times_array,
    array_times_element,
    declared_scalar,
    scalar_made_of_an_element,
    value_of_a_scalar,
    launched_with_element,
    launched_with_item,
    launched_with_float,
    launched_with_field,
    launched_with_field_of_the_constructor,
]


@pytest.mark.parametrize("step", EXACT, ids=lambda f: f.__name__)
@pytest.mark.host_memory("assigned_to_itself", "assigned_view", "assigned_asarray", "array_of_tolist", "array_of_numpy")
def test_what_the_workbench_can_do_itself_is_exact(kind, step):
    check(kind, step)


def test_one_vector_of_a_host_array_is_values_and_no_array():
    x = wb.array(np.arange(6.0).reshape(2, 3), dtype=wb.vec3, requires_grad=True)
    y = wb.zeros(1, dtype=wb.vec3)
    with wb.Tape() as tape:
        y.assign(x.numpy()[1])
    assert y.numpy().tolist() == [[3.0, 4.0, 5.0]]
    with pytest.raises(wb.GradientError, match=r"\[host-values\]"):
        tape.backward(grads={y: wb.ones(1, dtype=wb.vec3)})

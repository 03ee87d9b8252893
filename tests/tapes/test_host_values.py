"""Values that travel over the host under a tape: exact where the workbench can do it, else refused, naming both lines.

`x -> y = x * x -> (a step of the host) -> z -> w = z * z`, in float32 and float64; the gradient is that of w by x,
against central differences of the whole program.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.usefixtures("backend")

X = [1.5, 2.0, -0.7]
Pair = None


@wb.kernel
def square32(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def square64(x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def times32(a: float, x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = a * x[i]


@wb.kernel
def times64(a: wb.float64, x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = a * x[i]


@wb.struct
class Spring32:
    k: float
    rest: float


@wb.struct
class Spring64:
    k: wb.float64
    rest: wb.float64


@wb.kernel
def pull32(s: Spring32, x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = s.k * (x[i] - s.rest)


@wb.kernel
def pull64(s: Spring64, x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = s.k * (x[i] - s.rest)


class Kind:
    """One precision: its kernels, its types and a few arrays."""

    def __init__(self, bits: int):
        self.dtype = wb.float32 if bits == 32 else wb.float64
        self.np = np.float32 if bits == 32 else np.float64
        self.square, self.times, self.pull, self.spring = (
            (square32, times32, pull32, Spring32) if bits == 32 else (square64, times64, pull64, Spring64)
        )

    def new(self, n: int = 3):
        return wb.zeros(n, dtype=self.dtype)

    def ones(self, n: int = 3):
        return wb.ones(n, dtype=self.dtype)

    def squared(self, x):
        y = self.new(len(x))
        wb.launch(self.square, dim=len(x), inputs=[x], outputs=[y])
        return y

    def scaled(self, a, x):
        y = self.new(len(x))
        wb.launch(self.times, dim=len(x), inputs=[a, x], outputs=[y])
        return y


@pytest.fixture(params=[32, 64])
def kind(request) -> Kind:
    return Kind(request.param)


def run(kind: Kind, step, values, tape=None):
    x = wb.array(np.array(values, kind.np), requires_grad=True)
    if tape is None:
        return x, kind.squared(step(kind, kind.squared(x)))
    with tape:
        w = kind.squared(step(kind, kind.squared(x)))
    return x, w


def differences(kind: Kind, step) -> np.ndarray:
    """Central differences of the sum of w by x, the whole program run again."""
    h, found = 1e-2 if kind.dtype is wb.float32 else 1e-5, []
    for k in range(len(X)):
        ends = []
        for sign in (1, -1):
            values = list(X)
            values[k] += sign * h
            ends.append(run(kind, step, values)[1].numpy().astype(float).sum())
        found.append((ends[0] - ends[1]) / (2 * h))
    return np.array(found)


def check(kind: Kind, step) -> np.ndarray:
    tape = wb.Tape()
    x, w = run(kind, step, X, tape)
    tape.backward(grads={w: wb.ones(len(w), dtype=kind.dtype)})
    want = differences(kind, step)
    assert np.abs(want).max() > 0.1
    tolerance = 2e-2 if kind.dtype is wb.float32 else 1e-6
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=tolerance, atol=tolerance)
    return x.grad.numpy()


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


EXACT = [
    assigned_to_itself, assigned_view, assigned_asarray, filled_by_one, filled_by_element, filled_by_item,
    filled_by_float, full, full_typed, full_like, array_of_arrays, array_of_elements, array_of_list, array_of_tolist,
    array_of_numpy, array_of_element, assigned_arrays, swapped, one_element, one_element_of_itself, part_by_element,
    number_times_array, float32_times_array, numpy_times_array, array_times_numpy, numpy_minus_array,
    element_times_array, array_times_element, declared_scalar, scalar_made_of_an_element, value_of_a_scalar,
    launched_with_element, launched_with_item, launched_with_float, launched_with_field,
    launched_with_field_of_the_constructor,
]  # fmt: skip


@pytest.mark.parametrize("step", EXACT, ids=lambda f: f.__name__)
def test_what_the_workbench_can_do_itself_is_exact(kind, step):
    check(kind, step)


# ---- what went through NumPy: refused, naming both lines


def halved(kind, y):
    z = kind.new()
    z.assign(y.numpy() / 2)  # read and written
    return z


def sine(kind, y):
    z = kind.new()
    z.assign(np.sin(y.numpy()))  # read and written
    return z


def sine_of_the_array(kind, y):
    z = kind.new()
    z.assign(np.sin(y))  # read and written
    return z


def joined(kind, y):
    return wb.array(np.concatenate([y.numpy()[1:], [1.0]]).astype(kind.np))  # read and written


def joined_arrays(kind, y):
    return wb.array(np.concatenate([y, y]))  # read and written


def stacked(kind, y):
    return wb.array(np.stack([y.numpy(), y.numpy()]).ravel())  # read and written


def stacked_elements(kind, y):
    return wb.array(np.stack([y[0], y[1]]))  # read and written


def taken_at(kind, y):
    return wb.array(y.numpy()[[0, 2]])  # read and written


def masked(kind, y):
    return wb.array(y.numpy()[y.numpy() > 1])  # read and written


def written_raw(kind, y):
    z = kind.new()
    z.numpy()[:] = y.numpy() * 2  # read and written
    return z


def written_raw_later(kind, y):
    z = kind.new()
    h = y.numpy()  # read
    z.numpy()[1:] = (h + 1)[1:]  # written
    return z


def written_raw_in_place(kind, y):
    z = kind.new()
    v = z.numpy()
    v += y.numpy()  # read and written
    return z


def written_by_out(kind, y):
    z = kind.new()
    np.multiply(y.numpy(), 3, out=z.numpy())  # read and written
    return z


def written_by_copyto(kind, y):
    z = kind.new()
    np.copyto(z.numpy(), y.numpy())  # read and written
    return z


def changed_in_place(kind, y):
    y.numpy()[:] *= 2  # read and written
    return y


def through_a_buffer(kind, y):
    z, buffer = kind.new(), np.zeros(3, kind.np)
    np.multiply(y.numpy(), 3, out=buffer)  # read
    z.assign(buffer)  # written
    return z


def through_asarray(kind, y):
    z = kind.new()
    z.assign(np.asarray(y.numpy() * 2))  # read and written
    return z


def through_a_view_of_asarray(kind, y):
    z = kind.new(2)
    z.assign(np.asarray(y.numpy() * 2)[1:])  # read and written
    return z


def through_methods(kind, y):
    return kind.new().fill_(y.numpy().mean())  # read and written


def through_a_sum(kind, y):
    return kind.new().fill_(np.sum(y.numpy()))  # read and written


def through_linalg(kind, y):
    return wb.full(2, np.linalg.norm(y.numpy()), dtype=kind.dtype)  # read and written


def through_arithmetic(kind, y):
    return wb.full(2, 2 * y[1] + 1, dtype=kind.dtype)  # read and written


def through_arithmetic_with_numpy(kind, y):
    return wb.full(2, np.int64(2) * np.sqrt(y[1]), dtype=kind.dtype)  # read and written


def through_tolist(kind, y):
    return wb.array(y.numpy().tolist(), dtype=kind.dtype)  # read and written


def through_iteration(kind, y):
    return wb.array([2 * v for v in y], dtype=kind.dtype)  # read and written


def through_another_type(kind, y):
    return wb.array(y.numpy().astype(np.float16).astype(kind.np))  # read and written


def shared(kind, y):
    return wb.from_numpy(y.numpy() + 1)  # read and written


def launched_with_arithmetic(kind, y):
    return kind.scaled(2 * y[1], y)  # read


def launched_with_a_mean(kind, y):
    return kind.scaled(y.numpy().mean(), kind.ones())  # read


def field_by_arithmetic(kind, y):
    s, z = kind.spring(1.0, 0.5), kind.new()
    s.k = y[1] * 2
    wb.launch(kind.pull, dim=3, inputs=[s, y], outputs=[z])
    return z


def scalar_by_arithmetic(kind, y):
    s = wb.scalar(1.0, dtype=kind.dtype)
    s.value = y[1] * 2  # read
    return kind.scaled(s, kind.ones())


def element_that_has_changed(kind, y):
    v, z = y[1], kind.new()  # read
    y.fill_(1.0)
    z[0] = v  # written
    return z


def launched_with_what_has_changed(kind, y):
    v = y[1]
    y.zero_()
    return kind.scaled(v, kind.ones())


def leaf_that_starts(kind, y):
    z = wb.zeros(3, dtype=kind.dtype, requires_grad=True)
    z.assign(y.numpy() * 2)  # read and written
    return z


LOST = [
    halved, sine, sine_of_the_array, joined, joined_arrays, stacked, stacked_elements, taken_at, masked, written_raw,
    written_raw_later, written_raw_in_place, written_by_out, written_by_copyto, through_a_buffer,
    through_asarray, through_a_view_of_asarray, through_methods, through_a_sum, through_linalg, through_arithmetic,
    through_arithmetic_with_numpy, through_tolist, through_iteration, through_another_type, shared,
    launched_with_arithmetic, launched_with_a_mean, field_by_arithmetic, scalar_by_arithmetic,
    element_that_has_changed, launched_with_what_has_changed, leaf_that_starts,
]  # fmt: skip


def refused(kind, step) -> wb.GradientError:
    tape = wb.Tape()
    x, w = run(kind, step, X, tape)
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={w: wb.ones(len(w), dtype=kind.dtype)})
    assert not x.grad.numpy().any()
    return found.value


@pytest.mark.parametrize("step", LOST, ids=lambda f: f.__name__)
def test_what_went_through_numpy_is_refused(kind, step):
    error = refused(kind, step)
    assert error.slug == "host-values" and "wb.detach" in error.instead
    source, first = inspect.getsourcelines(step)
    lines = {mark: [first + n for n, text in enumerate(source) if "#" in text and mark in text] for mark in MARKS}
    for line in lines["written"]:
        assert error.where.line == line
    for line in lines["read"]:
        assert f":{line}: {source[line - first].strip()}" in error.what


MARKS = "read", "written"


@pytest.mark.parametrize("step", [changed_in_place])
def test_what_numpy_changes_behind_a_launch_is_refused(kind, step):
    assert refused(kind, step).slug in ("overwritten", "host-values")


def test_the_error_names_both_lines_and_both_arrays():
    kind = Kind(32)
    x, z, w = wb.array(X, requires_grad=True), kind.new(), kind.new()
    with wb.Tape() as tape:
        y = kind.squared(x)
        h = y.numpy() * 2
        z.assign(h)
        wb.launch(square32, dim=3, inputs=[z], outputs=[w])
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={w: kind.ones()})
    text = str(found.value)
    assert "z was written with values that the host made from y, read at" in text
    assert "h = y.numpy() * 2" in text and "z.assign(h)" in text and text.endswith("[host-values]")

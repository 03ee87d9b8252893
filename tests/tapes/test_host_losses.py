"""Values that NumPy or Python made of memory on an active path: refused or warned of where a gradient would end."""

from __future__ import annotations

import copy
import inspect
import json
import math
import pickle
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support import host_steps
from tests.support.host_steps import Kind, X, check, run, square32

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture(params=[32, 64])
def kind(request) -> Kind:
    return Kind(request.param)


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


def through_item_arithmetic(kind, y):
    return kind.new().fill_(3 * y.numpy()[1].item() + 1)  # read and written


def through_a_list_of_floats(kind, y):
    return kind.new().fill_(sum(y.numpy().tolist()) / 3)  # read and written


def through_powers_of_items(kind, y):
    a, b = y[0].item(), y.numpy().item(1)  # read
    return wb.full(3, (a**2 + b**2) ** 0.5, dtype=kind.dtype)  # written


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


def through_a_builtin(kind, y):
    z = kind.new()
    z[0] = wb.sin(y[1])  # read and written
    return z


def through_a_vector(kind, y):
    three = wb.types.vector(3, kind.dtype)
    z = kind.new()
    z[0] = wb.length(three(y[0], 1.0, y[2]))  # written
    return z


def through_a_rotation(kind, y):
    turn, three = wb.types.quaternion(kind.dtype), wb.types.vector(3, kind.dtype)
    z = kind.new()
    z[0] = wb.quat_rotate(turn(0.0, 0.0, 0.6, 0.8), three([y[1], y[1], 2.0]))[0]  # read and written
    return z


def through_a_type(kind, y):
    z = kind.new()
    z[0] = wb.float16(y[1])  # read and written
    return z


LOST = [
    through_a_builtin,
    through_a_vector,
    through_a_rotation,
    through_a_type,
    halved,
    sine,
    sine_of_the_array,
    joined,
    joined_arrays,
    stacked,
    stacked_elements,
    taken_at,
    masked,
    written_raw,
    written_raw_later,
    written_raw_in_place,
    written_by_out,
    written_by_copyto,
    through_a_buffer,
    through_asarray,
    through_a_view_of_asarray,
    through_methods,
    through_a_sum,
    through_linalg,
    through_arithmetic,
    through_arithmetic_with_numpy,
    through_item_arithmetic,
    through_a_list_of_floats,
    through_powers_of_items,
    through_tolist,
    through_iteration,
    through_another_type,
    shared,
    launched_with_arithmetic,
    launched_with_a_mean,
    field_by_arithmetic,
    scalar_by_arithmetic,
    element_that_has_changed,
    launched_with_what_has_changed,
    leaf_that_starts,
]


def refused(kind, step) -> wb.GradientError:
    tape = wb.Tape()
    x, w = run(kind, step, X, tape)
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={w: wb.ones(len(w), dtype=kind.dtype)})
    assert not x.grad.numpy().any()
    return found.value


@pytest.mark.parametrize("step", LOST, ids=lambda f: f.__name__)
@pytest.mark.host_memory(
    "written_raw", "written_raw_later", "written_raw_in_place", "written_by_out", "written_by_copyto"
)
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
@pytest.mark.host_memory
def test_what_numpy_changes_behind_a_launch_is_refused(kind, step):
    assert refused(kind, step).slug in ("overwritten", "host-values")


def test_elements_that_only_equal_what_was_read_are_not_named_beside_what_was():
    x, w = (wb.array(v, requires_grad=True) for v in ([1.1234, 2.2345], [5.4321, 6.5432]))
    with wb.Tape() as tape:
        y, u, z = x * x, w * w, wb.zeros(2)
        h = u.numpy() * 1.5
        h[[0, 1]] = np.array(y.numpy().tolist())
        z.assign(h)
    with pytest.raises(wb.GradientError, match=r"made from u, read at [^;]*\.\n") as refusal:
        tape.backward(grads={z: wb.ones(2)})
    assert refusal.value.slug == "host-values"


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


# ---- what loses nothing is neither refused nor warned of


def reading_the_loss(kind, y):
    losses = [float(y[0]), y[1].item(), y[0:1].item(), y.numpy().sum(), y.numpy().tolist(), y.list()]
    assert str(losses) and f"{y[1]:.3f}" == f"{float(y[1]):.3f}"
    return kind.squared(y)


def written_and_overwritten(kind, y):
    z = kind.new()
    z.assign(y.numpy() * 2)
    wb.copy(z, y)
    return z


def written_raw_and_overwritten(kind, y):
    z = kind.new()
    z.numpy()[:] = y.numpy() * 2
    z.numpy()[:] = 3.0
    wb.copy(z, y)
    return z


def constants_beside_it(kind, y):
    c = kind.ones()
    c.assign(c.numpy() * 3)
    return kind.scaled(float(c[0]), y)


def written_where_nobody_looks(kind, y):
    z = kind.new()
    z.assign(np.sin(y.numpy()))
    return y


def detached(kind, y):
    z, s = kind.new(), wb.scalar(1.0, dtype=kind.dtype)
    z.assign(wb.detach(y.numpy()))
    z.assign(wb.detach(y.numpy() * 2))
    z[0] = wb.detach(y[1])
    s.value = wb.detach(y[1])
    assert z.numpy()[0] == y.numpy()[1] == s.value
    return kind.scaled(wb.detach(float(y[1])), kind.scaled(wb.detach(y[0] * 2), kind.squared(y)))


SILENT = [
    reading_the_loss,
    written_and_overwritten,
    written_raw_and_overwritten,
    constants_beside_it,
    written_where_nobody_looks,
]


@pytest.mark.parametrize("step", SILENT, ids=lambda f: f.__name__)
def test_what_loses_no_gradient_is_silent(kind, step):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(kind, step)


def test_what_is_detached_is_a_constant():
    kind = Kind(64)
    tape = wb.Tape()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, w = run(kind, detached, X, tape)
        tape.backward(grads={w: wb.ones(3, dtype=wb.float64)})
    a, b, v = X[1] ** 2, 2 * X[0] ** 2, np.array(X)
    np.testing.assert_allclose(x.grad.numpy(), 8 * (a * b) ** 2 * v**7, rtol=1e-12)


def test_outside_of_a_tape_values_are_plain():
    x = wb.array(X, requires_grad=True)
    assert type(x.numpy()) is np.ndarray and type(x[0]) is np.float32 and type(np.sin(x)) is np.ndarray
    assert type(wb.ones(2, dtype=wb.vec3)[0]) is wb.types.Small
    with wb.Tape():
        assert type(x.grad.numpy()) is np.ndarray and type(wb.ones(2, dtype=int).numpy()) is np.ndarray
        h, v = x.numpy(), x[0]
    assert type(h * 2) is np.ndarray and type(v * 2) is np.float32


@pytest.mark.host_memory
def test_values_under_a_tape_look_and_travel_like_plain_ones():
    x = wb.array(X, requires_grad=True)
    with wb.Tape():
        h, v = x.numpy(), x[1]
        assert repr(h) == repr(np.array(X, np.float32)) and str(h) == str(np.array(X, np.float32))
        assert repr(v) == "np.float32(2.0)" and str(v) == "2.0" and isinstance(v, np.float32) and hash(v) == hash(2.0)
        for value in (h, v, h * 2):
            for other in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value), copy.copy(value)):
                np.testing.assert_array_equal(other, value)
        assert type(pickle.loads(pickle.dumps(h))) is np.ndarray
        assert type(pickle.loads(pickle.dumps(v))) is np.float32
        assert (h > 1).tolist() == [True, True, False] and v == 2 and v > 1 and int(v) == 2 and bool(v)
        assert h.astype(int).tolist() == [1, 2, 0] and np.argmax(h) == 1 and len(h) == 3 and 2.0 in h
        h.fill(3.0)
    assert x.list() == [3, 3, 3]


# ---- what can only be supposed


@wb.kernel
def third(x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = x[i] / wb.float64(3.0)


def suspected(step):
    """The warnings of `backward` and the findings where `w = square(step(y))`, and y = x / 3."""
    kind = Kind(64)
    x, y = wb.array(X, dtype=wb.float64, requires_grad=True), kind.new()
    with wb.Tape() as tape:
        wb.launch(third, dim=3, inputs=[x], outputs=[y])
        w = kind.squared(step(kind, y))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tape.backward(grads={w: kind.ones(len(w))})
    said = [w for w in said if "host-number" in str(w.message)]
    return said, tape.diagnose().named("host-number")


def copied_number(kind, y):
    return kind.scaled(float(str(float(y[1]))), kind.ones())


def copied_by_json(kind, y):
    return wb.full(3, json.loads(json.dumps(y.numpy().tolist()))[1], dtype=kind.dtype)


def copied_by_pickle(kind, y):
    return pickle.loads(pickle.dumps(y))


def a_part_by_pickle(kind, y):
    whole = kind.new()
    whole[0:2].assign(pickle.loads(pickle.dumps({"part": y[1:3]}))["part"])
    return whole


def doubled(kind, y):
    return kind.new().fill_(2.0 * float(y[1]))


def affine_in_a_number(kind, y):
    return kind.scaled(0.7 * float(y[1]) + 1.0, kind.ones())


def sine_of_a_number(kind, y):
    return kind.scaled(math.sin(float(y[1])), kind.ones())


def stripped_array(kind, y):
    z = kind.new()
    z.assign(np.array(y.numpy(), subok=False))
    return z


def stripped_slice(kind, y):
    z = kind.new()
    z.assign(np.array(y.numpy()).tolist())
    return z


def stripped_raw(kind, y):
    z = kind.new()
    z.numpy()[:] = np.array(y.numpy())
    return z


def stripped_out(kind, y):
    z = kind.new()
    np.multiply(np.array(y.numpy()), 2.0, out=z.numpy())
    return z


def stripped_reversed(kind, y):
    return wb.from_numpy(np.array(y.numpy()[::-1], dtype=float))


def stripped_strided(kind, y):
    return wb.from_numpy(np.array(y.numpy()[::2], dtype=float))


def stripped_rolled(kind, y):
    return wb.array(np.roll(np.array(y.numpy()), 1))


def stripped_and_joined(kind, y):
    return wb.array(np.concatenate([np.array(y.numpy())[1:], [1.0]]))


def stripped_and_clipped(kind, y):
    return wb.array(np.clip(np.array(y.numpy()), 0.0, 10.0))


def stripped_before_it_changes(kind, y):
    h = np.array(y.numpy())
    y.assign(kind.squared(y))
    return wb.array(h[::-1])


def asarray_scaled(kind, y):
    return wb.array(np.asarray(y) * 2)


SUPPOSED = [
    copied_number,
    copied_by_json,
    copied_by_pickle,
    a_part_by_pickle,
    stripped_array,
    stripped_slice,
    stripped_raw,
    stripped_out,
    stripped_reversed,
    stripped_strided,
    stripped_rolled,
    stripped_and_joined,
    stripped_and_clipped,
    stripped_before_it_changes,
]


@pytest.mark.parametrize("step", SUPPOSED, ids=lambda f: f.__name__)
@pytest.mark.host_memory("stripped_raw", "stripped_out", "by_pickle")
def test_numbers_that_equal_what_was_read_are_warned_of(step):
    said, found = suspected(step)
    assert len(said) == 1 and "[host-number]" in str(said[0].message) and "wb.detach" in str(said[0].message)
    assert said[0].filename in (__file__, host_steps.__file__) and "read at" in str(said[0].message)
    assert len(found) == 1 and found[0].severity == "warning" and "wb.detach" in found[0].fix


def round_numbers(kind, y):
    y.fill_(0.25)
    assert float(y[0]) == 0.25
    return kind.scaled(0.25, kind.squared(y))


def detached_number(kind, y):
    return kind.scaled(wb.detach(1.0 / float(y[1])), kind.ones())


def detached_values(kind, y):
    z = kind.new()
    z.assign(wb.detach(y.numpy()))
    z[1:].assign(wb.detach(y.numpy().tolist())[1:])
    return z.fill_(wb.detach(float(y[1]))) * wb.full(3, wb.detach(y[1]))


def taken_before_it_was_read(kind, y):
    dt = 1 / 120
    v = kind.scaled(9.81 * dt, kind.squared(y))
    speed = kind.scaled(dt, kind.ones())
    assert float(speed[0]) == dt and float(v[0]) != dt
    return kind.scaled(dt, v)


def linspaces(kind, y):
    grid, z = wb.array(np.linspace(0, 1, 7)), kind.new(7)
    line = kind.scaled(y[0], grid)
    assert np.asarray(line)[6] == 0.5
    z.assign(np.linspace(0, 2, 7))
    return kind.squared(z)


def unrelated_values(kind, y):
    rng = np.random.default_rng(5)
    for _ in range(20):
        assert np.asarray(y).size == 3 and y.list()
        z = kind.new(3)
        z.assign(rng.normal(size=3))
        y = kind.scaled(float(rng.normal()), y * z)
    return y


def another_number(kind, y):
    assert float(y[1]) == 2.0 / 3
    return kind.scaled(0.6666, kind.ones())


@pytest.mark.parametrize(
    "step",
    [
        round_numbers,
        detached_number,
        detached_values,
        taken_before_it_was_read,
        linspaces,
        unrelated_values,
        another_number,
        doubled,
        affine_in_a_number,
        sine_of_a_number,
        asarray_scaled,
    ],
    ids=lambda f: f.__name__,
)
def test_other_numbers_are_not_warned_of(step):
    said, found = suspected(step)
    assert said == [] and found == []

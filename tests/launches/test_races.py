"""Races: two threads on one element, one of them storing. Refused where certain, found before the first backward.

A program without a race must never be refused: atomics of one kind, components of one vector, permutations.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import workbench as wb

F = wb.float64
X = np.array([0.7, -1.3, 2.1, 0.4, 1.9, -0.6])
N = len(X)


pytestmark = pytest.mark.usefixtures("backend")


def leaf(values=X, dtype=F):
    return wb.array(np.asarray(values, float), dtype=dtype, requires_grad=True)


def empty(n=N, dtype=F):
    return wb.zeros(n, dtype=dtype)


def ints(*values: int):
    return wb.array(list(values), dtype=int)


def record(kernel, dim, *arrays) -> wb.Tape:
    with wb.Tape() as tape:
        wb.launch(kernel, dim=dim, inputs=arrays)
    return tape


def backward(tape, y):
    tape.backward(grads={y: wb.ones_like(y, requires_grad=False)})


def race(tape, y, *words: str):
    """Backward is refused, twice alike, and nothing is published."""
    for _ in range(2):
        with pytest.raises(wb.GradientError) as found:
            backward(tape, y)
        assert found.value.slug == "race"
        for word in words:
            either = (word, re.sub(r"(\d+) and (\d+)", r"\2 and \1", word))
            assert any(form in str(found.value) for form in either)
    for a in tape.gradients.values():
        assert not np.any(a.numpy())


def checked(tape) -> bool:
    """Does the first launch of this tape need its stores looked at."""
    return tape.launches[0].reverse.races is not None


# --- store and store


@wb.kernel
def scatter(x: wb.array(dtype=F), index: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    y[index[i]] = x[i] * x[i]


def test_two_stores_to_one_element_are_found():
    x, y = leaf(), empty()
    tape = record(scatter, N, x, ints(0, 1, 2, 3, 1, 5), y)
    assert checked(tape)
    line = scatter.program().function.where.line + 2
    race(tape, y, "'y', y[1], in ", "threads 1 and 4", f"line {line} (store) and line {line} (store)")
    race(record(scatter, 2, x, ints(3, 3), y), y, "threads 0 and 1", "y[3]")
    race(record(scatter, 2, x, ints(-2, 4), y), y, "threads 0 and 1", "y[4]")


def test_a_permutation_is_no_race_and_exact():
    x, y, order = leaf(), empty(), [3, 1, 5, 0, 4, 2]
    tape = record(scatter, N, x, ints(*order), y)
    assert not tape.launches[0].checked
    for k in (1, 2):
        tape.backward(grads={y: wb.array(np.arange(1.0, 7.0), dtype=F)})
        np.testing.assert_array_equal(x.grad.numpy(), k * 2 * X * (np.array(order) + 1.0))
    assert tape.launches[0].checked, "once is enough"
    np.testing.assert_array_equal(y.numpy()[order], X**2)


def test_a_race_that_the_events_before_decide_is_looked_for_in_the_memory_of_that_moment():
    x, y, order = leaf(), empty(), ints(0, 0, 0, 0, 0, 0)
    with wb.Tape() as tape:
        order.assign([5, 4, 3, 2, 1, 0])
        wb.launch(scatter, dim=N, inputs=[x, order, y])
        order.zero_()
    backward(tape, y)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)
    tape.zero()
    with wb.Tape() as tape:
        wb.launch(scatter, dim=N, inputs=[x, order, y])
        order.assign([5, 4, 3, 2, 1, 0])
    race(tape, y)


def test_a_store_under_a_condition_races_only_if_it_happens():
    @wb.kernel
    def guarded(x: wb.array(dtype=F), index: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        if x[i] > F(0.0):
            y[index[i]] = x[i] * x[i]

    x, y = leaf(), empty()
    backward(record(guarded, N, x, ints(0, 0, 2, 3, 4, 0), y), y)  # threads 1 and 5 do not store
    np.testing.assert_array_equal(x.grad.numpy(), np.where(X > 0, 2 * X, 0))
    race(record(guarded, N, leaf(), ints(0, 0, 0, 3, 4, 5), y), y, "threads 0 and 2")


def test_a_grid_of_two_axes_names_both_indices():
    @wb.kernel
    def grid(x: wb.array2d(dtype=F), index: wb.array(dtype=int), y: wb.array2d(dtype=F)):
        i, j = wb.tid()
        y[index[i], j] = x[i, j] * x[i, j]

    x, y = leaf(X.reshape(3, 2)), wb.zeros((3, 2), dtype=F)
    race(record(grid, (3, 2), x, ints(0, 2, 0), y), y, "(0, ", "(2, ", "y[0, ")
    tape = record(grid, (3, 2), x, ints(2, 0, 1), y)
    backward(tape, y)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X.reshape(3, 2))


# --- load and store


@wb.kernel
def neighbour(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    n = x.shape[0]
    y[i] = x[(i + 1) % n] * x[i]


@wb.kernel
def neighbour_in_place(x: wb.array(dtype=F)):
    i = wb.tid()
    n = x.shape[0]
    x[i] = x[(i + 1) % n] * x[i]


@wb.kernel
def swapped(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[1 - i] * x[1 - i]
    x[i] = y[i]


def test_a_load_of_what_another_thread_stores_is_found():
    x = leaf()
    race(record(neighbour_in_place, N, x), x, "'x'", "load", "store")
    x, y = leaf(X[:2]), empty(2)
    race(record(swapped, 2, x, y), y, "'x'")


def test_a_load_and_a_store_of_one_thread_are_no_race():
    x = leaf(X[:1])
    backward(record(neighbour_in_place, 1, x), x)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X[:1])


def test_an_own_element_is_proven_and_not_looked_at():
    @wb.kernel
    def own(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        x[i] = x[i] * x[i]
        y[i] = x[i]
        y[i] *= F(2.0)

    x, y = leaf(), empty()
    tape = record(own, N, x, y)
    assert not checked(tape)
    backward(tape, y)
    np.testing.assert_array_equal(x.grad.numpy(), 4 * X)


# --- atomics


@wb.kernel
def add_all(x: wb.array(dtype=F), s: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(s, 0, x[i] * x[i])
    wb.atomic_sub(s, 0, x[i])
    s[0] += x[i]


@wb.kernel
def add_and_read(x: wb.array(dtype=F), s: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    s[0] += x[i]
    y[i] = s[0]


@wb.kernel
def add_and_store(x: wb.array(dtype=F), k: wb.array(dtype=int), s: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(s, 0, x[i])
    s[k[i]] = x[i]


@wb.kernel
def add_and_max(x: wb.array(dtype=F), s: wb.array(dtype=F)):
    i = wb.tid()
    if i % 2 == 0:
        wb.atomic_add(s, 0, x[i])
    else:
        wb.atomic_max(s, 0, x[i])


@wb.kernel
def largest(x: wb.array(dtype=F), s: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_max(s, 0, x[i])


def test_atomics_of_one_kind_may_meet():
    x, s = leaf(), empty(1)
    backward(record(add_all, N, x, s), s)
    np.testing.assert_allclose(x.grad.numpy(), 2 * X, rtol=1e-15)
    x, s = leaf(), empty(1)
    backward(record(largest, N, x, s), s)
    np.testing.assert_array_equal(x.grad.numpy(), (X.max() == X).astype(float))


def test_an_atomic_and_another_access_are_found():
    x, s, y = leaf(), empty(1), empty()
    race(record(add_and_read, N, x, s, y), y, "'s'")
    s = empty(2)
    race(record(add_and_store, N, x, ints(0, 1, 1, 1, 1, 1), s), s, "'s'")
    s = empty(1)
    race(record(add_and_max, N, x, s), s, "'s'")


def test_an_atomic_and_a_read_of_other_elements_are_no_race():
    @wb.kernel
    def halves(x: wb.array(dtype=F), k: wb.array(dtype=int), s: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(s, k[i], x[i] * s[1])

    x, s = leaf(), wb.array([0.0, 3.0], dtype=F, requires_grad=True)
    tape = record(halves, N, x, ints(0, 0, 0, 0, 0, 0), s)
    tape.backward(grads={s[0:1]: wb.ones(1, dtype=F)})
    np.testing.assert_array_equal(x.grad.numpy(), np.full(N, 3.0))
    np.testing.assert_allclose(s.grad.numpy(), [1, X.sum()], rtol=1e-15)


# --- components


@wb.kernel
def spread(x: wb.array(dtype=F), v: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    v[i // 3][i % 3] = x[i] * x[i]


@wb.kernel
def squeeze(x: wb.array(dtype=F), k: wb.array(dtype=int), v: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    v[i // 3][k[i]] = x[i] * x[i]


def test_components_of_one_vector_may_be_written_by_different_threads():
    x, v = leaf(), empty(2, wb.vec3d)
    backward(record(spread, N, x, v), v)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)
    np.testing.assert_array_equal(v.numpy().ravel(), X**2)


def test_one_component_may_not():
    x, v = leaf(), empty(2, wb.vec3d)
    race(record(squeeze, N, x, ints(0, 1, 2, 0, 2, 2), v), v, "'v'", "threads 4 and 5")
    backward(record(squeeze, N, x, ints(0, 1, 2, 2, 0, 1), v), v)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)


# --- two names of one memory


def test_two_names_of_one_memory_race_like_one():
    a = leaf()
    race(record(neighbour, N, a, a), a)
    a = leaf()
    race(record(neighbour, 3, a[0:3], a[1:4]), a)
    a = leaf()
    race(record(neighbour, N, a, wb.array(ptr=a.ptr, shape=N, dtype=F)), a)


def test_two_names_of_different_bytes_do_not_race():
    a = leaf(X)
    tape = record(neighbour, 3, a[0:3], a[3:6])
    tape.backward(grads={a[3:6]: wb.ones(3, dtype=F)})
    b = X[:3]
    np.testing.assert_allclose(a[0:3].grad.numpy(), np.roll(b, -1) + np.roll(b, 1), rtol=1e-15)


def test_one_memory_under_two_names_with_own_elements_is_no_race():
    @wb.kernel
    def times(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
        i = wb.tid()
        z[i] = x[i] * y[i]

    a = leaf()
    backward(record(times, N, a, a, a), a)
    np.testing.assert_array_equal(a.grad.numpy(), 2 * X)


@pytest.mark.host_memory
def test_a_store_through_a_zero_stride_is_a_race():
    raw = np.zeros(1)
    y = wb.from_numpy(np.lib.stride_tricks.as_strided(raw, (N,), (0,)), dtype=F)
    x = leaf()

    @wb.kernel
    def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * x[i]

    with pytest.raises((wb.GradientError, wb.LaunchError)) as found, wb.Tape() as tape:
        wb.launch(square, dim=N, inputs=[x, y])
        backward(tape, y)
    assert found.value.slug == "race"


# --- certain at the launch, and switched off


@wb.kernel
def all_to_one(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[0] = x[i] * x[i]


@wb.kernel
def pairs(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i // 2] = x[i]


@wb.kernel
def at_scalar(x: wb.array(dtype=F), y: wb.array(dtype=F), k: int):
    i = wb.tid()
    y[i * k] = x[i]


@wb.kernel
def forget_axis(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i, j = wb.tid()
    y[i] = x[j]


@pytest.mark.parametrize(
    ("kernel", "dim", "more"), [(all_to_one, N, ()), (at_scalar, N, (0,)), (forget_axis, (2, 3), ())]
)
def test_a_certain_race_is_refused_at_the_launch_with_or_without_a_tape(kernel, dim, more):
    x, y = leaf(), empty()
    with pytest.raises(wb.LaunchError) as found:
        wb.launch(kernel, dim=dim, inputs=[x, y, *more])
    assert found.value.slug == "race" and "'y'" in str(found.value)
    assert not y.numpy().any(), "nothing ran"


@pytest.mark.parametrize(
    ("kernel", "dim", "more"), [(all_to_one, 1, ()), (at_scalar, N, (1,)), (forget_axis, (6, 1), ())]
)
def test_the_same_kernels_on_a_grid_that_does_not_race_run(kernel, dim, more):
    x, y = leaf(), empty()
    backward(record(kernel, dim, x, y, *more), y)
    assert x.grad.numpy().any()


def test_pairs_of_threads_on_one_element_are_refused():
    x, y = leaf(), empty()
    with pytest.raises((wb.LaunchError, wb.GradientError)) as found:
        backward(record(pairs, N, x, y), y)
    assert found.value.slug == "race"


def test_the_guard_can_be_switched_off_and_on_again():
    x, y, double = leaf(), empty(), ints(0, 1, 2, 3, 1, 5)
    wb.config.race_guard = False
    tape = record(scatter, N, x, double, y)
    assert not checked(tape)
    backward(tape, y)
    tape.zero()
    wb.config.race_guard = True
    race(record(scatter, N, x, double, y), y)


def test_a_certain_race_names_the_element_the_threads_and_both_lines():
    @wb.kernel
    def overlap(y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = 1.0
        y[i + 1] = 2.0

    with pytest.raises(wb.LaunchError, match=r"threads \(3,\) and \(2,\).*'y', y\[3\], in line \d+ and line \d+"):
        wb.launch(overlap, dim=4, outputs=[wb.zeros(5)])


@wb.kernel
def addressed(
    k: wb.array(dtype=int), again: wb.array(dtype=int), value: int, x: wb.array(dtype=F), y: wb.array(dtype=F)
):
    i = wb.tid()
    k[i] = value * i
    y[again[i]] = x[i] * x[i]


@pytest.mark.parametrize("value", [0, 1])
def test_indices_written_under_another_name_are_those_the_finder_takes(value):
    x, y = leaf(), empty()
    k = ints(*(range(N) if value == 0 else [0] * N))
    tape = record(addressed, N, k, k, value, x, y)
    if value == 0:
        race(tape, y, "y[0]")
    else:
        backward(tape, y)
        np.testing.assert_array_equal(x.grad.numpy(), 2 * X)


@wb.kernel
def one_before(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i - 1] = x[i % 4] * x[i % 4]


@pytest.mark.parametrize("threads", [4, 5])
def test_an_index_that_counts_from_the_end_meets_the_one_it_counts_to(threads):
    """Thread 0 writes the last element; so does a fifth thread."""
    x, y = wb.ones(4, requires_grad=True), wb.zeros(4)
    with wb.Tape() as tape:
        wb.launch(one_before, threads, [x], [y])
    if threads == 4:
        tape.backward(grads={y: wb.ones(4)})
        assert x.grad.list() == [2.0] * 4
        return
    with pytest.raises(wb.GradientError, match=r"\[race\]"):
        tape.backward(grads={y: wb.ones(4)})

"""A launch that was seen before does, and refuses, what it did when it was looked at."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.launches import launch_cache as launches_seen
from workbench.launches.plan import switches

FACTOR = 2.0


@wb.kernel
def scaled(x: wb.array[float], a: float, n: int, y: wb.array[float]):
    i = wb.tid()
    y[i] = FACTOR * a * x[i] + float(n)


@wb.kernel
def shifted(x: wb.array[float], k: int, y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i + k]


@wb.kernel
def doubled(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 2.0 * x[i] * x[i]


def values(n: int = 4) -> np.ndarray:
    return np.linspace(0.5, 1.5, n).astype(np.float32)


@pytest.mark.parametrize("backend", ["c", "numpy"])
@pytest.mark.parametrize("remember", [True, False])
def test_gradients_of_a_loop_are_the_same_bits(backend: str, remember: bool) -> None:
    wb.config.backend, wb.config.remember_launches = backend, remember
    x, y, z = wb.array(values(), requires_grad=True), wb.zeros(4), wb.zeros(4)
    for turn in range(3):
        a = 0.7 + turn
        with wb.Tape() as tape:
            wb.launch(scaled, 4, [x, a, 3], [y])
            wb.launch(doubled, 4, [y], [z])
        tape.backward(grads={z: wb.ones(4)})
        inner = np.float32(2.0) * np.float32(a) * values() + np.float32(3)
        np.testing.assert_allclose(z.numpy(), 2 * inner**2, rtol=1e-6)
        np.testing.assert_allclose(x.grad.numpy(), 4 * inner * 2 * np.float32(a), rtol=1e-5)
        tape.zero()


def test_a_number_counts_by_its_bits_and_its_type() -> None:
    x, y = wb.ones(4), wb.zeros(4)
    for a, n in ((1.0, 0), (0.0, 0), (-0.0, 0), (1.0, True), (1, 2), (np.float32(3.0), 2), (1.0, 0)):
        wb.launch(scaled, 4, [x, a, n], [y])
        want = 2.0 * float(a) + float(n)
        assert y.list() == [want] * 4
    zero, out = wb.zeros(1), wb.zeros(1)
    for a in (0.0, -0.0, 0.0):
        wb.launch(times, 1, [zero, a], [out])
        assert np.signbit(out.numpy()[0]) == np.signbit(a)


@wb.kernel
def times(x: wb.array[float], a: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = a + x[i] * a


def test_what_was_refused_the_first_time_is_refused_behind_a_launch_that_was_right() -> None:
    x, y = wb.array(values(), requires_grad=True), wb.zeros(4)
    for _ in range(2):
        wb.launch(shifted, 3, [x, 1], [y])
    refused = [
        (lambda: wb.launch(shifted, 3, [x, 2], [y]), "bounds"),
        (lambda: wb.launch(shifted, 4, [x, 1], [y]), "bounds"),
        (lambda: wb.launch(shifted, 3.0, [x, 1], [y]), "dim"),
        (lambda: wb.launch(shifted, (3.0,), [x, 1], [y]), "dim"),
        (lambda: wb.launch(shifted, 3, [x, 1.5], [y]), "argument-type"),
        (lambda: wb.launch(shifted, 3, [x, 1, 1], [y]), "argument-count"),
        (lambda: wb.launch(shifted, 3, [x, 1], []), "argument-count"),
        (lambda: wb.launch(shifted, 3, [x, 1], [None]), "array-left-out"),
        (lambda: wb.launch(shifted, 3, [x, 1], [y], device="cuda:7"), "device"),
        (lambda: wb.launch(shifted, 3, [x, 1], [y], blockdim=4), "launch-keyword"),
    ]
    for launch, slug in refused:
        with pytest.raises(wb.errors.WorkbenchError) as error:
            launch()
        assert error.value.slug == slug
    wb.launch(shifted, 3, [x, 1], [y])
    assert y.list()[:3] == values().tolist()[1:]


def test_a_constant_that_was_changed_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = wb.ones(2), wb.zeros(2)
    for _ in range(2):
        wb.launch(scaled, 2, [x, 1.0, 0], [y])
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    wb.launch(scaled, 2, [x, 1.0, 0], [y])
    assert y.list() == [5.0, 5.0]


def test_a_switch_is_heeded_at_once() -> None:
    @wb.kernel
    def picked(x: wb.array[float], index: wb.array[int], y: wb.array[float]):
        i = wb.tid()
        y[i] = x[index[i]]

    x, index, y = wb.ones(2), wb.array([0, 5], dtype=int), wb.zeros(2)
    big = wb.ones(8)
    wb.config.check_bounds = False
    for _ in range(2):
        wb.launch(picked, 2, [big[:2], index], [y])
        wb.launch(picked, 1, [x, index], [y])
    wb.launch(picked, 2, [big, index], [y])
    wb.config.check_bounds = True
    wb.launch(picked, 2, [big, index], [y])
    with pytest.raises(wb.errors.BoundsError):
        wb.launch(picked, 2, [x, index], [y])


def test_no_array_is_kept_alive_and_none_is_taken_for_another() -> None:
    x = wb.ones(4)
    y = wb.zeros(4)
    wb.launch(doubled, 4, [x], [y])
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None
    for _ in range(20):  # arrays that may lie where the last one lay
        y = wb.zeros(4)
        wb.launch(doubled, 4, [x], [y])
        assert y.list() == [2.0] * 4
        short = wb.zeros(2)
        with pytest.raises(wb.errors.BoundsError):
            wb.launch(doubled, 4, [x], [short])
        del y, short


def test_a_gradient_asked_for_between_two_launches_counts() -> None:
    x, y = wb.array(values()), wb.zeros(4)
    for _ in range(2):
        wb.launch(doubled, 4, [x], [y])
    x.requires_grad = True
    with wb.Tape() as tape:
        wb.launch(doubled, 4, [x], [y])
    tape.backward(grads={y: wb.ones(4)})
    np.testing.assert_allclose(x.grad.numpy(), 4 * values(), rtol=1e-6)


def test_races_are_looked_for_when_asked() -> None:
    @wb.kernel
    def scattered(index: wb.array[int], y: wb.array[float]):
        i = wb.tid()
        y[index[i]] = 1.0

    index, y = wb.array([0, 1], dtype=int), wb.zeros(2)
    for _ in range(2):
        wb.launch(scattered, 2, [index], [y])
    index.fill_(0)
    wb.config.check_races = True
    with pytest.raises(wb.errors.WorkbenchError) as error:
        wb.launch(scattered, 2, [index], [y])
    assert error.value.slug == "race"


def test_a_loan_that_nobody_holds_is_not_compared_at_every_launch() -> None:
    from workbench.arrays import gradient_views

    x, y = wb.array(values(), requires_grad=True), wb.zeros(4)
    with wb.Tape() as tape:
        wb.launch(doubled, 4, [x], [y])
    tape.backward(grads={y: wb.ones(4)})
    held = x.grad.numpy()
    held[0] = 7.0
    wb.launch(doubled, 4, [x.grad], [y])  # what was written to the loan is seen
    assert y.list()[0] == 98.0
    held[1] = 3.0
    del held
    wb.launch(doubled, 4, [x.grad], [y])
    assert y.list()[1] == 18.0
    assert x.grad.allocation.id not in gradient_views.open_views


@wb.struct
class Spring:
    k: float
    rest: wb.vec3
    x: wb.array(dtype=float)


@wb.kernel
def pulled(s: Spring, v: wb.vec3, y: wb.array[float]):
    i = wb.tid()
    y[i] = s.k * s.x[i] * v[0] + s.rest[1]


def test_fields_and_vectors_are_taken_as_they_are_at_each_launch() -> None:
    s, v, y = Spring(), wb.vec3(2.0, 0.0, 0.0), wb.zeros(2)
    s.k, s.rest, s.x = 3.0, wb.vec3(0.0, 1.0, 0.0), wb.ones(2)
    for k, rest, first, x in (
        (3.0, 1.0, 2.0, s.x),
        (4.0, 1.0, 2.0, s.x),
        (4.0, 5.0, 2.0, s.x),
        (4.0, 5.0, -1.0, wb.zeros(2)),
    ):
        s.k, s.rest[1], v[0], s.x = k, rest, first, x
        with wb.Tape():
            wb.launch(pulled, 2, [s, v], [y])
        assert y.list() == [k * x.list()[0] * first + rest] * 2
    with pytest.raises(wb.errors.LaunchError) as error:
        wb.launch(pulled, 2, [s, v[:2]], [y])
    assert error.value.slug == "argument-type"


def test_a_vector_that_is_left_out_is_refused_behind_a_launch_that_was_right() -> None:
    s, y = Spring(), wb.zeros(2)
    s.k, s.rest, s.x = 1.0, wb.vec3(), wb.ones(2)
    for _ in range(3):
        wb.launch(pulled, 2, [s, wb.vec3()], [y])
    with pytest.raises(wb.errors.LaunchError) as error:
        wb.launch(pulled, 2, [s, None], [y])
    assert error.value.slug == "argument-type"


@wb.kernel
def along(v: wb.vec3, x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * v[0] * v[0]


def test_a_vector_that_lies_in_the_memory_of_an_active_array_is_no_constant() -> None:
    v, a, y = wb.vec3(0.0, 0.0, 0.0), wb.ones(3, requires_grad=True), wb.zeros(2)
    shared = wb.from_numpy(v.view(np.ndarray), dtype=float)
    with wb.Tape() as tape:
        wb.launch(doubled, 3, [a], [shared])
        wb.launch(along, 2, [v, wb.ones(2)], [y])
    with pytest.raises(wb.errors.GradientError) as error:  # it was zero, without a word
        tape.backward(grads={y: wb.ones(2)})
    assert error.value.slug == "host-values"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Grows with each launch: was one like it known."""
    known: list[bool] = []
    find = launches_seen.LaunchCache.find

    def noted(*given: Any) -> Any:
        result = find(*given)
        known.append(result is not None)
        return result

    monkeypatch.setattr(launches_seen.LaunchCache, "find", noted)
    return known


def repeat(kernel: wb.Kernel, dim: object, args: list, found: list[bool]) -> None:
    for _ in range(4):
        wb.launch(kernel, dim, args)
    assert found[-1]


def test_a_launch_that_is_known_does_what_was_launched(found: list[bool]) -> None:
    x, y = wb.array(values()), wb.zeros(4)
    repeat(scaled, 4, [x, 1.5, 300, y], found)
    version = y.allocation.version
    for a, n in ((1.5, 300), (0.0, 300), (-0.0, 300), (2.5, 300), (1.5, 301), (1, 300), (1.5, True), (1.5, 300)):
        x.assign(values() + n)
        wb.launch(scaled, 4, [x, a, n], [y])
        np.testing.assert_allclose(y.list(), FACTOR * float(a) * np.float32(values() + n) + n, rtol=1e-6)
        version += 1
        assert y.allocation.version == version
    wb.launch(scaled, 4, [x, -2.5, 9, y])
    assert found[-1], "other numbers are no other launch"
    np.testing.assert_allclose(y.list(), FACTOR * -2.5 * np.array(x.list()) + 9, rtol=1e-6)
    with pytest.raises((OverflowError, wb.LaunchError)):  # no float32
        wb.launch(scaled, 4, [x, 1e300, 9, y])
    wb.launch(scaled, 4, [x, 2**30, 9, y])  # not surely the same number
    assert not found[-1]
    repeat(scaled, 4, [x, 1.5, 300, y], found)
    wb.launch(scaled, (2,), [x, 1.5, 300, y])
    assert not found[-1]
    with pytest.raises(wb.LaunchError):
        wb.launch(scaled, (True,), [x, 1.5, 300])
    with pytest.raises(wb.BoundsError):
        wb.launch(scaled, 5, [x, 1.5, 300, y])


def test_tapes_are_told_of_a_launch_that_is_known(found: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = wb.array(values(), requires_grad=True), wb.zeros(4)
    repeat(scaled, 4, [x, 1.5, 3, y], found)
    with wb.Tape() as tape:
        wb.launch(scaled, 4, [x, 1.5, 3, y])
    tape.backward(grads={y: wb.ones(4)})
    assert x.grad.list() == [3.0] * 4
    with wb.Tape() as tape:
        wb.launch(doubled, 4, [x, y])
    repeat(scaled, 4, [y, 1.5, 3, wb.zeros(4)], found)
    wb.launch(scaled, 4, [wb.array(values()), 1.5, 3, x])  # what the adjoint of the tape reads
    with pytest.raises(wb.GradientError, match="was changed by scaled"):
        tape.backward(grads={y: wb.ones(4)})
    del tape
    repeat(scaled, 4, [x, 1.5, 3, y], found)
    with monkeypatch.context() as patch:
        patch.setitem(scaled.func.__globals__, "FACTOR", 5.0)
        wb.launch(scaled, 4, [x, 1.5, 3, y])
        np.testing.assert_allclose(y.list(), 5.0 * 1.5 * np.array(x.list()) + 3, rtol=1e-6)
    wb.config.remember_launches, asked = False, len(found)
    wb.launch(scaled, 4, [x, 1.5, 3, y])
    assert len(found) == asked
    np.testing.assert_allclose(y.list(), FACTOR * 1.5 * np.array(x.list()) + 3, rtol=1e-6)


def test_a_launch_that_is_known_keeps_no_array_alive(found: list[bool]) -> None:
    x, y = wb.array(values()), wb.zeros(4)
    repeat(scaled, 4, [x, 1.5, 3, y], found)
    gone = [weakref.ref(a.allocation) for a in (x, y)]
    del x, y
    gc.collect()
    assert not any(ref() for ref in gone)


def test_new_arrays_of_known_layouts_are_launched_as_they_are() -> None:
    s = Spring()
    for turn in range(8):
        n = 4 if turn % 3 else 5  # other layouts in between
        x, y = wb.array(values(n) + turn, requires_grad=True), wb.zeros(n)
        s.k, s.x, s.rest = 1.0 + turn, wb.array(values(n)), wb.vec3(0.0, 0.5 * turn, 0.0)
        with wb.Tape() as tape:
            wb.launch(scaled, n, [x, 0.5 * turn, turn, y])
            wb.launch(pulled, n, [s, wb.vec3(2.0, turn, 0.0), y])
        np.testing.assert_allclose(y.list(), (1 + turn) * values(n) * 2 + 0.5 * turn, rtol=1e-6)
        both = wb.zeros(n, requires_grad=True)
        with wb.Tape() as tape:
            wb.launch(scaled, n, [both, 0.5 * turn, turn, both])  # one memory under two names is another launch
        assert both.list() == [turn] * n
        with wb.Tape() as tape:
            wb.launch(scaled, n, [x, 0.5 * turn, turn, y])
        tape.backward(grads={y: wb.ones(n)})
        assert x.grad.list() == [FACTOR * 0.5 * turn] * n
        with pytest.raises(wb.BoundsError):
            wb.launch(scaled, n, [x, 1.0, turn, wb.zeros(n - 1)])
        with pytest.raises(wb.LaunchError):
            wb.launch(scaled, n, [x, 1.0, turn, wb.zeros(n, dtype=wb.float64)])
        with pytest.raises(wb.LaunchError):
            wb.launch(scaled, n, [x, 1.0, 0.5, wb.zeros(n)])


def test_of_many_index_numbers_the_least_recently_used_are_forgotten() -> None:
    @wb.kernel
    def window(x: wb.array[float], k: int, y: wb.array[float]):
        i = wb.tid()
        y[i] = x[i + k]

    x, y = wb.array(values(32)), wb.zeros(4)
    wb.launch(window, 4, [x, 0], [y])
    wb.launch(window, 4, [x, 0], [y])
    plans, cached = window.program().plans, window.launches.known
    assert cached.most == plans.most
    plans.most = cached.most = 4
    for k in range(1, 20):
        for number in (k, k, 0):
            wb.launch(window, 4, [x, number], [y])
            assert y.list() == values(32)[number : number + 4].tolist()
    assert len(plans) == len(cached) == 4
    assert window.launches.find(4, (x, 0, y), None, switches()) is not None
    assert window.launches.find(4, (x, 19, y), None, switches()) is not None
    assert not any(key[-1] in (1, 10) for key in cached)


@wb.struct
class Only:
    x: wb.array[float]


@wb.kernel
def halve_only(of: Only):
    i = wb.tid()
    of.x[i] = 0.5 * of.x[i]


def test_a_struct_of_one_field_is_no_array():
    for n in range(1, 6):
        of = Only()
        of.x = wb.array([2.0 * n, 4.0 * n])
        for _ in range(3):
            wb.launch(halve_only, 2, [of])
        assert of.x.list() == [0.25 * n, 0.5 * n]

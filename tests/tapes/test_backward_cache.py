"""A reverse pass that was made before runs as one list of calls: the same gradients, and the same refusals."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.arrays import ports
from workbench.tapes import backward_cache


@wb.kernel
def spring(x: wb.array[wb.vec3], v: wb.array[wb.vec3], k: float, dt: float, y: wb.array[wb.vec3], w: wb.array[wb.vec3]):
    i = wb.tid()
    f = -k * x[i] * wb.length(x[i])
    speed = v[i] + dt * f
    w[i] = speed
    y[i] = x[i] + dt * speed


@wb.kernel
def diffused(u: wb.array[float], n: int, y: wb.array[float]):
    i = wb.tid()
    if i > 0 and i < n - 1:
        y[i] = u[i] + 0.1 * (u[i - 1] - 2.0 * u[i] + u[i + 1]) + 0.01 * u[i] * u[i]


@wb.kernel
def squared(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(y, 0, x[i] * x[i])


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    backward_cache.forget()
    monkeypatch.setattr(ports, "gradient_takers", [])  # another file may have imported PyTorch, which ends all lists


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one for each walk that ran as a list."""
    ran: list[Any] = []
    run = backward_cache.CompiledBackward.run
    monkeypatch.setattr(backward_cache.CompiledBackward, "run", lambda *given: (ran.append(given[0]), run(*given))[1])
    return ran


class Springs:
    """A few steps of springs: position and speed, whose first values are leaves."""

    def __init__(self) -> None:
        random = np.random.default_rng(3)
        self.x = [wb.array(random.standard_normal((5, 3)).astype(np.float32), dtype=wb.vec3, requires_grad=True)]
        self.v = [wb.array(random.standard_normal((5, 3)).astype(np.float32), dtype=wb.vec3, requires_grad=True)]
        for _ in range(4):
            self.x.append(wb.zeros(5, dtype=wb.vec3))
            self.v.append(wb.zeros(5, dtype=wb.vec3))
        self.seed = wb.array(random.standard_normal((5, 3)).astype(np.float32), dtype=wb.vec3)

    def record(self) -> wb.Tape:
        x, v = self.x, self.v
        with wb.Tape() as tape:
            for t in range(4):
                wb.launch(spring, 5, [x[t], v[t], 2.0, 0.05], [x[t + 1], v[t + 1]])
        return tape

    def gradients(self) -> list[np.ndarray]:
        tape = self.record()
        tape.backward(grads={self.x[-1]: self.seed})
        found = [self.x[0].grad.numpy().copy(), self.v[0].grad.numpy().copy()]
        tape.zero()
        return found


class Field:
    """Steps of a stencil over 3000 cells, whose adjoint is a pull, and a loss by atomics."""

    def __init__(self) -> None:
        values = np.sin(np.arange(3000, dtype=np.float32))
        self.u = [wb.array(values, requires_grad=True), *(wb.zeros(3000) for _ in range(3))]
        self.loss = wb.zeros(1)

    def record(self) -> wb.Tape:
        with wb.Tape() as tape:
            self.loss.zero_()
            for t in range(3):
                wb.launch(diffused, 3000, [self.u[t], 3000], [self.u[t + 1]])
            wb.launch(squared, 3000, [self.u[3]], [self.loss])
        return tape

    def gradients(self) -> list[np.ndarray]:
        tape = self.record()
        tape.backward(self.loss)
        found = [self.u[0].grad.numpy().copy()]
        tape.zero()
        return found


@pytest.mark.parametrize("make", [Springs, Field])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_are_those_of_the_walk(make: Callable[[], Any], threads: int, lists: list[Any]) -> None:
    wb.config.threads = threads
    program = make()
    wb.config.remember_launches = False
    want = program.gradients()
    assert np.any(want[0])
    wb.config.remember_launches = True
    for _ in range(5):
        for a, b in zip(program.gradients(), want, strict=True):
            assert a.tobytes() == b.tobytes()
    assert len(lists) == 4


def test_the_gradients_follow_the_values_and_the_seeds(lists: list[Any]) -> None:
    program = Springs()
    for turn in range(5):
        program.x[0].fill_(0.3 * turn)
        program.seed.fill_(1.0 + turn)
        got = program.gradients()
        wb.config.remember_launches = False
        want = program.gradients()
        wb.config.remember_launches = True
        assert all(a.tobytes() == b.tobytes() for a, b in zip(got, want, strict=True))
    assert lists


def test_leaves_accumulate_and_what_was_overwritten_is_replaced(lists: list[Any]) -> None:
    program = Springs()
    program.x[2].requires_grad = True
    program.gradients()
    once = program.gradients()[0]
    for n in range(1, 5):
        program.record().backward(grads={program.x[-1]: program.seed})
        np.testing.assert_allclose(program.x[0].grad.numpy(), n * once, rtol=1e-5)
        with pytest.warns(UserWarning, match="overwrote the array"):
            assert not program.x[2].grad.numpy().any()
    assert lists


@wb.kernel
def add(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(y, i, x[i] * x[i])


@wb.kernel
def triple(y: wb.array[float], z: wb.array[float]):
    i = wb.tid()
    z[i] = 3.0 * y[i]


@pytest.mark.parametrize("filled", [False, True])
def test_what_is_added_to_has_its_gradient_and_what_is_filled_says_why_it_has_none(filled: bool, lists: list[Any]):
    x, y, z = (wb.array([1.0, 2.0, 3.0], requires_grad=True) for _ in range(3))
    for turn in range(5):
        y.assign([1.0, 2.0, 3.0])
        with wb.Tape() as tape:
            if filled:
                y.zero_()
            wb.launch(add, 3, [x], [y])
            wb.launch(triple, 3, [y], [z])
        tape.zero()
        seed = float(turn % 2)
        tape.backward(grads={z: wb.full(3, seed)})
        assert x.grad.list() == [6.0 * seed * v for v in (1.0, 2.0, 3.0)]
        with pytest.warns(UserWarning, match="overwrote the array") if filled else nullcontext():
            assert y.grad.numpy().tolist() == [0.0 if filled else 3.0 * seed] * 3
    assert lists


def test_who_asks_for_a_gradient_later_gets_it(lists: list[Any]) -> None:
    program = Springs()
    for _ in range(4):
        program.gradients()
    before = len(lists)
    program.x[4].requires_grad = program.x[4].retain_grad = True
    program.gradients()
    tape = program.record()
    tape.backward(grads={program.x[-1]: program.seed})
    assert program.x[4].grad.numpy().tobytes() == program.seed.numpy().tobytes()
    assert len(lists) == before


def test_what_is_refused_is_refused_the_fourth_time() -> None:
    program = Springs()
    for _ in range(4):
        program.gradients()
    tape = program.record()
    program.x[1].fill_(0.0)
    with pytest.raises(wb.errors.GradientError) as error:
        tape.backward(grads={program.x[-1]: program.seed})
    assert error.value.slug == "overwritten"
    tape = program.record()
    program.x[1].numpy()[0] = 0.0
    with pytest.raises(wb.errors.GradientError) as error:
        tape.backward(grads={program.x[-1]: program.seed})
    assert error.value.slug == "overwritten"
    with pytest.raises(wb.errors.GradientError) as error:
        program.record().backward(grads={program.x[-1]: wb.ones(4, dtype=wb.vec3)})
    assert error.value.slug == "seed-shape"


def test_memory_that_is_overwritten_on_the_tape_is_walked_as_ever(lists: list[Any]) -> None:
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(1)
    for _ in range(4):
        x.assign([1.0, 2.0, 3.0])
        y.zero_()
        with wb.Tape() as tape:
            wb.launch(squared, 3, [x], [y])
            wb.launch(doubled, 3, [x])
            wb.launch(squared, 3, [x], [y])
        tape.backward(y)
        assert x.grad.list() == [2.0 + 8.0, 4.0 + 16.0, 6.0 + 24.0]
        tape.zero()
    assert not lists


@wb.kernel
def doubled(x: wb.array[float]):
    i = wb.tid()
    x[i] = 2.0 * x[i]


def test_a_list_keeps_no_array_alive(lists: list[Any]) -> None:
    program = Springs()
    for _ in range(4):
        program.gradients()
    assert lists
    gone = [weakref.ref(a.allocation) for a in (*program.x, *program.v)]
    del program
    gc.collect()
    assert not any(ref() for ref in gone)


def test_views_of_a_tape_see_what_was_walked(lists: list[Any]) -> None:
    program = Springs()
    for _ in range(4):
        program.gradients()
    tape = program.record()
    tape.backward(grads={program.x[-1]: program.seed})
    assert len(lists) == 4
    np.testing.assert_array_equal(tape.adjoint(program.x[0]), program.x[0].grad.numpy())
    assert tape.log.has_touched(program.x[2].span)
    for a in (program.x[1], program.v[4]):
        assert a.allocation in tape.log.written


@wb.kernel
def squares(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


def test_an_optimizer_may_step_between_a_walk_that_was_made_before_and_another():
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3)
    for _ in range(4):
        with wb.Tape() as tape:
            wb.launch(squares, 3, [x], [y])
        tape.backward(grads={y: np.ones(3)})
        slope = 2.0 * x.numpy()
        x.assign(x.numpy() - 0.25 * slope)
        x.grad.zero_()
        tape.backward(grads={y: np.ones(3)})
        np.testing.assert_allclose(x.grad.numpy(), slope)


@wb.kernel
def squared_in_place(x: wb.array[float]):
    i = wb.tid()
    x[i] = x[i] * x[i]


@wb.kernel
def grown(x: wb.array[float], by: wb.array[float]):
    i = wb.tid()
    x[i] = x[i] * by[i]
    by[i] = x[i] + by[i]


def twice_over(x: wb.array, y: wb.array) -> None:
    wb.launch(squared_in_place, 3, [x])
    wb.launch(squared_in_place, 3, [x])


STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "one launch in place": (lambda x, y: wb.launch(squared_in_place, 3, [x]), lambda x, y: 2.0 * x),
    "two in place": (twice_over, lambda x, y: 4.0 * x**3),
    "both overwritten": (lambda x, y: wb.launch(grown, 3, [x, y]), lambda x, y: y),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_walk_that_reads_what_was_kept_reads_that_of_its_own_turn(name: str) -> None:
    """Every turn on the same arrays with other numbers: at the latest at the third a list would run."""
    step, slope = STEPS[name]
    x, y = wb.zeros(3, requires_grad=True), wb.zeros(3)
    for turn in range(1, 6):
        start, other = np.arange(1.0, 4.0, dtype=np.float32) * 0.25 * turn, np.float32([0.5, 1.5, turn])
        x.assign(start)
        y.assign(other)
        with wb.Tape() as tape:
            step(x, y)
        tape.backward(grads={x: wb.ones(3)})
        np.testing.assert_allclose(x.grad.numpy(), slope(start, other), rtol=1e-6)
        tape.zero()

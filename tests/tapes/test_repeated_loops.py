"""Programs that repeat their step: what is remembered of it changes no bits, events, refusals or warnings."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.arrays import ports
from workbench.errors import WorkbenchError
from workbench.tapes import backward_cache

TURNS = 6  # the walk of the third is the first that runs as a list of calls


@wb.kernel
def moved(x: wb.array[float], v: wb.array[float], dt: float, y: wb.array[float], w: wb.array[float]):
    i = wb.tid()
    w[i] = v[i] - dt * x[i] * x[i]
    y[i] = x[i] + dt * v[i]


@wb.kernel
def smoothed(u: wb.array[float], n: int, y: wb.array[float]):
    i = wb.tid()
    if i > 0 and i < n - 1:
        y[i] = 0.5 * u[i] + 0.25 * (u[i - 1] + u[i + 1]) + 0.1 * u[i] * u[i]


@wb.kernel
def gathered(x: wb.array[float], at: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(y, at[i], x[i])


@wb.kernel
def squared(x: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i] * x[i])


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    backward_cache.forget()
    monkeypatch.setattr(ports, "gradient_takers", [])  # another file may have imported PyTorch, which ends all lists
    monkeypatch.setattr(wb.config, "backend", "c")


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by one for each walk that ran as a list."""
    ran: list[Any] = []
    run = backward_cache.CompiledBackward.run
    monkeypatch.setattr(backward_cache.CompiledBackward, "run", lambda *given: (ran.append(given[0]), run(*given))[1])
    return ran


Act = Callable[["Program"], Any]


class Program:
    """A loop of launches over nine cells, with a force that is cleared and gathered anew, and a loss."""

    def __init__(self, marked: bool = False) -> None:
        start = np.linspace(-0.5, 0.7, 9).astype(np.float32)
        self.x = [wb.array(start, requires_grad=True), *(wb.zeros(9, requires_grad=marked) for _ in range(3))]
        self.v = [wb.array(start[::-1].copy(), requires_grad=True), *(wb.zeros(9) for _ in range(3))]
        self.at = wb.array(np.array([1, 2, 3, 4, 5, 6, 7, 8, 0], np.int32))
        self.f, self.u, self.loss = wb.zeros(9), wb.zeros(9), wb.zeros(1)
        self.tape = wb.Tape()

    def run(self, inside: Act | None = None) -> None:
        x, v = self.x, self.v
        for t in range(3):
            wb.launch(moved, dim=9, inputs=[x[t], v[t], 0.1], outputs=[x[t + 1], v[t + 1]])
            if inside is not None and t == 1:
                inside(self)
        self.f.zero_()
        wb.launch(gathered, 9, [x[3], self.at], [self.f])
        wb.launch(smoothed, (9,), [self.f, 9], [self.u])
        wb.launch(squared, 9, [self.u], [self.loss])

    def turn(
        self, inside: Callable[[Program], Any] | None = None, after: Callable[[Program], Any] | None = None
    ) -> Any:
        self.loss.zero_()
        self.tape = tape = wb.Tape()
        with tape:
            self.run(inside)
        if after is not None:
            after(self)
        tape.backward(self.loss)
        return self.numbers()

    def numbers(self) -> list[Any]:
        found = [a.list() for a in (*self.x, *self.v, self.f, self.u, self.loss)]
        found += [a.grad.list() for a in (*self.x, *self.v) if a.grad is not None]
        return [*found, [a.allocation.version for a in (*self.x, *self.v, self.loss)]]


def turns(remember: bool, program: Program, **last: Any) -> tuple[Program, list[Any]]:
    """Some turns of a program; `last`: what is done in the last of them."""
    wb.config.remember_launches = remember
    found = [program.turn() for _ in range(TURNS - 1)]
    try:
        found.append(program.turn(**last))
    except WorkbenchError as error:
        found.append((type(error).__name__, error.slug, str(error)))
    return program, found


@pytest.mark.parametrize("marked", [False, True])
def test_the_bits_are_those_of_a_recording(marked: bool, lists: list[Any]) -> None:
    _, plain = turns(False, Program(marked))
    assert not lists
    program, found = turns(True, Program(marked))
    assert found == plain
    assert len(lists) == TURNS - 1
    want = finite_difference(Program())
    program.tape.zero()
    program.turn()
    np.testing.assert_allclose(program.x[0].grad.list()[4], want, rtol=1e-2)


def finite_difference(program: Program, eps: float = 1e-2) -> float:
    """Of the loss by one of the first positions, from launches alone."""
    values = []
    for sign in (1, -1):
        start = np.linspace(-0.5, 0.7, 9).astype(np.float32)
        start[4] += sign * eps
        program.x[0].assign(start)
        program.loss.zero_()
        program.run()
        values.append(program.loss.list()[0])
    return (values[0] - values[1]) / (2 * eps)


def picture(program: Program) -> list[Any]:
    """What a tape has noted, in words that do not depend on the process."""
    tape = program.tape
    order = {a.allocation: n for n, a in enumerate((*program.x, *program.v, program.at, program.f, program.u))}
    order[program.loss.allocation] = len(order)
    events = [
        (
            e.kind,
            e.label,
            e.line,
            [(order[s.allocation], s.offset, s.shape) for s in (*e.reads, *e.writes)],
            e.reverse is None,
            [(k.said, k.data.tobytes()) for k in e.kept],
        )
        for e in tape.events
    ]
    tape.needed.settle()
    known = tape.needed.memories.items()
    noted = [
        [order[a] for a in tape.active],
        [(order[a], m.begun, m.followed, m.watched, [(n.span.offset, n.position) for n in m]) for a, m in known],
    ]
    names = {order[a.allocation]: tape.names.noted.get(id(a)) for a in tape.arrays.values()}
    origins = [[(s.offset, s.shape) for s, _ in (a.origins.spans if a.origins else ())] for a in order]
    stamps = [e.id for e in tape.events]
    watched = [any(ref() is tape for ref in a.watchers) for a in order]
    return [events, *map(sorted, noted), names, origins, watched, stamps == sorted(set(stamps))]


def test_who_asks_sees_what_was_recorded(lists: list[Any]) -> None:
    plain, _ = turns(False, Program())
    program, _ = turns(True, Program())
    assert lists
    assert picture(program) == picture(plain)
    assert program.tape.__class__ is wb.Tape
    assert len(program.tape.diagnose()) == len(plain.tape.diagnose())
    np.testing.assert_array_equal(program.tape.adjoint(program.x[2]), plain.tape.adjoint(plain.x[2]))


def test_a_tape_that_repeats_another_can_be_pickled_and_copied(lists: list[Any]) -> None:
    for other in (lambda p: pickle.loads(pickle.dumps((p.tape, p.x[0], p.loss))), lambda p: (copy.copy(p.tape),)):
        program, _ = turns(True, Program())
        assert lists
        again, *arrays = other(program)
        assert [e.label for e in again.events] == [e.label for e in program.tape.events]
        if arrays:
            x, loss = arrays
            again.zero()
            again.backward(loss)
            program.tape.zero()
            program.tape.backward(program.loss)
            assert x.grad.list() == program.x[0].grad.list()


def test_the_same_tape_again_after_reset(lists: list[Any]) -> None:
    program, plain = Program(), Program()
    for remember, one in ((False, plain), (True, program)):
        wb.config.remember_launches = remember
        tape = wb.Tape()
        for _ in range(TURNS):
            tape.reset()
            one.loss.zero_()
            with tape:
                one.run()
            tape.backward(grads={one.loss: wb.array([0.5])})
    assert len(lists) == TURNS - 1
    assert program.numbers() == plain.numbers()


def nested(program: Program) -> None:
    with wb.Tape():
        wb.launch(squared, 9, [program.x[0]], [program.u])


def other_thread(program: Program) -> None:
    thread = threading.Thread(target=lambda: program.x[1].fill_(0.5))
    thread.start()
    thread.join()


def another_asks(program: Program) -> None:
    program.v[3].requires_grad = True


DISTURBANCES: dict[str, Act] = {
    "a launch more": lambda p: wb.launch(squared, 9, [p.x[1]], [p.loss]),
    "the same from another line": lambda p: wb.launch(moved, 9, [p.x[2], p.v[2], 0.1], [p.x[3], p.v[3]]),
    "a write": lambda p: p.x[2].fill_(0.25),
    "a write of another thread": other_thread,
    "a number is read": lambda p: p.x[2].list(),
    "memory is exposed": lambda p: p.x[2].numpy(),
    "memory is written to in NumPy": lambda p: p.x[2].numpy().__setitem__(3, 0.5),
    "a gradient is asked for": another_asks,
    "a launch that is not recorded": lambda p: wb.launch(squared, 9, [p.x[0]], [p.x[2]], record_tape=False),
    "a tape inside": nested,
    "gradients of others are asked for": lambda p: wb.zeros(2, requires_grad=True),
    "the tape is looked at": lambda p: len(p.tape.events),
}


@pytest.mark.parametrize("what", DISTURBANCES)
@pytest.mark.parametrize("when", ["inside", "after"])
def test_others_are_seen(what: str, when: str, lists: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        plain, want = turns(False, Program(), **{when: DISTURBANCES[what]})
        program, found = turns(True, Program(), **{when: DISTURBANCES[what]})
        assert lists
        assert [str(f).replace("(", "") for f in found] == [str(w).replace("(", "") for w in want]
        assert picture(program) == picture(plain)


def test_what_is_overwritten_afterwards_is_kept(lists: list[Any]) -> None:
    found = []
    for remember in (False, True):
        program, _ = turns(remember, Program())
        tape = program.tape
        before = program.x[0].grad.list()
        for a in (program.x[0], program.x[0], program.v[1], program.loss):
            a.fill_(2.0)
        tape.zero()
        tape.backward(grads={program.loss: wb.ones(1)})
        assert program.x[0].grad.list() != before  # which had added up
        kept = [(e.kind, len(e.kept), e.where.line) for e in tape.events if e.kind == "foreign"]
        found.append((program.numbers(), kept))
    assert lists
    assert found[0] == found[1]
    assert len(found[0][1]) == 1  # nobody reads the speeds, and the second time nothing was left to be read


def test_a_launch_that_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = turns(True, Program())
    forward = program.tape.launches[0].command.plan.forward  # which all of them share
    left = [forward.native_call] * 2

    def broken(*given: Any) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()(*given)

    monkeypatch.setattr(forward, "native_call", broken)
    tape = program.tape = wb.Tape()
    with pytest.raises(KeyboardInterrupt), tape:
        program.run()
    with pytest.raises(wb.GradientError, match="broke off"):
        tape.backward(grads={program.x[1]: wb.ones(9)})


def test_a_name_of_the_kernel_that_means_something_else_ends_it(lists: list[Any]) -> None:
    x, y, loss = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2), wb.zeros(1)
    for turn in range(TURNS + 1):
        scale.update(by=3.0 if turn < TURNS else 5.0)
        factor = scaled_by(scale["by"])
        loss.zero_()
        with wb.Tape() as tape:
            wb.launch(factor, 2, [x], [y])
            wb.launch(squared, 2, [y], [loss])
        tape.zero()
        tape.backward(loss)
        np.testing.assert_allclose(x.grad.list(), [2 * scale["by"] ** 2, 4 * scale["by"] ** 2])
    assert lists


scale: dict[str, float] = {}
FACTOR = 3.0


@wb.kernel
def with_factor(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = FACTOR * x[i]


def scaled_by(by: float) -> Any:
    global FACTOR
    FACTOR = by
    return with_factor


@wb.struct
class Wind:
    force: wb.vec2
    gusts: int
    strength: float
    still: bool
    over: wb.array(dtype=float)


@wb.kernel
def blown(w: Wind, x: wb.array[float], turned: wb.mat22, dt: float, frame: int, y: wb.array[float]):
    i = wb.tid()
    f = turned * w.force
    push = w.strength * f[0] * w.over[i] + f[1] * float(w.gusts)
    if w.still:
        push = 0.5 * push
    y[i] = x[i] + dt * push * x[i] * float(frame + 1)


@wb.kernel
def picked(x: wb.array[float], at: int, y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i + at] * x[i]


class Weather:
    """Launches over four cells whose numbers, vectors and structs are others in each turn."""

    def __init__(self) -> None:
        values = np.linspace(0.4, 1.2, 6).astype(np.float32)
        self.x = [wb.array(values, requires_grad=True), *(wb.zeros(6) for _ in range(3))]
        self.wind, self.turned, self.loss = Wind(), wb.mat22(1.0, 0.2, -0.3, 1.0), wb.zeros(1)
        self.wind.over, self.wind.force, self.tape = wb.array(values[::-1].copy(), requires_grad=True), wb.vec2(), None

    def turn(self, turn: int) -> list[Any]:
        wind, x = self.wind, self.x
        wind.gusts, wind.strength, wind.force[1] = turn, 1.0 + 0.5 * turn, 0.3 * turn
        self.turned[0, 1] = 0.1 * turn
        self.loss.zero_()
        self.tape = tape = wb.Tape()
        with tape:
            wb.launch(blown, 4, [wind, x[0], self.turned, 0.1 * turn, turn], [x[1]])
            for k in range(2):
                wb.launch(picked, 4, [x[k], k], [x[k + 1]])
            wb.launch(blown, 4, [wind, x[2], self.turned, turn, 2 * turn], [x[3]])
            wb.launch(squared, 4, [x[3]], [self.loss])
        self.turned[1, 1] += 0.5  # what was launched had the number of then
        wind.strength = 7.0
        tape.zero()
        tape.backward(self.loss)
        return [a.list() for a in (*x, self.loss, x[0].grad, wind.over.grad)]


def test_numbers_vectors_and_structs_may_differ(lists: list[Any]) -> None:
    found, numbers = [], []
    for remember in (False, True):
        wb.config.remember_launches = remember
        program = Weather()
        found.append([program.turn(turn) for turn in range(TURNS + 1)])
        events = program.tape.events
        numbers.append([[n for n in map(plain, e.command.flat) if n is not None] for e in events])
        found[-1].append(program.tape.adjoint(program.x[0]).tolist())
    assert len(lists) == TURNS
    assert found[0] == found[1]
    assert numbers[0] == numbers[1]


def plain(number: Any) -> Any:
    """A number, or what a vector holds, with its type; None for arrays."""
    if isinstance(number, np.ndarray):
        return number.dtype.name, number.tolist()
    return None if isinstance(number, wb.array) else (type(number), number)


def held(program: Program) -> Any:
    """Gives gradients away, writes into one of them and to what another was given as."""
    taken = program.x[2].grad.numpy()
    taken[1] += 1.0
    for a in program.x[:2]:
        a.grad.fill_(3.0)
    return taken


def test_gradients_that_others_have_are_published_as_ever(lists: list[Any]) -> None:
    found = []
    for remember in (False, True):
        wb.config.remember_launches = remember
        program, seen = Program(True), []
        for turn in range(TURNS + 4):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                taken = held(program) if turn == TURNS else None
                if turn in (1, 4, TURNS + 2):
                    program.tape.zero()
                seen.append(program.turn())
                if turn == TURNS + 1:
                    program.x[3].grad.ptr  # noqa: B018  the address is known from here on
                grads = [a.grad for a in program.x]
                seen.append([(g.list(), g.allocation.version, g.allocation.publisher[0] > 0) for g in grads])
                seen.append([len(a.allocation.grad_notes) for a in program.x])
                seen.append([str(w.message) for w in said])
            del taken
        found.append(seen)
    assert lists
    assert found[0] == found[1]
    assert any("written" in text for messages in found[0][3::4] for text in messages)


def test_gradients_of_other_memory_change_nothing(lists: list[Any]) -> None:
    found = []
    for remember in (False, True):
        wb.config.remember_launches, program = remember, Program(True)
        others: list[wb.array] = []

        def ask(_: Program, others: list[wb.array] = others) -> None:
            others.append(wb.zeros(2, requires_grad=True))
            assert others[-1].ptr

        found.append([program.turn(ask, ask) for _ in range(TURNS)])
    assert len(lists) == TURNS - 1
    assert found[0] == found[1]

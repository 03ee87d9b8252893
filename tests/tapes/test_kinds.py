"""Each kind of event, made by a program: its gradient, its pickle, its place in pictures, and whether it runs again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests import structure
from tests.support.squares import ONE, F, X, cube, empty, leaf, seed, square, times
from workbench import GradientError
from workbench.arrays import allocation as memory
from workbench.tapes import jvp, kinds, reverse

EVERY = pytest.mark.parametrize("name", kinds.KINDS)


@wb.kernel
def doubled(x: wb.array(dtype=F)):
    i = wb.tid()
    x[i] = x[i] * F(2.0)


def launch(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    wb.launch(square, 4, [x], [y])


def between(step: Callable[[wb.array], Any]) -> Callable[[wb.Tape, wb.array, wb.array], None]:
    """A program: y = x c where c = x x, and then what `step` returns or makes of it."""

    def program(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
        c = empty()
        wb.launch(square, 4, [x], [c])
        made = step(c)
        wb.launch(times, 4, [x, c if made is None else made], [y])

    return program


def copied(c: wb.array) -> wb.array:
    made = empty()
    wb.copy(made, c)
    return made


def sines(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    def pull_back():
        x.grad.numpy()[:] += np.cos(x.numpy()) * y.grad.numpy()
        y.grad.zero_()

    tape.record_func(pull_back, [x, y], only_read=[x], forward=lambda: y.assign(np.sin(x.numpy())))


@wb.custom_op
def sine(x):
    return np.sin(x)


@sine.vjp
def sine_vjp(x, y, adj):
    return adj * np.cos(x)


def called(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    wb.copy(y, sine(x))


def unknown(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    tape.opaque_event("unknown", [x, y], [y], lambda: y.data.__setitem__(..., 1.0), "nobody knows it.", None)


def three_turns(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    @wb.checkpoint(3, 1)
    def turns(turn, y):
        wb.launch(doubled, 4, [y])

    wb.copy(y, x)
    turns(y)


def overwritten(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    c = empty()
    wb.launch(square, 4, [x], [c])
    wb.launch(times, 4, [x, c], [y])
    with memory.unrecorded():
        c.fill_(0.0)


def force(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    c = empty()
    with wb.Tape(keep="all") as inner:
        wb.launch(cube, 4, [x], [c])
    inner.backward(grads={c: seed(*ONE)})
    wb.launch(times, 4, [x, x.grad], [y])


def earlier(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    with memory.unrecorded():
        force(tape, x, y)
    wb.launch(times, 4, [x, x.grad], [y])


@wb.kernel
def roots(z: wb.array(dtype=F), x: wb.array(dtype=F), r: wb.array(dtype=F)):
    i = wb.tid()
    r[i] = z[i] * z[i] - x[i] * x[i] - F(1.0)


def solved(tape: wb.Tape, x: wb.array, y: wb.array) -> None:
    def residual(z, x):
        r = empty()
        wb.launch(roots, 4, [z, x, r])
        return r

    wb.copy(y, wb.root(residual, wb.full(4, 2.0, dtype=F), x))


# by kind: the program, and the derivative of its y by x
PROGRAMS: dict[str, tuple[Callable[[wb.Tape, wb.array, wb.array], None], Any]] = {
    "launch": (launch, 2 * X),
    "copy": (between(copied), 3 * X**2),
    "cut": (between(wb.detach), X**2),
    "root": (solved, X / np.sqrt(X**2 + 1)),
    "fill_": (between(lambda c: c.fill_(3.0) and None), 3.0),
    "zero_": (between(lambda c: c.zero_() and None), 0.0),
    "assign": (between(lambda c: c.assign(np.arange(4.0)) and None), np.arange(4.0)),
    "func": (sines, np.cos(X)),
    "op": (called, np.cos(X)),
    "opaque": (unknown, None),
    "loop": (three_turns, 8.0),
    "backward": (force, 9 * X**2),
    "gradient": (earlier, None),
    "foreign": (overwritten, 3 * X**2),
}


def recorded(name: str) -> tuple[wb.Tape, wb.array, wb.array]:
    x, y = leaf(), empty()
    with wb.Tape(keep="all") as tape:
        PROGRAMS[name][0](tape, x, y)
    return tape, x, y


@EVERY
def test_a_kind_has_all_facts(name):
    kind = kinds.KINDS[name]
    assert isinstance(kind.name, str) and len(kind.words) == 2
    assert kind.step in reverse.STEPS and kind.step in jvp.STEPS
    assert not kind.drawn or kind.drawn.rstrip("_") in {k.rstrip("_") for k in kinds.KINDS}
    assert kind.passes + kind.cuts + kind.opaque + kind.calls_back + (not kind.own) == 1
    assert kind.repeatable == ((kind.step in ("launch", "write") or kind.cuts) and not kind.pinned)


def test_few_modules_ask_for_a_kind_instead_of_a_fact():
    asking = {module.removeprefix("workbench.") for module in structure.asking_for_kinds()}
    assert asking == {"diagnose.unused_results", "warp.watch.pictures", "tapes.tape"}


@EVERY
def test_a_kind_is_its_name(name):
    tape, *_ = recorded(name)
    (kind,) = {e.kind for e in tape.events if e.kind == name}
    assert kind is kinds.KINDS[name] and kind in (name, "other")
    assert (f"{kind}", repr(kind), hash(kind)) == (name, repr(name), hash(name))
    assert pickle.loads(pickle.dumps(kind)) is kind and copy.deepcopy(kind) is kind


@EVERY
def test_the_gradient_is_that_of_the_program(name):
    tape, x, y = recorded(name)
    exact = PROGRAMS[name][1]
    if exact is None:
        with pytest.raises(GradientError) as refused:
            tape.backward(grads={y: seed(*ONE)})
        assert refused.value.slug == {"opaque": "opaque", "gradient": "gradient-value"}[name]
        return
    x.grad.zero_()  # a backward inside may have been added to it
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(exact, X.shape), rtol=1e-12)


@EVERY
def test_a_tape_with_it_goes_through_pickle_or_is_refused(name):
    tape, *_ = recorded(name)
    if kinds.KINDS[name].closed:
        with pytest.raises(GradientError) as refused:
            pickle.dumps(tape)
        assert refused.value.slug == "travel"
        return
    again = pickle.loads(pickle.dumps(tape))
    assert [e.kind for e in again.events] == [e.kind for e in tape.events]
    assert all(e.kind is kinds.KINDS[e.kind] for e in again.events)


@EVERY
def test_a_tape_with_it_runs_again_or_is_refused(name):
    tape, _, y = recorded(name)
    if (closed := kinds.KINDS[name].closed) and name != "op":  # its function is called again
        with pytest.raises(GradientError, match=closed) as refused:
            tape.replay()
        assert refused.value.slug == "replay-func"
        return
    np.testing.assert_array_equal(tape.replay()[y].numpy(), y.numpy())


@EVERY
def test_the_tangent_is_that_of_the_program_or_is_refused(name):
    tape, x, y = recorded(name)
    exact, kind = PROGRAMS[name][1], kinds.KINDS[name]
    if (kind.closed and kind is not kinds.BACKWARD) or exact is None:
        with pytest.raises(GradientError) as refused:
            wb.jvp(tape, {x: seed(*ONE)})
        assert refused.value.slug == {"opaque": "opaque", "gradient": "gradient-value"}.get(name, "jvp-func")
        return
    np.testing.assert_allclose(wb.jvp(tape, {x: seed(*ONE)})[y], np.broadcast_to(exact, X.shape), rtol=1e-12)


@EVERY
def test_it_is_drawn_and_named(name):
    kind = kinds.KINDS[name]
    tape, *_ = recorded(name)
    n, event = next((n, e) for n, e in enumerate(tape.events) if e.kind is kind)
    figure = tape.show()
    drawn = (kind.drawn or name).rstrip("_")
    heading = f"#{n} {event.label}" if kind is kinds.LAUNCH else f"#{n} {event.label} ({drawn})"
    assert any(line.startswith(heading) for line in figure.text.split("\n"))
    assert f">{event.label} #{n}<" in figure.svg


def test_an_opaque_step_off_the_way_is_passed():
    x, y = leaf([1.0, 2.0, 3.0]), empty(3)
    a, b = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(square, 3, [x], [y])
        tape.opaque_event("step", [a, b], [b], lambda: b.fill_(1.0), "nobody knows.", None)
    tape.backward(grads={y: np.ones(3)})
    assert x.grad.list() == [2.0, 4.0, 6.0]
    with pytest.raises(GradientError, match=r"\[opaque\]"):
        tape.backward(grads={b: np.ones(2)})

"""What is done with a tape grows as its number of launches: steps of Python counted at n, 2n and 3n launches."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.arrays import allocation

N = 30  # launches; more than what is looked at one by one
SIZE = 4


@wb.struct
class State:
    x: wb.array[float]
    k: float


@wb.kernel
def step(x: wb.array[float], k: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] + k * wb.sin(x[i])


@wb.kernel
def step_in_place(x: wb.array[float], k: float):
    i = wb.tid()
    x[i] = x[i] + k * wb.sin(x[i])


@wb.kernel
def step_of_struct(s: State, y: wb.array[float]):
    i = wb.tid()
    y[i] = s.x[i] * s.k


@wb.kernel
def scattered(x: wb.array[float], index: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    y[index[i]] = x[i]


@wb.kernel
def total(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()])


Made = tuple[wb.Tape, wb.array, wb.array]


def leaf() -> wb.array:
    return wb.array(np.linspace(0.1, 0.9, SIZE, dtype=np.float32), requires_grad=True)


def wanted(*shape: int) -> wb.array:
    return wb.zeros(shape, dtype=float, requires_grad=True)


def new_arrays(n: int) -> Made:
    x, loss = leaf(), wanted(1)
    a = x
    with wb.Tape() as tape:
        for _ in range(n):
            b = wanted(SIZE)
            wb.launch(step, SIZE, inputs=[a, 0.01], outputs=[b])
            a = b
        wb.launch(total, SIZE, inputs=[a], outputs=[loss])
    return tape, x, loss


def in_place_with_losses(n: int) -> Made:
    x, a, loss = leaf(), wanted(SIZE), wanted(1)
    with wb.Tape() as tape:
        wb.copy(a, x)
        for _ in range(n):
            wb.launch(step_in_place, SIZE, inputs=[a, 0.01])
            wb.launch(total, SIZE, inputs=[a], outputs=[loss])
    return tape, x, loss


def structs(n: int) -> Made:
    x, loss = leaf(), wanted(1)
    a = x
    with wb.Tape() as tape:
        for _ in range(n):
            b, s = wanted(SIZE), State()
            s.x, s.k = a, 1.001
            wb.launch(step_of_struct, SIZE, inputs=[s], outputs=[b])
            a = b
        wb.launch(total, SIZE, inputs=[a], outputs=[loss])
    return tape, x, loss


def rows_of_one_array(n: int) -> Made:
    x, loss, rows = leaf(), wanted(1), wanted(n + 1, SIZE)
    with wb.Tape() as tape:
        wb.copy(rows[0], x)
        for k in range(n):
            wb.launch(step, SIZE, inputs=[rows[k], 0.01], outputs=[rows[k + 1]])
        wb.launch(total, SIZE, inputs=[rows[n]], outputs=[loss])
    return tape, x, loss


def rows_that_are_marked(n: int) -> Made:
    loss, all_rows = wanted(1), wb.ones((n + 1, SIZE), dtype=float)
    rows = [all_rows[k] for k in range(n + 1)]
    for row in rows:
        row.requires_grad = True
    with wb.Tape() as tape:
        for a, b in itertools.pairwise(rows):
            wb.launch(step, SIZE, inputs=[a, 0.01], outputs=[b])
        wb.launch(total, SIZE, inputs=[rows[n]], outputs=[loss])
    return tape, rows[0], loss


def rows_of_an_earlier_tape(n: int) -> Made:
    x, loss, rows = leaf(), wanted(1), wanted(n, SIZE)
    with wb.Tape():
        for k in range(n):
            wb.launch(step, SIZE, inputs=[x, 0.01], outputs=[rows[k]])
    with wb.Tape() as tape:
        for k in range(n):
            wb.launch(total, SIZE, inputs=[rows[k]], outputs=[loss])
    return tape, rows, loss


def unread_results(n: int) -> Made:
    x, y, loss = leaf(), wanted(SIZE), wanted(1)
    index = wb.array(np.array([2, 0, 3, 1], np.int32))
    with wb.Tape() as tape:
        for _ in range(n):
            wb.launch(scattered, SIZE, inputs=[x, index], outputs=[y])
        wb.launch(total, SIZE, inputs=[y], outputs=[loss])
    return tape, x, loss


def many_leaves(n: int) -> Made:
    xs, loss = [leaf() for _ in range(n)], wanted(1)
    with wb.Tape() as tape:
        for x in xs:
            wb.launch(total, SIZE, inputs=[x], outputs=[loss])
    return tape, xs[0], loss


PROGRAMS = [
    new_arrays,
    in_place_with_losses,
    structs,
    rows_of_one_array,
    rows_that_are_marked,
    rows_of_an_earlier_tape,
    unread_results,
    many_leaves,
]
ASKED: dict[str, Callable[..., Any]] = {
    "backward": lambda tape, x, loss: tape.backward(loss),
    "again": lambda tape, x, loss: tape.backward(loss),
    "memory": lambda tape, x, loss: repr(tape.memory()),
    "diagnose": lambda tape, x, loss: repr(tape.diagnose()),
    "ledger": lambda tape, x, loss: repr(tape.ledger(x, (0,) * x.ndim)),
    "jvp": lambda tape, x, loss: wb.jvp(tape, {x: np.ones(x.shape, np.float32)}),
    "zero": lambda tape, x, loss: tape.zero(),
    "reset": lambda tape, x, loss: tape.reset(),
}


def counted(work: Callable[[], Any]) -> tuple[Any, int]:
    """What `work` returns, and how many lines of workbench ran for it, those of comprehensions once a turn."""
    lines = 0

    def line(frame: Any, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += 1
        return line

    def call(frame: Any, event: str, arg: Any) -> Any:
        return line if "workbench" in frame.f_code.co_filename else None

    before = sys.gettrace()
    gc.disable()  # what others left behind would be freed, and counted, at no fixed moment
    sys.settrace(call)
    try:
        return work(), lines
    finally:
        sys.settrace(before)
        gc.enable()


def counts(program: Callable[[int], Made], n: int) -> dict[str, int]:
    found = {}
    gc.collect()
    for addresses in allocation._ranges.values():
        addresses.meeting(0, 2**64)  # memory that has gone is forgotten now, not in what is counted
    made, found["record"] = counted(lambda: program(n))
    for name, ask in ASKED.items():
        try:
            found[name] = counted(lambda ask=ask: ask(*made))[1]
        except wb.GradientError:  # borders of another tape have no tangent
            assert program is rows_of_an_earlier_tape and name in ("jvp", "ledger")
    return found


def too_much(program: Callable[[int], Made]) -> dict[str, tuple[int, int]]:
    """What grows more from 2n to 3n launches than from n to 2n."""
    one, two, three = (counts(program, k * N) for k in (1, 2, 3))
    grown = {name: (two[name] - one[name], three[name] - two[name]) for name in one}
    return {name: (first, then) for name, (first, then) in grown.items() if then > 1.1 * first + 60}


@pytest.mark.filterwarnings("ignore")  # the rows of an earlier tape are borders, which is said
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_nothing_is_quadratic_in_the_number_of_launches(program):
    counts(program, 10)  # compiled, and imported
    found = too_much(program)
    if found:  # a cache that is full is emptied in one step, which may fall into what is counted
        found = too_much(program)
    assert not found


def test_the_count_sees_what_is_quadratic():
    made = [wb.zeros(1) for _ in range(3 * N)]

    def pairs(n):
        return [a.span.overlaps(b.span) for a in made[:n] for b in made[:n]]

    pairs(3 * N)  # an array makes its span once
    one, two, three = (counted(lambda n=n: pairs(n))[1] for n in (N, 2 * N, 3 * N))
    assert three - two > 1.5 * (two - one)  # 5 / 3 for squares

"""The steps of a user's loop: found by where the program launches, whatever else some of them launch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.viz.data.loops import folds, turns

X = wb.zeros(2, dtype=float)


@wb.kernel
def push(x: wb.array[float]):
    x[wb.tid()] = x[wb.tid()] * 0.5


@wb.kernel
def move(x: wb.array[float]):
    x[wb.tid()] = x[wb.tid()] + 1.0


@wb.kernel
def probe(x: wb.array[float]):
    x[wb.tid()] = x[wb.tid()] - 1.0


def launch(kernel: Any) -> None:
    wb.launch(kernel, 2, [X])


def one_step() -> None:
    wb.launch(push, 2, [X])
    wb.launch(move, 2, [X])


def project() -> None:
    for _ in range(20):
        wb.launch(probe, 2, [X])


def sometimes() -> None:
    for k in range(200):
        wb.launch(push, 2, [X])
        wb.launch(move, 2, [X])
        if k % 20 == 0:
            wb.launch(probe, 2, [X])


def sometimes_first() -> None:
    for k in range(200):
        if k % 20 == 0:
            wb.launch(probe, 2, [X])
        wb.launch(push, 2, [X])
        wb.launch(move, 2, [X])


def by_chance() -> None:
    chance = np.random.default_rng(0)
    k = 0
    while k < 200:
        k += 1
        wb.launch(push, 2, [X])
        if chance.random() < 0.1:
            wb.launch(probe, 2, [X])
        wb.launch(move, 2, [X])


def in_functions() -> None:
    for k in range(200):
        one_step()
        if k % 20 == 0:
            launch(probe)


def two_arms() -> None:
    for k in range(100):
        if k % 2:
            wb.launch(push, 2, [X])
        else:
            wb.launch(move, 2, [X])


def inner_loop_first() -> None:
    for _ in range(50):
        project()
        wb.launch(push, 2, [X])


def inner_loop() -> None:
    for _ in range(50):
        wb.launch(push, 2, [X])
        for _ in range(20):
            wb.launch(probe, 2, [X])
        wb.launch(move, 2, [X])


def relax() -> None:
    for _ in range(1):
        wb.launch(probe, 2, [X])


def engine(k: int) -> None:
    wb.launch(move, 2, [X])
    relax()
    if k % 3:
        wb.launch(push, 2, [X])
    relax()
    wb.launch(move, 2, [X])


def drive() -> None:
    for k in range(10):
        wb.launch(push, 2, [X])
        engine(k)


LAYERS = 8


def layers_alone() -> None:
    for _ in range(200):
        for _ in range(8):
            wb.launch(push, 2, [X])


def network() -> None:
    for _ in range(1, 9, 2):
        for _ in range(LAYERS):
            wb.launch(push, 2, [X])


def networks() -> None:
    for _ in range(30):
        network()


def layers_now_and_then() -> None:
    for k in range(60):
        if k % 2 == 0:
            for _ in range(LAYERS):
                wb.launch(push, 2, [X])


def left_early() -> None:
    for _ in range(5):
        for k in range(8):
            wb.launch(push, 2, [X])
            if k == 4:
                break


def without_a_text() -> None:
    exec("for k in range(30):\n    one_step()\n    if k % 10 == 0: launch(probe)", globals())


EXTRA = "push, move (+probe in 10) ×200"


@pytest.mark.parametrize(
    ("program", "name", "count", "inside"),
    [
        (sometimes, EXTRA, 200, 0),
        (sometimes_first, EXTRA, 200, 0),
        (in_functions, EXTRA, 200, 0),
        (without_a_text, "push, move (+probe in 3) ×30", 30, 0),
        (by_chance, None, 200, 0),
        (two_arms, None, 100, 0),
        (inner_loop_first, "probe ×20, push ×50", 50, 50),
        (inner_loop, "push, probe ×20, move ×50", 50, 50),
        (layers_alone, "push ×8 ×200", 200, 200),
        (layers_now_and_then, "push ×8 ×30", 30, 30),
    ],
)
def test_a_step_is_a_turn_of_the_users_loop(program: Callable[[], None], name: str, count: int, inside: int) -> None:
    with wb.Tape() as tape:
        program()
    loop, *inner = folds(tape)
    assert (loop.first, loop.last, loop.count, len(inner)) == (0, len(tape.events), count, inside)
    assert loop.name == name or name is None
    assert turns(tape) == (list(loop.turns), len(tape.events), "step") and len(loop.turns) == count
    labels = [[event.label for event in tape.events[a:b]] for a, b in pairwise([*loop.turns, loop.last])]
    assert all(len(set(some)) == len(some) or inside for some in labels), "a turn launches each line once"


def test_a_step_is_a_turn_of_the_loop_that_most_is_in_and_ends_where_the_last_one_does() -> None:
    with wb.Tape() as tape:
        drive()
        wb.launch(probe, 2, [X])
    starts = np.cumsum([0, *(6 if k % 3 else 5 for k in range(10))]).tolist()
    assert turns(tape) == (starts[:-1], starts[-1], "step") and starts[-1] == len(tape.events) - 1


def test_turns_that_one_line_alone_makes_are_counted_where_the_text_says_how_many() -> None:
    with wb.Tape() as tape:
        networks()
    found = folds(tape)
    assert [(f.name, f.count) for f in found if f.parent == -1] == [("push ×8 ×4 ×30", 30)]
    assert turns(tape)[0] == list(range(0, 30 * 4 * LAYERS, 4 * LAYERS))
    with wb.Tape() as tape:
        left_early()
    assert [f.count for f in folds(tape)] == [25], "nobody knows how many a turn has"


def test_loops_one_after_the_other_are_loops_of_their_own() -> None:
    with wb.Tape() as tape:
        sometimes()
        inner_loop()
    assert [(f.name, f.count) for f in folds(tape) if f.parent == -1] == [
        (EXTRA, 200),
        ("push, probe ×20, move ×50", 50),
    ]


def test_the_same_program_run_again_behind_a_tape_adds_no_steps_to_it() -> None:
    def run() -> wb.Tape:
        with wb.Tape(keep="all") as tape:
            X.fill_(1.0)
            for _ in range(5):
                one_step()
        return tape

    tape = run()
    before = turns(tape)
    again = run()
    assert len(tape.events) > len(again.events)  # what the second run wrote is kept for the first
    assert turns(tape) == before == ([1, 3, 5, 7, 9], 11, "step") == turns(again)


def test_two_launches_on_one_line_are_one_step_before_and_after_somebody_asked_for_lines() -> None:
    with wb.Tape() as tape:
        for _ in range(4):
            wb.launch(push, 2, [X]), wb.launch(move, 2, [X])
    found = turns(tape)
    assert [event.where.line for event in tape.events] and turns(tape) == found == ([0, 2, 4, 6], 8, "step")

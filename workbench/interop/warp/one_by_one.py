"""Launches of which several threads store one and the same result to one element, or read what they count.

On a processor Warp runs the threads of a launch one by one, in their order. MuJoCo Warp has kernels with a thread for
each branch of a tree of bodies, which all store what the bodies near the root have in common. Whichever comes last, the
result is the same. Others hand out slots by adding to a counter, which some threads read as well. Such a launch is
recorded as one thread that does the work of all, in Warp's order: what it computes and what its adjoint is do then not
rest on luck.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...errors import GradientError
from ...kernels.passes.in_order import in_order
from ...kernels.program import Program
from ...launches.launch import Command
from ...launches.plan import plan
from ...launches.race_check import find_races

MOST = 1 << 16  # threads that are run one by one


def settled(command: Command) -> Command:
    """The launch to record for one of Warp: itself, or, where only equal stores or counts meet, its threads in order.

    A launch whose result depends on the order of its threads is returned as it is: backward refuses it [race]. Memory
    must be as the launch sees it, and is again afterwards.
    """
    races, dims = command.plan.races, command.plan.form.dims
    if races is None or math.prod(dims) > MOST or command.declared:
        return command
    with memory.LOCK:
        try:
            races.check(command)
        except GradientError:
            first, last = _serial(command, dims, False), _serial(command, dims, True)
            if _only_counts(command) or all(map(np.array_equal, results(first), results(last))):
                return first
    return command


def _only_counts(command: Command) -> bool:
    """Do threads meet only in integers that they add to, and read: each gets the count that it finds."""
    others = find_races(command.plan, counts=False)
    try:
        if others is not None:
            others.check(command)
    except GradientError:
        return False
    return True


def _serial(command: Command, dims: tuple[int, ...], backwards: bool) -> Command:
    return of_program(command, command.program.once(_in_order, command.program, dims, backwards), (1,))


def _in_order(program: Program, dims: tuple[int, ...], backwards: bool) -> Program:
    return program.with_function(in_order(program.function, dims, backwards))


def of_program(command: Command, program: Program, dims: tuple[int, ...]) -> Command:
    """A launch of another program, on a grid, with the arguments of this one."""
    return Command(program, plan(program.name, program, dims, command.flat, None), command.flat)


def results(command: Command) -> list[Any]:
    """The bytes that a launch leaves where it writes. They are put back."""
    places = list({command.flat[k].allocation: None for k, _ in command.plan.writes})
    before = [place.bytes.copy() for place in places]
    try:
        command.plan.forward.run(command.values, command.views)
        return [place.bytes.copy() for place in places]
    finally:
        for place, content in zip(places, before, strict=True):
            place.bytes[...] = content

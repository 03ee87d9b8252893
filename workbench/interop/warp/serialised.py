"""Launches of which several threads store equal values to one element, or read a counter that they increment.

On a CPU Warp runs the threads of a launch in order. MuJoCo Warp has kernels with a thread per branch of a body tree,
which all store what the bodies near the root share: whichever is last, the result is the same. Others allocate slots by
an atomic counter that some threads also read. Such a launch is recorded as one thread that runs all of them in Warp's
order, so that its result and its adjoint are deterministic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...errors import GradientError
from ...kernels.passes.in_order import in_order
from ...kernels.program import Program
from ...launches.command import Command
from ...launches.plan import plan
from ...launches.race_check import find_races, races_of

MOST = 1 << 16  # threads that are run one by one


def serialised(command: Command) -> Command:
    """The launch to record: `command`, or its threads serialised if they race only in equal stores or in counters.

    A launch whose result depends on the order of its threads is returned as it is: backward refuses it [race]. Memory
    must be as the launch sees it, and is restored.
    """
    races, dims = races_of(command.plan), command.plan.form.dims
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
    """True if threads race only on integer counters that they add to and read."""
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
    """A launch of another program on grid `dims`, with the arguments of `command`."""
    return Command(program, plan(program.name, program, dims, command.flat, None), command.flat)


def results(command: Command) -> list[Any]:
    """The bytes of all memory that a launch writes, after it; memory is restored."""
    places = list({command.flat[k].allocation: None for k, _ in command.plan.writes})
    before = [place.bytes.copy() for place in places]
    try:
        command.plan.forward.run(command.values, command.views)
        return [place.bytes.copy() for place in places]
    finally:
        for place, content in zip(places, before, strict=True):
            place.bytes[...] = content

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
from ...kernels.ir import Function, Region, Stmt, Value
from ...kernels.ops import control as c
from ...kernels.ops.row import constant
from ...kernels.passes.named import named_pass
from ...kernels.passes.simplify import Rewrite, ValueFacts
from ...kernels.program import Program
from ...kernels.types import int32
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


def of_program(command: Command, program: Program, dims: tuple[int, ...], bounds: bool | None = None) -> Command:
    """A launch of another program on grid `dims`, with the arguments of `command`. `bounds`: see `launches.plan`."""
    return Command(program, plan(program.name, program, dims, command.flat, None, bounds), command.flat)


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


@named_pass("threads in order", always=True)
def in_order(function: Function, dims: tuple[int, ...], backwards: bool = False) -> Function:
    """The program for one thread that does what the threads of the grid `dims` do, each after the one before.

    backwards   from the last thread to the first.
    """
    return _InOrder(dims, backwards).function(function)


class _InOrder(Rewrite):
    def __init__(self, dims: tuple[int, ...], backwards: bool):
        super().__init__(None)
        self.dims, self.backwards = dims, backwards
        self.thread: list[Value] = []

    def function(self, function: Function) -> Function:
        scope = ValueFacts()
        for p in function.params:
            scope.values[p] = p.copied()
            self.builder.region.params.append(scope.values[p])
        with self.builder.open():
            self.loops(function.body, scope, self.dims)
        return function.with_body(self.builder.region, rank=1)

    def loops(self, body: Region, scope: ValueFacts, dims: tuple[int, ...]) -> None:
        """A loop for each of these axes, and the thread inside."""
        if not dims:
            self.region(body, scope)
            return
        n, *rest = dims
        turns = (n - 1, -1, -1) if self.backwards else (0, n, 1)
        bounds = [constant(int32, k) for k in turns]
        region, counter = Region(), Value(int32, f"thread_{len(self.thread)}")
        region.params.append(counter)
        self.thread.append(counter)
        with self.builder.inside(region):
            self.loops(body, scope, tuple(rest))
        self.builder.append(c.FOR, tuple(bounds), (), (region,), attr=c.Loop(trips=n))

    def stmt(self, stmt: Stmt, scope: ValueFacts) -> None:
        if stmt.row is c.TID:
            scope.values[stmt.outs[0]] = self.thread[stmt.attr.axis]
        elif stmt.row is c.DIM:
            scope.values[stmt.outs[0]] = constant(int32, self.dims[stmt.attr.axis])
        else:
            super().stmt(stmt, scope)

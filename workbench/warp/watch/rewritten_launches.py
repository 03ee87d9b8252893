"""Launches that are recorded in another form than they were made, with the same results.

A launch of which several threads store equal values to one element, or read a counter that they increment, is recorded
as one thread that runs all in Warp's order: on a CPU Warp runs them in order, so its result and adjoint are then
deterministic. MuJoCo Warp has a thread per branch of a body tree, which all store what the bodies near the root share.
Work that is skipped on zeros (`if force == 0.0: continue`) is done where it adds nothing for them: sums in which
`force` is a factor. The derivative at 0 is then that of the formula, not that of the branch that a zero takes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...errors import GradientError, WorkbenchError
from ...kernels.ir import Function, Region, Stmt, Value, root, walk
from ...kernels.ops import control as c, matrices, memory as mem, scalar, vectors
from ...kernels.ops.row import constant
from ...kernels.passes.named import named_pass
from ...kernels.passes.simplify import Rewrite, ValueFacts
from ...kernels.program import Program
from ...kernels.row import Effect
from ...kernels.types import Composite, int32, is_float
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
            program = command.program
            orders = [program.once(in_order, program.function, dims, backwards) for backwards in (False, True)]
            first, last = (of_program(command, program.once(program.with_function, f), (1,)) for f in orders)
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


def of_program(command: Command, program: Program, dims: tuple[int, ...], bounds: bool | None = None) -> Command:
    """A launch of another program on grid `dims`, with the arguments of `command`. `bounds`: see `launches.plan`."""
    return Command(program, plan(program, dims, list(command.flat), None, bounds), command.flat)


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


@named_pass("threads in order")
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


_PRODUCTS = vectors.CROSS, matrices.MATVEC, matrices.MATMUL, matrices.OUTER  # beside what is bilinear
_SUMS = scalar.ADD, scalar.SUB
_MOVES = scalar.CAST, vectors.CONSTRUCT  # 0 where all operands are, beside what is linear
_ADDERS = mem.ACCUMULATE, mem.ATOMIC_ADD, mem.ATOMIC_SUB


def without_skips(command: Command) -> Command:
    """The launch to record: `command`, or, if it skips work on zeros, the one that does that work.

    `command` too if that work would leave an array's bounds or give another result (0 times infinity). Memory must be
    as the launch sees it, and is restored.
    """
    program = command.program.once(_without, command.program)
    if program is None or command.declared:
        return command
    with memory.LOCK:
        try:
            made = of_program(command, program, command.plan.form.dims, bounds=True)
            found = results(made)
        except WorkbenchError:
            return command
        pairs = zip(found, results(command), strict=False)
        return made if all(a.tobytes() == b.tobytes() for a, b in pairs) else command


def _without(program: Program) -> Program | None:
    """The program with the skipped work done; None if it skips none."""
    function = without_zero_skips(program.function)
    return None if function is program.function else program.with_function(function)


# ---- the program with the skipped work done


@named_pass("zero skips")
def without_zero_skips(function: Function) -> Function:
    """The function without tests that skip work on zeros; the function itself if there are none.

    The work then loads, and adds 0, at indices that may be out of bounds: the caller has to check.
    """
    found = skips(function)
    return _Without(found).function(function) if found else function


def skips(function: Function) -> dict[Stmt, Region]:
    """Each `if` whose one branch is idle where the other would have no effect, given the zeros -> that region."""
    found, stmts = {}, list(walk(function.body))
    written = {root(s.args[0]).name for s in stmts if s.row.writes}
    for stmt in (s for s in stmts if s.row is c.IF):
        for holds in (True, False):
            idle, work = stmt.regions if holds else stmt.regions[::-1]
            zeros = _zeros(stmt.args[0], holds)
            plain = zeros and all(s.row is c.CONST for s in idle.body)
            if plain and _ZeroFacts(zeros, written).has_no_effect(work, idle.results):
                found[stmt] = work
    return found


def _zeros(test: Value, holds: bool) -> set[Value]:
    """The float values that are 0 where a test holds (or fails: `holds` False)."""
    stmt = test.stmt
    if stmt is None:
        return set()
    if stmt.row is scalar.LOGICAL_NOT:
        return _zeros(stmt.args[0], not holds)
    if stmt.row is (scalar.LOGICAL_AND if holds else scalar.LOGICAL_OR):
        return _zeros(stmt.args[0], holds) | _zeros(stmt.args[1], holds)
    if stmt.row is c.IF and len(stmt.outs) == 1:  # `a and b`, of which b is worked out where it is asked for
        then, otherwise = stmt.regions
        asked, other = (then, otherwise) if holds else (otherwise, then)
        last = other.results[0].stmt
        if last is not None and last.row is c.CONST and last.attr is not holds:
            return _zeros(stmt.args[0], holds) | _zeros(asked.results[0], holds)
    if stmt.row in ((scalar.EQ, scalar.ALL_EQ) if holds else (scalar.NE, scalar.ALL_NE)):
        a, b = stmt.args
        return {v for v, other in ((a, b), (b, a)) if is_float(v.type) and is_zero(other)}
    return set()


def is_zero(value: Value) -> bool:
    """True for the float constant 0, or a composite of it."""
    stmt = value.stmt
    if stmt is None or not is_float(value.type):
        return False
    if stmt.row is c.CONST:
        numbers = stmt.attr if isinstance(stmt.attr, tuple) else (stmt.attr,)
        return all(number == 0 for number in numbers)
    return isinstance(value.type, Composite) and stmt.row in _MOVES and all(map(is_zero, stmt.args))


class _ZeroFacts:
    """Facts under the assumption that some values are 0: other zeros, and values equal to an earlier one."""

    def __init__(self, zeros: set[Value], written: set[str]):
        self.zeros = set(zeros)
        self.same: dict[Value, Value] = {}
        loads = [z.stmt.args for z in zeros if z.stmt is not None and z.stmt.row is mem.LOAD]
        self.cells = {args for args in loads if root(args[0]).name not in written}  # read again they are the same

    def has_no_effect(self, region: Region, results: tuple[Value, ...]) -> bool:
        """True if a region adds nothing to any array, and yields these results."""
        return all(map(self.learn, region.body)) and all(map(self.equal, region.results, results))

    def first(self, value: Value) -> Value:
        while value in self.same:
            value = self.same[value]
        return value

    def none(self, value: Value) -> bool:
        return self.first(value) in self.zeros or is_zero(value)

    def equal(self, one: Value, other: Value) -> bool:
        return self.first(one) is self.first(other) or (self.none(one) and self.none(other))

    def learn(self, stmt: Stmt) -> bool:
        """Take note of a statement. False for one that may do something, or that is not understood."""
        if stmt.row in _ADDERS:
            return self.none(stmt.args[-1])
        if stmt.row is c.IF:
            then, otherwise = stmt.regions
            return all(map(self.learn, (*then.body, *otherwise.body))) and self.joins(stmt, then, otherwise)
        if stmt.row is c.FOR:
            return self.loop(stmt)
        if stmt.row is mem.LOAD or (stmt.row.effect is Effect.PURE and not stmt.regions):
            return self.computes(stmt)
        return False

    def computes(self, stmt: Stmt) -> bool:
        if not stmt.outs or not is_float(stmt.outs[0].type):
            return True
        (out,), args = stmt.outs, stmt.args
        known = [self.none(a) for a in args]
        if stmt.row is mem.LOAD:
            self.zeros.update((out,) if args in self.cells else ())
        elif _vanishes(stmt, known):
            self.zeros.add(out)
        elif stmt.row in _SUMS and known[1] and args[0].type == out.type:
            self.same[out] = args[0]
        elif stmt.row is scalar.ADD and known[0] and args[1].type == out.type:
            self.same[out] = args[1]
        return True

    def joins(self, stmt: Stmt, then: Region, otherwise: Region) -> bool:
        """Learn the facts about results of an `if` that are true of both regions. Returns True."""
        for out, a, b in zip(stmt.outs, then.results, otherwise.results, strict=True):
            if self.none(a) and self.none(b):
                self.zeros.add(out)
            elif self.first(a) is self.first(b):
                self.same[out] = a
        return True

    def loop(self, stmt: Stmt) -> bool:
        """A loop whose turns leave what they carry as it is."""
        (region,), carried = stmt.regions, stmt.args[3:]
        if stmt.attr is not None and getattr(stmt.attr, "breaks", False):
            return False
        self.same.update(zip(region.params[1:], carried, strict=True))
        if not self.has_no_effect(region, tuple(region.params[1:])):
            return False
        self.same.update(zip(stmt.outs, carried, strict=True))
        return True


def _vanishes(stmt: Stmt, known: list[bool]) -> bool:
    """True if the result is 0 given the operands that are zero (flags `known`)."""
    if stmt.row.bilinear or stmt.row in _PRODUCTS:
        return any(known)
    return bool(known) and all(known) and (stmt.row.linear or stmt.row in (*_SUMS, *_MOVES))


class _Without(Rewrite):
    def __init__(self, found: dict[Stmt, Region]):
        super().__init__(None)
        self.found = found

    def regions(self, stmt: Stmt, args: tuple[Value, ...], scope: ValueFacts) -> None:
        work = self.found.get(stmt)
        if work is None:
            super().regions(stmt, args, scope)
            return
        self.region(work, scope)
        scope.values.update(zip(stmt.outs, [scope.values[r] for r in work.results], strict=True))

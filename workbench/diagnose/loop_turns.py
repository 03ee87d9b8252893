"""Rules about the turns of a loop inside one kernel: adjoints that grow from turn to turn, bounds that are never left.

One idea: the turns of such a loop are a series as the launches of a line are. A few threads of the last launch of each
line run again in the interpreter, forward and back, and each turn is measured: what it carries and stores, the adjoint
that came into it, which bounds held. Loops too long for that are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..arrays.grouping import grouped
from ..arrays.workspace import Workspace
from ..errors import Where
from ..kernels import ir
from ..kernels.interpreter import run
from ..kernels.ops import control, memory
from ..tapes.events import Event
from ..tapes.rerun import Enough, is_number, sample, small, watched_costs
from .finding import Finding
from .saturated import LIMITS, TAIL, carries_adjoint, held_at_bound, limits_of, saturation, spread_threads
from .series import WAY_OUT, Series
from .walk_record import RuleInput
from .walk_step import WalkObserver, WalkStep

TURNS = 8  # of a loop that counts as a series
THREADS = 64  # forward, evenly spread
REVERSED = 8  # of them, back
MOST = 50_000  # statements of one diagnosis: a fraction of a second

LARGE = 1e150  # squares overflow
Line = Where | None
Thread = tuple[int, ...]


class Reached(NamedTuple):
    """A bound that was first reached in some turn and then held in all later ones."""

    loop: ir.Stmt
    stmt: ir.Stmt
    thread: Thread
    component: int
    begin: int
    turns: int
    zero: bool


@dataclass
class LoopObservations:
    """The observations on loops of one launch: squared norms by line and thread, in execution order."""

    states: dict[tuple[Line, Thread], list[float]] = field(default_factory=dict)
    adjoints: dict[tuple[Line, Thread], list[float]] = field(default_factory=dict)  # the last turn first
    reached: list[Reached] = field(default_factory=list)
    came: set[tuple[Line, Thread]] = field(default_factory=set)  # bounds that an adjoint came to

    def series(self, line: Line) -> tuple[Series, int, int] | None:
        """(norms from the smallest adjoint on, of threads with equally many turns; that turn; the trip count)."""
        found = {t: len(a) for (at, t), a in self.adjoints.items() if at == line}
        lengths = {t: n for t, n in found.items() if n == len(self.states.get((line, t), ()))}
        if not lengths:
            return None
        ((turns, _),) = Counter(lengths.values()).most_common(1)
        same = [(line, t) for t, n in lengths.items() if n == turns]
        with np.errstate(all="ignore"):
            sizes = np.sqrt(np.sum([self.adjoints[key] for key in same], 0))
            states = np.sqrt(np.sum([self.states[key] for key in same], 0))[::-1]
        known = np.flatnonzero((sizes > 0) & np.isfinite(sizes))
        known = known[int(sizes[known].argmin()) :] if len(known) else known
        if len(known) < TURNS:
            return None
        return Series(sizes[known], states[known].tolist()), turns - int(known[0]), turns


class Loops(WalkObserver):
    """An observer of the loops of a tape, by launch. A walk shows it the last launch of each line."""

    def __init__(self) -> None:
        self.seen: dict[Event, LoopObservations] = {}
        self.open: dict[tuple, set[Event]] = {}
        self.share = MOST

    def choose(self, steps: Sequence[WalkStep]) -> None:
        """Choose the launches to look at."""
        for event in (s.event for s in steps):
            back = event.reverse if small(event) else None
            if back is None or back.extremal:
                continue
            if event.command.program.once(_has_loops, back.reverse.function):
                self.open.setdefault((event.label, event.line), set()).add(event)
        self.share //= max(len(self.open), 1)

    def observe(self, step: WalkStep, space: Workspace) -> None:
        """Look at one launch, with memory as it found it and the adjoint of its results."""
        event, key = step.event, (step.event.label, step.event.line)
        if not step.flowing > 0 or event not in self.open.get(key, ()):
            return
        del self.open[key]
        plan, back, allowed = event.command.plan, event.reverse.reverse, self.share // 2
        picked = spread_threads(plan.form.dims, THREADS)
        threads = [picked[n] for n in np.random.default_rng(0).permutation(len(picked))]  # those that are run lie apart
        forward = _Forward(plan.forward.function, back.active, allowed)
        sample(event, None, forward.trace, forward.costs, threads)
        seen = LoopObservations(states=forward.sizes(max), reached=list(forward.reached()))
        some = dict.fromkeys([*(r.thread for r in seen.reached), *(t for _, t in seen.states)])
        backward = _Backward(back.function, {r.stmt.where for r in seen.reached}, allowed)
        sample(event, space, backward.trace, backward.costs, list(some)[:REVERSED])
        seen.adjoints, seen.came = backward.sizes(min), backward.came
        self.seen[event] = seen


# ---- watching turns


class _TurnCounter:
    """A trace that counts the turns of the loops a thread is in, and sums the squares of what they carry and touch.

    `watched`: statements to see beside those that begin turns. A thread that could not be run to its end is forgotten.
    """

    def __init__(self, function: ir.Function, watched: set[ir.Stmt], allowed: int):
        self.left, self.watched = allowed, watched
        self.around: dict[ir.Stmt, tuple[ir.Stmt, ...]] = dict(_placed(function))
        self.tests = {s.regions[0].body[0]: s for s in self.around if s.row is control.WHILE and s.regions[0].body}
        self.costs = watched_costs(function, [*watched, *self.tests])
        self.floats: dict[ir.Stmt, list[ir.Value]] = {}
        self.thread: Thread | None = None
        self.tested: Counter[ir.Stmt] = Counter()
        self.now: dict[ir.Stmt, tuple[tuple[int, ...], int, int]] = {}  # turns of the loops around, its key, its turn
        self.squares: dict[tuple[ir.Stmt, Thread], dict[tuple[int, ...], list[float]]] = {}

    def trace(self, thread: Thread, stmt: ir.Stmt, values: run.LiveValues) -> None:
        if thread != self.thread:
            self.thread, self.now = thread, {}
            self.tested.clear()
        self.left -= self.costs[stmt]
        if self.left < 0:
            self.forget(thread)
            raise Enough
        if stmt in self.tests:
            self.tested[self.tests[stmt]] += 1
        path: tuple[int, ...] = ()
        for loop in self.around[stmt]:
            turn, fresh = self._turn(loop, path, values)
            sums = self.squares.setdefault((loop, thread), {}).setdefault(path, [])
            if fresh:
                sums.append(self.carried(loop, values))
            if stmt in self.watched:
                sums[-1] += self.measure(stmt, loop, path, turn, values)
            path = *path, turn

    def _turn(self, loop: ir.Stmt, path: tuple[int, ...], values: run.LiveValues) -> tuple[int, bool]:
        key = int(values[loop.regions[0].params[0]]) if loop.row is control.FOR else self.tested[loop]
        was, last, turn = self.now.get(loop, (None, None, 0))
        fresh = was != path or last != key
        turn = turn + fresh if was == path else 0
        self.now[loop] = path, key, turn
        return turn, fresh

    def carried(self, loop: ir.Stmt, values: run.LiveValues) -> float:
        if loop not in self.floats:
            self.floats[loop] = [p for p in loop.regions[-1].params if is_number(p)]
        return sum([_square(values[p]) for p in self.floats[loop]])

    def measure(self, stmt: ir.Stmt, loop: ir.Stmt, path: tuple[int, ...], turn: int, values: run.LiveValues) -> float:
        raise NotImplementedError

    def forget(self, thread: Thread) -> None:
        self.squares = {key: found for key, found in self.squares.items() if key[1] != thread}

    def sizes(self, which: Callable) -> dict[tuple[Line, Thread], list[float]]:
        """The norms per turn of one execution of each loop: `min` takes the first, `max` the last."""
        return {(_line(loop), thread): found[which(found)] for (loop, thread), found in self.squares.items()}


class _Forward(_TurnCounter):
    """A trace of the launch: the states of turns, and the bounds of loop-carried values."""

    def __init__(self, function: ir.Function, active: frozenset[str], allowed: int):
        around = dict(_placed(function))
        self.limits = {s: flags for s, flags in limits_of(function, active).items() if around[s]}
        self.handed = {loop: _handed_on(loop) for s in self.limits for loop in around[s]}
        stores = {s for s, loops in around.items() if loops and s.row.writes and is_number(s.args[-1])}
        super().__init__(function, stores | set(self.limits), allowed)
        self.held: dict[tuple, dict[tuple[int, ...], dict[int, tuple[bool, bool]]]] = {}

    def measure(self, stmt: ir.Stmt, loop: ir.Stmt, path: tuple[int, ...], turn: int, values: run.LiveValues) -> float:
        if stmt not in self.limits:
            return _square(values[stmt.args[-1]])
        if not self.handed[loop].isdisjoint(stmt.args):
            held, zero = held_at_bound(stmt, self.limits[stmt], values)
            for k, (one, nought) in enumerate(zip(held, zero, strict=True)):
                turns = self.held.setdefault((loop, stmt, self.thread, k), {}).setdefault(path, {})
                before = turns.get(turn, (True, False))
                turns[turn] = before[0] and bool(one), before[1] or bool(nought)
        return 0.0

    def forget(self, thread: Thread) -> None:
        super().forget(thread)
        self.held = {key: found for key, found in self.held.items() if key[2] != thread}

    def reached(self) -> Iterator[Reached]:
        for (loop, stmt, thread, component), entries in self.held.items():
            turns, number = entries[max(entries)], len(self.squares[loop, thread][max(self.squares[loop, thread])])
            begin = number
            while turns.get(begin - 1, (False,))[0]:
                begin -= 1
            if number >= TURNS and number - begin >= TAIL and begin - 1 in turns:
                yield Reached(loop, stmt, thread, component, begin, number, turns[number - 1][1])


class _Backward(_TurnCounter):
    """A trace of the adjoint: what comes into turns, and whether any reaches the given bounds."""

    def __init__(self, function: ir.Function, bounds: set[Line], allowed: int):
        around, self.came = dict(_placed(function)), set()
        shadows = {p for p in function.arrays if p.role is ir.Role.SHADOW}
        back = [s for s in around if s.role == "adjoint"]
        self.loads = {s for s in back if around[s] and s.row is memory.LOAD and ir.root(s.args[0]) in shadows}
        limits = {s for s in back if s.of is not None and s.of.row in LIMITS and s.of.where in bounds}
        super().__init__(function, self.loads | limits, allowed)

    def measure(self, stmt: ir.Stmt, loop: ir.Stmt, path: tuple[int, ...], turn: int, values: run.LiveValues) -> float:
        if stmt in self.loads:
            return _square(values[stmt.outs[0]]) if loop.role == "adjoint" else 0.0
        if any(carries_adjoint(a, stmt, values) for a in stmt.args):
            self.came.add((stmt.of.where, self.thread))  # type: ignore[union-attr]
        return 0.0

    def sizes(self, which: Callable) -> dict[tuple[Line, Thread], list[float]]:
        self.squares = {key: found for key, found in self.squares.items() if _goes_back(key[0])}
        return super().sizes(which)


def _placed(function: ir.Function) -> Iterator[tuple[ir.Stmt, tuple[ir.Stmt, ...]]]:
    """Yields every statement with its enclosing loops, the outermost first."""
    open_: list[tuple[ir.Region, tuple[ir.Stmt, ...]]] = [(function.body, ())]
    while open_:
        region, around = open_.pop()
        for stmt in region.body:
            yield stmt, around
            inside = (*around, stmt) if stmt.row in (control.FOR, control.WHILE) else around
            test = stmt.row is control.WHILE  # it runs once more than the turns
            open_ += [(r, around if test and r is stmt.regions[0] else inside) for r in stmt.regions]


def _has_loops(function: ir.Function) -> bool:
    return any(_goes_back(s) for s in ir.walk(function.body))


def _goes_back(stmt: ir.Stmt) -> bool:
    return stmt.row is control.FOR and stmt.role == "adjoint"


def _line(loop: ir.Stmt) -> Line:
    return loop.of.where if loop.role == "adjoint" and loop.of is not None else loop.where


def _square(value: Any) -> float:
    if not isinstance(value, np.ndarray):
        return float(value) ** 2 if abs(value) < LARGE else math.inf  # a NaN too
    with np.errstate(all="ignore"):
        return float(np.sum(np.square(value, dtype=np.float64)))


def _handed_on(loop: ir.Stmt) -> set[ir.Value]:
    """The values of a turn that depend on the turn before, through locals or memory."""
    body = loop.regions[-1]
    stored = {ir.root(s.args[0]) for s in ir.walk(body) if s.row.writes}
    found = {p for p in body.params if is_number(p)}
    for _ in range(2):  # inner loops carry values back to their start
        for stmt in ir.walk(body):
            again = stmt.row is memory.LOAD and ir.root(stmt.args[0]) in stored
            if again or not found.isdisjoint(stmt.operands):
                found.update((*stmt.outs, *(p for r in stmt.regions for p in r.params)))
    return found


def first_count(event: Event) -> tuple[int, Line]:
    """(how many turns the first `for` that a thread of a launch comes to makes, its line); (0, None) without one."""
    around, found = dict(_placed(event.command.plan.forward.function)), []

    def trace(thread: Thread, stmt: ir.Stmt, values: run.LiveValues) -> None:
        loop = around[stmt][0]
        found.append((len(range(*(int(values[a]) for a in loop.args[:3]))), loop.where))
        raise Enough

    watched = {s for s, loops in around.items() if loops and loops[0].row is control.FOR}
    sample(event, None, trace, watched, spread_threads(event.command.plan.form.dims, 1))
    return found[0] if found else (0, None)


# ---- findings


def growing_turns(case: RuleInput) -> Iterator[Finding]:
    """Finds a loop in a kernel whose adjoint grows by a factor with every turn back."""
    for event, seen in case.trail.observer(Loops).seen.items():
        for line in dict.fromkeys(line for line, _ in seen.adjoints):
            found = seen.series(line)
            if found is not None and found[0].explodes:
                series, first, turns = found
                step, last = case.trail.of[event], first - len(series.sizes) + 1
                text = f"going back through the loop in this line, from turn {first} of {turns} to turn {last}, "
                text += series.text("turn", "the turns compute")
                brief = (
                    f"the adjoint explodes in the loop {{at}}: from {series.sizes[0]:.3g} in turn {first} to"
                    f" {series.sizes[-1]:.3g} in turn {last}, by a factor of {series.rate:.3g} a turn"
                )
                names = tuple(dict.fromkeys(x.name for x in step.came))
                severity = "warning" if series.outgrows else "info"
                yield step.finding("growing", severity, text, WAY_OUT, names, line, brief=brief)


def saturated_turns(case: RuleInput) -> Iterator[Finding]:
    """Finds a bound that a loop in a kernel reaches in some turn and never leaves."""
    for event, seen in case.trail.observer(Loops).seen.items():
        reached = (r for r in seen.reached if (r.stmt.where, r.thread) in seen.came)
        for found in grouped((r.stmt.where, r) for r in reached).values():
            r = min(found, key=lambda r: (r.zero, r.begin))
            step, line = case.trail.of[event], _line(r.loop)
            loop = f"of the loop{f' in line {line.line}' if line else ''}"
            since = f"from turn {r.begin + 1} of {r.turns} {loop}"
            yield saturation(r.stmt, r.thread, r.component, r.zero, step, since, f"{r.turns - r.begin} turns")

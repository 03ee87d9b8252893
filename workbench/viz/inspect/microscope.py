"""The microscope: one thread of one launch, down through its statements and back up through their adjoints.

The thread runs again in the interpreter, on copies of the memory as the walk found it: first the kernel, then its
adjoint with every statement left in (`passes.unpruned_adjoint`). What is shown is what ran: nothing is computed here.
Invariants: a value has one step on the way down, where it was made; a copy (`b = a`, a branch, a turn of a loop) is
another name of it, never another step. What rests on bytes that the tape did not keep is "not kept", never a number.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import linecache
import math
import textwrap
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.span import byte_entries
from ...arrays.workspace import Shadow, Workspace, extremal_memory, shadow_view
from ...errors import BoundsError, GradientError, LaunchError, Where
from ...kernels import ir
from ...kernels.interpreter import run
from ...kernels.interpreter.unknown_bytes import Doubt, cell_of
from ...kernels.ir import Stmt, Value, root, walk
from ...kernels.ops import control
from ...kernels.ops import memory as mem
from ...kernels.passes.unpruned_adjoint import Moment, Working, working
from ...kernels.types import is_float
from ...tables import aligned, html_table
from ...tapes.events import Event
from ...tapes.rerun import THREADS, Copies
from ...tapes.reverse import ties
from ...tapes.tape import Tape
from ..data.snapshot import Moments
from ..data.text import clean
from .ledger import number, place

CAP = 5_000  # steps
BUDGET = 300_000  # statements of a thread: half a second
NOT_KEPT = "not kept"  # in place of a value


@dataclass(frozen=True)
class Step:
    """One statement on the way down (phase "forward") or its adjoint on the way back ("reverse").

    name: of the local, or of the memory cell (`x[2]`). value: a number, or tuples of numbers for vectors and matrices;
    "not kept" where it rests on memory that was overwritten and not kept.
    adjoint: of that value, complete; None on the way down, and where no derivative reaches it. depth: of calls.
    iteration: the turn, from 0, of every loop around it, outer first. produced_by: the step that made the value; on
    the way back the step on the way down. aliases: all other names of this one value.
    """

    phase: str
    where: Where | None
    name: str
    value: Any
    adjoint: Any = None
    depth: int = 0
    iteration: tuple[int, ...] = ()
    produced_by: int | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "phase": self.phase, "where": place(self.where), "name": self.name, "value": plain(self.value),
            "adjoint": plain(self.adjoint), "depth": self.depth, "iteration": list(self.iteration),
            "produced_by": self.produced_by, "aliases": list(self.aliases), "note": self.note,
        }  # fmt: skip


@dataclass(frozen=True)
class Microscope:
    """One thread of the launch at `event` (its position in `tape.events`). `note`: what is missing, and why."""

    event: int
    heading: str
    thread: tuple[int, ...]
    steps: tuple[Step, ...]
    note: str = ""

    def find(self, name: str, iteration: tuple[int, ...] | None = None, phase: str = "forward") -> list[Step]:
        """The steps of a name or of an alias of it, in the order they ran."""
        return [
            s for s in self.steps
            if s.phase == phase and name in (s.name, *s.aliases) and (iteration is None or s.iteration == iteration)
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain data; NaN and infinities as text."""
        return {
            "event": self.event, "heading": self.heading, "thread": list(self.thread),
            "steps": [s.to_json() for s in self.steps], "note": self.note,
        }  # fmt: skip

    @property
    def title(self) -> str:
        return clean(f"{self.heading}, thread {', '.join(map(str, self.thread))}")

    def table(self) -> list[tuple[str, ...]]:
        """The steps as texts, below a head."""
        out = [("", "line", "name", "value", "adjoint", "turn", "")]
        for s in self.steps:
            line = "" if s.where is None else f"{s.where.line}: {'  ' * s.depth}{clean(s.where.text.strip())}"
            names = clean(" = ".join([s.name, *s.aliases]))
            turn = ", ".join(map(str, s.iteration))
            out.append(("↓" if s.phase == "forward" else "↑", line, names, shown(s.value),
                        "" if s.adjoint is None else shown(s.adjoint), turn, clean(s.note)))  # fmt: skip
        return out

    def __repr__(self) -> str:
        return "\n".join([self.title, *aligned(self.table()), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        head, *rows = self.table()
        look = ";vertical-align:top;white-space:pre"
        return html_table(self.title, head, rows, style=look, head_style=look, heads=False, note=self.note)


def plain(value: Any) -> Any:
    """Numbers as JSON can hold them."""
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    return number(value) if isinstance(value, float) else value


def held(value: Any) -> Any:
    """A number of the interpreter as a Python one; tuples for vectors and matrices."""
    if isinstance(value, np.ndarray):
        return tuple(held(v) for v in value) if value.ndim else value.item()
    return value.item() if isinstance(value, np.generic) else value


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(shown(v) for v in value)})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# ---- one thread


# an `if` by call and line -> the turns in which it was met, and whether the condition held
Taken = dict[tuple[Any, int], list[tuple[tuple[int, ...], bool]]]


class Done(Exception):
    """Everything wanted has been seen."""


_working: weakref.WeakKeyDictionary[ir.Function, dict[Any, Working]] = weakref.WeakKeyDictionary()


def working_of(event: Event) -> Working:
    """The adjoint of a launch with every statement left in; made once per form of launch."""
    plan, back = event.command.plan, event.reverse
    groups = plan.changing
    active = back.reverse.active if back is not None else None
    made = _working.setdefault(plan.program.function, {})
    if (active, groups) not in made:
        made[active, groups] = working(plan.program.function, active, groups)
    return made[active, groups]


class Thread:
    """One thread, run down and back up. `status`: of each memory, which bytes are known, and which certainly."""

    def __init__(
        self, event: Event, thread: tuple[int, ...], status: dict[Allocation, tuple[np.ndarray, np.ndarray]]
    ):  # fmt: skip
        self.event, self.thread = event, thread
        self.work = working_of(event)
        self.steps: list[Step] = []
        self.made: dict[Value, int] = {}  # the step that made a value
        self.names: dict[int, dict[str, None]] = {}  # further names of the value of a step
        self.at: dict[tuple[Stmt, tuple[int, ...]], int] = {}
        self.cells: dict[tuple, int] = {}  # memory that the thread has written: the step that made what is there
        self.turn: dict[Stmt, int] = {}
        self.taken: Taken = {}
        self.note = ""
        self.status = status
        self.doubt: Doubt | None = None
        self.missing = self.hidden = False  # is there a value, or a statement, that is not known
        self.present: dict[str, None] = {}  # arrays that are shown as they are now
        self.certain: list[tuple[int, np.ndarray]] = []
        self.around: dict[Stmt, tuple[Stmt, ...]] = {}
        self.testing: set[Stmt] = set()
        self._place(self.work.primal.body, ())

    def _place(self, region: ir.Region, around: tuple[Stmt, ...]) -> None:
        for stmt in region.body:
            self.around[stmt] = around
            is_loop = stmt.row in (control.FOR, control.WHILE)
            for k, inner in enumerate(stmt.regions):
                if stmt.row is control.WHILE and k == 0:
                    self.testing.update(walk(inner))
                self._place(inner, (*around, stmt) if is_loop else around)

    @property
    def threads(self) -> list[tuple[int, ...]]:
        """Those to run: this one, and those before it where the result of an atomic is used."""
        dims, back = self.event.command.plan.form.dims, self.event.reverse
        if back is None or not back.reverse.ordered or math.prod(dims) > THREADS:
            return [self.thread]
        everybody = itertools.product(*map(range, dims))
        return [*itertools.takewhile(lambda t: t != self.thread, everybody), self.thread]

    def run(self, function: ir.Function, args: list, see: Callable[[Stmt, run.Values], None]) -> bool:
        """False if the thread was too long to be seen to its end."""
        left = BUDGET

        def trace(thread: tuple[int, ...], stmt: Stmt, values: run.Values) -> None:
            nonlocal left
            if self.doubt is not None:
                self.doubt.see(thread, stmt, values)
            if thread == self.thread:
                left -= 1
                if left < 0:
                    raise TimeoutError
                see(stmt, values)

        try:
            run.run(function, self.event.command.plan.form.dims, args, trace=trace, threads=self.threads)
        except Done:
            return True
        except TimeoutError:
            return False
        except BoundsError:
            if self.doubt is None:
                raise
            self.hidden = True  # by an index that is not the launch's
        return True

    def doubtful(self, function: ir.Function, copies: Copies) -> Doubt | None:
        """None where the launch reads nothing but what is known."""
        masks = {a: known for a, (known, _) in self.status.items()}
        read = self.event.reads
        if any(stmt.row in mem.ATOMICS for stmt in walk(self.work.primal.body)):  # they may read what they write
            read = (*read, *self.event.writes)
        if all(byte_entries(span, masks[span.allocation]).all() for span in read):
            return None
        for a, known in masks.items():  # whatever is there would do, but zeros seldom lead outside of arrays
            copies.memory[a][~known] = 0
        memory = [(copies.memory[a], known.copy()) for a, known in masks.items()]
        shadows = [(data, np.ones(len(data), bool)) for data in copies.shadows.values()]
        return Doubt(function, self.work.turns, memory + shadows)

    def known(self, value: Value, values: run.Values) -> Any:
        """A value as it is shown."""
        if self.doubt is None or value not in self.doubt:
            return held(values[value])
        self.missing = True
        return NOT_KEPT

    def notes(self) -> str:
        texts = [self.note] if self.note else []
        if self.missing or self.hidden:
            texts.append('Not kept: memory that was overwritten, and that no gradient needs, with all that was computed'
                         ' from it; wb.Tape(keep="all") keeps everything.')  # fmt: skip
        if self.hidden:
            texts.append("What ran behind a condition, a loop bound or an index on such a value is left out.")
        if self.present:
            names = ", ".join(self.present)
            texts.append(f"As memory is now, which the tape does not watch: {names}.")
        return " ".join(texts)

    # ---- down

    def down(self, copies: Copies) -> None:
        self.doubt = self.doubtful(self.work.primal, copies)
        self.certain = [
            (copies.memory[a].__array_interface__["data"][0], certain)
            for a, (_, certain) in self.status.items() if not certain.all()
        ]  # fmt: skip
        complete = self.run(self.work.primal, copies.primal(), self.see)
        if len(self.steps) >= CAP // 2 or not complete:
            self.note = f"The first {len(self.steps)} steps on the way down are shown: the cap is {CAP} in all."
        for k, names in aliases(self.steps, self.names, self.taken, self.work.primal).items():
            self.steps[k] = replace(self.steps[k], aliases=tuple(names))

    def see(self, stmt: Stmt, values: run.Values) -> None:
        row = stmt.row
        if self.doubt is not None and (self.doubt.dark(stmt) or stmt in self.doubt.missed):
            self.skip(stmt)
        elif stmt in self.work.turns:
            loop, region = self.work.turns[stmt]
            if region is loop.regions[-1]:
                self.begin_turn(loop)
        elif row is control.IF:
            taken = bool(values[stmt.args[0]])
            if stmt.where is not None:
                self.taken.setdefault((_frame(stmt.where), stmt.where.line), []).append((self.iteration(stmt), taken))
            self.pass_on(stmt.outs, stmt.regions[0 if taken else 1].results)
        elif row in (control.FOR, control.WHILE):
            turned = self.turn.pop(stmt, None) is not None
            fixed = 3 if row is control.FOR else 0
            self.pass_on(stmt.outs, _results(stmt) if turned else stmt.args[fixed:])
        elif row is control.CALL:
            self.pass_on(stmt.outs, stmt.regions[0].results)
        elif row is mem.LOAD:
            self.load(stmt, values)
        elif row is mem.STORE or row in mem.ATOMICS:
            self.store(stmt, values)
        elif stmt.outs and stmt.outs[0].name and not stmt.outs[0].name.startswith("$"):
            self.enter(stmt, stmt.outs[0].name, self.known(stmt.outs[0], values))

    def skip(self, stmt: Stmt) -> None:
        """Nobody knows whether this ran, or which way it went."""
        self.hidden = True
        self.turn.pop(stmt, None)
        self.cells.clear()
        for out in stmt.outs:
            self.made.pop(out, None)

    def begin_turn(self, loop: Stmt) -> None:
        turn = self.turn[loop] = self.turn.get(loop, -1) + 1
        fixed, body = (3, loop.regions[-1].params[1:]) if loop.row is control.FOR else (0, loop.regions[-1].params)
        self.pass_on(tuple(body), _results(loop) if turn else loop.args[fixed:])
        if loop.row is control.WHILE:
            self.pass_on(tuple(loop.regions[0].params), tuple(body))

    def pass_on(self, to: tuple[Value, ...], come: tuple[Value, ...]) -> None:
        """A copy: another name of the same value, made by the same step."""
        found = [(t, self.made.get(c)) for t, c in zip(to, come, strict=True)]
        for value, step in found:
            self.made.pop(value, None)
            if step is not None:
                self.made[value] = step
                if value.name and not value.name.startswith("$") and value.name != self.steps[step].name:
                    self.names.setdefault(step, {})[value.name] = None

    def iteration(self, stmt: Stmt) -> tuple[int, ...]:
        loops = self.around[stmt]
        turns = [self.turn.get(loop, -1) for loop in loops]
        if stmt in self.testing and loops:
            turns[-1] += 1  # the condition belongs to the turn that it lets in
        return tuple(max(t, 0) for t in turns)

    def enter(self, stmt: Stmt, name: str, value: Any, produced: int | None = None, note: str = "") -> int:
        if len(self.steps) >= CAP // 2:
            raise Done
        iteration, k = self.iteration(stmt), len(self.steps)
        self.steps.append(Step("forward", stmt.where, name, value, None, _depth(stmt.where), iteration,
                               produced, (), note))  # fmt: skip
        self.at[stmt, iteration] = k
        for out in stmt.outs:
            self.made[out] = k
        return k

    def cell(self, stmt: Stmt, values: run.Values) -> tuple[str, tuple[int, ...] | None]:
        """The memory cell of a statement: as text, and as something to compare."""
        name = root(stmt.args[0]).name
        if self.doubt is not None and self.doubt.indexed(stmt):
            self.missing = True
            return f"{name}[?]", None
        index, *key = cell_of(stmt, values)
        return f"{name}[{', '.join(map(str, index))}]", tuple(key)

    def load(self, stmt: Stmt, values: run.Values) -> None:
        cell, key = self.cell(stmt, values)
        name = stmt.outs[0].name
        if name.startswith("$"):
            name = ""
        before = None if key is None else self.cells.get(key)
        value = self.known(stmt.outs[0], values)
        if before is None and key is not None and value is not NOT_KEPT:
            self.look(root(stmt.args[0]).name, *key)
        self.enter(stmt, name or cell, value, before, f"reads {cell}" if name else "")
        if before is not None:  # reading back is a copy
            self.made[stmt.outs[0]] = before

    def look(self, name: str, address: int, size: int) -> None:
        """Would the tape know if somebody had changed this memory since."""
        for start, certain in self.certain:
            if start <= address < start + len(certain) and not certain[address - start :][:size].all():
                self.present[name] = None

    def store(self, stmt: Stmt, values: run.Values) -> None:
        cell, key = self.cell(stmt, values)
        value = stmt.args[-1]
        producer = self.made.get(value)
        note = "" if stmt.row is mem.STORE else stmt.row.name
        k = self.enter(stmt, cell, self.known(value, values), producer, note)
        if key is None:
            self.cells.clear()
        else:
            self.cells[key] = k if producer is None or stmt.row is not mem.STORE else producer

    # ---- back up

    def up(self, copies: Copies, space: Workspace, helpers: list) -> None:
        if self.work.function is None:
            self.note = self.note or "No gradient is asked for on this launch's way: there is nothing to reverse."
            return
        command, back = self.event.command, self.event.reverse
        self.doubt = self.doubtful(self.work.function, copies)
        args = copies.primal() + [copies.shadow(command.places[k]) for k in back.shadows] + helpers
        if not self.run(self.work.function, args, self.see_back):
            self.note = f"The way back is too long to be shown: a thread is given up on after {BUDGET} statements."

    def see_back(self, stmt: Stmt, values: run.Values) -> None:
        moment = self.work.moments.get(stmt)
        if moment is None:
            if stmt.row is mem.ACCUMULATE and root(stmt.args[0]).belongs_to in self.declared:
                self.steps.append(self.of_scalar(stmt, values))
            return
        if len(self.steps) >= CAP:
            raise Done
        if self.doubt is not None and self.doubt.dark(stmt):
            return
        k = self.at.get((moment.stmt, tuple(int(values[t]) for t in moment.turns)))
        if k is None:
            return
        step, stmt = self.steps[k], moment.stmt
        floats = (
            is_float(stmt.args[-1].type) if stmt.row in _WRITES else bool(stmt.outs) and is_float(stmt.outs[0].type)
        )
        if not floats:
            return
        g = moment.adjoints[0]
        adjoint = None if g is None else self.known(g, values)
        note = self.noted(stmt, values, step, moment, adjoint)
        self.steps.append(replace(step, phase="reverse", adjoint=adjoint, produced_by=k, note=note))

    @property
    def declared(self) -> dict[str, int]:
        """The declared scalars, with their positions."""
        command = self.event.command
        return {command.program.leaves[k].name: k for k in command.declared}

    def of_scalar(self, stmt: Stmt, values: run.Values) -> Step:
        """The last step of all: what the thread gives to a scalar parameter with a gradient."""
        k = self.declared[root(stmt.args[0]).belongs_to]
        param = self.event.command.program.function.params[k]
        value = held(np.asarray(self.event.command.flat[k], param.type.numpy))  # type: ignore[attr-defined]
        adjoint = self.known(stmt.args[-1], values)
        return Step("reverse", param.where, param.name, value, adjoint, note=f"added to d {param.name}")

    def noted(self, stmt: Stmt, values: run.Values, step: Step, moment: Moment, adjoint: Any) -> str:
        """What the adjoint does to memory; and what the replay found otherwise than the launch."""
        cell = step.note.removeprefix("reads ") if step.note.startswith("reads ") else step.name
        note = ""
        if adjoint is not None and stmt.row is mem.LOAD:
            note = f"added to d {cell}"
        elif adjoint is not None and stmt.row is mem.STORE:
            note = f"taken from d {cell}, which becomes 0"
        elif adjoint is not None and stmt.row in mem.ATOMICS:
            note = f"{stmt.row.name}: from d {cell}"
        again = moment.values[0] if moment.values and stmt.row not in _WRITES else None
        if step.value is NOT_KEPT or (again is not None and self.doubt is not None and again in self.doubt):
            return note
        if again is not None and (now := held(values[again])) != step.value and not _both_nan(now, step.value):
            note = f"was {shown(step.value)}, now {shown(now)}" + (f"; {note}" if note else "")
        return note


_WRITES = (mem.STORE, *mem.ATOMICS)


def _results(loop: Stmt) -> tuple[Value, ...]:
    """What a turn hands to the next one."""
    return loop.regions[-1].results[1:] if loop.attr.breaks else loop.regions[-1].results


def _both_nan(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a, float), np.asarray(b, float), equal_nan=True)


def _depth(where: Where | None) -> int:
    return 0 if where is None or where.caller is None else 1 + _depth(where.caller)


def _frame(where: Where) -> tuple:
    """The call that a place belongs to: two calls of one func are two."""
    return where.file, where.function, where.caller


# ---- b = a


def aliases(
    steps: list[Step], known: dict[int, dict[str, None]], taken: Taken, function: ir.Function
) -> dict[int, dict[str, None]]:
    """The further names of the value of each step: those that control flow gave it, and those of plain copies.

    A copy `b = a` leaves no statement behind: it is found in the source, where the last assignment to `a` above it
    made this value, on a path that the thread took.
    """
    found = {k: dict(names) for k, names in known.items()}
    trees: dict[tuple[str, str], ast.AST | None] = {}
    for k, step in enumerate(steps):
        if step.where is None or not step.name.isidentifier():
            continue
        key = step.where.file, step.where.function
        if key not in trees:
            trees[key] = _tree(step.where, function)
        tree = trees[key]
        names = {step.name: step.where.line}
        for target, source, line, inside in _copies(tree) if tree is not None else ():
            made = names.get(source)
            if made is None or not made < line or target == step.name:
                continue
            frame = _frame(step.where)
            ran = all(_went(taken.get((frame, at), []), side, step.iteration) for at, side in inside)
            if ran and not _assigned_between(tree, source, made, line):
                names[target] = line
                found.setdefault(k, {})[target] = None
    return found


def _went(found: list[tuple[tuple[int, ...], bool]], side: bool, turn: tuple[int, ...]) -> bool:
    """Did the thread take this side of an `if`, in this turn or in one inside it."""
    return any(taken is side for at, taken in found if at[: len(turn)] == turn[: len(at)])


def _tree(where: Where, function: ir.Function) -> ast.AST | None:
    """The source of the function that a place lies in, with the line numbers of its file."""
    if function.where is not None and (where.file, where.function) == (function.where.file, function.where.function):
        tree = _parsed(function.source)
        return ast.increment_lineno(tree, function.first_line - 1) if tree is not None else None
    whole = _parsed("".join(linecache.getlines(where.file)))
    inside = [n for n in ast.walk(whole) if isinstance(n, ast.FunctionDef)] if whole is not None else []
    around = [n for n in inside if n.lineno <= where.line <= (n.end_lineno or n.lineno)]
    return max(around, key=lambda n: n.lineno, default=None)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return None


def _copies(tree: ast.AST, inside: tuple = ()) -> Iterator[tuple[str, str, int, tuple[tuple[int, bool], ...]]]:
    """(new name, old name, line, the branches around it) of every plain copy, in the order of the source."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If):
            yield from _copies(ast.Module(node.body, []), (*inside, (node.lineno, True)))
            yield from _copies(ast.Module(node.orelse, []), (*inside, (node.lineno, False)))
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for t, v in _pairs(target, node.value):
                    yield t, v, node.lineno, inside
        elif isinstance(node, ast.stmt):
            yield from _copies(node, inside)


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Name) and isinstance(value, ast.Name):
        yield target.id, value.id
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for t, v in zip(target.elts, value.elts, strict=True):
            yield from _pairs(t, v)


def _assigned_between(tree: ast.AST | None, name: str, first: int, last: int) -> bool:
    nodes = ast.walk(tree) if tree is not None else ()
    return any(
        isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name and first < n.lineno < last
        for n in nodes
    )


# ---- what is asked for


def microscope(tape: Tape, event: Any, thread: Any) -> Microscope:
    """One thread of one launch, statement by statement: values on the way down, adjoints on the way back.

    event    an event of the tape, its position in `tape.events`, or its label where only one launch has it.
    thread   an int, or a tuple of as many as the launch has dimensions.
    The adjoints are those of the seeds of the last `backward`; before any, all are zero. At most 5,000 steps. A value
    that rests on memory which was overwritten and not kept is "not kept": `wb.Tape(keep="all")` keeps everything.
    Raises LaunchError for an event or a thread that does not exist, GradientError on a tape with `record_func`.
    """
    found = event_of(tape, event)
    index = thread_of(found, thread)
    position = next(k for k, e in enumerate(tape.events) if e is found)
    after: dict[Allocation, Shadow] = {}

    def before(event: Event, space: Workspace) -> None:
        if event is found:
            seen.down(Copies(event))
            seen.up(Copies(event, space), space, helpers_of(tape, event, after))
            raise Done

    def observe(event: Event, space: Workspace) -> None:
        if position + 1 < len(tape.events) and event is tape.events[position + 1]:
            after.update(extremal_memory(found))

    with memory.LOCK:
        seen = Thread(found, index, status_of(tape, found, position))
        if position + 1 == len(tape.events):
            after.update(extremal_memory(found))
        with contextlib.suppress(Done):
            tape.retrace(observe, before)
    return Microscope(position, f"#{position} {found.label}", index, tuple(seen.steps), seen.notes())


def status_of(tape: Tape, event: Event, position: int) -> dict[Allocation, tuple[np.ndarray, np.ndarray]]:
    """Of the memory that a launch uses: which bytes are known as it saw them, and which certainly."""
    moments = Moments(tape)
    used = dict.fromkeys(x.allocation for x in event.command.places if isinstance(x, array))
    return {a: moments.status(a, position) for a in used}


def helpers_of(tape: Tape, event: Event, after: dict[Allocation, Shadow]) -> list:
    """What an adjoint of atomic_min and atomic_max takes besides the shadows."""
    back = event.reverse
    if back is None or not back.extremal:
        return []
    if event.command.plan.form.backend == "cuda":
        raise GradientError(f"{event.label!r} has atomic_min or atomic_max: the microscope shows it on the CPU only.",
                            slug="microscope-gpu", where=event.where, instead="device='cpu'")  # fmt: skip
    return [shadow_view(event.command.flat[k], s) for k, s in ties(event, after)]


def event_of(tape: Tape, event: Any) -> Event:
    """The launch that is meant. Raises LaunchError naming what there is."""
    if isinstance(event, bool) or not isinstance(event, Event | int | np.integer | str):
        raise _no_event(tape, f"an event is given as itself, its position or its label, not as {event!r}.")
    if isinstance(event, str):
        named = [(k, e) for k, e in enumerate(tape.events) if event in (e.label, f"#{k} {e.label}")]
        if len(named) > 1:
            raise _no_event(tape, f"{len(named)} events are called {event!r}.",
                            f"one of {_listed(k for k, _ in named)}")  # fmt: skip
        if not named:
            raise _no_event(tape, f"no event is called {event!r}.")
        found = named[0][1]
    elif isinstance(event, Event):
        if not any(e is event for e in tape.events):
            raise _no_event(tape, f"{event!r} is not on this tape.")
        found = event
    else:
        if not -len(tape.events) <= event < len(tape.events):
            raise _no_event(tape, f"there is no event {event}.")
        found = tape.events[int(event)]
    if found.command is None:
        raise _no_event(tape, f"{found.label!r} is a {found.kind.rstrip('_')}: it has no threads.")
    return found


def _no_event(tape: Tape, what: str, instead: str = "") -> LaunchError:
    launches = [f"#{k} {e.label}" for k, e in enumerate(tape.events) if e.command is not None]
    some = ", ".join(launches[:8]) + (f", and {len(launches) - 8} more" if len(launches) > 8 else "")
    return LaunchError(f"microscope: {what}", slug="microscope-event",
                       why=f"This tape has {len(tape.events)} events; its launches: {some or 'none'}.",
                       instead=instead or "tape.microscope(tape.launches[0], 0)")  # fmt: skip


def _listed(numbers: Iterator[int]) -> str:
    texts = [str(n) for n in numbers]
    return ", ".join(texts[:8]) + (", ..." if len(texts) > 8 else "")


def thread_of(event: Event, thread: Any) -> tuple[int, ...]:
    """The thread as an index of the grid. Raises LaunchError naming the grid."""
    dims = event.command.plan.form.dims
    index = tuple(thread) if isinstance(thread, tuple | list) else (thread,)
    whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in index)
    if not whole or len(index) != len(dims) or any(not 0 <= i < n for i, n in zip(index, dims, strict=False)):
        last = tuple(n - 1 for n in dims)
        raise LaunchError(
            f"microscope: {event.label!r} has no thread {thread!r}; its grid is {dims}.", slug="microscope-thread",
            where=event.where, instead=f"{0 if len(dims) == 1 else tuple(0 for _ in dims)} to"
            f" {last[0] if len(dims) == 1 else last}",
        )  # fmt: skip
    return tuple(int(i) for i in index)

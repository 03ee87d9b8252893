"""One thread of one launch, run in the interpreter: down through its statements and back up through their adjoints.

Invariants: a value has one step on the way down, where it was made; a copy (`b = a`, a branch, a turn of a loop) is
another name of it, never another step. What rests on bytes that the tape did not keep is "not kept", never a number.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.span import byte_entries
from ...arrays.workspace import Workspace
from ...display import aligned, html_table
from ...errors import BoundsError, Where
from ...kernels import ir
from ...kernels.interpreter import run
from ...kernels.interpreter.taint import Taint, cell_of
from ...kernels.ir import Stmt, Value, root, walk
from ...kernels.ops import control, memory as mem
from ...kernels.passes.unpruned_adjoint import Moment, Working, working
from ...kernels.types import Scalar, is_float
from ...tapes.events import Event
from ...tapes.rerun import THREADS, Copies, Enough
from ..data.text import clean, plain

TURNS = 3  # of a loop, at its start and at its end, that a table shows
Number = bool | int | float | str | tuple[Any, ...]  # a vector or matrix as tuples; a text: it is not known


@dataclass(frozen=True)
class StatementStep:
    """One statement on the way down (phase "forward") or its adjoint on the way back ("reverse").

    name: of the local, or of the memory cell (`x[2]`). value: a number, or tuples of numbers for vectors and matrices;
    "not kept" where it rests on memory that was overwritten and not kept.
    adjoint: of that value, complete; None on the way down, and where no derivative reaches it. depth: of calls.
    iteration: the turn, from 0, of every loop around it, outer first; loops: which these are, as places in
    `Microscope.loops`. produced_by: the step that made the value; on
    the way back the step on the way down. aliases: all other names of this one value.
    """

    phase: str
    where: Where | None
    name: str
    value: Number
    adjoint: Number | None = None
    depth: int = 0
    iteration: tuple[int, ...] = ()
    produced_by: int | None = None
    aliases: tuple[str, ...] = ()
    note: str = ""
    loops: tuple[int, ...] = ()


@dataclass(frozen=True)
class Microscope:
    """One thread of the launch at `event` (its position in `tape.events`). `note`: what is missing, with the reason.

    loops: the source line of every loop of the kernel.
    """

    event: int
    heading: str
    thread: tuple[int, ...]
    steps: tuple[StatementStep, ...]
    note: str = ""
    loops: tuple[Where | None, ...] = ()

    def find(self, name: str, iteration: tuple[int, ...] | None = None, phase: str = "forward") -> list[StatementStep]:
        """The steps of a name or of an alias of it, in the order they ran."""
        found = (s for s in self.steps if s.phase == phase and name in (s.name, *s.aliases))
        return [s for s in found if iteration is None or s.iteration == iteration]

    def to_json(self) -> dict[str, Any]:
        """Plain data; NaN and infinities as text."""
        return plain(self)

    @property
    def title(self) -> str:
        return clean(f"{self.heading}, thread {', '.join(map(str, self.thread))}")

    def table(self) -> list[tuple[str, ...]]:
        """The steps as texts, below a head; of a long loop the first and last turns, and the first with a NaN."""
        out = [("", "line", "name", "value", "adjoint", "turn", "")]
        last: dict[int, int] = {}
        ill: dict[int, int] = {}
        for s in self.steps:
            for loop, turn in zip(s.loops, s.iteration, strict=True):
                last[loop] = max(last.get(loop, 0), turn)
                if any(word in shown(s.value) for word in ("nan", "inf")):
                    ill.setdefault(loop, turn)
        hidden = 0
        for s in self.steps:
            turns = list(zip(s.loops, s.iteration, strict=True))
            if any(TURNS <= turn <= last[loop] - TURNS and turn != ill.get(loop) for loop, turn in turns):
                hidden += 1
                continue
            if hidden:
                out.append(("", "", f"… {hidden} more steps, in the turns between", "", "", "", ""))
            hidden = 0
            line = "" if s.where is None else f"{s.where.line}: {'  ' * s.depth}{clean(s.where.text.strip())}"
            names, way = clean(" = ".join([s.name, *s.aliases])), "↓" if s.phase == "forward" else "↑"
            numbers = shown(s.value), "" if s.adjoint is None else shown(s.adjoint)
            out.append((way, line, names, *numbers, ", ".join(map(str, s.iteration)), clean(s.note)))
        return out

    def __repr__(self) -> str:
        return "\n".join([self.title, *aligned(self.table()), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        head, *rows = self.table()
        look = ";vertical-align:top;white-space:pre"
        return html_table(self.title, head, rows, style=look, head_style=look, heads=False, note=self.note)


def held(value: np.ndarray | np.generic | Number) -> Any:
    """A number of the interpreter as a Python one; tuples for vectors and matrices."""
    if isinstance(value, np.ndarray):
        return tuple(held(v) for v in value) if value.ndim else value.item()
    return value.item() if isinstance(value, np.generic) else value


def shown(value: Number | None) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(shown(v) for v in value)})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


CAP = 5_000  # steps
BUDGET = 300_000  # statements of a thread: half a second
NOT_KEPT = "not kept"  # in place of a value
_WRITES = (mem.STORE, *mem.ATOMICS)
_EFFECTS = {mem.LOAD: "added to d {}", mem.STORE: "taken from d {}, which becomes 0"}  # of the reverse of a row
_EFFECTS |= {row: f"{row.name}: from d {{}}" for row in mem.ATOMICS}


class ThreadRun:
    """One thread, run forward and back. `status`: by memory, the masks of known and of certain bytes."""

    def __init__(self, event: Event, thread: tuple[int, ...], status: dict[Allocation, tuple[np.ndarray, np.ndarray]]):
        self.event, self.thread = event, thread
        plan, back = event.command.plan, event.reverse
        active = back.reverse.active if back is not None else None
        self.work: Working = plan.program.once(working, plan.program.function, active, plan.changing)
        self.steps: list[StatementStep] = []
        self.made: dict[Value, int] = {}  # the step that made a value
        self.names: dict[int, dict[str, None]] = {}  # further names of the value of a step
        self.at: dict[tuple[Stmt, tuple[int, ...]], int] = {}
        self.cells: dict[tuple, int] = {}  # memory that the thread has written: the step that made what is there
        self.turn: dict[Stmt, int] = {}
        self.taken: Taken = {}
        self.note = ""
        self.status = status
        self.doubt: Taint | None = None
        self.missing = self.hidden = False  # is there a value, or a statement, that is not known
        self.present: dict[str, None] = {}  # arrays that are shown as they are now
        self.certain: list[tuple[int, np.ndarray]] = []
        self.around: dict[Stmt, tuple[Stmt, ...]] = {}
        self.loops: dict[Stmt, int] = {}
        self.testing: set[Stmt] = set()
        self._place(self.work.primal.body, ())
        placed = [(s.where, s) for s in self.around if s.where is not None and s.outs]
        last = {(frame_of(w), w.line): s for w, s in placed if w.text.lstrip().startswith("return ")}
        self.returning = frozenset(last.values())

    def _place(self, region: ir.Region, around: tuple[Stmt, ...]) -> None:
        for stmt in region.body:
            self.around[stmt] = around
            is_loop = stmt.row in (control.FOR, control.WHILE)
            if is_loop:
                self.loops[stmt] = len(self.loops)
            for k, inner in enumerate(stmt.regions):
                if stmt.row is control.WHILE and k == 0:
                    self.testing.update(walk(inner))
                self._place(inner, (*around, stmt) if is_loop else around)

    @property
    def threads(self) -> list[tuple[int, ...]]:
        """The threads to run: this one; also all before it if the kernel uses the result of an atomic."""
        dims, back = self.event.command.plan.form.dims, self.event.reverse
        if back is None or not back.reverse.ordered or math.prod(dims) > THREADS:
            return [self.thread]
        everybody = itertools.product(*map(range, dims))
        return [*itertools.takewhile(lambda t: t != self.thread, everybody), self.thread]

    def run(self, function: ir.Function, args: list, see: Callable[[Stmt, run.LiveValues], None]) -> bool:
        """Run the function and call `see` for each statement of the thread; False if it ran into `BUDGET`."""
        left = BUDGET

        def trace(thread: tuple[int, ...], stmt: Stmt, values: run.LiveValues) -> None:
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
        except Enough:
            return True
        except TimeoutError:
            return False
        except BoundsError:
            if self.doubt is None:
                raise
            self.hidden = True  # by an index that is not the launch's
        return True

    def doubtful(self, function: ir.Function, copies: Copies) -> Taint | None:
        """The taint tracker of unknown bytes; None if the launch reads known bytes only."""
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
        return Taint(function, self.work.turns, memory + shadows)

    def known(self, value: Value, values: run.LiveValues) -> Any:
        """A value as shown: a number, tuples of them, or "not kept" if it rests on unknown bytes."""
        if self.doubt is None or value not in self.doubt:
            return held(values[value])
        self.missing = True
        return NOT_KEPT

    def notes(self) -> str:
        texts = [self.note] if self.note else []
        if self.missing or self.hidden:
            texts.append(
                "Not kept: memory that was overwritten, and that no gradient needs, with all that was computed"
                ' from it; wb.Tape(keep="all") keeps everything.'
            )
        if self.hidden:
            texts.append("What ran behind a condition, a loop bound or an index on such a value is left out.")
        if self.present:
            names = ", ".join(self.present)
            texts.append(f"As memory is now, which the tape does not watch: {names}.")
        return " ".join(texts)

    # ---- down

    def down(self, copies: Copies) -> None:
        self.doubt = self.doubtful(self.work.primal, copies)
        masks = ((copies.memory[a], certain) for a, (_, certain) in self.status.items() if not certain.all())
        self.certain = [(data.__array_interface__["data"][0], certain) for data, certain in masks]
        complete = self.run(self.work.primal, copies.primal(), self.see)
        if len(self.steps) >= CAP // 2 or not complete:
            self.note = f"The first {len(self.steps)} steps on the way down are shown: the cap is {CAP} in all."
        for k, names in aliases(self.steps, self.names, self.taken, self.work.primal).items():
            self.steps[k] = replace(self.steps[k], aliases=tuple(names))

    def see(self, stmt: Stmt, values: run.LiveValues) -> None:
        row = stmt.row
        if self.doubt is not None and (self.doubt.control_tainted(stmt) or stmt in self.doubt.missed):
            self.skip(stmt)
        elif stmt in self.work.turns:
            loop, region = self.work.turns[stmt]
            if region is loop.regions[-1]:
                self.begin_turn(loop)
        elif row is control.IF:
            taken = bool(values[stmt.args[0]])
            if stmt.where is not None:
                self.taken.setdefault((frame_of(stmt.where), stmt.where.line), []).append((self.iteration(stmt), taken))
            self.pass_on(stmt.outs, stmt.regions[0 if taken else 1].results)
        elif row in (control.FOR, control.WHILE):
            turned = self.turn.pop(stmt, None) is not None
            self.pass_on(stmt.outs, tuple(x.result if turned else x.init for x in control.carried(stmt)))
        elif row is control.CALL:
            self.pass_on(stmt.outs, stmt.regions[0].results)
        elif row is mem.LOAD:
            self.load(stmt, values)
        elif row is mem.STORE or row in mem.ATOMICS:
            self.store(stmt, values)
        elif stmt.outs and stmt.outs[0].name and not stmt.outs[0].name.startswith("$"):
            self.enter(stmt, stmt.outs[0].name, self.known(stmt.outs[0], values))
        elif stmt in self.returning:  # the value has no name where it goes straight into an array
            self.enter(stmt, "return", self.known(stmt.outs[0], values))

    def skip(self, stmt: Stmt) -> None:
        """Skip a statement that depends on an unknown value: drop the record of what it may have made."""
        self.hidden = True
        self.turn.pop(stmt, None)
        self.cells.clear()
        for out in stmt.outs:
            self.made.pop(out, None)

    def begin_turn(self, loop: Stmt) -> None:
        turn = self.turn[loop] = self.turn.get(loop, -1) + 1
        carried = control.carried(loop)
        names = tuple(x.param for x in carried)
        self.pass_on(names, tuple(x.result if turn else x.init for x in carried))
        if loop.row is control.WHILE:
            self.pass_on(tuple(loop.regions[0].params), names)

    def pass_on(self, to: tuple[Value, ...], come: tuple[Value, ...]) -> None:
        """Record a copy: another name of the same value, made by the same step."""
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

    def enter(self, stmt: Stmt, name: str, value: Number, produced: int | None = None, note: str = "") -> int:
        if len(self.steps) >= CAP // 2:
            raise Enough
        iteration, k = self.iteration(stmt), len(self.steps)
        loops = tuple(self.loops[loop] for loop in self.around[stmt])
        made = StatementStep("forward", stmt.where, name, value, None, _depth(stmt.where), iteration, produced)
        self.steps.append(replace(made, note=note, loops=loops))
        self.at[stmt, iteration] = k
        for out in stmt.outs:
            self.made[out] = k
        return k

    def cell(self, stmt: Stmt, values: run.LiveValues) -> tuple[str, tuple[int, ...] | None]:
        """(the memory cell of a statement as text, its key for comparisons or None if unknown)."""
        name = root(stmt.args[0]).name
        if self.doubt is not None and self.doubt.indexed(stmt):
            self.missing = True
            return f"{name}[?]", None
        index, *key = cell_of(stmt, values)
        return f"{name}[{', '.join(map(str, index))}]", tuple(key)

    def load(self, stmt: Stmt, values: run.LiveValues) -> None:
        cell, key = self.cell(stmt, values)
        name = stmt.outs[0].name
        if name.startswith("$"):
            name = ""
        before = None if key is None else self.cells.get(key)
        value = self.known(stmt.outs[0], values)
        if before is None and key is not None and value is not NOT_KEPT:
            self.note_foreign(root(stmt.args[0]).name, *key)
        self.enter(stmt, name or cell, value, before, f"reads {cell}" if name else "")
        if before is not None:  # reading back is a copy
            self.made[stmt.outs[0]] = before

    def note_foreign(self, name: str, address: int, size: int) -> None:
        """Put a read into `present` if a foreign write to its memory would have gone unnoticed."""
        for start, certain in self.certain:
            if start <= address < start + len(certain) and not certain[address - start :][:size].all():
                self.present[name] = None

    def store(self, stmt: Stmt, values: run.LiveValues) -> None:
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
        self.doubt = self.doubtful(self.work.function, copies)
        args = [*copies.primal(), *copies.beside(), *helpers]
        if not self.run(self.work.function, args, self.see_back):
            self.note = f"The way back is too long to be shown: a thread is given up on after {BUDGET} statements."

    def see_back(self, stmt: Stmt, values: run.LiveValues) -> None:
        moment = self.work.moments.get(stmt)
        if moment is None:
            if stmt.row is mem.ACCUMULATE and root(stmt.args[0]).belongs_to in self.declared:
                self.steps.append(self.of_scalar(stmt, values))
            return
        if len(self.steps) >= CAP:
            raise Enough
        if self.doubt is not None and self.doubt.control_tainted(stmt):
            return
        k = self.at.get((moment.stmt, tuple(int(values[t]) for t in moment.turns)))
        if k is None:
            return
        step, stmt = self.steps[k], moment.stmt
        given = stmt.args[-1:] if stmt.row in _WRITES else stmt.outs[:1]
        if not any(is_float(v.type) for v in given):
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

    def of_scalar(self, stmt: Stmt, values: run.LiveValues) -> StatementStep:
        """The final step: the thread's contribution to a scalar parameter with a gradient."""
        k = self.declared[root(stmt.args[0]).belongs_to]
        param = self.event.command.program.function.params[k]
        assert isinstance(param.type, Scalar)
        value = held(np.asarray(self.event.command.flat[k], param.type.numpy))
        adjoint = self.known(stmt.args[-1], values)
        return StatementStep("reverse", param.where, param.name, value, adjoint, note=f"added to d {param.name}")

    def noted(
        self, stmt: Stmt, values: run.LiveValues, step: StatementStep, moment: Moment, adjoint: Number | None
    ) -> str:
        """The note of a reverse step: its effect on memory, and any value that the replay found different."""
        cell = step.note.removeprefix("reads ") if step.note.startswith("reads ") else step.name
        note = "" if adjoint is None else _EFFECTS.get(stmt.row, "").format(cell)
        again = moment.values[0] if moment.values and stmt.row not in _WRITES else None
        if step.value is NOT_KEPT or (again is not None and self.doubt is not None and again in self.doubt):
            return note
        if again is not None:
            now = held(values[again])
            if not np.array_equal(np.asarray(now, float), np.asarray(step.value, float), equal_nan=True):
                note = f"was {shown(step.value)}, now {shown(now)}" + (f"; {note}" if note else "")
        return note


def _depth(where: Where | None) -> int:
    return 0 if where is None or where.caller is None else 1 + _depth(where.caller)


# ---- aliases

# an `if` by call and line -> the turns in which it was met, and whether the condition held
Taken = dict[tuple[Any, int], list[tuple[tuple[int, ...], bool]]]


def frame_of(where: Where) -> tuple:
    """The call that a place belongs to, as a key: two calls of one func are two."""
    return where.file, where.function, where.caller


def aliases(
    steps: list[StatementStep], known: dict[int, dict[str, None]], taken: Taken, function: ir.Function
) -> dict[int, dict[str, None]]:
    """The further names of the value of each step: from control flow, and from plain copies."""
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
            frame = frame_of(step.where)
            ran = all(_went(taken.get((frame, at), []), side, step.iteration) for at, side in inside)
            if ran and not _assigned_between(tree, source, made, line):
                names[target] = line
                found.setdefault(k, {})[target] = None
    return found


def _went(found: list[tuple[tuple[int, ...], bool]], side: bool, turn: tuple[int, ...]) -> bool:
    """True if the thread took this side of an `if` in this turn, or in one nested in it."""
    return any(taken is side for at, taken in found if at[: len(turn)] == turn[: len(at)])


def _tree(where: Where, function: ir.Function) -> ast.AST | None:
    """The syntax tree of the function that a place lies in, with the line numbers of its file."""
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
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name) if tree is not None else ()
    return any(isinstance(n.ctx, ast.Store) and first < n.lineno < last for n in found)

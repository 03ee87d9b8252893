"""Sparse Jacobians: the entries that can be non-zero, and a colouring that finds them in few walks.

The pattern is found by running each recorded launch once more in the interpreter, on copies: whatever a thread stores
depends on whatever that thread loads. That holds more entries than are non-zero, never fewer, if the interpreter goes
the way that the launch went; where it may not (`certain`), what is found must be checked as a user's pattern is.
Columns that share no row are then found together by one forward walk, rows that share no column by one reverse walk
(Curtis, Powell and Reid, "On the estimation of sparse Jacobian matrices", IMA J. Appl. Math. 13, 1974), coloured
greedily.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.span import Span
from ..errors import BoundsError, GradientError
from ..kernels import ir
from ..kernels.analysis.rounding import certain
from ..kernels.interpreter import run
from ..kernels.ir import root, used, walk
from ..kernels.ops import control, memory
from ..kernels.types import Array, Composite, is_float
from ..tapes.events import Event
from ..tapes.jvp import passing
from ..tapes.rerun import Copies
from ..tapes.tape import Tape

STATEMENTS = 20_000_000  # of all launches, in the interpreter: about half a minute
BLOCKS = 5_000_000  # of the sets that one launch makes: about a gigabyte
BLOCK = 512  # bits

Line = dict[int, int]  # a set of numbers, as blocks of bits: block -> the ones in it. Never changed once it is shared
NOTHING = Line()


def find(tape: Tape, y: array, x: array) -> tuple[list[Line], bool]:
    """(per number of y the set of numbers of x that it may depend on, True if certain, False if to be checked).

    Raises GradientError [pattern] where a launch is too long to run in the interpreter, depends on too much, or has an
    adjoint of its own that reaches into arrays.
    """
    found = _Pattern(tape)
    found.follow(x)
    lines = found.lines_of(y.allocation)
    return [lines[place] for place in words_of(y.span, found.word(y.allocation))], found.certain


def find_pairs(tape: Tape, x: array) -> tuple[list[Line], bool]:
    """As `find`: per number of x those with which it may have a second derivative.

    They meet in a thread whose adjoint reads numbers of an active array: what it loads depends on both.
    """
    found = _Pattern(tape)
    found.met = []
    found.follow(x)
    lines: list[Line] = [{} for _ in range(x.data.size)]
    for meeting in found.met:
        for k in members(meeting):
            join(lines[k], meeting)
    return lines, found.certain


def words_of(span: Span, word: int) -> list[int]:
    """The indices of a span's numbers in its allocation, in units of `word` bytes, in row-major order."""
    inner = span.itemsize // word
    axes = [range(0, n * s, s) if s else [0] * n for n, s in zip(span.shape, span.strides, strict=True)]
    return [(span.offset + sum(at)) // word + k for at in itertools.product(*axes) for k in range(inner)]


class _Pattern:
    """A forward pass over the events of a tape that propagates a set of inputs for every number of memory."""

    def __init__(self, tape: Tape):
        self.tape, self.left, self.certain = tape, STATEMENTS, True
        self.lines: dict[Allocation, list[Line]] = {}
        self.met: list[Line] | None = None  # what threads loaded that are not linear, where that is wanted

    def follow(self, x: array) -> None:
        for k, (own, place) in enumerate(self.numbers([x])):
            own[place] = joined(own[place], line([k]))
        passing(self.tape, self.event)

    def word(self, a: Allocation) -> int:
        scalar = self.tape.scalars.get(a)
        if scalar is None or not hasattr(scalar, "itemsize"):
            raise _refused("memory of structs has no numbers in a row", None)
        return scalar.itemsize

    def numbers(self, arrays: Iterable[array]) -> list[tuple[list[Line], int]]:
        """Per number of those on active paths the sets of its memory, and its place in them."""
        live = [(a, self.lines_of(a.allocation)) for a in arrays if a.allocation in self.tape.active]
        return [(own, k) for a, own in live for k in words_of(a.span, self.word(a.allocation))]

    def lines_of(self, a: Allocation) -> list[Line]:
        found = self.lines.get(a)
        if found is None:
            found = self.lines[a] = [NOTHING] * (a.nbytes // self.word(a))
        return found

    def event(self, event: Event, _: object) -> None:
        if event.command is None:
            self.host(event)
        elif event.reverse is not None:
            _Launch(self, event).run()

    def host(self, event: Event) -> None:
        """All that a custom op returns may depend on all that it reads."""
        op, source = event.op, event.source
        if op is None and not event.kind.repeatable:
            raise _refused(f"nothing is known of {event.label!r}", event)
        if event.kind.cuts:
            return
        written = self.numbers(event.arrays[:1] if op is None else op.outs)
        values = [own[k] for own, k in self.numbers(op.ins if op is not None else [] if source is None else [source])]
        if op is not None:
            read: Line = {}
            for value in values:
                join(read, value)
            values = [read] * len(written)
            if self.met is not None:
                self.met.append(read)
        for (own, place), value in zip(written, values or [NOTHING] * len(written)):
            own[place] = value


class _Launch:
    """One launch run again, thread by thread: everything a thread stored depends on everything it loaded.

    The sets change where a thread ends. Threads that do not race never see what others stored, except by the result
    of an atomic, and where that is used they ran one after the other, in this order.
    """

    def __init__(self, pattern: _Pattern, event: Event):
        self.pattern, self.event, self.command = pattern, event, event.command
        self.function = self.command.plan.forward.function
        self.used = used(self.function.body)
        active = pattern.tape.active
        places = zip(self.command.program.leaves, self.command.flat, strict=True)
        self.live = {leaf.name: a for leaf, a in places if isinstance(a, array) and a.allocation in active}
        self.always = NOTHING
        for k in self.command.declared:
            self.always = joined(self.always, pattern.lines_of(self.command.places[k].allocation)[0])
        needs = event.reverse.reverse.needs
        self.linear = not self.command.declared and needs.isdisjoint(self.live)
        self.made = 0
        self.thread: tuple | None = None
        self.loaded: Line = {}
        self.stored: dict[tuple[Allocation, int], bool] = {}  # place -> did the thread only add to it

    def run(self) -> None:
        for stmt in walk(self.function.body):
            if stmt.row is control.CALL and any(isinstance(a.type, Array) for a in stmt.args):
                raise _refused("a func with an adjoint of its own reaches into arrays", self.event)
        form = self.command.plan.form
        if form.backend != "numpy" and not certain(self.function, form.shared):
            self.pattern.certain = False
        try:
            run.run(self.function, form.dims, Copies(self.event).primal(), trace=self.trace)
        except BoundsError as error:
            raise _refused(f"run again, the launch leaves an array ({error.what})", self.event) from None
        self.finish()

    def trace(self, thread: tuple, stmt: ir.Stmt, values: run.LiveValues) -> None:
        self.pattern.left -= 1
        if self.pattern.left < 0:
            raise _refused("the launches are too long to be followed statement by statement", self.event)
        if thread is not self.thread:
            self.finish()
            self.thread, self.loaded, self.stored = thread, dict(self.always), {}
        row = stmt.row
        if not row.touches:
            return
        a = self.live.get(root(stmt.args[0]).name)
        if a is None or not is_float(stmt.args[0].type):
            return
        touched = self.touched(a, stmt, values)
        if row is not memory.STORE and (not row.adds or any(o in self.used for o in stmt.outs)):
            own = self.pattern.lines_of(a.allocation)
            for place in touched:
                join(self.loaded, own[place])
        if row.writes:
            for place in touched:
                key = a.allocation, place
                self.stored[key] = self.stored.get(key, True) and (row.adds or row in memory.ATOMICS)

    def finish(self) -> None:
        """End a thread: what it stored depends on all that it loaded; what it added to, also on what was there."""
        if self.pattern.met is not None and self.loaded and not self.linear:
            self.pattern.met.append(self.loaded)
        for (a, place), added in self.stored.items():
            lines = self.pattern.lines_of(a)
            lines[place] = joined(lines[place], self.loaded) if added and lines[place] else self.loaded
            self.made += len(lines[place])
        if self.made > BLOCKS:
            raise _refused("it is not sparse, or what lies between x and y is not", self.event)

    def touched(self, a: array, stmt: ir.Stmt, values: run.LiveValues) -> list[int]:
        """The numbers that a memory statement touches."""
        seen = stmt.args[0].type
        assert isinstance(seen, Array)
        index = [int(values[i]) for i in stmt.args[1 : 1 + seen.ndim]]
        word, inner = self.pattern.word(a.allocation), getattr(a.dtype, "shape", ())
        shape = (*a.shape, *inner)
        strides = (*a.strides, *[int(np.prod(inner[k + 1 :])) * word for k in range(len(inner))])
        index = [i % n for i, n in zip(index, shape, strict=False)]
        start = a.span.offset + sum(i * s for i, s in zip(index, strides, strict=False))
        count = seen.dtype.size if isinstance(seen.dtype, Composite) else 1
        return list(range(start // word, start // word + count))


def _refused(why: str, event: Event | None) -> GradientError:
    text = "the pattern of this Jacobian cannot be found."
    instead, where = "jacobian(tape, y, x, sparse=True, pattern=...), or sparse=False", event.where if event else None
    why = f"{why[0].upper()}{why[1:]}."
    return GradientError(text, slug="pattern", where=where, why=why, instead=instead)


# ---- sets


def line(members: Iterable[int]) -> Line:
    """A set of numbers."""
    made: Line = {}
    for k in members:
        made[k // BLOCK] = made.get(k // BLOCK, 0) | 1 << k % BLOCK
    return made


def join(into: Line, other: Line) -> None:
    for block, bits in other.items():
        into[block] = into.get(block, 0) | bits


def joined(one: Line, other: Line) -> Line:
    made = dict(one)
    join(made, other)
    return made


def crosses(one: Line, other: Line) -> bool:
    """True if two sets have a number in common."""
    few, many = (one, other) if len(one) < len(other) else (other, one)
    return any(many.get(block, 0) & bits for block, bits in few.items())


def members(line: Line) -> list[int]:
    """The numbers in a set, in order."""
    out = []
    for block in sorted(line):
        bits = line[block]
        while bits:
            low = bits & -bits
            out.append(block * BLOCK + low.bit_length() - 1)
            bits ^= low
    return out


# ---- colouring


def transposed(rows: Sequence[Line], columns: int) -> list[Line]:
    """The transposed pattern: per column, the set of its rows."""
    found: list[Line] = [{} for _ in range(columns)]
    for i, row in enumerate(rows):
        block, bit = i // BLOCK, 1 << i % BLOCK
        for j in members(row):
            found[j][block] = found[j].get(block, 0) | bit
    return found


def colour(lines: Sequence[Line]) -> list[list[int]]:
    """Groups of rows or columns with pairwise disjoint sets; greedy, in order, without empty ones."""
    groups: list[list[int]] = []
    taken: list[Line] = []
    for k, own in enumerate(lines):
        if not own:
            continue
        free = next((g for g, used in enumerate(taken) if not crosses(used, own)), len(groups))
        if free == len(groups):
            groups.append([])
            taken.append({})
        groups[free].append(k)
        join(taken[free], own)
    return groups


def given(pattern: Any, shape: tuple[int, int]) -> list[Line]:
    """A user's pattern, dense or of `scipy.sparse`, as one set per row."""
    known = pattern if hasattr(pattern, "nonzero") and hasattr(pattern, "shape") else np.asarray(pattern)
    if known.shape != shape:
        text = f"the pattern has shape {known.shape}, the Jacobian {shape}."
        raise GradientError(text, slug="pattern", instead="one entry per number of y and per number of x")
    lines: list[Line] = [{} for _ in range(shape[0])]
    for i, j in zip(*(part.tolist() for part in known.nonzero()), strict=True):
        join(lines[i], line([j]))
    return lines


def matrix(entries: dict[tuple[int, int], Any], shape: tuple[int, int], dtype: np.dtype | type) -> Any:
    """A `scipy.sparse.csr_array` of these entries."""
    try:
        sparse = importlib.import_module("scipy.sparse")
    except ImportError:
        text = "a sparse Jacobian is a matrix of SciPy, which is not here."
        raise GradientError(text, slug="pattern", instead="pip install scipy") from None
    places = sorted(entries)
    values = np.array([entries[p] for p in places], dtype)
    rows, columns = ([p[k] for p in places] for k in (0, 1))
    return sparse.csr_array((values, (rows, columns)), shape=shape, dtype=dtype)

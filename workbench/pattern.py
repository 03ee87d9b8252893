"""Sparse Jacobians: which entries can differ from zero, and how few walks give them all.

The pattern is found by running each recorded launch once more in the interpreter, on copies: whatever a thread stores
depends on whatever that thread loads. That holds more entries than are non-zero, never fewer. Columns that share no
row are then found together by one forward walk, rows that share no column by one reverse walk (Curtis, Powell and
Reid, "On the estimation of sparse Jacobian matrices", IMA J. Appl. Math. 13, 1974), coloured greedily.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .array import array
from .diagnose.again import Copies
from .errors import GradientError
from .events import Event
from .forward import passing
from .kernels import ir, run
from .kernels.ir import root, walk
from .kernels.ops.memory import ATOMICS
from .kernels.types import Array, Composite, is_float
from .memory import Allocation, Span
from .tape import Tape

STATEMENTS = 20_000_000  # of all launches, in the interpreter: about half a minute
Bits = dict[Allocation, list[int]]  # per number of the memory: the set of inputs it depends on, one bit each


def find(tape: Tape, y: array, x: array) -> list[int]:
    """Per number of y, the set of numbers of x on which it may depend, as the bits of an int.

    Raises GradientError [pattern] where a launch is too long to run in the interpreter, or has an adjoint of its own
    that reaches into arrays.
    """
    found = _Pattern(tape)
    for k, place in enumerate(words_of(x.span, found.word(x.allocation))):
        found.bits_of(x.allocation)[place] = 1 << k
    passing(tape, found.event)
    return [found.bits_of(y.allocation)[place] for place in words_of(y.span, found.word(y.allocation))]


def words_of(span: Span, word: int) -> list[int]:
    """Where the numbers of a span lie in their memory, in row-major order, counted in numbers."""
    inner = span.itemsize // word
    axes = [range(0, n * s, s) if s else [0] * n for n, s in zip(span.shape, span.strides, strict=True)]
    return [(span.offset + sum(at)) // word + k for at in itertools.product(*axes) for k in range(inner)]


class _Pattern:
    """Passes through the events of a tape, forwards."""

    def __init__(self, tape: Tape):
        self.tape, self.bits, self.left = tape, {}, STATEMENTS

    def word(self, a: Allocation) -> int:
        scalar = self.tape.scalars.get(a)
        if scalar is None or not hasattr(scalar, "itemsize"):
            raise _refused("memory of structs has no numbers in a row", None)
        return scalar.itemsize

    def bits_of(self, a: Allocation) -> list[int]:
        found = self.bits.get(a)
        if found is None:
            found = self.bits[a] = [0] * (a.nbytes // self.word(a))
        return found

    def event(self, event: Event, _: Any) -> None:
        if event.command is None:
            self.host(event)
        elif event.reverse is not None:
            self.launch(event)

    def host(self, event: Event) -> None:
        if event.kind in ("func", "loop", "foreign"):
            raise _refused(f"nothing is known of {event.label!r}", event)
        target = event.arrays[0]
        if target.allocation not in self.tape.active:
            return
        places = words_of(target.span, self.word(target.allocation))
        source = event.arrays[1] if len(event.arrays) == 2 else None
        if source is None or source.allocation not in self.tape.active:
            values = [0] * len(places)
        else:
            own = self.bits_of(source.allocation)
            values = [own[k] for k in words_of(source.span, self.word(source.allocation))]
        bits = self.bits_of(target.allocation)
        for place, value in zip(places, values, strict=True):
            bits[place] = value

    def launch(self, event: Event) -> None:
        command, plan = event.command, event.command.plan
        function = plan.forward.function
        for stmt in walk(function.body):
            if stmt.row.name == "call" and any(isinstance(a.type, Array) for a in stmt.args):
                raise _refused("a func with an adjoint of its own reaches into arrays", event)
        places = {leaf.name: a for leaf, a in zip(command.program.leaves, command.flat, strict=True)}
        live = {n: a for n, a in places.items() if isinstance(a, array) and a.allocation in self.tape.active}
        always = 0
        for k in command.declared:
            always |= self.bits_of(command.places[k].allocation)[0]
        sources: dict[tuple, int] = {}
        stores: dict[tuple, dict[tuple[Allocation, int], bool]] = {}

        def trace(thread: tuple, stmt: ir.Stmt, values: run.Values) -> None:
            self.left -= 1
            if self.left < 0:
                raise _refused("the launches are too long to be followed statement by statement", event)
            row = stmt.row
            if not stmt.args or not isinstance(stmt.args[0].type, Array) or row.name in ("components", "shape"):
                return
            a = live.get(root(stmt.args[0]).name)
            if a is None or not is_float(stmt.args[0].type):
                return
            touched = self.touched(a, stmt, values)
            if row.name == "load" or (row in ATOMICS and row.name not in ("atomic_add", "atomic_sub")):
                own = self.bits_of(a.allocation)
                for place in touched:
                    sources[thread] = sources.get(thread, always) | own[place]
            if row.name != "load":
                added = row in ATOMICS or row.name == "accumulate"
                mine = stores.setdefault(thread, {})
                for place in touched:
                    key = a.allocation, place
                    mine[key] = mine.get(key, True) and added

        run.run(function, plan.dims, Copies(event).primal(), trace=trace)
        self.store(stores, sources, always)

    def store(self, stores: dict, sources: dict[tuple, int], always: int) -> None:
        """What each thread stored depends on all that it loaded; what is added to keeps what it depended on."""
        fresh: dict[tuple[Allocation, int], int] = {}
        for thread, mine in stores.items():
            for key, added in mine.items():
                before = fresh.get(key, self.bits_of(key[0])[key[1]] if added else 0)
                fresh[key] = before | sources.get(thread, always)
        for (a, place), bits in fresh.items():
            self.bits_of(a)[place] = bits

    def touched(self, a: array, stmt: ir.Stmt, values: run.Values) -> list[int]:
        """The numbers that a memory statement touches."""
        seen = stmt.args[0].type
        assert isinstance(seen, Array)
        index = [int(values[i]) for i in stmt.args[1 : 1 + seen.ndim]]
        word, inner = self.word(a.allocation), getattr(a.dtype, "shape", ())
        shape = (*a.shape, *inner)
        strides = (*a.strides, *[int(np.prod(inner[k + 1 :])) * word for k in range(len(inner))])
        index = [i % n for i, n in zip(index, shape, strict=False)]
        start = a._offset + sum(i * s for i, s in zip(index, strides, strict=False))
        count = seen.dtype.size if isinstance(seen.dtype, Composite) else 1
        return list(range(start // word, start // word + count))


def _refused(why: str, event: Event | None) -> GradientError:
    return GradientError(
        "the pattern of this Jacobian cannot be found.", slug="pattern", where=event.where if event else None,
        why=f"{why[0].upper()}{why[1:]}.", instead="jacobian(tape, y, x, sparse=True, pattern=...), or sparse=False",
    )  # fmt: skip


# ---- colouring


def transposed(rows: Sequence[int], columns: int) -> list[int]:
    """Per column, the set of rows in it."""
    found = [0] * columns
    for i, bits in enumerate(rows):
        for j in members(bits):
            found[j] |= 1 << i
    return found


def members(bits: int) -> list[int]:
    """The positions of the ones."""
    out = []
    while bits:
        low = bits & -bits
        out.append(low.bit_length() - 1)
        bits ^= low
    return out


def colour(lines: Sequence[int]) -> list[list[int]]:
    """Groups of lines (columns, or rows) of which no two cross in one place; greedy, in order, without empty lines."""
    groups: list[list[int]] = []
    taken: list[int] = []
    for k, bits in enumerate(lines):
        if not bits:
            continue
        free = next((g for g, used in enumerate(taken) if not used & bits), None)
        if free is None:
            groups.append([k])
            taken.append(bits)
        else:
            groups[free].append(k)
            taken[free] |= bits
    return groups


def given(pattern: Any, shape: tuple[int, int]) -> list[int]:
    """A pattern of the user's, dense or of `scipy.sparse`, as sets."""
    dense = np.asarray(pattern.toarray() if hasattr(pattern, "toarray") else pattern) != 0
    if dense.shape != shape:
        raise GradientError(
            f"the pattern has shape {dense.shape}, the Jacobian {shape}.", slug="pattern",
            instead="one entry per number of y and per number of x",
        )  # fmt: skip
    return [sum(1 << int(j) for j in np.flatnonzero(row)) for row in dense]


def matrix(entries: dict[tuple[int, int], Any], shape: tuple[int, int], dtype: Any) -> Any:
    """A `scipy.sparse.csr_array` of these entries."""
    try:
        sparse = importlib.import_module("scipy.sparse")
    except ImportError:
        raise GradientError(
            "a sparse Jacobian is a matrix of SciPy, which is not here.", slug="pattern", instead="pip install scipy"
        ) from None
    places = sorted(entries)
    values = np.array([entries[p] for p in places], dtype)
    rows, columns = ([p[k] for p in places] for k in (0, 1))
    return sparse.csr_array((values, (rows, columns)), shape=shape, dtype=dtype)

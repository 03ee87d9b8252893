"""The ledger of one gradient cell: signed contributions, each with launch, thread, line and name, that sum to it.

Nothing is kept when a tape records: the walk runs once more, and each adjoint that can touch the cell also runs on
copies in its watched form (`passes.ledger_adjoint`). Invariant: the rows are what has been added since the cell was
last overwritten (in the reverse sense), so their float64 sum is the published number, to a bounded rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.scalar import scalar
from ...arrays.span import Span
from ...arrays.workspace import (
    Shadow,
    Workspace,
    add_into,
    extremal_memory,
    float_parts,
    gradient_dtype,
    same_part,
)
from ...errors import GradientError, Where
from ...kernels.compile import c_compiler
from ...kernels.emit.signature import Variant
from ...kernels.ir import Role, walk
from ...kernels.ops import control
from ...kernels.passes.ledger_adjoint import CONSUMED, COUNT, ENTRIES, Watched, watch
from ...kernels.types import Array, Struct, is_float
from ...launches.adjoint_arguments import AdjointArguments, memory_values
from ...launches.executable import Executable
from ...tables import aligned, html_table
from ...tapes.events import Event
from ...tapes.rerun import Copies
from ...tapes.reverse import ties
from ...tapes.tape import Tape
from ..data.text import clean

HOST = ("copy", "assign", "fill_", "zero_")
JOINED = 256  # contributions of one launch from which those of one line are one row
ROWS = 20_000  # rows from which those of every further launch are joined by line
LISTED, LAST = 200, 20  # rows of a table, of these the last ones
DRAWN = 60  # bars of a picture


@dataclass(frozen=True)
class Row:
    """One signed contribution.

    position: of the event in `tape.events`, -1 for a seed. thread: None where the row is of no single thread.
    name: of the memory it came through, as the user calls it. count: how many contributions the row joins.
    """

    position: int
    kind: str
    heading: str
    thread: tuple[int, ...] | None
    where: Where | None
    name: str
    value: float
    running: float = 0.0
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "position": self.position, "kind": self.kind, "heading": self.heading,
            "thread": None if self.thread is None else list(self.thread), "where": place(self.where),
            "name": self.name, "value": number(self.value), "running": number(self.running), "count": self.count,
        }  # fmt: skip


@dataclass(frozen=True)
class Ledger:
    """Where one gradient cell came from. `rows` are in the order of the reverse pass: later launches first, threads
    in order. `total` is their sum in float64, `published` the number that the reverse pass came to, `rounding` the
    difference.
    """

    array: str
    index: tuple[Any, ...]
    rows: tuple[Row, ...]
    total: float
    published: float | None
    rounding: float

    @property
    def title(self) -> str:
        inside = ", ".join(str(i) for i in self.index)
        return f"d {clean(self.array)}[{inside}]" if self.index else f"d {clean(self.array)}"

    def to_json(self) -> dict[str, Any]:
        """Plain data; NaN and infinities as text."""
        return {
            "array": self.array, "index": list(self.index), "rows": [row.to_json() for row in self.rows],
            "total": number(self.total), "published": None if self.published is None else number(self.published),
            "rounding": number(self.rounding),
        }  # fmt: skip

    def table(self) -> list[tuple[str, ...]]:
        """The rows as texts, below a head: who, thread, through, value, running sum, line."""
        out = [("launch", "thread", "through", "value", "sum", "line")]
        for row in self.listed():
            thread = "" if row.thread is None else ", ".join(map(str, row.thread))
            thread = thread or (f"{row.count} contributions" if row.count > 1 else "")
            out.append((clean(row.heading), thread, clean(row.name), f"{row.value:+.6g}", f"{row.running:.6g}",
                        line_of(row.where)))  # fmt: skip
        out.append(("rounding", "", "", f"{self.rounding:+.3g}", f"{self.published:.6g}", ""))
        return out

    def listed(self) -> list[Row]:
        """The rows of a table: all, or the first and the last with one for those between them."""
        rows = list(self.rows)
        if len(rows) <= LISTED:
            return rows
        first, between, last = rows[: LISTED - LAST], rows[LISTED - LAST : -LAST], rows[-LAST:]
        value = float(np.sum([row.value for row in between]))
        count = sum(row.count for row in between)
        text = f"… {len(between)} rows"
        return [*first, Row(-2, "rows", text, None, None, "", value, between[-1].running, count), *last]

    def __repr__(self) -> str:
        rows = self.listed()
        span = max((abs(row.value) for row in rows if math.isfinite(row.value)), default=0.0)
        bars = ["", *(bar_of(row.value, span) for row in rows), ""]
        lines = [(*cells[:5], bar, cells[5]) for cells, bar in zip(self.table(), bars, strict=True)]
        title = f"{self.title} = {self.published:.8g}, {len(self.rows)} rows"
        return "\n".join([title, *aligned(lines, right=(3, 4))])

    def _repr_html_(self) -> str:
        head, *rows = self.table()
        top = ";vertical-align:top"
        return html_table(f"{self.title} = {self.published:.8g}", head, rows, style=top, head_style=top, heads=False)

    def bars(self, most: int = DRAWN) -> list[tuple[str, float]]:
        """(label, value) for a picture: the largest rows in their order, the others as one."""
        rows = list(self.rows)
        largest = sorted(range(len(rows)), key=lambda k: -abs(rows[k].value))[: most - 1]
        kept = set(largest if len(rows) > most else range(len(rows)))
        out = [(label_of(row), row.value) for k, row in enumerate(rows) if k in kept]
        rest = [row.value for k, row in enumerate(rows) if k not in kept]
        return [*out, (f"{len(rest)} smaller rows", float(sum(rest)))] if rest else out

    def plot(self) -> Any:
        """A waterfall of the contributions, as a matplotlib Figure: each bar starts where the one before it ended."""
        from ..picture.chart import Chart

        bars = [*self.bars(), ("rounding", self.rounding)]
        figure = Chart(figsize=(7.0, 1.2 + 0.24 * (len(bars) + 1)), layout="constrained")
        axes, start = figure.add_subplot(), 0.0
        for k, (_, value) in enumerate(bars):
            value = value if math.isfinite(value) else 0.0
            axes.barh(k, value, left=start, height=0.7, color="#3b6ea8" if value >= 0 else "#c8553d")
            axes.plot([start + value] * 2, [k - 0.35, k + 1.35], color="#6e7781", linewidth=0.8)
            start += value
        axes.barh(len(bars), start, height=0.7, color="#6e7781")
        labels = [f"{text}  {value:+.4g}".replace("$", r"\$") for text, value in bars]
        axes.set_yticks(range(len(bars) + 1), [*labels, f"{self.title} = {self.published:.6g}".replace("$", r"\$")])
        axes.axvline(0.0, color="#24292f", linewidth=0.8)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_xlabel("running sum of the contributions, in the order of the reverse pass", fontsize=8)
        return figure


# ---- small texts


def number(value: float) -> float | str:
    """A float as JSON can hold it."""
    return float(value) if math.isfinite(value) else str(float(value))


def place(where: Where | None) -> dict[str, Any] | None:
    """A place as plain data: file, line, text, and where it was called from."""
    if where is None:
        return None
    return {"file": where.file, "line": where.line, "text": where.text, "function": where.function,
            "caller": place(where.caller)}  # fmt: skip


def line_of(where: Where | None) -> str:
    return "" if where is None else f"{where.line}: {clean(where.text.strip())}"


def label_of(row: Row) -> str:
    thread = "" if row.thread is None else f" thread {', '.join(map(str, row.thread))}"
    joined = f" ({row.count})" if row.count > 1 else ""
    return clean(f"{row.heading}{thread}{joined}" + (f"  {row.name}" if row.name else ""))


def bar_of(value: float, span: float) -> str:
    """Thirteen columns, zero in the middle."""
    if not math.isfinite(value) or not span:
        return f"{value!s:^13}"[:13]
    n = round(6 * abs(value) / span)
    return f"{'█' * n if value < 0 else '':>6}│{'█' * n if value > 0 else '':<6}"


# ---- the cell


@dataclass(frozen=True)
class Cell:
    """One number of a shadow: `offset` is that of its memory; `k` bytes of shadow stand for one byte of memory."""

    allocation: Allocation
    offset: int
    dtype: np.dtype
    k: int
    label: str
    index: tuple[Any, ...]
    of: array

    def inside(self, span: Span) -> bool:
        """May the cell lie in this span. Its hull decides: a launch that turns out not to touch it adds nothing."""
        low, high = span.hull()
        return span.allocation is self.allocation and low <= self.offset < high

    def value(self, data: Any) -> float:
        """What the bytes of a shadow say."""
        at = self.offset * self.k
        found = data[at : at + self.dtype.itemsize].view(self.dtype)
        return float(found[0])

    def read(self, space: Workspace) -> float:
        return self.value(space[self.allocation].data) if self.allocation in space else 0.0


def cell_of(tape: Tape, a: Any, index: Any) -> Cell:
    """The cell of an index: fields by name, the axes of the array, those of the component. Raises GradientError."""
    given = index if isinstance(index, tuple) else tuple(index) if isinstance(index, list) else (index,)
    if isinstance(a, scalar):
        a, given = a.memory, (0, *given)
    if not isinstance(a, array):
        raise GradientError(f"a ledger is of an array, not of {type(a).__name__}", slug="ledger-type",
                            instead="tape.ledger(x, index)")  # fmt: skip
    part, label = a, tape.names.get(id(a)) or a.name or ""
    for name in (n for n in given if isinstance(n, str)):
        part, label = part.field(name), label and f"{label}.{name}"
    label = label or parameter_of(tape, part.span) or a.label
    numbers = [n for n in given if not isinstance(n, str)]
    if isinstance(part.dtype, Struct) or not is_float(part.dtype):
        what = f"one field: {', '.join(n for n, _ in part.dtype.fields)}" if isinstance(part.dtype, Struct) else ""
        raise GradientError(f"{label} is {part.dtype}: its ledger is that of one number.", slug="ledger-type",
                            instead=f"tape.ledger({label}, (index, 'field')), with {what}" if what
                            else "an array of floats")  # fmt: skip
    shape = (*part.shape, *getattr(part.dtype, "shape", ()))
    offset, strides = part.span.offset, part.data.strides
    if len(numbers) != len(shape) or any(not isinstance(n, int | np.integer) for n in numbers):
        raise GradientError(
            f"{label} has shape {shape} with its components; an index of a cell is {len(shape)} whole numbers,"
            f" not {index!r}.",
            slug="ledger-index", instead=f"tape.ledger({label}, {tuple(0 for _ in shape)})",
        )  # fmt: skip
    for axis, (i, n) in enumerate(zip(numbers, shape, strict=True)):
        if not -n <= i < n:
            raise GradientError(f"index {i} is outside axis {axis} of {label}, whose extent is {n}.",
                                slug="ledger-index", instead=f"0 to {n - 1}")  # fmt: skip
    exact = tuple(int(i) % n for i, n in zip(numbers, shape, strict=True))
    offset += sum(i * s for i, s in zip(exact, strides, strict=True))
    return Cell(part.allocation, offset, gradient_dtype(part), part.allocation.grad_scale or 1, label, exact, part)


def parameter_of(tape: Tape, span: Span) -> str:
    """What the first launch that takes exactly this memory calls it; arrays of structs have no other name."""
    for event in tape.events:
        if event.command is not None:
            for leaf, x in zip(event.command.program.leaves, event.command.places, strict=True):
                if isinstance(x, array) and x.span == span:
                    return leaf.name
    return ""


# ---- the walk


class Done(Exception):
    """The moment that was asked for has come: the rest of the walk is of no interest."""


class Collector:
    """The rows of one cell while the walk goes on: `before` and `observe` are the hooks of `Tape.retrace`."""

    def __init__(self, tape: Tape, cell: Cell, until: Event | None, inclusive: bool):
        self.tape, self.cell, self.until, self.inclusive = tape, cell, until, inclusive
        self.position = {event: k for k, event in enumerate(tape.events)}
        self.rows: list[Row] = []
        self.value = 0.0
        self.held = 0.0  # by the cell before the present event
        self.after: dict[Allocation, Shadow] = {}
        self.executables: dict[tuple[Any, Any], tuple[Watched, Executable]] = {}
        self.calls: dict[Any, bool] = {}

    def run(self) -> None:
        seed = self.tape.last_seeds.get(self.cell.allocation)
        if seed is not None and (value := self.cell.value(seed)) != 0:
            self.rows.append(Row(-1, "seed", "seed", None, None, self.cell.label, value))
        self.prepare(len(self.tape.events) - 1)
        try:
            space = self.tape.retrace(self.observe, self.before)
        except Done:
            return
        self.value = self.cell.read(space)

    def finish(self, space: Workspace) -> None:
        self.value = self.cell.read(space)
        raise Done

    def prepare(self, position: int) -> None:
        """Memory is as it was after this event: what its extremal arrays held then is needed when it is reversed."""
        event = self.tape.events[position] if position >= 0 else None
        back = event.reverse if event is not None else None
        self.after = extremal_memory(event) if back is not None and back.extremal else {}

    def before(self, event: Event, space: Workspace) -> None:
        if event is self.until and not self.inclusive:
            self.finish(space)
        self.held = self.cell.read(space)
        if event.kind == "launch":
            if self.concerns(event, space):
                self.launch(event, space)
        elif event.kind in HOST:
            self.host(event, space)

    def observe(self, event: Event, space: Workspace) -> None:
        if event.reverse is not None and event.reverse.extremal:
            self.shared(event, space)
        elif event.kind not in ("launch", *HOST):
            self.opaque(event, space)
        self.prepare(self.position[event] - 1)
        if event is self.until:
            self.finish(space)

    def concerns(self, event: Event, space: Workspace) -> bool:
        """Can reversing this launch touch the cell."""
        back, places = event.reverse, event.command.places
        if back is None or not any(places[k].allocation is self.cell.allocation for k in back.shadows):
            return False
        if not any(places[k].allocation in space for k in back.shadows):
            return False
        program = event.command.program
        if program not in self.calls:  # a func_grad may touch what the kernel does not
            self.calls[program] = any(s.row is control.CALL for s in walk(program.function.body))
        return self.calls[program] or any(self.cell.inside(s) for s in (*event.reads, *event.writes))

    def add(self, event: Event, kind: str, thread: Any, where: Where | None, name: str, value: float,
            count: int = 1) -> None:  # fmt: skip
        if value != 0:  # NaN is a contribution
            position = self.position[event]
            self.rows.append(Row(position, kind, f"#{position} {event.label}", thread, where, name, value, 0.0, count))

    def name(self, a: array, parameter: str = "") -> str:
        """What the user calls the memory that a contribution came through."""
        return self.tape.names.get(id(a)) or a.name or parameter or self.cell.label

    # ---- launches

    def launch(self, event: Event, space: Workspace) -> None:
        watched, executable = self.executable(event)
        log = Log(watched, executable.function.rank)
        copies = Workspace()
        for k in event.reverse.shadows:
            a = event.command.places[k].allocation
            if a not in copies:
                copies[a] = Shadow(a, start=space[a].data if a in space else None)
        if executable.form.backend == "c" and event.command.plan.form.backend == "cuda":
            self.run_on_host(event, space, executable, log)
        else:
            self.run_beside(event, copies, executable, log)
        for a in list(copies):
            copies.drop(a)
        if log.state[CONSUMED]:
            self.rows.clear()
        self.enter(event, watched, log)

    def executable(self, event: Event) -> tuple[Watched, Executable]:
        plan, back = event.command.plan, event.reverse
        found = self.executables.get((plan, back))
        if found is None:
            watched = watch(back.reverse.function)
            form, arrays = plan.form, watched.function.arrays
            contiguous = frozenset(p.name for p in arrays if p.role is Role.LOG or p.belongs_to in form.contiguous)
            variant = Variant(contiguous, not form.shared, index32=form.index32)
            if form.backend == "cuda":
                form = replace(form, backend="c" if c_compiler.available() else "numpy")
                variant = Variant()
            found = watched, Executable(plan.program, watched.function, form, variant)
            self.executables[plan, back] = found
        return found

    def gaps(self, event: Event, watched: Watched) -> list[int]:
        """Per shadow, how far the watched byte is from its first element, and its strides; -1 if it is elsewhere."""
        command, values = event.command, []
        position = {leaf.name: k for k, leaf in enumerate(command.program.leaves)}
        for name in watched.active:
            a = command.places[position[name]]
            if a.allocation is self.cell.allocation:
                values += [(self.cell.offset - a.span.offset) * self.cell.k, *(s * self.cell.k for s in a.strides)]
            else:
                values += [-1, *(0 for _ in a.strides)]
        return values

    def run_beside(self, event: Event, copies: Workspace, executable: Executable, log: Log) -> None:
        """On the memory as it is, which an adjoint only reads, and on copies of shadows and of what it repeats."""
        command, back = event.command, event.reverse
        beside = [(k, copies[command.places[k].allocation]) for k in back.shadows]
        beside += ties(event, self.after) if back.extremal else []
        gaps = self.gaps(event, self.executables[command.plan, back][0])
        arguments = AdjointArguments(command, back.private, beside, (*gaps, *log.arrays))
        executable.run(arguments.values, arguments.views)

    def run_on_host(self, event: Event, space: Workspace, executable: Executable, log: Log) -> None:
        """A launch of a GPU: everything it uses is copied to the host, where one worker keeps threads in order."""
        command, back = event.command, event.reverse
        if back.extremal:
            raise GradientError(
                f"the ledger of a cell that {event.label!r} touches with {', '.join(back.reverse.extremal)} under"
                " atomic_min or atomic_max is made on the CPU only.",
                slug="ledger-gpu", where=event.where, instead="device='cpu' for this launch",
            )  # fmt: skip
        copies = Copies(event, space)
        arrays = [*copies.primal(), *(copies.shadow(command.places[k]) for k in back.shadows)]
        values: list = []
        for p, a in zip(executable.function.params, arrays, strict=False):
            if isinstance(p.type, Array):
                n = p.type.ndim
                values += [a.__array_interface__["data"][0], *a.shape[:n], *a.strides[:n]]
            else:
                values += a.ravel().tolist() if isinstance(a, np.ndarray) else [a.item()]
        gaps = self.gaps(event, self.executables[command.plan, back][0])
        views = [*arrays, *gaps, *log.arrays]
        for a in log.arrays:
            gaps += memory_values(a)
        executable.run(values + gaps, lambda: views)

    def enter(self, event: Event, watched: Watched, log: Log) -> None:
        """The log as rows: one by one, or by line where there are many."""
        command, count = event.command, int(log.state[COUNT])
        position = {leaf.name: k for k, leaf in enumerate(command.program.leaves)}
        names = [self.name(command.places[position[n]], n) for _, n in watched.sites]
        sites, values = log.site[:count], log.value[:count]
        joined = count > JOINED or log.many.any() or len(self.rows) >= ROWS
        if not joined:
            for k in range(count):
                where, _ = watched.sites[sites[k]]
                thread = tuple(int(t) for t in log.thread[k])
                self.add(event, "launch", thread, where, names[sites[k]], float(values[k]))
            return
        for site, (where, _) in enumerate(watched.sites):
            chosen = values[sites == site]
            many = len(chosen) + int(log.many[site])
            total = float(np.cumsum(chosen)[-1]) if len(chosen) else 0.0
            self.add(event, "launch", None, where, names[site], total + float(log.sum[site]), many)

    def shared(self, event: Event, space: Workspace) -> None:
        """atomic_min and atomic_max leave what was there before the launch its share, or nothing."""
        touched = any(self.cell.inside(event.command.flat[k].span) for k in event.reverse.extremal)
        now = self.cell.read(space)
        if touched and now != self.held:
            self.rows.clear()
            self.add(event, "launch", None, event.where, self.cell.label, now)

    def opaque(self, event: Event, space: Workspace) -> None:
        """An event with a walk of its own inside (a checkpointed loop) is one row: what it added, or left."""
        now = self.cell.read(space)
        if any(self.cell.inside(s) for s in event.writes):
            self.rows.clear()
            self.add(event, event.kind, None, event.where, self.cell.label, now)
        elif now != self.held:
            self.add(event, event.kind, None, event.where, self.cell.label, now - self.held)

    # ---- writes of the host

    def host(self, event: Event, space: Workspace) -> None:
        """A copy gives the adjoint of the target to its source; every write of the host uses up what it overwrote."""
        dst, cell = event.arrays[0], self.cell
        followed = len(event.arrays) == 2 and event.arrays[1].allocation in self.tape.active
        if dst.allocation not in space or not any(cell.inside(a.span) for a in event.arrays):
            return
        targets = space
        if followed and event.arrays[1].allocation is dst.allocation:  # what one field gets, another may pass on
            targets = Workspace({dst.allocation: Shadow(dst.allocation, start=space[dst.allocation].data)})
        for path, part in float_parts(dst).items():
            g = targets[dst.allocation].view(part.span, gradient_dtype(part))
            given = g.copy()
            if list(self.hits(part)):
                self.rows.clear()
            if not followed:
                continue
            src = same_part(event.arrays[1], path)
            for at in self.hits(src):
                self.add(event, "copy", None, event.where, self.name(event.arrays[1]), float(given[at]))
            if targets is not space:
                g[...] = 0
                add_into(targets[src.allocation].view(src.span, gradient_dtype(src)), given, src.span)

    def hits(self, a: array) -> Iterator[tuple[int, ...]]:
        """The indices, with the component, under which an array has the cell; several where it overlaps itself."""
        cell, span = self.cell, a.span
        if not cell.inside(span):
            return
        offsets = np.full(span.shape, span.offset, np.int64)
        for axis, (n, stride) in enumerate(zip(span.shape, span.strides, strict=True)):
            steps = np.arange(n, dtype=np.int64) * stride
            offsets += steps.reshape([n if k == axis else 1 for k in range(len(span.shape))])
        gap = cell.offset - offsets
        size = cell.dtype.itemsize // cell.k
        for at in np.argwhere((gap >= 0) & (gap < span.itemsize)):
            index = tuple(int(i) for i in at)
            yield index if span.itemsize == size else (*index, int(gap[index]) // size)


@dataclass
class Log:
    """The arrays that a watched adjoint writes what it added to."""

    watched: Watched
    rank: int
    site: np.ndarray = field(init=False)
    thread: np.ndarray = field(init=False)
    value: np.ndarray = field(init=False)
    state: np.ndarray = field(init=False)
    sum: np.ndarray = field(init=False)
    many: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        sites = len(self.watched.sites)
        self.site, self.thread = np.empty(ENTRIES, np.int32), np.empty((ENTRIES, self.rank), np.int32)
        self.value, self.state = np.empty(ENTRIES, np.float64), np.zeros(2, np.int64)
        self.sum, self.many = np.zeros(sites, np.float64), np.zeros(sites, np.int64)

    @property
    def arrays(self) -> Sequence[np.ndarray]:
        return self.site, self.thread, self.value, self.state, self.sum, self.many


# ---- what is asked for


def ledger(tape: Tape, a: Any, index: Any = (), at: Any = None) -> Ledger:
    """Where the gradient of one number of `a` came from, with the seeds of the last `backward`.

    index   of the element, then of the component of a vector or matrix; a text selects the field of a struct.
    at      None: the derivative by the final contents, as `tape.adjoint(a)`. An event (or its position in
            `tape.events`): by the contents just before it. "start": by what the array held when the tape started,
            which is what `.grad` publishes. For memory that no event wrote all three are the same.
    Raises GradientError: no seed yet, an index that fits no number, a tape with `record_func`, or (a bug of ours)
    rows that do not sum to the cell within rounding.
    """
    if not tape.last_seeds:
        raise GradientError("ledger() before any backward(): there is no seed.", slug="no-seed",
                            instead="tape.backward(loss), then tape.ledger(a, index)")  # fmt: skip
    cell = cell_of(tape, a, index)
    until, inclusive = moment(tape, cell, at)
    found = Collector(tape, cell, until, inclusive)
    with memory.LOCK:
        found.run()
    return summed(found)


def moment(tape: Tape, cell: Cell, at: Any) -> tuple[Event | None, bool]:
    """Where the walk may stop, and whether that event is still reversed."""
    if at is None:
        span = cell.of.span
        writers = [e for e in tape.events if any(s.overlaps(span) is not False for s in e.writes)]
        return (writers[-1], False) if writers else (None, True)
    if isinstance(at, str) and at == "start":
        return None, True
    if isinstance(at, int) and -len(tape.events) <= at < len(tape.events):
        return tape.events[at], True
    if at not in tape.events:
        raise GradientError(f"{at!r} is no event of this tape, which has {len(tape.events)}.", slug="ledger-event",
                            instead="at=tape.events[k], or at='start'")  # fmt: skip
    return at, True


def summed(found: Collector) -> Ledger:
    """Running sums, and what rounding makes of them: more than it can is an error."""
    cell, rows, total, size, count = found.cell, [], 0.0, 0.0, 0
    with np.errstate(all="ignore"):
        for row in found.rows:
            total += row.value
            size += abs(row.value)
            count += row.count
            rows.append(Row(row.position, row.kind, row.heading, row.thread, row.where, row.name, row.value, total,
                            row.count))  # fmt: skip
    same = total == found.value or (math.isnan(total) and math.isnan(found.value))
    rounding = 0.0 if same else found.value - total
    bound = bound_of(cell.dtype, count, size)
    if math.isfinite(size) and not abs(rounding) <= bound:
        raise GradientError(
            f"the contributions to {cell.label}{list(cell.index)} sum to {total!r}, the reverse pass says"
            f" {found.value!r}: more than rounding ({bound:.2g}) lies between them.",
            slug="ledger-sum", why="This is a bug of the workbench; the gradient itself was computed without the"
            " ledger.", instead="tape.adjoint(a), and a report with the kernel",
        )  # fmt: skip
    return Ledger(cell.label, cell.index, tuple(rows), total, found.value, rounding)


def bound_of(dtype: np.dtype, count: int, size: float) -> float:
    """What adding `count` numbers, whose sizes sum to `size`, can lose in any order: twice what one order can."""
    info = np.finfo(dtype)
    return 2.0 * (count + 4) * float(info.eps) * size + (count + 1) * float(info.tiny)

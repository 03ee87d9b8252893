"""The ledger of one gradient cell: signed contributions, each with launch, thread, line and name, that sum to it.

They are collected while the reverse pass is walked once more. Each adjoint that can touch the cell also runs on copies
in its watched form (`passes.ledger_adjoint`), which writes what it adds into a `Log`. A write that uses up the cell's
adjoint clears the rows: what was before is gone. So the rows are what has been added since the cell was last
overwritten (in the reverse sense), and sum to the published number.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...arrays.grouping import grouped
from ...arrays.scalar import scalar
from ...arrays.span import Span
from ...arrays.workspace import Shadow, Workspace, add_into, float_parts, gradient_dtype, same_part
from ...device import on_host
from ...errors import GradientError, Where
from ...kernels.compile import c_compiler
from ...kernels.emit.signature import Variant
from ...kernels.ir import Role, walk
from ...kernels.ops import control
from ...kernels.passes.ledger_adjoint import CONSUMED, COUNT, ENTRIES, Watched, ledger_adjoint
from ...kernels.types import Array, Struct, is_float
from ...launches.adjoint_arguments import AdjointArguments, memory_values
from ...launches.executable import Executable
from ...tapes.events import Event
from ...tapes.rerun import Copies, Enough
from ...tapes.reverse import extremal_memory, ties
from ...tapes.seeds import check_seed
from ...tapes.tape import Tape
from ..data.snapshot import full_shape
from .ledger_table import Contribution, Ledger

CellIndex = int | str | Sequence[int | str]  # of an element, a component, a field by its name
LedgerMoment = Event | int | str | None  # an event, its position, "start", or None for the end


@dataclass(frozen=True)
class Cell:
    """One element of a shadow: `offset` in its memory; `k` bytes of shadow stand for one byte of memory."""

    allocation: Allocation
    offset: int
    dtype: np.dtype
    k: int
    label: str
    index: tuple[Any, ...]
    of: array

    def inside(self, span: Span) -> bool:
        """True if the cell may lie in this span, by its hull: a launch that does not touch it in fact adds nothing."""
        low, high = span.hull()
        return span.allocation is self.allocation and low <= self.offset < high

    def value(self, data: np.ndarray) -> float:
        """The value of the cell in the bytes of a shadow."""
        at = self.offset * self.k
        found = data[at : at + self.dtype.itemsize].view(self.dtype)
        return float(found[0])

    def read(self, space: Workspace) -> float:
        return self.value(space[self.allocation].data) if self.allocation in space else 0.0


def cell_of(tape: Tape, a: array | scalar, index: CellIndex) -> Cell:
    """The cell of an index: fields by name, the axes of the array, those of the component. Raises GradientError."""
    given: tuple[Any, ...] = tuple(index) if isinstance(index, tuple | list) else (index,)
    if isinstance(a, scalar):
        a, given = a.memory, (0, *given)
    if not isinstance(a, array):
        text = f"a ledger is of an array, not of {type(a).__name__}"
        raise GradientError(text, slug="ledger-type", instead="tape.ledger(x, index)")
    part, label = a, tape.names.given(a)
    for name in (n for n in given if isinstance(n, str)):
        part, label = part.field(name), label and f"{label}.{name}"
    pairs = ((leaf.name, x) for event in tape.events for leaf, x in event.arguments if isinstance(x, array))
    label = label or next((name for name, x in pairs if x.span == part.span), "") or a.label
    numbers = [n for n in given if not isinstance(n, str)]
    if isinstance(part.dtype, Struct) or not is_float(part.dtype):
        what = f"one field: {', '.join(n for n, _ in part.dtype.fields)}" if isinstance(part.dtype, Struct) else ""
        text = f"{label} is {part.dtype}: its ledger is that of one number."
        instead = f"tape.ledger({label}, (index, 'field')), with {what}" if what else "an array of floats"
        raise GradientError(text, slug="ledger-type", instead=instead)
    shape = full_shape(part)
    offset, strides = part.span.offset, part.data.strides
    if len(numbers) != len(shape) or any(not isinstance(n, int | np.integer) for n in numbers):
        text = f"{label} has shape {shape} with its components; an index of a cell is {len(shape)} whole numbers,"
        instead = f"tape.ledger({label}, {tuple(0 for _ in shape)})"
        raise GradientError(f"{text} not {index!r}.", slug="ledger-index", instead=instead)
    for axis, (i, n) in enumerate(zip(numbers, shape, strict=True)):
        if not -n <= i < n:
            text = f"index {i} is outside axis {axis} of {label}, whose extent is {n}."
            raise GradientError(text, slug="ledger-index", instead=f"an index from 0 to {n - 1}")
    exact = tuple(int(i) % n for i, n in zip(numbers, shape, strict=True))
    offset += sum(i * s for i, s in zip(exact, strides, strict=True))
    return Cell(part.allocation, offset, gradient_dtype(part), part.allocation.grad_scale or 1, label, exact, part)


JOINED = 256  # contributions of one launch from which those of one line are one row
Thread = tuple[int, ...] | None
ROWS = 20_000  # rows from which those of every further launch are joined by line


class Collector:
    """The rows of one cell while the walk goes on: `before` and `observe` are the hooks of `Tape.retrace`."""

    def __init__(self, tape: Tape, cell: Cell):
        self.tape, self.cell = tape, cell
        self.position: dict[Event, int] = {}
        self.rows: list[Contribution] = []
        self.value = 0.0
        self.held = 0.0  # by the cell before the present event
        self.after: dict[Allocation, Shadow] = {}
        self.executables: dict[tuple[Any, Any], tuple[Watched, Executable]] = {}
        self.calls: dict[Any, bool] = {}

    def begin(self) -> None:
        seed = self.tape.last_seeds.get(self.cell.allocation)
        if seed is not None and (value := self.cell.value(seed)) != 0:
            self.rows.append(Contribution(-1, "seed", "seed", None, None, self.cell.label, value))
            self.value = value
        self.prepare(len(self.tape.events) - 1)

    def prepare(self, position: int) -> None:
        """Before an event is reversed: copy its atomic_min and atomic_max targets, which its adjoint compares with."""
        self.after = {}
        if position >= 0:
            event = self.tape.events[position]
            if event.reverse is not None and event.reverse.extremal:
                self.after = extremal_memory(event)

    def before(self, event: Event, space: Workspace) -> None:
        self.held = self.cell.read(space)
        if event.kind.step == "launch":
            if self.concerns(event, space):
                self.launch(event, space)
        elif event.kind.step == "write":
            self.host(event, space)

    def observe(self, event: Event, space: Workspace) -> None:
        if event.reverse is not None and event.reverse.extremal:
            self.shared(event, space)
        elif event.kind.step not in ("launch", "write"):
            self.opaque(event, space)
        self.value = self.cell.read(space)

    def concerns(self, event: Event, space: Workspace) -> bool:
        """True if reversing this launch may read or change the adjoint of the cell."""
        back, places = event.reverse, event.command.places
        if back is None or not any(places[k].allocation is self.cell.allocation for k in back.shadows):
            return False
        if not any(places[k].allocation in space for k in back.shadows):
            return False
        program = event.command.program
        if program not in self.calls:  # a func_grad may touch what the kernel does not
            self.calls[program] = any(s.row is control.CALL for s in walk(program.function.body))
        return self.calls[program] or any(self.cell.inside(s) for s in (*event.reads, *event.writes))

    def add(
        self, event: Event, kind: str, thread: Thread, where: Where | None, name: str, value: float, count: int = 1
    ) -> None:
        if value != 0:  # NaN is a contribution
            position = self.position[event]
            heading = f"#{position} {event.label}"
            self.rows.append(Contribution(position, kind, heading, thread, where, name, value, count=count))

    def name(self, a: array, parameter: str = "") -> str:
        """The user's name for the memory that a contribution came through."""
        return self.tape.names.given(a) or parameter or self.cell.label

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
            watched = ledger_adjoint(back.reverse.function)
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
        """Arguments of the watched adjoint, per shadow: the cell's byte offset from the first element, and the strides.

        -1 for other memory.
        """
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
        """Run the watched adjoint on the launch's memory, which it only reads, and on copies of what it writes."""
        command, back = event.command, event.reverse
        beside = [(k, copies[command.places[k].allocation]) for k in back.shadows]
        beside += ties(event, self.after) if back.extremal else []
        gaps = self.gaps(event, self.executables[command.plan, back][0])
        arguments = AdjointArguments(command, back.private, beside, (*gaps, *log.arrays))
        executable.run(arguments.values, arguments.views)

    def run_on_host(self, event: Event, space: Workspace, executable: Executable, log: Log) -> None:
        """Run the watched adjoint of a GPU launch on host copies, with one worker, so that threads run in order."""
        command, back = event.command, event.reverse
        if back.extremal:
            text = (
                f"the ledger of a cell that {event.label!r} touches with {', '.join(back.reverse.extremal)} under"
                " atomic_min or atomic_max is made on the CPU only."
            )
            raise GradientError(text, slug="ledger-gpu", where=event.where, instead="device='cpu' for this launch")
        copies = Copies(event, space)
        arrays = [*copies.primal(), *copies.beside()]
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
        """Turn the log into rows: one per contribution, or one per source line if there are more than `JOINED`."""
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
        """After the reverse of atomic_min or atomic_max on the cell: one row with what is left of its adjoint."""
        touched = any(self.cell.inside(event.command.flat[k].span) for k in event.reverse.extremal)
        now = self.cell.read(space)
        if touched and now != self.held:
            self.rows.clear()
            self.add(event, "launch", None, event.where, self.cell.label, now)

    def opaque(self, event: Event, space: Workspace) -> None:
        """One row for an event that is not looked into (a checkpointed loop): what it added, or left where it wrote."""
        now = self.cell.read(space)
        if any(self.cell.inside(s) for s in event.writes):
            self.rows.clear()
            self.add(event, event.kind.name, None, event.where, self.cell.label, now)
        elif now != self.held:
            self.add(event, event.kind.name, None, event.where, self.cell.label, now - self.held)

    # ---- writes of the host

    def host(self, event: Event, space: Workspace) -> None:
        """Rows of a copy or a fill: a source gets the adjoint of its target; that of overwritten memory is cleared."""
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
        """The indices, with the component, at which an array contains the cell; several where it overlaps itself."""
        cell, span = self.cell, a.span
        if not cell.inside(span):
            return
        size = cell.dtype.itemsize // cell.k
        for index, gap in sorted(elements_at(span, cell.offset)):
            yield index if span.itemsize == size else (*index, gap // size)


def elements_at(span: Span, offset: int) -> list[tuple[tuple[int, ...], int]]:
    """The elements of a span that contain this byte of its allocation: their indices, and the place in the element.

    From the largest stride down, an index is possible where the smaller ones can make up for the rest.
    """
    found = [((0,) * len(span.shape), offset - span.offset)]
    order = sorted(range(len(span.shape)), key=lambda axis: -abs(span.strides[axis]))
    for place, axis in enumerate(order):
        n, stride = span.shape[axis], span.strides[axis]
        reach = [(span.shape[k] - 1) * span.strides[k] for k in order[place + 1 :]]
        low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + span.itemsize - 1
        further = []
        for index, left in found:
            if stride == 0:
                first, last = (0, n - 1) if low <= left <= high else (0, -1)
            else:
                ends = (left - high, left - low) if stride > 0 else (low - left, high - left)
                first, last = max(-(-ends[0] // abs(stride)), 0), min(ends[1] // abs(stride), n - 1)
            for i in range(first, last + 1):
                further.append(((*index[:axis], i, *index[axis + 1 :]), left - i * stride))
        found = further
    return [(index, left) for index, left in found if 0 <= left < span.itemsize]


class CollectorGroup:
    """The collectors of several cells in one walk: each is called only for events that touch its memory."""

    def __init__(self, tape: Tape, cells: Sequence[Cell]):
        self.tape = tape
        self.position = {event: k for k, event in enumerate(tape.events)}
        self.collectors = [Collector(tape, cell) for cell in cells]
        self.of: dict[Allocation, list[Collector]] = {}
        for one in self.collectors:
            first = self.collectors[0]  # they share what is made once for a walk
            one.executables, one.calls, one.position = first.executables, first.calls, self.position
            self.of.setdefault(one.cell.allocation, []).append(one)

    def run(self, last: int, at: Callable[[int], None] = lambda position: None) -> None:
        """Reverse the events from `last` on. `at(position)` is called with the state before the event there."""

        def before(event: Event, space: Workspace) -> None:
            if self.position[event] < last:
                raise Enough
            for one in self.concerned(event):
                one.before(event, space)

        def observe(event: Event, space: Workspace) -> None:
            position = self.position[event]
            for one in self.concerned(event):
                one.observe(event, space)
            at(position)
            for one in self.concerned(self.tape.events[position - 1]) if position else ():
                one.prepare(position - 1)

        for one in self.collectors:
            one.begin()
        with contextlib.suppress(Enough):
            self.tape.retrace(observe, before)

    def concerned(self, event: Event) -> list[Collector]:
        """The collectors of the memory that an event touches."""
        touched = {span.allocation for span in (*event.reads, *event.writes)}
        if event.command is not None:
            touched.update(x.allocation for x in event.command.places if isinstance(x, array))
        return [one for a in touched for one in self.of.get(a, ())]


class Log:
    """The arrays into which a watched adjoint writes its contributions: site, thread, value."""

    def __init__(self, watched: Watched, rank: int):
        sites = len(watched.sites)
        self.site, self.thread = np.empty(ENTRIES, np.int32), np.empty((ENTRIES, rank), np.int32)
        self.value, self.state = np.empty(ENTRIES, np.float64), np.zeros(2, np.int64)
        self.sum, self.many = np.zeros(sites, np.float64), np.zeros(sites, np.int64)

    @property
    def arrays(self) -> Sequence[np.ndarray]:
        return self.site, self.thread, self.value, self.state, self.sum, self.many


# ---- ledgers


def ledger(tape: Tape, a: array | scalar, index: CellIndex = (), at: LedgerMoment = None) -> Ledger:
    """The contributions to one number of the gradient of `a`, with the seeds of the last `backward`.

    index   of the element, then of the component of a vector or matrix; a text selects the field of a struct.
    at      None: the derivative by the final contents, as `tape.adjoint(a)`. An event (or its position in
            `tape.events`): by the contents just before it. "start": by what the array held when the tape started,
            which is what `.grad` publishes. For memory that no event wrote all three are the same, and a last row
            says what earlier backward passes had left in `.grad`.
    Raises GradientError: no seed yet, an index that fits no number, a tape with `record_func`, or (a bug of ours)
    rows that do not sum to the cell within rounding.
    """
    if not tape.last_seeds:
        text = "ledger() before any backward(): there is no seed."
        raise GradientError(text, slug="no-seed", instead="tape.backward(loss), then tape.ledger(a, index)")
    cell = cell_of(tape, a, index)
    check_seed(tape, cell.of)
    tape.refuse_inactive(cell.of)
    group = CollectorGroup(tape, [cell])
    with memory.LOCK:
        group.run(moment(tape, cell, at))
        made = summed(group.collectors[0])
        return with_earlier(tape, cell, made) if at in (None, "start") else made


def ledgers(
    tape: Tape, wanted: Sequence[tuple[array, CellIndex, Collection[int]]]
) -> list[dict[int, Ledger | GradientError]]:
    """The ledgers of several (array, index, moments), all in one walk; a moment is the position of an event, as `at`.

    Per cell its ledgers by moment, or the error that `ledger` raises for it. A moment that is no event is left out.
    """
    group = CollectorGroup(tape, [cell_of(tape, a, index) for a, index, _ in wanted])
    stops = grouped((n, k) for k, (_, _, moments) in enumerate(wanted) for n in moments)
    found: list[dict[int, Ledger | GradientError]] = [{} for _ in wanted]

    def at(position: int) -> None:
        for k in stops.get(position, ()):
            try:
                tape.refuse_inactive(group.collectors[k].cell.of)
                found[k][position] = summed(group.collectors[k])
            except GradientError as error:
                found[k][position] = error

    with memory.LOCK:
        group.run(min(stops, default=0), at)
    return found


def moment(tape: Tape, cell: Cell, at: LedgerMoment) -> int:
    """The position of the first event that is still reversed. Raises GradientError."""
    if at is None:
        writer = tape.log.last_writer(cell.of.span)
        return 0 if writer is None else tape.events.index(writer) + 1
    if isinstance(at, str) and at == "start":
        return 0
    if isinstance(at, int) and -len(tape.events) <= at < len(tape.events):
        return at % len(tape.events)
    if not isinstance(at, Event) or at not in tape.events:
        text = f"{at!r} is no event of this tape, which has {len(tape.events)}."
        raise GradientError(text, slug="ledger-event", instead="at=tape.events[k], or at='start'")
    return tape.events.index(at)


def summed(found: Collector) -> Ledger:
    """The ledger with running sums. Raises GradientError if rounding cannot explain the sum's error."""
    cell, rows, total, size, count = found.cell, [], 0.0, 0.0, 0
    with np.errstate(all="ignore"):
        for row in found.rows:
            total += row.value
            size += abs(row.value)
            count += row.count
            rows.append(replace(row, running=total))
    same = total == found.value or (math.isnan(total) and math.isnan(found.value))
    rounding = 0.0 if same else found.value - total
    bound = bound_of(cell.dtype, count, size)
    if math.isfinite(size) and not abs(rounding) <= bound:
        text = (
            f"the contributions to {cell.label}{list(cell.index)} sum to {total!r}, the reverse pass says"
            f" {found.value!r}: more than rounding ({bound:.2g}) lies between them."
        )
        why = "This is a bug of the workbench; the gradient itself was computed without the ledger."
        raise GradientError(text, slug="ledger-sum", why=why, instead="tape.adjoint(a), and a report with the kernel")
    return Ledger(cell.label, cell.index, tuple(rows), total, found.value, rounding)


def with_earlier(tape: Tape, cell: Cell, made: Ledger) -> Ledger:
    """The ledger with a row for what earlier backward passes left in a leaf's gradient: it then sums to `.grad`."""
    if not tape.earlier.is_piled(cell.allocation) or cell.allocation.grad is None or made.published is None:
        return made
    now = cell.value(on_host(cell.allocation.grad.bytes))
    earlier = now - made.published
    if abs(earlier) <= bound_of(cell.dtype, 2, abs(now) + abs(made.published)):
        return made
    total = made.total + earlier
    row = Contribution(-1, "earlier", "from earlier backward", None, None, cell.label, earlier, total)
    return replace(made, rows=(*made.rows, row), total=total, published=now, rounding=now - total)


def bound_of(dtype: np.dtype, count: int, size: float) -> float:
    """An error bound for adding `count` numbers in any order, twice that of one order; `size`: the sum of sizes."""
    info = np.finfo(dtype)
    return 2.0 * (count + 4) * float(info.eps) * size + (count + 1) * float(info.tiny)

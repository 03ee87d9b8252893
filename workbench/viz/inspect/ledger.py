"""The ledger of one gradient cell: signed contributions, each with launch, thread, line and name, that sum to it.

The walk runs once more, and each adjoint that can touch the cell also runs on copies (`collector`). The rows are what
has been added since the cell was last overwritten (in the reverse sense): they sum to the published number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from ...arrays import allocation as memory
from ...arrays.array import array
from ...arrays.grouping import grouped
from ...arrays.scalar import scalar
from ...device import on_host
from ...errors import GradientError
from ...tapes.events import Event
from ...tapes.seeds import check_seed
from ...tapes.tape import Tape
from .collector import Cell, CellIndex, Collector, CollectorGroup, cell_of
from .ledger_table import Contribution, Ledger

LedgerMoment = Event | int | str | None  # an event, its position, "start", or None for the end


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

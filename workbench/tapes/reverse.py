"""The reverse walk: from the last event to the first, each one's adjoint is added up in a private workspace.

The walk is a function from (events, seeds) to shadows, one per allocation. It puts kept bytes back as it passes, so
that each adjoint meets the memory that its launch saw, and the final contents at the end, whatever happens in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any

import numpy as np

from ..arrays import capture_log, ports
from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.gradient_views import sync_views
from ..arrays.span import Span
from ..arrays.workspace import (
    SUMMED,
    Shadow,
    Workspace,
    add_into,
    float_parts,
    gradient_dtype,
    is_float_memory,
    same_part,
    shadow_view,
)
from ..device import settle
from ..errors import GradientError
from ..launches.adjoint_arguments import AdjointArguments
from .conventions import collect
from .events import Event
from .recording import Recording

Observer = Callable[[Event, Workspace], None]
Step = Callable[[Recording, Event, Workspace, dict], None]


def reverse(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
    """Reverse one event in a workspace. `after`: the contents of its extremal arrays behind it."""
    STEPS[event.kind.step](tape, event, space, after)


def walk(
    tape: Recording,
    space: Workspace,
    observe: Observer | None = None,
    before: Observer | None = None,
    drop: bool = False,
    step: Step = reverse,
    rewinds: bool = True,
    only: Container[Event] | None = None,
) -> tuple[Workspace, dict]:
    """Reverse every event on an active path. Returns the workspace, and the adjoints {span: copy} of `retain_grad`.

    `before(event, space)` is called before, `observe(event, space)` after every step. `drop` is for a walk that is
    published: shadows of which no gradient was asked are freed behind the first event that touched their memory, so
    that the same few buffers serve a whole time loop, and what was written and no adjoint reached has zeros. `step` and
    `rewinds` are for passes that are wrong on purpose; `only`: other events are skipped.
    Memory is as it was when this returns.
    """
    space.dropping = drop
    if rewinds:
        verify(tape)
    tape.log.tally()
    undone: dict[Span, Any] = {}
    retained: dict[Span, Any] = {}
    try:
        for event in reversed(tape.events):
            after = extremal_memory(event) if event.op is None or event.op.rules is None else {}
            if event.loop is not None:  # it comes back to where it began by itself
                remember(event.writes, undone)
            elif rewinds:
                rewind(event, undone)
            _retain(event, space, retained)
            if before is not None:
                before(event, space)
            if only is None or event in only:
                step(tape, event, space, after)
            if observe is not None:
                observe(event, space)
            for a in tape.log.begins.get(event, ()) if drop else ():
                if a in space and _is_last(tape, event, a):
                    space.drop(a)
    finally:
        put_back(undone)
    if drop:
        unreached = [a for a in tape.log.written if a.asked and a in tape.active and a not in space]
        space.unreached = frozenset([space[a].allocation.id for a in unreached])  # older gradients are replaced
    collect(tape)
    return space, retained


def verify(tape: Recording) -> None:
    """Raise GradientError if a needed value was overwritten, a launch broke off, or the types of memory conflict.

    Raises BoundsError for a launch on a GPU that has used an index outside its array.
    """
    settle()
    tape.log.refuse_bits()
    tape.needed.verify()


def rewind(event: Event, undone: dict[Span, Any]) -> None:
    """Restore the bytes that an event overwrote; `put_back(undone)` undoes that in turn."""
    for kept in reversed(event.kept):
        remember((kept.span,), undone)
        kept.span.copy_in(kept.data)


def remember(spans: Iterable[Span], undone: dict[Span, Any]) -> None:
    """Snapshot these spans into the undo log, each once: the first snapshot is the one that is restored last."""
    for span in spans:
        if span not in undone:
            undone[span] = span.copy_out()


def put_back(undone: dict[Span, Any]) -> None:
    """Restore memory from the undo log, which is empty afterwards."""
    while undone:
        span, data = undone.popitem()
        span.copy_in(data)


def _is_last(tape: Recording, event: Event, a: Allocation) -> bool:
    """True if no earlier event touched the memory and no gradient was asked of it: its shadow can be freed."""
    wanted = a.asked or a in tape.border.met or (a.exposed and ports.gradient_takers)
    return tape.log.first.get(a) is event and not wanted


def _dying(tape: Recording, event: Event, pull: Any, space: Workspace) -> bool:
    """True if the rest of an adjoint behind `pull` only clears shadows that are freed right after."""
    if not space.dropping or pull.cleared is None:
        return False
    return all(_is_last(tape, event, event.command.flat[k].allocation) for k in pull.cleared)


def _retain(event: Event, space: Workspace, retained: dict) -> None:
    """Copy the adjoints that retain_grad asks for: as they stand before the last write to their array is reversed."""
    for span in event.writes:
        a = span.allocation
        if a.retained.spans and a in space:
            for wanted in a.retained:
                if wanted not in retained and wanted.overlaps(span) is not False:
                    view = space[a].view(wanted, a.gradient_span(wanted).words().dtype)
                    retained[wanted] = capture_log.copy(view)


def _launch(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
    command, back = event.command, event.reverse
    plan, flat, places = command.plan, command.flat, command.places
    if tape.refuses_late and (back is None or command.declared or len(back.shadows) != len(plan.floats)):
        for k in unfollowed(event):
            if flat[k].allocation.required:
                raise late(tape.names.called_by(event, k), event)
    memories = [] if back is None else [places[k].allocation for k in back.shadows]
    if back is None or space.keys().isdisjoint(memories):
        return
    if back.reverse.ordered and plan.form.backend == "cuda" and math.prod(plan.form.dims) > 1:
        text = f"Kernel {event.label!r} uses what an atomic returned, which on a GPU depends on the order of threads."
        raise GradientError(text, slug="atomic-order", where=event.where, instead="device='cpu' for this launch")
    if back.races is not None:
        check_races(event)
        back.races.fix(command)
    fresh = space.fresh([places[k] for k in back.pull.targets]) if back.pull is not None and back.pull.covers else []
    shadows = list(zip(back.shadows, map(space.__getitem__, memories), strict=True))
    helpers = ties(event, after) if back.extremal else []
    arguments = AdjointArguments(command, back.private, shadows + helpers)
    if command.declared and back.executable.form.backend == "c" and back.pull is None:
        _in_blocks(back, arguments)
    else:
        pull = back.pull
        stored = tuple([k for k in pull.targets if any(places[k] is a for a in fresh)]) if pull and fresh else ()
        rest = pull is None or not _dying(tape, event, pull, space)
        back.run(arguments, stored, rest)
    for k in back.extremal:
        consume_extreme(flat[k], space, dict(helpers[1::2])[k], after)


def _in_blocks(back: Any, arguments: AdjointArguments) -> None:
    """Sum the threads' contributions to a declared scalar block by block, for accuracy."""
    command, packed, at = arguments.command, arguments.values, arguments.first
    dims = command.plan.form.dims
    step = max(1, SUMMED // max(math.prod(dims[1:]), 1))
    sums = []
    for k, shadow in arguments.beside:
        if k in command.declared:
            target = shadow_view(command.places[k], shadow)
            sums.append((at, target, np.zeros_like(target), np.zeros(target.shape)))
        at += 1 + 2 * command.places[k].ndim
    for place, _, part, _ in sums:
        packed[place] = part.__array_interface__["data"][0]
    for row in range(0, dims[0], step):
        back.executable.run(packed, arguments.views, (row, min(row + step, dims[0])))
        for _, _, part, total in sums:
            total += part
            part[...] = 0
    for _, target, _, total in sums:
        target += total.astype(target.dtype)


def check_races(event: Event) -> None:
    """Check a launch for races, once, unless ruled out, in the memory that it saw. Raises GradientError [race]."""
    if event.reverse is not None and event.reverse.races is not None and not event.checked:
        event.reverse.races.check(event.command)
        event.checked = True


def extremal_memory(event: Event) -> dict[Allocation, Shadow]:
    """A copy of what the arrays under atomic_min and atomic_max, and results of a custom op, hold after an event."""
    if event.op is not None:
        return {a.allocation: Shadow(a.allocation, capture_log.copy(a.allocation.bytes)) for a in event.op.outs}
    if event.reverse is None or not event.reverse.extremal:
        return {}
    found = {}
    for k in event.reverse.extremal:
        a = event.command.flat[k].allocation
        found[a] = Shadow(a, capture_log.copy(a.bytes))
    return found


def ties(event: Event, after: dict) -> list:
    """Two per extremal array: its contents after the launch, and the number of ties that share each cell's adjoint."""
    command, back = event.command, event.reverse
    flat, helpers = command.flat, []
    for k in back.extremal:
        ties = Shadow(flat[k].allocation)
        helpers += [(k, after[flat[k].allocation]), (k, ties)]
    arguments = AdjointArguments(command, back.private, helpers)
    back.count.run(arguments.values, arguments.views)
    for k, ties in helpers[1::2]:
        a = flat[k]
        count = shadow_view(a, ties)
        left = shadow_view(a, after[a.allocation])
        capture_log.do(partial(_count_tie, count, a.data, left), capture_log.gpu_of(count))
    return helpers


def consume_extreme(a: array, space: Workspace, ties: Shadow, after: dict) -> None:
    """Leave in the adjoint of an extremal array the share of its contents before the launch; clear the rest."""
    g = shadow_view(a, space[a.allocation])
    before = shadow_view(a, after[a.allocation])
    capture_log.do(partial(_share, g, a.data, before, shadow_view(a, ties)), capture_log.gpu_of(g))


def unfollowed(event: Event) -> list[int]:
    """Positions of the floats of a launch that were on no active path when it was recorded."""
    plan, known = event.command.plan, () if event.reverse is None else event.reverse.shadows
    return [k for k in plan.float_reads | plan.float_writes if k not in known] if plan.float_writes else []


def late(name: str, event: Event) -> GradientError:
    """The GradientError [late-grad] for an array that an event met before it was on an active path."""
    text = f"{name!r} was not yet on an active path when {event.label!r} was recorded."
    why = "What its derivative needs was not kept."
    instead = "x.requires_grad = True   before the tape records"
    return GradientError(text, slug="late-grad", where=event.where, why=why, instead=instead)


def _host(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
    """Reverse a host write: a copy's source gets the adjoint of the target; every write clears what it overwrote."""
    dst = event.arrays[0]
    if not event.followed and event.arrays[1].allocation.required:
        raise late(tape.names.called_by(event, 1), event)
    if dst.allocation not in space:
        return
    if event.sources:
        tape.host.refuse(event, space)
    for path, part in float_parts(dst).items():
        g = space[dst.allocation].view(part.span, gradient_dtype(part))
        got = capture_log.copy(g) if len(event.arrays) == 2 and event.arrays[1].allocation in tape.active else None
        capture_log.clear(g)
        if got is not None:
            src = same_part(event.arrays[1], path)
            add_into(space[src.allocation].view(src.span, gradient_dtype(src)), got, src.span)


def _func(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
    """Call the user's function with the live adjoint as `.grad`, also of arrays without `requires_grad`."""
    given = [a for a in event.arrays if is_float_memory(a)]
    adjoints = {a.allocation: space[a.allocation].data for a in given}
    capture_log.do(partial(_call_back, event, given, adjoints))


def _call_back(event: Event, given: list[array], adjoints: dict[Allocation, Any]) -> None:
    sync_views()
    before = [a.gradient().remembered() for a in adjoints]  # what the callback writes is no seed of the user's
    marks = [a.retained for a in adjoints]
    for a in adjoints:
        a.retained = a.retained.copy()
    for a in given:
        a.allocation.retained.add(a.span)
    for a, data in adjoints.items():
        a.gradient().bytes[...] = data
        a.grad_notes.clear()
    try:
        assert event.callback is not None
        event.callback()
        sync_views()
        for a, data in adjoints.items():
            data[...] = a.gradient().bytes
    finally:
        for a, state in zip(adjoints, before, strict=True):
            a.gradient().put_back(state)
        for a, retained in zip(adjoints, marks, strict=True):
            a.retained = retained


def _gradient(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
    if meets(event.arrays, space):
        raise gradient_met(tape, event)


def gradient_met(tape: Recording, event: Event) -> GradientError:
    """The GradientError [gradient-value] for a tape that reads a gradient without having recorded how it was made."""
    name = tape.names.called(event.arrays[0])
    text = f"{name} is a gradient, {event.reason}, and this tape has not recorded how it came about."
    why = "It changes with what it is the gradient by; taken for a constant, that part would be missing in silence."
    around = 'with wb.Tape() as outer:   around `with wb.Tape(keep="all") as inner: ...`, its backward() and what'
    instead = f"{around} reads the gradient; or wb.detach({name}), a constant"
    return GradientError(text, slug="gradient-value", where=event.where, why=why, instead=instead)


def _nothing(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
    """Pass over a foreign write, whose memory has been restored, or a cut, which makes a leaf."""
    if event.noted:
        tape.host.refuse(event, space)


def opaque_meets(event: Event, space: Workspace) -> bool:
    """True if a nonzero adjoint arrives at memory that an opaque event may have written."""
    return meets([a for a in event.arrays if a.span in event.writes], space)


def meets(arrays: Iterable[array], space: Workspace) -> bool:
    """True if any of these arrays has an adjoint (or a tangent) other than zero."""
    return any(
        np.any(space[a.allocation].view(part.span, gradient_dtype(part)))
        for a in arrays
        if a.allocation in space
        for part in float_parts(a).values()
    )


def _opaque(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
    if opaque_meets(event, space):
        text = f"the gradient comes to {event.label!r}, whose adjoint is not known: {event.reason}"
        why = "What it computed depends on its arguments in a way that cannot be followed."
        raise GradientError(text, slug="opaque", where=event.where, why=why, instead="seeds that do not depend on it")


def past_opaque(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
    """As `reverse`, but an opaque event is passed: the adjoint of memory it may have read becomes NaN."""
    if not event.kind.opaque:
        reverse(tape, event, space, after)
    elif opaque_meets(event, space):
        for part in (part for a in event.arrays for part in float_parts(a).values()):
            space[part.allocation].view(part.span, gradient_dtype(part))[...] = np.nan


def _count_tie(ties: Any, now: object, after: object) -> None:
    ties[...] += now == after


def _share(g: Any, now: Any, after: Any, ties: Any) -> None:
    kept = now == after
    share = g / ties.clip(1)
    g[...] = np.where(kept, share, 0) if isinstance(g, np.ndarray) else share * kept


STEPS: dict[str, Step] = {
    "launch": _launch,
    "write": _host,
    "func": _func,
    "op": lambda tape, event, space, after: event.op.pull_back(tape, event, space, after),
    "loop": lambda tape, event, space, after: event.loop.reverse(space),
    "backward": lambda tape, event, space, after: event.inner.reverse(event, space),
    "opaque": _opaque,
    "gradient": _gradient,
    "none": _nothing,
}

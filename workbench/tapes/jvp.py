"""Forward mode over a tape: `jvp`, the derivative in one direction, by the same exact walk as `backward`.

The tape cannot run a program again, but it can put back, event by event, the bytes that adjoints read; a tangent reads
the same ones (`passes.tangent`). So the walk first rewinds to where the tape started, and then goes forward: at every
event it carries the tangents on, and puts back what the event had left. What the reverse walk refuses is refused here,
and so is `record_func`: nothing says what the user's function does to a tangent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from ..arrays import allocation as memory
from ..arrays.allocation import Allocation
from ..arrays.array import array, on_device
from ..arrays.span import Span
from ..arrays.workspace import Workspace, add_into, add_seed, float_parts, gradient_dtype, same_part, shadow_view
from ..device import on_host
from ..errors import GradientError
from ..kernels.passes.derivative import Derived
from ..kernels.passes.tangent import tangent
from ..kernels.types import Struct, is_float
from ..launches.adjoint_arguments import AdjointArguments
from ..launches.executable import executable_for
from ..launches.plan import Plan
from . import conventions, reverse
from .events import Event
from .reverse import check_races, consume_extreme, extremal_memory, gradient_met, meets, put_back, rewind, ties, verify
from .seeds import as_read, check_pairs, check_seed, check_start, check_tape
from .tape import Tape


class Tangents(Mapping):
    """Mapping returned by `jvp`: the tangent of every array of a tape, of its contents at the end.

    `t[a]` is a new NumPy array of shape (*a.shape, *components), for any array or view on memory of the tape: zeros
    where nothing depends on the direction. Of an array of structs ask for a field.
    Iterating gives the arrays of the tape that have a tangent.
    """

    def __init__(self, tape: Tape, space: Workspace):
        self._tape, self._space = tape, space

    def __getitem__(self, a: array) -> np.ndarray:
        if a in self or (isinstance(a, array) and isinstance(a.dtype, Struct)):
            return as_read(self._tape, value_of(a, self._space))
        if not isinstance(a, array) or all(b.allocation is not a.allocation for b in self._tape.arrays.values()):
            check_seed(self._tape, a)
        return np.zeros((*a.shape, *components(a)), gradient_dtype(a))

    def __iter__(self) -> Iterator[array]:
        return iter([a for a in self._tape.arrays.values() if a.allocation in self._space and float_parts(a)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, a: object) -> bool:
        return isinstance(a, array) and a.allocation in self._space


@overload
def jvp(tape: Tape, tangents: Mapping[array, Any]) -> Tangents: ...
@overload
def jvp(tape: Tape, tangents: Sequence[Mapping[array, Any]]) -> list[Tangents]: ...
def jvp(tape: Tape, tangents: Mapping[array, Any] | Sequence[Mapping[array, Any]]) -> Tangents | list[Tangents]:
    """The derivative of everything a tape computed, in one direction of what it started from (forward mode).

    tangents   {x: v}: v has the shape of x with its components as last axes (NumPy array, or an array of x's dtype;
               float32 for float16). x must have had `requires_grad`, or depend on such an array, when it was recorded.
               A list of such directions is carried in one walk, and gives a list.
    Returns `Tangents`: result[y] is J v for the final contents of y. Exact to rounding, the transpose of `backward`:
    <u, J v> = <J^T u, v>. Raises GradientError where that cannot be had: what `backward` refuses, `record_func`.

    Use it when there are fewer inputs than outputs, or to see what one change of the start does to everything.

    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3)
    >>> with wb.Tape() as tape:
    ...     wb.launch(square, dim=3, inputs=[x], outputs=[y])
    >>> wb.jvp(tape, {x: np.array([1.0, 0.0, 0.0], np.float32)})[y]
    array([2., 0., 0.], dtype=float32)
    """
    several = isinstance(tangents, Sequence)
    with memory.LOCK, memory.unrecorded():
        check_tape("jvp(tape, {x: v})", tape)
        spaces = [_started(tape, given) for given in (tangents if several else [tangents])]
        conventions.clear(tape)
        carry_tangents(tape, *spaces)
        made = [Tangents(tape, space) for space in spaces]
        confirm_conventions(tape, [a for a in tape.arrays.values() if a.allocation in tape.log.written])
        conventions.warn(tape)
    return made if several else made[0]


def _started(tape: Tape, tangents: Mapping[array, Any]) -> Workspace:
    """The workspace of one direction, before its walk."""
    space = Workspace()
    check_pairs("jvp(tape, tangents)", tangents, "direction", "jvp(tape, {x: v})")
    check_directions(tape, *tangents)
    for x, v in tangents.items():
        add_seed(space, x, v) if isinstance(v, array) else add_numbers(space, x, v)
    return space


def confirm_conventions(tape: Tape, ends: Iterable[array]) -> None:
    """Forget the unsure conventions that forward mode met if no adjoint of `ends` comes there."""
    met = tape.conventions
    if all(stmt.attr.sure for stmt in met):
        return
    space, tape.conventions = Workspace(), {}
    for part in (part for a in ends if a.allocation in tape.active for part in float_parts(a).values()):
        seed = space[part.allocation].view(part.span, gradient_dtype(part))
        seed[...] = on_device(part, 1 + np.arange(seed.size).reshape(seed.shape) % 7 / 10)
    reverse.walk(tape, space)
    arrived = {conventions.told(stmt) for stmt in tape.conventions}
    tape.conventions = {s: None for s in met if s.attr.sure or conventions.told(s) in arrived}


def check_directions(tape: Tape, *arrays: array) -> None:
    """Raise GradientError for a direction of no array, on no active path, and where all were overwritten unread."""
    for x in arrays:
        if not isinstance(x, array):
            text = f"a direction belongs to an array, not to {type(x).__name__} {x!r}"[:120]
            raise GradientError(text, slug="seed-type", instead="{x: v}, with the array x that the tape read")
        if x.allocation not in tape.active:
            text = f"{x.label} is on no active path of this tape."
            instead = "x.requires_grad = True   before the tape records"
            raise GradientError(text, slug="not-active", why="What its derivative needs was not kept.", instead=instead)
    check_start(tape, *arrays)


def add_numbers(space: Workspace, x: array, v: Any) -> None:
    """Add numbers, (*x.shape, *components), to an array's values in a workspace. Raises GradientError [seed-shape]."""
    view = shadow_of(x, space) if is_float(x.dtype) else None
    if view is None or np.shape(v) != view.shape:
        text = f"the tangent of {x.label} has shape {np.shape(v)}; it must be {(*x.shape, *components(x))}."
        raise GradientError(text, slug="seed-shape", instead=f"np.ones({(*x.shape, *components(x))})")
    add_into(view, on_device(x, np.asarray(v, view.dtype)), x.span)


def components(a: array) -> tuple[int, ...]:
    """The shape of one element: () for numbers, (3,) for vec3."""
    return getattr(a.dtype, "shape", ())


def value_of(a: array, space: Workspace) -> np.ndarray:
    """A NumPy copy of an array's values in a workspace: shape (*a.shape, *components)."""
    g = shadow_of(a, space)
    return on_host(g) if a.device.is_cuda else g.copy()


def shadow_of(a: array, space: Workspace) -> Any:
    """A view of an array's values, (*a.shape, *components). Raises GradientError [seed-type] for structs."""
    if isinstance(a.dtype, Struct):
        text = f"{a.label} is an array of structs: its derivatives are those of its fields."
        raise GradientError(text, slug="seed-type", instead=f"{a.label}.field({a.dtype.fields[0][0]!r})")
    return shadow_view(a, space[a.allocation])


# ---- the walk


def carry_tangents(tape: Tape, *spaces: Workspace, observe: Callable[[Event, Workspace], None] | None = None) -> None:
    """Carry the tangents in `spaces` through every event. Call under LOCK. Memory is as it was when this returns.

    `observe(event, space)` is called before each event, in the memory that it found.
    """

    def carry(event: Event, after: dict) -> None:
        for space in spaces:
            if observe is not None:
                observe(event, space)
            STEPS[event.kind.step](tape, event, space, after)

    passing(tape, carry)


def passing(tape: Tape, before: Callable[[Event, dict], None], behind: Callable[[Event], None] | None = None) -> None:
    """Visit the events forward: `before(event, extremes)` in the memory it found, `behind(event)` in what it left."""
    verify(tape)
    tape.log.tally()
    undone: list[dict] = []
    extremes: dict[Event, dict] = {}
    try:
        for event in reversed(tape.events):
            extremes[event] = extremal_memory(event)
            undone.append({})
            rewind(event, undone[-1])
        for event in tape.events:
            before(event, extremes.pop(event))
            put_back(undone.pop())
            if behind is not None:
                behind(event)
    finally:
        while undone:
            put_back(undone.pop())


def _launch(tape: Tape, event: Event, space: Workspace, after: dict[Allocation, Any]) -> None:
    command, back = event.command, event.reverse
    plan, flat, places = command.plan, command.flat, command.places
    for k in reverse.unfollowed(event):
        if flat[k].allocation in space:
            raise reverse.late(tape.names.called_by(event, k), event)
    if back is None or not any(places[k].allocation in space for k in back.shadows):
        return
    check_races(event)
    made, ready = _program(event)
    _refuse_unkept(tape, event, made)
    for k in back.extremal:  # the initial contents' share, as in the reverse walk
        space[flat[k].allocation]
    helpers = ties(event, after) if back.extremal else []
    for k in back.extremal:
        consume_extreme(flat[k], space, dict(helpers[1::2])[k], after)
    position = {leaf.name: k for k, leaf in enumerate(plan.program.leaves)}
    private = tuple(position[n] for n in sorted(made.private))
    tangents = [(k, space[places[k].allocation]) for k in back.shadows]
    arguments = AdjointArguments(command, private, tangents + helpers)
    ready.run(arguments.values, arguments.views)
    tape.conventions.update(dict.fromkeys(ready.met()))


def _refuse_unkept(tape: Tape, event: Event, made: Derived) -> None:
    """Raise GradientError if a tangent reads bytes that the adjoint (a `func_grad`) does not, and may have changed."""
    position = {leaf.name: k for k, leaf in enumerate(event.command.plan.program.leaves)}
    spans = {n: event.command.flat[position[n]].span for n in made.needs - event.reverse.reverse.needs}
    more = [n for n, span in spans.items() if tape.keep != "all" and not _unchanged_since(tape, event, span)]
    if more:
        text = f"the tangent of {event.label!r} reads {', '.join(sorted(more))}, which its adjoint does not."
        raise GradientError(text, slug="not-kept", where=event.where, instead='wb.Tape(keep="all")')


def _unchanged_since(tape: Tape, event: Event, span: Span) -> bool:
    """True if these bytes surely are as the event found them: no later event, call or foreign library wrote them."""
    a = span.allocation
    later = tape.events[tape.events.index(event) :]
    written = any(s.overlaps(span) is not False for e in later for s in e.writes)
    return tape.needed.of(a).followed and not (a.exposed or written or tape.needed.has_changed(span))


def _host(tape: Tape, event: Event, space: Workspace, after: dict) -> None:
    """Carry the tangent over a host write: a copy passes that of its source on, every other write clears it."""
    dst = event.arrays[0]
    src = event.source if event.source is not None and event.source.allocation in space else None
    _refuse_sources(tape, event, space, after)
    if src is None and dst.allocation not in space:
        return
    for path, part in float_parts(dst).items():
        target = space[dst.allocation].view(part.span, gradient_dtype(part))
        if src is None:
            target[...] = 0
        else:
            twin = same_part(src, path)
            target[...] = space[src.allocation].view(twin.span, gradient_dtype(twin)).copy()


def _refuse_sources(tape: Tape, event: Event, space: Workspace, after: dict) -> None:
    """Raise GradientError for values that the host made from memory with a tangent: theirs is unknown."""
    if any(s.span.allocation in space for s in event.sources):
        raise tape.host.lost(event)


def _func(tape: Tape, event: Event, space: Workspace, after: dict) -> None:
    what = "a checkpointed loop" if event.loop is not None else "a function of yours"
    text = f"the tape holds {what} ({event.label}): forward mode cannot see what it does."
    instead = "tape.backward(loss), or wb.launch(...) in place of the function"
    raise GradientError(text, slug="jvp-func", where=event.where, instead=instead)


def _opaque(tape: Tape, event: Event, space: Workspace, after: dict) -> None:
    if meets(event.arrays, space):
        text = f"the tangent comes to {event.label!r}, whose derivative is not known: {event.reason}"
        raise GradientError(text, slug="opaque", where=event.where, instead="a direction on which it does not depend")


def _gradient(tape: Tape, event: Event, space: Workspace, after: dict) -> None:
    raise gradient_met(tape, event)


STEPS: dict[str, Callable[[Tape, Event, Workspace, dict], None]] = {
    "launch": _launch,
    "write": _host,
    "func": _func,
    "op": lambda tape, event, space, after: event.op.push_forward(tape, event, space, after),
    "loop": _func,
    "backward": lambda tape, event, space, after: event.inner.push_forward(event, space),
    "opaque": _opaque,
    "gradient": _gradient,
    "none": _refuse_sources,  # a foreign write or a cut has no tangent
}


def _program(event: Event) -> tuple[Derived, Any]:
    """The tangent of a launch, one for all plans of its kernel, and what runs it, made once per plan and active set."""
    plan, active = event.command.plan, event.reverse.reverse.active
    key = "tangent", active
    if key not in plan.derived:
        plan.derived[key] = _make(plan, active)
    return plan.derived[key]


def _make(plan: Plan, active: frozenset[str]) -> tuple[Derived, Any]:
    program = plan.program
    made = program.once(tangent, program.function, active, plan.changing)
    if made.ordered and plan.form.backend == "cuda" and math.prod(plan.form.dims) > 1:
        text = f"Kernel {program.name!r} uses what an atomic returned: on a GPU a matter of the order of threads."
        instead = "device='cpu' for this launch"
        raise GradientError(text, slug="atomic-order", where=program.function.where, instead=instead)
    form = replace(plan.form, checked=False)  # the launch has run
    return made, executable_for(program, made.function, form.beside(made.function), made.ordered)

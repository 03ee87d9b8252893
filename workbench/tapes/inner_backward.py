"""A `backward` of one tape while another records: an event of the other, whose adjoint is a second derivative.

What it published, g = J^T s, depends on what the inner tape started from and on the seeds s. An adjoint v that arrives
at g gives the start the derivative of <s, J v>, by reverse over forward mode as in `hvp`, and the seeds J v.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ..arrays.allocation import Allocation, caller_where
from ..arrays.array import array, array_on, itemsize_of, whole_memory
from ..arrays.creation import copy
from ..arrays.workspace import (
    Shadow,
    Workspace,
    add_into,
    float_parts,
    gradient_dtype,
    is_float_memory,
    same_part,
    shadow_view,
)
from ..errors import GradientError
from ..kernels.types import Struct, float32
from .events import Event, clock
from .jvp import value_of
from .kinds import BACKWARD
from .private_copies import InFloat64
from .tape import Tape


class InnerBackward:
    """A `backward` that another tape records: its seeds, and its tape as it was then.

    leaves     memory with `requires_grad` that the inner tape did not write; `computed`: such memory that it wrote.
    gradients  what was published for both, by memory.
    """

    def __init__(self, outer: Tape, tape: Tape, seeds: Mapping[array, array]):
        self.outer, self.tape, self.given = weakref.proxy(outer), tape, dict(seeds)  # `outer` holds this
        self.seeds = {a: data.copy() for a, data in tape.last_seeds.items()}
        self.length = self._length()
        self.leaves: dict[Allocation, array] = {}
        self.computed: dict[Allocation, array] = {}
        tape.log.tally()
        for x in tape.arrays.values():
            if (a := x.allocation).asked and a in tape.active:
                (self.computed if a in tape.log.written else self.leaves).setdefault(a, whole_memory(x))
        self.gradients = {a: _gradient_of(x) for a, x in (*self.leaves.items(), *self.computed.items())}

    def _length(self) -> int:
        return sum(event.kind.own for event in self.tape.events)

    def reverse(self, event: Event, space: Workspace) -> None:
        """Pass the adjoints of what was published on to its start and seeds. Raises GradientError [inner-backward]."""
        arrived = {
            a: space[g.allocation].data.copy()
            for a, g in self.gradients.items()
            if g.allocation in space and space[g.allocation].data.any()
        }
        if not arrived:
            return
        self._check(event, arrived)
        twice = InFloat64(self.tape).follow()
        for a, found in twice.pulled(self.seeds, arrived).items():
            if a in self.leaves:
                _add_parts(space[a], self.leaves[a], found)
            elif found.data.any():
                raise self._refused(event, "it started from memory that it wrote, or that has no requires_grad")
        for y, seed in self.given.items():
            if self.outer.log.follows(seed.allocation):
                add_into(shadow_view(seed, space[seed.allocation]), twice.moved.of(y).data, seed.span)
        for a in self.computed:
            space[self.gradients[a].allocation].data[...] = 0

    def push_forward(self, event: Event, space: Workspace) -> None:
        """Add the tangents of what was published: H v, and J^T by those of the seeds. Raises what `reverse` raises."""
        moved = {a: space[a].data.copy() for a in self.leaves if a in space}
        seeds = {y: value_of(seed, space) for y, seed in self.given.items() if seed.allocation in space}
        if not moved and not seeds:
            return
        self._check(event, self.gradients)
        for a, found in InFloat64(self.tape).follow().pulled(self.seeds, moved, seeds).items():
            if a in self.leaves:
                _add_parts(space[self.gradients[a].allocation], self.leaves[a], found)

    def again(self, event: Event, copies: InFloat64) -> Callable[[bool], None]:
        """The `backward` on copies of the other tape and their tangents, as one that a third tape records.

        The gradient of <s, dy> + <ds, y> by the tangents of the start is what was published, by the start its tangent.
        """
        self._check(event, self.gradients)
        followed = [y for y, seed in self.given.items() if self.outer.log.follows(seed.allocation)]
        wholes = {x.allocation: whole_memory(x) for x in self.tape.arrays.values() if x.allocation in self.seeds}
        for y in followed:
            if sum(z.allocation is y.allocation for z in self.given) > 1:
                raise self._refused(event, "two of its seeds share memory")
            del wholes[y.allocation]
        space = Workspace()
        for a in wholes:
            space[a].data[...] = self.seeds[a]
        constants = {x: value_of(x, space) for x in wholes.values()}
        inside = InFloat64(self.tape).follow()
        begun = [(m.span(), m.span().copy_out()) for of in inside.both for m in of.memory.values()]
        parts = [
            (part, same_part(self.gradients[a], path))
            for a, x in self.leaves.items()
            for path, part in float_parts(x).items()
        ]

        def step(_: bool) -> None:
            for span, data in begun:
                span.copy_in(data)
            for of, here in zip(copies.both, inside.both, strict=True):
                for x, _g in parts:
                    start = here.of(x)
                    start.requires_grad = True
                    copy(start, of.of(x))
                    _published(start).zero_()
            with Tape(keep="all") as tape:
                for run in inside.steps:
                    run(True)
            seeds: dict[array, Any] = {inside.moved.of(y): v for y, v in constants.items()}
            for y in followed:
                seeds[inside.moved.of(y)], seeds[inside.twins.of(y)] = (of.of(self.given[y]) for of in copies.both)
            tape.backward(grads=seeds)
            for of, here in zip(copies.both, reversed(inside.both), strict=True):
                for x, g in parts:
                    copy(of.of(g), of.of(g) + _published(here.of(x)))

        return step

    def _check(self, event: Event, arrived: Mapping[Allocation, Any]) -> None:
        name = self.tape.names.called
        if computed := [x for x in self.tape.arrays.values() if x.allocation in {*self.computed} & {*arrived}]:
            x = name(computed[0])
            raise self._refused(
                event,
                f"{x} is no leaf of it, and its gradient has no second derivative",
                f"wb.detach({x}.grad), if it is meant as a constant",
            )
        if self._length() != self.length:
            raise self._refused(event, "it recorded further launches since")
        if self.tape.keep != "all":
            raise self._refused(event, "it keeps what first derivatives read", 'with wb.Tape(keep="all") as inner:')
        for x in self.tape.arrays.values():
            a = x.allocation
            if is_float_memory(x) and a in self.outer.active and a not in self.tape.active:
                here = f"{name(x)}.requires_grad = True   before the inner tape"
                raise self._refused(event, f"{name(x)} depends on this tape, and is a constant to it", here)
        begun, written = self.tape.events[0].id, self.tape.log.written
        for other in self.outer.events:
            if other.noted and other.sources and other.id < event.id and other.writes[0].allocation in written:
                raise self.outer.host.lost(other)
            if begun < other.id < event.id and any(span.allocation in self.leaves for span in other.writes):
                raise self._refused(event, f"{other.label!r} wrote to its leaves before its backward()")

    def _refused(self, event: Event, why: str, instead: str = "") -> GradientError:
        return GradientError(
            f"the gradient comes to a backward() inside this tape, whose second derivative cannot be had: {why}.",
            slug="inner-backward",
            where=event.where,
            instead=instead or "wb.detach(x.grad), if the gradient is meant as a constant",
        )


def _add_parts(to: Shadow, x: array, found: Shadow) -> None:
    """Add the float parts of an array in one shadow to those in another."""
    for part in float_parts(x).values():
        dtype = gradient_dtype(part)
        add_into(to.view(part.span, dtype), found.view(part.span, dtype), part.span)


def _published(x: array) -> Any:
    return x.grad


def _gradient_of(x: array) -> array:
    """The gradient of all of a memory, given as one array."""
    dtype = x.dtype
    if x.allocation.grad_scale == 2 and not isinstance(dtype, Struct):
        dtype = dtype.over(float32)
    return array_on(x.allocation.gradient(), dtype, x.shape, (itemsize_of(dtype),), 0)


def record(outer: Tape, tape: Tape, seeds: Mapping[array, array], publish: Callable[[], None]) -> None:
    """Record the `backward` of another tape, of which all is done but to `publish` the gradients. Call under LOCK."""
    made = InnerBackward(outer, tape, seeds)
    read = [*made.leaves.values(), *(seed for seed in seeds.values() if outer.log.follows(seed.allocation))]
    grads = list(made.gradients.values())
    spans = [tuple(a.span for a in arrays) for arrays in (read, grads)]
    event = Event(next(clock), BACKWARD, "backward", caller_where(), *spans, arrays=(*grads, *read))
    event.inner = made
    for a in event.arrays:
        outer.log.activate(a, "backward")
    for grad in grads:
        outer.needed.notes(grad.allocation, watch=False).begun = True
    outer.needed.keep_before(event)
    publish()
    outer.events.append(event)
    outer.needed.remember_left(event)

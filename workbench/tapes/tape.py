"""The tape: a recording that can be walked backwards.

The walk is a function from (events, seeds) to a private workspace of shadows, one per allocation. It puts kept bytes
back as it passes and the final contents at the end; `backward` then publishes the workspace into `.grad`.
"""

from __future__ import annotations

import math
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays import capture_log
from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.span import Span, byte_entries
from ..arrays.workspace import (
    SUMMED,
    Shadow,
    Workspace,
    accumulate,
    add_into,
    add_seed,
    extremal_memory,
    float_parts,
    gradient_dtype,
    mirrored_values,
    moved_values,
    moved_view,
    private_copies,
    shadow_view,
)
from ..device import xp
from ..errors import GradientError
from ..launches.arguments import views as argument_views
from .ask import ask
from .events import Event, clock
from .recording import Recording

Observer = Callable[[Event, Workspace], None]


class Tape(Recording):
    """Records launches and writes while it is open (`with wb.Tape() as tape:`), and walks them backwards.

    keep="all" keeps every version of all memory the tape touched: gradients stay exact whatever is overwritten later,
    at the price of memory. By default only what an adjoint reads is kept, and changes made behind the tape's back
    are refused with a GradientError.
    """

    def backward(
        self, loss: array | None = None, grads: dict[array, array] | None = None, *, pitfall: Any = None
    ) -> Any:
        """Publish the gradient of the seeds with respect to what the tape started from.

        loss    an array of one element: its seed is one.
        grads   {array: seed}, seeds of the same shape and dtype (float32 for float16). They are copied.
        Without either, the seeds are the `.grad` bytes written since they were last published.
        pitfall one of `wb.pitfalls`: nothing is published; returns gradients that are wrong on purpose, a `Wrong`.
        Raises GradientError where the gradient would not be exact, or a seed does not fit.
        """
        with memory.LOCK, memory.unrecorded(), capture_log.allowed():
            space = self._seeds(loss, grads)
            if pitfall is not None:
                capture_log.refuse("A pitfall")
                return ask("pitfall", self, pitfall, space)
            if (notes := capture_log.noting()) is not None:
                if self not in notes.tapes:
                    capture_log.refuse(
                        "backward() of a tape recorded before", "the recording and backward() in one capture"
                    )
                notes.asked.update(dict.fromkeys(a.allocation for a in self.arrays.values()))
            self._remember(space)
            space.places = self._places(space, grads)
            before = {a: a.gradient().bytes.copy() for a in space.places}
            try:
                self._publish(*self._walk(space, drop=True))
            except BaseException:
                for a, data in before.items():
                    a.gradient().bytes[...] = data
                raise
            space.release()
        return None

    def _places(self, seeds: Workspace, grads: Any) -> frozenset[Allocation]:
        """Whose shadow may lie in the memory of its gradient: in a capture, where nothing is published by halves."""
        notes = capture_log.noting()
        if notes is None or any(seed.allocation.is_gradient for seed in (grads or {}).values()):
            return frozenset()
        found = set()
        memories = dict.fromkeys(known.allocation for known in self.arrays.values())
        for a in memories:
            if not a.asked or a in seeds or a.grad in memories:
                continue
            grad, written = a.gradient(), self.written.get(a)
            blank = grad.blank == grad.version and not grad.exposed and (grad in notes.cleared or self in notes.zeroed)
            if blank or (written is not None and written.everything):
                found.add(a)
        return frozenset(found)

    def _remember(self, seeds: Workspace) -> None:
        """Keep the seeds for `retrace` and the views, in the buffers of the last ones where they fit."""
        before, self.last_seeds = self.last_seeds, {}
        for a, shadow in seeds.items():
            kept = before.get(a)
            if kept is None or kept.shape != shadow.data.shape:
                kept = capture_log.copy(shadow.data)
            else:
                capture_log.move(kept, shadow.data)
            self.last_seeds[a] = kept

    def retrace(
        self, observe: Observer | None, before: Observer | None = None, seeds: Mapping[Allocation, Any] | None = None
    ) -> Workspace:
        """Walk with the seeds of the last `backward`, or with the bytes in `seeds`, publishing nothing.

        `before(event, space)` is called before, `observe(event, space)` after every step. Raises GradientError on a
        tape with `record_func`: to look must not call a function of the user's again.
        """
        capture_log.refuse("Looking at a tape")
        for event in self.events:
            if event.kind == "func":
                raise GradientError(
                    f"a tape with record_func({event.label}) cannot be walked again to look at it.", slug="func-replay",
                    where=event.where, instead="backward(), which calls the function",
                )  # fmt: skip
        with memory.LOCK, memory.unrecorded():
            space = Workspace()
            for a, data in (self.last_seeds if seeds is None else seeds).items():
                space[a] = Shadow(a, start=data)
            return self._walk(space, observe, before)[0]

    def _seeds(self, loss: array | None, grads: dict[array, array] | None) -> Workspace:
        space = Workspace()
        if loss is None and grads is None:
            capture_log.refuse("backward() without seeds", "backward(loss), or backward(grads={y: seed})")
            self._written_seeds(space)
            if not space:
                raise GradientError(
                    "backward() found no seed: no `.grad` of what this tape computed was written.", slug="no-seed",
                    why="Every gradient would be zero.", instead="backward(loss), or backward(grads={y: seed})",
                )  # fmt: skip
            return space
        if loss is not None:
            self._check_seed(loss)
            if loss.size != 1 or loss.dtype.size != 1:  # type: ignore[attr-defined]
                raise GradientError(
                    f"backward(loss) takes an array of one element, {loss.label} is {loss.dtype} of shape"
                    f" {loss.shape}.",
                    slug="loss-shape", instead=f"backward(grads={{{loss.label}: seed}})",
                )  # fmt: skip
            one = space[loss.allocation].view(loss.span, gradient_dtype(loss))
            add_one = (lambda: np.add(one, 1, out=one)) if isinstance(one, np.ndarray) else (lambda: one.__iadd__(1))
            capture_log.do(add_one, capture_log.gpu_of(one))
        for a, seed in (grads or {}).items():
            self._check_seed(a)
            add_seed(space, a, seed)
        return space

    def _check_seed(self, a: Any) -> None:
        if not isinstance(a, array):
            raise GradientError(f"a seed belongs to an array, not to {type(a).__name__}", slug="seed-type")
        if not self._touched(a.span):
            raise GradientError(
                f"{a.label} was neither read nor written while this tape recorded.", slug="seed-untouched",
                why="A seed must lie on memory that the tape has seen.",
                instead="a seed of an output of one of its launches",
            )  # fmt: skip

    def _written_seeds(self, space: Workspace) -> None:
        """The gradient bytes that the user, or a later tape, wrote into what this tape computed."""
        self._tally()
        for a, marks in self.written.items():
            grad = a.grad
            if grad is None or a not in self.active:
                continue
            mask = grad.user_written_mask(grad.span())
            when, by = grad.publisher
            later = when > self.stamps.get(a, 0) and by is not weakref.ref(self)
            if mask is None and not later:
                continue
            k = a.grad_scale or 1
            chosen = np.ones(grad.nbytes, bool) if later else mask.reshape(-1)
            inside = np.zeros(grad.nbytes, bool)
            for span in marks:
                byte_entries(Span(grad, span.offset * k, span.shape, tuple(s * k for s in span.strides),
                                  span.itemsize * k), inside)[...] = True  # fmt: skip
            picked = np.flatnonzero(chosen & inside)
            if len(picked):
                picked = xp(a.device).asarray(picked)
                space[a].data[picked] = grad.bytes[picked]

    def _walk(
        self, space: Workspace, observe: Observer | None = None, before: Observer | None = None, drop: bool = False
    ) -> tuple[Workspace, dict]:
        """Reverse every event on an active path. Memory is as it was when this returns.

        With `drop`, shadows that nobody asked for are given up behind the first event that touched their memory:
        the same few buffers then serve a whole time loop.
        """
        space.dropping = drop
        self._verify()
        self._tally()
        undone: list[tuple[Span, Any]] = []
        retained: dict[Span, Any] = {}
        try:
            for event in reversed(self.events):
                after = extremal_memory(event)
                if event.loop is not None:  # it comes back to where it began by itself
                    undone += [(span, span.copy_out()) for span in event.writes]
                elif event.kept:
                    self._rewind(event, undone)
                self._retain(event, space, retained)
                if before is not None:
                    before(event, space)
                REVERSE[event.kind](self, event, space, after)
                if observe is not None:
                    observe(event, space)
                if drop:
                    self._drop(event, space)
        finally:
            for span, data in reversed(undone):
                span.copy_in(data)
        return space, retained

    def _rewind(self, event: Event, undone: list) -> None:
        for kept in reversed(event.kept):
            undone.append((kept.span, kept.span.copy_out()))
            kept.span.copy_in(kept.data)

    def _drop(self, event: Event, space: Workspace) -> None:
        for span in (*event.reads, *event.writes):
            a = span.allocation
            if a in space and self._is_last(event, a):
                space.drop(a)

    def _is_last(self, event: Event, a: Allocation) -> bool:
        """Does nobody look at the shadow of this memory once the event is reversed."""
        return self.first.get(a) is event and not (a.asked or (a.exposed and ports))

    def _dying(self, event: Event, pull: Any, space: Workspace) -> bool:
        """Would the rest of an adjoint only clear shadows that are given up at once."""
        if not space.dropping or pull.cleared is None:
            return False
        return all(self._is_last(event, event.command.flat[k].allocation) for k in pull.cleared)

    def _retain(self, event: Event, space: Workspace, retained: dict) -> None:
        """The full adjoint by the final contents: as it stands before the last write is reversed."""
        for span in event.writes:
            a = span.allocation
            if a.retained.spans and a in space:
                for wanted in a.retained:
                    if wanted not in retained and wanted.overlaps(span) is not False:
                        view = space[a].view(wanted, a.gradient_span(wanted).words().dtype)
                        retained[wanted] = capture_log.copy(view)

    def _reverse_launch(self, event: Event, space: Workspace, after: dict) -> None:
        command, back = event.command, event.reverse
        plan, flat, places = command.plan, command.flat, command.places
        if back is None or command.declared or len(back.shadows) != len(plan.floats):
            self._refuse_late(event, plan, flat, back)
        if back is None or not any(places[k].allocation in space for k in back.shadows):
            return
        if back.reverse.ordered and plan.backend == "cuda" and np.prod(plan.dims) > 1:
            raise GradientError(
                f"Kernel {event.label!r} uses what an atomic returned, which on a GPU depends on the order of threads.",
                slug="atomic-order", where=event.where, instead="device='cpu' for this launch",
            )  # fmt: skip
        if back.races is not None:
            self.check_races(event)
            back.races.fix(plan, flat)
        copies = private_copies(back.private, flat)
        values = moved_values(flat, copies) if copies else command.values
        fresh = (
            space.fresh([places[k] for k in back.pull.targets]) if back.pull is not None and back.pull.covers else []
        )
        extras = [(k, space[places[k].allocation]) for k in back.shadows]
        helpers = self._ties(event, after) if back.extremal else []

        def views(extras: list) -> list:
            arrays = argument_views(plan.program.function, flat)
            for k, (data, first) in copies.items():
                arrays[k] = moved_view(flat[k], data, first)
            return arrays + [shadow_view(places[k], shadow) for k, shadow in extras]

        extras += helpers
        packed = values + mirrored_values(places, extras)
        if command.declared and plan.backend == "c" and back.gather is None and back.pull is None:
            self._reverse_in_blocks(command, back, packed, len(values), extras)
        else:
            stored = tuple([k for k in back.pull.targets if places[k] in fresh]) if fresh else ()
            rest = back.pull is None or not self._dying(event, back.pull, space)
            back.run(plan, packed, places, space, lambda: views(extras), stored, rest)
        for k in back.extremal:
            self._consume_extreme(flat[k], space, dict(helpers[1::2])[k], after)

    def _reverse_in_blocks(self, command: Any, back: Any, packed: list, at: int, extras: list) -> None:
        """All threads add to the gradient of a declared scalar: block by block, so that a long sum keeps its digits.

        `at`: where in `packed` the values of `extras` begin.
        """
        dims = command.plan.dims
        step = max(1, SUMMED // max(math.prod(dims[1:]), 1))
        sums = []
        for k, shadow in extras:
            if k in command.declared:
                target = shadow_view(command.places[k], shadow)
                sums.append((at, target, np.zeros_like(target), np.zeros(target.shape)))
            at += 1 + 2 * command.places[k].ndim
        for place, _, part, _ in sums:
            packed[place] = part.__array_interface__["data"][0]
        for row in range(0, dims[0], step):
            back.executable.run(command.program, dims, packed, None, (row, min(row + step, dims[0])))
            for _, _, part, total in sums:
                total += part
                part[...] = 0
        for _, target, _, total in sums:
            target += total.astype(target.dtype)

    def check_races(self, event: Event) -> None:
        """Look for races in a launch, once, where they are not ruled out. Memory must be as the launch saw it.

        Raises GradientError [race].
        """
        if event.reverse is not None and event.reverse.races is not None and not event.checked:
            event.reverse.races.check(event.command.plan, event.command.flat, event.command.values)
            event.checked = True

    def _ties(self, event: Event, after: dict) -> list:
        """Per extremal array: what it held after the launch, and how many share each cell's adjoint."""
        command, back = event.command, event.reverse
        flat, helpers = command.flat, []
        for k in back.extremal:
            ties = Shadow(flat[k].allocation)
            helpers += [(k, after[flat[k].allocation]), (k, ties)]

        def views() -> list:
            return argument_views(command.program.function, flat) + [shadow_view(flat[k], s) for k, s in helpers]

        values = command.values + mirrored_values(flat, helpers)
        back.count.run(command.program, command.plan.dims, values, views)
        for k, ties in helpers[1::2]:
            a = flat[k]
            count = shadow_view(a, ties)
            capture_log.do(
                partial(_count_tie, count, a.data, shadow_view(a, after[a.allocation])), capture_log.gpu_of(count)
            )
        return helpers

    def _consume_extreme(self, a: array, space: Workspace, ties: Shadow, after: dict) -> None:
        """What was there before the launch keeps its share; elsewhere the adjoint is used up."""
        g = shadow_view(a, space[a.allocation])
        before = shadow_view(a, after[a.allocation])
        capture_log.do(partial(_share, g, a.data, before, shadow_view(a, ties)), capture_log.gpu_of(g))

    def _refuse_late(self, event: Event, plan: Any, flat: list, back: Any) -> None:
        for k in plan.float_reads | plan.float_writes if plan.float_writes else ():
            if (back is None or k not in back.shadows) and flat[k].allocation.required:
                raise self._late(plan.program.leaves[k].name, event)

    def _late(self, name: str, event: Event) -> GradientError:
        return GradientError(
            f"{name!r} got requires_grad after {event.label!r} had been recorded.", slug="late-grad",
            where=event.where, why="What its adjoint needs was not kept.",
            instead="set requires_grad=True before the tape records",
        )  # fmt: skip

    def _reverse_host(self, event: Event, space: Workspace, after: dict) -> None:
        """copy: the source gets the adjoint of the target; every host write clears what it overwrote."""
        dst = event.arrays[0]
        if not event.followed and event.arrays[1].allocation.required:
            raise self._late(event.arrays[1].label, event)
        if dst.allocation not in space:
            return
        for part in float_parts(dst):
            g = space[dst.allocation].view(part.span, gradient_dtype(part))
            if len(event.arrays) == 2 and event.arrays[1].allocation in self.active:
                src = event.arrays[1] if part is dst else event.arrays[1].field(part._name or "")
                got = capture_log.copy(g)
                capture_log.do(partial(g.__setitem__, ..., 0), capture_log.gpu_of(g))
                add_into(space[src.allocation].view(src.span, gradient_dtype(src)), got, src.span)
            else:
                capture_log.do(partial(g.__setitem__, ..., 0), capture_log.gpu_of(g))

    def _reverse_func(self, event: Event, space: Workspace, after: dict) -> None:
        """The callback sees the live adjoint as `.grad`."""
        allocations = list(dict.fromkeys(a.allocation for a in event.arrays))
        before = [a.gradient().bytes.copy() for a in allocations]
        for a in allocations:
            a.grad_notes.clear()
        for a in allocations:
            a.gradient().bytes[...] = space[a].data
            a.grad_notes.clear()
        try:
            assert event.callback is not None
            event.callback()
            for a in allocations:
                space[a].data[...] = a.gradient().bytes
        finally:
            for a, data in zip(allocations, before, strict=True):
                a.gradient().bytes[...] = data

    def _reverse_loop(self, event: Event, space: Workspace, after: dict) -> None:
        """A checkpointed loop runs its steps again, and walks each of them."""
        event.loop.reverse(space)

    def _reverse_nothing(self, event: Event, space: Workspace, after: dict) -> None:
        """Not ours: only rewound."""

    def _publish(self, space: Workspace, retained: dict[Span, Any]) -> None:
        for a in list(space):
            if a.asked:
                self._publish_one(a, space[a], retained)
        shown = Workspace(space)  # which a replay shows again
        for port in ports:
            capture_log.do(partial(port, self, shown))

    def _publish_one(self, a: Allocation, shadow: Shadow, retained: dict[Span, Any]) -> None:
        """Leaves accumulate; what an event wrote is replaced."""
        grad, k = a.gradient(), a.grad_scale or 1
        dtype = self.scalars.get(a)
        written = self.written.get(a)
        if written is None and grad.written_by_user and grad.bytes.any():
            name = next((n for n in (self.names.get(i) for i, x in self.arrays.items() if x.allocation is a) if n), a)
            warnings.warn(
                f"the gradient of {name} was added to values that you had written into its .grad: leaves accumulate."
                " x.grad.zero_() or tape.zero() before backward() starts anew; assigning x.grad = b copied b.",
                stacklevel=4,
            )
        blank = grad.blank == grad.version and not grad.exposed
        if (notes := capture_log.noting()) is not None:
            if blank and grad not in notes.cleared and (blank := self in notes.zeroed):
                notes.supposed[grad] = self
            notes.published[grad] = self
        if grad.watchers:
            grad.about_to_write(grad.span(), "backward()")
        elif notes is not None:
            notes.written.setdefault(grad, {})[grad.span()] = "backward()"
        if shadow.lent:
            pass
        elif blank or (written is not None and written.everything):
            capture_log.move(grad.bytes, shadow.data)
        else:
            accumulate(grad, shadow, dtype)
            for span in written or ():
                at = Span(grad, span.offset * k, span.shape, tuple(s * k for s in span.strides), span.itemsize * k)
                words = at.words()
                capture_log.do(
                    partial(words.__setitem__, ..., shadow.view(span, words.dtype)), capture_log.gpu_of(words)
                )
        for wanted, data in retained.items():
            if wanted.allocation is a:
                words = a.gradient_span(wanted).words()
                capture_log.do(partial(words.__setitem__, ..., data), capture_log.gpu_of(words, data))
        a.grad_notes.clear()
        for span in self.stored.get(a, ()):
            if not a.retained.touch(span):
                a.grad_notes[span] = _USED_UP
        grad.version += 1
        grad.mark_published()
        grad.publisher = next(clock), weakref.ref(self)

    def adjoint(self, a: array, at: Event | None = None) -> np.ndarray:
        """The adjoint of an array's memory during the reverse pass with the seeds of the last `backward`.

        at=None: the derivative by its final contents. at=event: by its contents just before that event.
        Returns a new NumPy array of shape (*a.shape, *components). Raises GradientError before any `backward`.
        """
        if not self.last_seeds:
            raise GradientError("adjoint() before any backward(): there is no seed.", slug="no-seed",
                                instead="tape.backward(loss), then tape.adjoint(a)")  # fmt: skip
        writers = [e for e in self.events if any(s.overlaps(a.span) is not False for s in e.writes)]
        place = at or (writers[-1] if writers else None)
        found: list[np.ndarray] = []

        def take(space: Workspace) -> None:
            g = shadow_view(a, space[a.allocation])
            found.append(g.get() if a.device.is_cuda else g.copy())

        space = self.retrace(
            lambda event, space: take(space) if at is not None and event is at else None,
            lambda event, space: take(space) if at is None and event is place else None,
        )
        if not found:
            take(space)
        return found[0]

    @property
    def gradients(self) -> dict[array, array]:
        """{array: its gradient} for every array of the tape that has one."""
        return {a: a.grad for a in self.arrays.values() if a.grad is not None}

    @property
    def launches(self) -> list[Event]:
        """The recorded launches, in order."""
        return [e for e in self.events if e.kind == "launch"]

    def zero(self) -> None:
        """Set the gradients of every array of this tape to zero."""
        with memory.LOCK, memory.unrecorded():
            notes = capture_log.noting()
            begun = notes is None or self in notes.begun
            if notes is not None and not begun:  # a replay clears what the tape will hold then, not what it holds now
                notes.zeroed.setdefault(self, []).append(len(notes.steps))
            for grad in self._published():
                if grad.blank != grad.version or grad.exposed or notes is not None:
                    if grad.watchers:
                        with capture_log.unnoted():
                            grad.about_to_write(grad.span(), "tape.zero()")
                    with capture_log.allowed() if begun else capture_log.unnoted():
                        capture_log.move(grad.bytes)
                    if notes is not None and begun:
                        notes.cleared.add(grad)
                        notes.written.setdefault(grad, {})[grad.span()] = "tape.zero()"
                    grad.version += 1
                    grad.blank = grad.version
                    grad.mark_published()
                    grad.publisher = (0, None)

    def _published(self) -> list[Allocation]:
        """The gradient memory of its arrays, as far as there is any."""
        memories = dict.fromkeys(a.allocation for a in self.arrays.values())
        return [a.grad for a in memories if a.grad is not None]

    def reset(self) -> None:
        """Forget every event and zero the gradients."""
        self.zero()
        self._clear()

    def __len__(self) -> int:
        return len(self.events)

    def __bool__(self) -> bool:
        return True

    def show(self) -> Any:
        """The static picture of the tape: lanes of memory by launches, with a table beside it."""
        return self._ask("show")

    def explore(self) -> Any:
        """The live picture: a widget with a reverse cursor, heat-maps, ledger and microscope."""
        return self._ask("explore")

    def to_html(self, path: Any, **choices: Any) -> Any:
        """Write the live picture as one file that needs no kernel and no network. Returns the path."""
        return self._ask("to_html", path, **choices)

    def ledger(self, a: array, index: Any = (), at: Any = None) -> Any:
        """Where the gradient of one element of `a` came from: signed contributions that sum to it.

        index   of the element, then of the component of a vector or matrix; the path of a field for structs.
        at      the moment, as in `adjoint`; "start" for the derivative by what the array held when the tape started.
        """
        return self._ask("ledger", a, index, at)

    def microscope(self, event: Event, thread: Any) -> Any:
        """One thread of one launch, statement by statement: values on the way down, adjoints on the way back."""
        return self._ask("microscope", event, thread)

    def seeds(self, y: array) -> Any:
        """The seeding panel: gradients of one element of `y` at a time, each a row of a Jacobian picture."""
        return self._ask("seeds", y)

    def replay(self, inputs: Mapping[Any, Any] | None = None) -> Any:
        """Run the recorded program again on new inputs {x: values}, on private copies: a new tape, `again[y]`."""
        return self._ask("replay", inputs)

    def diagnose(self, loss: array | None = None, grads: dict[array, array] | None = None) -> Any:
        """Findings about this tape and its gradients: slug, severity, launch, line, sentence, fix. Publishes nothing.

        The adjoints looked at are those of `loss` or `grads`, else of the last `backward`.
        """
        return self._ask("diagnose", loss, grads)

    def memory(self) -> Any:
        """The bytes this tape holds, by whom and why."""
        return self._ask("memory")

    def _ask(self, question: str, *args: Any, **choices: Any) -> Any:
        capture_log.refuse(f"tape.{question}()")
        self.name_arrays(sys._getframe(2))
        return ask(question, self, *args, **choices)


def _count_tie(ties: Any, now: Any, after: Any) -> None:
    ties[...] += now == after


def _share(g: Any, now: Any, after: Any, ties: Any) -> None:
    kept = now == after
    share = g / ties.clip(1)
    g[...] = np.where(kept, share, 0) if isinstance(g, np.ndarray) else share * kept


# by kind of event
REVERSE: dict[str, Callable[[Tape, Event, Workspace, dict], None]] = {
    "launch": Tape._reverse_launch,
    "copy": Tape._reverse_host,
    "assign": Tape._reverse_host,
    "fill_": Tape._reverse_host,
    "zero_": Tape._reverse_host,
    "func": Tape._reverse_func,
    "loop": Tape._reverse_loop,
    "foreign": Tape._reverse_nothing,
}


# called after every publishing with (tape, workspace): output ports of other libraries
ports: list[Callable[[Tape, Workspace], None]] = []


_USED_UP = (
    "this gradient is zero because the tape overwrote the array: .grad is the derivative by what the array held when"
    " the tape started. tape.adjoint(a) gives the derivative by its final contents; retain_grad=True publishes that"
    " instead."
)

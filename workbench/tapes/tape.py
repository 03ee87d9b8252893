"""The tape: a recording that can be walked backwards (`reverse`), and then publishes what it found into `.grad`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.missing_methods import place_absent
from ..arrays.scalar import scalar
from ..arrays.span import Span
from ..arrays.workspace import Shadow, Workspace, is_float_memory, shadow_view
from ..device import on_host
from ..display import Listed, offers
from ..errors import GradientError, LaunchError
from ..kernels.reading.declare import Instance, struct_of
from ..kernels.types import Array
from . import conventions
from .backward_cache import compiled_backward
from .cross_tape import CrossTapeSearch, RecordingId
from .events import Event
from .kinds import LAUNCH
from .late_imports import ask
from .publish import gradients_of, publish
from .recording import Recording
from .reverse import Observer, Step, reverse, walk
from .seeds import arrays_of, as_read, check_seed, seeds_of

_CLEARED = (0, None)  # by whom a gradient was published that was cleared
_MEANT = {
    "tape.zero()": "zero_grad zero_grads clear_grad",
    "tape.reset()": "clear forget delete",
    "tape.backward(loss), then x.grad": "gradient grad compute_gradient run_backward",
    "with tape: ...": "start stop record begin end stop_recording start_recording",
    "x.requires_grad = True": "watch",
    "wb.jacobian(tape, y, x)": "jacobian batch_jacobian",
    "wb.jvp(tape, {x: v})": "jvp forward",
    "wb.hvp(tape, loss, {x: v})": "hvp hessian",
    "tape.show()": "visualize plot draw print display",
    "tape.to_html(path)": "save export",
}


@offers(
    "adjoint adjoints arrays backward diagnose events explore film gradients keep launches ledger memory microscope "
    "record_func replay reset scope seeds show to_html trust zero"
)
class Tape(Recording, metaclass=Listed):
    """Records launches and writes while it is open (`with wb.Tape() as tape:`), and walks them backwards.

    keep="all" keeps every version of all memory the tape touched: gradients stay exact whatever is overwritten later,
    at the price of memory. By default only what an adjoint reads is kept, and changes made behind the tape's back
    before `backward` are refused with a GradientError. After it an optimizer may change what it likes through the
    workbench: what is needed is kept then, so that the tape can still be walked and looked at.

    Use one tape for everything between the parameters and the loss; launches outside of it are constants to it. What
    another tape computed is a leaf: `backward` warns where a gradient stops there. Seed that tape with what has arrived
    (`first.backward(grads={q: q.grad, ...})`, all at once), or write `wb.detach(q)` if the gradient is to stop.

    Leaves add up over backward passes, of whatever tapes, until `tape.zero()`. A tape may be entered again, and goes on
    where it left off; a backward inside its own `with` is about what was recorded so far. Of tapes inside one another
    the innermost records, and the others nothing, but for its `backward`, whose gradients are values with an exact
    derivative: what would be lost is refused [nested-tape]. A tape records the thread, or the task of asyncio, that
    opened it; what others do to its memory is refused where an adjoint comes to it [tape-thread].

    A tape can be pickled, before and after `backward`, together with the arrays that are wanted where it is loaded
    (`pickle.dump((tape, x, y), file)`): what shares memory shares it again, views bring all of their memory, kernels
    come as source. `copy.copy` and `copy.deepcopy` give a tape on memory of its own.

    >>> @wb.kernel
    ... def square(x: wb.array[float], y: wb.array[float]):
    ...     i = wb.tid()
    ...     y[i] = x[i] * x[i]
    >>> x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3)
    >>> with wb.Tape() as tape:
    ...     wb.launch(square, dim=3, inputs=[x], outputs=[y])
    >>> tape.backward(grads={y: wb.ones(3)})
    >>> x.grad
    array([2., 4., 6.], dtype=float32, shape=(3,))
    >>> with wb.Tape() as tape:
    ...     wb.launch(square, dim=3, inputs=[x], outputs=[y])
    >>> _ = x.fill_(0.0)  # what the adjoint would read is gone
    >>> tape.backward(grads={y: wb.ones(3)})
    Traceback (most recent call last):
    ...
    workbench.errors.GradientError: ...
    """

    def __init__(self, keep: str = "needed", **others: object):
        for name in others:
            why = "It takes keep alone; a tape can be walked as often as one likes, and launches may write in place."
            raise LaunchError(f"Tape has no argument {name!r}.", slug="tape-keyword", instead="wb.Tape()", why=why)
        super().__init__(keep)

    def backward(
        self, loss: array | None = None, grads: dict[array, array] | None = None, *, pitfall: object = None
    ) -> Any:
        """Publish the gradient of the seeds with respect to what the tape started from.

        loss    an array of one element: its seed is one.
        grads   {array: seed}, seeds of the same shape and dtype (float32 for float16), or NumPy arrays and lists of
                that shape, which are converted. They are copied.
        Without either, the seeds are the `.grad` bytes written since they were last published.
        pitfall one of `wb.pitfalls`: nothing is published; returns gradients that are wrong on purpose, a `Wrong`.
        Raises GradientError where the gradient would not be exact, or a seed does not fit. Warns [convention] where it
        went through a slope that is a convention, as that of `length` at a zero vector.
        """
        capture_log.refuse_mapped("backward() is called.")
        around, frame = memory.recorder(), sys._getframe(1)
        self.walked_at = frame.f_code, frame.f_lasti
        if around is self or (around is not None and around.muted):
            around = None
        if around is not None:
            capture_log.refuse("backward() of a tape inside another", "jit=False, or the block without wb.capture()")
            grads = arrays_of(grads)  # as events of the tape around, on which they may depend
        with memory.LOCK, memory.unrecorded(), capture_log.allowed():
            self._refuse_without_leaf()
            grads = arrays_of(grads)
            space = seeds_of(self, loss, grads)
            if pitfall is not None:
                capture_log.refuse("A pitfall")
                return ask("pitfall", self, pitfall, space)
            if (notes := capture_log.active_capture()) is not None:
                if self not in notes.tapes:
                    capture_log.refuse(
                        "backward() of a tape recorded before",
                        "the recording, or graph.replay() of the capture that has it, before it in this one",
                    )
                notes.asked.update(dict.fromkeys(a.allocation for a in self.arrays.values()))
            self._remember(space)
            crossing, blind = self._crossing(space), not any(a in self.active or a.asked for a in space)
            conventions.clear(self)
            known = compiled_backward(self, space) if crossing is None and around is None else None
            retained: dict[Span, Any] = {}
            if known is None:
                space, retained = walk(self, space, before=crossing and crossing.before, drop=True)
            else:
                self.needed.verify()
                known.run(space, self)
                conventions.collect(self)
            self.border.report([] if crossing is None else crossing.found(space), blind)
            self.needed.walked = not self.captured
            if known is not None:
                known.publish(self)
            elif around is None:
                publish(self, space, retained)
            else:
                ask("inner_backward", around, self, grads or {}, lambda: publish(self, space, retained, by=around))
            self.border.queue()
            space.release()
            self.host.warn()
            conventions.warn(self)
        return None

    def _refuse_without_leaf(self) -> None:
        if not self.events or self.active or any(a.allocation.asked for a in self.arrays.values()):
            return
        why, instead = "Every gradient would be None.", "x = wb.array(values, requires_grad=True)   before it records"
        for a in self.arrays.values():
            for _, run in a.allocation.origins.met(a.span) if a.allocation.origins else ():
                of = " and ".join(run.names) or "what has requires_grad"
                why = f"{self.names.of(a)} was written under another tape, which recorded the way from {of}."
                instead = "one tape around both"
        text = "no array of this tape has requires_grad, so there is nothing to take a derivative by."
        raise GradientError(text, slug="no-leaf", where=self.events[0].where, why=why, instead=instead)

    def _crossing(self, seeds: Workspace) -> CrossTapeSearch | None:
        """The border search for a walk; None if the tape has no borders. A capture that is undone looks at its own."""
        if (notes := capture_log.active_capture()) is not None and notes.before is not None:
            own = ((a, {m: None for m in met if m[1] in notes.runs}) for a, met in self.border.met.items())
            self.border.met = {a: met for a, met in own if met}
        self.border.note_seeds(seeds)
        self.border.update()
        return CrossTapeSearch(self.border, seeds) if self.border.met else None

    def find_borders(self, met: list[tuple[Span, RecordingId]], before: dict[Allocation, Any]) -> None:
        """Queue and tell of borders behind a replay, which has met what these other runs wrote.

        `before`: the bytes of gradients in front of it: where they have changed, or are replaced, an adjoint arrived.
        """
        self.border.met.clear()
        for span, run in met:
            self.border.crossed(span, run)
        crossing = self._crossing(Workspace({a: Shadow(a, start=data) for a, data in self.last_seeds.items()}))
        assert crossing is not None
        crossing.reached.update(*crossing.watched.values())
        space = Workspace()
        for a in self.border.met.keys() & before.keys():
            now, old = a.gradient().bytes, before[a] * (a not in self.log.written)
            space[a] = Shadow(a, start=(now != old).view(np.uint8) if old.any() else now)
        self.border.report(crossing.found(space), blind=False)
        self.border.queue()

    def _remember(self, seeds: Workspace) -> None:
        """Keep the seeds for `retrace` and the views, in the buffers of the last ones where they fit."""
        before, self.last_seeds, self.within = self.last_seeds, {}, None
        for a, shadow in seeds.items():
            kept = before.get(a)
            if kept is None or kept.shape != shadow.data.shape:
                kept = capture_log.copy(shadow.data)
            else:
                capture_log.move(kept, shadow.data)
            self.last_seeds[a] = kept

    def retrace(
        self,
        observe: Observer | None,
        before: Observer | None = None,
        seeds: Mapping[Allocation, Any] | None = None,
        step: Step = reverse,
    ) -> Workspace:
        """Walk with the seeds of the last `backward`, or with the bytes in `seeds`, publishing nothing.

        `before(event, space)` is called before, `observe(event, space)` after every step, which `step` takes. Raises
        GradientError on a tape with `record_func`: to look must not call a function of the user's again.
        """
        capture_log.refuse("Looking at a tape")
        for event in self.events:
            if event.kind.calls_back:
                text = f"a tape with record_func({event.label}) cannot be walked again to look at it."
                instead = "tape.backward(loss)   which calls the function"
                raise GradientError(text, slug="func-replay", where=event.where, instead=instead)
        with memory.LOCK, memory.unrecorded():
            given = self.last_seeds if seeds is None else seeds
            space = Workspace({a: Shadow(a, start=data) for a, data in given.items()})
            return walk(self, space, observe, before, step=step, only=self.within if seeds is None else None)[0]

    def adjoint(self, a: array, at: Event | None = None) -> np.ndarray:
        """The adjoint of an array's memory during the reverse pass with the seeds of the last `backward`.

        at=None: by what the last event of the tape left in it. at=event: by its contents just before that event.
        Returns a new NumPy array of shape (*a.shape, *components). Raises GradientError before any `backward`.
        """
        return self.adjoints(a, [at])[0]

    def adjoints(self, a: array, at: Sequence[Event | None]) -> list[np.ndarray]:
        """`adjoint(a, event)` for each of these events, in their order, from one walk."""
        if not self.last_seeds:
            text = "adjoint() before any backward(): there is no seed."
            raise GradientError(text, slug="no-seed", instead="tape.backward(loss), then tape.adjoint(a)")
        check_seed(self, a)
        self.refuse_inactive(a)
        known = {id(e) for e in self.events}
        for event in at:
            if event is not None and id(event) not in known:
                text = f"adjoint(..., at={event!r}): that is no event of this tape."
                raise GradientError(text, slug="event", instead="at=tape.events[k]")
        place = self.log.last_writer(a.span) if None in at else None
        wanted = {id(event) for event in at if event is not None}
        found: dict[int | None, np.ndarray] = {}

        def take(key: int | None, space: Workspace) -> None:
            g = shadow_view(a, space[a.allocation])
            found[key] = on_host(g) if a.device.is_cuda else g.copy()

        space = self.retrace(
            lambda event, space: take(id(event), space) if id(event) in wanted else None,
            lambda event, space: take(None, space) if event is place else None,
        )
        if None in at and None not in found:
            take(None, space)
        return [as_read(self, found[None if event is None else id(event)]) for event in at]

    def refuse_inactive(self, a: array) -> None:
        """Raise GradientError [not-active] if results depend on `a`, but nothing asked for a derivative by it."""
        if a.allocation in self.active or not is_float_memory(a):
            return
        for event in self.events:
            if event.reverse is not None and any(span.overlaps(a.span) is not False for span in event.reads):
                text = f"{self.names.called(a)} is on no active path of this tape: its adjoint was not followed."
                why = "Zero would be wrong: what reads it goes on to results with a gradient."
                instead = "x.requires_grad = True   before the tape records"
                raise GradientError(text, slug="not-active", where=event.where, why=why, instead=instead)

    @property
    def gradients(self) -> TapeGradients:
        """{array: its gradient} for every array of the tape that has one.

        An instance of a struct is a key too: `tape.gradients[s].x` is the gradient of its array `x`, None without one.
        """
        return TapeGradients({a: a.grad for a in self.arrays.values() if a.grad is not None})

    @property
    def launches(self) -> list[Event]:
        """The recorded launches, in order."""
        return [e for e in self.events if e.kind is LAUNCH]

    def zero(self) -> None:
        """Set the gradients of every array of this tape to zero."""
        around = memory.recorder()
        with memory.LOCK, memory.unrecorded():
            notes = capture_log.active_capture()
            begun = notes is None or self in notes.begun
            if notes is not None and not begun:  # a replay clears what the tape holds at the end of the block
                notes.zeroed.setdefault(self, []).append(len(notes.steps))
            for grad in gradients_of(self):
                grad.close_view()
                if around is not None and grad in around.active:
                    around.cleared(grad)
                if grad.blank != grad.version or grad.exposed or notes is not None:
                    grad.about_to_be_noted()
                    if grad.watchers:
                        with capture_log.paused():
                            grad.about_to_write(grad.span(), "tape.zero()", None, around)
                    with capture_log.allowed() if begun else capture_log.paused():
                        capture_log.move(grad.bytes)
                    if notes is not None and begun:
                        notes.cleared.add(grad)
                        notes.written.setdefault(grad, {})[grad.span()] = "tape.zero()"
                    grad.version += 1
                    grad.blank = grad.version
                    grad.mark_published()
                    grad.publisher = _CLEARED
                grad.read_at = 0

    def reset(self) -> None:
        """Forget every event and zero the gradients."""
        self.zero()
        self._clear()

    def __len__(self) -> int:
        return len(self.events)

    def __bool__(self) -> bool:
        return True

    def show(self, against: object = None) -> Any:
        """The static picture of the tape: lanes of memory by launches, with a table beside it.

        against   another pass, drawn over this one in outline; where both differ by more than rounding this one has
                  another colour, and the first launch and lane where they part carry both numbers. A tape (before and
                  after a fix, float32 and float64), what `backward(..., pitfall=)` returned, or other seeds of this
                  tape: {array: seed}, or an array of one element. What only one of both has is drawn, and said.

        >>> @wb.kernel
        ... def pull(x: wb.array[float], k: float, f: wb.array[float]):
        ...     i = wb.tid()
        ...     f[i] = -k * x[i]
        >>> def run(k):
        ...     x, f = wb.ones(3, requires_grad=True), wb.zeros(3)
        ...     with wb.Tape() as tape:
        ...         wb.launch(pull, dim=3, inputs=[x, k], outputs=[f])
        ...     tape.backward(grads={f: wb.ones(3)})
        ...     return tape
        >>> picture = run(2.0).show(against=run(2.5))
        >>> "f[0]: -2 instead of -2.5" in picture.text
        True
        """
        return self._ask("show", None, against)

    def explore(self, against: object = None, film: object = None) -> Any:
        """The live picture: a widget with a reverse cursor, heat-maps, ledger, microscope. `against` as in `show`.

        film   True, points, or a dict of the arguments of `film`: the film above the lanes, on the same cursor."""
        return self._ask("explore", None, against, film=film)

    def film(self, points: object = None, **choices: object) -> Any:
        """Return the film of the simulation with its adjoints in it: a widget to play and scrub. `film.save(path)`.

        points   an array of vec2 or vec3; several that take turns (buffers that are swapped, a history) as a list.
        lines    pairs of numbers of points, mesh=(x, triangles) triples: arrays of integers, of the workbench or NumPy.
        field    a 2-D or 3-D array of numbers: its values beside its adjoint.
        arrows   "adjoint" (minus that of the points: where the loss falls), ("adjoint", v), an array of vectors, None.
        colour   an array with a number for each point, line or triangle; ("adjoint", a) or a.grad for its adjoint.
        points, colour and arrows may each be a function of the state at a frame that returns what is drawn, an array of
        as many rows in each: `colour=lambda s: s.act - s.rest`. `s.act` are the values of the array of that name then.

        every    each so many steps of the loop are a frame; view: "2d" or "3d".
        against  another tape, whose points and field at the same steps are a ghost: play stops where the two part.

        Without points, mesh and field it draws what it finds, and says so. Values are those that the tape kept, or of
        the recorded program run again; adjoints come from one walk. Raises LaunchError for what it cannot draw.

        >>> @wb.kernel
        ... def drift(x: wb.array[wb.vec2]):
        ...     i = wb.tid()
        ...     x[i] = 1.1 * x[i]
        >>> x = wb.ones(5, dtype=wb.vec2, requires_grad=True)
        >>> with wb.Tape() as tape:
        ...     for _ in range(10):
        ...         wb.launch(drift, dim=5, inputs=[x])
        >>> tape.film(x).values("points").shape  # before each of 10 steps, and behind them; 5 points; 2 components
        (11, 5, 2)
        """
        return self._ask("film", points, **choices)

    def to_html(self, path: object, against: object = None, **choices: object) -> Any:
        """Write the live picture as one file that needs no kernel and no network. Returns the path.

        `against` as in `show`; cells=[(array, index)] and threads=[(launch, thread)] say whose ledgers and
        microscopes are in it."""
        return self._ask("to_html", path, against=against, **choices)

    def ledger(self, a: array, index: object = (), at: object = None) -> Any:
        """The origin of the gradient of one element of `a`: signed contributions that sum to it.

        index   of the element, then of the component of a vector or matrix; the path of a field for structs.
        at      the moment, as in `adjoint`; "start" for the derivative by what the array held when the tape started.
        """
        return self._ask("ledger", a, index, at)

    def microscope(self, event: Event, thread: object) -> Any:
        """One thread of one launch, statement by statement: values on the way down, adjoints on the way back."""
        return self._ask("microscope", event, thread)

    def seeds(self, y: array) -> Any:
        """The seeding panel: gradients of one element of `y` at a time, each a row of a Jacobian picture."""
        return self._ask("seeds", y)

    def replay(self, inputs: Mapping[Any, Any] | None = None) -> Any:
        """Run the recorded program again on new inputs {x: values}, on private copies: a new tape, `again[y]`."""
        return self._ask("replay", inputs)

    def diagnose(
        self, loss: array | None = None, grads: dict[array, array] | None = None, *, against: Tape | None = None
    ) -> Any:
        """Findings about this tape and its gradients: slug, severity, launch, line, sentence, fix. Publishes nothing.

        The adjoints looked at are those of `loss` or `grads`, else of the last `backward`.

        against   another tape of what should be the same program: then the only finding is the first launch at which
                  the two part (`parted`), with the array and the numbers there and here, and what is different about
                  the launch: an argument, the grid, the kernel, a launch too few. Rounding does not count.

        >>> @wb.kernel
        ... def move(v: wb.array[float], dt: float, q: wb.array[float]):
        ...     i = wb.tid()
        ...     q[i] = q[i] + dt * v[i]
        >>> def run(dt):
        ...     q, v = wb.zeros(3, requires_grad=True), wb.ones(3)
        ...     with wb.Tape() as tape:
        ...         wb.launch(move, dim=3, inputs=[v, 0.5], outputs=[q])
        ...         wb.launch(move, dim=3, inputs=[v, dt], outputs=[q])
        ...     return tape
        >>> (found,) = run(0.5).diagnose(against=run(0.25))
        >>> found.launch, found.arrays
        ('#1 move', ('q',))
        >>> found.sentence
        'the runs part here: dt is 0.5 here, 0.25 there; it writes q[0] = 1 here, 0.75 there, and 2 more numbers.'
        """
        if against is not None:
            return self._ask("against", against)
        return self._ask("diagnose", loss, grads)

    def trust(self, loss: array, x: object = None, executor: object = None, progress: bool = True) -> Any:
        """Return how far the gradient of a loss can be followed by moving x (one array or several), as a `Trust`."""
        return self._ask("trust", loss, x, executor, progress)

    def memory(self) -> Any:
        """The bytes this tape holds, by whom and why."""
        return self._ask("memory")

    def __copy__(self) -> Tape:
        """A tape like this one, on memory of its own; so is a deep copy."""
        return ask("duplicate", self)

    def __deepcopy__(self, memo: dict) -> Tape:
        return ask("duplicate", self)

    def _ask(self, question: str, *args: object, **choices: object) -> Any:
        capture_log.refuse(f"tape.{question}()")
        for tape in (self, *args, *choices.values()):
            if isinstance(tape, Tape):
                tape.names.note(sys._getframe(2))  # as the program of our caller calls the arrays
        self.names.guess()
        return ask(question, self, *args, **choices)


place_absent(Tape, "a tape", _MEANT)


class StructGradient:
    """The gradients of the arrays and declared scalars of a struct instance, under the names of the fields."""

    def __init__(self, of: Instance, known: dict[array, array]):
        self._name, self._fields = struct_of(of).name, {}
        for name, type in struct_of(of).fields:
            part = getattr(of, name)
            if isinstance(part, Instance):
                self._fields[name] = StructGradient(part, known)
            elif isinstance(type, Array) or isinstance(part, scalar):
                self._fields[name] = known.get(part.memory if isinstance(part, scalar) else part)

    def __bool__(self) -> bool:
        return any(bool(f) if isinstance(f, StructGradient) else f is not None for f in self._fields.values())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            have = ", ".join(self._fields) or "none"
            raise AttributeError(
                f"the gradient of a {self._name} has no {name!r}: there are those of its arrays and scalars ({have}). "
                f"For the gradient of a number write s.{name} = wb.scalar(value, requires_grad=True)"
            )
        return self._fields[name]

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{name}={part!r}' for name, part in self._fields.items())})"


class TapeGradients(dict):
    """{array: its gradient}; an instance of a struct is a key too, where one of its arrays is."""

    def __missing__(self, key: object) -> StructGradient:
        found = StructGradient(key, self) if isinstance(key, Instance) else None
        if found is None or not found:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (isinstance(key, Instance) and bool(StructGradient(key, self)))

    def get(self, key: object, default: object = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

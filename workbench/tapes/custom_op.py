"""`custom_op`: a function of NumPy arrays, with the derivative that its author knows, as one event of a tape.

The rules get the values that the event saw and left, whatever has happened to the arrays since: what it read and wrote
is kept like the operands of a launch. They are functions of their arguments alone, so a walk that only looks may call
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.allocation import Allocation
from ..arrays.array import array, new_array, on_device, read_values
from ..arrays.dtypes import is_half
from ..arrays.host_copies import write_array
from ..arrays.workspace import Shadow, Workspace, add_into, is_float_memory, shadow_view
from ..device import on_host
from ..errors import GradientError, LaunchError, Where
from ..kernels.types import scalar_of
from .events import Event, clock
from .jvp import components, shadow_of, value_of
from .kinds import OP
from .recording import Recording
from .reverse import late

Rule = Callable[..., Any]
Memories = Mapping[Allocation, Shadow]  # copies of what memory held
_OURS = __name__.partition(".")[0] + "."


class CustomOp:
    """A function of arrays with rules for its derivatives: what `custom_op` makes.

    >>> @wb.custom_op
    ... def double(x):
    ...     return 2.0 * x
    >>> double(wb.ones(2)).list()
    [2.0, 2.0]
    """

    def __init__(self, forward: Rule, name: str = "", vjp: Rule | None = None, tangent: Rule | None = None):
        self.forward, self.pull, self.along = forward, vjp, tangent
        self.push: Rule | None = None
        self.__name__, self.__doc__ = name or getattr(forward, "__name__", "op"), forward.__doc__

    def vjp(self, rule: Rule) -> Rule:
        """Decorator: `rule(*arguments, *results, *adjoints)` returns one gradient for each array argument, or None."""
        self.pull = rule
        return rule

    def jvp(self, rule: Rule) -> Rule:
        """Decorator: `rule(*arguments, *results, *tangents)` returns one tangent for each result.

        There is one tangent for each array argument: zeros for what has none.
        """
        self.push = rule
        return rule

    def tangent(self, rule: Rule) -> Rule:
        """Decorator: in place of `jvp` a rule of arrays, by launches and custom ops, so that `hvp` is exact as well.

        It takes the arguments, results and tangents as arrays, and returns arrays, or None for a zero.
        """
        self.along = rule
        return rule

    def push_rule(self, dtypes: Sequence[Any]) -> Rule | None:
        """The rule for tangents, on numbers: with `tangent` they become arrays of these dtypes (None: their own)."""
        if (along := self.along) is None:
            return self.push

        def of_numbers(*given: object) -> list[Any]:
            arrays = [array(v, dtype=t) if isinstance(v, np.ndarray) else v for v, t in zip(given, dtypes, strict=True)]
            return [None if t is None else read_values(t) for t in listed(along(*arrays))]

        return of_numbers

    def evaluate(self, args: Sequence[object], tape: Recording | None) -> tuple[Any, Any]:
        """The results, and where `tape` follows them an object with `pull` and `push` if the call has its own rules."""
        return self.forward(*_plain(args)), None

    def again(self, call: OpCall, tape: Recording | None) -> Callable[[], tuple[Any, Any]]:
        """A function that evaluates a call anew, on what its arrays hold by then."""
        return lambda: self.evaluate(call.args, tape)

    def aside(self) -> CustomOp:
        """The same function for runs on copies, which leave nothing of the user's changed."""
        return self

    def carry(self, call: OpCall, tangents: Sequence[array], where: Where | None) -> list[Any]:
        """The tangents of a call's results by those of its arrays, all arrays: by the rule of `tangent`."""
        assert self.along is not None
        return listed(self.along(*call.args, *call.outs, *tangents))

    def __call__(self, *args: object, **named: object) -> Any:
        if named:
            text = f"{self.__name__}() takes its arguments in order."
            raise LaunchError(text, slug="custom-op", instead=f"{self.__name__}(x, value), without names")
        args = tuple(map(_by_value, args))
        ins = [a for a in args if isinstance(a, array)]
        if not ins:
            text = f"{self.__name__}(...) without an array."
            raise LaunchError(text, slug="custom-op", instead=f"{self.__name__}(wb.array(...))")
        with memory.LOCK:
            tape = memory.recorder()
            # what a replay calls again need not be what it was
            with memory.unrecorded(), capture_log.paused(), capture_log.following(None):
                follow = tape if tape is not None and tape.follows(ins) else None
                heard = memory.heard.set(read := [])
                try:
                    given, rules = self.evaluate(args, follow)
                finally:
                    memory.heard.reset(heard)
                outs = [_made(self.__name__, v, ins[0]) for v in listed(given)]
            call = OpCall(self, args, ins, outs, rules)
            if not str(getattr(self.forward, "__module__", "")).startswith(_OURS):
                call.read = [a for a in read if not any(a.allocation is b.allocation for b in ins)]
            if (notes := capture_log.active_capture()) is not None:
                call.repeat(notes, follow)
            if tape is not None:
                call.record(tape)
            elif memory.open_tapes:
                memory.tell_others(ins, outs)
        return tuple(outs) if isinstance(given, tuple | list) else outs[0]


class OpCall:
    """One call of a custom op under a tape."""

    def __init__(self, op: CustomOp, args: tuple[object, ...], ins: list[array], outs: list[array], rules: Any = None):
        self.op, self.args, self.ins, self.outs, self.rules = op, args, ins, outs, rules
        self.read: list[array] = []  # by the function, though they are no arguments
        self.followed: set[Allocation] = set()  # memory on an active path when it was recorded

    def repeat(self, notes: capture_log.CaptureRecorder, follow: Recording | None) -> None:
        """Call the function again in each replay, on what its arrays hold then: the results take the same memory."""
        capture_log.reads(*self.ins)
        for a in self.outs:
            notes.made.add(a.allocation)
            a.allocation.about_to_write(a.span, self.op.__name__)
        evaluate = self.op.again(self, follow)

        def again() -> None:
            with memory.unrecorded():
                found, self.rules = evaluate()
            self._write(found, None)

        notes.steps.append(again)

    def record(self, tape: Recording) -> None:
        """Enter it in the tape, as having read `ins` and written `outs`."""
        reads, writes = tuple([a.span for a in self.ins]), tuple([a.span for a in self.outs])
        frame, arrays = memory.caller_frame(), (*self.outs, *self.ins)
        place = None if frame is None else (frame.f_code, frame.f_lasti)
        event = Event(next(clock), OP, self.op.__name__, place, reads, writes, arrays=arrays)
        event.op = self
        needed, count, fresh = tape.needed, len(self.outs), []  # `fresh`: not known to this tape as active
        for n, a in enumerate(self.ins, count):
            owner, span = a.allocation, a.span
            if owner.origins is not None:
                tape.border.meet(span)
            if id(a) in needed.followed and not tape.muted:
                self.followed.add(owner)
            else:
                fresh.append(a)
                if (is_float_memory(a) and tape.follows([a])) or (a.is_gradient and tape.meets_gradient(a, place)):
                    self.followed.add(owner)
                    tape.log.activate(a, event.label)
            needed.need(span, event, n)
        event.followed = bool(self.followed) and any(map(is_float_memory, self.outs))
        if needed.guarded:
            needed.check_left(event)
        needed.keep_before(event)
        for n, a in enumerate(self.outs):
            needed.need(a.span, event, n)
            needed.notes(a.allocation).begun = True
            if event.followed and is_float_memory(a):
                tape.log.activate(a, event.label)
        others = (*(a for a in self.args if not isinstance(a, array)), self.read)
        event.constants = tape.host.of_constants(others, self.outs)
        tape.events.append(event)
        tape.host.note_constants(event, self.outs if event.constants else ())
        needed.remember_left(event)
        for a in (*self.outs, *fresh):
            tape.arrays[id(a)] = a
            if getattr(a.dtype, "scalar", self) is tape.scalars.get(a.allocation):
                needed.followed[id(a)] = None

    def on(self, copy: Callable[[array], array]) -> OpCall:
        """The same call on copies of its arrays."""
        args = tuple(copy(a) if isinstance(a, array) else a for a in self.args)
        return OpCall(self.op.aside(), args, [copy(a) for a in self.ins], [copy(a) for a in self.outs])

    def run(self, record: bool) -> None:
        """Call the function again, and write what it returns to `outs`: recorded where a tape is open, if so asked."""
        tape = memory.recorder() if record else None
        with memory.unrecorded():
            found, self.rules = self.op.evaluate(self.args, tape if tape and tape.follows(self.ins) else None)
        if tape is not None:
            self.record(tape)
        self._write(found, tape)

    def _write(self, found: object, tape: Recording | None) -> None:
        """Write what the function returned now to `outs`. Raises LaunchError [custom-op] where it does not fit."""
        values, places = [np.atleast_1d(v) for v in listed(found)], [a.data for a in self.outs]
        if len(values) != len(places) or not all(map(_alike, values, places)):
            was, now = ([(v.dtype.name, v.shape) for v in vs] for vs in (places, values))
            text = f"{self.op.__name__} returned other shapes or types when it was called again: {now}, not {was}."
            raise LaunchError(text, slug="custom-op", why="What follows works on the same arrays.")
        memory.about_to_write([a.span for a in self.outs], self.op.__name__, tape)
        for a, p, v in zip(self.outs, places, values, strict=True):
            p[...] = on_device(a, v)

    def verify(self, where: Where | None) -> None:
        """Raise GradientError [custom-op] if the function, called again on the same, returns something else."""
        for a, v in zip(self.outs, listed(self.op.aside().evaluate(self.args, None)[0]), strict=True):
            was = read_values(a)
            if not np.allclose(v, was, 1e-4, 1e-6 * np.abs(was).max(initial=0), equal_nan=True):
                text = f"{self.op.__name__} returned something else when it ran again."
                raise GradientError(text, slug="custom-op", where=where, instead="a function of its arguments alone")

    def carry(self, moved: OpCall, where: Where | None) -> None:
        """Write the tangents of the results by those of the arrays: `moved` is the call with these in their place.

        Raises GradientError [hvp-half].
        """
        if any(is_half(a.dtype) for a in (*self.ins, *self.outs)):
            text = f"{self.op.__name__} takes or returns a float16, whose tangent is wider than it."
            raise GradientError(text, slug="hvp-half", where=where, instead="wb.array(values, dtype=float)")
        for a, t in zip(moved.outs, self.op.carry(self, moved.ins, where), strict=True):
            if t is not None and is_float_memory(a):
                write_array("copy", a, t)

    def pull_back(self, tape: Recording, event: Event, space: Workspace, after: Memories) -> None:
        """Add to the adjoints of what it read those of what it wrote, which are cleared."""
        self._refuse_late(tape, event, [a for a in self.ins if a.allocation.required and is_float_memory(a)])
        if not any(a.allocation in space for a in self.outs if is_float_memory(a)):
            return
        shadows = [shadow_of(a, space) if is_float_memory(a) else None for a in self.outs]
        wanted = [a.allocation in self.followed for a in self.ins]

        def found() -> Sequence[Any]:
            seeds = [None if g is None else np.array(on_host(g)) for g in shadows]
            for g in shadows:
                if g is not None:
                    g[...] = 0
            if not event.followed:
                return [None] * len(self.ins)
            if self.rules is not None:
                return self.rules.pull(event, seeds, wanted)
            return self._called(event, self.op.pull, "vjp", after, seeds, self.ins)

        def add(found: Sequence[Any]) -> None:
            for a, g, to, want, straight in zip(self.ins, found, views, wanted, alone, strict=True):
                if g is None:
                    continue
                if to is not None and straight and type(g) is type(to) and (g.shape, g.dtype) == (to.shape, to.dtype):
                    to += g
                elif to is not None:
                    add_into(to, on_device(a, np.asarray(g, to.dtype)), a.span)
                elif want:
                    text = f"the vjp of {self.op.__name__} returned a gradient where it had returned None."
                    raise GradientError(text, slug="custom-op", where=event.where, instead="zeros for a zero")

        with capture_log.paused():
            first = found()
        triples = zip(self.ins, first, wanted, strict=True)
        views = [shadow_of(a, space) if g is not None and want else None for a, g, want in triples]
        alone = [not a.span.self_overlapping for a in self.ins]
        with capture_log.paused():
            add(first)
        if (notes := capture_log.active_capture()) is not None:
            notes.steps.append(lambda: add(found()))

    def push_forward(self, tape: Recording, event: Event, space: Workspace, after: Memories) -> None:
        """Carry the tangents of what it read on to what it wrote."""
        moved = [a for a in self.ins if is_float_memory(a) and a.allocation in space]
        self._refuse_late(tape, event, moved)
        if not moved or not event.followed:
            return
        known = {id(a) for a in moved}
        tangents = [value_of(a, space) if id(a) in known else np.zeros((*a.shape, *components(a))) for a in self.ins]
        rule = self.op.push_rule([getattr(a, "dtype", None) for a in (*self.args, *self.outs, *self.ins)])
        own = self.rules
        found = own.push(event, tangents) if own else self._called(event, rule, "jvp", after, tangents, self.outs)
        for a, t in zip(self.outs, found, strict=True):
            if is_float_memory(a):
                view = shadow_of(a, space)
                view[...] = 0 if t is None else on_device(a, np.asarray(t, view.dtype))

    def _called(
        self, event: Event, rule: Rule | None, kind: str, after: Memories, given: Sequence[object], wanted: list[array]
    ) -> Sequence[Any]:
        """The values of a rule, one for each of `wanted`. Raises GradientError [custom-op], [jvp-func]."""
        name = self.op.__name__
        if rule is None:
            slug, instead = "jvp-func" if kind == "jvp" else "custom-op", f"@{name}.{kind} above its rule"
            raise GradientError(f"{name} has no {kind}.", slug=slug, where=event.where, instead=instead)
        results = [np.array(on_host(shadow_view(a, after[a.allocation]))) for a in self.outs]
        with memory.unrecorded():
            found = listed(rule(*_plain(self.args), *results, *given))
        shapes = [(*a.shape, *components(a)) for a in wanted]
        got = [None if v is None else np.shape(v) for v in found]
        if len(got) != len(shapes) or any(have not in (None, s) for have, s in zip(got, shapes, strict=True)):
            text = f"the {kind} of {name} returned {', '.join(map(str, got))}."
            why = f"It returns arrays of shape {', '.join(map(str, shapes))}, or None for a zero."
            raise GradientError(text, slug="custom-op", where=event.where, why=why, instead="return dx, dy")
        return found

    def _refuse_late(self, tape: Recording, event: Event, arrays: Sequence[array]) -> None:
        for a in arrays:
            if a.allocation not in self.followed:
                raise late(tape.names.called(a), event)


def _alike(a: Any, b: Any) -> bool:
    """True if two arrays are of one shape and type, be it with other orders of bytes."""
    return a.shape == b.shape and (a.dtype == b.dtype or a.dtype.name == b.dtype.name)


def _by_value(a: Any) -> Any:
    """An argument as it is now: NumPy arrays, also in lists and tuples, as copies."""
    if type(a) in (list, tuple):
        return type(a)(map(_by_value, a))
    return a.copy() if isinstance(a, np.ndarray | dict) else a


def _plain(args: Sequence[object]) -> list[Any]:
    """The arguments, with NumPy copies of arrays."""
    return [np.array(read_values(a)) if isinstance(a, array) else a for a in args]


def _made(name: str, given: Any, beside: array) -> array:
    """A new array beside another, of values that an op returned. Raises LaunchError [custom-op] for what are none."""
    values = np.atleast_1d(given)
    try:
        dtype = scalar_of(values.dtype)
    except TypeError:
        text, instead = f"{name}() returned {given!r}"[:120], "return y   with a NumPy array y, or a tuple of them"
        raise LaunchError(text, slug="custom-op", instead=instead) from None
    made = new_array(values.shape, dtype, beside.device, zeroed=False)
    made.data[...] = on_device(made, values)
    return made


def listed(found: object) -> list[Any]:
    """The values that a function returned, one or several."""
    return list(found) if isinstance(found, tuple | list) else [found]


def custom_op(forward: Callable[..., Any]) -> CustomOp:
    """Decorator: a function of NumPy arrays that is one event of a tape, with the derivatives that you give it.

    forward   gets its arguments in order: arrays as NumPy arrays (copies), all else as it is. It returns a NumPy
              array, or a tuple of them, which become new arrays of their shapes (a number: of one element) and types.
              It must depend on its arguments alone; SciPy, torch and the like may work inside. Arguments that are no
              arrays count as they are at the call. What it reads of other arrays has no adjoint: [host-values].
    `op.vjp` and `op.jvp` take the rules; without the first a walk that comes to the op is refused, without the second
    `jvp` is. A rule gets the arguments, then the results, then one adjoint for each result (one tangent for each array
    argument), all NumPy arrays, an adjoint of whole numbers None. `wb.verify.check_rule(op, *arguments)` compares the
    rules with differences.

    A walk may call a rule any number of times: pictures and ledgers do. `replay` and `trust` call the function again,
    on copies, and so may steps of a `checkpoint`. Each replay of a capture, and of a `jit` function, calls the function
    and the rules again, on what the arrays hold then: results must have the shapes and types of before. Pickles refuse
    it, and so does `hvp` where there is no `op.tangent`. For a step that writes to arrays there are there is
    `Tape.record_func`. Raises LaunchError [custom-op]; in walks GradientError [custom-op].

    >>> @wb.custom_op
    ... def cumulated(x):
    ...     return np.cumsum(x)
    >>> @cumulated.vjp
    ... def cumulated_vjp(x, y, adj):
    ...     return np.cumsum(adj[::-1])[::-1]
    >>> x = wb.array([1.0, 2.0, 3.0], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     y = cumulated(x)
    >>> tape.backward(grads={y: wb.ones(3)})
    >>> y.list() == [1, 3, 6], x.grad.list() == [3, 2, 1]
    (True, True)
    """
    return CustomOp(forward)

"""`@wb.jit`: a function that launches is recorded at its second call and replayed from the third on.

A call goes one of four ways. *Plainly*: the first time with arguments of this form, under a tape or in a capture, when
it is switched off, and where a tape in it reads what another one in it wrote, as each run has to see where a gradient
stops. *Captured*: the next time; it has to make the launches of the first call with the same numbers. *Replayed* on the
arrays of the capture, if given again. *Replayed on copies*: others are copied in, and what was written is copied back.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from types import MethodType
from typing import Any, TypeVar, overload

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, array_on
from ..arrays.copying import duplicate
from ..config import config
from ..errors import GradientError, LaunchError
from ..kernels.lru import RecentlyUsed
from ..kernels.program import Kernel
from .call_arguments import CallArguments, CallScript, bound, pass_origins, refusal, stand_ins, with_arrays
from .capture import Capture, Graph
from .python_state import Link, PythonState

MOST = 16  # forms of arguments that are kept, and sets of arrays of each
SEEN = 64  # sets of arrays of one form that are known again
R = TypeVar("R")


class CallCopies:
    """Memory of a recording, which wrote what `notes` say, in place of the arrays of a call."""

    def __init__(self, own: CallArguments):
        self.own = own
        self.notes: capture_log.CaptureRecorder | None = None

    def meet(self, call: CallArguments) -> None:
        """Note which tapes wrote the arrays of a call."""
        for a, s in zip(call.arrays, self.own.arrays, strict=True):
            if s.allocation.origins:
                s.allocation.forget_origins(s.span)
            pass_origins(a, s)

    def copy_in(self, call: CallArguments) -> None:
        """Copy the arrays of a call, and their gradients."""
        for a, s in zip(call.arrays, self.own.arrays, strict=True):
            s.data[...] = a.data
            s.allocation.version += 1
            if a.requires_grad and (a.allocation.grad is not None or s.allocation.grad is not None):
                grad = s.allocation.gradient()
                s.grad.data[...] = a.grad.data  # type: ignore[union-attr]
                grad.version += 1
                grad.mark_published()

    def copy_out(self, call: CallArguments) -> None:
        """Copy back what was written, to the arrays of a call and their gradients."""
        written = {} if self.notes is None else self.notes.written
        for a, s in zip(call.arrays, self.own.arrays, strict=True) if written else ():
            memory, by = a.allocation, a.span.offset - s.span.offset
            for span, what in written.get(s.allocation, {}).items():
                memory.about_to_write(span.on(memory, by), what)
            if s.allocation in written:
                a.data[...] = s.data
            to, source = (a.grad, s.grad) if s.allocation.grad in written else (None, None)
            if to is not None and source is not None:
                grad = memory.gradient()
                grad.about_to_write(to.span, "backward()")
                to.data[...] = source.data
                grad.forget_written(to.span)
                grad.publisher = s.allocation.gradient().publisher
            pass_origins(s, a)
            for span, text in s.allocation.grad_notes.items():
                memory.grad_notes[span.on(memory, by).weak()] = text

    def original(self, a: array, call: CallArguments) -> array:
        """The array of a call, or on its memory, for which an array on ours stands."""
        for b, s in zip(call.arrays, self.own.arrays, strict=True):
            if a is s:
                return b
            if s.requires_grad and a is s.grad and b.grad is not None:
                return b.grad
            if a.allocation is s.allocation.grad:
                memory, shift = b.allocation.gradient(), b.allocation.gradient_span(b.span).offset
                shift -= s.allocation.gradient_span(s.span).offset
            elif a.allocation is s.allocation:
                memory, shift = b.allocation, b.span.offset - s.span.offset
            else:
                continue
            return array_on(memory, a.dtype, a.shape, a.strides, a.span.offset + shift)
        return a


class CapturedCall:
    """A captured call: its graph, what the function returned, and the copies on which it works, if it does."""

    def __init__(self, graph: Graph, result: object, script: CallScript, copies: CallCopies | None):
        self.graph, self.result, self.copies, self.own = graph, result, copies, script.own
        self.held = script.call.held
        self.programs = [p for p in script.programs if p.kernel is not None]

    def current(self, call: CallArguments) -> bool:
        """True if its kernels are read as they would be now, and nothing else that it rests on has changed."""
        try:
            self.graph.check()
        except (LaunchError, GradientError):
            return False
        if self.copies is not None:
            fixed = any(s.allocation in self.graph.notes.fixed for s in self.copies.own.arrays)
            if fixed or any(bound(a, self.own) for a in call.arrays):
                return False
            self.copies.meet(call)
        if any(not run.alive for _, met in self.graph.foreign() for _, run in met):  # which a plain run tells, once
            return False
        return all(p.kernel.reads(p) for p in self.programs)

    def replay(self, call: CallArguments) -> Any:
        """Repeat it for a call of the same form. Returns the function's result."""
        with ExitStack() as stack:
            if self.copies is not None:
                self.copies.copy_in(call)
                stack.callback(self.copies.copy_out, call)
            self.graph.replay()
        return self.returned(call)

    def returned(self, call: CallArguments) -> Any:
        """The function's result, with copies of the arrays that it made, as a replay writes to these again."""
        memo: dict[Any, Any] = {}

        def handed(a: array) -> array:
            if a.allocation in self.graph.notes.made:
                owner = getattr(a.allocation, "of", None) or a.allocation
                copied = duplicate(owner, memo) if owner is a.allocation else duplicate(owner, memo).gradient()
                made = array_on(copied, a.dtype, a.shape, a.strides, a.span.offset)
                pass_origins(a, made)
                return made
            return a if self.copies is None else self.copies.original(a, call)

        given = {id(own): thing for own, thing in zip(self.held, call.held, strict=True)}
        return with_arrays(self.result, handed, given)


class CallForm:
    """The memory of calls whose arguments have one form.

    changing   labels of what the first call changed in Python.
    plain      True if nothing is replayed. reached: `reach` of the first call.
    seen       serials of arrays that were given; `adopted`: serials -> the recording on these arrays.
    """

    def __init__(self, call: CallArguments, state: PythonState, script: CallScript, changing: list[str]):
        self.objects, self.parts = call.objects, call.parts  # objects by whose id the form is found stay alive
        self.state, self.script, self.changing = state, script, changing
        self.seen = RecentlyUsed(SEEN)
        self.seen.enter(call.serials, None)
        self.adopted = RecentlyUsed(MOST)
        self.copied: CapturedCall | None = None
        self.plain, self.reached = False, self.reach(call)

    def reach(self, call: CallArguments) -> list[bool]:
        """For each array of a call whether the function reaches its memory without it, too."""
        return [a.allocation in self.state.memories for a in call.arrays]

    def find(self, call: CallArguments) -> CapturedCall | None:
        """The recording that serves a call; None if there is none, or not a current one."""
        found = self.adopted.find(call.serials) or (None if call.serials in self.seen else self.copied)
        return found if found is not None and found.current(call) else None


class Jit:
    """A function that is recorded and replayed: what `jit` returns. `replays` counts."""

    def __init__(self, function: Callable[..., Any], off: bool = False):
        self.__name__ = "function"
        functools.update_wrapper(self, function)
        self.function, self.off, self.replays = function, off, 0
        self._forms = RecentlyUsed(MOST)
        self._renewed = 0  # calls that were first ones because Python's state had changed, since the last replay
        self._told: set[str] = set()

    def __repr__(self) -> str:
        return f"<jit of {self.__name__}: {len(self._forms)} forms of arguments, {self.replays} replays>"

    def __reduce__(self) -> Any:
        return Jit, (self.function, self.off)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        told = capture_log.told.script is not None or memory.heard.get() is not None or memory.recorder() is not None
        if self.off or told or capture_log.opened is not None or memory.open_tapes or not config.jit:
            return self.function(*args, **kwargs)
        call = CallArguments(args, kwargs)
        form = self._forms.find(call.form)
        if form is None or form.state.changes():
            return self._first(call, form)
        if form.plain:
            return self.function(*args, **kwargs)
        with memory.LOCK:  # what is found serves one call at a time
            if (found := form.find(call)) is not None:
                self.replays, self._renewed = self.replays + 1, 0
                return found.replay(call)
        if form.reach(call) != form.reached:
            return self._first(call, None) if any(form.reached) else self.function(*args, **kwargs)
        return self._captured(call, form)

    def _first(self, call: CallArguments, before: CallForm | None) -> Any:
        """Run it plainly and note what it does. `before`: what was known of the form, in another state of Python."""
        state = PythonState(self.function, call.objects)
        script = CallScript(self.__name__, call, state.memories)
        with capture_log.following(script):
            result = self.function(*call.args, **call.kwargs)
        left = self._left_changed(state)
        for again in [link for link in left if before is not None and link.label in before.changing]:
            raise self._refusal(state, again)
        self._count(call, before)
        self._forms.enter(call.form, CallForm(call, state, script, [link.label for link in left]))
        return result

    def _captured(self, call: CallArguments, form: CallForm) -> Any:
        """Run it in a capture, on the arrays themselves where they have come before, else on copies."""
        known = call.serials in form.seen
        form.seen.enter(call.serials, None)
        own = call if known else None if form.state.foreign else stand_ins(call, form.state.memories)
        copies = None if known or own is None else CallCopies(own)
        script = CallScript(self.__name__, own or call, form.state.memories, form.script)
        capture = Capture()
        with ExitStack() as stack:
            if copies is not None:
                copies.copy_in(call)
                stack.callback(copies.copy_out, call)
            with memory.LOCK:  # of several threads one captures
                if not (busy := own is None or capture_log.opened is not None):
                    stack.enter_context(capture)
            if own is None or busy:
                return self.function(*call.args, **call.kwargs)
            if copies is not None:
                copies.notes = capture_log.opened
            with capture_log.following(script):
                result = self.function(*own.args, **own.kwargs)
        script.complete()
        for link in self._left_changed(form.state):
            raise self._refusal(form.state, link)
        for thing in (t for _, t in CallArguments((result,), {}).objects if not isinstance(t, type)):
            text = f"it returns a {type(thing).__name__}, which a replay does not make."
            raise refusal(self.__name__, text, instead="arrays, numbers, and tuples, lists, dicts or structs of them")
        graph: Any = capture.graph
        wrapped = [memory.known_memory(n) for n in call.held if isinstance(n, np.ndarray)]
        between = any(run in graph.runs for tape in graph.tapes for _, run in tape.border.all_met())
        for tape in graph.tapes:
            if tape.local:
                tape.border.end()
        made = CapturedCall(graph, result, script, copies)
        returned = made.returned(call)  # before another thread can find it
        if between:
            form.plain = True
            text = f"a tape in @wb.jit {self.__name__} reads what another one in it wrote, so nothing is replayed:"
            self._tell("tapes", f"{text} one tape around both, or wb.detach(x) of what it reads, is replayed.")
        elif any(on is not None and on[0] in {**graph.notes.first, **graph.notes.written} for on in wrapped):
            form.plain = True
            self._tell("numpy", f"{self.__name__} wraps a NumPy array, so nothing is replayed: give wb.from_numpy(a).")
        elif own.changed(call):
            raise self._refusal(form.state, Link("an argument, or wb.config,", object, None))
        elif copies is None:
            form.adopted.enter(call.serials, made)
        else:
            form.copied = made
        return returned

    def _left_changed(self, state: PythonState) -> list[Link]:
        """The links that have changed since `state` was noted, less those that only count, which are told once."""
        changes = state.changes()
        counts = [link for link in changes if state.only_counts(link)]
        state.links = [link for link in state.links if link not in counts]
        for link in counts:
            text = f"{link.label} is changed in Python by @wb.jit {self.__name__}, which replays do not repeat."
            self._tell(link.label, text)
        return [link for link in changes if link not in counts]

    def _refusal(self, state: PythonState, link: Link) -> LaunchError:
        text = f"it changes {link.label} in Python, which a replay does not do."
        return refusal(self.__name__, text, state.place_of(link), instead=_INSTEAD)

    def _count(self, call: CallArguments, before: CallForm | None) -> None:
        """Warn once where nothing is replayed, as an argument or something in Python differs in each call."""
        if before is not None:
            self._renewed += 1
            changed = before.state.changes()
            if self._renewed == MOST and changed:
                self._tell("state", f"{changed[0].label} differs in each call of {_NEVER.format(self.__name__)}")
        elif len(self._forms) == MOST:
            parts = [form.parts for form in self._forms.values()]
            often = [path for path, part in call.parts.items() if len({repr(p.get(path)) for p in parts}) > MOST // 2]
            if often:
                self._tell("form", f"argument {often[0]} differs in each call of {_NEVER.format(self.__name__)}")

    def _tell(self, about: str, text: str) -> None:
        if about not in self._told:
            self._told.add(about)
            warnings.warn(f"{text} [jit]", stacklevel=5)


_INSTEAD = "arrays that launches write to; or that line outside of the function; or @wb.jit(off=True)"
_NEVER = "@wb.jit {}, so nothing is replayed: a one-element array, whose contents may change, is replayed."


@overload
def jit(function: Callable[..., R], *, off: bool = False) -> Callable[..., R]: ...
@overload
def jit(function: None = None, *, off: bool = False) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
def jit(function: Callable[..., Any] | None = None, *, off: bool = False) -> Any:
    """Decorate a function that launches: it is recorded at its second call and replayed from the third on.

    A replay costs about what its kernels do, with a tape and its `backward` in the function too, and does the same to
    the last bit. It takes the present contents of arrays. Arrays that are given again are worked on directly; others of
    the same dtypes, shapes, strides, marks and aliasing are copied in, and what was written is copied back. Numbers,
    flags and text are part of the key: at most 16 different sets are kept, then a warning names the one that changes.
    Structs count by their fields. It returns what the function returns: arrays, numbers, and tuples, lists, dicts and
    structs of them; those made in the function are new ones each time.

    Python code in it runs in the first two calls. What it can reach by names (closure, globals, attributes of `self`,
    what these hold) is compared at each call, and a change there is a first call again. Two things are taken on trust:
    functions of installed libraries read nothing but their arguments (what a clock or `np.random` gave is compared in
    these two calls), and tensors change in torch's sight (not by `.data` or a NumPy array on their memory). Under an
    open tape, in a capture, with `off=True` and with `config.jit = False` the function runs as it stands.

    Raises LaunchError at the second call: [capture] for what cannot be repeated (reading values, `record_func`), [jit]
    where it launches something else than the first did, or changes in Python what it was given or looks at.

    >>> @wb.kernel
    ... def move(x: wb.array[float], dt: float):
    ...     i = wb.tid()
    ...     x[i] = x[i] + dt * x[i]
    >>> @wb.jit
    ... def steps(x, dt):
    ...     wb.launch(move, dim=2, inputs=[x, dt])
    >>> x = wb.ones(2)
    >>> for _ in range(4):
    ...     steps(x, 1.0)
    >>> x.list(), steps.replays
    ([16.0, 16.0], 2)
    """
    if function is None:
        return functools.partial(jit, off=off)
    if isinstance(function, Kernel) or not callable(function):
        text = f"@wb.jit takes a function that launches kernels, not {function!r}."
        raise LaunchError(text, slug="jit", instead="def step(x): wb.launch(...)   with @wb.jit above")
    return Jit(function, off)

"""`watch`: a Warp program runs as it always does, and beside it runs its twin, recorded on a tape of ours.

Each call of Warp that changes memory is one event: host writes since the last one become events first, Warp's call
runs, ours runs on the twins, both results are compared, and the twins take Warp's bytes. So every adjoint is taken at
exactly the values that Warp's program had. A call that has no twin is an opaque event.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import warp
from warp._src import context
from warp._src import types as warp_types
from warp._src import utils as warp_utils

from ...arrays import allocation as memory
from ...arrays.array import array
from ...errors import GradientError, KernelError, LaunchError, WorkbenchError
from ...launches.launch import launch as our_launch
from ...tapes.tape import Tape
from .adjoint_launches import TWICE, AdjointLaunch, AdjointLaunches
from .builds import Builds
from .builtin_calls import NATIVE, given_to, host_write
from .captures import Captures, Noted, Ready
from .changed_bytes import EachBuffer, StoredBytes
from .compare import VerdictTable
from .copy_calls import Moves
from .deferred import CallSite, DeferredCall, Repeated, repeated
from .differences import Differences
from .events import HOST_WRITE, RACE, WarpStep, asks_mesh, difference_of
from .hooks import Hooks, refuse_walks
from .memory import KnownArray, TwinBuffer, Twins, Untranslated, arrays_in
from .passes import WarpBackward
from .pictures import Pictures
from .programs import caller, programs, said
from .progress import Progress
from .scopes import by_module
from .serialised import serialised
from .skips import to_repeat, without_skips
from .snapshots import GraphSnapshots, LiveSnapshots, ReplayedSnapshots
from .verdicts import Left

Act = Callable[[], Any]
CHECKS = ("gradient", "forward", None)
_open: list[Watch] = []


def watch(keep: str = "needed", check: str | None = "gradient") -> Watch:
    """Run a Warp program, unchanged, with an exact tape beside it: `with wb.interop.warp.watch() as seen: ...`.

    keep    of the tape, as in `wb.Tape`: "needed", or "all" for views of every former value.
    check   "gradient": results of every event are compared with Warp's, and every gradient that Warp's `backward`
            publishes with the exact one. "forward": results alone. None: nothing is compared.
    Returns a `Watch`. The program runs to its end with the results that it has without the watch. What cannot be
    followed is an opaque event; gradients that depend on one are "unverified". Only CPU arrays have twins. Raises
    LaunchError for other values, and where a watch is open already.
    """
    if check not in CHECKS:
        raise LaunchError(f"watch(check={check!r})", slug="watch", instead='check="gradient", "forward" or None')
    return Watch(keep, check)


class Watch(Moves, Captures, AdjointLaunches, Pictures):
    """The record of a Warp program. In a notebook it shows the verdict, then the tape.

    tape       ours: `show explore seeds ledger microscope diagnose memory`, `wb.jacobian`, `wb.jvp` work on it.
    steps      one per call of Warp that changed memory.
    passes     one per `wp.Tape.backward`, with the rows that `compare` tells.
    gradients  after `backward`: {array of Warp: its gradient as NumPy}.
    """

    def __init__(self, keep: str = "needed", check: str | None = "gradient"):
        self.check = check
        self._tape = Tape(keep=keep)
        self.pending: list[Act | DeferredCall] = []  # calls that the twins have not followed
        self.places: dict[tuple[int, int], CallSite] = {}
        self.noted_bytes = 0
        self.twins_of_pending: dict[int, tuple[array, ...]] = {}  # by the id of the tuple
        self.rebind = programs()
        self.twins = Twins(self.rebind)
        self._steps: list[WarpStep] = []
        self._passes: list[WarpBackward] = []
        self.hooks = Hooks(lambda name: refuse_walks(self.tape, name))
        self.inside = False  # a call of Warp: what it calls is part of it
        self.current: LiveSnapshots | ReplayedSnapshots | None = None
        self.tapes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.recorded: weakref.WeakKeyDictionary[Any, dict[int, WarpStep | None]] = weakref.WeakKeyDictionary()
        self.escaped: weakref.WeakKeyDictionary[Any, list[WarpStep]] = weakref.WeakKeyDictionary()  # while it was open
        self.captured: list[Noted] | None = None  # calls of an open capture, to be replayed
        self.graphs: weakref.WeakKeyDictionary[Any, list[Noted]] = weakref.WeakKeyDictionary()
        self.paused: weakref.WeakKeyDictionary[Any, list[Noted]] = weakref.WeakKeyDictionary()
        self.ready: weakref.WeakKeyDictionary[Any, Ready] = weakref.WeakKeyDictionary()
        self.store = StoredBytes()
        self.ran: list[GraphSnapshots] = []
        self.left: weakref.WeakKeyDictionary[Any, Left] = weakref.WeakKeyDictionary()  # by a backward, in .grad
        self.plain: set[int] = set()  # kernels that have been launched here, without grids and meshes
        self.launched_back: list[AdjointLaunch] = []
        self.computed: dict[int, Any] = {}
        self.progress = Progress()
        self.commands: dict[Any, Repeated] = {}  # by kernel, grid and arguments
        self.seeded = False

    # ---- open and close

    def __enter__(self) -> Watch:
        if _open:
            raise LaunchError("a watch inside a watch", slug="watch", instead="with watch() as seen:   once")
        context.init()
        self.rebind.open()
        _open.append(self)
        memory.between.add("warp")
        put = self.hooks.put
        put(context.launch, self._launch)
        put(context.Launch.launch, self._command)
        put(context.copy, self._copy)
        for kind in (warp_types.array, warp_types.noncontiguous_array_base):
            put(kind.fill_, self._fill)
            put(kind.zero_, self._zero)
            put(kind.assign, self._assign)
        put(warp_types.array.__init__, self._made)
        Builds(self)
        put(warp.Tape.backward, self._backward)
        put(warp.Tape.reset, self._reset)
        put(warp.Tape.record_func, self._record_func)
        put(context.capture_begin, self._capture_begin)
        put(context.capture_end, self._capture_end)
        put(context.capture_pause, self._capture_pause)
        put(context.capture_resume, self._capture_resume)
        put(context.capture_launch, self._capture_launch)
        put(context.capture_while, self._capture_while)
        put(context.capture_if, self._capture_if)
        for name in NATIVE:
            if isinstance(function := getattr(warp_utils, name, None), FunctionType):
                put(function, self._native)
        return self

    def __exit__(self, *exc: object) -> None:
        self.hooks.restore()
        _open.remove(self)
        memory.between.discard("warp")
        self.note_names(sys._getframe(1))
        self.postpone(self.fold)
        self.twins.close()
        self.rebind.close()
        self.commands.clear()
        self.progress.close()

    def fold(self) -> None:
        """Group the events of each library module into a block for pictures."""
        self.tape.scopes += by_module(self.steps, self.tape.events)

    def note_names(self, frame: Any) -> dict[int, str]:
        """Record the program's present names for its arrays, those of deferred calls too.

        Returns all names, by the ids of twins.
        """
        tape = self._tape
        pending = itertools.chain.from_iterable(self.twins_of_pending.values())
        early = {id(a): a for a in pending if id(a) not in tape.arrays}
        tape.arrays.update(early)
        tape.names.note(frame)
        for i in early:
            del tape.arrays[i]
        return dict(tape.names.noted)

    # ---- one event

    def event(
        self,
        kind: str,
        label: str,
        arrays: list[Any],
        theirs: Callable[[], Any],
        ours: Act,
        frame: Any,
        kernel: Any = None,
        refused: str = "",
        values: list[Any] | None = None,
        regions: list[TwinBuffer] | None = None,
    ) -> Any:
        """Run one call of Warp's and its twin. Returns what Warp's call returns, and raises what it raises.

        `regions`: the buffers of `arrays`, where they are known already.
        """
        self.catch_up()
        tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)
        reason = refused
        try:
            if regions is None:
                regions = self.twins.regions(arrays)
            self.host_writes(regions, frame)
        except (Untranslated, WorkbenchError) as error:
            reason, regions = reason or said(error), regions or []
        self.inside = True
        try:
            result = theirs()
        finally:
            self.inside = False
        entries = [] if tape is None else tape.launches[before:]
        step = self.step(kind, label, tape, entries, kernel, reason)
        step.values = values or []
        self.twin(step, arrays, regions, ours, frame)
        step.values = []
        self.steps.append(step)
        self.note_entries(tape, entries, step)
        return result

    def step(self, kind: str, label: str, tape: Any, entries: list[Any], kernel: Any, reason: str = "") -> WarpStep:
        """A new step for a call, of which Warp's open tape has recorded these entries."""
        number = self.tapes.setdefault(tape, len(self.tapes)) if entries else None
        step = WarpStep(len(self.tape.events), kind, label, None, number, kernel, reason)
        if tape is not None and not entries:
            self.escaped.setdefault(tape, []).append(step)
        return step

    def twin(self, step: WarpStep, arrays: list[Any], regions: list[TwinBuffer], ours: Act, frame: Any) -> None:
        """Run our part of a step on the twins, compare the results, and copy Warp's bytes to the twins."""
        count = len(self.tape.events)
        if not step.reason:
            try:
                self.recorded_by_us(ours)
            except Exception as error:  # noqa: BLE001  whatever ours cannot do is opaque, and the program goes on
                step.reason = (RACE if getattr(error, "slug", "") == "race" else "") + said(error)
                self.undo(count)
        if step.reason:
            step.kind = "opaque"
            step.event = self.opaque(step, arrays, regions, frame)
            return
        if len(self.tape.events) > count:
            self.named(step)
            self.place(count, frame)
        self.accept(step, self.changed_by(count, regions))

    def place(self, count: int, frame: Any) -> None:
        """Set the line of the events from number `count` on to that of the program's call."""
        for event in self.tape.events[count:]:
            event.place = frame.f_code, frame.f_lasti

    def changed_by(self, count: int, regions: list[TwinBuffer]) -> list[TwinBuffer]:
        """The buffers to compare after our events from number `count` on.

        Of those that none of them has written the large ones are left out: the next call looks at them before it runs.
        """
        written = {span.allocation for event in self.tape.events[count:] for span in event.writes}
        if not written:
            return regions
        return [r for r in regions if r.allocation in written or r.apart is not None or r.size < LARGE]

    def named(self, step: WarpStep) -> None:
        """Assign the last event to this step; a native function of Warp's may have taken several."""
        step.event, step.number = self.tape.events[-1], len(self.tape.events) - 1
        if step.kind == "native":
            step.event.label = step.label

    def accept(self, step: WarpStep, regions: list[TwinBuffer]) -> None:
        """Compare the results of a step with Warp's, and copy Warp's bytes to the twins."""
        apart = bool(step.event is not None and step.event.reverse is not None and step.event.reverse.extremal)
        differences = []
        for region in regions:
            if region.apart is None and not region.changed():
                region.followed()
                continue
            if self.check is not None and (found := difference_of(self.twins, region)) is not None:
                differences.append(found)
            region.accept(apart)
        step.difference = max(differences, key=lambda d: d.share, default=None)
        step.chosen = asks_mesh(step.event) and all(d.whole or not d.far for d in differences)

    def recorded_by_us(self, act: Callable[[], Any]) -> None:
        memory.push_recorder(self.tape)
        try:
            act()
        finally:
            memory.pop_recorder(self.tape)

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Context for walks over the tape while the program runs: memory they restore is not recorded as writes."""
        with memory.LOCK, memory.unrecorded():
            yield

    def undo(self, count: int) -> None:
        """Drop our events from number `count` on after a failure: an opaque one takes their place."""
        self.tape.needed.failure = None
        del self.tape.events[count:]

    def opaque(
        self,
        step: WarpStep,
        arrays: list[Any],
        regions: list[TwinBuffer],
        frame: Any,
        changed: list[TwinBuffer] | None = None,
    ) -> Any:
        """The event of a call without a twin: Warp's bytes are copied. `changed`: the buffers it wrote, if known."""
        twins, untouched = [], self.twins.read_only(step.kernel, step.values)
        written, changes = [], None if changed is None else {region.allocation for region in changed}
        for a in arrays:
            try:
                twins.append(a if isinstance(a, array) else self.twins.array(a))
            except Untranslated:
                continue
            if id(a) not in untouched and (changes is None or twins[-1].allocation in changes):
                written.append(twins[-1])

        def perform() -> None:
            for region in regions:
                region.accept(False)

        reason = step.reason or TWICE
        return self.tape.opaque_event(step.label, twins, written, perform, reason, (frame.f_code, frame.f_lasti))

    def host_writes(self, regions: list[TwinBuffer], frame: Any) -> None:
        """Record events for changes to these buffers by the host, or by a call that is not hooked, since last seen."""
        for region in regions:
            if (self.computed and self.computed_by_warp(region, frame)) or not region.changed():
                continue
            count = len(self.tape.events)
            pieces = self.twins.written_behind(region)
            for piece in pieces:
                self.recorded_by_us(partial(host_write, piece))
            self.place(count, frame)
            for event in self.tape.events[count:]:
                event.label = HOST_WRITE
            region.accept(False)
            event = self.tape.events[-1] if pieces else None
            self.steps.append(WarpStep(len(self.tape.events) - len(pieces), "host", HOST_WRITE, event))

    def note_entries(self, tape: Any, entries: list[Any], step: WarpStep | None) -> None:
        """Record which entries of Warp's tape this step has made."""
        if tape is not None:
            self.recorded.setdefault(tape, {}).update((id(entry), step) for entry in entries)

    # ---- launches

    def _launch(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self.inside:
            if self.current is not None and kwargs.get("adjoint"):
                return self.current.adjoint_launch(original, args, kwargs)
            return original(*args, **kwargs)
        frame = caller()
        g = dict(zip(_NAMES, args, strict=False)) | kwargs
        kernel, values = g.get("kernel"), [*g.get("inputs", ()), *g.get("outputs", ())]
        if g.get("record_cmd") or not isinstance(kernel, context.Kernel) or "dim" not in g:
            return original(*args, **kwargs)
        tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)

        def theirs() -> Any:
            result = original(*args, **kwargs)
            if tape is not None and len(tape.launches) > before and isinstance(entry := tape.launches[-1], list):
                entry[7]["caller"] = {
                    "file": frame.f_code.co_filename,
                    "lineno": frame.f_lineno,
                    "func": frame.f_code.co_name,
                }
            return result

        if g.get("adjoint"):
            adjoints = [*g.get("adj_inputs", ()), *g.get("adj_outputs", ())]
            return self.adjoint_launched(kernel, _dims(g["dim"]), values, adjoints, theirs, frame)
        return self.launched(kernel, g["dim"], values, theirs, frame)

    def launched(self, kernel: Any, dim: Any, values: list[Any], theirs: Callable[[], Any], frame: Any) -> Any:
        """Handle one launch of Warp's, whichever API made it."""
        dims = _dims(dim)
        if self.captured is not None:
            held, place = list(values), self.place_of(frame)
            ours = lambda: self.first_launch(kernel, dims, held, place)  # noqa: E731
            return self.noted("launch", kernel.func.__name__, self.twins.arrays_of(held), ours, theirs, kernel)
        if 0 in dims:
            tape = context.runtime.tape
            before = 0 if tape is None else len(tape.launches)
            result = self.quietly(theirs)
            entries = [] if tape is None else tape.launches[before:]
            self.postpone(lambda: self.note_entries(tape, entries, None))
            return result
        arrays: dict[int, KnownArray] = {}
        key, label = self.key(kernel, dims, values, arrays), kernel.func.__name__
        known, place = self.commands.get(key), self.place_of(frame)
        if known is not None:
            later = DeferredCall("launch", label, known.regions, known, place, kernel, known.twins)
            return self.postponed(later, known.look, theirs)
        if (later := self.on_other_arrays(kernel, dims, values, arrays, place, key)) is not None:
            return self.postponed(later, EachBuffer(later.regions, None), theirs)
        ours = lambda: self.first_launch(kernel, dims, values, frame, key)  # noqa: E731
        return self.event("launch", label, self.twins.arrays_of(values), theirs, ours, frame, kernel, values=values)

    def key(self, kernel: Any, dims: tuple[int, ...], values: list[Any], arrays: dict[int, KnownArray]) -> Any:
        """The cache key of a launch; None if it has none. Its arrays are put into `arrays`, by their id."""
        try:
            arguments = self.twins.key(values, arrays)
        except Untranslated:
            return None
        return None if arguments is None else (id(kernel), dims, arguments)

    def first_launch(
        self, kernel: Any, dims: tuple[int, ...], values: list[Any], frame: Any, key: Any = None
    ) -> Repeated | None:
        """`our_launch`, with the progress bar if the kernel is new."""
        with nullcontext() if id(kernel) in self.rebind.met else self.progress.reading(kernel.func.__name__):
            return self.our_launch(kernel, dims, values, frame, key)

    def our_launch(
        self, kernel: Any, dims: tuple[int, ...], values: list[Any], frame: Any, key: Any = None
    ) -> Repeated | None:
        """Run the twin of a launch. Raises what the workbench says of it.

        Returns a `Repeated` for later launches; None if it has to be made again each time.
        """
        known = len(self.rebind.met)
        ours = self.rebind.twin(kernel)
        if len(self.rebind.met) > known or len(self.commands) > MOST_COMMANDS:
            self.commands.clear()  # constants may have changed too: Warp loads the module anew
            self.plain.clear()
        dims = _grid(kernel, dims)
        self.twins.handles.prepare(values)
        given = [self.twins.value(v) for v in values]
        regions = self.twins.regions(self.twins.arrays_of(values))
        return self.planned(kernel, ours, dims, given, regions, self.place_of(frame), key)

    def planned(
        self,
        kernel: Any,
        ours: Any,
        dims: tuple[int, ...],
        given: list[Any],
        regions: list[TwinBuffer],
        place: CallSite,
        key: Any,
    ) -> Repeated | None:
        """Launch our kernel on twins. Returns a `Repeated`; None if it has to be made again each time."""
        try:
            recorded = our_launch(ours, dims, given, record_cmd=True)
        except KernelError as failure:
            if not ours.generic and id(kernel) in self.rebind.met:
                self.rebind.failed(kernel, failure)
            raise
        command, known = serialised(without_skips(recorded.command)), None
        if not command.program.handles:
            self.plain.add(id(kernel))
            known = repeated(to_repeat(recorded.command, command), place, regions)
            if key is not None:
                self.commands[key] = known
        command.launch(True, place)
        return known

    def twin_command(self, kernel: Any, dims: tuple[int, ...], values: list[Any]) -> Any:
        """Our launch for one of Warp's, not run. Raises what the workbench says of it."""
        ours = self.rebind.twin(kernel)
        self.twins.handles.prepare(values)
        given = [self.twins.value(v) for v in values]
        return serialised(our_launch(ours, _grid(kernel, dims), given, record_cmd=True).command)

    def on_other_arrays(
        self,
        kernel: Any,
        dims: tuple[int, ...],
        values: list[Any],
        arrays: dict[int, KnownArray],
        place: CallSite,
        key: Any,
    ) -> DeferredCall | None:
        """A deferred launch of a kernel that has run before on other arrays. None if it cannot be deferred."""
        if key is None or id(kernel) not in self.plain or id(kernel) not in self.rebind.met:
            return None
        try:
            ours, dims = self.rebind.twin(kernel), _grid(kernel, dims)
            given = [arrays[id(v)].twin if id(v) in arrays else self.twins.value(v) for v in values]
        except Exception:  # noqa: BLE001  the event says what it was
            return None
        regions = list(dict.fromkeys([known.region for known in arrays.values() if known.region is not None]))
        twins = tuple([known.twin for known in arrays.values() if known.region is not None])
        act = partial(self.planned, kernel, ours, dims, given, regions, place, key)
        return DeferredCall("launch", kernel.func.__name__, regions, act, place, kernel, twins)

    def _command(self, original: Any, command: Any, stream: Any = None) -> Any:
        """Handle `Launch.launch()` of a `record_cmd=True` launch."""
        if self.inside:
            return original(command, stream)
        frame = caller()
        theirs = lambda: original(command, stream)  # noqa: E731
        bounds, rank = command.bounds, int(command.kernel.adj.kernel_dim)
        dims = tuple(int(bounds.shape[k]) for k in range(rank)) if rank else (int(bounds.size),)
        refused = "its arguments are not known" if command.fwd_args is None else ""
        if getattr(bounds, "coord_mult", 1) != 1:
            refused = "a grid with more axes than its kernel tells apart"
        if refused:
            arrays = list(arrays_in([*(command.fwd_args or ()), *(command.adj_args or ())]))
            return self.event(
                "opaque", command.kernel.func.__name__, arrays, theirs, _nothing, frame, command.kernel, refused
            )
        values = list(command.fwd_args or ())
        if command.adjoint:
            return self.adjoint_launched(command.kernel, dims, values, list(command.adj_args or ()), theirs, frame)
        return self.launched(command.kernel, dims, values, theirs, frame)

    def _native(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Handle a function of `wp.utils` that Warp computes in C++."""
        if self.inside:
            return original(*args, **kwargs)
        name, frame = original.__name__, caller()
        given = given_to(original, args, kwargs)
        theirs = lambda: original(*args, **kwargs)  # noqa: E731
        if "out" in given and given["out"] is None:  # it is made by the call
            result = self.quietly(theirs)
            if not warp_types.is_array(result):
                return result  # a number of the host
            given["out"], theirs = result, lambda: result
        arrays = list(arrays_in(given.values()))
        ours = lambda: NATIVE[name](self.twins, given)  # noqa: E731
        if self.captured is not None:
            return self.noted("native", name, arrays, ours, theirs)
        return self.event("native", name, arrays, theirs, ours, frame)

    def quietly(self, act: Callable[[], Any]) -> Any:
        self.inside = True
        try:
            return act()
        finally:
            self.inside = False

    # ---- Warp's tapes

    def _backward(self, original: Any, tape: Any, loss: Any = None, grads: Any = None) -> Any:
        if self.inside:
            return original(tape, loss, grads)
        theirs = lambda: original(tape, loss, grads)  # noqa: E731
        if self.captured is not None:
            return self.noted_backward(theirs, tape, loss, grads)
        if self.check != "gradient":
            result = self.quietly(theirs)
            self.postpone(partial(self.gone_back, _with_gradient(tape)))
            return result
        self.current = moment = LiveSnapshots(self.twins, tape, loss, grads)
        moment.names = self.note_names(caller())
        try:
            moment.begin()
            result = self.quietly(theirs)
            moment.end()
        finally:
            self.current = None
        self.noted_bytes += moment.nbytes
        self.postpone(lambda: self.judge(moment))
        self.postpone(partial(self.gone_back, _with_gradient(tape)))
        return result

    def judge(self, moment: LiveSnapshots) -> None:
        """Compare the gradients of a backward with the exact ones."""
        moment.events, moment.steps = len(self.tape.events), len(self.steps)
        self.tape.names.noted.update(moment.names)
        one = WarpBackward(self, len(self.passes), moment)
        one.judge()
        self.passes.append(one)
        self.forget_glimpses()

    def _reset(self, original: Any, tape: Any) -> Any:
        self.postpone(lambda: (self.recorded.pop(tape, None), self.escaped.pop(tape, None)))
        return original(tape) if self.inside else self.quietly(lambda: original(tape))

    def _record_func(self, original: Any, tape: Any, backward: Any, arrays: Any) -> Any:
        if self.inside:
            return original(tape, backward, arrays)
        found, label = list(arrays_in(arrays)), getattr(backward, "__name__", "record_func")
        if self.captured is not None:
            return self.noted("opaque", label, found, _no_twin, lambda: original(tape, backward, arrays))
        before = len(tape.launches)
        step = WarpStep(len(self.tape.events), "opaque", label, None, self.tapes.setdefault(tape, len(self.tapes)))
        step.reason = FUNC
        result = self.quietly(lambda: original(tape, backward, arrays))
        try:
            regions = self.twins.regions(found)
        except Untranslated:
            regions = []
        step.event = self.opaque(step, found, regions, caller())
        self.steps.append(step)
        self.note_entries(tape, tape.launches[before:], step)
        return result

    # ---- what was seen

    def compare(self) -> VerdictTable:
        """A row for each array and backward, then for those of launches with adjoint=True.

        Fields: `array verdict difference launch line cause remedy`.

        verdict     "agrees"; "wrong"; "unverified", where it depends on an opaque event or on one whose result differs;
                    "not asked", where Warp's `.grad` has no one meaning (what launches have overwritten).
        difference  the largest, as a share of the largest number in the gradient.
        """
        return VerdictTable([row for one in (*self.passes, *self.launched_back) for row in one.rows], self)

    def differences(self) -> Differences:
        """A row for each event whose result is not Warp's to the bit: where, how far apart, what rounds otherwise."""
        return Differences(self)

    @property
    def opaque_steps(self) -> list[WarpStep]:
        """The calls that could not be followed, each with its `reason`."""
        return [s for s in self.steps if s.reason]

    def backward(self, grads: Mapping[Any, Any]) -> None:
        """Compute the exact gradient of the watched program, whether Warp has one or not.

        grads   {array of Warp: seed}, a seed being a Warp or NumPy array of its shape: for the contents at the end.
        After it `gradients[a]` is the derivative by the contents of `a` at the start (when the watch first met it).
        Nothing of Warp's is written. Raises GradientError [opaque] if an adjoint comes to an opaque event or to a
        gradient that Warp has computed (that would be a second derivative), and [watch-unknown] for arrays that the
        watched program did not touch.
        """
        seeds = {}
        for a, seed in grads.items():
            twin = self.twin_of(a)
            values = np.asarray(seed.numpy() if hasattr(seed, "numpy") else seed)
            seeds[twin] = array(np.broadcast_to(values, twin.data.shape), dtype=_gradient_type(twin))
        self.tape.zero()
        self.tape.backward(grads=seeds)
        self.seeded = True

    def twin_of(self, a: Any) -> array:
        """Our twin of an array of Warp. Raises GradientError [watch-unknown]."""
        found = self.twins.behind(a)
        if not found or self.twins.made[id(a)].region is None:
            raise GradientError(
                "an array that the watched program has not touched",
                slug="watch-unknown",
                instead="an array of Warp that a launch inside the watch reads or writes",
            )
        return found[0]

    @property
    def gradients(self) -> WarpGradients:
        """{array of Warp: its gradient as NumPy}, after `backward`."""
        return WarpGradients(self)

    def summary(self) -> str:
        """The number of events, opaque ones, differing results and backwards, in a line."""
        opaque = len(self.opaque_steps)
        apart = [s.difference.ulps for s in self.steps if s.difference is not None]
        alone = f", adjoint launches: {len(self.launched_back)}" if self.launched_back else ""
        most = f" (by {max(apart):.3g} units in the last place at most: differences())" if apart else ""
        return (
            f"{len(self.steps)} events, {opaque} opaque, {len(apart)} with results that differ from Warp's{most},"
            f" {len(self.passes)} backward{alone}"
        )

    def __repr__(self) -> str:
        return f"{self.summary()}\n{self.compare()}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from html import escape

        html = f"<p>{escape(self.summary())}</p>{self.compare().html(asked=True)}"
        if self.tape.events:
            html += self.show()._repr_mimebundle_().get("text/html", "")
        return {"text/plain": repr(self), "text/html": html}


class WarpGradients:
    """A mapping from Warp arrays to their gradients, as NumPy arrays of their shape and components."""

    def __init__(self, seen: Watch):
        self.seen = seen

    def __getitem__(self, a: Any) -> np.ndarray:
        if not self.seen.seeded:
            raise GradientError(
                "gradients before backward(): there is no seed.",
                slug="no-seed",
                instead="seen.backward(grads={y: seed}), then seen.gradients[x]",
            )
        twin = self.seen.twin_of(a)
        grad = twin.grad
        if grad is None:
            raise GradientError(f"{twin.label} is {twin.dtype}: it has no gradient.", slug="grad-of-int")
        return np.array(grad.data)


LARGE = 1 << 16  # bytes: comparing less takes no time
MOST_COMMANDS = 4096
FUNC = "record_func: what was done between has its adjoint in a function of the program"
_NAMES = tuple(inspect.signature(context.launch).parameters)


def _nothing() -> None:
    """The twin of a call that has no part of ours."""


def _no_twin() -> None:
    raise Untranslated(FUNC)


def _with_gradient(tape: Any) -> list[Any]:
    """The arrays with a gradient on a tape of Warp's."""
    return [a for a in arrays_in(tape.gradients) if a.grad is not None]


def _dims(dim: Any) -> tuple[int, ...]:
    return (
        (dim,)
        if isinstance(dim, int)
        else tuple([int(n) for n in (dim if type(dim) is tuple or np.ndim(dim) else (dim,))])
    )


def _grid(kernel: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The launch grid, cut or padded with 1 to the rank of its kernel. Raises Untranslated if an axis would be lost."""
    rank = int(kernel.adj.kernel_dim) if hasattr(kernel.adj, "kernel_dim") else len(dims)
    dims = (*dims, *[1] * (rank - len(dims)))
    if rank and any(n != 1 for n in dims[rank:]):
        raise Untranslated(f"a grid of {len(dims)} axes for a kernel that tells {rank} of them apart")
    return dims[:rank] if rank else dims


def _gradient_type(twin: array) -> Any:
    return twin.grad.dtype if twin.grad is not None else twin.dtype

"""Captures: the launches, host writes and reverse walks of a block, kept as one list of calls and replayed.

The one idea: a replay repeats what changed memory, on the same memory and with the same numbers, and nothing else. So
it sees new contents of arrays, and not a new value of a Python variable. What a launch or `backward` decides from
layouts and numbers was decided at the capture; what they decide from contents is checked again or refused.
On the CPU native calls in a row are one call of the generated runtime; on a GPU work in a row becomes a CUDA graph.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from itertools import groupby
from types import TracebackType
from typing import Any, Self

from ..arrays import allocation, capture_log
from ..arrays.gradient_views import sync_views
from ..arrays.span import Span
from ..arrays.workspace import own_buffers
from ..config import config
from ..device import DeviceLike, catch_up, get_device, let_follow, xp
from ..display import offers
from ..errors import GradientError, LaunchError
from ..kernels.compile import thread_pool
from .cross_tape import RecordingId, read_before
from .events import checksum_of, clock
from .publish import close_views, gradients_of, refuse_losses

log = logging.getLogger("workbench")


@offers("replay")
class Graph:
    """The recorded steps of a capture; `replay()` runs them again."""

    def __init__(self, notes: capture_log.CaptureRecorder):
        self.notes = notes
        self._segments = _segments(notes)
        for a in notes.made:
            if not a.is_gradient and a not in notes.fixed:
                notes.written.setdefault(a, {})[a.span()] = "a new array"
        self.tapes, self.runs = notes.tapes, notes.runs
        self._changed = [a for a in notes.arrays if a.allocation in notes.written]
        self._adds = {a for a, spans in notes.written.items() if {*spans.values()} == {"backward()"}}
        origins = ((a, spans, [m for m in a.origins or () if m[1] in notes.runs]) for a, spans in notes.written.items())
        self._written = [[a, tuple(spans.items()), None, own] for a, spans, own in origins]
        self._watching: dict[int, weakref.ref] = {}
        self._deaf: set[int] = set()
        known = {t: (dict(t.arrays), dict(t.scalars), dict(t.last_seeds)) for t in notes.tapes}
        self._tapes = [(t, weakref.ref(t), tuple(t.events), *known[t]) for t in notes.tapes]
        self._raced = [e for tape in notes.tapes for e in tape.events if e.reverse is not None and e.reverse.races]
        self._fixed = [(a, name, a.version, _seen(a)) for a, name in notes.fixed.items()]
        self._options = {name: getattr(config, name) for name in _OPTIONS}
        self._asks, self._asked = allocation.asks, [(a, *_asked(a)) for a in notes.asked]
        grads = dict.fromkeys([*notes.published, *(a for a in notes.cleared if a.is_gradient)])
        tape_of: dict[Any, Any] = {g: weakref.ref(tape) for g, tape in notes.published.items() if g.publisher[0]}
        self._grads = [(g, tape_of.get(g), tuple(g.written)) for g in grads]
        self._notes = [(g.of, dict(g.of.grad_notes)) for g in notes.published if g.of.grad_notes]
        self._losses = [(g, tape.log.written.get(g.of)) for g, tape in notes.published.items()]
        self._outside = [(t, read_before(t.events, w, notes.made)) for t, w in notes.tapes.items() if t.last_seeds]
        self._living = {run for tape in notes.tapes for _, run in tape.border.all_met() if run.alive}  # when last met
        self._undone: list[tuple[Any, GradientError]] = []  # tapes whose launches have not run since the capture

    def __repr__(self) -> str:
        return f"<graph of {len(self)} calls>"

    def __len__(self) -> int:
        """The number of steps of a replay."""
        return len(self.notes.steps)

    def replay(self) -> None:
        """Run the captured steps on the present contents of memory. In an open capture they become part of that one.

        Raises LaunchError [capture] under an open tape, or if indices changed on which the absence of races rests;
        BoundsError or GradientError where a launch fails; GradientError [not-handed-on], as `backward` does.
        """
        if allocation.recorder() is None and (notes := capture_log.active_capture()) is not None:
            self._join(notes)
            return
        with allocation.LOCK:
            self.check()
            allocation.tell_others(self.notes.arrays, self._changed)
            foreign = self.foreign()
            met = [span.allocation for _, found in foreign for span, _ in found]
            before = {a: a.grad.bytes * (a.grad in self._adds) for a in met if a.grad is not None}
            own = self._own()
            for tape in own.values():
                tape.muted = True
            for grad, ref, _ in self._grads:
                close_views(ref(), grad.of, grad) if ref else grad.close_view()
                if (tape := own.get(id(ref))) is not None and grad.of not in tape.log.written:
                    blank = grad not in self._adds or grad.blank == grad.version
                    tape.earlier.note(grad.of, blank, tape.border.run.chained)
            sync_views()
            try:
                self._announce(own)
                with own_buffers():  # a walk in a step must not take those of walks that are replayed
                    for run in self._segments:
                        run()
            finally:
                for tape in own.values():
                    tape.muted = False
                self._mark()
            for tape, refusal in self._undone:
                tape.needed.conflicts[:] = [c for c in tape.needed.conflicts if c is not refusal]
            self._undone.clear()
            for tape, found in foreign:
                tape.find_borders(found, before)
            self._living = {run for _, found in foreign for _, run in found if run.alive}
            failed = [error for look in self.notes.checks if (error := look()) is not None]
            if failed:
                raise failed[0]

    launch = replay

    def _join(self, notes: capture_log.CaptureRecorder) -> None:
        """Replay in an open capture, adding these steps to it."""
        own = self.notes
        for tape, ahead in own.tapes.items():
            notes.tapes[tape] = {a: [*ahead.get(a, ()), *notes.written.get(a, ())] for a in (*ahead, *notes.written)}
        self.tell(notes)
        for memory, how in own.first.items():
            notes.use(memory, how)
        notes.arrays.update(own.arrays)
        notes.runs |= own.runs
        notes.asked.update(own.asked)
        notes.published.update(own.published)
        notes.cleared |= own.cleared
        if not notes.late:
            with capture_log.paused():
                self.replay()
        notes.checks += own.checks
        notes.unchanged.update(own.unchanged)
        notes.steps += own.steps

    def tell(self, notes: capture_log.CaptureRecorder) -> None:
        """Tell an open capture which memory this graph is about to change, and which must stay unchanged (`fixed`)."""
        notes.kept.append(self)
        for memory in (*self.notes.written, *(grad for grad, _, _ in self._grads)):
            notes.remember(memory)
        for memory, spans in self.notes.written.items():
            notes.written.setdefault(memory, {}).update(spans)
        notes.fixed.update(self.notes.fixed)

    def wait(self) -> None:
        """Refuse to walk the tapes of the block until a replay has run them."""
        for tape, _, events, *_ in self._tapes:
            tape.border.met.clear()  # replays tell of borders
            if events:
                text = "this tape was recorded in a capture that has not been launched."
                why = "Memory is what it was before the capture, so nothing has run yet."
                instead = "wb.capture_launch(graph)   first"
                refusal = GradientError(text, slug="capture", where=events[0].where, why=why, instead=instead)
                tape.needed.conflicts.append(refusal)
                self._undone.append((tape, refusal))

    def check(self) -> None:
        """Raises LaunchError [capture], [handle] where what the capture rests on has changed."""
        if allocation.recorder() is not None:
            text = "replay() under an open tape."
            instead = "with wb.capture() as graph, wb.Tape() as tape: ...   and tape.backward(loss) in the capture"
            raise LaunchError(text, slug="capture", why="The tape would not see the launches in it.", instead=instead)
        capture_log.refuse("replay()")
        capture_log.refuse_mapped("a capture is replayed.")
        if changed := [name for name, value in self._options.items() if getattr(config, name) != value]:
            raise _outdated(f"wb.config.{changed[0]}", "The replay would run what was compiled without it.")
        for look in self.notes.unchanged.values():
            look()
        for grad, written in (pair for pair in self._losses if pair[0].borders):
            refuse_losses(grad, self.runs, written)
        for a, name, version, seen in self._fixed:
            if a.version != version or seen != _seen(a):
                why = "Whether two threads of it meet was looked at once, and may be different now."
                raise _outdated(f"Kernel {name!r}: an array of indices", why)
        if self._asks != allocation.asks:
            for a, required, retained in self._asked:
                if (required, retained) != _asked(a):
                    why = "The replay would publish the gradients that were asked for then."
                    raise _outdated(f"requires_grad or retain_grad of {next(iter(a.names), a)}", why)
            self._asks = allocation.asks

    def foreign(self) -> list[tuple[Any, list[tuple[Span, RecordingId]]]]:
        """By tape of the block what it would read that others wrote, or a replay before: that counts once a memory."""
        found = []
        for tape, spans in self._outside:
            parts = [(a.origins, s, first) for a, parts in spans.items() if a.origins for s, first in parts.items()]
            met = []
            for (at, run), first in [(m, first) for origins, s, first in parts for m in origins.met(s)]:
                own, new = run.alive and run in self.runs, at.allocation not in tape.border.met
                if own:  # of the replay before, which nobody can walk any more
                    run = copy(run)
                    run.when = 0
                if (first and new) if own else (run.alive or new or run in self._living):
                    met.append((at, run))
            if met:
                found.append((tape, met))
        return found

    def _own(self) -> dict[int, Any]:
        """{id of reference: tape} of the tapes with exactly the captured events: a replay does not invalidate them."""
        own = {}
        for tape, ref, events, arrays, scalars, seeds in self._tapes:
            if len(tape.events) == len(events) and (not events or tape.events[-1] is events[-1]):
                own[id(ref)], tape.last_seeds = tape, dict(seeds) or tape.last_seeds
            elif events and tape.events and tape.events[0] is events[0]:
                tape.needed.spoil(events[0])
            else:  # it was reset
                tape.arrays.update(arrays)  # to be zeroed after what is done now
                tape.scalars.update(scalars)
        for event in self._raced:
            event.checked = False
        return own

    def _mark(self) -> None:
        """Mark gradient memory as the block left it: published by whom, written by hand where."""
        now = next(clock)
        for grad, tape, written in self._grads:
            grad.version += 1
            if grad.written or grad.exposed or written:
                grad.mark_published(written)
            grad.publisher = (0, None) if tape is None else (now, tape)
        for a, said in self._notes:
            a.grad_notes.update(said)

    def _announce(self, own: dict[int, Any]) -> None:
        """Announce the writes to watching tapes, except captured ones and those that refuse their walk already. The
        last item of an entry caches watchers of which none needs to be told."""
        deaf = {k for k, ref in self._watching.items() if k in own or (tape := ref()) is None or tape.deaf}
        same, self._deaf = self._deaf == deaf, deaf
        marked = {grad for grad, _, _ in self._grads}
        for entry in self._written:
            a, spans, quiet, origins = entry
            if same and a.watchers is quiet:
                a.version += 1
                continue
            for span, what in spans:
                a.about_to_write(span, what)
            for span, run in origins:
                a.note_origin(span, run, True)
            self._watching.update((id(ref), ref) for ref in a.watchers)
            alone = all(id(ref) in deaf for ref in a.watchers)
            entry[2] = a.watchers if alone and (a in marked or not a.is_gradient) else None


def _segments(notes: capture_log.CaptureRecorder) -> list[Callable[[], None]]:
    """The steps with consecutive native calls joined into one, and consecutive work of one GPU into a CUDA graph."""
    found: list[Callable[[], None]] = []
    for kind, group in groupby(notes.steps, _kind):
        row = list(group)
        if kind is capture_log.NativeCall:
            found.append(_native(row))
        elif kind is not None:
            found.append(QueuedSteps(row, kind))
        else:
            found += row
    return found


def _kind(step: object) -> Any:
    """The key of steps that can be joined: `NativeCall` for native calls, the ordinal of a GPU, None for neither."""
    return capture_log.NativeCall if isinstance(step, capture_log.NativeCall) else getattr(step, "gpu", None)


def _native(calls: list[capture_log.NativeCall]) -> Callable[[], None]:
    replay, row, n = thread_pool.replay(), capture_log.row_of(calls), len(calls)

    def run() -> None:
        replay(row[1], n)
        thread_pool.after_call()

    return run


_OPTIONS = "check_bounds", "check_races", "race_guard", "deterministic"  # what a launch promises beyond its result


def _outdated(what: str, why: str) -> LaunchError:
    text, instead = f"{what} has changed since the capture.", "with wb.capture() as graph: ...   once more"
    return LaunchError(text, slug="capture", why=why, instead=instead)


def _seen(a: allocation.Allocation) -> int | None:
    return checksum_of(a.span()) if a.exposed else None


def _asked(a: allocation.Allocation) -> tuple[tuple, tuple]:
    return tuple(a.required.spans), tuple(a.retained.spans)


class Capture:
    """`with wb.capture() as graph:` runs the block and notes what it does to memory; `graph.replay()` does it again.

    In it: launches, `zero_`, `fill_`, `assign`, `copy`, new arrays, a tape with its `backward(loss)` or
    `backward(grads=...)`, `tape.zero()`, `record_func(..., forward=f)`, custom ops, linear solves and `root`, which
    each replay makes again, `replay()` of another graph, and outside of tapes `capture_while` and `capture_if`. Values
    cannot be read before the block ends. Leaves accumulate with every replay, as they would if the block ran again:
    zero them inside to start anew. Raises LaunchError [capture].
    """

    undone = False  # is memory put back behind the block

    def __init__(self) -> None:
        self._notes: capture_log.CaptureRecorder | None = None
        self.graph: Graph | None = None

    def __enter__(self) -> Self:
        if allocation.recorder() is not None:
            text = "a capture under an open tape."
            instead = "with wb.capture() as graph:\n        with wb.Tape() as tape:"
            raise LaunchError(text, slug="capture", why="A replay is no event of a tape.", instead=instead)
        self._notes = capture_log.start()
        self._notes.before = {} if self.undone else None
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        notes, self._notes = self._notes, None
        try:
            if kind is None and notes is not None:
                _zero_again(notes)
                for name in (name for a, name in notes.fixed.items() if a in notes.written):
                    text = f"Kernel {name!r}: its indices are computed inside the capture."
                    why = "Whether two of its threads meet has to be looked at each time, and a replay does not."
                    instead = "that launch before `with wb.capture()`, or wb.config.race_guard = False"
                    raise LaunchError(text, slug="capture", why=why, instead=instead)
                self.graph = Graph(notes)
        finally:
            capture_log.stop()
            if notes is not None and notes.before is not None:
                with allocation.LOCK:  # memory is as it was before the block
                    before, notes.before = notes.before, None  # the graph keeps the notes, and needs none of it
                    while before:
                        a, state = before.popitem()
                        a.put_back(state)
                    if self.graph is not None:
                        self.graph.wait()

    def replay(self) -> None:
        """Run the steps of the block again. Raises LaunchError [capture], and what a launch raises."""
        if self.graph is None:
            text = "replay() of a capture that is not complete."
            raise LaunchError(text, slug="capture", instead="graph.replay() after the `with` block")
        self.graph.replay()

    launch = replay


def _zero_again(notes: capture_log.CaptureRecorder) -> None:
    """Make `tape.zero()` at the head of the block clear, in a replay, the gradients that the block itself makes."""
    for grad, tape in notes.expected_cleared.items():
        if grad not in gradients_of(tape):
            text = "two recordings of one tape, zeroed in front of them, the second without an array of the first."
            why = "The gradients of that array would not be zeroed in a replay."
            instead = "first, second = wb.Tape(), wb.Tape()   one for each recording"
            raise LaunchError(text, slug="capture", why=why, instead=instead)
    for at, tape in sorted(((at, t) for t, ats in notes.zeroed.items() for at in ats), key=lambda p: -p[0]):
        grads = gradients_of(tape)
        notes.asked.update(dict.fromkeys(a.allocation for a in tape.arrays.values()))
        once = len(notes.zeroed[tape]) == 1  # then memory that is written whole behind it need not be cleared
        live = [grad for grad in grads if not once or notes.first.get(grad) != "whole"]
        notes.steps[at:at] = [capture_log.clearing(grad.bytes) for grad in live]
        for grad in grads:
            notes.cleared.add(grad)
            notes.written.setdefault(grad, {})[grad.span()] = "tape.zero()"


def capture() -> Capture:
    """Record a block of launches, with its backward pass, so that it can be replayed at the speed of its kernels.

    Use it for a loop that repeats itself (a training step): the block runs once, a replay costs about what its
    kernels do.

    >>> @wb.kernel
    ... def double(x: wb.array[float]):
    ...     i = wb.tid()
    ...     x[i] = 2.0 * x[i]
    >>> x = wb.ones(2)
    >>> with wb.capture() as graph:
    ...     wb.launch(double, dim=2, inputs=[x])
    >>> graph.replay()
    >>> x.list()
    [4.0, 4.0]
    """
    return Capture()


class ScopedCapture(Capture):
    """A block that is recorded and not done, as Warp's is: `capture_launch(scope.graph)` does it, each time.

    `wb.capture()` does it once, too. Here the block runs while it is recorded, and afterwards memory is put back to
    what it was before, gradients too: so the block must be one that can run.

    >>> x = wb.ones(2)
    >>> with wb.ScopedCapture() as scope:
    ...     _ = x.fill_(3.0)
    >>> x.list()
    [1.0, 1.0]
    >>> wb.capture_launch(scope.graph)
    >>> x.list()
    [3.0, 3.0]
    """

    undone = True

    def __init__(self, device: DeviceLike = None, stream: object = None, **rest: object):
        super().__init__()


def capture_launch(graph: Graph, stream: object = None) -> None:
    """`graph.replay()`, under Warp's name.

    >>> x = wb.zeros(2)
    >>> with wb.capture() as graph:
    ...     _ = x.fill_(1.0)
    >>> wb.capture_launch(graph)
    """
    graph.replay()


# ---- CUDA graphs: consecutive work of a capture on one GPU, launched with one call
# At the first replay the steps are called on a private stream that notes instead of running; what it noted is launched,
# then and ever after, on CuPy's current stream. What the steps allocate on the way comes from memory that nobody else
# gets before the graph is gone. Where CUDA refuses a step, the steps are called one by one, as they always can be.
# Tested with a stand-in for CuPy; no GPU has run it.


class QueuedSteps:
    """Steps that only queue work on one GPU, to be run in order, between what torch did and what it will do."""

    def __init__(self, steps: Sequence[Callable[[], None]], ordinal: int):
        self.steps, self.ordinal = steps, ordinal
        self.held: list[Any] = []  # memory the graph works on that nothing else refers to
        self.graph: Any = None
        self.one_by_one = len(steps) == 1

    def __call__(self) -> None:
        device = get_device(f"cuda:{self.ordinal}")
        cupy = xp(device)
        with cupy.cuda.Device(self.ordinal):
            if self.graph is None and not self.one_by_one:
                self._make(cupy)
            catch_up(device)
            if self.graph is not None:
                self.graph.launch()
            else:
                for step in self.steps:
                    step()
            let_follow(device)

    def _make(self, cupy: Any) -> None:
        """Capture the steps as a CUDA graph. Nothing runs, so a refusal leaves nothing to undo."""
        pool, stream = cupy.cuda.MemoryPool(), cupy.cuda.Stream(non_blocking=True)

        def room(nbytes: int) -> Any:
            self.held.append(pool.malloc(nbytes))
            return self.held[-1]

        self.held.append(pool)
        try:
            with stream, cupy.cuda.using_allocator(room):
                stream.begin_capture()
                try:
                    for step in self.steps:
                        step()
                finally:
                    graph = stream.end_capture()
            self.graph = graph
        except (RuntimeError, MemoryError) as refusal:
            log.info("no CUDA graph of %d steps: %s", len(self.steps), refusal)
            self.one_by_one = True
            self.held.clear()

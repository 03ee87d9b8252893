"""The end of the reverse pass: the workspace becomes the `.grad` of the arrays that asked for one."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..arrays import capture_log, ports
from ..arrays.allocation import Allocation, GradientMemory
from ..arrays.array import array
from ..arrays.interval_index import SpanSet
from ..arrays.span import Span
from ..arrays.workspace import Shadow, Workspace, accumulate, is_float_memory
from ..kernels.types import Struct
from .cross_tape import RecordingId, waiting, warn
from .events import clock
from .recording import Recording

Wrote = Callable[[Recording, Allocation], tuple[SpanSet | None, Iterable[Span]]]


def counted(tape: Recording, a: Allocation) -> tuple[SpanSet | None, Iterable[Span]]:
    """(marks of all writes of a memory or None, spans surely stored to), from the tally of the tape."""
    return tape.log.written.get(a), tape.log.stored.get(a, ())


def publish(
    tape: Recording, space: Workspace, retained: dict[Span, Any], wrote: Wrote = counted, by: Recording | None = None
) -> None:
    """Write the adjoints in a workspace into `.grad`, and tell other libraries. `by`: the tape that records this."""
    for a in space:
        if a.grad is not None and a.grad.borders:
            refuse_losses(a.grad, {tape.border.run}, wrote(tape, a)[0])
    for a in list(space):
        if a.asked:
            written, stored = wrote(tape, a)
            _publish_one(tape, a, space[a], retained, written, () if a.id in space.unreached else stored, by)
    shown = Workspace(space)  # which a replay shows again
    for port in ports.gradient_takers:
        if (notes := capture_log.active_capture()) is not None and notes.before is not None:
            notes.steps.append(partial(port, tape, shown))  # their memory is not ours to put back
        else:
            capture_log.do(partial(port, tape, shown))


def refuse_losses(grad: GradientMemory, runs: set[RecordingId], written: SpanSet | None) -> None:
    """Raises GradientError [not-handed-on] if walks of these runs will replace what waits in `grad` for another."""
    for b in waiting(grad):
        if written is not None and b.run not in runs:
            b.refuse_loss(written)


def _publish_one(
    tape: Recording,
    a: Allocation,
    shadow: Shadow,
    retained: dict[Span, Any],
    written: SpanSet | None,
    stored: Iterable[Span],
    by: Recording | None,
) -> None:
    """Add the shadow of a leaf to its `.grad`; replace the `.grad` of what events wrote."""
    grad = a.gradient()
    close_views(tape, a, grad)
    if written is None and (grad.written or grad in tape.active) and grad.bytes.any():
        name = next((n for n in (tape.names.noted.get(i) for i, x in tape.arrays.items() if x.allocation is a) if n), a)
        source = "values that you had written" if grad.written else "what backward() inside this tape had published"
        warnings.warn(
            f"the gradient of {name} was added to {source} into its .grad: leaves accumulate. x.grad.zero_() or"
            " tape.zero() before backward() starts anew; assigning x.grad = b copied b.",
            stacklevel=4,
        )
    blank = grad.blank == grad.version and not grad.exposed
    notes = capture_log.active_capture()
    if written is None and (notes is None or notes.before is None):
        tape.earlier.note(a, blank, tape.border.run.chained)
    if notes is not None:
        notes.remember(grad)
        if blank and grad not in notes.cleared and (blank := tape in notes.zeroed):
            notes.expected_cleared[grad] = tape
        notes.published[grad] = tape
    if grad.watchers:
        grad.about_to_write(grad.span(), "backward()", None, by)
    elif notes is not None:
        notes.written.setdefault(grad, {})[grad.span()] = "backward()"
    if blank or (written is not None and written.everything):
        if notes is not None:
            notes.use(grad, "whole")
        capture_log.move(grad.bytes, shadow.data)
    else:
        accumulate(grad, shadow, _scalar_of(tape, a))
        for span in written or ():
            words = a.gradient_span(span).words()
            capture_log.do(partial(words.__setitem__, ..., shadow.view(span, words.dtype)), capture_log.gpu_of(words))
    for wanted, data in retained.items():
        if wanted.allocation is a:
            words = a.gradient_span(wanted).words()
            capture_log.do(partial(words.__setitem__, ..., data), capture_log.gpu_of(words, data))
    a.grad_notes.clear()
    for span in stored:
        if not a.retained.touch(span):
            a.grad_notes[span.weak()] = _USED_UP
    grad.version += 1
    grad.mark_published()
    grad.publisher = next(clock), weakref.ref(tape)


def close_views(tape: Recording, a: Allocation, grad: GradientMemory) -> None:
    """Cut off the arrays that `.grad.numpy()` gave; warn if an older one was written to since the last backward."""
    if grad.previous_view is not None and grad.previous_view.touched:
        warn(
            f"an array that {tape.names.of_memory(a)}.grad.numpy() gave before the last backward() was written to"
            " since: that does not change the gradient any more. Take .grad.numpy() again; a .copy() of it is yours."
        )
    grad.previous_view = None
    grad.close_view()


def _scalar_of(tape: Recording, a: Allocation) -> Any:
    """The scalar type of memory on an active path, or of what was seeded itself, off all of them."""
    if a in tape.scalars:
        return tape.scalars[a]
    floats = (x.dtype for x in tape.arrays.values() if x.allocation is a and is_float_memory(x))
    return next((t if isinstance(t, Struct) else t.scalar for t in floats), None)  # type: ignore[attr-defined]


def gradients_of(tape: Recording) -> list[GradientMemory]:
    """The gradient memories of the arrays of a tape. In a capture they are made: replays clear later ones."""
    memories, notes = dict.fromkeys([a.allocation for a in tape.arrays.values()]), capture_log.active_capture()
    return [g for a in memories if (g := a.grad if notes is None or not a.asked else a.gradient()) is not None]


def clear_published(tape: Recording, arrays: Iterable[array]) -> None:
    """Zero, as an event of this open tape, what `backward` inside it left in the gradients of its leaves `arrays`.

    So its own `backward` gives its gradient alone.
    """
    for a in arrays:
        if a.grad is not None and a.grad.allocation in tape.active:
            a.grad.zero_()


_USED_UP = (
    "this gradient is zero because the tape overwrote the array: .grad is the derivative by what the array held when"
    " the tape started. tape.adjoint(a) gives the derivative by its final contents; retain_grad=True publishes that"
    " instead."
)

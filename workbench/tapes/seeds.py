"""Seeds of the reverse pass: those that `backward` is given, or those written into `.grad`."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array
from ..arrays.host_reads import carrying
from ..arrays.read_values import source_of, united
from ..arrays.scalar import scalar
from ..arrays.span import byte_entries
from ..arrays.workspace import Workspace, add_seed, gradient_dtype
from ..device import xp
from ..errors import GradientError
from .event_log import is_read
from .recording import Recording


def seeds_of(tape: Recording, loss: array | None, grads: dict[array, array] | None) -> Workspace:
    """A workspace that holds the seeds: of `loss` (a one), of `grads`, or of the `.grad` bytes written since."""
    space = Workspace()
    if loss is None and grads is None:
        capture_log.refuse("backward() without seeds", "backward(loss), or backward(grads={y: seed})")
        _written_seeds(tape, space)
        if not space:
            text = "backward() found no seed: no `.grad` of what this tape computed was written."
            why = "Every gradient would be zero."
            raise GradientError(text, slug="no-seed", why=why, instead="backward(loss), or backward(grads={y: seed})")
        return space
    if grads is not None:
        check_pairs("backward(grads=...)", grads, "seed", _with_seeds(grads))
    if loss is not None:
        _check_loss(loss)
        check_seed(tape, loss)
        if loss.size != 1 or loss.dtype.size != 1:  # type: ignore[attr-defined]
            text = f"backward(loss) takes an array of one element, {loss.label} is {loss.dtype} of shape {loss.shape}."
            raise GradientError(text, slug="loss-shape", instead=f"backward(grads={{{loss.label}: seed}})")
        one = space[loss.allocation].view(loss.span, gradient_dtype(loss))
        add_one = (lambda: np.add(one, 1, out=one)) if isinstance(one, np.ndarray) else (lambda: one.__iadd__(1))
        capture_log.do(add_one, capture_log.gpu_of(one))
    for a, seed in (grads or {}).items():
        check_seed(tape, a)
        add_seed(space, a, seed)
    return space


def arrays_of(grads: object) -> Any:
    """The seeds, with those given as NumPy arrays or lists as arrays of the dtype that they are seeds for."""
    if not isinstance(grads, Mapping):
        return grads
    return {
        a: array(seed, dtype=a.dtype, device=a.device)
        if isinstance(a, array) and isinstance(seed, np.ndarray | list | tuple)
        else seed
        for a, seed in grads.items()
    }


def check_pairs(what: str, given: object, value: str, instead: str) -> None:
    """Raise for anything but a nonempty {array: value}."""
    if isinstance(given, Mapping):
        if given:
            return
        raise GradientError(f"{what} is empty: there is no {value}.", slug="no-seed", instead=instead)
    text = f"{what} takes a dict {{array: {value}}}, not {_described(given)}."
    raise GradientError(text, slug="seed-type", why=f"Each array comes with its own {value}.", instead=instead)


def _described(value: object) -> str:
    kind = type(value).__name__
    if isinstance(value, array | scalar):
        return f"{kind} {value.label}"
    return f"{kind} {value!r}"[:60] if isinstance(value, str | int | float | np.generic) else kind


def _with_seeds(arrays: object) -> str:
    """Source text, for a message, of the call that seeds each array among these with ones."""
    given = arrays if isinstance(arrays, list | tuple | set) else [arrays]
    names = [a.label for a in given if isinstance(a, array)][:4] or ["y"]
    return f"backward(grads={{{', '.join(f'{n}: wb.ones_like({n})' for n in names)}}})"


def _check_loss(loss: object) -> None:
    """Raise for a loss that is no array, with a way out for what it is."""
    if isinstance(loss, array):
        return
    instead = "backward(loss), with the array of one element that a kernel wrote the loss to"
    why = "A number has left the tape: nothing leads back from it."
    if isinstance(loss, Mapping):
        why, instead = "A dict of seeds has a name of its own.", "backward(grads={y: seed})"
    elif isinstance(loss, list | tuple):
        why, instead = "Several arrays come with a seed each.", _with_seeds(loss)
    elif isinstance(loss, scalar):
        why = "A declared scalar is an input of launches; a loss is what they write."
    elif hasattr(loss, "untyped_storage"):
        why = "What torch computes is on no tape."
    text = f"backward(loss) takes an array, not {_described(loss)}."
    raise GradientError(text, slug="seed-type", why=why, instead=instead)


def check_tape(what: str, tape: object, *others: object) -> None:
    """Raise if the first argument is no tape."""
    if isinstance(tape, Recording):
        return
    late = any(isinstance(o, Recording) for o in others)
    text = f"{what.partition('(')[0]}() takes a tape first, not {_described(tape)}."
    why = "" if late else "It looks at what a tape has recorded."
    instead = what if late else f"with wb.Tape() as tape: ... around the launches, then {what}"
    raise GradientError(text, slug="tape-type", why=why, instead=instead)


def check_seed(tape: Recording, a: object) -> None:
    """Raise for a value that is no array, or an array that the tape has not seen."""
    if not isinstance(a, array):
        instead = f"{a}, the array, without quotes" if isinstance(a, str) else "{y: seed}, with an array y"
        raise GradientError(f"a seed belongs to an array, not to {_described(a)}", slug="seed-type", instead=instead)
    if not tape.log.has_touched(a.span):
        text = f"{a.label} was neither read nor written while this tape recorded."
        why = "Only memory that the tape has seen has an adjoint: what is launched after the `with` is not on it."
        instead = "an array that one of its launches reads or writes"
        raise GradientError(text, slug="seed-untouched", why=why, instead=instead)


def check_start(tape: Recording, *arrays: array) -> None:
    """Raise if the tape overwrote all of these before anything read them: by what they held nothing has a slope."""
    if arrays and not any(is_read((e for e in tape.events if not e.kind.cuts), x.span) for x in arrays):
        text = f"the tape overwrote {arrays[0].label} before anything read what it held: by that, every slope is 0."
        instead = f"tape.adjoint({arrays[0].label}) behind backward(loss): by what it held at the end"
        raise GradientError(text, slug="overwritten-start", instead=instead)


def as_read(tape: Recording, derivative: np.ndarray) -> np.ndarray:
    """A derivative, which under another open tape counts as read from what `tape` depends on of that."""
    outer = memory.recorder()
    if outer is None:
        return derivative
    found = (source_of(a.span, a) for a in tape.arrays.values() if outer.follows([a]))
    return carrying(derivative, united((source,) for source in found if source is not None))


def _written_seeds(tape: Recording, space: Workspace) -> None:
    """The gradient bytes that the user, or a later tape, wrote into what this tape computed."""
    tape.log.tally()
    for a, marks in tape.log.written.items():
        grad = a.grad
        if grad is None or a not in tape.active:
            continue
        mask = grad.user_written_mask(grad.span())
        if grad.previous_view is not None and grad.previous_view.touched:
            raise GradientError(
                f"the seed of {tape.names.of_memory(a)} was written to an array that .grad.numpy() gave before the last"
                " backward().",
                slug="old-view",
                why="Since then it is an array of its own, and the seed would be lost.",
                instead="x.grad.numpy()[...] = seed, taken anew, or backward(grads={x: seed})",
            )
        when, by = grad.publisher
        later = when > tape.log.stamps.get(a, 0) and by is not weakref.ref(tape)
        if mask is None and not later:
            continue
        chosen = np.ones(grad.nbytes, bool) if later or mask is None else mask.reshape(-1)
        inside = np.zeros(grad.nbytes, bool)
        for span in marks:
            byte_entries(a.gradient_span(span), inside)[...] = True
        picked = np.flatnonzero(chosen & inside)
        if len(picked):
            picked = xp(a.device).asarray(picked)
            space[a].data[picked] = grad.bytes[picked]

"""The ghost of a film: the points and the field of another tape at the same steps, and the first number that parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...diagnose.against import aligned, first_difference, memories
from ...tapes.tape import Tape
from .against import distinct_digits
from .film import FilmReel, FilmTrack, reel
from .film_choice import refused
from .snapshot import full_shape


def lay_beside(made: FilmReel, other: object) -> None:
    """Take `ghosts` of a reel from another tape, step by step, NaN where it has none, and note where the two part.

    Numbers part where they differ by more than rounding. Raises LaunchError [film-layer] for what is no such tape.
    """
    if not isinstance(other, Tape):
        raise refused(f"against is another tape, not a {type(other).__name__}.")
    other.names.guess()
    theirs = {ours: a for a, ours in memories(made.tape, other, aligned(made.tape, other)).items()}
    layers = {role: made.tracks[role] for role in ("points", "field") if role in made.tracks}
    arrays = {role: [_like(a, other, theirs) for a in track.arrays] or None for role, track in layers.items()}
    drawn = {role: draw for role, draw in made.choice.drawn.items() if role == "points"}
    bare: dict[str, Any] = dict.fromkeys(("points", "field", "lines", "mesh", "colour", "arrows"))
    there = reel(other, replace(made.choice, **bare | arrays, drawn=drawn, remarks=[]), made.every, walked=False)
    at = {step: k for k, step in enumerate(there.steps)}
    for role, here in layers.items():
        track = there.tracks[role]
        ghost = made.ghosts[role] = np.full(here.values.shape, np.nan, np.float32)
        for k, n in ((k, at[step]) for k, step in enumerate(made.steps) if step in at):
            ghost[k] = np.where(track.sure(n), track.values[n], np.nan)
            if (said := _parting(here, k, track, n)) and (made.parted is None or k < made.parted[0]):
                made.parted = k, said
    until = "Both are the same." if made.parted is None else f"They part {made.said(made.parted[0])}: {made.parted[1]}."
    shorter = f" It has {there.count} {there.unit}s, not {made.count}." * (there.count != made.count)
    lacking = [f"Of the ghost: {text}" for text in there.remarks if text not in made.remarks]
    made.remarks += [f"The ghost is the other run.{shorter} {until}", *lacking]


def _like(a: array, other: Tape, theirs: Mapping[Allocation, Allocation]) -> array:
    """The array of the other tape in the place of one of ours. Raises LaunchError [film-layer] if it has none."""
    found, shape = theirs.get(a.allocation), full_shape(a)
    for b in (b for b in other.arrays.values() if b.allocation is found and full_shape(b) == shape):
        if a.span.offset * b.span.itemsize == b.span.offset * a.span.itemsize:
            return b
    raise refused(f"against: the other tape has no array like {a.label}, of shape {shape}.")


def _parting(here: FilmTrack, k: int, there: FilmTrack, n: int) -> str:
    """`x[3, 1]: 1.2 instead of 1.3`, the first number that differs in frame `k` from frame `n`; "" if none does."""
    both = here.sure(k) & there.sure(n)
    found = first_difference(np.where(both, here.values[k], 0), np.where(both, there.values[n], 0))
    if found is None:
        return ""
    index = found.index
    if here.role == "field":
        index = (*here.part, *(n * many for n, many in zip(index, here.block, strict=True)))
    return f"{here.name}[{', '.join(map(str, index))}]: {' instead of '.join(distinct_digits(found.here, found.there))}"

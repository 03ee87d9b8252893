"""The ghost of a film: the points and the field of another tape at the same steps, and the first number that parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...arrays import allocation as memory
from ...arrays.allocation import Allocation
from ...arrays.array import array
from ...diagnose.against import aligned, first_difference, memories
from ...tapes.tape import Tape
from .against import distinct_digits
from .film import FilmReel, FilmTrack, places_of, take_values
from .film_choice import refused
from .loops import turns
from .snapshot import full_shape


def lay_beside(made: FilmReel, other: object) -> None:
    """Take `ghosts` of a reel from another tape, step by step, NaN where it has none, and note where the two part.

    Numbers part where they differ by more than rounding. Raises LaunchError [film-layer] for what is no such tape.
    """
    if not isinstance(other, Tape):
        raise refused(f"against is another tape, not a {type(other).__name__}.")
    other.names.guess()
    starts, end, unit = turns(other)
    at, count = [*starts, end], len(starts)
    steps = [step for step in made.steps if step <= count]
    there = FilmReel(other, made.choice, [at[step] for step in steps], steps, unit, count)
    theirs = {ours: a for a, ours in memories(made.tape, other, aligned(made.tape, other)).items()}
    for role in ("points", "field"):
        if (track := made.tracks.get(role)) is not None:
            arrays = [_like(a, other, theirs) for a in track.arrays]
            places = places_of(other, arrays, there.moments)
            there.tracks[role] = FilmTrack(role, track.name, arrays, places, draw=track.draw)
    with memory.LOCK, memory.unrecorded():
        take_values(there, [track for track in there.tracks.values() if track.arrays])
        for track in (track for track in there.tracks.values() if track.draw):
            track.values = there.drawn(track, there.look)
    for role, track in there.tracks.items():
        here = made.tracks[role]
        ghost = np.full(here.values.shape, np.nan, np.float32)
        made.ghosts[role] = ghost
        for k in range(len(steps)):
            ghost[k] = np.where(track.sure(k), track.values[k], np.nan)
            if (said := _parting(here, track, k)) and (made.parted is None or k < made.parted[0]):
                made.parted = k, said
    until = "Both are the same." if made.parted is None else f"They part {made.said(made.parted[0])}: {made.parted[1]}."
    shorter = f" It has {count} {unit}s, not {made.count}." * (count != made.count)
    made.remarks += [
        f"The ghost is the other run.{shorter} {until}",
        *(f"Of the ghost: {text}" for text in there.remarks),
    ]


def _like(a: array, other: Tape, theirs: Mapping[Allocation, Allocation]) -> array:
    """The array of the other tape in the place of one of ours. Raises LaunchError [film-layer] if it has none."""
    found, shape = theirs.get(a.allocation), full_shape(a)
    for b in (b for b in other.arrays.values() if b.allocation is found and full_shape(b) == shape):
        if a.span.offset * b.span.itemsize == b.span.offset * a.span.itemsize:
            return b
    raise refused(f"against: the other tape has no array like {a.label}, of shape {shape}.")


def _parting(here: FilmTrack, there: FilmTrack, k: int) -> str:
    """`x[3, 1]: 1.2 instead of 1.3`, the first number that differs in a frame; "" if none does."""
    both = here.sure(k) & there.sure(k)
    found = first_difference(np.where(both, here.values[k], 0), np.where(both, there.values[k], 0))
    if found is None:
        return ""
    index = found.index
    if here.role == "field":
        index = (*here.part, *(n * many for n, many in zip(index, here.block, strict=True)))
    return f"{here.name}[{', '.join(map(str, index))}]: {' instead of '.join(distinct_digits(found.here, found.there))}"

"""The film of a tape as data: arrays at every step of the user's loop, with their adjoints; nothing is drawn here.

The moment of a frame is the position of an event: values and adjoints are those just before it ran. Values come from
what the tape kept; where that is not all of them the recorded program runs again on copies, and has to agree with what
was kept, bit for bit. Present memory is never taken for the past. Adjoints of all frames come from one walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.array import array, read_values
from ...arrays.workspace import Shadow, Workspace, shadow_view
from ...device import on_host
from ...errors import GradientError, LaunchError
from ...kernels.types import is_float
from ...tapes.replay import Runs
from ...tapes.seeds import check_seed
from ...tapes.tape import Tape
from .film_choice import FilmChoice
from .loops import turns
from .snapshot import TapeMoments, full_shape, reduced
from .text import clean

MOST = 1 << 25  # bytes of all frames
SIDE = 256  # cells of a field, each way
ARROWS = 0.95  # the share of adjoints that the arrow of the scale is not shorter than


@dataclass(eq=False)
class FilmTrack:
    """One array, or several in turn, over all frames: `values` (frames, count, components), or (frames, rows, columns).

    known     a mask of the values, (frames, count) or (frames, rows, columns); None where all are known.
    adjoint   of the shape of `values`; None where there is none, and `note` says why.
    part      the index of the plane of a 3-D grid; block: the numbers that a cell of the plane stands for.
    """

    role: str
    name: str
    arrays: list[array]
    places: list[int]  # per frame the number of the array that was written last before it
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    known: np.ndarray | None = None
    adjoint: np.ndarray | None = None
    again: bool = False  # do the values come from a second run
    note: str = ""
    part: tuple[int, ...] = ()
    block: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        shape = full_shape(self.arrays[0])
        if self.role != "field":
            return
        if len(shape) == 3:
            self.part = (shape[0] // 2,)
            self.note = f"{self.name}[{self.part[0]}] of {shape[0]} is drawn; field={self.name}[k] draws another."
        self.block = math.ceil(shape[-2] / SIDE), math.ceil(shape[-1] / SIDE)
        if self.block != (1, 1):
            self.note += f" A cell stands for {self.block[0]} × {self.block[1]}: the largest in size."

    def sure(self, k: int) -> np.ndarray:
        """The mask of the known values of a frame, of as many axes as they have."""
        if self.known is None:
            return np.ones_like(self.values[k], bool)
        return self.known[k] if self.role == "field" else self.known[k][..., None]

    def shaped(self, numbers: np.ndarray) -> np.ndarray:
        """The numbers of the array as they are drawn: rows of components, or the cells of a plane."""
        if self.role == "field":
            return reduced(numbers[self.part], self.block)
        return numbers.reshape(-1, full_shape(self.arrays[0])[-1] if self.role in ("points", "arrows") else 1)


@dataclass(eq=False)
class FilmReel:
    """All frames of a film: per frame its moment, and how many of the `count` steps are behind it.

    ghosts   by role the values of another run, NaN where it has none; parted: the first frame where the two differ by
             more than rounding, and the number that does.
    """

    tape: Tape
    choice: FilmChoice
    moments: list[int]
    steps: list[int]
    unit: str
    count: int
    tracks: dict[str, FilmTrack] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    ghosts: dict[str, np.ndarray] = field(default_factory=dict)
    parted: tuple[int, str] | None = None
    _runs: Runs | None = None

    @property
    def dims(self) -> int:
        """2 or 3, the axes of the stage."""
        points = self.tracks.get("points")
        return int(self.choice.view[0]) if self.choice.view else 2 if points is None else points.values.shape[-1]

    @property
    def places(self) -> np.ndarray:
        """All places of points of both runs, a frame along the first axis."""
        return np.concatenate([self.tracks["points"].values, *(self.ghosts[k] for k in self.ghosts if k == "points")])

    @property
    def poster(self) -> int:
        """The frame that stands for the film: before the last third."""
        return round(0.66 * (len(self.moments) - 1))

    def said(self, k: int) -> str:
        """The moment of a frame in words: `before step 38 · #76 spring`."""
        n, step, events = self.moments[k], self.steps[k], self.tape.events
        name = f" · #{n} {clean(events[n].label)}" if n < len(events) else " · the end of the tape"
        return (f"before {self.unit} {step}" if step < self.count else f"after {self.unit} {step - 1}") + name

    @property
    def caption(self) -> list[str]:
        """Sentences: the layers, the source of their numbers, and what is not to be had."""
        tracks, choice, layers = self.tracks, self.choice, []
        for role in ("points", "lines", "mesh", "colour", "field", "arrows"):
            index, track = getattr(choice, role), tracks.get(role)
            if isinstance(index, np.ndarray):
                layers.append(f"{role} {choice.names[role]} ({len(index)})")
            elif track is not None:
                of = {"arrows": "−adjoint of ", "colour": "adjoint of "}.get(role, "")
                size = {"points": f" ({track.values.shape[1]})", "field": f" {full_shape(track.arrays[0])}"}.get(
                    role, ""
                )
                layers.append(f"{role} {of if getattr(choice, f'{role}_of', False) else ''}{track.name}{size}")
        if "arrows" not in tracks and self.arrows is not None:
            layers.append(f"arrows −adjoint of {tracks['points'].name} (where the loss falls)")
        found = [" · ".join([*layers, f"{self.count} {self.unit}{'s' * (self.count != 1)}"])]
        if again := [t.name for t in tracks.values() if t.again]:
            found.append(f"The recorded program ran again for the values of {', '.join(again)}.")
        return [*found, *(t.note.strip() for t in tracks.values() if t.note), *self.remarks, *choice.remarks]

    @property
    def arrows(self) -> np.ndarray | None:
        """(frames, count, components) of the arrows that are drawn: minus an adjoint, or values."""
        track = self.tracks.get("arrows") or self.tracks.get("points")
        if track is None or self.choice.arrows is None:
            return None
        if track.role == "arrows" and not self.choice.arrows_of:
            return track.values
        return None if track.adjoint is None else -track.adjoint

    @property
    def colours(self) -> np.ndarray | None:
        """(frames, count): numbers that colour points, lines or triangles."""
        track = self.tracks.get("colour")
        found = None if track is None else track.adjoint if self.choice.colour_of else track.values
        return None if found is None else found[..., 0]

    def runs(self) -> Runs:
        """The recorded program, to run again. Raises what `tape.replay` raises."""
        self._runs = self._runs or Runs(self.tape)
        return self._runs

    def run(self, tracks: Sequence[FilmTrack], end: Callable[[], None] = lambda: None) -> list[np.ndarray]:
        """The frames of tracks in a run from where `runs()` was restarted, as `values`; `end` is called at its end."""
        runs, frames = self.runs(), {n: k for k, n in enumerate(self.moments)}
        found = [np.zeros(track.values.shape, np.float32) for track in tracks]

        def take(n: int) -> None:
            if (k := frames.get(n)) is not None:
                for track, values in zip(tracks, found, strict=True):
                    values[k] = track.shaped(read_values(runs.of(track.arrays[track.places[k]])))

        runs.run(take)
        end()
        return found

    def derivative(self, track: FilmTrack, k: int, space: Workspace) -> np.ndarray:
        """The adjoint or tangent, in a walk that is at the moment of frame `k`, of what is drawn there."""
        a = track.arrays[track.places[k]]
        known = a.allocation in space
        return track.shaped(on_host(shadow_view(a, space[a.allocation])) if known else np.zeros(full_shape(a)))


def reel(tape: Tape, choice: FilmChoice, every: int | None = None, most: int = MOST) -> FilmReel:
    """The film of a tape: every `every`-th step, by default as many as fit into `most` bytes. Reads under the lock.

    Raises LaunchError [film-every] for an `every` that is no number of steps.
    """
    if every is not None and (not isinstance(every, int) or every < 1):
        raise LaunchError(f"every={every!r} is no number of steps.", slug="film-every", instead="every=10")
    starts, end, unit = turns(tape)
    layers, count = choice.tracks(), len(starts)
    size = sum(8 * min(math.prod(full_shape(arrays[0])), SIDE**2 << 2) for _, arrays in layers.values())
    by = every or max(math.ceil((count + 1) * size / most), 1)
    made = FilmReel(tape, choice, [*starts[::by], end], [*range(0, count, by), count], unit, count)
    if by > 1:
        why = f": all would take over {most >> 20} MiB; every=1 has them" * (every is None)
        made.remarks.append(f"A frame is every {by} {unit}s{why}.")
    for role, (name, arrays) in layers.items():
        made.tracks[role] = FilmTrack(role, name, arrays, places_of(tape, arrays, made.moments))
    with memory.LOCK, memory.unrecorded():
        take_values(made)
        _take_adjoints(made)
    return made


def places_of(tape: Tape, arrays: list[array], moments: Sequence[int]) -> list[int]:
    """Per moment the number of the array that was written last before it."""
    near: dict[Any, list[int]] = {}
    for k, a in enumerate(arrays if len(arrays) > 1 else ()):
        near.setdefault(a.allocation, []).append(k)
    found, last, at = [], 0, 0
    for moment in moments:
        for write in (span for event in tape.events[at:moment] for span in event.writes):
            for k in near.get(write.allocation, ()):
                last = k if arrays[k].span.overlaps(write) is not False else last
        at = moment
        found.append(last)
    return found


# ---- values


def take_values(made: FilmReel) -> None:
    moments, lacking = TapeMoments(made.tape), []
    for track in made.tracks.values():
        _take_kept(track, made, moments)
        lacking += [track] if track.known is not None else []
    if not lacking:
        return
    try:
        made.runs().restart()
        found = made.run(lacking)
        for track, again in zip(lacking, found, strict=True):
            known = track.known if track.role == "field" else np.broadcast_to(track.known[..., None], again.shape)
            if not np.array_equal(track.values[known], again[known], equal_nan=True):
                text = f"{track.name} holds other numbers then, by the order of threads, or as it was changed since."
                raise GradientError(text, slug="replay-differs")
    except GradientError as error:
        hint = ' wb.Tape(keep="all") keeps it.' * ("[not-kept]" in str(error))
        made.remarks.append(f"The program could not run again: {_first_line(error)}{hint}")
        for track in lacking:
            missing = sum(not frame.all() for frame in track.known)
            track.note += f" {track.name} was not kept in {missing} of {len(track.known)} frames."
        return
    for track, again in zip(lacking, found, strict=True):
        track.values, track.known, track.again = again, None, True


def _take_kept(track: FilmTrack, made: FilmReel, moments: TapeMoments) -> None:
    """Take the values that the tape kept, zeros where they are unknown, and the mask of the known ones."""
    values: list[Any] = [None] * len(track.places)
    known: list[Any] = [None] * len(track.places)
    for place, k in sorted(((place, k) for k, place in enumerate(track.places)), reverse=True):  # each from the right
        a = track.arrays[place]
        numbers, sure, _ = moments.value(a, made.moments[k])
        certain = moments.status(a.allocation, made.moments[k])[1]
        sure = sure & np.ndarray(numbers.shape, bool, certain, a.span.offset, a.data.strides)
        values[k] = track.shaped(np.where(sure, numbers, 0))
        known[k] = track.shaped(~sure) == 0 if track.role == "field" else track.shaped(sure).all(-1)
    track.values, mask = np.stack(values).astype(np.float32), np.stack(known)
    track.known = None if mask.all() else mask


def _first_line(error: Exception) -> str:
    return clean(str(error).splitlines()[0])


# ---- adjoints


def _take_adjoints(made: FilmReel) -> None:
    """The adjoints of all tracks that have a use for them, at all frames, from one walk."""
    tape, choice, asked = made.tape, made.choice, []
    followed = {"points": True, "field": True, "arrows": choice.arrows_of, "colour": choice.colour_of}
    for track in made.tracks.values():
        try:
            for a in track.arrays:
                check_seed(tape, a)
                tape.refuse_inactive(a)
            asked += [track] if followed[track.role] and is_float(track.arrays[0].dtype) else []
        except GradientError as error:
            track.note += f" No adjoint of {track.name}: {_first_line(error)}"
    if not tape.last_seeds:
        made.remarks.append("No adjoints: tape.backward(loss) comes first.")
        return
    frames = {n: k for k, n in enumerate(made.moments)}
    at = {event: frames[n] for n, event in enumerate(tape.events) if n in frames}
    found = {id(track): np.zeros(track.values.shape, np.float32) for track in asked}

    def take(k: int | None, space: Workspace) -> None:
        if k is not None:
            for track in asked:
                found[id(track)][k] = made.derivative(track, k, space)

    seeds = Workspace()
    for a, seed in tape.last_seeds.items():
        seeds[a] = Shadow(a, start=seed)
    take(frames.get(len(tape.events)), seeds)
    try:
        tape.retrace(lambda event, space: take(at.get(event), space))
    except GradientError as error:
        made.remarks.append(f"No adjoints: {_first_line(error)}")
        return
    for track in asked:
        track.adjoint = found[id(track)]


# ---- scales


def nice(number: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above a number; 1 for what is not above 0."""
    if not (number > 0 and math.isfinite(number)):
        return 1.0
    ten = 10.0 ** math.floor(math.log10(number))
    return next(k * ten for k in (5, 2, 1) if k * ten <= number * (1 + 1e-9))


def arrow_scale(arrows: np.ndarray) -> float:
    """The length that is written beside the arrows: few of them are longer."""
    sizes = np.linalg.norm(arrows.astype(np.float64), axis=-1)
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    return nice(float(np.quantile(sizes, ARROWS))) if sizes.size else 1.0


def largest(numbers: np.ndarray) -> float:
    """The largest finite size; 0 where there is none."""
    return float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0))


def bounds(points: np.ndarray) -> list[list[float]]:
    """The box of all finite points, as [least, most] of each axis."""
    flat = points.reshape(-1, points.shape[-1]).astype(np.float64)
    flat = flat[np.isfinite(flat).all(-1)]
    return np.stack([flat.min(0), flat.max(0)], 1).tolist() if flat.size else [[-1.0, 1.0]] * points.shape[-1]

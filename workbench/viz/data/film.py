"""The film of a tape as data: arrays at every step of the user's loop, with their adjoints; nothing is drawn here.

The moment of a frame is the position of an event: values and adjoints are those just before it ran. Values come from
what the tape kept; where that is not all of them the recorded program runs again on copies, and has to agree with what
was kept, bit for bit. Present memory is never taken for the past. Adjoints of all frames come from one walk.
A ghost: the points and the field of another tape at the same steps, and the first number that parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.allocation import Allocation
from ...arrays.array import array, read_values
from ...arrays.grouping import grouped
from ...arrays.workspace import Shadow, Workspace, shadow_view
from ...device import on_host
from ...diagnose.against import aligned, first_difference, memories
from ...errors import GradientError, LaunchError
from ...kernels.types import is_float
from ...tapes.replay import Runs
from ...tapes.reverse import Observer
from ...tapes.seeds import check_seed
from ...tapes.tape import Tape
from .against import distinct_digits
from .film_choice import FilmChoice, refused
from .loops import turns
from .snapshot import SeedBytes, TapeMoments, full_shape, reduced
from .text import clean

MOST = 1 << 25  # bytes of all frames
SIDE = 256  # cells of a field, each way
ARROWS = 0.95  # the share of adjoints that the arrow of the scale is not shorter than


class FilmState:
    """The state at a frame, for a function that draws it: `s.x`, or `s["sim.x"]`, are the values of that array then.

    Arrays are found by what the tape calls them; values that are not to be had are NaN. `s.step` is the number of steps
    behind the frame.
    """

    def __init__(self, step: int, look: Callable[[str], np.ndarray]):
        self.step, self._look = step, look

    def __getattr__(self, name: str) -> np.ndarray:
        return self._look(name)

    __getitem__ = __getattr__


@dataclass(eq=False)
class FilmTrack:
    """One array, or several in turn, over all frames: `values` (frames, count, components), or (frames, rows, columns).

    known     a mask of the values, (frames, count, 1) or (frames, rows, columns); None where all are known.
    adjoint   of the shape of `values`; None where there is none, and `note` says why.
    part      the index of the plane of a 3-D grid; block: the numbers that a cell of the plane stands for.
    draw      the function of the user's that returns the values of a frame, if no array has them.
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
    draw: Callable[[FilmState], Any] | None = None

    def __post_init__(self) -> None:
        if self.role != "field":
            return
        shape = full_shape(self.arrays[0])
        if len(shape) == 3:
            self.part = (shape[0] // 2,)
            self.note = f"{self.name}[{self.part[0]}] of {shape[0]} is drawn; field={self.name}[k] draws another."
        self.block = math.ceil(shape[-2] / SIDE), math.ceil(shape[-1] / SIDE)
        if self.block != (1, 1):
            self.note += f" A cell stands for {self.block[0]} × {self.block[1]}: the largest in size."

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array, without components."""
        return full_shape(self.arrays[0])[:-1] if self.arrays else self.values.shape[1:2]

    def sure(self, k: int) -> np.ndarray:
        """The mask of the known values of a frame."""
        return np.broadcast_to(True if self.known is None else self.known[k], self.values.shape[1:])

    def shaped(self, numbers: np.ndarray) -> np.ndarray:
        """The numbers of the array as they are drawn: rows of components, or the cells of a plane."""
        if self.role == "field":
            return reduced(numbers[self.part], self.block)
        if self.role == "named":
            return numbers
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
    every: int = 1
    tracks: dict[str, FilmTrack] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    ghosts: dict[str, np.ndarray] = field(default_factory=dict)
    parted: tuple[int, str] | None = None
    named: dict[str, FilmTrack] = field(default_factory=dict)  # what functions have asked for
    seeds: SeedBytes = field(default_factory=dict)  # of the adjoints

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
        own = n < len(events) and events[n].kind.own
        name = f" · #{n} {clean(events[n].label)}" if own else " · the end of the tape"
        return (f"before {self.unit} {step}" if step < self.count else f"after {self.unit} {step - 1}") + name

    @property
    def caption(self) -> list[str]:
        """Sentences: the layers, the source of their numbers, and what is not to be had."""
        tracks, choice, layers = self.tracks, self.choice, []
        for role in ("points", "lines", "mesh", "colour", "field", "arrows"):
            index, track = getattr(choice, role), tracks.get(role)
            if isinstance(index, np.ndarray):
                layers.append(f"{role} {choice.names[role]} ({len(index)})".replace(f"{role} {role}", role))
            elif track is not None:
                of = {"arrows": "−adjoint of ", "colour": "adjoint of "}.get(role, "")
                shape = full_shape(track.arrays[0]) if role == "field" else f"({track.values.shape[1]})"
                size = f" {shape}" * (role in ("points", "field"))
                layers.append(f"{role} {of if getattr(choice, f'{role}_of', False) else ''}{track.name}{size}")
        if "arrows" not in tracks and self.arrows is not None:
            layers.append(f"arrows −adjoint of {tracks['points'].name} (where the loss falls)")
        found = [" · ".join([*layers, f"{self.count} {self.unit}{'s' * (self.count != 1)}"])]
        every = [*tracks.values(), *self.named.values()]
        if again := list(dict.fromkeys(t.name for t in every if t.again)):
            found.append(f"The recorded program ran again for the values of {', '.join(again)}.")
        return [*found, *(t.note.strip() for t in every if t.note), *self.remarks, *choice.remarks]

    @property
    def falling(self) -> FilmTrack | None:
        """The track whose adjoints, negated, are the arrows; None if they are values, or none are drawn."""
        track = self.tracks.get("arrows") or self.tracks.get("points")
        own = track is not None and track.role == "arrows" and not self.choice.arrows_of
        return None if self.choice.arrows is None or own or track is None or track.adjoint is None else track

    @property
    def arrows(self) -> np.ndarray | None:
        """(frames, count, components) of the arrows that are drawn: minus an adjoint, or values."""
        if "arrows" in self.tracks and not self.choice.arrows_of:
            return self.tracks["arrows"].values
        return None if (track := self.falling) is None else -np.asarray(track.adjoint)

    @property
    def colours(self) -> np.ndarray | None:
        """(frames, count): numbers that colour points, lines or triangles."""
        track = self.tracks.get("colour")
        found = None if track is None else track.adjoint if self.choice.colour_of else track.values
        return None if found is None else found[..., 0]

    @cached_property
    def runs(self) -> Runs:
        """The recorded program, to run again. Raises what `tape.replay` raises."""
        return Runs(self.tape)

    @cached_property
    def at(self) -> dict[int, int]:
        """The frame of a moment."""
        return {n: k for k, n in enumerate(self.moments)}

    def run(self, tracks: Sequence[FilmTrack]) -> list[np.ndarray]:
        """The frames of tracks in a run from where `runs` was restarted, as `values`."""
        asked = [track for track in (*tracks, *self.named.values()) if track.draw is None]
        found = {id(track): np.zeros(track.values.shape, np.float32) for track in asked}

        def take(n: int) -> None:
            if (k := self.at.get(n)) is not None:
                for track in asked:
                    found[id(track)][k] = track.shaped(read_values(self.runs.of(track.arrays[track.places[k]])))

        self.runs.run(take)
        look = {name: found[id(track)] for name, track in self.named.items()}
        return [self.drawn(track, look.__getitem__) if track.draw else found[id(track)] for track in tracks]

    def look(self, name: str) -> np.ndarray:
        """The values of all frames of the array of this name. Raises LaunchError [film-layer] if there is none."""
        if name not in self.named:
            called = {a.span: a for a in self.tape.arrays.values() if self.tape.names.given(a) == name}
            if not called:
                names = [*filter(None, dict.fromkeys(map(self.tape.names.given, self.tape.arrays.values())))]
                raise refused(f"there is no array {name!r} on the tape, only {', '.join(names[:12])}, …")
            like = full_shape(next(iter(called.values())))
            arrays = [a for a in called.values() if full_shape(a) == like]
            track = FilmTrack("named", name, arrays, _places(self.tape, arrays, self.moments))
            _take_values(self, [track])
            if track.known is not None:
                track.values = np.where(track.known, track.values, np.nan)
            self.named[name] = track
        return self.named[name].values

    def drawn(self, track: FilmTrack, look: Callable[[str], np.ndarray]) -> np.ndarray:
        """The values that the function of a layer returns. Raises LaunchError [film-layer] for what cannot be drawn."""
        assert track.draw is not None
        states = (FilmState(step, lambda name, k=k: look(name)[k]) for k, step in enumerate(self.steps))
        frames = [np.asarray(track.draw(s), np.float32) for s in states]
        frames = [frame.reshape(-1, 1) if track.role == "colour" else frame for frame in frames]
        shapes = {frame.shape: None for frame in frames}
        if len(shapes) > 1 or frames[0].ndim != 2 or (track.role != "colour" and frames[0].shape[1] not in (2, 3)):
            need = "a number each" if track.role == "colour" else "rows of 2 or 3 numbers"
            raise refused(f"{track.role} of {track.name} is {need}, as many in each frame, not {list(shapes)[:2]}.")
        return np.stack(frames)

    def along(self, tracks: Sequence[FilmTrack], walk: Callable[[Observer], Any], end: Workspace) -> list[np.ndarray]:
        """The adjoints or tangents of tracks at all frames of a walk; `end` has those behind the tape."""
        at = {self.tape.events[n]: k for n, k in self.at.items() if n < len(self.tape.events)}
        found = [np.zeros(track.values.shape, np.float32) for track in tracks]

        def take(k: int | None, space: Workspace) -> None:
            if k is not None:
                for track, numbers in zip(tracks, found, strict=True):
                    a = track.arrays[track.places[k]]
                    if a.allocation in space:
                        numbers[k] = track.shaped(on_host(shadow_view(a, space[a.allocation])))

        walk(lambda event, space: take(at.get(event), space))
        take(self.at.get(len(self.tape.events)), end)
        return found

    def walked(self, tracks: Sequence[FilmTrack], seeds: SeedBytes | None = None) -> list[np.ndarray]:
        """The adjoints of tracks at all frames, from one walk with these seeds, or those of the last `backward`."""
        given = self.tape.last_seeds if seeds is None else seeds
        end = Workspace({a: Shadow(a, start=data) for a, data in given.items()})
        return self.along(tracks, lambda observe: self.tape.retrace(observe, None, seeds), end)


def reel(tape: Tape, choice: FilmChoice, every: int | None = None, most: int = MOST, walked: bool = True) -> FilmReel:
    """The film of a tape: every `every`-th step, by default as many as fit into `most` bytes. Reads under the lock.

    walked   False for a film without adjoints. Raises LaunchError [film-every] for an `every` that is no such number.
    """
    if every is not None and (not isinstance(every, int) or every < 1):
        raise LaunchError(f"every={every!r} is no number of steps.", slug="film-every", instead="every=10")
    starts, end, unit = turns(tape)
    layers, count = choice.tracks(), len(starts)
    size = sum(8 * min(math.prod(full_shape(arrays[0])), SIDE**2 << 2) for _, arrays in layers.values())
    by = every or max(math.ceil((count + 1) * size / most), 1)
    made = FilmReel(tape, choice, [*starts[::by], end], [*range(0, count, by), count], unit, count, by)
    if by > 1:
        why = f": all would take over {most >> 20} MiB; every=1 has them" * (every is None)
        made.remarks.append(f"A frame is every {by} {unit}s{why}.")
    for role, (name, arrays) in layers.items():
        made.tracks[role] = FilmTrack(role, name, arrays, _places(tape, arrays, made.moments))
    with memory.LOCK, memory.unrecorded():
        _take_values(made, list(made.tracks.values()))
        if walked:
            _take_adjoints(made)
        for role, draw in choice.drawn.items():
            track = made.tracks[role] = FilmTrack(role, choice.names[role], [], [], draw=draw)
            track.values = made.drawn(track, made.look)
    _refuse_misfits(made)
    return made


def _refuse_misfits(made: FilmReel) -> None:
    """Raise LaunchError [film-layer] where layers do not fit to the points, lines and triangles."""
    tracks, ends = made.tracks, [found for found in (made.choice.lines, made.choice.mesh) if found is not None]
    many = tracks["points"].values.shape[1] if "points" in tracks else 0
    if any(found.size and found.max() >= many for found in ends):
        raise refused(f"lines or mesh have the number of a point that is none of {many}.")
    if "colour" in tracks and (count := tracks["colour"].values.shape[1]) not in (many, *map(len, ends)):
        raise refused(f"colour has {count} numbers, for {[many, *map(len, ends)]} points, lines and triangles.")
    shapes = {role: track.values.shape for role, track in tracks.items()}
    if "arrows" in tracks and shapes["arrows"] != shapes.get("points"):
        raise refused("arrows need one vector for each point.")


def _places(tape: Tape, arrays: list[array], moments: Sequence[int]) -> list[int]:
    """Per moment the number of the array that was written last before it."""
    near = grouped((a.allocation, k) for k, a in enumerate(arrays if len(arrays) > 1 else ()))
    found, last, at = [], 0, 0
    for moment in moments:
        for write in (span for event in tape.events[at:moment] for span in event.writes):
            for k in near.get(write.allocation, ()):
                last = k if arrays[k].span.overlaps(write) is not False else last
        at = moment
        found.append(last)
    return found


# ---- values


def _take_values(made: FilmReel, tracks: Sequence[FilmTrack]) -> None:
    """Take the values of tracks at all frames; what is not to be had is said in a remark."""
    moments, lacking = TapeMoments(made.tape), []
    for track in tracks:
        _take_kept(track, made, moments)
        lacking += [track] if track.known is not None else []
    if not lacking:
        return
    try:
        made.runs.restart()
        found = made.run(lacking)
        for track, again in zip(lacking, found, strict=True):
            known = np.broadcast_to(track.known, again.shape)
            if not np.array_equal(track.values[known], again[known], equal_nan=True):
                text = f"{track.name} holds other numbers then, by the order of threads, or as it was changed since."
                raise GradientError(text, slug="replay-differs")
    except GradientError as error:
        hint = ' wb.Tape(keep="all") keeps it.' * ("[not-kept]" in str(error))
        made.remarks.append(f"The program could not run again: {first_line(error)}{hint}")
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
        whole = track.role in ("field", "named")
        known[k] = track.shaped(~sure) == 0 if whole else track.shaped(sure).all(-1, keepdims=True)
    track.values, mask = np.stack(values).astype(np.float32), np.stack(known)
    track.known = None if mask.all() else mask


def first_line(error: Exception) -> str:
    """The first line of an error, for a sentence of a film."""
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
            track.note += f" No adjoint of {track.name}: {first_line(error)}"
    if not tape.last_seeds:
        made.remarks.append("No adjoints: tape.backward(loss) comes first.")
        return
    made.seeds = {a: seed.copy() for a, seed in tape.last_seeds.items()}
    try:
        found = made.walked(asked)
    except GradientError as error:
        made.remarks.append(f"No adjoints: {first_line(error)}")
        return
    for track, adjoint in zip(asked, found, strict=True):
        track.adjoint = adjoint


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


# ---- the ghost


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

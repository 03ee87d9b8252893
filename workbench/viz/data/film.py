"""The film of a tape as data: arrays at every step of the user's loop, with their adjoints; nothing is drawn here.

The moment of a frame is the position of an event: values and adjoints are those just before it ran. Values come from
what the tape kept; where that is not all of them the recorded program runs again on copies, and has to agree with what
was kept, bit for bit. Present memory is never taken for the past. Adjoints of all frames come from one walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays import allocation as memory
from ...arrays.array import array, read_values
from ...arrays.workspace import Shadow, Workspace, shadow_view
from ...device import on_host
from ...errors import GradientError, LaunchError
from ...kernels.types import is_float
from ...tapes.events import Event
from ...tapes.replay import Runs
from ...tapes.seeds import check_seed
from ...tapes.tape import Tape
from .film_choice import FilmChoice
from .loops import turns
from .snapshot import TapeMoments, full_shape, reduced
from .text import clean

MOST = 1 << 26  # bytes of all frames
SIDE = 256  # cells of a field, each way
ARROWS = 0.95  # the share of adjoints that the arrow of the scale is not shorter than


@dataclass(eq=False)
class FilmTrack:
    """One array, or several in turn, over all frames: `values` (frames, count, components), or (frames, rows, columns).

    known     a mask of the values, (frames, count) or (frames, rows, columns); None where all are known.
    adjoint   of the shape of `values`; None where there is none, and `note` says why.
    """

    role: str
    name: str
    arrays: list[array]
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    known: np.ndarray | None = None
    adjoint: np.ndarray | None = None
    note: str = ""
    source: str = ""
    part: tuple[int, ...] = ()  # index of the slice of a 3-D grid
    block: tuple[int, int] = (1, 1)

    @property
    def plane(self) -> bool:
        return self.role == "field"

    def shaped(self, numbers: np.ndarray, mask: bool = False) -> np.ndarray:
        """The numbers of the array as they are drawn: rows of components, or the cells of a plane."""
        if not self.plane:
            width = full_shape(self.arrays[0])[-1] if self.role in ("points", "arrows") else 1
            rows = numbers.reshape(-1, width)
            return np.asarray(rows.all(-1)) if mask else rows
        cells = numbers[self.part]
        return np.asarray(reduced(~cells, self.block) == 0) if mask else reduced(cells, self.block)


@dataclass(eq=False)
class FilmReel:
    """All frames of a film.

    moments  per frame the position of the event that it is before; steps: how many steps are behind it.
    """

    tape: Tape
    choice: FilmChoice
    moments: list[int]
    steps: list[int]
    unit: str
    count: int
    every: int
    tracks: dict[str, FilmTrack]
    refused: str = ""  # why the program did not run again
    unwalked: str = ""  # why there are no adjoints
    _runs: Runs | None = None

    @property
    def dims(self) -> int:
        """2 or 3, the axes of the stage."""
        if self.choice.view:
            return int(self.choice.view[0])
        points = self.tracks.get("points")
        return 2 if points is None else points.values.shape[-1]

    def said(self, k: int) -> str:
        """The moment of a frame in words: `before step 38 · #76 spring`."""
        n, step, events = self.moments[k], self.steps[k], self.tape.events
        name = f" · #{n} {clean(events[n].label)}" if n < len(events) else " · the end of the tape"
        return (f"before {self.unit} {step}" if step < self.count else f"after {self.unit} {step - 1}") + name

    @property
    def caption(self) -> list[str]:
        """Sentences on what is drawn, where the numbers come from, and what is not to be had."""
        named = [self._layer(role) for role in ("points", "lines", "mesh", "colour", "field", "arrows")]
        every = "" if self.every == 1 else f", every {self.every}"
        steps = f"{self.count} {self.unit}{'s' * (self.count != 1)}{every}"
        found = [" · ".join([*filter(None, named), steps])]
        again = [t.name for t in self.tracks.values() if t.source == "again"]
        if again:
            found.append(f"The recorded program ran again for the values of {', '.join(again)}.")
        found += [t.note.strip() for t in self.tracks.values() if t.note]
        return [*found, *filter(None, [self.refused, self.unwalked]), *self.choice.remarks]

    def _layer(self, role: str) -> str:
        choice, track = self.choice, self.tracks.get(role)
        if role in ("lines", "mesh"):
            index = getattr(choice, role)
            return "" if index is None else f"{role} {choice.names[role]} ({len(index)})"
        if role == "arrows" and track is None:
            points = self.tracks.get("points")
            shown = choice.arrows is not None and points is not None and points.adjoint is not None
            return f"arrows −adjoint of {points.name} (where the loss falls)" if points and shown else ""
        if track is None:
            return ""
        text = {"points": f" ({track.values.shape[1]})", "field": f" {full_shape(track.arrays[0])}"}.get(role, "")
        of = "−adjoint of " if role == "arrows" and choice.arrows_of else ""
        of = "adjoint of " if role == "colour" and choice.colour_of else of
        return f"{role} {of}{track.name}{text}"

    @property
    def arrows(self) -> np.ndarray | None:
        """(frames, count, components) of the arrows that are drawn: minus an adjoint, or values."""
        track = self.tracks.get("arrows")
        if track is None:
            points = self.tracks.get("points")
            found = points.adjoint if points is not None and self.choice.arrows is not None else None
            return None if found is None else -found
        if not self.choice.arrows_of:
            return track.values
        return None if track.adjoint is None else -track.adjoint

    @property
    def colours(self) -> np.ndarray | None:
        """(frames, count): numbers that colour points, lines or triangles."""
        track = self.tracks.get("colour")
        found = None if track is None else track.adjoint if self.choice.colour_of else track.values
        return None if found is None else found[..., 0]

    # ---- runs

    def runs(self) -> Runs:
        """The recorded program, to run again. Raises what `tape.replay` raises."""
        if self._runs is None:
            self._runs = Runs(self.tape)
        return self._runs

    def places(self, track: FilmTrack) -> list[int]:
        """Per frame the number of the array of a track that was written last before it."""
        return _writers(track, self.moments, self.tape.events)

    def again(self, role: str, also: Callable[[int], None]) -> np.ndarray:
        """The frames of a track in a run from where `runs()` was restarted, as `values`; `also` as `take` of `run`."""
        track, runs, events = self.tracks[role], self.runs(), {n: k for k, n in enumerate(self.moments)}
        places, found = self.places(track), np.zeros_like(track.values)

        def take(n: int) -> None:
            if (k := events.get(n)) is not None:
                found[k] = track.shaped(read_values(runs.of(track.arrays[places[k]])))
            also(n)

        runs.run(take)
        return found


def reel(tape: Tape, choice: FilmChoice, every: int | None = None, most: int = MOST) -> FilmReel:
    """The film of a tape: every `every`-th step, by default as many as fit into `most` bytes. Reads under the lock.

    Raises LaunchError for a choice that does not fit.
    """
    if every is not None and (not isinstance(every, int) or every < 1):
        raise LaunchError(f"every={every!r} is no number of steps.", slug="film-every", instead="every=10")
    starts, end, unit = turns(tape)
    tracks = {role: _track(role, name, arrays) for role, (name, arrays) in choice.tracks().items()}
    size = sum(_size(track) for track in tracks.values())
    count = len(starts)
    fitting = max(math.ceil((count + 1) * size / most), 1)
    by = fitting if every is None else every
    moments, steps = [*starts[::by], end], [*range(0, count, by), count]
    made = FilmReel(tape, choice, moments, steps, unit, count, by, tracks)
    if by > 1 and every is None:
        choice.remarks.append(f"Every {by}th {unit}: more would take over {most >> 20} MiB; every=1 has all.")
    with memory.LOCK, memory.unrecorded():
        _take_values(made)
        _take_adjoints(made)
    return made


def _track(role: str, name: str, arrays: list[array]) -> FilmTrack:
    track = FilmTrack(role, name, arrays)
    if track.plane:
        shape = full_shape(arrays[0])
        if len(shape) == 3:
            track.part = (shape[0] // 2,)
            track.note = f"{name} is drawn at [{shape[0] // 2}] of {shape[0]}; field={name}[k] draws another slice."
        track.block = math.ceil(shape[-2] / SIDE), math.ceil(shape[-1] / SIDE)
        if track.block != (1, 1):
            track.note += f" A cell of {name} stands for {track.block[0]} × {track.block[1]}: the largest in size."
    return track


def _size(track: FilmTrack) -> int:
    """Bytes of a frame."""
    shape = full_shape(track.arrays[0])
    cells = math.prod(math.ceil(n / b) for n, b in zip(shape[-2:], track.block)) if track.plane else math.prod(shape)
    return 8 * cells


# ---- values


def _writers(track: FilmTrack, moments: Sequence[int], events: Sequence[Event]) -> list[int]:
    """Per moment the number of the array that was written last before it."""
    if len(track.arrays) == 1:
        return [0] * len(moments)
    spans = [a.span for a in track.arrays]
    near: dict[Any, list[int]] = {}
    for k, span in enumerate(spans):
        near.setdefault(span.allocation, []).append(k)
    found, last, at = [], 0, 0
    for moment in moments:
        for event in events[at:moment]:
            for write in event.writes:
                for k in near.get(write.allocation, ()):
                    last = k if spans[k].overlaps(write) is not False else last
        at = max(at, moment)
        found.append(last)
    return found


def _take_values(made: FilmReel) -> None:
    moments = TapeMoments(made.tape)
    lacking = []
    for track in made.tracks.values():
        kept, known = _kept(track, made, moments)
        track.values, track.known, track.source = kept, known, "kept"
        if known is not None:
            lacking.append(track)
    if not lacking:
        return
    try:
        found = _run_again(made, lacking)
        for track, values in zip(lacking, found, strict=True):
            _refuse_other_numbers(track, values)
        for track, values in zip(lacking, found, strict=True):
            track.values, track.known, track.source = values, None, "again"
    except GradientError as error:
        made.refused = f"The program could not run again: {clean(str(error).splitlines()[0])}"
        for track in lacking:
            assert track.known is not None
            missing = [k for k, frame in enumerate(track.known) if not frame.all()]
            track.note += f" {track.name} was not kept in {len(missing)} of {len(track.known)} frames."


def _kept(track: FilmTrack, made: FilmReel, moments: TapeMoments) -> tuple[np.ndarray, np.ndarray | None]:
    """From the tape: the values, zeros where they are unknown, and the mask of the known ones."""
    places = _writers(track, made.moments, made.tape.events)
    frames: list[Any] = [None] * len(places)
    masks: list[Any] = [None] * len(places)
    for _, k in sorted((-place, k) for k, place in enumerate(places))[::-1]:  # each array from the right
        frames[k], masks[k] = _kept_frame(track, track.arrays[places[k]], made.moments[k], moments)
    known = np.stack(masks)
    values = np.stack(frames).astype(np.float32)
    return values, None if known.all() else known


def _kept_frame(track: FilmTrack, a: array, moment: int, moments: TapeMoments) -> tuple[np.ndarray, np.ndarray]:
    numbers, known, _ = moments.value(a, moment)
    certain = moments.status(a.allocation, moment)[1]
    sure = known & np.ndarray(numbers.shape, bool, certain, a.span.offset, a.data.strides)
    return track.shaped(np.where(sure, numbers, 0)), track.shaped(sure, True)


def _run_again(made: FilmReel, tracks: Sequence[FilmTrack]) -> list[np.ndarray]:
    runs, events = made.runs(), made.tape.events
    places = [_writers(track, made.moments, events) for track in tracks]
    frames = {n: k for k, n in enumerate(made.moments)}
    found = [np.zeros(track.values.shape, np.float32) for track in tracks]

    def take(n: int) -> None:
        k = frames.get(n)
        if k is not None:
            for track, place, values in zip(tracks, places, found, strict=True):
                values[k] = track.shaped(read_values(runs.of(track.arrays[place[k]])))

    runs.restart()
    runs.run(take)
    return found


def _refuse_other_numbers(track: FilmTrack, again: np.ndarray) -> None:
    known = track.known
    assert known is not None
    mask = known if known.ndim == again.ndim else np.broadcast_to(known[..., None], again.shape)
    if not np.array_equal(track.values[mask], again[mask], equal_nan=True):
        text = f"{track.name} holds other numbers when the recorded program runs again."
        raise GradientError(text, slug="replay-differs", why="It depends on the order of threads, or was changed.")


# ---- adjoints


def _take_adjoints(made: FilmReel) -> None:
    """The adjoints of all tracks at all frames, from one walk."""
    tape, choice = made.tape, made.choice
    asked = [t for t in made.tracks.values() if is_float(t.arrays[0].dtype) and _followed(t, choice)]
    if not tape.last_seeds:
        made.unwalked = "No adjoints: tape.backward(loss) comes first."
        return
    wanted: dict[int, list[tuple[FilmTrack, int, array]]] = {}
    for track in list(asked):
        try:
            for a in track.arrays:
                check_seed(tape, a)
                tape.refuse_inactive(a)
        except GradientError as error:
            track.note += f" No adjoint of {track.name}: {clean(str(error).splitlines()[0])}"
            asked.remove(track)
            continue
        for k, place in enumerate(_writers(track, made.moments, tape.events)):
            wanted.setdefault(made.moments[k], []).append((track, k, track.arrays[place]))
    try:
        found = _walked(tape, wanted)
    except GradientError as error:
        made.unwalked = f"No adjoints: {clean(str(error).splitlines()[0])}"
        return
    for track in asked:
        track.adjoint = np.stack([found[id(track), k] for k in range(len(made.moments))]).astype(np.float32)


def _followed(track: FilmTrack, choice: FilmChoice) -> bool:
    """True if the film has a use for its adjoint."""
    return track.role in ("points", "field") or {"arrows": choice.arrows_of, "colour": choice.colour_of}[track.role]


def _walked(tape: Tape, wanted: Mapping[int, Iterable[tuple[FilmTrack, int, array]]]) -> dict[tuple[int, int], Any]:
    found: dict[tuple[int, int], Any] = {}
    places = {event: n for n, event in enumerate(tape.events) if n in wanted}

    def take(n: int, space: Workspace) -> None:
        for track, k, a in wanted.get(n, ()):
            if a.allocation in space:
                numbers = on_host(shadow_view(a, space[a.allocation]))
            else:
                numbers = np.zeros(full_shape(a), np.float32)
            found[id(track), k] = np.array(track.shaped(numbers))

    space = Workspace()
    for a, seed in tape.last_seeds.items():
        space[a] = Shadow(a, start=seed)
    take(len(tape.events), space)
    tape.retrace(lambda event, space: take(places[event], space) if event in places else None)
    return found


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
    finite = numbers[np.isfinite(numbers)]
    return float(np.abs(finite).max()) if finite.size else 0.0


def bounds(points: np.ndarray) -> list[list[float]]:
    """The box of all finite points, as [least, most] of each axis."""
    flat = points.reshape(-1, points.shape[-1]).astype(np.float64)
    flat = flat[np.isfinite(flat).all(-1)]
    if not flat.size:
        return [[-1.0, 1.0]] * points.shape[-1]
    return [[float(low), float(high)] for low, high in zip(flat.min(0), flat.max(0), strict=True)]

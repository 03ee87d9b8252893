"""The what-if of a film: the recorded program runs again with a number changed, beside what the gradient predicts.

The new run is that of `tapes.replay`; the prediction of the loss is the gradient of the last seeds, that of the points
the tangents of `tapes.jvp`. Nothing of the user's changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays.array import array, read_values
from ...arrays.workspace import Shadow, Workspace, shadow_view
from ...device import on_host
from ...errors import GradientError, LaunchError
from ...kernels.types import Struct, is_float
from ...tapes.events import Event
from ...tapes.jvp import carry_tangents, check_direction, shadow_of
from ...tapes.tape import Tape
from ..data.film import FilmReel, largest
from ..data.snapshot import full_shape
from ..data.text import clean, json_number

NAMED = 64  # inputs that can be chosen
TANGENTS = 64  # directions whose tangents are remembered


@dataclass(eq=False)
class FilmInput:
    """An array that the program starts from: its numbers then, and their gradient (None where it is not known)."""

    name: str
    a: array
    start: np.ndarray
    gradient: np.ndarray | None = None


class WhatIf:
    """Answers to questions of the page about other inputs. The caller holds the lock."""

    def __init__(self, made: FilmReel):
        self.reel, self.inputs, self.refused, self.unknown = made, list[FilmInput](), "", ""
        self.points = -1  # the input that the points start from
        self._loss: float | None = None
        self._tangents: dict[tuple[int, int], np.ndarray | None] = {}
        try:
            self._find()
        except GradientError as error:
            self.refused = clean(str(error).splitlines()[0])

    @property
    def meta(self) -> dict[str, Any]:
        """For the page: the inputs by name and shape, and why a point cannot be dragged."""
        inputs = [{"name": i.name, "shape": list(i.start.shape), "size": largest(i.start) or 1.0} for i in self.inputs]
        return {"inputs": inputs, "points": self.points, "refused": self.refused}

    def _find(self) -> None:
        tape, runs = self.reel.tape, self.reel.runs()
        runs.restart()
        found: dict[Any, array] = {}
        points = self.reel.tracks.get("points")
        root = _root(tape, points.arrays[0]) if points is not None else None
        asked = [a for a in tape.arrays.values() if a.allocation.asked]
        for a in [*([] if root is None else [root]), *asked]:
            if not isinstance(a.dtype, Struct) and is_float(a.dtype) and _root(tape, a) is a:
                found.setdefault(a.span, a)
        for a in [*found.values()][:NAMED]:
            name = clean(tape.names.given(a) or a.label)
            self.inputs.append(FilmInput(name, a, read_values(runs.of(a)).copy()))
        if root is not None and root.span in found:
            self.points = list(found).index(root.span)
        self._take_gradients()

    def _take_gradients(self) -> None:
        tape = self.reel.tape
        if not tape.last_seeds:
            self.unknown = "tape.backward(loss) comes first"
            return
        try:
            space = tape.retrace(lambda *_: None)
        except GradientError as error:
            self.unknown = clean(str(error).splitlines()[0])
            return
        for one in self.inputs:
            if one.a.allocation in tape.active:
                known = one.a.allocation in space
                numbers = on_host(shadow_view(one.a, space[one.a.allocation])) if known else np.zeros(one.start.shape)
                one.gradient = np.array(numbers, np.float64)

    # ---- questions

    def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """The run with other inputs: {loss, predicted, moved, note}, and frames of points or of the field.

        changes   [[input, flat index, by how much]]; frame: the one that is shown, -1 for all.
        """
        if self.refused:
            raise LaunchError(self.refused, slug="film-what-if")
        changes = [(int(k), int(n), float(by)) for k, n, by in asked["changes"]]
        frame = int(asked.get("frame", -1))
        before = self._before()
        values, after = self._run(changes)
        found: dict[str, Any] = {"before": json_number(before), "loss": json_number(after), "note": self.unknown}
        found["moved"] = [self._moved(*change) for change in changes]
        predicted = self._predicted(changes)
        found["predicted"] = None if predicted is None else json_number(before + predicted)
        blobs = [_part(values, frame)]
        ghost = self._ghost(changes)
        if ghost is not None:
            blobs.append(_part(ghost, frame))
        return found, blobs

    def _before(self) -> float:
        """The loss of the run as it was."""
        if self._loss is None:
            self._loss = self._run([])[1]
        return self._loss

    def _run(self, changes: Sequence[tuple[int, int, float]]) -> tuple[np.ndarray, float]:
        given: dict[array, np.ndarray] = {}
        for k, n, by in changes:
            one = self.inputs[k]
            values = given.setdefault(one.a, one.start.copy())
            values.reshape(-1)[n] += by
        runs, end, loss = self.reel.runs(), len(self.reel.tape.events), [0.0]
        runs.restart(given)
        role = "points" if "points" in self.reel.tracks else "field"

        def take(n: int) -> None:
            if n == end:
                loss[0] = self._loss_now()

        return self.reel.again(role, take), loss[0]

    def _loss_now(self) -> float:
        """The sum of the seeds times what they are seeds of, in the copies."""
        tape, total = self.reel.tape, 0.0
        for allocation, seed in tape.last_seeds.items():
            arrays = [a for a in tape.arrays.values() if a.allocation is allocation and is_float(a.dtype)]
            a = max(arrays, key=lambda one: one.span.nbytes)
            weights = on_host(shadow_view(a, Shadow(allocation, start=seed))).astype(np.float64)
            numbers = read_values(self.reel.runs().of(a)).astype(np.float64)
            total += float((weights * numbers)[weights != 0].sum())
        return total

    def _moved(self, k: int, n: int, by: float) -> dict[str, Any]:
        one = self.inputs[k]
        index = [int(i) for i in np.unravel_index(n, one.start.shape)]
        start = float(one.start.reshape(-1)[n])
        return {"name": f"{one.name}{index}", "from": json_number(start), "to": json_number(start + by)}

    def _predicted(self, changes: Sequence[tuple[int, int, float]]) -> float | None:
        total = 0.0
        for k, n, by in changes:
            gradient = self.inputs[k].gradient
            if gradient is None:
                return None
            total += float(gradient.reshape(-1)[n]) * by
        return total

    def _ghost(self, changes: Sequence[tuple[int, int, float]]) -> np.ndarray | None:
        """The points that the derivative predicts; None where it is not known."""
        points = self.reel.tracks.get("points")
        if points is None:
            return None
        found = points.values.astype(np.float64)
        for k, n, by in changes:
            tangent = self._tangent(k, n)
            if tangent is None:
                return None
            found += by * tangent
        return found.astype(np.float32)

    def _tangent(self, k: int, n: int) -> np.ndarray | None:
        """The derivative of the points of every frame by one number of an input; None where it cannot be had."""
        if (k, n) not in self._tangents:
            while len(self._tangents) >= TANGENTS:
                self._tangents.pop(next(iter(self._tangents)))
            try:
                self._tangents[k, n] = self._carried(self.inputs[k], n)
            except GradientError:
                self._tangents[k, n] = None
        return self._tangents[k, n]

    def _carried(self, one: FilmInput, n: int) -> np.ndarray:
        tape, points = self.reel.tape, self.reel.tracks["points"]
        check_direction(tape, one.a)
        space = Workspace()
        direction = shadow_of(one.a, space)
        direction[np.unravel_index(n, direction.shape)] = 1
        places = self.reel.places(points)
        frames = {moment: k for k, moment in enumerate(self.reel.moments)}
        found = np.zeros(points.values.shape, np.float64)

        def take(moment: int, space: Workspace) -> None:
            if (k := frames.get(moment)) is not None:
                a = points.arrays[places[k]]
                if a.allocation in space:
                    found[k] = points.shaped(on_host(shadow_view(a, space[a.allocation])))

        numbers = {event: at for at, event in enumerate(tape.events)}

        def observe(event: Event, space: Workspace) -> None:
            take(numbers[event], space)

        take(len(tape.events), carry_tangents(tape, space, observe))
        return found


def _part(values: np.ndarray, frame: int) -> bytes:
    shown = values if frame < 0 else values[frame]
    return np.ascontiguousarray(shown, np.float32).tobytes()


def _root(tape: Tape, a: array) -> array | None:
    """The array whose contents at the start of the tape an array starts from: itself, or what was copied to it first.

    None if the tape begins by writing other numbers to it.
    """
    for event in tape.events:
        if any(span.overlaps(a.span) is not False for span in event.reads):
            return a
        if any(span.contains(a.span) for span in event.writes) and event.command is None:
            source = event.source
            fits = source is not None and full_shape(source) == full_shape(a) and event.arrays[0].span == a.span
            return _root_before(tape, source, event) if fits and source is not None else None
        if any(span.overlaps(a.span) is not False for span in event.writes):
            return a if event.command is not None and event.reads else None
    return a


def _root_before(tape: Tape, a: array, end: Event) -> array | None:
    """The same for an array that was copied by an event: itself, unless something wrote it before."""
    for event in tape.events:
        if event is end:
            return a
        if any(span.overlaps(a.span) is not False for span in event.writes):
            return None
    return a

"""The what-if of a film: the recorded program runs again with a number changed, beside what the gradient predicts.

The new run is that of `tapes.replay`; the prediction of the loss is the gradient of the last seeds, that of the points
the tangents of `tapes.jvp`. Nothing of the user's changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import array, read_values
from ...arrays.workspace import Shadow, Workspace, shadow_view
from ...device import on_host
from ...diagnose.flow import trusted
from ...diagnose.rule import seeded_number
from ...errors import GradientError, LaunchError
from ...kernels.types import Struct, is_float
from ...tables import png
from ...tapes.events import Event
from ...tapes.jvp import carry_tangents, shadow_of
from ...tapes.tape import Tape
from ..data.film import FilmReel, largest
from ..data.headline import SOON
from ..data.text import clean, json_number
from ..picture.svg import data_uri

Changes = Sequence[tuple[int, int, float]]  # of (input, flat index, by how much)


class FilmInput(NamedTuple):
    """An array that the program starts from, with its numbers then, and their gradient if that is known."""

    name: str
    a: array
    start: np.ndarray
    gradient: np.ndarray | None


class WhatIf:
    """Answers to questions of the page about other inputs. The caller holds the lock."""

    def __init__(self, made: FilmReel):
        self.reel, self.inputs, self.refused, self.unknown = made, list[FilmInput](), "", ""
        self.points = -1  # the input that the points start from
        self._tangent = lru_cache(16)(self._carried)
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
        tape, runs, points = self.reel.tape, self.reel.runs(), self.reel.tracks.get("points")
        runs.restart()
        space = self._gradients(tape)
        root = None if points is None or points.draw else _root(tape, points.arrays[0])
        asked = [a for a in tape.arrays.values() if a.allocation.asked and _root(tape, a) is a]
        for a in asked if root is None else [root, *asked]:
            if isinstance(a.dtype, Struct) or not is_float(a.dtype) or any(one.a.span == a.span for one in self.inputs):
                continue
            gradient = None
            if space is not None and a.allocation in tape.active:
                gradient = np.array(on_host(shadow_view(a, space[a.allocation])), np.float64)
            name, start = clean(tape.names.given(a) or a.label), read_values(runs.of(a)).copy()
            self.inputs.append(FilmInput(name, a, start, gradient))
        if root is not None and self.inputs and self.inputs[0].a is root:
            self.points = 0

    def _gradients(self, tape: Tape) -> Workspace | None:
        """The end of the walk from the last seeds; None, with a reason, where there is none."""
        self.unknown = "" if tape.last_seeds else "tape.backward(loss) comes first"
        try:
            return tape.retrace(lambda *_: None) if tape.last_seeds else None
        except GradientError as error:
            self.unknown = clean(str(error).splitlines()[0])
            return None

    def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """The run with other inputs, and the prediction: plain data, and frames of the points (or field) of both.

        changes   [[input, flat index, by how much]]; frame: the one that is shown, -1 for all.
        curve     instead: how far the gradient is good, with the picture of `Trust`; `all`: however long that takes.
        """
        if self.refused:
            raise LaunchError(self.refused, slug="film-what-if")
        if asked.get("curve"):
            long = len(self.reel.tape.events) > SOON and not asked.get("all")
            found = None if long else trusted(self.reel.tape, seeded_number(self.reel.tape))
            said = {} if found is None else {"said": found.sentence, "picture": data_uri(png(found.plot().figure))}
            return {"ask": long, **said}, []
        changes = [(int(k), int(n), float(by)) for k, n, by in asked["changes"]]
        values, loss = self._run(changes)
        slopes = [gradient if gradient is None else gradient.reshape(-1) for *_, gradient in self.inputs]
        known = all(slopes[k] is not None for k, _, _ in changes)
        predicted = self._before + sum(slopes[k][n] * by for k, n, by in changes) if known else None  # pyright: ignore[reportOptionalSubscript]
        found = {
            "before": json_number(self._before),
            "loss": json_number(loss),
            "predicted": None if predicted is None else json_number(predicted),
            "note": self.unknown,
            "moved": [self._moved(*change) for change in changes],
        }
        shown, frame = [values, self._ghost(changes)], int(asked.get("frame", -1))
        parts = [part if frame < 0 else part[frame] for part in shown if part is not None]
        return found, [np.ascontiguousarray(part, np.float32).tobytes() for part in parts]

    @cached_property
    def _before(self) -> float:
        """The loss of the run as it was."""
        return self._run([])[1]

    def _run(self, changes: Changes) -> tuple[np.ndarray, float]:
        """The frames and the loss of a run."""
        given: dict[array, np.ndarray] = {}
        for k, n, by in changes:
            given.setdefault(self.inputs[k].a, self.inputs[k].start.copy()).reshape(-1)[n] += by
        tracks, losses = self.reel.tracks, list[float]()
        self.reel.runs().restart(given)
        (values,) = self.reel.run([tracks.get("points") or tracks["field"]], lambda: losses.append(self._loss_now()))
        return values, losses[0]

    def _loss_now(self) -> float:
        """The sum of the seeds times what they are seeds of, in the copies."""
        tape, total = self.reel.tape, 0.0
        for allocation, seed in tape.last_seeds.items():
            arrays = [a for a in tape.arrays.values() if a.allocation is allocation and is_float(a.dtype)]
            a = max(arrays, key=lambda one: one.span.nbytes)
            weights = on_host(shadow_view(a, Shadow(allocation, start=seed))).astype(np.float64)
            total += float((weights * read_values(self.reel.runs().of(a)))[weights != 0].sum())
        return total

    def _moved(self, k: int, n: int, by: float) -> dict[str, Any]:
        one = self.inputs[k]
        index, start = [int(i) for i in np.unravel_index(n, one.start.shape)], float(one.start.reshape(-1)[n])
        return {"name": f"{one.name}{index}", "from": json_number(start), "to": json_number(start + by)}

    def _ghost(self, changes: Changes) -> np.ndarray | None:
        """The points that the derivative predicts; None where it is not known."""
        points, moves = self.reel.tracks.get("points"), [(by, self._tangent(k, n)) for k, n, by in changes]
        if points is None or any(tangent is None for _, tangent in moves):
            return None
        return points.values + sum(by * tangent for by, tangent in moves if tangent is not None)

    def _carried(self, input: int, n: int) -> np.ndarray | None:
        """The derivative of the points of every frame by one number of an input; None where it cannot be had."""
        made, tape, points, a = self.reel, self.reel.tape, self.reel.tracks.get("points"), self.inputs[input].a
        if points is None or points.draw or a.allocation not in tape.active:
            return None
        space, frames = Workspace(), {moment: k for k, moment in enumerate(made.moments)}
        direction = shadow_of(a, space)
        direction[np.unravel_index(n, direction.shape)] = 1
        at = {event: frames[moment] for moment, event in enumerate(tape.events) if moment in frames}
        found = np.zeros(points.values.shape, np.float64)

        def take(k: int | None, space: Workspace) -> None:
            if k is not None:
                found[k] = made.derivative(points, k, space)

        try:
            carry_tangents(tape, space, lambda event, space: take(at.get(event), space))
        except GradientError:
            return None
        take(frames.get(len(tape.events)), space)
        return found


def _root(tape: Tape, a: array, end: Event | None = None) -> array | None:
    """The array whose contents at the start of the tape an array starts from: itself, or what was copied to it first.

    None if the tape writes to it first. `end`: only events before this one count.
    """
    for event in tape.events:
        if event is end or any(span.overlaps(a.span) is not False for span in event.reads):
            return a
        if any(span.overlaps(a.span) is not False for span in event.writes):
            source = event.source
            if event.command is not None:
                return a  # it may leave some of it
            return None if source is None or event.arrays[0].span != a.span or end else _root(tape, source, event)
    return a

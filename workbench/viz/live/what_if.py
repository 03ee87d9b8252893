"""The what-if of a film: the recorded program runs again with a number changed, beside what the gradient predicts.

The new run is that of `tapes.replay`; the prediction of the loss is the gradient of the last seeds, that of the points
the tangents of `tapes.jvp`. Or the seed is another one: the adjoints are those of a walk from there. Nothing of the
user's changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...arrays import allocation as memory
from ...arrays.array import array, read_values
from ...arrays.workspace import Shadow, Workspace, shadow_view
from ...device import on_host
from ...diagnose.flow import trusted
from ...diagnose.walk_record import seeded_number
from ...display import png
from ...errors import GradientError, LaunchError
from ...kernels.types import Struct, is_float
from ...tapes.events import Event
from ...tapes.jvp import carry_tangents, shadow_of
from ...tapes.tape import Tape
from ..data.film import FilmReel, first_line, largest
from ..data.headline import SOON
from ..data.seed_runs import cell_name
from ..data.snapshot import SeedBytes, full_shape, seed_bytes
from ..data.text import clean, json_number
from ..picture.svg import data_uri
from .view import cells, quiet_memory

Changes = Sequence[tuple[int, int, float]]  # of (input, flat index, by how much)


class FilmInput(NamedTuple):
    """An array that the program starts from, with its numbers then, and their gradient if that is known."""

    name: str
    a: array
    start: np.ndarray
    gradient: np.ndarray | None


class WhatIf:
    """Answers to questions of the page about other inputs, and about other seeds. `trust()`: that of the loss."""

    def __init__(self, made: FilmReel, trust: Callable[[], Any] | None = None):
        self.trust = trust or (lambda: trusted(made.tape, seeded_number(made.tape)))
        self.reel, self.inputs, self.refused, self.unknown = made, list[FilmInput](), "", ""
        self.points = -1  # the input that the points start from
        self.seeds: SeedBytes | None = None  # of the arrows as they were pulled
        self._tangent = lru_cache(16)(self._carried)
        try:
            with memory.LOCK, memory.unrecorded():
                self._find()
        except GradientError as error:
            self.refused = first_line(error)

    @property
    def meta(self) -> dict[str, Any]:
        """For the page: the inputs by name and shape, and why a point cannot be dragged."""
        inputs = [{"name": i.name, "shape": list(i.start.shape), "size": largest(i.start) or 1.0} for i in self.inputs]
        return {"inputs": inputs, "points": self.points, "refused": self.refused, "seed": self._no_seed()}

    def _find(self) -> None:
        tape, runs, points = self.reel.tape, self.reel.runs, self.reel.tracks.get("points")
        runs.restart()
        space, self.unknown = None, "tape.backward(loss) comes first"
        if tape.last_seeds:
            try:
                space, self.unknown = tape.retrace(None), ""
            except GradientError as error:
                self.unknown = first_line(error)
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

    def answer(self, asked: Mapping[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """`run_again` with `changes` and `frame`, `pull` with `pulls`, or `curve`. Raises `Busy` instead of waiting."""
        with quiet_memory():
            cells.give_way()
            if "pulls" in asked:
                return self.pull([(int(n), float(by)) for n, by in asked["pulls"]])
            if "curve" in asked:
                return self.curve(bool(asked.get("all"))), []
            changes = [(int(k), int(n), float(by)) for k, n, by in asked["changes"]]
            return self.run_again(changes, int(asked.get("frame", -1)))

    def curve(self, however_long: bool) -> dict[str, Any]:
        """The sentence of `Trust` for the seeded loss, with its picture; `ask` where that takes long."""
        long = len(self.reel.tape.events) > SOON and not however_long
        found = None if long else self.trust()
        said = {} if found is None else {"said": found.sentence, "picture": data_uri(png(found.plot().figure))}
        return {"ask": long, **said}

    def run_again(self, changes: Changes, frame: int) -> tuple[dict[str, Any], list[bytes]]:
        """The run with other inputs, and the prediction: plain data, and frames of the points (or field) of both.

        frame   the one that is shown, -1 for all.
        """
        if self.refused:
            raise LaunchError(self.refused, slug="film-what-if")
        values, loss = self._run(changes)
        slopes = [gradient if gradient is None else gradient.reshape(-1) for *_, gradient in self.inputs]
        known = all(slopes[k] is not None for k, _, _ in changes)
        predicted = self._before + sum(slopes[k][n] * by for k, n, by in changes) if known else None  # pyright: ignore[reportOptionalSubscript]
        numbers = {"before": self._before, "loss": loss, "predicted": predicted}
        found: dict[str, Any] = {name: None if n is None else json_number(n) for name, n in numbers.items()}
        found |= {"note": self.unknown, "moved": [self._moved(*change) for change in changes]}
        parts = [part if frame < 0 else part[frame] for part in (values, self._ghost(changes)) if part is not None]
        return found, [np.ascontiguousarray(part, np.float32).tobytes() for part in parts]

    def _no_seed(self) -> str:
        """The reason that the arrows of the last frame are no seed; "" if they are."""
        made, tape, track = self.reel, self.reel.tape, self.reel.falling
        if track is None:
            return "the arrows are no adjoints of an array on the stage"
        if tape.within is not None:
            return "the adjoints are those of a part of the tape"
        last = track.arrays[track.places[-1]].span
        if any(last.overlaps(span) is not False for event in tape.events[made.moments[-1] :] for span in event.writes):
            return f"{track.name} is written again behind the last frame"
        return ""

    def pull(self, pulls: Sequence[tuple[int, float]]) -> tuple[dict[str, Any], list[bytes]]:
        """The adjoints of all frames for another seed: that of the film, and a number more at each of `pulls`.

        pulls   (flat index, number): added to the adjoint, at the last frame, of the array that the arrows are of.
        """
        made, track = self.reel, self.reel.falling
        if (why := self._no_seed()) or track is None:
            raise LaunchError(f"the seed stays: {why}.", slug="film-what-if")
        a = track.arrays[track.places[-1]]
        more, tracks = np.zeros(full_shape(a)), {r: t for r, t in made.tracks.items() if t.adjoint is not None}
        for n, by in pulls:
            more.reshape(-1)[n] += by
        seeds = seed_bytes(made.tape, {a: array(more, dtype=a.dtype)}, start=made.seeds)
        found = dict(zip(tracks, made.walked(list(tracks.values()), seeds), strict=True))
        self.seeds = seeds if pulls else None
        terms = [f"{by:+.3g} {cell_name(track.name, n, more.shape)}" for n, by in pulls if by]
        note = f"that of the film {' '.join(terms)}" if pulls else ""
        meta = {"layers": list(found), "most": [largest(part) for part in found.values()], "note": note}
        return meta, [(-part if role == "arrows" else part).tobytes() for role, part in found.items()]

    @cached_property
    def _before(self) -> float:
        """The loss of the run as it was."""
        return self._run([])[1]

    def _run(self, changes: Changes) -> tuple[np.ndarray, float]:
        """The frames and the loss of a run."""
        given: dict[array, np.ndarray] = {}
        for k, n, by in changes:
            given.setdefault(self.inputs[k].a, self.inputs[k].start.copy()).reshape(-1)[n] += by
        self.reel.runs.restart(given)
        (values,) = self.reel.run([self.reel.tracks.get("points") or self.reel.tracks["field"]])
        loss = 0.0  # the sum of the seeds times what they are seeds of, in the copies
        for allocation, seed in self.reel.seeds.items():
            known = self.reel.tape.arrays.values()
            arrays = [a for a in known if a.allocation is allocation and is_float(a.dtype)]
            a = max(arrays, key=lambda one: one.span.nbytes)
            weights = on_host(shadow_view(a, Shadow(allocation, start=seed))).astype(np.float64)
            loss += float((weights * read_values(self.reel.runs.of(a)))[weights != 0].sum())
        return values, loss

    def _moved(self, k: int, n: int, by: float) -> dict[str, Any]:
        name, _, start, _ = self.inputs[k]
        was = float(start.reshape(-1)[n])
        return {"name": cell_name(name, n, start.shape), "from": json_number(was), "to": json_number(was + by)}

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
        space = Workspace()
        direction = shadow_of(a, space)
        direction[np.unravel_index(n, direction.shape)] = 1
        try:
            return made.along([points], lambda see: carry_tangents(tape, space, observe=see), space)[0]
        except GradientError:
            return None


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

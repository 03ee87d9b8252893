"""The recorded program as a function along a line: its loss, and the first decision in which two points differ.

It runs on private copies, in float64 where the program can be widened, from what the tape started from. Decisions are
compared by the program's own record of them (`kernels.passes.decisions`), and the statement is found by running one
thread in the interpreter.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..arrays.array import array, on_device, read_values
from ..arrays.creation import zeros
from ..arrays.workspace import add_into
from ..device import on_host
from ..errors import Where, WorkbenchError
from ..kernels.interpreter import run
from ..kernels.ir import Stmt, walk as statements
from ..kernels.passes.decisions import decides, decisions, with_decisions
from ..kernels.program import Program
from ..kernels.types import uint64
from ..tapes.capture import Capture
from ..tapes.events import Event
from ..tapes.private_copies import Launch, Rerun, flat_program
from ..tapes.tape import Tape


@dataclass(frozen=True)
class Decision:
    """A decision that falls otherwise: the launch and its number on the tape, the statement's line, the thread.

    turn   how many decisions of that statement the thread has made before; None where the thread was not looked at.
    """

    event: Event
    number: int
    where: Where | None
    thread: tuple[int, ...] | None
    turn: int | None


class LossSample(NamedTuple):
    """A run at one point: the loss, and what it decided."""

    loss: float
    decisions: tuple[int, ...]


class Probe(Rerun):
    """A tape on copies, run again and again with its inputs moved by a vector, of all their numbers. `runs` counts.

    inputs   {name: array of the tape}; `loss`: an array of one element.
    """

    def __init__(self, tape: Tape, inputs: Mapping[str, array], loss: array, widened: bool):
        super().__init__(tape, widened)
        self.runs = 0
        self.launches: dict[int, tuple[Event, Launch]] = {}  # by step
        self.made = self.follow().case(dict(inputs), {"loss": loss})
        self._records: dict[int, array] = {}  # of decisions, by step

    def before(self, event: Event) -> None:
        """As `Rerun.before`; launches are noted by step."""
        super().before(event)
        if event.command is not None:
            self.launches[len(self.steps) - 1] = event, self.steps[-1].__self__  # type: ignore[attr-defined]

    def start(self) -> np.ndarray:
        """The contents of the inputs when the tape began, in float64."""
        return np.concatenate([read_values(a).astype(np.float64).ravel() for a in self.made.inputs.values()])

    def parts(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """{input: its part of a vector, of its shape}."""
        ends = np.cumsum([a.data.size for a in self.made.inputs.values()])
        found = zip(self.made.inputs.items(), np.split(vector, ends[:-1]), strict=True)
        return {name: part.reshape(a.data.shape) for (name, a), part in found}

    def value(self, move: np.ndarray) -> float:
        """The loss with the inputs moved; NaN where the program is refused there."""
        return self._run(self._plain, {}, move).loss

    def look(self, move: np.ndarray) -> LossSample:
        """The same, with a checksum of the decisions of each launch; NaN and (-1,) where the program is refused."""
        return self._run(self._recording, self._records, move)

    def _run(self, steps: list[Callable[[], None]], records: Mapping[int, array], move: np.ndarray) -> LossSample:
        with suppress(WorkbenchError), self._moved(move):
            for step in steps:
                step()
            sums = tuple(zlib.crc32(on_host(record.data).tobytes()) for record in records.values())
            return LossSample(float(read_values(self.made.outputs["loss"]).ravel()[0]), sums)
        return LossSample(float("nan"), (-1,))

    def gradient(self) -> np.ndarray:
        """The derivative of the loss, in float64."""
        with self._moved():
            found = self.made.pull_back({"loss": np.ones(self.made.outputs["loss"].data.shape)})[1]
            return np.concatenate([found[name].ravel() for name in self.made.inputs])

    def first_difference(self, one: np.ndarray, other: np.ndarray) -> Decision | None:
        """The first decision, in the order of the program, that differs between two points."""
        known = self.look(one).decisions, self.look(other).decisions
        k = next((k for k, a, b in zip(self._records, *known, strict=False) if a != b), None)
        if k is None:
            return None
        event, launch = self.launches[k]
        (args, record), (other_args, other_record) = self._at(one, k), self._at(other, k)
        number = self.tape.events.index(event)
        differing = np.flatnonzero(record != other_record)
        if not len(differing):
            return Decision(event, number, event.where, None, None)
        thread = tuple(int(i) for i in np.unravel_index(differing[0], launch.dims))
        stmt, turn = _first(_traced(launch, args, thread), _traced(launch, other_args, thread))
        where = event.where if stmt is None else stmt.where or event.where
        return Decision(event, number, where, thread, turn)

    @contextmanager
    def _moved(self, move: np.ndarray | None = None) -> Iterator[None]:
        """Context of one run, with the inputs moved."""
        self.runs += 1
        try:
            for name, by in {} if move is None else self.parts(move).items():
                a = self.made.inputs[name]
                add_into(a.data, on_device(a, by.astype(a.data.dtype)), a.span)
            yield
        finally:
            self.made.restore()

    @functools.cached_property
    def _plain(self) -> list[Callable[[], None]]:
        """The steps, launches in a row joined to graphs."""
        return self._joined(lambda k: self.launches[k][1].run)

    @functools.cached_property
    def _recording(self) -> list[Callable[[], None]]:
        """The same with records of decisions."""
        return self._joined(self._decide)

    def _decide(self, k: int) -> Callable[[bool], None]:
        """The launch of a step, with a record of what it decides in `_records`, if it decides anything."""
        launch = self.launches[k][1]
        program = launch.program.once(_with_decisions, launch.program)
        if program is None:
            return launch.run
        if k not in self._records:
            device = next(a.device for a in launch.flat if isinstance(a, array))
            self._records[k] = zeros(int(np.prod(launch.dims)), dtype=uint64, device=device)
        record = self._records[k]
        recorded = Launch(program, launch.dims, [*launch.flat, record], launch.declared)

        def run_(_: bool) -> None:
            record.zero_()
            recorded.run(False)

        return run_

    def _joined(self, step: Callable[[int], Callable[[bool], None]]) -> list[Callable[[], None]]:
        """The steps, with `step(k)` for launches; launches in a row become one graph, which runs them."""
        found: list[Callable[[], None]] = []
        launches = [k in self.launches and not self.launches[k][1].declared for k in range(len(self.steps))]
        with self._moved():
            for joins, group in itertools.groupby(range(len(self.steps)), launches.__getitem__):
                steps = [step(k) if k in self.launches else self.steps[k] for k in group]
                if joins:
                    with Capture() as capture:
                        for one in steps:
                            one(False)
                    found.append(capture.replay)
                else:
                    for one in steps:
                        one(False)
                    found += [functools.partial(one, False) for one in steps]
        return found

    def _at(self, move: np.ndarray, k: int) -> tuple[list[Any], np.ndarray]:
        """The arguments of a step as it finds them, and its record of decisions, with the inputs moved."""
        with self._moved(move):
            for step in self.steps[:k]:
                step(False)
            args = self.launches[k][1].values()
            self._decide(k)(False)
            return args, on_host(self._records[k].data).copy()


def _with_decisions(program: Program) -> Program | None:
    function = with_decisions(program.function)
    return None if function is program.function else flat_program(program, function)


def _traced(launch: Launch, args: list[Any], thread: tuple[int, ...]) -> list[tuple[Stmt, list]]:
    """The decisions of one thread, in order."""
    function = launch.program.function
    watched = {s for s in statements(function.body) if decides(s)}
    found: list[tuple[Stmt, list]] = []

    def trace(_: tuple[int, ...], stmt: Stmt, values: run.LiveValues) -> None:
        made = decisions(stmt.row, [values[a] for a in stmt.args], values[stmt.outs[0]])
        found.append((stmt, [np.asarray(m).tolist() for m in made]))

    run.run(function, launch.dims, args, trace=trace, watched=watched, threads=[thread])
    return found


def _first(one: list[tuple[Stmt, list]], other: list[tuple[Stmt, list]]) -> tuple[Stmt | None, int | None]:
    """(the statement of the first decision that differs, how many of its kind the thread has made before)."""
    for k, (a, b) in enumerate(zip(one, other, strict=False)):
        if a[0] is not b[0] or a[1] != b[1]:
            return a[0], sum(stmt is a[0] for stmt, _ in one[:k])
    return None, None

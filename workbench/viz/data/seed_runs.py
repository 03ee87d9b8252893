"""The engine of the seeding panel: one seed of an output after the other, each a row of a Jacobian, one walk each.

Every walk has a workspace of its own: no `.grad`, no tape and no array of the user changes. Rows belong to inputs: a
changed input (the tape replayed) starts a new Jacobian. Nothing here knows widgets; calls take the lock themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...arrays import allocation as memory
from ...arrays.array import array, on_device, read_values
from ...arrays.span import Span
from ...arrays.workspace import Workspace, float_parts
from ...device import on_host
from ...errors import GradientError
from ...tapes.events import checksum_of
from ...tapes.jvp import shadow_of, value_of
from ...tapes.private_copies import leaves
from ...tapes.replay import ReplayedTape, replay, starts
from ...tapes.reverse import walk
from ...tapes.seeds import check_seed
from ...tapes.tape import Tape
from .snapshot import full_shape
from .text import clean

KINDS = ("one-hot", "ones", "random", "half norm")
DIFFERENCES = 64  # components of the inputs that are moved to measure a derivative
ROWS_BYTES = 1 << 28  # what all rows of a Jacobian may take


@dataclass(frozen=True, eq=False)
class SeedRun:
    """One seed and the gradient it gives. `element`: the component of the output by number, for a one-hot seed.

    seed and gradients have the shapes of their arrays, components last. `inputs`: the version of the inputs that it
    belongs to.
    """

    output: str
    kind: str
    element: int | None
    label: str
    seed: np.ndarray
    gradients: dict[str, np.ndarray]
    inputs: int

    @property
    def row(self) -> np.ndarray:
        """All gradients concatenated, flat float64."""
        return np.concatenate([g.reshape(-1).astype(np.float64) for g in self.gradients.values()])


class Seeds:
    """Seeds of the outputs of a tape, walked back one at a time.

    outputs, inputs   {name: array}: floats that the tape wrote on active paths, and those it takes gradients by.
    tape              what is walked: the recorded one, or its replay with other inputs.
    rows              the Jacobian of the chosen output so far: {component of the output: row}.
    Raises GradientError [func-replay] for a tape with `record_func`, [seed-untouched], [no-leaf].
    """

    def __init__(self, tape: Tape, y: array | None = None, wrt: list[array] | None = None):
        with memory.LOCK:
            for event in tape.events:
                if event.kind.calls_back:
                    text = f"a tape with record_func({event.label}) cannot be walked again to look at it."
                    raise GradientError(text, slug="func-replay", where=event.where, instead="wb.jacobian(tape, y, x)")
            self.recorded: Tape = tape
            self.tape: Tape = tape
            self.outputs, found = _ends(tape, y)
            self.inputs = found if wrt is None else dict(_named(tape, wrt))
            if not self.inputs:
                text = "seeds() of a tape without any array to take gradients by."
                raise GradientError(text, slug="no-leaf", instead="x.requires_grad = True before the tape records")
        self.version = 0
        self.values: dict[str, np.ndarray] = {}
        self.rows: dict[int, np.ndarray] = {}
        self.columns: dict[int, np.ndarray] = {}
        self.output = next(iter(self.outputs))
        if y is not None:
            self.output = next(n for n, a in self.outputs.items() if a.span == next(leaves(y)).span)

    # ---- what is seeded

    def choose(self, output: str) -> None:
        """Choose another output. The rows so far are dropped."""
        if output not in self.outputs:
            raise KeyError(output)
        if output != self.output:
            self.output = output
            self._forget()

    def _forget(self) -> None:
        self.rows, self.columns = {}, {}

    def at(self, a: array) -> array:
        """The array on the walked tape: itself, or its copy on the replay with changed inputs."""
        return self.tape.of(a) if isinstance(self.tape, ReplayedTape) else a

    @property
    def y(self) -> array:
        return self.outputs[self.output]

    @property
    def shape(self) -> tuple[int, ...]:
        """The output's shape, with its components."""
        return full_shape(self.y)

    @property
    def count(self) -> int:
        return int(np.prod(self.shape))

    @property
    def width(self) -> int:
        """The length of a row: all components of all inputs."""
        return sum(int(np.prod(full_shape(a))) for a in self.inputs.values())

    def name_of(self, k: int) -> str:
        return cell_name(self.output, k, self.shape)

    def value(self) -> np.ndarray:
        """A copy of the output's contents at the end of the tape. Raises GradientError [overwritten]."""
        with memory.LOCK:
            a = self.at(self.y)
            needed = self.tape.needed
            left = needed.of(a.allocation).left.get(a.span)
            exposed = a.allocation.exposed and left is not None
            if needed.has_changed(a.span) or (exposed and left != checksum_of(a.span)):
                text = f"{self.output!r} was changed since the tape wrote it: what it holds is no output of the tape."
                instead = "a seed of another kind, or the tape recorded again"
                raise GradientError(text, slug="overwritten", instead=instead)
            return read_values(a).reshape(self.shape).copy()

    def seed(self, kind: str, element: int = 0, number: int = 0) -> np.ndarray:
        """The seed itself: 1 at one component, ones, normal random numbers by `number`, or y (of ½‖y‖²)."""
        if kind == "one-hot":
            if not 0 <= element < self.count:
                raise IndexError(f"{self.output} has components 0 to {self.count - 1}, not {element}")
            made = np.zeros(self.shape)
            made.reshape(-1)[element] = 1
            return made
        if kind == "ones":
            return np.ones(self.shape)
        if kind == "random":
            return np.random.default_rng(number).standard_normal(self.shape)
        if kind == "half norm":
            return self.value().astype(np.float64)
        raise ValueError(f"a seed is one of {KINDS}, not {kind!r}")

    # ---- one walk

    def run(self, kind: str = "one-hot", element: int = 0, number: int = 0) -> SeedRun:
        """One reverse pass from one seed."""
        with memory.LOCK, memory.unrecorded():
            seed = self.seed(kind, element, number)
            space = Workspace()
            view = shadow_of(self.at(self.y), space)
            view[...] += on_device(self.y, seed.astype(view.dtype))
            seed = on_host(view).copy()
            walk(self.tape, space)
            gradients = {n: value_of(self.at(a), space) for n, a in self.inputs.items()}
            space.release()
        one = kind == "one-hot"
        labels = {
            "one-hot": self.name_of(element),
            "ones": f"sum of {self.output}",
            "random": f"random {number} of {self.output}",
            "half norm": f"½‖{self.output}‖²",
        }
        made = SeedRun(self.output, kind, element if one else None, labels[kind], seed, gradients, self.version)
        if one and (len(self.rows) + 1) * self.width * 8 <= ROWS_BYTES:
            self.rows[element] = made.row
        return made

    def walk(self, first: int = 0, stop: Callable[[], bool] = lambda: False) -> Iterator[SeedRun]:
        """One-hot seeds of the components without a row, from `first` on and around, until `stop()` says so."""
        for k in (*range(first, self.count), *range(first)):
            if k not in self.rows:
                if stop():
                    return
                yield self.run("one-hot", k)

    # ---- other inputs

    def start(self) -> dict[str, np.ndarray]:
        """Contents of the inputs at the start of the tape, with what `set` changed. Raises GradientError [not-kept]."""
        if not self.values:
            found = starts(self.recorded, list(self.inputs.values()))
            self.values = {n: v.reshape(full_shape(a)) for (n, a), v in zip(self.inputs.items(), found, strict=True)}
        return self.values

    def set(self, name: str, component: int, value: float) -> None:
        """Replay the tape with one number of an input changed. The rows so far are dropped."""
        changed = {n: v.copy() for n, v in self.start().items()}
        changed[name].reshape(-1)[component] = value
        self.tape = self._again(changed)
        self.values = changed
        self.version += 1
        self._forget()

    def reset(self) -> None:
        """Back to the inputs that were recorded."""
        self.tape, self.values = self.recorded, {}
        self.version += 1
        self._forget()

    def _again(self, values: dict[str, np.ndarray]) -> ReplayedTape:
        return replay(self.recorded, {self.inputs[n]: v for n, v in values.items()})

    # ---- differences

    @property
    def measured(self) -> int:
        """The number of input components that are moved for differences: the first ones."""
        return min(self.width, DIFFERENCES)

    def differences(self, stop: Callable[[], bool] = lambda: False) -> Iterator[int]:
        """Central differences of the output by the first components of the inputs, two replays each."""
        self.start()
        for column in range(self.measured):
            if column not in self.columns:
                if stop():
                    return
                self.columns[column] = self._difference(column)
            yield column

    def _difference(self, column: int) -> np.ndarray:
        name, k = self.place(column)
        x = self.values[name].reshape(-1)[k]
        narrow = np.finfo(self.values[name].dtype)
        h = float(np.cbrt(narrow.eps)) * max(abs(float(x)), float(np.abs(self.values[name]).max()), narrow.tiny)
        ends, moved = [], []
        with memory.LOCK, memory.unrecorded():
            for step in (h, -h) if h > 10 * narrow.tiny else (1e-3, -1e-3):
                values = {n: v.copy() for n, v in self.values.items()}
                values[name].reshape(-1)[k] += step
                moved.append(float(values[name].reshape(-1)[k]))
                ends.append(read_values(self._again(values).of(self.y)).reshape(-1).astype(np.float64))
        return (ends[0] - ends[1]) / (moved[0] - moved[1])

    def measure(self, run: SeedRun) -> np.ndarray:
        """The row of a seed by finite differences, shape (width,); NaN where no component was moved."""
        found = np.full(self.width, np.nan)
        seed = run.seed.reshape(-1).astype(np.float64)
        for column, slope in self.columns.items():
            found[column] = float(np.sum(slope[seed != 0] * seed[seed != 0]))
        return found

    def place(self, column: int) -> tuple[str, int]:
        """The input, and its component, of one column of a row."""
        for name, a in self.inputs.items():
            size = int(np.prod(full_shape(a)))
            if column < size:
                return name, column
            column -= size
        raise IndexError(column)

    def column_name(self, column: int) -> str:
        name, k = self.place(column)
        return cell_name(name, k, full_shape(self.inputs[name]))


# ---- names


def cell_name(name: str, k: int, shape: tuple[int, ...]) -> str:
    """`y[2, 1]` for a component of an array of this shape by its number."""
    return f"{name}[{', '.join(str(i) for i in np.unravel_index(k, shape))}]"


def _named(tape: Tape, arrays: Iterable[array]) -> Iterator[tuple[str, array]]:
    """Float arrays by name, each span once; a struct contributes its fields. Equal names get a prime."""
    taken: set[str] = set()
    seen: set[Span] = set()
    for whole in arrays:
        for path, a in float_parts(whole).items():
            if a.span in seen or not a.size:
                continue
            seen.add(a.span)
            name = clean(".".join(filter(None, (tape.names.of(whole), path))))
            while name in taken:
                name += "'"
            taken.add(name)
            yield name, a


def _ends(tape: Tape, y: array | None) -> tuple[dict[str, array], dict[str, array]]:
    """Outputs that can be seeded and inputs to differentiate by, both by name."""
    if y is not None:
        check_seed(tape, y)
    arrays = list(tape.arrays.values())
    arrays.sort(key=lambda a: id(a) not in tape.names.noted)  # those with names of the user's speak for the others
    if y is not None and all(a is not y for a in arrays):
        arrays.append(y)
    tape.log.tally()
    known = [(n, a) for n, a in _named(tape, arrays) if a.allocation in tape.active]
    wanted = {a.span for a in leaves(y)} if y is not None else set()
    hit = {a.span for _, a in known if (m := tape.log.written.get(a.allocation)) is not None and m.touch(a.span)}
    outputs = {n: a for n, a in known if a.span in wanted | hit}
    if not outputs or (y is not None and wanted.isdisjoint(a.span for a in outputs.values())):
        what = "nothing that this tape wrote depends on an" if y is None else f"{y.label} depends on no"
        text = f"{what} array with requires_grad."
        raise GradientError(text, slug="seed-untouched", instead="x.requires_grad = True before the tape records")
    return outputs, {n: a for n, a in known if a.requires_grad and a.allocation.required.touch(a.span)}

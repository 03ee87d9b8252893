"""Random programs of several tapes over shared arrays: every published gradient is exact, or the program is refused.

Tapes are entered again, inside one another and in turns; leaves pile up or are set to zero; what one tape publishes
seeds another. The oracle is a model in NumPy: per tape the derivative of what it left by what it started from, and of
`.grad` what is added and what is replaced. A gradient that stops at a border must be told, and nothing else may be.

    python -m tests.fuzz.tapes --programs 4000 --seed 1
"""

from __future__ import annotations

import collections
import sys
import warnings
from typing import Any

import numpy as np

import workbench as wb
from tests.fuzz import asked_seeds
from tests.fuzz.tape_kernels import F, add, linear, scale, square

N, MOST = 4, 10  # elements of a buffer, buffers
COLUMNS = N * MOST


# kernel, value, derivatives by x and y
LAUNCHES: dict[str, tuple] = {
    "square": (square, lambda x, y: 0.5 * x * x + 0.3, lambda x, y: x, lambda x, y: 0 * y),
    "add": (add, lambda x, y: y + 0.25 * x * x, lambda x, y: 0.5 * x, lambda x, y: 0 * y + 1),
    "scale": (scale, lambda x, y: y * x, lambda x, y: y, lambda x, y: x),
    "linear": (linear, lambda x, y: 2 * x - 1, lambda x, y: 0 * x + 2, lambda x, y: 0 * y),
}


class Wrong(Exception):
    """What was found: a wrong gradient, a silent loss, a false alarm."""


class View:
    """What one tape knows: the derivative `by` of each number that it left, by what it started from."""

    def __init__(self) -> None:
        self.tape = wb.Tape()
        self.by = np.eye(COLUMNS)
        self.touched, self.written, self.dirty = (np.zeros(COLUMNS, bool) for _ in range(3))
        self.borders: dict[int, View] = {}
        self.seeds: list[np.ndarray] = []


class Program:
    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.log: list[str] = []
        self.values = np.zeros((MOST, N))
        self.arrays: list[Any] = []
        self.marked: list[bool] = []
        self.grads = np.zeros((MOST, N))
        self.origin: list[View | None] = [None] * COLUMNS
        self.views = [View() for _ in range(3)]
        self.stack: list[View] = []
        self.open: list[tuple[int, View, View]] = []
        self.crossed = False
        self.rows: list[tuple[np.ndarray, np.ndarray]] = []
        for k in range(4):
            self.make(self.rng.uniform(-1.5, 1.5, N), k == 0 or self.rng.random() < 0.6)

    def make(self, values: np.ndarray, marked: bool, made: Any = None) -> int:
        made = wb.array(values, dtype=F, requires_grad=marked) if made is None else made
        self.arrays.append(made)
        self.marked.append(marked)
        self.values[len(self.arrays) - 1] = values
        return len(self.arrays) - 1

    # ---- the model

    def touch(self, view: View, places: np.ndarray) -> None:
        """A tape meets these numbers: what it meets first is a leaf, what others have changed since is a constant."""
        for p in places:
            if not view.touched[p]:
                source = self.origin[p]
                if source is not None and source is not view:
                    view.borders[p] = source
            elif view.dirty[p]:
                view.by[p] = 0
                if self.origin[p] is not None and self.origin[p] is not view:
                    raise Met
        view.touched[places] = True
        view.dirty[places] = False

    def wrote(self, view: View | None, places: np.ndarray) -> None:
        for other in self.views:
            if other is not view:
                other.dirty[places] |= other.touched[places]
        leaves = np.repeat(np.array(self.marked + [False] * (MOST - len(self.marked))), N)
        for p in places:
            live = view is not None and bool(view.by[p][leaves].any())
            self.origin[p] = view if live else None

    # ---- what a program does

    def step(self) -> None:
        view = self.stack[-1] if self.stack else None
        op = str(self.rng.choice([*LAUNCHES, *LAUNCHES, "copy", "fill_", "zero_", "detach"]))
        n = int(self.rng.integers(2, N + 1))
        a, b = self.rng.permutation(len(self.arrays))[:2]
        if self.rng.random() < 0.15 and op in LAUNCHES:
            b = a
        i, j = (int(self.rng.integers(0, N - n + 1)) for _ in range(2))
        i = j if a == b else i
        x, y = self.values[a, i : i + n], self.values[b, j : j + n]
        source, target = np.arange(a * N + i, a * N + i + n), np.arange(b * N + j, b * N + j + n)
        ours = self.arrays[a][i : i + n], self.arrays[b][j : j + n]
        self.log.append(f"{op} {a}[{i}:{i + n}] -> {b}[{j}:{j + n}]")
        if op == "detach":
            self.detach(view, a)
            return
        reads = op in LAUNCHES or op == "copy"
        if view is not None:
            self.touch(view, np.concatenate([source, target]) if reads else target)
        if op in LAUNCHES:
            kernel, value, dx, dy = LAUNCHES[op]
            wb.launch(kernel, n, [ours[0]], [ours[1]])
            new, slopes = value(x, y), (dx(x, y), dy(x, y))
        else:
            new, slopes = (x.copy(), (np.ones(n), np.zeros(n))) if op == "copy" else (np.zeros(n), (np.zeros(n),) * 2)
            if op == "copy":
                wb.copy(ours[1], ours[0])
            elif op == "zero_":
                ours[1].zero_()
            else:
                new = new + 0.7
                ours[1].fill_(0.7)
        if view is not None:
            through = slopes[0][:, None] * view.by[source] if reads else 0
            view.by[target] = through + slopes[1][:, None] * view.by[target]
            view.written[target] = True
        self.values[b, j : j + n] = new
        self.wrote(view, target)

    def detach(self, view: View | None, a: int) -> None:
        if len(self.arrays) == MOST:
            return
        if view is not None:
            self.touch(view, np.arange(a * N, a * N + N))
        k = self.make(self.values[a].copy(), bool(self.rng.random() < 0.5), wb.detach(self.arrays[a]))
        if self.marked[k]:
            self.arrays[k].requires_grad = True
        if view is not None:
            view.touched[k * N : k * N + N] = True

    def enter(self, view: View) -> None:
        view.tape.__enter__()
        self.stack.append(view)

    def leave(self) -> None:
        self.stack.pop().tape.__exit__()

    def seeds(self, view: View) -> dict[int, np.ndarray]:
        here = [b for b in range(len(self.arrays)) if view.touched[b * N : b * N + N].any()]
        chained = [b for b in here if self.marked[b] and self.grads[b].any() and view.written[b * N : b * N + N].any()]
        if chained and self.rng.random() < 0.6:
            kept = chained if self.rng.random() < 0.7 else chained[:1]
            return {b: self.grads[b].copy() for b in kept}
        picked = self.rng.permutation(here)[: int(self.rng.integers(1, 3))]
        return {int(b): self.rng.uniform(-1, 1, N).round(2) for b in picked}

    def backward(self, view: View) -> None:
        if not view.tape.events:
            return
        given = self.seeds(view)
        if not given:
            return
        self.log.append(f"backward of tape {self.views.index(view)} by {sorted(given)}")
        u = np.zeros(COLUMNS)
        for b, seed in given.items():
            u[b * N : b * N + N] = seed
        found = u @ view.by
        self.open = [o for o in self.open if not (o[1] is view and u[o[0]])]
        self.crossed |= any(u[p] and not view.touched[p] and self.origin[p] not in (None, view) for p in range(COLUMNS))
        for p, source in view.borders.items():
            whole = found[p - p % N : p - p % N + N]
            self.crossed |= not self.marked[p // N] and bool(
                whole.any()
            )  # off active paths arrays are told, not elements
            if abs(found[p]) > 1e-12:
                self.crossed = True
                same = any(
                    np.array_equal(s[p - p % N : p - p % N + N], found[p - p % N : p - p % N + N]) for s in source.seeds
                )
                self.open += [] if same else [(p, source, view)]
        view.tape.backward(grads={self.arrays[b]: wb.array(s, dtype=F) for b, s in given.items()})
        view.seeds.append(u)
        self.published(view, found)

    def published(self, view: View, found: np.ndarray) -> None:
        for b in range(len(self.arrays)):
            if not self.marked[b]:
                continue
            here = slice(b * N, b * N + N)
            got, old, g = self.arrays[b].allocation.gradient().bytes.view(np.float64).copy(), self.grads[b], found[here]
            want = np.where(view.written[here], g, old + g)
            size = 1e-9 * (1 + np.abs(want).max() + np.abs(old).max())
            untouched = not g.any() and np.array_equal(got, old)
            if not untouched and not np.allclose(got, want, rtol=1e-9, atol=size):
                raise Wrong(f"WRONG gradient of {b}: {got}, expected {want}")
            self.grads[b] = got

    def zero(self) -> None:
        b = int(self.rng.choice(np.flatnonzero(self.marked)))
        self.log.append(f"zero {b}")
        self.arrays[b].grad.zero_()
        self.grads[b] = 0

    def look(self) -> None:
        b = int(self.rng.choice(np.flatnonzero(self.marked)))
        row = self.arrays[b].allocation
        if row.gradient().publisher[0]:
            kept = wb.array.numpy(self.arrays[b].grad)
            self.rows.append((kept, kept.copy()))

    def run(self) -> None:
        for _ in range(int(self.rng.integers(8, 22))):
            what = self.rng.random()
            if what < 0.22:
                self.enter(self.views[int(self.rng.integers(0, 3))])
            elif what < 0.38 and self.stack:
                self.leave()
            elif what < 0.5:
                self.backward(self.views[int(self.rng.integers(0, 3))])
            elif what < 0.55:
                self.zero()
            elif what < 0.6:
                self.look()
            elif self.stack or self.rng.random() < 0.25:
                self.step()
        while self.stack:
            self.leave()
        for k in reversed(range(3)):
            self.backward(self.views[k])
        for kept, copy in self.rows:
            if not np.array_equal(kept, copy):
                raise Wrong("WRONG: a kept row has changed")

    def finish(self) -> None:
        while self.stack:
            self.leave()


class Met(Exception):
    """A tape meets what another changed under its feet: what it makes of it is for other tests."""


TOLD = ("was written by",)


def outcome(seed: int) -> str:
    """`exact`, `refused: slug` or `met`; raises Wrong."""
    program = Program(seed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            program.run()
        except (wb.GradientError, wb.LaunchError) as error:
            return f"refused: {error.slug}"
        except Met:
            return "met"
        finally:
            program.finish()
        for b, marked in enumerate(program.marked):
            if marked:
                program.arrays[b].grad  # noqa: B018
    told = any("was written by" in str(w.message) for w in said)
    if told and not program.crossed:
        raise Wrong("FALSE alarm: " + next(str(w.message) for w in said if "was written by" in str(w.message)))
    if program.open and not told:
        tapes = [v.tape for _, s, v in program.open] + [s.tape for _, s, v in program.open]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            slugs = {f.slug for t in tapes for f in t.diagnose()}
        if not slugs & {"earlier-tape", "not-handed-on", "overwritten"}:
            raise Wrong(f"SILENT: a gradient stopped at {sorted({p for p, _, _ in program.open})}")
        return "told by diagnose"
    return "exact, told" if told else "exact"


def main() -> None:
    counts: collections.Counter[str] = collections.Counter()
    for seed in asked_seeds():
        try:
            counts[outcome(seed)] += 1
        except Wrong as wrong:
            counts[str(wrong).split()[0].rstrip(":")] += 1
            print(seed, wrong)  # noqa: T201
    print(dict(counts))  # noqa: T201
    sys.exit(counts["WRONG"] + counts["SILENT"] > 0)


if __name__ == "__main__":
    main()

"""Random tapes, and every inspector beside every other: they tell one story, or refuse.

The gradient is that of differences of the program run anew; `adjoint`, `ledger`, `jacobian`, `jvp`, `seeds` and a
replay with other inputs agree with it; a replay at the recorded inputs gives the recorded bits.

    python -m tests.fuzz.inspectors --programs 2000 --seed 1
"""

from __future__ import annotations

import collections
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import workbench as wb
from tests.fuzz import asked_seeds
from tests.fuzz.tape_kernels import F, add, linear, scale, square
from workbench.viz.data.seed_runs import Seeds

N, ARRAYS = 4, 5
H = 1e-5


@wb.kernel
def gathered(x: wb.array(dtype=F), j: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[j[i]] * F(0.7) + wb.sin(x[j[i]])


@wb.kernel
def scattered(x: wb.array(dtype=F), j: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(y, j[i], x[i] * x[i] * F(0.5))


@wb.kernel
def decayed(x: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
    i = wb.tid()
    s = x[i]
    for _ in range(n):
        if s > F(0.2):
            s = s * F(0.8)
        else:
            s = s + wb.cos(s) * F(0.1)
    y[i] = s


@wb.kernel
def shifted(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] + x[(i + 1) % x.shape[0]]


class Program:
    """Arrays, and steps over them, which can be run with any start."""

    def __init__(self, seed: int):
        self.random = r = np.random.default_rng(seed)
        self.start = r.uniform(0.3, 1.3, (ARRAYS, N))
        self.marked = [True, *(r.random(ARRAYS - 1) < 0.4)]
        self.keep = "all" if r.random() < 0.7 else "needed"
        self.index = wb.array(r.integers(0, N, N).astype(np.int32))
        self.log: list[str] = []
        self.steps = [self.step() for _ in range(int(r.integers(2, 9)))]
        self.output = int(r.integers(0, ARRAYS))
        self.seed = r.uniform(-1, 1, N)

    def step(self) -> Callable[[list], None]:
        r = self.random
        a, b = (int(k) for k in r.permutation(ARRAYS)[:2])
        n = int(r.integers(2, N + 1))
        i, j = (int(k) for k in r.integers(0, N - n + 1, 2))
        m = int(r.integers(0, 4))
        value = float(r.choice([0.0, 0.0, 0.5]))
        whole = r.random() < 0.5
        if whole:
            n, i, j = N, 0, 0
        name = str(r.choice([*KINDS]))
        self.log.append(f"{name} {a}[{i}:{i + n}] -> {b}[{j}:{j + n}] m={m} value={value}")

        def run(arrays: list) -> None:
            x, y = arrays[a][i : i + n], arrays[b][j : j + n]
            KINDS[name](self, x, y, n, m, value)

        return run

    def run(self, start: np.ndarray) -> list:
        """The arrays, made of `start` and changed by all steps."""
        arrays = [wb.array(v, dtype=F, requires_grad=bool(k)) for v, k in zip(start, self.marked, strict=True)]
        self.made = arrays
        for step in self.steps:
            step(arrays)
        return arrays

    def slopes(self) -> np.ndarray:
        """d(seed . output)/d(start) by central differences, shape (ARRAYS, N)."""
        out = np.zeros((ARRAYS, N))
        for place in np.ndindex(ARRAYS, N):
            ends = []
            for h in (H, -H):
                start = self.start.copy()
                start[place] += h
                ends.append(self.run(start)[self.output].numpy() @ self.seed)
            out[place] = (ends[0] - ends[1]) / (2 * H)
        return out


KINDS: dict[str, Callable[..., None]] = {
    "square": lambda p, x, y, n, m, v: wb.launch(square, n, [x, y]),
    "add": lambda p, x, y, n, m, v: wb.launch(add, n, [x, y]),
    "scale": lambda p, x, y, n, m, v: wb.launch(scale, n, [x, y]),
    "linear": lambda p, x, y, n, m, v: wb.launch(linear, n, [x, y]),
    "shifted": lambda p, x, y, n, m, v: wb.launch(shifted, n, [x, y]),
    "decayed": lambda p, x, y, n, m, v: wb.launch(decayed, n, [x, m, y]),
    "gathered": lambda p, x, y, n, m, v: n == N and wb.launch(gathered, n, [x, p.index, y]),
    "scattered": lambda p, x, y, n, m, v: n == N and wb.launch(scattered, n, [x, p.index, y]),
    "copy": lambda p, x, y, n, m, v: wb.copy(y, x),
    "fill": lambda p, x, y, n, m, v: y.fill_(v),
    "zero and scatter": lambda p, x, y, n, m, v: (y.zero_(), n == N and wb.launch(scattered, n, [x, p.index, y])),
    "assign": lambda p, x, y, n, m, v: y.requires_grad or y.assign(np.full(n, v + 0.25)),  # else it starts a leaf
    "multiply": lambda p, x, y, n, m, v: y.__imul__(x) is None,
    "sum": lambda p, x, y, n, m, v: wb.utils.array_sum(x, out=y[:1]),
    "mapped": lambda p, x, y, n, m, v: wb.copy(y, wb.map(wb.sin, x)),
}


class Wrong(Exception):
    """Two that do not agree."""


def agree(what: str, found: Any, wanted: Any, rtol: float = 1e-10, atol: float = 1e-12) -> None:
    """Raises Wrong if they differ by more than rounding."""
    if not np.allclose(found, wanted, rtol=rtol, atol=atol):
        raise Wrong(f"{what}: {found} where {wanted}")


def compared(seed: int, counts: collections.Counter[str]) -> None:
    """Run one program and look at it in all ways. Counts what each inspector did; raises Wrong."""
    p = Program(seed)
    with wb.Tape(keep=p.keep) as tape:
        arrays = p.run(p.start)
    y = arrays[p.output]
    end = [a.numpy().copy() for a in arrays]

    def look(name: str, see: Callable[[], None]) -> None:
        try:
            see()
            counts[name] += 1
        except wb.GradientError as error:
            counts[f"{name} [{error.slug}]"] += 1

    try:
        tape.backward(grads={y: p.seed})
    except wb.GradientError as error:
        counts[f"backward [{error.slug}]"] += 1
        return
    counts["backward"] += 1
    leaves = [k for k in range(ARRAYS) if p.marked[k]]
    grads = {k: arrays[k].grad.numpy().copy() for k in leaves}
    names = {k: f"array {k}" for k in leaves}

    def adjoint() -> None:
        for k in leaves:
            agree(f"adjoint of {names[k]}", tape.adjoint(arrays[k], at=tape.events[0]), grads[k])

    def ledger() -> None:
        for k in leaves:
            n = int(p.random.integers(0, N))
            found = tape.ledger(arrays[k], n, at="start")
            agree(f"ledger of {names[k]}[{n}]", sum(row.value for row in found.rows), grads[k][n])

    def jacobian() -> None:
        for k in leaves:
            try:
                rows = wb.jacobian(tape, y, arrays[k])
            except wb.GradientError as error:
                if error.slug != "overwritten-start":
                    raise
                agree(f"slope by what {names[k]} held", grads[k], 0.0)
            else:
                agree(f"jacobian by {names[k]}", p.seed @ rows, grads[k])

    def jvp() -> None:
        v = {k: p.random.uniform(-1, 1, N) for k in leaves}
        tangent = wb.jvp(tape, {arrays[k]: v[k] for k in leaves})[y]
        agree("jvp", p.seed @ tangent, sum(v[k] @ grads[k] for k in leaves))

    def seeds() -> None:
        rows = [run.row for run in Seeds(tape, y, [arrays[k] for k in leaves]).walk()]
        agree("seeds", p.seed @ rows, np.hstack([grads[k] for k in leaves]))

    def replay() -> None:
        again = tape.replay()
        for k, a in enumerate(arrays):
            if a.allocation in {b.allocation for b in tape.arrays.values()}:
                found = again[a].numpy()
                if found.tobytes() != end[k].tobytes():
                    raise Wrong(f"replay of array {k}: {found} where {end[k]}")

    def replay_elsewhere() -> None:
        k = leaves[0]
        start = p.start.copy()
        start[k] += 0.01
        again = tape.replay({arrays[k]: start[k]})
        want = p.run(start)[p.output].numpy()
        agree("replay with other inputs", again[y].numpy(), want)

    def diagnose() -> None:
        tape.diagnose()

    def microscope() -> None:
        launches = [e for e in tape.events if e.kind.name == "launch"]
        if launches:
            tape.microscope(launches[int(p.random.integers(len(launches)))], 0)

    look("adjoint", adjoint)
    look("ledger", ledger)
    look("jacobian", jacobian)
    look("jvp", jvp)
    look("seeds", seeds)
    look("replay", replay)
    look("replay elsewhere", replay_elsewhere)
    look("diagnose", diagnose)
    look("microscope", microscope)
    for k in leaves:
        agree(f"gradient of {names[k]}, after looking", arrays[k].grad.numpy(), grads[k], rtol=0)
    slopes = p.slopes()
    for k in leaves:
        agree(f"gradient of {names[k]}, by differences", grads[k], slopes[k], rtol=2e-5, atol=2e-7)


def outcome(seed: int, counts: collections.Counter[str]) -> str:
    """ "right", or "WRONG: ..." with the program."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compared(seed, counts)
    except Wrong as error:
        p = Program(seed)
        counts["WRONG"] += 1
        return f"WRONG: {error}\n  keep={p.keep} marked={p.marked} output={p.output}\n  " + "\n  ".join(p.log)
    return "right"


def main() -> None:
    counts: collections.Counter[str] = collections.Counter()
    for seed in asked_seeds(300, None):
        found = outcome(seed, counts)
        if found != "right":
            print(f"program {seed}: {found}")
    print(dict(counts))
    sys.exit(counts["WRONG"] > 0)


if __name__ == "__main__":
    main()

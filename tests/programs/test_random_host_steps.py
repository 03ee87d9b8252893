"""Random programs of launches, copies and steps of the host: every gradient is exact, refused, or warned of.

The oracle runs the whole Python program again, without a tape, at shifted inputs: central differences in float64.

    python tests/programs/test_random_host_steps.py --programs 5000 --seed 1
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import workbench as wb

F = wb.float64
BUFFERS, SIZE = 4, 4


@wb.kernel
def bend(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = F(0.5) * wb.sin(x[i]) + F(0.7)


@wb.kernel
def add(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] += F(0.3) * x[i] * x[i]


@wb.kernel
def weigh(a: F, x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = F(0.5) * a * x[i] + F(0.1)


@wb.struct
class Spring:
    k: F
    rest: F


@wb.kernel
def pull(s: Spring, x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = F(0.4) * s.k * (x[i] - s.rest)


Step = Callable[[list], None]


def launches(rng, a: int, b: int, i: int, j: int) -> Step:
    kernel = [bend, add][int(rng.integers(2))]
    return lambda v: wb.launch(kernel, SIZE, [v[a]], [v[b]])


def copies(rng, a: int, b: int, i: int, j: int) -> Step:
    return [
        lambda v: wb.copy(v[b], v[a]),
        lambda v: v[b].assign(v[a]),
        lambda v: v[b][1:].assign(v[a][:-1]),
        lambda v: v.__setitem__(b, wb.clone(v[a])),
    ][int(rng.integers(4))]


def given(rng, value: Callable, b: int) -> Step:
    """A number of the host into memory, by one of the ways there are."""

    def launched(v):
        wb.launch(weigh, SIZE, [value(v), wb.clone(v[b])], [v[b]])

    def pulled(v):
        s = Spring(rest=0.2)
        s.k = value(v)
        wb.launch(pull, SIZE, [s, wb.clone(v[b])], [v[b]])

    def declared(v):
        s = wb.scalar(1.0, dtype=F)
        s.value = value(v)
        wb.launch(weigh, SIZE, [s, wb.clone(v[b])], [v[b]])

    def in_a_list(v):
        v[b] = wb.array([value(v), 0.25, v[b][1], value(v)], dtype=F)

    k = int(rng.integers(SIZE))
    return [
        lambda v: v[b].fill_(value(v)),
        lambda v: v[b].__setitem__(k, value(v)),
        lambda v: v[b].__setitem__(slice(k, None), value(v)),
        lambda v: v.__setitem__(b, wb.full(SIZE, value(v), dtype=F)),
        lambda v: v.__setitem__(b, wb.full_like(v[b], value(v))),
        lambda v: v[b].assign([value(v)] * SIZE),
        lambda v: v.__setitem__(b, v[b] * value(v)),
        lambda v: v.__setitem__(b, value(v) - v[b]),
        launched,
        pulled,
        declared,
        in_a_list,
    ][int(rng.integers(12))]


def numbers(rng, a: int, b: int, i: int, j: int) -> Step:
    read = [
        lambda v: v[a][i],
        lambda v: v[a][i : i + 1].item(),
        lambda v: float(v[a][i]),
        lambda v: v[a].numpy()[i],
        lambda v: v[a].numpy()[i].item(),
        lambda v: v[a].numpy().tolist()[i],
        lambda v: v[a].list()[i],
        lambda v: v[a].numpy().mean(),
        lambda v: np.sum(v[a].numpy()) * 0.2,
        lambda v: np.sin(v[a][i]),
        lambda v: v[a][i] * v[a][j],
        lambda v: np.float64(0.5) * v[a][i],
        lambda v: wb.detach(v[a][i]),
        lambda v: wb.detach(float(v[a][i])),
        lambda v: 0.7 * v[a].numpy()[i].item() + 0.1,
        lambda v: sum(v[a].numpy().tolist()) / 3,
        lambda v: v[a][i].item() * v[a].numpy().tolist()[j],
    ][int(rng.integers(17))]
    return given(rng, read, b)


def supposed(rng, a: int, b: int, i: int, j: int) -> Step:
    read = [
        lambda v: json.loads(json.dumps(float(v[a][i]))),
        lambda v: 2.0 * v[a].numpy().tolist()[i],
        lambda v: float(np.array(v[a].numpy())[i]),
        lambda v: np.asarray(v[a])[i],
    ][int(rng.integers(4))]
    return given(rng, read, b)


def arrays(rng, a: int, b: int, i: int, j: int) -> Step:
    """Values of NumPy into memory."""
    read = [
        lambda v: v[a].numpy(),
        lambda v: v[a].numpy()[::-1],
        lambda v: np.asarray(v[a]),
        lambda v: v[a].numpy() * 0.5,
        lambda v: np.sin(v[a]),
        lambda v: np.roll(v[a].numpy(), 1),
        lambda v: np.concatenate([v[a].numpy()[:2], v[b].numpy()[2:]]),
        lambda v: np.asarray(v[a].numpy() + 0.1),
        lambda v: np.where(v[a].numpy() > 0, v[a].numpy(), 0.3),
        lambda v: v[a].list(),
        lambda v: v[a].numpy().tolist(),
        lambda v: [v[a][j], v[b][i], 0.5, v[a][i]],
        lambda v: np.array(v[a].numpy()),
        lambda v: wb.detach(v[a].numpy() * 0.5),
        lambda v: np.full(SIZE, 0.5),
        lambda v: np.array(v[a].numpy())[::-1],
        lambda v: np.asarray(v[a]) * 1.0,
        lambda v: np.roll(np.array(v[a].numpy()), 1),
        lambda v: np.array(v[a].numpy().reshape(2, 2).T).ravel(),
        lambda v: v[a].numpy().copy()[[3, 0, 1, 2]],
    ][int(rng.integers(20))]

    def through_out(v):
        np.multiply(read(v), 0.5, out=v[b].numpy())

    return [
        lambda v: v[b].assign(read(v)),
        lambda v: v.__setitem__(b, wb.array(read(v), dtype=F)),
        lambda v: v[b].numpy().__setitem__(slice(None), read(v)),
        lambda v: v.__setitem__(b, wb.from_numpy(np.array(read(v), dtype=float))),
        through_out,
        lambda v: v[b].__setitem__(slice(0, 2), read(v)[:2]),
        lambda v: v.__setitem__(b, v[b] * np.asanyarray(read(v))),
        lambda v: v.__setitem__(b, np.asanyarray(read(v)) - v[b]),
    ][int(rng.integers(8))]


def looks(rng, a: int, b: int, i: int, j: int) -> Step:
    """Reading that leads nowhere."""
    return [
        lambda v: str((float(v[a][i]), v[a].numpy().sum())),
        lambda v: v[a].numpy() * 2,
        lambda v: v[b].fill_(0.5),
        lambda v: v[b].__setitem__(i, 0.25),
    ][int(rng.integers(4))]


KINDS = (launches, launches, launches, copies, numbers, arrays, supposed, looks)


def program(seed: int) -> tuple[list[tuple[str, Step]], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    steps = []
    for _ in range(int(rng.integers(2, 9))):
        make = KINDS[int(rng.integers(len(KINDS)))]
        a, b = (int(k) for k in rng.permutation(BUFFERS)[:2])
        steps.append((make.__name__, make(rng, a, b, int(rng.integers(SIZE)), int(rng.integers(SIZE)))))
    return steps, rng.normal(size=(2, SIZE)) + 0.1, rng.normal(size=(BUFFERS, SIZE))


def started(start: np.ndarray, requires_grad: bool) -> list:
    """Two leaves and two buffers of constants."""
    leaves = [wb.array(row, dtype=F, requires_grad=requires_grad) for row in start]
    return [*leaves, wb.full(SIZE, 0.3, dtype=F), wb.full(SIZE, -0.6, dtype=F)]


def begin(v: list) -> None:
    """Every buffer is met once: from then on an assignment to it starts no leaf."""
    wb.launch(bend, SIZE, [v[0]], [v[2]])
    wb.launch(bend, SIZE, [v[1]], [v[3]])


class Constants:
    """`wb.detach` while differences are taken: what it gave the first time."""

    def __init__(self) -> None:
        self.first: list = []
        self.at = 0
        self.own = wb.detach

    def __call__(self, value):
        if self.at == len(self.first):
            self.first.append(self.own(value))
        self.at += 1
        return self.first[self.at - 1]


def value(steps, start: np.ndarray, seeds: np.ndarray, constants: Constants) -> float:
    v, constants.at = started(start, False), 0
    begin(v)
    for _, step in steps:
        step(v)
    return sum(float(s @ np.array(b.numpy())) for b, s in zip(v, seeds, strict=True))


def differences(steps, start: np.ndarray, seeds: np.ndarray, monkey) -> np.ndarray:
    constants, found, h = Constants(), np.zeros_like(start), 1e-6
    monkey.setattr(wb, "detach", constants)
    value(steps, start, seeds, constants)
    for at in np.ndindex(start.shape):
        ends = []
        for sign in (1, -1):
            moved = start.copy()
            moved[at] += sign * h
            ends.append(value(steps, moved, seeds, constants))
        found[at] = (ends[0] - ends[1]) / (2 * h)
    monkey.undo()
    return found


def outcome(seed: int) -> str:
    """exact | refused | warned | not smooth | WRONG"""
    steps, start, seeds = program(seed)
    v = started(start, True)
    leaves = v[:2]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with wb.Tape() as tape:
                begin(v)
                for _, step in steps:
                    step(v)
            grads = {b: wb.array(s, dtype=F) for b, s in zip(v, seeds, strict=True) if tape.log.has_touched(b.span)}
            tape.backward(grads=grads)
        except wb.GradientError as error:
            assert error.slug in ("host-values", "overwritten", "race", "two-types"), error
            return "refused"
    got = np.array([x.grad.list() for x in leaves])
    with pytest.MonkeyPatch.context() as monkey:
        want = differences(steps, start, seeds, monkey)
    if not np.isfinite(want).all() or np.abs(want).max() > 1e6:
        return "not smooth"
    if np.allclose(got, want, rtol=1e-4, atol=1e-5):
        return "exact"
    return "warned" if any("[host-number]" in str(w.message) for w in said) else "WRONG"


def test_random_programs_with_steps_of_the_host(backend):
    counts = collections.Counter()
    for seed in range(60):
        counts[found := outcome(seed)] += 1
        assert found != "WRONG", f"program {seed}: {[name for name, _ in program(seed)[0]]}"
    assert counts["exact"] > 10 and counts["refused"] > 10 and counts["warned"] > 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="c")
    args = parser.parse_args()
    wb.config.backend = args.backend
    total: collections.Counter = collections.Counter()
    for n in range(args.seed, args.seed + args.programs):
        result = outcome(n)
        total[result] += 1
        if result == "WRONG":
            sys.stdout.write(f"WRONG {n} {[name for name, _ in program(n)[0]]}\n")
    sys.stdout.write(f"{dict(total)}\n")

"""Random programs on a tape over the libraries of the host: every gradient is exact, or the program is refused.

Sparse matrices and chains of them, linear solvers, sorts, scans, sums and casts, steps of optimizers, meshes with moved
points, trees and hash grids, with launches, copies, views and aliases between them. The oracle runs the program
again without a tape at shifted inputs: fourth order central differences along random directions at two steps; where
these do not agree with each other, nothing is said.

    python -m tests.fuzz.host --programs 3000 --seed 0 [--backend numpy]
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
import traceback
import warnings

import numpy as np

import workbench as wb
from tests.fuzz.host_steps import KINDS, SINGLE, SIZE, Step, World, bend, triplets

REFUSED = (wb.KernelError, wb.LaunchError, wb.GradientError)
SHAPES = {"x": (SIZE,), "y": (SIZE,), "values": (12,), "dense": (SIZE, SIZE), "s": ()}


class Program:
    """Steps and inputs of a seed; `loose` if some of its numbers are float32."""

    def __init__(self, seed: int):
        r = random.Random(seed)
        kinds = [*KINDS, *SINGLE] if r.random() < 0.4 else KINDS
        drawn = [triplets, *(r.choice(kinds) for _ in range(r.randrange(2, 9)))]
        self.names = [k.__name__ for k in drawn]
        self.steps: list[Step] = [k(r) for k in drawn]
        self.loose = any(k in SINGLE for k in drawn)
        rng = np.random.default_rng(seed)
        self.start = {name: rng.uniform(-1.2, 1.2, shape) for name, shape in SHAPES.items()}
        self.seeds = rng.normal(size=(8, SIZE * SIZE))

    def run(self, start: dict[str, np.ndarray], requires_grad: bool) -> World:
        w = World(start, requires_grad)
        wb.launch(bend, SIZE, [w.v[0]], [w.v[2]])  # both leaves are met: an assignment to one starts none
        wb.launch(bend, SIZE, [w.v[1]], [w.v[3]])
        for step in self.steps:
            step(w)
        return w

    def outputs(self, w: World) -> list:
        """Vectors and matrices at the end, once each, and the seeds that they get."""
        flat = [*w.v, w.d[0], *(A.values for A in w.m[-3:] if A.nnz)]
        found, seen = [], set()
        for k, a in enumerate(flat):
            if id(a.allocation) in seen:
                continue
            seen.add(id(a.allocation))
            size = int(np.prod((*a.shape, *a.dtype.shape)))
            found.append((a, np.resize(self.seeds[k], size).reshape(*a.shape, *a.dtype.shape)))
        return found

    def value(self, start: dict[str, np.ndarray]) -> float:
        return sum(float((a.numpy() * seed).sum()) for a, seed in self.outputs(self.run(start, False)))


def gradient(program: Program) -> tuple[dict[str, np.ndarray], float]:
    """By leaf and by the declared scalar, and the value."""
    with wb.Tape() as tape:
        w = program.run(program.start, True)
    outputs = program.outputs(w)
    value = sum(float((np.array(a.numpy()) * seed).sum()) for a, seed in outputs)
    seeded = [(a, seed) for a, seed in outputs if tape.log.has_touched(a.span)]
    tape.backward(grads={a: wb.array(seed, dtype=a.dtype) for a, seed in seeded})
    found = {name: a.grad.numpy().copy() for name, a in w.leaves.items()}
    untouched = [a for a, _ in outputs if not tape.log.has_touched(a.span)]
    for name, a in w.leaves.items():  # what no event has met passes its own seed on
        if any(a is u for u in untouched):
            found[name] = next(seed for u, seed in outputs if u is a)
    found["s"] = np.array(w.s.grad if w.s.grad is not None else 0.0, float).reshape(())
    return found, value


def verdict(seed: int) -> tuple[str, str]:
    """exact, refused, unsure (differences cannot decide), WRONG or CRASH; and a word about it."""
    program = Program(seed)
    try:
        got, value = gradient(program)
    except REFUSED as error:
        return "refused", f"{error.slug}: {str(error).splitlines()[0]}"
    with np.errstate(all="ignore"):
        if not np.isfinite(value) or abs(value) > 1e4:
            return "unsure", "large"
        plain = program.value(program.start)
    near_enough = 1e-4 if program.loose else 1e-9
    if not abs(plain - value) <= near_enough * (1 + abs(value)):
        return "WRONG", f"value under a tape {value}, without {plain}"
    step, tight = (1e-2, 2e-2) if program.loose else (1e-3, 1e-5)
    for k in range(1 + (seed % 5 == 0)):
        rng = np.random.default_rng(1000 * seed + k)
        way = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
        slopes = [_slope(program, way, h) for h in (step, 2 * step)]
        scale = max(1.0, abs(slopes[0]), *(float(np.abs(g).max()) for g in got.values()))
        if not (np.isfinite(slopes).all() and abs(slopes[0] - slopes[1]) <= tight * scale):
            return "unsure", f"differences {slopes}"
        ours = sum(float((got[name] * way[name]).sum()) for name in SHAPES)
        if not abs(ours - slopes[0]) <= 2 * tight * scale:
            return "WRONG", f"{ours} {slopes}"
    return "exact", ""


def _slope(program: Program, way: dict[str, np.ndarray], h: float) -> float:
    def at(t: float) -> float:
        return program.value({name: a + t * way[name] for name, a in program.start.items()})

    with np.errstate(all="ignore"):
        return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="c")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no program later than this")
    parser.add_argument("--words", type=int, default=12, help="how many refusals are named")
    args = parser.parse_args()
    wb.config.backend = args.backend
    counts: collections.Counter[str] = collections.Counter()
    words: collections.Counter[str] = collections.Counter()
    kinds: collections.Counter[str] = collections.Counter()
    end = time.monotonic() + args.seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(args.seed, args.seed + args.programs):
            if time.monotonic() > end:
                break
            try:
                what, word = verdict(seed)
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                what, word = "CRASH", f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
            counts[what] += 1
            if what == "exact":
                kinds.update(set(Program(seed).names))
            if what == "refused":
                words[word[:110]] += 1
            if what in ("WRONG", "CRASH"):
                sys.stderr.write(f"=== {seed}: {what} {word} {Program(seed).names}\n")
                sys.stderr.flush()
    sys.stderr.write(f"{dict(counts)}\nexact programs with {dict(kinds)}\n")
    for word, n in words.most_common(args.words):
        sys.stderr.write(f"{n:6d}  {word}\n")
    return 1 if counts["WRONG"] or counts["CRASH"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Random functions of launches, host writes, views and new arrays: `wb.vmap` and a loop over the rows agree.

Values and gradients by mapped arguments agree to the last bit, those by a shared one to rounding. What the function
makes is the same for all rows until a launch or write on a row reaches it; some of it is written before and after.

    python -m tests.fuzz.vmap --programs 2000 --seed 1
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

N, ROWS = 4, 3
ARRAY = wb.array(dtype=F)


@wb.kernel
def near(x: ARRAY, y: ARRAY):
    i = wb.tid()
    j = i + 1
    if j >= x.shape[0]:
        j = -1
    y[i] = wb.sin(x[i]) * x[j] + y[i]


@wb.kernel
def mixed(a: ARRAY, b: ARRAY, y: ARRAY):
    i = wb.tid()
    y[i] = a[i] * b[i] - F(0.5) * b[0]


@wb.kernel
def total(x: ARRAY, y: ARRAY):
    wb.atomic_add(y, 0, x[wb.tid()] * x[wb.tid()])


@wb.struct
class Pair:
    a: ARRAY
    b: ARRAY
    k: F


@wb.kernel
def paired(p: Pair, n: wb.array(dtype=int)):
    i = wb.tid()
    p.b[i] += p.k * p.a[n[i] % p.a.shape[0]]


PLAIN = ("square", "add", "scale", "linear")  # their threads look at their own elements alone


class Maker:
    """The steps of one function, from a seed; `names` are its arrays, of which `x v` are mapped, `p` is shared."""

    def __init__(self, seed: int):
        self.r = np.random.default_rng(seed)
        self.names, self.steps = ["x", "v", "p"], []
        for _ in range(int(self.r.integers(3, 12))):
            self.step()
        if self.names[-1] == "p":
            self.new()
        made = [n for n in self.names if n not in "xvp"]
        self.returned = [*dict.fromkeys([self.names[-1], *self.r.permutation(made)[:2], *(["x"] * self.chance(0.2))])]

    def chance(self, p: float) -> bool:
        return bool(self.r.random() < p)

    def source(self) -> str:
        return str(self.r.choice(self.names))

    def target(self) -> str:
        found = [n for n in self.names if n not in "xvp"]
        return str(self.r.choice(found)) if found else self.new()

    def new(self) -> str:
        name, how = f"m{len(self.names)}", str(self.r.choice(["zeros", "full", "values", "clone", "empty", "zeros"]))
        self.steps.append(("new", name, how, self.source(), self.r.uniform(-1, 1, N).round(2)))
        self.names.append(name)
        return name

    def step(self) -> None:
        op = str(self.r.choice(["square", "add", "scale", "linear", "near", "mixed", "total", "paired", "copy"]))
        if self.chance(0.35):
            self.new()
        if self.chance(0.15):
            op = str(self.r.choice(["fill_", "zero_", "values", "assign"]))
        n = int(self.r.integers(2, N + 1)) if self.chance(0.4) else N
        i, j = (int(self.r.integers(0, N - n + 1)) for _ in range(2))
        y = self.target()
        others = [k for k in self.names if k != y]  # threads that read what others write are no program
        a, b = (str(self.r.choice(others)) for _ in range(2))
        self.steps.append((op, y if op in PLAIN and i == j and self.chance(0.3) else a, b, y, i, j, n))

    def function(self) -> Callable[..., Any]:
        kernels = {k.__name__: k for k in (square, add, scale, linear, near)}

        def fn(x: wb.array, v: wb.array, p: wb.array) -> Any:
            arrays = {"x": x, "v": v, "p": p}
            for op, *rest in self.steps:
                if op == "new":
                    name, how, source, values = rest
                    arrays[name] = made(how, arrays[source], values)
                    continue
                a, b, y = (arrays[k] for k in rest[:3])
                i, j, n = rest[3:]
                source, target = a[i : i + n], y[j : j + n]
                if op in kernels:
                    wb.launch(kernels[op], n, [source], [target])
                elif op == "mixed":
                    wb.launch(mixed, n, [source, b[i : i + n]], [target])
                elif op == "total":
                    wb.launch(total, n, [source], [target])
                elif op == "paired":
                    pair = Pair()
                    pair.a, pair.b, pair.k = b, target, 0.3 + 0.1 * i
                    wb.launch(paired, n, [pair, wb.array(np.arange(n)[::-1].copy(), dtype=int)])
                elif op in ("copy", "assign"):
                    wb.copy(target, source) if op == "copy" else target.assign(source)
                elif op == "values":
                    target.assign(np.arange(n) * 0.25 - 0.4)
                else:
                    target.zero_() if op == "zero_" else target.fill_(0.7)
            return tuple(arrays[n] for n in self.returned)

        return fn


def made(how: str, source: wb.array, values: np.ndarray) -> wb.array:
    """A new array of N numbers."""
    if how == "clone":
        return wb.clone(source)
    if how == "empty":  # written whole before anybody reads it
        found = wb.empty(N, dtype=F)
        wb.launch(linear, N, [source], [found])
        return found
    return wb.array(values, dtype=F) if how == "values" else wb.full(N, 0.0 if how == "zeros" else 0.25, dtype=F)


def run(seed: int, mapped: bool) -> list[np.ndarray] | str:
    """What the function returns, and the gradients; or the slug of a refusal."""
    maker, r = Maker(seed), np.random.default_rng((seed, 1))
    x, v = (wb.array(r.uniform(-1, 1, (ROWS, N)), dtype=F, requires_grad=True) for _ in range(2))
    p = wb.array(r.uniform(-1, 1, N), dtype=F, requires_grad=True)
    function = maker.function()
    try:
        with wb.Tape() as tape:
            if mapped:
                found = wb.vmap(function, (0, 0, None))(x, v, p)
                outs = [[a[b] for a in found] for b in range(ROWS)]
            else:
                outs = [function(x[b], v[b], p) for b in range(ROWS)]
        values = [a.numpy().copy() for row in outs for a in row]
        seeds = {a: wb.array(r.uniform(-1, 1, N), dtype=F) for row in outs for a in row}
        tape.backward(grads={a: s for a, s in seeds.items() if tape.log.has_touched(a.span)})
    except (wb.LaunchError, wb.GradientError) as error:
        return error.slug
    return [*values, *(a.grad.numpy().copy() for a in (x, v, p))]


def verdict(seed: int) -> str:
    """`same`, `refused: slug`, or `WRONG: ...`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, got = run(seed, False), run(seed, True)
    if want == "no-seed":  # nothing that it returns was ever touched; mapped, it is copied for each row
        return "same"
    if isinstance(want, str) or isinstance(got, str):
        same = want == got or got == "vmap"
        return f"refused: {got}" if same else f"WRONG: {want if isinstance(want, str) else 'numbers'}, and mapped {got}"
    for k, (a, b) in enumerate(zip(want, got, strict=True)):
        shared = k == len(want) - 1
        if not (np.allclose(a, b, 1e-9, 1e-9, equal_nan=True) if shared else np.array_equal(a, b, equal_nan=True)):
            return f"WRONG: number {k} is {b}, expected {a}"
    return "same"


def main() -> None:
    counts: collections.Counter[str] = collections.Counter()
    for seed in asked_seeds():
        found = verdict(seed)
        counts[found.partition(":")[0] if "WRONG" in found else found] += 1
        if "WRONG" in found:
            print(seed, found)  # noqa: T201
    print(dict(counts))  # noqa: T201
    sys.exit(counts["WRONG"] > 0)


if __name__ == "__main__":
    main()

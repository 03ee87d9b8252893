"""Random kernels at the edges that `stencils` stays away from: factors in conditions, stencils that wrap around the
end, nested constants, crossed clamp bounds, NaN, gradients whose memory is held, and views with odd strides.

The oracle is that of `stencils`. A program is written in the same way; what differs is what it draws from.

    python -m tests.fuzz.edges --programs 2000 --seed 1
"""

from __future__ import annotations

import argparse
import collections
import sys
import warnings
from dataclasses import dataclass, replace

import numpy as np

import workbench as wb
from tests.fuzz.stencils import F, Maker, Stencil
from workbench.launches import executable, thresholds

LAYOUTS = ("plain", "negative", "transposed", "wide", "views", "one memory")


@dataclass
class Edge(Stencil):
    """`held`: gradients are read through NumPy before the walk, and kept. `c` is read only, with a stride of zero."""

    held: bool = False
    spread: bool = False

    def numbers(self, k: int) -> dict[str, np.ndarray]:
        found = super().numbers(k)
        found["c"] = np.full(self.n, found["c"][0] if k != 1 else 0.0)
        return found

    def place(self, values: dict[str, np.ndarray], grad: bool) -> dict[str, wb.array]:
        n, made = self.n, {}
        whole = wb.zeros((6 * n, n), dtype=F, requires_grad=grad)
        for q, (name, axes) in enumerate(self.arrays.items()):
            shape = (n,) * axes
            if name == "c" and self.spread:
                made[name] = _spread(values[name], grad)
                continue
            if self.layout == "negative":
                a = wb.zeros(shape, dtype=F, requires_grad=grad)[::-1]
            elif self.layout == "transposed":
                a = wb.zeros((n, n), dtype=F, requires_grad=grad).T
                a = a if axes == 2 else a[q % n]
            elif self.layout == "wide":
                a = wb.zeros((n, 6 * n), dtype=F, requires_grad=grad)[:, 5::6]
                a = a if axes == 2 else a[n - 1, ::-1]
            elif self.layout == "views":
                a = whole[q * n : (q + 1) * n] if axes == 2 else whole[q * n : (q + 1) * n, q % n]
            elif self.layout == "one memory":
                a = whole[q::6] if axes == 2 else whole[q::6, n - 1 - q % n]
            else:
                a = wb.zeros(shape, dtype=F, requires_grad=grad)
            a.assign(values[name])
            made[name] = a
        return made

    def gradient(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """As in `Stencil`. With `held`: through gradients read before the walk, which adds to what is put there."""
        found = self._only_one_c(super().gradient())
        if not self.held:
            return found
        arrays, seeds, scope = self.place(self.numbers(0), True), self.numbers(1), self.compile()
        held = {name: a.grad.numpy() for name, a in arrays.items()}
        with wb.Tape() as tape:
            self.run(scope, arrays)
        touched = {name for name, a in arrays.items() if tape.log.has_touched(a.span)}
        given = {arrays[name]: wb.array(seeds[name], dtype=F) for name in touched}
        tape.backward(grads=given)
        tape.zero()
        assert not any(g.any() for g in held.values())
        for g in held.values():
            g[...] = 0.25
        tape.backward(grads=given)
        grads = {}
        for name, a in arrays.items():
            grads[name] = held[name] - np.where(_written(tape, a), 0, 0.25) + (0 if name in touched else seeds[name])
        return self._only_one_c((grads, found[1]))

    def _only_one_c(self, found):
        grads, final = found
        if self.spread:  # one cell under n names: its gradient counts once
            grads["c"] = np.concatenate([grads["c"][:1], np.zeros(self.n - 1)])
        return grads, final


def _spread(values: np.ndarray, grad: bool) -> wb.array:
    """One cell of memory that is read as many."""
    memory = np.lib.stride_tricks.as_strided(values[:1].copy(), values.shape, (0,))
    return wb.from_numpy(memory, dtype=F, requires_grad=grad)


def _written(tape: wb.Tape, a: wb.array) -> np.ndarray:
    """Which elements an event of the tape has written: there publishing replaces, elsewhere it adds."""
    marks, found = tape.log.written.get(a.allocation), np.zeros(a.shape, bool)
    for at in np.ndindex(a.shape) if marks is not None else ():
        found[at] = marks.touch(a.span.part(tuple((k, k + 1) for k in at)))
    return found


class EdgeMaker(Maker):
    """One program from one seed."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.arrays["c"] = 1

    def program(self) -> Edge:
        r = self.r
        made = super().program()
        fields = {k: v for k, v in vars(made).items() if k not in ("layout", "later")}
        return Edge(**fields, layout=r.choice(LAYOUTS), later=None, held=r.random() < 0.4, spread=r.random() < 0.5)

    def writable(self) -> list[str]:
        return [name for name in self.arrays if name != "c"]

    def guard(self) -> str:
        t, n, r = self.r.choice(self.tids), self.n, self.r
        f, k = r.choice((-3, -2, 2, 3, 4)), r.randint(0, 3 * n)
        return r.choice(
            (
                f"{f} * {t} {r.choice(('<', '<=', '>', '>=', '==', '!='))} {k if f > 0 else -k}",
                f"{r.randint(0, 3)} <= {abs(f)} * {t} < {k}",
                f"{2 * n - 1} - 2 * {t} > {r.randint(0, n)}",
                f"not ({f} * {t} + {k} < {r.randint(-n, n)} and {t} != 1)",
                super().guard(),
            )
        )

    def index(self, loop: str) -> str:
        t, n = self.r.choice(self.tids), self.n
        return self.r.choice(
            (
                f"{t} - 1",
                f"{t} - 2",
                f"{t} - {n}",
                f"(2 * {t}) % {n}",
                f"(3 * {t} + 1) % {n}",
                f"-{t} - 1",
                t,
                f"wb.clamp(2 * {t} - 1, 0, {n - 1})",
                f"wb.clamp({t}, {n - 1}, 1)",
                super().index(loop),
            )
        )

    def term(self, loop: str) -> str:
        a, b = super().term(loop), self.cell(self.r.choice([*self.reads, "c"]), loop)
        return self.r.choice(
            (
                a,
                f"{b} * {b}",
                f"wb.clamp({a}, F(3.0) + {b} * {b}, F(-2.0) + {b})",  # bounds that are crossed
                f"wb.clamp({a} * F(100.0), F(2.0), wb.sin({b}))",
                f"wb.where({self.guard()}, {a}, {b})",
                f"wb.min({a}, F(50.0) + {b})",
                f"wb.max(F(-50.0), {b} * {a})",
            )
        )

    def block(self, depth: int, loop: str) -> list[str]:
        lines = super().block(depth, loop)
        if self.r.random() < 0.5:
            lines += self.constants(depth)
        return lines

    def constants(self, depth: int) -> list[str]:
        """Nested conditions that choose a constant, some of them the one of outside."""
        pad, r = "    " * depth, self.r
        a, b, c, d = (r.choice(("F(0.0)", "F(0.5)", "F(-1.5)")) for _ in range(4))
        lines = [f"{pad}q = {a}", f"{pad}if {self.guard()}:"]
        lines += [f"{pad}    q = {b}"] if r.random() < 0.3 else []
        lines += [f"{pad}    if {self.guard()}:", f"{pad}        q = {c}"]
        lines += [f"{pad}    else:", f"{pad}        q = {r.choice((d, a))}"] if r.random() < 0.6 else []
        lines += [f"{pad}else:", f"{pad}    q = {r.choice((d, a))}"] if r.random() < 0.4 else []
        return [*lines, f"{pad}v += q * {self.term('')}"]


def make(seed: int) -> Edge:
    """The program of a seed."""
    return EdgeMaker(seed).program()


def settings(seed: int, backend: str, split: bool = True) -> None:
    """Small launches are split, shared among workers and gathered as large ones are."""
    wb.config.backend, wb.config.threads = backend, 1 + seed % 4
    wb.config.check_bounds = seed % 5 == 0
    for limit in ("PARALLEL_FROM", "PULL_FROM"):
        setattr(thresholds, limit, 1 if split else 1 << 40)
    executable.WORTH = 1e9 if seed % 2 else 0


def outcome(seed: int, backend: str, split: bool = True, program: Edge | None = None) -> str | tuple:
    """The slug of a refusal, or gradients and final contents."""
    settings(seed, backend, split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return (program or make(seed)).gradient()
        except (wb.GradientError, wb.LaunchError) as error:
            return error.slug


def same(one: tuple, two: tuple) -> bool:
    return all(
        np.allclose(a[name], b[name], rtol=1e-9, atol=1e-9, equal_nan=True) for a, b in zip(one, two) for name in a
    )


def poisoned(seed: int) -> Edge:
    """The same program, started with a NaN and an infinity among its numbers."""
    program = make(seed)

    class Poisoned(Edge):
        def numbers(self, k: int) -> dict[str, np.ndarray]:
            found = super().numbers(k)
            if k == 0:
                found["x"].flat[seed % found["x"].size] = np.nan
                found["y"].flat[seed % 3] = np.inf
            return found

    return Poisoned(**vars(program))


def verdict(seed: int, compiled: bool = True) -> tuple[str, str]:
    """exact, refused, unsure (differences cannot decide), or WRONG; and a word about it."""
    program = make(seed)
    found = outcome(seed, "numpy")
    if compiled and found != "bounds":
        for split in (True, False):
            other = outcome(seed, "c", split)
            if isinstance(found, str) != isinstance(other, str) or (
                found != other if isinstance(found, str) else not same(found, other)
            ):
                return "WRONG", f"numpy and c (split={split}) differ: {found} {other}"
        if not isinstance(found, str) and seed % 2 == 0:
            bad = [outcome(seed, *how, program=poisoned(seed)) for how in (("numpy",), ("c",), ("c", False))]
            if any(isinstance(b, str) or not same(bad[0], b) for b in bad):
                return "WRONG", f"with NaN numpy and c differ: {bad}"
    if isinstance(found, str):
        return "refused" if found in ("bounds", "race") else "WRONG", found
    grads, final = found
    if max(float(np.abs(data).max()) for data in final.values()) > 1e3:
        return "unsure", "large"
    settings(seed, "numpy")
    near, far = program.slope(5e-4), program.slope(1e-3)
    got = sum(float((grads[name] * way).sum()) for name, way in program.numbers(2).items())
    scale = max(1.0, abs(near), max(float(np.abs(g).max()) for g in grads.values()))
    if not abs(near - far) <= 1e-4 * scale:
        return "unsure", f"{near} {far}"
    right = abs(got - near) <= 1e-6 * scale + abs(near - far)
    return ("exact", "") if right else ("WRONG", f"{got} {near} {far}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--c-every", type=int, default=5, help="compare with the C backend every n programs")
    args = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(args.seed, args.seed + args.programs):
        what, word = verdict(seed, seed % args.c_every == 0)
        counts[what] += 1
        if what == "refused":
            counts[f"[{word}]"] += 1
        if what == "WRONG":
            program = make(seed)
            sys.stderr.write(f"=== {seed}: {word}\n{program.source}\n{replace(program, source='')}\n")
    sys.stderr.write(f"{dict(counts)}\n")
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())

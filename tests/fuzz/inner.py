"""Random programs whose forces are gradients of an inner tape: the outer gradient is exact, or the program is refused.

A state moves by kernels and by forces, the gradient of an energy that an inner tape differentiates; the loss reads
states and forces. Gradients pile up, are zeroed in several ways, copied, combined. The oracle is the same program in
complex NumPy, differentiated by complex steps.

    python -m tests.fuzz.inner --programs 4000 --seed 1
"""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import workbench as wb
from tests.fuzz import asked_seeds

F = wb.float64
N = 3
H = 1e-30
STEP = 2e-3


@wb.kernel
def energy(x: wb.array(dtype=F), p: wb.array(dtype=F), e: wb.array(dtype=F)):
    i = wb.tid()
    j = (i + 1) % 3
    wb.atomic_add(e, 0, F(0.25) * x[i] * x[i] * x[i] * p[i] + wb.sin(x[i] * x[j]) * p[j])


@wb.kernel
def spread(x: wb.array(dtype=F), p: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[(i + 1) % 3] + wb.cos(p[i])


@wb.kernel
def push(x: wb.array(dtype=F), f: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] - F(0.1) * f[i]


@wb.kernel
def bend(x: wb.array(dtype=F), f: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] + F(0.1) * wb.sin(f[i]) * x[i]


@wb.kernel
def move(x: wb.array(dtype=F), p: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] + F(0.2) * p[i] * wb.cos(x[i])


@wb.kernel
def squares(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])


def after(z: np.ndarray) -> np.ndarray:
    return np.roll(z, -1)


def energy_slopes(x: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of the energy by x and by p, in plain or complex numbers."""
    c, s = np.cos(x * after(x)), np.sin(x * after(x))
    by_x = 0.75 * x * x * p + c * after(x) * after(p)
    by_x += np.roll(c * x * after(p), 1)
    return by_x, 0.25 * x**3 + np.roll(s, 1)


def spread_slopes(x: np.ndarray, p: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of <seed, spread> by x and by p."""
    return seed * after(x) + np.roll(seed * x, 1), -seed * np.sin(p)


class Program:
    """One random program: `run` with the workbench, `loss` in NumPy."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.keep_outer = "all" if rng.random() < 0.7 else "needed"
        self.keep_inner = "all" if rng.random() < 0.9 else "needed"
        self.x, self.p = rng.uniform(0.3, 1.2, N), rng.uniform(0.3, 1.2, N)
        self.steps = []
        for _ in range(rng.integers(1, 5)):
            force = rng.choice(["none", "energy", "spread", "seeded"], p=[0.2, 0.4, 0.2, 0.2])
            self.steps.append(
                {
                    "force": force,
                    "twice": rng.random() < 0.25,
                    "by": rng.choice(["x", "p"]),
                    "taken": rng.choice(
                        ["as it is", "clone", "copy", "sum", "numpy", "detach"], p=[0.35, 0.2, 0.2, 0.15, 0.05, 0.05]
                    ),
                    "zero": rng.choice(["before", "after", "tape", "never"]),
                    "use": rng.choice([push, bend]),
                    "penalty": rng.random() < 0.3,
                }
            )

    def slopes(self, step: dict, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """The gradient that one backward of this step publishes, by x or by p."""
        if step["force"] == "energy":
            both = energy_slopes(x, p)
        else:
            both = spread_slopes(x, p, np.ones(N) if step["force"] == "spread" else p)
        return both[0 if step["by"] == "x" else 1]

    def loss(self, x: np.ndarray, p: np.ndarray) -> complex:
        total, piled = 0, np.zeros(N)  # what is in p.grad
        for step in self.steps:
            if step["force"] == "none":
                x = x + 0.2 * p * np.cos(x)
                continue
            old = piled if step["by"] == "p" and step["zero"] != "before" else 0
            f = old + self.slopes(step, x, p) * (2 if step["twice"] else 1)
            others = self.slopes({**step, "by": "p"}, x, p) * (2 if step["twice"] else 1)
            piled = (0 if step["zero"] == "before" else piled) + others
            if step["zero"] in ("after", "tape"):
                piled = np.zeros(N)
            if step["taken"] == "detach":
                f = f.real
            if step["penalty"]:
                total = total + np.sum(f * f)
            x = x - 0.1 * f if step["use"] is push else x + 0.1 * np.sin(f) * x
        return total + np.sum(x * x)

    def exact(self) -> np.ndarray:
        start = np.concatenate([self.x, self.p]).astype(complex)
        found = []
        for k in range(2 * N):
            moved = start.copy()
            moved[k] += 1j * H
            found.append(self.loss(moved[:N], moved[N:]).imag / H)
        return np.array(found)

    def moved(self, v: np.ndarray) -> np.ndarray:
        """The change of the gradient along v, by central differences of order four."""
        start = np.concatenate([self.x, self.p])
        found = []
        for k in (-2, -1, 1, 2):
            self.x, self.p = np.split(start + k * STEP * v, 2)
            found.append(self.exact())
        self.x, self.p = np.split(start, 2)
        return (found[0] - 8 * found[1] + 8 * found[2] - found[3]) / (12 * STEP)

    def run(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, float | None]:
        """The gradient; along v the change of it and the derivative, None where refused or for another program."""
        x = wb.array(self.x, dtype=F, requires_grad=True)
        p, loss = wb.array(self.p, dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
        first = x
        with wb.Tape(keep=self.keep_outer) as outer:
            for step in self.steps:
                x = self.step(step, x, p, loss)
            wb.launch(squares, N, [x], [loss])
        along = {first: v[:N], p: v[N:]}
        second, slope = (
            _unless_refused(lambda: np.concatenate([*wb.hvp(outer, loss, along).values()])),
            _unless_refused(lambda: float(wb.jvp(outer, along)[loss][0])),
        )
        with_nothing = wb.zeros(N, dtype=F)
        for a in (first, p):
            a.grad = with_nothing
        outer.backward(loss)
        return np.concatenate([first.grad.numpy(), p.grad.numpy()]), second, slope

    def step(self, step: dict, x: wb.array, p: wb.array, loss: wb.array) -> wb.array:
        y = wb.zeros(N, dtype=F, requires_grad=True)
        if step["force"] == "none":
            wb.launch(move, N, [x, p], [y])
            return y
        if step["zero"] == "before":
            p.grad.zero_()
        e, z = wb.zeros(1, dtype=F), wb.zeros(N, dtype=F)
        with wb.Tape(keep=self.keep_inner) as inner:
            if step["force"] == "energy":
                wb.launch(energy, N, [x, p], [e])
            else:
                wb.launch(spread, N, [x, p], [z])
        for _ in range(2 if step["twice"] else 1):
            if step["force"] == "energy":
                inner.backward(e)
            else:
                inner.backward(grads={z: wb.ones(N, dtype=F) if step["force"] == "spread" else p})
        f = self.taken(step["taken"], x.grad if step["by"] == "x" else p.grad)
        if step["penalty"]:
            wb.launch(squares, N, [f], [loss])
        wb.launch(step["use"], N, [x, f], [y])
        if step["zero"] == "after":
            p.grad.zero_()
        elif step["zero"] == "tape":
            inner.zero()
        return y

    def taken(self, how: str, grad: wb.array) -> wb.array:
        if how == "clone":
            return wb.clone(grad)
        if how == "detach":
            return wb.detach(grad)
        if how == "sum":
            return 0.25 * grad + 0.75 * grad
        if how in ("copy", "numpy"):
            f = wb.zeros(N, dtype=F)
            wb.copy(f, grad) if how == "copy" else f.assign(grad.numpy())
            return f
        return grad


def _unless_refused(derivative: Callable[[], Any]) -> Any:
    try:
        return derivative()
    except wb.GradientError:
        return None


def outcome(seed: int) -> str:
    """ "exact", "twice" if second derivatives are too, or "refused"; raises AssertionError where one is wrong."""
    program = Program(seed)
    v = np.random.default_rng(seed).uniform(-1, 1, 2 * N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got, second, slope = program.run(v)
        except wb.GradientError as error:
            return f"refused [{error.slug}]"
    exact = program.exact()
    if not np.allclose(got, exact, rtol=1e-9, atol=1e-11):
        raise AssertionError(f"program {seed}: {got} instead of {exact}\n{program.__dict__}")
    if slope is not None and not np.isclose(slope, exact @ v, rtol=1e-9, atol=1e-11):
        raise AssertionError(f"program {seed}: jvp {slope} instead of {exact @ v}\n{program.__dict__}")
    if second is None or any(step["taken"] == "detach" for step in program.steps):
        return "exact"
    if not np.allclose(second, moved := program.moved(v), rtol=1e-6, atol=1e-7):
        raise AssertionError(f"program {seed}: hvp {second} instead of {moved}\n{program.__dict__}")
    return "twice"


def main() -> None:
    counts: collections.Counter[str] = collections.Counter()
    for seed in asked_seeds(backend=None):
        try:
            counts[outcome(seed)] += 1
        except AssertionError as error:
            counts["WRONG"] += 1
            print(error)
    print(dict(counts))
    raise SystemExit(counts["WRONG"] > 0)


if __name__ == "__main__":
    main()

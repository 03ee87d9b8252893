"""Ten simulations of 200 steps and a dozen arrays, each with one planted bug: what the strip of a view must name.

`BUGS[name]()` runs one and returns its tape and a `Planted`: launch, line and arrays of the bug. They are written as
users write them: nothing keeps more than it must, nothing is named but by its variable.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

import workbench as wb
from tests.support.diagnosed import line_of, line_with

N, STEPS = 24, 200


@dataclass(frozen=True)
class Planted:
    """What is wrong: the slug of its finding, launch, line, arrays, a piece of the sentence, the thread; `statement`:
    the line of the kernel that the microscope must stop at."""

    slug: str
    launch: str
    line: int
    arrays: tuple[str, ...]
    says: str
    thread: int | None = None
    other: Any = None  # a tape to compare with
    statement: int = 0


@wb.kernel
def springs(x: wb.array[float], k: wb.array[float], rest: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    d = x[i + 1] - x[i]
    pull = k[i] * (wb.sqrt(d * d + 0.01) - rest[i])
    wb.atomic_add(f, i, pull)
    wb.atomic_sub(f, i + 1, pull)


@wb.kernel
def drag(v: wb.array[float], c: wb.array[float], wind: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(f, i, c[i] * (wind[i] - v[i]))


@wb.kernel
def integrate(x: wb.array[float], v: wb.array[float], f: wb.array[float], m: wb.array[float], dt: float):
    i = wb.tid()
    v[i] = v[i] + dt * f[i] / m[i]
    x[i] = x[i] + dt * v[i]


@wb.kernel
def energy(x: wb.array[float], v: wb.array[float], m: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    e[i] = 0.5 * m[i] * v[i] * v[i] + 0.5 * x[i] * x[i]


@wb.kernel
def misfit(e: wb.array[float], target: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, (e[i] - target[i]) * (e[i] - target[i]))


# ---- the wrong parts


@wb.kernel
def narrow(x: wb.array[float], k: wb.array[float], rest: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    d = x[i + 1] - x[i]
    stretch = wb.sqrt(d - 0.5)
    wb.atomic_add(f, i, k[i] * (stretch - rest[i]))


@wb.kernel
def gather(x: wb.array[float], table: wb.array[float]):
    i = wb.tid()
    node = float(int(x[i] * 10.0)) * 0.1
    table[i] = node


@wb.kernel
def drift(x: wb.array[float], v: wb.array[float], f: wb.array[float], m: wb.array[float], dt: float):
    i = wb.tid()
    v[i] = v[i] + dt * f[i] / m[i]
    x[i] = x[i] + v[i]


@wb.kernel
def diffuse(u: wb.array[float], d: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = u[i] + d[i] * (u[wb.max(i - 1, 0)] - 2.0 * u[i] + u[wb.min(i + 1, 23)])


@wb.kernel
def gust(v: wb.array[float], wind: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    f[i] = 0.5 * (wind[i] - v[i])


@wb.kernel
def deposit(x: wb.array[float], m: wb.array[float], grid: wb.array[float]):
    i = wb.tid()
    cell = wb.clamp(int(x[i] * 0.5), 0, 11)
    grid[cell] = m[i] * x[i]


@wb.kernel
def scatter(x: wb.array[float], m: wb.array[float], grid: wb.array[float]):
    i = wb.tid()
    cell = wb.clamp(int(x[i] * 0.5), 0, 11)
    wb.atomic_add(grid, cell, m[i] * x[i])


@wb.kernel
def spread(grid: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    e[i] = grid[i % 12] * 0.1


@wb.func
def stiffening(d: float):
    return d * d * d + 0.5 * d


@wb.func_grad(stiffening)
def stiffening_grad(d: float, adj_ret: float):
    wb.adjoint[d] += adj_ret * (d * d + 0.5)


@wb.kernel
def stiff(x: wb.array[float], k: wb.array[float], rest: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    pull = k[i] * stiffening(x[i + 1] - x[i] - rest[i])
    wb.atomic_add(f, i, pull)
    wb.atomic_sub(f, i + 1, pull)


@wb.kernel
def floor_contact(x: wb.array[float], c: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    depth = wb.min(x[i] - 1.0, 0.0)
    wb.atomic_sub(f, i, c[i] * depth)


@wb.kernel
def logistic(u: wb.array[float], r: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = r[i] * u[i] * (1.0 - u[i])


class Mass:
    """The arrays that all of them start from."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        start = np.arange(N, dtype=np.float32) + rng.normal(0, 0.05, N).astype(np.float32)
        self.x = wb.array(start, requires_grad=True)
        self.v = wb.zeros(N)
        self.k = wb.array(np.full(N, 2.0, np.float32), requires_grad=True)
        self.rest = wb.array(np.full(N, 1.0, np.float32))
        self.c = wb.array(np.full(N, 0.3, np.float32), requires_grad=True)
        self.wind = wb.array(rng.normal(0, 0.1, N).astype(np.float32))
        self.m = wb.array(np.full(N, 1.0, np.float32))
        self.target, self.e, self.loss = wb.ones(N), wb.zeros(N), wb.zeros(1)
        self.f = [wb.zeros(N) for _ in range(STEPS)]

    def arrays(self) -> tuple[Any, ...]:
        return self.x, self.v, self.k, self.rest, self.c, self.wind, self.m, self.f

    def end(self) -> None:
        wb.launch(energy, dim=N, inputs=[self.x, self.v, self.m], outputs=[self.e])
        wb.launch(misfit, dim=N, inputs=[self.e, self.target], outputs=[self.loss])


def nan():
    """A spring is shorter than its formula allows from step 18 on: the root of something negative."""
    s = Mass()
    x, v, k, rest, c, wind, m, f = s.arrays()
    v.assign(np.where(np.arange(N) == 20, -2.0, 0).astype(np.float32))
    step, thread = _first_nan(s)
    with wb.Tape() as tape:
        for n in range(STEPS):
            wb.launch(narrow, dim=N - 1, inputs=[x, k, rest], outputs=[f[n]])
            wb.launch(integrate, dim=N, inputs=[x, v, f[n], m, 0.05])
        s.end()
    tape.backward(s.loss)
    line = line_of(narrow, "sqrt")
    return tape, Planted("not-finite", f"#{2 * step} narrow", line, (f"f[{step}]",), "sqrt(-", thread, statement=line)


def _first_nan(s: Mass) -> tuple[int, int]:
    """Step and thread at which the simulation above takes the root of something negative."""
    x, v, k, rest = (a.numpy().copy() for a in (s.x, s.v, s.k, s.rest))
    for step in range(STEPS):
        d = x[1:] - x[:-1] - np.float32(0.5)
        if (d < 0).any():
            return step, int(np.argmax(d < 0))
        f = np.append(k[:-1] * (np.sqrt(d) - rest[:-1]), np.float32(0))
        v += np.float32(0.05) * f
        x += np.float32(0.05) * v
    raise AssertionError("no NaN was planted")


def dead():
    """A table look-up by an integer index, in every step: no gradient passes."""
    s = Mass()
    x, v, k, rest, _, _, m, f = s.arrays()
    table = wb.zeros(N)
    with wb.Tape() as tape:
        for n in range(STEPS):
            wb.launch(springs, dim=N - 1, inputs=[x, k, rest], outputs=[f[n]])
            wb.launch(integrate, dim=N, inputs=[x, v, f[n], m, 0.05])
        wb.launch(gather, dim=N, inputs=[x], outputs=[table])
        wb.launch(energy, dim=N, inputs=[table, s.wind, m], outputs=[s.e])
        wb.launch(misfit, dim=N, inputs=[s.e, s.target], outputs=[s.loss])
    tape.backward(s.loss)
    line = line_of(gather, "int(")
    return tape, Planted("died", "#400 gather", line, ("x", "k"), "cast to int", statement=line)


def missing_dt():
    """One of two integrators forgets dt."""

    def run(mover):
        s = Mass()
        x, v, k, rest, c, wind, m, f = s.arrays()
        with wb.Tape() as tape:
            for n in range(STEPS):
                wb.launch(springs, dim=N - 1, inputs=[x, k, rest], outputs=[f[n]])
                wb.launch(drag, dim=N, inputs=[v, c, wind], outputs=[f[n]])
                wb.launch(mover, dim=N, inputs=[x, v, f[n], m, 0.01])
            s.end()
        tape.backward(s.loss)
        return tape

    launch, statement = line_with(run, "launch(mover"), line_of(drift, "x[i] + v[i]")
    return run(drift), Planted("parted", "#2 drift", launch, ("x",), "x[0] = ", None, run(integrate), statement)


def wrong_buffer():
    """Two buffers in turn, and the loss reads the one that the last step has not written."""
    s = Mass()
    d = wb.array(np.full(N, 0.2, np.float32), requires_grad=True)
    source = wb.array(np.cos(np.arange(N)).astype(np.float32))
    a, b = wb.zeros(N), wb.zeros(N)
    with wb.Tape() as tape:
        wb.launch(diffuse, dim=N, inputs=[source, d], outputs=[a])
        for _ in range(STEPS):
            wb.launch(diffuse, dim=N, inputs=[a, d], outputs=[b])
            a, b = b, a
        wb.launch(energy, dim=N, inputs=[b, s.v, s.m], outputs=[s.e])
        wb.launch(misfit, dim=N, inputs=[s.e, s.target], outputs=[s.loss])
    tape.backward(s.loss)
    line, statement = line_with(wrong_buffer, "inputs=[b, s.v"), line_of(energy, "e[i] =")
    return tape, Planted("stale-buffer", "#201 energy", line, ("b", "a"), "last turn but one", statement=statement)


def alias():
    """What is meant as the state half a step ago is the state itself."""
    s = Mass()
    x, v, k, rest, c, wind, m, f = s.arrays()
    half = x[:]
    with wb.Tape() as tape:
        for n in range(STEPS):
            wb.launch(springs, dim=N - 1, inputs=[half, k, rest], outputs=[f[n]])
            wb.launch(drag, dim=N, inputs=[v, c, wind], outputs=[f[n]])
            wb.launch(integrate, dim=N, inputs=[x, v, f[n], m, 0.01])
        s.end()
    tape.backward(s.loss)
    line, statement = line_with(alias, "inputs=[x, v, f[n]"), line_of(integrate, "x[i] =")
    return tape, Planted("aliased", "#2 integrate", line, ("half", "x"), "share memory", statement=statement)


def overwritten():
    """The second force stores where it should add."""
    s = Mass()
    x, v, k, rest, m, wind = s.x, s.v, s.k, s.rest, s.m, s.wind
    f = wb.zeros(N)
    with wb.Tape() as tape:
        for _ in range(STEPS):
            f.zero_()
            wb.launch(springs, dim=N - 1, inputs=[x, k, rest], outputs=[f])
            wb.launch(gust, dim=N, inputs=[v, wind], outputs=[f])
            wb.launch(integrate, dim=N, inputs=[x, v, f, m, 0.01])
        s.end()
    tape.backward(s.loss)
    line, statement = line_with(overwritten, "launch(gust"), line_of(gust, "f[i] =")
    return tape, Planted("overwritten-unread", "#2 gust", line, ("f",), "is overwritten", statement=statement)


def _racing(kernel):
    s = Mass()
    x, v, k, rest, c, wind, m, f = s.arrays()
    grid = wb.zeros(12)
    tape = wb.Tape()
    with tape:
        for n in range(STEPS):
            wb.launch(springs, dim=N - 1, inputs=[x, k, rest], outputs=[f[n]])
            wb.launch(integrate, dim=N, inputs=[x, v, f[n], m, 0.01])
        wb.launch(kernel, dim=N, inputs=[x, m], outputs=[grid])
        wb.launch(spread, dim=N, inputs=[grid], outputs=[s.e])
        wb.launch(misfit, dim=N, inputs=[s.e, s.target], outputs=[s.loss])
    return tape, s.loss


def race():
    """Particles store into cells instead of adding; `backward` refuses, and the tape is still there to be looked at."""
    tape, loss = _racing(deposit)
    with suppress(wb.GradientError):
        tape.backward(loss)
    line = line_of(deposit, "grid[cell] =")
    return tape, Planted("race", "#400 deposit", line, ("grid",), "touch one element", statement=line)


def repaired() -> wb.Tape:
    """The same with atomics."""
    tape, loss = _racing(scatter)
    tape.backward(loss)
    return tape


def custom_rule():
    """A derivative by hand lacks its factor of three."""
    s = Mass()
    x, v, k, rest, c, wind, m, f = s.arrays()
    with wb.Tape() as tape:
        for n in range(STEPS):
            wb.launch(stiff, dim=N - 1, inputs=[x, k, rest], outputs=[f[n]])
            wb.launch(integrate, dim=N, inputs=[x, v, f[n], m, 0.01])
        s.end()
    tape.backward(s.loss)
    line = line_of(stiff, "stiffening(")
    return tape, Planted("custom-rule", "#398 stiff", line, ("d",), "stiffening", statement=line)


def kink():
    """A mass rests exactly on the ground, where the contact force has a corner."""
    s = Mass()
    x, v, k, rest, c, wind, m, f = s.arrays()
    x.assign(np.arange(N, dtype=np.float32) * 0.5)
    with wb.Tape() as tape:
        wb.launch(floor_contact, dim=N, inputs=[x, c], outputs=[f[0]])
        for n in range(STEPS):
            wb.launch(springs, dim=N - 1, inputs=[x, k, rest], outputs=[f[n]])
            wb.launch(integrate, dim=N, inputs=[x, v, f[n], m, 0.01])
        s.end()
    tape.backward(s.loss)
    line = line_of(floor_contact, "wb.min")
    return tape, Planted("kink", "#0 floor_contact", line, ("f[0]",), "that of one side", 2, statement=line)


def exploding():
    """The state stays between 0 and 1; its adjoint grows by a factor in every step."""
    s = Mass()
    r = wb.array(np.full(N, 3.9, np.float32), requires_grad=True)
    states = [wb.array(np.linspace(0.11, 0.87, N, dtype=np.float32), requires_grad=True)]
    states += [wb.zeros(N) for _ in range(STEPS)]
    with wb.Tape() as tape:
        for n in range(STEPS):
            wb.launch(logistic, dim=N, inputs=[states[n], r], outputs=[states[n + 1]])
        wb.launch(energy, dim=N, inputs=[states[STEPS], s.v, s.m], outputs=[s.e])
        wb.launch(misfit, dim=N, inputs=[s.e, s.target], outputs=[s.loss])
    tape.backward(s.loss)
    line, statement = line_with(exploding, "launch(logistic"), line_of(logistic, "out[i] =")
    return tape, Planted("growing", "#199 logistic", line, ("states[200]",), "explodes", statement=statement)


BUGS = {
    f.__name__: f for f in (nan, dead, missing_dt, wrong_buffer, alias, overwritten, race, custom_rule, kink, exploding)
}

"""Tapes for the live view: springs with two names of one memory, a loop, and one that goes wrong on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np

import workbench as wb


@wb.kernel
def forces(x: wb.array(dtype=wb.vec3), f: wb.array(dtype=wb.vec3), k: float, rest: float):
    i = wb.tid()
    xi = x[i]
    d = xi - x[i + 1]
    n = wb.normalize(d)
    pull = k * n * (wb.length(d) - rest)
    wb.atomic_sub(f, i, pull)
    wb.atomic_add(f, i + 1, pull)


@wb.kernel
def integrate(x: wb.array(dtype=wb.vec3), v: wb.array(dtype=wb.vec3), f: wb.array(dtype=wb.vec3), dt: float):
    i = wb.tid()
    v[i] = v[i] + dt * f[i]
    x[i] = x[i] + dt * v[i]


@wb.kernel
def energy(x: wb.array(dtype=wb.vec3), v: wb.array(dtype=wb.vec3), loss: wb.array(dtype=float)):
    i = wb.tid()
    e = 0.0
    for j in range(3):
        e += 0.5 * v[i][j] * v[i][j]
    whole = e
    wb.atomic_add(loss, 0, whole + 0.5 * wb.dot(x[i], x[i]))


@wb.kernel
def step(x: wb.array(dtype=float), v: wb.array(dtype=float), dt: float):
    i = wb.tid()
    x[i] = x[i] + dt * wb.sin(v[i])


@wb.kernel
def root(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = y[i] + wb.sqrt(x[i] - 1.0)


@wb.kernel
def double(x: wb.array(dtype=float)):
    i = wb.tid()
    x[i] = x[i] * 2.0


@wb.kernel
def shrink(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    s = x[i]
    for k in range(100):
        s = s - 0.025 * wb.sqrt(s)
        s = s * 0.99
    y[i] = s


def springs(steps: int = 2, n: int = 12) -> tuple[wb.Tape, dict[str, Any]]:
    """`steps` of forces and integrate, then an energy; `positions` and `state[0]` are one memory."""
    rng = np.random.default_rng(0)
    start = np.c_[np.arange(n), rng.normal(0, 0.2, (n, 2))].astype(np.float32)
    positions = wb.array(start, dtype=wb.vec3, requires_grad=True, name="positions")
    state = [positions.reshape((n,))]
    velocities = wb.zeros(n, dtype=wb.vec3, requires_grad=True, name="velocities")
    pulls = [wb.zeros(n, dtype=wb.vec3) for _ in range(min(steps, 4))]
    loss = wb.zeros(1, dtype=float, requires_grad=True, name="loss")
    with wb.Tape() as tape:
        for k in range(steps):
            f = pulls[k % len(pulls)]
            with tape.scope("step"):
                if k >= len(pulls):
                    f.zero_()
                wb.launch(forces, dim=n - 1, inputs=[positions, f, 4.0, 0.8])
                wb.launch(integrate, dim=n, inputs=[state[0], velocities, f, 0.1])
        wb.launch(energy, dim=n, inputs=[positions, velocities], outputs=[loss])
    tape.backward(loss)
    return tape, {"positions": positions, "velocities": velocities, "loss": loss, "start": start}


def ill(turns: int = 40) -> tuple[wb.Tape, Any, Any]:
    """A loop in which one turn makes the adjoint infinite (the root of exactly 0), and so on from there."""
    x = wb.array([1.0, 2.0, 5.0], dtype=float, requires_grad=True)
    y = wb.zeros(3, dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        for _ in range(turns):
            wb.launch(step, dim=3, inputs=[y, y, 0.5])
        wb.launch(root, dim=3, inputs=[x], outputs=[y])
        for _ in range(turns):
            wb.launch(step, dim=3, inputs=[y, y, 0.5])
    tape.backward(grads={y: wb.ones_like(y)})
    return tape, x, y


def crowd(launches: int, arrays: int, dt: float = 0.01) -> tuple[wb.Tape, list[Any]]:
    """Many launches over many allocations."""
    rng = np.random.default_rng(1)
    xs = [wb.array(rng.random(8).astype(np.float32), dtype=float, requires_grad=True) for _ in range(arrays)]
    with wb.Tape() as tape:
        for k in range(launches):
            wb.launch(step, dim=8, inputs=[xs[k % arrays], xs[(k * 7 + 3) % arrays], dt])
    tape.backward(grads={xs[0]: wb.ones_like(xs[0])})
    return tape, xs


@wb.kernel
def spread(u: wb.array(dtype=float), c: wb.array(dtype=float), out: wb.array(dtype=float)):
    i = wb.tid()
    out[i] = u[i] + 0.2 * c[i] * (u[(i + 1) % 8] - u[i])


def chain(steps: int = 24) -> tuple[wb.Tape, list[Any]]:
    """A state for each step in one list, `u`, and the coefficients `c`; the last state is the seed."""
    u = [wb.array(np.linspace(0.1, 1, 8, dtype=np.float32), dtype=float, requires_grad=True)]
    u += [wb.zeros(8, dtype=float) for _ in range(steps)]
    c = wb.ones(8, dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        for k in range(steps):
            wb.launch(spread, dim=8, inputs=[u[k], c], outputs=[u[k + 1]])
    tape.backward(grads={u[steps]: wb.ones_like(c)})
    return tape, u


def parts(number: int = 24, low: float = 1.0) -> wb.Tape:
    """As many arrays, each with a name of its own, and `loss` after them; with `low` = 1 a slope is infinite."""
    letters = ["first", *(f"part_{chr(97 + k)}" for k in range(number - 1))]
    made = [wb.array([low, 2.0], dtype=float, requires_grad=True, name=name) for name in letters]
    out = [wb.zeros(2, dtype=float, name=f"of_{name}") for name in letters]
    with wb.Tape() as tape:
        for x, y in zip(made, out, strict=True):
            wb.launch(root, dim=2, inputs=[x], outputs=[y])
        loss = wb.zeros(1, dtype=float, name="loss")
        wb.utils.array_sum(out[-1], out=loss)
    tape.backward(loss)
    return tape


def line_of(number: int) -> wb.Tape:
    """One array of as many elements, 1, 2, 3 ..., which is more than one row of a heat-map."""
    x = wb.array(np.arange(1, number + 1), dtype=float, requires_grad=True)
    y = wb.zeros(number)
    with wb.Tape() as tape:
        wb.launch(root, dim=number, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.ones(number)})
    return tape


def forgotten() -> tuple[wb.Tape, Any]:
    """`x` is doubled in place: what it was before is needed by nobody, and so not kept."""
    x = wb.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True)
    h = wb.zeros(3, dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        wb.copy(h, x)
        wb.launch(double, dim=3, inputs=[h])
        wb.launch(double, dim=3, inputs=[h])
    tape.backward(grads={h: wb.ones_like(h)})
    return tape, h

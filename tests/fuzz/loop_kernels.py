"""Kernels of random loops (`loops`): elementwise, with neighbours, by an index, in place, with loops, structs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import workbench as wb

FACTOR = 0.75  # programs bind it anew


@wb.kernel
def turned(n: int, at: wb.array[int]):
    i = wb.tid()
    at[i] = (at[i] + 1) % n


def kernels(F: Any, V: Any) -> SimpleNamespace:
    """The kernels over floats `F` and vectors `V` of three of them."""

    @wb.struct
    class Wind:
        force: V
        gusts: int
        strength: F
        over: wb.array(dtype=F)

    @wb.func
    def bent(a: F):
        return wb.sin(a) * F(FACTOR)

    @wb.kernel
    def moved(x: wb.array(dtype=F), v: wb.array(dtype=F), dt: F, y: wb.array(dtype=F), w: wb.array(dtype=F)):
        i = wb.tid()
        w[i] = v[i] - dt * wb.sin(x[i])
        y[i] = x[i] + dt * v[i]

    @wb.kernel
    def smoothed(u: wb.array(dtype=F), n: int, y: wb.array(dtype=F)):
        i = wb.tid()
        if i > 0 and i < n - 1:
            y[i] = F(0.5) * u[i] + F(0.25) * (u[i - 1] + u[i + 1]) + F(0.1) * wb.sin(u[i])

    @wb.kernel
    def gathered(x: wb.array(dtype=F), at: wb.array[int], y: wb.array(dtype=F)):
        i = wb.tid()
        j = at[i]
        if j < y.shape[0]:
            wb.atomic_add(y, j, F(0.5) * x[i] * x[i])

    @wb.kernel
    def picked(x: wb.array(dtype=F), at: wb.array[int], y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.cos(x[wb.min(at[i], x.shape[0] - 1)]) + x[i]

    @wb.kernel
    def scattered(x: wb.array(dtype=F), at: wb.array[int], y: wb.array(dtype=F)):
        i = wb.tid()
        j = at[i]
        if j < y.shape[0]:
            y[j] = x[i] * x[i]

    @wb.kernel
    def trusting(x: wb.array(dtype=F), at: wb.array[int], y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[at[i]]

    @wb.kernel
    def shifted(x: wb.array(dtype=F), lag: int, y: wb.array(dtype=F)):
        i = wb.tid()
        if i + 1 < x.shape[0]:
            y[i] = wb.sin(x[i + lag])

    @wb.kernel
    def placed(x: wb.array(dtype=F), lag: int, y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[lag] * x[i]

    @wb.kernel
    def grown(x: wb.array(dtype=F)):
        i = wb.tid()
        x[i] = F(0.9) * x[i] + F(0.1) * x[i] * x[i]

    @wb.kernel
    def added(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] += F(0.3) * wb.sin(x[i])

    @wb.kernel
    def highest(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_max(y, 0, x[i])

    @wb.kernel
    def looped(x: wb.array(dtype=F), rounds: int, y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for k in range(rounds):
            s = F(0.5) * s * x[i] + F(0.1) * F(k)
        y[i] = s

    @wb.kernel
    def factored(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = bent(x[i]) + F(FACTOR) * x[i]

    @wb.kernel
    def scaled(x: wb.array(dtype=F), dt: F, y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.sin(x[i]) * (F(1.0) + dt)

    @wb.kernel
    def blown(w: Wind, x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] + F(0.1) * w.strength * w.force[0] * w.over[i] + F(0.1) * w.force[1] * F(w.gusts) * x[i]

    @wb.kernel
    def plane(x: wb.array(dtype=F, ndim=2), y: wb.array(dtype=F, ndim=2)):
        i, j = wb.tid()
        y[i, j] = wb.sin(x[i, j]) + F(0.5) * x[0, j]

    @wb.kernel
    def rows(x: wb.array(dtype=F, ndim=2), y: wb.array(dtype=F)):
        i, j = wb.tid()
        wb.atomic_add(y, j, x[i, j] * x[i, j])

    @wb.kernel
    def spread(x: wb.array(dtype=F), y: wb.array(dtype=F, ndim=2)):
        i, j = wb.tid()
        y[i, j] = x[i] * x[j]

    @wb.kernel
    def pushed(p: wb.array(dtype=V), d: V, q: wb.array(dtype=V)):
        i = wb.tid()
        q[i] = F(0.5) * p[i] + F(0.1) * wb.cross(p[i], d)

    @wb.kernel
    def lengths(p: wb.array(dtype=V), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.dot(p[i], p[i])

    @wb.kernel
    def lifted(x: wb.array(dtype=F), p: wb.array(dtype=V)):
        i = wb.tid()
        p[i] = V(x[i], F(0.5), wb.cos(x[i]))

    @wb.kernel
    def squared(x: wb.array(dtype=F), loss: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_add(loss, 0, x[i] * x[i])

    @wb.kernel
    def copied(x: wb.array(dtype=Any), y: wb.array(dtype=Any)):
        i = wb.tid()
        y[i] = x[i] + x[i]

    made = {n: v for n, v in locals().items() if n not in ("F", "V", "bent")}
    return SimpleNamespace(**made, turned=turned)


ALL = {32: kernels(wb.float32, wb.vec3), 64: kernels(wb.float64, wb.vec3d)}

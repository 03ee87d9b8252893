"""Programs whose gradient is exact, with what is known in closed form about how far it can be followed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import workbench as wb
from tests.support.trust_twins import (
    arm,
    arm_twin,
    between_disks,
    between_disks_twin,
    between_walls,
    by_events,
    cancelled,
    far_sigmoid,
    five_bodies,
    folded,
    highest,
    orbit,
    orbit_twin,
    penalty,
    penalty_twin,
    product_residual,
    searched_radius,
    settling,
    shot_with_drag,
    shot_with_drag_twin,
    sigmoid,
    slow_clock,
    stages,
    stages_twin,
    three_balls,
    three_balls_twin,
    two_pendulums,
    two_pendulums_twin,
    wide,
    wrapped,
    wrapped_twin,
)

G = 9.81


@dataclass
class Case:
    """A loss with its start. `radius`: the truth, or None where only the kind is known; `line`: a part of the line.

    `twin`: the same in NumPy, by which the radius is found.
    """

    loss: Callable
    start: list[float]
    kind: str
    radius: float | None = None
    line: str = ""
    growth: float | None = None
    twin: Callable | None = None
    finest: float = 1e-6

    @cached_property
    def truth(self) -> float | None:
        return self.radius if self.twin is None else searched_radius(self.twin, self.start, self.finest)


@wb.kernel
def parabola(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, x[i] * x[i])


@wb.kernel
def fall(y: wb.array[float], v: wb.array[float], dt: float, y2: wb.array[float], v2: wb.array[float]):
    i = wb.tid()
    speed = v[i] - dt * 9.81
    place = y[i] + dt * speed
    if place < 0.0:
        speed = -0.7 * speed
        place = 0.0
    y2[i] = place
    v2[i] = speed


@wb.kernel
def first(x: wb.array[float], out: wb.array[float]):
    out[0] = x[0]


def bouncing(steps: int, dt: float):
    """Height after some steps by the height at the start: a contact that moves to another step makes it jump."""

    def loss(x):
        y, v = wb.clone(x), wb.zeros(1)
        for _ in range(steps):
            y2, v2 = wb.zeros(1), wb.zeros(1)
            wb.launch(fall, 1, [y, v, dt], [y2, v2])
            y, v = y2, v2
        out = wb.zeros(1)
        wb.launch(first, 1, [y], [out])
        return out

    return loss


def bounce_radius(height: float, steps: int, dt: float) -> float:
    """The distance of the starting height to the next one at which the first contact falls into another step."""
    drop = [G * dt * dt * k * (k + 1) / 2 for k in range(steps + 1)]
    return min(abs(height - d) for d in drop)


@wb.kernel
def logistic(x: wb.array[float], n: int, out: wb.array[float]):
    z = x[0]
    for _ in range(n):
        z = 4.0 * z * (1.0 - z)
    out[0] = z


@wb.kernel
def logistic_step(x: wb.array[float], y: wb.array[float]):
    y[0] = 3.9 * x[0] * (1.0 - x[0])


@wb.kernel
def tanh_step(x: wb.array[float], y: wb.array[float]):
    y[0] = wb.tanh(6.0 * x[0])


def chain(kernel, steps: int):
    def loss(x):
        y = x
        for _ in range(steps):
            z = wb.zeros(1)
            wb.launch(kernel, 1, [y], [z])
            y = z
        return y

    return loss


@wb.kernel
def staircase(x: wb.array[float], out: wb.array[float]):
    out[0] = wb.floor(x[0] * 4.0)


@wb.kernel
def rounded(x: wb.array[float], out: wb.array[float]):
    out[0] = x[0] + float(int(x[0] * 100.0))


@wb.kernel
def bent(x: wb.array[float], out: wb.array[float]):
    out[0] = wb.max(x[0] - 1.0, 0.0) * 3.0 + x[0]


@wb.kernel
def reflected(x: wb.array[float], out: wb.array[float]):
    p = x[0] + 7.3
    turns = 0
    while p > 1.0:
        p = p - 1.0
        turns = turns + 1
    if turns % 2 == 1:
        p = 1.0 - p
    out[0] = p


@wb.kernel
def large_sum(x: wb.array[float], out: wb.array[float]):
    out[0] = (1.0e8 + x[0] * x[0]) - 1.0e8


@wb.kernel
def residual(x: wb.array[float], r: wb.array[float]):
    i = wb.tid()
    t = float(i) * 0.25
    r[i] = (x[0] + x[1]) * t + x[2] - wb.sin(t)


@wb.kernel
def two_columns(x: wb.array[float], r: wb.array[float]):
    i = wb.tid()
    t = float(i) * 0.25
    r[i] = x[0] * t + x[1] - wb.sin(t)


def fitted(kernel, count: int):
    def loss(x):
        r, out = wb.zeros(count), wb.zeros(1)
        wb.launch(kernel, count, [x], [r])
        wb.launch(parabola, count, [r, out])
        return out

    return loss


def single(kernel, *numbers):
    def loss(x):
        out = wb.zeros(1)
        wb.launch(kernel, 1, [x, *numbers], [out])
        return out

    return loss


def squares(x):
    out = wb.zeros(1)
    wb.launch(parabola, len(x), [x, out])
    return out


@wb.kernel
def spring(x: wb.array[float], v: wb.array[float], dt: float, x2: wb.array[float], v2: wb.array[float]):
    i = wb.tid()
    v2[i] = v[i] - dt * x[i]
    x2[i] = x[i] + dt * v2[i]


@wb.kernel
def swing(x: wb.array[float], v: wb.array[float], dt: float, x2: wb.array[float], v2: wb.array[float]):
    i = wb.tid()
    v2[i] = v[i] - dt * wb.sin(x[i])
    x2[i] = x[i] + dt * v2[i]


def integrated(kernel, steps: int, dt: float, count: int = 1):
    def loss(x):
        y, v = wb.clone(x), wb.zeros(count)
        for _ in range(steps):
            y2, v2 = wb.zeros(count), wb.zeros(count)
            wb.launch(kernel, count, [y, v, dt], [y2, v2])
            y, v = y2, v2
        out = wb.zeros(1)
        wb.launch(parabola, count, [y, out])
        return out

    return loss


@wb.kernel
def heat(u: wb.array[float], w: wb.array[float]):
    i = wb.tid()
    n = u.shape[0]
    left, right = u[(i + n - 1) % n], u[(i + 1) % n]
    w[i] = u[i] + 0.2 * (left - 2.0 * u[i] + right)


def diffused(steps: int):
    def loss(x):
        for _ in range(steps):
            y = wb.zeros(len(x))
            wb.launch(heat, len(x), [x], [y])
            x = y
        return squares(x)

    return loss


@wb.kernel
def straight(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, float(i + 1) * x[i])


@wb.kernel
def network(w: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    t = float(i) * 0.1
    y = w[0] * wb.tanh(w[1] * t + w[2]) - wb.sin(t)
    wb.atomic_add(out, 0, y * y)


@wb.kernel
def guarded(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    r = wb.sqrt(x[i] * x[i] + 0.01)
    if r > 1.0e-6:
        wb.atomic_add(out, 0, x[i] * x[i] / r)


@wb.kernel
def smooth_contact(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    d = wb.min(x[i] - 0.5, 0.0)
    wb.atomic_add(out, 0, d * d + 0.1 * x[i])


def many(kernel, count):
    def loss(x):
        out = wb.zeros(1)
        wb.launch(kernel, count, [x, out])
        return out

    return loss


def quadratic_radius(x: list[float]) -> float:
    """Of the sum of squares along its gradient: (2 h |x| + h^2 - 2 h |x|) / (2 h |x|) = 0.1."""
    return 0.2 * float(np.linalg.norm(x))


@wb.kernel
def drive(g: wb.array[float], x: wb.array[float], v: wb.array[float], x2: wb.array[float], v2: wb.array[float]):
    push = wb.tanh(g[0] * (1.0 - x[0]) - g[1] * v[0])
    v2[0] = v[0] + 0.05 * push
    x2[0] = x[0] + 0.05 * v2[0]


def driven(g):
    x, v = wb.zeros(1), wb.zeros(1)
    for _ in range(20):
        x2, v2 = wb.zeros(1), wb.zeros(1)
        wb.launch(drive, 1, [g, x, v], [x2, v2])
        x, v = x2, v2
    return chain_end(x)


def chain_end(x):
    out = wb.zeros(1)
    wb.launch(first, 1, [x, out])
    return out


def beside(loss: Callable, twin: Callable, start: list[float], kind: str, line: str = "", **known: float) -> Case:
    return Case(loss, start, kind, None, line, twin=twin, **known)


CASES: dict[str, Case] = {
    "bounce": Case(bouncing(120, 0.01), [1.0], "jump", bounce_radius(1.0, 120, 0.01), "if place < 0.0:"),
    "bounce, finer": Case(bouncing(300, 0.004), [1.0], "jump", bounce_radius(1.0, 300, 0.004), "if place < 0.0:"),
    "reflections": Case(single(reflected), [0.5], "kink", None, "while p > 1.0:"),
    "staircase": Case(single(staircase), [0.6], "jump", 0.1, "wb.floor"),
    "rounded": Case(single(rounded), [0.504], "jump", 0.004, "int(x[0] * 100.0)"),
    "max": Case(single(bent), [0.9], "kink", None, "wb.max"),
    "logistic map in one kernel": Case(single(logistic, 40), [0.3], "chaos", line="for _ in range(n):", growth=2.0),
    "logistic map": Case(chain(logistic_step, 60), [0.3], "chaos", growth=math.exp(0.495)),
    "tanh": Case(chain(tanh_step, 8), [0.8], "flat", line="wb.tanh(6.0 * x[0])"),
    "saturated controller": Case(driven, [80.0, 1.0], "flat", line="wb.tanh(g[0]"),
    "controller": Case(driven, [2.0, 1.0], "smooth"),
    "float32 sum": Case(single(large_sum), [0.7], "noise"),
    "rank deficient": Case(fitted(residual, 12), [0.3, 0.4, 0.1], "ill-posed"),
    "squares": Case(squares, [1.0, -2.0, 0.5], "smooth", quadratic_radius([1.0, -2.0, 0.5])),
    "straight": Case(many(straight, 4), [1.0, 2.0, 3.0, 4.0], "smooth", math.inf),
    "spring": Case(integrated(spring, 100, 0.05, 2), [1.0, -0.5], "smooth", 0.2 * math.hypot(1.0, 0.5)),
    "pendulum": Case(integrated(swing, 200, 0.02), [0.6], "smooth"),
    "heat": Case(diffused(3), [1.0, 0.0, 0.0, -1.0, 2.0, 0.5], "smooth"),
    "heat, long ago": Case(diffused(30), [1.0, 0.0, 0.0, -1.0, 2.0, 0.5], "smooth"),  # forgotten, by 0.2 a step
    "network": Case(many(network, 30), [0.5, 0.8, 0.1], "smooth"),
    "fit": Case(fitted(two_columns, 12), [0.3, 0.1], "smooth"),
    "guarded": Case(many(guarded, 3), [0.4, -0.3, 0.9], "smooth"),
    "smooth contact": Case(many(smooth_contact, 3), [0.45, 0.2, 0.9], "smooth"),
    "three balls": beside(three_balls, three_balls_twin, [2.0, 1.0], "jump", "if q[1] < 0.1:"),
    "penalty": beside(single(penalty), penalty_twin, [1.0], "kink", "wb.max(-y, 0.0)"),
    "billiards, 6 collisions": beside(
        single(between_walls, 200), lambda x: folded(0.35 + 2 * x[0]), [3.1], "kink", "if p > 1.0:"
    ),
    "billiards by events, 5 collisions": beside(
        single(by_events), lambda x: folded(0.2 + 3 * x[0]), [1.7], "kink", "if room >= left:"
    ),
    "billiards between disks, 14 collisions": beside(
        single(between_disks, 14), between_disks_twin, [0.01], "chaos", "for _ in range(n):", growth=3.732, finest=1e-8
    ),
    "break": beside(single(stages, 100), stages_twin, [0.35], "jump", "if s > 3.0:"),
    "two pendulums, long": Case(single(two_pendulums, 2500), [2.0, 2.5], "chaos", line="for _ in range(n):"),
    "two pendulums, short": beside(single(two_pendulums, 200), two_pendulums_twin, [1.0, 1.4], "smooth"),
    "sigmoids": Case(chain(sigmoid, 20), [0.4], "flat", line="wb.launch(kernel, 1, [y], [z])"),
    "far sigmoid": Case(single(far_sigmoid), [0.3], "flat", line="wb.exp(-30.0"),
    "settled map": Case(chain(settling, 40), [0.3], "flat", line="wb.launch(kernel, 1, [y], [z])"),
    "highest": Case(many(highest, 3), [1.0, 0.99, 0.2], "kink", 0.0107, "wb.atomic_max"),
    "cancelled cosine": Case(single(cancelled), [1.0], "noise"),
    "slow clock": Case(single(slow_clock, 200), [1.0], "noise"),
    "product of parameters": Case(fitted(product_residual, 15), [0.5, 1.4], "ill-posed"),
    "wide scales": Case(many(wide, 3), [1e-3, 2.0, 700.0], "smooth"),
    "wrapped angle": beside(single(wrapped, 300), wrapped_twin, [0.3, 2.6], "smooth"),
    "drag": beside(single(shot_with_drag, 60), shot_with_drag_twin, [5.0, 4.0], "smooth"),
    "orbit": beside(single(orbit, 300), orbit_twin, [0.1, 1.0], "smooth"),
    "arm": beside(single(arm), arm_twin, [0.1, 0.4, 0.3], "smooth"),
    "five bodies": Case(five_bodies, list(np.random.default_rng(0).normal(size=15)), "smooth"),
}

"""Programs of physics with their twins in NumPy, by which the radius of their gradients is found."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import workbench as wb


def searched_radius(twin: Callable[[np.ndarray], float], start: list[float], finest: float = 1e-6) -> float:
    """The longest step along the gradient up to which `twin` is within 10 % of its straight line, both ways."""
    x = np.array(start, np.float32).astype(np.float64)
    e = 0.1 * finest * max(1.0, float(np.abs(x).max()))
    g = np.array([(twin(x + e * d) - twin(x - e * d)) / (2 * e) for d in np.eye(len(x))])
    slope, last = float(np.linalg.norm(g)), 0.0
    base = twin(x)
    for h in float(np.linalg.norm(x)) * np.logspace(math.log10(finest), 1, 250):
        for side in (1, -1):
            off = twin(x + side * h * g / slope) - base - side * h * slope
            if not abs(off) <= 0.1 * slope * h:
                return last
        last = float(h)
    return math.inf


@wb.kernel
def thrown(p: wb.array[wb.vec2], v: wb.array[wb.vec2], p2: wb.array[wb.vec2], v2: wb.array[wb.vec2]):
    i = wb.tid()
    w = v[i] + wb.vec2(0.0, -9.81) * 0.005
    q = p[i] + w * 0.005
    if q[1] < 0.1:
        w = wb.vec2(w[0] * 0.7, -0.6 * w[1])
        q = wb.vec2(q[0], 0.1)
    p2[i] = q
    v2[i] = w


@wb.kernel
def start_of_throw(x: wb.array[float], p: wb.array[wb.vec2], v: wb.array[wb.vec2]):
    i = wb.tid()
    p[i] = wb.vec2(0.0, 1.0 + 0.3 * float(i))
    v[i] = wb.vec2(x[0], x[1])


@wb.kernel
def end_of_throw(p: wb.array[wb.vec2], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, 0.3 * p[i][0] + p[i][1])


def three_balls(x):
    p, v = wb.zeros(3, dtype=wb.vec2), wb.zeros(3, dtype=wb.vec2)
    wb.launch(start_of_throw, 3, [x], [p, v])
    for _ in range(160):
        p2, v2 = wb.zeros(3, dtype=wb.vec2), wb.zeros(3, dtype=wb.vec2)
        wb.launch(thrown, 3, [p, v], [p2, v2])
        p, v = p2, v2
    out = wb.zeros(1)
    wb.launch(end_of_throw, 3, [p], [out])
    return out


def three_balls_twin(x):
    total = 0.0
    for i in range(3):
        p, v = np.array([0.0, 1.0 + 0.3 * i]), np.array(x)
        for _ in range(160):
            v = v + 0.005 * np.array([0.0, -9.81])
            p = p + 0.005 * v
            if p[1] < 0.1:
                p, v = np.array([p[0], 0.1]), np.array([0.7 * v[0], -0.6 * v[1]])
        total += 0.3 * p[0] + p[1]
    return total


@wb.kernel
def penalty(x: wb.array[float], out: wb.array[float]):
    y = x[0]
    v = 0.0
    for _ in range(400):
        f = wb.max(-y, 0.0) * 2000.0
        v = v + 0.002 * (f - 9.81)
        y = y + 0.002 * v
    out[0] = y


def penalty_twin(x):
    y, v = x[0], 0.0
    for _ in range(400):
        v += 0.002 * (max(-y, 0) * 2000 - 9.81)
        y += 0.002 * v
    return y


@wb.kernel
def between_walls(x: wb.array[float], n: int, out: wb.array[float]):
    p = 0.35
    v = x[0]
    for _ in range(n):
        p = p + v * 0.01
        if p > 1.0:
            p = 2.0 - p
            v = -v
        if p < 0.0:
            p = -p
            v = -v
    out[0] = p


@wb.kernel
def by_events(x: wb.array[float], out: wb.array[float]):
    p = 0.2
    v = x[0]
    left = 3.0
    while left > 0.0:
        room = wb.where(v > 0.0, (1.0 - p) / v, p / (-v))
        if room >= left:
            p = p + v * left
            left = 0.0
        else:
            p = wb.where(v > 0.0, 1.0, 0.0)
            v = -v
            left = left - room
    out[0] = p


def folded(place: float) -> float:
    """A place on a line without walls, folded between walls at 0 and 1."""
    place %= 2.0
    return place if place <= 1 else 2 - place


@wb.kernel
def between_disks(x: wb.array[float], n: int, out: wb.array[float]):
    y = x[0]
    slope = 0.0
    for _ in range(n):
        y = y + slope
        slope = slope + 2.0 * y
    out[0] = wb.sin(y)


def between_disks_twin(x):
    y, slope = x[0], 0.0
    for _ in range(14):
        y += slope
        slope += 2 * y
    return math.sin(y)


@wb.kernel
def two_pendulums(x: wb.array[float], n: int, out: wb.array[float]):
    a0 = x[0]
    a1 = x[1]
    w0 = 0.0
    w1 = 0.0
    for _ in range(n):
        d = a0 - a1
        c = wb.cos(d)
        s = wb.sin(d)
        f0 = -w1 * w1 * s - 19.62 * wb.sin(a0)
        f1 = w0 * w0 * s - 9.81 * wb.sin(a1)
        w0 = w0 + 0.004 * (f0 - c * f1) / (2.0 - c * c)
        w1 = w1 + 0.004 * (2.0 * f1 - c * f0) / (2.0 - c * c)
        a0 = a0 + 0.004 * w0
        a1 = a1 + 0.004 * w1
    out[0] = wb.sin(a0) + wb.sin(a1)


def two_pendulums_twin(x):
    (a0, a1), w0, w1 = x, 0.0, 0.0
    for _ in range(200):
        c, s = math.cos(a0 - a1), math.sin(a0 - a1)
        f0, f1 = -w1 * w1 * s - 19.62 * math.sin(a0), w0 * w0 * s - 9.81 * math.sin(a1)
        w0 += 0.004 * (f0 - c * f1) / (2 - c * c)
        w1 += 0.004 * (2 * f1 - c * f0) / (2 - c * c)
        a0, a1 = a0 + 0.004 * w0, a1 + 0.004 * w1
    return math.sin(a0) + math.sin(a1)


@wb.kernel
def sigmoid(x: wb.array[float], y: wb.array[float]):
    y[0] = 1.0 / (1.0 + wb.exp(-x[0]))


@wb.kernel
def far_sigmoid(x: wb.array[float], out: wb.array[float]):
    out[0] = 1.0 / (1.0 + wb.exp(-30.0 * (x[0] - 1.5)))


@wb.kernel
def settling(x: wb.array[float], y: wb.array[float]):
    y[0] = 2.5 * x[0] * (1.0 - x[0])


@wb.kernel
def highest(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_max(out, 0, 2.0 * x[i] - x[i] * x[i] * 0.1)


@wb.kernel
def cancelled(x: wb.array[float], out: wb.array[float]):
    d = x[0] * 1.0e-4
    out[0] = (1.0 - wb.cos(d)) / (d * d) + 1.0e-3 * x[0]


@wb.kernel
def slow_clock(x: wb.array[float], n: int, out: wb.array[float]):
    t = 5.0e5
    for _ in range(n):
        t = t + 0.001 * x[0]
    out[0] = t - 5.0e5


@wb.kernel
def wide(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, wb.exp(-x[i]) + 0.5 * x[i])


@wb.kernel
def product_residual(x: wb.array[float], r: wb.array[float]):
    t = 0.2 * float(wb.tid())
    r[wb.tid()] = x[0] * x[1] * t - wb.sin(t)


@wb.kernel
def stages(x: wb.array[float], n: int, out: wb.array[float]):
    s = 0.0
    for _ in range(n):
        s = s + x[0]
        if s > 3.0:
            break
    out[0] = s


def stages_twin(x):
    s = 0.0
    for _ in range(100):
        s += x[0]
        if s > 3:
            break
    return s


@wb.kernel
def wrapped(x: wb.array[float], n: int, out: wb.array[float]):
    a = x[0]
    w = x[1]
    for _ in range(n):
        w = w - 0.02 * wb.sin(a)
        a = a + 0.02 * w
        if a > 3.14159265:
            a = a - 6.2831853
    out[0] = wb.cos(a)


def wrapped_twin(x):
    a, w = x
    for _ in range(300):
        w -= 0.02 * math.sin(a)
        a += 0.02 * w
    return math.cos(a)


@wb.kernel
def shot_with_drag(x: wb.array[float], n: int, out: wb.array[float]):
    p = wb.vec2(0.0, 0.0)
    v = wb.vec2(x[0], x[1])
    for _ in range(n):
        v = v + 0.01 * (wb.vec2(0.0, -9.81) - 0.1 * wb.length(v) * v)
        p = p + 0.01 * v
    d = p - wb.vec2(3.0, 1.0)
    out[0] = wb.dot(d, d)


def shot_with_drag_twin(x):
    p, v = np.zeros(2), np.array(x)
    for _ in range(60):
        v = v + 0.01 * (np.array([0, -9.81]) - 0.1 * np.linalg.norm(v) * v)
        p = p + 0.01 * v
    return float(np.sum((p - np.array([3.0, 1.0])) ** 2))


@wb.kernel
def orbit(x: wb.array[float], n: int, out: wb.array[float]):
    p = wb.vec2(1.0, 0.0)
    v = wb.vec2(x[0], x[1])
    for _ in range(n):
        r = wb.length(p)
        v = v - 0.01 * p / (r * r * r)
        p = p + 0.01 * v
    out[0] = p[0] + p[1]


def orbit_twin(x):
    p, v = np.array([1.0, 0.0]), np.array(x)
    for _ in range(300):
        v = v - 0.01 * p / np.linalg.norm(p) ** 3
        p = p + 0.01 * v
    return float(p.sum())


@wb.kernel
def arm(x: wb.array[float], out: wb.array[float]):
    a = 0.0
    p = wb.vec2(0.0, 0.0)
    for k in range(3):
        a = a + x[k]
        p = p + wb.vec2(wb.cos(a), wb.sin(a))
    d = p - wb.vec2(1.5, 1.0)
    out[0] = wb.dot(d, d)


def arm_twin(x):
    a = np.cumsum(x)
    return (np.cos(a).sum() - 1.5) ** 2 + (np.sin(a).sum() - 1) ** 2


@wb.kernel
def attract(p: wb.array[wb.vec3], v: wb.array[wb.vec3], p2: wb.array[wb.vec3], v2: wb.array[wb.vec3]):
    i = wb.tid()
    a = wb.vec3(0.0, 0.0, 0.0)
    for j in range(p.shape[0]):
        if j != i:
            r = p[j] - p[i]
            d2 = wb.dot(r, r) + 0.05
            a = a + r / (d2 * wb.sqrt(d2))
    v2[i] = v[i] + 0.01 * a
    p2[i] = p[i] + 0.01 * v2[i]


@wb.kernel
def bodies(x: wb.array[float], p: wb.array[wb.vec3]):
    i = wb.tid()
    p[i] = wb.vec3(x[3 * i], x[3 * i + 1], x[3 * i + 2])


@wb.kernel
def spread_out(p: wb.array[wb.vec3], out: wb.array[float]):
    wb.atomic_add(out, 0, wb.length_sq(p[wb.tid()]))


def five_bodies(x):
    p, v = wb.zeros(5, dtype=wb.vec3), wb.zeros(5, dtype=wb.vec3)
    wb.launch(bodies, 5, [x], [p])
    for _ in range(40):
        p2, v2 = wb.zeros(5, dtype=wb.vec3), wb.zeros(5, dtype=wb.vec3)
        wb.launch(attract, 5, [p, v], [p2, v2])
        p, v = p2, v2
    out = wb.zeros(1)
    wb.launch(spread_out, 5, [p, out])
    return out

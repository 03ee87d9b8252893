"""More programs for `trust`: twenty with a planted cause, ten healthy, each with what is known of it."""

from __future__ import annotations

import math

import numpy as np

import workbench as wb
from tests.support.trust_programs import Case, beside, chain, fitted, many, single, squares

# ---- jumps


@wb.kernel
def wrapping(x: wb.array[float], n: int, out: wb.array[float]):
    z = x[0]
    for _ in range(n):
        z = wb.mod(2.0 * z, 1.0)
    out[0] = z


@wb.kernel
def halvings(x: wb.array[float], out: wb.array[float]):
    z = x[0]
    n = 0
    while z > 1.0:
        z = 0.5 * z
        n = n + 1
    out[0] = 3.0 * float(n) + x[0]


@wb.kernel
def looked_up(x: wb.array[float], table: wb.array[float], out: wb.array[float]):
    k = int(10.0 * x[0])
    out[0] = table[k] + 2.0 * x[0]


@wb.kernel
def spiking(x: wb.array[float], n: int, out: wb.array[float]):
    v = 0.0
    for _ in range(n):
        v = v + 0.05 * (x[0] - v)
        if v > 1.0:
            v = 0.0
    out[0] = v


def spiking_twin(x):
    v = 0.0
    for _ in range(120):
        v += 0.05 * (x[0] - v)
        v = 0.0 if v > 1 else v
    return v


@wb.kernel
def steps_of_time(x: wb.array[float], out: wb.array[float]):
    n = int(x[0] / 0.05)
    y = x[0]
    for _ in range(n):
        y = y + 0.05 * y
    out[0] = y


def steps_of_time_twin(x):
    return x[0] * 1.05 ** int(x[0] / 0.05)


@wb.kernel
def geared(w: wb.array[float], w2: wb.array[float]):
    push = 1.0
    if w[0] > 2.0:
        push = 0.4
    w2[0] = w[0] + 0.05 * push * w[0]


def geared_twin(x):
    w = x[0]
    for _ in range(30):
        w += 0.05 * (0.4 if w > 2 else 1.0) * w
    return w


# ---- kinks


@wb.kernel
def interpolated(x: wb.array[float], table: wb.array[float], out: wb.array[float]):
    p = 10.0 * x[0]
    k = int(p)
    t = p - float(k)
    out[0] = (1.0 - t) * table[k] + t * table[k + 1]


TABLE = np.array([0, 1, 3, 2, 5, 6, 9, 4, 1, 0, 2, 3], np.float32)


def interpolated_twin(x):
    return float(np.interp(10 * x[0], np.arange(12), TABLE))


@wb.kernel
def nearest(x: wb.array[float], out: wb.array[float]):
    best = 1.0e6
    for k in range(5):
        d = x[0] - 0.4 * float(k) * float(k)
        if d * d < best:
            best = d * d
    out[0] = best


def nearest_twin(x):
    return min((x[0] - 0.4 * k * k) ** 2 for k in range(5))


@wb.kernel
def hinges(w: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    t = 0.37 * float(i) - 1.0
    margin = 1.0 - wb.sign(t + 0.1) * (w[0] * t + w[1])
    wb.atomic_add(out, 0, wb.max(margin, 0.0))


def hinges_twin(w):
    t = 0.37 * np.arange(8) - 1
    return float(np.maximum(1 - np.sign(t + 0.1) * (w[0] * t + w[1]), 0).sum())


@wb.kernel
def earliest(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_min(out, 0, 5.0 + x[i] * (1.0 + float(i)))


# ---- chaos


@wb.kernel
def henon(s: wb.array[wb.vec2], r: wb.array[wb.vec2]):
    r[0] = wb.vec2(1.0 - 1.4 * s[0][0] * s[0][0] + s[0][1], 0.3 * s[0][0])


@wb.kernel
def as_vector(x: wb.array[float], s: wb.array[wb.vec2]):
    s[0] = wb.vec2(x[0], x[1])


@wb.kernel
def of_vector(s: wb.array[wb.vec2], out: wb.array[float]):
    out[0] = s[0][0]


def mapped(kernel, steps):
    def loss(x):
        s, out = wb.zeros(1, dtype=wb.vec2), wb.zeros(1)
        wb.launch(as_vector, 1, [x], [s])
        for _ in range(steps):
            r = wb.zeros(1, dtype=wb.vec2)
            wb.launch(kernel, 1, [s], [r])
            s = r
        wb.launch(of_vector, 1, [s], [out])
        return out

    return loss


@wb.kernel
def kicked(s: wb.array[wb.vec2], r: wb.array[wb.vec2]):
    p = s[0][1] + 20.0 * wb.sin(s[0][0])
    r[0] = wb.vec2(s[0][0] + p, p)


@wb.kernel
def lorenz(x: wb.array[float], n: int, out: wb.array[float]):
    a = x[0]
    b = x[1]
    c = x[2]
    for _ in range(n):
        da = 10.0 * (b - a)
        db = a * (28.0 - c) - b
        dc = a * b - 8.0 / 3.0 * c
        a = a + 0.005 * da
        b = b + 0.005 * db
        c = c + 0.005 * dc
    out[0] = a


@wb.kernel
def tent(x: wb.array[float], n: int, out: wb.array[float]):
    z = x[0]
    for _ in range(n):
        z = 0.97 - 1.94 * wb.abs(z - 0.5)
    out[0] = z


# ---- flat


@wb.kernel
def clamped(x: wb.array[float], out: wb.array[float]):
    y = wb.clamp(x[0], -1.0, 1.0)
    out[0] = y * y


@wb.kernel
def step_of_erf(x: wb.array[float], out: wb.array[float]):
    out[0] = 1.0 + wb.erf(8.0 * x[0])


@wb.kernel
def narrow(x: wb.array[float], out: wb.array[float]):
    d = x[0] - 3.0
    out[0] = 1.0 - wb.exp(-d * d * 8.0)


@wb.kernel
def forgetting(x: wb.array[float], y: wb.array[float]):
    y[0] = 1.0 + 0.3 * x[0]


# ---- noise


@wb.kernel
def variance(x: wb.array[float], out: wb.array[float]):
    s = 0.0
    q = 0.0
    for k in range(16):
        y = 4000.0 + 0.01 * x[0] * float(k)
        s = s + y
        q = q + y * y
    out[0] = q / 16.0 - (s / 16.0) * (s / 16.0)


@wb.kernel
def small_angle(x: wb.array[float], out: wb.array[float]):
    out[0] = 1.0e3 * wb.sqrt(1.0e10 + x[0] * x[0]) - 1.0e8


# ---- ill-posed


@wb.kernel
def in_series(k: wb.array[float], r: wb.array[float]):
    i = wb.tid()
    stiffness = k[0] * k[1] / (k[0] + k[1])
    t = 0.3 * float(i)
    r[i] = wb.cos(wb.sqrt(stiffness) * t) - wb.cos(1.1 * t)


@wb.kernel
def of_phase(x: wb.array[float], r: wb.array[float]):
    i = wb.tid()
    t = 0.4 * float(i)
    r[i] = x[0] * wb.sin(t + x[1]) + x[2] - wb.cos(t)


@wb.kernel
def equal_rates(x: wb.array[float], r: wb.array[float]):
    i = wb.tid()
    t = 0.25 * float(i)
    r[i] = (x[0] + 2.0 * x[1]) * wb.exp(-t) + x[2] * t - 1.0 / (1.0 + t)


# ---- healthy


@wb.kernel
def diffusing(u: wb.array[float], w: wb.array[float]):
    i = wb.tid()
    n = u.shape[0]
    w[i] = u[i] + 0.24 * (u[(i + n - 1) % n] - 2.0 * u[i] + u[(i + 1) % n])


@wb.kernel
def missing(u: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    d = u[i] - 0.1 * float(i % 3)
    wb.atomic_add(out, 0, d * d)


def faded(steps, end=squares):
    def loss(x):
        for _ in range(steps):
            y = wb.zeros(len(x))
            wb.launch(diffusing, len(x), [x], [y])
            x = y
        return end(x)

    return loss


def missed(x):
    out = wb.zeros(1)
    wb.launch(missing, len(x), [x, out])
    return out


@wb.kernel
def damped(k: wb.array[float], r: wb.array[float]):
    i = wb.tid()
    t = 0.3 * float(i)
    r[i] = wb.exp(-k[0] * t) * wb.cos(k[1] * t) - wb.exp(-0.2 * t) * wb.cos(1.5 * t)


@wb.kernel
def rosenbrock(x: wb.array[float], out: wb.array[float]):
    a = 1.0 - x[0]
    b = x[1] - x[0] * x[0]
    out[0] = a * a + 100.0 * b * b


@wb.kernel
def predators(x: wb.array[float], n: int, out: wb.array[float]):
    a = x[0]
    b = x[1]
    for _ in range(n):
        da = a * (1.0 - b)
        db = b * (a - 1.0)
        a = a + 0.01 * da
        b = b + 0.01 * db
    out[0] = a * b


def predators_twin(x):
    a, b = x
    for _ in range(400):
        a, b = a + 0.01 * a * (1 - b), b + 0.01 * b * (a - 1)
    return a * b


@wb.kernel
def deep(w: wb.array[float], out: wb.array[float]):
    z = w[0]
    for k in range(10):
        z = z + 0.1 * wb.tanh(w[1] * z + w[2])
    out[0] = (z - 1.5) * (z - 1.5)


def deep_twin(w):
    z = w[0]
    for _ in range(10):
        z += 0.1 * math.tanh(w[1] * z + w[2])
    return (z - 1.5) ** 2


@wb.kernel
def strings(x: wb.array[wb.vec2], out: wb.array[float]):
    i = wb.tid()
    d = x[i + 1] - x[i]
    wb.atomic_add(out, 0, (wb.length(d) - 1.0) * (wb.length(d) - 1.0) + 0.3 * x[i][1])


@wb.kernel
def spread_out(x: wb.array[float], p: wb.array[wb.vec2]):
    i = wb.tid()
    p[i] = wb.vec2(x[2 * i], x[2 * i + 1])


def hanging(x):
    p, out = wb.zeros(len(x) // 2, dtype=wb.vec2), wb.zeros(1)
    wb.launch(spread_out, len(p), [x], [p])
    wb.launch(strings, len(p) - 1, [p, out])
    return out


@wb.kernel
def lens(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    h = 0.1 * (float(i) - 3.5)
    angle = wb.asin(h / x[0]) - wb.asin(h / (1.5 * x[0]))
    d = h - 3.0 * wb.tan(angle)
    wb.atomic_add(out, 0, d * d)


def lens_twin(x):
    h = 0.1 * (np.arange(8) - 3.5)
    angle = np.arcsin(h / x[0]) - np.arcsin(h / (1.5 * x[0]))
    return float(((h - 3 * np.tan(angle)) ** 2).sum())


@wb.kernel
def within(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    if i < 3:
        y = wb.clamp(x[i], -10.0, 10.0)
        k = int(float(i) * 2.0)
        wb.atomic_add(out, 0, wb.exp(0.3 * y) + 0.1 * float(k))


@wb.kernel
def iterated(x: wb.array[float], out: wb.array[float]):
    y = 1.0
    n = 0
    while wb.abs(y * y - x[0]) > 1.0e-5 * x[0] and n < 50:
        y = 0.5 * (y + x[0] / y)
        n = n + 1
    out[0] = y


def tabled(kernel):
    def loss(x):
        out = wb.zeros(1)
        wb.launch(kernel, 1, [x, wb.array(TABLE)], [out])
        return out

    return loss


def at_most(x):
    out = wb.full(1, 100.0)
    wb.launch(earliest, len(x), [x, out])
    return out


FADING = list(np.random.default_rng(3).normal(size=16))
WRAP = 2.0**-6

FRESH: dict[str, Case] = {
    "wrapping": Case(single(wrapping, 6), [0.3], "jump", 19.2 * WRAP - 19 * WRAP, "wb.mod"),
    "halvings": Case(single(halvings), [11.0], "jump", 3.0, "while z > 1.0:"),
    "table": Case(tabled(looked_up), [0.57], "jump", 0.03, "int(10.0 * x[0])"),
    "neuron": beside(single(spiking, 120), spiking_twin, [1.3], "jump", "if v > 1.0:"),
    "time steps": beside(single(steps_of_time), steps_of_time_twin, [1.02], "jump", "int(x[0] / 0.05)"),
    "gears": beside(chain(geared, 30), geared_twin, [0.9], "jump", "if w[0] > 2.0:"),
    "interpolated": beside(tabled(interpolated), interpolated_twin, [0.26], "kink", "int(p)"),
    "nearest": beside(single(nearest), nearest_twin, [0.95], "kink", "if d * d < best:"),
    "hinges": beside(many(hinges, 8), hinges_twin, [0.8, 0.1], "kink", "wb.max(margin, 0.0)"),
    "earliest": Case(at_most, [2.0, 0.95, 0.8], "kink", None, "wb.atomic_min"),
    "henon": Case(mapped(henon, 90), [0.1, 0.2], "chaos", growth=math.exp(0.419)),
    "kicked rotor": Case(mapped(kicked, 50), [0.7, 0.3], "chaos", growth=10.0),
    "lorenz": Case(
        single(lorenz, 5000), [1.0, 2.0, 20.0], "chaos", line="for _ in range(n):", growth=math.exp(0.9 * 0.005)
    ),
    "tent": Case(single(tent, 45), [0.3137], "chaos", line="for _ in range(n):", growth=1.94),
    "clamped": Case(single(clamped), [3.0], "flat", line="wb.clamp"),
    "erf": Case(single(step_of_erf), [0.9], "flat", line="wb.erf"),
    "narrow": Case(single(narrow), [0.5], "flat", line="wb.exp"),
    "forgetting": Case(chain(forgetting, 40), [0.5], "flat"),
    "variance": Case(single(variance), [1.5], "noise"),
    "small angle": Case(single(small_angle), [3.0], "noise"),
    "springs in series": Case(fitted(in_series, 12), [2.0, 3.0], "ill-posed"),
    "phase of nothing": Case(fitted(of_phase, 12), [0.0, 0.7, 0.2], "ill-posed"),
    "equal rates": Case(fitted(equal_rates, 12), [0.6, 0.2, 0.1], "ill-posed"),
    "faded": Case(faded(200), FADING, "smooth"),
    "faded, to a target": Case(faded(60, missed), FADING, "smooth"),
    "damped": Case(fitted(damped, 14), [0.3, 1.2], "smooth"),
    "rosenbrock": Case(single(rosenbrock), [-1.2, 1.0], "smooth"),
    "predators": beside(single(predators, 400), predators_twin, [1.2, 0.7], "smooth"),
    "deep": beside(single(deep), deep_twin, [0.4, 0.9, 0.2], "smooth"),
    "hanging": Case(hanging, [0.0, 0.0, 0.9, -0.2, 1.7, -0.5, 2.8, -0.3], "smooth"),
    "lens": beside(many(lens, 8), lens_twin, [2.0], "smooth"),
    "within": Case(many(within, 8), [0.5, -0.2, 1.0], "smooth"),
    "newton": Case(single(iterated), [2.6], "smooth"),
}

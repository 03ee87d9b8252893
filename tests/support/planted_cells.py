"""Cells as users paste them into a notebook: twelve with one planted bug each, and healthy ones.

The last line of the last cell shows a view with default arguments. `BUGS` says what the first screenshot must name:
launch, array, a piece of the line, of the reason, and of the way out; and where one click must land.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A program and what its view must say.

    says      pieces of the headline: launch, array and the reason, in the field's words.
    line      the line of the cause, with which a line of the quotation ends.
    way_out   a piece of what to do; `mended`: what a click on "copy" gives.
    launch    where one click leads, -1: the page stays where it is. `thread`, `statement`: where the microscope stands.
    """

    program: str
    says: tuple[str, ...]
    line: str
    way_out: str
    launch: int = -1
    mended: str = ""
    thread: str = ""
    statement: str = ""
    shown: str = "tape.explore()"
    calm: bool = False

    @property
    def cells(self) -> tuple[str, str]:
        return HEAD + self.program, self.shown


HEAD = "import numpy as np\nimport workbench as wb\n"

SQRT = """
@wb.kernel
def gap(x: wb.array[float], r: wb.array[float], g: wb.array[float]):
    i = wb.tid()
    d = x[i + 1] - x[i]
    g[i] = wb.sqrt(d * d - r[i] * r[i])

@wb.kernel
def push(x: wb.array[float], g: wb.array[float], y: wb.array[float], dt: float):
    i = wb.tid()
    y[i] = x[i] + dt * g[wb.min(i, 6)]

@wb.kernel
def energy(x: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(e, 0, x[i] * x[i])

radius = wb.array(np.full(7, 0.5, np.float32), requires_grad=True)
xs = [wb.array(np.arange(8) ** 1.1 * 0.6, dtype=float)]
e = wb.zeros(1)
with wb.Tape() as tape:
    for k in range(40):
        g = wb.zeros(7)
        wb.launch(gap, 7, [xs[k], radius], [g])
        xs.append(wb.zeros(8))
        wb.launch(push, 8, [xs[k], g, xs[k + 1], -0.02])
    wb.launch(energy, 8, [xs[-1]], [e])
tape.backward(e)
"""

EXPLODE = """
@wb.kernel
def step(x: wb.array[float], v: wb.array[float], k: wb.array[float], x2: wb.array[float], v2: wb.array[float]):
    i = wb.tid()
    v2[i] = v[i] + 0.5 * k[0] * wb.sin(3.0 * x[i])
    x2[i] = x[i] + 0.5 * v2[i]

@wb.kernel
def distance(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])

k = wb.array([4.0], dtype=float, requires_grad=True)
x, v = wb.array(np.linspace(0.1, 0.8, 8), dtype=float), wb.zeros(8)
loss = wb.zeros(1)
with wb.Tape() as tape:
    for n in range(60):
        x2, v2 = wb.zeros(8), wb.zeros(8)
        wb.launch(step, 8, [x, v, k], [x2, v2])
        x, v = x2, v2
    wb.launch(distance, 8, [x], [loss])
tape.backward(loss)
"""

TANH = """
@wb.kernel
def layer(w: wb.array[float], x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.tanh(w[i] * x[i])

@wb.kernel
def squared(y: wb.array[float], t: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, (y[i] - t[i]) * (y[i] - t[i]))

w = [wb.array(np.linspace(4.0, 5.0, 16), dtype=float, requires_grad=True) for _ in range(8)]
h = [wb.array(np.linspace(0.9, 1.4, 16), dtype=float)]
target = wb.array(np.zeros(16), dtype=float)
loss = wb.zeros(1)
with wb.Tape() as tape:
    for k in range(8):
        h.append(wb.zeros(16))
        wb.launch(layer, 16, [w[k], h[k]], [h[k + 1]])
    wb.launch(squared, 16, [h[-1], target], [loss])
tape.backward(loss)
"""

OVERWRITTEN = """
@wb.kernel
def spring(x: wb.array[float], k: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    f[i] = -k[0] * x[i]

@wb.kernel
def gravity(x: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    f[i] = -9.81 + 0.0 * x[i]

@wb.kernel
def move(x: wb.array[float], v: wb.array[float], f: wb.array[float], dt: float):
    i = wb.tid()
    v[i] = v[i] + dt * f[i]
    x[i] = x[i] + dt * v[i]

@wb.kernel
def height(x: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i])

stiffness = wb.array([3.0], dtype=float, requires_grad=True)
x = wb.array(np.linspace(1, 2, 8), dtype=float, requires_grad=True)
v, f, loss = wb.zeros(8), wb.zeros(8), wb.zeros(1)
with wb.Tape() as tape:
    for n in range(30):
        wb.launch(spring, 8, [x, stiffness], [f])
        wb.launch(gravity, 8, [x], [f])
        wb.launch(move, 8, [x, v, f, 0.01])
    wb.launch(height, 8, [x], [loss])
tape.backward(loss)
"""

ALIAS = """
@wb.kernel
def blur(u: wb.array[float], c: wb.array[float], new: wb.array[float]):
    i = wb.tid()
    new[i] = u[i] + c[0] * (u[wb.max(i - 1, 0)] - 2.0 * u[i] + u[wb.min(i + 1, 31)])

@wb.kernel
def misfit(u: wb.array[float], start: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, (u[i] - start[i]) * (u[i] - start[i]))

c = wb.array([0.2], dtype=float, requires_grad=True)
u = wb.array(np.exp(-np.linspace(-3, 3, 32) ** 2), dtype=float)
start = u
w, loss = wb.zeros(32), wb.zeros(1)
with wb.Tape() as tape:
    for n in range(20):
        wb.launch(blur, 32, [u, c], [w])
        wb.launch(blur, 32, [w, c], [u])
    wb.launch(misfit, 32, [u, start], [loss])
tape.backward(loss)
"""

ONE_OF_EIGHT = """
@wb.kernel
def burn(m: wb.array[float], rate: wb.array[float], v: wb.array[float], m2: wb.array[float], v2: wb.array[float]):
    i = wb.tid()
    m2[i] = m[i] - rate[i]
    v2[i] = v[i] + 2.5 * wb.log(m[i] / m2[i])

@wb.kernel
def score(v: wb.array[float], s: wb.array[float]):
    i = wb.tid()
    s[i] = (v[i] - 4.0) * (v[i] - 4.0)

rates = wb.array([0.01, 0.012, 0.011, 0.01, 0.009, 0.034, 0.01, 0.008], dtype=float, requires_grad=True)
mass, speed, s = [wb.ones(8)], [wb.zeros(8)], wb.zeros(8)
with wb.Tape() as tape:
    for k in range(40):
        mass.append(wb.zeros(8))
        speed.append(wb.zeros(8))
        wb.launch(burn, 8, [mass[k], rates, speed[k]], [mass[k + 1], speed[k + 1]])
    wb.launch(score, 8, [speed[-1]], [s])
tape.backward(grads={s: wb.ones(8)})
"""

PILED = """
@wb.kernel
def residual(w: wb.array[float], x: wb.array[float], y: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    d = w[0] * x[i] - y[i]
    wb.atomic_add(loss, 0, d * d)

w = wb.array([0.5], dtype=float, requires_grad=True)
data = np.linspace(0, 1, 12)
inputs, targets = wb.array(data, dtype=float), wb.array(2 * data, dtype=float)
for epoch in range(5):
    loss = wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(residual, 12, [w, inputs, targets], [loss])
    tape.backward(loss)
    w.assign(w.numpy() - 0.01 * w.grad.numpy())
"""

HOST = """
@wb.kernel
def grow(u: wb.array[float], rate: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = u[i] * (1.0 + rate[i])

@wb.kernel
def total(u: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, u[i] * u[i])

rate = wb.array(np.linspace(0.1, 0.3, 8), dtype=float, requires_grad=True)
u, out, loss = wb.ones(8), wb.zeros(8), wb.zeros(1)
with wb.Tape() as tape:
    wb.launch(grow, 8, [u, rate], [out])
    out.assign(out.numpy() / out.numpy().sum())
    wb.launch(total, 8, [out], [loss])
"""

INDEPENDENT = """
@wb.kernel
def throw(angle: wb.array[float], speed: wb.array[float], x: wb.array[float]):
    i = wb.tid()
    x[i] = speed[i] * speed[i] * wb.sin(2.0 * angle[i]) / 9.81

@wb.kernel
def miss(x: wb.array[float], goal: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, (goal[i] - 10.0) * (goal[i] - 10.0))

angle = wb.array(np.full(4, 0.6), dtype=float, requires_grad=True)
speed = wb.array(np.linspace(8, 11, 4), dtype=float)
goal = wb.array(np.full(4, 9.0), dtype=float)
x, loss = wb.zeros(4), wb.zeros(1)
with wb.Tape() as tape:
    wb.launch(throw, 4, [angle, speed], [x])
    wb.launch(miss, 4, [x, goal], [loss])
tape.backward(loss)
"""

AGAINST = """
@wb.kernel
def fall(x: wb.array[float], v: wb.array[float], x2: wb.array[float], v2: wb.array[float], dt: float):
    i = wb.tid()
    v2[i] = v[i] - dt * 9.81
    x2[i] = x[i] + dt * v2[i]

@wb.kernel
def fall_checked(x: wb.array[float], v: wb.array[float], x2: wb.array[float], v2: wb.array[float], dt: float):
    i = wb.tid()
    v2[i] = v[i] - 9.81 * dt
    x2[i] = x[i] + dt * (v2[i] + 0.1)

def simulate(kernel):
    x, v = wb.array([1.0, 2.0, 3.0], dtype=float, requires_grad=True), wb.zeros(3)
    with wb.Tape() as tape:
        for k in range(10):
            x2, v2 = wb.zeros(3), wb.zeros(3)
            wb.launch(kernel, 3, [x, v, x2, v2, 0.05])
            x, v = x2, v2
    tape.backward(grads={x: wb.ones(3)})
    return tape

mine, theirs = simulate(fall), simulate(fall_checked)
"""

TORCH = """
import torch

@wb.kernel
def features(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]

@wb.kernel
def total(z: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, z[wb.tid()])

x = wb.array(np.linspace(-1, 1, 6), dtype=float, requires_grad=True)
y, loss = wb.zeros(6), wb.zeros(1)
with wb.Tape() as tape:
    wb.launch(features, 6, [x], [y])
    z = torch.tanh(torch.from_numpy(y.numpy()))
    wb.launch(total, 6, [wb.from_torch(z)], [loss])
"""

MISSING_ZERO = """
@wb.kernel
def pull(x: wb.array[float], k: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(f, i, -k[0] * x[i])

@wb.kernel
def move(x: wb.array[float], f: wb.array[float], x2: wb.array[float]):
    i = wb.tid()
    x2[i] = x[i] + 0.01 * f[i]

@wb.kernel
def size(x: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, x[wb.tid()] * x[wb.tid()])

k = wb.array([2.0], dtype=float, requires_grad=True)
x = wb.array(np.linspace(0.5, 1.5, 8), dtype=float, requires_grad=True)
f, loss = wb.zeros(8), wb.zeros(1)
with wb.Tape() as tape:
    for n in range(25):
        wb.launch(pull, 8, [x, k], [f])
        x2 = wb.zeros(8)
        wb.launch(move, 8, [x, f], [x2])
        x = x2
    wb.launch(size, 8, [x], [loss])
tape.backward(loss)
"""

TWO_BACKWARDS = "\ntry:\n    tape.backward(loss)\nexcept wb.GradientError as error:\n    print(error)\n"

BUGS = {
    "sqrt": Planted(
        SQRT,
        ("NaN", "#50 gap", "in g", "the square root of a negative number"),
        "g[i] = wb.sqrt(d * d - r[i] * r[i])",
        "above 0",
        50,
        "g[i] = wb.sqrt(wb.max(d * d - r[i] * r[i], 1e-12))",
        "0",
        "g[i] = wb.sqrt(d * d - r[i] * r[i])",
    ),
    "explode": Planted(
        EXPLODE,
        ("#59 step", "adjoint of x explodes", "its norm", "a step"),
        "wb.launch(step, 8, [x, v, k], [x2, v2])",
        "a smaller time step",
        59,
        thread="2",
        statement="x2[i] = x[i] + 0.5 * v2[i]",
    ),
    "tanh": Planted(
        TANH,
        ("the gradient vanishes", "#7 layer", "h[8]", "norm"),
        "y[i] = wb.tanh(w[i] * x[i])",
        "functions that do not saturate",
        7,
        thread="15",
        statement="y[i] = wb.tanh(w[i] * x[i])",
    ),
    "overwritten": Planted(
        OVERWRITTEN,
        ("#1 gravity", "f is overwritten", "nobody read what #0 spring"),
        "wb.launch(gravity, 8, [x], [f])",
        "read f first",
        1,
        thread="0",
        statement="f[i] = -9.81 + 0.0 * x[i]",
    ),
    "alias": Planted(
        ALIAS,
        ("adjoint of c dies", "#40 misfit", "u and start are one memory"),
        "wb.atomic_add(loss, 0, (u[i] - start[i]) * (u[i] - start[i]))",
        "start = wb.clone(u)",
        40,
        thread="0",
        statement="wb.atomic_add(loss, 0, (u[i] - start[i]) * (u[i] - start[i]))",
    ),
    "one_of_eight": Planted(
        ONE_OF_EIGHT,
        ("NaN", "#29 burn", "thread 5", "speed[30]", "the logarithm of a number that is not above 0"),
        "v2[i] = v[i] + 2.5 * wb.log(m[i] / m2[i])",
        "above 0",
        29,
        "v2[i] = v[i] + 2.5 * wb.log(wb.max(m[i] / m2[i], 1e-12))",
        "5",
        "v2[i] = v[i] + 2.5 * wb.log(m[i] / m2[i])",
    ),
    "piled": Planted(
        PILED,
        ("w.grad", "earlier ones", "It has changed since"),
        "tape.backward(loss)",
        "tape.zero()",
        mended="w.grad.zero_()\ntape.backward(loss)",
    ),
    "host": Planted(
        HOST + TWO_BACKWARDS,
        ("#1 assign", "out was written with values that the host made from out"),
        "out.assign(out.numpy() / out.numpy().sum())",
        "wb.map(f, y)",
        1,
    ),
    "independent": Planted(
        INDEPENDENT,
        ("#0 throw", "gradient of angle is zero", "ends in x"),
        "wb.launch(throw, 4, [angle, speed], [x])",
        "seed x, or pass it to what computes the seed",
        0,
        thread="0",
        statement="x[i] = speed[i] * speed[i] * wb.sin(2.0 * angle[i]) / 9.81",
    ),
    "against": Planted(
        AGAINST,
        ("#0 fall", "x2[0] = 0.975475 here, 0.980475 there", "line 8"),
        "x2[i] = x[i] + dt * v2[i]",
        "make both the same",
        0,
        "x2[i] = x[i] + dt * (v2[i] + 0.1)",
        "0",
        "x2[i] = x[i] + dt * v2[i]",
        "mine.explore(against=theirs)",
    ),
    "torch": Planted(
        TORCH + TWO_BACKWARDS,
        ("#1 values of another library", "wb.from_torch(z)", "made them of y"),
        "wb.launch(total, 6, [wb.from_torch(z)], [loss])",
        "a kernel or wb.map in place of it",
        1,
    ),
    "missing_zero": Planted(
        MISSING_ZERO,
        ("#2 pull", "f keeps the sum of all steps", "nothing sets it to zero"),
        "wb.launch(pull, 8, [x, k], [f])",
        "f.zero_()",
        2,
        "f.zero_()\nwb.launch(pull, 8, [x, k], [f])",
        "0",
        "wb.atomic_add(f, i, -k[0] * x[i])",
        calm=True,
    ),
}

OBSERVED = """
@wb.kernel
def wave(u: wb.array[float], old: wb.array[float], c: wb.array[float], new: wb.array[float], shown: wb.array[float]):
    i = wb.tid()
    bend = u[wb.max(i - 1, 0)] - 2.0 * u[i] + u[wb.min(i + 1, 31)]
    new[i] = 2.0 * u[i] - old[i] + c[i] * bend
    shown[i] = wb.abs(new[i])

@wb.kernel
def misfit(u: wb.array[float], observed: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, (u[i] - observed[i]) * (u[i] - observed[i]))

c = wb.array(np.full(32, 0.2), dtype=float, requires_grad=True)
us = [wb.array(np.exp(-np.linspace(-3, 3, 32) ** 2), dtype=float) for _ in range(2)]
data = np.sin(np.linspace(0, 3, 32)) * 0.3
observed = wb.array(data, dtype=float)
loss, frames = wb.zeros(1), []
with wb.Tape() as tape:
    for n in range(30):
        new, shown = wb.zeros(32), wb.zeros(32)
        wb.launch(wave, 32, [us[-1], us[-2], c], [new, shown])
        us.append(new)
        frames.append(shown)
    wb.launch(misfit, 32, [us[-1], observed], [loss])
tape.backward(loss)
pictures = [frame.numpy() for frame in frames]
"""

BODIES = """
@wb.struct
class Body:
    mass: wb.array[float]
    pos: wb.array[wb.vec3]
    vel: wb.array[wb.vec3]

@wb.kernel
def fly(b: Body, wind: wb.array[wb.vec3], dt: float):
    i = wb.tid()
    b.vel[i] = b.vel[i] + dt * (wind[0] - b.vel[i]) / b.mass[i]
    b.pos[i] = b.pos[i] + dt * b.vel[i]

@wb.kernel
def spread(b: Body, loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, wb.dot(b.pos[i], b.pos[i]))

body = Body()
body.mass = wb.array(np.linspace(1, 2, 5), dtype=float, requires_grad=True)
body.pos, body.vel = wb.zeros(5, dtype=wb.vec3), wb.zeros(5, dtype=wb.vec3)
wind = wb.array([[1.0, 0.2, 0.0]], dtype=wb.vec3, requires_grad=True)
names = {"body.mass": body.mass, "wind": wind}
loss = wb.zeros(1)
with wb.Tape() as tape:
    for n in range(20):
        wb.launch(fly, 5, [body, wind, 0.05])
    wb.launch(spread, 5, [body], [loss])
tape.backward(loss)
"""

HARMLESS_ALIAS = """
@wb.kernel
def advance(q: wb.array2d[float], p: wb.array2d[float], w: wb.array[float]):
    i, j = wb.tid()
    q[i, j] = q[i, j] + 0.1 * wb.sin(w[j] * q[i, j])
    p[i, j] = q[i, j]

@wb.kernel
def final(row: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, row[wb.tid()])

q = wb.array(np.random.default_rng(0).normal(size=(4, 6)), dtype=float)
trace, w = wb.zeros((4, 6)), wb.array(np.linspace(1, 2, 6), dtype=float, requires_grad=True)
last = q[3]
loss = wb.zeros(1)
with wb.Tape() as tape:
    for n in range(15):
        wb.launch(advance, (4, 6), [q, trace, w])
    wb.launch(final, 6, [last], [loss])
tape.backward(loss)
history = trace.numpy()
"""

REGRESSION = """
@wb.kernel
def model(a: wb.array[float], x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = a[0] * wb.exp(-a[1] * x[i])

@wb.kernel
def squares(y: wb.array[float], t: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, (y[i] - t[i]) * (y[i] - t[i]))

a = wb.array([1.0, 0.5], dtype=float, requires_grad=True)
xs = np.linspace(0, 4, 20)
x, t = wb.array(xs, dtype=float), wb.array(2 * np.exp(-xs), dtype=float)
y, loss = wb.zeros(20), wb.zeros(1)
for epoch in range(3):
    loss.zero_()
    with wb.Tape() as tape:
        wb.launch(model, 20, [a, x], [y])
        wb.launch(squares, 20, [y, t], [loss])
    tape.backward(loss)
    a.assign(a.numpy() - 0.02 * a.grad.numpy())
    tape.zero()
tape.backward(loss)
"""

HEALTHY = {
    "observed": Planted(OBSERVED, (), "", ""),
    "bodies": Planted(BODIES, (), "", ""),
    "harmless_alias": Planted(HARMLESS_ALIAS, (), "", ""),
    "regression": Planted(REGRESSION, (), "", ""),
}

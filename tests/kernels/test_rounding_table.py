"""Functions of floats over the whole range of their type, against mpmath: value and derivative, in last places.

A kernel holds all functions of one kind and type; row k of its arrays belongs to function k. By hand, densely:
`python tests/kernels/test_rounding_table.py 3000`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from rounding_table import BOUNDS, pages

import workbench as wb

mp.mp.prec = 300
ONE = """sin cos tan asin acos atan sinh cosh tanh exp log log2 log10 log1p expm1 sqrt rsqrt cbrt erf erfc degrees
radians abs neg frac""".split()
TWO = "atan2 pow div mul add sub min max copysign".split()
TYPES = {"float32": (wb.float32, np.float32), "float64": (wb.float64, np.float64)}


def of_one(real) -> wb.Kernel:
    @wb.kernel
    def of_one(x: wb.array2d(dtype=real), y: wb.array2d(dtype=real)):
        i = wb.tid()
        y[0, i] = wb.sin(x[0, i])
        y[1, i] = wb.cos(x[1, i])
        y[2, i] = wb.tan(x[2, i])
        y[3, i] = wb.asin(x[3, i])
        y[4, i] = wb.acos(x[4, i])
        y[5, i] = wb.atan(x[5, i])
        y[6, i] = wb.sinh(x[6, i])
        y[7, i] = wb.cosh(x[7, i])
        y[8, i] = wb.tanh(x[8, i])
        y[9, i] = wb.exp(x[9, i])
        y[10, i] = wb.log(x[10, i])
        y[11, i] = wb.log2(x[11, i])
        y[12, i] = wb.log10(x[12, i])
        y[13, i] = wb.log1p(x[13, i])
        y[14, i] = wb.expm1(x[14, i])
        y[15, i] = wb.sqrt(x[15, i])
        y[16, i] = wb.rsqrt(x[16, i])
        y[17, i] = wb.cbrt(x[17, i])
        y[18, i] = wb.erf(x[18, i])
        y[19, i] = wb.erfc(x[19, i])
        y[20, i] = wb.degrees(x[20, i])
        y[21, i] = wb.radians(x[21, i])
        y[22, i] = wb.abs(x[22, i])
        y[23, i] = -x[23, i]
        y[24, i] = wb.frac(x[24, i])

    return of_one


def of_two(real) -> wb.Kernel:
    @wb.kernel
    def of_two(a: wb.array2d(dtype=real), b: wb.array2d(dtype=real), y: wb.array2d(dtype=real)):
        i = wb.tid()
        y[0, i] = wb.atan2(a[0, i], b[0, i])
        y[1, i] = wb.pow(a[1, i], b[1, i])
        y[2, i] = a[2, i] / b[2, i]
        y[3, i] = a[3, i] * b[3, i]
        y[4, i] = a[4, i] + b[4, i]
        y[5, i] = a[5, i] - b[5, i]
        y[6, i] = wb.min(a[6, i], b[6, i])
        y[7, i] = wb.max(a[7, i], b[7, i])
        y[8, i] = wb.copysign(a[8, i], b[8, i])

    return of_two


def of_vectors(real) -> wb.Kernel:
    vec3 = wb.types.vector(3, real)

    @wb.kernel
    def of_vectors(v: wb.array2d(dtype=vec3), y: wb.array2d(dtype=real)):
        i = wb.tid()
        y[0, i] = wb.length(v[0, i])
        y[1, i] = wb.normalize(v[1, i])[0]

    return of_vectors


# ---- the exact results


def within(f: Callable) -> Callable:
    """Of the argument clamped to [-1, 1]."""
    return lambda x: f(max(min(x, mp.mpf(1)), mp.mpf(-1)))


def circle(sign: int) -> Callable:
    return lambda x: mp.mpf(0) if abs(x) > 1 else sign * mp.inf if abs(x) == 1 else sign / mp.sqrt(1 - x * x)


BELL = 2 / mp.sqrt(mp.pi)
EXACT_ONE: dict[str, tuple[Callable, Callable]] = {
    "sin": (mp.sin, mp.cos),
    "cos": (mp.cos, lambda x: -mp.sin(x)),
    "tan": (mp.tan, lambda x: 1 / mp.cos(x) ** 2),
    "asin": (within(mp.asin), circle(1)),
    "acos": (within(mp.acos), circle(-1)),
    "atan": (mp.atan, lambda x: 1 / (1 + x * x)),
    "sinh": (mp.sinh, mp.cosh),
    "cosh": (mp.cosh, mp.sinh),
    "tanh": (mp.tanh, lambda x: 1 / mp.cosh(x) ** 2),
    "exp": (mp.exp, mp.exp),
    "log": (mp.log, lambda x: 1 / x),
    "log2": (lambda x: mp.log(x) / mp.log(2), lambda x: 1 / (x * mp.log(2))),
    "log10": (lambda x: mp.log(x) / mp.log(10), lambda x: 1 / (x * mp.log(10))),
    "log1p": (mp.log1p, lambda x: 1 / (1 + x)),
    "expm1": (mp.expm1, mp.exp),
    "sqrt": (mp.sqrt, lambda x: 1 / (2 * mp.sqrt(x))),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), lambda x: -1 / (2 * x * mp.sqrt(x))),
    "cbrt": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), lambda x: 1 / (3 * mp.cbrt(x * x))),
    "erf": (mp.erf, lambda x: BELL * mp.exp(-x * x)),
    "erfc": (mp.erfc, lambda x: -BELL * mp.exp(-x * x)),
    "degrees": (lambda x: x * 180 / mp.pi, lambda x: 180 / mp.pi),
    "radians": (lambda x: x * mp.pi / 180, lambda x: mp.pi / 180),
    "abs": (abs, mp.sign),
    "neg": (lambda x: -x, lambda x: mp.mpf(-1)),
    "frac": (lambda x: x - mp.sign(x) * mp.floor(abs(x)), lambda x: mp.mpf(1)),
}
EXACT_TWO: dict[str, Callable] = {
    "atan2": lambda y, x: (mp.atan2(y, x), x / (x * x + y * y), -y / (x * x + y * y)),
    "pow": lambda x, p: (mp.power(x, p), p * mp.power(x, p - 1), mp.power(x, p) * mp.log(x)),
    "div": lambda a, b: (a / b, 1 / b, -a / (b * b)),
    "mul": lambda a, b: (a * b, b, a),
    "add": lambda a, b: (a + b, 1, 1),
    "sub": lambda a, b: (a - b, 1, -1),
    "min": lambda a, b: (min(a, b), int(a <= b), int(a > b)),
    "max": lambda a, b: (max(a, b), int(a >= b), int(a < b)),
    "copysign": lambda a, b: (abs(a) * mp.sign(b), mp.sign(a) * mp.sign(b), 0),
}
REACH = {  # larger arguments cost mpmath minutes, and are 0, 1 or infinite
    **dict.fromkeys(("exp", "sinh", "cosh", "expm1", "tanh", "erf", "erfc"), 1e4),
    **dict.fromkeys(("sin", "cos", "tan"), 1e30),
}
FROM = {**dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt"), 0.0), "log1p": -1.0}


def exact_vector(name: str, v: list) -> list:
    n = mp.sqrt(sum(x * x for x in v))
    if name == "length":
        return [n, *(x / n for x in v)]
    rest = [v[1] * v[1] + v[2] * v[2], -v[0] * v[1], -v[0] * v[2]]
    return [v[0] / n, *(x / n**3 for x in rest)]


# ---- the points


def points(number: type, n: int, seed: int) -> np.ndarray:
    """Numbers of either sign over the whole range, subnormal ones too, and those near which functions turn."""
    random, info = np.random.default_rng(seed), np.finfo(number)
    wide = 2.0 ** random.uniform(info.minexp - info.nmant, info.maxexp, n // 2)
    some = [1, 0.5, 2, 8, 9.5, 20, 44, 88, 89, 100, 700, 709, 745, 1e20, 1e-20, 1e-30, 1 + info.eps, 1 - info.epsneg]
    ends = [float(info.tiny), float(info.smallest_subnormal), float(info.max)]
    made = np.concatenate([wide, random.uniform(0, 12, n // 4), 10 ** random.uniform(-3, 3, n // 4), some, ends])
    return np.concatenate([made, -made]).astype(number)


def pairs(number: type, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Operands of the functions of two numbers, a row for each."""
    random, base = np.random.default_rng(1), points(number, max(n // 20, 40), 3)
    a, b = random.choice(base, n), random.choice(base, n)
    with np.errstate(over="ignore"):
        near = (a * random.uniform(-4, 4, n)).astype(number)
    b = np.where((random.random(n) < 0.4) & np.isfinite(near) & (near != 0), near, b)
    a, b = np.tile(a, (len(TWO), 1)), np.tile(b, (len(TWO), 1))
    x = np.abs(a[1].astype(float))
    fitting = random.uniform(-1, 1, n) * np.finfo(number).maxexp / (np.abs(np.log2(x)) + 1e-6)
    known = random.choice([2, 3, 0.5, -1, 1, 0.25, 1 / 3, 1e-10, 1e-5, -2], n)
    a[1], b[1] = x, np.where(random.random(n) < 0.8, fitting, known)
    return a, b


def vectors(number: type, n: int) -> np.ndarray:
    random, info = np.random.default_rng(2), np.finfo(number)
    scale = 2.0 ** random.uniform(info.minexp - info.nmant, info.maxexp - 2, (n, 1))
    return (scale * random.choice([-1, 1], (n, 3)) * 10 ** -random.uniform(0, 4, (n, 3))).astype(number)


# ---- measuring


def places(got: float, exact, number: type) -> float:
    """How far `got` is from `exact`, in units of the last place of `exact` as this type holds it."""
    info, exact = np.finfo(number), mp.mpf(exact)
    top = mp.mpf(float(info.max))
    if abs(exact) > top * (1 + mp.mpf(2) ** (-info.nmant - 2)):
        return 0.0 if np.isinf(got) and (got > 0) == (exact > 0) else np.inf
    if not np.isfinite(got):
        near = np.isinf(got) and abs(exact) > top * (1 - mp.mpf(2) ** (3 - info.nmant))
        return 1.0 if near else np.inf
    least = int(info.minexp) - int(info.nmant)
    last = least if exact == 0 else max(int(mp.floor(mp.log(abs(exact), 2))) - int(info.nmant), least)
    return float(abs(mp.mpf(float(got)) - exact) / mp.mpf(2) ** last)


def run(kernel: wb.Kernel, real, inputs: list) -> tuple[np.ndarray, list[np.ndarray]]:
    """Values, and the derivative by each input."""
    arrays = [wb.array(x, dtype=wb.types.vector(3, real) if x.ndim == 3 else real, requires_grad=True) for x in inputs]
    y = wb.zeros(inputs[0].shape[:2], dtype=real)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=y.shape[1], inputs=arrays, outputs=[y])
    tape.backward(grads={y: wb.ones(y.shape, dtype=y.dtype)})
    return y.numpy(), [a.grad.numpy() for a in arrays]


Sample = tuple[str, tuple, list, list]  # function, operands, what came out (value, derivatives), what it should be


def samples(real, number: type, n: int) -> Iterator[Sample]:
    x = points(number, n, 0)
    y, (d,) = run(of_one(real), real, [np.tile(x, (len(ONE), 1))])
    for k, name in enumerate(ONE):
        value, slope = EXACT_ONE[name]
        for j, u in enumerate(map(float, x)):
            if FROM.get(name, -np.inf) < u and abs(u) < REACH.get(name, np.inf):
                yield name, (u,), [y[k, j], d[k, j]], [value(mp.mpf(u)), slope(mp.mpf(u))]
    a, b = pairs(number, 3 * n)
    y, (da, db) = run(of_two(real), real, [a, b])
    for k, name in enumerate(TWO):
        for j in range(a.shape[1]):
            u, v = float(a[k, j]), float(b[k, j])
            yield name, (u, v), [y[k, j], da[k, j], db[k, j]], list(EXACT_TWO[name](mp.mpf(u), mp.mpf(v)))
    v = vectors(number, n)
    y, (d,) = run(of_vectors(real), real, [np.stack([v, v])])
    for k, name in enumerate(("length", "normalize")):
        for j in range(n):
            if v[j].any():
                exact = exact_vector(name, [mp.mpf(float(c)) for c in v[j]])
                yield name, tuple(map(float, v[j])), [y[k, j], *d[k, j]], exact


def worst(real, number: type, n: int) -> dict[str, list[tuple]]:
    """Per function the largest errors of value, of derivatives, and below the normal range; with where and what."""
    found: dict[str, list[tuple]] = {name: [(0.0,), (0.0,), (0.0,)] for name in BOUNDS}
    tiny = float(np.finfo(number).tiny)
    for name, at, got, exact in samples(real, number, n):
        small = min(map(abs, at)) < tiny or 0 < abs(exact[0]) < tiny
        for k, (g, e) in enumerate(zip(got, exact, strict=True)):
            kind = 2 if small or 0 < abs(e) < tiny else min(k, 1)
            error = places(float(g), e, number)
            if error > found[name][kind][0]:
                found[name][kind] = (error, at, k, float(g), mp.nstr(mp.mpf(e), 10))
    return found


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.filterwarnings("ignore:The slope of")
def test_every_function_keeps_its_bound_over_the_whole_range(type, backend):
    broken = []
    for name, errors in worst(*TYPES[type], 60 if backend == "c" else 24).items():
        broken += [(name, *e) for e, bound in zip(errors, BOUNDS[name], strict=True) if e[0] > bound]
    assert broken == []


def test_the_reference_shows_the_table():
    text = (Path(__file__).parents[2] / ".docs" / "functions.rst").read_text("utf-8")
    assert pages() in text


if __name__ == "__main__":
    for backend in sys.argv[2:] or ["c"]:
        wb.config.backend = backend
        for type, (real, number) in TYPES.items():
            for name, errors in worst(real, number, int(sys.argv[1])).items():
                over = [e for e, bound in zip(errors, BOUNDS[name], strict=True) if e[0] > bound]
                print(backend, type, name, *(f"{e[0]:.2f}" for e in errors), *over, flush=True)  # noqa: T201

"""Random expressions with extreme operands where nothing is taken, against exact arithmetic on what is taken.

Half of an expression is tame: numbers of ordinary size, differentiated by mpmath. The other half is wild: infinite,
NaN, huge, tiny, or with an infinite slope; it stands on sides that are not taken, or where it counts for nothing. By
hand: `python tests/programs/test_random_extremes.py FIRST LAST [BACKEND...]`, 16 expressions a kernel.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

import workbench as wb

N, EACH = 19, 16
WILD = [np.inf, -np.inf, np.nan, 1e300, -1e38, 1e-42, 5e-324, 0.0, -0.0, 1e20, -1e-30]


@dataclass
class Dual:
    """A number and its derivatives by x and z."""

    value: mp.mpf
    slopes: tuple

    def by(self, value, slope) -> Dual:
        return Dual(mp.mpf(value), tuple(slope * s for s in self.slopes))


@dataclass
class Tame:
    """The text of an expression and what it is at given x and z."""

    text: str
    at: Callable[[mp.mpf, mp.mpf], Dual]


def joined(a: Dual, b: Dual, value, by_a, by_b) -> Dual:
    return Dual(mp.mpf(value), tuple(by_a * s + by_b * t for s, t in zip(a.slopes, b.slopes, strict=True)))


ONE: dict[str, Callable[[Dual], Dual]] = {
    "wb.sin({})": lambda a: a.by(mp.sin(a.value), mp.cos(a.value)),
    "wb.cos({})": lambda a: a.by(mp.cos(a.value), -mp.sin(a.value)),
    "wb.tanh({})": lambda a: a.by(mp.tanh(a.value), 1 / mp.cosh(a.value) ** 2),
    "wb.atan({})": lambda a: a.by(mp.atan(a.value), 1 / (1 + a.value**2)),
    "wb.erf({})": lambda a: a.by(mp.erf(a.value), 2 / mp.sqrt(mp.pi) * mp.exp(-(a.value**2))),
    "wb.exp(wb.sin({}))": lambda a: a.by(mp.exp(mp.sin(a.value)), mp.exp(mp.sin(a.value)) * mp.cos(a.value)),
    "wb.acos(F(0.5) * wb.sin({}))": lambda a: a.by(
        mp.acos(mp.sin(a.value) / 2), -mp.cos(a.value) / 2 / mp.sqrt(1 - mp.sin(a.value) ** 2 / 4)
    ),
    "wb.length(V(F(1.0), {}, F(0.0)))": lambda a: a.by(mp.sqrt(1 + a.value**2), a.value / mp.sqrt(1 + a.value**2)),
    "wb.normalize(V(F(1.0), {}, F(0.0)))[0]": lambda a: a.by(
        1 / mp.sqrt(1 + a.value**2), -a.value / mp.sqrt(1 + a.value**2) ** 3
    ),
    "wb.pow(F(2.0), wb.cos({}))": lambda a: a.by(
        mp.power(2, mp.cos(a.value)), -mp.log(2) * mp.power(2, mp.cos(a.value)) * mp.sin(a.value)
    ),
}
# what is wild, of a wild number w and a tame e; at e = 0 too
BEYOND = [
    "wb.exp(w * {e})",
    "wb.sinh(w)",
    "wb.cosh(w * {e})",
    "wb.tan({e} * w)",
    "{e} / w",
    "w / {e}",
    "w * {e}",
    "{e} - w",
    "wb.log({e} * F(0.0))",
    "wb.sqrt({e} - {e})",
    "wb.log(w * {e})",
    "wb.pow({e}, w)",
    "wb.pow(w * {e}, {e})",
    "wb.acos(w * {e})",
    "wb.asin({e} * F(9.0))",
    "wb.atan2({e} * w, {e})",
    "wb.atan2({e} * F(0.0), {e} * F(0.0))",
    "wb.lerp({e}, w, w * {e})",
    "wb.smoothstep(w, {e}, w)",
    "wb.length(V(w, {e}, w))",
    "wb.erf(w * {e})",
    "wb.normalize(V({e} * w, w, {e}))[1]",
    "wb.dot(V(w, {e}, {e}), V({e}, w, w))",
    "wb.rsqrt({e} * F(0.0))",
    "wb.cross(V(w, {e}, {e}), V({e}, w, w))[1]",
    "(M(w, {e}, {e}, w) * U({e}, w))[0]",
    "wb.expm1(w * w * {e})",
    "wb.determinant(M(w, {e}, {e} * w, w))",
    "wb.inverse(M({e}, {e}, {e}, {e}))[0, 1]",
    "wb.cbrt({e} * F(0.0))",
    "(M(w, {e}, {e}, w) @ M({e}, w, w, {e}))[1, 0]",
    "wb.outer(U(w, {e}), U({e}, w))[0, 1]",
    "wb.log1p(-wb.abs(w * {e}))",
    "wb.quat_rotate(Q(w, {e}, F(0.0), F(1.0)), V({e}, w, {e}))[2]",
    "wb.tanh(w * {e}) * w",
    "wb.mod({e}, w)",
    "(U(w, {e}) / {e})[0]",
    "wb.length_sq(V(w, {e}, w))",
    "wb.log2({e} * w) * wb.log10(w)",
    "wb.degrees(w * {e})",
]


class Maker:
    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def tame(self, depth: int) -> Tame:
        r = self.random
        if depth == 0:
            return r.choice([self.leaf(0), self.leaf(1), self.number()])
        form = r.choice(["one", "one", "two", "two", "choice", "choice", "choice", "least", "nothing"])
        return getattr(self, form)(depth - 1)

    def leaf(self, k: int) -> Tame:
        slopes = (mp.mpf(k == 0), mp.mpf(k == 1))
        return Tame("xz"[k], lambda x, z: Dual((x, z)[k], slopes))

    def number(self) -> Tame:
        c = self.random.choice([0.5, -1.25, 2.0, 0.0, 1.0])
        return Tame(f"F({c})", lambda x, z: Dual(mp.mpf(c), (mp.mpf(0), mp.mpf(0))))

    def one(self, depth: int) -> Tame:
        text, rule = self.random.choice(list(ONE.items()))
        a = self.tame(depth)
        return Tame(text.format(a.text), lambda x, z: rule(a.at(x, z)))

    def two(self, depth: int) -> Tame:
        a, b, sign = self.tame(depth), self.tame(depth), self.random.choice("+-*/")

        def at(x, z):
            u, v = a.at(x, z), b.at(x, z)
            if sign == "*":
                return joined(u, v, u.value * v.value, v.value, u.value)
            if sign == "/":  # by 2 + v v
                d = 2 + v.value**2
                return joined(u, v, u.value / d, 1 / d, -u.value * 2 * v.value / d**2)
            s = 1 if sign == "+" else -1
            return joined(u, v, u.value + s * v.value, 1, s)

        if sign == "/":
            return Tame(f"({a.text}) / (F(2.0) + ({b.text}) * ({b.text}))", at)
        return Tame(f"(({a.text}) {sign} ({b.text}))", at)

    def wild(self) -> str:
        e = self.random.choice([self.leaf(0), self.leaf(1), self.tame(1)]).text
        text = self.random.choice(BEYOND).format(e=f"({e})")
        return f"wb.exp({text}) * {e}" if self.random.random() < 0.2 else text

    def choice(self, depth: int) -> Tame:
        """One side is tame; the condition takes it."""
        a = self.tame(depth)
        text = self.random.choice(["wb.where(t < F(0.5), {b}, {a})", "wb.where(t > F(0.5), {a}, {b})"])
        return Tame(text.format(a=a.text, b=self.wild()), a.at)

    def least(self, depth: int) -> Tame:
        """Infinite bounds that hold nothing back."""
        a = self.tame(depth)
        form = self.random.choice(
            ["wb.min({a}, wb.exp(h * h))", "wb.max({a}, -wb.cosh(h))", "wb.clamp({a}, -h, h * h)"]
        )
        return Tame(form.format(a=a.text), a.at)

    def nothing(self, depth: int) -> Tame:
        """Beside what is so saturated that nothing of it is left."""
        a, e = self.tame(depth), self.tame(0)
        form = self.random.choice(
            ["F(1.0) / (F(1.0) + wb.exp(h + {e}))", "wb.exp(-(h + {e}) * h)", "{e} / wb.exp(h * h)"]
        )
        return Tame(f"({a.text} + {form.format(e=e.text)})", a.at)


KERNEL = """import workbench as wb
F = wb.{real}
V, U, M, Q = wb.types.vector(3, F), wb.types.vector(2, F), wb.types.matrix((2, 2), F), wb.types.quaternion(F)

@wb.kernel
def extremes(
    xs: wb.array2d(dtype=F), zs: wb.array2d(dtype=F), ws: wb.array(dtype=F), ts: wb.array(dtype=F),
    ys: wb.array2d(dtype=F),
):
    i = wb.tid()
    w = ws[i]
    t = ts[i]
    h = F(2000.0) * t
"""


def source(real: str, made: list[Tame], branches: random.Random) -> str:
    """Every fourth expression stands in a branch. `t` is 1."""
    text = KERNEL.format(real=real)
    for k, e in enumerate(made):
        text += f"    x = xs[{k}, i]\n    z = zs[{k}, i]\n"
        if branches.random() < 0.25:
            text += (
                f"    if x < F(9.0):\n        ys[{k}, i] = {e.text}\n    else:\n        ys[{k}, i] = wb.exp(w) * x\n"
            )
        else:
            text += f"    ys[{k}, i] = {e.text}\n"
    return text


def loaded(folder: Path, name: str, text: str) -> wb.Kernel:
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.extremes


def wrong(seed: int, real: str, backend: str, folder: Path) -> list[str]:
    """The expressions of one kernel whose value, gradient or tangent is not what it should be."""
    wb.config.backend = backend
    maker, dtype = Maker(seed), getattr(wb, real)
    made = [maker.tame(3) for _ in range(EACH)]
    rng = np.random.default_rng(seed)
    xs, zs = (rng.uniform(-2, 2, (EACH, N)).astype(real) for _ in range(2))
    with np.errstate(over="ignore"):
        ws = rng.choice(WILD, N).astype(real)
    kernel = loaded(folder, f"extremes_{seed}_{real}", source(real, made, random.Random(seed)))
    x, z = (wb.array(a, dtype=dtype, requires_grad=True) for a in (xs, zs))
    y, w = wb.zeros((EACH, N), dtype=dtype), wb.array(ws, dtype=dtype, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(kernel, N, [x, z, w, wb.ones(N, dtype=dtype)], [y])
    tape.backward(grads={y: wb.ones((EACH, N), dtype=dtype)})
    dx, dz = x.grad.numpy(), z.grad.numpy()
    moved = np.asarray(wb.jvp(tape, {x: np.ones_like(xs)})[y])
    tolerance, found = (1e-3 if real == "float32" else 1e-9), []
    for k, e in enumerate(made):
        for i in range(0, N, 3):
            exact = e.at(mp.mpf(float(xs[k, i])), mp.mpf(float(zs[k, i])))
            want = [float(exact.value), *map(float, exact.slopes), float(exact.slopes[0])]
            got = [y.numpy()[k, i], dx[k, i], dz[k, i], moved[k, i]]
            size = 1 + max(map(abs, want))
            if not all(abs(g - v) <= tolerance * size for g, v in zip(got, want, strict=True)):
                found.append(f"{e.text}\n  at x={xs[k, i]}, z={zs[k, i]}, w={ws[i]}: {got}, not {want}")
                break
    return found


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_what_is_not_taken_counts_for_nothing_however_extreme_it_is(real, backend, tmp_path):
    assert wrong(0, real, backend, tmp_path) == []


def test_the_exact_arithmetic_notices_a_wrong_gradient(monkeypatch, tmp_path):
    monkeypatch.setitem(ONE, "wb.sin({})", lambda a: a.by(mp.sin(a.value), mp.cos(a.value) * mp.mpf("1.001")))
    assert any(wrong(seed, "float64", "numpy", tmp_path) for seed in range(3))


if __name__ == "__main__":
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        for backend in sys.argv[3:] or ["numpy", "c"]:
            real = ("float32", "float64")[seed % 2]
            with tempfile.TemporaryDirectory() as folder:
                print(seed, backend, real, *wrong(seed, real, backend, Path(folder)), sep="\n  ", flush=True)  # noqa: T201

"""Random kernels over what came to the language last: see `language`, of which this draws too.

Overloads, generic funcs, svd2 svd3 qr3 eig3 away from equal values, noise, samples, wb.grad in a kernel, funcs
in C, the user's own adjoints and replays, whole numbers of 8 to 64 bits, bools, and floats of 16 and 32 bits in values
and in memory. A program with small floats is made twice: with float64 in their place it is held against differences,
and its gradient is held, loosely, against that one.

    python -m tests.fuzz.rows --programs 500 --seed 1
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import workbench as wb
from tests.fuzz.language import HEAD, Maker, inputs, load, main, run, verdict as held_against_differences

FUNCS = """
from typing import Any
@wb.func
def over(a: F):
    return a * wb.cos(a)
@wb.func
def over(a: wb.vec3d):
    return wb.dot(a, a) - a[1]
@wb.func
def over(a: int, b: F):
    return b * F(a) + 0.5
@wb.func
def mixed(a: Any, b: Any):
    c = a * b
    return c + wb.sin(b) * a
@wb.func
def bowl(v: wb.vec3d, s: F):
    t = s * s
    for e in range(2):
        t = t * 0.5 + wb.sin(v[e] * s) * v[e + 1]
        if t > 1.0e4:
            return t * 2.0
    return t
@wb.func
def tame(m: wb.mat33d):
    return m / (1.0 + wb.sqrt(1.0 + wb.ddot(m, m)))
@wb.func
def svd_of(m: wb.mat33d, v: wb.vec3d):
    a, s, b = wb.svd3(tame(m) + wb.diag(wb.vec3d(9.0, 5.0, 2.0)))
    return a * wb.cw_mul(s, v) + wb.cw_mul(s, wb.transpose(b) * v)
@wb.func
def eig_of(m: wb.mat33d, v: wb.vec3d):
    t = tame(m)
    q, d = wb.eig3(t + wb.transpose(t) + wb.diag(wb.vec3d(9.0, 5.0, 1.0)))
    return wb.cw_mul(d, wb.transpose(q) * v) + wb.cw_mul(d, wb.vec3d(q[0, 0], q[1, 1], q[2, 2]))
@wb.func
def qr_of(m: wb.mat33d, v: wb.vec3d):
    q, r = wb.qr3(tame(m) + wb.diag(wb.vec3d(4.0, 3.0, 2.0)))
    return q * v + r * v
@wb.func
def svd2_of(a: F, b: F):
    u, s, v = wb.svd2(wb.mat22d(5.0 + wb.sin(a), wb.sin(b), wb.cos(a), 1.5 + 0.3 * wb.sin(a * b)))
    return s[0] + 2.0 * s[1] + u[0, 0] * v[1, 1]
@wb.func_native(\"\"\"
    double t = 0.0;
    for (int j = 0; j < n; ++j) {
        if (j == 2) continue;
        t = t * 0.5 + sin(a * (j + 1)) * b;
    }
    return t + 0.25 * a;\"\"\")
def in_c(a: F, b: F, n: int) -> F: ...
@wb.func_native("out[i] = out[i] * 0.5 + tanh(a);")
def kept_in_c(out: wb.array(dtype=F), i: int, a: F): ...
@wb.func_native("return a * a * b;", adj_snippet="adj_a += 2.0 * a * b * adj_ret; adj_b += a * a * adj_ret;")
def by_hand(a: F, b: F) -> F: ...
@wb.func
def custom(a: F, b: F):
    return wb.sin(a) * b + a
@wb.func_grad(custom)
def adj_custom(a: F, b: F, g: F):
    wb.adjoint[a] += (wb.cos(a) * b + 1.0) * g
    wb.adjoint[b] += wb.sin(a) * g
@wb.func
def again(a: F, b: F):
    return a * b + wb.tanh(b)
@wb.func_replay(again)
def replayed(a: F, b: F):
    return a * b + wb.tanh(b)
@wb.func
def first_of(a: F, n: int):
    if n == 0:
        return a
    for e in range(n):
        if e == 2:
            return a * a
        a = wb.sin(a) + 0.5 * a
    return a * 3.0
"""
FIELDS = """half: wb.array(dtype=H), one: wb.array(dtype=S), three: wb.array(dtype=V),
      few: wb.array(dtype=wb.int8), long: wb.array(dtype=wb.uint64), flag: wb.array(dtype=bool), """
SIZES = """SIZES_narrow = wb.float16, wb.float32, wb.vec3
SIZES_wide = F, F, wb.vec3d
H, S, V = SIZES_KIND
"""


class Rows(Maker):
    """Programs of `Maker` with further expressions and statements; KIND is `narrow` or `wide`."""

    head = HEAD.replace("@wb.kernel", SIZES + FUNCS + "@wb.kernel").replace("z: wb.array2d", FIELDS + " z: wb.array2d")
    head += "    st = wb.rand_init(7, i)\n"

    @staticmethod
    def more(module: Any) -> list:
        return [
            wb.full(2, 0.5, dtype=module.H),
            wb.full(2, -0.25, dtype=module.S),
            wb.zeros(2, dtype=module.V),
            wb.array([3, -100], dtype=wb.int8),
            wb.array([5, 2], dtype=wb.uint64),
            wb.array([True, False], dtype=bool),
        ]

    def f(self, d: int = 2) -> str:
        if d == 0 or self.r.random() < 0.6:
            made = super().f(d)
            return f"F({made})" if made.lstrip("-")[0].isdigit() else made
        e, v, w, j = (lambda: self.f(d - 1)), (lambda: self.v(d - 1)), self.r.randrange(3), self.i(1)
        return self.r.choice(
            [
                lambda: f"over(F({e()}))",
                lambda: f"over({v()})",
                lambda: f"over({j}, {e()})",
                lambda: f"mixed(F({e()}), F({e()}))",
                lambda: f"wb.grad(over)({v()})[{w}]",
                lambda: f"bowl({v()}, wb.sin({e()}))",
                lambda: f"wb.grad(bowl)({v()}, wb.sin({e()}))[1]",
                lambda: f"wb.grad(mixed)(F({e()}), F({e()}))[0]",
                lambda: f"wb.grad(over)(F({e()}))",
                lambda: f"svd2_of({e()}, {e()})",
                lambda: f"wb.noise(st, {v()})",
                lambda: f"wb.noise(wb.uint32(3), wb.vec2d({e()}, {e()}))",
                lambda: f"wb.noise(st, {e()})",
                lambda: f"wb.pnoise(st, {v()}, 3, 4, 2)",
                lambda: f"wb.pnoise(st, {e()}, 5)",
                lambda: f"in_c({e()}, {e()}, ({j}) % 4)",
                lambda: f"by_hand(wb.sin({e()}), {e()})",
                lambda: f"custom({e()}, {e()})",
                lambda: f"again({e()}, {e()})",
                lambda: f"first_of({e()}, ({j}) % 4)",
                lambda: f"F(wb.int8({j} * 50)) * {e()} * 0.01",
                lambda: f"F(wb.uint8({j} + 254)) * 0.01 + {e()}",
                lambda: f"F(few[i]) * 0.01 * {e()}",
                lambda: f"F(long[i] * wb.uint64(3)) * 0.1 * {e()}",
                lambda: f"wb.where(flag[i], {e()}, {e()})",
                lambda: f"F(wb.int64(few[i]) << wb.int64(2)) * 0.01 * {e()}",
                lambda: f"({e()} if flag[{w} & 1] and {j} > 0 else {e()})",
                lambda: f"F(int(flag[i]) + 1) * {e()}",
                lambda: f"F(S({e()}))",
                lambda: f"F(H({e()}) * H(0.5))",
                lambda: f"F(S({e()}) * S(wb.sin({e()})) - S(1.0))",
                lambda: f"F(V(S({e()}), S(1.0), S({e()}))[{w}])",
                lambda: f"F(S(H({e()})) * one[i])",
                lambda: "F(half[i])",
                lambda: f"F(wb.sin(H({e()})))",
                lambda: f"F(wb.dot(three[i], V(S({e()}), S(0.5), S({e()}))))",
                lambda: f"F(wb.max(H({e()}), H(-100.0)))",
                lambda: f"F(one[i] * S({e()}))",
            ]
        )()

    def v(self, d: int = 1) -> str:
        if d <= 0 or self.r.random() < 0.7:
            return super().v(d)
        e, m = lambda: self.v(d - 1), lambda: self.m(d - 1)
        return self.r.choice(
            [
                lambda: f"svd_of({m()}, {e()})",
                lambda: f"eig_of({m()}, {e()})",
                lambda: f"qr_of({m()}, {e()})",
                lambda: f"wb.curlnoise(st, {e()})",
                lambda: f"wb.curlnoise(st, {e()}, 2, F(1.5), F(0.4))",
                lambda: f"wb.grad(bowl)({e()}, wb.sin({self.f(0)}))[0]",
                lambda: f"mixed(F({self.f(0)}), F({self.f(0)})) * {e()}",
            ]
        )()

    def statement(self, pad: str, depth: int) -> None:
        if self.r.random() < 0.65:
            return super().statement(pad, depth)
        r = self.r
        k, name = r.randrange(9), self.fresh("f")
        if k == 0:
            self.put(pad, f"half[i] = H({self.f(1)}) * H(0.25) + half[i] * H(0.5)")
        elif k == 1:
            self.put(pad, f"one[i] = S(wb.sin({self.f(1)})) - one[i] * one[i]")
        elif k == 2:
            self.put(pad, f"wb.atomic_add(three, i, V(S({self.f(1)}), S(0.5), S({self.f(0)})))")
            self.put(pad, f"three[i] = wb.cross(three[i], V(S(1.0), S({self.f(0)}), S(0.0)))")
        elif k == 3:
            draw = r.choice(
                [
                    "wb.sample_unit_disk(st)[0]",
                    "wb.sample_unit_sphere(st)[2]",
                    "wb.randf(st)",
                    "wb.randf(st, -1.0, 1.0)",
                    "wb.sample_triangle(st)[1]",
                    "wb.randn(st)",
                    "wb.sample_unit_sphere_surface(st)[1]",
                    "wb.sample_unit_cube(st)[0]",
                ]
            )
            self.put(pad, f"{name} = F({draw}) * {self.f(1)}")
            self.env["f"].append(name)
        elif k == 4:
            self.put(pad, f"kept_in_c(z[i], {r.randrange(3)}, {self.f(1)})")
        elif k == 5:
            self.put(pad, f"few[i] = few[i] + wb.int8({self.i(1)} * 40)")
        elif k == 6:
            self.put(pad, f"{name} = H({self.f(1)})")
            self.put(pad, f"{name} += H({self.f(0)}) * {name}")
            self.env["f"].append(f"F({name})")
        elif k == 7:
            self.put(pad, f"{name} = svd2_of({self.f(1)}, {self.f(0)})")
            self.env["f"].append(name)
        else:
            count = self.fresh("i")
            self.put(pad, f"{count} = wb.randi(st, 0, 4)")
            self.env["i"].append(count)

    def block(self, pad: str, depth: int, n: int) -> None:
        whole = list(self.env["i"])
        super().block(pad, depth, n)
        self.env["i"] = whole


def verdict(seed: int, folder: Path, compiled: bool) -> tuple[str, str]:
    """As `language.verdict`, for the wide program; then the narrow one against it."""
    what, word = held_against_differences(seed, folder, compiled, Rows, "wide")
    if what != "exact":
        return what, word
    try:
        module = load(seed, folder, Rows, "narrow")
        wide = load(seed, folder, Rows, "wide")
        values, left = inputs(seed), seed % 3 == 0
        wb.config.backend = "c" if compiled else "numpy"
        with np.errstate(all="ignore"):
            _, got = run(module, values, True, left)
            _, want = run(wide, values, True, left)
    except (wb.KernelError, wb.LaunchError, wb.GradientError) as error:
        return "refused", f"narrow {error.slug}: {str(error).splitlines()[0]}"
    finally:
        wb.config.backend = "numpy"
    scale = max(1.0, *(float(np.abs(g).max()) for g in want.values()))
    if not all(np.isfinite(g).all() for g in got.values()):
        return "unsure", "more than float16 holds"
    far = max(float(np.abs(got[n] - want[n]).max()) for n in got)
    return ("exact", "") if far <= 0.05 * scale else ("WRONG", f"small floats: {far} of {scale}")


if __name__ == "__main__":
    sys.exit(main(verdict))

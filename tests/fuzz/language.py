"""Random kernels over the types and words that Warp's programs use: gradients against differences, `c` against `numpy`.

Quaternions that are no unit, transforms, spatial vectors, decompositions, noise, integers, literals beside float64,
names of some paths, funcs of several results, local arrays, loops of run-time length, struct fields, left-out arrays,
names and fields that are one array or another.

    python -m tests.fuzz.language --programs 500 --seed 1
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import workbench as wb

HEAD = """import workbench as wb
F = wb.float64
@wb.struct
class Box:
    a: wb.array(dtype=F)
    k: int
    w: F
@wb.struct
class Part:
    a: wb.array(dtype=F)
    b: wb.array(dtype=F)
@wb.func
def either(k: int, a: wb.array(dtype=F), b: wb.array(dtype=F)):
    if k % 2 == 0:
        return a
    return b
@wb.func
def both(a: F, b: F):
    return a * wb.sin(b), b - 0.5 * a
@wb.func
def put(z: wb.array(dtype=F), i: int, a: F):
    z[i] = z[i] + wb.tanh(a)
    return z[i] * 2
@wb.kernel
def k(x: wb.array(dtype=F), v: wb.array(dtype=wb.vec3d), q: wb.array(dtype=wb.quatd),
      t: wb.array(dtype=wb.transformd), s: wb.array(dtype=wb.spatial_vectord), m: wb.array(dtype=wb.mat33d),
      n: wb.array(dtype=int), none: wb.array(dtype=F), box: Box, z: wb.array2d(dtype=F), c: wb.array(dtype=F),
      y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[2 * i]
    b = x[2 * i + 1]
    u = v[i]
    o = v[i + 1]
    p = q[i]
    g = t[i]
    w = s[i]
    h = m[i]
    j = n[i]
    own = wb.zeros(shape=(3,), dtype=F)
"""
SHAPES = {"x": (4,), "v": (3, 3), "q": (2, 4), "t": (2, 7), "s": (2, 6), "m": (2, 3, 3), "box": (3,)}


class Maker:
    head = HEAD

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.env = {
            "f": ["a", "b", "box.w"],
            "v": ["u", "o"],
            "q": ["p"],
            "t": ["g"],
            "s": ["w"],
            "m": ["h"],
            "i": ["i", "j", "box.k"],
            "read": ["x", "box.a", "z[i]", "x[1:]", "own"],
            "write": ["z[i]", "own", "z[i, 1:]"],
        }

    def pick(self, kind: str) -> str:
        return self.r.choice(self.env[kind])

    def f(self, d: int = 2) -> str:
        r = self.r
        if d == 0 or r.random() < 0.2:
            return r.choice(
                [
                    self.pick("f"),
                    self.pick("f"),
                    f"{self.pick('v')}[{r.randrange(3)}]",
                    f"{self.pick('q')}[{r.randrange(4)}]",
                    f"{self.pick('s')}[{r.randrange(-6, 6)}]",
                    f"{self.pick('m')}[{r.randrange(3)}, {r.randrange(3)}]",
                    f"{self.pick('t')}.p.y",
                    f"{self.pick('t')}[{r.randrange(7)}]",
                    f"F({self.i(1)} % 3)",
                    f"{self.pick('read')}[{self.i(1)} & 1]",
                    f"{self.pick('read')}[-1]",
                    f"{r.uniform(-1, 1):.3f}",
                ]
            )
        e, v = lambda: self.f(d - 1), lambda: self.v(d - 1)
        return r.choice(
            [
                lambda: f"({e()} + {e()})",
                lambda: f"({e()} - {r.randint(0, 3)})",
                lambda: f"{e()} * {e()}",
                lambda: f"{e()} / (2 + {e()} ** 2)",
                lambda: f"wb.sin({e()})",
                lambda: f"wb.dot({v()}, {v()})",
                lambda: f"wb.length({v()})",
                lambda: f"wb.spatial_dot({self.s(d - 1)}, {self.s(d - 1)})",
                lambda: f"wb.length({self.q(d - 1)})",
                lambda: f"wb.where({self.i(1)} % 2 == 0, {e()}, {e()})",
                lambda: f"wb.lerp({e()}, {e()}, wb.sin({e()}))",
                lambda: f"wb.determinant({self.m(d - 1)})",
                lambda: f"wb.trace({self.m(d - 1)})",
                lambda: f"box.a[{self.i(1)} & 1] * {e()}",
                lambda: f"({e()} if {self.i(1)} > 1 else {e()})",
                lambda: f"wb.smoothstep(-9, 9, wb.sin({e()}))",
                lambda: f"wb.exp(-wb.abs({e()} + 3))",
                lambda: f"wb.atan2({e()}, 3 + wb.sin({e()}))",
                lambda: f"wb.min({e()} , 1000)",
                lambda: f"wb.length_sq({self.q(d - 1)})",
                lambda: f"wb.ddot({self.m(d - 1)}, {self.m(d - 1)})",
                lambda: f"wb.sqrt(1 + wb.cos({e()}) * 0.5)",
                lambda: f"wb.norm_huber({v()}, 0.5)",
                lambda: f"wb.float64(wb.mod({self.i(1)}, 5) << 1) * {e()}",
            ]
        )()

    def i(self, d: int = 1) -> str:
        r = self.r
        if d == 0 or r.random() < 0.4:
            return r.choice([self.pick("i"), str(r.randrange(4))])
        a, b = self.i(d - 1), self.i(d - 1)
        return r.choice(
            [
                f"({a} + {b})",
                f"({a} * {b} + 7) % 5",
                f"(({a} << 2) >> 1)",
                f"({a} ^ {b}) % 4",
                f"wb.max({a}, {b})",
                f"(({a} * 5 - 3) / 2)",
                f"(({a} - 3) // 2)",
            ]
        )

    def v(self, d: int = 1) -> str:
        r = self.r
        if d <= 0 or r.random() < 0.25:
            return self.pick("v")
        e = lambda: self.v(d - 1)  # noqa: E731
        return r.choice(
            [
                lambda: f"({e()} + {e()})",
                lambda: f"{e()} * {self.f(0)}",
                lambda: f"wb.cross({e()}, {e()})",
                lambda: f"wb.quat_rotate({self.q(d - 1)}, {e()})",
                lambda: f"wb.quat_rotate_inv({self.q(d - 1)}, {e()})",
                lambda: f"wb.transform_point({self.t(d - 1)}, {e()})",
                lambda: f"wb.spatial_top({self.s(d - 1)})",
                lambda: f"wb.transform_vector({self.t(d - 1)}, {e()})",
                lambda: f"wb.spatial_bottom({self.s(d - 1)})",
                lambda: f"wb.transform_get_translation({self.t(d - 1)})",
                lambda: f"{self.m(d - 1)} * {e()}",
                lambda: f"wb.normalize({e()} + wb.vec3d(0.0, 0.0, 5.0))",
                lambda: f"wb.vec3d({self.f(1)}, 1, {self.f(0)})",
                lambda: f"wb.cw_mul({e()}, {e()})",
                lambda: f"wb.transpose({self.m(d - 1)}) @ {e()}",
                lambda: f"wb.quat_to_rpy(wb.normalize({self.q(0)} + wb.quatd(0.0, 0.0, 0.0, 6.0)))",
            ]
        )()

    def q(self, d: int = 1) -> str:
        if d <= 0 or self.r.random() < 0.3:
            return self.pick("q")
        return self.r.choice(
            [
                lambda: f"{self.q(d - 1)} * {self.q(d - 1)}",
                lambda: f"wb.quat_inverse({self.q(d - 1)})",
                lambda: f"wb.normalize({self.q(d - 1)} + wb.quatd(0.0, 0.0, 0.0, 4.0))",
                lambda: f"wb.quat_from_axis_angle(wb.normalize({self.v(0)} + wb.vec3d(4.0, 0.0, 0.0)), {self.f(1)})",
                lambda: f"wb.transform_get_rotation({self.t(d - 1)})",
                lambda: f"{self.q(d - 1)} * {self.f(0)}",
                lambda: f"wb.quat_rpy({self.f(0)}, {self.f(0)}, {self.f(0)})",
                lambda: (
                    f"wb.quat_slerp(wb.normalize({self.q(0)} + wb.quatd(0.0, 0.0, 0.0, 4.0)), wb.quat_identity(F), 0.3)"
                ),
                lambda: (
                    f"wb.quat_from_matrix(wb.quat_to_matrix(wb.normalize({self.q(0)} + wb.quatd(0.0, 0.0, 0.0, 4.0))))"
                ),
            ]
        )()

    def t(self, d: int = 1) -> str:
        if d <= 0 or self.r.random() < 0.35:
            return self.pick("t")
        return self.r.choice(
            [
                lambda: f"wb.transform_multiply({self.t(d - 1)}, {self.t(d - 1)})",
                lambda: f"{self.t(0)} * {self.t(0)}",
                lambda: f"wb.transform_inverse({self.t(d - 1)})",
                lambda: f"wb.transformd({self.v(0)}, {self.q(1)})",
            ]
        )()

    def s(self, d: int = 1) -> str:
        if d <= 0 or self.r.random() < 0.35:
            return self.pick("s")
        return self.r.choice(
            [
                lambda: f"wb.spatial_vectord({self.v(d - 1)}, {self.v(d - 1)})",
                lambda: f"{self.s(d - 1)} * {self.f(0)}",
                lambda: f"wb.spatial_cross({self.s(d - 1)}, {self.s(d - 1)})",
                lambda: f"({self.s(0)} - {self.s(d - 1)})",
                lambda: f"wb.spatial_cross_dual({self.s(d - 1)}, {self.s(d - 1)})",
                lambda: f"wb.transform_twist({self.t(d - 1)}, {self.s(d - 1)})",
                lambda: f"wb.transform_wrench({self.t(d - 1)}, {self.s(d - 1)})",
            ]
        )()

    def m(self, d: int = 1) -> str:
        if d <= 0 or self.r.random() < 0.3:
            return self.pick("m")
        return self.r.choice(
            [
                lambda: f"wb.outer({self.v(d - 1)}, {self.v(d - 1)})",
                lambda: f"wb.skew({self.v(d - 1)})",
                lambda: f"wb.quat_to_matrix({self.q(d - 1)})",
                lambda: f"({self.m(d - 1)} @ {self.m(0)})",
                lambda: f"wb.transpose({self.m(d - 1)})",
                lambda: f"({self.m(d - 1)} + wb.diag({self.v(0)}))",
                lambda: f"wb.inverse({self.m(0)} * 0.1 + wb.identity(3, F))",
                lambda: f"{self.f(0)} * {self.m(d - 1)}",
            ]
        )()

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def put(self, pad: str, text: str) -> None:
        self.lines.append(pad + text)

    def statement(self, pad: str, depth: int) -> None:
        r, k = self.r, self.r.randrange(19)
        if k < 4:
            kind = r.choice("fvqtsm")
            name = self.fresh(kind)
            self.put(pad, f"{name} = {getattr(self, kind)(2)}")
            self.env[kind].append(name)
        elif k == 4:
            one, two = self.fresh("f"), self.fresh("f")
            self.put(pad, f"{one}, {two} = both({self.f(1)}, {self.f(1)})")
            self.env["f"] += [one, two]
        elif k == 5 and depth:
            self.branch(pad, depth)
        elif k == 6 and depth:
            self.loop(pad, depth)
        elif k == 7:
            self.put(pad, f"wb.atomic_add(c, {self.i(1)} % 2 + 2, wb.sin({self.f(1)}))")
        elif k == 8:
            self.put(pad, f"z[i, 1] = wb.sin({self.f(2)}) + 0.5 * z[i, 1]")
            self.env["f"].append("z[i, 1]")
        elif k == 9:
            name = self.fresh("f")
            self.put(
                pad, f"if none:\n{pad}    {name} = none[i] * {self.f(1)}\n{pad}else:\n{pad}    {name} = {self.f(1)}"
            )
            self.env["f"].append(name)
        elif k == 10:
            name = self.fresh("v")
            self.put(pad, f"{name} = {self.v(1)}")
            self.put(pad, f"{name}[({self.i(1)}) & 1] += {self.f(1)}")
            self.env["v"].append(name)
        elif k == 11:
            name = self.fresh("l")
            self.put(pad, f"{name} = wb.zeros(shape=(3,), dtype=F)")
            self.put(pad, f"{name}[({self.i(1)}) & 1] = {self.f(1)}")
            self.put(pad, f"{name}[2] = {name}[0] * {self.f(0)} + {name}[1]")
            self.env["f"] += [f"{name}[2]", f"{name}[{r.randrange(3)}]"]
        elif k == 12:
            name = self.fresh("v")
            self.put(pad, f"{name} = wb.vec3d(*{self.pick('v')}) * 0.5")
            self.env["v"].append(name)
        elif k == 13:
            name = self.fresh("f")
            self.put(pad, f"{name} = put(z[i], {r.randrange(3)}, {self.f(1)})")
            self.env["f"].append(name)
        elif k > 14:
            self.chosen(pad, r.choice(["read", "write"]), k)
        else:
            name = self.pick(r.choice("fvqsm"))
            if name.isidentifier() and name[-1].isdigit():
                self.put(pad, f"{name} *= {self.f(0)}")

    def guard(self) -> str:
        return f"({self.i(1)}) % 2 == {self.r.randrange(2)}"

    def chosen(self, pad: str, kind: str, k: int) -> None:
        """Statements about names and fields that are one array or another; those of `write` belong to the thread."""
        r, array, old = self.r, lambda: self.pick(kind), [n for n in self.env[kind] if n.startswith("array")]
        if k == 15 or not old:
            name = self.fresh("array")
            one, other = array(), array()
            self.put(
                pad,
                r.choice(
                    [
                        f"{name} = {one} if {self.guard()} else {other}",
                        f"{name} = {one}\n{pad}if {self.guard()}:\n{pad}    {name} = {other}",
                        f"{name} = either({self.i(1)}, {one}, {other})",
                    ]
                ),
            )
            self.env[kind].append(name)
        elif k == 16:
            name, guard = self.fresh("p"), self.guard()
            array = lambda: r.choice([n for n in self.env[kind] if n != "own"])  # noqa: E731  no field takes that one
            self.put(
                pad, f"{name} = Part()\n{pad}if {guard}:\n{pad}    {name}.a = {array()}\n{pad}    {name}.b = {array()}"
            )
            self.put(pad, f"else:\n{pad}    {name}.b = {array()}" if r.random() < 0.5 else "")
            self.put(pad, f"if {guard}:\n{pad}    b = b * 0.5 + {name}.a[{self.i(1)} & 1] * {name}.b[0]")
            self.put(pad, f"if {name}.b:\n{pad}    b = wb.sin({name}.b[-1]) + b")
        elif k == 17:
            one, other = r.choice(old), r.choice(old)
            self.put(
                pad,
                r.choice(
                    [
                        f"if {self.guard()}:\n{pad}    {one} = {array()}",
                        f"{one}, {other} = {other}, {one}",
                        (
                            f"for _ in range({self.i(1)} % 3):\n{pad}    b = b * 0.5 + {one}[0]\n"
                            f"{pad}    {one}, {other} = {other}, {array()}"
                        ),
                    ]
                ),
            )
        name = self.pick("write")
        if r.random() < 0.6:
            at = f"{name}[{self.i(1)} & 1]"
            self.put(
                pad,
                r.choice(
                    [
                        f"{at} = wb.sin({self.f(1)}) + 0.5 * {at}",
                        f"{at} += wb.sin({self.f(1)})",
                        f"{at} *= wb.cos({self.f(1)})",
                        f"wb.atomic_add({name}, 1, wb.sin({self.f(0)}))",
                    ]
                ),
            )

    def block(self, pad: str, depth: int, n: int) -> None:
        kept = {k: list(v) for k, v in self.env.items()}
        self.put(pad, f"a = wb.sin({self.f(1)}) + a * 0.5")
        for _ in range(n):
            self.statement(pad, depth)
        self.env = kept

    def branch(self, pad: str, depth: int) -> None:
        guard = f"({self.i(1)}) % 2 == {self.r.randrange(2)}"
        name = self.fresh("f")
        self.put(pad, f"if {guard}:")
        self.block(pad + "    ", depth - 1, 2)
        if self.r.random() < 0.5:
            self.put(pad + "    ", f"{name} = {self.f(1)}")
            self.put(pad, f"if {guard}:\n{pad}    b = b * 0.3 + wb.tanh({name})")
        else:
            self.put(pad, "else:")
            self.block(pad + "    ", depth - 1, 1)

    def loop(self, pad: str, depth: int) -> None:
        it = self.fresh("e")
        form = self.r.randrange(4)
        if form == 0:
            self.put(pad, f"for {it} in range({self.i(1)} % 3):")
        elif form == 1:
            self.put(pad, f"for {it} in range({self.i(1)} % 4, -1, -2):")
        elif form == 2:
            self.put(pad, f"for {it} in range({self.r.randrange(3)}):")
        else:
            self.put(pad, f"{it} = int(0)\n{pad}while {it} < ({self.i(1)}) % 3:\n{pad}    {it} += 1")
        self.env["i"].append(it)
        self.block(pad + "    ", depth - 1, 2)
        if form == 0 and self.r.random() < 0.4:
            self.put(pad + "    ", f"if {it} > j:\n{pad}        break")
        self.env["i"].remove(it)

    def program(self) -> str:
        for _ in range(self.r.randint(3, 8)):
            self.statement("    ", 2)
        total = " + ".join(f"wb.sin({self.f(2)})" for _ in range(3))
        self.put("    ", f"wb.atomic_add(c, 0, wb.tanh({self.f(1)}))")
        self.put("    ", f"y[i] = {total} + z[i, 0] + z[i, 2]")
        return self.head + "\n".join(self.lines) + "\n"

    @staticmethod
    def more(module: Any) -> list:
        """Arguments of the kernel before its outputs."""
        return []


def inputs(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-1.2, 1.2, shape) for name, shape in SHAPES.items()}


def run(module: Any, values: dict[str, np.ndarray], grad: bool, left_out: bool) -> tuple[np.ndarray, dict[str, Any]]:
    types = {
        "x": wb.float64,
        "v": wb.vec3d,
        "q": wb.quatd,
        "t": wb.transformd,
        "s": wb.spatial_vectord,
        "m": wb.mat33d,
        "box": wb.float64,
    }
    a = {name: wb.array(data, dtype=types[name], requires_grad=grad) for name, data in values.items()}
    box = module.Box()
    box.a, box.k, box.w = a["box"], 3, 0.75
    y, z, c = wb.zeros(2, dtype=wb.float64), wb.zeros((2, 3), dtype=wb.float64), wb.zeros(4, dtype=wb.float64)
    none = None if left_out else wb.full(2, 0.6, dtype=wb.float64)
    args = [*(a[n] for n in ("x", "v", "q", "t", "s", "m")), wb.array([1, 2]), none, box]
    args += [*module.more(module), z, c, y]
    with wb.Tape() as tape:
        wb.launch(module.k, 2, args)
    result = np.concatenate([y.numpy(), z.numpy().ravel(), c.numpy()])
    grads = {}
    if grad:
        seeds = np.cos(np.arange(12.0))
        parts = (y, seeds[:2]), (z, seeds[2:8].reshape(2, 3)), (c, seeds[8:])
        tape.backward(grads={out: wb.array(part, dtype=wb.float64) for out, part in parts})
        grads = {n: g.grad.numpy().copy().reshape(SHAPES[n]) for n, g in a.items()}
    return result, grads


def load(seed: int, folder: Path, maker: type[Maker] = Maker, kind: str = "") -> Any:
    """The module of a program; `kind` is put in place of KIND in its text."""
    path = folder / f"{maker.__module__}{kind}_{seed}.py"
    path.write_text(maker(seed).program().replace("KIND", kind))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    module.more = maker.more  # type: ignore[attr-defined]
    return module


def verdict(seed: int, folder: Path, compiled: bool, maker: type[Maker] = Maker, kind: str = "") -> tuple[str, str]:
    """exact, refused, unsure (differences cannot decide) or WRONG; and a word about it."""
    wb.config.backend = "numpy"
    try:
        module = load(seed, folder, maker, kind)
        values, left = inputs(seed), seed % 3 == 0
        out, grads = run(module, values, True, left)
    except (wb.KernelError, wb.LaunchError, wb.GradientError) as error:
        return "refused", f"{error.slug}: {str(error).splitlines()[0]}"
    if not np.isfinite(out).all() or np.abs(out).max() > 1e3:
        return "unsure", "large"
    if compiled:
        wb.config.backend = "c"
        again, others = run(module, values, True, left)
        wb.config.backend = "numpy"
        pairs = [(out, again), *((grads[n], others[n]) for n in grads)]
        size = max(1.0, *(float(np.abs(p).max()) for p, _ in pairs))
        if not all(np.allclose(p, o, rtol=1e-9, atol=1e-9 * size, equal_nan=True) for p, o in pairs):
            return "WRONG", "numpy and c differ"
    way = {n: np.random.default_rng(seed + 9).standard_normal(d.shape) for n, d in values.items()}
    seeds = np.cos(np.arange(12.0))

    def at(h: float) -> float:
        return float(seeds @ run(module, {n: d + h * way[n] for n, d in values.items()}, False, left)[0])

    def slope(h: float) -> float:
        return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)

    near, far = slope(1e-4), slope(2e-4)
    got = sum(float((grads[n] * way[n]).sum()) for n in grads)
    scale = max(1.0, abs(near), *(float(np.abs(g).max()) for g in grads.values()))
    if not abs(near - far) <= 1e-5 * scale:
        return "unsure", f"{near} {far}"
    return ("exact", "") if abs(got - near) <= 1e-6 * scale + abs(near - far) else ("WRONG", f"{got} {near} {far}")


def main(verdict: Callable[[int, Path, bool], tuple[str, str]] = verdict) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--c-every", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no program later than this")
    args = parser.parse_args()
    end = time.monotonic() + args.seconds
    counts: collections.Counter[str] = collections.Counter()
    words: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(args.seed, args.seed + args.programs):
            if time.monotonic() > end:
                break
            try:
                what, word = verdict(seed, Path(folder), seed % args.c_every == 0)
            except Exception as error:
                what, word = "WRONG", f"{type(error).__name__}: {error}"
            counts[what] += 1
            if what == "refused":
                words[word[:90]] += 1
            if what == "WRONG":
                sys.stderr.write(f"=== {seed}: {word}\n")
                sys.stderr.flush()
    sys.stderr.write(f"{dict(counts)}\n{words.most_common(8)}\n")
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Builtins beside NVIDIA Warp's on a CPU, at ordinary and extreme operands: values and adjoints.

The text of a kernel is the same for both; only what `wp` stands for differs. A difference is an error unless
`DIFFERENT` says why. `python -m tests.support.beside_warp` runs every case with all combinations of operands and
prints what is not in it; `python -m tests.support.beside_warp pow` all differences of one builtin.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

INF, NAN = math.inf, math.nan
FLOATS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.0, -7.25, 1e-20, -1e-20, 1e20, -1e20, INF, -INF, NAN]
UNITS = [0.0, -0.0, 0.25, -0.75, 1.0, -1.0, 1.0000001, -1.0000001, 2.0, NAN]
INTS = [0, 1, -1, 2, -2, 3, 7, -7, 31, 32, 33, 100, 2**31 - 1, -(2**31), -(2**31) + 1]
WORDS = [0, 1, 2, 3, 7, 31, 32, 2**31, 2**32 - 1]
BYTES = [0, 1, -1, 2, 7, -7, 8, 100, 127, -128]
LONGS = [0, 1, -1, 5, -7, 63, 64, 2**62, 2**63 - 1, -(2**63)]
PARTS = [0.0, 1.0, -2.0, 0.5, 1e-20, 1e20, INF, NAN]
OPERANDS = {
    "float32": FLOATS,
    "float64": FLOATS,
    "float16": FLOATS,
    "int32": INTS,
    "uint32": WORDS,
    "int8": BYTES,
    "int64": LONGS,
    "bool": [False, True],
}


class Case(NamedTuple):
    """One expression of a, b, c; `types` of the operands, and of the result."""

    text: str
    types: tuple[str, ...]
    out: str

    @property
    def differentiable(self) -> bool:
        return self.out.startswith("float")


def cases() -> Iterable[Case]:
    """Every builtin that both have and that takes and gives scalars."""
    for f in ("float32", "float64"):
        for name in (
            "abs sign step nonzero floor ceil round rint trunc frac sqrt rsqrt cbrt exp log log2 log10 sin cos"
            " tan asin acos atan sinh cosh tanh degrees radians erf erfc expm1 log1p"
        ).split():
            if name not in LACKING:
                yield Case(f"wp.{name}(a)", (f,), f)
        for name in "min max pow atan2 mod floordiv copysign".split():
            if name not in LACKING:
                yield Case(f"wp.{name}(a, b)", (f, f), f)
        for sign in ("a + b", "a - b", "a * b", "a / b", "a % b", "a // b", "a ** b", "-a"):
            yield Case(sign, (f, f), f)
        for name in "clamp lerp smoothstep".split():
            yield Case(f"wp.{name}(a, b, c)", (f, f, f), f)
        for name in "isnan isinf isfinite".split():
            yield Case(f"wp.{name}(a)", (f,), "bool")
        for sign in "< <= > >= == !=".split():
            yield Case(f"a {sign} b", (f, f), "bool")
        for v in ("vec2", "vec3", "vec4"):
            names = "a, b, c, a"[: 3 * int(v[-1]) - 2]
            whole = f"wp.{v}{'d' if f == 'float64' else ''}({names})"
            for text in (
                "wp.length({v})",
                "wp.length_sq({v})",
                "wp.normalize({v})[1]",
                "wp.dot({v}, {v})",
                "wp.min({v})",
                "wp.max({v})",
                "wp.norm_l1({v})",
                "wp.norm_huber({v})",
                "wp.norm_pseudo_huber({v})",
                "wp.smooth_normalize({v})[0]",
            ):
                if f == "float32" or text[3 : text.index("(")] not in SINGLE:
                    yield Case(text.format(v=whole), (f,) * min(int(v[-1]), 3), f)
            yield Case(f"wp.int32(wp.argmax({whole}))", (f,) * min(int(v[-1]), 3), "int32")
            yield Case(f"wp.int32(wp.argmin({whole}))", (f,) * min(int(v[-1]), 3), "int32")
        q = "wp.quat" if f == "float32" else "wp.quatd"
        for text in (
            "wp.normalize({q})[3]",
            "wp.quat_inverse({q})[0]",
            "wp.quat_rotate({q}, {v})[1]",
            "wp.quat_rotate_inv({q}, {v})[1]",
            "wp.quat_to_matrix({q})[0, 1]",
            "wp.length({q})",
        ):
            v = "wp.vec3(a, b, c)" if f == "float32" else "wp.vec3d(a, b, c)"
            yield Case(text.format(q=f"{q}(a, b, c, b)", v=v), (f, f, f), f)
        m = "wp.mat22" if f == "float32" else "wp.mat22d"
        for text in ("wp.determinant({m})", "wp.inverse({m})[0, 1]", "wp.trace({m})"):
            yield Case(text.format(m=f"{m}(a, b, c, a)"), (f, f, f), f)
        for i in ("int32", "uint32", "int8", "int64"):
            yield Case(f"wp.{i}(a)", (f,), i)
    for i in ("int32", "uint32", "int8", "int64"):
        for sign in ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>"):
            yield Case(f"a {sign} b", (i, i), i)
        for name in "min max mod".split():
            yield Case(f"wp.{name}(a, b)", (i, i), i)
        for name in ("abs", "sign", "step", "nonzero"):
            yield Case(f"wp.{name}(a)", (i,), i)
        yield Case("~a", (i,), i)
        yield Case("wp.clamp(a, b, c)", (i, i, i), i)
        yield Case("wp.float32(a)", (i,), "float32")
    for text in ("wp.randi(s)", "wp.randi(s, -5, 9)", "wp.randi(s, 5, -9)", "wp.int32(wp.randu(s))"):
        yield Case(text, ("int32", "int32"), "int32")
    for text in (
        "wp.randf(s)",
        "wp.randf(s, -2.0, 5.0)",
        "wp.randn(s)",
        "wp.sample_unit_ring(s)[0]",
        "wp.sample_unit_sphere(s)[1]",
        "wp.sample_unit_disk(s)[0]",
        "wp.sample_unit_cube(s)[2]",
        "wp.sample_triangle(s)[0]",
        "wp.sample_unit_hemisphere(s)[1]",
        "wp.sample_unit_square(s)[1]",
        "wp.noise(s, 0.3)",
        "wp.noise(s, wp.vec2(0.3, 1.7))",
        "wp.noise(s, wp.vec3(0.3, 1.7, -2.2))",
        "wp.noise(s, wp.vec4(0.3, 1.7, -2.2, 0.1))",
        "wp.pnoise(s, wp.vec2(0.3, 1.7), 3, 4)",
        "wp.pnoise(s, wp.vec3(0.3, 1.7, -2.2), 3, 4, 5)",
        "wp.curlnoise(s, wp.vec2(0.3, 1.7))[0]",
        *(f"wp.curlnoise(s, wp.vec3(0.3, 1.7, -2.2))[{k}]" for k in range(3)),
        "wp.curlnoise(s, wp.vec3(0.3, 1.7, -2.2), wp.uint32(3), 1.9, 0.4)[0]",
    ):
        yield Case(text, ("int32", "int32"), "float32")


# What differs, and why ours is right: (text of the case, what, the reason, which operands if not all)
NUMBERS = "NaN and infinite operands: ours gives what IEEE says of the formula, or 0 where an adjoint is 0"
DIFFERENT = [
    (r"wp\.(abs|norm_l1)", "adjoint", "at 0 the slope of abs is 0; Warp takes 1"),
    (r"wp\.frac", "adjoint", "x - trunc(x) has slope 1; Warp gives 0"),
    (r"wp\.(asin|acos)", "", "infinite slope at the ends; NaN stays NaN, which Warp clamps to -1"),
    (r"wp\.tanh", "adjoint", "1 - tanh^2 without cancellation"),
    (r"wp\.(min|max|clamp|argmin|argmax)|arg(min|max)", "", "NaN stays NaN, as in NumPy; a tie counts for the first"),
    (r"wp\.pow|\*\*", "adjoint", "by the base x^0 has slope 0; by the exponent 0^y has slope 0 for y > 0"),
    (r"wp\.atan2", "adjoint", "not finite where there is none, at (0, 0)"),
    (r"wp\.mod", "adjoint", "by the divisor -trunc(a / b); Warp gives another or none"),
    (r"a % b", "", "rounds down, as in Python; wp.mod is C's"),
    (r"a // b", "", "rounds down at infinite divisors too, as in Python"),
    (r"wp\.smoothstep", "", "edges that are equal have no step: NaN; no overflow in the adjoint"),
    (
        r"wp\.(length|normalize|norm_huber|norm_pseudo_huber|smooth_normalize)",
        "",
        "neither overflows nor vanishes at 1e20 and 1e-20; NaN stays NaN",
    ),
    (r"wp\.(quat_|determinant)", "", NUMBERS),
    (r"wp\.inverse", "", "not finite where the matrix is singular; Warp gives zeros"),
    (r"wp\.u?int\d+\(a\)", "value", "saturates, and NaN is 0; in C it is undefined"),
    (r"a (<<|>>) b", "value", "counts are taken modulo the width, for small integers too"),
    (r"wp\.pnoise", "value", "repeats itself below zero too"),
]


def known(difference: Difference) -> bool:
    """Is it one of those above."""
    text, what = difference.case.text, difference.of
    return any(re.search(pattern, text) and what.startswith(of) for pattern, of, _ in DIFFERENT)


LACKING = {"floordiv", "copysign", "rsqrt", "expm1", "log1p"}
SINGLE = ("norm_l1", "norm_huber", "norm_pseudo_huber", "smooth_normalize")  # in Warp of float32 alone


def kernel_text(k: int, case: Case) -> str:
    names = "abc"[: len(case.types)]
    params = ", ".join(f"{n}_in: wp.array(dtype=wp.{t})" for n, t in zip(names, case.types, strict=True))
    lines = ["@wp.kernel", f"def k{k}({params}, y: wp.array(dtype=wp.{case.out})):", "    i = wp.tid()"]
    lines += [f"    {n} = {n}_in[i]" for n in names]
    if "(s" in case.text:
        lines.append("    s = wp.rand_init(a, b)")
    return "\n".join([*lines, f"    y[i] = {case.text}", "", ""])


def load(library: str, found: list[Case], folder: Path) -> ModuleType:
    text = f"import {library} as wp\n\n" + "\n".join(kernel_text(k, c) for k, c in enumerate(found))
    name = f"beside_{library}_{zlib.crc32(text.encode())}"  # Warp keeps what it has compiled under it
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def operands(case: Case, most: int) -> list[np.ndarray]:
    """All combinations of operands, or `most` of them drawn from a seed."""
    pools = [
        (UNITS if case.text[3:7] in ("acos", "asin") else PARTS if len(case.types) == 3 else OPERANDS[t])
        if t.startswith("float")
        else OPERANDS[t]
        for t in case.types
    ]
    every = list(itertools.product(*pools))
    if case.types[0][0] in "iu" and any(sign in case.text for sign in ("/", "%", "mod")):
        every = [(a, b) for a, b in every if b not in (0, -1)]  # where Warp's process may end
    if len(every) > most:
        chosen = np.random.default_rng(len(case.text)).choice(len(every), most, replace=False)
        every = [every[i] for i in chosen]
    with np.errstate(all="ignore"):
        return [np.array(column).astype(t) for column, t in zip(zip(*every, strict=True), case.types, strict=True)]


def run(wp: Any, module: ModuleType, k: int, case: Case, given: list[np.ndarray]) -> list[np.ndarray]:
    """Values, and the adjoints of float operands where there are any."""
    n, device = len(given[0]), {"device": "cpu"} if wp.__name__ == "warp" else {}
    floats = [case.differentiable and t.startswith("float") for t in case.types]
    args = [
        wp.array(g, dtype=getattr(wp, t), requires_grad=f, **device)
        for g, t, f in zip(given, case.types, floats, strict=True)
    ]
    y = wp.zeros(n, dtype=getattr(wp, case.out), requires_grad=any(floats), **device)
    kernel = getattr(module, f"k{k}")
    if not any(floats):
        wp.launch(kernel, dim=n, inputs=args, outputs=[y], **device)
        return [y.numpy().copy()]
    with wp.Tape() as tape:
        wp.launch(kernel, dim=n, inputs=args, outputs=[y], **device)
    out = y.numpy().copy()
    tape.backward(grads={y: wp.ones(n, dtype=getattr(wp, case.out), **device)})
    return [out, *[a.grad.numpy().copy() for a, f in zip(args, floats, strict=True) if f]]


def unlike(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Where two results differ by more than rounding; zeros of either sign are alike."""
    if one.dtype.kind != "f":
        return one != two
    few = {2: 5e-3, 4: 3e-5, 8: 1e-11}[one.dtype.itemsize]
    return ~np.isclose(one.astype(float), two.astype(float), rtol=few, atol=few**2, equal_nan=True)


class Difference(NamedTuple):
    case: Case
    of: str  # "value" or "adjoint"
    operands: tuple
    ours: Any
    theirs: Any


def differences(found: list[Case], most: int, folder: Path) -> Iterator[Difference]:
    """The first difference of the values, and of the adjoints, of each case."""
    import warp

    import workbench

    theirs, ours = load("warp", found, folder), load("workbench", found, folder)
    for k, case in enumerate(found):
        given = operands(case, most)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a, b = run(workbench, ours, k, case, given), run(warp, theirs, k, case, given)
        for q, (mine, other) in enumerate(zip(a, b, strict=True)):
            bad = np.flatnonzero(unlike(mine, other))
            for i in bad[: 400 if most > 999 else 1]:
                at = tuple(g[i].item() for g in given)
                yield Difference(case, "value" if q == 0 else f"adjoint {'abc'[q - 1]}", at, mine[i], other[i])


def main() -> None:
    found, some = list(cases()), sys.argv[1:]
    found = [c for c in found if not some or any(s in c.text for s in some)]
    with tempfile.TemporaryDirectory() as folder:
        for d in differences(found, 10**6, Path(folder)):
            if known(d) and not some:
                continue
            sys.stdout.write(f"{d.case.text}  {d.case.types[0]}  {d.of} at {d.operands}: {d.ours} not {d.theirs}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Random indices, affine and from data: both backends refuse the same launches, and none touches other memory.

Every array is a part of a larger one that holds NaN (or a number that no index has) around it: what is read outside
spoils the result, what is written outside is seen. Run with the address sanitizer, outside of the larger arrays too:

    python -m tests.fuzz.bounds --programs 4000 --seed 1
    LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 python -m tests.fuzz.bounds --sanitize
"""

from __future__ import annotations

import argparse
import collections
import linecache
import random
import sys
import warnings

import numpy as np

import workbench as wb
from workbench.kernels.compile import c_compiler

RIM = 16
NO_INDEX = 1_000_003


class Program:
    """A random kernel over x (read), y (stored or added to), a matrix m, index arrays a and b, a number s."""

    def __init__(self, seed: int):
        self.seed, self.random = seed, random.Random(seed)
        r = self.random
        self.n, self.threads = r.randint(1, 7), r.randint(1, 9)
        self.wild = r.random() < 0.5
        lines = ["i = wb.tid()"]
        for _ in range(r.randint(1, 4)):
            lines += self.statement()
        head = "@wb.kernel\ndef k(x: wb.array[float], m: wb.array2d[float], a: wb.array[int], b: wb.array[int], s: int,"
        head += " y: wb.array[float]):\n"
        self.source = head + "".join(f"    {line}\n" for line in lines)

    def index(self, depth: int = 0) -> str:
        r = self.random
        plain = ["i", "i", "s", str(r.randint(-2, 6)), "x.shape[0]"]
        data = ["a[i % a.shape[0]]", "b[i % b.shape[0]]", "a[b[i % b.shape[0]] % a.shape[0]]"]
        if depth > 2 or r.random() < 0.35:
            return r.choice(plain if r.random() < 0.5 else data)
        p, q = self.index(depth + 1), self.index(depth + 1)
        return r.choice(
            [
                f"({p} + {q})",
                f"({p} - {q})",
                f"({p} * {r.randint(-2, 3)})",
                f"({p} % x.shape[0])",
                f"({p} // 2)",
                f"wb.min({p}, {q})",
                f"wb.max({p}, 0)",
                f"wb.clamp({p}, 0, x.shape[0] - 1)",
                f"wb.where({p} < {q}, {p}, {q})",
                f"int(float({p}) * 0.5)",
                f"wb.mod({p}, x.shape[0])",
                f"wb.abs({p})",
            ]
        )

    def read(self) -> str:
        r = self.random
        p = self.index()
        return r.choice(
            [
                f"x[{p}]",
                f"x[{p}]",
                f"m[{p}, {self.index()}]",
                f"m[{p} % m.shape[0]][{self.index()}]",
                f"wb.vec3(1.0, 2.0, 3.0)[{self.index()}]",
                f"x[1:][{p}]",
            ]
        )

    def statement(self, depth: int = 0) -> list[str]:
        r = self.random
        kind = r.random()
        if depth < 2 and kind < 0.2:
            p, q = self.index(1), self.index(1)
            test = r.choice([f"{p} >= 0", f"{p} < x.shape[0]", f"{p} == {q}", "i > 0 and i < x.shape[0]", f"{p} < {q}"])
            return [f"if {test}:", *("    " + line for line in self.statement(depth + 1))]
        if depth < 2 and kind < 0.35:
            lines = ["    " + line.replace("s,", "s,") for line in self.statement(depth + 1)]
            name = f"c{depth}"
            lines = [line.replace("(i +", f"({name} +") for line in lines]
            return [f"for {name} in range({r.choice(['3', 's', 'x.shape[0]', 'wb.min(a[0], 4)'])}):", *lines]
        if kind < 0.5:
            return [f"v = {self.read()}", "wb.atomic_add(y, i % y.shape[0], v)"]
        if kind < 0.75:
            return [f"wb.atomic_add(y, {self.index()}, {self.read()})"]
        if kind < 0.85:
            return [f"if i == 0: y[{self.index()}] = {self.read()}"]
        return [f"wb.atomic_add(y, i % y.shape[0], {self.read()})"]

    def kernel(self):
        name = f"/fuzz/bounds_{self.seed}.py"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope = {"wb": wb, "__name__": "fuzz"}
        exec(compile(self.source, name, "exec"), scope)
        return scope["k"]

    def run(self, backend: str) -> tuple[str, np.ndarray | None]:
        """(slug of a refusal or "", contents of y): raises AssertionError for bytes touched outside."""
        wb.config.backend = backend
        g = np.random.default_rng(self.seed)
        low, high = (-9, 12) if self.wild else (0, self.n)
        parts = []

        def part(values: np.ndarray, around: float, dtype: type):
            whole = np.full(values.size + 2 * RIM, around, values.dtype)
            whole[RIM:-RIM] = values.reshape(-1)
            held = wb.array(whole, dtype=dtype)
            parts.append((held, whole))
            made = held[RIM:-RIM]
            return made.reshape(values.shape) if values.ndim > 1 else made

        x = part(g.uniform(1, 2, self.n).astype(np.float32), np.nan, float)
        m = part(g.uniform(1, 2, (2, self.n)).astype(np.float32), np.nan, float)
        a = part(g.integers(low, high, max(1, self.n - 1)).astype(np.int32), NO_INDEX, int)
        b = part(g.integers(low, high, self.n + 1).astype(np.int32), NO_INDEX, int)
        y = part(np.zeros(self.n, np.float32), np.nan, float)
        slug = ""
        try:
            wb.launch(self.kernel(), self.threads, [x, m, a, b, int(g.integers(-1, 5)), y])
        except wb.LaunchError as error:
            slug = error.slug
        for held, before in parts:
            after = held.numpy()
            assert np.array_equal(after[:RIM], before[:RIM], equal_nan=True), "written before an array"
            assert np.array_equal(after[-RIM:], before[-RIM:], equal_nan=True), "written behind an array"
        return slug, None if slug else y.numpy().copy()


def outcome(seed: int, backends: tuple[str, ...] = ("numpy", "c")) -> str:
    """ "right", the slug of a refusal on all backends, or "WRONG: ..."."""
    program = Program(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [program.run(backend) for backend in backends]
    except wb.KernelError as error:
        return error.slug
    except AssertionError as error:
        return f"WRONG: {error}\n{program.source}"
    slugs = {slug for slug, _ in found}
    if len(slugs) > 1:
        return f"WRONG: {slugs}\n{program.source}"
    values = [y for _, y in found]
    if values[0] is not None and not all(np.allclose(values[0], y, rtol=1e-5) for y in values):
        return f"WRONG: {values}\n{program.source}"
    return slugs.pop() or "right"


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.fuzz.bounds")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sanitize", action="store_true", help="compile with -fsanitize=address")
    given = parser.parse_args()
    if given.sanitize:
        c_compiler.FLAGS.append("-fsanitize=address")
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(given.seed, given.seed + given.programs):
        found = outcome(seed, ("c",) if given.sanitize else ("numpy", "c"))
        counts[found.partition(":")[0]] += 1
        if found.startswith("WRONG"):
            print(f"program {seed}: {found}")
    print(dict(counts))
    sys.exit(counts["WRONG"] > 0)


if __name__ == "__main__":
    main()

"""Random Warp programs under `watch`: the verdict on each gradient is the one that differences in float64 give.

A program launches random kernels (`watch_kernels`) one to six times over shared arrays, and does between what
programs do: copies with offsets, clones, fills, host writes, views, raw aliases, launches outside of the tape,
`record_cmd`, two tapes, several walks back. It runs twice in float32, alone and watched: every array and gradient must
have the same bits. Its truth comes from central differences of the same program in float64.

    python -m tests.fuzz.watch --programs 400 --seed 1
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import watch_kernels as texts

RIGHT, WRONG = 1e-4, 2e-3  # of the largest number: nearer is right, farther is wrong, between is not asked
SIZE = texts.SIZE
STEP = 1e-6
ORDER = ("agrees", "not asked", "unverified", "wrong")
LEAVES, TEMPS = ("x", "z"), ("p", "q", "r", "s", "u")
VECTORS = ("v", "w")


class Program:
    """A random program as a list of steps, each (kind, ...)."""

    def __init__(self, seed: int, names: dict[str, list[str]]):
        self.rng = rng = np.random.default_rng(seed)
        self.names = names
        self.values = {n: rng.uniform(0.2, 1.2, SIZE) * rng.choice([-1, 1], SIZE) for n in LEAVES}
        self.filled = {n: rng.random() < 0.3 for n in (*TEMPS, *VECTORS)}
        self.marked = {n: rng.random() < 0.94 for n in (*TEMPS, *VECTORS, "sa", "sb")}
        self.retained = {n: self.marked[n] and rng.random() < 0.03 for n in TEMPS}
        self.torch = rng.random() < 0.1
        self.written = list(LEAVES)
        self.vectors: list[str] = []
        self.structs = False
        self.steps: list[tuple] = []
        turns = int(rng.integers(1, 7))
        while sum(s[0] == "launch" for s in self.steps) < turns:
            if self.chance(0.3):
                self.between()
            else:
                self.launch()
        self.before = int(rng.integers(1, 3)) if self.chance(0.08) else 0  # steps before the tape begins
        self.before = min(self.before, len(self.steps) - 1)
        self.gap = int(rng.integers(self.before, len(self.steps))) if self.chance(0.06) else None  # not recorded
        self.two = int(rng.integers(1, len(self.steps))) if len(self.steps) > 1 and self.chance(0.12) else None
        if self.before or self.gap is not None:
            self.two = None
        results = [n for n in self.written if n not in LEAVES] or ["p"]
        self.result = results[-1] if self.chance(0.7) else self.pick(results)
        self.seeds = rng.uniform(-1, 1, SIZE)
        self.ask = str(rng.choice(["loss", "loss", "loss", "grads", "grad"])) if self.two is None else "loss"
        self.again = str(rng.choice(["", "", "", "", "", "zero", "add", "clear"])) if self.two is None else ""
        self.after = [self.host(str(rng.choice([*self.written, *TEMPS[:2]])))] if self.chance(0.15) else []

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, names: Any) -> str:
        return str(self.rng.choice(list(names)))

    def source(self) -> str:
        return self.written[-1] if self.chance(0.6) else self.pick(self.written)

    def target(self, *others: str) -> str:
        """Where a result goes: mostly memory that nothing has used, seldom memory that is in use."""
        fresh = [n for n in TEMPS if n not in self.written and n not in others]
        used = [n for n in (*TEMPS, *self.written) if n not in others]
        if self.chance(0.05):
            used = [n for n in LEAVES if n not in others] or used
        name = self.pick(fresh) if fresh and self.chance(0.7) else self.pick(used)
        if name in self.written:
            self.written.remove(name)
        self.written.append(name)
        return name

    def view(self, name: str, kind: str = "") -> str:
        """How an argument is passed: itself, the whole as a slice, a reshaped or raw alias, a part."""
        ways = [":all", ":flat", ":raw", *([":part"] if kind in ("added", "inplace") else [])]
        return name + (self.pick(ways) if self.chance(0.06) else "")

    def launch(self) -> None:
        kind = self.pick(texts.KINDS)
        if kind == "off" and self.chance(0.7):
            kind = "unary"
        if kind in ("unpacked", "vectors") and not self.vectors:
            kind = "packed"
        if kind == "struct_in" and not self.structs:
            kind = "struct_out"
        kernel, how = self.pick(self.names[kind]), "record" if self.chance(0.02) else ""
        x = self.source()
        args: list[Any]
        if kind in ("unary", "added", "scattered", "off"):
            args = [self.view(x, kind), self.view(self.target(x), kind)]
        elif kind == "turns":
            args = [self.view(x), int(self.rng.integers(1, 5)), self.target(x)]
        elif kind == "binary":
            z = self.pick([n for n in self.written if n != x] or LEAVES)
            args = [x, z, self.target(x, z)]
        elif kind == "inplace":
            args = [self.view(self.changed(x), kind)]
        elif kind == "updated":
            args = [self.changed(x), self.pick([n for n in LEAVES if n != x])]
        elif kind == "packed":
            self.vectors.append(v := self.pick(VECTORS))
            args = [x, v]
        elif kind == "unpacked":
            args = [self.vectors[-1], self.target()]
        elif kind == "vectors":
            v = self.vectors[-1]
            w = VECTORS[1 - VECTORS.index(v)]
            self.vectors.append(w)
            args = [v, w]
        elif kind == "struct_in":
            args = ["pair", self.target()]
        elif kind == "struct_out":
            self.structs = True
            args = [x, "pair"]
        else:
            args = [f"{x}:grid", f"{self.target(x)}:grid"]
        self.steps.append(("launch", kernel, args, kind, how))

    def changed(self, x: str) -> str:
        """What is updated in place: seldom an input of the program."""
        if x in LEAVES and self.chance(0.85):
            y = self.target(x)
            self.steps.append(("copy", y, x, 0, 0, 0))
            return y
        return x

    def between(self) -> None:
        what = self.pick(["copy", "part", "clone", "assign", "host"])
        if what == "host":
            if self.chance(0.5):
                self.steps.append(self.host(self.pick([*self.written, *TEMPS])))
            return
        x = self.source()
        if what == "part":
            n = int(self.rng.integers(1, SIZE))
            to, of = (int(self.rng.integers(0, SIZE - n + 1)) for _ in range(2))
            self.steps.append(("copy", self.target(x), x, to, of, n))
        else:
            self.steps.append((what, self.target(x), x, 0, 0, 0))

    def host(self, name: str) -> tuple:
        values = self.rng.uniform(-1, 1, SIZE)
        return (self.pick(["given", "fill", "zero", "poke", "strided"]), name, values)

    def __str__(self) -> str:
        said = [f"  {n}: {s}" for n, s in enumerate(self.steps)]
        extra = {k: getattr(self, k) for k in ("before", "gap", "two", "result", "ask", "again", "after", "torch")}
        lost = [n for n, m in self.marked.items() if not m], [n for n, m in self.retained.items() if m]
        filled = [n for n, m in self.filled.items() if m]
        return "\n".join([*said, f"  {extra}", f"  without grad, retained: {lost}, filled: {filled}"])


class Run:
    """One run of a program on a module of kernels: in float32 or, with moved inputs, in float64."""

    def __init__(
        self, wp: Any, kernels: Any, program: Program, moved: tuple[str, int, float] | None = None, wide: bool = False
    ):
        self.wp, self.kernels, self.program, self.moved, self.wide = wp, kernels, program, moved, wide
        self.float = wp.float64 if wide else wp.float32
        self.numpy = np.float64 if wide else np.float32
        self.kept: list[Any] = []
        self.number = 0.0
        self.met = False

    def array(self, values: Any, **more: Any) -> Any:
        return self.wp.array(np.array(values, self.numpy), dtype=self.float, **more)

    def __call__(self, walk: bool = True) -> Run:
        wp, p = self.wp, self.program
        vec2 = wp.vec2d if self.wide else wp.vec2
        a: dict[str, Any] = {}
        for n in LEAVES:
            a[n] = self.array(p.values[n], requires_grad=True)
        if p.torch:
            import torch

            t = torch.tensor(np.array(p.values["x"], self.numpy), requires_grad=True)
            self.kept.append(t)
            a["x"] = wp.from_torch(t)
        for n in TEMPS:
            a[n] = self.array(
                np.full(SIZE, 0.3 if p.filled[n] else 0), requires_grad=p.marked[n], retain_grad=p.retained[n]
            )
        for n in VECTORS:
            a[n] = wp.array(np.full((SIZE, 2), 0.3, self.numpy), dtype=vec2, requires_grad=p.marked[n])
        pair = a["pair"] = self.kernels.Pair()
        pair.a, pair.b = (self.array(np.full(SIZE, 0.2), requires_grad=p.marked[n]) for n in ("sa", "sb"))
        pair.k = 0.7
        a["loss"] = self.array([0.0], requires_grad=True)
        self.a = a
        for s in p.steps[: p.before]:
            self.step(s)
        cut = len(p.steps) if p.two is None else p.two
        first = wp.Tape()
        for n, s in enumerate(p.steps[p.before : cut], p.before):
            self.under(first, s, n == p.gap)
        second = first if p.two is None else wp.Tape()
        for s in p.steps[cut:]:
            self.under(second, s, False)
        if p.ask == "loss":
            self.under(second, ("launch", "weigh", [p.result, "loss"], "", ""), False)
        self.number = self.value()
        for s in p.after:
            self.step(s)
        if walk:
            self.walk(first, second)
        return self

    def under(self, tape: Any, step: tuple, off: bool) -> None:
        """A step, recorded; the inputs are moved where the tape begins."""
        if off:
            self.step(step)
            return
        if (
            not self.met
            and self.moved is not None
            and step[0] in ("launch", "copy", "clone", "assign")
            and step[-1] != "record"
        ):
            self.met = True
            self.move()
        with tape:
            self.step(step)

    def move(self) -> None:
        name, at, by = self.moved  # type: ignore[misc]
        values = self.a[name].numpy().copy()
        values[at] += by
        self.a[name].assign(values)

    def value(self) -> float:
        p = self.program
        if p.ask == "loss":
            return float(self.a["loss"].numpy()[0])
        return float(self.a[p.result].numpy().astype(np.float64) @ p.seeds)

    def argument(self, spec: Any) -> Any:
        if isinstance(spec, int):
            return spec
        name, _, how = spec.partition(":")
        a = self.a[name]
        if how == "all":
            a = a[:]
        elif how == "flat":
            a = a.reshape((SIZE // 2, 2)).flatten()
        elif how == "raw":
            a = self.wp.array(ptr=a.ptr, shape=a.shape, dtype=a.dtype, requires_grad=True)
        elif how == "part":
            a = a[1:]
        elif how == "grid":
            a = a.reshape((2, SIZE // 2))
        self.kept.append(a)
        return a

    def step(self, step: tuple) -> None:
        wp = self.wp
        if step[0] == "launch":
            _, kernel, specs, kind, how = step
            args = [self.argument(s) for s in specs]
            dim = (2, SIZE // 2) if kind == "grid" else SIZE
            if any(isinstance(s, str) and s.endswith(":part") for s in specs):
                dim = SIZE - 1
            if how == "record":
                wp.launch(getattr(self.kernels, kernel), dim, inputs=args, record_cmd=True).launch()
            else:
                wp.launch(getattr(self.kernels, kernel), dim, inputs=args)
        elif step[0] == "copy":
            _, to, of, at, start, count = step
            wp.copy(self.a[to], self.a[of], at, start, count)
        elif step[0] == "clone":
            self.a[step[1]] = wp.clone(self.a[step[2]])
        elif step[0] == "assign":
            self.a[step[1]].assign(self.a[step[2]])
        else:
            self.by_host(*step)

    def by_host(self, how: str, name: str, values: np.ndarray) -> None:
        a = self.a[name]
        if how == "given":
            a.assign(values.astype(self.numpy))
        elif how == "fill":
            a.fill_(float(np.float32(values[0])))
        elif how == "zero":
            a.zero_()
        elif how == "poke":
            a.numpy()[1] = values[1]
        else:
            a[::2].fill_(float(np.float32(values[0])))

    def walk(self, first: Any, second: Any) -> None:
        p = self.program
        for n in range(2 if p.again else 1):
            if n and p.again == "zero":
                first.zero()
            elif n and p.again == "clear":
                for name in LEAVES:
                    self.a[name].grad.zero_()
            if p.ask == "loss":
                second.backward(self.a["loss"])
            elif self.a[p.result].grad is None:
                return
            elif p.ask == "grads":
                first.backward(grads={self.a[p.result]: self.array(p.seeds)})
            else:
                self.a[p.result].grad.assign(p.seeds.astype(self.numpy))
                first.backward()
        if second is not first:
            first.backward()

    def bits(self) -> dict[str, bytes]:
        found = {}
        for n, a in self.a.items():
            if n != "pair":
                found[n] = a.numpy().tobytes()
                found[f"{n}.grad"] = b"" if a.grad is None else a.grad.numpy().tobytes()
        return found


def truth(wp: Any, wide: Any, program: Program) -> dict[str, np.ndarray]:
    """Central differences in float64 by what the inputs hold where the tape begins."""
    found = {}
    for name in LEAVES:
        found[name] = np.zeros(SIZE)
        for at in range(SIZE):
            up, down = (Run(wp, wide, program, (name, at, s * STEP), True)(False).number for s in (1, -1))
            found[name][at] = (up - down) / (2 * STEP)
    return found


def is_clearly(found: np.ndarray, exact: np.ndarray) -> str:
    """ "right", "wrong" or "" between them."""
    size = max(np.abs(exact).max(), np.abs(found).max(), 1e-4)  # differences have no digits below
    away = np.abs(found - exact).max() / size
    return "right" if away < RIGHT else "wrong" if away > WRONG else ""


def judged(wp: Any, narrow: Any, wide: Any, program: Program, count: collections.Counter) -> list[str]:
    """What is amiss with a watch of one program."""
    from workbench.warp.watch import watch

    alone = Run(wp, narrow, program)()
    with watch() as seen:
        ours = Run(wp, narrow, program)()
    amiss = [f"bits of {n}" for n, b in ours.bits().items() if alone.bits()[n] != b]
    exact = truth(wp, wide, program)
    if not all(np.all(np.abs(v) < 1e4) for v in exact.values()):
        count["too large"] += 1
        return amiss
    amiss += [f"opaque {s!r}: {s.reason}" for s in seen.opaque_steps]
    amiss += [
        f"forward {s!r}: {s.difference}" for s in seen.steps if s.difference is not None and s.difference.share > 1e-5
    ]
    verdicts = {}
    for one in seen.passes:
        for published, row in zip(one.published, one.rows, strict=True):
            verdicts.setdefault(published.theirs.grad.ptr, []).append((one, published, row))
    chained = program.two is not None and any(r.verdict != "agrees" for one in seen.passes for r in one.rows)
    recorded = any(s[0] == "launch" and s[-1] == "record" for s in program.steps)
    by_host = {s[1] for s in program.steps[program.before :] if s[0] in ("given", "fill", "zero", "poke", "strided")}
    for name in LEAVES:
        if ours.a[name].grad is None:  # a clone of what has none
            continue
        rows = verdicts.get(ours.a[name].grad.ptr, [])
        if not rows:
            count["no row"] += 1
            raw = any(
                f"{name}:raw" in s[2] for s in program.steps if s[0] == "launch"
            )  # that has a gradient of its own
            if np.abs(exact[name]).max() > 1e-3 and seen.passes and not raw and not program.before:
                amiss.append(f"NO ROW {name}: exact {exact[name]}")
            continue
        if program.two is not None:
            rows.sort(key=lambda r: ORDER.index(r[2].verdict))
        one, published, row = rows[-1]
        theirs = ours.a[name].grad.numpy().astype(np.float64)
        before = published.before.astype(np.float64).reshape(-1) if program.two is None else np.zeros(SIZE)
        is_right = is_clearly(theirs - before, exact[name])
        said = row.verdict
        count[f"{said}, {is_right}"] += 1
        if said == "wrong":
            count["cause " + row.cause.partition(":")[0]] += 1
        numbers = f"Warp {theirs}, before {before}, exact {exact[name]}, ours {row.exact}"
        text = f"{name}: {said}, is {is_right}: {row.texts()[2:]} {numbers}"
        if said == "agrees" and is_right == "wrong" and not chained and program.gap != len(program.steps) - 1:
            amiss.append("PASSED " + text)
        elif row.cause.startswith("not on the tape") or recorded or name in by_host:
            pass  # the truth is of what the tape records, and of what the input held where it begins
        elif said == "wrong" and is_right == "right" and not chained and np.abs(row.exact).max() > 1e-6:
            amiss.append("ACCUSED " + text)
        elif said == "unverified" and not row.cause.startswith(("kink", "precision", "leaked seed")):
            amiss.append("UNVERIFIED " + text)
        elif said == "not asked" and not row.cause.startswith(("launches overwrite it", "this backward starts from")):
            amiss.append("NOT ASKED " + text)
        elif said == "wrong" and (not row.cause or not row.remedy):
            amiss.append("UNEXPLAINED " + text)
    return amiss


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=100, help="programs per module of kernels")
    parser.add_argument("--only", type=int, default=None, help="one program of the first batch")
    asked = parser.parse_args()
    import warp as wp

    from tests.interop.warp.in_float64 import widened

    wp.config.quiet, wp.config.optimization_level = True, 0
    warnings.simplefilter("ignore")
    count: collections.Counter = collections.Counter()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for batch in range(-(-asked.programs // asked.batch)):
            number = asked.seed * 1000 + batch
            text, names = texts.module(number)
            path = Path(folder) / f"fuzzed_{number}.py"
            path.write_text(text, "utf-8")
            narrow = load(path)
            began = time.time()
            wide = widened(narrow, Path(folder))
            for n in range(asked.batch):
                if asked.only is not None and n != asked.only:
                    continue
                program = Program(number * 10_000 + n, names)
                try:
                    amiss = judged(wp, narrow, wide, program, count)
                except Exception:
                    amiss = [traceback.format_exc()]
                    if "Error while parsing function" in amiss[0]:  # a module that Warp refuses
                        say(f"--- batch {batch} is no program of Warp", amiss[0][-400:])
                        break
                if amiss:
                    bad += 1
                    say(f"--- seed {asked.seed} batch {batch} program {n}\n{program}", *amiss)
            say(f"batch {batch}: {time.time() - began:.0f} s, {bad} bad, {dict(count)}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())

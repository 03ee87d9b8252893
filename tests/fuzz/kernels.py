"""Random programs against central differences: gradients are exact, or the program is refused.

A program is source text (funcs, a struct, kernels) and a script of launches and host writes on a few arrays that are
inputs and outputs at once. The oracle differentiates the program's own forward, along random directions, with fourth
order central differences at two steps: where the two agree, the gradient must agree with them. Forward mode must be the
transpose of the gradient, in float64 and in another float type. One thread may use memory in any pattern; kernels of
many threads are free of races by construction.

    python -m tests.fuzz.kernels --programs 2000 --seed 1
"""

from __future__ import annotations

import argparse
import ast
import collections
import copy
import linecache
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import workbench as wb
from workbench.arrays.workspace import Workspace
from workbench.errors import GradientError, KernelError, LaunchError
from workbench.tapes.jvp import shadow_of
from workbench.tapes.reverse import walk

F = "wb.float64"
REFUSALS = (KernelError, LaunchError, GradientError)
HEADER = "import workbench as wb\nF = wb.float64\n"
STRUCTS = """
@wb.struct
class Pair:
    a: F
    v: wb.vec3d

@wb.struct
class Pack:
    x: wb.array(dtype=F)
    y: wb.array(dtype=F)
    k: F
"""


# ---- source text


class Writer:
    """Lines with indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)


@dataclass
class Param:
    name: str
    kind: str  # a1 | a2 | av | idx | n | c | v | pack
    mode: str = "any"  # any | read | own | add: what a kernel of many threads may do with it


ANNOTATION = {
    "a1": "wb.array(dtype=F)",
    "a2": "wb.array2d(dtype=F)",
    "av": "wb.array(dtype=wb.vec3d)",
    "idx": "wb.array(dtype=int)",
    "ct": "wb.array(dtype=int)",
    "ps": "wb.array(dtype=Pair)",
    "n": "int",
    "c": "F",
    "v": "wb.vec3d",
    "pack": "Pack",
    "pair": "Pair",
}


class Generator:
    """One program, from a seed or from a source of randomness (of Hypothesis, which then shrinks what fails)."""

    def __init__(self, source: int | random.Random, transforms: bool = False):
        self.transforms = transforms  # programs of a seed that other tests know have none
        self.r = random.Random(source) if isinstance(source, int) else source
        self.length = self.r.choice((3, 3, 4, 5))
        self.tastes = [self.r.choice((0.2, 1.0, 1.0, 5.0)) for _ in range(40)]  # programs that dwell on a few features
        self.plane = False
        self.w = Writer()
        self.counter = 0
        self.funcs: list[tuple[str, list[str], str]] = []
        self.kernels: list[tuple[str, list[Param], int]] = []  # the last: axes of its grid, 0 for one thread

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    # ---- a body's state

    def enter(self, params: list[Param], threads: bool, kernel: bool) -> None:
        self.params, self.threads, self.kernel = params, threads, kernel
        self.env: dict[str, str] = {}  # local name -> f | v | m | t (transform) | i (small, 0 <= i < 3) | s (struct)
        self.fixed: set[str] = set()  # loop variables and counters: not reassigned
        self.loops = 0
        self.cost = 1
        self.budget = self.r.randint(4, 24)

    def names(self, type: str, writable: bool = False) -> list[str]:
        return [n for n, t in self.env.items() if t == type and not (writable and n in self.fixed)]

    def of(self, *kinds: str, modes: tuple[str, ...] = ()) -> list[Param]:
        return [p for p in self.params if p.kind in kinds and (not modes or p.mode in modes)]

    # ---- expressions

    def literal(self) -> str:
        return f"F({round(self.r.uniform(-1.5, 1.5), 2)})"

    def index(self) -> str:
        """Any integer expression within the arrays."""
        roll, n = self.r.random(), self.length
        ints = self.names("i")
        tables = self.of("idx") + ([] if self.threads else self.of("ct"))
        if roll < 0.3 and ints:
            return self.r.choice(ints)
        if roll < 0.5 and ints:
            return f"({self.r.choice(ints)} + {self.r.randint(0, 4)}) % {n}"
        if roll < 0.6 and tables:
            inner = self.r.choice(ints) if ints and self.chance(0.6) else str(self.r.randrange(n))
            return f"{self.r.choice(tables).name}[{inner}]"
        if roll < 0.68:
            return f"-{self.r.randint(1, n)}"
        if roll < 0.74 and ints:
            return f"{self.r.choice(ints)} - {self.r.randint(1, 2)}" if n >= 3 else "0"
        return str(self.r.randrange(3))

    def cell(self, p: Param, write: bool) -> str:
        """An element of an array parameter that this thread may touch."""
        own = self.threads and (p.mode == "own" or (write and p.mode != "add"))
        first = "i" if own else self.index()
        if p.kind == "a2":
            second = "j" if own and self.plane else self.index()
            return f"{p.name}[{first}, {second}]" if self.chance(0.8) else f"{p.name}[{first}][{second}]"
        return f"{p.name}[{first}]"

    def load(self) -> str | None:
        found = self.of("a1", "a2", "av", "pack", "ps", modes=("any", "read", "own"))
        if not found:
            return None
        p = self.r.choice(found)
        if p.kind == "ps":
            return self.cell(p, False) + self.r.choice((".a", ".v[1]", ".v.x"))
        if p.kind == "pack":
            which = self.r.choice(("x", "y", "k"))
            return f"{p.name}.k" if which == "k" else f"{p.name}.{which}[{self.index()}]"
        return self.cell(p, False) + (f"[{self.r.randrange(3)}]" if p.kind == "av" else "")

    def condition(self, depth: int = 1) -> str:
        """Outcomes that a small change of the inputs cannot flip."""
        tables = self.of("idx") + ([] if self.threads else self.of("ct"))
        ints, roll = self.names("i"), self.r.random()
        if roll < 0.45 and ints:
            return f"{self.r.choice(ints)} {self.r.choice(('<', '>', '==', '!=', '<=', '>='))} {self.r.randint(0, 2)}"
        if roll < 0.65 and tables:
            cell = f"{self.r.choice(tables).name}[{self.index()}]"
            return f"{cell} {self.r.choice(('<', '>', '=='))} {self.r.randint(0, 2)}"
        if roll < 0.75 and ints:
            return f"{self.r.choice(ints)} % 2 == {self.r.randint(0, 1)}"
        if roll < 0.85 and depth > 0:
            return f"{self.condition(depth - 1)} {self.r.choice(('and', 'or'))} {self.condition(depth - 1)}"
        if roll < 0.9 and depth > 0:
            return f"not ({self.condition(depth - 1)})"
        return f"{self.float(depth)} {self.r.choice(('<', '>'))} F({self.r.choice((-1, 1)) * 1e4})"

    def float(self, depth: int) -> str:
        if depth <= 0:
            return self.atom()
        roll = self.r.random()
        e = lambda: self.float(depth - 1)  # noqa: E731
        if roll < 0.16:
            return f"wb.{self.r.choice(('sin', 'cos', 'tanh'))}({e()})"
        if roll < 0.30:
            return f"({e()} {self.r.choice('+-')} {e()})"
        if roll < 0.44:
            return f"wb.sin({e()}) * {e()}"
        if roll < 0.50:
            shared = e()
            return f"{e()} / ({shared} * {shared} + F(1.5))"
        if roll < 0.54:
            return f"-({e()})"
        if roll < 0.60:
            return f"({e()} if {self.condition(depth - 1)} else {e()})"
        if roll < 0.64:
            return f"wb.where({self.condition(depth - 1)}, {e()}, {e()})"
        if roll < 0.69:
            return f"wb.dot({self.vec(depth - 1)}, {self.vec(depth - 1)}) * F(0.3)"
        if roll < 0.71 and self.names("m"):
            return self.r.choice(("wb.trace({}) * F(0.4)", "wb.determinant({}) * F(0.3)")).format(self.mat(depth - 1))
        if roll < 0.73:
            return f"wb.exp(F(0.3) * wb.sin({e()}))"
        if roll < 0.76:
            return f"wb.sqrt({e()} * F(0.0) + F(1.0) + wb.tanh({e()}) * F(0.5))"
        if roll < 0.79:
            bounded = "wb.max({}, F(-1e5))", "wb.min({}, F(1e5))", "wb.clamp({}, F(-1e5), F(1e5))"
            return self.r.choice(bounded).format(e())
        if roll < 0.87:
            made = self.call("f", depth)
            if made:
                return made
        return self.atom()

    def atom(self) -> str:
        options = [*self.names("f")] * 2 + [f"{n}[{self.r.randrange(3)}]" for n in self.names("v")]
        options += [f"{n}.{self.r.choice('xyz')}" for n in self.names("v")]
        options += [f"{n}[{self.r.randrange(3)}, {self.r.randrange(3)}]" for n in self.names("m")]
        options += [f"{n}.a" for n in self.names("s")] + [f"{n}.v[1]" for n in self.names("s")]
        options += [p.name for p in self.of("c")] + [f"{p.name}[2]" for p in self.of("v")]
        options += [f"{n}{self.r.choice(('[1]', '[5]', '.p.x', '.q.w', '.p[2]', '.q[0]'))}" for n in self.names("t")]
        if self.names("i"):
            options.append(f"F({self.r.choice(self.names('i'))})")
        made = self.load()
        if made and (not options or self.chance(0.5)):
            return made
        return self.literal() if not options or self.chance(0.15) else self.r.choice(options)

    def vec(self, depth: int) -> str:
        roll = self.r.random()
        if depth <= 0 or roll < 0.4:
            options = [*self.names("v"), *[f"{n}.v" for n in self.names("s")], *[p.name for p in self.of("v")]]
            options += [self.cell(p, False) for p in self.of("av", modes=("any", "read", "own"))]
            if options:
                return self.r.choice(options)
        if depth <= 0:
            return f"wb.vec3d({self.literal()}, {self.atom()}, {self.literal()})"
        if roll < 0.55:
            return f"({self.vec(depth - 1)} {self.r.choice('+-')} {self.vec(depth - 1)})"
        if roll < 0.65:
            return f"{self.vec(depth - 1)} * wb.sin({self.float(depth - 1)})"
        if roll < 0.70:
            return f"wb.cross({self.vec(depth - 1)}, {self.vec(depth - 1)}) * F(0.3)"
        if roll < 0.73 and self.names("m"):
            product = f"{self.mat(depth - 1)} @ {self.vec(depth - 1)} * F(0.4)"
            return product if self.chance(0.8) else f"{self.r.choice(self.names('m'))}[{self.r.randrange(3)}]"
        if roll < 0.75:
            made = self.call("v", depth)
            if made:
                return made
        if roll < 0.82 and self.names("t"):
            return self.by_transform(self.r.choice(self.names("t")), depth)
        return f"wb.vec3d({self.float(depth - 1)}, {self.float(depth - 1)}, {self.literal()})"

    def by_transform(self, t: str, depth: int) -> str:
        v = self.vec(depth - 1)
        twist = f"wb.spatial_vectord({v}, {t}.p)"
        return self.r.choice(
            (
                f"wb.transform_point({t}, {v}) * F(0.3)",
                f"wb.transform_vector({t}, {v}) * F(0.4)",
                f"{t}[1:4] * F(0.5)",
                f"wb.transform_point(wb.transform_inverse({t}), {v}) * F(0.3)",
                f"{t}.p",
                f"{twist}[2:5]",
                f"wb.spatial_bottom(wb.transform_twist({t}, {twist})) * F(0.2)",
                f"wb.spatial_top(wb.spatial_cross_dual({twist}, {twist} * F(0.5))) * F(0.2)",
                f"wb.quat_slerp(wb.normalize({t}.q + wb.quatd(0.0, 0.0, 0.0, 4.0)), wb.quat_identity(F), F(0.3))[0:3]",
            )
        )

    def mat(self, depth: int) -> str:
        roll = self.r.random()
        if (depth <= 0 or roll < 0.4) and self.names("m"):
            return self.r.choice(self.names("m"))
        if depth <= 0 or roll < 0.5:
            return f"wb.diag({self.vec(0)})"
        if roll < 0.65:
            return f"wb.outer({self.vec(depth - 1)}, {self.vec(depth - 1)}) * F(0.3)"
        if roll < 0.75:
            return f"({self.mat(depth - 1)} {self.r.choice('+-')} {self.mat(depth - 1)})"
        if roll < 0.85:
            return f"({self.mat(depth - 1)} @ {self.mat(depth - 1)}) * F(0.4)"
        return f"wb.transpose({self.mat(depth - 1)})" if roll < 0.92 else f"wb.skew({self.vec(depth - 1)})"

    def call(self, result: str, depth: int) -> str | None:
        found = [f for f in self.funcs if f[2] == result]
        if not found:
            return None
        name, types, _ = self.r.choice(found)
        args = []
        for t in types:
            if t == "a1":
                arrays = [p.name for p in self.of("a1", modes=("any",))]
                if not arrays or self.threads:
                    return None
                args.append(self.r.choice(arrays))
            elif t == "i":
                args.append(self.r.choice([*self.names("i"), str(self.r.randrange(3))]))
            elif t == "s":
                if not self.names("s"):
                    return None
                args.append(self.r.choice(self.names("s")))
            else:
                args.append(self.float(depth - 1) if t == "f" else self.vec(depth - 1))
        return f"{name}({', '.join(args)})"

    def tame(self, depth: int = 2) -> str:
        """A value that does not grow however often it is stored."""
        e = self.float(depth)
        return e if self.chance(0.25) else self.r.choice(("wb.sin({})", "wb.tanh({})", "F(0.7) * wb.cos({})")).format(e)

    def tame_vec(self) -> str:
        return (
            f"wb.vec3d({self.tame(1)}, {self.tame(1)}, {self.tame(1)})"
            if self.chance(0.5)
            else (f"{self.vec(1)} * F(0.4)")
        )

    # ---- statements

    def block(self, n: int, inner: bool = True) -> None:
        """Names first bound here are forgotten after it."""
        before = dict(self.env)
        self.w.depth += 1
        mark = len(self.w.lines)
        for _ in range(n):
            if self.budget > 0:
                self.budget -= 1
                self.statement()
        if len(self.w.lines) == mark:
            self.w.put("pass")
        self.w.depth -= 1
        if inner:
            self.env = {n: t for n, t in self.env.items() if n in before}

    def statement(self) -> None:
        options = [
            (10, self.new_float),
            (4, self.new_vec),
            (3, self.new_int),
            (10, self.reassign),
            (6, self.component),
            (3, self.swap),
            (14, self.store),
            (8, self.update),
            (4, self.add_atomic),
            (3, self.new_struct),
            (4, self.write_struct),
            (7, self.branch),
            (7, self.for_loop),
            (3, self.while_loop),
            (2, self.alias),
            (2, self.leave),
            (1, self.old_value),
            (2, self.nothing_call),
            (3, self.count),
            (2, self.whole_struct),
            (2, self.tuple_call),
            (3, self.new_mat),
            (4, self.entry),
        ]
        options += [(6, self.new_transform), (8, self.write_transform)] * self.transforms
        weights = [w * taste for (w, _), taste in zip(options, self.tastes, strict=False)]
        self.r.choices([make for _, make in options], weights)[0]()

    def new_float(self) -> None:
        e = self.tame()
        name = self.fresh("f")
        self.env[name] = "f"
        self.w.put(f"{name} = {e}")

    def new_vec(self) -> None:
        e = self.tame_vec()
        name = self.fresh("v")
        self.env[name] = "v"
        self.w.put(f"{name} = {e}")

    def new_mat(self) -> None:
        e = self.mat(2)
        name = self.fresh("m")
        self.env[name] = "m"
        self.w.put(f"{name} = {e} * F(0.7)")

    def entry(self) -> None:
        """Write one entry or one row of a matrix."""
        found = self.names("m")
        if not found:
            return self.new_mat()
        n, how = self.r.choice(found), self.r.choice(("=", "+=", "*=", "-="))
        if self.chance(0.2):
            return self.w.put(f"{n}[{self.r.randrange(3)}] = {self.tame_vec()}")
        row = self.r.choice(self.names("i")) if self.names("i") and self.bounded() else self.r.randrange(3)
        return self.w.put(f"{n}[{row}, {self.r.randrange(3)}] {how} {self.tame(1)}")

    def turn(self) -> str:
        """A quaternion of length 1, not near half a turn."""
        return f"wb.normalize(wb.quatd({self.tame(1)}, {self.tame(1)}, {self.literal()}, 3.0))"

    def new_transform(self) -> None:
        e = f"wb.transformd({self.tame_vec()}, {self.turn()})"
        known = self.names("t")
        if known and self.chance(0.3):
            e = self.r.choice((f"{self.r.choice(known)} * {e}", f"{e} * F(0.5) + {self.r.choice(known)} * F(0.3)"))
        name = self.fresh("t")
        self.env[name] = "t"
        self.w.put(f"{name} = {e}")

    def write_transform(self) -> None:
        found = self.names("t")
        if not found:
            return self.new_transform()
        n, how = self.r.choice(found), self.r.choice(("=", "+=", "*="))
        self.w.put(
            self.r.choice(
                (
                    f"{n}.p = {self.tame_vec()}",
                    f"{n}.q = {self.turn()}",
                    f"{n}.p[{self.r.randrange(3)}] {how} {self.tame(1)}",
                    f"{n}.q.y {how} {self.tame(1)}",
                    f"{n}[{self.r.randrange(7)}] {how} {self.tame(1)}",
                    f"wb.transform_set_translation({n}, {self.tame_vec()})",
                    f"wb.transform_set_rotation({n}, {self.turn()})",
                )
            )
        )

    def new_int(self) -> None:
        e = self.index()
        if e.startswith("-") or " - " in e:
            e = f"({e}) % 3"
        name = self.fresh("j")
        self.w.put(f"{name} = int({e}) % 3")
        self.env[name] = "i"

    def reassign(self) -> None:
        floats, vecs = self.names("f"), self.names("v")
        if vecs and self.chance(0.3):
            n = self.r.choice(vecs)
            forms = f"{n} = {self.tame_vec()}", f"{n} += {self.tame_vec()}", f"{n} *= {self.tame(1)}"
            self.w.put(self.r.choice(forms))
        elif self.names("i", True) and self.chance(0.15):
            n = self.r.choice(self.names("i", True))
            self.w.put(f"{n} = ({n} + {self.r.randint(1, 2)}) % 3")
        elif floats:
            n = self.r.choice(floats)
            e = self.tame()
            other = self.r.choice(floats)
            self.w.put(
                self.r.choice(
                    (
                        f"{n} = {e}",
                        f"{n} += {e}",
                        f"{n} -= {e}",
                        f"{n} *= {e}",
                        f"{n} = wb.sin({n} + {e})",
                        f"{n} = {other}",
                        f"{n} /= F(2.0) + wb.sin({e})",
                    )
                )
            )
        else:
            self.new_float()

    def component(self) -> None:
        vecs = self.names("v")
        if not vecs:
            return self.new_vec()
        n = self.r.choice(vecs)
        target = self.r.choice((f"{n}[{self.r.randrange(3)}]", f"{n}.{self.r.choice('xyz')}"))
        if self.names("i") and self.chance(0.2):
            target = f"{n}[{self.r.choice(self.names('i'))}]" if self.bounded() else target
        self.w.put(f"{target} {self.r.choice(('=', '+=', '*=', '-='))} {self.tame(1)}")

    def bounded(self) -> bool:
        return self.length == 3

    def swap(self) -> None:
        for type in self.r.sample("fv", 2):
            if len(self.names(type)) >= 2:
                a, b = self.r.sample(self.names(type), 2)
                self.w.put(f"{a}, {b} = {b}, {a}")
                return
        self.new_float()

    def target(self) -> tuple[str, str] | None:
        """(an element that may be stored, its type)."""
        found = self.of("a1", "a2", "av", "pack", "ps", modes=("any", "own"))
        if not found:
            return None
        p = self.r.choice(found)
        if p.kind == "ps":
            field = self.r.choice((".a", ".v", ".v[2]"))
            return self.cell(p, True) + field, "v" if field == ".v" else "f"
        if p.kind == "pack":
            return f"{p.name}.{self.r.choice('xy')}[{self.index()}]", "f"
        return self.cell(p, True), "v" if p.kind == "av" else "f"

    def store(self) -> None:
        t = self.target()
        if t is None:
            return
        cell, type = t
        if type == "v" and self.chance(0.5):
            self.w.put(f"{cell}{self.r.choice(('[0]', '[1]', '[2]', '.x', '.y'))} = {self.tame()}")
        elif type == "v":
            self.w.put(f"{cell} = {self.tame_vec()}")
        else:
            again = f"wb.sin({cell} * {self.float(1)})"
            self.w.put(f"{cell} = {again if self.chance(0.3) else self.tame()}")

    def update(self) -> None:
        t = self.target()
        if t is None:
            return
        cell, type = t
        if type == "v":
            if self.chance(0.5):
                part = self.r.choice(("[0]", ".z", "[1]"))
                self.w.put(f"{cell}{part} {self.r.choice(('+=', '-=', '*='))} {self.tame(1)}")
            else:
                self.w.put(f"{cell} {self.r.choice(('+=', '-='))} {self.tame_vec()}")
        else:
            self.w.put(f"{cell} {self.r.choice(('+=', '-=', '*='))} {self.tame()}")

    def add_atomic(self) -> None:
        found = self.of("a1", "a2", "av", modes=("any", "own", "add"))
        if not found:
            return
        p = self.r.choice(found)
        own = self.threads and p.mode == "own"
        first = "i" if own else self.index()
        where = f"{first}, {'j' if own and self.plane else self.index()}" if p.kind == "a2" else first
        value = self.tame_vec() if p.kind == "av" else self.tame()
        self.w.put(f"wb.{self.r.choice(('atomic_add', 'atomic_add', 'atomic_sub'))}({p.name}, {where}, {value})")

    def old_value(self) -> None:
        found = self.of("a1", modes=("any",))
        if not found or self.threads:
            return
        index, value = self.index(), self.tame()
        name = self.fresh("f")
        self.w.put(f"{name} = wb.atomic_add({self.r.choice(found).name}, {index}, {value})")
        self.env[name] = "f"

    def count(self) -> None:
        """Integers in memory that later decide addresses; they stay between 0 and 2."""
        found = self.of("ct")
        if not found:
            return self.store()
        p = self.r.choice(found)
        cell = f"{p.name}[i]" if self.threads else f"{p.name}[{self.index()}]"
        if self.threads or self.chance(0.7):
            self.w.put(f"{cell} = ({cell} + {self.r.choice([*self.names('i'), '1', '2'])}) % 3")
            return
        name = self.fresh("j")
        self.w.put(f"{name} = wb.atomic_add({p.name}, {self.index()}, {self.r.choice((3, -3))})")
        self.w.put(f"{name} = (({name} % 3) + 3) % 3")
        self.env[name] = "i"

    def whole_struct(self) -> None:
        found, locals = self.of("ps", modes=("any", "own")), self.names("s")
        if not found:
            return self.new_struct()
        p = self.r.choice(found)
        if locals and self.chance(0.5):
            self.w.put(f"{self.cell(p, True)} = {self.r.choice(locals)}")
            return
        cell, name = self.cell(p, False), self.fresh("s")
        self.env[name] = "s"
        self.w.put(f"{name} = {cell}")

    def tuple_call(self) -> None:
        made = self.call("fv", 2)
        if not made:
            return self.reassign()
        a, v = self.fresh("f"), self.fresh("v")
        self.w.put(f"{a}, {v} = {made}")
        self.env[a], self.env[v] = "f", "v"

    def new_struct(self) -> None:
        a, v = self.tame(), self.tame_vec()
        name = self.fresh("s")
        self.w.put(f"{name} = Pair()")
        self.w.put(f"{name}.a = {a}")
        if self.chance(0.7):
            self.w.put(f"{name}.v = {v}")
        self.env[name] = "s"

    def write_struct(self) -> None:
        found = self.names("s")
        if not found:
            return self.new_struct()
        n = self.r.choice(found)
        self.w.put(
            self.r.choice(
                (
                    f"{n}.a = {self.tame()}",
                    f"{n}.a *= {self.tame(1)}",
                    f"{n}.v[1] = {self.tame(1)}",
                    f"{n}.v += {self.tame_vec()}",
                    f"{n}.v.x += {self.tame(1)}",
                    f"{n} = {self.r.choice(found)}",
                    f"{n} = {self.call('s', 2) or n}",
                )
            )
        )

    def branch(self) -> None:
        self.w.put(f"if {self.condition()}:")
        self.block(self.r.randint(1, 3))
        if self.chance(0.3):
            self.w.put(f"elif {self.condition()}:")
            self.block(self.r.randint(1, 2))
        if self.chance(0.6):
            self.w.put("else:")
            self.block(self.r.randint(1, 3))

    def for_loop(self) -> None:
        if self.loops >= 3 or self.cost > 20:
            return self.new_float()
        name = self.fresh("k")
        counts, ints = self.of("n"), self.names("i")
        roll = self.r.random()
        if roll < 0.35:
            bounds, small = str(self.r.randint(1, 3)), True
        elif roll < 0.45:
            bounds, small = self.r.choice(("2, -1, -1", "0, 3, 2", "1, 3", "2, 0, -1", "0")), True
        elif roll < 0.7 and counts:
            bounds, small = self.r.choice(counts).name, True
        elif roll < 0.85 and ints:
            bounds, small = self.r.choice(ints), True
        elif ints:
            bounds, small = f"{self.r.choice(ints)}, 3", True
        else:
            bounds, small = "2", True
        self.w.put(f"for {name} in range({bounds}):")
        self.env[name] = "i"
        self.fixed.add(name)
        self.loops, self.cost = self.loops + 1, self.cost * 2
        before = dict(self.env)
        self.exits_and_block()
        self.loops, self.cost = self.loops - 1, self.cost // 2
        self.env = {n: t for n, t in before.items() if n != name}

    def exits_and_block(self) -> None:
        if self.chance(0.25):
            self.w.depth += 1
            self.w.put(f"if {self.condition()}:")
            self.w.put(f"    {self.r.choice(('break', 'continue'))}")
            self.w.depth -= 1
        self.block(self.r.randint(1, 4))
        if self.chance(0.15):
            self.w.depth += 1
            self.w.put(f"if {self.condition()}:")
            self.block(1)
            self.w.put("    break")
            self.w.depth -= 1

    def while_loop(self) -> None:
        if self.loops >= 2 or self.cost > 20:
            return self.new_float()
        name = self.fresh("w")
        limit = self.r.choice([p.name for p in self.of("n")] + ["2", "3"])
        self.w.put(f"{name} = int(0)")
        extra = f" and ({self.condition()})" if self.chance(0.3) else ""
        self.w.put(f"while {name} < {limit}{extra}:" if self.chance(0.8) else "while True:")
        endless = self.w.lines[-1].endswith("while True:")
        self.w.depth += 1
        if endless:
            self.w.put(f"if {name} >= {limit}:")
            self.w.put("    break")
        early = self.chance(0.5) or endless
        if early:
            self.w.put(f"{name} += 1")
        self.w.depth -= 1
        if not early:
            self.env[name] = "i"
            self.fixed.add(name)
        self.loops, self.cost = self.loops + 1, self.cost * 2
        if early:
            self.exits_and_block()
        else:
            self.block(self.r.randint(1, 3))
            self.w.put(f"    {name} += 1")
        self.loops, self.cost = self.loops - 1, self.cost // 2
        self.env.pop(name, None)

    def alias(self) -> None:
        found = [p for p in self.of("a1", modes=("any",)) if not self.threads]
        rows = [p for p in self.of("a2", modes=("any",)) if not self.threads]
        if self.loops or not (found or rows) or self.w.depth > 1:
            return
        name = self.fresh("t")
        p = self.r.choice(found + rows)
        self.w.put(f"{name} = {p.name}" if p.kind == "a1" else f"{name} = {p.name}[{self.index()}]")
        self.params = [*self.params, Param(name, "a1")]

    def leave(self) -> None:
        if not self.kernel or self.chance(0.6):
            return self.store()
        self.w.put(f"if {self.condition()}:")
        self.block(1)
        self.w.put("    return")

    def nothing_call(self) -> None:
        made = self.call("none", 2)
        if made:
            self.w.put(made)
        else:
            self.update()

    # ---- funcs and kernels

    def func(self) -> None:
        result = self.r.choice(("f", "f", "v", "none", "s", "fv"))
        types = [self.r.choice(("f", "f", "v", "i", "s")) for _ in range(self.r.randint(1, 3))]
        if result == "none" or self.chance(0.25):
            types.append("a1")
        params = [Param(self.fresh("p"), {"f": "c", "v": "v", "i": "n", "a1": "a1", "s": "pair"}[t]) for t in types]
        self.enter(params, False, False)
        for p, t in zip(params, types, strict=True):
            if t == "i":
                self.fixed.add(p.name)
            if t != "a1":
                self.env[p.name] = t
        self.budget = self.r.randint(1, 5)
        name = self.fresh("func")
        self.w.put("@wb.func")
        if result == "s":
            if "s" not in types:
                types.append("s")
                params.append(Param(self.fresh("p"), "pair"))
                self.env[params[-1].name] = "s"
        made = {
            "f": self.tame,
            "v": self.tame_vec,
            "none": lambda: "",
            "s": lambda: self.r.choice(self.names("s")),
            "fv": lambda: f"{self.tame()}, {self.tame_vec()}",
        }[result]
        head = ", ".join(f"{p.name}: {ANNOTATION[p.kind]}" for p in params)
        self.w.put(f"def {name}({head}):")
        self.w.depth += 1
        if self.chance(0.5) and any(t == "i" for t in types):
            self.w.put(f"if {self.condition()}:")
            self.block(1)
            self.w.put(f"    return {made()}")
        if self.chance(0.2) and any(t == "i" for t in types):
            k = self.fresh("k")
            self.w.put(f"for {k} in range(3):")
            self.env[k] = "i"
            self.fixed.add(k)
            self.w.put(f"    if {self.condition()}:")
            self.w.put(f"        return {made()}")
            del self.env[k]
        self.w.depth -= 1
        self.block(self.budget, inner=False)
        self.w.put(f"    return {made()}")
        self.w.put("")
        self.funcs.append((name, types, result))

    def make_kernel(self) -> None:
        threads = self.chance(0.4)
        kinds = ["a1", "a1", self.r.choice(("a1", "a2", "av")), *(["idx"] if self.chance(0.7) else [])]
        kinds += [
            k
            for k, p in (
                ("a2", 0.2),
                ("av", 0.3),
                ("n", 0.6),
                ("c", 0.5),
                ("v", 0.2),
                ("pack", 0.2),
                ("ct", 0.3),
                ("ps", 0.25),
            )
            if self.chance(p)
        ]
        if threads:
            kinds = [k for k in kinds if k != "pack"]
        params = [Param(self.fresh("x"), k) for k in kinds]
        self.plane = threads and self.chance(0.25)
        if self.plane:
            kinds = ["a2", *[k for k in kinds if k != "ct"]]
            params = [Param(self.fresh("x"), k) for k in kinds]
        if threads:
            for p in params:
                p.mode = self.r.choice(("read", "read", "own", "own", "add")) if p.kind in ("a1", "a2", "av") else "any"
                if p.kind == "ps":
                    p.mode = self.r.choice(("read", "own"))
                if self.plane and p.kind != "a2" and p.mode == "own":
                    p.mode = "read"
            params[0].mode = "own"
        self.enter(params, threads, True)
        name = self.fresh("kernel")
        self.w.put("@wb.kernel")
        self.w.put(f"def {name}({', '.join(f'{p.name}: {ANNOTATION[p.kind]}' for p in params)}):")
        if threads:
            self.w.put("    i, j = wb.tid()" if self.plane else "    i = wb.tid()")
            for name_ in ("i", "j") if self.plane else ("i",):
                self.env[name_] = "i"
                self.fixed.add(name_)
        for p in params:
            if p.kind == "n":
                self.env[p.name] = "i"
                self.fixed.add(p.name)
            if p.kind == "c" and self.chance(0.3):
                self.env[p.name] = "f"
        self.block(self.budget, inner=False)
        self.env = {n: t for n, t in self.env.items() if n in ("i", "j", *[p.name for p in params])}
        self.w.depth = 1
        self.params, self.budget = params, 1
        self.store()
        self.w.depth = 0
        self.w.put("")
        self.kernels.append((name, params, (2 if self.plane else 1) if threads else 0))
        self.plane = False

    # ---- the host side

    def script(self) -> list[tuple]:
        """Launches and host writes over the bases, which are longer than the arguments."""
        steps: list[tuple] = []
        for _ in range(self.r.randint(1, 5)):
            if self.chance(0.2):
                steps.append(self.host_write())
            name, params, threads = self.r.choice(self.kernels)
            args, taken = [], {}
            for p in params:
                args.append(self.argument(p, threads, taken))
            dim = (1, self.length, (self.length, self.length))[threads]
            for _ in range(self.r.choice((1, 1, 1, 2))):
                steps.append(("launch", name, dim, tuple(args)))
        return steps

    def view(self, kind: str, base: str) -> tuple:
        n = self.length
        if kind == "a1" and base == "M":
            return ("row", self.r.randrange(n + 2)) if self.chance(0.5) else ("column", self.r.randrange(n + 2))
        if kind == "a2":
            return ("block", self.r.randint(0, 2), self.r.randint(0, 2))
        roll = self.r.random()
        if roll < 0.6:
            return ("slice", 0, 1)
        return ("slice", self.r.randint(0, n), 1) if roll < 0.85 else ("slice", self.r.randint(0, 1), 2)

    def argument(self, p: Param, threads: int, taken: dict[str, str]) -> Any:
        if p.kind == "idx":
            return ("array", "I", ("slice", 0, 1))
        if p.kind == "ct":
            if threads and "J" in taken:
                return ("fresh", "ct")
            taken["J"] = "own"
            return ("array", "J", ("slice", 0, 1))
        if p.kind == "n":
            return self.r.randint(0, 2)
        if p.kind == "c":
            return round(self.r.uniform(-1, 1), 2)
        if p.kind == "v":
            return ("vec", tuple(round(self.r.uniform(-1, 1), 2) for _ in range(3)))
        if p.kind == "pack":
            x, y = (self.argument(Param("", "a1"), threads, taken) for _ in range(2))
            return ("pack", x, y, 0.5)
        bases = {"a1": "ABCM", "a2": "MN", "av": "VW", "ps": "P"}[p.kind]
        options = []
        for base in bases:
            mode = taken.get(base)
            if not threads or mode is None or (mode == "read" and p.mode == "read"):
                options.append(base)
        if not options:  # threads: an array of its own
            return ("fresh", p.kind)
        base = self.r.choice(options)
        taken[base] = p.mode
        return ("array", base, self.view(p.kind, base))

    def host_write(self) -> tuple:
        roll = self.r.random()
        if roll < 0.4:
            a, b = self.r.choice("ABC"), self.r.choice("ABC")
            first, second = (("slice", self.r.randint(0, 2), 1) for _ in range(2))
            return ("copy", ("array", a, first), ("array", b, second))
        if roll < 0.75:
            (a, first), (b, second) = ((self.r.choice("ABC"), self.r.randint(0, 2)) for _ in range(2))
            return ("operate", self.r.choice(("=", "+=", "-=", "*=")), a, first, b, second)
        target = ("array", self.r.choice("ABC"), ("slice", self.r.randint(0, 2), self.r.choice((1, 2))))
        return ("fill", target, round(self.r.uniform(-1, 1), 2)) if roll < 0.87 else ("zero", target)

    def program(self) -> Program:
        for line in (HEADER + STRUCTS).splitlines():
            self.w.put(line)
        for _ in range(self.r.randint(0, 3)):
            self.func()
        for _ in range(self.r.randint(1, 3)):
            self.make_kernel()
        steps = self.script()
        required = tuple(b for b in "ABCMNVWP" if self.chance(0.75)) or ("A",)
        retained = tuple(b for b in "ABCMNVWP" if self.chance(0.1))
        return Program("\n".join(self.w.lines) + "\n", self.length, steps, required, retained, self.r.getrandbits(31))


# ---- programs


LETTER = {16: "h", 32: "", 64: "d"}


@dataclass
class Program:
    """Source text, a script, and which arrays ask for gradients. `seed` draws contents, seeds and directions."""

    source: str
    length: int
    steps: list[tuple]
    required: tuple[str, ...]
    retained: tuple[str, ...]
    seed: int
    scope: dict[str, Any] = field(default_factory=dict)
    bits: int = 64  # of its floats

    def compile(self) -> None:
        file = f"<fuzz-{self.seed}-{self.bits}-{id(self)}>"
        text = self.source.replace("F = wb.float64", f"F = wb.float{self.bits}")
        for name in ("vec3", "mat33"):
            text = text.replace(f"wb.{name}d", f"wb.{name}{LETTER[self.bits]}")
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        self.scope = {"__name__": "fuzz"}
        exec(compile(text, file, "exec"), self.scope)

    @property
    def scalar(self) -> Any:
        return getattr(wb, f"float{self.bits}")

    @property
    def vector(self) -> Any:
        return getattr(wb, f"vec3{LETTER[self.bits]}")

    def contents(self) -> dict[str, np.ndarray]:
        rng, n = np.random.default_rng(self.seed), self.length
        shapes = {
            "A": 2 * n + 1,
            "B": 2 * n + 1,
            "C": 2 * n + 1,
            "M": (n + 2, n + 2),
            "N": (n + 2, n + 2),
            "V": (2 * n + 1, 3),
            "W": (2 * n + 1, 3),
            "P": (2 * n + 1, 4),
        }
        return {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}

    def arrays(self, contents: dict[str, np.ndarray], grads: bool) -> dict[str, Any]:
        made = {}
        for name, data in contents.items():
            made[name] = self.fill(name, data, grads and name in self.required)
            if grads and name in self.retained and name not in self.required:
                made[name].retain_grad = True
        table = np.random.default_rng(self.seed + 1).integers(0, 3, self.length)
        made["I"] = wb.array(table.astype(np.int32), dtype=int)
        made["J"] = wb.array(table[::-1].astype(np.int32).copy(), dtype=int)
        return made

    def fill(self, name: str, data: np.ndarray, requires_grad: bool) -> Any:
        """An array of these contents; records for P, whose columns are `a` and the components of `v`."""
        if name != "P":
            dtype = self.vector if name in "VW" else self.scalar
            return wb.array(data.astype(self.scalar.numpy), dtype=dtype, requires_grad=requires_grad)
        made = wb.zeros(len(data), dtype=self.scope["Pair"], requires_grad=requires_grad)
        records = made.numpy().copy()
        records["a"], records["v"] = data[:, 0], data[:, 1:]
        made.assign(records)
        return made

    def argument(self, spec: Any, arrays: dict[str, Any], extra: dict[Any, Any]) -> Any:
        n = self.length
        if not isinstance(spec, tuple):
            return spec
        if spec[0] == "vec":
            return self.vector(*spec[1])
        if spec[0] == "fresh":
            shape = (n, n) if spec[1] == "a2" else (n,)
            key = (spec, len(extra))
            dtypes = {"av": self.vector, "ct": int, "ps": self.scope["Pair"]}
            extra[key] = wb.zeros(shape, dtype=dtypes.get(spec[1], self.scalar))
            return extra[key]
        if spec[0] == "pack":
            pack = self.scope["Pack"]()
            pack.x, pack.y = (self.argument(s, arrays, extra) for s in spec[1:3])
            pack.k = spec[3]
            return pack
        base, view = arrays[spec[1]], spec[2]
        if view[0] == "row":
            return base[view[1]][0:n]
        if view[0] == "column":
            return base[0:n, view[1]]
        if view[0] == "block":
            return base[view[1] : view[1] + n, view[2] : view[2] + n]
        return base[view[1] : view[1] + n * view[2] : view[2]] if spec[1] not in "IJ" else base

    def run(self, arrays: dict[str, Any]) -> None:
        extra: dict[Any, Any] = {}
        for step in self.steps:
            if step[0] == "launch":
                _, name, dim, args = step
                wb.launch(self.scope[name], dim, inputs=[self.argument(a, arrays, extra) for a in args])
            elif step[0] == "copy":
                wb.copy(self.argument(step[1], arrays, extra), self.argument(step[2], arrays, extra))
            elif step[0] == "operate":
                self.operate(arrays, *step[1:])
            elif step[0] == "fill":
                self.argument(step[1], arrays, extra).fill_(step[2])
            else:
                self.argument(step[1], arrays, extra).zero_()

    def operate(self, arrays: dict[str, Any], how: str, a: str, first: int, b: str, second: int) -> None:
        """Arithmetic on views: a[...] += b[...] and the like."""
        n = self.length
        target, source = arrays[a], arrays[b][second : second + n]
        if how == "=" and b not in self.required:  # an assignment would start a leaf: by design another derivative
            wb.copy(target[first : first + n], source)
        elif how == "=":
            target[first : first + n] = source
        elif how == "+=":
            target[first : first + n] += source
        elif how == "-=":
            target[first : first + n] -= source
        else:
            target[first : first + n] *= source

    def seeds(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed + 2)
        return {n: rng.uniform(-1, 1, d.shape) * (rng.random() < 0.8) for n, d in self.contents().items()}

    def value(self, contents: dict[str, np.ndarray]) -> float:
        arrays = self.arrays(contents, False)
        self.run(arrays)
        return float(sum((w * plain(arrays[n])).sum() for n, w in self.seeds().items()))

    def walked(self, arrays: dict[str, Any] | None = None, keep: str = "needed") -> tuple[wb.Tape, dict, dict]:
        """The tape of the compiled program after a backward pass, the arrays, and the seeds by name. May be refused."""
        arrays = self.arrays(self.contents(), True) if arrays is None else arrays
        with wb.Tape(keep=keep) as tape:
            self.run(arrays)
        seeds = {n: self.fill(n, w, False) for n, w in self.seeds().items() if tape.log.has_touched(arrays[n].span)}
        tape.backward(grads={arrays[n]: seed for n, seed in seeds.items()})
        return tape, arrays, seeds

    def gradient(self, twice: bool = False) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Gradients of the required arrays, and the final contents, which the walk must leave alone."""
        contents = self.contents()
        arrays = self.arrays(contents, True)
        with wb.Tape(keep="all" if self.seed % 7 == 0 else "needed") as tape:
            self.run(arrays)
        final = {n: plain(arrays[n]) for n in (*contents, "J")}
        seeds = {}
        for n, w in self.seeds().items():
            if tape.log.has_touched(arrays[n].span):
                seeds[arrays[n]] = self.fill(n, w, False)
        tape.backward(grads=seeds)
        if twice:
            tape.zero()
            tape.backward(grads=seeds)
        for n in final:
            if not np.array_equal(plain(arrays[n]), final[n], equal_nan=True):
                raise AssertionError(f"backward changed the contents of {n}")
        grads = {}
        for n in self.required:
            g = arrays[n].grad
            grads[n] = np.zeros_like(contents[n]) if g is None else plain(g)
            if arrays[n] not in seeds:
                grads[n] = grads[n] + self.seeds()[n]
        return grads, final


def plain(a: Any) -> np.ndarray:
    """A copy of the contents, records as rows of numbers."""
    data = a.numpy()
    return np.concatenate([data["a"][:, None], data["v"]], 1) if data.dtype.names else data.copy()


@dataclass
class Outcome:
    """verdict: exact | refused | unsure | wild | wrong | crash."""

    verdict: str
    detail: str = ""
    place: str = ""  # of a crash: what tells it from another one


def check(program: Program, c: bool = False, wild: float = 1e3) -> Outcome:
    """Compare the gradient with central differences, and the C backend with the interpreter."""
    before = wb.config.backend
    try:
        wb.config.backend = "numpy"
        program.compile()
        return _check(program, c, wild)
    except REFUSALS as e:
        return Outcome("refused", f"[{getattr(e, 'slug', '?')}] {' '.join(str(e).split())}")
    except Exception as e:  # anything else is a defect of ours
        last = traceback.extract_tb(e.__traceback__)[-1]
        text = f"{type(e).__name__}: {e}\n{traceback.format_exc(limit=-6)}"
        return Outcome("crash", text, f"{type(e).__name__} {last.filename}:{last.lineno}")
    finally:
        wb.config.backend = before


def _check(program: Program, c: bool, wild: float) -> Outcome:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an overwritten array has the gradient 0 is what we check
        grads, final = program.gradient(twice=program.seed % 4 == 0)
        largest = max(float(np.abs(d).max()) for d in final.values())
        if not largest < wild:
            return Outcome("wild", f"{largest}")
        found = _direction(program, grads, 0)
        if found.verdict != "exact":
            return found
        bits, tolerance = ((64, 1e-11), (32, 1e-3), (64, 1e-11), (16, 1e-2))[program.seed % 4]
        found = transposed(replace(program, bits=bits), tolerance)
        if found.verdict == "wrong":
            return found
        return _compare_c(program, grads, final) if c else Outcome("exact")


def _direction(program: Program, grads: dict[str, np.ndarray], k: int) -> Outcome:
    rng, contents = np.random.default_rng(program.seed + 10 + k), program.contents()
    way = {n: rng.standard_normal(contents[n].shape) for n in program.required}
    f = lambda t: program.value({n: d + t * way[n] if n in way else d for n, d in contents.items()})  # noqa: E731
    estimates = []
    near, middle, far = (f(h) - f(-h) for h in (5e-4, 1e-3, 2e-3))
    for h, one, two in ((1e-3, middle, far), (5e-4, near, middle)):
        estimates.append((8 * one - two) / (12 * h))
    want, unsure = estimates[1], abs(estimates[0] - estimates[1])
    got = float(sum((grads[n] * way[n]).sum() for n in way))
    scale = max(1.0, abs(want), sum(float(np.abs(grads[n]).max()) for n in way))
    if not unsure <= 1e-4 * scale:
        return Outcome("unsure", f"{estimates} got {got}")
    if abs(got - want) <= 1e-6 * scale + unsure:
        return Outcome("exact")
    return Outcome("wrong", f"along direction {k}: got {got!r}, want {want!r} (steps differ by {unsure:.1e})")


def transposed(program: Program, tolerance: float) -> Outcome:
    """Is forward mode the transpose of the gradient: <u, J v> = <J^T u, v>, everything moved and seeded at once."""
    program.compile()
    contents = program.contents()
    arrays = program.arrays(contents, True)

    def floats(names: Any) -> list[Any]:
        return [f for n in names for f in ([arrays[n].field("a"), arrays[n].field("v")] if n == "P" else [arrays[n]])]

    try:
        with wb.Tape() as tape:
            program.run(arrays)
        before = {n: plain(arrays[n]) for n in contents}
        rng = np.random.default_rng(program.seed + 3)
        v = {a: rng.normal(size=a.data.shape) for a in floats(program.required) if a.allocation in tape.active}
        u = {a: rng.normal(size=a.data.shape) for a in floats(contents) if a.allocation in tape.active}
        moved, space = wb.jvp(tape, v), Workspace()
        for a, seeds in u.items():
            shadow_of(a, space)[...] += seeds
        walk(tape, space)
    except REFUSALS as e:
        return Outcome("refused", f"[{e.slug}] {e}")
    for n, data in before.items():
        if not np.array_equal(plain(arrays[n]), data, equal_nan=True):
            return Outcome("wrong", f"forward mode changed the contents of {n}")
    ahead = np.concatenate([np.ravel(u[a] * moved[a]) for a in u] or [np.zeros(1)]).astype(float)
    back = np.concatenate([np.ravel(v[a] * shadow_of(a, space)) for a in v] or [np.zeros(1)]).astype(float)
    scale = max(1.0, float(np.abs(ahead).sum()), float(np.abs(back).sum()))
    if not scale < (1e6 if program.bits == 64 else 1e4):
        return Outcome("wild", f"{scale}")
    if abs(ahead.sum() - back.sum()) <= tolerance * scale:
        return Outcome("exact")
    return Outcome("wrong", f"float{program.bits}: <u, Jv> = {ahead.sum()!r}, <J^T u, v> = {back.sum()!r}")


@contextmanager
def small_launches_cut() -> Iterator[None]:
    """Few threads are split, and go to workers, as many would."""
    switches = [("thresholds", "PARALLEL_FROM", 1), ("thresholds", "PULL_FROM", 1), ("executable", "WORTH", 1e9)]
    usual = [getattr(sys.modules[f"workbench.launches.{module}"], name) for module, name, _ in switches]
    for module, name, value in switches:
        setattr(sys.modules[f"workbench.launches.{module}"], name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(switches, usual, strict=True):
            setattr(sys.modules[f"workbench.launches.{module}"], name, value)


def _compare_c(program: Program, grads: dict[str, np.ndarray], final: dict[str, np.ndarray]) -> Outcome:
    wb.config.backend = "c"
    with small_launches_cut():
        again, end = program.gradient()
    for what, mine, theirs in (("contents", final, end), ("gradient", grads, again)):
        for n in mine:
            scale = max(1.0, float(np.abs(mine[n]).max()))
            if not np.abs(mine[n] - theirs[n]).max() <= 1e-9 * scale:
                return Outcome(
                    "wrong", f"c differs from numpy in the {what} of {n}: {theirs[n].tolist()} {mine[n].tolist()}"
                )
    return Outcome("exact")


def make(seed: int, transforms: bool = False) -> Program:
    """The program of a seed."""
    return Generator(seed, transforms).program()


# ---- smaller programs with the same fault


def minimise(program: Program, c: bool, seconds: float = 60.0) -> Program:
    """Drop steps and lines while the verdict stays."""
    first, until = check(program, c), time.time() + seconds
    best = program
    changed = True
    while changed and time.time() < until:
        changed = False
        for smaller in _smaller(best):
            if time.time() > until:
                break
            now = check(smaller, c)
            if (now.verdict, now.place) == (first.verdict, first.place):
                best, changed = smaller, True
                break
    return best


def _smaller(p: Program):
    def same(**new: Any) -> Program:
        old = {"source": p.source, "length": p.length, "steps": p.steps, "required": p.required, "retained": p.retained}
        return Program(**{**old, **new}, seed=p.seed)

    for k in range(len(p.steps)):
        if len(p.steps) > 1:
            yield same(steps=p.steps[:k] + p.steps[k + 1 :])
    lines = p.source.splitlines()
    first = len((HEADER + STRUCTS).splitlines())
    for size in (12, 6, 3, 2, 1):
        for k in range(len(lines) - size, first - 1, -1):
            chunk = lines[k : k + size]
            if any(s.strip() for s in chunk):
                text = "\n".join(lines[:k] + lines[k + size :]) + "\n"
                if _parses(text):
                    yield same(source=text)
    for k in range(first, len(lines)):
        for text in _simpler_lines(lines[k]):
            yield same(source="\n".join(lines[:k] + [text] + lines[k + 1 :]) + "\n")


def _simpler_lines(line: str):
    indent = line[: len(line) - len(line.lstrip())]
    try:
        tree = ast.parse(line.strip())
    except SyntaxError:
        return
    if not tree.body or not isinstance(tree.body[0], (ast.Assign, ast.AugAssign)):
        return
    value = tree.body[0].value
    for sub in ast.walk(value):
        if sub is not value and isinstance(sub, ast.expr) and not isinstance(sub, ast.Name):
            old = ast.unparse(value)
            new = ast.unparse(sub)
            if len(new) < len(old):
                yield (
                    indent + line.strip().replace(ast.unparse(value), new)
                    if old in line
                    else (indent + ast.unparse(ast.Module([_with(tree.body[0], sub)], [])))
                )


def _with(stmt: Any, value: Any) -> Any:
    new = copy.copy(stmt)
    new.value = value
    return new


def _parses(text: str) -> bool:
    try:
        compile(text, "<try>", "exec")
    except SyntaxError:
        return False
    return True


def describe(p: Program) -> str:
    body = "\n".join(p.source.splitlines()[len((HEADER + STRUCTS).splitlines()) :])
    return f"{body}\n# length {p.length} required {p.required} retained {p.retained} seed {p.seed}\n# steps {p.steps}"


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(make: Callable[[int], Program]) -> int:
    """Check the programs that `make` gives for the seeds of the command line: 1 if one is wrong or crashes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--c-every", type=int, default=10, help="compare with the C backend every n programs")
    parser.add_argument("--minimise", type=float, default=30.0, help="seconds to spend on each failure")
    args = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    slugs: collections.Counter[str] = collections.Counter()
    start = time.time()
    for seed in range(args.seed, args.seed + args.programs):
        c = args.c_every > 0 and seed % args.c_every == 0
        program = make(seed)
        outcome = check(program, c)
        counts[outcome.verdict] += 1
        if (seed - args.seed) % 100 == 99:
            say(f"after {seed}: {dict(counts)}")
        if outcome.verdict == "refused":
            slugs[outcome.detail.split("]")[0] + "]"] += 1
            if slugs[outcome.detail.split("]")[0] + "]"] <= 2:
                say(f"refused: program {seed}: {outcome.detail[:300]}")
        if outcome.verdict in ("wrong", "crash"):
            say(f"=== program {seed}{' (c)' if c else ''}: {outcome.verdict}: {outcome.detail}")
            small = minimise(program, c, args.minimise) if args.minimise else program
            say(f"{describe(small)}\n# {check(small, c).detail[:600]}")
    took = time.time() - start
    say(f"{dict(counts)} refused by {dict(slugs)} in {took:.0f} s")
    return 1 if counts["wrong"] or counts["crash"] else 0


if __name__ == "__main__":
    sys.exit(main(lambda seed: make(seed, transforms=seed % 2 == 0)))

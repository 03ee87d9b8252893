"""Random kernels of Warp for `watch`, as the text of a module: what its adjoint gets right and what it gets wrong.

Every kernel works on arrays of `SIZE` numbers, thread i writes cell i (or adds to others), so that none has a race.
"""

from __future__ import annotations

import numpy as np

SIZE = 4
HEAD = """
import warp as wp


@wp.struct
class Pair:
    a: wp.array(dtype=float)
    b: wp.array(dtype=float)
    k: float


@wp.func
def bend(x: float):
    return x * x * 0.5 + wp.sin(x)


@wp.func
def cubed(x: float):
    return x * x * x


@wp.func_grad(cubed)
def adj_cubed(x: float, adj_ret: float):
    wp.adjoint[x] += 3.0 * x * x * adj_ret


@wp.func
def slipped(x: float):
    return x * x * x


@wp.func_grad(slipped)
def adj_slipped(x: float, adj_ret: float):
    wp.adjoint[x] += 2.0 * x * x * adj_ret


@wp.func
def powered(x: float, n: int):
    p = float(1.0)
    for _ in range(n):
        p = p * x
    return p


@wp.func
def both(x: float, z: float):
    return x * z, x - 0.5 * z


@wp.kernel
def weigh(x: wp.array(dtype=float), total: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(total, 0, (float(i) + 1.0) * x[i])
"""
F, V = "wp.array(dtype=float)", "wp.array(dtype=wp.vec2)"
SIGNATURES = {
    "unary": f"x: {F}, y: {F}",
    "turns": f"x: {F}, n: int, y: {F}",
    "binary": f"x: {F}, z: {F}, y: {F}",
    "inplace": f"x: {F}",
    "updated": f"x: {F}, z: {F}",
    "added": f"x: {F}, y: {F}",
    "scattered": f"x: {F}, y: {F}",
    "off": f"x: {F}, y: {F}",
    "packed": f"x: {F}, v: {V}",
    "unpacked": f"v: {V}, y: {F}",
    "vectors": f"v: {V}, w: {V}",
    "struct_in": f"s: Pair, y: {F}",
    "struct_out": f"x: {F}, s: Pair",
    "grid": "x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)",
}
KINDS = tuple(SIGNATURES)
NEIGHBOUR = f"(i + 1) % {SIZE}"


class Text:
    """Writes one kernel."""

    def __init__(self, rng: np.random.Generator, kind: str, name: str):
        self.rng, self.kind, self.name = rng, kind, name
        self.lines: list[str] = []
        self.locals: list[str] = []
        self.reads: list[str] = []
        self.deep = "    "

    def pick(self, *choices: str) -> str:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def add(self, line: str) -> None:
        self.lines.append(self.deep + line)

    def number(self) -> str:
        return f"{self.rng.uniform(0.2, 1.2):.2f}"

    def atom(self) -> str:
        atoms = [*self.locals, *self.locals, *self.reads]
        return self.pick(*atoms) if atoms and self.chance(0.85) else self.number()

    def expression(self, depth: int = 2) -> str:
        if depth == 0 or self.chance(0.15):
            return self.atom()
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        if a == b or not self.is_moving(a):
            a = f"({self.reads[0]} + {self.number()} * {b})"  # `max(a, a)` is a kink
        form = self.pick(
            "{a} + {b}",
            "{a} - 0.5 * {b}",
            "0.5 * {a} * {b}",
            "wp.sin({a})",
            "wp.cos({a} + {b})",
            "wp.tanh({a})",
            "{a} / (1.0 + {b} * {b})",
            "wp.sqrt(1.0 + {a} * {a})",
            "wp.exp(-{a} * {a})",
            "wp.max({a}, {b})",
            "wp.min({a}, 0.4 + {b})",
            "bend({a})",
            "cubed(wp.sin({a}))",
            "{a} * {a}",
            "wp.where({a} > 0.15, {a} * {b}, {b})",
            *(["slipped({a})", "powered({a}, 3)"] if self.chance(0.15) else []),
        )
        return f"({form.format(a=a, b=b)})"

    def is_moving(self, text: str) -> bool:
        """Does an expression depend on anything."""
        return any(name in text for name in (*self.locals, *self.reads))

    def result(self) -> str:
        """What a kernel stores: it uses the local that came last."""
        if not self.locals or self.chance(0.2):
            return self.expression()
        last, other = self.locals[-1], self.expression(1)
        return self.pick(
            f"{last} + 0.5 * {other}", f"{last} * {other}", f"wp.sin({last}) + {other}", f"{last} - {other}"
        )

    def new(self) -> str:
        name = f"a{len(self.locals)}"
        self.add(f"{name} = {self.moving()}" if self.chance(0.8) else f"{name} = float({self.number()})")
        self.locals.append(name)
        return name

    def statement(self) -> None:
        what = self.pick("new", "new", "again", "branch", "static", "dynamic", "vector", "matrix", "pair", "sum")
        if not self.locals:
            self.new()
        getattr(self, what)()

    def moving(self) -> str:
        """An expression that is no constant for Warp: constants may not change in loops."""
        text = self.expression()
        return text if self.is_moving(text) else f"float({text})"

    def again(self) -> None:
        self.add(f"{self.pick(*self.locals)} {self.pick('=', '=', '+=', '*=', '-=')} {self.moving()}")

    def branch(self) -> None:
        self.add(f"if {self.atom()} > {self.number()}:")
        self.inside(self.again)
        if self.chance(0.5):
            self.add("else:")
            self.inside(self.again)

    def inside(self, act: object, *args: object) -> None:
        was, self.deep = self.deep, self.deep + "    "
        act(*args)  # type: ignore[operator]
        self.deep = was

    def static(self) -> None:
        self.loop("for k in range(3):")

    def dynamic(self) -> None:
        turns = "n" if self.kind == "turns" else "x.shape[0] - 1" if "x:" in SIGNATURES[self.kind] else "3"
        self.loop(f"for k in range({turns}):" if self.chance(0.8) else "while e < 0.9 and t < 5:", turns)

    def loop(self, head: str, turns: str = "") -> None:
        if head.startswith("while"):
            self.add("e = float(0.1)")
            self.add("t = int(0)")
            self.add(head)
            self.inside(lambda: self.add("t += 1"))
            self.inside(lambda: self.add(self.pick("e = e + 0.3", "e = e * 1.5 + 0.2")))
            if "e" not in self.locals:
                self.locals.append("e")
        else:
            self.add(head)
        self.inside(self.again)
        if self.chance(0.3):
            self.inside(self.again)
        if self.chance(0.2):
            self.inside(self.branch)
        if self.chance(0.15) and head.startswith("for") and turns:
            self.inside(lambda: self.add(f"if k == 1:\n{self.deep}    break"))

    def sum(self) -> None:
        total = self.new()
        self.add(f"for k in range({'n' if self.kind == 'turns' else '3'}):")
        term = self.expression(1)
        self.inside(lambda: self.add(f"{total} += {term.replace(total, '0.5')} * (float(k) + 1.0)"))

    def vector(self) -> None:
        v = f"v{len(self.lines)}"
        self.add(
            f"{v} = wp.vec3({self.atom()}, {self.atom()}, {self.number()})" if self.chance(0.7) else f"{v} = wp.vec3()"
        )
        for _ in range(int(self.rng.integers(0, 4))):
            to, of = self.rng.integers(3, size=2)
            how = self.pick("=", "=", "+=", "*=")
            other = f"{v}[{to}] {how} {v}[{of}] * {self.atom()}"
            self.add(other if self.chance(0.5) else f"{v}[{to}] = {self.expression(1)}")
        if self.chance(0.3):
            self.add(f"{v} = {v} * {self.atom()}")
        self.named(f"{v}[0] + {v}[1] * {v}[2]" if self.chance(0.6) else f"wp.dot({v}, {v}) * 0.3")

    def matrix(self) -> None:
        m = f"m{len(self.lines)}"
        self.add(f"{m} = wp.mat22({self.atom()}, {self.number()}, {self.atom()}, {self.atom()})")
        if self.chance(0.5):
            self.add(f"{m}[0, 1] {self.pick('=', '+=')} {self.expression(1)}")
        if self.chance(0.3):
            self.add(f"{m}[1, 1] = {m}[0, 1] * {m}[0, 0]")
        self.named(f"wp.determinant({m})" if self.chance(0.4) else f"wp.dot({m} * wp.vec2({self.atom()}, 0.3), {m}[1])")

    def pair(self) -> None:
        p = f"p{len(self.lines)}"
        self.add(f"{p}, {p}b = both({self.atom()}, {self.atom()})")
        self.locals += [p, f"{p}b"]

    def named(self, text: str) -> None:
        name = f"a{len(self.locals)}"
        self.add(f"{name} = {text}")
        self.locals.append(name)

    def store(self, cell: str) -> None:
        """Statements that leave a value in a cell, with what programs do around that."""
        if self.chance(0.1):
            self.add(f"{cell} = {self.expression(1)}")  # a value that is overwritten
        self.add(f"{cell} = {self.result()}")
        if self.chance(0.12):
            self.add(f"{cell} = {self.pick(f'{cell} * {cell}', f'{cell} + {self.atom()}', f'wp.sin({cell})')}")
        if self.chance(0.08):
            self.add(f"{cell} {self.pick('+=', '-=')} {self.expression(1)}")

    def write(self) -> str:
        kind = self.kind
        off = kind == "off" or (kind in ("unary", "turns", "binary") and self.chance(0.03))
        self.add("i, j = wp.tid()" if kind == "grid" else "i = wp.tid()")
        begin, end = BODIES[kind]
        self.reads = [r for r in begin if self.chance(0.9)] or begin[:1]
        if kind in ("unary", "turns", "binary", "struct_in") and self.chance(0.5):
            self.reads.append(begin[0].replace("[i]", f"[{NEIGHBOUR}]"))
        self.new()
        for _ in range(int(self.rng.integers(0, 4))):
            self.statement()
        if kind in ("unary", "binary", "turns") and self.chance(0.08):
            self.add("if i == 2:")
            self.inside(lambda: self.add("return"))
        getattr(self, "end_" + end)()
        mark = "@wp.kernel(enable_backward=False)" if off else "@wp.kernel"
        return "\n".join([mark, f"def {self.name}({SIGNATURES[kind]}):", *self.lines])

    def end_cell(self) -> None:
        if self.chance(0.1):
            self.add("out = y")
            self.store("out[i]")
        else:
            self.store("y[i]")

    def end_grid(self) -> None:
        self.store("y[i, j]")

    def end_self(self) -> None:
        if self.chance(0.2):
            self.add("out = x")
            self.add(f"out[i] = {self.result()}")
        elif self.chance(0.3):
            self.add(f"x[i] {self.pick('+=', '-=')} {self.result()}")
        else:
            self.store("x[i]")

    def end_add(self) -> None:
        self.add(f"y[i] {self.pick('+=', '-=')} {self.result()}")

    def end_scatter(self) -> None:
        self.add(f"wp.atomic_add(y, {NEIGHBOUR}, {self.result()})")
        if self.chance(0.5):
            self.add(f"wp.atomic_{self.pick('add', 'sub')}(y, i, {self.expression()})")

    def end_pack(self) -> None:
        if self.chance(0.3):
            self.add(f"v[i] = wp.vec2({self.result()}, 0.5)")
            self.add(f"v[i][1] {self.pick('=', '+=')} {self.expression(1)}")
        else:
            self.add(f"v[i] = wp.vec2({self.result()}, {self.result()})")

    def end_vectors(self) -> None:
        self.add(f"r = {self.pick('v[i]', 'v[i] * 2.0', f'v[{NEIGHBOUR}]')} * {self.atom()}")
        if self.chance(0.5):
            self.add(f"r[0] {self.pick('=', '+=', '*=')} {self.expression(1)}")
        self.add(f"w[i] {self.pick('=', '=', '+=')} r + wp.vec2({self.atom()}, {self.atom()})")

    def end_struct(self) -> None:
        self.store("s.a[i]")
        if self.chance(0.5):
            self.add(f"s.b[i] = {self.expression()}" if self.chance(0.7) else f"s.b[i] = s.a[i] * {self.atom()}")


BODIES = {
    "unary": (["x[i]"], "cell"),
    "turns": (["x[i]", "x[k0]".replace("k0", "i")], "cell"),
    "off": (["x[i]"], "cell"),
    "binary": (["x[i]", "z[i]"], "cell"),
    "inplace": (["x[i]"], "self"),
    "updated": (["x[i]", "z[i]"], "self"),
    "added": (["x[i]"], "add"),
    "scattered": (["x[i]"], "scatter"),
    "packed": (["x[i]"], "pack"),
    "unpacked": (["v[i][0]", "v[i][1]"], "cell"),
    "vectors": (["v[i][0]", "v[i][1]"], "vectors"),
    "struct_in": (["s.a[i]", "s.b[i]", "s.k"], "cell"),
    "struct_out": (["x[i]"], "struct"),
    "grid": (["x[i, j]"], "grid"),
}


def module(seed: int, each: int = 3) -> tuple[str, dict[str, list[str]]]:
    """The text of a module with `each` kernels of every kind, and their names by kind."""
    rng = np.random.default_rng(seed)
    names: dict[str, list[str]] = {kind: [f"{kind}_{n}" for n in range(each)] for kind in KINDS}
    texts = [Text(rng, kind, name).write() for kind, several in names.items() for name in several]
    return "\n\n\n".join([HEAD.strip(), *texts]) + "\n", names

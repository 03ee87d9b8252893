"""Random programs over tiles whose names share memory, each written twice: as a kernel, and over NumPy arrays."""

from __future__ import annotations

import random

HEAD = """import workbench as wb
F = wb.float64
@wb.func
def raised(t: wb.tile(dtype=F, shape=Any)):
    t[0, 1] = t[0, 0] * F(0.5)
    t += t * F(0.1)
@wb.func
def mixed(t: wb.tile(dtype=F, shape=Any), u: wb.tile(dtype=F, shape=Any)):
    for k in range(2):
        t[k, 0] += u[0, 1] * F(0.3)
    r = wb.tile_transpose(u)
    r[0, 0] = t[1, 0]
    return r
@wb.kernel
def program(x: wb.array2d[F], n: int, y: wb.array2d[F]):
    a = wb.tile_load(x, shape=(3, 3))
    b = wb.tile_load(x, shape=(3, 3), offset=(3, 0))
    s = x[0, 1]
""".replace("Any", "__import__('typing').Any")
TWIN = """
def raised(t):
    t[0, 1] = t[0, 0] * 0.5
    t += t * 0.1
def mixed(t, u):
    for k in range(2):
        t[k, 0] += u[0, 1] * 0.3
    r = u.T
    r[0, 0] = t[1, 0]
    return r
def twin(x, n):
    y = np.zeros((6, 8))
    a = x[:3].copy()
    b = x[3:].copy()
    s = x[0, 1]
"""
END = (
    ("wb.tile_store(y, a)", "y[:3, :3] = a"),
    ("wb.tile_store(y, b + a * s, offset=(3, 0))", "y[3:, :3] = b + a * s"),
    ("wb.tile_store(y, p, offset=(0, 3))", "y[:2, 3:5] = p"),
    ("wb.tile_store(y, q, offset=(3, 3))", "y[3:5, 3:5] = q"),
    ("wb.tile_store(y, r, offset=(0, 5))", "y[:1, 5:8] = r"),
)
SHAPES = {"a": (3, 3), "b": (3, 3), "p": (2, 2), "q": (2, 2), "r": (1, 3)}


class Writer:
    """Writes one program and its twin from a seed."""

    def __init__(self, seed: int):
        self.random, self.lines = random.Random(seed), []

    def text(self) -> tuple[str, str]:
        for name in "pqr":
            self.view("    ", name, "")
        for _ in range(self.random.randint(4, 9)):
            self.statement(1, "")
        for kernel, twin in END:
            self.put("    ", kernel, twin)
        kernel, twin = ("\n".join(side) for side in zip(*self.lines, strict=True))
        return HEAD + kernel + "\n", TWIN + twin + "\n    return y\n"

    def put(self, pad: str, kernel: str, twin: str | None = None) -> None:
        self.lines.append((pad + kernel, pad + (kernel.replace("F(", "(") if twin is None else twin)))

    def number(self) -> float:
        return round(self.random.uniform(-0.9, 0.9), 2)

    def element(self, name: str, loop: str) -> str:
        picked = [self.random.choice([*range(n), *([loop] if loop and n > 1 else [])]) for n in SHAPES[name]]
        return f"{name}[{picked[0]}, {picked[1]}]"

    def view(self, pad: str, name: str, loop: str) -> None:
        of, (n, m) = self.random.choice("ab"), SHAPES[name]
        i, j = (self.random.choice([*range(4 - size), *([loop] if loop and size < 3 else [])]) for size in (n, m))
        kinds = [(f"wb.tile_view({of}, offset=({i}, {j}), shape=({n}, {m}))", f"{of}[{i}:{i}+{n}, {j}:{j}+{m}]")] * 4
        if n == m:
            kinds += [(f"wb.tile_transpose({k})", t) for k, t in kinds[:1] for t in [f"({t}).T"]]
            other = "q" if name == "p" else "p"
            if self.lines[2:]:
                kinds.append((f"wb.tile_transpose({other})", f"{other}.T"))
        else:
            kinds.append((f"wb.tile_reshape({of}[{i}], shape=(1, 3))", f"{of}[{i}:{i}+1]"))
        kernel, twin = self.random.choice(kinds)
        self.put(pad, f"{name} = {kernel}", f"{name} = {twin}")

    def statement(self, depth: int, loop: str) -> None:
        pad, pick, t = "    " * depth, self.random.random(), self.random.choice("aabbppqqr")
        alike = self.random.choice([k for k, shape in SHAPES.items() if shape == SHAPES[t]])
        number, other = self.number(), self.random.choice("abpqr")
        if pick < 0.18:
            self.view(pad, self.random.choice("pqr"), loop)
        elif pick < 0.40:
            sign = self.random.choice(["=", "+=", "-="])
            self.put(pad, f"{self.element(t, loop)} {sign} {self.element(other, loop)} * F({number}) + s")
        elif pick < 0.52:
            self.put(pad, f"{t} {self.random.choice(['+=', '-='])} {alike} * F({number})")
        elif pick < 0.57:
            self.put(pad, f"{t} = {t} * F({number}) + {alike}")
        elif pick < 0.60:
            self.put(pad, f"{t} = {alike}", f"{t} = {alike}.copy()")
        elif pick < 0.65:
            call = f"raised({self.random.choice('abpqr')})"
            self.put(pad, call)
        elif pick < 0.70:
            one, two = self.random.choice("abpq"), self.random.choice("abpq")
            self.put(pad, f"mixed({one}, {two})" if SHAPES[two] != (2, 2) else f"{two} = mixed({one}, {two})")
        elif pick < 0.75:
            i, j = self.random.randrange(2), self.random.randrange(2)
            v, w = self.random.choice("pq"), self.random.choice("ab")
            self.put(
                pad,
                f"wb.tile_assign({w}, {v} * F({number}), offset=({i}, {j}))",
                f"{w}[{i}:{i}+2, {j}:{j}+2] = {v} * {number}",
            )
        elif pick < 0.78:
            self.put(pad, f"s = wb.tile_sum({t})[0] * F(0.1)", f"s = {t}.sum() * 0.1")
        elif pick < 0.90 and depth < 3:
            k = f"k{depth}"
            self.put(pad, f"for {k} in range({self.random.choice(['1', '2', 'n'])}):")
            self.block(depth + 1, k)
        elif depth < 4:
            self.put(pad, f"if {self.element(t, loop)} > F({number}):")
            self.block(depth + 1, loop)
            if loop and self.random.random() < 0.2:
                self.put(pad + "    ", self.random.choice(["break", "continue"]))
            elif self.random.random() < 0.4:
                self.put(pad, "else:")
                self.block(depth + 1, loop)
        else:
            self.put(pad, f"{t} += {alike} * s")

    def block(self, depth: int, loop: str) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, loop)

"""Random programs over tiles, written out as the text of a kernel: values, parts, loops, branches, elements."""

from __future__ import annotations

import random

UNARY = (
    "wb.tile_map(wb.sin, {0})",
    "wb.tile_map(bend, {0}, {0})",
    "-{0}",
    "{0} * F({n})",
    "wb.tile_transpose({0}) * F(1.1)",
)
BINARY = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "wb.tile_map(bend, {0}, {1})",
    "wb.tile_matmul({0}, {1}, alpha=F(0.3))",
    "{0} / ({1} * {1} + F(1.5))",
    "wb.tile_map(wb.max, {0}, {1})",
    "wb.tile_broadcast(wb.tile_reshape(wb.tile_sum({0}, axis=0), shape=(1, 3)), shape=(3, 3)) * {1}",
    "{0} * wb.tile_broadcast(wb.tile_reshape(wb.tile_max({1}), shape=(1, 1)), shape=(3, 3))",
    "wb.tile_reshape(wb.tile_scan_inclusive({0}), shape=(3, 3)) * {1}",
    "wb.tile_lower_solve(wb.tile_diag_add({0}, wb.tile_full(shape=3, value=F(4.0))), {1})",
)
VECTORS = (
    "{0} * F({n}) + {1}",
    "wb.tile_map(turned, {0}, {1})",
    "wb.tile_map(wb.cross, {0}, {1})",
    "-{0}",
    "{0} * a",
    "wb.tile_map(raised, a, b)",
    "wb.tile_map(lambda p, q: p * q[0] - q * s, {0}, {1})",
    "{0} / F(1.7) - {1} * b",
    "wb.tile_broadcast(wb.tile_reshape(wb.tile_reduce(turned, {0}, axis=1), shape=(3, 1)), shape=(3, 3)) + {1}",
    "wb.tile_broadcast(wb.tile_sum({0}, axis=0), shape=(3, 3)) * F(0.3) - {1}",
)
LOWERED = (
    "wb.tile_map(wb.dot, v, w)",
    "wb.tile_map(lambda p, q: p[0] * q + s, v, b)",
    "wb.tile_map(lowered, w, a)",
    "wb.tile_broadcast(wb.tile_reduce(bend, {0}, axis=0), shape=(3, 3)) * {1}",
    "wb.tile_scan_max_inclusive({0}) * {1} - wb.tile_scan_min_inclusive({1})",
)
HEAD = """import workbench as wb
F = wb.float64
@wb.func
def turned(a: wb.vec3d, b: wb.vec3d):
    if a[0] > F(0.1):
        return wb.cross(a, b) + a
    return a * b[2] - b
@wb.func
def raised(a: F, b: F):
    return wb.vec3d(a, a * b, b - a)
@wb.func
def lowered(a: wb.vec3d, b: F):
    return wb.length(a + wb.vec3d(b, F(2.0), b))
@wb.func
def halves(a: F, b: F):
    return wb.vec2d(a, b)
@wb.func
def bend(a: F, b: F):
    if a * b > F(0.2):
        return wb.sin(a) + b
    return a - b * b * F(0.5)
@wb.kernel
def program(x: wb.array2d[F], y: wb.array2d[F]):
    i = wb.tid()
    a = wb.tile_load(x, shape=(3, 3), offset=(i * 3, 0))
    b = wb.tile_load(x, shape=(3, 3), offset=(i * 2, 2))
    c = wb.tile_zeros(shape=(3, 3), dtype=F)
    s = x[i, 1]
    v = wb.tile_map(raised, a, b)
    w = wb.tile_full(shape=(3, 3), value=wb.vec3d(s, x[i, 0], F(0.5)))
    k = wb.tile_stack(capacity=3, dtype=F)
"""


class Writer:
    """Writes one program from a seed."""

    def __init__(self, seed: int):
        self.random, self.lines = random.Random(seed), []

    def tile(self) -> str:
        one, two = self.random.choices("abc", k=2)
        number = round(self.random.uniform(-1.5, 1.5), 2)
        return self.random.choice(UNARY + BINARY * 2).format(one, two, n=number)

    def element(self, loop: str) -> str:
        return ", ".join(self.random.choice(["0", "1", "2", "-1", *([loop] if loop else [])]) for _ in range(2))

    def more(self, pad: str, loop: str) -> None:
        """A statement over vectors, parts, stacks, transforms."""
        one, two = self.random.choices("vw", k=2)
        number, t, u = round(self.random.uniform(-1.5, 1.5), 2), *self.random.choices("abc", k=2)
        at, there, row = self.element(loop), self.element(loop), self.random.randrange(2)
        self.put(
            pad,
            self.random.choice(
                [
                    *[f"{one} = {self.random.choice(VECTORS).format(one, two, n=number)}"] * 4,
                    *[f"{t} = {self.random.choice(LOWERED).format(t, u)}"] * 3,
                    f"{one}[{at}] = wb.cross({two}[{there}], {one}[{at}]) * s",
                    f"{one}[{at}] += {two}[{there}] * {t}[{at}]",
                    f"{one}[{at}].y = {t}[{there}] * F(0.7)",
                    f"{one}[{at}][2] *= {two}[{there}][0]",
                    f"{one}[{row}] = {two}[{row + 1}] * F({number})",
                    f"{t}[{row}] += {u}[2] * s",
                    f"{t}[0:2, {row}] = {u}[{row}, 1:3] * F({number})",
                    f"{t}[:, {row}] = s",
                    f"s = wb.sin(wb.tile_sum({one})[0][{row}]) + s",
                    f"s = wb.cos(wb.tile_dot({one}, {two})[0])",
                    f"wb.tile_stack_push(k, {t}[{at}] * s, {u}[{there}] > F({number}))",
                    "s += wb.tile_stack_pop(k)[0] * F(0.3) + F(wb.tile_stack_count(k))",
                    f"wb.tile_axpy(F({number}), {one} * F(0.5), {two})",
                    "; ".join(
                        [
                            f"z = wb.tile_map(halves, {t}, {u})",
                            f"wb.tile_{self.random.choice(['', 'i'])}fft(z)",
                            f"{t} = wb.tile_map(lambda p: p[0] * p[1] * F(0.05), z)",
                        ]
                    ),
                ]
            ),
        )

    def statement(self, depth: int, loop: str) -> None:
        pad, pick, t = "    " * depth, self.random.random(), self.random.choice("abc")
        if self.random.random() < 0.4:
            self.more(pad, loop)
        elif pick < 0.35:
            self.put(pad, f"{t} = {self.tile()}")
        elif pick < 0.45:
            self.put(pad, f"{t} {self.random.choice(['+=', '-=', '*='])} {self.tile()}")
        elif pick < 0.65:
            other = self.random.choice("abc")
            sign = self.random.choice(["=", "+=", "*="])
            value = f"{other}[{self.element(loop)}] * s + {t}[{self.element(loop)}]"
            self.put(pad, f"{t}[{self.element(loop)}] {sign} {value}")
        elif pick < 0.7:
            self.put(pad, f"s = wb.tile_sum({t} * {t})[0] * F(0.1) + wb.sin(s)")
        elif pick < 0.75:
            self.put(pad, "wb.tile_matmul(wb.tile_transpose(a) * F(0.5), b, c, alpha=F(0.3))")
        elif pick < 0.8:
            part = f"wb.tile_view(a * F(0.7), offset=(1, {self.random.randrange(2)}), shape=(2, 2))"
            self.put(pad, f"wb.tile_assign({t}, {part}, offset=({self.random.randrange(2)}, 1))")
        elif pick < 0.9 and depth < 3:
            k = f"k{depth}"
            self.put(pad, f"for {k} in range({self.random.randint(1, 3)}):")
            self.block(depth + 1, k)
        elif depth < 3:
            self.put(pad, f"if {t}[{self.element(loop)}] > F({round(self.random.uniform(-0.5, 0.5), 2)}):")
            self.block(depth + 1, loop)
            if self.random.random() < 0.5:
                self.put(pad, "else:")
                self.block(depth + 1, loop)
        else:
            self.put(pad, f"{t} = {self.tile()}")

    def block(self, depth: int, loop: str) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, loop)

    def put(self, pad: str, text: str) -> None:
        self.lines.append(pad + text)

    def text(self) -> str:
        for _ in range(self.random.randint(3, 7)):
            self.statement(1, "")
        end = [
            "    wb.tile_atomic_add(y, a * b + c * s, offset=(i * 3, 0))",
            "    wb.tile_atomic_add(y, a, offset=(1, 1))",
            "    wb.tile_atomic_add(y, wb.tile_map(wb.dot, v, w), offset=(i * 2, 1))",
        ]
        return HEAD + "\n".join([*self.lines, *end]) + "\n"

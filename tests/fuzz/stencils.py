"""Random kernels of many threads: affine and wrapped indices, guards, loops, partial overwrites, strided views.

What `kernels` does not make: threads that read each other's neighbourhoods. Free of races by construction: an array is
read, stored to at the thread's own cell, or added to. The oracle is that of `kernels`: differences of the program.
"""

from __future__ import annotations

import linecache
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

import workbench as wb

F = wb.float64


@dataclass
class Stencil:
    """Source of some kernels over `arrays` (name -> axes) of extent n, and steps: ("launch", kernel, dim), ("fill_" or
    "zero_", array, low, high). `later`: a write after the tape. `layout`: plain, strided, or views of one memory."""

    source: str
    n: int
    arrays: dict[str, int]
    steps: list[tuple]
    later: tuple | None
    layout: str
    seed: int

    def compile(self) -> dict[str, Any]:
        file, text = f"<stencil-{self.seed}>", f"import workbench as wb\nF = wb.float64\n{self.source}"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope = {"__name__": "stencil"}
        exec(compile(text, file, "exec"), scope)
        return scope

    def numbers(self, k: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng((self.seed, k))
        return {name: rng.uniform(-1, 1, (self.n,) * axes) for name, axes in self.arrays.items()}

    def place(self, values: dict[str, np.ndarray], grad: bool) -> dict[str, wb.array]:
        n, made = self.n, {}
        whole = wb.zeros((5 * n, n), dtype=F, requires_grad=grad)
        for q, (name, axes) in enumerate(self.arrays.items()):
            if self.layout == "plain":
                a = wb.zeros((n,) * axes, dtype=F, requires_grad=grad)
            elif self.layout == "strided":
                a = wb.zeros((2 * n, 3 * n), dtype=F, requires_grad=grad)[::-2][:, n : 2 * n]
                a = a if axes == 2 else a[:, 1]
            else:
                a = whole[q * n : (q + 1) * n] if axes == 2 else whole[q * n : (q + 1) * n, q % n]
            a.assign(values[name])
            made[name] = a
        return made

    def run(self, scope: dict[str, Any], arrays: dict[str, wb.array]) -> None:
        for step in self.steps:
            if step[0] == "launch":
                wb.launch(scope[step[1]], step[2], inputs=list(arrays.values()))
            else:
                self.write(step, arrays)

    def write(self, step: tuple, arrays: dict[str, wb.array]) -> None:
        part = arrays[step[1]][step[2] : step[3]]
        part.zero_() if step[0] == "zero_" else part.fill_(0.7)

    def gradient(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Gradients of <seeds, final contents>, and the final contents. Walks twice. May raise GradientError."""
        arrays, seeds = self.place(self.numbers(0), True), self.numbers(1)
        scope = self.compile()
        with wb.Tape() as tape:
            self.run(scope, arrays)
        final = {name: a.numpy().copy() for name, a in arrays.items()}
        if self.later is not None:
            self.write(self.later, arrays)
        touched = {name for name, a in arrays.items() if tape.log.has_touched(a.span)}
        for _ in range(2):
            tape.zero()
            tape.backward(grads={arrays[name]: wb.array(seeds[name], dtype=F) for name in touched})
        grads = {name: a.grad.numpy() + (0 if name in touched else seeds[name]) for name, a in arrays.items()}
        return grads, final

    def slope(self, h: float) -> float:
        """Along the direction `numbers(2)`, by differences of fourth order."""
        start, seeds, way, scope = self.numbers(0), self.numbers(1), self.numbers(2), self.compile()

        def value(t: float) -> float:
            arrays = self.place({name: data + t * way[name] for name, data in start.items()}, False)
            self.run(scope, arrays)
            return float(sum((arrays[name].numpy() * w).sum() for name, w in seeds.items()))

        return (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)


class Maker:
    """One program from one seed."""

    def __init__(self, seed: int):
        self.seed, self.r = seed, random.Random(seed)
        self.n, self.plane = self.r.choice((4, 5, 6, 7)), self.r.random() < 0.4
        self.arrays = {"x": 2, "w": 1, "y": 2, "z": 2} if self.plane else dict.fromkeys("xwyz", 1)
        self.tids = ("i", "j") if self.plane else ("i",)

    def program(self) -> Stencil:
        r, n = self.r, self.n
        kernels = [f"k{q}" for q in range(r.randint(1, 3))]
        source = "\n\n".join("\n".join(self.kernel(name)) for name in kernels)
        steps: list[tuple] = []
        for _ in range(r.randint(1, 4)):
            if r.random() < 0.2:
                steps.append(self.host())
            dims = [n if r.random() < 0.7 else r.randint(2, n) for _ in self.tids]
            steps.append(("launch", r.choice(kernels), tuple(dims)))
        later = self.host() if r.random() < 0.3 else None
        layout = r.choice(("plain", "strided", "views"))
        return Stencil(source, n, self.arrays, steps, later, layout, self.seed)

    def host(self) -> tuple:
        low = self.r.randint(0, self.n - 1)
        return self.r.choice(("fill_", "zero_")), self.r.choice(self.writable()), low, self.r.randint(low + 1, self.n)

    def writable(self) -> list[str]:
        return list(self.arrays)

    def kernel(self, name: str) -> list[str]:
        names = self.r.sample(self.writable(), len(self.writable()))
        own = next(a for a in names if self.arrays[a] == len(self.tids))
        rest = [a for a in names if a != own]
        self.add = rest.pop() if self.r.random() < 0.6 else None
        self.reads, self.own = rest, f"{own}[{self.own_index()}]"
        params = ", ".join(f"{a}: wb.array(dtype=F, ndim={axes})" for a, axes in self.arrays.items())
        head = ["@wb.kernel", f"def {name}({params}):", f"    {', '.join(self.tids)} = wb.tid()", "    v = F(0.4)"]
        return [*head, *self.block(1, ""), f"    {self.own} {self.r.choice(('=', '*=', '+='))} v"]

    def own_index(self) -> str:
        form = self.r.choice(("{}", "{}", "{}", f"{self.n - 1} - {{}}", f"({{}} + 1) % {self.n}"))
        tids = self.tids[::-1] if self.r.random() < 0.2 else self.tids
        return ", ".join(form.format(t) if t == "i" else t for t in tids)

    def index(self, loop: str) -> str:
        t, b, n = self.r.choice(self.tids), self.r.randint(-2, 2), self.n
        forms = [
            t,
            t,
            f"({t} + {abs(b)}) % {n}",
            f"{n - 1} - {t}",
            f"wb.clamp({t} + {b}, 0, {n - 1})",
            f"-1 - {t}",
            str(self.r.randint(-n, n - 1)),
            f"wb.min({t} + 1, {n - 1})",
            f"{loop or t} % {n}",
        ]
        return self.r.choice(forms)

    def cell(self, name: str, loop: str) -> str:
        return f"{name}[{', '.join(self.index(loop) for _ in range(self.arrays[name]))}]"

    def guard(self) -> str:
        t, n, k = self.r.choice(self.tids), self.n, self.r.randint(0, self.n - 1)
        return self.r.choice(
            (
                f"{t} > {k}",
                f"{t} < {n - 1}",
                f"0 < {t} < {n - 1}",
                f"{t} % 2 == 0",
                f"{t} != {k}",
                f"not ({t} == 0 or {t} == {n - 1})",
            )
        )

    def term(self, loop: str) -> str:
        t = self.cell(self.r.choice(self.reads), loop)
        return self.r.choice((t, f"{t} * {t}", f"wb.sin({t})", f"v * {t}"))

    def neighbours(self) -> list[str]:
        """A guarded load or update at a distance, which is where kept ranges are cut close."""
        t, b, n, a = self.r.choice(self.tids), self.r.choice((-2, -1, 1, 2)), self.n, self.r.choice(self.reads)
        close = f"{t} < {n - b}" if b > 0 else f"{t} >= {-b}"
        test = self.r.choice((f"{t} + {b} >= 0 and {t} + {b} < {n}", f"0 <= {t} + {b} < {n}", close))
        other = self.tids[self.tids[0] == t and self.plane]

        def at(name: str) -> str:
            pair = self.r.sample((f"{t} + {b}", other), 2)
            return f"{name}[{t} + {b}]" if self.arrays[name] == 1 else f"{name}[{', '.join(pair)}]"

        lines = [f"if {test}:", f"    v += {at(a)} * {at(a)}"]
        return [*lines, f"    {at(self.add)} += v * F(0.2)"] if self.add and self.r.random() < 0.4 else lines

    def block(self, depth: int, loop: str) -> list[str]:
        pad, out, r = "    " * depth, [], self.r
        for _ in range(r.randint(1, 3)):
            roll = r.random()
            if roll < 0.4:
                out += [pad + line for line in self.neighbours()]
            elif roll < 0.6:
                out.append(pad + r.choice((f"v += {self.term(loop)}", f"v = v * F(0.5) + {self.term(loop)}")))
            elif roll < 0.7 and depth < 3:
                out += [f"{pad}if {self.guard()}:", *self.block(depth + 1, loop)]
                if r.random() < 0.4:
                    out += [f"{pad}else:", *self.block(depth + 1, loop)]
            elif roll < 0.78 and depth < 3:
                bounds = r.choice(("3", "i", "1, i + 1", f"i, {self.n}", "2, -1, -1"))
                out += [f"{pad}for k in range({bounds}):", *self.block(depth + 1, "k")]
            elif roll < 0.88 and self.add:
                out.append(f"{pad}{self.cell(self.add, loop)} {r.choice(('+=', '-='))} v * F(0.3)")
            elif roll < 0.95:
                out.append(f"{pad}{self.own} {r.choice(('=', '*=', '+='))} v")
            else:
                out.append(f"{pad}v = {self.own} * v")
        if depth > 1 and r.random() < 0.08:
            out.append(f"{pad}return")
        return out


def make(seed: int) -> Stencil:
    """The program of a seed."""
    return Maker(seed).program()

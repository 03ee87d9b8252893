"""Random programs with slices and rows of arrays, slices of vectors and matrices, and arrays made in the kernel.

python -m tests.fuzz.slices --programs 2000 --seed 1
"""

from __future__ import annotations

import sys

from tests.fuzz import kernels as fuzz
from tests.fuzz.kernels import Param


class Generator(fuzz.Generator):
    """A part of an array is one more array that the program may use, as long as it, with the indices of any array."""

    def enter(self, params: list[Param], threads: bool, kernel: bool) -> None:
        super().enter(params, threads, kernel)
        self.cuts: dict[str, tuple[Param, str]] = {}  # by name of the part: the array, and the form of the subscript

    def block(self, n: int, inner: bool = True) -> None:
        before, cuts = self.params, dict(self.cuts)
        super().block(n, inner)
        self.params = before if inner else self.params
        self.cuts = {name: cut for name, cut in self.cuts.items() if name in cuts} if inner else self.cuts

    def statement(self) -> None:
        if self.chance(0.7):
            return super().statement()
        options = [self.local_array, self.cut, self.cut, self.recut, self.vector_part, self.matrix_part]
        return self.r.choice(options)()

    def local_array(self) -> None:
        """All of it is written in a loop, or part of it by what follows."""
        n, name, kind = self.length, self.fresh("l"), self.r.choice(("a1", "a1", "a2", "av", "ps", "long"))
        shape = {"a2": f"({n}, {n})", "long": f"{n + 3}"}.get(kind, str(n))
        dtype = {"av": "wb.vec3d", "ps": "Pair"}.get(kind, "F")
        self.w.put(f"{name} = wb.zeros({self.r.choice(('', 'shape='))}{shape}, dtype={dtype})")
        k = self.fresh("k")
        if self.chance(0.6):
            self.env[k] = "i"
            value = self.tame_vec() if kind == "av" else self.tame(1)
            at = {"a2": f"[{k}, {self.index()}]", "ps": f"[{k}].a"}.get(kind, f"[{k}]")
            del self.env[k]
            self.w.put(f"for {k} in range({min(n, 3)}):")
            self.w.put(f"    {name}{at} = {value}")
        if kind == "long":
            part, start = self.fresh("t"), self.r.choice([*self.names("i"), "0", "2", "3"])
            self.w.put(f"{part} = {name}[{start}:{start} + {n}]")
            name, kind = part, "a1"
        self.params = [*self.params, Param(name, kind)]

    def form(self, kind: str) -> tuple[str, str]:
        """A subscript with places for indices, and the kind of what it gives."""
        n = self.length
        whole = self.r.choice(("::-1", ":", f"0:{n}", f"-{n}:", f"{n}:-{n + 2}:-1", f":{n + 4}", f"{n - 1}::-1"))
        if kind != "a2":
            return f"[{whole}]" if self.chance(0.8) else f"[{whole}][::-1]", kind
        return self.r.choice(
            (
                (f"[{whole}, {{}}]", "a1"),
                ("[{}]", "a1"),
                (f"[{{}}, {whole}]", "a1"),
                (f"[{{}}][{whole}]", "a1"),
                (f"[{whole}, ::-1]", "a2"),
                (f"[{whole}]", "a2"),
                (f"[:, {whole}]", "a2"),
            )
        )

    def cut(self) -> None:
        found = [p for p in self.of("a1", "a2", "av", "ps") if p.mode == "read" or not (self.threads and self.mine(p))]
        if not found:
            return self.local_array()
        p = self.r.choice(found)
        form, kind = self.form(p.kind)
        name = self.fresh("t")
        self.w.put(f"{name} = {self.part(p, form)}")
        self.params = [*self.params, Param(name, kind, p.mode)]
        self.cuts[name] = p, form

    def mine(self, p: Param) -> bool:
        """In kernels of many threads: an argument of which this thread has its own elements."""
        return p.name[0] not in "lt"

    def part(self, p: Param, form: str) -> str:
        return p.name + form.format(self.index())

    def recut(self) -> None:
        """The name stands for another part from here on, perhaps by a choice."""
        if not self.cuts:
            return self.cut()
        name = self.r.choice(list(self.cuts))
        p, form = self.cuts[name]
        parts = self.part(p, form), self.part(p, form)
        self.w.put(f"{name} = {parts[0]}" + (f" if {self.condition()} else {parts[1]}" if self.chance(0.4) else ""))

    def vector_part(self) -> None:
        found = self.names("v")
        if not found:
            return self.new_vec()
        n = self.r.choice(found)
        two = f"wb.vec2d({self.tame(1)}, {self.tame(1)})"
        part = self.r.choice(("[0:2]", "[1:]", "[::2]", "[:1:-1][0:1]", "[::-2]", "[-2:]"))
        self.w.put(
            self.r.choice(
                (
                    f"{n}{part} {self.r.choice(('=', '+=', '-='))} {two}" if "][" not in part else f"{n}[::-1] = {n}",
                    f"{n}[:] = {self.tame_vec()}",
                    f"{n} = {n}[::-1]",
                    f"{n}[::-1] += {n} * F(0.5)",
                    f"{n}[{self.r.choice(('0:2', '::2'))}] *= {self.tame(1)}",
                )
            )
        )

    def matrix_part(self) -> None:
        found = self.names("m")
        if not found:
            return self.new_mat()
        m, k, how = self.r.choice(found), self.r.randrange(3), self.r.choice(("=", "+="))
        self.w.put(
            self.r.choice(
                (
                    f"{m}[:, {k}] {how} {self.tame_vec()}",
                    f"{m}[{k}] {how} {self.tame_vec()}",
                    f"{m}[{k}, ::-1] = {m}[{k}]",
                    f"{m}[1:, {k}] = {m}[{k}, 0:2]",
                    f"{m}[0:2, 1:] {how} {m}[1:, ::2] * F(0.5)",
                    f"{m}[::-1] = {m}[:, ::-1]",
                )
            )
        )


def make(seed: int) -> fuzz.Program:
    return Generator(seed).program()


if __name__ == "__main__":
    sys.exit(fuzz.main(make))

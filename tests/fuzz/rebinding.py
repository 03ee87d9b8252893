"""Random kernels that read chains of names, attributes and tuples, of which links are bound anew between launches.

Each launch must have the value and the gradient of the present state, which plain Python follows beside it.

python -m tests.fuzz.rebinding --programs 2000 --seed 1 --backend c
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import linecache
import random
import sys
import types
import typing

import numpy as np

import workbench as wb
from workbench.errors import GradientError, KernelError, LaunchError

F = wb.float64
Box = types.SimpleNamespace


@dataclasses.dataclass
class Data:
    k: typing.Any


class Slots:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k


class Given:
    """What is stored, by a property."""

    def __init__(self, k):
        self._k = k

    k = property(lambda self: self._k, lambda self, k: setattr(self, "_k", k))


class Fresh(Given):
    """Another object of the same contents at each reading."""

    k = property(lambda self: copied(self._k), lambda self, k: setattr(self, "_k", k))


class Named(typing.NamedTuple):
    other: float
    k: typing.Any


@wb.struct
class Struct:
    k: F


class Mode(enum.Enum):
    A = 2.0
    B = 3.0


class Level(enum.IntEnum):
    A = 2
    B = 3


def copied(x):
    if isinstance(x, Box | Data):
        return type(x)(**vars(x))
    return type(x)([*map(copied, x)]) if type(x) is tuple else x


def scaling(number):
    @wb.func
    def scaled(v: F):
        return F(number) * v

    return scaled


FUNCS = {n: scaling(float(n)) for n in (2, 3, 5)}
SLOPES = {f: n for n, f in FUNCS.items()}
TYPES = {2: wb.vec2d, 3: wb.vec3d, 4: wb.vec4d}


def module(k):
    made = types.ModuleType("made_by_the_fuzzer")
    made.k = k
    return made


def value_of(x):
    return x


def sign_of(zero):
    return 5.0 if str(zero)[0] == "-" else 2.0


# each link: what makes the holder of the next, and how the kernel and Python go on; a tuple cannot be written to
LINKS = {
    "box": (lambda k: Box(k=k), ".k"),
    "data": (Data, ".k"),
    "slots": (Slots, ".k"),
    "class": (lambda k: type("Made", (), {"k": k}), ".k"),
    "subclass": (lambda k: type("Child", (type("Parent", (), {"k": k}),), {})(), ".k"),
    "module": (module, ".k"),
    "property": (Given, ".k"),
    "fresh": (Fresh, ".k"),
    "tuple": (lambda k: (7.0, k), "[1]"),
    "named": (lambda k: Named(7.0, k), ".k"),
}
# each leaf: the values it has, the statements that add it to `s`, times `v`, and its slope
LEAVES = {
    "number": ((2.0, 3.0, 5.0, 2, 3, np.float64(5)), "s += F({0}) * v", float),
    "NumPy's": ((np.float64(2), np.float64(3)), "s += {0} * v", float),
    "enum": (tuple(Mode), "s += F({0}.value) * v", lambda x: x.value),
    "level": (tuple(Level), "s += F({0}) * v", int),
    "vector": ((lambda: wb.vec2d(7, 2), lambda: wb.vec2d(7, 3)), "s += {0}[1] * v", lambda x: x[1]),
    "func": (tuple(FUNCS.values()), "s += {0}(v)", SLOPES.get),
    "type": (tuple(TYPES.values()), "s += wb.dot({0}(v), {0}(F(1.0)))", lambda x: x.size),
    "sign": ((0.0, -0.0), "s += wb.where(F(1.0) / F({0}) > F(0.0), F(2.0), F(5.0)) * v", sign_of),
    "tuple": (((2.0,), (3.0, 2.0), ()), "for c in {0}:\n    s += F(c) * v", sum),
    "list": ((lambda: [2.0], lambda: [3.0, 2.0]), "for c in {0}:\n    s += F(c) * v", sum),
    "struct": ((lambda: Struct(k=2), lambda: Struct(k=3)), "s += {0}.k * v", lambda x: x.k),
    "static": ((2.0, 3.0), "s += F(wb.static({0})) * v", float),
    "static list": ((lambda: [2.0], lambda: [3.0]), "s += F(wb.static({0}[0])) * v", lambda x: x[0]),
    "static dict": ((lambda: {"a": 2.0}, lambda: {"a": 3.0}), "s += F(wb.static({0}['a'])) * v", lambda x: x["a"]),
    "static call": ((2.0, 3.0), "s += F(wb.static(value_of({0}))) * v", float),
    "static func": ((2.0, 3.0), "s += wb.static(scaling({0}))(v)", float),
}  # fmt: skip
CHANGES = {
    "vector": lambda x: x.__setitem__(1, 5.0),
    "list": lambda x: x.append(3.0),
    "static list": lambda x: x.__setitem__(0, 5.0),
    "static dict": lambda x: x.update(a=5.0),
    "struct": lambda x: setattr(x, "k", 5.0),
}


@wb.kernel
def keep(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    """A part that depends on x, so that no tape is without one."""
    y[0] = y[0] + x[0]


class Chain:
    """Links from an attribute of a root to a leaf."""

    def __init__(self, r: random.Random, root: str, name: str):
        self.r, self.root, self.name = r, root, name
        self.links = [r.choice(list(LINKS)) for _ in range(r.choice((0, 1, 1, 2, 3)))]
        self.leaf = r.choice(list(LEAVES))
        while "fresh" in self.links and self.leaf in CHANGES:  # what is changed in place is the one that is stored
            self.leaf = r.choice(list(LEAVES))

    @property
    def text(self):
        return f"{self.root}.{self.name}" + "".join(LINKS[kind][1] for kind in self.links)

    def made(self, start=0):
        """Objects for the links from `start` on, around a random leaf."""
        x = self.r.choice(LEAVES[self.leaf][0])
        x = x() if isinstance(x, types.FunctionType) else x
        for kind in reversed(self.links[start:]):
            x = LINKS[kind][0](x)
        return x

    def holders(self, root):
        """(object, attribute, number of the link behind it) of each link that can be bound anew."""
        found, x = [(root, self.name, 0)], getattr(root, self.name)
        for k, kind in enumerate(self.links):
            if kind not in ("tuple", "named"):
                found.append((x, "k", k + 1))
            x = x[1] if kind == "tuple" else x.k
        return found, x

    def slope(self, root):
        return float(LEAVES[self.leaf][2](self.holders(root)[1]))

    def change(self, root):
        """Bind a link anew, or change what is at the end in place."""
        holders, x = self.holders(root)
        if self.leaf in CHANGES and self.r.random() < 0.4:
            return CHANGES[self.leaf](x)
        past = next(
            (k for k, (o, *_) in enumerate(holders) if k and isinstance(holders[k - 1][0], Fresh)), len(holders)
        )
        holder, name, link = self.r.choice(holders[:past])  # behind a property that copies nothing stays
        setattr(holder, name, self.made(link))


PLACES = ("kernel", "func", "inner func", "adjoint")


class Program:
    """One kernel in a module of its own, and the state around it."""

    def __init__(self, seed: int):
        self.r = r = random.Random(seed)
        self.roots = {f"g{k}": r.choice(("global", "closure", "self")) for k in range(r.choice((1, 2)))}
        self.chains = [Chain(r, r.choice(list(self.roots)), f"c{k}") for k in range(r.choice((1, 2, 2, 3)))]
        self.places = [r.choice(PLACES) for _ in self.chains]
        self.shadows = r.random() < 0.2  # is `abs` called, which a func may take the name of
        self.space = {"wb": wb, "F": F, "value_of": value_of, "scaling": scaling}
        text = self.text()
        name = f"<rebinding {seed}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        self.source = text
        state = {root: self.fresh(root) for root in self.roots}
        self.space.update({root: state[root] for root, how in self.roots.items() if how == "global"})
        exec(compile(text, name, "exec"), self.space)
        self.own = Box(**{root: state[root] for root, how in self.roots.items() if how == "self"})
        around = [state[root] for root, how in self.roots.items() if how == "closure"]
        self.kernel, self.set = self.space["make"](self.own, *around)
        self.state = state

    def fresh(self, root):
        return Box(**{c.name: c.made() for c in self.chains if c.root == root})

    def named(self, chain):
        return f"self.{chain.text}" if self.roots[chain.root] == "self" else chain.text

    def text(self):
        funcs, body = [], ["v = x[i]", "s = F(0.0)"]
        for k, (chain, place) in enumerate(zip(self.chains, self.places, strict=True)):
            term = LEAVES[chain.leaf][1].format(self.named(chain))
            if place == "kernel":
                body += term.split("\n")
                continue
            funcs += [
                f"@wb.func\ndef f{k}(v: F):",
                "    s = F(0.0)",
                *(f"    {t}" for t in term.split("\n")),
                "    return s",
            ]
            if place == "inner func":
                funcs += [f"@wb.func\ndef o{k}(v: F):\n    return f{k}(v)"]
            if place == "adjoint":
                funcs += [f"@wb.func\ndef o{k}(v: F):\n    return v * F(1.0)"]
                funcs += [f"@wb.func_grad(o{k})\ndef adj_o{k}(v: F, adj: F):\n    wb.adjoint[v] += f{k}(adj)"]
            body.append(f"s += {'f' if place == 'func' else 'o'}{k}(v)")
        if self.shadows:
            body.append("s += abs(v)")
        kernel = ["@wb.kernel", "def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):", "    i = wb.tid()"]
        kernel += [f"    {line}" for line in (*body, "y[i] = s")]
        cells = [root for root, how in self.roots.items() if how == "closure"]
        lines = [f"def make({', '.join(['self', *cells])}):"]
        lines += [f"    {line}" for part in (*funcs, *kernel) for line in part.split("\n")]
        lines += [f"    def set_{c}(value):\n        nonlocal {c}\n        {c} = value" for c in cells]
        return "\n".join([*lines, f"    return k, dict({', '.join(f'{c}=set_{c}' for c in cells)})", ""])

    def change(self):
        """Change one thing of the state."""
        if self.shadows and self.r.random() < 0.3:
            if self.space.pop("abs", None) is None:
                self.space["abs"] = self.r.choice(list(FUNCS.values()))
            return
        root = self.r.choice(list(self.roots))
        mine = [c for c in self.chains if c.root == root]
        if mine and self.r.random() < 0.8:
            return self.r.choice(mine).change(self.state[root])
        self.state[root] = now = self.fresh(root)
        if self.roots[root] == "global":
            self.space[root] = now
        elif self.roots[root] == "self":
            setattr(self.own, root, now)
        else:
            self.set[root](now)

    def wanted(self):
        """The slope of the value and the gradient, by the present state."""
        slopes = [c.slope(self.state[c.root]) for c in self.chains]
        value = [1.0 if place == "adjoint" else slope for slope, place in zip(slopes, self.places, strict=True)]
        more = SLOPES[self.space["abs"]] if "abs" in self.space else 1.0
        return 1 + sum(value) + more * self.shadows, 1 + sum(slopes) + more * self.shadows

    def launched(self, command):
        """The same of a launch, by a command or not."""
        if command is None:
            x, y = wb.array([3.0], dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
        else:
            x, y = command.params
            x.grad.zero_()
        with wb.Tape() as tape:
            if command is None:
                wb.launch(self.kernel, 1, [x], [y])
            else:
                command.launch()
            wb.launch(keep, 1, [x], [y])
        tape.backward(grads={y: wb.ones(1, dtype=F)})
        return float(y.numpy()[0]) / 3.0, float(x.grad.numpy()[0])


def outcome(seed: int, changes: int) -> tuple[str, str]:
    """(what became of a program, the details where it is bad)."""
    program = Program(seed)
    try:
        x, y = wb.array([3.0], dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
        command = wb.launch(program.kernel, 1, [x], [y], record_cmd=True) if seed % 3 == 0 else None
        for turn in range(changes + 1):
            for again in range(2):
                got, want = program.launched(command if again else None), program.wanted()
                if not np.allclose(got, want, rtol=1e-12):
                    return "WRONG", f"seed {seed}, change {turn}: {got}, not {want}\n{program.source}"
            program.change()
    except (GradientError, KernelError, LaunchError) as error:
        return "refused", f"seed {seed}: {error}\n{program.source}"
    except Exception as error:
        return "UNCLEAR", f"seed {seed}: {type(error).__name__}: {error}\n{program.source}"
    return "right", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--changes", type=int, default=4)
    parser.add_argument("--backend", default="numpy")
    given = parser.parse_args()
    wb.config.backend = given.backend
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(given.seed, given.seed + given.programs):
        what, why = outcome(seed, given.changes)
        counts[what] += 1
        if why and (what != "refused" or counts[what] < 4):
            sys.stdout.write(f"{what} {why}\n")
    sys.stdout.write(f"{given.backend} {dict(counts)}\n")
    return counts["WRONG"] + counts["UNCLEAR"] > 0


if __name__ == "__main__":
    sys.exit(main())

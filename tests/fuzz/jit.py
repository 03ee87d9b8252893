"""Random functions under `@wb.jit` and without it: the same bits, gradients, results and errors, or refused.

A program is a function of launches, host writes, tapes, new arrays and another jit function, called for some turns with
disturbances between them: other arrays, views, aliases, numbers, switches, kernels and globals made anew, exceptions,
threads, changed marks. It runs from the same text with `config.jit` on and off. Some functions do what no replay can
repeat (a counter, a swap, a random number, a reading); these may be refused, by [jit] or [capture], and never differ.

    python -m tests.fuzz.jit --programs 1000 --seed 1
    python -m tests.fuzz.jit --only 17
"""

from __future__ import annotations

import argparse
import collections
import linecache
import re
import sys
import textwrap
import threading
import warnings
from typing import Any

import numpy as np

import workbench as wb
from workbench.arrays.array import read_values

UNTOLD = re.compile(r"was added to values that you had written|\[jit\]$")  # by replays, whose numbers are the same
counts: collections.Counter[str] = collections.Counter()

HEAD = """
@wb.struct
class Body:
    q: wb.array[float]
    mass: float

@wb.kernel
def move(x: wb.array[float], v: wb.array[float], dt: float):
    i = wb.tid()
    x[i] = x[i] + dt * v[i] * GAIN

@wb.kernel
def scale(x: wb.array[float], a: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = a * x[i] * x[i]

@wb.kernel
def total(x: wb.array[float], y: wb.array[float]):
    wb.atomic_add(y, 0, x[wb.tid()] * x[wb.tid()])

@wb.kernel
def shift(x: wb.array[float], k: int, y: wb.array[float]):
    i = wb.tid()
    if i + k < x.shape[0]:
        y[i] = x[i + k] + 1.0

@wb.kernel
def body(b: Body, y: wb.array[float]):
    i = wb.tid()
    y[i] = y[i] + b.mass * b.q[i]

GAIN, SHARED, FLAG, COUNT, BOOM = 1.0, wb.array(start(99)), True, {"n": 0}, False

class Model:
    def __init__(self):
        self.w, self.u, self.t, self.k = wb.array(start(98)), wb.array(start(97)), 0.25, 1
    def half(self, x):
        wb.launch(scale, N, [x, self.t], [self.w])

model = Model()

@wb.jit
def inner(x, a):
    wb.launch(scale, N, [x, a], [SHARED])
    return SHARED
"""


class Program:
    """A random program: `str(program)` is its text. `odd`: it may be refused, and why."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.odd, self.restless = "", self.chance(0.4)
        self.temporaries = 0
        self.names = ["x", "y", "z", "SHARED", "model.w", "model.u"]
        self.taped = self.chance(0.4)
        self.inside: list[str] = []
        for _ in range(int(self.rng.integers(1, 5))):
            self.inside.append(self.step())
        if self.chance(0.15):
            self.inside.insert(int(self.rng.integers(0, len(self.inside) + 1)), self.one(ODD))
            self.odd = "odd"
        self.turns = [self.turn(k) for k in range(int(self.rng.integers(5, 12)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one(self, of: Any) -> Any:
        return of[int(self.rng.integers(0, len(of)))]

    def step(self) -> str:
        a, b = self.one(self.names), self.one(self.names)
        while b == a:
            b = self.one(self.names)
        kinds = [
            f"wb.launch(move, N, [{a}, {b}, dt])",
            f"wb.launch(scale, N, [{a}, dt], [{b}])",
            f"wb.launch(shift, N, [{a}, k], [{b}])",
            f"wb.launch(body, N, [bod], [{a}])",
            f"{a}.fill_(dt)",
            f"{a}.zero_()",
            f"wb.copy({b}, {a})",
            f"for _ in range(3):\n    wb.launch(move, N, [{a}, {b}, 0.125])",
            f"if FLAG:\n    wb.launch(scale, N, [{a}, GAIN], [{b}])",
            f"inner({a}, dt)",
            f"model.half({a})",
            f"{a}.assign({b})",
        ]
        if self.chance(0.3):
            self.temporaries += 1
            name = f"t{self.temporaries}"
            made = self.one(["wb.zeros(N)", f"wb.clone({a})", "wb.array([0.5] * N)", f"wb.empty_like({a})"])
            self.names.append(name)
            return f"{name} = {made}\nwb.launch(scale, N, [{a}, dt], [{name}])"
        return self.one(kinds)

    def turn(self, k: int) -> str:
        """The text of one turn: what disturbs, and the call."""
        many = int(self.rng.integers(0, 3)) if self.chance(0.2 + 0.6 * self.restless) else 0
        lines = [self.one(DISTURBANCES) for _ in range(many)]
        calls = ["call(x, y, z, bod, dt, k)"] * (6 if self.restless else 30)
        calls += [
            "elsewhere(lambda: call(x, y, z, bod, dt, k))",
            "call(y, x, z, bod, dt, k)",
            "call(x, x, z, bod, dt, k)",
            "call(SHARED, y, model.w, bod, dt, k)",
        ]
        calls += [
            "call(*new(x, y, z), bod, dt, k)",
            "call(*new(x, y, z), bod, dt, k)",
            "call(big[k], big[k + 1], z, bod, dt, k)",
        ]
        calls += ["call(big[1:2, :N][0], big[:, 1], z, bod, dt, k)"]
        return "\n".join((*lines, self.one(calls), "look()"))

    def __str__(self) -> str:
        lines = "\n".join(self.inside)
        result = self.one_of_results()
        if self.taped:
            loss = "loss = wb.zeros(1)\n"
            lines = "with wb.Tape() as tape:\n" + textwrap.indent(
                f"{loss}{lines}\nwb.launch(total, N, [y, loss])", "    "
            )
            lines += "\n" + self.after
        text = f"if BOOM:\n    raise ValueError('boom')\n{lines}\n{result}"
        start = "x, y, z = [wb.array(start(s), requires_grad=GRAD) for s in (1, 2, 3)]\n"
        start += (
            "big = wb.array(np.stack([start(s) for s in range(10, 10 + N)]))\nbod = Body()\nbod.q, bod.mass = y, 0.5\n"
        )
        start += "dt, k = 0.5, 1\n"
        head = HEAD + "@wb.jit\ndef step(x, y, z, bod, dt, k):\n" + textwrap.indent(text, "    ") + "\n"
        turns = "\n".join(f"with attempt({n}):\n" + textwrap.indent(t, "    ") for n, t in enumerate(self.turns))
        return head.replace("GRAD", repr(self.taped)) + start.replace("GRAD", repr(self.taped)) + turns

    after = "tape.backward(loss)\nfor a in (x, y, z):\n    a.grad.numpy if False else None"

    def one_of_results(self) -> str:
        made = [n for n in self.names if n[0] == "t"]
        kinds = ["return None", "return y", "return x, {'z': z}", "return SHARED", "return dt", "return x[1:], z[::2]"]
        kinds += [f"return {self.names[-1]}", f"return [{n}, {n}[1:]]" if (n := made[0] if made else "y") else ""]
        if self.taped:
            kinds += ["return loss", "return loss, x.grad, y.grad"]
        rng = np.random.default_rng(len("".join(self.inside)))
        return kinds[int(rng.integers(0, len(kinds)))]


ODD = [
    "model.t += 0.125",
    "model.k += 1\nwb.launch(shift, N, [x, model.k % 3], [y])",
    "model.w, model.u = model.u, model.w\nwb.launch(scale, N, [model.w, 0.5], [model.u])",
    "COUNT['n'] += 1",
    "COUNT['n'] += 1\nwb.launch(scale, N, [x, float(COUNT['n'])], [y])",
    "wb.launch(scale, N, [x, random()], [y])",
    "x.assign(np.full(N, random(), np.float32))",
    "z.fill_(random())",
    "wb.launch(scale, N, [x, float(y.numpy()[0])], [y])",
    "if float(x[0]) > 0.5:\n    wb.launch(scale, N, [x, 0.5], [y])",
    "model.last = wb.clone(x)",
]
DISTURBANCES = [
    "x = wb.clone(x)\nmark(x, y, z)",
    "x, y = y, x",
    "dt = dt + 0.125",
    "dt = 0.5",
    "k = 2 if k == 1 else 1",
    "dt = np.float32(0.5)",
    "bod.mass = bod.mass + 1.0",
    "bod = again(bod)",
    "bod.q = wb.array(start(7))",
    "wb.config.threads = 3 - wb.config.threads",
    "wb.config.check_bounds = {True: 'affine', 'affine': False, False: True}[wb.config.check_bounds]",
    "wb.config.remember_launches = not wb.config.remember_launches",
    "wb.config.check_races = not wb.config.check_races",
    "GAIN = GAIN + 0.5",
    "SHARED = wb.array(start(5))",
    "SHARED.fill_(0.25)",
    "FLAG = not FLAG",
    "BOOM = True",
    "BOOM = False",
    "model.t = 0.75",
    "model.w = wb.array(start(4))",
    "model = Model()",
    "x.assign(start(6))",
    "x.numpy()[1] = 0.25",
    "held.append(y.numpy())",
    "scale = renewed(scale)",
    "y.requires_grad = not y.requires_grad",
    "if y.requires_grad:\n    y.grad.zero_()",
    "if x.requires_grad:\n    x.grad = wb.array(start(3))",
    "if x.requires_grad:\n    held.append(x.grad.numpy())",
    "with wb.Tape() as outer:\n    step(x, y, z, bod, dt, k)",
    "with wb.capture() as graph:\n    step(x, y, z, bod, dt, k)\ngraph.replay()",
    "with wb.Tape() as outer:\n    wb.launch(scale, N, [x, 0.5], [z])",
    "with wb.Tape() as outer:\n    wb.launch(scale, N, [z, 0.5], [x])",
    "if outer is not None and x.requires_grad:\n    outer.backward(grads={x: x.grad})",
    "if outer is not None and z.requires_grad:\n    outer.backward(grads={z: z.grad})",
    "outer = None",
    "del held[:]",
]


class Run:
    """One run of a program, and what was seen of it in each turn."""

    def __init__(self, program: Program, on: bool, number: int):
        self.program, self.on = program, on
        self.seen: list[list] = []
        self.rng = np.random.default_rng(number)
        self.file, self.text = f"<jit {number}>", str(program)
        linecache.cache[self.file] = (len(self.text), None, self.text.splitlines(True), self.file)
        self.refused = False
        self.warned: set[str] = set()
        self.names: dict[str, Any] = {
            "__name__": "__main__",
            "wb": wb,
            "np": np,
            "N": 6,
            "held": [],
            "outer": None,
            "start": start,
        }
        self.names |= {n: getattr(self, n) for n in ("attempt", "call", "look", "elsewhere", "new", "mark", "random")}
        self.names |= {"renewed": lambda k: wb.Kernel(k.func), "again": again}

    def run(self, backend: str) -> list[list]:
        wb.config.reset()
        wb.config.backend, wb.config.jit, wb.config.threads = backend, self.on, 1
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                exec(compile(self.text, self.file, "exec"), self.names)
            self.warned = {_unnamed(text) for w in said if not UNTOLD.search(text := str(w.message))}
            counts["replays"] += self.names["step"].replays
            counts["programs with replays"] += bool(self.names["step"].replays)
        finally:
            wb.config.reset()
        return self.seen

    def attempt(self, turn: int) -> Any:
        return _Attempt(self)

    def call(self, *args: Any) -> None:
        self.seen[-1].append(("result", plain(self.names["step"](*args))))
        for n, a in enumerate(args):
            if isinstance(a, wb.array):
                self.seen[-1].append((n, plain(a), None if a.grad is None else plain(a.grad)))

    def look(self) -> None:
        now, model = self.names, self.names["model"]
        for name in ("x", "y", "z", "big", "SHARED"):
            a = now[name]
            self.seen[-1].append((name, plain(a), None if a.grad is None else plain(a.grad)))
        self.seen[-1].append(("model", plain(model.w), plain(model.u), model.t, model.k, plain(now["bod"].q)))

    def elsewhere(self, act: Any) -> None:
        failed: list[BaseException] = []

        def run() -> None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed.pop()  # left there, it would keep the tapes of its frames alive

    def new(self, *arrays: Any) -> list[Any]:
        made = [wb.array(read_values(a).copy()) for a in arrays]
        self.mark(*made)
        return made

    def mark(self, *arrays: Any) -> None:
        for a in arrays:
            a.requires_grad = self.program.taped

    def random(self) -> float:
        return float(self.rng.random())


class _Attempt:
    def __init__(self, run: Run):
        self.run = run
        run.seen.append([])

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        slug = getattr(error, "slug", None)
        if self.run.on and slug in ("jit", "capture") and self.run.program.odd:
            self.run.refused = True
            raise _Refused from error
        self.run.seen[-1].append(("raised", type(error).__name__, slug or str(error)))
        counts[f"raised {slug or str(error)[:60]}"] += 1
        return True


def _unnamed(text: str) -> str:
    """A warning without the names of arrays, which are found in frames: there are others around a replay."""
    found = re.search("was written by an earlier tape|keep the earlier|requires_grad = True before", text)
    return re.sub(r"\bm\d+\b", "m", text) if found is None else str(re.findall(found.re, text))


class _Refused(BaseException):
    pass


def start(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.9, 0.9, 6).astype(np.float32)


def again(body: Any) -> Any:
    made = type(body)()
    made.q, made.mass = body.q, body.mass
    return made


def plain(value: Any) -> Any:
    if isinstance(value, wb.array):
        return value.shape, read_values(value).tobytes()
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def verdict(number: int) -> str:
    """What differs between the two runs; empty if nothing does."""
    program = Program(number)
    backend = "numpy" if number % 10 == 9 else "c"
    runs, warned = [], []
    for on in (True, False):
        run = Run(program, on, number)
        try:
            run.run(backend)
        except _Refused:
            counts["refused"] += 1
            return ""
        runs.append(run.seen)
        warned.append(run.warned)
    for turn, (one, other) in enumerate(zip(*runs, strict=True)):
        if one != other:
            pair = next(((a, b) for a, b in zip(one, other, strict=False) if a != b), (one, other))
            return f"turn {turn}: with {str(pair[0])[:300]}\n   without {str(pair[1])[:300]}"
    return f"warned: with {warned[0] - warned[1]}\n   without {lost}" if (lost := warned[1] - warned[0]) else ""


def main() -> int:
    from tqdm import tqdm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, default=None)
    given = parser.parse_args()
    if given.only is not None:
        print(Program(given.only), verdict(given.only), sep="\n")  # noqa: T201
        return 0
    wrong = 0
    for number in tqdm(range(given.seed, given.seed + given.programs)):
        if found := verdict(number):
            wrong += 1
            tqdm.write(f"--- {number}: {found}")
    print(wrong, "WRONG", *(f"\n  {what}: {n}" for what, n in sorted(counts.items())))  # noqa: T201
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""Texts of random loops (`fuzz_loops`): a pool of arrays, a few launches over them in each turn, and disturbances.

Most programs repeat the same turn until something disturbs them, and go on; what a turn is made of can be taken away
line by line. The names that the texts use beside their own are those of `fuzz_loops.Run`.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

NAMES = ", ".join([f"x{k}" for k in range(10)]) + ", loss, at, dt, cells, lag, rounds, d, wind, seed, tape, other"
NAMES += ", command, scope, forward"
REPLAYED = "for _ in range(2):\n    wb.capture_launch(scope.graph)"
QUIET = 4  # turns at the beginning that nothing disturbs


@dataclass
class Line:
    """Some text of a turn. `turns`: in which of them; None for all. `part`: where it stands in the turn."""

    part: str  # before | inside | between | after
    text: str
    turns: tuple[int, ...] | None = None

    def __str__(self) -> str:
        if self.turns is None:
            return self.text
        when = f"if turn == {self.turns[0]}:" if len(self.turns) == 1 else f"if turn in {self.turns}:"
        return when + "\n    with attempt():\n" + textwrap.indent(self.text, " " * 8)


class Program:
    """A random program. `str(program)` is its text."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.bits = int(self.rng.choice([32, 64]))
        self.size = 8 if self.chance(0.93) else 6000
        self.threads = int(self.rng.choice([1, 2]))
        self.calm = self.chance(0.85)  # writes each array once in a turn, and makes none
        self.turns = int(self.rng.integers(7, 13))
        self.start: list[str] = []
        self.floats: list[str] = []
        self.lines: list[Line] = []
        self.pool()
        self.launches()
        self.shape_of_a_turn()
        for _ in range(int(self.rng.integers(0, 7))):
            self.disturb()

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one(self, of: Any) -> Any:
        return of[int(self.rng.integers(0, len(of)))]

    @property
    def big(self) -> bool:
        return self.size > 100

    # ---- arrays

    def pool(self) -> None:
        say = self.start.append
        self.cells = self.one(["N", "N", "(N,)", "N - 1"])
        count = int(self.rng.integers(5, 8)) + 3 * self.calm
        self.floats = [f"x{k}" for k in range(count)]
        for k, name in enumerate(self.floats):
            asked = ", requires_grad=True" if k == 0 or self.chance(0.2) else ""
            made = (
                f"wb.array(start({k}, N), dtype=F{asked})"
                if k < 2 or self.chance(0.2)
                else f"wb.zeros(N, dtype=F{asked})"
            )
            say(f"{name} = {made}")
        if self.chance(0.25):
            asked = ", requires_grad=True" if self.chance(0.3) else ""
            say(f"shared = wb.array(start(9, 2 * N), dtype=F{asked})")
            first, second = self.one(
                [(":N", "N:"), ("::2", "1::2"), *([] if self.calm else [(":N", "N // 2:N // 2 + N"), ("N:", "N:")])]
            )
            where = self.rng.permutation(self.floats[2:])[:2]
            say(f"{where[0]}, {where[1]} = shared[{first}], shared[{second}]")
        say("at = wb.array(places, dtype=int)")
        say("p0, p1 = wb.zeros((R, N // R), dtype=F), wb.array(start(5, N).reshape(R, N // R), dtype=F)")
        say("v0, v1 = wb.zeros(N, dtype=V), wb.array(start(7, 3 * N).reshape(N, 3), dtype=V)")
        say("loss, top, few = wb.zeros(1, dtype=F), wb.zeros(1, dtype=F), wb.zeros(N // R, dtype=F)")
        over = self.one(["wb.array(start(3, N), dtype=F, requires_grad=True)", "wb.array(start(3, N), dtype=F)", "x1"])
        say(f"wind = k.Wind()\nwind.over, wind.force, wind.gusts, wind.strength = {over}, V(0.5, 0.2, 0.1), 2, 0.7")
        if self.chance(0.15):
            say("pair = [x2, x3]")
            self.floats += ["pair[0]", "pair[1]"]
        say(f"dt, cells, lag, rounds, d = 0.1, {self.cells}, 1, 2, V(0.1, 0.2, 0.3)")

    # ---- launches

    def launches(self) -> None:
        self.live, self.used = "x0", ["x0", "x1"]
        for _ in range(int(self.rng.integers(2, 7))):
            self.inside(self.launch())
        if self.chance(0.3) and not self.calm:
            out = self.fresh()
            self.lines.insert(
                int(self.rng.integers(0, 2)), Line(self.one(["before", "inside"]), f"{out} = wb.zeros(N, dtype=F)")
            )
        for _ in range(int(self.chance(0.3) and not self.calm)):
            self.inside(self.write())

    def inside(self, text: str) -> None:
        self.lines.append(Line("inside", text))

    def fresh(self) -> str:
        """An array to write to: most often one that nothing was written to in this turn."""
        rest = [n for n in self.floats if n not in self.used and n[0] != "p"]
        name = str(self.one(rest) if rest and (self.calm or self.chance(0.85)) else self.one(self.floats))
        self.used.append(name)
        return name

    def launch(self) -> str:
        x = self.live if self.chance(0.9) else self.one(self.used if self.calm else self.floats)
        y = self.fresh()
        kinds = ["moved", "smoothed", "picked", "looped", "factored", "scaled", "blown", "shifted", "placed", "added"]
        kinds += (
            [] if self.big else ["gathered", "highest", "plane", "vectors", "grown", "copied", "turned", "scattered"]
        )
        if self.calm:
            kinds = [n for n in kinds if n not in ("grown", "added", "highest", "turned", "scattered", "copied")]
        odds = np.array(
            [
                {
                    "grown": 0.3,
                    "added": 0.4,
                    "copied": 0.2,
                    "highest": 0.3,
                    "turned": 0.3,
                    "scattered": 0.2,
                    "picked": 0.1 if self.big else 1,
                    "placed": 0 if self.big else 0.7,
                    "moved": 2,
                    "looped": 0.3,
                }.get(n, 1.0)
                for n in kinds
            ]
        )
        kind = str(self.rng.choice(kinds, p=odds / odds.sum()))
        text = self.text_of(kind, x, y)
        if kind not in ("grown", "turned", "highest"):
            self.live = y
        return text

    def text_of(self, kind: str, x: str, y: str) -> str:
        v = self.one(self.floats[:2])
        w = self.fresh() if kind == "moved" else ""
        if kind == "grown":
            return f"wb.launch(k.grown, cells, [{x}])"
        if kind == "turned":
            return "wb.launch(k.turned, N, [N, at])"
        if kind == "highest":
            return f"wb.launch(k.highest, cells, [{x}], [top])"
        if kind == "plane":
            return (
                f"wb.launch(k.spread, (R, N // R), [{x}], [p0])\nwb.launch(k.plane, (R, N // R), [p0], [p1])\n"
                f"few.zero_()\n{y}.zero_()\nwb.launch(k.rows, p1.shape, [p1], [few])\n"
                f"wb.launch(k.picked, N // R, [few, at], [{y}])"
            )
        if kind == "vectors":
            cleared = f"{y}.zero_()\n" if self.cells == "N - 1" else ""
            return (
                f"{cleared}wb.launch(k.lifted, N, [{x}], [v0])\nwb.launch(k.pushed, (N,), [v0, d], [v1])\n"
                f"wb.launch(k.lengths, cells, [v1], [{y}])"
            )
        given = {
            "moved": f"[{x}, {v}, dt], [{y}, {w}]",
            "smoothed": f"[{x}, N], [{y}]",
            "gathered": f"[{x}, at], [{y}]",
            "picked": f"[{x}, at], [{y}]",
            "scattered": f"[{x}, at], [{y}]",
            "shifted": f"[{x}, lag], [{y}]",
            "placed": f"[{x}, lag], [{y}]",
            "added": f"[{x}, {y}]",
            "looped": f"[{x}, rounds], [{y}]",
            "factored": f"[{x}], [{y}]",
            "scaled": f"[{x}, {self.one(['dt', 'dt * turn', '0.5'])}], [{y}]",
            "blown": f"[wind, {x}], [{y}]",
            "copied": f"[{x}], [{y}]",
        }[kind]
        if self.chance(0.1) and not self.calm:
            given = given.replace(x, f"{x}[:]", 1)
        partly = kind in ("gathered", "smoothed", "shifted") or self.cells not in ("N", "(N,)")
        cleared = f"{y}.zero_()\n" if partly and (self.calm or self.chance(0.5)) else ""
        cleared += f"{w}.zero_()\n" if partly and w and self.calm else ""
        return f"{cleared}wb.launch(k.{kind}, cells, {given})"

    def write(self) -> str:
        x, y = self.one(self.floats), self.one(self.floats)
        return str(
            self.one(
                [
                    f"{x}.zero_()",
                    f"{x}.fill_(0.3)",
                    f"wb.copy({y}, {x})",
                    f"{y}.assign({x})",
                    f"{x}.assign(start(turn, N))",
                ]
            )
        )

    def shape_of_a_turn(self) -> None:
        ends = self.one(["loss", "loss", "grads"])
        if self.big or self.live == "few":
            ends = "grads"
        if ends == "loss":
            clear = Line(self.one(["before", "inside"]), "loss.zero_()")
            self.lines.append(clear)
            self.inside(f"wb.launch(k.squared, N, [{self.live}], [loss])")
            self.backward = self.one(
                ["tape.backward(loss)", "tape.backward(loss=loss)", "tape.backward(grads={loss: one})"]
            )
        else:
            self.backward = f"tape.backward(grads={{{self.live}: seed}})"
        self.fresh_tape = self.one(
            ["new", "new", "new", "reset", "dropped", *([] if self.calm else ["old kept", "all"])]
        )
        self.zeroed = self.chance(0.6)
        if self.chance(0.2):
            forgotten = self.one(["tape = wb.Tape()\n", "tape = wb.Tape()\n", ""])
            self.lines.insert(
                0, Line("before", forgotten + "with attempt():\n    for _ in range(3):\n        forward()")
            )
        if self.chance(0.15):
            self.lines.append(Line("after", "with attempt():\n    x0.assign(values(x0) - 0.1 * grad(x0))"))
        if "pair" in "".join(self.start) and self.chance(0.7):
            self.lines.append(Line("after", "pair.reverse()"))

    # ---- disturbances

    def disturb(self) -> None:
        turns = sorted({int(self.rng.integers(QUIET, self.turns)) for _ in range(int(self.one([1, 1, 1, 2])))})
        text, parts = self.disturbance()
        line = Line(self.one(parts), text, tuple(turns))
        where = [n for n, other in enumerate(self.lines) if other.part == line.part]
        self.lines.insert(self.one([*where, len(self.lines)]), line)

    def disturbance(self) -> tuple[str, list[str]]:
        """A text, and the parts of a turn in which it may stand."""
        kind = self.one(
            [
                self.numbers,
                self.writes,
                self.reads,
                self.asks,
                self.renews,
                self.exposes,
                self.others,
                self.gradients,
                self.looks,
                self.switches,
                self.breaks,
                self.odd,
            ]
        )
        return kind()

    ANYWHERE = ["before", "inside", "between", "after"]
    OUTSIDE = ["before", "between", "after"]

    def numbers(self) -> tuple[str, list[str]]:
        x = self.one(self.floats)
        return self.one(
            [
                ("dt = 0.3", self.ANYWHERE),
                ("dt = -0.0", self.ANYWHERE),
                ("dt = np.float32(0.2)", self.ANYWHERE),
                ("dt = 1", self.ANYWHERE),
                ("dt = True", self.ANYWHERE),
                ("dt = 1e300", self.ANYWHERE),
                ("dt = np.float64(0.25)", self.ANYWHERE),
                ("dt = 'x'", self.ANYWHERE),
                ("dt = np.int32(2)", self.ANYWHERE),
                ("lag = 0", self.ANYWHERE),
                ("lag = 3", self.ANYWHERE),
                ("lag = -1", self.ANYWHERE),
                ("rounds = 3", self.ANYWHERE),
                ("rounds = 0", self.ANYWHERE),
                ("rounds = np.int32(2)", self.ANYWHERE),
                ("lag = np.int64(1)", self.ANYWHERE),
                ("cells = N - 2", self.ANYWHERE),
                ("cells = 0", self.ANYWHERE),
                ("cells = (N - 1,)", self.ANYWHERE),
                ("cells = np.int64(N)", self.ANYWHERE),
                ("cells = N + 1", self.ANYWHERE),
                ("d = V(0.4, 0.0, -0.1)", self.ANYWHERE),
                ("d[1] = 0.7", self.ANYWHERE),
                ("wind.gusts = turn", self.ANYWHERE),
                ("wind.strength = 0.1 * turn", self.ANYWHERE),
                ("wind.force[0] = 0.9", self.ANYWHERE),
                ("wind.force = V(0.1, 0.1, turn)", self.ANYWHERE),
                (f"wind.over = {x}", self.ANYWHERE),
                ("wind = again(wind)", self.ANYWHERE),
                ("kernels.FACTOR = 0.5", self.ANYWHERE),
                ("kernels.FACTOR = 0.25 * turn", self.ANYWHERE),
                (f"dt = float({x}.numpy()[0])", self.ANYWHERE),
                (f"dt = {x}.list()[1]", self.ANYWHERE),
                ("dt = float(loss)", self.ANYWHERE),
                ("dt = wb.scalar(0.2, requires_grad=True)", self.ANYWHERE),
            ]
        )

    def writes(self) -> tuple[str, list[str]]:
        x, y = self.one(self.floats), self.one(self.floats)
        return self.one(
            [
                f"{x}.assign(start(turn, N))",
                f"{x}.assign([0.5] * N)",
                f"{x}.fill_(0.25)",
                f"{x}.zero_()",
                f"wb.copy({x}, {y})",
                f"{x}.assign({y})",
                f"{x}[1:3] = 0.4",
                f"{x}[2] = 0.5",
                f"{x}.numpy()[1] = 0.5",
                f"{x}.numpy()[:] *= 0.5",
                f"{x}.numpy()[:] = {y}.numpy()",
                "at.assign(places[::-1].copy())",
                "at.numpy()[0] = at.numpy()[1]",
                "loss.zero_()",
                "loss.fill_(1.0)",
                "top.zero_()",
                "v1.fill_(0.1)",
                "p1.zero_()",
                "few.zero_()",
                f"held.append({x}.numpy())",
                "held[-1][0] = 0.1 * turn",
                f"wb.copy({x}, {y}, 0, 1, 3)",
            ]
        ), self.ANYWHERE

    def reads(self) -> tuple[str, list[str]]:
        x = self.one(self.floats)
        return self.one(
            [
                f"say({x}.list())",
                f"say({x}.numpy()[1])",
                f"say(float({x}[0]))",
                f"say(str({x}))",
                f"say({x}.numpy().sum())",
                "say(loss.list())",
                "say(float(loss.numpy()[0]))",
                f"say(float({x}.numpy()[0]) > 0.3)",
                "say(at.list())",
                f"say(values({x}).sum())",
                f"say({x}.sum())",
            ]
        ), self.ANYWHERE

    def asks(self) -> tuple[str, list[str]]:
        x = self.one([*self.floats, "loss", "few", "wind.over", "v0", "p0"])
        how, value = self.one(["requires_grad", "requires_grad", "retain_grad"]), self.one(["True", "True", "False"])
        return f"{x}.{how} = {value}", self.ANYWHERE

    def renews(self) -> tuple[str, list[str]]:
        x = self.one([n for n in self.floats if "[" not in n])
        asked = self.one(["", "", ", requires_grad=True"])
        return self.one(
            [
                f"{x} = wb.zeros(N, dtype=F{asked})",
                f"{x} = None; {x} = wb.zeros(N, dtype=F{asked})",
                f"{x} = None; {x} = wb.array(start(turn, N), dtype=F{asked})",
                f"{x} = wb.clone({x})",
                f"{x} = wb.zeros(N + 2, dtype=F)[1:-1]",
                f"{x} = None; gc.collect(); {x} = wb.empty(N, dtype=F); {x}.fill_(0.1)",
                f"{x} = {x}[:]",
                f"{x} = wb.zeros(N + 2, dtype=F)",
                f"{x} = wb.array(start(2, N), dtype=OTHER)",
                f"{x} = wb.detach({x})",
                f"{x} = wb.zeros_like({x})",
                f"{x} = wb.from_numpy(start(1, N).astype(NF), dtype=F)",
                "loss = wb.zeros(1, dtype=F)",
                f"{x} = x0",
                "at = wb.array(places, dtype=int)",
                f"x0, {x} = {x}, x0",
                f"{x} = wb.full(N - 1, 0.2, dtype=F)",
            ]
        ), self.ANYWHERE

    def exposes(self) -> tuple[str, list[str]]:
        x = self.one(self.floats)
        return self.one(
            [
                f"{x}.ptr",
                f"held.append({x}.numpy())",
                f"held.append(wb.from_numpy({x}.numpy(), dtype=F))",
                f"held.append(np.from_dlpack({x}))",
                f"held.append({x}.__array_interface__)",
                "loss.numpy()",
                "at.numpy()",
                "x0.grad.ptr",
                f"held.append({x}[1:4])",
                f"held.append(wb.from_dlpack({x}))",
                f"torched({x})",
                f"torched({x}, 0.5)",
            ]
        ), self.ANYWHERE

    def others(self) -> tuple[str, list[str]]:
        x, y = self.one(self.floats), self.one(self.floats)
        launch = self.one(
            [
                f"wb.launch(k.scaled, N, [{x}, 0.5], [{y}])",
                f"wb.launch(k.squared, N, [{x}], [loss])",
                f"wb.launch(k.grown, N, [{x}])",
                f"wb.launch(k.added, N, [{x}, {y}])",
                f"wb.launch(k.factored, cells, [{x}], [{y}])",
                f"{x}.fill_(0.2)",
                f"wb.launch(k.moved, cells, [{x}, x1, dt], [{y}, x2])",
            ]
        )
        apart = launch.replace("])", "], record_tape=False)") if "launch" in launch else launch
        seeded = f"\nother.backward(grads={{{y}: seed}})"
        return self.one(
            [
                (launch, self.ANYWHERE),
                (launch, self.OUTSIDE),
                (apart, ["inside"]),
                ("forward()", self.OUTSIDE),
                (f"with wb.Tape() as other:\n    {launch}", self.ANYWHERE),
                (f"with wb.Tape() as other:\n    {launch}{seeded}", self.ANYWHERE),
                (f"with wb.Tape() as other:\n    forward(){seeded}", self.OUTSIDE),
                ("other = None", self.ANYWHERE),
                (f"with tape:\n    {launch}", ["between", "after"]),
                ("with tape:\n    forward()", ["between", "after"]),
                (f"elsewhere(lambda: {x}.fill_(0.3))", self.ANYWHERE),
                (f"elsewhere(lambda: wb.launch(k.grown, N, [{x}]))", self.ANYWHERE),
                ("elsewhere(forward)", self.OUTSIDE),
                (f"for _ in range(6):\n    wb.launch(k.scaled, N, [{x}, dt], [{y}])", self.OUTSIDE),
            ]
        )

    def gradients(self) -> tuple[str, list[str]]:
        x, y = self.one(self.floats), self.one(["x0", "x0", *self.floats])
        return self.one(
            [
                self.backward,
                f"tape.backward(grads={{{x}: seed}})",
                f"tape.backward(grads={{{x}: seed, {y}: seed}})",
                "tape.backward(loss)",
                "seed = wb.array(start(turn, N), dtype=F)",
                "seed.fill_(0.5)",
                "tape.zero()",
                f"{y}.grad.zero_()",
                f"{y}.grad.assign(start(turn, N))",
                f"{y}.grad.numpy()[1] = 2.0",
                f"held.append({y}.grad.numpy())",
                f"say({y}.grad.list())",
                f"say({y}.grad)",
                f"{y}.grad.fill_(1.0)",
                f"{y}.grad = seed",
                "tape.backward()",
                f"tape.backward(grads={{{x}: {y}.grad}})",
                f"wb.launch(k.scaled, N, [{y}.grad, 0.5], [{x}])",
                f"wb.copy({x}, {y}.grad)",
                f"{x}.grad.assign(start(turn, N)); tape.backward()",
                "tape.reset()",
                "say(len(tape.gradients))",
                f"wb.launch(k.scaled, N, [{x}, 0.5], [{y}.grad])",
                "tape.backward(grads={loss: wb.ones(2, dtype=F)})",
            ]
        ), self.one([["after"], ["between"], ["inside"], self.ANYWHERE])

    def looks(self) -> tuple[str, list[str]]:
        x = self.one(["x0", "x0", *self.floats])
        return self.one(
            [
                f"say(values(wb.jvp(tape, {{x0: start(1, N).astype(NF)}})[{x}]))",
                "say([(f.slug, f.launch) for f in tape.diagnose()])",
                f"say(str(tape.ledger({x}, 0)))",
                "say(events(tape))",
                "say(len(tape.events))",
                "say(len(tape.show().text))",
                f"say(tape.adjoint({x}))",
                "say(len(tape))",
                "say([e.line for e in tape.launches])",
                f"say(tape.log.has_touched({x}.span))",
                "say(values(tape.replay()[x0]))",
                "say(type(tape.memory()).__name__)",
                "copy.copy(tape)",
                "pickle.dumps((tape, x0))",
                "say(sorted(str(n) for n in tape.names.noted.values()))",
                "tape.microscope(tape.launches[0], 0)",
                "say([f.slug for f in tape.diagnose(loss)])",
            ]
        ), self.one([["after"], ["between", "after"], self.ANYWHERE])

    def switches(self) -> tuple[str, list[str]]:
        what, value, other = self.one(
            [
                ("threads", 1, 2),
                ("threads", 2, 1),
                ("check_bounds", True, False),
                ("check_races", True, False),
                ("deterministic", True, False),
                ("backend", "numpy", "c"),
                ("race_guard", False, True),
                ("all_adjoints", True, False),
                ("remember_launches", False, "remember"),
            ]
        )
        other = other if other == "remember" else repr(other)
        if self.big and value == "numpy":
            what, value, other = "check_bounds", True, "False"
        self.lines.append(Line("before", f"wb.config.{what} = {other}", (min(self.turns - 1, QUIET + 3),)))
        return f"wb.config.{what} = {value!r}", self.ANYWHERE

    def breaks(self) -> tuple[str, list[str]]:
        x, y = self.one(self.floats), self.one(self.floats)
        return self.one(
            [
                ("stop()", ["inside"]),
                ("wb.launch(k.scaled, N + 3, [x0, dt], [x1])", self.ANYWHERE),
                (f"wb.launch(k.scattered, N, [{x}, at], [{y}])", self.ANYWHERE),
                ("wb.launch(k.placed, N, [x0, N], [x1])", self.ANYWHERE),
                ("wb.launch(k.scaled, N, [x0], [x1])", self.ANYWHERE),
                ("wb.launch(k.scaled, N, [x0, dt], [None])", self.ANYWHERE),
                ("at.fill_(0)", self.ANYWHERE),
                ("at.fill_(N + 5)", self.ANYWHERE),
                (f"wb.config.check_bounds = True\nwb.launch(k.trusting, N, [{x}, at], [{y}])", self.ANYWHERE),
                ("interrupt()", ["inside"]),
            ]
        )

    def odd(self) -> tuple[str, list[str]]:
        x = self.one(self.floats)
        return self.one(
            [
                ("gc.collect()", self.ANYWHERE),
                ("held.clear()", self.ANYWHERE),
                ("tape = wb.Tape()", self.ANYWHERE),
                ("old.append(tape)", self.ANYWHERE),
                ("old.clear()", self.ANYWHERE),
                ("tape = None", ["after"]),
                ("with wb.ScopedCapture() as scope:\n    forward()\n" + REPLAYED, self.OUTSIDE),
                ("with wb.ScopedCapture() as scope:\n    turn_of()\n" + REPLAYED, ["before", "after"]),
                ("wb.capture_launch(scope.graph)", self.ANYWHERE),
                ("check(forward, loss)", ["after"]),
                ("check(forward, loss)", ["before"]),
                ("tape.__enter__()\ntape.__exit__()", self.ANYWHERE),
                (f"with tape.scope('part'):\n    {x}.fill_(0.1)", ["inside"]),
                ("forward = renewed(forward)", self.OUTSIDE),
                ("k.scaled = k.looped", ["before"]),
                ("turn_of()", ["after"]),
                ("command = wb.launch(k.scaled, N, [x0, 0.5], [x1], record_cmd=True)\ncommand.launch()", self.ANYWHERE),
                (f"tape.record_func(lambda: None, [{x}])", ["inside"]),
                ("copy.deepcopy(tape)", ["after"]),
            ]
        )

    # ---- the text

    def __str__(self) -> str:
        found = {part: [str(n) for n in self.lines if n.part == part] for part in self.ANYWHERE}
        inside = textwrap.indent("\n".join(found["inside"]) or "pass", " " * 4)
        entered = {
            "new": "tape = wb.Tape()",
            "old kept": "old.append(tape)\ntape = wb.Tape()",
            "dropped": "tape = None\ntape = wb.Tape()",
            "reset": "tape.reset()",
            "all": "tape = wb.Tape(keep='all')",
        }[self.fresh_tape]
        zero = "tape.zero()\n" if self.zeroed else ""
        main = f"{zero}{entered}\nwith tape:\n    forward()\n" + "\n".join(found["between"]) + f"\n{self.backward}\n"
        return (
            "\n".join(self.start) + f"\nseed, one = wb.array(start(4, N), dtype=F), wb.ones(1, dtype=F)\n"
            f"tape, other, scope = wb.Tape(), None, None\n\ndef forward():\n    global {NAMES}\n{inside}\n\n"
            f"def turn_of():\n    global {NAMES}\n{textwrap.indent(main, ' ' * 4)}\n"
            f"for turn in range({self.turns}):\n"
            + textwrap.indent("\n".join(found["before"]), " " * 4)
            + "\n    with attempt():\n        turn_of()\n"
            + textwrap.indent("\n".join(found["after"]), " " * 4)
            + "\n    look()\n"
        )

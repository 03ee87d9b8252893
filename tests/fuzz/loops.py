"""Random loops with what programs remember and without it: the same bits, gradients, refusals, warnings and events.

A program (`fuzz_loop_texts`) runs twice from the same text and numbers, with `config.remember_launches` on and off, and
everything that can be seen is compared after each turn. Between turns some float64 programs compare their gradient with
differences of the launches themselves. How often launches were found and walks run as lists is counted.

    python -m tests.fuzz.loops --programs 1000 --seed 1
    python -m tests.fuzz.loops --only 17        prints the text of one program, and the smallest that still differs
"""

from __future__ import annotations

import argparse
import collections
import copy
import gc
import linecache
import pickle
import re
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

import workbench as wb
from tests.fuzz import loop_kernels
from tests.fuzz.loop_texts import Program
from workbench.arrays import ports
from workbench.arrays.array import read_values
from workbench.launches import launch_cache
from workbench.tapes import backward_cache

counts: collections.Counter[str] = collections.Counter()
ONCE = ("[negative-index]", "[integer-division]")  # told once for a line
SAID = re.compile(r"0x[0-9a-f]+|<L\d+|\bm\d+\b")


def counted() -> Callable[[], None]:
    """Count what is remembered from here on. Returns what ends that."""
    olds: list[tuple] = []

    def wrap(of: Any, name: str, what: Callable[[Any, Any], Any]) -> None:
        old = vars(of)[name]

        def new(*given: Any, **more: Any) -> Any:
            result = old(*given, **more)
            counts[what(given[0], result) or "nothing"] += 1
            return result

        olds.append((of, name, old))
        setattr(of, name, new)

    wrap(backward_cache.CompiledBackward, "run", lambda self, _: "walks as lists")
    wrap(launch_cache.LaunchCache, "find", lambda self, found: "launches found" if found else "")
    return lambda: [setattr(of, name, old) for of, name, old in olds] and None


class Run:
    """One run of a program, and what was seen of it: per turn a list of (what, value)."""

    def __init__(self, program: Program, remember: bool, text: str, number: int):
        self.seen: list[list[tuple]] = [[]]
        self.remember, self.program = remember, program
        self.wrong: list[str] = []
        made = vars(loop_kernels.ALL[program.bits])
        n, F = program.size, wb.float32 if program.bits == 32 else wb.float64
        self.names: dict[str, Any] = {
            "__name__": "loop",
            "wb": wb,
            "np": np,
            "gc": gc,
            "copy": copy,
            "pickle": pickle,
            "kernels": loop_kernels,
            "k": SimpleNamespace(**made),
            "N": n,
            "R": 2,
            "F": F,
            "NF": F.numpy.type,
            "held": [],
            "old": [],
            "OTHER": wb.float64 if program.bits == 32 else wb.float32,
            "V": wb.vec3 if program.bits == 32 else wb.vec3d,
            "places": np.random.default_rng(number).permutation(n).astype(np.int32),
            "start": start,
            "values": values,
            "remember": remember,
            "turn": -1,
            "again": again,
            "renewed": renewed,
            "stop": stop,
            "interrupt": interrupt,
            **{
                n: getattr(self, n)
                for n in ("attempt", "say", "look", "check", "elsewhere", "events", "grad", "torched")
            },
        }
        self.text, self.file = text, f"<loop {number}>"
        linecache.cache[self.file] = (len(text), None, text.splitlines(True), self.file)

    def run(self) -> list[list[tuple]]:
        """Everything that was seen, without what depends on the process."""
        clean()
        wb.config.backend, wb.config.threads, wb.config.remember_launches = "c", self.program.threads, self.remember
        try:
            with warnings.catch_warnings(record=True) as self.said:
                warnings.simplefilter("always")
                exec(compile(self.text, self.file, "exec"), self.names)
                self.say(self.events(self.names["tape"]))
                self.look()
        finally:
            self.names.clear()
            clean()
        return self.seen

    # ---- what programs call

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Note what is raised, and go on."""
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            text = SAID.sub("", str(error))
            self.seen[-1].append(("raised", type(error).__name__, getattr(error, "slug", None), text))
            counts[f"raised {getattr(error, 'slug', None) or text[:90]}"] += 1

    def say(self, value: Any) -> None:
        self.seen[-1].append(("said", plain(value)))

    def look(self) -> None:
        """Note every array and its gradient, without a word to them; a turn is over."""
        now, row = self.names, self.seen[-1]
        arrays = {n: a for n, a in now.items() if isinstance(a, wb.array)}
        arrays |= {
            f"{n}[{i}]": a for n in ("pair", "held") for i, a in enumerate(now.get(n) or ()) if isinstance(a, wb.array)
        }
        wind = now.get("wind")
        if isinstance(getattr(wind, "over", None), wb.array):
            arrays["wind.over"] = wind.over
        for name, a in sorted(arrays.items()):
            m = a.allocation
            row.append((name, a.shape, bytes(m.bytes), m.version, m.exposed, bool(m.origins), m.blank == m.version))
            if m.grad is not None:
                row.append(
                    (
                        f"{name}.grad",
                        bytes(m.grad.bytes),
                        m.grad.version,
                        m.grad.publisher[0] > 0,
                        len(m.grad_notes),
                        len(m.awaited),
                    )
                )
        row += [("warned", SAID.sub("", str(w.message))) for w in self.said if not str(w.message).endswith(ONCE)]
        self.said.clear()
        self.seen.append([])

    def events(self, tape: Any) -> list:
        """What a tape has recorded."""
        if tape is None:
            return []
        return [
            (
                e.kind,
                e.label,
                e.line,
                [(s.offset, s.shape) for s in (*e.reads, *e.writes)],
                e.reverse is None,
                [(k.said, bytes(k.data)) for k in e.kept],
            )
            for e in tape.events
        ]

    def grad(self, a: Any) -> Any:
        return 0.0 if a.allocation.grad is None else values(a.grad)

    def elsewhere(self, act: Callable[[], Any]) -> None:
        """Do it in another thread, and wait for that."""

        def run() -> None:
            with self.attempt():
                act()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    def torched(self, a: Any, by: float | None = None) -> None:
        """Give an array to PyTorch, where it is in use, and let that change it."""
        if "torch" in sys.modules and ports.gradient_takers:
            t = wb.to_torch(a)
            self.names["held"].append(t)
            if by is not None:
                t.detach().mul_(by)

    def check(self, forward: Callable[[], None], loss: Any) -> None:
        """Compare the gradient of one turn that nothing disturbs with differences of its launches, in float64."""
        if self.program.bits == 64 and not self.program.big:
            found = differences(self.names, forward, loss)
            counts["checked " + found.partition(":")[0]] += 1
            if found.startswith("wrong"):
                self.wrong.append(found)
            self.say(found)


def clean() -> None:
    """Forget all that programs before have left."""
    gc.collect()
    backward_cache.forget()
    for made in loop_kernels.ALL.values():
        for kernel in vars(made).values():
            if isinstance(kernel, wb.Kernel):
                for one in (kernel, *getattr(kernel, "overloads", {}).values()):
                    one.launches = None
    loop_kernels.FACTOR = 0.75
    wb.config.reset()


def start(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.9, 0.9, n)


def values(a: Any) -> Any:
    return np.array(read_values(a) if isinstance(a, wb.array) else a)


def again(wind: Any) -> Any:
    made = type(wind)()
    made.over, made.force, made.gusts, made.strength = wind.over, wind.force, wind.gusts, wind.strength
    return made


def renewed(function: Any) -> Any:
    return types.FunctionType(function.__code__.replace(), function.__globals__)


def stop() -> None:
    raise RuntimeError("stopped")


def interrupt() -> None:
    raise KeyboardInterrupt


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.name, value.tobytes()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if isinstance(value, int | bytes | None) else SAID.sub("", str(value))


def differences(names: dict[str, Any], forward: Callable[[], None], loss: Any) -> str:
    """`right`, `wrong: ...`, or why it cannot be said; memory and gradients are as they were before."""
    arrays = [a for a in (*names.values(), names["wind"].over, *names.get("pair", ())) if isinstance(a, wb.array)]
    memories = list({a.allocation: None for a in arrays})
    leaves = [a for a in memories if a.asked and not a.retained.spans]
    if not leaves or any(a.retained.spans for a in memories) or wb.config.check_races:
        return "nothing"
    turn, names["turn"] = names["turn"], -1
    before = [a.bytes.copy() for a in memories]
    tape = wb.Tape()
    try:
        for a in leaves:
            a.gradient().bytes[...] = 0
            a.gradient().blank = -1
        with tape:
            forward()
        tape.backward(grads={loss: wb.ones(1, dtype=loss.dtype)})
        grads = [a.gradient().bytes.view(np.float64).copy() for a in leaves]
        rng = np.random.default_rng(1)
        ways = [rng.normal(size=len(g)) for g in grads]
        slopes = []
        for eps in (1e-5, 1e-6):
            ends = []
            for sign in (eps, -eps):
                _put(memories, before)
                for a, way in zip(leaves, ways, strict=True):
                    a.bytes.view(np.float64)[...] += sign * way
                forward()
                ends.append(float(values(loss)[0]))
            slopes.append((ends[0] - ends[1]) / (2 * eps))
    except wb.errors.WorkbenchError as error:
        return f"refused: {error.slug}"
    finally:
        names["turn"] = turn
        _put(memories, before)
    got = sum(float(g @ w) for g, w in zip(grads, ways, strict=True))
    size = 1e-9 + max(abs(got), abs(slopes[1]))
    if not np.isfinite([got, *slopes]).all() or abs(slopes[0] - slopes[1]) > 1e-5 * size + 1e-8:
        return "unsure"
    return "right" if abs(got - slopes[0]) < 1e-5 * size + 1e-7 else f"wrong: {got} instead of {slopes[0]}"


def _put(memories: list[Any], before: list[Any]) -> None:
    for a, data in zip(memories, before, strict=True):
        a.bytes[...] = data


def first_difference(one: list[list[tuple]], other: list[list[tuple]]) -> str:
    """The first thing that was seen differently; empty if there is none."""
    for turn, (a, b) in enumerate(zip(one, other, strict=False)):
        for x, y in zip(a, b, strict=False):
            if x != y:
                return f"turn {turn}: remembering {shown(x, y)}\n   without {shown(y, x)}"
        if len(a) != len(b):
            longer, who = (a, "with") if len(a) > len(b) else (b, "without")
            return f"turn {turn}: only {who} remembering {longer[min(len(a), len(b))]}"
    return "" if len(one) == len(other) else "turns"


def shown(x: Any, y: Any) -> str:
    if isinstance(x, tuple) and isinstance(y, tuple) and len(x) == len(y):
        return f"{x[0]}: " + ", ".join(
            f"#{k} {str(a)[:500]}" for k, (a, b) in enumerate(zip(x, y, strict=True)) if a != b
        )
    return str(x)[:500]


def verdict(program: Program, number: int) -> str:
    """What differs, or is wrong; empty if nothing does."""
    runs = []
    for remember in (True, False):
        run = Run(program, remember, str(program), number)
        end = counted() if remember else None
        before = counts.copy()
        try:
            runs.append(run.run())
        except BaseException as error:
            runs.append([[("broke", repr(error))]])
            if not isinstance(error, Exception):
                raise
        finally:
            if end is not None:
                end()
                met = [n for n in ("walks as lists", "launches found") if counts[n] > before[n]]
                counts.update(f"programs with {n}" for n in met)
        if run.wrong:
            return run.wrong[0]
        if runs[-1][0] and runs[-1][0][0][0] == "broke":
            counts["broke"] += 1
    return first_difference(*runs)


def reduced(program: Program, number: int) -> Program:
    """The smallest program found that still differs."""
    program.turns, smaller = program.turns, True
    while smaller:
        smaller = False
        for turns in range(2, program.turns):
            if _differs(program, number, turns=turns):
                program.turns, smaller = turns, True
                break
        for attribute in ("lines", "start"):
            k = 0
            while k < len(getattr(program, attribute)):
                rest = getattr(program, attribute)
                rest = rest[:k] + rest[k + 1 :]
                if _differs(program, number, **{attribute: rest}):
                    setattr(program, attribute, rest)
                    smaller = True
                else:
                    k += 1
    return program


def _differs(program: Program, number: int, **changed: Any) -> bool:
    other = copy.copy(program)
    vars(other).update(changed)
    found = verdict(other, number)
    return bool(found) and "broke" not in found


def main() -> int:
    from tqdm import tqdm

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--torch", action="store_true", help="PyTorch is in use, too")
    given = parser.parse_args()
    if given.torch:
        import torch  # noqa: F401

        wb.to_torch(wb.ones(1))
    differ = 0
    if given.only is not None:
        program = Program(given.only)
        print(program, verdict(program, given.only), sep="\n")  # noqa: T201
        if verdict(program, given.only):
            program = reduced(program, given.only)
            print("-" * 80, program, verdict(program, given.only), sep="\n")  # noqa: T201
        return 0
    for number in tqdm(range(given.seed, given.seed + given.programs)):
        found = verdict(Program(number), number)
        if found:
            differ += 1
            tqdm.write(f"--- {number}: {found}")
    print(differ, "differ", *(f"\n  {what}: {n}" for what, n in sorted(counts.items())))  # noqa: T201
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())

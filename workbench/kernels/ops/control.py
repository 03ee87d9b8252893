"""Rows without arithmetic: constants, the thread index, control flow, the stacks of a reversed loop.

`if`    args (condition,), regions (then, else) without parameters; results of both regions are the outs.
`for`   args (start, stop, step, *init), region params (i, *carried), results (*next); attr Loop.
        With `attr.breaks` the first result is a bool `go`: false leaves after this turn.
        The bounds are evaluated once; trips = max(0, ceil((stop - start) / step)); step 0 means no trip.
`while` args (*init), regions: (params carried -> results (go,)), (params carried -> results (*next)); attr Loop.
        With `attr.breaks` the body's first result is `go` too.
`each`  args (*tiles), one region: params (*indices, *elements), results (*elements) of the tiles out; attr Each.
`grad`  args, one region (params = the arguments): the derivatives of its results; `passes.gradients` replaces it.
`call`  args, one region (params = the arguments); attr is the user's func with its own adjoint or replay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import GradientError, LaunchError, Where
from .. import ir
from ..row import Effect
from ..types import Stack, Type, int32
from .row import ROWS, row


@dataclass(frozen=True)
class Loop:
    """Attribute of a loop. `breaks`: its body yields a flag, go on or not; `trips`: its turns if constant."""

    breaks: bool = False
    trips: int | None = None


@dataclass(frozen=True)
class Each:
    """Attribute of `each`, which visits every index of a tile of this shape, in any order.

    `order`: 1 where two of them may store to one cell, so that the last one counts; -1: from the last one on.
    """

    shape: tuple[int, ...]
    order: int = 0


@dataclass(frozen=True)
class Tid:
    """Attribute of `tid`: which launch dimension."""

    axis: int = 0


_FREE: dict[str, Any] = {"cheap": True, "cost": 0}

CONST = ir.CONST
TID = row("tid", type=lambda attr: int32, typed_by_attr=True, **_FREE)
DIM = row("dim", type=lambda attr: int32, typed_by_attr=True, **_FREE)
IF = row("if", type=lambda *t: None, cheap=True)
FOR = row("for", type=lambda *t: None)
WHILE = row("while", type=lambda *t: None)
CALL = row("call", type=lambda *t: None)
GRAD = row("grad", type=lambda *t: None)
EACH = row("each", type=lambda *t: None)


class Carried(NamedTuple):
    """One value that a loop carries: its result, what it begins with, its name in a turn, what a turn makes of it."""

    out: ir.Value
    init: ir.Value
    param: ir.Value
    result: ir.Value


def carried(loop: ir.Stmt) -> list[Carried]:
    """The values that a `for` or `while` carries."""
    counts, body = loop.row is FOR, loop.regions[-1]
    results = body.results[loop.attr.breaks :]
    return [Carried(*c) for c in zip(loop.outs, loop.args[3 * counts :], body.params[counts:], results, strict=True)]


def deciding(stmt: ir.Stmt) -> list[ir.Value]:
    """The values that decide which regions of a statement run, and how often: a condition, bounds, go on or not."""
    if stmt.row is IF:
        return [stmt.args[0]]
    if stmt.row is not FOR and stmt.row is not WHILE:
        return []
    first = stmt.args[:3] if stmt.row is FOR else stmt.regions[0].results
    return [*first, *stmt.regions[-1].results[: stmt.attr.breaks]]


def flows(stmt: ir.Stmt) -> list[list[ir.Value]]:
    """The values of each place that a statement with regions carries: first what comes in, then what may become it."""
    first, last = stmt.regions[0], stmt.regions[-1]
    if stmt.row is IF:
        both = zip(first.results, last.results, stmt.outs, strict=True)
        return [pair for a, b, out in both for pair in ([a, out], [b, out])]
    if stmt.row is EACH or stmt.row is CALL:
        params = first.params[len(stmt.attr.shape) :] if stmt.row is EACH else first.params
        ins, outs = zip(stmt.args, params, strict=True), zip(first.results, stmt.outs, strict=True)
        return [[source, target] for source, target in (*ins, *outs)]
    counts = stmt.row is FOR
    bounds = [[a, first.params[0]] for a in stmt.args[:3]] if counts else []
    loops = zip(carried(stmt), first.params[counts:], strict=True)  # of a `while` the names in its test too
    return bounds + [[source, x.param, p, x.out] for x, p in loops for source in (x.init, x.result)]


def thread_number(rank: int) -> ir.Value:
    """The number of the thread in a grid of so many axes, in row-major order."""
    emit = ir.current().emit
    number = emit(TID, attr=Tid(0))
    for k in range(1, rank):
        axis = emit(TID, attr=Tid(k))
        number = ROWS["add"](ROWS["mul"](number, emit(DIM, attr=Tid(k))), axis)
    return number


# attr of `stack`: the Stack type. push(stack, v); pop(stack) -> v. Strictly last in, first out over all stacks.
STACK = row("stack", type=lambda attr: attr, typed_by_attr=True, effect=Effect.IO)
PUSH = row("push", type=lambda stack, v: None, effect=Effect.IO)
POP = row("pop", type=lambda stack: _element(stack), effect=Effect.IO)

# attr: (format, names of the arguments); a composite takes one conversion per component
PRINTF = row("printf", type=lambda *t, attr: None, typed_by_attr=True, effect=Effect.IO)


@dataclass(frozen=True)
class Claim:
    """Attribute of `assert`: the error where its argument is false; `always`: tested in every launch.

    The interpreter always tests it; machine code tests the others where it tests indices (`config.check_bounds`).
    """

    text: str
    slug: str = "assert"
    why: str = ""
    instead: str = ""
    always: bool = False

    def error(self, kernel: str, where: Where | None, thread: object) -> LaunchError | GradientError:
        """The error that a launch raises in which the claim did not hold."""
        text = f"Kernel {kernel!r}, thread {thread}: {self.text}"
        return LaunchError(text, slug=self.slug, where=where, why=self.why, instead=self.instead)


@dataclass(frozen=True)
class NoDerivative(Claim):
    """The claim of an adjoint that none arrives here: what it went on from has no derivative."""

    def error(self, kernel: str, where: Where | None, thread: object) -> GradientError:
        """The error that a reverse pass raises in which an adjoint did arrive."""
        return GradientError(
            f"{self.text.rstrip('.')}.", slug=self.slug, where=where, why=self.why, instead=self.instead
        )


@dataclass(frozen=True)
class Convention(NoDerivative):
    """The claim of an adjoint that none arrives where a slope is a convention. It stops nothing: backward says it.

    `number`: the bit that says so in the status of a launch. `sure`: False if other launches decide: of an adjoint that
    is 0, those that multiplied; of `length` and the like forwards, those that went on from it.
    """

    number: int = 0
    sure: bool = True


ASSERT = row("assert", type=lambda holds, attr: None, typed_by_attr=True, effect=Effect.IO)

_CONVERSION = re.compile(r"%([-+ #0]*[0-9]*(?:[.][0-9]+)?)(?:hh|h|ll|l|z|j|t)?(.?)", re.DOTALL)
_INTEGERS, _FLOATS = "diuxXo", "eEfFgG"


def printed(format: str, write: Callable[[str, str], str]) -> tuple[str, list[str]]:
    """A format of `printf` with every conversion as `write(flags, kind)` has it, and the kinds in their order: d for
    signed integers, u for unsigned ones, f for floats, c for one sign. Raises ValueError for any other conversion.
    """
    kinds = []

    def one(found: re.Match) -> str:
        flags, kind = found.groups()
        if kind == "%" and not flags:
            return "%%"
        if not kind or kind not in _INTEGERS + _FLOATS + "c":
            raise ValueError(found[0])
        kinds.append("d" if kind in "di" else "u" if kind in _INTEGERS else "f" if kind in _FLOATS else "c")
        return write(flags, kind)

    return _CONVERSION.sub(one, format), kinds


def _element(stack: Type) -> Type:
    assert isinstance(stack, Stack)
    return stack.dtype

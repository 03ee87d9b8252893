"""Implication between conditions, so that a name assigned under a condition may be read where it is implied.

A condition becomes an expression: a bool, `("not", e)`, `("if", e, then, other)` as `and`, `or` and branches make them,
or a test, compared by how it is computed. An element of an array that is loaded twice is the same as long as nothing
was written in between.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from .. import ir
from ..ops import control, memory, scalar
from ..row import Effect
from ..types import is_int
from .scope import Unusable

Expr = Any
DEEP = 9


@dataclass(frozen=True)
class Guarded(Unusable):
    """A name that some paths have assigned. `flag`: whether this one has; `tree`: what it stands for if so.

    `parts`: several assignments on paths apart, as `if ... elif ...` makes them: where nothing proves the flag, each
    thread looks at it.
    """

    flag: ir.Value | bool
    tree: Any
    parts: bool = False


class Conditions:
    """The conditions known at the point being read. `epochs`: per load, the number of writes before it."""

    def __init__(self, epochs: dict[ir.Stmt, int]):
        self.epochs = epochs
        self.known: list[dict[Expr, bool]] = []
        self.made: dict[int, tuple[ir.Value, Expr]] = {}
        self.keys: dict[int, int] = {}  # of values
        self.numbers: dict[Hashable, int] = {}  # of forms
        self.kept: list[ir.Value] = []  # expressions hold ids: what they name must stay alive

    def truth(self, condition: ir.Value | bool) -> bool | None:
        """True or False if a condition is known to hold or fail here; else None."""
        if isinstance(condition, bool):
            return condition
        found = self.value(self.expr(condition), DEEP)
        return found if isinstance(found, bool) else None

    def push(self, condition: ir.Value | bool, truth: bool) -> None:
        """From here to `pop`, `condition` is `truth`."""
        self.known.append({})
        if isinstance(condition, ir.Value):
            self.assume(self.expr(condition), truth)

    def pop(self) -> None:
        self.known.pop()

    def assume(self, e: Expr, truth: bool) -> None:
        if isinstance(e, bool):
            return
        self.known[-1][e] = truth
        if e[0] == "not":
            self.assume(e[1], not truth)
        elif e[0] == "if":
            for side, other, holds in ((e[2], e[3], False), (e[3], e[2], True)):
                if side is (not truth):  # that side did not give this outcome
                    self.assume(e[1], holds)
                    self.assume(other, truth)

    def value(self, e: Expr, depth: int) -> Expr:
        """An expression with what is known put in."""
        if isinstance(e, bool) or not depth:
            return e
        for known in reversed(self.known):
            if e in known:
                return known[e]
        if e[0] == "not":
            return _not(self.value(e[1], depth - 1))
        if e[0] == "if":
            return _if(*(self.value(part, depth - 1) for part in e[1:]))
        return e

    # ---- expressions

    def expr(self, v: ir.Value, depth: int = DEEP) -> Expr:
        if id(v) not in self.made:
            self.made[id(v)] = v, self.expression(v, depth)
        return self.made[id(v)][1]

    def expression(self, v: ir.Value, depth: int) -> Expr:
        s = v.stmt
        if s is None or not depth:
            return ("value", id(v))
        if s.row is control.CONST:
            return bool(s.attr)
        if s.row is scalar.LOGICAL_NOT:
            return _not(self.expr(s.args[0], depth - 1))
        if s.row is control.IF:
            k = next(k for k, out in enumerate(s.outs) if out is v)
            return _if(*(self.expr(x, depth - 1) for x in (s.args[0], *(r.results[k] for r in s.regions))))
        if s.row in (scalar.NE, scalar.GE, scalar.GT) and is_int(s.args[0].type):
            return _not(("test", scalar.NEGATED[s.row], *map(self.key, s.args)))
        if s.row in scalar.NEGATED:
            return ("test", s.row, *map(self.key, s.args))
        return ("test", self.key(v))

    def key(self, v: ir.Value) -> int:
        """Equal for values that are computed alike from the same values."""
        if id(v) not in self.keys:
            self.kept.append(v)
            self.keys[id(v)] = self.numbers.setdefault(self.form(v), len(self.numbers))
        return self.keys[id(v)]

    def form(self, v: ir.Value) -> Hashable:
        s = v.stmt
        if s is not None and s.row is memory.LOAD and s in self.epochs:
            return ("load", self.epochs[s], *map(self.key, s.args))
        if s is not None and not s.regions and s.row.effect is Effect.PURE and len(s.outs) == 1:
            return (s.row, str(v.type), str(s.attr), *map(self.key, s.args))
        return ("value", id(v))


def _not(e: Expr) -> Expr:
    return not e if isinstance(e, bool) else e[1] if e[0] == "not" else ("not", e)


def _if(c: Expr, a: Expr, b: Expr) -> Expr:
    if isinstance(c, bool):
        return a if c else b
    if a == b:
        return a
    if a is True and b is False:
        return c
    if a is False or (not isinstance(a, bool) and a[0] == "not"):  # one form for a condition and its opposite
        return _not(c) if a is False and b is True else _not(_if(c, _not(a), _not(b)))
    return ("if", c, a, b)

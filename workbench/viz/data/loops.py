"""The folds of a long tape: the blocks that `tape.scope` named, and repeated sequences such as a time loop.

A scope is a token of the sequence around it; three or more equal turns, one after the other, become one token; and
again, until nothing repeats. Folds nest, and a fold stands before those inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...tapes.events import Event, Scope
from ...tapes.tape import Tape
from .trace import Fold

LONGEST = 64  # tokens of one turn
TURNS = 3  # from which a repetition folds
MOST = 20_000  # folds
DEEPEST = 6
SHOWN = 3  # labels in a name


@dataclass
class _Token:
    """Events [first, last) as one symbol; equal keys are equal work."""

    key: Any
    name: str
    first: int
    last: int
    kind: str = ""
    count: int = 1
    inner: list[_Token] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)  # of a repeat: where each turn starts


def turns(tape: Tape) -> tuple[list[int], int, str]:
    """(starts, end, name of one) of the steps of the user's loop.

    The loop is the outermost repetition of the most events; without one the scopes are its steps, or all events. What
    others have written behind the program is no step.
    """
    events = tape.events[: 1 + max((n for n, event in enumerate(tape.events) if event.kind.own), default=-1)]
    tokens = _compressed(_scoped(events, tape.scopes))
    loops = list(_outermost(tokens))
    if loops:
        loop = max(loops, key=lambda token: token.last - token.first)
        return loop.turns, loop.last, "step"
    scopes = [token for token in tokens if token.kind == "scope"]
    if len(scopes) > 1:
        return [token.first for token in scopes], scopes[-1].last, "scope"
    return list(range(len(events))), len(events), "event"


def _outermost(tokens: Sequence[_Token]) -> Iterator[_Token]:
    for token in tokens:
        if token.kind == "repeat":
            yield token
        else:
            yield from _outermost(token.inner)


def folds(tape: Tape) -> list[Fold]:
    """All folds of a tape, outer before inner, at most `MOST`."""
    tokens = _compressed(_scoped(tape.events, tape.scopes))
    found: list[Fold] = []
    _list(tokens, -1, found)
    return found


def _list(tokens: Sequence[_Token], parent: int, found: list[Fold]) -> None:
    for token in tokens:
        if token.kind and len(found) < MOST:
            found.append(Fold(token.name, token.first, token.last, token.kind, token.count, parent))
            _list(token.inner, len(found) - 1, found)


def _scoped(events: Sequence[Event], scopes: Sequence[Scope]) -> list[_Token]:
    """Events as tokens, those in a scope inside the token of that scope."""
    top: list[_Token] = []
    stack: list[tuple[Scope, list[_Token]]] = []
    opening = sorted(scopes, key=lambda s: s.first)  # stable: the outer one of two was opened first
    at = 0
    for n in range(len(events) + 1):
        while stack and _end(stack[-1][0], len(events)) <= n:
            _close(stack, top, len(events))
        while at < len(opening) and opening[at].first == n:
            if _end(opening[at], len(events)) > n:
                stack.append((opening[at], []))
            at += 1
        if n < len(events):
            event = events[n]
            token = _Token((event.kind, event.label, event.line), event.label, n, n + 1)
            (stack[-1][1] if stack else top).append(token)
    return top


def _end(scope: Scope, count: int) -> int:
    return count if scope.last is None else scope.last


def _close(stack: list[tuple[Scope, list[_Token]]], top: list[_Token], count: int) -> None:
    scope, inside = stack.pop()
    inner = _compressed(inside)
    token = _Token(("scope", scope.name), scope.name, scope.first, _end(scope, count), "scope", 1, inner)
    (stack[-1][1] if stack else top).append(token)


def _compressed(tokens: list[_Token]) -> list[_Token]:
    for _ in range(DEEPEST):
        shorter = _once(tokens)
        if len(shorter) == len(tokens):
            break
        tokens = shorter
    return tokens


def _once(tokens: list[_Token]) -> list[_Token]:
    """The tokens with every repetition of the shortest possible turn replaced by one, from left to right."""
    period, turns = _repeats(tokens)
    found, n = [], 0
    while n < len(tokens):
        p = int(period[n])
        if p == 0:
            found.append(tokens[n])
            n += 1
            continue
        inside = tokens[n : n + p * int(turns[n])]
        found.append(_repeat(inside, p))
        n += len(inside)
    return found


def _repeat(inside: list[_Token], p: int) -> _Token:
    count = len(inside) // p
    names = list(dict.fromkeys(token.name for token in inside[:p]))
    name = ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")
    key = "repeat", tuple(token.key for token in inside[:p]), count
    inner = [token for token in inside if token.kind]
    turns = [token.first for token in inside[::p]]
    return _Token(key, f"{name} ×{count}", inside[0].first, inside[-1].last, "repeat", count, inner, turns)


def _repeats(tokens: Sequence[_Token]) -> tuple[np.ndarray, np.ndarray]:
    """Per place the length of the shortest turn that repeats from there on (0 for none), and its count."""
    numbers: dict[Any, int] = {}
    keys = np.array([numbers.setdefault(token.key, len(numbers)) for token in tokens], np.int64)
    n = len(keys)
    period, turns = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for p in range(1, min(LONGEST, n // TURNS) + 1):
        same = np.zeros(n, bool)
        same[: n - p] = keys[:-p] == keys[p:]
        if not same.any():
            continue
        different = np.where(same, n, np.arange(n))
        run = np.minimum.accumulate(different[::-1])[::-1] - np.arange(n)
        count = run // p + 1
        new = (period == 0) & (count >= TURNS)
        period[new], turns[new] = p, count[new]
    return period, turns

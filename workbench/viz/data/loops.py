"""The folds of a long tape: the blocks that `tape.scope` named, and the loops of the program.

A scope is a token of the sequence around it. Three or more turns of a `for` or `while`, or of a function that is called
again and again, become one token: a turn begins where the program goes back in the text, whatever else a turn
launches, and where a call inside of it has been made as often as the loops around it in the turn say (`range(8)`).
Folds nest, and a fold stands before those inside it.
"""

from __future__ import annotations

import ast
import linecache
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import dropwhile, pairwise, takewhile
from math import prod
from typing import Any

from ...arrays.grouping import grouped
from ...tapes.events import Event, Scope
from ...tapes.tape import Tape
from .trace import Fold

TURNS = 3  # from which a loop folds
MOST = 20_000  # folds
SHOWN = 3  # labels in a name
Path = tuple[tuple[Any, ...], ...]  # (function, loop or arm, ...)


class _Site:
    """A call in the text of the program; `path` as in `paths`.

    function, loop    the function, and in it the outermost loop around the call (None: there is none)
    place, inner      where the call is in one turn: its line, or that of an `inner` loop around it
    arms              of the `if` around it in a turn, by line
    calls             how often it is made in a turn; None where the text does not say it
    """

    def __init__(self, line: int, path: Path):
        self.line, self.function = line, path[:1]
        rest = list(dropwhile(lambda one: one[0] != "for", path))
        self.loop = (*self.function, rest[0]) if rest else None
        self.path = (*self.function, *rest[1:])  # outside the loop
        self.arms = {one[1]: one[2] for one in takewhile(lambda one: one[0] == "if", rest[1:])}
        within = list(dropwhile(lambda one: one[0] != "for", rest[1:]))
        self.inner, counts = bool(within), [one[2] for one in within if one[0] == "for" and one[2] is not None]
        self.calls = prod(counts) if len(counts) == len(within) else None
        self.place = next((one[1] for one in rest[1:] if one[0] == "for"), line)

    @cached_property
    def out(self) -> _Site:
        """The site as it is inside one turn."""
        return _Site(self.line, self.path)


@dataclass
class _Token:
    """Events [first, last) as one symbol; equal keys are equal work. Of a fold the site is that of its first event."""

    key: Any
    name: str
    first: int
    last: int
    site: _Site
    kind: str = ""
    count: int = 1
    inner: list[_Token] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)  # of a repeat: where each turn starts


def turns(tape: Tape) -> tuple[list[int], int, str]:
    """(starts, end, name of one) of the steps of the user's loop.

    The loop is the outermost repetition of the most events; without one the scopes are its steps, or all events. What
    others have written behind the program is no step.
    """
    end = 1 + max((n for n, event in enumerate(tape.events) if event.kind.own), default=-1)
    found = folds(tape, end)
    loops = [fold for fold in found if fold.kind == "repeat"]
    if loops:
        loop = max(loops, key=lambda fold: fold.last - fold.first)
        return list(loop.turns), loop.last, "step"
    scopes = [fold for fold in found if fold.parent < 0]
    if len(scopes) > 1:
        return [fold.first for fold in scopes], scopes[-1].last, "scope"
    return list(range(end)), end, "event"


def folds(tape: Tape, end: int | None = None) -> list[Fold]:
    """All folds of a tape, of its events up to `end`, outer before inner, at most `MOST`."""
    found: list[Fold] = []
    _list(_scoped(tape.events[:end], [scope for scope in tape.scopes if end is None or scope.first < end]), -1, found)
    return found


def _list(tokens: Sequence[_Token], parent: int, found: list[Fold]) -> None:
    for token in tokens:
        if token.kind and len(found) < MOST:
            found.append(Fold(token.name, token.first, token.last, token.kind, token.count, parent, token.turns))
            _list(token.inner, len(found) - 1, found)


def _scoped(events: Sequence[Event], scopes: Sequence[Scope]) -> list[_Token]:
    """Events as tokens, folded; those in a scope inside the token of that scope."""
    tokens = [
        _Token((event.kind, event.label, site.line), event.label, n, n + 1, site)
        for n, (event, site) in enumerate(zip(events, _sites(events), strict=True))
    ]
    for scope in sorted(scopes, key=lambda one: one.first)[::-1]:  # stable: the inner one of two was opened last
        last = len(events) if scope.last is None else min(scope.last, len(events))
        a, b = (bisect_left(tokens, n, key=lambda token: token.first) for n in (scope.first, last))
        if inside := tokens[a:b]:
            tokens[a:b] = [_Token(("scope", scope.name), scope.name, scope.first, last, inside[0].site, "scope")]
            tokens[a].inner = _folded(inside)
    return _folded(tokens)


def _sites(events: Iterable[Event]) -> Iterator[_Site]:
    """Yields the site of the call of each event, each place looked up once."""
    known: dict[Any, _Site] = {}
    files: dict[str, dict[int, Path]] = {}
    for event in events:
        place = event.place
        code = place[0] if isinstance(place, tuple) else None  # until somebody asks for its text
        file = code.co_filename if code else getattr(place, "file", "")
        key = file, event.line
        if key not in known:
            if file not in files:
                files[file] = paths(file)
            first = code.co_firstlineno if code else 0
            known[key] = _Site(event.line, files[file][event.line] if files[file] else _function(file, first))
        yield known[key]


def paths(file: str) -> dict[int, Path]:
    """The path of each line of a file: its function, then the loops and arms of `if` around it, outermost first."""
    found: dict[int, Path] = defaultdict(lambda: _function(file, 0))
    try:
        nodes = list(ast.walk(ast.parse("".join(linecache.getlines(file)))))  # what is around others comes first
    except (SyntaxError, ValueError):
        return {}
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    given = ((t, node.value) for node in nodes if isinstance(node, ast.Assign) for t in node.targets)
    numbers = {t.id: _number(value, {}) for t, value in given if isinstance(t, ast.Name) and stored[t.id] == 1}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.update(dict.fromkeys(_lines(node.body), _function(file, node.lineno)))
        elif isinstance(node, ast.For | ast.While):
            for n in _lines(node.body):
                found[n] += (("for", node.lineno, _turns_of(node, numbers)),)
        elif isinstance(node, ast.If):
            for arm, body in enumerate((node.body, node.orelse)):
                for n in _lines(body):
                    found[n] += (("if", node.lineno, arm),)
    return found


def _turns_of(node: ast.For | ast.While, numbers: Mapping[str, int | None]) -> int | None:
    """The number of turns of `for k in range(8)`, none of which is left early; None where it is not known."""
    call, leaves = getattr(node, "iter", None), (ast.Break, ast.Continue, ast.Return)
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "range":
        return None
    if call.keywords or any(isinstance(inside, leaves) for inside in ast.walk(node)):
        return None
    ends = [n for a in call.args if (n := _number(a, numbers)) is not None]
    return len(range(*ends)) if len(ends) == len(call.args) else None


def _number(node: ast.expr, numbers: Mapping[str, int | None]) -> int | None:
    """A whole number that is written there, or has one of these names; None for another expression."""
    if isinstance(node, ast.Name):
        return numbers.get(node.id)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _lines(body: Sequence[ast.stmt]) -> range:
    return range(body[0].lineno, (body[-1].end_lineno or 0) + 1) if body else range(0)


def _function(file: str, line: int) -> Path:
    """The path inside a function: it may be called again and again, and is a loop then."""
    return ("def", file, line), ("for", line)


def _folded(tokens: list[_Token]) -> list[_Token]:
    """The tokens with every loop as one."""
    places = grouped((token.site.loop, n) for n, token in enumerate(tokens) if token.site.loop is not None)
    if not places:
        return tokens
    weights = {loop: _weight(loop, [tokens[n] for n in some], some, len(places) > 1) for loop, some in places.items()}
    few = {loop for loop, (_, count) in weights.items() if count < TURNS}
    for token in tokens:
        if token.site.loop in few:
            token.site = token.site.out
    if few:
        return _folded(tokens)
    alike = Counter(count for _, count in weights.values())
    loop = max(weights, key=lambda one: (weights[one][0], alike[weights[one][1]], weights[one][1]))
    found, at, first = list[_Token](), 0, places[loop][0]
    for a, b in pairwise([*places[loop], len(tokens)]):
        left = any(token.site.function == loop[:1] for token in tokens[a + 1 : b])  # the function has left the loop
        if left or b == len(tokens):
            usual = {token.key for token in tokens[first:a] if weights[loop][0]}
            end = next((n for n in range(a + 1, b) if tokens[n].key not in usual), b)  # of the last turn
            found += _turned(tokens[at:end], loop)
            at, first = end, b
    return [*found, *_folded(tokens[at:])]


def _weight(loop: Path, tokens: list[_Token], places: list[int], several: bool) -> tuple[bool, int]:
    """The rank of a loop as the outer one: others come between most of its turns, and how many turns it has."""
    count, groups = len(_starts(tokens, loop)), 1 + sum(b - a > 1 for a, b in pairwise(places))
    return several and loop[1][1] != loop[0][2] and 2 * groups > count, count


def _starts(tokens: Sequence[_Token], loop: Path) -> list[int]:
    """The places where a turn of a loop begins: the program has gone back, or taken the other arm of an `if`."""
    found, at, seen, arms, made = list[int](), 0, set[Any](), dict[int, int](), Counter[Any]()
    for n, token in enumerate(tokens):
        site = token.site
        if site.loop != loop:
            continue
        again = site.place == at and not site.inner and token.key in seen
        again |= site.calls is not None and made[token.key] == site.calls
        if not found or site.place < at or again or any(arms.get(k, arm) != arm for k, arm in site.arms.items()):
            found.append(n)
            seen, arms, made = set(), {}, Counter()
        at = site.place
        seen.add(token.key)
        made[token.key] += 1
        arms |= site.arms
    return found


def _turned(tokens: list[_Token], loop: Path) -> list[_Token]:
    """The turns of a loop as one token, as long as there are enough of them, after what comes before it."""
    starts = _starts(tokens, loop)
    if len(starts) >= TURNS:
        starts = _led(tokens, loop, starts)
    for token in tokens:
        if token.site.loop == loop:
            token.site = token.site.out
    if len(starts) < TURNS:
        return _folded(tokens)
    parts = [_folded(tokens[a:b]) for a, b in pairwise([*starts, len(tokens)])]
    before, few = _folded(tokens[: starts[0]]), len(parts) < 2 * TURNS
    if few and len({_key(part) for part in parts}) > 1:  # no two of so few turns need be the usual one
        return [*before, *(token for part in parts for token in part)]
    return [*before, _repeat(parts, [token for part in parts for token in part if token.kind])]


def _led(tokens: list[_Token], loop: Path, starts: list[int]) -> list[int]:
    """The starts of turns before what other functions do there, if they do so before the first turn too."""

    def lead(start: int) -> int:
        return next(k for k in range(start + 1) if k == start or tokens[start - 1 - k].site.loop == loop)

    first, second, *_ = starts
    before = lead(second)
    if not before or _key(tokens[max(first - before, 0) : first]) != _key(tokens[second - before : second]):
        return starts
    return [first - before, *(start - lead(start) for start in starts[1:])]


def _key(part: Sequence[_Token]) -> tuple[Any, ...]:
    return tuple(token.key for token in part)


def _repeat(parts: Sequence[Sequence[_Token]], inner: list[_Token]) -> _Token:
    """Turns as one token, with the name of the usual turn and of what others have besides."""
    keys = [_key(part) for part in parts]
    plain, many = Counter(keys).most_common(1)[0]
    names = list(dict.fromkeys(token.name for token in parts[keys.index(plain)]))
    more = list(dict.fromkeys(token.name for part in parts for token in part if token.name not in names))
    name = ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")
    odd = len(parts) - many
    if odd:
        name += f" (+{more[0]}{', …' if len(more) > 1 else ''} in {odd})" if more else f" ({odd} differ)"
    turns = [part[0].first for part in parts]
    one, count = parts[0][0], len(parts)
    key, name = ("repeat", plain, count), f"{name} ×{count}"
    return _Token(key, name, one.first, parts[-1][-1].last, one.site, "repeat", count, inner, turns)

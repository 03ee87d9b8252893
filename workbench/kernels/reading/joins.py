"""Joins of control flow: the names of both sides of a branch become one state.

What differs becomes a result of the `if`, arrays that are parts of one array as parts at chosen places. Of different
arrays it is which one (`scope.Choice`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...errors import KernelError, Where
from .. import ir
from ..ops import control
from ..types import bool_
from .base import Meaning, ReaderBase
from .chosen_arrays import MOST, array_choice, options
from .conditions import Guarded
from .scope import (
    Choice,
    Fields,
    Part,
    StructParts,
    Unusable,
    describe,
    is_array,
    leaves,
    placed_at,
    places,
    rebuild,
    same_parts,
)


class PendingResult(ir.Value):
    """Stands for a result of the `if` that is being closed, until that statement exists."""

    becomes: ir.Value

    def __hash__(self) -> int:
        return id(self)


def resolved(tree: Meaning) -> Any:
    """The tree with every `PendingResult` replaced by the result it stands for."""
    if isinstance(tree, Guarded):
        flag, inner = resolved(tree.flag), resolved(tree.tree)
        return tree if flag is tree.flag and inner is tree.tree else replace(tree, flag=flag, tree=inner)
    found = list(leaves(tree))
    if not any(isinstance(v, PendingResult) for v in found):
        return tree
    return rebuild(tree, iter([v.becomes if isinstance(v, PendingResult) else v for v in found]))


class Join:
    """Joins the names of the two sides of an `if`."""

    def __init__(self, reader: ReaderBase, node: ast.AST | None, then: ir.Region, other: ir.Region):
        self.reader, self.where, self.then, self.other = reader, reader.located(node), then, other
        self.pairs: list[tuple[ir.Value, ir.Value]] = []
        self.places: list[PendingResult] = []
        self.made: dict[tuple[Any, Any], PendingResult] = {}

    def name(self, name: str, a: dict[str, Any], b: dict[str, Any]) -> Any:
        if name == "$value" and (name not in a or name not in b):
            return self.returned(a.get(name), b.get(name))
        if name not in a or name not in b or isinstance(a[name], Guarded) or isinstance(b[name], Guarded):
            return self.guarded(name, a, b)
        return self.tree(name, a[name], b[name])

    def returned(self, a: Meaning, b: Meaning) -> Any:
        """The join of `$value` where only one side has returned: zeros, never read, for the other side."""
        if a is None and b is None:
            return None
        some, region = (a, self.other) if a is not None else (b, self.then)
        if isinstance(some, Unusable):
            return some
        blank = self.reader.zeros_like(some, region)
        return self.tree("$value", a if a is not None else blank, b if b is not None else blank)

    def guarded(self, name: str, a: dict[str, Any], b: dict[str, Any]) -> Any:
        """The joined binding of a name that some paths leave unassigned: `Guarded` or `Unusable`."""
        if a.get(name) is b.get(name):
            return a[name]
        flags, trees, parts = map(list, zip(_assigned(a.get(name)), _assigned(b.get(name)), strict=True))
        for tree in trees:
            if isinstance(tree, Unusable):
                return tree
        error = lambda at: maybe_unbound(name, self.where, at)  # noqa: E731
        if None in trees:
            some, region = (trees[0], self.other) if trees[1] is None else (trees[1], self.then)
            if self.reader.is_undecided(some):
                return Unusable(error)
            trees = [self.reader.zeros_like(some, region) if tree is None else tree for tree in trees]
        tree = self.tree(name, *trees)
        if isinstance(tree, Unusable):
            return tree
        several = any(parts) or (True in flags and False not in flags)
        return Guarded(error, self.tree("$", *flags), tree, several)

    def cell(self, key: str, a: dict[str, ir.Value], b: dict[str, ir.Value]) -> Any:
        """The joined contents of a local array that may exist on one side only (zeros on the other)."""
        some, region = (a[key], self.other) if key in a else (b[key], self.then)
        blank = self.reader.zeros_like(some, region)
        return self.tree(key, a.get(key, blank), b.get(key, blank))

    def result(self, a: Meaning, b: Meaning) -> Any:
        """The value of a conditional expression. Raises KernelError if its sides cannot be joined."""
        joined = self.tree("", a, b)
        if isinstance(joined, Unusable):
            raise joined.error(self.where)
        return joined

    def tree(self, name: str, a: Meaning, b: Meaning) -> Any:
        if a is b or isinstance(a, Unusable):
            return a
        if isinstance(b, Unusable):
            return b
        if same_constant(a, b):
            return a
        if is_array(a) or is_array(b):
            return self.array(name, a, b)
        if isinstance(a, StructParts) and isinstance(b, StructParts) and a.type == b.type:
            parts = {k: self.tree(f"{name}.{k}", a.fields[k], b.fields[k]) for k in a.fields}
            return StructParts(a.type, parts)
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return tuple(self.tree(name, p, q) for p, q in zip(a, b, strict=True))
        return self.leaf(name, a, b)

    def array(self, name: str, a: Meaning, b: Meaning) -> Any:
        """The join of two arrays: a view at joined places, `Fields` of joins, a `Choice`, or `Unusable`."""
        if same_array(a, b):
            return a
        if not (is_array(a) and is_array(b)) or a.type != b.type or isinstance(a, Fields) != isinstance(b, Fields):
            return self.clash(name, a, b)
        if isinstance(a, Fields):
            assert isinstance(b, Fields)
            joined = [self.tree(name, a.parts[k], b.parts[k]) for k in a.parts]
            bad = next((x for x in joined if isinstance(x, Unusable)), None)
            return bad or Fields(a.type, dict(zip(a.parts, joined, strict=True)))
        assert isinstance(a, Part) and isinstance(b, Part)
        return self.placed(a, b) if same_parts(a, b) else self.choice(name, a, b)

    def placed(self, a: Part, b: Part) -> Any:
        """A view of one array, its places joined from both sides."""
        joined = [self.tree("$", x, y) for x, y in zip(places(a), places(b), strict=True)]
        bad = next((x for x in joined if isinstance(x, Unusable)), None)
        return bad or placed_at(a, joined)

    def choice(self, name: str, a: Part, b: Part) -> Any:
        """The `Choice` among the arrays of both sides, without duplicates."""
        sides = [[option, flag, None, False] for option, flag in options(a)]
        for option, flag in options(b):
            same = next((s for s in sides if s[2] is None and same_parts(s[0], option)), None)
            if same is None:
                sides.append([None, False, option, flag])
            else:
                same[2:] = option, flag
        if len(sides) > MOST:
            return Unusable(lambda at: array_choice(name, self.where, at, f"There are more than {MOST}."))
        flags, found = [], []
        for option, flag, other, other_flag in sides:
            flags.append(self.tree("$", flag, other_flag))
            option = self.reader.zeros_like(other, self.then) if option is None else option
            other = self.reader.zeros_like(option, self.other) if other is None else other
            found.append(option if same_array(option, other) else self.placed(option, other))
        bad = next((x for x in (*flags, *found) if isinstance(x, Unusable)), None)
        return bad or Choice(tuple(found), tuple(flags))

    def leaf(self, name: str, a: Meaning, b: Meaning) -> Any:
        if not self.reader.valued(a) or not self.reader.valued(b):
            return self.clash(name, a, b)
        with self.reader.builder.inside(self.then):
            left = self.reader.value(self.reader.beside(a, [b]))
        with self.reader.builder.inside(self.other):
            right = self.reader.value(self.reader.beside(b, [a]))
        if left.type != right.type:
            return self.clash(name, left, right)
        pair = (constant_key(left), constant_key(right))
        if pair not in self.made:
            self.made[pair] = PendingResult(left.type, "" if name.startswith("$") else name)
            self.pairs.append((left, right))
            self.places.append(self.made[pair])
        return self.made[pair]

    def clash(self, name: str, a: Meaning, b: Meaning) -> Unusable:
        where = self.where
        label = "the returned value" if name == "$value" else f"`{name}`" if name else "this expression"
        if (a is None) != (b is None):
            fn = self.reader.frame.fn
            return Unusable(lambda at: self.reader.missing_return(fn, at or where))
        return Unusable(
            lambda at: KernelError(
                f"{label} has two types: {describe(a)} on one branch, {describe(b)} on the other",
                slug="branch-type",
                where=at or where,
                why=f"The branches part at line {where.line}.",
                instead="the same type on both, with a cast such as float(...)",
            )
        )


def _assigned(x: Meaning) -> tuple[Any, Any, bool]:
    """(flag that the name is assigned, its tree, True if by several assignments); (False, None, False) for None."""
    if isinstance(x, Guarded):
        return x.flag, x.tree, x.parts
    return x is not None, x, False


def constant_key(v: ir.Value) -> Any:
    """Equal for equal constants; any other flag has a key of its own."""
    if v.stmt is not None and v.stmt.row is control.CONST and v.type == bool_:
        return "const", v.stmt.attr
    return id(v)


def same_constant(a: Meaning, b: Meaning) -> bool:
    return type(a) is type(b) and isinstance(a, (bool, int, float, str)) and repr(a) == repr(b)


def same_number(a: Meaning, b: Meaning) -> bool:
    return a is b or same_constant(a, b)


def same_array(a: Meaning, b: Meaning, same: Callable[[Any, Any], bool] = same_number) -> bool:
    """True for one part of one array, whose places are the `same` numbers."""
    if isinstance(a, Fields) and isinstance(b, Fields):
        return a.type == b.type and all(same_array(a.parts[k], b.parts[k], same) for k in a.parts)
    return same_parts(a, b) and all(map(same, places(a), places(b)))


def maybe_unbound(name: str, bound: Where, at: Where | None) -> KernelError:
    text = f"`{name}` may have no value here"
    why = f"It is assigned on some of the paths through line {bound.line} only: {bound.text.strip()}"
    instead = f"{name} = ..., before line {bound.line}"
    return KernelError(text, slug="maybe-unbound", where=at or bound, why=why, instead=instead)

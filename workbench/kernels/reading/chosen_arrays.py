"""Names and fields that stand for one array or another, by the way that a thread has come (`scope.Choice`).

No statement of the program takes a choice: whatever touches an element is written once for each array it may be, in a
branch. So all who look at a program see which arrays it may read and write, and the derivative of a branch is exact.
Where the conditions around a line say which array is meant, there is no branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...errors import KernelError, Where
from .. import ir
from .scope import ArrayView, Choice, Fields, Local, StructParts, is_array, placed_at, places, same_parts

MOST = 16  # arrays that one name may stand for: each access is written once for each


class Chosen:
    """Mixin of `Reader`: names that stand for one array or another."""

    def each_option(self, choice: Choice, do: Callable[[Any], Any]) -> Any:
        """The result of `do` for the array that is meant: one branch per option that is possible here."""
        known = [self.conditions.truth(flag) for flag in choice.flags]
        if True in known:
            return do(choice.options[known.index(True)])
        open_ = [k for k, truth in enumerate(known) if truth is None] or [0]
        return self.one_of([(choice.options[k], choice.flags[k]) for k in open_], do)

    def one_of(self, pairs: Sequence[tuple[Any, Any]], do: Callable[[Any], Any]) -> Any:
        (option, flag), *rest = pairs
        if not rest:
            return do(option)
        return self.branch(None, flag, lambda: do(option), lambda: self.one_of(rest, do))

    # ---- loops

    def as_carried(self, x: Any, pattern: Any) -> Any:
        """`conformed`, with every place and flag as an IR value, so that a loop can carry it."""
        made = self.conformed(x, pattern)
        return None if made is None else with_arrays(made, self.movable)

    def conformed(self, x: Any, pattern: Any) -> Any:
        """`x` with a choice wherever `pattern` has one, among the same arrays; None where it may be another."""
        if isinstance(pattern, Choice):
            return self.as_choice(x, pattern) if is_array(x) and not isinstance(x, Fields) else None
        inner = parts(x, pattern)
        if inner is None:
            return x
        made = {name: self.conformed(part, shape) for name, part, shape in inner}
        return None if None in made.values() else x.remade(made)

    def as_choice(self, x: ArrayView | Local | Choice, pattern: Choice) -> Choice | None:
        own = options(x)
        found = [next((k for k, (o, _) in enumerate(own) if same_parts(o, p)), None) for p in pattern.options]
        if len([k for k in found if k is not None]) < len(own):
            return None
        made = [self.elsewhere(p) if k is None else own[k][0] for k, p in zip(found, pattern.options, strict=True)]
        return Choice(tuple(made), tuple([False if k is None else own[k][1] for k in found]))

    def elsewhere(self, option: ArrayView | Local) -> Any:
        """A dummy for an option that is not chosen: the same kind of view, at places 0."""
        return placed_at(option, [self.zero(n.type) if isinstance(n, ir.Value) else n for n in places(option)])


def options(x: ArrayView | Local | Choice) -> list[tuple[ArrayView | Local, Any]]:
    """The arrays that `x` may be, as (array, flag that it is this one)."""
    return list(zip(x.options, x.flags, strict=True)) if isinstance(x, Choice) else [(x, True)]


def parts(x: Any, y: Any) -> Iterator[tuple[str, Any, Any]] | None:
    """The fields of two structs, or of two arrays of structs, side by side; None for anything else."""
    if isinstance(x, StructParts | Fields) and type(x) is type(y) and x.type == y.type:
        return ((name, part, y.parts[name]) for name, part in x.parts.items())
    return None


def union(x: Any, y: Any) -> Any:
    """`x` with a `Choice` wherever `y` has another array; None if `y` differs otherwise too."""
    if is_array(x) and is_array(y) and not isinstance(x, Fields) and x.type == y.type:
        found = [o for o, _ in options(x)]
        found += [o for o, _ in options(y) if not any(same_parts(o, p) for p in found)]
        return x if len(found) == 1 else Choice(tuple(found), (False,) * len(found)) if len(found) <= MOST else None
    inner = parts(x, y)
    if inner is not None:
        made = {name: union(a, b) for name, a, b in inner}
        return None if None in made.values() else x.remade(made)
    if isinstance(x, ir.Value):
        return x if isinstance(y, ir.Value) and x.type == y.type else None
    return x if x is y else None


def arrays(x: Any) -> Iterator[ArrayView | Local | Choice]:
    """Every array in a tree."""
    if isinstance(x, StructParts | Fields):
        for part in x.parts.values():
            yield from arrays(part)
    elif is_array(x):
        yield x


def with_arrays(x: Any, change: Callable[[Any], Any]) -> Any:
    """A tree over other arrays."""
    if isinstance(x, StructParts | Fields):
        return x.remade({name: with_arrays(part, change) for name, part in x.parts.items()})
    return change(x) if is_array(x) else x


def among_itself(x: Any) -> Any:
    """A tree of arrays with a choice for each, among that array alone."""
    if isinstance(x, Fields):
        return x.each(among_itself)
    return x if isinstance(x, Choice) else Choice((x,), (True,))


def options_in(x: Any) -> int:
    """The total number of options over all choices in a tree."""
    return sum(len(a.options) for a in arrays(x) if isinstance(a, Choice))


class Wider(KernelError):
    """Raised while a loop is read: `name` is one array or another from turn to turn, as in `pattern`.

    Whoever reads the loop reads it again, with that name as a choice that the loop carries.
    """

    def __init__(self, known: dict[str, Any], name: str, pattern: Any, refusal: KernelError):
        super().__init__(refusal.what, slug="array-choice", where=refusal.where, why=refusal.why)
        self.known, self.name, self.pattern = known, name, pattern


def array_choice(name: str, chosen: Where, at: Where | None, why: str = "") -> KernelError:
    """The refusal of an array that cannot be told."""
    return KernelError(
        f"`{name}` would be one array or another",
        slug="array-choice",
        where=at or chosen,
        why=why or f"Line {chosen.line} chooses between arrays at run time: {chosen.text.strip()}",
        instead="the load or store on each branch, or one array with one more axis",
    )

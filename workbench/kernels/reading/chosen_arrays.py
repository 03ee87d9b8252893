"""Names and fields that stand for one array or another, by the way that a thread has come (`scope.Choice`).

No statement of the program takes a choice: whatever touches an element is written once for each array it may be, in a
branch. So all who look at a program see which arrays it may read and write, and the derivative of a branch is exact.
Where the conditions around a line say which array is meant, there is no branch.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ...errors import KernelError, Where
from .. import ir
from ..ops import control
from ..types import Array, Struct
from . import refused_syntax
from .base import Meaning, ReaderBase
from .scope import (
    AnyArray,
    ArrayView,
    Choice,
    Fields,
    Local,
    Part,
    StructParts,
    atoms,
    is_array,
    mapped,
    placed_at,
    places,
    same_parts,
)

MOST = 16  # arrays that one name may stand for: each access is written once for each


def each_option(reader: ReaderBase, choice: Choice, do: Callable[[Any], Any]) -> Any:
    """The result of `do` for the array that is meant: one branch per option that is possible here."""
    known = [reader.conditions.truth(flag) for flag in choice.flags]
    if True in known:
        return do(choice.options[known.index(True)])
    open_ = [k for k, truth in enumerate(known) if truth is None] or [0]
    return one_of(reader, [(choice.options[k], choice.flags[k]) for k in open_], do)


def one_of(reader: ReaderBase, pairs: Sequence[tuple[Any, Any]], do: Callable[[Any], Any]) -> Any:
    (option, flag), *rest = pairs
    if not rest:
        return do(option)
    return reader.branch(None, flag, lambda: do(option), lambda: one_of(reader, rest, do))


def conformed(reader: ReaderBase, x: Meaning, pattern: Meaning) -> Any:
    """`x` with a choice wherever `pattern` has one, among the same arrays; None where it may be another."""
    if isinstance(pattern, Choice):
        return as_choice(reader, x, pattern) if is_array(x) and not isinstance(x, Fields) else None
    inner = parts(x, pattern)
    if inner is None:
        return x
    assert isinstance(x, StructParts | Fields)
    made = {name: conformed(reader, part, shape) for name, part, shape in inner}
    return None if None in made.values() else x.remade(made)


def as_choice(reader: ReaderBase, x: Part, pattern: Choice) -> Choice | None:
    own = options(x)
    found = [next((k for k, (o, _) in enumerate(own) if same_parts(o, p)), None) for p in pattern.options]
    if len([k for k in found if k is not None]) < len(own):
        return None
    made = [elsewhere(reader, p) if k is None else own[k][0] for k, p in zip(found, pattern.options, strict=True)]
    return Choice(tuple(made), tuple([False if k is None else own[k][1] for k in found]))


def elsewhere(reader: ReaderBase, option: ArrayView | Local) -> Any:
    """A dummy for an option that is not chosen: the same kind of view, at places 0."""
    return placed_at(option, [reader.zero(n.type) if isinstance(n, ir.Value) else n for n in places(option)])


def options(x: Part) -> list[tuple[ArrayView | Local, Any]]:
    """The arrays that `x` may be, as (array, flag that it is this one)."""
    return list(zip(x.options, x.flags, strict=True)) if isinstance(x, Choice) else [(x, True)]


def parts(x: Meaning, y: Meaning) -> Iterator[tuple[str, Any, Any]] | None:
    """The fields of two structs, or of two arrays of structs, side by side; None for anything else."""
    if type(x) is not type(y):
        return None
    if isinstance(x, StructParts | Fields) and isinstance(y, StructParts | Fields) and x.type == y.type:
        return ((name, part, y.parts[name]) for name, part in x.parts.items())
    return None


def union(x: Meaning, y: Meaning) -> Any:
    """`x` with a `Choice` wherever `y` has another array; None if `y` differs otherwise too."""
    if isinstance(x, Part) and isinstance(y, Part) and x.type == y.type:
        found = [o for o, _ in options(x)]
        found += [o for o, _ in options(y) if not any(same_parts(o, p) for p in found)]
        return x if len(found) == 1 else Choice(tuple(found), (False,) * len(found)) if len(found) <= MOST else None
    inner = parts(x, y)
    if inner is not None:
        made = {name: union(a, b) for name, a, b in inner}
        assert isinstance(x, StructParts | Fields)
        return None if None in made.values() else x.remade(made)
    if isinstance(x, ir.Value):
        return x if isinstance(y, ir.Value) and x.type == y.type else None
    return x if x is y else None


def arrays(x: Meaning) -> Iterator[Part]:
    """Every array in a tree."""
    return (atom for atom in atoms(x) if isinstance(atom, Part))


def among_itself(x: AnyArray) -> Any:
    """A tree of arrays with a choice for each, among that array alone."""
    return mapped(x, ArrayView | Local, lambda array: Choice((array,), (True,)))


def options_in(x: Meaning) -> int:
    """The total number of options over all choices in a tree."""
    return sum(len(a.options) for a in arrays(x) if isinstance(a, Choice))


class Wider(KernelError):
    """Raised while a loop is read: `name` is one array or another from turn to turn, as in `pattern`.

    Whoever reads the loop reads it again, with that name as a choice that the loop carries.
    """

    def __init__(self, known: dict[str, Any], name: str, pattern: Meaning, refusal: KernelError):
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


def array_given(reader: ReaderBase, x: AnyArray) -> Any:
    """The truth value of an array as a condition: True if it was passed and has elements."""
    x = _first(x)
    if isinstance(x, Choice):
        return each_option(reader, x, partial(array_given, reader))
    if isinstance(x, Local):
        return True
    root = ir.root(x.root)
    if root in reader.builder.absent or root.name in reader.gaps.empty:
        return False
    if any(p.name == root.name for p in reader.top.params):
        reader.presence_tests.add(root.name)
    return True


def is_none(reader: ReaderBase, op: ast.cmpop, x: Meaning, node: ast.Compare) -> Any:
    """`a is None`, `a is not None`: of an array, whether it was left out."""
    if not is_array(x):
        raise refused_syntax.refuse(refused_syntax.name_of(op), reader.where(node))
    x = _first(x)
    if isinstance(x, Choice):
        return each_option(reader, x, lambda option: is_none(reader, op, option, node))
    absent = not isinstance(x, Local) and ir.root(x.root) in reader.builder.absent
    return absent if isinstance(op, ast.Is) else not absent


def unassigned(reader: ReaderBase, struct: Struct, field: str, type: Array) -> ArrayView | Fields:
    """The array field of a struct that was made just now: None, until an array is assigned to it."""
    name = struct.path(struct.name, field)
    made = reader.blanks.setdefault(name, reader.parameter(name, type, reader.builder.where, given=False))
    for array in arrays(made):
        assert isinstance(array, ArrayView)
        reader.builder.unassigned.setdefault(array.root, set()).add(reader.builder.branch)
        text = f"the array field {field!r} of {struct} is touched, to which nothing was assigned."
        instead = f"s.{field} = ..., before this line, on every path to it"
        why = "The array fields of a new struct are None."
        reader.builder.absent[array.root] = control.Claim(text, "array-field", why, instead, always=True)
    return made


def _first(x: AnyArray) -> Part:
    return x.first if isinstance(x, Fields) else x

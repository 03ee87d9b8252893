"""Several funcs of one name with other parameters: which of them a call means.

As in Warp, one whose parameter types are those of the arguments comes before one that leaves types open (`Any`,
`Float`), and of those the first that was declared. Where Warp's order would decide between two that say no more of
their parameters than each other, the call is refused.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...errors import KernelError
from ..parameter_types import Ref
from ..types import FUNCTION, Type, bool_, covers, float32, int32, is_open, scalar_of
from .scope import StructParts, describe, is_array, is_literal
from .source import source


class Overload(Protocol):
    """The part of a func (`declare.Func`) that is used here."""

    fn: Callable[..., Any]
    key: str
    overloads: tuple[Any, ...]
    cell: tuple[str, int] | None
    __name__: str
    __module__: str

    @property
    def types(self) -> tuple[Any, ...]: ...
    @property
    def parts(self) -> tuple[Any, ...]: ...


def beside(f: Overload, before: Overload | None) -> tuple[Any, ...]:
    """The funcs that share the name of `f` where it is declared: it replaces one with the same parameter types."""
    if before is None or type(before) is not type(f) or (before.__module__, before.key) != (f.__module__, f.key):
        return ()
    others = [f if o.types == f.types else o for o in before.parts if not _run_again(o, f)]
    others += [] if f in others else [f]
    return tuple(others) if len(others) > 1 else ()


def cell() -> tuple[str, int] | None:
    """The cell of a notebook that runs, and the number of this run; None where nobody can tell."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    try:
        number = shell.get_parent()["metadata"]["cellId"]
        return number, shell.execution_count
    except (AttributeError, KeyError, TypeError):
        return None


def _run_again(old: Overload, new: Overload) -> bool:
    """True if `old` comes from an earlier run of the cell of `new`: its text may have changed since."""
    return old.cell is not None and new.cell is not None and old.cell[0] == new.cell[0] and old.cell[1] != new.cell[1]


def type_of(x: object) -> Any:
    """The type of an argument; a literal has its own. None for what is no value of the language."""
    if is_literal(x):
        return {bool: bool_, int: int32, float: float32}[type(x)]
    if isinstance(x, np.generic):
        return scalar_of(x.dtype)
    return getattr(x, "type", None)


def fits(wanted: object, x: object) -> bool:
    """True if an argument may be given for a parameter of this annotation."""
    if wanted is FUNCTION:
        return not isinstance(x, Type) and callable(x)
    have = type_of(x)
    if have is None:
        return wanted is Any
    return covers(wanted.type if isinstance(wanted, Ref) else wanted, have)


def bound(fn: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments by the names of the parameters, without defaults; None if they do not fit."""
    try:
        return inspect.signature(fn).bind(*args, **named).arguments
    except TypeError:
        return None


def candidates(f: Overload, args: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """The overloads that these arguments may mean: Warp's choice, and what fits at least as closely as that."""
    found = []
    for part in f.parts:
        given = bound(part.fn, args, named)
        wanted = dict(zip(inspect.signature(part.fn).parameters, part.types, strict=True))
        if given is not None and all(fits(wanted[name], x) for name, x in given.items()):
            found.append((part, [wanted[name] for name in given], len(given) == len(wanted)))
    exact = [fit for fit in found if not any(is_open(w) and w is not FUNCTION for w in fit[1])]
    if not found:
        return []
    (first, least, whole), *others = exact or found

    def rival(wanted: list[Any], takes_no_default: bool) -> bool:
        if wanted == least:
            return takes_no_default or not whole
        return not all(map(covers, wanted, least))

    return [first, *(part for part, *fit in others if rival(*fit))]


def signature(part: Overload) -> str:
    """A func as its `def` says it, and its line."""
    kinds = zip(inspect.signature(part.fn).parameters, part.types, strict=True)
    shown = ", ".join(f"{name}: {'Any' if kind is Any else kind}" for name, kind in kinds)
    text = source(part.fn)
    return f"{part.__name__}({shown}) in line {text.where(text.tree).line}"


def refs(f: Overload, node: ast.Call) -> list[ast.expr]:
    """The arguments that a call of a func may set, whichever of its overloads it means."""
    found: list[ast.expr] = []
    for part in f.parts:
        given = bound(part.fn, node.args, {str(k.arg): k.value for k in node.keywords}) or {}
        found += [x for name, x in given.items() if isinstance(part.fn.__annotations__.get(name), Ref)]
    return found


def described(x: object) -> str:
    if isinstance(x, StructParts | tuple) or is_array(x):
        return describe(x)
    found = type_of(x)
    return str(found) if found is not None else getattr(x, "__name__", describe(x))


def attached(f: Overload, fn: Callable[..., Any], own: tuple[Any, ...], exact: bool) -> Any:
    """The overload of `f` that a function with parameters of the types `own` belongs to. Raises KernelError [overload].

    An adjoint has those of its func first (not `exact`: more follow).
    """
    if not f.overloads:
        return f
    fit = [p for p in f.parts if (own if exact else own[: len(p.types)]) == p.types]
    if len(fit) == 1:
        return fit[0]
    text = source(fn)
    what = f"`{fn.__name__}` belongs to {'several' if fit else 'none'} of the overloads of `{f.key}`"
    why = f"There are {'; '.join(map(signature, fit or f.parts))}."
    instead = "the parameters of one of them first, with the same annotations"
    raise KernelError(what, slug="overload", where=text.where(text.tree), why=why, instead=instead)

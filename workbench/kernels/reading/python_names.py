"""Lookup of Python names while a function is read: closure, globals, builtins; and its annotations."""

from __future__ import annotations

import builtins
import dataclasses
import re
import sys
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ...errors import KernelError, Where
from ..types import FUNCTION
from .declare import takes_function, type_from
from .lookups import Lookups

_ROOT = __name__.partition(".")[0]


def surroundings(fn: Callable[..., Any]) -> dict[str, Any]:
    """Globals and closure of a function: where its free names are looked up."""
    cells: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with suppress(ValueError):  # assigned after the function was defined, and not yet
            cells[name] = cell.cell_contents
    return {**fn.__globals__, **cells}


def present(fn: Callable[..., Any], name: str) -> Any:
    """Returns the object that a free name of a function stands for now. Raises KeyError, ValueError."""
    code = fn.__code__
    if name in code.co_freevars and fn.__closure__:
        return fn.__closure__[code.co_freevars.index(name)].cell_contents
    return fn.__globals__[name] if name in fn.__globals__ else vars(builtins)[name]


def is_ours(fn: Callable[..., Any]) -> bool:
    """True for a function of this package, whose names stay what they are."""
    return (fn.__module__ or "").partition(".")[0] == _ROOT


def lookup(name: str, around: Mapping[str, Any], known: list[str], where: Where) -> Any:
    """The Python object behind a free name. Raises KernelError [unknown-name] with the closest known one."""
    if name in around:
        return around[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    if (found := getattr(sys.modules[_ROOT], name, None)) is not None:  # as in Warp: the language needs no prefix
        return found
    import difflib

    close = difflib.get_close_matches(name, [*known, *around], n=1)
    index = re.search(rf"\[[^]]*\b{name}\b", where.text)
    new = f"{name} = wb.tid()" if index else f"{name} = ..."
    text = f"the name `{name}` is not known here"
    why = "It is no parameter, no local assigned before this line, and no Python variable."
    instead = f"`{close[0]}` (did you mean that?)" if close else f"{new}, before this line"
    raise KernelError(text, slug="unknown-name", where=where, why=why, instead=instead)


def annotation(fn: Callable[..., Any], name: str, around: Mapping[str, Any], where: Where, lookups: Lookups) -> Any:
    """The annotation of a parameter: a Type (also an open one, FUNCTION), `typing.Any`, or None if there is none."""
    raw = fn.__annotations__.get(name)
    while isinstance(raw, str):  # text in text, where annotations are postponed
        text = raw
        try:
            raw = eval(text, dict(around))  # the user's own annotation, written as text
            if not is_ours(fn):
                lookups.expression(lambda text=text: eval(text, surroundings(fn)), raw)
        except Exception as e:
            raise _bad(name, raw, where, str(e)) from None
    if raw is None or raw is typing.Any:
        return raw
    if takes_function(raw):
        return FUNCTION
    try:
        return type_from(raw)
    except TypeError as e:
        raise _bad(name, raw, where, "" if isinstance(raw, type) else str(e)) from None


def _bad(name: str, annotation: object, where: Where, why: str) -> KernelError:
    reason, instead = _instead_of(name, annotation)
    text = f"the annotation of `{name}` is not a type of the kernel language"
    return KernelError(text, slug="annotation", where=where, why=why or reason, instead=instead)


def _instead_of(name: str, annotation: object) -> tuple[str, str]:
    """(reason, line to write) for a parameter whose annotation is no type of the kernel language."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return f"{annotation.__name__} is a dataclass.", "@wb.struct in place of @dataclass"
    if annotation is str:
        return "A kernel has no text.", f"{name}: int, or a kernel for each {name}"
    shown = annotation.__name__ if isinstance(annotation, type) else repr(annotation)
    return f"{shown} is not a type of the kernel language.", f"{name}: float   or   {name}: array(dtype=float)"

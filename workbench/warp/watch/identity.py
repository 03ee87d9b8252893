"""Change detection for translated objects (by the identity of their parts), and which objects hold memory."""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
from warp._src import codegen, context

CACHED = type(functools.cache(abs))  # a function that keeps what it returned
SMALL = 4096  # bytes of an array of NumPy that may be a constant of a kernel


def parts_of(thing: Any) -> tuple[Any, ...]:
    """The parts of a function, func, class or container, nested containers flattened: compared by identity."""
    if isinstance(thing, types.FunctionType):
        given = thing.__code__, thing.__defaults__, thing.__kwdefaults__
        return tuple(_leaves([*given, *_contents(thing)], set()))
    if isinstance(thing, context.Function):
        others = [*thing.user_templates.values(), *thing.user_overloads.values()]
        snippets = [getattr(thing, name, None) for name in ("native_snippet", "adj_native_snippet", "replay_snippet")]
        own = [custom for f in (thing, *others) for custom in (f.func, f.custom_grad_func, f.custom_replay_func)]
        return (*own, *snippets)
    if isinstance(thing, type):
        own = [part for name, part in vars(thing).items() if name != "_value2member_map_"]  # grows with each `A | B`
        return tuple(_leaves(own, set()))
    return tuple(_leaves(thing, set()))


def is_same(then: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return len(then) == len(now) and all(a is b for a, b in zip(then, now, strict=True))


def holds_memory(thing: Any, around: frozenset[int] = frozenset()) -> bool:
    """True if an object is or contains one that may own the program's memory: all but code, types and numbers."""
    if isinstance(thing, list | tuple | dict | types.FunctionType):
        if id(thing) in around:
            return False
        is_code = isinstance(thing, types.FunctionType)
        inner = _contents(thing) if is_code else thing.values() if isinstance(thing, dict) else thing
        return any(holds_memory(part, around | {id(thing)}) for part in inner)
    if isinstance(thing, CACHED):
        return holds_memory(thing.__wrapped__, around)
    if isinstance(thing, np.ndarray):
        return thing.nbytes > SMALL
    return not isinstance(thing, _CODE) and not hasattr(type(thing), "_wp_scalar_type_")


def _contents(fn: types.FunctionType) -> list[Any]:
    """The values in the closure of a function; None for an empty cell."""
    found = []
    for cell in fn.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # empty
            found.append(None)
    return found


def _leaves(thing: Any, around: set[int]) -> Iterator[Any]:
    if type(thing) not in (list, tuple, dict) or id(thing) in around:
        yield thing
        return
    around.add(id(thing))
    for part in thing.values() if isinstance(thing, dict) else thing:
        yield from _leaves(part, around)
    around.discard(id(thing))


_NUMBERS = (int, float, complex, str, bytes, type(None), type, enum.Enum, np.generic)
_PYTHON = (types.ModuleType, types.CodeType, types.BuiltinFunctionType, property, staticmethod, classmethod)
_CODE = (*_NUMBERS, *_PYTHON, functools.partial, context.Function, context.Kernel, codegen.Struct)

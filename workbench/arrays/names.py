"""User-visible names of arrays: a variable, an element of a list, a field of a struct, an attribute of an object.

Names are looked for in the frames of the user's program when a message or a picture needs them. Only `__dict__` and
slots are read, so that no property or `__getattr__` of the user's runs, and the search is bounded in depth and number.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import CO_OPTIMIZED
from itertools import count, islice
from sys import getrefcount
from types import BuiltinFunctionType, FrameType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, TypeVar

import numpy as np

from ..kernels.reading.declare import Instance
from ..kernels.types import Struct, Type
from . import ports
from .strided import StridedArray

A = TypeVar("A", bound=StridedArray)
DEPTH = 5  # objects within objects
ITEMS = 1000  # of one list
MOST = 20_000  # values looked at
FRAMES = 20
KIN = 4  # elements of a list, from which a variable that is one more of them is what a loop has left
opened: set[str] = set()
"""Installed packages whose objects hold arrays that the user has names for."""
_PACKAGE = __name__.partition(".")[0]
_SHELL = ("In", "Out", "exit", "quit", "get_ipython")
_PLAIN = frozenset(
    (int, float, str, bool, complex, bytes, type(None), type, ModuleType, FunctionType, BuiltinFunctionType, np.ndarray)
)


def names_in(
    variables: Mapping[str, Any], kind: type[A], most: int = MOST, enough: Callable[[], bool] = lambda: False
) -> Iterator[tuple[str, A]]:
    """Pairs of (label, array) for all arrays that variables lead to, those with the shortest way first.

    kind     the class of arrays.
    most     how many values are looked at.
    enough   asked before the search goes a level deeper: True ends it.
    """
    level = [(n, v) for n, v in variables.items() if n.isidentifier() and n[0] != "_" and n not in _SHELL]
    left = _left_by_loops(level, kind, most)
    level = [(n, v) for n, v in level if id(v) not in left]
    seen: set[int] = set()
    for _ in range(DEPTH):
        below: list[tuple[str, Any]] = []
        keyed: list[tuple[str, Any]] = []  # what a dict holds has a better name in an object
        for label, value in level:
            if type(value) in _PLAIN or id(value) in seen:
                continue
            if type(value) is kind:
                yield label, value
                continue
            seen.add(id(value))
            items = _items(value)
            inside = list(_parts(value) if items is None else zip(*items, strict=False))
            deeper = keyed if isinstance(value, dict) else below
            for end, item in inside:
                if type(item) is kind and items is not None and deeper is below:  # it is as near as its list
                    yield label + end, item
                elif type(item) not in _PLAIN:
                    deeper.append((label + end, item))
            if (most := most - len(inside) - 1) < 0:
                return
        level = below + keyed
        if not level or enough():
            return


def _left_by_loops(named: list[tuple[str, Any]], kind: type, most: int) -> set[int]:
    """Ids of values whose variable is a loop variable left over: they are elements of a list (a variable's or an
    attribute's) with KIN others that no variable is. At most `most` elements are looked at."""
    own = {id(value) for _, value in named if type(value) not in _PLAIN}
    found: set[int] = set()
    for _, value in named:
        if type(value) in _PLAIN or type(value) is kind:
            continue
        items = _items(value)
        for _, elements in [items] if items is not None else [_items(one) or ("", ()) for _, one in _parts(value)]:
            left = own.intersection(map(id, elements))
            if left and len({id(one) for one in elements if type(one) not in _PLAIN} - own) >= KIN:
                found |= left
            if (most := most - len(elements) - 1) < 0:
                return found
    return found


def _items(value: Any) -> tuple[Iterable[str], Sequence[Any]] | None:
    """The ends (`[3]`) of the labels of the elements of a list or dict, and the elements; None if it is none."""
    kind = type(value)
    if issubclass(kind, dict):
        found = [(key, item) for key, item in list(islice(dict.items(value), ITEMS)) if type(key) in (str, int)]
        return [f"[{key!r}]" for key, _ in found], [item for _, item in found]
    if issubclass(kind, tuple) and (fields := kind.__dict__.get("_fields")):
        return map(".{}".format, fields), list(tuple.__iter__(value))
    for base in (list, tuple, deque):
        if issubclass(kind, base):
            return map("[{}]".format, count()), list(islice(base.__iter__(value), ITEMS))
    return None


def _parts(value: object) -> Iterator[tuple[str, Any]]:
    """The attributes of an object of the user's (`.name`), or the array behind one of another library's."""
    kind = type(value)
    package = str(kind.__module__).partition(".")[0]
    if not (issubclass(kind, Instance) or package in opened or is_users(package)):
        for behind in ports.arrays_behind:
            yield from (("", a) for a in behind(value))
        return
    for base in kind.__mro__:
        for name, member in base.__dict__.items():
            if type(member) is MemberDescriptorType and not name.startswith("__"):
                try:
                    yield f".{name}", member.__get__(value, kind)
                except AttributeError:  # a slot that holds nothing
                    continue
    own = next((m for base in kind.__mro__ if (m := base.__dict__.get("__dict__")) is not None), None)
    if isinstance(own, GetSetDescriptorType | MemberDescriptorType):
        yield from ((f".{name}", item) for name, item in list(own.__get__(value, kind).items()))


@cache
def is_users(package: str) -> bool:
    """True for packages of the user's: not installed, nor of the standard library, nor this one."""
    if package in ("types", "__main__"):  # SimpleNamespace
        return True
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package != _PACKAGE and package not in sys.stdlib_module_names and "-packages" not in file


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the user's program, from this one outwards."""
    number = 0
    while frame is not None and number < FRAMES:
        package = str(frame.f_globals.get("__name__") or "").partition(".")[0]
        foreign = "-packages" in frame.f_code.co_filename or not is_users(package)
        if package != _PACKAGE and package != "contextlib" and not (foreign and number):
            number += 1
            yield frame
        frame = frame.f_back


def scopes(frame: FrameType) -> tuple[dict[str, Any], dict[str, Any]]:
    """(local variables, module variables) of a frame; the second is {} for a frame of a module."""
    own = frame.f_locals
    found = dict(own)
    if type(own) is dict and frame.f_code.co_flags & CO_OPTIMIZED and getrefcount(own) == 3:
        own.clear()  # Python before 3.13 keeps this copy with the frame, and what is in it would live as long
    return found, frame.f_globals if own is not frame.f_globals else {}


def variables(frame: FrameType) -> dict[str, Any]:
    """All variables visible in a frame: its own, then those of its module that they do not hide."""
    own, shared = scopes(frame)
    return {**own, **{k: v for k, v in shared.items() if k not in own}}


def variable_of(a: StridedArray) -> str:
    """The user's name of this array, found in the calling frames, or `x[1:]` for a part of `x`; "" if there is none."""
    whole = ""
    for frame in reversed(list(user_frames(sys._getframe(1)))):
        for label, other in names_in(variables(frame), type(a)):
            if other is a:
                return label
            if not whole and other.allocation is a.allocation and other.span.contains(a.span):
                whole = part_of(label, other, a)
    return whole


# ---- parts of arrays


def part_of(label: str, whole: StridedArray, part: StridedArray) -> str:
    """`x[2:5]` or `x.velocity` for an array that lies in the memory of one called `x`; `x` where it is not so plain."""
    if whole.span == part.span and whole.dtype == part.dtype:
        return label
    if whole.dtype == part.dtype:
        return label + (_subscript(whole, part) or "")
    field = _field(whole.dtype, part.span.offset - whole.span.offset, part.dtype) if whole.shape == part.shape else None
    return f"{label}.{field}" if field else label


def _subscript(whole: StridedArray, part: StridedArray) -> str | None:
    if any(s <= 0 for s in whole.strides):
        return None
    rest, axes, taken = part.span.offset - whole.span.offset, [], 0
    for k, (n, stride) in enumerate(zip(whole.shape, whole.strides, strict=True)):
        start, rest = divmod(rest, stride)
        left = part.ndim - taken
        step = part.strides[taken] // stride if left and part.strides[taken] % stride == 0 else 0
        if left and step > 0 and start + step * (part.shape[taken] - 1) < n:
            stop = start + step * (part.shape[taken] - 1) + 1
            ends = f"{start or ''}:{'' if stop == n else stop}" + (f":{step}" if step > 1 else "")
            axes.append(ends)
            taken += 1
        elif whole.ndim - k > left and start < n:
            axes.append(str(start))
        else:
            return None
    if rest or taken != part.ndim:
        return None
    while axes[1:] and axes[-1] == ":":
        axes.pop()
    return f"[{','.join(axes)}]"


def _field(dtype: Type, offset: int, wanted: Type) -> str | None:
    if not isinstance(dtype, Struct) or dtype.numpy.fields is None:
        return None
    fields: Any = dtype.numpy.fields
    for name, type in dtype.fields:
        start = fields[name][1]
        if start == offset and type == wanted:
            return name
        inner = _field(type, offset - start, wanted)
        if inner:
            return f"{name}.{inner}"
    return None

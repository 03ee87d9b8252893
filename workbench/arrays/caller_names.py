"""What the user's program calls an array: for messages, which are written once and may search."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from .allocation import caller_frame

if TYPE_CHECKING:
    from .array import array

_SIMPLE = (str, bytes, int, float, complex, type(None))


def name_in_caller(a: array) -> str | None:
    """The variable of the calling line that holds `a`, its item or attribute (`state.q`, `qs[2]`); None if none does.

    `x.grad` for the gradient of what a variable holds, `x[...]` for another array on its memory.
    """
    frame = caller_frame()
    if frame is None:
        return None
    near = ""
    primal = a.allocation.of
    for name, value in _held({**frame.f_globals, **frame.f_locals}):
        if value is a:
            return name
        if not near and isinstance(value, type(a)) and value.allocation in (a.allocation, primal):
            near = f"{name}.grad" if value.allocation is primal else f"{name}[...]"
    return near or None


def _held(scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Variables, then the items of lists and dicts and the attributes of objects among them, in order of depth."""
    named = [(n, v) for n, v in reversed(scope.items()) if not n.startswith("_") and not isinstance(v, _SIMPLE)]
    yield from named
    for name, value in named:
        if isinstance(value, list | tuple):
            yield from ((f"{name}[{k}]", v) for k, v in enumerate(value[:1000]))
        elif isinstance(value, dict):
            yield from ((f"{name}[{k!r}]", v) for k, v in list(value.items())[:1000])
        elif not isinstance(value, type | ModuleType | FunctionType):
            inside = getattr(value, "__dict__", None) or {}
            yield from ((f"{name}.{k}", v) for k, v in list(inside.items()) if not k.startswith("_"))

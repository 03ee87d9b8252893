"""Launch arguments that Warp's tape holds by reference: a struct, vector or list may change before the backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import warp
from warp._src import codegen

from ...arrays.array import array
from ...arrays.workspace import Workspace
from ...launches.command import Command
from ...tapes.events import Event
from ...tapes.reverse import reverse
from .memory import Twins, Untranslated

Changed = tuple[int, Any, Any]  # the number of a parameter, what it was, and what it is (an array of Warp, or a number)


def as_now(v: Any) -> Any:
    """Snapshot of a launch argument: mutable values (structs, vectors) are copied, all others returned as they are."""
    kind = type(v)
    if kind is warp.array or kind is int or kind is float:
        return v
    if isinstance(v, codegen.StructInstance):
        return {name: as_now(getattr(v, name)) for name in kind._cls.vars}  # type: ignore[attr-defined]
    return kind.from_buffer_copy(v) if hasattr(kind, "_wp_scalar_type_") else v  # type: ignore[attr-defined]


def changed(twins: Twins, command: Command, values: list[Any]) -> Iterator[Changed]:
    """Yields the parameters of our launch `command` that differ among `values`, Warp's present arguments."""
    for k, (leaf, then) in enumerate(zip(command.program.leaves, command.flat, strict=True)):
        if not 0 <= leaf.arg < len(values) or leaf.opened is not None:
            continue
        now = values[leaf.arg]
        for field in leaf.path:
            now = now[field] if isinstance(now, dict) else now
        if isinstance(then, array) and isinstance(now, warp.array):
            twin = next(iter(twins.behind(now)), None)
            if twin is None or twin.allocation is not then.allocation or twin.shape != then.shape:
                yield k, then, now
        elif not isinstance(then, array) and not warp.types.is_array(now) and not isinstance(now, dict):
            try:
                number = np.asarray(twins.value(now), np.asarray(then).dtype)
            except (Untranslated, TypeError, ValueError):
                continue
            if not np.array_equal(np.ravel(then), np.ravel(number), equal_nan=number.dtype.kind == "f"):
                yield k, then, number if isinstance(then, np.ndarray) else number.item()


class WithNumbers:
    """A step of the walk that reverses some launches with other numbers as arguments, given by event and parameter."""

    def __init__(self, numbers: dict[Event, dict[int, Any]]):
        self.numbers = numbers

    def __call__(self, tape: Any, event: Event, space: Workspace, after: dict) -> None:
        command, kept = event.command, event.command
        if (numbers := self.numbers.get(event)) is not None and command is not None:
            flat = [numbers.get(k, given) for k, given in enumerate(command.flat)]
            event.command = Command(command.program, command.plan, flat)
        try:
            reverse(tape, event, space, after)
        finally:
            event.command = kept

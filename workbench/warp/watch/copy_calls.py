"""Copies, fills and assignments of a watched program, and what new arrays begin with."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from warp._src import context, types as warp_types

from ...arrays.creation import copy as our_copy
from .captures import FROM_HOST
from .hooks import Hooks, Theirs
from .memory import Twins, arrays_in, hull
from .recorder import EventRecorder
from .session import Session


class CopyCalls:
    """Handles copies, fills, assignments and new arrays."""

    def __init__(self, session: Session, recorder: EventRecorder):
        self.session, self.recorder, self.twins = session, recorder, session.twins

    def install(self, hooks: Hooks) -> None:
        hooks.put(context.copy, self.copy)
        hooks.put(context.clone, self.clone)
        for kind in (warp_types.array, warp_types.noncontiguous_array_base):
            hooks.put(kind.fill_, self.fill)
            hooks.put(kind.zero_, self.zero)
            hooks.put(kind.assign, self.assign)
        hooks.put(warp_types.array.__init__, self.made)
        hooks.put(warp_types.array.numpy, self.viewed)

    def copy(
        self,
        theirs: Theirs,
        dest: object,
        src: object,
        dest_offset: int = 0,
        src_offset: int = 0,
        count: int = 0,
        stream: object = None,
    ) -> Any:
        ours = lambda: self.our_copy(dest, src, dest_offset, src_offset, count)  # noqa: E731
        result = self.moved("copy", [dest, src], theirs, ours)
        self.carried(dest, src)
        return result

    def clone(self, theirs: Theirs, src: object, *args: object, **kwargs: object) -> Any:
        """A clone, of which it is noted if gradients are meant to end there: `requires_grad=False`."""
        made = theirs()
        if kwargs.get("requires_grad", args[1] if len(args) > 1 else None) is False:
            self.session.cuts[made] = None
        return made

    def carried(self, dest: object, src: object) -> None:
        """Note that Warp has copied the gradient as well, where a backward has left one."""
        to, source = getattr(dest, "grad", None), getattr(src, "grad", None)
        if to is None or source is None or to.size != source.size:
            return
        earlier = self.session.left.get(source)
        if earlier is not None and np.any(earlier.gradient):
            self.session.left[to] = replace(earlier, source=earlier.source or self.twins.array(src))

    def our_copy(self, dest: object, src: object, dest_offset: int = 0, src_offset: int = 0, count: int = 0) -> None:
        to, source = self.twins.value(dest), self.twins.value(src)
        if to.dtype is not source.dtype:
            source = source.view(to.dtype)
        our_copy(to, source, dest_offset, src_offset, count)

    def viewed(self, theirs: Theirs, a: object) -> Any:
        """Note which views of gradients the program has taken: the next backward writes to them."""
        result, session = theirs(), self.session
        if isinstance(result, np.ndarray) and (left := session.left.get(a)) is not None:
            session.views.setdefault(a, []).append((left.number, weakref.ref(result)))
        return result

    def fill(self, theirs: Theirs, a: object, value: object) -> Any:
        return self.moved("fill_", [a], theirs, lambda: self.our_fill(a, value))

    def our_fill(self, a: object, value: object) -> None:
        twin = self.twins.value(a)
        if isinstance(value, list | tuple | np.ndarray):
            value = twin.dtype(*np.ravel(value).tolist())
        twin.fill_(self.twins.value(value))

    def zero(self, theirs: Theirs, a: object) -> Any:
        return self.moved("zero_", [a], theirs, lambda: self.twins.value(a).zero_())

    def assign(self, theirs: Theirs, a: object, src: object) -> Any:
        if warp_types.is_array(src):
            return self.moved("assign", [a, src], theirs, lambda: self.our_copy(a, src))
        label = "assign" if self.recorder.captured is None else FROM_HOST
        return self.moved("assign", [a], theirs, lambda: self.our_assign(a), label)

    def our_assign(self, a: Any) -> None:
        """Replay an assignment of values of the host, which are read from Warp's array."""
        twin = self.twins.value(a)
        twin.assign(np.array(a.numpy()).view(twin.data.dtype).reshape(twin.data.shape))

    def moved(
        self, kind: str, given: list[Any], theirs: Callable[[], Any], ours: Callable[[], Any], label: str = ""
    ) -> Any:
        """Handle a copy, fill or assignment."""
        arrays, label = list(arrays_in(given)), label or kind
        if self.recorder.captured is None and not (arrays and _is_worth(self.twins, kind, arrays)):
            return self.session.quietly(theirs)
        return self.recorder.event(kind, label, arrays, theirs, ours)

    def made(self, theirs: Theirs, a: object, data: object = None, *_: object, **__: object) -> None:
        """Handle a new array: the host data that it copies is its initial contents, not an event."""
        if data is None or warp_types.is_array(data):
            theirs()
        else:
            self.session.quietly(theirs)


def _is_worth(twins: Twins, kind: str, arrays: list[Any]) -> bool:
    """True if a fill needs an event. False for fresh memory: it is snapshot when something first reads it."""
    if kind == "copy" or len(arrays) > 1 or twins.behind(arrays[0]):
        return True
    return bool(twins.meeting(*hull(arrays[0])))

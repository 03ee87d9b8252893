"""Copies, fills and assignments of a watched program, and what new arrays begin with."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
from warp._src import context, types as warp_types

from ...arrays.creation import copy as our_copy
from .captures import FROM_HOST, Captures
from .changed_bytes import EachBuffer
from .hooks import Hooks, Original
from .memory import Twins, Untranslated, arrays_in, hull
from .programs import caller
from .recorder import EventRecorder, WarpCall
from .session import Act, Session


class CopyCalls:
    """Handles copies, fills, assignments and new arrays."""

    def __init__(self, session: Session, recorder: EventRecorder, captures: Captures):
        self.session, self.recorder, self.captures, self.twins = session, recorder, captures, session.twins

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
        original: Original,
        dest: object,
        src: Any,
        dest_offset: int = 0,
        src_offset: int = 0,
        count: int = 0,
        stream: object = None,
    ) -> Any:
        theirs = lambda: original(dest, src, dest_offset, src_offset, count, stream)  # noqa: E731
        if self.session.inside:
            return theirs()
        ready = lambda: self.copying(dest, src, dest_offset, src_offset, count)  # noqa: E731
        result = self.moved("copy", [dest, src], theirs, ready, caller())
        self.carried(dest, src)
        return result

    def clone(self, original: Original, src: Any, *args: Any, **kwargs: Any) -> Any:
        """A clone, of which it is noted if gradients are meant to end there: `requires_grad=False`."""
        made = original(src, *args, **kwargs)
        asked = kwargs.get("requires_grad", args[1] if len(args) > 1 else None)
        if asked is False and not self.session.inside:
            self.session.cuts[made] = None
        return made

    def carried(self, dest: Any, src: Any) -> None:
        """Note that Warp has copied the gradient as well, where a backward has left one."""
        to, source = getattr(dest, "grad", None), getattr(src, "grad", None)
        if to is None or source is None or to.size != source.size:
            return
        left = self.session.left

        def note() -> None:
            earlier = left.get(source)
            if earlier is not None and np.any(earlier.gradient):
                left[to] = replace(earlier, source=earlier.source or self.twins.array(src))

        self.session.postpone(note)

    def copying(self, dest: object, src: Any, dest_offset: int = 0, src_offset: int = 0, count: int = 0) -> Act:
        to, source = self.twins.value(dest), self.twins.value(src)
        if to.dtype is not source.dtype:
            source = source.view(to.dtype)
        return lambda: our_copy(to, source, dest_offset, src_offset, count)

    def viewed(self, original: Original, a: Any) -> Any:
        """Note which views of gradients the program has taken: the next backward writes to them."""
        result = original(a)
        if not self.session.inside and self.session.check == "gradient" and isinstance(result, np.ndarray):
            taken, ref, session = weakref.ref(result), weakref.ref(a), self.session

            def note() -> None:
                grad, view = ref(), taken()
                if grad is not None and view is not None and (left := session.left.get(grad)) is not None:
                    session.views.setdefault(grad, []).append((left.number, taken))

            session.postpone(note)
        return result

    def fill(self, original: Original, a: Any, value: Any) -> Any:
        theirs = lambda: original(a, value)  # noqa: E731
        if self.session.inside:
            return theirs()
        return self.moved("fill_", [a], theirs, lambda: self.filling(a, value), caller())

    def filling(self, a: Any, value: Any) -> Act:
        twin = self.twins.value(a)
        if isinstance(value, list | tuple | np.ndarray):
            value = twin.dtype(*np.ravel(value).tolist())
        number = self.twins.value(value)
        return lambda: twin.fill_(number)

    def zero(self, original: Original, a: Any) -> Any:
        if self.session.inside:
            return original(a)
        return self.moved("zero_", [a], lambda: original(a), lambda: self.twins.value(a).zero_, caller())

    def assign(self, original: Original, a: Any, src: Any) -> Any:
        theirs = lambda: original(a, src)  # noqa: E731
        if self.session.inside:
            return theirs()
        if self.captures.calls is not None and not warp_types.is_array(src):
            return self.captures.record("assign", FROM_HOST, list(arrays_in([a])), lambda: self.our_assign(a), theirs)
        if warp_types.is_array(src):
            return self.moved("assign", [a, src], theirs, lambda: self.copying(a, src), caller())
        held: list[np.ndarray] = []

        def theirs_and_values() -> Any:
            result = theirs()
            held.append(np.array(np.frombuffer(_bytes_of(a), np.uint8) if a.is_contiguous else a.numpy()))
            return result

        return self.moved("assign", [a], theirs_and_values, lambda: self.assigning(a, held), caller())

    def our_assign(self, a: Any) -> None:
        """Replay an assignment in a graph that has just run: the values are read from Warp's array."""
        twin = self.twins.value(a)
        twin.assign(np.array(a.numpy()).view(twin.data.dtype).reshape(twin.data.shape))

    def assigning(self, a: Any, held: list[np.ndarray]) -> Act:
        twin = self.twins.value(a)
        shape, kind = twin.data.shape, twin.data.dtype
        return lambda: twin.assign(held[-1].view(kind).reshape(shape) if a.is_contiguous else held[-1])

    def moved(
        self, kind: str, given: list[Any], theirs: Callable[[], Any], ready: Callable[[], Act], frame: FrameType
    ) -> Any:
        """Handle a copy, fill or assignment. `ready`: finds the twins, and returns the action to replay on them."""
        arrays = list(arrays_in(given))
        ours = lambda: ready()()  # noqa: E731
        if self.captures.calls is not None:
            return self.captures.record(kind, kind, arrays, ours, theirs)
        if not arrays or not _is_worth(self.twins, kind, arrays):
            return self.session.quietly(theirs)
        try:
            act, twins = ready(), tuple(self.twins.array(a) for a in arrays)
            regions, written = self.twins.regions(arrays), self.twins.regions(arrays_in(given[:1]))
        except Exception:  # noqa: BLE001  the event says what it was
            return self.recorder.event(kind, kind, arrays, theirs, ours, frame)
        call = WarpCall(kind, kind, regions, act, self.session.place_of(frame), None, twins)
        return self.recorder.postponed(call, EachBuffer(regions, written), theirs)

    def made(self, original: Original, a: Any, data: Any = None, *args: object, **kwargs: object) -> None:
        """Handle a new array: the host data that it copies is its initial contents, not an event."""
        if self.session.inside or data is None or warp_types.is_array(data):
            original(a, data, *args, **kwargs)
        else:
            self.session.quietly(lambda: original(a, data, *args, **kwargs))


def _bytes_of(a: Any) -> Any:
    return (ctypes.c_char * (a.size * warp_types.type_size_in_bytes(a.dtype))).from_address(a.ptr)


def _is_worth(twins: Twins, kind: str, arrays: list[Any]) -> bool:
    """True if a fill needs an event. False for fresh memory: it is snapshot when something first reads it."""
    if kind == "copy" or len(arrays) > 1:
        return True
    if twins.behind(arrays[0]):
        return True
    try:
        low, high = hull(arrays[0])
        return bool(twins.meeting(low, high))
    except Untranslated:
        return False

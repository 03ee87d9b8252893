"""Launches of a watched program, and the functions of `wp.utils` that Warp computes in C++."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from warp._src import context
from warp._src import types as warp_types
from warp._src import utils as warp_utils

from .adjoint_launches import AdjointLaunches
from .builtin_calls import NATIVE, given_to
from .captures import Captures
from .changed_bytes import EachBuffer
from .deferred import WarpCall
from .hooks import Hooks
from .memory import KnownArray, arrays_in
from .programs import caller
from .recorder import EventRecorder
from .session import Session
from .twin_launches import TwinLaunches

_NAMES = tuple(inspect.signature(context.launch).parameters)


class LaunchCalls:
    """Handles launches, whichever API makes them."""

    def __init__(
        self,
        session: Session,
        recorder: EventRecorder,
        captures: Captures,
        launches: TwinLaunches,
        adjoints: AdjointLaunches,
    ):
        self.session, self.recorder, self.captures = session, recorder, captures
        self.launches, self.adjoints = launches, adjoints

    def install(self, hooks: Hooks) -> None:
        hooks.put(context.launch, self.launch)
        hooks.put(context.Launch.launch, self.command)
        for name in NATIVE:
            if isinstance(function := getattr(warp_utils, name, None), FunctionType):
                hooks.put(function, self.native)

    def launch(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Handle `wp.launch`."""
        if self.session.inside:
            if self.session.backward is not None and kwargs.get("adjoint"):
                return self.session.backward.adjoint_launch(original, args, kwargs)
            return original(*args, **kwargs)
        frame = caller()
        g = dict(zip(_NAMES, args, strict=False)) | kwargs
        kernel, values = g.get("kernel"), [*g.get("inputs", ()), *g.get("outputs", ())]
        if g.get("record_cmd") or not isinstance(kernel, context.Kernel) or "dim" not in g:
            return original(*args, **kwargs)
        tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)

        def theirs() -> Any:
            result = original(*args, **kwargs)
            if tape is not None and len(tape.launches) > before and isinstance(entry := tape.launches[-1], list):
                entry[7]["caller"] = {
                    "file": frame.f_code.co_filename,
                    "lineno": frame.f_lineno,
                    "func": frame.f_code.co_name,
                }
            return result

        if g.get("adjoint"):
            adjoints = [*g.get("adj_inputs", ()), *g.get("adj_outputs", ())]
            return self.adjoints.launched(kernel, _dims(g["dim"]), values, adjoints, theirs, frame)
        return self.launched(kernel, _dims(g["dim"]), values, theirs, frame)

    def command(self, original: Any, command: Any, stream: Any = None) -> Any:
        """Handle `Launch.launch()` of a `record_cmd=True` launch."""
        theirs = lambda: original(command, stream)  # noqa: E731
        if self.session.inside:
            return theirs()
        frame, kernel, bounds = caller(), command.kernel, command.bounds
        rank, values, adjoints = int(kernel.adj.kernel_dim), list(command.fwd_args or ()), list(command.adj_args or ())
        dims = tuple(int(bounds.shape[k]) for k in range(rank)) if rank else (int(bounds.size),)
        refused = "its arguments are not known" if command.fwd_args is None else ""
        if getattr(bounds, "coord_mult", 1) != 1:
            refused = "a grid with more axes than its kernel tells apart"
        if refused:
            arrays = list(arrays_in([*values, *adjoints]))
            return self.recorder.event("opaque", kernel.func.__name__, arrays, theirs, _nothing, frame, kernel, refused)
        if command.adjoint:
            return self.adjoints.launched(kernel, dims, values, adjoints, theirs, frame)
        return self.launched(kernel, dims, values, theirs, frame)

    def launched(
        self, kernel: Any, dims: tuple[int, ...], values: list[Any], theirs: Callable[[], Any], frame: Any
    ) -> Any:
        """Handle one launch of Warp's."""
        session, recorder, launches = self.session, self.recorder, self.launches
        label = kernel.func.__name__
        if self.captures.calls is not None:
            held, place = list(values), session.place_of(frame)
            ours = lambda: launches.run(kernel, dims, held, place)  # noqa: E731
            return self.captures.record("launch", label, session.twins.arrays_of(held), ours, theirs, kernel)
        if 0 in dims:
            result, tape, entries = session.run(theirs)
            session.postpone(lambda: recorder.note_entries(tape, entries, None))
            return result
        arrays: dict[int, KnownArray] = {}
        key, place = launches.key(kernel, dims, values, arrays), session.place_of(frame)
        known = launches.commands.get(key)
        if known is not None:
            later = WarpCall("launch", label, known.regions, known, place, kernel, known.twins)
            return recorder.postponed(later, known.look, theirs)
        if (later := launches.on_other_arrays(kernel, dims, values, arrays, place, key)) is not None:
            return recorder.postponed(later, EachBuffer(later.regions, None), theirs)
        ours = lambda: launches.run(kernel, dims, values, frame, key)  # noqa: E731
        given = session.twins.arrays_of(values)
        return recorder.event("launch", label, given, theirs, ours, frame, kernel, values=values)

    def native(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Handle a function of `wp.utils` that Warp computes in C++."""
        theirs = lambda: original(*args, **kwargs)  # noqa: E731
        if self.session.inside:
            return theirs()
        name, frame, given = original.__name__, caller(), given_to(original, args, kwargs)
        if "out" in given and given["out"] is None:  # it is made by the call
            result = self.session.quietly(theirs)
            if not warp_types.is_array(result):
                return result  # a number of the host
            given["out"], theirs = result, lambda: result
        arrays = list(arrays_in(given.values()))
        ours = lambda: NATIVE[name](self.session.twins, given)  # noqa: E731
        if self.captures.calls is not None:
            return self.captures.record("native", name, arrays, ours, theirs)
        return self.recorder.event("native", name, arrays, theirs, ours, frame)


def _nothing() -> None:
    """The twin of a call that has no part of ours."""


def _dims(dim: Any) -> tuple[int, ...]:
    if isinstance(dim, int):
        return (dim,)
    return tuple([int(n) for n in (dim if type(dim) is tuple or np.ndim(dim) else (dim,))])

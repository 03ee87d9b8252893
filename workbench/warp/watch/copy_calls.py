"""Copies, fills, assignments and builds of a watched program, and what new arrays begin with."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from warp._src import context, types as warp_types

from ...arrays.creation import copy as our_copy
from .captures import FROM_HOST
from .handles import PARTS
from .hooks import Hooks, Theirs
from .memory import arrays_in, hull
from .recorder import EventRecorder
from .session import Session

REPEATED = ("HashGrid.build", "Bvh.refit", "Bvh.rebuild")  # which a graph does each time; the rest only when captured


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
        known = arrays and (self.twins.behind(arrays[0]) or self.twins.meeting(*hull(arrays[0])))
        needed = kind == "copy" or len(arrays) > 1 or known  # fresh memory is snapshot when something first reads it
        if self.recorder.captured is None and not (arrays and needed):
            return self.session.quietly(theirs)
        return self.recorder.event(kind, label, arrays, theirs, ours)

    def made(self, theirs: Theirs, a: object, data: object = None, *_: object, **__: object) -> None:
        """Handle a new array: the host data that it copies is its initial contents, not an event."""
        if data is None or warp_types.is_array(data):
            theirs()
        else:
            self.session.quietly(theirs)


# ---- builds and refits of hash grids, meshes and BVHs: no array changes, but the results of later queries do


class Builds:
    """Handles the calls of Warp that build and fit."""

    def __init__(self, session: Session, recorder: EventRecorder):
        self.session, self.recorder, self.handles = session, recorder, session.twins.handles

    def install(self, hooks: Hooks) -> None:
        hooks.put(warp_types.HashGrid.build, self.grid)
        for kind in PARTS:
            hooks.put(kind.__init__, self.made)
            hooks.put(kind.refit, partial(self.again, "refit"))
        hooks.put(warp_types.Bvh.rebuild, partial(self.again, "rebuild"))
        for name in ("points", "velocities"):
            hooks.put(vars(warp_types.Mesh)[name].fset, partial(self.replaced, name))

    def grid(self, theirs: Theirs, grid: object, points: object, radius: float, groups: object = None) -> Any:
        ours = lambda: self.handles.build(grid, points, radius, groups)  # noqa: E731
        return self.event(grid, "build", [points, groups], theirs, ours)

    def made(self, theirs: Theirs, thing: Any, *args: object, **kwargs: object) -> None:
        """Handle a new mesh or BVH: its twin is built from the present contents of its arrays."""

        def registered() -> None:
            theirs()
            if thing.id:
                self.handles.living[thing.id] = thing

        ours = lambda: self.handles.make(thing)  # noqa: E731
        self.event(thing, "", [*args, *kwargs.values()], registered, ours)

    def again(self, name: str, theirs: Theirs, thing: object, *_: object, **__: object) -> None:
        self.fitted(thing, name, theirs, methodcaller(name))

    def replaced(self, name: str, theirs: Theirs, mesh: object, new: object) -> None:
        """Handle `mesh.points = new` (a refit) and `mesh.velocities = new`; recorded launches keep the old twin."""
        self.fitted(mesh, name, theirs, lambda _: self.handles.make(mesh), new)

    def fitted(
        self, thing: object, label: str, theirs: Callable[[], Any], act: Callable[[Any], None], *given: object
    ) -> None:
        """Handle a rebuild or refit of a mesh or BVH. Nothing is recorded before its twin, made by a launch, exists."""
        if self.handles.twin(thing) is None and self.recorder.captured is None:
            self.session.quietly(theirs)
            return

        def ours() -> None:
            if (known := self.handles.twin(thing)) is not None:
                act(known)

        self.event(thing, label, [*self.handles.arrays(thing), *given], theirs, ours)

    def event(
        self, thing: object, label: str, given: list[Any], theirs: Callable[[], Any], ours: Callable[[], None]
    ) -> Any:
        name = type(thing).__name__
        label = f"{name}.{label}" if label else name
        if self.recorder.captured is not None and label not in REPEATED:
            result = self.session.quietly(theirs)
            self.handles.forget(thing)
            return result

        def or_forget() -> None:
            try:
                ours()
            except Exception:
                self.handles.forget(thing)
                raise

        return self.recorder.event("build", label, list(arrays_in(given)), theirs, or_forget)

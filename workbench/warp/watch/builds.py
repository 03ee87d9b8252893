"""Builds and refits of hash grids, meshes and BVHs: no array changes, but the results of later queries do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

from warp._src import types as warp_types

from .handles import PARTS
from .hooks import Hooks, Theirs
from .memory import arrays_in
from .recorder import EventRecorder
from .session import Session

REPEATED = ("HashGrid.build", "Bvh.refit", "Bvh.rebuild")  # which a graph does each time; the rest only when captured


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

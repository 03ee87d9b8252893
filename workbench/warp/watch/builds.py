"""Builds and refits of hash grids, meshes and BVHs: no array changes, but the results of later queries do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warp._src import types as warp_types

from .captures import Captures
from .handles import PARTS
from .hooks import Hooks, Original, caller
from .memory import arrays_in
from .recorder import EventRecorder
from .session import Session

REPEATED = ("HashGrid.build", "Bvh.refit", "Bvh.rebuild")  # which a graph does each time; the rest only when captured


class Builds:
    """Handles the calls of Warp that build and fit."""

    def __init__(self, session: Session, recorder: EventRecorder, captures: Captures):
        self.session, self.recorder, self.captures, self.handles = session, recorder, captures, session.twins.handles

    def install(self, hooks: Hooks) -> None:
        hooks.put(warp_types.HashGrid.build, self.grid)
        for kind in PARTS:
            hooks.put(kind.__init__, self.made)
            hooks.put(kind.refit, self.refitted)
        hooks.put(warp_types.Bvh.rebuild, self.rebuilt)
        for name in ("points", "velocities"):
            setter = lambda original, mesh, new, name=name: self.replaced(original, mesh, name, new)  # noqa: E731
            hooks.put(vars(warp_types.Mesh)[name].fset, setter)

    def grid(self, original: Original, grid: Any, points: Any, radius: float, groups: Any = None) -> Any:
        theirs = lambda: original(grid, points, radius, groups)  # noqa: E731
        ours = lambda: self.handles.build(grid, points, radius, groups)  # noqa: E731
        return self.event(grid, "build", [points, groups], theirs, ours)

    def made(self, original: Original, thing: Any, *args: object, **kwargs: object) -> None:
        """Handle a new mesh or BVH: its twin is built from the present contents of its arrays."""

        def theirs() -> None:
            original(thing, *args, **kwargs)
            self.handles.created(thing)

        ours = lambda: self.handles.make(thing)  # noqa: E731
        self.event(thing, "", [*args, *kwargs.values()], theirs, ours)

    def rebuilt(self, original: Original, tree: Any, constructor: Any = None) -> None:
        self.fitted(tree, "rebuild", lambda: original(tree, constructor), lambda twin: twin.rebuild())

    def refitted(self, original: Original, thing: Any) -> None:
        self.fitted(thing, "refit", lambda: original(thing), lambda twin: twin.refit())

    def replaced(self, original: Original, mesh: Any, name: str, new: Any) -> None:
        """Handle `mesh.points = new` (a refit) and `mesh.velocities = new`; recorded launches keep the old twin."""
        self.fitted(mesh, name, lambda: original(mesh, new), lambda _: self.handles.make(mesh), new)

    def fitted(
        self, thing: Any, label: str, theirs: Callable[[], Any], act: Callable[[Any], None], *given: Any
    ) -> None:
        """Handle a rebuild or refit of a mesh or BVH. Nothing is recorded before its twin, made by a launch, exists."""
        if self.handles.twin(thing) is None and self.captures.calls is None:
            self.session.quietly(theirs)
            return

        def ours() -> None:
            if (known := self.handles.twin(thing)) is not None:
                act(known)

        self.event(thing, label, [*self.handles.arrays(thing), *given], theirs, ours)

    def event(
        self, thing: Any, label: str, given: list[Any], theirs: Callable[[], Any], ours: Callable[[], None]
    ) -> Any:
        name = type(thing).__name__
        if self.session.inside:
            return theirs()
        label = f"{name}.{label}" if label else name
        if self.captures.calls is not None and label not in REPEATED:
            result = self.session.quietly(theirs)
            self.handles.forget(thing)
            return result

        def or_forget() -> None:
            try:
                ours()
            except Exception:
                self.handles.forget(thing)
                raise

        if self.captures.calls is not None:
            return self.captures.record("build", label, list(arrays_in(given)), or_forget, theirs)
        return self.recorder.event(
            "build", label, list(arrays_in(given)), theirs, or_forget, self.session.place_of(caller())
        )

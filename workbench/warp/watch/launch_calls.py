"""Launches of a watched program, and the functions of `wp.utils` that Warp computes in C++."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

import numpy as np
from warp._src import context, types as warp_types, utils as warp_utils

from ...display import ProgressBar
from ...errors import KernelError
from ...launches.command import Command
from ...launches.launch import launch as our_launch
from .adjoint_launches import AdjointLaunch, Pair
from .builtin_calls import NATIVE, given_to
from .hooks import Hooks, Theirs, caller, first_line
from .memory import Untranslated, arrays_in
from .recorder import EventRecorder
from .rewritten_launches import serialised, without_skips
from .session import CallSite, Session
from .snapshots import Snapshots

IN_CAPTURE = "an adjoint that the program launches itself, in a capture"
Dims = tuple[int, ...]
Call = Callable[[], Any]
_NAMES = tuple(inspect.signature(context.launch).parameters)


class LaunchCalls:
    """Handles launches, whichever API makes them. `adjoints`: those with `adjoint=True` so far."""

    def __init__(self, session: Session, recorder: EventRecorder):
        self.session, self.recorder = session, recorder
        self.twins, self.programs = session.twins, session.programs
        self.progress = ProgressBar(None, "reading kernels")  # some hundred for an engine
        self.adjoints: list[AdjointLaunch] = []

    def install(self, hooks: Hooks) -> None:
        hooks.put(context.launch, self.launch, always=True)
        hooks.put(context.Launch.launch, self.command)
        for name in NATIVE:
            if isinstance(function := getattr(warp_utils, name, None), FunctionType):
                hooks.put(function, self.native)

    def launch(self, theirs: Theirs, *args: object, **kwargs: object) -> Any:
        """Handle `wp.launch`, also where a backward of Warp's makes it."""
        if self.session.inside:
            if self.session.backward is not None and kwargs.get("adjoint"):
                return self.session.backward.adjoint_launch(theirs, kwargs)
            return theirs()
        frame = caller()
        g: dict[str, Any] = dict(zip(_NAMES, args, strict=False)) | kwargs
        kernel, values = g.get("kernel"), [*g.get("inputs", ()), *g.get("outputs", ())]
        if g.get("record_cmd") or not isinstance(kernel, context.Kernel) or "dim" not in g:
            return theirs()
        tape = context.runtime.tape
        before = 0 if tape is None else len(tape.launches)

        def placed() -> Any:
            result = theirs()
            if tape is not None and len(tape.launches) > before and isinstance(entry := tape.launches[-1], list):
                code = frame.f_code
                entry[7]["caller"] = {"file": code.co_filename, "lineno": frame.f_lineno, "func": code.co_name}
            return result

        if g.get("adjoint"):
            adjoints = [*g.get("adj_inputs", ()), *g.get("adj_outputs", ())]
            return self.launched_back(kernel, _dims(g["dim"]), values, adjoints, placed, frame)
        return self.launched(kernel, _dims(g["dim"]), values, placed, frame)

    def command(self, theirs: Theirs, command: Any, *_: object, **__: object) -> Any:
        """Handle `Launch.launch()` of a `record_cmd=True` launch."""
        frame, kernel, bounds = caller(), command.kernel, command.bounds
        rank, values, adjoints = int(kernel.adj.kernel_dim), list(command.fwd_args or ()), list(command.adj_args or ())
        dims = tuple(int(bounds.shape[k]) for k in range(rank)) if rank else (int(bounds.size),)
        refused = "its arguments are not known" if command.fwd_args is None else ""
        if getattr(bounds, "coord_mult", 1) != 1:
            refused = "a grid with more axes than its kernel tells apart"
        if refused:
            arrays, label = list(arrays_in([*values, *adjoints])), kernel.func.__name__
            return self.recorder.event("opaque", label, arrays, theirs, kernel=kernel, refused=refused)
        if command.adjoint:
            return self.launched_back(kernel, dims, values, adjoints, theirs, frame)
        return self.launched(kernel, dims, values, theirs, frame)

    def launched(self, kernel: Any, dims: Dims, values: list[Any], theirs: Call, frame: FrameType) -> Any:
        """Handle one launch of Warp's."""
        session, recorder = self.session, self.recorder
        label, place = kernel.func.__name__, session.place_of(frame)
        if 0 in dims and recorder.captured is None:
            _, tape, entries = made = session.run(theirs)
            recorder.note_entries(tape, entries, None)
            return made[0]
        held, given = list(values), session.twins.arrays_of(values)
        twins: list[Any] = []
        ours = lambda: self.run(kernel, dims, held, place, twins)  # noqa: E731
        return recorder.event("launch", label, given, theirs, ours, kernel, values=values)

    def launched_back(
        self, kernel: Any, dims: Dims, values: list[Any], adjoints: list[Any], theirs: Call, frame: FrameType
    ) -> Any:
        """One launch with `adjoint=True`. Returns what Warp's call returns."""
        session, recorder = self.session, self.recorder
        label = f"adjoint of {kernel.func.__name__}"
        pairs = list({(id(a), id(g)): (a, g) for a, g in _pairs(values, adjoints)}.values())
        arrays = [*session.twins.arrays_of(values), *(g for _, g in pairs)]
        if recorder.captured is not None:
            return recorder.event("opaque", label, arrays, theirs, kernel=kernel, refused=IN_CAPTURE)
        place = session.place_of(frame)
        regions, reason = recorder.reach(arrays, place)
        if any(id(twin) not in session.tape.names.noted for a, _ in pairs for twin in session.twins.behind(a)):
            session.tape.names.note(frame)
        first = {id(a): np.array(g.numpy()) for a, g in pairs}
        result, tape, entries = session.run(theirs)
        step = recorder.step("adjoint", label, tape, entries, kernel, reason)
        back = None
        if not reason and session.check == "gradient":
            moment = Snapshots(first, {id(a): np.array(g.numpy()) for a, g in pairs})
            try:
                command = serialised(self.planned(kernel, dims, values, []))
                back = AdjointLaunch(session, step, command, pairs, moment, self.adjoints)
                back.judge()
            except Exception as error:  # noqa: BLE001  whatever ours cannot do is opaque, and the program goes on
                step.reason, step.kind, back = first_line(error), "opaque", None
        changed = None if step.reason else [region for region in regions if region.changed()]
        step.event = recorder.opaque(step, arrays, regions, place, changed)
        if back is not None:
            self.adjoints.append(back)
        session.steps.append(step)
        recorder.note_entries(tape, entries, step)
        return result

    # ---- twins

    def run(self, kernel: Any, dims: Dims, values: list[Any], place: CallSite, given: list[Any]) -> None:
        """Run the twin of a launch, with the progress bar if the kernel is new. Raises what the workbench says of it.

        `given`: the arguments on the twins; empty at the first run, which fills it for those that repeat it.
        """
        new = id(kernel) not in self.programs.met and self.progress
        serialised(without_skips(self.planned(kernel, dims, values, given))).launch(True, place)
        if new and new.update():
            new.say(kernel.func.__name__)

    def planned(self, kernel: object, dims: Dims, values: list[Any], given: list[Any]) -> Command:
        """Our launch for one of Warp's, not run. Raises what the workbench says of it."""
        ours, dims = self.programs.twin(kernel), _grid(kernel, dims)
        self.twins.handles.prepare(values)
        given[:] = given or [self.twins.value(v) for v in values]
        try:
            return our_launch(ours, dims, given, record_cmd=True).command
        except KernelError as failure:
            if not ours.generic and id(kernel) in self.programs.met:
                self.programs.failed(kernel, failure)
            raise

    # ---- functions in C++

    def native(self, theirs: Theirs, *args: object, **kwargs: object) -> Any:
        """Handle a function of `wp.utils` that Warp computes in C++."""
        name, given = theirs.func.__name__, given_to(theirs.func, args, kwargs)
        call: Call = theirs
        if "out" in given and given["out"] is None:  # it is made by the call
            result = self.session.quietly(theirs)
            if not warp_types.is_array(result):
                return result  # a number of the host
            given["out"], call = result, lambda: result
        ours = lambda: NATIVE[name](self.session.twins, given)  # noqa: E731
        return self.recorder.event("native", name, list(arrays_in(given.values())), call, ours)


def _dims(dim: Any) -> Dims:
    return tuple([int(n) for n in (dim if type(dim) is tuple or np.ndim(dim) else (dim,))])


def _grid(kernel: Any, dims: Dims) -> Dims:
    """The launch grid, cut or padded with 1 to the rank of its kernel. Raises Untranslated if an axis would be lost."""
    rank = int(kernel.adj.kernel_dim) if hasattr(kernel.adj, "kernel_dim") else len(dims)
    dims = (*dims, *[1] * (rank - len(dims)))
    if rank and any(n != 1 for n in dims[rank:]):
        raise Untranslated(f"a grid of {len(dims)} axes for a kernel that tells {rank} of them apart")
    return dims[:rank] if rank else dims


def _pairs(values: list[Any], adjoints: list[Any]) -> Iterator[Pair]:
    """The arrays among the arguments, those in structs too, each with the array that holds its adjoint.

    Without one of its own Warp takes the array's gradient, and always of an array in a struct.
    """
    for value, adjoint in zip(values, adjoints, strict=False):
        own = warp_types.is_array(value) and warp_types.is_array(adjoint) and adjoint.ptr
        for a in arrays_in([value]):
            held = adjoint if own else a.grad
            if held is not None:
                yield a, held

"""Launches of our kernels on the twins, for launches of Warp's: compiled once, then repeated."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

from ...errors import KernelError
from ...launches.launch import Command, launch
from .deferred import CallSite, Repeated, WarpCall, repeated
from .memory import KnownArray, Untranslated
from .progress import Progress
from .serialised import serialised
from .session import Session
from .zero_skips import to_repeat, without_skips

MOST_COMMANDS = 4096


class TwinLaunches:
    """The launches of a watch.

    commands  those to repeat, by kernel, grid and arguments.
    plain     the ids of kernels that have been launched here, without grids and meshes.
    """

    def __init__(self, session: Session):
        self.session, self.twins, self.programs = session, session.twins, session.programs
        self.commands: dict[Any, Repeated] = {}
        self.plain: set[int] = set()
        self.progress = Progress()

    def close(self) -> None:
        self.commands.clear()
        self.progress.close()

    def key(self, kernel: Any, dims: tuple[int, ...], values: list[Any], arrays: dict[int, KnownArray]) -> Any:
        """The cache key of a launch; None if it has none. Its arrays are put into `arrays`, by their id."""
        try:
            arguments = self.twins.key(values, arrays)
        except Untranslated:
            return None
        return None if arguments is None else (id(kernel), dims, arguments)

    def run(
        self, kernel: Any, dims: tuple[int, ...], values: list[Any], frame: Any, key: Any = None
    ) -> Repeated | None:
        """Run the twin of a launch, with the progress bar if the kernel is new. Raises what the workbench says of it.

        Returns a `Repeated` for later launches; None if it has to be made again each time.
        """
        met = self.programs.met
        with nullcontext() if id(kernel) in met else self.progress.reading(kernel.func.__name__):
            known = len(met)
            ours = self.programs.twin(kernel)
            if len(met) > known or len(self.commands) > MOST_COMMANDS:
                self.commands.clear()  # constants may have changed too: Warp loads the module anew
                self.plain.clear()
            dims = _grid(kernel, dims)
            self.twins.handles.prepare(values)
            given = [self.twins.value(v) for v in values]
            regions = self.twins.regions(self.twins.arrays_of(values))
            return self.planned(kernel, ours, dims, given, regions, self.session.place_of(frame), key)

    def planned(
        self,
        kernel: Any,
        ours: Any,
        dims: tuple[int, ...],
        given: list[Any],
        regions: list[Any],
        place: CallSite,
        key: Any,
    ) -> Repeated | None:
        """Launch our kernel on twins. Returns a `Repeated`; None if it has to be made again each time."""
        try:
            recorded = launch(ours, dims, given, record_cmd=True)
        except KernelError as failure:
            if not ours.generic and id(kernel) in self.programs.met:
                self.programs.failed(kernel, failure)
            raise
        command, known = serialised(without_skips(recorded.command)), None
        if not command.program.handles:
            self.plain.add(id(kernel))
            known = repeated(to_repeat(recorded.command, command), place, regions)
            if key is not None:
                self.commands[key] = known
        command.launch(True, place)
        return known

    def command(self, kernel: Any, dims: tuple[int, ...], values: list[Any]) -> Command:
        """Our launch for one of Warp's, not run. Raises what the workbench says of it."""
        ours = self.programs.twin(kernel)
        self.twins.handles.prepare(values)
        given = [self.twins.value(v) for v in values]
        return serialised(launch(ours, _grid(kernel, dims), given, record_cmd=True).command)

    def on_other_arrays(
        self,
        kernel: Any,
        dims: tuple[int, ...],
        values: list[Any],
        arrays: dict[int, KnownArray],
        place: CallSite,
        key: Any,
    ) -> WarpCall | None:
        """A deferred launch of a kernel that has run before on other arrays. None if it cannot be deferred."""
        if key is None or id(kernel) not in self.plain or id(kernel) not in self.programs.met:
            return None
        try:
            ours, dims = self.programs.twin(kernel), _grid(kernel, dims)
            given = [arrays[id(v)].twin if id(v) in arrays else self.twins.value(v) for v in values]
        except Exception:  # noqa: BLE001  the event says what it was
            return None
        regions = list(dict.fromkeys([known.region for known in arrays.values() if known.region is not None]))
        twins = tuple([known.twin for known in arrays.values() if known.region is not None])
        act = partial(self.planned, kernel, ours, dims, given, regions, place, key)
        return WarpCall("launch", kernel.func.__name__, regions, act, place, kernel, twins)


def _grid(kernel: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    """The launch grid, cut or padded with 1 to the rank of its kernel. Raises Untranslated if an axis would be lost."""
    rank = int(kernel.adj.kernel_dim) if hasattr(kernel.adj, "kernel_dim") else len(dims)
    dims = (*dims, *[1] * (rank - len(dims)))
    if rank and any(n != 1 for n in dims[rank:]):
        raise Untranslated(f"a grid of {len(dims)} axes for a kernel that tells {rank} of them apart")
    return dims[:rank] if rank else dims

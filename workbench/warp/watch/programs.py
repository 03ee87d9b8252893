"""Kernels of a watched program as ours, and which frames and modules are the program's."""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any

import warp
from warp._src import context

from ...arrays import names
from ...errors import Where
from ...tapes.events import place_of
from .rebind import Rebinder

_OURS = {__name__.partition(".")[0], "warp"}


@functools.cache
def is_between(module: str) -> bool:
    """True if a module lies between the user's program and us: workbench or Warp, but not its examples."""
    return module.partition(".")[0] in _OURS and not module.startswith("warp.examples")


def caller() -> Any:
    """The frame of the user's program, or of a library on Warp, that called a function of Warp."""
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and is_between(frame.f_globals.get("__name__") or ""):
        frame = frame.f_back
    return frame


def is_installed(file: str) -> bool:
    """True for a file of an installed package: not the user's to change."""
    return "-packages" in file


def call_of_program(frame: FrameType) -> Where:
    """The line of the user's program from which a frame of an installed library was called."""
    while frame.f_back is not None and is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    return place_of((frame.f_code, frame.f_lasti))


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    what = str(getattr(error, "what", None) or error or type(error).__name__)
    return what.splitlines()[0]


class Programs(Rebinder):
    """The translation cache for kernels of every package that uses Warp, shared by all watches of a process.

    What was read, differentiated and compiled for one watch serves the next. What has changed since (constants,
    closures, redefined funcs and kernels) is read again.
    """

    def __init__(self) -> None:
        super().__init__((), own_adjoints=False)

    def clear(self) -> None:
        super().clear()
        self.covered: dict[str, bool] = {}
        self.opened: set[str] = set()  # packages whose objects hold arrays with names
        self.twins: dict[int, tuple[Any, Any]] = {}
        self.refused: dict[int, Exception] = {}
        self.met: set[int] = set()  # kernels, since `open`

    def covers(self, module: str) -> bool:
        module = module or ""  # what Warp makes at run time has none
        if module not in self.covered:
            self.covered[module] = _uses_warp(module)
        return self.covered[module]

    def twin(self, kernel: Any) -> Any:
        """Our kernel for one of Warp's. Raises what it raised before, where it could not be read."""
        key = id(kernel)
        if key not in self.met:
            self.met.add(key)
            package = (kernel.func.__module__ or "warp").partition(".")[0]
            if package != "warp" and package not in names.opened:
                names.opened.add(package)
                self.opened.add(package)
            if key not in self.twins:
                self.twins[key] = kernel, self.kernel(kernel)
        if key in self.refused:
            raise self.refused[key]
        return self.twins[key][1]

    def failed(self, kernel: Any, failure: Exception) -> None:
        """Remember that a kernel cannot be read: it is not tried again during this watch."""
        self.refused[id(kernel)] = failure

    def open(self) -> None:
        """Begin a watch: drop or refresh what has changed since the last one."""
        if len(self.twins) > MOST_KERNELS or any(_uses_warp(m) is not was for m, was in self.covered.items()):
            self.clear()
        self.renew()

    def close(self) -> None:
        """End a watch. Kernels that could not be read are tried again by the next."""
        names.opened.difference_update(self.opened)
        self.opened.clear()
        self.met.clear()
        for key in self.refused:
            self.twins.pop(key, None)
        self.refused.clear()
        self.let_go()
        self.twins = {key: pair for key, pair in self.twins.items() if id(pair[0].func) in self.made}


MOST_KERNELS = 4096  # that are remembered: programs may make new ones all the time


def _uses_warp(module: str) -> bool:
    package = module.partition(".")[0]
    space = vars(sys.modules[module]) if module in sys.modules else {}
    foreign = is_between(module) or (package in sys.stdlib_module_names and package != "__main__")
    return not foreign and any(
        v is warp or isinstance(v, context.Function | context.Kernel) for v in list(space.values())
    )


@functools.cache
def programs() -> Programs:
    """The process-wide `Programs`."""
    return Programs()

"""Kernels of a watched program as ours, and which frames and modules are the program's."""

from __future__ import annotations

import sys
from typing import Any

import warp
from warp._src import context

from ...arrays import names
from .rebind import Rebinder

_OURS = {__name__.partition(".")[0], "warp"}


def is_between(module: str) -> bool:
    """Does a module lie between the user's program and us: Warp, but not its examples."""
    return module.partition(".")[0] in _OURS and not module.startswith("warp.examples")


def caller() -> Any:
    """The frame of the user's program, or of a library on Warp, that called a function of Warp."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and is_between(frame.f_globals.get("__name__") or ""):
        frame = frame.f_back
    return frame


def said(error: BaseException) -> str:
    """The first line of what an error says."""
    what = str(getattr(error, "what", None) or error or type(error).__name__)
    return what.splitlines()[0]


class Programs(Rebinder):
    """Kernels of every package that uses Warp, with the derivatives of what their funcs compute."""

    def __init__(self) -> None:
        super().__init__((), own_adjoints=False)
        self.covered: dict[str, bool] = {}
        self.opened: set[str] = set()  # packages whose objects hold arrays with names
        self.twins: dict[int, tuple[Any, Any, Exception | None]] = {}

    def covers(self, module: str) -> bool:
        module = module or ""  # what Warp makes at run time has none
        if module not in self.covered:
            package = module.partition(".")[0]
            space = vars(sys.modules[module]) if module in sys.modules else {}
            foreign = is_between(module) or (package in sys.stdlib_module_names and package != "__main__")
            self.covered[module] = not foreign and any(
                v is warp or isinstance(v, context.Function | context.Kernel) for v in list(space.values())
            )
        return self.covered[module]

    def twin(self, kernel: Any) -> Any:
        """Our kernel for one of Warp's. Raises what it raised before, where it could not be read."""
        if id(kernel) not in self.twins:
            package = (kernel.func.__module__ or "warp").partition(".")[0]
            if package != "warp" and package not in names.opened:
                names.opened.add(package)
                self.opened.add(package)
            self.twins[id(kernel)] = kernel, self.kernel(kernel), None
        _, made, failure = self.twins[id(kernel)]
        if failure is not None:
            raise failure
        return made

    def failed(self, kernel: Any, failure: Exception) -> None:
        """Our kernel cannot be read: it will not be tried again."""
        self.twins[id(kernel)] = kernel, None, failure

    def close(self) -> None:
        names.opened.difference_update(self.opened)

"""Compiled C kernels in this process: loaded once, several compiled side by side."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from .c_compiler import build, library_path
from .disk_cache import read_sealed
from .platform import ctypes
from .thread_pool import after_call, kernel_address, parallel

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from pathlib import Path


class Compiled:
    """A kernel in machine code. `call(packed, begin, end)` runs on the calling thread, without Python's lock.

    `asks`: it has loops that may never end, and asks the pool now and then whether they are to stop.
    """

    def __init__(self, path: Path, name: str):
        self.path, self.name = path, name
        self.library = ctypes.CDLL(str(path))
        self.call = getattr(self.library, name)
        self.call.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
        self.call.restype = None
        self.address = ctypes.cast(self.call, ctypes.c_void_p).value
        self.asks = self._connected()

    def _connected(self) -> bool:
        try:
            place = ctypes.c_void_p.in_dll(self.library, "wb_ask")
        except ValueError:
            return False
        place.value = kernel_address("wb_asked")
        return True

    def __call__(self, packed: bytes, begin: int, end: int, team: int = 1) -> None:
        """Run the cells [begin, end) of the outermost launch dimension."""
        if team != 1 and end - begin > 1:
            parallel()(self.address, packed, begin, end, team)
        else:
            self.call(packed, begin, end)
            if not self.asks:
                return
        after_call()


_loaded: dict[tuple[str, str, tuple[str, ...]], Compiled] = {}


def load(text: str, name: str, flags: tuple[str, ...] = ()) -> Compiled:
    """The function `name` of `text`, compiled at most once per machine and loaded at most once per process."""
    key = text, name, flags
    return _loaded.get(key) or _loaded.setdefault(key, Compiled(build(text, flags), name))


_coming: list[Future] = []  # that nobody has seen complete


def begin(text: str, name: str) -> Compiled | Future:
    """The function `name` of `text` if it is in this process or on this disk, else what `load` gives in another thread.

    A compiler is a process of its own, so several run side by side.
    """
    if found := _loaded.get((text, name, ())):
        return found
    if read_sealed(path := library_path(text)) is not None:
        return _loaded.setdefault((text, name, ()), Compiled(path, name))
    made = _builders().submit(load, text, name)
    _coming[:] = [f for f in _coming if not f.done()] + [made]
    return made


@cache
def _builders() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(os.cpu_count() or 1, "workbench-compile")


def coming() -> list[Future]:
    """The futures of compilations that are not done."""
    return [f for f in _coming if not f.done()]


def lost(future: Future) -> bool:
    """True for a future that nobody completes: the parent of this forked process began it."""
    return future not in _coming and not future.done()


def _forked() -> None:
    """The threads of the parent do not exist in a forked child."""
    _builders.cache_clear()
    _coming.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

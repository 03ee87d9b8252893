"""Compiled C kernels in this process: loaded once, several compiled side by side."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from .c_compiler import build, hurried, library_path
from .compile_error import CompileError
from .disk_cache import read_sealed
from .platform import ctypes
from .thread_pool import after_call, kernel_address, parallel

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from pathlib import Path


class Compiled:
    """A kernel in machine code. `call(packed, begin, end)` runs on the calling thread, without Python's lock.

    `asks`: it has loops that may never end, and asks the pool now and then whether they are to stop.
    `optimised`: of one compiled in a hurry, where the address of the optimised function goes; None of others.
    `ran`: how often it has run so, as launches count. `text`: what is to be optimised.
    """

    ran, awaited = 0, False

    def __init__(self, path: Path, name: str, text: str):
        self.path, self.name, self.text = path, name, text
        self.library = ctypes.CDLL(str(path))
        self.call = getattr(self.library, name)
        self.call.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
        self.call.restype = None
        self.address = ctypes.cast(self.call, ctypes.c_void_p).value
        self.optimised = self._pointer("wb_optimised")
        ask = self._pointer("wb_ask")
        self.asks = ask is not None
        if ask is not None:
            ask.value = kernel_address("wb_asked")

    def _pointer(self, name: str) -> ctypes.c_void_p | None:
        try:
            return ctypes.c_void_p.in_dll(self.library, name)
        except ValueError:
            return None

    def optimise(self) -> None:
        """Let an optimised function take over once another thread has compiled it: addresses of this one stay good.

        In a child that is forked meanwhile it stays as it is; at its end the process waits for the compiler.
        """
        if self.optimised is not None and not self.awaited:
            self.awaited = True
            with suppress(RuntimeError):  # the process ends
                _builders(1).submit(self._optimise, self.optimised)

    def _optimise(self, place: ctypes.c_void_p) -> None:
        try:
            place.value = load(self.text, self.name).address
        except (CompileError, OSError) as error:
            import logging

            logging.getLogger("workbench").warning("kernel %s stays unoptimised: %s", self.name, error)

    def __call__(self, packed: bytes, begin: int, end: int, team: int = 1) -> None:
        """Run the cells [begin, end) of the outermost launch dimension."""
        if team != 1 and end - begin > 1:
            parallel()(self.address, packed, begin, end, team)
        else:
            self.call(packed, begin, end)
            if not self.asks:
                return
        after_call()


_loaded: dict[tuple[str, str, tuple[str, ...], bool], Compiled] = {}


def load(text: str, name: str, flags: tuple[str, ...] = (), hurry: bool = False) -> Compiled:
    """The function `name` of `text`, compiled at most once per machine and loaded at most once per process."""
    key = text, name, flags, hurry
    given = hurried(text, name) if hurry else text
    return _loaded.get(key) or _loaded.setdefault(key, Compiled(build(given, flags), name, text))


_coming: list[Future] = []  # that nobody has seen complete


def begin(text: str, name: str, hurry: bool = False) -> Compiled | Future:
    """The function `name` of `text` if it is in this process or on this disk, else what `load` gives in another thread.

    A compiler is a process of its own, so several run side by side. `hurry`: not optimised will do.
    """
    for given in [text, hurried(text, name)] if hurry else [text]:
        key = text, name, (), given is not text
        if found := _loaded.get(key):
            return found
        if read_sealed(path := library_path(given)) is not None:
            return _loaded.setdefault(key, Compiled(path, name, text))
    made = _builders(os.cpu_count() or 1).submit(load, text, name, (), hurry)
    time.sleep(2e-4)  # the compiler starts now, and not when this thread has to wait for something
    _coming[:] = [f for f in _coming if not f.done()] + [made]
    return made


@cache
def _builders(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(threads, "workbench-compile")


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

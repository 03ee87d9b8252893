"""The threads that share the cells of a launch: `pool.c`, compiled on this machine when it is first used.

Each thread has a share of every launch; in long launches those who are through take pieces of the shares of others
(work stealing). Idle threads look for work for some microseconds, give their processor to whoever wants it for about a
millisecond, and then sleep on a condition. Where sharing has cost more time than it saved, since other programs use the
processors, launches of that kind run on their caller alone for a while.
"""

from __future__ import annotations

import threading
from functools import lru_cache

from .c_compiler import build
from .platform import ctypes

PIECES = 4  # of a share, where others may help


@lru_cache(None)
def _library() -> ctypes.CDLL:
    from pathlib import Path

    text = Path(__file__).with_name("pool.c").read_text("utf-8")
    made, python = ctypes.CDLL(str(build(text, ("-pthread",)))), ctypes.pythonapi
    names = "PyGILState_Ensure PyGILState_Release PyErr_CheckSignals PyErr_Fetch PyErr_NormalizeException".split()
    functions = [ctypes.cast(getattr(python, name), ctypes.c_void_p) for name in names]
    made.wb_python(*functions, ctypes.c_ulong(threading.main_thread().ident or 0))
    made.wb_raised.restype = ctypes.py_object
    whole, block = ctypes.c_int64, ctypes.c_void_p
    made.wb_parallel.argtypes, made.wb_parallel.restype = [block, ctypes.c_char_p, whole, whole, whole], None
    made.wb_replay.argtypes, made.wb_replay.restype = [block, whole], None
    for solve in (made.wb_cg32, made.wb_cg64):
        solve.argtypes, solve.restype = [block], None
    return made


@lru_cache(None)
def _stop() -> ctypes.c_int:
    return ctypes.c_int.in_dll(_library(), "wb_stop")


def after_call() -> None:
    """Raise what a handler of a signal raised during a call, KeyboardInterrupt as a rule: then it was not finished."""
    if _stop().value:
        raise _library().wb_raised()


@lru_cache(None)
def parallel():
    """wb_parallel(kernel address, packed, begin, end, team)."""
    return _library().wb_parallel


def team(threads: int, pieces: int = 1) -> int:
    """The last argument of `parallel()`: how many threads, each with a share of `pieces`; 0 pieces: over at once."""
    return threads | pieces << 32 if threads > 1 else 1


@lru_cache(None)
def kernel_address(name: str) -> int:
    """The address of a function of the pool's text, to be run by the pool."""
    return ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value or 0


@lru_cache(None)
def loss() -> ctypes.c_int:
    """The settable back-off factor: launches run alone for this many times the time lost by sharing. 0: never."""
    return ctypes.c_int.in_dll(_library(), "wb_loss")


def replay():
    """wb_replay(calls, their number): a list of native calls, one after the other."""
    return _library().wb_replay


def conjugate_gradients(itemsize: int):
    """wb_cg(address of a `wb_system`), of floats of 4 or 8 bytes."""
    return _library().wb_cg32 if itemsize == 4 else _library().wb_cg64

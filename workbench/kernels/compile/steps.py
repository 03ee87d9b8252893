"""The native look at launches that were made before: `steps.c`, compiled in another thread when it is first wanted.

Without a compiler, or an interpreter that has what the text names, there is none: Python does the same.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import c_compiler, thread_pool
from .compile_error import CompileError
from .disk_cache import read_sealed

if TYPE_CHECKING:
    from concurrent.futures import Future

BLOCK = 2048  # bytes of arguments that `steps.c` has room for


def source() -> str:
    """The text of `steps.c`."""
    from pathlib import Path

    return Path(__file__).with_name("steps.c").read_text("utf-8")


def load(text: str) -> Any:
    """The functions; None where they cannot be had."""
    try:
        library = ctypes.PyDLL(str(c_compiler.build(text)))
    except (OSError, CompileError) as error:
        import logging

        logging.getLogger("workbench").info("no native steps: %s", error)
        return None
    library.wb_steps.restype = ctypes.py_object
    return library.wb_steps()


@lru_cache(None)
def _coming() -> Future | None:
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not locked or not c_compiler.available():
        return None
    from concurrent.futures import Future, ThreadPoolExecutor

    text = source()
    if read_sealed(c_compiler.library_path(text)) is not None:
        found: Future = Future()
        found.set_result(load(text))
        return found
    worker = ThreadPoolExecutor(1, "workbench-steps")
    made = worker.submit(load, text)
    worker.shutdown(wait=False)
    return made


def ready() -> Any:
    """step, launch, fill, publish and clear of `steps.c`; None so far.

    The first two: (what they look at, kernel, dim, args, device) -> bool. fill: (numbers, flat arguments of all
    events) writes them into blocks; numbers in fours: event, position, how `struct` writes it, address.
    publish and clear: see there; they leave what takes more than copying or clearing bytes.
    """
    coming = _coming()
    return coming.result() if coming is not None and coming.done() else None


def described(
    kernel: Any, seen: Any, paths: tuple | None, numbers: tuple, free: tuple, place: tuple, serials: tuple,
    writes: tuple, watched: tuple = (), starts: tuple = (), reads: tuple = (),
) -> tuple | None:  # fmt: skip
    """A launch as `steps.c` takes it; None where it is more than one call, alone or shared by workers.

    paths     per flat argument: the number of the user's, and the names of fields; None where they are the same.
    numbers   positions and what must be there.
    free      in sixes: position, how `struct` writes what is there, offset in the block, the least and the greatest
              whole number, its class in NumPy; for a vector "", how many bytes, 0, a function that gives them, or None.
    place     (code, its instruction). The rest are positions of arguments, in pairs with a serial number, or with
              whether this is the only way in which the memory is written.
    """
    plan = seen.plan
    run, (program, reading) = plan.forward, kernel.present
    if run.direct is None or run.shares or run.call.asks or program is not plan.program:
        return None
    if seen.packed is None:
        seen.packed = run.packed(seen.values)
    if len(seen.packed) > BLOCK or "e" in free[1::6]:
        return None
    codes = tuple([ord(v or "v") if k % 6 == 1 else v for k, v in enumerate(free)])
    return (
        kernel, program, reading, seen.switches, seen.grid, seen.device, len(program.params), *place, serials, numbers,
        writes, watched, starts, reads, run.call.address, seen.packed, 0, plan.form.dims[0], paths, codes,
        len(seen.packed), *(thread_pool.shared(run.team) if run.team != 1 else (1, 0, 0, None)),
    )  # fmt: skip

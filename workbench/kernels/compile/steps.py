"""The native look at the next step of a track: `steps.c`, compiled in another thread when it is first wanted.

Without a compiler, or an interpreter that has what the text names, there is none: Python does the same.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import c_compiler
from .compile_error import CompileError
from .disk_cache import read_sealed

log = logging.getLogger("workbench")


def _load(text: str) -> Any:
    """The function; None where it cannot be had."""
    try:
        library = ctypes.PyDLL(str(c_compiler.build(text)))
    except (OSError, CompileError) as error:
        log.info("no native steps: %s", error)
        return None
    library.wb_steps.restype = ctypes.py_object
    return library.wb_steps()


@lru_cache(None)
def _coming() -> Future | None:
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not locked or not c_compiler.available():
        return None
    text = Path(__file__).with_name("steps.c").read_text("utf-8")
    if read_sealed(c_compiler.library_path(text)) is not None:
        found: Future = Future()
        found.set_result(_load(text))
        return found
    worker = ThreadPoolExecutor(1, "workbench-steps")
    made = worker.submit(_load, text)
    worker.shutdown(wait=False)
    return made


def ready() -> Any:
    """step(following, kernel, dim, args, device) -> bool, see `steps.c`; None as long as there is none."""
    coming = _coming()
    return coming.result() if coming is not None and coming.done() else None

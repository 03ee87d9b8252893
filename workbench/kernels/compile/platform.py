"""Differences between Linux, macOS, Windows and a browser: the one file that asks where the package runs.

Machine code is compiled for the first three. In a browser (Pyodide) there are neither compilers, nor processes, nor
threads, and nothing here raises for it: kernels run on the `numpy` backend, and background work at once.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes
    from subprocess import Popen
else:
    try:
        import ctypes
    except ImportError:  # of browsers. Without it no compiler is found, so that nothing calls what needs it
        ctypes = None

SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
OWNED = hasattr(os, "geteuid")  # files have an owner, and bits that say who else may write them
ZIG_FIRST = sys.platform in ("win32", "darwin")  # `cc` is missing on the one, and opens a dialog on the other


def shared(system: str = sys.platform, native: bool = False) -> list[str]:
    """The flags of a shared library for a system, named as `sys.platform` does; `native`: for this very processor."""
    tuned = ["-march=native"] if native and (system, platform.machine()) != ("darwin", "arm64") else []  # refused there
    return [*tuned, "-shared", "-s" if system == "win32" else "-fPIC"]  # -s: no file for debuggers


@lru_cache(None)
def processor() -> str:
    """A text that identifies the processor, as `-march=native` sees it: model and feature flags."""
    try:
        with open("/proc/cpuinfo") as file:
            found = {line for line in file if line.startswith(("flags", "Features", "model name"))}
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return " ".join(sorted(found)) or platform.machine()


def end(process: Popen) -> None:
    """End a process and those it has started, if it leads a session; on Windows that process alone."""
    if hasattr(os, "killpg"):
        import signal

        os.killpg(process.pid, signal.SIGTERM)  # not SIGKILL: a compiler removes its files
    else:
        process.kill()


def in_background(work: Callable[..., None], *args: object) -> threading.Thread:
    """Run `work(*args)` in a thread of its own; where none can be started, here and now, before this returns."""
    made = threading.Thread(target=work, args=args, daemon=True)
    try:
        made.start()
    except RuntimeError:
        work(*args)
    return made

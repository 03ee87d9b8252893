"""C text -> shared library, by the machine's own compiler."""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from ..emit.c_names import MATH1, MATH2
from . import platform
from .compile_error import CompileError, refused
from .disk_cache import (
    cache_directory,
    cache_path,
    digest,
    give_up,
    read_sealed,
    temporary,
    without_comments,
    write_sealed,
)

if TYPE_CHECKING:
    from pathlib import Path

PORTABLE = (  # what the same numbers on every machine need
    "-O3 -fwrapv -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing -fopenmp-simd -w -pipe"
).split()
FLAGS = [*PORTABLE, *platform.shared(native=True)]
ZIG_FLAGS = "-fno-sanitize=undefined", "-g0"  # what debuggers need takes a tenth of its time

# Compilers take minutes over functions of tens of thousands of lines: these are optimised less, or not at all.
LARGE, HUGE = 3000, 20_000  # lines of text
PATIENCE_S = 4.0

# Written out in full, loops over the elements of tiles took gcc five times as long, and ran no faster for it.
SPARING, OF_TILES = "--param max-completely-peeled-insns=100 --param max-completely-peel-times=8".split(), "WB_TILE("

# Of a loop that carries a number, gcc 12 makes stores of zeros a `memset` before what still reads that memory.
NO_MEMSET = ["-fno-tree-loop-distribute-patterns"]

# What follows a text that is compiled in a hurry: its function hands its calls on once there is an optimised one.
HURRIED_NAME = "wb_unoptimised"
HURRIED = """
#undef NAME
void (*wb_optimised)(const void *, int64_t, int64_t);
void NAME(const void *block, int64_t begin, int64_t end) {
    void (*found)(const void *, int64_t, int64_t) = __atomic_load_n(&wb_optimised, __ATOMIC_ACQUIRE);
    (found ? found : wb_unoptimised)(block, begin, end);
}
"""

# No code runs when the library is loaded; `memset`, `printf` are the process's. The linker has nothing to optimise.
BARE = "-nostdlib", "-fno-use-linker-plugin"

# What it would do is asked of a compiler, as that names its version, and what `native` means to it.
ASKED = "-march=native -### -E -x c -".split()

# A gcc that is older than the processor takes its instructions and tunes for any: then it gathers nothing, and loops
# over `x[index[i]]` stay scalar, at a half to a third of the speed (springs and MPM of the benchmarks, gcc 12).
OLDER = "-mtune=icelake-server -mprefer-vector-width=512".split()

# Calls of C's math library, and not the declarations of its functions. What is optimised to one instruction is none.
_INLINE = {"sqrt", "fabs", "copysign"}
_CALLS = "|".join(name for name in (*MATH1, *MATH2, "fma", "wb_pow") if name not in _INLINE)
_MATH, _INLINED = (re.compile(rf"\b(?:{names})f?\((?!double|float)") for names in (_CALLS, "|".join(_INLINE)))


@dataclass(frozen=True)
class Compiler:
    """A command that compiles C, what identifies it, and the flags it takes beyond `FLAGS`."""

    command: tuple[str, ...]
    identity: str
    flags: tuple[str, ...] = ()

    @property
    def is_gcc(self) -> bool:
        return "gcc version" in self.identity

    def flags_for(self, text: str) -> list[str]:
        """All flags that depend on nothing but the compiler and the text."""
        spare = SPARING if OF_TILES in text else []
        return [*FLAGS, *self.flags, *((*NO_MEMSET, *spare) if self.is_gcc else ())]

    def libraries(self, text: str, flags: tuple[str, ...]) -> list[str]:
        """The linker flags of a kernel. gcc on Linux omits libc, which the process has loaded: a fifth of the time.

        libm is omitted too where the text calls nothing in it, as reading its symbols is slow.
        Text with flags of its own (threads) is linked as usual.
        """
        if not self.is_gcc or sys.platform != "linux" or flags:
            return ["-lm"]
        math = _MATH.search(text) or (HURRIED_NAME in text and _INLINED.search(text))
        return [*BARE, *(["-lm"] if math else []), "-lgcc"]


@lru_cache(None)
def compiler() -> Compiler:
    """The C compiler in use: `CC`, else cc, gcc, clang, else the `ziglang` wheel, which is second on macOS and Windows.

    Raises CompileError [no-compiler] without one, and where no machine code can be loaded.
    """
    import importlib.util
    import shutil

    if platform.ctypes is None:
        raise CompileError(
            "this Python has no ctypes and loads no machine code.\n"
            'Write instead:   wb.config.backend = "numpy"\n[no-compiler]'
        )
    wheel = importlib.util.find_spec("ziglang")
    zig = None if wheel is None or wheel.origin is None else os.path.dirname(wheel.origin)
    wishes = [["cc"], ["gcc"], ["clang"]] if zig is None or not platform.ZIG_FIRST else []
    for wish in [shlex.split(os.environ.get("CC", "")), *wishes]:
        found = shutil.which(wish[0]) if wish else None
        if found:
            return _native((found, *wish[1:]))
    if zig is not None:
        return _zig(zig)
    raise CompileError(
        "no C compiler was found. Kernels run on the NumPy interpreter instead, slowly.\n"
        "Write instead:   pip install ziglang   (or install gcc or clang, or set CC)\n[no-compiler]"
    )


def available() -> bool:
    try:
        compiler()
    except CompileError:
        return False
    return True


def _native(command: tuple[str, ...]) -> Compiler:
    real = os.path.realpath(command[0])
    seen = os.stat(real)
    known = f"{real} {seen.st_size} {seen.st_mtime_ns} {' '.join(command[1:])}"
    version, tuned = _asked(command, known, real)
    return Compiler(command, f"{known} {version}", tuned)


def _asked(command: tuple[str, ...], known: str, real: str) -> tuple[str, tuple[str, ...]]:
    """The version text of the compiler, and extra flags for this processor (`OLDER` or none).

    Cached on disk per binary and processor, which saves a process.
    A script or wrapper (ccache) hides which compiler runs: it is queried each time.
    """
    kept = None
    if "gcc" in os.path.basename(real) or "clang" in os.path.basename(real):
        with suppress(CompileError, OSError), open(real, "rb") as file:  # a cache of no use is refused by a compilation
            if file.read(2) != b"#!":
                kept = cache_directory() / f"{digest(known, platform.processor(), *ASKED)}.version"
    said = None if kept is None else read_sealed(kept)
    if said is None:
        from subprocess import DEVNULL, PIPE, STDOUT, Popen

        with Popen([*command, *ASKED], stdin=DEVNULL, stdout=PIPE, stderr=STDOUT) as asked:
            import_module("concurrent.futures.thread")  # what compiling takes next comes in while this answers
            said = asked.communicate()[0]
        if kept is not None and said:
            with suppress(OSError):
                write_sealed(kept, said)
    text = said.decode(errors="replace")
    version = "\n".join(line for line in text.splitlines() if " version " in line and "Configured" not in line)
    gcc = re.search(r"gcc version (\d+)", version)
    knows = gcc is not None and int(gcc[1]) >= 8  # what `OLDER` says
    older = knows and '"-mtune=generic"' in text and " -mavx512f " in text
    return version, tuple(OLDER) if older else ()


def _zig(package: str) -> Compiler:
    """The compiler in the folder of the wheel. Not by `python -m ziglang`, which starts an interpreter each time."""
    binary = os.path.join(package, "zig.exe" if os.name == "nt" else "zig")
    _log("compiling with the ziglang wheel: its very first kernel takes a few seconds")
    seen = os.stat(binary)
    return Compiler((binary, "cc"), f"ziglang {package} {seen.st_size} {seen.st_mtime_ns}", ZIG_FLAGS)


def _log(text: str, *args: object) -> None:
    import logging

    logging.getLogger("workbench").info(text, *args)


def key(text: str, flags: tuple[str, ...] = ()) -> str:
    """The name of what `text` compiles to, here."""
    used = compiler()
    given = " ".join([*used.flags_for(text), *flags, *BARE, _CALLS])  # by the last two a text is linked
    return digest(without_comments(text), used.identity, given, platform.processor())


def hurried(text: str, name: str) -> str:
    """A text of the same function that takes half the time to compile, and several times as long to run."""
    return f"#define {name} {HURRIED_NAME}\n{text}{HURRIED.replace('NAME', name)}"


def library_path(text: str, flags: tuple[str, ...] = ()) -> Path:
    """The path of the shared library of `text` in the cache, built or not."""
    return cache_directory() / f"{key(text, flags)}{platform.SUFFIX}"


def build(text: str, flags: tuple[str, ...] = ()) -> Path:
    """The shared library of `text`: from the cache, else compiled into it. Raises CompileError."""
    path = library_path(text, flags)
    if read_sealed(path) is None:
        try:
            _compile(text, path, flags)
        except OSError as error:
            give_up(cache_path(), error)
            path = library_path(text, flags)
            _compile(text, path, flags)
    return path


def _levels(text: str) -> tuple[tuple[tuple[str, ...], float | None], ...]:
    """Attempts as (extra flags, timeout in seconds), tried in order; the last has no timeout."""
    lines = HUGE + 1 if HURRIED_NAME in text else text.count("\n")
    if lines <= LARGE:
        return (((), None),)
    return ((("-O1",), PATIENCE_S), (("-O0",), None)) if lines <= HUGE else ((("-O0",), None),)


def _compile(text: str, path: Path, flags: tuple[str, ...]) -> None:
    used, said, code = compiler(), "", None
    place = {**os.environ, "TMPDIR": str(path.parent)}  # what the compiler itself keeps for a while
    with temporary(path) as made:
        command: list[str] = []
        for level, patience in _levels(text):
            given = [*used.flags_for(text), *flags, *level]
            command = [*used.command, *given, "-x", "c", "-", "-o", str(made), *used.libraries(text, flags)]
            code, said = _run(command, text, place, patience)
            if code is not None:
                break
            _log("a kernel of %d lines is compiled without optimisation", text.count("\n"))
        if code:
            full = ("No space left", "Disk quota", "Read-only file system", "cannot open output")
            unwritten = any(word in said for word in full)
            raise OSError(said.strip()[-200:]) if unwritten else refused(text, shlex.join(command), said)
        if not made.exists():
            raise refused(text, shlex.join(command), f"it said that all is well, and wrote nothing. {said}")
        write_sealed(path, made.read_bytes())
        path.with_suffix(".lib").unlink(missing_ok=True)  # of a linker for Windows, beside what it links


def _run(command: list[str], text: str, place: dict[str, str], patience: float | None) -> tuple[int | None, str]:
    """The exit code and stderr of the compiler; (None, "") after a timeout.

    On a timeout or an exception its whole process group is ended, not the first process alone.
    """
    from subprocess import PIPE, Popen, TimeoutExpired

    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=place, start_new_session=True) as process:
        try:
            said = process.communicate(text.encode(), timeout=patience)[1]
        except BaseException as error:
            platform.end(process)
            if isinstance(error, TimeoutExpired):
                return None, ""
            raise
    return process.returncode, said.decode(errors="replace")

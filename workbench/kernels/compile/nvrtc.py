"""CUDA text -> machine code of a GPU by NVRTC, and its launch through CuPy's thin driver calls.

Compiling needs neither a GPU nor a driver: CuPy binds NVRTC, that of the `nvidia-cuda-nvrtc` wheel or of the system.
Cubins go into the same private, sealed cache as the machine's own code. Contraction of `a * b + c` is off, so that a
replay inside an adjoint repeats the forward bit by bit.
Nothing here imports CuPy before it is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ..emit.cuda import SUMMED
from ..emit.cuda_tiles import THREADS, shared_bytes
from . import cubin
from .compile_error import CompileError, refused
from .cubin import Resources
from .disk_cache import cache_directory, cache_path, digest, give_up, read_sealed, without_comments, write_sealed
from .platform import ctypes

OPTIONS = ("--fmad=false", "--disable-warnings")
BLOCK = 256
BUSY = 8  # blocks that fill a multiprocessor
USUAL = "sm_90"  # what to compile for where no GPU is


@lru_cache(None)
def nvrtc() -> Any:
    """NVRTC as CuPy binds it. Raises CompileError [no-nvrtc] without CuPy or NVRTC."""
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        for file in Path(root).glob("*/lib/libnvrtc.so.*"):  # of the wheel: CuPy finds what is loaded already
            with suppress(OSError):
                ctypes.CDLL(str(file))
    try:
        bound = importlib.import_module("cupy_backends.cuda.libs.nvrtc")
        bound.getVersion()
        return bound
    except (ImportError, OSError, RuntimeError):
        raise CompileError(
            "NVRTC was not found.\nWrite instead:   pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12\n[no-nvrtc]"
        ) from None


def available() -> bool:
    try:
        nvrtc()
    except CompileError:
        return False
    return True


def to_cubin(text: str, arch: str) -> bytes:
    """The machine code of `text` for a GPU as `sm_80` or `sm_90`, from the cache or compiled. Raises CompileError."""
    options = (f"--gpu-architecture={arch}", *OPTIONS)
    parts = [without_comments(text), repr(nvrtc().getVersion()), *options]
    path = cache_directory() / f"{digest(*parts)}.cubin"
    code = read_sealed(path)
    if code is None:
        code = _compile(text, options)
        try:
            write_sealed(path, code)
        except OSError as error:
            give_up(cache_path(), error)
    return code


def resources(text: str, arch: str) -> dict[str, Resources]:
    """Resource usage per thread of each kernel of `text`, on a GPU as `sm_80` or `sm_90`. Raises CompileError."""
    return cubin.resources(to_cubin(text, arch))


def _compile(text: str, options: tuple[str, ...]) -> bytes:
    library = nvrtc()
    program = library.createProgram(text, "kernel.cu", (), ())
    try:
        library.compileProgram(program, options)
        return library.getCUBIN(program)
    except (RuntimeError, ValueError) as e:
        raise refused(text, "NVRTC " + " ".join(options), library.getProgramLog(program) or str(e)) from None
    finally:
        library.destroyProgram(program)


# ---- on a machine with a GPU


@lru_cache(None)
def architecture(device: int) -> str:
    """The machine code that a device runs, as `sm_90`."""
    import cupy

    return f"sm_{cupy.cuda.Device(device).compute_capability}"


def current_architecture() -> str:
    """That of the current device; `USUAL` where there is none."""
    try:
        import cupy

        return architecture(cupy.cuda.runtime.getDevice())
    except (ImportError, OSError, RuntimeError):  # no CuPy, no driver, one too old
        return USUAL


class Loaded:
    """A kernel on the current device. `launch` returns at once: the work is queued on the stream."""

    def __init__(self, text: str, name: str):
        import cupy
        import cupy_backends.cuda.api.driver as driver

        self.device = cupy.cuda.runtime.getDevice()
        cupy.cuda.runtime.free(0)  # makes the device's context, which the driver calls below need
        self._launch, self._failure, self._runtime = driver.launchKernel, driver.CUDADriverError, cupy.cuda.runtime
        self.most_blocks = 2**31 - 1
        if SUMMED in text:
            self.most_blocks = BUSY * cupy.cuda.Device(self.device).attributes["MultiProcessorCount"]
        self.module = driver.moduleLoadData(to_cubin(text, architecture(self.device)))
        self.function = driver.moduleGetFunction(self.module, name)
        self.shared = shared_bytes(text)
        if self.shared is not None and self.shared > 48 << 10:
            self._share(self.shared)

    def _share(self, size: int) -> None:
        """Ask for more shared memory than a block has unasked. Raises CompileError [tile-memory]."""
        import cupy
        import cupy_backends.cuda.api.driver as driver

        most = cupy.cuda.Device(self.device).attributes["MaxSharedMemoryPerBlockOptin"]
        if size > most:
            raise CompileError(
                f"The tiles of a block take {size:,} bytes; this GPU has {most:,} for them.\n"
                "Write instead:   smaller tiles\n[tile-memory]"
            )
        driver.funcSetAttribute(self.function, 8, size)  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

    def launch(self, packed: bytes, cells: int, stream: int = 0, block: int = BLOCK, most_threads: int = 2**31) -> None:
        """Run the kernel over `cells` threads of the grid. `packed` is copied before this returns.

        `most_threads` bounds the threads that exist at once, each of which works on many cells then: the slices of
        `scratch` are scratch_bytes / (threads launched) each.
        """
        if cells <= 0:
            return
        if self.shared is not None:
            cells, block = cells * THREADS, THREADS
        blocks = max(1, min(-(-cells // block), most_threads // block, self.most_blocks))
        parameter = (ctypes.c_char_p * 1)(packed)
        shared = self.shared or 0
        given = self.function, blocks, 1, 1, block, 1, 1, shared, stream, ctypes.addressof(parameter), 0
        try:
            self._launch(*given)
        except self._failure:  # a thread that has not used the GPU before has no context
            self._runtime.setDevice(self.device)
            self._runtime.free(0)
            self._launch(*given)


def load(text: str, name: str) -> Loaded:
    """The kernel `name` of `text` on the current device, loaded at most once per process and device."""
    import cupy

    return _loaded(cupy.cuda.runtime.getDevice(), text, name)


@cache
def _loaded(device: int, text: str, name: str) -> Loaded:
    return Loaded(text, name)


class Fitting:
    """A kernel with arrays of vectors: where all of them begin at multiples of their words, whole words are moved.

    `text`: that of the kernel, given whether they do. `wide`: where in the packed arguments their addresses are, and
    of what each must be a multiple.
    """

    def __init__(self, text: Callable[[bool], str], name: str, wide: tuple[tuple[int, int], ...]):
        self.text, self.name, self.wide = text, name, wide
        self.made: dict[bool, Loaded] = {}

    def launch(self, packed: bytes, *args: int, **options: int) -> None:
        """As `Loaded.launch`."""
        aligned = all(int.from_bytes(packed[at : at + 8], sys.byteorder) % n == 0 for at, n in self.wide)
        if aligned not in self.made:
            self.made[aligned] = load(self.text(aligned), self.name)
        self.made[aligned].launch(packed, *args, **options)

"""The hand-written C contenders: `NAME.c` compiled for one scalar type and one set of flags, once per machine."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from workbench.kernels.compile import c_compiler

HERE = Path(__file__).parent
EXACT = "-O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp"  # what the workbench allows
FAST = "-O3 -march=native -ffast-math -fopenmp"
COMPILE = "-c -fPIC"
LEFT_OUT: list[str] = []  # what both C compilers, this one and the workbench's, are to do without, as `avx512f`
LINK = "-shared -pthread -fopenmp"  # without -ffast-math, or loading it makes the whole process flush subnormals
THREADS = 2

# libgomp's threads spin for milliseconds before they sleep: beside one busy neighbour that is hundreds of times slower.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")

POINTER, INT, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_ssize_t


@cache
def build(name: str, real: str, flags: str) -> ctypes.CDLL:
    """`name`.c with `real` ("float" or "double") as its scalar type; raises CalledProcessError where gcc refuses.

    It is tuned for the processor as generated C is.
    """
    source, tuned = HERE / f"{name}.c", c_compiler.compiler().flags
    options = [f"-DREAL={real}", *flags.split(), *tuned, *map("-mno-{}".format, LEFT_OUT), *COMPILE.split()]
    digest = hashlib.sha256(source.read_bytes() + " ".join([*options, LINK]).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / "workbench-benchmarks"
    folder.mkdir(exist_ok=True)
    target = folder / f"{name}-{digest}.so"
    if not target.exists():
        part = target.with_suffix(f".{os.getpid()}")
        compiled = target.with_suffix(f".{os.getpid()}.o")
        subprocess.run(["gcc", *options, "-o", str(compiled), str(source)], check=True)
        subprocess.run(["gcc", *LINK.split(), "-o", str(part), str(compiled), "-lm"], check=True)
        compiled.unlink()
        part.replace(target)  # whole or not at all, whoever else compiles it now
    return ctypes.CDLL(str(target))


def leave_out(features: list[str]) -> None:
    """From here on compile without these extensions of the processor. Before anything is compiled."""
    LEFT_OUT.extend(features)
    if features:
        os.environ["CC"] = " ".join(["gcc", *map("-mno-{}".format, features)])


def instruction_set() -> str:
    """The widest vector instructions that compiled code may use here."""
    found = Path("/proc/cpuinfo").read_text("utf-8").split()
    has = [name for name in ("avx512f", "avx2", "avx", "asimd") if name in found and name not in LEFT_OUT]
    left = f" (without {', '.join(LEFT_OUT)})" if LEFT_OUT else ""
    return (has[0] if has else platform.machine()) + left


def real_name(dtype: Any) -> str:
    """The C name of a NumPy dtype: for `build`."""
    return {"float32": "float", "float64": "double"}[np.dtype(dtype).name]


def real_type(dtype: Any) -> Any:
    """The ctypes scalar of a NumPy dtype: for `argtypes`."""
    return {"float32": ctypes.c_float, "float64": ctypes.c_double}[np.dtype(dtype).name]


def at(array: np.ndarray) -> int:
    """The address of an array, which the caller keeps alive; raises ValueError for one that is not contiguous."""
    if not array.flags.c_contiguous:
        raise ValueError("C reads contiguous arrays only")
    return array.ctypes.data

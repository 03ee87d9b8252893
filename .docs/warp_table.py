"""The table of Warp's names: each is in, in with a difference, or refused with the way out. Made from the code.

`warp_names.txt` lists the names of warp-lang 1.19.0; `tests/test_warp_table.py` compares it with the wheel.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import workbench
from workbench.kernels.reading.declare import Refused

HERE = Path(__file__).resolve().parent
HEAD = """Every name of Warp
==================

All names of NVIDIA Warp 1.19, of its kernel language and of its host. *in* means as in Warp; where something differs,
it is said. Everywhere: gradients are exact or refused, locals are values, races are refused, and nothing is printed.

"""
REFUSED: dict[str, str] = {}
_SOLVER = (
    "under a tape its adjoint is a solve (Warp's is zero); the residual is looked at in every turn; by default there is"
    " no absolute tolerance; batches are refused"
)
# What differs, where the docstring does not say it with Warp's name.
DIFFERENT = {
    "Tape": "gradients are exact, or refused; a leaf's accumulate, all others are replaced",
    "launch": "bounds of affine indices are checked; two threads that store to one element are refused",
    "array": "indices below zero count from the end; one memory has one gradient, through all of its names",
    "func_grad": "the adjoint replaces that of the whole call, memory effects included",
    "atomic_min": "its adjoint goes to the extremal contributors, shared at a tie",
    "atomic_max": "its adjoint goes to the extremal contributors, shared at a tie",
    "abs": "slope 0 at 0, where Warp takes 1",
    "frac": "slope 1, where Warp gives 0",
    "min": "NaN stays NaN; a tie counts for the first operand, or for the side to which the kernel keeps",
    "max": "NaN stays NaN; a tie counts for the first operand, or for the side to which the kernel keeps",
    "clamp": "NaN stays NaN; on a bound the derivative is by x",
    "mod": "its adjoint by the divisor is exact; `%` rounds down, as in Python",
    "atan2": "its derivative at (0, 0) is not finite",
    "smoothstep": "NaN where the edges are equal, 0 in Warp",
    "inverse": "not finite where the matrix is singular, zeros in Warp",
    "lshift": "the count is taken modulo the width, for small integers too",
    "rshift": "the count is taken modulo the width, for small integers too",
    "int32": "a float saturates and NaN becomes 0; in Warp it is undefined",
    "uint32": "a float saturates and NaN becomes 0; in Warp it is undefined",
    "length": "no derivative by zero times infinity: an adjoint of 0 stays 0",
    "normalize": "no derivative by zero times infinity: an adjoint of 0 stays 0",
    "sqrt": "no derivative by zero times infinity: an adjoint of 0 stays 0",
    "printf": "goes to the standard output of C, as in Warp; nothing else of the workbench prints",
    "Stream": "all streams of a device are one: work runs in the order in which it was launched",
    "ScopedStream": "all streams of a device are one: work runs in the order in which it was launched",
    "ScopedTimer": "says its time on the logger, not on stdout",
    "set_module_options": "noted; none changes what a kernel computes, and there is always an adjoint",
    "load_module": "compiles for the CPU what small grids run; on GPUs a kernel is compiled when first launched",
    "force_load": "as load_module",
    "clear_kernel_cache": "nothing to do: a changed text is compiled anew by itself",
    "capture_while": "refused inside a capture",
    "capture_if": "refused inside a capture",
    "copy": "under a tape an event with an adjoint, also between views",
    "sparse.bsr_from_triplets": "blocks of zeros stay under a tape, where they have a derivative",
    "sparse.bsr_set_from_triplets": "blocks of zeros stay under a tape, where they have a derivative",
    "sparse.bsr_compress": "blocks of zeros stay under a tape, where they have a derivative",
    "optim.linear.cg": _SOLVER,
    "optim.linear.cr": _SOLVER,
    "optim.linear.bicgstab": _SOLVER,
    "optim.linear.gmres": _SOLVER,
    "optim.linear.preconditioner": "the three kinds of block_jacobi are one; fsai is refused",
    "optim.linear.LinearOperator": "batches are refused, and functions that read what has a gradient, under a tape",
    "optim.Adam": "any float type; the count of steps lies in memory, so a capture repeats it rightly",
    "to_torch": "requires_grad is False unless it is given, not that of the array",
    "from_torch": "grad= and return_ctype= are refused: gradients are made by backward(), and go out through t.grad",
    "map": "return_kernel=True is refused",
    "autograd.jacobian": "exact for loops and atomics too; of all arrays of floats, marked or not",
    "autograd.gradcheck": "compares with differences in float64, launch by launch",
    "autograd.gradcheck_tape": "takes a Tape(keep='all')",
    "config.mode": "'debug' checks indices that depend on data",
    "config.verify_fp": "True is refused: tape.diagnose() finds the first NaN",
    "config.kernel_cache_dir": "the same as config.cache_dir",
    "config.deterministic": "True or False: one order of sums",
}


def look_up(name: str) -> Any:
    """What stands under a name here; None where it is unknown."""
    found: Any = workbench
    for part in name.split("."):
        if found is None:
            return None
        found = getattr(found, part, None) if not hasattr(found, part) else getattr(found, part)
    return found


def known(name: str) -> bool:
    if name in REFUSED:
        return True
    head, _, tail = name.rpartition(".")
    base = look_up(head) if head else workbench
    return base is not None and (isinstance(base, Refused) or hasattr(base, tail))


def difference(name: str) -> str:
    """The sentences about Warp in the docstring of a name, or what is said above."""
    if name in DIFFERENT:
        return DIFFERENT[name]
    if name.startswith("config."):
        from workbench.config import HARMLESS

        return "kept, and changes nothing" if name.removeprefix("config.") in HARMLESS else ""
    found = look_up(name)
    text = inspect.getdoc(found) or "" if callable(found) else ""
    prose = " ".join(text.partition(">>>")[0].split())
    said = [s for s in re.split(r"(?<=[.:;]) ", prose) if re.search(r"\b[Ww]arp\b", s) and "NVIDIA" not in s]
    return " ".join(said[:2])


def row(name: str) -> tuple[str, str, str]:
    found = look_up(name)
    if name in REFUSED:
        return name, "refused", REFUSED[name]
    if isinstance(found, Refused):
        return name, "refused", " ".join((found.__doc__ or "").split())
    said = difference(name)
    return name, "in, differs" if said else "in", said


def names() -> list[str]:
    return (HERE / "warp_names.txt").read_text("utf-8").split()


def page() -> str:
    """The page in reStructuredText."""
    rows = [row(name) for name in names()]
    counts = {state: sum(r[1] == state for r in rows) for state in ("in", "in, differs", "refused")}
    lines = [HEAD + f"{counts['in']} in, {counts['in, differs']} in with a difference, {counts['refused']} refused.\n"]
    lines += [".. list-table::", "   :header-rows: 1", "   :widths: 30 12 58", ""]
    lines += ["   * - name", "     - state", "     - what differs, or what to use"]
    for name, state, said in rows:
        plain = re.sub(r"([*_|\\`])", r"\\\1", said)
        lines += [f"   * - ``{name}``", f"     - {state}", f"     - {plain}".rstrip()]
    return "\n".join(lines) + "\n"


def write() -> None:
    """Put the page beside the others, where Sphinx reads it."""
    text, file = page(), HERE / "warp_names.rst"
    if not file.exists() or file.read_text("utf-8") != text:
        file.write_text(text, "utf-8")

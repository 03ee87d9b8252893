"""A cheap diagnosis of a long tape, without a walk: the final contents of its arrays and gradients."""

from __future__ import annotations

import numpy as np

from ..arrays.array import array
from ..arrays.workspace import gradient_dtype
from ..device import on_host
from ..kernels.types import Struct, is_float
from ..tapes.tape import Tape
from .finding import Finding, Findings

FIX = "tape.diagnose(), which walks through all of it"


def glance(tape: Tape) -> Findings:
    """Findings on non-finite arrays and gradients, and on leaves with all-zero gradients; `note`: what is left out.

    The gradients looked at are those that the last `backward` published. The caller holds the lock.
    """
    found = []
    for a in {x.allocation: x for x in tape.arrays.values() if _numbers(x)}.values():
        names = (tape.names.of(a),)
        if not np.isfinite(on_host(a.data)).all():
            found.append(_ends("not-finite", f"{names[0]} holds NaN or infinity in the end.", names))
        grad = a.allocation.grad if tape.last_seeds and a.allocation.asked else None
        numbers = np.zeros(1) if grad is None else on_host(grad.bytes).view(gradient_dtype(a))
        if not np.isfinite(numbers).all():
            found.append(_ends("adjoint-not-finite", f"the gradient of {names[0]} is not finite.", names))
        elif grad is not None and a.allocation not in tape.last_seeds and not numbers.any():
            found.append(_ends("died", f"the gradient of {names[0]} is zero everywhere.", names))
    note = f"Of {len(tape.events)} events only the ends were looked at: tape.diagnose() says where it begins."
    return Findings(found, len(tape.events), note)


def _ends(slug: str, sentence: str, names: tuple[str, ...]) -> Finding:
    return Finding(slug, "warning", "", None, sentence, FIX, names)


def _numbers(a: array) -> bool:
    return not isinstance(a.dtype, Struct) and is_float(a.dtype) and a.size > 0

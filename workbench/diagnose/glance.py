"""A quick diagnosis of a long tape: what its arrays and gradients hold in the end, and samples of the way there.

One walk samples the adjoints of every so many launches of each line, and the values kept there. Where they stop being
finite, or an adjoint ends, the launches between two samples are walked through once more as `diagnose` does.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from functools import partial

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.grouping import grouped
from ..arrays.workspace import Workspace, gradient_dtype
from ..device import on_host
from ..kernels.types import Scalar, Struct, is_float
from ..tapes.events import Event
from ..tapes.tape import Tape
from .finding import Finding, Findings
from .finite import not_finite
from .series import growing
from .walk_record import RuleInput, WalkRecord, last_seeds, norm_of, refused

SAMPLES, LOOKED = 1000, 1 << 31  # launches; bytes that are looked at in all of them
ILL = ("not-finite", "adjoint-not-finite")
FIX = "tape.diagnose(), which walks through all of it"


def glance(tape: Tape) -> Findings:
    """Findings on non-finite numbers, zero, exploding and vanishing gradients; `note`: what is left out.

    The gradients looked at are those that the last `backward` published. The caller holds the lock.
    """
    found, samples, reached = list[Finding](), 0, set[Allocation]()
    if tape.last_seeds and not any(event.kind.calls_back for event in tape.events):
        seen = _Samples(tape)
        found, samples = list(seen.findings()), len(seen.steps)
        reached = {x.span.allocation for step in seen.steps for x, n in step.came.items() if n}
        reached -= tape.last_seeds.keys()
    explained = any(f.slug in ILL for f in found)
    found += [f for f in _ends(tape, reached) if not (explained and f.slug in ILL)]
    well = "" if found else ": no problem found there"
    note = f"Of {len(tape.events)} events only the ends and {samples} launches between them were looked at{well}."
    return Findings(found, len(tape.events), f"{note} tape.diagnose() looks at all of them.")


def _ends(tape: Tape, reached: Container[Allocation]) -> Iterator[Finding]:
    """Findings on what is left in the end; a gradient is zero by mistake if an adjoint has `reached` the memory."""
    floats = (a for a in tape.arrays.values() if not isinstance(a.dtype, Struct) and is_float(a.dtype) and a.size)
    for a in {a.allocation: a for a in floats}.values():
        name = tape.names.of(a)
        if not np.isfinite(on_host(a.data)).all():
            yield _end("not-finite", f"{name} holds NaN or infinity in the end.", name)
        grad = a.allocation.grad if tape.last_seeds and a.allocation.asked else None
        numbers = np.zeros(1) if grad is None else on_host(grad.bytes).view(gradient_dtype(a))
        if not np.isfinite(numbers).all():
            yield _end("adjoint-not-finite", f"the gradient of {name} is not finite.", name)
        elif grad is not None and not numbers.any() and a.allocation in reached:
            yield _end("died", f"the gradient of {name} is zero everywhere.", name)


def _end(slug: str, sentence: str, name: str) -> Finding:
    return Finding(slug, "warning", "", None, sentence, FIX, (name,))


class _Samples(WalkRecord):
    """The record of some launches of each line: only of the adjoints that came, and whether kept values are finite."""

    def __init__(self, tape: Tape):
        lines = grouped([((e.label, e.line), n) for n, e in enumerate(tape.events) if e.command is not None])
        size = sum({x.allocation: x.allocation.nbytes for x in tape.arrays.values()}.values())
        every = max(len(tape.events) // max(min(SAMPLES, LOOKED // max(size, 1)), 1), 1)
        self.positions = sorted({n for places in lines.values() for n in (*places[::-every], places[0])})
        super().__init__(tape, last_seeds(tape), tape.within, chosen=self.positions, every=every)

    def before(self, event: Event, space: Workspace) -> None:
        if (step := self.of.get(event)) is not None:
            norms = {x: norm_of(space, x) for x in step.accesses}
            step.came = {x: n for x, n in norms.items() if x.writes}
            step.bad_before = math.inf in norms.values()
            types = ((k.span, self.tape.scalars.get(k.span.allocation)) for k in event.kept)
            kept = (on_host(span.view(scalar.numpy)) for span, scalar in types if isinstance(scalar, Scalar))
            step.not_finite = [] if all(np.isfinite(numbers).all() for numbers in kept) else ["kept"]

    def after(self, event: Event, space: Workspace) -> None:
        if (step := self.of.get(event)) is not None:
            step.bad_adjoints = [x.name for x in step.accesses if math.isinf(norm_of(space, x))]

    def findings(self) -> Iterator[Finding]:
        """Findings on where numbers stop being finite, and on adjoints that explode or vanish."""
        if self.error is not None:
            yield refused(self.error)
            return
        values = next((k for k, step in enumerate(self.steps) if step.not_finite), len(self.steps))
        bad = [k for k, step in enumerate(self.steps) if step.bad_before or step.bad_adjoints]
        adjoints = bad[-1] if bad else len(self.steps)
        if values < len(self.steps):
            yield from not_finite(self._walked(self._beside(values, -1), values), rerun=False)
        if adjoints < values:  # which would explain them
            yield from not_finite(self._walked(adjoints, self._beside(adjoints, 1)), rerun=False)
        yield from growing(RuleInput(self.tape, self, True, Workspace))

    def _beside(self, k: int, by: int) -> int:
        """The number of the next sample of the same line in a direction; of the first or last one if there is none."""
        event, ends = self.steps[k].event, range(k + by, len(self.steps) if by > 0 else -1, by)
        same = (n for n in ends if self.steps[n].event.line == event.line and self.steps[n].event.label == event.label)
        return next(same, len(self.steps) - 1 if by > 0 else 0)

    def _walked(self, first: int, last: int) -> RuleInput:
        """All launches from one sample to another, walked through as a whole."""
        end = self.positions[last] + 1 if last < len(self.steps) - 1 else len(self.tape.events)
        chosen = range(self.positions[first] if first else 0, end)
        trail = WalkRecord(self.tape, last_seeds(self.tape), self.tape.within, chosen=chosen)
        return RuleInput(self.tape, trail, True, partial(last_seeds, self.tape), self.tape.within)

"""That a system computes what the hand-written C computes: nothing is timed before this has been said."""

from __future__ import annotations

import numpy as np

from .workload import Data, System

TOLERANCE = {"float32": 1e-4, "float64": 1e-10}


def check(name: str, system: System, reference: System, tolerance: float) -> None:
    """Loss beside loss, each gradient beside its largest element; raises AssertionError naming the system."""
    off = abs(system.loss() - reference.loss()) / max(abs(reference.loss()), 1e-30)
    assert off <= tolerance, f"{name}: loss {system.loss()!r}, not {reference.loss()!r}"
    gradients, wanted = system.gradients(), reference.gradients()
    assert gradients.keys() == wanted.keys(), f"{name}: gradients of {sorted(gradients)}, not of {sorted(wanted)}"
    for leaf, expected in wanted.items():
        found = gradients[leaf]
        assert found.shape == expected.shape, f"{name}: gradient of {leaf} has shape {found.shape}"
        off = distance(found, expected)
        assert off <= tolerance, f"{name}: gradient of {leaf} is off by {off:.1e} of its largest element"


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference beside the largest element; NaN where anything is NaN."""
    expected = expected.astype(np.float64)
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))


def slope(system: System, along: Data) -> float:
    """The derivative in a direction that the system's gradients predict."""
    return sum(float((gradient * along[leaf]).sum()) for leaf, gradient in system.gradients().items())

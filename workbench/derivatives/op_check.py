"""The check of a custom op: its rules beside differences of its forward function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import allocation
from ..arrays.array import array, read_values
from ..errors import GradientError
from ..tapes.custom_op import CustomOp
from .report import GradcheckRow, Report, refuse_vacuous

STEP = 1e-4  # of a difference of order 4, by the size of the numbers
CLOSE = 1e-6  # what is left of its error, by the largest derivative


def check_op(op: CustomOp, args: Sequence[object], samples: int, raise_exception: bool) -> Report:
    """`check_rule` of a custom op at these arguments: `samples` elements of each float array, in float64."""
    if op.pull is None:
        raise TypeError(f"check_rule takes an op with a vjp: @{op.__name__}.vjp above its rule")
    rng, report = np.random.default_rng(0), Report()
    with allocation.LOCK, allocation.unrecorded():
        given: list[Any] = [np.array(read_values(a)) if isinstance(a, array) else a for a in args]
        given = [a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in given]
        arrays = [k for k, a in enumerate(given) if isinstance(a, np.ndarray)]
        results = _results(op.forward, given)
        seeds = [rng.uniform(0.5, 1.5, y.shape) if y.dtype.kind == "f" else None for y in results]
        rows = _listed(op.pull(*_copies(given), *_copies(results), *_copies(seeds)))
        for k, g in zip(arrays, rows, strict=True):
            x = given[k]
            if x.dtype.kind != "f":
                continue
            row = GradcheckRow(f"custom op {op.__name__}", None, f"argument {k}")
            pushed = GradcheckRow(f"custom op {op.__name__}", None, f"argument {k}, by the jvp")
            g = np.zeros(x.shape) if g is None else np.asarray(g, np.float64)
            for i in rng.permutation(x.size)[:samples]:
                index = tuple(map(int, np.unravel_index(i, x.shape)))
                expected = _difference(op.forward, given, k, index, seeds)
                bound = CLOSE * (1 + float(np.max(np.abs(g), initial=0)))
                row.add(float(g[index]), expected, not abs(g[index] - expected) <= bound, index)
                if op.push is not None:
                    tangents = [np.zeros(np.shape(given[j])) for j in arrays]
                    tangents[arrays.index(k)][index] = 1.0
                    found = _listed(op.push(*_copies(given), *_copies(results), *tangents))
                    value = sum(float(np.sum(u * t)) for u, t in zip(seeds, found, strict=True) if u is not None)
                    pushed.add(value, expected, not abs(value - expected) <= bound, index)
            report.rows += [row, *([pushed] if op.push is not None else [])]
    refuse_vacuous(report)
    if raise_exception and report.wrong:
        r = report.wrong[0]
        text = f"the rule of {op.__name__} is wrong for {r.input} at {r.worst}: {r.adjoint:.8g}, not {r.measured:.8g}."
        raise GradientError(text, slug="check-rule", why=str(report), instead="the derivative of what it returns")
    return report


def _difference(
    forward: Callable[..., Any], given: Sequence[Any], k: int, index: tuple[int, ...], seeds: Sequence[Any]
) -> float:
    """The derivative of the seeded sum of the results by one number."""
    h = STEP * max(1.0, abs(float(given[k][index])))
    total = 0.0
    for shift, weight in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
        moved = _copies(given)
        moved[k][index] += shift * h
        values = zip(seeds, _results(forward, moved), strict=True)
        total += weight * sum(float(np.sum(u * y)) for u, y in values if u is not None)
    return total / (12 * h)


def _results(forward: Callable[..., Any], given: Sequence[Any]) -> list[np.ndarray]:
    return [np.atleast_1d(y) for y in _listed(forward(*_copies(given)))]


def _listed(found: object) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def _copies(values: Sequence[Any]) -> list[Any]:
    return [v.copy() if isinstance(v, np.ndarray) else v for v in values]

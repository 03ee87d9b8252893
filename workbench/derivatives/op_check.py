"""The check of a custom op: its rules beside differences of its forward function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import allocation
from ..arrays.array import array, read_values
from ..errors import GradientError
from ..tapes.custom_op import CustomOp, listed
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
        results = _results(op, given)
        seeds = [rng.uniform(0.5, 1.5, y.shape) if y.dtype.kind == "f" else None for y in results]
        for k, g in zip(arrays, listed(op.pull(*_copies([*given, *results, *seeds]))), strict=True):
            if (x := given[k]).dtype.kind != "f":
                continue
            g = np.zeros(x.shape) if g is None else np.asarray(g, np.float64)
            label, bound = f"custom op {op.__name__}", CLOSE * (1 + float(np.max(np.abs(g), initial=0)))
            rows = [GradcheckRow(label, None, f"argument {k}"), GradcheckRow(label, None, f"argument {k}, by the jvp")]
            for i in rng.permutation(x.size)[:samples]:
                index = tuple(map(int, np.unravel_index(i, x.shape)))
                expected = _difference(op, given, k, index, seeds)
                rows[0].add(float(g[index]), expected, not abs(g[index] - expected) <= bound, index)
                if op.push is not None:
                    tangents = [np.zeros(np.shape(given[j])) for j in arrays]
                    tangents[arrays.index(k)][index] = 1.0
                    got = _seeded(seeds, listed(op.push(*_copies([*given, *results]), *tangents)))
                    rows[1].add(got, expected, not abs(got - expected) <= bound, index)
            report.rows += rows[: 1 if op.push is None else 2]
    refuse_vacuous(report)
    if raise_exception and report.wrong:
        r = report.wrong[0]
        text = f"the rule of {op.__name__} is wrong for {r.input} at {r.worst}: {r.adjoint:.8g}, not {r.measured:.8g}."
        raise GradientError(text, slug="check-rule", why=str(report), instead="the derivative of what it returns")
    return report


def _difference(op: CustomOp, given: Sequence[Any], k: int, index: tuple[int, ...], seeds: Sequence[Any]) -> float:
    """The derivative of the seeded sum of the results by one number."""
    h, total = STEP * max(1.0, abs(float(given[k][index]))), 0.0
    for shift, weight in ((1, 8.0), (-1, -8.0), (2, -1.0), (-2, 1.0)):
        moved = _copies(given)
        moved[k][index] += shift * h
        total += weight * _seeded(seeds, _results(op, moved))
    return total / (12 * h)


def _seeded(seeds: Sequence[Any], values: Sequence[Any]) -> float:
    return sum(float(np.sum(u * v)) for u, v in zip(seeds, values, strict=True) if u is not None and v is not None)


def _results(op: CustomOp, given: Sequence[Any]) -> list[np.ndarray]:
    return [np.atleast_1d(y) for y in listed(op.forward(*_copies(given)))]


def _copies(values: Sequence[Any]) -> list[Any]:
    return [v.copy() if isinstance(v, np.ndarray) else v for v in values]

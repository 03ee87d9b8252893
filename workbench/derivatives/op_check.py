"""The check of a custom op: its rules beside differences of its forward function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ..arrays import allocation
from ..arrays.array import array, read_values
from ..errors import GradientError
from ..kernels.passes.to_float64 import wide
from ..tapes.custom_op import CustomOp, listed
from .differences import RIGHT, WRONG, verdict
from .report import GradcheckRow, Report, refuse_vacuous

STEP, CLOSE = 1e-5, 1e-6  # as of `gradcheck`: the first step, relative to a number; the error of a right derivative


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
        wider = [wide(a.dtype) if isinstance(a, array) else None for a in args]
        push = op.push_rule([*wider, *[None] * len(results), *[wider[k] for k in arrays]])
        noise = 8e-15 * _seeded([None if u is None else np.abs(u) for u in seeds], [np.abs(y) for y in results])
        for k, g in zip(arrays, listed(op.pull(*_copies([*given, *results, *seeds]))), strict=True):
            if (x := given[k]).dtype.kind != "f":
                continue
            g = np.zeros(x.shape) if g is None else np.asarray(g, np.float64)
            label = f"custom op {op.__name__}"
            rows = [GradcheckRow(label, None, f"argument {k}"), GradcheckRow(label, None, f"argument {k}, by the jvp")]
            for i in rng.permutation(x.size)[:samples]:
                index = tuple(map(int, np.unravel_index(i, x.shape)))

                @cache  # both rules ask for the same
                def change(by: float, k: int = k, index: tuple[int, ...] = index) -> float:
                    values = _copies(given)
                    values[k][index] += by
                    return _seeded(seeds, [now - y for now, y in zip(_results(op, values), results, strict=True)])

                step = STEP * max(1.0, abs(float(x[index])))
                _compare(rows[0], float(g[index]), index, change, step, noise)
                if push is not None:
                    tangents = [np.zeros(np.shape(given[j])) for j in arrays]
                    tangents[arrays.index(k)][index] = 1.0
                    got = _seeded(seeds, listed(push(*_copies([*given, *results]), *tangents)))
                    _compare(rows[1], got, index, change, step, noise)
            report.rows += rows[: 1 if push is None else 2]
    refuse_vacuous(report)
    if raise_exception and report.wrong:
        r = report.wrong[0]
        text = f"the rule of {op.__name__} is wrong for {r.input} at {r.worst}: {r.adjoint:.8g}, not {r.measured:.8g}."
        raise GradientError(text, slug="check-rule", why=str(report), instead="the derivative of what it returns")
    return report


def _compare(
    row: GradcheckRow, got: float, index: tuple[int, ...], change: Callable[[float], float], step: float, noise: float
) -> None:
    """Enter in a row what differences say of a derivative."""
    said, slope, _ = verdict(change, got, step, noise, CLOSE)
    if said in (RIGHT, WRONG):
        row.add(got, slope, said == WRONG, index)
    else:
        row.skipped += 1


def _seeded(seeds: Sequence[Any], values: Sequence[Any]) -> float:
    return sum(float(np.sum(u * v)) for u, v in zip(seeds, values, strict=True) if u is not None and v is not None)


def _results(op: CustomOp, given: Sequence[Any]) -> list[np.ndarray]:
    return [np.atleast_1d(y) for y in listed(op.forward(*_copies(given)))]


def _copies(values: Sequence[Any]) -> list[Any]:
    return [v.copy() if isinstance(v, np.ndarray) else v for v in values]

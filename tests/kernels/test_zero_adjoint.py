"""Every rule of the table passes an adjoint or a tangent of exactly 0 as 0, at infinite and NaN operands too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_ops import COMPOSITES, FLAT, drawn, floats, label, result_type, rule_keywords, value

from workbench.kernels import types as T
from workbench.kernels.ops import ROWS
from workbench.kernels.row import host

EXTREME = [math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324, 0.0, 1.5]


def extremes(c, seed: int) -> list:
    """Arguments of a case, some of whose components are infinite, NaN, huge or tiny."""
    random = np.random.default_rng(seed)
    args = []
    for a in drawn(c, seed):
        flat = np.array(a)
        if flat.dtype.kind == "f":
            flat = np.where(random.random(flat.shape) < 0.6, random.choice(EXTREME, flat.shape), flat)
        args.append(host(a.type, flat) if isinstance(a, T.Small) else flat.dtype.type(flat))
    return args


def passed_zeros(c, seed: int) -> list:
    """What a row makes of an adjoint and of a tangent of exactly 0, at extreme operands."""
    args, keywords, row = extremes(c, seed), rule_keywords(c), ROWS[c[0]]
    with np.errstate(all="ignore"):
        y = value(c, args)
        grads = row.adjoint(host(result_type(c), np.zeros(np.shape(y))), y, *args, **keywords)
        found = [g for i, g in enumerate(grads) if i in floats(args) and g is not None]
        for i in floats(args):
            ts = [
                host(T.scalar_of(a.dtype) if not np.ndim(a) else a.type, np.zeros(np.shape(a))) if k == i else None
                for k, a in enumerate(args)
            ]
            t = row.tangent(ts, y, *args, **keywords)
            found += [] if t is None else [t]
    return found


@pytest.mark.parametrize("c", FLAT, ids=label)
def test_an_adjoint_of_exactly_zero_passes_every_row_as_zero(c):
    for seed in range(12):
        for part in passed_zeros(c, seed):
            np.testing.assert_array_equal(np.asarray(part), 0, err_msg=f"{c[0]} at {extremes(c, seed)}")


APART = "matvec matmul cross outer scale unscale mul div lerp times".split()


@pytest.mark.parametrize("c", [c for c in FLAT if c[0] in APART and result_type(c) in COMPOSITES], ids=label)
def test_components_of_an_adjoint_that_are_zero_count_for_nothing(c):
    """Row 0 of m v has nothing to do with row 1: an infinity in it is nothing to an adjoint of row 1 alone."""
    args, row = drawn(c, 1), ROWS[c[0]]
    y, keywords = value(c, args), rule_keywords(c)
    g = np.zeros(np.shape(y))
    g.reshape(-1)[-1] = 1.0
    plain = row.adjoint(host(result_type(c), g), y, *args, **keywords)
    for i in floats(args):
        for k in range(np.size(args[i])):
            bad = [*args[:i], spoiled(args[i], k), *args[i + 1 :]]
            with np.errstate(all="ignore"):
                z = value(c, bad)
                made = row.adjoint(host(result_type(c), g), z, *bad, **keywords)
            if np.ravel(z)[-1] == np.ravel(y)[-1]:  # the component that counts does not depend on it
                for a, b in zip(plain, made, strict=True):
                    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def spoiled(arg, component: int):
    flat = np.array(arg, np.float64)
    flat.reshape(-1)[component] = math.inf
    return host(T.float64 if flat.ndim == 0 else arg.type, flat)

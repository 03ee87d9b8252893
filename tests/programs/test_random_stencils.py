"""Random kernels of many threads (`fuzz/stencils.py`): gradients as by differences, on every backend, or refused."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import workbench as wb
from tests.fuzz import stencils
from workbench.kernels.compile.c_compiler import available

pytestmark = pytest.mark.filterwarnings("ignore:this gradient is zero:UserWarning")
PROGRAMS = range(80)


def outcome(seed: int, backend: str, monkeypatch) -> str | tuple:
    """The slug of a refusal, or gradients and final contents."""
    wb.config.backend, wb.config.threads = backend, 4
    wb.config.check_bounds = seed % 3 == 0
    for limit in ("PARALLEL_FROM", "PULL_FROM"):
        monkeypatch.setattr(f"workbench.launches.thresholds.{limit}", 1)  # so few threads go to workers too
    monkeypatch.setattr("workbench.launches.executable.WORTH", 1e9 if seed % 2 else 0)
    try:
        return stencils.make(seed).gradient()
    except (wb.GradientError, wb.LaunchError) as error:
        return error.slug


@pytest.mark.slow
def test_neighbours_guards_and_partial_overwrites_are_exact_or_refused(monkeypatch):
    counts: collections.Counter[str] = collections.Counter()
    for seed in PROGRAMS:
        program = stencils.make(seed)
        say = f"program {seed}: {program}\n{program.source}"
        found = outcome(seed, "numpy", monkeypatch)
        if available() and found != "bounds":
            compiled = outcome(seed, "c", monkeypatch)
            assert isinstance(found, str) == isinstance(compiled, str), say
            if isinstance(found, str):
                assert found == compiled, say
            else:
                for mine, theirs in zip(found, compiled, strict=True):
                    for name in mine:
                        np.testing.assert_allclose(theirs[name], mine[name], rtol=1e-9, atol=1e-9, err_msg=say)
        if isinstance(found, str):
            assert found in ("bounds", "overwritten") and (program.later or found == "bounds"), say
            counts[found] += 1
            continue
        grads, final = found
        if max(float(np.abs(data).max()) for data in final.values()) > 1e3:
            continue
        near, far = program.slope(5e-4), program.slope(1e-3)
        got = sum(float((grads[name] * way).sum()) for name, way in program.numbers(2).items())
        scale = max(1.0, abs(near), max(float(np.abs(g).max()) for g in grads.values()))
        if abs(near - far) <= 1e-4 * scale:
            assert abs(got - near) <= 1e-6 * scale + abs(near - far), f"{got} {near} {far} {say}"
            counts["exact"] += 1
    assert counts["exact"] > 0.7 * len(PROGRAMS) and counts["overwritten"] > 5, counts


def test_the_oracle_notices_a_gradient_that_is_wrong_by_a_thousandth():
    wb.config.backend = "numpy"
    program = stencils.make(next(seed for seed in PROGRAMS if stencils.make(seed).later is None and seed % 3))
    grads, _ = program.gradient()
    got = sum(float((grads[name] * way).sum()) for name, way in program.numbers(2).items())
    near = program.slope(5e-4)
    assert abs(got - near) < 1e-6 * abs(near) < abs(1.001 * got - near)

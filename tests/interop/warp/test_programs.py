"""The collection of Warp programs is sound: each verdict is what Warp's gradient and differences in float64 say."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.interop.warp import programs
from tests.interop.warp.declare import Program, programs_of
from tests.interop.warp.in_float64 import widened

pytestmark = [pytest.mark.needs_warp, pytest.mark.filterwarnings("ignore:Running the tape backwards:UserWarning")]
FAMILIES = sorted(m.name for m in pkgutil.iter_modules(programs.__path__))
STEP = 1e-5


@pytest.fixture(scope="module")
def quiet_warp() -> Any:
    warp = pytest.importorskip("warp")
    warp.config.quiet = True
    warp.init()
    return warp


def number(value: Any) -> float:
    """What a program differentiates, as a float64: an array, or a list of (array, seed) whose products are summed."""
    if isinstance(value, list):
        return sum(float(np.sum(a.numpy().astype(np.float64) * np.asarray(s))) for a, s in value)
    return float(value.numpy().astype(np.float64).sum())


def differences(program: Program) -> dict[str, np.ndarray]:
    """Central differences of the program's number by each of its inputs."""
    found = {}
    for name, start in program.given.items():
        base = np.array(start, np.float64)
        found[name] = np.zeros_like(base)
        for at in np.ndindex(base.shape):
            ends = []
            for sign in (1, -1):
                moved = {n: np.array(v, np.float64) for n, v in program.given.items()}
                moved[name][at] += sign * STEP
                ends.append(number(program.run(**moved).value))
            found[name][at] = (ends[0] - ends[1]) / (2 * STEP)
    return found


def measured(module: ModuleType, doubled: ModuleType, name: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Rows of (input, Warp's gradient, exact gradient)."""
    program = programs_of(module)[name]
    outcome = program.run(**{n: np.array(v, np.float32) for n, v in program.given.items()})
    if program.exact is not None:
        truth = {n: np.array(v, np.float64) for n, v in program.exact.items()}
    else:
        truth = differences(programs_of(doubled)[name])
    assert set(outcome.arrays) == set(program.given)
    return [(n, a.grad.numpy().astype(np.float64), truth[n]) for n, a in outcome.arrays.items()]


def distance(found: np.ndarray, truth: np.ndarray) -> float:
    """The largest difference, relative to the size of the gradient; infinite where one is NaN."""
    away = np.where(np.isnan(found), np.inf, np.abs(found - truth))
    return float(away.max() / max(np.abs(truth).max(), 1e-30))


@pytest.mark.parametrize("family", FAMILIES)
def test_programs_truth(family: str, tmp_path: Path, quiet_warp: Any) -> None:
    module = importlib.import_module(f"{programs.__name__}.{family}")
    doubled = widened(module, tmp_path)
    wrong_verdicts = []
    for name, program in programs_of(module).items():
        for array, found, truth in measured(module, doubled, name):
            assert np.abs(truth).max() > 0, (name, array)
            is_wrong = array in program.wrong
            away = distance(found, truth)
            if not (away > 0.02 if is_wrong else away < 1e-5):
                wrong_verdicts.append((name, array, away, found.tolist(), truth.tolist()))
    assert not wrong_verdicts


def test_half_of_the_programs_are_right_in_warp(quiet_warp: Any) -> None:
    every = [p for f in FAMILIES for p in programs_of(importlib.import_module(f"{programs.__name__}.{f}")).values()]
    assert len(every) >= 40
    assert 0.4 <= np.mean([p.verdict == "agrees" for p in every]) <= 0.6, len(every)
    assert all(p.why for p in every) and len({p.name for p in every}) == len(every)

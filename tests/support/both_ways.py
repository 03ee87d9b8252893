"""Both ways in which the interpreter runs threads, held against each other: together and one after the other."""

from __future__ import annotations

import numpy as np

import workbench as wb
from workbench.kernels.interpreter import lanes
from workbench.kernels.interpreter.run import run


class Both:
    """Runs every launch of the interpreter in both ways and compares; counts how the threads ran."""

    def __init__(self) -> None:
        self.together = self.undone = self.alone = 0
        self.as_built = lanes.LaneProgram.run

    def __call__(self, launch: lanes.LaneProgram, args: list) -> set:
        if launch.apart:
            self.alone += 1
            return self.as_built(launch, args)
        arrays = [a for a in args if isinstance(a, np.ndarray)]
        before = [a.copy() for a in arrays]
        noted: list[set] = []
        error = raised(lambda: noted.append(self.as_built(launch, args)))
        got = [a.copy() for a in arrays]
        for a, start in zip(arrays, before, strict=True):
            a[...] = start
        other = raised(lambda: noted.append(run(launch.function, launch.dims, args)))
        assert noted[1:] == noted[:-1]
        assert (type(error), str(error)) == (type(other), str(other))
        for a, found in zip(arrays, got, strict=True):
            assert same(a, found), launch.function.name
        self.undone += launch.apart or error is not None
        self.together += not launch.apart and error is None
        if error is not None:
            raise error
        return noted[0]


def raised(call) -> Exception | None:
    try:
        call()
    except (wb.LaunchError, wb.GradientError) as error:
        return error
    return None


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """The same bits; the sign and the payload of a NaN mean nothing."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.array_equal(a, b, equal_nan=True) and not ((np.signbit(a) != np.signbit(b)) & ~np.isnan(a)).any()


def hold(monkeypatch) -> Both:
    """Have every launch of the interpreter run in both ways, in this test."""
    counted = Both()
    monkeypatch.setattr(lanes.LaneProgram, "run", lambda launch, args: counted(launch, args))
    monkeypatch.setattr(lanes, "FEW", 0)
    return counted

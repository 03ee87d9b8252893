"""Random programs over tiles: C and the interpreter agree, and tangent and adjoint are each other's transposes."""

from __future__ import annotations

import importlib.util
import os
import sys

import numpy as np
import pytest

import workbench as wb
from tests.support.tile_programs import Writer

COUNT = int(os.environ.get("WORKBENCH_TILE_PROGRAMS", "3"))
pytestmark = pytest.mark.needs_cc


def made(seed: int, folder) -> wb.Kernel:
    name = f"tile_program_{seed}"
    path = folder / f"{name}.py"
    path.write_text(Writer(seed).text())
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.program


def results(kernel: wb.Kernel, backend: str, values, seed, direction, transposed: bool) -> list[np.ndarray]:
    wb.config.backend = backend
    x, y = wb.array(values, dtype=wb.float64, requires_grad=True), wb.zeros((6, 5), dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch_tiled(kernel, dim=2, inputs=[x], outputs=[y])
    moved = wb.jvp(tape, {x: direction})[y] if transposed else None
    tape.backward(grads={y: wb.array(seed, dtype=wb.float64)})
    if moved is not None and np.isfinite(moved).all() and np.abs(moved).max() < 1e6:
        assert (moved * seed).sum() == pytest.approx((x.grad.numpy() * direction).sum(), rel=1e-7, abs=1e-9)
    return [y.numpy().copy(), x.grad.numpy().copy()]


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_program_over_tiles(seed: int, tmp_path):
    kernel = made(seed, tmp_path)
    rng = np.random.default_rng(seed)
    values, weights, direction = (rng.uniform(-1, 1, shape) for shape in ((6, 6), (6, 5), (6, 6)))
    want = results(kernel, "numpy", values, weights, direction, False)
    got = results(kernel, "c", values, weights, direction, True)
    for a, b in zip(want, got, strict=True):
        if np.abs(a).max() < 1e8:
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)

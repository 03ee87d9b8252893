"""Random programs over tiles that several names show: numbers and gradients are those of a twin over NumPy's views."""

from __future__ import annotations

import importlib.util
import os
import sys

import numpy as np
import pytest

import workbench as wb
from tests.support.tile_sharing_programs import Writer

COUNT = int(os.environ.get("WORKBENCH_TILE_PROGRAMS", "3"))
FIRST = int(os.environ.get("WORKBENCH_TILE_PROGRAMS_FROM", "0"))
pytestmark = pytest.mark.needs_cc


def made(seed: int, folder) -> tuple[wb.Kernel, object]:
    text, twin = Writer(seed).text()
    path = folder / f"tile_sharing_{seed}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    scope = {"np": np}
    exec(twin, scope)
    return module.program, scope["twin"]


def results(kernel: wb.Kernel, backend: str, values, weights) -> tuple[np.ndarray, np.ndarray]:
    wb.config.backend = backend
    x, y = wb.array(values, dtype=wb.float64, requires_grad=True), wb.zeros((6, 8), dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch_tiled(kernel, dim=1, inputs=[x, 2], outputs=[y], block_dim=32)
    tape.backward(grads={y: wb.array(weights, dtype=wb.float64)})
    return y.numpy().copy(), x.grad.numpy().copy()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_random_program_over_shared_tiles(seed: int, tmp_path):
    kernel, twin = made(seed, tmp_path)
    rng = np.random.default_rng(seed)
    values, weights, direction = (rng.uniform(-1, 1, shape) for shape in ((6, 3), (6, 8), (6, 3)))
    try:
        kernel.program()
    except wb.KernelError as error:
        assert error.slug == "tile-alias", error  # what only a run would tell
        return
    want = twin(values, 2)
    if not np.abs(want).max() < 1e4:
        return
    slope = ((twin(values + 1e-6 * direction, 2) - twin(values - 1e-6 * direction, 2)) * weights).sum() / 2e-6
    for backend in ("numpy", "c"):
        found, gradient = results(kernel, backend, values, weights)
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-5, abs=1e-5)

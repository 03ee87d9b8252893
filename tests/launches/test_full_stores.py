"""What a launch is said to store to is what it stores to: for kernels with loops, tiles and ends of arrays."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.analysis.launch_form import LaunchForm
from workbench.launches.plan import stored_boxes


@wb.kernel
def blocks(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(4):
        y[i * 4 + k] = x[k]


@wb.kernel
def guarded(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if i < y.shape[0]:
        y[i] = x[0]


@wb.kernel
def tiles(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    wb.tile_store(y, wb.tile_load(x, shape=4), offset=i * 4)


@wb.kernel
def tiles_apart(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    wb.tile_store(y, wb.tile_load(x, shape=3), offset=i * 4)


@wb.kernel
def every_other(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(0, 4, 2):
        y[i * 4 + k] = x[k]


@wb.kernel
def triangle(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(i):
        y[i * 4 + k] = x[k]


@wb.kernel
def until(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(4):
        if x[k] > 0.5:
            break
        y[i * 4 + k] = x[k]


@wb.kernel
def from_one(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(4):
        if k > 0:
            y[i * 4 + k] = x[k]


@wb.kernel
def some(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(4):
        if i + k < 5:
            y[i * 4 + k] = x[k]


@wb.kernel
def backward(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(3, -1, -1):
        y[11 - i * 4 - k] = x[k]


@wb.kernel
def inside(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if i > 0 and i < 3:
        y[i] = x[0]


@wb.kernel
def behind(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(4):
        if i * 4 + k > 4:
            y[i * 4 + k] = x[k]


WHOLE = {"blocks": 12, "guarded": 3, "tiles": 12, "backward": 12, "inside": 2, "behind": 7}
KERNELS = (blocks, guarded, tiles, tiles_apart, every_other, triangle, until, from_one, some, backward, inside, behind)


@pytest.mark.parametrize("size", [12, 10])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.key)
def test_every_element_that_is_said_to_be_stored_is(kernel, size):
    if size == 10 and kernel not in (tiles, tiles_apart, guarded):
        pytest.skip("it ends where the array does")
    wb.config.backend = "numpy"
    x, y = wb.array(np.linspace(0, 1, 12), dtype=float), wb.full(size, -7.0, dtype=float)
    wb.launch(kernel, dim=3, inputs=[x, y])
    stored = y.numpy() != -7.0
    form = LaunchForm((3,), {}, {"x": (12,), "y": (size,)}, "numpy")
    boxes = [box for name, box in stored_boxes(kernel.program().function, form) if name == "y"]
    for box in boxes:
        assert stored[slice(*box[0]) if box is not None else slice(None)].all()
    claimed = max((size if box is None else box[0][1] - box[0][0] for box in boxes), default=0)
    assert claimed == min(WHOLE.get(kernel.key, 0), size)


@pytest.mark.parametrize("kernel", [blocks, guarded, tiles], ids=lambda k: k.key)
def test_what_is_stored_everywhere_is_replayed_without_its_old_contents(kernel):
    wb.config.backend = "numpy"
    x, y = wb.array(np.arange(12.0), dtype=float, requires_grad=True), wb.zeros(12, dtype=float)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=12 if kernel is guarded else 3, inputs=[x, y])
    assert tape.replay({x: np.arange(12.0) + 1.0})

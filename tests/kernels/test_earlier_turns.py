"""A name that one turn of a loop assigns, and a later turn reads."""

import numpy as np
import pytest

import workbench as wb


@wb.struct
class Pair:
    square: float
    at: wb.vec2


@wb.kernel
def runs(ids: wb.array[int], x: wb.array[float], y: wb.array[float]):
    before = wb.int32(-1)
    for j in range(ids.shape[0]):
        if ids[j] != before:
            before = ids[j]
            v = x[before] * x[before]
            first = j
        y[j] = v * float(j - first + 1)


@wb.kernel
def counted(ids: wb.array[int], x: wb.array[float], y: wb.array[float]):
    """With `while`, `continue` and `break`, a struct and a name that is read after the loop."""
    j = wb.int32(0)
    while j < 6:
        j += 1
        if j == 2:
            p = Pair(x[0] * x[1], wb.vec2(x[1], x[2]))
        if j < 3:
            continue
        y[j - 1] = p.square * float(j) + p.at[0] * p.at[1] * x[2]
        if j == 5:
            break
        if ids[j] > 1:
            p.square = p.square * x[2]
    y[0] = p.square * p.at[0]


@wb.kernel
def nested(ids: wb.array[int], x: wb.array[float], y: wb.array[float]):
    """The outer loop hands on what the inner one reads; the inner one has such a name of its own."""
    for i in range(3):
        if i == 0:
            scale = x[0]
        for j in range(2):
            if j == 0:
                w = x[i] * scale
            y[2 * i + j] = w * w * scale
        if i == 1:
            scale = scale * x[1]


@wb.kernel
def tiled(ids: wb.array[int], x: wb.array[float], y: wb.array[float]):
    before = wb.int32(-1)
    for j in range(6):
        if ids[j] != before:
            before = ids[j]
            part = wb.tile_load(x, shape=2, offset=ids[j]) * 2.0
            if before == 1:
                more = part * part
        total = part
        if before > 0:
            total = total + more
        y[j] = wb.tile_sum(total)[0] * float(j)


IDS = np.array([0, 0, 1, 1, 1, 2], np.int32)
X = np.array([1.5, -0.7, 2.1, 0.4])
SEED = np.array([1.0, -2.0, 0.5, 3.0, -1.0, 0.25])


def _runs(x):
    first = [0, 0, 2, 2, 2, 5]
    return np.array([x[i] ** 2 * (j - first[j] + 1) for j, i in enumerate(IDS)])


def _counted(x):
    square, at = x[0] * x[1], x[1] * x[2]
    y = np.zeros(6)
    for j in range(3, 6):
        y[j - 1] = square * j + at * x[2]
        if j < 5 and IDS[j] > 1:
            square = square * x[2]
    y[0] = square * x[1]
    return y


def _nested(x):
    y = np.zeros(6)
    scale = x[0]
    for i in range(3):
        y[2 * i : 2 * i + 2] = (x[i] * scale) ** 2 * scale
        if i == 1:
            scale = scale * x[1]
    return y


def _tiled(x):
    y = np.zeros(6)
    more = (2 * x[1:3]) ** 2
    for j, i in enumerate(IDS):
        y[j] = j * (2 * x[i : i + 2] + (more if i > 0 else 0)).sum()
    return y


@pytest.mark.parametrize(
    ("kernel", "meant"),
    [(runs, _runs), (counted, _counted), (nested, _nested), (tiled, _tiled)],
    ids=lambda k: getattr(k, "key", ""),
)
def test_a_later_turn_reads_it_and_its_gradient_is_exact(kernel, meant, backend):
    x = wb.array(X, dtype=wb.float32, requires_grad=True)
    ids, y = wb.array(IDS), wb.zeros(6, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=1, inputs=[ids, x, y])
    np.testing.assert_allclose(y.numpy(), meant(X), rtol=1e-5)
    tape.backward(grads={y: wb.array(SEED, dtype=wb.float32)})
    steps = 1e-6 * np.eye(4)
    exact = [SEED @ (meant(X + h) - meant(X - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(x.grad.numpy(), exact, rtol=2e-5, atol=1e-4)


def test_where_no_turn_before_has_assigned_it_the_launch_says_so(backend):
    @wb.kernel
    def late(ids: wb.array[int], y: wb.array[float]):
        for j in range(6):
            if ids[j] == 1:
                v = float(j)
            y[j] = v

    with pytest.raises(wb.LaunchError, match="`v` has no value here") as e:
        wb.launch(late, dim=1, inputs=[wb.array(IDS), wb.zeros(6)])
    assert "y[j] = v" in str(e.value)
    wb.launch(late, dim=1, inputs=[wb.array(IDS[::-1].copy() * 0 + 1), wb.zeros(6)])


def test_it_keeps_its_type_from_turn_to_turn():
    @wb.kernel
    def changed(ids: wb.array[int], y: wb.array[float]):
        for j in range(6):
            if ids[j] == 1:
                v = y[j]
            y[j] = v + 1.0
            v = j

    with pytest.raises(wb.KernelError, match="changes type inside the loop"):
        changed.program()

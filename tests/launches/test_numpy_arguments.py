"""NumPy arrays passed straight to a launch: shared where they are what the parameter takes, refused else."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS


@wb.kernel
def saxpy(x: wb.array[float], y: wb.array[float], a: float):
    i = wb.tid()
    y[i] = a * x[i] + y[i]


@wb.kernel
def lengths(p: wb.array2d[wb.vec3], out: wb.array2d[float]):
    i, j = wb.tid()
    out[i, j] = wb.length(p[i, j])


def test_a_launch_writes_into_the_array_of_numpy():
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    for _ in range(2):
        wb.launch(saxpy, 4, [x, y, 2.0])
    np.testing.assert_array_equal(y, 1 + 4 * x)


def test_components_are_the_last_axes_and_strides_are_kept():
    p, out = np.ones((2, 6, 3), np.float32)[:, ::2], np.zeros((2, 3), np.float32)
    p[1, 2] = 2.0
    wb.launch(lengths, (2, 3), [p, out])
    np.testing.assert_allclose(out, np.linalg.norm(p, axis=-1), rtol=1e-6)


def test_its_change_behind_the_tape_is_found():
    x, y = np.array([1.0, 2.0], np.float32), wb.zeros(2, requires_grad=True)
    k = wb.array([3.0, 3.0], requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(scaled, 2, [x, k, y])
    tape.backward(grads={y: wb.ones(2)})
    assert k.grad.numpy().tolist() == [1.0, 2.0]
    with wb.Tape() as tape:
        wb.launch(scaled, 2, [x, k, y])
    x[0] = 7.0
    with pytest.raises(wb.GradientError, match=r"\[overwritten\]"):
        tape.backward(grads={y: wb.ones(2)})


@wb.kernel
def scaled(x: wb.array[float], k: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = k[i] * x[i]


@pytest.mark.parametrize("x", [np.zeros(3), np.zeros((3, 1), np.float32), np.broadcast_to(np.float32(1), (3,))])
def test_what_would_be_a_copy_is_refused(x):
    with pytest.raises(wb.LaunchError, match=r"wb\.from_numpy|axes"):
        wb.launch(saxpy, 3, [x, np.zeros(3, np.float32), 1.0])


def kernel_taking(type: object) -> wb.Kernel:
    @wb.kernel
    def taking(a: type, y: wb.array[wb.float64]):  # type: ignore[valid-type]
        y[0] = wb.float64(a)

    return taking


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("type", "held", "beyond"),
    [
        (wb.float16, (65504, -65504, np.float64(65504.0), np.float32(-65504.0), np.float64(np.inf)), (65505, -65505)),
        (wb.float16, (True, 2048), (70000, 65520.0, np.float64(7e4), np.float32(-7e4), 2**20, 10**39)),
        (wb.float32, (65505, 2**20, np.float64(1e38), -np.inf), (1e39, np.float64(1e39), np.float64(-1e300), 10**39)),
    ],
)
def test_a_number_that_would_become_infinite_is_refused(type, held, beyond, again, backend):
    wb.config.backend = backend
    kernel, y = kernel_taking(type), wb.zeros(1, dtype=wb.float64)
    for a in held:
        wb.launch(kernel, 1, [a, y])
        assert y.item() == float(type.numpy.type(a))
    for a in beyond:
        kernel = kernel if again else kernel_taking(type)
        with pytest.raises(wb.LaunchError, match=f"'a': takes {type}, got"):
            wb.launch(kernel, 1, [a, y])

"""An adjoint or a tangent of exactly 0 is 0 behind every operation, also where its derivative is infinite."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

N = 37  # no multiple of the numbers in a vector register
F = wb.float32


@wb.kernel
def scalars(x: wb.array(dtype=F), y: wb.array2d(dtype=F)):
    """The side not taken is infinite, NaN or has an infinite slope at 113 and at 200."""
    i = wb.tid()
    z = x[i]
    far = z > 20.0
    big = wb.exp(z)
    y[i, 0] = wb.where(far, z, wb.log(1.0 + wb.exp(z)))
    y[i, 1] = wb.where(far, z, wb.sinh(z))
    y[i, 2] = wb.where(far, z, wb.cosh(z) * wb.cosh(z))
    y[i, 3] = wb.where(far, z, wb.pow(z, z))
    y[i, 4] = wb.where(far, z, big * z)
    y[i, 5] = wb.where(far, z, z / (1.0 / big))
    y[i, 6] = wb.where(far, z, wb.expm1(z) - big)
    y[i, 7] = wb.where(far, z, wb.lerp(z, big, big))
    y[i, 8] = wb.where(far, z, wb.smoothstep(big, z, big))
    y[i, 9] = wb.where(far, z, wb.tan(big))
    y[i, 10] = wb.where(far, z, wb.sin(big) * wb.atan2(big, z))
    y[i, 11] = wb.where(far, z, wb.degrees(big) * wb.tanh(big))
    y[i, 12] = z + 1.0 / (1.0 + big)
    y[i, 13] = wb.min(z, big)
    y[i, 14] = wb.clamp(big, -z, z)
    if far:
        y[i, 15] = z
    else:
        y[i, 15] = big * big * z


@wb.kernel
def vectors(x: wb.array(dtype=F), y: wb.array2d(dtype=F)):
    i = wb.tid()
    z = x[i]
    far = z > 20.0
    big = wb.exp(z) * wb.exp(z)
    v, u = wb.vec3(big, z, 1.0), wb.vec3(z, 2.0, big)
    m = wb.mat33(big, 1.0, z, 0.0, 1.0, 0.0, z, 0.0, 2.0)
    q = wb.quat(big, z, 0.0, 1.0)
    y[i, 0] = wb.where(far, z, wb.dot(v, u))
    y[i, 1] = wb.where(far, z, wb.length(v))
    y[i, 2] = wb.where(far, z, wb.normalize(v)[1])
    y[i, 3] = wb.where(far, z, wb.cross(v, u)[0])
    y[i, 4] = (m * wb.vec3(1.0, z, 2.0))[2]
    y[i, 5] = (m @ wb.transpose(m))[1, 1] * z
    y[i, 6] = wb.where(far, z, wb.determinant(m))
    y[i, 7] = wb.where(far, z, wb.inverse(m)[0, 0])
    y[i, 8] = wb.where(far, z, wb.quat_rotate(q, u)[1])
    y[i, 9] = wb.where(far, z, (q * q)[0])
    y[i, 10] = wb.where(far, z, wb.quat_to_matrix(q)[0, 1])
    y[i, 11] = wb.where(far, z, wb.outer(v, u)[0, 0])
    y[i, 12] = wb.where(far, z, (v * big)[2])
    y[i, 13] = wb.cw_mul(v, u)[1] / 2.0
    y[i, 14] = wb.where(far, z, wb.length_sq(v))
    y[i, 15] = wb.where(far, z, wb.quat_from_axis_angle(v, big)[0])


def run(kernel, column: int):
    x = wb.full(N, 113.0, dtype=F, requires_grad=True)
    x.assign(np.where(np.arange(N) % 2, 113.0, 200.0).astype(np.float32))
    y = wb.zeros((N, 16), dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, N, [x], [y])
    seed = np.zeros((N, 16), np.float32)
    seed[:, column] = 1.0
    tape.backward(grads={y: wb.array(seed, dtype=F)})
    moved = wb.jvp(tape, {x: np.ones(N, np.float32)})[y]
    return x.grad.numpy(), np.asarray(moved)[:, column], y.numpy()[:, column]


@pytest.mark.parametrize("column", range(16))
@pytest.mark.parametrize("kernel", [scalars, vectors], ids=lambda k: k.key)
def test_the_side_that_is_not_taken_counts_for_nothing(kernel, column, backend):
    gradient, tangent, value = run(kernel, column)
    assert np.isfinite(value).all()
    np.testing.assert_array_equal(gradient, 1.0)
    np.testing.assert_array_equal(tangent, 1.0)

"""Kernels of Warp whose gradients rounding moves, or that are evaluated at a kink."""
# ruff: noqa: UP018  `float(0.0)` declares a variable in Warp, `0.0` a constant

from __future__ import annotations

import warp as wp

wp.config.log_level = wp.LOG_WARNING
wp.config.optimization_level = 0


@wp.func
def nearly(v: float):
    return v * v


@wp.func_grad(nearly)
def adj_nearly(v: float, ret: float):
    wp.adjoint[v] += 2.02 * v * ret


@wp.kernel
def cancelling(x: wp.array(dtype=float), w: wp.array(dtype=float), loss: wp.array(dtype=float)):
    """Every thread adds to the same gradients: large numbers, of which little is left."""
    i = wp.tid()
    wp.atomic_add(loss, 0, w[i] * x[i % 3] * x[(i + 1) % 3])


@wp.kernel
def turned(
    inertia: wp.array(dtype=wp.mat33),
    q: wp.array(dtype=wp.quat),
    w: wp.array(dtype=wp.vec3),
    out: wp.array(dtype=wp.vec3),
):
    """The torque of a spinning body: entries of the gradient that symmetry makes small."""
    i = wp.tid()
    local = wp.quat_rotate_inv(q[i], w[i])
    out[i] = wp.quat_rotate(q[i], wp.cross(local, inertia[i] * local))


@wp.kernel
def far_off(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.sin(x[i] + 1.0e8) + x[i] * x[i]


@wp.kernel
def off_by_a_hundredth(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = nearly(x[i])


@wp.kernel
def small_one_off(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    if i == 0:
        y[i] = 1.0e4 * x[i] * x[i]
    else:
        y[i] = 1.0e-3 * nearly(x[i])


@wp.kernel
def push(v: wp.array(dtype=float), f: wp.array(dtype=float)):
    i = wp.tid()
    f[i] = 3.0 * wp.min(v[i], 0.0) + v[i]


@wp.kernel
def above(v: wp.array(dtype=float), f: wp.array(dtype=float)):
    i = wp.tid()
    f[i] = 3.0 * wp.max(0.0, v[i]) + v[i]


@wp.kernel
def size(v: wp.array(dtype=float), f: wp.array(dtype=float)):
    i = wp.tid()
    f[i] = 3.0 * wp.abs(v[i]) + v[i]


@wp.kernel
def kept_below(v: wp.array(dtype=float), f: wp.array(dtype=float)):
    i = wp.tid()
    f[i] = 3.0 * wp.clamp(v[i], -2.0, 0.0) + v[i]


@wp.kernel
def chosen_by_hand(v: wp.array(dtype=float), f: wp.array(dtype=float)):
    i = wp.tid()
    f[i] = 2.0 * v[i]
    if v[i] < 0.0:
        f[i] = 5.0 * v[i]


@wp.kernel
def looped_push(v: wp.array(dtype=float), n: int, f: wp.array(dtype=float)):
    """At a kink where v is 0; where it is not, its loop is what Warp gets wrong."""
    i = wp.tid()
    a = wp.min(v[i], 0.0)
    b = v[i] + float(1.5)
    for _ in range(n):
        b = b * b
    f[i] = a + b


@wp.kernel
def square(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@wp.kernel
def total(y: wp.array(dtype=float), loss: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(loss, 0, y[i])


@wp.kernel
def descend(x: wp.array(dtype=float), g: wp.array(dtype=float), rate: float):
    i = wp.tid()
    x[i] = x[i] - rate * g[i]


@wp.kernel
def near(grid: wp.uint64, x: wp.array(dtype=wp.vec3), y: wp.array(dtype=float)):
    i = wp.tid()
    for j in wp.hash_grid_query(grid, x[i], 1.0):
        apart = wp.length_sq(x[i] - x[j])
        if j != i and apart < 1.0:
            y[i] += apart * apart


@wp.kernel
def added(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] += x[i] * x[i]


@wp.kernel
def waved(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 0.5 * x[i] + wp.exp(x[i]) - wp.sin(x[i])


@wp.kernel
def counted(n: wp.array[float]):
    wp.atomic_add(n, 0, 1.0)


@wp.kernel
def doubled(x: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = 2.0 * x[i]


@wp.kernel
def shared(x: wp.array[float], n: wp.array[float], y: wp.array[float]):
    i = wp.tid()
    y[i] = x[i] * x[i] / n[0]

"""Kernels and arrays that many of the programs use."""

import warp as wp


@wp.kernel
def square(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@wp.kernel
def weighted_sum(x: wp.array(dtype=float), total: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(total, 0, float(i + 1) * x[i])


def fresh(n: int = 3):
    return wp.zeros(n, dtype=float, requires_grad=True)


@wp.kernel
def linear_drag(v: wp.array(dtype=wp.vec3), f: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    f[i] = -2.0 * v[i]

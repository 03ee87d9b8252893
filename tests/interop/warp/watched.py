"""Kernels of Warp for the programs that are watched: one module, compiled once."""

from __future__ import annotations

from typing import Any

import warp as wp

wp.config.log_level = wp.LOG_WARNING
wp.config.optimization_level = 0  # compiling is all that takes time


@wp.struct
class State:
    q: wp.array(dtype=wp.vec3)
    k: float


@wp.func
def cube(v: float):
    return v * v * v


@wp.func
def clipped(v: float):
    return v * v


@wp.func_grad(clipped)
def adj_clipped(v: float, ret: float):
    wp.adjoint[v] += ret


@wp.kernel
def near(grid: wp.uint64, x: wp.array(dtype=wp.vec3), radius: float, y: wp.array(dtype=float)):
    i = wp.tid()
    for j in wp.hash_grid_query(grid, x[i], radius):
        apart = wp.length_sq(x[i] - x[j])
        if j != i and apart < radius * radius:
            y[i] += apart * apart


@wp.kernel
def square(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@wp.kernel
def cubed(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = cube(x[i])


@wp.kernel
def own(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = clipped(x[i])


@wp.kernel
def in_place(x: wp.array(dtype=float), a: float):
    i = wp.tid()
    x[i] = a * x[i] * x[i]


@wp.kernel
def total(y: wp.array(dtype=float), loss: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(loss, 0, y[i])


@wp.kernel
def grid(x: wp.array2d(dtype=float), y: wp.array2d(dtype=float)):
    i, j = wp.tid()
    y[i, j] = wp.sin(x[i, j])


@wp.kernel
def springs(s: State, energy: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(energy, 0, 0.5 * s.k * wp.dot(s.q[i], s.q[i]))


@wp.kernel
def generic(x: wp.array(dtype=Any), y: wp.array(dtype=Any)):
    i = wp.tid()
    y[i] = x[i] * x[i] * x.dtype(2.0)


@wp.kernel(enable_backward=False)
def switched_off(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.exp(x[i])


@wp.kernel
def looped(x: wp.array(dtype=float), n: int, y: wp.array(dtype=float)):
    i = wp.tid()
    v = x[i]
    for _ in range(n):
        v = v * v
    y[i] = v


@wp.kernel
def descend(x: wp.array(dtype=float), g: wp.array(dtype=float), rate: float):
    i = wp.tid()
    x[i] = x[i] - rate * g[i]


@wp.kernel
def countdown(n: wp.array(dtype=int)):
    n[0] = n[0] - 1


@wp.kernel
def texture_like(x: wp.array(dtype=float), v: wp.uint64, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i]
    if i < 0:  # there is no volume
        y[i] = wp.volume_sample_f(v, wp.vec3(0.0), wp.Volume.LINEAR)


@wp.kernel
def chosen(x: wp.indexedarray(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@wp.kernel
def tiled(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    t = wp.tile_load(x, shape=4, offset=i * 4)
    wp.tile_store(y, t * t, offset=i * 4)


@wp.kernel
def branch(
    starts: wp.array(dtype=int), bodies: wp.array(dtype=int), x: wp.array(dtype=float), out: wp.array2d(dtype=float)
):
    """Each thread goes from the root of a tree to one of its leaves."""
    world, b = wp.tid()
    s = out[world, 0]
    for i in range(starts[b], starts[b + 1]):
        s = wp.sin(s) + x[bodies[i]] * s
        out[world, bodies[i]] = s


@wp.kernel
def slots(x: wp.array(dtype=float), most: int, count: wp.array(dtype=int), out: wp.array(dtype=float)):
    """Squares of every other element, as many as fit."""
    i = wp.tid()
    if i % 2 == 1 and count[0] < most:
        out[wp.atomic_add(count, 0, 1)] = x[i] * x[i]


@wp.kernel
def meet(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i % 2] = x[i] * x[i]


def scaled_by(c: float):
    """A kernel made in a factory, with a number in its closure."""

    @wp.kernel(module="unique")
    def scaled(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = x[i] * c

    return scaled


@wp.kernel
def forces(f: wp.array(dtype=float), x: wp.array(dtype=float), place: wp.array(dtype=int), y: wp.array(dtype=float)):
    """Sums of forces times arms, where forces of 0 are left out."""
    i = wp.tid()
    if f[i] == 0.0:
        return
    wp.atomic_add(y, place[i], f[i] * x[i])


@wp.kernel
def entropy(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    """A product that is left out at 0, where it would be 0 times infinity."""
    i = wp.tid()
    a = x[i]
    if a == 0.0:
        return
    wp.atomic_add(y, 0, a * wp.log(a))

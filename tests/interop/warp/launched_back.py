"""Kernels of Warp whose adjoints tests launch themselves."""

import warp as wp


@wp.struct
class Held:
    x: wp.array(dtype=float)
    scale: float


@wp.kernel
def square(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = x[i] * x[i]


@wp.kernel
def wave(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.sin(x[i])


@wp.kernel
def square_in_place(x: wp.array(dtype=float)):
    i = wp.tid()
    x[i] = x[i] * x[i]


@wp.kernel
def powers(x: wp.array(dtype=float), y: wp.array(dtype=float), turns: int):
    i = wp.tid()
    a = x[i]
    for _turn in range(turns):
        a = a * a
    y[i] = a


@wp.kernel
def of_struct(held: Held, y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = held.scale * held.x[i] * held.x[i]


@wp.kernel
def summed(x: wp.array(dtype=float), total: wp.array(dtype=float)):
    wp.atomic_add(total, 0, x[wp.tid()] * x[wp.tid()])


@wp.kernel
def moved(x: wp.array(dtype=float), slope: wp.array(dtype=float), by: float):
    i = wp.tid()
    x[i] = x[i] - by * slope[i]


@wp.kernel
def weighted(x: wp.array(dtype=float), control: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = 0.9 * x[i] + 0.3 * control[i] * control[i]

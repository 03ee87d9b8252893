"""Kernels on arrays of structs, for the programs that are watched."""

import warp as wp


@wp.struct
class Ball:
    q: wp.vec3
    m: float
    n: int


@wp.kernel(module="unique")
def push(balls: wp.array(dtype=Ball), y: wp.array(dtype=float)):
    i = wp.tid()
    b = balls[i]
    b.q = b.q * b.m
    b.n = b.n + 1
    balls[i] = b
    y[i] = wp.dot(b.q, b.q)

"""Noise, norms, inverses of the error functions, bits."""

from __future__ import annotations

import numpy as np

import workbench as wb

from . import floats, given, ints, mat22, mat33, program, vec2, vec3, vec4, zeros

N = 2


@program(x=floats(N, low=-2.0), p=floats(N, of=vec2), q=floats(N, of=vec3, low=-2.0), y=zeros(N), loose=4.0)
def noise_of_coordinates(F):
    P, Q = vec2(F), vec3(F)

    @wb.kernel
    def k(x: wb.array(dtype=F), p: wb.array(dtype=P), q: wb.array(dtype=Q), y: wb.array(dtype=F)):
        i = wb.tid()
        state = wb.rand_init(7, i)
        y[i] = wb.noise(state, x[i]) + wb.noise(state, p[i]) * wb.noise(state, q[i]) + wb.pnoise(state, p[i], 1, 2)

    return k


@program(p=floats(N, of=vec2), q=floats(N, of=vec3), u=zeros(N, of=vec2), v=zeros(N, of=vec3), loose=4.0)
def curls_of_noise(F):
    P, Q = vec2(F), vec3(F)

    @wb.kernel
    def k(p: wb.array(dtype=P), q: wb.array(dtype=Q), u: wb.array(dtype=P), v: wb.array(dtype=Q)):
        i = wb.tid()
        state = wb.rand_init(7, i)
        u[i] = wb.curlnoise(state, p[i], wb.uint32(2), q[i].x, p[i].y)
        v[i] = wb.curlnoise(state, q[i])

    return k


@program(x=floats(N, of=vec4, low=-2.0), y=zeros(N), loose=4.0)
def noise_in_four_dimensions(F):
    X = vec4(F)

    @wb.kernel
    def k(x: wb.array(dtype=X), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.noise(wb.rand_init(3), x[i])

    return k


@program(x=floats(N, of=vec3), d=floats(N), y=zeros(N), v=zeros(N, of=vec3))
def norms_of_huber(F):
    V = vec3(F)

    @wb.kernel
    def k(x: wb.array(dtype=V), d: wb.array(dtype=F), y: wb.array(dtype=F), v: wb.array(dtype=V)):
        i = wb.tid()
        y[i] = wb.norm_huber(x[i], d[i]) + wb.norm_huber(x[i], F(16.0)) * wb.norm_pseudo_huber(x[i], d[i])
        v[i] = wb.smooth_normalize(x[i], d[i]) + wb.div_approx(d[i], x[i])

    return k


@program(x=given(-0.75, -0.25, 0.0, 0.5, 0.875, of=lambda F: F), y=zeros(5), loose=8.0)
def inverse_error_functions(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = wb.erfinv(x[i]) * wb.erfcinv(F(1.0) + x[i] * F(0.5))

    return k


BITS = (5, -1, 12, 7)


def bits_by_hand(x, y, u, w):
    return {
        "x": x,
        "w": 2 * w,
        "u": np.array([bin(v & 0xFFFFFFFF).count("1") for v in BITS]),
        "y": np.array([np.bitwise_and.reduce(BITS), np.bitwise_or.reduce(BITS), np.bitwise_xor.reduce(BITS)]),
    }


@program(x=ints(*BITS), y=ints(-1, 0, 0), u=ints(0, 0, 0, 0), w=floats(4), reference=bits_by_hand)
def atomics_on_bits(F):
    @wb.kernel
    def k(x: wb.array(dtype=int), y: wb.array(dtype=int), u: wb.array(dtype=int), w: wb.array(dtype=F)):
        i = wb.tid()
        w[i] = w[i] * F(2.0)
        wb.atomic_and(y, 0, x[i])
        wb.atomic_or(y, 1, x[i])
        wb.atomic_xor(y, 2, x[i])
        u[i] = wb.bit_count(x[i]) + wb.cast(wb.cast(x[i], wb.float32), wb.int32) - x[i]

    return k


@program(
    x=given([[2.0, 0.5, 0.25], [-0.5, 1.25, 0.125], [0.75, 0.5, -3.0]], of=mat33),
    y=zeros(1, of=mat33),
    v=zeros(1, of=vec3),
    loose=16.0,
)
def singular_values(F):
    M, V = mat33(F), vec3(F)

    @wb.kernel
    def k(x: wb.array(dtype=M), y: wb.array(dtype=M), v: wb.array(dtype=V)):
        i = wb.tid()
        u, s, w = wb.svd3(x[i])
        y[i] = u * wb.transpose(w)
        v[i] = s

    return k


@program(
    x=given([[2.0, 0.5, 0.25], [-0.5, 1.25, 0.125], [0.75, 0.5, -3.0]], of=mat33),
    y=zeros(1, of=mat33),
    v=zeros(1, of=vec3),
    loose=16.0,
)
def eigenvalues_and_factors(F):
    M, V = mat33(F), vec3(F)

    @wb.kernel
    def k(x: wb.array(dtype=M), y: wb.array(dtype=M), v: wb.array(dtype=V)):
        i = wb.tid()
        q, d = wb.eig3(x[i])
        y[i] = q * wb.diag(wb.cw_mul(d, d)) * wb.transpose(q)
        a, r = wb.qr3(x[i])
        v[i] = a * V(r[0, 1], r[1, 1], r[2, 2])

    return k


@program(x=given([[2.0, 0.5], [-0.5, 1.25]], of=mat22), y=zeros(1, of=mat22), v=zeros(1, of=vec2), loose=4.0)
def singular_values_of_a_plane(F):
    M, V = mat22(F), vec2(F)

    @wb.kernel
    def k(x: wb.array(dtype=M), y: wb.array(dtype=M), v: wb.array(dtype=V)):
        i = wb.tid()
        u, s, w = wb.svd2(x[i])
        y[i] = u * wb.transpose(w)
        v[i] = s

    return k

"""Vectorised meanings of rows whose `meaning` takes one number: on vectors with a number per thread.

Results are the same to the last bit.
"""

import numpy as np


def floordiv(a, b):
    if a.dtype.kind != "f":
        return np.floor_divide(a, b)
    r = np.fmod(a, b)
    q = (a - r) / b
    q = np.where((r != 0) & ((b < 0) != (r < 0)), q - 1, q)
    n = np.floor(q)
    return np.where(b == 0, a / b, np.where(q == 0, np.copysign(0 * n, a / b), np.where(q - n > 0.5, n + 1, n)))


def pymod(a, b):
    if a.dtype.kind != "f":
        return np.remainder(a, b)
    r = np.fmod(a, b)
    return np.where(r == 0, np.copysign(r, b), np.where((b < 0) != (r < 0), r + b, r))


def pow(x, p):
    root = np.where(x == -np.inf, -x, np.sqrt(x) + 0)
    return np.where(p == 0.5, root, np.where(p == 2, x * x, np.where(p == -1, 1 / x, np.power(x, p))))


def round(x):
    t = np.trunc(x)
    return np.where(abs(x - t) >= 0.5, t + np.copysign(x * 0 + 1, x), t)


def even(x, attr):
    info = np.finfo(x.dtype)
    e = np.where(x == 0, info.minexp - 1, np.maximum(np.frexp(x)[1] - 1, info.minexp - 1))
    e = np.where(np.isfinite(x), e, info.maxexp)
    return np.ldexp(x.dtype.type(1), np.clip(attr - e, info.minexp, -info.minexp).astype(np.int32))


def pcg(state):
    b = state * np.uint32(747796405) + np.uint32(2891336453)
    c = ((b >> ((b >> np.uint32(28)) + np.uint32(4))) ^ b) * np.uint32(277803737)
    return (c >> np.uint32(22)) ^ c

"""Programs over tiles in Warp's idiom: what they compute is what Warp computes on a CPU."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest

import workbench as wb

TEXT = """import {module} as wp

N = wp.constant(8)

@wp.func
def gelu(x: float):
    return 0.5 * x * (1.0 + wp.tanh(0.797885 * (x + 0.044715 * x * x * x)))

@wp.kernel
def layer(w: wp.array2d(dtype=float), x: wp.array2d(dtype=float), y: wp.array2d(dtype=float),
          total: wp.array(dtype=float)):
    i, j = wp.tid()
    out = wp.tile_zeros(shape=(N, N), dtype=float)
    for k in range(w.shape[1] // N):
        a = wp.tile_load(w, shape=(N, N), offset=(i * N, k * N))
        b = wp.tile_load(x, shape=(N, N), offset=(k * N, j * N))
        wp.tile_matmul(a, b, out)
    out = wp.tile_map(gelu, out)
    wp.tile_store(y, out, offset=(i * N, j * N))
    wp.tile_atomic_add(total, wp.tile_sum(out * out) * 0.5)

@wp.kernel
def parts(w: wp.array2d(dtype=float), x: wp.array2d(dtype=float), y: wp.array2d(dtype=float),
          total: wp.array(dtype=float)):
    i, j = wp.tid()
    t = wp.tile_load(x, shape=(4, 6), offset=(i * 4 + 10, j * 6 + 8))
    u = wp.tile_broadcast(wp.tile_sum(t, axis=0), shape=(4, 6)) + t
    low, high = wp.tile_min(t), wp.tile_max(t)
    t[1, 2] = low[0]
    t[i, 3] += high[0]
    v = wp.tile_view(t, offset=(1, 2), shape=(2, 3))
    wp.tile_assign(u, v, offset=(1, 1))
    s = wp.tile_scan_inclusive(wp.tile_reshape(u, shape=(24,)))
    wp.tile_store(y, wp.tile_transpose(wp.tile_reshape(s, shape=(6, 4))), offset=(i * 4, j * 6))
    wp.tile_atomic_add(total, wp.tile_reduce(wp.max, wp.tile_map(wp.sin, s)))

@wp.kernel
def solve(w: wp.array2d(dtype=float), x: wp.array2d(dtype=float), y: wp.array2d(dtype=float),
          total: wp.array(dtype=float)):
    i, j = wp.tid()
    a = wp.tile_load(w, shape=(N, N), offset=(i * N, j * N))
    spd = wp.tile_diag_add(wp.tile_matmul(a, wp.tile_transpose(a)), wp.tile_ones(shape=8, dtype=float))
    low = wp.tile_cholesky(spd)
    b = wp.tile_load(x[i], shape=8, offset=j * 8)
    z = wp.tile_cholesky_solve(low, b)
    wp.tile_store(y[i], z, offset=j * 8)
    wp.tile_store(y[i + 4], wp.tile_lower_solve(low, b), offset=j * 8)

@wp.func
def paired(a: float, b: float):
    return wp.vec2(a * b, a - b)

@wp.func
def first(a: wp.vec2):
    return a[0]

@wp.kernel
def vectors(w: wp.array2d(dtype=float), x: wp.array2d(dtype=float), y: wp.array2d(dtype=float),
            total: wp.array(dtype=float)):
    i, j = wp.tid()
    a = wp.tile_load(w, shape=(4, 8), offset=(i * 8, j * 8))
    b = wp.tile_load(x, shape=(4, 8), offset=(i * 8, j * 8))
    t = wp.tile_ones(shape=(4, 8), dtype=wp.vec2)
    p = wp.tile_map(paired, a, b)
    wp.tile_fft(t)
    wp.tile_ifft(t)
    t = t * 0.125 * a
    u = t[1]
    s = wp.tile_sum(t)
    r = wp.tile_randf(shape=(4, 8), rng=wp.rand_init(3, i * 2 + j), min=-1.0, max=2.0)
    wp.tile_store(y, wp.tile_map(first, t) + r * wp.tile_map(first, p), offset=(i * 8, j * 8))
    wp.tile_store(y[i * 8 + 4], wp.tile_map(first, u), offset=j * 8)
    row = wp.tile_load(w[i], shape=8, offset=j)
    wp.tile_store(y[i * 8 + 5], wp.tile_scan_max_inclusive(row), offset=j * 8)
    stack = wp.tile_stack(capacity=3, dtype=float)
    for k in range(6):
        wp.tile_stack_push(stack, w[i, k], x[j, k] > -0.3)
    while wp.tile_stack_count(stack) > 0:
        value, slot = wp.tile_stack_pop(stack)
        wp.atomic_add(total, 0, value * float(slot + 1) + s[0][1] * wp.tile_dot(t, t)[0])
"""


def module(name: str, folder):
    path = folder / f"in_{name}.py"
    path.write_text(TEXT.format(module=name))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.needs_warp
@pytest.mark.needs_cc
def test_programs_over_tiles_compute_what_warp_does(tmp_path):
    warp = importlib.import_module("warp")
    warp.config.quiet = True
    rng = np.random.default_rng(2)
    w, x = (rng.normal(0.0, 0.5, (16, 16)).astype(np.float32) for _ in range(2))
    for kernel in ("layer", "parts", "solve", "vectors"):
        found = []
        for library, made in ((warp, module("warp", tmp_path)), (wb, module("workbench", tmp_path))):
            y, total = library.zeros((16, 16), dtype=library.float32), library.zeros(1, dtype=library.float32)
            given = [library.array(v, dtype=library.float32) for v in (w, x)]
            where = {"device": "cpu"} if library is warp else {}
            library.launch_tiled(getattr(made, kernel), dim=(2, 2), inputs=[*given, y, total], block_dim=64, **where)
            found.append((y.numpy().copy(), total.numpy().copy()))
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6, err_msg=kernel)

"""Slices, rows and local arrays in Warp's idiom: what they compute is what Warp computes on a CPU."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest

TEXT = """import {module} as wp

@wp.struct
class Hit:
    t: float
    at: wp.vec3

@wp.func
def fill(s: wp.array(dtype=float), by: float):
    for k in range(s.shape[0]):
        s[k] = s[k] * by + float(k)

@wp.func
def nearest(hits: wp.array(dtype=Hit)):
    best = int(0)
    for k in range(hits.shape[0]):
        if hits[k].t < hits[best].t:
            best = k
    return hits[best].at

@wp.kernel
def k(x: wp.array(dtype=float), z: wp.array2d(dtype=float), v: wp.array(dtype=wp.vec3), n: int,
      y: wp.array(dtype=float)):
    i = wp.tid()
    a = x[1:n]
    b = x[::2]
    c = x[-4:-1]
    d = z[:, 1]
    e = z[i, 1:]
    f = z[1:, ::2]
    r = x[::-1]
    y[0] = a[0] + 10.0 * float(a.shape[0]) + b[1] * 3.0 + float(len(b)) + c[0] * c[2]
    y[1] = d[2] + e[0] * float(e.shape[0]) + f[1, 1] * float(f.shape[0] * 10 + f.shape[1]) + r[0] * r[6]
    row = z[2]
    row[1] = a[1] * 2.0
    fill(x[4:6], 3.0)
    wp.atomic_add(z[1:], 0, 2, 5.0)
    w = v[0]
    w13 = w[1:3]
    y[2] = w13[0] + wp.length(w[::-1]) + w[-1]
    w[0:2] = wp.vec2(7.0, 8.0)
    m = wp.outer(w, w)
    m[1] = w
    m0, m1 = m[0, 1:], m[1:, 0]
    y[3] = m0[1] + m1[0] + w[0] + m[1][2]
    s = wp.zeros(shape=(2, 3), dtype=float)
    for p in range(2):
        for q in range(3):
            s[p, q] = x[p + q] * float(q + 1)
    fill(s[1], 2.0)
    t = wp.zeros(4, dtype=wp.vec3)
    t[2] = w
    t[3][1] = 4.0
    t[3] += wp.vec3(1.0, 2.0, 3.0)
    hits = wp.zeros(shape=3, dtype=Hit)
    for p in range(3):
        hits[p].t = x[p] * float(2 - p)
        hits[p].at = v[p % 2] * float(p)
    y[4] = s[1, 2] + s[1][0] + wp.dot(t[2], t[3]) + s[0, 1:][0] + nearest(hits)[1]
    y[5] = float(s.shape[0] * 10 + s.shape[1])
"""


def run(module: str, folder) -> list[np.ndarray]:
    path = folder / f"slices_{module}.py"
    path.write_text(TEXT.format(module=module))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    wp = importlib.import_module(module)
    x, z = np.arange(1, 8, dtype=np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    v = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = [wp.array(x, dtype=float), wp.array(z, dtype=float), wp.array(v, dtype=wp.vec3)]
    y = wp.zeros(6, dtype=float)
    wp.launch(made.k, dim=1, inputs=[*arrays, 5], outputs=[y])
    return [a.numpy() for a in (*arrays, y)]


@pytest.mark.slow
def test_slices_rows_and_local_arrays_are_those_of_warp(tmp_path):
    pytest.importorskip("warp")
    for ours, theirs in zip(run("workbench", tmp_path), run("warp", tmp_path), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-6)

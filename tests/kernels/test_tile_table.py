"""Every tile builtin over every kind of number: its gradients are exact, or it says that it does not take them.

`LINES` makes `r` of t and u, tiles of shape (4, 4), of v, a tile of shape (4,), and of a number s.
"""

from __future__ import annotations

import importlib.util
import itertools

import numpy as np
import pytest

import workbench as wb
from workbench.kernels.ops.signatures import TILES

LINES = {
    "tile_zeros": "r = wb.tile_zeros(shape=(4, 4), dtype=D, storage='shared') + t",
    "tile_ones": "r = wb.tile_ones(shape=(4, 4), dtype=D) + t",
    "tile_empty": "r = wb.tile_empty(shape=(4, 4), dtype=D); r += t",
    "tile_full": "r = wb.tile_full(shape=(4, 4), value=s, dtype=D, storage='register') + t",
    "tile_from_thread": "r = wb.tile_from_thread(shape=(4, 4), value=s, thread_idx=0) + t",
    "tile_arange": "r = wb.tile_arange(0, 4, 1, dtype=D) + v",
    "tile_load": "r = wb.tile_load(x, shape=(2, 3), offset=(3, 2), storage='shared')",
    "tile_store": "wb.tile_store(z, t, offset=(1, 1)); r = u",
    "tile_atomic_add": "wb.tile_atomic_add(z, t, offset=(1, 2)); r = u",
    "tile_load_indexed": "r = wb.tile_load_indexed(x, wb.tile_arange(3, 0, -1, dtype=int), shape=(3, 2), axis=0)",
    "tile_store_indexed": "wb.tile_store_indexed(z, wb.tile_arange(3, -1, -1, dtype=int), t, axis=1); r = u",
    "tile_atomic_add_indexed": "wb.tile_atomic_add_indexed(z, wb.tile_arange(0, 4, 1, dtype=int), t, axis=0); r = u",
    "tile": "r = wb.tile(s, preserve_type=True) + wb.tile_view(v, offset=1, shape=1)",
    "untile": "r = wb.tile_full(shape=(2,), value=wb.untile(wb.tile_view(v, offset=1, shape=1)))",
    "tile_extract": "r = wb.tile_full(shape=(2,), value=wb.tile_extract(t, 1, 2))",
    "tile_view": "p = wb.tile_view(t, offset=(1, 0), shape=(2, 4)); p += u[0:2]; r = t",
    "tile_assign": "wb.tile_assign(t, wb.tile_view(u, offset=(0, 1), shape=(2, 2)), offset=(2, 1)); r = t",
    "tile_squeeze": "r = wb.tile_squeeze(t[1:2]) + v",
    "tile_reshape": "r = wb.tile_reshape(t, shape=(2, -1)); r += wb.tile_reshape(u, shape=(2, 8)); r = t",
    "tile_broadcast": "r = wb.tile_broadcast(v, shape=(4, 4)) + t",
    "tile_transpose": "p = wb.tile_transpose(t); p[1, 2] = s; r = t",
    "tile_astype": "r = wb.tile_astype(wb.tile_astype(t, dtype=wb.float64), dtype=N)",
    "tile_map": "r = wb.tile_map(joined, t, u)",
    "tile_sum": "r = wb.tile_sum(t, axis=0); r[1] += wb.tile_sum(u)[0]",
    "tile_min": "r = wb.tile_min(t)",
    "tile_max": "r = wb.tile_max(t)",
    "tile_argmin": "r = wb.tile_astype(wb.tile_argmin(t), dtype=D)",
    "tile_argmax": "r = wb.tile_astype(wb.tile_argmax(t), dtype=D)",
    "tile_reduce": "r = wb.tile_reduce(joined, t, axis=1); r[0] += wb.tile_reduce(joined, u)[0]",
    "tile_dot": "r = wb.tile_dot(t, u)",
    "tile_axpy": "wb.tile_axpy(s, t, u); r = u",
    "tile_scan_inclusive": "r = wb.tile_scan_inclusive(v)",
    "tile_scan_exclusive": "r = wb.tile_scan_exclusive(v)",
    "tile_scan_max_inclusive": "r = wb.tile_scan_max_inclusive(v)",
    "tile_scan_min_inclusive": "r = wb.tile_scan_min_inclusive(v)",
    "tile_sort": "k = v + v; w = v * v; wb.tile_sort(k, w); r = k + w",
    "tile_matmul": "r = u; wb.tile_matmul(t, wb.tile_transpose(t), r, alpha=0.5, beta=2.0); r += wb.tile_matmul(t, u)",
    "tile_diag_add": "r = wb.tile_diag_add(t, v)",
    "tile_cholesky": "r = wb.tile_cholesky(near(t))",
    "tile_cholesky_inplace": "r = near(t); wb.tile_cholesky_inplace(r, fill_mode='upper')",
    "tile_cholesky_solve": "r = wb.tile_cholesky_solve(near(t), v)",
    "tile_cholesky_solve_inplace": "r = v + v; wb.tile_cholesky_solve_inplace(near(t), r)",
    "tile_lower_solve": "r = wb.tile_lower_solve(near(t), v)",
    "tile_lower_solve_inplace": "r = u + u; wb.tile_lower_solve_inplace(near(t), r)",
    "tile_upper_solve": "r = wb.tile_upper_solve(near(t), v)",
    "tile_upper_solve_inplace": "r = u + u; wb.tile_upper_solve_inplace(near(t), r)",
    "tile_scatter_add": "wb.tile_scatter_add(t, 1, 2, s, True); r = t",
    "tile_scatter_masked": "wb.tile_scatter_masked(t, 1, 2, s, True); r = t",
    "tile_add_inplace": "wb.tile_add_inplace(t, 1, 2, s); r = t",
    "tile_sub_inplace": "wb.tile_sub_inplace(t, 1, 2, s); r = t",
    "tile_bit_and_inplace": "wb.tile_bit_and_inplace(t, 1, 2, s); r = t",
    "tile_bit_or_inplace": "wb.tile_bit_or_inplace(t, 1, 2, s); r = t",
    "tile_bit_xor_inplace": "wb.tile_bit_xor_inplace(t, 1, 2, s); r = t",
    "tile_stack": "k = wb.tile_stack(capacity=3, dtype=D); wb.tile_stack_push(k, s); p = wb.tile_stack_pop(k)[0];"
    " r = wb.tile(p, preserve_type=True)",
    "operators": "r = t * N(2) - u / N(3) + (-t)",
}
# Without numbers of the tile in them, or shown by another line.
ELSEWHERE = {
    "block_dim",
    "tile_randf",
    "tile_randi",
    "tile_fft",
    "tile_ifft",
    "tile_stack_push",
    "tile_stack_pop",
    "tile_stack_clear",
    "tile_stack_count",
}
BITS = ("tile_bit_and_inplace", "tile_bit_or_inplace", "tile_bit_xor_inplace")
FLOATS = (
    "tile_matmul",
    "tile_cholesky",
    "tile_cholesky_inplace",
    "tile_cholesky_solve",
    "tile_cholesky_solve_inplace",
    "tile_lower_solve",
    "tile_lower_solve_inplace",
    "tile_upper_solve",
    "tile_upper_solve_inplace",
)
ORDERED = (
    "tile_min",
    "tile_max",
    "tile_argmin",
    "tile_argmax",
    "tile_sort",
    "tile_scan_max_inclusive",
    "tile_scan_min_inclusive",
)
KINDS = {"float16": "float16", "float32": "float32", "float64": "float64", "int32": "int32", "vec3d": "float64"}
REFUSED = {
    *itertools.product(BITS, ("float16", "float32", "float64", "vec3d")),
    *itertools.product(FLOATS, ("int32", "vec3d")),
    *itertools.product(FLOATS[1:], ("float16",)),
    *itertools.product(ORDERED, ("vec3d",)),
    *(("tile_arange", kind) for kind in ("vec3d",)),
    ("tile_diag_add", "vec3d"),
    ("tile_axpy", "vec3d"),
    ("tile_dot", "vec3d"),
}

HEAD = """import workbench as wb
D = wb.{kind}
N = wb.{number}
@wb.func
def joined(a: D, b: D):
    return a + b * N(2)
@wb.func
def near(t: wb.tile[D, 4, 4]):
    return wb.tile_diag_add(t, wb.tile_full(shape=4, value=D(6.0)))
@wb.kernel
def {key}(x: wb.array2d[D], y: wb.array[D], z: wb.array2d[D]):
    t = wb.tile_load(x, shape=(4, 4))
    u = wb.tile_load(x, shape=(4, 4), offset=(1, 1), storage='shared')
    v = wb.tile_load(x[4], shape=4, offset=1)
    s = x[2, 3]
    {line}
    wb.tile_store(y, wb.tile_reshape(r, shape=(-1,)))
"""


def kernel(name: str, kind: str, folder) -> wb.Kernel:
    path = folder / f"table_{name}_{kind}.py"
    key = "with_z" if "(z," in LINES[name] else "one"
    path.write_text(HEAD.format(kind=kind, number=KINDS[kind], line=LINES[name], key=key))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, key)


def values(kind: str) -> np.ndarray:
    shape = (5, 5, 3) if kind == "vec3d" else (5, 5)
    drawn = np.random.default_rng(5).uniform(-1.0, 1.0, shape)
    return np.round(drawn * 9).astype(np.int32) if kind == "int32" else np.float64(np.float16(drawn))


def results(one: wb.Kernel, kind: str, given: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    D, floats = getattr(wb, kind), kind != "int32"
    more = given.shape[2:]
    x = wb.array(given, dtype=D, requires_grad=floats)
    y, z = wb.zeros(16, dtype=D), wb.zeros((6, 6), dtype=D)
    if not floats:
        wb.launch_tiled(one, dim=1, inputs=[x, y, z], block_dim=32)
        return np.concatenate([y.numpy().ravel(), z.numpy().ravel()]), None
    outputs = (y, z) if one.key.endswith("z") else (y,)
    with wb.Tape() as tape:
        wb.launch_tiled(one, dim=1, inputs=[x, y, z], block_dim=32)
    seeds = {a: np.cos(np.arange(np.prod((*a.shape, *more)))).reshape((*a.shape, *more)) for a in outputs}
    tape.backward(grads={a: wb.array(seed, dtype=D) for a, seed in seeds.items()})
    loss = sum((a.numpy().astype(np.float64) * seed).sum() for a, seed in seeds.items())
    return np.float64(loss), x.grad.numpy().astype(np.float64)


def test_no_builtin_is_missing_from_the_table():
    assert {*LINES, *ELSEWHERE} - {"operators"} == {*TILES}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LINES)
def test_a_tile_builtin_over_a_kind_of_number(name, kind, tmp_path):
    wb.config.backend = "numpy"
    if (name, kind) in REFUSED:
        with pytest.raises(wb.KernelError, match=r"\[[a-z-]+\]"):
            kernel(name, kind, tmp_path).program()
        return
    one, given = kernel(name, kind, tmp_path), values(kind)
    found, gradient = results(one, kind, given)
    if gradient is None:  # the same numbers as over float64
        assert found.dtype == np.int32
        want = whole(name, given, tmp_path)
        assert want is None or np.array_equal(found, want)
        return
    step = np.random.default_rng(6).uniform(-1.0, 1.0, given.shape)
    exact = one if kind in ("float64", "vec3d") else kernel(name, "float64", tmp_path)
    wide = kind if kind == "vec3d" else "float64"
    slope = (results(exact, wide, given + 1e-6 * step)[0] - results(exact, wide, given - 1e-6 * step)[0]) / 2e-6
    close = {"float16": 0.03, "float32": 1e-5}.get(kind, 1e-6)
    assert (gradient * step).sum() == pytest.approx(slope, rel=close, abs=close * np.abs(gradient).max())


def whole(name: str, given: np.ndarray, folder) -> np.ndarray | None:
    """What the same line computes over float64, where that is an integer."""
    if name in (*BITS, "operators"):
        return None
    x, y, z = (wb.array(a, dtype=wb.float64) for a in (given.astype(np.float64), np.zeros(16), np.zeros((6, 6))))
    wb.launch_tiled(kernel(name, "float64", folder), dim=1, inputs=[x, y, z], block_dim=32)
    return np.concatenate([y.numpy().ravel(), z.numpy().ravel()]).astype(np.int32)

"""What every tile builtin computes, beside NumPy: gradients agree with differences of a wrong value, too."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import workbench as wb
from tests.kernels.test_tile_table import BITS, LINES, kernel, values

Made = tuple[Any, Any]  # r, and z or None
JOINED = lambda a, b: a + 2 * b  # noqa: E731


def folded(a: np.ndarray) -> np.ndarray:
    total = a[0]
    for one in a[1:]:
        total = JOINED(total, one)
    return total


def near(t: np.ndarray) -> np.ndarray:
    return t + 6 * np.eye(4)


def cholesky(t: np.ndarray) -> np.ndarray:
    """Of the lower half of a matrix."""
    lower = np.tril(near(t))
    return np.linalg.cholesky(lower + np.tril(lower, -1).T)


def put(shape: tuple[int, ...], at: tuple[int, ...], a: np.ndarray) -> np.ndarray:
    z = np.zeros(shape)
    z[tuple(slice(k, k + n) for k, n in zip(at, a.shape, strict=True))] = a
    return z


def changed(t: np.ndarray, at: Any, value: Any) -> np.ndarray:
    made = t.copy()
    made[at] = value
    return made


def sorted_pairs(v: np.ndarray) -> np.ndarray:
    order = np.argsort(v, kind="stable")
    return (v + v)[order] + (v * v)[order]


WANT: dict[str, Any] = {
    "tile_zeros": lambda t, u, v, s: t,
    "tile_ones": lambda t, u, v, s: 1 + t,
    "tile_empty": lambda t, u, v, s: t,
    "tile_full": lambda t, u, v, s: s + t,
    "tile_from_thread": lambda t, u, v, s: s + t,
    "tile_arange": lambda t, u, v, s: np.arange(4) + v,
    "tile": lambda t, u, v, s: s + v[1:2],
    "untile": lambda t, u, v, s: np.full(2, v[1]),
    "tile_extract": lambda t, u, v, s: np.full(2, t[1, 2]),
    "tile_view": lambda t, u, v, s: t + put((4, 4), (1, 0), u[0:2]),
    "tile_assign": lambda t, u, v, s: changed(t, np.s_[2:4, 1:3], u[0:2, 1:3]),
    "tile_squeeze": lambda t, u, v, s: t[1] + v,
    "tile_reshape": lambda t, u, v, s: t + u.reshape(4, 4),
    "tile_broadcast": lambda t, u, v, s: v + t,
    "tile_transpose": lambda t, u, v, s: changed(t, (2, 1), s),
    "tile_astype": lambda t, u, v, s: t,
    "tile_map": lambda t, u, v, s: JOINED(t, u),
    "tile_sum": lambda t, u, v, s: t.sum(0) + np.array([0, u.sum(), 0, 0]),
    "tile_min": lambda t, u, v, s: t.min(),
    "tile_max": lambda t, u, v, s: t.max(),
    "tile_argmin": lambda t, u, v, s: t.argmin(),
    "tile_argmax": lambda t, u, v, s: t.argmax(),
    "tile_dot": lambda t, u, v, s: (t * u).sum(),
    "tile_axpy": lambda t, u, v, s: u + s * t,
    "tile_scan_inclusive": lambda t, u, v, s: np.cumsum(v),
    "tile_scan_exclusive": lambda t, u, v, s: np.r_[0, np.cumsum(v)[:-1]],
    "tile_scan_max_inclusive": lambda t, u, v, s: np.maximum.accumulate(v),
    "tile_scan_min_inclusive": lambda t, u, v, s: np.minimum.accumulate(v),
    "tile_sort": lambda t, u, v, s: sorted_pairs(v),
    "tile_matmul": lambda t, u, v, s: 2 * u + 0.5 * t @ t.T + t @ u,
    "tile_diag_add": lambda t, u, v, s: t + np.diag(v),
    "tile_cholesky": lambda t, u, v, s: cholesky(t),
    "tile_cholesky_solve": lambda t, u, v, s: linalg.cho_solve((near(t), True), v),
    "tile_cholesky_solve_inplace": lambda t, u, v, s: linalg.cho_solve((near(t), True), 2 * v),
    "tile_lower_solve": lambda t, u, v, s: linalg.solve_triangular(near(t), v, lower=True),
    "tile_lower_solve_inplace": lambda t, u, v, s: linalg.solve_triangular(near(t), 2 * u, lower=True),
    "tile_upper_solve": lambda t, u, v, s: linalg.solve_triangular(near(t), v),
    "tile_upper_solve_inplace": lambda t, u, v, s: linalg.solve_triangular(near(t), 2 * u),
    "tile_add_inplace": lambda t, u, v, s: changed(t, (1, 2), t[1, 2] + s),
    "tile_sub_inplace": lambda t, u, v, s: changed(t, (1, 2), t[1, 2] - s),
    "tile_stack": lambda t, u, v, s: s,
    "operators": lambda t, u, v, s: t * 2 - u / 3 - t,
}
STORED: dict[str, Any] = {
    "tile_store": lambda t, u: put((6, 6), (1, 1), t),
    "tile_atomic_add": lambda t, u: put((6, 6), (1, 2), t),
    "tile_store_indexed": lambda t, u: put((6, 6), (0, 0), t[:, ::-1]),
    "tile_atomic_add_indexed": lambda t, u: put((6, 6), (0, 0), t),
}
LOADED = {"tile_load": np.s_[3:5, 2:5], "tile_load_indexed": np.s_[3:0:-1, 0:2]}
LEFT = {"tile_reduce", "tile_cholesky_inplace", "tile_scatter_add", "tile_scatter_masked", *BITS}


def test_each_line_of_the_table_has_its_numbers():
    assert {*WANT, *STORED, *LOADED, *LEFT} == {*LINES}


@pytest.mark.parametrize("name", [*WANT, *STORED, *LOADED])
def test_a_tile_is_what_numpy_makes_of_it(name, tmp_path, backend):
    given = values("float64")
    t, u, v, s = given[:4, :4], given[1:, 1:], given[4, 1:], given[2, 3]
    x, y, z = wb.array(given, dtype=wb.float64), wb.zeros(16, dtype=wb.float64), wb.zeros((6, 6), dtype=wb.float64)
    wb.launch_tiled(kernel(name, "float64", tmp_path), dim=1, inputs=[x, y, z], block_dim=32)
    r = WANT[name](t, u, v, s) if name in WANT else given[LOADED[name]] if name in LOADED else u
    want = np.zeros(16)
    want[: np.size(r)] = np.ravel(r)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(z.numpy(), STORED[name](t, u) if name in STORED else np.zeros((6, 6)), atol=1e-14)


@wb.kernel
def rows(x: wb.array2d[float], y: wb.array[float], z: wb.array2d[float]):
    t = wb.tile_load(x, shape=(4, 4))
    wb.tile_store(y, wb.tile_view(t, offset=2))
    wb.tile_store(z, wb.tile_view(t, offset=(1, 0), shape=(2, 4)))


def test_a_view_has_the_axes_of_its_shape_or_those_without_an_offset(backend):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    y, z = wb.zeros(4), wb.zeros((2, 4))
    wb.launch_tiled(rows, dim=1, inputs=[wb.array(x), y, z], block_dim=32)
    np.testing.assert_array_equal(y.numpy(), x[2])
    np.testing.assert_array_equal(z.numpy(), x[1:3])


@wb.kernel
def viewed(x: wb.array2d[float], at: wb.array[int], y: wb.array2d[float]):
    t = wb.tile_load(x, shape=(4, 4))
    k = at[0]
    wb.tile_store(y, wb.tile_view(t, offset=(k, 0), shape=(2, 4)))


@wb.kernel
def assigned(x: wb.array2d[float], at: wb.array[int], y: wb.array2d[float]):
    t = wb.tile_load(x, shape=(4, 4))
    k = at[0]
    wb.tile_assign(t, wb.tile_ones(shape=(2, 3), dtype=float), offset=(k, 1))
    wb.tile_store(y, t)


@wb.kernel
def extracted(x: wb.array2d[float], at: wb.array[int], y: wb.array2d[float]):
    t = wb.tile_load(x, shape=(4, 4))
    k = at[0]
    wb.tile_store(y, wb.tile_full(shape=(1, 1), value=wb.tile_extract(t, k, 1)))


PARTS = {
    viewed: lambda x, k: x[k : k + 2],
    assigned: lambda x, k: changed(x, np.s_[k : k + 2, 1:], 1),
    extracted: lambda x, k: x[k : k + 1, 1:2] if k != -1 else x[-1:, 1:2],
}


@pytest.mark.parametrize("k", range(-5, 6))
@pytest.mark.parametrize("part", PARTS, ids=lambda kernel: kernel.key)
def test_a_part_at_an_index_from_an_array_lies_in_the_tile_or_is_refused(part, k, backend):
    given = np.arange(16, dtype=np.float32).reshape(4, 4)
    inside = -4 <= k < 4 if part is extracted else 0 <= k <= 2
    y = wb.zeros(PARTS[part](given, k).shape if inside else (4, 4))

    def launch() -> None:
        wb.launch_tiled(part, dim=1, inputs=[wb.array(given), wb.array([k], dtype=int), y], block_dim=32)

    if not inside:
        with pytest.raises(wb.BoundsError, match=rf"t\[{k}, [01]\] at line \d+, outside shape \(4, 4\)"):
            launch()
        return
    launch()
    np.testing.assert_array_equal(y.numpy(), PARTS[part](given, k))


@wb.kernel
def a_row(x: wb.array2d[float], at: wb.array[int], y: wb.array[float], z: wb.array[float]):
    t = wb.tile_load(x, shape=(4, 4))
    wb.tile_store(y, t[at[0]])
    wb.tile_store(z, t[1:3, at[0]])


@pytest.mark.parametrize("k", range(-5, 5))
def test_a_row_or_column_at_an_index_from_an_array_may_be_counted_from_the_end(k, backend):
    given, y, z = np.arange(16, dtype=np.float32).reshape(4, 4), wb.zeros(4), wb.zeros(2)
    args = [wb.array(given), wb.array([k], dtype=int), y, z]
    with nullcontext() if -4 <= k < 4 else pytest.raises(wb.BoundsError, match=r"outside shape \(4, 4\)"):
        wb.launch_tiled(a_row, dim=1, inputs=args, block_dim=32)
        np.testing.assert_array_equal(y.numpy(), given[k])
        np.testing.assert_array_equal(z.numpy(), given[1:3, k])

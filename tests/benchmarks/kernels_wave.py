# ruff: noqa: F821
# The kernel as a user writes it. `peers.load` runs this file once for each module that is measured, as `wb`.


@wb.kernel
def wave(
    u: wb.array2d(dtype=float),
    up: wb.array2d(dtype=float),
    out: wb.array2d(dtype=float),
    c: float,
    n: int,
    m: int,
):
    i, j = wb.tid()
    if i > 0 and i < n - 1 and j > 0 and j < m - 1:
        lap = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - 4.0 * u[i, j]
        out[i, j] = 2.0 * u[i, j] - up[i, j] + c * lap

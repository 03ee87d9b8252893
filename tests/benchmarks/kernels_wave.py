# ruff: noqa: F821
# Kernels as a user writes them. `peers.load` runs this file once for each module that is measured, as `wb`,
# and each scalar type, as `real`.


@wb.kernel
def wave(u: wb.array2d(dtype=real), up: wb.array2d(dtype=real), out: wb.array2d(dtype=real), c: real, n: int, m: int):
    i, j = wb.tid()
    if i > 0 and i < n - 1 and j > 0 and j < m - 1:
        lap = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - real(4.0) * u[i, j]
        out[i, j] = real(2.0) * u[i, j] - up[i, j] + c * lap


# A row a thread: one float32 sum over four million cells would be wrong in its third digit.
@wb.kernel
def misfit(u: wb.array2d(dtype=real), target: wb.array2d(dtype=real), scale: real, m: int, loss: wb.array(dtype=real)):
    i = wb.tid()
    total = real(0.0)
    for j in range(m):
        d = u[i, j] - target[i, j]
        total += d * d
    wb.atomic_add(loss, 0, scale * total)

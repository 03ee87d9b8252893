"""One step of a wave equation, forward: generated C beside C written by hand, on one thread.

    python tests/benchmarks/stencil.py [--size 1024] [--rounds 40]

Both are compiled with the workbench's flags; the workbench launches a recorded command, with all its checks. In place,
`w` is the memory of `v`, so the compiler may not be told that the arrays lie apart.
"""

from __future__ import annotations

import argparse
import ctypes

import numpy as np
from rounds import Contender, heading, interleaved, table

import workbench as wb
from workbench.kernels.compile import c_compiler

HAND_WRITTEN = """
void hand(float *restrict u, float *restrict v, float *restrict w, float c, long n) {
    for (long i = 1; i < n - 1; ++i) for (long j = 1; j < n - 1; ++j)
        w[i*n+j] = 2 * u[i*n+j] - v[i*n+j]
                 + c * (u[(i+1)*n+j] + u[(i-1)*n+j] + u[i*n+j+1] + u[i*n+j-1] - 4 * u[i*n+j]);
}
"""


@wb.kernel
def step(u: wb.array2d(dtype=float), v: wb.array2d(dtype=float), w: wb.array2d(dtype=float), c: float):
    i, j = wb.tid()
    if i > 0 and i < u.shape[0] - 1 and j > 0 and j < u.shape[1] - 1:
        around = u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1]
        w[i, j] = 2.0 * u[i, j] - v[i, j] + c * (around - 4.0 * u[i, j])


def contenders(n: int) -> dict[str, Contender]:
    """What is timed; raises AssertionError if the two do not compute the same."""
    rng = np.random.default_rng(4)
    u, v = (wb.array(rng.random((n, n), np.float32)) for _ in range(2))
    w, own, expected = wb.zeros((n, n)), wb.clone(v), np.zeros((n, n), np.float32)
    hand = ctypes.CDLL(str(c_compiler.build(HAND_WRITTEN))).hand
    given = [ctypes.c_void_p(a.ctypes.data) for a in (u.numpy(), v.numpy(), expected)]
    given += [ctypes.c_float(0.1), ctypes.c_long(n)]
    apart = wb.launch(step, dim=(n, n), inputs=[u, v, w, 0.1], record_cmd=True)
    inside = wb.launch(step, dim=(n, n), inputs=[u, own, own, 0.1], record_cmd=True)
    apart.launch()
    hand(*given)
    np.testing.assert_array_equal(w.numpy(), expected)
    by_hand = lambda keep=expected: hand(*given)  # noqa: E731 - `given` has addresses alone
    return {"hand-written": by_hand, "workbench": apart.launch, "workbench, in place": inside.launch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    wb.config.backend, wb.config.threads = "c", 1
    print(heading(f"A step of a wave on {args.size} x {args.size} cells, microseconds"))
    print(table(interleaved(contenders(args.size), args.rounds, 10), "hand-written", 1e6, "us"))


if __name__ == "__main__":
    main()

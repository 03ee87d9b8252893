"""Linear solves beside SciPy's, and an implicit heat equation with its gradient beside JAX, in one run.

    python -m tests.benchmarks.solves [--sides 48 128] [--steps 10] [--rounds 9]

The matrix is that of a step of heat on a square grid, in float64, to a relative residual of 1e-8. The heat program
takes `steps` implicit steps of conjugate gradients and differentiates the squared end state by the start and by the
conductivity of every cell: by a product of launches here, recorded anew each time and as replays of a capture, by
`jax.scipy.sparse.linalg.cg` (jitted) there.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as theirs

import workbench as wb
from workbench.optim import linear as ours

from .rounds import heading, interleaved, ratio

TOL, RATE = 1e-8, 5.0
Turn = Callable[[], object]


field = wb.array2d[wb.float64]


@wb.kernel
def heat(c: field, x: field, y: field, z: field, alpha: wb.float64, beta: wb.float64):
    """z = alpha (1 + RATE L) x + beta y, of fluxes by the mean conductivity of two cells."""
    i, j = wb.tid()
    n, flux = c.shape[0], wb.float64(0.0)
    if i > 0:
        flux += (c[i, j] + c[i - 1, j]) * (x[i, j] - x[i - 1, j])
    if i + 1 < n:
        flux += (c[i, j] + c[i + 1, j]) * (x[i, j] - x[i + 1, j])
    if j > 0:
        flux += (c[i, j] + c[i, j - 1]) * (x[i, j] - x[i, j - 1])
    if j + 1 < n:
        flux += (c[i, j] + c[i, j + 1]) * (x[i, j] - x[i, j + 1])
    z[i, j] = alpha * (x[i, j] + wb.float64(0.5 * RATE) * flux) + beta * y[i, j]


def matrix(c: np.ndarray) -> sp.csr_array:
    """The matrix of `heat`, shape (n^2, n^2), of conductivities (n, n)."""
    n = len(c)
    k = np.arange(n * n).reshape(n, n)
    pairs = [(k[1:], k[:-1], c[1:] + c[:-1]), (k[:, 1:], k[:, :-1], c[:, 1:] + c[:, :-1])]
    made = sp.eye_array(n * n, format="csr")
    for a, b, sums in pairs:
        a, b, w = a.ravel(), b.ravel(), 0.5 * RATE * sums.ravel()
        places = np.r_[a, b, a, b], np.r_[a, b, b, a]
        made = made + sp.coo_array((np.r_[w, w, -w, -w], places), shape=made.shape)
    return made.tocsr()


def solves(n: int, rounds: int) -> list[str]:
    rng = np.random.default_rng(0)
    A, b = matrix(rng.uniform(0.5, 1.5, (n, n))), rng.normal(size=n * n)
    coo = A.tocoo()
    rows, columns = (wb.array(a, dtype=int) for a in coo.coords)
    mine = wb.sparse.bsr_from_triplets(n * n, n * n, rows, columns, wb.array(coo.data, dtype=wb.float64))
    right, x = wb.array(b, dtype=wb.float64), wb.zeros(n * n, dtype=wb.float64)
    lines = []
    for name in ("cg", "bicgstab", "gmres"):
        solve, other = getattr(ours, name), getattr(theirs, name)
        more = {"restart": 31} if name == "gmres" else {}

        def here(solve: Callable = solve) -> object:
            return solve(mine, right, x.zero_(), tol=TOL)

        def there(other: Callable = other, more: dict = more) -> np.ndarray:
            return other(A, b, rtol=TOL, **more)[0]

        here()
        np.testing.assert_allclose(x.numpy(), there(), rtol=1e-5, atol=1e-6)
        lines.append(row(f"{name}, {n * n} unknowns", interleaved({"ours": here, "theirs": there}, rounds, 1)))
    solver = ours.lu(mine, right, x, run=False)

    def factored() -> object:
        solver._factored = None
        return solver()

    lines.append(
        row(
            f"lu, {n * n}",
            interleaved({"ours": factored, "theirs": lambda: theirs.splu(A.tocsc()).solve(b)}, rounds, 1),
        )
    )
    return lines


def here(c0: np.ndarray, u0: np.ndarray, steps: int) -> tuple[Turn, Turn, Callable[[Turn], list[np.ndarray]]]:
    """A turn that records and walks back, one that replays it, and the gradients that a turn makes."""
    n = len(c0)
    c, u = (wb.array(a, dtype=wb.float64, requires_grad=True) for a in (c0, u0))

    def product(x: wb.array, y: wb.array, z: wb.array, alpha: float, beta: float) -> None:
        wb.launch(heat, (n, n), [c, *(a.reshape((n, n)) for a in (x, y, z)), alpha, beta])

    A = ours.LinearOperator((n * n, n * n), wb.float64, "cpu", product, transposed=product)

    def turn() -> None:
        loss = wb.zeros(1, dtype=wb.float64)
        with wb.Tape() as tape:
            state = u
            for _ in range(steps):
                x = wb.clone(state)
                ours.cg(A, state, x, tol=TOL)
                state = x
            wb.utils.array_inner(state, state, out=loss)
        tape.backward(loss)

    def gradients(turn: Turn) -> list[np.ndarray]:
        for a in (c, u):
            a.grad.zero_()
        turn()
        return [c.grad.numpy(), u.grad.numpy()]

    with wb.capture() as graph:
        turn()
    return turn, graph.replay, gradients


def there(c0: np.ndarray, u0: np.ndarray, steps: int) -> tuple[Turn, Callable[[], list[np.ndarray]]]:
    import jax

    jax.config.update("jax_enable_x64", True)
    from jax import numpy as jnp

    n = len(c0)

    def times(c: jax.Array, x: jax.Array) -> jax.Array:
        x = x.reshape(n, n)
        down, right = (c[1:] + c[:-1]) * (x[1:] - x[:-1]), (c[:, 1:] + c[:, :-1]) * (x[:, 1:] - x[:, :-1])
        flux = jnp.pad(down, ((1, 0), (0, 0))) - jnp.pad(down, ((0, 1), (0, 0)))
        flux += jnp.pad(right, ((0, 0), (1, 0))) - jnp.pad(right, ((0, 0), (0, 1)))
        return (x + 0.5 * RATE * flux).reshape(-1)

    def loss(c: jax.Array, u: jax.Array) -> jax.Array:
        for _ in range(steps):
            u = jax.scipy.sparse.linalg.cg(lambda x: times(c, x), u, x0=u, tol=TOL)[0]
        return u @ u

    both = jax.jit(jax.value_and_grad(loss, (0, 1)))
    given = jnp.array(c0), jnp.array(u0)
    return lambda: jax.block_until_ready(both(*given)), lambda: [np.asarray(g) for g in both(*given)[1]]


def program(n: int, steps: int, rounds: int) -> str:
    rng = np.random.default_rng(1)
    c0, u0 = rng.uniform(0.5, 1.5, (n, n)), rng.normal(size=n * n)
    (recorded, replayed, my_gradients), (other, other_gradients) = here(c0, u0, steps), there(c0, u0, steps)
    for turn in (recorded, replayed):
        for got, want in zip(my_gradients(turn), other_gradients(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    times = interleaved({"recorded": recorded, "replayed": replayed, "theirs": other}, rounds, 1)
    name = f"heat, {n} x {n}, {steps} steps, value and gradient"
    rows = [row(f"{name}, {how}", {"ours": times[how], "theirs": times["theirs"]}) for how in ("recorded", "replayed")]
    return "\n".join(rows)


def row(name: str, times: dict[str, list[float]]) -> str:
    cells = [f"{1e3 * statistics.median(times[who]):.2f}" for who in ("ours", "theirs")]
    return f"| {name} | {' | '.join(cells)} | {ratio(times['ours'], times['theirs']):.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.solves")
    parser.add_argument("--sides", nargs="+", type=int, default=[48, 128])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    print(heading("Linear solves beside SciPy, a heat program beside JAX"))
    print("| what | ms here | ms there | ratio of medians within a round |")
    print("|---|---|---|---|")
    for n in given.sides:
        print("\n".join(solves(n, given.rounds)), flush=True)
        print(program(n, given.steps, given.rounds), flush=True)


if __name__ == "__main__":
    main()

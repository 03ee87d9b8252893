"""A root and an adaptive integration with their gradients, beside JAX's libraries, in one run.

    python -m tests.benchmarks.implicit [--rounds 9]

The root is the rest state of a chain of hardening springs under loads, from 0, in float64: the squared rest state is
differentiated by the loads. There: `optimistix.root_find` (Newton) with its implicit adjoint, and `lax.custom_root`
around the same Newton iteration. The integration is that of 256 pendulums with a stiffness each from 0 to 2, by the
pair of Dormand and Prince to a relative and absolute tolerance of 1e-6: there by `diffrax`, of which each step is
differentiated, too. JAX is jitted. Here both are recorded anew each time; the root also as replays of a capture. Needs
`pip install optimistix diffrax`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import numpy as np

import workbench as wb

from .rounds import heading, interleaved, ratio

F = wb.float64
Turn = Callable[[], object]
PENDULUMS, TOL = 256, 1e-6


@wb.kernel
def pull(x: wb.array[F], p: wb.array[F], r: wb.array[F]):
    i = wb.tid()
    n = x.shape[0]
    total = F(2.0) * x[i] + x[i] * x[i] * x[i] - p[i]
    if i > 0:
        total -= x[i - 1]
    if i + 1 < n:
        total -= x[i + 1]
    r[i] = total


@wb.kernel
def swing(y: wb.array2d[F], k: wb.array[F], dy: wb.array2d[F]):
    i = wb.tid()
    dy[i, 0] = y[i, 1]
    dy[i, 1] = -k[i] * wb.sin(y[i, 0])


def root_here(loads: np.ndarray) -> tuple[dict[str, Turn], Callable[[], np.ndarray]]:
    n = len(loads)
    p, start = wb.array(loads, dtype=F, requires_grad=True), wb.zeros(n, dtype=F)

    def residual(x: wb.array, p: wb.array) -> wb.array:
        r = wb.zeros(n, dtype=F)
        wb.launch(pull, n, [x, p, r])
        return r

    def turn() -> None:
        p.grad.zero_()
        with wb.Tape() as tape:
            x = wb.root(residual, start, p, tol=1e-10)
            loss = wb.utils.array_inner(x, x, out=wb.zeros(1, dtype=F))
        tape.backward(loss)

    with wb.capture() as graph:
        turn()
    return {"recorded": turn, "replayed": graph.replay}, lambda: p.grad.numpy()


def roots_there(loads: np.ndarray) -> dict[str, Callable[[], np.ndarray]]:
    import jax
    import optimistix
    from jax import numpy as jnp

    def residual(x: jax.Array, p: jax.Array) -> jax.Array:
        return 2 * x + x**3 - p - jnp.pad(x[:-1], (1, 0)) - jnp.pad(x[1:], (0, 1))

    def by_optimistix(p: jax.Array) -> jax.Array:
        solver = optimistix.Newton(rtol=1e-10, atol=1e-10)
        x = optimistix.root_find(residual, solver, jnp.zeros_like(p), p, max_steps=50).value
        return x @ x

    def newton(f: Callable, x: jax.Array) -> jax.Array:
        slope = jax.jacfwd(f)
        return jax.lax.while_loop(
            lambda x: jnp.linalg.norm(f(x)) > 1e-10, lambda x: x - jnp.linalg.solve(slope(x), f(x)), x
        )

    def by_custom_root(p: jax.Array) -> jax.Array:
        def tangent(g: Callable, y: jax.Array) -> jax.Array:
            return jnp.linalg.solve(jax.jacfwd(g)(y), y)

        x = jax.lax.custom_root(lambda x: residual(x, p), jnp.zeros_like(p), newton, tangent)
        return x @ x

    given = jnp.asarray(loads)
    made = {"optimistix": jax.jit(jax.grad(by_optimistix)), "custom_root": jax.jit(jax.grad(by_custom_root))}
    return {name: lambda f=f: np.asarray(f(given)) for name, f in made.items()}


def steps_here(y0: np.ndarray, stiffness: np.ndarray) -> tuple[Turn, Callable[[], np.ndarray]]:
    k, start = wb.array(stiffness, dtype=F, requires_grad=True), wb.array(y0, dtype=F)

    def rates(t: float, y: wb.array) -> wb.array:
        dy = wb.zeros_like(y)
        wb.launch(swing, PENDULUMS, [y, k, dy])
        return dy

    def turn() -> None:
        k.grad.zero_()
        with wb.Tape() as tape:
            y = wb.clone(start)
            wb.rk45(rates, 0.0, 2.0, y, rtol=TOL, atol=TOL)
            flat = y.flatten()
            loss = wb.utils.array_inner(flat, flat, out=wb.zeros(1, dtype=F))
        tape.backward(loss)

    return turn, lambda: k.grad.numpy()


def steps_there(y0: np.ndarray, stiffness: np.ndarray) -> Callable[[], np.ndarray]:
    import diffrax
    import jax
    from jax import numpy as jnp

    def rates(t: float, y: jax.Array, k: jax.Array) -> jax.Array:
        return jnp.stack([y[:, 1], -k * jnp.sin(y[:, 0])], 1)

    def loss(k: jax.Array) -> jax.Array:
        how = diffrax.PIDController(rtol=TOL, atol=TOL)
        term, solver, start = diffrax.ODETerm(rates), diffrax.Dopri5(), jnp.asarray(y0)
        found = diffrax.diffeqsolve(term, solver, 0.0, 2.0, None, start, k, stepsize_controller=how, max_steps=256)
        return (found.ys[-1] ** 2).sum()

    gradient, given = jax.jit(jax.grad(loss)), jnp.asarray(stiffness)
    return lambda: np.asarray(gradient(given))


def row(name: str, mine: list[float], theirs: list[float]) -> str:
    cells = [f"{1e3 * statistics.median(times):.2f}" for times in (mine, theirs)]
    return f"| {name} | {' | '.join(cells)} | {ratio(mine, theirs):.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.implicit")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    import jax

    jax.config.update("jax_enable_x64", True)
    random = np.random.default_rng(0)
    print(heading("Roots and adaptive steps beside JAX's libraries"))
    print("| what | ms here | ms there | ratio of medians within a round |\n|---|---|---|---|")
    for n in (32, 256):
        loads = random.normal(size=n)
        (turns, mine), theirs = root_here(loads), roots_there(loads)
        for turn in turns.values():
            turn()
            for gradient in theirs.values():
                np.testing.assert_allclose(mine(), gradient(), rtol=1e-7, atol=1e-9)
        times = interleaved({**turns, **theirs}, given.rounds, 1)
        for how in turns:
            for other in theirs:
                print(row(f"root of {n}, {how}, beside {other}", times[how], times[other]), flush=True)
    y0, stiffness = random.normal(size=(PENDULUMS, 2)), random.uniform(1.0, 9.0, PENDULUMS)
    (turn, mine), theirs = steps_here(y0, stiffness), steps_there(y0, stiffness)
    turn()
    np.testing.assert_allclose(mine(), theirs(), rtol=1e-3, atol=1e-4)
    times = interleaved({"ours": turn, "theirs": theirs}, given.rounds, 1)
    print(row(f"{PENDULUMS} pendulums by Dormand and Prince, beside diffrax", times["ours"], times["theirs"]))


if __name__ == "__main__":
    main()

"""Random programs that mix kernels with operations of torch or JAX: first, second and third derivatives.

A program is a row of steps on vectors of three numbers; every step is an operation of the framework, or a kernel with a
twin that computes the same by operations of the framework alone. Its loss is differentiated in several ways, with the
kernels and with their twins: the two must agree. `python -m tests.fuzz.doors 1000 [seed]` runs many of them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import workbench as wb

F = wb.float64
N = 3


@wb.kernel
def wave(x: wb.array[F], a: F, y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.sin(a * x[i]) * x[i]


@wb.kernel
def refined(x: wb.array[F], w: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = x[i] * w[i]
    for _ in range(3):
        y[i] = y[i] - F(0.25) * (y[i] * y[i] - x[i])
    y[i] += w[i]


@wb.kernel
def summed(x: wb.array[F], w: wb.array[F], y: wb.array[F], z: wb.array[F]):
    i = wb.tid()
    y[i] = wb.exp(-x[i] * x[i]) * w[i]
    wb.atomic_add(z, 0, x[i] * wb.cos(w[i]))


@wb.kernel
def turned(v: wb.array[wb.vec3d], axis: wb.vec3d, out: wb.array[wb.vec3d], size: wb.array[F]):
    i = wb.tid()
    out[i] = wb.cross(v[i], axis)
    size[i] = wb.sqrt(F(1.0) + wb.dot(v[i], v[i]))


@wb.kernel
def gathered(x: wb.array[F], at: wb.array[int], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(1.0)
    for _ in range(n):
        s *= x[at[i]]
    y[i] = s * x[i]


@wb.kernel
def mixed(m: wb.array2d[F], x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    for j in range(x.shape[0]):
        s += wb.tanh(m[i, j]) * x[j]
    if s > F(0.0):
        y[i] = s * s
    else:
        y[i] = s


AT = np.array([2, 0, 0], np.int32)


def _refined(m: Any, x: Any, w: Any) -> Any:
    y = x * w
    for _ in range(3):
        y = y - 0.25 * (y * y - x)
    return y + w


def _turned(m: Any, v: Any, axis: Any) -> Any:
    a, b = v, axis
    k = lambda i, j: a[..., i] * b[j] - a[..., j] * b[i]  # noqa: E731
    return m.stack([k(1, 2), k(2, 0), k(0, 1)], -1), m.sqrt(1.0 + (v * v).sum(-1))


def _mixed(m: Any, a: Any, x: Any) -> Any:
    s = m.tanh(a) @ x
    return m.where(s > 0, s * s, s)


# kernel, its outputs, its twin, how vectors x and w, and the place `at`, become arguments, how results become a vector
STEPS: list[tuple[Any, Any, Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = [
    (wave, None, lambda m, x, a: m.sin(a * x) * x, lambda m, x, w, at: (x, w[0]), lambda m, y: y),
    (wave, None, lambda m, x, a: m.sin(a * x) * x, lambda m, x, w, at: (x, 1.25), lambda m, y: y),
    (refined, None, _refined, lambda m, x, w, at: (x, w), lambda m, y: y),
    (refined, None, _refined, lambda m, x, w, at: (x, x), lambda m, y: y),
    (
        summed,
        [N, 1],
        lambda m, x, w: (m.exp(-x * x) * w, (x * m.cos(w)).sum().reshape(1)),
        lambda m, x, w, at: (x, w),
        lambda m, made: made[0] * made[1],
    ),
    (
        turned,
        [N, N],
        _turned,
        lambda m, x, w, at: (m.stack([x, w, x * w]), w),
        lambda m, made: made[0].sum(0) + made[1],
    ),
    (gathered, None, lambda m, x, i, n: x[i] ** n * x, lambda m, x, w, at: (x, at, 3), lambda m, y: y),
    (mixed, None, _mixed, lambda m, x, w, at: (x[:, None] - w[None, :], w), lambda m, y: y),
]
PLAIN: list[Callable[..., Any]] = [
    lambda m, x, w: m.sin(x) + w,
    lambda m, x, w: x * w,
    lambda m, x, w: m.tanh(x) * x.sum(),
    lambda m, x, w: m.stack([w[2], x[0], x[1]]),
]


def program(rng: random.Random) -> list[tuple[int, bool, int, int]]:
    """A row of steps: (which, a kernel's?, the place of its x, of its w)."""
    steps = []
    for k in range(rng.randint(1, 4)):
        kernel = rng.random() < 0.65 or k == 0
        steps.append(
            (rng.randrange(len(STEPS if kernel else PLAIN)), kernel, rng.randrange(k + 1), rng.randrange(k + 1))
        )
    return steps


def loss(steps: list[tuple[int, bool, int, int]], m: Any, at: Any, function: Any) -> Callable[[Any], Any]:
    """The program as a function of a vector. `function`: makes one of a kernel; None: the twins are called."""
    calls = [function(k, dim=N, outputs=o) if o else function(k) for k, o, *_ in STEPS] if function else []

    def run(x: Any) -> Any:
        known = [x]
        for which, kernel, i, j in steps:
            if not kernel:
                known.append(PLAIN[which](m, known[i], known[j]))
                continue
            _, _, twin, enter, leave = STEPS[which]
            args = enter(m, known[i], known[j], at)
            known.append(leave(m, calls[which](*args) if function else twin(m, *args)))
        return (known[-1] * m.cos(known[-1])).sum() + (known[0] * known[-1]).sum()

    return run


def in_torch(steps: list[tuple[int, bool, int, int]], x: np.ndarray, chosen: Any) -> dict[str, tuple[Any, Any]]:
    """{a way to differentiate: (with the kernels, with their twins)}. `chosen`: some of a list of ways."""
    import torch

    at = torch.as_tensor(AT)
    start, v = torch.tensor(x), torch.tensor(x[::-1].copy())
    both = [loss(steps, torch, at, wb.interop.torch.function), loss(steps, torch, at.long(), None)]
    f, functional = torch.func, torch.autograd.functional

    def twice(g: Any) -> Any:
        x = start.clone().requires_grad_()
        (d,) = torch.autograd.grad(g(x), x, create_graph=True)
        (x.sin() * d * d).sum().backward()
        return x.grad

    def by_vectors(g: Any) -> Any:
        x = start.clone().requires_grad_()
        (d,) = torch.autograd.grad(g(x), x, create_graph=True)
        return torch.autograd.grad(d, x, torch.eye(N, dtype=torch.float64), is_grads_batched=True)[0]

    ways: dict[str, Callable[[Any], Any]] = {
        "grad": lambda g: f.grad(g)(start),
        "jvp": lambda g: f.jvp(g, (start,), (v,))[1],
        "double backward": twice,
        "batched gradients": by_vectors,
        "functional.hessian": lambda g: functional.hessian(g, start),
        "functional.hessian, vectorized": lambda g: functional.hessian(g, start, vectorize=True),
        "functional.hessian, forward": lambda g: functional.hessian(
            g, start, vectorize=True, outer_jacobian_strategy="forward-mode"
        ),
        "functional.hvp": lambda g: functional.hvp(g, start, v)[1],
        "hessian": lambda g: f.hessian(g)(start),
        "jacrev of jacrev": lambda g: f.jacrev(f.jacrev(g))(start),
        "jacfwd of jacfwd": lambda g: f.jacfwd(f.jacfwd(g))(start),
        "jacrev of jacfwd": lambda g: f.jacrev(f.jacfwd(g))(start),
        "vmap of grad": lambda g: f.vmap(f.grad(g))(torch.stack([start, v])),
        "grad of vmap": lambda g: f.grad(lambda x: f.vmap(g)(torch.stack([x, v * x])).sin().sum())(start),
        "third": lambda g: f.jacrev(f.hessian(g))(start),
    }
    found = {}
    for name in chosen(list(ways)):
        try:
            want = ways[name](both[1])
        except RuntimeError:  # there is nothing that torch itself could be compared with
            continue
        found[name] = np.asarray(ways[name](both[0]).detach()), np.asarray(want.detach())
    return found


def in_jax(steps: list[tuple[int, bool, int, int]], x: np.ndarray, chosen: Any) -> dict[str, tuple[Any, Any]]:
    """As `in_torch`. JAX must have 64-bit types switched on."""
    import jax

    jnp = jax.numpy
    start, v, at = jnp.asarray(x), jnp.asarray(x[::-1].copy()), jnp.asarray(AT)
    both = [loss(steps, jnp, at, function) for function in (wb.interop.jax.function, None)]
    ways: dict[str, Callable[[Any], Any]] = {
        "grad": lambda g: jax.grad(g)(start),
        "jvp": lambda g: jax.jvp(g, (start,), (v,))[1],
        "jit": lambda g: jax.jit(jax.grad(g))(start),
        "hessian": lambda g: jax.hessian(g)(start),
        "jacrev of jacrev": lambda g: jax.jacrev(jax.jacrev(g))(start),
        "jacrev of jacfwd": lambda g: jax.jacrev(jax.jacfwd(g))(start),
        "vmap of grad": lambda g: jax.vmap(jax.grad(g))(jnp.stack([start, v])),
        "grad of vmap": lambda g: jax.grad(lambda x: jnp.sin(jax.vmap(g)(jnp.stack([x, v * x]))).sum())(start),
        "third": lambda g: jax.jvp(jax.hessian(g), (start,), (v,))[1],
    }
    return {name: tuple(np.asarray(ways[name](g)) for g in both) for name in chosen(list(ways))}  # type: ignore[misc]


def differing(seed: int, framework: Callable[..., dict[str, tuple[Any, Any]]]) -> list[str]:
    """What differs between kernels and twins in the program of this seed, in three ways. Raises what it raises."""
    rng = random.Random(seed)
    steps = program(rng)
    x = np.array([rng.uniform(0.2, 1.1) * rng.choice([1, 1, -1]) for _ in range(N)])
    wrong = []
    for name, (got, want) in framework(steps, x, lambda ways: rng.sample(ways, 3)).items():
        size = np.abs(want).max()
        if got.shape != want.shape or not np.allclose(got, want, rtol=1e-9, atol=1e-10 * max(1.0, size)):
            wrong.append(f"seed {seed}, {name}: {got.tolist()} instead of {want.tolist()}")
    return wrong


def main(count: int, first: int = 0) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    found = 0
    for seed in range(first, first + count):
        wb.config.backend = "c" if seed % 8 else "numpy"
        for line in differing(seed, in_jax if seed % 4 == 0 else in_torch):
            sys.stdout.write(line + "\n")
            found += 1
        if (seed + 1) % 50 == 0:
            sys.stdout.write(f"{seed + 1 - first} programs, {found} differences\n")
            sys.stdout.flush()
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

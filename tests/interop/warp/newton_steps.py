"""Scenes for Newton's solvers, watched: exact gradients beside differences and beside Warp's own.

    python tests/interop/warp/newton_steps.py ["cloth, XPBD" ...]     table: scene, events, verdicts, errors, seconds

Warp compiles the solvers for minutes when they are first used; it keeps what it made.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

import newton_scenes
import numpy as np
import warp as wp

import workbench as wb
from workbench.derivatives.differences import verdict

RTOL, WAYS = 1e-2, 3  # what float32 can tell, and how many directions are tried
NOISE = 4.0  # units in the last place of what is summed


def seed_of(run: Any) -> np.ndarray:
    """Of the shape of the results."""
    return np.random.default_rng(3).standard_normal(run.out(run).numpy().shape).astype(np.float32)


def watched(run: Any, seed: np.ndarray, check: str = "gradient") -> tuple[Any, np.ndarray]:
    """What was seen of a run with a backward of Warp's, and Warp's gradient of what is given."""
    given = run.given(run)
    with wb.interop.warp.watch(check=check) as seen:
        with wp.Tape() as tape:
            run.simulate()
        out = run.out(run)  # not before: some solvers put another array into the state
        tape.backward(grads={out: wp.array(seed, dtype=out.dtype, device="cpu")})
    return seen, np.array(given.grad.numpy(), np.float64)


def exact(run: Any, seen: Any, seed: np.ndarray) -> np.ndarray:
    seen.backward(grads={run.out(run): seed})
    return np.array(seen.gradients[run.given(run)], np.float64)


def loss(name: str, seed: np.ndarray, moved: np.ndarray) -> float:
    """The seeded sum of the results of a fresh run, whose given array is moved by so much."""
    run = newton_scenes.SCENES[name]()
    given = run.given(run)
    given.assign((given.numpy() + moved).astype(np.float32))
    run.simulate()
    return float((run.out(run).numpy().astype(np.float64) * seed).sum())


def by_differences(name: str, seed: np.ndarray, found: np.ndarray) -> list[tuple[str, float, float]]:
    """(verdict, the exact slope, the slope by differences) along some directions, the first that of the gradient."""
    rng, still = np.random.default_rng(5), loss(name, seed, np.zeros(found.shape))
    run = newton_scenes.SCENES[name]()
    run.simulate()
    noise = NOISE * float(np.abs(np.spacing(run.out(run).numpy().astype(np.float32)) * seed).sum())
    told = []
    for n in range(WAYS):
        way = found if n == 0 and np.isfinite(found).all() and np.any(found) else rng.standard_normal(found.shape)
        way = way / np.linalg.norm(way)
        slope = float((found * way).sum())
        told.append((*_told(lambda t, way=way: loss(name, seed, t * way) - still, slope, noise),))
    return told


def _told(f: Any, slope: float, noise: float) -> tuple[str, float, float]:
    told, best = verdict(f, slope, 1e-2, noise, RTOL)
    return told, slope, best


def row(name: str) -> list[str]:
    newton_scenes.SCENES[name]().simulate()  # compiled
    run = newton_scenes.SCENES[name]()
    seed = seed_of(run)
    began = time.perf_counter()
    run.simulate()
    plain = time.perf_counter() - began
    watched(newton_scenes.SCENES[name](), seed, "forward")
    run = newton_scenes.SCENES[name]()
    began = time.perf_counter()
    with wb.interop.warp.watch(check="forward"):
        run.simulate()
    seconds = time.perf_counter() - began
    run = newton_scenes.SCENES[name]()
    seen, own = watched(run, seed)
    opaque = [f"{s.label}: {s.reason}" for s in seen.steps if s.kind == "opaque" or s.reason]
    for line, n in Counter(opaque).items():
        print("  opaque", n, line)
    for step in seen.steps:
        if step.difference is not None:
            d = step.difference
            print(f"  apart {step} ours {d.ours} theirs {d.theirs} ulps {d.ulps:.3g} share {d.share:.2g}")
    for r in seen.compare():
        if r.verdict in ("wrong", "unverified"):
            print("  row", "; ".join(r.texts()))
    counts = Counter(r.verdict for r in seen.compare())
    try:
        found = exact(run, seen, seed)
        told = by_differences(name, seed, found)
        apart = max(abs(a - b) for _, a, b in told) / max(max(abs(b) for _, _, b in told), 1e-30)
        size = np.abs(found).max() or 1.0
        near, warps = f"{apart:.1e} ({', '.join(t[0] for t in told)})", f"{abs(own - found).max() / size:.1e}"
        for t in told:
            print("  slope", t)
    except wb.WorkbenchError as error:
        near, warps = str(error).splitlines()[0], ""
    verdicts = ", ".join(f"{n} {v}" for v, n in counts.items())
    return [name, str(len(seen.steps)), str(len(opaque)), near, warps, verdicts, f"{plain:.2f}", f"{seconds:.2f}"]


def main() -> None:
    wp.config.quiet = True
    wp.set_device("cpu")
    print("| scene | events | opaque | from differences | Warp's from exact | verdicts | s plain | s watched |")
    print("|---|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or newton_scenes.SCENES:
        try:
            print("| " + " | ".join(row(name)) + " |", flush=True)
        except Exception as error:  # noqa: BLE001  the others are asked too
            print(f"| {name} | {type(error).__name__}: {str(error)[:300]} |", flush=True)


if __name__ == "__main__":
    main()

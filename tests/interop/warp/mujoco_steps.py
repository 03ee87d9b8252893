"""A step of MuJoCo Warp, watched: its Jacobians by the exact adjoint, and its own differences.

    python tests/interop/warp/mujoco_steps.py ["double pendulum" ...]     table: model, events, errors, seconds

Warp compiles the step for minutes when it is first used; it keeps what it made.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import warp
from mujoco_models import Jacobian, by_differences, models as first_models, moved, position_tangent, start, truth
from mujoco_more_models import more_models

import workbench as wb

DIFFERENCES = 1e-2, 3e-3, 1e-3, 3e-4, 1e-4


def models() -> dict[str, Any]:
    """All models by name."""
    return first_models() | more_models()


def put(made: Any, qpos: Any, qvel: Any, ctrl: Any, warm: Any = None) -> Any:
    """MuJoCo Warp's data at a state. `warm`: the acceleration that its solver begins with, zero if None."""
    data = mujoco.MjData(made)
    data.qpos[:], data.qvel[:] = qpos, qvel
    data.ctrl[:] = ctrl
    found = mujoco_warp.put_data(made, data)
    if warm is not None:
        found.qacc_warmstart.assign(np.array(warm, np.float32)[None])
    return found


def watched(made: Any, data: Any, warm: Any = None, tolerance: float | None = None) -> tuple[Any, Any]:
    """One step under the watch: what was seen, and MuJoCo Warp's data after it.

    `tolerance`: of the solver; MuJoCo Warp raises a model's own to 1e-6.
    """
    m, d = mujoco_warp.put_model(made), put(made, data.qpos, data.qvel, data.ctrl, warm)
    if tolerance is not None:
        m.opt.tolerance.fill_(tolerance)
    with wb.interop.warp.watch(check="forward") as seen:
        mujoco_warp.step(m, d)
    return seen, d


def watched_worlds(made: Any, states: list[Any]) -> tuple[Any, Any]:
    """One step of several worlds in one call, each from the state of one of MuJoCo's data."""
    m, d = mujoco_warp.put_model(made), mujoco_warp.put_data(made, states[0], nworld=len(states))
    for name in ("qpos", "qvel", "ctrl"):
        getattr(d, name).assign(np.stack([getattr(data, name) for data in states]).astype(np.float32))
    d.qacc_warmstart.zero_()
    with wb.interop.warp.watch(check="forward") as seen:
        mujoco_warp.step(m, d)
    return seen, d


def exact(made: Any, qpos: Any, seen: Any, d: Any, world: int = 0) -> Jacobian:
    """A and B of one world of the watched step in tangent coordinates; `qpos`: where it started.

    Raises AssertionError where an adjoint goes from one world to another.
    """
    given = [d.qpos, d.qvel] + ([d.ctrl] if made.nu else [])
    rows = []
    for out in (d.qpos, d.qvel):
        for k in range(out.shape[1]):
            seed = np.zeros(out.shape, np.float32)
            seed[world, k] = 1
            seen.backward(grads={out: seed})
            found = [np.array(seen.gradients[x], np.float64) for x in given]
            assert not any(np.delete(x, world, axis=0).any() for x in found)
            rows.append(np.concatenate([x[world] for x in found]))
    whole, nq = np.array(rows), made.nq
    after = np.linalg.pinv(position_tangent(made, d.qpos.numpy()[world]))
    whole = np.concatenate([after @ whole[:nq], whole[nq:]])
    by_qpos = whole[:, :nq] @ position_tangent(made, qpos)
    return Jacobian(np.concatenate([by_qpos, whole[:, nq : nq + made.nv]], 1), whole[:, nq + made.nv :])


def at_distances_of(made: Any, data: Any, d: Any) -> Any:
    """MuJoCo's data moved so little that its contacts have the distances that MuJoCo Warp's have in float32."""

    def contacts(qpos: Any) -> tuple[np.ndarray, np.ndarray]:
        at = mujoco.MjData(made)
        at.qpos[:], at.qvel[:] = qpos, data.qvel
        mujoco.mj_forward(made, at)
        return at.contact.dist.copy(), at.contact.pos.copy()

    own, places = contacts(data.qpos)
    theirs = zip(d.contact.dist.numpy()[: len(own)], d.contact.pos.numpy(), strict=False)
    apart = np.zeros(len(own))
    for dist, place in theirs:
        k = int(np.argmin(np.linalg.norm(places - place, axis=1)))
        apart[k] = dist - own[k]
    size = 1e-7
    slopes = [(contacts(moved(made, data.qpos, size * row))[0] - own) / size for row in np.eye(made.nv)]
    found = mujoco.MjData(made)
    found.qpos[:] = moved(made, data.qpos, np.linalg.pinv(np.stack(slopes, 1), rcond=1e-4) @ apart)
    found.qvel[:], found.ctrl[:] = data.qvel, data.ctrl
    return found


def differences(made: Any, data: Any, size: float, warm: Any = None) -> Jacobian:
    """Central differences of the step of MuJoCo Warp, which computes in float32."""
    m = mujoco_warp.put_model(made)

    def step(qpos: Any, qvel: Any, ctrl: Any) -> tuple[Any, Any]:
        d = put(made, qpos, qvel, ctrl, warm)
        mujoco_warp.step(m, d)
        return d.qpos.numpy()[0].astype(np.float64), d.qvel.numpy()[0].astype(np.float64)

    return by_differences(made, data, step, size)


def error(a: Jacobian, b: Jacobian) -> float:
    """The largest difference, relative to the largest entry of b."""
    both = [(x, y) for x, y in ((a.A, b.A), (a.B, b.B)) if x.size]
    return max(float(abs(x - y).max()) for x, y in both) / max(float(abs(y).max()) for _, y in both)


def main() -> None:
    warp.config.quiet = True
    warp.set_device("cpu")
    print("| model | events | opaque | from transitionFD | from differences (step) | s plain | watched | Jacobian |")
    print("|---|---|---|---|---|---|---|---|")
    for name, model in models().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        made, data = start(model)
        right = truth(made, data)
        m = mujoco_warp.put_model(made)
        mujoco_warp.step(m, put(made, data.qpos, data.qvel, data.ctrl))
        d = put(made, data.qpos, data.qvel, data.ctrl)
        began = time.perf_counter()
        mujoco_warp.step(m, d)
        plain = time.perf_counter() - began
        watched(made, data)
        began = time.perf_counter()
        seen, d = watched(made, data)
        seconds = time.perf_counter() - began
        opaque = [f"{s.label}: {s.reason}" for s in seen.steps if s.kind == "opaque"]
        began = time.perf_counter()
        found = exact(made, data.qpos, seen, d)
        walk = time.perf_counter() - began
        near, h = min((error(found, differences(made, data, h)), h) for h in DIFFERENCES)
        sizes = f"{len(seen.steps)} | {len(opaque)} | {error(found, right):.1e} | {near:.1e} ({h:g})"
        print(f"| {name} | {sizes} | {plain:.2f} | {seconds:.2f} | {walk:.2f} |", flush=True)
        for line in opaque:
            print("  opaque", line)


if __name__ == "__main__":
    main()

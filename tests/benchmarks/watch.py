"""What `wb.interop.warp.watch()` costs: seconds of Warp programs without and with it.

    python tests/benchmarks/watch.py [name ...]

The columns: program, events, ms without and with the watch, their ratio, and

first   the same work as a process first watches it, wall time, with what is read, differentiated and compiled.
again   as a second watch of the process first sees it.

Needs warp-lang; the pendulum needs mujoco-warp too. Each figure is the best of several rounds, of the time that the
process itself takes (so that other work on the machine counts less).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp

import workbench as wb

ROUNDS = 7
SMALL, LARGE = 64, 1 << 22


@wp.kernel
def move(
    x: wp.array(dtype=wp.vec3),
    v: wp.array(dtype=wp.vec3),
    f: wp.array(dtype=wp.vec3),
    m: wp.array(dtype=float),
    k: wp.array(dtype=float),
    rest: wp.array(dtype=float),
    y: wp.array(dtype=wp.vec3),
    w: wp.array(dtype=wp.vec3),
    dt: float,
):
    i = wp.tid()
    pull = -k[i] * (wp.length(x[i]) - rest[i]) * wp.normalize(x[i])
    w[i] = v[i] + dt * (pull + f[i]) / m[i]
    y[i] = x[i] + dt * w[i]


@wp.kernel
def wave(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = wp.sin(x[i]) * wp.sqrt(1.0 + x[i] * x[i])


@wp.kernel
def total(x: wp.array(dtype=wp.vec3), loss: wp.array(dtype=float)):
    i = wp.tid()
    wp.atomic_add(loss, 0, wp.dot(x[i], x[i]))


class Springs:
    """Small states, one for each step."""

    def __init__(self, steps: int, requires_grad: bool = False):
        random = np.random.default_rng(0)
        given = {"device": "cpu", "requires_grad": requires_grad}
        self.x = [wp.array(random.normal(size=(SMALL, 3)), dtype=wp.vec3, **given) for _ in range(steps + 1)]
        self.v = [wp.zeros(SMALL, dtype=wp.vec3, **given) for _ in range(steps + 1)]
        self.f = wp.zeros(SMALL, dtype=wp.vec3, **given)
        self.numbers = [wp.ones(SMALL, dtype=float, **given) for _ in range(3)]
        self.loss = wp.zeros(1, dtype=float, **given)

    def run(self) -> None:
        for n in range(len(self.x) - 1):
            given = [self.x[n], self.v[n], self.f, *self.numbers]
            wp.launch(move, SMALL, given, [self.x[n + 1], self.v[n + 1], 1e-3], device="cpu")


def small() -> Callable[[], None]:
    """200 launches of 64 threads, eight arrays each."""
    return Springs(200).run


def large() -> Callable[[], None]:
    """A launch of four million threads, four times."""
    x, y = wp.full(LARGE, 0.5, dtype=float, device="cpu"), wp.zeros(LARGE, dtype=float, device="cpu")

    def run() -> None:
        for _ in range(2):
            wp.launch(wave, LARGE, [x], [y], device="cpu")
            wp.launch(wave, LARGE, [y], [x], device="cpu")

    return run


def backward() -> Callable[[], None]:
    """A tape of 50 small launches and its backward."""
    springs = Springs(50, requires_grad=True)

    def run() -> None:
        with wp.Tape() as tape:
            springs.run()
            wp.launch(total, SMALL, [springs.x[-1]], [springs.loss], device="cpu")
        tape.backward(springs.loss)
        tape.zero()
        springs.loss.zero_()

    return run


def captured() -> Callable[[], None]:
    """A captured graph of 50 small launches that goes on from its last state, launched four times."""
    springs = Springs(50)
    springs.run()
    graph: list[Any] = []

    def run() -> None:
        if not graph:
            with wp.ScopedCapture(device="cpu") as capture:
                springs.run()
                wp.copy(springs.x[0], springs.x[-1])
                wp.copy(springs.v[0], springs.v[-1])
            graph.append(capture.graph)
        for _ in range(4):
            wp.capture_launch(graph[0])

    run.fresh = graph.clear  # type: ignore[attr-defined]  a watch knows the graphs that were captured in it
    return run


def fluid() -> Callable[[], None]:
    """A step of the fluid example that Warp ships."""
    from warp.examples.core.example_fluid import Example

    with wp.ScopedDevice("cpu"):
        example = Example()

    def run() -> None:
        with wp.ScopedDevice("cpu"):
            example.step()

    return run


def pendulum() -> Callable[[], None]:
    """A step of MuJoCo Warp on a double pendulum."""
    import mujoco_warp

    sys.path.insert(0, str(Path(__file__).parents[1] / "interop" / "warp"))
    from mujoco_models import models, start
    from mujoco_steps import put

    made, data = start(models()["double pendulum"])
    m, d = mujoco_warp.put_model(made), put(made, data.qpos, data.qvel, data.ctrl)
    return lambda: mujoco_warp.step(m, d)


PROGRAMS = {f.__name__: f for f in (small, large, backward, captured, fluid, pendulum)}


def best(run: Callable[[], None]) -> float:
    """The least time of the process for one run, in ms, without what the first one compiles."""
    run()
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return 1e3 * min(times)


def first(run: Callable[[], None]) -> float:
    """The wall time of one run at the begin of a watch, in ms."""
    began = time.perf_counter()
    with wb.interop.warp.watch():
        run()
    return 1e3 * (time.perf_counter() - began)


def main() -> None:
    wp.config.log_level = wp.LOG_WARNING
    wp.init()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; warp {wp.__version__}")
    print("| program | events | ms without | ms with | ratio | first ms | again ms |")
    print("|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or PROGRAMS:
        if name == "pendulum" and importlib.util.find_spec("mujoco_warp") is None:
            continue
        run = PROGRAMS[name]()
        run()
        fresh: Callable[[], None] = getattr(run, "fresh", lambda: None)
        fresh()
        opening = first(run)
        fresh()
        again = first(run)
        fresh()
        alone = best(run)
        fresh()
        with wb.interop.warp.watch() as seen:
            run()
            events = len(seen.steps)
            watched = best(run)
        fresh()
        alone = min(alone, best(run))
        row = f"| {name} | {events} | {alone:.2f} | {watched:.2f} | {watched / alone:.1f} |"
        print(f"{row} {opening:.0f} | {again:.0f} |", flush=True)


if __name__ == "__main__":
    main()

"""Launches of a capture that run tile by tile give the bits of launch by launch."""

from __future__ import annotations

import random

import numpy as np
import pytest

import workbench as wb
from workbench.arrays import capture_log
from workbench.launches import thresholds
from workbench.launches.row_footprint import ANYWHERE, Reach
from workbench.tapes import time_tiles


@wb.kernel
def blend(x: wb.array[float], y: wb.array[float], z: wb.array[float], a: int, b: int, low: int, high: int):
    i = wb.tid()
    if i >= low and i < high:
        z[i] = 0.75 * x[i + a] - 0.5 * y[i + b] * x[i]


@wb.kernel
def scatter(x: wb.array[float], z: wb.array[float], a: int, low: int, high: int):
    i = wb.tid()
    if i >= low and i < high and x[i] > 0.1:
        wb.atomic_add(z, i + a, 0.25 * x[i])


@wb.kernel
def around(x: wb.array[float], z: wb.array[float], reach: int, low: int, high: int):
    i = wb.tid()
    if i >= low and i < high:
        total = 0.0
        for k in range(2 * reach + 1):
            total += x[i + k - reach]
        z[i] = 0.3 * total


@wb.kernel
def gathered(x: wb.array[float], z: wb.array[float], index: wb.array[int]):
    i = wb.tid()
    z[i] = x[index[i]]


@wb.kernel
def total(x: wb.array[float], z: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(z, 0, 0.01 * x[i])


@wb.kernel
def plane(x: wb.array2d[float], y: wb.array2d[float], z: wb.array2d[float], a: int, b: int, low: int, high: int):
    i, j = wb.tid()
    if i >= low and i < high and j >= low and j < high:
        z[i, j] = 0.5 * x[i + a, j] - 0.25 * y[i, j + b] + 0.25 * x[i, j]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small grids are cut too."""
    monkeypatch.setattr(time_tiles, "CACHE", 256)
    monkeypatch.setattr(thresholds, "PARALLEL_FROM", 0)
    monkeypatch.setattr(thresholds, "WAKE_FROM", 0)
    wb.config.backend = "c"


def program_1d(seed: int, racing: bool):
    """Launches on four arrays and on parts of one more, as functions; and those arrays."""
    chance = random.Random(seed)
    n = chance.choice((97, 160, 400))
    rng = np.random.default_rng(seed)
    whole = wb.array(rng.random(3 * n + 8).astype(np.float32))
    own = [wb.array(rng.random(n).astype(np.float32)) for _ in range(4)]
    parts = [whole[k : k + n] for k in (0, n, n + chance.randint(1, 4), 2 * n + 5)]
    index = wb.array(rng.integers(0, n, n).astype(np.int32))
    made = []
    for _ in range(chance.randint(8, 30)):
        x, y = chance.choice(own + parts), chance.choice(own + parts)
        z = chance.choice(own + parts[1:] if racing else [v for v in own if v is not x and v is not y])
        kind = chance.choice(("blend",) * 8 + ("around",) * 3 + ("scatter",) * 2 + ("gathered", "total"))
        a, b = chance.randint(-3, 3), chance.randint(-3, 3)
        low, high = 3 + chance.randint(0, 2), n - 3 - chance.randint(0, 2)
        if kind == "blend":
            made.append((blend, [x, y, z, a, b, low, high]))
        elif kind == "around":
            made.append((around, [x, z, abs(a), low, high]))
        elif kind == "scatter":
            made.append((scatter, [x, z, a, low, high]))
        elif racing:
            made.append((gathered, [x, z, index]) if kind == "gathered" and x is not z else (total, [x, z]))
    return (lambda: [wb.launch(k, n, args) for k, args in made]), [*own, whole]


def program_2d(seed: int):
    chance = random.Random(seed)
    n = chance.choice((24, 40, 64))
    rng = np.random.default_rng(seed)
    own = [wb.array(rng.random((n, n)).astype(np.float32)) for _ in range(4)]
    seen = [*own, own[3].transpose()]
    made = []
    for _ in range(chance.randint(5, 20)):
        z = chance.choice(own[:3])
        x, y = chance.choice([v for v in seen if v is not z]), chance.choice(seen)
        if y is z:
            y = x
        made.append([x, y, z, chance.randint(-2, 2), chance.randint(-2, 2), 2, n - 2])
    return (lambda: [wb.launch(plane, (n, n), args) for args in made]), own


def bits_after(program, tiled: bool, threads: int) -> tuple[list[bytes], int]:
    """What the arrays hold after three replays, and how many native calls one is."""
    wb.config.tile_captures, wb.config.threads = tiled, threads
    run, arrays = program()
    with wb.capture() as graph:
        run()
    for _ in range(3):
        graph.replay()
    return [a.numpy().tobytes() for a in arrays], len(time_tiles.tiled(noted(graph), []))


def noted(graph: wb.Capture) -> list[capture_log.NativeCall]:
    """The native calls of a capture, in order."""
    assert graph.graph is not None
    return graph.graph.notes.steps


@pytest.mark.parametrize("seed", range(10))
def test_random_programs_of_stencils_keep_their_bits(seed: int) -> None:
    racing = seed % 3 == 0  # threads that read what others write: their order is that of one worker, tiled or not
    made = (lambda: program_2d(seed)) if seed % 4 == 1 else lambda: program_1d(seed, racing)
    expected, _ = bits_after(made, False, 1)
    for threads in (1,) if racing and seed % 4 != 1 else (1, 2):
        assert bits_after(made, True, threads)[0] == expected, threads


def gradients_after(seed: int, tiled: bool, threads: int) -> tuple[list[bytes], int]:
    """The gradients of a random program after two replays, and how many native calls one is."""
    wb.config.tile_captures, wb.config.threads = tiled, threads
    run, arrays = program_2d(seed) if seed % 3 == 0 else program_1d(seed, False)
    for a in arrays:
        a.requires_grad = True
    tape, seeds = wb.Tape(), {a: wb.ones(a.shape) for a in arrays[:2]}
    with wb.capture() as graph:
        tape.zero()
        with tape:
            run()
        tape.backward(grads=seeds)
    for _ in range(2):
        graph.replay()
    native = [s for s in noted(graph) if isinstance(s, capture_log.NativeCall)]
    return [a.grad.numpy().tobytes() for a in arrays], len(time_tiles.tiled(native, []))


@pytest.mark.parametrize("seed", [5000, 5001])
def test_gradients_of_random_programs_keep_their_bits(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    for threads in (1, 2):
        expected, launched = gradients_after(seed, False, threads)
        found, tiled = gradients_after(seed, True, threads)
        assert found == expected, threads
        assert tiled < launched


def test_a_loop_over_time_is_two_calls_for_many_launches() -> None:
    def made():
        fields = [wb.array(np.linspace(0, k, 2000, dtype=np.float32)) for k in range(3)]

        def run() -> None:
            for t in range(32):
                x, y, z = (fields[(t + k) % 3] for k in range(3))
                wb.launch(blend, 2000, [x, y, z, 1, -1, 1, 1999])

        return run, fields

    launched, tiled = (bits_after(made, on, 1) for on in (False, True))
    assert launched[0] == tiled[0]
    assert (launched[1], tiled[1]) == (32, 2)


def test_threads_that_meet_keep_their_order() -> None:
    """In place, a launch reads what the thread before it wrote: no two rows of it may change places."""
    x = wb.array(np.ones(300, np.float32))
    with wb.capture() as graph:
        for _ in range(8):
            wb.launch(blend, 300, [x, x, x, -1, -1, 1, 300])
    assert len(time_tiles.tiled(noted(graph), [])) == 8


def test_distances_of_rows_are_those_of_an_enumeration() -> None:
    chance = random.Random(5)
    for _ in range(300):
        stride = chance.choice((4, 8, 12, 40))
        a, b = (_any_reach(chance, stride) for _ in range(2))
        found = a.meets(b)
        apart = {
            s - r
            for r in range(10)
            for s in range(-12, 24)
            if max(a.first + r * stride + a.low, b.first + s * stride + b.low)
            < min(a.first + r * stride + a.high, b.first + s * stride + b.high)
        }
        if found is None:
            meeting = a.writes or b.writes
            assert not meeting or not apart or a.end <= b.begin or b.end <= a.begin
        else:
            assert (min(apart), max(apart)) == found


def _any_reach(chance: random.Random, stride: int) -> Reach:
    first, low = 4 * chance.randint(0, 20), 4 * chance.randint(-4, 4)
    high = low + 4 * chance.randint(1, 5)
    ends = first + low, first + 9 * stride + high
    return Reach(*ends, first, stride, low, high, chance.random() < 0.6)


def test_rows_of_different_length_meet_anywhere() -> None:
    one = Reach(0, 400, 0, 4, 0, 4, True)
    assert one._replace(stride=8).meets(one) == ANYWHERE
    assert one._replace(stride=0).meets(one) == ANYWHERE


@wb.kernel
def swing(up: wb.array[wb.float64], u: wb.array[wb.float64], out: wb.array[wb.float64], k: wb.float64, d: wb.float64):
    i = wb.tid()
    if i > 0 and i < u.shape[0] - 1:
        out[i] = wb.float64(2.0) * u[i] - up[i] + k * (u[i - 1] - wb.float64(2.0) * u[i] + u[i + 1]) - d * wb.sin(u[i])


@wb.kernel
def energy(u: wb.array[wb.float64], e: wb.array[wb.float64]):
    i = wb.tid()
    wb.atomic_add(e, 0, u[i] * u[i])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_gradient_of_a_tiled_loop_is_that_of_differences(threads: int) -> None:
    wb.config.threads, n, steps = threads, 2100, 20
    start = np.sin(np.linspace(0, 9, n)) + 0.2
    u0 = wb.array(start, dtype=wb.float64, requires_grad=True)
    fields = [u0, u0, *(wb.zeros(n, dtype=wb.float64) for _ in range(steps))]
    e, tape = wb.zeros(1, dtype=wb.float64), wb.Tape()

    def forward() -> None:
        e.zero_()
        for t in range(steps):
            wb.launch(swing, n, [*fields[t : t + 3], 0.25, 0.01])
        wb.launch(energy, n, [fields[-1], e])

    with wb.capture() as graph:
        tape.zero()
        with tape:
            forward()
        tape.backward(e)
    graph.replay()
    found = u0.grad.numpy().copy()
    for i in (0, 1, 700, 1049, 1050, 2098, 2099):
        ends = []
        for h in (1e-6, -1e-6):
            moved = start.copy()
            moved[i] += h
            u0.assign(moved)
            forward()
            ends.append(e.numpy()[0])
        assert found[i] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-7)

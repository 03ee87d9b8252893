"""What tapes do with launches of tile kernels: second derivatives, captures, checkpoints, replays."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

V = wb.vec2d
X = np.random.default_rng(3).uniform(0.5, 1.5, (8, 2))


@wb.func
def bend(a: V, b: V):
    return wb.vec2d(a[0] * b[1] * b[1], wb.sin(a[1]) * wb.length(b))


@wb.kernel
def step(x: wb.array[V]):
    i = wb.tid()
    t = wb.tile_load(x, shape=4, offset=4 * i)
    u = wb.tile_map(bend, t, t)
    u[1] = t[0] * u[1][0]
    wb.tile_fft(u)
    wb.tile_store(x, u * wb.float64(0.3), offset=4 * i)


@wb.kernel
def total(x: wb.array[V], out: wb.array[wb.float64]):
    i = wb.tid()
    t = wb.tile_load(x, shape=4, offset=4 * i)
    m = wb.tile_diag_add(wb.tile_zeros(shape=(4, 4), dtype=wb.float64), wb.tile_map(wb.length_sq, t))
    wb.tile_atomic_add(out, wb.tile_sum(wb.tile_cholesky(m)))


def run(values: np.ndarray, keep: str = "needed"):
    start = wb.array(values, dtype=V, requires_grad=True)
    x, out = wb.zeros(8, dtype=V), wb.zeros(1, dtype=wb.float64)
    with wb.Tape(keep=keep) as tape:
        wb.copy(x, start)
        for _ in range(2):
            wb.launch(step, dim=2, inputs=[x], block_dim=32)
        wb.launch_tiled(total, dim=[2], inputs=[x, out], block_dim=64)
    return tape, start, out


def gradient(values: np.ndarray) -> np.ndarray:
    tape, start, out = run(values)
    tape.backward(out)
    return start.grad.numpy().copy()


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivatives_are_those_of_differences(backend):
    wb.config.backend = backend
    direction = np.random.default_rng(4).uniform(-1, 1, X.shape)
    tape, start, out = run(X, "all")
    (found,) = wb.hvp(tape, out, {start: direction}).values()
    wanted = (gradient(X + 1e-6 * direction) - gradient(X - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_a_capture_repeats_launches_and_the_walk_back():
    start = wb.array(X, dtype=V, requires_grad=True)
    x, out, tape = wb.zeros(8, dtype=V), wb.zeros(1, dtype=wb.float64), wb.Tape()
    with wb.capture() as graph:
        out.zero_()
        tape.reset()
        with tape:
            wb.copy(x, start)
            wb.launch_tiled(step, dim=[2], inputs=[x], block_dim=32)
            wb.launch_tiled(total, dim=[2], inputs=[x, out], block_dim=32)
        start.grad.zero_()
        tape.backward(out)
    first = start.grad.numpy().copy()
    start.assign(X * 0.9)
    graph.replay()
    moved = start.grad.numpy().copy()
    start.assign(X)
    graph.replay()
    np.testing.assert_array_equal(start.grad.numpy(), first)
    assert np.abs(moved - first).max() > 1e-3


def test_a_checkpointed_loop_has_the_gradient_of_a_plain_one():
    pytest.importorskip("checkpoint_schedules")
    values = X * 0.8

    def by(simulate) -> np.ndarray:
        start = wb.array(values, dtype=V, requires_grad=True)
        x, out = wb.zeros(8, dtype=V), wb.zeros(1, dtype=wb.float64)
        with wb.Tape() as tape:
            wb.copy(x, start)
            simulate(x)
            wb.launch(total, dim=2, inputs=[x, out])
        tape.backward(out)
        return start.grad.numpy().copy()

    def plain(x) -> None:
        for _ in range(5):
            wb.launch(step, dim=2, inputs=[x])

    @wb.checkpoint(steps=5, budget=2)
    def simulate(k, x):
        wb.launch(step, dim=2, inputs=[x])

    np.testing.assert_array_equal(by(simulate), by(plain))


@wb.kernel
def bent(x: wb.array[V], y: wb.array[V]):
    i = wb.tid()
    t = wb.tile_load(x, shape=4, offset=4 * i)
    wb.tile_store(y, wb.tile_map(bend, t, t), offset=4 * i)


def test_a_tape_of_tiles_is_replayed_on_other_inputs():
    def recorded(values: np.ndarray):
        x, y, z = wb.array(values, dtype=V, requires_grad=True), wb.zeros(8, dtype=V), wb.zeros(8, dtype=V)
        with wb.Tape() as tape:
            wb.launch_tiled(bent, dim=[2], inputs=[x, y], block_dim=32)
            wb.launch_tiled(bent, dim=[2], inputs=[y, z], block_dim=32)
        return tape, x, z

    tape, x, z = recorded(X)
    again = tape.replay({x: X * 0.9})
    np.testing.assert_array_equal(again[z], recorded(X * 0.9)[2].numpy())

"""Threads that add to the same cells, cut among workers: right sums, repeated bit for bit, in one order on request."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.arrays import ports
from workbench.kernels.compile import thread_pool
from workbench.tapes import backward_cache

pytestmark = pytest.mark.needs_cc
N, CELLS = 20_000, 50


@pytest.fixture(autouse=True)
def also_short_launches(monkeypatch):
    monkeypatch.setattr("workbench.launches.thresholds.PARALLEL_FROM", 40_000)
    monkeypatch.setattr("workbench.launches.thresholds.SUMS_FROM", 100_000)


@wb.kernel
def spread(
    x: wb.array(dtype=wb.vec2),
    w: wb.array(dtype=float),
    index: wb.array(dtype=int),
    y: wb.array(dtype=wb.vec2),
    total: wb.array(dtype=float),
):
    i = wb.tid()
    v = x[i] * wb.sin(w[i]) + wb.vec2(w[i] * w[i], 1.0)
    wb.atomic_add(y, index[i], v)
    wb.atomic_add(total, 0, wb.dot(v, v))
    wb.atomic_sub(y, index[N - 1 - i], x[i])


def run(threads, deterministic=False):
    wb.config.threads, wb.config.deterministic = threads, deterministic
    rng = np.random.default_rng(3)
    x = wb.array(rng.uniform(-1, 1, (N, 2)).astype(np.float32), dtype=wb.vec2, requires_grad=True)
    w = wb.array(rng.uniform(0, 1, N).astype(np.float32), requires_grad=True)
    index = wb.array(rng.integers(0, CELLS, N).astype(np.int32), dtype=int)
    y = wb.array(np.ones((CELLS, 2), np.float32), dtype=wb.vec2)
    total = wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(spread, N, inputs=[x, w, index, y, total])
    seed = wb.array(rng.uniform(-1, 1, (CELLS, 2)).astype(np.float32), dtype=wb.vec2)
    tape.backward(grads={y: seed, total: wb.ones(1)})
    shared = tape.launches[0].command.plan.forward.private_sums
    return shared, [a.numpy().copy() for a in (y, total, x.grad, w.grad)]


def wanted():
    rng = np.random.default_rng(3)
    x, w = rng.uniform(-1, 1, (N, 2)).astype(np.float32), rng.uniform(0, 1, N).astype(np.float32)
    index = rng.integers(0, CELLS, N)
    v = x * np.sin(w.astype(float))[:, None] + np.stack([w.astype(float) ** 2, np.ones(N)], 1)
    y = np.ones((CELLS, 2))
    np.add.at(y, index, v)
    np.subtract.at(y, index[::-1], x)
    return y, (v * v).sum()


def test_workers_that_sleep_are_woken_for_shares(monkeypatch):
    from workbench.arrays import capture_log

    native, teams = capture_log.native, []
    monkeypatch.setattr(capture_log, "native", lambda *args: teams.append(args[-1]) or native(*args))
    assert run(3)[0] is not None
    assert teams[0] == thread_pool.team(3, 1), "a team without pieces waits for nobody to wake"


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_sums_of_many_threads_into_few_cells(threads):
    shared, (y, total, dx, dw) = run(threads)
    assert (shared is not None) == (threads > 1)
    want, loss = wanted()
    np.testing.assert_allclose(y, want, rtol=2e-4, atol=2e-3)
    np.testing.assert_allclose(total, loss, rtol=1e-4)
    _, (_, _, dx1, dw1) = run(1)
    np.testing.assert_allclose(dx, dx1, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dw, dw1, rtol=1e-4, atol=1e-4)


def test_a_launch_cut_into_slices_counts_each_thread_once(monkeypatch):
    monkeypatch.setattr("workbench.launches.thresholds.SLICE", 100_000)
    shared, (y, total, _, _) = run(3)
    assert shared is not None
    want, loss = wanted()
    np.testing.assert_allclose(y, want, rtol=2e-4, atol=2e-3)
    np.testing.assert_allclose(total, loss, rtol=1e-4)


def test_a_run_is_repeated_bit_for_bit():
    first, again = run(3)[1], run(3)[1]
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_launch_that_is_interrupted_leaves_nothing_to_the_next(monkeypatch):
    """Control-C between a worker's sums and their merging."""
    from workbench.arrays import capture_log

    want = run(3)[1]

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(capture_log, "merge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(3)
    for a, b in zip(want, run(3)[1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_launch_that_is_interrupted_leaves_nothing_to_a_capture(monkeypatch):
    from workbench.arrays import capture_log

    @wb.kernel
    def sort(x: wb.array(dtype=wb.float64), y: wb.array(dtype=wb.float64)):
        i = wb.tid()
        y[i % 7] += x[i] * x[i] * x[i]

    wb.config.threads = 3
    x, y, z = wb.ones(50_000, dtype=wb.float64), wb.zeros(7, dtype=wb.float64), wb.zeros(7, dtype=wb.float64)
    with wb.capture() as graph:
        y.zero_()
        wb.launch(sort, 50_000, inputs=[x, y])
    want = y.numpy().copy()

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(capture_log, "merge", interrupted)
        with pytest.raises(KeyboardInterrupt):
            wb.launch(sort, 50_000, inputs=[x, z])
    graph.replay()
    np.testing.assert_array_equal(y.numpy(), want)


def test_deterministic_is_one_order_for_any_number_of_workers():
    one = run(1, deterministic=True)
    for threads in (2, 5):
        shared, found = run(threads, deterministic=True)
        assert shared is None
        for a, b in zip(one[1], found, strict=True):
            np.testing.assert_array_equal(a, b)


def test_without_sums_the_number_of_workers_changes_nothing():
    @wb.kernel
    def waves(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = wb.sin(x[i]) * wb.exp(-x[i] * x[i])

    found = []
    for threads in (1, 2, 5):
        wb.config.threads = threads
        x = wb.array(np.linspace(-2, 2, 100_000, dtype=np.float32), requires_grad=True)
        y = wb.zeros(100_000)
        with wb.Tape() as tape:
            wb.launch(waves, 100_000, inputs=[x, y])
        tape.backward(grads={y: wb.ones(100_000)})
        assert tape.launches[0].command.plan.forward.workers == threads
        found.append((y.numpy().copy(), x.grad.numpy().copy()))
    for y, g in found[1:]:
        np.testing.assert_array_equal(y, found[0][0])
        np.testing.assert_array_equal(g, found[0][1])


def test_a_time_loop_in_place_keeps_one_copy_a_step():
    @wb.kernel
    def bend(x: wb.array(dtype=float)):
        i = wb.tid()
        x[i] = x[i] + 0.1 * wb.sin(x[i])

    x = wb.array(np.linspace(0, 1, 1000, dtype=np.float32), requires_grad=True)
    with wb.Tape() as tape:
        for _ in range(20):
            wb.launch(bend, 1000, inputs=[x])
    kept = sum(k.span.nbytes for event in tape.events for k in event.kept)
    assert kept == 20 * x.nbytes
    seed = wb.ones(1000)
    tape.backward(grads={x: seed})
    at, slope = np.linspace(0, 1, 1000), np.ones(1000)
    for _ in range(20):
        slope, at = slope * (1 + 0.1 * np.cos(at)), at + 0.1 * np.sin(at)
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-5)


@wb.struct
class Node:
    force: wb.vec2d
    mass: wb.float64


@wb.struct
class Cell:
    mass: wb.float64


@wb.kernel
def collect(
    nodes: wb.array(dtype=Node),
    cells: wb.array(dtype=Cell),
    count: wb.array(dtype=int),
    total: wb.array(dtype=float),
    index: wb.array(dtype=int),
    x: wb.array(dtype=wb.float64),
):
    i = wb.tid()
    j = index[i]
    nodes[j].mass += x[i] * x[i]
    nodes[j].force -= wb.vec2d(x[i], x[j] * x[i])
    cells[j].mass += x[i] * x[j]
    count[j] += 1
    total[0] += 0.5


@wb.kernel
def fill(
    cells: wb.array(dtype=Cell), total: wb.array(dtype=float), index: wb.array(dtype=int), x: wb.array(dtype=wb.float64)
):
    i = wb.tid()
    cells[index[i]].mass += x[i] * x[i]
    wb.atomic_add(total, 0, 0.5)


@wb.kernel
def weigh(
    nodes: wb.array(dtype=Node), cells: wb.array(dtype=Cell), index: wb.array(dtype=int), y: wb.array(dtype=wb.float64)
):
    j = index[wb.tid()]
    y[wb.tid()] = nodes[j].mass * cells[j].mass + wb.dot(nodes[0].force, nodes[j].force)


def collected(backend, threads, cells):
    wb.config.backend, wb.config.threads = backend, threads
    rng, size = np.random.default_rng(4), 500
    index = wb.array(rng.integers(0, cells, size).astype(np.int32), dtype=int)
    x = wb.array(rng.uniform(-1, 1, size), requires_grad=True)
    nodes, masses = wb.zeros(cells, dtype=Node, requires_grad=True), wb.zeros(cells, dtype=Cell, requires_grad=True)
    count, total, y = wb.zeros(cells, dtype=int), wb.zeros(1), wb.zeros(size, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(collect, size, inputs=[nodes, masses, count, total, index, x])
        wb.launch(fill, size, inputs=[masses, total, index, x])
        wb.launch(weigh, size, inputs=[nodes, masses, index, y])
    tape.backward(grads={y: wb.array(rng.uniform(-1, 1, size))})
    shared = [event.command.plan.forward.private_sums for event in tape.launches]
    shared += [event.reverse.executable.private_sums for event in tape.launches]
    records = [nodes.numpy(), nodes.grad.numpy(), masses.numpy(), masses.grad.numpy()]
    fields = [r[name].copy() for r in records for name in r.dtype.names]
    return shared, [*fields, count.numpy().copy(), total.numpy().copy(), y.numpy().copy(), x.grad.numpy().copy()]


@pytest.mark.slow
@pytest.mark.parametrize("cells", [1, 7])
def test_fields_of_structs_and_mixed_types_are_added_exactly(monkeypatch, cells):
    """Fields lie apart from each other, so only a struct of one field is shared, and nothing beside a count of ints."""
    monkeypatch.setattr("workbench.launches.thresholds.PARALLEL_FROM", 1)
    monkeypatch.setattr("workbench.launches.thresholds.SUMS_FROM", 1)
    _, want = collected("numpy", 1, cells)
    for threads in (1, 3):
        shared, found = collected("c", threads, cells)
        assert shared[0] is None
        assert (shared[1] is not None) == (threads == 3)
        assert shared[1] is None or [t.dtype.itemsize for t in shared[1].targets] == [8, 4]
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@wb.kernel
def queue(
    x: wb.array(dtype=wb.float64),
    index: wb.array(dtype=int),
    count: wb.array(dtype=int),
    y: wb.array(dtype=wb.float64),
    bins: wb.array(dtype=wb.float64),
):
    i = wb.tid()
    slot = wb.atomic_add(count, 0, 1)
    y[slot] = x[index[i]] * x[index[i]] * wb.float64(slot)
    bins[index[i]] += x[index[i]] * wb.float64(slot)


def test_what_repeats_an_atomic_is_not_cut():
    """The adjoint and the tangent of a counter go through one copy of it, thread after thread."""
    wb.config.threads = 4
    rng, size, slot = np.random.default_rng(5), 50_000, np.arange(50_000.0)
    index, seed = rng.integers(0, 10, size).astype(np.int32), rng.uniform(-1, 1, size)
    x = wb.array(rng.uniform(-1, 1, 10), requires_grad=True)
    y, bins = wb.zeros(size, dtype=wb.float64), wb.zeros(10, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(queue, size, inputs=[x, wb.array(index, dtype=int), wb.zeros(1, dtype=int), y, bins])
    moved = wb.jvp(tape, {x: np.ones(10)})
    rows = np.bincount(index, slot, 10)
    np.testing.assert_allclose(moved[y], 2 * x.numpy()[index] * slot, rtol=1e-12)
    np.testing.assert_allclose(moved[bins], rows, rtol=1e-12)
    tape.backward(grads={y: wb.array(seed), bins: wb.ones(10, dtype=wb.float64)})
    assert tape.launches[0].reverse.executable.contested
    want = np.bincount(index, 2 * x.numpy()[index] * seed * slot, 10) + rows
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-9)


@wb.kernel
def scaled_into_cells(x: wb.array[float], k: float, direction: wb.vec2, index: wb.array[int], y: wb.array[wb.vec2]):
    i = wb.tid()
    wb.atomic_add(y, index[i], wb.sin(x[i] * k) * direction)


@wb.kernel
def squares(y: wb.array[wb.vec2], index: wb.array[int], loss: wb.array[float]):
    wb.atomic_add(loss, 0, wb.dot(y[index[wb.tid()]], y[index[wb.tid()]]))


def turns_of_a_loop(remember):
    wb.config.threads, wb.config.remember_launches = 2, remember
    backward_cache.forget()
    rng = np.random.default_rng(3)
    x = wb.array(rng.uniform(-1, 1, N).astype(np.float32), requires_grad=True)
    index = wb.array(rng.integers(0, CELLS, N).astype(np.int32))
    y, loss, found = wb.zeros(CELLS, dtype=wb.vec2), wb.zeros(1), []
    for turn in range(8):
        y.zero_(), loss.zero_()
        with wb.Tape() as tape:
            wb.launch(scaled_into_cells, N, [x, 1.0 + 0.1 * turn, wb.vec2(1.0, 0.5 * turn), index], [y])
            wb.launch(squares, N, [y, index], [loss])
        tape.backward(loss)
        found.append(x.grad.numpy().tobytes())
        tape.zero()
    found += [y.numpy().tobytes(), loss.numpy().tobytes()]
    shared = [event.command.plan.forward.private_sums is not None for event in tape.launches]
    shared += [event.reverse.executable.private_sums is not None for event in tape.launches]
    return found, shared


def test_a_loop_with_private_sums_runs_as_a_list_and_its_numbers_change(monkeypatch):
    lists, run = [], backward_cache.CompiledBackward.run
    monkeypatch.setattr(ports, "gradient_takers", [])  # another file may have imported PyTorch, which ends all lists
    monkeypatch.setattr(backward_cache.CompiledBackward, "run", lambda *given: (lists.append(given[0]), run(*given))[1])
    plain = turns_of_a_loop(False)
    assert not lists
    assert turns_of_a_loop(True) == plain and plain[1] == [True, True, False, True]
    assert lists

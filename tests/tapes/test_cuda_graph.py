"""CUDA graphs of captures, on a stand-in for CuPy whose kernels are generated C. Nothing here shows what CUDA does."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import workbench as wb
from tests.support.stand_in_gpu import Stream, install, only_ports
from workbench import device
from workbench.errors import BoundsError
from workbench.launches import executable as executables

pytestmark = pytest.mark.needs_cc


@pytest.fixture
def gpu(monkeypatch):
    return install(monkeypatch)


@wb.kernel
def square(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def first(x: wb.array(dtype=float), index: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[index[i]]


def leaf(values, where="cuda:0"):
    return wb.array(np.array(values, np.float32), requires_grad=True, device=where)


def walk(where: str):
    """A tape with its walk back, zeroed in the block; host writes, a copy of an array onto itself."""
    x, y, z = leaf([1, 2, 3], where), *(wb.zeros(3, requires_grad=True, device=where) for _ in range(2))
    seed, tape, spare = leaf([1, 1, 2], where), wb.Tape(), wb.zeros(4, device=where)

    def block():
        tape.zero()
        tape.reset()
        with tape:
            wb.launch(square, 3, inputs=[x, y])
            y[0:1].fill_(4.0)
            wb.launch(square, 3, inputs=[y, z])
        tape.backward(grads={z: seed})
        spare[0:3].assign(x)
        spare[1:4].assign(spare[0:3])

    return block, (x, y, z, x.grad, spare), x


def test_replays_of_a_graph_compute_what_the_cpu_does(gpu):
    block, found, x = walk("cuda:0")
    expected, want, u = walk("cpu")
    with wb.capture() as graph:
        block()
    gpu.log.clear()
    for k in range(3):
        for a in (x, u):
            a.assign(np.array([k + 1, 5, 7], np.float32))
        gpu.log.clear()
        expected()
        graph.replay()
        assert gpu.log == ["begin", "end", "graph on 7"][0 if k == 0 else 2 :]
        for a, b in zip(found, want, strict=True):
            assert a.list() == b.list()


def test_memory_that_the_steps_take_on_the_way_lives_as_long_as_the_graph(gpu):
    block, _, _ = walk("cuda:0")
    with wb.capture() as graph:
        block()
    assert gpu.pooled == []
    graph.replay()
    gc.collect()
    assert len(gpu.pooled) == 1 and all(ref() is not None for ref in gpu.pooled)
    graph.replay()
    assert len(gpu.pooled) == 1
    del graph
    gc.collect()
    assert all(ref() is None for ref in gpu.pooled)


def test_a_graph_is_launched_on_the_present_stream_between_what_torch_did_and_will_do(gpu, monkeypatch):
    x, y = leaf([1, 2]), wb.zeros(2, device="cuda:0")
    with wb.capture() as graph:
        wb.launch(square, 2, inputs=[x, y])
        wb.launch(square, 2, inputs=[y, y])
    monkeypatch.setattr(device, "followed", [lambda ordinal: 9])
    gpu.log.clear()
    with Stream(gpu, 8):
        graph.replay()
    assert gpu.log == ["begin", "end", "8 waits for 9", "graph on 8", "9 waits for 8"]
    assert y.list() == [1, 16]


def test_a_launch_that_failed_in_a_graph_says_so_behind_it_and_once(gpu):
    wb.config.check_bounds = True
    x, y, z = leaf([1, 2]), *(wb.zeros(2, device="cuda:0") for _ in range(2))
    index = wb.array(np.array([0, 1], np.int32), dtype=int, device="cuda:0")
    with wb.capture() as graph:
        wb.launch(first, 2, inputs=[x, index, y])
        wb.launch(square, 2, inputs=[x, z])
    gpu.log.clear()
    graph.replay()
    assert gpu.log == ["begin", "end", "graph on 7", "wait"]
    index.assign(np.array([0, 7], np.int32))
    x.assign(np.array([3, 4], np.float32))
    with pytest.raises(BoundsError, match="array 'x'"):
        graph.replay()
    assert z.list() == [9, 16]
    index.assign(np.array([1, 1], np.int32))
    graph.replay()
    assert y.list() == [4, 4]


def test_the_record_of_an_error_that_nobody_looked_at_is_cleared_by_the_next_replay(gpu):
    wb.config.check_bounds = True
    x, y, index = leaf([1, 2]), wb.zeros(2, device="cuda:0"), wb.zeros(2, dtype=int, device="cuda:0")
    with wb.capture() as graph:
        wb.launch(first, 2, inputs=[x, index, y])
        wb.launch(square, 2, inputs=[y, y])
    index.assign(np.array([9, 9], np.int32))
    checks, graph.graph.notes.checks = graph.graph.notes.checks, []
    graph.replay()
    assert len(checks) == 1
    graph.graph.notes.checks = checks
    index.assign(np.array([1, 1], np.int32))
    graph.replay()
    assert y.list() == [4, 4]


def test_what_meets_the_host_is_no_part_of_a_graph(gpu):
    x, y, z = leaf([1, 2]), wb.zeros(2, device="cuda:0"), wb.zeros(2, device="cuda:0")
    host, other = wb.zeros(2), leaf([5, 6], "cpu")
    with wb.capture() as graph:
        wb.launch(square, 2, inputs=[x, y])
        y[0:1].fill_(7.0)
        host.assign(y)
        y.assign(other)
        wb.launch(square, 2, inputs=[y, y])
        wb.launch(square, 2, inputs=[y, z])
    other.assign(np.array([2, 3], np.float32))
    x.assign(np.array([4, 5], np.float32))
    for first_time in (True, False):
        gpu.log.clear()
        graph.replay()
        ends = ["begin", "end"] * first_time
        assert gpu.log == [*ends, "graph on 7", "wait", "work", *ends, "graph on 7"]
        assert host.list() == [7, 25] and z.list() == [16, 81]


def test_gradients_handed_to_torch_stay_between_two_graphs(gpu, monkeypatch):
    only_ports(monkeypatch, lambda tape, space: gpu.log.append("port"))
    block, _, _ = walk("cuda:0")
    with wb.capture() as graph:
        block()
    graph.replay()
    gpu.log.clear()
    graph.replay()
    assert gpu.log == ["graph on 7", "port", "graph on 7"]


def test_where_cuda_refuses_a_graph_the_steps_are_called_one_by_one(gpu):
    block, found, x = walk("cuda:0")
    expected, want, u = walk("cpu")
    with wb.capture() as graph:
        block()
    gpu.refuses = True
    for k in range(2):
        for a in (x, u):
            a.assign(np.array([k + 1, 5, 7], np.float32))
        gpu.log.clear()
        expected()
        graph.replay()
        assert ("begin" in gpu.log) == (k == 0) and "launch on 7" in gpu.log
        for a, b in zip(found, want, strict=True):
            assert a.list() == b.list()


def test_launches_of_one_capture_share_their_scratch_memory(gpu, monkeypatch):
    monkeypatch.setattr(executables, "SCRATCH_BYTES", 4096)
    monkeypatch.setattr(executables, "needs_scratch", lambda function: True)
    x, y = leaf([1, 2]), wb.zeros(2, device="cuda:0")
    made = []
    empty = gpu.empty
    monkeypatch.setattr(gpu, "empty", lambda n, dtype: made.append(n) or empty(n, dtype))
    with wb.capture() as graph:
        wb.launch(square, 2, inputs=[x, y])
        wb.launch(square, 2, inputs=[y, y])
    graph.replay()
    assert made.count(4096) == 1


def test_a_kernel_that_ran_on_the_cpu_runs_on_a_gpu_for_arrays_of_a_gpu(gpu):
    for where, log in (("cpu", []), ("cuda:0", ["launch on 7"]), ("cpu", [])):
        x, y = leaf([1, 2, 3, 4, 5], where), wb.zeros(5, device=where)
        gpu.log.clear()
        wb.launch(square, 5, inputs=[x, y])
        assert gpu.log == log and y.list() == [1, 4, 9, 16, 25]

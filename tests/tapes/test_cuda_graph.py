"""CUDA graphs of captures, on a stand-in for CuPy: its arrays lie in the host's memory, its kernels are generated C.

As on a GPU, what is queued on a stream that captures does not run, and the host may neither wait nor hand over memory
of its own then. Nothing here shows what CUDA itself does.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench import device
from workbench.errors import BoundsError
from workbench.kernels.emit.signature import Variant
from workbench.kernels.program import Program
from workbench.launches import executable as executables
from workbench.launches import race_check
from workbench.tapes import cuda_graph, publish, reverse

pytestmark = pytest.mark.needs_cc


class Block:
    """Bytes of the GPU."""

    def __init__(self, nbytes: int):
        self.bytes = np.full(max(nbytes, 1), 0xAA, np.uint8)
        self.ptr = self.bytes.__array_interface__["data"][0]


class Pointer:
    def __init__(self, mem: Block, offset: int = 0):
        self.mem, self.offset, self.ptr = mem, offset, mem.ptr + offset

    def __add__(self, n: int) -> Pointer:
        return Pointer(self.mem, self.offset + n)


class Stream:
    def __init__(self, gpu: Gpu, ptr: int):
        self.gpu, self.ptr, self.noted = gpu, ptr, None

    def __enter__(self) -> Stream:
        self.gpu.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.gpu.streams.pop()

    def begin_capture(self) -> None:
        assert self.noted is None and self.gpu.streams[-1] is self
        self.gpu.log.append("begin")
        self.noted = []

    def end_capture(self) -> SimpleNamespace:
        noted, self.noted = self.noted, None
        if self.gpu.refuses:
            raise RuntimeError("capture invalidated")
        self.gpu.log.append("end")

        def launch() -> None:
            self.gpu.log.append(f"graph on {self.gpu.streams[-1].ptr}")
            self.gpu.depth += 1
            for work in noted or ():
                self.gpu.queue(work)
            self.gpu.depth -= 1

        return SimpleNamespace(launch=launch)

    def record(self, event: Any) -> None:
        event.on = self.ptr

    def wait_event(self, event: Any) -> None:
        assert self.noted is None, "a captured stream waits for what is not captured"
        self.gpu.log.append(f"{self.ptr} waits for {event.on}")


class Gpu:
    """What is used of CuPy."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.streams = [Stream(self, 7)]
        self.refuses = False
        self.depth = 0
        self.pooled: list[weakref.ref] = []
        self.allocate = lambda n: Pointer(Block(n))
        gpu = self

        class ndarray(Remote):
            owner = gpu

        class MemoryPool:
            def malloc(self, n: int) -> Pointer:
                made = Pointer(Block(n))
                gpu.pooled.append(weakref.ref(made.mem))
                return made

        @contextmanager
        def using_allocator(allocate: Callable[[int], Pointer]):
            before, gpu.allocate = gpu.allocate, allocate
            yield
            gpu.allocate = before

        @contextmanager
        def Device(ordinal: int):
            assert ordinal == 0
            yield

        self.ndarray = ndarray
        self.cuda = SimpleNamespace(
            Device=Device, MemoryPool=MemoryPool, using_allocator=using_allocator, Event=lambda disable_timing: Event(),
            Stream=lambda non_blocking: Stream(self, 100 if non_blocking else 0),
            ExternalStream=lambda ptr, ordinal: Stream(self, ptr),
            get_current_stream=lambda ordinal=0: self.streams[-1],
            runtime=SimpleNamespace(getDeviceCount=lambda: 1, getDevice=lambda: 0),
        )  # fmt: skip

    def queue(self, work: Callable[[], Any], what: str = "") -> None:
        stream = self.streams[-1]
        if stream.noted is not None:
            stream.noted.append(work)
        else:
            work()
            if not self.depth:
                self.log.append(what or "work")

    def empty(self, shape: Any, dtype: Any = np.float64) -> Remote:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return self.ndarray(shape, dtype)

    def zeros(self, shape: Any, dtype: Any = np.float64) -> Remote:
        made = self.empty(shape, dtype)
        made.fill(0)
        return made

    def asarray(self, values: Any) -> Remote:
        if isinstance(values, Remote):
            return values
        assert self.streams[-1].noted is None, "host memory in a graph"
        values = np.asarray(values)
        made = self.empty(values.shape, values.dtype)
        made.host[...] = values
        return made


class Event:
    on = 0


class Remote:
    """An array of the GPU."""

    owner: Gpu
    device = SimpleNamespace(id=0)

    def __init__(self, shape: tuple[int, ...], dtype: Any, data: Pointer | None = None, strides: Any = None):
        dtype = np.dtype(dtype)
        self.data = self.owner.allocate(int(np.prod(shape)) * dtype.itemsize) if data is None else data
        self.host = np.ndarray(shape, dtype, self.data.mem.bytes, self.data.offset, strides)

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "size", "nbytes", "itemsize", "strides", "ndim"):
            return getattr(self.host, name)
        raise AttributeError(name)

    def __len__(self) -> int:
        return len(self.host)

    def _of(self, host: np.ndarray) -> Remote:
        at = host.__array_interface__["data"][0] - self.data.mem.ptr
        return type(self)(host.shape, host.dtype, Pointer(self.data.mem, at), host.strides)

    def __getitem__(self, key: Any) -> Remote:
        return self._of(self._part(key))

    def _part(self, key: Any) -> np.ndarray:
        return self.host[key if key is ... else (*(key if isinstance(key, tuple) else (key,)), ...)]

    def view(self, dtype: Any) -> Remote:
        return self._of(self.host.view(dtype))

    def reshape(self, shape: tuple[int, ...]) -> Remote:
        return self._of(self.host.reshape(shape))

    def get(self) -> np.ndarray:
        assert self.owner.streams[-1].noted is None, "the host waits in a graph"
        self.owner.log.append("wait")
        return self.host.copy()

    def __int__(self) -> int:
        return int(self.get())

    def __iter__(self):
        return iter(self.get())

    def any(self) -> bool:
        return bool(self.get().any())

    def fill(self, value: Any) -> None:
        self.owner.queue(lambda: self.host.fill(value))

    def __setitem__(self, key: Any, value: Any) -> None:
        assert np.isscalar(value) or isinstance(value, Remote)
        to, source = self._part(key), value.host if isinstance(value, Remote) else value
        keep = weakref.ref(value.data.mem) if isinstance(value, Remote) else None

        def work() -> None:
            assert keep is None or keep() is not None, "memory of a graph was let go"
            to[...] = source

        # a GPU keeps nothing alive: the work holds addresses alone
        if isinstance(value, Remote):
            source = np.lib.stride_tricks.as_strided(_bare(value), value.shape, value.strides)
        self.owner.queue(work)

    def __iadd__(self, other: Any) -> Remote:
        mine, theirs = self.host, other.host if isinstance(other, Remote) else other
        self.owner.queue(lambda: np.add(mine, theirs, out=mine))
        return self

    def copy(self) -> Remote:
        made = type(self)(self.shape, self.dtype)
        made[...] = self
        return made


def _bare(a: Remote) -> np.ndarray:
    """The array by its address, without a reference to its memory."""
    face = {"shape": (1,), "typestr": a.dtype.str, "data": (int(a.data.ptr), False), "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=face))


class Kernel:
    """Generated C in the place of machine code of a GPU. Plans keep it for all tests."""

    def __init__(self, call: Any):
        self.call = call

    def launch(self, packed: bytes, cells: int, stream: int, **size: Any) -> None:
        gpu: Any = sys.modules["cupy"]
        assert stream == gpu.streams[-1].ptr
        first = int.from_bytes(packed[:8], sys.byteorder)
        gpu.queue(lambda: self.call(packed, 0, first, 1), f"launch on {stream}")


def ports(monkeypatch, *mine: Callable[..., Any]) -> None:
    """Only these are output ports now, whatever libraries are loaded."""
    for module in (publish, reverse):
        monkeypatch.setattr(module, "ports", [*mine])


@pytest.fixture
def gpu(monkeypatch):
    made, executable = Gpu(), Program.executable

    def emulated(program: Program, function: Any, backend: str, variant: Variant, *rest: Any) -> Any:
        if backend != "cuda":
            return executable(program, function, backend, variant, *rest)
        plain = Variant(check_bounds=variant.check_bounds)
        return Kernel(executable(program, function, "c", plain, *rest))

    monkeypatch.setattr(Program, "executable", emulated)
    monkeypatch.setattr(device, "cuda_count", lambda: 1)
    for module in (device, cuda_graph, executables, race_check):
        monkeypatch.setattr(module, "xp", lambda where: made if where.is_cuda else np)
    monkeypatch.setitem(sys.modules, "cupy", made)
    ports(monkeypatch)
    yield made


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
    assert gpu.log == ["begin", "end", "graph on 7", "wait", "wait"]
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
    checks, graph.graph._notes.checks = graph.graph._notes.checks, []
    graph.replay()
    assert len(checks) == 2
    graph.graph._notes.checks = checks
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
    ports(monkeypatch, lambda tape, space: gpu.log.append("port"))
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

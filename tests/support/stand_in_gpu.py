"""A stand-in for CuPy: its arrays lie in the host's memory, its kernels are what a test puts in their place.

As on a GPU, what is queued on a stream that captures does not run, and the host may neither wait nor hand over memory
of its own then; as in CuPy, arrays of the two sides do not mix, and records are neither copied nor filled. Nothing here
shows what CUDA itself does. `WORKBENCH_TEST_BACKEND=stand-in python -m pytest -m needs_gpu` runs what a GPU would run.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from workbench import device
from workbench.arrays import ports
from workbench.kernels.emit.signature import Variant
from workbench.kernels.program import Program


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

    def synchronize(self) -> None:
        self.gpu.log.append("wait")

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
            __module__ = "cupy"

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
            Device=Device,
            MemoryPool=MemoryPool,
            using_allocator=using_allocator,
            Event=lambda disable_timing: Event(),
            Stream=lambda non_blocking: Stream(self, 100 if non_blocking else 0),
            ExternalStream=lambda ptr, ordinal: Stream(self, ptr),
            get_current_stream=lambda ordinal=0: self.streams[-1],
            runtime=SimpleNamespace(getDeviceCount=lambda: 1, getDevice=lambda: 0),
        )

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

    def asarray(self, values: Any, dtype: Any = None) -> Remote:
        if isinstance(values, Remote):
            return values if dtype is None else values.astype(dtype)
        assert self.streams[-1].noted is None, "host memory in a graph"
        values = plain(np.asarray(values, dtype))
        made = self.empty(values.shape, values.dtype)
        made.host[...] = values
        return made

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        function = getattr(np, name)
        return lambda *args, **how: self.apply(function, args, how)

    def apply(self, function: Callable[..., Any], args: Any, how: dict[str, Any]) -> Any:
        """The function of NumPy on arrays of the GPU."""
        result = function(*nested(args, _host_of), **{k: nested(v, _host_of) for k, v in how.items()})
        return nested(result, self.taken)

    def taken(self, result: Any) -> Any:
        if not isinstance(result, np.ndarray | np.generic):
            return result
        made = self.empty(result.shape, result.dtype)
        made.host[...] = result
        return made


def nested(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with `change` applied to what lists and tuples hold."""
    return type(value)(nested(v, change) for v in value) if type(value) in (list, tuple) else change(value)


def _host_of(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"Unsupported type {type(value)}")
    return value.host if isinstance(value, Remote) else value


def _index(k: Any) -> Any:
    return k.host if isinstance(k, Remote) else k


def plain(values: np.ndarray) -> np.ndarray:
    if values.dtype.names:
        raise ValueError(f"Unsupported dtype {values.dtype}")
    return values


class Event:
    on = 0


class Remote(np.lib.mixins.NDArrayOperatorsMixin):
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
        if name.startswith("__") or not callable(method := getattr(np.ndarray, name)):
            raise AttributeError(name)
        return lambda *args, **how: self.owner.apply(method, (self, *args), how)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.host.__array_interface__)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, out: Any = (), **how: Any) -> Any:
        if not out:
            return self.owner.apply(getattr(ufunc, method), args, how)
        args, into = nested(args, _host_of), nested(out, _host_of)
        self.owner.queue(lambda: getattr(ufunc, method)(*args, out=into, **how))
        return out[0]

    def __array_function__(self, function: Any, _: Any, args: Any, how: dict[str, Any]) -> Any:
        return self.owner.apply(function, args, how)

    def __len__(self) -> int:
        return len(self.host)

    def _of(self, host: np.ndarray) -> Remote:
        at = host.__array_interface__["data"][0] - self.data.mem.ptr
        return type(self)(host.shape, host.dtype, Pointer(self.data.mem, at), host.strides)

    def __getitem__(self, key: Any) -> Remote:
        part = self._part(key)
        return self._of(part) if np.may_share_memory(part, self.host) else self.owner.taken(part)

    def _part(self, key: Any) -> np.ndarray:
        key = nested(key, _index)
        return self.host[key if key is ... else (*(key if isinstance(key, tuple) else (key,)), ...)]

    @property
    def T(self) -> Remote:
        return self._of(self.host.T)

    def view(self, dtype: Any) -> Remote:
        return self._of(self.host.view(dtype))

    def reshape(self, *shape: Any) -> Remote:
        return self._of(self.host.reshape(*shape))

    def get(self) -> np.ndarray:
        assert self.owner.streams[-1].noted is None, "the host waits in a graph"
        self.owner.log.append("wait")
        return self.host.copy()

    def __int__(self) -> int:
        return int(self.get())

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def any(self) -> bool:
        return bool(self.get().any())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def fill(self, value: Any) -> None:
        plain(self.host)
        self.owner.queue(lambda: self.host.fill(value))

    def __setitem__(self, key: Any, value: Any) -> None:
        if np.ndim(value.host if isinstance(value, Remote) else value) and not isinstance(value, Remote):
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        part, source = plain(self._part(key)), value.host if isinstance(value, Remote) else value
        # what is chosen by lists of indices is a copy
        to, where = (part, ...) if np.may_share_memory(part, self.host) else (self.host, nested(key, _index))
        keep = weakref.ref(value.data.mem) if isinstance(value, Remote) else None

        def work() -> None:
            assert keep is None or keep() is not None, "memory of a graph was let go"
            to[where] = source

        # a GPU keeps nothing alive: the work holds addresses alone
        if isinstance(value, Remote):
            source = np.lib.stride_tricks.as_strided(_bare(value), value.shape, value.strides)
        self.owner.queue(work)

    def __iadd__(self, other: Any) -> Remote:
        mine, theirs = self.host, other.host if isinstance(other, Remote) else other
        self.owner.queue(lambda: np.add(mine, theirs, out=mine))
        return self

    def copy(self) -> Remote:
        made = type(self)(self.shape, plain(self.host).dtype)
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


def only_ports(monkeypatch, *mine: Callable[..., Any]) -> None:
    """Only these are output ports now, whatever libraries are loaded."""
    monkeypatch.setattr(ports, "gradient_takers", [*mine])


def generated_c(program: Program, function: Any, variant: Variant, *rest: Any) -> Kernel:
    """A kernel by the C backend."""
    return Kernel(program.executable(function, "c", Variant(checked=variant.checked), *rest))


def install(monkeypatch: Any, kernel: Callable[..., Any] = generated_c) -> Gpu:
    """Put one in the place of CuPy. `kernel(program, function, variant, ...)` is asked for what a GPU would load."""
    made, executable = Gpu(), Program.executable

    def emulated(program: Program, function: Any, backend: str, variant: Variant, *rest: Any) -> Any:
        if backend == "cuda":
            return kernel(program, function, variant, *rest)
        return executable(program, function, backend, variant, *rest)

    monkeypatch.setattr(Program, "executable", emulated)
    monkeypatch.setattr(device, "cuda_count", lambda: 1)
    monkeypatch.setitem(sys.modules, "cupy", made)
    only_ports(monkeypatch)
    return made

"""Work for a GPU is put in order with what torch queues, by events on the GPU; nothing waits on the host.

No GPU is needed: CuPy is replaced by a few objects that note what they are asked.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import workbench as wb
from workbench import device
from workbench.arrays import allocation
from workbench.device import Device, catch_up, let_follow
from workbench.kernels.analysis.launch_form import LaunchForm
from workbench.kernels.emit.signature import Variant, needs_scratch
from workbench.launches import executable as executables, race_check
from workbench.launches.race_check import races_of

GPU = Device("cuda:0", 0)


class Stream:
    def __init__(self, log: list, ptr: int):
        self.log, self.ptr = log, ptr

    def record(self, event: Event) -> None:
        event.on = self.ptr

    def wait_event(self, event: Event) -> None:
        self.log.append(f"{self.ptr} waits for {event.on}")


class Event:
    def __init__(self, disable_timing: bool):
        assert disable_timing
        self.on: int | None = None


class Fake:
    """What is used of CuPy. `mine`: its current stream; `theirs`: the other library's; `log`: who waits for whom."""

    def __init__(self, mine: int, theirs: int):
        self.log: list[str] = []
        self.mine, self.theirs = mine, theirs
        self.cuda = SimpleNamespace(
            get_current_stream=lambda ordinal=-1: Stream(self.log, self.mine),
            ExternalStream=lambda ptr, ordinal: Stream(self.log, ptr),
            Event=Event,
        )

    def zeros(self, shape: int, dtype: type) -> np.ndarray:
        self.log.append("room for errors")
        return Words(shape)

    empty = zeros


class Words:
    """Memory of a GPU. Reading it waits."""

    def __init__(self, size: int):
        self.data, self.size = SimpleNamespace(ptr=0), size

    def __getitem__(self, k: int) -> int:
        raise AssertionError("a launch that cannot fail waited for the GPU")


@pytest.fixture
def fake(monkeypatch):
    made = Fake(mine=7, theirs=9)
    for module in (device, executables, race_check, allocation):
        monkeypatch.setattr(module, "xp", lambda where: made)
    monkeypatch.setattr(executables, "get_device", lambda name: GPU)
    monkeypatch.setattr(device, "followed", [lambda ordinal: made.theirs])
    return made


def test_ours_waits_for_theirs_and_theirs_for_ours(fake):
    catch_up(GPU)
    let_follow(GPU)
    assert fake.log == ["7 waits for 9", "9 waits for 7"]


def test_one_stream_waits_for_nothing(fake):
    fake.theirs = 7
    catch_up(GPU)
    let_follow(GPU)
    assert fake.log == []


def test_without_another_library_no_stream_is_asked_for(fake, monkeypatch):
    monkeypatch.setattr(device, "followed", [])
    monkeypatch.setattr(fake, "cuda", None)
    catch_up(GPU)
    let_follow(GPU)


def test_the_cpu_has_no_streams(fake):
    catch_up(device.cpu)
    let_follow(device.cpu)
    assert fake.log == []


@wb.kernel
def squares(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def thrice(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    s = x[i]
    for _ in range(40):
        s = wb.sin(s)
    y[i] = s


@wb.kernel
def counted(x: wb.array(dtype=float), n: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    s = x[i]
    for _ in range(n[i]):
        s = wb.sin(s)
    y[i] = s


def note(most_threads: int, block: int = 256) -> str:
    return "" if block > 1 else f" by {most_threads} thread in blocks of {block}"


def launched(function, fake, checked=False, alone=False):
    """Run one function as a launch on a GPU would; the log of what happened."""
    form = LaunchForm((4,), backend="cuda")
    variant = Variant(checked=frozenset({0}) if checked else frozenset())
    executable = executables.Executable(squares.program(), function, form, variant)
    executable.one_thread = alone
    said = lambda packed, cells, stream, **size: fake.log.append(f"launch on {stream}{note(**size)}")  # noqa: E731
    executable.call = SimpleNamespace(launch=said)
    values = [v for p in function.arrays for v in (0, *(4,) * p.type.ndim, *(4,) * p.type.ndim)]
    executable._run_cuda(values)
    return fake.log


def test_a_launch_is_on_the_stream_of_cupy_between_what_torch_did_and_what_it_will_do(fake):
    assert launched(squares.program().function, fake) == ["7 waits for 9", "launch on 7", "9 waits for 7"]


def test_a_launch_that_cannot_fail_does_not_wait(fake):
    for kernel in (squares, thrice):
        program = kernel.program()
        for function in (program.function, program.reverse(program.floats).function):
            fake.log.clear()
            assert "room for errors" not in launched(function, fake)


def test_an_index_is_looked_at_when_somebody_waits(fake):
    assert "waits" not in launched(squares.program().function, fake, checked=True)
    assert len(device.reports) == 1
    with pytest.raises(AssertionError, match="waited"):
        device.settle()


def test_a_launch_whose_adjoint_can_run_out_of_memory_waits(fake):
    program = counted.program()
    reverse = program.reverse(program.floats).function
    assert needs_scratch(reverse)
    with pytest.raises(AssertionError, match="waited"):
        launched(reverse, fake)


@pytest.mark.needs_torch
def test_torch_is_followed_from_the_first_tensor_on_a_gpu_on(fake, monkeypatch):
    from workbench.interop import tensors as bridge

    monkeypatch.setattr(bridge, "followed", device.followed)
    device.followed.clear()
    monkeypatch.setattr(bridge, "_stream", lambda ordinal: fake.theirs)
    bridge._follow(device.cpu)
    assert device.followed == []
    bridge._follow(GPU)
    bridge._follow(GPU)
    assert len(device.followed) == 1 and fake.log == ["9 waits for 7"]


@wb.kernel
def slots(x: wb.array(dtype=float), count: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    slot = wb.atomic_add(count, 0, 1)
    y[slot] = x[i] * x[i]


@wb.kernel
def scattered(x: wb.array(dtype=float), n: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    y[n[i]] = x[i]


@pytest.mark.parametrize("kernel", [slots, scattered], ids=lambda k: k.key)
def test_what_repeats_atomics_as_plain_updates_is_done_by_one_thread_of_a_gpu(kernel, fake):
    arrays = [wb.ones(4), wb.zeros(4, dtype=int), wb.zeros(4)]
    finder = races_of(wb.launch(kernel, dim=4, inputs=arrays, record_cmd=True).plan)
    assert finder is not None and finder.executable.one_thread == (kernel is slots)
    assert not (finder.executable.one_thread and finder.executable.variant.atomic)
    by_one = " by 1 thread in blocks of 1" if kernel is slots else ""
    log = launched(finder.executable.function, fake, alone=finder.executable.one_thread)
    assert log == ["7 waits for 9", f"launch on 7{by_one}", "9 waits for 7"]

"""DLPack in both directions: one memory, exposed, guarded where another library takes it for constant."""

import gc

import numpy as np
import pytest

import workbench as wb
from workbench.interop import dlpack


class Producer:
    """What any library's array looks like to us."""

    def __init__(self, data, device=None):
        self.data, self.device = data, device

    def __dlpack__(self, **options):
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device or self.data.__dlpack_device__()


@wb.kernel
def square(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@pytest.fixture(autouse=True)
def interpreter():
    wb.config.backend = "numpy"


def test_numpy_takes_an_array_without_a_copy():
    a = wb.array([1.0, 2.0, 3.0])
    assert not a.allocation.exposed
    n = np.from_dlpack(a)
    n[0] = 7.0
    assert a.numpy().tolist() == [7.0, 2.0, 3.0] and a.allocation.exposed


def test_an_array_takes_foreign_memory_without_a_copy():
    n = np.arange(4, dtype=np.float32)
    a = wb.from_dlpack(Producer(n), name="a")
    assert a.dtype is wb.float32 and a.shape == (4,) and a.label == "a"
    n[1] = 9.0
    a[2:4].fill_(5.0)
    assert n.tolist() == [0.0, 9.0, 5.0, 5.0] and a.numpy().tolist() == n.tolist()


def test_strides_and_components_come_along():
    n = np.arange(24, dtype=np.float64).reshape(4, 2, 3)
    a = wb.from_dlpack(n[::2], dtype=wb.vec3d)
    assert a.shape == (2, 2) and a.dtype is wb.vec3d
    np.testing.assert_array_equal(a.numpy(), n[::2])
    with pytest.raises(wb.LaunchError, match="components"):
        wb.from_dlpack(n, dtype=wb.vec2d)
    with pytest.raises(wb.LaunchError, match="dtype"):
        wb.from_dlpack(n, dtype=wb.vec3)


def test_a_view_of_our_own_memory_joins_it():
    a = wb.array([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    b = wb.from_dlpack(np.from_dlpack(a)[1:3])
    assert b.allocation is a.allocation and b.span.overlaps(a[1:3].span)
    assert b.requires_grad, "memory has one gradient, whatever its names"


def test_vectors_go_out_with_their_components_as_axes():
    a = wb.array([[1.0, 2.0, 3.0]], dtype=wb.vec3)
    n = np.from_dlpack(a)
    assert n.shape == (1, 3) and np.shares_memory(n, a.numpy())


def test_writes_behind_the_tape_are_found():
    a, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(square, 2, [a], [y])
    np.from_dlpack(a)[0] = 5.0
    with pytest.raises(wb.GradientError, match="overwritten"):
        tape.backward(grads={y: wb.ones(2)})


def test_gradients_of_foreign_memory():
    n = np.array([3.0, 4.0], dtype=np.float32)
    x, y = wb.from_dlpack(n, requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(square, 2, [x], [y])
    tape.backward(grads={y: wb.ones(2)})
    assert x.grad.numpy().tolist() == [6.0, 8.0]


def test_constant_memory_is_read_and_never_written():
    n = np.array([3.0, 4.0], dtype=np.float32)
    n.flags.writeable = False
    x, y = dlpack.share(n, None, True, None, "a NumPy array"), wb.zeros(2)
    wb.launch(square, 2, [x], [y])
    assert y.numpy().tolist() == [9.0, 16.0]
    for write in (
        lambda: x.fill_(0.0),
        lambda: x[0:1].zero_(),
        lambda: x.assign([1.0, 2.0]),
        lambda: wb.copy(x, y),
        lambda: wb.launch(square, 2, [y], [x]),
        lambda: wb.launch(square, 1, [y], [x[1:]]),
    ):
        with pytest.raises(wb.LaunchError, match=r"taken for constant(.|\n)*read-only"):
            write()
        with wb.Tape(), pytest.raises(wb.LaunchError, match="read-only"):
            write()
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1.0
    assert n.tolist() == [3.0, 4.0]
    wb.clone(x).fill_(0.0)


def test_a_constant_part_of_our_own_memory_leaves_the_rest_writable():
    a = wb.array([1.0, 2.0, 3.0, 4.0])
    part = a.numpy()[:2]
    part.flags.writeable = False
    b = dlpack.share(part, None, False, None, "a NumPy array")
    assert b.allocation is a.allocation
    a[2:].fill_(5.0)
    a.numpy()[3] = 6.0
    with pytest.raises(wb.LaunchError, match="read-only"):
        a.fill_(0.0)
    assert a.numpy().tolist() == [1.0, 2.0, 5.0, 6.0]


@pytest.mark.slow
def test_the_guard_lives_as_long_as_the_memory():
    n = np.array([3.0, 4.0], dtype=np.float32)
    n.flags.writeable = False
    x = dlpack.share(n, None, False, None, "a NumPy array")
    again = dlpack.share(n, None, False, None, "a NumPy array")
    assert again.allocation is x.allocation and len(dlpack._guards[x.allocation]) == 1
    part = x[1:]
    del x, again
    gc.collect()
    with pytest.raises(wb.LaunchError, match="read-only"):
        part.fill_(1.0)
    count = len(dlpack._guards)
    del part
    gc.collect()
    assert len(dlpack._guards) == count - 1


def test_what_is_no_array_is_refused():
    with pytest.raises(wb.LaunchError, match="__dlpack__"):
        wb.from_dlpack([1.0, 2.0])
    with pytest.raises(wb.LaunchError, match="DLPack device 7"):
        wb.from_dlpack(Producer(np.zeros(2), device=(7, 0)))
    with pytest.raises(wb.LaunchError, match=r"dlpack|dtype"):
        wb.from_dlpack(np.zeros(2, dtype=complex))


@pytest.mark.needs_torch
def test_torch_tensors_share_their_storage():
    import torch

    t = torch.arange(4.0)
    a = wb.from_dlpack(t)
    a[0:1].fill_(8.0)
    assert t.tolist() == [8.0, 1.0, 2.0, 3.0] and t._version > 0
    leaf = torch.tensor([3.0, 4.0], requires_grad=True)
    x, y = wb.from_dlpack(leaf), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(square, 2, [x], [y])
    tape.backward(grads={y: wb.ones(2)})
    assert leaf.grad.tolist() == [6.0, 8.0]
    back = torch.from_dlpack(y)
    back[0] = 1.0
    assert y.numpy().tolist() == [1.0, 16.0]

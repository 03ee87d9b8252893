"""What no launch can do is refused before it runs; what is as large as can be is right."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import LaunchError

LONGEST = 2**31 - 1
B = wb.uint8


@wb.kernel
def from_the_end(x: wb.array(dtype=B), y: wb.array(dtype=B)):
    i = wb.tid()
    y[i] = x[-1 - i]


@wb.kernel
def extent(x: wb.array(dtype=B), y: wb.array(dtype=B)):
    i = wb.tid()
    y[i] = B(x.shape[0] > 3)


@wb.kernel
def last_of_row(x: wb.array2d(dtype=B), y: wb.array(dtype=B)):
    i = wb.tid()
    y[i] = x[i, -1]


@pytest.fixture(scope="module")
def bytes_():
    """Two rows and a few bytes more than int32 counts: pages that nobody touches take no memory."""
    made = np.zeros(2**31 + 10, B.numpy)
    made[-1], made[-2], made[2**30 + 4], made[2**31], made[0] = 7, 5, 3, 9, 4
    return made


@pytest.mark.parametrize("kernel", [from_the_end, extent])
def test_an_axis_that_int32_cannot_count_is_refused(backend, bytes_, kernel):
    y = wb.zeros(2, dtype=B)
    with pytest.raises(LaunchError, match="'x': axis 0 has 2,147,483,658 elements") as found:
        wb.launch(kernel, dim=2, inputs=[wb.from_numpy(bytes_), y])
    assert found.value.slug == "extent"
    assert found.value.where.text.startswith("def ")
    assert list(y.numpy()) == [0, 0]


def test_more_elements_than_int32_counts_are_right_in_several_axes(backend, bytes_):
    y, x = wb.zeros(2, dtype=B), wb.from_numpy(bytes_).reshape((2, 2**30 + 5))
    wb.launch(last_of_row, dim=2, inputs=[x, y])
    assert list(y.numpy()) == [3, 7]
    columns = x[:, :: 2**30]  # a view with gaps
    wb.launch(last_of_row, dim=2, inputs=[columns, y])
    assert list(y.numpy()) == [0, 0]
    assert columns.shape == (2, 2)


def test_strides_beyond_int32(backend, bytes_):
    far, y = wb.from_numpy(bytes_)[:: 2**31], wb.zeros(2, dtype=B)
    assert far.strides == (2**31,)
    wb.launch(from_the_end, dim=2, inputs=[far, y])
    assert list(y.numpy()) == [9, 4]


def test_the_longest_axis_there_can_be(backend, bytes_):
    y = wb.zeros(2, dtype=B)
    wb.launch(from_the_end, dim=2, inputs=[wb.from_numpy(bytes_[11:]), y])
    assert list(y.numpy()) == [7, 5]


@wb.kernel
def alike(y: wb.array(dtype=int)):
    wb.atomic_add(y, 0, 1)


@wb.kernel
def far_away(y: wb.array(dtype=int)):
    i, j = wb.tid()
    if i + j < 0:
        y[0] = 1


@pytest.mark.parametrize(
    ("kernel", "dim"),
    [(alike, 2**31), (alike, (2**16, 2**15)), (far_away, (LONGEST, LONGEST)), (far_away, (2**22, 2**21)), (alike, -1)],
)
def test_a_grid_that_nobody_could_finish_is_refused(backend, kernel, dim):
    with pytest.raises(LaunchError) as found:
        wb.launch(kernel, dim=dim, inputs=[wb.zeros(1, dtype=int)])
    assert found.value.slug == "dim"

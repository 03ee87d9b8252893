"""Numbers of different types are compared by their values: nothing is rounded, nothing wraps."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

SIDES = {
    "float32 and int32": (wb.float32, wb.int32, [1.5, 16777216.0, -1.0, np.inf, np.nan], [2, 16777217, -1, 5, 5]),
    "int32 and float64": (wb.int32, wb.float64, [2, 3, -1], [2.5, 3.0, np.nan]),
    "float16 and float32": (wb.float16, wb.float32, [0.1, 1.0], [0.1, 1.0]),
    "int32 and uint32": (wb.int32, wb.uint32, [-1, 7], [4294967295, 7]),
    "int64 and uint8": (wb.int64, wb.uint8, [2**40, 200], [0, 200]),
}


def kernel_of(left, right):
    @wb.kernel
    def compare(a: wb.array[left], b: wb.array[right], out: wb.array2d[int]):  # type: ignore[valid-type]
        i = wb.tid()
        out[i, 0] = int(a[i] < b[i])
        out[i, 1] = int(a[i] >= b[i])
        out[i, 2] = int(a[i] == b[i])
        out[i, 3] = int(b[i] != a[i])

    return compare


@pytest.mark.parametrize("backend", ["c", "numpy"])
@pytest.mark.parametrize("case", SIDES)
def test_numbers_of_two_types_are_compared_by_value(case, backend):
    left, right, a, b = SIDES[case]
    wb.config.backend = backend
    out = wb.zeros((len(a), 4), dtype=int)
    a, b = np.array(a, left.numpy), np.array(b, right.numpy)
    wb.launch(kernel_of(left, right), len(a), [wb.array(a, dtype=left), wb.array(b, dtype=right), out])
    exact = [(x.item(), y.item()) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(out.numpy(), [[x < y, x >= y, x == y, x != y] for x, y in exact])


@wb.kernel
def half(x: wb.array[float], n: int, y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i]
    if x[i] < n:
        y[i] = x[i] * x[i]


def test_the_gradient_follows_the_branch():
    x, y = wb.array([1.0, 3.0], requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(half, 2, [x, 2, y])
    tape.backward(grads={y: wb.ones(2)})
    assert x.grad.numpy().tolist() == [2.0, 1.0]


@pytest.mark.parametrize(("left", "right"), [(wb.uint64, wb.int32), (wb.float32, wb.int64), (wb.bool, wb.int32)])
def test_types_without_one_that_holds_both_are_refused(left, right):
    with pytest.raises(wb.KernelError, match=r"\[mixed-types\]"):
        _ = kernel_of(left, right).ir

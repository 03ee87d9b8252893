"""Kernels whose parameters take any type are checked for the types of the arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb


@pytest.mark.parametrize("dtype", [wb.float32, wb.float64])
def test_a_kernel_of_any_type_over_a_grid_of_three_dimensions(dtype, backend):
    @wb.kernel
    def product(a: wb.array(dtype=Any, ndim=3), b: wb.array(dtype=Any, ndim=3), y: wb.array(dtype=Any, ndim=3)):
        i, j, k = wb.tid()
        y[i, j, k] = a[i, j, k] * b[i, j, k]

    a, b = (wb.array(np.arange(6.0).reshape(1, 3, 2) + k, dtype=dtype, requires_grad=True) for k in (1, 2))
    y = wb.zeros((1, 3, 2), dtype=dtype)
    assert wb.gradcheck(product, (1, 3, 2), [a, b], [y])
    found = wb.autograd.jacobian(product, (1, 3, 2), [a, b], [y], input_output_mask=[("a", "y")])
    np.testing.assert_allclose(found[0, 0].numpy(), np.diag(np.arange(6.0) + 2))

"""The arithmetic on blocks: rows times vectors, and sums of blocks and of their products, at places that are given."""

from __future__ import annotations

from typing import Any

from ..arrays.array import array
from ..kernels import kernel, ops
from ..kernels.ops.memory import ATOMIC_ADD as atomic_add
from ..kernels.reading.declare import tid

transpose = ops.BUILTINS["transpose"]
indices = array(dtype=int)
blocks = array(dtype=Any)


@kernel
def rows_times(offsets: indices, columns: indices, values: blocks, x: blocks, alpha: Any, beta: Any, y: blocks):
    """y = alpha * A x + beta * y, one thread per row."""
    i = tid()
    total = beta * y[i]
    for k in range(offsets[i], offsets[i + 1]):
        total += alpha * (values[k] * x[columns[k]])
    y[i] = total


@kernel
def columns_times(rows: indices, columns: indices, values: blocks, x: blocks, alpha: Any, y: blocks):
    """y += alpha * A^T x, one thread per block of scalars."""
    k = tid()
    atomic_add(y, columns[k], alpha * (values[k] * x[rows[k]]))


@kernel
def turned_columns_times(rows: indices, columns: indices, values: blocks, x: blocks, alpha: Any, y: blocks):
    """y += alpha * A^T x, one thread per block."""
    k = tid()
    atomic_add(y, columns[k], alpha * (transpose(values[k]) * x[rows[k]]))


@kernel
def scaled(values: blocks, beta: Any):
    """values *= beta."""
    i = tid()
    values[i] = beta * values[i]


@kernel
def added(source: indices, target: indices, values: blocks, alpha: Any, out: blocks):
    """out[target] += alpha * values[source]."""
    k = tid()
    atomic_add(out, target[k], alpha * values[source[k]])


@kernel
def turned(source: indices, target: indices, values: blocks, alpha: Any, out: blocks):
    """out[target] += alpha * values[source]^T."""
    k = tid()
    atomic_add(out, target[k], alpha * transpose(values[source[k]]))


@kernel
def multiplied(left: indices, right: indices, target: indices, a: blocks, b: blocks, alpha: Any, out: blocks):
    """out[target] += alpha * a[left] b[right]."""
    k = tid()
    atomic_add(out, target[k], alpha * (a[left[k]] * b[right[k]]))

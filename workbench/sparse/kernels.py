"""In kernels: the arithmetic on blocks at places that are given, and funcs that find places in offsets and columns."""

from __future__ import annotations

from typing import Any

from ..arrays.array import array
from ..geometry.search import between
from ..kernels import kernel, ops
from ..kernels.ops.memory import ATOMIC_ADD as atomic_add
from ..kernels.reading.declare import func, tid
from ..kernels.reading.library import library

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


# ---- places of blocks


@func
def block_between(column: int, start: int, stop: int, columns: indices):
    at = between(columns, start, stop, column)
    found = -1
    if start < stop and columns[at] == column:
        found = at
    return found


@library()
def _counted_block_index(row: int, column: int, offsets: indices, columns: indices, counts: indices):
    found = -1
    if row >= 0:
        start, stop = offsets[row], offsets[row + 1]
        if counts:
            stop = start + counts[row]
        found = block_between(column, start, stop, columns)
    return found


@library(other=_counted_block_index)
def bsr_block_index(row: int, column: int, offsets: indices, columns: indices):
    """In a kernel: the index in `values` of the block of this row and column; -1 if there is none.

    The columns of a row are sorted, as those of `BsrMatrix` are. A fifth argument says how many blocks each row has,
    where rows have room for more.

    >>> @wb.kernel
    ... def ask(offsets: wb.array[int], columns: wb.array[int], at: wb.array[int]):
    ...     j = wb.tid()
    ...     at[j] = wb.sparse.bsr_block_index(1, j, offsets, columns)
    >>> A = wb.sparse.bsr_diag(wb.array([1.0, 2.0, 3.0]))
    >>> at = wb.zeros(3, dtype=int)
    >>> wb.launch(ask, dim=3, inputs=[A.offsets, A.columns, at])
    >>> at.list() == [-1, 1, -1]
    True
    """
    found = -1
    if row >= 0:
        found = block_between(column, offsets[row], offsets[row + 1], columns)
    return found


@library()
def _counted_row_index(offsets: indices, row_count: int, block: int, counts: indices):
    row = bsr_row_index(offsets, row_count, block)
    if counts and row >= 0 and block >= offsets[row] + counts[row]:
        row = -1
    return row


@library(other=_counted_row_index)
def bsr_row_index(offsets: indices, row_count: int, block: int):
    """In a kernel: the row of a block by its place in `values`; -1 if there is no such block.

    A fourth argument says how many blocks each row has, where rows have room for more.

    >>> @wb.kernel
    ... def ask(offsets: wb.array[int], rows: wb.array[int]):
    ...     k = wb.tid()
    ...     rows[k] = wb.sparse.bsr_row_index(offsets, 3, k)
    >>> A = wb.sparse.bsr_diag(wb.array([1.0, 2.0, 3.0]))
    >>> rows = wb.zeros(4, dtype=int)
    >>> wb.launch(ask, dim=4, inputs=[A.offsets, rows])
    >>> rows.list() == [0, 1, 2, -1]
    True
    """
    row = -1
    if block < offsets[row_count]:
        row = between(offsets, 0, row_count + 1, block + 1) - 1
    return row

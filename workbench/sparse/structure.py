"""Structure of sparse matrices: offsets and columns of blocks, as integers on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays.array import array

Whole = array | Sequence[int] | np.ndarray  # rows, columns or counts, as users give them


def compressed(rows: np.ndarray, columns: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """(offsets, columns) of the distinct places, row by row, and for each given place its index there; all int32."""
    keys, place = np.unique(rows.astype(np.int64) * max(size[1], 1) + columns, return_inverse=True)
    found, at = np.divmod(keys, max(size[1], 1))
    offsets = np.searchsorted(found, np.arange(size[0] + 1))
    return offsets.astype(np.int32), at.astype(np.int32), place.reshape(-1).astype(np.int32)


def rows_of(offsets: np.ndarray) -> np.ndarray:
    """The row of every block, int32."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))


def numbers(a: Whole) -> np.ndarray:
    """The integers of an array as a NumPy array."""
    return np.array(a.list() if isinstance(a, array) else a, np.int32).reshape(-1)


def pairs(left_columns: np.ndarray, right_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of blocks to multiply in a product: each of the left with all of the right's row with its column number."""
    counts = np.diff(right_offsets)[left_columns] if len(left_columns) else np.zeros(0, int)
    left = np.repeat(np.arange(len(left_columns)), counts)
    first = np.repeat(right_offsets[left_columns] if len(left_columns) else counts, counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left.astype(np.int32), (first + within).astype(np.int32)

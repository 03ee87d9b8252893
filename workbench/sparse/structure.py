"""Where the blocks of a sparse matrix are: whole numbers on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.array import array


def compressed(rows: np.ndarray, columns: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """offsets, columns of the distinct places in order of rows, and for each given place its number among them."""
    keys, place = np.unique(rows.astype(np.int64) * max(size[1], 1) + columns, return_inverse=True)
    found, at = np.divmod(keys, max(size[1], 1))
    offsets = np.searchsorted(found, np.arange(size[0] + 1))
    return offsets.astype(np.int32), at.astype(np.int32), place.reshape(-1).astype(np.int32)


def rows_of(offsets: np.ndarray) -> np.ndarray:
    """The row of every block."""
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))


def numbers(a: Any) -> np.ndarray:
    """Whole numbers of an array as NumPy has them."""
    return np.array(a.list() if isinstance(a, array) else a, np.int32).reshape(-1)


def pairs(left_columns: np.ndarray, right_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For a product: every block of the left with every block in the row of the right that its column names."""
    counts = np.diff(right_offsets)[left_columns] if len(left_columns) else np.zeros(0, int)
    left = np.repeat(np.arange(len(left_columns)), counts)
    first = np.repeat(right_offsets[left_columns] if len(left_columns) else counts, counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left.astype(np.int32), (first + within).astype(np.int32)

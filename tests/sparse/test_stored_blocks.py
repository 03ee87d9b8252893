"""What a sparse matrix stores: its places and blocks beside SciPy's, and what changes them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import workbench as wb
from workbench import sparse

pytestmark = pytest.mark.usefixtures("backend")
BLOCKS = [wb.float64, wb.mat22d, wb.types.matrix((2, 3), wb.float64)]


def made(block, nrow=4, ncol=5, zeros=False):
    """A random matrix, and SciPy's; `zeros`: every second block of it is zero."""
    rng = np.random.default_rng(3)
    shape = block.shape or (1, 1)
    places = rng.permutation(nrow * ncol)[:9]
    data = rng.normal(size=(9, *shape))
    data[::2] *= not zeros
    values = wb.array(data.reshape(9, *block.shape), dtype=block)
    A = sparse.bsr_zeros(nrow, ncol, block)
    at = [wb.array(k, dtype=int) for k in np.divmod(places, ncol)]
    sparse.bsr_set_from_triplets(A, *at, values, prune_numerical_zeros=False)
    dense = np.zeros((nrow, ncol, *shape))
    dense[np.divmod(places, ncol)] = data
    dense = dense.transpose(0, 2, 1, 3).reshape(nrow * shape[0], ncol * shape[1])
    places = np.sort(places)
    return A, dense, places // ncol, places % ncol


def as_dense(A):
    blocks = A.scalar_values.numpy().reshape(A.nnz, *A.block_shape)
    parts = blocks, A.columns.numpy()[: A.nnz], A.offsets.numpy()
    return scipy.sparse.bsr_array(parts, shape=A.shape).toarray()


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_it_stores_what_scipy_does(block):
    A, dense, rows, columns = made(block)
    np.testing.assert_allclose(as_dense(A), dense)
    assert A.shape == dense.shape and A.block_size == np.prod(A.block_shape) == block.size
    assert A.nnz == A.nnz_sync() == A.copy_nnz_async() == 9 and A.row_counts is None
    assert A.columns.list() == columns.tolist() and A.uncompress_rows().list() == rows.tolist()
    room = wb.zeros(9, dtype=int)
    assert A.uncompress_rows(out=room) is room and room.list() == rows.tolist()
    assert not A.requires_grad
    A.requires_grad = True
    assert A.requires_grad and A.values.requires_grad and A.scalar_values.dtype is wb.float64
    A.nnz, A.row_counts = 9, None  # what they are


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("inplace", [False, True])
def test_blocks_of_zeros_are_pruned_if_that_is_asked_for(block, inplace):
    A, dense, *_ = made(block, zeros=True)
    kept = sparse.bsr_compress(A, prune_numerical_zeros=False)
    assert kept.nnz == A.nnz == 9
    pruned = sparse.bsr_compress(A, inplace=inplace)
    assert (pruned is A) == inplace and pruned.nnz == 4 and A.nnz == (4 if inplace else 9)
    for one in (kept, pruned):
        np.testing.assert_allclose(as_dense(one), dense)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_places_alone_are_taken_over_with_blocks_of_zeros(block):
    A, dense, rows, columns = made(block)
    for other in (sparse.bsr_copy(A, structure_only=True), B := sparse.bsr_zeros(7, 2, block)):
        if other is B:
            sparse.bsr_assign(B, A, structure_only=True)
        assert other.shape == dense.shape and not as_dense(other).any()
        assert other.uncompress_rows().list() == rows.tolist() and other.columns.list() == columns.tolist()
    sparse.bsr_assign(B, A)
    np.testing.assert_allclose(as_dense(B), dense)
    assert A.values.numpy().any()


def test_a_matrix_is_emptied_and_may_get_another_size():
    A, dense, *_ = made(wb.mat22d)
    sparse.bsr_set_zero(A)
    assert A.shape == dense.shape and A.nnz == 0 and A.offsets.list() == [0] * 5
    sparse.bsr_set_zero(A, 2, 3)
    assert A.shape == (4, 6) and A.nnz == 0 and A.offsets.list() == [0] * 3
    sparse.bsr_set_zero(A, cols_of_blocks=7)
    assert A.shape == (4, 14)
    sparse.bsr_set_from_triplets(A, wb.array([1]), wb.array([6]), wb.ones(1, dtype=wb.mat22d))
    assert as_dense(A)[2:, 12:].sum() == 4 == as_dense(A).sum()


def test_triplets_that_lie_outside_or_behind_the_count_are_left_out():
    rows, columns = [0, -1, 2, 1, 0, 1, 1], [0, 0, 1, 3, -2, 2, 1]
    for count in (None, 6, wb.array([6], dtype=int)):
        A = sparse.bsr_zeros(2, 3, wb.float64)
        at = [wb.array(k, dtype=int) for k in (rows, columns)]
        sparse.bsr_set_from_triplets(A, *at, wb.array(np.arange(1.0, 8.0)), count=count)
        assert as_dense(A).tolist() == [[1, 0, 0], [0, 7 * (count is None), 6]]


def test_new_offsets_make_room_for_more_blocks():
    A = sparse.bsr_zeros(2, 3, wb.float64)
    A.offsets = wb.array([0, 2, 3], dtype=int)
    with pytest.raises(wb.LaunchError, match=r"\[structure\]"):
        A.notify_nnz_changed(2)
    A.notify_nnz_changed(nnz_capacity=5)
    assert A.nnz == 3 and len(A.columns) == len(A.values) == 5
    columns, values = A.columns, A.values
    A.notify_nnz_changed(3)
    assert A.columns is columns and A.values is values
    columns.assign([0, 2, 1, 0, 0])
    values.assign([1.0, 2.0, 3.0, 0.0, 0.0])
    assert (A @ wb.array([1.0, 10.0, 100.0], dtype=wb.float64)).list() == [201.0, 30.0]

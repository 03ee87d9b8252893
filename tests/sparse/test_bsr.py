"""Sparse matrices of blocks equal dense ones, and their gradients those of the dense computation."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench import sparse

RANDOM = np.random.default_rng(5)
SCALARS = (wb.float32, wb.float64)


def dense(A):
    rows, cols = A.block_shape
    out = np.zeros((A.nrow, rows, A.ncol, cols))
    values = A.values.numpy().reshape(-1, rows, cols)
    at = A.offsets.numpy()
    for i in range(A.nrow):
        for k in range(at[i], at[i + 1]):
            out[i, :, A.columns.numpy()[k]] += values[k]
    return out.reshape(A.shape)


def random(nrow, ncol, block, n=7, requires_grad=False):
    values = wb.array(RANDOM.normal(size=(n, *block.shape)), dtype=block, requires_grad=requires_grad)
    rows, columns = RANDOM.integers(0, nrow, n), RANDOM.integers(0, ncol, n)
    return values, wb.array(rows, dtype=int), wb.array(columns, dtype=int)


BLOCKS = [wb.float64, wb.mat33d, wb.types.matrix((2, 3), wb.float64), wb.float32, wb.mat22]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_triplets_copies_transposes_sums_and_products_equal_dense_ones(block):
    values, rows, columns = random(4, 5, block)
    A = sparse.bsr_from_triplets(4, 5, rows, columns, values)
    close = dict(rtol=2e-5, atol=2e-5) if block.scalar is wb.float32 else dict(rtol=1e-13, atol=1e-13)
    want = np.zeros((4, A.block_shape[0], 5, A.block_shape[1]))
    for v, i, j in zip(values.numpy().reshape(-1, *A.block_shape), rows.numpy(), columns.numpy()):
        want[i, :, j] += v
    want = want.reshape(A.shape)
    np.testing.assert_allclose(dense(A), want, **close)
    np.testing.assert_allclose(dense(sparse.bsr_transposed(A)), want.T, **close)
    np.testing.assert_allclose(dense(A + 2.0 * A - A / 4.0), 2.75 * want, **close)
    np.testing.assert_allclose(dense(A @ A.transpose()), want @ want.T, **close)
    x = RANDOM.normal(size=A.shape[1])
    np.testing.assert_allclose((A @ wb.array(x, dtype=A.scalar_type)).numpy().reshape(-1), want @ x, **close)
    assert (sparse.bsr_copy(A).columns.numpy() == A.columns.numpy()).all() and A.nnz == len(A.columns)


@pytest.mark.parametrize("block", BLOCKS[:2], ids=str)
def test_a_matrix_that_stores_nothing_is_compressed_and_multiplied(block):
    zeros = wb.zeros(2, dtype=block)
    A = sparse.bsr_from_triplets(2, 2, wb.array([0, 1], dtype=int), wb.array([0, 1], dtype=int), zeros)
    assert A.nnz == 0
    empty = sparse.bsr_compress(A @ A)
    x = wb.ones(empty.shape[1], dtype=wb.float64)
    assert empty.nnz == 0 and not (empty @ x).numpy().any()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("block", BLOCKS[:3], ids=str)
def test_the_gradient_of_a_product_by_blocks_vector_and_result(block, transpose):
    values, rows, columns = random(4, 5, block, requires_grad=True)
    r, c = block.shape or (1, 1)
    n, m = (5 * c, 4 * r) if transpose else (4 * r, 5 * c)
    x = wb.array(RANDOM.normal(size=m), dtype=wb.float64, requires_grad=True)
    y0 = wb.array(RANDOM.normal(size=n), dtype=wb.float64, requires_grad=True)
    seed = RANDOM.normal(size=n)
    with wb.Tape() as tape:
        A = sparse.bsr_from_triplets(4, 5, rows, columns, values)
        y = wb.clone(y0)
        sparse.bsr_mv(A, x, y, alpha=2.0, beta=-3.0, transpose=transpose)
    tape.backward(grads={y: wb.array(seed, dtype=wb.float64)})
    D = dense(A).T if transpose else dense(A)
    np.testing.assert_allclose(x.grad.numpy(), 2 * D.T @ seed, rtol=1e-12)
    np.testing.assert_allclose(y0.grad.numpy(), -3 * seed, rtol=1e-12)
    outer = 2 * np.outer(seed, x.numpy())
    outer = outer.T if transpose else outer
    want = outer.reshape(4, r, 5, c)[rows.numpy(), :, columns.numpy()]
    np.testing.assert_allclose(values.grad.numpy().reshape(want.shape), want, rtol=1e-12)


def test_the_gradient_of_a_product_of_matrices_by_all_blocks():
    values, rows, columns = random(3, 3, wb.mat22d, requires_grad=True)

    def loss(values):
        A = sparse.bsr_from_triplets(3, 3, rows, columns, values)
        B = sparse.bsr_mm(A, sparse.bsr_transposed(A), sparse.bsr_copy(A), alpha=0.5, beta=2.0)
        out = wb.zeros(1, dtype=wb.float64)
        wb.utils.array_inner(B.values, B.values, out=out)
        return out

    assert wb.gradcheck(loss, inputs=[values])


def test_zeros_are_left_out_but_not_where_they_have_a_derivative():
    at = wb.array([0, 1]), wb.array([1, 0])
    values = wb.array([0.0, 2.0], requires_grad=True)
    assert sparse.bsr_from_triplets(2, 2, *at, values).nnz == 1
    with wb.Tape() as tape:
        A = sparse.bsr_from_triplets(2, 2, *at, values)
        y = A @ wb.array([3.0, 5.0])
    tape.backward(grads={y: wb.ones(2)})
    assert A.nnz == 2 and values.grad.list() == [5.0, 3.0]


def test_diagonals_and_identities():
    A = sparse.bsr_from_triplets(2, 2, wb.array([0, 0]), wb.array([0, 1]), wb.array([7.0, 9.0]))
    assert sparse.bsr_get_diag(A).list() == [7.0, 0.0]
    assert (dense(sparse.bsr_identity(3, wb.mat22)) == np.eye(6)).all()
    assert (dense(sparse.bsr_diag(wb.mat22(1.0, 2.0, 3.0, 4.0), rows_of_blocks=2))[2:, 2:] == [[1, 2], [3, 4]]).all()


def test_not_a_number_in_the_old_result_is_not_read():
    A = sparse.bsr_identity(2, float)
    y = wb.array([np.nan, np.nan])
    assert sparse.bsr_mv(A, wb.array([1.0, 2.0]), y).list() == [1.0, 2.0]


def test_what_does_not_fit_is_refused():
    A = sparse.bsr_identity(2, float)
    with pytest.raises(wb.LaunchError, match=r"takes 2 of float32 as x(.|\n)*\[shape\]"):
        A @ wb.ones(3)
    with pytest.raises(wb.LaunchError, match=r"\[dtype\]"):
        A @ wb.ones(2, dtype=wb.float64)
    with pytest.raises(wb.LaunchError, match=r"\[topology\]"):
        sparse.bsr_zeros(2, 2, float, topology="padded")
    with pytest.raises(wb.LaunchError, match=r"blocks are(.|\n)*\[dtype\]"):
        sparse.bsr_zeros(2, 2, wb.vec3)


@pytest.mark.needs_warp
def test_blocks_lie_where_warp_puts_them():
    import warp as wp
    import warp.sparse

    rows, columns, values = RANDOM.integers(0, 4, 9), RANDOM.integers(0, 4, 9), RANDOM.normal(size=9)
    ours = sparse.bsr_from_triplets(
        4, 4, wb.array(rows, dtype=int), wb.array(columns, dtype=int), wb.array(values, dtype=float)
    )
    theirs = warp.sparse.bsr_from_triplets(
        4,
        4,
        wp.array(rows, dtype=int, device="cpu"),
        wp.array(columns, dtype=int, device="cpu"),
        wp.array(values, dtype=float, device="cpu"),
    )
    assert (ours.offsets.numpy() == theirs.offsets.numpy()).all()
    assert (ours.columns.numpy() == theirs.columns.numpy()[: ours.nnz]).all()
    np.testing.assert_allclose(ours.values.numpy(), theirs.values.numpy()[: ours.nnz], rtol=1e-6)


def test_nnz_is_what_offsets_say_and_rows_are_full():
    A = wb.sparse.bsr_zeros(2, 2, float)
    A.offsets = wb.array([0, 1, 2], dtype=int)
    A.nnz = 2
    A.notify_nnz_changed(nnz=2)
    A.columns.assign([1, 0])
    A.values.assign([2.0, 3.0])
    assert (A @ wb.array([1.0, 10.0])).numpy().tolist() == [20, 3] and A.nnz == 2
    A.row_counts = None
    assert A.row_counts is None
    with pytest.raises(wb.LaunchError, match="structure"):
        A.nnz = 3
    with pytest.raises(wb.LaunchError, match="topology"):
        A.row_counts = wb.array([1, 1], dtype=int)

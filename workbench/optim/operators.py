"""Matrices as the solvers take them, known by their products, and approximate inverses of them (inverted in NumPy)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, on_device, read_values
from ..arrays.creation import copy, zeros
from ..arrays.dtypes import DTypeLike, dtype_of, scalar_in
from ..arrays.workspace import gradient_dtype
from ..device import DeviceLike, XpArray
from ..errors import GradientError, LaunchError, WorkbenchError
from ..kernels import kernel
from ..kernels.compile import thread_pool
from ..kernels.reading.declare import tid
from ..kernels.types import Composite, Scalar
from ..launches.array_tools import flat
from ..launches.command import Command
from ..launches.launch import launch
from ..sparse import BsrMatrix, bsr_get_diag, bsr_mv
from ..sparse.matrix import rows_of
from ..tapes.capture import Capture, Graph
from ..tapes.jvp import components, value_of
from ..tapes.tape import Tape

numbers, table = array(dtype=Any), array(dtype=Any, ndim=2)


@kernel
def dense_times(A: table, x: numbers, a: Any, b: Any, y: numbers, out: numbers):
    """out = a * A x + b * y."""
    i = tid()
    total = b * y[i]
    for j in range(A.shape[1]):
        total += a * A[i, j] * x[j]
    out[i] = total


@kernel
def diagonal_times(d: numbers, x: numbers, a: Any, b: Any, y: numbers, out: numbers):
    """out = a * d x + b * y."""
    i = tid()
    out[i] = a * d[i] * x[i] + b * y[i]


class LinearOperator:
    """A matrix known by its products: `matvec(x, y, z, alpha, beta)` does z = alpha * A x + beta * y.

    `transposed`: the same with the transpose. A solve under a tape that has a derivative finds it without, by a walk
    over the launches of `matvec`; it refuses a product that the host makes.

    >>> def twice(x, y, z, alpha, beta):
    ...     z.assign(wb.array(2.0 * alpha * x.numpy() + beta * y.numpy()))
    >>> A = wb.optim.linear.LinearOperator((2, 2), wb.float32, "cpu", twice)
    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.cg(A, wb.array([2.0, 4.0]), x)
    >>> x.list()
    [1.0, 2.0]
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: DTypeLike,
        device: DeviceLike,
        matvec: Callable,
        batch_offsets: object = None,
        max_batch_length: int | None = None,
        transposed: Callable | None = None,
        source: array | BsrMatrix | None = None,
    ):
        if batch_offsets is not None:
            raise LaunchError("batches of systems are not here.", slug="linear", instead="one call for each system")
        self.shape, self.dtype, self.device, self.matvec = shape, dtype, device, matvec
        self.transposed, self.source = transposed, source
        self.batch_offsets, self.batch_count, self.max_batch_length = None, 1, None

    @property
    def scalar_type(self) -> Scalar:
        """The scalar type of its entries."""
        return scalar_in(dtype_of(self.dtype))


MatrixLike = LinearOperator | BsrMatrix | array  # dense or a diagonal, sparse, or known by its products


def aslinearoperator(A: MatrixLike | None, batch_offsets: object = None, max_batch_length: int | None = None) -> Any:
    """A dense matrix (two axes), a diagonal (one axis, of numbers or vectors) or a sparse matrix as a LinearOperator.

    A LinearOperator, or None, stays what it is. Raises LaunchError [linear] for anything else.

    >>> wb.optim.linear.aslinearoperator(wb.ones(3)).shape
    (3, 3)
    """
    if A is None or isinstance(A, LinearOperator):
        return A
    if isinstance(A, BsrMatrix):

        def sparse(x: array, y: array, z: array, alpha: float, beta: float, transpose: bool = False) -> None:
            if z is not y and beta != 0:
                copy(z, y)
            bsr_mv(A, x, z, alpha, beta, transpose)

        back = partial(sparse, transpose=True)
        return LinearOperator(A.shape, A.dtype, A.device, sparse, batch_offsets, None, back, A)
    if isinstance(A, array) and A.ndim == 1 and isinstance(A.dtype, Composite):
        A = flat(A)
    if isinstance(A, array) and isinstance(A.dtype, Scalar) and A.ndim in (1, 2):
        shape = (A.shape[0], A.shape[-1])
        turned = A if A.ndim == 1 else A.transpose()
        times, back = _array_product(A), _array_product(turned)
        return LinearOperator(shape, A.dtype, A.device, times, batch_offsets, None, back, A)
    got = f"an array of {A.dtype} with {A.ndim} axes" if isinstance(A, array) else type(A).__name__
    raise LaunchError(f"a matrix is dense, a diagonal, sparse or a LinearOperator, not {got}", slug="linear")


def _array_product(A: array) -> Callable:
    times, kind = (dense_times if A.ndim == 2 else diagonal_times), A.dtype.numpy.type

    def product(x: array, y: array, z: array, alpha: float, beta: float) -> None:
        launch(times, A.shape[0], [A, x, kind(alpha), kind(beta), y], [z])

    return product


Times = Callable[[XpArray], XpArray]  # a product with a vector, (columns,) -> (rows,)


@dataclass(frozen=True)
class Products:
    """Products of vectors of NumPy or CuPy with a matrix, and with its transpose where they are known."""

    times: Times
    back: Callable[[], Times] | None = None  # the latter, when they are asked for
    matrix: Any = None  # of NumPy or SciPy, where there is one: on the CPU, of entries
    turned: bool = False  # these are products with its transpose

    @staticmethod
    def of(A: LinearOperator | None, b: array, by_launches: bool = False) -> Products:
        """Products with vectors of the type and device of `b`, with the present entries of A; None: the identity.

        On the CPU they are SciPy's where there are entries, unless `by_launches`.
        """
        if A is None:
            return IDENTITY
        if A.source is not None and b.device.is_cpu and not by_launches:
            made_of = Entries.of(A)
            return made_of.products(b, read_values(made_of.values))
        turned = A.transposed
        return Products(calls(A.matvec, A, b), None if turned is None else lambda: calls(turned, A, b))

    @staticmethod
    def of_both(A: LinearOperator, M: LinearOperator | None, b: array) -> tuple[Products, Products]:
        """Products with both: with M by launches, where those with A are native."""
        made = Products.of(A, b)
        return made, Products.of(M, b, isinstance(made.times, NativeProduct))

    def __call__(self, v: XpArray) -> XpArray:
        return self.times(v)

    @property
    def transposed(self) -> Products:
        """Products with the transpose; with the identity where they are not known, as a preconditioner's may be."""
        if self is IDENTITY or self.back is None:
            return IDENTITY
        return Products(self.back(), lambda: self.times, self.matrix, not self.turned)


IDENTITY = Products(lambda v: v)
OTHER = 1779033703  # another step of `generic`


class NativeProduct:
    """Products by launches, as one list of native calls that takes the vector `x` to `out`: a capture of `matvec`.

    `launches`: those among the calls; `apart`: if y may be another array than z.
    """

    def __init__(self, graph: Graph, x: array, y: array, out: array):
        self.graph, self.x, self.out = graph, x.data, out.data
        self.calls = capture_log.row_of(graph.notes.steps)[0]
        self.launches = [kept for kept in graph.notes.kept if isinstance(kept, Command)]
        self.apart, self.own = y is not out, {x.allocation, y.allocation, out.allocation}
        self.alone = self.own.issuperset(graph.notes.written)  # it writes no other memory

    @property
    def row(self) -> tuple[int, int]:
        """The address of the calls, and their number."""
        return self.calls.buffer_info()[0], len(self.graph.notes.steps)

    def __call__(self, v: XpArray) -> XpArray:
        self.x[...] = v
        thread_pool.replay()(*self.row)
        self.look()
        return self.out.astype(v.dtype)

    def look(self) -> None:
        """Raise what the last calls have found, as a launch raises it."""
        thread_pool.after_call()
        for error in filter(None, [look() for look in self.graph.notes.checks]):
            raise error


def generic(b: array, step: int = 1640531527) -> XpArray:
    """A vector like b of numbers in (-1, 1) without a pattern that operators have: multiples of a step, modulo 2^32."""
    made = np.arange(1, b.size + 1, dtype=np.int32) * np.int32(step) / 2.0**31
    return on_device(b, made.astype(b.dtype.numpy))


def alike(a: XpArray, b: XpArray) -> bool:
    """True if two vectors differ by rounding at most."""
    return bool(abs(a - b).max() <= 1e3 * np.finfo(b.dtype).eps * abs(b).max())


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """True if two arrays of one shape hold the same values: a comparison of bytes takes a tenth of that of NaNs."""
    return a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=True)


def calls(matvec: Callable, A: LinearOperator, b: array) -> Times:
    """Products by calls of `matvec`, or `transposed`, on the same arrays: native ones where these only launch."""
    kind, number = scalar_in(b.dtype), scalar_in(b.dtype).numpy.type
    height, width = A.shape[:: -1 if matvec == A.transposed else 1]
    with memory.unrecorded():
        out, none, x = (zeros(n, kind, b.device) for n in (height, height, width))

    def multiply(y: array) -> None:
        if y is out:
            out.zero_()  # a NaN of before would stay one
        matvec(x, y, out, number(1), number(y is not out))

    def times(v: XpArray) -> XpArray:
        with memory.unrecorded():
            x.data[...] = v
            multiply(out)
        return out.data.astype(v.dtype)

    # apart from y, which is 0, it is vectorized, and need not be zeroed
    return _captured(multiply, x, none, out) or _captured(multiply, x, out, out) or times


def _captured(multiply: Callable[[array], None], x: array, y: array, out: array) -> NativeProduct | None:
    """The product from x to out as native calls; None where it is more than these, as they alone make another one."""
    with memory.LOCK, memory.unrecorded():
        around = capture_log.opened
        if not (capture_log.compiles() and x.device.is_cpu and x.size and out.size):
            return None
        if around is not None and around.thread != get_ident():
            return None
        x.data[...] = generic(x)
        try:
            with capture_log.interrupted(), Capture() as capture:
                multiply(y)
        except WorkbenchError:
            return None  # it raises it again, or the host reads values
        graph = capture.graph
        assert graph is not None
        notes = graph.notes
        plain = all(isinstance(step, capture_log.NativeCall) for step in notes.steps)
        if not plain or notes.tapes or notes.cleared or notes.published:
            return None
        made, sample = NativeProduct(graph, x, y, out), out.data.copy()
        kept = notes.written.keys() & made.own <= {out.allocation}
        added = generic(y, OTHER) * abs(sample).max() if made.apart else 0
        y.data[...], out.data[...] = added, np.nan  # of an `out` that it adds to, or leaves
        again = made(x.data) - added
        y.data[...], out.data[...] = 0, np.nan
        return made if kept and alike(again, sample) and not made(np.zeros_like(x.data)).any() else None


@dataclass(frozen=True)
class Entries:
    """Places of the entries of a matrix, dense, diagonal or sparse, and the array that has their values now."""

    A: LinearOperator
    values: array
    structure: tuple[np.ndarray, np.ndarray] | None = None

    @staticmethod
    def of(A: LinearOperator) -> Entries:
        source = A.source
        assert source is not None
        return Entries(A, source.values, source.structure) if isinstance(source, BsrMatrix) else Entries(A, source)

    def products(self, b: array, values: np.ndarray) -> Products:
        """Products with the matrix of these values."""
        if b.device.is_cuda:
            return Products.of(aslinearoperator(self._on_device(values)), b)
        made = self._matrix(values.astype(np.result_type(values.dtype, np.float32), copy=False))
        return Products(made.__matmul__, lambda: made.T.__matmul__, made)

    def _matrix(self, values: np.ndarray) -> Any:
        from scipy import sparse  # when a system is solved: it takes a tenth of a second to load

        if self.structure is None:
            return values if values.ndim == 2 else sparse.diags_array(values, format="csr")
        offsets, columns = self.structure
        values = values[: len(columns)]
        kind = sparse.csr_array if values.ndim == 1 else sparse.bsr_array
        return kind((values, columns, offsets), shape=self.A.shape)

    def _on_device(self, values: np.ndarray) -> array | BsrMatrix:
        source = self.A.source
        made = array(values, dtype=self.values.dtype, device=self.values.device)
        if not isinstance(source, BsrMatrix):
            return made
        assert self.structure is not None
        matrix = BsrMatrix(source.nrow, source.ncol, source.dtype, source.device)
        matrix.place(*self.structure)
        matrix.values = made
        return matrix

    def outer(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """left right^T where the matrix has entries."""
        if self.structure is None:
            return left * right if self.values.ndim == 1 else np.outer(left, right)
        offsets, columns = self.structure
        found = np.zeros((len(self.values), *components(self.values)), left.dtype)
        rows, cols = found.shape[1:] or (1, 1)
        tall, wide = left.reshape(-1, rows)[rows_of(offsets)], right.reshape(-1, cols)[columns]
        found.reshape(-1, rows, cols)[: len(columns)] = tall[:, :, None] * wide[:, None, :]
        return found


class RecordedProduct:
    """The `matvec` of an operator as a tape sees it. `arrays`: those it reads; `by_host`: if the host makes a part."""

    def __init__(self, A: LinearOperator, b: array, times: Times):
        self.A, self.b, self.by_host = A, b, False
        self.known: tuple[Any, Any] = None, None  # a sample, and what `products` returned for it
        if isinstance(times, NativeProduct) and len(times.launches) == times.row[1]:
            used, own = {id(c.flat[k]): c.flat[k] for c in times.launches for k in c.program.array_positions}, times.own
            again = used
        else:
            (probe, x, z), again = self._recorded(), self._recorded()[0].arrays
            used, own = probe.arrays, {x.allocation, z.allocation}
            self.by_host = any(event.sources for event in probe.events)
        self.arrays = [a for a in used.values() if a.allocation not in own]
        self.lasting = {id(a) for a in self.arrays} & again.keys()  # not made anew by each product

    def _recorded(self) -> tuple[Tape, array, array]:
        """(a tape of z = A x, x, z)."""
        kind, make = self.b.dtype.numpy.type, {"dtype": self.b.dtype, "device": self.b.device}
        with memory.unrecorded():
            x, z = zeros(self.A.shape[1], requires_grad=True, **make), zeros(self.A.shape[0], **make)
            with Tape() as probe:
                self.A.matvec(x, z, z, kind(1), kind(0))
        return probe, x, z

    def of(self, reads: Sequence[np.ndarray], times: Times, sample: XpArray) -> Products:
        """`products`, if what `matvec` reads holds these values now. Raises GradientError [linear].

        times, sample   the products of the solve, and that with `generic` numbers.
        """
        if not all(_same(read_values(a), v) for a, v in zip(self.arrays, reads, strict=True)):
            why = "A second derivative runs on copies, and `matvec` reads the arrays themselves."
            raise _no_adjoint("that reads arrays that have changed since", why, "arrays of their own for each solve")
        if not (isinstance(times, NativeProduct) and times.alone):  # it makes known what it writes
            times = calls(self.A.matvec, self.A, self.b)
            known = self.lasting.issubset(self._recorded()[0].arrays)  # a replay has solved with what it reads now
            if not (known and alike(times(generic(self.b)), sample)):
                why = "Its products are others now than those of the solve."
                raise _no_adjoint("that has changed since", why, "an operator of its own for each solve")
        return self.products(times, sample)

    def products(self, times: Times, sample: XpArray) -> Products:
        """Products with the operator, and with its transpose by `transposed` or a walk over its launches.

        Raises GradientError [linear] where the host makes the product, or the latter is not its transpose.
        """
        if self.known[0] is sample:
            return self.known[1]
        if self.by_host:
            why = "What `matvec` computes on the host has no derivative."
            instead = "a kernel as the product, a dense matrix or wb.sparse.bsr_..."
            raise _no_adjoint("whose product the host makes", why, instead)
        u, v = generic(self.b), generic(self.b, OTHER)
        there, kind, back = float((times(v) * u).sum()), u.dtype, self._back(times)
        again = float(((sample if back is times else back(u)) * v).sum())
        if not abs(there - again) <= 1e3 * np.finfo(kind).eps * len(u) ** 0.5 * max(abs(there), abs(again), 1.0):
            why = f"For random vectors u A v is {there:.6g}, and v A^T u {again:.6g}."
            raise _no_adjoint("whose `transposed` is not its transpose, or which is not linear", why, "the right one")
        made = Products(times, lambda: back)
        if back is times and isinstance(times, NativeProduct) and times.alone:  # of present contents of `arrays`
            self.known = sample, made
        return made

    def _back(self, times: Times) -> Times:
        if self.A.transposed is not None:
            return times if self.A.transposed == self.A.matvec else calls(self.A.transposed, self.A, self.b)
        probe, x, z = self._recorded()

        def back(v: XpArray) -> XpArray:
            seeds = {z.allocation: v.astype(gradient_dtype(z)).view(np.uint8)}
            return on_device(x, value_of(x, probe.retrace(None, seeds=seeds)).astype(v.dtype))

        return back


def _no_adjoint(what: str, why: str, instead: str) -> GradientError:
    text = f"a solve with a LinearOperator {what}, under a tape."
    return GradientError(text, slug="linear", where=memory.caller_where(), why=why, instead=instead)


SINGULAR = {16: 1e-3, 32: 1e-6, 64: 1e-12}  # a block whose condition is worse than this one over it stays as it is
BLOCKS = ("block_jacobi_direct", "block_jacobi_sequential", "block_jacobi_tile")
KINDS = ("diag", "diag_abs", *BLOCKS, "id")


def preconditioner(A: array | BsrMatrix, ptype: str = "diag") -> LinearOperator | None:
    """An approximate inverse of a dense, diagonal or sparse matrix, for `M=` of the solvers; None for "id".

    "diag": one over the diagonal (0 counts as 1); "diag_abs": over its size; "block_jacobi_direct", "_sequential" and
    "_tile", which are one here: the inverses of the square blocks on the diagonal of a sparse matrix, the identity
    where a block has none. Computed now, from the present entries; inside a capture, anew with each replay.
    Raises LaunchError [linear].

    >>> M = wb.optim.linear.preconditioner(wb.sparse.bsr_diag(wb.mat22(2.0, 1.0, 0.0, 4.0), 3), "block_jacobi_direct")
    >>> wb.optim.linear.preconditioner(wb.array([2.0, 4.0]), "id") is None
    True
    """
    if ptype == "id":
        return None
    if ptype not in KINDS:
        raise LaunchError(f"there is no preconditioner {ptype!r} here", slug="linear", instead=" or ".join(KINDS))
    what = A if isinstance(A, BsrMatrix) else type(A).__name__
    if ptype in BLOCKS and not (isinstance(A, BsrMatrix) and A.nrow == A.ncol and len(set(A.block_shape)) == 1):
        raise LaunchError(f"{ptype} of {what}: it takes square blocks in a square", slug="linear", instead='"diag"')
    if not isinstance(A, BsrMatrix) and not (isinstance(A, array) and isinstance(A.dtype, Scalar)):
        raise LaunchError(f"a preconditioner of {what}", slug="linear", instead="a dense or a sparse matrix")

    if ptype in BLOCKS and isinstance(A, BsrMatrix) and not isinstance(A.dtype, Scalar):
        blocks = BsrMatrix(A.nrow, A.nrow, A.dtype, A.device)
        blocks.place(np.arange(A.nrow + 1, dtype=np.int32), np.arange(A.nrow, dtype=np.int32))
        _fill(blocks.values, lambda: _inverses(bsr_get_diag(A).numpy()))
        return aslinearoperator(blocks)

    def inverse() -> np.ndarray:
        if isinstance(A, BsrMatrix):
            d = np.einsum("nii->ni", bsr_get_diag(A).numpy().reshape(-1, *A.block_shape)).reshape(-1)
        else:
            d = A.numpy() if A.ndim == 1 else np.diagonal(A.numpy())
        return 1 / np.where(d == 0, 1, np.abs(d) if ptype == "diag_abs" else d)

    made = zeros(min(A.shape), scalar_in(A.dtype), A.device)
    _fill(made, inverse)
    return aslinearoperator(made)


def _fill(made: array, values: Callable[[], np.ndarray]) -> None:
    """Assign values now and in every replay of an open capture. Unrecorded: they have no derivative."""

    def fill() -> None:
        with memory.unrecorded():
            made.assign(array(values(), dtype=made.dtype, device=made.device))

    made.allocation.about_to_write(made.span, "preconditioner()")
    capture_log.do(fill)


def _inverses(blocks: np.ndarray) -> np.ndarray:
    """The inverse of each block, and the identity in place of one that has none."""
    wide, one = blocks.astype(np.float64), np.eye(blocks.shape[-1])
    sizes = np.linalg.svd(np.where(np.isfinite(wide), wide, 0), compute_uv=False)
    good = (sizes[:, -1] > SINGULAR[8 * blocks.itemsize] * sizes[:, 0]) & np.isfinite(wide).all(axis=(1, 2))
    return np.linalg.inv(np.where(good[:, None, None], wide, one))

"""Iterative solvers of linear systems: conjugate gradients and residuals, BiCGSTAB, GMRES.

Products and sums are launches on arrays; the few numbers that steer an iteration are read. Under an open tape a solve
is one event: its adjoint solves with the transposed matrix, so gradients are as exact as the solve, and never those of
the unrolled iteration. Sources: Hestenes and Stiefel 1952; Stiefel 1955; van der Vorst 1992; Saad and Schultz 1986.
"""

# The types of the kernel language are values, not types of Python.
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays import capture_log
from ..arrays.array import array, clone
from ..arrays.creation import copy, zeros_like
from ..errors import GradientError, LaunchError
from ..kernels import kernel
from ..kernels.reading.declare import Refused, tid
from ..kernels.types import Composite, Scalar
from ..launches.launch import launch
from ..launches.sums import array_inner
from ..sparse import BsrMatrix, bsr_get_diag, bsr_mv
from ..sparse.structure import rows_of

numbers, table = array(dtype=Any), array(dtype=Any, ndim=2)


@kernel
def axpby(a: Any, x: numbers, b: Any, y: numbers, out: numbers):
    """out = a * x + b * y."""
    i = tid()
    out[i] = a * x[i] + b * y[i]


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

    >>> def twice(x, y, z, alpha, beta):
    ...     z.assign(wb.array(2.0 * alpha * x.numpy() + beta * y.numpy()))
    >>> A = wb.optim.linear.LinearOperator((2, 2), wb.float32, "cpu", twice)
    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.cg(A, wb.array([2.0, 4.0]), x)
    >>> x.list()
    [np.float32(1.0), np.float32(2.0)]
    """

    def __init__(
        self, shape: tuple[int, int], dtype: Any, device: Any, matvec: Callable, batch_offsets: Any = None,
        max_batch_length: int | None = None, transposed: Callable | None = None, source: Any = None,
    ):  # fmt: skip
        if batch_offsets is not None:
            raise LaunchError("batches of systems are not here.", slug="linear", instead="one call for each system")
        self.shape, self.dtype, self.device, self.matvec = shape, dtype, device, matvec
        self.transposed, self.source = transposed, source


def aslinearoperator(A: Any, batch_offsets: Any = None, max_batch_length: int | None = None) -> LinearOperator:
    """A dense matrix (two axes), a diagonal (one axis) or a sparse matrix as a LinearOperator; one stays what it is.

    >>> wb.optim.linear.aslinearoperator(wb.ones(3)).shape
    (3, 3)
    """
    if isinstance(A, LinearOperator):
        return A
    if isinstance(A, BsrMatrix):

        def sparse(x: array, y: array, z: array, alpha: Any, beta: Any, transpose: bool = False) -> None:
            if z is not y:
                copy(z, y)
            bsr_mv(A, x, z, alpha, beta, transpose)

        return LinearOperator(A.shape, A.dtype, A.device, sparse, batch_offsets, None, _turned(sparse), A)
    if isinstance(A, array) and isinstance(A.dtype, Scalar) and A.ndim in (1, 2):
        shape = A.shape if A.ndim == 2 else (A.size, A.size)
        made = LinearOperator(shape, A.dtype, A.device, _array_product(A), batch_offsets, None, None, A)  # type: ignore[arg-type]
        made.transposed = made.matvec if A.ndim == 1 else _array_product(A.transpose().contiguous())
        return made
    got = f"an array of {A.dtype} with {A.ndim} axes" if isinstance(A, array) else type(A).__name__
    raise LaunchError(f"a matrix is dense, a diagonal, sparse or a LinearOperator, not {got}", slug="linear")


def _turned(product: Callable) -> Callable:
    return lambda x, y, z, alpha, beta: product(x, y, z, alpha, beta, True)


def _array_product(A: array) -> Callable:
    times, kind = (dense_times if A.ndim == 2 else diagonal_times), A.dtype.numpy.type  # type: ignore[attr-defined]

    def product(x: array, y: array, z: array, alpha: Any, beta: Any) -> None:
        launch(times, A.shape[0], [A, x, kind(alpha), kind(beta), y], [z])

    return product


def preconditioner(A: Any, ptype: str = "diag") -> LinearOperator | None:
    """An approximate inverse: "diag" (of scalars; 0 counts as 1), "diag_abs", or "id". Raises LaunchError [linear].

    >>> wb.optim.linear.preconditioner(wb.array([2.0, 4.0]), "id") is None
    True
    """
    if ptype == "id":
        return None
    if ptype not in ("diag", "diag_abs"):
        raise LaunchError(f"there is no preconditioner {ptype!r} here", slug="linear", instead='"diag" or "diag_abs"')
    with memory.unrecorded():
        if isinstance(A, BsrMatrix):
            blocks = bsr_get_diag(A).numpy()
            d = blocks if isinstance(A.dtype, Scalar) else np.einsum("nii->ni", blocks).reshape(-1)
        else:
            d = A.numpy() if A.ndim == 1 else np.diagonal(A.numpy())
        d = np.where(d == 0, 1, np.abs(d) if ptype == "diag_abs" else d)
        inverse = array(1 / d, dtype=A.dtype.scalar, device=A.device)
    return aslinearoperator(inverse)


class _Vectors:
    """The arithmetic of one solve: on arrays of numbers, in the scalar type of b."""

    def __init__(self, A: Any, b: array, M: Any):
        self.kind = b.dtype.numpy.type  # type: ignore[attr-defined]
        self.A, self.M = aslinearoperator(A), None if M is None else aslinearoperator(M)

    def times(self, x: array) -> array:
        """A x."""
        out = zeros_like(x, requires_grad=False)
        self.A.matvec(x, out, out, self.kind(1), self.kind(0))
        return out

    def prepared(self, r: array) -> array:
        """M r; r itself without a preconditioner."""
        if self.M is None:
            return r
        out = zeros_like(r, requires_grad=False)
        self.M.matvec(r, out, out, self.kind(1), self.kind(0))
        return out

    def sum(self, a: Any, x: array, b: Any, y: array, out: array | None = None) -> array:
        """a x + b y."""
        out = zeros_like(y, requires_grad=False) if out is None else out
        launch(axpby, out.size, [self.kind(a), x, self.kind(b), y], [out])
        return out

    @staticmethod
    def dot(x: array, y: array) -> float:
        return float(array_inner(x, y))

    def norm(self, x: array) -> float:
        return float(np.sqrt(self.dot(x, x)))


def _cg(v: _Vectors, b: array, x: array, done: Callable[[int, float], bool]) -> None:
    r = v.sum(1, b, -1, v.times(x))
    z = v.prepared(r)
    p, rz, turn = clone(z), v.dot(r, z), 0
    while not done(turn, v.norm(r)):
        ap = v.times(p)
        curvature = v.dot(p, ap)
        if curvature == 0:
            return
        alpha = rz / curvature
        v.sum(alpha, p, 1, x, x)
        v.sum(-alpha, ap, 1, r, r)
        z = v.prepared(r)
        rz, old = v.dot(r, z), rz
        v.sum(1, z, rz / old if old else 0, p, p)
        turn += 1


def _cr(v: _Vectors, b: array, x: array, done: Callable[[int, float], bool]) -> None:
    r = v.prepared(v.sum(1, b, -1, v.times(x)))
    true = v.sum(1, b, -1, v.times(x))
    p, ar = clone(r), v.times(r)
    ap, rar, turn = clone(ar), v.dot(r, ar), 0
    while not done(turn, v.norm(true)):
        map_ = v.prepared(ap)
        size = v.dot(ap, map_)
        if size == 0:
            return
        alpha = rar / size
        v.sum(alpha, p, 1, x, x)
        v.sum(-alpha, map_, 1, r, r)
        v.sum(-alpha, ap, 1, true, true)
        ar = v.times(r)
        rar, old = v.dot(r, ar), rar
        beta = rar / old if old else 0
        v.sum(1, r, beta, p, p)
        v.sum(1, ar, beta, ap, ap)
        turn += 1


def _bicgstab(v: _Vectors, b: array, x: array, done: Callable[[int, float], bool]) -> None:
    r = v.sum(1, b, -1, v.times(x))
    shadow, p, rho, turn = clone(r), clone(r), v.dot(r, r), 0
    while not done(turn, v.norm(r)):
        y = v.prepared(p)
        ay = v.times(y)
        size = v.dot(shadow, ay)
        if size == 0:
            return
        alpha = rho / size
        v.sum(-alpha, ay, 1, r, r)
        z = v.prepared(r)
        az = v.times(z)
        squared = v.dot(az, az)
        omega = v.dot(az, r) / squared if squared else 0.0
        v.sum(alpha, y, 1, x, x)
        v.sum(omega, z, 1, x, x)
        v.sum(-omega, az, 1, r, r)
        rho, old = v.dot(shadow, r), rho
        v.sum(-omega, ay, 1, p, p)
        v.sum(1, r, (rho / old) * (alpha / omega) if omega and old else 0, p, p)
        turn += 1


def _gmres(v: _Vectors, b: array, x: array, done: Callable[[int, float], bool], restart: int = 31) -> None:
    turn = 0
    while True:
        r = v.sum(1, b, -1, v.times(x))
        size = v.norm(r)
        if done(turn, size):
            return
        basis, h = [v.sum(1 / size, r, 0, r)], np.zeros((restart + 1, restart))
        used, y = 0, np.zeros(0)
        for k in range(restart):
            w = v.times(v.prepared(basis[k]))
            for j, q in enumerate(basis):
                h[j, k] = v.dot(q, w)
                v.sum(-h[j, k], q, 1, w, w)
            h[k + 1, k] = v.norm(w)
            used, turn = k + 1, turn + 1
            y, *_ = np.linalg.lstsq(h[: k + 2, : k + 1], size * np.eye(k + 2)[0], rcond=None)
            left = float(np.linalg.norm(size * np.eye(k + 2)[0] - h[: k + 2, : k + 1] @ y))
            if done(turn, left) or h[k + 1, k] <= 1e-14 * size:
                break
            basis.append(v.sum(1 / h[k + 1, k], w, 0, w))
        step = zeros_like(x, requires_grad=False)
        for q, c in zip(basis, y, strict=False):
            v.sum(c, q, 1, step, step)
        v.sum(1, v.prepared(step), 1, x, x)
        if used < restart:
            left = v.norm(v.sum(1, b, -1, v.times(x)))
            done(turn, left)
            return


def _solve(
    method: Callable, what: str, A: Any, b: array, x: array, tol: float | None, atol: float | None, maxiter: Any,
    M: Any, callback: Callable | None, check_every: int, run: bool,
) -> Any:  # fmt: skip
    """Solve, as one event of an open tape. Returns (iterations, norm of the residual, the tolerance it was held to)."""
    if not run:
        return lambda: _solve(method, what, A, b, x, tol, atol, maxiter, M, callback, check_every, True)
    capture_log.refuse(f"{what}()", "the solve outside of the capture, between two captures")
    for name, a in (("b", b), ("x", x)):
        if not isinstance(a, array) or not isinstance(a.dtype, Scalar | Composite) or a.dtype.scalar.kind != "f":
            raise LaunchError(f"{what} takes an array of floats as {name}", slug="linear", instead="wb.zeros(n)")
    if b.dtype != x.dtype or b.shape != x.shape:
        raise LaunchError(f"{what}: b and x differ in shape or dtype.", slug="linear", instead="x = wb.zeros_like(b)")
    tape = memory.recorder()
    arrays = _differentiable(A)
    if tape is not None and any(a.requires_grad or a.allocation in tape.active for a in (*arrays, b)):
        _check_adjoint(aslinearoperator(A))
    with memory.unrecorded():
        answer = x if tape is None else clone(x, requires_grad=False)
        said = _run(method, A, b, answer, tol, atol, maxiter, M, callback, check_every)
    if tape is not None:
        _record(tape, method, A, arrays, b, answer, (tol or None, maxiter), said)
        copy(x, answer)
    return said


def _differentiable(A: Any) -> tuple[array, ...]:
    source = A.source if isinstance(A, LinearOperator) else A
    return (source.values,) if isinstance(source, BsrMatrix) else (source,) if isinstance(source, array) else ()


def _run(
    method: Callable, A: Any, b: array, x: array, tol: float | None, atol: float | None, maxiter: Any, M: Any,
    callback: Callable | None, check_every: int,
) -> tuple[int, float, float]:  # fmt: skip
    v, (rhs, unknown) = _Vectors(A, b, M), (_numbers(b), _numbers(x))
    default = 1e-12 if b.dtype.scalar.bits == 64 else 1e-6  # type: ignore[attr-defined]
    tol, atol = (
        (default, 0.0 if tol is not None else 1e-30) if atol is None and tol is None else (tol or 0.0, atol or 0.0)
    )
    limit, most = max(tol * v.norm(rhs), atol), int(maxiter or rhs.size)
    state = [0, 0.0]

    def done(turn: int, residual: float) -> bool:
        state[:] = turn, residual
        if callback is not None and check_every and turn % check_every == 0:
            callback(turn, residual, limit)
        return residual <= limit or turn >= most or not np.isfinite(residual)

    method(v, rhs, unknown, done)
    return state[0], state[1], limit


def _numbers(a: array) -> array:
    made = a.flatten()
    return made.view(made.dtype.scalar).flatten() if isinstance(made.dtype, Composite) else made


def _check_adjoint(A: LinearOperator) -> None:
    if A.transposed is None:
        raise GradientError(
            "a solve with a LinearOperator of functions, under a tape.", slug="linear", where=memory.caller_where(),
            why="Its adjoint needs products with the transposed matrix.", instead="a dense or a sparse matrix",
        )  # fmt: skip


def _as_it_is(A: Any) -> LinearOperator:
    """The operator on a copy of its entries: they may be overwritten before the adjoint is computed."""
    source = A.source if isinstance(A, LinearOperator) and A.source is not None else A
    if isinstance(source, array):
        return aslinearoperator(clone(source, requires_grad=False))
    if isinstance(source, BsrMatrix):
        kept = BsrMatrix(source.nrow, source.ncol, source.dtype, source.device)
        kept.offsets, kept.columns, kept.structure = source.offsets, source.columns, source.structure
        kept.values = clone(source.values, requires_grad=False)
        return aslinearoperator(kept)
    return source


def _record(
    tape: Any, method: Callable, A: Any, arrays: tuple[array, ...], b: array, x: array, how: tuple[Any, Any],
    said: tuple[int, float, float],
) -> None:  # fmt: skip
    """The adjoint of x = A^-1 b, x new: lambda = A^-T dx; db += lambda; dA -= lambda x^T where entries are; dx = 0.

    The adjoint is linear in dx: it is solved for dx over its largest entry, so no absolute tolerance hides a small one.
    """
    with memory.unrecorded():
        operator, right = _as_it_is(A), x.numpy().copy()

    def solved_backwards() -> None:
        seed = x.grad
        assert seed is not None
        size = float(np.abs(seed.numpy()).max(initial=0.0))
        if not size:
            return
        _check_adjoint(operator)
        _check_converged("the solve", x, *said[1:])
        back = LinearOperator(operator.shape[::-1], operator.dtype, operator.device, operator.transposed)  # type: ignore[arg-type]
        found = zeros_like(x, requires_grad=False)
        right_side = array(seed.numpy() / size, dtype=seed.dtype, device=seed.device)
        _check_converged(
            "the adjoint solve", x, *_run(method, back, right_side, found, how[0], None, how[1], None, None, 0)[1:]
        )
        left = found.numpy() * seed.dtype.scalar.numpy.type(size)  # type: ignore[attr-defined]
        seed.zero_()
        for a in arrays:
            a.grad.assign(a.grad.numpy() - _outer(operator.source, left.reshape(-1), right.reshape(-1)))  # type: ignore
        b.grad.assign(b.grad.numpy() + left)  # type: ignore[union-attr]

    tape.record_func(solved_backwards, [*arrays, b, x])


def _check_converged(what: str, x: array, residual: float, wanted: float) -> None:
    if not residual <= wanted:
        raise GradientError(
            f"{what} of {x.label} did not converge: residual {residual:.1e}, wanted {wanted:.1e}.", slug="linear",
            why="Its gradient is that of the solution, not of an iterate.", instead="a larger maxiter or tol",
        )  # fmt: skip


def _outer(source: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left x right^T where the matrix has entries."""
    if isinstance(source, BsrMatrix):
        rows, cols = source.block_shape
        tall = left.reshape(-1, rows)[rows_of(source.structure[0])]
        wide = right.reshape(-1, cols)[source.structure[1]]
        made = tall[:, :, None] * wide[:, None, :]
        return made.reshape(source.values.numpy().shape)
    return left * right if source.ndim == 1 else np.outer(left, right)


_CLASS = "The functions solve: cg, cr, bicgstab, gmres; run=False gives one to call again."
CG, CR, BiCGSTAB, GMRES, LinearSolverState = (
    Refused(f"optim.linear.{name}", _CLASS) for name in "CG CR BiCGSTAB GMRES LinearSolverState".split()
)
FSAI = Refused("optim.linear.FSAI", 'preconditioner(A, "diag") is here.')


def cg(
    A: Any, b: array, x: array, tol: float | None = None, atol: float | None = None, maxiter: float | None = 0,
    M: Any = None, callback: Callable | None = None, check_every: int = 10, use_cuda_graph: bool = True,
    run: bool = True, *, restart: int | None = None,
) -> Any:  # fmt: skip
    """Solve A x = b for a symmetric positive definite A by conjugate gradients; x is the first guess and the answer.

    A: dense, diagonal, sparse or a LinearOperator; M: an approximate inverse. Returns the number of iterations, the
    norm of the residual, and the tolerance, `max(tol * norm(b), atol)`; by default tol is 1e-6, 1e-12 in float64.
    Under a tape the derivative by b and the entries of A is that of the solution, by a solve with A transposed; x as
    first guess has none. Raises LaunchError [linear], [capture]; GradientError [linear].

    >>> A, x = wb.array([[4.0, 1.0], [1.0, 3.0]]), wb.zeros(2)
    >>> turns, residual, wanted = wb.optim.linear.cg(A, wb.array([1.0, 2.0]), x)
    >>> turns, x.numpy().round(4)
    (2, array([0.0909, 0.6364], dtype=float32))
    """
    return _solve(_cg, "cg", A, b, x, tol, atol, maxiter, M, callback, check_every, run)


def cr(
    A: Any, b: array, x: array, tol: float | None = None, atol: float | None = None, maxiter: float | None = 0,
    M: Any = None, callback: Callable | None = None, check_every: int = 10, use_cuda_graph: bool = True,
    run: bool = True, *, restart: int | None = None,
) -> Any:  # fmt: skip
    """Solve A x = b for a symmetric A by conjugate residuals. Otherwise as `cg`.

    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.cr(wb.array([[4.0, 1.0], [1.0, -3.0]]), wb.array([6.0, -5.0]), x)
    >>> x.numpy().round(4)
    array([1., 2.], dtype=float32)
    """
    return _solve(_cr, "cr", A, b, x, tol, atol, maxiter, M, callback, check_every, run)


def bicgstab(
    A: Any, b: array, x: array, tol: float | None = None, atol: float | None = None, maxiter: float | None = 0,
    M: Any = None, callback: Callable | None = None, check_every: int = 10, use_cuda_graph: bool = True,
    is_left_preconditioner: bool = False, run: bool = True,
) -> Any:  # fmt: skip
    """Solve A x = b by BiCGSTAB, preconditioned from the right. Otherwise as `cg`.

    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.bicgstab(wb.array([[4.0, 1.0], [0.0, 3.0]]), wb.array([6.0, 6.0]), x)
    >>> x.numpy().round(4)
    array([1., 2.], dtype=float32)
    """
    return _solve(_bicgstab, "bicgstab", A, b, x, tol, atol, maxiter, M, callback, check_every, run)


def gmres(
    A: Any, b: array, x: array, tol: float | None = None, atol: float | None = None, restart: int = 31,
    maxiter: float | None = 0, M: Any = None, callback: Callable | None = None, check_every: int = 31,
    use_cuda_graph: bool = True, is_left_preconditioner: bool = False, run: bool = True,
) -> Any:  # fmt: skip
    """Solve A x = b by GMRES, begun anew after `restart` turns, preconditioned from the right. Otherwise as `cg`.

    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.gmres(wb.array([[0.0, 1.0], [-1.0, 0.0]]), wb.array([2.0, -1.0]), x)
    >>> x.numpy().round(4)
    array([1., 2.], dtype=float32)
    """

    def method(v: _Vectors, b: array, x: array, done: Callable) -> None:
        _gmres(v, b, x, done, min(restart, max(b.size, 1)))

    return _solve(method, "gmres", A, b, x, tol, atol, maxiter, M, callback, check_every, run)

"""Iterative solvers of linear systems: conjugate gradients and residuals, BiCGSTAB, GMRES.

Products and sums are launches on arrays; the few numbers that steer an iteration are read. Under an open tape a solve
is one event: its adjoint solves with the transposed matrix, so gradients are as exact as the solve, and never those of
the unrolled iteration. Sources: Hestenes and Stiefel 1952; Stiefel 1955; van der Vorst 1992; Saad and Schultz 1986.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy as shallow
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, clone
from ..arrays.creation import copy, zeros, zeros_like
from ..arrays.dtypes import scalar_in
from ..errors import GradientError, LaunchError
from ..kernels import kernel
from ..kernels.program import Kernel
from ..kernels.reading.declare import Refused, tid
from ..kernels.types import Composite, Scalar
from ..launches.array_tools import flat
from ..launches.launch import launch
from ..launches.sums import array_inner
from ..sparse import BsrMatrix
from ..sparse.matrix import rows_of
from ..tapes.tape import Tape
from .operators import LinearOperator, MatrixLike, aslinearoperator, preconditioner as preconditioner

__all__ = [
    "BiCGSTAB",
    "CG",
    "CR",
    "GMRES",
    "LinearOperator",
    "LinearSolverState",
    "aslinearoperator",
    "bicgstab",
    "cg",
    "cr",
    "gmres",
    "preconditioner",
]
__dir__ = __all__.copy
numbers = array(dtype=Any)


@kernel
def axpby(a: Any, x: numbers, b: Any, y: numbers, out: numbers):
    """out = a * x + b * y."""
    i = tid()
    out[i] = a * x[i] + b * y[i]


Callback = Callable[..., object] | Kernel | None
Said = tuple[int, float, float]  # the number of iterations, the norm of the residual, the tolerance
Done = Callable[[int, float], bool]  # told the turn and the norm of the residual: whether that is the last


class _Vectors:
    """The arithmetic of one solve: on arrays of numbers, in the scalar type of b."""

    def __init__(self, A: MatrixLike, b: array, M: MatrixLike | None):
        self.kind = b.dtype.numpy.type
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

    def sum(self, a: float, x: array, b: float, y: array, out: array | None = None) -> array:
        """a x + b y."""
        out = zeros_like(y, requires_grad=False) if out is None else out
        launch(axpby, out.size, [self.kind(a), x, self.kind(b), y], [out])
        return out

    @staticmethod
    def dot(x: array, y: array) -> float:
        return float(array_inner(x, y))

    def norm(self, x: array) -> float:
        return float(np.sqrt(self.dot(x, x)))


def _cg(v: _Vectors, b: array, x: array, done: Done, restart: int | None) -> None:
    turn = 0
    while True:
        r, first = v.sum(1, b, -1, v.times(x)), turn
        z = v.prepared(r)
        p, rz = clone(z), v.dot(r, z)
        while not (restart and turn - first >= restart):
            if done(turn, v.norm(r)):
                return
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


def _cr(v: _Vectors, b: array, x: array, done: Done, restart: int | None) -> None:
    turn = 0
    while True:
        true, first = v.sum(1, b, -1, v.times(x)), turn
        r = clone(v.prepared(true))
        p, ar = clone(r), v.times(r)
        ap, rar = clone(ar), v.dot(r, ar)
        while not (restart and turn - first >= restart):
            if done(turn, v.norm(true)):
                return
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


def _bicgstab(v: _Vectors, b: array, x: array, done: Done, restart: int | None) -> None:
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


def _gmres(v: _Vectors, b: array, x: array, done: Done, restart: int | None) -> None:
    turn, restart = 0, min(restart or 31, max(b.size, 1))
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


class LinearSolverState:
    """A system and how it is to be solved: calling it solves, with other operands where some are given.

    `cg(..., run=False)` and its like return one: `CG`, `CR`, `BiCGSTAB` or `GMRES`, which take the same arguments.

    >>> x = wb.zeros(2)
    >>> solver = wb.optim.linear.CG(wb.array([2.0, 4.0]), wb.array([2.0, 2.0]), x)
    >>> isinstance(solver, wb.optim.linear.LinearSolverState), solver()[0]
    (True, 2)
    >>> _ = solver(b=wb.array([6.0, 6.0]))
    >>> x.numpy().round(4)
    array([3. , 1.5], dtype=float32)
    """

    _method: Callable
    _name = ""

    def __init__(
        self,
        A: MatrixLike,
        b: array,
        x: array,
        tol: float | None = None,
        atol: float | None = None,
        maxiter: float | None = 0,
        M: MatrixLike | None = None,
        callback: Callback = None,
        check_every: int = 10,
        use_cuda_graph: bool = True,
        *,
        restart: int | None = None,
    ):
        if restart is not None and (isinstance(restart, bool) or not isinstance(restart, int) or restart < 1):
            raise LaunchError(f"{self._name}(restart={restart!r}): a whole number from 1 on, or None", slug="linear")
        self.operands = A, b, x, M
        self.tol, self.atol, self.maxiter, self.restart = tol, atol, maxiter, restart
        self.callback, self.check_every = callback, check_every

    def __call__(
        self, A: MatrixLike | None = None, b: array | None = None, x: array | None = None, M: MatrixLike | None = None
    ) -> Any:
        """Solve, as one event of an open tape. Returns what `cg` returns; raises as `cg` does."""
        old = self.operands
        A, M = old[0] if A is None else A, old[3] if M is None else M
        b, x = old[1] if b is None else b, old[2] if x is None else x
        self._check(b, x)
        tape = memory.recorder()
        if tape is None:
            return self._now(A, b, x, M)
        capture_log.refuse(f"{self._name}() under a tape", "the solve and its backward() between two captures")
        arrays = _differentiable(A)
        if any(a.requires_grad or a.allocation in tape.active for a in (*arrays, b)):
            _check_adjoint(aslinearoperator(A))
        _refuse_hidden(tape, aslinearoperator(A), b)
        with memory.unrecorded():
            answer = clone(x, requires_grad=False)
        said = _run(self, A, b, answer, M)
        _record(tape, self, A, arrays, b, answer, said)
        copy(x, answer)
        return said if self.check_every else _Report(b)(*said)

    def _now(self, A: MatrixLike, b: array, x: array, M: MatrixLike | None) -> Any:
        """Solve now, and in every replay of an open capture."""
        report, said = None if self.check_every else _Report(b), (0, 0.0, 0.0)

        def solve() -> None:
            nonlocal said
            said = _run(self, A, b, x, M, report)

        if capture_log.active_capture() is not None:
            x.allocation.about_to_write(x.span, f"{self._name}()")
        capture_log.do(solve)
        return said if report is None else report.arrays

    def _check(self, b: array, x: array) -> None:
        for name, a in (("b", b), ("x", x)):
            if not isinstance(a, array) or not isinstance(a.dtype, Scalar | Composite) or a.dtype.scalar.kind != "f":
                text = f"{self._name} takes an array of floats as {name}"
                raise LaunchError(text, slug="linear", instead="wb.zeros(n)")
        if b.dtype != x.dtype or b.shape != x.shape:
            text = f"{self._name}: b and x differ in shape or dtype."
            raise LaunchError(text, slug="linear", instead="x = wb.zeros_like(b)")


class CG(LinearSolverState):
    """Conjugate gradients as a `LinearSolverState`."""

    _method, _name = staticmethod(_cg), "cg"


class CR(LinearSolverState):
    """Conjugate residuals as a `LinearSolverState`."""

    _method, _name = staticmethod(_cr), "cr"


class BiCGSTAB(LinearSolverState):
    """BiCGSTAB as a `LinearSolverState`."""

    _method, _name = staticmethod(_bicgstab), "bicgstab"

    def __init__(
        self,
        A: MatrixLike,
        b: array,
        x: array,
        tol: float | None = None,
        atol: float | None = None,
        maxiter: float | None = 0,
        M: MatrixLike | None = None,
        callback: Callback = None,
        check_every: int = 10,
        use_cuda_graph: bool = True,
        is_left_preconditioner: bool = False,
    ):
        super().__init__(A, b, x, tol, atol, maxiter, M, callback, check_every)


class GMRES(LinearSolverState):
    """GMRES as a `LinearSolverState`."""

    _method, _name = staticmethod(_gmres), "gmres"

    def __init__(
        self,
        A: MatrixLike,
        b: array,
        x: array,
        tol: float | None = None,
        atol: float | None = None,
        restart: int | None = 31,
        maxiter: float | None = 0,
        M: MatrixLike | None = None,
        callback: Callback = None,
        check_every: int = 31,
        use_cuda_graph: bool = True,
        is_left_preconditioner: bool = False,
    ):
        super().__init__(A, b, x, tol, atol, maxiter, M, callback, check_every, restart=restart)


for _kind in (CG, CR, BiCGSTAB, GMRES):
    _kind.__doc__ = f"""{_kind.__doc__}

    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.{_kind.__name__}(wb.array([[4.0, 1.0], [1.0, 3.0]]), wb.array([1.0, 2.0]), x)()
    >>> x.numpy().round(4)
    array([0.0909, 0.6364], dtype=float32)
    """


class _Report:
    """Report of a solve with `check_every=0`, as arrays: iterations, squared residual, squared tolerance."""

    def __init__(self, b: array):
        real = scalar_in(b.dtype)
        with memory.unrecorded():
            self.arrays = zeros(1, int, b.device), zeros(1, real, b.device), zeros(1, real, b.device)

    def __call__(self, turn: int, residual: float, wanted: float) -> tuple[array, array, array]:
        with memory.unrecorded():
            for a, value in zip(self.arrays, (turn, residual * residual, wanted * wanted), strict=True):
                a.fill_(value)
        return self.arrays


def _differentiable(A: MatrixLike) -> tuple[array, ...]:
    source = A.source if isinstance(A, LinearOperator) else A
    return (source.values,) if isinstance(source, BsrMatrix) else (source,) if isinstance(source, array) else ()


def _run(
    how: LinearSolverState, A: MatrixLike, b: array, x: array, M: MatrixLike | None, report: _Report | None = None
) -> Said:
    with memory.unrecorded():
        v, rhs, unknown = _Vectors(A, b, M), flat(b), flat(x)
        read = (b, *_differentiable(A))  # the iteration writes x while it reads these
        answer = clone(unknown) if any(a.span.overlaps(x.span) is not False for a in read) else unknown
        tol, atol = how.tol, how.atol
        if tol is None and atol is None:
            tol, atol = 1e-12 if scalar_in(b.dtype).bits == 64 else 1e-6, 1e-30
        limit, most = max((tol or 0.0) * v.norm(rhs), atol or 0.0), int(how.maxiter or rhs.size)
        seen, called = (0, 0.0), -1

        def done(turn: int, residual: float) -> bool:
            nonlocal seen, called
            seen, stop = (turn, residual), residual <= limit or turn >= most or not np.isfinite(residual)
            if report is not None:
                arrays = report(turn, residual, limit)
                if isinstance(how.callback, Kernel):
                    launch(how.callback, 1, list(arrays))
            elif how.callback is not None and turn != called and turn % how.check_every == 0:
                called = turn
                how.callback(turn, residual, limit)
            return stop

        how._method(v, rhs, answer, done, how.restart)
        if answer is not unknown:
            copy(unknown, answer)
        if how.callback is not None and report is None and called != seen[0]:
            how.callback(*seen, limit)
    return *seen, limit


def _refuse_hidden(tape: Tape, A: LinearOperator, b: array) -> None:
    """Raise GradientError if a user's `matvec` reads, beside x, memory with a gradient."""
    if A.source is not None:
        return
    with memory.unrecorded():
        x = clone(b, requires_grad=False)
        out = zeros_like(x, requires_grad=False)
        kind = scalar_in(b.dtype).numpy.type
        with Tape() as probe:
            A.matvec(flat(x), flat(out), flat(out), kind(1), kind(0))
    for event in probe.events:
        seen = [s.allocation for s in event.reads if s.allocation not in (x.allocation, out.allocation)]
        if event.sources or any(a in tape.active or a.required.spans for a in seen):
            text = "a solve with a LinearOperator of functions that read an array with a gradient, under a tape."
            why = "The derivative by that array would be lost."
            raise GradientError(
                text, slug="linear", where=memory.caller_where(), why=why, instead="a dense or a sparse matrix"
            )


def _check_adjoint(A: LinearOperator) -> None:
    if A.transposed is None:
        text = "a solve with a LinearOperator of functions, under a tape."
        why = "Its adjoint needs products with the transposed matrix, and what `matvec` reads."
        instead = "a dense matrix, wb.sparse.bsr_..., or tape.record_func with the adjoint that you know"
        raise GradientError(text, slug="linear", where=memory.caller_where(), why=why, instead=instead)


def _as_it_is(A: MatrixLike) -> LinearOperator:
    """The operator on a copy of its entries, which may be overwritten before the adjoint is computed."""
    source = A.source if isinstance(A, LinearOperator) and A.source is not None else A
    if isinstance(source, array):
        return aslinearoperator(clone(source, requires_grad=False))
    if isinstance(source, BsrMatrix):
        kept = BsrMatrix(source.nrow, source.ncol, source.dtype, source.device)
        _ = source.structure  # as it is now
        kept.take(source)
        kept.values = clone(source.values, requires_grad=False)
        return aslinearoperator(kept)
    return source


def _record(
    tape: Tape, how: LinearSolverState, A: MatrixLike, arrays: tuple[array, ...], b: array, x: array, said: Said
) -> None:
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
        assert operator.transposed is not None
        rows, columns = operator.shape
        back = LinearOperator((columns, rows), operator.dtype, operator.device, operator.transposed)
        found = zeros_like(x, requires_grad=False)
        right_side = array(seed.numpy() / size, dtype=seed.dtype, device=seed.device)
        again = shallow(how)
        again.tol, again.atol, again.callback = how.tol or None, None, None
        _check_converged("the adjoint solve", x, *_run(again, back, right_side, found, None)[1:])
        left = found.numpy() * scalar_in(seed.dtype).numpy.type(size)
        seed.zero_()
        for a in arrays:
            assert operator.source is not None and a.grad is not None
            entries, old = _outer(operator.source, left.reshape(-1), right.reshape(-1)), a.grad.numpy()
            a.grad.assign(old - entries.reshape(old.shape))
        assert b.grad is not None
        b.grad.assign(b.grad.numpy() + left)

    solved_backwards.__name__ = how._name  # as messages and pictures call it
    tape.record_func(solved_backwards, [*arrays, b, x], only_read=[*arrays, b])


def _check_converged(what: str, x: array, residual: float, wanted: float) -> None:
    if not residual <= wanted:
        text = f"{what} of {x.label} did not converge: residual {residual:.1e}, wanted {wanted:.1e}."
        why = "Its gradient is that of the solution, not of an iterate."
        raise GradientError(text, slug="linear", why=why, instead="a larger maxiter or tol")


def _outer(source: array | BsrMatrix, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left x right^T where the matrix has entries."""
    if isinstance(source, BsrMatrix):
        rows, cols = source.block_shape
        tall = left.reshape(-1, rows)[rows_of(source.structure[0])]
        wide = right.reshape(-1, cols)[source.structure[1]]
        return tall[:, :, None] * wide[:, None, :]
    return left * right if source.ndim == 1 else np.outer(left, right)


def _solves(kind: type[LinearSolverState]) -> Callable[[Callable], Callable[..., Any]]:
    """Give a documented name the arguments of `kind`, and `run`: False returns the solver, True what it returns."""
    of_kind = list(signature(kind).parameters.values())
    keywords = [p for p in of_kind if p.kind is Parameter.KEYWORD_ONLY]
    run = Parameter("run", Parameter.POSITIONAL_OR_KEYWORD, default=True, annotation="bool")
    said = Signature([*(p for p in of_kind if p not in keywords), run, *keywords], return_annotation="Any")

    def named(function: Callable) -> Callable[..., Any]:
        @wraps(function)
        def solve(*args: object, **others: object) -> Any:
            given = said.bind(*args, **others).arguments
            run = given.pop("run", True)
            solver = kind(**given)
            return solver() if run else solver

        solve.__signature__ = said  # type: ignore[attr-defined]
        return solve

    return named


FSAI = Refused("optim.linear.FSAI", 'preconditioner(A, "diag") is here.')


@_solves(CG)
def cg():
    """Solve A x = b for a symmetric positive definite A by conjugate gradients; x is the first guess and the answer.

    A: dense, diagonal, sparse or a LinearOperator; M: an approximate inverse; x may be b. Returns the number of
    iterations, the norm of the residual, and the tolerance, `max(tol * norm(b), atol)`; by default tol is 1e-6, 1e-12
    in float64, and maxiter the number of unknowns. The residual is looked at in every turn.
    `callback(turn, residual, tolerance)` is called at the first turn, at every `check_every`-th and at the last.
    check_every=0: it is a kernel, which gets those as arrays of one element, the last two squared, and such arrays are
    returned. `restart`: begin anew after so many turns. run=False: a `CG`, to be called later. In a capture every
    replay solves again.
    Under a tape the derivative by b and the entries of A is that of the solution, by a solve with A transposed; x as
    first guess has none. Raises LaunchError [linear], [capture] for both at once; GradientError [linear].

    >>> A, x = wb.array([[4.0, 1.0], [1.0, 3.0]]), wb.zeros(2)
    >>> turns, residual, wanted = wb.optim.linear.cg(A, wb.array([1.0, 2.0]), x)
    >>> turns, x.numpy().round(4)
    (2, array([0.0909, 0.6364], dtype=float32))
    """


@_solves(CR)
def cr():
    """Solve A x = b for a symmetric A by conjugate residuals. Otherwise as `cg`.

    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.cr(wb.array([[4.0, 1.0], [1.0, -3.0]]), wb.array([6.0, -5.0]), x)
    >>> x.numpy().round(4)
    array([1., 2.], dtype=float32)
    """


@_solves(BiCGSTAB)
def bicgstab():
    """Solve A x = b by BiCGSTAB, preconditioned from the right. Otherwise as `cg`.

    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.bicgstab(wb.array([[4.0, 1.0], [0.0, 3.0]]), wb.array([6.0, 6.0]), x)
    >>> x.numpy().round(4)
    array([1., 2.], dtype=float32)
    """


@_solves(GMRES)
def gmres():
    """Solve A x = b by GMRES, begun anew after `restart` turns, preconditioned from the right. Otherwise as `cg`.

    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.gmres(wb.array([[0.0, 1.0], [-1.0, 0.0]]), wb.array([2.0, -1.0]), x)
    >>> x.numpy().round(4)
    array([1., 2.], dtype=float32)
    """

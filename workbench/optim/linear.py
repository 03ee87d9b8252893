"""Iterative solvers of linear systems: conjugate gradients and residuals, BiCGSTAB, GMRES; and LU.

Iterations run on NumPy's or CuPy's vectors with SciPy's matrices. (They are not SciPy's, which do not tell the residual
of a turn, and are not all in CuPy.) Under an open tape a solve is one event: its adjoint solves with the transposed
matrix, so gradients are as exact as the solve, and never those of the unrolled iteration. Sources: Hestenes and Stiefel
1952; Stiefel 1955; van der Vorst 1992; Saad and Schultz 1986.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, read_values
from ..arrays.creation import copy, zeros
from ..arrays.dtypes import scalar_in
from ..arrays.host_copies import write_array
from ..device import XpArray, on_host, xp
from ..display import residuals_text
from ..errors import GradientError, LaunchError
from ..kernels.compile import thread_pool
from ..kernels.program import Kernel
from ..kernels.reading.declare import Refused
from ..kernels.types import is_float
from ..launches.array_tools import flat
from ..launches.launch import launch
from ..tapes.custom_op import CustomOp
from .operators import (
    IDENTITY,
    Entries,
    LinearOperator,
    MatrixLike,
    NativeProduct,
    Products,
    RecordedProduct,
    aslinearoperator,
    generic,
    preconditioner,
)

__all__ = [
    "BiCGSTAB",
    "CG",
    "CR",
    "GMRES",
    "LU",
    "LinearOperator",
    "LinearSolverState",
    "aslinearoperator",
    "bicgstab",
    "cg",
    "cr",
    "gmres",
    "lu",
    "preconditioner",
]
__dir__ = __all__.copy

Callback = Callable[..., object] | Kernel | None
Said = tuple[int, float, float]  # the number of iterations, the norm of the residual, the tolerance
Done = Callable[[int, float], bool]  # told the turn and the norm of the residual: whether that is the last
Teller = Callable[..., None]  # told the turn, the norm of the residual, the tolerance; last=True: once more, at the end


def _rows(x: XpArray, y: XpArray) -> Any:
    """x y of shapes (..., n) and (n,); without cuBLAS, which need not be there."""
    return x @ y if isinstance(x, np.ndarray) else (x * y).sum(-1)


def _dot(x: XpArray, y: XpArray) -> float:
    return float(_rows(x, y))


def _norm(x: XpArray) -> float:
    return float(np.sqrt(_dot(x, x)))


def _cg(times: Products, prepared: Products, b: XpArray, x: XpArray, done: Done, restart: int | None) -> XpArray:
    turn = 0
    while True:
        r, first = b - times(x), turn
        z = prepared(r)
        p, rz = z.copy(), _dot(r, z)
        while not (restart and turn - first >= restart):
            if done(turn, _norm(r)):
                return x
            ap = times(p)
            curvature = _dot(p, ap)
            if curvature == 0:
                return x
            alpha = rz / curvature
            x += alpha * p
            r -= alpha * ap
            z = prepared(r)
            rz, old = _dot(r, z), rz
            p *= rz / old if old else 0
            p += z
            turn += 1


def _cr(times: Products, prepared: Products, b: XpArray, x: XpArray, done: Done, restart: int | None) -> XpArray:
    turn = 0
    while True:
        true, first = b - times(x), turn
        p = r = prepared(true)
        ap = ar = times(r)
        rar = _dot(r, ar)
        while not (restart and turn - first >= restart):
            if done(turn, _norm(true)):
                return x
            map_ = prepared(ap)
            size = _dot(ap, map_)
            if size == 0:
                return x
            alpha = rar / size
            x, r, true = x + alpha * p, r - alpha * map_, true - alpha * ap
            ar = times(r)
            rar, old = _dot(r, ar), rar
            beta = rar / old if old else 0
            p, ap = r + beta * p, ar + beta * ap
            turn += 1


def _bicgstab(times: Products, prepared: Products, b: XpArray, x: XpArray, done: Done, restart: int | None) -> XpArray:
    p = r = shadow = b - times(x)
    rho, turn = _dot(r, r), 0
    while not done(turn, _norm(r)):
        y = prepared(p)
        ay = times(y)
        size = _dot(shadow, ay)
        if size == 0:
            break
        alpha = rho / size
        r = r - alpha * ay
        z = prepared(r)
        az = times(z)
        squared = _dot(az, az)
        omega = _dot(az, r) / squared if squared else 0.0
        x, r = x + alpha * y + omega * z, r - omega * az
        rho, old = _dot(shadow, r), rho
        p = r + ((rho / old) * (alpha / omega) if omega and old else 0) * (p - omega * ay)
        turn += 1
    return x


def _gmres(times: Products, prepared: Products, b: XpArray, x: XpArray, done: Done, restart: int | None) -> XpArray:
    turn, restart = 0, min(restart or 31, max(len(b), 1))
    basis, h = np.zeros_like(b, shape=(restart + 1, len(b))), np.zeros((restart + 1, restart))
    while True:
        r = b - times(x)
        size = _norm(r)
        if done(turn, size):
            return x
        basis[0], y = r / size, np.zeros(0)
        for k in range(restart):
            w, h[: k + 2, k] = times(prepared(basis[k])), 0
            for _ in range(2):  # the second time it removes what rounding left
                along = _rows(basis[: k + 1], w)
                w, h[: k + 1, k] = w - _rows(basis[: k + 1].T, along), h[: k + 1, k] + on_host(along)
            h[k + 1, k] = _norm(w)
            turn += 1
            y, *_ = np.linalg.lstsq(h[: k + 2, : k + 1], size * np.eye(k + 2)[0], rcond=None)
            left = float(np.linalg.norm(size * np.eye(k + 2)[0] - h[: k + 2, : k + 1] @ y))
            if done(turn, left) or h[k + 1, k] <= 1e-14 * size:
                break
            basis[k + 1] = w / float(h[k + 1, k])
        x = x + prepared(_rows(basis[: len(y)].T, np.asarray(y, b.dtype, like=b)))
        if len(y) < restart:
            done(turn, _norm(b - times(x)))
            return x


KEPT = 4096  # residuals of a solve, the first ones
_SYSTEM = struct.Struct("=QqQq6Q4q2dQq")  # `wb_system` of the pool's text


def _compiled_cg(
    products: Sequence[NativeProduct], b: np.ndarray, x: np.ndarray, limit: float, most: int, restart: int
) -> tuple[int, float, list[float]]:
    """`_cg` by products with A, and M if there is one, in one native call.

    Returns the turns, the residual's norm, and those before each turn, of the first `KEPT` turns.
    """
    A, *near = products
    r = near[0].x if near else np.zeros_like(b)
    vectors = [b, x, A.x, A.out, r, near[0].out if near else r]
    sizes = np.empty(min(most + 1, KEPT))
    given = *A.row, *(near[0].row if near else (0, 0)), *map(capture_log.address, vectors), len(b), most, restart
    block, at = capture_log.block_of(_SYSTEM.pack(*given, 0, limit, 0, capture_log.address(sizes), len(sizes)))
    thread_pool.conjugate_gradients(b.itemsize)(at)
    for product in products:
        product.look()
    *_, turn, _, residual, _, _ = _SYSTEM.unpack(block)
    return turn, residual, [*sizes[:turn].tolist(), residual]


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
        is_left_preconditioner: bool = False,
        *,
        restart: int | None = None,
    ):
        if restart is not None and (isinstance(restart, bool) or not isinstance(restart, int) or restart < 1):
            raise LaunchError(f"{self._name}(restart={restart!r}): a whole number from 1 on, or None", slug="linear")
        self.operands = A, b, x, M
        self.tol, self.atol, self.maxiter, self.restart = tol, atol, maxiter, restart
        self.callback, self.check_every = callback, check_every
        self.residuals: list[float] = []  # norms before each turn of the last solve, and at its end

    def __call__(
        self, A: MatrixLike | None = None, b: array | None = None, x: array | None = None, M: MatrixLike | None = None
    ) -> Any:
        """Solve, as one event of an open tape. Returns what `cg` returns; raises as `cg` does."""
        old = self.operands
        A, M = old[0] if A is None else A, old[3] if M is None else M
        b, x = old[1] if b is None else b, old[2] if x is None else x
        self._check(b, x)
        system = _System(self, aslinearoperator(A), aslinearoperator(M), flat(b), flat(x))
        for name, of in (("A", system.A), ("M", system.M)):
            if of is not None and of.source is not None and tuple(of.shape) != (n := system.b.size, n):
                text = f"{self._name}: {name} has the shape {tuple(of.shape)}, and b has {n} numbers."
                raise LaunchError(text, slug="linear", instead=f"a matrix of shape ({n}, {n})")
        report, said = None if self.check_every else _Report(b), (0, 0.0, 0.0)
        capture_log.refuse_mapped(f"{self._name}() is called.")
        capture_log.reads(b, x)
        if (tape := memory.recorder()) is not None:
            if report is not None:
                capture_log.refuse(f"{self._name}(check_every=0) under a tape", "check_every=10")
            by = system.by_products if system.A.source is None else system.by_entries
            with tape.scope(self._name):
                first, (made, said) = len(tape.events), by(self._teller(report))
                tape.events[first].guess = system.x
                tape.events[-1].said = residuals_text(self.residuals, *said[::2])
                copy(system.x, made)
            return said if report is None else report(*said)

        def solve() -> None:
            nonlocal said
            with memory.unrecorded(), capture_log.following(None):
                products = Products.of_both(system.A, system.M, system.b)
                found, said = self.iterate(*products, system.b.data, system.x.data, self._teller(report))
                copy(system.x, array(found, dtype=system.b.dtype, device=b.device))

        if capture_log.active_capture() is not None:
            x.allocation.about_to_write(x.span, f"{self._name}()")
        capture_log.do(solve)
        return said if report is None else report.arrays

    def _teller(self, report: _Report | None) -> Teller | None:
        """A function that tells the callback, or the report, of a turn; None where there is neither."""
        called = -1
        if report is None and self.callback is None:
            return None

        def tell(turn: int, residual: float, wanted: float, last: bool = False) -> None:
            nonlocal called
            if report is not None:
                arrays = () if last else report(turn, residual, wanted)
                if isinstance(self.callback, Kernel) and arrays:
                    launch(self.callback, 1, list(arrays))
            elif self.callback is not None and turn != called and (last or turn % self.check_every == 0):
                called = turn
                self.callback(turn, residual, wanted)

        return tell

    def iterate(
        self, A: Products, M: Products, b: XpArray, guess: XpArray, tell: Teller | None, tight: bool = False
    ) -> tuple[XpArray, Said]:
        """(the solution of A x = b, what the solve says), on vectors (n,). `tight`: to the relative tolerance alone."""
        kind = np.result_type(b.dtype, np.float32)
        b, tol, atol = b.astype(kind), self.tol, self.atol
        if tight:
            tol, atol = tol or None, None
        if tol is None and atol is None:
            tol, atol = 1e-12 if kind.itemsize == 8 else 1e-6, 1e-30
        size = float(np.sqrt((b * b).sum()))  # not by BLAS, whose threads wait for processors that others use
        limit, most = max((tol or 0.0) * size, atol or 0.0), int(self.maxiter or len(b))
        seen: tuple[int, float] = 0, 0.0
        sizes: list[float] = []

        def done(turn: int, residual: float) -> bool:
            nonlocal seen
            seen = turn, residual
            sizes.append(residual)
            if tell is not None:
                tell(turn, residual, limit)
            return residual <= limit or turn >= most or not np.isfinite(residual)

        x = guess.astype(kind)
        native = [p.times for p in (A, M) if isinstance(p.times, NativeProduct) and p.times.x.dtype == kind]
        if tell is None and self._method is _cg and len(native) == 2 - (M is IDENTITY):
            turn, residual, sizes = _compiled_cg(native, b, x, limit, most, self.restart or 0)
            seen = turn, residual
        else:
            x = self._method(A, M, b, x, done, self.restart)
        if tell is not None:
            tell(*seen, limit, last=True)
        if not tight:
            self.residuals = sizes
        return x, (seen[0], seen[1], limit)

    def derived(self, of: _System, said: Sequence[Any] | np.ndarray, A: Products, M: Products, b: XpArray) -> Any:
        """A^-1 b for a derivative b, over whose largest entry it is solved: no tolerance hides a small one.

        `said`: what the solve for x had said. Raises GradientError [linear].
        """
        size = float(abs(b).max()) if b.size else 0.0  # CuPy knows no `initial`
        if not size:
            return on_host(b)
        of.check_converged("the solve of", said)
        found, derivative = self.iterate(A, M, b / size, np.zeros_like(b), None, tight=True)
        of.check_converged("the solve of a derivative of the solve of", derivative)
        return on_host(found.astype(b.dtype) * size)

    def _check(self, b: array, x: array) -> None:
        for name, a in (("b", b), ("x", x)):
            if not isinstance(a, array) or not is_float(a.dtype):
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


class LU(LinearSolverState):
    """Factors of a dense or sparse matrix as a `LinearSolverState`: kept for other right sides, and for adjoints."""

    _name = "lu"
    _factored: tuple[Any, Callable[..., XpArray]] | None = None  # a matrix, and solves with it

    def iterate(
        self, A: Products, M: Products, b: XpArray, guess: XpArray, tell: Teller | None, tight: bool = False
    ) -> tuple[XpArray, Said]:
        if A.matrix is None:
            why = "Factors are made of the entries of a dense or sparse matrix on the CPU."
            raise LaunchError("lu() of what has no entries here", slug="linear", why=why, instead="cg, or gmres")
        x = self._factors(A.matrix)(b.astype(A.matrix.dtype), A.turned)
        limit = max((self.tol or (1e-9 if x.itemsize == 8 else 1e-3)) * _norm(b), self.atol or 0.0)
        return x, (1, _norm(b - A(x)), limit)

    def _factors(self, matrix: Any) -> Callable[..., XpArray]:
        """Solves with a matrix by its factors: those that are kept, if it is the same."""
        from scipy import linalg, sparse

        if self._factored is None or not _same_matrix(self._factored[0], matrix):
            if sparse.issparse(matrix):
                try:
                    factors = sparse.linalg.splu(matrix.tocsc())
                except RuntimeError as error:  # SciPy's word for it
                    text = f"lu() of a singular matrix: {error}"
                    raise LaunchError(text, slug="linear", instead="a regular matrix, or gmres") from None
                self._factored = matrix.copy(), lambda b, turned: factors.solve(b, "T" if turned else "N")
            else:
                pair = linalg.lu_factor(matrix, check_finite=False)  # NaN has a residual of NaN, as in other solves
                self._factored = matrix.copy(), lambda b, turned: linalg.lu_solve(pair, b, int(turned), False, False)
        return self._factored[1]


def _same_matrix(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and np.array_equal(a, b)
    return all(np.array_equal(getattr(a, part), getattr(b, part)) for part in ("data", "indices", "indptr"))


for _kind in (CG, CR, BiCGSTAB, GMRES, LU):
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


class _System:
    """A system as one solve has it: its matrix, preconditioner, right side and answer, vectors of numbers."""

    def __init__(self, how: LinearSolverState, A: LinearOperator, M: LinearOperator | None, b: array, x: array):
        self.how, self.A, self.M, self.b, self.x = how, A, M, b, x
        self.xp, self.where = xp(b.device), memory.caller_where()

    def check_converged(self, what: str, said: Sequence[Any] | np.ndarray) -> None:
        """Raise GradientError [linear] at the line of the solve if the residual that it says is too large."""
        _, residual, wanted = said
        if not residual <= wanted:
            text = f"{what} {self.x.label} did not converge: residual {residual:.1e}, wanted {wanted:.1e}."
            why, instead = "Its gradient is that of the solution, not of an iterate.", "a larger maxiter or tol"
            raise GradientError(text, slug="linear", where=self.where, why=why, instead=instead)

    def by_entries(self, tell: Teller | None) -> tuple[array, Said]:
        """(the solution, what the solve says), as an event that reads the entries of A and b.

        Its adjoint: lambda = A^-T dx; db = lambda; dA = -lambda x^T where entries are. Its tangent: A^-1 (db - dA x),
        which is such an event again.
        """
        A, b, how = self.A, self.b, self.how
        made_of, near, start, told = Entries.of(A), IDENTITY, capture_log.copy(self.x.data), (0, 0.0, 0.0)

        def prepare() -> None:
            nonlocal near
            near = Products.of(self.M, b)

        capture_log.do(prepare)

        def first(entries: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            nonlocal tell, told
            found, told = how.iterate(made_of.products(b, entries), near, self.xp.asarray(right), start, tell)
            tell = None  # when this is called again, it is by a replay
            return on_host(found).astype(right.dtype), np.array(told)

        def again(entries: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            A = made_of.products(b, entries)
            return how.derived(self, np.zeros(3), A, near, self.xp.asarray(right)), np.zeros(3)

        def vjp(*given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            entries, _, x, said, seed, _ = given
            turned = made_of.products(b, entries).transposed
            left = how.derived(self, said, turned, near.transposed, self.xp.asarray(seed))
            return -made_of.outer(left, x).reshape(entries.shape), left

        def tangent(*given: array) -> tuple[array, None]:
            entries, _, x, said, change, moved = given
            self.check_converged("the solve of", read_values(said))
            return CustomOp(again, how._name, vjp, tangent)(entries, moved - product(change, x))[0], None

        def times_back(entries: np.ndarray, x: np.ndarray, _: np.ndarray, seed: np.ndarray) -> tuple[np.ndarray, ...]:
            turned = made_of.products(b, entries).transposed
            return made_of.outer(seed, x).reshape(entries.shape), on_host(turned(self.xp.asarray(seed)))

        def times(entries: np.ndarray, x: np.ndarray) -> np.ndarray:
            return on_host(made_of.products(b, entries)(self.xp.asarray(x)))

        product = CustomOp(times, "product", times_back)
        made, said = CustomOp(first, how._name, vjp, tangent)(made_of.values, b)
        made.name, said.name = f"result of {how._name}", "turns, residual, tolerance"
        return made, told

    def by_products(self, tell: Teller | None) -> tuple[array, Said]:
        """(the solution, what the solve says) for an A known by its products.

        Recorded are, at the solution, r = b - A x, by the launches of `matvec`, and x + A^-1 r with a constant A. That
        moves nothing, as r is 0, and makes x depend on b and on all that `matvec` reads; done twice, to second order.
        """
        A, b, how, kind = self.A, self.b, self.how, self.b.dtype.numpy.type
        made = near = IDENTITY
        with memory.unrecorded():
            solution, place = (zeros(b.size, b.dtype, b.device) for _ in range(2))
            solution.name, place.name = f"solution of {how._name}", "solution"

        def solve() -> None:
            nonlocal near, made, said, sample, tell
            with memory.unrecorded(), capture_log.following(None):
                if not isinstance(made.times, NativeProduct):  # a replay repeats the launches of its capture, as for r
                    made, near = Products.of_both(A, self.M, b)
                solution.data[...], said = how.iterate(made, near, b.data, self.x.data, tell)
                sample = made(generic(b))
            tell = None  # of the replays of a capture nobody is told

        said, sample = (0, 0.0, 0.0), b.data
        capture_log.do(solve)
        write_array("root", place, solution)
        tape = memory.recorder()
        assert tape is not None
        with capture_log.paused():
            product = RecordedProduct(A, b, made.times)
            if not tape.follows([b, *product.arrays]):
                return place, said
            product.products(made.times, sample)
        apart = isinstance(made.times, NativeProduct) and made.times.apart and b.is_contiguous
        count = len(product.arrays)  # which the op reads too: so they are what they were when its rules are called

        def again(A: Products, M: Products, right: np.ndarray) -> np.ndarray:
            return how.derived(self, said, A, M, self.xp.asarray(right))

        def vjp(place: np.ndarray, r: np.ndarray, *given: np.ndarray) -> tuple[np.ndarray | None, ...]:
            right = again(product.of(given[:count], made.times, sample).transposed, near.transposed, given[-1])
            return given[-1], right, *[None] * count

        def tangent(place: array, r: array, *given: array) -> array:
            reads, (moved, change) = given[:count], given[count + 1 : count + 3]
            return CustomOp(along, how._name, vjp)(moved, change, *reads)

        def along(moved: np.ndarray, change: np.ndarray, *reads: np.ndarray) -> np.ndarray:
            return moved + again(product.of(reads, made.times, sample), near, change)

        for _ in range(2 if tape.keep == "all" else 1):
            with memory.unrecorded():
                r = zeros(b.size, b.dtype, b.device)
                r.name = "residual"
            if not apart:
                copy(r, b)
            A.matvec(place, b if apart else r, r, kind(-1), kind(1))
            place = CustomOp(lambda place, *_: place, how._name, vjp, tangent)(place, r, *product.arrays)
            place.name = f"result of {how._name}"
        return place, said


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
    replay solves again; under a tape with the launches that `matvec` made in the capture.
    Of a LinearOperator whose `matvec` does nothing but launch the launches are noted once a solve, and on the CPU run
    as native calls: of `cg` all turns are one, unless a callback is to be told.
    Under a tape the derivative by b and the entries of A, or by all that the launches of its `matvec` read, is that of
    the solution, by a solve with A transposed; x as first guess has none. Second derivatives are exact too; of a
    LinearOperator while what its `matvec` reads stays as it is. `replay` solves again, but not for a LinearOperator.
    Pictures show the solve as one box; its tip says how the residual went down, as `residuals` of a `CG` does.
    Raises LaunchError [linear], [capture] for check_every=0 under a tape in a capture; GradientError [linear].

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


@_solves(LU)
def lu():
    """Solve A x = b by SciPy's factors of a dense or sparse A, on the CPU; x is the answer. Otherwise as `cg`.

    run=False gives an `LU`, whose calls with other right sides use the factors of the first one, while the entries of A
    are the same; adjoints always do. Of the residual tolerance it is refused only by derivatives, as an A that is
    singular in this precision is. Raises LaunchError [linear] for an A without entries, and on a GPU.

    >>> x = wb.zeros(2)
    >>> _ = wb.optim.linear.lu(wb.array([[0.0, 1.0], [-1.0, 0.0]]), wb.array([2.0, -1.0]), x)
    >>> x.numpy().round(4)
    array([1., 2.], dtype=float32)
    """

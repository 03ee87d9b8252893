"""Roots, fixed points and minima with the gradient of the solution, by the implicit function theorem.

The solution x* is found outside of the tape, by Newton's method. Then two steps of the chord iteration
x <- x - A r(x, p) with the constant A = (dr/dx)^-1 are recorded, from x*. They move nothing, as r is 0 there; but each
makes x depend on p to one order more (the iteration contracts by the distance to x*): first and second derivatives of
what is recorded are those of the solution. Sources: Krantz and Parks, "The implicit function theorem" (2002); Bolte,
Pauwels, Vaiter, "One-step differentiation of iterative algorithms" (2023).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, clone, read_values
from ..arrays.creation import copy, zeros, zeros_like
from ..arrays.host_copies import write_array
from ..arrays.workspace import is_float_memory
from ..display import residuals_text
from ..errors import GradientError, LaunchError
from ..kernels import kernel
from ..kernels.reading.declare import tid
from ..kernels.types import is_float
from ..launches.array_tools import flat
from ..launches.launch import launch, through
from ..tapes.tape import Tape
from .jacobian import jacobian, value_and_grad

LARGEST = 2000  # unknowns: their derivative is a dense matrix
ORDERS = 2  # of derivatives that are exact
HALVINGS = 12  # of a step that makes the residual larger
SINGULAR = 10  # roundings of the largest singular value or eigenvalue of a matrix: a smaller one may be none
Residual = Callable[..., array]
Solved = tuple[array, np.ndarray, str]  # the root, the derivative of the residual there, how the residual went down


@kernel
def chord(x: array[Any], a: array[Any], r: array[Any], out: array[Any]):
    """out = x - a r, with the rows of the matrix a one after the other."""
    i = tid()
    n = x.shape[0]
    total = x[i]
    for j in range(n):
        total -= a[i * n + j] * r[j]
    out[i] = total


@through
def root(residual: Residual, guess: array, *params: array, tol: float | None = None, maxiter: int = 50) -> array:
    """The x at which residual(x, *params) is 0, as a new array, with its exact gradient by what the residual reads.

    residual   takes an array like `guess` and launches kernels; returns an array of the same shape and dtype. It is
               called again and again, and must depend on its arguments alone (and on arrays that do not change).
    guess      an array of floats (float32, float64, vectors of them), at most 2,000 numbers, from where Newton's method
               starts.
    tol        the largest residual that is none: by default 100 roundings of the numbers that it is made of.
    Under an open tape the launches of the residual at the solution are recorded, and a step that makes the solution
    depend on `params`: `backward`, `jvp`, `hvp` and `hessian` are exact, no iteration is unrolled. Pictures show that
    as one box, whose first event says how the residual went down. A tape with a root cannot be replayed on other
    inputs, as the solution is another one there. Of an energy the residual may be the gradient by an inner tape:
    `tape.zero()` behind it, as each of its calls has added to the gradients of `params`.
    Raises GradientError [not-converged], with the residual; [singular] where the solution is not unique nearby;
    LaunchError [root] for arguments that do not fit; what the launches raise.

    >>> @wb.kernel
    ... def circle(x: wb.array[float], p: wb.array[float], r: wb.array[float]):
    ...     r[0] = x[0] * x[0] - p[0]
    >>> def residual(x, p):
    ...     r = wb.zeros(1)
    ...     wb.launch(circle, 1, [x, p, r])
    ...     return r
    >>> p = wb.array([4.0], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     x = wb.root(residual, wb.ones(1), p)
    >>> tape.backward(x)
    >>> x.list(), p.grad.list()
    ([2.0], [0.25])
    """
    _check("root", residual, guess)

    @through
    def numbers(x: array, *params: array) -> array:
        r = residual(_like(guess, x), *params)
        if not isinstance(r, array) or r.shape != guess.shape or r.dtype != guess.dtype:
            got = f"{r.dtype} of shape {r.shape}" if isinstance(r, array) else type(r).__name__
            text = f"root(): the residual is {got}, x {guess.dtype} of shape {guess.shape}."
            raise LaunchError(text, slug="root")
        return flat(r)

    def solved() -> Solved:
        return _newton("root", numbers, flat(clone(guess, requires_grad=False)), params, tol, maxiter)

    return _implicit("root", numbers, guess, params, solved)


def _like(guess: array, x: array) -> array:
    """The numbers x as an array like the guess, on their memory."""
    return x.view(guess.dtype).reshape(guess.shape)


@through
def _implicit(
    name: str, residual: Residual, guess: array, params: tuple[array, ...], solved: Callable[[], Solved]
) -> array:
    """The root of a function of numbers that `solved` returns with its derivative there, as an array like the guess.

    Under an open tape with its derivatives. In a capture every replay solves again.
    """
    tape, said = memory.recorder(), ""
    with memory.unrecorded():
        found, x = (zeros_like(flat(guess), requires_grad=False) for _ in range(2))
        matrix = zeros(1 if tape is None else x.size**2, x.dtype, x.device)
        found.name, x.name, matrix.name = f"solution of {name}", "solution", "inverse of dr/dx"

    def solve() -> None:
        nonlocal said
        with memory.unrecorded(), capture_log.following(None):
            solution, slope, said = solved()
            copy(found, solution)
            if tape is not None:
                matrix.assign(_inverse(slope, x).reshape(-1).astype(x.dtype.numpy))

    capture_log.reads(guess, *params)
    capture_log.do(solve)
    if tape is None:
        return _like(guess, found)
    with tape.scope(name):
        write_array("root", x, found)
        tape.events[-1].said = said
        for _ in range(ORDERS):
            r, moved = residual(x, *params), zeros(found.shape, found.dtype, found.device)
            r.name, moved.name = r.name or "residual", f"result of {name}"
            launch(chord, x.size, [x, matrix, r], [moved])
            x = moved
    return _like(guess, x)


def _inverse(slope: np.ndarray, x: array) -> np.ndarray:
    """The inverse of a derivative by x. Raises GradientError [singular] unless it has one beyond rounding."""
    sigma = np.linalg.svd(slope, compute_uv=False)
    if not sigma.min(initial=np.inf) > _rounding(sigma, x):
        text = "root(): the derivative of the residual by x is singular at the solution."
        raise GradientError(text, slug="singular", why="Nearby there are other solutions, or none.")
    return np.linalg.inv(slope)


def _rounding(values: np.ndarray, x: array) -> float:
    """The largest singular value or eigenvalue of a derivative by x that may be 0 beside these."""
    return SINGULAR * float(np.finfo(x.dtype.numpy).eps) * abs(values).max(initial=0.0)


@through
def fixed_point(step: Residual, guess: array, *params: array, tol: float | None = None, maxiter: int = 50) -> array:
    """The x for which step(x, *params) is x again: `root` of their difference, with the same arguments and errors.

    >>> @wb.kernel
    ... def cosine(x: wb.array[float], p: wb.array[float], y: wb.array[float]):
    ...     y[0] = wb.cos(p[0] * x[0])
    >>> def step(x, p):
    ...     y = wb.zeros(1)
    ...     wb.launch(cosine, 1, [x, p, y])
    ...     return y
    >>> wb.fixed_point(step, wb.ones(1), wb.ones(1)).numpy().round(4)
    array([0.7391], dtype=float32)
    """

    @through
    def residual(x: array, *params: array) -> array:
        moved: Any = step(x, *params)
        return x - moved

    return root(residual, guess, *params, tol=tol, maxiter=maxiter)


@through
def minimize(objective: Residual, guess: array, *params: array, tol: float | None = None, maxiter: int = 200) -> array:
    """The x near the guess at which objective(x, *params) is smallest, with its exact gradient by `params`.

    objective  takes an array like `guess` and launches kernels; returns an array of one element. It is called again and
               again, and must depend on its arguments alone (and on arrays without gradient that do not change).
    guess, tol of the gradient, and what is recorded under an open tape: as for `root`, of the gradient by x.
    Forwards SciPy's BFGS (Nocedal and Wright, "Numerical optimization", 2006, section 6.1) with at most `maxiter`
    iterations leads to the minimum, and Newton's method on to where the gradient is 0.
    Raises GradientError [not-converged]; [not-a-minimum] where the Hessian is not positive definite; [unused-argument]
    for an array with a gradient that is no argument; LaunchError [root]; what the launches raise.

    >>> @wb.kernel
    ... def energy(x: wb.array[float], p: wb.array[float], e: wb.array[float]):
    ...     e[0] = wb.cosh(x[0] - 2.0 * p[0])
    >>> def objective(x, p):
    ...     e = wb.zeros(1)
    ...     wb.launch(energy, 1, [x, p, e])
    ...     return e
    >>> p = wb.array([1.5], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     x = wb.minimize(objective, wb.zeros(1), p)
    >>> tape.backward(x)
    >>> x.list(), p.grad.list()
    ([3.0], [2.0])
    """
    from scipy import optimize  # when it is called: it takes a while to load

    _check("minimize", objective, guess)
    if memory.recorder() is not None:
        capture_log.refuse("minimize() under a tape", "wb.root(gradient, guess, ...)   of a gradient by kernels")

    @through
    def slope(x: array, *params: array) -> array:
        return _slope(objective, guess, x, params)

    def solved() -> Solved:
        x, constants = flat(clone(guess, requires_grad=False)), [clone(p, requires_grad=False) for p in params]
        loss = value_and_grad(through(lambda x: objective(_like(guess, x), *constants)), like=x)
        with np.errstate(over="ignore", invalid="ignore"):  # of an objective without a lowest value
            start = read_values(x).astype(np.float64)
            best = optimize.minimize(loss, start, jac=True, method="BFGS", options={"maxiter": maxiter})
        if not np.isfinite([best.fun, *best.x]).all():
            raise _not_converged("minimize", maxiter, np.linalg.norm(best.jac))
        found, curvature, said = _newton("minimize", slope, x.assign(best.x), params, tol, maxiter)
        bends = np.linalg.eigvalsh(curvature)
        if not bends.min(initial=np.inf) > _rounding(bends, x):
            text = f"minimize(): the gradient is 0, but the Hessian has an eigenvalue of {bends[0]:.3g}."
            why = "It is no minimum, or one of many beside each other."
            where = memory.caller_where()
            raise GradientError(text, slug="not-a-minimum", where=where, why=why, instead="another guess")
        return found, curvature, said

    return _implicit("minimize", slope, guess, params, solved)


def _slope(objective: Residual, guess: array, x: array, params: tuple[array, ...]) -> array:
    """The gradient of the objective by x, as a function of x and params: by a tape of its own, on copies of them."""
    start, *own = (clone(a, requires_grad=is_float_memory(a)) for a in (x, *params))
    with Tape(keep="all") as tape:
        loss = objective(_like(guess, start), *own)
    known = {a.allocation for a in (start, *own)} | {*tape.log.written}
    for a in tape.arrays.values():
        if a.requires_grad and a.allocation in tape.active and a.allocation not in known:
            text = f"minimize(): the objective reads {tape.names.called(a)}, which has a gradient and is no argument."
            instead = "wb.minimize(objective, guess, a)   with def objective(x, a): ..."
            raise GradientError(text, slug="unused-argument", instead=instead)
    tape.backward(loss)
    for met in tape.border.crossings:
        met.said = True  # nobody but us sees the gradients of the copies
    assert start.grad is not None
    return start.grad


def _check(name: str, function: object, guess: object) -> None:
    instead = f"wb.{name}(function, wb.zeros(n), p)   with def function(x, p): ...; return r"
    capture_log.refuse_mapped(f"{name}() is called.")
    if not callable(function):
        raise LaunchError(f"{name}() takes a function, not {type(function).__name__}.", slug="root", instead=instead)
    if not isinstance(guess, array) or not is_float(guess.dtype) or guess.data.itemsize < 4:
        raise LaunchError(f"{name}() takes an array of float32 or float64 as guess.", slug="root", instead=instead)
    if (n := flat(guess).size) > LARGEST:
        text = f"{name}() of {n} unknowns: it takes a matrix of {n}^2 numbers."
        raise LaunchError(text, slug="root", instead="wb.optim.linear.cg in a Newton iteration of yours")


def _newton(
    name: str, residual: Residual, x: array, params: tuple[array, ...], tol: float | None, maxiter: int
) -> Solved:
    """`Solved` by Newton's method, with halved steps where one leads away. Raises GradientError [not-converged]."""
    eps = float(np.finfo(read_values(x).dtype).eps)
    r, slope = _linear(residual, x, params)
    sizes: list[float] = []
    for _ in range(maxiter):
        sizes.append(size := float(np.linalg.norm(r)))
        if not np.isfinite(size + np.abs(slope).sum()):
            raise _not_converged(name, len(sizes) - 1, size, finite=False)
        noise = 100 * eps * float(np.linalg.norm(np.abs(slope) @ np.abs(read_values(x)))) + 1e-300
        if size <= (wanted := noise if tol is None else tol):
            return x, slope, residuals_text(sizes, len(sizes) - 1, wanted)
        step = _step(slope, r)
        start = read_values(x).astype(np.float64)
        for k in range(HALVINGS):
            x.assign((start - step / 2**k).astype(read_values(x).dtype))
            r = read_values(residual(clone(x, requires_grad=False), *params)).astype(np.float64)
            if np.linalg.norm(r) < size:
                break
        r, slope = _linear(residual, x, params)
    raise _not_converged(name, maxiter, np.linalg.norm(r))


def _step(slope: np.ndarray, r: np.ndarray) -> np.ndarray:
    """slope^-1 r; where a matrix is singular but for rounding, the shortest step that leaves least of r."""
    with suppress(np.linalg.LinAlgError):
        inverse = np.linalg.inv(slope)
        condition = np.linalg.norm(slope, 1) * np.linalg.norm(inverse, 1)
        if condition * SINGULAR * np.finfo(r.dtype).eps < 1:
            return inverse @ r
    return np.linalg.lstsq(slope, r, rcond=None)[0]


def _not_converged(name: str, count: int, size: float | np.floating, finite: bool = True) -> GradientError:
    text = f"{name}() did not converge in {count} iterations: the residual is {size:.3g}"
    text += "." if finite else ", and it or its derivative is not finite."
    why = "Its gradient is that of the solution, not of an iterate."
    return GradientError(text, slug="not-converged", where=memory.caller_where(), why=why, instead="a better guess")


def _linear(residual: Residual, x: array, params: tuple[array, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(the residual, its derivative by x), as float64 of shapes (n,) and (n, n)."""
    x.requires_grad = True
    with Tape() as tape:
        r = residual(x, *params)
    return read_values(r).astype(np.float64), np.asarray(jacobian(tape, r, x), np.float64)

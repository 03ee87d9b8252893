"""Roots and fixed points with the gradient of the solution, by the implicit function theorem.

The solution x* is found outside of the tape, by Newton's method. Then two steps of the chord iteration
x <- x - A r(x, p) with the constant A = (dr/dx)^-1 are recorded, from x*. They move nothing, as r is 0 there; but each
makes x depend on p to one order more (the iteration contracts by the distance to x*): first and second derivatives of
what is recorded are those of the solution. Sources: Krantz and Parks, "The implicit function theorem" (2002); Bolte,
Pauwels, Vaiter, "One-step differentiation of iterative algorithms" (2023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, clone, read_values
from ..arrays.creation import copy, zeros, zeros_like
from ..arrays.host_writes import write_array
from ..errors import GradientError, LaunchError
from ..kernels import kernel
from ..kernels.reading.declare import tid
from ..kernels.types import Scalar
from ..launches.launch import launch, through
from ..tapes.tape import Tape
from .jacobian import jacobian

LARGEST = 2000  # unknowns: their derivative is a dense matrix
ORDERS = 2  # of derivatives that are exact
HALVINGS = 12  # of a step that makes the residual larger
Residual = Callable[..., array]


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
    guess      an array of float32 or float64, at most 2,000 numbers, from where Newton's method starts.
    tol        the largest residual that is none: by default 100 roundings of the numbers that it is made of.
    Under an open tape the launches of the residual at the solution are recorded, and a step that makes the solution
    depend on `params`: `backward`, `jvp`, `hvp` and `hessian` are exact, no iteration is unrolled. A tape with a root
    cannot be replayed on other inputs, as the solution is another one there. Of an energy the residual may be the
    gradient by an inner tape: `tape.zero()` behind it, as each of its calls has added to the gradients of `params`.
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
    _check(residual, guess)
    capture_log.refuse_mapped("root() is called.")
    recorded = memory.recorder() is not None
    with memory.unrecorded():
        found, x = (zeros_like(guess, requires_grad=False) for _ in range(2))
        matrix = zeros(guess.size**2 if recorded else 1, guess.dtype, guess.device)

    def solve() -> None:
        with memory.unrecorded(), capture_log.following(None):
            solution, slope = _newton(residual, clone(guess, requires_grad=False), params, tol, maxiter)
            copy(found, solution)
            if recorded:
                matrix.assign(_inverse(slope).reshape(-1).astype(guess.dtype.numpy))

    capture_log.do(solve)
    if not recorded:
        return found
    write_array("root", x, found)
    for _ in range(ORDERS):
        r, moved = residual(x, *params), zeros(guess.shape, guess.dtype, guess.device)
        launch(chord, x.size, [x.flatten(), matrix, r.flatten()], [moved.flatten()])
        x = moved
    return x


def _inverse(slope: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.inv(slope)
    except np.linalg.LinAlgError:
        text = "root(): the derivative of the residual by x is singular at the solution."
        raise GradientError(text, slug="singular", why="Nearby there are other solutions, or none.") from None


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


def _check(residual: object, guess: object) -> None:
    instead = "wb.root(residual, wb.zeros(n), p)   with def residual(x, p): ...; return r"
    if not callable(residual):
        raise LaunchError(f"root() takes a function, not {type(residual).__name__}.", slug="root", instead=instead)
    if not isinstance(guess, array) or not isinstance(guess.dtype, Scalar) or guess.dtype.kind != "f":
        raise LaunchError("root() takes an array of float32 or float64 as guess.", slug="root", instead=instead)
    if guess.size > LARGEST:
        text = f"root() of {guess.size} unknowns: its derivative by them would be a matrix of {guess.size}^2 numbers."
        raise LaunchError(text, slug="root", instead="wb.optim.linear.cg in a Newton iteration of yours")


def _newton(
    residual: Residual, x: array, params: tuple[array, ...], tol: float | None, maxiter: int
) -> tuple[array, np.ndarray]:
    """(the root, the derivative of the residual there), by Newton's method with halved steps where one leads away."""
    eps = float(np.finfo(read_values(x).dtype).eps)
    r, slope = _linear(residual, x, params)
    for _ in range(maxiter):
        size = np.linalg.norm(r)
        noise = 100 * eps * float(np.linalg.norm(np.abs(slope) @ np.abs(read_values(x).ravel()))) + 1e-300
        if size <= (noise if tol is None else tol):
            return x, slope
        step = np.linalg.lstsq(slope, r, rcond=None)[0]
        start = read_values(x).astype(np.float64)
        for k in range(HALVINGS):
            x.assign((start - step.reshape(start.shape) / 2**k).astype(read_values(x).dtype))
            r = read_values(residual(x, *params)).astype(np.float64).ravel()
            if np.linalg.norm(r) < size:
                break
        r, slope = _linear(residual, x, params)
    text = f"root() did not converge in {maxiter} iterations: the residual is {np.linalg.norm(r):.3g}."
    why = "Its gradient is that of the solution, not of an iterate."
    raise GradientError(text, slug="not-converged", where=memory.caller_where(), why=why, instead="a better guess")


def _linear(residual: Residual, x: array, params: tuple[array, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(the residual, its derivative by x), as float64 of shapes (n,) and (n, n)."""
    x.requires_grad = True
    with Tape() as tape:
        r = residual(x, *params)
    if not isinstance(r, array) or r.shape != x.shape or r.dtype != x.dtype:
        got = f"{r.dtype} of shape {r.shape}" if isinstance(r, array) else type(r).__name__
        raise LaunchError(f"root(): the residual is {got}, x {x.dtype} of shape {x.shape}.", slug="root")
    slope = np.asarray(jacobian(tape, r, x), np.float64).reshape(x.size, x.size)
    return read_values(r).astype(np.float64).ravel(), slope

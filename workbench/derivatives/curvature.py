"""Second derivatives as matrices: the Hessian of a loss, and the covariance of parameters fitted to residuals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array, read_values
from ..errors import GradientError
from ..tapes.private_copies import InFloat64
from ..tapes.seeds import check_seed, check_tape
from ..tapes.tape import Tape
from .jacobian import jacobian

RANK = 1e-6  # a singular value below this part of the largest is none


class Covariance(NamedTuple):
    """The covariance of fitted parameters.

    matrix   shape (n, n) over the n numbers of x in row-major order, float64; infinite variances where the fit says
             nothing are left out (the pseudo-inverse).
    rank     how many combinations of the parameters the residuals determine; `deviation`: of one residual.
    unseen   shape (n - rank, n): directions, of length 1, that change no residual.
    """

    matrix: np.ndarray
    rank: int
    deviation: float
    unseen: np.ndarray


def hessian(tape: Tape, loss: array, x: array) -> np.ndarray:
    """The Hessian of a loss of one element by x, exact: one product with a unit direction for each number of x.

    tape   recorded with keep="all", as for `hvp`. Returns shape (*x.shape, *components, *x.shape, *components) in the
    dtype of x's gradient. Raises what `hvp` raises. The launches are read once, and run once for each number of x.

    >>> @wb.kernel
    ... def energy(x: wb.array[float], out: wb.array[float]):
    ...     out[0] = x[0] * x[0] * x[1]
    >>> x, out = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(1)
    >>> with wb.Tape(keep="all") as tape:
    ...     wb.launch(energy, 1, inputs=[x], outputs=[out])
    >>> wb.hessian(tape, out, x).tolist()
    [[4.0, 2.0], [2.0, 0.0]]
    """
    check_tape("hessian(tape, loss, x)", tape, loss, x)
    if loss.data.size != 1:
        raise GradientError("hessian() takes a loss of one element.", slug="loss-shape", instead="out[0], summed up")
    with memory.LOCK, memory.unrecorded():
        check_seed(tape, loss)
        check_seed(tape, x)
        twice = InFloat64(tape).follow()
        spans = [m.span() for m in (*twice.twins.memory.values(), *twice.moved.memory.values())]
        start = [(span, span.copy_out()) for span in spans]
        rows = []
        for k in range(x.data.size):
            one = np.zeros(x.data.size, np.float64)
            one[k] = 1
            rows.append(twice.product(loss, {x: one.reshape(x.data.shape)})[x])
            for span, data in start:
                span.copy_in(data)
        return np.array(rows).reshape(*x.data.shape, *x.data.shape)


def covariance(tape: Tape, residuals: array, x: array) -> Covariance:
    """The covariance of parameters x that were fitted to residuals by least squares: s^2 (J^T J)^-1 (Gauss-Newton).

    residuals   an array of m numbers, of which the loss is the sum of squares; J is their derivative by x, taken from
                the tape, and s^2 = |residuals|^2 / (m - rank) the variance of one of them (NaN for m = rank).
    Raises what `jacobian` raises.

    >>> @wb.kernel
    ... def misfit(p: wb.array[float], r: wb.array[float]):
    ...     i = wb.tid()
    ...     r[i] = (p[0] + p[1]) * float(i) - 1.0
    >>> p, r = wb.array([0.1, 0.2], requires_grad=True), wb.zeros(5)
    >>> with wb.Tape() as tape:
    ...     wb.launch(misfit, 5, inputs=[p], outputs=[r])
    >>> found = wb.covariance(tape, r, p)
    >>> found.rank, abs(found.unseen).round(2).tolist()
    (1, [[0.71, 0.71]])
    """
    rows = np.asarray(jacobian(tape, residuals, x), np.float64).reshape(residuals.data.size, x.data.size)
    _, sigma, right = np.linalg.svd(rows, full_matrices=True)
    sigma = np.concatenate((sigma, np.zeros(x.data.size - len(sigma))))
    rank = int((sigma > RANK * sigma[0]).sum()) if sigma[0] > 0 else 0
    square = float(np.sum(read_values(residuals).astype(np.float64) ** 2))
    many = residuals.data.size - rank
    deviation = np.sqrt(square / many) if many else np.nan
    seen = right[:rank] / sigma[:rank, None]
    return Covariance(deviation**2 * seen.T @ seen, rank, float(deviation), right[rank:])

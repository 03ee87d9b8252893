"""Second derivatives as matrices: the Hessian of a loss, and the covariance of parameters fitted to residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array, read_values
from ..arrays.workspace import gradient_dtype
from ..errors import GradientError
from ..tapes.private_copies import InFloat64
from ..tapes.seeds import as_read, check_seed, check_start, check_tape
from ..tapes.tape import Tape
from . import sparsity
from .jacobian import differing_entries, jacobian

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


def hessian(tape: Tape, loss: array, x: array, *, sparse: bool = False) -> Any:
    """The Hessian of a loss of one element by x, exact: one product with a unit direction for each number of x.

    tape   recorded with keep="all", as for `hvp`. Returns shape (*x.shape, *components, *x.shape, *components) in the
    dtype of x's gradient. Raises what `hvp` raises. The launches are read once, and run once for each number of x.
    sparse=True gives a `scipy.sparse.csr_array` with a row and a column for each number of x, from as few products as
    there are colours (see `jacobian`): two numbers have an entry if what one thread loads depends on both. Raises
    GradientError [pattern] where that cannot be found.

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
        check_start(tape, x)
        products = _Products(tape, loss, x)
        if sparse:
            return _sparse(tape, products, x)
        rows = [products.of([k]) for k in range(x.data.size)]
    return as_read(tape, np.array(rows).reshape(*x.data.shape, *x.data.shape))


class _Products:
    """Products of a Hessian with vectors, each from the same start."""

    def __init__(self, tape: Tape, loss: array, x: array):
        self.twice, self.loss, self.x = InFloat64(tape).follow(), loss, x
        memories = (*self.twice.twins.memory.values(), *self.twice.moved.memory.values())
        self.start = [(span, span.copy_out()) for span in (m.span() for m in memories)]

    def of(self, ones: Sequence[int], weight: np.ndarray | float = 1.0) -> np.ndarray:
        """The product with the vector that is `weight` at these numbers of x, and 0 elsewhere: one number for each."""
        v = np.zeros(self.x.data.size, np.float64)
        v[ones] = weight
        found = self.twice.product(self.loss, {self.x: v.reshape(self.x.data.shape)})[self.x].reshape(-1)
        for span, data in self.start:
            span.copy_in(data)
        return found


def _sparse(tape: Tape, products: _Products, x: array) -> Any:
    lines, certain = sparsity.find_pairs(tape, x)
    entries = {}
    for group in sparsity.colour(lines):
        found = products.of(group)
        entries |= {(i, k): found[i] for k in group for i in sparsity.members(lines[k])}
    made = sparsity.matrix(entries, (x.data.size, x.data.size), gradient_dtype(x))
    if not certain:
        weights = np.random.default_rng(0).uniform(0.5, 1.0, x.data.size).astype(gradient_dtype(x))
        got = products.of(range(x.data.size), weights).astype(np.float64)
        if differing_entries(tape, made, weights, got).size:
            text = f"the pattern found for the Hessian by {x.label} leaves out entries that are not zero."
            why = "Rounding decides about a branch or an index."
            raise GradientError(text, slug="pattern", why=why, instead="hessian(tape, loss, x)")
    return made


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

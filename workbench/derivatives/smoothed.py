"""Randomised smoothing: value and gradient of a loss averaged over Gaussian noise on its argument.

E f(x + w) with w ~ N(0, sigma^2 I) is smooth, whatever f is. Its gradient has two unbiased estimators where f is
continuous, E f'(x + w) and E (f(x + w) - f(x)) w / sigma^2; where f jumps, the first misses the jump, and the second
does not. Source: Suh, Simchowitz, Zhang, Tedrake, "Do differentiable simulators give better policy gradients?" (2022).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from ..arrays.array import array, read_values
from ..arrays.creation import ones_like, zeros
from ..arrays.host_reads import carrying, sources_of, stripped
from ..errors import GradientError, KernelError, LaunchError
from ..tapes.tape import Tape
from ..tapes.vmap import vmap
from .jacobian import ValueAndGrad, copied_input, input_numbers, value_and_grad
from .sweep import sweep

ORDERS = ("first", "zeroth", "mixed")
SURE = 1.96  # standard errors of a 95 % interval


class Smoothed:
    """A smoothed loss with its gradient: what `smoothed` returns. Of the last call:

    variance   of the gradient that was returned: the trace of the covariance of the mean.
    first, zeroth   the two estimates (None where `order` does not need it).
    biased     True if they are further apart than chance allows: the loss jumps, and `first` is wrong there.
    share      the weight of `first` in what was returned.
    """

    def __init__(
        self, fn: ValueAndGrad, sigma: float, samples: int, order: str, seed: int, rows: bool, executor: Executor | None
    ):
        self.fn, self.sigma, self.samples, self.order, self.seed = fn, sigma, samples, order, seed
        self.mapped, self.executor = rows, executor
        self.first: np.ndarray | None = None
        self.zeroth: np.ndarray | None = None
        self.variance, self.share, self.biased = np.nan, np.nan, False
        self.__name__ = f"smoothed {fn.__name__}"

    def __call__(self, x: Any, *rest: Any) -> tuple[float, np.ndarray]:
        """(mean loss, its gradient: a NumPy array of x's shape and dtype)."""
        start = np.array(given := input_numbers(x))
        noise = np.random.default_rng(self.seed).standard_normal((self.samples, *start.shape)) * self.sigma
        found = self._at((start + noise).astype(start.dtype), rest)
        sources = sources_of((given, *found))  # under an open tape, of what the function reads too
        values, grads = map(stripped, found)
        first, first_spread = _mean(grads)
        weights = (values - values.mean()).reshape(-1, *[1] * start.ndim) / self.sigma**2
        scale = self.samples / (self.samples - 1)  # the mean was taken of the same samples
        zeroth, zeroth_spread = _mean(weights * noise * scale)
        self.first = None if self.order == "zeroth" else first
        self.zeroth = None if self.order == "first" else zeroth
        gap = float(np.linalg.norm(first - zeroth))
        self.biased = self.order != "first" and gap > SURE * np.sqrt(first_spread + zeroth_spread)
        self.share = {"first": 1.0, "zeroth": 0.0}.get(self.order, 0.0)
        if self.order == "mixed":
            least = zeroth_spread / (first_spread + zeroth_spread) if first_spread + zeroth_spread else 1.0
            room = SURE * np.sqrt(zeroth_spread)  # a bias that could be chance
            self.share = min(least, room / gap) if gap else least
            self.share = 0.0 if self.biased else self.share
        self.variance = self.share**2 * first_spread + (1 - self.share) ** 2 * zeroth_spread
        slope = (self.share * first + (1 - self.share) * zeroth).astype(start.dtype)
        return carrying((float(values.mean()), slope), sources)

    def _at(self, points: np.ndarray, rest: tuple) -> tuple[np.ndarray, np.ndarray]:
        """(losses, gradients) at the points. A function that `vmap` refuses is run at one after the other."""
        if self.mapped:
            try:
                return self._mapped(points, rest)
            except (LaunchError, KernelError, GradientError):  # what is wrong with the function is said below
                self.mapped = False
        found = sweep(self.fn, [(point, *rest) for point in points], self.executor)
        values = np.array([value for value, _ in found]), np.array([np.asarray(g, np.float64) for _, g in found])
        return carrying(values, sources_of(found))

    def _mapped(self, points: np.ndarray, rest: tuple) -> tuple[np.ndarray, np.ndarray]:
        like, count = self.fn.like, len(points)
        xs = copied_input(points, None if like is None else zeros((count, *like.shape), like.dtype, like.device))
        with Tape() as tape:
            losses = vmap(self.fn.fn, (0, *[None] * len(rest)))(xs, *rest)
        if losses.data.size != count or not tape.log.has_touched(xs.span):
            raise GradientError("no loss of each sample", slug="loss-shape")
        tape.backward(grads={losses: ones_like(losses)})
        assert xs.grad is not None
        values, grads = (a.carrying(read_values(a)) for a in (losses, xs.grad))
        return values.reshape(-1), grads.astype(np.float64).reshape(points.shape)


def _mean(samples: np.ndarray) -> tuple[np.ndarray, float]:
    """(the mean, the trace of its covariance)."""
    return samples.mean(0), float(samples.var(0, ddof=1).sum()) / len(samples)


def smoothed(
    fn: Callable[..., array],
    sigma: float,
    samples: int = 64,
    order: str = "mixed",
    seed: int = 0,
    like: array | None = None,
    jit: bool = True,
    executor: Executor | None = None,
) -> Smoothed:
    """The loss averaged over Gaussian noise on its first argument, with its gradient, for optimizers as SciPy's.

    fn        takes arrays, launches kernels, returns an array of one element: as for `value_and_grad`.
    sigma     standard deviation of the noise, in the units of the argument; `samples`: how many points, at least 2.
    order     "first" averages gradients (few samples do; wrong where the loss jumps), "zeroth" weights losses by the
              noise (right there too; noisy), "mixed" takes the weights of least variance, and "zeroth" alone where the
              two contradict each other.
    seed      of the noise, which is the same at each call: differences between calls are the loss's.
    like      the dtype and shape in which `fn` wants the argument, as for `value_and_grad`.
    jit       False runs every sample as it stands: for a function that reads values, or calls `record_func`.
    executor  its workers evaluate the samples (see `sweep`); None: all at once by `vmap`, or what that refuses one
              after the other, replayed (see `jit`).
    Raises ValueError; what `value_and_grad` raises.

    Use it where `tape.trust` says that a decision ends the gradient: at contacts, rounding, hard choices.

    >>> @wb.kernel
    ... def stair(x: wb.array[float], out: wb.array[float]):
    ...     if x[0] > 0.0:
    ...         out[0] = 1.0
    >>> def loss(x):
    ...     out = wb.zeros(1)
    ...     wb.launch(stair, 1, [x, out])
    ...     return out
    >>> value, slope = wb.smoothed(loss, sigma=0.5, samples=4000, order="zeroth")(np.zeros(1, np.float32))
    >>> round(value, 1), abs(slope[0] - 1 / (0.5 * np.sqrt(2 * np.pi))) < 0.05
    (0.5, np.True_)
    """
    if order not in ORDERS:
        raise ValueError(f"order={order!r}: takes {', '.join(map(repr, ORDERS))}")
    if not sigma > 0 or samples < 2:
        raise ValueError(f"sigma={sigma!r}, samples={samples!r}: a positive width and at least 2 samples")
    replayed = jit and executor is None
    loss = value_and_grad(fn, like=like, jit=replayed)
    return Smoothed(loss, float(sigma), samples, order, seed, replayed, executor)

"""The first root of a func in an interval, with its derivatives: the time of an event inside a step.

Bisection finds the root. Two steps of Newton's method, t <- t - g(t)/g'(t), then make it depend on the arguments of `g`
as the implicit function theorem says, to second order (see `derivatives.root`), and no longer on where the interval
begins and ends: at the root the derivative of such a step by t is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kernels.reading.gradients import grad
from ..kernels.reading.library import library
from .language import wb

HALVINGS = 60  # of the interval of a root: more than there are bits in a float64


@library()
def value_at(t: wb.Scalar, g: Callable, args: Any):
    return g(t, *args)


@library()
def first_root(g: Callable, start: wb.Scalar, end: wb.Scalar, args: Any, pieces: int = 8):
    """first_root(g: func, start: F, end: F, args: tuple, pieces=8) -> (F, bool): when `g` first falls to 0, if it does.

    `g(t, *args)` is a func that returns an F: the height of a ball at the time t, the gap between two. The answer is
    the first t from `start` to `end` at which it has come from above to 0, with its exact first and second derivatives
    by `args` (and by what `g` reads), and True; else `end` and False. `pieces`: the interval is looked at at the ends
    of so many equal parts, so a `g` that falls to 0 and rises again within one of them is not seen. What begins at 0,
    or just below, and rises is above: so a ball that has bounced does not bounce again at once. Where the slope of `g`
    is 0 at the root there is no derivative, and the answer is not a number.

    >>> @wb.func
    ... def height(t: float, y: float, v: float):
    ...     return y + t * (v - 4.905 * t)
    >>> @wb.kernel
    ... def impact(y: wb.array[float], when: wb.array[float]):
    ...     t, hit = wb.first_root(height, 0.0, 1.0, (y[0], 0.0))
    ...     when[0] = t
    >>> y, when = wb.array([4.905], requires_grad=True), wb.zeros(1)
    >>> with wb.Tape() as tape:
    ...     wb.launch(impact, 1, [y], [when])
    >>> tape.backward(when)
    >>> when.numpy(), y.grad.numpy().round(5)  # sqrt(2 y / g), and 1 / (g t)
    (array([1.], dtype=float32), array([0.10194], dtype=float32))
    """
    low, high = start, end
    if g(low, *args) <= 0.0:
        low = start + (end - start) / 1024.0
    above, hit = g(low, *args) > 0.0, False
    for k in range(pieces):
        if not hit:
            high = start + (end - start) * (type(start)(k + 1) / type(start)(pieces))
            hit = above and g(high, *args) <= 0.0
            if not hit:
                low, above = high, g(high, *args) > 0.0
    t = end
    if hit:
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            if g(middle, *args) > 0.0:
                low = middle
            else:
                high = middle
        slope = grad(value_at)(high, g, args)[0]
        t = high - g(high, *args) / slope
        t -= g(t, *args) / slope
    return t, hit

"""Integrators of ordinary differential equations over arrays, and `integrate`, the loop around any step.

The one idea: a step of a method is launches of the user's right-hand side and of sums of arrays, written back in place,
so its gradient is that of the program that ran (discretise, then optimise). Sources: Hairer, Lubich, Wanner, "Geometric
numerical integration" (2006), I and II; Hairer, Norsett, Wanner, "Solving ordinary differential equations I" (1993).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays import allocation as memory
from ..arrays.array import array
from ..arrays.creation import copy, zeros_like
from ..arrays.packing import Pack
from ..errors import LaunchError
from ..kernels.reading.declare import func
from ..kernels.types import is_float
from ..launches.launch import through
from ..launches.operators import map
from ..tapes.checkpoint import checkpoint
from .root import root

COPIES = 150  # of the state that a recorded loop keeps; loops of no more steps are recorded step by step
Step = Callable[..., None]
Rates = Callable[..., array | Sequence[array]]


def integrate(
    step: Step, state: array | Sequence[array], steps: int, budget: int | None = None, progress: bool = True
) -> None:
    """Run `step(k, *state)` for k = 0 ... steps - 1: launches that advance the arrays `state` in place.

    steps      from 1 on. Under a tape up to 150 are recorded one by one; of more the tape keeps `budget` copies of the
               state, and its walk runs steps again: one event of the tape, with the same gradient (see `checkpoint`,
               also for what a step may do: memory that it makes for itself is its own, all else that it writes, as a
               sum of losses, is part of `state`).
    budget     how many copies of the state may exist at once; by default 150: of 20,000 steps the walk runs each 2.4
               times more.
    progress   a bar after a second.

    Raises LaunchError [checkpoint], [checkpoint-state], [checkpoint-step]; what the step raises.

    >>> def fall(t, x):
    ...     return wb.full(1, -9.81)
    >>> x, v = wb.zeros(1), wb.array([3.0], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     speed = wb.clone(v)
    ...     wb.integrate(lambda k, x, v: wb.velocity_verlet(fall, 0.1 * k, 0.1, x, v), [x, speed], steps=10)
    >>> tape.backward(x)
    >>> x.numpy().round(3), v.grad.numpy().round(5)  # 3 t - 9.81 t^2 / 2 at t = 1, and t
    (array([-1.905], dtype=float32), array([1.], dtype=float32))
    """
    given = [state] if isinstance(state, array) else list(state)
    loop = checkpoint(steps, COPIES if budget is None else budget, progress)(step)
    if budget is None and steps <= COPIES:
        loop.run(given)
    else:
        loop(*given)


@through
def symplectic_euler(acceleration: Rates, t: float, dt: float, x: array, v: array) -> None:
    """One step of order 1, in place: v += dt a(t, x), then x += dt v. It keeps areas of phase space.

    acceleration   `a(t, x)` launches kernels; returns an array of the shape and dtype of `x`. It changes nothing else.
    t, dt          time and step, numbers.
    x, v           positions and velocities, arrays of floats (or vectors) of one shape.

    Raises LaunchError [integrate]; what the launches raise.

    >>> x, v = wb.ones(1), wb.zeros(1)
    >>> wb.symplectic_euler(lambda t, x: -x, 0.0, 0.5, x, v)
    >>> x.list(), v.list()
    ([0.75], [-0.5])
    """
    map(_moved, v, *_rates(acceleration, t, [x]), dt, out=v)
    map(_moved, x, v, dt, out=x)


@through
def velocity_verlet(acceleration: Rates, t: float, dt: float, x: array, v: array) -> None:
    """One step of order 2, in place: half a step of v, a step of x, half a step of v. Arguments of `symplectic_euler`.

    It is symplectic and reversible where the acceleration depends on `t` and `x` alone.

    >>> x, v = wb.ones(1), wb.zeros(1)
    >>> wb.velocity_verlet(lambda t, x: -x, 0.0, 0.5, x, v)
    >>> x.list(), v.list()
    ([0.875], [-0.46875])
    """
    map(_moved, v, *_rates(acceleration, t, [x]), dt / 2, out=v)
    map(_moved, x, v, dt, out=x)
    map(_moved, v, *_rates(acceleration, t + dt, [x]), dt / 2, out=v)


@through
def rk4(rates: Rates, t: float, dt: float, *state: array) -> None:
    """One step of order 4 of the classical method of Runge and Kutta, in place.

    rates    `f(t, *state)` launches kernels; returns the derivative of each state array by time, of its shape and
             dtype: one array, or a sequence of them. It changes nothing else.
    t, dt    time and step, numbers.
    state    arrays of floats (or vectors).

    Raises LaunchError [integrate]; what the launches raise.

    >>> x = wb.ones(1, dtype=wb.float64)
    >>> wb.rk4(lambda t, x: -x, 0.0, 0.5, x)
    >>> x.numpy().round(6)  # exp(-0.5) = 0.606531
    array([0.606771])
    """
    slopes = _rates(rates, t, state)
    ends = [map(_moved, x, d, dt / 6) for x, d in zip(state, slopes, strict=True)]
    for h, weight in ((dt / 2, dt / 3), (dt / 2, dt / 3), (dt, dt / 6)):
        slopes = _rates(rates, t + h, [map(_moved, x, d, h) for x, d in zip(state, slopes, strict=True)])
        for end, d in zip(ends, slopes, strict=True):
            map(_moved, end, d, weight, out=end)
    for x, end in zip(state, ends, strict=True):
        copy(x, end)


@through
def implicit_midpoint(rates: Rates, t: float, dt: float, *state: array) -> None:
    """One step of order 2 of the implicit midpoint rule, in place: y = x + dt f(t + dt/2, (x + y)/2), by `root`.

    For stiff problems, and for mechanics over long times: it is symplectic, and keeps quadratic invariants. Arguments
    and errors of `rk4` and of `root`: all states together have at most 2,000 numbers, of one scalar type.

    >>> x = wb.ones(1, dtype=wb.float64)
    >>> wb.implicit_midpoint(lambda t, x: x * -1000.0, 0.0, 0.5, x)
    >>> x.numpy().round(6)  # (1 - 250) / (1 + 250)
    array([-0.992032])
    """
    parts = Pack({f"state {k}": x for k, x in enumerate(state)})

    @through
    def residual(y: array, *state: array) -> array:
        r = zeros_like(y, requires_grad=False)
        ends = list(parts.views(y).values())
        slopes = _rates(rates, t + dt / 2, [map(_between, x, end, 0.5) for x, end in zip(state, ends, strict=True)])
        for x, end, d, out in zip(state, ends, slopes, parts.views(r).values(), strict=True):
            map(_left, end, x, d, dt, out=out)
        return r

    with memory.unrecorded():
        guess = parts.vector
    y = root(residual, guess, *state)
    for x, end in zip(state, parts.views(y).values(), strict=True):
        copy(x, end)


def _rates(rates: Rates, t: float, state: Sequence[array]) -> list[array]:
    """The derivatives by time at this state: to be used before the next call. Raises LaunchError [integrate]."""
    for x in state:
        if not isinstance(x, array) or not is_float(x.dtype):
            got = f"{x.label}, an array of {x.dtype}" if isinstance(x, array) else type(x).__name__
            raise LaunchError(f"a state of an integrator is {got}.", slug="integrate", instead="arrays of floats")
    found = rates(t, *state)
    given: list[Any] = list(found) if isinstance(found, tuple | list) else [found]
    types = [(getattr(d, "dtype", type(d).__name__), getattr(d, "shape", ())) for d in given]
    if types != [(x.dtype, x.shape) for x in state]:
        text = f"{getattr(rates, '__name__', 'the right-hand side')} returned {types}."
        why = f"A derivative by time is like its state: {[(x.dtype, x.shape) for x in state]}."
        raise LaunchError(text, slug="integrate", where=memory.caller_where(), why=why, instead="return dx, dv")
    return given


@func
def _moved(x: Any, d: Any, h: Any):
    return x + h * d


@func
def _between(x: Any, y: Any, h: Any):
    return x + h * (y - x)


@func
def _left(y: Any, x: Any, d: Any, h: Any):
    return y - x - h * d

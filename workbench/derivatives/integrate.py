"""Integrators of ordinary differential equations over arrays, and `integrate`, the loop around any step.

The one idea: a step of a method is launches of the user's right-hand side and of sums of arrays, written back in place,
so its gradient is that of the program that ran (discretise, then optimise). Sources: Hairer, Lubich, Wanner, "Geometric
numerical integration" (2006), I and II; Hairer, Norsett, Wanner, "Solving ordinary differential equations I" (1993).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import allocation as memory, capture_log
from ..arrays.array import array, clone, read_values
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
    given: list[Any] = list(state) if isinstance(state, list | tuple) else [state]
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
    for x, end in zip(state, _implicit(rates, t + dt / 2, dt, 0.5, state), strict=True):
        copy(x, end)


@through
def bdf2(rates: Rates, t: float, dt: float, *state: array, first: bool = False) -> None:
    """One step of order 2 by backward differences, in place: y = (4 x - before) / 3 + 2/3 dt f(t + dt, y), by `root`.

    For stiff problems that should be damped: it is L-stable. Hairer, Wanner, "Solving ordinary differential equations
    II" (1996), V.1.

    state    the arrays of the state, and then as many of the state one step before, which are moved on too.
    first    a step of backward Euler, which needs no state before: y = x + dt f(t + dt, y).

    The rest and errors as of `implicit_midpoint`.

    >>> x, before = wb.ones(1, dtype=wb.float64), wb.zeros(1, dtype=wb.float64)
    >>> for k in range(2):
    ...     wb.bdf2(lambda t, x: x * -1000.0, 0.5 * k, 0.5, x, before, first=k == 0)
    >>> x.numpy() * 501 * 1003, before.numpy() * 501  # before: 1 / (1 + 500), x: (4 / 501 - 1) / (3 + 1000)
    (array([-497.]), array([1.]))
    """
    half = len(state) // 2
    if 2 * half != len(state):
        raise LaunchError("bdf2() of an odd number of arrays.", slug="integrate", instead="bdf2(f, t, dt, x, x_before)")
    now, before = state[:half], state[half:]
    base = now if first else [map(_between, old, x, 4 / 3) for x, old in zip(now, before, strict=True)]
    ends = _implicit(rates, t + dt, dt if first else dt * 2 / 3, 1.0, base)
    for x, old, end in zip(now, before, ends, strict=True):
        copy(old, x)
        copy(x, end)


def _implicit(rates: Rates, t: float, h: float, part: float, base: Sequence[array]) -> Sequence[array]:
    """The y of y = base + h f(t, base + part (y - base)), where a part of 1 is y itself."""
    parts = Pack({f"state {k}": x for k, x in enumerate(base)})

    @through
    def residual(y: array, *base: array) -> array:
        r = zeros_like(y, requires_grad=False)
        ends = list(parts.views(y).values())
        places = [map(_between, x, end, part) for x, end in zip(base, ends, strict=True)] if part < 1 else ends
        slopes = _rates(rates, t, places)
        for x, end, d, out in zip(base, ends, slopes, parts.views(r).values(), strict=True):
            map(_left, end, x, d, h, out=out)
        return r

    with memory.unrecorded():
        guess = parts.vector
    return list(parts.views(root(residual, guess, *base)).values())


@through
def rk45(rates: Rates, t: float, end: float, *state: array, rtol: float = 1e-3, atol: float = 1e-6) -> list[float]:
    """From t to `end`, in place, in steps of order 5 as long as the error allows. Returns the times between them.

    The pair of Dormand and Prince (1980). `scipy.integrate.RK45` chooses the steps, in a first run: the estimated error
    of each, divided by atol + rtol max(|x|, |y|), has a root mean square over all numbers of at most 1. A second run
    makes them, by `integrate`: under a tape it is what is recorded, so the gradient is that of these steps with their
    sizes constant, and a replay has the same ones. Rates and state as of `rk4`. Raises LaunchError [integrate] also
    where steps become too small, [capture].

    >>> x = wb.ones(1, dtype=wb.float64)
    >>> times = wb.rk45(lambda t, x: -x, 0.0, 1.0, x, rtol=1e-8, atol=1e-8)
    >>> bool(abs(x.numpy()[0] - np.exp(-1)) < 1e-8), times[-1]
    (True, 1.0)
    """
    from scipy.integrate import RK45  # when it is called: it takes a while to load

    capture_log.refuse("rk45()", "steps of one size, as of rk4, or jit=False")
    if not np.isfinite([t, end, rtol, atol]).all():
        text = f"rk45() from t = {t} to {end}, rtol {rtol}, atol {atol}: these are finite numbers."
        raise LaunchError(text, slug="integrate", where=memory.caller_where())

    def flow(t: float, y: np.ndarray) -> np.ndarray:
        now = parts.views(array(y, dtype=start.dtype, device=start.device))
        return np.concatenate([read_values(d).ravel() for d in _rates(rates, float(t), list(now.values()))])

    @through
    def step(k: int, *state: array) -> None:
        slopes: list[list[array]] = []
        ends = list(state)
        for when, weights in zip((*RK45.C, 1.0), (*RK45.A, RK45.B), strict=True):
            ends = list(state)
            for weight, ds in zip(weights, slopes, strict=False):
                h = float(weight * (times[k + 1] - times[k]))
                ends = [map(_moved, x, d, h) for x, d in zip(ends, ds, strict=True)] if h else ends
            if len(slopes) < len(RK45.C):
                at = float(times[k] + when * (times[k + 1] - times[k]))
                slopes.append([clone(d) for d in _rates(rates, at, ends)])
        for x, y in zip(state, ends, strict=True):
            copy(x, y)

    with memory.unrecorded():
        parts = Pack({f"state {k}": x for k, x in enumerate(state)})
        start, times, said = parts.vector, [float(t)], ""
        begin = read_values(start).astype(np.float64)
        if not np.isfinite([begin, flow(t, begin)]).all():  # SciPy would look for a smaller step for ever
            text = f"rk45() at t = {t:.6g}: the state or its rates are not finite."
            raise LaunchError(text, slug="integrate", where=memory.caller_where())
        solver = RK45(flow, t, begin, end, rtol=rtol, atol=atol)
        while solver.status == "running":
            said = solver.step()
            times.append(float(solver.t))
    if solver.status == "failed":
        text = f"rk45() at t = {times[-1]:.6g}: {said}"
        why = "The error stays too large: a jump, a pole, or a stiff problem."
        raise LaunchError(text, slug="integrate", where=memory.caller_where(), why=why, instead="implicit_midpoint")
    integrate(step, state, len(times) - 1)
    return times


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

"""Gradient descent, with momentum or with moments: each step one launch per array of parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..arrays.array import array
from ..arrays.creation import zeros
from ..arrays.dtypes import is_half, scalar_in
from ..errors import LaunchError
from ..kernels import kernel, ops
from ..kernels.reading.declare import tid
from ..kernels.types import float32, is_float
from ..launches.array_tools import flat
from ..launches.launch import launch

sqrt, pow = ops.BUILTINS["sqrt"], ops.BUILTINS["pow"]
reals, turns = array(dtype=Any), array(dtype=int)


@kernel
def adam(g: reals, m: reals, v: reals, t: turns, lr: Any, beta1: Any, beta2: Any, eps: Any, one: Any, x: reals):
    """One step of Adam (Kingma and Ba, 2015) for one number; `t` counts the steps before this one."""
    i = tid()
    d = type(one)(g[i])
    m[i] = beta1 * m[i] + (one - beta1) * d
    v[i] = beta2 * v[i] + (one - beta2) * d * d
    steps = type(one)(t[0] + 1)
    first = m[i] / (one - pow(beta1, steps))
    second = v[i] / (one - pow(beta2, steps))
    x[i] = type(x[i])(type(one)(x[i]) - lr * first / (sqrt(second) + eps))


@kernel
def sgd(
    g: reals, b: reals, t: turns, lr: Any, momentum: Any, dampening: Any, decay: Any, nesterov: bool, one: Any, x: reals
):
    """One step of gradient descent for one number."""
    i = tid()
    d = type(one)(g[i]) + decay * type(one)(x[i])
    kept = d
    if t[0] > 0:
        kept = momentum * b[i] + (one - dampening) * d
    b[i] = kept
    if nesterov:
        kept = d + momentum * kept
    x[i] = type(x[i])(type(one)(x[i]) - lr * kept)


@kernel
def count(t: turns):
    t[0] = t[0] + 1


class _Optimizer:
    """Base of both optimizers: parameters, their state (one number each), and the step count, which lies in memory."""

    _states = 0

    def __init__(self, params: Sequence[array] | None):
        self.params: list[array] | None = None
        self.state: list[list[array]] = []
        self._count: array | None = None
        self.set_params(params)

    def set_params(self, params: Sequence[array] | None) -> None:
        """Optimize these arrays, contiguous ones of floats or of vectors of floats. State that fits is kept."""
        if params is None:
            self.params = None
            return
        given, old = list(params), self.state
        for p in given:
            if not isinstance(p, array) or not is_float(p.dtype):
                what = p.dtype if isinstance(p, array) else type(p).__name__
                raise LaunchError(f"an optimizer takes arrays of floats, not {what}", slug="dtype", instead="[x, y]")
        for a, b in itertools.combinations(given, 2):
            if a.span.overlaps(b.span):
                text = f"{a.label} and {b.label} share numbers: each step would move those twice."
                raise LaunchError(text, slug="optimizer", instead="arrays, or parts of one, that do not overlap")
        self.params, self.state = given, []
        for k, p in enumerate(given):
            kind = float32 if is_half(p.dtype) else scalar_in(p.dtype)
            kept = old[k] if k < len(old) else []
            fits = kept and all(s.size == flat(p).size and s.dtype == kind and s.device == p.device for s in kept)
            self.state.append(kept if fits else [zeros(flat(p).size, kind, p.device) for _ in range(self._states)])
        if self._count is None and given:
            self._count = zeros(1, int, given[0].device)

    @property
    def t(self) -> int:
        """The number of steps made."""
        return 0 if self._count is None else int(self._count.item())

    def reset_internal_state(self) -> None:
        """Begin anew: no momentum, no steps made."""
        for state in (s for kept in self.state for s in kept):
            state.zero_()
        if self._count is not None:
            self._count.zero_()

    def step(self, grad: Sequence[array]) -> None:
        """Move every array of parameters by its gradient, an array of the same shape and dtype.

        Raises LaunchError [optimizer] without parameters, and for gradients that do not fit.
        """
        if self.params is None or self._count is None:
            raise LaunchError("step() without parameters.", slug="optimizer", instead="Adam([x, y]), or set_params")
        if len(grad) != len(self.params):
            text = f"{len(grad)} gradients for {len(self.params)} arrays of parameters"
            raise LaunchError(text, slug="optimizer", instead="step([x.grad, y.grad])")
        for p, g, state in zip(self.params, grad, self.state, strict=True):
            wide = is_half(p.dtype) and getattr(getattr(g, "dtype", None), "scalar", None) is float32
            if not isinstance(g, array) or g.shape != p.shape or not (wide or g.dtype == p.dtype):
                got = f"{g.dtype} of shape {g.shape}" if isinstance(g, array) else type(g).__name__
                text = f"a gradient for {p.label}, {p.dtype} of shape {p.shape}, is {got}"
                raise LaunchError(text, slug="optimizer", instead=f"step([{p.label}.grad])")
            self._move(flat(g.contiguous()), flat(p), state)
        launch(count, 1, [self._count])

    def _move(self, g: array, x: array, state: list[array]) -> None:
        raise NotImplementedError


class Adam(_Optimizer):
    """Adam, with Warp's arguments. Arrays of any float type and shape; moments of float16 are float32.

    The count of steps lies in memory, so `step` can be part of a capture.

    >>> x = wb.array([1.0, -2.0], requires_grad=True)
    >>> optimizer = wb.optim.Adam([x], lr=0.1)
    >>> optimizer.step([wb.array([1.0, -1.0])])
    >>> x.numpy().round(3)
    array([ 0.9, -1.9], dtype=float32)
    """

    _states = 2

    def __init__(
        self,
        params: Sequence[array] | None = None,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
    ):
        super().__init__(params)
        self.lr, self.eps = lr, eps
        self.beta1, self.beta2 = betas

    def _move(self, g: array, x: array, state: list[array]) -> None:
        m, v = state
        kind = m.dtype.numpy.type
        numbers = [kind(n) for n in (self.lr, self.beta1, self.beta2, self.eps, 1.0)]
        launch(adam, x.size, [g, m, v, self._count, *numbers], [x])


class SGD(_Optimizer):
    """Gradient descent with momentum, dampening, weight decay and Nesterov's form, with Warp's arguments.

    >>> x = wb.array([1.0, -2.0])
    >>> wb.optim.SGD([x], lr=0.5).step([wb.array([1.0, -1.0])])
    >>> x.numpy()
    array([ 0.5, -1.5], dtype=float32)
    """

    _states = 1

    def __init__(
        self,
        params: Sequence[array] | None = None,
        lr: float = 0.001,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        super().__init__(params)
        self.lr, self.momentum, self.dampening = lr, momentum, dampening
        self.weight_decay, self.nesterov = weight_decay, nesterov

    def _move(self, g: array, x: array, state: list[array]) -> None:
        (b,) = state
        kind = b.dtype.numpy.type
        first = [kind(n) for n in (self.lr, self.momentum, self.dampening, self.weight_decay)]
        launch(sgd, x.size, [g, b, self._count, *first, bool(self.nesterov), kind(1.0)], [x])

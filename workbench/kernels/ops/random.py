"""Random numbers from a counter: permuted congruential steps on a uint32 state, as NVIDIA Warp makes them.

A state is an ordinary value. `randf(state)` and the like give (result, next state); the reader rebinds the user's
name, so a replay repeats them exactly. Nothing here has a derivative by the state; bounds have one.
Source of the generator: M. E. O'Neill, PCG (2014), the 32-bit RXS-M-XS permutation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ir import kind
from ..row import Operand, refuse
from ..types import Scalar, Type, float32, int32, is_int, uint32
from .row import row, stop
from .scalar import ADD, CAST, COS, LOG, PYMOD, RSHIFT, SQRT, SUB


def _pcg_type(state: Type) -> Type:
    if state is not uint32:
        raise refuse(f"a random state is a uint32, not {state}", slug="operand-type", instead="rand_init(seed)")
    return uint32


def _pcg(state):
    b = state * np.uint32(747796405) + np.uint32(2891336453)
    c = ((b >> ((b >> np.uint32(28)) + np.uint32(4))) ^ b) * np.uint32(277803737)
    return (c >> np.uint32(22)) ^ c


PCG = row("pcg", type=_pcg_type, meaning=_pcg, vectorised=True, c="wb_pcg({0})")


def _draws(state, attr):
    made = np.empty(attr.dims, np.uint32)
    for k in range(attr.size):
        made.reshape(-1)[k] = state = _pcg(state)
    return made


DRAWS = row(
    "tile_draws",
    type=lambda state, attr: attr,
    typed_by_attr=True,
    meaning=_draws,
    cost=64,
    block=lambda types, type, out, state, attr: (
        f"WB_ONE {{ uint32_t wb_s = {state}; for (int32_t wb_k = 0;"
        f" wb_k < {type.size}; ++wb_k) {out}.c[wb_k] = wb_s = wb_pcg(wb_s); }}"
    ),
)


def _unsigned(seed: Operand) -> Any:
    if isinstance(seed, int) and not isinstance(seed, np.generic):
        return np.uint32(seed & 0xFFFFFFFF)
    if not isinstance(kind(seed), Scalar) or not is_int(kind(seed)):
        raise stop((seed,), f"a seed is an integer, not {kind(seed)}", slug="operand-type", instead="int(...)")
    return seed if kind(seed) is uint32 else CAST(seed, attr=uint32)


def rand_init(seed, offset=None):
    """rand_init(seed: int, offset: int = 0) -> uint32: a state; equal arguments start equal sequences."""
    if offset is None:
        return PCG(_unsigned(seed))
    return PCG(ADD(_unsigned(seed), PCG(_unsigned(offset))))


def randi(state, low=None, high=None):
    """randi(state) -> int32, any; randi(state, low: int32, high: int32) -> int32 in [low, high)."""
    state = PCG(state)
    return whole(state, low, high), state


def whole(state, low=None, high=None):
    """The int32 that a state stands for, any or in [low, high)."""
    if low is None:
        return CAST(state, attr=int32)
    span = CAST(SUB(high, low), attr=uint32)
    return ADD(low, CAST(PYMOD(state, span), attr=int32))


def randu(state, low=None, high=None):
    """randu(state) -> uint32, any; randu(state, low: uint32, high: uint32) -> uint32 in [low, high)."""
    state = PCG(state)
    if low is None:
        return state, state
    return ADD(low, PYMOD(state, SUB(high, low))), state


def randf(state, low=None, high=None):
    """randf(state) -> float32 in [0, 1); randf(state, low: float32, high: float32) -> float32 in [low, high)."""
    state = PCG(state)
    return unit(state, low, high), state


def unit(state, low=None, high=None):
    """The float32 that a state stands for, in [0, 1) or [low, high)."""
    part = CAST(RSHIFT(state, np.uint32(8)), attr=float32) * (1.0 / 16777216.0)
    return part if low is None else SUB(high, low) * part + low


def randn(state):
    """randn(state) -> float32, normally distributed with mean 0 and variance 1 (Box and Muller, 1958)."""
    a, state = randf(state)
    b, state = randf(state)
    return SQRT(-2.0 * LOG(a + 1e-15)) * COS(b * (2.0 * math.pi)), state

"""Norms that are quadratic near zero and linear far off; quotients that Warp also has in an approximate form."""

from __future__ import annotations

from typing import Any

from ..ir import kind
from ..row import Operand
from ..types import Quat, Vector
from .matrices import INVERSE
from .operators import divide
from .row import stop
from .scalar import LE, SQRT, WHERE
from .signatures import called_by_users
from .vectors import LENGTH, LENGTH_SQ, UNSCALE


def _needs_vector(name: str, v: Operand) -> None:
    if not isinstance(kind(v), (Vector, Quat)):
        raise stop((v,), f"`{name}` takes a vector, not {kind(v)}", slug="operand-type")


def norm_huber(v: Operand, delta: Operand = 1.0) -> Any:
    """norm_huber(v: vector, delta: scalar = 1) -> scalar: |v|² / 2 up to delta, then delta (|v| - delta / 2)."""
    _needs_vector("norm_huber", v)
    square = LENGTH_SQ(v)
    return WHERE(LE(square, delta * delta), 0.5 * square, (LENGTH(v) - 0.5 * delta) * delta)


def norm_pseudo_huber(v: Operand, delta: Operand = 1.0) -> Any:
    """norm_pseudo_huber(v: vector, delta: scalar = 1) -> scalar: delta sqrt(1 + |v|² / delta²), which is smooth."""
    _needs_vector("norm_pseudo_huber", v)
    return delta * SQRT(1.0 + LENGTH_SQ(v) / (delta * delta))


def smooth_normalize(v: Operand, delta: Operand = 1.0) -> Any:
    """smooth_normalize(v: vector, delta: scalar = 1) -> vector: v / norm_pseudo_huber(v, delta)."""
    return UNSCALE(v, norm_pseudo_huber(v, delta))


def div_approx(a: Operand, b: Operand) -> Any:
    """div_approx(a, b) -> a / b: the exact quotient, on every backend."""
    return divide(a, b)


def inverse_approx(m: Operand) -> Any:
    """inverse_approx(m: matrix) -> inverse(m): the exact one, on every backend."""
    return INVERSE(m)


NORMS = called_by_users(__name__)

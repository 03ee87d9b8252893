"""Products of small values on the host, as `*` means them in a kernel: of matrices, quaternions, transforms."""

from __future__ import annotations

from typing import Any

import numpy as np


def quaternions(a: np.ndarray, b: np.ndarray) -> Any:
    """Hamilton's product of (x, y, z, w) and (x, y, z, w)."""
    u, s, v, t = a[:3], a[3], b[:3], b[3]
    return np.concatenate([s * v + t * u + np.cross(u, v), [s * t - u @ v]]).astype(a.dtype)


def rotated(q: np.ndarray, v: np.ndarray) -> Any:
    """A vector turned by a unit quaternion (the quaternion's own length is not divided out)."""
    u, s = q[:3], q[3]
    return (2 * s * s - 1) * v + 2 * s * np.cross(u, v) + 2 * (u @ v) * u


def transforms(a: np.ndarray, b: np.ndarray) -> Any:
    """First b, then a: rigid transforms (position, quaternion)."""
    return np.concatenate([a[:3] + rotated(a[3:], b[:3]), quaternions(a[3:], b[3:])]).astype(a.dtype)


_PRODUCTS = {
    ("Matrix", "Matrix"): np.matmul,
    ("Matrix", "Vector"): np.matmul,
    ("Vector", "Matrix"): np.matmul,
    ("Quat", "Quat"): quaternions,
    ("Transform", "Transform"): transforms,
}


def product(a: Any, b: Any) -> Any:
    """The product of two host values that know their types; None where `*` goes component by component.

    Raises TypeError for values over two scalar types, ValueError for sizes that do not fit.
    """
    of = [x.type if x.type is not None and x.shape == x.type.shape else None for x in (a, b)]
    made = _PRODUCTS.get((type(of[0]).__name__, type(of[1]).__name__))
    if made is None or of[0] is None or of[1] is None:
        return None
    if of[0].scalar != of[1].scalar:
        raise TypeError(f"`*` takes operands over one scalar type, got {of[0]} and {of[1]}")
    return made(np.asarray(a), np.asarray(b))

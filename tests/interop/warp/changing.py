"""Kernels of Warp with constants, elements, cells and funcs that change between two watches."""

from __future__ import annotations

import functools
from typing import Any

import warp

FACTOR = 2
FACTORS = [1, 2]
KEPT: Any = None


def kernels() -> tuple[Any, ...]:
    """Three kernels that take a constant, an element and a func with a cell, and what sets that cell."""
    cell = 3

    @warp.func
    def scaled(x: float):
        return float(cell) * x

    @warp.kernel(module="unique")
    def by_constant(x: warp.array(dtype=float)):
        x[0] = x[0] * float(FACTOR)

    @warp.kernel(module="unique")
    def by_element(x: warp.array(dtype=float)):
        x[0] = x[0] * float(warp.static(FACTORS[1]))

    @warp.kernel(module="unique")
    def by_func(x: warp.array(dtype=float)):
        x[0] = scaled(x[0])

    def set_cell(value: int) -> None:
        nonlocal cell
        cell = value

    return by_constant, by_element, by_func, set_cell


@functools.cache
def times(factor: int):
    """A func that multiplies, made once for each factor."""

    @warp.func
    def scaled(x: float):
        return float(factor) * x

    return scaled


@warp.kernel
def by_factory(x: warp.array(dtype=float)):
    x[0] = warp.static(times(4))(x[0])

"""Kernels whose adjoints read what they read, and four numbers to run them on, in float64."""

from __future__ import annotations

import numpy as np

import workbench as wb

F = wb.float64
X = np.array([0.7, -1.3, 2.1, 0.4])
N = len(X)
ONE = np.ones(N)


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def cube(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * x[i]


@wb.kernel
def times(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
    i = wb.tid()
    z[i] = x[i] * y[i]


@wb.kernel
def both(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]
    z[i] = wb.sin(x[i])


def leaf(values=X):
    return wb.array(np.asarray(values, float), dtype=F, requires_grad=True)


def empty(n: int = N, **options):
    return wb.zeros(n, dtype=F, **options)


def seed(*values: float):
    return wb.array(np.array(values), dtype=F)

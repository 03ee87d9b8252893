"""Kernels and a leaf for tests of what replays do to gradients."""

from __future__ import annotations

import numpy as np

import workbench as wb

N = 3
X = np.array([0.5, -1.0, 2.0], np.float32)


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def total(x: wb.array[float], s: wb.array[float]):
    wb.atomic_add(s, 0, x[wb.tid()] * x[wb.tid()])


def leaf(values=X):
    return wb.array(values, requires_grad=True)

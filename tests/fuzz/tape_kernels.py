"""Four kernels of random programs of tapes: nonlinear, adding, in place, linear."""

from __future__ import annotations

import workbench as wb

F = wb.float64


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = F(0.5) * x[i] * x[i] + F(0.3)


@wb.kernel
def add(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] += x[i] * x[i] * F(0.25)


@wb.kernel
def scale(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] *= x[i]


@wb.kernel
def linear(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = F(2.0) * x[i] - F(1.0)

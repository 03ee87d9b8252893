"""Where rounding decides about branches, turns and addresses: found wherever it may be, and not everywhere."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.kernels.analysis.rounding import certain

F = wb.float64
A = wb.array(dtype=F)


@wb.kernel
def smooth(x: A, y: A):
    i = wb.tid()
    if i > 0:
        y[i] = wb.sin(x[i - 1])


@wb.kernel
def contact(x: wb.array(dtype=wb.vec3), y: A):
    i = wb.tid()
    d = F(wb.length(x[i]))
    s = F(0.0)
    for j in range(3):
        s += wb.exp(d) * F(x[j][0])
    if d < F(0.5):
        y[i] = s


@wb.kernel
def branch(x: A, y: A):
    i = wb.tid()
    if wb.sin(x[i]) > F(0.5):
        y[i] = x[i]


@wb.kernel
def turns(x: A, y: A):
    i = wb.tid()
    for j in range(int(wb.exp(x[i]))):
        y[i] = x[j]


@wb.kernel
def leaves(x: A, y: A):
    i = wb.tid()
    s = x[i]
    while s < F(10.0):
        s = s + wb.exp(s)
    y[i] = s


@wb.kernel
def carried(x: A, y: A):
    i = wb.tid()
    a = x[i]
    b = x[i]
    for _ in range(4):
        if b > F(1.0):
            y[i] = x[i]
        b = a
        a = wb.cos(a)


@wb.kernel
def broken(x: A, y: A):
    i = wb.tid()
    s = x[i]
    for j in range(9):
        s = wb.tanh(s)
        if s < F(0.1):
            break
        y[i] = s


@wb.kernel
def address(x: A, y: A):
    i = wb.tid()
    y[int(wb.pow(x[i], F(1.5)))] = x[i]


@wb.kernel
def through_memory(x: A, y: A):
    i = wb.tid()
    y[i] = wb.log(x[i])
    if y[i] > F(0.0):
        x[i] = F(0.0)


@wb.kernel
def beside_memory(x: A, y: A):
    i = wb.tid()
    y[i] = wb.log(x[i])
    if x[i] > F(0.0):
        y[i] = F(0.0)


@wb.kernel
def halves(x: wb.array(dtype=wb.float16), y: wb.array(dtype=wb.float16)):
    i = wb.tid()
    if x[i] * x[i] + x[i] > wb.float16(0.5):
        y[i] = x[i]


@wb.func
def bump(x: F):
    return wb.exp(x)


@wb.func_grad(bump)
def bump_grad(x: F, adj: F):
    wb.adjoint[x] += wb.exp(x) * adj


@wb.kernel
def called(x: A, y: A):
    i = wb.tid()
    if bump(x[i]) > F(1.0):
        y[i] = x[i]


@wb.kernel
def slot(x: A, n: wb.array(dtype=int), y: A):
    i = wb.tid()
    y[wb.atomic_add(n, 0, 1)] = wb.sin(x[i])


SURE = [smooth, contact, beside_memory, slot]
UNSURE = [branch, turns, leaves, carried, broken, address, through_memory, halves, called]


@pytest.mark.parametrize("kernel", SURE, ids=lambda k: k.key)
def test_sure(kernel):
    assert certain(kernel.program().function)


@pytest.mark.parametrize("kernel", UNSURE, ids=lambda k: k.key)
def test_unsure(kernel):
    assert not certain(kernel.program().function)


def test_memory_under_two_names_is_one_memory():
    assert not certain(beside_memory.program().function, frozenset({"x", "y"}))

"""Tests that leave out work on zeros are found, and others are not."""

from __future__ import annotations

import pytest

import workbench as wb

pytestmark = pytest.mark.needs_warp


@wb.kernel
def products(f: wb.array[wb.vec3], x: wb.array[wb.vec3], y: wb.array[float]):
    i = wb.tid()
    total = 0.0
    for k in range(3):
        force = f[k]
        if force == wb.vec3():
            continue
        total += wb.dot(wb.cross(x[i], force), x[i]) + 2.0 * force[0]
    y[i] = total


@wb.kernel
def two_tests(f: wb.array[float], g: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    a = f[i]
    b = g[i]
    if a == 0.0 and b == 0.0:
        return
    for k in range(2):
        if a != 0.0:
            wb.atomic_add(y, k, a * 3.0)
        wb.atomic_add(y, k, b - a)


@wb.kernel
def switched_off(on: wb.array[float], x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if on[i] == 0.0:
        return
    wb.atomic_add(y, 0, x[i])


@wb.kernel
def stored(f: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if f[i] != 0.0:
        y[i] = 2.0 * f[i]


@wb.kernel
def divided(f: wb.array[float], x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if f[i] != 0.0:
        wb.atomic_add(y, i, x[i] / f[i])


@wb.kernel
def of_integers(n: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    if n[i] != 0:
        wb.atomic_add(y, i, 2.0 * float(n[i]))


@wb.kernel
def counted(f: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    total, turns = 0.0, 0
    if f[i] != 0.0:
        total += f[i]
        turns += 1
    y[i] = total / float(turns + 1)


@pytest.mark.parametrize(("kernel", "lines"), [(products, 1), (two_tests, 2)])
def test_work_that_comes_to_nothing_is_found(kernel, lines):
    from workbench.warp.watch.launch_calls import skips, without_zero_skips

    function = kernel.program().function
    assert len(skips(function)) == lines
    assert not skips(without_zero_skips(function))


@pytest.mark.parametrize("kernel", [switched_off, stored, divided, of_integers, counted])
def test_other_work_is_left_as_it_is(kernel):
    from workbench.warp.watch.launch_calls import without_zero_skips

    function = kernel.program().function
    assert without_zero_skips(function) is function

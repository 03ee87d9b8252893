"""What a number becomes at the borders of its type, on every backend: exact fits, one beyond, infinities and NaN.

Truth: Python's whole numbers, by the rules that the docs give (conversions saturate, arithmetic wraps, shifts count
modulo the width).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
INTS = (wb.int8, wb.int16, wb.int32, wb.int64, wb.uint8, wb.uint16, wb.uint32, wb.uint64)


@pytest.fixture(autouse=True)
def _on(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)


def borders(t):
    signed = t.kind == "i"
    return -(2 ** (t.bits - signed)) if signed else 0, 2 ** (t.bits - signed) - 1


def wrapped(n, t):
    low, _ = borders(t)
    return (n - low) % 2**t.bits + low


@pytest.mark.parametrize("source", [wb.float32, wb.float64], ids=str)
@pytest.mark.parametrize("t", INTS, ids=str)
def test_a_float_becomes_the_nearest_whole_number_that_there_is(t, source):
    @wb.kernel
    def converted(x: wb.array[source], out: wb.array[t]):
        i = wb.tid()
        out[i] = t(x[i])

    number, (low, top) = source.numpy.type, borders(t)
    near = [number(n) for n in (low, low - 1, low + 1, top, top - 1, top + 1)]
    near += [np.nextafter(x, number(to)) for x in near for to in (-np.inf, np.inf)]
    x = np.array([-np.inf, np.inf, np.nan, -0.9, 0.9, 100.9, -100.9, *near], number)
    inside = [0 if math.isnan(v) else int(max(min(v, 1e30), -1e30)) for v in map(float, x)]
    out = wb.zeros(len(x), dtype=t)
    wb.launch(converted, len(x), [wb.array(x)], [out])
    assert [int(n) for n in out.numpy()] == [min(max(n, low), top) for n in inside]


@pytest.mark.parametrize("t", INTS, ids=str)
def test_arithmetic_of_whole_numbers_wraps_at_both_ends(t):
    @wb.kernel
    def worked(
        a: wb.array[t], b: wb.array[t], sums: wb.array[t], less: wb.array[t], times: wb.array[t], neg: wb.array[t]
    ):
        i = wb.tid()
        sums[i] = a[i] + b[i]
        less[i] = a[i] - b[i]
        times[i] = a[i] * b[i]
        neg[i] = -a[i]

    low, top = borders(t)
    pairs = [(a, b) for a in (low, low + 1, top - 1, top, 0, 1) for b in (low, top, 0, 1, 2)]
    a, b = (np.array(column, t.numpy) for column in zip(*pairs, strict=True))
    outs = [wb.zeros(len(pairs), dtype=t) for _ in range(4)]
    wb.launch(worked, len(pairs), [wb.array(a, dtype=t), wb.array(b, dtype=t)], outs)
    wanted = [(wrapped(p + q, t), wrapped(p - q, t), wrapped(p * q, t), wrapped(-p, t)) for p, q in pairs]
    assert [tuple(int(o.numpy()[k]) for o in outs) for k in range(len(pairs))] == wanted


@pytest.mark.parametrize("t", INTS, ids=str)
def test_shifts_count_modulo_the_width(t):
    @wb.kernel
    def shifted(a: wb.array[t], n: wb.array[wb.int32], left: wb.array[t], right: wb.array[t]):
        i = wb.tid()
        left[i] = a[i] << n[i]
        right[i] = a[i] >> n[i]

    low, top = borders(t)
    pairs = [(a, n) for a in (low, top, 1, 3) for n in (0, 1, t.bits - 1, t.bits, t.bits + 1)]
    a, n = (np.array(column, of) for column, of in zip(zip(*pairs, strict=True), (t.numpy, np.int32), strict=True))
    outs = [wb.zeros(len(pairs), dtype=t) for _ in range(2)]
    wb.launch(shifted, len(pairs), [wb.array(a, dtype=t), wb.array(n)], outs)
    wanted = [(wrapped(a << (n % t.bits), t), wrapped(a >> (n % t.bits), t)) for a, n in pairs]
    assert [tuple(int(o.numpy()[k]) for o in outs) for k in range(len(pairs))] == wanted


@pytest.mark.parametrize("t", [wb.float32, wb.float64], ids=str)
@pytest.mark.parametrize("b", [3.0, -3.0, 0.5, -0.5])
def test_the_rest_has_the_sign_of_the_divisor_also_where_it_is_0(t, b):
    @wb.kernel
    def rest(a: wb.array[t], b: wb.array[t], out: wb.array[t], whole: wb.array[t]):
        i = wb.tid()
        out[i] = a[i] % b[i]
        whole[i] = a[i] // b[i]

    a = [0.0, 6.0, -6.0, 7.25, -7.25, 0.25, -0.25]
    outs = [wb.zeros(len(a), dtype=t) for _ in range(2)]
    wb.launch(rest, len(a), [wb.array(a, dtype=t), wb.array([b] * len(a), dtype=t)], outs)
    assert outs[0].numpy().tolist() == [x % b for x in a]
    assert outs[1].numpy().tolist() == [x // b for x in a]
    assert np.signbit(outs[0].numpy()).tolist() == [math.copysign(1, x % b) < 0 for x in a]

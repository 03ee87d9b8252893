"""Sine and cosine of float32: the same bits from C in every lane and from NumPy in every form, near the exact value."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

import workbench as wb
from workbench.kernels.ops import sines


@wb.kernel
def both(x: wb.array[float], s: wb.array[float], c: wb.array[float]):
    i = wb.tid()
    s[i] = wb.sin(x[i])
    c[i] = wb.cos(x[i])


def spread(n: int) -> np.ndarray:
    """float32 numbers over the whole range, by their bits; those beside multiples of pi / 2 and changes of parts."""
    bits = np.random.default_rng(7).integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = np.float32(np.pi / 2 * np.arange(2000))
    ends = np.float32([2.0**start for start in sines.STARTS])
    hard = np.float32([16367173 * 2.0**72, -16367173 * 2.0**72, 3.4028235e38, 0.0, -0.0, 1e-45, -1e-45])
    found = [bits, near, np.nextafter(near, np.float32(9e9)), ends, np.nextafter(ends, np.float32(0)), hard]
    return np.concatenate(found)


def from_c(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wb.config.backend = "c"
    given, s, c = wb.array(x), wb.zeros(len(x)), wb.zeros(len(x))
    wb.launch(both, len(x), [given], [s, c])
    return s.numpy(), c.numpy()


@pytest.mark.needs_cc
def test_c_and_numpy_give_the_same_bits_less_than_0_51_last_places_from_the_exact_value():
    x = spread(200_000)
    x = x[np.isfinite(x)]
    for got, rule, exact in zip(from_c(x), (sines.sine, sines.cosine), (np.sin, np.cos), strict=True):
        np.testing.assert_array_equal(got.view(np.uint32), rule(x).view(np.uint32))
        wanted = exact(x.astype(np.float64))
        last = np.maximum(np.spacing(np.abs(wanted).astype(np.float32)), np.float32(1e-45)).astype(np.float64)
        assert (np.abs(got - wanted) / last).max() < 0.51


def test_one_number_and_many_have_the_same_bits():
    x = spread(300)
    for rule in (sines.sine, sines.cosine):
        with np.errstate(invalid="ignore"):
            many, single = rule(x), np.array([rule(v) for v in x])
        assert single.dtype == np.float32
        np.testing.assert_array_equal(single, many)
        np.testing.assert_array_equal(np.signbit(single[-4:]), np.signbit(many[-4:]))


@pytest.mark.needs_cc
def test_zeros_keep_their_sign_and_what_is_not_finite_is_not_a_number():
    s, c = from_c(np.float32([0.0, -0.0, 1e-45, -1e-45, np.inf, -np.inf, np.nan]))
    np.testing.assert_array_equal(s[:4].view(np.uint32), np.float32([0.0, -0.0, 1e-45, -1e-45]).view(np.uint32))
    assert (c[:4] == 1.0).all() and np.isnan(s[4:]).all() and np.isnan(c[4:]).all()


def test_the_parts_add_up_to_one_over_pi():
    mp.mp.prec = 300
    exact = 1 / mp.pi
    assert abs(mp.mpf(sines.ONE_OVER_PI) / mp.mpf(2) ** sines.PLACES - exact) < mp.mpf(2) ** (4 - sines.PLACES)
    for start, parts in zip((None, *sines.STARTS), sines.PARTS, strict=True):
        left_out = (exact - sum(map(mp.mpf, parts))) * (1 if start is None else mp.mpf(2) ** (start - 23)) / 2
        assert abs(left_out - mp.nint(left_out)) < mp.mpf(2) ** -100 * (mp.mpf(2) ** 10)


@pytest.mark.parametrize("rule", [sines.sine, sines.cosine])
def test_float16_is_worked_out_in_float32(rule):
    x = np.float16([0.1, -2.5, 1000.0, 65504.0])
    np.testing.assert_array_equal(rule(x), rule(x.astype(np.float32)).astype(np.float16))
    assert rule(x).dtype == np.float16


def test_of_float64_it_is_that_of_numpy():
    assert sines.sine(np.float64(0.3)) == np.sin(0.3) and sines.cosine(np.float64(0.3)) == np.cos(0.3)

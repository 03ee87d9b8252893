"""`smoothed` beside closed forms of Gaussian-smoothed steps and kinks: values, gradients, variance, bias."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

SIGMA = 0.5


@wb.kernel
def step(x: wb.array[float], out: wb.array[float]):
    if x[0] > 0.0:
        out[0] = 1.0 + 0.5 * x[0]
    else:
        out[0] = 0.5 * x[0]


@wb.kernel
def kink(x: wb.array[float], out: wb.array[float]):
    out[0] = wb.max(x[0], 0.0)


@wb.kernel
def bowl(x: wb.array[float], out: wb.array[float]):
    wb.atomic_add(out, 0, x[wb.tid()] * x[wb.tid()])


def loss_of(kernel, count=1):
    def loss(x):
        out = wb.zeros(1)
        wb.launch(kernel, count, [x, out])
        return out

    return loss


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


def density(z):
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def below(z):
    return (1 + math.erf(z / math.sqrt(2))) / 2


@pytest.mark.parametrize("x", [-0.4, 0.0, 0.7])
def test_a_step(x):
    """E f = 0.5 x + P(x / sigma), whose slope the first order misses by the density."""
    at = np.array([x], np.float32)
    right = 0.5 + density(x / SIGMA) / SIGMA
    zeroth = wb.smoothed(loss_of(step), SIGMA, 1500, "zeroth")
    value, slope = zeroth(at)
    assert abs(value - (0.5 * x + below(x / SIGMA))) < 4 * 0.8 / math.sqrt(1500)
    assert abs(slope[0] - right) < 4 * math.sqrt(zeroth.variance)
    first = wb.smoothed(loss_of(step), SIGMA, 1500, "first")
    assert abs(first(at)[1][0] - 0.5) < 1e-5 and first.variance < 1e-10
    mixed = wb.smoothed(loss_of(step), SIGMA, 1500, "mixed")
    assert abs(mixed(at)[1][0] - right) < 4 * math.sqrt(mixed.variance) and mixed.biased and mixed.share == 0


@pytest.mark.parametrize("x", [-0.4, 0.0, 0.7])
def test_a_kink(x):
    """E max(x + w, 0) = x P(x / sigma) + sigma p(x / sigma), whose slope both orders find."""
    at = np.array([x], np.float32)
    right = below(x / SIGMA)
    for order in ("first", "zeroth", "mixed"):
        found = wb.smoothed(loss_of(kink), SIGMA, 1000, order)
        value, slope = found(at)
        assert abs(value - (x * right + SIGMA * density(x / SIGMA))) < 4 * SIGMA / math.sqrt(1000)
        assert abs(slope[0] - right) < 4 * math.sqrt(found.variance), order
        assert not found.biased


def test_the_mixed_order_has_the_smaller_variance():
    at = np.array([1.0, -2.0, 0.5], np.float32)
    found = {order: wb.smoothed(loss_of(bowl, 3), 0.3, 400, order) for order in ("first", "zeroth", "mixed")}
    for one in found.values():
        _, slope = one(at)
        np.testing.assert_allclose(slope, 2 * at, atol=5 * math.sqrt(one.variance))
    # the variance of the mean of 2 w: 4 sigma^2 n / samples
    assert abs(found["first"].variance / (4 * 0.3**2 * 3 / 400) - 1) < 0.15
    assert found["mixed"].variance <= found["first"].variance < found["zeroth"].variance
    assert 0.5 < found["mixed"].share <= 1


@pytest.mark.parametrize("x", [-0.4, 0.2])
def test_bias_and_variance_are_those_predicted(x):
    """Of both estimates at a step, by quadrature over the noise; the bias of the first is the density there."""
    at, many = np.array([x], np.float32), 1500
    w = np.linspace(-8, 8, 200_001) * SIGMA
    weight = np.exp(-0.5 * (w / SIGMA) ** 2)
    weight /= weight.sum()
    f = 0.5 * (x + w) + (x + w > 0)
    samples = (f - (f * weight).sum()) * w / SIGMA**2
    predicted = ((samples**2 * weight).sum() - (samples * weight).sum() ** 2) / many
    found = wb.smoothed(loss_of(step), SIGMA, many, "mixed")
    _, slope = found(at)
    assert abs(found.zeroth[0] - (samples * weight).sum()) < 4 * math.sqrt(predicted)
    bias = density(x / SIGMA) / SIGMA
    assert found.biased and abs(found.zeroth[0] - found.first[0] - bias) < 4 * math.sqrt(predicted)
    assert abs(found.variance / predicted - 1) < 0.2 and slope[0] == np.float32(found.zeroth[0])
    kinked = wb.smoothed(loss_of(kink), SIGMA, many, "first")
    kinked(at)
    share = below(x / SIGMA)
    assert abs(kinked.variance / (share * (1 - share) / many) - 1) < 0.1


def test_the_noise_is_the_same_at_each_call():
    at = np.array([0.2], np.float32)
    one, other = (wb.smoothed(loss_of(step), SIGMA, 50, seed=3) for _ in range(2))
    assert one(at) == other(at) == one(at)
    assert wb.smoothed(loss_of(step), SIGMA, 50, seed=4)(at) != one(at)


def test_an_executor_gives_the_same():
    at = np.array([0.2], np.float32)
    here = wb.smoothed(loss_of(kink), SIGMA, 20)
    with ThreadPoolExecutor(2) as pool:
        there = wb.smoothed(loss_of(kink), SIGMA, 20, executor=pool)
        assert there(at) == here(at)


def test_it_refuses_what_makes_no_sense():
    for bad in ({"order": "second"}, {"sigma": 0.0}, {"samples": 1}):
        with pytest.raises(ValueError, match=r"order=|sigma="):
            wb.smoothed(loss_of(kink), **({"sigma": 0.1} | bad))


@pytest.mark.parametrize("order", ["first", "zeroth", "mixed"])
def test_all_samples_at_once_are_those_one_after_the_other(order, monkeypatch):
    """By `vmap`; of arrays of vectors and shared arguments too."""

    @wb.kernel
    def pulled(x: wb.array[wb.vec2], k: wb.array[float], out: wb.array[float]):
        i = wb.tid()
        wb.atomic_add(out, 0, k[0] * wb.dot(x[i], x[i]) + wb.sin(x[i][1]))

    def loss(x, k):
        out = wb.zeros(1)
        wb.launch(pulled, 3, [x, k, out])
        return out

    x, k = wb.array(np.linspace(-1, 1, 6).reshape(3, 2), dtype=wb.vec2), wb.array([0.7])
    at_once = wb.smoothed(loss, 0.2, 40, order, like=x)
    calls = []
    real = type(at_once.fn).__call__
    monkeypatch.setattr(type(at_once.fn), "__call__", lambda *given: calls.append(given) or real(*given))
    value, slope = at_once(x, k)
    assert not calls, "no sample was run alone"
    alone = wb.smoothed(loss, 0.2, 40, order, like=x, jit=False)
    want, wanted = alone(x, k)
    assert len(calls) == 40
    assert value == pytest.approx(want, rel=1e-6) and slope.shape == wanted.shape and slope.dtype == wanted.dtype
    np.testing.assert_allclose(slope, wanted, rtol=1e-5, atol=1e-5)


def test_samples_that_cannot_be_mapped_are_replayed_one_after_the_other():
    kept = wb.zeros(1)

    def loss(x):
        kept.zero_()
        wb.launch(bowl, 1, [x, kept])  # all samples would write there
        return kept

    at = np.array([1.0], np.float32)
    alone, mapped = wb.smoothed(loss, 0.3, 60), wb.smoothed(loss_of(bowl), 0.3, 60)
    for one, other in zip(alone(at), mapped(at), strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    assert alone.fn._run.replays > 50 and mapped.fn._run.replays == 0


def test_a_loss_that_does_not_use_its_argument_is_refused_all_at_once_too():
    def loss(x):
        out = wb.zeros(1)
        wb.launch(bowl, 1, [wb.ones(1), out])
        return out

    with pytest.raises(wb.GradientError, match=r"\[unused-argument\]"):
        wb.smoothed(loss, 0.3, 20)(np.array([1.0], np.float32))


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("part", [0, 1])
def test_under_a_tape_what_it_returns_depends_on_what_the_function_reads(jit, part):
    p = wb.array([0.512345, 1.134567], requires_grad=True)
    with wb.Tape() as tape:
        z = p * 1.0

        def loss(x):
            return wb.utils.array_inner(x, z, out=wb.zeros(1))

        found = wb.smoothed(loss, 0.1, 4, jit=jit)(np.array([0.5, 0.7], np.float32))[part]
        y = wb.array(np.atleast_1d(found), dtype=float) * 2.0
    with pytest.raises(wb.GradientError, match="host-values"):
        tape.backward(grads={y: wb.ones_like(y)})

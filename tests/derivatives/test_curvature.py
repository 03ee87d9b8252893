"""Hessians and covariances beside closed forms and differences."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS
from tests.support.squares import ONE, N, empty, leaf, square, times
from workbench.tapes.private_copies import InFloat64


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.kernel
def wells(x: wb.array[wb.vec2], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.sin(x[i][0]) * x[i][1] * x[i][1]


@wb.kernel
def couple(y: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, y[i] * y[(i + 1) % y.shape[0]])


def test_the_hessian_is_that_of_the_program():
    start = np.array([[0.3, 1.0], [1.2, -0.5], [-0.7, 0.8]], np.float32)
    x, y, out = wb.array(start, dtype=wb.vec2, requires_grad=True), wb.zeros(3), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        wb.launch(wells, 3, [x, y])
        wb.launch(couple, 3, [y, out])
    found = wb.hessian(tape, out, x)
    assert found.shape == (3, 2, 3, 2)

    def gradient(p):
        s, c, q = np.sin(p[:, 0]), np.cos(p[:, 0]), p[:, 1]
        z = s * q * q
        beside = np.roll(z, -1) + np.roll(z, 1)
        return np.stack((beside * c * q * q, beside * s * 2 * q), 1)

    for at in np.ndindex(3, 2):
        one = np.zeros((3, 2))
        one[at] = 1e-6
        p = start.astype(np.float64)
        np.testing.assert_allclose(found[at], (gradient(p + one) - gradient(p - one)) / 2e-6, atol=2e-5)
    np.testing.assert_allclose(found.reshape(6, 6), found.reshape(6, 6).T, atol=1e-6)
    v = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_allclose(np.tensordot(found, v, 2), wb.hvp(tape, out, {x: v})[x], rtol=1e-5, atol=1e-5)
    with pytest.raises(wb.GradientError, match="one element"):
        wb.hessian(tape, y, x)


@wb.kernel
def line(p: wb.array[float], t: wb.array[float], d: wb.array[float], r: wb.array[float]):
    i = wb.tid()
    r[i] = p[0] + p[1] * t[i] - d[i]


def test_the_covariance_is_that_of_a_line():
    rng = np.random.default_rng(1)
    t = np.linspace(0, 1, 50)
    design = np.stack((np.ones(50), t), 1)
    data = 0.5 + 2 * t + 0.1 * rng.standard_normal(50)
    best, *_ = np.linalg.lstsq(design, data, rcond=None)
    p, r = wb.array(best.astype(np.float32), requires_grad=True), wb.zeros(50)
    with wb.Tape() as tape:
        wb.launch(line, 50, [p, wb.array(t, dtype=float), wb.array(data, dtype=float), r])
    found = wb.covariance(tape, r, p)
    s2 = np.sum((design @ best - data) ** 2) / 48
    np.testing.assert_allclose(found.matrix, s2 * np.linalg.inv(design.T @ design), rtol=1e-4)
    assert found.rank == 2 and abs(found.deviation - np.sqrt(s2)) < 1e-6 and len(found.unseen) == 0


@wb.kernel
def linear(j: wb.array2d[wb.float64], p: wb.array[wb.float64], c: wb.array[wb.float64], r: wb.array[wb.float64]):
    i = wb.tid()
    s = c[i]
    for k in range(p.shape[0]):
        s += j[i, k] * p[k]
    r[i] = s


@pytest.mark.parametrize(("many", "params", "rank"), [(7, 3, 3), (7, 4, 2), (3, 5, 3), (4, 4, 4), (5, 3, 0), (2, 2, 1)])
def test_the_covariance_is_a_pseudo_inverse_and_what_is_unseen_changes_nothing(many, params, rank):
    rng = np.random.default_rng(10 * many + params)
    j = rng.standard_normal((many, rank)) @ rng.standard_normal((rank, params))
    p, r = leaf(rng.standard_normal(params)), empty(many)
    with wb.Tape() as tape:
        wb.launch(linear, many, [wb.array(j), p, wb.array(rng.standard_normal(many)), r])
    found = wb.covariance(tape, r, p)
    assert found.rank == rank and found.unseen.shape == (params - rank, params)
    np.testing.assert_allclose(found.unseen @ found.unseen.T, np.eye(params - rank), atol=1e-12)
    np.testing.assert_allclose(j @ found.unseen.T, 0, atol=1e-12)
    if many == rank:
        assert np.isnan(found.deviation) and np.isnan(found.matrix).all()
        return
    variance = np.sum(r.numpy() ** 2) / (many - rank)
    assert found.deviation == pytest.approx(np.sqrt(variance))
    np.testing.assert_allclose(found.matrix, variance * np.linalg.pinv(j.T @ j, rcond=1e-10), rtol=1e-9, atol=1e-9)


def test_adjoints_at_several_events_come_from_one_walk():
    x, y, out = wb.array([[0.3, 1.0]] * 3, dtype=wb.vec2, requires_grad=True), wb.zeros(3), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(4):
            wb.launch(wells, 3, [x, y])
            wb.launch(couple, 3, [y, out])
    tape.backward(out)
    walks = []
    retrace = tape.retrace
    tape.retrace = lambda *hooks: walks.append(1) or retrace(*hooks)
    found = tape.adjoints(x, tape.events[::-1])
    assert len(walks) == 1
    for event, g in zip(tape.events[::-1], found, strict=True):
        np.testing.assert_array_equal(g, tape.adjoint(x, event))
    with pytest.raises(wb.GradientError, match="no event of this tape"):
        tape.adjoints(x, [object()])
    assert tape.adjoints(x, []) == []


@wb.kernel
def stretch(x: wb.array[wb.vec2], ends: wb.array2d[int], energy: wb.array[float]):
    s = wb.tid()
    d = x[ends[s, 1]] - x[ends[s, 0]]
    wb.atomic_add(energy, s % energy.shape[0], (wb.length(d) - 0.3) * (wb.length(d) - 0.3))


@wb.kernel
def halved(energy: wb.array[float], out: wb.array[float]):
    wb.atomic_add(out, 0, 0.5 * energy[wb.tid()])


@pytest.fixture
def products(monkeypatch):
    """The products that a Hessian takes."""
    count, plain = [], InFloat64.product
    monkeypatch.setattr(InFloat64, "product", lambda *given: count.append(1) or plain(*given))
    return count


def test_a_sparse_hessian_is_the_dense_one_from_a_product_for_each_colour(products):
    many = 40
    points = np.stack((np.arange(many) * 0.4, np.sin(np.arange(many))), 1).astype(np.float32)
    ends = np.stack((np.arange(many - 1), np.arange(1, many)), 1).astype(np.int32)
    x, energy, out = wb.array(points, dtype=wb.vec2, requires_grad=True), wb.zeros(3), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        wb.launch(stretch, many - 1, [x, wb.array(ends), energy])
        wb.launch(halved, 3, [energy, out])  # linear: it joins nothing
    found = wb.hessian(tape, out, x, sparse=True)
    few = len(products)
    dense = wb.hessian(tape, out, x).reshape(2 * many, 2 * many)
    np.testing.assert_allclose(found.toarray(), dense, atol=1e-6)
    assert few <= 8 and len(products) - few == 2 * many
    assert found.nnz <= 4 * (3 * many - 2) and np.count_nonzero(dense) > 4 * many
    np.testing.assert_allclose(dense, dense.T, atol=1e-6)


@wb.kernel
def picked(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    j = int(wb.abs(wb.sin(x[i])) * 5.0)
    wb.atomic_add(out, 0, x[i] * x[i] * x[j])


def test_a_sparse_hessian_whose_indices_depend_on_values():
    x, out = wb.array([0.3, 1.2, -0.7, 0.9, 2.0, 0.1], requires_grad=True), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        wb.launch(picked, 6, [x, out])
    np.testing.assert_allclose(wb.hessian(tape, out, x, sparse=True).toarray(), wb.hessian(tape, out, x), atol=1e-6)


@pytest.mark.parametrize("asked", [lambda t, y, x: wb.hvp(t, y, {x: ONE}), wb.hessian], ids=["hvp", "hessian"])
def test_memory_that_others_wrote_between_two_launches_has_no_second_derivative(asked):
    x, y, z = leaf(), empty(), empty()
    with wb.Tape(keep="all") as tape:
        wb.launch(square, N, [x, y])
    y.assign(np.full(N, 5.0))
    with tape:
        wb.launch(times, N, [x, y, z])
    with pytest.raises(wb.GradientError, match="'y' was changed by 'assign' between two events") as refused:
        asked(tape, z[:1], x)
    assert refused.value.slug == "overwritten" and refused.value.where.text.strip() == "y.assign(np.full(N, 5.0))"


@pytest.mark.parametrize("at", [(0.4, 0.4), (-0.7, 0.7), (1.0, -1.0), (0.3, 0.8)])
def test_the_second_derivatives_of_an_angle_on_the_diagonals(at):
    """Of phi = atan2(y, x): phi_xx = 2 x y / r^4 = -phi_yy, phi_xy = (y^2 - x^2) / r^4."""

    @wb.kernel
    def angle(p: wb.array[wb.float64], out: wb.array[wb.float64]):
        out[0] = wb.atan2(p[1], p[0])

    p, out = wb.array(np.array(at), requires_grad=True), wb.zeros(1, dtype=wb.float64)
    with wb.Tape(keep="all") as tape:
        wb.launch(angle, 1, [p], [out])
    (x, y), r = at, np.hypot(*at)
    straight, mixed = 2 * x * y / r**4, (y * y - x * x) / r**4
    np.testing.assert_allclose(
        wb.hessian(tape, out, p), [[straight, mixed], [mixed, -straight]], rtol=1e-14, atol=1e-15
    )

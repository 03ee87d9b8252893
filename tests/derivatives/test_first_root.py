"""The first root of a func, in kernels: its derivatives, and balls that bounce and collide, beside closed forms."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

F = wb.float64
G = 9.81


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.func
def height(t: F, y: F, v: F):
    return y + t * (v - F(0.5 * G) * t)


@wb.kernel
def impact(y: wb.array(dtype=F), v: wb.array(dtype=F), end: F, t: wb.array(dtype=F), hits: wb.array(dtype=int)):
    i = wb.tid()
    when, hit = wb.first_root(height, F(0.0), end, (y[i], v[i]))
    t[i] = when
    hits[i] = int(hit)


def leaf(values):
    return wb.array(np.array(values, float), dtype=F, requires_grad=True)


Y, V = np.array([1.0, 2.0, 0.5, 1e-3, 3.0]), np.array([1.0, -2.0, 0.0, -4.0, 2.5])
ROOT = np.sqrt(V * V + 2 * G * Y)


def test_the_time_of_an_impact_and_its_derivatives_are_those_of_the_closed_form():
    y, v, t, hits = leaf(Y), leaf(V), wb.zeros(5, dtype=F), wb.zeros(5, dtype=int)
    with wb.Tape() as tape:
        wb.launch(impact, 5, [y, v, 2.0], [t, hits])
    np.testing.assert_allclose(t.numpy(), (V + ROOT) / G, rtol=1e-12)
    assert hits.list() == [1] * 5
    tape.backward(grads={t: wb.ones(5, dtype=F)})
    np.testing.assert_allclose(y.grad.numpy(), 1 / ROOT, rtol=1e-13)
    np.testing.assert_allclose(v.grad.numpy(), (1 + V / ROOT) / G, rtol=1e-13)
    np.testing.assert_allclose(
        wb.jvp(tape, {y: np.ones(5), v: np.ones(5)})[t], 1 / ROOT + (1 + V / ROOT) / G, rtol=1e-13
    )


def test_second_derivatives_are_exact_too():
    y, v, t, loss = leaf(Y), leaf(V), wb.zeros(5, dtype=F), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        wb.launch(impact, 5, [y, v, 2.0], [t, wb.zeros(5, dtype=int)])
        wb.utils.array_sum(t, out=loss)
    np.testing.assert_allclose(wb.hessian(tape, loss, y), np.diag(-G / ROOT**3), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(wb.hessian(tape, loss, v), np.diag(2 * Y / ROOT**3), rtol=1e-11, atol=1e-13)


def test_without_a_root_it_is_the_end_and_says_so():
    y, v, t, hits = leaf([5.0, -1.0, 0.0]), leaf([0.0, 1.0, -1.0]), wb.zeros(3, dtype=F), wb.zeros(3, dtype=int)
    with wb.Tape() as tape:
        wb.launch(impact, 3, [y, v, 0.5], [t, hits])
    assert t.list() == [0.5] * 3 and hits.list() == [0] * 3
    tape.backward(grads={t: wb.ones(3, dtype=F)})
    assert not y.grad.numpy().any() and not v.grad.numpy().any()


def test_what_starts_at_the_surface_and_rises_falls_back_later_and_not_at_once():
    for y in (0.0, -1e-17, 1e-17):
        t, hits = wb.zeros(1, dtype=F), wb.zeros(1, dtype=int)
        for end in (0.5, 2.0, 100.0):  # the flight lasts a tenth of a second: also less than a piece of the interval
            wb.launch(impact, 1, [leaf([y]), leaf([0.05 * G]), end], [t, hits])
            np.testing.assert_allclose(t.numpy(), [0.1], rtol=1e-13)
            assert hits.list() == [1]


@wb.func
def waves(t: wb.float32, w: wb.float32):
    return wb.cos(w * t)


@wb.kernel
def first_wave(w: wb.array(dtype=float), t: wb.array(dtype=float)):
    i = wb.tid()
    when, hit = wb.first_root(waves, 0.0, 2.0, (w[i],), pieces=40)
    t[i] = when


def test_the_first_of_many_roots_in_float32():
    values = np.array([1.0, 3.0, 17.0, 40.0], np.float32)
    w, t = wb.array(values, requires_grad=True), wb.zeros(4)
    with wb.Tape() as tape:
        wb.launch(first_wave, 4, [w], [t])
    np.testing.assert_allclose(t.numpy(), np.pi / 2 / values, rtol=2e-7)
    tape.backward(grads={t: wb.ones(4)})
    np.testing.assert_allclose(w.grad.numpy(), -np.pi / 2 / values**2, rtol=1e-6)


# ---- a ball that bounces


@wb.kernel
def fall(y: wb.array(dtype=F), v: wb.array(dtype=F), e: wb.array(dtype=F), dt: F):
    i = wb.tid()
    h, u, left = y[i], v[i], dt
    for _ in range(3):  # so many bounces in a step
        t, hit = wb.first_root(height, F(0.0), left, (h, u))
        if hit:
            u = -e[0] * (u - F(G) * t)
            h = F(0.0)
            left -= t
    y[i] = height(left, h, u)
    v[i] = u - F(G) * left


def bouncing(steps, dt, h0, v0, e):
    start, speed, keeps = leaf(h0), leaf(v0), leaf([e])
    with wb.Tape() as tape:
        y, v = wb.clone(start), wb.clone(speed)
        wb.integrate(lambda k, y, v: wb.launch(fall, y.size, [y, v, keeps, dt]), [y, v], steps, progress=False)
    return y, v, tape, (start, speed, keeps)


def flight(time, h, v, e):
    """Height at a time, and the number of bounces before it: for complex numbers too."""
    w = np.sqrt(v * v + 2 * G * h)
    rest, bounces = time - (v + w) / G, 0
    if rest.real < 0:
        return h + time * (v - 0.5 * G * time), 0
    while True:
        w, bounces = e * w, bounces + 1
        if rest.real < (2 * w / G).real:
            return rest * (w - 0.5 * G * rest), bounces
        rest = rest - 2 * w / G


@pytest.mark.parametrize("dt", [0.02, 0.4])
@pytest.mark.parametrize("time", [0.4, 1.2, 3.2])
def test_a_ball_that_bounces_ends_with_the_gradient_of_the_closed_form(time, dt):
    h0, v0, e = np.array([1.0, 1.3]), np.array([0.5, -1.0]), 0.85
    y, _, tape, leaves = bouncing(round(time / dt), dt, h0, v0, e)
    tape.backward(grads={y: wb.ones(2, dtype=F)})
    found = [x.grad.numpy() for x in leaves]
    small, by_e = 1e-30, 0.0
    for k in range(2):
        end, bounces = flight(time + 0j, h0[k], v0[k], e)
        assert bounces == {0.4: (0, 0), 1.2: (1, 1), 3.2: (5, 4)}[time][k]
        np.testing.assert_allclose(y.numpy()[k], end.real, rtol=1e-11, atol=1e-12)
        by_h = flight(time + 0j, h0[k] + 1j * small, v0[k], e)[0].imag / small
        by_v = flight(time + 0j, h0[k], v0[k] + 1j * small, e)[0].imag / small
        np.testing.assert_allclose([found[0][k], found[1][k]], [by_h, by_v], rtol=1e-10, atol=1e-11)
        by_e += flight(time + 0j, h0[k], v0[k], e + 1j * small)[0].imag / small
    np.testing.assert_allclose(found[2][0], by_e, rtol=1e-10, atol=1e-11)


# ---- billiards

BALLS, RADIUS = 3, 0.05


@wb.func
def gap(t: F, d: wb.vec2d, u: wb.vec2d):
    return wb.length(d + t * u) - F(2.0 * RADIUS)


@wb.kernel
def roll(x: wb.array2d(dtype=wb.vec2d), v: wb.array2d(dtype=wb.vec2d), dt: F):
    table = wb.tid()
    left = dt
    for _ in range(3):  # so many collisions in a step
        soon, a, b = left, 0, 0
        for i in range(BALLS):
            for j in range(i):
                t, hit = wb.first_root(gap, F(0.0), left, (x[table, i] - x[table, j], v[table, i] - v[table, j]))
                if hit and t < soon:
                    soon = t
                    a = i
                    b = j
        for i in range(BALLS):
            x[table, i] = x[table, i] + soon * v[table, i]
        left -= soon
        if a != b:
            n = wb.normalize(x[table, a] - x[table, b])
            kick = wb.dot(v[table, a] - v[table, b], n) * n
            v[table, a] = v[table, a] - kick
            v[table, b] = v[table, b] + kick


RACK = np.array([[0.1, 0.5], [0.4, 0.52], [0.62, 0.60]])
SHOT, STEPS, DT = np.array([0.6, 0.03]), 15, 0.1


def play(places, speed):
    start, cue = wb.array([places], dtype=wb.vec2d, requires_grad=True), np.zeros((1, BALLS, 2))
    cue[0, 0] = speed
    shot = wb.array(cue, dtype=wb.vec2d, requires_grad=True)
    with wb.Tape() as tape:
        x, v = wb.clone(start), wb.clone(shot)
        wb.integrate(lambda k, x, v: wb.launch(roll, 1, [x, v, DT]), [x, v], STEPS, progress=False)
    return x, v, tape, start, shot


def test_billiards_over_several_collisions_have_the_gradient_of_the_game():
    x, v, tape, start, shot = play(RACK, SHOT)
    ends, moves = x.numpy()[0], v.numpy()[0]
    assert (np.linalg.norm(moves, axis=1) > 1e-3).all()  # every ball was hit
    np.testing.assert_allclose(moves.sum(0), SHOT, rtol=1e-12)
    np.testing.assert_allclose((moves**2).sum(), (SHOT**2).sum(), rtol=1e-12)
    along = SHOT / np.linalg.norm(SHOT)
    for ball in range(BALLS):
        for axis in range(2):
            seed = np.zeros((1, BALLS, 2))
            seed[0, ball, axis] = 1.0
            start.grad.zero_(), shot.grad.zero_()
            tape.backward(grads={x: seed})
            by_x, by_v = start.grad.numpy()[0], shot.grad.numpy()[0, 0]
            # a cue ball that starts farther along its path plays the same game earlier
            earlier = moves[ball, axis] / np.linalg.norm(SHOT)
            np.testing.assert_allclose(by_x[0] @ along, earlier, rtol=1e-10, atol=1e-11)
            # one that is faster by a factor plays it faster by that factor
            np.testing.assert_allclose(by_v @ SHOT, moves[ball, axis] * STEPS * DT, rtol=1e-10, atol=1e-11)
            # and the same game elsewhere on the table
            np.testing.assert_allclose(by_x.sum(0), np.eye(2)[axis], rtol=1e-10, atol=1e-10)


def test_billiards_beside_differences():
    x, _, tape, start, shot = play(RACK, SHOT)
    seed = np.linspace(-1, 1, 2 * BALLS).reshape(1, BALLS, 2)
    tape.backward(grads={x: seed})
    h = 1e-7
    for ball, axis in ((0, 1), (1, 0)):
        moved = []
        for s in (h, -h):
            places = RACK.copy()
            places[ball, axis] += s
            moved.append((play(places, SHOT)[0].numpy() * seed).sum())
        np.testing.assert_allclose(start.grad.numpy()[0, ball, axis], (moved[0] - moved[1]) / (2 * h), rtol=2e-6)
    moved = [(play(RACK, SHOT + [0, s])[0].numpy() * seed).sum() for s in (h, -h)]
    np.testing.assert_allclose(shot.grad.numpy()[0, 0, 1], (moved[0] - moved[1]) / (2 * h), rtol=2e-6)


def test_outside_of_kernels_it_is_refused():
    with pytest.raises(TypeError, match="inside a kernel"):
        wb.first_root(height, 0.0, 1.0, (1.0, 0.0))


@wb.func
def above(t: F, x: F, y: F, v: wb.vec2d, ground: wb.array(dtype=F)):
    s = x + t * v[0]
    i = int(wb.floor(s))
    f = s - F(i)
    return y + t * v[1] - F(0.5 * G) * t * t - ((F(1.0) - f) * ground[i] + f * ground[i + 1])


@wb.kernel
def land(ground: wb.array(dtype=F), v: wb.array(dtype=wb.vec2d), start: F, end: F, t: wb.array(dtype=F)):
    i = wb.tid()
    when, hit = wb.first_root(above, start, end, (F(0.5), F(2.0), v[i], ground), pieces=32)
    t[i] = when


def test_a_func_may_read_arrays_and_gradcheck_compares_it():
    ground, v = leaf([0.0, 0.1, 0.3, 0.2, 0.0]), wb.array([(1.0, 0.5), (2.0, 1.0)], dtype=wb.vec2d, requires_grad=True)
    start, end = (wb.scalar(x, dtype=F, requires_grad=True) for x in (0.0, 1.5))
    for limits in ((0.0, 1.5), (start, end)):
        t = wb.zeros(2, dtype=F)
        with wb.Tape(keep="all") as tape:
            wb.launch(land, 2, [ground, v, *limits, t])
        if limits[0] == 0.0:
            assert wb.gradcheck(tape)
    tape.backward(grads={t: wb.ones(2, dtype=F)})
    assert ground.grad.numpy()[1:3].all()
    for limit in (start, end):  # of which the root does not depend
        assert abs(limit.grad.numpy()[0]) < 1e-12

"""`descend` and `pack`: the loop that is recorded and replayed, and several arrays as one vector."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import workbench as wb
from tests.support.backends import BACKENDS


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.kernel
def misfit(x: wb.array[float], target: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    d = x[i] - target[i]
    wb.atomic_add(out, 0, d * d)


@wb.kernel
def roots(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, wb.sqrt(x[i]))


TARGET = np.array([0.5, -1.0, 2.0], np.float32)


def loss_to(target):
    def loss(x):
        out = wb.zeros(1)
        wb.launch(misfit, 3, [x, target, out])
        return out

    return loss


def by_hand(rounds, lr):
    """The same steps of Adam, launch by launch."""
    x, target = wb.zeros(3, requires_grad=True), wb.array(TARGET)
    optimizer, losses = wb.optim.Adam([x], lr=lr), []
    for _ in range(rounds):
        x.grad.zero_()
        with wb.Tape() as tape:
            out = loss_to(target)(x)
        tape.backward(out)
        losses.append(float(out.numpy()[0]))
        optimizer.step([x.grad])
    return x.list(), losses


def test_it_does_what_the_loop_by_hand_does():
    x = wb.zeros(3, requires_grad=True)
    found = wb.descend(loss_to(wb.array(TARGET)), x, rounds=40, lr=0.1)
    assert (x.list(), found.losses) == by_hand(40, 0.1)
    assert found._round.replays == 38
    found.go(20)
    assert (x.list(), found.losses) == by_hand(60, 0.1)
    assert found.best == min(found.losses) and found.losses[found.best_round] == found.best


def test_the_best_is_kept():
    x = wb.array([3.0, 3.0, 3.0], requires_grad=True)
    found = wb.descend(loss_to(wb.array(TARGET)), x, wb.optim.SGD([x], lr=0.98), rounds=9)
    assert found.best_round == int(np.argmin(found.losses))
    found.use_best()
    assert abs(float(np.sum((x.numpy() - TARGET) ** 2)) - found.best) < 1e-5


def test_another_learning_rate_is_used_from_then_on():
    x = wb.zeros(3, requires_grad=True)
    optimizer = wb.optim.SGD([x], lr=0.1)
    found = wb.descend(loss_to(wb.array(TARGET)), x, optimizer, rounds=5)
    optimizer.lr = 0.0
    before = x.list()
    found.go(5)
    assert x.list() == before
    optimizer.lr = 0.5
    found.go(3)
    np.testing.assert_allclose(x.list(), TARGET, atol=1e-6)


def test_a_loss_that_is_not_finite_ends_it():
    x = wb.array([0.05, 1.0], requires_grad=True)

    def loss(x):
        out = wb.zeros(1)
        wb.launch(roots, 2, [x, out])
        return out

    found = wb.descend(loss, x, rounds=50, lr=0.02)
    assert "the loss is nan in round" in found.stopped and found.stopped in repr(found)
    assert len(found.losses) < 50 and np.isfinite(found.best)


def test_ctrl_c_keeps_what_was_reached():
    x = wb.zeros(3, requires_grad=True)
    loss, calls = loss_to(wb.array(TARGET)), []

    def stopping(x):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return loss(x)

    found = wb.descend(stopping, x, rounds=9, lr=0.1, progress=False)
    assert found.stopped == "interrupted in round 1" and len(found.losses) == 1


def test_gradients_are_looked_at():
    x = wb.zeros(3, requires_grad=True)
    found = wb.descend(loss_to(wb.array(TARGET)), x, rounds=6, lr=0.1, trust=3)
    assert list(found.trusts) == [0, 3] and all(t.kind == "smooth" for t in found.trusts.values())


@wb.kernel
def ledge(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    rise = 0.0
    if x[i] < 1.0:
        rise = 5.0
    wb.atomic_add(out, 0, x[i] + rise)


@wb.kernel
def doubling(x: wb.array[float], out: wb.array[float]):
    z = x[0]
    for _ in range(60):
        z = 4.0 * z * (1.0 - z)
    out[0] = z


@wb.kernel
def saturating(x: wb.array[float], out: wb.array[float]):
    out[0] = wb.tanh(3.0 * wb.tanh(9.0 * x[0]))


def one(kernel):
    def loss(x):
        out = wb.zeros(1)
        wb.launch(kernel, 1, [x, out])
        return out

    return loss


def test_steps_end_before_a_jump():
    """Steps of 0.7 go from 3 to 2.3 to 1.6, and the next would go over the ledge at 1."""
    x = wb.array([3.0], requires_grad=True)
    found = wb.descend(one(ledge), x, wb.optim.SGD([x], lr=0.7), rounds=200, trust=1)
    np.testing.assert_allclose(found.losses[:3], [3.0, 2.3, 1.6], rtol=1e-6)
    assert found.shortened[0] == 2 and min(found.losses) >= 1 and max(found.losses) < 3.01
    np.testing.assert_allclose(found.losses[3], 1.6 - found.trusts[2].radius, rtol=1e-6)
    assert 0.3 < found.trusts[2].radius < 0.6 and found.losses[-1] < 1.0001
    assert "the loss jumps by 5" in found.stopped and found.trusts[2].line.text.strip() == "if x[i] < 1.0:"
    x = wb.array([3.0], requires_grad=True)
    wild = wb.descend(one(ledge), x, wb.optim.SGD([x], lr=0.7), rounds=4)
    assert wild.losses[3] > 5 and not wild.shortened and not wild.stopped
    x = wb.array([3.0], requires_grad=True)
    seldom = wb.descend(one(ledge), x, wb.optim.SGD([x], lr=0.7), rounds=6, trust=3)
    assert seldom.losses[3] > 5 and list(seldom.trusts) == [0, 3]  # the first look allows steps of 1.9


@pytest.mark.parametrize(
    "kernel, start, kind", [(doubling, 0.3, "chaos"), (saturating, 5.0, "flat")], ids=["chaos", "flat"]
)
def test_a_useless_gradient_ends_the_descent_and_the_best_is_kept(kernel, start, kind):
    x = wb.array([start], requires_grad=True)
    found = wb.descend(one(kernel), x, rounds=10, lr=0.1, trust=2)
    assert found.trusts[0].kind == kind and len(found.losses) == 1
    assert found.stopped == f"the gradient of round 0 is {found.trusts[0].sentence}"
    assert found.best_round == 0 and x.list() == [np.float32(start)] and found.use_best()[0].list() == x.list()
    assert len(found.go(1).losses) == 2 and not found.stopped


def test_it_draws_and_refuses():
    x = wb.zeros(3, requires_grad=True)
    found = wb.descend(loss_to(wb.array(TARGET)), x, rounds=5)
    np.testing.assert_allclose(found.plot().lines[0].get_ydata(), found.losses)
    assert found._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(wb.GradientError, match="requires_grad"):
        wb.descend(loss_to(wb.array(TARGET)), wb.zeros(3))
    with pytest.raises(wb.GradientError, match="a loss is an array of one element"):
        wb.descend(lambda x: wb.clone(x), x, rounds=1)


# ---- packs


@wb.kernel
def pulled(x: wb.array[wb.vec2], k: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, k[i] * wb.dot(x[i], x[i]) + (k[i] - 2.0) * (k[i] - 2.0) + x[i][0])


def packed():
    x = wb.array([[0.5, 1.0], [-1.0, 2.0], [3.0, 0.25]], dtype=wb.vec2)
    k = wb.array(np.arange(8, dtype=np.float32) / 4)
    return x, k, wb.pack({"x": x, "k": k[2:8:2]})


def test_a_vector_has_the_parts_and_their_names():
    x, k, p = packed()
    v = p.vector
    np.testing.assert_array_equal(v.numpy(), [*x.numpy().ravel(), *k.numpy()[2:8:2]])
    assert p.size == 9 and p.named(3) == "x[1, 1]" and p.named(7) == "k[1]" and v.requires_grad
    views = p.views(v)
    assert views["x"].dtype == wb.vec2 and views["k"].shape == (3,)
    np.testing.assert_array_equal(views["x"].numpy(), x.numpy())
    p.assign(wb.array(np.arange(9), dtype=float))
    assert k.list() == [0.0, 0.25, 6.0, 0.75, 7.0, 1.25, 8.0, 1.75] and x.numpy()[2, 1] == 5.0


def closed(v):
    x, k = v[:6].reshape(3, 2), v[6:]
    value = np.sum(k * np.sum(x * x, 1) + (k - 2) ** 2 + x[:, 0])
    gx = 2 * k[:, None] * x + np.array([1.0, 0.0])
    gk = np.sum(x * x, 1) + 2 * (k - 2)
    return value, np.concatenate((gx.ravel(), gk))


@pytest.mark.parametrize("way", ["views", "assign"])
def test_the_gradient_by_the_vector(way):
    x, k, p = packed()

    def loss(v):
        out = wb.zeros(1)
        if way == "views":
            parts = p.views(v)
            wb.launch(pulled, 3, [parts["x"], parts["k"], out])
        else:
            p.assign(v)
            wb.launch(pulled, 3, [x, k[2:8:2], out])
        return out

    f = wb.value_and_grad(loss, jit=True)
    for scale in (1.0, 0.5, -0.25, 2.0):
        at = (scale * p.vector.numpy()).astype(np.float32) if way == "views" else np.arange(9, dtype=np.float32) * scale
        value, gradient = f(at)
        wanted, slope = closed(at.astype(np.float64))
        np.testing.assert_allclose(value, wanted, rtol=1e-5)
        np.testing.assert_allclose(gradient, slope, rtol=1e-5, atol=1e-5)


def test_scipy_minimises_by_a_pack():
    _, _, p = packed()

    def loss(v):
        parts, out = p.views(v), wb.zeros(1)
        wb.launch(pulled, 3, [parts["x"], parts["k"], out])
        return out

    f = wb.value_and_grad(loss, like=p.vector)
    found = minimize(f, p.vector.numpy().astype(np.float64), jac=True, method="BFGS", options={"gtol": 1e-4})
    assert np.linalg.norm(closed(found.x)[1]) < 2e-3


def test_packs_refuse_what_is_no_vector():
    x, _, p = packed()
    with pytest.raises(wb.LaunchError, match="one type of numbers"):
        wb.pack({"x": x, "n": wb.zeros(2, dtype=int)})
    with pytest.raises(wb.LaunchError, match=r"shape \(9,\)"):
        p.assign(wb.zeros(8))
    with pytest.raises(wb.LaunchError, match="pack of nothing"):
        wb.pack({})
    for other, name in ((3.0, "float"), (np.ones(2), "ndarray")):
        with pytest.raises(wb.LaunchError, match=f"pack of x: float32, y: {name}"):
            wb.pack({"x": wb.ones(2), "y": other})


def test_parameters_that_share_numbers_are_refused_and_parts_of_one_array_are_not():
    @wb.kernel
    def squares(a: wb.array[float], b: wb.array[float], loss: wb.array[float]):
        i = wb.tid()
        wb.atomic_add(loss, 0, a[i] * a[i] + b[i] * b[i])

    def loss_of(a, b):
        loss = wb.zeros(1)
        wb.launch(squares, 2, [a, b], [loss])
        return loss

    whole = wb.array([3.0, 2.0, 1.0, -1.0], requires_grad=True)
    for given in ([whole, whole], [whole[:3], whole[1:]], [whole[::2], whole[2:]]):
        with pytest.raises(wb.LaunchError, match=r"(?s)share numbers.*\[optimizer\]"):
            wb.descend(loss_of, given, rounds=1, progress=False)
    wb.descend(loss_of, [whole[:2], whole[2:]], rounds=300, lr=0.05, progress=False)
    np.testing.assert_allclose(whole.numpy(), 0, atol=1e-2)
    with pytest.raises(wb.LaunchError, match=r"\[optimizer\]"):
        wb.optim.SGD([whole[::2], whole])

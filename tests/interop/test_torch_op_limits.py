"""Ops of torch where torch and the tape could disagree: the gradient is that of torch alone, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

F = wb.float64
op = wb.interop.torch.op


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.kernel
def square(y: wb.array[F, 2], loss: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(loss, 0, y[i, 0] * y[i, 0] + wb.sin(y[i, 1]))


START = np.array([[1.0, 2.0], [-0.5, 0.3], [0.1, -0.7]])


def linear():
    torch.manual_seed(1)
    return torch.nn.Linear(2, 2).double()


def given(values=START, dtype=F):
    return wb.array(values, dtype=dtype, requires_grad=True)


def twice(f, x, y=None):
    """The tape of f(f(x)), and its result."""
    with wb.Tape() as tape:
        z = f(f(x))
    return tape, z


def agree(net, x, z, weights, times=2):
    """The gradients are those of torch alone, of parameters too; returns the parameters' own and clears them."""
    ours = [p.grad for p in net.parameters()]
    net.zero_grad()
    start = torch.tensor(x.numpy(), requires_grad=True)
    end = start
    for _ in range(times):
        end = net(end)
    np.testing.assert_allclose(z.numpy(), end.detach().numpy(), rtol=1e-13)
    end.backward(torch.tensor(weights))
    np.testing.assert_allclose(x.grad.numpy(), start.grad.numpy(), rtol=1e-12)
    for p, g in zip(net.parameters(), ours, strict=True):
        assert (g is None) == (p.grad is None)
        if g is not None:
            torch.testing.assert_close(g, p.grad, rtol=1e-12, atol=1e-14)


WEIGHTS = np.random.default_rng(0).normal(size=START.shape)


def batch_norm():
    net = torch.nn.BatchNorm1d(2).double()  # in training: its buffers change, its results do not depend on them
    agree_with = torch.nn.BatchNorm1d(2).double()
    return net, agree_with


def test_a_batch_norm_in_training_called_twice():
    net, other = batch_norm()
    x = given()
    tape, z = twice(op(net), x)
    tape.backward(grads={z: WEIGHTS})
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        q.grad = p.grad
    agree(other, x, z, WEIGHTS)
    torch.testing.assert_close(net.running_mean, other.running_mean)


def test_a_buffer_changed_after_the_run_is_refused():
    net, x = torch.nn.BatchNorm1d(2).double().eval(), given()
    tape, z = twice(op(net), x)
    net.running_var.mul_(4.0)
    with pytest.raises(wb.GradientError, match="modified by an inplace operation"):
        tape.backward(grads={z: WEIGHTS})


def tied():
    a, b = linear(), linear()
    b.weight = a.weight
    return torch.nn.Sequential(a, torch.nn.Tanh(), b)


def of_columns():
    class Columns(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.arange(4.0, dtype=torch.float64).reshape(2, 2).t())

        def forward(self, x):
            return torch.tanh(x @ self.w)

    return Columns()


def partly():
    class Partly(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = linear()

        def forward(self, x):
            with torch.no_grad():
                scale = self.layer(x)
            return scale * x

    return Partly()


def normed():
    return torch.nn.utils.parametrizations.weight_norm(linear())


def clamped():
    net = linear()
    net.weight.register_hook(lambda g: g.clamp(-0.5, 0.5))  # of the gradient of the whole walk, not of each event
    return net


def frozen():
    net = linear()
    net.weight.requires_grad_(False)
    return net


MODULES = [tied, of_columns, partly, normed, clamped, frozen]


@pytest.mark.parametrize("make", MODULES, ids=lambda f: f.__name__)
def test_the_gradient_is_that_of_torch_alone(make):
    net, x = make(), given()
    tape, z = twice(op(net), x)
    tape.backward(grads={z: WEIGHTS})
    agree(net, x, z, WEIGHTS)


def test_hooks_are_called_once_for_a_walk():
    net, x, seen = linear(), given(), []
    net.weight.register_hook(lambda g: seen.append("tensor") or 2 * g)
    net.weight.register_post_accumulate_grad_hook(lambda p: seen.append("after"))
    tape, z = twice(op(net), x)
    tape.backward(grads={z: WEIGHTS})
    assert seen == ["tensor", "after"]
    agree(net, x, z, WEIGHTS)


def test_a_hook_that_came_after_the_call_is_refused():
    net, x = linear(), given()
    tape, z = twice(op(net), x)
    net.weight.register_hook(lambda g: 2 * g)
    with pytest.raises(wb.GradientError, match="got a hook after it"):
        tape.backward(grads={z: WEIGHTS})


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode], ids=lambda f: f.__name__)
def test_around_the_tape_torch_may_follow_nothing(around):
    net, x = linear(), given()
    with around():
        tape, z = twice(op(net), x)
        alone = op(net)(wb.array(START, dtype=F))
        tape.backward(grads={z: WEIGHTS})
    np.testing.assert_allclose(alone.numpy(), net(torch.tensor(START)).detach().numpy(), rtol=1e-13)
    agree(net, x, z, WEIGHTS)


@pytest.mark.parametrize(
    "view", [lambda b: b.T, lambda b: b[:, ::2], lambda b: b[1:2]], ids=["turned", "strided", "row"]
)
def test_views_of_an_array(view):
    b = given(np.random.default_rng(2).normal(size=(3, 4)))
    x = view(b)
    weight = torch.tensor(np.random.default_rng(3).normal(size=(x.shape[1], 2)))
    with wb.Tape() as tape:
        y = op(lambda t: torch.sin(t @ weight))(x)
    seed = np.random.default_rng(4).normal(size=y.shape)
    tape.backward(grads={y: seed})
    values = torch.tensor(b.numpy(), requires_grad=True)
    torch.sin(view(values) @ weight).backward(torch.tensor(seed))
    np.testing.assert_allclose(b.grad.numpy(), values.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_types_of_numbers(name):
    torch.manual_seed(2)
    net = torch.nn.Linear(2, 2).to(getattr(torch, name))
    x = given([[1.0, 2.0]], getattr(wb, name))
    with wb.Tape() as tape:
        y = op(net)(x)
    tape.backward(grads={y: wb.ones((1, 2), dtype=wb.float32 if name == "float16" else y.dtype)})
    assert y.dtype == x.dtype and net.weight.grad.dtype == net.weight.dtype
    np.testing.assert_array_equal(net.weight.grad.numpy(), [[1, 2], [1, 2]])
    np.testing.assert_allclose(x.grad.numpy()[0], net.weight.detach().numpy().astype(float).sum(0), rtol=1e-3)


def test_an_empty_batch_and_zero_adjoints_have_gradients_of_zeros():
    for values in (np.zeros((0, 2)), START):
        net, x = linear(), given(values)
        tape, z = twice(op(net), x)
        tape.backward(grads={z: np.zeros(values.shape)})
        assert x.grad.shape == values.shape and not x.grad.numpy().any()
        assert torch.equal(net.weight.grad, torch.zeros_like(net.weight))


def test_a_frozen_parameter_whose_memory_the_tape_follows():
    net, x, k = linear().requires_grad_(False), given(), given(np.ones((2, 2)))
    weight = wb.from_torch(net.weight)
    with wb.Tape() as tape:
        wb.copy(weight, k)
        z = op(net)(x)
    tape.backward(grads={z: WEIGHTS})
    np.testing.assert_allclose(k.grad.numpy(), WEIGHTS.T @ START, rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), WEIGHTS @ np.ones((2, 2)), rtol=1e-12)
    assert net.weight.grad is None


# ---- parameters that change


def double(net):
    net.weight.data.mul_(2.0)


def by_numpy(net):
    net.weight.detach().numpy()[...] *= 2.0


def loaded(net):
    net.load_state_dict({name: 2.0 * p for name, p in net.state_dict().items()})


def swapped(net):
    net.weight.data = 2.0 * net.weight.data


def converted(net):
    net.float()


@pytest.mark.parametrize("change", [double, by_numpy, loaded], ids=lambda f: f.__name__)
def test_a_parameter_changed_between_two_calls_or_after_them_is_refused(change):
    for between in (True, False):
        net, x = linear(), given()
        f = op(net)
        with wb.Tape() as tape:
            y = f(x)
            if between:
                change(net)
            z = f(y)
        if not between:
            change(net)
        with pytest.raises(wb.GradientError) as refused:
            tape.backward(grads={z: WEIGHTS})
        assert refused.value.slug == "overwritten"


def test_a_parameter_changed_for_one_call_and_back_is_refused():
    net, x = linear(), given()
    f = op(net)
    with wb.Tape() as tape:
        y = f(x)
        net.weight.data.mul_(2.0)
        z = f(y)
        net.weight.data.mul_(0.5)
    with pytest.raises(wb.GradientError, match="changed between two events"):
        tape.backward(grads={z: WEIGHTS})


@pytest.mark.parametrize("change", [swapped, converted], ids=lambda f: f.__name__)
def test_a_parameter_with_other_memory_is_refused_by_every_walk(change):
    net, x = linear(), given()
    tape, z = twice(op(net), x)
    weight = next(a for a in tape.arrays.values() if a.name == "weight")
    change(net)
    for walk in (lambda: tape.backward(grads={z: WEIGHTS}), lambda: wb.jacobian(tape, z, weight, mode="rows")):
        with pytest.raises(wb.GradientError, match=r"net\.float") as refused:
            walk()
        assert refused.value.slug == "moved"


def test_a_parameter_frozen_between_two_calls_gets_no_gradient_as_in_torch():
    net, x = linear(), given()
    f = op(net)
    with wb.Tape() as tape:
        y = f(x)
        net.weight.requires_grad_(False)
        z = f(y)
    tape.backward(grads={z: WEIGHTS})
    assert net.weight.grad is None
    agree(net, x, z, WEIGHTS)


# ---- arguments


def test_tensors_as_arguments_are_constants_or_refused():
    x, c = given(), torch.full((2,), 3.0, dtype=torch.float64)
    f = op(lambda t, c: t * c, "scaled")
    with wb.Tape() as tape:
        y = f(x, c)
    tape.backward(grads={y: WEIGHTS})
    np.testing.assert_allclose(x.grad.numpy(), 3.0 * WEIGHTS)
    with wb.Tape(), pytest.raises(wb.LaunchError, match="that it was not given"):
        f(x, c.clone().requires_grad_())
    s = given([3.0, 4.0])
    with wb.Tape():
        read = wb.to_torch(s)
        for call in (lambda: f(x, read), lambda: op(lambda t: t * read)(x)):
            with pytest.raises(wb.LaunchError, match="tensor of to_torch"):
                call()


READINGS = [
    lambda s: s.numpy(),
    lambda s: 2.0 * s.numpy(),
    lambda s: float(s.numpy()[0]),
    lambda s: s.list()[0],
    lambda s: [s, s],
]


@pytest.mark.parametrize("read", READINGS, ids=["array", "computed", "float", "list", "of_arrays"])
@pytest.mark.parametrize("make", ["torch", "numpy"])
def test_numbers_read_from_followed_arrays_are_refused_as_arguments(read, make):
    def product(t, c):
        return t * (c[0].numpy()[0] if isinstance(c, list) else np.ravel(c)[0])

    f = op(product) if make == "torch" else wb.custom_op(product)
    if make == "numpy":
        f.vjp(lambda t, c, y, g: g)
    x, s = given(), given([3.25641, 4.0])
    with wb.Tape() as tape:
        y = f(x, read(s))
    with pytest.raises(wb.GradientError, match="y was written with values that the host made from s") as refused:
        tape.backward(grads={y: WEIGHTS})
    assert refused.value.slug == "host-values"
    with wb.Tape() as tape:
        y = f(x, 3.0)
    tape.backward(grads={y: WEIGHTS})


def test_results_that_have_no_dense_memory_are_refused():
    with wb.Tape(), pytest.raises(wb.LaunchError, match="not tensors"):
        op(lambda t: t.to_sparse())(given())


# ---- captures


@pytest.mark.parametrize("hook", [False, True])
def test_replays_of_a_capture_run_it_anew_with_its_gradient(hook):
    net, x, loss = linear(), given(), wb.zeros(1, dtype=F)
    if hook:
        net.weight.register_hook(lambda g: 2.0 * g)
    f = op(torch.nn.Sequential(net, torch.nn.Tanh()))

    def once():
        tape = wb.Tape()
        with tape:
            loss.zero_()
            wb.launch(square, 3, [f(f(x)), loss])
        tape.backward(loss)

    with wb.capture() as captured:
        once()
    for k in range(3):
        net.zero_grad()
        x.assign(START + k)
        x.grad.zero_()
        captured.replay()
        ours, value, by_x = [p.grad.clone() for p in net.parameters()], loss.numpy()[0], x.grad.numpy().copy()
        net.zero_grad()
        start = torch.tensor(START + k, requires_grad=True)
        y = torch.tanh(net(torch.tanh(net(start))))
        want = (y[:, 0] ** 2 + torch.sin(y[:, 1])).sum()
        want.backward()
        np.testing.assert_allclose(value, want.item(), rtol=1e-12)
        np.testing.assert_allclose(by_x, start.grad.numpy(), rtol=1e-11)
        for p, g in zip(net.parameters(), ours, strict=True):
            torch.testing.assert_close(g, p.grad, rtol=1e-11, atol=1e-13)
        with torch.no_grad():  # an optimizer's step
            net.weight += 0.1


def test_jit_calls_it_anew():
    net = linear()
    f = op(net)

    @wb.jit
    def step(x):
        loss = wb.zeros(1, dtype=F)
        with wb.Tape() as tape:
            wb.launch(square, 3, [f(x), loss])
        tape.backward(loss)
        return loss

    x = given()
    for k in range(4):
        x.assign(START + k)
        net.zero_grad()
        loss = step(x)
        ours = net.weight.grad.clone()
        net.zero_grad()
        y = net(torch.tensor(START + k))
        want = (y[:, 0] ** 2 + torch.sin(y[:, 1])).sum()
        want.backward()
        np.testing.assert_allclose(loss.numpy()[0], want.item(), rtol=1e-12)
        torch.testing.assert_close(ours, net.weight.grad, rtol=1e-11, atol=1e-13)
        with torch.no_grad():
            net.weight += 0.1

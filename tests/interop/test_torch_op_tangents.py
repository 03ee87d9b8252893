"""First and second derivatives through functions of torch, beside differences and beside torch's own."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch

F = wb.float64


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.kernel
def before(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.sin(x[i]) * x[i]


@wb.kernel
def behind(y: wb.array[F], z: wb.array[F], loss: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(loss, 0, y[i] * y[i] * z[i] + wb.exp(z[i]))


@wb.kernel
def behind_narrow(y: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, y[i] * y[i] * y[i])


START = np.array([0.3, -0.7, 1.1, 0.4])
WAY = np.array([0.5, -1.0, 0.25, 2.0])


class Tied(torch.nn.Module):
    """Two results; one matrix is used twice under two names, one parameter is frozen, one is a number."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.scale = torch.nn.Parameter(torch.tensor(0.7))
        self.double()
        self.first.bias.requires_grad = False

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        return self.scale * self.second(hidden), hidden * x


def loop(net, steps=2):
    """Launches before, between and behind calls; the second call takes results of the first."""
    policy = wb.interop.torch.op(net)
    x, loss = wb.array(START, dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        y = x
        for _ in range(steps):
            lifted = wb.zeros(4, dtype=F)
            wb.launch(before, 4, [y], [lifted])
            y, z = policy(lifted)
            wb.launch(behind, 4, [y, z], [loss])
    return tape, x, loss


def alone(net, x, steps=2):
    y, loss = x, 0.0
    for _ in range(steps):
        y, z = net(torch.sin(y) * y)
        loss = loss + (y * y * z + torch.exp(z)).sum()
    return loss


def torchs(net):
    """(gradient, Hessian) of the loop by torch."""
    x = torch.tensor(START, requires_grad=True)
    return torch.autograd.grad(alone(net, x), x)[0].numpy(), torch.autograd.functional.hessian(
        lambda x: alone(net, x), x.detach()
    ).numpy()


def test_tangents_and_second_derivatives_of_a_loop_are_torchs_own():
    net = Tied()
    gradient, want = torchs(net)
    tape, x, loss = loop(net)
    np.testing.assert_allclose(wb.jvp(tape, {x: WAY})[loss], [gradient @ WAY], rtol=1e-12)
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: WAY})[x], want @ WAY, rtol=1e-11)
    np.testing.assert_allclose(wb.hessian(tape, loss, x), want, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(wb.hessian(tape, loss, x, sparse=True).toarray(), want, rtol=1e-11, atol=1e-12)
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), gradient, rtol=1e-12)
    assert all(torch.is_tensor(p.grad) == p.requires_grad for p in net.parameters())


def test_a_direction_of_parameters_beside_differences():
    net = Tied()
    tape, x, loss = loop(net)
    named = {a.name: a for a in tape.arrays.values()}
    weight, scale = named["first.weight"], named["scale"]
    rng = np.random.default_rng(1)
    ways = {x: WAY, weight: rng.normal(size=(4, 4)), scale: np.array([0.3])}
    slope, product = wb.jvp(tape, ways)[loss][0], wb.hvp(tape, loss, ways)

    def slopes(h):
        with torch.no_grad():
            moved = Tied()
            moved.first.weight += h * torch.from_numpy(ways[weight])
            moved.scale += h * 0.3
        at = torch.tensor(START + h * WAY, requires_grad=True)
        value = alone(moved, at)
        return value.item(), torch.autograd.grad(value, [at, moved.first.weight, moved.scale])

    (more, ups), (less, downs) = slopes(1e-5), slopes(-1e-5)
    np.testing.assert_allclose(slope, (more - less) / 2e-5, rtol=1e-7)
    for a, up, down in zip((x, weight, scale), ups, downs, strict=True):
        np.testing.assert_allclose(product[a], ((up - down) / 2e-5).reshape(product[a].shape), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_jacobians(mode):
    net, x = Tied(), wb.array(START, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        lifted = wb.zeros(4, dtype=F)
        wb.launch(before, 4, [x], [lifted])
        _, z = wb.interop.torch.op(net)(lifted)
    want = torch.func.jacrev(lambda x: net(torch.sin(x) * x)[1])(torch.tensor(START)).detach().numpy()
    np.testing.assert_allclose(wb.jacobian(tape, z, x, mode), want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(wb.jacobian(tape, z, x, mode, sparse=True).toarray(), want, rtol=1e-12, atol=1e-14)


def test_a_jacobian_takes_the_fewer_columns(monkeypatch):
    x = wb.array([0.5], dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        y = wb.interop.torch.op(lambda x: x * torch.arange(50.0, dtype=torch.float64))(x)
    monkeypatch.setattr(wb.derivatives.jacobian, "walk", None)
    np.testing.assert_array_equal(wb.jacobian(tape, y, x)[:, 0], np.arange(50.0))


def test_sparse_patterns_take_an_op_as_one_block():
    x = wb.array(np.tile(START, 2), dtype=F, requires_grad=True)
    f = wb.interop.torch.op(lambda x: (x.prod()[None], torch.cumsum(x, 0) * x))
    with wb.Tape(keep="all") as tape:
        y, loss = wb.zeros(8, dtype=F), wb.zeros(1, dtype=F)
        wb.launch(before, 8, [x], [y])
        parts = [f(y[:4]), f(y[4:])]
        for total, z in parts:
            wb.launch(behind, 1, [total, z], [loss])
    got = wb.hessian(tape, loss, x, sparse=True)
    assert got.nnz == 32
    np.testing.assert_allclose(got.toarray(), wb.hessian(tape, loss, x), rtol=1e-12, atol=1e-14)
    lines = wb.jacobian(tape, parts[1][1], x, sparse=True)
    assert lines.nnz == 16 and not lines.toarray()[:, :4].any() and lines.toarray()[:, 4:].any()


def test_replays_have_them_at_their_own_inputs():
    net = Tied()
    tape, x, loss = loop(net)
    again = tape.replay({x: START + 0.1})
    at = torch.tensor(START + 0.1)
    want = torch.autograd.functional.hessian(lambda x: alone(net, x), at).numpy()
    slope = torch.func.grad(lambda x: alone(net, x))(at).detach().numpy() @ WAY
    np.testing.assert_allclose(wb.hvp(again, again.of(loss), {again.of(x): WAY})[again.of(x)], want @ WAY, rtol=1e-11)
    np.testing.assert_allclose(wb.jvp(again, {again.of(x): WAY})[again.of(loss)], [slope], rtol=1e-11)


def test_parameters_of_float32():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    start, way = np.array([0.3, -0.2, 0.9], np.float32), np.array([1.0, -2.0, 0.5], np.float32)
    x, loss = wb.array(start, requires_grad=True), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        y = wb.interop.torch.op(net)(x)
        wb.launch(behind_narrow, 2, [y], [loss])
    wide = net.double()

    def of(x):
        return (wide(x) ** 3).sum()

    want = torch.autograd.functional.hessian(of, torch.from_numpy(start).double()).numpy()
    slope = torch.func.grad(of)(torch.from_numpy(start).double()).detach().numpy()
    net.float()
    with pytest.raises(wb.GradientError, match="other memory"):  # by float() and double()
        wb.jvp(tape, {x: way})
    with wb.Tape(keep="all") as tape:
        y, loss = wb.interop.torch.op(net)(x), wb.zeros(1)
        wb.launch(behind_narrow, 2, [y], [loss])
    np.testing.assert_allclose(wb.jvp(tape, {x: way})[loss], [slope @ way], rtol=1e-4)
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: way})[x], want @ way, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "function", [lambda x: x, lambda x: 3.0 * x, lambda x: x[:1] * x[1:2], lambda x: (x**2).sum(), lambda x: (x, x)[0]]
)
def test_tangents_that_are_constant_or_zero(function):
    x, loss = wb.array([0.5, 2.0], dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        y = wb.interop.torch.op(function, "f")(x)
        wb.launch(behind, y.size, [y, y], [loss])
    way = np.array([1.0, -3.0])

    def of(x):
        y = function(x)
        return (y**3 + torch.exp(y)).sum()

    at = torch.tensor([0.5, 2.0], dtype=torch.float64)
    np.testing.assert_allclose(wb.jvp(tape, {x: way})[loss][0], torch.func.grad(of)(at).numpy() @ way)
    want = torch.autograd.functional.hessian(of, at).numpy() @ way
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: way})[x], want, rtol=1e-12)


def test_results_that_nothing_reads_and_whole_numbers():
    x, loss = wb.array([0.5, 2.0], dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        y, order, _ = wb.interop.torch.op(lambda x: (x**3, torch.argsort(x), torch.sin(x)))(x)
        y = wb.interop.torch.op(lambda y, order: y[order] * y)(y, order)
        wb.launch(behind, 2, [y, y], [loss])

    def of(x):
        y = (x**3)[torch.argsort(x)] * x**3
        return (y**3 + torch.exp(y)).sum()

    want = torch.autograd.functional.hessian(of, torch.tensor([0.5, 2.0], dtype=torch.float64)).numpy()
    np.testing.assert_allclose(wb.hessian(tape, loss, x), want, rtol=1e-11)


def test_a_dropout_has_tangents_of_its_one_run_and_no_second_derivative():
    torch.manual_seed(3)
    x, loss = wb.array(np.zeros(50), dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        y = wb.interop.torch.op(torch.nn.Dropout(0.5))(x)
        wb.launch(behind, 50, [y, y], [loss])
    tape.backward(grads={y: np.ones(50)})
    kept = wb.jvp(tape, {x: np.ones(50)})[y]
    assert set(kept) == {0.0, 2.0}
    np.testing.assert_array_equal(kept, x.grad.numpy())
    with pytest.raises(wb.GradientError, match="draws random numbers") as refused:  # its values, zeros, are the same
        wb.hvp(tape, loss, {x: np.ones(50)})
    assert "test_torch_op_tangents.py" in str(refused.value)


@pytest.mark.parametrize("affine", [True, False])
def test_what_runs_again_on_copies_leaves_the_buffers_of_a_module(affine):
    net = torch.nn.BatchNorm1d(2, affine=affine).double()  # in training it writes them
    x, loss = wb.array([[0.5, 2.0], [1.5, -1.0], [0.1, 0.3]], dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        y = wb.interop.torch.op(net)(x)
        wb.launch(behind, 6, [y.flatten(), y.flatten(), loss])
    left, known = y.numpy().copy(), [b.clone() for b in net.buffers()]
    assert int(net.num_batches_tracked) == 1 and net.running_mean.any()
    np.testing.assert_array_equal(tape.replay({x: x.numpy()})[y].numpy(), left)
    wb.hvp(tape, loss, {x: np.ones((3, 2))})
    tape.trust(loss, x)
    assert all(map(torch.equal, net.buffers(), known))


def test_what_has_changed_since_is_refused_by_second_derivatives():
    net = torch.nn.BatchNorm1d(2).double().eval()
    x, loss = wb.array([[0.5, 2.0]], dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        y = wb.interop.torch.op(net)(x)[0]
        wb.launch(behind, 2, [y, y], [loss])
    assert np.isfinite(wb.hvp(tape, loss, {x: np.ones((1, 2))})[x]).all()
    net.running_mean += 0.1
    with pytest.raises(wb.GradientError, match="something else when it ran again"):
        wb.hvp(tape, loss, {x: np.ones((1, 2))})


class Half(torch.autograd.Function):
    """Its gradient is partly unknown to torch when it is differentiated again."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.x + grad.detach() * ctx.x


def hooked(x):
    y = x * x
    if y.requires_grad:
        y.register_hook(lambda g: g.detach())
    return y


def switched_off(x):
    return (x * x).detach()


@pytest.mark.parametrize(
    ("function", "text"),
    [(Half.apply, "torch.autograd.Function"), (hooked, "a hook is in it"), (switched_off, "torch has no graph")],
)
def test_what_torch_cannot_differentiate_again_is_refused(function, text):
    x, loss = wb.array([0.5, 2.0], dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        y = wb.interop.torch.op(function, "f")(x)
        wb.launch(behind, 2, [y, y], [loss])
    for walk in (lambda: wb.jvp(tape, {x: np.ones(2)}), lambda: wb.hvp(tape, loss, {x: np.ones(2)})):
        with pytest.raises(wb.GradientError, match=text) as refused:
            walk()
        assert "test_torch_op_tangents.py" in str(refused.value)


def test_around_the_tape_torch_may_follow_nothing():
    net = Tied()
    gradient, want = torchs(net)
    with torch.inference_mode():
        tape, x, loss = loop(net)
        np.testing.assert_allclose(wb.jvp(tape, {x: WAY})[loss], [gradient @ WAY], rtol=1e-12)
        np.testing.assert_allclose(wb.hvp(tape, loss, {x: WAY})[x], want @ WAY, rtol=1e-11)


def test_a_direction_of_what_has_no_gradient_any_more():
    net = Tied()
    tape, x, loss = loop(net)
    want = wb.hvp(tape, loss, {x: WAY})[x]
    for p in net.parameters():
        p.requires_grad = False
    x.requires_grad = False
    np.testing.assert_allclose(wb.hvp(tape, loss, {x: WAY})[x], want, rtol=1e-12)


def test_second_derivatives_of_float16_are_refused():
    f = wb.interop.torch.op(lambda x: x * x)
    x = wb.array([0.5, 2.0], dtype=wb.float16, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        y = f(x)
    np.testing.assert_array_equal(wb.jvp(tape, {x: np.ones(2, np.float32)})[y], [1.0, 4.0])
    with pytest.raises(wb.GradientError, match="hvp-half"):
        wb.hvp(tape, y[:1], {x: np.ones(2, np.float32)})

"""Modules and functions of torch as events of a tape: their gradients, and everything that runs them again."""

from __future__ import annotations

import pickle

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
def cart(s: wb.array[F, 2], u: wb.array[F, 2], new: wb.array[F, 2], loss: wb.array[F]):
    i = wb.tid()
    angle, push = s[i, 0], u[i, 0]
    new[i, 0] = angle + F(0.1) * s[i, 1]
    new[i, 1] = s[i, 1] + F(0.1) * (wb.sin(angle) - wb.cos(angle) * push)
    wb.atomic_add(loss, 0, angle * angle + F(0.1) * push * push)


START = np.random.default_rng(0).normal(size=(3, 2))
STEPS = 4


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()


def rollout(policy, keep="needed", start=START, in_place=False):
    s, loss = wb.array(start, dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep=keep) as tape:
        x = wb.clone(s) if in_place else s
        for _ in range(STEPS):
            new = wb.zeros((3, 2), dtype=F)
            wb.launch(cart, 3, [x, policy(x)], [new, loss])
            if in_place:
                wb.copy(x, new)
            else:
                x = new
    return tape, s, loss


def alone(net, start=START):
    """The same in torch: the loss, the gradient by the start, those by the parameters."""
    s = torch.tensor(start, requires_grad=True)
    x, loss = s, 0.0
    for _ in range(STEPS):
        u = net(x)
        loss = loss + (x[:, 0] ** 2).sum() + 0.1 * (u**2).sum()
        turn = torch.sin(x[:, 0]) - torch.cos(x[:, 0]) * u[:, 0]
        x = torch.stack([x[:, 0] + 0.1 * x[:, 1], x[:, 1] + 0.1 * turn], 1)
    found = torch.autograd.grad(loss, [s, *net.parameters()])
    return loss.item(), found[0].numpy(), [g.numpy() for g in found[1:]]


def agree(net, s, loss, times=1):
    want, by_start, by_params = alone(net)
    np.testing.assert_allclose(loss.numpy()[0], want, rtol=1e-12)
    np.testing.assert_allclose(s.grad.numpy(), by_start, rtol=1e-11)
    for p, g in zip(net.parameters(), by_params, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), times * g, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("keep", ["needed", "all"])
@pytest.mark.parametrize("in_place", [False, True])
def test_the_gradient_of_a_rollout_is_torchs_own(keep, in_place):
    net = network()
    values = [p.detach().clone() for p in net.parameters()]
    tape, s, loss = rollout(wb.interop.torch.op(net, "policy"), keep, in_place=in_place)
    for times in (1, 2):  # a walk may be repeated; torch's gradients add up, as in torch
        tape.zero()
        tape.backward(loss)
        agree(net, s, loss, times)
    assert all(torch.equal(p, v) for p, v in zip(net.parameters(), values, strict=True))
    assert [e.label for e in tape.events].count("policy") == STEPS


def test_the_gradient_by_the_start_is_the_slope_of_differences():
    policy = wb.interop.torch.op(network())
    tape, s, loss = rollout(policy)
    tape.backward(loss)
    way = np.random.default_rng(1).normal(size=START.shape)
    more, less = (rollout(policy, start=START + h * way)[2].numpy()[0] for h in (1e-6, -1e-6))
    np.testing.assert_allclose((more - less) / 2e-6, (s.grad.numpy() * way).sum(), rtol=1e-8)


def test_an_optimizer_of_torch_follows():
    net, other = network(), network()
    policy = wb.interop.torch.op(net)
    adam, twin = (torch.optim.Adam(n.parameters(), lr=0.1) for n in (net, other))
    for _ in range(5):
        adam.zero_grad()
        tape, _, loss = rollout(policy)
        tape.backward(loss)
        adam.step()
        want, _, found = alone(other)
        for p, g in zip(other.parameters(), found, strict=True):
            p.grad = torch.from_numpy(g)
        twin.step()
        np.testing.assert_allclose(loss.numpy()[0], want, rtol=1e-9)
    net.float(), net.double()  # which moves the parameters
    net.zero_grad()
    tape, s, loss = rollout(policy)
    tape.backward(loss)
    agree(net, s, loss)


def test_a_step_between_forward_and_backward_is_refused():
    net = network()
    tape, _, loss = rollout(wb.interop.torch.op(net))
    with torch.no_grad():
        net[0].weight += 1.0
    with pytest.raises(wb.GradientError, match="overwritten"):
        tape.backward(loss)


def test_parameters_that_the_workbench_writes_after_the_event_are_refused():
    net = torch.nn.Module()
    net.w = torch.nn.Parameter(torch.tensor([2.0, 3.0], dtype=torch.float64))
    net.forward = lambda x: net.w * x * x
    policy, x = wb.interop.torch.op(net), wb.array([1.0, -2.0], dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        y = policy(x)
        wb.copy(wb.from_torch(net.w), wb.array([5.0, 7.0], dtype=F))
        z = policy(y)
    np.testing.assert_allclose(z.numpy(), [5 * 2**2, 7 * 12**2])
    with pytest.raises(wb.GradientError, match="modified by an inplace operation") as refused:
        tape.backward(grads={z: np.ones(2)})
    assert "y = policy(x)" in str(refused.value)


# ---- functions, several results, other arguments


def test_functions_take_arrays_numbers_and_vectors_and_return_several():
    def parts(x, power, v, order):
        return x**power, v[order].sum(1), torch.argsort(x)

    f = wb.interop.torch.op(parts)
    x = wb.array([2.0, 1.0, 3.0], dtype=F, requires_grad=True)
    v = wb.array(np.ones((2, 3)), dtype=wb.vec3, requires_grad=True)
    with wb.Tape() as tape:
        y, total, order = f(x, 3, v, wb.array([1, 1], dtype=wb.int64))
    assert (y.list(), total.list(), order.list()) == ([8, 1, 27], [3, 3], [1, 0, 2]) and order.dtype == wb.int64
    tape.backward(grads={y: np.ones(3), total: np.array([1.0, 2.0], np.float32)})
    np.testing.assert_array_equal(x.grad.numpy(), 3 * np.array([4.0, 1, 9]))
    np.testing.assert_array_equal(v.grad.numpy(), [[0] * 3, [3] * 3])


def test_views_one_array_twice_and_a_number_that_is_a_parameter():
    net = torch.nn.Module()
    net.scale = torch.nn.Parameter(torch.tensor(3.0, dtype=torch.float64))
    net.forward = lambda a, b: net.scale * a * b
    x = wb.array([[1.0, 2.0], [3.0, 4.0]], dtype=F, requires_grad=True)
    f = wb.interop.torch.op(net)
    with wb.Tape() as tape:
        z = f(f(x[:, 0], x[:, 0]), x[:, 1])
    tape.backward(grads={z: np.ones(2)})
    np.testing.assert_allclose(x.grad.numpy(), [[9 * 2 * 1 * 2, 9], [9 * 2 * 3 * 4, 9 * 9]])
    np.testing.assert_allclose(net.scale.grad.item(), 2 * 3 * (2 + 36))
    again = tape.replay({x: x.numpy() + 1.0})
    np.testing.assert_allclose(again[z].numpy(), 9 * np.array([4 * 3, 16 * 5.0]))


def test_without_a_tape_it_is_the_function_and_its_arguments_are_copies():
    def eager(x):
        with torch.no_grad():
            x += 1.0
        return 2.0 * x

    x = wb.array([1.0, 2.0], dtype=F)
    with pytest.raises(wb.LaunchError, match="changed a tensor"):
        wb.interop.torch.op(eager)(x)
    assert x.list() == [1.0, 2.0]
    net = network()
    np.testing.assert_array_equal(
        wb.interop.torch.op(net)(wb.array(START, dtype=F)).numpy(), net(torch.tensor(START)).detach().numpy()
    )


# ---- what looks at it, and what runs it again


def test_it_is_drawn_with_names_and_in_the_ledger():
    net = network()
    tape, s, loss = rollout(wb.interop.torch.op(net, "policy"))
    tape.backward(loss)
    figure = tape.show()
    assert ">policy #" in figure.svg and f"{STEPS} custom ops" in figure.text
    assert "0.weight" in figure.svg or "0.weight" in figure.text
    weight = next(a for a in tape.arrays.values() if a.name == "0.weight")
    ledger = tape.ledger(weight, (1, 0))
    np.testing.assert_allclose(sum(r.value for r in ledger.rows), net[0].weight.grad[1, 0].item(), rtol=1e-12)
    assert not [f for f in tape.diagnose() if f.severity in ("error", "warning")]


def test_a_replay_runs_it_on_other_inputs_and_other_weights():
    net = network()
    tape, s, loss = rollout(wb.interop.torch.op(net), "all")
    weight = wb.from_torch(net[0].weight)
    again = tape.replay({s: START + 0.5, weight: 2.0 * weight.numpy()})
    again.backward(again.of(loss))
    with torch.no_grad():
        net[0].weight *= 2.0
    want, by_start, by_params = alone(net, START + 0.5)
    np.testing.assert_allclose(again[loss].numpy()[0], want, rtol=1e-12)
    np.testing.assert_allclose(again.of(s).grad.numpy(), by_start, rtol=1e-11)
    np.testing.assert_allclose(again.of(weight).grad.numpy(), by_params[0], rtol=1e-11)


def test_steps_of_a_checkpointed_loop():
    net = network()
    policy = wb.interop.torch.op(net)
    s, loss = wb.array(START, dtype=F, requires_grad=True), wb.zeros(1, dtype=F)

    def step(k, x, loss):
        new = wb.zeros((3, 2), dtype=F)
        wb.launch(cart, 3, [x, policy(x)], [new, loss])
        wb.copy(x, new)

    with wb.Tape() as tape:
        x = wb.clone(s)
        wb.checkpoint(STEPS, 2)(step)(x, loss)
    for times in (1, 2):
        tape.zero()
        tape.backward(loss)
        agree(net, s, loss, times)


def test_inside_torchs_own_backward():
    net = network()
    policy = wb.interop.torch.op(net)

    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = wb.array(x.detach().numpy(), requires_grad=True)
            with wb.Tape() as ctx.tape:
                ctx.y = policy(ctx.x)
            return torch.from_numpy(ctx.y.numpy().copy())

        @staticmethod
        def backward(ctx, grad):
            ctx.tape.backward(grads={ctx.y: grad.numpy()})
            return torch.from_numpy(ctx.x.grad.numpy().copy())

    x = torch.tensor(START, requires_grad=True)
    Squared.apply(x).sum().backward()
    found = x.grad.clone()
    x.grad = None
    net(x).sum().backward()
    torch.testing.assert_close(found, x.grad)


# ---- what is refused


def test_what_torch_would_lose_is_refused():
    hidden = torch.ones(2, dtype=torch.float64, requires_grad=True)
    x = wb.array([1.0, 2.0], dtype=F, requires_grad=True)

    def changes(x):
        with torch.no_grad():
            x += 1.0
        return x

    cases = {"that it was not given": lambda x: hidden * x, "not tensors": lambda x: 3.0, "changed a tensor": changes}
    for text, function in cases.items():
        with wb.Tape(), pytest.raises(wb.LaunchError, match=text):
            wb.interop.torch.op(function)(x)
    x = wb.array([1.0, 2.0], dtype=F, requires_grad=True)
    for writes in (lambda x: x.add_(1.0), lambda x: x[:1].mul_(2.0)):
        with wb.Tape(), pytest.raises(wb.LaunchError, match="changed a tensor"):
            wb.interop.torch.op(writes)(x)
    assert x.list() == [1.0, 2.0]
    with wb.Tape(), pytest.raises(wb.LaunchError, match="dtype"):
        wb.interop.torch.op(lambda x: x.bfloat16())(x)
    with pytest.raises(wb.LaunchError, match="without an array"):
        wb.interop.torch.op(torch.sin)(2.0)


def test_a_dropout_has_the_gradient_of_its_one_run():
    torch.manual_seed(3)
    x = wb.array(np.ones(50), dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        y = wb.interop.torch.op(torch.nn.Dropout(0.5))(x)
        loss = wb.utils.array_sum(y, out=wb.zeros(1, dtype=F))
    for _ in range(2):
        x.grad.zero_()
        tape.backward(loss)
        np.testing.assert_array_equal(x.grad.numpy(), y.numpy())


def test_a_function_without_a_gradient_is_refused_at_its_line():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2.0 * x

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("no gradient here")

    x = wb.array([1.0, 2.0], dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        y = wb.interop.torch.op(Once.apply, "once")(x)
    with pytest.raises(wb.GradientError, match="torch has no gradient of once: no gradient here") as refused:
        tape.backward(grads={y: np.ones(2)})
    assert "test_torch_op.py" in str(refused.value)


def test_a_tape_with_it_is_not_pickled_and_what_comes_too_late_is_refused():
    net = network()
    tape, _, _ = rollout(wb.interop.torch.op(net))
    with pytest.raises(wb.GradientError, match="cannot be sent to another process"):
        pickle.dumps(tape)
    x = wb.array(START, dtype=F)
    for p in net.parameters():
        p.requires_grad = False
    with wb.Tape() as tape:
        y = wb.interop.torch.op(net)(x)
    x.requires_grad = True
    with pytest.raises(wb.GradientError, match="late-grad"):
        tape.backward(grads={y: np.ones((3, 1))})


def test_frozen_parameters_have_no_gradient():
    net = network()
    net[0].weight.requires_grad = False
    tape, s, loss = rollout(wb.interop.torch.op(net))
    tape.backward(loss)
    assert net[0].weight.grad is None and net[0].bias.grad is not None
    net[0].weight.requires_grad = True
    want = alone(net)
    np.testing.assert_allclose(s.grad.numpy(), want[1], rtol=1e-11)


@pytest.mark.parametrize("change", ["step", "freeze", "thaw", "move"])
def test_replays_of_a_capture_follow_what_was_done_to_parameters(change):
    net = network()
    weight, policy = net[0].weight, wb.interop.torch.op(net)
    weight.requires_grad_(change != "thaw")
    with wb.capture() as graph:
        tape, s, loss = rollout(policy)
        tape.backward(loss)
    for _ in range(2):
        s.grad.zero_()
        net.zero_grad()
        graph.replay()
    if change == "step":
        torch.optim.SGD(net.parameters(), 0.1).step()
    elif change == "move":
        weight.data = 1.5 * weight.data
    weight.requires_grad_(change != "freeze")
    s.grad.zero_()
    loss.zero_()
    net.zero_grad()
    if change in ("thaw", "move"):
        with pytest.raises(wb.GradientError):
            graph.replay()
        return
    graph.replay()
    found = [None if p.grad is None else p.grad.numpy().copy() for p in net.parameters()]
    weight.requires_grad_(True)
    _, by_start, by_params = alone(net)
    np.testing.assert_allclose(s.grad.numpy(), by_start, rtol=1e-11)
    for g, want in list(zip(found, by_params, strict=True))[change == "freeze" :]:
        np.testing.assert_allclose(g, want, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    "function",
    [
        torch.no_grad()(lambda t: t * t),
        lambda t: (t * t).detach(),
        lambda t: torch.from_numpy(2.0 * t.detach().numpy()),
    ],
    ids=["no_grad", "detach", "numpy"],
)
def test_a_result_of_which_torch_has_no_graph_gives_no_silent_zero(function, backend):
    op, x, loss = wb.interop.torch.op(function, "cut"), wb.array([0.3, 0.8], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        y = op(x)
        wb.utils.array_sum(y, out=loss)
    with pytest.raises(wb.GradientError, match="no graph of a result of cut") as refused:
        tape.backward(loss)
    assert refused.value.slug == "custom-op"
    tape.backward(grads={y: wb.zeros(2)})
    assert x.grad.list() == [0.0, 0.0]

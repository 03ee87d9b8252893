"""A cart with a pole and a policy of torch: the closed loop on one tape, the network as a custom op."""

import numpy as np
import torch

import workbench as wb

F = wb.float64
STEPS, RUNS = 40, 4
torch.manual_seed(0)
NET = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
NAMES = [name for name, _ in NET.named_parameters()]
SHAPES = [p.shape for p in NET.parameters()]
VALUES = torch.nn.utils.parameters_to_vector(NET.parameters()).detach().numpy()


def network(x, params):
    parts = torch.split(params, [s.numel() for s in SHAPES])
    named = {n: p.reshape(s) for n, p, s in zip(NAMES, parts, SHAPES, strict=True)}
    return torch.func.functional_call(NET, named, (x,))


@wb.custom_op
def policy(x, params):
    with torch.no_grad():
        return network(torch.from_numpy(x), torch.from_numpy(params)).numpy()


@policy.vjp
def pull(x, params, u, seed):
    given = [torch.from_numpy(a).requires_grad_() for a in (x, params)]
    return tuple(g.numpy() for g in torch.autograd.grad(network(*given), given, torch.from_numpy(seed)))


@wb.kernel
def cart(s: wb.array[F, 2], u: wb.array[F, 2], new: wb.array[F, 2], loss: wb.array[F]):
    i = wb.tid()
    angle, rate, push, dt = s[i, 2], s[i, 3], u[i, 0], F(0.02)
    new[i, 0] = s[i, 0] + dt * s[i, 1]
    new[i, 1] = s[i, 1] + dt * push
    new[i, 2] = angle + dt * rate
    new[i, 3] = rate + dt * (F(9.8) * wb.sin(angle) - wb.cos(angle) * push)
    wb.atomic_add(loss, 0, angle * angle + F(0.001) * push * push)


def simulate(values):
    params = wb.array(values, dtype=F, requires_grad=True)
    start = 0.1 * np.random.default_rng(0).normal(size=(RUNS, 4))
    with wb.Tape() as tape:
        s, loss = wb.array(start, dtype=F), wb.zeros(1, dtype=F)
        for _ in range(STEPS):
            new = wb.zeros((RUNS, 4), dtype=F)
            wb.launch(cart, RUNS, [s, policy(s, params)], [new, loss])
            s = new
    return tape, loss, params


def check():
    values, adam = torch.tensor(VALUES, requires_grad=True), None
    adam = torch.optim.Adam([values], lr=0.05)
    losses = []
    for _ in range(30):
        tape, loss, params = simulate(values.detach().numpy())
        tape.backward(loss)
        values.grad = torch.from_numpy(params.grad.numpy().copy())
        adam.step()
        losses.append(loss.numpy()[0])
    assert losses[-1] < 0.5 * losses[0]
    assert [e.kind for e in tape.events].count("op") == STEPS

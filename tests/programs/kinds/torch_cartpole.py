"""A cart with a pole and a policy of torch: the closed loop on one tape, the network as a custom op."""

import numpy as np
import torch

import workbench as wb

F = wb.float64
STEPS, RUNS = 40, 4
torch.manual_seed(0)
NET = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
WEIGHT = NET[0].weight
VALUES = WEIGHT.detach().numpy().copy()
policy = wb.interop.torch.op(NET, "policy")


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
    with torch.no_grad():
        WEIGHT.copy_(torch.from_numpy(values))
    start = 0.1 * np.random.default_rng(0).normal(size=(RUNS, 4))
    with wb.Tape() as tape:
        s, loss = wb.array(start, dtype=F), wb.zeros(1, dtype=F)
        for _ in range(STEPS):
            new = wb.zeros((RUNS, 4), dtype=F)
            wb.launch(cart, RUNS, [s, policy(s)], [new, loss])
            s = new
    return tape, loss, WEIGHT


def check():
    adam, losses = torch.optim.Adam(NET.parameters(), lr=0.05), []
    for _ in range(30):
        NET.zero_grad()
        tape, loss, _ = simulate(WEIGHT.detach().numpy())
        tape.backward(loss)
        adam.step()
        losses.append(loss.numpy()[0])
    assert losses[-1] < 0.5 * losses[0]
    assert [e.kind for e in tape.events].count("op") == STEPS

"""A torch policy in a rollout on one tape, by a custom op per step, beside the same rollout in torch alone.

    python -m tests.benchmarks.bridges [--steps 200] [--rounds 9]

The policy is 4 - 64 - 64 - 1 in float32, the world a cart with a pole for each of 32 environments. On the tape every
step is a custom op (the network and its gradient by torch) and a launch, recorded anew each time or, in the row of
`wb.jit`, replayed; torch alone steps the same equations.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
import torch

import workbench as wb

from .rounds import heading, interleaved, ratio

ENVIRONMENTS = 32


@wb.kernel
def cart(s: wb.array2d[float], u: wb.array2d[float], out: wb.array2d[float]):
    i = wb.tid()
    angle, rate = s[i, 2], s[i, 3]
    push = u[i, 0]
    turn = 9.8 * wb.sin(angle) - wb.cos(angle) * push
    out[i, 0] = s[i, 0] + 0.02 * s[i, 1]
    out[i, 1] = s[i, 1] + 0.02 * push
    out[i, 2] = angle + 0.02 * rate
    out[i, 3] = rate + 0.02 * turn


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
    )


class Bridged:
    """The rollout on one tape, by `wb.interop.torch.op`. `forward` and `backward` are timed apart."""

    def __init__(self, steps: int):
        self.steps, self.net, self.start = steps, network(), wb.full((ENVIRONMENTS, 4), 0.1)
        self.policy = wb.interop.torch.op(self.net, "policy")

    def forward(self) -> None:
        self.tape = wb.Tape()
        self.loss = self.rollout(self.tape, self.start)

    def rollout(self, tape: wb.Tape, s: wb.array) -> wb.array:
        with tape:
            for _ in range(self.steps):
                new = wb.zeros_like(s)
                wb.launch(cart, ENVIRONMENTS, [s, self.policy(s), new])
                s = new
            flat = s.flatten()
            return wb.utils.array_inner(flat, flat, out=wb.zeros(1))

    def backward(self) -> None:
        self.net.zero_grad()
        self.tape.zero()
        self.tape.backward(self.loss)

    def gradient(self) -> np.ndarray:
        return self.net[0].weight.grad.numpy()


class Jitted(Bridged):
    """The rollout and its walk as one function of `wb.jit`."""

    def __init__(self, steps: int):
        super().__init__(steps)

        @wb.jit
        def turn(start: wb.array) -> wb.array:
            tape = wb.Tape()
            loss = self.rollout(tape, start)
            tape.backward(loss)
            return loss

        self.turn = turn

    def forward(self) -> None:
        self.net.zero_grad()
        self.turn(self.start)

    def backward(self) -> None:
        """Done by `forward`."""


class ByHand(Bridged):
    """The same by a custom op of NumPy arrays, whose rules call torch."""

    def __init__(self, steps: int):
        self.steps, self.net, self.start = steps, network(), wb.full((ENVIRONMENTS, 4), 0.1)
        names = [name for name, _ in self.net.named_parameters()]
        self.params = [wb.array(p.detach().numpy(), requires_grad=True) for p in self.net.parameters()]

        def call(x: torch.Tensor, params: Any) -> torch.Tensor:
            return torch.func.functional_call(self.net, dict(zip(names, params, strict=True)), (x,))

        @wb.custom_op
        def policy(x: np.ndarray, *params: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return call(torch.from_numpy(x), map(torch.from_numpy, params)).numpy()

        @policy.vjp
        def pull(x: np.ndarray, *rest: np.ndarray) -> tuple:
            *params, _, seed = rest
            given = [torch.from_numpy(a).requires_grad_() for a in (x, *params)]
            found = torch.autograd.grad(call(given[0], given[1:]), given, torch.from_numpy(seed))
            return tuple(g.numpy() for g in found)

        self.policy = lambda s: policy(s, *self.params)

    def gradient(self) -> np.ndarray:
        return self.params[0].grad.numpy()


class Alone:
    """The rollout in torch."""

    def __init__(self, steps: int):
        self.steps, self.net = steps, network()

    def forward(self) -> None:
        s = torch.full((ENVIRONMENTS, 4), 0.1)
        for _ in range(self.steps):
            push, angle, rate = self.net(s)[:, 0], s[:, 2], s[:, 3]
            turn = 9.8 * torch.sin(angle) - torch.cos(angle) * push
            s = torch.stack(
                [s[:, 0] + 0.02 * s[:, 1], s[:, 1] + 0.02 * push, angle + 0.02 * rate, rate + 0.02 * turn], 1
            )
        self.loss = (s * s).sum()

    def backward(self) -> None:
        self.net.zero_grad()
        self.loss.backward(retain_graph=True)

    def gradient(self) -> np.ndarray:
        return self.net[0].weight.grad.numpy()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    torch.set_num_threads(1)
    kinds = {"op": Bridged, "custom_op": ByHand, "jit": Jitted, "torch": Alone}
    runs: dict[str, Any] = {name: kind(given.steps) for name, kind in kinds.items()}
    for run in runs.values():
        run.forward()
        run.backward()
    theirs = runs["torch"].gradient()
    for name in ("op", "custom_op", "jit"):
        assert np.allclose(runs[name].gradient(), theirs, 1e-2, 1e-4 * abs(theirs).max())
    calls = {(what, who): getattr(run, what) for what in ("forward", "backward") for who, run in runs.items()}
    times = interleaved(calls, given.rounds, 1, warm_up=4)
    for who in runs:
        times["both", who] = [a + b for a, b in zip(times["forward", who], times["backward", who], strict=True)]
    print(heading(f"{given.steps} steps with a torch policy"))
    print("| what | torch, ms | op, ms | ratio | custom_op, ms | ratio |\n|---|---|---|---|---|---|")
    for what in ("forward", "backward", "both"):
        other, *ours = (times[what, who] for who in ("torch", "op", "custom_op"))
        cells = [f"{1e3 * statistics.median(t):.1f} | {ratio(t, other):.2f}" for t in ours]
        print(f"| {what} | {1e3 * statistics.median(other):.1f} | {' | '.join(cells)} |")
    took = times["both", "jit"]
    print(f"\nAs a function of `wb.jit`, both: {1e3 * statistics.median(took):.1f} ms, {ratio(took, other):.2f}.")


if __name__ == "__main__":
    main()

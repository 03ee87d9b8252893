"""What a launch costs beside its arithmetic: a kernel of 16 threads with 4 arrays, Warp and workbench in one run.

    python tests/benchmarks/launch_overhead.py [--launches 200] [--rounds 30]

The chain x[k+1] = x[k] * a + b is launched without a tape, recorded under one, and differentiated, each alone and as
the turn of a loop; and so is one launch of a single thread, again and again with the same arrays, and launches whose
arrays are new each time. Microseconds per launch.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from peers import PEERS, accepts, load, peers
from rounds import heading, interleaved, table

REPEAT = 10  # chains in a row: the first of them finds the caches cold, as `rounds` rests before each turn


class Chain:
    def __init__(self, api: Any, launches: int) -> None:
        self.api, self.launches = api, launches
        self.kernel = load(api, "kernels_small.py").step
        make = dict(dtype=float, device="cpu", requires_grad=True)
        self.x = [api.array(np.full(16, 1.0, np.float32), **make) for _ in range(launches + 1)]
        self.a = api.array(np.full(16, 0.99, np.float32), **make)
        self.b = api.array(np.full(16, 0.01, np.float32), **make)
        self.seed = api.array(np.ones(16, np.float32), dtype=float, device="cpu")
        self.four = [api.array(np.ones(1, np.float32), **make) for _ in range(4)]  # that no other tape has met
        self.one = api.array(np.ones(1, np.float32), dtype=float, device="cpu")

    def plain(self) -> None:
        launch, x = self.api.launch, self.x
        for k in range(self.launches):
            launch(self.kernel, dim=16, inputs=[x[k], self.a, self.b], outputs=[x[k + 1]], device="cpu")

    def record(self) -> None:
        with self.api.Tape() as self.tape:
            self.plain()

    def backward(self) -> None:
        self.tape.zero()
        self.tape.backward(grads={self.x[-1]: self.seed})

    def repeat(self) -> None:
        with self.api.Tape() as self.again:
            launch, (x, a, b, y) = self.api.launch, self.four
            for _ in range(self.launches):
                launch(self.kernel, dim=1, inputs=[x, a, b], outputs=[y], device="cpu")

    def repeat_backward(self) -> None:
        self.again.zero()
        self.again.backward(grads={self.four[-1]: self.one})

    def turn(self) -> None:
        self.record()
        self.backward()

    def fresh(self) -> None:
        make = dict(dtype=float, device="cpu", requires_grad=True)
        self.made = [self.api.zeros(16, **make) for _ in range(self.launches + 1)]
        before, self.x = self.x, self.made
        self.record()
        self.x = before

    def make(self) -> None:
        self.made = [
            self.api.zeros(16, dtype=float, device="cpu", requires_grad=True) for _ in range(self.launches + 1)
        ]

    def fresh_turn(self) -> None:
        self.fresh()
        self.tape.backward(grads={self.made[-1]: self.seed})

    def command(self) -> Callable[[], None] | None:
        if not accepts(self.api, "record_cmd"):
            return None
        arrays = dict(inputs=[self.x[0], self.a, self.b], outputs=[self.x[1]], device="cpu")
        ready = self.api.launch(self.kernel, dim=16, record_cmd=True, **arrays).launch

        def run() -> None:
            for _ in range(self.launches):
                ready()

        return run

    def check(self) -> None:
        self.record()
        self.backward()
        np.testing.assert_allclose(self.x[0].grad.numpy(), 0.99**self.launches, rtol=1e-3)
        np.testing.assert_allclose(self.b.grad.numpy(), (1 - 0.99**self.launches) / 0.01, rtol=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--launches", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    given = parser.parse_args()
    chains = {name: Chain(api, given.launches) for name, api in peers(given.peers).items()}
    for chain in chains.values():
        chain.check()
    print(heading(f"a chain of {given.launches} launches of 16 threads, 4 arrays, per launch"))
    ways: dict[str, Callable[[Chain], Callable[[], None] | None]] = {
        "launch without a tape": lambda chain: chain.plain,
        "launch under a tape": lambda chain: chain.record,
        "backward": lambda chain: chain.backward,
        "prepared command": Chain.command,
        "launch of one thread under a tape, the same arrays each time": lambda chain: chain.repeat,
        "its backward": lambda chain: chain.repeat_backward,
        "arrays made": lambda chain: chain.make,
        "arrays made, and a launch of each under a tape": lambda chain: chain.fresh,
        "arrays made, a launch of each under a tape, and its backward": lambda chain: chain.fresh_turn,
        "a turn of a loop: a new tape, zero(), and backward": lambda chain: chain.turn,
    }
    for title, way in ways.items():
        runs = {name: run for name, chain in chains.items() if (run := way(chain)) is not None}
        if runs:
            times = interleaved(runs, given.rounds, REPEAT)
            print(f"\n{title}\n\n" + table(times, next(iter(runs)), 1e6 / given.launches, "us"), flush=True)


if __name__ == "__main__":
    main()

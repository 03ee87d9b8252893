"""A 2-D wave step and its adjoint: hand-written C, NVIDIA Warp and the workbench, interleaved in one run.

    python tests/benchmarks/wave_c.py [--size 1024] [--rounds 40] [--steps 16] [--peers warp workbench]

Two tables. "One launch": the bare step and the bare adjoint, accumulating, arguments prepared where the API can.
"A simulation": `steps` steps under a tape and a backward pass, per step, with all that a user pays for.
Before anything is timed, every contender's numbers are compared with the C ones.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from hand import EXACT, build
from peers import PEERS, load, peers
from rounds import heading, interleaved, table

C = 0.2
STORE_U, STORE_UP, KEEP_G = 1, 2, 4
POINTER, FLOAT, INT, SIZE = ctypes.c_void_p, ctypes.c_float, ctypes.c_int, ctypes.c_ssize_t


def library() -> ctypes.CDLL:
    made = build("wave", "float", EXACT)
    made.wave_step.argtypes = [POINTER, POINTER, POINTER, FLOAT, SIZE, SIZE, INT]
    made.wave_adjoint.argtypes = [POINTER, POINTER, POINTER, FLOAT, SIZE, SIZE, INT, INT]
    made.wave_step.restype = made.wave_adjoint.restype = None
    return made


def fields(size: int, count: int) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    return [random.standard_normal((size, size), dtype=np.float32) for _ in range(count)]


class Hand:
    """The C contender; `u` holds the whole history, as a simulation under a tape does."""

    def __init__(self, library: ctypes.CDLL, size: int, steps: int, threads: int) -> None:
        self.library, self.size, self.steps, self.threads = library, size, steps, threads
        first, second, self.seed = fields(size, 3)
        self.u = [first, second, *(np.zeros_like(first) for _ in range(steps))]
        self.g = [np.zeros_like(first) for _ in range(steps + 2)]
        self.at_u, self.at_g = ([a.ctypes.data for a in group] for group in (self.u, self.g))

    def step(self, t: int = 0) -> None:
        u = self.at_u
        self.library.wave_step(u[t + 1], u[t], u[t + 2], C, self.size, self.size, self.threads)

    def adjoint(self, t: int = 0, how: int = 0) -> None:
        g = self.at_g
        self.library.wave_adjoint(g[t + 1], g[t], g[t + 2], C, self.size, self.size, how, self.threads)

    def forward(self) -> None:
        for t in range(self.steps):
            self.step(t)

    def backward(self) -> None:
        self.g[-1][:] = self.seed
        for t in reversed(range(self.steps)):
            self.adjoint(t, STORE_UP | KEEP_G | (STORE_U if t == self.steps - 1 else 0))


class Peer:
    """Warp or the workbench: the same calls on the same names."""

    def __init__(self, api: Any, size: int, steps: int) -> None:
        self.api, self.size, self.steps = api, size, steps
        self.kernel = load(api, "kernels_wave.py", real=api.float32).wave
        first, second, seed = fields(size, 3)
        make = dict(dtype=float, device="cpu", requires_grad=True)
        self.u = [api.array(first, **make), api.array(second, **make)]
        self.u += [api.zeros((size, size), **make) for _ in range(steps)]
        self.seed = api.array(seed, dtype=float, device="cpu")
        self.tape = None
        self.step, self.adjoint = self.prepared()

    def arguments(self, t: int) -> dict[str, Any]:
        inputs, scalars = [self.u[t + 1], self.u[t]], [C, self.size, self.size]
        return dict(dim=(self.size, self.size), inputs=[*inputs, self.u[t + 2], *scalars], device="cpu")

    def prepared(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """One launch and its adjoint, as commands where the API has them."""
        launch, plain = self.api.launch, self.arguments(0)
        backward = dict(plain, adjoint=True, adj_inputs=[None] * 6, adj_outputs=[])
        forward = launch(self.kernel, record_cmd=True, **plain).launch
        if self.api.__name__ == "warp":
            return forward, launch(self.kernel, record_cmd=True, **backward).launch
        return forward, self.walk_of_one_launch()

    def walk_of_one_launch(self) -> Callable[[], None]:
        """The reverse walk of a tape of one launch: a cleared workspace, the seed, the adjoint; nothing published."""
        with self.api.Tape() as tape:
            self.api.launch(self.kernel, **self.arguments(0))
        tape.backward(grads={self.u[2]: self.seed})
        return lambda: tape.retrace(lambda event, space: None).release()

    def forward(self) -> None:
        with self.api.Tape() as self.tape:
            for t in range(self.steps):
                self.api.launch(self.kernel, **self.arguments(t))

    def backward(self) -> None:
        self.tape.zero()
        self.tape.backward(grads={self.u[-1]: self.seed})


def check(reference: Hand, contender: Any, name: str) -> None:
    """The same trajectory and the same gradient of the first two fields, or an AssertionError."""
    contender.forward()
    contender.backward()
    last = contender.u[-1] if isinstance(contender, Hand) else contender.u[-1].numpy()
    gradients = contender.g if isinstance(contender, Hand) else [u.grad.numpy() for u in contender.u[:2]]
    np.testing.assert_allclose(last, reference.u[-1], rtol=1e-3, atol=2e-3, err_msg=f"{name}: values")
    for t in (0, 1):
        np.testing.assert_allclose(gradients[t], reference.g[t], rtol=1e-3, atol=2e-3, err_msg=f"{name}: gradient {t}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    given = parser.parse_args()
    made = library()
    contenders: dict[str, Any] = {f"C{n}": Hand(made, given.size, given.steps, n) for n in (1, 2)}
    contenders |= {name: Peer(api, given.size, given.steps) for name, api in peers(given.peers).items()}
    contenders["C1"].forward(), contenders["C1"].backward()
    for name, contender in contenders.items():
        check(contenders["C1"], contender, name)
    print(heading(f"wave {given.size} x {given.size} float32"))
    report("one launch, forward", {n: c.step for n, c in contenders.items()}, given.rounds, 5, 1)
    report("one launch, adjoint (accumulating)", {n: c.adjoint for n, c in contenders.items()}, given.rounds, 5, 1)
    slow = max(4, given.rounds // 4)
    report("a simulation, forward, per step", {n: c.forward for n, c in contenders.items()}, slow, 1, given.steps)
    report("a simulation, backward, per step", {n: c.backward for n, c in contenders.items()}, slow, 1, given.steps)


def report(title: str, contenders: dict[str, Callable[[], None]], rounds: int, repeat: int, parts: int) -> None:
    times = interleaved(contenders, rounds, repeat)
    print(f"\n{title}\n\n" + table(times, "C2", 1e3 / parts, "ms"), flush=True)


if __name__ == "__main__":
    main()

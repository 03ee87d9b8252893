"""The wait before the first gradient: a ten-line kernel with its adjoint, cold and warm cache, a fresh process each.

    python tests/benchmarks/compile_latency.py [--rounds 3]

A child process imports the module (timed apart), then defines the kernels, launches one and walks back: "first".
"second" is the next kernel in the same process, which shows what of the first was paid once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from peers import PEERS, cache_environment, load, peer, peers
from rounds import heading


def gradient_of_ten_lines(api: Any, kernels: Any) -> None:
    points = np.linspace(0.5, 1.5, 30, dtype=np.float32).reshape(10, 3)
    make = dict(dtype=api.vec3, device="cpu", requires_grad=True)
    x, v, y = (api.array(points, **make) for _ in range(3))
    with api.Tape() as tape:
        api.launch(kernels.ten_lines, dim=10, inputs=[x, v], outputs=[y, 2.0, 0.01], device="cpu")
    tape.backward(grads={y: api.array(points, dtype=api.vec3, device="cpu")})
    assert np.isfinite(x.grad.numpy()).all() and x.grad.numpy().any()


def gradient_of_wave(api: Any, kernels: Any) -> None:
    make = dict(dtype=float, device="cpu", requires_grad=True)
    u, up, out = (api.array(np.ones((8, 8), np.float32), **make) for _ in range(3))
    with api.Tape() as tape:
        api.launch(kernels.wave, dim=(8, 8), inputs=[u, up], outputs=[out, 0.2, 8, 8], device="cpu")
    tape.backward(grads={out: api.array(np.ones((8, 8), np.float32), dtype=float, device="cpu")})
    assert u.grad.numpy().any()


def child(name: str) -> None:
    """Time the stages in this process and write them on stdout as the last line."""
    start = time.perf_counter()
    api = peer(name)
    imported = time.perf_counter()
    gradient_of_ten_lines(api, load(api, "kernels_small.py"))
    first = time.perf_counter()
    gradient_of_wave(api, load(api, "kernels_wave.py", real=api.float32))
    second = time.perf_counter()
    print(json.dumps({"import": imported - start, "first": first - imported, "second": second - first}))


def measured(name: str, cache: str, **variables: str) -> dict[str, float]:
    """Seconds of each stage, in a process with these variables of the environment."""
    environment = {**os.environ, **cache_environment(cache), **variables}
    command = [sys.executable, __file__, "--child", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", choices=PEERS)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    print(heading("import, then first launch and backward of a ten-line kernel; medians in ms"))
    print("| | cache | import ms | first ms | second ms |\n|---|---|---|---|---|")
    seen: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(given.rounds):
        for name in peers(given.peers):
            with tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "warm"):
                    seen.setdefault((name, state), []).append(measured(name, cache))
    for (name, state), runs in seen.items():
        columns = [
            f"{statistics.median(run[stage] for run in runs) * 1e3:.0f}" for stage in ("import", "first", "second")
        ]
        print(f"| {name} | {state} | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()

"""The wait for the gradient of one kernel, by its length: 10, 500 and 2,000 lines, cold, each in a fresh process.

    python tests/benchmarks/compile_large.py [--lines 10 500] [--rounds 3] [--peers workbench]

Wall time and processor time (of the process and of the compilers it starts) from the definition to the gradient, the
import left out, with an empty cache. "read" is the wall time until the reverse pass is a program, before any compiler.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from peers import PEERS, cache_environment, peer, peers
from rounds import heading

LINES = (10, 500, 2000)


def text_of(count: int) -> str:
    """A kernel of so many lines that use each other, memory, branches, vectors and a func."""
    lines = ["    i = wb.tid()", "    a = x[i]", "    b = float(1.0)", "    p = wb.vec3(a, b, 0.5)"]
    k = 0
    while len(lines) < count - 2:
        lines += [
            f"    a = a * 0.9 + b * 0.1 + x[(i + {k % 7}) % 16] * 0.01",
            "    b = wb.sin(a) + bent(b, a) * 0.5",
            "    p = p * 0.8 + wb.cross(p, wb.vec3(b, a, 0.1)) * 0.2",
            "    if a > 1.2:",
            "        a = a * 0.5 + p[0] * 0.1",
        ]
        k += 1
    head = ["@wb.func", "def bent(u: float, v: float):", "    return u / (1.0 + v * v)", "", "", "@wb.kernel"]
    return "\n".join(
        [*head, "def k(x: wb.array(dtype=float), y: wb.array(dtype=float)):", *lines, "    y[i] = a + b * p[1]", ""]
    )


def spent() -> float:
    return sum(
        u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def child(name: str, count: int, folder: str) -> None:
    """Time one kernel in this process and write the result on stdout as the last line."""
    api: Any = peer(name)
    api.array([1.0], dtype=float, device="cpu")  # what is paid at the first array is not about kernels
    file = Path(folder) / f"lines_{count}_{name}.py"
    file.write_text(text_of(count))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(wb=api)
    sys.modules[file.stem] = module
    start, before, read = time.perf_counter(), spent(), None
    spec.loader.exec_module(module)
    if name == "workbench":
        str(module.k.adjoint)
        read = time.perf_counter() - start
        start, before = time.perf_counter(), spent()
        vars(module).pop("k")
        spec.loader.exec_module(module)
    x = api.array(np.linspace(0.1, 0.8, 16), dtype=float, device="cpu", requires_grad=True)
    y = api.zeros(16, dtype=float, device="cpu", requires_grad=True)
    with api.Tape() as tape:
        api.launch(module.k, dim=16, inputs=[x], outputs=[y], device="cpu")
    tape.backward(grads={y: api.array(np.ones(16), dtype=float, device="cpu")})
    assert np.isfinite(x.grad.numpy()).all() and x.grad.numpy().any()
    print(json.dumps({"wall": time.perf_counter() - start, "processor": spent() - before, "read": read}))


def measured(name: str, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", name, str(count), folder]
        environment = {**os.environ, **cache_environment(folder)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, nargs="*", default=LINES)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        name, count, folder = given.child
        child(name, int(count), folder)
        return
    print(heading("first gradient of one kernel, cold; medians in seconds"))
    print("| lines | | wall | processor | read |\n|---|---|---|---|---|")
    for count in given.lines:
        seen: dict[str, list[dict[str, Any]]] = {}
        for _ in range(given.rounds):
            for name in peers(given.peers):
                seen.setdefault(name, []).append(measured(name, count))
        for name, runs in seen.items():
            wall, processor = (statistics.median(r[k] for r in runs) for k in ("wall", "processor"))
            read = "-" if runs[0]["read"] is None else f"{statistics.median(r['read'] for r in runs):.3f}"
            print(f"| {count} | {name} | {wall:.3f} | {processor:.3f} | {read} |", flush=True)


if __name__ == "__main__":
    main()

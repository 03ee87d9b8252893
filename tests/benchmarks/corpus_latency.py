"""The wait for the first gradient of every program of the test corpus, float32: launch, backward, cold and warm cache.

    python tests/benchmarks/corpus_latency.py

Each program is read, differentiated, compiled (or found in the cache), launched under a tape and walked back once, in a
fresh process for each state of the cache. Milliseconds per kernel, the import of the package left out.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from rounds import heading

TESTS = Path(__file__).resolve().parents[1]


def child() -> None:
    sys.path.insert(0, str(TESTS))
    import corpus

    import workbench as wb

    taken = []
    for name, program in corpus.load().items():
        if wb.float32 not in program.dtypes:
            continue
        arrays = program.arrays(wb.float32, program.start())
        start = time.perf_counter()
        try:
            with wb.Tape() as tape:
                program.run(wb.float32, arrays)
            kernels = len({event.command.program.name for event in tape.launches})
            tape.backward(grads={a: wb.ones_like(a) for a in arrays.values() if a.requires_grad})
        except wb.GradientError as refused:
            print(name, refused.slug, file=sys.stderr)
            continue
        taken.append((time.perf_counter() - start) / kernels)
    print(*taken)


def measured(cache: str) -> list[float]:
    environment = {**os.environ, "WORKBENCH_CACHE": cache}
    command = [sys.executable, __file__, "--child"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [1e3 * float(t) for t in done.stdout.split()]


def main() -> None:
    print(heading("first gradient of each program of the corpus, milliseconds per kernel"))
    print("| cache | programs | median | mean | slowest |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("cold", "warm"):
            found = measured(folder)
            numbers = f"{statistics.median(found):.1f} | {statistics.mean(found):.1f} | {max(found):.0f}"
            print(f"| {cache} | {len(found)} | {numbers} |")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    child() if "--child" in sys.argv else main()

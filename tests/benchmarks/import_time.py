"""How long `import workbench` takes beside `import warp`, each in a fresh process, in turns: medians and their ratio.

python -m tests.benchmarks.import_time [rounds]

Bytecode is written by a first round that does not count. Time is that of the processor, which neighbours disturb less,
and wall time beside it. NumPy, which both import, counts for both and is also given alone.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

MODULES = ("workbench", "warp", "numpy")
CODE = (
    "import time; a, b = time.process_time(), time.perf_counter(); import {};"
    " print(time.process_time() - a, time.perf_counter() - b)"
)


def once(module: str, cache: str) -> tuple[float, float]:
    """Processor and wall time of one import in milliseconds."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = cache
    command = [sys.executable, "-c", CODE.format(module)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    cpu, wall = done.stdout.split()[-2:]
    return float(cpu) * 1e3, float(wall) * 1e3


def medians(rounds: int) -> dict[str, tuple[float, float]]:
    """Module -> medians of processor and wall time in milliseconds; the modules take turns."""
    with tempfile.TemporaryDirectory() as cache:
        found = [{module: once(module, cache) for module in MODULES} for _ in range(rounds + 1)][1:]
    return {m: tuple(statistics.median(f[m][k] for f in found) for k in (0, 1)) for m in MODULES}  # type: ignore[misc]


def main() -> None:
    times = medians(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    for module, (cpu, wall) in times.items():
        print(f"{module:10} {cpu:6.0f} ms of the processor {wall:6.0f} ms in all")
    ours, theirs = times["workbench"], times["warp"]
    print(f"workbench / warp: {ours[0] / theirs[0]:.2f} of the processor, {ours[1] / theirs[1]:.2f} in all")


if __name__ == "__main__":
    main()

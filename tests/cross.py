"""The C of every program of the corpus, and of its adjoint, and the pool of threads, compiled and linked for machines
that are not here, by the `ziglang` wheel. Nothing of it runs, but for `--wine`.

    python -m tests.cross                      # everything, for all four: minutes
    python -m tests.cross --every 23           # a sample, as the tests take it
    python -m tests.cross --wine               # a kernel, its adjoint and the pool run on Wine (Debian: wine64)
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import workbench as wb
from tests.support.recorded import functions
from workbench.kernels.compile import c_compiler, platform, thread_pool
from workbench.kernels.emit import c as emit_c

MACHINES = {  # what zig calls them -> sys.platform there
    "x86_64-windows-gnu": "win32",
    "aarch64-macos": "darwin",
    "x86_64-macos": "darwin",
    "aarch64-linux-gnu": "linux",
}
POOL = "the pool of threads"


def texts(every: int = 1) -> Iterator[tuple[str, str]]:
    """(name, C text): the pool, then each function of every so manieth program, in the program's first float type."""
    yield POOL, Path(thread_pool.__file__).with_name("pool.c").read_text("utf-8")
    sys.path.insert(0, str(Path(__file__).parent))
    from corpus import load

    for name, program in islice(load().items(), 0, None, every):
        for function, variant in functions(program, program.dtypes[0]):
            yield f"{name}.{function.name}", emit_c.text(function, variant)


def command(machine: str, text: str, made: Path) -> list[str]:
    """The command that the package itself would give to zig on that machine, but for the processor's own kind."""
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    flags = [*c_compiler.PORTABLE, *platform.shared(MACHINES[machine]), *c_compiler.ZIG_FLAGS]
    threads = ["-pthread"] if "pthread" in text else []
    zig = str(Path(spec.origin).with_name("zig"))
    return [zig, "cc", "-target", machine, *flags, *threads, "-x", "c", "-", "-o", str(made), "-lm"]


def refusal(machine: str, text: str) -> str:
    """What compiler or linker say against the text; "" if they make a library of it."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"made{platform.SUFFIX}"
        done = subprocess.run(command(machine, text, made), input=text, capture_output=True, text=True)
        return done.stderr if done.returncode else "" if made.stat().st_size else "it wrote nothing"


@wb.kernel
def walk(x: wb.array[wb.float64], y: wb.array[wb.float64], turns: int):
    i = wb.tid()
    s = x[i]
    for _ in range(turns):
        s = s * wb.cos(s) + wb.pow(s, 1.5) * 0.25
    y[i] = s


def walked(F, arrays: dict[str, wb.array]) -> None:
    wb.launch(walk, 2, [arrays["x"], arrays["y"], 7])


def on_wine() -> int:
    """The exit status of `support/on_windows.c` on Wine, with the libraries of `walk`, its adjoint and the pool."""
    here, machine = Path(__file__).parent, "x86_64-windows-gnu"
    arrays = {"x": wb.array([0.5, 0.7], dtype=wb.float64, requires_grad=True), "y": wb.zeros(2, dtype=wb.float64)}
    program = SimpleNamespace(start=dict, arrays=lambda F, start: arrays, run=walked)
    found = {function.name: emit_c.text(function, variant) for function, variant in functions(program, wb.float64)}
    found["pool"] = Path(thread_pool.__file__).with_name("pool.c").read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in found.items():
            subprocess.run(command(machine, text, Path(folder) / f"{name}.dll"), input=text, text=True, check=True)
        zig = command(machine, "", Path())[0]
        host = [zig, "cc", "-target", machine, "-o", f"{folder}/host.exe", str(here / "support" / "on_windows.c")]
        subprocess.run(host, check=True)
        return subprocess.run(["wine", "host.exe"], cwd=folder).returncode


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.cross")
    parser.add_argument("--every", type=int, default=1, help="take every so manieth program")
    parser.add_argument("--wine", action="store_true", help="run a kernel, its adjoint and the pool on Wine")
    given = parser.parse_args()
    if given.wine:
        sys.exit(on_wine())
    found = list(texts(given.every))
    failed = 0
    with ThreadPoolExecutor(2) as compilers:
        for machine in MACHINES:
            said = list(compilers.map(lambda one: refusal(machine, one[1]), found))  # noqa: B023
            wrong = {name: text for (name, _), text in zip(found, said, strict=True) if text}
            print(f"{machine}: {len(found) - len(wrong)} of {len(found)} texts become a library", flush=True)
            for name, text in wrong.items():
                print(f"  {name}: {text[:400]}")
            failed += len(wrong)
    sys.exit(failed > 0)


if __name__ == "__main__":
    wb.config.backend = "numpy"
    main()

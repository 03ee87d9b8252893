"""What the workloads would cost an H100, estimated from machine code that nobody has run.

    pip install nvidia-cuda-nvdisasm
    python -m tests.benchmarks.cubin [--workloads wave springs nbody mpm] [--size S] [--listing NAME]

Each kernel, and each function of its adjoint, is planned as for a launch on a GPU, compiled by NVRTC for `sm_90`, and
disassembled. Instructions are counted along the whole kernel, so both sides of a branch count, but for threads at the
border of a grid where those in its middle have a text of their own; the slow paths of divisions and the functions
behind the kernel's end do not count. A loop of the kernel itself counts once, and has a column of its own. Bytes are
those of every array that is read, plus those of every array that is written, each once, over the threads.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench.kernels.compile import nvrtc
from workbench.kernels.compile.cubin import Resources
from workbench.kernels.emit import cuda
from workbench.kernels.ir import root, walk
from workbench.kernels.ops import memory as rows
from workbench.kernels.row import Effect
from workbench.launches.adjoint_plan import plan_adjoint
from workbench.launches.executable import Executable, executable_for

from . import mpm, nbody, springs, wave

WORKLOADS = {module.WORKLOAD.name: module.WORKLOAD for module in (wave, springs, nbody, mpm)}
ARCH = "sm_90"
BYTES = 3.35e12  # a second, of an H100's memory
ISSUED = 132 * 4 * 32 * 1.755e9  # instructions of single threads a second: processors, schedulers, lanes, clock
ENOUGH = 25  # instructions per 4 bytes that hide behind them, at 70 % of what can be issued

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_BRANCH = re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)")


@dataclass
class Estimate:
    """One function: `whole` instructions, of which `turns` lie in its inner loops; `bytes` per thread."""

    name: str
    taken: Resources
    whole: int
    turns: int
    bytes: float

    @property
    def density(self) -> float:
        return 4 * self.whole / self.bytes

    def row(self, workload: str) -> str:
        issue, memory = self.whole / ISSUED, self.bytes / BYTES
        bound = "-" if self.turns else f"{issue / memory:.2f}"
        inside = str(self.turns) if self.turns else "-"
        density = "-" if self.turns else f"{self.density:.0f}"
        cells = (self.taken.registers, self.taken.local, self.whole, inside, f"{self.bytes:.1f}", density, bound)
        return f"| {workload} `{self.name}` | {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.cubin")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--size", default="S")
    parser.add_argument("--listing", metavar="NAME", help="print the machine code of this function instead")
    given = parser.parse_args()
    if not given.listing:
        print("| function | registers | local bytes | instructions | in loops | bytes | per 4 bytes | issue / memory |")
        print("|---|---|---|---|---|---|---|---|")
    for name in given.workloads:
        for made in functions(name, given.size):
            code = nvrtc.to_cubin(text(made), ARCH)
            if not given.listing:
                print(estimated(made, code).row(name), flush=True)
            elif made.function.name == given.listing:
                print(listing(code))


def functions(workload: str, size: str) -> Iterator[Executable]:
    """What the launches of a workload, and their adjoints, run on a GPU: each function once."""
    work = WORKLOADS[workload]
    shape = work.size(size)
    system: Any = work.systems["workbench"](shape, work.data(shape, np.float32))
    if system is None:
        raise SystemExit("workbench is not installed")
    system.both()
    seen = set()
    for event in reversed(system.tape.events):
        if event.kind != "launch" or event.command.plan.program.name in seen:
            continue
        plan = event.command.plan
        seen.add(plan.program.name)
        form = replace(plan.form, backend="cuda")
        forward = executable_for(plan.program, plan.program.function, form)
        yield forward
        active = next(key for key in plan.derived if key != "races")
        back = plan_adjoint(
            replace(plan, form=form, forward=forward, derived={}),
            frozenset(plan.program.leaves[k].name for k in active),
        )
        if back.pull is not None:
            yield back.pull.ready(back.pull.targets if back.pull.covers else ())
        yield back.executable


def text(made: Executable) -> str:
    return cuda.text(made.function, replace(made.variant, aligned=True, alone=made.variant.inner is not None))


def estimated(made: Executable, code: bytes) -> Estimate:
    lines = listing(code).splitlines()
    (taken,) = nvrtc.cubin.resources(code).values()
    whole, turns = counted(lines)
    return Estimate(made.function.name, taken, whole, turns, traffic(made))


def listing(code: bytes) -> str:
    """The machine code as text. CuPy hands cubins over without their last byte, which is 0."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(code + b"\0")
        done = subprocess.run([disassembler(), "-c", str(file)], capture_output=True, text=True, check=True)
    return done.stdout


def disassembler() -> str:
    """nvdisasm, from the path or a wheel; ends the program where there is none."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    found = shutil.which("nvdisasm") or next((str(f) for p in places for f in p.glob("*/bin/nvdisasm")), None)
    if found is None:
        sys.exit("nvdisasm is missing: pip install nvidia-cuda-nvdisasm")
    return found


def counted(lines: list[str]) -> tuple[int, int]:
    """Instructions from the kernel's entry to its last exit, and how many of them lie in loops inside another.

    The outermost loop is that over the cells of a thread: one turn, for a grid that has a thread for each.
    """
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in lines[next(k for k, line in enumerate(lines) if line.startswith(".text.")) + 1 :]:
        if line.startswith("$") or (line.startswith(".text.") and instructions):
            break  # functions that the kernel calls
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        if found := _INSTRUCTION.match(line):
            instructions.append(found[2])
    end = max(k for k, what in enumerate(instructions) if what.endswith("EXIT ") or what.endswith("EXIT"))
    loops = []
    for k, what in enumerate(instructions[:end]):
        target = _BRANCH.search(what)
        if target and labels.get(target[1], end) <= k:
            loops.append(range(labels[target[1]], k + 1))
    outer = [a for a in loops if not any(a[0] >= b[0] and a[-1] < b[-1] for b in loops)]
    over_cells = max(outer, key=len, default=None)
    inner = set().union(*(a for a in loops if a is not over_cells))
    return end + 1, len(inner)


def traffic(made: Executable) -> float:
    """Bytes per thread: each array once for being read, and once for being written."""
    read, written = set(), set()
    for s in walk(made.function.body):
        if s.row is rows.SHAPE or not s.row.touches:
            continue
        array = root(s.args[0])
        if s.row is rows.LOAD or s.row.effect is Effect.ACCUMULATES:
            read.add(array)
        if s.row is not rows.LOAD:
            written.add(array)
    sizes = [
        int(np.prod(made.form.shapes[a.name])) * a.type.dtype.itemsize  # type: ignore[attr-defined]
        for group in (read, written)
        for a in group
    ]
    return sum(sizes) / int(np.prod(made.form.dims))


if __name__ == "__main__":
    main()

"""One kernel of Warp, as ours: is it read, differentiated, compiled, and if not, why."""

from __future__ import annotations

import itertools
import re
import subprocess
from dataclasses import dataclass, field
from typing import Any

import workbench as wb
from workbench.kernels import types as T
from workbench.kernels.compile import c_compiler
from workbench.kernels.emit import c as emit_c
from workbench.kernels.emit.signature import Variant
from workbench.warp.watch.rebind import Rebinder

from .gather import limited

SECONDS = 20  # for one kernel, all stages
STAGES = ("read", "differentiated", "compiled")


@dataclass
class Verdict:
    """How far one kernel came. `stage` is the number of stages passed; `reason` and `text` say what stopped it."""

    module: str
    kernel: str
    stage: int = 0
    reason: str = ""
    text: str = ""
    line: str = ""


@dataclass
class Counter:
    """Counts kernels. `cuda`: NVRTC compiles too."""

    rebind: Rebinder
    cuda: bool = False
    seen: list[Any] = field(default_factory=list)

    def __call__(self, kernel: Any) -> Verdict:
        found = Verdict(kernel.func.__module__, kernel.key)
        try:
            with limited(SECONDS):
                self.stages(kernel, found)
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the reason
            if isinstance(error, KeyboardInterrupt):
                raise
            found.reason, found.text, found.line = self.reason(error)
        return found

    def stages(self, kernel: Any, found: Verdict) -> None:
        ours = self.typed(kernel)
        program = ours.program()
        found.stage = 1
        reverse = program.reverse(program.floats)
        found.stage = 2
        for function in (program.function, reverse.function):
            names = frozenset(p.name for p in function.arrays)
            compiles(emit_c.text(function, Variant(contiguous=names, restrict=True)))
        if self.cuda:
            _ = ours.resources
        found.stage = 3

    def typed(self, kernel: Any) -> Any:
        """Our kernel; of a generic one an overload by the types its package asked for, else by plausible ones."""
        ours = self.rebind.kernel(kernel)
        if not ours.generic:
            return ours
        wishes = [self.asked(o, ours) for o in kernel.overloads.values()] + [
            {name: plausible(t, kind) for name, t in ours.generic.items()} for kind in PLAUSIBLE
        ]
        open_ones = [name for name, t in ours.generic.items() if not isinstance(t, T.Array)]
        for ranks in itertools.product(range(1, 5), repeat=len(open_ones)) if len(open_ones) < 3 else ():
            arrays = {n: wb.array(dtype=float, ndim=k) for n, k in zip(open_ones, ranks, strict=True)}
            wishes.append({n: arrays.get(n) or plausible(t, T.float32) for n, t in ours.generic.items()})
        first: BaseException | None = None
        for wish in wishes:
            try:
                made = wb.overload(ours, wish)
                made.program()
                return made
            except Exception as error:  # noqa: BLE001
                first = first or error
        assert first is not None
        raise first

    def asked(self, overload: Any, ours: Any) -> dict[str, Any]:
        return {name: self.rebind(t) for name, t in overload.adj.arg_types.items() if name in ours.generic}

    def reason(self, error: BaseException) -> tuple[str, str, str]:
        slug = getattr(error, "slug", type(error).__name__)
        what = str(getattr(error, "what", error) or type(error).__name__)
        where = getattr(error, "where", None)
        broken = re.search(r"broken func (\w+)|`(\w+)` cannot be called|`(\w+)` of NVIDIA", str(error))
        inner = self.rebind.broken.get(next(filter(None, broken.groups()))) if broken else None
        if inner is not None and inner is not error and str(inner) != str(error):
            return self.reason(inner)
        native = re.search(r"`([\w.]+)` of NVIDIA Warp|<([\w.]+): not in the workbench>", str(error))
        key = f"{slug}: {native[1] or native[2]}" if native else f"{slug}: {generalised(what)}"
        if isinstance(error, subprocess.CalledProcessError):
            key, what = "C compiler", error.stderr.decode(errors="replace")[:400]
        line = f"{where}: {where.text.strip()}" if where else ""
        return key, what, line


PLAUSIBLE = (T.float32, T.vector(3, T.float32), T.int32, T.matrix((3, 3), T.float32), T.float64)


def plausible(wanted: Any, kind: Any) -> Any:
    return wb.array(dtype=kind, ndim=wanted.ndim) if isinstance(wanted, T.Array) else kind


def generalised(what: str) -> str:
    """The first words of a message without the user's own names: equal reasons become one."""
    line = what.splitlines()[0] if what else ""
    return re.sub(r"`[^`]*`|'[^']*'|\b\d+\b", "…", line)[:90]


def compiles(text: str) -> None:
    """Raises CalledProcessError unless the machine's compiler takes the text."""
    used = c_compiler.compiler()
    command = [*used.command, *c_compiler.FLAGS, *used.flags, "-fsyntax-only", "-x", "c", "-"]
    subprocess.run(command, input=text.encode(), capture_output=True, check=True)

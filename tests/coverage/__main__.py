"""Count the kernels of other packages that the workbench reads, differentiates and compiles.

    python -m tests.coverage [--packages warp newton mujoco-warp] [--only PART] [--reasons] [--list REASON]
                             [--every N] [--cuda] [--jobs 2] [--called] [--write]

The packages are imported with the real Warp (`pip install warp-lang==1.19.0 newton==1.8.0 mujoco-warp==4.0.0`); every
kernel that the import makes is bound anew: the same code object, with the workbench's names in place of Warp's. No text
of theirs is copied. `--only` takes modules with PART in their names, `--every N` each N-th kernel, `--reasons` prints
what stops the others, grouped, with counts; `--list REASON` the places of one reason (any part of its text). `--cuda`
compiles with NVRTC too (slow). `--write` puts the figures into RESULTS.md. It takes about three minutes on two cores.

Kernels that functions make when called are counted in rows of their own, with `--called`: small models are stepped
(`drive`), each kernel counts once for each set of values that it is made with. Not counted: tests of the packages,
modules that want a GPU or run at import. Packages that are not installed are stubbed; which ones is printed.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import multiprocessing
import os
import sys
import time
from pathlib import Path

import warp

from workbench.warp.watch.rebind import Rebinder

from .count import STAGES, Counter, Verdict
from .drive import MODELS, drive
from .gather import PACKAGES, gather

_work: list = []
_counter: list[Counter] = []


def main() -> None:
    given = arguments()
    warp.config.quiet = True
    started, reports, called = time.time(), [], []
    known: dict[str, list] = {}
    every: list[Verdict] = []
    for name in given.packages:
        found = gather(PACKAGES[name], given.only)
        kernels = sorted(found.kernels, key=lambda k: k.func.__module__)[:: given.every]
        for module, why in found.failed.items():
            print(f"not imported: {module}: {why}", file=sys.stderr)
        verdicts = counted(kernels, Counter(Rebinder((PACKAGES[name],)), given.cuda), given.jobs)
        every += verdicts
        reports.append(row(name, verdicts, found.stubs))
        print(reports[-1], f"({time.time() - started:.0f} s)", flush=True)
        known[name] = found.kernels
    for name in [n for n in known if n in MODELS and (given.called or given.write)]:
        called.append(when_called(name, known[name], given))  # last: one package may import another
    text = report(reports, every, given.reasons or given.write) + "\n".join(["", *called, ""] if called else [])
    print(text)
    if given.list is not None:
        for v in every:
            if v.stage < len(STAGES) and given.list in f"{v.reason} {v.text}":
                print(f"{v.module}.{v.kernel}\n    {v.text}\n    {v.line}")
    if given.write:
        file = Path(__file__).with_name("RESULTS.md")
        _, title, behind = file.read_text().partition("\n# Programs of others")  # another script's: see `programs`
        file.write_text(HEAD.format(date=datetime.date.today()) + text + title + behind)


def when_called(name: str, known: list, given: argparse.Namespace) -> str:
    """The row of the kernels that functions of a package make when they are called, with their first reasons."""
    found = drive(name, known)
    for model, why in found.failed.items():
        print(f"not run: {name}: {model}: {why}", file=sys.stderr)
    kernels = [k for k in found.kernels if given.only in k.func.__module__]
    verdicts = counted(kernels[:: given.every], Counter(Rebinder((PACKAGES[name],)), given.cuda), given.jobs)
    text = report([row(f"{name}, when called", verdicts, set())], verdicts, given.reasons or given.write)
    print(text, flush=True)
    return text.strip()


def counted(kernels: list, counter: Counter, jobs: int) -> list[Verdict]:
    """The verdicts, in the order of the kernels, from `jobs` forked processes."""
    _work[:], _counter[:] = kernels, [counter]
    if jobs == 1 or len(kernels) < 8:
        return [counter(k) for k in kernels]
    bounds = [range(k, min(k + 8, len(kernels))) for k in range(0, len(kernels), 8)]
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=30) as pool:
        return [v for part in pool.imap(_some, bounds) for v in part]


def _some(which: range) -> list[Verdict]:
    return [_counter[0](_work[k]) for k in which]


def row(name: str, verdicts: list[Verdict], stubs: set[str]) -> str:
    counts = [sum(v.stage > k for v in verdicts) for k in range(len(STAGES))]
    share = f"{100 * counts[-1] / max(len(verdicts), 1):.1f} %"
    return (
        f"| {name} | {len(verdicts)} | {' | '.join(map(str, counts))} | {share} | {' '.join(sorted(stubs)) or 'none'} |"
    )


def report(rows: list[str], verdicts: list[Verdict], reasons: bool) -> str:
    lines = [
        "",
        f"| package | kernels | {' | '.join(STAGES)} | share | stubbed |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    lines.append(row("all", verdicts, set()).replace("none", ""))
    if reasons:
        groups = collections.Counter((STAGES[v.stage], v.reason) for v in verdicts if v.stage < len(STAGES))
        lines += ["", "| kernels | not | reason |", "|---|---|---|"]
        lines += [f"| {n} | {stage} | {why.replace('|', '/')} |" for (stage, why), n in groups.most_common()]
    return "\n".join(lines) + "\n"


HEAD = """# Kernels of others

What `python -m tests.coverage --write` found on {date}: kernels of Warp's examples, Newton and MuJoCo Warp, bound to
the workbench by `warp.watch.rebind`. The first reason of each kernel is counted.

What stays out, and why: volumes and textures (`volume_*`, `TextureSDFData`: use arrays and interpolate in a func);
arrays made in a kernel of addresses that are none of its arrays' (shared memory of a block);
finite-element integrands. The two funcs with `adjoint-missing` are right to be refused: the adjoint of
`dense_cholesky` is empty, since another func adds to the gradient of its argument in its place, and that of
`dense_solve` writes to an array that it is handed for that. Differentiated means for all float arrays at once: atomics
without a derivative then refuse the gradient that comes to them, while the reverse pass runs.
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packages", nargs="+", choices=list(PACKAGES), default=list(PACKAGES))
    parser.add_argument("--only", default="", metavar="PART")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--reasons", action="store_true")
    parser.add_argument("--list", metavar="REASON")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--called", action="store_true")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()

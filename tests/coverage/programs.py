"""Run the example programs of Warp's wheel with `import warp` made the workbench, and compare with Warp itself.

    python -m tests.coverage.programs [--only PART] [--frames N] [--seconds S] [--show] [--write]

Each program is read where `warp-lang` is installed, and run twice in processes of their own: once with Warp, once with
the workbench in its place (see `program_run`), on the CPU, without windows, at small sizes. All arrays that it holds at
its end, and the gradients of its first `backward`, are compared: rounding of float32 is let pass, whole numbers must be
equal. `--show` prints the arrays that differ and the traceback of what stops; `--write` puts the table into RESULTS.md.

Left out: `fem` (integrands are not in the language), `distributed` (several processes and GPUs), `browse.py`, and those
benchmarks that do not import Warp.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.machinery
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FOLDERS = "core optim tile geometry interop benchmarks".split()
CLOSE, NEAR = 1e-3, 2e-3  # of the largest element of an array: its values; a gradient's
TITLE = "# Programs of others"
FRAMES = "--num-frames={n}"
# How a program is made small: its own command line, and the value of assignments to these names.
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "example_dem": ("--num-frames=1", {}),
    "example_raycast": ("--width=64 --height=64", {}),
    "example_raymarch": ("--width=64 --height=32", {}),
    "example_fdtd_3d": ("--resolution=48 --num-steps={n} --steps-per-frame=1", {}),
    "example_fft_poisson_navier_stokes_2d": ("--num-steps={n} --sim-substeps=1", {}),
    "example_torch": (FRAMES + " --train-iters=2", {}),
    "example_diffray": ("--train-iters={n} --height=32", {}),
    "example_fluid_checkpoint": ("--num-frames=8 --train-iters=1 --pressure-iterations=4", {"N_GRID": 64}),
    "example_fluid_checkpoint_custom_backward": (
        "--num-frames=8 --train-iters=1 --pressure-iterations=4",
        {"N_GRID": 64},
    ),
    "example_navier_stokes_perturbation": ("--spin-up-steps=4 --lead-steps=4 --train-iters={n}", {}),
    "example_particle_repulsion": ("--num-frames=8 --train-iters={n}", {}),
    "example_tile_nbody": (FRAMES + " -N=512", {}),
    "example_tile_mlp": ("--train-iters={n}", {}),
    "example_tile_block_cholesky": ("-N=2", {}),
    "example_tile_mcgp": ("--height=32 --slices=2 --sphere-resolution=8", {}),
    "example_isosurface": (FRAMES, {}),
    "benchmark_tile_load_store": ("--ndim=1 --tile-size=8", {}),
    "benchmark_gemm": ("", {}),
    "benchmark_interop_torch": ("", {}),
    "benchmark_tile_sort": ("", {}),
    "benchmark_tile_matmul_pipelined": ("--size=128 --iterations=1 --repeats=1 --warm-up=1", {}),
    "benchmark_sparse_marching_cubes": ("--min-depth=4 --max-depth=4 --iters=1", {}),
    "benchmark_api": ("", {"num_elems": 100, "num_runs": 20, "trim_runs": 2}),
    "benchmark_bvh": ("", {"NUM_QUERIES": 64, "MESH_SIZE": 16}),
    "benchmark_mesh": ("", {"NUM_QUERIES": 64, "MESH_SIZE": 16}),
    "benchmark_launches": ("", {}),
}


@dataclass
class Story:
    """How far a program came (starts, imports, runs), what stopped it, and its arrays."""

    stage: str
    stopped: str = ""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    trace: str = ""


@dataclass
class Row:
    """One line of the table."""

    name: str
    imports: bool
    runs: bool
    values: str
    grads: str
    stops: str

    def __str__(self) -> str:
        yes = ("no", "yes")
        stops = self.stops.replace("|", "/")
        return f"| {self.name} | {yes[self.imports]} | {yes[self.runs]} | {self.values} | {self.grads} | {stops} |"


def root() -> Path:
    """The folder of the examples, without importing Warp."""
    spec = importlib.machinery.PathFinder.find_spec("warp")
    assert spec is not None and spec.origin is not None, "pip install warp-lang"
    return Path(spec.origin).parent / "examples"


def files(only: str = "") -> list[Path]:
    """The programs of the folders that import Warp."""
    found = [f for folder in FOLDERS for f in sorted((root() / folder).glob("*.py"))]
    return [f for f in found if re.search(r"^import warp", f.read_text(), re.M) and only in str(f)]


def run(whose: str, path: Path, frames: int, seconds: float) -> Story:
    """Run a program; under Warp, what it gave before is taken again."""
    line, settings = SMALL.get(path.stem, (FRAMES, {}))
    if path.stem.startswith("benchmark") or path.parent.name == "tile":
        settings = {"cuda": "cpu"} | settings
    args = line.format(n=frames).split()
    if path.parent.name != "benchmarks":  # what is no argument of theirs is ignored by the examples
        on = [] if path.parent.name == "tile" else ["--device=cpu"]
        args = ["--headless", *on, "--stage-path=None", *args]
    key = hashlib.sha256(repr((path, path.stat().st_mtime, args, settings)).encode()).hexdigest()[:16]
    kept = Path(tempfile.gettempdir()) / f"wb-programs-{os.getuid()}" / f"{key}.npz"
    kept.parent.mkdir(exist_ok=True, mode=0o700)
    if whose == "warp" and kept.exists():
        return story(kept, "")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.npz"
        command = [sys.executable, "-m", "tests.coverage.program_run", whose, str(path), str(out)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "MPLBACKEND": "agg"}
        try:
            ended = subprocess.run(
                [*command, json.dumps(settings), *args],
                cwd=folder,
                env=environment,
                timeout=seconds,
                capture_output=True,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return Story("imports", f"more than {seconds:.0f} s")
        if not out.exists():
            return Story("starts", f"the process ended with {ended.returncode}", trace=ended.stderr)
        if whose == "warp":
            kept.write_bytes(out.read_bytes())
        return story(out, ended.stderr)


def story(file: Path, trace: str) -> Story:
    with np.load(file) as kept:
        stage, stopped = json.loads(str(kept["__story__"]))
        return Story(stage, stopped, {n: kept[n] for n in kept.files if n != "__story__"}, trace)


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference over the largest element; infinite for other shapes and NaNs in other places."""
    if ours.shape != theirs.shape:
        return np.inf
    if ours.dtype.kind in "biu":
        return 0.0 if np.array_equal(ours, theirs) else np.inf
    if not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        return np.inf
    fine = np.isfinite(ours)
    a, b = ours[fine].astype(float), theirs[fine].astype(float)
    return float(abs(a - b).max(initial=0.0) / max(abs(b).max(initial=0.0), 1e-30)) if a.size else 0.0


def agreement(ours: Story, theirs: Story, kind: str, bound: float) -> tuple[str, list[str]]:
    """How many of the arrays of a kind agree, and those that do not."""
    names = [n for n in theirs.arrays if n.startswith(kind) and n in ours.arrays]
    far = {n: d for n in names if (d := difference(ours.arrays[n], theirs.arrays[n])) > bound}
    missing = [n for n in theirs.arrays if n.startswith(kind) and n not in ours.arrays]
    said = [f"{n}: {d:.1e} of {abs(theirs.arrays[n]).max(initial=0):.2e}" for n, d in far.items()]
    said += [f"{n}: missing" for n in missing]
    if not names:
        return "none", said
    return (f"{len(names)}" if not far else f"{len(names) - len(far)} of {len(names)}"), said


def compared(path: Path, frames: int, seconds: float, show: bool) -> Row:
    name = f"{path.parent.name}/{path.stem}"
    ours = run("workbench", path, frames, seconds)
    values = grads = "-"
    if ours.stage == "runs" or not ours.stopped:
        theirs = run("warp", path, frames, 4 * seconds)
        values, far = agreement(ours, theirs, "value", CLOSE)
        grads, steep = agreement(ours, theirs, "grad", NEAR)
        if theirs.stopped:
            values = grads = "Warp: " + short(theirs.stopped)[:60]
        if show:
            print("\n".join(["", name, *far, *steep]), file=sys.stderr)
    else:
        theirs = run("warp", path, frames, 4 * seconds)
        values = grads = "Warp: " + short(theirs.stopped)[:60] if theirs.stopped else "-"
        if show:
            print(f"\n{name}\n{ours.trace[-6000:]}", file=sys.stderr)
    note = NOTES.get(path.stem, "") if " of " in values + grads else ""
    return Row(name, ours.stage != "starts", ours.stage == "runs", values, grads, short(ours.stopped) or note)


# Why numbers differ, where that was looked into.
ADAM = "rounding decides: Adam makes whole steps of gradients that are zero but for rounding"
NOTES = {
    "example_raymarch": "rounding decides: normals are differences over 1e-5 in float32",
    "example_particle_repulsion": "rounding decides who is a neighbour: positions moved by 1e-6 change forces as much",
    "example_fluid_checkpoint": ADAM,
    "example_fluid_checkpoint_custom_backward": ADAM,
    "example_navier_stokes_perturbation": "the loss's own: a store made the loss and used it up; Warp leaves 1 there",
    "example_diffray": "gradient of the texture: Warp gives 0; differences say 0.6742, as the workbench",
}


def short(text: str) -> str:
    """What stopped a program, in a line."""
    words = re.sub(r"\S*/(warp/examples/\S+)", r"\1", " ".join(text.split()))
    slug = re.search(r"\[[a-z-]+\]", words)
    return words[:140] + (f" {slug[0]}" if slug and slug[0] not in words[:140] else "")


def table(rows: list[Row]) -> str:
    here = [r for r in rows if not r.values.startswith("Warp")]
    same = [r for r in here if r.runs and " of " not in r.values]
    noted = [r for r in here if r.runs and " of " in r.values and r.stops]
    passed, ran = sum(r.imports for r in rows), sum(r.runs for r in rows)
    beside = f"{len(here)} run with Warp on this machine (a CPU): of these {sum(r.runs for r in here)} run here"
    lines = [
        f"{len(rows)} programs; {passed} get past their imports, {ran} run to their end.",
        f"{beside}, {len(same)} with the same numbers, and {len(noted)} where rounding decides about some.",
        "",
        "| program | imports | runs | arrays that agree | gradients that agree | what stops it, or why it differs |",
        "|---|---|---|---|---|---|",
        *map(str, rows),
    ]
    return "\n".join(lines) + "\n"


def write(text: str) -> None:
    """Put the section into RESULTS.md, behind what else is there."""
    file = Path(__file__).with_name("RESULTS.md")
    before = file.read_text().partition(TITLE)[0].rstrip() if file.exists() else ""
    file.write_text(f"{before}\n\n{TITLE}\n\n{HEAD}\n{text}")


HEAD = """What `python -m tests.coverage.programs --write` found: the example programs of warp-lang 1.19
with `import warp` made the workbench, at small sizes, beside Warp itself.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.coverage.programs")
    parser.add_argument("--only", default="", metavar="PART")
    parser.add_argument("--frames", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = []
    for path in files(given.only):
        rows.append(compared(path, given.frames, given.seconds, given.show))
        print(rows[-1], flush=True)
    print(table(rows).partition("\n")[0])
    if given.write:
        write(table(rows))


if __name__ == "__main__":
    main()

"""Every system of every benchmark computes the same loss and the same gradient, which is that of the loss."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import chart, cubin, hand, mpm, nbody, report, springs, wave
from benchmarks.compare import TOLERANCE, check, slope
from benchmarks.workload import Data, System, Workload

pytestmark = pytest.mark.needs_cc

WORKLOADS: dict[str, Workload] = {module.WORKLOAD.name: module.WORKLOAD for module in (wave, springs, mpm, nbody)}
NEEDS = {"JAX": pytest.mark.needs_jax, "torch": pytest.mark.needs_torch}
CASES = [
    pytest.param(name, system, marks=NEEDS.get(system, ()))
    for name, workload in WORKLOADS.items()
    for system in workload.systems
]
WIDTHS = [np.float32, np.float64]


def made(name: str, system: str, dtype: Any, data: Data | None = None) -> System:
    workload = WORKLOADS[name]
    data = workload.data(workload.tiny, dtype) if data is None else data
    contender = workload.systems[system](workload.tiny, data)
    if contender is None:
        pytest.skip(f"{system} is not here")
    return contender


@cache
def reference(name: str, dtype: Any) -> System:
    system = made(name, "c", dtype)
    system.both()
    return system


@pytest.mark.slow
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize(("name", "system"), CASES)
def test_every_system_has_the_loss_and_the_gradients_of_the_hand_written_adjoint(name, system, dtype):
    contender = made(name, system, dtype)
    contender.forward()
    alone = contender.loss()
    contender.both()
    check(system, contender, reference(name, dtype), TOLERANCE[np.dtype(dtype).name])
    assert alone == pytest.approx(contender.loss(), rel=TOLERANCE[np.dtype(dtype).name])
    # A second call starts from the data again: nothing is left over from the first.
    contender.both()
    check(f"{system}, once more", contender, reference(name, dtype), TOLERANCE[np.dtype(dtype).name])


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_hand_written_adjoint_is_the_slope_of_the_loss(name, seed):
    system = reference(name, np.float64)
    random, data = np.random.default_rng(seed), WORKLOADS[name].data(WORKLOADS[name].tiny, np.float64)
    along = {leaf: random.standard_normal(data[leaf].shape) for leaf in system.gradients()}
    losses = []
    for step in (1e-5, -1e-5):
        moved = made(name, "c", np.float64, data | {leaf: data[leaf] + step * along[leaf] for leaf in along})
        moved.forward()
        losses.append(moved.loss())
    size = np.sqrt(sum(float((gradient**2).sum()) for gradient in system.gradients().values()))
    assert size > 0
    assert abs((losses[0] - losses[1]) / 2e-5 - slope(system, along)) <= 1e-6 * size


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_gradient_of_a_benchmark_is_there_to_be_wrong(name):
    for leaf, gradient in reference(name, np.float64).gradients().items():
        assert np.abs(gradient).max() > 0, leaf


def test_a_system_that_computes_something_else_is_named():
    class Wrong:
        def __init__(self, system: System) -> None:
            self.loss = system.loss
            self.gradients = lambda: {leaf: 1.001 * g for leaf, g in system.gradients().items()}

    right = reference("wave", np.float32)
    with pytest.raises(AssertionError, match="Wrong: gradient of p0 is off by"):
        check("Wrong", Wrong(right), right, TOLERANCE["float32"])  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_report_of_one_small_run_has_a_ratio_for_every_system():
    command = ["-m", "tests.benchmarks", "--workloads", "wave", "--sizes", "tiny", "--systems", "workbench"]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, *command, "--rounds", "2", "--memory"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("| c |", "| workbench |", "| wave tiny |"))]
    assert [line.count("|") for line in lines] == [7, 7, 3], done.stdout
    assert lines[0].split(" | ")[3] == "1.00 (1.00)"


def test_fast_math_in_a_contender_leaves_the_numbers_of_everybody_else_alone():
    text = (
        "import numpy as np; from benchmarks.hand import FAST, build; build('nbody', 'float', FAST);"
        "print(np.float32(1e-38) * np.float32(0.01) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_taichi_leaves_the_numbers_of_everybody_else_alone_and_says_nothing():
    made("wave", "Taichi", np.float32)  # a skip where it is not here
    text = (
        "import numpy as np; from benchmarks.wave import WORKLOAD as w;"
        "w.systems['Taichi'](w.tiny, w.data(w.tiny, np.float32)).both();"
        "print(np.float32(1e-38) * np.float32(0.01) > 0)"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_taichi_system_outlives_the_next_one():
    first = made("springs", "Taichi", np.float32)
    first.both()
    made("wave", "Taichi", np.float64).both()
    check("Taichi", first, reference("springs", np.float32), TOLERANCE["float32"])
    first.both()
    check("Taichi, once more", first, reference("springs", np.float32), TOLERANCE["float32"])


def test_a_report_takes_the_place_of_the_one_before_and_of_nothing_else(tmp_path):
    rows = [report.Row("wave", "S", 4096, 256, ["torch"]), report.Row("wave", "M", 65536, 256)]
    for row in rows:
        row.both, row.forward = {"c": [0.5, 1.0], "JAX": [1.0, 4.0]}, {"c": [0.5, 0.5], "JAX": [1.5, 1.5]}
    once = report.replaced("# Measurements\n\nearlier\n", report.section(rows, "an old command", "0.10"))
    twice = report.replaced(once + "\n## Later\n", report.section(rows, "the command", "0.10"))
    assert twice.startswith("# Measurements\n\nearlier\n\n" + report.BEGIN) and twice.endswith("\n## Later\n")
    assert "an old command" not in twice and twice.count(report.BEGIN) == twice.count(report.END) == 1
    assert "| wave S | 3.00 (3.00) |" in twice and "Not here: torch." in twice
    chart.draw(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


MACHINE_CODE = """\
\t.section\t.text.kernel,"ax",@progbits
.text.kernel:
        /*0000*/                   S2R R0, SR_CTAID.X ;
        /*0010*/               @P0 EXIT ;
.L_x_1:
        /*0020*/                   IADD3 R0, R0, 1, RZ ;
.L_x_2:
        /*0030*/                   FADD R1, R1, R2 ;
        /*0040*/               @P1 BRA `(.L_x_2) ;
        /*0050*/               @P2 BRA `(.L_x_1) ;
        /*0060*/                   EXIT ;
.L_x_3:
        /*0070*/                   BRA `(.L_x_3);
        /*0080*/                   NOP;
$kernel$slow_path:
        /*0090*/                   FADD R1, R1, R2 ;
        /*00a0*/                   EXIT ;
"""


def test_instructions_are_counted_to_the_last_exit_and_those_of_inner_loops_apart():
    assert cubin.counted(MACHINE_CODE.splitlines()) == (7, 2)


def test_bytes_are_those_of_the_arrays_that_a_launch_on_a_gpu_touches():
    made = {e.function.name: e for e in cubin.functions("wave", "tiny")}
    assert made.keys() == {"wave", "wave_adjoint", "misfit", "misfit_adjoint"}
    assert all(e.form.backend == "cuda" for e in made.values())
    assert cubin.traffic(made["wave"]) == 12  # two fields read, one written
    assert cubin.traffic(made["wave_adjoint"]) == 24  # three of adjoints, each read and written
    assert cubin.traffic(made["misfit"]) == pytest.approx(2 * 4 * 12 + 2 * 4 / 12)


def test_the_report_names_the_instructions_that_c_may_use(monkeypatch):
    monkeypatch.setattr(hand, "LEFT_OUT", [])
    monkeypatch.setenv("CC", "")
    assert "(" not in hand.instruction_set()
    hand.leave_out(["avx512f"])
    assert hand.instruction_set().endswith("(without avx512f)") and os.environ["CC"] == "gcc -mno-avx512f"

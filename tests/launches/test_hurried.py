"""Short launches run unoptimised code at first: the same bits, and the optimised code takes over where it pays."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from tests import corpus
from workbench.kernels.compile import c_library
from workbench.launches import thresholds

pytestmark = pytest.mark.needs_cc


@pytest.fixture
def hurry(monkeypatch, tmp_path):
    """Launches of fewer than 30,000 statements may run unoptimised, and nothing is compiled so far."""
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(c_library, "_loaded", {})
    monkeypatch.setattr(thresholds, "HURRIED_BELOW", 30_000)
    monkeypatch.setattr(wb.config, "backend", "c")


def functions(unoptimised: bool) -> list[c_library.Compiled]:
    """What was loaded: the unoptimised functions, or the others."""
    return [made for made in c_library._loaded.values() if (made.optimised is not None) == unoptimised]


def taken_over(made: c_library.Compiled) -> bool:
    """True once it hands its calls on, which is waited for."""
    for _ in range(6000):
        if made.optimised is not None and made.optimised.value:
            return True
        time.sleep(0.01)
    return False


def pulled():
    @wb.kernel
    def pull(x: wb.array[wb.vec3], k: float, y: wb.array[wb.vec3]):
        i = wb.tid()
        r = wb.length(x[i]) + 0.1
        y[i] = x[i] * (k / (r * r)) + wb.vec3(wb.sin(x[i][0]), wb.exp(-r), wb.pow(r, 0.3))

    return pull


def test_a_short_launch_and_its_adjoint_are_compiled_unoptimised_and_are_right(hurry):
    pull, start = pulled(), np.linspace(0.2, 1.4, 12).reshape(4, 3).astype(np.float32)
    x, y = wb.array(start, dtype=wb.vec3, requires_grad=True), wb.zeros(4, dtype=wb.vec3)
    with wb.Tape() as tape:
        wb.launch(pull, 4, [x, 2.0], [y])
    tape.backward(grads={y: wb.ones_like(y)})
    assert len(functions(unoptimised=True)) == 2 and not functions(unoptimised=False)

    def total(at):
        r = np.linalg.norm(at, axis=1) + 0.1
        return (at * (2.0 / r**2)[:, None]).sum() + (np.sin(at[:, 0]) + np.exp(-r) + r**0.3).sum()

    for n in np.ndindex(4, 3):
        step = np.zeros((4, 3))
        step[n] = 1e-5
        assert x.grad.numpy()[n] == pytest.approx((total(start + step) - total(start - step)) / 2e-5, rel=1e-4)


def test_what_runs_for_long_is_optimised_and_gives_the_same_bits(hurry, monkeypatch):
    pull, x = pulled(), wb.array(np.linspace(-1, 2, 30).reshape(10, 3), dtype=wb.vec3)
    first, y = wb.zeros(10, dtype=wb.vec3), wb.zeros(10, dtype=wb.vec3)
    monkeypatch.setattr(thresholds, "OPTIMISED_FROM", 3)
    for _ in range(3):  # the launch that compiles it is not counted
        wb.launch(pull, 10, [x, 2.0], [first])
    (made,) = functions(unoptimised=True)
    assert made.ran == 2 and not made.awaited
    wb.launch(pull, 10, [x, 2.0], [y])
    assert made.awaited and taken_over(made)
    wb.launch(pull, 10, [x, 2.0], [y])
    assert made.ran == 3  # no longer counted
    assert y.numpy().tobytes() == first.numpy().tobytes() and functions(unoptimised=False)


def test_a_captured_launch_is_optimised_and_its_replays_follow(hurry):
    pull, x, y = pulled(), wb.array(np.linspace(-1, 2, 30).reshape(10, 3), dtype=wb.vec3), wb.zeros(10, dtype=wb.vec3)
    with wb.capture() as graph:
        wb.launch(pull, 10, [x, 2.0], [y])
    (made,) = functions(unoptimised=True)
    graph.launch()
    before = y.numpy().copy()
    assert taken_over(made)
    y.zero_()
    graph.launch()
    assert y.numpy().tobytes() == before.tobytes() and before.any()


@wb.kernel
def serial(n: wb.array[int], y: wb.array[float]):
    for k in range(n[0]):
        y[k] = float(k)


@wb.kernel
def halved(x: wb.array[float]):
    while x[0] > 1.0:
        x[0] = x[0] / 2.0


@wb.kernel
def plain(y: wb.array[float]):
    i = wb.tid()
    y[i] = 2.0 * y[i] + 1.0


@pytest.mark.parametrize("kernel, dim", [(serial, 1), (halved, 1), (plain, 20_000)])
def test_launches_that_may_take_long_are_optimised_at_once(kernel, dim, hurry):
    y = wb.ones(dim)
    wb.launch(kernel, dim, [wb.array([1], dtype=int), y] if kernel is serial else [y])
    assert functions(unoptimised=False) and not functions(unoptimised=True)


def test_a_long_launch_of_a_kernel_that_ran_unoptimised_is_optimised(hurry):
    """In the same variant of its text: a launch's size alone tells which code it runs."""
    again = wb.Kernel(plain.func)
    wb.launch(again, 10, [wb.ones(10)])
    y = wb.ones(20_000)
    wb.launch(again, 20_000, [y])
    assert len(functions(unoptimised=True)) == len(functions(unoptimised=False)) == 1
    assert (y.numpy() == 3).all()


@wb.func
def ten(x: float):
    x = x * 1.01 + 0.1
    x = x * 1.02 + 0.2
    x = x * 1.03 - 0.3
    x = x * 0.97 - 0.1
    return x * 0.98 + 0.1


@wb.func
def hundred(x: float):
    return ten(ten(ten(ten(ten(ten(ten(ten(ten(ten(x))))))))))


@wb.kernel
def long_text(y: wb.array[float]):
    i = wb.tid()
    y[i] = hundred(hundred(hundred(hundred(hundred(hundred(hundred(hundred(hundred(hundred(y[i]))))))))))
    y[i] = hundred(hundred(hundred(hundred(hundred(hundred(y[i]))))))


@pytest.mark.parametrize("dim, unoptimised", [(25, True), (100, False)])
def test_a_long_text_runs_unoptimised_where_few_threads_run_it(dim, unoptimised, hurry):
    """1,600 statements: 25 threads are 40,000 of them, for which compilers would take seconds."""
    y = wb.ones(dim)
    wb.launch(wb.Kernel(long_text.func), dim, [y])
    assert len(functions(unoptimised)) == 1 and not functions(not unoptimised)
    wanted = np.float32(1)
    for a, b in [(1.01, 0.1), (1.02, 0.2), (1.03, -0.3), (0.97, -0.1), (0.98, 0.1)] * 160:
        wanted = wanted * np.float32(a) + np.float32(b)
    assert (y.numpy() == wanted).all()


SAMPLED = [name for k, name in enumerate(corpus.load()) if k % 12 == 0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SAMPLED)
def test_unoptimised_code_gives_the_bits_of_optimised_code(name, hurry, monkeypatch):
    results = []
    for below in 30_000, 0:
        monkeypatch.setattr(thresholds, "HURRIED_BELOW", below)
        program = replace(corpus.load()[name], made={})
        arrays = program.arrays(wb.float32, program.start())
        try:
            with wb.Tape() as tape:
                program.run(wb.float32, arrays)
            tape.backward(grads={a: wb.ones_like(a) for a in arrays.values() if a.requires_grad})
        except wb.GradientError:
            pytest.skip("has no gradient")
        both = [b for a in arrays.values() for b in (a, a.grad) if b is not None]
        results.append([b.numpy().tobytes() for b in both])
    assert results[0] == results[1]


PROGRAM = """
import os
import workbench as wb
from workbench.launches import thresholds

thresholds.OPTIMISED_FROM = 1

@wb.kernel
def step(x: wb.array[float]):
    i = wb.tid()
    x[i] = x[i] * 0.5 + 1.0

x = wb.zeros(10)
for _ in range(3):
    wb.launch(step, 10, [x])
child = os.fork()
wb.launch(step, 10, [x])
os.write(1, f"{x.numpy()[0]}\\n".encode())
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


def run(folder: Path, compiler: str) -> subprocess.CompletedProcess:
    """A program that compiles optimised code by this script of a shell."""
    (folder / "program.py").write_text(PROGRAM)
    cc = folder / "gcc"
    cc.write_text(f'#!/bin/sh\ncase "$*" in *-O0*|*-###*) exec cc "$@";; esac\n{compiler}\n')
    cc.chmod(0o700)
    set = {"CC": str(cc), "WORKBENCH_CACHE": str(folder / "cache"), "PYTHONPATH": str(Path(wb.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", str(folder / "program.py")]
    return subprocess.run(command, env={**os.environ, **set}, capture_output=True, text=True, check=True, timeout=300)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="scripts of a shell, and fork")
def test_a_process_that_ends_meanwhile_leaves_optimised_code_and_nothing_else(tmp_path):
    """And a child that it has forked meanwhile goes on without."""
    done = run(tmp_path, 'sleep 1; exec cc "$@"')
    assert done.stdout.split() == ["1.875"] * 2 and not done.stderr
    assert sorted(file.suffix for file in (tmp_path / "cache").iterdir()) == [".so", ".so"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="scripts of a shell, and fork")
def test_a_compiler_that_fails_then_is_told_of_once(tmp_path):
    done = run(tmp_path, "echo no such instruction >&2; exit 1")
    assert done.stdout.split() == ["1.875"] * 2
    assert done.stderr.count("stays unoptimised") == 1 and "no such instruction" in done.stderr

"""The CUDA text of every kernel of the corpus, and of its whole adjoint, becomes machine code without a GPU.

float32 kernels are compiled as a launch on a GPU would: contiguous, 32-bit indices, atomic shadows. float64 kernels are
compiled in the most general form: strides, bounds checks, 64-bit indices. Times go to the test report.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from corpus import PROGRAMS, Program, load

import workbench as wb
from workbench.kernels import compile_cuda, emit_cuda
from workbench.kernels.emit import Variant
from workbench.kernels.ir import Function, walk
from workbench.kernels.ops import memory as rows

pytestmark = pytest.mark.needs_nvrtc
load()


@pytest.fixture(autouse=True)
def empty_cache(tmp_path):
    wb.config.cache_dir = tmp_path
    yield
    wb.config.reset()


def functions(program: Program, F) -> Iterator[tuple[Function, Variant]]:
    """Every function that a recorded run of the program executes, forwards and backwards."""
    wb.config.backend = "numpy"
    arrays, tape = program.arrays(F, program.start()), wb.Tape()
    with tape:
        program.run(F, arrays)
    plans = {(id(e.command.program), e.command.plan.groups): e.command.plan for e in tape.events if e.kind == "launch"}
    assert plans, "the program launches nothing"
    for plan in plans.values():
        written = {plan.program.leaves[k].name for k, _ in plan.writes}
        groups = tuple(g for g in plan.groups if g & written)
        reverse = plan.program.reverse(plan.program.floats, groups)
        for function in filter(None, (plan.program.function, reverse.function, reverse.count)):
            yield function, variant(function, F, bool(plan.groups))


def variant(function: Function, F, overlap: bool) -> Variant:
    names = frozenset(p.name for p in function.arrays)
    updated = frozenset(root(s) for s in walk(function.body) if s.row is rows.ACCUMULATE or s.row in rows.ATOMICS)
    if F is wb.float64:
        return Variant(check_bounds=True, restrict=False, atomic=updated, index32=False)
    return Variant(contiguous=names, restrict=not overlap, atomic=updated, index32=True)


def root(stmt) -> str:
    value = stmt.args[0]
    while value.stmt is not None:
        value = value.stmt.args[0]
    return value.name


def compiled(program: Program, F, arch: str, report) -> None:
    for function, chosen in functions(program, F):
        text = emit_cuda.text(function, chosen)
        start = time.perf_counter()
        cubin = compile_cuda.to_cubin(text, arch)
        report(f"nvrtc_ms {arch} {program}.{function.name}", round(1e3 * (time.perf_counter() - start)))
        assert cubin[:4] == b"\x7fELF" and function.name.encode() in cubin


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_a_kernel_and_its_adjoint_become_a_cubin(program: Program, arch: str, record_testsuite_property):
    compiled(program, program.dtypes[0], arch, record_testsuite_property)


GENERAL = [p for p in PROGRAMS.values() if not p.name.startswith("function_")]


@pytest.mark.parametrize("program", GENERAL, ids=str)
def test_the_general_form_in_float64_becomes_a_cubin(program: Program, record_testsuite_property):
    compiled(program, wb.float64, "sm_90", record_testsuite_property)

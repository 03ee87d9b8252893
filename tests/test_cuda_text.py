"""The CUDA text of every kernel of the corpus, and of its whole adjoint, becomes machine code without a GPU.

float32 kernels are compiled as a launch on a GPU would: contiguous, 32-bit indices, atomic shadows. float64 kernels are
compiled in the most general form: strides, bounds checks, 64-bit indices. Nothing may be spilled: local memory holds
what `local_memory` names and nothing else. Times, registers and local memory go to the test report.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from corpus import PROGRAMS, Program, load

import workbench as wb
from workbench.kernels import compile_cuda, cubin, emit_cuda
from workbench.kernels.compile_c import without_comments
from workbench.kernels.emit import Variant, c_name
from workbench.kernels.ir import Function, walk
from workbench.kernels.ops import control
from workbench.kernels.ops import memory as rows
from workbench.kernels.types import Stack

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
        code = compile_cuda.to_cubin(text, arch)
        report(f"nvrtc_ms {arch} {program}.{function.name}", round(1e3 * (time.perf_counter() - start)))
        found = cubin.resources(code)
        assert list(found) == [c_name(function.name)]
        (taken,) = found.values()
        report(f"resources {arch} {program}.{function.name}", f"{taken.registers} registers, {taken.local} bytes")
        assert taken.local <= local_memory(function, text)


def local_memory(function: Function, text: str) -> int:
    """Bytes of local memory that a thread may take: where neither stack, print nor sine is, none.

    Stacks of known height keep what a reversed loop of known length needs; a print, its arguments. CUDA's sine, cosine
    and tangent have room for the product of a huge argument and 2/pi: 28 bytes in float32, 40 in float64. Vectors and
    matrices take none, even where an index of a component is computed.
    """
    stacks = [s.attr for s in walk(function.body) if isinstance(s.attr, Stack) and s.attr.capacity is not None]
    kept = sum(s.capacity * s.dtype.itemsize + 8 for s in stacks)
    printed = sum(8 * a.type.size for s in walk(function.body) if s.row is control.PRINTF for a in s.args)
    return kept + -(-printed // 16) * 16 + 40 * bool(re.search(r"\b(sin|cos|tan)f?\(", without_comments(text)))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=str)
def test_a_kernel_and_its_adjoint_become_a_cubin(program: Program, arch: str, record_testsuite_property):
    compiled(program, program.dtypes[0], arch, record_testsuite_property)


GENERAL = [p for p in PROGRAMS.values() if not p.name.startswith("function_")]


@pytest.mark.parametrize("program", GENERAL, ids=str)
def test_the_general_form_in_float64_becomes_a_cubin(program: Program, record_testsuite_property):
    compiled(program, wb.float64, "sm_90", record_testsuite_property)


HEAVY = """
extern "C" __global__ void heavy(float *p, int n) {
    float v[64];
    for (int k = 0; k < 64; ++k) v[k] = p[k * n];
    __syncthreads();
    for (int k = 0; k < 64; ++k) p[k * n] = v[63 - k] * v[k * 7 % 64];
}
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_registers_and_local_memory_are_those_that_the_assembler_reports(arch: str):
    for most, spills in ((255, False), (24, True)):
        options = (f"--gpu-architecture={arch}", f"--maxrregcount={most}", "--ptxas-options=-v")
        code, log = built(HEAVY, options)
        (taken,) = cubin.resources(code).values()
        assert taken.registers == int(re.search(r"Used (\d+) registers", log)[1])
        assert taken.local == int(re.search(r"(\d+) bytes stack frame", log)[1])
        assert (taken.local > 0) == spills == (" 0 bytes spill stores" not in log)


def built(text: str, options: tuple[str, ...]) -> tuple[bytes, str]:
    library = compile_cuda.nvrtc()
    program = library.createProgram(text, "heavy.cu", (), ())
    library.compileProgram(program, options)
    try:
        return library.getCUBIN(program), library.getProgramLog(program)
    finally:
        library.destroyProgram(program)


def test_what_is_no_cubin_is_refused():
    with pytest.raises(ValueError, match="not a cubin"):
        cubin.resources(b"\x7fELF\x01")


@wb.kernel
def squares(x: wb.array(dtype=wb.vec3), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = wb.dot(x[i], x[i])


def test_a_kernel_tells_what_it_takes():
    taken = squares.resources
    assert list(taken) == ["squares", "squares_adjoint"]
    assert all(8 <= r.registers <= 40 and r.local == 0 for r in taken.values())


@wb.kernel
def chosen(x: wb.array(dtype=wb.mat33), n: wb.array(dtype=int), y: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    m = x[i]
    m[n[0], n[1]] = m[n[1], n[2]] * m[0, n[0]]
    v = y[i]
    v[n[2]] += m[n[0], 2]
    y[i] = v * m


def test_components_chosen_at_run_time_take_no_local_memory():
    assert {r.local for r in chosen.resources.values()} == {0}

"""The CUDA text of every kernel of the corpus, and of its whole adjoint, becomes machine code without a GPU.

float32 kernels are compiled as a launch on a GPU would: contiguous, 32-bit indices, atomic shadows; for two GPUs, by
turns. A third of them, in float64, are compiled in the most general form: strides, bounds checks, 64-bit indices.
Nothing may be spilled: local memory holds what `local_memory` names and nothing else. Times, registers and local memory
go to the test report.
"""

from __future__ import annotations

import re
import time
from itertools import cycle

import pytest
from corpus import PROGRAMS, Program, load

import workbench as wb
from tests.support.recorded import functions
from workbench.kernels.compile import cubin, nvrtc as compile_cuda
from workbench.kernels.compile.disk_cache import without_comments
from workbench.kernels.emit import cuda as emit_cuda
from workbench.kernels.emit.c_names import c_name
from workbench.kernels.emit.signature import Signature, Variant
from workbench.kernels.ir import Function, walk
from workbench.kernels.ops import control
from workbench.kernels.program import on_gpu
from workbench.kernels.types import Stack

pytestmark = pytest.mark.needs_nvrtc
load()


@pytest.fixture(autouse=True)
def empty_cache(tmp_path):
    wb.config.cache_dir = tmp_path


# All functions of rotations in one kernel: its adjoint carries a slope beside each that is singular.
CROWDED = ("rotations", "interpolation_between_equal_rotations")


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
        assert taken.local <= local_memory(function, text) or (program.name in CROWDED and taken.registers == 255)


def local_memory(function: Function, text: str) -> int:
    """Bytes of local memory that a thread may take: where neither stack, print nor sine is, none.

    Stacks of known height keep what a reversed loop of known length needs; a print, its arguments. CUDA's sine, cosine
    and tangent have room for the product of a huge argument and 2/pi: 28 bytes in float32, 40 in float64. Vectors and
    matrices take none, even where an index of a component is computed.
    """
    stacks = [s.attr for s in walk(function.body) if isinstance(s.attr, Stack) and s.attr.capacity is not None]
    kept = sum(s.capacity * s.dtype.itemsize + 8 for s in stacks)
    printed = sum(8 * a.type.size for s in walk(function.body) if s.row is control.PRINTF for a in s.args)
    return kept + -(-printed // 16) * 16 + 40 * bool(re.search(r"\b(wb_)?(sin|cos|tan)f?\(", without_comments(text)))


@pytest.mark.sampled
@pytest.mark.parametrize(("program", "arch"), list(zip(PROGRAMS.values(), cycle(["sm_90", "sm_80"]))), ids=str)
def test_a_kernel_and_its_adjoint_become_a_cubin(program: Program, arch: str, record_testsuite_property):
    compiled(program, program.dtypes[0], arch, record_testsuite_property)


GENERAL = [p for p in PROGRAMS.values() if not p.name.startswith("function_")][::3]  # the text differs in a type


@pytest.mark.sampled
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


@pytest.mark.slow
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


@pytest.mark.parametrize("small", [wb.int8, wb.uint8])
def test_numbers_of_a_byte_for_which_a_gpu_has_no_atomics_are_shown_as_plain_sums(small):
    @wb.kernel
    def counts(x: wb.array(dtype=small), y: wb.array(dtype=float)):
        i = wb.tid()
        x[i] += small(1)
        y[i] += 1.0

    adds = [line for line in counts.cuda.splitlines() if "&x[i]" in line or "&y[i]" in line]
    assert len(adds) == 2 and "wb_plain_add" in adds[0] and "plain" not in adds[1]
    assert counts.resources["counts"].local == 0


# ---- sums before atomics


@wb.kernel
def one_loss(x: wb.array(dtype=float), w: wb.array(dtype=wb.vec3), loss: wb.array(dtype=float)):
    i = wb.tid()
    if x[i] > 0.0:
        wb.atomic_add(loss, 0, wb.dot(w[0], w[1]) * x[i])


@wb.kernel
def one_row(x: wb.array2d(dtype=float), a: wb.array(dtype=float), y: wb.array(dtype=float)):
    i, j = wb.tid()
    for k in range(3):
        y[i] -= x[i, j] * a[k]


@wb.kernel
def by_index(x: wb.array(dtype=float), n: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(y, n[i], x[n[i]])
    wb.atomic_add(y, i // 2, x[i // 2])


@wb.kernel
def recalled(x: wb.array(dtype=float), count: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(count, 1, 1)
    before = wb.atomic_add(y, 0, x[i])
    x[i] = before


@wb.kernel
def read_again(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(y, 0, x[i])
    x[i] = y[0]


SUMS = re.compile("wb_(warp|block)_add")


def body(kernel: wb.Kernel, form: Variant | None = None) -> str:
    """The entry of a kernel's CUDA text, of a launch whose arrays are all contested."""
    function = kernel.program().function
    names = frozenset(p.name for p in function.arrays)
    text = emit_cuda.text(function, form or Variant(contiguous=names, restrict=True, atomic=names, index32=True))
    assert compile_cuda.resources(text, "sm_75")[c_name(function.name)].local == 0
    return without_comments(text.split("__global__", 1)[1])


def test_what_all_threads_add_to_one_cell_a_block_adds_once():
    text = body(one_loss)
    loop, end = text.split("wb_block_add(wb_place0, wb_sum0);")
    assert text.index("float wb_sum0 = 0.0f;") < text.index("for (uint32_t wb_thread") < text.index("wb_sum0 +=")
    assert "wb_place0 = &loss[0];" in loop and end.strip() == "}" and "atomic" not in text


def test_the_end_of_a_block_is_reached_by_all_its_threads():
    text = body(one_loss)
    closed = next(line for line in text.splitlines() if line.startswith("    wb_block_add"))
    assert closed and "return" not in text


def test_an_adjoint_sums_the_gradient_of_a_shared_parameter_before_it_adds():
    text = without_comments(str(one_loss.cuda)).split("__global__")[-1]
    assert text.count("wb_block_add(") == 2 and "wb_sum0.c[wb_c] += " in text and "wb_sum1.c[wb_c] += " in text
    assert "wb_atomic_add_float32(&d_x[i]" in text


def test_what_a_warp_mostly_adds_to_one_cell_it_adds_once():
    assert "wb_warp_add(&y[i], -" in body(one_row) and "wb_block_add" not in body(one_row)
    adjoint = without_comments(str(one_row.cuda)).split("__global__")[-1]
    assert re.search(r"wb_warp_add\(&d_a\[\w+\], \w+\)", adjoint)


def test_what_each_thread_adds_elsewhere_is_added_plainly():
    text = body(by_index)
    assert text.count("wb_atomic_add_float32(") == 2 and not SUMS.search(text)


def test_an_old_value_that_is_read_and_integers_are_added_plainly():
    text = body(recalled)
    assert "= wb_atomic_add_float32(&y[0]" in text and "wb_atomic_add_int32(&count[1]" in text
    assert not SUMS.search(text)


def test_memory_that_is_read_again_or_seen_through_two_names_does_not_wait_for_the_end():
    assert "wb_warp_add(&y[0], " in body(read_again) and "wb_block_add" not in body(read_again)
    shared = frozenset({"x", "w", "loss"})
    text = body(one_loss, Variant(contiguous=shared, restrict=False, atomic=shared))
    assert "wb_warp_add(&loss[0], " in text and "wb_block_add" not in text


def test_what_no_other_thread_adds_to_is_no_atomic():
    text = body(one_loss, Variant(restrict=True))
    assert "wb_plain_add_float32" in text and not SUMS.search(text)


@wb.kernel
def two_cells(x: wb.array(dtype=float), a: int, b: int, loss: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(loss, a, x[i])
    wb.atomic_add(loss, b, 2.0 * x[i])
    wb.atomic_add(loss, 0, 3.0 * x[i])
    wb.atomic_add(loss, b, 4.0 * x[i])
    wb.atomic_add(loss, 0, 5.0 * x[i])


def test_each_cell_has_a_sum_of_its_own():
    text = body(two_cells)
    cells = [re.findall(rf"wb_place{k} = &loss\[(\w+)\];", text) for k in range(4)]
    assert [len(found) for found in cells] == [1, 2, 2, 0]
    assert len({found[0] for found in cells[:3]}) == 3 and all(len({*found}) == 1 for found in cells[:3])


@wb.kernel
def many_parameters(x: wb.array(dtype=float), a: wb.array(dtype=wb.mat44), b: wb.array(dtype=float)):
    i = wb.tid()
    for r in range(4):
        for c in range(4):
            wb.atomic_add(b, r, a[0][r, c] * x[i])


def test_more_sums_than_registers_are_taken_in_the_warp():
    text = without_comments(str(many_parameters.cuda)).split("__global__")[-1]
    assert text.count("wb_block_add(") <= 1
    assert many_parameters.resources["many_parameters_adjoint"].local == 0


def test_bounds_are_checked_where_a_sum_grows():
    names = frozenset({"x", "w", "loss"})
    text = body(one_loss, Variant(restrict=True, atomic=names, checked=frozenset(range(9))))
    guard = text.index("if (wb_in(0, loss_n0))")
    assert guard < text.index("wb_place0 = &") < text.index("wb_sum0 +=") < text.index("wb_block_add(wb_place0")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_60", "sm_70", "sm_75", "sm_90"])
def test_the_sums_become_machine_code_for_every_gpu(arch: str):
    for kernel in (one_loss, one_row):
        for text in kernel._texts(emit_cuda.text):
            assert {r.local for r in compile_cuda.resources(text, arch).values()} == {0}


# ---- whole vectors


@wb.kernel
def scaled(
    x: wb.array(dtype=wb.vec4),
    q: wb.array(dtype=wb.quat),
    m: wb.array(dtype=wb.mat44),
    v: wb.array(dtype=wb.vec3),
    y: wb.array2d(dtype=wb.vec4),
):
    i, j = wb.tid()
    y[i, j] = m[i] * x[j] * q[i][0] + wb.vec4(v[j][0], v[j][1], v[j][2], 1.0)


def form(function: Function, **options) -> Variant:
    return Variant(contiguous=frozenset(p.name for p in function.arrays), restrict=True, index32=True, **options)


def ptx(text: str) -> str:
    library = compile_cuda.nvrtc()
    program = library.createProgram(text, "kernel.cu", (), ())
    library.compileProgram(program, ("--gpu-architecture=compute_80", *compile_cuda.OPTIONS))
    try:
        found = library.getPTX(program)
        return found if isinstance(found, str) else found.decode()
    finally:
        library.destroyProgram(program)


def test_aligned_vectors_are_moved_in_whole_words():
    function = scaled.program().function
    code = ptx(emit_cuda.text(function, form(function, aligned=True)))
    assert code.count("ld.global.nc.v4.f32") >= 5 and code.count("st.global.v4.f32") == 1
    code = ptx(emit_cuda.text(function, form(function)))
    assert not re.search(r"\.global\S*\.v[24]\.", code)


def test_an_own_vector_of_a_shadow_is_increased_in_whole_words():
    function = scaled.program().reverse(scaled.program().floats).function
    text = emit_cuda.text(function, form(function, aligned=True))
    assert re.search(r"wb_store<float, 4>\(&d_x\[j\], more\w*\);", text) and "d_v" in text
    assert compile_cuda.resources(text, "sm_90")["scaled_adjoint"].local == 0


def test_strided_arrays_and_vectors_of_odd_size_are_moved_by_component():
    function = scaled.program().function
    text = emit_cuda.text(function, Variant(aligned=True, restrict=True))
    assert "wb_load" not in text and "wb_store" not in text
    text = emit_cuda.text(function, form(function, aligned=True))
    assert "wb_load<float, 4>(&x[j])" in text and "= v[j]" in text


def test_words_are_as_wide_as_elements_allow():
    found = [emit_cuda.word(t) for t in (wb.vec2, wb.vec3, wb.vec4, wb.quat, wb.mat22, wb.mat33, wb.mat44, wb.float32)]
    assert found == [8, 0, 16, 16, 16, 0, 16, 0]
    assert [emit_cuda.word(t) for t in (wb.vec2d, wb.vec3d, wb.vec4d, wb.vec4h, wb.vec2h)] == [16, 0, 16, 8, 0]


def test_the_pointers_are_found_where_the_block_of_arguments_has_them():
    function = scaled.program().function
    values = [v for p in function.arrays for v in (1000 + ord(p.name), *(1,) * 2 * p.type.ndim)]
    packed = Signature(function).pack((1, 1), values)
    wide = emit_cuda.wide_pointers(function, form(function))
    assert [(int.from_bytes(packed[at : at + 8], "little"), n) for at, n in wide] == [
        (1000 + ord(name), 16) for name in "xqmy"
    ]
    assert emit_cuda.wide_pointers(function, Variant()) == ()


@wb.kernel
def behind_numbers(n: int, v: wb.vec3, x: wb.array(dtype=wb.vec4), d: wb.float64, y: wb.array(dtype=wb.vec4)):
    i = wb.tid()
    y[i] = float(d) * x[i + n] * v[0]


def test_the_pointers_are_found_behind_numbers():
    function = behind_numbers.program().function
    packed = Signature(function).pack((1,), [3, 0.5, 0.25, 0.125, 1000, 1, 16, 2.0, 2000, 1, 16])
    wide = emit_cuda.wide_pointers(function, form(function))
    assert [(int.from_bytes(packed[at : at + 8], "little"), n) for at, n in wide] == [(1000, 16), (2000, 16)]


def test_a_launch_takes_whole_words_where_its_arrays_begin_at_them(monkeypatch):
    function, made = scaled.program().function, []

    class Noted:
        def __init__(self, text, name):
            made.append(("wb_load<float, 4>" in text, name))

        def launch(self, packed, cells, stream=0):
            made.append(cells)

    monkeypatch.setattr(compile_cuda, "load", Noted)
    fitting = on_gpu(function, form(function))
    for cells, start in enumerate((1024, 1040, 1028, 2048)):
        values = [v for p in function.arrays for v in (start if p.name == "q" else 512, *(1,) * 2 * p.type.ndim)]
        fitting.launch(Signature(function).pack((1, 1), values), cells, stream=3)
    assert made == [(True, "scaled"), 0, 1, (False, "scaled"), 2, 3]


# ---- the grid


@wb.kernel
def pairs(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i, j = wb.tid()
    y[i % 4] = x[j % 4]


def test_cells_are_counted_in_32_bits_only_where_there_are_few_enough():
    x, y = wb.zeros(4), wb.zeros(4)
    few = wb.launch(pairs, dim=(2**15, 2**16 - 1), inputs=[x, y], record_cmd=True)
    many = wb.launch(pairs, dim=(2**15, 2**16), inputs=[x, y], record_cmd=True)
    assert few.plan.form.index32 and not many.plan.form.index32
    function = pairs.program().function
    loop = "for (uint32_t wb_thread = wb_worker; wb_thread < wb_total;"
    assert loop in emit_cuda.text(function, form(function)) and loop not in emit_cuda.text(function)

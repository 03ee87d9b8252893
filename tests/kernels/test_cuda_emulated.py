"""What the CUDA texts compute, with a processor in the place of a GPU: sums in warps and blocks, words, the grid."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from corpus import PROGRAMS, load

import workbench as wb
from tests.support.emulated import Machine, run_cuda_texts
from workbench.kernels.emit import cuda as emit_cuda
from workbench.kernels.emit.signature import Variant

pytestmark = pytest.mark.needs_cxx
load()
NAMES = """
    atomic_add_to_few_cells atomics_in_loops atomics_on_vectors_and_components a_grid_of_four_axes a_stencil
    rows_reduced_by_a_loop matrix_components_at_run_time_indices_in_loops component_writes_in_a_loop
    break_and_continue_inside_nested_ifs_in_nested_loops dynamic_product an_atomic_then_a_read_in_one_thread
    quaternion_constructors overlapping_views_in_loops_with_atomics extremes_that_feed_a_loss
    singular_values transform_builtins parts_of_transforms_in_memory spatial_builtins rotations
    noise_of_coordinates atomics_on_bits
    names_of_shadows_and_tangents names_of_companions_of_extremes names_of_the_text names_of_fields
    claims_that_hold literals_take_the_type_beside_them
    names_assigned_under_the_condition_they_are_read_under
    slices_written_and_added_to rows_chosen_by_branches_and_loops local_arrays_of_vectors_and_structs
""".split()


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Machine:
    return Machine(tmp_path_factory.mktemp("emulated"))


@pytest.fixture
def texts(machine, monkeypatch) -> list[str]:
    """From here on the C backend runs CUDA texts; what it has run."""
    return run_cuda_texts(machine, monkeypatch)


def gradients(program, F, backend: str) -> dict[str, np.ndarray]:
    """Contents and gradients after a run, forwards and backwards, all float arrays seeded."""
    wb.config.backend = backend
    arrays, tape = program.arrays(F, program.start()), wb.Tape()
    with tape:
        program.run(F, arrays)
    found = {name: a.numpy().astype(float) for name, a in arrays.items()}
    floats = {name: a for name, a in arrays.items() if wb.types.is_float(a.dtype)}
    rng = np.random.default_rng(7)
    seeds = {
        a: wb.array(rng.uniform(-1, 1, a.numpy().shape).astype(a.numpy().dtype), dtype=a.dtype) for a in floats.values()
    }
    tape.backward(grads=seeds)
    return found | {f"d_{name}": a.grad.numpy().astype(float) for name, a in floats.items()}


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:.*overw:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_program_computes_on_an_emulated_gpu_what_the_interpreter_does(name, texts, monkeypatch):
    program, F = PROGRAMS[name], wb.float64
    monkeypatch.setattr(program, "made", {})
    got = gradients(program, F, "c")
    assert texts, "no CUDA text has run"
    program.made.clear()
    want = gradients(program, F, "numpy")
    for key, values in want.items():
        np.testing.assert_allclose(got[key], values, rtol=1e-10, atol=1e-10, err_msg=key)


@wb.kernel
def chosen(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    v = wb.vec2(wb.exp(x[i]), x[i])
    y[i] = wb.where(x[i] > 20.0, x[i], wb.log(1.0 + v[0]) + wb.dot(v, v) * wb.length(v))


def test_an_adjoint_of_zero_passes_an_infinite_slope_as_zero(texts):
    wb.config.backend = "c"
    x, y = wb.array([113.0, 200.0], dtype=float, requires_grad=True), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(chosen, 2, [x], [y])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    np.testing.assert_array_equal(x.grad.numpy(), [1.0, 1.0])
    assert len(texts) == 2


def weighted() -> wb.Kernel:
    """A new one each time, so that nothing is compiled yet."""

    @wb.kernel
    def weighted(
        x: wb.array(dtype=wb.vec4), w: wb.array(dtype=wb.vec4), y: wb.array(dtype=wb.vec4), loss: wb.array(dtype=float)
    ):
        i = wb.tid()
        y[i] = wb.cw_mul(x[i], w[0])
        if i % 3 != 0:
            wb.atomic_add(loss, 0, wb.dot(x[i], w[0]))
            wb.atomic_sub(loss, 1, x[i][2])

    return weighted


@pytest.mark.sampled
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("n", [1, 31, 64, 500])
def test_sums_over_blocks_and_whole_words_are_exact(n: int, aligned: bool, texts):
    wb.config.backend = "c"
    shift = 0 if aligned else 1
    buffer = np.zeros(4 * n + 8, np.float32)
    first = (-buffer.ctypes.data // 4) % 4 + shift
    data = buffer[first : first + 4 * n].reshape(n, 4)
    data[...] = np.random.default_rng(n).integers(-8, 8, (n, 4)) / 4
    x = wb.array(data, dtype=wb.vec4, requires_grad=True, copy=False)
    w = wb.array([[0.5, 1.0, -2.0, 4.0]], dtype=wb.vec4, requires_grad=True)
    y, loss = wb.zeros(n, dtype=wb.vec4, requires_grad=True), wb.zeros(2, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(weighted(), dim=n, inputs=[x, w], outputs=[y, loss])
    tape.backward(grads={loss: wb.array([1.0, 2.0]), y: wb.ones(n, dtype=wb.vec4)})
    some = np.arange(n) % 3 != 0
    np.testing.assert_array_equal(loss.numpy(), [(data @ w.numpy()[0])[some].sum(), -data[some, 2].sum()])
    np.testing.assert_array_equal(y.numpy(), data * w.numpy())
    np.testing.assert_array_equal(w.grad.numpy()[0], data.sum(0) + data[some].sum(0))
    np.testing.assert_array_equal(x.grad.numpy(), w.numpy() + some[:, None] * (w.numpy() - [[0.0, 0.0, 2.0, 0.0]]))
    forward = texts[0]
    assert forward.count("wb_block_add(wb_place") == 2 and ("= wb_load<float, 4>(&x[" in forward) == aligned


MEET = """
typedef struct {{ float *p; const unsigned *together; const int *place; int *adds; }} meet_args;
static int *wb_adds;
static void wb_noted(float *p, float v) {{ __atomic_fetch_add(wb_adds, 1, 5); atomicAdd(p, v); }}
#define atomicAdd wb_noted
{sums}
#undef atomicAdd
extern "C" __global__ void meet(const meet_args args) {{
    unsigned here = args.together[threadIdx.x];
    wb_adds = args.adds;
    if (!here) return;
    emu_together(here);
    wb_warp_add(args.p + args.place[threadIdx.x], (float)(1 + threadIdx.x));
}}
"""


@pytest.mark.slow
def test_the_threads_that_are_together_add_once_where_they_meet_in_one_cell(machine):
    meet = machine.entry("#define WB_FN static inline\n" + MEET.format(sums=emit_cuda.WARP_SUM), "meet")
    rng = np.random.default_rng(0)
    for turn in range(60):
        groups = np.zeros(64, int) if turn == 0 else rng.integers(0, rng.integers(1, 5), 64)
        together, place, adds = np.zeros(64, np.uint32), np.zeros(64, np.int32), np.zeros(1, np.int32)
        expected, want = np.zeros(8, np.float32), 0
        for warp in (range(32), range(32, 64)):
            for g in set(groups[list(warp)].tolist()):
                lanes = [k for k in warp if groups[k] == g]
                together[lanes] = sum(1 << k % 32 for k in lanes)
                place[lanes] = rng.integers(8) if rng.random() < 0.7 else rng.integers(0, 8, len(lanes))
                want += 1 if len(set(place[lanes].tolist())) == 1 else len(lanes)
        np.add.at(expected, place, np.arange(1, 65, dtype=np.float32))
        cells = np.zeros(8, np.float32)
        machine.launch(meet, struct.pack("4Q", *(a.ctypes.data for a in (cells, together, place, adds))), 1)
        np.testing.assert_array_equal(cells, expected)
        assert adds[0] == want


def test_an_emulated_text_that_is_wrong_is_seen(machine):
    function = weighted().program().function
    text = emit_cuda.text(function, Variant(atomic=frozenset({"loss"}), restrict=True))
    broken = text.replace("v += __shfl_xor_sync", "v = __shfl_xor_sync")
    assert broken != text
    found = []
    for each in (text, broken):
        arrays = [np.ones((40, 4), np.float32), np.ones((1, 4), np.float32), np.zeros((40, 4), np.float32), np.zeros(2)]
        arrays[3] = arrays[3].astype(np.float32)
        values = [v for a in arrays for v in (a.ctypes.data, a.shape[0], a.strides[0])]
        packed = emit_cuda.Signature(function).pack((40,), values)
        machine.launch(machine.entry(each, "weighted"), packed)
        found.append(arrays[3].tolist())
    assert found[0] == [4.0 * 26, -26.0] and found[1] != found[0]

"""Tiles: every operation against differences in float64, on the interpreter, on C, and as CUDA with real threads."""

from __future__ import annotations

import re
import runpy
from dataclasses import replace

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS
from tests.support.emulated import Emulated, Machine
from tests.support.tile_kernels import KERNELS as NUMBERS
from tests.support.tile_vector_kernels import FORMS, KERNELS as VECTORS
from workbench.kernels.compile import nvrtc
from workbench.kernels.emit import cuda as emit_cuda
from workbench.kernels.emit.signature import Variant
from workbench.kernels.program import Program
from workbench.launches import thresholds

KERNELS = {**NUMBERS, **VECTORS}
PLAIN = (wb.float64, (9, 7), wb.float64, (8, 8))


def form(kernel) -> tuple:
    return FORMS.get(kernel.key, PLAIN)


def drawn(seed: int, dtype, shape) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (*shape, *dtype.shape))


def given(kernel) -> np.ndarray:
    return drawn(5, *form(kernel)[:2])


def weights(kernel) -> np.ndarray:
    return drawn(6, *form(kernel)[2:])


def arrays(kernel, values: np.ndarray | None = None, **more) -> tuple:
    of, _, to, shape = form(kernel)
    return wb.array(given(kernel) if values is None else values, dtype=of, **more), wb.zeros(shape, dtype=to)


def weighted(kernel):
    return wb.array(weights(kernel), dtype=form(kernel)[2])


def launched(kernel, x, y) -> None:
    wb.launch_tiled(kernel, dim=(2, 2), inputs=[x], outputs=[y], block_dim=64)


def run(kernel, values: np.ndarray) -> np.ndarray:
    x, y = arrays(kernel, values)
    launched(kernel, x, y)
    return y.numpy().copy()


def gradient(kernel) -> tuple[np.ndarray, np.ndarray]:
    x, y = arrays(kernel, requires_grad=True)
    with wb.Tape() as tape:
        launched(kernel, x, y)
    tape.backward(grads={y: weighted(kernel)})
    return x.grad.numpy().copy(), y.numpy().copy()


def differences(kernel) -> np.ndarray:
    values, seed = given(kernel), weights(kernel)
    found = np.zeros_like(values)
    for at in np.ndindex(values.shape):
        step = np.zeros_like(values)
        step[at] = 1e-6
        found[at] = ((run(kernel, values + step) - run(kernel, values - step)) * seed).sum() / 2e-6
    return found


@pytest.mark.needs_cc
@pytest.mark.parametrize("name", KERNELS)
def test_the_gradient_is_that_of_differences(name):
    wb.config.backend = "c"
    np.testing.assert_allclose(gradient(KERNELS[name])[0], differences(KERNELS[name]), rtol=1e-6, atol=1e-7)


@pytest.mark.needs_cc
@pytest.mark.parametrize("name", KERNELS)
def test_the_interpreter_and_c_agree(name):
    found = []
    for backend in ("numpy", "c"):
        wb.config.backend = backend
        found.append(gradient(KERNELS[name]))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_tangent_is_the_transpose_of_the_adjoint(name, backend):
    wb.config.backend = backend
    kernel = KERNELS[name]
    x, y = arrays(kernel, requires_grad=True)
    with wb.Tape() as tape:
        launched(kernel, x, y)
    direction = drawn(8, *form(kernel)[:2])
    moved = wb.jvp(tape, {x: wb.array(direction, dtype=form(kernel)[0])})[y]
    tape.backward(grads={y: weighted(kernel)})
    assert (moved * weights(kernel)).sum() == pytest.approx((x.grad.numpy() * direction).sum(), rel=1e-10)


@pytest.fixture(scope="module", params=[7])
def machine(tmp_path_factory, request) -> Machine:
    return Machine(tmp_path_factory.mktemp("emulated"), request.param)


@pytest.mark.needs_cxx
@pytest.mark.parametrize("name", KERNELS)
def test_the_threads_of_a_block_compute_what_the_interpreter_does(name, machine, monkeypatch):
    made: dict = {}

    def executable(program, function, backend, variant, *_):
        key = function, variant
        if key not in made:
            made[key] = Emulated(machine, function, replace(variant, index32=True, inner=None))
        return made[key]

    wb.config.backend = "numpy"
    want = gradient(KERNELS[name])
    monkeypatch.setattr(Program, "executable", executable)
    monkeypatch.setattr(Program, "prepare", lambda *_: None)
    monkeypatch.setattr(thresholds, "PARALLEL_FROM", 1 << 60)
    wb.config.backend = "c"
    KERNELS[name]._program = None  # its plans know other executables
    got = gradient(KERNELS[name])
    KERNELS[name]._program = None
    assert made
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("name", KERNELS)
def test_the_cuda_text_becomes_machine_code(name):
    program = KERNELS[name].program()
    for function in (program.function, program.reverse(program.floats).function):
        names = frozenset(p.name for p in function.arrays)
        text = emit_cuda.text(function, Variant(contiguous=names, restrict=True, atomic=names, index32=True))
        assert nvrtc.to_cubin(text, "sm_90")
        # the next block that these threads run writes to the same tiles
        assert re.search(r"for \(\w+ wb_thread = .*__syncthreads\(\);\n    \}\n\}\n*$", text, re.DOTALL)


@wb.kernel
def picks(x: wb.array2d[float], at: wb.array[int], y: wb.array[float]):
    t = wb.tile_load(x, shape=(4, 4))
    t[at[0], 1] = 2.0
    y[0] = t[1, at[1]] + wb.tile_view(t, offset=(at[2], 0), shape=(2, 2))[0, 0]


@wb.kernel
def picks_by_data(x: wb.array2d[float], at: wb.array[int], y: wb.array[float]):
    t = wb.tile_load(x, shape=(4, 4))
    y[0] = t[at[0], at[1]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("at", [(3, -4), (4, 0), (0, 4), (-5, 0)])
def test_an_element_whose_indices_all_come_from_data_lies_in_the_tile_or_is_an_error(at, backend):
    wb.config.backend = backend
    given = np.arange(16, dtype=np.float32).reshape(4, 4)
    y = wb.zeros(1)
    args = [wb.array(given), wb.array(at, dtype=int), y]
    if all(-4 <= k < 4 for k in at):
        wb.launch_tiled(picks_by_data, dim=1, inputs=args, block_dim=32)
        assert y.item() == given[at]
    else:
        with pytest.raises(wb.BoundsError, match=r"outside shape \(4, 4\)"):
            wb.launch_tiled(picks_by_data, dim=1, inputs=args, block_dim=32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("at", [(-4, 3, 2), (4, 0, 0), (0, -5, 0), (0, 0, 3), (0, 0, -1)])
def test_an_element_outside_of_a_tile_is_an_error(at, backend):
    wb.config.backend = backend
    x, y = wb.ones((4, 4), dtype=float), wb.zeros(1, dtype=float)
    if at == (-4, 3, 2):
        return wb.launch_tiled(picks, dim=1, inputs=[x, wb.array(at, dtype=int), y])
    with pytest.raises(wb.BoundsError, match=r"(?s)'t'.*test_tiles.py"):
        wb.launch_tiled(picks, dim=1, inputs=[x, wb.array(at, dtype=int), y])


@wb.kernel
def running(x: wb.array2d[float], y: wb.array[float]):
    t = wb.tile_load(x, shape=(64, 8))
    for k in range(1, 64):
        if t[k, 0] > 0.0:
            t[k, 1] = t[k - 1, 1] + t[k, 0]
        t[k, 2] += t[k - 1, 2]
    wb.tile_store(y, wb.tile_sum(t, axis=0))


def test_elements_are_changed_without_copies_of_the_tile():
    text = str(running.c)
    assert "WB_TILE(wb_k, 512)" not in text[: text.index("running_adjoint")]


@pytest.mark.parametrize("name", ["elements", "products", "vector_elements"])
def test_every_view_of_a_tape_with_tiles_can_be_had(name, tmp_path):
    x, y = arrays(KERNELS[name], requires_grad=True)
    with wb.Tape() as tape:
        launched(KERNELS[name], x, y)
    tape.backward(grads={y: weighted(KERNELS[name])})
    (event,) = [e for e in tape.events if e.kind == "launch"]
    assert str(tape.show()) and str(tape.diagnose()) and str(tape.memory()) and str(tape.microscope(event, (0, 1)))
    assert str(tape.ledger(x, (1, 1, 0)[: x.numpy().ndim]))
    assert str(KERNELS[name].adjoint) and str(KERNELS[name].cuda)


@pytest.mark.parametrize(
    ("line", "slug"),
    [
        ("v = wb.tile_broadcast(t[0:1], shape=(4, 4)); v[0, 0] = 1.0", "tile-alias"),
        ("u = t + wb.tile_zeros(shape=(2, 4), dtype=float)", "tile-shape"),
        ("u = wb.tile_load(x, shape=(4, x.shape[0]))", "tile-shape"),
        ("u = wb.tile_load(x, shape=(4, 4), offset=(0, -1))", "tile-offset"),
        ("u = wb.tile_matmul(t, wb.tile_view(t, offset=(0, 0), shape=(2, 4)))", "tile-shape"),
        ("u = t[4, 0]", "component-range"),
        ("u = wb.tile_squeeze(t[1:2], axis=1)", "tile-shape"),
        ("u = wb.tile_squeeze(t[1:2], axis=2)", "tile-shape"),
        ("u = wb.tile_squeeze(t[1:2], axis=-3)", "tile-shape"),
        ("u = wb.tile_squeeze(t[1:2], axis=(0, 1))", "tile-shape"),
        ("u = wb.tile_load(x, shape=4)", "rank"),
        ("u = wb.sin(t)", "tile-operand"),
    ],
)
def test_what_a_tile_cannot_do_is_refused_at_its_line(line, slug, tmp_path):
    head = "import workbench as wb\n\n\n@wb.kernel\ndef odd(x: wb.array2d[float]):\n"
    text = f"{head}    t = wb.tile_load(x, shape=(4, 4))\n    {line}\n"
    path = tmp_path / "odd_tiles.py"
    path.write_text(text)
    scope = runpy.run_path(str(path))
    with pytest.raises(wb.KernelError, match=r"(?s)odd_tiles.py:7.*\[" + slug):
        scope["odd"].program()


@wb.func
def first_raised(t: wb.tile[float, 4, 4]):
    t[0, 0] += 1.0
    return t * 2.0


PART = "wb.tile_view(t, offset=(0, 0), shape=(2, 2))"


@pytest.mark.parametrize(
    "lines",
    [
        ("u = t if c else t * 2.0", "u[0, 0] = 1.0  # here", "wb.tile_store(x, t)"),
        ("u = wb.tile_transpose(t if c else t * 2.0)", "t[0, 0] = 1.0  # here", "wb.tile_store(x, u)"),
        (
            "v = t[0:2, 0:2]  * 1.0",
            "for k in range(n):",
            "    v[0, 0] = 1.0  # here",
            f"    v = {PART}",
            "wb.tile_store(x, t)",
        ),
        (
            "v = wb.tile_zeros(shape=(2, 2), dtype=float)",
            "if c:",
            f"    v = {PART}",
            "t[0, 0] = 1.0  # here",
            "wb.tile_store(x, v)",
        ),
        (
            "v = wb.tile_zeros(shape=(2, 2), dtype=float)",
            "for k in range(n):",
            "    if c:",
            f"        v = {PART}",
            "    t[0, 0] += v[1, 1]  # here",
        ),
        (
            "v = wb.tile_zeros(shape=(2, 2), dtype=float)",
            "k = int(0)",
            "while k < n:",
            f"    v = {PART}",
            "    k += 1",
            "v += v  # here",
            "wb.tile_store(x, t)",
        ),
        (
            "a = t * 3.0",
            "for k in range(n):",
            "    for l in range(n):",
            "        a[0, 0] = 1.0  # here",
            "    a = wb.tile_transpose(t)",
        ),
        ("wb.tile_store(x, t + first_raised(t))  # here",),
    ],
)
def test_a_change_in_place_is_refused_where_a_name_that_is_read_later_may_show_it(lines, tmp_path):
    head = "import workbench as wb\nfrom test_tiles import first_raised\n\n@wb.kernel\n"
    head += "def odd(x: wb.array2d[float], n: int):\n"
    body = ("t = wb.tile_load(x, shape=(4, 4))", "c = x[0, 0] > 0.0", *lines)
    path = tmp_path / "merged_tiles.py"
    path.write_text(head + "".join(f"    {line}\n" for line in body))
    place = 6 + next(k for k, line in enumerate(body) if line.endswith("here"))
    with pytest.raises(wb.KernelError, match=rf"(?s)merged_tiles.py:{place}.*\[tile-alias"):
        runpy.run_path(str(path))["odd"].program()


@pytest.mark.parametrize(
    "lines",
    [
        ("u = t if c else t * 2.0", "u[0, 0] = 1.0", "wb.tile_store(x, u)"),
        (
            "v = wb.tile_zeros(shape=(2, 2), dtype=float)",
            "if c:",
            f"    v = {PART}",
            "s = v[0, 0]",
            "t[0, 0] = s",
            f"v = {PART}",
            "wb.tile_store(x, v)",
            "wb.tile_store(x, t)",
        ),
        (
            "for k in range(n):",
            "    a = wb.tile_load(x, shape=(4, 4))",
            "    b = a if c else a * 2.0",
            "    b[k, 0] = 1.0",
            "    if b[0, 0] > 2.0:",
            "        continue",
            "    wb.tile_store(x, b)",
        ),
        (
            "u = t * 1.0 if c else t",
            "for k in range(n):",
            "    if k == 2:",
            "        t[0, 0] = 1.0",
            "        break",
            "    wb.tile_store(x, u)",
        ),
    ],
)
def test_a_name_that_is_not_read_later_may_show_what_is_changed(lines, tmp_path):
    head = "import workbench as wb\n\n\n@wb.kernel\ndef odd(x: wb.array2d[float], n: int):\n"
    body = ("t = wb.tile_load(x, shape=(4, 4))", "c = x[0, 0] > 0.0", *lines)
    path = tmp_path / "dead_tiles.py"
    path.write_text(head + "".join(f"    {line}\n" for line in body))
    assert runpy.run_path(str(path))["odd"].program()


@wb.kernel
def own_tiles(x: wb.array2d[float], n: int, y: wb.array2d[float]):
    t = wb.tile_load(x, shape=(4, 4))
    u = t * 0.0
    for k in range(n):
        if t[k, 0] > 0.0:
            u = t * 1.0
        t[k, 1] = t[k, 0]
        u[0, k] += t[k, 1]
        t, u = u, t
    wb.tile_store(y, u)


def test_tiles_of_their_own_are_changed_in_branches_and_loops():
    assert own_tiles.program()


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_that_begin_before_an_array_and_indices_beside_an_offset(backend):
    @wb.kernel
    def picked(x: wb.array2d[float], rows: wb.array[int], y: wb.array2d[float]):
        i, j = wb.tid()
        part = wb.tile_load_indexed(x, wb.tile_load(rows, shape=4), shape=(4, 2), offset=(i * 4, j * 2), axis=0)
        wb.tile_store(y, part, offset=(i * 4, j * 2))

    @wb.kernel
    def moved(x: wb.array2d[float], first: int, z: wb.array2d[float]):
        wb.tile_store(z, wb.tile_load(x, shape=(4, 4), offset=(first, 0)))

    wb.config.backend = backend
    rng = np.random.default_rng(0)
    values, seed, rows = rng.normal(size=(8, 4)), rng.normal(size=(8, 4)), [3, 0, -1, 9]
    y_of, slope = np.zeros((8, 4)), np.zeros((8, 4))
    slope[:2] += 1
    for k in range(8):
        row = k // 4 * 4 + rows[k % 4]
        if 0 <= row < 8:
            y_of[k] = values[row]
            slope[row] += seed[k]
    x, y, z = wb.array(values, dtype=float, requires_grad=True), wb.zeros((8, 4)), wb.zeros((4, 4))
    with wb.Tape() as tape:
        wb.launch_tiled(picked, dim=[2, 2], inputs=[x, wb.array(rows, dtype=int)], outputs=[y], block_dim=32)
        wb.launch_tiled(moved, dim=[1], inputs=[x, -2], outputs=[z], block_dim=32)
        tape.backward(grads={y: wb.array(seed, dtype=float), z: wb.ones((4, 4))})
    np.testing.assert_allclose(y.numpy(), y_of, atol=1e-6)
    np.testing.assert_allclose(z.numpy(), [*np.zeros((2, 4)), *values[:2]], atol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), slope, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_of_float16_and_products_that_do_not_read_their_output(backend):
    @wb.kernel
    def half(a: wb.array2d[wb.float16], c: wb.array2d[wb.float16]):
        t = wb.tile_load(a, shape=(8, 8))
        wb.tile_store(c, wb.tile_matmul(t, t))

    @wb.kernel
    def fresh(a: wb.array2d[float], c: wb.array2d[float]):
        t, out = wb.tile_load(a, shape=(8, 8)), wb.tile_full(shape=(8, 8), value=wb.nan, dtype=float)
        wb.tile_matmul(t, t, out, alpha=2.0, beta=0.0)
        wb.tile_store(c, out)

    wb.config.backend = backend
    values = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float16)
    wide, ones = values.astype(float), np.ones((8, 8))
    for kernel, dtype, by in ((half, wb.float16, 1), (fresh, wb.float32, 2)):
        a, c = wb.array(values, dtype=dtype, requires_grad=True), wb.zeros((8, 8), dtype=dtype)
        with wb.Tape() as tape:
            wb.launch_tiled(kernel, dim=[1], inputs=[a], outputs=[c], block_dim=32)
            tape.backward(grads={c: wb.ones_like(c)})
        np.testing.assert_allclose(c.numpy(), by * wide @ wide, atol=0.01)
        np.testing.assert_allclose(a.grad.numpy(), by * (ones @ wide.T + wide.T @ ones), atol=0.01)


def test_factors_of_float16_are_refused():
    @wb.kernel
    def k(a: wb.array2d[wb.float16]):
        wb.tile_store(a, wb.tile_cholesky(wb.tile_load(a, shape=(4, 4))))

    with pytest.raises(wb.KernelError, match="takes float32 or float64"):
        wb.launch_tiled(k, dim=[1], inputs=[wb.ones((4, 4), dtype=wb.float16)], block_dim=32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_func_of_elements_is_called_as_anywhere_else(backend):
    """A parameter left out has its default; a func that calls itself is refused."""

    @wb.func
    def scaled(x: float, k: float = 3.0):
        return k * x * x

    @wb.func
    def endless(x: float) -> float:
        return endless(x)

    @wb.kernel
    def run(x: wb.array[float], y: wb.array[float]):
        wb.tile_store(y, wb.tile_map(scaled, wb.tile_load(x, shape=4)))

    @wb.kernel
    def turns(x: wb.array[float]):
        wb.tile_store(x, wb.tile_map(endless, wb.tile_load(x, shape=4)))

    wb.config.backend = backend
    x, y = wb.array([1.0, 2.0, 3.0, 4.0], requires_grad=True), wb.zeros(4)
    with wb.Tape() as tape:
        wb.launch_tiled(run, dim=[1], inputs=[x], outputs=[y], block_dim=32)
    tape.backward(grads={y: wb.ones(4)})
    assert y.list() == [3.0, 12.0, 27.0, 48.0]
    assert x.grad.list() == [6.0, 12.0, 18.0, 24.0]
    with pytest.raises(wb.KernelError, match="endless` calls itself"):
        wb.launch_tiled(turns, dim=[1], inputs=[x], block_dim=32)

"""What a launch on a GPU is made of, with its CUDA text on an emulated one: the grid's axes, adjoints that pull."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest

import workbench as wb
from tests.support.emulated import BLOCK, Machine, install_gpu
from workbench.kernels.compile import nvrtc
from workbench.kernels.emit import cuda as emit_cuda
from workbench.kernels.emit.signature import MAX_RANK, Signature, Variant, divisors
from workbench.launches import thresholds

pytestmark = pytest.mark.needs_cxx
GPU = "cuda:0"


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Machine:
    return Machine(tmp_path_factory.mktemp("emulated"))


@pytest.fixture
def texts(machine, monkeypatch) -> list[str]:
    """From here on there is a GPU; the CUDA texts that it has run."""
    return install_gpu(machine, monkeypatch)


def test_a_product_with_the_reciprocal_is_the_quotient():
    edges = [1, 2, 3, 5, 7, 255, 256, 257, 641, 65535, 65536, 65537, 46341, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1]
    dims = np.array([*edges, *np.random.default_rng(0).integers(1, 2**31, 400)], np.uint64)
    for d in dims.tolist():
        factor, shift = struct.unpack_from("=2I", divisors((d,)))
        assert factor < 2**32
        multiples = d * np.unique(np.linspace(0, (2**31 - 1) // d, 300).astype(np.uint64))
        n = np.concatenate([multiples, multiples[1:] - np.uint64(1), [2**31 - 1]]).astype(np.uint64)
        two = np.uint64(2)
        np.testing.assert_array_equal((two * n * np.uint64(factor) >> np.uint64(32)) >> np.uint64(shift), n // d)


def test_every_axis_has_divisors_whatever_its_extent():
    assert len(divisors((4,))) == len(divisors((0, 1, 5, 2**31 - 1))) == 8 * MAX_RANK
    assert divisors((4,)) == divisors((4, 1, 1, 1))


@wb.kernel
def places1(out: wb.array(dtype=int)):
    i = wb.tid()
    out[i] = i + 1


@wb.kernel
def places2(out: wb.array2d(dtype=int)):
    i, j = wb.tid()
    out[i, j] = i * 100 + j + 1


@wb.kernel
def places3(out: wb.array3d(dtype=int)):
    i, j, k = wb.tid()
    out[i, j, k] = (i * 100 + j) * 100 + k + 1


@wb.kernel
def places4(out: wb.array4d(dtype=int)):
    i, j, k, m = wb.tid()
    out[i, j, k, m] = ((i * 100 + j) * 100 + k) * 100 + m + 1


GRIDS = [
    [(70,), (1,)],
    [(3, 7), (1, 9), (9, 1), (13, 16)],
    [(4, 5, 3), (1, 1, 6), (2, 8, 1)],
    [(2, 3, 4, 5), (7, 1, 3, 1)],
]


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_each_thread_has_its_own_place_in_the_grid(rank: int, texts):
    kernel = (places1, places2, places3, places4)[rank - 1]
    for dims in GRIDS[rank - 1]:
        out = wb.zeros(dims, dtype=int, device=GPU)
        wb.launch(kernel, dims, outputs=[out])
        axes = np.indices(dims)
        want = sum(a * 100**k for k, a in enumerate(axes[::-1])) + 1
        np.testing.assert_array_equal(out.numpy(), want)
    assert ("wb_over" in texts[0]) == (rank > 1) and " / " not in texts[0][texts[0].index("wb_thread") :]


def test_a_grid_without_threads_is_not_launched(texts):
    for dims in itertools.product((0, 2), (0, 3)):
        out = wb.zeros((2, 3), dtype=int, device=GPU)
        wb.launch(places2, dims, outputs=[out])
        assert out.numpy().any() == all(dims)


@wb.kernel
def corner(row: int, column: int, out: wb.array(dtype=int)):
    i, j = wb.tid()
    if i == row and j >= column:
        out[j - column] = j - column + 1


@pytest.mark.parametrize("dims", [(3, 2**30), (2**24 + 1, 200), (2, 2**30 - 1), (46340, 46341)])
def test_the_last_threads_of_the_largest_grids_have_their_places(dims: tuple[int, int], machine):
    function, total = corner.program().function, dims[0] * dims[1]
    variant = Variant(contiguous=frozenset({"out"}), restrict=True, index32=total < 2**31)
    text = emit_cuda.text(function, variant)
    assert ("wb_over" in text) == (total < 2**31)
    entry = machine.entry(text, "corner")
    blocks, out = -(-total // BLOCK), np.zeros(128, np.int32)
    packed = Signature(function).pack(dims, [dims[0] - 1, dims[1] - 128, out.ctypes.data, 128, 4]) + divisors(dims)
    machine.launch(entry, packed, blocks, blocks - 3)
    np.testing.assert_array_equal(out, np.arange(1, 129))


def bordered() -> wb.Kernel:
    """A new one each time, of which nothing is planned yet."""

    @wb.kernel
    def bordered(u: wb.array3d(dtype=wb.float64), out: wb.array3d(dtype=wb.float64)):
        i, j, k = wb.tid()
        left, up = wb.float64(0.0), wb.float64(0.0)
        if i > 1:
            left = u[i - 2, j, k]
        if k < u.shape[2] - 1:
            up = u[i, j, k + 1]
        out[i, j, k] = u[i, j, k] + wb.float64(3.0) * left + wb.float64(5.0) * up * up

    return bordered


@pytest.mark.parametrize("dims", [(6, 3, 9), (5, 3, 4), (2, 3, 9), (6, 3, 1)])
def test_cells_inside_the_border_have_a_text_without_its_tests(dims: tuple[int, int, int], texts, monkeypatch):
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    shape = (6, 3, 9) if dims[2] > 1 else dims
    start = np.random.default_rng(2).uniform(0.5, 1.5, shape)
    u, out = wb.array(start, dtype=wb.float64, device=GPU), wb.zeros(shape, dtype=wb.float64, device=GPU)
    wb.launch(bordered(), dims, [u], [out])
    left, up = np.zeros(shape), np.zeros(shape)
    left[2:], up[:, :, :-1] = start[:-2], start[:, :, 1:]
    want = np.zeros(shape)
    inside = tuple(slice(n) for n in dims)
    want[inside] = (start + 3 * left + 5 * up * up)[inside]
    np.testing.assert_array_equal(out.numpy(), want)
    assert "wb_within(wb_at0" in texts[0] and " else {" in texts[0]


# ---- adjoints that pull


def stencil() -> wb.Kernel:
    """A new one each time, of which nothing is planned yet."""

    @wb.kernel
    def spread(u: wb.array2d(dtype=wb.float64), c: wb.float64, out: wb.array2d(dtype=wb.float64)):
        i, j = wb.tid()
        if i > 0 and i < u.shape[0] - 1 and j > 0 and j < u.shape[1] - 1:
            out[i, j] = u[i - 1, j] * u[i + 1, j] + c * u[i, j + 1]

    return spread


def short_stencil() -> wb.Kernel:
    @wb.kernel
    def ahead(u: wb.array(dtype=wb.float64), out: wb.array(dtype=wb.float64)):
        i = wb.tid()
        out[i] = u[i] * u[i + 2] - u[i + 1] * u[i + 1]

    return ahead


def spread_of(u: np.ndarray) -> np.ndarray:
    out = np.zeros_like(u)
    out[1:-1, 1:-1] = u[:-2, 1:-1] * u[2:, 1:-1] + 0.3 * u[1:-1, 2:]
    return out


def ahead_of(u: np.ndarray) -> np.ndarray:
    return u[:-2] * u[2:] - u[1:-1] ** 2


def differences(value, x: np.ndarray) -> np.ndarray:
    """Central differences of a number by each element."""
    out = np.zeros_like(x)
    for k in np.ndindex(*x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[k] += sign * 1e-4
            out[k] += sign * value(moved) / 2e-4
    return out


def two_steps(start: np.ndarray, seed: np.ndarray, device: str) -> tuple[np.ndarray, wb.Tape]:
    """The gradient of `(seed * spread(spread(u))).sum()` by u."""
    u, first, last = (wb.array(a, dtype=wb.float64, device=device) for a in (start, 0 * start, 0 * start))
    u.requires_grad = True
    spread = stencil()
    with wb.Tape() as tape:
        wb.launch(spread, u.shape, [u, 0.3], [first])
        wb.launch(spread, u.shape, [first, 0.3], [last])
    tape.backward(grads={last: wb.array(seed, dtype=wb.float64, device=device)})
    return u.grad.numpy(), tape


def test_the_adjoint_of_a_stencil_pulls_on_a_gpu_too(texts, monkeypatch):
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    rng = np.random.default_rng(3)
    start, seed = rng.uniform(0.5, 1.5, (2, 9, 7))
    found, tape = two_steps(start, seed, GPU)
    assert all(e.reverse.pull is not None for e in tape.events if e.kind == "launch")
    pulls = [t for t in texts if "spread_adjoint_pull(" in t]
    assert all("wb_within(wb_at1" in t for t in pulls), "the cells of the border have a text of their own"
    assert pulls and not any("atomicAdd(" in t for t in texts)
    wb.config.backend = "c"
    same, _ = two_steps(start, seed, "cpu")
    np.testing.assert_array_equal(found, same)
    expected = differences(lambda u: (seed * spread_of(spread_of(u))).sum(), start)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


def test_below_the_threshold_the_threads_of_a_gpu_add(texts, monkeypatch):
    monkeypatch.setattr(thresholds, "PULL_FROM", 64)
    start, seed = np.random.default_rng(4).uniform(0.5, 1.5, (2, 9, 7))
    found, _ = two_steps(start, seed, GPU)
    assert any("atomicAdd(" in t for t in texts)
    expected = differences(lambda u: (seed * spread_of(spread_of(u))).sum(), start)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("before", [False, True])
def test_a_pull_reaches_cells_beyond_the_grid_and_adds_to_what_is_there(before: bool, texts, monkeypatch):
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    start = np.random.default_rng(5).uniform(0.5, 1.5, 70)
    seed, more = np.linspace(1, 2, 68), np.linspace(-1, 1, 68)
    u = wb.array(start, dtype=wb.float64, device=GPU, requires_grad=True)
    outs = [wb.zeros(68, dtype=wb.float64, device=GPU) for _ in range(1 + before)]
    ahead = short_stencil()
    with wb.Tape() as tape:
        for out in outs:
            wb.launch(ahead, 68, [u], [out])
    seeds = [wb.array(s, dtype=wb.float64, device=GPU) for s in (seed, more)]
    tape.backward(grads=dict(zip(outs, seeds, strict=False)))
    assert all(e.reverse.pull is not None for e in tape.events if e.kind == "launch")
    total = seed + more * before
    expected = differences(lambda x: (total * ahead_of(x)).sum(), start)
    np.testing.assert_allclose(u.grad.numpy(), expected, rtol=0, atol=1e-8)
    again = u.grad.numpy()
    u.grad.zero_()
    tape.backward(grads=dict(zip(outs, seeds, strict=False)))
    np.testing.assert_array_equal(u.grad.numpy(), again)


def vector_stencil() -> wb.Kernel:
    @wb.kernel
    def vectors(u: wb.array(dtype=wb.vec2d), out: wb.array(dtype=wb.vec2d)):
        i = wb.tid()
        if i > 0:
            out[i] = wb.cw_mul(u[i], u[i - 1]) + u[i]

    return vectors


def test_vectors_are_pulled_in_whole_words(texts, monkeypatch):
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    start, seed = np.random.default_rng(7).uniform(0.5, 1.5, (2, 20, 2))
    u = wb.array(start, dtype=wb.vec2d, device=GPU, requires_grad=True)
    out = wb.zeros(20, dtype=wb.vec2d, device=GPU)
    with wb.Tape() as tape:
        wb.launch(vector_stencil(), 20, [u], [out])
    tape.backward(grads={out: wb.array(seed, dtype=wb.vec2d, device=GPU)})

    def value(x: np.ndarray) -> float:
        return (seed[1:] * x[1:] * (x[:-1] + 1.0)).sum()

    np.testing.assert_allclose(u.grad.numpy(), differences(value, start), rtol=0, atol=1e-8)
    pull = next(t for t in texts if "vectors_adjoint_pull(" in t)
    assert "wb_load<double, 2>" in pull and "wb_within" in pull and "atomicAdd(" not in pull


@pytest.mark.needs_nvrtc
def test_texts_with_two_bodies_become_machine_code_without_spills(texts, monkeypatch):
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    two_steps(np.ones((9, 7)), np.ones((9, 7)), GPU)
    divided = [t for t in texts if "wb_within" in t]
    assert divided
    for text in divided:
        (taken,) = nvrtc.resources(text, "sm_90").values()
        assert taken.local == 0 and taken.registers <= 64


def test_a_captured_walk_that_pulls_gives_the_same(texts, monkeypatch):
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    start = np.random.default_rng(6).uniform(0.5, 1.5, 70)
    u = wb.array(start, dtype=wb.float64, device=GPU, requires_grad=True)
    out, seed = (wb.zeros(68, dtype=wb.float64, device=GPU) for _ in range(2))
    ahead, tape = short_stencil(), wb.Tape()
    seed.assign(np.linspace(1, 2, 68))
    with wb.capture() as graph:
        tape.zero()
        tape.reset()
        with tape:
            wb.launch(ahead, 68, [u], [out])
        tape.backward(grads={out: seed})
    for scale in (1.0, 2.0):
        u.assign(scale * start)
        graph.replay()
        expected = differences(lambda x: (np.linspace(1, 2, 68) * ahead_of(x)).sum(), scale * start)
        np.testing.assert_allclose(u.grad.numpy(), expected, rtol=0, atol=1e-7)

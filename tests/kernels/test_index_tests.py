"""Indices that depend on data, tested for many threads before they run: the same bits and errors, nothing outside."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import BoundsError
from workbench.kernels.emit import c as emit_c
from workbench.launches import executable

pytestmark = pytest.mark.needs_cc
N = 5000  # several blocks of threads, the last one not full


@wb.kernel
def gather(x: wb.array[wb.vec2], a: wb.array[int], b: wb.array[int], f: wb.array[wb.vec2], y: wb.array[float]):
    k = wb.tid()
    d = x[a[k]] - x[b[k]]
    y[k] = wb.length(d) * 3.0 + d[0] * d[1] * wb.sqrt(d[0] * d[0] + 1.0)


@wb.kernel
def scatter(x: wb.array[wb.vec2], a: wb.array[int], b: wb.array[int], f: wb.array[wb.vec2], y: wb.array[float]):
    k = wb.tid()
    d = x[a[k]] - x[b[k]]
    g = d * (wb.length(d) - 1.0) * wb.dot(d, d)
    wb.atomic_add(f, a[k], g)
    f[b[k]] -= g
    wb.atomic_add(y, 0, wb.dot(d, g) * wb.length(g))


@wb.kernel
def beside(x: wb.array[wb.vec2], a: wb.array[int], b: wb.array[int], f: wb.array[wb.vec2], y: wb.array[float]):
    i, j = wb.tid()
    k = i * 5 + j
    for n in range(2):
        for m in range(2):
            f[a[k] + n] += x[b[k] + m] * float(n + m) + x[k]


KERNELS = {"gather": (gather, N, "y"), "scatter": (scatter, N, "fy"), "beside": (beside, (N // 5, 5), "f")}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(executable.thresholds, "MANY_FROM", 0)
    wb.config.threads = 1


def run(name: str, backend: str, spoil=(), grad: bool = False, extent: int = N) -> list[np.ndarray]:
    """What a launch and its reverse pass leave; `spoil`: (array, thread, index) of indices that are changed."""
    wb.config.backend = backend
    kernel, dim, written = KERNELS[name]
    r = np.random.default_rng(5)
    given = {"a": r.integers(0, extent - 2, N), "b": r.integers(0, extent - 2, N)}
    for array, thread, index in spoil:
        given[array][thread] = index
    a, b = (wb.array(given[n].astype(np.int32)) for n in "ab")
    x = wb.array(r.uniform(-2, 2, (N, 2)).astype(np.float32), dtype=wb.vec2, requires_grad=grad)
    f, y = wb.zeros(N, dtype=wb.vec2, requires_grad=grad), wb.zeros(N, requires_grad=grad)
    with wb.Tape() as tape:
        wb.launch(kernel, dim, inputs=[x, a, b, f, y])
    if grad:
        seeds = {"f": wb.array(r.uniform(-1, 1, (N, 2)).astype(np.float32), dtype=wb.vec2)}
        seeds["y"] = wb.array(r.uniform(-1, 1, N).astype(np.float32))
        tape.backward(grads={{"f": f, "y": y}[n]: seeds[n] for n in written})
        return [f.numpy(), y.numpy(), x.grad.numpy()]
    return [f.numpy(), y.numpy()]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("extent", [N, 7])
def test_the_same_bits_as_the_interpreter_forwards_and_back(name, extent):
    for want, got in zip(run(name, "numpy", (), True, extent), run(name, "c", (), True, extent), strict=True):
        assert want.tobytes() == got.tobytes()


@pytest.mark.parametrize("name", KERNELS)
def test_indices_from_the_end_are_those_of_the_interpreter(name):
    spoil = [("a", 3, -4), ("b", 1700, -N), ("b", N - 1, -9)]
    for want, got in zip(run(name, "numpy", spoil), run(name, "c", spoil), strict=True):
        assert want.tobytes() == got.tobytes()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("thread", [0, 1023, 1024, 3001, N - 1])
@pytest.mark.parametrize("index", [N, -N - 1, 2**31 - 1, -(2**31)])
def test_an_index_outside_is_the_error_of_the_first_such_thread(name, thread, index):
    spoil = [("a", thread, index), ("b", N - 1, index)]
    told = []
    for backend in ("numpy", "c"):
        with pytest.raises(BoundsError) as error:
            run(name, backend, spoil)
        told.append(str(error.value))
    if index != 2**31 - 1 or name != "beside":  # there the sum of the index passes the largest number
        assert told[0] == told[1]


@wb.kernel
def chain(x: wb.array[float], a: wb.array[int], y: wb.array[float]):
    k = wb.tid()
    y[k] = x[a[a[k]]] * 2.0


@wb.kernel
def changed(x: wb.array[float], a: wb.array[int], y: wb.array[float]):
    k = wb.tid()
    a[k] = a[k] + 1
    y[k] = x[a[k]] * 2.0


@wb.kernel
def asked(x: wb.array[float], a: wb.array[int], y: wb.array[float]):
    k = wb.tid()
    if a[k] >= 0:
        y[k] = x[a[k]] * 2.0


@wb.kernel
def turned(x: wb.array[float], a: wb.array[int], y: wb.array[float]):
    k = wb.tid()
    for j in range(y.shape[0] - 40):
        y[k] = x[a[k]] * float(j)


@wb.kernel
def plain(x: wb.array[float], a: wb.array[int], y: wb.array[float]):
    k = wb.tid()
    y[k] = x[a[k]] * 2.0


@pytest.mark.parametrize(
    ("kernel", "tested"), [(plain, True), (chain, False), (changed, False), (asked, False), (turned, False)]
)
def test_what_can_be_tested_before(kernel, tested, monkeypatch):
    wb.config.backend = "c"
    texts = []
    write = emit_c.text
    monkeypatch.setattr(emit_c, "text", lambda *given: texts.append(write(*given)) or texts[-1])
    x, y = wb.array(np.arange(50, dtype=np.float32)), wb.zeros(50)
    wb.launch(kernel, 50, inputs=[x, wb.zeros(50, dtype=int), y])
    assert ("_tests(" in texts[-1]) == tested
    a = wb.array(np.r_[0:49, 50].astype(np.int32))
    if kernel is not asked:
        with pytest.raises(BoundsError):
            wb.launch(kernel, 50, inputs=[x, a, y])


@wb.kernel
def written_out(x: wb.array[wb.vec3], y: wb.array[float]):
    k = wb.tid()
    for j in range(3):
        y[k] += x[k][(j + 1) % 3] * float(j)


@wb.kernel
def moved(x: wb.array[float], a: wb.array[int], y: wb.array[float], n: int):
    k = wb.tid()
    for j in range(2):
        y[k] += x[a[k]] * x[n + (j + 1) % 2]


def test_what_is_inside_once_loops_are_written_out():
    values = np.random.default_rng(1).uniform(-1, 1, (N, 3)).astype(np.float32)
    found = []
    for backend in ("numpy", "c"):
        wb.config.backend = backend
        y = wb.zeros(N)
        wb.launch(written_out, N, inputs=[wb.array(values, dtype=wb.vec3), y])
        found.append(y.numpy().tobytes())
    assert found[0] == found[1]


def test_a_number_that_moves_an_index_outside_is_told_at_every_launch():
    wb.config.backend = "c"
    x, a, y = wb.array(np.ones(N, np.float32)), wb.zeros(N, dtype=int), wb.zeros(N)
    for n in (0, 5, N - 2):
        wb.launch(moved, N, inputs=[x, a, y, n])
    for n in (N - 1, N, 7 * N):
        with pytest.raises(BoundsError):
            wb.launch(moved, N, inputs=[x, a, y, n])


def test_memory_of_others_is_not_written():
    wb.config.backend = "c"
    whole = wb.full(3 * N, 7.0, dtype=wb.vec2)
    a = wb.array(np.r_[0 : N - 1, N + 5].astype(np.int32))
    x = wb.array(np.ones((N, 2), np.float32), dtype=wb.vec2)
    with pytest.raises(BoundsError):
        wb.launch(scatter, N, inputs=[x, a, a, whole[N : 2 * N], wb.zeros(N)])
    assert (whole.numpy()[:N] == 7).all() and (whole.numpy()[2 * N :] == 7).all()


@wb.kernel
def turned(x: wb.array[wb.vec2], h: wb.array[float], y: wb.array[float]):
    k = wb.tid()
    p = x[k]
    r = wb.sqrt(p[0] * p[0] + p[1] * p[1])
    c = p[0] / r
    for n in range(3):
        y[k] += h[n] * c * r * float(n + 1)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("zeros", [[], [3, 1700], [N - 1]])
def test_slopes_behind_zeros_are_looked_for_where_there_is_one(zeros, recwarn):
    """At a root of 0 an adjoint of 0 hides a slope or not; threads elsewhere run without asking, and give the same."""
    found = []
    for backend in ("numpy", "c"):
        wb.config.backend = backend
        r = np.random.default_rng(3)
        numbers, seeds = r.uniform(-1, 1, (N, 2)).astype(np.float32), r.uniform(-1, 1, N).astype(np.float32)
        numbers[zeros], seeds[1700] = 0, 0
        x = wb.array(numbers, dtype=wb.vec2, requires_grad=True)
        h, y = wb.array([0.0, 1.0, 2.0], dtype=float, requires_grad=True), wb.zeros(N, requires_grad=True)
        with wb.Tape() as tape:
            wb.launch(turned, N, inputs=[x, h, y])
        recwarn.clear()
        tape.backward(grads={y: wb.array(seeds)})
        found.append((x.grad.numpy().tobytes(), h.grad.numpy().tobytes(), [str(w.message) for w in recwarn]))
    assert found[0] == found[1] and bool(found[0][2]) == bool(zeros)
    tested = [variant.tests is not None for f, _, variant, _ in turned.program().compiled if f.name == "turned_adjoint"]
    assert tested == [True]

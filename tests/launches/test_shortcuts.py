"""Shortcuts of the generated code (plain `+=`, `restrict`, threads without conditions, gathers, stores for additions)
where they are right and, beside that, where they would be wrong: the numbers are those of the interpreter.

Every kernel runs on arrays that lie apart, under two names, overlapping, backwards, and in one cell.
"""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.launches import executable, thresholds

F = wb.float64
N = 40

pytestmark = pytest.mark.needs_cc


@wb.kernel
def own(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * w[i]


@wb.kernel
def ahead(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if i < x.shape[0] - 1:
        y[i] = x[i] * x[i + 1] + w[i] * x[i]


@wb.kernel
def inner(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if 2 * i >= 3 and i < x.shape[0] - 1:
        y[i] += x[i - 1] * w[i + 1] - x[i] * x[i]


@wb.kernel
def around(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i - 1] * w[i] + x[i]


@wb.kernel
def halved(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i // 2] * w[(3 * i) % w.shape[0]]


@wb.kernel
def added(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i // 3] += x[i] * w[i]


def one_cell(n: int) -> wb.array:
    memory = np.lib.stride_tricks.as_strided(np.array([0.75]), (n,), (0,))
    return wb.from_numpy(memory, dtype=F, requires_grad=True)


# name -> the memory and, of it, x and w; y always lies apart
PLACES = {
    "apart": lambda m: (m[:N], m[N:]),
    "one array twice": lambda m: (m[:N], m[:N]),
    "shifted by one": lambda m: (m[:N], m[1 : N + 1]),
    "every other": lambda m: (m[::2], m[1::2]),
    "every other, meeting": lambda m: (m[::2], m[:N]),
    "backwards": lambda m: (m[:N][::-1], m[N - 1 : 2 * N - 1]),
    "one cell": lambda m: (m[:N], one_cell(N)),
}


def gradient(kernel, place: str, backend: str, threads: int):
    wb.config.backend, wb.config.threads = backend, threads
    rng = np.random.default_rng(4)
    memory = wb.array(rng.uniform(0.5, 1.5, 2 * N), dtype=F, requires_grad=True)
    y = wb.array(rng.uniform(-1, 1, N), dtype=F, requires_grad=True)
    x, w = PLACES[place](memory)
    seeds = wb.array(rng.uniform(-1, 1, N), dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, N, [x, w, y])
    found = []
    for _ in range(2):  # what the first walk leaves behind must not reach the second
        tape.zero()
        tape.backward(grads={y: seeds})
        found.append([memory.grad.numpy().copy(), w.grad.numpy().copy(), y.grad.numpy().copy()])
    for a, b in zip(*found):
        np.testing.assert_array_equal(a, b)
    return [y.numpy().copy(), *found[0]]


@pytest.fixture
def small_counts_as_large(monkeypatch):
    for limit in ("PARALLEL_FROM", "PULL_FROM"):
        monkeypatch.setattr(thresholds, limit, 1)
    monkeypatch.setattr(executable, "WORTH", 0)


@pytest.mark.filterwarnings("ignore:.*overw:UserWarning")
@pytest.mark.usefixtures("small_counts_as_large")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kernel", [own, ahead, inner, around, halved, added], ids=lambda k: k.__name__)
def test_a_shortcut_is_taken_only_where_the_numbers_stay_the_same(kernel, place):
    kernel.program().plans.clear()
    exact = gradient(kernel, place, "numpy", 1)
    for a, b in zip(exact, gradient(kernel, place, "c", 3)):
        np.testing.assert_allclose(b, a, rtol=1e-13, atol=1e-13)
    kernel.program().plans.clear()


@wb.kernel
def onto(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@pytest.mark.usefixtures("small_counts_as_large")
@pytest.mark.parametrize(("shift", "races"), [(0, False), (1, True), (-1, True), (N, False)])
def test_a_kernel_that_writes_what_it_reads_is_exact_or_a_race(shift, races):
    start = np.random.default_rng(4).uniform(0.5, 1.5, 3 * N)
    for backend in ("numpy", "c"):
        wb.config.backend, wb.config.threads = backend, 3
        onto.program().plans.clear()
        memory = wb.array(start, dtype=F, requires_grad=True)
        with wb.Tape() as tape:
            wb.launch(onto, N, [memory[N : 2 * N], memory[N + shift : 2 * N + shift]])
        if races:
            with pytest.raises(wb.GradientError) as found:
                tape.backward(grads={memory: wb.ones(3 * N, dtype=F)})
            assert found.value.slug == "race"
            continue
        tape.backward(grads={memory: wb.ones(3 * N, dtype=F)})
        slope = np.ones(3 * N)
        slope[N + shift : 2 * N + shift] = 0
        slope[N : 2 * N] += 2 * start[N : 2 * N]
        np.testing.assert_allclose(tape.adjoint(memory, at=tape.launches[0]), slope, rtol=1e-14)
    onto.program().plans.clear()

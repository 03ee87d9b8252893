"""The box of threads that always take a branch (`launch_ranges.interior`): by brute force, for every factor."""

import itertools

import numpy as np
import pytest
from test_launch_ranges import Kernel

import workbench as wb
from workbench.kernels.analysis import launch_ranges
from workbench.kernels.analysis.accesses import accesses_of
from workbench.kernels.analysis.launch_form import LaunchForm
from workbench.kernels.ir import walk
from workbench.kernels.ops import control
from workbench.launches import thresholds

F = wb.float64
N = 9
OPS = {"lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}


def boxed(op: str, factor: int, limit: int, n: int = N) -> tuple[set[int], set[int]]:
    """The threads of the box of `if factor * i op limit`, and those for which it holds."""
    k = Kernel()
    i = k.tid()
    k.when(k.test(op, k.op("mul", i, factor), limit), lambda: k.store(k.x, i))
    found = launch_ranges.interior(k.f, LaunchForm((n,), {"n": 7}, {"x": (n,)}), {"n"})
    holds = {t for t in range(n) if OPS[op](factor * t, limit)}
    if found is None:
        return set(), holds
    ((lo, hi),) = found.box
    assert found.whole and found.taken == {s for s in walk(k.f.body) if s.row is control.IF}
    return set(range(lo, hi)), holds


@pytest.mark.parametrize("factor", [-3, -2, -1, 1, 2, 3, 4])
def test_the_box_is_where_the_condition_holds(factor):
    some = 0
    for op, limit in itertools.product(OPS, range(-14, 15)):
        box, holds = boxed(op, factor, limit)
        assert box in (holds, set()), (op, limit)
        assert bool(box) == (2 * len(holds) > N), (op, limit)
        some += bool(box) and len(box) < N
    assert some > 8


def test_a_condition_of_two_axes_of_none_or_of_another_number_makes_no_box():
    for make in (
        lambda k: k.test("ge", k.op("add", k.tid(0), k.tid(1)), 1),
        lambda k: k.test("ne", k.tid(0), 1),
        lambda k: k.test("lt", k.const(3), 2),
        lambda k: k.test("ge", k.op("mul", k.op("mul", k.tid(0), 1 << 20), 1 << 12), -1),
    ):
        k = Kernel(2)
        k.when(make(k), lambda k=k: k.store(k.y, k.tid(0), k.tid(1)))
        assert launch_ranges.interior(k.f, LaunchForm((5, 5), {"n": 7}, {"y": (5, 5)}), {"n"}) is None
    k = Kernel()
    k.when(k.test("lt", k.tid(), k.n), lambda: k.store(k.x, k.tid()))
    launch = LaunchForm((9,), {"n": 7}, {"x": (9,)})
    assert launch_ranges.interior(k.f, launch, {"n"}).box == ((0, 7),)
    assert launch_ranges.interior(k.f, launch, set()) is None


def test_what_the_other_threads_do_is_left_to_them():
    """`whole` only if all that has an effect happens in the box."""
    for extra in (False, True):
        k = Kernel()
        i = k.tid()
        k.when(k.test("ge", k.op("mul", i, 2), 3), lambda k=k, i=i: k.store(k.x, i))
        if extra:
            k.store(k.v, i)
        assert launch_ranges.interior(k.f, LaunchForm((9,), {}, {"x": (9,), "v": (9,)}), set()).whole is not extra
    k = Kernel()
    i = k.tid()
    k.when(k.test("ge", i, 2), lambda: k.load(k.x, i), lambda: k.store(k.x, i))
    assert not launch_ranges.interior(k.f, LaunchForm((9,), {}, {"x": (9,)}), set()).whole
    k = Kernel()
    i = k.tid()
    k.when(k.test("ge", i, 2), lambda: k.when(k.test("le", i, 7), lambda: k.store(k.x, i)))
    found = launch_ranges.interior(k.f, LaunchForm((9,), {}, {"x": (9,)}), set())
    assert found.box == ((2, 8),) and len(found.taken) == 2


@pytest.mark.parametrize("factor", [-3, -2, 2, 3])
def test_what_a_guard_with_a_factor_touches_is_known_to_the_element(factor):
    for op, limit in itertools.product(OPS, range(-20, 21, 3)):
        k = Kernel()
        i = k.tid()
        k.when(k.test(op, k.op("mul", i, factor), limit), lambda k=k, i=i: k.store(k.x, i))
        (access,) = accesses_of(k.f)
        holds = [t for t in range(N) if OPS[op](factor * t, limit)]
        touched = launch_ranges.box(access, LaunchForm((N,), {}, {"x": (N,)}))
        assert touched == (((holds[0], holds[-1]),) if holds else launch_ranges.EMPTY), (op, limit)


@wb.kernel
def from_the_second(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    if 2 * i >= 3 and 3 * i <= 23:
        y[i] = x[i] * x[i]


@pytest.mark.needs_cc
def test_a_launch_with_factors_in_its_condition_runs_the_threads_that_meet_it(backend):
    x, y = wb.array(np.arange(1.0, N + 1), dtype=F, requires_grad=True), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.launch(from_the_second, N, [x], [y])
    tape.backward(grads={y: wb.ones(N, dtype=F)})
    meets = np.array([2 * i >= 3 and 3 * i <= 23 for i in range(N)])
    np.testing.assert_array_equal(y.numpy(), meets * np.arange(1.0, N + 1) ** 2)
    np.testing.assert_array_equal(x.grad.numpy(), meets * 2 * np.arange(1.0, N + 1))


@wb.kernel
def sum_of_neighbours(x: wb.array[float], y: wb.array[float], c: float):
    i = wb.tid()
    if i > 0 and i < x.shape[0] - 1:
        y[i] = c * (x[i - 1] + x[i + 1]) + wb.float32(2.0) * x[i]


def gradient_of_sums(backend: str, c: float, seed: np.ndarray) -> np.ndarray:
    wb.config.backend, wb.config.threads = backend, 1
    x, y = wb.array(np.ones(len(seed), np.float32), requires_grad=True), wb.zeros(len(seed))
    with wb.Tape() as tape:
        wb.launch(sum_of_neighbours, len(seed), [x, y, c])
    tape.backward(grads={y: wb.array(seed)})
    if backend == "c":
        assert all(m.box for m in tape.launches[0].reverse.pull.made.values())
    return x.grad.numpy().copy()


@pytest.mark.needs_cc
@pytest.mark.parametrize("c", [0.25, -0.25, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38])
def test_a_number_of_the_launch_times_an_adjoint_of_zero_is_zero_whatever_it_is(c, monkeypatch):
    """Inside the box as around it: the same bits."""
    monkeypatch.setattr(thresholds, "PULL_FROM", 1)
    rng = np.random.default_rng(3)
    seed = rng.choice(np.array([0.0, -0.0, 1.5, -2.0, 1e-40, 3e38, np.inf, np.nan], np.float32), 90)
    expected, found = (gradient_of_sums(backend, c, seed) for backend in ("numpy", "c"))
    plain = expected == expected
    np.testing.assert_array_equal(plain, found == found)
    np.testing.assert_array_equal(found[plain].view(np.uint32), expected[plain].view(np.uint32))
    quiet = gradient_of_sums("c", c, np.zeros(90, np.float32))
    assert not quiet.any() and not np.isnan(quiet).any()

"""Gradients on other processes: the same numbers to the last bit, kernels as source, no row lost with a worker."""

from __future__ import annotations

import linecache
import multiprocessing
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import workbench as wb
from workbench.derivatives import serialize
from workbench.derivatives.sweep import _lost

F = wb.float64
STIFF = 3.0
N = 6


pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as made:
        yield made


@wb.struct
class Spring:
    k: F
    rest: wb.array(dtype=F)


@wb.func
def force(x: F, k: F):
    return -F(wb.static(2.0 * STIFF)) * k * wb.sin(x)


@wb.func
def odd(x: F):
    return x * x * x


@wb.func_grad(odd)
def odd_grad(x: F, adj_out: F):
    wb.adjoint[x] += F(3.0) * x * x * adj_out


@wb.kernel
def copy_of(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i]


@wb.kernel
def energy(x: wb.array(dtype=F), e: wb.array(dtype=F)):
    wb.atomic_add(e, 0, x[wb.tid()] * x[wb.tid()])


@wb.kernel
def shear(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    n = x.shape[0]
    y[i] = x[i] * x[(i + 1) % n] + odd(x[i])


def springs(keep: str = "needed"):
    """A tape of three launches, with structs, funcs, static expressions, a custom rule and in-place writes."""
    start, x = wb.array(np.linspace(0.1, 1.0, N), dtype=F, requires_grad=True), wb.zeros(N, dtype=F)
    rest, y = wb.array(np.linspace(0.0, 0.2, N), dtype=F, requires_grad=True), wb.zeros(N, dtype=F)
    s = Spring(k=0.5, rest=rest)
    v = wb.zeros(N, dtype=F)
    with wb.Tape(keep) as tape:
        wb.copy(x, start)
        for _ in range(2):
            wb.launch(shear, dim=N, inputs=[x], outputs=[y])
            wb.launch(step_apart, dim=N, inputs=[y, v, s, 0.1], outputs=[x])
    return tape, x, start, rest


@wb.kernel
def step_apart(y: wb.array(dtype=F), v: wb.array(dtype=F), s: Spring, h: F, x: wb.array(dtype=F)):
    i = wb.tid()
    v[i] = v[i] + h * force(y[i] - s.rest[i], s.k)
    x[i] = y[i] + h * v[i]


def executors(request, processes):
    return {"processes": lambda: processes, "threads": lambda: ThreadPoolExecutor(2)}[request]()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["processes", "threads"])
@pytest.mark.parametrize("mode", ["rows", "columns"])
@pytest.mark.host_memory
def test_a_jacobian_is_the_same_to_the_last_bit(processes, kind, mode):
    tape, x, start, rest = springs()
    executor = executors(kind, processes)
    for leaf in (start, rest):
        here = wb.jacobian(tape, x, leaf, mode)
        np.testing.assert_array_equal(wb.jacobian(tape, x, leaf, mode, executor=executor), here)
        assert here.any()


@pytest.mark.host_memory
def test_what_travels_is_the_launch_that_ran_not_what_its_names_mean_now(processes):
    scale = 2.0

    @wb.kernel
    def scaled(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = F(scale) * x[i] * x[i]

    x, y = wb.array(np.arange(1.0, 5.0), dtype=F, requires_grad=True), wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch(scaled, dim=4, inputs=[x], outputs=[y])
    scale = 7.0
    assert scaled is not None
    np.testing.assert_array_equal(wb.jacobian(tape, y, x, executor=processes), np.diag(4.0 * np.arange(1.0, 5.0)))


@pytest.mark.host_memory
def test_gradcheck_says_the_same_of_every_launch(processes):
    tape, *_ = springs("all")
    here, there = wb.gradcheck(tape), wb.gradcheck(tape, executor=processes)
    assert str(here) == str(there) and len(here.rows) > 4


# ---- parameter studies


def rolled(k):
    """A loss by an initial state, for one stiffness: arrays, kernels and constants are taken from around it."""

    def loss(x):
        y, e = wb.zeros(N, dtype=F), wb.zeros(1, dtype=F)
        wb.launch(shear, dim=N, inputs=[x], outputs=[y])
        wb.launch(energy, dim=N, inputs=[y], outputs=[e])
        return e

    return loss if k else None


@pytest.mark.host_memory
def test_a_batch_of_initial_states(processes):
    states = [np.linspace(0.1, 1.0 + k, N) for k in range(7)]
    fn = wb.value_and_grad(rolled(1))
    here, there = wb.sweep(fn, states), wb.sweep(fn, states, processes)
    for (a, g), (b, h) in zip(here, there, strict=True):
        assert a == b and g.any()
        np.testing.assert_array_equal(g, h)


@pytest.mark.host_memory
def test_functions_and_kernels_of_a_notebook_travel_as_source(processes):
    text = """
import workbench as wb
G = 9.81

@wb.func
def fall(v: wb.float64, t: wb.float64):
    return v * t - wb.float64(0.5 * G) * t * t

@wb.kernel
def throw(v: wb.array(dtype=wb.float64), h: wb.array(dtype=wb.float64), t: wb.float64):
    i = wb.tid()
    wb.atomic_add(h, 0, fall(v[i], t))

def height(v):
    h = wb.zeros(1, dtype=wb.float64)
    wb.launch(throw, dim=2, inputs=[v, h, 0.5])
    return h
"""
    linecache.cache["<cell 7>"] = (len(text), None, text.splitlines(keepends=True), "<cell 7>")
    cell: dict = {"__name__": "__main__"}
    exec(compile(text, "<cell 7>", "exec"), cell)
    fn = wb.value_and_grad(cell["height"])
    speeds = [np.array([3.0, k]) for k in range(3)]
    for (value, gradient), v in zip(wb.sweep(fn, speeds, processes), speeds, strict=True):
        assert value == pytest.approx(v.sum() * 0.5 - 2 * 0.5 * 9.81 * 0.25)
        np.testing.assert_array_equal(gradient, [0.5, 0.5])


def settings(_):
    c = wb.config
    return c.backend, c.threads, c.check_bounds, c.check_races, c.race_guard


def test_workers_have_the_settings_of_now(processes):
    for threads, check_bounds in ((3, True), (1, False)):
        wb.config.threads, wb.config.check_bounds = threads, check_bounds
        wb.config.race_guard = not check_bounds
        assert wb.sweep(settings, [1, 2, 3], processes) == [settings(0)] * 3


@pytest.mark.host_memory
def test_threads_leave_the_settings_alone():
    tape, x, start, _ = springs()
    wb.config.backend = None
    before, interval = settings(0), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as executor:
            for _ in range(10):
                wb.jacobian(tape, x, start, "rows", executor=executor)
                assert settings(0) == before
    finally:
        sys.setswitchinterval(interval)


class Awkward(Exception):
    """Cannot be unpickled, as many exceptions cannot."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def test_an_error_that_cannot_travel_leaves_the_workers_alive(processes, caplog):
    def fails(k):
        raise Awkward(k, k)

    with pytest.raises(RuntimeError, match="Awkward: 3 and 3"):
        wb.sweep(fails, [3], processes)
    assert wb.sweep(settings, [1], processes) and "lost" not in caplog.text


def test_a_class_that_workers_do_not_know_is_named(processes):
    here = type("Here", (), {"__module__": "__main__"})
    sys.modules["__main__"].Here = here  # type: ignore[attr-defined]
    try:
        with pytest.raises(wb.LaunchError, match=r"Here(.|\n)*module that the workers can import"):
            wb.sweep(repr_of, [here()], processes)
    finally:
        del sys.modules["__main__"].Here  # type: ignore[attr-defined]


def repr_of(thing):
    return str(thing)


@pytest.mark.host_memory
def test_an_error_of_a_worker_is_that_error_here(processes):
    def beyond(n):
        wb.launch(copy_of, dim=int(n), inputs=[wb.zeros(4, dtype=F)], outputs=[wb.zeros(4, dtype=F)])
        return n

    with pytest.raises(wb.BoundsError, match="copy_of"):
        wb.sweep(beyond, [2, 3, 9], processes)


def test_what_has_no_form_elsewhere_is_refused(processes):
    with pytest.raises(wb.LaunchError, match="travel"):
        wb.sweep(str, [threading.Lock()], processes)
    with pytest.raises(wb.KernelError, match="no-source"):
        wb.sweep(eval("lambda x: x"), [1, 2], processes)

    x = wb.zeros(2, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        tape.record_func(lambda: None, [x])
        wb.launch(copy_of, dim=2, inputs=[x], outputs=[y := wb.zeros(2, dtype=F)])
    with pytest.raises(wb.GradientError, match="travel"):
        wb.jacobian(tape, y, x, executor=processes)


@pytest.mark.host_memory
def test_structs_vectors_and_instances_come_back_as_they_were():
    s = Spring(k=2.0, rest=wb.array([1.0, 2.0], dtype=F, requires_grad=True))
    view = s.rest[1:]
    again, part, v, types = serialize.unpack(serialize.pack((s, view, wb.vec3(1, 2, 3), (wb.mat22, wb.quatd, Spring))))
    assert again.k == 2.0 and again.rest.numpy().tolist() == [1.0, 2.0] and again.rest.requires_grad
    assert part.allocation is again.rest.allocation
    assert v.tolist() == [1, 2, 3] and v.type == wb.vec3 and types == (wb.mat22, wb.quatd, Spring)


# ---- workers that die


def killed_once(mark: str):
    def value(k):
        import os
        import signal

        if k == 2 and not os.path.exists(mark):
            with open(mark, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return k * k

    return value


@pytest.mark.slow
def test_a_worker_killed_in_mid_sweep_loses_no_row(tmp_path, caplog):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        found = wb.sweep(killed_once(str(tmp_path / "mark")), range(8), executor)
    assert found == [k * k for k in range(8)] and "workers were lost" in caplog.text


@pytest.fixture(scope="module")
def dask():
    distributed = pytest.importorskip("distributed", exc_type=ImportError)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


@pytest.mark.slow
@pytest.mark.host_memory
def test_a_cluster_of_two_workers_gives_the_same_rows(dask):
    tape, x, start, _ = springs()
    np.testing.assert_array_equal(
        wb.jacobian(tape, x, start, "rows", executor=dask), wb.jacobian(tape, x, start, "rows")
    )
    fn, states = wb.value_and_grad(rolled(1)), [np.linspace(0.1, 1.0 + k, N) for k in range(5)]
    for (a, g), (b, h) in zip(wb.sweep(fn, states, dask), wb.sweep(fn, states), strict=True):
        assert a == b
        np.testing.assert_array_equal(g, h)


@pytest.mark.slow
def test_a_worker_of_the_cluster_that_is_killed_loses_no_row(dask, tmp_path):
    found = wb.sweep(killed_once(str(tmp_path / "mark")), range(8), dask)
    assert found == [k * k for k in range(8)] and (tmp_path / "mark").exists()


def test_an_error_of_dask_about_a_lost_worker_is_told_from_one_of_the_work():
    def _cascade_future(result):
        _kind, _error, _trace = result

    def work(result):
        _kind, _error, _trace = result

    lost = []
    for fn in (_cascade_future, work):
        with pytest.raises(ValueError) as raised:
            fn(("lost", None))
        lost.append(_lost(raised.value))
    assert lost == [True, False]

"""Launches: arguments that do not fit are refused before anything runs, plans are reused only where they hold."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.launches import thresholds

F = wb.float64


pytestmark = pytest.mark.usefixtures("backend")


@wb.struct
class Body:
    q: wb.array(dtype=wb.vec3d)
    m: F


@wb.kernel
def scale(x: wb.array(dtype=F), a: F, y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = a * x[i]


@wb.kernel
def many(x: wb.array(dtype=F), k: int, u: wb.uint8, v: wb.vec3d, m: wb.mat22d, b: bool, out: wb.array(dtype=F)):
    i = wb.tid()
    if b:
        out[i] = x[i] * F(k) + F(u) + v[1] + m[0, 1]


@wb.kernel
def move(body: Body, out: wb.array(dtype=F)):
    i = wb.tid()
    out[i] = body.m * body.q[i][1]


@wb.kernel
def shift(x: wb.array(dtype=F), k: int, y: wb.array(dtype=F)):
    i = wb.tid()
    y[i + k] = x[i]


def arr(values, **kw):
    return wb.array(np.asarray(values, float), dtype=F, **kw)


def empty(n: int):
    return wb.zeros(n, dtype=F)


X = np.array([1.0, 2.0, 3.0])


def refused(slug: str, *words: str, error=wb.LaunchError):
    class Refused:
        def __enter__(self):
            self.caught = pytest.raises(error)
            self.found = self.caught.__enter__()

        def __exit__(self, *exc):
            stopped = self.caught.__exit__(*exc)
            assert self.found.value.slug == slug, str(self.found.value)
            for word in words:
                assert word in str(self.found.value)
            return stopped

    return Refused()


# --- arguments


def test_the_number_of_arguments_is_checked_and_the_signature_shown():
    with refused("argument-count", "takes 3 arguments, got 2", "a: float64"):
        wb.launch(scale, dim=3, inputs=[arr(X), 2.0])
    with refused("argument-count", "got 4"):
        wb.launch(scale, dim=3, inputs=[arr(X), 2.0], outputs=[empty(3), 1])


WRONG = {
    "a list for an array": ([[1.0, 2.0], 2.0, "y"], "argument-type", "'x'"),
    "None for an array": ([None, 2.0, "y"], "array-left-out", "'x'"),
    "another float": ([wb.zeros(3, dtype=wb.float32), 2.0, "y"], "argument-dtype", "'x'"),
    "whole numbers": ([wb.zeros(3, dtype=int), 2.0, "y"], "argument-dtype", "'x'"),
    "two axes": ([wb.zeros((3, 1), dtype=F), 2.0, "y"], "argument-rank", "'x'"),
    "an array for a number": (["x", "x", "y"], "argument-type", "'a'"),
    "text for a number": (["x", "2", "y"], "argument-type", "'a'"),
    "None for a number": (["x", None, "y"], "argument-type", "'a'"),
    "a list for a number": (["x", [2.0], "y"], "argument-type", "'a'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_that_does_not_fit_is_named(name):
    args, slug, word = WRONG[name]
    y = empty(3)
    made = [{"x": arr(X), "y": y}.get(a, a) if isinstance(a, str) else a for a in args]
    with refused(slug, word, "'scale'"):
        wb.launch(scale, dim=3, inputs=made)
    assert not y.numpy().any()


NUMBERS = {
    "a fraction for an int": dict(k=1.5),
    "too large an int": dict(k=2**31),
    "negative for unsigned": dict(u=-1),
    "too large for uint8": dict(u=256),
    "nan for an int": dict(k=float("nan")),
    "a short vector": dict(v=(1.0, 2.0)),
    "a long matrix": dict(m=np.eye(3)),
    "text for a vector": dict(v="abc"),
}


def call_many(**changed):
    given = dict(k=2, u=3, v=(0.0, 5.0, 0.0), m=[[0.0, 7.0], [0.0, 0.0]], b=True) | changed
    out = empty(3)
    wb.launch(many, dim=3, inputs=[arr(X), *given.values()], outputs=[out])
    return out.numpy().tolist()


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_would_be_changed_by_its_type_is_refused(name):
    with refused("argument-type", repr(next(iter(NUMBERS[name])))):
        call_many(**NUMBERS[name])


def test_numbers_of_every_kind_are_taken():
    want = (X * 2 + 15).tolist()
    assert call_many() == want
    assert call_many(k=np.int64(2), u=np.uint8(3), v=wb.vec3d(0.0, 5.0, 0.0), m=np.array([[0, 7.0], [0, 0]])) == want
    assert call_many(k=2.0, b=np.bool_(True), v=[0, 5, 0], m=wb.mat22d(0.0, 7.0, 0.0, 0.0)) == want
    assert call_many(b=False) == [0, 0, 0]


def test_a_struct_must_be_one_and_its_arrays_must_be_there():
    out = empty(2)
    q = wb.array(np.arange(6.0).reshape(2, 3), dtype=wb.vec3d)
    wb.launch(move, dim=2, inputs=[Body(q=q, m=3.0)], outputs=[out])
    assert out.numpy().tolist() == [3, 12]
    with refused("array-left-out", "'body.q'"):
        wb.launch(move, dim=2, inputs=[Body(m=3.0)], outputs=[out])
    with refused("argument-type", "body"):
        wb.launch(move, dim=2, inputs=[3.0], outputs=[out])


def test_values_are_taken_when_the_launch_is_made():
    x, y, v = arr(X, requires_grad=True), empty(3), np.array([0.0, 5.0, 0.0])
    with wb.Tape() as tape:
        wb.launch(many, dim=3, inputs=[x, 2, 3, v, np.zeros((2, 2)), True], outputs=[y])
    v[:] = 99.0
    tape.backward(grads={y: arr([1, 1, 1])})
    assert x.grad.numpy().tolist() == [2, 2, 2] and y.numpy().tolist() == (2 * X + 8).tolist()


# --- the grid


@pytest.mark.parametrize("dim", [-1, (3, -1), "3", None, 2.5, (2.5,), (), (1, 1, 1, 1, 1), 2**31])
def test_a_grid_that_is_none_is_refused(dim):
    y = empty(3)
    with refused("dim"):
        wb.launch(scale, dim=dim, inputs=[arr(X), 2.0, y])
    assert not y.numpy().any()


@pytest.mark.parametrize("dim", [3, (3,), [3], np.int64(3), np.array([3])])
def test_grids_may_be_given_in_many_ways(dim):
    y = empty(3)
    wb.launch(scale, dim=dim, inputs=[arr(X), 2.0, y])
    assert y.numpy().tolist() == [2, 4, 6]


def test_the_rank_of_the_grid_is_that_of_tid():
    with refused("dim-rank", "1 thread ind"):
        wb.launch(scale, dim=(3, 1), inputs=[arr(X), 2.0, empty(3)])


def test_a_kernel_that_does_not_ask_for_its_thread_runs_on_any_grid():
    @wb.kernel
    def count(s: wb.array(dtype=int)):
        wb.atomic_add(s, 0, 1)

    for dim, n in ((5, 5), ((2, 3), 6), ((2, 0), 0)):
        s = wb.zeros(1, dtype=int)
        wb.launch(count, dim=dim, inputs=[s])
        assert s.numpy()[0] == n


def test_a_grid_beyond_the_array_is_refused_before_it_runs():
    y = empty(4)
    with refused("bounds", "'x'", error=wb.BoundsError):
        wb.launch(scale, dim=4, inputs=[arr(X), 2.0, y])
    assert not y.numpy().any()


# --- plans


def test_a_scalar_that_an_index_uses_is_checked_at_every_launch():
    y = empty(5)
    for k, want in ((0, [1, 2, 3, 0, 0]), (2, [1, 2, 1, 2, 3])):
        wb.launch(shift, dim=3, inputs=[arr(X), k, y])
        assert y.numpy().tolist() == want
    for k in (3, -6, 2**31 - 1):
        with refused("bounds", "'y'", error=wb.BoundsError):
            wb.launch(shift, dim=3, inputs=[arr(X), k, y])
    wb.launch(shift, dim=3, inputs=[arr(X), 1, y])
    assert y.numpy().tolist() == [1, 1, 2, 3, 3]


@wb.kernel
def strided(k: int, c: int, y: wb.array(dtype=F)):
    i = wb.tid()
    y[i * c + k] = F(1.0)


@pytest.mark.parametrize("k, c", [(0, 1_000_000), (0, 2**31 - 1), (4, -1_000_000), (-2, -1_000_000), (2**31 - 9, 3)])
def test_an_index_that_overflows_far_out_is_refused_by_a_thread_where_it_does_not(k, c):
    y = empty(5)
    with refused("bounds", "'y'", error=wb.BoundsError):
        wb.launch(strided, dim=3000, inputs=[k, c, y])
    assert not y.numpy().any()


def test_plans_differ_by_grid_layout_and_index_scalars_only():
    scale.program().plans.clear()
    x, y = arr(X), empty(3)
    for a in (2.0, 3.0, -1.0):
        wb.launch(scale, dim=3, inputs=[x, a, y])
    assert len(scale.program().plans) == 1
    wb.launch(scale, dim=2, inputs=[x, 2.0, y])
    wb.launch(scale, dim=2, inputs=[arr(np.arange(6.0))[::2], 2.0, y])
    assert len(scale.program().plans) == 3 and y.numpy().tolist() == [0, 4, -3]


def test_a_plan_for_distinct_arrays_is_not_used_for_one_memory_under_two_names():
    @wb.kernel
    def twice(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * x[i]
        z[i] = x[i] + y[i]

    for alias in (False, True, False):
        x, z = arr(X, requires_grad=True), empty(3)
        y = x if alias else empty(3)
        with wb.Tape() as tape:
            wb.launch(twice, dim=3, inputs=[x, y, z])
        tape.backward(grads={z: arr([1, 1, 1])})
        assert z.numpy().tolist() == (2 * X**2 if alias else X + X**2).tolist()
        assert x.grad.numpy().tolist() == (4 * X if alias else 1 + 2 * X).tolist()


def test_a_command_repeats_its_launch_with_its_arguments():
    x, y = arr(X), empty(3)
    command = wb.launch(scale, dim=3, inputs=[x, 2.0], outputs=[y], record_cmd=True)
    assert not y.numpy().any()
    command.launch()
    assert y.numpy().tolist() == [2, 4, 6]
    x.fill_(10.0)
    command.launch()
    assert y.numpy().tolist() == [20, 20, 20]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_launches_on_several_workers_are_what_one_worker_makes(threads):
    wb.config.threads = threads
    n = 4 * thresholds.PARALLEL_FROM + 7 if wb.config.backend == "c" else 1000
    x, y = arr(np.linspace(-1, 1, n), requires_grad=True), empty(n)
    with wb.Tape() as tape:
        wb.launch(scale, dim=n, inputs=[x, 3.0, y])
    tape.backward(grads={y: wb.ones(n, dtype=F)})
    np.testing.assert_array_equal(y.numpy(), 3 * x.numpy())
    assert np.all(x.grad.numpy() == 3)


# --- definitions that change


def test_redefining_a_func_or_a_constant_changes_later_launches_only():
    scope = {"wb": wb, "F": F}
    source = "@wb.func\ndef f(v: F):\n    return {}\n"
    body = "@wb.kernel\ndef k(x: wb.array(dtype=F), y: wb.array(dtype=F)):\n    i = wb.tid()\n    y[i] = C * f(x[i])\n"

    def define(text: str) -> None:
        cell = f"cell {len(cells)}"
        cells.append(cell)
        linecache.cache[cell] = (len(text), None, text.splitlines(True), cell)
        exec(compile(text, cell, "exec"), scope)

    import linecache

    cells: list[str] = []
    scope["C"] = wb.constant(F(2.0))
    define(source.format("v * v"))
    define(body)
    x, y, z = arr(X, requires_grad=True), empty(3), empty(3)
    with wb.Tape() as tape:
        wb.launch(scope["k"], dim=3, inputs=[x, y])
        define(source.format("v * v * v"))
        scope["C"] = wb.constant(F(5.0))
        wb.launch(scope["k"], dim=3, inputs=[x, z])
    assert y.numpy().tolist() == (2 * X**2).tolist() and z.numpy().tolist() == (5 * X**3).tolist()
    tape.backward(grads={y: arr([1, 1, 1])})
    assert x.grad.numpy().tolist() == (4 * X).tolist()
    tape.zero()
    tape.backward(grads={z: arr([1, 1, 1])})
    assert x.grad.numpy().tolist() == (15 * X**2).tolist()


# --- the call itself


def test_only_kernels_are_launched():
    def plain(x):
        return x

    for what in (plain, None, "scale"):
        with refused("not-a-kernel"):
            wb.launch(what, dim=1, inputs=[])


@pytest.mark.host_memory
def test_keywords_that_mean_nothing_here_are_taken_and_others_refused():
    x, y = arr(X), empty(3)
    wb.launch(scale, dim=3, inputs=[x, 2.0], outputs=[y], block_dim=128, max_blocks=0, device="cpu", stream=None)
    assert y.numpy().tolist() == [2, 4, 6]
    with refused("launch-keyword", "outputs"):
        wb.launch(scale, dim=3, inputs=[x, 2.0], output=[y])
    with refused("launch-keyword", "adjoint"):
        wb.launch(scale, dim=3, inputs=[x, 2.0], outputs=[y], adj_inputs=[x])
    with refused("device"):
        wb.launch(scale, dim=3, inputs=[x, 2.0], outputs=[y], device="nowhere")


@pytest.mark.host_memory
def test_indices_from_data_are_checked_on_request():
    @wb.kernel
    def pick(x: wb.array(dtype=F), index: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[index[i]]

    wb.config.check_bounds = True
    y = empty(3)
    for bad in (3, -4, 2**30):
        with refused("bounds", "'x'", "(3,)", error=wb.BoundsError):
            wb.launch(pick, dim=3, inputs=[arr(X), wb.array([0, 1, bad], dtype=int), y])
    wb.launch(pick, dim=3, inputs=[arr(X), wb.array([-1, -3, 1], dtype=int), y])
    assert y.numpy().tolist() == [3, 1, 2]


def test_check_races_refuses_a_race_before_it_runs_and_without_a_tape():
    @wb.kernel
    def scatter(x: wb.array(dtype=float), to: wb.array(dtype=int), y: wb.array(dtype=float)):
        i = wb.tid()
        y[to[i]] = x[i]

    x, y = wb.array([1.0, 2.0, 3.0], dtype=float), wb.zeros(3, dtype=float)
    wb.config.check_races = True
    wb.launch(scatter, 3, [x, wb.array([2, 0, 1], dtype=int), y])
    assert y.numpy().tolist() == [2.0, 3.0, 1.0]
    with pytest.raises(wb.GradientError, match="touch one element of 'y'"):
        wb.launch(scatter, 3, [x, wb.array([2, 0, 0], dtype=int), y])
    assert y.numpy().tolist() == [2.0, 3.0, 1.0]


def test_an_option_that_kernels_do_not_have_is_refused():
    with pytest.raises(TypeError, match="enable_backwards"):
        wb.kernel(enable_backwards=False)

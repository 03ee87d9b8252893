"""Indices that come from data: under `check_bounds` none reads or writes outside, and the first one ends the launch."""

from __future__ import annotations

import linecache
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import workbench as wb
from tests.support import stand_in_gpu
from tests.support.backends import BACKENDS
from workbench.launches import plan as plan_module

FAR = 100_000_000
Long = wb.types.vector(80, wb.float32)
Wide = wb.types.matrix((9, 9), wb.float32)


def indexed(type: object):
    @wb.kernel
    def store(j: wb.array(dtype=type), y: wb.array[float]):
        y[j[wb.tid()]] = 1.0

    return store


@wb.kernel
def vector_read(j: wb.array[int], y: wb.array[float]):
    v = wb.vec3(1.0, 2.0, 3.0)
    y[wb.tid()] = v[j[wb.tid()]]


@wb.kernel
def vector_write(j: wb.array[int], y: wb.array[float]):
    v = wb.vec3(1.0, 2.0, 3.0)
    v[j[wb.tid()]] = y[0]
    y[wb.tid()] = v[0]


@wb.kernel
def local_write(j: wb.array[int], y: wb.array[float]):
    v = wb.zeros(shape=(50,), dtype=float)
    v[j[wb.tid()]] = 1.0
    y[wb.tid()] = v[0]


@wb.kernel
def matrix_row(j: wb.array[int], y: wb.array[float]):
    m = wb.mat33(1.0)
    r = m[j[wb.tid()]]
    y[wb.tid()] = r[0]


@wb.kernel
def matrix_entry(j: wb.array[int], y: wb.array[float]):
    m = Wide(1.0)
    m[0, j[wb.tid()]] = 2.0
    y[wb.tid()] = m[0, 1]


@wb.kernel
def quaternion_read(j: wb.array[int], y: wb.array[float]):
    q = wb.quat_identity()
    y[wb.tid()] = q[j[wb.tid()]]


@wb.kernel
def long_loop(j: wb.array[int], y: wb.array[float]):
    for k in range(j[0]):
        y[k] = 1.0


COMPONENTS = [vector_read, vector_write, local_write, matrix_row, matrix_entry, quaternion_read, long_loop]


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    monkeypatch.setattr(wb.config, "check_bounds", True)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "type, number",
    [
        (wb.uint8, 255),
        (wb.uint32, 2**32 - 1),
        (wb.uint64, 2**64 - 1),
        (wb.uint64, 2**63),
        (wb.int8, -128),
        (wb.int64, 2**62),
        (wb.int64, -(2**63)),
        (wb.int32, -5),
        (wb.int32, 4),
    ],
)
@pytest.mark.host_memory
def test_no_integer_type_gets_past_the_check(type, number, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    guard = wb.zeros(12)
    with pytest.raises(wb.BoundsError, match="'y'"):
        wb.launch(indexed(type), 1, [wb.array([number], dtype=type), guard[4:8]])
    assert not guard.numpy().any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [FAR, -FAR, 2**31 - 1])
@pytest.mark.parametrize("kernel", COMPONENTS, ids=lambda k: k.__name__)
@pytest.mark.host_memory
def test_components_and_loops_end_at_the_first_index_outside(kernel, number, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    if kernel is long_loop and number < 0:
        number = 5
    with pytest.raises((wb.BoundsError, wb.LaunchError)) as caught:
        wb.launch(kernel, 1, [wb.array([number]), wb.zeros(4)])
    assert caught.value.slug == "bounds" and caught.value.where is not None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", [0, 2, -1, -3])
def test_indices_inside_are_served_from_either_end(number, backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    y = wb.zeros(1)
    wb.launch(vector_read, 1, [wb.array([number]), y])
    assert y.list() == [[1, 2, 3][number]]


@wb.kernel
def large(x: wb.array[float], j: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    v = Long(x[i])
    m = Wide(x[i])
    for k in range(60):
        v[(k * j[i]) % 80] = x[k % 4] * v[k % 80]
        m[k % 9, (k * j[i]) % 9] = v[k % 80] + m[(k + j[i]) % 9][k % 9]
    w = v * 0.5 + wb.cw_mul(v, v)
    v[-j[i]] = w[j[i]]
    y[i] = v[-j[i]] + w[-1] + m[5][j[i]] + m[-j[i], -1]


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.needs_cc
def test_large_local_values_are_the_interpreters_with_their_gradients(checked, monkeypatch):
    found = []
    for backend in ("numpy", "c"):
        monkeypatch.setattr(wb.config, "backend", backend)
        monkeypatch.setattr(wb.config, "check_bounds", checked)
        x = wb.array([0.9, -1.1, 0.7, 1.2], requires_grad=True)
        y = wb.zeros(4)
        with wb.Tape() as tape:
            wb.launch(large, 4, [x, wb.array([1, 2, 3, 5]), y])
        tape.backward(grads={y: wb.ones(4)})
        found.append((y.numpy(), x.grad.numpy()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=2e-6)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=2e-5)
    assert np.abs(found[0][1]).min() > 1e-3


@pytest.mark.needs_cc
def test_a_local_array_of_hundreds_of_numbers_compiles(monkeypatch):
    @wb.kernel
    def fill(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        v = wb.zeros(shape=(500,), dtype=float)
        for k in range(500):
            v[k] = x[i] + float(k)
        y[i] = v[int(x[i])]

    monkeypatch.setattr(wb.config, "backend", "c")
    monkeypatch.setattr(wb.config, "check_bounds", False)
    y = wb.zeros(2)
    wb.launch(fill, 2, [wb.array([3.0, 499.0]), y])
    assert y.list() == [6, 998]


# ---- when they are tested


@wb.kernel
def picked(x: wb.array[float], j: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[j[i]] * x[j[i]]


def inside_of_a_larger_array() -> tuple[wb.array, wb.array, wb.array]:
    """x, j, y, where j points behind x, into the larger array of which x is a part."""
    whole = wb.array([1.0, 2.0, 3.0, 4.0], dtype=float, requires_grad=True)
    return whole[:2], wb.array([0, 3], dtype=int), wb.zeros(2)


def recorded() -> None:
    with wb.Tape():
        wb.launch(picked, 2, [*inside_of_a_larger_array()])


def alone(**options: object) -> list:
    x, j, y = inside_of_a_larger_array()
    wb.launch(picked, 2, [x, j, y], **options)
    return y.list()


@pytest.mark.needs_cc
@pytest.mark.parametrize("checked, off_tapes, on_tapes", [(True, 1, 1), (False, 0, 1), ("affine", 0, 0)])
def test_the_switch_says_which_launches_test_them(checked, off_tapes, on_tapes, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", "c")
    monkeypatch.setattr(wb.config, "check_bounds", checked)
    for _ in range(3):  # remembered launches too, in turns
        for run, refused in ((alone, off_tapes), (recorded, on_tapes)):
            if refused:
                with pytest.raises(wb.BoundsError, match=r"thread 1 uses x\[3\] .*outside shape \(2,\)"):
                    run()
            else:
                run()


@pytest.mark.needs_cc
def test_a_launch_may_say_so_itself(monkeypatch):
    monkeypatch.setattr(wb.config, "backend", "c")
    assert alone(check_bounds="affine") == [1, 16] and wb.config.check_bounds is True
    monkeypatch.setattr(wb.config, "check_bounds", "affine")
    with pytest.raises(wb.BoundsError):
        alone(check_bounds=True)
    assert alone() == [1, 16] and wb.config.check_bounds == "affine"
    for checked, again in ((True, "affine"), ("affine", True), (True, "affine")):  # remembered launches too, in turns
        for bounds in (checked, again):
            if bounds is True:
                with pytest.raises(wb.BoundsError):
                    alone(check_bounds=bounds)
            else:
                assert alone(check_bounds=bounds) == [1, 16]
    with pytest.raises(wb.LaunchError, match=r"check_bounds='all'.*takes True, False or \"affine\""):
        alone(check_bounds="all")


@pytest.mark.needs_cc
def test_what_a_launch_says_itself_holds_for_it_alone(monkeypatch):
    """A launch of another thread that is planned meanwhile tests its indices."""
    monkeypatch.setattr(wb.config, "backend", "c")
    make, seen = plan_module._make, []

    def making(*args: object) -> object:
        if not seen:
            seen.append(wb.config.check_bounds)
            with ThreadPoolExecutor(1) as pool, pytest.raises(wb.BoundsError):
                pool.submit(alone).result()
        return make(*args)

    monkeypatch.setattr(plan_module, "_make", making)
    monkeypatch.setattr(wb.config, "remember_launches", False)
    picked.program().plans.clear()
    assert alone(check_bounds="affine") == [1, 16] and seen == [True]


@pytest.mark.needs_cc
def test_a_command_keeps_what_its_launch_said(monkeypatch):
    monkeypatch.setattr(wb.config, "backend", "c")
    x, j, y = inside_of_a_larger_array()
    command = wb.launch(picked, 2, [x, j, y], record_cmd=True, check_bounds="affine")
    command.launch()
    command.set_param_by_name("y", wb.zeros(2))
    command.launch()
    assert y.list() == command.params[2].list() == [1, 16]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.host_memory
def test_a_negative_index_from_data_is_told_as_it_was_given(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    x, y = wb.array([1.0, 2.0]), wb.zeros(2)
    wb.launch(picked, 2, [x, wb.array([-1, -2]), y])
    assert y.list() == [4, 1]
    with pytest.raises(wb.BoundsError, match=r"x\[-3\] .*outside shape \(2,\)"):
        wb.launch(picked, 2, [x, wb.array([-1, -3]), y])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.host_memory
def test_the_adjoint_of_a_launch_that_has_not_run_tests_its_indices(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    x, j, y = wb.ones(2), wb.array([0, 3], dtype=int), wb.zeros(2)
    d_x = wb.zeros(4)[1:3]
    with pytest.raises(wb.BoundsError):
        wb.launch(picked, 2, [x, j, y], adjoint=True, adj_inputs=[d_x, None], adj_outputs=[wb.ones(2)])
    assert not d_x.numpy().any()


# ---- what is proven is not tested


@wb.kernel
def around(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    n = x.shape[0]
    y[i] = x[(i + 1) % n] + x[wb.clamp(i - 2, 0, n - 1)] + x[wb.min(i + 1, n - 1)] + x[wb.max(i - 1, 0)]


@wb.kernel
def components(v: wb.array[wb.vec3], y: wb.array[float]):
    i = wb.tid()
    s = 0.0
    for k in range(3):
        s += v[i][k] * wb.vec3(1.0, 2.0, 3.0)[2 - k]
    y[i] = s


@wb.kernel
def between_guards(x: wb.array2d[float], y: wb.array2d[float]):
    i, j = wb.tid()
    if i > 0 and j < x.shape[1] - 1:
        y[i, j] = x[i - 1, j + 1] - x[i, j]


@wb.kernel
def rows(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    s = 0.0
    for k in range(i + 1):
        s += x[k]
    y[i] = s


def checked(kernel: wb.Kernel, dim: object, *arrays: wb.array) -> frozenset[int]:
    """The accesses that the code of a launch tests."""
    wb.launch(kernel, dim, list(arrays))
    plans = [*kernel.program().plans.values()]
    return plans[-1].forward.variant.checked


@pytest.mark.needs_cc
@pytest.mark.parametrize(
    "kernel, dim, shapes",
    [
        (around, 5, (5, 5)),
        (components, 4, (4, 4)),
        (between_guards, (4, 5), ((4, 5), (4, 5))),
        (rows, 4, (4, 4)),
        (picked, 2, None),
    ],
)
def test_indices_proven_inside_cost_nothing(kernel, dim, shapes, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", "c")
    if shapes is None:
        assert len(checked(kernel, dim, wb.ones(2), wb.zeros(2, dtype=int), wb.zeros(2))) == 2
        return
    dtypes = [wb.vec3 if kernel is components else wb.float32, wb.float32]
    assert not checked(kernel, dim, *[wb.zeros(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)])


# ---- on a GPU


def test_on_a_gpu_it_is_said_when_the_host_waits(monkeypatch):
    stand_in_gpu.install(monkeypatch)
    x, j, y = (a.to("cuda:0") for a in (wb.array([1.0, 2.0], requires_grad=True), wb.array([0, 2]), wb.zeros(2)))
    for look in (wb.synchronize, y.numpy, x.numpy):
        wb.launch(picked, 2, [x, j, y])
        with pytest.raises(wb.BoundsError, match="'x'"):
            look() if look is not wb.synchronize else look("cuda:0")
        look() if look is not wb.synchronize else look("cuda:0")
    with wb.Tape() as tape:
        wb.launch(picked, 2, [x, j, y])
    with pytest.raises(wb.BoundsError, match="'x'"):
        tape.backward(grads={y: wb.ones(2, device="cuda:0")})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_long_chain_of_whole_numbers_is_planned_at_once(backend, monkeypatch):
    """Each link is used twice by the next: followed link by link, 60 of them would be 2**60."""
    text = "\n".join(
        [
            "@wb.kernel",
            "def hashed(x: wb.array[float], j: wb.array[int], y: wb.array[float]):",
            "    i = wb.tid()",
            "    h = j[i]",
            *["    h = wb.max(h, h * 3 + h) % 1000"] * 60,
            "    y[i] = x[h % x.shape[0]]",
        ]
    )
    linecache.cache["/hashed.py"] = (len(text), None, text.splitlines(True), "/hashed.py")
    scope = {"wb": wb, "__name__": "hashed"}
    exec(compile(text, "/hashed.py", "exec"), scope)
    monkeypatch.setattr(wb.config, "backend", backend)
    y, h = wb.zeros(3), np.array([1, 2, 5])
    wb.launch(scope["hashed"], 3, [wb.array(np.arange(7.0, dtype=np.float32)), wb.array(h.astype(np.int32)), y])
    for _ in range(60):
        h = np.maximum(h, 4 * h) % 1000
    assert y.list() == (h % 7).tolist()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.host_memory
def test_a_remainder_as_in_c_may_be_as_large_as_its_divisor_says(backend, monkeypatch):
    @wb.kernel
    def looked_up(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        y[i] = x[wb.mod(i + 2, 7)]

    monkeypatch.setattr(wb.config, "backend", backend)
    x, y = wb.array([1.0, 2.0, 3.0, 4.0, 5.0]), wb.zeros(8)
    wb.launch(looked_up, 3, [x], [y])
    assert y.list() == [3.0, 4.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    wb.launch(looked_up, 8, [wb.array(np.arange(7.0, dtype=np.float32)), y])
    assert y.list() == [2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 1.0, 2.0]
    with pytest.raises(wb.LaunchError, match=r"(?s)thread 3.*\[bounds\]"):
        wb.launch(looked_up, 8, [x], [y])


@wb.kernel
def next_but_turned(y: wb.array[float], n: int):
    wb.tid()
    for j in range(2):
        y[n + (j + 1) % 2] = 9.0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.host_memory
def test_a_number_in_an_index_that_is_no_line_is_looked_at_in_every_launch(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)
    whole = wb.zeros(100)
    wb.launch(next_but_turned, 1, inputs=[whole[:50], 0])
    for n in (49, 60, -52):
        with pytest.raises(wb.BoundsError):
            wb.launch(next_but_turned, 1, inputs=[whole[:50], n])
    assert not whole.numpy()[50:].any()


@wb.kernel
def by_cast(x: wb.array[float], u: wb.array[wb.uint32], w: wb.array[wb.uint16], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[wb.int32(u[i])] + x[wb.int16(w[i])]


@pytest.mark.parametrize("backend", BACKENDS)
def test_unsigned_numbers_that_become_signed_may_count_from_the_end(backend):
    wb.config.backend = backend
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(2)
    u, w = wb.array(np.array([0, 2**32 - 1], np.uint32)), wb.array(np.array([2**16 - 2, 0], np.uint16))
    with wb.Tape() as tape:
        wb.launch(by_cast, 2, [x, u, w], [y])
    tape.backward(grads={y: wb.array([1.0, 10.0])})
    assert y.list() == [3.0, 4.0] and x.grad.list() == [11.0, 1.0, 10.0]

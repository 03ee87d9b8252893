"""Small things that kernels of the field do: comparisons across types, questions about vectors, blocks, tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS


@pytest.fixture(params=BACKENDS)
def backend(request: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(wb.config, "backend", request.param)


def ran(kernel: Any, *arrays: Any, dim: Any = 1) -> Any:
    """What a launch leaves in the last of its arrays."""
    wb.launch(kernel, dim=dim, inputs=list(arrays))
    return arrays[-1].numpy()


@pytest.mark.usefixtures("backend")
def test_numbers_of_two_types_are_compared_exactly() -> None:
    @wb.kernel
    def ask(
        x: wb.array[float], n: wb.array[int], k: wb.array[wb.uint8], z: wb.array[wb.float64], out: wb.array2d[bool]
    ):
        i = wb.tid()
        out[i, 0] = x[i] < n[i]
        out[i, 1] = n[i] == x[i]
        out[i, 2] = k[i] > n[i]
        out[i, 3] = x[i] >= z[i]

    numbers = [16777217, -1, 3]
    x, z = np.float32([16777216.0, 0.5, 3.0]), np.array([16777216.0, 0.1, 3.0000001])
    out = wb.zeros((3, 4), dtype=bool)
    got = ran(
        ask,
        wb.array(x),
        wb.array(numbers, dtype=int),
        wb.array([200, 1, 3], dtype=wb.uint8),
        wb.array(z, dtype=wb.float64),
        out,
        dim=3,
    )
    want = [
        [float(a) < n, float(a) == n, k > n, float(a) >= c]
        for a, n, k, c in zip(x, numbers, [200, 1, 3], z, strict=True)
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("types", [(wb.int64, float), (wb.uint64, wb.float64)])
def test_numbers_that_no_type_holds_together_are_not_compared(types: tuple) -> None:
    @wb.kernel
    def ask(a: wb.array(dtype=types[0]), b: wb.array(dtype=types[1]), out: wb.array[bool]):
        out[0] = a[0] < b[0]

    with pytest.raises(wb.KernelError, match="mixed-types"):
        ask.program()


@pytest.mark.usefixtures("backend")
def test_a_vector_is_finite_where_all_of_it_is() -> None:
    @wb.kernel
    def ask(v: wb.array[wb.vec3], m: wb.array[wb.mat22d], q: wb.array[wb.quat], out: wb.array2d[bool]):
        i = wb.tid()
        out[i, 0] = wb.isfinite(v[i])
        out[i, 1] = wb.isnan(v[i])
        out[i, 2] = wb.isinf(v[i])
        out[i, 3] = wb.isfinite(m[i])
        out[i, 4] = wb.isnan(q[i])

    rows = np.array([[1, 2, 3, 4], [np.nan, 1, 1, 1], [1, -np.inf, 2, 2]])
    v, m = wb.array(rows[:, :3], dtype=wb.vec3), wb.array(rows.reshape(3, 2, 2), dtype=wb.mat22d)
    got = ran(ask, v, m, wb.array(rows, dtype=wb.quat), wb.zeros((3, 5), dtype=bool), dim=3)
    assert got.astype(int).tolist() == [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 1, 0, 0]]
    assert wb.isfinite(wb.vec3(1.0, 2.0, 3.0)) and wb.isnan(wb.vec2(np.nan, 1.0))


@pytest.mark.usefixtures("backend")
def test_a_random_state_that_no_name_stands_for_is_drawn_from_once() -> None:
    @wb.kernel
    def draw(out: wb.array[float]):
        i = wb.tid()
        out[i] = wb.randf(wb.rand_init(7, i)) - wb.randf(wb.rand_init(7, i))
        state = wb.rand_init(7, i)
        out[i] += wb.randf(state) - wb.randf(wb.rand_init(7, i))

    assert not ran(draw, wb.ones(4), dim=4).any()


def test_a_random_state_in_an_array_is_still_refused() -> None:
    @wb.kernel
    def draw(states: wb.array[wb.uint32], out: wb.array[float]):
        out[0] = wb.randf(states[0])

    with pytest.raises(wb.KernelError, match="rand-state"):
        draw.program()


@pytest.mark.usefixtures("backend")
def test_len_and_static_of_the_length_of_a_local() -> None:
    @wb.func
    def total(v: Any):
        s = v[0]
        for k in range(1, wb.static(len(v))):
            s += v[k]
        return s

    @wb.kernel
    def add(x: wb.array[wb.vec3], out: wb.array[float]):
        out[wb.len(out) - 1] = total(x[0])

    x, out = wb.array([[1.0, 2.0, 4.0]], dtype=wb.vec3, requires_grad=True), wb.zeros(2, requires_grad=True)
    with wb.Tape() as tape:
        assert ran(add, x, out).tolist() == [0.0, 7.0]
    tape.backward(grads={out: wb.array([5.0, 3.0])})
    assert x.grad.numpy().tolist() == [[3.0, 3.0, 3.0]]


def test_values_and_their_types_know_how_many_components_they_have(backend: str) -> None:
    @wb.kernel
    def mean(x: wb.array[wb.vec3d], y: wb.array[wb.float64]):
        i = wb.tid()
        v = x[i]
        for k in range(v.length):
            y[i] += v[k] * v[k] / wb.float64(type(v).length)
        m = wb.outer(v, v)
        y[i] += wb.float64(m.length)

    values = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]])
    x, y = wb.array(values, dtype=wb.vec3d, requires_grad=True), wb.zeros(2, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(mean, 2, [x], [y])
    tape.backward(grads={y: wb.ones_like(y)})
    np.testing.assert_allclose(y.numpy(), (values**2).mean(1) + 9.0)
    np.testing.assert_allclose(x.grad.numpy(), 2.0 / 3.0 * values)


def test_static_of_a_value_that_only_a_thread_knows_is_refused() -> None:
    @wb.kernel
    def loop(n: int, out: wb.array[float]):
        for k in range(wb.static(n)):
            out[k] = 1.0

    with pytest.raises(wb.KernelError, match="static"):
        loop.program()


@pytest.mark.usefixtures("backend")
def test_blocks_are_found_by_row_and_column() -> None:
    @wb.kernel
    def ask(offsets: wb.array[int], columns: wb.array[int], counts: wb.array[int], at: wb.array3d[int]):
        i, j = wb.tid()
        at[i, j, 0] = wb.sparse.bsr_block_index(i - 1, j, offsets, columns)
        at[i, j, 1] = wb.sparse.bsr_block_index(i - 1, j, offsets, columns, counts)
        at[i, j, 2] = wb.sparse.bsr_row_index(offsets, 3, j)
        at[i, j, 3] = wb.sparse.bsr_row_index(offsets, 3, j, counts)

    offsets, columns, counts = [0, 2, 2, 5], [0, 3, 1, 2, 4], [1, 0, 2]
    at = wb.zeros((4, 6, 4), dtype=int)
    ran(ask, *(wb.array(a, dtype=int) for a in (offsets, columns, counts)), at, dim=(4, 6))
    for i, j in np.ndindex(4, 6):
        places = list(range(offsets[i - 1], offsets[i])) if i else []
        few = places[: counts[i - 1]]
        rows = [r for r in range(3) if offsets[r] <= j < offsets[r + 1]] or [-1]
        here = rows[0] if rows[0] >= 0 and j < offsets[rows[0]] + counts[rows[0]] else -1
        want = [next((k for k in some if columns[k] == j), -1) for some in (places, few)]
        assert at.numpy()[i, j].tolist() == [*want, rows[0], here], (i, j)


TENSORS = [
    (m, n)
    for m in ("SymmetricTensorMapper", "SkewSymmetricTensorMapper")
    for n in ("2d", "3d", *(("2d_voigt", "3d_voigt") if m[1] == "y" else ()))
]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(("mapper", "form"), TENSORS)
def test_tensors_as_vectors_keep_their_norm(mapper: str, form: str) -> None:
    chosen = getattr(wb.fem, mapper)
    there, back = getattr(chosen, f"value_to_dof_{form}"), getattr(chosen, f"dof_to_value_{form}")
    n = int(form[0])
    kind = wb.types.matrix((n, n), wb.float64)
    number = n == 2 and mapper[1] == "k"

    @wb.kernel
    def turn(t: wb.array(dtype=kind), out: wb.array(dtype=kind), size: wb.array[wb.float64]):
        parts = there(t[0])
        size[0] = parts * parts if wb.static(number) else wb.dot(parts, parts)
        out[0] = back(parts)

    sign = 1 if mapper[1] == "y" else -1
    m = np.random.default_rng(3).normal(size=(1, n, n))
    t, out, size = wb.array(m, dtype=kind, requires_grad=True), wb.zeros(1, dtype=kind), wb.zeros(1, dtype=wb.float64)
    with wb.Tape() as tape:
        wb.launch(turn, dim=1, inputs=[t, out, size])
    part = 0.5 * (m + sign * m.transpose(0, 2, 1))
    np.testing.assert_allclose(out.numpy(), part, atol=1e-14)
    np.testing.assert_allclose(size.numpy(), (part * part).sum() / 2)
    tape.backward(grads={size: wb.ones(1, dtype=wb.float64)})
    np.testing.assert_allclose(t.grad.numpy(), part, atol=1e-14)


def test_integrands_are_refused_with_a_way_out() -> None:
    with pytest.raises(wb.LaunchError, match=r"fem\.integrand"):
        wb.fem.integrand(lambda x: x)


def test_an_array_from_a_pointer_is_refused_with_a_way_out() -> None:
    @wb.kernel
    def point(x: wb.uint64, out: wb.array[float]):
        row = wb.array(ptr=x, shape=(2,), dtype=float)
        out[0] = row[0]

    with pytest.raises(wb.KernelError, match=r"makes no array from memory(.|\n)*offset(.|\n)*\[not-callable\]"):
        point.program()


@wb.struct
class Spring:
    k: float
    rest: wb.vec2


@pytest.mark.usefixtures("backend")
def test_a_static_struct_is_a_value_that_can_be_stored_and_changed() -> None:
    spring = Spring(3.0, wb.vec2(1.0, 2.0))

    @wb.kernel
    def store(out: wb.array[Spring], y: wb.array[float]):
        s = wb.static(spring)
        s.k = 2.0 * s.k
        out[0] = s
        out[1] = wb.static(spring)
        y[0] = s.k * s.rest.y

    out, y = wb.zeros(2, dtype=Spring), wb.zeros(1)
    assert ran(store, out, y).tolist() == [12.0]
    assert out.numpy()["k"].tolist() == [6.0, 3.0] and out.numpy()["rest"].tolist() == [[1.0, 2.0]] * 2
    assert (spring.k, spring.rest.y) == (3.0, 2.0)
    spring.k = 5.0
    assert ran(store, out, y).tolist() == [20.0]


@pytest.mark.usefixtures("backend")
def test_a_matrix_is_spread_into_its_rows() -> None:
    @wb.func
    def area(a: wb.vec2, b: wb.vec2):
        return a.x * b.y - a.y * b.x

    @wb.kernel
    def areas(m: wb.array[wb.mat22], out: wb.array[float]):
        out[0] = area(*m[0])

    m, out = wb.array([[[2.0, 3.0], [5.0, 7.0]]], dtype=wb.mat22, requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        assert ran(areas, m, out).tolist() == [-1.0]
    tape.backward(grads={out: wb.ones(1)})
    assert m.grad.numpy().tolist() == [[[7.0, -5.0], [-3.0, 2.0]]]


def test_arrays_behind_an_array_of_structs_are_refused_by_name() -> None:
    @wb.struct
    class Cloud:
        points: wb.array[wb.vec3]

    @wb.kernel
    def first(clouds: wb.array[Cloud], out: wb.array[wb.vec3]):
        out[0] = clouds[0].points[0]

    with pytest.raises(wb.KernelError, match="struct-array"):
        _ = first.ir


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_matrices_of_one_row_or_column(backend, monkeypatch):
    @wb.kernel
    def narrow(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        row = wb.matrix(x[i], 2.0, 3.0, shape=(1, 3), dtype=float)
        column = wb.matrix(4.0, 5.0, shape=(2, 1), dtype=float)
        y[i] = row[0, 0] + 10.0 * row[0, 2] + 100.0 * column[1, 0]

    monkeypatch.setattr(wb.config, "backend", backend)
    x, y = wb.array([1.0], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(narrow, 1, [x], [y])
    tape.backward(y)
    assert (y.list(), x.grad.list()) == ([531.0], [1.0])


def test_only_a_quotient_of_whole_numbers_is_said_to_be_rounded():
    @wb.kernel
    def quotients(x: wb.array[float], n: int, y: wb.array[float]):
        i = wb.tid()
        y[i] = x[i] / 2.0 + float(n) / float(i + 1) - x[i] * float(n % 2 + n // 2) + float(6 / 3 - 2)

    x, y = wb.array([1.0, 2.0]), wb.zeros(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("error", message=r"(?s).*\[integer-division\]")
        wb.launch(quotients, 2, [x, 3], [y])
    assert y.list() == [1.5, -1.5]


def test_a_quotient_of_two_constants_is_said_to_be_rounded_where_it_is():
    @wb.kernel
    def rounded(y: wb.array[float]):
        y[0] = float(7 / 2)

    y = wb.zeros(1)
    with pytest.warns(UserWarning, match=r"`7 / 2`"):
        wb.launch(rounded, 1, [y])
    assert y.list() == [3.0]

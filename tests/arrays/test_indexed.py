"""indexedarray: elements through lists of indices, read, written and differentiated as those of the array itself."""

from typing import Any

import numpy as np
import pytest

import workbench as wb


@wb.kernel
def work(x: wb.indexedarray[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]
    x[i] = 3.0 * x[i]
    wb.atomic_add(x, i, 1.0)
    x[i] += 0.5


def test_elements_are_those_of_the_array_and_so_is_the_gradient(backend):
    x, y = wb.array([1.0, 2.0, 3.0, 4.0], requires_grad=True), wb.zeros(2)
    some = wb.indexedarray(x, [wb.array([3, 1], dtype=int)])
    with wb.Tape(keep="all") as tape:
        wb.launch(work, some.shape, [some, y])
    assert x.numpy().tolist() == [1, 7.5, 3, 13.5] and y.numpy().tolist() == [16, 4]
    assert some.numpy().tolist() == [13.5, 7.5] and some.contiguous().numpy().tolist() == some.list() == [13.5, 7.5]
    assert (some.shape, some.size, some.ndim, some.dtype, len(some)) == ((2,), 2, 1, wb.float32, 2)
    wb.gradcheck(tape)
    tape.backward(grads={y: wb.ones(2), x: wb.ones(4)})
    np.testing.assert_allclose(x.grad.numpy(), [1, 3 + 4, 1, 3 + 8])
    np.testing.assert_allclose(some.grad.numpy(), [11, 7])


def test_several_axes_rows_components_and_shapes(backend):
    @wb.func
    def total(row: wb.indexedarray[wb.vec2]):
        s = wb.vec2()
        for j in range(row.shape[0]):
            s += row[j]
        return s

    @wb.kernel
    def k(x: wb.indexedarray2d(dtype=wb.vec2), y: wb.array[wb.vec2], n: wb.array[int]):
        i = wb.tid()
        y[i] = total(x[i])
        x[i, 0][1] = 9.0
        x[i, 1].x += 1.0
        n[i] = len(x) * 100 + x.shape[1] * 10 + x.ndim

    values = np.arange(24.0).reshape(3, 4, 2)
    x, y = wb.array(values, dtype=wb.vec2, requires_grad=True), wb.zeros(2, dtype=wb.vec2)
    n = wb.zeros(2, dtype=int)
    some = wb.indexedarray(x, [[2, 0], [1, 3, 0]])
    with wb.Tape(keep="all") as tape:
        wb.launch(k, 2, [some, y, n])
    chosen = values[np.ix_([2, 0], [1, 3, 0])]
    np.testing.assert_allclose(y.numpy(), chosen.sum(axis=1))
    chosen[:, 0, 1], chosen[:, 1, 0] = 9.0, chosen[:, 1, 0] + 1
    np.testing.assert_allclose(some.numpy(), chosen)
    assert n.numpy().tolist() == [232, 232]
    wb.gradcheck(tape)


def test_an_axis_without_indices_is_whole_and_plain_arrays_are_taken(backend):
    @wb.kernel
    def k(x: wb.indexedarray(dtype=wb.float64, ndim=2), y: wb.array(dtype=wb.float64)):
        i = wb.tid()
        y[i] = x[i, -1]

    x, y = wb.array(np.arange(6.0).reshape(3, 2), dtype=wb.float64), wb.zeros(2, dtype=wb.float64)
    wb.launch(k, 2, [wb.indexedarray(x, [[2, 0], None]), y])
    assert y.numpy().tolist() == [5, 1]
    wb.launch(k, 2, [x, y])
    assert y.numpy().tolist() == [1, 3]


def test_a_number_beside_one_and_beside_a_plain_array_may_have_a_gradient(backend):
    @wb.kernel
    def k(x: wb.indexedarray[float], a: float, y: wb.array[float]):
        i = wb.tid()
        y[i] = a * x[i]

    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(2)
    for given, chosen in ((wb.indexedarray(x, [[2, 1]]), [3, 2]), (x, [1, 2])):
        for number in (2.0, 5.0):
            a = wb.scalar(number, requires_grad=True)
            with wb.Tape() as tape:
                wb.launch(k, 2, [given, a, y])
            assert y.numpy().tolist() == [number * v for v in chosen]
            tape.backward(grads={y: wb.ones(2)})
            assert a.grad.numpy() == sum(chosen)
            wb.launch(k, 2, [given, number + 1, y])
            assert y.numpy().tolist() == [(number + 1) * v for v in chosen]
    assert x.grad.numpy().tolist() == [7, 14, 7]


def test_lists_index_arrays_on_the_host():
    x = wb.array([1.0, 2.0, 3.0])
    assert isinstance(x[[0, 2]], wb.indexedarray) and x[[0, 2]].numpy().tolist() == [1, 3]
    assert x[wb.array([1, 1], dtype=int)].numpy().tolist() == [2, 2]


def test_a_generic_parameter_and_a_field_take_one(backend):
    @wb.struct
    class S:
        x: wb.indexedarray[float]

    @wb.kernel
    def any_kind(x: Any, y: wb.array[float]):
        i = wb.tid()
        y[i] = x[i]

    @wb.kernel
    def field(s: S, y: wb.array[float]):
        i = wb.tid()
        y[i] = s.x[i]
        s.x[i] = 0.0

    x, y = wb.array([1.0, 2.0, 3.0]), wb.zeros(2)
    some = wb.indexedarray(x, [[2, 1]])
    wb.launch(any_kind, 2, [some, y])
    assert y.numpy().tolist() == [3, 2]
    y.zero_()
    wb.launch(field, 2, [S(x=some), y])
    assert y.numpy().tolist() == [3, 2] and x.numpy().tolist() == [1, 0, 0]


def test_one_element_under_two_indices_is_a_race():
    x, y = wb.ones(3, requires_grad=True), wb.zeros(2)
    wb.config.check_races, before = True, wb.config.check_races
    try:
        with pytest.raises(wb.GradientError, match="race"):
            wb.launch(work, 2, [wb.indexedarray(x, [[1, 1]]), y])
    finally:
        wb.config.check_races = before


@pytest.mark.parametrize(
    "indices, text",
    [
        ([[0, 3]], "index 3 is outside of the 3"),
        ([[-1]], "index -1"),
        ([[0.5]], "whole numbers"),
        ([[0], [0]], "2 lists"),
    ],
)
def test_indices_are_looked_at(indices, text):
    with pytest.raises(wb.LaunchError, match=text):
        wb.indexedarray(wb.zeros(3), indices)


def test_an_array_parameter_does_not_take_one():
    @wb.kernel
    def k(x: wb.array[float]):
        x[wb.tid()] = 1.0

    with pytest.raises(wb.LaunchError, match="argument-type"):
        wb.launch(k, 1, [wb.indexedarray(wb.zeros(3), [[1]])])


def test_a_generic_kernel_takes_indexedarrays_of_any_dtype(backend):
    @wb.kernel
    def gather(x: wb.indexedarray(dtype=Any), y: wb.array(dtype=Any)):
        i = wb.tid()
        y[i] = x[i] * type(x[i]).dtype(2.0)

    x, y = wb.array(np.arange(8.0).reshape(4, 2), dtype=wb.vec2, requires_grad=True), wb.zeros(2, dtype=wb.vec2)
    with wb.Tape() as tape:
        wb.launch(gather, 2, [wb.indexedarray(x, [[3, 0]]), y])
    assert y.numpy().tolist() == [[12, 14], [0, 2]]
    tape.backward(grads={y: wb.array([[1.0, 2.0], [3.0, 4.0]], dtype=wb.vec2)})
    assert x.grad.numpy().tolist() == [[6, 8], [0, 0], [0, 0], [2, 4]]
    wb.launch(gather, 2, [x, y])  # a plain array too
    assert y.numpy().tolist() == [[0, 2], [4, 6]]
    made = wb.overload(gather, {"x": wb.indexedarray(dtype=wb.vec3), "y": wb.array(dtype=wb.vec3)})
    assert "x: array(dtype=vec3)" in str(made.ir)
    with pytest.raises(wb.LaunchError, match="argument-type"):
        wb.launch(gather, 2, [3.0, y])

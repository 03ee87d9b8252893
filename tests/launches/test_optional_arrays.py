"""Launches with None for an array: what the kernel asks is decided when it is read, and what touches it is refused."""

import pickle

import numpy as np
import pytest

import workbench as wb
from tests.support.diagnosed import line_of

pytestmark = pytest.mark.usefixtures("backend")


@wb.struct
class Field:
    w: wb.array(dtype=float)
    k: float


@wb.struct
class Body:
    m: float
    v: wb.vec3


@wb.func
def scaled(a: wb.array(dtype=float), i: int, x: float):
    return a[i] * x if a else x


@wb.kernel
def moved(
    x: wb.array(dtype=float),
    a: wb.array(dtype=float),
    s: Field,
    p: wb.array(dtype=Body),
    flag: int,
    y: wb.array(dtype=float),
):
    i = wb.tid()
    v = scaled(a, i, x[i])
    if s.w and not p:
        v *= s.w[i]
    if p is not None:
        v += p[i].m * x[i]
    if flag > 0:
        v += a[i]
    for j in range(a.shape[0]):
        v += a[j]
    y[i] = v * s.k * x[i]


X, A, W, M = [1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [0.5, 0.25]


def closed(a, w, p):
    x, a_, w_ = (np.array(v) for v in (X, A if a else [1, 1], W if w and not p else [1, 1]))
    extra, more = (sum(A) if a else 0.0), (np.array(M) if p else 0.0)
    return (a_ * x * w_ + more * x + extra) * 2 * x, 2 * (2 * (a_ * w_ + more) * x + extra)


def given(a, w, p):
    bodies = wb.array([Body(m=m) for m in M], dtype=Body)
    s = Field(w=wb.array(W, requires_grad=True) if w else None, k=2.0)
    return wb.array(A, requires_grad=True) if a else None, s, bodies if p else None


@pytest.mark.parametrize("which", range(8))
@pytest.mark.host_memory
def test_values_and_gradients_for_what_is_given(which):
    which = [bool(which & bit) for bit in (1, 2, 4)]
    a, s, p = given(*which)
    x, y = wb.array(X, requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(moved, 2, [x, a, s, p, 0], [y])
    tape.backward(grads={y: wb.ones(2)})
    value, slope = closed(*which)
    np.testing.assert_allclose(y.numpy(), value, rtol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-6)
    moves = wb.jvp(tape, {x: wb.ones(2)})[y]
    np.testing.assert_allclose(moves, slope, rtol=1e-6)
    again = pickle.loads(pickle.dumps((tape, x, y)))
    again[0].backward(grads={again[2]: wb.ones(2)})
    np.testing.assert_array_equal(again[1].grad.numpy(), 2 * x.grad.numpy())
    assert "moved" in repr(tape.show()._repr_mimebundle_())


def test_captures_commands_and_single_adjoints_take_them():
    _, s, _ = given(False, True, False)
    x, y = wb.array(X), wb.zeros(2)
    with wb.capture() as graph:
        wb.launch(moved, 2, [x, None, s, None, 0], [y])
    x.assign([3.0, 1.0])
    graph.replay()
    assert y.list() == [90.0, 12.0]
    wb.launch(moved, 2, [x, None, s, None, 0], [y], record_cmd=True).launch()
    d_x, d_s, d_y = wb.zeros(2), Field(k=0.0), wb.ones(2)
    adjoints = {"adjoint": True, "adj_inputs": [d_x, None, d_s, None, None], "adj_outputs": [d_y]}
    s.w.requires_grad = False
    wb.launch(moved, 2, [x, None, s, None, 0], [y], **adjoints)
    assert d_x.list() == [60.0, 24.0]


def test_an_array_without_elements_is_none_in_a_condition():
    y = wb.zeros(2)
    wb.launch(moved, 2, [wb.array(X), wb.zeros(0), Field(k=1.0), None, 0], [y])
    assert y.list() == [1.0, 4.0]
    wb.launch(moved, 2, [wb.array(X), wb.array(A), Field(k=1.0), None, 0], [y])
    assert y.list() == [10.0, 30.0]


def test_what_touches_it_is_refused_when_a_thread_comes_there():
    x, y = wb.array(X), wb.zeros(2)
    with pytest.raises(wb.LaunchError, match=r"'a' is touched(.|\n)*array-left-out") as e:
        wb.launch(moved, 2, [x, None, Field(k=1.0), None, 1], [y])
    assert e.value.where.line == line_of(moved, "v += a[i]")


def test_what_certainly_touches_it_is_refused_before_the_launch():
    @wb.kernel
    def sums(x: wb.array(dtype=wb.vec3), i: int, y: wb.array(dtype=float)):
        y[0] = 1.0
        y[1] += x[i].x

    y = wb.zeros(2)
    with pytest.raises(wb.LaunchError, match="'x' is touched") as e:
        wb.launch(sums, 1, [None, 0], [y])
    assert e.value.where.line == line_of(sums, "x[i].x") and y.list() == [0, 0]
    with pytest.raises(wb.LaunchError, match="'y' is touched"):
        wb.launch(sums, 1, [wb.zeros(1, dtype=wb.vec3), 0], [None])
    with pytest.raises(wb.LaunchError, match=r"takes int32, got NoneType None"):
        wb.launch(sums, 1, [wb.zeros(1, dtype=wb.vec3), None], [y])


def test_is_none_asks_arrays_alone_and_custom_adjoints_want_one():
    @wb.kernel
    def asks(n: int, y: wb.array(dtype=float)):
        if n is None:
            y[0] = 1.0

    with pytest.raises(wb.KernelError, match=r"\[is\]"):
        wb.launch(asks, 1, [1], [wb.zeros(1)])

    @wb.func
    def first(a: wb.array(dtype=float)):
        return a[0]

    @wb.func_grad(first)
    def adj_first(a: wb.array(dtype=float), g: float):
        wb.adjoint[a][0] += g

    @wb.kernel
    def custom(a: wb.array(dtype=float), y: wb.array(dtype=float)):
        y[0] = first(a)

    with pytest.raises(wb.KernelError, match="adjoint of its own"):
        wb.launch(custom, 1, [None], [wb.zeros(1)])


def test_a_component_of_an_array_that_is_left_out_is_no_part_of_the_program():
    @wb.kernel
    def k(v: wb.array(dtype=wb.vec3), out: wb.array(dtype=float)):
        i = wb.tid()
        if v:
            v[i][1] = 2.0
            out[i] = v[i][1]
        else:
            out[i] = 1.0

    @wb.kernel
    def blind(v: wb.array(dtype=wb.vec3)):
        v[wb.tid()][1] = 2.0

    v, out = wb.zeros(2, dtype=wb.vec3), wb.zeros(2)
    wb.launch(k, 2, [None, out])
    assert out.numpy().tolist() == [1.0, 1.0]
    wb.launch(k, 2, [v, out])
    assert out.numpy().tolist() == [2.0, 2.0]
    with pytest.raises(wb.LaunchError) as found:
        wb.launch(blind, 2, [None])
    assert found.value.slug == "array-left-out"

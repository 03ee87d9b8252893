"""Smooth functions built of `min`, `max`, `clamp`, `abs` and comparisons: exact at ties too, as all keep to one side.

Truth: each function is the closed form beside it, whose slope and curvature are the same on both sides.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS

F, V2 = wb.float64, wb.vec2d
XS = np.array([0.0, -0.0, 0.3, -0.7, 1.0])


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


@wb.kernel
def parts(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.max(x[i], F(0.0)) + wb.min(x[i], F(0.0))


@wb.kernel
def both_positive(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.max(x[i], F(0.0)) - wb.max(-x[i], F(0.0))


@wb.kernel
def scaled(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = F(3.0) * wb.max(F(0.0), x[i] / F(3.0)) - wb.max(F(-2.0) * x[i], F(0.0)) * F(0.5)


@wb.kernel
def of_a_difference(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    b = F(2.0) * x[i]
    y[i] = wb.max(x[i] - b, F(0.0)) + wb.min(x[i], b)


@wb.kernel
def either(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    b = F(2.0) * x[i]
    y[i] = (wb.max(x[i], b) + wb.min(x[i], b)) / F(3.0)


@wb.kernel
def clamped(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.min(x[i], F(0.0)) + wb.clamp(x[i], F(0.0), F(1.0)) + wb.max(x[i] - F(1.0), F(0.0))


@wb.kernel
def clamped_first(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.clamp(x[i], F(-1.0), F(0.0)) + wb.max(x[i], F(0.0)) + wb.min(x[i] + F(1.0), F(0.0))


@wb.kernel
def by_branches(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    s = wb.min(x[i], F(0.0)) + wb.where(x[i] > F(0.0), x[i], F(0.0))
    t = wb.min(x[i], F(1.0))
    if x[i] >= F(1.0):
        t += x[i] - F(1.0)
    y[i] = F(0.5) * (s + t)


@wb.kernel
def three_ways(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    s = wb.max(x[i], F(0.0)) + wb.min(x[i], F(0.0))
    if x[i] > F(0.0):
        s = F(1.0) * s
    elif x[i] < F(0.0):
        s = s * F(1.0)
    y[i] = s


@wb.kernel
def with_a_size(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = F(2.0) * wb.max(x[i], F(0.0)) - wb.abs(x[i])


@wb.kernel
def with_a_size_below(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = F(2.0) * wb.min(x[i], F(0.0)) + wb.abs(x[i])


@wb.kernel
def of_vectors(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    v, o = V2(x[i], F(3.0) * x[i]), V2(F(0.0), F(0.0))
    p = wb.max(v, o) + wb.min(v, o)
    y[i] = F(0.25) * (p[0] + p[1])


@wb.kernel
def in_a_loop(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    s = x[i]
    below = F(0.0)
    total = F(0.0)
    for _ in range(i + 3):
        total += wb.max(s, F(0.0)) + below
        below = wb.min(s, F(0.0))
        s = F(1.0) * s
    y[i] = (total + below) / F(i + 3)


@wb.kernel
def by_stored_numbers(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = x[i] / F(2.0)
    y[i] = F(2.0) * wb.max(y[i], F(0.0)) + wb.min(x[i], F(0.0))


SMOOTH = [
    parts,
    both_positive,
    scaled,
    of_a_difference,
    either,
    clamped,
    clamped_first,
    by_branches,
    three_ways,
    with_a_size,
    with_a_size_below,
    of_vectors,
    in_a_loop,
    by_stored_numbers,
]


@pytest.mark.parametrize("kernel", SMOOTH)
def test_a_number_put_together_again_has_the_slope_1(kernel):
    x, y = wb.array(XS, dtype=F, requires_grad=True), wb.zeros(5, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, 5, [x], [y])
    tape.backward(grads={y: np.ones(5)})
    np.testing.assert_allclose(y.numpy(), XS, rtol=1e-14)
    np.testing.assert_allclose(x.grad.numpy(), 1.0, rtol=1e-14)
    np.testing.assert_allclose(wb.jvp(tape, [{x: np.ones(5)}])[0][y], 1.0, rtol=1e-14)


@pytest.mark.host_memory
@pytest.mark.parametrize("kernel", SMOOTH)
def test_the_microscope_and_the_ledger_keep_to_the_same_side(kernel):
    x, y = wb.zeros(1, dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, 1, [x], [y])
    tape.backward(y)
    steps = tape.microscope(0, 0).steps
    assert sum(s.adjoint for s in steps if s.note == "added to d x[0]") == pytest.approx(1.0, rel=1e-14)
    assert sum(row.value for row in tape.ledger(x, 0).rows) == pytest.approx(1.0, rel=1e-14)


# ---- second derivatives


@wb.kernel
def squares_of_parts(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    above, below = wb.max(x[i], F(0.0)), wb.min(x[i], F(0.0))
    wb.atomic_add(y, 0, above * above + below * below)


@wb.kernel
def square_of_a_size(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    a = wb.abs(x[i])
    wb.atomic_add(y, 0, a * a)


@wb.kernel
def cosine_of_a_size(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    wb.atomic_add(y, 0, F(-2.0) * wb.cos(wb.abs(x[i])))


@wb.kernel
def cosine_on_a_side(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    a = wb.abs(x[i])
    if x[i] < F(0.0):
        a = -x[i]
    wb.atomic_add(y, 0, F(-2.0) * wb.cos(a))


def curvature(kernel, start):
    """(the Hessian's diagonal, what is said)."""
    x, y = wb.array(start, dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape(keep="all") as tape:
        wb.launch(kernel, len(start), [x], [y])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = wb.hvp(tape, y, {x: np.ones(len(start))})[x]
    return found, [str(w.message) for w in said]


@pytest.mark.parametrize("kernel", [squares_of_parts, square_of_a_size])
def test_a_square_put_together_again_has_the_curvature_2(kernel):
    found, said = curvature(kernel, XS)
    np.testing.assert_allclose(found, 2.0, rtol=1e-14)
    assert said == []


def test_the_second_slope_of_a_size_at_0_is_exact_on_a_side_and_else_said():
    found, said = curvature(cosine_on_a_side, XS)
    np.testing.assert_allclose(found, 2.0 * np.cos(XS), rtol=1e-14)
    assert said == []
    found, said = curvature(cosine_of_a_size, XS[2:])
    np.testing.assert_allclose(found, 2.0 * np.cos(XS[2:]), rtol=1e-14)
    assert said == []
    _, said = curvature(cosine_of_a_size, XS)
    assert len(said) == 1 and "second slope of `abs` at 0" in said[0] and said[0].endswith("[convention]")


# ---- what stays a convention


@wb.kernel
def highest(x: wb.array[F], z: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.max(x[i], z[i])


@wb.kernel
def leaky(x: wb.array[F], z: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.max(x[i], z[i]) + F(0.1) * wb.min(x[i], z[i])


@wb.kernel
def leaky_below(x: wb.array[F], z: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = F(0.1) * wb.min(x[i], z[i]) + wb.max(x[i], z[i])


NAN = float("nan")


@pytest.mark.parametrize(
    ("kernel", "by_x", "by_z"),
    [
        (highest, [1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]),
        (leaky, [1.0, 0.1, 1.1, 1.1], [0.1, 1.0, 0.0, 0.0]),
        (leaky_below, [0.1, 0.1, 1.1, 1.1], [1.0, 1.0, 0.0, 0.0]),
    ],
)
def test_a_tie_goes_to_the_first_operand_of_the_first_and_nan_to_the_value_that_was_taken(kernel, by_x, by_z):
    x, z = wb.array([0.0, 1.0, NAN, 1.0], dtype=F), wb.array([0.0, 2.0, 1.0, NAN], dtype=F)
    x.requires_grad = z.requires_grad = True
    y = wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, 4, [x, z], [y])
    tape.backward(grads={y: np.ones(4)})
    assert (x.grad.list(), z.grad.list()) == (pytest.approx(by_x, abs=1e-15), pytest.approx(by_z, abs=1e-15))
    np.testing.assert_array_equal(np.isnan(y.numpy()), [False, False, True, False])


@wb.kernel
def rectified(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.max(x[i], F(0.0)) + wb.abs(x[i] - F(1.0)) + wb.max(x[i], x[i])


@pytest.mark.parametrize(
    ("where", "seed", "rows"), [(0.0, 1.0, ["max"]), (1.0, 1.0, ["abs"]), (0.0, 0.0, []), (0.5, 1.0, [])]
)
def test_diagnose_names_the_ties_that_an_adjoint_goes_through_and_backward_is_silent(where, seed, rows):
    x, y = wb.array([0.7, where], dtype=F, requires_grad=True), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(rectified, 2, [x], [y])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape.backward(grads={y: np.array([1.0, seed])})
    found = tape.diagnose()
    assert found.problems == []
    assert [(f.severity, f.thread, f.sentence.split("`")[1]) for f in found.named("kink")] == [
        ("info", 1, row) for row in rows
    ]

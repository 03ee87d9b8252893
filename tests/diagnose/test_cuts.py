"""A derivative that ends at a cast, a rounding or a comparison is found also where other paths live on."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.diagnosed import leaf, line_of

pytestmark = pytest.mark.usefixtures("backend")
N = 4


@wb.kernel
def cells(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    ratio = float(int(4.0 * x[i]))
    p[i] = 0.5 * ratio


@wb.kernel
def floors(x: wb.array[float], w: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = wb.floor(3.0 * x[i]) * w[i]


@wb.kernel
def rounds(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = 0.1 * x[i] + wb.round(10.0 * x[i])


@wb.kernel
def ceilings(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    s = 0.0
    for k in range(3):
        s += wb.ceil(x[i]) * float(k)
    p[i] = s


@wb.kernel
def branches(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    inside = 0.0
    if x[i] > 0.5:
        inside = 1.0
    p[i] = inside


@wb.kernel
def stores(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    if x[i] > 0.5:
        p[i] = 1.0


@wb.kernel
def chooses(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = wb.where(x[i] > 0.5, 1.0, 0.0)


@wb.kernel
def signs(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = -0.3 * wb.sign(x[i])


@wb.kernel
def counts(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    if x[i] > 0.2 and x[i] < 0.9:
        wb.atomic_add(p, i, 1.0)


@wb.kernel
def swirl(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def join(y: wb.array[float], p: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, y[i] * y[i] + p[i] * y[i])


def beside(kernel: wb.Kernel, *more: wb.array):
    """x -> y -> loss, which lives, and x -> kernel -> p -> loss."""
    x, y, p, loss = leaf(0.3, 0.6, 1.2, 0.8), wb.zeros(N), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(swirl, dim=N, inputs=[x], outputs=[y])
        wb.launch(kernel, dim=N, inputs=[x, *more], outputs=[p])
        wb.launch(join, dim=N, inputs=[y, p], outputs=[loss])
    tape.backward(loss)
    assert np.all(x.grad.numpy() != 0)
    return tape.diagnose()


@pytest.mark.parametrize(
    ("kernel", "line", "reason"),
    [
        (cells, "int(", "cast to int32"),
        (rounds, "wb.round", "round"),
        (ceilings, "wb.ceil", "round"),
        (branches, "if x", "comparison"),
        (stores, "if x", "comparison"),
        (chooses, "wb.where", "comparison"),
        (signs, "wb.sign", "`sign`"),
        (counts, "if x", "comparison"),
    ],
    ids=lambda v: getattr(v, "key", None),
)
def test_a_derivative_is_cut_beside_a_path_that_lives(kernel, line, reason):
    found = beside(kernel).problems
    assert {f.slug for f in found} == {"cut"}, found
    assert found[0].line == line_of(kernel, line) and found[0].launch == f"#1 {kernel.key}"
    assert found[0].arrays == ("p", "x") and reason in found[0].sentence


def test_a_cut_factor_of_something_that_lives_is_told():
    (found,) = beside(floors, leaf(1.0, 2.0, 3.0, 4.0)).problems
    assert found.slug == "cut" and found.line == line_of(floors, "wb.floor") and found.arrays == ("p", "x")


@wb.kernel
def index_of(x: wb.array[float], k: wb.array[int]):
    i = wb.tid()
    k[i] = int(10.0 * x[i])


@wb.kernel
def weight_by(k: wb.array[int], y: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = 0.1 * float(k[i]) * y[i]


@wb.kernel
def look_up(k: wb.array[int], y: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = y[k[i] % 4]


@pytest.mark.parametrize(("kernel", "slugs"), [(weight_by, ["cut"]), (look_up, [])], ids=["number", "address"])
def test_whole_numbers_of_one_launch_are_numbers_in_the_next(kernel, slugs):
    x, y, p, loss, k = leaf(0.3, 0.6, 1.2, 0.8), wb.zeros(N), wb.zeros(N), wb.zeros(1), wb.zeros(N, dtype=int)
    with wb.Tape() as tape:
        wb.launch(swirl, dim=N, inputs=[x], outputs=[y])
        wb.launch(index_of, dim=N, inputs=[x], outputs=[k])
        wb.launch(kernel, dim=N, inputs=[k, y], outputs=[p])
        wb.launch(join, dim=N, inputs=[y, p], outputs=[loss])
    tape.backward(loss)
    found = tape.diagnose().problems
    assert [f.slug for f in found] == slugs
    assert all(f.line == line_of(index_of, "int(") and f.arrays == ("p", "x") for f in found)


# ---- what is ordinary


@wb.kernel
def interpolated(x: wb.array[float], table: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    s = 2.0 * x[i]
    cell = int(s)
    f = s - float(cell)
    p[i] = (1.0 - f) * table[cell] + f * table[cell + 1]


@wb.kernel
def nearest(x: wb.array[float], w: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = w[int(2.0 * x[i])] * w[i]


@wb.kernel
def wrapped(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = x[i] - 0.5 * wb.floor(x[i] / 0.5)


@wb.kernel
def turns(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    v = x[i]
    for _ in range(int(3.0 * x[i]) + 1):
        v = 0.5 * v + 0.1
    p[i] = v


@wb.kernel
def contact(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    f = 0.0
    if x[i] < 0.5:
        f = 100.0 * (0.5 - x[i])
    p[i] = f


@wb.kernel
def rectified(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = wb.where(x[i] > 0.5, 1.0, 0.1) * x[i]


@wb.kernel
def bounced(x: wb.array[float], w: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    v = w[i]
    if x[i] < 0.5:
        v = -0.8 * v
    p[i] = v


@wb.kernel
def friction(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = x[i] - 0.01 * wb.sign(x[i])


@wb.kernel
def guarded(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    if wb.isnan(x[i]):
        p[i] = 0.0
    else:
        p[i] = wb.abs(x[i]) + wb.min(x[i], 0.7) + wb.frac(x[i])


@wb.kernel
def meant(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = wb.floor(wb.detach(x[i])) + wb.where(wb.detach(x[i]) > 0.5, 1.0, 0.0)


ORDINARY = (interpolated, nearest, wrapped, turns, contact, rectified, bounced, friction, guarded, meant)


@pytest.mark.parametrize("kernel", ORDINARY, ids=lambda k: k.key)
def test_addresses_bounds_and_branches_that_carry_a_derivative_are_ordinary(kernel):
    more = [leaf(1.0, 2.0, 3.0, 4.0)] if len(kernel.program().leaves) == 3 else []
    found = beside(kernel, *more)
    assert found.problems == [] and found.named("cut") == []


@wb.kernel
def stick(x: wb.array[float], v: wb.array[float]):
    i = wb.tid()
    if x[i] < 0.5:
        v[i] = 0.0


def test_a_contact_that_stops_what_moves_is_ordinary():
    x, y, v, loss = leaf(0.3, 0.6, 1.2, 0.8), wb.zeros(N), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(swirl, dim=N, inputs=[x], outputs=[y])
        wb.launch(swirl, dim=N, inputs=[x], outputs=[v])
        wb.launch(stick, dim=N, inputs=[x, v])
        wb.launch(join, dim=N, inputs=[y, v], outputs=[loss])
    tape.backward(loss)
    assert tape.diagnose().problems == []


@wb.kernel
def reward(x: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    wb.atomic_sub(p, i, wb.where(x[i] > 0.5, 1.0, 0.0))
    wb.atomic_add(p, i, 0.001 * x[i] * x[i])


def test_a_term_without_a_derivative_is_told_beside_one_that_has_one():
    (found,) = beside(reward).problems
    assert found.slug == "cut" and found.line == line_of(reward, "wb.where")


def test_a_count_that_is_not_part_of_the_objective_is_no_cut():
    x, y, p, loss = leaf(0.3, 0.6, 1.2, 0.8), wb.zeros(N), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(swirl, dim=N, inputs=[x], outputs=[y])
        wb.launch(chooses, dim=N, inputs=[x], outputs=[p])
        wb.launch(join, dim=N, inputs=[y, wb.zeros(N)], outputs=[loss])
    tape.backward(loss)
    assert tape.diagnose().named("cut") == []

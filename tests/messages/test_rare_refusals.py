"""Refusals that few programs meet: each names its slug, and the line to write instead."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.support.squares import N, empty, leaf, square

pytestmark = pytest.mark.usefixtures("backend")


@wb.func
def a_pair_of_names(x: float):
    return wb.sin


def taped():
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        wb.launch(square, N, [x], [y])
    tape.backward(grads={y: wb.ones_like(y)})
    return tape, x, y


def rows_or_columns():
    @wb.kernel
    def k(y: wb.array(dtype=wb.mat22)):
        y[wb.tid()] = wb.mat22(wb.vec2(1.0, 2.0), wb.vec2(3.0, 4.0))

    wb.launch(k, 1, [wb.zeros(1, dtype=wb.mat22)])


def memory_of_two_widths():
    """A gradient check in float64 of memory that holds float32 and vectors of float64."""
    memory = wb.zeros(2, dtype=wb.vec2d)
    ones = wb.array(ptr=memory.ptr, dtype=wb.float32, shape=4)

    @wb.kernel
    def k(x: wb.array(dtype=float), a: wb.array(dtype=float), b: wb.array(dtype=wb.vec2d), y: wb.array(dtype=float)):
        y[0] = x[0] * a[0] + float(b[1][0])

    x, y = wb.ones(1, dtype=float, requires_grad=True), wb.zeros(1, dtype=float)
    with wb.Tape(keep="all") as tape:
        wb.launch(k, 1, [x, ones, memory], [y])
    wb.gradcheck(tape)


REFUSED = {
    "kernel-only": (lambda: wb.tile_zeros(4), "wb.launch_tiled"),
    "matrix-from-vectors": (rows_or_columns, "matrix_from_rows"),
    "no-grad": (lambda: wb.descend(lambda x: x, wb.zeros(2), rounds=1), "requires_grad=True"),
    "map-result": (lambda: wb.map(a_pair_of_names, wb.zeros(2)), ""),
    "gradcheck-mixed": (memory_of_two_widths, "dtype=None"),
    "ledger-index": (lambda: (lambda t, x, y: t.ledger(x, N + 5))(*taped()), ""),
    "ledger-event": (lambda: (lambda t, x, y: t.ledger(x, 0, at=99))(*taped()), ""),
}


@pytest.mark.parametrize("slug", REFUSED)
def test_it_is_refused_by_name(slug):
    run, instead = REFUSED[slug]
    with pytest.raises((wb.KernelError, wb.GradientError, wb.LaunchError, IndexError)) as found:
        run()
    assert found.value.slug == slug and instead in str(found.value)

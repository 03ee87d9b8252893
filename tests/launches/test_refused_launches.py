"""What launches, sums and structs refuse: one request for each arm of a condition."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

F = wb.float64


@wb.struct
class Ball:
    q: wb.vec3d
    m: F


@wb.kernel
def scaled(x: wb.array(dtype=F), s: F, y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * s


def backwards(s, **more):
    x, y = wb.ones(2, dtype=F, requires_grad=True), wb.ones(2, dtype=F, requires_grad=True)
    wb.launch(scaled, 2, [x, s], [y], adjoint=True, adj_inputs=[x.grad, None], adj_outputs=[y.grad], **more)
    return x


def total(out):
    return wb.utils.array_sum(wb.ones(3, dtype=F), out=out)


def taken_from_a_tape(first: bool):
    """A sum as a number, of what a tape has computed (or is given)."""
    x, y = wb.ones(2, dtype=F, requires_grad=True), wb.zeros(2, dtype=F)
    with wb.Tape():
        wb.launch(scaled, 2, [x, 3.0], [y])
        return wb.utils.array_sum(x if first else y)


REFUSED = {
    "backwards by a declared scalar": ("launch-keyword", lambda: backwards(wb.scalar(2.0, F, requires_grad=True))),
    "backwards of a recorded launch": ("launch-keyword", lambda: backwards(2.0, record_cmd=True)),
    "adjoints of a launch that goes forwards": (
        "launch-keyword",
        lambda: wb.launch(
            scaled, 2, [wb.ones(2, dtype=F), 1.0], [wb.ones(2, dtype=F)], adj_inputs=[wb.ones(2, dtype=F)]
        ),
    ),
    "a sum into a number": ("out", lambda: total(3.0)),
    "a sum into another type": ("out", lambda: total(wb.zeros(1))),
    "a sum into two": ("out", lambda: total(wb.zeros(2, dtype=F))),
    "a sum of no array": ("argument-type", lambda: wb.utils.array_sum(3.0)),
    "a sum of structs": ("argument-type", lambda: wb.utils.array_sum(wb.zeros(2, dtype=Ball))),
    "a sum of truth values": ("argument-type", lambda: wb.utils.array_sum(wb.zeros(2, dtype=bool))),
    "products of two types": ("dtype", lambda: wb.utils.array_inner(wb.ones(2), wb.ones(2, dtype=F))),
    "products of two shapes": ("shape", lambda: wb.utils.array_inner(wb.ones(2), wb.ones(3))),
    "a number taken from a tape": ("value-leaves-tape", lambda: taken_from_a_tape(True)),
    "a computed number taken from a tape": ("value-leaves-tape", lambda: taken_from_a_tape(False)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_launch_or_a_sum_cannot_do_is_refused(what):
    slug, ask = REFUSED[what]
    with pytest.raises((wb.LaunchError, wb.GradientError)) as found:
        ask()
    assert found.value.slug == slug


def test_what_is_close_to_a_refusal_is_done():
    assert backwards(2.0).grad.list() == [0.0, 0.0]
    out = wb.zeros(1, dtype=F)
    total(out)
    assert out.list() == [3.0] and wb.utils.array_inner(wb.ones(2), wb.ones(2)) == 2.0


@pytest.mark.parametrize(
    ("values", "fields", "word"),
    [((1, 2, 3), {}, "2 fields"), (([0.0] * 3,), {"q": [0.0] * 3}, "'q' given twice"), ((), {"w": 1}, "w")],
)
def test_a_struct_takes_each_of_its_fields_once(values, fields, word):
    with pytest.raises((TypeError, AttributeError), match=word):
        Ball(*values, **fields)
    assert Ball(np.zeros(3), m=2.0).m == 2.0

"""Memory that is overwritten after it was read: the gradient is exact, or the backward pass is refused.

Seventeen routes by which `x` can change after `y = x**2` read it. Inside the tape all are exact; behind its back all
that matter are refused with [overwritten], and none gives a number that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import F, N, X, cube, empty, leaf, seed, square
from workbench.arrays.span import Span

pytestmark = pytest.mark.usefixtures("backend")


@wb.struct
class Holder:
    inner: wb.array(dtype=F)


@wb.kernel
def set_nine(x: wb.array(dtype=F)):
    i = wb.tid()
    x[i] = F(9.0)


@wb.kernel
def add_nine(x: wb.array(dtype=F)):
    i = wb.tid()
    x[i] += F(9.0)


@wb.kernel
def scale(x: wb.array(dtype=F)):
    i = wb.tid()
    x[i] *= F(3.0)


@wb.kernel
def square_then_nine(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]
    x[i] = F(9.0)


@wb.kernel
def set_held(h: Holder):
    i = wb.tid()
    h.inner[i] = F(9.0)


@wb.kernel
def double(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = F(2.0) * x[i]


def run(kernel, *arrays, **kw):
    wb.launch(kernel, dim=len(arrays[0]), inputs=arrays, **kw)


def kept_bytes(tape) -> int:
    return sum(k.span.nbytes for e in tape.events for k in e.kept)


# --- the routes: each is (does it happen inside the tape, what must come of it, how)

INSIDE: dict[str, Callable] = {
    "store": lambda x: run(set_nine, x),
    "add": lambda x: run(add_nine, x),
    "scale": lambda x: run(scale, x),
    "copy without gradient": lambda x: wb.copy(x, seed(9, 9, 9, 9)),
    "copy with gradient": lambda x: wb.copy(x, leaf([9, 9, 9, 9])),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(9.0),
    "assign": lambda x: x.assign(np.full(N, 9.0)),
    "item": lambda x: x.__setitem__(slice(1, 3), 9.0),
    "flatten after the read": lambda x: run(set_nine, x.flatten()),
    "slice after the read": lambda x: run(set_nine, x[1:3]),
    "second array over the pointer": lambda x: run(set_nine, wb.array(ptr=x.ptr, shape=N, dtype=F)),
    "array in a struct": lambda x: wb.launch(set_held, dim=N, inputs=[Holder(inner=x)]),
    "strided view": lambda x: run(set_nine, x[::-2]),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside_the_tape_an_input_may_be_overwritten(name):
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        INSIDE[name](x)
    after = x.numpy().copy()
    assert not np.array_equal(after, X)
    for k in (1, 2):
        if k == 2:
            tape.zero()
        tape.backward(grads={y: seed(1, 2, 3, 4)})
        np.testing.assert_allclose(x.grad.numpy(), 2 * X * [1, 2, 3, 4], rtol=1e-15)
        np.testing.assert_array_equal(x.numpy(), after)


@pytest.mark.parametrize("name", INSIDE)
def test_inside_the_tape_the_new_contents_have_gradients_of_their_own(name):
    """y = x**2; x changes; z = x**3. Only what still depends on the old x adds to its gradient."""
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        INSIDE[name](x)
        run(cube, x, z)
    after = x.numpy().copy()
    factor = {"add": np.ones(N), "scale": np.full(N, 3.0)}.get(name, (after == X).astype(float))
    tape.backward(grads={y: seed(1, 2, 3, 4), z: seed(1, 1, 1, 1)})
    want = 2 * X * [1, 2, 3, 4] + 3 * after**2 * factor
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-14)


def test_the_source_of_a_copy_over_an_input_gets_its_gradient():
    x, c, y, z = leaf(), leaf([3, 4, 5, 6]), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
        wb.copy(x, c)
        run(cube, x, z)
    tape.backward(grads={y: seed(1, 1, 1, 1), z: seed(1, 1, 1, 1)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)
    np.testing.assert_array_equal(c.grad.numpy(), 3 * np.array([3.0, 4, 5, 6]) ** 2)


BEHIND: dict[str, Callable] = {
    **{f"{name}, outside": how for name, how in INSIDE.items()},
    "record_tape=False": lambda x: run(set_nine, x, record_tape=False),
    "numpy()": lambda x: x.numpy().fill(9.0),
    "one element through numpy()": lambda x: x.numpy().__setitem__(3, 9.0),
}


@pytest.mark.parametrize("other_tape", [False, True])
@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.host_memory("numpy()", "one element through numpy()")
def test_behind_the_tape_an_input_that_is_needed_may_not_change(name, other_tape):
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
    with wb.Tape() if other_tape else nullcontext():
        BEHIND[name](x)
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={y: seed(1, 1, 1, 1)})
    assert found.value.slug == "overwritten" and "'x'" in str(found.value) and "square" in str(found.value)
    assert not x.grad.numpy().any()


@pytest.mark.parametrize("name", BEHIND)
def test_behind_a_tape_that_keeps_everything_it_is_exact_or_refused(name):
    x, y = leaf(), empty()
    with wb.Tape(keep="all") as tape:
        run(square, x, y)
    BEHIND[name](x)
    try:
        tape.backward(grads={y: seed(1, 2, 3, 4)})
    except wb.GradientError as error:
        assert error.slug == "overwritten" and "numpy()" in name, "only raw memory can change unseen"
    else:
        np.testing.assert_array_equal(x.grad.numpy(), 2 * X * [1, 2, 3, 4])


def test_what_no_adjoint_reads_may_change_behind_the_tape():
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        run(double, x, y)
    x.fill_(9.0)
    y.numpy()[...] = 7.0
    tape.backward(grads={y: seed(1, 2, 3, 4)})
    np.testing.assert_array_equal(x.grad.numpy(), [2, 4, 6, 8])


def test_a_view_that_was_read_is_protected_from_writes_to_its_parent():
    x, y = leaf(), empty(2)
    with wb.Tape() as tape:
        run(square, x[1:3], y)
        run(set_nine, x)
    tape.backward(grads={y: seed(1, 2)})
    np.testing.assert_array_equal(x.grad.numpy(), [0, 2 * X[1], 4 * X[2], 0])
    x, y = leaf(), empty(2)
    with wb.Tape() as tape:
        run(square, x[1:3], y)
    x[3:4] = 9.0
    tape.backward(grads={y: seed(1, 2)})
    np.testing.assert_array_equal(x.grad.numpy(), [0, 2 * X[1], 4 * X[2], 0])
    x, y = leaf(), empty(2)
    with wb.Tape() as tape:
        run(square, x[1:3], y)
    x[2:4] = 9.0
    with pytest.raises(wb.GradientError, match="overwritten"):
        tape.backward(grads={y: seed(1, 2)})


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("alias", ["flatten", "slice", "pointer", "numpy"])
@pytest.mark.host_memory("numpy")
def test_an_alias_made_before_the_read_is_the_same_memory(alias, inside):
    x, y = leaf(X.reshape(2, 2)), empty()
    made = {
        "flatten": x.flatten,
        "slice": lambda: x[:, 1],
        "numpy": lambda: wb.from_numpy(x.numpy()[0], dtype=F),
        "pointer": lambda: wb.array(ptr=x.ptr, shape=N, dtype=F),
    }[alias]()
    with wb.Tape() as tape:
        run(square, x.flatten(), y)
        if inside:
            run(set_nine, made)
    if not inside:
        run(set_nine, made)
        with pytest.raises(wb.GradientError, match="overwritten"):
            tape.backward(grads={y: seed(1, 1, 1, 1)})
    else:
        tape.backward(grads={y: seed(1, 1, 1, 1)})
        np.testing.assert_array_equal(x.grad.numpy(), 2 * X.reshape(2, 2))


def test_one_kernel_may_overwrite_what_it_has_read():
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(square_then_nine, x, y)
        run(cube, x, z)
    tape.backward(grads={y: seed(1, 2, 3, 4), z: seed(5, 5, 5, 5)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X * [1, 2, 3, 4])


def test_the_error_names_the_line_that_wrote():
    x, y = leaf(), empty()
    with wb.Tape() as tape:
        run(square, x, y)
    x.fill_(1.0)  # the culprit
    with pytest.raises(wb.GradientError, match="the culprit"):
        tape.backward(grads={y: seed(1, 1, 1, 1)})


# --- writes that the tape does not record, between two that it does


def unrecorded(how: str, h, c) -> None:
    if how == "record_tape=False":
        run(square, c, h, record_tape=False)
    elif how == "inner tape":
        with wb.Tape():
            run(square, c, h)
    else:
        h.numpy()[...] = c.numpy() ** 2


@pytest.mark.parametrize("how", ["record_tape=False", "inner tape", "numpy()"])
@pytest.mark.host_memory("numpy()")
def test_an_intermediate_changed_between_two_events_does_not_carry_a_gradient(how):
    """h = x**2; h = c**2 unseen; y = h**2: the truth is zero, so anything else must be refused."""
    x, c, h, y = leaf(), seed(1, 2, 3, 4), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, h)
        unrecorded(how, h, c)
        run(square, h, y)
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={y: seed(1, 1, 1, 1)})
    assert found.value.slug == "overwritten"


def test_an_intermediate_changed_between_two_blocks_of_a_tape_does_not_carry_a_gradient():
    x, h, y = leaf(), empty(), empty()
    with wb.Tape() as tape:
        run(double, x, h)
    h.fill_(5.0)
    with tape:
        run(square, h, y)
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={y: seed(1, 1, 1, 1)})
    assert found.value.slug == "overwritten"


# --- long programs in place


def test_a_hundred_steps_in_place_have_the_exact_gradient():
    @wb.kernel
    def step(x: wb.array(dtype=F)):
        i = wb.tid()
        x[i] = x[i] + F(0.01) * wb.sin(x[i])

    x = leaf()
    with wb.Tape() as tape:
        for _ in range(100):
            run(step, x)
    v, slope = X.copy(), np.ones(N)
    for _ in range(100):
        slope *= 1 + 0.01 * np.cos(v)
        v += 0.01 * np.sin(v)
    tape.backward(grads={x: seed(1, 2, 3, 4)})
    np.testing.assert_allclose(x.numpy(), v, rtol=1e-13)
    np.testing.assert_allclose(x.grad.numpy(), slope * [1, 2, 3, 4], rtol=1e-12)
    assert kept_bytes(tape) == 100 * X.nbytes


def test_two_buffers_in_turn_have_the_exact_gradient():
    x, a, b = leaf(X / 2), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, a)
        for _ in range(3):
            run(square, a, b)
            run(square, b, a)
    tape.backward(grads={a: seed(1, 1, 1, 1)})
    np.testing.assert_allclose(x.grad.numpy(), 128 * (X / 2) ** 127, rtol=1e-12)
    assert kept_bytes(tape) == 5 * X.nbytes, "the first write to each buffer replaces nothing that was read"


def test_linear_steps_in_place_keep_nothing():
    x, a = leaf(), empty()
    with wb.Tape() as tape:
        run(double, x, a)
        for _ in range(10):
            run(scale, a)
            run(add_nine, a)
            run(double, a, a)
    assert kept_bytes(tape) == 0
    tape.backward(grads={a: seed(1, 1, 1, 1)})
    assert x.grad.numpy().tolist() == [2.0 * 6**10] * N


def test_a_trajectory_in_rows_keeps_no_copies():
    @wb.kernel
    def row(x: wb.array2d(dtype=F), t: int):
        i = wb.tid()
        x[t + 1, i] = x[t, i] * x[t, i]

    x = leaf(np.vstack([X / 2, np.zeros((5, N))]))
    with wb.Tape() as tape:
        for t in range(5):
            wb.launch(row, dim=N, inputs=[x, t])
    assert kept_bytes(tape) == 0
    tape.backward(grads={x[5]: seed(1, 2, 3, 4)})
    np.testing.assert_allclose(x[0].grad.numpy(), 32 * (X / 2) ** 31 * [1, 2, 3, 4], rtol=1e-13)


def test_a_trajectory_of_columns_and_slices_keeps_no_copies():
    x = leaf(np.stack([X / 2, *np.zeros((4, N))], axis=1))
    with wb.Tape() as tape:
        for t in range(4):
            run(square, x[:, t], x[:, t + 1])
    assert kept_bytes(tape) == 0
    tape.backward(grads={x[:, 4]: seed(1, 1, 1, 1)})
    np.testing.assert_allclose(x[:, 0].grad.numpy(), 16 * (X / 2) ** 15, rtol=1e-13)


def test_a_trajectory_of_many_rows_is_not_compared_with_all_of_its_past(monkeypatch):
    compared = []
    monkeypatch.setattr(Span, "overlaps", lambda s, o, of=Span.overlaps: compared.append(0) or of(s, o))
    steps = 60
    x = leaf(np.full((steps + 1, N), 1.0))
    rows = [x[t] for t in range(steps + 1)]
    with wb.Tape() as tape:
        for t in range(steps):
            run(square, rows[t], rows[t + 1])
    assert len(compared) < 10 * steps < steps**2
    for again in (30, 10):  # what was needed before is still compared, whatever has been kept or dropped since
        with tape:
            rows[again].fill_(1.0)
    assert kept_bytes(tape) == 2 * rows[0].nbytes
    tape.backward(grads={rows[steps]: seed(1, 1, 1, 1)})
    assert x.grad.numpy()[0].tolist() == [2.0**steps] * N


def test_what_an_optimizer_overwrites_after_backward_is_kept():
    w, y = leaf(), empty()
    with wb.Tape() as tape:
        run(square, w, y)
    for _ in range(3):
        w.grad.zero_()
        tape.backward(grads={y: seed(1, 2, 3, 4)})
        np.testing.assert_array_equal(w.grad.numpy(), 2 * X * [1, 2, 3, 4])
        w.assign(w.numpy() - 0.1 * w.grad.numpy())
    assert kept_bytes(tape) == w.nbytes, "once, before the first change"
    assert not tape.diagnose().named("overwritten-kept"), "the program does not overwrite it"
    assert not tape.diagnose().problems
    assert tape.adjoint(w).tolist() == (2 * X * [1, 2, 3, 4]).tolist()
    assert tape.ledger(w, 1).total == 2 * X[1] * 2
    tape.reset()
    with tape:
        run(square, w, y)
    w.fill_(1.0)
    with pytest.raises(wb.GradientError, match="overwritten"):
        tape.backward(grads={y: seed(1, 2, 3, 4)})


def test_only_the_overwritten_part_is_kept():
    x, y = leaf(np.ones(1000)), empty(1000)
    with wb.Tape() as tape:
        run(square, x, y)
        x[10:20] = 3.0
        x[10:20] = 4.0
    assert kept_bytes(tape) <= 160, "ten numbers before each of the two writes, not a thousand"
    tape.backward(grads={y: wb.ones(1000, dtype=F)})
    np.testing.assert_array_equal(x.grad.numpy(), np.full(1000, 2.0))
    assert x.numpy()[10:20].tolist() == [4.0] * 10

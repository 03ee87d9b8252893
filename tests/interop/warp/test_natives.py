"""What Warp computes outside of kernels, loops in captures, arrays of structs: the same bits, and exact gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]
X = np.random.default_rng(3).normal(size=700).astype(np.float32)


def given(wp: Any, values: Any, **choices: Any) -> Any:
    return wp.array(values, requires_grad=True, **choices)


def same_bits(seen: Any) -> None:
    assert not seen.opaque_steps, [s.reason for s in seen.opaque_steps]
    apart = [(s.label, s.difference) for s in seen.steps if s.difference is not None]
    assert not apart, apart


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("kind", ["float32", "float64", "vec3", "int32"])
def test_scans(k, inclusive, kind):
    wp = k.wp
    dtype = getattr(wp, kind)
    values = {"vec3": X[:699].reshape(-1, 3), "int32": np.arange(700, dtype=np.int32)}.get(kind, X)
    a, out = wp.array(values, dtype=dtype), wp.zeros(len(values), dtype=dtype)
    with wb.interop.warp.watch() as seen:
        wp.utils.array_scan(a, out, inclusive)
    same_bits(seen)
    if kind == "int32":
        return
    seed = np.random.default_rng(4).normal(size=np.shape(values)).astype(values.dtype)
    seen.backward(grads={out: seed})
    wanted = np.cumsum(seed[::-1].astype(np.float64), axis=0)[::-1] - (0 if inclusive else seed)
    np.testing.assert_allclose(seen.gradients[a], wanted, rtol=1e-4, atol=1e-4)
    assert "#0 array_scan" in seen.show().text


def test_sums_and_inner_products(k):
    wp = k.wp
    x, y = given(wp, X), given(wp, X[::-1].copy())
    v, w = (given(wp, X[:600].reshape(-1, 3) * s, dtype=wp.vec3) for s in (1, 2))
    grid = given(wp, X[:600].reshape(20, 30))
    outs = [wp.zeros(1, dtype=float) for _ in range(4)]
    rows, columns = wp.zeros((20, 1), dtype=float), wp.zeros((1, 30), dtype=float)
    total = wp.zeros(1, dtype=wp.vec3)
    with wb.interop.warp.watch() as seen:
        wp.utils.array_sum(x, out=outs[0])
        wp.utils.array_sum(x, out=outs[1], value_count=9)
        wp.utils.array_inner(x, y, out=outs[2])
        wp.utils.array_inner(v, w, out=outs[3])
        wp.utils.array_sum(grid, out=rows, axis=1)
        wp.utils.array_sum(grid, out=columns, axis=0)
        wp.utils.array_sum(v, out=total)
        number = wp.utils.array_sum(x)  # a number of the host
        made = wp.utils.array_sum(grid, axis=1)
    same_bits(seen)
    assert number == outs[0].numpy()[0] and np.array_equal(made.numpy(), rows.numpy())
    one = np.ones(1, np.float32)
    seen.backward(grads={outs[1]: one, outs[2]: one})
    wanted = X[::-1].copy()
    wanted[:9] += 1
    np.testing.assert_array_equal(seen.gradients[x], wanted)
    np.testing.assert_array_equal(seen.gradients[y], X)
    seen.backward(grads={outs[3]: one, total: np.array([[1.0, 0.0, 5.0]], np.float32)})
    np.testing.assert_allclose(seen.gradients[v], w.numpy() + [1, 0, 5], rtol=1e-6)
    r, c = np.arange(20.0, dtype=np.float32).reshape(20, 1), np.arange(30.0, dtype=np.float32).reshape(1, 30)
    seen.backward(grads={rows: r, columns: c})
    np.testing.assert_array_equal(seen.gradients[grid], r + c)
    seen.backward(grads={made: r})
    np.testing.assert_array_equal(seen.gradients[grid], np.broadcast_to(r, (20, 30)))


@pytest.mark.parametrize("kind", ["int32", "float32", "int64"])
def test_what_is_sorted_takes_its_gradient_along(k, kind):
    wp, n = k.wp, 40
    draw = np.random.default_rng(5).integers(-9, 9, n)
    keys = np.zeros(2 * n, kind)
    keys[:n] = draw
    pairs = np.concatenate([X[:n], np.zeros(n, np.float32)])
    x, held, y = given(wp, pairs), wp.zeros(2 * n, dtype=float), wp.zeros(n, dtype=float)
    order = wp.array(keys, dtype=getattr(wp, kind))
    with wb.interop.warp.watch() as seen:
        wp.copy(held, x)
        wp.utils.radix_sort_pairs(order, held, n)
        wp.launch(k.square, n, inputs=[held], outputs=[y])
    same_bits(seen)
    seed = np.arange(1.0, n + 1, dtype=np.float32)
    seen.backward(grads={y: seed})
    wanted = np.zeros(2 * n, np.float32)
    wanted[np.argsort(draw, kind="stable")] = seed * 2 * X[:n][np.argsort(draw, kind="stable")]
    np.testing.assert_array_equal(seen.gradients[x], wanted)


def test_runs_and_segments_and_casts(k):
    wp = k.wp
    values = wp.array([5, 5, 7, 5, 5, 5], dtype=int)
    runs, lengths, count = (wp.zeros(6, dtype=int) for _ in range(3))
    keys, held = wp.array([3, 1, 2, 9, 8, 7] + [0] * 6, dtype=int), wp.array(list(range(12)), dtype=int)
    x, y = given(wp, X[:5]), wp.zeros(5, dtype=wp.float64)
    with wb.interop.warp.watch() as seen:
        assert wp.utils.runlength_encode(values, runs, lengths) == 3
        wp.utils.runlength_encode(values, runs, lengths, count)
        wp.utils.segmented_sort_pairs(keys, held, 6, wp.array([0, 3, 6], dtype=int))
        wp.utils.array_cast(x, y)
    same_bits(seen)
    assert lengths.numpy()[:3].tolist() == [2, 1, 3]
    assert (held.numpy()[:6].tolist(), count.numpy()[0]) == ([1, 2, 0, 5, 4, 3], 3)
    seen.backward(grads={y: np.arange(5.0)})
    np.testing.assert_array_equal(seen.gradients[x], np.arange(5.0))


def test_a_sum_that_no_tape_of_warp_records_is_named(k):
    """Warp has no adjoint for these functions: a gradient through one is lost, and the table says where."""
    wp = k.wp
    x, y, loss = given(wp, X[:3]), wp.zeros(3, requires_grad=True), wp.zeros(1, requires_grad=True)
    out = wp.zeros(3, requires_grad=True)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.utils.array_scan(y, out, True)
            wp.launch(k.total, 3, inputs=[out], outputs=[loss])
        tape.backward(loss)
    row = seen.compare()["x"]
    assert row.verdict == "wrong" and "array_scan" in row.cause
    np.testing.assert_allclose(row.exact, 2 * X[:3] * [3, 2, 1], rtol=1e-6)
    figure = seen.show()
    assert figure.against.first is not None and "Warp 0" in figure.against.first.numbers


def test_a_loop_in_a_capture_is_the_turns_that_happened(k):
    wp = k.wp
    for turns in (0, 3):
        x, n = given(wp, np.array([1.1, 0.9], np.float32)), wp.array([turns], dtype=int)
        y = wp.zeros(2, dtype=float)

        def body(x: Any = x, n: Any = n) -> None:
            wp.launch(k.in_place, 2, inputs=[x, 1.5])
            wp.launch(k.countdown, 1, inputs=[n])

        with wb.interop.warp.watch() as seen:
            with wp.ScopedCapture(device="cpu") as capture:
                wp.capture_while(n, while_body=body)
                wp.launch(k.square, 2, inputs=[x], outputs=[y])
            assert not seen.steps
            wp.capture_launch(capture.graph)
        same_bits(seen)
        assert [s.label for s in seen.steps] == ["in_place", "countdown"] * turns + ["square"]
        seen.backward(grads={y: np.ones(2, np.float32)})
        v, wanted = np.array([1.1, 0.9]), np.ones(2)
        for _ in range(turns):
            wanted, v = wanted * 3 * v, 1.5 * v * v
        np.testing.assert_allclose(seen.gradients[x], wanted * 2 * v, rtol=1e-5)


def test_a_branch_in_a_capture_is_the_one_that_was_taken(k):
    wp = k.wp
    x, y, choice = given(wp, X[:3]), wp.zeros(3, dtype=float), wp.array([1], dtype=int)
    with wb.interop.warp.watch() as seen:
        with wp.ScopedCapture(device="cpu") as capture:
            wp.capture_if(
                choice,
                lambda: wp.launch(k.square, 3, inputs=[x], outputs=[y]),
                lambda: wp.launch(k.cubed, 3, inputs=[x], outputs=[y]),
            )
        for flag, wanted in ((1, 2 * X[:3]), (0, 3 * X[:3] ** 2)):
            choice.assign([flag])
            wp.capture_launch(capture.graph)
            seen.backward(grads={y: np.ones(3, np.float32)})
            np.testing.assert_allclose(seen.gradients[x], wanted, rtol=1e-6)
    same_bits(seen)
    assert [s.label for s in seen.steps if s.kind == "launch"] == ["square", "cubed"]


@pytest.mark.parametrize("wrong", [False, True])
def test_results_in_arrays_of_structs_are_compared_by_their_fields(wrong):
    """The bytes between the fields are nobody's; a number of a field that differs is a finding."""
    from workbench.warp.watch.session import _difference, _numbers

    kind = np.dtype([("flag", np.uint8), ("q", np.float32, (3,)), ("m", np.float64)], align=True)
    ours, theirs = np.zeros(4, kind), np.zeros(4, kind)
    ours["q"], theirs["q"], ours["m"], theirs["m"] = 2.0, 2.0, 3.0, 3.0
    theirs.view(np.uint8)[1] = 77  # between the fields
    if wrong:
        theirs["q"][2, 1] = 2.5
    region: Any = None
    found = [d for pair in _numbers(ours, theirs) if (d := _difference(region, *pair)) is not None]
    assert [(d.number, d.ours, d.theirs, d.share) for d in found] == ([(7, 2.0, 2.5, 0.2)] if wrong else [])


def test_arrays_of_structs_have_the_same_bits_and_gradients(k):
    from watched_structs import Ball, push

    wp = k.wp
    start = np.zeros(2, Ball.numpy_dtype())
    start["q"], start["m"], start["n"] = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [2.0, 0.5], 7
    balls, y = wp.array(start, dtype=Ball), wp.zeros(2, dtype=float)
    with wb.interop.warp.watch() as seen:
        wp.launch(push, 2, inputs=[balls], outputs=[y])
        wp.launch(push, 2, inputs=[balls], outputs=[y])
    same_bits(seen)
    assert balls.numpy()["n"].tolist() == [9, 9]
    seen.backward(grads={y: np.ones(2, np.float32)})
    q, m = start["q"].astype(np.float64), start["m"].astype(np.float64)
    found = seen.gradients[balls]
    np.testing.assert_allclose(found["m"], 4 * m**3 * (q * q).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found["q"], 2 * q * m[:, None] ** 4, rtol=1e-5)

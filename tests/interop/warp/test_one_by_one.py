"""Threads that store one result to one element: Warp runs them in their order, and so does what is recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]

BRANCHES = [1, 2, 3], [1, 4], [1, 2, 5]  # from the root of a tree to its leaves
X = np.array([0, 0.7, -0.4, 0.3, 1.1, 0.2])


def along(x: np.ndarray, roots: np.ndarray) -> float:
    """The sum over all of `out`, in float64."""
    out = np.zeros((len(roots), 6))
    out[:, 0] = roots
    for world in range(len(roots)):
        for bodies in BRANCHES:
            s = out[world, 0]
            for body in bodies:
                s = np.sin(s) + x[body] * s
                out[world, body] = s
    return float(out.sum())


def slopes(f, at: np.ndarray, h: float = 1e-6) -> np.ndarray:
    return np.array([(f(at + h * e) - f(at - h * e)) / (2 * h) for e in np.eye(at.size)])


def test_equal_stores_of_several_threads_have_the_exact_gradient(k: Any) -> None:
    wp = k.wp
    starts, bodies = np.cumsum([0, *map(len, BRANCHES)]), np.concatenate(BRANCHES)
    given = [wp.array(v, dtype=int) for v in (starts, bodies)]
    roots = np.array([0.5, 1.0])
    x, out = wp.array(X, dtype=float), wp.array(np.outer(roots, np.eye(6)[0]), dtype=float)
    with wb.interop.warp.watch() as seen:
        wp.launch(k.branch, (2, 3), [*given, x], [out])
    assert not seen.opaque_steps and seen.steps[0].difference is None
    seen.backward(grads={out: np.ones((2, 6), np.float32)})
    np.testing.assert_allclose(seen.gradients[x], slopes(lambda v: along(v, roots), X), rtol=2e-6)
    by_roots = slopes(lambda v: along(X, v), roots)
    np.testing.assert_allclose(seen.gradients[out], np.outer(by_roots, np.eye(6)[0]), rtol=2e-6)


def test_a_counter_that_threads_read_and_add_to_is_that_of_warps_order(k: Any) -> None:
    wp = k.wp
    x, count, out = wp.array(X, dtype=float), wp.zeros(1, dtype=int), wp.zeros(6, dtype=float)
    with wb.interop.warp.watch() as seen:
        wp.launch(k.slots, 6, [x, 3], [count, out])
    np.testing.assert_array_equal(out.numpy(), [*np.float32(X[1::2]) ** 2, 0, 0, 0])
    assert not seen.opaque_steps and seen.steps[0].difference is None
    seen.backward(grads={out: np.ones(6, np.float32)})
    np.testing.assert_allclose(seen.gradients[x], 2 * X * [0, 1, 0, 1, 0, 1], rtol=1e-6)


def test_stores_that_differ_stay_a_race(k: Any) -> None:
    wp = k.wp
    x, y = wp.array(X, dtype=float), wp.zeros(2, dtype=float)
    with wb.interop.warp.watch() as seen:
        wp.launch(k.meet, 6, [x], [y])
    np.testing.assert_array_equal(y.numpy(), np.float32(X[4:]) ** 2)
    with pytest.raises(wb.GradientError, match=r"touch one element of 'y'"):
        seen.backward(grads={y: np.ones(2, np.float32)})


def test_stores_that_are_equal_by_chance_have_the_gradient_of_the_last_thread(k: Any) -> None:
    wp = k.wp
    x, y = wp.array([0.5] * 6, dtype=float), wp.zeros(2, dtype=float)
    with wb.interop.warp.watch() as seen:
        wp.launch(k.meet, 6, [x], [y])
    seen.backward(grads={y: np.array([1.0, 3.0], np.float32)})

    def in_order(v: np.ndarray) -> float:
        out = [0.0, 0.0]
        for i, value in enumerate(v):
            out[i % 2] = value * value
        return out[0] + 3 * out[1]

    np.testing.assert_allclose(seen.gradients[x], slopes(in_order, np.full(6, 0.5)), rtol=1e-6, atol=1e-9)
    assert seen.gradients[x].tolist() == [0, 0, 0, 0, 1, 3]

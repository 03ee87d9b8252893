"""No right gradient of Warp's is accused, for rounding or for a kink; and no wrong one hides behind either."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]
KERNELS = "doubtful"
RNG = np.random.default_rng(7)


def row_of(k: Any, kernel: Any, n: int, inputs: list, out: Any, seed: np.ndarray, name: str = "x") -> Any:
    """The row about inputs[0] of a program of one launch."""
    wp, x = k.wp, inputs[0]
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(kernel, n, inputs, outputs=[out])
        tape.backward(grads={out: wp.array(seed, dtype=out.dtype)})
    assert not seen.opaque_steps
    return next(r for p, r in zip(seen.passes[0].published, seen.passes[0].rows, strict=True) if p.theirs is x)


def floats(k: Any, values: Any) -> Any:
    return k.wp.array(np.array(values, np.float32), dtype=float, requires_grad=True)


def zeros(k: Any, n: int) -> Any:
    return k.wp.zeros(n, dtype=float, requires_grad=True)


# ---- rounding


@pytest.mark.parametrize("big", [1e4, 1e8])
def test_a_long_sum_in_which_large_numbers_cancel_is_not_accused(k: Any, big: float) -> None:
    half = np.round(big * RNG.standard_normal(150_000))  # so many that threads of ours share the sum
    w = np.concatenate([half, -half, RNG.standard_normal(30)]).astype(np.float32)
    w = w[RNG.permutation(len(w))]
    x, loss = floats(k, [1.3, 0.7, -0.4]), zeros(k, 1)
    row = row_of(k, k.cancelling, len(w), [x, floats(k, w)], loss, np.ones(1, np.float32))
    assert row.verdict in ("agrees", "unverified"), row.texts()
    assert row.verdict == "agrees" or row.cause.startswith("precision: ")
    assert 0 < row.difference


def test_entries_that_symmetry_makes_small_agree(k: Any) -> None:
    wp, n = k.wp, 40
    inertia = np.tile(np.diag([2e-3, 2e-3, 4e-3]), (n, 1, 1))
    q = RNG.standard_normal((n, 4)) * [1, 1, 1e-7, 3]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    given = [
        wp.array(inertia, dtype=wp.mat33, requires_grad=True),
        wp.array(q, dtype=wp.quat, requires_grad=True),
        wp.array(RNG.standard_normal((n, 3)), dtype=wp.vec3, requires_grad=True),
    ]
    out = wp.zeros(n, dtype=wp.vec3, requires_grad=True)
    row = row_of(k, k.turned, n, given, out, RNG.standard_normal((n, 3)).astype(np.float32))
    assert row.verdict == "agrees" and row.difference < 1e-5


def test_a_small_number_on_a_large_one_agrees(k: Any) -> None:
    row = row_of(k, k.far_off, 3, [floats(k, [8.0, 16.0, 40.0])], zeros(k, 3), np.ones(3, np.float32))
    assert row.verdict == "agrees"


def test_one_percent_off_is_wrong(k: Any) -> None:
    row = row_of(k, k.off_by_a_hundredth, 3, [floats(k, [1.0, 2.0, 3.0])], zeros(k, 3), np.ones(3, np.float32))
    assert (row.verdict, row.launch) == ("wrong", "#0 off_by_a_hundredth")
    assert row.difference == pytest.approx(0.01, rel=1e-3)


def test_one_percent_off_in_a_number_that_is_small_beside_others_is_wrong(k: Any) -> None:
    row = row_of(k, k.small_one_off, 2, [floats(k, [1.0, 1.0])], zeros(k, 2), np.ones(2, np.float32))
    assert row.verdict == "wrong" and row.difference < 1e-8


def test_rounding_that_either_measure_sees_excuses_a_number(k: Any) -> None:
    """Scaled seeds move one number alone, moved memory the other: each is excused by the measure that saw it."""
    from workbench.warp.watch.compare import VerdictRow
    from workbench.warp.watch.passes import WarpBackward
    from workbench.warp.watch.walks import PublishedGradient

    twin, one = object(), WarpBackward.__new__(WarpBackward)
    exact, theirs = np.array([1.0, 0.0, 1e-5], np.float32), np.array([1.0, 1e-7, 1.01e-5], np.float32)
    row, published = VerdictRow("x", "not asked", theirs=theirs), PublishedGradient(None, twin, exact)  # type: ignore[arg-type]
    noise, moved = np.array([0, 0, 1e-8]), np.array([0, 1e-8, 0.0])
    one.measured = {"scaled": {id(twin): noise}, "rounded": {id(twin): moved}}
    assert one._judged(published, row, exact)[0] == "agrees"
    moved *= 0
    assert one._judged(published, row, exact)[0] == "wrong"


# ---- kinks

KINKS = {"push": "min", "above": "max", "size": "abs", "kept_below": "clamp"}


@pytest.mark.parametrize("name", KINKS)
def test_another_slope_at_a_kink_is_unverified(k: Any, name: str) -> None:
    v = floats(k, [0.0, 1.0, 0.0, -1.0])
    row = row_of(k, getattr(k, name), 4, [v], zeros(k, 4), np.ones(4, np.float32))
    if np.array_equal(row.theirs, row.exact):
        assert row.verdict == "agrees"  # the two have chosen alike
    else:
        assert row.verdict == "unverified" and row.launch == f"#0 {name}"
        line = getattr(k, name).adj.fun_lineno + 3  # below the decorator, the def and the index
        assert row.cause.startswith(f"kink: `{KINKS[name]}` in line {line} ")
        assert "overwritten" not in row.cause and row.remedy
    assert np.abs(np.asarray(row.theirs) - row.exact)[[1, 3]].max() == 0


def test_three_of_the_four_kinks_are_chosen_otherwise_in_warp(k: Any) -> None:
    apart = []
    for name in KINKS:
        row = row_of(k, getattr(k, name), 1, [floats(k, [0.0])], zeros(k, 1), np.ones(1, np.float32))
        apart.append(row.verdict == "unverified")
    assert sum(apart) >= 3, apart


def test_a_branch_of_the_program_is_no_kink(k: Any) -> None:
    row = row_of(k, k.chosen_by_hand, 3, [floats(k, [0.0, 1.0, -1.0])], zeros(k, 3), np.ones(3, np.float32))
    assert row.verdict == "agrees"


def test_a_wrong_gradient_beside_a_kink_is_wrong(k: Any) -> None:
    row = row_of(k, k.looped_push, 3, [floats(k, [0.0, 0.5, -0.5]), 3], zeros(k, 3), np.ones(3, np.float32))
    assert row.verdict == "wrong" and row.cause.startswith("dynamic loop in the kernel: ")


def test_memory_overwritten_in_a_program_with_a_kink_is_wrong(k: Any) -> None:
    wp = k.wp
    v, x = floats(k, [0.0, 0.0]), floats(k, [1.0, 2.0])
    f, y, loss = zeros(k, 2), zeros(k, 2), zeros(k, 1)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.push, 2, [v], [f])
            wp.launch(k.square, 2, [x], [y])
            wp.launch(k.total, 2, [f], [loss])
            wp.launch(k.total, 2, [y], [loss])
            wp.launch(k.descend, 2, [x, y, 0.5])
        tape.backward(loss)
    rows = seen.compare()
    assert (rows["v"].verdict, rows["v"].launch) == ("unverified", "#0 push")
    assert (rows["x"].verdict, rows["x"].launch) == ("wrong", "#1 square")
    assert rows["x"].cause.startswith("overwritten memory: ") and not rows.agrees


# ---- hash grids


def test_a_grid_that_was_built_anew_is_named_as_the_program_knows_it(k: Any) -> None:
    wp = k.wp
    points = np.array([[0, 0, 0], [0.5, 0.25, 0], [0, 0.75, 0.5], [3, 3, 3]], np.float32)
    x = wp.array(points, dtype=wp.vec3, requires_grad=True)
    far = wp.array(10 * points, dtype=wp.vec3)
    y, grid = zeros(k, 4), wp.HashGrid(8, 8, 8)
    with wb.interop.warp.watch() as seen:
        grid.build(x, 1.0)
        with wp.Tape() as tape:
            wp.launch(k.near, 4, [grid.id, x], [y])
        grid.build(far, 1.0)
        tape.backward(grads={y: wp.array(np.ones(4, np.float32), dtype=float)})
    row = seen.compare()["x"]
    assert row.verdict == "wrong", row.texts()
    assert ".starts" not in row.cause and ".items" not in row.cause
    assert row.cause.startswith("overwritten memory: its adjoint reads the hash grid `grid` as it is now")


# ---- numbers that are not finite


def test_where_the_exact_gradient_is_infinite_and_the_rest_is_right_nobody_is_accused(k: Any) -> None:
    wp, x, y = k.wp, floats(k, [np.inf, 2.0, 3.0]), zeros(k, 3)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.square, 3, [x], [y])
        x.assign(np.array([1.0, 2.0, 3.0], np.float32))  # Warp's adjoint reads 1
        tape.backward(grads={y: wp.array(np.ones(3, np.float32), dtype=float)})
    row = seen.compare()["x"]
    np.testing.assert_array_equal(row.theirs, [2.0, 4.0, 6.0])
    np.testing.assert_array_equal(row.exact, [np.inf, 4.0, 6.0])
    assert row.verdict == "unverified" and row.cause.startswith("not finite: 1 of 3 numbers"), row.texts()
    assert row.launch.endswith(" square") and "wp.empty" in row.remedy


def test_a_right_backward_in_a_capture_is_not_accused(k: Any) -> None:
    wp, x, y = k.wp, floats(k, [1.0, 2.0, 3.0]), zeros(k, 3)
    with wb.interop.warp.watch() as seen:
        with wp.ScopedCapture(device="cpu") as capture:
            with wp.Tape() as tape:
                wp.launch(k.square, 3, [x], [y])
            tape.backward(grads={y: wp.array(np.ones(3, np.float32), dtype=float)})
        wp.capture_launch(capture.graph)
    assert not seen.opaque_steps and seen.compare()["x"].verdict == "agrees"
    seen.backward(grads={y: np.ones(3, np.float32)})
    np.testing.assert_allclose(seen.gradients[x], [2.0, 4.0, 6.0])


# ---- gradients that nobody has cleared


def test_what_adds_up_in_an_array_that_is_written_later_is_not_accused(k: Any) -> None:
    """A walk back once more, without a zero: z.grad is the sum of both walks, as that of arrays that nothing writes."""
    wp, x, z = k.wp, floats(k, [1.0, 2.0, 3.0]), floats(k, [0.5, 0.25, 2.0])
    loss = zeros(k, 1)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.total, 3, [z], [loss])
            wp.launch(k.added, 3, [x], [z])
        tape.backward(loss)
        tape.backward(loss)
    rows = [r for r in seen.compare() if r.array == "z"]
    assert [r.verdict for r in rows] == ["agrees", "agrees"], [r.texts() for r in rows]
    assert rows[1].cause.startswith("with what it held before")


def rows_of_a_jacobian(k: Any, taken: Callable[[Any], Any]) -> Any:
    """A walk for each element of y; `taken` keeps the row of each. (The rows, what was seen.)"""
    wp, x, y = k.wp, floats(k, [1.0, 2.0, 3.0]), zeros(k, 3)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.square, 3, [x], [y])
        kept = []
        for seed in np.eye(3, dtype=np.float32):
            tape.zero()
            tape.backward(grads={y: wp.array(seed, dtype=float)})
            kept.append(taken(x.grad))
    return kept, seen


def test_rows_that_are_views_of_one_gradient_are_wrong(k: Any) -> None:
    kept, seen = rows_of_a_jacobian(k, lambda grad: grad.numpy())
    np.testing.assert_array_equal(np.array(kept)[0], [0.0, 0.0, 6.0])  # not 2, 0, 0
    rows = [r for r in seen.compare() if r.array == "x"]
    assert [r.verdict for r in rows] == ["wrong", "wrong", "agrees"], [r.texts() for r in rows]
    assert rows[0].cause.startswith("alias: ") and rows[0].remedy == "`x.grad.numpy().copy()`"
    assert rows[0].difference > 0 and ".py:" in rows[0].line


@pytest.mark.parametrize("taken", [lambda g: g.numpy().copy(), lambda g: float(g.numpy()[0]), lambda g: g.numpy() + 0])
def test_rows_that_are_copies_are_right(k: Any, taken: Any) -> None:
    _, seen = rows_of_a_jacobian(k, taken)
    assert [r.verdict for r in seen.compare() if r.array == "x"] == ["agrees"] * 3


def test_the_view_that_a_loop_takes_anew_is_no_row(k: Any) -> None:
    held = {}
    _, seen = rows_of_a_jacobian(k, lambda grad: held.update(g=grad.numpy()))
    assert [r.verdict for r in seen.compare() if r.array == "x"] == ["agrees"] * 3


def test_the_turns_of_a_loop_are_one_line(k: Any) -> None:
    wp, x = k.wp, floats(k, [1.0, 2.0, 3.0])
    with wb.interop.warp.watch() as seen:
        for _ in range(20):
            y, loss = zeros(k, 3), zeros(k, 1)
            with wp.Tape() as tape:
                wp.launch(k.square, 3, [x], [y])
                wp.launch(k.total, 3, [y], [loss])
            tape.backward(loss)
            tape.zero()
    assert len(seen.compare()) == 60
    lines = str(seen.compare()).splitlines()[2:]
    assert len(lines) == 3 and all(line.startswith("0 to 19 (20)") for line in lines)


LIBRARY = """
import warp as wp

@wp.kernel
def square_in_place(x: wp.array(dtype=float)):
    i = wp.tid()
    x[i] = x[i] * x[i]

def step(x):
    wp.launch(square_in_place, dim=x.shape[0], inputs=[x])
"""


def test_a_kernel_of_an_installed_library_is_not_the_line_to_change(k: Any, tmp_path: Any, monkeypatch: Any) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "some_solver.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    solver = importlib.import_module("some_solver")
    wp, x, y = k.wp, floats(k, [1.0, 2.0, 3.0]), zeros(k, 3)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.copy(y, x)
            solver.step(y)
        tape.backward(grads={y: wp.array(np.ones(3, np.float32), dtype=float)})
    row = seen.compare()["x"]
    assert row.verdict == "wrong", row.texts()
    assert "test_accusations.py" in row.remedy and "solver.step(y)" in row.remedy and "some_solver" in row.remedy


def two_steps(k: Any, between: Callable[[Any], None]) -> Any:
    """Two backwards of one loss, with something done to x between. The row about x of the second."""
    wp, x = k.wp, floats(k, [1.0, 2.0, 3.0])
    with wb.interop.warp.watch() as seen:
        for step in range(2):
            y, loss = zeros(k, 3), zeros(k, 1)
            with wp.Tape() as tape:
                wp.launch(k.square, 3, [x], [y])
                wp.launch(k.total, 3, [y], [loss])
            tape.backward(loss)
            if step == 0:
                between(x)
    return seen.compare()["x"]


def test_a_gradient_never_cleared_between_steps_of_an_optimizer_is_wrong(k: Any) -> None:
    wp = k.wp
    ways: list[Callable[[Any], Any]] = [
        lambda x: wp.launch(k.descend, 3, [x, x.grad, 0.1]),
        lambda x: x.assign(x.numpy() - 0.1 * x.grad.numpy()),
        lambda x: np.copyto(x.numpy(), x.numpy() - 0.1 * x.grad.numpy()),
    ]
    for way in ways:
        row = two_steps(k, way)
        assert row.verdict == "wrong" and row.cause.startswith("leaked seed: `x.grad` still held")
        x = np.array([1.0, 2.0, 3.0])
        np.testing.assert_allclose(row.exact, 2 * (x - 0.1 * 2 * x), rtol=1e-6)
        assert row.launch == "#3 square" or row.launch.endswith(" square")
        assert "zero" in row.remedy and "04_several_outputs" in row.remedy


@pytest.mark.parametrize("scaled", [False, True])
def test_a_gradient_that_is_meant_to_add_up_agrees(k: Any, scaled: bool) -> None:
    def between(x: Any) -> None:
        if scaled:  # momentum: the program has written the gradient itself
            x.grad.assign(0.9 * x.grad.numpy())
            k.wp.launch(k.descend, 3, [x, x.grad, 0.1])

    row = two_steps(k, between)
    assert row.verdict == "agrees" and row.cause.startswith("with what it held before")


def test_a_gradient_cleared_between_steps_agrees_without_a_note(k: Any) -> None:
    def between(x: Any) -> None:
        k.wp.launch(k.descend, 3, [x, x.grad, 0.1])
        x.grad.zero_()

    row = two_steps(k, between)
    assert (row.verdict, row.cause) == ("agrees", "")


# ---- causes


def test_an_array_without_a_gradient_that_no_adjoint_would_pass_is_no_cause(k: Any) -> None:
    wp = k.wp
    x, y, z, n = floats(k, [1.0, 2.0]), zeros(k, 2), zeros(k, 2), wp.zeros(1, dtype=float)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.counted, 2, outputs=[n])
            wp.launch(k.doubled, 2, [x], outputs=[y])
            wp.launch(k.shared, 2, [y, n], outputs=[z])
            wp.launch(k.doubled, 2, [z], outputs=[y])
        tape.backward(grads={z: wp.array([1.0, 1.0], dtype=float)})
    rows = {row.array: row for row in seen.compare()}
    assert rows["x"].verdict == "wrong" and rows["x"].cause.startswith("overwritten memory: "), rows["x"].texts()


def test_a_failure_of_ours_is_told_and_stops_no_program(k: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.warp.watch import verdicts

    def fails(*given: Any) -> Any:
        raise IndexError("no such thing")

    monkeypatch.setattr(verdicts, "explain", fails)
    wp, x, y = k.wp, floats(k, [1.0, 2.0, 3.0]), zeros(k, 3)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.off_by_a_hundredth, 3, [x], [y])
        tape.backward(grads={y: wp.array(np.ones(3, np.float32), dtype=float)})
    assert [(row.verdict, row.cause) for row in seen.compare() if row.array == "x"] == [("unverified", "no such thing")]


def test_what_an_atomic_returned_is_found_in_the_text_of_a_kernel(k: Any) -> None:
    """Such a kernel is not run here: Warp's adjoint of it goes where a variable without a value points to."""
    wp = k.wp

    @wp.kernel(module="unique")
    def compacted(x: wp.array(dtype=float), count: wp.array(dtype=int), y: wp.array(dtype=float)):
        i = wp.tid()
        n = wp.atomic_add(count, 0, 1)
        wp.atomic_add(y, n, x[i])

    from workbench.warp.watch.source_patterns import returned_by_atomics

    assert returned_by_atomics(compacted) == {"count"}

"""Adjoint launches of a watched program: `wp.launch(..., adjoint=True)` beside the exact adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]
KERNELS = "launched_back"
START, SEED = [1.0, 2.0, -3.0], [1.0, -2.0, 0.5]


def floats(k: Any, values: Any = START) -> Any:
    return k.wp.array(np.array(values, np.float32), dtype=float, requires_grad=True)


def seed(k: Any) -> Any:
    return k.wp.array(np.array(SEED, np.float32), dtype=float)


def back(k: Any, kernel: Any, inputs: list, adjoints: list, **options: Any) -> Any:
    return k.wp.launch(kernel, 3, inputs, adj_inputs=adjoints, adjoint=True, **options)


def near(found: Any, wanted: Any) -> bool:
    return np.allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own", [True, False], ids=["own buffers", "gradients of the arrays"])
def test_a_right_adjoint_launch_agrees_and_is_not_opaque(k: Any, own: bool) -> None:
    x, y, s = floats(k), floats(k), seed(k)
    g = k.wp.zeros(3, dtype=float)
    y.grad.assign(s)
    with wb.interop.warp.watch() as seen:
        k.wp.launch(k.square, 3, [x, y])
        back(k, k.square, [x, y], [g, s] if own else [None, None])
    (row,) = seen.compare()
    assert (row.array, row.verdict, row.launch) == ("x", "agrees", "#1 adjoint of square"), row.texts()
    assert near(row.exact, 2 * np.array(START) * SEED) and near((g if own else x.grad).numpy(), row.exact)
    assert not seen.opaque_steps and "adjoint launches: 1" in seen.summary()
    seen.backward(grads={y: np.array(SEED, np.float32)})
    assert near(seen.gradients[x], row.exact)


def test_what_was_in_the_adjoint_is_added_to(k: Any) -> None:
    x, y, s, g = floats(k), floats(k), seed(k), k.wp.array(np.array([5.0, 6.0, 7.0]), dtype=float)
    with wb.interop.warp.watch() as seen:
        k.wp.launch(k.square, 3, [x, y])
        back(k, k.square, [x, y], [g, s])
    (row,) = seen.compare()
    assert row.verdict == "agrees" and near(row.exact, 2 * np.array(START) * SEED + [5, 6, 7])


def test_sums_structs_commands_and_launches_that_were_never_made(k: Any) -> None:
    x, y, total = floats(k), floats(k), floats(k, [0.0])
    held, slopes = k.Held(), k.Held()
    held.x, held.scale, slopes.x = k.wp.clone(x), 3.0, k.wp.zeros(3, dtype=float)  # which Warp leaves as it is
    one = k.wp.array(np.ones(1, np.float32), dtype=float)
    with wb.interop.warp.watch() as seen:
        k.wp.launch(k.summed, 3, [x, total])
        back(k, k.summed, [x, total], [None, one])
        k.wp.launch(k.of_struct, 3, [held, y])
        back(k, k.of_struct, [held, y], [slopes, seed(k)])
        command = back(k, k.wave, [x, y], [k.wp.zeros(3, dtype=float), seed(k)], record_cmd=True)
        command.launch()
    rows = list(seen.compare())
    assert [r.verdict for r in rows] == ["agrees"] * 3, seen
    wanted = [2 * np.array(START), 6 * np.array(START) * SEED, np.cos(START) * np.array(SEED)]
    assert all(near(row.exact, found) for row, found in zip(rows, wanted, strict=True))
    assert not seen.opaque_steps and near(held.x.grad.numpy(), wanted[1])


def test_a_loop_in_the_kernel_is_found(k: Any) -> None:
    x, y = floats(k), floats(k)
    with wb.interop.warp.watch() as seen:
        k.wp.launch(k.powers, 3, [x, y, 2])
        back(k, k.powers, [x, y, 2], [None, seed(k), 0])
    (row,) = seen.compare()
    assert row.verdict == "wrong" and row.cause.startswith("dynamic loop in the kernel: ")
    assert near(row.exact, 4 * np.array(START) ** 3 * SEED) and not near(row.theirs, row.exact)


def test_a_launch_that_overwrites_what_its_adjoint_reads(k: Any) -> None:
    x = floats(k)
    x.grad.assign(seed(k))
    with wb.interop.warp.watch() as seen:
        k.wp.launch(k.square_in_place, 3, [x])
        back(k, k.square_in_place, [x], [x.grad])
    (row,) = seen.compare()
    assert row.verdict == "wrong" and row.cause.startswith("overwritten memory: ") and "#0 square_in_place" in row.cause
    assert near(row.exact, 2 * np.array(START) * SEED)


@pytest.mark.parametrize("clones", [True, False])
def test_a_chain_walked_back_by_hand_knows_which_launch_each_reverses(k: Any, clones: bool) -> None:
    """x -> y -> x: the second adjoint launch is of the first launch, at an `x` that the second has overwritten."""
    x, y = floats(k), floats(k)
    with wb.interop.warp.watch() as seen:
        first = k.wp.clone(x) if clones else x
        k.wp.launch(k.square, 3, [first, y])
        k.wp.launch(k.wave, 3, [y, x])
        x.grad.assign(seed(k))
        back(k, k.wave, [y, x], [y.grad, x.grad])
        back(k, k.square, [first, y], [first.grad, y.grad])
    rows = list(seen.compare())
    assert [r.verdict for r in rows] == ["agrees", "agrees" if clones else "wrong"], seen
    at = np.array(START)
    assert near(rows[1].exact, np.cos(at**2) * 2 * at * SEED)
    assert clones or (rows[1].cause.startswith("overwritten memory: ") and "#1 wave" in rows[1].cause)
    assert clones or "#4 adjoint of square" in rows[1].remedy


def test_the_same_launch_twice_on_arrays_that_changed_between(k: Any) -> None:
    """Each turn walks back before the next: the last launch is the one."""
    x, y, s = floats(k), floats(k), seed(k)
    with wb.interop.warp.watch() as seen:
        for _turn in range(3):
            k.wp.launch(k.square, 3, [x, y])
            x.grad.zero_()
            back(k, k.square, [x, y], [x.grad, s])
            k.wp.launch(k.moved, 3, [x, x.grad, 0.1])
    assert [r.verdict for r in seen.compare()] == ["agrees"] * 3, seen


def test_a_slope_at_values_that_came_later_is_neither_right_nor_wrong(k: Any) -> None:
    x, y = floats(k), floats(k)
    with wb.interop.warp.watch() as seen:
        k.wp.launch(k.square, 3, [x, y])
        x.assign(np.array([4.0, 5.0, 6.0], np.float32))
        back(k, k.square, [x, y], [x.grad, seed(k)])
    (row,) = seen.compare()
    assert row.verdict == "unverified" and row.cause.startswith("host write: ")
    assert near(row.exact, 2 * np.array(START) * SEED)


def test_a_second_derivative_is_refused_by_name(k: Any) -> None:
    x, y, z = floats(k), floats(k), floats(k)
    with wb.interop.warp.watch() as seen:
        k.wp.launch(k.square, 3, [x, y])
        back(k, k.square, [x, y], [x.grad, seed(k)])
        k.wp.launch(k.square, 3, [x.grad, z])
    with pytest.raises(wb.GradientError, match=r"adjoint of square.*second derivative"):
        seen.backward(grads={z: np.ones(3, np.float32)})
    seen.backward(grads={y: np.ones(3, np.float32)})
    assert near(seen.gradients[x], 2 * np.array(START))


@pytest.mark.parametrize("form", ["launches", "a graph", "launches behind a graph"])
def test_a_step_along_a_gradient_has_a_second_derivative_which_is_refused(k: Any, form: str) -> None:
    """x - 0.1 g(x): its derivative by x is not 1."""
    x, loss, end = floats(k), floats(k, [0.0]), floats(k, [0.0])

    def forward_and_back() -> None:
        with k.wp.Tape() as tape:
            k.wp.launch(k.summed, 3, [x, loss])
        tape.backward(loss)

    def move() -> None:
        k.wp.launch(k.moved, 3, [x, x.grad, 0.1])

    def turn() -> None:
        if form == "launches":
            return (forward_and_back(), move())[0]
        with k.wp.ScopedCapture("cpu") as capture:
            forward_and_back()
            if form == "a graph":
                move()
        k.wp.capture_launch(capture.graph)
        return move() if form == "launches behind a graph" else None

    with wb.interop.warp.watch() as seen:
        turn()
        k.wp.launch(k.summed, 3, [x, end])
    assert [r.verdict for r in seen.compare() if r.array == "x"] == ["agrees"] and not seen.opaque_steps
    with pytest.raises(wb.GradientError, match=r"Tape\.backward.*second derivative"):
        seen.backward(grads={end: np.ones(1, np.float32)})
    seen.backward(grads={loss: np.ones(1, np.float32)})
    assert near(seen.gradients[x], 2 * np.array(START))


def test_an_array_assigned_from_another_before_the_first_recorded_launch(k: Any) -> None:
    """The tape is open, and leaves the copy out, as what it goes to has no gradient: it is part of the program."""
    x, between, y = floats(k), k.wp.zeros(3, dtype=float), floats(k)
    with wb.interop.warp.watch() as seen:
        with k.wp.Tape() as tape:
            between.assign(x)
            k.wp.launch(k.square, 3, [between, y])
            k.wp.launch(k.moved, 3, [y, x, 0.0])
        tape.backward(grads={y: seed(k)})
    row = next(r for r in seen.compare() if r.array == "x")
    assert row.verdict == "wrong" and row.cause.startswith("missing requires_grad: "), row.texts()
    assert near(row.exact, 2 * np.array(START) * SEED)


def test_an_adjoint_launch_on_a_tape_is_walked_back_once_more(k: Any) -> None:
    x, total = floats(k), floats(k, [0.0])
    one = k.wp.array(np.ones(1, np.float32), dtype=float)
    with wb.interop.warp.watch() as seen:
        with k.wp.Tape() as tape:
            k.wp.launch(k.summed, 3, [x, total])
            back(k, k.summed, [x, total], [k.wp.zeros(3, dtype=float), one])
        tape.backward(total)
    row = next(r for r in seen.compare() if r.backward == 0 and r.array == "x")
    assert row.verdict == "wrong" and row.cause.startswith("adjoint on the tape: "), row.texts()
    assert near(row.exact, 2 * np.array(START)) and near(row.theirs, 4 * np.array(START))
    assert "record_tape=False" in row.remedy


def test_one_in_a_capture_makes_the_graph_opaque(k: Any) -> None:
    x, y, s = floats(k), floats(k), seed(k)
    with wb.interop.warp.watch() as seen:
        with k.wp.ScopedCapture("cpu") as capture:
            k.wp.launch(k.square, 3, [x, y])
            back(k, k.square, [x, y], [x.grad, s])
        k.wp.capture_launch(capture.graph)
    assert [s.reason for s in seen.opaque_steps] == [
        "adjoint of square: an adjoint that the program launches itself, in a capture"
    ]
    assert near(x.grad.numpy(), 2 * np.array(START) * SEED)


# ---- what explaining costs


def explained(k: Any, monkeypatch: pytest.MonkeyPatch, turns: int) -> tuple[int, int, set[str]]:
    """A time loop with a control that is overwritten in each turn: walks, comparisons of memory, and causes."""
    from workbench.arrays.span import Span
    from workbench.warp.watch.passes import WarpBackward

    walks, compared = [0], [0]
    walk, overlaps = WarpBackward._walk, Span.overlaps

    def counted_walk(*args: Any, **kwargs: Any) -> Any:
        walks[0] += 1
        return walk(*args, **kwargs)

    def counted(*args: Any) -> Any:
        compared[0] += 1
        return overlaps(*args)

    monkeypatch.setattr(WarpBackward, "_walk", counted_walk)
    monkeypatch.setattr(Span, "overlaps", counted)
    states = [floats(k) for _ in range(turns + 1)]
    control, source = floats(k, [2.0, 3.0, 4.0]), floats(k, [0.5, 0.6, 0.7])
    with wb.interop.warp.watch() as seen:
        with k.wp.Tape() as tape:
            for n in range(turns):
                k.wp.launch(k.wave, 3, [source, control])
                k.wp.launch(k.weighted, 3, [states[n], control, states[n + 1]])
                k.wp.launch(k.wave, 3, [states[n + 1], source])
        tape.backward(grads={states[-1]: seed(k)})
    monkeypatch.undo()
    return walks[0], compared[0], {r.cause.partition(":")[0] for r in seen.compare().wrong}


def test_explaining_costs_a_few_walks_and_grows_with_the_program(k: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (explained(k, monkeypatch, turns) for turns in (10, 40))
    assert "overwritten memory" in few[2] and few[2] == many[2]
    assert many[0] <= few[0] <= 14, (few, many)
    assert many[1] < 6 * few[1], (few, many)

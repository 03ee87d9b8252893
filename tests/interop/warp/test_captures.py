"""Backwards in captures: their gradients are compared at the moment that they had them, each time the graph runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_watch import X, both, parameters

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]


def test_a_graph_that_descends_and_clears_is_compared_each_time_it_runs(k: Any, wp: Any) -> None:  # noqa: F811
    """Behind its launch nothing is left of the gradients, and the array is where it went."""

    def program() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu") as capture:
            with wp.Tape() as tape:
                wp.launch(k.square, 3, inputs=[x], outputs=[y])
                wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            tape.backward(loss)
            wp.launch(k.descend, 3, inputs=[x, x.grad, 0.25])
            tape.zero()
        for _ in range(3):
            wp.capture_launch(capture.graph)
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    assert not seen.opaque_steps and not any(s.difference for s in seen.steps)
    rows = [row for row in seen.compare() if row.array == "x"]
    assert [row.verdict for row in rows] == ["agrees"] * 3
    for n, row in enumerate(rows):  # each time x is halved
        np.testing.assert_array_equal(row.theirs, 2 * X / 2**n)
        np.testing.assert_array_equal(row.exact, 2 * X / 2**n)
    labels = [s.label for s in seen.steps if s.label not in ("host write", "Tape.backward")]
    assert labels[:5] == ["square", "total", "descend", "zero_", "zero_"]


def test_a_wrong_gradient_of_a_graph_is_found_with_its_launch_and_cause(k: Any, wp: Any) -> None:  # noqa: F811
    def program() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu") as capture:
            with wp.Tape() as tape:
                wp.launch(k.square, 3, inputs=[x], outputs=[y])
                wp.launch(k.in_place, 3, inputs=[y, 0.5])
                wp.launch(k.cubed, 3, inputs=[y], outputs=[y])
                wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            tape.backward(loss)
        wp.capture_launch(capture.graph)
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    row = seen.compare()["x"]
    assert row.verdict == "wrong" and row.launch == "#2 cubed"
    assert row.cause.startswith("overwritten memory") and "`y` was overwritten by #2 cubed" in row.cause
    np.testing.assert_allclose(row.exact, 12 * X**11 / 8, rtol=1e-5)


def test_what_comes_behind_a_backward_of_a_graph_is_not_blamed_for_it(k: Any, wp: Any) -> None:  # noqa: F811
    """`descend` overwrites x, which `looped` reads, once Warp has gone back."""

    def program() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu") as capture:
            with wp.Tape() as tape:
                wp.launch(k.looped, 3, inputs=[x, 2], outputs=[y])
            tape.backward(grads={y: wp.ones(3, dtype=float)})
            wp.launch(k.descend, 3, inputs=[x, x, 0.5])
        wp.capture_launch(capture.graph)
        return {"x": x, "y": y}

    seen, a = both(program)
    row = seen.compare()["x"]
    assert row.verdict == "wrong" and row.cause.startswith("dynamic loop"), row.texts()
    np.testing.assert_array_equal(row.exact, 4 * X**3)


def test_gradients_that_a_graph_adds_to_are_named_where_the_array_has_moved(k: Any, wp: Any) -> None:  # noqa: F811
    def program(moves: bool) -> dict[str, Any]:
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu") as capture:
            with wp.Tape() as tape:
                wp.launch(k.square, 3, inputs=[x], outputs=[y])
            y.grad.fill_(1.0)
            tape.backward()
        wp.capture_launch(capture.graph)
        if moves:
            x.assign(2 * X)
        wp.capture_launch(capture.graph)
        return {"x": x, "y": y}

    for moves in (False, True):
        seen, a = both(lambda moves=moves: program(moves))
        first, second = [row for row in seen.compare() if row.array == "x"]
        assert first.verdict == "agrees"
        assert second.verdict == ("wrong" if moves else "agrees"), second.texts()
        assert second.cause.startswith("leaked seed" if moves else "with what it held before")
        np.testing.assert_array_equal(second.exact, 4 * X)


def test_a_tape_recorded_in_a_graph_goes_back_outside_of_it(k: Any, wp: Any) -> None:  # noqa: F811
    def program() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu") as capture, wp.Tape() as tape:
            wp.launch(k.cubed, 3, inputs=[x], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        wp.capture_launch(capture.graph)
        wp.capture_launch(capture.graph)
        tape.backward(loss)
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    row = seen.compare()["x"]
    assert row.verdict == "agrees", row.texts()
    np.testing.assert_array_equal(row.exact, 3 * X**2)


def test_what_stands_in_a_loop_or_behind_an_opaque_call_of_a_graph_is_unverified(k: Any, wp: Any) -> None:  # noqa: F811
    def looping() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        n = wp.array([2], dtype=int)

        def turn() -> None:
            with wp.Tape() as tape:
                wp.launch(k.square, 3, inputs=[x], outputs=[y])
            y.grad.fill_(1.0)
            tape.backward()
            wp.launch(k.countdown, 1, inputs=[n])

        with wp.ScopedCapture(device="cpu") as capture:
            wp.capture_while(n, turn)
        wp.capture_launch(capture.graph)
        return {"x": x, "y": y, "n": n}

    def opaque() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu") as capture:
            with wp.Tape() as tape:
                wp.launch(k.texture_like, 3, inputs=[x, wp.uint64(0)], outputs=[y])
            tape.backward(grads={y: wp.ones(3, dtype=float)})
        wp.capture_launch(capture.graph)
        return {"x": x, "y": y}

    seen, a = both(looping)
    assert seen.compare()["x"].verdict == "unverified" and "loop of a capture" in seen.compare()["x"].cause
    assert [s.label for s in seen.opaque_steps] == ["capture_launch"]
    seen, a = both(opaque)
    assert seen.compare()["x"].verdict == "unverified" and seen.compare()["x"].cause.startswith("texture_like")


def test_a_graph_that_may_be_saved_gets_no_copies(k: Any, wp: Any) -> None:  # noqa: F811
    def program() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu", apic=True) as capture:
            with wp.Tape() as tape:
                wp.launch(k.square, 3, inputs=[x], outputs=[y])
            y.grad.fill_(1.0)
            tape.backward()
        wp.capture_launch(capture.graph)
        return {"x": x, "y": y}

    seen, a = both(program)
    assert not seen.compare().agrees and {row.verdict for row in seen.compare()} == {"unverified"}
    assert "may be saved" in seen.opaque_steps[0].reason


def test_a_grid_that_a_graph_builds_is_built_each_time_it_runs(k: Any, wp: Any) -> None:  # noqa: F811
    def program() -> dict[str, Any]:
        rng = np.random.default_rng(3)
        x = wp.array(rng.uniform(-1, 1, (40, 3)).astype(np.float32), dtype=wp.vec3, requires_grad=True)
        y, grid = wp.zeros(40, dtype=float, requires_grad=True), wp.HashGrid(8, 8, 8, device="cpu")
        with wp.ScopedCapture(device="cpu") as capture:
            grid.build(x, 0.5)
            with wp.Tape() as tape:
                wp.launch(k.near, 40, inputs=[grid.id, x, 0.5], outputs=[y])
            tape.backward(grads={y: wp.ones(40, dtype=float)})
        for _ in range(2):
            wp.capture_launch(capture.graph)
            x.assign(rng.uniform(-1, 1, (40, 3)).astype(np.float32))
            y.zero_()
            tape.zero()
        return {"x": x, "y": y}

    seen, a = both(program)
    assert not seen.opaque_steps
    assert [row.verdict for row in seen.compare() if row.array == "x"] == ["agrees"] * 2


def test_calls_while_a_capture_pauses_are_events_of_their_own(k: Any, wp: Any) -> None:  # noqa: F811
    from warp._src import context  # `warp.fem` pauses captures

    def program() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        wp.capture_begin(device="cpu")
        wp.launch(k.square, 3, inputs=[x], outputs=[y])
        graph = context.capture_pause(device="cpu")
        wp.launch(k.in_place, 3, inputs=[x, 0.5])
        context.capture_resume(graph, device="cpu")
        wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        wp.capture_launch(wp.capture_end(device="cpu"))
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    assert [s.label for s in seen.steps] == ["in_place", "square", "total"]
    assert not any(s.difference for s in seen.steps)


def test_a_watch_that_compares_nothing_repeats_a_graph_with_the_gradients_it_had(k: Any, wp: Any) -> None:  # noqa: F811
    def program() -> dict[str, Any]:
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu") as capture:
            with wp.Tape() as tape:
                wp.launch(k.square, 3, inputs=[x], outputs=[y])
            tape.backward(grads={y: wp.ones(3, dtype=float)})
            wp.launch(k.descend, 3, inputs=[x, x.grad, 0.25])
        wp.capture_launch(capture.graph)
        return {"x": x, "y": y}

    seen, a = both(program, check="forward")
    assert not seen.passes and not any(s.difference for s in seen.steps)
    with wb.interop.warp.watch(check="forward"):
        program()

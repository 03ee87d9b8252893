"""A watched Warp program: the same bits, one event per call, exact gradients, and a verdict on Warp's."""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import workbench as wb

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]
X = np.array([1.0, 2.0, 3.0], np.float32)


def held(found: dict[str, Any]) -> dict[str, np.ndarray]:
    values = {name: np.array(a.numpy()) for name, a in found.items()}
    return values | {f"{name}.grad": np.array(a.grad.numpy()) for name, a in found.items() if a.grad is not None}


def both(program: Callable[[], dict[str, Any]], **choices: Any) -> tuple[Any, SimpleNamespace]:
    """A program with and without a watch: the same bits. Returns what was seen, and its arrays."""
    alone = held(program())
    with wb.interop.warp.watch(**choices) as seen:
        found = program()
    for name, values in held(found).items():
        assert values.tobytes() == alone[name].tobytes(), name
    return seen, SimpleNamespace(**found)


def parameters(wp: Any) -> tuple[Any, Any, Any]:
    x = wp.array(X, dtype=float, requires_grad=True)
    return x, wp.zeros(3, dtype=float, requires_grad=True), wp.zeros(1, dtype=float, requires_grad=True)


def test_a_right_gradient_agrees(k, wp):
    def program():
        x, y, loss = parameters(wp)
        with wp.Tape() as tape:
            wp.launch(k.cubed, 3, inputs=[x], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        tape.backward(loss)
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    assert [s.label for s in seen.steps] == ["cubed", "total"] and not seen.opaque_steps
    row = seen.compare()["x"]
    assert (row.verdict, row.difference) == ("agrees", 0.0)
    np.testing.assert_array_equal(row.exact, 3 * X**2)
    assert seen.steps[0].where.file == __file__ and "k.cubed" in seen.steps[0].where.text
    assert seen.compare().agrees


def test_a_value_overwritten_after_it_was_read_is_wrong_first_at_the_launch_that_read_it(k, wp):
    def program():
        x, y, loss = parameters(wp)
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            wp.launch(k.descend, 3, inputs=[x, x, 1.0])
        tape.backward(loss)
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    row = seen.compare()["x"]
    assert (row.verdict, row.launch) == ("wrong", "#0 square")
    np.testing.assert_array_equal(row.exact, 2 * X)
    assert "`x` was overwritten by #2 descend" in row.cause
    assert "wrong" in repr(seen) and "#0 square" in repr(seen.compare())
    seen.backward(grads={a.loss: np.ones(1)})
    np.testing.assert_array_equal(seen.gradients[a.x], 2 * X)
    assert a.x.grad.numpy().tolist() == row.theirs.tolist()  # nothing of theirs is written


def test_no_tape_and_no_requires_grad_and_adjoints_switched_off(k, wp):
    def program():
        x, y, z = wp.array(X, dtype=float), wp.zeros(3, dtype=float), wp.zeros(3, dtype=float)
        wp.launch(k.switched_off, 3, inputs=[x], outputs=[y])
        wp.launch(k.looped, 3, inputs=[y, 2], outputs=[z])
        return {"x": x, "z": z}

    seen, a = both(program)
    assert len(seen.compare()) == 0
    seen.backward(grads={a.z: np.ones(3, np.float32)})
    np.testing.assert_allclose(seen.gradients[a.x], 4 * np.exp(4 * X), rtol=1e-5)


def test_every_form_of_launch(k, wp):
    def program():
        x, y, loss = parameters(wp)
        grid_in, grid_out = wp.array(np.ones((2, 3)), dtype=float), wp.zeros((2, 3), dtype=float)
        wide, tiles = wp.array(np.arange(8.0), dtype=float), wp.zeros(8, dtype=float)
        q = wp.array(np.ones((4, 3)), dtype=wp.vec3)
        wp.launch(k.grid, dim=(2, 3), inputs=[grid_in], outputs=[grid_out])
        wp.launch_tiled(k.tiled, dim=[2], inputs=[wide], outputs=[tiles], block_dim=32)
        wp.launch(k.generic, dim=3, inputs=[x], outputs=[y])
        command = wp.launch(k.square, dim=3, inputs=[x], outputs=[y], record_cmd=True)
        command.launch()
        command.set_param_by_name("y", x)
        command.set_dim(2)
        command.launch()
        for c in (2.0, 3.0):
            wp.launch(k.scaled_by(c), dim=3, inputs=[x], outputs=[y])
        state = k.State()
        state.q, state.k = q, 2.0
        wp.launch(k.springs, dim=4, inputs=[state], outputs=[loss])
        wp.launch(k.square, dim=0, inputs=[x], outputs=[y])
        return {"x": x, "y": y, "grid": grid_out, "tiles": tiles, "loss": loss, "q": q}

    seen, a = both(program)
    assert [s.label for s in seen.steps] == (
        "grid tiled generic square square scaled scaled springs".split()
    ) and not seen.opaque_steps, [s.reason for s in seen.opaque_steps]
    assert not any(s.difference for s in seen.steps)
    seen.backward(grads={a.loss: np.ones(1), a.y: np.ones(3)})
    np.testing.assert_allclose(seen.gradients[a.q], 2.0 * np.ones((4, 3)))
    np.testing.assert_allclose(seen.gradients[a.x], 3.0 * np.array([2.0, 4.0, 1.0]))


def test_every_operation_on_memory(k, wp):
    def program():
        x, y, loss = parameters(wp)
        z = wp.zeros(6, dtype=float)
        with contextlib.suppress(ZeroDivisionError):
            wp.copy(z, x, dest_offset=2, src_offset=1, count=2)
            copied = wp.clone(z)
            z.fill_(7.0)
            wp.launch(k.square, 6, inputs=[copied], outputs=[z])
            z.assign(copied)
            z[0:2].fill_(5.0)
            x.zero_()
            y.assign([4.0, 5.0, 6.0])
            wp.launch(k.square, 3, inputs=[y], outputs=[x])
            _ = 1 / 0
        return {"x": x, "y": y, "z": z, "copied": copied}

    seen, a = both(program)
    assert not seen.opaque_steps, [s.reason for s in seen.opaque_steps]
    assert [s.label for s in seen.steps] == "copy copy fill_ square assign fill_ zero_ square".split()
    seen.backward(grads={a.z: np.ones(6)})
    np.testing.assert_array_equal(seen.gradients[a.x], [0.0, 1.0, 1.0])


def test_what_the_host_writes_between_two_calls_is_an_event_of_its_own(k, wp):
    def program():
        x, y, loss = parameters(wp)
        wp.launch(k.square, 3, inputs=[x], outputs=[y])
        y.numpy()[1] = 10.0
        wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    assert [s.kind for s in seen.steps] == ["launch", "host", "launch"]
    seen.backward(grads={a.loss: np.ones(1)})
    np.testing.assert_array_equal(seen.gradients[a.x], [2.0, 0.0, 6.0])


def test_what_cannot_be_followed_is_opaque_and_stops_only_what_depends_on_it(k, wp):
    def program():
        x, y, loss = parameters(wp)
        z, w = wp.zeros(3, dtype=float, requires_grad=True), wp.zeros(3, dtype=float, requires_grad=True)
        with wp.Tape() as tape:
            wp.launch(k.texture_like, 3, inputs=[x, wp.uint64(0)], outputs=[z])
            wp.launch(k.square, 3, inputs=[z], outputs=[y])
            wp.launch(k.square, 3, inputs=[x], outputs=[w])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        tape.backward(loss)
        return {"x": x, "loss": loss, "w": w}

    seen, a = both(program)
    (step,) = seen.opaque_steps
    assert step.label == "texture_like" and step.reason and step.event.kind == "opaque"
    assert seen.compare()["x"].verdict == "unverified" and "texture_like" in seen.compare()["x"].cause
    with pytest.raises(wb.GradientError, match="texture_like") as refused:
        seen.backward(grads={a.loss: np.ones(1)})
    assert refused.value.slug == "opaque" and refused.value.where.file == __file__
    seen.backward(grads={a.w: np.ones(3)})
    np.testing.assert_array_equal(seen.gradients[a.x], 2 * X)


def test_seeds_in_grad_and_in_grads_and_what_adds_up(k, wp):
    def program():
        x, y, loss = parameters(wp)
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
        tape.backward(grads={y: wp.array([1.0, 10.0, 100.0], dtype=float)})
        y.grad.fill_(1.0)
        tape.backward()
        return {"x": x, "y": y}

    seen, a = both(program)
    first, second = (row for row in seen.compare() if row.array == "x")
    assert (first.verdict, second.verdict) == ("agrees", "agrees")
    np.testing.assert_array_equal(second.exact, 2 * X * np.array([2.0, 11.0, 101.0]))


def test_a_seed_that_an_earlier_pass_has_left_is_no_seed(k, wp):
    def program():
        x, y, loss = parameters(wp)
        for _ in range(2):
            with wp.Tape() as tape:
                wp.launch(k.total, 3, inputs=[x], outputs=[loss])
                wp.launch(k.in_place, 1, inputs=[loss, 1.0])
            tape.backward(grads={loss: wp.array([1.0], dtype=float)})
        return {"x": x, "loss": loss}

    seen, a = both(program)
    assert len(seen.passes) == 2
    verdicts = {row.array: row.verdict for row in seen.passes[0].rows}
    assert verdicts["x"] == "wrong"  # in place: Warp reads what it has just overwritten


def test_a_training_loop_reads_the_gradients_that_warp_has_written(k, wp):
    def program():
        x, y, loss = parameters(wp)
        for _ in range(3):
            tape = wp.Tape()
            loss.zero_()
            with tape:
                wp.launch(k.cubed, 3, inputs=[x], outputs=[y])
                wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            tape.backward(loss)
            wp.launch(k.descend, 3, inputs=[x, x.grad, 0.01])
            tape.zero()
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    assert [row.verdict for row in seen.compare() if row.array == "x"] == ["agrees"] * 3
    assert not seen.opaque_steps


def test_an_adjoint_of_the_programs_own_that_is_not_the_derivative_is_wrong(k, wp):
    def program():
        x, y, loss = parameters(wp)
        with wp.Tape() as tape:
            wp.launch(k.own, 3, inputs=[x], outputs=[y])
        tape.backward(grads={y: wp.array(X, dtype=float)})
        return {"x": x, "y": y}

    seen, a = both(program)
    row = seen.compare()["x"]
    assert (row.verdict, row.launch) == ("wrong", "#0 own")
    np.testing.assert_array_equal(row.exact, 2 * X * X)


def test_a_loop_that_multiplies_is_wrong_in_warp(k, wp):
    def program():
        x, y, loss = parameters(wp)
        with wp.Tape() as tape:
            wp.launch(k.looped, 3, inputs=[x, 3], outputs=[y])
        tape.backward(grads={y: wp.array(np.ones(3), dtype=float)})
        return {"x": x, "y": y}

    seen, a = both(program)
    row = seen.compare()["x"]
    assert row.verdict == "wrong" and row.launch == "#0 looped"
    np.testing.assert_allclose(row.exact, 8 * X**7, rtol=1e-6)


def test_some_elements_of_an_array_and_functions_that_warp_makes_of_kernels(k, wp):
    def program():
        x, y, loss = parameters(wp)
        wp.launch(k.chosen, 2, inputs=[x[wp.array([2, 0], dtype=int)]], outputs=[y])
        z = wp.map(wp.sin, x + y)
        return {"x": x, "y": y, "z": z}

    seen, a = both(program)
    assert not seen.opaque_steps, [s.reason for s in seen.opaque_steps]
    seen.backward(grads={a.z: np.ones(3)})
    c = np.cos(X + np.array([9.0, 1.0, 0.0]))
    np.testing.assert_allclose(seen.gradients[a.x], c + 2 * X * np.array([c[1], 0.0, c[0]]), rtol=1e-5)


def test_functions_that_are_compiled_into_warp_are_followed(k, wp):
    def program():
        x, y, loss = parameters(wp)
        wp.utils.array_scan(x, y, inclusive=True)
        wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    assert [s.label for s in seen.steps] == ["array_scan", "total"] and not seen.opaque_steps
    assert not any(s.difference for s in seen.steps)
    seen.backward(grads={a.loss: np.ones(1)})
    np.testing.assert_array_equal(seen.gradients[a.x], [3, 2, 1])


def test_two_names_of_one_memory_have_one_exact_gradient(k, wp):
    def program():
        x, y, loss = parameters(wp)
        again = wp.array(ptr=x.ptr, shape=(3,), dtype=float, device="cpu")
        with wp.Tape() as tape:
            wp.launch(k.total, 3, inputs=[x], outputs=[loss])
            wp.launch(k.total, 3, inputs=[again], outputs=[loss])
        tape.backward(loss)
        return {"x": x, "loss": loss}

    seen, a = both(program)
    row = seen.compare()["x"]
    assert row.verdict == "wrong"
    np.testing.assert_array_equal(row.exact, [2.0, 2.0, 2.0])


def test_a_seed_that_is_left_from_the_pass_before_makes_the_next_one_wrong(k, wp):
    def program():
        x, y, loss = parameters(wp)
        with wp.Tape() as tape:
            wp.launch(k.total, 3, inputs=[x], outputs=[y[0:1]])
            wp.launch(k.total, 1, inputs=[y[0:1]], outputs=[loss])
        tape.backward(loss)
        x.grad.zero_()
        tape.backward(loss)
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    first, second = (row for row in seen.compare() if row.array == "x")
    assert (first.verdict, second.verdict) == ("agrees", "wrong")
    np.testing.assert_array_equal(second.exact, np.ones(3))
    np.testing.assert_array_equal(second.theirs, 2 * np.ones(3))


@pytest.mark.needs_torch
def test_memory_of_torch(k, wp):
    import torch

    def program():
        t = torch.tensor(X, requires_grad=True)
        x, y = wp.from_torch(t), wp.zeros(3, dtype=float, requires_grad=True)
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
        tape.backward(grads={y: wp.array(np.ones(3), dtype=float)})
        return {"x": x, "y": y}

    seen, a = both(program)
    assert seen.compare()["x"].verdict == "agrees"


@pytest.mark.needs_torch
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("carried_on", [False, True])
def test_a_leaf_of_torch_that_no_gradient_comes_to_is_told(k, wp, carried_on):
    import torch

    leaves = []

    def program():
        t = torch.tensor(X, requires_grad=True)
        u = 2.0 * t
        x, y = wp.from_torch(u), wp.zeros(3, dtype=float, requires_grad=True)
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
        tape.backward(grads={y: wp.array(np.ones(3), dtype=float)})
        if carried_on:
            u.backward(wp.to_torch(x.grad))
        leaves.append(t)
        return {"x": x, "y": y}

    seen, a = both(program)
    row = seen.compare()["x"]
    if carried_on:
        assert row.verdict == "agrees", row.texts()
        np.testing.assert_allclose(leaves[-1].grad.numpy(), 8 * X)
    else:
        assert row.verdict == "unverified" and "leaves of torch" in row.cause and "wp.to_torch(x.grad)" in row.remedy


def test_sums_that_cancel_are_not_accused_and_two_percent_are(k):
    from workbench.warp.watch.compare import accuracy

    exact = np.array([1.0, 1e-6, -3.0], np.float32)
    assert accuracy(exact * np.float32(1 + 1e-7), exact, None).fine
    assert not accuracy(exact * np.float32(1.02), exact, None).fine
    near = exact + np.array([0.0, 3e-7, 0.0], np.float32)
    found = accuracy(near, exact, None)
    assert not found.fine and found.close
    assert accuracy(near, exact, np.full(3, 1e-7)).fine and not accuracy(near, exact, np.full(3, 1e-10)).fine


def test_memory_that_is_gone_is_looked_at_no_more(k, wp):
    def program():
        x, y, loss = parameters(wp)
        for n in range(3):  # large enough for memory that is given back to the system
            gone = wp.full(1 << 22, float(n), dtype=float)
            wp.launch(k.square, 3, inputs=[gone], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            del gone
        return {"y": y, "loss": loss}

    seen, a = both(program)
    assert [s.label for s in seen.steps] == ["square", "total"] * 3
    assert not any(s.difference for s in seen.steps) and a.loss.numpy()[0] == 3 * (0 + 1 + 4)


def test_a_captured_graph_is_the_events_that_it_replays(k, wp):
    def program():
        x, y, loss = parameters(wp)
        with wp.ScopedCapture(device="cpu") as capture:
            wp.launch(k.in_place, 3, inputs=[x, 0.5])
            wp.launch(k.total, 3, inputs=[x], outputs=[loss])
        wp.capture_launch(capture.graph)
        wp.capture_launch(capture.graph)
        return {"x": x, "loss": loss}

    seen, a = both(program)
    assert [s.label for s in seen.steps] == ["in_place", "total"] * 2 and not seen.opaque_steps
    seen.backward(grads={a.loss: np.ones(1)})
    first = 0.5 * X**2
    np.testing.assert_allclose(seen.gradients[a.x], X + first * X, rtol=1e-6)


def test_conditions_are_recorded_as_the_turns_that_happened(k, wp):
    def program():
        x, y, loss = parameters(wp)
        n = wp.array([3], dtype=int)

        def turn():
            wp.launch(k.in_place, 3, inputs=[x, 0.5])
            wp.launch(k.countdown, 1, inputs=[n])

        wp.capture_while(n, turn)
        wp.capture_if(n, on_false=lambda: wp.launch(k.total, 3, inputs=[x], outputs=[loss]))
        return {"x": x, "n": n, "loss": loss}

    seen, a = both(program)
    assert [s.label for s in seen.steps] == [*["in_place", "countdown"] * 3, "total"]


def test_a_function_taken_earlier_is_heard_and_everything_is_put_back(k, wp):
    from warp import launch

    code, defaults = launch.__code__, launch.__defaults__

    def program():
        x, y, loss = parameters(wp)
        launch(k.square, 3, inputs=[x], outputs=[y])
        return {"x": x, "y": y}

    seen, a = both(program)
    assert [s.label for s in seen.steps] == ["square"]
    with pytest.raises(ZeroDivisionError), wb.interop.warp.watch():
        _ = 1 / 0
    assert (launch.__code__, launch.__defaults__) == (code, defaults)
    wp.launch(k.square, 3, inputs=[a.x], outputs=[a.y])
    assert len(seen.steps) == 1


def test_a_second_watch_inside_and_other_choices_are_refused(wp):
    with pytest.raises(wb.LaunchError, match="watch"):
        wb.interop.warp.watch(check="all")
    with wb.interop.warp.watch(), pytest.raises(wb.LaunchError, match="inside a watch"):
        wb.interop.warp.watch().__enter__()


def test_the_tools_of_the_workbench_work_on_the_tape(k, wp, tmp_path):
    def program():
        x, y, loss = parameters(wp)
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            wp.launch(k.descend, 3, inputs=[x, x, 1.0])
        tape.backward(loss)
        return {"x": x, "y": y, "loss": loss}

    seen, a = both(program)
    x, loss = a.x, a.loss
    seen.backward(grads={loss: np.ones(1)})
    assert "square" in seen.tape.show().text
    assert seen.tape.diagnose() is not None and seen.tape.memory() is not None
    ledger = seen.tape.ledger(seen.twin_of(x), 1, at=seen.tape.events[0])
    assert "x[i] * x[i]" in repr(ledger)
    np.testing.assert_allclose(wb.jacobian(seen.tape, seen.twin_of(a.y), seen.twin_of(x)), np.diag(2 * X))
    path = seen.to_html(tmp_path / "seen.html")
    text = path.read_text("utf-8")
    assert "#0 square" in text and "overwritten" in text
    assert set(seen._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_launches_that_are_repeated_take_their_own_numbers_and_memory(k: Any, wp: Any):
    """Equal arguments share a twin's command; another number, or a new array where one was freed, does not."""
    rates = [0.5, 0.5, 0.25, 0.5, 0.125, 0.25]
    kept = []

    def program() -> dict[str, Any]:
        x, g = (wp.array(v, dtype=float, device="cpu") for v in (X, np.ones(3, np.float32)))
        for rate in rates:
            wp.launch(k.descend, 3, [x, g, rate], device="cpu")
            other = wp.array(X, dtype=float, device="cpu")  # freed each turn: the next lies in its place
            wp.launch(k.descend, 3, [other, g, rate], device="cpu")
            wp.launch(k.descend, 3, [x, other, 0.0 * rate], device="cpu")
        kept[:] = x, g
        return {"x": x, "g": g}

    seen, _ = both(program, check="forward")
    assert not seen.opaque_steps and all(s.difference is None for s in seen.steps)
    x, g = kept
    seen.backward(grads={x: np.ones(3, np.float32)})
    np.testing.assert_allclose(seen.gradients[g], -sum(rates), rtol=1e-6)
    np.testing.assert_allclose(seen.gradients[x], 1.0)


def test_a_gradient_left_in_what_was_computed_is_no_agreement_as_a_seed_again(k: Any, wp: Any) -> None:
    x, y, loss = parameters(wp)
    y.retain_grad = True
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        for _ in range(2):
            loss.grad.fill_(1.0)
            tape.backward()
    first, second = (next(r for r in seen.compare() if r.array == "x" and r.backward == n) for n in (0, 1))
    np.testing.assert_allclose(first.theirs, 2 * X)
    np.testing.assert_allclose(second.theirs, 3 * 2 * X)  # 1 + 2: the second walk carried y.grad once more
    assert first.verdict == "agrees"
    assert second.verdict == "unverified" and second.cause.startswith("leaked seed")


def test_memory_that_its_owner_has_given_back_is_not_looked_at(k: Any, wp: Any) -> None:
    size = 4 * mmap.PAGESIZE
    pages = mmap.mmap(-1, size)
    lent = np.frombuffer(pages, np.float32)
    x, y = wp.array([1.0, 2.0], dtype=float, requires_grad=True), wp.zeros(2, dtype=float, requires_grad=True)
    with wb.interop.warp.watch() as seen:
        a = wp.array(ptr=lent.ctypes.data, shape=lent.shape, dtype=float, device="cpu")
        wp.launch(k.square, lent.size, [a], [wp.zeros(lent.size, dtype=float)])
        del lent, a
        pages.close()
        with wp.Tape() as tape:
            wp.launch(k.square, 2, [x], [y])
        tape.backward(grads={y: wp.array([1.0, 1.0], dtype=float)})
    assert seen.compare()["x"].verdict == "agrees"


def test_a_tape_recorded_before_the_watch_is_unverified_and_says_why(k: Any, wp: Any) -> None:
    x, y = wp.array([1.0, 2.0], dtype=float, requires_grad=True), wp.zeros(2, dtype=float, requires_grad=True)
    with wp.Tape() as tape:
        wp.launch(k.square, 2, [x], [y])
    with wb.interop.warp.watch() as seen:
        wp.launch(k.square, 2, [x], [y])
        tape.backward(grads={y: wp.array([1.0, 1.0], dtype=float)})
    row = seen.compare()["x"]
    assert row.verdict == "unverified" and "from before it" in row.cause


@pytest.mark.parametrize("by_hand", [False, True])
def test_seeds_of_structs(wp: Any, by_hand: bool) -> None:
    from tests.interop.warp.programs import arguments

    x, p = wp.array(X, dtype=float, requires_grad=True), wp.zeros(3, dtype=arguments.Point, requires_grad=True)
    seed = np.array([((1.0, 0.0, 2.0), 3.0)] * 3, arguments.Point.numpy_dtype())
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(arguments.placed, 3, [x], [p])
        if by_hand:
            p.grad.assign(seed)
            tape.backward()
        else:
            tape.backward(grads={p: wp.array(seed, dtype=arguments.Point)})
    row = seen.compare()["x"]
    np.testing.assert_allclose(row.theirs, 2 * X + 2 + 3)
    assert row.verdict == "agrees", row.texts()


def test_a_seed_that_is_shorter_leaves_the_rest(k: Any, wp: Any) -> None:
    x, y, _ = parameters(wp)
    with wb.interop.warp.watch() as seen:
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
        y.grad.fill_(5.0)
        tape.backward(grads={y: wp.array([1.0, 1.0], dtype=float)})
    row = seen.compare()["x"]
    np.testing.assert_allclose(row.theirs, 2 * X * [1, 1, 5])
    assert row.verdict == "agrees", row.texts()


def test_what_another_thread_launches_is_refused(wp: Any, k: Any) -> None:
    x, y, z = (wp.array(X, requires_grad=True) for _ in range(3))
    with wb.interop.warp.watch() as seen, wp.Tape() as tape:
        wp.launch(k.square, 3, [x], [y])
        other = threading.Thread(target=lambda: wp.launch(k.square, 3, [y], [z]))
        other.start()
        other.join()
    with wb.interop.warp.watch() as alone:
        wp.launch(k.square, 3, [x], [y])
    tape.backward(grads={z: wp.ones(3, dtype=float)})
    with pytest.raises(wb.GradientError, match=r"another thread(.|\n)*\[watch-thread\]"):
        seen.backward(grads={y: np.ones(3)})
    alone.backward(grads={y: np.ones(3)})
    np.testing.assert_array_equal(alone.gradients[x], 2 * X)

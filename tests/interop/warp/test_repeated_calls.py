"""Calls that are made again, on the same arrays or others, beside what the host writes: each has a twin."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from test_watch import X, parameters
from tqdm import tqdm

import workbench as wb
from workbench import display

pytestmark = [pytest.mark.needs_warp, pytest.mark.needs_cc]


def training(k: Any, wp: Any) -> dict[str, Any]:  # noqa: F811
    """Steps of a loop that launch, copy, fill, assign, write from the host, go back, and clear, some of them wrong."""
    x, y, loss = parameters(wp)
    z, grid, waves = wp.zeros(3, dtype=float), wp.zeros((2, 2), dtype=float), wp.ones((2, 2), dtype=float)
    for n in range(4):
        with wp.Tape() as tape:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.launch(k.grid, (2, 2), inputs=[waves], outputs=[grid])
            wp.copy(z, y)
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        if n == 2:
            x.numpy()[1] = 1.5  # which Warp's adjoint of `square` reads
        tape.backward(loss)
        wp.launch(k.descend, 3, inputs=[x, x.grad, 0.125])
        if n == 1:
            x.assign(0.5 * X)
        if n < 3:
            tape.zero()
        z.fill_(float(n))
        loss.zero_()
    return {"x": x, "y": y, "z": z, "loss": loss}


def graphs(k: Any, wp: Any) -> dict[str, Any]:  # noqa: F811
    """A graph that goes back and descends, with host writes between its launches."""
    x, y, loss = parameters(wp)
    with wp.ScopedCapture(device="cpu") as capture:
        with wp.Tape() as tape:
            loss.zero_()
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.launch(k.total, 3, inputs=[y], outputs=[loss])
        tape.backward(loss)
        wp.launch(k.descend, 3, inputs=[x, x.grad, 0.125])
        tape.zero()
    for n in range(4):
        wp.capture_launch(capture.graph)
        if n == 1:
            x.numpy()[:2] = [3.0, 4.0]
        if n == 2:
            x.fill_(0.75)
    return {"x": x, "y": y, "loss": loss}


def long_and_short(k: Any, wp: Any) -> dict[str, Any]:  # noqa: F811
    """Graphs over long and short buffers, in turn with launches, copies and the host, on what they read and write."""
    x, y, _ = parameters(wp)
    z, rest = wp.zeros(3, dtype=float), wp.full(3, 0.5, dtype=float)
    wide, other = wp.full(5000, 0.5, dtype=float), wp.zeros(5000, dtype=float)
    graphs = []
    for into in (other, wide):
        with wp.ScopedCapture(device="cpu") as capture:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.launch(k.descend, 3, inputs=[x, rest, 0.125])
            wp.launch(k.square, 5000, inputs=[wide], outputs=[into])
        graphs.append(capture.graph)
    for n in range(6):
        for graph in graphs:
            wp.capture_launch(graph)
            wp.launch(k.square, 3, inputs=[y], outputs=[z])
        if n == 1:
            rest.numpy()[0] = 0.25
        if n == 2:
            wp.copy(rest, z)
        if n == 3:
            y.numpy()[2], wide.numpy()[7] = -1.0, 0.75
        if n == 4:
            rest.numpy()[:] = rest.numpy() + 0.0  # writes what is there
    wp.capture_launch(graphs[0])
    return {"x": x, "y": y, "z": z, "rest": rest, "wide": wide}


@pytest.mark.parametrize("program", [training, graphs, long_and_short])
def test_a_program_has_the_results_that_it_has_alone(k: Any, wp: Any, program: Any) -> None:  # noqa: F811
    alone = {name: a.numpy().copy() for name, a in program(k, wp).items()}
    with wb.interop.warp.watch() as seen:
        arrays = program(k, wp)
    for name, a in arrays.items():
        np.testing.assert_array_equal(a.numpy(), alone[name])
    assert not seen.opaque_steps and not any(s.difference for s in seen.steps)
    rows = seen.compare()
    if program is training:
        assert [(r.array, r.backward) for r in rows.wrong] == [("x", 2)] and len(seen.passes) == 4
    if program is graphs:
        assert len(seen.passes) == 4 and rows.agrees
    if program is long_and_short:
        assert [s.label for s in seen.steps].count("host write") == 3


def test_a_call_that_warp_refuses_leaves_what_the_host_had_written(k: Any, wp: Any) -> None:  # noqa: F811
    """Warp's error reaches the program, and the next launch finds the twin where the host has put it."""
    x, y, _ = parameters(wp)
    with wb.interop.warp.watch() as seen:
        for _n in range(2):
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
        x.numpy()[0] = 7.0
        with pytest.raises(RuntimeError):
            wp.copy(y, x, count=9)
        wp.launch(k.square, 3, inputs=[x], outputs=[y])
    assert [s.label for s in seen.steps] == ["square", "square", "host write", "square"]
    assert y.numpy()[0] == 49.0 and not any(s.difference for s in seen.steps) and not seen.opaque_steps


def test_memory_that_a_launch_used_may_go(k: Any, wp: Any) -> None:  # noqa: F811
    """The watch keeps what it was; the program's arrays come and go."""
    with wb.interop.warp.watch() as seen:
        x, y, _ = parameters(wp)
        for n in range(3):
            z = wp.array(X + n, dtype=float)
            wp.launch(k.square, 3, inputs=[z], outputs=[y])
            wp.launch(k.square, 3, inputs=[z], outputs=[y])
            wp.launch(k.square, 3, inputs=[y], outputs=[y])
            del z
    assert [s.label for s in seen.steps] == ["square"] * 9
    assert not any(s.difference for s in seen.steps) and not seen.opaque_steps
    np.testing.assert_array_equal(y.numpy(), (X + 2) ** 4)


class Turns(enum.IntFlag):
    """As MuJoCo Warp gives to kernels: numbers with names."""

    NONE, ONE, TWO = 0, 1, 2


def test_launches_with_named_numbers_have_twins(k: Any, wp: Any) -> None:  # noqa: F811
    x, y, _ = parameters(wp)
    with wb.interop.warp.watch() as seen:
        for n in (Turns.ONE, Turns.ONE, Turns.TWO, Turns.ONE | Turns.TWO, 2, Turns.TWO):
            wp.launch(k.looped, 3, inputs=[x, n], outputs=[y])
    assert not seen.opaque_steps and not any(s.difference for s in seen.steps)
    np.testing.assert_allclose(y.numpy(), X**4, rtol=1e-6)
    seen.backward(grads={y: np.ones(3, np.float32)})
    np.testing.assert_allclose(seen.gradients[x], 4 * X**3, rtol=1e-6)


@pytest.mark.parametrize("kind", ["float", "vec3"])
def test_many_scattered_host_writes_are_one_event_through_which_nothing_flows(k: Any, wp: Any, kind: str) -> None:  # noqa: F811
    n, start = 300, np.linspace(1, 2, 300, dtype=np.float32)
    x, y, z = (wp.array(v, dtype=float, requires_grad=True) for v in (start, 0 * start, 0 * start))
    whole = x.numpy() if kind == "float" else wp.array(ptr=x.ptr, dtype=wp.vec3, shape=100, device="cpu").numpy()
    with wb.interop.warp.watch() as seen:
        for _ in range(2):
            with wp.Tape() as tape:
                wp.launch(k.square, n, inputs=[x], outputs=[y])
                whole.reshape(-1)[::2] += 1
                wp.launch(k.square, n, inputs=[x], outputs=[z])
        tape.backward(grads={y: wp.ones(n, dtype=float), z: wp.ones(n, dtype=float)})
    assert [s.label for s in seen.steps] == ["square", "host write", "square"] * 2 and not seen.opaque_steps
    assert len(seen.tape.events) == 6 and not any(s.difference for s in seen.steps)
    seen.backward(grads={y: np.ones(n, np.float32), z: np.ones(n, np.float32)})
    odd = np.arange(n) % 2
    np.testing.assert_allclose(seen.gradients[x], 4 * start * odd)  # y and z of the end, by x of the beginning
    row = seen.compare()["x"]
    assert row.verdict == "wrong" and "host write" in row.cause, row.texts()
    np.testing.assert_allclose(row.exact, 2 * (start + (1 - odd)) + 2 * start * odd)


def test_reading_kernels_shows_a_bar_once_it_has_taken_long_where_somebody_looks(
    k: Any,  # noqa: F811
    wp: Any,  # noqa: F811
    monkeypatch: Any,
    capsys: Any,
) -> None:
    x, y, _ = parameters(wp)

    def read() -> str:
        with wb.interop.warp.watch() as seen:
            wp.launch(k.square, 3, inputs=[x], outputs=[y])
            wp.launch(k.cubed, 3, inputs=[x], outputs=[y])
        assert seen.launches.progress.done == 2
        return capsys.readouterr().err

    monkeypatch.setattr(display, "_bar_here", lambda: tqdm)
    assert read() == "", "it took no second"
    monkeypatch.setattr(display, "BAR_AFTER_S", -1.0)
    assert "reading kernels" in read()
    monkeypatch.undo()
    monkeypatch.setattr(display, "BAR_AFTER_S", -1.0)
    assert read() == "", "there is no terminal"


def test_what_a_launch_has_changed_was_not_written_by_the_host(k: Any, wp: Any) -> None:  # noqa: F811
    x, y, loss = parameters(wp)
    with wb.interop.warp.watch() as seen:
        for _ in range(3):
            with wp.Tape() as tape:
                wp.launch(k.square, 3, inputs=[x], outputs=[y])
                wp.launch(k.total, 3, inputs=[y], outputs=[loss])
            tape.backward(loss)
            wp.launch(k.descend, 3, inputs=[x, x.grad, 0.125])
    memory = seen.session.twins.array(x).allocation
    assert [p.number for p in seen.passes if any(r.allocation is memory for r in p.moment.changed)] == []


def test_a_flag_that_is_combined_between_two_watches_is_no_change() -> None:
    """Python notes `A | B` in the class; kernels that use the class are not read anew for that."""
    pytest.importorskip("warp")
    from workbench.warp.watch.rebind import is_same, parts_of

    flags = enum.IntFlag("flags", {"A": 1, "B": 2})
    then = parts_of(flags)
    assert flags.A | flags.B == 3 and is_same(then, parts_of(flags))
    flags.C = 4
    assert not is_same(then, parts_of(flags))

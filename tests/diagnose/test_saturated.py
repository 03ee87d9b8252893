"""A clamp, min or max that holds one component at its bound from some step on is found, with step and thread."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.diagnosed import leaf, line_of
from workbench.tapes import rerun

pytestmark = pytest.mark.usefixtures("backend")
N, STEPS = 4, 20


@wb.kernel
def push(v: wb.array[float], f: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = wb.clamp(v[i] + 0.1 * f[i], -1.0, 1.0)


@wb.kernel
def throttle(v: wb.array[float], f: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    w = v[i] + 0.1 * f[i]
    out[i] = wb.min(w, 1.0)


@wb.kernel
def hold_up(v: wb.array[float], f: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = -wb.max(-v[i] - 0.1 * f[i], -1.0)


@wb.kernel
def landing(v: wb.array[float], f: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = v[i] - 0.1 * wb.max(v[i] - 0.6, 0.0) + 0.02 * f[i]  # a force with a threshold


def run(kernel, forces, by=1.0, steps=STEPS):
    f, loss = leaf(*forces), wb.zeros(1)
    v = [wb.zeros(N) for _ in range(steps + 1)]
    with wb.Tape() as tape:
        for k in range(steps):
            wb.launch(kernel, dim=N, inputs=[v[k], f], outputs=[v[k + 1]])
        for state in v[1:]:
            wb.launch(weighted, dim=N, inputs=[state, by], outputs=[loss])
    tape.backward(loss)
    return tape.diagnose()


@wb.kernel
def weighted(x: wb.array[float], by: float, loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, by * x[i] * x[i])


@pytest.mark.parametrize("by", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize(("kernel", "line"), [(push, "wb.clamp"), (throttle, "wb.min"), (hold_up, "wb.max")])
def test_a_bound_that_one_component_reaches_and_never_leaves_is_told(kernel, line, by):
    (found,) = run(kernel, (0.1, 0.2, 1.0, 0.3), by).problems
    assert found.slug == "saturated" and found.line == line_of(kernel, line)
    assert found.thread == 2 and 9 <= int(found.launch[1:].split()[0]) <= 11
    assert "thread 2" in found.sentence and f"of {STEPS} on this line" in found.sentence


def test_threads_that_are_too_long_to_look_at_are_not_judged(monkeypatch):
    assert run(push, (0.1, 0.2, 1.0, 0.3)).problems
    monkeypatch.setattr(
        rerun, "SAMPLE", 34
    )  # statements: of three of the four threads, the one at its bound among them
    assert run(push, (0.1, 0.2, 1.0, 0.3)).problems == []


def test_bounds_that_are_never_reached_or_left_again_have_no_finding():
    assert run(push, (0.1, 0.2, 0.4, 0.3)).problems == []
    assert run(landing, (0.1, 0.2, 1.0, 0.3)).problems == []


@wb.kernel
def bounce(y: wb.array[wb.vec2], v: wb.array[wb.vec2]):
    i = wb.tid()
    depth = wb.min(y[i][1], 0.0)
    v[i] = v[i] + 0.02 * wb.vec2(0.0, -9.81 - 2000.0 * depth)
    y[i] = y[i] + 0.02 * v[i]


def test_a_ball_that_leaves_the_floor_has_no_finding():
    y = wb.array(np.array([[0.0, 0.2], [0.0, 1.2]], np.float32), dtype=wb.vec2, requires_grad=True)
    v, loss = wb.zeros(2, dtype=wb.vec2), wb.zeros(1)

    @wb.kernel
    def height(y: wb.array[wb.vec2], loss: wb.array[float]):
        wb.atomic_add(loss, 0, y[wb.tid()][1])

    with wb.Tape() as tape:
        for _ in range(25):
            wb.launch(bounce, dim=2, inputs=[y, v])
        wb.launch(height, dim=2, inputs=[y], outputs=[loss])
    tape.backward(loss)
    assert tape.diagnose().named("saturated") == []


@wb.kernel
def steer(v: wb.array[wb.vec2], f: wb.array[wb.vec2], out: wb.array[wb.vec2]):
    i = wb.tid()
    out[i] = wb.min(v[i] + 0.1 * f[i], wb.vec2(1.0, 1.0))


def test_a_component_of_a_vector_is_named():
    f = wb.array(np.array([[0.1, 1.0]], np.float32), dtype=wb.vec2, requires_grad=True)
    v, loss = [wb.zeros(1, dtype=wb.vec2) for _ in range(STEPS + 1)], wb.zeros(1)

    @wb.kernel
    def size(x: wb.array[wb.vec2], loss: wb.array[float]):
        wb.atomic_add(loss, 0, wb.dot(x[wb.tid()], x[wb.tid()]))

    with wb.Tape() as tape:
        for k in range(STEPS):
            wb.launch(steer, dim=1, inputs=[v[k], f], outputs=[v[k + 1]])
        for state in v[1:]:
            wb.launch(size, dim=1, inputs=[state], outputs=[loss])
    tape.backward(loss)
    (found,) = tape.diagnose().problems
    assert found.slug == "saturated" and "component 1" in found.sentence


def test_a_bound_that_holds_in_every_thread_beside_a_path_that_lives_is_told():
    @wb.kernel
    def small_angle(x: wb.array[float], p: wb.array[float]):
        i = wb.tid()
        p[i] = wb.clamp(x[i], -0.01, 0.01) + 0.1 * x[i]

    for start, slugs in ((1.0, ["saturated"]), (0.0, [])):
        x, p, loss = leaf(*np.linspace(start, 2.0, N)), wb.zeros(N), wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(small_angle, dim=N, inputs=[x], outputs=[p])
            wb.launch(weighted, dim=N, inputs=[p, 1.0], outputs=[loss])
        tape.backward(loss)
        assert [f.slug for f in tape.diagnose().problems] == slugs


def test_a_contact_that_is_never_made_has_no_finding():
    @wb.kernel
    def floor_force(x: wb.array[float], f: wb.array[float]):
        i = wb.tid()
        f[i] = -100.0 * wb.min(x[i], 0.0) + x[i]

    x, f, loss = leaf(1.0, 2.0, 3.0, 4.0), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(floor_force, dim=N, inputs=[x], outputs=[f])
        wb.launch(weighted, dim=N, inputs=[f, 1.0], outputs=[loss])
    tape.backward(loss)
    assert tape.diagnose().problems == []


@wb.kernel
def drain(v: wb.array[float], f: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = v[i] + 0.1 * f[i] + 0.01 * wb.clamp(0.5 - v[i], 0.0, 2.0)


@wb.kernel
def lift_off(v: wb.array[float], f: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    out[i] = v[i] + 0.1 * f[i] + wb.max(0.5 - v[i], 0.0)


def test_a_clamp_that_stays_at_zero_is_good_to_know_and_a_contact_that_ends_is_nothing():
    (found,) = run(drain, (0.1, 0.2, 1.0, 0.2)).named("saturated")
    assert found.severity == "info" and found.line == line_of(drain, "wb.clamp") and found.thread == 2
    assert run(lift_off, (0.1, 0.2, 1.0, 0.3)).named("saturated") == []


def test_a_clamp_at_zero_does_not_hide_one_at_another_bound():
    @wb.kernel
    def both(v: wb.array[float], f: wb.array[float], out: wb.array[float]):
        i = wb.tid()
        brake = wb.clamp(0.5 - v[i], 0.0, 1.0)
        out[i] = wb.clamp(v[i] + 0.1 * f[i] + 0.0 * brake, -1.0, 1.0) + 0.01 * brake

    found = run(both, (0.1, 0.2, 1.0, 0.3)).named("saturated")
    assert [f.severity for f in found] == ["warning"] and found[0].line == line_of(both, "-1.0, 1.0)")

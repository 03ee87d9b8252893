"""How much is done to find something: it must not grow with the length of a time loop, nor with that of inner loops."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench import diagnose
from workbench.diagnose import kinks, walk_record

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def collide(x: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    v = x[i]
    for k in range(turns):
        d = v - 0.25 * float(k % 8)
        if d < 0.0:
            v = v + 0.001 * d
        v = wb.max(v, -100.0) * 0.999
    y[i] = v


def worked(monkeypatch, launches: int, turns: int, cells: int = 8) -> tuple[int, int, int]:
    """Statements interpreted, launches looked at, and walks, for one diagnosis."""
    x = wb.array(np.linspace(0.1, 2.0, cells).astype(np.float32), requires_grad=True)
    with wb.Tape() as tape:
        for _ in range(launches):
            y = wb.zeros(cells)
            wb.launch(collide, dim=cells, inputs=[x, turns], outputs=[y])
            x = y
    seen, walks, real = [], [], walk_record.walk
    with monkeypatch.context() as patched:
        patched.setattr(diagnose, "Kinks", lambda: seen.append(kinks.Kinks()) or seen[-1])
        patched.setattr(walk_record, "walk", lambda *given, **named: walks.append(1) or real(*given, **named))
        tape.diagnose(grads={y: wb.ones(cells)})
    return seen[0].run, seen[0].launches, len(walks)


def test_the_search_for_kinks_does_the_same_work_on_a_tape_twice_as_long(monkeypatch):
    monkeypatch.setattr(kinks, "MOST", 4000)
    once, twice = worked(monkeypatch, 40, 8), worked(monkeypatch, 80, 8)
    assert once[1:] == twice[1:] == (kinks.LAUNCHES, 1), "a healthy tape is walked once"
    assert all(3000 < n < 1.5 * kinks.MOST for n in (once[0], twice[0]))


def test_a_long_loop_in_a_kernel_is_given_up_on(monkeypatch):
    monkeypatch.setattr(kinks, "MOST", 4000)
    short, long = worked(monkeypatch, 2, 2), worked(monkeypatch, 2, 2000, cells=1)
    assert 0 < short[0] < kinks.MOST and kinks.MOST // 2 < long[0] < 1.1 * kinks.MOST


@wb.kernel
def touching(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.where(x[i] - 1.0 < 0.0, 2.0 * x[i], x[i])


def test_a_close_comparison_is_found_in_a_long_tape_and_none_where_nothing_is_close():
    for value, slugs in ((1.0, ["kink"]), (1.5, [])):
        x = wb.array(np.float32([value] * 40), requires_grad=True)
        with wb.Tape() as tape:
            for _ in range(60):
                y = wb.zeros(40)
                wb.launch(touching, dim=40, inputs=[x], outputs=[y])
        assert [f.slug for f in tape.diagnose(grads={y: wb.ones(40)}) if f.slug == "kink"] == slugs


@wb.kernel
def corner(x: wb.array[float], ground: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.min(x[i] - ground[i], 0.0) + 0.9 * x[i]


def test_a_corner_is_found_in_one_launch_of_many():
    states, low, at = [wb.array([2.0, 3.0], requires_grad=True)], wb.zeros(2), wb.array([2.0, 0.0])
    with wb.Tape() as tape:
        for n in range(120):
            states.append(wb.zeros(2))
            wb.launch(corner, dim=2, inputs=[states[0], at if n == 57 else low], outputs=[states[-1]])
    tape.backward(grads={y: wb.ones(2) for y in states[1:]})
    (found,) = tape.diagnose().named("kink")
    assert (found.launch, found.thread, found.arrays) == ("#57 corner", 0, ("states[58]",))

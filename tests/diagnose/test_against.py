"""`tape.diagnose(against=other)`: where two runs of what should be one program part."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

pytestmark = pytest.mark.usefixtures("backend")

N = 6


@wb.kernel
def springs(q: wb.array[float], k: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = -k * q[i] * wb.abs(q[i])


@wb.kernel
def move(f: wb.array[float], dt: float, v: wb.array[float], q: wb.array[float]):
    i = wb.tid()
    v[i] += dt * f[i]
    q[i] += dt * v[i]


def forgetful():
    @wb.kernel
    def move(f: wb.array[float], dt: float, v: wb.array[float], q: wb.array[float]):
        i = wb.tid()
        v[i] += dt * f[i]
        q[i] += v[i]

    return move


@wb.kernel
def renamed(f: wb.array[float], dt: float, v: wb.array[float], q: wb.array[float]):
    i = wb.tid()
    v[i] += f[i] * dt
    q[i] += v[i] * dt


class Run:
    def __init__(self, steps=4, start=1.0, dt=0.1, odd=None, kernel=move, dim=N, skip=None, swap=False, keep="needed"):
        self.q, self.v, self.f = wb.array(np.linspace(start, 2, N).astype(np.float32), requires_grad=True), *zeros(2)
        self.odd, self.kernel, self.dim, self.skip, self.swap, self.dt = odd, kernel, dim, skip, swap, dt
        with wb.Tape(keep=keep) as self.tape:
            for k in range(steps):
                self.step(k)

    def step(self, k):
        special = k == 2
        force = self.v if special and self.swap else self.f
        wb.launch(springs, dim=self.dim if special else N, inputs=[self.q, 3.0], outputs=[force])
        if special and self.skip:
            return
        dt = self.odd if special and self.odd is not None else self.dt
        wb.launch(self.kernel if special else move, dim=N, inputs=[self.f, dt, self.v], outputs=[self.q])


def zeros(n):
    return [wb.zeros(N) for _ in range(n)]


def parted(one, two):
    (found,) = one.tape.diagnose(against=two.tape)
    assert found.slug == "parted" and found.severity == "warning" and found.sentence.startswith("the runs part here: ")
    return found


@pytest.mark.parametrize("keep", ["needed", "all"])
def test_two_equal_runs_do_not_part(keep):
    found = Run(keep=keep).tape.diagnose(against=Run(keep=keep).tape)
    assert len(found) == 0 and found.note == "Both runs wrote the same."


def test_another_number_is_named_with_what_came_of_it():
    one, two = Run(), Run(odd=0.2)
    found = parted(one, two)
    assert found.launch == "#5 move" and found.arrays == ("one.v",)
    assert "dt is 0.1 here, 0.2 there" in found.sentence and "one.v (two.v there)[0] = " in found.sentence
    assert found.where.text.strip().startswith("wb.launch(self.kernel")


def test_a_missing_dt_is_found_by_launch_line_and_numbers():
    one, two = Run(), Run(kernel=forgetful())
    found = parted(one, two)
    assert found.launch == "#5 move" and "`q[i] += dt * v[i]` here" in found.sentence
    assert "`q[i] += v[i]` there" in found.sentence and found.mended == "q[i] += v[i]"
    assert found.arrays == ("one.q",) and "[0] = " in found.sentence


def test_another_kernel_another_grid_and_another_array_are_found():
    @wb.kernel
    def faster(f: wb.array[float], dt: float, v: wb.array[float], q: wb.array[float]):
        i = wb.tid()
        v[i] += 2.0 * dt * f[i]
        q[i] += dt * v[i]

    assert "`move` is launched here, `faster` there" in parted(Run(), Run(kernel=faster)).sentence
    found = parted(Run(), Run(dim=N - 2))
    assert found.launch == "#4 springs" and "dim is 6 here, 4 there" in found.sentence and "of shape" in found.sentence
    one, two = Run(), Run(swap=True)
    found = parted(one, two)
    assert found.launch == "#4 springs" and "one.f (float32 (6,)) here, two.v (float32 (6,)) there" in found.sentence
    assert "so #5 `move` finds one.f (two.f there)[0] = " in found.sentence


def test_another_input_is_told_before_what_follows_from_it():
    one, two = Run(), Run(start=0.9)
    found = parted(one, two)
    assert found.launch == "#0 springs" and "it finds one.q (two.q there)[0] = 1 here, 0.9 there" in found.sentence


def test_a_launch_too_few_is_found():
    one, two = Run(), Run(skip=True)
    found = parted(one, two)
    assert found.launch == "#5 move" and "`move`, which writes one.v, one.q, and there `springs`" in found.sentence
    assert parted(two, one).launch == "#5 springs"
    assert parted(Run(steps=4), Run(steps=3)).launch == "#6 springs"


def test_the_same_program_under_another_name_and_rounding_are_no_warning():
    found = Run().tape.diagnose(against=Run(kernel=renamed).tape)
    assert (
        found.problems == [] and [f.slug for f in found] == ["parted"] and "the same all the same" in found[0].sentence
    )


def test_what_cannot_run_again_is_compared_without_numbers_and_says_so():
    def run(dt):
        x, y = wb.array(np.float32([1.0]), requires_grad=True), wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(springs, dim=1, inputs=[x, dt], outputs=[y])
            tape.record_func(lambda: None, [y])
        return tape

    assert "Numbers were not compared: a tape with record_func" in run(1.0).diagnose(against=run(1.0)).note
    assert "k is 1 here, 2 there" in run(1.0).diagnose(against=run(2.0))[0].sentence
    with pytest.raises(wb.errors.LaunchError, match="against"):
        run(1.0).diagnose(against=3)

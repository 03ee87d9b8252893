"""Where a NaN was born is found on a tape that keeps only what adjoints need: the program runs again with all kept."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.diagnose import finite

pytestmark = pytest.mark.usefixtures("backend")

N = 24


@wb.kernel
def springs(q: wb.array[float], limit: float, f: wb.array[float]):
    i = wb.tid()
    stretch = limit - q[i]
    f[i] = wb.sqrt(stretch)


@wb.kernel
def move(f: wb.array[float], dt: float, q: wb.array[float]):
    i = wb.tid()
    q[i] = q[i] + dt * f[i]


@wb.kernel
def shift(f: wb.array[float], dt: float, q: wb.array[float], p: wb.array[float]):
    i = wb.tid()
    p[i] = q[i] + dt * f[i]


class Chain:
    """A time loop over two buffers: what it starts from is written again, and linear steps keep nothing."""

    def __init__(self, fast: float):
        start = np.zeros(N, np.float32)
        start[19] = fast
        self.q0 = wb.array(start, requires_grad=True)
        self.a, self.b, self.force = wb.zeros(N), wb.zeros(N), wb.zeros(N)

    def run(self, steps: int, keep: str = "needed"):
        with wb.Tape(keep=keep) as tape:
            wb.copy(self.a, self.q0)
            q, p = self.a, self.b
            for _ in range(steps):
                wb.launch(springs, dim=N, inputs=[q, 1.0], outputs=[self.force])
                wb.launch(shift, dim=N, inputs=[self.force, 0.3, q], outputs=[p])
                q, p = p, q
        return tape, q


def test_the_launch_thread_line_and_operands_are_those_of_the_birth():
    chain = Chain(0.9)
    tape, q = chain.run(12)
    kept, end = Chain(0.9).run(12, keep="all")
    (found,), (wanted,) = (t.diagnose(grads={y: wb.ones(N)}).problems for t, y in ((tape, q), (kept, end)))
    assert found.slug == "not-finite" and found.thread == 19 and found.arrays == ("chain.force",)
    assert (found.launch, found.line) == (wanted.launch, wanted.line)
    assert "sqrt(-" in found.sentence and "in thread 19" in found.sentence and "not kept" not in found.sentence
    assert found.where.text.strip() == "f[i] = wb.sqrt(stretch)"
    assert not np.isfinite(q.numpy()[19]) and not chain.q0.numpy()[0]


def test_a_healthy_loop_has_no_finding_and_is_not_run_again(monkeypatch):
    monkeypatch.setattr(finite, "keep_all", lambda tape: pytest.fail("run again for nothing"))
    tape, q = Chain(0.1).run(2)
    assert tape.diagnose(grads={q: wb.ones(N)}).problems == []


def test_a_state_that_was_no_zeros_and_is_updated_in_place_is_kept_once():
    f, q = wb.array(np.float32([0.5, 2.0]), requires_grad=True), wb.array(np.float32([0.25, 0.75]))
    with wb.Tape() as tape:
        for _ in range(5):
            wb.launch(move, dim=2, inputs=[f, 0.5, q])
        wb.launch(springs, dim=2, inputs=[q, 1.0], outputs=[f])
    kept = [(n, k) for n, event in enumerate(tape.events) for k in event.kept if k.span.allocation is q.allocation]
    assert [(n, k.span.nbytes) for n, k in kept] == [(0, q.nbytes)]
    (found,) = tape.diagnose(grads={f: wb.ones(2)}).named("not-finite")
    assert found.thread == 0 and "sqrt(-0.5)" in found.sentence
    assert not tape.diagnose().named("overwritten-kept")


def test_what_cannot_be_run_again_says_so():
    q, f = wb.array(np.float32([0.5, 2.0]), requires_grad=True), wb.zeros(2)
    held = wb.ones(2)
    with wb.Tape() as tape:
        wb.launch(springs, dim=2, inputs=[q, 1.0], outputs=[f])
        wb.launch(move, dim=1, inputs=[f, 1.0, held[:1]])
        wb.launch(move, dim=2, inputs=[f, 1.0, held])  # only what is written first is kept
        wb.launch(move, dim=2, inputs=[f, 1.0, f])
    (found,) = tape.diagnose(grads={f: wb.ones(2)}).named("not-finite")
    assert "could not be run again" in found.sentence and "held" in found.sentence and found.fix


def test_what_was_changed_since_gives_other_bits_and_is_not_blamed():
    chain = Chain(0.9)
    tape, q = chain.run(6)
    chain.force.fill_(0.0)  # linear steps: no adjoint reads it, but it is not what the program left
    (found,) = tape.diagnose(grads={q: wb.ones(N)}).named("not-finite")
    assert "could not be run again" in found.sentence and "'chain.force' holds other numbers" in found.sentence


@wb.kernel
def slow(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    v = x[i]
    for _ in range(40):
        v = v * 0.999
    y[i] = wb.sqrt(v)


def test_the_thread_is_found_in_a_launch_that_is_too_large_to_be_run_as_a_whole(monkeypatch, backend):
    from workbench.tapes import rerun

    monkeypatch.setattr(rerun, "BUDGET", 2000)
    data = np.ones((30, 40), np.float32)
    data[21, 7] = -1.0
    x = wb.array(data.ravel(), requires_grad=True)
    y = wb.zeros(x.size)
    with wb.Tape() as tape:
        wb.launch(slow, dim=x.size, inputs=[x], outputs=[y])
    (found,) = tape.diagnose(grads={y: wb.ones(x.size)}).problems
    assert found.thread == 21 * 40 + 7 and "sqrt(-" in found.sentence
    data[21, 7] = 0.0
    x = wb.array(data.ravel(), requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(slow, dim=x.size, inputs=[x], outputs=[y])
    (found,) = tape.diagnose(grads={y: wb.ones(x.size)}).problems
    assert found.slug == "adjoint-not-finite" and found.thread == 21 * 40 + 7 and "= inf" in found.sentence


def test_what_follows_from_the_first_nan_is_not_listed_and_what_does_not_is():
    tape, q = Chain(0.9).run(12)
    assert [f.slug for f in tape.diagnose(grads={q: wb.ones(N)}).problems] == ["not-finite"]
    x, h, y, bad = wb.array(np.float32([1.0]), requires_grad=True), wb.zeros(1), wb.zeros(1), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(springs, dim=1, inputs=[x, 1.0], outputs=[h])  # the slope of sqrt at 0
        wb.launch(move, dim=1, inputs=[h, 1.0, y])
        wb.launch(springs, dim=1, inputs=[x, -1.0], outputs=[bad])
    found = tape.diagnose(grads={y: wb.ones(1)}).problems
    assert {f.slug for f in found} == {"not-finite", "adjoint-not-finite"}


def test_one_dead_launch_is_one_finding_for_all_leaves():
    x, w, h = (wb.array(np.float32([0.5]), requires_grad=True) for _ in range(3))
    y = wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(mixed, dim=1, inputs=[x, w, h], outputs=[y])
    (found,) = tape.diagnose(grads={y: wb.ones(1)}).problems
    assert found.slug == "died" and found.arrays == ("x", "w", "h")


@wb.kernel
def mixed(x: wb.array[float], w: wb.array[float], h: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.max(x[i] * w[i] * h[i], 50.0)

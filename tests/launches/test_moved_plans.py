"""Launches that differ in the numbers of their indices: their plan is moved, and is the one that would be made."""

from __future__ import annotations

import functools
import linecache
import random

import numpy as np
import pytest

import workbench as wb
from workbench.arrays.span import Span
from workbench.errors import BoundsError, LaunchError, WorkbenchError
from workbench.kernels.program import MOST_PLANS
from workbench.launches import plan as plans
from workbench.launches.adjoint_plan import adjoint_of

F = wb.float64


@wb.kernel
def step(x: wb.array2d(dtype=F), t: int):
    i = wb.tid()
    x[t + 1, i] = x[t, i] * x[t, i]


@wb.kernel
def window(x: wb.array(dtype=F), at: int):
    i = wb.tid()
    x[at + i] = x[at + i] * x[at + i + 1]


@wb.kernel
def scatter(x: wb.array(dtype=F), y: wb.array(dtype=F), at: int, to: int):
    i = wb.tid()
    wb.atomic_add(y, to - i, x[2 * i + at])


def program_of(kernel, *args, dim=3):
    wb.launch(kernel, dim, list(args))
    return kernel.program()


def facts(plan, active):
    """All that a plan says of its launches."""
    forward, back = plan.forward, None
    if plan.program.enable_backward:
        back = adjoint_of(plan, active)
    return (
        [plan.form.scalars[plan.program.leaves[k].name] for k in plan.program.index_positions],
        plan.reads,
        plan.writes,
        plan.stores,
        plan.covered,
        plan.accumulates_only,
        plan.float_reads,
        plan.float_writes,
        (forward.variant, forward.workers, forward.contested, forward.box, forward.function),
        back
        and (back.needs, back.live, back.shadows, back.private, back.executable.contested, back.executable.variant),
        back and (back.races is None, back.pull is None),
    )


def compared(kernel, dims, flat):
    """(the facts of the plan that the cache gives, those of one made anew, if it was moved); errors as their texts."""
    program = kernel.program()
    active = tuple(k for k in program.array_positions)
    found = []
    for kept in (True, False):
        cache = dict(program.plans)
        if not kept:
            program.plans.clear()
        try:
            made = plans.plan(program, dims, flat, None)
            found.append((facts(made, active), made.moved_from is not None))
        except WorkbenchError as error:
            found.append((str(error), False))
        if not kept:
            program.plans.clear()
            program.plans.update(cache)
    (now, moved), (anew, _) = found
    return now, anew, moved


def made(text, key):
    linecache.cache[key] = (len(text), None, text.splitlines(True), key)
    space = {"wb": wb, "F": F}
    exec(compile(text, key, "exec"), space)
    return space["k"]


def random_kernel(draw: random.Random, number: int):
    """A kernel whose accesses are moved by the numbers s and t, mostly alike."""
    count = draw.choice((1, 1, 2))
    alike = [draw.choice(("t", "t", "s", "-t", "2 * t", "t + s", "t - s", "5")) for _ in range(count)]
    lines = []

    def index(array):
        moved = alike[array] if draw.random() < 0.9 else draw.choice(("t", "s", "3"))
        return f"{moved} + {draw.choice(('i', 'i', '2 * i', '-i', 'j'))} + {draw.randrange(4)}"

    def access():
        a, b = draw.randrange(count), draw.randrange(count)
        return draw.choice(("x{0}[{1}] = x{2}[{3}] * x{2}[{3}]", "wb.atomic_add(x{0}, {1}, x{2}[{3}])")).format(
            a, index(a), b, index(b)
        )

    for _ in range(draw.choice((1, 1, 2))):
        inner = access()
        guard = draw.choice(("", "", "", "if i < 3:", "if i > 0:", "if i < t:", "if x0[i] > 0.5:"))
        lines.append(f"        {guard}\n            {inner}" if guard else f"        {inner}")
    around = draw.choice(
        ("for j in range(2):", "for j in range(2):", "for j in range(t, t + 2):", "for j in range(s):")
    )
    params = ", ".join(f"x{k}: wb.array(dtype=F)" for k in range(count))
    text = f"@wb.kernel\ndef k({params}, s: int, t: int):\n    i = wb.tid()\n    {around}\n" + "\n".join(lines) + "\n"
    return made(text, f"<moved {number}>"), count


@pytest.mark.parametrize("seed", range(8))
def test_a_moved_plan_is_the_plan_that_would_be_made(seed, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", "numpy")
    draw, moved = random.Random(seed), 0
    for number in range(12):
        kernel, count = random_kernel(draw, number)
        arrays = [wb.zeros(40, dtype=F) for _ in range(count)]
        for _ in range(8):
            s, t = draw.choice((0, 1, 5, draw.randrange(-3, 30))), draw.choice((7, 8, 9, draw.randrange(-3, 45)))
            now, anew, was_moved = compared(kernel, (5,), [*arrays, s, t])
            assert now == anew, (s, t)
            moved += was_moved
    assert moved > 20


@pytest.mark.parametrize("kernel", [step, window, scatter], ids=lambda k: k.key)
def test_the_usual_ways(kernel, backend):
    two = kernel is step
    arrays = [wb.zeros((30, 4) if two else 30, dtype=F) for _ in range(2 if kernel is scatter else 1)]
    numbers = [(n, 9 + n // 2)[: 2 if kernel is scatter else 1] for n in range(20)]
    moved = [compared(kernel, (4,), [*arrays, *n]) for n in numbers]
    assert all(now == anew for now, anew, _ in moved)
    assert [m for *_, m in moved] == [False, *[True] * 19]


def test_one_plan_is_made_for_all_numbers(backend, monkeypatch):
    count = []
    make = plans._make
    monkeypatch.setattr(plans, "_make", lambda *a: count.append(a) or make(*a))
    x = wb.zeros((MOST_PLANS + 200, 2), dtype=F)
    for t in range(MOST_PLANS + 150):
        wb.launch(step, 2, [x, t])
    assert len(count) == 1
    program = step.program()
    assert len(program.plans) <= MOST_PLANS and len(step.launches.known) <= MOST_PLANS


def test_numbers_that_leave_the_array(backend):
    x = wb.array(np.arange(6.0), dtype=F)
    for at in (0, 3):
        wb.launch(window, 2, [x, at])
    with pytest.raises(BoundsError, match=r"thread 1 uses index 6 on axis 0"):
        wb.launch(window, 2, [x, 4])
    y = wb.array(np.arange(1.0, 7.0), dtype=F)
    wb.launch(window, 1, [y, 0])
    wb.launch(window, 1, [y, -3])  # counts from the end
    assert y.list() == [2, 2, 3, 20, 5, 6]


def test_the_gradient_of_windows(backend):
    n = 12
    start = np.linspace(0.8, 1.2, n)

    def program(values):
        x = np.array(values, dtype=complex)
        for at in [*range(n - 1), *range(0, n - 3, 2)]:
            x[at] = x[at] * x[at + 1]
        return np.sum(x**2)

    want = [program(start + 1e-30j * (np.arange(n) == k)).imag / 1e-30 for k in range(n)]
    for _ in range(3):  # the last of them by a compiled walk, where there is one
        leaf, x = wb.array(start, dtype=F, requires_grad=True), wb.zeros(n, dtype=F)
        with wb.Tape() as tape:
            wb.copy(x, leaf)
            for at in [*range(n - 1), *range(0, n - 3, 2)]:
                wb.launch(window, 1, [x, at])
            loss = x * x
        tape.backward(grads={loss: wb.ones(n, dtype=F)})
        np.testing.assert_allclose(leaf.grad.numpy(), want, rtol=1e-12)


def test_the_gradient_of_a_trajectory(backend):
    for _ in range(3):
        leaf, x = wb.array([0.9, 1.0, 1.1], dtype=F, requires_grad=True), wb.zeros((6, 3), dtype=F)
        with wb.Tape() as tape:
            wb.copy(x[0], leaf)
            for t in range(5):
                wb.launch(step, 3, [x, t])
        seed = wb.zeros((6, 3), dtype=F)
        seed[5].fill_(1.0)
        tape.backward(grads={x: seed})
        np.testing.assert_allclose(leaf.grad.numpy(), 32 * np.array([0.9, 1.0, 1.1]) ** 31, rtol=1e-12)


def test_a_window_costs_the_same_at_the_end_of_a_long_tape(monkeypatch):
    count = [0]
    overlaps = Span.overlaps

    def counted(self, other):
        count[0] += 1
        return overlaps(self, other)

    monkeypatch.setattr(Span, "overlaps", counted)
    x, each = wb.ones(1300, dtype=F, requires_grad=True), []
    with wb.Tape():
        for at in range(1200):
            before = count[0]
            wb.launch(window, 1, [x, at])
            each.append(count[0] - before)
    assert max(each[-300:]) <= max(each[100:400]) < 40


@pytest.mark.parametrize("name", ["shape", "strides", "dtype", "ndim", "size", "device", "allocation"])
def test_the_layout_of_an_array_stays(name):
    x = wb.zeros((2, 3))
    with pytest.raises(LaunchError, match=rf"\.{name} = \.\.\. : an array keeps its memory and its layout"):
        setattr(x, name, getattr(x, name))
    x.name = "x"
    assert x.shape == (2, 3) and x.reshape((3, 2)).shape == (3, 2) and x.label == "x"


def test_what_is_kept_of_ever_new_shapes_is_bounded(backend, monkeypatch):
    from workbench.arrays import strided

    known = functools.lru_cache(8)(strided._layout.__wrapped__)
    monkeypatch.setattr(strided, "_layout", known)
    x = wb.array(np.arange(1.0, 41.0), dtype=F)
    for n in [*range(1, 39), 3, 3, 3]:  # some of whose layouts are numbered anew
        wb.launch(window, 1, [x[: n + 1], n - 1])
        assert known.cache_info().currsize <= 8
    want = np.arange(1.0, 41.0)
    for n in [*range(1, 39), 3, 3, 3]:
        want[n - 1] *= want[n]
    np.testing.assert_allclose(x.numpy(), want, rtol=1e-14)
    assert window.launches.known.most == window.launches.program.plans.most

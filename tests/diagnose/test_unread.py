"""Results that nobody uses are found with the line: overwritten, wiped, in the wrong buffer, or left over."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import workbench as wb
from tests.support.diagnosed import leaf, line_with, total

pytestmark = pytest.mark.usefixtures("backend")
N, DT = 4, 0.01


@wb.kernel
def pull(x: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    f[i] = -3.0 * x[i] * x[i]


@wb.kernel
def add_drag(v: wb.array[float], f: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(f, i, -0.1 * v[i] * v[i])


@wb.kernel
def integrate(x: wb.array[float], v: wb.array[float], f: wb.array[float], dt: float):
    i = wb.tid()
    v[i] = v[i] + dt * f[i]
    x[i] = x[i] + dt * v[i]


@wb.kernel
def relax(a: wb.array[float], b: wb.array[float]):
    i = wb.tid()
    if i > 0 and i < 3:
        b[i] = 0.5 * (a[i - 1] * a[i] + a[i + 1])


def system(**more):
    x, v = leaf(1.0, 2.0, 3.0, 4.0), wb.zeros(N)
    return SimpleNamespace(x=x, v=v, f=wb.zeros(N), loss=wb.zeros(1), **more)


def simulate(steps, s, step):
    with wb.Tape() as tape:
        for _ in range(steps):
            step(s)
        wb.launch(total, dim=N, inputs=[s.x], outputs=[s.loss])
    tape.backward(s.loss)
    return tape.diagnose()


def line(text: str, function) -> int:
    return line_with(function, text)


def plain(s):
    s.f.zero_()
    wb.launch(pull, dim=N, inputs=[s.x], outputs=[s.f])
    wb.launch(add_drag, dim=N, inputs=[s.v], outputs=[s.f])
    wb.launch(integrate, dim=N, inputs=[s.x, s.v, s.f, DT])


def wrong_buffer(s):
    wb.launch(pull, dim=N, inputs=[s.x], outputs=[s.f2])
    wb.launch(integrate, dim=N, inputs=[s.x, s.v, s.f, DT])  # reads f


def replaced(s):
    wb.launch(add_drag, dim=N, inputs=[s.v], outputs=[s.f])
    wb.launch(pull, dim=N, inputs=[s.x], outputs=[s.f])  # stores
    wb.launch(integrate, dim=N, inputs=[s.x, s.v, s.f, DT])


def cleared(s):
    wb.launch(pull, dim=N, inputs=[s.x], outputs=[s.f])
    s.f.zero_()
    wb.launch(add_drag, dim=N, inputs=[s.v], outputs=[s.f])
    wb.launch(integrate, dim=N, inputs=[s.x, s.v, s.f, DT])


def filled(s):
    wb.launch(pull, dim=N, inputs=[s.x], outputs=[s.f])
    wb.launch(add_drag, dim=N, inputs=[s.v], outputs=[s.f])
    s.f.fill_(0.5)
    wb.launch(integrate, dim=N, inputs=[s.x, s.v, s.f, DT])


def forgotten(s):
    wb.launch(pull, dim=N, inputs=[s.x], outputs=[s.f])
    wb.launch(add_drag, dim=N, inputs=[s.v], outputs=[s.drag])
    wb.launch(integrate, dim=N, inputs=[s.x, s.v, s.f, DT])


@pytest.mark.parametrize("steps", [1, 5])
def test_a_force_in_one_array_while_the_step_reads_another_is_told(steps):
    (found,) = simulate(steps, system(f2=wb.zeros(N)), wrong_buffer).problems
    assert found.slug == "unwritten-read" and found.line == line("reads f", wrong_buffer)
    assert found.launch == "#1 integrate" and "'pull'" in found.fix


def test_a_result_overwritten_before_anybody_read_it_is_told():
    (found,) = simulate(5, system(), replaced).problems
    assert found.slug == "overwritten-unread" and found.line == line("stores", replaced)
    assert "#3 add_drag" in found.sentence and found.launch == "#4 pull"


@pytest.mark.parametrize(("step", "how"), [(cleared, "zero_()"), (filled, "fill_()")])
def test_a_result_wiped_between_the_launch_that_made_it_and_its_reader_is_told(step, how):
    (found, *more) = simulate(3, system(), step).problems
    assert found.slug == "wiped" and found.line == line(how[:-1], step) and how in found.sentence
    assert {f.slug for f in more} <= {"wiped"}


def test_sums_that_nobody_reads_are_told():
    (found,) = simulate(5, system(drag=wb.zeros(N)), forgotten).problems
    assert found.slug == "unread" and found.line == line("add_drag", forgotten)


@pytest.mark.host_memory
def test_a_single_result_that_nobody_reads_is_mentioned():
    s = system(drag=wb.zeros(N))
    found = simulate(2, s, forgotten)
    assert found.problems == [] and [f.line for f in found.named("unread")] == [line("add_drag", forgotten)]
    s = system(drag=wb.zeros(N))
    with wb.Tape() as tape:
        forgotten(s)
        forgotten(s)
        wb.launch(total, dim=N, inputs=[s.x], outputs=[s.loss])
    tape.backward(s.loss)
    s.drag.numpy()
    assert tape.diagnose().named("unread") == [], "the host has read it"


@pytest.mark.parametrize("steps", [1, 2, 20])
def test_an_ordinary_time_loop_has_no_such_finding(steps):
    found = simulate(steps, system(), plain)
    assert {f.slug for f in found} <= {"overwritten-kept", "aliased"}


# ---- two buffers, and lists of states


def turns(n, last, swap=True):
    a, b, loss = leaf(1.0, 0.5, 0.25, 2.0), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        for _ in range(n):
            wb.launch(relax, dim=N, inputs=[a], outputs=[b])  # one turn
            if swap:
                a, b = b, a
        wb.launch(total, dim=N, inputs=[(a, b)[last]], outputs=[loss])  # the sum
    tape.backward(loss)
    return tape.diagnose()


@pytest.mark.parametrize("n", [1, 4, 5])
def test_buffers_that_are_swapped_as_they_should_be_are_ordinary(n):
    assert turns(n, 0).problems == []


@pytest.mark.parametrize("n", [4, 5])
def test_the_older_of_two_buffers_is_read_behind_the_loop(n):
    (found,) = turns(n, 1).problems
    assert found.slug == "stale-buffer" and found.line == line("the sum", turns) and found.launch == f"#{n} total"


@pytest.mark.parametrize("last", [0, 1])
def test_buffers_that_are_never_swapped_are_told(last):
    found = turns(4, last, swap=False).named("overwritten-unread")
    assert [f.line for f in found] == [line("one turn", turns)] and found[0].arrays == ("b", "a")
    assert "never swapped" in found[0].sentence


def states(n, read, step=1, last=-1):
    state = [leaf(1.0, 0.5, 0.25, 2.0), *(wb.zeros(N) for _ in range(n + 2))]
    loss = wb.zeros(1)
    with wb.Tape() as tape:
        for k in range(n):
            wb.launch(pull, dim=N, inputs=[state[k]], outputs=[state[k + step]])  # one step
        wb.launch(total, dim=N, inputs=[state[read]], outputs=[loss])  # the sum
    return tape.diagnose(loss)


def test_a_list_of_states_is_ordinary():
    assert states(5, 5).problems == []


def test_a_state_behind_the_last_one_is_read():
    found = states(5, 6).named("unwritten-read")
    assert [f.line for f in found] == [line("the sum", states)] and found[0].arrays[0] == "state[6]"


def test_states_two_apart_are_read_one_apart():
    found = states(5, 5, step=2).named("unwritten-read")
    assert [f.line for f in found] == [line("one step", states)] and found[0].arrays[0] == "state[1]"


def whole(n, first, read, required=False):
    """States that are rows of one array, or leaves of their own."""
    state = [wb.zeros(N, requires_grad=True) for _ in range(n + 3)] if required else wb.zeros((n + 3, N))
    start, loss = leaf(1.0, 0.5, 0.25, 2.0), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(pull, dim=N, inputs=[start], outputs=[state[first]])
        for k in range(first, n):
            wb.launch(pull, dim=N, inputs=[state[k]], outputs=[state[k + 1]])
        wb.launch(pull, dim=N, inputs=[start], outputs=[state[0]])
        wb.launch(total, dim=N, inputs=[state[read]], outputs=[loss])
    return tape.diagnose(loss)


@pytest.mark.parametrize("required", [False, True])
def test_of_a_list_the_item_nearest_to_the_one_read_is_named_of_rows_and_of_leaves_too(required):
    (found,) = whole(5, 2, 6, required).named("unwritten-read")
    assert found.arrays == ("state[6]", "state[5]") and found.line == line("inputs=[state[read]]", whole)
    (found,) = whole(5, 3, 2, required).named("unwritten-read")
    assert found.arrays == ("state[2]", "state[3]")
    assert whole(5, 2, 5, required).named("unwritten-read") == []


def test_a_first_state_of_zeros_that_has_a_gradient_is_nobodys_to_write():
    assert whole(5, 0, 5, True).named("unwritten-read") == []


def test_targets_coefficients_and_first_states_are_nobodys_to_write():
    target, start = wb.zeros(N), [wb.zeros(N) for _ in range(4)]
    k, loss = leaf(1.0, 2.0, 3.0, 4.0), wb.zeros(1)

    @wb.kernel
    def driven(x: wb.array[float], k: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        y[i] = x[i] + 0.1 * k[i] * (1.0 - x[i])

    @wb.kernel
    def miss(x: wb.array[float], t: wb.array[float], loss: wb.array[float]):
        i = wb.tid()
        wb.atomic_add(loss, 0, (x[i] - t[i]) * (x[i] - t[i]))

    with wb.Tape() as tape:
        for n in range(3):
            wb.launch(driven, dim=N, inputs=[start[n], k], outputs=[start[n + 1]])
        wb.launch(miss, dim=N, inputs=[start[3], target], outputs=[loss])
    tape.backward(loss)
    assert tape.diagnose().problems == []


def test_boundaries_written_by_a_second_launch_overwrite_nothing():
    @wb.kernel
    def inside(a: wb.array[float], b: wb.array[float]):
        i = wb.tid() + 1
        b[i] = a[i - 1] * a[i + 1]

    @wb.kernel
    def rim(b: wb.array[float]):
        i = wb.tid()
        if i == 0 or i == 3:
            b[i] = 0.0

    a, b, loss = leaf(1.0, 0.5, 0.25, 2.0), wb.zeros(N), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(inside, dim=N - 2, inputs=[a], outputs=[b])
        wb.launch(rim, dim=N, inputs=[], outputs=[b])
        wb.launch(total, dim=N, inputs=[b], outputs=[loss])
    tape.backward(loss)
    assert tape.diagnose().problems == []


@wb.kernel
def pull_and_energy(x: wb.array[float], f: wb.array[float], e: wb.array[float]):
    i = wb.tid()
    f[i] = -3.0 * x[i] * x[i]
    e[i] = x[i] * x[i] * x[i]


@wb.kernel
def log(x: wb.array[float], k: int, e: wb.array[float]):
    wb.atomic_add(e, k, x[wb.tid()] * x[wb.tid()])


def test_energies_that_are_kept_for_a_plot_are_no_mistake():
    s = system(e=wb.zeros(N), logged=wb.zeros(7), now=wb.zeros(1))

    def step(s, k):
        wb.launch(integrate, dim=N, inputs=[s.x, s.v, s.f, DT])
        wb.launch(pull_and_energy, dim=N, inputs=[s.x], outputs=[s.f, s.e])
        wb.launch(log, dim=N, inputs=[s.x, k], outputs=[s.logged])
        s.now.zero_()
        wb.launch(log, dim=N, inputs=[s.x, 0], outputs=[s.now])

    with wb.Tape() as tape:
        wb.launch(pull_and_energy, dim=N, inputs=[s.x], outputs=[s.f, s.e])
        for k in range(7):
            step(s, k)
        wb.launch(total, dim=N, inputs=[s.x], outputs=[s.loss])
    tape.backward(s.loss)
    assert tape.diagnose().problems == []

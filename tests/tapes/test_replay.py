"""`tape.replay`: the program once more on new inputs, bit for bit what running it anew gives, or refused."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import GradientError
from workbench.tapes.replay import keep_all

pytestmark = [pytest.mark.filterwarnings("ignore:.*overw:UserWarning"), pytest.mark.usefixtures("backend")]


@wb.kernel
def square(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i] + wb.sin(x[i])


@wb.kernel
def in_place(x: wb.array(dtype=float)):
    i = wb.tid()
    x[i] = x[i] * x[i] - 0.5


@wb.kernel
def add_up(x: wb.array(dtype=float), total: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(total, 0, x[i])


@wb.kernel
def maybe(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    if x[i] > 0.0:
        y[i] = x[i] * 3.0


@wb.kernel
def next_row(x: wb.array2d(dtype=float), t: int):
    i = wb.tid()
    x[t + 1, i] = x[t, i] * 0.9 + wb.cos(x[t, i])


@wb.kernel
def turn(p: wb.array(dtype=wb.vec3), q: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    q[i] = wb.cross(p[i], wb.vec3(1.0, 2.0, 3.0)) * wb.length(p[i])


@wb.struct
class Ball:
    x: wb.vec3
    m: float


@wb.kernel
def push(b: wb.array(dtype=Ball), out: wb.array(dtype=float)):
    i = wb.tid()
    out[i] = wb.dot(b[i].x, b[i].x) * b[i].m
    b[i].m = b[i].m * 2.0


@wb.kernel
def scaled(x: wb.array(dtype=float), c: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] + c[i]


@wb.kernel
def times(x: wb.array(dtype=float), s: float, y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * s


def f32(values, **rest) -> wb.array:
    return wb.array(np.array(values, np.float32), **rest)


A, B = np.linspace(-1.0, 2.0, 7).astype(np.float32), np.linspace(3.0, -0.5, 7).astype(np.float32)


def same_bits(got: wb.array, want: wb.array) -> None:
    one, two = got.numpy(), want.numpy()
    assert one.tobytes() == two.tobytes(), (one, two)


def chain(values, keep="all"):
    """square, in place, a copy, host writes, a sum by atomics."""
    x, y, z = f32(values, requires_grad=True), wb.zeros(7), wb.zeros(7)
    total = wb.zeros(1)
    with wb.Tape(keep=keep) as tape:
        wb.launch(square, 7, inputs=[x], outputs=[y])
        wb.launch(in_place, 7, inputs=[y])
        wb.copy(z, y)
        y[0:2].fill_(0.25)
        z[5:].assign(np.array([1.5, -1.5], np.float32))
        wb.launch(square, 7, inputs=[z], outputs=[y])
        wb.launch(add_up, 7, inputs=[y], outputs=[total])
    return tape, x, y, z, total


def test_a_chain_with_host_writes_replays_to_what_a_new_run_gives_bit_for_bit():
    tape, *arrays = chain(A)
    held = [a.numpy().copy() for a in arrays]
    again = tape.replay({arrays[0]: B})
    _, *anew = chain(B)
    for old, new in zip(arrays, anew, strict=True):
        if old is not arrays[0]:
            same_bits(again[old], new)
    assert again.of(arrays[0]).numpy().tobytes() == B.tobytes()
    for a, before in zip(arrays, held, strict=True):
        assert a.numpy().tobytes() == before.tobytes()


def test_a_replay_without_inputs_repeats_the_run_and_its_gradient():
    tape, x, y, z, total = chain(A)
    tape.backward(total)
    want = x.grad.numpy().copy()
    again = tape.replay()
    same_bits(again[total], total)
    again.backward(again[total])
    assert again[x].grad.numpy().tobytes() == want.tobytes()
    assert x.grad.numpy().tobytes() == want.tobytes()
    assert again[x] is not x and again[x].allocation is not x.allocation


def test_the_gradient_of_a_replay_is_that_of_a_new_run():
    tape, x, *_, total = chain(A)
    again = tape.replay({x: B})
    again.backward(again[total])
    new, u, *_, other = chain(B)
    new.backward(other)
    same_bits(again[x].grad, u.grad)


def test_a_replay_can_be_replayed():
    tape, x, y, *_ = chain(A)
    once = tape.replay({x: B})
    twice = once.replay({once[x]: A})
    same_bits(twice[once[y]], y)


def test_ping_pong_starts_from_what_the_tape_started_from():
    def run(values):
        a, b = f32(values, requires_grad=True), wb.zeros(7)
        with wb.Tape(keep="all") as tape:
            for _ in range(3):
                wb.launch(square, 7, inputs=[a], outputs=[b])
                wb.launch(square, 7, inputs=[b], outputs=[a])
        return tape, a, b

    tape, a, b = run(A * 0.5)
    same_bits(tape.replay()[a], a)
    again = tape.replay({a: B * 0.25})
    _, c, d = run(B * 0.25)
    same_bits(again[a], c)
    same_bits(again[b], d)


def test_vectors_and_views_replay():
    def run(values):
        p, q = wb.array(values, dtype=wb.vec3, requires_grad=True), wb.zeros(4, dtype=wb.vec3)
        with wb.Tape(keep="all") as tape:
            wb.launch(turn, 4, inputs=[p], outputs=[q])
            wb.launch(turn, 2, inputs=[q[1:3]], outputs=[p[0:2]])
        return tape, p, q

    one, two = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(12, 0, -1, dtype=np.float32).reshape(4, 3)
    tape, p, q = run(one)
    again = tape.replay({p: two})
    _, r, s = run(two)
    same_bits(again[p], r)
    same_bits(again[q], s)
    same_bits(again[q[1:3]], s[1:3])


def test_arrays_of_structs_replay_and_their_fields_are_inputs():
    def run(masses):
        balls = wb.zeros(3, dtype=Ball)
        balls.field("x").assign(np.arange(9, dtype=np.float32).reshape(3, 3))
        balls.field("m").assign(np.array(masses, np.float32))
        balls.requires_grad = True
        out = wb.zeros(3)
        with wb.Tape(keep="all") as tape:
            wb.launch(push, 3, inputs=[balls], outputs=[out])
            wb.launch(push, 3, inputs=[balls], outputs=[out])
        return tape, balls, out

    tape, balls, out = run([1, 2, 3])
    again = tape.replay({balls.field("m"): np.array([4.0, 5.0, 6.0])})
    _, other, want = run([4, 5, 6])
    same_bits(again[out], want)
    same_bits(again[balls.field("m")], other.field("m"))
    with pytest.raises(GradientError, match=r"field\('x'\)") as caught:
        tape.replay({balls: np.zeros(3)})
    assert caught.value.slug == "replay-input"


def test_a_declared_scalar_is_an_input():
    s, x, y = wb.scalar(3.0, requires_grad=True), f32(A), wb.zeros(7)
    with wb.Tape(keep="all") as tape:
        wb.launch(times, 7, inputs=[x, s], outputs=[y])
    again = tape.replay({s: 5.0})
    np.testing.assert_array_equal(again[y].numpy(), A * np.float32(5))
    assert float(again[s].numpy()[0]) == 5.0


def test_lines_names_and_scopes_are_those_of_the_recorded_program():
    x, y = f32(A, requires_grad=True), wb.zeros(7)
    with wb.Tape(keep="all") as tape, tape.scope("step"):
        wb.launch(square, 7, inputs=[x], outputs=[y])
        y.assign(np.ones(7, np.float32))
    again = tape.replay()
    assert [e.where.line for e in again.events] == [e.where.line for e in tape.events]
    assert [e.label for e in again.events] == [e.label for e in tape.events]
    assert [(s.name, s.first, s.last) for s in again.scopes] == [("step", 0, 2)]
    assert {"x", "y"} <= set(again.names.noted.values())


# ---- keep="needed"


def test_a_tape_that_keeps_what_adjoints_need_replays_where_that_is_enough():
    x, y, z = f32(A, requires_grad=True), wb.zeros(7), wb.zeros(7)
    with wb.Tape() as tape:
        wb.launch(square, 7, inputs=[x], outputs=[y])
        wb.launch(in_place, 7, inputs=[x])
        wb.launch(square, 7, inputs=[y], outputs=[z])
    again = tape.replay({x: B})
    u, v, w = f32(B), wb.zeros(7), wb.zeros(7)
    wb.launch(square, 7, inputs=[u], outputs=[v])
    wb.launch(square, 7, inputs=[v], outputs=[w])
    same_bits(again[z], w)
    same_bits(tape.replay()[x], x)


def test_a_trajectory_in_the_rows_of_one_array_replays_without_keeping_more():
    def run(values):
        x = wb.zeros((6, 7), requires_grad=True)
        x[0].assign(values)
        with wb.Tape() as tape:
            for t in range(5):
                wb.launch(next_row, 7, inputs=[x, t])
        return tape, x

    tape, x = run(A)
    again = tape.replay({x[0]: B})
    same_bits(again[x], run(B)[1])


@pytest.mark.parametrize("kernel", [add_up, maybe])
def test_a_start_that_was_not_kept_is_refused_by_name_with_the_line_to_write(kernel):
    x, result = f32(A, requires_grad=True), wb.zeros(7)
    with wb.Tape() as tape:
        wb.launch(kernel, 7, inputs=[x], outputs=[result])
    with pytest.raises(GradientError, match=r"'result'(.|\n)*wb.Tape\(keep=\"all\"\)") as caught:
        tape.replay({x: B})
    assert caught.value.slug == "not-kept"


def test_a_constant_that_changed_after_the_tape_is_refused_or_known():
    x, c, y = f32(A, requires_grad=True), f32(B), wb.zeros(7)
    with wb.Tape() as tape:
        wb.launch(scaled, 7, inputs=[x, c], outputs=[y])
    c.fill_(100.0)
    with pytest.raises(GradientError, match="'c'"):
        tape.replay()
    with wb.Tape(keep="all") as tape:
        wb.launch(scaled, 7, inputs=[x, c], outputs=[y])
    c.fill_(7.0)
    np.testing.assert_array_equal(tape.replay()[y].numpy(), A + np.float32(100))


# ---- refusals


@pytest.mark.host_memory
def test_a_change_through_raw_memory_is_refused():
    x, c, y = f32(A, requires_grad=True), f32(B), wb.zeros(7)
    with wb.Tape(keep="all") as tape:
        wb.launch(scaled, 7, inputs=[x, c], outputs=[y])
    raw = c.numpy()
    tape.replay()
    raw[3] = 50.0
    with pytest.raises(GradientError, match="'c'") as caught:
        tape.replay()
    assert caught.value.slug == "overwritten"


def test_an_unrecorded_launch_between_two_events_is_refused():
    x, c, y = f32(A, requires_grad=True), f32(B), wb.zeros(7)
    with wb.Tape(keep="all") as tape:
        wb.launch(scaled, 7, inputs=[x, c], outputs=[y])
        wb.launch(in_place, 7, inputs=[c], record_tape=False)
        wb.launch(scaled, 7, inputs=[x, c], outputs=[y])
    with pytest.raises(GradientError, match="'c'") as caught:
        tape.replay()
    assert caught.value.slug == "overwritten"


def test_a_tape_with_a_function_of_the_user_s_is_refused():
    x, y = f32(A, requires_grad=True), wb.zeros(7)
    with wb.Tape(keep="all") as tape:
        wb.launch(square, 7, inputs=[x], outputs=[y])
        tape.record_func(lambda: None, [y])
    with pytest.raises(GradientError) as caught:
        tape.replay()
    assert caught.value.slug == "replay-func"


@pytest.mark.parametrize(
    ("values", "slug"), [(np.zeros(6), "replay-input"), (3.0, "replay-input"), (["a"] * 7, "replay-input")]
)
def test_inputs_that_do_not_fit_are_refused(values, slug):
    tape, x, *_ = chain(A)
    with pytest.raises(GradientError) as caught:
        tape.replay({x: values})
    assert caught.value.slug == slug


def test_an_array_that_the_tape_never_met_is_refused():
    tape, *_ = chain(A)
    for ask in (lambda: tape.replay({wb.zeros(7): B}), lambda: tape.replay()[wb.zeros(7)]):
        with pytest.raises(GradientError) as caught:
            ask()
        assert caught.value.slug == "replay-array"


def test_a_replay_inside_an_open_tape_leaves_no_event_there():
    tape, x, *_ = chain(A)
    with wb.Tape() as mine:
        tape.replay({x: B})
    assert len(mine) == 0


@wb.kernel
def every_other(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[2 * i] = x[i] + x[i]


@wb.kernel
def backwards(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[6 - i] = x[i] + x[i]


@wb.kernel
def around_the_end(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i - 1] = x[i] + x[i]


@wb.kernel
def one_cell(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    y[3] = x[0] + x[0]


@wb.kernel
def below(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    if i > 0:
        y[i] = x[i] + x[i]


@wb.kernel
def diagonal(x: wb.array(dtype=float), y: wb.array2d(dtype=float)):
    i = wb.tid()
    y[i, i] = x[i] + x[i]


@wb.kernel
def per_row(x: wb.array(dtype=float), y: wb.array2d(dtype=float)):
    i = wb.tid()
    y[i, 0] = x[i] + x[i]


@pytest.mark.parametrize(
    ("kernel", "dim", "shape", "sure"),
    [
        (every_other, 4, 7, False),
        (backwards, 7, 7, True),
        (backwards, 6, 7, True),
        (one_cell, 1, 7, True),
        (below, 7, 7, True),
        (square, 7, 7, True),
        (square, 6, 7, True),
        (diagonal, 3, (3, 3), False),
        (per_row, 3, (3, 1), True),
        (per_row, 3, (3, 2), True),
        (around_the_end, 7, 7, False),
    ],
)
def test_what_a_launch_leaves_as_it_was_must_be_known_to_replay(kernel, dim, shape, sure):
    """A start that is not kept is refused unless the bytes that events touch are surely all written first."""
    start = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x, y = f32(A, requires_grad=True), f32(start)
    with wb.Tape() as tape:
        wb.launch(kernel, dim, inputs=[x], outputs=[y])
    if not sure:
        with pytest.raises(GradientError) as caught:
            tape.replay({x: B})
        assert caught.value.slug == "not-kept"
        return
    again, anew = tape.replay({x: B}), f32(start)
    wb.launch(kernel, dim, inputs=[f32(B)], outputs=[anew])
    same_bits(again[y], anew)


@wb.kernel
def added(x: wb.array[float], s: wb.array[float]):
    wb.atomic_add(s, 0, x[wb.tid()])


@pytest.mark.parametrize("clear", ["zero_", "fill_", "slice", "element", "assign", "copy"])
def test_what_was_cleared_before_sums_is_cleared_again(clear, backend):
    x, s, zero = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(1), wb.zeros(1)
    clearing = {
        "zero_": lambda: s.zero_(),
        "fill_": lambda: s.fill_(0.0),
        "slice": lambda: s[:1].fill_(0.0),
        "element": lambda: s.__setitem__(0, 0.0),
        "assign": lambda: s.assign([0.0]),
        "copy": lambda: wb.copy(s, zero),
    }
    with wb.Tape() as tape:
        clearing[clear]()
        wb.launch(added, 3, [x], [s])
    tape.backward(s)
    if clear in ("assign", "copy"):  # what they wrote is not known any more
        with pytest.raises(GradientError) as refused:
            tape.replay({x: np.array([2, 2, 3], np.float32)})
        assert refused.value.slug == "not-kept"
        return
    again = tape.replay({x: np.array([2, 2, 3], np.float32)})
    assert again[s].list() == [7.0] and again.replay()[again.of(s)].list() == [7.0]


def test_a_write_behind_the_tape_is_no_step_of_it_and_one_in_between_is_refused():
    x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        wb.utils.array_inner(x, x, out=y)
    x.assign([3.0, 4.0])
    assert tape.trust(y, x).radius > 0.1
    np.testing.assert_allclose(wb.hvp(tape, y, {x: np.ones(2, np.float32)})[x], 2.0, rtol=1e-6)
    with tape:
        wb.utils.array_inner(x, x, out=y)
    for ask in (lambda: tape.trust(y, x), lambda: tape.replay({x: x.numpy()})):
        with pytest.raises(wb.GradientError, match=r"changed by 'assign' between two(.|\n)*\[overwritten\]"):
            ask()


@pytest.mark.parametrize("wiped", [False, True])
def test_a_program_that_gives_other_numbers_when_it_runs_again_is_not_looked_at(wiped):
    """What differs is left in memory, or only in what the tape has kept of memory that it cleared afterwards."""
    calls = []

    @wb.custom_op
    def counted(x):
        calls.append(x)
        return x * (1.0 + 1e-5 * len(calls))

    @counted.vjp
    def back(x, y, adj):
        return adj

    x, z = f32([0.7, -1.3, 2.1], requires_grad=True), wb.zeros(3)
    with wb.Tape() as tape:
        y = counted(x)
        wb.launch(square, 3, [y, z])
        if wiped:
            y.zero_()
            z.zero_()
    with pytest.raises(wb.GradientError, match="holds other numbers when the recorded program runs again") as refused:
        keep_all(tape)
    assert refused.value.slug == "replay-differs"


def test_an_op_that_draws_random_numbers_runs_again_as_another_program():
    rng = np.random.default_rng(0)

    @wb.custom_op
    def noisy(x):
        return x * rng.normal(size=x.shape).astype(x.dtype)

    @noisy.vjp
    def back(x, y, adj):
        return adj * y / x

    x, loss = f32([0.7, -1.3, 2.1], requires_grad=True), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        y = noisy(x)
        wb.launch(add_up, 3, [y, loss])
    tape.backward(loss)
    np.testing.assert_allclose(x.grad.numpy(), y.numpy() / x.numpy(), rtol=1e-6)  # the walk asks for no other numbers
    for again in (tape.replay, lambda: tape.replay({x: np.ones(3)}), lambda: tape.trust(loss, x)):
        with pytest.raises(wb.GradientError, match=r"noisy returned something else(.|\n)*y = noisy\(x\)"):
            again()

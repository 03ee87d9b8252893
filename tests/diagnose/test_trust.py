"""`trust`: kind, line and radius of programs whose answer is known in closed form, and no alarm for healthy ones."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS
from tests.support.trust_fresh import FRESH
from tests.support.trust_programs import CASES, bouncing, integrated, many, spring, staircase
from workbench.diagnose import trust as trusting
from workbench.diagnose.loop_turns import _TurnCounter
from workbench.display import ProgressBar
from workbench.kernels.passes.decisions import with_decisions
from workbench.tapes.private_copies import Launch, flat_program


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


ALL = CASES | FRESH


def asked(name: str):
    case = ALL[name]
    return case, wb.trust(case.loss, np.array(case.start, np.float32))


@pytest.mark.parametrize("name", ALL)
def test_kind_line_and_radius(name):
    case, found = asked(name)
    assert found.kind == case.kind, found
    assert bool(found) is (case.kind == "smooth")
    if case.truth == math.inf:
        assert found.radius == math.inf
    elif case.truth is not None:
        assert case.truth / 2 < found.radius < case.truth * 2, found
    if case.line:
        assert case.line in found.line.text, found
    if case.growth is not None:
        assert abs(math.log(found.growth) / math.log(case.growth) - 1) < 0.2, found
        assert abs(found.horizon * math.log(found.growth) - math.log(2**23)) < 1e-6
    assert found.replays <= 60


def test_a_jump_is_named_with_its_thread_its_step_and_its_size():
    found = asked("staircase")[1]
    assert found.thread == (0,) and abs(found.size - 1.0) < 1e-6
    case, found = asked("bounce")
    assert found.launch == f"#{found.step + 1} fall"  # behind the copy of the start
    assert 0.4 < 0.01 * (found.step + 1) < 0.5  # it falls for sqrt(2 / g) = 0.45


def test_nothing_of_the_users_changes_and_a_tape_may_keep_little():
    x = wb.array([0.6], requires_grad=True)
    out = wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(staircase, 1, [x, out])
    before = x.numpy().copy(), out.numpy().copy(), x.allocation.version
    found = tape.trust(out)
    assert found.kind == "jump" and (x.numpy(), out.numpy(), x.allocation.version) == before


def test_it_says_so_in_one_sentence_and_draws():
    found = asked("bounce")[1]
    assert "if place < 0.0:" in found.sentence and "time of impact" in found.sentence
    assert found.sentence.startswith("exact; good for steps up to 0.01")
    axes = found.plot()
    assert [line.get_label() for line in axes.lines[:3]] == ["along the gradient", "against it", "exact slope"]
    np.testing.assert_allclose(axes.lines[2].get_ydata(), found.slope)
    assert found._repr_png_().startswith(b"\x89PNG")
    unseen = asked("rank deficient")[1].unseen["x"]
    np.testing.assert_allclose(abs(unseen), [0.5**0.5, 0.5**0.5, 0], atol=1e-5)
    assert unseen[0] * unseen[1] < 0


def test_samples_are_losses_of_the_program():
    case, found = asked("squares")
    steps, losses = found.samples
    g = 2 * np.array(case.start)
    expected = [np.sum((np.array(case.start) + h * g / np.linalg.norm(g)) ** 2) for h in steps]
    np.testing.assert_allclose(losses, expected, rtol=1e-12)


def test_it_refuses_what_has_no_line():
    x, out = wb.array([0.0], requires_grad=True), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        wb.launch(roots, 1, [x, out])
    with pytest.raises(wb.GradientError, match="not finite"):
        tape.trust(out, x)
    with pytest.raises(wb.GradientError, match="neither read nor written"):
        tape.trust(wb.zeros(1), x)
    two = wb.zeros(2)
    with tape:
        wb.launch(roots, 1, [x, two])
    with pytest.raises(wb.GradientError, match="a loss is one number"):
        tape.trust(two, x)
    with pytest.raises(wb.GradientError, match="no array of floats to move"):
        tape.trust(out, x[:0])


@wb.kernel
def roots(x: wb.array[float], out: wb.array[float]):
    out[0] = wb.sqrt(x[0])


@wb.kernel
def deciding(x: wb.array[wb.vec2], n: int, out: wb.array2d[float]):
    i, j = wb.tid()
    a, b = x[i][0], x[i][1]
    for _ in range(n):
        if a > b:
            a = a - wb.min(0.25, wb.abs(b))
        b = wb.clamp(b + 0.1, -0.5, 0.5)
    c = wb.max(x[i], wb.vec2(0.1, -0.1))
    while a > 0.5:
        a = a - 0.25
    out[i, j] = a + wb.floor(b * 3.0) + float(int(10.0 * a)) + wb.mod(a, 0.3) + c[0] + wb.sign(b)


def recorded(x: np.ndarray) -> np.ndarray:
    program = deciding.program()
    made = flat_program(program, with_decisions(program.function))
    record = wb.zeros(2 * len(x), dtype=wb.uint64)
    Launch(made, (len(x), 2), [wb.array(x, dtype=wb.vec2), 5, wb.zeros((len(x), 2)), record]).run(False)
    return record.numpy().reshape(len(x), 2)


def test_the_record_of_decisions_tells_threads_that_decide_otherwise():
    x = np.array([[1.03, 0.21], [0.33, 0.71], [-0.41, -0.23]], np.float32)
    base = recorded(x)
    assert (base[:, 0] == base[:, 1]).all() and len(set(base[:, 0])) == 3
    near = recorded(x + np.float32(1e-6))
    np.testing.assert_array_equal(near, base)
    moved = x.copy()
    moved[1, 0] = 0.71
    other = recorded(moved)
    assert (other[[0, 2]] == base[[0, 2]]).all() and (other[1] != base[1]).all()


def test_a_loss_of_many_parameters_and_of_several_arrays():
    x, y, out = wb.array([0.5, 0.2], requires_grad=True), wb.array([1.0, 3.0], requires_grad=True), wb.zeros(1)
    with wb.Tape(keep="all") as tape:
        wb.launch(product, 2, [x, y, out])
    found = tape.trust(out, [x, y])
    assert found.kind == "smooth"
    np.testing.assert_allclose(found.slope, np.sqrt(0.5**2 + 0.2**2 + 1 + 9), rtol=1e-6)
    assert abs(tape.trust(out, x).slope - np.sqrt(10)) < 1e-5 and tape.trust(out, x).radius == math.inf


@wb.kernel
def product(x: wb.array[float], y: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, x[i] * y[i])


def test_healthy_programs_of_other_sizes_raise_no_alarm():
    rng = np.random.default_rng(0)
    for steps in (1, 7, 60):
        found = wb.trust(integrated(spring, steps, 0.03, 3), rng.uniform(-1, 1, 3).astype(np.float32))
        assert found.kind == "smooth", found
    found = wb.trust(bouncing(20, 0.01), np.array([1.0], np.float32))  # it would touch the floor from 0.206 on
    assert found.kind == "kink" and 0.7 < found.radius < 0.9
    assert wb.trust(bouncing(20, 0.01), np.array([0.3], np.float32)).kind == "kink"
    assert wb.trust(bouncing(2, 0.01), np.array([1.0], np.float32)).kind == "smooth"


@wb.kernel
def rooted(x: wb.array[float], out: wb.array[float]):
    out[0] = x[0] * wb.sqrt(x[1]) + x[2]


def test_a_loss_that_is_not_finite_has_no_line_to_follow():
    def loss(x):
        out = wb.zeros(1)
        wb.launch(rooted, 1, [x, out])
        return out

    for start, what in (([1.0, 0.0, 1.0], "gradient"), ([1.0, 1.0, math.inf], "loss")):
        with pytest.raises(wb.GradientError, match=f"the {what} is not finite"):
            wb.trust(loss, np.array(start, np.float32))


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("keep", ["all", "needed"])
def test_an_array_that_the_tape_does_not_follow_is_refused_by_name(marked, keep):
    x, other, y = wb.array([0.5], requires_grad=True), wb.array([0.5], requires_grad=marked), wb.zeros(1)

    @wb.kernel
    def squared(x: wb.array[float], y: wb.array[float]):
        y[0] = x[0] * x[0]

    with wb.Tape(keep=keep) as tape:
        wb.launch(squared, 1, [x], [y])
    with pytest.raises(wb.GradientError, match=r"(?s)on no active path.*\[not-active\]"):
        tape.trust(y, other)


@wb.kernel
def valley(x: wb.array[float], out: wb.array[float]):
    out[0] = x[0] + wb.max(x[1] - 0.01, 0.0) * 3.0 + 0.01 * x[1]


def test_another_direction_that_parts_earlier_is_said():
    """Along x[0], which has nearly all of the slope, it is straight; x[1] bends 0.01 away."""
    found = wb.trust(many(valley, 1), np.array([1.0, 0.0], np.float32))
    assert found.kind == "smooth" and found.radius == math.inf
    assert 0.005 < min(found.others.values()) < 0.05 and "x[0] alone" not in found.others
    first = min(found.others, key=found.others.get)
    assert f"Along {first} it parts at {found.others[first]:.2g} already." in found.sentence
    assert found.replays <= 60
    assert not asked("straight")[1].others and "Along" not in asked("straight")[1].sentence


@pytest.mark.host_memory
def test_an_executor_gives_the_same_answer():
    for name in ("staircase", "squares", "billiards, 6 collisions"):
        case, here = asked(name)
        with ThreadPoolExecutor(2) as pool:
            there = wb.trust(case.loss, np.array(case.start, np.float32), executor=pool)
        assert (there.kind, there.radius, there.line, there.others) == (here.kind, here.radius, here.line, here.others)
        assert there.replays <= 60 and set(zip(*here.samples, strict=True)) <= set(zip(*there.samples, strict=True))


def test_at_a_kink_and_at_a_minimum_it_says_so():
    kink = wb.trust(many(bend, 1), np.array([0.0], np.float32))
    assert kink.kind == "kink" and kink.radius < 1e-6 and "wb.abs" in kink.line.text
    bottom = wb.trust(CASES["squares"].loss, np.zeros(2, np.float32))
    assert bottom.kind == "smooth" and "exact, and zero" in bottom.sentence


@wb.kernel
def bend(x: wb.array[float], out: wb.array[float]):
    out[0] = wb.abs(x[0])


def test_a_descent_may_shorten_its_steps_to_the_radius():
    """Every step of the radius changes the loss as predicted, though the contacts of three balls lie close behind."""
    case, run = CASES["three balls"], wb.value_and_grad(CASES["three balls"].loss, trust=True)
    x = np.array(case.start, np.float32)
    value, g = run(x)
    for _ in range(3):
        slope, step = np.linalg.norm(g), 0.9 * run.trust.radius
        assert run.trust.radius == wb.trust(case.loss, x).radius
        x = x - (step * g / slope).astype(np.float32)
        before, (value, g) = value, run(x)
        assert abs(value - (before - step * slope)) < 0.11 * step * slope + 1e-5
    assert wb.value_and_grad(case.loss).trust is None
    assert pickle.loads(pickle.dumps(wb.value_and_grad(np_loss, trust=True))).looks


def np_loss(x):
    return CASES["squares"].loss(x)


@wb.kernel
def quivering(x: wb.array[float], out: wb.array[float]):
    z = x[0]
    t = 0.0
    while t < 50.0:
        z = 3.6 * z * (1.0 - z)
        t = t + 0.03
    out[0] = z


def searched(loss, start) -> trusting._Search:
    x = wb.array(np.array(start, np.float32), requires_grad=True)
    with wb.Tape(keep="all") as tape:
        out = loss(x)
    return trusting._Search(tape, out, [x], ProgressBar(60, "trust", False))


@pytest.mark.parametrize("name", ["lorenz", "two pendulums, long", "logistic map in one kernel"])
def test_a_long_loop_is_not_interpreted_and_its_growth_is_that_of_its_turns(name, monkeypatch):
    spent, trace = [0], _TurnCounter.trace

    def counted(self, thread, stmt, values):
        spent[0] += self.costs[stmt]
        trace(self, thread, stmt, values)

    monkeypatch.setattr(_TurnCounter, "trace", counted)
    search = searched(ALL[name].loss, ALL[name].start)
    (quick,) = search._growths()
    assert spent[0] <= 1.1 * trusting.TURNS
    (slow,) = search._growths(10 * trusting.MANY)
    assert quick.where == slow.where and abs(math.log(quick.rate) / math.log(slow.rate) - 1) < 0.1


def test_the_turns_of_a_while_are_counted_as_far_as_their_precision_goes():
    """The adjoint of 1,667 turns is 1e135: float32 holds the last five hundred of them."""
    found = wb.trust(many(quivering, 1), np.array([0.31], np.float32))
    assert found.kind == "chaos" and "while t < 50.0:" in found.line.text
    assert abs(math.log(found.growth) / (math.log(found.slope) / 1667) - 1) < 0.2


def test_ties_that_two_launches_take_to_different_sides_are_no_gradient_to_follow():
    @wb.kernel
    def above(x: wb.array[wb.float64], out: wb.array[wb.float64]):
        wb.atomic_add(out, 0, wb.max(x[wb.tid()], 0.0))

    @wb.kernel
    def below(x: wb.array[wb.float64], out: wb.array[wb.float64]):
        wb.atomic_add(out, 0, wb.min(x[wb.tid()], 0.0))

    for start, kind in ((0.0, "mismatch"), (0.5, "smooth")):
        x = wb.array([start], dtype=wb.float64, requires_grad=True)
        out = wb.zeros(1, dtype=wb.float64)
        with wb.Tape(keep="all") as tape:
            wb.launch(above, 1, [x, out])
            wb.launch(below, 1, [x, out])
        found = tape.trust(out, x)
        assert found.kind == kind and bool(found) is (kind == "smooth")
        assert ("at no step length" in found.sentence) is (kind == "mismatch")

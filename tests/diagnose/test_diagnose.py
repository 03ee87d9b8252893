"""What `tape.diagnose()` finds, what it leaves alone, and what `tape.memory()` adds up."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from corpus import load

import workbench as wb
from workbench.diagnose import Finding, Findings

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def total(y: wb.array[float], loss: wb.array[float]):
    wb.atomic_add(loss, 0, y[wb.tid()])


@wb.kernel
def root(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.sqrt(x[i])


@wb.kernel
def limited(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    v = 3.0 * x[i]
    y[i] = wb.clamp(v, 0.0, 1.0)


@wb.kernel
def rounded(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    cell = int(x[i])
    y[i] = 2.0 * float(cell)


@wb.kernel
def branching(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if x[i] > 100.0:
        y[i] = x[i] * x[i]


@wb.kernel
def choosing(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    v = 0.0
    if x[i] > 100.0:
        v = x[i] * x[i]
    y[i] = v


@wb.kernel
def floor_at(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.max(x[i], 50.0)


@wb.kernel
def indices(x: wb.array[float], k: wb.array[int]):
    i = wb.tid()
    k[i] = int(x[i])


@wb.kernel
def gathered(k: wb.array[int], table: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = table[k[i]] * float(k[i])


@wb.kernel
def guarded(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.where(x[i] > 0.0, wb.sqrt(x[i]), 0.0) + wb.where(x[i] == 0.0, 0.0, 1.0 / x[i])


@wb.kernel
def times(x: wb.array[float], factor: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = factor * x[i]


def leaf(*values: float) -> wb.array:
    return wb.array(np.array(values, np.float32), dtype=float, requires_grad=True)


def through(kernel: wb.Kernel, *values: float) -> wb.Tape:
    """x -> kernel -> y -> sum, walked backwards."""
    x, y, loss = leaf(*values), wb.zeros(len(values), dtype=float), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=len(values), inputs=[x], outputs=[y])
        wb.launch(total, dim=len(values), inputs=[y], outputs=[loss])
    tape.backward(loss)
    return tape


def line_of(kernel: wb.Kernel, text: str) -> int:
    """The line of this file on which a kernel says `text`."""
    function = kernel.program().function
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith(f"def {function.name}("))
    return next(n + 1 for n, line in enumerate(lines) if n >= start and text in line)


def only(findings: Findings, slug: str) -> Finding:
    assert [f.slug for f in findings.problems] == [slug], findings
    return findings.problems[0]


# ---- gradients that end


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kernel", "values", "line", "reason"),
    [
        (limited, (3.0, 4.0), "clamp", "clamp"),
        (rounded, (3.0, 4.0), "int(", "cast to int32"),
        (branching, (3.0, 4.0), "if x", "no thread took the branch"),
        (choosing, (3.0, 4.0), "if x", "no thread took the branch"),
        (floor_at, (3.0, 4.0), "max", "`max` took the other operand"),
    ],
    ids=lambda v: getattr(v, "key", None),
)
def test_a_gradient_that_died_is_told_with_statement_and_reason(kernel, values, line, reason):
    found = only(through(kernel, *values).diagnose(), "died")
    assert found.severity == "warning"
    assert reason in found.sentence and found.sentence.startswith("the gradient of x is zero everywhere")
    assert found.where.line == line_of(kernel, line)
    assert found.launch.endswith(kernel.program().name)
    assert found.arrays == ("x",)


def test_a_gradient_that_reaches_one_thread_has_not_died():
    assert through(limited, 0.1, 4.0).diagnose().problems == []
    assert through(branching, 3.0, 101.0).diagnose().problems == []


def test_a_gradient_ends_in_an_array_of_integers():
    x, k, y = leaf(0.0, 1.0), wb.zeros(2, dtype=int), wb.zeros(2, dtype=float)
    table = wb.array([2.0, 3.0], dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(indices, dim=2, inputs=[x], outputs=[k])
        wb.launch(gathered, dim=2, inputs=[k, table], outputs=[y])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    found = only(tape.diagnose(), "died")
    assert found.arrays == ("x",) and "integer array k" in found.sentence


def test_the_launch_where_a_gradient_died_is_the_first_of_the_reverse_pass():
    x, h, k, y = leaf(3.0, 4.0), *(wb.zeros(2, dtype=float) for _ in range(3))
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[h])
        wb.launch(limited, dim=2, inputs=[h], outputs=[k])
        wb.launch(square, dim=2, inputs=[k], outputs=[y])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    assert only(tape.diagnose(), "died").launch == "#1 limited"


def test_what_the_seed_does_not_depend_on_is_no_problem_but_is_mentioned():
    x, other, y, z = leaf(1.0, 2.0), leaf(1.0, 2.0), wb.zeros(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
        wb.launch(square, dim=2, inputs=[other], outputs=[z])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    found = tape.diagnose()
    assert found.problems == []
    assert [f.arrays for f in found.named("not-on-path")] == [("other",)]


def test_a_seed_with_no_path_to_any_leaf_is_told():
    x, c, y, z = leaf(1.0, 2.0), wb.ones(2, dtype=float), wb.zeros(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
        wb.launch(square, dim=2, inputs=[c], outputs=[z])
    with pytest.warns(UserWarning, match="every gradient is zero"):
        tape.backward(grads={z: wb.ones(2, dtype=float)})
    found = only(tape.diagnose(), "not-on-path")
    assert found.severity == "warning" and found.arrays == ("x",) and "does not depend on it" in found.sentence


def test_a_declared_scalar_is_a_leaf_like_any_other():
    factor, x, y = wb.scalar(2.0, requires_grad=True), wb.ones(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(times, dim=2, inputs=[x, factor], outputs=[y])
        wb.launch(limited, dim=2, inputs=[y], outputs=[x])
    assert tape.diagnose(grads={y: wb.ones(2, dtype=float)}).problems == []
    found = only(tape.diagnose(grads={x: wb.ones(2, dtype=float)}), "died")
    assert found.arrays == ("factor",) and "clamp" in found.sentence


def test_a_tape_without_any_leaf_is_told():
    x, loss = wb.array([1.0, 2.0], dtype=float), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(total, dim=2, inputs=[x], outputs=[loss])
    assert "requires_grad" in only(tape.diagnose(), "no-leaf").fix


def test_a_large_launch_is_named_although_its_statements_are_not_looked_at():
    x, y = leaf(*[3.0] * 60_000), wb.zeros(60_000, dtype=float)
    if wb.config.backend == "numpy":
        x, y = x[:3], y[:3]
    with wb.Tape() as tape:
        wb.launch(limited, dim=x.shape[0], inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.ones(x.shape[0], dtype=float)})
    assert only(tape.diagnose(), "died").launch == "#0 limited"


# ---- numbers that are not finite


def test_the_first_nan_of_the_forward_pass_names_its_statement_and_thread():
    found = through(root, 4.0, 1.0, -1.0).diagnose().named("not-finite")[0]
    assert "in thread 2, sqrt(-1) = nan" in found.sentence
    assert found.where.line == line_of(root, "sqrt")
    assert found.severity == "warning" and found.fix


def test_an_infinity_that_is_born_in_the_reverse_pass_names_its_statement():
    with pytest.warns(UserWarning, match="slope of `sqrt` at 0"):
        tape = through(root, 4.0, 0.0)
    found = only(tape.diagnose(), "adjoint-not-finite")
    assert "in thread 1" in found.sentence and "= inf" in found.sentence and "`sqrt`" in found.sentence
    assert found.where.line == line_of(root, "sqrt")


@wb.kernel
def powers(x: wb.array[float], turns: int, y: wb.array[float]):
    i = wb.tid()
    v = x[i]
    for _ in range(turns):
        v = v * v
    y[i] = v + 1.0


def test_an_overflow_in_a_loop_names_the_turn_that_overflowed():
    x, y = leaf(1.0, 10.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(powers, dim=2, inputs=[x, 8], outputs=[y])
    found = tape.diagnose(grads={y: wb.ones(2, dtype=float)})
    assert [f.slug for f in found.problems] == ["not-finite"], "the adjoint of the turn starts from the same overflow"
    for f in found.problems:
        assert "in thread 1, 1e+32 * 1e+32 = inf" in f.sentence
        assert f.where.line == line_of(powers, "v * v")


def test_what_a_guard_throws_away_is_no_finding():
    assert through(guarded, 4.0, 0.0, 2.0).diagnose().problems == []


def test_a_nan_that_came_in_is_traced_to_its_array():
    found = through(square, 1.0, float("nan")).diagnose().named("not-finite")
    assert len(found) == 1 and "came in with x" in found[0].sentence


def test_the_first_nan_is_found_behind_launches_that_only_pass_it_on():
    x, h, y = leaf(1.0, -1.0), wb.zeros(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(root, dim=2, inputs=[x], outputs=[h])
        for _ in range(3):
            wb.launch(square, dim=2, inputs=[h], outputs=[y])
            wb.launch(square, dim=2, inputs=[y], outputs=[h])
    found = tape.diagnose().named("not-finite")
    assert [f.launch for f in found] == ["#0 root"]


def test_a_nan_from_the_host_is_told_with_the_call_that_wrote_it():
    x, y = leaf(1.0, 2.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        x.fill_(float("nan"))
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
    (found,) = tape.diagnose(grads={y: wb.ones(2, dtype=float)}).named("not-finite")
    assert found.launch == "#0 fill_" and "in x, is born here, by `fill_`" in found.sentence


def test_a_nan_in_a_value_that_nobody_kept_is_found_all_the_same():
    x, h, y = leaf(1.0, -1.0), wb.zeros(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(root, dim=2, inputs=[x], outputs=[h])
        wb.launch(times, dim=2, inputs=[h, 2.0], outputs=[y])  # linear: h is not kept
        wb.launch(times, dim=2, inputs=[y, 2.0], outputs=[h])
    (found,) = tape.diagnose().named("not-finite")
    assert found.launch == "#0 root" and "in h, is born here: in thread 1" in found.sentence


def test_a_seed_that_is_not_finite_is_the_first_thing_wrong():
    x, y = leaf(1.0, 2.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.array([1.0, float("inf")], dtype=float)})
    assert "the seed of y is not finite" in only(tape.diagnose(), "adjoint-not-finite").sentence


# ---- seeds, refusals, order of calls


def test_a_seed_of_another_shape_than_the_objective_is_a_finding():
    x, y = leaf(1.0, 2.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
    found = tape.diagnose(grads={y: wb.ones(3, dtype=float)})
    assert only(found, "seed-shape").severity == "error"


def test_a_seed_of_zeros_is_told():
    x, y = leaf(1.0, 2.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
    assert only(tape.diagnose(grads={y: wb.zeros(2, dtype=float)}), "zero-seed")


def test_a_gradient_read_before_backward_is_told_whenever_one_asks():
    x, loss = leaf(1.0, 2.0), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(total, dim=2, inputs=[x], outputs=[loss])
    assert tape.diagnose().problems == []
    x.grad.numpy()
    assert "x.grad was read" in only(tape.diagnose(), "read-before-backward").sentence
    tape.backward(loss)
    assert "x.grad was read before" in only(tape.diagnose(), "read-before-backward").sentence


def test_a_race_is_an_error_even_before_backward():
    @wb.kernel
    def neighbours(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        y[i] = x[1 - i] * x[1 - i]
        x[i] = y[i]

    x, y = leaf(1.0, 2.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(neighbours, dim=2, inputs=[x], outputs=[y])
    assert only(tape.diagnose(), "race").severity == "error"
    assert [f.slug for f in tape.diagnose(grads={y: wb.ones(2, dtype=float)}).problems] == ["race"]


def test_a_change_behind_the_tape_is_an_error():
    x, y = leaf(1.0, 2.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
    x.assign([5.0, 5.0])
    found = only(tape.diagnose(), "overwritten")
    assert found.severity == "error" and found.fix


# ---- rules of one's own, cancellation, growth


@wb.func
def cube(a: float):
    return a * a * a


@wb.func_grad(cube)
def cube_grad(a: float, adj_ret: float):
    wb.adjoint[a] += 2.0 * a * a * adj_ret


@wb.func
def fourth(a: float):
    return a * a * a * a


@wb.func_grad(fourth)
def fourth_grad(a: float, adj_ret: float):
    wb.adjoint[a] += 4.0 * a * a * a * adj_ret


@wb.kernel
def cubed(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 5.0 * cube(x[i])


@wb.kernel
def fourths(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 5.0 * fourth(x[i])


def test_a_custom_rule_that_is_not_the_derivative_is_told_at_the_call():
    found = only(through(cubed, 1.0).diagnose(), "custom-rule")
    assert "'cube'" in found.sentence and "given is 0.667 times the exact" in found.sentence
    assert "at a=1 it gives 2, the derivative is 3" in found.sentence and "adjoint[a] +=" in found.fix
    assert found.where.line == line_of(cubed, "cube(x[i])")


def test_a_custom_rule_that_is_the_derivative_is_left_alone():
    assert through(fourths, 1.0, 2.0).diagnose().problems == []


@wb.kernel
def add_times(x: wb.array[float], factor: float, y: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(y, i, factor * x[i])


@pytest.mark.parametrize(("second", "slugs"), [(-1e6, ["cancel"]), (1e6, []), (-0.5e6, [])])
def test_contributions_that_cancel_to_rounding_are_told(second: float, slugs: list[str]):
    x, y = leaf(1.0, 2.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(add_times, dim=2, inputs=[x, 1e6], outputs=[y])
        wb.launch(add_times, dim=2, inputs=[x, 0.25], outputs=[y])
        wb.launch(add_times, dim=2, inputs=[x, second], outputs=[y])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    assert [f.slug for f in tape.diagnose().problems] == slugs


@pytest.mark.parametrize(("factor", "slugs"), [(4.0, ["growing"]), (1.1, []), (0.5, [])])
def test_an_adjoint_that_grows_at_every_step_is_told(factor: float, slugs: list[str]):
    state = [leaf(1.0, 2.0), *(wb.zeros(2, dtype=float) for _ in range(20))]
    with wb.Tape() as tape:
        for a, b in itertools.pairwise(state):
            wb.launch(times, dim=2, inputs=[a, factor], outputs=[b])
    tape.backward(grads={state[-1]: wb.ones(2, dtype=float)})
    found = tape.diagnose()
    assert [f.slug for f in found.problems] == slugs
    assert all("a factor of 4 a step" in f.sentence for f in found.problems)


@wb.kernel
def contact(x: wb.array[float], wall: float, f: wb.array[float]):
    i = wb.tid()
    f[i] = -100.0 * wb.min(x[i] - wall, 0.0)


@pytest.mark.parametrize(("second", "close"), [(1.0 + 2e-7, True), (1.1, False), (0.7, False)])
def test_a_contact_that_rounding_decides_is_mentioned(second: float, close: bool):
    x, f = leaf(0.5, second, 3.0), wb.zeros(3, dtype=float)
    with wb.Tape() as tape:
        wb.launch(contact, dim=3, inputs=[x, 1.0], outputs=[f])
    tape.backward(grads={f: wb.ones(3, dtype=float)})
    found = tape.diagnose()
    assert found.problems == []
    assert [(f.where.line, "thread 1" in f.sentence) for f in found.named("kink")] == (
        [(line_of(contact, "wb.min"), True)] if close else []
    )


# ---- what is right but good to know


def test_an_array_passed_twice_and_values_kept_are_mentioned_with_their_bytes():
    x, loss = leaf(1.0, 2.0), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        for _ in range(4):
            wb.launch(square, dim=2, inputs=[x], outputs=[x])
        wb.launch(total, dim=2, inputs=[x], outputs=[loss])
    tape.backward(loss)
    found = tape.diagnose()
    assert found.problems == []
    (kept,) = found.named("overwritten-kept")
    assert "32 B, in 4 events" in kept.sentence and kept.arrays == ("x",)
    (aliased,) = found.named("aliased")
    assert "x=x, y=x" in aliased.sentence


def test_two_names_of_one_memory_in_different_launches_are_mentioned():
    x, h, y = leaf(1.0, 2.0), wb.zeros(2, dtype=float), wb.zeros(2, dtype=float)
    twin = wb.array(ptr=h.ptr, shape=h.shape, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[h])
        wb.launch(square, dim=2, inputs=[twin], outputs=[y])
    (found,) = tape.diagnose().named("aliased")
    assert found.arrays == ("h", "twin")


# ---- healthy programs


@wb.kernel
def spring(ends: wb.array[wb.vec2i], x: wb.array[wb.vec2], rest: wb.array[float], v: wb.array[wb.vec2], dt: float):
    s = wb.tid()
    a, b = ends[s][0], ends[s][1]
    d = x[b] - x[a]
    length = wb.length(d)
    pull = 400.0 * (length - rest[s]) / length * d
    v[a] += dt * pull
    v[b] -= dt * pull


@wb.kernel
def move(x: wb.array[wb.vec2], v: wb.array[wb.vec2], dt: float):
    i = wb.tid() + 1
    v[i] = 0.97 * v[i] + dt * wb.vec2(0.0, -9.81)
    x[i] += dt * v[i]


@wb.kernel
def miss(tip: wb.array[wb.vec2], loss: wb.array[float]):
    loss[0] = wb.dot(tip[0], tip[0])


def swing(steps: int) -> tuple[wb.Tape, wb.array]:
    corners = np.array([(0.3 * n, 0.0) for n in range(5)], np.float32)
    ends = wb.array(np.array([(n, n + 1) for n in range(4)], np.int32), dtype=wb.vec2i)
    x, v, loss = wb.array(corners, dtype=wb.vec2), wb.zeros(5, dtype=wb.vec2), wb.zeros(1, dtype=float)
    rest = leaf(*[0.3] * 4)
    with wb.Tape() as tape:
        for _ in range(steps):
            wb.launch(spring, dim=4, inputs=[ends, x, rest, v, 0.005])
            wb.launch(move, dim=4, inputs=[x, v, 0.005])
        wb.launch(miss, dim=1, inputs=[x[-1:]], outputs=[loss])
    tape.backward(loss)
    return tape, rest


def test_a_swinging_chain_has_no_problems_and_its_gradients_do_not_change():
    tape, rest = swing(30)
    before = rest.grad.numpy().copy()
    found = tape.diagnose()
    assert found.problems == []
    assert [f.arrays for f in found.named("overwritten-kept")], "the positions are overwritten and kept"
    np.testing.assert_array_equal(rest.grad.numpy(), before)
    assert before.any()


@pytest.mark.slow
def test_programs_of_the_corpus_have_no_problem_but_a_product_with_zero_and_a_rounding(backend):
    wb.config.backend = "numpy"
    programs = [p for p in load().values() if wb.float64 in p.dtypes]
    for program in programs[backend == "c" :: 2]:  # half of them each time this runs
        arrays = program.arrays(wb.float64, program.start())
        with wb.Tape() as tape:
            program.run(wb.float64, arrays)
        floats = [a for a in arrays.values() if wb.types.is_float(a.dtype) and tape.log.has_touched(a.span)]
        seeds = {a: np.random.default_rng(1).uniform(0.5, 1.5, a.data.shape) for a in floats}
        tape.backward(grads={a: wb.array(data, dtype=a.dtype) for a, data in seeds.items()})
        slugs = {f.slug for f in tape.diagnose().problems}
        right = {"copy_fill_and_zero_between_launches": {"died"}, "operators": {"cut"}}
        assert slugs == right.get(program.name, set()), program.name


def test_memory_is_as_it_was_after_a_diagnosis():
    x, h, y = leaf(3.0, 4.0), wb.zeros(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(limited, dim=2, inputs=[x], outputs=[h])
        wb.launch(square, dim=2, inputs=[h], outputs=[h])
        wb.launch(root, dim=2, inputs=[h], outputs=[y])
    before = [a.numpy().copy() for a in (x, h, y)]
    tape.diagnose(grads={y: wb.ones(2, dtype=float)})
    for a, b in zip((x, h, y), before, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    assert not tape.last_seeds, "a diagnosis publishes nothing"
    np.testing.assert_array_equal(x.grad.numpy(), 0)


def test_an_empty_tape_has_no_findings():
    found = wb.Tape().diagnose()
    assert len(found) == 0 and str(found).startswith("No findings in 0 events")


def test_without_backward_the_note_says_what_was_not_looked_at():
    x, loss = leaf(1.0, 2.0), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(total, dim=2, inputs=[x], outputs=[loss])
    assert "No backward has run" in tape.diagnose().text
    assert tape.diagnose(loss=loss).note == ""


def test_recorded_functions_are_not_called_by_a_diagnosis():
    x, y, calls = leaf(1.0, 2.0), wb.zeros(2, dtype=float), []
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
        tape.record_func(lambda: calls.append(1), [y])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    found = tape.diagnose()
    assert calls == [1] and "record_func" in found.note and found.problems == []


def test_what_was_overwritten_before_the_seed_saw_it_is_not_on_the_path():
    x, w, h, y = leaf(1.0, 2.0), leaf(3.0, 4.0), wb.zeros(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[h])
        wb.launch(square, dim=2, inputs=[w], outputs=[h])
        wb.launch(square, dim=2, inputs=[h], outputs=[y])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    found = tape.diagnose()
    assert only(found, "overwritten-unread").launch == "#1 square"
    assert [f.arrays for f in found.named("not-on-path")] == [("x",)]


# ---- how findings are shown


class _Tags(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"

    def scopes(self) -> list[str]:
        return [attrs["scope"] for tag, attrs in self.found if tag == "th"]


def test_findings_print_the_worst_first_with_line_and_fix():
    found = through(limited, 3.0, 4.0).diagnose()
    assert found.text.startswith("1 finding in 2 events: 1 warning\nwarning [died]")
    assert "> y[i] = wb.clamp(v, 0.0, 1.0)" in found.text and "Fix: wider bounds" in found.text
    made = Findings([Finding("a", "info", "", None, "small"), Finding("b", "error", "", None, "big")])
    assert [f.slug for f in made] == ["b", "a"]
    with pytest.raises(ValueError, match="severity"):
        Finding("a", "fatal", "", None, "")


def test_the_html_of_findings_is_a_table_with_headers_and_escapes_what_users_write():
    findings = Findings([Finding("a", "warning", "L0 <b>k</b>", None, "x < y & z", "write", ("x",))], 1)
    page = _Tags(findings._repr_html_())
    assert [tag for tag, _ in page.found if tag in ("table", "caption", "b")] == ["table", "caption"]
    assert page.scopes() == ["col"] * 7 + ["row"]
    assert "x < y & z" in page.text and "warning: a" in page.text


# ---- memory


def test_memory_counts_kept_values_gradients_seeds_arrays_and_shadows():
    x, loss = leaf(*[1.0] * 8), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        for _ in range(2):
            wb.launch(square, dim=8, inputs=[x], outputs=[x])
        wb.launch(total, dim=8, inputs=[x], outputs=[loss])
    tape.backward(loss)
    held = tape.memory()
    assert held.sum("kept") == sum(k.span.nbytes for e in tape.events for k in e.kept) == 64
    assert (held.sum("gradient"), held.sum("seed"), held.sum("array")) == (32, 4, 36)
    assert held.during_backward == 36
    assert held.total == 64 + 32 + 4 + 36
    (kept,) = [r for r in held.rows if r.kind == "kept"]
    assert "square (x2)" in kept.by and "adjoint of square reads x" in kept.why and kept.of == "x"


def test_memory_prints_a_table_as_text_and_html():
    tape = through(square, 1.0, 2.0)
    text = str(tape.memory())
    assert text.startswith("This tape holds 32 B, of which 0 B are values kept")
    assert re.search(r"^array +8 B +x +1 event ", text, re.MULTILINE)
    page = _Tags(tape.memory()._repr_html_())
    assert page.scopes()[:5] == ["col"] * 5 and set(page.scopes()[5:]) == {"row"}


def test_two_names_of_one_memory_are_counted_once():
    x, y = leaf(1.0, 2.0, 3.0, 4.0), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x[:2]], outputs=[y])
        wb.launch(square, dim=2, inputs=[x[2:]], outputs=[y])
    assert tape.memory().sum("array") == 16 + 8


def test_the_picture_marks_the_launch_where_the_gradient_died():
    assert "died" in through(limited, 3.0, 4.0).show().text
    assert "died" not in through(limited, 0.1, 4.0).show().text


def test_the_picture_shows_a_declared_scalar_as_memory_that_is_read():
    factor, x, y = wb.scalar(2.0, requires_grad=True), wb.ones(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(times, dim=2, inputs=[x, factor], outputs=[y])
    tape.backward(grads={y: wb.ones(2, dtype=float)})
    assert "factor v0" in tape.show().text


def test_a_second_tape_does_not_take_a_gradient_that_the_first_published_for_one_read_too_early():
    x, loss = leaf(1.0, 2.0), wb.zeros(1, dtype=float)
    with wb.Tape() as first:
        wb.launch(total, dim=2, inputs=[x], outputs=[loss])
    first.backward(loss)
    with wb.Tape() as second:
        wb.launch(total, dim=2, inputs=[x], outputs=[loss])
    assert not [f for f in second.diagnose() if f.slug == "read-before-backward"]

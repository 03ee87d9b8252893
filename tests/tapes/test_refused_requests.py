"""What tapes and the products of derivatives refuse: one request for each arm of a condition."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import F, empty, leaf, square
from workbench.derivatives.func_grad_check import check_rule

pytestmark = pytest.mark.usefixtures("backend")


@wb.struct
class Ball:
    q: wb.vec3d
    m: F


@wb.func
def plain(a: F):
    return a * a


@wb.func
def taken(a: wb.array(dtype=F), i: int):
    return a[i]


@wb.func_grad(taken)
def adj_taken(a: wb.array(dtype=F), i: int, g: F):
    wb.adjoint[a][i] += g


def recorded(keep: str = "all", func: bool = False):
    x, y = leaf([1.0, 2.0]), empty(2)
    with wb.Tape(keep=keep) as tape:
        wb.launch(square, 2, [x, y])
        if func:
            tape.record_func(lambda: None, [y])
    return tape, x, y


def through(ask, *how, **options):
    return ask(*recorded(*how, **options))


def vectors():
    v, w = wb.ones(1, dtype=wb.vec3d, requires_grad=True), wb.zeros(1, dtype=wb.vec3d)
    with wb.Tape() as tape:
        wb.copy(w, v)
    return tape, w


ONES = np.ones(2)
REFUSED = {
    "jacobian of structs": ("seed-type", lambda t, x, y: wb.jacobian(t, wb.zeros(2, dtype=Ball), x)),
    "jacobian of nothing": ("seed-type", lambda t, x, y: wb.jacobian(t, None, x)),
    "jacobian by nothing": ("seed-type", lambda t, x, y: wb.jacobian(t, y, None)),
    "hvp of a number": ("loss-shape", lambda t, x, y: wb.hvp(t, 3.0, {x: ONES})),
    "hvp of two": ("loss-shape", lambda t, x, y: wb.hvp(t, y, {x: ONES})),
    "hvp along three": ("seed-shape", lambda t, x, y: wb.hvp(t, y[0:1], {x: np.ones(3)})),
    "hvp along a list": ("seed-type", lambda t, x, y: wb.hvp(t, y[0:1], [x])),
    "hvp along nothing": ("no-seed", lambda t, x, y: wb.hvp(t, y[0:1], {})),
    "hvp along a number": ("seed-type", lambda t, x, y: wb.hvp(t, y[0:1], {3: 1.0})),
    "hvp along a stranger": ("not-active", lambda t, x, y: wb.hvp(t, y[0:1], {empty(2): ONES})),
    "jacobian by what was overwritten": ("overwritten-start", lambda t, x, y: wb.jacobian(t, y, y)),
    "hessian by what was overwritten": ("overwritten-start", lambda t, x, y: wb.hessian(t, y[0:1], y)),
    "hvp along what was overwritten": ("overwritten-start", lambda t, x, y: wb.hvp(t, y[0:1], {y: ONES})),
    "jvp along what was overwritten": ("overwritten-start", lambda t, x, y: wb.jvp(t, {y: ONES})),
    "trust by what was overwritten": ("overwritten-start", lambda t, x, y: t.trust(y[0:1], y)),
    "replay with what was overwritten": ("overwritten-start", lambda t, x, y: t.replay({y: ONES})),
    "the tangent of a name": ("seed-type", lambda t, x, y: wb.jvp(t, {x: ONES})["y"]),
    "a tangent in a list": ("seed-type", lambda t, x, y: wb.jvp(t, [x])),
    "a seed in a list": ("seed-type", lambda t, x, y: t.backward(grads=[x])),
    "no seed": ("no-seed", lambda t, x, y: t.backward(grads={})),
    "hvp through a function": (
        "jvp-func",
        lambda t, x, y: through(lambda t, x, y: wb.hvp(t, y[0:1], {x: ONES}), func=True),
    ),
    "hvp of what was not kept": (
        "not-kept",
        lambda t, x, y: through(lambda t, x, y: wb.hvp(t, y[0:1], {x: ONES}), "needed"),
    ),
    "sparse through a function": (
        "pattern",
        lambda t, x, y: through(lambda t, x, y: wb.jacobian(t, y, x, sparse=True), func=True),
    ),
    "gradcheck of what was not kept": (
        "not-kept",
        lambda t, x, y: through(lambda t, x, y: wb.gradcheck(t, y, [x]), "needed"),
    ),
    "replay through a function": ("replay-func", lambda t, x, y: recorded(func=True)[0].replay()),
    "replay of nothing": ("replay-array", lambda t, x, y: wb.Tape(keep="all").replay()),
    "the copy of a number": ("replay-array", lambda t, x, y: t.replay().of(3)),
    "the copy of a stranger": ("replay-array", lambda t, x, y: t.replay().of(wb.zeros(2))),
    "replay with a number for its key": ("replay-array", lambda t, x, y: t.replay({3: 1.0})),
    "replay with a stranger": ("replay-array", lambda t, x, y: t.replay({wb.zeros(2): ONES})),
    "replay with another dtype": ("replay-input", lambda t, x, y: t.replay({x: wb.zeros(2)})),
    "replay with another shape": ("replay-input", lambda t, x, y: t.replay({x: empty(3)})),
    "replay with three numbers": ("replay-input", lambda t, x, y: t.replay({x: np.ones(3)})),
    "replay with words": ("replay-input", lambda t, x, y: t.replay({x: np.array(["a", "b"])})),
    "an adjoint before any": ("no-seed", lambda t, x, y: t.adjoint(x)),
    "a loss of two": ("loss-shape", lambda t, x, y: t.backward(y)),
    "a loss of one vector": ("loss-shape", lambda t, x, y: (lambda t, w: t.backward(w))(*vectors())),
    "a tangent of a number": ("seed-type", lambda t, x, y: wb.jvp(t, {3: 1.0})),
    "no tangent": ("no-seed", lambda t, x, y: wb.jvp(t, {})),
    "a seed of a number": ("seed-type", lambda t, x, y: t.backward(grads={3: x})),
    "a seed of a stranger": ("seed-untouched", lambda t, x, y: t.backward(grads={empty(2): x})),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_tape_cannot_answer_is_refused(what):
    slug, ask = REFUSED[what]
    with pytest.raises(wb.GradientError) as found:
        ask(*recorded())
    assert found.value.slug == slug


@pytest.mark.parametrize("whole", [True, False])
def test_whole_numbers_of_a_replay_stay_whole(whole):
    @wb.kernel
    def picked(x: wb.array(dtype=F), k: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[k[i]] * x[k[i]]

    x, k, y = leaf([2.0, 3.0]), wb.array([0, 1], dtype=int), empty(2)
    with wb.Tape(keep="all") as tape:
        wb.launch(picked, 2, [x, k, y])
    if whole:
        assert tape.replay({k: [1.0, 0.0]})[y].list() == [9.0, 4.0]
        return
    with pytest.raises(wb.GradientError) as found:
        tape.replay({k: [1.5, 0.0]})
    assert found.value.slug == "replay-input"


@pytest.mark.parametrize("made", [wb.capture, wb.ScopedCapture])
def test_a_capture_that_is_not_complete_is_not_replayed(made):
    with pytest.raises(wb.LaunchError) as found:
        made().replay()
    assert found.value.slug == "capture"


@pytest.mark.parametrize(
    ("argnums", "word"), [((), "argument 0"), ((0, 1), "argument 1"), (1, "argument 1"), ((1, 0), "argument 1")]
)
def test_arguments_that_are_not_there_have_no_gradient(argnums, word):
    with pytest.raises(TypeError, match=word):
        wb.value_and_grad(lambda x: x, argnums=argnums)(ONES)


@pytest.mark.parametrize("given", [plain, taken, 3])
def test_a_rule_is_checked_for_a_func_of_numbers_that_has_one(given):
    with pytest.raises(TypeError):
        check_rule(given)


@pytest.mark.parametrize("given", [3.0, "array of two"])
def test_a_function_that_gives_no_loss_is_refused(given):
    def loss(x):
        y = empty(2)
        wb.launch(square, 2, [x, y])
        return given if given == 3.0 else y

    with pytest.raises(wb.GradientError) as found:
        wb.value_and_grad(loss)(ONES)
    assert found.value.slug == "loss-shape"


def test_a_step_that_writes_elsewhere_is_told_the_name_that_the_program_has_for_it():
    extra = empty(2)

    def step(k, part):
        wb.launch(square, 2, [part, extra])

    with wb.Tape(), pytest.raises(wb.LaunchError) as found:
        wb.checkpoint(2, 1)(step)(leaf([0.5, 0.25]))
    assert "writes extra," in found.value.what and found.value.instead == "step(..., extra)"


@pytest.mark.parametrize(("low", "inside"), [(0, False), (1, True), (2, False)])
def test_a_step_writes_to_no_more_of_an_array_than_its_state(low, inside):
    whole = leaf([0.5, 0.25, 0.125, 0.75])

    def step(t, part):
        wb.launch(square, 2, [part, whole[low : low + 2]])

    with wb.Tape() as tape:
        if not inside:
            with pytest.raises(wb.LaunchError) as found:
                wb.checkpoint(2, 1)(step)(whole[1:3])
            assert found.value.slug == "checkpoint-state"
            return
        start = wb.clone(whole)
        wb.checkpoint(2, 1)(step)(whole[1:3])
    tape.backward(grads={whole: wb.ones(4, dtype=F)})
    x = start.numpy()
    np.testing.assert_allclose(whole.numpy(), [x[0], x[1] ** 4, x[2] ** 4, x[3]])

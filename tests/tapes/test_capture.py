"""Captures: a replay does, bit for bit, what the block would do if it ran again on the present contents, or refuses."""

from __future__ import annotations

import collections
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.fuzz import kernels as fuzz
from workbench.errors import BoundsError, GradientError, LaunchError

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def square(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def total(x: wb.array(dtype=float), loss: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i])


@wb.kernel
def scatter(x: wb.array(dtype=float), index: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    y[index[i]] = x[i] * x[i]


@wb.kernel
def first(x: wb.array(dtype=float), index: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[index[i]]


@wb.kernel
def upward(index: wb.array(dtype=int)):
    i = wb.tid()
    index[i] = i


def leaf(*values):
    return wb.array(np.array(values, np.float32), requires_grad=True)


def test_a_replay_sees_new_contents_and_not_a_new_variable():
    x, y, factor = leaf(1, 2, 3), wb.zeros(3), 2.0
    with wb.capture() as graph:
        wb.launch(square, 3, inputs=[x, y])
        y[0:1].fill_(factor)
    x.assign(np.array([4, 5, 6], np.float32))
    factor = 9.0
    graph.replay()
    assert y.list() == [2, 25, 36] and len(graph.graph) == 2


def test_leaves_accumulate_with_every_replay_unless_they_are_zeroed_in_the_block():
    x, y = leaf(1, 2), wb.zeros(2, requires_grad=True)
    tape = wb.Tape()

    def block():
        with tape:
            wb.launch(square, 2, inputs=[x, y])
        tape.backward(grads={y: wb.ones(2)})

    with wb.capture() as adding:
        block()
    assert x.grad.list() == [2, 4]
    adding.replay()
    adding.replay()
    assert x.grad.list() == [6, 12] and y.grad.list() == [0, 0]
    with wb.capture() as anew:
        tape.reset()
        block()
    for _ in range(3):
        anew.replay()
        assert x.grad.list() == [2, 4]
    x.grad.zero_()
    x.assign(np.array([5, 7], np.float32))
    adding.replay()
    assert x.grad.list() == [10, 14]


def test_arrays_made_in_the_block_start_again_with_every_replay():
    x = leaf(1, 2)
    with wb.capture() as graph:
        loss, twos = wb.zeros(1, requires_grad=True), wb.full(2, 2.0, requires_grad=True)
        with wb.Tape() as tape:
            wb.launch(square, 2, inputs=[twos, twos])
            wb.launch(total, 2, inputs=[twos, loss])
            wb.launch(total, 2, inputs=[x, loss])
        tape.backward(loss)
    for n in range(2, 4):
        graph.replay()
        assert loss.list() == [11] and twos.list() == [4, 4] and twos.grad.list() == [4, 4]
        assert x.grad.list() == [n, n]


def checkpointed(x):
    with wb.Tape():
        wb.checkpoint(steps=2, budget=1)(lambda k, x: wb.launch(square, 3, inputs=[x, x]))(x)


def fuzzed(program, contents, capture):
    """Finals and gradients: of the program on these contents; with `capture`, replayed from others to these."""
    arrays = program.arrays(program.contents() if capture else contents, True)
    seeds = {n: program.fill(n, w, False) for n, w in program.seeds().items()}
    start = {n: fuzz.plain(arrays[n]) if n != "P" else arrays[n].numpy().copy() for n in (*contents, "I", "J")}

    def block():
        with wb.Tape(keep="all" if program.seed % 7 == 0 else "needed") as tape:
            program.run(arrays)
        touched = {arrays[n]: s for n, s in seeds.items() if tape.log.has_touched(arrays[n].span)}
        tape.backward(grads=touched)

    if not capture:
        block()
    else:
        with wb.capture() as graph:
            block()
        for n in contents:
            arrays[n].assign(program.fill(n, contents[n], False))
            if arrays[n].grad is not None:
                arrays[n].grad.zero_()
        for n in "IJ":
            arrays[n].assign(start[n])
        graph.replay()
    finals = {n: fuzz.plain(arrays[n]) for n in (*contents, "J")}
    return finals, {n: fuzz.plain(arrays[n].grad) for n in contents if arrays[n].grad is not None}


@pytest.mark.slow
def test_replays_of_random_programs_are_bit_for_bit_what_they_would_do_again():
    counts = collections.Counter()
    for seed in range(30):
        program = fuzz.make(seed)
        program.compile()
        other = {n: np.cos(7 * d) for n, d in program.contents().items()}
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                want = fuzzed(program, other, False)
                got = fuzzed(program, other, True)
            except fuzz.REFUSALS as refusal:
                counts[getattr(refusal, "slug", "?")] += 1
                continue
        for expected, found in zip(want, got, strict=True):
            assert expected.keys() == found.keys()
            for n in expected:
                assert np.array_equal(expected[n], found[n], equal_nan=True), (seed, n)
        counts["same"] += 1
    assert counts["same"] >= 0.8 * counts.total(), counts


def test_the_steps_of_a_checkpointed_loop_are_captured_as_its_refusal_says():
    loop, x = wb.checkpoint(steps=2, budget=1)(lambda k, x: wb.launch(square, 2, inputs=[x, x])), leaf(1, 2)
    state = wb.zeros(2)

    def turn(run):
        with wb.Tape() as tape:
            wb.copy(state, x)
            run(state)
        tape.backward(grads={state: wb.ones(2)})

    with pytest.raises(LaunchError, match=r"<lambda>.run\(\[\.\.\.\]\)"), wb.capture():
        turn(loop)
    with wb.capture() as graph:
        turn(lambda x: loop.run([x]))
    x.assign([3.0, 0.5])
    x.grad.zero_()
    graph.replay()
    assert state.list() == [81, 0.0625] and x.grad.list() == [108, 0.5]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "what",
    [
        lambda x, y: x.numpy(),
        lambda x, y: x.list(),
        lambda x, y: x[0],
        lambda x, y: x[0:1].item(),
        lambda x, y: np.asarray(x),
        lambda x, y: x.ptr,
        lambda x, y: wb.to_torch(x),
        lambda x, y: wb.launch(square, 3, inputs=[x, y], adjoint=True, adj_inputs=[None, None]),
        lambda x, y: wb.Tape().record_func(lambda: None, [x]),
        lambda x, y: wb.capture().__enter__(),
        lambda x, y: checkpointed(x),
    ],
    ids=range(11),
)
@pytest.mark.host_memory("cuda-6")
def test_what_a_replay_could_not_repeat_is_refused(what):
    x, y = leaf(1, 2, 3), wb.zeros(3, requires_grad=True)
    with pytest.raises(LaunchError, match=r"capture"), wb.capture():
        what(x, y)
    with wb.capture() as graph:  # and the capture that broke off left nothing behind
        wb.launch(square, 3, inputs=[x, y])
    graph.replay()


def test_the_tape_of_a_backward_pass_is_recorded_in_the_same_capture():
    x, y = leaf(1, 2), wb.zeros(2, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, 2, inputs=[x, y])
    seed = wb.ones(2)
    with pytest.raises(LaunchError, match="recorded before"), wb.capture():
        tape.backward(grads={y: seed})


def test_a_replay_is_no_event_of_a_tape_and_a_capture_no_part_of_one():
    x, y = leaf(1, 2), wb.zeros(2)
    with wb.capture() as graph:
        wb.launch(square, 2, inputs=[x, y])
    with wb.Tape(), pytest.raises(LaunchError, match="under an open tape"):
        graph.replay()
    with wb.Tape(), pytest.raises(LaunchError, match="under an open tape"), wb.capture():
        pass


def test_other_tapes_are_told_of_what_a_replay_writes():
    x, y = leaf(1, 2), wb.zeros(2, requires_grad=True)
    with wb.capture() as graph:
        wb.launch(square, 2, inputs=[x, y])
    z = wb.zeros(2, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, 2, inputs=[y, z])
        wb.launch(square, 2, inputs=[x, z])
    y.requires_grad = True
    with wb.Tape() as tape:
        wb.launch(square, 2, inputs=[y, z])
    graph.replay()
    with pytest.raises(GradientError, match="overwritten"):
        tape.backward(grads={z: wb.ones(2)})


def test_a_tape_that_refuses_already_is_told_again_once_it_has_begun_anew():
    x, y, z = leaf(1, 2), wb.zeros(2, requires_grad=True), wb.zeros(2, requires_grad=True)
    with wb.capture() as graph:
        wb.launch(square, 2, inputs=[x, y])
    tape = wb.Tape()
    for replays in (1, 4, 4):
        tape.reset()
        with tape:
            wb.launch(square, 2, inputs=[y, z])
        for _ in range(replays):
            graph.replay()
        with pytest.raises(GradientError, match="overwritten"):
            tape.backward(grads={z: wb.ones(2)})


@pytest.mark.host_memory
def test_torch_is_told_of_every_replay_that_writes_to_its_memory():
    torch = pytest.importorskip("torch")
    x, t = leaf(1, 2), torch.zeros(2)
    y = wb.from_torch(t)
    with wb.capture() as graph:
        wb.launch(square, 2, inputs=[x, y])
    for _ in range(4):
        before = t._version
        graph.replay()
        assert t._version > before and t.tolist() == [1, 4]


def test_the_tape_that_was_captured_still_answers_after_a_replay():
    x, y = leaf(1, 2), wb.zeros(2, requires_grad=True)
    with wb.capture() as graph, wb.Tape() as tape:
        wb.launch(square, 2, inputs=[x, y])
        wb.launch(square, 2, inputs=[y, y])
    graph.replay()
    tape.backward(grads={y: wb.ones(2)})
    assert x.grad.list() == [4, 32]
    x.assign(np.array([2, 3], np.float32))
    graph.replay()
    with pytest.raises(GradientError, match="overwritten"):
        tape.backward(grads={y: wb.ones(2)})


def test_indices_on_which_the_absence_of_races_rests_must_not_change():
    x, y = leaf(1, 2, 3), wb.zeros(3, requires_grad=True)
    index = wb.array(np.array([2, 1, 0], np.int32), dtype=int)
    with wb.capture() as graph:
        with wb.Tape() as tape:
            wb.launch(scatter, 3, inputs=[x, index, y])
        tape.backward(grads={y: wb.ones(3)})
    graph.replay()
    assert x.grad.list() == [4, 8, 12]
    with pytest.raises(LaunchError, match="computed inside"), wb.capture():  # a graph in a graph knows it too
        graph.replay()
        wb.launch(upward, 3, inputs=[index])
    index.assign(np.array([0, 0, 0], np.int32))
    with pytest.raises(LaunchError, match="indices has changed"):
        graph.replay()
    with pytest.raises(LaunchError, match="computed inside"), wb.capture():
        wb.launch(upward, 3, inputs=[index])
        with wb.Tape() as tape:
            wb.launch(scatter, 3, inputs=[x, index, y])
        tape.backward(grads={y: wb.ones(3)})


def test_a_launch_that_fails_in_a_replay_says_so():
    wb.config.check_bounds = True
    x, y, index = leaf(1, 2), wb.zeros(2), wb.array(np.array([0, 1], np.int32), dtype=int)
    with wb.capture() as graph:
        wb.launch(first, 2, inputs=[x, index, y])
    graph.replay()
    index.assign(np.array([0, 7], np.int32))
    with pytest.raises(BoundsError, match="array 'x'"):
        graph.replay()
    index.assign(np.array([1, 1], np.int32))
    graph.replay()
    assert y.list() == [2, 2]


def test_a_declared_scalar_would_keep_its_old_value_so_it_is_refused():
    @wb.kernel
    def scaled(x: wb.array(dtype=float), k: float, y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = k * x[i]

    x, y, k = leaf(1, 2), wb.zeros(2), wb.scalar(3.0, requires_grad=True)
    with pytest.raises(LaunchError, match="declared scalar"), wb.capture():
        wb.launch(scaled, 2, inputs=[x, k, y])


def test_the_same_under_the_names_of_warp():
    x, y = leaf(1, 2), wb.zeros(2)
    with wb.ScopedCapture(device="cpu") as captured:
        wb.launch(square, 2, inputs=[x, y])
    x.assign(np.array([3, 4], np.float32))
    wb.capture_launch(captured.graph)
    assert y.list() == [9, 16]


@pytest.mark.host_memory
def test_a_tensor_of_torch_gets_its_gradient_with_every_replay():
    torch = pytest.importorskip("torch")
    t = torch.tensor([1.0, 2.0], requires_grad=True)
    y, seed = wb.zeros(2, requires_grad=True), wb.ones(2)
    with wb.capture() as graph:
        with wb.Tape() as tape:
            wb.launch(square, 2, inputs=[t, y])
        tape.backward(grads={y: seed})
    assert t.grad.tolist() == [2, 4] and t.tolist() == [1, 2]
    with torch.no_grad():
        t += 1
    graph.replay()
    assert t.grad.tolist() == [6, 10] and y.list() == [4, 9]


@wb.kernel
def product(x: wb.array(dtype=float), w: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * w[i]


@wb.kernel
def moved(source: wb.array(dtype=int), index: wb.array(dtype=int)):
    i = wb.tid()
    index[i] = source[i]


def gradient_block(tape, x, y, seed):
    def block():
        tape.reset()
        with tape:
            wb.launch(square, 2, inputs=[x, y])
        tape.backward(grads={y: seed})

    return block


@pytest.mark.parametrize("before", ["new", "recorded", "walked", "walked with other arrays"])
def test_a_tape_reset_first_in_the_block_starts_anew_with_every_replay(before):
    x, y, seed, tape = leaf(1, 2), wb.zeros(2, requires_grad=True), wb.ones(2), wb.Tape()
    u, v = leaf(3, 4), wb.zeros(2, requires_grad=True)
    if before == "recorded":
        with tape:
            wb.launch(square, 2, inputs=[x, y])
    elif before != "new":
        gradient_block(tape, *((x, y) if before == "walked" else (u, v)), seed)()
    with wb.capture() as graph:
        gradient_block(tape, x, y, seed)()
    assert x.grad.list() == [2, 4]
    gradient_block(wb.Tape(), u, v, seed)()
    for _ in range(3):
        graph.replay()
        assert x.grad.list() == [2, 4] and u.grad.list() == [6, 8]


def test_a_tape_used_for_something_else_after_the_capture_is_told_of_a_replay():
    x, y, z, tape = leaf(1, 2), wb.zeros(2, requires_grad=True), wb.zeros(2, requires_grad=True), wb.Tape()
    with wb.capture() as graph:
        gradient_block(tape, x, y, wb.ones(2))()
    tape.reset()
    with tape:
        wb.launch(square, 2, inputs=[y, z])
    x.fill_(3.0)
    graph.replay()
    with pytest.raises(GradientError, match="overwritten"):
        tape.backward(grads={z: wb.ones(2)})


def test_a_tape_that_went_on_after_the_capture_refuses_after_a_replay():
    s, x, y = leaf(1, 2), leaf(1, 2), wb.zeros(2)
    z, q, tape = wb.zeros(2, requires_grad=True), wb.zeros(2, requires_grad=True), wb.Tape()
    s.requires_grad = False
    with wb.capture() as graph:
        wb.launch(square, 2, inputs=[s, y])
        with tape:
            wb.launch(product, 2, inputs=[x, y, z])
    with tape:
        wb.launch(square, 2, inputs=[z, q])
    s.fill_(3.0)
    graph.replay()
    with pytest.raises(GradientError, match="replayed"):
        tape.backward(grads={q: wb.ones(2)})
    kept = wb.Tape(keep="all")
    with wb.capture() as graph, kept:
        wb.launch(square, 2, inputs=[x, z])
    x.fill_(5.0)
    graph.replay()
    with pytest.raises(GradientError, match="replayed"):
        kept.backward(grads={z: wb.ones(2)})


def test_a_tape_begun_before_the_capture_is_not_walked_in_it():
    x, y, z, tape = leaf(1, 2), wb.zeros(2, requires_grad=True), wb.zeros(2, requires_grad=True), wb.Tape()
    with tape:
        wb.launch(square, 2, inputs=[x, y])
    with pytest.raises(LaunchError, match="recorded before"), wb.capture():
        with tape:
            wb.launch(square, 2, inputs=[y, z])
        tape.backward(grads={z: wb.ones(2)})


@pytest.mark.parametrize(
    "make",
    [lambda: wb.zeros(2, requires_grad=True), lambda: wb.full(2, 1.0, requires_grad=True), lambda: leaf(1, 1)],
    ids=["zeros", "full", "array"],
)
def test_tapes_are_told_that_a_replay_makes_an_array_of_the_block_anew(make):
    with wb.capture() as graph:
        z = make()
    z.fill_(2.0)
    y = wb.zeros(2, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, 2, inputs=[z, y])
    graph.replay()
    with pytest.raises(GradientError, match="overwritten"):
        tape.backward(grads={y: wb.ones(2)})


def test_gradients_asked_for_after_the_capture_are_refused():
    x, w, y = leaf(1, 2), leaf(3, 4), wb.zeros(2, requires_grad=True)
    w.requires_grad = False
    with wb.capture() as graph:
        with wb.Tape() as tape:
            wb.launch(product, 2, inputs=[x, w, y])
        tape.backward(grads={y: wb.ones(2)})
    other = leaf(1)
    graph.replay()
    assert x.grad.list() == [6, 8] and other.requires_grad
    w.requires_grad = True
    with pytest.raises(LaunchError, match="requires_grad"):
        graph.replay()


def test_new_indices_of_a_replay_are_looked_at_again():
    source = wb.array(np.array([0, 1], np.int32), dtype=int)
    index, x, y = wb.zeros(2, dtype=int), leaf(1, 2), wb.zeros(2, requires_grad=True)
    with wb.capture() as graph:
        wb.launch(moved, 2, inputs=[source, index])
        with wb.Tape() as tape:
            wb.launch(scatter, 2, inputs=[x, index, y])
    tape.backward(grads={y: wb.ones(2)})
    source.assign(np.array([0, 0], np.int32))
    graph.replay()
    with pytest.raises(GradientError, match="race"):
        tape.backward(grads={y: wb.ones(2)})
    wb.config.check_races = True
    with wb.capture() as graph:
        wb.launch(first, 2, inputs=[x, source, y])
    with wb.capture() as graph:
        index.assign(np.array([0, 1], np.int32))
    with wb.capture() as graph:
        wb.launch(scatter, 2, inputs=[x, index, y])
    index.assign(np.array([0, 0], np.int32))
    with pytest.raises(LaunchError, match="indices has changed"):
        graph.replay()


def test_zeros_of_a_replay_are_no_seeds():
    x, y = leaf(1, 2), wb.zeros(2, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, 2, inputs=[x, y])
    tape.backward(grads={y: wb.ones(2)})
    with wb.capture() as graph:
        tape.zero()
    graph.replay()
    with pytest.raises(GradientError, match="no-seed"):
        tape.backward()


def test_a_replay_that_fails_leaves_gradients_that_can_be_zeroed_and_no_other_error_behind():
    wb.config.check_bounds = True
    x, y, z, w = leaf(1, 2), wb.zeros(2, requires_grad=True), wb.zeros(2), wb.zeros(2)
    index, seed = wb.array(np.array([0, 1], np.int32), dtype=int), wb.ones(2)
    with wb.capture() as graph:
        with wb.Tape() as tape:
            wb.launch(square, 2, inputs=[x, y])
        tape.backward(grads={y: seed})
        wb.launch(first, 2, inputs=[x, index, z])
        wb.launch(first, 2, inputs=[x, index, w])
    tape.zero()
    index.assign(np.array([0, 7], np.int32))
    with pytest.raises(BoundsError):
        graph.replay()
    tape.zero()
    assert x.grad.list() == [0, 0]
    index.assign(np.array([0, 1], np.int32))
    graph.replay()
    assert x.grad.list() == [2, 4] and w.list() == [1, 2]


def test_a_scalar_without_a_gradient_would_keep_its_old_value_too():
    @wb.kernel
    def scaled(x: wb.array(dtype=float), k: float, y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = k * x[i]

    x, y, k = leaf(1, 2), wb.zeros(2), wb.scalar(3.0)
    with pytest.raises(LaunchError, match="declared scalar"), wb.capture():
        wb.launch(scaled, 2, inputs=[x, k, y])


def test_a_gradient_that_the_tape_itself_reads_is_not_used_as_room_for_its_walk():
    w, x, s, v = leaf(1, 2), leaf(3, 4), wb.ones(2), wb.array(np.array([5, 7], np.float32))
    z, y, u = [wb.zeros(2, requires_grad=True) for _ in range(3)]
    with wb.capture() as graph:
        wb.copy(y.grad, v)
        with wb.Tape() as tape:
            wb.launch(product, 2, inputs=[w, y.grad, z])
            wb.launch(square, 2, inputs=[x, y])
            wb.launch(product, 2, inputs=[y, z, u])
        tape.backward(grads={u: s})
    assert w.grad.list() == [45, 112]
    graph.replay()
    assert w.grad.list() == [90, 224]


def test_a_walk_refused_in_a_capture_leaves_gradients_as_they_were():
    x, s, tape = leaf(1, 2), wb.ones(2), wb.Tape()
    y, u = [wb.zeros(2, requires_grad=True) for _ in range(2)]
    index = wb.zeros(2, dtype=int)
    with pytest.raises(GradientError, match="race"), wb.capture():
        tape.reset()
        with tape:
            wb.launch(scatter, 2, inputs=[x, index, y])
            wb.launch(product, 2, inputs=[x, y, u])
        tape.backward(grads={u: s})
    assert x.grad.list() == [0, 0]


@pytest.mark.parametrize("change", ["zero", "backward", "replay"])
def test_a_tape_that_read_a_gradient_is_told_when_another_one_publishes_or_zeroes_it(change):
    x, w, s = leaf(1, 2), leaf(3, 4), wb.ones(2)
    y, z = [wb.zeros(2, requires_grad=True) for _ in range(2)]
    with wb.capture() as graph:
        with wb.Tape() as other:
            wb.launch(square, 2, inputs=[x, y])
        other.backward(grads={y: s})
    with wb.Tape() as tape:
        wb.launch(product, 2, inputs=[w, x.grad, z])
    if change == "zero":
        other.zero()
    elif change == "backward":
        other.backward(grads={y: s})
    else:
        graph.replay()
    with pytest.raises(GradientError, match="overwritten"):
        tape.backward(grads={z: s})


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.host_memory
def test_indices_changed_through_numpy_must_not_race_in_a_replay(held):
    x, y = leaf(1, 2, 3), wb.zeros(3, requires_grad=True)
    index = wb.array(np.array([2, 1, 0], np.int32), dtype=int)
    raw = index.numpy() if held else None
    with wb.capture() as graph:
        with wb.Tape() as tape:
            wb.launch(scatter, 3, inputs=[x, index, y])
        tape.backward(grads={y: wb.ones(3)})
    graph.replay()
    raw = index.numpy() if raw is None else raw
    raw[:] = 0
    with pytest.raises(LaunchError, match="indices has changed"):
        graph.replay()
    raw[:] = 2, 1, 0
    if held:
        graph.replay()
        assert x.grad.list() == [6, 12, 18]

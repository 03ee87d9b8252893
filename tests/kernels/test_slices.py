"""Slices of arrays in kernels and arrays made there: bounds, what they share, and what the memory of a launch knows."""

import linecache

import numpy as np
import pytest

import workbench as wb

F = wb.float64


@wb.func
def total(s: wb.array(dtype=F)):
    t = F(0.0)
    for k in range(len(s)):
        t += s[k] * F(k + 1)
    return t


@wb.kernel
def summed(x: wb.array(dtype=F), ends: wb.array(dtype=int), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = total(x[ends[3 * i] : ends[3 * i + 1] : ends[3 * i + 2]])


@pytest.mark.sampled
def test_slices_of_any_ends_and_steps_are_those_of_python(backend):
    wb.config.backend = backend
    x = np.arange(1.0, 6.0)
    ends = [(a, b, s) for a in range(-7, 8) for b in range(-7, 8) for s in (-3, -2, -1, 1, 2, 3)]
    y = wb.zeros(len(ends), dtype=F)
    wb.launch(summed, dim=len(ends), inputs=[wb.array(x, dtype=F), wb.array(np.ravel(ends), dtype=int)], outputs=[y])
    want = [sum(v * (k + 1) for k, v in enumerate(x[a:b:s])) for a, b, s in ends]
    assert np.array_equal(y.numpy(), want)


@wb.kernel
def at(x: wb.array(dtype=F), n: int, k: int, y: wb.array(dtype=F)):
    s = x[1:n]
    y[0] = s[k]


@pytest.mark.parametrize("k", [3, -4, 4])
@pytest.mark.host_memory
def test_an_index_outside_of_a_slice_and_inside_of_its_array_is_found(backend, k):
    wb.config.backend, wb.config.check_bounds = backend, True
    with pytest.raises(wb.LaunchError, match=r"index k lies outside[\s\S]*y\[0\] = s\[k\][\s\S]*\[bounds\]"):
        wb.launch(at, dim=1, inputs=[wb.ones(6, dtype=F), 4, k], outputs=[wb.zeros(1, dtype=F)])


def test_an_index_outside_of_the_array_is_found_before_the_launch():
    @wb.kernel
    def beyond(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        tail = x[2:]
        y[i] = tail[i]

    with pytest.raises(wb.BoundsError, match="thread 3 uses index 5"):
        wb.launch(beyond, dim=4, inputs=[wb.ones(5, dtype=F)], outputs=[wb.zeros(4, dtype=F)])


def test_threads_that_meet_through_two_slices_are_a_race():
    @wb.kernel
    def shifted(x: wb.array(dtype=F)):
        i = wb.tid()
        left, right = x[:-1], x[1:]
        left[i] = F(1.0)
        right[i] = F(2.0)

    with pytest.raises(wb.LaunchError, match="race"):
        wb.launch(shifted, dim=3, inputs=[wb.zeros(4, dtype=F)])


def test_threads_with_slices_of_their_own_are_proven_apart():
    @wb.kernel
    def squared(x: wb.array(dtype=F)):
        i = wb.tid()
        mine = x[2 * i : 2 * i + 2]
        mine[0] = mine[0] * mine[1]
        mine[1] = mine[1] * mine[0]

    x = wb.array(np.arange(1.0, 7.0), dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(squared, dim=3, inputs=[x])
    tape.backward(grads={x: wb.ones(6, dtype=F)})
    assert np.array_equal(x.numpy(), [2, 4, 12, 48, 30, 180])
    a, b = np.arange(1.0, 7.0)[::2], np.arange(1.0, 7.0)[1::2]
    assert np.array_equal(x.grad.numpy().reshape(3, 2).T, [b + b * b, a + 2 * a * b])


def test_a_ledger_of_a_slice_names_the_memory_behind_it():
    x = wb.array(np.arange(1.0, 7.0), dtype=F, requires_grad=True)
    y = wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(at, dim=1, inputs=[x, 5, 2], outputs=[y])
    tape.backward(grads={y: wb.ones(1, dtype=F)})
    (row,) = [r for r in tape.ledger(x, 3).rows if r.value]
    assert row.value == 1.0 and x.grad.numpy()[3] == 1.0


def test_array_slices_of_tiles_and_of_arrays_left_out():
    @wb.kernel
    def tiled(x: wb.array2d(dtype=F), y: wb.array(dtype=F)):
        t = wb.tile_load(x[1, 1::2], shape=2)
        wb.tile_store(y[1:3], t * t)

    x = wb.array(np.arange(12.0).reshape(2, 6), dtype=F, requires_grad=True)
    y = wb.zeros(4, dtype=F)
    with wb.Tape() as tape:
        wb.launch_tiled(tiled, dim=[1], inputs=[x], outputs=[y], block_dim=4)
    tape.backward(grads={y: wb.ones(4, dtype=F)})
    assert y.numpy().tolist() == [0, 49, 81, 0]
    assert x.grad.numpy().tolist() == [[0] * 6, [0, 14, 0, 18, 0, 0]]


def test_a_name_that_a_loop_assigns_has_no_value_where_the_loop_does_not_turn(backend):
    wb.config.backend = backend

    @wb.kernel
    def last(x: wb.array(dtype=F), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        for j in range(n[i]):
            a = x[j] * x[j]
        y[i] = a + F(j)

    x, y = wb.array([1.0, 2.0, 3.0], dtype=F), wb.zeros(2, dtype=F)
    wb.launch(last, dim=2, inputs=[x, wb.array([3, 1], dtype=int)], outputs=[y])
    assert y.numpy().tolist() == [11.0, 1.0]
    with pytest.raises(wb.LaunchError, match=r"thread 1: `a` has no value here[\s\S]*a \+ F\(j\)[\s\S]*maybe-unbound"):
        wb.launch(last, dim=2, inputs=[x, wb.array([3, 0], dtype=int)], outputs=[y])


WEIGHTS = [1.0, 2.0]


def test_a_list_that_a_loop_ran_over_is_read_again_when_it_has_changed():
    @wb.kernel
    def weighted(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        for w in WEIGHTS:
            y[0] += x[0] * w

    x, y = wb.ones(1, dtype=F), wb.zeros(1, dtype=F)
    wb.launch(weighted, dim=1, inputs=[x, y])
    first = weighted.program()
    assert weighted.program() is first and y.list() == [3.0]
    WEIGHTS.append(4.0)
    try:
        wb.launch(weighted, dim=1, inputs=[x, y])
        assert y.list() == [10.0]
    finally:
        WEIGHTS.pop()


@pytest.mark.parametrize("line", ["for w in LONG:", "for w in wb.static(LONG):"])
def test_a_loop_that_would_be_written_out_a_thousand_times_is_refused(line):
    space = {"wb": wb, "LONG": (0.5,) * 1000, "__name__": "long"}
    text = f"@wb.kernel\ndef k(y: wb.array(dtype=float)):\n    {line}\n        y[0] += w\n"
    name = f"<{line}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), space)
    with pytest.raises(wb.KernelError, match=r"1000 turns[\s\S]*\[static-loop\]"):
        wb.launch(space["k"], dim=1, inputs=[wb.zeros(1)])

"""`wb.jit` and its arguments: what a function changes of containers, NumPy arrays and marks, and what it returns."""

from __future__ import annotations

import collections
import threading

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import BACKENDS


@wb.struct
class State:
    now: wb.array[float]
    next: wb.array[float]
    dt: float


@wb.kernel
def scale(x: wb.array[float], a: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = a * x[i] * x[i]


@wb.kernel
def double(x: wb.array[float]):
    i = wb.tid()
    x[i] = 2.0 * x[i]


@wb.kernel
def cubes(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, x[i] * x[i] * x[i])


@wb.kernel
def scatter(at: wb.array[int], x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[at[i]] = 2.0 * x[i]


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


def state(dt=1.0):
    made = State()
    made.now, made.next, made.dt = wb.array([1.0, 2.0]), wb.zeros(2), dt
    return made


def in_a_list(two):
    wb.launch(scale, 2, [two[0], 0.5], [two[1]])
    two[0], two[1] = two[1], two[0]


def in_a_struct(s):
    wb.launch(scale, 2, [s.now, 0.5], [s.next])
    s.now, s.next = s.next, s.now


def number_of_a_struct(s):
    wb.launch(scale, 2, [s.now, s.dt], [s.next])
    s.dt = 2.0


def key_of_a_dict(d):
    d["y"] = wb.zeros(2)
    wb.launch(scale, 2, [d["x"], 0.5], [d["y"]])


def end_of_a_list(found):
    found.append(wb.zeros(2))


def numbers_of_numpy(n):
    n[:] = 7.0


def marks(x):
    x.requires_grad = True
    out = wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(cubes, 2, [x], [out])
    tape.backward(out)


def marks_for_a_while(x):
    marks(x)
    x.requires_grad = False


def settings(x):
    wb.launch(double, 2, [x])
    wb.config.threads = 2


@pytest.mark.parametrize(
    "function, given",
    [
        (in_a_list, lambda: [wb.array([1.0, 2.0]), wb.zeros(2)]),
        (in_a_struct, state),
        (number_of_a_struct, state),
        (key_of_a_dict, lambda: {"x": wb.ones(2)}),
        (end_of_a_list, list),
        (numbers_of_numpy, lambda: np.zeros(2)),
        (marks, lambda: wb.ones(2)),
        (marks_for_a_while, lambda: wb.ones(2)),
        (settings, lambda: wb.ones(2)),
    ],
)
def test_what_a_function_changes_of_its_arguments_is_no_replay(function, given, monkeypatch):
    monkeypatch.setattr(wb.config, "threads", 1)
    step = wb.jit(function)
    step(given())
    wb.config.threads = 1
    with pytest.raises(wb.LaunchError, match=r"(?s)it changes an argument, or wb\.config, in Python.*step\(given"):
        step(given())


@pytest.mark.host_memory
def test_the_memory_of_a_numpy_array_is_that_of_each_call():
    @wb.jit
    def step(n):
        wb.launch(double, 2, [wb.from_numpy(n)])

    with pytest.warns(UserWarning, match=r"wraps a NumPy array"):
        for _ in range(4):
            n = np.ones(2, np.float32)
            step(n)
            assert n.tolist() == [2.0, 2.0]


def test_numpy_arrays_that_are_returned_are_new_ones_or_those_that_are_given():
    step = wb.jit(lambda n: (n, np.zeros(2), wb.vec3(1.0, 2.0, 3.0)))
    for _ in range(5):
        n = np.ones(2)
        same, made, vector = step(n)
        assert same is n and made.tolist() == [0.0, 0.0] and list(vector) == [1.0, 2.0, 3.0]
        made += 1.0
        vector[0] = 5.0
    assert step.replays == 3


def test_the_gradient_of_an_array_that_was_made_goes_with_it():
    @wb.jit
    def step(x):
        y, out = wb.zeros(2, requires_grad=True), wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(scale, 2, [x, 1.0], [y])
            wb.launch(cubes, 2, [y], [out])
        tape.backward(out)
        return y, y.grad

    for _ in range(4):
        y, gradient = step(wb.array([1.0, 2.0], requires_grad=True))
        gradient.fill_(3.0)
        assert y.grad.list() == [3.0, 3.0]
    assert step.replays == 2


def test_containers_that_are_given_are_returned_and_keep_their_types():
    @wb.jit
    def step(d):
        d.move_to_end("x")
        wb.launch(double, 2, [d["x"]])
        return d, d["more"], collections.defaultdict(int, n=1)

    for _ in range(5):
        d = collections.OrderedDict(more={"n": 1}, x=wb.ones(2))
        whole, more, made = step(d)
        assert whole is d and more is d["more"] and type(made) is collections.defaultdict
        assert d["x"].list() == [2.0, 2.0]
    assert step.replays == 3


@pytest.mark.parametrize("last", [1.0, 2.0])
def test_keys_of_dicts_that_read_alike_are_told_apart(last):
    step, x = wb.jit(lambda x, d: wb.launch(scale, 2, [x, d[0][1]], [x])), wb.ones(2)
    for k in range(6):
        x.fill_(1.0)
        step(x, {0: [1.0, last * (k // 3 + 1)], 0.1: 5.0})
        assert x.list() == [last * (k // 3 + 1)] * 2


def test_arrays_that_are_keys_are_those_of_each_call():
    @wb.jit
    def step(x, seeds):
        (y,) = seeds
        with wb.Tape() as tape:
            wb.launch(scale, 2, [x, 1.0], [y])
        tape.backward(grads=seeds)

    for _ in range(4):
        x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2, requires_grad=True)
        step(x, {y: wb.ones(2)})
        assert y.list() == [1.0, 4.0] and x.grad.list() == [2.0, 4.0]


def test_indices_of_other_arrays_are_looked_at_again():
    @wb.jit
    def step(at, x):
        y = wb.zeros(2)
        with wb.Tape() as tape:
            wb.launch(scatter, 2, [at, x], [y])
        tape.backward(grads={y: wb.array([1.0, 3.0])})
        return y

    for k in range(5):
        at, x = wb.array([k % 2, 1 - k % 2]), wb.array([1.0, 2.0], requires_grad=True)
        assert step(at, x).list() == ([4.0, 2.0] if k % 2 else [2.0, 4.0])
        assert x.grad.list() == ([6.0, 2.0] if k % 2 else [2.0, 6.0])
    with pytest.raises(wb.GradientError, match="touch one element"):
        step(wb.array([1, 1]), wb.array([1.0, 2.0], requires_grad=True))


def test_only_what_was_written_of_views_that_overlap_is_taken_for_written():
    step = wb.jit(lambda x, y: wb.launch(double, 2, [y]))
    for _ in range(4):
        x, out = wb.array([1.0, 2.0, 3.0, 4.0], requires_grad=True), wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(cubes, 2, [x[:2]], [out])
        step(x[:3], x[2:])
        tape.backward(out)
        assert x.list() == [1.0, 2.0, 6.0, 8.0] and x.grad.list() == [3.0, 12.0, 0.0, 0.0]
    assert step.replays == 2


def test_threads_get_the_results_of_their_own_calls():
    """Another thread may replay as soon as it finds a recording: what the first call made is copied before that."""

    @wb.jit
    def step(x):
        y = wb.zeros(2)
        wb.launch(scale, 2, [x, 1.0], [y])
        return y

    step(wb.ones(2))
    form, found = next(iter(step._forms.values())), []

    class Watched(type(form)):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            other = threading.Thread(target=lambda: found.append(step(wb.array([5.0, 5.0])).list()))
            other.start()
            other.join()

    form.__class__ = Watched
    assert step(wb.array([2.0, 3.0])).list() == [4.0, 9.0] and found == [[25.0, 25.0]]


def by_its_text(x, number):
    y = wb.zeros(2)
    wb.launch(scale, 2, [x, float(len(repr(number)))], [y])
    return y


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), (0j, complex(0, -0.0)), (1, True), (1, 1.0), (np.complex64(0), np.complex64(complex(-0.0, 0)))],
)
def test_equal_numbers_of_other_bits_or_types_are_other_calls(one, other):
    run = wb.jit(by_its_text)
    for number in [one] * 3 + [other] * 3 + [one]:
        assert run(wb.array([1.0, 2.0]), number).list()[0] == len(repr(number))
    assert len(repr(one)) != len(repr(other))

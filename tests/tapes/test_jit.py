"""`wb.jit`: a replay does what the function would do, to the last bit; what no replay can repeat is refused."""

from __future__ import annotations

import pickle
import threading
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.fuzz import jit as fuzz
from tests.support.backends import BACKENDS

GAIN = 1.0


@wb.struct
class Body:
    q: wb.array[float]
    mass: float


@wb.kernel
def move(x: wb.array[float], v: wb.array[float], dt: float):
    i = wb.tid()
    x[i] = x[i] + dt * v[i]


@wb.kernel
def energy(x: wb.array[float], out: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(out, 0, x[i] * x[i] * x[i])


@wb.kernel
def weigh(b: Body, out: wb.array[float]):
    i = wb.tid()
    out[i] = b.mass * b.q[i]


@pytest.fixture(params=BACKENDS, autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", request.param)


def counted(function):
    """The function under jit, and a list that gets an entry whenever its Python code runs."""
    runs = []

    def run(*args):
        runs.append(1)
        return function(*args)

    with warnings.catch_warnings():
        return wb.jit(run), runs


@pytest.mark.filterwarnings("ignore:.*runs is changed in Python")
def test_the_second_call_is_captured_and_later_ones_are_replayed():
    step, runs = counted(lambda x, v, dt: [wb.launch(move, 3, [x, v, dt]) for _ in range(2)] and None)
    x, v = wb.zeros(3), wb.array([1.0, 2.0, 3.0])
    for k in range(1, 6):
        step(x, v, 0.5)
        assert x.list() == [k, 2.0 * k, 3.0 * k]
        assert len(runs) == min(k, 2) and step.replays == max(k - 2, 0)


def test_replays_take_the_present_contents():
    step = wb.jit(lambda x, v: wb.launch(move, 3, [x, v, 1.0]))
    x, v = wb.zeros(3), wb.ones(3)
    for k in range(5):
        v.fill_(float(k))
        step(x, v)
    assert x.list() == [10.0] * 3 and step.replays == 3


def test_a_tape_in_it_gives_the_gradient():
    @wb.jit
    def gradient(x):
        out = wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(energy, 3, [x, out])
        x.grad.zero_()
        tape.backward(out)
        return out, x.grad

    x = wb.array([1.0, 2.0, 3.0], requires_grad=True)
    for k in range(5):
        values = np.array([k, 2.0, -3.0], np.float32)
        x.assign(values)
        out, g = gradient(x)
        assert out.item() == (values**3).sum() and g.list() == x.grad.list() == (3 * values**2).tolist()
        assert g is x.grad
    for k in range(5):  # new arrays each time
        values = np.array([k, 1.0, 4.0], np.float32)
        new = wb.array(values, requires_grad=True)
        out, g = gradient(new)
        assert out.item() == (values**3).sum() and g is new.grad and g.list() == (3 * values**2).tolist()
    assert gradient.replays == 7  # of arrays known by form, the first is captured on copies


def test_a_tape_that_only_a_recording_keeps_hands_nothing_on(monkeypatch):
    """Without one it is gone when the function returns: what another call left in a gradient waits for nobody."""

    def step(x, y, gain):
        loss = wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(move, 3, [x, y, gain])
            wb.launch(energy, 3, [x], [loss])
        tape.backward(loss)

    found = []
    for on in (True, False):
        monkeypatch.setattr(wb.config, "jit", on)
        x, y = wb.array([0.5, 0.25, 1.0], requires_grad=True), wb.array([1.0, 2.0, 0.5], requires_grad=True)
        run = wb.jit(step)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for a, b, gain in ((x, y, 0.5), (x, y, 0.5), (y, x, 0.125), (x, y, 0.25)):
                run(a, b, gain)
        assert any("was written by an earlier tape" in str(w.message) for w in said)
        found.append([a.list() for a in (x, y, x.grad, y.grad)])
    assert found[0] == found[1]


@pytest.mark.parametrize("inside", [False, True])
def test_slices_of_arguments_and_of_their_gradients_are_those_of_each_call(inside):
    @wb.jit
    def gradient(x):
        out = wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(energy, len(x), [x, out])
        tape.zero()
        tape.backward(out)
        return x.grad[1:], x.grad[:2], x[2:]

    for k in range(4):  # of new memory, or further behind in it
        values = np.array([k, 1.0, 4.0], np.float32)
        x = wb.array(values, requires_grad=True)
        if inside:
            x = wb.array(np.concatenate((np.zeros(2 * k + 1), values, [9.0])), dtype=float, requires_grad=True)[-4:-1]
        behind, ahead, last = gradient(x)
        assert behind.list() == [3.0, 48.0] and ahead.list() == [3.0 * k * k, 3.0] and last.list() == [4.0]
        x.grad[1:2].fill_(7.0)
        x.fill_(8.0)
        assert behind.list() == [7.0, 48.0] and ahead.list() == [3.0 * k * k, 7.0] and last.list() == [8.0]
    assert gradient.replays


def test_leaves_accumulate_over_replays():
    @wb.jit
    def add(x):
        out = wb.zeros(1)
        with wb.Tape() as tape:
            wb.launch(energy, 2, [x, out])
        tape.backward(out)

    x = wb.array([1.0, 2.0], requires_grad=True)
    for k in range(1, 6):
        add(x)
        assert x.grad.list() == [3.0 * k, 12.0 * k]


def test_results_are_new_arrays():
    @wb.jit
    def double(x):
        out = wb.zeros(3)
        wb.launch(move, 3, [out, x, 2.0])
        return out, {"part": out[1:], "in": x}

    x = wb.ones(3)
    made = []
    for k in range(5):
        x.fill_(float(k))
        out, rest = double(x)
        made.append(out)
        assert rest["in"] is x and rest["part"].allocation is out.allocation
    assert [m.list()[0] for m in made] == [0, 2, 4, 6, 8]


def test_numbers_flags_and_fields_are_part_of_the_key():
    @wb.jit
    def weighed(b, twice, out):
        wb.launch(weigh, 2, [b, out])
        if twice:
            wb.launch(move, 2, [out, out, 1.0])

    out = wb.zeros(2)
    for _ in range(4):
        for mass, twice in ((1.0, False), (2.0, True)):
            b = Body()
            b.q, b.mass = wb.array([1.0, 3.0]), mass
            weighed(b, twice, out)
            assert out.list() == [mass * (1 + twice), 3 * mass * (1 + twice)]
    assert weighed.replays == 4


def test_views_and_aliases_are_told_apart():
    step = wb.jit(lambda x, v: wb.launch(move, 2, [x, v, 1.0]))
    whole = wb.array(np.arange(12, dtype=np.float32).reshape(6, 2))
    expected = whole.numpy().copy()
    for x, v in [(0, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4), (4, 4), (4, 5)]:
        step(whole[x], whole[v])
        expected[x] += expected[v]
        np.testing.assert_array_equal(whole.numpy(), expected)
    assert step.replays >= 4


def test_what_it_reaches_by_names_is_looked_at(monkeypatch):
    class Model:
        def __init__(self):
            self.dt, self.v = 1.0, wb.ones(2)

        @wb.jit
        def step(self, x):
            wb.launch(move, 2, [x, self.v, self.dt * GAIN])

    model, x = Model(), wb.zeros(2)
    total = 0.0

    def turns(by):
        nonlocal total
        for _ in range(4):
            model.step(x)
            total += by
            assert x.list() == [total, total]

    turns(1.0)
    model.dt = 2.0
    turns(2.0)
    monkeypatch.setitem(globals(), "GAIN", 0.5)
    turns(1.0)
    model.v = wb.array([3.0, 3.0])
    turns(3.0)
    assert Model.step.replays == 8


def test_a_kernel_made_anew_is_used(monkeypatch):
    step = wb.jit(lambda x, v: wb.launch(move, 2, [x, v, 1.0]))
    x, v = wb.zeros(2), wb.ones(2)
    for _ in range(4):
        step(x, v)

    @wb.kernel
    def other(x: wb.array[float], v: wb.array[float], dt: float):
        i = wb.tid()
        x[i] = x[i] - dt * v[i]

    monkeypatch.setitem(globals(), "move", other)
    for _ in range(4):
        step(x, v)
    assert x.list() == [0.0, 0.0]


CLOCK = {"t": 0.0}


def ticking(x, v):
    CLOCK["t"] += 1.0
    wb.launch(move, 2, [x, v, CLOCK["t"]])


def rolling(x, v):
    wb.launch(move, 2, [x, v, float(np.random.rand())])  # noqa: NPY002


RATES = iter([1.0, 1.0, 0.5])


def scheduled(x, v):
    wb.launch(move, 2, [x, v, next(RATES, 0.25)])


def reading(x, v):
    wb.launch(move, 2, [x, v, float(v.numpy()[0])])


def writing(x, v):
    x.assign(np.random.rand(2).astype(np.float32))  # noqa: NPY002


def keeping(x, v, kept=[]):  # noqa: B006
    kept.append(wb.clone(x))


def opening(x, v):
    with wb.Tape() as tape:
        wb.launch(move, 2, [x, v, 1.0])
    return tape


@pytest.mark.parametrize(
    "function, slug, text",
    [
        (ticking, "jit", r"(?s)changes CLOCK in Python.*CLOCK\[\"t\"\] \+= 1\.0"),
        (rolling, "jit", r"(?s)a launch of move: dt is 0\.\d+, and was 0\.\d+ in the first call.*np\.random\.rand"),
        (scheduled, "jit", r"changes RATES in Python"),
        (reading, "capture", r"(?s)inside @wb\.jit reading"),
        (writing, "jit", r"(?s)a write of values: the value is not what it was.*x\.assign"),
        (keeping, "jit", r"changes kept in Python"),
        (opening, "jit", r"it returns a Tape"),
    ],
)
def test_what_cannot_be_repeated_is_refused_at_the_second_call(function, slug, text):
    step = wb.jit(function)
    x, v = wb.zeros(2), wb.ones(2)
    step(x, v)
    with pytest.raises(wb.LaunchError, match=text) as refusal:
        step(x, v)
    assert refusal.value.slug == slug
    off = wb.jit(function, off=True)
    for _ in range(3):
        off(x, v)


CALLS = {"n": 0}


def counting(x, v):
    CALLS["n"] += 1
    wb.launch(move, 2, [x, v, 1.0])


def test_what_is_only_counted_in_python_is_told_and_replayed():
    step, x, v = wb.jit(counting), wb.zeros(2), wb.ones(2)
    with pytest.warns(UserWarning, match=r"CALLS is changed in Python by @wb\.jit counting"):
        for _ in range(5):
            step(x, v)
    assert x.list() == [5.0, 5.0] and step.replays == 3 and CALLS["n"] in (2, 4)


def test_a_number_that_changes_each_time_is_told():
    step = wb.jit(lambda x, v, dt: wb.launch(move, 2, [x, v, dt]))
    x, v = wb.zeros(2), wb.ones(2)
    with pytest.warns(UserWarning, match=r"argument 2 differs in each call of @wb\.jit.*one-element array"):
        for k in range(20):
            step(x, v, float(k))
    assert x.list() == [190.0, 190.0] and step.replays == 0


def test_under_a_tape_or_in_a_capture_it_runs_as_it_stands():
    step = wb.jit(lambda x, y: wb.launch(energy, 2, [x, y]))
    x = wb.array([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        y = wb.zeros(1)
        with wb.Tape() as tape:
            step(x, y)
        tape.backward(y)
        tape.zero()
        assert len(tape.events) == 0 or step.replays == 0
    total = wb.zeros(1)
    for _ in range(3):
        step(x, total)
    with wb.capture() as graph:
        step(x, total)
    graph.replay()
    assert total.item() == 45.0 and step.replays == 1


def test_an_exception_leaves_what_ran(monkeypatch):
    def launched(x, v, fails):
        wb.launch(move, 2, [x, v, 1.0])
        if fails.list()[0] if isinstance(fails, wb.array) else fails:
            raise ValueError("here")

    step = wb.jit(launched)
    x, v = wb.zeros(2), wb.ones(2)
    for k in range(1, 4):
        with pytest.raises(ValueError, match="here"):
            step(x, v, True)
        assert x.list() == [k, k]


def test_threads_may_call_it_at_once():
    step = wb.jit(lambda x, v: wb.launch(move, 2, [x, v, 1.0]))
    xs = [wb.zeros(2) for _ in range(4)]
    v = wb.ones(2)

    def turn(x):
        for _ in range(50):
            step(x, v)

    threads = [threading.Thread(target=turn, args=(x,)) for x in xs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [x.list() for x in xs] == [[50.0, 50.0]] * 4


def test_the_switch_and_pickles():
    step = wb.jit(lambda x, v: wb.launch(move, 2, [x, v, 1.0]))
    x, v = wb.zeros(2), wb.ones(2)
    wb.config.jit = False
    try:
        for _ in range(4):
            step(x, v)
    finally:
        wb.config.jit = True
    assert step.replays == 0 and x.list() == [4.0, 4.0]
    assert pickle.loads(pickle.dumps(wb.jit(ticking))).__name__ == "ticking"  # noqa: S301
    assert "0 replays" in repr(step)
    with pytest.raises(wb.LaunchError, match="takes a function that launches"):
        wb.jit(move)


def test_value_and_grad_is_replayed():
    def loss(x):
        out = wb.zeros(1)
        wb.launch(energy, 3, [x, out])
        return out

    plain, fast = wb.value_and_grad(loss), wb.value_and_grad(loss, jit=True)
    for k in range(6):
        x = np.array([k, 1.0, -2.0], np.float32)
        (a, da), (b, db) = plain(x), fast(x)
        assert a == b and np.array_equal(da, db)
        np.testing.assert_allclose(db, 3 * x**2)
    assert fast._run.replays == 4 and plain._run.replays == 0


def test_many_tapes_alike_are_a_finding(monkeypatch):
    if wb.config.backend != "c":
        pytest.skip("only walks of compiled code are remembered")
    from workbench.diagnose import record

    monkeypatch.setattr(record, "REPEATED", 5)
    x, out = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(1)
    for k in range(9):
        out.zero_()
        with wb.Tape() as tape:
            wb.launch(energy, 2, [x, out])
        tape.backward(out)
        found = [f for f in tape.diagnose() if f.slug == "repeated"]
        assert bool(found) is (k >= 5), k
    assert found[0].severity == "info" and "@wb.jit" in found[0].fix


def test_random_functions_do_the_same_with_and_without_it():
    for seed in range(60):
        assert fuzz.verdict(seed) == ""
    assert fuzz.counts["replays"] > 20

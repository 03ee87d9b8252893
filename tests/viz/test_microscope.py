"""The microscope: one thread down and back up; values and adjoints are those of closed forms and of differences."""

from __future__ import annotations

import json
import math
import random
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.fuzz import kernels as fuzz
from workbench.errors import LaunchError
from workbench.viz.inspect.thread import CAP, Microscope

F = wb.float64
N = 3
X = np.array([0.7, -1.3, 2.1])


pytestmark = pytest.mark.usefixtures("backend")


def seen(kernel, x, thread, seed=1.0, dtype=F, extra=()):
    """The microscope on one thread of one launch, y seeded with `seed` everywhere."""
    x = wb.array(x, dtype=dtype, requires_grad=True)
    y = wb.zeros(len(x), dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, len(x), inputs=[x, *extra], outputs=[y])
    tape.backward(grads={y: wb.full(len(x), seed, dtype=F)})
    return tape.microscope(0, thread)


def value(m, name, iteration=()):
    (step,) = m.find(name, iteration)
    return step.value


def adjoint(m, name, iteration=()):
    (step,) = m.find(name, iteration, "reverse")
    return step.adjoint


@wb.func
def swing(a: F, b: F):
    c = a * b
    return wb.sin(c)


@wb.kernel
def straight(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    b = a
    s = a * b
    t = wb.exp(s)
    y[i] = t + s


def test_values_and_adjoints_of_locals_are_those_of_the_closed_form():
    m = seen(straight, X, 1, 2.0)
    x = X[1]
    assert value(m, "a") == x and value(m, "s") == x * x and value(m, "t") == pytest.approx(math.exp(x * x))
    assert value(m, "y[1]") == pytest.approx(math.exp(x * x) + x * x)
    assert adjoint(m, "y[1]") == 2.0 and adjoint(m, "t") == 2.0
    assert adjoint(m, "s") == pytest.approx(2 * math.exp(x * x) + 2)
    assert adjoint(m, "a") == pytest.approx((2 * math.exp(x * x) + 2) * 2 * x)
    assert (m.event, m.heading, m.thread, m.note) == (0, "#0 straight", (1,), "")


@wb.kernel
def rooted(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    r = wb.sqrt(a)
    y[i] = a * r + r


def test_a_root_with_a_name_has_an_adjoint_also_where_it_meets_its_own_square():
    m = seen(rooted, [4.0], 0)
    assert adjoint(m, "r") == 5.0 and adjoint(m, "a") == 3.25


def test_an_alias_is_another_name_of_the_one_value_and_has_no_step_of_its_own():
    m = seen(straight, X, 0)
    (step,) = m.find("b")
    assert step.name == "a" and step.aliases == ("b",) and len(m.find("a")) == 1
    assert m.find("b", phase="reverse")[0].adjoint == adjoint(m, "a")


def test_the_way_back_ends_where_the_gradient_goes():
    m = seen(straight, X, 2)
    back = [s for s in m.steps if s.phase == "reverse"]
    assert back[0].name == "y[2]" and "becomes 0" in back[0].note
    assert back[-1].name == "a" and back[-1].note == "added to d x[2]"
    assert all(m.steps[s.produced_by].phase == "forward" and m.steps[s.produced_by].name == s.name for s in back)


@wb.kernel
def looped(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    s = F(1.0)
    for j in range(3):
        a = x[i] * F(j + 1)
        for k in range(2):
            s = s * a + F(k)
    y[i] = s


def test_loops_have_a_step_per_turn_with_their_counters():
    m = seen(looped, X, 0)
    x, s, run = X[0], 1.0, []
    for j in range(3):
        for k in range(2):
            run.append((j, k, s, x * (j + 1)))
            s = s * x * (j + 1) + k
            assert value(m, "s", (j, k)) == pytest.approx(s)
    g, da = 1.0, dict.fromkeys(range(3), 0.0)
    for j, k, before, a in reversed(run):
        assert adjoint(m, "s", (j, k)) == pytest.approx(g)
        da[j] += g * before
        g *= a
    assert all(adjoint(m, "a", (j,)) == pytest.approx(da[j]) for j in range(3))
    turns = [s.iteration for s in m.steps if s.phase == "reverse" and s.name == "s" and s.iteration]
    assert turns == sorted(turns, reverse=True) and len(turns) == 6


@wb.kernel
def until(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    r = x[i]
    n = 0
    while r < F(10.0):
        r = r * F(2.0)
        n = n + 1
        if n > 2:
            break
    if n == 1:
        return
    q = r * r
    y[i] = q


def test_while_break_and_early_return_show_what_ran_and_nothing_else():
    m = seen(until, np.array([1.0, 6.0, 3.0]), 0)
    assert [value(m, "r", (k,)) for k in range(3)] == [2.0, 4.0, 8.0] and value(m, "q") == 64.0
    assert [adjoint(m, "r", (k,)) for k in range(3)] == [64.0, 32.0, 16.0] and adjoint(m, "r", ()) == 128.0
    left = seen(until, np.array([1.0, 6.0, 3.0]), 1)
    assert not left.find("q") and not left.find("y[1]") and adjoint(left, "r", ()) == 0.0
    assert [s.iteration for s in left.find("n")] == [(), (0,)]


@wb.kernel
def branched(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    if a > F(0.0):
        b = a * F(3.0)
        c = b
    else:
        b = a * a
        c = a
    y[i] = b * c


def test_only_the_branch_taken_is_shown_and_only_its_copies_are_aliases():
    up, down = seen(branched, X, 0), seen(branched, X, 1)
    assert [s.value for s in up.find("b")] == [pytest.approx(2.1)] and "c" in up.find("b")[0].aliases
    assert adjoint(up, "b") == pytest.approx(2 * 3 * X[0]) and adjoint(up, "a") == pytest.approx(18 * X[0])
    assert "c" in down.find("a")[0].aliases and "c" not in down.find("b")[0].aliases
    assert adjoint(down, "b") == X[1] and adjoint(down, "a") == pytest.approx(3 * X[1] ** 2)


@wb.kernel
def calling(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    u = swing(x[i], F(2.0))
    w = swing(u, u)
    y[i] = w


def test_a_func_is_shown_inside_with_the_line_that_calls_it():
    m = seen(calling, X, 0)
    first, second = m.find("c")
    assert (first.depth, second.depth, m.find("u")[0].depth) == (1, 1, 1) and m.find("y[0]")[0].depth == 0
    assert first.where.line == second.where.line and first.where.caller.line + 1 == second.where.caller.line
    u = math.sin(2 * X[0])
    assert second.value == pytest.approx(u * u)
    backs = m.find("c", phase="reverse")
    assert [s.adjoint for s in backs] == [
        pytest.approx(math.cos(u * u)),
        pytest.approx(math.cos(u * u) * 2 * u * math.cos(2 * X[0])),
    ]


@wb.kernel
def vectors(v: wb.array(dtype=wb.vec3d), y: wb.array(dtype=F)):
    i = wb.tid()
    u = v[i]
    u[1] = u[0] * u[2]
    y[i] = wb.dot(u, u)


def test_vectors_have_vectors_as_adjoints():
    m = seen(vectors, np.array([[1.0, 2.0, 3.0]]), 0, dtype=wb.vec3d)
    loaded, changed = m.find("u")
    assert (loaded.value, changed.value) == ((1.0, 2.0, 3.0), (1.0, 3.0, 3.0))
    backs = [s.adjoint for s in m.find("u", phase="reverse")]
    assert backs[0] == (2.0, 6.0, 6.0) and backs[-1] == (2.0 + 18.0, 0.0, 6.0 + 6.0)


@wb.kernel
def reread(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i] * x[i]
    y[i] = a
    y[i] = y[i] * F(2.0)


def test_memory_read_back_leads_to_the_step_that_made_the_value():
    m = seen(reread, X, 0)
    stored, read, last = m.find("y[0]")
    made = m.find("a")[0]
    assert m.steps[stored.produced_by] is made and m.steps[read.produced_by] is made and last.produced_by is None
    assert [s.adjoint for s in m.find("y[0]", phase="reverse")] == [1.0, 2.0, 2.0]
    assert adjoint(m, "a") == 2.0


PROBED = """
import workbench as wb
F = wb.float64

@wb.func
def inner(p: F):
    q = wb.sin(p) * p
    {q}
    return q + p

@wb.kernel
def probe(x: wb.array(dtype=F), eps: F, y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i] * x[(i + 1) % 3]
    {a}
    s = F(0.5)
    for j in range(3):
        b = wb.tanh(a * s) + x[j]
        if j == 1:
            {b}
            s = s * b
        else:
            s = s + inner(b) * a
    w = wb.vec3d(s, a, s * a)
    z = wb.length(w) * s
    {z}
    while z > F(0.4):
        z = z * F(0.5) - a * F(0.1)
    y[i] = z * a
"""


def probe(name: str, file: str):
    """The kernel with `eps` added to one of its locals."""
    import linecache

    where = {n: f"{n} = {n} + eps" if n == name else "pass" for n in "qabz"}
    text = (
        PROBED.format(**where)
        .replace("def inner(p: F)", "def inner(p: F, eps: F)")
        .replace("inner(b)", "inner(b, eps)")
    )
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope: dict = {"__name__": "probe"}
    exec(compile(text, file, "exec"), scope)
    return scope["probe"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", "qabz")
def test_adjoints_of_locals_are_the_differences_of_the_loss_by_them(name):
    """d loss / d local, by adding a small number to it there; several steps of one name add up."""

    def loss(eps: float) -> float:
        y = wb.zeros(3, dtype=F)
        wb.launch(probe(name, f"<probe-{name}>"), 3, inputs=[wb.array(X, dtype=F), eps], outputs=[y])
        return float(y.numpy()[0])

    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(3, dtype=F)
    with wb.Tape() as tape:
        wb.launch(probe(name, f"<probe-{name}>"), 3, inputs=[x, 0.0], outputs=[y])
    tape.backward(grads={y: wb.array([1.0, 0.0, 0.0], dtype=F)})
    m = tape.microscope("probe", 0)
    h = 1e-6
    want = (loss(h) - loss(-h)) / (2 * h)
    shifted = [s for s in m.find(name, phase="reverse") if "eps" in s.where.text]
    assert shifted and sum(s.adjoint for s in shifted) == pytest.approx(want, rel=1e-6)


@pytest.mark.slow
def test_what_a_thread_adds_is_what_the_ledger_says_of_it():
    """Two ways to the same numbers: the log of the watched adjoint, and the steps of the microscope."""
    programs, compared, refused = (4 if wb.config.backend == "c" else 16), 0, []
    for seed in range(programs):
        program = fuzz.make(seed)
        program.compile()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tape, _, _ = program.walked()
            except fuzz.REFUSALS as refusal:
                refused.append(refusal.slug)
                continue
            compared += _compared(program, tape)
    assert compared > programs / 2 and len(refused) <= 0.1 * programs, refused


def _compared(program: fuzz.Program, tape: wb.Tape) -> int:
    rng, found = random.Random(program.seed), 0
    for k, event in enumerate(tape.events):
        if event.command is None or event.reverse is None:
            continue
        thread = tuple(rng.randrange(d) for d in event.command.plan.form.dims)
        m = tape.microscope(k, thread)
        for s in m.steps:
            if s.phase != "reverse" or not s.note.startswith("added to d ") or "[" not in s.note:
                continue
            name, _, inside = s.note.removeprefix("added to d ").rstrip("]").partition("[")
            places = [p for p, leaf in enumerate(event.command.program.leaves) if leaf.name == name]
            a = event.command.places[places[0]]
            index = tuple(int(i) for i in inside.split(","))
            whole = [t for t in m.steps if t.phase == "reverse" and t.note == s.note]
            cells = [t for t in m.steps if f"from d {name}[" in t.note]
            shared = event.command.plan.form.groups
            if len(index) != len(a.shape) or not isinstance(s.adjoint, float) or cells or shared:
                continue  # components, and cells that the thread also stores to, are tested by hand
            rows = [r for r in tape.ledger(a, index, at=k).rows if r.position == k and r.thread == thread]
            got = float(np.sum([t.adjoint for t in whole]))
            assert sum(r.value for r in rows) == pytest.approx(got, rel=1e-9, abs=1e-12), fuzz.describe(program)
            found += 1
    return found


def test_a_long_thread_is_cut_and_says_so():
    @wb.kernel
    def long(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = x[i]
        for j in range(4000):
            s = s * F(0.999)
        y[i] = s

    m = seen(long, X, 0)
    assert len(m.steps) <= CAP and "5000" in m.note and m.note in repr(m)
    assert value(m, "s", (0,)) == pytest.approx(X[0] * 0.999)


def test_the_event_may_be_given_as_itself_its_position_or_its_label():
    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.launch(straight, N, inputs=[x], outputs=[y])
        wb.copy(x, y)
        wb.launch(reread, N, inputs=[x], outputs=[y])
        wb.launch(reread, N, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.full(N, 1.0, dtype=F)})
    one = tape.microscope("straight", 1)
    assert one == tape.microscope(0, (1,)) == tape.microscope(tape.events[0], np.int64(1)) and one.event == 0
    assert tape.microscope("#3 reread", 0).event == 3 == tape.microscope(-1, 0).event
    for event, text in (
        ("reread", "2 events are called 'reread'"),
        ("nothing", "#0 straight, #2 reread"),
        (7, "4 events"),
        (1, "is a copy"),
        (None, "position or its label"),
    ):
        with pytest.raises(LaunchError, match=text):
            tape.microscope(event, 0)
    for thread in (3, -1, (0, 0), "a", 0.5):
        with pytest.raises(LaunchError, match=r"its grid is \(3,\)"):
            tape.microscope(0, thread)


def test_memory_is_as_the_launch_saw_it_and_is_left_alone():
    """The second launch overwrote what the first one read: the values shown are those of then."""
    x, y = wb.array(X, dtype=F, requires_grad=True), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.launch(straight, N, inputs=[x], outputs=[y])
        wb.launch(straight, N, inputs=[y], outputs=[x])
    tape.backward(grads={x: wb.full(N, 1.0, dtype=F)})
    before = [a.numpy().copy() for a in (x, y, x.grad)]
    assert value(tape.microscope(0, 1), "a") == X[1]
    assert all(np.array_equal(a.numpy(), b) for a, b in zip((x, y, x.grad), before, strict=True))


def test_a_launch_without_gradients_is_shown_on_the_way_down():
    x, y = wb.array(X, dtype=F), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.launch(straight, N, inputs=[x], outputs=[y])
    m = tape.microscope(0, 2)
    assert value(m, "s") == X[2] * X[2] and all(s.phase == "forward" for s in m.steps) and m.note


@pytest.mark.host_memory
def test_declared_scalars_and_extremes_have_their_share():
    @wb.kernel
    def best(x: wb.array(dtype=F), p: F, top: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_max(top, 0, x[i] * p)

    x, p, top = (
        wb.array(X, dtype=F, requires_grad=True),
        wb.scalar(3.0, dtype=F, requires_grad=True),
        wb.zeros(1, dtype=F),
    )
    with wb.Tape() as tape:
        wb.launch(best, N, inputs=[x, p], outputs=[top])
    tape.backward(grads={top: wb.full(1, 1.0, dtype=F)})
    m = tape.microscope("best", 2)
    assert adjoint(m, "x[2]") == 3.0 and m.steps[-1].name == "p" and m.steps[-1].adjoint == X[2]
    assert adjoint(tape.microscope("best", 0), "x[0]") == 0.0


def test_it_is_plain_data_and_no_markup():
    m = seen(straight, np.array([np.inf, np.nan, 1.0]), 0)
    data = json.loads(json.dumps(m.to_json(), allow_nan=False))
    assert data["thread"] == [0] and data["steps"][1]["value"] == "inf"
    assert data["steps"][1]["where"]["text"].strip() == "a = x[i]"
    assert "<script>" not in Microscope(0, "<script>", (0,), m.steps)._repr_html_()
    assert len(repr(m).splitlines()) == len(m.steps) + 2

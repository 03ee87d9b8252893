"""The microscope where memory was not kept: what rests on unknown bytes is said to be unknown, and never shown."""

from __future__ import annotations

import html
import json
import random
import warnings

import numpy as np
import pytest

import workbench as wb
from tests.fuzz import kernels as fuzz
from tests.viz.test_microscope import F, N, X, adjoint, reread, straight, value
from workbench.tapes.needed_bytes import NeededBytes
from workbench.viz.inspect.thread import NOT_KEPT, Microscope

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def wave(u: wb.array(dtype=F), old: wb.array(dtype=F), k: wb.array(dtype=F)):
    i = wb.tid()
    old[i] = F(2.0) * u[i] - old[i] + k[i] * u[i]


def waved(keep="needed"):
    """`old` is linear in itself: no adjoint needs it, and the launch overwrites it."""
    u, old, k = wb.array([1.0], dtype=F), wb.array([10.0], dtype=F), wb.array([1.0], dtype=F, requires_grad=True)
    with wb.Tape(keep=keep) as tape:
        wb.launch(wave, 1, inputs=[u, old, k])
    tape.backward(grads={old: wb.ones(1, dtype=F)})
    return tape


@pytest.fixture
def starts_not_kept(monkeypatch):
    """Tapes as if the start of what they overwrite were not kept: then there is something in doubt."""
    monkeypatch.setattr(NeededBytes, "keep_start", lambda *_: None)


@pytest.mark.usefixtures("starts_not_kept")
def test_what_was_overwritten_and_not_kept_is_said_and_never_shown():
    m = waved().microscope(0, 0)
    assert [s.value for s in m.find("old[0]")] == [NOT_KEPT] * 2
    assert value(m, "k[0]") == 1.0 and [s.value for s in m.find("u[0]")] == [1.0, 1.0]
    assert [s.adjoint for s in m.find("old[0]", phase="reverse")] == [1.0, -1.0] and adjoint(m, "k[0]") == 1.0
    hint = 'wb.Tape(keep="all")'
    assert hint in m.note and hint in repr(m) and html.escape(hint) in m._repr_html_() and "-7" not in repr(m)
    data = json.loads(json.dumps(m.to_json(), allow_nan=False))
    assert [s["value"] for s in data["steps"] if s["name"] == "old[0]"] == ["not kept"] * 4 and hint in data["note"]
    assert [row[3] for row in m.table() if row[2] == "old[0]"] == ["not kept"] * 4


def test_a_tape_that_keeps_all_shows_all():
    m = waved("all").microscope(0, 0)
    assert [s.value for s in m.find("old[0]")] == [10.0, -7.0] and m.note == ""


def leaf(values):
    return wb.array(values, dtype=F, requires_grad=True)


def overwritten(kernel):
    """A tape of `kernel(x, w, y)`, walked from y, whose `w` a later launch has overwritten."""
    x, w, y = leaf(X), wb.array(X, dtype=F), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, N, inputs=[x, w], outputs=[y])
        wb.launch(straight, N, inputs=[x], outputs=[w])
    tape.backward(grads={y: wb.full(N, 1.0, dtype=F)})
    return tape


@wb.kernel
def local(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = w[i] * F(3.0)
    b = x[i] + a
    known = x[i] * F(2.0)
    y[i] = b
    z = y[i]
    y[i] = known
    last = y[i]
    y[i] = last + z


@wb.func
def halved(a: F):
    return F(0.5) * a


@wb.func_grad(halved)
def adj_halved(a: F, g: F):
    wb.adjoint[a] += F(0.5) * g


@wb.kernel
def halves(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    known = halved(x[i])
    doubtful = halved(w[i])
    y[i] = known + doubtful


@pytest.mark.usefixtures("starts_not_kept")
def test_doubt_goes_through_a_function_with_an_adjoint_of_its_own():
    tape = overwritten(halves)
    m = tape.microscope(0, 1)
    assert value(m, "known") == 0.5 * X[1] and value(m, "doubtful") == NOT_KEPT


@wb.kernel
def either(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = F(0.0)
    if x[i] > x[0]:
        a = F(2.0) * w[i]
    else:
        a = F(3.0) * x[i]
    y[i] = a


@wb.kernel
def or_else(x: wb.array(dtype=F), w: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = F(0.0)
    if x[i] <= x[0]:
        a = F(3.0) * x[i]
    else:
        a = F(2.0) * w[i]
    y[i] = a


@pytest.mark.usefixtures("starts_not_kept")
@pytest.mark.parametrize("kernel", [either, or_else])
def test_only_the_branch_that_was_taken_is_in_doubt(kernel):
    tape = overwritten(kernel)
    taken = int(np.argmax(X))
    assert X[taken] > X[0]
    assert tape.microscope(0, taken).find(f"y[{taken}]")[0].value == NOT_KEPT
    assert tape.microscope(0, 0).find("y[0]")[0].value == 3.0 * X[0]


@pytest.mark.usefixtures("starts_not_kept")
def test_doubt_follows_the_values_through_locals_and_memory():
    """A later launch overwrites `w`. What is written over unknown memory is known; read back is what went in."""
    tape = overwritten(local)
    m = tape.microscope(0, 1)
    assert {value(m, n) for n in ("a", "b", "z")} == {NOT_KEPT}
    assert value(m, "known") == 2 * X[1] == m.find("last")[0].value
    assert [s.value for s in m.find("y[1]")] == [NOT_KEPT, 2 * X[1], NOT_KEPT]
    assert adjoint(m, "b") == 1.0 and adjoint(m, "known") == 1.0
    assert tape.microscope(1, 1).note == ""


@wb.kernel
def deciding(x: wb.array(dtype=F), way: wb.array(dtype=int), y: wb.array(dtype=F), log: wb.array(dtype=int)):
    i = wb.tid()
    a = x[i] * F(2.0)
    n = way[i]
    if n > 0:
        b = i + 1
        log[1] = b
    else:
        b = i + 2
    c = b + 1
    for j in range(n):
        c = c + 1
    k = 0
    while k < n:
        k = k + 1
    d = log[n]
    e = log[1]
    f = log[0]
    log[n] = 0
    g = log[0]
    log[2] = c + d + e + f + g + k
    y[i] = a


@pytest.mark.usefixtures("starts_not_kept")
def test_behind_a_condition_a_bound_or_an_index_in_doubt_nothing_is_claimed():
    x, way, y, log = leaf([3.0]), wb.array([2], dtype=int), wb.zeros(1, dtype=F), wb.array([5, 6, 7], dtype=int)
    with wb.Tape() as tape:
        wb.launch(deciding, 1, inputs=[x, way], outputs=[y, log])
        way.fill_(50)
    tape.backward(grads={y: wb.ones(1, dtype=F)})
    m = tape.microscope(0, 0)
    assert value(m, "a") == 6.0 and m.find("n")[0].value == NOT_KEPT
    assert not m.find("b") and not any(s.iteration for s in m.steps)
    assert all(s.value == NOT_KEPT for name in "cdeg" for s in m.find(name))
    assert "left out" in m.note and 'keep="all"' in m.note
    assert adjoint(m, "a") == 1.0 and adjoint(m, "x[0]") == 2.0


@pytest.mark.usefixtures("starts_not_kept")
def test_a_loop_that_may_have_ended_is_shown_as_far_as_it_went_for_certain():
    @wb.kernel
    def ended(x: wb.array(dtype=F), way: wb.array(dtype=int), y: wb.array(dtype=F), log: wb.array(dtype=int)):
        i = wb.tid()
        s = 0
        for j in range(5):
            s = s + 1
            if j >= way[i]:
                break
        while True:
            log[2] = log[2] + 1
            if log[2] > way[i]:
                break
        log[0] = s
        a = x[i]
        for j in range(2):
            a = a * x[i]
            log[1] = j
        y[i] = a

    x, way, y, log = leaf([3.0]), wb.array([2], dtype=int), wb.zeros(1, dtype=F), wb.zeros(3, dtype=int)
    with wb.Tape() as tape:
        wb.launch(ended, 1, inputs=[x, way], outputs=[y, log])
        way.fill_(7)
    tape.backward(grads={y: wb.ones(1, dtype=F)})
    m = tape.microscope(0, 0)
    assert [(s.value, s.iteration) for s in m.find("s")] == [(0, ()), (1, (0,))]
    assert value(m, "log[0]") == NOT_KEPT and [s.value for s in m.find("log[1]")] == [0, 1]
    assert [s.value for s in m.find("a")] == [3.0, 9.0, 27.0] and value(m, "y[0]") == 27.0
    assert [s.adjoint for s in m.find("a", phase="reverse")] == [1.0, 3.0, 9.0]


@pytest.mark.usefixtures("starts_not_kept")
def test_an_index_in_doubt_that_leads_outside_ends_what_is_shown():
    @wb.kernel
    def far(x: wb.array(dtype=F), way: wb.array(dtype=int), y: wb.array(dtype=F), log: wb.array(dtype=int)):
        i = wb.tid()
        a = x[i] * F(2.0)
        log[1] = log[way[i] - 50]
        y[i] = a

    x, way, y, log = leaf([3.0]), wb.array([51], dtype=int), wb.zeros(1, dtype=F), wb.array([5, 6, 7], dtype=int)
    with wb.Tape() as tape:
        wb.launch(far, 1, inputs=[x, way], outputs=[y, log])
        way.fill_(0)
    tape.backward(grads={y: wb.ones(1, dtype=F)})
    m = tape.microscope(0, 0)
    assert value(m, "a") == 6.0 and not m.find("y[0]") and "left out" in m.note


@pytest.mark.usefixtures("starts_not_kept")
@pytest.mark.slow
@pytest.mark.parametrize("less", [0.0, 0.5])
def test_what_is_shown_is_what_a_tape_that_keeps_all_shows(less):
    """Random programs: every value and adjoint that is not said to be unknown, to the last bit."""
    compared = unknown = 0
    refused, programs = [], 2 if wb.config.backend == "c" else 20
    for seed in range(programs):
        program = fuzz.make(seed)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tapes = [_with_less(program, keep, less) for keep in ("needed", "all")]
            except fuzz.REFUSALS as refusal:
                refused.append(refusal.slug)
                continue
            some, every = (_microscopes(program, tape) for tape in tapes)
        for m, full in zip(some, every, strict=True):
            assert "ot kept" not in repr(full)
            if "left out" in m.note:
                continue
            for s, t in zip(m.steps, full.steps, strict=True):
                known = s.value != NOT_KEPT
                assert not known or repr(s.value) == repr(t.value), fuzz.describe(program)
                assert repr(s.adjoint) == repr(t.adjoint), fuzz.describe(program)
                compared, unknown = compared + known, unknown + (not known)
    assert len([slug for slug in refused if slug != "no-leaf"]) <= 0.1 * programs, refused
    assert wb.config.backend == "c" or (compared > 100 and unknown > 5)


def _with_less(program: fuzz.Program, keep: str, less: float) -> wb.Tape:
    """The program's tape where a share `less` of the inputs is without gradients."""
    program.compile()
    arrays, rng = program.arrays(program.contents(), True), random.Random(program.seed)
    for a in arrays.values():
        if isinstance(a, wb.array) and rng.random() < less:
            a.requires_grad = False
    return program.walked(arrays, keep)[0]


def _microscopes(program: fuzz.Program, tape: wb.Tape) -> list[Microscope]:
    """One thread of every launch."""
    rng = random.Random(program.seed)
    return [
        tape.microscope(k, tuple(rng.randrange(d) for d in e.command.plan.form.dims))
        for k, e in enumerate(tape.events)
        if e.command is not None
    ]


@wb.kernel
def added(x: wb.array(dtype=F), c: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] + c[i]


@pytest.mark.parametrize("keep", ["needed", "all"])
def test_memory_that_the_tape_does_not_watch_is_shown_as_it_is_now_and_that_is_said(keep):
    x, c, y = leaf(X), wb.array(X, dtype=F), wb.zeros(N, dtype=F)
    with wb.Tape(keep=keep) as tape:
        wb.launch(added, N, inputs=[x, c], outputs=[y])
    tape.backward(grads={y: wb.full(N, 1.0, dtype=F)})
    c.fill_(0.0)
    m = tape.microscope(0, 0)
    assert value(m, "c[0]") == (0.0 if keep == "needed" else X[0]) and value(m, "x[0]") == X[0]
    assert ("As memory is now, which the tape does not watch: c." in m.note) == (keep == "needed")


def test_memory_that_somebody_else_changed_since_is_not_shown():
    x, y = leaf(X), wb.zeros(N, dtype=F)
    with wb.Tape() as tape:
        wb.launch(added, N, inputs=[x, x], outputs=[y])
    tape.backward(grads={y: wb.full(N, 1.0, dtype=F)})
    assert tape.microscope(0, 0).note == ""
    x.fill_(0.0)
    m = tape.microscope(0, 0)
    assert {s.value for s in m.find("x[0]")} == {NOT_KEPT} and adjoint(m, "y[0]") == 1.0


@pytest.mark.slow
def test_a_checkpointed_loop_leaves_what_was_before_it():
    x, y, z = leaf(X), wb.zeros(N, dtype=F), wb.zeros(N, dtype=F)

    @wb.checkpoint(4, 2)
    def loop(k, y):
        wb.launch(reread, N, inputs=[y], outputs=[y])

    with wb.Tape() as tape:
        wb.launch(straight, N, inputs=[x], outputs=[y])
        wb.launch(added, N, inputs=[x, y], outputs=[y])
        loop(y)
        wb.launch(added, N, inputs=[x, y], outputs=[z])
        loop(y)
    tape.backward(grads={z: wb.full(N, 1.0, dtype=F)})
    assert value(tape.microscope(1, 0), "x[0]") == X[0]
    assert {value(tape.microscope(1, 0), cell) for cell in ("c[0]", "y[0]")} == {NOT_KEPT}  # it overwrote it
    assert tape.microscope(3, 0).note == ""

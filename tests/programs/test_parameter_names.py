"""A program means the same whatever its parameters are called, also what the compiler calls its own.

The programs `names_...` of the corpus are run with all others; here is what looks at an adjoint by its parameters: one
text with odd names and with plain ones, in every view. (Shadows are `d_x`, tangents `t_x`, `ir.Role` has them all.)
"""

from __future__ import annotations

import linecache

import numpy as np
import pytest
from corpus import Program, load

import workbench as wb
from workbench.derivatives import pitfalls
from workbench.kernels.ir import Role
from workbench.kernels.passes import stencil_adjoint
from workbench.launches import thresholds
from workbench.launches.race_check import races_of

# Gradients of overwritten arrays are read on purpose here; the warning about them has tests of its own.
pytestmark = [
    pytest.mark.sampled,
    pytest.mark.filterwarnings("ignore:.*overw:UserWarning"),
    pytest.mark.usefixtures("backend"),
]
F = wb.float64
TEXT = """
@wb.kernel
def k({0}: wb.array(dtype=F), {1}: wb.array(dtype=F), {2}: F, {3}: wb.array(dtype=F), {4}: wb.array(dtype=F)):
    i = wb.tid()
    for turn in range(2):
        {0}[i] = {0}[i] * {1}[i] + {2} * {1}[i]
    wb.atomic_max({3}, 0, {0}[i] * {1}[i])
    {4}[i] = {1}[i] * {0}[i] + {2} * wb.sin({1}[i])
"""
PLAIN = ("a", "b", "c", "e", "f")
ODD = [
    ("x", "d_x", "t_x", "d_d_x", "ties_x"),
    ("d_x", "x", "d_t_x", "after_d_x", "t_d_x"),
    ("top", "after_top", "d_top", "d_d_top", "ties_top"),
    ("e", "after_e", "ties_e", "after_after_e", "d_e"),
    ("x", "d_x_gap", "d_x_step0", "log_site", "log_state"),
    ("found", "owner_found", "by_found", "adder_found", "kind_found"),
]
RENAMED = pytest.mark.parametrize("names", ODD, ids="-".join)


class Run:
    """The text with these names, recorded and walked once."""

    def __init__(self, names: tuple[str, ...]):
        text, file = TEXT.format(*names), f"<names-{'-'.join(names)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope = {"wb": wb, "F": F}
        exec(compile(text, file, "exec"), scope)
        given = [0.5, 1.5, 0.75], [1.25, -0.5, 2.0], [0.125], [0.0] * 3
        self.x, self.d, self.top, self.y = (wb.array(v, dtype=F, requires_grad=True) for v in given)
        self.number = wb.scalar(0.25, dtype=F, requires_grad=True)
        self.tape = wb.Tape()
        with self.tape:
            wb.launch(scope["k"], 3, [self.x, self.d, self.number, self.top, self.y])
        self.tape.backward(grads=self.seeds())

    @property
    def arrays(self) -> tuple[wb.array, ...]:
        return self.x, self.d, self.top, self.y

    def seeds(self) -> dict[wb.array, wb.array]:
        return {a: wb.array(np.arange(1.0, 1 + a.size), dtype=F) for a in self.arrays}


def test_companions_take_the_next_free_name():
    program = Run(ODD[0]).tape.launches[0].command.program
    params = program.reverse(frozenset(ODD[0])).function.params
    assert [(p.name, p.role, p.belongs_to) for p in params[5:]] == [
        ("d_x_1", Role.SHADOW, "x"),
        ("d_d_x_1", Role.SHADOW, "d_x"),
        ("d_t_x", Role.SHADOW, "t_x"),
        ("d_d_d_x", Role.SHADOW, "d_d_x"),
        ("d_ties_x", Role.SHADOW, "ties_x"),
        ("after_d_d_x", Role.AFTER, "d_d_x"),
        ("ties_d_d_x", Role.TIES, "d_d_x"),
    ]


@RENAMED
def test_gradients_and_tangents(names):
    odd, plain = Run(names), Run(PLAIN)
    for one, other in zip((*odd.arrays, odd.number), (*plain.arrays, plain.number), strict=True):
        np.testing.assert_array_equal(one.grad.numpy(), other.grad.numpy())
    moved = wb.jvp(odd.tape, {odd.x: [1.0, 2.0, 3.0], odd.d: [3.0, 1.0, 2.0]})
    wanted = wb.jvp(plain.tape, {plain.x: [1.0, 2.0, 3.0], plain.d: [3.0, 1.0, 2.0]})
    for one, other in zip(odd.arrays, plain.arrays, strict=True):
        np.testing.assert_array_equal(moved[one], wanted[other])


@RENAMED
def test_the_gradients_are_those_of_differences(names):
    run = Run(names)
    command = run.tape.launches[0].command
    report = wb.gradcheck(command.program.kernel, 3, [run.x, run.d, 0.25, run.top, run.y], full=True)
    assert report


@RENAMED
@pytest.mark.host_memory
def test_the_ledger_has_the_same_rows(names):
    odd, plain = Run(names), Run(PLAIN)
    for one, other in zip(odd.arrays, plain.arrays, strict=True):
        for index in range(one.size):
            book, wanted = odd.tape.ledger(one, index, at="start"), plain.tape.ledger(other, index, at="start")
            rows = [(r.thread, r.where and r.where.line, r.value) for r in book.rows]
            assert rows == [(r.thread, r.where and r.where.line, r.value) for r in wanted.rows]
            assert book.total == wanted.total


@RENAMED
@pytest.mark.host_memory
def test_the_microscope_shows_the_same_steps(names):
    there = dict(zip(PLAIN, names, strict=True))
    for thread in range(3):
        steps = Run(names).tape.microscope(0, thread).steps
        wanted = Run(PLAIN).tape.microscope(0, thread).steps
        assert [(s.phase, s.where.line, s.value, s.adjoint) for s in steps] == [
            (s.phase, s.where.line, s.value, s.adjoint) for s in wanted
        ]
        heads = [s.name.partition("[")[0] for s in wanted]
        assert [s.name.partition("[")[0] for s in steps] == [there.get(h, h) for h in heads]


@RENAMED
@pytest.mark.parametrize("pitfall", [p for p in pitfalls.ALL if p.adjoint is not None], ids=lambda p: p.name)
@pytest.mark.host_memory
def test_the_classic_mistakes_make_the_same_wrong_numbers(names, pitfall):
    odd, plain = Run(names), Run(PLAIN)
    wrong = odd.tape.backward(grads=odd.seeds(), pitfall=pitfall)
    wanted = plain.tape.backward(grads=plain.seeds(), pitfall=pitfall)
    for one, other in zip(odd.arrays, plain.arrays, strict=True):
        np.testing.assert_array_equal(wrong[one], wanted[other])


@RENAMED
def test_findings_name_what_was_launched(names):
    found = [(f.slug, f.where and f.where.line) for f in Run(names).tape.diagnose()]
    assert found == [(f.slug, f.where and f.where.line) for f in Run(PLAIN).tape.diagnose()]


@pytest.mark.needs_cc
def test_an_adjoint_that_pulls_adds_its_own_parts(monkeypatch, backend):
    program = load()["names_of_parts_of_a_stencil"]
    want = gradients(program, monkeypatch, 1 << 60)[1]
    monkeypatch.setattr(stencil_adjoint, "PULLED", 1 << 20)
    for name in ("exp", "mul"):
        monkeypatch.setitem(wb.kernels.ops.ROWS[name].__dict__, "cheap", True)
    back, got = gradients(program, monkeypatch, 1)
    if backend == "c":
        assert back.pull is not None
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-12, atol=1e-12, err_msg=name)


def gradients(program: Program, monkeypatch, limit: int):
    for name in ("PARALLEL_FROM", "PULL_FROM"):
        monkeypatch.setattr(thresholds, name, limit)
    monkeypatch.setattr(program, "made", {})
    arrays, tape = program.arrays(F, program.start()), wb.Tape()
    with tape:
        program.run(F, arrays)
    tape.backward(grads={a: wb.ones_like(a) for a in arrays.values()})
    return tape.launches[0].reverse, {name: a.grad.numpy() for name, a in arrays.items()}


def test_the_race_finder_knows_that_marks_of_shared_memory_share_it():
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F), at: wb.array(dtype=int)):
        i = wb.tid()
        y[at[i]] = x[i]

    memory = wb.array(np.arange(8.0), dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(k, 4, [memory[2:6], memory[0:4], wb.array([0, 1, 2, 3], dtype=int)])
    races = races_of(tape.launches[0].command.plan)
    assert races is not None and not races.executable.variant.restrict
    with pytest.raises(wb.GradientError, match=r"\[race\]"):
        tape.backward(grads={memory: wb.ones(8, dtype=F)})

"""The ledger: contributions that sum to the cell, each with its thread, line, name and value."""

from __future__ import annotations

import json
import math
import random
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import workbench as wb
from tests.fuzz import kernels as fuzz
from workbench.arrays.span import Span
from workbench.errors import GradientError
from workbench.kernels.passes import ledger_adjoint
from workbench.viz.inspect import ledger as ledgers_of, ledger_table

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def neighbours(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[(i + 1) % x.shape[0]]


@wb.kernel
def square_all(x: wb.array(dtype=float)):
    i = wb.tid()
    x[i] = x[i] * x[i]


@wb.kernel
def total(y: wb.array(dtype=float), loss: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_add(loss, 0, y[i])


@wb.kernel
def share(p: wb.array(dtype=float), w: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = p[0] * w[i]


@wb.kernel
def highest(x: wb.array(dtype=float), top: wb.array(dtype=float)):
    i = wb.tid()
    wb.atomic_max(top, 0, x[i])


@wb.kernel
def turn(v: wb.array(dtype=wb.vec3), m: wb.array(dtype=wb.mat22), y: wb.array(dtype=float)):
    i = wb.tid()
    u = v[i]
    y[i] = u[0] * u[1] + m[i][0, 1] * u[2] + m[i][1, 1]


@wb.struct
class Body:
    q: wb.vec3
    m: float


@wb.kernel
def energy(b: wb.array(dtype=Body), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = b[i].m * wb.dot(b[i].q, b[i].q)


def vector(*values, grad=True):
    return wb.array(list(values), dtype=float, requires_grad=grad)


def entries(book):
    return [(r.position, r.thread, r.name, r.value) for r in book.rows]


def test_each_thread_that_read_the_cell_is_one_row_with_its_share():
    x, y, loss = vector(1, 2, 3, 4), wb.zeros(4, dtype=float), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(neighbours, 4, inputs=[x], outputs=[y])
        wb.launch(total, 4, inputs=[y], outputs=[loss])
    tape.backward(loss)
    book = tape.ledger(x, 2)
    assert entries(book) == [(0, (1,), "x", 2.0), (0, (2,), "x", 4.0)]
    assert [r.running for r in book.rows] == [2.0, 6.0]
    assert (book.total, book.published, book.rounding) == (6.0, float(x.grad.numpy()[2]), 0.0)
    assert book.array == "x" and book.index == (2,)
    assert all("x[(i + 1) % x.shape[0]]" in r.where.text and r.heading == "#0 neighbours" for r in book.rows)


def test_an_overwrite_in_place_leaves_only_what_came_after_it_in_reverse():
    x, loss = vector(2, 3), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square_all, 2, inputs=[x])
        wb.launch(square_all, 2, inputs=[x])
        wb.launch(total, 2, inputs=[x], outputs=[loss])
    tape.backward(loss)
    assert entries(tape.ledger(x, 1)) == [(2, (1,), "x", 1.0)]  # by the final contents
    assert entries(tape.ledger(x, 1, at=1)) == [(1, (1,), "x", 18.0)]
    assert entries(tape.ledger(x, 1, at=tape.events[0])) == [(0, (1,), "x", 108.0)]
    assert tape.ledger(x, 1, at="start").total == 108.0 == float(x.grad.numpy()[1])


def test_two_names_of_one_memory_give_rows_under_their_own_names():
    x, y, z = vector(1, 2, 3), wb.zeros(2, dtype=float), wb.zeros(3, dtype=float)
    tail = x[1:]
    with wb.Tape() as tape:
        wb.launch(neighbours, 2, inputs=[tail], outputs=[y])
        wb.launch(square_all, 3, inputs=[z])
        wb.launch(neighbours, 3, inputs=[x], outputs=[z])
    tape.backward(grads={y: wb.full(2, 1.0, dtype=float), z: wb.full(3, 1.0, dtype=float)})
    book = tape.ledger(x, 1)
    assert entries(book) == [(2, (0,), "x", 1.0), (2, (1,), "x", 3.0), (0, (0,), "tail", 3.0), (0, (1,), "tail", 3.0)]
    assert entries(tape.ledger(tail, 0)) == entries(book)


def test_a_seed_is_the_first_row_and_a_store_uses_it_up():
    x, y = vector(2), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square_all, 1, inputs=[x])
        wb.launch(neighbours, 1, inputs=[x], outputs=[y])
    tape.backward(grads={x: wb.full(1, 10.0, dtype=float), y: wb.full(1, 1.0, dtype=float)})
    rows = tape.ledger(x, 0, at=1).rows  # the thread reads the cell twice, under two indices
    assert [(r.kind, r.value) for r in rows] == [("seed", 10.0), ("launch", 4.0), ("launch", 4.0)]
    assert [(r.kind, r.value) for r in tape.ledger(x, 0, at="start").rows] == [("launch", 72.0)]


def test_a_copy_gives_one_row_and_clears_its_target():
    x, y, loss = vector(1, 2, 3), vector(0, 0, 0), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.copy(y, x)
        wb.copy(y, x, dest_offset=0, src_offset=1, count=2)
        wb.launch(total, 3, inputs=[y], outputs=[loss])
    tape.backward(loss)
    assert [(r.position, r.kind, r.thread, r.value) for r in tape.ledger(x, 2).rows] == [
        (1, "copy", None, 1.0),
        (0, "copy", None, 1.0),
    ]
    assert tape.ledger(y, 0, at="start").rows == ()


def test_components_of_vectors_and_matrices_are_cells_of_their_own():
    v = wb.array([[1, 2, 3], [4, 5, 6]], dtype=wb.vec3, requires_grad=True)
    m = wb.array(np.arange(8).reshape(2, 2, 2), dtype=wb.mat22, requires_grad=True)
    y = wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(turn, 2, inputs=[v, m], outputs=[y])
    tape.backward(grads={y: wb.full(2, 1.0, dtype=float)})
    assert [tape.ledger(v, (1, k)).total for k in range(3)] == [5.0, 4.0, 5.0]
    assert [tape.ledger(m, (1, i, j)).total for i in range(2) for j in range(2)] == [0.0, 6.0, 0.0, 1.0]
    assert entries(tape.ledger(m, (-1, 0, 1))) == [(0, (1,), "m", 6.0)]


@wb.kernel
def by_components(v: wb.array(dtype=wb.vec3), m: wb.array(dtype=wb.mat22), w: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    w[i][1] = v[i][0] * m[i][0, 1]
    w[i][2] += m[i][1, 0] * v[i][2]


def test_components_that_are_read_and_written_alone_sum_to_the_gradient():
    """And to the product rule: dv[i] = (w1 m01, 0, w2 m10), dm[i] = ((0, w1 v0), (w2 v2, 0)), dw[i] = (w0, 0, w2)."""
    rng = np.random.default_rng(0)
    values, seed = (
        [rng.integers(1, 9, (2, *s)).astype(float) for s in ((3,), (2, 2), (3,))],
        np.array([[1, 2, 3.0]] * 2),
    )
    v, m, w = (
        wb.array(a, dtype=t, requires_grad=True) for a, t in zip(values, (wb.vec3, wb.mat22, wb.vec3), strict=True)
    )
    with wb.Tape() as tape:
        wb.launch(by_components, 2, inputs=[v, m], outputs=[w])
    tape.backward(grads={w: wb.array(seed, dtype=wb.vec3)})
    for i, (a, b) in enumerate(zip(*values[:2], strict=True)):
        assert [tape.ledger(v, (i, k)).total for k in range(3)] == [2 * b[0, 1], 0.0, 3 * b[1, 0]]
        assert [tape.ledger(m, (i, *k)).total for k in np.ndindex(2, 2)] == [0.0, 2 * a[0], 3 * a[2], 0.0]
        assert [tape.ledger(w, (i, k), at="start").total for k in range(3)] == [1.0, 0.0, 3.0]


def test_what_a_gradient_of_the_user_takes_away_counts_below_zero():
    @wb.func
    def doubled(x: wb.array(dtype=float), i: int) -> float:
        return 2.0 * x[i]

    @wb.func_grad(doubled)
    def doubled_back(x: wb.array(dtype=float), i: int, g: float):
        wb.adjoint[x][i] += 5.0 * g
        wb.adjoint[x][i] -= 3.0 * g

    @wb.kernel
    def k(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = doubled(x, i)

    x, y = vector(1, 2), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(k, 2, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.array([1.0, 4.0], dtype=float)})
    assert entries(tape.ledger(x, 1)) == [(0, (1,), "x", 20.0), (0, (1,), "x", -12.0)]


def test_fields_of_structs_are_named():
    b = wb.zeros(2, dtype=Body, requires_grad=True)
    records = b.numpy().copy()
    records["q"], records["m"] = [[1, 2, 3], [4, 5, 6]], [2, 3]
    b.assign(records)
    y = wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(energy, 2, inputs=[b], outputs=[y])
    tape.backward(grads={y: wb.full(2, 1.0, dtype=float)})
    assert tape.ledger(b, ("q", 1, 2)).total == 2 * 3 * 6
    book = tape.ledger(b, (1, "m"))
    assert (book.array, book.index, book.rows[0].name) == ("b.m", (1,), "b.m")
    assert book.total == 77.0
    with pytest.raises(GradientError, match="q, m"):
        tape.ledger(b, 1)


def test_a_declared_scalar_gets_a_row_of_every_thread():
    @wb.kernel
    def scale(x: wb.array(dtype=float), p: float, y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = x[i] * p

    x, p, y = vector(1, 2, 4, grad=False), wb.scalar(3.0, requires_grad=True), wb.zeros(3, dtype=float)
    with wb.Tape() as tape:
        wb.launch(scale, 3, inputs=[x, p], outputs=[y])
    tape.backward(grads={y: wb.full(3, 1.0, dtype=float)})
    assert [(r.thread, r.value) for r in tape.ledger(p).rows] == [((0,), 1.0), ((1,), 2.0), ((2,), 4.0)]


@pytest.mark.host_memory
def test_extremes_share_and_keep():
    x, top = vector(1, 5, 5), vector(0)
    with wb.Tape() as tape:
        wb.launch(highest, 3, inputs=[x], outputs=[top])
        wb.launch(highest, 3, inputs=[x], outputs=[top])
    tape.backward(grads={top: wb.full(1, 1.0, dtype=float)})
    book = tape.ledger(x, 1)
    assert [(r.position, r.thread) for r in book.rows] == [(1, (1,)), (0, (1,))]
    assert [r.value for r in book.rows] == pytest.approx([1 / 3, 1 / 6])
    assert [r.value for r in tape.ledger(top, 0, at=1).rows] == pytest.approx([1 / 3])
    assert tape.ledger(top, 0, at="start").rows == ()


def test_many_threads_on_one_cell_become_one_row_per_line_with_the_same_sum():
    n = 3 * ledger_adjoint.ENTRIES if wb.config.backend == "c" else ledgers_of.JOINED + 50
    w = np.random.default_rng(0).uniform(-1, 1, n).astype(np.float32)
    p, y = vector(2), wb.zeros(n, dtype=float)
    with wb.Tape() as tape:
        wb.launch(share, n, inputs=[p, wb.array(w, dtype=float), y])
    tape.backward(grads={y: wb.full(n, 1.0, dtype=float)})
    (row,) = tape.ledger(p, 0).rows
    assert (row.count, row.thread) == (n, None)
    assert row.value == pytest.approx(w.astype(float).sum(), rel=1e-12)


def test_looking_changes_nothing():
    x, y, loss = vector(1, 2, 3, 4), wb.zeros(4, dtype=float), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(neighbours, 4, inputs=[x], outputs=[y])
        wb.launch(square_all, 4, inputs=[y])
        wb.launch(total, 4, inputs=[y], outputs=[loss])
    tape.backward(loss)
    before = [a.numpy().copy() for a in (x, y, loss, x.grad)]
    tape.ledger(y, 2, at=1)
    tape.ledger(x, 2)
    assert all(np.array_equal(a.numpy(), b) for a, b in zip((x, y, loss, x.grad), before, strict=True))
    assert tape.ledger(x, 2) == tape.ledger(x, 2)


def test_what_a_launch_of_a_gpu_goes_through_gives_the_same_rows(monkeypatch):
    """There everything is copied to the host first; here the same is done with memory that is there already."""
    v = wb.array([[1, 2, 3], [4, 5, 6]], dtype=wb.vec3, requires_grad=True)
    m = wb.array(np.arange(8).reshape(2, 2, 2), dtype=wb.mat22, requires_grad=True)
    x, p, y, z = vector(1, 2), vector(2), wb.zeros(2, dtype=float), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(turn, 2, inputs=[v, m], outputs=[y])
        wb.launch(square_all, 2, inputs=[y])
        wb.launch(square_all, 2, inputs=[x])
        wb.launch(share, 2, inputs=[p, x, z])
    tape.backward(grads={a: wb.full(2, 1.0, dtype=float) for a in (x, y, z)})
    cells = [(x, 1, "start"), (x, 1, 2), (p, 0, None), (v, (1, 0), None), (m, (1, 0, 1), None), (y, 1, 1)]
    usual = [tape.ledger(*cell) for cell in cells]
    spaces, before = [], ledgers_of.Collector.before

    def noted(self, event, space):
        spaces.append(space)
        before(self, event, space)

    def on_host(self, event, copies, executable, log):
        self.run_on_host(event, spaces[-1], executable, log)

    monkeypatch.setattr(ledgers_of.Collector, "before", noted)
    monkeypatch.setattr(ledgers_of.Collector, "run_beside", on_host)
    assert [tape.ledger(*cell) for cell in cells] == usual and sum(len(book.rows) for book in usual) > 5


def test_a_checkpointed_loop_is_one_row():
    pytest.importorskip("checkpoint_schedules")

    @wb.kernel
    def advance(x: wb.array(dtype=float), p: wb.array(dtype=float)):
        i = wb.tid()
        x[i] = x[i] * p[0]

    @wb.checkpoint(steps=4, budget=2)
    def loop(k, x):
        wb.launch(advance, 2, inputs=[x, p])

    x, p, loss = vector(1, 2), vector(2), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        wb.launch(square_all, 2, inputs=[x])
        loop(x)
        wb.launch(total, 2, inputs=[x], outputs=[loss])
    tape.backward(loss)
    assert [(r.position, r.kind, r.value) for r in tape.ledger(p, 0).rows] == [(1, "loop", 160.0)]
    assert [(r.position, r.kind, r.value) for r in tape.ledger(x, 1, at=1).rows] == [(1, "loop", 16.0)]
    assert tape.ledger(x, 1, at="start").total == 64.0 == float(x.grad.numpy()[1])


def test_a_sum_that_rounding_does_not_explain_is_an_error(monkeypatch):
    x, y = vector(1, 2), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(neighbours, 2, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.full(2, 1.0, dtype=float)})
    monkeypatch.setattr(ledgers_of.Collector, "enter", lambda *_: None)
    with pytest.raises(GradientError, match=r"\[ledger-sum\]") as info:
        tape.ledger(x, 0)
    assert "x[0]" in str(info.value)


@pytest.mark.parametrize(
    ("index", "text"), [(7, "outside axis 0"), ((0, 0), "1 whole numbers"), (0.5, "whole"), ((), "whole")]
)
def test_an_index_that_fits_no_number_says_what_does(index, text):
    x, y = vector(1, 2), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(neighbours, 2, inputs=[x], outputs=[y])
    with pytest.raises(GradientError, match=r"\[no-seed\]"):
        tape.ledger(x, 0)
    tape.backward(grads={y: wb.full(2, 1.0, dtype=float)})
    with pytest.raises(GradientError, match=text):
        tape.ledger(x, index)
    with pytest.raises(GradientError, match="no event of this tape"):
        tape.ledger(x, 0, at=9)


def test_it_is_shown_as_text_table_and_picture_with_names_that_are_no_markup():
    x, y = vector(1, -2, 3), wb.zeros(3, dtype=float)
    with wb.Tape() as tape:
        wb.launch(neighbours, 3, inputs=[x], outputs=[y])
    x.name = "<script>$x^{"
    tape.backward(grads={y: wb.full(3, 1.0, dtype=float)})
    book = tape.ledger(x, 0)
    lines = repr(book).splitlines()
    assert len(lines) == 2 + len(book.rows) + 1 and "rounding" in lines[-1] and "+3" in repr(book)
    assert "<script>" not in book._repr_html_() and "&lt;script&gt;" in book._repr_html_()
    figure = book.plot()
    figure.canvas.draw()
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()][-2] == "rounding  +0"
    data = json.loads(json.dumps(book.to_json(), allow_nan=False))
    assert data["rows"][0]["thread"] == [0] and data["rows"][0]["where"]["line"] == book.rows[0].where.line


def test_not_a_number_is_a_contribution_and_text_in_json():
    @wb.kernel
    def root(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = wb.sqrt(x[i])

    x, y = vector(0, -1), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(root, 2, inputs=[x], outputs=[y])
    tape.backward(grads={y: wb.full(2, 1.0, dtype=float)})
    assert tape.ledger(x, 0).to_json()["published"] == "inf"
    book = tape.ledger(x, 1)
    assert math.isnan(book.total) and book.rounding == 0.0 and book.to_json()["rows"][0]["value"] == "nan"
    assert "nan" in repr(book) and book.plot() is not None


def test_a_long_ledger_is_listed_by_its_ends():
    x, loss = vector(1.0), wb.zeros(1, dtype=float)
    with wb.Tape() as tape:
        for _ in range(300):
            wb.launch(total, 1, inputs=[x], outputs=[loss])
    tape.backward(loss)
    book = tape.ledger(x, 0)
    assert len(book.rows) == 300 and book.total == 300.0
    assert len(repr(book).splitlines()) == ledger_table.LISTED + 4 and "… 100 rows" in repr(book)
    assert len(book.bars()) == ledger_table.DRAWN and sum(v for _, v in book.bars()) == 300.0


# ---- random tapes


def ledgers(program: fuzz.Program, tape: wb.Tape, arrays: dict, seeds: dict) -> list[tuple]:
    """Some cells of a random tape at some moments: the walk's own number and the rows."""
    rng, found = random.Random(program.seed), []
    for _ in range(8):
        a = arrays[rng.choice(sorted(seeds) or ["A"])]
        field = rng.choice("av") if a is arrays["P"] else ""
        part = a.field(field) if field else a
        index = tuple(rng.randrange(n) for n in (*part.shape, *getattr(part.dtype, "shape", ())))
        if not tape.log.has_touched(part.span):  # nothing to ask: refused
            continue
        at = rng.choice([None, *tape.events])
        if part.allocation not in tape.active:  # its own seed or zero, or refused where that would be wrong
            try:
                g = tape.adjoint(part, at)
                own = tape.adjoint(part)  # of its final contents
                assert np.all((g == 0) | (g == own)), fuzz.describe(program)
                assert at is None or part.allocation in tape.last_seeds or not np.any(g)
            except wb.GradientError as refusal:
                assert refusal.slug == "not-active"
            continue
        book = tape.ledger(a, (field, *index) if field else index, at)
        found.append((book, tape.adjoint(part, at)[index]))
    return found


@pytest.mark.slow
def test_on_random_tapes_the_rows_sum_to_what_the_walk_says(backend):
    """Views, structs, atomics, loops, copies, overwrites in place; the sum is checked by `ledger` itself too."""
    programs, rows, refused = 30 if backend == "numpy" else 6, [], []

    @settings(
        max_examples=programs,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def one(randomness):
        program = fuzz.Generator(randomness).program()
        program.compile()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                walked = program.walked()
            except fuzz.REFUSALS as refusal:
                refused.append(refusal.slug)
                return
            found = ledgers(program, *walked)
        for book, want in found:
            rows.append(len(book.rows))
            total = float(np.sum([r.value for r in book.rows])) if book.rows else 0.0
            size = float(np.sum([abs(r.value) for r in book.rows])) if book.rows else 0.0
            if math.isfinite(total):
                assert abs(total - float(want)) <= 1e-13 * max(size, 1e-300), fuzz.describe(program)

    one()
    assert sum(rows) > 2 * programs and len(refused) <= 0.1 * programs, refused


@pytest.mark.sampled
@pytest.mark.needs_cc
@pytest.mark.parametrize("backend", ["numpy"], indirect=True)
@pytest.mark.parametrize("seed", [3, 11, 24, 311])
def test_both_backends_give_the_same_rows(seed):
    program, found = fuzz.make(seed), []
    program.compile()
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for wb.config.backend in ("numpy", "c"):
            found.append(ledgers(program, *program.walked()))
    for (mine, _), (theirs, _) in zip(*found, strict=True):
        key = [(r.position, r.thread, r.kind, r.where) for r in mine.rows]
        assert [(r.position, r.thread, r.kind) for r in theirs.rows] == [k[:3] for k in key]
        values = [[r.value for r in b.rows] for b in (mine, theirs)]
        assert np.allclose(*values, rtol=1e-9, atol=1e-12, equal_nan=True)


@wb.kernel
def wave(u: wb.array(dtype=float), old: wb.array(dtype=float), k: wb.array(dtype=float)):
    i = wb.tid()
    old[i] = 2.0 * u[i] - old[i] + k[i] * u[i]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [None, *range(8)])
def test_memory_that_was_not_kept_makes_no_difference(seed):
    """Contributions are computed from what adjoints read, which is kept: a tape that keeps all gives the same rows."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        some, every = (of_all(seed, keep) for keep in ("needed", "all"))
    assert some == every and (seed is not None or "row of k" in some)


def of_all(seed, keep):
    """Every row of some cell of every array, as text; a launch that overwrites what nobody needs for seed None."""
    if seed is None:
        k, u = wb.array([1.0], dtype=float, requires_grad=True), wb.array([1.0], dtype=float)
        arrays = {"k": k, "old": wb.array([10.0], dtype=float)}
        with wb.Tape(keep=keep) as tape:
            wb.launch(wave, 1, inputs=[u, arrays["old"], k])
        tape.backward(grads={arrays["old"]: wb.ones(1, dtype=float)})
    else:
        program = fuzz.make(seed)
        program.compile()
        tape, arrays, _ = program.walked(keep=keep)
    found = []
    for name, a in arrays.items():
        if a.dtype in (float, wb.float32, wb.float64) and a.size and tape.log.has_touched(a.span):
            book = tape.ledger(a, tuple(0 for _ in a.shape), at="start")
            for r in book.rows:
                line = r.where.line if r.where is not None else 0
                found.append(f"row of {name}: {r.position} {r.thread} {line} {r.value!r}")
    return "\n".join(found)


def test_the_elements_that_hold_a_byte_are_those_that_a_search_finds():
    numbers, found = np.random.default_rng(1), 0
    memory = wb.zeros(64).allocation
    for _ in range(60):
        axes = int(numbers.integers(0, 4))
        shape = tuple(numbers.integers(1, 5, axes).tolist())
        strides = tuple((4 * numbers.integers(-6, 7, axes)).tolist())
        span = Span(memory, int(numbers.integers(0, 20)) * 4, shape, strides, int(numbers.choice([4, 8, 12])))
        for offset in range(-20, 140, 4):
            searched = []
            for index in np.ndindex(shape):
                gap = offset - span.offset - sum(i * s for i, s in zip(index, strides, strict=True))
                searched += [(index, gap)] if 0 <= gap < span.itemsize else []
            assert sorted(ledgers_of.elements_at(span, offset)) == searched
            found += len(searched)
    assert found > 500


def test_what_was_not_followed_is_refused_and_never_zero(backend):
    @wb.kernel
    def product(x: wb.array[float], p: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        y[i] = x[i] * x[i] * p[0]

    x, p, y, z = wb.ones(3), wb.ones(1, requires_grad=True), wb.zeros(3), wb.ones(3)
    with wb.Tape() as tape:
        wb.launch(product, 3, [x, p], [y])
        wb.launch(product, 3, [z, z], [x])  # off all active paths: nothing depends on z
    tape.backward(grads={y: wb.ones(3)})
    for ask in (lambda: tape.adjoint(x), lambda: tape.ledger(x, 1)):
        with pytest.raises(wb.GradientError, match="x is on no active path") as refused:
            ask()
        assert refused.value.slug == "not-active"
    assert not tape.adjoint(z).any() and not tape.ledger(z, 1).rows

"""A gradient stopped on purpose: `wb.detach` of arrays, scalars and numbers, and in kernels; `clone` without one."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, X, cube, empty, leaf, seed, square
from workbench.derivatives import pitfalls
from workbench.viz.data.columns import Columns, levels_of
from workbench.viz.data.gather import gather
from workbench.viz.data.trace import event_flags
from workbench.viz.picture.scene import Picture
from workbench.viz.picture.svg import render


@wb.kernel
def times(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F)):
    i = wb.tid()
    z[i] = x[i] * y[i]


@wb.kernel
def times_detached(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = wb.detach(x[i]) * x[i] * x[i]


def cut_between(detach, **options):
    """z = x * c where c = x**2, which is detached: the gradient by x is c, not 3 x**2."""
    x, y, z = leaf(), empty(), empty()
    with wb.Tape(**options) as tape:
        wb.launch(square, 4, [x], [y])
        c = detach(y)
        wb.launch(times, 4, [x, c], [z])
    return tape, x, y, z, c


WAYS = {"detach": wb.detach, "method": lambda a: a.detach(), "clone": lambda a: wb.clone(a, requires_grad=False)}


@pytest.mark.parametrize("way", WAYS)
def test_no_gradient_passes_a_detached_array(backend, way):
    tape, x, y, z, c = cut_between(WAYS[way])
    assert not c.requires_grad and c.allocation is not y.allocation
    np.testing.assert_array_equal(c.numpy(), X**2)
    tape.backward(grads={z: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), X**2)
    assert tape.events[1].kind == "cut"


def test_a_clone_that_does_not_say_so_passes_the_gradient(backend):
    for more in ({}, {"requires_grad": True}):
        tape, x, _, z, _ = cut_between(lambda y, more=more: wb.clone(y, **more))
        tape.backward(grads={z: seed(*ONE)})
        np.testing.assert_allclose(x.grad.numpy(), 3 * X**2)


def test_copies_of_arrays_are_no_cuts(backend):
    tape, x, _, z, _ = cut_between(wb.array)
    tape.backward(grads={z: seed(*ONE)})
    np.testing.assert_allclose(x.grad.numpy(), 3 * X**2)


def test_what_a_cut_made_may_start_a_leaf(backend):
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [y])
        c = wb.detach(y)
        c.requires_grad = True
        wb.launch(square, 4, [c], [z])
    for k in (1, 2):
        tape.backward(grads={z: seed(*ONE)})
        np.testing.assert_allclose(c.grad.numpy(), 2 * k * X**2)
        np.testing.assert_array_equal(x.grad.numpy(), 0)
    np.testing.assert_allclose(wb.jvp(tape, {c: ONE})[z], 2 * X**2)
    np.testing.assert_array_equal(wb.jvp(tape, {x: ONE})[z], 0)
    assert wb.jacobian(tape, z, c, sparse=True).nnz == 4


def test_what_is_only_detached_can_be_seeded(backend):
    x = leaf()
    with wb.Tape() as tape:
        wb.detach(x)
    x.grad.zero_()
    tape.backward(grads={x: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 1)
    with wb.Tape() as tape:
        c = wb.detach(x)
    c.requires_grad = True
    c.grad.fill_(2.0)
    with pytest.warns(UserWarning, match="leaves accumulate"):
        tape.backward(grads={c: seed(*ONE)})
    np.testing.assert_array_equal(c.grad.numpy(), 3)


@pytest.mark.parametrize("dtype", [wb.float32, wb.float64, wb.float16, wb.int32, wb.vec3, wb.mat22, wb.quat])
def test_arrays_of_every_type_and_views_are_detached(dtype):
    x = wb.array(np.arange(24).reshape(-1, *getattr(dtype, "shape", ())), dtype=dtype)
    with wb.Tape() as tape:
        for part in (x, x[1:3], x[::2]):
            got = wb.detach(part)
            assert got.dtype == dtype and got.is_contiguous
            np.testing.assert_array_equal(got.numpy(), part.numpy())
    assert [e.kind for e in tape.events] == ["cut"] * 3


@wb.struct
class Pair:
    p: wb.float64
    q: wb.float64


@wb.kernel
def of_pairs(a: wb.array(dtype=Pair), b: wb.array(dtype=Pair), z: wb.array(dtype=F)):
    i = wb.tid()
    z[i] = a[i].p * b[i].q


def test_arrays_of_structs_are_detached(backend):
    a = wb.zeros(4, dtype=Pair, requires_grad=True)
    a.field("p").assign(X)
    a.field("q").assign(X + 1)
    z = empty()
    with wb.Tape() as tape:
        wb.launch(of_pairs, 4, [a, wb.detach(a)], [z])
    tape.backward(grads={z: seed(*ONE)})
    np.testing.assert_allclose(a.grad.field("p").numpy(), X + 1)
    np.testing.assert_array_equal(a.grad.field("q").numpy(), 0)


@wb.kernel
def scaled(s: wb.float64, t: wb.float64, x: wb.array(dtype=F), z: wb.array(dtype=F)):
    i = wb.tid()
    z[i] = s * t * x[i]


def test_a_detached_scalar_is_its_value(backend):
    s, x, z = wb.scalar(3.0, dtype=F, requires_grad=True), leaf(), empty()
    with wb.Tape() as tape:
        wb.launch(scaled, 4, [s, wb.detach(s), x], [z])
    tape.backward(grads={z: seed(*ONE)})
    assert s.grad.item() == pytest.approx(3 * X.sum())


def test_values_of_the_host_are_detached_as_they_are():
    class Marked(np.ndarray):
        pass

    plain = wb.detach(np.arange(3.0).view(Marked))
    assert type(plain) is np.ndarray and plain.tolist() == [0, 1, 2]
    assert wb.detach(2.5) == 2.5
    for value in (3, True, np.float32(1.5), np.int64(2)):
        assert wb.detach(value) is value
    v = wb.vec3(1.0, 2.0, 3.0)
    assert wb.detach(v) is v
    x = leaf()
    a, (b,) = wb.detach([x, (x,)])
    assert not a.requires_grad and not b.requires_grad
    with pytest.raises(TypeError, match="each array or number"):
        wb.detach(Pair())


def test_detach_in_a_kernel_makes_a_constant(backend):
    x, y = leaf(), empty()
    with wb.Tape(keep="all") as tape:
        wb.launch(times_detached, 4, [x], [y])
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(y.numpy(), X**3)
    np.testing.assert_allclose(x.grad.numpy(), 2 * X**2)
    np.testing.assert_allclose(wb.jvp(tape, {x: ONE})[y], 2 * X**2)
    assert sum(r.value for r in tape.ledger(x, 1).rows) == pytest.approx(2 * X[1] ** 2)
    assert "detach" in str(tape.microscope(tape.events[0], 1))


def test_second_derivatives_hold_what_is_detached(backend):
    """y = c x**2 with c = x held: its gradient 2 c x has the derivative 2 c."""

    @wb.kernel
    def added(y: wb.array(dtype=F), loss: wb.array(dtype=F)):
        wb.atomic_add(loss, 0, y[wb.tid()])

    x, y, loss = leaf(), empty(), empty(1)
    with wb.Tape(keep="all") as tape:
        wb.launch(times_detached, 4, [x], [y])
        c = wb.detach(y)
        wb.launch(times, 4, [y, c], [z := empty()])
        wb.launch(added, 4, [z], [loss])
    got = wb.hvp(tape, loss, {x: ONE})[x]
    np.testing.assert_allclose(got, 2 * X * X**3)


V3, M22, Q4 = wb.types.vector(3, F), wb.types.matrix((2, 2), F), wb.types.quaternion(F)


@pytest.mark.parametrize("dtype", [F, wb.float32, wb.float16, V3, M22, Q4, wb.vec2, wb.mat33, wb.quat])
def test_values_of_every_type_are_detached_in_kernels(backend, dtype):
    @wb.kernel
    def half(x: wb.array(dtype=dtype), y: wb.array(dtype=dtype)):
        i = wb.tid()
        y[i] = x[i] + wb.detach(x[i])

    shape = getattr(dtype, "shape", ())
    data = np.random.default_rng(0).integers(1, 9, (3, *shape))
    x, y = wb.array(data, dtype=dtype, requires_grad=True), wb.zeros(3, dtype=dtype)
    with wb.Tape() as tape:
        wb.launch(half, 3, [x], [y])
    g = wb.array(np.ones((3, *shape)), dtype=x.grad.dtype)
    tape.backward(grads={y: g})
    np.testing.assert_array_equal(y.numpy(), 2 * data)
    np.testing.assert_array_equal(x.grad.numpy(), 1)


def test_whole_numbers_stay_what_they_are(backend):
    @wb.kernel
    def picked(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.detach(wb.tid())
        y[i] = x[i] if wb.detach(i > 1) else x[i] + x[i]

    x, y = leaf(), empty()
    with wb.Tape() as tape:
        wb.launch(picked, 4, [x], [y])
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), [2, 2, 1, 1])


def test_a_cut_is_run_again_and_replayed_on_new_inputs(backend):
    tape, x, y, z, c = cut_between(wb.detach, keep="all")
    again = tape.replay({x: X + 1})
    np.testing.assert_allclose(again[z].numpy(), (X + 1) ** 3)
    again.backward(grads={again.of(z): seed(*ONE)})
    np.testing.assert_allclose(again.of(x).grad.numpy(), (X + 1) ** 2)


def test_a_cut_in_a_capture(backend):
    x, y, z = leaf(), empty(), empty()
    s = seed(*ONE)
    with wb.capture() as graph:
        tape = wb.Tape()
        with tape:
            wb.launch(square, 4, [x], [y])
            c = wb.detach(y)
            wb.launch(times, 4, [x, c], [z])
        tape.backward(grads={z: s})
    x.assign(X + 1)
    tape.zero()
    graph.replay()
    np.testing.assert_allclose(z.numpy(), (X + 1) ** 3)
    np.testing.assert_allclose(x.grad.numpy(), (X + 1) ** 2)


def test_a_cut_inside_a_checkpointed_loop(backend):
    @wb.kernel
    def grow(s: wb.array(dtype=F)):
        i = wb.tid()
        s[i] = s[i] * (F(1.0) + F(0.1) * wb.detach(s[i]))

    def run(loop):
        s = leaf()
        with wb.Tape() as tape:
            loop(s)
        tape.backward(grads={s: seed(*ONE)})
        return s.numpy().copy(), s.grad.numpy().copy()

    def plain(s):
        for _ in range(5):
            wb.launch(grow, 4, [s])

    def checkpointed(s):
        @wb.checkpoint(steps=5, budget=2)
        def step(k, s):
            wb.launch(grow, 4, [s])

        step(s)

    (u, gu), (v, gv) = run(plain), run(checkpointed)
    np.testing.assert_allclose(u, v)
    np.testing.assert_allclose(gu, gv)
    want, s = np.ones(4), X.copy()
    for _ in range(5):
        want *= 1 + 0.1 * s
        s *= 1 + 0.1 * s
    np.testing.assert_allclose(gu, want)


def test_differences_hold_what_is_detached(backend):
    tape, x, y, z, c = cut_between(wb.detach, keep="all")
    report = wb.gradcheck(tape, raise_exception=False)
    assert not report.wrong and not any("not compared" in n for n in report.notes)
    with wb.Tape(keep="all") as tape:
        wb.launch(square, 4, [x], [y])
        wb.launch(times_detached, 4, [y], [z])
    report = wb.gradcheck(tape, raise_exception=False)
    assert not report.wrong and any("wb.detach" in n for n in report.notes)


def test_a_meant_cut_is_no_mistake_but_says_where_the_gradient_ends(backend):
    x, y, z = leaf(), empty(), empty()
    with wb.Tape() as tape:
        wb.launch(square, 4, [x], [y])
        wb.launch(cube, 4, [wb.detach(y)], [z])
    found = tape.diagnose(grads={z: seed(*ONE)})
    (said,) = found.named("detached")
    assert said.severity == "info" and "wb.detach(y)" in said.where.text and not found.problems, found.text

    with wb.Tape() as tape:
        wb.launch(times_detached, 4, [x], [y])
    assert not len(tape.diagnose(grads={y: seed(*ONE)}))

    @wb.kernel
    def ended(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        c = wb.detach(x[i])
        y[i] = c * c

    with wb.Tape() as tape:
        wb.launch(ended, 4, [x], [y])
    found = tape.diagnose(grads={y: seed(*ONE)})
    (said,) = found.named("detached")
    assert "c = wb.detach(x[i])" in said.where.text and not found.problems, found.text


def test_the_pictures_and_the_table_show_a_cut(backend):
    tape, x, y, z, c = cut_between(wb.detach)
    with tape:
        wb.launch(times_detached, 4, [z], [w := empty()])
    tape.backward(grads={w: seed(*ONE)})
    trace = gather(tape)
    assert [flags & {"cut", "died"} for flags in map(event_flags, trace.events)] == [set(), {"cut"}, set(), {"cut"}]
    scene = Picture(trace).drawn()
    (stop,) = [m for m in scene.marks if m.cls == "arrow cut" and m.id != "legend-cut"]
    assert stop.path and 'marker-end="url(#wb-stop)"' in render(scene)
    columns = Columns(trace)
    tables, data, *_ = columns.side(levels_of(trace))
    at = tables["tables"]["arrows"]
    arrows = np.frombuffer(data, np.float32)[at["at"] :][: at["rows"] * len(at["fields"])].reshape(-1, at["rows"])
    looks = [columns.meta["looks"][int(k)] for k in arrows[at["fields"].index("look")]]
    assert looks.count("arrow cut") == 1 and "#1 cut" in str(tape.show())


@pytest.mark.host_memory
def test_pitfalls_leave_a_cut_alone(backend):
    tape, x, y, z, c = cut_between(wb.detach)
    for pitfall in pitfalls.ALL:
        if pitfall.name not in ("values", "missing_requires_grad"):
            np.testing.assert_allclose(tape.backward(grads={z: seed(*ONE)}, pitfall=pitfall)[x], X**2)

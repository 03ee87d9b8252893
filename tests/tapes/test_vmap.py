"""`wb.vmap`: values and gradients are those of a loop over the rows, or the line that is in the way is refused."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from corpus import Program, load

import workbench as wb
from tests.fuzz import vmap as fuzz
from tests.support.backends import BACKENDS

F = wb.float64
ROWS = 3
VECTOR, GRID = wb.array(dtype=F), wb.array2d(dtype=F)
PROGRAMS = load()
pytestmark = pytest.mark.usefixtures("backend")


@wb.struct
class Spring:
    x: VECTOR
    k: F


@wb.kernel
def table(p: VECTOR, t: VECTOR):
    i = wb.tid()
    t[i] = wb.sin(p[0] * F(i)) + p[1]


@wb.kernel
def step(x: VECTOR, t: VECTOR, y: VECTOR):
    i = wb.tid()
    y[i] = y[i] + x[i] * t[i] * x[(i + 1) % x.shape[0]]


@wb.kernel
def force(s: Spring, y: VECTOR):
    i = wb.tid()
    y[i] = y[i] - s.k * s.x[i]


@wb.kernel
def total(y: VECTOR, out: VECTOR):
    wb.atomic_add(out, 0, y[wb.tid()] * y[wb.tid()])


@wb.kernel
def scaled(a: F, x: VECTOR, y: VECTOR):
    i = wb.tid()
    y[i] = a * x[i] * x[i]


def energy(x: wb.array, p: wb.array) -> wb.array:
    """A table of the shared, a row that overwrites it, a struct, a view, a number that begins as another than 0."""
    t, out, s = wb.zeros(4, dtype=F), wb.full(1, 0.5, dtype=F), Spring()
    wb.launch(table, 4, [p, t])
    for _ in range(2):
        wb.launch(step, 4, [x, t, t])
    s.x, s.k = x[1:3], 0.25
    wb.launch(force, 2, [s, t[2:]])
    wb.launch(total, 4, [t, out])
    return out


def looped(xs: wb.array, p: wb.array) -> wb.array:
    out = wb.zeros((len(xs), 1), dtype=F)
    for b in range(len(xs)):
        wb.copy(out[b], energy(xs[b], p))
    return out


mapped = wb.vmap(energy, in_axes=(0, None))


def inputs(seed: int = 0) -> tuple[wb.array, wb.array]:
    r = np.random.default_rng(seed)
    return tuple(wb.array(r.uniform(-1, 1, s), dtype=F, requires_grad=True) for s in ((ROWS, 4), 2))


def loss(run: Any, xs: wb.array, p: wb.array) -> wb.array:
    found = run(xs, p).flatten()
    return wb.utils.array_inner(found, found, out=wb.zeros(1, dtype=F))


# ---- against a loop over the rows


def on_rows(program: Program, F: Any, mapped: bool) -> list[np.ndarray]:
    """Contents and gradients after a run on copies of the rows of its arrays, each a little other than the next."""
    r, arrays = np.random.default_rng(0), {}
    for name, c in program.contents.items():
        start, element = program.start()[name], c.element(F)
        moved = 2.0**-6 * np.arange(ROWS).reshape(ROWS, *[1] * start.ndim) if c.low != c.high else 0 * start
        many = np.stack([start] * ROWS)
        many = many if start.dtype.kind != "f" else many * (1 + moved)
        arrays[name] = wb.array(many.astype(element.numpy), dtype=element, requires_grad=wb.types.is_float(element))

    def run(given: dict[str, wb.array]) -> dict[str, wb.array]:
        made = {name: wb.clone(a) for name, a in given.items()}
        program.run(F, made)
        return made

    with wb.Tape() as tape:
        if mapped:
            whole = wb.vmap(run)(arrays)
            found = [{n: row(a, b) for n, a in whole.items()} for b in range(ROWS)]
        else:
            found = [run({n: row(a, b) for n, a in arrays.items()}) for b in range(ROWS)]
    outs = [a for each in found for a in each.values()]
    floats = [a for a in outs if wb.types.is_float(a.dtype)]
    seeds = {a: wb.array(r.uniform(-1, 1, a.data.shape), dtype=a.dtype) for a in floats}
    tape.backward(grads=seeds)
    return [a.numpy().copy() for a in outs] + [a.grad.numpy().copy() for a in arrays.values() if a.requires_grad]


def row(a: wb.array, b: int) -> wb.array:
    return a[b] if a.ndim > 1 else a[b : b + 1]


MAPPED = [
    pytest.param(program, *backend.values, marks=backend.marks, id=f"{backend.values[0]}-{program}")
    for backend in BACKENDS  # where it is compiled, a third: what is mapped is a kernel like any other
    for program in list(PROGRAMS.values())[:: 1 if backend.values[0] == "numpy" else 3]
]
OTHER = {"a_grid_of_four_axes": "vmap", "the_old_value_of_an_atomic_in_one_thread": "atomic-order"}


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:.*overw:UserWarning")
@pytest.mark.parametrize(("program", "backend"), MAPPED, indirect=["backend"])
def test_programs_of_the_corpus_are_mapped_to_the_last_bit(program: Program):
    F = program.dtypes[-1]
    try:
        want = on_rows(program, F, False)
    except wb.GradientError as error:  # the order of threads of a GPU
        assert wb.config.backend == "cuda" and error.slug == "atomic-order"
        with pytest.raises(wb.GradientError, match=r"\[atomic-order\]"):
            on_rows(program, F, True)
        return
    try:
        got = on_rows(program, F, True)
    except (wb.LaunchError, wb.GradientError) as error:
        assert error.slug == OTHER[program.name]
        return
    assert program.name not in OTHER
    loose = 0 if wb.config.backend == "numpy" else 1e-12  # vectorised sines, another order of sums
    for a, b in zip(want, got, strict=True):
        if a.dtype.names is not None:
            assert (a == b).all()
        else:
            np.testing.assert_allclose(b, a, loose, loose)


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_random_functions_are_mapped_to_the_last_bit(first: int):
    found = [fuzz.verdict(seed) for seed in range(first, first + 30)]
    assert not [f for f in found if "WRONG" in f] and found.count("same") > 25


def test_the_oracle_of_random_functions_notices_a_row_that_is_another(monkeypatch):
    of = wb.tapes.vmap.Rows.of
    monkeypatch.setattr("workbench.tapes.vmap.Rows.of", lambda self, a: of(self, a)[::-1])
    assert any("WRONG" in fuzz.verdict(seed) for seed in range(5))


def test_gradients_are_those_of_differences():
    xs, p = inputs()
    with wb.Tape() as tape:
        made = loss(mapped, xs, p)
    tape.backward(made)
    for a in (xs, p):
        way, h = np.random.default_rng(1).uniform(-1, 1, a.shape), 1e-4

        def at(t: float, a: wb.array = a, way: np.ndarray = way) -> float:
            given = [wb.array(b.numpy() + (t * way if b is a else 0), dtype=F) for b in (xs, p)]
            return loss(mapped, *given).numpy()[0]

        slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        assert (a.grad.numpy() * way).sum() == pytest.approx(slope, rel=1e-8)


def test_value_and_grad_second_derivatives_and_another_run_are_those_of_a_loop():
    xs, p = inputs()
    both = [wb.value_and_grad(functools.partial(loss, run), argnums=(0, 1)) for run in (mapped, looped)]
    (value, (d_x, d_p)), (value_2, (d_x2, d_p2)) = (f(xs.numpy(), p.numpy()) for f in both)
    assert value == pytest.approx(value_2, rel=1e-14) and np.array_equal(d_x, d_x2)
    np.testing.assert_allclose(d_p, d_p2, 1e-13)
    way, found = {xs: np.ones(xs.shape), p: np.ones(2)}, []
    for run in (mapped, looped):
        with wb.Tape(keep="all") as tape:
            made = loss(run, xs, p)
        again = tape.replay({xs: 1.5 * xs.numpy()})
        found.append([*wb.hvp(tape, made, way).values(), wb.jvp(tape, way)[made], again[made].numpy()])
        assert (len(tape.events) == 9) == (run is mapped)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, 1e-12)


def test_views_of_a_tape_show_rows_and_no_row_that_has_no_values():
    xs, p = inputs()
    with wb.Tape(keep="all") as tape:
        made = loss(mapped, xs, p)
    tape.backward(made)
    ledger = tape.ledger(xs, (1, 2))
    assert ledger.total == pytest.approx(xs.grad.numpy()[1, 2]) and "x" in str(tape.show())
    assert [f.slug for f in tape.diagnose() if f.severity == "error"] == []


# ---- what it is called in, and with


def test_in_a_map_a_jit_a_capture_and_a_checkpoint():
    r = np.random.default_rng(3)
    zs, p = wb.array(r.uniform(-1, 1, (2, ROWS, 4)), dtype=F), inputs()[1]
    want = np.stack([looped(zs[k], p).numpy() for k in range(2)])
    assert np.array_equal(wb.vmap(mapped, (0, None))(zs, p).numpy(), want)

    @wb.jit
    def run(xs: wb.array, p: wb.array, out: wb.array) -> None:
        wb.copy(out, mapped(xs, p))

    out = wb.zeros((ROWS, 1), dtype=F)
    for k in (0, 1, 0, 1):
        run(zs[k], p, out)
        assert np.array_equal(out.numpy(), want[k])
    with wb.capture() as graph:
        wb.copy(out, mapped(zs[0], p))
    out.zero_()
    graph.replay()
    assert np.array_equal(out.numpy(), want[0])


def test_a_jit_function_is_captured_again_when_a_kernel_that_it_maps_is_another():
    gain = 2.0

    @wb.kernel
    def by(x: VECTOR, y: VECTOR):
        i = wb.tid()
        y[i] = F(gain) * x[i]

    def one(x: wb.array) -> wb.array:
        y = wb.zeros_like(x)
        wb.launch(by, 4, [x, y])
        return y

    @wb.jit
    def run(xs: wb.array, out: wb.array) -> None:
        wb.copy(out, wb.vmap(one)(xs))

    xs, out = inputs()[0], wb.zeros((ROWS, 4), dtype=F)
    for gain in (2.0, 2.0, 2.0, 3.0):  # noqa: B007 (the kernel reads it)
        run(xs, out)
        assert np.array_equal(out.numpy(), gain * xs.numpy())
    assert run.replays == 1


def test_rows_of_numbers_views_containers_and_no_rows():
    def one(a: dict[str, Any], k: float) -> tuple[wb.array, wb.array, None]:
        y = wb.empty(1, dtype=F)
        wb.launch(scaled, 1, [k, a["x"], y])
        return y, wb.ones(2, dtype=F), None

    x = wb.array(np.arange(6.0).reshape(3, 2), dtype=F)
    for given in (x[::-1, 1], x[:, 0], x[:0, 0]):
        y, ones, nothing = wb.vmap(one, (0, None))({"x": given}, 3.0)
        assert nothing is None and ones.shape == (len(given), 2) and (ones.numpy() == 1).all()
        assert np.array_equal(y.numpy()[:, 0], 3 * given.numpy() ** 2)
    turned = wb.vmap(lambda a: wb.clone(a))(x.T)
    assert np.array_equal(turned.numpy(), x.numpy().T)


def test_a_declared_scalar_gets_the_sum_over_the_rows():
    k, xs = wb.scalar(2.0, dtype=F, requires_grad=True), inputs()[0]

    def one(x: wb.array) -> wb.array:
        y = wb.zeros_like(x)
        wb.launch(scaled, 4, [k, x, y])
        return y

    with wb.Tape() as tape:
        ys = wb.vmap(one)(xs)
    tape.backward(grads={ys: wb.ones_like(ys)})
    assert k.grad == pytest.approx((xs.numpy() ** 2).sum())


def test_a_kernel_with_tiles_is_mapped():
    @wb.kernel
    def waves(x: VECTOR, w: VECTOR, y: VECTOR, s: VECTOR):
        i = wb.tid()
        t = wb.tile_load(x, shape=2, offset=2 * i)
        u = wb.tile_load(w, shape=2, offset=2 * i)
        wb.tile_store(y, wb.tile_map(wb.sin, t) * u, offset=2 * i)
        wb.tile_atomic_add(s, wb.tile_sum(t * u), offset=0)

    def one(x: wb.array, w: wb.array) -> tuple[wb.array, wb.array]:
        y, s = wb.zeros_like(x), wb.zeros(1, dtype=F)
        wb.launch_tiled(waves, 2, [x, w, y, s], block_dim=64)
        return y, s

    xs, w = inputs()[0], wb.array([1.0, 2.0, 3.0, 4.0], dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        ys, s = wb.vmap(one, (0, None))(xs, w)
    tape.backward(grads={ys: wb.ones_like(ys), s: wb.ones_like(s)})
    x = xs.numpy()
    np.testing.assert_allclose(s.numpy()[:, 0], x @ w.numpy(), 1e-14)
    np.testing.assert_allclose(xs.grad.numpy(), (np.cos(x) + 1) * w.numpy(), 1e-14)
    np.testing.assert_allclose(w.grad.numpy(), (np.sin(x) + x).sum(0), 1e-13)


# ---- what is refused

OUTSIDE: list[wb.array] = []
XS: list[wb.array] = []
GRAPHS: list[Any] = []
TAPES: list[wb.Tape] = []
LOSSES: list[wb.array] = []


def writes_outside(x: wb.array) -> wb.array:
    wb.launch(scaled, 4, [1.0, x, OUTSIDE[0]])  # here
    return OUTSIDE[0]


def adds_outside_without_a_row(x: wb.array) -> wb.array:
    wb.launch(scaled, 4, [1.0, wb.ones(4, dtype=F), OUTSIDE[0]])  # here
    return x


def fills_outside(x: wb.array) -> wb.array:
    OUTSIDE[0].fill_(1.0)  # here
    return x


def reads(x: wb.array) -> wb.array:
    return wb.full(1, float(x[0]), dtype=F)  # here


def reads_what_was_the_same_for_all(x: wb.array) -> wb.array:
    y = wb.ones(4, dtype=F)
    assert y[0] == 1.0
    wb.launch(scaled, 4, [1.0, x, y])
    return wb.array(y.list(), dtype=F)  # here


def gives_to_numpy(x: wb.array) -> wb.array:
    return wb.array(np.sin(x), dtype=F)  # here


def prints(x: wb.array) -> wb.array:
    str(x)  # here
    return x


def is_under_a_tape(x: wb.array) -> wb.array:
    y = wb.zeros_like(x)
    with wb.Tape():  # here
        wb.launch(scaled, 4, [1.0, x, y])
    return y


def asks_for_a_gradient(x: wb.array) -> wb.array:
    return x.grad  # here


def walks_a_tape(x: wb.array) -> wb.array:
    TAPES[0].backward(LOSSES[0])  # here
    return x


def replays_a_capture(x: wb.array) -> wb.array:
    GRAPHS[0].replay()  # here
    return x


def records_a_func(x: wb.array) -> wb.array:
    TAPES[0].record_func(lambda: None, [])  # here
    return x


def solves_into_outside(x: wb.array) -> wb.array:
    A = wb.sparse.bsr_diag(wb.ones(4, dtype=F))
    wb.optim.linear.cg(A, wb.ones(4, dtype=F), OUTSIDE[0])  # here
    return x


def writes_an_argument(x: wb.array) -> wb.array:
    wb.launch(scaled, 4, [1.0, wb.clone(x), x])  # here
    return x


def fills_an_argument(x: wb.array) -> wb.array:
    x[1:].zero_()  # here
    return x


@wb.custom_op
def sine(x: np.ndarray) -> np.ndarray:
    return np.sin(x)


def calls_a_custom_op(x: wb.array) -> wb.array:
    return sine(x)  # here


def writes_what_others_know(x: wb.array) -> wb.array:
    y = wb.zeros(4, dtype=F)
    assert y.ptr
    wb.launch(scaled, 4, [1.0, x, y])  # here
    return y


def sorts(x: wb.array) -> wb.array:
    wb.utils.radix_sort_pairs(x, wb.zeros(4, dtype=F), 4)  # here
    return x


REFUSED = [
    f
    for name, f in [*globals().items()]
    if name.startswith(
        (
            "walks_",
            "replays_",
            "records_",
            "solves_",
            "sees_",
            "has_seen",
            "writes_",
            "adds_",
            "fills_",
            "reads",
            "gives_",
            "prints",
            "is_under",
            "asks_",
            "calls_",
            "sorts",
        )
    )
]


@pytest.mark.parametrize("fn", REFUSED, ids=lambda f: f.__name__)
def test_what_cannot_be_done_for_all_rows_at_once_names_its_line(fn: Any):
    OUTSIDE[:], XS[:] = [wb.zeros(4, dtype=F, name="outside")], [inputs()[0]]
    with wb.Tape() as tape:
        LOSSES[:] = [wb.utils.array_inner(XS[0].flatten(), XS[0].flatten(), out=wb.zeros(1, dtype=F))]
    TAPES[:] = [tape]
    with wb.capture() as graph:
        wb.launch(scaled, 4, [1.0, OUTSIDE[0], wb.zeros(4, dtype=F)])
    GRAPHS[:] = [graph]
    with pytest.raises(wb.LaunchError, match=rf"vmap\({fn.__name__}\)") as caught:
        wb.vmap(fn)(XS[0])
    assert caught.value.slug == "vmap" and caught.value.where.text.endswith("# here") and caught.value.instead
    assert not OUTSIDE[0].numpy().any()


def test_rows_may_lie_in_one_another():
    a = wb.array(np.arange(6.0), dtype=F)
    windows = wb.array(ptr=a.ptr, dtype=F, shape=(3, 4), strides=(8, 8))
    assert np.array_equal(wb.vmap(wb.clone)(windows).numpy(), [[b + k for k in range(4)] for b in range(3)])


def test_arguments_that_have_no_rows_or_not_as_many_are_refused():
    x = wb.zeros((3, 4), dtype=F)
    calls = {
        "2 arguments": lambda: wb.vmap(energy, in_axes=(0,))(x, x),
        "in_axes=.1, 1.": lambda: wb.vmap(energy, in_axes=1)(x, x),
        "2 and 3 rows": lambda: wb.vmap(energy)(x, wb.zeros((2, 2), dtype=F)),
        "of  rows": lambda: wb.vmap(energy, in_axes=None)(x, x),
    }
    for words, call in calls.items():
        with pytest.raises(wb.LaunchError, match=words) as caught:
            call()
        assert caught.value.slug == "vmap"
    with pytest.raises(TypeError, match="vmap takes a function"):
        wb.vmap(table)


def test_what_a_function_keeps_holds_nothing_later():
    kept = []

    def one(x: wb.array) -> wb.array:
        y = wb.ones(4, dtype=F)
        wb.launch(scaled, 4, [1.0, x, y])
        kept.extend((x, y))
        return y

    wb.vmap(one)(inputs()[0])
    assert all(np.isnan(a.numpy()).all() for a in kept)

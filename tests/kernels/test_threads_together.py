"""Threads that run together, as NumPy vectors, leave the very bits that they leave one after the other."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

import workbench as wb
from tests.support.both_ways import hold, same
from workbench.kernels.ops.row import ROWS
from workbench.kernels.row import arity
from workbench.kernels.types import Scalar, bool_, float16, float32, float64, int8, int32, int64, uint8, uint32

COUNT = 67  # four registers, and some more
TYPES = [bool_, int8, uint8, int32, uint32, int64, float16, float32, float64]


@pytest.fixture
def both(monkeypatch):
    wb.config.backend = "numpy"
    return hold(monkeypatch)


# --- rows


def drawn(type: Scalar, rng: np.random.Generator) -> np.ndarray:
    if type is bool_:
        return rng.random(COUNT) < 0.5
    if type.kind == "f":
        info = np.finfo(type.numpy)
        ends = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.0,
            -2.5,
            np.inf,
            -np.inf,
            np.nan,
            info.max,
            info.tiny,
            -info.smallest_subnormal,
        ]
        wide = rng.normal(size=COUNT - 13) * 10.0 ** rng.integers(-6, 7, COUNT - 13)
        with np.errstate(all="ignore"):
            return rng.permutation(np.concatenate([wide, ends]).astype(type.numpy))
    info = np.iinfo(type.numpy)
    ends = [0, 1, 2, info.min, info.max]
    return rng.permutation(
        np.concatenate([rng.integers(info.min, info.max, COUNT - 5, endpoint=True), ends]).astype(type.numpy)
    )


ROWS_TOGETHER = [r for r in ROWS.values() if r.vectorised and not r.name.startswith("tile") and arity(r)]


def forms(row):
    """(types of the operands, attr, type of the result) of everything scalar that a row takes."""
    attrs = {"cast": TYPES[1:], "even": [3, 100], "same_bits": TYPES[1:]}.get(row.name, [None])
    for types, attr in itertools.product(itertools.product(TYPES, repeat=arity(row) or 0), attrs):
        if len({t for t in types if t is not bool_}) > 1 + (len(types) == 2):
            continue
        if row.name == "same_bits" and types[0].bits != attr.bits:
            continue
        try:
            out = row.type(*types, **({"attr": attr} if row.typed_by_attr else {}))
        except (TypeError, AssertionError, AttributeError):
            continue
        if isinstance(out, Scalar):
            yield types, attr, out


@pytest.mark.parametrize("row", ROWS_TOGETHER, ids=lambda row: row.name)
def test_a_row_means_the_same_for_vectors_as_for_numbers(row):
    rng = np.random.default_rng(len(row.name))
    for types, attr, out in forms(row):
        columns, extra = [drawn(t, rng) for t in types], {"attr": attr} if row.typed_by_attr else {}
        kind = out.numpy.type
        with np.errstate(all="ignore"):
            for mixed in range(2 ** len(columns) - 1):  # which operands are one number for all
                lanes_of = [np.full(COUNT, c[7]) if mixed >> k & 1 else c for k, c in enumerate(columns)]
                given = [c[7] if mixed >> k & 1 and row.exact else c for k, c in enumerate(lanes_of)]
                got = np.asarray(row.meaning(*given, **extra)).astype(kind)
                want = np.array([kind(row.meaning(*lane, **extra)) for lane in zip(*lanes_of, strict=True)])
                assert same(got, want), (types, [(g, w) for g, w in zip(got, want, strict=True) if g != w][:3])


# --- programs


N = 100


def checked(both, kernel: wb.Kernel, values: dict, together: bool, dim: int = N) -> None:
    """Run a kernel and its adjoint; did all threads run together."""
    arrays = {n: wb.array(v, requires_grad=np.asarray(v).dtype.kind == "f") for n, v in values.items()}
    with wb.Tape() as tape:
        wb.launch(kernel, dim, list(arrays.values()))
    tape.backward(grads={a: wb.ones(a.shape) for n, a in arrays.items() if a.requires_grad and n == "y"})
    assert (both.undone == both.alone == 0) == together, vars(both)


@wb.kernel
def turns(x: wb.array[float], n: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    a = x[i]
    k = 0
    for j in range(n[i]):
        if j == 7:
            break
        if a > 1.5:
            a = a * 0.5
            continue
        a = a + wb.sin(a) * float(j)
    while a < 2.0 and k < n[i]:
        a = a * 1.25 + 0.125
        k += 1
    v = wb.vec3(a, x[i], 1.0)
    v[n[i] % 3] = a * x[i]
    y[i] = wb.dot(v, wb.vec3(1.0, 2.0, 3.0)) + v[-1 - n[i] % 2]


def test_loops_turn_as_often_as_each_thread_wants(both):
    rng = np.random.default_rng(1)
    checked(
        both,
        turns,
        {
            "x": rng.normal(size=N).astype(np.float32),
            "n": rng.integers(-2, 12, N).astype(np.int32),
            "y": np.zeros(N, np.float32),
        },
        together=True,
    )


@wb.kernel
def gathered(x: wb.array[float], n: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    for j in range(3):
        wb.atomic_add(y, n[(i + j) % n.shape[0]], x[n[i]] * x[i] * float(j + 1))


def test_sums_have_the_order_of_the_threads(both):
    rng = np.random.default_rng(2)
    checked(
        both,
        gathered,
        {
            "x": (rng.normal(size=N) * 10.0 ** rng.integers(-4, 5, N)).astype(np.float32),
            "n": rng.integers(0, 9, N).astype(np.int32),
            "y": np.zeros(N, np.float32),
        },
        together=True,
    )


@wb.kernel
def neighbour(x: wb.array[float], n: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    y[n[i]] = x[i] + y[n[(i + 1) % n.shape[0]]] * 0.5


@wb.kernel
def placed(x: wb.array[float], n: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    y[n[i]] = x[i] * y[n[i]]


def test_threads_that_may_see_what_another_did_run_in_turn(both):
    order = np.random.default_rng(3).permutation(N).astype(np.int32)
    values = {"x": np.linspace(-1, 1, N, dtype=np.float32), "n": order, "y": np.linspace(1, 2, N, dtype=np.float32)}
    wb.launch(neighbour, N, [wb.array(v) for v in values.values()])
    assert both.alone == 1


def test_places_of_which_it_is_not_proven_that_they_are_apart_are_visited_in_turn(both):
    order = np.random.default_rng(4).permutation(N).astype(np.int32)
    values = {"x": np.linspace(-1, 1, N, dtype=np.float32), "n": order, "y": np.linspace(1, 2, N, dtype=np.float32)}
    checked(both, placed, values, together=False)


@wb.kernel
def counted(x: wb.array[float], count: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    if x[i] > 0.0:
        k = wb.atomic_add(count, 0, 1)
        y[k] = x[i]


def test_a_counter_gives_every_thread_its_turn(both):
    x = np.random.default_rng(5).normal(size=N).astype(np.float32)
    arrays = [wb.array(x), wb.zeros(1, dtype=int), wb.zeros(N)]
    wb.launch(counted, N, arrays)
    assert both.alone == 1 and arrays[2].numpy()[: (x > 0).sum()].tolist() == x[x > 0].tolist()


@wb.kernel
def beyond(x: wb.array[float], n: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i]
    if i > 40:
        y[i] = x[n[i]]


def test_an_error_is_that_of_the_first_thread_that_makes_one(both):
    n = np.arange(N, dtype=np.int32)
    n[[50, 70]] = 1000, -2000
    arrays = [wb.array(np.ones(N, np.float32)), wb.array(n), wb.zeros(N)]
    with pytest.raises(wb.BoundsError, match="thread 50"):
        wb.launch(beyond, N, arrays)
    assert arrays[2].numpy()[:51].all() and not arrays[2].numpy()[51:].any()


@wb.kernel
def smooth(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    a = x[i]
    for j in range(4):
        if a > 0.0:
            a = wb.sin(a) * 2.0 - float(j)
        else:
            a = a * a
    y[i] = a


def test_more_threads_are_no_more_calls():
    wb.config.backend = "numpy"

    def calls(n: int) -> int:
        x, y = wb.array(np.linspace(-1, 1, n, dtype=np.float32), requires_grad=True), wb.zeros(n)

        def both_ways() -> None:
            with wb.Tape() as tape:
                wb.launch(smooth, n, [x, y])
            tape.backward(grads={y: wb.ones(n)})

        both_ways()
        seen = []
        sys.setprofile(lambda frame, event, arg: seen.append(event) if event.endswith("call") else None)
        try:
            both_ways()
        finally:
            sys.setprofile(None)
        return len(seen)

    assert calls(1000) < 1.1 * calls(100)

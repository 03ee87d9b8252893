"""Values of the host inside checkpointed loops, nested tapes, records, captures and shared memory.

The gradient of `w = square(step(square(x)))` beside another path from x is exact, refused, or warned of; it ends in
silence where the host computed with plain values.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.host_steps import Kind

pytestmark = pytest.mark.usefixtures("backend")
KIND = Kind(64)
F = wb.float64
X = np.array([1.3713, 0.7317, -0.9139])


@wb.kernel
def scale(a: F, x: wb.array[F]):
    i = wb.tid()
    x[i] = a * x[i]


@wb.kernel
def bend(x: wb.array[F]):
    i = wb.tid()
    x[i] = F(0.9) * x[i] + F(0.1) * x[i] * x[i]


@wb.struct
class Body:
    q: F
    v: wb.vec3d


@wb.kernel
def make(x: wb.array[F], p: wb.array[Body]):
    i = wb.tid()
    p[i].q = x[i] * x[i]
    p[i].v = wb.vec3d(x[i], F(2.0) * x[i], x[i] * x[i])


@wb.kernel
def energy(p: wb.array[Body], y: wb.array[F]):
    i = wb.tid()
    y[i] = p[i].q * p[i].q + wb.dot(p[i].v, p[i].v)


def looped(body):
    """Four steps of `body(k, y)` in a checkpointed loop."""

    def step(y):
        @wb.checkpoint(steps=4, budget=2)
        def loop(k, y):
            body(k, y)

        loop(y)
        return y

    return step


def bodies(y):
    p = wb.zeros(3, dtype=Body)
    wb.launch(make, dim=3, inputs=[y], outputs=[p])
    return p


def of_bodies(p):
    y = KIND.new(len(p))
    wb.launch(energy, dim=len(p), inputs=[p], outputs=[y])
    return y


def inside(write, ready=None):
    """`write(z, y)` under a tape of its own, inside the other."""

    def step(y):
        z = KIND.new()
        with wb.Tape():
            z = write(z, y) or z
        return z

    return step


def records(change):
    def step(y):
        p, q = bodies(y), wb.zeros(3, dtype=Body)
        return of_bodies(change(p, q) or q)

    return step


def launched(a, y):
    z = KIND.squared(y)
    wb.launch(scale, dim=3, inputs=[a, z])
    return z


def across_steps():
    kept = {}

    def body(k, y):
        if k:
            y.assign(kept["h"])
        wb.launch(bend, dim=3, inputs=[y])
        kept["h"] = y.numpy() * 0.5

    return looped(body)


def read_before_the_loop(read):
    def step(y):
        value = read(y)

        def body(k, z):
            z.assign(value)
            wb.launch(bend, dim=3, inputs=[z])

        return looped(body)(KIND.squared(y))

    return step


def number_before_the_loop(read):
    def step(y):
        a = read(y)
        return looped(lambda k, z: wb.launch(scale, dim=3, inputs=[a, z]))(KIND.squared(y))

    return step


def shared_with_numpy(values):
    def step(y):
        h = np.zeros(3)
        z = wb.from_numpy(h)
        h[:] = values(y)
        return z

    return step


def changed_record(p, q):
    r = p[1]
    r["q"] = r["q"] * 2
    q[0] = r


def fields_of_an_instance(p, q):
    body, r = Body(), p[1].tolist()
    body.q, body.v = r
    q[0] = body


def changed_copy(p, q):
    h = np.array(p.numpy())
    h["q"] *= 2
    q.assign(h)


# what `backward` raises, or does
EXPECTED = {
    "launches in a loop": (looped(lambda k, y: wb.launch(bend, dim=3, inputs=[y])), "exact"),
    "NumPy in a loop": (looped(lambda k, y: y.assign(y.numpy() * 0.5)), "host-values"),
    "a reversed copy in a loop": (looped(lambda k, y: y.assign(np.array(y.numpy())[::-1].copy())), "warned"),
    "asarray in a loop": (looped(lambda k, y: y.assign(np.asarray(y) * 1.0)), "warned"),
    "an element in a loop": (looped(lambda k, y: wb.launch(scale, dim=3, inputs=[y[1], y])), "exact"),
    "a float in a loop": (
        looped(lambda k, y: wb.launch(scale, dim=3, inputs=[float(str(float(y[1]))), y])),
        "checkpoint-state",
    ),
    "raw memory in a loop": (looped(lambda k, y: y.numpy().__imul__(0.5)), "checkpoint-step"),
    "from step to step": (across_steps(), "host-values"),
    "NumPy before a loop": (read_before_the_loop(lambda y: y.numpy() * 0.5), "host-values"),
    "a copy before a loop": (read_before_the_loop(lambda y: np.array(y.numpy())[::-1].copy()), "warned"),
    "asarray before a loop": (read_before_the_loop(lambda y: np.asarray(y) * 1.0), "warned"),
    "a constant in a loop": (read_before_the_loop(lambda y: X * 0.3712), "exact"),
    "a float before a loop": (number_before_the_loop(lambda y: float(y[1])), "checkpoint-state"),
    "a copied float before a loop": (number_before_the_loop(lambda y: float(str(float(y[1])))), "checkpoint-state"),
    "arithmetic before a loop": (number_before_the_loop(lambda y: 0.7 * float(y[1]) + 0.2), "silent"),
    "NumPy after a loop": (lambda y: wb.array(looped(lambda k, y: None)(y).numpy() * 2), "host-values"),
    "a launch inside": (inside(lambda z, y: KIND.squared(y)), "nested-tape"),
    "a copy inside": (inside(lambda z, y: wb.copy(z, y)), "nested-tape"),
    "an exact copy inside": (inside(lambda z, y: wb.array(y.numpy())), "nested-tape"),
    "a list inside": (inside(lambda z, y: wb.array([y[1], 2 * y[0], 1.0], dtype=F)), "nested-tape"),
    "NumPy inside": (inside(lambda z, y: z.assign(y.numpy() * 2)), "host-values"),
    "raw memory inside": (inside(lambda z, y: z.numpy().__iadd__(y.numpy()) is None or None), "host-values"),
    "asarray inside": (inside(lambda z, y: z.assign(np.asarray(y) * 1.0)), "warned"),
    "a number inside": (inside(lambda z, y: z.fill_(2 * y[1])), "host-values"),
    "a float into a launch inside": (inside(lambda z, y: launched(float(y[1]), KIND.ones())), "nested-tape"),
    "a constant inside": (inside(lambda z, y: z.fill_(0.5)), "exact"),
    "read inside": (lambda y: KIND.new().fill_(inside(lambda z, y: y[1] * 2)(y)), "host-values"),
    "read inside, a float": (lambda y: KIND.new().fill_(float(str(inside(lambda z, y: float(y[1]))(y)))), "warned"),
    "read inside, exact": (lambda y: KIND.new().fill_(inside(lambda z, y: float(y[1]))(y)), "exact"),
    "all records": (records(lambda p, q: q.assign(p.numpy())), "exact"),
    "one record": (records(lambda p, q: q.__setitem__(0, p[1])), "exact"),
    "a copied record": (records(lambda p, q: q.__setitem__(0, p[1].copy())), "exact"),
    "listed records": (records(lambda p, q: q.assign(p.list())), "exact"),
    "a record everywhere": (records(lambda p, q: q.fill_(p[1])), "exact"),
    "an array of records": (records(lambda p, q: wb.array([p[0], p[2]], dtype=Body)), "exact"),
    "a changed record": (records(changed_record), "host-values"),
    "fields of a record": (records(fields_of_an_instance), "host-values"),
    "records into raw memory": (records(lambda p, q: q.numpy().__setitem__(0, p.numpy()[1])), "host-values"),
    "a tuple into raw memory": (records(lambda p, q: q.numpy().__setitem__(0, p[1].item())), "host-values"),
    "a plain copy of records": (records(lambda p, q: q.assign(np.array(p.numpy())[::-1])), "warned"),
    "a changed copy of records": (records(changed_copy), "silent"),
    "joined records": (records(lambda p, q: wb.array(np.concatenate([p.numpy()] * 2), dtype=Body)), "host-values"),
    "memory of NumPy": (shared_with_numpy(lambda y: y.numpy() * 2), "warned"),
    "memory of NumPy, asarray": (shared_with_numpy(lambda y: np.asarray(y) * 1.0), "warned"),
    "memory of NumPy, a constant": (shared_with_numpy(lambda y: X * 2 + float(bool(y))), "exact"),
    "DLPack": (lambda y: wb.array(np.from_dlpack(y)[::-1] * 1.0), "warned"),
    "an element of asarray": (lambda y: launched(float(np.asarray(y)[1]), y), "warned"),
    "arithmetic on asarray": (lambda y: wb.array(np.asarray(y) * 2), "silent"),
    "a mean of asarray": (lambda y: launched(float(np.asarray(y).mean()), y), "silent"),
    "bytes": (lambda y: wb.array(np.frombuffer(y.numpy().tobytes())), "warned"),
}


def total(step, values, tape=None):
    """x, and the results of two paths from it."""
    x = wb.array(values, dtype=F, requires_grad=True)
    if tape is None:
        return x, [KIND.squared(step(KIND.squared(x))), KIND.squared(x)]
    with tape:
        return x, [KIND.squared(step(KIND.squared(x))), KIND.squared(x)]


def outcome(step, **choices) -> str:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tape = wb.Tape(**choices)
        try:
            x, found = total(step, X, tape)
            tape.backward(grads={w: wb.ones(len(w), dtype=F) for w in found})
        except (wb.GradientError, wb.LaunchError) as error:
            return error.slug
    if any("[host-number]" in str(w.message) for w in said):
        return "warned"
    assert not said
    want = []
    for k in range(3):
        ends = []
        for sign in (1, -1):
            moved = X.copy()
            moved[k] += sign * 1e-6
            ends.append(sum(w.numpy().sum() for w in total(step, moved)[1]))
        want.append((ends[0] - ends[1]) / 2e-6)
    return "exact" if np.allclose(x.grad.numpy(), want, rtol=1e-5, atol=1e-7) else "silent"


@pytest.mark.parametrize("choices", [{}, {"keep": "all"}], ids=["needed", "all"])
@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.host_memory(
    "raw memory in a loop",
    "an exact copy inside",
    "raw memory inside",
    "all records",
    "records into raw memory",
    "a tuple into raw memory",
    "memory of NumPy",
    "memory of NumPy, asarray",
    "DLPack",
)
def test_gradients_end_in_silence_only_behind_arithmetic_on_plain_values(name, choices):
    step, expected = EXPECTED[name]
    assert outcome(step, **choices) == expected


@pytest.mark.parametrize(
    "read",
    [np.asarray, np.array, float, lambda y: y[0], lambda y: y.list(), lambda y: y.numpy(), lambda y: y[:1].item()],
)
def test_nothing_is_read_in_a_capture(read):
    x = wb.array(X[:1], dtype=F, requires_grad=True)
    with pytest.raises(wb.LaunchError) as found, wb.capture(), wb.Tape():
        KIND.new(1).assign([read(KIND.squared(x))])
    assert found.value.slug == "capture"

"""Random programs of launches and host writes on overlapping slices: every gradient is exact or refused.

The oracle is the same program in NumPy with complex steps, exact to rounding. What a tape could not see counts as a
constant: where the tape meets it again, the only other answer is a refusal.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import workbench as wb
from tests.fuzz.tape_kernels import F, add, linear, scale, square
from workbench.arrays.array import read_values

BUFFERS, SIZE = 3, 8


pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def read_all(a: wb.array(dtype=F), b: wb.array(dtype=F), c: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = a[i] + b[i] + c[i]


LAUNCHES = {
    "square": (square, lambda x, y: 0.5 * x * x + 0.3),
    "add": (add, lambda x, y: y + 0.25 * x * x),
    "scale": (scale, lambda x, y: y * x),
    "linear": (linear, lambda x, y: 2 * x - 1),
}
MOVES, WRITES = ("copy", "assign array"), ("fill_", "zero_", "assign", "item")


@dataclass(frozen=True)
class Step:
    """`op` from slice `s` of buffer `a` to slice `t` of buffer `b`; `how` the tape learns of it."""

    op: str
    a: int
    s: slice
    b: int
    t: slice
    value: float
    how: str

    @property
    def target(self) -> set[tuple[int, int]]:
        return {(self.b, i) for i in range(*self.t.indices(SIZE))}

    @property
    def source(self) -> set[tuple[int, int]]:
        return set() if self.op in WRITES else {(self.a, i) for i in range(*self.s.indices(SIZE))}

    @property
    def seen(self) -> bool:
        """Does the tape know of it: NumPy's writes tell it what they overwrite."""
        return self.how in ("recorded", "numpy()") or (self.how == "record_tape=False" and self.op not in LAUNCHES)

    def plain(self, x, y) -> None:
        """In NumPy."""
        if self.op in LAUNCHES:
            y[...] = LAUNCHES[self.op][1](x, y)
        elif self.op in MOVES:
            y[...] = x.copy()
        else:
            y[...] = 0 if self.op == "zero_" else self.value

    def perform(self, x, y, **kw) -> None:
        """In our arrays."""
        if self.op in LAUNCHES:
            wb.launch(LAUNCHES[self.op][0], dim=len(x), inputs=[x, y], **kw)
        elif self.op == "copy":
            wb.copy(y, x)
        elif self.op == "assign array":
            y.assign(x)
        elif self.op == "item":
            y[0 : len(y)] = self.value
        elif self.op == "assign":
            y.assign(np.full(len(y), self.value))
        else:
            y.fill_(self.value) if self.op == "fill_" else y.zero_()

    def run(self, x, y) -> None:
        if self.how == "inner tape":
            with wb.Tape():
                self.perform(x, y)
        elif self.how == "record_tape=False" and self.op in LAUNCHES:
            self.perform(x, y, record_tape=False)
        elif self.how == "recorded":
            self.perform(x, y)
        else:
            self.plain(x.numpy(), y.numpy())


def part(rng, n: int) -> slice:
    step = int(rng.choice([1, 1, 2, -1]))
    span = (n - 1) * abs(step) + 1
    low = int(rng.integers(0, SIZE - span + 1))
    return slice(low, low + span, step) if step > 0 else slice(low + span - 1, low - 1 if low else None, step)


def program(rng, unseen: bool) -> list[Step]:
    steps: list[Step] = []
    hows = ["recorded"] * 8 + (["record_tape=False", "numpy()", "inner tape"] if unseen else [])
    length = int(rng.integers(1, 10))
    while len(steps) < length:
        n, op = int(rng.integers(1, 5)), str(rng.choice([*LAUNCHES, *MOVES, *WRITES]))
        a, b = (int(k) for k in rng.integers(0, BUFFERS, 2))
        step = Step(op, a, part(rng, n), b, part(rng, n), float(rng.normal()), str(rng.choice(hows)))
        same = (step.a, step.s) == (step.b, step.t)
        if same and op in MOVES and step.how != "recorded":
            continue  # nobody can see that, and nothing changed
        if op not in LAUNCHES or same or step.source.isdisjoint(step.target):  # else the threads would race
            steps.append(step)
    return steps


def derivative(steps: list[Step], start, seeds) -> np.ndarray:
    """The gradient of <seeds, final contents> by the contents before, one complex step per element."""
    found = np.zeros((BUFFERS, SIZE))
    later = [
        set().union(*(q.source | q.target for q in steps[k + 1 :] if q.how == "recorded")) for k in range(len(steps))
    ]
    for at in np.ndindex(BUFFERS, SIZE):
        z = start.astype(complex)
        z[at] += 1e-200j
        for step, met in zip(steps, later, strict=True):
            before = z.imag.copy()
            step.plain(z[step.a, step.s], z[step.b, step.t])
            for cell in step.target if not step.seen else ():
                z[cell] = z[cell].real + (0 if cell in met else 1j * before[cell])
        found[at] = (seeds * z.imag).sum() / 1e-200
    return found


def gradient(steps: list[Step], start, seeds, keep: str) -> np.ndarray:
    """What is published, the same twice; the contents do not change."""
    buffers = [wb.array(b, dtype=F, requires_grad=True) for b in start]
    with wb.Tape(keep=keep) as tape:
        wb.launch(read_all, dim=SIZE, inputs=[*buffers, wb.zeros(SIZE, dtype=F)])
        for step in steps:
            step.run(buffers[step.a][step.s], buffers[step.b][step.t])
    final, found = [read_values(b).copy() for b in buffers], []
    for _ in range(2):
        tape.zero()
        tape.backward(grads={b: wb.array(s, dtype=F) for b, s in zip(buffers, seeds, strict=True)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that parts were overwritten is known
            found.append(np.array([b.grad.numpy().copy() for b in buffers]))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(final, [read_values(b) for b in buffers])
    return found[0]


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["needed", "all"])
def test_recorded_programs_have_exact_gradients(keep):
    for k in range(80):
        rng = np.random.default_rng(k)
        steps, start, seeds = program(rng, False), rng.normal(size=(BUFFERS, SIZE)), rng.normal(size=(BUFFERS, SIZE))
        got, want = gradient(steps, start, seeds, keep), derivative(steps, start, seeds)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11, err_msg=f"program {k}: {steps}")


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["needed", "all"])
@pytest.mark.host_memory
def test_programs_with_writes_that_the_tape_cannot_see_are_exact_or_refused(keep):
    refused = 0
    for k in range(1000, 1080):
        rng = np.random.default_rng(k)
        steps, start, seeds = program(rng, True), rng.normal(size=(BUFFERS, SIZE)), rng.normal(size=(BUFFERS, SIZE))
        try:
            got = gradient(steps, start, seeds, keep)
        except wb.GradientError as error:
            assert error.slug in ("overwritten", "host-values", "nested-tape") and any(
                s.how != "recorded" for s in steps
            )
            refused += 1
            continue
        want = derivative(steps, start, seeds)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11, err_msg=f"program {k}: {steps}")
    assert 5 < refused < 60

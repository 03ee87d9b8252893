"""What is done with a tape of large arrays takes memory for what it must hold, and no Python object per element.

Bytes are those that Python and NumPy allocate (`tracemalloc`), in units of one array of the program.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import workbench as wb

SIZE = 1 << 17
ARRAY = 4 * SIZE


@wb.kernel
def step_in_place(x: wb.array[float], k: float):
    i = wb.tid()
    x[i] = x[i] + k * x[i] * x[i]


class Peak:
    arrays = 0.0


@contextmanager
def peak() -> Iterator[Peak]:
    """Says how many arrays more than at its beginning were held at most within."""
    found = Peak()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield found
    finally:
        found.arrays = (tracemalloc.get_traced_memory()[1] - before) / ARRAY
        tracemalloc.stop()


def in_place(launches: int) -> tuple[wb.Tape, Any, Any]:
    x = wb.array(np.linspace(0.1, 0.9, SIZE, dtype=np.float32), requires_grad=True)
    y = wb.zeros(SIZE)
    with wb.Tape() as tape:
        wb.copy(y, x)
        for _ in range(launches):
            wb.launch(step_in_place, SIZE, inputs=[y, 0.5])
    return tape, x, y


def test_a_walk_does_not_copy_what_the_tape_keeps():
    tape, x, y = in_place(8)
    seed, end = wb.ones(SIZE), y.numpy().copy()
    kept = sum(k.data.nbytes for e in tape.events for k in e.kept)
    assert kept == 8 * ARRAY
    with peak() as held:
        tape.backward(grads={y: seed})
    assert held.arrays < 5.5  # the present values of y, the seeds, the adjoints of x and y, the gradient of x
    np.testing.assert_array_equal(y.numpy(), end)
    exact, value = np.ones(SIZE), x.numpy().astype(np.float64)
    for _ in range(8):
        exact, value = exact * (1 + value), value + 0.5 * value * value
    np.testing.assert_allclose(x.grad.numpy(), exact, rtol=1e-5)

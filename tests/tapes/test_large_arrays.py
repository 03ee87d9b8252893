"""What is done with a tape of large arrays takes memory for what it must hold, and no Python object per element.

Bytes are those that Python and NumPy allocate (`tracemalloc`), in units of one array of the program.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import workbench as wb

SIZE = 1 << 19
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


ASKED: dict[str, tuple[float, Any]] = {  # with at most how many arrays more than are there, or are asked for
    "again": (3.2, lambda tape, x, y: tape.backward(grads={y: wb.ones(SIZE)})),  # the seeds twice, and y
    "memory": (0.3, lambda tape, x, y: repr(tape.memory())),
    "adjoint": (5.2, lambda tape, x, y: tape.adjoint(y)),
    "ledger": (4.2, lambda tape, x, y: repr(tape.ledger(x, 7))),
    "diagnose": (7.2, lambda tape, x, y: repr(tape.diagnose())),
    "microscope": (9.2, lambda tape, x, y: repr(tape.microscope(tape.events[1], 7))),
}


@pytest.mark.filterwarnings("ignore")
def test_looking_at_a_tape_of_large_arrays_copies_few_of_them():
    tape, x, y = in_place(3)
    tape.backward(grads={y: wb.ones(SIZE)})
    found = {}
    for name, (_, ask) in ASKED.items():
        ask(tape, x, y)
        with peak() as held:
            ask(tape, x, y)
        found[name] = held.arrays
    assert {name: n for name, n in found.items() if n > ASKED[name][0]} == {}

"""Eight kinds of programs that people write, each within a hundred lines; their gradients beside differences."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "kinds"
PROGRAMS = {
    "identification": (), "implicit_heat": (), "cloth": (), "contact": (), "torch_cartpole": pytest.mark.needs_torch,
    "molecules": (), "smoke": (), "lesson": (),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks) for n, marks in PROGRAMS.items()])
def test_the_gradient_is_that_of_differences_and_the_program_does_what_it_is_for(name):
    program = importlib.import_module(f"tests.programs.kinds.{name}")
    tape, loss, leaf, *_ = program.simulate(program.VALUES)
    tape.backward(loss)
    direction, e = np.random.default_rng(7).normal(size=program.VALUES.shape), 1e-4

    def value(s):
        return program.simulate(program.VALUES + s * direction)[1].numpy()[0]

    slope = (8 * (value(e) - value(-e)) - (value(2 * e) - value(-2 * e))) / (12 * e)
    np.testing.assert_allclose(np.sum(leaf.grad.numpy() * direction), slope, rtol=1e-6)
    program.check()


def test_each_has_less_than_a_hundred_lines():
    assert {p.stem for p in FOLDER.glob("*.py")} == set(PROGRAMS)
    assert all(len(p.read_text("utf-8").splitlines()) < 100 for p in FOLDER.glob("*.py"))

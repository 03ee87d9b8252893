"""What a tape shows of a solve: one box with its name, how the residual went down, arrays with names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.optim.test_native_turns import Springs
from workbench.display import residuals_text
from workbench.optim import linear

SIZES = [1e3 / 3**k for k in range(50)]


def solved(name: str, by_entries: bool) -> tuple[wb.Tape, linear.LinearSolverState]:
    F, n = wb.float64, 37
    c, b = (wb.array(np.cos(np.arange(n) + k) + 1.5, dtype=F, requires_grad=True) for k in (0, 1))
    A: Any = wb.array(np.diag(np.linspace(1.0, 2.0, n)), dtype=F, requires_grad=True) if by_entries else Springs(c).A
    A.name = "A"
    with wb.Tape() as tape:
        x, loss = wb.clone(b), wb.zeros(1, dtype=F)
        for given, a in {"b": b, "c": c, "x": x, "loss": loss}.items():
            a.name = given
        solver = getattr(linear, name)(A, b, x, tol=1e-8, run=False)
        solver()
        wb.utils.array_inner(x, x, out=loss)
    tape.backward(loss)
    names = {tape.names.of_memory(a.allocation) for event in tape.events for a in event.arrays}
    assert not [one for one in names if re.fullmatch(r"m\d+", one)]
    return tape, solver


@pytest.mark.host_memory("gmres")
@pytest.mark.parametrize("by_entries", [False, True])
@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres"])
def test_a_solve_is_one_box_with_the_history_of_its_residual(name, by_entries, backend):
    tape, solver = solved(name, by_entries)
    (box,) = tape.scopes
    assert box.name == name and (box.first, box.last) == (1, len(tape.events) - 2)
    (said,) = [event.said for event in tape.events if event.said]
    assert re.fullmatch(r"\d+ turns, residual [▁-█]+ \S+ to \S+ \(\S+ wanted\)", said)
    assert solver.residuals[-1] < 1e-6 * solver.residuals[0]
    assert {found.slug for found in tape.diagnose()} <= {"aliased"}  # the solve has read the guess that it overwrites


def test_residuals_of_native_turns_are_those_of_the_others():
    wb.config.backend = "c"
    native = solved("cg", False)[1].residuals
    wb.config.backend = "numpy"
    np.testing.assert_allclose(native, solved("cg", False)[1].residuals, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(
    "sizes, turns, want",
    [
        ([], 0, ""),
        ([2.0], 0, "0 turns, residual ▁ 2 to 2 (1 wanted)"),
        ([8.0, 0.0], 1, "1 turn, residual ▁ 8 to 0 (1 wanted)"),
        ([4.0, 2.0, 1.0], 2, "2 turns, residual █▅▁ 4 to 1 (1 wanted)"),
        ([1.0, np.inf, np.nan], 2, "2 turns, residual ▁ 1 to nan (1 wanted)"),
    ],
)
def test_text_of_residuals(sizes, turns, want):
    assert residuals_text(sizes, turns, 1.0) == want


def test_text_of_many_residuals_is_short_and_begins_and_ends_with_the_first_and_the_last():
    text = residuals_text(SIZES, 49, 1e-20)
    assert text.startswith("49 turns, residual █") and "▁ 1e+03 to" in text and len(re.findall("[▁-█]", text)) == 24


def test_a_root_is_one_box_with_its_history():
    p = wb.array([8.0, 27.0], dtype=wb.float64, requires_grad=True)

    def residual(x, p):
        return x * x * x - p

    with wb.Tape() as tape:
        wb.root(residual, wb.array([1.0, 1.0], dtype=wb.float64), p)
    assert [box.name for box in tape.scopes] == ["root"] and tape.scopes[0].last == len(tape.events)
    assert re.match(r"\d turns, residual █[▁-█]+▁ 27 to ", tape.events[0].said)


@pytest.mark.host_memory("gmres", "lu")  # factors are of entries on the CPU
@pytest.mark.parametrize("name", ["cg", "cr", "bicgstab", "gmres", "lu"])
@pytest.mark.parametrize("part", ["A", "b"])
def test_operands_that_are_not_finite_have_no_residual_and_no_gradient(name, part, backend):
    given = {"A": np.diag([1.0, 2.0, 4.0]), "b": np.ones(3)}
    given[part].flat[0] = np.nan
    A, b = (wb.array(a, dtype=wb.float64, requires_grad=True) for a in given.values())
    with wb.Tape() as tape:
        x = wb.zeros(3, dtype=wb.float64)
        _, residual, _ = getattr(linear, name)(A, b, x)
    assert not np.isfinite(residual)
    with pytest.raises(wb.GradientError, match=r"did not converge(.|\n)*\[linear\]"):
        tape.backward(grads={x: wb.ones_like(x)})


def test_factors_of_a_singular_sparse_matrix_are_refused():
    places = wb.array([0, 1], dtype=int)
    A = wb.sparse.bsr_from_triplets(3, 3, places, places, wb.array([1.0, 2.0], dtype=wb.float64))
    with pytest.raises(wb.LaunchError, match=r"lu\(\) of a singular matrix(.|\n)*\[linear\]"):
        linear.lu(A, wb.ones(3, dtype=wb.float64), wb.zeros(3, dtype=wb.float64))

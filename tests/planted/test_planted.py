"""Scripts as users write them, each with one planted bug: every bug is impossible, refused, or found with its cause.

`bugs/` and `healthy/` hold the scripts; `main()` runs one and returns its tape, a gradcheck report, or two tapes to
compare, and beside it what can be checked: (array, function of it) or (numbers, right numbers). Nothing is called with
anything but default arguments. A healthy script has no warning, and no finding but infos.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb

HERE = Path(__file__).parent

# name -> how it must come out, a piece of the line that must be named, words that must be said
BUGS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "boundary_by_cells": ("exact", "", ()),
    "numpy_operator": ("exact", "", ()),
    "jacobian_rows": ("exact", "", ()),
    "softplus_overflow": ("exact", "", ()),
    "number_into_launch": ("exact", "", ()),
    "normalise_on_host": ("refused", "y.assign(y.numpy() / norm)", ("y",)),
    "clip_on_host": ("refused", "v.assign(np.clip(v.numpy(), -5.0, 5.0))", ("v",)),
    "mean_by_numpy": ("refused", "mean.fill_(np.mean(h.numpy()))", ("h", "mean")),
    "torch_between": ("refused", "torch.tanh", ("y",)),
    "racing_scatter": ("refused", "grid[cell] = m[i]", ("grid",)),
    "torch_in_place": ("refused", "inputs=[x], outputs=[y]", ("torch", "x")),
    "data_augmented_early": ("refused", "inputs=[w, x]", ("x",)),
    "nothing_required": ("refused", "inputs=[k, x], outputs=[loss]", ("requires_grad",)),
    "tape_per_step": ("warned", "", ("earlier tape",)),
    "half_chained": ("warned", "", ("v1", "earlier tape")),
    "never_zeroed": ("found", "", ("w", "earlier")),
    "gradient_read_too_early": ("found", "", ("w.grad", "before")),
    "table_by_int": ("found", "node = float(int(x[i] * 10.0)) / 10.0", ("int",)),
    "reward_by_comparison": ("found", "hit = wb.where(d < 0.8, 1.0, 0.0)", ()),
    "rounded_control": ("found", "command[i] = wb.round(u[i] * 4.0) / 4.0", ("round",)),
    "nan_in_spring": ("found", "stretch = wb.sqrt(d - 0.5)", ("thread", "sqrt", "#40")),
    "coincident_particles": ("found", "wb.atomic_add(e, i, 1.0 / d)", ("thread (1, 3)", "1 / 0")),
    "force_never_read": ("found", "inputs=[v, c], outputs=[fd]", ("fd", "read")),
    "force_overwritten": ("found", "inputs=[self.x, self.k], outputs=[self.f]", (".f", "overwrit")),
    "one_field_overwritten": ("found", "self.state.v.fill_(0.0)", ("v",)),
    "zeroed_too_late": ("found", "f.zero_()", ("f",)),
    "wrong_twin": ("found", "inputs=[states[5], target]", ("states[5]", "states[4]")),
    "seed_of_ones": ("found", "", ("mean", "e")),
    "unfinished_jacobi": ("found", "inputs=[p0, b], outputs=[p1]", ("%",)),
    "saturated_motor": ("found", "torque[k * 2 + i] = wb.clamp(gain[i] * angle[k * 2 + i], -1.0, 1.0)", ("clamp",)),
    "exploding": ("found", "inputs=[a, r], outputs=[b]", ("grows", "a step")),
    "chaos_in_one_kernel": ("found", "for t in range(steps):", ("grows", "from turn 30 of 30", "a turn")),
    "throttle_in_one_kernel": ("found", "wb.clamp(gain[i] * error, -1.0, 1.0)", ("thread 3", "from turn 35 of 40")),
    "missing_dt": ("compared", "inputs=[x, v, 0.05]", ("x", "move")),
    "wrong_func_grad": ("checked", "def potential_grad", ("'d'", "it gives", "the derivative is")),
}


@dataclass
class Outcome:
    """What a user sees of one run."""

    tape: Any = None
    checks: dict = field(default_factory=dict)
    error: Exception | None = None
    warned: list[str] = field(default_factory=list)

    def said(self) -> list[str]:
        """Every finding and warning as one text, with its line."""
        findings = self.tape.diagnose() if isinstance(self.tape, wb.Tape) else []
        return [*self.warned, *map(str, findings)]


def run(kind: str, name: str) -> Outcome:
    path = HERE / kind / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"planted_{name}", path)
    assert spec is not None and spec.loader is not None
    module, out = importlib.util.module_from_spec(spec), Outcome()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            spec.loader.exec_module(module)
            result = module.main()
            out.tape, out.checks = result if isinstance(result, tuple) else (result, {})
        except (wb.GradientError, wb.LaunchError, wb.KernelError) as error:
            out.error = error
    out.warned = [f"{w.message}\n{_line(w)}" for w in caught]
    return out


def _line(warning: warnings.WarningMessage) -> str:
    return Path(warning.filename).read_text().splitlines()[warning.lineno - 1].strip()


def names(text: str, line: str, words: tuple[str, ...]) -> bool:
    return line in text and all(word in text for word in words)


def compare(outcome: Outcome) -> None:
    """Gradients against differences in the very program, or against numbers that are known."""
    for a, right in outcome.checks.values():
        if callable(right):
            a, right = a.grad.numpy(), differences(right, a)
        np.testing.assert_allclose(a, right, rtol=2e-3, atol=2e-4 * float(np.abs(right).max()))


def differences(loss: Any, a: wb.array, h: float = 1e-2) -> np.ndarray:
    start, found = a.numpy().astype(np.float64), []
    for i in range(start.size):
        ends = []
        for side in (h, -h):
            moved = start.copy()
            moved[i] += side
            ends.append(float(loss(wb.array(moved.astype(np.float32))).numpy()[0]))
        found.append((ends[0] - ends[1]) / (2 * h))
    return np.array(found)


def test_every_script_is_listed():
    assert {p.stem for p in (HERE / "bugs").glob("*.py")} == set(BUGS)
    assert len(BUGS) >= 30
    assert len(list((HERE / "healthy").glob("*.py"))) >= 10


@pytest.mark.parametrize("name", BUGS)
@pytest.mark.host_memory("torch", "data_augmented_early")
def test_a_planted_bug_is_impossible_refused_or_found(name, backend):
    if name.startswith("torch"):
        pytest.importorskip("torch")
    how, line, words = BUGS[name]
    out = run("bugs", name)
    if how == "exact":
        assert out.error is None and out.checks
        compare(out)
    elif how in ("refused", "checked"):
        assert out.error is not None, f"nothing was refused; warnings: {out.warned}"
        assert names(str(out.error), line, words), str(out.error)
    elif how == "compared":
        found = out.tape.diagnose(against=out.checks)
        assert any(names(str(f), line, words) for f in found), found.text
    else:
        if out.error is not None:
            raise out.error
        texts = out.warned if how == "warned" else out.said()
        assert any(names(text, line, words) for text in texts), "\n".join(texts)


@pytest.mark.parametrize("name", sorted(p.stem for p in (HERE / "healthy").glob("*.py")))
def test_a_healthy_script_raises_no_alarm(name, backend):
    out = run("healthy", name)
    if out.error is not None:
        raise out.error
    assert not out.warned
    compare(out)
    if isinstance(out.tape, wb.Tape):
        assert not out.tape.diagnose().problems, out.tape.diagnose().text
    else:
        assert out.tape, out.tape

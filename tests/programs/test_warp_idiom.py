"""Programs in Warp's idiom run with Warp and with the workbench: the import is the only line that differs.

Values agree to the rounding of float32; gradients agree with differences in float64, for which `Real` is widened.
Where Warp's gradient is another one, the program says so (`WARP_GRADIENT = "wrong"`, with the reason), and it is shown
here that the differences side with the workbench.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "warp_idiom"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
IMPORT, REAL = re.compile(r"^import warp\b", re.M), "Real = wp.float32\n"


def program(name: str, folder: Path, library: str, real: str = "float32") -> Any:
    """The program as a module of its own, with this library."""
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    assert text.count("import warp as wp\n") == 1 and text.count(REAL) == 1 and "workbench" not in text
    text = IMPORT.sub(f"import {library}", text).replace(REAL, f"Real = wp.{real}\n")
    file = folder / f"{name}_{library}_{real}.py"
    file.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = made
    spec.loader.exec_module(made)
    return made


def gradients(module: Any, values: dict[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    tape, loss, arrays = module.simulate(values)
    value = float(loss.numpy()[0])
    tape.backward(loss)
    return value, {name: a.grad.numpy().astype(np.float64) for name, a in arrays.items()}


def slope(module: Any, name: str, direction: np.ndarray, eps: float = 1e-5) -> float:
    """The derivative along a direction, by differences of fourth order."""

    def loss(s: float) -> float:
        return float(
            module.simulate({**module.PARAMETERS, name: module.PARAMETERS[name] + s * direction})[1].numpy()[0]
        )

    return (8 * (loss(eps) - loss(-eps)) - (loss(2 * eps) - loss(-2 * eps))) / (12 * eps)


def close(a: float, b: float, bound: float, scale: float) -> bool:
    return abs(a - b) <= bound * max(abs(a), abs(b), scale)


@pytest.mark.needs_cc
@pytest.mark.needs_warp
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_with_both_and_the_gradient_is_that_of_differences(name: str, tmp_path: Path) -> None:
    import warp

    warp.config.log_level = warp.LOG_WARNING
    warp.config.optimization_level = 0  # compiling is all that takes time
    warp.set_device("cpu")
    theirs, ours = program(name, tmp_path, "warp"), program(name, tmp_path, "workbench")
    wide = program(name, tmp_path, "workbench", "float64")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Warp says of its solvers that they have no adjoint
        value, their_grad = gradients(theirs, ours.PARAMETERS)
    mine, grad = gradients(ours, ours.PARAMETERS)
    exact, exact_grad = gradients(wide, ours.PARAMETERS)
    bound = getattr(ours, "ROUNDING", 1e-5)
    assert close(value, mine, bound, 0.0) and close(mine, exact, bound, 0.0), (value, mine, exact)
    rng, theirs_right = np.random.default_rng(0), []
    for key, at in ours.PARAMETERS.items():
        direction = rng.normal(size=at.shape) * np.abs(at).max()
        want = slope(wide, key, direction / np.abs(direction).max() * np.abs(at).max())
        direction = direction / np.abs(direction).max() * np.abs(at).max()
        size = float(np.linalg.norm(exact_grad[key]) * np.linalg.norm(direction))
        along = {
            k: float((g[key].reshape(at.shape) * direction).sum())
            for k, g in (("wide", exact_grad), ("ours", grad), ("theirs", their_grad))
        }
        assert close(along["wide"], want, 1e-6, 0.01 * size), (key, along, want)
        assert close(along["ours"], want, 100 * bound, size), (key, along, want)
        assert size > 0
        theirs_right.append(close(along["theirs"], want, 100 * bound, size))
    assert all(theirs_right) == (ours.WARP_GRADIENT == "same"), (theirs_right, ours.WARP_GRADIENT)


@pytest.mark.needs_cc
def test_a_run_walked_back_by_hand_and_one_with_checkpoint_have_one_gradient(tmp_path: Path) -> None:
    import workbench as wb

    module = program("fluid_checkpoint", tmp_path, "workbench", "float64")
    value, by_hand = gradients(module, module.PARAMETERS)
    arrays = {name: wb.array(a, dtype=wb.float64, requires_grad=True) for name, a in module.PARAMETERS.items()}
    run = module.Rollout(arrays)
    before, after = run.states[:2]

    @wb.checkpoint(steps=module.STEPS, budget=4)
    def simulate(k: int, *state: Any) -> None:
        run.step(0)
        for a, b in zip(before, after, strict=True):
            wb.copy(a, b)

    with wb.Tape() as tape:
        for name, a in zip(module.STATE, before, strict=True):
            wb.copy(a, arrays[name])
        simulate(*before, *after)
        wb.launch(module.measure, (module.N, module.N), inputs=before[:2], outputs=[run.loss])
    tape.backward(run.loss)
    assert run.loss.item() == value
    for name, a in arrays.items():
        np.testing.assert_allclose(a.grad.numpy(), by_hand[name], rtol=1e-9, atol=1e-12)

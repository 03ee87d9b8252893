"""A module that was loaded has compiled its kernels, several at once: launches and gradients find them ready."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

import workbench as wb
from workbench import display
from workbench.kernels.compile import c_compiler, c_library
from workbench.kernels.modules import get_module
from workbench.launches import executable

pytestmark = pytest.mark.needs_cc

TEXT = """
from typing import Any
import workbench as wb

@wb.kernel
def square(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]

@wb.kernel
def wave(u: wb.array2d(dtype=float), out: wb.array2d(dtype=float), c: float):
    i, j = wb.tid()
    if i > 0 and j > 0:
        out[i, j] = c * wb.sin(u[i - 1, j]) * u[i, j - 1]

@wb.kernel
def any_type(x: wb.array(dtype=Any), y: wb.array(dtype=Any)):
    i = wb.tid()
    y[i] = x[i] + x[i]

@wb.kernel
def rounded(x: wb.array(dtype=float), n: wb.array(dtype=int)):
    i = wb.tid()
    n[i] = int(wb.round(x[i]))
"""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of what is compiled, into an empty cache."""
    names: list[str] = []
    make = c_compiler._compile

    def noted(text: str, path: Any, flags: tuple[str, ...]) -> None:
        if not flags:  # the pool is no kernel
            names.append(text.rpartition("\nvoid ")[2].partition("(")[0])
        make(text, path, flags)

    monkeypatch.setattr(c_compiler, "_compile", noted)
    monkeypatch.setattr(c_library, "_loaded", {})
    wb.config.backend, wb.config.cache_dir = "c", tmp_path / "cache"
    return names


def written(folder: Path, name: str, text: str = TEXT) -> ModuleType:
    """The module of this name, with this text."""
    file = folder / f"{name}.py"
    file.write_text(text)
    made = ModuleType(name)
    made.__file__ = str(file)
    exec(compile(text, str(file), "exec"), vars(made))
    return made


def gradients(m: Any) -> tuple[list[float], float]:
    """Of the sum of `square` by its input, and of one cell of `wave` by one of its inputs."""
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3, requires_grad=True)
    u, out = wb.full((3, 4), 0.5, requires_grad=True), wb.zeros((3, 4), requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(m.square, 3, inputs=[x], outputs=[y])
        wb.launch(m.wave, (3, 4), inputs=[u], outputs=[out, 2.0])
    seed = np.zeros((3, 4), np.float32)
    seed[1, 1] = 1.0
    tape.backward(grads={y: wb.ones(3), out: wb.array(seed)})
    return x.grad.numpy().tolist(), float(u.grad.numpy()[0, 1])


@pytest.mark.parametrize("way", ["load_module", "force_load", "load"])
def test_a_loaded_module_compiles_nothing_more(way, compiled, tmp_path):
    m = written(tmp_path, f"loaded_by_{way}")
    wb.overload(m.any_type, {"x": wb.array(dtype=wb.vec2), "y": wb.array(dtype=wb.vec2)})
    if way == "load":
        assert get_module(m.__name__).load() is get_module(m.__name__)
    elif way == "load_module":
        assert wb.load_module(m) is get_module(m.__name__)
    else:
        wb.force_load(modules=[m])
    both = [name + end for name in ("any_type", "square", "wave") for end in ("", "_adjoint")]
    assert sorted(set(compiled) - {"rounded", "rounded_adjoint"}) == both and "rounded" in compiled
    ready = len(compiled)
    slopes, slope = gradients(m)
    assert slopes == [2.0, 4.0, 6.0]
    np.testing.assert_allclose(slope, 2.0 * np.cos(0.5) * 0.5, rtol=1e-6)
    wb.launch(m.any_type, 2, inputs=[wb.zeros(2, dtype=wb.vec2)], outputs=[wb.zeros(2, dtype=wb.vec2)])
    assert len(compiled) == ready, compiled[ready:]


def test_kernels_of_a_module_are_compiled_side_by_side_under_a_bar(compiled, tmp_path, monkeypatch, capsys):
    both, make = threading.Barrier(2, timeout=60), c_compiler._run

    def met(command: list[str], text: str, *given: Any) -> Any:
        both.wait()  # nobody comes through alone
        return make(command, text, *given)

    monkeypatch.setattr(c_compiler, "_run", met)
    monkeypatch.setattr(c_library, "_builders", cache(lambda threads: ThreadPoolExecutor(2)))
    monkeypatch.setattr(executable, "BAR_AFTER_S", 0.0)
    monkeypatch.setattr(display, "BAR_AFTER_S", 0.0)
    monkeypatch.setattr(display, "_bar_here", lambda: tqdm)  # as on a terminal
    head = TEXT.partition("@wb.kernel\ndef any_type")[0]
    wb.load_module(written(tmp_path, "side_by_side", head))
    assert len(compiled) == 4 and "compiling kernels" in capsys.readouterr().err


def test_modules_below_are_loaded_where_that_is_asked_for(compiled, tmp_path):
    above = written(tmp_path, "above", "import workbench as wb\n")
    below = written(tmp_path, "above.below", TEXT.partition("@wb.kernel\ndef wave")[0])
    wb.load_module(above)
    assert not compiled
    wb.load_module(above, recursive=True)
    assert sorted(compiled) == ["square", "square_adjoint"] and below.square.module.name == "above.below"


def test_a_kernel_that_cannot_be_read_is_refused(compiled, tmp_path):
    text = TEXT.partition("@wb.kernel\ndef wave")[0].replace("x[i] * x[i]", "x[i] * z[i]")
    with pytest.raises(wb.KernelError, match="`z` is not known"):
        wb.load_module(written(tmp_path, "unread", text))


def test_without_a_compiler_there_is_nothing_to_load(compiled, tmp_path):
    wb.config.backend = "numpy"
    wb.load_module(written(tmp_path, "interpreted"))
    assert not compiled

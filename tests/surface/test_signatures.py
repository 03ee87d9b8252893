"""What `help`, `inspect.signature` and a notebook's `?` say of a builtin."""

from __future__ import annotations

import inspect
import io
import pydoc
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import workbench as wb
from tests.test_reference import check
from workbench.kernels.ops import BUILTINS, STATEFUL, TILES
from workbench.kernels.ops.examples import EXAMPLES
from workbench.kernels.ops.functions import ATOMICS
from workbench.kernels.ops.signatures import signature

MARKERS = "tid print printf len expect_eq expect_near expect_neq".split()
NAMES = sorted({*BUILTINS, *ATOMICS, *STATEFUL, *TILES, *MARKERS})


@pytest.mark.parametrize("name", NAMES)
def test_a_builtin_has_a_signature_of_its_own(name: str) -> None:
    made = getattr(wb, name)
    text = str(inspect.signature(made))
    assert "*args" not in text and "Any" not in text and "**" not in text
    assert ": '" not in text and "-> '" not in text
    assert inspect.getdoc(made).startswith(f"{made.__name__}(")
    assert made.__name__ == name or name == "norm_l2"  # the same as `length`


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_example_of_a_builtin_does_what_it_says(name: str) -> None:
    assert check(getattr(wb, name).__doc__, name) > 0


@pytest.mark.parametrize(
    "head, text",
    [
        ("sin(x: F) -> F: of x.", "(x: F) -> F"),
        (
            "noise(state: uint32, x: float or vec2 to vec4) -> float.",
            "(state: uint32, x: float or vec2 to vec4) -> float",
        ),
        ("inverse(m: 2x2, 3x3 or 4x4 matrix) -> matrix; not", "(m: 2x2, 3x3 or 4x4 matrix) -> matrix"),
        ("put(a: array, *i: int, v: T = 1) -> T: a[i] = v.", "(a: array, *i: int, v: T = 1) -> T"),
        ("eig3(m: mat33) -> (Q: mat33, d: vec3): of m.", "(m: mat33) -> (Q: mat33, d: vec3)"),
        ("tile(shape, dtype=float, mode='lower'): one.", "(shape, dtype=float, mode='lower')"),
        ("block_dim(): 1.", "()"),
    ],
)
def test_a_signature_is_read_from_the_head_of_a_docstring(head: str, text: str) -> None:
    assert str(signature(head)) == text


def test_help_prints_types_and_an_example() -> None:
    text = pydoc.plain(pydoc.render_doc(wb.clamp))
    assert "clamp(x: T, lo: T, hi: T) -> T: min(max(lo, x), hi)" in text
    assert "T is any type of numbers." in text and ">>> wb.clamp(1.5, 0.0, 1.0)" in text


def test_a_question_mark_prints_the_signature(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell.instance()
    shell.user_ns["wb"] = wb
    said = io.StringIO()
    with redirect_stdout(said):
        shell.run_cell("wb.sin?")
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()
    text = re.sub(r"\x1b\[[\d;]*m", "", said.getvalue())
    assert re.search(r"^Signature: +wb\.sin\(x: F\) -> F$", text, re.MULTILINE)
    assert "F is a float type." in text and ">>> wb.sin(0.5)" in text

"""The text that is read is the text that runs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from workbench.errors import KernelError
from workbench.kernels.source import source

OLD = "SCALE = 2.0\n\ndef step(x, n):\n    for k in range(n):\n        x = x * SCALE + 1.0\n    return x\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "edited_module.py"
    path.write_text(OLD)
    spec = importlib.util.spec_from_file_location("edited_module", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "edited_module", made)
    spec.loader.exec_module(made)
    return made


def test_the_text_of_an_unchanged_file_is_taken(module):
    assert source(module.step).tree.name == "step"


@pytest.mark.parametrize("old, new", [("+ 1.0", "+ 2.0"), ("x * SCALE", "x / SCALE"), ("return x", "return n")])
def test_a_file_edited_after_its_import_is_refused(module, old, new):
    path = Path(module.__file__)
    path.write_text(OLD.replace(old, new) + "# longer\n")
    with pytest.raises(KernelError) as error:
        source(module.step)
    assert error.value.slug == "stale-source"


def test_a_comment_that_was_edited_does_no_harm(module):
    path = Path(module.__file__)
    path.write_text(OLD.replace("+ 1.0", "+ 1.0  # a word"))
    assert source(module.step).tree.name == "step"


def test_a_closure_that_calls_itself_is_read():
    factor = 3.0

    def nested(x):
        return nested(x) if x > factor else factor

    assert source(nested).tree.name == "nested"

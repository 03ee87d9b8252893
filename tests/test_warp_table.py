"""The table of Warp's names in the reference: no name of the wheel is missing, and each row says what it must."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[1] / ".docs" / "warp_table.py"
ROOMS = ("utils", "types", "optim", "optim.linear", "autograd", "sparse", "config")


def load() -> Any:
    spec = importlib.util.spec_from_file_location("warp_table", FILE)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["warp_table"] = made
    spec.loader.exec_module(made)
    return made


table = load()
NAMES = table.names()


def offered(module: Any) -> set[str]:
    names = [n for n in dir(module) if not n.startswith("_")]
    return {n for n in names if not isinstance(getattr(module, n), types.ModuleType)}


@pytest.mark.needs_warp
def test_no_name_of_the_wheel_is_missing() -> None:
    import warp
    import warp.autograd
    import warp.optim.linear
    import warp.sparse

    assert warp.__version__ == "1.19.0"
    found = {n for n in dir(warp) if not n.startswith("_")}
    found |= {n for n in warp._src.context.builtin_functions if not n.startswith("_")}
    for room in ROOMS:
        module = warp
        for part in room.split("."):
            module = getattr(module, part)
        found |= {f"{room}.{n}" for n in offered(module) if room != "config" or n[0].islower()}
    found -= {"config.annotations"}
    assert sorted(found ^ set(NAMES)) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_in_or_refused_with_the_way_out(name: str) -> None:
    assert table.known(name), f"{name} is neither here nor refused: give it a reason in kernels/ops/warp_names.py"
    _, state, said = table.row(name)
    assert state == "in" or len(said) > 10, name


def test_differences_are_of_names_that_exist() -> None:
    assert [name for name in table.DIFFERENT if name not in NAMES] == []
    assert [n for n in table.DIFFERENT if n != "config.verify_fp" and table.row(n)[1] == "refused"] == []


def test_the_page_has_a_row_for_each() -> None:
    page = table.page()
    assert page.count("   * - ``") == len(NAMES) >= 800
    assert "``volume_sample_f``" in page and "refused" in page and "in, differs" in page

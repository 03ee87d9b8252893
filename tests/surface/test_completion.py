"""What people see after a dot: `dir`, and the completer of IPython with and without jedi."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import workbench as wb

PAGE = Path(__file__).resolve().parents[2] / ".docs" / "tapes.rst"
MODULES = "autograd diagnose examples fem interop numerics optim pitfalls sparse verify viz".split()
MODULES += [
    "optim.linear",
    "interop.dlpack",
    *(pytest.param(f"interop.{m}", marks=getattr(pytest.mark, f"needs_{m}")) for m in ("torch", "jax", "warp")),
]
ARRAY = """T assign capacity contiguous detach device dtype field fill_ flatten grad is_contiguous item label list name
nbytes ndim numpy ptr requires_grad reshape retain_grad shape size strides to transpose view zero_"""
EVENT = "arrays id kept kind label line reads reason source where writes"


def shown(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        made = InteractiveShell.instance()
        made.history_manager.enabled = False
        made.user_ns["wb"] = wb
        made.user_ns["x"] = x = wb.array([1.0], requires_grad=True)
        with wb.Tape() as tape:
            wb.map(wb.sin, x)
        made.user_ns["tape"], made.user_ns["event"] = tape, tape.events[0]
        yield made
        made.history_manager.end_session()
        InteractiveShell.clear_instance()


def completed(shell: InteractiveShell, text: str, jedi: bool) -> set[str]:
    shell.Completer.use_jedi = jedi
    with provisionalcompleter():
        found = {c.text.lstrip(".") for c in shell.Completer.completions(text, len(text))}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("jedi", [True, False])
def test_completion_of_a_tape_offers_what_the_page_says(shell: InteractiveShell, jedi: bool) -> None:
    documented = set(re.findall(r"^   \* - ``tape\.(\w+)``$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert completed(shell, "tape.", jedi) == shown(shell.user_ns["tape"]) == documented
    assert len(documented) == 23


@pytest.mark.parametrize("jedi", [True, False])
def test_completion_of_an_array_offers_what_is_public(shell: InteractiveShell, jedi: bool) -> None:
    assert completed(shell, "x.", jedi) == set(ARRAY.split())


def test_completion_of_an_event_offers_what_is_public(shell: InteractiveShell) -> None:
    assert completed(shell, "event.", True) == shown(shell.user_ns["event"]) == set(EVENT.split())


@pytest.mark.parametrize("jedi", [True, False])
@pytest.mark.parametrize("name", MODULES[:10])
def test_completion_of_a_module_offers_what_is_public(shell: InteractiveShell, name: str, jedi: bool) -> None:
    assert completed(shell, f"wb.{name}.", jedi) == set(getattr(wb, name).__all__)


@pytest.mark.parametrize("name", MODULES)
def test_everything_that_a_module_offers_is_there(name: str) -> None:
    module: Any = wb
    for part in name.split("."):
        module = getattr(module, part)
    missing = {"wb.interop": {"torch", "jax", "warp"}}.get(f"wb.{name}", set())  # need other packages
    assert [n for n in module.__all__ if n not in missing and not hasattr(module, n)] == []
    assert dir(module) == sorted(module.__all__)
    assert not shown(module) & {"Any", "np", "annotations", "array", "Tape"}


def test_what_a_replayed_tape_has_beside_it_is_offered(shell: InteractiveShell) -> None:
    tape = shell.user_ns["tape"]
    assert shown(tape.replay()) == shown(tape) | {"of", "original"}


def test_kernels_and_graphs_offer_what_is_public() -> None:
    @wb.kernel
    def square(x: wb.array[float]):
        x[0] = x[0] * x[0]

    assert {"adjoint", "c", "cuda", "ir", "source", "steps"} < shown(square)
    assert not shown(square) & {"ahead", "gaps", "launches", "reads_presence", "without"}
    with wb.ScopedCapture() as scope:
        wb.launch(square, dim=1, inputs=[wb.ones(1)])
    assert shown(scope.graph) == {"replay"}

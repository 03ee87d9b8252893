"""Names, layout and circles of the package, as `tests.structure` counts them: what was reached is held."""

from __future__ import annotations

import ast

import pytest

from tests import structure


def test_a_class_name_stands_for_one_thing() -> None:
    assert structure.repeated_class_names() == {}


def test_docstrings_say_instead_of_asking() -> None:
    assert structure.questions() == []


def test_the_layout_of_the_code_is_left_to_the_formatter() -> None:
    assert structure.comments()["fmt"] == 0


# Modules that import each other, counted with the imports for the type checker, by where they lie.
CIRCLES = {
    "arrays": [2, 3, 8],
    "diagnose": [6],
    "interop.warp": [13],
    "kernels": [27],
    "kernels.emit": [2],
    "launches": [7],
    "tapes": [8],
    "viz.picture": [4],
}


def test_circles_of_imports_for_the_type_checker_are_those_that_are_known() -> None:
    assert structure.circles(structure.arrows(typing=False)) == []
    found: dict[str, list[int]] = {}
    for part in structure.circles(structure.arrows(typing=True)):
        homes = {m.removeprefix("workbench.").rpartition(".")[0] for m in part}
        found.setdefault(min(homes, key=len), []).append(len(part))
    assert {home: sorted(sizes) for home, sizes in found.items()} == CIRCLES


def test_a_circle_of_imports_under_type_checking_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "workbench.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B\n",
        "workbench.b": "from . import c\n",
        "workbench.c": "def f():\n    from .a import A\n",
    }
    monkeypatch.setattr(structure, "modules", lambda: {name: ast.parse(text) for name, text in texts.items()})
    monkeypatch.setattr(structure, "packages", set)
    assert structure.circles(structure.arrows(typing=False)) == []
    assert structure.circles(structure.arrows(typing=True)) == [["workbench.a", "workbench.b", "workbench.c"]]

"""Names, layout and circles of the package, as `tests.structure` counts them: what was reached is held."""

from __future__ import annotations

import ast
import re

import pytest

from tests import structure


def test_a_class_name_stands_for_one_thing() -> None:
    assert structure.repeated_class_names() == {}


def test_docstrings_say_instead_of_asking() -> None:
    assert structure.questions() == []


def test_what_changes_while_a_program_runs_stands_in_one_table() -> None:
    text = (structure.PACKAGE.parent / ".docs" / "inside.rst").read_text("utf-8")
    named = re.findall(r"^   \* - ``([\w.]+)``$", text.partition("What changes")[2], re.MULTILINE)
    assert [f"workbench.{name}" for name in named] == structure.changing_state()
    assert len(named) < 40


def test_rooms_and_the_arrows_between_them_are_few() -> None:
    figures = structure.figures()
    assert int(figures["rooms at the root"]) <= 18
    assert int(figures["arrows between rooms"]) <= 100


def test_the_layout_of_the_code_is_left_to_the_formatter() -> None:
    assert structure.comments()["fmt"] == 0


def test_no_modules_import_each_other_in_a_circle_not_even_for_the_type_checker() -> None:
    assert structure.circles(structure.arrows(typing=True)) == []


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

"""The script that runs programs of others: quick ones of Warp's wheel run here, and what it says of them is true."""

from __future__ import annotations

import numpy as np
import pytest

from tests.coverage import programs


def found(name: str):
    return next(path for path in programs.files(name) if path.stem == name)


@pytest.mark.needs_warp
@pytest.mark.needs_cc
def test_a_program_of_the_wheel_ends_with_the_numbers_of_warp():
    row = programs.compared(found("example_graph_capture"), 1, 120, False)
    assert row.imports and row.runs and row.values == "3" and row.stops == ""


@pytest.mark.needs_warp
@pytest.mark.needs_cc
@pytest.mark.parametrize("name", ["example_fluid", "example_wave"])
def test_a_program_of_the_wheel_runs_to_its_end(name):
    story = programs.run("workbench", found(name), 1, 120)
    assert story.stage == "runs" and not story.stopped and all(np.isfinite(a).all() for a in story.arrays.values())


@pytest.mark.needs_warp
def test_what_stops_a_program_is_said_and_its_imports_are_passed():
    story = programs.run("workbench", found("example_nvdb"), 1, 120)
    assert story.stage == "imports" and "Volume" in story.stopped and "[not-here]" in story.stopped


def test_differences_are_those_of_the_largest_element():
    a = np.array([1.0, 100.0])
    assert programs.difference(a + [0.0, 0.1], a) == pytest.approx(1e-3)
    assert programs.difference(a[:1], a) == np.inf == programs.difference(np.array([np.nan, 1.0]), a)
    assert programs.difference(np.array([1, 2]), np.array([1, 3])) == np.inf and programs.difference(a, a) == 0.0


def test_the_table_is_written_behind_what_is_there(tmp_path, monkeypatch):
    file = tmp_path / "RESULTS.md"
    file.write_text("# Kernels of others\n\nfigures\n")
    monkeypatch.setattr(programs, "__file__", str(tmp_path / "programs.py"))
    row = programs.Row("core/example_x", True, True, "2", "none", "")
    for _ in range(2):
        programs.write(programs.table([row]))
    text = file.read_text()
    assert text.startswith("# Kernels of others\n\nfigures\n") and text.count(programs.TITLE) == 1
    assert "| core/example_x | yes | yes | 2 | none |  |" in text and "1 with the same numbers" in text

"""How errors name a place: a file by its path, a notebook's cell by its number; and what they leave out."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest

import workbench as wb
from workbench.errors import GradientError, KernelError, Where, shown_file
from workbench.kernels.ir import walk

PLACE = Where("ipykernel_1/2.py", 4, 11, 15, "    y[i] = x[i] * 2")


def in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {"ipykernel_1/2.py": ("Cell", "In[7]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=cells.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_a_place_outside_a_notebook_is_its_file_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(PLACE) == "ipykernel_1/2.py:4"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert str(PLACE) == "ipykernel_1/2.py:4"


def test_a_place_in_a_notebook_is_the_number_of_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_notebook(monkeypatch)
    assert str(PLACE) == "In[7]:4"
    assert str(Where("model.py", 3)) == "model.py:3"
    assert "  In[7]:4: y[i] = x[i] * 2\n" in str(GradientError("wrong", slug="slug", where=PLACE))


def test_a_kernel_error_prints_like_the_others_and_keeps_what_draws_the_caret() -> None:
    error = KernelError("wrong", slug="slug", where=PLACE, why="since", instead="right")
    assert str(error) == "wrong\nsince\n  ipykernel_1/2.py:4: y[i] = x[i] * 2\nWrite instead:   right\n[slug]"
    assert (error.lineno, error.offset, error.end_offset) == (4, 12, 16)
    drawn = "".join(traceback.format_exception_only(error))
    assert "    y[i] = x[i] * 2\n           ^^^^\n" in drawn and "[slug]" in drawn


def test_the_traceback_of_a_refused_kernel_leaves_out_the_reader() -> None:
    @wb.kernel
    def lossy(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = x[i] * i

    with pytest.raises(KernelError) as caught:
        lossy.ir
    rooms = [Path(frame.filename).parent.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "kernels" in rooms and "reading" not in rooms and "ops" not in rooms


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/srv/me/env/lib/site-packages/engine/_src/smooth.py", "engine/_src/smooth.py"),
        ("/srv/me/work/run.py", "run.py"),
        ("/srv/me/work/env/site-packages/engine/step.py", "engine/step.py"),
        ("/srv/me/other/tools/mesh.py", "tools/mesh.py"),
        ("/elsewhere/mesh.py", "/elsewhere/mesh.py"),
        ("run.py", "run.py"),
    ],
)
def test_a_file_is_named_without_the_folders_of_the_machine(
    file: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = ["/srv/me/env/lib/site-packages", "/srv/me/work/env/site-packages", "/srv/me/other", "/srv/me"]
    monkeypatch.setattr(sys, "path", folders)
    monkeypatch.setattr("os.getcwd", lambda: "/srv/me/work")
    assert shown_file(file) == shown
    assert str(Where(file, 3)) == f"{shown}:3"


@wb.kernel
def closest(mesh: wb.uint64, p: wb.array[wb.vec3], y: wb.array[float]):
    i = wb.tid()
    found = wb.mesh_query_point(mesh, p[i], 1.0e6)
    if found.result:
        y[i] = wb.length(wb.mesh_eval_position(mesh, found.face, found.u, found.v) - p[i])


@wb.kernel
def closest_of_chosen(meshes: wb.array[wb.uint64], p: wb.array[wb.vec3], y: wb.array[float]):
    i = wb.tid()
    found = wb.mesh_query_point(meshes[i], p[i], 1.0e6)
    if found.result:
        y[i] = 1.0


@wb.kernel
def searched(a: wb.array[float], y: wb.array[int]):
    i = wb.tid()
    y[i] = wb.lower_bound(a, 0.5)


@pytest.mark.parametrize("kernel", [closest, closest_of_chosen, searched])
def test_all_that_a_function_of_the_language_does_has_its_place_at_the_call(kernel: wb.Kernel) -> None:
    places = {(s.where.file, s.where.line) for s in walk(kernel.program().function.body) if s.where}
    code = kernel.func.__code__
    assert places <= {(__file__, line) for *_, line in code.co_lines()} and len(places) > 1

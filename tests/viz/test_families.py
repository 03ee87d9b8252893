"""Lanes of one list or one kind fold into one row: which do, what it is called, and that it hides no alias."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.support import view_samples as samples
from tests.support.drawn import labels_of
from workbench.viz.data.envelope import Bars, envelope_text, envelopes
from workbench.viz.data.gather import gather
from workbench.viz.data.lanes import Bar
from workbench.viz.data.rows import LEAST, families
from workbench.viz.data.trace import AdjointLevel, AllocationTrack, NameRange
from workbench.viz.picture.scene import Picture


def tracks(*names: str, nbytes: int = 64) -> list[AllocationTrack]:
    return [
        AllocationTrack(f"m{n}", nbytes, [NameRange(one, 0, nbytes) for one in name.split(", ")], "float32 (16,)", 4)
        for n, name in enumerate(names)
    ]


def test_a_list_folds_in_the_order_of_its_indices() -> None:
    (u,) = families(tracks("x", *[f"u[{k}]" for k in (3, 1, 0, 2, 10, 4, 5, 6, 7, 8, 9)], "loss"))
    assert u.name == "u[0…10]" and u.members == (3, 2, 4, 1, 6, 7, 8, 9, 10, 11, 5)
    assert u.note == "11 arrays, float32 (16,) each · 704 B"


def test_an_attribute_of_a_list_of_objects_folds_and_each_attribute_for_itself() -> None:
    found = families(tracks(*[f"state[{k}].{one}" for k in range(5) for one in "qp"], "grid[0][1]", "grid[1][1]"))
    assert [(f.name, len(f.members)) for f in found] == [("state[0…4].q", 5), ("state[0…4].p", 5)]
    (grid,) = families(tracks(*[f"grid[{k}][{j}]" for k in range(2) for j in range(2)]))
    assert (grid.name, len(grid.members)) == ("grid[…][…]", 4)


def test_what_every_step_makes_anew_folds() -> None:
    (fresh,) = families(tracks("x", "a, b", "b, a", "a, b", "a, b", "y"))
    assert fresh.name == "a, b" and fresh.members == (1, 2, 3, 4)


def test_few_arrays_names_of_their_own_and_parts_stay_in_sight() -> None:
    assert families(tracks(*[f"u[{k}]" for k in range(LEAST - 1)])) == []
    assert families(tracks("a", "b", "c", "d", "x1", "x2", "x3", "x4")) == []
    alias = tracks(*[f"u[{k}]" for k in range(5)], "u[5], last")
    assert [f.members for f in families(alias)] == [(0, 1, 2, 3, 4)]
    part = AllocationTrack("m9", 64, [NameRange("u[6]", 0, 32)], "float32 (16,)", 4)
    assert [f.members for f in families([*alias, part])] == [(0, 1, 2, 3, 4)]


def test_a_list_with_holes_and_several_shapes_says_so() -> None:
    made = [*tracks("u[0]", "u[2]", "u[4]"), AllocationTrack("m7", 8, [NameRange("u[9]", 0, 8)], "float32 (2,)", 4)]
    (u,) = families(made)
    assert (u.name, len(u.members)) == ("u[…]", 4) and u.note == "4 arrays, of several shapes · 200 B"


def test_lanes_together_are_as_true_as_each_of_them() -> None:
    rng, edges = np.random.default_rng(3), np.array([0, 0, 4, 4, 9, 20])
    levels = [None, *(AdjointLevel("m", 0, 8, size, zero=size == 0) for size in (0.0, 1e-3, 2.0, 6.23))]
    levels += [AdjointLevel("m", 0, 8, 1.0, nan=True), AdjointLevel("m", 0, 8, 3.0, inf=True)]
    for _ in range(50):
        found, bars = [], []
        for _ in range(3):
            ends = [-1, *sorted(rng.choice(19, 4, replace=False)), 20]
            held = [Bar("m", 0, 8, levels[rng.integers(len(levels))], a, b) for a, b in pairwise(ends)]
            found.append(envelopes(Bars.of(held[::-1]), edges))
            bars += held
        all_ = envelopes(Bars.of(bars), edges)
        for k in range(len(edges) - 1):
            ones = [one.at(k) for one in found]
            assert all_.at(k).most == max(one.most for one in ones)
            assert all_.at(k).least == min((one.least for one in ones if one.least), default=0)
            for name in ("value", "zero", "nan", "inf", "absent"):
                assert getattr(all_.at(k), name) == any(getattr(one, name) for one in ones), name
            if any(one.value for one in ones):
                assert envelope_text(all_.at(k), str) != "0 exactly"


@pytest.mark.parametrize("steps", [16, 80])
def test_the_static_picture_folds_a_list_and_never_says_zero_where_an_array_of_it_is_not(steps: int) -> None:
    tape, _ = samples.chain(steps)
    scene = Picture(gather(tape)).drawn()
    names = [mark.text for mark in labels_of(scene) if mark.cls == "name"]
    assert f"u[0…{steps}] ×{steps + 1}" in names and "u[0]" not in names and "c" in names
    assert len({mark.id for mark in scene.marks}) == len(scene.marks)
    zeros = [mark for mark in scene.marks if mark.id.startswith("family-0-adjoint") and "zero" in mark.cls]
    bands = [mark for mark in scene.marks if mark.id.startswith("family-0-adjoint") and "band" in mark.cls]
    for zero in zeros:  # some array of the list is the seed, or has the gradient, at every moment
        assert any(band.x <= zero.x and zero.x + zero.w <= band.x + band.w + 0.1 for band in bands), zero
    assert all(mark.text for mark in labels_of(scene))


def test_few_lanes_stay_as_they_are_in_the_static_picture() -> None:
    tape, _ = samples.chain(6)
    assert "u[3]" in [mark.text for mark in labels_of(Picture(gather(tape)).drawn())]


def test_the_table_beside_a_folded_picture_lists_every_array() -> None:
    tape, _ = samples.chain(16)
    assert "u[3]" in tape.show().text

"""What packages written for Warp do with arrays on the host: ask for their kind, note things on them, hand in rows."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb


def test_an_annotation_is_an_array_to_isinstance_and_a_launch_still_refuses_it():
    @wb.kernel
    def double(x: wb.array[float]):
        x[wb.tid()] = 2.0 * x[wb.tid()]

    noted = wb.array(ndim=1, dtype=float)
    noted.shape = ("nworld",)  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(noted, wb.array) and isinstance(wb.array[wb.vec3], wb.array)
    assert isinstance(wb.zeros(1), wb.array) and not isinstance(wb.float32, wb.array) and not isinstance(1.0, wb.array)
    for wrong in (noted, wb.array[float]):
        with pytest.raises(wb.LaunchError, match=r"(.|\n)*\[argument-type\]"):
            wb.launch(double, 1, [wrong])
        with pytest.raises(wb.LaunchError):
            wb.copy(wb.zeros(1), wrong)
        with pytest.raises(wb.LaunchError):
            wb.clone(wrong)


def test_programs_note_things_on_arrays_and_misspelt_marks_are_refused():
    x = wb.zeros(3)
    x._is_batched = True
    assert x._is_batched and not hasattr(wb.zeros(3), "_is_batched")
    for wrong in ("requires_gard", "requires_gradient", "gradient", "sum"):
        with pytest.raises(AttributeError, match="Write instead"):
            setattr(x, wrong, True)


@pytest.mark.parametrize(
    ("shape", "dtype", "made"),
    [
        ((12,), wb.vec3, (4,)),
        ((2, 6), wb.vec3, (2, 2)),
        ((0, 6), wb.vec3, (0, 2)),
        ((0,), wb.vec3, (0,)),
        ((3, 4), wb.mat22, (3,)),
        ((3, 8), wb.mat22, (3, 2)),
        ((12,), wb.mat22, (3,)),
        ((4,), wb.mat22, (1,)),
        ((3,), wb.vec3, (1,)),
        ((2, 14), wb.transform, (2, 2)),
    ],
)
def test_components_of_several_elements_in_a_row_make_an_array_as_in_warp(shape, dtype, made):
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    a = wb.array(data, dtype=dtype)
    assert a.shape == made and np.array_equal(a.numpy().ravel(), data.ravel())


def test_components_that_do_not_fill_elements_are_refused():
    for shape in ((4,), (3, 5)):
        with pytest.raises(wb.LaunchError, match=r"does not hold elements of vec3(.|\n)*\[components\]"):
            wb.array(np.zeros(shape), dtype=wb.vec3)

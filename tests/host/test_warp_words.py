"""Words of Warp for pools, levels, dtypes and types: taken where they change no result, else refused."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb


def test_a_default_that_is_not_zero_is_refused():
    with pytest.raises(TypeError, match="default value"):

        @wb.struct
        class Heavy:
            mass: float = 2.5

    @wb.struct
    class Ball:
        mass: float
        alive: bool = False
        number: int = 0

    assert not Ball().alive


def test_what_is_asked_about_memory_pools_is_no():
    asked = [f"is_{what}_{state}" for what in ("mempool_access", "peer_access") for state in ("supported", "enabled")]
    assert not any(getattr(wb, name)("cpu", "cpu") for name in asked)
    assert not wb.is_mempool_supported("cpu") and not wb.is_mempool_enabled("cpu")
    wb.set_mempool_enabled("cpu", False)
    with pytest.raises(wb.LaunchError, match=r"set_mempool_enabled(.|\n)*\[not-here\]"):
        wb.set_mempool_enabled("cpu", True)


def test_words_for_the_order_of_sums_and_for_logs():
    wb.config.deterministic = wb.DeterministicMode.RUN_TO_RUN
    assert wb.config.deterministic is True
    wb.config.deterministic = wb.DeterministicMode.NOT_GUARANTEED
    assert wb.config.deterministic is False
    wb.config.log_level = wb.LOG_WARNING
    with wb.ScopedTimer("step", cuda_filter=wb.TIMING_KERNEL | wb.TIMING_GRAPH) as timer:
        pass
    assert timer.elapsed >= 0.0


def test_dtypes_of_numpy_and_ours():
    assert wb.dtype_from_numpy("int32") is wb.int32 and wb.dtype_to_numpy(float) == np.float32
    assert wb.dtype_to_numpy(wb.mat22d) == np.float64
    with pytest.raises(wb.LaunchError, match=r"\[dtype\]"):
        wb.dtype_from_numpy("complex64")


def test_types_are_asked_named_and_joined():
    class vec5(wb.types.vector(length=5, dtype=float)):  # type: ignore[misc]
        pass

    assert vec5 is wb.types.vector(5, float)  # type: ignore[comparison-overlap]
    assert isinstance(vec5(1.0), vec5) and not isinstance(wb.vec3(), vec5) and not isinstance(3.0, wb.vec3)
    assert isinstance(wb.float32(1), (wb.vec3, wb.float32)) and not isinstance(wb.float64(1), wb.float32)
    for wrong in ("length = 3", "x: int"):
        with pytest.raises(TypeError, match="pass"):
            exec(f"class vec6(wb.vec3):\n    {wrong}", {"wb": wb})


def joined(x: wb.vec3 | None, y: list[float] | wb.vec3, z: wb.array[float] | None = None):  # type: ignore[valid-type]
    return x, y, z


def test_notes_on_annotations_change_nothing():
    made = wb.array(ndim=2, dtype=float)
    made.shape = ("nworld", 3)  # type: ignore[misc]
    assert made == wb.array2d[float] and made.shape == ("nworld", 3)
    with pytest.raises(AttributeError, match="dtype"):
        made.dtype = int  # type: ignore[misc]


def test_an_annotation_of_what_is_not_here_is_refused_where_it_is_used():
    def paint(t: wb.array[wb.Texture2D], y: wb.array[float]):  # type: ignore[valid-type]
        y[0] = 1.0

    with pytest.raises(wb.KernelError, match=r"`t`(.|\n)*Texture2D(.|\n)*\[annotation\]"):
        wb.launch(wb.kernel(paint), 1, [None, wb.zeros(1)])


def test_what_is_not_here_may_stand_in_annotations():
    def bake(volume: wb.Volume | None = None, texture: int | wb.Texture3D = 0):  # type: ignore[valid-type]
        return isinstance(volume, wb.Volume)

    assert not bake(3)

    @wb.struct
    class Field:
        texture: wb.Texture3D  # type: ignore[valid-type]

    with pytest.raises(wb.LaunchError, match=r"Field(.|\n)*'texture'(.|\n)*\[not-here\]"):
        Field()


def test_the_version_is_that_of_the_package():
    assert wb.__version__.count(".") == 2  # type: ignore[attr-defined]


def test_values_print_as_in_warp():
    assert str(wb.vec3(1.0, 2.0, 0.1)) == "[1.0, 2.0, 0.10000000149011612]" and str(wb.vec2i(1, 2)) == "[1, 2]"
    assert str(wb.mat22(1.0, 2.0, 3.0, 4.0)) == "[[1.0, 2.0],\n [3.0, 4.0]]"
    assert f"{wb.quat_identity()}" == "[0.0, 0.0, 0.0, 1.0]"
    assert str(wb.vec3(1.0, 2.0, 3.0)[:2]) == "[1. 2.]"  # no value of a type any more


def test_kernels_made_in_functions_and_types_of_ctypes():
    import ctypes

    def made(n):
        @wb.fem.cache.dynamic_kernel(suffix=n, kernel_options={"enable_backward": False})
        def fill(y: wb.array[float]):
            y[wb.tid()] = float(n)

        return fill

    y = wb.zeros(1)
    for n in (3, 4):
        wb.launch(made(n), 1, [y])
        assert y.numpy().tolist() == [n]
    assert wb.types.type_ctype(float) is ctypes.c_float and wb.types.type_ctype(wb.bool) is ctypes.c_bool
    assert wb.types.type_ctype(wb.mat22d) is ctypes.c_double * 4
    with pytest.raises(TypeError, match="float16"):
        wb.types.type_ctype(wb.float16)

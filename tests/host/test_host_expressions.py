"""Expressions of the host, evaluated with Warp and with the workbench: equal values, or a difference that is named."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import workbench as wb

SAME = """
wp.vec3(1.0, 2.0, 3.0) == wp.vec3(1.0, 2.0, 3.0)
wp.vec3(1.0, 2.0, 3.0) != wp.vec3(1.0, 2.0, 3.0)
wp.vec3(1.0, 2.0, 3.0) == wp.vec3(1.0, 2.0, 4.0)
wp.vec3(1.0, 2.0, 3.0) != wp.vec3(1.0, 2.0, 4.0)
wp.mat22(1.0, 2.0, 3.0, 4.0) == wp.mat22(1.0, 2.0, 3.0, 4.0)
wp.mat22(1.0, 2.0, 3.0, 4.0) != wp.mat22(1.0, 2.0, 3.0, 4.5)
wp.quat(0.0, 0.0, 0.0, 1.0) == wp.quat_identity()
wp.transform_identity() == wp.transform_identity()
bool(wp.vec2(1.0, 2.0) == wp.vec2(1.0, 2.0))
(1.0, 2.0) == tuple(wp.vec2(1.0, 2.0))
wp.vec3(1.0, 2.0, 3.0) + wp.vec3(1.0, 1.0, 1.0)
wp.vec3(1.0, 2.0, 3.0) - wp.vec3(1.0, 1.0, 1.0)
wp.vec3(1.0, 2.0, 3.0) * 2.0
2.0 * wp.vec3(1.0, 2.0, 3.0)
wp.vec3(1.0, 2.0, 3.0) / 2.0
-wp.vec3(1.0, 2.0, 3.0)
+wp.vec3(1.0, 2.0, 3.0)
wp.mat22(1.0, 2.0, 3.0, 4.0) * wp.vec2(1.0, 2.0)
wp.mat22(1.0, 2.0, 3.0, 4.0) @ wp.vec2(1.0, 2.0)
wp.mat22(1.0, 2.0, 3.0, 4.0) @ wp.mat22(1.0, 2.0, 3.0, 4.0)
wp.mat22(1.0, 2.0, 3.0, 4.0) * 2.0
wp.mat22(1.0, 2.0, 3.0, 4.0) + wp.mat22(1.0, 2.0, 3.0, 4.0)
wp.quat_identity() * wp.quat_identity()
wp.transform_identity() * wp.transform_identity()
len(wp.vec3())
len(wp.mat33())
list(wp.vec3(1.0, 2.0, 3.0))
tuple(wp.vec3(1.0, 2.0, 3.0))
wp.vec3(1.0, 2.0, 3.0)[1]
wp.vec3(1.0, 2.0, 3.0)[-1]
wp.vec3(1.0, 2.0, 3.0)[0:2]
wp.vec3(1.0, 2.0, 3.0).x
wp.vec4(1.0, 2.0, 3.0, 4.0).w
wp.mat22(1.0, 2.0, 3.0, 4.0)[0]
wp.mat22(1.0, 2.0, 3.0, 4.0)[1, 0]
wp.mat22(1.0, 2.0, 3.0, 4.0)[0][1]
wp.vec3(2.0)
wp.vec3([1.0, 2.0, 3.0])
wp.vec3((1.0, 2.0, 3.0))
wp.vec3(np.array([1.0, 2.0, 3.0]))
wp.vec3(1, 2, 3)
wp.mat22([[1.0, 2.0], [3.0, 4.0]])
wp.mat22([1.0, 2.0, 3.0, 4.0])
wp.mat33(1.0)
wp.types.vector(3, float) == wp.vec3
wp.vec3 == wp.vec3f
wp.vec3._length_
wp.vec3._shape_
wp.mat33._shape_
wp.dot(wp.vec3(1.0, 2.0, 3.0), wp.vec3(1.0, 2.0, 3.0))
wp.cross(wp.vec3(1.0, 0.0, 0.0), wp.vec3(0.0, 1.0, 0.0))
wp.length(wp.vec3(3.0, 4.0, 0.0))
wp.normalize(wp.vec3(3.0, 4.0, 0.0))
wp.determinant(wp.mat22(1.0, 2.0, 3.0, 4.0))
wp.transpose(wp.mat22(1.0, 2.0, 3.0, 4.0))
wp.inverse(wp.mat22(2.0, 0.0, 0.0, 4.0))
wp.trace(wp.mat22(1.0, 2.0, 3.0, 4.0))
wp.outer(wp.vec2(1.0, 2.0), wp.vec2(3.0, 4.0))
wp.diag(wp.vec2(1.0, 2.0))
wp.quat_rotate(wp.quat_identity(), wp.vec3(1.0, 2.0, 3.0))
wp.quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), 0.5)
wp.quat_to_matrix(wp.quat_identity())
wp.quat_rpy(0.1, 0.2, 0.3)
wp.transform_point(wp.transform_identity(), wp.vec3(1.0, 2.0, 3.0))
wp.transform_inverse(wp.transform(wp.vec3(1.0, 2.0, 3.0), wp.quat_identity()))
wp.transform(wp.vec3(1.0, 2.0, 3.0), wp.quat_identity()).p
wp.transform(wp.vec3(1.0, 2.0, 3.0), wp.quat_identity()).q
wp.transform_get_translation(wp.transform(wp.vec3(1.0, 2.0, 3.0), wp.quat_identity()))
wp.sin(0.5)
wp.sqrt(2.0)
wp.abs(-3)
wp.min(1.0, 2.0)
wp.max(3, 2)
wp.min(wp.vec2(1.0, 4.0), wp.vec2(2.0, 3.0))
wp.clamp(5.0, 0.0, 1.0)
wp.floor(1.5)
wp.round(2.5)
wp.sign(-2.0)
wp.step(-1.0)
wp.lerp(0.0, 2.0, 0.25)
wp.smoothstep(0.0, 1.0, 0.25)
wp.pow(2.0, 3.0)
wp.mod(7.0, 3.0)
wp.rand_init(42)
wp.rand_init(42, 3)
wp.randf(wp.rand_init(42))
wp.randf(wp.rand_init(42), -1.0, 1.0)
wp.randi(wp.rand_init(42))
wp.randi(wp.rand_init(42), 0, 10)
wp.randu(wp.rand_init(42))
wp.randn(wp.rand_init(42))
wp.sample_unit_sphere(wp.rand_init(42))
wp.sample_triangle(wp.rand_init(42))
wp.noise(wp.rand_init(42), 0.5)
wp.float32(2.5)
wp.int32(7)
wp.uint8(255)
float(wp.float32(2.5))
wp.array([1.0, 2.0]).numpy()
wp.array([[1.0, 2.0, 3.0]], dtype=wp.vec3).shape
wp.array([1, 2, 3]).dtype
wp.array([1.0]).dtype
wp.array([True, False]).dtype
wp.array(np.arange(3)).dtype
wp.array(np.arange(3.0)).dtype
wp.full(2, 3).dtype
wp.full(2, 3.0).dtype
wp.full(2, wp.vec3(1.0, 2.0, 3.0)).numpy()
wp.ones(2, dtype=wp.mat22).numpy()
wp.array([1.0, 2.0, 3.0]).list()
wp.array([1.0, 2.0, 3.0])[1:].numpy()
wp.zeros((2, 3)).strides
wp.zeros((2, 3), dtype=wp.vec3).size
wp.zeros((2, 3)).ndim
wp.zeros((2, 3)).transpose().shape
wp.zeros((2, 3)).reshape(6).shape
wp.zeros((2, 3)).flatten().shape
wp.zeros((2, 3)).is_contiguous
len(wp.zeros((2, 3)))
wp.types.type_is_vector(wp.vec3)
wp.types.type_is_matrix(wp.mat33)
wp.types.type_is_float(wp.float32)
wp.types.type_repr(wp.vec3)
wp.dtype_from_numpy(np.float32)
wp.utils.array_sum(wp.array([1.0, 2.0, 3.0]))
wp.utils.array_inner(wp.array([1.0, 2.0]), wp.array([3.0, 4.0]))
wp.matrix_from_rows(wp.vec2(1.0, 2.0), wp.vec2(3.0, 4.0))
wp.matrix_from_cols(wp.vec2(1.0, 2.0), wp.vec2(3.0, 4.0))
wp.cw_mul(wp.vec2(1.0, 2.0), wp.vec2(3.0, 4.0))
wp.cw_div(wp.vec2(1.0, 2.0), wp.vec2(2.0, 4.0))
wp.ddot(wp.mat22(1.0, 2.0, 3.0, 4.0), wp.mat22(1.0, 2.0, 3.0, 4.0))
wp.skew(wp.vec3(1.0, 2.0, 3.0))
wp.length_sq(wp.vec3(1.0, 2.0, 3.0))
wp.quat_slerp(wp.quat_identity(), wp.quat(0.0, 0.0, 1.0, 0.0), 0.5)
wp.quat_inverse(wp.quat(0.0, 0.0, 1.0, 0.0))
wp.normalize(wp.quat(0.0, 0.0, 2.0, 0.0))
wp.vec3.__name__
wp.mat33.__name__
wp.quat.__name__
wp.transform.__name__
wp.float32.__name__
wp.vec3(1.0, 2.0, 3.0) in [wp.vec3(1.0, 2.0, 3.0)]
wp.get_device("cpu").alias
wp.get_device("cpu").is_cpu
wp.bool(True)
""".strip().splitlines()
STATE = "the state of a generator is a value: the new one is returned beside the number"
DEFAULTS = "numbers of Python have the types that they have in kernels"
DIFFERENT = {
    "wp.randf(wp.rand_init(42))": STATE,
    "wp.randf(wp.rand_init(42), -1.0, 1.0)": STATE,
    "wp.randi(wp.rand_init(42))": STATE,
    "wp.randi(wp.rand_init(42), 0, 10)": STATE,
    "wp.randu(wp.rand_init(42))": STATE,
    "wp.randn(wp.rand_init(42))": STATE,
    "wp.sample_unit_sphere(wp.rand_init(42))": STATE,
    "wp.sample_triangle(wp.rand_init(42))": STATE,
    "wp.array([1, 2, 3]).dtype": DEFAULTS,
    "wp.array([1.0]).dtype": DEFAULTS,
    "wp.types.vector(3, float) == wp.vec3": "a type is one, however it was made; in Warp two classes",
}


def value(library: Any, text: str) -> Any:
    return eval(text, {"wp": library, "np": np})


def plain(found: Any) -> Any:
    """What can be compared: components in a row, or the name of a type."""
    if hasattr(found, "numpy") and not callable(found.numpy):
        return getattr(found, "__name__", str(found))
    if isinstance(found, type) or isinstance(found, wb.types.Scalar):
        return found.__name__
    if isinstance(found, str):
        return found
    values = found.numpy() if hasattr(found, "numpy") else found
    return np.array(values, dtype=float).ravel()


@pytest.fixture(scope="module")
def warp():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import warp

        warp.config.quiet = True
        warp.init()
    return warp


@pytest.mark.needs_warp
@pytest.mark.parametrize("text", SAME)
def test_an_expression_of_the_host_has_the_value_that_it_has_in_warp(warp, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = plain(value(warp, text))
    found = value(wb, text)
    if DIFFERENT.get(text) is STATE:
        assert isinstance(found, tuple) and isinstance(found[1], np.uint32)
        found = found[0]
    ours = plain(found)
    if text in DIFFERENT and DIFFERENT[text] is not STATE:
        assert not np.array_equal(ours, theirs), "no longer different"
    elif isinstance(theirs, str):
        assert ours == theirs
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_values_of_the_host_are_compared_as_wholes():
    v, w = wb.vec3(1.0, 2.0, 3.0), wb.vec3(1.0, 2.0, 4.0)
    for equal in (v == v.copy(), v != w, v == (1.0, 2.0, 3.0), [1.0, 2.0, 3.0] == v, v != [1.0, 2.0], wb.vec2() != v):
        assert np.ndim(equal) == 0 and equal and equal.all() and not ~equal
    for differs in (v == w, v != v.copy(), v == ["x", "y", "z"], v == [[1.0, 2.0], [3.0]]):
        assert np.ndim(differs) == 0 and not differs and ~differs
    assert wb.mat22(1.0, 2.0, 3.0, 4.0) == [[1.0, 2.0], [3.0, 4.0]] and v in [w, v] and [w, v].index(v) == 1
    assert wb.vec2(1.0, float("nan")) != wb.vec2(1.0, float("nan"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(v)


def test_what_is_no_whole_value_is_compared_by_component():
    v, w, m = wb.vec3(1.0, 2.0, 3.0), wb.vec3(1.0, 0.0, 3.0), wb.mat22(1.0, 2.0, 1.0, 4.0)
    for found in (v == np.array([1.0, 0.0, 3.0]), np.array([1.0, 0.0, 3.0]) == v, (v > 1.0) == (w < 5.0)):
        assert isinstance(found, np.ndarray) and found.shape == (3,) and not found.all() and found.any()
    assert (m[0] == m[1]).tolist() == [True, False] and (v[:2] == w[:2]).tolist() == [True, False]
    assert (v != 1.0).tolist() == [False, True, True]


def test_values_read_from_arrays_are_compared_as_wholes():
    x = wb.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]], dtype=wb.vec2, requires_grad=True)
    for a, b, c in (x.list(), wb.clone(x).list()):
        assert np.ndim(a == b) == 0 and a == b and a != c and a == wb.vec2(1.0, 2.0) and [1.0, 3.0] == c
    with wb.Tape():
        a, b, c = x.list()
        assert np.ndim(a == b) == 0 and a == b and a != c and a == wb.vec2(1.0, 2.0) and wb.vec2(1.0, 3.0) == c


INF, NAN = float("inf"), float("nan")
PAIRS = [
    ((1.0, 2.0), (1.0, 2.0)),
    ((1.0, 2.0), (1.0, 3.0)),
    ((1.0, NAN), (1.0, NAN)),
    ((2.0, NAN), (1.0, NAN)),
    ((1.0, 2.0), (1.0, NAN)),
    ((INF, 2.0), (INF, 2.0)),
    ((INF, 2.0), (INF, 3.0)),
    ((INF, 2.0), (-INF, 2.0)),
]
QUESTIONS = (
    np.testing.assert_array_equal,
    np.testing.assert_allclose,
    np.testing.assert_equal,
    np.isclose,
    np.allclose,
    np.array_equal,
    np.array_equiv,
    np.setdiff1d,
    np.union1d,
    np.isin,
)


def answer(question: Any, a: Any, b: Any) -> Any:
    try:
        return np.array(question(a, b), dtype=object).tolist()
    except AssertionError:
        return "differ"


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.__name__)
def test_numpy_s_own_comparisons_stay_what_they_are(question):
    for a, b in PAIRS:
        plain = answer(question, np.array(a, np.float32), np.array(b, np.float32))
        assert str(answer(question, wb.vec2(*a), wb.vec2(*b))) == str(plain), (a, b)
    assert np.unique(wb.vec3(1.0, 1.0, 2.0)).tolist() == [1.0, 2.0]


def test_flat_values_are_assigned_in_the_order_of_memory():
    assert wb.zeros((2, 2)).assign([1.0, 2.0, 3.0, 4.0]).numpy().tolist() == [[1, 2], [3, 4]]
    assert wb.zeros(2, dtype=wb.vec3).assign(np.arange(6.0)).numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    for wrong in ([1.0, 2.0], [[1.0, 2.0, 3.0, 4.0]], np.arange(6.0)):
        with pytest.raises(wb.LaunchError, match=r"\[shape\]"):
            wb.zeros((2, 2)).assign(wrong)


def test_an_array_of_structs_that_hold_arrays_is_refused_with_the_way_out():
    @wb.struct
    class Piece:
        values: wb.array[float]
        k: float

    @wb.struct
    class Whole:
        piece: Piece

    made = Piece()
    made.values = wb.ones(3)
    for kind, make in (
        ("values", lambda: wb.array([made, made], dtype=Piece)),
        ("piece.values", lambda: wb.zeros(2, dtype=Whole)),
    ):
        with pytest.raises(
            wb.LaunchError, match=rf"its field {kind} is an array(.|\n)*one behind the other(.|\n)*\[struct-array\]"
        ):
            make()


def test_the_arguments_of_expectations_have_names():
    @wb.kernel
    def near(a: wb.array[float], b: float):
        wb.expect_near(a[0], b, tolerance=0.5)
        wb.expect_near(a=a[0], b=b, tolerance=0.5)
        wb.expect_neq(a[0], b=b)

    x = wb.zeros(1)
    wb.launch(near, 1, [x, 0.25])
    with pytest.raises(wb.LaunchError, match="expect"):
        wb.launch(near, 1, [x, 0.75])

    @wb.kernel
    def wrong(a: wb.array[float]):
        wb.expect_eq(a[0], 1.0, tolerance=0.5)

    with pytest.raises(wb.KernelError, match=r"\[arguments\]"):
        wb.launch(wrong, 1, [x])
    wb.expect_near(1.0, 1.2, tolerance=0.5)
    wb.expect_eq(a=1.0, b=1.0)
    wb.expect_neq(a=1.0, b=1.5)
    with pytest.raises(AssertionError):
        wb.expect_eq(a=1.0, b=1.5)
    with pytest.raises(AssertionError):
        wb.expect_near(1.0, 1.2, tolerance=0.1)

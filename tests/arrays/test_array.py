"""Arrays as users meet them: making, viewing, writing, gradients, errors."""

from __future__ import annotations

import gc
from copy import deepcopy

import numpy as np
import pytest

import workbench as wb
from workbench.arrays import allocation as memory
from workbench.arrays.array import array, array1d, array2d, array3d, clone
from workbench.arrays.creation import (
    copy,
    empty,
    empty_like,
    from_numpy,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from workbench.arrays.names import part_of
from workbench.arrays.ports import array_operators
from workbench.arrays.read_values import ReadValues
from workbench.config import config
from workbench.errors import BoundsError, LaunchError
from workbench.kernels import types
from workbench.kernels.reading.declare import struct
from workbench.kernels.types import float16, float32, float64, int32, int64, matrix, quaternion, uint8, uint64, vector

vec2, vec3, mat22, quat = vector(2, float32), vector(3, float32), matrix((2, 2), float32), quaternion(float32)


@struct
class Inner:
    a: float32
    b: vec3


@struct
class P:
    q: vec3
    m: float32
    k: int32
    inner: Inner


def refused(slug, text=""):
    return pytest.raises(LaunchError, match=rf"{text}[\s\S]*\[{slug}\]")


@pytest.fixture
def x():
    return array(np.arange(6, dtype=np.float32), requires_grad=True, name="x")


# ---- annotations


def test_array_without_data_is_an_annotation():
    assert array(dtype=vec3) == types.Array(vec3, 1) == array[vec3] == array1d(dtype=vec3)
    assert array2d(dtype=float) == types.Array(float32, 2) == array[float, 2]
    assert array2d[float] == array(dtype=float, ndim=2) == types.Array(float32, 2)
    assert array(dtype=P).dtype is P
    with refused("dtype"):
        array()


# ---- making


def test_dtypes_follow_python_and_numpy():
    assert array([1.0, 2.0]).dtype is float32
    assert array([1, 2]).dtype is int32
    assert array([True]).dtype is types.bool_
    assert array(np.zeros(2)).dtype is float64
    assert array(np.zeros(2, np.uint8)).dtype is uint8
    assert array(np.zeros(2), dtype=float).dtype is float32
    assert array([vec3(1.0, 2.0, 3.0)]).dtype is vec3


def test_trailing_axes_are_components():
    values = np.arange(12.0).reshape(2, 2, 3)
    made = array(values, dtype=vec3)
    assert made.shape == (2, 2) and made.strides == (24, 12)
    assert np.array_equal(made.numpy(), values)
    assert array(np.arange(8.0).reshape(2, 4), dtype=mat22).shape == (2,)
    assert array([1.0, 2.0, 3.0, 4.0], dtype=quat).shape == (1,)
    assert array([], dtype=vec3).shape == (0,)
    assert array(5.0).shape == (1,)


def test_wrong_component_counts_are_refused():
    with refused("components", "vec3"):
        array(np.zeros((3, 2)), dtype=vec3)
    with refused("components"):
        array(np.zeros(3), dtype=mat22)


def test_data_can_be_given_a_shape():
    assert array(np.arange(6.0), shape=(2, 3)).shape == (2, 3)
    assert array2d([[1.0]]).shape == (1, 1)
    assert array(shape=(2, 2), dtype=vec3).numpy().shape == (2, 2, 3)
    with refused("shape"):
        array(np.arange(6.0), shape=(4, 2))
    with refused("ndim"):
        array3d([[1.0]])


def test_whole_numbers_on_both_sides_of_the_largest_int64_keep_all_digits():
    given = [2**60 + 1, 2**63 + 1]  # NumPy makes float64 of such a list
    kept = array(given, dtype=uint64)
    assert kept.list() == given and array([np.uint64(given[0]), 3], dtype=uint64).list() == [given[0], 3]
    assert array([given[0], 2.0], dtype=int64).list() == [given[0], 2]
    kept.assign(given[::-1])
    assert kept.list() == given[::-1]
    kept[0:2] = given
    assert kept.list() == given


def test_values_that_do_not_fit_are_refused_instead_of_wrapped():
    with refused("convert"):
        array([1.5], dtype=int)
    with refused("convert"):
        array([2**40])
    with refused("convert"):
        array([-1], dtype=uint8)
    with refused("dtype"):
        array(["a"])
    with refused("shape"):
        array([[1.0], [1.0, 2.0]])


def test_the_makers_make_what_they_say():
    assert zeros(3).dtype is float32 and zeros(3).numpy().tolist() == [0, 0, 0]
    assert ones((2, 1), dtype=vec3).numpy().tolist() == [[[1, 1, 1]], [[1, 1, 1]]]
    assert full(2, vec3(1.0, 2.0, 3.0)).dtype is vec3
    assert full(2, 7).dtype is int32 and full(2, 0.5).numpy().tolist() == [0.5, 0.5]
    assert full(2).list() == full(2, dtype=float).list() == [0, 0] and not full(3, dtype=vec3).numpy().any()
    assert empty((2, 3), dtype=int).shape == (2, 3)
    a = zeros((2, 3), dtype=float64, requires_grad=True)
    assert [f(a).requires_grad for f in (zeros_like, ones_like, empty_like)] == [True] * 3
    assert not zeros_like(a, requires_grad=False).requires_grad
    assert full_like(a, 2).numpy().tolist() == [[2.0] * 3] * 2
    with refused("shape"):
        zeros(-1)
    with refused("shape"):
        zeros(())


def test_copying_is_the_default_and_sharing_is_on_request():
    buffer = np.zeros(3)
    array(buffer).fill_(1.0)
    assert buffer.tolist() == [0, 0, 0]
    shared, again = from_numpy(buffer), array(buffer, copy=False)
    shared.fill_(2.0)
    assert buffer.tolist() == [2, 2, 2] and shared.allocation is again.allocation and shared.allocation.exposed
    with refused("dtype", "copy=False"):
        array(buffer, dtype=float32, copy=False)
    assert from_numpy(buffer, dtype=float32).numpy().tolist() == [2, 2, 2]
    buffer.flags.writeable = False
    with refused("read-only"):
        array(buffer, copy=False)
    assert from_numpy(buffer).allocation is not shared.allocation


def test_strided_and_composite_numpy_memory_is_shared_in_place():
    buffer = np.zeros((4, 6), np.float32)
    v = from_numpy(buffer[::2, :3], dtype=vec3)
    assert v.shape == (2,) and v.strides == (48,)
    v.fill_(vec3(1.0, 2.0, 3.0))
    assert buffer[2].tolist() == [1, 2, 3, 0, 0, 0] and buffer[1].tolist() == [0] * 6
    with refused("layout"):
        from_numpy(buffer[:, ::2], dtype=vec3)


def test_a_view_of_ours_that_comes_back_through_numpy_is_the_same_memory(x):
    assert from_numpy(x.numpy()[1:3]).allocation is x.allocation
    assert from_numpy(np.asarray(x)).allocation is x.allocation


def test_pointers_join_and_are_checked(x):
    y = array(ptr=x.ptr + 8, shape=2, dtype=float32)
    assert y.allocation is x.allocation and y.numpy().tolist() == [2, 3]
    assert y.requires_grad and x.allocation.exposed
    with refused("partial-overlap"):
        array(ptr=x.ptr + 16, shape=(4,), dtype=float32)
    with refused("shape"):
        array(ptr=x.ptr)
    every_second = array(ptr=x.ptr, shape=3, strides=(8,), dtype=float32)
    assert every_second.numpy().tolist() == [0, 2, 4]


def test_arrays_keep_foreign_memory_alive():
    shared = from_numpy(np.full(1000, 3.0))
    gc.collect()
    assert shared.numpy().sum() == 3000


# ---- views


def test_slices_are_views_and_full_indices_are_values(x):
    part = x[2:5]
    part[0] = 9.0
    assert x[2] == 9.0 and isinstance(x[2], np.float32) and x[-1] == 5.0
    assert x[::-1].numpy().tolist() == [5, 4, 3, 9, 1, 0]
    m = x.reshape((2, 3))
    assert m[1].shape == (3,) and m[:, 1].strides == (12,) and m[..., 0].shape == (2,) and m[1, 2] == 5.0
    assert [row.list() for row in m] == [[0, 1, 9], [3, 4, 5]] and len(m) == 2
    v = array([[1.0, 2.0, 3.0]], dtype=vec3)
    assert v[0].type is vec3 and v[0].y == 2.0


def test_indices_outside_and_of_other_kinds_are_refused(x):
    with pytest.raises(BoundsError, match=r"index 6 of x[\s\S]*\[bounds\]"):
        x[6]
    with pytest.raises(BoundsError):
        x[0, 0]
    with refused("indices"):
        x[["0", 1]]
    with refused("ind(ex|ices)"):
        x[x.numpy() > 2]


def test_reshape_flatten_transpose_share_memory(x):
    m = x.reshape(2, -1)
    assert m.shape == (2, 3) and m.allocation is x.allocation
    t = m.transpose()
    assert t.shape == (3, 2) and t.numpy().tolist() == m.numpy().T.tolist() and not t.is_contiguous
    assert x.reshape((1, 2, 3)).transpose((2, 0, 1)).shape == (3, 1, 2) and m.T.T.span == m.span
    assert m.flatten().span == x.span
    with refused("layout", "flatten|reshape"):
        t.flatten()
    with refused("shape"):
        x.reshape((4, 2))
    packed = t.contiguous()
    assert packed.allocation is not x.allocation and packed.numpy().tolist() == t.numpy().tolist()
    assert x.contiguous() is x and x.to("cpu") is x


def test_floats_view_as_vectors_and_back(x):
    assert x.view(vec3).shape == (2,) and x.view(vec3)[1].tolist() == [3, 4, 5]
    m = x.reshape((2, 3))
    assert m.view(vec3).shape == (2,) and m.view(vec3).view(float32).span == m.span
    assert x.view(mat22 := matrix((2, 3), float32)).shape == (1,) and x.view(mat22).view(float32).shape == (1, 2, 3)
    assert x.view(int32).dtype is int32 and not x.view(int32).requires_grad
    with refused("components"):
        x[::2].view(vec3)
    with refused("components"):
        x[:5].view(vec2)


# ---- gradients


def test_a_view_has_the_gradient_of_its_memory(x):
    assert x.grad.numpy().tolist() == [0] * 6
    x.grad.assign(np.arange(6, dtype=np.float32))
    assert x[2:5].grad.numpy().tolist() == [2, 3, 4]
    assert x[2:5].grad.span == x.grad[2:5].span
    m = x.reshape((2, 3))
    assert m.T.grad.span == x.grad.reshape((2, 3)).T.span
    assert m[1].grad.numpy().tolist() == [3, 4, 5]
    assert x.view(vec3).grad.numpy().tolist() == [[0, 1, 2], [3, 4, 5]] and x.view(vec3).grad.dtype is vec3


def test_the_gradient_is_one_kept_object(x):
    part = x[1:3]
    g, h = x.grad, part.grad
    x.grad = ones(6)
    assert x.grad is g and part.grad is h and h.numpy().tolist() == [1, 1]
    assert g.is_gradient and not x.is_gradient and g.allocation.of is x.allocation and g.grad is None


def test_there_is_no_gradient_unless_asked_for():
    y = zeros(3)
    assert y.grad is None and y.allocation.grad is None
    y.retain_grad = True
    assert y.grad is not None and not y.requires_grad
    y.retain_grad = False
    assert y.grad is None
    z = zeros(3, requires_grad=True)
    assert z.requires_grad and z[1:].requires_grad and z.allocation.grad is None
    z.requires_grad = False
    assert not z.requires_grad and z.grad is None


def test_assigning_a_gradient_asks_for_one():
    y = zeros(3)
    y.grad = ones(3)
    assert y.requires_grad and y.grad.numpy().tolist() == [1, 1, 1]


def test_requiring_gradients_belongs_to_the_memory():
    buffer = np.zeros(4, np.float32)
    a, b = from_numpy(buffer), from_numpy(buffer)
    a[:2].requires_grad = True
    assert b.requires_grad and b[0:1].requires_grad and not b[2:].requires_grad
    with refused("grad-of-part"):
        b[0:1].requires_grad = False
    a.requires_grad = False
    assert not b.requires_grad


def test_empty_arrays_follow_the_same_rules(x):
    e = zeros(0, requires_grad=True)
    assert e.requires_grad and e.grad.shape == (0,) and e.fill_(1.0).numpy().tolist() == [] and e.is_contiguous
    assert x[2:2].grad.shape == (0,) and copy(e, x[1:1]) is None


def test_whole_numbers_have_no_gradient():
    with refused("grad-of-int", "int32"):
        array([1, 2], requires_grad=True)
    with refused("grad-of-int"):
        zeros(2, dtype=bool).retain_grad = True


def test_assigning_a_gradient_copies_and_checks(x):
    seed = full(6, 2.0)
    x.grad = seed
    seed.fill_(0.0)
    assert x.grad.numpy().tolist() == [2] * 6
    with refused("grad-shape", r"\(6,\)[\s\S]*\(5,\)"):
        x.grad = ones(5)
    with refused("grad-dtype", "float64"):
        x.grad = ones(6, dtype=float64)
    with refused("grad-dtype"):
        x.grad = np.ones(6)
    x[1:3].grad = None
    assert x.grad.numpy().tolist() == [2, 0, 0, 2, 2, 2]
    x.grad = None
    assert x.grad.numpy().tolist() == [0] * 6
    y = array([1.0, 2.0], requires_grad=True, grad=ones(2))
    assert y.grad.numpy().tolist() == [1, 1]


def test_what_a_tape_has_to_say_about_a_gradient_is_said_once_to_who_reads_it(x):
    x.grad.zero_()
    x.allocation.grad_notes[x[2:4].span] = "x was overwritten"
    assert x[0:2].grad.numpy().shape == (2,)
    with pytest.warns(UserWarning, match="x was overwritten"):
        x.grad.numpy()
    assert x.grad.numpy().tolist() == [0.0] * 6


def test_a_gradient_that_is_not_zero_needs_no_word(x):
    x.grad = ones(6)
    x.allocation.grad_notes[x[2:4].span] = "x was overwritten"
    assert x.grad.numpy().tolist() == [1.0] * 6


def test_writing_a_gradient_answers_what_a_tape_has_to_say_about_it(x):
    x.allocation.grad_notes[x.span] = "x was overwritten"
    x.grad.fill_(2.0)
    assert x.grad.numpy().tolist() == [2.0] * 6


def test_a_gradient_given_as_a_pointer_to_itself_stays(x):
    x.grad.fill_(3.0)
    v = array(ptr=x.ptr, shape=2, dtype=vec3, requires_grad=True, grad=array(ptr=x.grad.ptr, shape=2, dtype=vec3))
    assert v.grad.span.allocation is x.grad.allocation and v.grad.numpy().tolist() == [[3] * 3] * 2


def test_half_precision_has_single_precision_gradients():
    h = zeros((2, 3), dtype=float16, requires_grad=True)
    h.grad.fill_(4096.5)
    assert h.grad.dtype is float32 and h[1, 1:].grad.numpy().tolist() == [4096.5] * 2
    assert zeros(2, dtype=vector(2, float16), requires_grad=True).grad.dtype is vec2
    assert h.T.grad.strides == (4, 12)
    pairs = zeros(4, dtype=float16, requires_grad=True).view(float32)
    with refused("two-types"):
        pairs.grad
    with refused("two-types"):
        pairs.requires_grad = True


def written(a):
    mask = a.allocation.user_written_mask(a.span)
    return None if mask is None else mask.tolist()


def test_gradients_written_by_the_user_are_known(x):
    g = x.grad
    assert written(g) is None
    g[1:3] = 1.0
    assert written(g) == [False, True, True, False, False, False] and written(g[3:]) is None
    g.allocation.mark_published()
    assert written(g) is None
    x[4:].grad = ones(2)
    assert written(g) == [False] * 4 + [True] * 2
    x.grad = None
    assert written(g) is None
    g.numpy()[0] = 5.0
    assert written(g) == [True] + [False] * 5
    g.allocation.mark_published()
    assert written(g) is None


# ---- writes


def test_every_host_write_changes_values(x):
    x[0:2] = 7.0
    x[2] = 8.0
    x[3:5] = np.array([1.0, 2.0])
    x[5:6] = [3.0]
    assert x.numpy().tolist() == [7, 7, 8, 1, 2, 3]
    x.zero_()
    x.fill_(2).assign([1, 2, 3, 4, 5, 6])
    x[0:3] = x[3:6]
    assert x.numpy().tolist() == [4, 5, 6, 4, 5, 6]
    x[1:] = x[:-1]
    assert x.numpy().tolist() == [4, 4, 5, 6, 4, 5]
    v = zeros(2, dtype=vec3)
    v[0] = (1.0, 2.0, 3.0)
    v[1:] = vec3(4.0, 5.0, 6.0)
    assert v.numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert v.fill_(1.0).numpy().tolist() == [[1] * 3] * 2


def test_assign_and_fill_check_shape_and_dtype(x):
    with refused("shape"):
        x.assign(np.zeros(5))
    with refused("shape"):
        x.reshape((2, 3)).assign(np.zeros((6, 1)))
    with refused("shape"):
        x[0:2] = zeros(3)
    with refused("dtype"):
        x.assign(zeros(6, dtype=float64))
    with refused("components"):
        zeros(2, dtype=vec3).fill_((1.0, 2.0))


def test_copy_takes_offsets_and_counts(x):
    y = zeros(4)
    copy(y, x, dest_offset=1, src_offset=2, count=2)
    assert y.numpy().tolist() == [0, 2, 3, 0]
    copy(y, x[3:], dest_offset=1)
    assert y.numpy().tolist() == [0, 3, 4, 5]
    copy(x, y[2:])
    assert x.numpy().tolist() == [4, 5, 2, 3, 4, 5]
    m = zeros((3, 2))
    copy(m.T, x.reshape((2, 3)))
    assert m.numpy().T.tolist() == x.reshape((2, 3)).numpy().tolist()
    for bad in ({"count": 5}, {"dest_offset": 3, "count": 2}, {"src_offset": 7}, {"dest_offset": -1}):
        with pytest.raises(BoundsError, match=r"\[bounds\]"):
            copy(y, x, **bad)
    with refused("dtype"):
        copy(y, zeros(4, dtype=float64))


def test_clone_is_new_memory_with_the_flag_of_its_source(x):
    c = clone(x)
    c.fill_(1.0)
    assert x.numpy().tolist() == [0, 1, 2, 3, 4, 5] and c.requires_grad and c.allocation is not x.allocation
    assert not clone(x, requires_grad=False).requires_grad
    assert array(x[::2]).is_contiguous and array(x[::2]).numpy().tolist() == [0, 2, 4]


def test_a_deep_copy_is_a_clone(x):
    c = deepcopy(x)
    assert c.numpy().tolist() == x.numpy().tolist() and c.requires_grad and c.allocation is not x.allocation


class Recorder:
    def __init__(self):
        self.events = []
        self.numbers = ReadValues(self)

    def host_event(self, kind, dst, src, value, perform, where, sources=()):
        self.events.append((kind, dst, src, value, where))
        perform()


def test_under_a_tape_each_host_write_is_one_event_and_creation_is_none(x):
    tape = Recorder()
    memory.push_recorder(tape)
    try:
        y = zeros(6)
        ones(2), full(2, 1.0), array([1.0]), y[1:], y.reshape((2, 3))
        assert tape.events == []
        copy(y, x)
        y.assign(x)
        y.fill_(2.0)
        y[1:3] = 5.0
        y.zero_()
        y.assign(np.ones(6))
        c = clone(x)
        d = array(x)
    finally:
        memory.pop_recorder(tape)
    kinds = [e[0] for e in tape.events]
    assert kinds == ["copy", "assign", "fill_", "fill_", "zero_", "assign", "copy", "copy"]
    assert tape.events[0][1] is y and tape.events[0][2] is x
    assert tape.events[3][1].span == y[1:3].span and tape.events[3][3] == 5.0
    assert tape.events[5][2] is None and tape.events[5][3].tolist() == [1] * 6
    assert tape.events[3][4].file == __file__ and tape.events[3][4].text.strip() == "y[1:3] = 5.0"
    assert c.numpy().tolist() == d.numpy().tolist() == x.numpy().tolist()


def test_events_own_their_values(x):
    memory.push_recorder(tape := Recorder())
    try:
        values, v = np.ones(6, np.float32), vec3(1.0, 2.0, 3.0)
        x.assign(values)
        zeros(2, dtype=vec3).fill_(v)
    finally:
        memory.pop_recorder(tape)
    values[0] = v[0] = 9.0
    assert tape.events[0][3].tolist() == [1] * 6 and tape.events[1][3].tolist() == [1, 2, 3]


def test_converting_an_array_under_a_tape_is_refused(x):
    memory.push_recorder(tape := Recorder())
    try:
        with refused("convert"):
            array(x, dtype=float64)
    finally:
        memory.pop_recorder(tape)
    assert array(x, dtype=float64).numpy().tolist() == x.numpy().tolist()


def test_writes_without_a_tape_still_bump_the_version(x):
    before = x.allocation.version
    x[0] = 1.0
    x[1:].zero_()
    assert x.allocation.version == before + 2


def test_memory_is_exposed_by_what_gives_away_its_address():
    for give in (lambda a: a.numpy(), lambda a: a.ptr, lambda a: np.asarray(a), lambda a: a.__array_interface__):
        a = zeros(3)
        repr(a), a[0], a.list(), a.fill_(1.0), a.grad, a[1:].T
        assert not a.allocation.exposed
        give(a)
        assert a.allocation.exposed


# ---- structs


def ball(i):
    return P(q=(i, i + 1.0, i + 2.0), m=10.0 * i, k=i, inner=Inner(a=0.5 * i, b=vec3(1.0, 2.0, 3.0)))


def test_arrays_of_structs_hold_instances_and_records():
    p = array([ball(1), ball(2)], dtype=P, requires_grad=True)
    n = p.numpy()
    assert n["q"].tolist() == [[1, 2, 3], [2, 3, 4]] and n["m"].tolist() == [10, 20]
    assert n["inner"]["a"].tolist() == [0.5, 1]
    assert p[1]["k"] == 2 and p.shape == (2,) and p.strides == (P.numpy.itemsize,)
    p[0] = ball(5)
    assert p[0]["m"] == 50
    again = array(p.numpy(), dtype=P)
    assert again.numpy()["inner"]["b"].tolist() == p.numpy()["inner"]["b"].tolist() and again[0]["m"] == 50
    assert p.fill_(ball(3)).numpy()["k"].tolist() == [3, 3]
    assert p.zero_().numpy()["m"].tolist() == [0, 0]
    with refused("field"):
        array([Inner()], dtype=P)


def test_a_field_is_called_by_its_path():
    p = array([ball(1), ball(2)], dtype=P)
    for path in ("q", "inner.a", "inner.b", "k", "m"):
        assert part_of("p", p, p.field(path)) == f"p.{path}"


def test_fields_of_a_struct_array_are_views_with_shared_gradients():
    p = array([ball(1), ball(2)], dtype=P, requires_grad=True)
    q, a, k = p.field("q"), p.field("inner.a"), p.field("k")
    assert q.dtype is vec3 and q.strides == p.strides and q.numpy().tolist() == [[1, 2, 3], [2, 3, 4]]
    a.fill_(9.0)
    assert p.numpy()["inner"]["a"].tolist() == [9, 9] and p.numpy()["q"][0].tolist() == [1, 2, 3]
    assert q.requires_grad and not k.requires_grad and k.grad is None
    q.grad.fill_(2.0)
    g = p.grad.numpy()
    assert p.grad.dtype is P and g["q"].tolist() == [[2] * 3] * 2 and g["m"].tolist() == [0, 0]
    assert written(p.grad.field("q")) == [True, True] and written(p.grad.field("m")) is None
    assert q.span.overlaps(a.span) is False
    with refused("field"):
        p.field("inner.z")


# ---- the rest


def test_names_label_memory_and_messages(x):
    assert x.allocation.names == {"x": x.span} and x.grad.name == "x.grad"
    x.name = "y"
    assert list(x.allocation.names) == ["y"] and "name='y'" in repr(x)


def test_repr_shows_values_type_and_shape():
    assert repr(array([1.0, 2.0])) == "array([1., 2.], dtype=float32, shape=(2,))"
    assert len(repr(zeros(10**6))) < 200


def test_equal_layouts_are_one_object():
    assert zeros((2, 3))._layout is ones((2, 3))._layout
    assert zeros((2, 3))._layout is not zeros((3, 2)).T._layout


def test_operators_are_refused_until_a_layer_provides_them(x, monkeypatch):
    monkeypatch.delitem(array_operators, "__imul__", raising=False)
    with refused("array-operator"):
        x *= x
    monkeypatch.setitem(array_operators, "__imul__", lambda a, b: a.fill_(b))
    x[1:3] *= 2.0
    assert x.numpy().tolist() == [0, 2, 2, 3, 4, 5]


def test_config_checks_what_it_is_given():
    with refused("config", "no switch config.check_bound"):
        config.check_bound = True
    with refused("config"):
        config.backend = "fortran"
    with refused("config"):
        config.threads = 0
    with refused("config"):
        config.check_bounds = "never"
    config.check_bounds = False
    assert config.check_bounds is False
    config.reset()
    assert config.check_bounds is True


def test_the_last_axis_of_data_may_hold_the_components_of_several_elements():
    flat = np.arange(12.0)
    assert array(flat, dtype=vec3).shape == (4,) and array(flat.reshape(2, 6), dtype=vec3).shape == (2, 2)
    assert array(flat, dtype=vec3).numpy().tolist() == flat.reshape(4, 3).tolist()
    assert array(flat.reshape(4, 3, 1), dtype=vec3).shape == (4,) and array(flat, dtype=vec3, shape=(2, 2)).shape == (
        2,
        2,
    )
    assert array(flat, dtype=mat22).numpy().tolist() == flat.reshape(3, 2, 2).tolist()


def test_elements_of_structs_have_their_fields_as_attributes():
    @wb.struct
    class Inner:
        w: wb.vec3

    @wb.struct
    class Outer:
        a: float
        inner: Inner

    x = wb.array([Outer(a=2.0, inner=Inner(w=wb.vec3(1.0, 2.0, 3.0)))], dtype=Outer)
    for element in (x.list()[0], x[0]):
        assert element.a == 2.0 and element["a"] == 2.0 and element.inner.w.tolist() == [1, 2, 3]


def test_copies_of_strided_arrays_with_offsets():
    x, y = array(np.arange(8.0), dtype=float32)[::2], zeros(8)[1::2]
    wb.copy(y, x, dest_offset=1, src_offset=2, count=2)
    assert y.numpy().tolist() == [0, 4, 6, 0]


def test_a_long_array_is_written_by_its_ends():
    assert repr(array(np.arange(100, dtype=np.float32))) == (
        "array([ 0.,  1.,  2., ..., 97., 98., 99.], dtype=float32, shape=(100,))"
    )


def test_instances_of_a_scalar_type_are_numbers_of_numpy_of_that_type():
    assert isinstance(np.float32(1.0), wb.float32) and isinstance(wb.int64(2), wb.int64)
    for other in (1.0, np.float64(1.0), np.zeros(1, np.float32), "float32", None):
        assert not isinstance(other, wb.float32)


def test_types_are_written_as_they_are_named():
    assert (repr(wb.float64), repr(wb.vec3), repr(wb.int32)) == ("float64", "vec3", "int32")

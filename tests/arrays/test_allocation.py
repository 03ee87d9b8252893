"""Spans against brute force, which allocation an address belongs to, and who is told of writes."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from workbench.arrays import allocation as memory
from workbench.arrays.allocation import allocate, allocation_at, allocation_of
from workbench.arrays.span import Span
from workbench.device import cpu, get_device
from workbench.errors import LaunchError

ROOM = 512


def bytes_of(span: Span) -> list[int]:
    """Every byte of the span, once per element that holds it: the definition that Span must agree with."""
    starts = [span.offset]
    for n, stride in zip(span.shape, span.strides, strict=True):
        starts = [s + i * stride for s in starts for i in range(n)]
    return [s + b for s in starts for b in range(span.itemsize)]


@st.composite
def spans(draw, room=ROOM):
    ndim = draw(st.integers(0, 3))
    itemsize = draw(st.sampled_from([1, 2, 4, 8, 12]))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(ndim))
    strides = tuple(draw(st.integers(-24, 24)) for _ in range(ndim))
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True) if n)
    return draw(st.integers(0, 60)) - low, shape, strides, itemsize


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(spans(), spans())
def test_overlap_of_strided_spans_is_what_brute_force_finds(one, two):
    memory_ = allocate(ROOM, cpu)
    a, b = Span(memory_, *one), Span(memory_, *two)
    assert a.overlaps(b) is bool(set(bytes_of(a)) & set(bytes_of(b)))
    assert b.overlaps(a) is a.overlaps(b)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(spans())
def test_the_facts_about_one_span_are_what_brute_force_finds(one):
    span = Span(allocate(ROOM, cpu), *one)
    every = bytes_of(span)
    low, high = span.hull()
    assert (low, high) == ((min(every), max(every) + 1) if every else (span.offset, span.offset))
    assert span.self_overlapping is (len(every) != len(set(every)))
    assert span.contiguous is (every == list(range(span.offset, span.offset + span.nbytes)))
    if every:
        assert span.dense is (sorted(every) == list(range(low, high)))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(spans(), st.data())
def test_a_box_is_the_bytes_of_its_indices(one, data):
    span = Span(allocate(ROOM, cpu), *one)
    ranges = []
    for n in span.shape:
        first = data.draw(st.integers(0, n))
        ranges.append(range(first, data.draw(st.integers(first, n)), data.draw(st.integers(1, 3))))
    box = span.box(ranges)
    starts = [span.offset]
    for r, stride in zip(ranges, span.strides, strict=True):
        starts = [s + i * stride for s in starts for i in r]
    assert bytes_of(box) == [s + b for s in starts for b in range(span.itemsize)]


def test_columns_of_a_matrix_do_not_overlap_and_a_row_meets_a_column():
    m = allocate(400, cpu)
    column = [Span(m, 4 * j, (10,), (40,), 4) for j in range(10)]
    assert column[0].overlaps(column[1]) is False
    assert Span(m, 80, (10,), (4,), 4).overlaps(column[3]) is True


def test_spans_of_two_allocations_never_overlap_and_equal_spans_are_equal():
    a, b = allocate(16, cpu), allocate(16, cpu)
    assert a.span().overlaps(b.span()) is False
    assert a.span() == a.span() and hash(a.span()) == hash(a.span())
    assert a.span() != b.span()


def test_a_problem_too_hard_to_decide_is_undecided(monkeypatch):
    monkeypatch.setattr("workbench.arrays.span._WORK", 1)
    m = allocate(1 << 22, cpu)
    a = Span(m, 0, (50, 50, 50), (1001, 1013, 1033), 2)
    b = Span(m, 30001, (50, 50, 50), (1003, 1009, 1021), 2)
    assert a.overlaps(b) is None


def test_kept_bytes_come_back_for_every_element_size():
    for itemsize in (1, 2, 3, 4, 8, 12):
        m = allocate(200, cpu)
        m.bytes[...] = np.arange(200)
        span = Span(m, itemsize, (3, 2), (24 if itemsize < 12 else 36, itemsize), itemsize)
        before, kept = m.bytes.copy(), span.copy_out()
        span.words()[...] = 0
        assert not np.array_equal(before, m.bytes)
        span.copy_in(kept)
        assert np.array_equal(before, m.bytes)


# ---- which allocation


def test_two_views_of_one_numpy_buffer_are_one_allocation():
    buffer = np.zeros(10)
    (a, at), (b, bt) = allocation_of(buffer[2:5]), allocation_of(buffer.reshape(2, 5)[1])
    assert a is b and (at, bt) == (16, 40)
    assert a.nbytes == 80 and a.owner is buffer and a.exposed


def test_numpy_arrays_over_one_bytearray_are_one_allocation():
    raw = bytearray(32)
    a, _ = allocation_of(np.frombuffer(raw, np.uint8, 8, 0))
    b, offset = allocation_of(np.frombuffer(raw, np.uint8, 16, 16))
    assert a is b and offset == 16


def test_a_pointer_into_known_memory_joins_it_and_exposes_it():
    own = allocate(64, cpu)
    assert not own.exposed
    assert allocation_at(own.address + 8, 16, cpu) is own
    assert own.exposed


def test_an_unknown_pointer_is_a_new_exposed_allocation_without_owner():
    buffer = np.zeros(8)
    bare = allocation_at(buffer.ctypes.data, 64, cpu)
    assert bare.owner is None and bare.exposed
    joined, _ = allocation_of(buffer)
    assert joined is bare and joined.owner is buffer


def test_a_partial_overlap_with_known_memory_is_refused():
    buffer = np.zeros(16)
    known = allocation_at(buffer.ctypes.data, 64, cpu)
    for first, nbytes in ((32, 64), (0, 128), (-8, 16)):
        with pytest.raises(LaunchError, match=r"partly overlap[\s\S]*\[partial-overlap\]"):
            allocation_at(known.address + first, nbytes, cpu)


def test_memory_that_died_is_forgotten():
    buffer = np.zeros(16)
    old = allocation_at(buffer.ctypes.data, 64, cpu).id
    gc.collect()
    assert allocation_at(buffer.ctypes.data + 32, 64, cpu).id != old


def test_many_short_lived_allocations_leave_nothing_behind():
    kept = [allocate(64, cpu) for _ in range(3)]
    for _ in range(3000):
        allocate(64, cpu)
    assert len(memory._ranges[cpu.ordinal].starts) < 2500
    assert all(allocation_at(m.address, 64, cpu) is m for m in kept)


def test_numpy_memory_outlives_its_users_only_through_the_allocation():
    buffer = np.full(4, 7.0)
    held, _ = allocation_of(buffer)
    del buffer
    gc.collect()
    assert held.bytes.view(np.float64).tolist() == [7.0] * 4


# ---- who is told


class Tape:
    def __init__(self):
        self.told, self.exposed, self.events = [], [], []

    def foreign_write(self, span, what, where):
        self.told.append((what, bytes(span.allocation.bytes), where or memory.caller_where()))

    def exposing(self, allocation):
        self.exposed.append(allocation)


def test_watchers_are_told_before_the_bytes_change_except_the_one_who_writes():
    m, mine, other = allocate(4, cpu), Tape(), Tape()
    m.watch(mine)
    m.watch(other)
    m.about_to_write(m.span(), "fill_", by=mine)
    m.bytes[...] = 1
    assert [(w, b) for w, b, _ in other.told] == [("fill_", b"\0\0\0\0")] and not mine.told
    assert other.told[0][2].file == __file__
    assert m.version == 1


def test_watching_tapes_hear_of_exposure_once():
    m, tape = allocate(4, cpu), Tape()
    m.watch(tape)
    m.expose()
    m.expose()
    assert tape.exposed == [m]


def test_an_allocation_does_not_keep_its_watchers_alive():
    m, tape = allocate(4, cpu), Tape()
    m.watch(tape)
    del tape
    gc.collect()
    assert all(ref() is None for ref in m.watchers)


def test_recorders_nest():
    one, two = Tape(), Tape()
    assert memory.recorder() is None
    memory.push_recorder(one)
    memory.push_recorder(two)
    memory.pop_recorder(one)
    assert memory.recorder() is two
    with memory.unrecorded():
        assert memory.recorder() is None
    memory.pop_recorder(two)
    assert memory.recorder() is None


# ---- gradient memory


def test_gradient_memory_mirrors_element_for_element():
    m = allocate(24, cpu)
    span = Span(m, 4, (2,), (8,), 4)
    mirrored = m.gradient_span(span)
    assert (mirrored.offset, mirrored.shape, mirrored.strides, mirrored.itemsize) == (4, (2,), (8,), 4)
    assert mirrored.allocation is m.gradient() and m.gradient().of is m
    half = allocate(24, cpu)
    half.grad_scale = 2
    wide = half.gradient_span(Span(half, 2, (3,), (4,), 2))
    assert (wide.offset, wide.strides, wide.itemsize, wide.allocation.nbytes) == (4, (8,), 4, 48)


def test_written_elements_are_known_until_published():
    g = allocate(16, cpu).gradient()
    every, second = Span(g, 0, (4,), (4,), 4), Span(g, 4, (1,), (4,), 4)
    assert g.user_written_mask(every) is None
    g.about_to_write(second, "fill_")
    assert g.user_written_mask(every).tolist() == [False, True, False, False]
    g.forget_written(second)
    assert g.user_written_mask(every) is None
    g.about_to_write(second, "fill_")
    g.mark_published()
    assert g.user_written_mask(every) is None


def test_writes_through_a_raw_view_of_gradient_memory_are_found_by_their_bits():
    g = allocate(16, cpu).gradient()
    every = Span(g, 0, (4,), (4,), 4)
    g.expose()
    g.bytes[9] = 1
    assert g.user_written_mask(every).tolist() == [False, False, True, False]
    g.mark_published()
    assert g.user_written_mask(every) is None


def test_forgetting_a_part_keeps_the_rest_written():
    g = allocate(16, cpu).gradient()
    every = Span(g, 0, (4,), (4,), 4)
    g.about_to_write(every, "fill_")
    g.forget_written(Span(g, 4, (1,), (4,), 4))
    assert g.user_written_mask(every).tolist() == [True, False, True, True]


# ---- devices


def test_an_absent_device_is_refused_with_what_is_here():
    with pytest.raises(LaunchError, match=r"no device 'tpu'[\s\S]*\[device\]"):
        get_device("tpu")
    assert get_device("cpu") is cpu and cpu == "cpu" and get_device() is cpu


@pytest.mark.parametrize(
    ("shape", "strides", "meets"),
    [
        ((2000, 1000), (4, 8), True),  # undecided above a million elements: it may
        ((2000, 1000), (4000, 4), False),
        ((1000, 2000), (4, 4000), False),
        ((2000, 1000), (-4000, 4), False),
        ((2000, 1000), (3996, 4), True),
        ((2000, 1000), (0, 4), True),
        ((2000, 1), (4, 0), False),
        ((20, 10), (4, 8), True),
        ((3, 2), (8, 4), False),
        ((2, 3), (12, 8), False),
        ((1, 1), (0, 0), False),
    ],
)
def test_elements_that_may_share_bytes_are_said_to(shape, strides, meets):
    room = allocate(1 << 24)
    offset = sum(-s * (n - 1) for s, n in zip(strides, shape) if s < 0)
    assert Span(room, offset, shape, strides, 4).self_overlapping is meets

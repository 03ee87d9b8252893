"""Running sums, sorting, runs and casts equal NumPy's, and gradients pass through what is moved."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb

RANDOM = np.random.default_rng(11)


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1000])
def test_running_sums(n, inclusive):
    x = RANDOM.integers(-9, 9, n).astype(np.int32)
    a = wb.array(x, dtype=int)
    wb.utils.array_scan(a, a, inclusive)  # in place
    want = np.cumsum(x) if inclusive else np.cumsum(x) - x
    assert (a.numpy() == want).all()


def test_the_gradient_of_running_sums():
    x = wb.array(RANDOM.normal(size=600), dtype=wb.float64, requires_grad=True)
    seed = RANDOM.normal(size=600)
    with wb.Tape() as tape:
        y = wb.zeros_like(x, requires_grad=False)
        wb.utils.array_scan(x, y, inclusive=False)
    tape.backward(grads={y: wb.array(seed)})
    np.testing.assert_allclose(x.grad.numpy(), np.cumsum(seed[::-1])[::-1] - seed, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [wb.int32, wb.uint64, wb.float32, wb.int64], ids=str)
def test_pairs_are_sorted_in_the_order_of_equal_keys(dtype):
    keys = RANDOM.integers(0 if dtype.kind == "u" else -5, 5, 40).astype(dtype.numpy)
    k, v = wb.zeros(80, dtype=dtype), wb.zeros(80, dtype=int)
    k[:40].assign(keys)
    v[:40].assign(np.arange(40, dtype=np.int32))
    wb.utils.radix_sort_pairs(k, v, 40)
    order = np.argsort(keys, kind="stable")
    assert (k.numpy()[:40] == keys[order]).all() and (v.numpy()[:40] == order).all() and not k.numpy()[40:].any()


def test_gradients_move_with_the_values_that_are_sorted():
    keys, x = wb.array([3, 1, 2]), wb.array([30.0, 10.0, 20.0], requires_grad=True)
    with wb.Tape() as tape:
        y = wb.clone(x)
        wb.utils.radix_sort_pairs(keys, y, 3)
    tape.backward(grads={y: wb.array([1.0, 10.0, 100.0])})
    assert y.list() == [10.0, 20.0, 30.0] and x.grad.list() == [100.0, 1.0, 10.0]


@pytest.mark.parametrize("dtype", [int, float])
@pytest.mark.parametrize("ends", [None, [3, 3, 9, 11]])
def test_segments_are_sorted_each_by_itself_and_the_rest_stays(dtype, ends):
    starts, rng, n = [0, 3, 4, 9], np.random.default_rng(2), 13
    given = rng.integers(-3, 3, n)
    keys, values = wb.array(given, dtype=dtype), wb.array(np.arange(13.0), dtype=wb.float64, requires_grad=True)
    held, want = [wb.array(k, dtype=int) for k in (starts, ends) if k is not None], np.arange(n)
    for a, b in zip(starts, ends or starts[1:], strict=False):
        want[a:b] = a + np.argsort(given[a:b], kind="stable")
    moved = wb.clone(values)
    with wb.Tape() as tape:
        wb.copy(moved, values)
        wb.utils.segmented_sort_pairs(keys, moved, n, *held)
    assert keys.list() == given[want].tolist() and moved.list() == want.tolist()
    tape.backward(grads={moved: wb.array(np.arange(13.0) ** 2)})
    np.testing.assert_array_equal(values.grad.numpy()[want], np.arange(13.0) ** 2)


def test_only_the_bits_asked_for_are_sorted_by():
    k, v = wb.array([7, 4, 6, 1]), wb.array([0, 1, 2, 3])
    wb.utils.radix_sort_pairs(k, v, 4, begin_bit=0, end_bit=1)
    assert v.list() == [1, 2, 0, 3]


def test_runs():
    runs, lengths, count = wb.zeros(6, dtype=int), wb.zeros(6, dtype=int), wb.zeros(1, dtype=int)
    x = wb.array([4, 4, 4, 1, 4, 9])
    assert wb.utils.runlength_encode(x, runs, lengths) == 4
    assert runs.list()[:4] == [4, 1, 4, 9] and lengths.list()[:4] == [3, 1, 1, 1]
    wb.utils.runlength_encode(x, runs, lengths, run_count=count, value_count=2)
    assert count.item() == 1 and lengths[0] == 2
    assert wb.utils.runlength_encode(wb.zeros(0, dtype=int), runs, lengths) == 0


def test_casts_and_their_gradient():
    x = wb.array([[1.5, -2.5, 3.0]], dtype=wb.vec3, requires_grad=True)
    with wb.Tape() as tape:
        y = wb.zeros(1, dtype=wb.vec3d)
        wb.utils.array_cast(x, y)
    tape.backward(grads={y: wb.array([[1.0, 2.0, 3.0]], dtype=wb.vec3d)})
    assert y.numpy().tolist() == [[1.5, -2.5, 3.0]] and x.grad.numpy().tolist() == [[1, 2, 3]]
    whole = wb.zeros(3, dtype=int)
    wb.utils.array_cast(wb.array([1.7, -1.7, 9.0]), whole, count=2)
    assert whole.list() == [1, -1, 0]


def test_the_first_of_a_sum():
    x = wb.array([1.0, 2.0, 4.0])
    assert wb.utils.array_sum(x, value_count=2) == 3.0 and wb.utils.array_inner(x, x, count=2) == 5.0
    with pytest.raises(wb.LaunchError, match=r"\[axis\]"):
        wb.utils.array_sum(wb.zeros((2, 2)), axis=2)


def test_sorting_is_refused_in_a_capture():
    k = wb.array([2, 1])
    with pytest.raises(wb.LaunchError, match=r"radix_sort_pairs(.|\n)*\[capture\]"), wb.capture():
        wb.utils.radix_sort_pairs(k, k, 2)


@pytest.mark.needs_warp
def test_what_warp_offers_under_utils_is_here_or_refused():
    import warp

    assert [n for n in dir(warp.utils) if not n.startswith("_") and not hasattr(wb.utils, n)] == []


def test_runs_of_floats_are_refused():
    x, runs, lengths = wb.array([0.3, 0.7, 0.7], requires_grad=True), wb.zeros(3), wb.zeros(3, dtype=int)
    with wb.Tape(), pytest.raises(wb.LaunchError, match=r"whole numbers(.|\n)*\[array-tool\]"):
        wb.utils.runlength_encode(x, runs, lengths)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4)])
def test_sums_along_an_axis_and_their_gradients(shape):
    p, q = RANDOM.normal(size=(2, *shape))
    for axis in range(-len(shape), len(shape)):
        a, b = (wb.array(x, dtype=wb.float64, requires_grad=True) for x in (p, q))
        with wb.Tape() as tape:
            total, product = wb.utils.array_sum(a, axis=axis), wb.utils.array_inner(a, b, axis=axis)
        np.testing.assert_allclose(total.numpy(), p.sum(axis, keepdims=True))
        np.testing.assert_allclose(product.numpy(), (p * q).sum(axis, keepdims=True))
        seed = RANDOM.normal(size=total.shape)
        tape.backward(grads={total: wb.array(seed), product: wb.array(2 * seed)})
        np.testing.assert_allclose(a.grad.numpy(), seed * (1 + 2 * q))
        np.testing.assert_allclose(b.grad.numpy(), seed * 2 * p)


def test_sums_of_vectors_along_an_axis_into_an_array():
    v = RANDOM.normal(size=(3, 4, 3))
    a, out = wb.array(v, dtype=wb.vec3d), wb.zeros((3, 1), dtype=wb.float64)
    assert wb.utils.array_inner(a, a, out=out, axis=1) is out
    np.testing.assert_allclose(out.numpy(), (v * v).sum((1, 2)).reshape(3, 1))
    np.testing.assert_allclose(wb.utils.array_sum(a, axis=0, value_count=2).numpy(), v[:2].sum(0).reshape(1, 4, 3))
    with pytest.raises(wb.LaunchError, match=r"writes vec3d of shape \(1, 4\)(.|\n)*\[out\]"):
        wb.utils.array_sum(a, out=out, axis=0)


def test_a_cast_reads_all_before_it_writes_into_the_same_memory():
    x = wb.array([1.0, 2.0, 3.0, 4.0], dtype=wb.float64, requires_grad=True)
    with wb.Tape() as tape:
        y = wb.clone(x)
        wb.utils.array_cast(y[:3], y[1:])
    assert y.list() == [1, 1, 2, 3]
    tape.backward(grads={y: wb.array([1.0, 10.0, 100.0, 1000.0], dtype=wb.float64)})
    assert x.grad.list() == [11, 100, 1000, 0]


@pytest.mark.parametrize("room", [(4, 4), (4, 9), (9, 4), (3, 9), (9, 3)])
def test_runs_go_into_arrays_that_have_just_the_room(room):
    x = wb.array([4, 4, 4, 1, 4, 9])
    runs, lengths = (wb.full(n, -1, dtype=int) for n in room)
    if min(room) < 4:
        with pytest.raises(wb.LaunchError, match=r"4 runs do not fit(.|\n)*\[array-tool\]"):
            wb.utils.runlength_encode(x, runs, lengths)
        assert set(runs.list() + lengths.list()) == {-1}
        return
    assert wb.utils.runlength_encode(x, runs, lengths) == 4
    assert runs.list() == [4, 1, 4, 9] + [-1] * (room[0] - 4)
    assert lengths.list() == [3, 1, 1, 1] + [-1] * (room[1] - 4)

"""Publishing: what `.grad` holds after a backward pass, where seeds come from, and which seeds are refused.

Leaves accumulate; what the tape stored to is replaced by zero, what it only accumulated into by its seed.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import workbench as wb
from tests.support.squares import ONE, F, N, X, empty, leaf, seed, square

pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def add_square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(y, i, x[i] * x[i])


@wb.kernel
def total(x: wb.array(dtype=F), s: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(s, 0, x[i] * x[i])


def run(kernel, x, y):
    wb.launch(kernel, dim=len(x), inputs=[x], outputs=[y])


def grad(a) -> list:
    """What was published, without the word about arrays that were overwritten."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return a.grad.numpy().tolist()


def squared(**kw):
    x, y = leaf(), empty(**kw)
    with wb.Tape() as tape:
        run(square, x, y)
    return tape, x, y


def refused(call, slug):
    with pytest.raises(wb.GradientError) as found:
        call()
    assert found.value.slug == slug


# --- leaves, intermediates, outputs


def test_leaves_accumulate_and_what_was_stored_to_reads_zero():
    tape, x, y = squared(requires_grad=True)
    y.grad.fill_(9.0)
    for k in (1, 2, 3):
        tape.backward(grads={y: seed(*ONE)})
        assert grad(x) == (k * 2 * X).tolist()
        assert grad(y) == [0] * N


def test_a_leaf_s_gradient_is_added_to_what_the_user_put_there():
    tape, x, y = squared()
    x.grad = seed(1, 2, 3, 4)
    with pytest.warns(UserWarning, match="the gradient of x was added to values that you had written"):
        tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X + [1, 2, 3, 4])


def test_what_was_only_accumulated_into_holds_its_seed():
    x, y = leaf(), empty(requires_grad=True)
    with wb.Tape() as tape:
        run(add_square, x, y)
    for _ in range(2):
        x.grad.zero_()
        tape.backward(grads={y: seed(1, 2, 3, 4)})
        np.testing.assert_array_equal(x.grad.numpy(), 2 * X * [1, 2, 3, 4])
        assert y.grad.numpy().tolist() == [1, 2, 3, 4], "d(y0 + x**2)/d(y0) = 1"


def test_one_array_can_be_leaf_in_one_part_and_output_in_another():
    both = wb.array(np.r_[X, ONE], dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, dim=N, inputs=[both[:N]], outputs=[both[N:]])
    for k in (1, 2):
        tape.backward(grads={both[N:]: seed(*ONE)})
        assert grad(both) == (k * 2 * X).tolist() + [0] * N


def test_a_sum_of_intermediates_never_accumulates():
    x, h, s = leaf(), empty(requires_grad=True), empty(1, requires_grad=True)
    with wb.Tape() as tape:
        run(square, x, h)
        run(total, h, s)
    for k in (1, 2):
        tape.backward(s)
        np.testing.assert_allclose(x.grad.numpy(), k * 4 * X**3, rtol=1e-15)
        assert grad(h) == [0] * N and s.grad.numpy().tolist() == [1]


def test_retain_grad_publishes_the_full_adjoint_and_changes_nothing_else():
    x, h, s = leaf(), empty(retain_grad=True), empty(1, retain_grad=True)
    with wb.Tape() as tape:
        run(square, x, h)
        run(total, h, s)
    for k in (1, 2):
        tape.backward(s)
        np.testing.assert_allclose(h.grad.numpy(), 2 * X**2, rtol=1e-15)
        assert s.grad.numpy().tolist() == [1]
        np.testing.assert_allclose(x.grad.numpy(), k * 4 * X**3, rtol=1e-15)


def test_retain_grad_gives_the_adjoint_by_the_final_contents_of_reused_memory():
    x, h, y, z = leaf(), empty(retain_grad=True), empty(), empty()
    with wb.Tape() as tape:
        run(square, x, h)
        run(square, h, y)
        h.fill_(3.0)
        run(square, h, z)
    tape.backward(grads={y: seed(*ONE), z: seed(*ONE)})
    assert h.grad.numpy().tolist() == [6] * N
    np.testing.assert_allclose(x.grad.numpy(), 4 * X**3, rtol=1e-15)


def test_reading_a_gradient_that_stores_have_used_up_says_so_once():
    tape, x, y = squared(requires_grad=True)
    tape.backward(grads={y: seed(*ONE)})
    with pytest.warns(UserWarning, match="overwrote"):
        y.grad.numpy()
    y.grad.numpy(), x.grad.numpy()
    np.testing.assert_array_equal(tape.adjoint(y), ONE)


def test_only_marked_arrays_have_a_gradient():
    tape, x, y = squared()
    tape.backward(grads={y: seed(*ONE)})
    assert y.grad is None and x.grad is not None
    y.requires_grad = True
    assert y.grad.numpy().tolist() == [0] * N
    with pytest.raises(wb.LaunchError, match="grad-of-int"):
        wb.zeros(3, dtype=int, requires_grad=True)


def test_views_share_gradients_and_gradients_are_kept_objects():
    tape, x, y = squared()
    tape.backward(grads={y: seed(1, 2, 3, 4)})
    kept = x.grad
    np.testing.assert_array_equal(x[1:3].grad.numpy(), kept.numpy()[1:3])
    np.testing.assert_array_equal(x[::-2].grad.numpy(), kept.numpy()[::-2])
    np.testing.assert_array_equal(x.reshape((2, 2)).T.grad.numpy(), kept.numpy().reshape(2, 2).T)
    tape.backward(grads={y: seed(1, 2, 3, 4)})
    assert x.grad is kept
    np.testing.assert_array_equal(kept.numpy(), 4 * X * [1, 2, 3, 4])


def test_assigning_a_gradient_copies_it():
    tape, x, y = squared()
    mine = seed(1, 2, 3, 4)
    kept = x.grad
    x.grad = mine
    mine.zero_()
    assert x.grad is kept and kept.numpy().tolist() == [1, 2, 3, 4]
    with pytest.warns(UserWarning, match="leaves accumulate"):
        tape.backward(grads={y: seed(*ONE)})
    assert mine.numpy().tolist() == [0] * N


# --- seeds


@pytest.mark.parametrize("how", ["fill_", "assign", "grad =", "numpy", "slice"])
@pytest.mark.host_memory("numpy")
def test_a_seed_written_into_grad_is_used_once(how):
    tape, x, y = squared(requires_grad=True)
    if how == "fill_":
        y.grad.fill_(1.0)
    elif how == "assign":
        y.grad.assign(ONE)
    elif how == "grad =":
        y.grad = seed(*ONE)
    elif how == "numpy":
        y.grad.numpy()[...] = 1.0
    else:
        y.grad[0:N] = 1.0
    tape.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)
    refused(tape.backward, "no-seed")
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)


def test_only_the_bytes_that_were_written_are_the_seed():
    tape, x, y = squared(requires_grad=True)
    y[1:3].grad.fill_(2.0)
    tape.backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 4 * X[1], 4 * X[2], 0])


def test_a_given_seed_ignores_what_gradients_hold():
    tape, x, y = squared(requires_grad=True)
    y.grad.fill_(100.0)
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X)
    refused(tape.backward, "no-seed")


def test_zero_takes_back_a_seed_that_was_written():
    tape, x, y = squared(requires_grad=True)
    y.grad.fill_(1.0)
    tape.zero()
    refused(tape.backward, "no-seed")
    assert x.grad.numpy().tolist() == [0] * N


def test_seeds_by_views_add_up():
    tape, x, y = squared()
    tape.backward(grads={y[0:2]: seed(1, 2), y[1:4]: seed(10, 20, 30), y[::-1]: seed(1000, 0, 0, 0)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X * [1, 12, 20, 1030])


def test_seeds_by_strided_and_reshaped_views():
    tape, x, y = squared()
    tape.backward(grads={y[::2]: seed(1, 2), y.reshape((2, 2)).T: wb.array(np.array([[1.0, 2], [3, 4]]), dtype=F)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X * [2, 3, 4, 4])


def test_a_strided_seed_is_read_by_its_strides():
    tape, x, y = squared()
    tape.backward(grads={y: wb.array(np.arange(8.0), dtype=F)[::2]})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X * [0, 2, 4, 6])


def test_a_loss_is_an_element_of_an_array_too():
    tape, x, y = squared()
    tape.backward(y[2:3])
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, 2 * X[2], 0])


def test_a_loss_and_seeds_together_add_up():
    x, y, s = leaf(), empty(), empty(1)
    with wb.Tape() as tape:
        run(square, x, y)
        run(total, x, s)
    tape.backward(s, grads={y: seed(1, 2, 3, 4)})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X * [2, 3, 4, 5])


def test_seed_arrays_are_never_changed_and_never_adopted():
    tape, x, y = squared(requires_grad=True)
    given = seed(1, 2, 3, 4)
    for k in (1, 2):
        tape.backward(grads={y: given})
        assert given.numpy().tolist() == [1, 2, 3, 4]
        np.testing.assert_array_equal(x.grad.numpy(), k * 2 * X * [1, 2, 3, 4])
    assert given.allocation is not y.allocation.grad


def test_the_gradient_of_the_output_itself_may_be_the_seed():
    tape, x, y = squared(requires_grad=True)
    y.grad = seed(1, 2, 3, 4)
    tape.backward(grads={y: y.grad})
    np.testing.assert_array_equal(x.grad.numpy(), 2 * X * [1, 2, 3, 4])


def test_a_seed_on_a_leaf_is_its_gradient():
    tape, x, y = squared()
    tape.backward(grads={x: seed(1, 2, 3, 4)})
    assert x.grad.numpy().tolist() == [1, 2, 3, 4]


def test_seeds_of_nan_are_passed_on():
    tape, x, y = squared()
    tape.backward(grads={y: seed(np.nan, 1, np.inf, 0)})
    np.testing.assert_array_equal(x.grad.numpy(), [np.nan, 2 * X[1], np.inf, 0])


def test_seeds_that_do_not_fit_are_refused():
    tape, x, y = squared()
    refused(lambda: tape.backward(grads={y: seed(1, 2, 3)}), "seed-shape")
    refused(lambda: tape.backward(grads={y: seed(*ONE).reshape((2, 2))}), "seed-shape")
    refused(lambda: tape.backward(grads={y: wb.ones(N, dtype=wb.float32)}), "seed-dtype")
    refused(lambda: tape.backward(grads={y: wb.ones(N, dtype=int)}), "seed-dtype")
    refused(lambda: tape.backward(grads={y: ONE[:3]}), "seed-shape")
    refused(lambda: tape.backward(grads={y: 1.0}), "seed-type")
    refused(lambda: tape.backward(grads={"y": seed(*ONE)}), "seed-type")
    refused(lambda: tape.backward(y), "loss-shape")
    refused(lambda: tape.backward(seed(1.0)), "seed-untouched")
    refused(lambda: tape.backward(grads={empty(): seed(*ONE)}), "seed-untouched")
    assert x.grad.numpy().tolist() == [0] * N, "nothing was published by a refused call"


def test_a_mark_that_comes_too_late_is_refused():
    x, y = wb.array(X, dtype=F), empty()
    with wb.Tape() as tape:
        run(square, x, y)
    x.requires_grad = True
    refused(lambda: tape.backward(grads={y: seed(*ONE)}), "late-grad")
    assert x.grad.numpy().tolist() == [0] * N


# --- other types


@wb.kernel
def half_square(x: wb.array(dtype=wb.float16), y: wb.array(dtype=wb.float16)):
    i = wb.tid()
    y[i] = x[i] * x[i]


def test_half_precision_has_single_precision_gradients():
    x = wb.array(np.array([1.0, 2.0, 3.0]), dtype=wb.float16, requires_grad=True)
    y = wb.zeros(3, dtype=wb.float16, requires_grad=True)
    with wb.Tape() as tape:
        run(half_square, x, y)
    given = np.array([1e-6, 1.0, 1e5], np.float32)  # the first and the last do not fit float16
    for k in (1, 2):
        tape.backward(grads={y: wb.array(given, dtype=wb.float32)})
        assert x.grad.dtype is wb.float32
        np.testing.assert_allclose(x.grad.numpy(), k * given * np.array([2, 4, 6], np.float32), rtol=1e-6)
    assert x[1:].grad.numpy().tolist() == x.grad.numpy()[1:].tolist()


@wb.struct
class Particle:
    q: wb.vec3d
    charge: int
    m: F


@wb.kernel
def energy(p: wb.array(dtype=Particle), e: wb.array(dtype=F)):
    i = wb.tid()
    e[i] = p[i].m * wb.dot(p[i].q, p[i].q) * F(p[i].charge)


def test_an_array_of_structs_has_a_gradient_per_float_field():
    rng = np.random.default_rng(1)
    q, m, charge = rng.normal(size=(3, 3)), rng.normal(size=3), np.array([1, 2, 3])
    p = wb.array(
        [Particle(q=q[i], m=m[i], charge=int(charge[i])) for i in range(3)], dtype=Particle, requires_grad=True
    )
    e = empty(3)
    with wb.Tape() as tape:
        wb.launch(energy, dim=3, inputs=[p], outputs=[e])
    for k in (1, 2):
        tape.backward(grads={e: seed(*ONE[:3])})
        g = p.grad.numpy()
        np.testing.assert_allclose(g["q"], k * 2 * q * (m * charge)[:, None], rtol=1e-14)
        np.testing.assert_allclose(g["m"], k * (q * q).sum(1) * charge, rtol=1e-14)
        assert not g["charge"].any()
    np.testing.assert_array_equal(p.field("q").grad.numpy(), p.grad.numpy()["q"])


# ---- halves have no room for their gradients in memory of others


@wb.struct
class Half:
    h: wb.float16


@wb.kernel
def squares_of_fields(p: wb.array(dtype=Half), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = wb.float32(p[i].h) * wb.float32(p[i].h)


@wb.kernel
def squares_of_halves(p: wb.array(dtype=wb.float16), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = wb.float32(p[i]) * wb.float32(p[i])


def test_a_struct_of_one_half_is_refused_though_its_fields_lie_in_a_row():
    p = wb.array(np.zeros(4, [("h", "f2")]), dtype=Half, requires_grad=True)
    with pytest.raises(wb.GradientError, match=r"\[struct-float16\]"), wb.Tape():
        wb.launch(squares_of_fields, 4, inputs=[p, wb.zeros(4, dtype=float)])


def test_halves_in_memory_of_floats_are_refused():
    x = wb.zeros(4, dtype=float, requires_grad=True)
    with pytest.raises(wb.GradientError, match=r"\[struct-float16\]"), wb.Tape():
        wb.launch(squares_of_halves, 8, inputs=[x.view(wb.float16).flatten(), wb.zeros(8, dtype=float)])


@wb.kernel
def squares_twice(v: wb.array(dtype=wb.vec3), y: wb.array(dtype=float)):
    i = wb.tid()
    y[2 * i] = wb.dot(v[i], v[i])
    y[2 * i + 1] = wb.length_sq(v[i])


@pytest.mark.parametrize("at", [0, 1])
def test_the_adjoint_of_a_square_does_not_overflow_before_its_result_does(at):
    v, y = wb.array([[1e-20, 0.0, 1e-30]], dtype=wb.vec3, requires_grad=True), wb.zeros(2, dtype=float)
    with wb.Tape() as tape:
        wb.launch(squares_twice, 1, inputs=[v, y])
    tape.backward(grads={y: wb.array(np.float32([2.5e38 * (at == 0), 2.5e38 * (at == 1)]))})
    np.testing.assert_allclose(v.grad.numpy(), [[5e18, 0.0, 5e8]], rtol=1e-6)


@wb.kernel
def doubled(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = 2.0 * x[i]


@wb.kernel
def ones_in_bits(b: wb.array(dtype=int)):
    i = wb.tid()
    b[i] = 1065353216


@wb.kernel
def squares_of_floats(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


def test_bytes_written_as_integers_by_a_checkpointed_loop_have_no_gradient():
    x, y, z = wb.ones(3, dtype=float, requires_grad=True), wb.zeros(3, dtype=float), wb.zeros(3, dtype=float)

    @wb.checkpoint(steps=3, budget=1)
    def loop(k, b):
        wb.launch(ones_in_bits, 3, inputs=[b])

    with wb.Tape() as tape:
        wb.launch(doubled, 3, inputs=[x, y])
        loop(y.view(wb.int32))
        wb.launch(squares_of_floats, 3, inputs=[y, z])
    with pytest.raises(wb.GradientError, match=r"\[two-types\]"):
        tape.backward(grads={z: wb.ones(3, dtype=float)})


@wb.kernel
def bits_copied(a: wb.array(dtype=int), b: wb.array(dtype=int)):
    i = wb.tid()
    b[i] = a[i]


@wb.kernel
def marked(p: wb.array(dtype=float), n: wb.array(dtype=int), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = p[i] * p[i]
    n[i] = n[i] + i


@pytest.mark.parametrize("between", [False, True])
def test_floats_copied_as_integers_are_refused(between):
    x, y, z = wb.ones(3, dtype=float, requires_grad=True), wb.zeros(3, dtype=float), wb.zeros(3, dtype=float)
    with wb.Tape() as tape:
        if between:
            wb.launch(doubled, 3, inputs=[x, z])
        wb.launch(bits_copied, 3, inputs=[(z if between else x).view(wb.int32), y.view(wb.int32)])
        wb.launch(squares_of_floats, 3, inputs=[y, z])
    with pytest.raises(wb.GradientError, match=r"\[two-types\]"):
        tape.backward(grads={z: wb.ones(3, dtype=float)})


def test_integers_beside_floats_in_one_memory_are_no_matter():
    memory, y = wb.ones(6, dtype=float, requires_grad=True), wb.zeros(3, dtype=float)
    with wb.Tape() as tape:
        wb.launch(marked, 3, inputs=[memory[:3], memory[3:].view(wb.int32), y])
    tape.backward(grads={y: wb.ones(3, dtype=float)})
    assert memory.grad.list()[:3] == [2, 2, 2]


def test_integers_of_their_own_are_no_matter():
    x, n, y = wb.ones(3, dtype=float, requires_grad=True), wb.zeros(3, dtype=int), wb.zeros(3, dtype=float)
    with wb.Tape() as tape:
        wb.launch(marked, 3, inputs=[x, n, y])
        wb.launch(bits_copied, 3, inputs=[x.view(wb.int32), n])
    tape.backward(grads={y: wb.ones(3, dtype=float)})
    assert x.grad.list() == [2, 2, 2]


# --- gradients whose memory the user holds


@pytest.mark.parametrize("before", ["zeroed by the tape", "zeroed by the array", "new"])
@pytest.mark.host_memory
def test_what_is_written_into_a_gradient_through_numpy_is_added_to(before):
    tape, x, y = squared()
    held = x.grad.numpy()
    if before == "zeroed by the tape":
        tape.zero()
    elif before == "zeroed by the array":
        x.grad.zero_()
    held[:] = 100.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about leaves that accumulate
        tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(grad(x), 100 + 2 * X, rtol=1e-15)
    held[:] = 7.0
    tape.zero()
    assert grad(x) == [0.0] * N
    tape.backward(grads={y: seed(*ONE)})
    np.testing.assert_allclose(grad(x), 2 * X, rtol=1e-15)


@pytest.mark.host_memory
def test_numbers_at_other_strides_than_multiples_of_their_size_get_no_gradient():
    records = np.zeros(3, dtype=np.dtype([("q", "f4"), ("n", "i2")]))  # six bytes each
    records["q"] = 1, 2, 3
    x, y = wb.from_numpy(records["q"], dtype=float, requires_grad=True), wb.zeros(3, dtype=float)
    assert x.strides == (6,)

    @wb.kernel
    def doubled(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = x[i] * 2.0

    with wb.Tape(), pytest.raises(wb.GradientError) as found:
        wb.launch(doubled, 3, inputs=[x, y])
    assert found.value.slug == "unaligned"


@wb.struct
class Place:
    at: wb.vec2
    n: int


@wb.struct
class Mass:
    m: float
    place: Place
    fixed: bool


def test_the_floats_of_structs_that_a_tape_only_copied_pile_up():
    b = wb.zeros(3, dtype=Mass, requires_grad=True)
    with wb.Tape() as tape:
        wb.copy(wb.zeros(3, dtype=Mass), b)
    values, one = np.zeros(3, Mass.numpy), wb.zeros(3, dtype=Mass)
    values["m"], values["place"]["at"] = [1, 2, 3], [[1, 2], [3, 4], [5, 6]]
    one.assign(values)
    for times in (1, 2, 3):
        tape.backward(grads={b: one})
        got = b.grad.numpy()
        np.testing.assert_array_equal(got["m"], times * values["m"])
        np.testing.assert_array_equal(got["place"]["at"], times * values["place"]["at"])
        assert not got["place"]["n"].any() and not got["fixed"].any()


@pytest.mark.parametrize(("shape", "steps"), [((4, 3), (1, 1)), ((3, 2), (2, 1)), ((2, 3, 2), (3, 1, 1)), ((4,), (0,))])
def test_seeds_of_windows_that_overlap_meet_in_the_elements_they_share(shape, steps):
    x, y = leaf(np.arange(1.0, 8.0)), wb.zeros(7, dtype=F)
    windows = wb.array(ptr=y.ptr, dtype=F, shape=shape, strides=tuple(8 * n for n in steps))
    with wb.Tape() as tape:
        run(square, x, y)
    seeds, want = np.arange(1.0, 1 + np.prod(shape)).reshape(shape), np.zeros(7)
    for at in np.ndindex(shape):
        want[np.dot(at, steps)] += seeds[at]
    tape.backward(grads={windows: wb.array(seeds)})
    np.testing.assert_allclose(x.grad.numpy(), want * 2 * np.arange(1.0, 8.0))

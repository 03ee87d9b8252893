"""Slopes at places without a derivative that a loop hands from turn to turn: said where they hide, else exact.

Truth: one-sided differences along rays where the function is smooth though its parts are not, by hand beside.
"""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.kernels.test_hidden_slopes import walks
from tests.kernels.test_singular_points import BACKENDS, V3, F

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
RAYS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 2.0, 0.5]])


@pytest.fixture(autouse=True)
def _on(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)


def turns(kernel, n=3):
    return lambda v, y: wb.launch(kernel, 1, [v, n], [y])


def one_sided(program, start, step=1e-8):
    """The slopes along RAYS."""
    found = []
    for ray in (np.zeros(3), *RAYS):
        v, y = wb.array([np.add(start, step * ray)], dtype=V3), wb.zeros(1, dtype=F)
        program(v, y)
        found.append(y.numpy()[0])
    return (np.array(found[1:]) - found[0]) / step


@wb.kernel
def handed_on(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = wb.sqrt(v[i][0])
    for _ in range(n):
        s += r * r
        r = wb.sqrt(v[i][0])
    y[i] = s


@wb.kernel
def from_nothing(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    r = F(0.0)
    for _ in range(n):
        y[i] += r * r
        r = wb.sqrt(v[i][0])


@wb.kernel
def swapped(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    a = wb.sqrt(v[i][0])
    b = F(0.0)
    s = F(0.0)
    for _ in range(n):
        s += a * b
        a, b = wb.sqrt(v[i][0]), a
    y[i] = s


@wb.kernel
def while_it_lasts(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = F(0.0)
    k = 0
    while k < n:
        s = s + r * r
        r = wb.sqrt(v[i][0])
        k = k + 1
    y[i] = s


@wb.kernel
def until_a_break(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = F(0.0)
    for k in range(99):
        if k >= n:
            break
        s += r * r
        r = wb.sqrt(v[i][0])
    y[i] = s


@wb.kernel
def loop_in_a_loop(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = F(0.0)
    for _ in range(n):
        for _ in range(n):
            s += r * r
        r = wb.sqrt(v[i][0])
    y[i] = s


@wb.kernel
def root_of_the_inner_loop(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    for _ in range(n):
        r = F(0.0)
        for _ in range(n):
            r = r + wb.sqrt(v[i][0])
        s += r * r
    y[i] = s


@wb.func
def root_of(x: F):
    return wb.sqrt(x)


@wb.func
def square_of(r: F):
    return r * r


@wb.kernel
def by_funcs(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = F(0.0)
    for _ in range(n):
        s += square_of(r)
        r = root_of(v[i][0])
    y[i] = s


@wb.kernel
def now_and_then(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = F(0.0)
    for k in range(n):
        s += r * r
        if k < n - 1:
            r = wb.sqrt(v[i][0])
    y[i] = s


@wb.kernel
def squared_behind_it(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    r = F(0.0)
    for _ in range(n):
        r = r + wb.sqrt(v[i][0])
    y[i] = r * r


@wb.kernel
def summed_then_squared(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0])
    s = F(0.0)
    for _ in range(n):
        s = s + r
    y[i] = s * s


@wb.kernel
def by_powers(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = F(0.0)
    for _ in range(n):
        s += r * r * r * r
        r = wb.pow(v[i][0], F(0.25))
    y[i] = s


@wb.kernel
def by_third_roots(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = F(0.0)
    for _ in range(n):
        s += r * r * r
        r = wb.cbrt(v[i][0])
    y[i] = s


@wb.kernel
def by_angles(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    a = F(0.0)
    for _ in range(n):
        s += a * a
        a = wb.acos(F(1.0) - v[i][0])
    y[i] = s


@wb.kernel
def by_polar_coordinates(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    a = F(0.0)
    r = F(0.0)
    for _ in range(n):
        s += r * wb.sin(a)
        a = wb.atan2(v[i][1], v[i][0])
        r = wb.sqrt(v[i][0] * v[i][0] + v[i][1] * v[i][1])
    y[i] = s


@wb.kernel
def direction_then_length(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    d = V3(F(0.0), F(0.0), F(0.0))
    for _ in range(n):
        s += wb.dot(d, V3(1.0, 2.0, -1.0)) * wb.length(v[i])
        d = wb.normalize(v[i])
    y[i] = s


@wb.kernel
def length_then_direction(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    size = F(0.0)
    for _ in range(n):
        s += wb.dot(wb.normalize(v[i]), V3(1.0, 2.0, -1.0)) * size
        size = wb.length(v[i])
    y[i] = s


@wb.kernel
def twice_a_direction(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    d = V3(F(0.0), F(0.0), F(0.0))
    for _ in range(n):
        s += wb.dot(d, v[i]) * wb.dot(d, d)
        d = wb.normalize(v[i])
    y[i] = s


@wb.kernel
def direction_from_outside(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    d = wb.normalize(v[i])
    s = F(0.0)
    for _ in range(n):
        s += wb.dot(d * v[i][1], d)
    y[i] = s


@wb.kernel
def squared_by_a_power(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0])
    s = F(0.0)
    for _ in range(n):
        s += wb.pow(r, F(2.0))
    y[i] = s


@wb.kernel
def one_power_of_a_root(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.pow(wb.sqrt(v[i][0]), F(2.0))


@wb.kernel
def root_of_a_root(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    r = F(0.0)
    for _ in range(n):
        y[i] += r * r * r * r
        r = wb.sqrt(wb.sqrt(v[i][0]))


@wb.kernel
def power_of_a_root_to_the_fourth(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    r = wb.pow(wb.sqrt(v[i][0]), F(0.5))
    y[i] = r * r * r * r


SAID = [
    (root_of_a_root, "sqrt"),
    (power_of_a_root_to_the_fourth, "sqrt"),
    (squared_by_a_power, "sqrt"),
    (one_power_of_a_root, "sqrt"),
    (handed_on, "sqrt"),
    (from_nothing, "sqrt"),
    (swapped, "sqrt"),
    (while_it_lasts, "sqrt"),
    (until_a_break, "sqrt"),
    (loop_in_a_loop, "sqrt"),
    (root_of_the_inner_loop, "sqrt"),
    (by_funcs, "sqrt"),
    (now_and_then, "sqrt"),
    (squared_behind_it, "sqrt"),
    (summed_then_squared, "sqrt"),
    (by_powers, "pow"),
    (by_third_roots, "cbrt"),
    (by_angles, "acos"),
    (by_polar_coordinates, "atan2"),
    (direction_then_length, "normalize"),
    (length_then_direction, "normalize"),
    (twice_a_direction, "normalize"),
    (direction_from_outside, "normalize"),
]


@pytest.mark.parametrize(("kernel", "row"), SAID)
def test_a_slope_that_a_loop_hands_on_is_no_zero_in_silence(kernel, row):
    program = turns(kernel)
    assert np.abs(one_sided(program, np.zeros(3))).max() > 0.9
    found, tape, *_ = walks(program, F, np.zeros(3))
    for said in found.values():
        assert any(f"The slope of `{row}`" in text for text in said)
        assert all("test_carried_slopes.py" in text and text.endswith("[convention]") for text in said)
    assert {f.thread for f in tape.diagnose().named("convention")} == {0}


@pytest.mark.parametrize(("kernel", "row"), SAID)
def test_beside_it_nothing_is_said_and_the_gradient_is_exact(kernel, row):
    start = np.array([0.3, 0.2, 0.1])
    found, _, v, *_ = walks(turns(kernel), F, start)
    assert not any(found.values())
    np.testing.assert_allclose(RAYS @ v.grad.numpy()[0], one_sided(turns(kernel), start), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kernel", "row"), SAID)
def test_a_seed_of_0_hides_nothing(kernel, row):
    found, *_ = walks(turns(kernel), F, np.zeros(3), seed=0.0)
    assert not any(f"`{row}`" in text for text in found["backward"])


@pytest.mark.parametrize("kernel", [from_nothing, loop_in_a_loop, by_third_roots, direction_then_length])
def test_without_turns_nothing_is_said(kernel):
    found, _, v, *_ = walks(turns(kernel, 1), F, np.zeros(3))
    assert found["backward"] == []
    np.testing.assert_array_equal(v.grad.numpy(), 0.0)


# ---- one power of a root, not in a loop


@wb.kernel
def power_of_a_power(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    r = wb.pow(v[i][0], F(1.0) / F(n))
    if n == 3:
        y[i] = r * r * r
    else:
        y[i] = r * r * r * r


@wb.kernel
def product_of_components(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    d = wb.normalize(v[i])
    y[i] = d[0] * d[1] * wb.length(v[i])


@pytest.mark.parametrize(
    ("kernel", "n", "row"),
    [(power_of_a_power, 3, "pow"), (power_of_a_power, 4, "pow"), (product_of_components, 0, "normalize")],
)
def test_a_slope_that_more_than_one_factor_hides_is_said(kernel, n, row):
    found, *_ = walks(turns(kernel, n), F, np.zeros(3))
    assert any(f"The slope of `{row}`" in text for text in found["backward"])
    found, *_ = walks(turns(kernel, n), F, np.array([0.3, 0.2, 0.1]))
    assert not any(found.values())


def test_a_power_that_vanishes_faster_than_the_root_grows_has_slope_0():
    @wb.kernel
    def fourth_power(v: wb.array[V3], n: int, y: wb.array[F]):
        i = wb.tid()
        r = wb.pow(v[i][0], F(0.5))
        y[i] = r * r * r * r

    found, _, v, *_ = walks(turns(fourth_power), F, np.zeros(3))
    assert found["backward"] == []
    np.testing.assert_array_equal(v.grad.numpy(), 0.0)


# ---- what a loop hands on hides nothing


@wb.kernel
def there_and_back(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    for _ in range(n):
        r = wb.sqrt(x)
        x = r * r
    y[i] = x


@wb.kernel
def falling(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    u = v[i]
    for _ in range(n):
        u = u - F(0.1) * wb.length_sq(u) * wb.normalize(u) - F(0.2) * wb.length(u) * wb.normalize(u)
    y[i] = wb.dot(u, V3(1.0, 2.0, 3.0))


@wb.kernel
def masked(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = v[i][1]
    r = F(0.0)
    weight = F(0.0)
    for _ in range(n):
        s = s + weight * r
        r = wb.sqrt(v[i][0])
    y[i] = s


@wb.kernel
def guarded(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = v[i][1]
    d = V3(F(0.0), F(0.0), F(0.0))
    for _ in range(n):
        s = s + wb.where(wb.length(v[i]) > F(1e-9), d[0], F(0.0))
        d = wb.normalize(v[i])
    y[i] = s


@wb.kernel
def left_over(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    r = F(1.0)
    for _ in range(n):
        s = s + v[i][0]
        r = wb.sqrt(v[i][0])
    y[i] = s + F(0.0) * r


@wb.kernel
def without_contact(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i]
    for _ in range(n):
        force = wb.max(F(0.0), F(-1.0) - x[1])
        x = x - force * wb.normalize(x)
    y[i] = x[0] + F(2.0) * x[1]


@pytest.mark.parametrize(
    ("kernel", "slope"),
    [
        (there_and_back, [1.0, 0.0, 0.0]),
        (falling, 0.8**3 * np.array([1.0, 2.0, 3.0])),
        (masked, [0.0, 1.0, 0.0]),
        (guarded, [0.0, 1.0, 0.0]),
        (left_over, [3.0, 0.0, 0.0]),
        (without_contact, [1.0, 2.0, 0.0]),
    ],
)
def test_it_is_exact_and_nothing_is_said_where_nothing_hides(kernel, slope):
    found, _, v, *_ = walks(turns(kernel), F, np.zeros(3))
    assert found["backward"] == []
    np.testing.assert_allclose(v.grad.numpy()[0], slope, rtol=1e-14)


# ---- an absolute value times the sign of its number


@wb.kernel
def size_handed_on(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    a = F(0.0)
    for _ in range(n):
        s += a * wb.sign(v[i][0])
        a = wb.abs(v[i][0])
    y[i] = s


@wb.kernel
def sizes_summed(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    for _ in range(n):
        s += wb.abs(v[i][0])
    y[i] = s * wb.sign(v[i][0])


@wb.kernel
def size_of_the_last(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    a = wb.abs(x)
    for _ in range(n):
        x = x + F(0.5) * a * wb.sign(x)
        a = wb.abs(x)
    y[i] = x


@wb.kernel
def size_by_side(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    s = F(0.0)
    a = F(0.0)
    for _ in range(n):
        s += a * wb.where(v[i][0] > F(0.0), F(1.0), F(-1.0))
        a = wb.sqrt(v[i][0] * v[i][0])
    y[i] = s


@wb.kernel
def size_turned(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    s = F(0.0)
    a = F(0.0)
    for _ in range(n):
        s += a
        a = wb.abs(x)
        if x < F(0.0):
            a = -a
    y[i] = s


@wb.kernel
def size_over_the_sign(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    y[i] = wb.abs(x) / wb.sign(x) + wb.copysign(wb.abs(v[i][1]), v[i][1]) * wb.copysign(F(1.0), v[i][2])
    wb.atomic_add(y, i, wb.sign(x) * wb.sin(wb.abs(x) + x * x))


@wb.kernel
def size_by_the_sign_of_its_half(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    y[i] = -wb.abs(x) * wb.sign(-x / F(2.0))


BY_SIDES = [
    size_handed_on,
    size_of_the_last,
    size_by_side,
    size_turned,
    size_over_the_sign,
    size_by_the_sign_of_its_half,
]


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("kernel", BY_SIDES)
def test_a_size_on_the_side_of_its_sign_is_the_number_in_all_modes(kernel, zero):
    """However it comes to its sign: within a turn, from the last one, behind the loop; forwards and backwards."""
    program = turns(kernel)
    for x in (zero, 0.3, -0.3):
        start = np.array([x, x if kernel is size_over_the_sign else 0.2, 0.1])
        slope = one_sided(program, start)
        assert np.abs(slope).max() > 0.9
        found, tape, v, y, _ = walks(program, F, start)
        assert not any(found.values())
        np.testing.assert_allclose(RAYS @ v.grad.numpy()[0], slope, rtol=1e-5, atol=1e-6)
        forwards = [t[y][0] for t in wb.jvp(tape, [{v: ray[None]} for ray in RAYS])]
        np.testing.assert_allclose(forwards, slope, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(wb.jacobian(tape, y, v).reshape(3), v.grad.numpy()[0], rtol=1e-14)


@wb.kernel
def by_the_sign_of_another(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    y[i] = wb.abs(x) * wb.sign(x * x * x)


@wb.kernel
def by_a_carried_sign_of_another(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    s = F(0.0)
    a = F(0.0)
    for _ in range(n):
        s += a * wb.copysign(F(1.0), x * x * x)
        a = wb.abs(x)
    y[i] = s


@pytest.mark.parametrize("kernel", [by_the_sign_of_another, by_a_carried_sign_of_another, sizes_summed])
def test_a_size_beside_the_sign_of_another_number_is_said_in_all_modes(kernel):
    program = turns(kernel)
    assert np.abs(one_sided(program, np.zeros(3))).max() > 0.9
    found, tape, *_ = walks(program, F, np.zeros(3))
    for said in found.values():
        assert any("The slope of `abs`" in text and text.endswith("[convention]") for text in said)
    assert {f.thread for f in tape.diagnose().named("convention")} == {0}
    found, *_ = walks(program, F, np.zeros(3), seed=0.0)
    assert found["backward"] == []
    found, _, v, *_ = walks(program, F, np.array([-0.3, 0.2, 0.1]))
    assert not any(found.values())


@wb.kernel
def drag(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    for _ in range(n):
        x = x - F(0.1) * wb.sign(x) * (wb.abs(x) + x * x)
    y[i] = x


@wb.kernel
def size_in_a_branch(v: wb.array[V3], n: int, y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    s = F(0.0)
    if n > 2:
        s = wb.abs(x) * F(n) + x * x
    y[i] = wb.sign(x) * s


@pytest.mark.parametrize(("kernel", "slope"), [(drag, 0.729), (size_in_a_branch, 3.0)])
def test_a_size_times_its_sign_is_smooth_where_both_are_met_in_a_turn(kernel, slope):
    for where, wanted in ((0.0, [slope, 0.0, 0.0]), (0.4, None), (-0.4, None)):
        start = where * np.array([1.0, 0.5, -0.7])
        found, _, v, *_ = walks(turns(kernel), F, start)
        assert found["backward"] == []
        if wanted is not None:
            np.testing.assert_allclose(v.grad.numpy()[0], wanted, rtol=1e-14)
        else:
            np.testing.assert_allclose(RAYS @ v.grad.numpy()[0], one_sided(turns(kernel), start), rtol=1e-5, atol=1e-6)

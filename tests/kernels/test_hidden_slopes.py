"""Slopes at places without a derivative that hide: the adjoint that comes there is 0, as what multiplies vanishes too.

Truth: one-sided differences along rays, by hand: r sin(phi) is y, the square of an angle has slope -2 in its cosine.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import workbench as wb
from tests.kernels.test_singular_points import BACKENDS, V3, F, length, quadratic_drag

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def _on(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)


# ---- the slope hides where an adjoint of 0 arrives: what multiplies vanishes there too


@wb.kernel
def apart(v: wb.array[V3], n: wb.array[V3], size: wb.array[F]):
    i = wb.tid()
    n[i] = wb.normalize(v[i])
    size[i] = wb.length(v[i])


@wb.kernel
def together(n: wb.array[V3], size: wb.array[F], y: wb.array[V3]):
    i = wb.tid()
    y[i] = n[i] * (F(-2.0) * size[i])


@wb.kernel
def length_of(v: wb.array[V3], size: wb.array[F]):
    i = wb.tid()
    size[i] = wb.length(v[i])


@wb.kernel
def along(v: wb.array[V3], size: wb.array[F], y: wb.array[V3]):
    i = wb.tid()
    y[i] = wb.normalize(v[i]) * size[i]


@wb.kernel
def across_the_origin(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    y[i] = wb.dot(v[i], V3(1.0, 2.0, -1.0)) * wb.normalize(v[i])


@wb.kernel
def along_itself(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    n = wb.normalize(v[i])
    y[i] = wb.dot(n, v[i]) * n


@wb.kernel
def by_polar_coordinates(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0] * v[i][0] + v[i][1] * v[i][1])
    y[i] = r * wb.sin(wb.atan2(v[i][1], v[i][0]))


@wb.kernel
def by_cosine(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.length(v[i])
    y[i] = r * wb.cos(wb.atan2(v[i][1], v[i][0]))


@wb.kernel
def angle_squared(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    angle = wb.acos(v[i][0] + F(1.0))
    y[i] = angle * angle


@wb.kernel
def cube_of_a_root(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.cbrt(v[i][0])
    y[i] = r * r * r


@wb.kernel
def square_of_a_power(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.pow(v[i][0], F(0.5))
    y[i] = r * r


@wb.kernel
def two_roots(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.sqrt(v[i][0]) * wb.sqrt(v[i][1])


@wb.kernel
def root_of(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.sqrt(v[i][0])


@wb.kernel
def squared(r: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = r[i] * r[i]


def by_direction_and_length(v, y):
    n, size = wb.zeros(1, dtype=V3), wb.zeros(1, dtype=F)
    wb.launch(apart, 1, [v], [n, size])
    wb.launch(together, 1, [n, size], [y])


def by_stored(first, dtype, second, *more):
    def program(v, y):
        between = wb.zeros(1, dtype=dtype)
        wb.launch(first, 1, [v], [between])
        wb.launch(second, 1, [*(v for _ in more), between], [y])

    return program


def of(kernel):
    return lambda v, y: wb.launch(kernel, 1, [v], [y])


@wb.kernel
def root_in_a_loop(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0])
    s = F(0.0)
    for _ in range(i + 2):
        s = s + r * r
    y[i] = s


@wb.kernel
def power_of_a_root(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0])
    s = F(1.0)
    k = i
    while k < 2:
        s = s * r
        k = k + 1
    y[i] = s


@wb.kernel
def polar_in_a_loop(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    a = wb.atan2(v[i][1], v[i][0])
    r = wb.length(v[i])
    s = F(0.0)
    for _ in range(i + 2):
        s = s + r * wb.sin(a)
        if s > F(9.0):
            break
    y[i] = s


@wb.kernel
def root_times_sine(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0])
    y[i] = r * wb.sin(r)


@wb.kernel
def root_in_a_loop_and_before(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0])
    s = r * r
    for _ in range(i + 2):
        s = s + r * r
    y[i] = s


HIDDEN = [
    (by_direction_and_length, V3, "normalize"),
    (by_stored(length_of, F, along, "v"), V3, "normalize"),
    (of(across_the_origin), V3, "normalize"),
    (of(along_itself), V3, "normalize"),
    (of(by_polar_coordinates), F, "atan2"),
    (of(by_cosine), F, "length"),
    (of(angle_squared), F, "acos"),
    (of(cube_of_a_root), F, "cbrt"),
    (of(square_of_a_power), F, "pow"),
    (of(two_roots), F, "sqrt"),
    (of(root_times_sine), F, "sqrt"),
    (of(root_in_a_loop), F, "sqrt"),
    (of(root_in_a_loop_and_before), F, "sqrt"),
    (of(power_of_a_root), F, "sqrt"),
    (of(polar_in_a_loop), F, "atan2"),
    (by_stored(root_of, F, squared), F, "sqrt"),
]


def walks(program, out, start, seed=1.0):
    """{name of a walk: what it warns of} for backward, jvp and hvp, and the tape."""
    v, y = wb.array(np.array([start]), dtype=V3, requires_grad=True), wb.zeros(1, dtype=out)
    with wb.Tape(keep="all") as tape:
        program(v, y)
    direction = {v: np.array([[0.3, -0.2, 0.1]])}
    seeds = {y: wb.array([seed * np.ones(np.shape(y.numpy()[0]))], dtype=out)}
    found = {}
    for name, walk in (("backward", lambda: tape.backward(grads=seeds)), ("jvp", lambda: wb.jvp(tape, direction))):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            walk()
        found[name] = [str(w.message) for w in said]
    return found, tape, v, y, direction


@pytest.mark.parametrize(("program", "out", "row"), HIDDEN)
def test_a_slope_that_hides_behind_an_adjoint_of_0_is_said(program, out, row):
    found, tape, *_ = walks(program, out, np.zeros(3))
    for said in found.values():
        told = [text for text in said if f"The slope of `{row}`" in text]
        assert len(told) == 1
        assert "test_hidden_slopes.py" in told[0]
        assert told[0].endswith("[convention]")
    assert {f.thread for f in tape.diagnose().named("convention")} == {0}


@pytest.mark.parametrize(("program", "out", "row"), HIDDEN)
def test_nothing_hides_beside_it(program, out, row):
    found, *_ = walks(program, out, np.array([-0.3 if row == "acos" else 0.3, 0.2, 0.1]))
    assert not any(found.values())


@pytest.mark.parametrize(("program", "out", "row"), HIDDEN)
def test_nothing_hides_from_a_seed_of_0_that_the_last_launch_got(program, out, row):
    found, *_ = walks(program, out, np.zeros(3), seed=0.0)
    two_launches = HIDDEN[0][0], HIDDEN[-1][0]
    assert program in two_launches or not any(f"`{row}`" in text for text in found["backward"])


@pytest.mark.parametrize("program", [of(by_polar_coordinates), of(by_cosine), of(angle_squared), of(length)])
def test_second_derivatives_there_are_said_to_be_conventions(program):
    _, tape, v, y, direction = walks(program, F, np.zeros(3))
    with pytest.warns(UserWarning, match=r"(?s)The slope of.*\[convention\]"):
        wb.hvp(tape, y, direction)


@wb.kernel
def half(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    y[i] = v[i] * F(0.5)


@wb.kernel
def direction_of(v: wb.array[V3], n: wb.array[V3]):
    i = wb.tid()
    n[i] = wb.normalize(v[i])


@wb.kernel
def lit(n: wb.array[V3], light: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.dot(n[i], V3(1.0, 2.0, 3.0)) * light[i]


@wb.kernel
def pushed(x: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    force = wb.max(F(0.0), F(-1.0) - x[i][1])
    y[i] = force * wb.normalize(x[i]) + x[i]


@wb.kernel
def guarded_root(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    x = v[i][0]
    r = wb.where(x > F(1e-9), wb.cbrt(x) * wb.acos(F(1.0) - x), F(0.0))
    y[i] = r * r + x


@wb.kernel
def of_a_radius(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0] * v[i][0] + v[i][1] * v[i][1])
    y[i] = wb.cos(r) + r * r * r


@wb.kernel
def root_times_square(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.cbrt(v[i][0]) * v[i][0] * v[i][0]


@wb.kernel
def length_by_direction(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    d = wb.dot(wb.normalize(v[i]), v[i])
    y[i] = d * d


@wb.kernel
def pushed_in_a_loop(x: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    force = wb.max(F(0.0), F(-1.0) - x[i][1])
    n = wb.normalize(x[i])
    s = x[i]
    for _ in range(i + 2):
        s = s + force * n
    y[i] = s


@wb.kernel
def weightless_in_a_loop(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(v[i][0])
    s = F(0.0)
    for _ in range(i + 2):
        s = s + F(0.0) * r + v[i][1]
    y[i] = s


def in_the_dark(v, y):
    n = wb.zeros(1, dtype=V3)
    wb.launch(direction_of, 1, [v], [n])
    wb.launch(lit, 1, [n, wb.zeros(1, dtype=F)], [y])


@pytest.mark.parametrize(
    ("program", "out"),
    [
        (in_the_dark, F),
        (of(pushed), V3),
        (of(guarded_root), F),
        (of(of_a_radius), F),
        (of(root_times_square), F),
        (of(length_by_direction), F),
        (of(quadratic_drag), V3),
        (of(pushed_in_a_loop), V3),
        (of(weightless_in_a_loop), F),
        (by_stored(half, V3, half), V3),
    ],
)
def test_an_adjoint_that_is_0_all_around_hides_nothing(program, out):
    found, *_ = walks(program, out, np.zeros(3))
    assert found["backward"] == []


@pytest.mark.parametrize("where", [0.0, 0.4])
def test_a_length_alone_is_said_forwards_only_at_zero(where):
    found, *_ = walks(of(length_of), F, np.array([where, 0.0, 0.0]))
    assert [bool(said) for said in found.values()] == [where == 0.0] * 2


def test_the_square_of_a_length_is_smooth_forwards_too():
    @wb.kernel
    def square_of_length(v: wb.array[V3], y: wb.array[F]):
        i = wb.tid()
        y[i] = wb.length(v[i]) * wb.length(v[i])

    found, *_ = walks(of(square_of_length), F, np.zeros(3))
    assert not any(found.values())


@wb.kernel
def slowed(n: wb.array[V3], size: wb.array[F], v: wb.array[V3]):
    i = wb.tid()
    v[i] = v[i] - F(0.1) * n[i] * size[i]


def test_in_the_steps_of_a_loop():
    @wb.checkpoint(steps=2, budget=1)
    def simulate(k, v):
        n, size = wb.zeros(1, dtype=V3), wb.zeros(1, dtype=F)
        wb.launch(apart, 1, [v], [n, size])
        wb.launch(slowed, 1, [n, size], [v])

    start, v = wb.zeros(1, dtype=V3, requires_grad=True), wb.zeros(1, dtype=V3)
    with wb.Tape() as tape:
        wb.copy(v, start)
        simulate(v)
    with pytest.warns(UserWarning, match="The slope of `normalize`"):
        tape.backward(grads={v: np.ones((1, 3))})


def test_over_two_tapes():
    v, n = wb.zeros(1, dtype=V3, requires_grad=True), wb.zeros(1, dtype=V3, requires_grad=True)
    size, y = wb.zeros(1, dtype=F), wb.zeros(1, dtype=V3)
    with wb.Tape() as first:
        wb.launch(direction_of, 1, [v], [n])
    with wb.Tape() as second:
        wb.launch(length_of, 1, [v], [size])
        wb.launch(together, 1, [n, size], [y])
    second.backward(grads={y: np.ones((1, 3))})
    with pytest.warns(UserWarning, match="The slope of `normalize`"):
        first.backward(grads={n: n.grad})


@pytest.mark.parametrize("where", [0.0, 1.0])
def test_where_torch_multiplies(where):
    torch = pytest.importorskip("torch")
    v = torch.full((2, 3), where, dtype=torch.float64, requires_grad=True)
    n, size = wb.interop.torch.function(apart)(v)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        (n * size[:, None]).sum().backward()
    assert [str(w.message)[:25] for w in said] == ["The slope of `normalize` "] * (where == 0.0)


@wb.kernel
def signed(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    a, s = wb.abs(v[i][0]), wb.sign(v[i][1])
    y[i] = (
        wb.abs(v[i][0]) * wb.sign(v[i][0]) - F(0.5) * wb.abs(v[i][1]) * s + wb.sign(v[i][2]) * F(3.0) * wb.abs(v[i][2])
    )
    y[i] = y[i] + a * wb.sign(v[i][1])  # of two numbers: a kink, of which the slope on the side of sign(0) is taken


@pytest.mark.parametrize("where", [0.0, 0.4, -0.4])
def test_an_absolute_value_times_its_sign_is_the_number(where):
    found, tape, v, y, _ = walks(of(signed), F, np.array([where, 0.7, where]))
    assert not any(found.values())
    slope = np.array([[1.0 + (1.0 if where >= 0.0 else -1.0), -0.5, 3.0]])
    np.testing.assert_allclose(v.grad.numpy().reshape(1, 3), slope, rtol=1e-15)
    np.testing.assert_allclose(wb.jvp(tape, [{v: row[None]} for row in np.eye(3)])[2][y], 3.0, rtol=1e-15)
    np.testing.assert_array_equal(wb.hvp(tape, y, {v: np.ones((1, 3))})[v], 0.0)

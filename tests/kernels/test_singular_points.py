"""Places where a function, or one of its parts, has no derivative: exact where it has one, said or refused where not.

Truth: closed forms, or central differences of the same function in NumPy.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import workbench as wb

F, V3, Q4, M2, M3 = wb.float64, wb.vec3d, wb.quatd, wb.mat22d, wb.mat33d
BACKENDS = ["numpy", pytest.param("c", marks=pytest.mark.needs_cc)]
W = np.array([1.0, 2.0, 3.0])
pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def _on(backend, monkeypatch):
    monkeypatch.setattr(wb.config, "backend", backend)


def gradient(kernel, x, dtype=V3, out=F, seed=1.0, backward=True):
    """(the gradient of the only element, what was warned, the tape)."""
    a, y = wb.array(np.array([x]), dtype=dtype, requires_grad=True), wb.zeros(1, dtype=out)
    with wb.Tape() as tape:
        wb.launch(kernel, 1, [a], [y])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        tape.backward(grads={y: wb.array(np.array([seed]), dtype=out)})
    return a.grad.numpy()[0], [str(w.message) for w in said], tape


def smooth(kernel, x, wanted, **how):
    """The gradient is right, nothing is said, and `gradcheck` and `diagnose` find nothing either."""
    found, said, tape = gradient(kernel, x, **how)
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-12)
    assert said == []
    assert not tape.diagnose().problems


# ---- smooth, though its parts are not


@wb.kernel
def drag(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    y[i] = -F(2.0) * wb.length(v[i]) * wb.normalize(v[i])


@wb.kernel
def spring_without_length(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    d = v[i]
    n = wb.normalize(d)
    y[i] = n * (F(-2.0) * (wb.sqrt(wb.dot(d, d)) - F(0.0)))


@wb.kernel
def friction(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    y[i] = -wb.normalize(v[i]) * wb.min(F(0.5), F(2.0) * wb.length(v[i]))


@wb.kernel
def by_components(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    n = wb.normalize(v[i])
    f = wb.tanh(wb.length(v[i]) / F(0.5))
    y[i] = V3(-n[0] * f, n[1] * -f, -(n[2] * f))


@wb.kernel
def in_a_branch(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    n, size = wb.normalize(v[i]), wb.length(v[i])
    if size < F(1.0):
        y[i] = n * (F(-2.0) * size)
    else:
        y[i] = -n


@wb.kernel
def length_in_the_branch(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    n = wb.normalize(v[i])
    if n[0] < F(2.0):
        y[i] = n * (F(-2.0) * wb.length(v[i]))


@wb.kernel
def chosen(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    if v[i][0] > F(-1.0):
        half, a = F(0.5) * v[i], v[i]
        size = F(-3.0) * wb.length(a)
    else:
        half, a = F(0.25) * v[i], -v[i]
        size = F(-2.0) * wb.length(a)
    y[i] = wb.normalize(a) * size + half * F(2.0)


@wb.kernel
def chosen_later(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    a = v[i]
    size = F(-2.0) * wb.length(a)
    if v[i][0] < F(-1.0):
        a = -v[i]
    y[i] = wb.normalize(a) * size


@wb.kernel
def after_a_while(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    a, f = v[i], V3()
    k = 0
    while k < 2:
        f = F(-2.0) * a
        a = f + F(3.0) * v[i]
        k += 1
    y[i] = wb.normalize(f) * wb.length(f)


@pytest.mark.parametrize(
    "kernel",
    [
        drag,
        spring_without_length,
        friction,
        by_components,
        in_a_branch,
        length_in_the_branch,
        chosen,
        chosen_later,
        after_a_while,
    ],
)
def test_a_force_along_the_velocity_that_grows_from_rest(kernel):
    smooth(kernel, np.zeros(3), -2.0 * W, out=V3, seed=W)
    assert wb.gradcheck(kernel, 1, [wb.zeros(1, dtype=V3)], [wb.zeros(1, dtype=V3)], full=True)


@pytest.mark.parametrize("vec", [wb.vec3h, wb.vec3])
def test_the_same_in_other_types(vec):
    @wb.kernel
    def along(v: wb.array[vec], y: wb.array[vec]):
        i = wb.tid()
        y[i] = wb.length(v[i]) * wb.normalize(v[i])

    smooth(along, np.zeros(3), W, dtype=vec, out=vec, seed=W)


@wb.kernel
def turn_by_turn(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    f = v[i]
    for _ in range(3):
        f = wb.normalize(f) * (F(2.0) * wb.length(f))
    y[i] = f


def test_turn_by_turn_of_a_loop():
    smooth(turn_by_turn, np.zeros(3), 8.0 * W, out=V3, seed=W)


@wb.kernel
def quadratic_drag(v: wb.array[V3], y: wb.array[V3]):
    i = wb.tid()
    y[i] = wb.length_sq(v[i]) * wb.normalize(v[i]) + v[i]


def test_a_force_that_grows_with_the_square_has_slope_0_at_rest():
    smooth(quadratic_drag, np.zeros(3), W, out=V3, seed=W)


@wb.kernel
def half_second(w: wb.array[V3], q: wb.array[Q4]):
    i = wb.tid()
    q[i] = wb.quat_from_axis_angle(wb.normalize(w[i]), wb.length(w[i]) * F(0.5))


@wb.kernel
def by_rotation_vector(w: wb.array[V3], q: wb.array[Q4]):
    i = wb.tid()
    q[i] = wb.quat_from_rotation_vector(w[i] * F(0.5))


@pytest.mark.parametrize("kernel", [half_second, by_rotation_vector])
def test_a_turn_by_an_angular_velocity_of_zero(kernel):
    smooth(kernel, np.zeros(3), 0.25 * W, out=Q4, seed=np.array([*W, 4.0]))


@wb.kernel
def axis_times_angle(q: wb.array[Q4], w: wb.array[V3]):
    i = wb.tid()
    axis, angle = wb.quat_to_axis_angle(q[i])
    w[i] = axis * angle


@wb.kernel
def rotation_vector(q: wb.array[Q4], w: wb.array[V3]):
    i = wb.tid()
    w[i] = wb.quat_to_rotation_vector(q[i])


@pytest.mark.parametrize("kernel", [axis_times_angle, rotation_vector])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_rotation_vector_of_the_identity(kernel, sign):
    smooth(kernel, np.array([0.0, 0.0, 0.0, sign]), [*(2.0 * sign * W), 0.0], dtype=Q4, out=V3, seed=W)


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-3, 0.0894, 0.0895, 1.0, 3.0])
def test_rotation_vectors_there_and_back(size):
    w = size * W / np.linalg.norm(W)
    a, q, b = wb.array([w], dtype=V3, requires_grad=True), wb.zeros(1, dtype=Q4), wb.zeros(1, dtype=V3)
    with wb.Tape() as tape:
        wb.launch(by_rotation_vector, 1, [a], [q])
        wb.launch(rotation_vector, 1, [q], [b])
    half = np.float64(np.linalg.norm(w)) / 4
    np.testing.assert_allclose(q.numpy()[0], [*(w / 4 * np.sinc(half / np.pi)), np.cos(half)], rtol=1e-15, atol=1e-16)
    np.testing.assert_allclose(b.numpy()[0], w / 2, rtol=1e-14)
    np.testing.assert_allclose(wb.jacobian(tape, b, a).reshape(3, 3), np.eye(3) / 2, atol=1e-14)


@wb.kernel
def slerp(q: wb.array[Q4], y: wb.array[Q4]):
    i = wb.tid()
    y[i] = wb.quat_slerp(wb.quat_identity(dtype=F), q[i], F(0.25))


def test_between_equal_rotations():
    smooth(slerp, np.array([0.0, 0.0, 0.0, 1.0]), [0.25, 0.5, 0.75, 0.0], dtype=Q4, out=Q4, seed=np.array([*W, 0.0]))


@wb.kernel
def root_squared(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    r = wb.sqrt(x[i])
    y[i] = F(3.0) * r * r + F(2.0) * wb.sqrt(x[i]) * wb.sqrt(x[i])


@wb.kernel
def root_of_a_branch(x: wb.array[F], y: wb.array[F]):
    i = wb.tid()
    r = F(0.0)
    if x[i] > F(-1.0):
        r = wb.sqrt(x[i])
    y[i] = F(5.0) * r * r


@pytest.mark.parametrize("kernel", [root_squared, root_of_a_branch])
def test_the_square_of_a_root(kernel):
    for x in (0.0, 4.0):
        smooth(kernel, x, 5.0, dtype=F)


@wb.kernel
def guarded(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    size = wb.length(v[i])
    y[i] = wb.where(size > F(1e-9), wb.normalize(v[i])[0], F(0.0)) + size * size + wb.length_sq(v[i]) + v[i][0]


def test_what_a_guard_threw_away_is_not_said():
    smooth(guarded, np.zeros(3), [1.0, 0.0, 0.0])


# ---- matrices

C, S = np.cos(0.7), np.sin(0.7)
R3 = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
R3 *= np.sign(np.linalg.det(R3))
AT_REST = {
    "identity of 2": np.eye(2),
    "turned": 2 * np.array([[C, -S], [S, C]]),
    "mirrored": np.array([[C, S], [S, -C]]),
    "any of 2": np.array([[1.1, 0.3], [-0.2, 0.8]]),
    "identity of 3": np.eye(3),
    "rotation": R3,
    "two equal": R3 @ np.diag([1.5, 0.7, 0.7]),
    "one zero": R3 @ np.diag([1.5, 0.7, 0.0]),
    "any of 3": R3 @ np.diag([1.4, 1.0, 0.6]),
}


def polar_of(a):
    u, s, vt = np.linalg.svd(a)
    if len(a) == 3 and np.linalg.det(u @ vt) < 0:
        u[:, -1] *= -1
        s[-1] *= -1
    return u @ vt, vt.T @ np.diag(s) @ vt


def differences(f, a, h=1e-5):
    made = np.zeros_like(a)
    for k in np.ndindex(a.shape):
        for step, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
            b = a.copy()
            b[k] += step * h
            made[k] += weight * f(b) / (12 * h)
    return made


def kernels_of(n):
    mat, svd = (M2, wb.svd2) if n == 2 else (M3, wb.svd3)

    @wb.kernel
    def by_svd(a: wb.array[mat], y: wb.array[mat]):
        i = wb.tid()
        u, s, v = svd(a[i])
        y[i] = u * wb.transpose(v)

    @wb.kernel
    def by_polar(a: wb.array[mat], y: wb.array[mat]):
        i = wb.tid()
        r, p = wb.polar(a[i])
        y[i] = r + F(2.0) * p

    @wb.kernel
    def assigned(a: wb.array[mat], y: wb.array[mat]):
        i = wb.tid()
        r = mat()
        p = mat()
        wb.polar(a[i], r, p)
        y[i] = r + F(2.0) * p

    return mat, by_svd, by_polar, assigned


KERNELS = {n: kernels_of(n) for n in (2, 3)}


@pytest.mark.parametrize("name", AT_REST)
def test_the_nearest_rotation_and_the_stretch(name):
    a = AT_REST[name]
    mat, by_svd, by_polar, assigned = KERNELS[len(a)]
    g = np.random.default_rng(1).normal(size=a.shape)
    wanted = {
        by_svd: differences(lambda b: np.sum(polar_of(b)[0] * g), a),
        by_polar: differences(lambda b: np.sum((polar_of(b)[0] + 2 * polar_of(b)[1]) * g), a),
    }
    wanted[assigned] = wanted[by_polar]
    for kernel, slope in wanted.items():
        found, said, _ = gradient(kernel, a, dtype=mat, out=mat, seed=g)
        np.testing.assert_allclose(found, slope, rtol=1e-7, atol=1e-8)
        assert said == []
    r, p = wb.polar(mat(*a.ravel()))
    np.testing.assert_allclose([np.asarray(r), np.asarray(p)], polar_of(a), atol=1e-14)


def test_the_nearest_rotation_forwards():
    a, g = R3 @ np.diag([1.5, 0.7, 0.7]), np.random.default_rng(1).normal(size=(3, 3))
    mat, by_svd, *_ = KERNELS[3]
    x, y = wb.array([a], dtype=mat, requires_grad=True), wb.zeros(1, dtype=mat)
    with wb.Tape() as tape:
        wb.launch(by_svd, 1, [x], [y])
    h = 1e-5
    wanted = (polar_of(a + h * g)[0] - polar_of(a - h * g)[0]) / (2 * h)
    np.testing.assert_allclose(wb.jvp(tape, {x: g[None]})[y][0], wanted, atol=1e-8)


# ---- no derivative: refused


@wb.kernel
def vectors_of_svd(a: wb.array[M3], y: wb.array[F]):
    i = wb.tid()
    u, s, v = wb.svd3(a[i])
    y[i] = u[0, 1] + v[1, 2]


@wb.kernel
def vectors_of_eig(a: wb.array[M3], y: wb.array[F]):
    i = wb.tid()
    q, d = wb.eig3(a[i])
    y[i] = q[0, 1] + F(2.0) * q[1, 2]


@wb.kernel
def factors_of_qr(a: wb.array[M3], y: wb.array[F]):
    i = wb.tid()
    q, r = wb.qr3(a[i])
    y[i] = q[0, 0] + F(2.0) * q[1, 2]


@wb.kernel
def rotation_of(a: wb.array[M3], y: wb.array[F]):
    i = wb.tid()
    r, p = wb.polar(a[i])
    y[i] = r[0, 1]


FLAT = np.outer([1.0, 2.0, 3.0], [3.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("kernel", "a", "word"),
    [
        (vectors_of_svd, np.eye(3), "svd3"),
        (vectors_of_svd, R3, "svd3"),
        (vectors_of_svd, FLAT, "svd3"),
        (vectors_of_eig, np.eye(3), "eig3"),
        (vectors_of_eig, np.diag([2.0, 1.0, 1.0]), "eig3"),
        (factors_of_qr, FLAT, "qr3"),
        (factors_of_qr, np.zeros((3, 3)), "qr3"),
        (rotation_of, FLAT, "nearest rotation"),
        (rotation_of, np.zeros((3, 3)), "nearest rotation"),
        (rotation_of, R3 @ np.diag([1.0, 0.5, -0.5]), "nearest rotation"),
    ],
)
def test_factors_without_a_derivative_are_refused(kernel, a, word):
    with pytest.raises(wb.GradientError, match=rf"(?s){word}.*test_singular_points.py.*Write instead.*\[singular\]"):
        gradient(kernel, a, dtype=M3)


# ---- no derivative: said


@wb.kernel
def length(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = (wb.length(v[i]) - F(0.5)) * (wb.length(v[i]) - F(0.5))


@wb.kernel
def by_hand(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.sqrt(wb.dot(v[i], v[i]))


@wb.kernel
def normal(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.normalize(v[i])[1]


@wb.kernel
def stretched_spring(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = ((wb.length(v[i]) - F(0.5)) * wb.normalize(v[i]))[1]


@wb.kernel
def axis(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    a, t = wb.quat_to_axis_angle(Q4(v[i][0], v[i][1], v[i][2], F(1.0)))
    y[i] = a[0] + t


@wb.kernel
def root(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.sqrt(v[i][0])


@wb.kernel
def sum_of_squares(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.sqrt(v[i][0] * v[i][0] + v[i][1] * v[i][1])


@wb.kernel
def power(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.pow(v[i][0], F(0.25))


@wb.kernel
def third_root(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.cbrt(v[i][0])


@wb.kernel
def angle_of_parallels(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.acos(wb.dot(v[i] + V3(1.0, 0.0, 0.0), V3(1.0, 0.0, 0.0)))


@wb.kernel
def angle_of_the_origin(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    y[i] = wb.atan2(v[i][0], v[i][1])


@wb.kernel
def in_a_loop(v: wb.array[V3], y: wb.array[F]):
    i = wb.tid()
    n, size = wb.normalize(v[i]), wb.length(v[i])
    for k in range(3):
        y[i] += n[k] * size


SAID = [
    (length, "length"),
    (by_hand, "length"),
    (normal, "normalize"),
    (stretched_spring, "normalize"),
    (axis, "normalize"),
    (root, "sqrt"),
    (sum_of_squares, "sqrt"),
    (power, "pow"),
    (third_root, "cbrt"),
    (angle_of_parallels, "acos"),
    (angle_of_the_origin, "atan2"),
    (in_a_loop, "normalize"),
]


@pytest.mark.parametrize(("kernel", "row"), SAID)
def test_a_convention_is_said_with_line_and_way_out(kernel, row):
    _, said, tape = gradient(kernel, np.zeros(3))
    assert any(f"The slope of `{row}`" in text for text in said)
    for text in said:
        assert "test_singular_points.py" in text
        assert "Write instead:" in text
        assert text.endswith("[convention]")
    found = [f for f in tape.diagnose() if f.slug in ("convention", "adjoint-not-finite")]
    assert {f.thread for f in found} == {0}
    assert {f.where.line for f in found} == {int(text.split(".py:")[1].split(":")[0]) for text in said}


@pytest.mark.parametrize(("kernel", "row"), SAID)
def test_nothing_is_said_beside_it(kernel, row):
    _, said, tape = gradient(kernel, np.array([0.3, -0.2, 0.1]) if row != "acos" else np.array([-0.3, 0.2, 0.1]))
    assert said == []
    assert not tape.diagnose().named("convention")


def test_a_convention_is_said_once_and_by_the_pass_that_met_it():
    v, y = wb.zeros(3, dtype=V3, requires_grad=True), wb.zeros(3, dtype=F)
    for _ in range(4):  # the same launches: the last passes are compiled
        with wb.Tape() as tape:
            for _ in range(5):
                wb.launch(length, 3, [v], [y])
        for start, count in ((0.0, 1), (1.0, 0)):
            v.fill_(V3(start))
            with wb.Tape() as tape:
                wb.launch(length, 3, [v], [y])
                wb.launch(length, 3, [v], [y])
            with pytest.warns(UserWarning) if count else warnings.catch_warnings() as said:
                if not count:
                    warnings.simplefilter("error")
                tape.backward(grads={y: wb.array(np.ones(3), dtype=F)})
            assert len(said or ()) == count


def test_many_threads_of_which_one_is_at_rest():
    n = 100_000
    start = np.ones((n, 3))
    start[70_123] = 0
    v, y = wb.array(start, dtype=V3, requires_grad=True), wb.zeros(n, dtype=F)
    if wb.config.backend == "numpy":
        n = 2000
        start[1123] = 0
        v, y = wb.array(start[:n], dtype=V3, requires_grad=True), wb.zeros(n, dtype=F)
    with wb.Tape() as tape:
        wb.launch(length, n, [v], [y])
    with pytest.warns(UserWarning, match="length"):
        tape.backward(grads={y: wb.array(np.ones(n), dtype=F)})
    assert tape.diagnose().named("convention")


def test_forwards_it_is_said_too():
    v, y = wb.zeros(1, dtype=V3, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(normal, 1, [v], [y])
    with pytest.warns(UserWarning, match="normalize"):
        wb.jvp(tape, {v: np.ones((1, 3))})
    with pytest.warns(UserWarning, match="normalize"):
        wb.jacobian(tape, y, v)


def test_a_second_derivative_at_a_zero_vector_is_said_to_be_a_convention(backend):
    @wb.kernel
    def energy(v: wb.array(dtype=wb.vec3d), loss: wb.array(dtype=wb.float64)):
        i = wb.tid()
        wb.atomic_add(loss, 0, wb.dot(wb.length(v[i]) * wb.normalize(v[i]), v[i]))

    direction = np.array([[1.0, 2.0, 3.0]])
    for start, slope in (([[0.0, 0.0, 0.0]], None), ([[0.3, -0.2, 0.1]], 2 * direction)):
        v, loss = wb.array(start, dtype=wb.vec3d, requires_grad=True), wb.zeros(1, dtype=wb.float64)
        with wb.Tape(keep="all") as tape:
            wb.launch(energy, 1, [v, loss])
        if slope is None:
            with pytest.warns(UserWarning, match="zero vector is a convention"):
                wb.hvp(tape, loss, {v: direction})
        else:
            np.testing.assert_allclose(wb.hvp(tape, loss, {v: direction})[v], slope, rtol=1e-12)

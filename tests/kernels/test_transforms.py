"""Transforms, spatial vectors and rotations on the host and in kernels, beside closed forms and Warp's values."""

from __future__ import annotations

import itertools
import math
import pickle
import re

import numpy as np
import pytest

import workbench as wb
from workbench.kernels import types as T

RANDOM = np.random.default_rng(3)
F = wb.float64
QUAT, POINT, SPATIAL = T.quaternion(F), T.vector(3, F), T.vector(6, F)


def quat(seed: int) -> T.Small:
    q = np.random.default_rng(seed).normal(size=4)
    return wb.quatd(q / np.linalg.norm(q))


def close(a, b, tolerance=1e-12):
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=tolerance, atol=tolerance)


# ---- values on the host


def test_a_transform_is_made_of_seven_numbers_or_of_its_parts():
    p, q = wb.vec3(1.0, 2.0, 3.0), wb.quat(0.0, 0.0, 0.6, 0.8)
    whole = wb.transform(p, q)
    assert whole.tolist() == wb.transform(1.0, 2.0, 3.0, *q).tolist() == wb.transform(p=p, q=q).tolist()
    assert whole.tolist() == wb.transform((1, 2, 3), (0, 0, 0.6, 0.8)).tolist() == wb.transform([*p, *q]).tolist()
    assert wb.transform(p).tolist() == [1, 2, 3, 0, 0, 0, 1] and wb.transform().tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert wb.transform(q=q).tolist()[:4] == [0, 0, 0, 0] and wb.transform(2.0).tolist() == [2.0] * 7
    with pytest.raises(ValueError, match="transform takes 7 components"):
        wb.transform(1.0, 2.0)
    with pytest.raises(ValueError, match="takes p and q"):
        wb.transform(p=p, r=q)


def test_parts_of_a_transform_on_the_host():
    t = wb.transform((1, 2, 3), (0, 0, 0, 1))
    assert t.p.type is wb.vec3 and t.q.type is wb.quat and t.q.tolist() == [0, 0, 0, 1]
    t.p = 5.0
    t.q[0] = 2.0
    assert t.tolist() == [5, 5, 5, 2, 0, 0, 1] and t[3:].tolist() == [2, 0, 0, 1]
    assert str(wb.transformd) == "transformd" and wb.transform is wb.transformf is wb.types.transformation(float)
    with pytest.raises(AttributeError, match="no component 'p'"):
        wb.vec3(1.0, 2.0, 3.0).p  # noqa: B018
    assert pickle.loads(pickle.dumps(wb.transformd)) is wb.transformd
    assert pickle.loads(pickle.dumps(t)).p.tolist() == [5, 5, 5]


def test_vectors_are_made_of_parts_on_the_host():
    a, b = wb.vec3(1.0, 2.0, 3.0), wb.vec3(4.0, 5.0, 6.0)
    assert wb.spatial_vector(a, b).tolist() == [1, 2, 3, 4, 5, 6] == wb.types.vector(6, float)(a, b).tolist()
    assert wb.quat(a, 4.0).tolist() == [1, 2, 3, 4]
    assert wb.spatial_vectord is SPATIAL and wb.spatial_matrix.shape == (6, 6)


def test_a_spatial_vector_in_a_kernel_takes_its_scalar_from_its_parts():
    @wb.kernel
    def k(w: wb.array(dtype=POINT), out: wb.array(dtype=SPATIAL), small: wb.array(dtype=wb.spatial_vector)):
        i = wb.tid()
        out[i] = wb.spatial_vector(w[i], w[i] * w[i][0]) + wb.spatial_vector(0.0, w[i][1], 0.0, 0.0, 0.0, 2.0)
        small[i] = wb.spatial_vector(0, 0, 1, 0, 0, 0) + wb.spatial_vector(wb.vec3(), wb.vec3(1.0, 2.0, 3.0))

    w = wb.array([[0.1, 0.7, 0.3]], dtype=POINT, requires_grad=True)
    out, small = wb.zeros(1, dtype=SPATIAL), wb.zeros(1, dtype=wb.spatial_vector)
    with wb.Tape() as tape:
        wb.launch(k, 1, [w], [out, small])
    tape.backward(grads={out: wb.ones(1, dtype=SPATIAL)})
    close(out.numpy()[0], [0.1, 1.4, 0.3, 0.01, 0.07, 2.03], 1e-15)
    close(w.grad.numpy()[0], [1 + 0.2 + 0.7 + 0.3, 2 + 0.1, 1 + 0.1])
    assert small.numpy()[0].tolist() == [0, 0, 1, 1, 2, 3]


def test_arrays_of_transforms_hold_their_seven_numbers():
    x = wb.array([wb.transform_identity(), wb.transform((1, 2, 3), (0, 0, 0.6, 0.8))], dtype=wb.transform)
    assert x.numpy().shape == (2, 7) and x[1].q.tolist() == pytest.approx([0, 0, 0.6, 0.8])
    assert wb.full(2, wb.transform((1, 2, 3)), dtype=wb.transform).numpy()[1].tolist() == [1, 2, 3, 0, 0, 0, 1]
    assert wb.zeros(2, dtype=wb.transformd).dtype is wb.transformd


# ---- in kernels


def test_transforms_in_structs_locals_and_arguments():
    @wb.struct
    class Body:
        frame: wb.transform
        mass: float

    @wb.kernel
    def kernel(x: wb.array(dtype=Body), t: wb.transform, y: wb.array(dtype=wb.transform), z: wb.array(dtype=float)):
        i = wb.tid()
        a = x[i].frame
        a.p = a.p + wb.vec3(1.0, 1.0, 1.0)
        wb.transform_set_rotation(a, wb.quat(0.0, 0.0, 1.0, 0.0))
        x[i].frame.p = 2.0 * a.p
        wb.transform_set_translation(y[i], t.p)
        z[i] = wb.where(a == t, 1.0, 2.0) + a[6] + float(len(t))
        y[i] += wb.transform() + wb.transform(q=t.q) * x[i].mass

    body = Body(frame=wb.transform((1, 2, 3)), mass=2.0)
    x, y, z = wb.array([body], dtype=Body), wb.zeros(1, dtype=wb.transform), wb.zeros(1)
    wb.launch(kernel, 1, [x, wb.transform((4, 5, 6)), y, z])
    assert x.numpy()["frame"].tolist() == [[4, 6, 8, 0, 0, 0, 1]]
    assert y.numpy().tolist() == [[4, 5, 6, 0, 0, 0, 2]] and z.numpy().tolist() == [9.0]


def test_what_is_assigned_to_arguments():
    @wb.kernel
    def kernel(q: wb.array(dtype=wb.quat), axis: wb.array(dtype=wb.vec3), angle: wb.array(dtype=float)):
        i = wb.tid()
        a = wb.vec3()
        b = wb.float(0.0)
        for _ in range(2):
            wb.quat_to_axis_angle(q[i], a, b)
        axis[i] = a
        angle[i] = b

    axis, angle = wb.zeros(1, dtype=wb.vec3), wb.zeros(1)
    wb.launch(kernel, 1, [wb.array([[0.0, 0.6, 0.0, -0.8]], dtype=wb.quat), axis, angle])
    assert axis.numpy().tolist() == [[0, -1, 0]] and angle.list()[0] == pytest.approx(2 * math.asin(0.6))


@pytest.mark.parametrize(
    "line, slug",
    [
        ("y[i] = x[i] * x[i].p", "product"),
        ("y[i].x = 1.0", "component"),
        ("y[i] = wb.transform_inverse(x[i].q)", "operand"),
        ("y[i].q = x[i].p", "slice"),
        ("y[i] = wb.transform(x[i].p, x[i].p)", "components"),
        ("y[i].p = wb.quat_to_euler(x[i].q, 0, 0, 1)", "arguments"),
        ("y[i].p = wb.quat_to_euler(x[i].q, i, 1, 2)", "static"),
        ("y[i] = wb.transform(r=x[i].p)", "arguments"),
        ("y[i].q = wb.quat_slerp(x[i].q, x[i].q, wb.float64(0.5))", "operand"),
    ],
)
def test_what_is_no_transform_is_refused(line, slug):
    spaces: dict = {}
    text = (
        f"def kernel(x: wb.array(dtype=wb.transform), y: wb.array(dtype=wb.transform)):\n    i = wb.tid()\n    {line}\n"
    )
    import linecache

    linecache.cache["<line>"] = len(text), None, text.splitlines(True), "<line>"
    exec(compile(text, "<line>", "exec"), {"wb": wb}, spaces)
    with pytest.raises(wb.KernelError, match=rf"\[{slug}") as e:
        wb.launch(wb.Kernel(spaces["kernel"]), 1, [wb.zeros(1, dtype=wb.transform)] * 2)
    assert line in str(e.value)


# ---- closed forms


def test_transforms_compose_and_are_undone():
    a, b = wb.transformd(RANDOM.normal(size=3), quat(1)), wb.transformd(RANDOM.normal(size=3), quat(2))
    x = wb.vec3d(0.3, -1.0, 2.0)
    twice = wb.transform_point(a, wb.transform_point(b, x))
    close(wb.transform_point(wb.transform_multiply(a, b), x), twice)
    close(wb.transform_multiply(a, wb.transform_inverse(a)), wb.transform_identity(F))
    m = wb.transform_to_matrix(a)
    close(wb.transform_point(m, x), wb.transform_point(a, x))
    close(wb.transform_vector(m, x), wb.transform_vector(a, x))
    close(np.array(m) @ np.array(wb.transform_to_matrix(b)), wb.transform_to_matrix(wb.transform_multiply(a, b)))
    p, q, scale = wb.transform_decompose(wb.transform_compose(a.p, a.q, wb.vec3d(2.0, 3.0, 4.0)))
    close(p, a.p)
    close(scale, [2, 3, 4])
    close(wb.quat_to_matrix(q), wb.quat_to_matrix(a.q))


def test_the_power_of_a_wrench_along_a_twist_is_the_same_in_every_frame():
    t, a, f = (
        wb.transformd(RANDOM.normal(size=3), quat(4)),
        SPATIAL(RANDOM.normal(size=6)),
        SPATIAL(RANDOM.normal(size=6)),
    )
    power = wb.spatial_dot(wb.transform_twist(t, a), wb.transform_wrench(t, f))
    close(power, wb.spatial_dot(a, f))
    b = SPATIAL(RANDOM.normal(size=6))
    close(wb.spatial_dot(wb.spatial_cross(a, b), f), -wb.spatial_dot(b, wb.spatial_cross_dual(a, f)))


@pytest.mark.parametrize("seed", range(20))
def test_a_rotation_matrix_gives_its_quaternion(seed):
    q = quat(seed)
    made = wb.quat_from_matrix(wb.quat_to_matrix(q))
    close(np.array(made) * np.sign(np.dot(made, q)), q)


@pytest.mark.parametrize("made", [wb.mat22(), wb.types.matrix((3, 4), float)(), wb.vec3()], ids=str)
def test_a_quaternion_is_made_of_matrices_of_3_or_4_rows_alone(made):
    with pytest.raises(TypeError, match="takes a mat33 or mat44, not "):
        wb.quat_from_matrix(made)


@pytest.mark.parametrize("axes", [a for a in itertools.product(range(3), repeat=3) if a[0] != a[1] != a[2]], ids=str)
def test_euler_angles_make_the_rotation_again(axes):
    for seed in range(5):
        q = quat(seed)
        e = wb.quat_to_euler(q, *axes)
        if axes[0] != axes[2]:
            made = wb.quat_from_euler(e, *axes)
        else:  # the last angle stands at the place of the third axis
            turns = zip(axes, (e[axes[0]], e[axes[1]], e[3 - axes[0] - axes[1]]), strict=True)
            made = wb.quat_identity(F)
            for axis, angle in turns:
                unit = wb.vec3d(*np.eye(3)[axis])
                made = wb.mul(wb.quat_from_axis_angle(unit, np.float64(angle)), made)
        close(wb.quat_to_matrix(made), wb.quat_to_matrix(q), 1e-11)


def test_roll_pitch_and_yaw_come_back():
    angles = [np.float64(x) for x in (0.3, -0.7, 2.0)]
    close(wb.quat_to_rpy(wb.quat_rpy(*angles)), angles)


def turned(a, b) -> float:
    """How far from b the direction of a comes out."""
    q = wb.quat_between_vectors(POINT(a), POINT(b))
    close(np.linalg.norm(q), 1.0)
    return float(np.abs(np.array(wb.quat_rotate(q, wb.normalize(POINT(a)))) - np.array(wb.normalize(POINT(b)))).max())


def test_vectors_are_turned_into_each_other_also_next_to_opposite_ones():
    for seed in range(20):
        random = np.random.default_rng(seed)
        a, b = random.normal(size=3), random.normal(size=3)
        assert turned(a, b) < 1e-14
        for by in (0.0, 1e-16, 1e-15, 1e-12, 1e-8, 1e-3):
            assert turned(a, -a + by * b) < 1e-14, by
            assert turned(a, -3.7 * a) < 1e-14
    for axis in np.eye(3):
        assert turned(axis, -axis) == 0.0


def test_a_twist_and_what_remains():
    for seed in range(5):
        q, axis = quat(seed), wb.normalize(POINT(np.random.default_rng(seed).normal(size=3)))
        twist = wb.quat_twist(axis, q)
        swing = wb.mul(q, wb.quat_inverse(twist))
        close(np.dot(swing[:3], axis), 0.0)
        signed = wb.quat_twist_angle_signed(axis, q)
        close(wb.quat_to_matrix(wb.quat_from_axis_angle(axis, signed)), wb.quat_to_matrix(twist))
        close(wb.quat_twist_angle(axis, q), 2 * math.atan2(abs(np.dot(axis, q[:3])), q[3]))
    close(wb.quat_twist(wb.vec3d(0.0, 0.0, 1.0), wb.quatd(1.0, 0.0, 0.0, 0.0)), [0, 0, 0, 1])


# ---- interpolation, where its terms have no limit one by one


@wb.kernel
def interpolate(a: wb.array(dtype=QUAT), b: wb.array(dtype=QUAT), t: wb.array(dtype=F), y: wb.array(dtype=QUAT)):
    i = wb.tid()
    y[i] = wb.quat_slerp(a[i], b[i], t[i])


def slerped(a, b, t):
    y = wb.zeros(1, dtype=QUAT)
    arrays = [wb.array([a], dtype=QUAT), wb.array([b], dtype=QUAT), wb.array([t], dtype=F)]
    wb.launch(interpolate, 1, arrays, [y])
    return y.numpy()[0]


def exact_gradient(a, b, t, g):
    """The gradient of <g, slerp> by the 50 digits of mpmath, by differences."""
    import mpmath

    mpmath.mp.dps = 50

    def product(p, q):
        (px, py, pz, pw), (x, y, z, w) = p, q
        return [
            pw * x + px * w + py * z - pz * y,
            pw * y - px * z + py * w + pz * x,
            pw * z + px * y - py * x + pz * w,
            pw * w - px * x - py * y - pz * z,
        ]

    def value(v):
        a, b, t = v[:4], v[4:8], v[8]
        way = product([-a[0], -a[1], -a[2], a[3]], b)
        way = [-x for x in way] if way[3] < 0 else way
        s = mpmath.sqrt(sum(x * x for x in way[:3]))
        angle = mpmath.atan2(s, way[3])
        along = mpmath.sin(t * angle) / s if s else t / way[3]
        made = product(a, [x * along for x in way[:3]] + [mpmath.cos(t * angle)])
        return sum(mpmath.mpf(float(x)) * y for x, y in zip(g, made, strict=True))

    point, h = [mpmath.mpf(float(x)) for x in (*a, *b, t)], mpmath.mpf(10) ** -18
    steps = [[p + h * (i == k) * s for i, p in enumerate(point)] for k in range(9) for s in (1, -1)]
    values = [value(v) for v in steps]
    return np.array([float((values[2 * k] - values[2 * k + 1]) / (2 * h)) for k in range(9)])


@pytest.mark.parametrize("apart", [0.0, 1e-12, 1e-9, 1e-6, 1e-3, 4e-3, 5e-3, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_interpolation_has_its_derivative_also_between_equal_rotations(apart, sign):
    pytest.importorskip("mpmath")
    a = quat(1)
    b = sign * np.array(wb.mul(a, wb.quat_from_axis_angle(wb.vec3d(0.6, 0.0, 0.8), np.float64(apart))))
    g, t = np.array([0.3, -1.0, 0.5, 0.7]), 0.3
    x, z, w, y = wb.array([a], dtype=QUAT), wb.array([b], dtype=QUAT), wb.array([t], dtype=F), wb.zeros(1, dtype=QUAT)
    for v in (x, z, w):
        v.requires_grad = True
    with wb.Tape() as tape:
        wb.launch(interpolate, 1, [x, z, w], [y])
    tape.backward(grads={y: wb.array([g], dtype=QUAT)})
    found = np.concatenate([x.grad.numpy()[0], z.grad.numpy()[0], w.grad.numpy()])
    close(found, exact_gradient(a, b, t, g), 1e-10)


def test_interpolation_goes_the_shorter_way_at_constant_speed():
    a, b = quat(1), quat(2)
    for sign in (1, -1):
        for t in (0.0, 0.25, 1.0, 2.0):
            c = slerped(a, sign * np.array(b), t)
            whole = wb.quat_to_axis_angle(wb.mul(wb.quat_inverse(a), b))[1]
            if t <= 1.0:
                close(wb.quat_to_axis_angle(wb.mul(wb.quat_inverse(a), QUAT(c)))[1], t * whole)


# ---- Warp's values


def test_values_are_those_of_warp():
    warp = pytest.importorskip("warp")
    warp.config.quiet = True
    random = np.random.default_rng(7)

    def compare(name, *args, tolerance=2e-6):
        theirs, ours = getattr(warp, name)(*[a[0] for a in args]), getattr(wb, name)(*[a[1] for a in args])
        many = isinstance(theirs, tuple)
        for x, y in zip(theirs if many else (theirs,), ours if many else (ours,), strict=True):
            np.testing.assert_allclose(np.ravel(y), np.ravel(np.array(x)), rtol=tolerance, atol=tolerance, err_msg=name)

    def both(name, values):
        flat = [float(v) for v in np.ravel(values)]
        return getattr(warp, name)(*flat), getattr(wb, name)(*flat)

    for _ in range(10):
        q, r = (both("quat", v / np.linalg.norm(v)) for v in random.normal(size=(2, 4)))
        u, v = (both("vec3", x) for x in random.normal(size=(2, 3)))
        n = both("vec3", np.array(u[1]) / np.linalg.norm(u[1]))
        t, s = both("transform", [*v[1], *q[1]]), both("transform", [*u[1], *r[1]])
        m, k, w = both("mat33", random.normal(size=9)), both("mat44", random.normal(size=16)), random.uniform(-1, 2)
        compare("transform_multiply", t, s)
        compare("transform_inverse", t)
        compare("transform_point", t, u)
        compare("transform_vector", t, u)
        compare("transform_point", k, u)
        compare("transform_vector", k, u)
        compare("transform_to_matrix", t)
        compare("transform_from_matrix", k, tolerance=1e-5)
        compare("transform_decompose", k, tolerance=1e-5)
        compare("transform_compose", u, q, v)
        compare("quat_from_matrix", m, tolerance=1e-5)
        compare("quat_to_axis_angle", q)
        compare("quat_slerp", q, r, (w, w))
        compare("quat_between_vectors", u, v)
        compare("quat_twist", n, q)
        compare("quat_twist_angle", n, q)
        compare("quat_twist_angle_signed", n, q)
        compare("quat_to_rpy", q, tolerance=1e-5)
        for axes in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 1, 0), (2, 0, 2)):
            fixed = [(a, a) for a in axes]
            compare("quat_from_euler", u, *fixed)
            compare("quat_to_euler", q, *fixed, tolerance=2e-5)
        x, y = (both("spatial_vector", z) for z in random.normal(size=(2, 6)))
        for name in ("spatial_cross", "spatial_cross_dual", "spatial_dot"):
            compare(name, x, y)
        compare("spatial_top", x)
        compare("spatial_bottom", x)
        compare("velocity_at_point", x, u)


def test_a_transformed_point_is_straight_c():
    @wb.kernel
    def kernel(t: wb.array(dtype=wb.transform), x: wb.array(dtype=wb.vec3), y: wb.array(dtype=wb.vec3)):
        i = wb.tid()
        y[i] = wb.transform_point(t[i], x[i])

    text = str(kernel.c).partition("wb.transform_point(t[i], x[i]) */")[2].partition("y[i] = ")[0]
    assert 5 < len(text.splitlines()) < 30 and not re.search(r"\b(for|if|while)\b|\?", text), text


@wb.kernel
def turned_by_chosen_axes(e: wb.array[wb.vec3d], a: wb.array2d[int], q: wb.array[wb.quatd]):
    i = wb.tid()
    q[i] = wb.quat_from_euler(e[0], a[i, 0], a[i, 1], a[i, 2])


def test_euler_angles_about_axes_that_only_the_kernel_knows(backend):
    orders = [a for a in itertools.product(range(3), repeat=3) if a[0] != a[1] != a[2]]
    e = wb.array([[0.3, 0.7, -0.4]], dtype=wb.vec3d, requires_grad=True)
    q = wb.zeros(len(orders), dtype=wb.quatd)
    with wb.Tape(keep="all") as tape:
        wb.launch(turned_by_chosen_axes, len(orders), [e, wb.array(orders, dtype=int), q])
    close(q.numpy(), np.array([wb.quat_from_euler(wb.vec3d(0.3, 0.7, -0.4), *axes) for axes in orders]))
    wb.gradcheck(tape)


@pytest.mark.parametrize("backend", ["numpy", "c"])
def test_a_transform_of_a_place_turns_nothing(backend, monkeypatch):
    @wb.kernel
    def placed(x: wb.array[wb.vec3], y: wb.array[wb.transform]):
        i = wb.tid()
        y[i] = wb.transform(x[i])

    monkeypatch.setattr(wb.config, "backend", backend)
    x, y = wb.array([[1.0, 2.0, 3.0]], dtype=wb.vec3), wb.zeros(1, dtype=wb.transform)
    wb.launch(placed, 1, [x], [y])
    assert y.numpy()[0].tolist() == [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0]

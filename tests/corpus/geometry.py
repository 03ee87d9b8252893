"""Transforms, spatial vectors and rotations: parts in every form, and the builtins on them."""

from __future__ import annotations

import workbench as wb

from . import ALL, floats, given, mat33, mat44, program, quat, vec3, zeros

N = 2


def transform(F):
    return wb.types.transformation(F)


def vec6(F):
    return wb.types.vector(6, F)


def mat66(F):
    return wb.types.matrix((6, 6), F)


@program(
    x=floats(N, of=transform),
    z=floats(N, of=transform),
    w=floats(N, of=vec3),
    y=zeros(N, of=transform),
    v=zeros(N, of=vec3),
)
def transform_builtins(F):
    T, V = transform(F), vec3(F)

    @wb.kernel
    def k(x: wb.array(dtype=T), z: wb.array(dtype=T), w: wb.array(dtype=V), y: wb.array(dtype=T), v: wb.array(dtype=V)):
        i = wb.tid()
        a = T(wb.transform_get_translation(x[i]), wb.normalize(wb.transform_get_rotation(x[i])))
        b = z[i]
        y[i] = a * b + wb.transform_multiply(wb.transform_inverse(a), b) * b[3]
        v[i] = wb.transform_point(a, w[i]) + wb.transform_vector(b, w[i]) * F(0.25)

    return k


@program(x=floats(N, of=transform), w=floats(N, of=vec3), y=zeros(N, of=transform), u=zeros(N), dtypes=ALL)
def parts_of_transforms(F):
    T, V, Q = transform(F), vec3(F), quat(F)

    @wb.kernel
    def k(x: wb.array(dtype=T), w: wb.array(dtype=V), y: wb.array(dtype=T), u: wb.array(dtype=F)):
        i = wb.tid()
        t = x[i]
        t.p = t.p + w[i] * t.q.w
        t.p[1] = t.p.x * t[6]
        t.q.w *= F(0.5)
        t[2] += t.p[i]
        s = T(w[i], t.q) - t
        s.q = Q(s.p, u[i] + t.q[i])
        y[i] = s
        u[i] = wb.dot(s[0:3], t.p) + wb.dot(t.q, s.q)

    return k


@program(x=floats(N, of=transform), w=floats(N, of=vec3), y=zeros(N, of=transform))
def parts_of_transforms_in_memory(F):
    T, V, Q = transform(F), vec3(F), quat(F)

    @wb.kernel
    def k(x: wb.array(dtype=T), w: wb.array(dtype=V), y: wb.array(dtype=T)):
        i = wb.tid()
        y[i] = x[i] * F(2.0)
        y[i].p = w[i] * x[i].p.y
        y[i].p[2] = w[i].x
        y[i].q.w = x[i].q.x * x[i].q.w
        y[i].q *= Q(w[i], F(0.5))
        y[i].p += w[i]
        y[i][5] += w[i][i]
        y[i].q[i] = x[i][i + 1]

    return k


@program(x=floats(N, of=transform), w=floats(N, of=vec3), m=zeros(N, of=mat44), y=zeros(N, of=transform))
def transforms_as_matrices(F):
    T, V, M = transform(F), vec3(F), mat44(F)

    @wb.kernel
    def k(x: wb.array(dtype=T), w: wb.array(dtype=V), m: wb.array(dtype=M), y: wb.array(dtype=T)):
        i = wb.tid()
        a = wb.transform_to_matrix(x[i])
        m[i] = wb.transform_compose(w[i], x[i].q, w[i])
        y[i] = wb.transform_from_matrix(a)
        y[i].p += wb.transform_point(a, w[i]) + wb.cw_mul(wb.transform_vector(a, w[i]), w[i])

    return k


@program(m=floats(N, of=mat44), y=zeros(N, of=transform), v=zeros(N, of=vec3))
def matrices_taken_apart(F):
    T, V, M = transform(F), vec3(F), mat44(F)

    @wb.kernel
    def k(m: wb.array(dtype=M), y: wb.array(dtype=T), v: wb.array(dtype=V)):
        i = wb.tid()
        p, q, scale = wb.transform_decompose(m[i])
        y[i] = T(p, q)
        v[i] = scale

    return k


@program(x=floats(N, of=transform), a=floats(N, of=vec6), b=floats(N, of=vec6), y=zeros(N, of=vec6), u=zeros(N))
def spatial_builtins(F):
    T, S = transform(F), vec6(F)

    @wb.kernel
    def k(x: wb.array(dtype=T), a: wb.array(dtype=S), b: wb.array(dtype=S), y: wb.array(dtype=S), u: wb.array(dtype=F)):
        i = wb.tid()
        t = T(x[i].p, wb.normalize(x[i].q))
        c = wb.transform_twist(t, a[i])
        f = wb.transform_wrench(t, b[i])
        y[i] = wb.spatial_cross(c, b[i]) + wb.spatial_cross_dual(c, f) * F(0.5)
        y[i] += S(wb.spatial_bottom(c), wb.velocity_at_point(c, wb.spatial_top(f)))
        u[i] = wb.spatial_dot(c, f)

    return k


@program(m=floats(N, of=mat66), a=floats(N, of=vec6), y=zeros(N, of=vec6))
def spatial_matrices(F):
    S, M = vec6(F), mat66(F)

    @wb.kernel
    def k(m: wb.array(dtype=M), a: wb.array(dtype=S), y: wb.array(dtype=S)):
        i = wb.tid()
        y[i] = m[i] * a[i] + m[i][i] * wb.trace(m[i])

    return k


@program(a=floats(N, of=vec6), r=floats(N, of=mat33), s=floats(N, of=mat33), y=zeros(N, of=vec6))
def spatial_adjoints(F):
    S, R = vec6(F), mat33(F)

    @wb.kernel
    def k(a: wb.array(dtype=S), r: wb.array(dtype=R), s: wb.array(dtype=R), y: wb.array(dtype=S)):
        i = wb.tid()
        y[i] = wb.transpose(wb.spatial_adjoint(r[i], s[i])) * a[i]

    return k


@program(m=floats(N, of=lambda F: wb.types.matrix((6, 3), F)), w=floats(N, of=vec3), y=zeros(N, of=mat33))
def products_of_oblong_matrices(F):
    M, V, R = wb.types.matrix((6, 3), F), vec3(F), mat33(F)

    @wb.kernel
    def k(m: wb.array(dtype=M), w: wb.array(dtype=V), y: wb.array(dtype=R)):
        i = wb.tid()
        j = m[i]
        j[i + 1] = w[i]
        j[0:6, 2] = j * w[i]
        y[i] = wb.transpose(j) * j + wb.matrix_from_cols(j[0], j[5], w[i]) * j[3:6, 0:3]

    return k


@program(x=floats(N, of=quat), z=floats(N, of=quat), w=floats(N, of=vec3), t=floats(N), y=zeros(N, of=quat), u=zeros(N))
def rotations(F):
    Q, V = quat(F), vec3(F)

    @wb.kernel
    def k(
        x: wb.array(dtype=Q),
        z: wb.array(dtype=Q),
        w: wb.array(dtype=V),
        t: wb.array(dtype=F),
        y: wb.array(dtype=Q),
        u: wb.array(dtype=F),
    ):
        i = wb.tid()
        a = wb.normalize(x[i])
        b = wb.normalize(Q(z[i].w, -z[i].x, z[i].z, -z[i].y))
        n = wb.normalize(w[i])
        axis, angle = wb.quat_to_axis_angle(b)
        y[i] = wb.quat_slerp(a, b, t[i]) + wb.quat_from_matrix(wb.quat_to_matrix(a * b)) * F(2.0)
        y[i] += wb.quat_between_vectors(w[i], axis) + wb.quat_twist(n, b) * F(0.5)
        u[i] = angle * axis.y + wb.quat_twist_angle(n, a) + wb.quat_twist_angle_signed(n, b) * F(0.25)

    return k


@program(x=floats(N, of=quat), w=floats(N, of=vec3), y=zeros(N, of=quat), v=zeros(N, of=vec3))
def rotations_by_angles(F):
    Q, V = quat(F), vec3(F)

    @wb.kernel
    def k(x: wb.array(dtype=Q), w: wb.array(dtype=V), y: wb.array(dtype=Q), v: wb.array(dtype=V)):
        i = wb.tid()
        a = wb.normalize(Q(x[i].x, -x[i].y, x[i].w, x[i].z * F(2.0)))
        y[i] = wb.quat_from_euler(w[i], 0, 1, 2) + wb.quat_from_euler(w[i], 2, 0, 2) * F(0.5)
        v[i] = wb.quat_to_rpy(a) + wb.quat_to_euler(a, 0, 1, 2) * F(2.0) + wb.quat_to_euler(a, 2, 1, 2) * F(0.5)
        v[i] += wb.quat_to_euler(a, 1, 0, 2)

    return k


@program(x=given([0.5, 1.0, -2.0, 0.0, 0.0, 0.0, 1.0], of=transform), w=floats(1, of=vec3), y=zeros(1, of=quat))
def interpolation_between_equal_rotations(F):
    T, V, Q = transform(F), vec3(F), quat(F)

    @wb.kernel
    def k(x: wb.array(dtype=T), w: wb.array(dtype=V), y: wb.array(dtype=Q)):
        i = wb.tid()
        a = wb.normalize(x[i].q)
        b = wb.normalize(Q(w[i].x * (x[i].q.x + x[i].q.y), x[i].q.y, x[i].q.z * w[i].z, x[i].q.w))
        y[i] = wb.quat_slerp(a, b, w[i].x) + wb.quat_slerp(b, Q(F(0.0), F(0.0), F(0.0), F(1.0)), w[i].y) * F(2.0)

    return k

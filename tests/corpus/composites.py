"""Vectors, matrices, quaternions: components in every form, and the builtins on them."""

import numpy as np

import workbench as wb

from . import floats, ints, mat22, mat33, mat44, program, quat, vec2, vec3, vec4, zeros

N = 2


@program(x=floats(N, of=vec3), z=floats(N, of=vec3), y=zeros(N), v=zeros(N, of=vec3))
def vector_builtins(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), z: wb.array(dtype=V), y: wb.array(dtype=F), v: wb.array(dtype=V)):
        i = wb.tid()
        a = x[i]
        b = z[i]
        y[i] = wb.dot(a, b) * wb.length(a) + wb.length_sq(b - a) / wb.length(wb.cross(a, b))
        v[i] = wb.normalize(a) * wb.dot(a, b) - wb.cross(b, a) / F(2.0) + F(3.0) * a + (-b)

    return k


@program(x=floats(N, of=vec3), z=floats(N, of=vec3), y=zeros(N, of=vec3))
def componentwise_builtins(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), z: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        a = wb.cw_mul(x[i], z[i]) + wb.cw_div(x[i], z[i])
        y[i] = wb.min(a, z[i]) + wb.max(x[i], z[i]) * wb.min(x[i]) - wb.abs(a) * wb.max(z[i])

    return k


@program(x=floats(N, of=vec3), y=zeros(N, of=vec3))
def components_read_and_written_in_every_form(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        v = x[i]
        v[0] = v.y * v[2]
        v.y = v.x * v.x
        v[1] += v.z
        v.z -= v[0]
        v.x *= v[1]
        v[2] /= v.x + F(1.0)
        v[-1] = v[-1] * v[-3]
        w = v
        w.x = w.y * w.z
        y[i] = w + v

    return k


@program(x=floats(N, of=vec4), y=zeros(N, of=vec4))
def swizzles_and_slices(F):
    V = wb.types.vector(4, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        v = x[i]
        a = v[0:2]
        b = v[2:4]
        v[1:3] = a * b[0]
        v[0] = wb.dot(a, b)
        y[i] = v * v.w

    return k


@program(x=floats(4, of=vec3), n=ints(0, 2, 1, 2), y=zeros(4))
def run_time_component_index(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), n: wb.array(dtype=int), y: wb.array(dtype=F)):
        i = wb.tid()
        v = x[i]
        j = n[i]
        v[j] = v[j] * v[(j + 1) % 3]
        v[(j + 2) % 3] += v[j]
        y[i] = v[0] * v[1] + v[j] * v[2]

    return k


@program(x=floats(N, of=vec3), y=zeros(N, of=vec3))
def component_writes_in_a_loop(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        v = x[i]
        for j in range(i + 4):
            c = j % 3
            v[c] = v[c] * v[(c + 1) % 3] * F(0.5) + F(0.25)
            v.x += v.z * F(0.125)
            if v[c] > F(1.0):
                v[c] = wb.sin(v[c])
        y[i] = v

    return k


@program(x=floats(N, of=vec3), y=floats(N, of=vec3))
def components_of_array_elements(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        y[i][0] = x[i][1] * x[i].z
        y[i].y += x[i].x * y[i].x
        y[i][2] *= x[i][0]
        for j in range(3):
            y[i][j] = y[i][j] * x[i][(j + 1) % 3]
        x[i].x = y[i].z

    return k


@program(x=floats(N, of=mat33), z=floats(N, of=mat33), w=floats(N, of=vec3), y=zeros(N, of=mat33), v=zeros(N, of=vec3))
def matrix_builtins(F):
    M = wb.types.matrix((3, 3), F)
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=M), z: wb.array(dtype=M), w: wb.array(dtype=V), y: wb.array(dtype=M), v: wb.array(dtype=V)):
        i = wb.tid()
        a = x[i]
        b = z[i]
        y[i] = a * b + wb.transpose(a) * wb.determinant(b) - wb.outer(w[i], w[i]) * wb.trace(a) + F(2.0) * (a @ a)
        v[i] = a * w[i] + w[i] * b + wb.get_diag(a) * wb.ddot(a, b)

    return k


def a_matrix_inverse(size, of):
    def make(F):
        M = wb.types.matrix((size, size), F)

        @wb.kernel
        def k(x: wb.array(dtype=M), y: wb.array(dtype=M)):
            i = wb.tid()
            a = x[i] + F(3.0) * wb.identity(n=size, dtype=F) if False else x[i]
            y[i] = wb.inverse(a) * wb.determinant(a)

        return k

    make.__name__ = f"inverse_of_{size}x{size}"
    rng = np.random.default_rng(size)
    values = np.round((rng.uniform(-0.5, 0.5, (N, size, size)) + 2 * np.eye(size)) * 64) / 64
    program(
        x=floats(N, of=of, values=values),
        y=zeros(N, of=of),
        reference=lambda x, y: {"y": np.linalg.inv(x) * np.linalg.det(x)[:, None, None]},
    )(make)


for _size, _of in ((2, mat22), (3, mat33), (4, mat44)):
    a_matrix_inverse(_size, _of)


@program(x=floats(N, of=mat33), n=ints(0, 2), y=zeros(N, of=mat33))
def matrix_components(F):
    M = wb.types.matrix((3, 3), F)

    @wb.kernel
    def k(x: wb.array(dtype=M), n: wb.array(dtype=int), y: wb.array(dtype=M)):
        i = wb.tid()
        m = x[i]
        j = n[i]
        m[0, 1] = m[2, 2] * m[0, 1]
        m[1, j] += m[j, 0] * m[j, j]
        m[2, 0] *= m[1, 1]
        row = m[1]
        m[0] = row * m[2, 1]
        y[i] = m
        y[i][2, 1] = m[0, 0] * m[1, 2]
        y[i][j, 0] += m[1, j]

    return k


@program(
    x=floats(N, of=lambda F: wb.types.matrix((2, 3), F)),
    z=floats(N, of=lambda F: wb.types.matrix((3, 4), F)),
    v=floats(N, of=vec4),
    y=zeros(N, of=lambda F: wb.types.matrix((2, 4), F)),
    u=zeros(N, of=vec2),
)
def matrices_of_other_shapes(F):
    A = wb.types.matrix((2, 3), F)
    B = wb.types.matrix((3, 4), F)
    C = wb.types.matrix((2, 4), F)
    V = wb.types.vector(4, F)
    U = wb.types.vector(2, F)

    @wb.kernel
    def k(x: wb.array(dtype=A), z: wb.array(dtype=B), v: wb.array(dtype=V), y: wb.array(dtype=C), u: wb.array(dtype=U)):
        i = wb.tid()
        y[i] = x[i] @ z[i]
        u[i] = (x[i] * z[i]) * v[i]

    return k


@program(x=floats(N, of=vec3), y=zeros(N, of=mat33))
def matrix_constructors(F):
    M = wb.types.matrix((3, 3), F)
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=M)):
        i = wb.tid()
        v = x[i]
        a = M(v[0], v[1], v[2], v[1] * v[1], F(1.0), v[0], F(0.5), v[2], v[0] * v[2])
        b = wb.matrix_from_rows(v, v * v[0], v * F(2.0))
        c = wb.matrix_from_cols(v, v, v * v[1])
        y[i] = a * b + c + wb.diag(v) * wb.skew(v) + M(v.x)

    return k


@program(x=floats(N, of=quat), z=floats(N, of=quat), w=floats(N, of=vec3), y=zeros(N, of=quat), v=zeros(N, of=vec3))
def quaternion_builtins(F):
    Q = wb.types.quaternion(F)
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=Q), z: wb.array(dtype=Q), w: wb.array(dtype=V), y: wb.array(dtype=Q), v: wb.array(dtype=V)):
        i = wb.tid()
        p = wb.normalize(x[i])
        q = z[i]
        y[i] = p * q + wb.quat_inverse(q) * wb.dot(p, q)
        v[i] = wb.quat_rotate(p, w[i]) + wb.quat_rotate_inv(p, w[i]) * q.w

    return k


@program(x=floats(N, of=vec3), t=floats(N), y=zeros(N, of=mat33), q=zeros(N, of=quat))
def quaternion_constructors(F):
    Q = wb.types.quaternion(F)
    V = wb.types.vector(3, F)
    M = wb.types.matrix((3, 3), F)

    @wb.kernel
    def k(x: wb.array(dtype=V), t: wb.array(dtype=F), y: wb.array(dtype=M), q: wb.array(dtype=Q)):
        i = wb.tid()
        a = wb.quat_from_axis_angle(wb.normalize(x[i]), t[i])
        b = Q(x[i], t[i])
        b.x = b.y * b[3]
        b[1] += b.z
        q[i] = a * b + wb.quat_rpy(t[i], x[i].x, x[i].y)
        y[i] = wb.quat_to_matrix(a)

    return k


@program(x=floats(N, of=lambda F: wb.types.vector(6, F)), y=zeros(N))
def long_vectors(F):
    V = wb.types.vector(length=6, dtype=F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=F)):
        i = wb.tid()
        v = x[i] * F(2.0)
        s = F(0.0)
        for j in range(6):
            s += v[j] * v[5 - j]
            v[j] = s * F(0.25)
        y[i] = s + wb.length(v)

    return k


@program(x=floats(N, of=mat22), v=floats(N, of=vec2), y=zeros(N, of=vec2))
def a_carried_matrix(F):
    M = wb.types.matrix((2, 2), F)
    V = wb.types.vector(2, F)

    @wb.kernel
    def k(x: wb.array(dtype=M), v: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        p = wb.identity(n=2, dtype=F)
        w = v[i]
        for j in range(i + 3):
            p = p * x[i] * F(0.5)
            p[0, 1] = p[1, 0] * F(0.5)
            w = p * w + v[i]
        y[i] = w

    return k


@program(x=floats(3, of=vec3), y=zeros(3, of=vec3))
def vectors_chosen_by_branches(F):
    V = wb.types.vector(3, F)

    @wb.kernel
    def k(x: wb.array(dtype=V), y: wb.array(dtype=V)):
        i = wb.tid()
        v = x[i]
        if v.x > v.y:
            v = V(v.y, v.x, v.z * v.z)
        elif v.z > F(1.0):
            v.z = v.x * v.z
        w = wb.where(v.x < v.z, v, x[i] * F(2.0))
        y[i] = w if i > 0 else w * w.x

    return k

"""Trees of rigid bodies in joint coordinates: spatial vectors and transforms, a mass matrix, its factor, motors."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(3, Real)
Mat = wp.types.matrix((3, 3), Real)
Quat = wp.types.quaternion(dtype=Real)
Frame = wp.types.transformation(dtype=Real)
Spatial = wp.types.vector(6, Real)
Inertia = wp.types.matrix((6, 6), Real)
BODIES, TREES, STEPS, DT = 5, 2, 10, 0.02
REVOLUTE, PRISMATIC = wp.constant(0), wp.constant(1)
WARP_GRADIENT = "wrong"  # sums that a loop carries into a division or a square root, as in the factor of a matrix

rng = np.random.default_rng(14)
PARAMETERS = {
    "angle": 0.5 * rng.normal(size=TREES * BODIES),
    "rate": 0.5 * rng.normal(size=TREES * BODIES),
    "mass": 0.5 + rng.random(BODIES),
    "offset": np.array([[0.0, 0.0, 0.0], [0.6, 0.0, 0.0], [0.5, 0.1, 0.0], [0.6, 0.0, 0.2], [0.0, 0.3, 0.0]]),
    "gain": np.array([4.0, 0.5]),
}
PARENT = np.array([-1, 0, 1, 0, 3])
KIND = np.array([0, 0, 0, 1, 0])
AXIS = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]], float)


@wp.struct
class Joint:
    kind: int
    parent: int
    axis: Vec


@wp.func
def transform_twist(t: Frame, x: Spatial):
    """A motion seen from the origin of another frame."""
    q = wp.transform_get_rotation(t)
    p = wp.transform_get_translation(t)
    w = wp.quat_rotate(q, wp.spatial_top(x))
    v = wp.quat_rotate(q, wp.spatial_bottom(x)) + wp.cross(p, w)
    return wp.spatial_vector(w, v)


@wp.func
def moved_by(joint: Joint, q: Real):
    """The frame of a body in that of its joint."""
    if joint.kind == PRISMATIC:
        return wp.transformation(joint.axis * q, wp.quat_identity(dtype=Real))
    return wp.transformation(Vec(), wp.quat_from_axis_angle(joint.axis, q))


@wp.func
def subspace(joint: Joint, frame: Frame):
    local = wp.spatial_vector(joint.axis, Vec())
    if joint.kind == PRISMATIC:
        local = wp.spatial_vector(Vec(), joint.axis)
    return transform_twist(frame, local)


@wp.func
def body_inertia(m: Real):
    """Of a rod along x with its end in the joint, about its centre, as 6 x 6."""
    I = Inertia()
    for k in range(3):
        I[k + 3, k + 3] = m
    I[0, 0] = Real(0.01) * m
    I[1, 1] = Real(0.04) * m
    I[2, 2] = Real(0.05) * m
    return I


@wp.func
def to_world(t: Frame, I: Inertia):
    """A spatial inertia seen from the origin: T^t I T, where T takes motions back into the frame."""
    back = wp.transform_inverse(t)
    R = wp.quat_to_matrix(wp.transform_get_rotation(back))
    S = wp.skew(wp.transform_get_translation(back)) * R
    T = wp.spatial_adjoint(R, S)
    return wp.mul(wp.mul(wp.transpose(T), I), T)


@wp.func
def middle():
    """Of a rod, in its frame."""
    return wp.transformation(Vec(Real(0.3), Real(0.0), Real(0.0)), wp.quat_identity(dtype=Real))


@wp.kernel
def kinematics(
    joints: wp.array(dtype=Joint),
    offset: wp.array(dtype=Vec),
    mass: wp.array(dtype=Real),
    q: wp.array(dtype=Real),
    qd: wp.array(dtype=Real),
    body_q: wp.array(dtype=Frame),
    body_S: wp.array(dtype=Spatial),
    body_v: wp.array(dtype=Spatial),
    body_a: wp.array(dtype=Spatial),
    body_I: wp.array(dtype=Inertia),
    body_f: wp.array(dtype=Spatial),
):
    """From the root outwards: frames, motions, the accelerations that come from turning, and what forces they need."""
    tree = wp.tid()
    for k in range(BODIES):
        i = tree * BODIES + k
        joint = joints[k]
        anchor = wp.transformation(offset[k], wp.quat_identity(dtype=Real))
        v = Spatial()
        a = wp.spatial_vector(Vec(), Vec(Real(0.0), Real(0.0), Real(9.81)))  # as if the ground rose
        if joint.parent >= 0:
            p = tree * BODIES + joint.parent
            anchor = wp.transform_multiply(body_q[p], anchor)
            v = body_v[p]
            a = body_a[p]
        S = subspace(joint, anchor)
        frame = wp.transform_multiply(anchor, moved_by(joint, q[i]))
        v = v + S * qd[i]
        a = a + wp.spatial_cross(v, S * qd[i])
        I = to_world(wp.transform_multiply(frame, middle()), body_inertia(mass[k]))
        body_q[i] = frame
        body_S[i] = S
        body_v[i] = v
        body_a[i] = a
        body_I[i] = I
        body_f[i] = I * a + wp.spatial_cross_dual(v, I * v)


@wp.kernel
def torques(
    joints: wp.array(dtype=Joint),
    body_S: wp.array(dtype=Spatial),
    body_f: wp.array(dtype=Spatial),
    q: wp.array(dtype=Real),
    qd: wp.array(dtype=Real),
    gain: wp.array(dtype=Real),
    total: wp.array(dtype=Spatial),
    tau: wp.array(dtype=Real),
):
    """From the leaves inwards: each joint bears what hangs on it; a motor pulls it back to 0."""
    tree = wp.tid()
    for n in range(BODIES):
        k = BODIES - 1 - n
        i = tree * BODIES + k
        wp.atomic_add(total, i, body_f[i])
        f = total[i]
        parent = joints[k].parent
        if parent >= 0:
            wp.atomic_add(total, tree * BODIES + parent, f)
        motor = -gain[0] * q[i] - gain[1] * qd[i]
        tau[i] = motor - wp.spatial_dot(body_S[i], f)


@wp.func
def carries(joints: wp.array(dtype=Joint), above: int, below: int):
    """Whether a body hangs on a joint."""
    k = below
    found = bool(False)  # noqa: UP018
    while k >= 0:
        if k == above:
            found = True
        k = joints[k].parent
    return found


@wp.kernel
def mass_matrix(
    joints: wp.array(dtype=Joint),
    body_S: wp.array(dtype=Spatial),
    body_I: wp.array(dtype=Inertia),
    H: wp.array3d(dtype=Real),
):
    """H = J^t I J, one entry of it for each thread; the motors have some inertia of their own."""
    tree, a, b = wp.tid()
    first = tree * BODIES
    h = Real(0.0)
    for k in range(BODIES):
        if carries(joints, a, k) and carries(joints, b, k):
            h += wp.spatial_dot(body_S[first + a], body_I[first + k] * body_S[first + b])
    if a == b:
        h += Real(0.02)
    H[tree, a, b] = h


@wp.kernel
def accelerate(
    H: wp.array3d(dtype=Real),
    tau: wp.array(dtype=Real),
    L: wp.array3d(dtype=Real),
    half: wp.array(dtype=Real),
    qdd: wp.array(dtype=Real),
):
    """Solve H qdd = tau by Cholesky's factor."""
    tree = wp.tid()
    first = tree * BODIES
    for j in range(BODIES):
        s = H[tree, j, j]
        for k in range(j):
            r = L[tree, j, k]
            s -= r * r
        s = wp.sqrt(s)
        L[tree, j, j] = s
        for i in range(j + 1, BODIES):
            t = H[tree, i, j]
            for k in range(j):
                t -= L[tree, i, k] * L[tree, j, k]
            L[tree, i, j] = t / s
    for i in range(BODIES):
        t = tau[first + i]
        for k in range(i):
            t -= L[tree, i, k] * half[first + k]
        half[first + i] = t / L[tree, i, i]
    for n in range(BODIES):
        i = BODIES - 1 - n
        t = half[first + i]
        for k in range(i + 1, BODIES):
            t -= L[tree, k, i] * qdd[first + k]
        qdd[first + i] = t / L[tree, i, i]


@wp.kernel
def integrate(
    q: wp.array(dtype=Real),
    qd: wp.array(dtype=Real),
    qdd: wp.array(dtype=Real),
    q_next: wp.array(dtype=Real),
    qd_next: wp.array(dtype=Real),
):
    i = wp.tid()
    faster = qd[i] + qdd[i] * Real(DT)
    q_next[i] = q[i] + faster * Real(DT)
    qd_next[i] = faster


@wp.kernel
def measure(body_q: wp.array(dtype=Frame), body_v: wp.array(dtype=Spatial), loss: wp.array(dtype=Real)):
    i = wp.tid()
    tip = wp.transform_point(body_q[i], Vec(Real(0.6), Real(0.0), Real(0.0)))
    speed = wp.spatial_bottom(body_v[i]) + wp.cross(wp.spatial_top(body_v[i]), tip)
    wp.atomic_add(loss, 0, wp.length_sq(tip - Vec(Real(0.5), Real(0.2), Real(0.1))) + Real(0.01) * wp.length_sq(speed))


class State:
    """What one step computes on its way."""

    def __init__(self):
        count = TREES * BODIES

        def new(shape, dtype=Real):
            return wp.zeros(shape, dtype=dtype, requires_grad=True)

        self.body_q = new(count, Frame)
        self.body_S, self.body_v, self.body_a, self.body_f, self.total = (new(count, Spatial) for _ in range(5))
        self.body_I = new(count, Inertia)
        self.tau, self.half, self.qdd, self.q, self.qd = (new(count) for _ in range(5))
        self.H, self.L = new((TREES, BODIES, BODIES)), new((TREES, BODIES, BODIES))


def bodies(joints, arrays, q, qd, s):
    wp.launch(
        kinematics,
        dim=TREES,
        inputs=[joints, arrays["offset"], arrays["mass"], q, qd],
        outputs=[s.body_q, s.body_S, s.body_v, s.body_a, s.body_I, s.body_f],
    )


def step(joints, arrays, q, qd):
    s = State()
    bodies(joints, arrays, q, qd, s)
    inputs = [joints, s.body_S, s.body_f, q, qd, arrays["gain"]]
    wp.launch(torques, dim=TREES, inputs=inputs, outputs=[s.total, s.tau])
    wp.launch(mass_matrix, dim=s.H.shape, inputs=[joints, s.body_S, s.body_I], outputs=[s.H])
    wp.launch(accelerate, dim=TREES, inputs=[s.H, s.tau], outputs=[s.L, s.half, s.qdd])
    wp.launch(integrate, dim=TREES * BODIES, inputs=[q, qd, s.qdd], outputs=[s.q, s.qd])
    return s.q, s.qd


def tree():
    made = []
    for kind, parent, axis in zip(KIND, PARENT, AXIS):
        joint = Joint()
        joint.kind, joint.parent, joint.axis = int(kind), int(parent), Vec(*axis)
        made.append(joint)
    return wp.array(made, dtype=Joint)


def simulate(values):
    arrays = {
        name: wp.array(a, dtype=Vec if name == "offset" else Real, requires_grad=True) for name, a in values.items()
    }
    joints, last = tree(), State()
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    q, qd = arrays["angle"], arrays["rate"]
    with wp.Tape() as tape:
        for _ in range(STEPS):
            q, qd = step(joints, arrays, q, qd)
        bodies(joints, arrays, q, qd, last)
        wp.launch(measure, dim=TREES * BODIES, inputs=[last.body_q, last.body_v], outputs=[loss])
    return tape, loss, arrays

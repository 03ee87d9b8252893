"""Two rigid bodies, hung from the world and from each other by soft ball joints; motions and forces are spatial."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(3, Real)
Mat = wp.types.matrix((3, 3), Real)
Quat = wp.types.quaternion(dtype=Real)
Frame = wp.types.transformation(dtype=Real)
Motion = wp.types.vector(6, Real)
BODIES, STEPS, DT = 2, 25, 4.0e-3
WARP_GRADIENT = "same"

rng = np.random.default_rng(8)
PARAMETERS = {
    "pose": np.array([[0.5, 0.05, 0.0, 0.0, 0.0, 0.0, 1.0], [1.5, 0.0, 0.1, 0.1, 0.2, 0.0, 0.97]]),
    "motion": 0.5 * rng.normal(size=(BODIES, 6)),
    "stiffness": np.array([900.0]),
    "inertia": np.array([[0.02, 0.08, 0.08], [0.03, 0.09, 0.07]]),
}


@wp.func
def half_length():
    return Real(0.5)


@wp.func
def at_end(pose: Frame, side: Real):
    return wp.transform_point(pose, Vec(side * half_length(), Real(0.0), Real(0.0)))


@wp.func
def wrench(pose: Frame, point: Vec, force: Vec):
    """(moment about the centre, force) of a force at a point."""
    arm = point - wp.transform_get_translation(pose)
    m = wp.cross(arm, force)
    return Motion(m[0], m[1], m[2], force[0], force[1], force[2])


@wp.func
def turning(m: Motion):
    return Vec(m[0], m[1], m[2])


@wp.func
def moving(m: Motion):
    return Vec(m[3], m[4], m[5])


@wp.kernel
def pull(
    pose: wp.array(dtype=Frame),
    motion: wp.array(dtype=Motion),
    stiffness: wp.array(dtype=Real),
    force: wp.array(dtype=Motion),
):
    """Joint j holds the near end of body j to the far end of the body before, or to the origin."""
    j = wp.tid()
    mine = at_end(pose[j], Real(-1.0))
    anchor = Vec(Real(0.0), Real(0.0), Real(0.0))
    drift = moving(motion[j]) + wp.cross(turning(motion[j]), mine - wp.transform_get_translation(pose[j]))
    if j > 0:
        anchor = at_end(pose[j - 1], Real(1.0))
        arm = anchor - wp.transform_get_translation(pose[j - 1])
        drift = drift - moving(motion[j - 1]) - wp.cross(turning(motion[j - 1]), arm)
    f = (anchor - mine) * stiffness[0] - drift * Real(4.0)
    wp.atomic_add(force, j, wrench(pose[j], mine, f))
    if j > 0:
        wp.atomic_sub(force, j - 1, wrench(pose[j - 1], anchor, f))


@wp.kernel
def integrate(
    pose: wp.array(dtype=Frame),
    motion: wp.array(dtype=Motion),
    force: wp.array(dtype=Motion),
    inertia: wp.array(dtype=Vec),
    pose_next: wp.array(dtype=Frame),
    motion_next: wp.array(dtype=Motion),
):
    i = wp.tid()
    x = wp.transform_get_translation(pose[i])
    q = wp.transform_get_rotation(pose[i])
    w = turning(motion[i])
    v = moving(motion[i])
    R = wp.quat_to_matrix(q)
    I = R * wp.diag(inertia[i]) * wp.transpose(R)
    gyro = wp.cross(w, I * w)
    w_new = w + wp.inverse(I) * (turning(force[i]) - gyro) * Real(DT)
    v_new = v + (moving(force[i]) + Vec(Real(0.0), Real(-9.81), Real(0.0))) * Real(DT)
    spin = Quat(w_new[0], w_new[1], w_new[2], Real(0.0))
    q_new = wp.normalize(q + spin * q * Real(0.5 * DT))
    pose_next[i] = wp.transformation(x + v_new * Real(DT), q_new)
    motion_next[i] = Motion(w_new[0], w_new[1], w_new[2], v_new[0], v_new[1], v_new[2])


@wp.kernel
def measure(pose: wp.array(dtype=Frame), motion: wp.array(dtype=Motion), loss: wp.array(dtype=Real)):
    i = wp.tid()
    tip = at_end(pose[i], Real(1.0))
    wp.atomic_add(loss, 0, wp.dot(tip, tip) + Real(0.1) * wp.dot(motion[i], motion[i]))


def simulate(values):
    types = {"pose": Frame, "motion": Motion, "inertia": Vec}
    arrays = {name: wp.array(a, dtype=types.get(name, Real), requires_grad=True) for name, a in values.items()}
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    pose, motion = arrays["pose"], arrays["motion"]
    with wp.Tape() as tape:
        for _ in range(STEPS):
            force, motion_next = (wp.zeros(BODIES, dtype=Motion, requires_grad=True) for _ in range(2))
            pose_next = wp.zeros(BODIES, dtype=Frame, requires_grad=True)
            wp.launch(pull, dim=BODIES, inputs=[pose, motion, arrays["stiffness"]], outputs=[force])
            inputs = [pose, motion, force, arrays["inertia"]]
            wp.launch(integrate, dim=BODIES, inputs=inputs, outputs=[pose_next, motion_next])
            pose, motion = pose_next, motion_next
        wp.launch(measure, dim=BODIES, inputs=[pose, motion], outputs=[loss])
    return tape, loss, arrays

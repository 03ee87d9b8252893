"""An arm of four joints reaches for a point: kinematics by transforms, damped least squares, joints with limits."""

import numpy as np
import warp as wp

Real = wp.float32
Vec = wp.types.vector(3, Real)
Mat = wp.types.matrix((3, 3), Real)
Frame = wp.types.transformation(dtype=Real)
Quat = wp.types.quaternion(dtype=Real)
JOINTS, STEPS, RATE = 4, 6, 0.15
WARP_GRADIENT = "wrong"  # the frame that the loop over joints carries loses its derivative there

PARAMETERS = {
    "angle": np.array([0.3, -0.4, 0.5, 0.2]),
    "length": np.array([0.5, 0.4, 0.3, 0.2]),
    "target": np.array([[0.6, 0.5, 0.3]]),
    "limit": np.array([2.0, 1.5, 1.2, 1.0]),
    "damping": np.array([0.3]),
}


@wp.func
def axis_of(j: int):
    """Joints turn about z and y in turn."""
    a = Vec(Real(0.0), Real(0.0), Real(1.0))
    if j % 2 == 1:
        a = Vec(Real(0.0), Real(1.0), Real(0.0))
    return a


@wp.func
def joint(angle: Real, length: Real, axis: Vec):
    turn = wp.transformation(Vec(Real(0.0), Real(0.0), Real(0.0)), wp.quat_from_axis_angle(axis, angle))
    along = wp.transformation(Vec(length, Real(0.0), Real(0.0)), wp.quat_identity(Real))
    return wp.transform_multiply(turn, along)


@wp.kernel
def reach(
    angle: wp.array(dtype=Real), length: wp.array(dtype=Real), tip: wp.array(dtype=Frame), bones: wp.array(dtype=Vec)
):
    frame = wp.transformation(Vec(Real(0.0), Real(0.0), Real(0.0)), wp.quat_identity(Real))
    for j in range(angle.shape[0]):
        frame = wp.transform_multiply(frame, joint(angle[j], length[j], axis_of(j)))
        bones[j] = wp.transform_get_translation(frame)
    tip[0] = frame


@wp.kernel
def miss(
    tip: wp.array(dtype=Frame), bones: wp.array(dtype=Vec), target: wp.array(dtype=Vec), loss: wp.array(dtype=Real)
):
    d = wp.transform_get_translation(tip[0]) - target[0]
    heading = wp.quat_rotate(wp.transform_get_rotation(tip[0]), Vec(Real(1.0), Real(0.0), Real(0.0)))
    lift = bones[1][2]
    loss[0] = wp.dot(d, d) + Real(0.05) * heading[0] + Real(0.1) * lift * lift


@wp.func
def lever(bones: wp.array(dtype=Vec), j: int):
    """How the tip moves when joint j turns: a column of the Jacobian."""
    last = bones.shape[0] - 1
    base = Vec(Real(0.0), Real(0.0), Real(0.0))
    if j > 0:
        base = bones[j - 1]
    return wp.cross(axis_of(j), bones[last] - base)


@wp.kernel
def gram(bones: wp.array(dtype=Vec), out: wp.array(dtype=Mat)):
    """J J^t, the sum over all joints."""
    j = wp.tid()
    column = lever(bones, j)
    wp.atomic_add(out, 0, wp.outer(column, column))


@wp.kernel
def follow(
    angle: wp.array(dtype=Real),
    bones: wp.array(dtype=Vec),
    target: wp.array(dtype=Vec),
    system: wp.array(dtype=Mat),
    damping: wp.array(dtype=Real),
    out: wp.array(dtype=Real),
):
    """One step of damped least squares: J^t (J J^t + damping^2)^-1 times the error at the tip."""
    j = wp.tid()
    error = target[0] - bones[bones.shape[0] - 1]
    damped = system[0] + wp.identity(n=3, dtype=Real) * (damping[0] * damping[0])
    out[j] = angle[j] + Real(RATE) * wp.dot(lever(bones, j), wp.inverse(damped) * error)


@wp.kernel
def stay(angle: wp.array(dtype=Real), limit: wp.array(dtype=Real), out: wp.array(dtype=Real)):
    """No joint turns beyond its limit, which it meets smoothly."""
    j = wp.tid()
    out[j] = limit[j] * wp.tanh(angle[j] / limit[j])


def simulate(values):
    types = {"target": Vec}
    arrays = {name: wp.array(a, dtype=types.get(name, Real), requires_grad=True) for name, a in values.items()}
    loss = wp.zeros(1, dtype=Real, requires_grad=True)
    angle = arrays["angle"]
    with wp.Tape() as tape:
        for step in range(STEPS):
            tip = wp.zeros(1, dtype=Frame, requires_grad=True)
            bones = wp.zeros(JOINTS, dtype=Vec, requires_grad=True)
            wp.launch(reach, dim=1, inputs=[angle, arrays["length"]], outputs=[tip, bones])
            if step < STEPS - 1:
                better, held = (wp.zeros(JOINTS, dtype=Real, requires_grad=True) for _ in range(2))
                system = wp.zeros(1, dtype=Mat, requires_grad=True)
                wp.launch(gram, dim=JOINTS, inputs=[bones], outputs=[system])
                inputs = [angle, bones, arrays["target"], system, arrays["damping"]]
                wp.launch(follow, dim=JOINTS, inputs=inputs, outputs=[better])
                wp.launch(stay, dim=JOINTS, inputs=[better, arrays["limit"]], outputs=[held])
                angle = held
        wp.launch(miss, dim=1, inputs=[tip, bones, arrays["target"]], outputs=[loss])
    return tape, loss, arrays

"""Small MuJoCo models, states for them, and two independent truths for the Jacobians of one step.

`truth` is MuJoCo's own `mjd_transitionFD`: central differences in float64 of the C engine. `differences` steps MuJoCo
Warp itself, in float32, to both sides of each coordinate. Tangent coordinates are used throughout: a free or ball joint
has a quaternion in `qpos`, and one column or row for each of its velocities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

OPTION = '<option timestep="0.01" iterations="{iterations}" ls_iterations="50" tolerance="0" {more}/>'


@dataclass(frozen=True)
class Model:
    """A model, where it starts, how fast and what its motors ask for."""

    xml: str
    qpos: tuple[float, ...] = ()  # at the start; the model's own where empty
    qvel: tuple[float, ...] = ()
    ctrl: tuple[float, ...] = ()


PENDULUM = """
<mujoco model="double pendulum">
  {option}
  <worldbody>
    <body pos="0 0 2">
      <joint name="shoulder" type="hinge" axis="0 1 0" damping="0.05"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03" mass="1" contype="0" conaffinity="0"/>
      <body pos="0 0 -0.5">
        <joint name="elbow" type="hinge" axis="0 1 0" damping="0.05"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.03" mass="0.7" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="elbow" gear="2"/></actuator>
</mujoco>
"""

CARTPOLE = """
<mujoco model="cartpole">
  {option}
  <worldbody>
    <body pos="0 0 1">
      <joint name="rail" type="slide" axis="1 0 0" damping="0.1"/>
      <geom type="box" size="0.1 0.08 0.05" mass="1" contype="0" conaffinity="0"/>
      <body>
        <joint name="hinge" type="hinge" axis="0 1 0" damping="0.01"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.02" mass="0.2" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="rail" gear="10"/></actuator>
</mujoco>
"""

HOPPER = """
<mujoco model="hopper">
  {option}
  <default>
    <geom type="capsule" friction="0.9" condim="3"/>
    <joint type="hinge" axis="0 -1 0" damping="0.3" armature="0.02"/>
  </default>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 1" conaffinity="1" contype="0"/>
    <body name="torso" pos="0 0 1.15">
      <joint name="x" type="slide" axis="1 0 0" damping="0" armature="0"/>
      <joint name="z" type="slide" axis="0 0 1" damping="0" armature="0"/>
      <joint name="pitch" axis="0 1 0" damping="0" armature="0"/>
      <geom fromto="0 0 0.2 0 0 -0.2" size="0.05" contype="0" conaffinity="0"/>
      <body pos="0 0 -0.2">
        <joint name="hip"/>
        <geom fromto="0 0 0 0 0 -0.45" size="0.05" contype="0" conaffinity="0"/>
        <body pos="0 0 -0.45">
          <joint name="knee"/>
          <geom fromto="0 0 0 0 0 -0.45" size="0.04" contype="0" conaffinity="0"/>
          <body pos="0 0 -0.45">
            <joint name="ankle"/>
            <geom name="foot" fromto="-0.1 0 0 0.2 0 0" size="0.05" contype="1" conaffinity="0"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="hip" gear="50"/><motor joint="knee" gear="50"/><motor joint="ankle" gear="20"/></actuator>
</mujoco>
"""

BOX = """
<mujoco model="box">
  {option}
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.15 0.12 0.1" mass="1" friction="0.6"/></body>
  </worldbody>
</mujoco>
"""

BALL = """
<mujoco model="ball">
  {option}
  <worldbody>
    <body pos="0 0 1"><freejoint/>
      <geom type="ellipsoid" size="0.1 0.15 0.2" mass="0.8" contype="0" conaffinity="0"/></body>
  </worldbody>
</mujoco>
"""

BALL_JOINTS = """
<mujoco model="ball joints">
  {option}
  <default><geom type="capsule" size="0.03" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body pos="0 0 2"><joint name="upper" type="ball" damping="0.1"/><geom fromto="0 0 0 0 0.1 -0.5"/>
      <body pos="0 0.1 -0.5"><joint name="lower" type="ball" damping="0.05" stiffness="2"/>
        <geom fromto="0 0 0 0.1 0 -0.4"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="upper" gear="1 0.5 0"/></actuator>
</mujoco>
"""

STACK = """
<mujoco model="two bodies">
  {option}
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="sphere" size="0.1" mass="0.5" friction="0.7"/></body>
    <body pos="0.03 0.02 0.29"><freejoint/>
      <geom type="{kind}" size="{size}" mass="0.3" friction="0.7"/></body>
  </worldbody>
</mujoco>
"""

TETRAHEDRON = """
<mujoco model="mesh">
  {option}
  <asset><mesh name="wedge" vertex="-0.1 -0.1 -0.1  0.2 0 -0.1  0 0.2 -0.1  0 0 0.2"/></asset>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="mesh" mesh="wedge" mass="0.5" friction="0.7"/></body>
  </worldbody>
</mujoco>
"""

ROD = """
<body pos="{at}"><joint name="{name}" axis="0 1 0" damping="0.02" {joint}/>
  <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" mass="0.6" contype="0" conaffinity="0"/>
  <site name="{name} tip" pos="0.25 0 0.02"/>{inner}</body>
"""

CHAIN = """
<mujoco model="chain">
  {{option}}
  <worldbody><site name="anchor" pos="0.1 0 1.4"/>{rods}</worldbody>
  {more}
</mujoco>
"""

MOTOR = '<actuator><motor joint="second" gear="1.5"/></actuator>'
TENDONS = """
<tendon>
  <fixed name="both" stiffness="3" damping="0.2">
    <joint joint="first" coef="0.6"/><joint joint="second" coef="-0.4"/>
  </fixed>
  <spatial name="rope" stiffness="20" damping="0.5" springlength="0.2">
    <site site="anchor"/><site site="first tip"/>
  </spatial>
</tendon>
<actuator><motor tendon="both" gear="2"/><position joint="second" kp="8" kv="0.3"/></actuator>
"""
DYNAMICS = """
<actuator>
  <general joint="first" dyntype="filter" dynprm="0.05" gainprm="2" biastype="affine" biasprm="0.1 -1 -0.2"/>
  <general joint="second" dyntype="integrator" gainprm="1.5"/>
</actuator>
"""
WELD = '<equality><joint joint1="first" joint2="second" polycoef="0.1 0.8 0.2 0 0"/></equality>' + MOTOR
HUNG = '<equality><connect site1="anchor" site2="first tip"/></equality>' + MOTOR


def _chain(more: str = MOTOR, first: str = "", second: str = "") -> str:
    """Two rods in a row, level at rest: attributes of their hinges, and what holds and moves them."""
    inner = ROD.format(at="0.3 0 0", name="second", joint=second, inner="")
    return CHAIN.format(rods=ROD.format(at="0 0 1.2", name="first", joint=first, inner=inner), more=more)


def _limb(name: str, at: str, joints: str, shape: str, inner: str = "") -> str:
    """One body of the humanoid: where it hangs, its hinges by their axes, its capsule, the bodies on it."""
    axes = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}
    hinges = "".join(f'<joint name="{name} {axis}" axis="{axes[axis]}"/>' for axis in joints)
    return f'<body name="{name}" pos="{at}">{hinges}<geom fromto="{shape}"/>{inner}</body>'


def _humanoid() -> str:
    sides = ""
    for side, y in (("left", 0.1), ("right", -0.1)):
        shin = _limb(f"{side} shin", "0 0 -0.4", "y", "0 0 0 0 0 -0.4")
        sides += _limb(f"{side} thigh", f"0 {y} -0.1", "xy", "0 0 0 0 0 -0.38", shin)
        forearm = _limb(f"{side} forearm", "0 0 -0.28", "y", "0 0 0 0 0 -0.25")
        sides += _limb(f"{side} arm", f"0 {2 * y} 0.35", "xy", "0 0 0 0 0 -0.26", forearm)
    head = _limb("head", "0 0 0.45", "yz", "0 0 0 0 0 0.15")
    motors = "".join(
        f'<motor joint="{side} {part}" gear="20"/>'
        for side in ("left", "right")
        for part in ("thigh y", "shin y", "arm y")
    )
    return f"""
<mujoco model="humanoid">
  {{option}}
  <default><geom type="capsule" size="0.05" contype="0" conaffinity="0"/>
    <joint type="hinge" damping="0.5" armature="0.01"/></default>
  <worldbody>
    <body name="trunk" pos="0 0 1.3"><freejoint/><geom fromto="0 0 -0.1 0 0 0.4" size="0.09"/>{sides}{head}</body>
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>
"""


def _spread(n: int, size: float, start: int = 1) -> tuple[float, ...]:
    """n numbers of one size without a pattern, the same each time."""
    return tuple(np.round(size * np.sin(1.7 * np.arange(start, start + n)), 4).tolist())


def models() -> dict[str, Model]:
    """The models by name."""
    high = (0.1, 0.6, 0.2, -0.4, 0.7, -0.3)
    low = (0.0, -0.06, 0.055, -0.35, 0.7, -0.3)
    bent = (0.1, 0.2, 0.0)
    lying = (0.0, 0.0, 0.099, 1.0, 0.001, 0.0015, 0.2)
    trunk = (0.0, 0.0, 1.3, 0.9, 0.2, -0.3, 0.25)

    def air(xml: str, *state: tuple[float, ...]) -> Model:
        return Model(xml.format(option=OPTION.format(iterations=8, more="")), *state)

    made = {
        "double pendulum": air(PENDULUM, (0.7, -1.1), (0.5, 1.3), (0.4,)),
        "cartpole": air(CARTPOLE, (0.2, 0.5), (-0.3, 0.8), (0.6,)),
        "hopper in the air": air(HOPPER, high, _spread(6, 0.8), (0.3, -0.2, 0.1)),
        "humanoid": air(_humanoid(), trunk + _spread(14, 0.5), _spread(20, 0.7), _spread(6, 0.4)),
    }
    swing, fast = (0.4, -0.7), (0.6, -0.9)
    turned = (0.8, 0.3, -0.4, 0.33, 0.9, -0.1, 0.2, 0.35)
    made |= {
        "ball in the air": air(BALL, (0.1, 0.0, 1.0, 0.7, 0.3, -0.5, 0.4), (0.3, -0.2, 0.5, 2.0, -1.0, 3.0)),
        "ball joints": air(BALL_JOINTS, turned, (0.5, -0.4, 0.8, -0.3, 1.1, 0.6), (0.4,)),
        "tendons": air(_chain(TENDONS), swing, fast, (0.3, 0.2)),
        "actuator dynamics": air(_chain(DYNAMICS), swing, fast, (0.3, -0.6)),
        "limits": air(
            _chain(MOTOR, 'range="-40 20" limited="true"', 'range="-30 60" limited="true"'), swing, fast, (0.4,)
        ),
        "friction loss": air(_chain(MOTOR, 'frictionloss="0.05"', 'frictionloss="6"'), swing, fast, (0.4,)),
        "joint equality": air(_chain(WELD), swing, fast, (0.4,)),
        "connect": air(_chain(HUNG), swing, fast, (0.4,)),
    }
    for more in ('integrator="implicitfast"', 'integrator="RK4"', 'solver="CG"'):
        word = more.split('"')[1]
        option = OPTION.format(iterations=30, more=more)
        made[f"chain, {word}"] = Model(
            _chain(MOTOR, 'range="-40 20" limited="true"').format(option=option), swing, fast, (0.4,)
        )
    for cone in ("pyramidal", "elliptic"):
        option = OPTION.format(iterations=30, more=f'cone="{cone}"')
        made[f"box on the ground, {cone}"] = Model(BOX.format(option=option), lying, (0.6, 0.2, -0.05, 0.1, 0.0, 0.4))
        made[f"hopper on the ground, {cone}"] = Model(HOPPER.format(option=option), low, (0.3, -0.1, *[0.0] * 4), bent)
        made |= _touching(cone, option)
    return made


def _touching(cone: str, option: str) -> dict[str, Model]:
    """Bodies that touch each other while both move, and a mesh on the ground."""
    below = (0.0, 0.0, 0.098, 1.0, 0.02, -0.01, 0.03)
    above, higher = ((0.03, 0.02, z, 0.9, 0.2, 0.3, -0.1) for z in (0.281, 0.328))
    speeds = _spread(12, 0.4)
    return {
        f"two spheres, {cone}": Model(_two("sphere", "0.09", option), below + above, speeds),
        f"sphere and capsule, {cone}": Model(_two("capsule", "0.08 0.1", option), below + higher, speeds),
        f"mesh on the ground, {cone}": Model(
            TETRAHEDRON.format(option=option), (0.0, 0.0, 0.0985, 1.0, 0.002, 0.003, 0.2), _spread(6, 0.3)
        ),
    }


def _two(kind: str, size: str, option: str) -> str:
    return STACK.format(kind=kind, size=size, option=option)


# ---- the truth in float64


@dataclass
class Jacobian:
    """Of the state after a step, `(qpos, qvel)`, by what it started from: A by `(qpos, qvel)`, B by `ctrl`."""

    A: np.ndarray  # (2 nv, 2 nv)
    B: np.ndarray  # (2 nv, nu)


def start(model: Model) -> tuple[Any, Any]:
    """MuJoCo's own model and data at the state that the step starts from."""
    import mujoco

    made = mujoco.MjModel.from_xml_string(model.xml)
    data = mujoco.MjData(made)
    for name in ("qpos", "qvel", "ctrl"):
        if given := getattr(model, name):
            getattr(data, name)[:] = given
    mujoco.mj_normalizeQuat(made, data.qpos)
    return made, data


def truth(made: Any, data: Any, step: float = 1e-6) -> Jacobian:
    """MuJoCo's own `mjd_transitionFD` at this state, with central differences. Rows and columns of
    what its actuators remember are left out. It does not know RK4: there the differences are ours, of its steps."""
    import mujoco

    if made.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        return by_differences(made, data, lambda *state: stepped(made, *state), step)
    n = 2 * made.nv + made.na
    A, B = np.zeros((n, n)), np.zeros((n, made.nu))
    mujoco.mjd_transitionFD(made, data, step, True, A, B if made.nu else None, None, None)
    return Jacobian(A[: 2 * made.nv, : 2 * made.nv], B[: 2 * made.nv])


def stepped(made: Any, qpos: Any, qvel: Any, ctrl: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where a step of MuJoCo itself leads."""
    import mujoco

    data = mujoco.MjData(made)
    data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, ctrl
    mujoco.mj_step(made, data)
    return data.qpos.copy(), data.qvel.copy()


def moved(made: Any, qpos: np.ndarray, by: np.ndarray) -> np.ndarray:
    """`qpos` moved along a velocity for a unit of time."""
    import mujoco

    out = np.array(qpos, np.float64)
    mujoco.mj_integratePos(made, out, by, 1.0)
    return out


def between(made: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The velocity that leads from a to b in a unit of time."""
    import mujoco

    out = np.zeros(made.nv)
    mujoco.mj_differentiatePos(made, out, 1.0, np.array(a, np.float64), np.array(b, np.float64))
    return out


def by_differences(made: Any, data: Any, step: Callable[..., tuple[np.ndarray, np.ndarray]], size: float) -> Jacobian:
    """Central differences of `step(qpos, qvel, ctrl) -> (qpos, qvel)` in tangent coordinates."""
    nv, columns = made.nv, []
    for k in range(2 * nv + made.nu):
        ends = []
        for sign in (size, -size):
            qpos, qvel, ctrl = (np.array(x, np.float64) for x in (data.qpos, data.qvel, data.ctrl))
            if k < nv:
                qpos = moved(made, qpos, sign * np.eye(nv)[k])
            elif k < 2 * nv:
                qvel[k - nv] += sign
            else:
                ctrl[k - 2 * nv] += sign
            ends.append(step(qpos, qvel, ctrl))
        (up, up_v), (down, down_v) = ends
        columns.append(np.concatenate([between(made, down, up), up_v - down_v]) / (2 * size))
    whole = np.stack(columns, axis=1)
    return Jacobian(whole[:, : 2 * nv], whole[:, 2 * nv :])


def position_tangent(made: Any, qpos: np.ndarray) -> np.ndarray:
    """The derivative of `qpos` by the velocities that move it, (nq, nv), at zero velocity."""
    step = 1e-6
    columns = [(moved(made, qpos, step * row) - moved(made, qpos, -step * row)) / (2 * step) for row in np.eye(made.nv)]
    return np.stack(columns, axis=1)

"""More small MuJoCo models: robots on the ground, fluids, muscles, wrapped tendons, welds, many joints, cloth."""

from __future__ import annotations

from mujoco_models import OPTION, Model, _spread

IN_AIR = 'contype="0" conaffinity="0"'
GROUND = '<geom type="plane" size="0 0 1" conaffinity="1"/>'
SWIMS = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint type="hinge" axis="0 0 1"/>'


def _model(xml: str, qpos: tuple[float, ...], speeds: int, ctrl: tuple[float, ...] = (), more: str = "") -> Model:
    option = OPTION.format(iterations=30, more=more)
    return Model(f"<mujoco>{option}{xml}</mujoco>", qpos, _spread(speeds, 0.3), ctrl)


def _motors(names: list[str], gear: float) -> str:
    motors = [f'<motor joint="{name}" gear="{gear}"/>' for name in names]
    return f"<actuator>{''.join(motors)}</actuator>"


def _swimmer() -> str:
    inner = ""
    for k in (3, 2, 1):
        shape = f'<geom type="capsule" fromto="0 0 0 -0.1 0 0" size="0.02" {IN_AIR}/>'
        inner = f'<body pos="-0.1 0 0"><joint name="j{k}" axis="0 0 1" armature="0.001"/>{shape}{inner}</body>'
    nose = f'<geom type="capsule" fromto="0 0 0 -0.1 0 0" size="0.02" {IN_AIR}/>'
    return f"<worldbody><body>{SWIMS}{nose}{inner}</body></worldbody>" + _motors(["j1", "j2", "j3"], 0.01)


def _ant() -> str:
    legs, names = "", []
    for k, (x, y) in enumerate(((1, 1), (-1, 1), (-1, -1), (1, -1))):
        shin = f'<joint name="ankle{k}" axis="{-y} {x} 0"/><geom fromto="0 0 0 {0.3 * x} {0.3 * y} -0.35"/>'
        thigh = f'<joint name="hip{k}" axis="0 0 1"/><geom fromto="0 0 0 {0.2 * x} {0.2 * y} 0"/>'
        at = f"{0.2 * x} {0.2 * y} 0"
        legs += f'<body pos="{at}">{thigh}<body pos="{at}">{shin}</body></body>'
        names += [f"hip{k}", f"ankle{k}"]
    looks = 'type="capsule" size="0.08" density="5" friction="1" margin="0.01" conaffinity="0"'
    return f"""<default><joint armature="1" damping="1"/><geom {looks}/></default>
<worldbody>{GROUND}<body><freejoint/><geom type="sphere" size="0.25"/>{legs}</body></worldbody>""" + _motors(names, 15)


def _chain(n: int) -> str:
    """Links on hinges, every other one level; the third has a limit, the eighth friction."""
    inner, own = "", {2: 'limited="true" range="-5 5"', 7: 'frictionloss="0.2"'}
    for k in reversed(range(n)):
        axis, at = ("0 1 0", "0 0 1")[k % 2], "0.1 0 0" if k else "0 0 3"
        joint = f'<joint name="j{k}" axis="{axis}" damping="0.05" armature="0.02" {own.get(k, "")}/>'
        shape = f'<geom type="capsule" fromto="0 0 0 0.1 0 0" size="0.02" {IN_AIR}/>'
        inner = f'<body pos="{at}">{joint}{shape}{inner}</body>'
    return f'<compiler angle="degree"/><worldbody>{inner}</worldbody>' + _motors(["j3"], 1)


def _balls(n: int) -> tuple[str, tuple[float, ...]]:
    """Balls on the ground, and where they lie: none is as deep as another."""
    ball = '<body><freejoint/><geom type="sphere" size="0.1" friction="0.6"/></body>'
    places = [(0.25 * (k % 3), 0.25 * (k // 3), 0.0982 + 9e-5 * k, 1.0, 0.1, 0.02 * k, -0.1) for k in range(n)]
    return f'<worldbody><geom type="plane" size="0 0 1"/>{ball * n}</worldbody>', sum(places, ())


CLOTH = """
<worldbody><flexcomp name="cloth" type="grid" count="3 3 1" spacing="0.1 0.1 0.1" pos="0 0 1" dim="2" radius="0.02"
  mass="0.5"><contact selfcollide="none"/><pin id="0 1"/>
  <elasticity young="1e3" poisson="0.2" thickness="1e-2" damping="0.01" elastic2d="both"/></flexcomp></worldbody>
"""
ARM = f"""
<worldbody>
  <site name="top" pos="-0.1 0.02 1.2"/>
  <geom name="pulley" type="{{kind}}" size="0.06 0.1" pos="0 0.01 1" euler="90 0 0" {IN_AIR}/>
  <body pos="0 0 1"><joint name="first" axis="0 1 0" damping="0.1"/>
    <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02" mass="0.6" {IN_AIR}/><site name="middle" pos="0.15 0 -0.1"/>
    <body pos="0.3 0 0"><joint name="second" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02" mass="0.6" {IN_AIR}/><site name="tip" pos="0.2 0 0.04"/>
      <geom name="elbow" type="{{kind}}" size="0.05 0.1" euler="90 0 0" mass="0.1" {IN_AIR}/>
    </body>
  </body>
</worldbody>
"""
ROPE = """
<tendon><spatial name="rope" stiffness="20" damping="0.5" springlength="0.3"><site site="top"/><geom geom="pulley"/>
  <site site="middle"/><geom geom="elbow"/><site site="tip"/></spatial></tendon>
<actuator><motor tendon="rope" gear="2"/></actuator>
"""
MUSCLES = """
<actuator><muscle joint="first" ctrllimited="true" ctrlrange="0 1" lengthrange="-2 2" force="20"/>
  <muscle joint="second" ctrllimited="true" ctrlrange="0 1" lengthrange="-1.5 1.5" tausmooth="0.2"/></actuator>
"""


def more_models() -> dict[str, Model]:
    """The models by name."""
    lying = (0.0, 0.0, 0.425, 1.0, 0.01, -0.02, 0.1)
    bent = (0.4, 0.5)
    balls, places = _balls(6)
    fluid = 'density="1000" viscosity="0.1"'
    return {
        "swimmer in a fluid": _model(_swimmer(), _spread(6, 0.5), 6, (0.5, -0.3, 0.2), fluid),
        "ant on the ground": _model(_ant(), lying + _spread(8, 0.05), 14, _spread(8, 0.4)),
        "wrapping spheres": _model(ARM.format(kind="sphere") + ROPE, bent, 2, (0.2,)),
        "wrapping cylinders": _model(ARM.format(kind="cylinder") + ROPE, bent, 2, (0.2,)),
        "muscles": _model(ARM.format(kind="sphere") + MUSCLES, bent, 2, (0.6, 0.2)),
        "20 links": _model(_chain(20), _spread(20, 0.15), 20, (0.3,)),
        "40 links, sparse": _model(_chain(40), _spread(40, 0.15), 40, (0.3,), 'jacobian="sparse"'),
        "100 links, sparse": _model(_chain(100), _spread(100, 0.15), 100, (0.3,), 'jacobian="sparse"'),
        "six balls, sparse": _model(balls, places, 36, (), 'jacobian="sparse"'),
        "cloth at rest": _model(CLOTH, (), 21),
    }

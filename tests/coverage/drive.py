"""Kernels that functions make when they are called: small models are stepped, with every launch left out.

Only what the hosts do runs: it makes the kernels, whose code nobody compiles. What a model asks back is zero.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import MagicMock

import warp

from .gather import PACKAGES, Gathered, limited, noted

SECONDS = 60  # for each of the models


def drive(name: str, known: list[Any]) -> Gathered:
    """What the models of a package make beside the `known` kernels; `failed` tells which of them stopped, and why."""
    package = PACKAGES[name]
    with noted(package) as found, muted(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for label, model in MODELS[name]().items() if name in MODELS else ():
            try:
                with limited(SECONDS):
                    model()
            except BaseException as error:  # noqa: BLE001  what was made until then counts
                found.failed[label] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    made = {_variant(k): k for k in found.kernels if "<locals>" in k.func.__qualname__}
    for kernel in known:
        made.pop(_variant(kernel), None)
    found.kernels = list(made.values())
    return found


def _variant(kernel: Any) -> tuple[Any, str]:
    """What tells kernels of one function apart: the plain values that they close over."""
    cells = [c.cell_contents for c in kernel.func.__closure__ or ()]
    plain = int | float | str | bool | tuple | type | None
    return kernel.func.__code__, repr([x if isinstance(x, plain) else type(x) for x in cells])


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Within it nothing is launched, and the body of a loop on the device runs once."""

    def once(condition: Any, while_body: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if callable(while_body):
            while_body(**kwargs)

    def either(condition: Any, on_true: Any = None, on_false: Any = None, **kwargs: Any) -> None:
        for body in (on_true, on_false):
            if callable(body):
                body(**kwargs)

    quiet = {
        "launch": MagicMock(),
        "launch_tiled": MagicMock(),
        "capture_while": once,
        "capture_if": either,
        "load_module": MagicMock(),
        "force_load": MagicMock(),
    }
    before = {name: getattr(warp, name) for name in quiet}
    try:
        for name, thing in quiet.items():
            setattr(warp, name, thing)
        yield
    finally:
        for name, thing in before.items():
            setattr(warp, name, thing)


# ---- MuJoCo Warp

SCENE = """
<mujoco>
  <option integrator="{integrator}" solver="{solver}" cone="{cone}" jacobian="{jacobian}"/>
  <asset>
    <mesh name="tetra" vertex="0 0 0  1 0 0  0 1 0  0 0 1" scale="0.2 0.2 0.2"/>
    <hfield name="ground" nrow="3" ncol="3" size="1 1 0.2 0.1"/>
  </asset>
  <worldbody>
    <geom type="plane" size="5 5 0.1"/>
    <geom type="hfield" hfield="ground" pos="3 0 0"/>
    <light pos="0 0 3"/>
    <camera name="eye" pos="0 -2 1"/>
    <body name="a" pos="0 0 1"><freejoint/><geom type="box" size="0.1 0.1 0.1"/><site name="s"/></body>
    <body pos="1 0 1"><freejoint/><geom type="mesh" mesh="tetra"/></body>
    <body pos="0 1 1">
      <joint name="h" type="hinge" axis="0 1 0" range="-1 1" limited="true" frictionloss="0.1" stiffness="1"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0.3 0 0"/><site name="t" pos="0.1 0 0"/>
      <body pos="0.3 0 0"><joint name="b" type="ball"/><geom type="ellipsoid" size="0.1 0.05 0.05"/>
        <body pos="0.2 0 0"><joint name="l" type="slide"/><geom type="cylinder" size="0.05 0.05"/></body></body>
    </body>
    <body pos="0 2 1"><freejoint/><geom type="sphere" size="0.1"/></body>
  </worldbody>
  <tendon><spatial name="rope" limited="true" range="0 2"><site site="s"/><site site="t"/></spatial>
    <fixed name="sum"><joint joint="h" coef="1"/><joint joint="l" coef="-1"/></fixed></tendon>
  <equality><connect body1="a" body2="world" anchor="0 0 1"/><weld body1="a" body2="world"/>
    <joint joint1="h" joint2="l"/><tendon tendon1="rope"/></equality>
  <actuator><motor joint="h"/><position joint="l" kp="1"/><velocity joint="h"/><general tendon="rope"/></actuator>
  <sensor><accelerometer site="s"/><gyro site="s"/><jointpos joint="h"/><touch site="s"/><rangefinder site="s"/>
    <framepos objtype="body" objname="a"/><subtreecom body="a"/><force site="t"/><torque site="t"/></sensor>
</mujoco>
"""


def _mujoco() -> dict[str, Callable[[], Any]]:
    import mujoco  # pyright: ignore[reportMissingImports]
    import mujoco_warp  # pyright: ignore[reportMissingImports]

    def step(**options: str) -> None:
        model = mujoco.MjModel.from_xml_string(SCENE.format(**options))
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        m, d = mujoco_warp.put_model(model), mujoco_warp.put_data(model, data, nworld=2)
        for run in (mujoco_warp.step, mujoco_warp.forward, mujoco_warp.inverse):
            with contextlib.suppress(NotImplementedError):
                run(m, d)

    forms = [
        dict(integrator=i, solver=s, cone=c, jacobian=j)
        for i, s, c, j in (
            ("Euler", "Newton", "pyramidal", "dense"),
            ("RK4", "CG", "elliptic", "dense"),
            ("implicitfast", "Newton", "elliptic", "sparse"),
            ("Euler", "CG", "pyramidal", "sparse"),
        )
    ]
    return {" ".join(form.values()): lambda form=form: step(**form) for form in forms}


# ---- Newton


def _newton() -> dict[str, Callable[[], Any]]:
    import newton  # pyright: ignore[reportMissingImports]

    def rigid() -> Any:
        builder = newton.ModelBuilder()
        builder.add_ground_plane()
        for k, add in enumerate((builder.add_shape_box, builder.add_shape_sphere, builder.add_shape_capsule)):
            add(builder.add_body(xform=warp.transform((k, 0.0, 1.0), warp.quat_identity())))
        links = [builder.add_link(mass=1.0) for _ in range(4)]
        for link in links:
            builder.add_shape_box(link, hx=0.1, hy=0.1, hz=0.1)
        joints = [
            builder.add_joint_revolute(-1, links[0], axis=(0.0, 1.0, 0.0)),
            builder.add_joint_prismatic(links[0], links[1], axis=(1.0, 0.0, 0.0)),
            builder.add_joint_ball(links[1], links[2]),
            builder.add_joint_revolute(links[2], links[3], axis=(0.0, 0.0, 1.0)),
        ]
        builder.add_articulation(joints)
        builder.color()
        return builder

    def soft() -> Any:
        builder = newton.ModelBuilder()
        builder.add_ground_plane()
        place = dict(pos=warp.vec3(0.0, 0.0, 1.0), rot=warp.quat_identity(), vel=warp.vec3())
        cell = dict(cell_x=0.1, cell_y=0.1)
        builder.add_cloth_grid(**place, dim_x=3, dim_y=3, **cell, mass=0.1)
        builder.add_soft_grid(
            **place, dim_x=2, dim_y=2, dim_z=2, **cell, cell_z=0.1, density=1.0, k_mu=1.0, k_lambda=1.0, k_damp=0.1
        )
        builder.color()
        return builder

    def step(scene: Callable[[], Any], solver: str, **options: Any) -> None:
        kind = getattr(newton.solvers, f"Solver{solver}")
        builder = scene()
        if hasattr(kind, "register_custom_attributes"):
            kind.register_custom_attributes(builder)
        model = builder.finalize(device="cpu")
        made = kind(model, **options)
        before, after = model.state(), model.state()
        made.step(before, after, model.control(), model.collide(before), 0.01)

    runs: dict[str, Callable[[], Any]] = {}
    for scene, solvers in (
        (rigid, "Featherstone MuJoCo SemiImplicit Steel VBD XPBD"),
        (soft, "SemiImplicit Style3D VBD XPBD"),
    ):
        for solver in solvers.split():
            runs[f"{scene.__name__} {solver}"] = lambda scene=scene, solver=solver: step(scene, solver)
    runs["rigid Featherstone tiles"] = lambda: step(rigid, "Featherstone", use_tile_gemm=True)
    runs["soft VBD contacts"] = lambda: step(soft, "VBD", particle_enable_self_contact=True)
    return runs


MODELS: dict[str, Callable[[], dict[str, Callable[[], Any]]]] = {"mujoco-warp": _mujoco, "newton": _newton}

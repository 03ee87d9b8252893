"""Small scenes for Newton's solvers: a run from a given first state, and which array its gradient is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import newton
import numpy as np
import warp as wp

DOWN = wp.quat_from_axis_angle(wp.vec3(0.0, 1.0, 0.0), -0.6)


@wp.kernel
def thrust(pulls: wp.array2d[float], step: int, body_q: wp.array[wp.transform], body_f: wp.array[wp.spatial_vector]):
    """Four rotors pull a body along its own z axis, each from its arm."""
    rotor = wp.tid()
    place = body_q[0]
    side = wp.vec3(0.1 * float(1 - 2 * (rotor % 2)), 0.1 * float(1 - 2 * (rotor // 2)), 0.0)
    force = wp.quat_rotate(wp.transform_get_rotation(place), wp.vec3(0.0, 0.0, pulls[step, rotor]))
    arm = wp.quat_rotate(wp.transform_get_rotation(place), side)
    wp.atomic_add(body_f, 0, wp.spatial_vector(force, wp.cross(arm, force)))


@dataclass
class Run:
    """One simulation from `states[0]` on. `given`: the array whose gradient is asked for, `out`: what is seeded."""

    model: Any
    solver: Any
    steps: int
    dt: float
    given: Callable[[Run], Any]
    out: Callable[[Run], Any]
    contacts: Callable[[Any, Any], Any] | None = None  # of the model and a state
    pulls: Any = None
    states: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = [self.model.state() for _ in range(self.steps + 1)]
        self.control = self.model.control()
        self.touching = self.contacts(self.model, self.states[0]) if self.contacts else None

    def simulate(self) -> None:
        for k, (before, after) in enumerate(zip(self.states, self.states[1:], strict=False)):
            before.clear_forces()
            if self.pulls is not None:
                wp.launch(thrust, 4, [self.pulls, k, before.body_q], [before.body_f])
            self.solver.step(before, after, self.control, self.touching, self.dt)


def all_active(b: Any) -> None:
    """Fixed particles are those without mass. Where others are inactive too, XPBD reads places that nobody wrote."""
    b.particle_flags[:] = [int(newton.ParticleFlags.ACTIVE)] * len(b.particle_flags)


def bent(n: int, size: float) -> np.ndarray:
    """Small vectors, of which none is like another."""
    return (size * np.sin(1.0 + np.arange(3 * n))).astype(np.float32).reshape(n, 3)


def soft_contacts(model: Any, state: Any) -> Any:
    pipeline = newton.CollisionPipeline(model, broad_phase="explicit", soft_contact_gap=10.0, requires_grad=True)
    found = pipeline.contacts()
    pipeline.collide(state, found)
    return found


def ball() -> Run:
    """A particle falls onto the ground at a slant, and leaves it."""
    b = newton.ModelBuilder()
    b.add_particle(pos=wp.vec3(0.0, -0.5, 0.3), vel=wp.vec3(0.3, 2.0, -3.0), mass=1.0)
    b.add_ground_plane(cfg=newton.ModelBuilder.ShapeConfig(ke=1e4, kf=0.0, kd=1e1, mu=0.2))
    model = b.finalize(device="cpu", requires_grad=True)
    model.soft_contact_ke, model.soft_contact_kf, model.soft_contact_kd, model.soft_contact_mu = 1e4, 0.0, 1e1, 0.2
    return Run(
        model,
        newton.solvers.SolverSemiImplicit(model),
        60,
        1 / 480,
        first("particle_qd"),
        last("particle_q"),
        soft_contacts,
    )


def cloth(solver: str, **options: Any) -> Run:
    b = newton.ModelBuilder()
    b.default_particle_radius = 0.01
    stiff = dict(tri_ke=1e3, tri_ka=1e3, tri_kd=1e1) if solver == "SemiImplicit" else {}
    b.add_cloth_grid(
        pos=wp.vec3(0.0, 0.0, 1.0),
        vel=wp.vec3(0.0, 0.1, 0.1),
        rot=DOWN,
        dim_x=2,
        dim_y=2,
        cell_x=0.3,
        cell_y=0.3,
        mass=0.1,
        fix_left=True,
        **stiff,
    )
    b.color()
    all_active(b)
    model = b.finalize(device="cpu", requires_grad=True)
    made = getattr(newton.solvers, f"Solver{solver}")(model, **options)
    if solver == "SemiImplicit":
        made.enable_tri_contact = False
    run = Run(model, made, 5, 1 / 240, first("particle_qd"), last("particle_q"))
    start = run.states[0]
    start.particle_q.assign(start.particle_q.numpy() + bent(start.particle_q.shape[0], 0.02))
    return run


def soft(solver: str, given: Callable[[Run], Any], still: bool = False, **options: Any) -> Run:
    b = newton.ModelBuilder()
    b.add_soft_grid(
        pos=wp.vec3(0.0, 0.0, 1.0),
        vel=wp.vec3(0.1, 0.0, 0.2),
        rot=DOWN,
        dim_x=1,
        dim_y=1,
        dim_z=1,
        cell_x=0.2,
        cell_y=0.2,
        cell_z=0.2,
        density=100.0,
        k_mu=1e3,
        k_lambda=1e3,
        k_damp=1.0,
        fix_left=True,
    )
    b.color()
    all_active(b)
    model = b.finalize(device="cpu", requires_grad=True)
    run = Run(
        model, getattr(newton.solvers, f"Solver{solver}")(model, **options), 5, 1 / 240, given, last("particle_q")
    )
    if still:
        return run
    start = run.states[0]  # bent: at rest the strain has no direction, and lengths of 0 no slope
    start.particle_q.assign(start.particle_q.numpy() + bent(start.particle_q.shape[0], 0.02))
    start.particle_qd.assign(start.particle_qd.numpy() + bent(start.particle_qd.shape[0], 0.3))
    return run


def cage() -> Run:
    """One particle held by springs to five fixed ones; the gradient by the lengths at rest."""
    b = newton.ModelBuilder()
    b.add_particle((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 1.0)
    for corner in ((0.2, -0.7, 0.8), (1.1, 0.0, 0.2), (-1.2, 0.1, 0.1), (0.4, 0.6, 0.4), (-0.2, 0.7, -0.9)):
        b.add_particle(corner, (0.0, 0.0, 0.0), 0.0)
        b.add_spring(0, b.particle_count - 1, 100.0, 10.0, 0)
    model = b.finalize(device="cpu", requires_grad=True)
    return Run(
        model,
        newton.solvers.SolverSemiImplicit(model),
        20,
        1 / 120,
        lambda run: run.model.spring_rest_length,
        last("particle_q"),
    )


def drone() -> Run:
    b = newton.ModelBuilder()
    body = b.add_body(xform=wp.transform(wp.vec3(0.0, 0.0, 1.0), wp.quat_rpy(0.1, -0.2, 0.3)))
    b.add_shape_box(body, hx=0.1, hy=0.1, hz=0.02)
    model = b.finalize(device="cpu", requires_grad=True)
    pulls = 2.0 + 0.5 * np.sin(np.arange(40, dtype=np.float32)).reshape(10, 4)
    made = wp.array(pulls, dtype=float, requires_grad=True, device="cpu")
    solver = newton.solvers.SolverSemiImplicit(model)
    return Run(model, solver, 10, 1 / 120, lambda run: run.pulls, last("body_q"), pulls=made)


def rigid_contacts(model: Any, state: Any) -> Any:
    pipeline = newton.CollisionPipeline(model, broad_phase="explicit", requires_grad=True)
    found = pipeline.contacts()
    pipeline.collide(state, found)
    return found


def rolling_ball(solver: str, **options: Any) -> Run:
    """A rigid ball touches the ground, turns and slides on it."""
    place = wp.transform(wp.vec3(0.0, 0.0, 0.098), wp.quat_rpy(0.1, -0.2, 0.3))
    return on_the_ground(solver, "sphere", {"radius": 0.1}, place, [0.4, -0.2, -0.1, 1.0, -0.6, 0.8], options)


def box(solver: str, **options: Any) -> Run:
    """A box slides and turns a little on the ground, which its four lower corners touch."""
    place = wp.transform(wp.vec3(0.0, 0.0, 0.099), wp.quat_identity())
    size = {"hx": 0.1, "hy": 0.1, "hz": 0.1}
    return on_the_ground(solver, "box", size, place, [0.4, -0.2, -0.1, 0.1, -0.06, 0.2], options)


def on_the_ground(
    solver: str, shape: str, size: dict[str, float], place: Any, speed: list[float], options: dict[str, Any]
) -> Run:
    """A rigid body of one shape, with friction, that begins at `place` with `speed` (linear, then angular)."""
    b = newton.ModelBuilder()
    made = newton.ModelBuilder.ShapeConfig(ke=2e3, kd=10.0, kf=20.0, mu=0.4, density=200.0)
    getattr(b, f"add_shape_{shape}")(b.add_body(xform=place), cfg=made, **size)
    b.add_ground_plane(cfg=made)
    model = b.finalize(device="cpu", requires_grad=True)
    run = Run(
        model,
        getattr(newton.solvers, f"Solver{solver}")(model, **options),
        5,
        1 / 480,
        first("body_qd"),
        last("body_q"),
        rigid_contacts,
    )
    run.states[0].body_qd.assign(np.array([speed], np.float32))
    return run


def pendulum(
    solver: str, given: Callable[[Run], Any], out: str, drive: tuple[float, float] = (0, 0), **options: Any
) -> Run:
    """Two boxes on hinges. `drive`: stiffness and damping of motors that hold each hinge at an angle of their own."""
    b = newton.ModelBuilder()
    links, joints = [b.add_link(), b.add_link()], []
    for k, link in enumerate(links):
        b.add_shape_box(link, hx=0.05, hy=0.05, hz=0.25)
        anchor = wp.vec3(0.0, 0.0, 2.0) if k == 0 else wp.vec3(0.0, 0.0, -0.25)
        ends = [wp.transform(at, wp.quat_identity()) for at in (anchor, wp.vec3(0.0, 0.0, 0.25))]
        before = links[k - 1] if k else -1
        axis = (0.0, 1.0, 0.0)
        joints.append(
            b.add_joint_revolute(
                before,
                link,
                axis=axis,
                parent_xform=ends[0],
                child_xform=ends[1],
                target_ke=drive[0],
                target_kd=drive[1],
                target_q=0.3 * k - 0.1,
            )
        )
    b.add_articulation(joints)
    b.joint_q[:], b.joint_qd[:] = [0.7, -0.4], [0.5, 1.0]
    b.color()
    model = b.finalize(device="cpu", requires_grad=True)
    run = Run(model, getattr(newton.solvers, f"Solver{solver}")(model, **options), 5, 1 / 240, given, last(out))
    newton.eval_fk(model, model.joint_q, model.joint_qd, run.states[0])
    apart = run.states[0].body_qd  # a little out of the plane: in it the joints have errors of exactly 0
    if solver not in ("Featherstone",):
        apart.assign(apart.numpy() + bent(2 * apart.shape[0], 0.1).reshape(-1, 6))
    return run


def cable() -> Run:
    """Four pieces of a cable, the first held fast, fall and bend."""
    b = newton.ModelBuilder()
    points = [wp.vec3(0.2 * k, 0.0, 1.0) for k in range(5)]
    rod = newton.Rod(points, radius=0.02)
    bodies, _ = b.add_rod(rod=rod, stretch_stiffness=1e4, bend_stiffness=1.0, twist_stiffness=1.0, bend_damping=1e-2)
    b.body_mass[bodies[0]] = b.body_inv_mass[bodies[0]] = 0.0
    b.body_inertia[bodies[0]] = b.body_inv_inertia[bodies[0]] = wp.mat33(0.0)
    b.color()
    model = b.finalize(device="cpu", requires_grad=True)
    run = Run(model, newton.solvers.SolverVBD(model, iterations=4), 4, 1 / 240, first("body_qd"), last("body_q"))
    run.states[0].body_qd.assign(bent(2 * len(bodies), 0.1).reshape(-1, 6))
    return run


def first(name: str) -> Callable[[Run], Any]:
    return lambda run: getattr(run.states[0], name)


def last(name: str) -> Callable[[Run], Any]:
    return lambda run: getattr(run.states[-1], name)


def _targets(run: Run) -> Any:
    return run.control.joint_target_q


def _materials(run: Run) -> Any:
    return run.model.tet_materials


SCENES: dict[str, Callable[[], Run]] = {
    "spring cage, semi-implicit": cage,
    "cloth, semi-implicit": lambda: cloth("SemiImplicit"),
    "soft body, semi-implicit": lambda: soft("SemiImplicit", _materials),
    "soft body at rest, semi-implicit": lambda: soft("SemiImplicit", _materials, still=True),
    "drone, semi-implicit": drone,
    "cloth, XPBD": lambda: cloth("XPBD"),
    "soft body, XPBD": lambda: soft("XPBD", first("particle_qd")),
    "pendulum, XPBD": lambda: pendulum("XPBD", first("body_qd"), "body_q"),
    "pendulum, Featherstone": lambda: pendulum("Featherstone", first("joint_qd"), "joint_q"),
    "robot with joint targets, Featherstone": lambda: pendulum("Featherstone", _targets, "joint_q", (200.0, 5.0)),
    "rigid ball on the ground, semi-implicit": lambda: rolling_ball("SemiImplicit"),
    "rigid ball on the ground, XPBD": lambda: rolling_ball("XPBD"),
    "box on the ground, XPBD": lambda: box("XPBD"),
    "cloth, VBD": lambda: cloth("VBD", iterations=3),
    "soft body, VBD": lambda: soft("VBD", first("particle_qd"), iterations=3),
    "cable, VBD": cable,
    "ball, semi-implicit": ball,
}

"""Arrays of structs in the fields of structs: read, written, differentiated, and refused where they do not fit."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.errors import KernelError, LaunchError

F = wb.float64
V = wb.vector(3, F)


@wb.struct
class Ball:
    q: V
    m: F
    n: int


@wb.struct
class Wall:
    push: V


@wb.struct
class World:
    balls: wb.array(dtype=Ball)
    walls: wb.array2d(dtype=Wall)
    scale: F


@wb.struct
class Scene:
    world: World
    gain: wb.array(dtype=F)


@wb.func
def pulled(world: World, i: int):
    b = world.balls[i]
    return b.m * b.q[0] * world.scale + world.walls[0, i].push[1] * b.q.y


@wb.kernel
def step(scene: Scene, out: wb.array(dtype=F)):
    i = wb.tid()
    balls = scene.world.balls
    balls[i].m += pulled(scene.world, i)
    scene.world.balls[i].q[2] = balls[i].m * balls[i].m
    last = balls[-1]
    if last.n > 0:
        out[i] = scene.gain[i] * balls[i].q.z + F(balls[i].n) * balls[i].m


def world(values: np.ndarray, requires_grad: bool = True):
    """The arrays that the 3 + 3 + 9 numbers of each of two balls stand for, and the struct of them."""
    balls, walls = wb.zeros(2, dtype=Ball, requires_grad=requires_grad), wb.zeros((1, 2), dtype=Wall)
    walls.requires_grad = requires_grad
    gain = wb.array(values[:2], dtype=F, requires_grad=requires_grad)
    balls.field("q").assign(values[2:8].reshape(2, 3))
    balls.field("m").assign(values[8:10])
    balls.field("n").assign(np.array([1, 2], np.int32))
    walls.field("push").assign(values[10:16].reshape(1, 2, 3))
    inner = World()
    inner.balls, inner.walls, inner.scale = balls, walls, 1.5
    return Scene(world=inner, gain=gain)


VALUES = np.random.default_rng(7).uniform(0.5, 1.5, 16)
SEED = np.array([1.0, -0.7])


def run(values: np.ndarray) -> np.ndarray:
    scene, out = world(values, False), wb.zeros(2, dtype=F)
    wb.launch(step, dim=2, inputs=[scene], outputs=[out])
    return out.numpy()


def differences() -> np.ndarray:
    def loss(k: int, h: float) -> float:
        return float(SEED @ run(VALUES + h * np.eye(len(VALUES))[k]))

    return np.array([(loss(k, 1e-5) - loss(k, -1e-5)) / 2e-5 for k in range(len(VALUES))])


def test_an_array_of_structs_in_a_struct_computes_what_its_fields_say(backend):
    g, q, m, push = VALUES[:2], VALUES[2:8].reshape(2, 3), VALUES[8:10], VALUES[10:16].reshape(2, 3)
    after = m + m * q[:, 0] * 1.5 + push[:, 1] * q[:, 1]
    np.testing.assert_allclose(run(VALUES), g * after**2 + np.array([1, 2]) * after, rtol=1e-14)


def test_its_gradient_is_that_of_differences(backend):
    scene, out = world(VALUES), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(step, dim=2, inputs=[scene], outputs=[out])
    tape.backward(grads={out: wb.array(SEED, dtype=F)})
    balls, walls = scene.world.balls, scene.world.walls
    expected = differences()
    np.testing.assert_allclose(scene.gain.grad.numpy(), expected[:2], rtol=1e-8)
    np.testing.assert_allclose(walls.field("push").grad.numpy().ravel(), expected[10:], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(balls.field("q").grad.numpy().ravel(), expected[2:8], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(balls.field("m").grad.numpy(), expected[8:10], rtol=1e-8)


@pytest.mark.needs_nvrtc
def test_its_text_compiles_for_a_gpu():
    assert set(step.resources) == {"step", "step_adjoint"}


@wb.struct
class Other:
    q: V
    m: F
    n: int


@pytest.mark.parametrize(
    ("balls", "slug"),
    [
        (None, "array-left-out"),
        (wb.zeros(2, dtype=F), "struct-field"),
        (wb.zeros(2, dtype=Other), "struct-field"),
        (wb.zeros((2, 2), dtype=Ball), "argument-rank"),
        ("two", "struct-field"),
    ],
)
def test_what_does_not_fit_the_field_is_refused_by_name(balls, slug):
    scene = world(VALUES)
    with pytest.raises(LaunchError, match=r"'scene\.world\.balls\.q'|World\.balls") as found:
        scene.world.balls = balls
        wb.launch(step, dim=2, inputs=[scene, wb.zeros(2, dtype=F)])
    assert found.value.slug == slug


def test_a_struct_made_in_a_kernel_has_no_such_array():
    @wb.kernel
    def made(out: wb.array(dtype=F)):
        i = wb.tid()
        w = World()
        out[i] = w.balls[i].m

    with pytest.raises(KernelError, match="never assigned"):
        wb.launch(made, dim=2, inputs=[wb.zeros(2, dtype=F)])

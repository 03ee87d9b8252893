"""The five programs this workbench was founded on: gradients that other tools got wrong without a word.

A torch tensor passed directly, arrays in a struct, several outputs of one kernel, components of a vector, and local
aliases before a branch. Each on every backend, against closed forms and against central differences of the forward.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import workbench as wb
from tests.support.backends import WITH_GPU

F = wb.float64
X = np.array([0.7, -1.3, 2.1, 0.4, -0.2])


pytestmark = [pytest.mark.usefixtures("backend"), pytest.mark.parametrize("backend", WITH_GPU, indirect=True)]


def array(values, requires_grad=True):
    return wb.array(np.asarray(values, dtype=np.float64), dtype=F, requires_grad=requires_grad)


def central(forward: Callable[[np.ndarray], np.ndarray], x: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """d <seed, forward(x)> / dx in float64; the error is of order h**2."""
    h, slopes = 1e-5, np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        slopes[i] = ((forward(x + step) - forward(x - step)) * seed).sum() / (2 * h)
    return slopes


def pull(kernel, x: np.ndarray, seed: np.ndarray, shape=None) -> np.ndarray:
    """Gradient of <seed, y> where the kernel makes y of x."""
    ours, y = array(x), wb.zeros(shape or len(x), dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=len(x), inputs=[ours], outputs=[y])
    tape.backward(grads={y: array(seed, requires_grad=False)})
    assert ours.numpy().tolist() == x.tolist(), "a backward pass changed its input"
    return ours.grad.numpy().copy()


def push(kernel, x: np.ndarray) -> np.ndarray:
    y = wb.zeros(len(x), dtype=F)
    wb.launch(kernel, dim=len(x), inputs=[array(x, requires_grad=False)], outputs=[y])
    return y.numpy().copy()


def agree(kernel, closed: Callable[[np.ndarray], np.ndarray], x: np.ndarray = X) -> None:
    """The gradient equals the closed form, and central differences of what the kernel computes."""
    seed = np.linspace(0.7, 1.9, len(x))
    got = pull(kernel, x, seed)
    np.testing.assert_allclose(got, seed * closed(x), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(got, central(lambda v: push(kernel, v), x, seed), rtol=1e-7, atol=1e-8)


# --- torch: a tensor passed directly


@wb.kernel
def add(x: wb.array(dtype=wb.vec3), y: wb.array(dtype=wb.vec3), z: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    z[i] = x[i] + y[i]


@wb.kernel
def add_double(x: wb.array(dtype=wb.vec3d), y: wb.array(dtype=wb.vec3d), z: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    z[i] = x[i] + y[i]


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("kernel", "precision", "vec3"), [(add, "float32", wb.vec3), (add_double, "float64", wb.vec3d)]
)
@pytest.mark.parametrize("follows", [True, False])
def test_a_plain_torch_tensor_keeps_its_values_through_backward(kernel, precision, vec3, follows) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones((10, 3), dtype=getattr(torch, precision), requires_grad=follows)
    y, z = wb.ones(10, dtype=vec3, requires_grad=True), wb.zeros(10, dtype=vec3, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=10, inputs=[x, y], outputs=[z])
    assert (z.numpy() == 2).all()
    for k in (1, 2):
        tape.backward(grads={z: wb.ones(10, dtype=vec3)})
        assert (x == 1).all(), "the gradient was written into the values"
        assert (y.numpy() == 1).all() and (z.numpy() == 2).all()
        assert (y.grad.numpy() == k).all()
        assert x.grad is None if not follows else (x.grad == k).all()


@pytest.mark.needs_torch
def test_the_gradient_of_the_torch_case_is_that_of_central_differences() -> None:
    torch = pytest.importorskip("torch")
    seed = np.linspace(-1.0, 2.0, 30).reshape(10, 3)
    y, z = wb.ones(10, dtype=wb.vec3d), wb.zeros(10, dtype=wb.vec3d)

    def forward(values: np.ndarray) -> np.ndarray:
        wb.launch(add_double, dim=10, inputs=[torch.from_numpy(values.copy()), y], outputs=[z])
        return z.numpy().copy()

    x = torch.ones((10, 3), dtype=torch.float64, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(add_double, dim=10, inputs=[x, y], outputs=[z])
    tape.backward(grads={z: wb.array(seed, dtype=wb.vec3d)})
    np.testing.assert_array_equal(x.grad.numpy(), seed)
    np.testing.assert_allclose(x.grad.numpy(), central(forward, np.ones((10, 3)), seed), rtol=0, atol=1e-9)


@pytest.mark.needs_torch
def test_a_third_array_made_from_the_second_is_one_memory_and_is_shown_as_such() -> None:
    """The mistake of the original report: z was wrapped around the tensor of y, so the sum replaced y."""
    torch = pytest.importorskip("torch")
    x, second = torch.ones((10, 3), requires_grad=True), torch.ones((10, 3))
    y = wb.from_torch(second, dtype=wb.vec3, requires_grad=True)
    z = wb.from_torch(second, dtype=wb.vec3, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(add, dim=10, inputs=[x, y], outputs=[z])
    assert y.allocation is z.allocation
    text = tape.show().text
    memory = text[text.index("\nmemory ") :].splitlines()
    last = [line.split()[-1] for line in memory[3:6]]
    assert last == ["x", "y", "z"], "every name is on its memory"
    assert memory[6].strip() == "(2 names, one memory)", "and y and z are on one"
    assert "aliased" in text
    tape.backward(grads={z: wb.ones(10, dtype=wb.vec3)})
    assert (x == 1).all() and (x.grad == 1).all()
    assert (second == 2).all()
    assert (y.grad.numpy() == 1).all(), "d(x + y)/dy by the contents that y had before the launch"


# --- struct: an input and an output array in one struct


@wb.struct
class Field:
    x: wb.array(dtype=F)
    y: wb.array(dtype=F)
    scale: F


@wb.kernel
def in_struct(s: Field):
    i = wb.tid()
    n = s.x.shape[0]
    s.y[i] = s.scale * s.x[i] * s.x[i] * s.x[(i + 1) % n]


@wb.kernel
def as_arguments(x: wb.array(dtype=F), y: wb.array(dtype=F), scale: F):
    i = wb.tid()
    n = x.shape[0]
    y[i] = scale * x[i] * x[i] * x[(i + 1) % n]


def jacobian(tape: wb.Tape, x, y) -> np.ndarray:
    """Row by row on one tape, without clearing anything but the leaf."""
    found = []
    for row in np.eye(len(X)):
        x.grad.zero_()
        tape.backward(grads={y: array(row, requires_grad=False)})
        found.append(x.grad.numpy().copy())
    return np.array(found)


@pytest.mark.parametrize("output_requires", [True, False])
def test_a_jacobian_through_a_struct_is_that_through_plain_arguments(output_requires: bool) -> None:
    x, y = array(X), wb.zeros(len(X), dtype=F, requires_grad=output_requires)
    with wb.Tape() as tape:
        wb.launch(in_struct, dim=len(X), inputs=[Field(x=x, y=y, scale=3.0)])
    through_struct = jacobian(tape, x, y)

    plain, out = array(X), wb.zeros(len(X), dtype=F, requires_grad=output_requires)
    with wb.Tape() as tape:
        wb.launch(as_arguments, dim=len(X), inputs=[plain], outputs=[out, 3.0])
    through_arguments = jacobian(tape, plain, out)

    after = np.roll(X, -1)
    closed = np.diag(6.0 * X * after) + np.roll(np.diag(3.0 * X * X), 1, axis=1)
    np.testing.assert_array_equal(through_struct, through_arguments)
    np.testing.assert_allclose(through_struct, closed, rtol=1e-14, atol=0)

    def forward(v: np.ndarray) -> np.ndarray:
        made = wb.zeros(len(v), dtype=F)
        wb.launch(in_struct, dim=len(v), inputs=[Field(x=array(v, requires_grad=False), y=made, scale=3.0)])
        return made.numpy().copy()

    differences = np.array([central(forward, X, row) for row in np.eye(len(X))])
    np.testing.assert_allclose(through_struct, differences, rtol=1e-7, atol=1e-8)


# --- several outputs of one kernel, seeded one after the other


@wb.kernel
def chain(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F), s: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i]
    z[i] = y[i]
    s[i] = z[i]


def chained(outputs_require: bool = True):
    x = array(X)
    outs = [wb.zeros(len(X), dtype=F, requires_grad=outputs_require) for _ in "yzs"]
    with wb.Tape() as tape:
        wb.launch(chain, dim=len(X), inputs=[x], outputs=outs)
    assert all(out.numpy().tolist() == X.tolist() for out in outs)
    return tape, x, outs


@pytest.mark.parametrize("cleared", [True, False])
@pytest.mark.parametrize("outputs_require", [True, False])
def test_each_of_several_outputs_seeded_by_grads_adds_exactly_one(cleared: bool, outputs_require: bool) -> None:
    tape, x, outs = chained(outputs_require)
    for k, out in enumerate([*outs, *reversed(outs)], 1):
        tape.backward(grads={out: wb.ones(len(X), dtype=F)})
        assert x.grad.numpy().tolist() == [1.0 if cleared else float(k)] * len(X)
        if cleared:
            tape.zero()


@pytest.mark.parametrize("cleared", ["tape.zero()", "x.grad.zero_()", ""])
def test_each_of_several_outputs_seeded_in_its_grad_adds_exactly_one(cleared: str) -> None:
    tape, x, outs = chained()
    for k, out in enumerate(outs, 1):
        out.grad.fill_(1.0)
        tape.backward()
        assert x.grad.numpy().tolist() == [1.0 if cleared else float(k)] * len(X)
        if cleared == "tape.zero()":
            tape.zero()
        elif cleared:
            x.grad.zero_()


def test_all_outputs_seeded_together_add_up() -> None:
    tape, x, (y, z, s) = chained()
    tape.backward(grads={y: array([1.0] * 5), z: array([10.0] * 5), s: array([100.0] * 5)})
    assert x.grad.numpy().tolist() == [111.0] * 5

    def forward(v: np.ndarray) -> np.ndarray:
        outs = [wb.zeros(len(v), dtype=F) for _ in "yzs"]
        wb.launch(chain, dim=len(v), inputs=[array(v, requires_grad=False)], outputs=outs)
        return sum(w * out.numpy() for w, out in zip((1.0, 10.0, 100.0), outs, strict=True))

    np.testing.assert_allclose(x.grad.numpy(), central(forward, X, np.ones(5)), rtol=0, atol=1e-8)


# --- components of a vector, written one at a time


@wb.kernel
def component_sums(a: wb.array(dtype=wb.vec3d), b: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    ai = a[i]
    tmp = wb.vec3d()
    tmp[0] += ai[0]
    tmp[1] += ai[1]
    tmp[2] += ai[2]
    b[i] = tmp


@wb.kernel
def component_sums_single(a: wb.array(dtype=wb.vec3), b: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    ai = a[i]
    tmp = wb.vec3(0.0, 0.0, 0.0)
    tmp[0] += ai[0]
    tmp[1] += ai[1]
    tmp[2] += ai[2]
    b[i] = tmp


@wb.kernel
def component_mixture(a: wb.array(dtype=wb.vec3d), b: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    ai = a[i]
    tmp = ai
    tmp[0] *= ai[1]
    tmp.y = tmp[0] * tmp[0]
    tmp[2] -= tmp.x
    tmp[2] += ai[2]
    b[i] = tmp


@pytest.mark.parametrize(("kernel", "vec3"), [(component_sums, wb.vec3d), (component_sums_single, wb.vec3)])
def test_sums_into_components_have_the_gradient_one(kernel, vec3) -> None:
    a = wb.array(np.arange(30).reshape(10, 3), dtype=vec3, requires_grad=True)
    b = wb.zeros(10, dtype=vec3)
    with wb.Tape() as tape:
        wb.launch(kernel, dim=10, inputs=[a], outputs=[b])
    assert b.numpy().tolist() == a.numpy().tolist()
    tape.backward(grads={b: wb.ones(10, dtype=vec3)})
    assert a.grad.numpy().tolist() == [[1.0, 1.0, 1.0]] * 10


def test_components_written_and_read_again_have_the_closed_form_s_gradient() -> None:
    values = np.array([[0.7, -1.3, 2.1], [0.4, 1.2, -0.6]])
    seed = np.array([[1.0, -2.0, 0.5], [0.3, 0.9, -1.1]])

    def forward(v: np.ndarray) -> np.ndarray:
        b = wb.zeros(2, dtype=wb.vec3d)
        wb.launch(component_mixture, dim=2, inputs=[wb.array(v, dtype=wb.vec3d)], outputs=[b])
        return b.numpy().copy()

    a, b = wb.array(values, dtype=wb.vec3d, requires_grad=True), wb.zeros(2, dtype=wb.vec3d)
    with wb.Tape() as tape:
        wb.launch(component_mixture, dim=2, inputs=[a], outputs=[b])
    tape.backward(grads={b: wb.array(seed, dtype=wb.vec3d)})
    x, y, z = values.T
    p, q, r = seed.T
    inner = p + 2 * x * y * q - r  # of x y, which all three components read
    np.testing.assert_allclose(forward(values), np.stack([x * y, (x * y) ** 2, 2 * z - x * y], 1), rtol=1e-15)
    np.testing.assert_allclose(a.grad.numpy(), np.stack([inner * y, inner * x, 2 * r], 1), rtol=1e-14)
    np.testing.assert_allclose(a.grad.numpy(), central(forward, values, seed), rtol=0, atol=1e-8)


# --- alias: a second name for a local


@wb.kernel
def alias_then_branch(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    b = a
    if a > F(0.0):
        b = b * a
    y[i] = a + b


@wb.func
def aliased(a: F) -> F:
    b = a
    if a > F(0.0):
        b = b * a
    return a + b


@wb.kernel
def alias_in_a_func(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = aliased(x[i])


@wb.func
def aliased_with_two_returns(a: F) -> F:
    b = a
    if b > F(0.0):
        a = F(3.0) * b
        return a * b
    return b


@wb.kernel
def alias_with_two_returns(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = aliased_with_two_returns(x[i])


@wb.kernel
def alias_chain(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    b = a
    c = b
    d = c
    b = F(2.0) * b
    if c < F(0.0):
        d = d * b
    else:
        c = c + b
    a = a * a
    y[i] = a + F(10.0) * b + F(100.0) * c + F(1000.0) * d


@wb.kernel
def alias_of_the_original(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    b = a
    a = a * F(5.0)
    if a > F(0.0):
        a = a + b
    y[i] = a * b


@wb.kernel
def swapped(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    b = F(3.0)
    a, b = b, a
    if b > F(0.0):
        a, b = b * b, a
    y[i] = a + F(10.0) * b


@wb.kernel
def swapped_by_hand(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    b = x[i] * x[i]
    for k in range(3):
        t = a
        a = b
        b = t
    y[i] = a + F(10.0) * b


def test_a_local_alias_followed_by_a_branch_in_a_kernel() -> None:
    agree(alias_then_branch, lambda x: np.where(x > 0, 1 + 2 * x, 2.0))


def test_a_local_alias_followed_by_a_branch_in_a_func() -> None:
    agree(alias_in_a_func, lambda x: np.where(x > 0, 1 + 2 * x, 2.0))
    agree(alias_with_two_returns, lambda x: np.where(x > 0, 6 * x, 1.0))


def test_the_name_that_was_aliased_is_rebound() -> None:
    agree(alias_of_the_original, lambda x: np.where(x > 0, 12 * x, 10 * x))


def test_chains_of_aliases() -> None:
    agree(alias_chain, lambda x: 2 * x + 20 + np.where(x < 0, 100 + 4000 * x, 300 + 1000))


def test_swapping_two_variables() -> None:
    agree(swapped, lambda x: np.where(x > 0, 2 * x, 10.0))
    agree(swapped_by_hand, lambda x: 2 * x + 10)

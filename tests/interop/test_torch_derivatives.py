"""Kernels as torch functions: derivatives of any order in every way of torch, and the grid of a call."""

from __future__ import annotations

import pytest

import workbench as wb

torch = pytest.importorskip("torch")
from tests.interop.test_torch import F, Pair, count, draw, leaf, of_pair, product, rows, scaled, square  # noqa: E402

pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("backend")]


def cubed_penalty(walk):
    t = leaf(1.0, 2.0)
    y = wb.interop.torch.function(cube)(t).sum()
    (g,) = torch.autograd.grad(y, t, create_graph=True)
    return walk((g * g).sum() + y, t)


def by_inputs(loss, t):
    loss.backward(inputs=[t])
    return t.grad


@wb.kernel
def cube(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i] * x[i]


@pytest.mark.parametrize("walk", [lambda loss, t: torch.autograd.grad(loss, t)[0], by_inputs])
def test_a_gradient_is_differentiated_again(walk) -> None:
    assert cubed_penalty(walk).tolist() == [39.0, 300.0]


@pytest.mark.parametrize("change", [lambda t: t.mul_(2.0), lambda t: t.detach().numpy().fill(2.0)])
def test_a_change_of_what_a_call_read_names_the_line_of_the_call(change) -> None:
    t = leaf(1.0, 2.0)
    given = t * 1.0
    y = wb.interop.torch.function(cube)(given)  # this line
    change(given)
    with pytest.raises(wb.GradientError, match=r"(?s)'x' was changed by .*'cube'.*# this line.*\[overwritten\]"):
        y.sum().backward()


@wb.kernel
def in_place(x: wb.array(dtype=F), a: F, axis: wb.vec3d, n: int, y: wb.array(dtype=F), z: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * a
    for _ in range(n):
        y[i] = y[i] - F(0.3) * y[i] * y[i] * axis[1]
    wb.atomic_add(z, 0, y[i] * wb.length(axis))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_gradgradcheck_passes_for_state_vectors_numbers_structs_and_integers() -> None:
    def check(f, *args):
        assert torch.autograd.gradcheck(f, args, check_forward_ad=True, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(f, args, check_batched_grad=True)

    function = wb.interop.torch.function
    check(function(product), draw(3), draw(3, seed=1))
    check(lambda t: function(product)(t, t), draw(3))
    check(lambda t: function(rows)(t.T), draw(2, 3))
    check(lambda x: function(scaled, outputs=[2, 2], dim=2)(x, 3.0), draw(2, 3))
    check(lambda a, b: function(of_pair)(Pair(a=a, b=b)), draw(3), draw(3, seed=1))
    check(lambda t: function(count)(t)[0], draw(2))
    several = function(in_place, dim=2, outputs=[2, 1])
    check(lambda x, a, v: several(x, a, v, 2), draw(2), draw(1)[0].detach().requires_grad_(), draw(3, seed=2))


def energy(x, w):
    s = torch.sin(x) * w
    return (s * torch.exp(x)).sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_way_of_torch_to_differentiate_agrees() -> None:
    f = wb.interop.torch.function(product)

    def ours(x, w):
        return (f(w, x) * torch.exp(x)).sum()

    x, w = draw(3).detach(), draw(3, seed=1).detach()
    func, both = torch.func, (0, 1)
    ways = [
        lambda g: func.grad(g, both)(x, w),
        lambda g: func.jvp(g, (x, w), (w, x)),
        lambda g: func.vjp(g, x, w)[1](torch.tensor(2.0, dtype=torch.float64)),
        lambda g: func.vmap(g)(torch.stack([x, w]), torch.stack([w, x])),
        lambda g: func.vmap(func.grad(g), in_dims=(0, None))(torch.stack([x, w]), w),
        lambda g: func.hessian(g, both)(x, w)[1],
        lambda g: func.jacrev(func.jacrev(g, both), both)(x, w)[0],
        lambda g: func.jacfwd(func.jacrev(func.jacfwd(g)))(x, w),  # third
        lambda g: torch.autograd.functional.hessian(g, (x, w))[0],
        lambda g: torch.autograd.functional.hessian(g, (x, w), vectorize=True)[1],
        lambda g: torch.autograd.functional.vhp(g, (x, w), (w, x))[1],
    ]
    for way in ways:
        got, want = way(ours), way(energy)
        for a, b in zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_second_derivative_that_does_not_exist_is_refused_where_it_is_asked_for() -> None:
    @wb.kernel
    def largest(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_max(y, 0, x[i] * x[i])

    t = leaf(1.0, 2.0)
    y = wb.interop.torch.function(largest, dim=2, outputs=[1])(t)
    (g,) = torch.autograd.grad(y.sum(), t, create_graph=True)
    assert g.tolist() == [0.0, 4.0]
    with pytest.raises(wb.KernelError, match="second-derivative"):
        g.sum().backward()


def test_the_grid_is_that_of_the_inputs_and_another_one_is_refused() -> None:
    f = wb.interop.torch.function(square)
    assert f(torch.ones(5, dtype=torch.float64)).shape == (5,) and f(leaf(1.0)).shape == (1,)
    assert wb.interop.torch.function(rows)(draw(2, 3)).shape == (2, 3)
    with pytest.raises(wb.LaunchError, match=r"(?s)'x' has 4 elements along axis 0, the grid \(2,\).*\[function\]"):
        wb.interop.torch.function(square, dim=2)(torch.ones(4, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore")
def test_bfloat16_is_refused_by_the_same_words_wherever_it_arrives() -> None:
    t = torch.ones(3, dtype=torch.bfloat16)
    f = wb.interop.torch.function(of_float)
    routes = [
        lambda: wb.from_torch(t),
        lambda: wb.array(t, dtype=float),
        lambda: wb.launch(of_float, dim=3, inputs=[t], outputs=[wb.zeros(3)]),
        lambda: f(t),
        lambda: wb.zeros(3).assign(t),
    ]
    for route in routes:
        with pytest.raises(wb.LaunchError, match=r"(?s)torch.bfloat16 has no dtype.*tensor.to\(torch.float32\)"):
            route()
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(wb.LaunchError, match="bfloat16"):
        f(torch.ones(3, 3) @ torch.ones(3))


@wb.kernel
def of_float(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@pytest.mark.parametrize("reentrant", [True, False])
def test_in_a_checkpoint_of_torch(reentrant, backend):
    from torch.utils.checkpoint import checkpoint

    @wb.kernel
    def sines(x: wb.array(dtype=wb.float64), y: wb.array(dtype=wb.float64)):
        i = wb.tid()
        y[i] = wb.sin(x[i]) * x[i]

    call = wb.interop.torch.function(sines)
    x = torch.tensor([0.3, -0.7, 1.1], dtype=torch.float64, requires_grad=True)
    checkpoint(lambda x: call(call(x)), x, use_reentrant=reentrant).sum().backward()
    found, x.grad = x.grad, None
    once = torch.sin(x) * x
    (torch.sin(once) * once).sum().backward()
    torch.testing.assert_close(found, x.grad)

"""Torch: shared memory, the output port `tensor.grad`, in-place changes, and kernels as torch functions."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import workbench as wb

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("backend")]

F = wb.float64


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def twice(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = F(2.0) * x[i]


@wb.kernel
def product(a: wb.array(dtype=F), b: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = a[i] * wb.sin(b[i])


@wb.kernel
def scaled(x: wb.array(dtype=wb.vec3d), s: F, n: wb.array(dtype=F), v: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    n[i] = wb.dot(x[i], x[i]) * s
    v[i] = x[i] * s


@wb.kernel
def rows(x: wb.array2d(dtype=F), y: wb.array2d(dtype=F)):
    i, j = wb.tid()
    y[i, j] = x[i, j] * x[i, j] * F(i + 1)


@wb.kernel
def count(x: wb.array(dtype=F), y: wb.array(dtype=F), c: wb.array(dtype=int)):
    i = wb.tid()
    y[i] = x[i] * x[i]
    if x[i] > F(0.0):
        c[i] = 1


@wb.kernel
def half(x: wb.array(dtype=wb.float16), y: wb.array(dtype=wb.float16)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def grow(x: wb.array(dtype=F)):
    i = wb.tid()
    x[i] = F(3.0) * x[i]


@wb.struct
class Pair:
    a: wb.array(dtype=F)
    b: wb.array(dtype=F)


@wb.kernel
def of_pair(p: Pair, y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = p.a[i] * p.b[i] * p.b[i]


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def ones(n):
    return wb.ones(n, dtype=F)


# --- memory


def test_a_wrapped_tensor_and_the_tensor_are_one_memory() -> None:
    t = torch.zeros(3, dtype=torch.float64)
    x = wb.from_torch(t)
    t[1] = 5.0
    x.fill_(x[1] + 1.0)
    assert t.tolist() == [6.0, 6.0, 6.0]
    assert not x.requires_grad


def test_slices_and_transposes_of_one_storage_are_spans_of_one_allocation() -> None:
    t = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    whole, column, turned = wb.from_torch(t), wb.from_torch(t[:, 1]), wb.from_torch(t.T)
    assert whole.allocation is column.allocation is turned.allocation
    assert column.numpy().tolist() == [1.0, 4.0]
    assert turned.numpy().tolist() == t.T.tolist()


def test_numpy_memory_and_the_tensor_made_from_it_are_one_allocation() -> None:
    data = np.zeros(4)
    assert wb.from_numpy(data).allocation is wb.from_torch(torch.from_numpy(data)).allocation
    t = torch.zeros(4)
    assert wb.from_torch(t).allocation is wb.from_numpy(t.numpy()).allocation


def test_trailing_axes_are_components() -> None:
    t = torch.arange(18, dtype=torch.float32)
    assert wb.from_torch(t.reshape(6, 3), dtype=wb.vec3).shape == (6,)
    assert wb.from_torch(t.reshape(2, 3, 3), dtype=wb.mat33).shape == (2,)
    assert wb.from_torch(t.reshape(2, 3, 3), dtype=wb.vec3).shape == (2, 3)
    with pytest.raises(wb.LaunchError, match="components"):
        wb.from_torch(t, dtype=wb.vec3)
    with pytest.raises(wb.LaunchError, match="converting needs a copy"):
        wb.from_torch(t, dtype=F)


def test_arrays_go_back_without_a_copy() -> None:
    x = wb.zeros(3, dtype=wb.vec3)
    t = wb.to_torch(x)
    t[1, 2] = 7.0
    assert x.numpy()[1].tolist() == [0.0, 0.0, 7.0]
    assert t.shape == (3, 3) and not t.requires_grad
    original = leaf(1.0, 2.0)
    back = wb.to_torch(wb.from_torch(original))
    assert back.data_ptr() == original.data_ptr() and not back.requires_grad


def test_dtypes_and_devices_have_their_torch_names() -> None:
    for name in ("float16", "float32", "float64", "int32", "int64", "uint8"):
        assert wb.dtype_from_torch(getattr(torch, name)) is getattr(wb, name)
        assert wb.dtype_to_torch(getattr(wb, name)) is getattr(torch, name)
    assert wb.dtype_to_torch(wb.vec3) is torch.float32
    assert wb.dtype_from_torch(torch.bool) is wb.bool
    assert wb.device_from_torch(torch.device("cpu")) == "cpu" and wb.device_to_torch("cpu") == "cpu"
    with pytest.raises(wb.LaunchError, match=r"\[dtype\]"):
        wb.dtype_from_torch(torch.complex64)


def test_a_wrapped_storage_cannot_be_moved_away() -> None:
    t = torch.zeros(3, dtype=torch.float64)
    x = wb.from_torch(t)
    with pytest.raises(RuntimeError, match="not resizable"):
        t.resize_(1_000_000)
    assert x.numpy().tolist() == [0.0, 0.0, 0.0]


# --- straight to a launch


def test_a_tensor_is_launched_as_it_is_also_in_a_struct() -> None:
    a, b, y = leaf(1.0, 2.0), leaf(3.0, 4.0), torch.zeros(2, dtype=torch.float64)
    with wb.Tape() as tape:
        wb.launch(of_pair, dim=2, inputs=[Pair(a=a, b=b)], outputs=[y])
    assert y.tolist() == [9.0, 32.0]
    tape.backward(grads={wb.from_torch(y): ones(2)})
    assert a.grad.tolist() == [9.0, 16.0] and b.grad.tolist() == [6.0, 16.0]
    assert a.tolist() == [1.0, 2.0] and b.tolist() == [3.0, 4.0]


def test_one_tensor_is_one_array_in_a_launch() -> None:
    t, y = leaf(0.7, -1.3), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(product, dim=2, inputs=[t, t], outputs=[y])
    assert len(tape.arrays) == 2
    tape.backward(grads={y: ones(2)})
    v = t.detach()
    assert torch.equal(t.grad, torch.sin(v) + v * torch.cos(v))


def test_a_tensor_of_another_dtype_is_refused_by_the_parameter_s_name() -> None:
    with pytest.raises(wb.LaunchError, match=r"argument 'x': takes array\(dtype=float64\), got dtype float32"):
        wb.launch(square, dim=2, inputs=[torch.zeros(2)], outputs=[wb.zeros(2, dtype=F)])


def test_the_picture_knows_tensors_by_the_user_s_names() -> None:
    first, second = leaf(1.0, 2.0), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[first], outputs=[second])
    assert "first" in tape.show().text and "second" in tape.show().text


# --- the output port


def test_backward_adds_to_tensor_grad_as_torch_does_and_leaves_values_alone() -> None:
    t, y = leaf(1.0, 2.0, 3.0), wb.zeros(3, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, dim=3, inputs=[t], outputs=[y])
    assert t.grad is None
    tape.backward(grads={y: ones(3)})
    assert t.grad.tolist() == [2.0, 4.0, 6.0]
    tape.backward(grads={y: ones(3)})
    (t * 10.0).sum().backward()
    assert t.grad.tolist() == [14.0, 18.0, 22.0]
    assert t.tolist() == [1.0, 2.0, 3.0]


def test_a_tensor_wrapped_twice_gets_the_increment_once() -> None:
    t, y = leaf(1.0, 2.0), wb.zeros(2, dtype=F)
    one, other = wb.from_torch(t), wb.from_torch(t)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[one], outputs=[y])
    tape.backward(grads={y: ones(2)})
    assert t.grad.tolist() == [2.0, 4.0]
    assert other.grad.numpy().tolist() == [2.0, 4.0]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_an_optimizer_may_clear_gradients_between_steps(set_to_none: bool) -> None:
    t = leaf(1.0, 2.0)
    x, optimizer = wb.from_torch(t), torch.optim.SGD([t], lr=0.25)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        y = wb.zeros(2, dtype=F)
        with wb.Tape() as tape:
            wb.launch(square, dim=2, inputs=[x], outputs=[y])
        tape.backward(grads={y: ones(2)})
        optimizer.step()
    assert t.tolist() == [0.125, 0.25]
    assert t.grad.tolist() == [0.5, 1.0]


def test_tensor_grad_is_never_shadow_memory() -> None:
    t, y = leaf(1.0, 2.0), wb.zeros(2, dtype=F)
    t.grad = torch.tensor([100.0, 100.0], dtype=torch.float64)
    kept = t.grad
    x = wb.from_torch(t)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
    tape.backward(grads={y: ones(2)})
    assert t.grad is kept and kept.tolist() == [102.0, 104.0]
    assert x.grad.numpy().tolist() == [2.0, 4.0]
    assert wb.to_torch(tape.gradients[x]).tolist() == [2.0, 4.0]


def test_a_seed_in_tensor_grad_is_refused_not_ignored() -> None:
    t, y = leaf(1.0, 2.0), torch.zeros(2, dtype=torch.float64, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[t], outputs=[y])
    y.grad = torch.ones(2, dtype=torch.float64)
    with pytest.raises(wb.GradientError, match="no-seed"):
        tape.backward()
    tape.backward(grads={wb.from_torch(y): wb.from_torch(y.grad)})
    assert t.grad.tolist() == [2.0, 4.0] and y.grad.tolist() == [1.0, 1.0]


def test_hooks_of_a_leaf_see_the_increment() -> None:
    t, y, seen = leaf(1.0, 2.0), wb.zeros(2, dtype=F), []
    t.register_hook(lambda g: seen.append(g.tolist()))
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[t], outputs=[y])
    tape.backward(grads={y: ones(2)})
    assert seen == [[2.0, 4.0]]


def test_a_transposed_leaf_gets_its_gradient_in_its_own_layout() -> None:
    t = torch.arange(6, dtype=torch.float64).reshape(2, 3).T.requires_grad_()
    y = wb.zeros((3, 2), dtype=F)
    with wb.Tape() as tape:
        wb.launch(rows, dim=(3, 2), inputs=[t], outputs=[y])
    tape.backward(grads={y: wb.ones((3, 2), dtype=F)})
    assert torch.equal(t.grad, 2.0 * t.detach() * torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64))


def test_a_parameter_that_is_a_part_of_a_buffer_gets_its_part_alone() -> None:
    buffer = torch.arange(1.0, 7.0, dtype=torch.float64)
    head, tail = torch.nn.Parameter(buffer[:2]), torch.nn.Parameter(buffer[2:])
    y = wb.zeros(4, dtype=F)
    wb.from_torch(head)
    with wb.Tape() as tape:
        wb.launch(square, dim=4, inputs=[tail], outputs=[y])
    tape.backward(grads={y: ones(4)})
    assert head.grad is None
    assert tail.grad.tolist() == [6.0, 8.0, 10.0, 12.0]


def test_half_precision_leaves_get_half_precision_gradients() -> None:
    t = torch.tensor([1.5, -2.0], dtype=torch.float16, requires_grad=True)
    y = wb.zeros(2, dtype=wb.float16)
    with wb.Tape() as tape:
        wb.launch(half, dim=2, inputs=[t], outputs=[y])
    tape.backward(grads={y: wb.ones(2, dtype=wb.float32)})
    assert t.grad.dtype is torch.float16 and t.grad.tolist() == [3.0, -4.0]


def test_requires_grad_false_at_wrapping_leaves_the_tensor_alone() -> None:
    t, y = leaf(1.0, 2.0), wb.zeros(2, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[wb.from_torch(t, requires_grad=False)], outputs=[y])
    tape.backward(grads={y: ones(2)})
    assert t.grad is None


def test_a_tensor_computed_by_torch_is_refused_with_the_way_out() -> None:
    t, y = leaf(1.0, 2.0), wb.zeros(2, dtype=F)
    with pytest.raises(wb.GradientError, match=r"(?s)detach\(\).*interop\.torch\.function.*\[non-leaf\]"):
        wb.from_torch(t * 2.0)
    with pytest.raises(wb.GradientError, match="non-leaf"):
        wb.launch(square, dim=2, inputs=[t * 2.0], outputs=[y])
    wb.launch(square, dim=2, inputs=[(t * 2.0).detach()], outputs=[y])
    assert y.numpy().tolist() == [4.0, 16.0]


def test_a_leaf_whose_elements_share_memory_is_refused() -> None:
    t = torch.ones(1, dtype=torch.float64).expand(3).requires_grad_()
    with pytest.raises(wb.GradientError, match="overlapping"):
        wb.from_torch(t)


def test_a_leaf_that_was_given_other_memory_is_refused() -> None:
    t, y = leaf(1.0, 2.0), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[t], outputs=[y])
    t.data = torch.zeros(2, dtype=torch.float64)
    with pytest.raises(wb.GradientError, match="moved"):
        tape.backward(grads={y: ones(2)})


def test_a_hand_written_function_of_torch_is_not_counted_twice() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.x, ctx.y, ctx.tape = wb.from_torch(t), wb.zeros(2, dtype=F, requires_grad=True), wb.Tape()
            with ctx.tape:
                wb.launch(square, dim=2, inputs=[ctx.x], outputs=[ctx.y])
            return wb.to_torch(ctx.y)

        @staticmethod
        def backward(ctx, g):
            ctx.y.grad = wb.from_torch(g.contiguous())
            ctx.tape.backward()
            return wb.to_torch(ctx.x.grad)

    t = leaf(1.0, 2.0)
    (Square.apply(t) * torch.tensor([1.0, 10.0])).sum().backward()
    assert t.grad.tolist() == [2.0, 40.0]


# --- behind the tape's back


@pytest.mark.parametrize("change", ["mul_", "data", "numpy"])
def test_a_change_between_forward_and_backward_names_array_and_launch(change: str) -> None:
    t, y = leaf(1.0, 2.0), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[t], outputs=[y])
    if change == "mul_":
        with torch.no_grad():
            t.mul_(10.0)
    elif change == "data":
        t.data.mul_(10.0)
    else:
        t.detach().numpy()[0] = 9.0
    who = "in-place operation of torch" if change == "mul_" else "raw memory"
    with pytest.raises(wb.GradientError, match=rf"(?s)'t' was changed by .*{who}.*'square'.*\[overwritten\]"):
        tape.backward(grads={y: ones(2)})
    assert t.grad is None


def test_what_the_adjoint_does_not_read_may_change() -> None:
    t, y = leaf(1.0, 2.0), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(twice, dim=2, inputs=[t], outputs=[y])
    with torch.no_grad():
        t.mul_(10.0)
    tape.backward(grads={y: ones(2)})
    assert t.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("change", ["mul_", "data", "numpy", "numpy of an array", "dlpack"])
def test_a_change_between_two_launches_is_refused_though_no_adjoint_reads_the_values(change: str) -> None:
    x, z = wb.array([1.0, 2.0], dtype=F, requires_grad=True), wb.zeros(2, dtype=F)
    t = torch.zeros(2, dtype=torch.float64)
    y = wb.zeros(2, dtype=F) if change == "numpy of an array" else wb.from_torch(t)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
        if change == "mul_":
            t.mul_(2.0)
        elif change == "data":
            t.data.mul_(2.0)
        elif change == "dlpack":
            np.from_dlpack(t)[...] *= 2.0
        else:
            (t if change == "numpy" else y).numpy()[...] *= 2.0
        wb.launch(twice, dim=2, inputs=[y], outputs=[z])
    with pytest.raises(wb.GradientError, match=r"(?s)'y' was changed between two events.*'twice'.*\[overwritten\]"):
        tape.backward(grads={z: ones(2)})


def test_looking_at_values_between_two_launches_is_no_change() -> None:
    t, y, z = leaf(1.0, 2.0), torch.zeros(2, dtype=torch.float64), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[t], outputs=[y])
        assert y.sum() == 5.0 and wb.from_torch(y).numpy().tolist() == [1.0, 4.0]
        wb.launch(grow, dim=2, inputs=[y])
        wb.from_torch(y)[0:1].zero_()
        assert wb.from_torch(y)[1] == 12.0
        wb.launch(twice, dim=2, inputs=[y], outputs=[z])
    tape.backward(grads={z: ones(2)})
    assert z.numpy().tolist() == [0.0, 24.0] and t.grad.tolist() == [0.0, 24.0]


def test_torch_notices_that_a_kernel_overwrote_what_it_saved() -> None:
    t, buffer = leaf(1.0, 2.0), torch.tensor([3.0, 4.0], dtype=torch.float64)
    z = (t * buffer).sum()
    wb.launch(grow, dim=2, inputs=[buffer])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_our_own_writes_are_not_taken_for_torch_s() -> None:
    t, y = leaf(1.0, 2.0), torch.zeros(2, dtype=torch.float64)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[t], outputs=[y])
        wb.launch(grow, dim=2, inputs=[t])
        wb.launch(grow, dim=2, inputs=[y])
    tape.backward(grads={wb.from_torch(y): ones(2)})
    assert t.grad.tolist() == [6.0, 12.0]
    assert t.tolist() == [3.0, 6.0] and y.tolist() == [3.0, 12.0]


# --- kernels as torch functions


def draw(*shape: int, seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, dtype=torch.float64, generator=g) + 0.3).requires_grad_()


def test_gradcheck_passes_for_one_output() -> None:
    f = wb.interop.torch.function(product, dim=4)
    assert torch.autograd.gradcheck(f, (draw(4), draw(4, seed=1)))


def test_gradcheck_passes_for_vectors_numbers_and_several_outputs() -> None:
    f = wb.interop.torch.function(
        scaled, dim=lambda x, s: x.shape[0], outputs=lambda x, s: [len(x), (len(x), wb.vec3d)]
    )
    x = draw(4, 3)
    n, v = f(x, 3.0)
    assert n.shape == (4,) and v.shape == (4, 3)
    assert torch.autograd.gradcheck(lambda x: f(x, 3.0), (x,))
    assert torch.autograd.gradcheck(lambda x: f(x, 3.0)[1], (x,))


def test_gradcheck_passes_for_views_that_torch_made() -> None:
    f = wb.interop.torch.function(rows, dim=(3, 2))
    assert torch.autograd.gradcheck(lambda t: f(t.T), (draw(2, 3),))
    assert torch.autograd.gradcheck(lambda t: f(t.expand(3, 2)), (draw(1, 2),))
    assert torch.autograd.gradcheck(lambda t: f(t[1:4, ::2]), (draw(5, 4),))


def test_every_argument_has_its_own_gradient_also_on_shared_memory() -> None:
    f = wb.interop.torch.function(product, dim=3)
    assert torch.autograd.gradcheck(lambda t: f(t, t), (draw(3),))
    assert torch.autograd.gradcheck(lambda t: f(t[:3], t[1:]), (draw(4),))
    t = draw(3)
    f(t, t.detach()).sum().backward()
    assert torch.equal(t.grad, torch.sin(t.detach()))


def test_tensors_in_structs_are_inputs() -> None:
    f = wb.interop.torch.function(of_pair, dim=3)
    assert torch.autograd.gradcheck(lambda a, b: f(Pair(a=a, b=b)), (draw(3), draw(3, seed=1)))


def test_calls_keep_apart_and_compose_with_torch() -> None:
    f = wb.interop.torch.function(square, dim=2)
    t = leaf(1.0, 2.0)
    z = f(torch.sin(f(t))) + f(t)
    z.sum().backward()
    v = t.detach()
    want = 2 * torch.sin(v * v) * torch.cos(v * v) * 2 * v + 2 * v
    assert torch.allclose(t.grad, want, rtol=0, atol=1e-15)


def test_the_graph_can_be_walked_again_only_if_it_is_retained() -> None:
    f = wb.interop.torch.function(square, dim=2)
    t = leaf(1.0, 2.0)
    y = f(t).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert t.grad.tolist() == [4.0, 8.0]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_an_expanded_and_shared_grad_output_is_copied() -> None:
    f = wb.interop.torch.function(square, dim=2)
    t = leaf(1.0, 2.0)
    b = t * 5.0
    g = torch.ones(1, dtype=torch.float64).expand(2)
    (b + f(t * 1.0)).backward(g)
    assert t.grad.tolist() == [7.0, 9.0]
    assert g.tolist() == [1.0, 1.0]


def test_whole_numbers_among_the_outputs_need_no_gradient() -> None:
    f = wb.interop.torch.function(count, dim=2)
    t = leaf(1.0, -2.0)
    y, c = f(t)
    assert c.tolist() == [1, 0] and not c.requires_grad and y.requires_grad
    y.sum().backward()
    assert t.grad.tolist() == [2.0, -4.0]


def test_an_unused_output_counts_nothing() -> None:
    f = wb.interop.torch.function(scaled, dim=2, outputs=[2, 2])
    x = draw(2, 3)
    f(x, 2.0)[0].sum().backward()
    assert torch.equal(x.grad, 4.0 * x.detach())


def test_without_grad_mode_nothing_is_followed() -> None:
    f = wb.interop.torch.function(square, dim=2)
    t = leaf(1.0, 2.0)
    with torch.no_grad():
        assert not f(t).requires_grad
    assert not f(t.detach()).requires_grad
    assert f(t).requires_grad


def test_an_open_tape_records_nothing_of_a_torch_function() -> None:
    f = wb.interop.torch.function(square, dim=2)
    t = leaf(1.0, 2.0)
    with wb.Tape() as tape:
        y = f(t)
        f(t.detach())
    assert len(tape) == 0
    y.sum().backward()
    assert t.grad.tolist() == [2.0, 4.0]


def test_an_input_changed_in_place_is_found_by_name() -> None:
    f = wb.interop.torch.function(square, dim=2)
    t = leaf(1.0, 2.0)
    u = t * 1.0
    y = f(u)
    u.mul_(3.0)
    with pytest.raises(wb.GradientError, match=r"(?s)'x' was changed by an in-place operation of torch.*'square'"):
        y.sum().backward()


def test_a_kernel_that_writes_its_input_is_refused() -> None:
    @wb.kernel
    def spoil(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        x[i] = F(0.0)
        y[i] = x[i]

    t = leaf(1.0, 2.0)
    with pytest.raises(wb.LaunchError, match="writes to 'x', an input"):
        wb.interop.torch.function(spoil, dim=2)(t)
    assert t.tolist() == [1.0, 2.0]


def test_a_constant_of_a_call_may_become_a_leaf_of_a_tape_before_backward() -> None:
    f = wb.interop.torch.function(product, dim=2)
    a, w, z = leaf(1.0, 2.0), leaf(3.0, 4.0), wb.zeros(2, dtype=F)
    y = f(a, w.detach())
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[w], outputs=[z])
    y.sum().backward()
    assert torch.equal(a.grad, torch.sin(w.detach())) and w.grad is None
    tape.backward(grads={z: ones(2)})
    assert w.grad.tolist() == [6.0, 8.0]


def test_what_does_not_fit_a_function_is_said() -> None:
    with pytest.raises(wb.LaunchError, match="needs the grid"):
        wb.interop.torch.function(thrice)(leaf(1.0, 2.0, 3.0))
    with pytest.raises(wb.LaunchError, match="leave 0 of the parameters"):
        wb.interop.torch.function(square, dim=2)(leaf(1.0), leaf(1.0))
    with pytest.raises(wb.LaunchError, match="its shape was given as"):
        wb.interop.torch.function(square, dim=2, outputs=[(2, 2)])(leaf(1.0, 2.0))
    with pytest.raises(wb.GradientError, match="array-in-function"):
        wb.interop.torch.function(square, dim=2)(wb.ones(2, dtype=F, requires_grad=True))


@pytest.mark.slow
def test_nothing_outlives_a_call_and_its_graph() -> None:
    f = wb.interop.torch.function(square, dim=2)
    t = leaf(1.0, 2.0)
    y = f(t)
    y.sum().backward()
    memories = [weakref.ref(a.allocation) for a in (*y.grad_fn.call.recorded.outputs, *y.grad_fn.call.recorded.inputs)]
    del y
    gc.collect()
    assert [ref() for ref in memories] == [None, None]


@wb.kernel
def bits(i32: wb.array(dtype=int), x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    i32[i] = 1065353216
    y[i] = x[i] * x[i]


def test_floats_whose_bytes_are_written_as_integers_have_no_gradient():
    t = torch.full((3,), 2.0)
    x, y = wb.from_torch(t, requires_grad=True), wb.zeros(3, dtype=float, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(bits, 3, inputs=[wb.from_torch(t.view(torch.int32)), x, y])
    with pytest.raises(wb.GradientError, match=r"\[two-types\]"):
        tape.backward(grads={y: wb.ones(3, dtype=float)})


@wb.kernel
def crowded(p: wb.array(dtype=wb.float64), x: wb.array(dtype=wb.float64), y: wb.array(dtype=wb.float64)):
    wb.tid()
    x[0] = p[0] * wb.float64(2.0)
    x[1] = p[0] * p[0] * wb.float64(3.0)
    y[0] = x[0] * x[0] * x[2]


def test_products_know_of_elements_that_are_one_number():
    p = wb.array([1.5], dtype=wb.float64, requires_grad=True)
    x = wb.from_torch(torch.zeros(1, dtype=torch.float64).expand(3), requires_grad=True)
    y = wb.zeros(1, dtype=wb.float64, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        wb.launch(crowded, 1, inputs=[p, x, y])  # 27 p**6
    assert np.allclose(wb.jvp(tape, {p: np.ones(1)})[y], 27 * 6 * 1.5**5)
    assert np.allclose(next(iter(wb.hvp(tape, y, {p: np.ones(1)}).values())), 27 * 30 * 1.5**4)
    wb.gradcheck(tape)


@wb.kernel
def thrice(x: wb.array(dtype=wb.float64), y: wb.array(dtype=wb.float64)):
    i = wb.tid()
    y[i] = x[0] * x[1] * x[2]


def test_a_direction_in_numbers_is_added_up_where_elements_are_one_number():
    x = wb.from_torch(torch.full((1,), 2.0, dtype=torch.float64).expand(3), requires_grad=True)
    y = wb.zeros(2, dtype=wb.float64, requires_grad=True)
    with wb.Tape(keep="all") as tape:
        wb.launch(thrice, 2, inputs=[x, y])
    assert wb.jvp(tape, {x: np.ones(3)})[y].tolist() == [36, 36]
    wb.gradcheck(tape)

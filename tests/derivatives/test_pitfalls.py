"""Mistakes on purpose: the historical wrong numbers where a program steps into them, the exact ones elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.derivatives import pitfalls

F = wb.float64


pytestmark = pytest.mark.usefixtures("backend")


@wb.kernel
def add3(x: wb.array(dtype=wb.vec3), y: wb.array(dtype=wb.vec3), z: wb.array(dtype=wb.vec3)):
    i = wb.tid()
    z[i] = x[i] + y[i]


@wb.struct
class Pair:
    a: wb.array(dtype=F)
    b: wb.array(dtype=F)


@wb.kernel
def in_struct(p: Pair):
    i = wb.tid()
    p.b[i] = p.a[i] * p.a[i]


@wb.kernel
def chain(x: wb.array(dtype=F), y: wb.array(dtype=F), z: wb.array(dtype=F), s: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i]
    z[i] = y[i]
    s[i] = z[i]


@wb.kernel
def by_component(a: wb.array2d(dtype=F), b: wb.array(dtype=wb.vec3d)):
    i = wb.tid()
    tmp = wb.vec3d()
    tmp[0] += a[i, 0]
    tmp[1] += a[i, 1]
    tmp[2] += a[i, 2]
    b[i] = tmp


@wb.kernel
def by_alias(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    a = x[i]
    b = a
    if b > F(0.0):
        b = b * F(3.0)
    y[i] = b


@wb.kernel
def square(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def total(x: wb.array(dtype=F), w: wb.array(dtype=F), s: wb.array(dtype=F)):
    i = wb.tid()
    wb.atomic_add(s, 0, w[i] * x[i])


@wb.kernel
def spread(s: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = F(i + 1) * s[0]


@wb.kernel
def in_a_loop(x: wb.array(dtype=F), y: wb.array(dtype=F), n: int):
    i = wb.tid()
    v = x[i]
    for _ in range(n):
        v = v * v
    y[i] = v


def leaf(values, dtype=F):
    return wb.array(np.asarray(values, float), dtype=dtype, requires_grad=True)


def ones(n, dtype=F):
    return wb.ones(n, dtype=dtype)


# ---- the founding programs


@pytest.mark.host_memory
def test_values_of_a_tensor_become_two(backend):
    torch = pytest.importorskip("torch", exc_type=ImportError)
    x, y = torch.ones(10, 3, requires_grad=True), wb.ones(10, dtype=wb.vec3, requires_grad=True)
    z = wb.zeros(10, dtype=wb.vec3)
    with wb.Tape() as tape:
        wb.launch(add3, dim=10, inputs=[x, y], outputs=[z])
    wrong = tape.backward(grads={z: wb.ones(10, dtype=wb.vec3)}, pitfall=pitfalls.values)
    assert (wrong[x] == 2).all() and (wrong[y] == 2).all()
    assert (x.detach() == 1).all() and x.grad is None and not y.grad.numpy().any()


@pytest.mark.host_memory
def test_a_struct_with_one_unmarked_array_gives_zeros():
    p = Pair(a=leaf([1.0, 2.0, 3.0]), b=wb.zeros(3, dtype=F))
    with wb.Tape() as tape:
        wb.launch(in_struct, dim=3, inputs=[p])
    grads = {p.b: ones(3)}
    assert not tape.backward(grads=grads, pitfall=pitfalls.struct_field)[p.a].any()
    tape.backward(grads=grads)
    assert p.a.grad.numpy().tolist() == [2, 4, 6]
    p = Pair(a=leaf([1.0, 2.0, 3.0]), b=leaf([0.0, 0.0, 0.0]))
    with wb.Tape() as tape:
        wb.launch(in_struct, dim=3, inputs=[p])
    assert tape.backward(grads={p.b: ones(3)}, pitfall=pitfalls.struct_field)[p.a].tolist() == [2, 4, 6]


@pytest.mark.host_memory
def test_several_outputs_seeded_one_after_the_other_give_one_two_four():
    x, y, z, s = leaf([5.0, 6.0]), *(wb.zeros(2, dtype=F) for _ in range(3))
    with wb.Tape() as tape:
        wb.launch(chain, dim=2, inputs=[x], outputs=[y, z, s])
    found = [tape.backward(grads={out: ones(2)}, pitfall=pitfalls.several_outputs)[x].tolist() for out in (y, z, s)]
    assert found == [[1, 1], [2, 2], [4, 4]]
    pitfalls.forget(tape)
    assert tape.backward(grads={y: ones(2)}, pitfall=pitfalls.several_outputs)[x].tolist() == [1, 1]
    for out in (y, z, s):
        x.grad.zero_()
        tape.backward(grads={out: ones(2)})
        assert x.grad.numpy().tolist() == [1, 1]


@pytest.mark.host_memory
def test_components_written_one_by_one_give_zeros():
    a, b = leaf(np.ones((4, 3))), wb.zeros(4, dtype=wb.vec3d)
    with wb.Tape() as tape:
        wb.launch(by_component, dim=4, inputs=[a], outputs=[b])
    assert not tape.backward(grads={b: ones(4, wb.vec3d)}, pitfall=pitfalls.components)[a].any()
    tape.backward(grads={b: ones(4, wb.vec3d)})
    assert (a.grad.numpy() == 1).all()


@pytest.mark.host_memory
def test_an_alias_gives_zeros():
    x, y = leaf([1.0, -2.0]), wb.zeros(2, dtype=F)
    with wb.Tape() as tape:
        wb.launch(by_alias, dim=2, inputs=[x], outputs=[y])
    assert not tape.backward(grads={y: ones(2)}, pitfall=pitfalls.alias)[x].any()
    tape.backward(grads={y: ones(2)})
    assert x.grad.numpy().tolist() == [3, 1]


@pytest.mark.host_memory
def test_overwritten_values_are_read_as_they_are_now():
    x, y = leaf([1.0, 2.0, 3.0]), wb.zeros(3, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, dim=3, inputs=[x], outputs=[y])
        x.fill_(10.0)
    assert tape.backward(grads={y: ones(3)}, pitfall=pitfalls.overwritten)[x].tolist() == [20, 20, 20]
    assert tape.backward(grads={y: ones(3)}) is None
    assert x.grad.numpy().tolist() == [2, 4, 6]
    assert x.numpy().tolist() == [10, 10, 10]


@pytest.mark.host_memory
def test_persistent_seeds_add_up_the_rows_of_a_jacobian():
    x, w, s = leaf([1.0, 1.0, 1.0]), wb.array([2.0, 4.0, 6.0], dtype=F), wb.zeros(1, dtype=F)
    y = wb.zeros(3, dtype=F)
    with wb.Tape() as tape:
        wb.launch(total, dim=3, inputs=[x, w], outputs=[s])
        wb.launch(spread, dim=3, inputs=[s], outputs=[y])
    rows = []
    for k in range(3):
        seed = wb.array(np.eye(3)[k], dtype=F)
        rows.append(tape.backward(grads={y: seed}, pitfall=pitfalls.persistent_seeds)[x].tolist())
    assert rows == [[2, 4, 6], [6, 12, 18], [12, 24, 36]]
    assert wb.jacobian(tape, y, x).tolist() == [[2, 4, 6], [4, 8, 12], [6, 12, 18]]


@pytest.mark.host_memory
def test_a_frozen_loop_uses_the_last_value_in_every_turn():
    x, y = leaf([1.1]), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(in_a_loop, dim=1, inputs=[x, y, 3])
    wrong = tape.backward(grads={y: ones(1)}, pitfall=pitfalls.frozen_loops)[x]
    np.testing.assert_allclose(wrong, [(2 * 1.1**4) ** 3], rtol=1e-13)
    tape.backward(grads={y: ones(1)})
    np.testing.assert_allclose(x.grad.numpy(), [8 * 1.1**7], rtol=1e-13)


@pytest.mark.host_memory
def test_an_unmarked_array_in_the_middle_stops_everything():
    x, y, z = leaf([1.0, 2.0]), wb.zeros(2, dtype=F), wb.zeros(2, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(square, dim=2, inputs=[x], outputs=[y])
        wb.launch(square, dim=2, inputs=[y], outputs=[z])
    assert not tape.backward(grads={z: ones(2)}, pitfall=pitfalls.missing_requires_grad)[x].any()
    tape.backward(grads={z: ones(2)})
    assert x.grad.numpy().tolist() == [4, 32]


# ---- what they leave alone


@wb.kernel
def healthy(x: wb.array(dtype=F), y: wb.array(dtype=F)):
    i = wb.tid()
    y[i] = wb.sin(x[i]) * x[i]


@pytest.mark.parametrize("pitfall", [p for p in pitfalls.ALL if p.name != "values"], ids=lambda p: p.name)
@pytest.mark.host_memory
def test_a_program_without_the_trap_has_its_exact_gradient(pitfall):
    x = leaf([0.3, 0.7, 1.1])
    y, z = (wb.zeros(3, dtype=F, requires_grad=True) for _ in range(2))
    with wb.Tape() as tape:
        wb.launch(healthy, dim=3, inputs=[x], outputs=[y])
        wb.launch(healthy, dim=3, inputs=[y], outputs=[z])
    before = x.grad.numpy().copy()
    wrong = tape.backward(grads={z: ones(3)}, pitfall=pitfall)
    np.testing.assert_array_equal(x.grad.numpy(), before)
    tape.backward(grads={z: ones(3)})
    np.testing.assert_allclose(wrong[x], x.grad.numpy(), rtol=1e-13)
    assert wrong[x].any()


@pytest.mark.parametrize("pitfall", pitfalls.ALL, ids=lambda p: p.name)
@pytest.mark.host_memory
def test_no_gradient_of_the_user_is_ever_touched_and_every_view_says_wrong(pitfall):
    x, y = leaf([1.0, -2.0]), wb.zeros(2, dtype=F, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(by_alias, dim=2, inputs=[x], outputs=[y])
    x.grad.fill_(7.0), y.grad.fill_(5.0)
    wrong = tape.backward(grads={y: ones(2)}, pitfall=pitfall)
    assert (x.grad.numpy() == 7).all() and (y.grad.numpy() == 5).all() and not tape.last_seeds
    said = f"WRONG ON PURPOSE: pitfall {pitfall.name}"
    assert said in repr(wrong) and said in wrong.show().svg and said in repr(wrong.show())
    assert set(wrong) == {x, y}


def test_a_pitfall_is_named_or_refused():
    x, y = leaf([1.0]), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(square, dim=1, inputs=[x], outputs=[y])
    with pytest.raises(TypeError, match=r"one of wb.pitfalls: values, struct_field"):
        tape.backward(grads={y: ones(1)}, pitfall="alias")


@pytest.mark.host_memory
def test_without_a_text_there_are_no_aliases():
    x = leaf([1.0, 2.0])
    with wb.Tape() as tape:
        y = x * x
    wrong = tape.backward(grads={y: ones(2)}, pitfall=pitfalls.alias)
    np.testing.assert_allclose(wrong[x], 2 * x.numpy())


@pytest.mark.parametrize("pitfall", pitfalls.ALL, ids=lambda p: p.name)
def test_memory_is_as_it_was_also_behind_a_checkpointed_loop(pitfall):
    @wb.kernel
    def square(x: wb.array(dtype=wb.float64)):
        i = wb.tid()
        x[i] = x[i] * x[i]

    @wb.checkpoint(steps=3, budget=2)
    def squares(k, x):
        wb.launch(square, dim=x.shape, inputs=[x], device="cpu")

    x = wb.array([1.1, 0.9, 1.2], dtype=wb.float64, requires_grad=True, device="cpu")
    with wb.Tape() as tape:
        squares(x)
    before = x.numpy().copy()
    tape.backward(grads={x: wb.ones_like(x)}, pitfall=pitfall)
    assert np.array_equal(x.numpy(), before)


def test_a_mistake_on_purpose_is_refused_in_a_capture():
    x, y = wb.ones(2, dtype=wb.vec3, requires_grad=True), wb.zeros(2, dtype=wb.vec3)
    with wb.Tape() as tape:
        wb.launch(add3, 2, [x, x], [y])
    with pytest.raises(wb.LaunchError, match=r"A pitfall inside wb.capture\(\)"), wb.capture():
        tape.backward(grads={y: wb.ones_like(y)}, pitfall="accumulate")

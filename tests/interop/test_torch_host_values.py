"""What torch computes between `to_torch` and `from_torch` under a tape: refused where a gradient would end there."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import workbench as wb
from tests.support.host_steps import Kind, X, check, run

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.needs_torch, pytest.mark.usefixtures("backend")]


def doubled(t):
    return wb.from_torch(t * 2)


def summed(t):
    return wb.from_torch(torch.sin(t).sum().reshape(1) + t)


def joined(t):
    return wb.from_torch(torch.cat([t, t]))


def copied(t):
    return wb.from_torch(t.clone())


def copied_into(t):
    p = torch.zeros(3, dtype=t.dtype)
    p.copy_(t)
    return wb.from_torch(p)


def by_numpy(t):
    return wb.array((t * 2).numpy())


def by_values(t):
    z = wb.zeros(3, dtype=wb.dtype_from_torch(t.dtype))
    z.assign(t * 2)
    return z


def by_item(t):
    return wb.full(3, t.sum().item(), dtype=wb.dtype_from_torch(t.dtype))


def launched(t):
    return t + 1


STEPS = [doubled, summed, joined, copied, copied_into, by_numpy, by_values, by_item, launched]


def step_of(f):
    return lambda kind, y: f(wb.to_torch(y))


@pytest.mark.parametrize("f", STEPS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("bits", [32, 64])
def test_what_torch_computed_is_refused(f, bits):
    kind, tape = Kind(bits), wb.Tape()
    x, w = run(kind, step_of(f), X, tape)
    with pytest.raises(wb.GradientError) as found:
        tape.backward(grads={w: kind.ones(len(w))})
    assert found.value.slug == "host-values" and "read at" in found.value.what and "to_torch(y)" in found.value.what
    assert found.value.where is not None


def test_an_unchanged_tensor_stays_the_memory_itself():
    check(Kind(64), lambda kind, y: wb.from_torch(wb.to_torch(y)))
    check(Kind(32), lambda kind, y: wb.from_torch(wb.to_torch(y)[:2]))


def test_what_torch_changes_in_place_is_refused():
    kind = Kind(64)
    for change in (lambda t: t.mul_(2), lambda t: t.__setitem__(0, 3.0), lambda t: t.add_(t)):
        x = wb.array(X, dtype=wb.float64, requires_grad=True)
        with wb.Tape() as tape:
            y = kind.squared(x)
            change(wb.to_torch(y))
        with pytest.raises(wb.GradientError):
            tape.backward(grads={y: kind.ones()})


def test_a_detached_tensor_ends_the_gradient():
    kind, tape = Kind(64), wb.Tape()
    x, w = run(kind, lambda kind, y: wb.from_torch(wb.detach(wb.to_torch(y) * 2)) * y, X, tape)
    tape.backward(grads={w: kind.ones()})
    v = np.array(X)
    np.testing.assert_allclose(x.grad.numpy(), 2 * (2 * v**4) * (2 * v**2) * 2 * v)


def test_outside_of_a_tape_tensors_are_plain():
    y = wb.ones(3)
    assert type(wb.to_torch(y)) is torch.Tensor
    with wb.Tape():
        t = wb.to_torch(y)
        assert repr(t) and float(t[0]) == 1 and t.tolist() == [1, 1, 1]
        assert type(pickle.loads(pickle.dumps(t))) is torch.Tensor
        assert copy.deepcopy(t).tolist() == [1, 1, 1]

"""`tape.gradients[s]` of an instance of a struct."""

import pytest

import workbench as wb


@wb.struct
class Inner:
    v: wb.array[wb.vec2]


@wb.struct
class S:
    a: wb.array[float]
    n: wb.array[int]
    b: float
    inner: Inner


@wb.kernel
def k(s: S, out: wb.array[float]):
    i = wb.tid()
    out[i] = s.a[i] * s.a[i] * s.b + wb.dot(s.inner.v[i], s.inner.v[i])


def test_the_gradients_of_its_fields_are_found_by_the_instance():
    a, v = wb.array([1.0, 2.0], requires_grad=True), wb.ones(2, dtype=wb.vec2, requires_grad=True)
    s = S(a=a, n=wb.zeros(1, dtype=int), b=3.0, inner=Inner(v=v))
    out = wb.zeros(2)
    with wb.Tape() as tape:
        wb.launch(k, 2, [s], [out])
    tape.backward(grads={out: wb.ones(2)})
    found = tape.gradients[s]
    assert found.a is a.grad and found.inner.v is v.grad and found.n is None
    assert found.a.numpy().tolist() == [6, 12] and found.inner.v.numpy().tolist() == [[2, 2], [2, 2]]
    assert s in tape.gradients and s.inner in tape.gradients and tape.gradients.get(s) is not None
    assert tape.gradients[a] is a.grad and a in tape.gradients
    with pytest.raises(AttributeError, match="For the gradient of a number"):
        _ = found.b
    other = S(a=wb.ones(1), b=1.0)
    assert other not in tape.gradients and tape.gradients.get(other) is None
    with pytest.raises(KeyError):
        tape.gradients[other]
    assert "a=array([ 6., 12.]" in repr(found)

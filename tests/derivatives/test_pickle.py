"""Arrays, structs, scalars, kernels and tapes go through pickle and copy: gradients are the same where they arrive."""

from __future__ import annotations

import copy
import ctypes
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import workbench as wb

ROOT = Path(wb.__file__).parents[1]
SECONDS = 120

MAKER = """
import pickle, sys
import numpy as np
import workbench as wb

folder, wb.config.backend, keep = sys.argv[1:]
SCALE = wb.constant(3.0)

@wb.func
def cube(v: float):
    return v * v * v

@wb.func_grad(cube)
def adj_cube(v: float, g: float):
    wb.adjoint[v] += 3.0 * v * v * g

@wb.struct
class Body:
    x: wb.array[float]
    mass: float

@wb.kernel
def push(b: Body, k: float, y: wb.array[float]):
    i = wb.tid()
    y[i] = cube(b.x[i]) * b.mass * SCALE * k

x = wb.array([1.0, 2.0, -1.5], requires_grad=True, name="x")
k = wb.scalar(0.5, requires_grad=True)
y, z = wb.zeros(3), wb.zeros(3)
body = Body(x=x, mass=2.0)
tape = wb.Tape(keep=keep)
with tape:
    with tape.scope("steps"):
        wb.launch(push, 3, [body, k], [y])
        z.assign(y)
        z *= y
        y.fill_(0.0)
def save(name, thing):
    with open(f"{folder}/{name}.pickle", "wb") as file:
        pickle.dump(thing, file)
saved = lambda: dict(tape=tape, x=x, y=y, z=z, k=k, body=body, tail=x[1:], push=push, vector=wb.vec3(1.0, 2.0, 3.0))
save("before", saved())
tape.backward(grads={z: wb.ones(3)})
save("after", saved())
save("gradients", [x.grad.numpy(), k.grad.numpy(), tape.adjoint(x), str(tape.ledger(x, 1)), str(tape.diagnose())])
"""

LOADER = """
import json, pickle, sys
import numpy as np
import workbench as wb

folder, wb.config.backend = sys.argv[1:]
def load(name):
    with open(f"{folder}/{name}.pickle", "rb") as file:
        return pickle.load(file)
out = {}
for name in ("before", "after"):
    s = load(name)
    tape, x, y, z, k, tail = (s[n] for n in ("tape", "x", "y", "z", "k", "tail"))
    found = out[name] = {}
    found["start"] = [x.grad.list(), x.requires_grad, x.name, str(x.dtype), x.shape, y.requires_grad]
    found["shared"] = s["body"].x.allocation is x.allocation and tail.allocation is x.allocation
    found["body"] = [type(s["body"]).__name__, float(s["body"].mass), s["body"].x.list()]
    found["vector"] = [str(s["vector"].type), s["vector"].tolist()]
    tape.show().save(f"{folder}/{name}.svg")
    found["shown"] = "push" in open(f"{folder}/{name}.svg").read()
    found["scopes"] = [scope.name for scope in tape.scopes]
    if name == "after":
        found["results"] = [tape.adjoint(x).tolist(), str(tape.ledger(x, 1)), str(tape.diagnose())]
    tape.zero()
    tape.backward(grads={z: wb.ones(3)})
    found["gradients"] = [x.grad.list(), k.grad.list()]
    tape.zero()
    tape.backward(grads={z: wb.full(3, 2.0)})
    found["twice"] = x.grad.list()
    found["jacobian"] = wb.jacobian(tape, z, x).tolist()
    again = wb.zeros(3)
    wb.launch(s["push"], 3, [s["body"], 0.5], [again])
    found["launched"] = again.list()
    found["source"] = "cube(b.x[i])" in str(s["push"].source)
    if tape.keep == "all":
        found["replay"] = tape.replay({x: np.zeros(3)})[z].list()
        found["gradcheck"] = bool(wb.gradcheck(tape))
    x.fill_(7.0)
    try:
        tape.zero()
        tape.backward(grads={z: wb.ones(3)})
        found["changed"] = x.grad.list()
    except wb.GradientError as error:
        found["changed"] = error.slug
print(json.dumps(out, default=float))
"""


def run(folder: Path, text: str, *arguments: str) -> str:
    script = folder / "script.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script), str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("keep", ["needed", "all"])
@pytest.mark.host_memory
def test_a_saved_tape_is_loaded_by_another_process_before_and_after_backward(backend, tmp_path, keep):
    run(tmp_path, MAKER, backend, keep)
    found = json.loads(run(tmp_path, LOADER, backend))
    with open(tmp_path / "gradients.pickle", "rb") as file:
        gx, gk, adjoint, ledger, findings = pickle.load(file)
    x, c = np.array([1.0, 2.0, -1.5]), 2.0 * 3.0 * 0.5
    np.testing.assert_allclose(gx, 2 * c * c * 3 * x**5, rtol=1e-5)  # of (c x^3)^2
    for name in ("before", "after"):
        f = found[name]
        held = [0.0] * 3 if name == "before" else gx.tolist()
        assert f["start"] == [held, True, "x", "float32", [3], False]
        assert f["shared"] and f["source"] and f["body"] == ["Body", 2.0, x.tolist()] and f["scopes"] == ["steps"]
        assert f["vector"] == ["vec3", [1.0, 2.0, 3.0]] and f["shown"]
        np.testing.assert_array_equal(f["gradients"][0], gx)
        np.testing.assert_array_equal(f["gradients"][1], gk)
        np.testing.assert_array_equal(f["twice"], 2 * gx)
        np.testing.assert_allclose(np.diag(f["jacobian"]), gx, rtol=1e-6)
        np.testing.assert_allclose(f["launched"], c * x**3, rtol=1e-6)
        np.testing.assert_array_equal(f["changed"], gx)  # a walked tape keeps what is overwritten
        if keep == "all":
            assert f["replay"] == [0.0] * 3 and f["gradcheck"]
    np.testing.assert_array_equal(found["after"]["results"][0], adjoint)
    loaded, diagnosed = found["after"]["results"][1:]
    here = re.sub(r"s\['(\w+)'\]", r"\1", diagnosed)  # the loader's name for what the maker calls z
    assert loaded == ledger and here == findings


# ---- in this process


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.struct
class Pair:
    a: wb.array[float]
    b: wb.array[float]
    n: int


def through(thing):
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("again", [through, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_an_array_keeps_all_that_it_is(again):
    x = wb.array([[1.0, 2.0], [3.0, 4.0]], dtype=wb.vec2, requires_grad=True, name="x")
    x.grad.fill_(5.0)
    y = again(x)
    assert (y.dtype, y.shape, y.name, y.requires_grad) == (wb.vec2, (2,), "x", True)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    np.testing.assert_array_equal(y.grad.numpy(), x.grad.numpy())
    y.fill_(0.0)
    assert x.numpy().all() and not wb.zeros(2).requires_grad
    for dtype in (wb.float16, wb.float64, wb.int32, wb.uint8, wb.quat, wb.mat33d, wb.bool):
        z = wb.ones((2, 3), dtype=dtype)
        assert again(z).dtype is z.dtype and again(z).shape == (2, 3)
        np.testing.assert_array_equal(again(z).numpy(), z.numpy())


@pytest.mark.parametrize("again", [through, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_views_and_structs_that_travel_together_share_memory(again):
    x = wb.array(np.arange(6.0, dtype=np.float32), requires_grad=True)
    pair = Pair(a=x, b=x[2:4], n=3)
    view, whole, other = again((x[::2], x, pair))
    whole.fill_(9.0)
    assert view.list() == [9.0] * 3 and other.b.list() == [9.0] * 2 and other.a.allocation is whole.allocation
    assert x.list() == list(range(6)) and other.n == 3 and isinstance(other, type(pair))
    assert other.b.requires_grad and again(wb.scalar(2.0, requires_grad=True)).requires_grad


def test_a_shallow_copy_of_a_struct_has_the_same_arrays_and_fields_of_its_own():
    pair = Pair(a=wb.ones(2), b=wb.ones(2), n=3)
    other = copy.copy(pair)
    other.n = 4
    assert other.a is pair.a and pair.n == 3


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copy_under_a_tape_is_an_event_and_cuts_no_gradient(backend, how):
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3)
    with wb.Tape() as tape:
        c = how(x)
        wb.launch(square, 3, [c], [y])
    tape.backward(grads={y: wb.ones(3)})
    np.testing.assert_array_equal(x.grad.numpy(), [2, 4, 6])
    c.fill_(0.0)
    assert x.numpy().all()


def test_a_deep_copy_under_a_tape_that_would_part_shared_memory_is_refused(backend):
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(2)
    with wb.Tape() as tape:
        with pytest.raises(wb.LaunchError, match=r"share memory(.|\n)*deepcopy"):
            copy.deepcopy([x, x[1:]])
        a, b, same = copy.deepcopy([x[:1], x[1:], x[1:]][:2] + [x[:0]])
        wb.launch(square, 2, [b], [y])
    tape.backward(grads={y: wb.ones(2)})
    np.testing.assert_array_equal(x.grad.numpy(), [0, 4, 6])


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, through])
@pytest.mark.host_memory
def test_a_copied_tape_stands_on_memory_of_its_own(backend, how):
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True, name="x"), wb.zeros(3, name="y")
    with wb.Tape() as tape:
        wb.launch(square, 3, [x], [y])
    other = how(tape)
    ours = {a.name: a for a in other.arrays.values()}
    x.fill_(0.0)
    other.backward(grads={ours["y"]: wb.ones(3)})
    np.testing.assert_array_equal(ours["x"].grad.numpy(), [2, 4, 6])
    assert not x.grad.numpy().any()
    third = how(other)
    ours = {a.name: a for a in third.arrays.values()}
    ours["x"].numpy()[:] = 5.0  # behind its back, through memory that it shows now
    with pytest.raises(wb.GradientError, match="overwritten"):
        third.backward(grads={ours["y"]: wb.ones(3)})


@pytest.mark.host_memory
def test_what_cut_a_gradient_is_refused_where_the_tape_arrives(backend):
    x, y, z = wb.array([1.0, 2.0], requires_grad=True, name="x"), wb.zeros(2, name="y"), wb.zeros(2, name="z")
    with wb.Tape() as tape:
        wb.launch(square, 2, [x], [y])
        z.assign(y.numpy() / 2.0)
    other = through(tape)
    ours = {a.name: a for a in other.arrays.values()}
    with pytest.raises(wb.GradientError, match="host-values"):
        other.backward(grads={ours["z"]: wb.ones(2)})


def test_a_tape_with_a_function_of_the_user_says_that_it_cannot():
    x = wb.ones(2, requires_grad=True)
    with wb.Tape() as tape:
        tape.record_func(lambda: None, [x])
    with pytest.raises(wb.GradientError, match=r"function of yours(.|\n)*travel"):
        pickle.dumps(tape)


def test_kernels_and_funcs_are_copied_as_themselves_and_travel_as_source():
    assert copy.deepcopy(square) is square and copy.copy(wb.vec3) is wb.vec3
    y = wb.zeros(2)
    wb.launch(through(square), 2, [wb.full(2, 3.0)], [y])
    assert y.list() == [9.0, 9.0] and through(wb.vec3) is wb.vec3 and through(Pair) == Pair


@wb.kernel
def twice(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = 2.0 * x[i]


@pytest.mark.host_memory
@pytest.mark.parametrize("loaded", [False, True])
def test_what_a_tape_started_from_is_not_replayed_when_it_was_changed_unseen(loaded):
    """The adjoint needs no number of x, but a replay does."""
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True, name="x"), wb.zeros(3)
    with wb.Tape(keep="all") as tape:
        wb.launch(twice, 3, [x, y])
    if loaded:
        tape = pickle.loads(pickle.dumps(tape))
        x = next(a for a in tape.arrays.values() if a.requires_grad)
    at = ctypes.cast(x.ptr, ctypes.POINTER(ctypes.c_float))
    tape.replay()
    at[1] = 7.0
    with pytest.raises(wb.GradientError, match=r"'x' was changed behind the tape's back(.|\n)*\[overwritten\]"):
        tape.replay()


@pytest.mark.parametrize("many", [1, 2])
def test_what_went_through_a_pickle_under_a_tape_says_that_its_gradient_ends(many):
    x = wb.array([1.1234, 2.2345, 3.3456], requires_grad=True)
    with wb.Tape() as tape:
        y = x * x
        again = pickle.loads(pickle.dumps([y] * many))[-1]
        z = again + x
    with pytest.warns(UserWarning, match=r"again got values equal to what was read from y, read at .*test_pickle"):
        tape.backward(grads={z: wb.ones(3)})
    assert x.grad.list() == [1, 1, 1]
    assert pickle.loads(pickle.dumps(y)).list() == y.list()  # outside of tapes without a word

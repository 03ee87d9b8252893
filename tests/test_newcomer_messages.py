"""The mistakes of a first week: each is refused where it is made, and the message holds the line to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import workbench as wb

PACKAGE = Path(wb.__file__).parent


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def squares64(x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@wb.kernel
def lengths(p: wb.array[wb.vec3], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.length_sq(p[i])


@wb.kernel
def scaled(a: float, x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = a * x[i]


@wb.struct
class Body:
    x: wb.array[float]
    mass: float


@wb.kernel
def weigh(body: Body, y: wb.array[float]):
    i = wb.tid()
    y[i] = body.x[i] * body.mass


class Scene:
    """What the lines of the table see: three numbers squared under a tape, and more of the like."""

    def __init__(self):
        self.x = wb.array([1.0, 2.0, 3.0], requires_grad=True, name="x")
        self.y = wb.zeros(3, name="y")
        self.tape = wb.Tape()
        with self.tape:
            wb.launch(square, 3, [self.x], [self.y])
        self.k, self.body, self.p = square, Body(), wb.zeros((4, 3), name="p")
        self.p4, self.x64 = wb.zeros((4, 4), name="p4"), wb.zeros(3, dtype=wb.float64, name="x64")
        self.lengths, self.scaled, self.weigh, self.squares64, self.Body = lengths, scaled, weigh, squares64, Body
        self.wb, self.np = wb, np

    def run(self, line: str) -> None:
        exec(line, {**vars(self), "loss": lambda x: wb.map(wb.sin, x)})


# the line, its slug (or the error, where Python has the kind), and words of the message
MISTAKES = [
    # backward
    ("tape.backward(grads=[y])", "seed-type", "a dict {array: seed}, not list", "backward(grads={y: wb.ones_like(y)})"),
    ("tape.backward(grads=y)", "seed-type", "a dict {array: seed}, not array y", "backward(grads={y: wb.ones_like"),
    ("tape.backward([x, y])", "seed-type", "not list", "{x: wb.ones_like(x), y: wb.ones_like(y)}"),
    ("tape.backward({y: wb.ones(3)})", "seed-type", "an array, not dict", "backward(grads={y: seed})"),
    ("tape.backward(3.0)", "seed-type", "an array, not float 3.0", "left the tape", "backward(loss)"),
    ("tape.backward(y.numpy().sum())", "seed-type", "left the tape", "backward(loss)"),
    ("tape.backward(wb.scalar(1.0))", "seed-type", "an input of launches", "backward(loss)"),
    ("tape.backward(grads={})", "no-seed", "empty", "backward(grads={y: wb.ones_like(y)})"),
    ("tape.backward(grads={'y': wb.ones(3)})", "seed-type", "str 'y'", "y, the array, without quotes"),
    ("tape.backward(grads={y: 1.0})", "seed-type", "the seed of y is a float", "wb.full_like(y, 1.0)"),
    ("tape.backward(grads={y: np.ones(3)})", "seed-type", "the seed of y", "wb.array(seed, dtype=wb.float32)"),
    ("tape.backward(y)", "loss-shape", "(3,)", "grads={y: seed}"),
    # launch
    ("wb.launch(k, 3, x, [y])", "argument-list", "inputs is a list", "the array x", "inputs=[x]"),
    ("wb.launch(k, 3, [x], y)", "argument-list", "outputs is a list", "the array y", "outputs=[y]"),
    ("wb.launch(scaled, 1, wb.ones(1), [x, y])", "argument-list", "inputs is a list", "inputs=["),
    ("wb.launch(k, 3, np.ones(3, np.float32), [y])", "argument-list", "inputs=["),
    ("wb.launch(weigh, 3, body, [y])", "argument-list", "inputs=["),
    ("wb.launch(scaled, 3, 2.0, [x, y])", "argument-list", "float 2.0", "inputs=["),
    ("wb.launch(k, [x], 3, [y])", "argument-list", "int 3"),
    ("wb.launch(k, x, [x], [y])", "dim", "dim=array", "x.shape"),
    ("wb.launch(k, 3, [np.ones(3)], [y])", "argument-type", "float64", "from_numpy(..., dtype=wb.float32)", "copies"),
    ("wb.launch(lengths, 4, [np.ones((4, 3))], [wb.zeros(4)])", "argument-type",
     "from_numpy(..., dtype=wb.vec3)"),
    ("wb.launch(lengths, 4, [p], [wb.zeros(4)])", "argument-dtype", "shape (4, 3)", "p.view(wb.vec3)"),
    ("wb.launch(lengths, 4, [p4], [wb.zeros(4)])", "argument-dtype", "wb.array(values, dtype=wb.vec3)", "(n, 3)"),
    ("wb.launch(k, 4, [wb.zeros(4, dtype=wb.vec3)], [wb.zeros(4)])", "argument-dtype", "x.view(wb.float32).flatten()"),
    ("wb.launch(squares64, 3, [x], [x64])", "argument-dtype", "takes array(dtype=float64), got dtype float32",
     "dtype=wb.float64) where x is made", "wb.float64(v)"),
    ("wb.launch(k, 3, [x64], [y])", "argument-dtype", "got dtype float64", "wb.float32(v)"),
    ("wb.launch(k, 3, [wb.array([1, 2, 3])], [y])", "argument-dtype", "int32", "wb.float32(v)"),
    ("wb.launch(scaled, 3, [x, 2.0], [y])", "argument-type", "'a'", "the array x", "wb.scalar(value"),
    ("wb.launch(k, 3, [wb.scalar(1.0)], [y])", "argument-type", "x: float32 in the kernel"),
    ("wb.launch(weigh, 3, [Body], [y])", "argument-type", "Body(...), an instance"),
    ("wb.launch(weigh, 3, [dict(x=x)], [y])", "argument-type", "Body(...), an instance"),
    ("wb.launch(weigh, 3, [body], [y])", "array-left-out", "must be assigned before the launch"),
    ("k(x, y)", TypeError, "wb.launch(square, dim=n"),
    # arrays
    ("wb.zeros((2**40, 2**40))", "memory", "PiB of memory", "a smaller shape"),
    ("wb.zeros(2**45)", "memory", "128 TiB of memory"),
    ("wb.zeros(2**80)", "memory", "of memory cannot be had"),
    ("wb.zeros(3, 4)", "dtype", "4 is not a dtype"),
    ("x == y", "array-comparison", "x is y", "x.numpy() == y.numpy()"),
    ("x != y", "array-comparison", "x is y", "x.numpy() != y.numpy()"),
    ("x == 3.0", "array-comparison", "x.numpy() == ..."),
    ("x < 1.0", "array-comparison", "x.numpy() < ..."),
    ("x >= y", "array-comparison", "x.numpy() >= y.numpy()"),
    ("x == np.ones(3)", "array-comparison", "x.numpy() == ..."),
    ("float(x)", "shape", "3 elements, not one"),
    ("x.sum()", AttributeError, "wb.utils.array_sum(x)"),
    ("x.astype(float)", AttributeError, "a kernel that casts"),
    ("x.copy()", AttributeError, "wb.clone(x)"),
    ("x.cpu()", AttributeError, "x.numpy()"),
    ("x.zero_grad()", AttributeError, "x.grad.zero_()"),
    ("x.backward()", AttributeError, "tape.backward(loss), then x.grad"),
    ("wb.sin(x)", TypeError, "wb.map(f, x)"),
    ("wb.map(np.sin, x)", "map-func", "wb.map(wb.sin, ...)"),
    ("wb.map(wb.sin, np.ones(3))", "map-arrays", "from_numpy"),
    ("wb.from_numpy([1.0, 2.0])", "argument-type", "wb.array(data)"),
    ("wb.clone(np.ones(3))", "argument-type", "wb.array(data)"),
    ("wb.zeros_like(np.ones(3))", "argument-type", "wb.zeros(data.shape"),
    ("wb.copy(y, np.ones(3))", "argument-type", "dest.assign(values)"),
    ("y.fill_(np.ones(3))", "components", "one value of float32", "x.assign(values)"),
    ("wb.scalar([1.0, 2.0])", "components", "one value of float32"),
    # structs
    ("body.x = np.ones(3)", "struct-field", "Body.x takes an array(", "wb.from_numpy(..., dtype=wb.float32)"),
    ("body.x = [1.0, 2.0]", "struct-field", "not list", "wb.array(..., dtype=wb.float32)"),
    ("body.x = x64", "struct-field", "not one of float64"),
    ("body.mass = wb.ones(1)", TypeError, "Body.mass takes a float32, not array of shape (1,)"),
    ("body.weight = 1.0", AttributeError, "it has x, mass"),
    ("@wb.struct\nclass Ball:\n    mass: float = 1.0", TypeError, "has a default value"),
    # what a tape is asked
    ("wb.jacobian(tape, x, y)", "jacobian-order", "only read x", "jacobian(tape, y, x)"),
    ("wb.jacobian(y, x, tape)", "tape-type", "a tape first", "jacobian(tape, y, x)"),
    ("wb.jacobian(k, y, x)", "tape-type", "with wb.Tape() as tape"),
    ("wb.jvp(tape, x)", "seed-type", "{array: direction}", "jvp(tape, {x: v})"),
    ("wb.jvp(x, tape)", "tape-type", "jvp(tape, {x: v})"),
    ("wb.hvp(tape, y, np.ones(3))", "seed-type", "hvp(tape, loss, {x: v})"),
    ("wb.hvp(y, tape, {x: np.ones(3)})", "tape-type", "hvp(tape, loss, {x: v})"),
    ("tape.replay(x)", "seed-type", "tape.replay({x: values})"),
    ("tape.adjoint('x')", "no-seed", "tape.backward(loss)"),
    ("tape.zero_grad()", AttributeError, "tape.zero()"),
    ("tape.gradient(y, x)", AttributeError, "tape.backward(loss), then x.grad"),
    ("tape.watch(x)", AttributeError, "x.requires_grad = True"),
    ("tape.record_func([x], lambda: None)", "record-func", "a function first"),
    ("tape.record_func(lambda: None, x)", "record-func", "a list of arrays", "record_func(backward, [x, y])"),
    ("tape.record_func(lambda: None, [3.0])", "record-func", "arrays, not float"),
    ("tape.record_func(lambda g: None, [x])", "record-func", "without arguments", "def backward()"),
    ("wb.value_and_grad(k)", TypeError, "a function that launches square"),
    ("wb.value_and_grad(loss)(np.ones(3))", "loss-shape", "shape (3,)", "array_sum"),
    ("wb.value_and_grad(loss)('abc')", TypeError, "arrays of numbers"),
    ("wb.value_and_grad(loss, argnums=1)(np.ones(3))", TypeError, "counted from 0"),
    ("wb.sweep(3, [1.0])", TypeError, "sweep(fn, inputs)"),
    ("with wb.capture() as g: x.numpy()", "capture", "the same line after the `with wb.capture()` block"),
    ("with wb.capture() as g: g.replay()", "capture", "graph.replay() after the `with` block"),
]  # fmt: skip


@pytest.mark.parametrize("line, kind, words", [(m[0], m[1], m[2:]) for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_told_with_the_way_out(line, kind, words):
    errors = (wb.LaunchError, wb.GradientError) if isinstance(kind, str) else kind
    with pytest.raises(errors) as caught:
        Scene().run(line)
    text = str(caught.value)
    if isinstance(kind, str):
        assert caught.value.slug == kind
    missing = [w for w in words if w not in text]
    assert not missing, text


@pytest.mark.parametrize("line", [
    "wb.launch(lengths, 4, [p.view(wb.vec3)], [wb.zeros(4)])", "tape.backward(grads={y: wb.ones_like(y)})",
    "wb.launch(k, 3, [wb.from_numpy(np.ones(3, np.float32))], [y])",
    "wb.launch(k, 3, [np.ones(3, np.float32)], [y])",
    "wb.launch(k, 3, (x,), (y,))", "wb.launch(k, 3, [x, y])", "wb.jacobian(tape, y, x)", "float(wb.ones(1))",
    "wb.launch(k, 12, [wb.zeros(4, dtype=wb.vec3).view(wb.float32).flatten()], [wb.zeros(12)])",
    "wb.launch(k, 3, inputs=(a for a in (x, y)))", "assert x is x and (x == None) is False and x in [x]",
    "wb.launch(k, x.shape, [x], [y])", "assert {x: 1}[x] == 1 and hash(x) != hash(y)",
])  # fmt: skip
def test_the_way_out_works(backend, line):
    Scene().run(line)


def test_an_adjoint_of_what_the_tape_never_saw():
    s = Scene()
    s.tape.backward(grads={s.y: wb.ones(3)})
    with pytest.raises(wb.GradientError, match="seed-untouched"):
        s.tape.adjoint(wb.ones(3))
    with pytest.raises(wb.GradientError, match=r"no event of this tape(.|\n)*tape.events"):
        s.tape.adjoint(s.x, at=0)


# ---- record_func


def sines(x: wb.array, y: wb.array, tape: wb.Tape) -> None:
    y.numpy()[:] = np.sin(x.numpy())

    def pull_back():
        x.grad.numpy()[:] += np.cos(x.numpy()) * y.grad.numpy()
        y.grad.zero_()

    tape.record_func(pull_back, [x, y])


def test_record_func_has_live_adjoints_without_requires_grad(backend):
    x, m, z = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3), wb.zeros(3)
    whole, tape = wb.zeros(6), wb.Tape()
    y = whole[1:4]
    with tape:
        wb.launch(square, 3, [x], [m])
        sines(m, y, tape)
        wb.launch(square, 3, [y], [z])
    for _ in range(2):
        x.grad.zero_()
        tape.backward(grads={z: wb.ones(3)})
        v = np.array([1.0, 2.0, 3.0])
        np.testing.assert_allclose(x.grad.numpy(), 2 * np.sin(v * v) * np.cos(v * v) * 2 * v, rtol=1e-5)
        assert m.grad is None and y.grad is None and not y.retain_grad


def test_record_func_that_fails_leaves_the_marks_as_they_were():
    x, y, tape = wb.array([1.0], requires_grad=True), wb.zeros(1), wb.Tape()

    def fails():
        assert y.grad is not None
        raise RuntimeError("a solver")

    with tape:
        tape.record_func(fails, [x, y])
    with pytest.raises(RuntimeError, match="a solver"):
        tape.backward(grads={y: wb.ones(1)})
    assert y.grad is None and not x.grad.numpy().any()


def test_record_func_takes_arrays_of_whole_numbers(backend):
    n, y, x = wb.array([2, 3]), wb.zeros(2), wb.array([5.0, 7.0], requires_grad=True)
    with wb.Tape() as tape:
        y.numpy()[:] = x.numpy() * n.numpy()

        def pull_back():
            assert n.grad is None
            x.grad.numpy()[:] += n.numpy() * y.grad.numpy()
            y.grad.zero_()

        tape.record_func(pull_back, [n, x, y])
    tape.backward(grads={y: wb.ones(2)})
    np.testing.assert_array_equal(x.grad.numpy(), [2, 3])


def test_record_func_inside_value_and_grad(backend):
    def loss(x):
        y = wb.zeros(3, dtype=x.dtype)
        sines(x, y, f.tape)
        return wb.utils.array_inner(y, y, out=wb.zeros(1, dtype=x.dtype))

    f, v = wb.value_and_grad(loss), np.array([0.5, 1.0, 2.0])
    value, gradient = f(v)
    np.testing.assert_allclose([value, *gradient], [np.sum(np.sin(v) ** 2), *(2 * np.sin(v) * np.cos(v))], rtol=1e-6)


def test_record_func_in_a_capture_asks_for_the_step():
    x, tape = wb.ones(1, requires_grad=True), wb.Tape()
    with pytest.raises(wb.LaunchError, match=r"a step that is over inside wb.capture(.|\n)*forward=step"):
        with wb.capture(), tape:
            tape.record_func(lambda: None, [x])


# ---- all texts after "Write instead:"

_VERBS = "it use set check define import move wrap pass make give write leave do try see change copy".split()


def test_what_stands_after_write_instead_can_be_written():
    """No text goes on in the imperative, or with a pronoun whose noun stands elsewhere."""
    texts = [(path.name, path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    found = [(name, first) for name, text in texts for first in re.findall(r"""instead=\(?\s*f?["'](\w+) """, text)]
    assert len(found) > 50 and [(name, first) for name, first in found if first in _VERBS] == []

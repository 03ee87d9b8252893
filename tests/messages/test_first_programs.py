"""What people write first, coming from elsewhere: each refusal names their line, why, and the line to write instead."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb

D = wb.float64
PROGRAMS: list[Any] = []


@pytest.fixture(autouse=True)
def _each_time(backend):
    """On both backends."""


def says(slug: str, *words: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Note a program that is refused with this slug and these words."""

    def note(program: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS.append(pytest.param(program, slug, words, id=program.__name__))
        return program

    return note


def launch(kernel: Any, *args: Any, dim: int = 3) -> None:
    wb.launch(kernel, dim, list(args))


@wb.kernel
def square(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i] * x[i]


@dataclasses.dataclass
class Spring:
    k: float = 1.0


@says("mixed-types", "`s` began as the float32 0.0", "s = wb.float64(0.0)")
def a_sum_that_begins_as_a_float():
    @wb.kernel
    def k(x: wb.array[wb.float64], y: wb.array[wb.float64]):
        i = wb.tid()
        s = 0.0
        for j in range(3):
            s += x[j]
        y[i] = s

    launch(k, wb.zeros(3, dtype=D), wb.zeros(3, dtype=D))


@says("mixed-types", "`s` began as the whole number 0", "s = 0.0")
def a_sum_that_begins_as_a_whole_number():
    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        s = 0
        for j in range(3):
            s = s + x[j]
        y[i] = s

    launch(k, wb.zeros(3), wb.zeros(3))


@says("annotation", "A kernel is no method", "outside the class")
def a_method():
    class Model:
        @wb.kernel
        def k(self, y: wb.array[float]):
            y[wb.tid()] = self.dt

    launch(Model.k, wb.zeros(3))


@says("annotation", "Spring is a dataclass", "@wb.struct in place of @dataclass")
def a_dataclass():
    @wb.kernel
    def k(p: Spring, y: wb.array[float]):
        y[wb.tid()] = p.k

    launch(k, Spring(), wb.zeros(3))


@says("annotation", "A kernel has no text", "mode: int")
def a_text():
    @wb.kernel
    def k(mode: str, y: wb.array[float]):
        y[wb.tid()] = 1.0

    launch(k, "a", wb.zeros(3))


@says("constant", "`a` is an array of the workbench", "a: wb.array[wb.float32]", "inputs=[..., a]")
def an_array_from_outside():
    a = wb.zeros(3)

    @wb.kernel
    def k(y: wb.array[float]):
        i = wb.tid()
        y[i] = a[i]

    launch(k, wb.zeros(3))


@says("constant", "`a` is a NumPy array", "wb.array(a)")
def a_numpy_array_from_outside():
    a = np.zeros(30)

    @wb.kernel
    def k(y: wb.array[float]):
        i = wb.tid()
        y[i] = a[i]

    launch(k, wb.zeros(3))


@says("constant", "`c` is a Python list", "tuple(c)")
def a_list_from_outside():
    c = [1.0, 2.0, 3.0]

    @wb.kernel
    def k(y: wb.array[float]):
        i = wb.tid()
        y[i] = c[i]

    launch(k, wb.zeros(3))


@says("attribute", "for j in range(...): s += x[j]")
def a_sum_of_a_part():
    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        y[i] = x[0:2].sum()

    launch(k, wb.zeros(3), wb.zeros(3))


@says("unknown-name", "i = wb.tid(), before this line")
def no_thread_index():
    @wb.kernel
    def k(y: wb.array[float]):
        y[i] = 1.0  # noqa: F821

    launch(k, wb.zeros(3))


@says("argument-type", "wb.float64(...)")
def a_number_of_another_type_for_a_func():
    @wb.func
    def rate(x: wb.float64, t: wb.float64):
        return x * t

    @wb.kernel
    def k(x: wb.array[wb.float64], t: float):
        i = wb.tid()
        x[i] = rate(x[i], t)

    launch(k, wb.zeros(3, dtype=D), 1.0)


@says("no-leaf", "y was written under another tape", "the way from x", "one tape around both")
def a_tape_inside_a_tape():
    x, y, z = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3), wb.zeros(3)
    with wb.Tape() as tape:
        with wb.Tape():
            launch(square, x, y)
        launch(square, y, z)
    tape.backward(grads={z: wb.ones(3)})


@says("seed-untouched", "after the `with`")
def a_loss_behind_the_tape():
    x, y, z = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3), wb.zeros(3)
    with wb.Tape() as tape:
        launch(square, x, y)
    launch(square, y, z)
    tape.backward(grads={z: wb.ones(3)})


@says("capture", "The places of a sparse matrix are made on the host", "the matrix before the block")
def a_sparse_matrix_in_a_capture():
    places = wb.array([0, 1])
    with wb.capture():
        wb.sparse.bsr_from_triplets(2, 2, places, places, wb.array([1.0, 2.0]))


@says("argument-list", "in the order of the kernel's parameters")
def inputs_by_name():
    wb.launch(square, 3, inputs={"x": wb.zeros(3), "y": wb.zeros(3)})


@says("argument-count", "Defaults are not used: a=2.0 must be given")
def a_default():
    @wb.kernel
    def k(y: wb.array[float], a: float = 2.0):
        y[wb.tid()] = a

    launch(k, wb.zeros(3))


@says("argument-type", "takes float32, got float 1e+39")
def a_number_that_no_float32_holds():
    @wb.kernel
    def k(a: float, y: wb.array[float]):
        y[wb.tid()] = a

    for a in (1.0, 1.0, 1.0, 1e39):
        launch(k, a, y := wb.zeros(3))
    assert not y


@says("host-values", "u[1] in place of u.numpy()[1]")
def an_element_by_numpy():
    @wb.kernel
    def k(x: wb.array[float], a: float, y: wb.array[float]):
        i = wb.tid()
        y[i] = x[i] * a

    x, u, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3), wb.zeros(3)
    with wb.Tape() as tape:
        launch(square, x, u)
        wb.launch(k, 3, [x, u.numpy()[1], y])
    tape.backward(grads={y: wb.ones(3)})


@says("array-operator", "wb.map(wb.abs, x)")
def the_absolute_value():
    abs(wb.zeros(3))


@says("array-operator", "wb.tile_matmul")
def a_product_of_matrices():
    wb.zeros((2, 2)) @ wb.zeros((2, 2))


@says("race", "atomic_min(best, ..., value)")
def a_minimum_by_hand():
    @wb.kernel
    def k(x: wb.array[float], best: wb.array[float]):
        i = wb.tid()
        d = x[i] * x[i]
        if d < best[0]:
            best[0] = d

    x, best = wb.array([3.0, 2.0, 1.0], requires_grad=True), wb.full(1, 100.0)
    with wb.Tape() as tape:
        launch(k, x, best)
    tape.backward(best)


@says("race", "atomic_max(best, ..., value)")
def a_maximum_by_hand():
    @wb.kernel
    def k(x: wb.array[float], best: wb.array[float]):
        i = wb.tid()
        if best[0] < x[i]:
            best[0] = x[i]

    x, best = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        launch(k, x, best)
    tape.backward(best)


@pytest.mark.parametrize("program, slug, words", PROGRAMS)
def test_it_is_refused_with_the_line_to_write(program, slug, words):
    with pytest.raises((wb.KernelError, wb.LaunchError, wb.GradientError)) as caught:
        program()
    text = str(caught.value)
    assert caught.value.slug == slug and not [w for w in words if w not in text], text


@pytest.mark.parametrize("name, instead", [("linalg", "wb.optim.linear"), ("odeint", r"wb\.integrate\(step, ")])
def test_names_of_other_libraries_have_a_counterpart(name, instead):
    with pytest.raises(AttributeError, match=instead):
        getattr(wb, name)


def test_many_sources_are_told_in_short():
    x, y = wb.ones(40, requires_grad=True), wb.zeros(40)
    with wb.Tape() as tape:
        wb.launch(square, 40, [x, y])
        for k in range(40):
            value = y.numpy()[k] + 1.0
            wb.launch(square, 1, [wb.array([value]), y[:1]])
    with pytest.raises(wb.GradientError) as caught:
        tape.backward(grads={y: wb.ones(40)})
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize("seed", [np.array([1.0, 2.0, 3.0]), [1, 2, 3], np.array([1, 2, 3], np.float32)])
def test_a_seed_may_be_what_numpy_or_python_hold(seed):
    x, y = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3)
    with wb.Tape() as tape:
        launch(square, x, y)
    tape.backward(grads={y: seed})
    assert x.grad.list() == [2.0, 8.0, 18.0]
    with pytest.raises(wb.GradientError, match="seed-shape"):
        tape.backward(grads={y: np.ones(4)})


def test_a_lambda_is_mapped_with_its_gradient():
    k = 3.0
    x = wb.array([1.0, 2.0, 3.0], dtype=D, requires_grad=True)
    with wb.Tape() as tape:
        y, z = wb.map(lambda a: k * a * wb.sin(a), x), wb.map(lambda a: a * a, x)
        w = wb.map(lambda a, b: a * b, y, z)
    tape.backward(grads={w: wb.ones(3, dtype=D)})
    a = x.numpy()
    np.testing.assert_allclose(w.numpy(), k * a**3 * np.sin(a), rtol=1e-14)
    np.testing.assert_allclose(x.grad.numpy(), k * (3 * a**2 * np.sin(a) + a**3 * np.cos(a)), rtol=1e-13)


@pytest.mark.host_memory
def test_the_wrong_adjoint_of_an_alias_takes_tapes_with_launches_of_the_library():
    x, y, loss = wb.array([1.0, 2.0, 3.0], requires_grad=True), wb.zeros(3), wb.zeros(1)
    with wb.Tape() as tape:
        launch(square, x, y)
        wb.utils.array_sum(y, out=loss)
    wrong = tape.backward(loss, pitfall=wb.pitfalls.alias)
    np.testing.assert_allclose(wrong[x], [2.0, 4.0, 6.0])


@wb.kernel
def halves(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i / 2]


@wb.kernel
def to_the_left(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[i - 1]


@wb.kernel
def guarded(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if i > 0:
        y[i] = x[i - 1] + x[-1] + x[i // 2] + float(i) / 2.0


@pytest.mark.parametrize(
    "kernel, words",
    [
        (halves, r"`i / 2` .*rounded towards zero.*`i // 2`.*`float\(i\) / 2.0`.*\[integer-division\]"),
        (to_the_left, r"thread 0 uses index -1 of 'x'.*% x.shape\[0\].*\[negative-index\]"),
    ],
)
def test_what_may_not_be_meant_is_said_once_at_its_line(kernel, words):
    fresh = wb.Kernel(kernel.func)
    with pytest.warns(UserWarning, match=words) as said:
        for _ in range(3):
            launch(fresh, wb.ones(3), wb.zeros(3))
    assert len(said) == 1 and said[0].filename == __file__


def test_what_is_meant_is_not_spoken_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(guarded, wb.ones(3), wb.zeros(3))

"""Overloads of funcs and kernels: a call means what it means in Warp, or is refused with the candidates."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import workbench as wb


def value(kernel, size: int = 1) -> list[float]:
    out = wb.zeros(size)
    wb.launch(kernel, 1, [out])
    return out.numpy().tolist()


def test_defaults_and_names_of_arguments_tell_overloads_apart(backend):
    @wb.func
    def f(x: float):
        return x * 2.0

    @wb.func
    def f(x: float, y: float):
        return x * y

    @wb.func
    def f(x: float, y: float, z: float = 3.0):
        return x * y + z

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = f(5.0)
        out[1] = f(5.0, 2.0)
        out[2] = f(5.0, 2.0, 1.0)
        out[3] = f(x=5.0, y=2.0, z=4.0)
        out[4] = f(y=5.0, x=2.0)

    assert value(k, 5) == [10, 10, 11, 14, 10]


def test_types_that_are_said_come_before_open_ones_whatever_the_order():
    @wb.func
    def f(x: Any):
        return 1.0

    @wb.func
    def f(x: wb.vec3):
        return 2.0

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = f(5)
        out[1] = f(wb.vec3(1.0, 2.0, 3.0))
        out[2] = f(wb.vec3d())
        out[3] = f(out)

    assert value(k, 4) == [1, 2, 1, 1]


@pytest.mark.parametrize("call", ["f(5)", "f(wb.float64(5.0))", "f(True)", "f(wb.quat())", "f(5.0, 1.0)", "f(y=5.0)"])
def test_what_fits_no_overload_is_refused_with_all_of_them(call, tmp_path):
    text = f"""
import workbench as wb

@wb.func
def f(x: float):
    return x

@wb.func
def f(x: wb.vec4):
    return x[0]

@wb.kernel
def k(out: wb.array[float]):
    out[0] = {call}
"""
    with pytest.raises(wb.KernelError, match=r"fits none(.|\n)*float32\) in line 5; f\(x: vec4\)") as e:
        value(loaded(text, tmp_path))
    assert e.value.slug == "overload" and e.value.where.line == 14


def loaded(text: str, folder) -> Any:
    import importlib.util

    path = folder / "one.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("one", path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made.k


def test_a_call_that_may_mean_two_is_refused_with_both():
    @wb.func
    def f(x: Any, y: float):
        return 1.0

    @wb.func
    def f(x: float, y: Any):
        return 2.0

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = f(1.0, 2.0)

    with pytest.raises(wb.KernelError, match=r"may mean several(.|\n)*x: Any, y: float32\)(.|\n)*x: float32, y: Any"):
        value(k)


def test_an_open_type_before_a_narrower_one_is_refused_as_warp_would_take_it():
    @wb.func
    def f(x: Any):
        return 1.0

    @wb.func
    def f(x: wb.Float):
        return 2.0

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = f(1.0)

    with pytest.raises(wb.KernelError, match="narrower types first"):
        value(k)


def test_two_that_differ_in_a_default_alone_are_refused():
    @wb.func
    def f(x: float, y: float = 2.0):
        return x * y

    @wb.func
    def f(x: float):
        return x

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = f(1.0)

    with pytest.raises(wb.KernelError, match="may mean several"):
        value(k)


def test_the_same_parameters_again_replace_the_func():
    @wb.func
    def f(x: float):
        return x * 2.0

    first = f

    @wb.func
    def f(x: float):
        return x * 3.0

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = f(5.0)
        out[1] = first(5.0)

    assert value(k, 2) == [15, 10] and not f.overloads


def test_funcs_of_other_scopes_are_no_overloads():
    def make(T):
        @wb.func
        def g(x: T):
            return x * T(2.0)

        return g

    one, two = make(wb.float32), make(wb.float64)
    assert not one.overloads and not two.overloads


def test_an_overload_calls_another_of_its_name_and_itself_never():
    @wb.func
    def f(x: float):
        return x * x

    @wb.func
    def f(v: wb.vec2):
        return f(v[0]) + f(v[1])

    @wb.func
    def f(v: wb.vec3):
        return f(v) + 1.0

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = f(wb.vec2(3.0, 4.0))

    @wb.kernel
    def endless(out: wb.array[float]):
        out[0] = f(wb.vec3(3.0, 4.0, 5.0))

    assert value(k) == [25]
    with pytest.raises(wb.KernelError, match="recursion"):
        value(endless)


def test_an_adjoint_belongs_to_the_overload_with_its_parameters(backend):
    @wb.func
    def f(x: float):
        return x * x

    @wb.func
    def f(x: wb.vec2):
        return x[0]

    @wb.func_grad(f)
    def adj_f(x: float, adj: float):
        wb.adjoint[x] += 100.0 * adj

    with pytest.raises(wb.KernelError, match="none of the overloads"):

        @wb.func_grad(f)
        def adj_g(x: wb.vec4, adj: float):
            wb.adjoint[x] += x

    @wb.kernel
    def k(x: wb.array[float], v: wb.array[wb.vec2], y: wb.array[float]):
        i = wb.tid()
        y[i] = f(x[i]) + f(v[i])

    x, v = wb.ones(1, requires_grad=True), wb.ones(1, dtype=wb.vec2, requires_grad=True)
    with wb.Tape() as tape:
        y = wb.zeros(1)
        wb.launch(k, 1, [x, v, y])
    tape.backward(grads={y: wb.ones(1)})
    assert x.grad.numpy().tolist() == [100] and v.grad.numpy().tolist() == [[1, 0]]


def test_map_pickle_and_the_host_find_the_overload():
    @wb.func
    def size(x: float):
        return wb.abs(x)

    @wb.func
    def size(v: wb.vec2):
        return wb.length(v)

    assert wb.map(size, wb.array([-2.0])).numpy().tolist() == [2]
    assert wb.map(size, wb.array([(3.0, 4.0)], dtype=wb.vec2)).numpy().tolist() == [5]
    assert size(-3.0) == 3 and size(wb.vec2(3.0, 4.0)) == 5
    with pytest.raises(TypeError, match="0 of its overloads"):
        size(wb.vec3())
    again = pickle.loads(pickle.dumps(size))
    assert wb.map(again, wb.array([-2.0])).numpy().tolist() == [2]


def test_a_kernel_reads_an_overload_that_came_later():
    @wb.func
    def f(x: float):
        return x

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = f(1.0)

    assert value(k) == [1]

    @wb.func
    def f(x: Any):
        return 3.0

    assert value(k) == [1]

    @wb.func
    def f(x: float):
        return 2.0

    assert value(k) == [2]


# ---- kernels


@wb.kernel
def scaled(x: wb.array(dtype=Any), s: Any):
    i = wb.tid()
    x[i] = s * x[i]


@wb.overload
def scaled(x: wb.array(dtype=float), s: float): ...


@wb.overload
def scaled(x: wb.array(dtype=wb.vec3), s: float):
    """Only types."""


def test_the_decorator_gives_the_kernel():
    assert isinstance(scaled, wb.Kernel) and len(scaled._overloads) >= 2
    x = wb.ones(1, dtype=wb.vec3)
    wb.launch(scaled, 1, [x, 2.0])
    assert x.numpy().tolist() == [[2, 2, 2]]


def test_what_an_overload_cannot_be():
    with pytest.raises(TypeError, match="name of one"):

        @wb.overload
        def nothing(x: float): ...

    with pytest.raises(wb.KernelError, match="body of its own"):

        @wb.overload
        def scaled(x: wb.array(dtype=float), s: float):
            x[0] = s

    with pytest.raises(wb.KernelError, match="has 2 parameters, not 1"):
        wb.overload(globals()["scaled"], [wb.array(dtype=float)])


@wb.kernel
def floats_only(x: wb.array(dtype=wb.Float), n: wb.Int, y: wb.array(dtype=wb.types.vector(length=Any, dtype=wb.Float))):
    i = wb.tid()
    y[i] = y[i] * x[i] * x.dtype(n)


def test_open_types_of_a_kernel_are_checked_at_the_launch_and_in_overload():
    y = wb.ones(1, dtype=wb.vec3d)
    wb.launch(floats_only, 1, [wb.ones(1, dtype=wb.float64), 3, y])
    assert y.numpy().tolist() == [[3, 3, 3]]
    x = wb.ones(1)
    for bad in ([wb.ones(1, dtype=int), 3, y], [x, 3.0, y], [x, 3, x], [x, True, y]):
        with pytest.raises(wb.LaunchError, match="argument-type"):
            wb.launch(floats_only, 1, bad)
    with pytest.raises(wb.KernelError, match="takes Int as 'n', not float32"):
        wb.overload(floats_only, {"n": float})
    with pytest.raises(wb.KernelError, match="takes array2d"):
        wb.overload(summed, {"x": wb.array(dtype=float)})


@wb.kernel
def summed(x: wb.array2d(dtype=wb.Scalar), y: wb.array(dtype=float)):
    y[0] = float(x[0, 0])


# ---- functions as arguments, variables of the caller


def test_functions_are_arguments_of_funcs(backend):
    @wb.func
    def square(x: float):
        return x * x

    @wb.func
    def apply(f: Callable, g: wb.Function, x: float):
        return f(g(x))

    @wb.func
    def apply(f: Callable, x: float):
        return f(x)

    @wb.kernel
    def k(x: wb.array[float], y: wb.array[float]):
        i = wb.tid()
        h = wb.sqrt
        y[i] = apply(square, wb.exp, x[i]) + apply(square, x[i]) + apply(h, x[i])

    x, y = wb.array([0.25], requires_grad=True), wb.zeros(1)
    with wb.Tape() as tape:
        wb.launch(k, 1, [x, y])
    tape.backward(grads={y: wb.ones(1)})
    np.testing.assert_allclose(x.grad.numpy(), [2 * np.exp(0.5) + 0.5 + 1.0], rtol=1e-6)


def test_a_number_is_no_function():
    @wb.func
    def apply(f: Callable, x: float):
        return f(x)

    @wb.kernel
    def k(out: wb.array[float]):
        out[0] = apply(2.0, 1.0)

    with pytest.raises(wb.KernelError, match="takes Callable as `f`, not float32"):
        value(k)


@pytest.mark.parametrize(
    "call", ["two(out[0], out[1])", "put(1.0, 1.0)", "two(a, a)", "put(out, 1.0)", "reach(out[0], out)"]
)
def test_what_a_func_sets_is_a_local_variable_of_its_own(call, tmp_path):
    text = f"""
import workbench as wb

@wb.func
def put(x: wb.ref[float], v: float):
    x = v

@wb.func
def two(x: wb.ref[float], y: wb.ref[float]):
    x = 2.0
    y = x + 1.0

@wb.func
def reach(x: wb.ref[float], a: wb.array[float]):
    x = a[0] + x

@wb.kernel
def k(out: wb.array[float]):
    a = float(1.0)
    {call}
    out[0] = a
"""
    with pytest.raises(wb.KernelError) as e:
        value(loaded(text, tmp_path))
    assert e.value.slug in ("ref", "argument-type") and e.value.where.line == 20


def test_a_func_with_an_adjoint_of_its_own_sets_nothing():
    @wb.func
    def put(x: wb.ref[float], v: float):
        x = v

    @wb.func_grad(put)
    def adj_put(x: wb.ref[float], v: float):
        wb.adjoint[v] += v
        wb.adjoint[x] += x

    @wb.kernel
    def k(out: wb.array[float]):
        a = wb.float32(1.0)
        put(a, 2.0)
        out[0] = a

    with pytest.raises(wb.KernelError, match=r"\[ref\]"):
        value(k)


def test_a_func_sets_an_element_of_an_array_or_a_field_of_one(backend):
    @wb.struct
    class Box:
        v: float
        n: int

    @wb.func
    def square(x: wb.ref[float], d: float):
        x = x * x + d

    @wb.kernel
    def k(x: wb.array[float], boxes: wb.array[Box], y: wb.array[float]):
        i = wb.tid()
        square(x[i], 10.0)
        square(boxes[i].v, 1.0)
        v = wb.vec3(1.0, 2.0, 3.0)
        square(v[-1], 1.0)
        y[i] = x[i] * boxes[i].v + v[2]

    x, y = wb.array([1.0, 2.0], requires_grad=True), wb.zeros(2)
    boxes = wb.array([Box(v=2.0), Box(v=3.0)], dtype=Box, requires_grad=True)
    with wb.Tape() as tape:
        wb.launch(k, 2, [x, boxes], [y])
    tape.backward(grads={y: wb.ones(2)})
    assert x.list() == [11, 14] and y.list() == [65, 150]
    assert x.grad.list() == [10, 40] and [g.v for g in boxes.grad.list()] == [44, 84]

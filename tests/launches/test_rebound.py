"""Links between a kernel and the numbers, funcs, types it reads: any of them bound anew is seen by the next launch."""

from __future__ import annotations

import copy
import dataclasses
import enum
import linecache
import types
import typing

import numpy as np
import pytest

import workbench as wb

F = wb.float64
A = types.SimpleNamespace
X, Y = "x: wb.array(dtype=F)", "y: wb.array(dtype=F)"


class Mode(enum.Enum):
    SLOW = 2.0
    FAST = 5.0


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 5


@dataclasses.dataclass
class Data:
    k: float


class Named(typing.NamedTuple):
    first: float
    k: float


@wb.struct
class Struct:
    k: F


class Computed:
    """Every attribute is another object each time."""

    number = 2.0
    k = property(lambda self: self.number * 1.0)
    inner = property(lambda self: A(k=self.number * 1.0))
    v = property(lambda self: wb.vec2d(0.0, self.number))
    t = property(lambda self: (0.0, self.number * 1.0))


class Items(dict):
    __getattr__ = dict.__getitem__  # KeyError for what is not there

    def __deepcopy__(self, memo):
        return Items(self)


class Parent:
    k = 2.0


class Child(Parent):
    pass


def func_of(number):
    @wb.func
    def scaled(v: F):
        return F(number) * v

    return scaled


twice, five_times = func_of(2.0), func_of(5.0)


cfg = A()  # what the cases give


def table():
    return {"k": cfg.k}["k"]


class Module(types.ModuleType):
    def __deepcopy__(self, memo):
        return module(**copy.deepcopy({k: v for k, v in vars(self).items() if not k.startswith("__")}, memo))


def module(**names):
    made = Module("made_by_a_test")
    vars(made).update(names)
    return made


def set_to(**names):
    def change(cfg):
        for name, value in names.items():
            setattr(cfg, name, value)

    return change


def inside(name, **names):
    return lambda cfg: set_to(**names)(getattr(cfg, name))


# what the kernel returns, of v and cfg; cfg at first; the change; the factor before and after
CASES = {
    "object": ("F(cfg.a.k) * v", A(a=A(k=2.0)), set_to(a=A(k=5.0)), 2, 5),
    "three links": ("F(cfg.a.b.k) * v", A(a=A(b=A(k=2.0))), inside("a", b=A(k=5.0)), 2, 5),
    "module": ("F(cfg.m.a.k) * v", A(m=module(a=A(k=2.0))), inside("m", a=A(k=5.0)), 2, 5),
    "class": ("F(cfg.c.k) * v", A(c=Child()), lambda cfg: setattr(Parent, "k", 5.0), 2, 5),
    "class hidden": ("F(cfg.c.k) * v", A(c=type("C", (), {"k": 2.0})()), inside("c", k=5.0), 2, 5),
    "tuple": ("F(cfg.t[1]) * v", A(t=(9.0, 2.0)), set_to(t=(9.0, 5.0)), 2, 5),
    "tuple in tuple": ("F(cfg.t[1][0].k) * v", A(t=(9.0, (A(k=2.0),))), set_to(t=(9.0, (A(k=5.0),))), 2, 5),
    "object in tuple": ("F(cfg.t[0].k) * v", A(t=(A(k=2.0),)), lambda cfg: setattr(cfg.t[0], "k", 5.0), 2, 5),
    "slice": ("F(cfg.t[1:][0]) * v", A(t=(9.0, 2.0)), set_to(t=(9.0, 5.0)), 2, 5),
    "type": ("wb.dot(cfg.V(v), cfg.V(F(1.0)))", A(V=wb.vec2d), set_to(V=wb.vec3d), 2, 3),
    "vector": ("cfg.a.v[1] * v", A(a=A(v=wb.vec2d(9, 2))), set_to(a=A(v=wb.vec2d(9, 5))), 2, 5),
    "vector in place": ("cfg.a.v[1] * v", A(a=A(v=wb.vec2d(9, 2))), lambda cfg: cfg.a.v.fill(5.0), 2, 5),
    "func": ("cfg.law.f(v)", A(law=A(f=twice)), set_to(law=A(f=five_times)), 2, 5),
    "func in tuple": ("cfg.laws[0](v)", A(laws=(twice,)), set_to(laws=(five_times,)), 2, 5),
    "func for an argument": ("call(cfg.a.f, v)", A(a=A(f=twice)), set_to(a=A(f=five_times)), 2, 5),
    "enum": ("F(cfg.mode.value) * v", A(mode=Mode.SLOW), set_to(mode=Mode.FAST), 2, 5),
    "enum of ints": ("F(cfg.mode) * v", A(mode=Level.LOW), set_to(mode=Level.HIGH), 2, 5),
    "dataclass": ("F(cfg.d.k) * v", A(d=Data(2.0)), set_to(d=Data(5.0)), 2, 5),
    "named tuple": ("F(cfg.n.k) * v", A(n=Named(9.0, 2.0)), set_to(n=Named(9.0, 5.0)), 2, 5),
    "struct": ("cfg.s.k * v", A(s=Struct(k=2.0)), set_to(s=Struct(k=5.0)), 2, 5),
    "property": ("F(cfg.c.k) * v", A(c=Computed()), inside("c", number=5.0), 2, 5),
    "object of a property": ("F(cfg.c.inner.k) * v", A(c=Computed()), inside("c", number=5.0), 2, 5),
    "vector of a property": ("cfg.c.v[1] * v", A(c=Computed()), inside("c", number=5.0), 2, 5),
    "tuple of a property": ("F(cfg.c.t[1]) * v", A(c=Computed()), inside("c", number=5.0), 2, 5),
    "NumPy's number": ("cfg.a.k * v", A(a=A(k=np.float64(2))), set_to(a=A(k=np.float64(5))), 2, 5),
    "items of a dict": ("F(cfg.d.k) * v", A(d=Items(k=2.0)), lambda cfg: cfg.d.update(k=5.0), 2, 5),
    "beside a type": ("F(cfg.a.k) * v", A(a=A(k=2.0, type=wb.vec2d)), inside("a", k=5.0), 2, 5),
    "another type": ("F(cfg.a.k) * v / F(2)", A(a=A(k=5)), set_to(a=A(k=5.5)), 2.5, 2.75),
    "minus zero": ("wb.where(F(1) / F(cfg.z) > F(0), F(2), F(5)) * v", A(z=0.0), set_to(z=-0.0), 2, 5),
    "static": ("F(wb.static(cfg.a.k)) * v", A(a=A(k=2.0)), set_to(a=A(k=5.0)), 2, 5),
    "static of a module": ("F(wb.static(cfg.m.k)) * v", A(m=module(k=2.0)), inside("m", k=5.0), 2, 5),
    "static of a call": ("F(wb.static(table())) * v", A(k=2.0), set_to(k=5.0), 2, 5),
    "static of a list": ("F(wb.static(cfg.l[0])) * v", A(l=[2.0]), lambda cfg: cfg.l.insert(0, 5.0), 2, 5),
    "static of a dict": ("F(wb.static(cfg.d['k'])) * v", A(d={"k": 2.0}), lambda cfg: cfg.d.update(k=5.0), 2, 5),
    "static of a func made": ("wb.static(func_of(cfg.k))(v)", A(k=2.0), set_to(k=5.0), 2, 5),
}
WRAPPED = {
    "kernel": "@wb.kernel\ndef k({X}, {Y}):\n    v = x[wb.tid()]\n    y[wb.tid()] = {text}\n",
    "func": (
        "@wb.func\ndef f(v: F):\n    return {text}\n"
        "@wb.kernel\ndef k({X}, {Y}):\n    i = wb.tid()\n    y[i] = f(x[i])\n"
    ),
    "adjoint": (
        "@wb.func\ndef g(v: F):\n    return {text}\n@wb.func\ndef f(v: F):\n    return v\n"
        "@wb.func_grad(f)\ndef adj_f(v: F, adj: F):\n    wb.adjoint[v] += g(adj)\n"
        "@wb.kernel\ndef k({X}, {Y}):\n    i = wb.tid()\n    y[i] = f(x[i])\n"
    ),
    "closure": (
        "def outer(cfg):\n    @wb.kernel\n    def k({X}, {Y}):\n        i = wb.tid()\n        v = x[i]\n"
        "        y[i] = {text}\n    return k\nk = outer(cfg)\n"
    ),
}


@wb.func
def call(f: typing.Callable, v: F):
    return f(v)


def made(text, cfg, how):
    """The kernel around an expression, its names in a module of its own."""
    source = WRAPPED[how].format(text=text, X=X, Y=Y)
    name = f"<{how} {text}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {**globals(), "cfg": cfg}
    exec(compile(source, name, "exec"), space)
    return space["k"]


def slope(kernel):
    """The gradient of a launch at 3, and its value over 3."""
    x, y = wb.array([3.0], dtype=F, requires_grad=True), wb.zeros(1, dtype=F)
    with wb.Tape() as tape:
        wb.launch(kernel, 1, [x], [y])
    tape.backward(grads={y: wb.ones(1, dtype=F)})
    return x.grad.numpy()[0], y.numpy()[0] / 3.0


@pytest.mark.parametrize("how", WRAPPED)
@pytest.mark.parametrize("case", CASES)
def test_any_link_bound_anew_is_honoured(case, how, backend, monkeypatch):
    text, cfg, change, before, after = CASES[case]
    cfg = copy.deepcopy(cfg)
    monkeypatch.setitem(globals(), "cfg", cfg)
    monkeypatch.setattr(Parent, "k", 2.0)
    kernel = made(text, cfg, how)
    for _ in range(3):  # the third is a remembered one
        assert slope(kernel) == (before, 1 if how == "adjoint" else before)
    program = kernel.program()
    slope(kernel)
    assert kernel.program() is program
    change(cfg)
    for _ in range(3):
        assert slope(kernel) == (after, 1 if how == "adjoint" else after)


def test_a_command_is_made_anew(backend):
    cfg = A(a=A(k=2.0))
    kernel = made("F(cfg.a.k) * v", cfg, "kernel")
    x, y = wb.array([3.0], dtype=F), wb.zeros(1, dtype=F)
    command = wb.launch(kernel, 1, [x], [y], record_cmd=True)
    command.launch()
    cfg.a = A(k=5.0)
    command.launch()
    assert y.list() == [15.0]


def test_map_sees_it_too(backend):
    cfg = A(a=A(k=2.0, t=(2.0,), v=wb.vec2d(1.0, 2.0)))

    @wb.func
    def f(v: F):
        return F(cfg.a.k) * F(cfg.a.t[0]) * cfg.a.v[1] * F(wb.static(cfg.a.k)) * v

    x = wb.array([1.0], dtype=F)
    assert wb.map(f, x).list() == [16.0]
    cfg.a = A(k=3.0, t=(2.0,), v=wb.vec2d(1.0, 2.0))
    assert wb.map(f, x).list() == [36.0]
    cfg.a.t = (1.0,)
    assert wb.map(f, x).list() == [18.0]
    cfg.a.v[1] = 1.0
    assert wb.map(f, x).list() == [9.0]


def test_a_func_takes_the_name_of_a_builtin(backend, monkeypatch):
    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = abs(x[i])

    assert slope(k) == (1, 1)
    monkeypatch.setitem(globals(), "abs", five_times)
    assert slope(k) == (5, 5)
    monkeypatch.delitem(globals(), "abs")
    assert slope(k) == (1, 1)


def test_a_loop_over_a_tuple_and_a_list(backend):
    cfg = A(t=(1.0, 1.0), l=[2.0])

    @wb.kernel
    def k(x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        s = F(0.0)
        for c in cfg.t:
            s += F(c) * x[i]
        for c in cfg.l:
            s += F(c) * x[i]
        y[i] = s

    assert slope(k) == (4, 4)
    cfg.t = (3.0,)
    assert slope(k) == (5, 5)
    cfg.l.append(4.0)
    assert slope(k) == (9, 9)


def test_an_annotation_that_is_read_late(backend, monkeypatch):
    monkeypatch.delitem(globals(), "Late", raising=False)

    @wb.kernel
    def k(x: Late, y: wb.array(dtype=F)):  # noqa: F821
        i = wb.tid()
        y[i] = F(x[i]) * F(2.0)

    for dtype in (wb.float64, wb.float32, wb.float64):
        monkeypatch.setitem(globals(), "Late", wb.array(dtype=dtype))
        x, y = wb.array([3.0], dtype=dtype), wb.zeros(1, dtype=F)
        wb.launch(k, 1, [x], [y])
        assert y.list() == [6.0]


def test_an_adjoint_that_a_func_gets_later(backend):
    scaled = func_of(2.0)
    cfg = A(laws=A(f=scaled))
    kernel = made("cfg.laws.f(v)", cfg, "kernel")
    assert slope(kernel) == (2, 2)

    @wb.func_grad(scaled)
    def adj_scaled(v: F, adj: F):
        wb.adjoint[v] += F(7.0) * adj

    assert slope(kernel) == (7, 2)

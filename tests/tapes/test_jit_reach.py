"""`wb.jit` compares everything a function can reach in Python: a number changed anywhere there is no stale replay."""

from __future__ import annotations

import argparse
import array as buffers
import collections
import contextvars
import ctypes
import functools
import os
import threading
import types
import weakref
from xml.etree import ElementTree

import numpy as np
import pytest

import workbench as wb

CHANGES = {}


@wb.kernel
def move(x: wb.array[float], dt: float):
    i = wb.tid()
    x[i] = x[i] + dt


def reach(make):
    """Add a case: `make` returns a function of an array, which adds a number of 1.0, and what sets the number."""
    CHANGES[make.__name__] = make
    return make


def add(x, dt):
    wb.launch(move, 1, [x, float(dt)])


@reach
def attribute_of_an_object():
    class Config:
        dt = 1.0

    config = Config()
    return lambda x: add(x, config.dt), lambda v: setattr(config, "dt", v)


@reach
def default_of_a_function():
    def step(x, dt=1.0):
        add(x, dt)

    return step, lambda v: setattr(step, "__defaults__", (v,))


@reach
def attribute_of_a_class():
    class Config:
        dt = 1.0

    return lambda x: add(x, Config().dt), lambda v: setattr(Config, "dt", v)


@reach
def submodule():
    package, inner = types.ModuleType("package"), types.ModuleType("package.inner")
    package.inner, inner.dt = inner, 1.0
    return lambda x: add(x, package.inner.dt), lambda v: setattr(inner, "dt", v)


@reach
def namespace_within_a_namespace():
    args = argparse.Namespace(sim=argparse.Namespace(dt=1.0))
    return lambda x: add(x, args.sim.dt), lambda v: setattr(args.sim, "dt", v)


@reach
def simple_namespace():
    args = types.SimpleNamespace(dt=1.0)
    return lambda x: add(x, args.dt), lambda v: setattr(args, "dt", v)


@reach
def dict_of_dicts():
    args = {"sim": {"dt": 1.0}}
    return lambda x: add(x, args["sim"]["dt"]), lambda v: args["sim"].update(dt=v)


@reach
def user_dict():
    args = collections.UserDict(dt=1.0)
    return lambda x: add(x, args["dt"]), lambda v: args.update(dt=v)


@reach
def chain_map():
    args = collections.ChainMap({}, {"dt": 1.0})
    return lambda x: add(x, args["dt"]), lambda v: args.maps[1].update(dt=v)


@reach
def mapping_proxy():
    inner = {"dt": 1.0}
    args = types.MappingProxyType(inner)
    return lambda x: add(x, args["dt"]), lambda v: inner.update(dt=v)


@reach
def numpy_array():
    dt = np.ones(1)
    return lambda x: add(x, dt[0]), lambda v: dt.fill(v)


@reach
def array_of_objects():
    dt = np.array([[1.0]], dtype=object)
    return lambda x: add(x, dt[0, 0]), lambda v: dt.fill(v)


@reach
def buffer_of_the_library():
    dt = buffers.array("d", [1.0])
    return lambda x: add(x, dt[0]), lambda v: dt.__setitem__(0, v)


@reach
def bytes_that_change():
    dt = bytearray([1])
    return lambda x: add(x, dt[0]), lambda v: dt.__setitem__(0, int(v))


@reach
def view_of_bytes():
    memory = bytearray([1])
    view = memoryview(memory)
    return lambda x: add(x, view[0]), lambda v: memory.__setitem__(0, int(v))


@reach
def c_type():
    dt = ctypes.c_double(1.0)
    return lambda x: add(x, dt.value), lambda v: setattr(dt, "value", v)


@reach
def scalar_of_ours():
    dt = wb.scalar(1.0, float)
    return lambda x: add(x, dt.value), lambda v: setattr(dt, "value", v)


@reach
def context_variable():
    dt = contextvars.ContextVar("dt", default=1.0)
    return lambda x: add(x, dt.get()), dt.set


@reach
def thread_local():
    local = threading.local()
    local.dt = 1.0
    return lambda x: add(x, local.dt), lambda v: setattr(local, "dt", v)


@reach
def environment():
    os.environ["DT_OF_A_TEST"] = "1.0"
    return lambda x: add(x, os.environ["DT_OF_A_TEST"]), lambda v: os.environ.update(DT_OF_A_TEST=str(v))


@reach
def environment_imported_inside():
    os.environ["DT_OF_A_TEST"] = "1.0"

    def step(x):
        import os as system

        add(x, system.environ["DT_OF_A_TEST"])

    return step, lambda v: os.environ.update(DT_OF_A_TEST=str(v))


@reach
def called_object():
    class Scheme:
        def __init__(self):
            self.dt = 1.0

        def __call__(self, x):
            add(x, self.dt)

    scheme = Scheme()
    return lambda x: scheme(x), lambda v: setattr(scheme, "dt", v)


@reach
def attribute_by_getattr():
    class Config:
        def __init__(self):
            self.values = {"dt": 1.0}

        def __getattr__(self, name):
            return self.values[name]

    config = Config()
    return lambda x: add(x, config.dt), lambda v: config.values.update(dt=v)


@reach
def name_in_a_text():
    config = type("Config", (), {})()
    config.dt, name = 1.0, "d" + "t"
    return lambda x: add(x, getattr(config, name)), lambda v: setattr(config, "dt", v)


@reach
def property_of_a_metaclass():
    class Meta(type):
        value = 1.0

        @property
        def dt(cls):
            return Meta.value

    class Config(metaclass=Meta):
        pass

    return lambda x: add(x, Config.dt), lambda v: setattr(Meta, "value", v)


@reach
def object_behind_a_weak_reference():
    class Config:
        dt = 1.0

    config = Config()
    behind = weakref.ref(config)
    return lambda x: add(x, behind().dt), lambda v, config=config: setattr(config, "dt", v)


@reach
def object_that_decorates():
    class Scaled:
        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.function, self.dt = function, 1.0

        def __call__(self, x):
            self.function(x, self.dt)

    scaled = Scaled(lambda x, dt: add(x, dt))
    return lambda x: scaled(x), lambda v: setattr(scaled, "dt", v)


@reach
def function_around_a_function():
    args = {"dt": 1.0}

    def scaled(function):
        @functools.wraps(function)
        def inner(x):
            function(x, args["dt"])

        return inner

    step = scaled(add)
    return lambda x: step(x), lambda v: args.update(dt=v)


@reach
def all_globals():
    module = types.ModuleType("settings")
    module.add, module.DT = add, 1.0
    exec("def step(x): add(x, globals()['D' + 'T'])", vars(module))
    return module.step, lambda v: setattr(module, "DT", v)


@reach
def slots():
    class Config:
        __slots__ = ("dt",)

    config = Config()
    config.dt = 1.0
    return lambda x: add(x, config.dt), lambda v: setattr(config, "dt", v)


@reach
def partial_with_a_dict():
    args = {"dt": 1.0}
    step = functools.partial(lambda args, x: add(x, args["dt"]), args)
    return lambda x: step(x), lambda v: args.update(dt=v)


@reach
def attribute_of_a_function():
    def step(x):
        add(x, step.dt)

    step.dt = 1.0
    return step, lambda v: setattr(step, "dt", v)


@reach
def attribute_of_a_jit_function():
    step = wb.jit(lambda x: add(x, step.dt))
    step.dt = 1.0
    return lambda x: add(x, step.dt), lambda v: setattr(step, "dt", v)


@reach
def default_of_a_keyword():
    def step(x, *, dt=1.0):
        add(x, dt)

    return lambda x: step(x), lambda v: step.__kwdefaults__.update(dt=v)


@reach
def code_of_a_function():
    """As IPython's autoreload changes it, in place."""

    def time():
        return 1.0

    def longer():
        return 2.0

    return lambda x: add(x, time()), lambda v: setattr(time, "__code__", (time if v == 1.0 else longer).__code__)


@reach
def global_that_was_not_there():
    module = types.ModuleType("settings")
    module.add = add
    exec("def step(x): add(x, float(sum([1.0])))", vars(module))
    return module.step, lambda v: setattr(module, "sum", lambda _: v) if v > 1.0 else None


@reach
def mask_of_a_numpy_array():
    dt = np.ma.array([1.0, 1.0], mask=[False, True])
    return lambda x: add(x, dt.sum()), lambda v: setattr(dt, "mask", [False, v == 1.0])


@reach
def attribute_of_a_dict():
    class Config(dict):
        pass

    config = Config()
    config.dt = 1.0
    return lambda x: add(x, config.dt), lambda v: setattr(config, "dt", v)


@reach
def method_of_a_named_tuple():
    args = {"dt": 1.0}

    class Config(collections.namedtuple("Config", "n")):
        def dt(self):
            return self.n * args["dt"]

    config = Config(1.0)
    return lambda x: add(x, config.dt()), lambda v: args.update(dt=v)


@reach
def bound_builtin():
    args = {"dt": 1.0}
    get = args.get
    return lambda x: add(x, get("dt")), lambda v: args.update(dt=v)


@reach
def tensor():
    torch = pytest.importorskip("torch")
    dt = torch.ones(1)
    return lambda x: add(x, dt.item()), lambda v: dt.fill_(v)


@pytest.mark.parametrize("name", CHANGES)
def test_a_number_changed_in_python_is_seen(name):
    step, change = CHANGES[name]()
    step, x = wb.jit(step), wb.zeros(1)
    for value in (1.0, 2.0):
        change(value)
        for _ in range(4):
            step(x)
    assert x.list() == [12.0] and step.replays == 4


class Config:
    dt = 1.0


class Derived(Config):
    pass


class Step(collections.namedtuple("Step", "x")):
    dt = 1.0


@pytest.mark.parametrize("given", [lambda x: (x, Config), lambda x: (x, Derived), lambda x: (x, Step(x))])
def test_a_number_of_a_class_that_is_given_is_seen(given, monkeypatch):
    step, x = wb.jit(lambda x, given: add(x, given.dt)), wb.zeros(1)
    for value in (1.0, 2.0):
        monkeypatch.setattr(Config, "dt", value)
        monkeypatch.setattr(Step, "dt", value)
        for _ in range(4):
            step(*given(x))
    assert x.list() == [12.0] and step.replays == 4


class Lazy:
    def work(self, x):
        if not hasattr(self, "sum"):
            self.sum = wb.zeros(1)
        wb.launch(gather, 1, [x], [self.sum])
        return self.sum


@wb.kernel
def gather(x: wb.array[float], to: wb.array[float]):
    to[0] = to[0] + x[0]


def test_an_array_made_at_the_first_call_may_be_replaced():
    lazy, x = Lazy(), wb.ones(1)
    step = wb.jit(lambda x, lazy: lazy.work(x))
    for _ in range(5):
        last = step(x, lazy)
    assert last.list() == [5.0] and step.replays
    lazy.sum = wb.zeros(1)
    assert step(x, lazy).list() == [1.0] and last.list() == [5.0]
    del lazy.sum
    assert step(x, lazy).list() == [1.0]


def every_fourth(x, held):
    held.counts["n"][0] += 1
    add(x, 1.0 if held.counts["n"][0] % 4 else 2.0)


@pytest.mark.parametrize("given", [True, False])
def test_a_counter_in_a_container_that_is_read_is_refused(given):
    held, x = types.SimpleNamespace(counts={"n": [0]}), wb.zeros(1)
    step = wb.jit(every_fourth if given else lambda x, _: every_fourth(x, held))
    step(x, held)
    with pytest.raises(wb.LaunchError, match=r"it changes .*counts\['n'\] in Python"):
        step(x, held)


def test_what_cannot_be_compared_is_refused():
    element = ElementTree.Element("dt", {"dt": "1.0"})  # an object of compiled code

    def step(x):
        add(x, element.get("dt"))

    with pytest.raises(wb.LaunchError, match=r"element: of xml\.Element nobody can tell"):
        wb.jit(step)(wb.zeros(1))


@wb.kernel
def square(x: wb.array[float], loss: wb.array[float]):
    i = wb.tid()
    wb.atomic_add(loss, 0, x[i] * x[i])


def loss_that_reads(x):
    out = wb.zeros(1)
    wb.launch(square, x.shape, [x], [out])
    assert out.item() >= 0.0
    return out


def test_a_descent_of_a_function_that_reads_values_runs_as_it_stands():
    x = wb.array([3.0], requires_grad=True)
    with pytest.raises(wb.LaunchError, match="capture"):
        wb.descend(loss_that_reads, x, rounds=4, lr=0.1)
    found = wb.descend(loss_that_reads, x, rounds=4, lr=0.1, jit=False)
    assert len(found.losses) == 4 and found.losses[-1] < found.losses[0]


def test_samples_of_a_function_that_reads_values_run_as_they_stand():
    x = np.array([3.0], np.float32)
    with pytest.raises(wb.LaunchError, match="capture"):
        wb.smoothed(loss_that_reads, sigma=0.1, samples=8)(x)
    value, slope = wb.smoothed(loss_that_reads, sigma=0.1, samples=2000, jit=False)(x)
    assert abs(value - 9.01) < 0.1 and abs(slope[0] - 6.0) < 0.1

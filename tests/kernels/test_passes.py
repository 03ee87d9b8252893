"""The list of passes: all of them are in it, each is checked, and the error of a broken one names it."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable

import pytest

import workbench as wb
from tests.support.ir_check import IRError, check
from workbench.kernels import PASSES, passes, show
from workbench.kernels.ir import Function, walk
from workbench.kernels.passes import (
    adjoint,
    batch,
    decisions,
    gradients,
    index_tests,
    ledger_adjoint,
    named,
    other_slope,
    race_finder,
    simplify,
    stencil_adjoint,
    tangent,
    ties,
    to_float64,
    unpruned_adjoint,
)

BOTH = frozenset("xy")


@pytest.fixture(autouse=True)
def defaults():
    wb.config.reset()
    yield
    wb.config.reset()


@wb.kernel
def diffuse(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    if i > 0 and i < x.shape[0] - 1:
        y[i] = x[i - 1] + x[i] * x[i] + x[i + 1]


@wb.kernel
def diffuse_by(x: wb.array[float], a: wb.array[int], y: wb.array[float]):
    i = wb.tid()
    y[i] = x[a[i]]


@wb.kernel
def largest(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    for k in range(3):
        wb.atomic_max(y, 0, x[i] * float(k))


@wb.kernel
def smallest(x: wb.array[float], y: wb.array[float]):
    i = wb.tid()
    y[i] = wb.min(x[i], 0.0) + wb.abs(x[i]) * wb.clamp(x[i], -1.0, 0.0)


def of(kernel: wb.Kernel) -> Function:
    return kernel.program().function


def pulled() -> Function:
    made = stencil_adjoint.pull(adjoint.adjoint(of(diffuse), BOTH).function, frozenset({"d_x"}))
    assert made is not None
    return made.pull


def first_branch(function: Function) -> list:
    return [s for s in walk(function.body) if s.row.name == "if"][:1]


def loads_by_index(function: Function) -> list:
    return [s for s in walk(function.body) if s.row.name == "load" and s.args[0].name == "x"]


RUN: dict[str, Callable[[], object]] = {
    "gradients": lambda: gradients.expanded(of(diffuse)),
    "simplify": lambda: simplify.primal(of(diffuse)),
    "forward loads": lambda: simplify.forward(of(diffuse)),
    "adjoint": lambda: adjoint.adjoint(of(diffuse), BOTH),
    "simplify adjoint": lambda: simplify.adjoint(simplify.rewrite(adjoint.adjoint(of(diffuse), BOTH).function)),
    "ties": lambda: ties.ties(of(largest), BOTH),
    "tangent": lambda: tangent.tangent(of(diffuse), BOTH),
    "joint tangent": lambda: tangent.joint(of(diffuse), BOTH),
    "stencil pull": lambda: stencil_adjoint.pull(adjoint.adjoint(of(diffuse), BOTH).function, frozenset({"d_x"})),
    "stencil store": lambda: stencil_adjoint.storing(pulled(), frozenset({"d_x"})),
    "race finder": lambda: race_finder.guard(of(diffuse), frozenset("y")),
    "ledger adjoint": lambda: ledger_adjoint.ledger_adjoint(adjoint.adjoint(of(diffuse), BOTH).function),
    "unpruned adjoint": lambda: unpruned_adjoint.working(of(diffuse), BOTH),
    "decisions": lambda: decisions.with_decisions(of(smallest)),
    "to float64": lambda: to_float64.widen(of(diffuse)),
    "assume branches": lambda: simplify.assume(of(diffuse), first_branch(of(diffuse))),
    "merge parameters": lambda: simplify.merged(of(diffuse), (("x", "y"),)),
    "unroll": lambda: simplify.unrolled(of(largest)),
    "test indices": lambda: index_tests.index_tests(of(diffuse_by), frozenset(loads_by_index(of(diffuse_by)))),
    "other slope": lambda: other_slope.other_slope(adjoint.adjoint(of(smallest), BOTH).function),
    "batch": lambda: batch.batched(of(diffuse), frozenset({"x", "y"})),
}


def test_every_pass_is_in_the_list_once_with_a_name_and_a_sentence():
    modules = [importlib.import_module(f"{passes.__name__}.{m.name}") for m in pkgutil.iter_modules(passes.__path__)]
    found = {f for m in modules for _, f in inspect.getmembers(m, inspect.isfunction) if hasattr(f, "pass_name")}
    assert found == {p.function for p in PASSES}
    assert len({p.name for p in PASSES}) == len(PASSES) == len(RUN)
    assert all(p.does.endswith(".") and len(p.does.split()) > 4 for p in PASSES)


@pytest.mark.parametrize("one", PASSES, ids=lambda p: p.name)
def test_what_a_pass_makes_is_checked(one):
    checked = []
    wb.config.check_passes = lambda function, name: checked.append(function)
    made = RUN[one.name]()
    results = named.functions_of(made)
    assert results, "this run shows nothing"
    assert set(map(id, results)) <= set(map(id, checked))


@pytest.mark.parametrize("one", PASSES, ids=lambda p: p.name)
def test_the_name_of_a_pass_is_told(one):
    RUN[one.name]()  # what it runs on is read, and simplified, once only
    told = []
    wb.config.check_passes = lambda function, name: told.append(name)
    RUN[one.name]()
    assert told[-1] == one.name


def test_a_pass_that_defines_a_value_twice_is_named(monkeypatch):
    def twice(function: Function, groups: tuple = ()) -> Function:
        function.body.body.insert(0, function.body.body[0])
        return function

    function = simplify.rewrite(of(diffuse))
    monkeypatch.setattr(simplify, "prune", twice)
    for run, name in ((simplify.forward, "forward loads"), (simplify.primal, "simplify")):
        wb.config.check_passes = check
        with pytest.raises(IRError, match=rf"(?s)defined twice.*in kernel diffuse.*after the pass '{name}'"):
            run(function)
        wb.config.check_passes = None
        assert run(function).name == "diffuse"


def test_the_steps_of_a_kernel_are_all_there_in_order():
    names = [name for name, _ in diffuse.steps]
    assert names == ["source", "read", "ir", "forward loads", "simplify adjoint", "adjoint", "c", "cuda"]
    texts = dict(diffuse.steps)
    for name in ("source", "ir", "adjoint", "c", "cuda"):
        assert str(texts[name]) == str(getattr(diffuse, name))
    assert str(texts["forward loads"]).count("x[") < str(texts["ir"]).count("x[")


@wb.kernel
def named_results(x: wb.array[float], n: int, y: wb.array[float]):
    i = wb.tid()
    s = x[i] * 2.0
    for _ in range(n):
        s = s * x[i]
    r = 0.0
    if s > 1.0:
        r = s * 3.0
    y[i] = r + s


def test_a_derivative_is_printed_under_the_name_of_its_value():
    """Also behind branches and loops: t_s is the tangent of s, d_s its adjoint."""
    text = show.text(tangent.tangent(of(named_results), BOTH).function)
    for name in ("s", "r"):
        assert re.search(rf"\bt_{name}(_\d+)?\b", text), name
    assert re.search(r"\bd_s(_\d+)?\b", show.text(adjoint.adjoint(of(named_results), BOTH).function))

"""The verifier of the IR: in tests every pass hands what it made to it, by `config.check_passes`.

One idea: the type rules live in the rows, so checking a statement is asking its row again. Only rows with regions,
constants and stacks have rules here. Illegal IR is our fault, never the user's: `IRError` is an internal error.
Invariants: a value is defined once, before its uses, in an enclosing region; arrays and stacks are not carried.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable

import numpy as np

from workbench.kernels import ir, show
from workbench.kernels.ops import control
from workbench.kernels.ops.memory import COMPONENTS
from workbench.kernels.row import Row
from workbench.kernels.types import Array, Composite, Scalar, Stack, Tile, Type, bool_, int32, is_int


class IRError(RuntimeError):
    """A pass made illegal IR: a bug of the workbench. The message ends with the statement."""


def check(function: ir.Function, name: str = "") -> None:
    """Raise IRError unless `function`, which the pass of this name has made, is legal."""
    try:
        _Checker(function).run()
    except IRError as error:
        raise IRError(f"{error}\n  after the pass {name!r}" if name else str(error)) from None


def _demand(holds: object, text: str) -> None:
    if not holds:
        raise IRError(text)


def _types(values: Iterable[ir.Value]) -> list[Type]:
    return [v.type for v in values]


class _Checker:
    def __init__(self, function: ir.Function):
        self.function = function
        self.defined: set[int] = set()  # ids ever defined, in any region
        self.visible: set[int] = set()  # ids defined in this region or around it
        self.fresh: list[int] = []  # those defined in this region

    def run(self) -> None:
        try:
            body = self.function.body
            _demand(not body.results, "a kernel returns nothing")
            self.region(body, lambda v: True)
        except IRError as e:
            raise IRError(f"{e}\n  in kernel {self.function.name}") from None

    def define(self, value: ir.Value, maker: ir.Stmt | None) -> None:
        if not isinstance(value, ir.Value):
            raise IRError(f"{value!r} is not a value")
        if id(value) in self.defined:
            raise IRError(f"value {value.name!r} is defined twice")
        if value.stmt is not maker:
            raise IRError(f"value {value.name!r} names another statement as its maker")
        self.defined.add(id(value))
        self.visible.add(id(value))
        self.fresh.append(id(value))

    def use(self, value: ir.Value) -> None:
        if not isinstance(value, ir.Value):
            raise IRError(f"{value!r} is not a value")
        if id(value) not in self.visible:
            raise IRError(f"value {value.name!r} is used where it is not defined")

    def region(self, region: ir.Region, may_enter: Callable[[ir.Value], bool], known: Iterable[ir.Value] = ()) -> None:
        """Check a region; what it defines is not visible after it. `known` are parameters defined outside."""
        outer, self.fresh = self.fresh, []
        for param in region.params:
            if not may_enter(param):
                raise IRError(f"parameter {param.name!r}: {param.type} cannot be carried through control flow")
            if not any(param is k for k in known):
                self.define(param, None)
        for stmt in region.body:
            self.statement(stmt)
        for result in region.results:
            self.use(result)
            if not ir.is_value(result.type):
                raise IRError(f"result {result.name!r}: {result.type} cannot leave a region")
        self.visible.difference_update(self.fresh)
        self.fresh = outer

    def statement(self, stmt: ir.Stmt) -> None:
        try:
            for arg in stmt.args:
                self.use(arg)
            rule = _RULES.get(stmt.row, _by_row)
            rule(stmt)
        except IRError as e:
            raise IRError(f"{e}\n  {show.line(stmt)}" + (f"\n  {stmt.where}" if stmt.where else "")) from None
        is_call = stmt.row is control.CALL
        for region in stmt.regions:
            self.region(region, lambda v: is_call or ir.is_value(v.type), stmt.args if is_call else ())
        for out in stmt.outs:
            self.define(out, stmt)


def _by_row(stmt: ir.Stmt) -> None:
    """The rule of every row without a rule of its own: the row's type rule gives exactly these results."""
    if stmt.regions:
        raise IRError(f"{stmt.row.name} has no regions")
    _no_arrays_out(stmt)
    try:
        made = stmt.row.type(*_types(stmt.args), **stmt.row.extra(stmt.attr))
    except (TypeError, AssertionError, AttributeError) as e:
        raise IRError(f"{stmt.row.name} refuses its arguments: {e}") from None
    expected = list(made) if isinstance(made, tuple) else [] if made is None else [made]
    if _types(stmt.outs) != expected:
        raise IRError(f"results are {_types(stmt.outs)}, the row says {expected}")


def _no_arrays_out(stmt: ir.Stmt) -> None:
    for out in stmt.outs:
        if isinstance(out.type, Array):
            if stmt.row is not COMPONENTS:
                raise IRError(f"{stmt.row.name} makes an array")
        elif isinstance(out.type, Stack) and stmt.row is not control.STACK:
            raise IRError(f"{stmt.row.name} makes a stack")


def _const(stmt: ir.Stmt) -> None:
    _demand(not stmt.args and not stmt.regions and len(stmt.outs) == 1, "a constant has one result and nothing else")
    type = stmt.outs[0].type
    if not isinstance(type, (Scalar, Composite)):
        raise IRError(f"a constant cannot be of type {type}")
    many = isinstance(stmt.attr, tuple)
    parts = stmt.attr if many else (stmt.attr,)
    if many and not (isinstance(type, Composite) and len(parts) == type.size):
        raise IRError(f"{len(parts)} components for {type}")
    for part in parts:
        if not _fits(part, type.scalar):
            raise IRError(f"constant {part!r} does not fit {type}")


def _fits(number: object, scalar: Scalar) -> bool:
    if scalar.kind == "b" or isinstance(number, (bool, np.bool_)):
        return scalar.kind == "b" and isinstance(number, (bool, np.bool_))
    if scalar.kind == "f":
        return isinstance(number, numbers.Real)
    if not isinstance(number, numbers.Integral):
        return False
    low = -(1 << scalar.bits - 1) if scalar.kind == "i" else 0
    return low <= int(number) < low + (1 << scalar.bits)


def _index(stmt: ir.Stmt) -> None:
    _by_row(stmt)
    _demand(isinstance(stmt.attr, control.Tid) and 0 <= stmt.attr.axis < 4, f"{stmt.attr!r} is no launch dimension")


def _carried(init: list[Type], stmt: ir.Stmt, params: list[Type], results: list[Type], what: str) -> None:
    expected = [bool_, *init] if stmt.attr.breaks else init
    for type in init:
        _demand(not isinstance(type, (Array, Stack)), f"{type} cannot be carried through control flow")
    _demand(params == init, f"{what} parameters are {params}, what is carried in is {init}")
    _demand(results == expected, f"{what} results are {results}, not {expected}")
    _demand(_types(stmt.outs) == init, f"outs are {_types(stmt.outs)}, what is carried in is {init}")


def _loop(stmt: ir.Stmt, regions: int) -> None:
    _demand(isinstance(stmt.attr, control.Loop), "a loop's attribute is a Loop")
    _demand(len(stmt.regions) == regions, f"{stmt.row.name} has {regions} region(s), not {len(stmt.regions)}")


def _if(stmt: ir.Stmt) -> None:
    _demand(_types(stmt.args) == [bool_], f"the condition must be one bool, not {_types(stmt.args)}")
    _demand(len(stmt.regions) == 2, "if has two regions")
    _no_arrays_out(stmt)
    for region in stmt.regions:
        _demand(not region.params, "the regions of if have no parameters")
        results = _types(region.results)
        _demand(results == _types(stmt.outs), f"a branch gives {results}, the outs are {_types(stmt.outs)}")


def _for(stmt: ir.Stmt) -> None:
    _loop(stmt, 1)
    body = stmt.regions[0]
    bounds = _types(stmt.args[:3])
    alike = len(bounds) == 3 and is_int(bounds[0]) and bounds == [bounds[0]] * 3
    _demand(alike, f"the bounds must be three integers of one type, not {bounds}")
    _demand(_types(body.params[:1]) == bounds[:1], f"the loop variable is no {bounds[0]}")
    _carried(_types(stmt.args[3:]), stmt, _types(body.params[1:]), _types(body.results), "loop")


def _while(stmt: ir.Stmt) -> None:
    _loop(stmt, 2)
    init = _types(stmt.args)
    test, body = stmt.regions
    _demand(_types(test.params) == init, f"condition parameters are {_types(test.params)}, not {init}")
    _demand(_types(test.results) == [bool_], f"the condition must be one bool, not {_types(test.results)}")
    _carried(init, stmt, _types(body.params), _types(body.results), "loop")


def _call(stmt: ir.Stmt) -> None:
    _demand(len(stmt.regions) == 1, "call has one region")
    _no_arrays_out(stmt)
    region = stmt.regions[0]
    _demand(_types(region.params) == _types(stmt.args), "the region's parameters are not the arguments")
    _demand(_types(region.results) == _types(stmt.outs), "the region's results are not the outs")


def _each(stmt: ir.Stmt) -> None:
    _demand(isinstance(stmt.attr, control.Each), "the attribute of each is an Each")
    _demand(len(stmt.regions) == 1, "each has one region")
    (region,), shape = stmt.regions, stmt.attr.shape
    for value in (*stmt.args, *stmt.outs):
        _demand(isinstance(value.type, Tile) and value.type.dims == shape, f"{value.type} is no tile of shape {shape}")
    expected = [int32] * len(shape) + [ir.numeric(v).scalar for v in stmt.args]
    _demand(_types(region.params) == expected, f"the parameters are {_types(region.params)}, not {expected}")
    made = [ir.numeric(v).scalar for v in stmt.outs]
    _demand(_types(region.results) == made, f"the results are {_types(region.results)}, not {made}")


def _push(stmt: ir.Stmt) -> None:
    _by_row(stmt)
    _demand(len(stmt.args) == 2 and isinstance(stmt.args[0].type, Stack), "push takes a stack and a value")
    stack = ir.type_as(stmt.args[0], Stack)
    _demand(stmt.args[1].type == stack.dtype, f"a {stmt.args[1].type} is pushed on {stack}")


def _stack(stmt: ir.Stmt) -> None:
    _demand(isinstance(stmt.attr, Stack), f"the attribute of stack is its type, not {stmt.attr!r}")
    _by_row(stmt)


_RULES: dict[Row, Callable[[ir.Stmt], None]] = {
    control.CONST: _const,
    control.TID: _index,
    control.DIM: _index,
    control.IF: _if,
    control.FOR: _for,
    control.WHILE: _while,
    control.CALL: _call,
    control.EACH: _each,
    control.PUSH: _push,
    control.STACK: _stack,
}

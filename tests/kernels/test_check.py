"""Legal IR passes, and each rule of the checker is broken once."""

from __future__ import annotations

import pytest

from tests.support.ir_check import IRError, check
from workbench.errors import Where
from workbench.kernels import ir
from workbench.kernels.ops import control, memory
from workbench.kernels.row import Row
from workbench.kernels.types import Array, Stack, bool_, float32, float64, int32, int64, uint8, vector

ADD = Row("add", type=lambda a, b: a, sign="+")
X = Array(float32)
VEC = vector(3, float32)


def function(*types):
    params = [ir.Value(t, name) for t, name in zip(types, "xyz", strict=False)]
    made = ir.Function("k", ir.Region(params))
    return made, ir.Builder(made.body), params


def const(b, value, type=int32):
    return b.append(control.CONST, (), (type,), attr=value).outs[0]


def region(params=(), results=(), body=()):
    return ir.Region([ir.Value(t) for t in params], list(body), tuple(results))


def loop(types, breaks=False):
    """A legal `for` that carries values of these types unchanged, still to be spoiled."""
    f, b, _ = function()
    bounds = [const(b, v) for v in (0, 3, 1)]
    init = [const(b, 0, t) for t in types]
    go = [const(b, True, bool_)] if breaks else []
    body = region([int32, *types])
    body.results = (*go, *body.params[1:])
    return f, b.append(control.FOR, [*bounds, *init], types, (body,), control.Loop(breaks))


def loop_while(types):
    f, b, _ = function()
    init, go = [const(b, 0, t) for t in types], const(b, True, bool_)
    test, body = region(types, [go]), region(types)
    body.results = tuple(body.params)
    return f, b.append(control.WHILE, init, types, (test, body), control.Loop())


def branch(types):
    f, b, _ = function()
    condition = const(b, True, bool_)
    results = [const(b, 0, t) for t in types]
    return f, b.append(control.IF, (condition,), types, (region((), results), region((), results)))


def refused(f, match):
    with pytest.raises(IRError, match=match) as e:
        check(f)
    return str(e.value)


@pytest.mark.parametrize(
    "made", [loop([float32]), loop([float32, int32], True), loop_while([int32]), branch([float32])]
)
def test_legal_control_flow_passes(made):
    check(made[0])


def test_legal_memory_and_stacks_pass():
    f, b, (x, y) = function(Array(VEC), float32)
    flat = b.emit(memory.COMPONENTS, x)
    i = b.emit(control.TID, attr=control.Tid(0))
    b.emit(memory.ACCUMULATE, flat, i, i, y)
    stack = b.emit(control.STACK, attr=Stack(float32))
    b.emit(control.PUSH, stack, b.emit(memory.ATOMIC_ADD, flat, i, i, y))
    b.emit(control.POP, stack)
    check(f)


def test_the_message_prints_the_statement_its_line_and_the_kernel():
    f, b, (x, y) = function(float32, float32)
    b.where = Where("cell.py", 7, text="z = x + y")
    b.append(ADD, (x, y), (int32,), name="z")
    text = refused(f, "the row says")
    assert "z: int32 = x + y" in text and "cell.py:7" in text and "kernel k" in text


# --- scopes


def test_a_value_must_be_defined_before_its_use():
    f, b, (x,) = function(float32)
    b.append(ADD, (x, ir.Value(float32, "late")), (float32,))
    refused(f, "'late' is used where it is not defined")


def test_a_value_of_an_inner_region_is_not_visible_outside():
    f, stmt = branch([])
    b = ir.Builder(stmt.regions[0])
    hidden = const(b, 1)
    ir.Builder(f.body).append(ADD, (hidden, hidden), (int32,))
    refused(f, "used where it is not defined")


def test_a_value_of_one_branch_is_not_visible_in_the_other():
    f, stmt = branch([])
    hidden = const(ir.Builder(stmt.regions[0]), 1)
    ir.Builder(stmt.regions[1]).append(ADD, (hidden, hidden), (int32,))
    refused(f, "used where it is not defined")


def test_a_value_is_defined_once():
    f, b, (x,) = function(float32)
    b.append(ADD, (x, x), (float32,))
    f.body.body.append(f.body.body[0])
    refused(f, "defined twice")


def test_a_value_names_its_maker():
    f, b, (x,) = function(float32)
    b.append(ADD, (x, x), (float32,)).outs[0].stmt = None
    refused(f, "another statement as its maker")


# --- types


def test_the_type_rule_of_a_row_is_asked_again():
    f, b, (x, y) = function(X, float32)
    b.append(memory.LOAD, (x, y), (float32,))
    refused(f, "an index must be an integer")


def test_a_rule_that_needs_the_attribute_gets_it():
    f, b, (x,) = function(X)
    b.append(memory.SHAPE, (x,), (int32,), attr=1)
    refused(f, "shape refuses its arguments")


def test_a_row_without_regions_has_none():
    f, b, (x,) = function(float32)
    b.append(ADD, (x, x), (float32,), (region(),))
    refused(f, "add has no regions")


def test_a_launch_dimension_is_one_of_four():
    f, b, _ = function()
    b.append(control.TID, (), (int32,), attr=control.Tid(4))
    refused(f, "no launch dimension")


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (1.5, int32),
        (True, int32),
        (True, float32),
        (1, bool_),
        ("a", float32),
        (1j, float64),
        (300, uint8),
        (-1, uint8),
        (2**40, int32),
        ((1.0, 2.0), VEC),
        ((1.0,), float32),
        ((1, 2, None), VEC),
        (0, X),
        (0, Stack(int32)),
    ],
)
def test_a_constant_fits_its_type(value, type):
    f, b, _ = function()
    const(b, value, type)
    refused(f, "constant|components for")


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (1, float32),
        (2**40, int64),
        (255, uint8),
        (False, bool_),
        (0.0, VEC),
        ((1, 2.0, 3), VEC),
        (float("nan"), float32),
    ],
)
def test_a_fitting_constant_passes(value, type):
    f, b, _ = function()
    const(b, value, type)
    check(f)


# --- arrays and stacks stay where they are


def test_an_array_is_made_by_components_alone():
    f, b, (x,) = function(X)
    b.append(ADD, (x, x), (X,))
    refused(f, "add makes an array")


def test_a_stack_is_made_by_stack_alone():
    f, b, _ = function()
    stack = b.emit(control.STACK, attr=Stack(int32))
    b.append(ADD, (stack, stack), (stack.type,))
    refused(f, "add makes a stack")


def test_a_loop_carries_no_array():
    f, b, (x,) = function(X)
    body = region([int32, X])
    body.results = (body.params[1],)
    bounds = [const(b, v) for v in (0, 3, 1)]
    b.append(control.FOR, [*bounds, x], [X], (body,), control.Loop())
    refused(f, "cannot be carried")


def test_a_branch_gives_no_array():
    f, b, (x,) = function(X)
    b.append(control.IF, (const(b, True, bool_),), (X,), (region((), [x]), region((), [x])))
    refused(f, "if makes an array")


def test_a_region_of_a_branch_returns_no_array():
    f, b, (x,) = function(X)
    stmt = b.append(control.IF, (const(b, True, bool_),), (), (region(), region()))
    stmt.regions[0].results = (x,)
    refused(f, "a branch gives")


def test_a_kernel_returns_nothing():
    f, b, (x,) = function(float32)
    f.body.results = (x,)
    refused(f, "a kernel returns nothing")


# --- stacks


def test_only_a_stack_is_pushed_on():
    f, b, (x, y) = function(float32, float32)
    b.append(control.PUSH, (x, y), ())
    refused(f, "push takes a stack")


def test_only_a_stack_is_popped():
    f, b, (x,) = function(float32)
    b.append(control.POP, (x,), (float32,))
    refused(f, "pop refuses its arguments")


def test_what_is_pushed_has_the_stacks_type():
    f, b, (x,) = function(float64)
    b.append(control.PUSH, (b.emit(control.STACK, attr=Stack(float32)), x), ())
    refused(f, "is pushed on")


def test_the_attribute_of_a_stack_is_its_type():
    f, b, _ = function()
    b.append(control.STACK, (), (float32,), attr=float32)
    refused(f, "attribute of stack")


# --- control flow


def test_a_condition_is_one_bool():
    f, stmt = branch([])
    stmt.args = (const(ir.Builder(), 1),)
    f.body.body.insert(0, stmt.args[0].stmt)
    refused(f, "condition must be one bool")


def test_branches_agree_with_the_outs():
    f, stmt = branch([float32])
    stmt.regions[1].results = ()
    refused(f, "a branch gives")


def test_branches_have_no_parameters():
    f, stmt = branch([])
    stmt.regions[0].params.append(ir.Value(int32))
    refused(f, "no parameters")


def test_if_has_two_regions():
    f, stmt = branch([])
    stmt.regions = stmt.regions[:1]
    refused(f, "two regions")


def test_bounds_are_integers_of_one_type():
    f, stmt = loop([])
    stmt.args[1].type, stmt.args[1].stmt.attr = float32, 3.0
    refused(f, "three integers of one type")
    f, stmt = loop([])
    stmt.args[1].type = int64
    refused(f, "three integers of one type")


def test_the_loop_variable_has_the_type_of_the_bounds():
    f, stmt = loop([])
    stmt.regions[0].params[0].type = int64
    refused(f, "loop variable")


def test_loop_parameters_match_what_is_carried_in():
    f, stmt = loop([float32])
    stmt.regions[0].params[1].type = float64
    refused(f, "loop parameters")


def test_loop_results_match_what_is_carried_in():
    f, stmt = loop([float32])
    stmt.regions[0].results = ()
    refused(f, "loop results")


def test_a_loop_that_breaks_says_whether_to_go_on():
    f, stmt = loop([float32], breaks=True)
    stmt.regions[0].results = stmt.regions[0].results[1:]
    refused(f, "loop results")


def test_a_loop_hands_out_what_it_carries():
    f, stmt = loop([float32])
    stmt.outs[0].type = float64
    refused(f, "outs are")


def test_a_loop_has_its_attribute_and_its_regions():
    f, stmt = loop([])
    stmt.attr = None
    refused(f, "attribute is a Loop")
    f, stmt = loop_while([])
    stmt.regions = stmt.regions[:1]
    refused(f, "while has 2 region")


def test_the_test_of_a_while_gives_one_bool():
    f, stmt = loop_while([int32])
    stmt.regions[0].results = (stmt.regions[0].params[0],)
    refused(f, "condition must be one bool")


def test_both_regions_of_a_while_take_what_is_carried():
    f, stmt = loop_while([int32])
    stmt.regions[0].params.pop()
    refused(f, "condition parameters")
    f, stmt = loop_while([int32])
    stmt.regions[1].params[0].type = int64
    refused(f, "loop parameters")


def call(params, results, outs):
    f, b, (x, y) = function(X, float32)
    body = region(params)
    body.results = tuple(body.params[k] for k in results)
    b.append(control.CALL, (x, y), outs, (body,))
    return f


def test_a_call_takes_arrays_and_returns_values():
    check(call([X, float32], [1], [float32]))
    refused(call([float32, float32], [1], [float32]), "are not the arguments")
    refused(call([X, float32], [1], []), "are not the outs")
    refused(call([X, float32], [0], [X]), "call makes an array")

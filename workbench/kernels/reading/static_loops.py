"""Compile-time evaluation: `static(...)`, and loops over a fixed list of things, unrolled.

`for f in static([a, b]): ...`, over a tuple, `zip` or `enumerate` of those; and `for i in range(3)` where the body puts
i into `static(...)` or takes a part of a tuple by it. All other loops stay loops.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from .. import ir, ops
from ..ops import control
from ..row import Row
from ..types import Array, Composite, Type
from . import declare, python_names
from .base import Meaning, ReaderBase, reads
from .declare import Instance, struct_of
from .lower_bounds import static_int
from .scope import FRESH, ArrayView, Choice, Local, Shown, StructParts, Unusable, is_array, is_literal
from .source import codes

FIXED = (bool, int, float, str, np.generic, type(None), Type, Row, BuiltinFunctionType)  # ask nothing further
TURNS = 512  # more of them make a program that no compiler likes


class StaticValue:
    """Stand-in for a value of the kernel inside `static`: its type, its length."""

    def __init__(self, type: Meaning, shape: tuple[int, ...] | None):
        self.type, self.dtype, self.ndim = type, getattr(type, "scalar", getattr(type, "dtype", None)), 0
        if shape is not None:
            self.shape, self.ndim = shape, len(shape)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("how long an array is is known only when the kernel runs")
        return self.shape[0]


@reads(declare.static)
def call_static(reader: ReaderBase, node: ast.Call) -> Any:
    if len(node.args) != 1 or node.keywords:
        raise reader.error("static() takes one expression", "arguments", node, "", "static(N + 1)")
    return struct_given(evaluated(reader, node.args[0], node))


def struct_given(found: Meaning) -> Any:
    """An instance of a struct without arrays as a value of the kernel; anything else as it is."""
    if not isinstance(found, Instance) or any(isinstance(t, Array) for _, t in struct_of(found).fields):
        return found
    fields = {name: struct_given(getattr(found, name)) for name, _ in struct_of(found).fields}
    return StructParts(struct_of(found), fields)


def evaluated(reader: ReaderBase, expression: ast.expr, node: ast.AST) -> Any:
    """The value of a Python expression while the kernel is read."""
    code = compile(ast.Expression(expression), reader.frame.source.file, "eval")
    around = dict(reader.frame.around)
    names = {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}
    looked_up = {name for part in codes(code) for name in part.co_names}
    for name in names & looked_up & reader.state.names.keys():
        found = known_value(reader.state.names[name])
        around.pop(name, None)
        if found is not None:
            around[name] = found
    try:
        found = eval(code, around)  # the user's own expression, in the user's own module
    except Exception as e:
        why = "It sees Python variables, constants, and the lengths and types of locals."
        raise reader.error(f"static() failed: {type(e).__name__}: {e}", "static", node, why) from None
    if isinstance(found, StaticValue):
        text = f"`{ast.unparse(expression)}` is known only when the kernel runs"
        raise reader.error(text, "static", node, "static() sees its length and type.", "static(len(v))")
    known, fn = {n: x for n, x in (vars(builtins) | around).items() if n in names}, reader.frame.fn
    outside = known.keys() - reader.state.names.keys()
    for name in outside:
        reader.note(name, known[name])
    used = [x for n, x in known.items() if x is not getattr(builtins, n, None)]
    if not all(isinstance(x, FIXED) for x in used) or any(isinstance(n, ast.Attribute) for n in ast.walk(expression)):
        reader.lookups.expression(lambda: eval(code, known | {n: python_names.present(fn, n) for n in outside}), found)
    return found


def known_value(x: Meaning) -> Any:
    """A local as `static` sees it: a constant, or a `StaticValue`; None where nothing is known."""
    if isinstance(x, Local):
        return StaticValue(x.type, tuple(static_int(turn.length) or 0 for turn in x.cut.turns))
    if isinstance(x, ArrayView | Choice):
        return StaticValue(x.type, None)
    if isinstance(x, ir.Value):
        if x.stmt is not None and x.stmt.row is control.CONST and not isinstance(x.type, Composite):
            return x.stmt.attr
        return StaticValue(x.type, x.type.shape) if isinstance(x.type, Composite) else None
    return None if isinstance(x, Unusable | StructParts | Shown) or is_array(x) else x


# ---- loops


def static_loop(reader: ReaderBase, node: ast.For) -> bool:
    """Read a loop over things that are known. False if it is another loop."""
    items = items_of(reader, node.iter, node)
    if items is None:
        return False
    if len(items) > TURNS:
        text = f"this loop has {len(items)} turns, which are written out"
        why = f"There may be {TURNS}."
        raise reader.error(text, "static-loop", node.iter, why, "an array, and a loop over range(...)")
    read_turns(reader, node, items)
    left = reader.state.names["$return"]
    stays = not left if isinstance(left, bool) else ops.unary("not", left)
    reader.state.names.update({"$stop": left, "$go": stays})
    return True


def read_turns(reader: ReaderBase, node: ast.For, items: Sequence[Any]) -> None:
    """One turn after the other, each where the ones before have not left the loop."""
    if not items:
        return
    reader.state.names.update(FRESH)
    take_item(reader, node.target, items[0], isinstance(items, range))
    reader.block(node.body)
    go, rest = reader.state.names["$go"], items[1:]
    if rest and go is not False:
        reader.branch(node, go, lambda: read_turns(reader, node, rest), lambda: None)


def take_item(reader: ReaderBase, target: ast.expr, item: Meaning, counted: bool) -> None:
    """Bind what a turn is about. Numbers of a list are constants of Python, whose type is that beside them."""
    if isinstance(target, ast.Tuple | ast.List) and isinstance(item, tuple | list) and len(item) == len(target.elts):
        for t, part in zip(target.elts, item, strict=True):
            take_item(reader, t, part, counted)
    elif isinstance(target, ast.Name) and is_literal(item) and not counted:
        reader.state.names[target.id] = item
    else:
        reader.assign(target, item)


def items_of(reader: ReaderBase, over: ast.expr, node: ast.For) -> Sequence[Any] | None:
    """The things that a loop runs over, where they are known; None of other loops."""
    if isinstance(over, ast.Tuple | ast.List):
        return reader.visit_Tuple(over)
    if not isinstance(over, ast.Call):
        found = reader.python_object(over)
        if isinstance(found, list):
            return evaluated(reader, over, over)
        return reader.visit(over) if isinstance(found, tuple) else None
    callee = reader.python_object(over.func)
    if callee is declare.static:
        found = reader.visit(over)
        return list(found) if isinstance(found, list | tuple | range | np.ndarray | dict) else None
    if any(callee is f for f in (builtins.enumerate, builtins.zip, builtins.reversed)) and not over.keywords:
        parts = [items_of(reader, arg, node) for arg in over.args]
        return None if None in parts else list(callee(*parts))
    if callee is not range or not wants_numbers(reader, node) or over.keywords:
        return None
    bounds = [b for a in over.args if (b := static_int(reader.visit(a))) is not None]
    return None if len(bounds) < len(over.args) else range(*bounds)


def wants_numbers(reader: ReaderBase, node: ast.For) -> bool:
    """True if the turn's number is part of what must be known: in `static(...)`, or an index of a Python object."""
    if not isinstance(node.target, ast.Name):
        return False
    name = node.target.id
    for n in (n for stmt in node.body for n in ast.walk(stmt)):
        if isinstance(n, ast.Call) and reader.python_object(n.func) is declare.static:
            within = n
        elif isinstance(n, ast.Subscript) and isinstance(reader.python_object(n.value), tuple):
            within = n.slice
        else:
            continue
        if any(isinstance(m, ast.Name) and m.id == name for m in ast.walk(within)):
            return True
    return False

"""A decorated Python function becomes IR: names, types, structs and calls are resolved here and never again.

One visitor method per accepted node of Python's grammar; what has none is refused by `refused_syntax`. While it
reads, a name stands for a value, an array handle, a struct taken apart, or a Python object (`scope`).
`control_flow` reads branches and loops, `subscripts` parts and assignments, `calls` everything with parentheses.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import KernelError, Where, caution
from .. import ir, ops
from ..ops import control
from ..ops.control import Claim
from ..types import Array, Composite, Scalar, Struct, Type, bool_, is_int, scalar_of
from . import assigned_names as stores, hints, python_names, refused_syntax
from .addresses import is_address, moved_address
from .base import Meaning, Opened
from .calls import Calls
from .chosen_arrays import array_given, is_none
from .conditions import Guarded
from .control_flow import ControlFlowReader
from .declare import Func, Refused, tid
from .handles import refuse_writes
from .literals import LITERAL, SIGNS, LiteralsReader, fold
from .lookups import Lookups
from .optional_arrays import NONE, MissingArrays, not_given
from .scope import ArrayView, Fields, StructParts, Unusable, describe, is_array, is_literal, local_keys
from .subscripts import Places
from .tile_parts import is_tile, per_part, tile_binary
from .tile_sharing import present_tiles, tiles_copied

UNARY = {"USub": "-", "UAdd": "+", "Invert": "~", "Not": "not"}


@dataclass(eq=False)
class Reading:
    """One kernel as it was read: its IR, its parameters as the user wrote them, and what it took from Python."""

    function: ir.Function
    params: list[tuple[str, Type]]
    lookups: Lookups
    gaps: MissingArrays = NONE
    presence_tests: set[str] = field(default_factory=set)  # flat array parameters used as conditions
    behind: dict[str, Opened] = field(default_factory=dict)  # flat parameters that stand behind numbers of others


def read(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    generic_types: dict[str, Type] | None = None,
    gaps: MissingArrays = NONE,
) -> Reading:
    """Read a kernel. `generic_types`: of parameters annotated with `typing.Any`; `gaps`: what a launch leaves out.

    Raises KernelError.
    """
    return Reader(gaps).kernel(fn, name or fn.__name__, generic_types or {})


class Reader(ControlFlowReader, Places, Calls, LiteralsReader):
    """Reads one kernel."""

    # ---- functions

    def kernel(self, fn: Callable[..., Any], name: str, generic: dict[str, Type]) -> Reading:
        self.push(fn, None)
        src = self.frame.source
        params = [(a.arg, self.parameter_type(a, generic)) for a in self.parameters(src.tree)]
        with self.builder.open():
            for (param, type), node in zip(params, self.parameters(src.tree), strict=True):
                self.state.names[param] = self.parameter(param, type, self.where(node))
            self.body()
        refuse_writes(self)
        body, where = self.builder.region, self.where(src.tree)
        function = ir.Function(name, body, self.rank or 1, where, src.text, src.first, src.file, self.processor_only)
        return Reading(
            function, params, self.lookups, gaps=self.gaps, presence_tests=self.presence_tests, behind=self.behind
        )

    def parameters(self, tree: ast.FunctionDef) -> list[ast.arg]:
        a = tree.args
        for star in (a.vararg, a.kwarg):
            if star is not None:
                raise refused_syntax.refuse("StarParameter", self.where(star))
        return [*a.posonlyargs, *a.args, *a.kwonlyargs]

    def parameter_type(self, node: ast.arg, generic: dict[str, Type]) -> Type:
        found = generic.get(node.arg) or python_names.annotation(
            self.frame.fn, node.arg, self.frame.around, self.where(node), self.lookups
        )
        if isinstance(found, Type) and getattr(found, "dtype", None) is not Any:
            return found
        why, instead = "A kernel is compiled for the types of its parameters.", f"{node.arg}: array(dtype=float)"
        if node.arg == "self":
            why, instead = "A kernel is no method.", "the kernel outside the class, with what it needs as arguments"
        raise self.error(f"the parameter `{node.arg}` needs a type", "annotation", node, why, instead)

    def parameter(self, name: str, type: Type, where: Where | None, given: bool = True) -> Any:
        """Flat parameters for one parameter of the user. Of an array that is not `given` there are none."""
        if isinstance(type, Struct):
            return StructParts(type, {f: self.parameter(type.path(name, f), t, where) for f, t in type.fields})
        given = given and not (isinstance(type, Array) and name in self.gaps.absent)
        if isinstance(type, Array) and isinstance(type.dtype, Struct):
            fields = type.dtype.fields
            parts = {f: self.parameter(f"{name}.{f}", Array(t, type.ndim), where, given) for f, t in fields}
            return Fields(type, parts)
        value = ir.Value(type, name, where)
        if given:
            self.builder.region.params.append(value)
        else:
            self.builder.absent[value] = not_given(name)
        return ArrayView(value) if isinstance(type, Array) else value

    # ---- statements

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return  # a docstring
        if not isinstance(node.value, ast.Call):
            if getattr(self, f"visit_{refused_syntax.name_of(node.value)}", None) is None:
                self.visit(node.value)
            raise refused_syntax.refuse("Expr", self.where(node))
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        value = self.right_side(node.value, target)
        if isinstance(node.value, ast.Name):
            value = tiles_copied(self, value)
        for target in node.targets:
            self.assign(target, value)

    def right_side(self, node: ast.expr, target: ast.expr) -> Any:
        """The value of an assignment; `i, j = tid()` is the one call that depends on what it is assigned to."""
        several = isinstance(target, (ast.Tuple, ast.List))
        if several and isinstance(node, ast.Call) and self.python_object(node.func) is tid:
            self.unpacking = len(target.elts)
        try:
            return self.checked(self.visit(node), node)
        finally:
            self.unpacking = None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            raise self.error("a declaration without a value does nothing", "no-effect", node, "", "x: float = 0.0")
        value = self.checked(self.visit(node.value), node.value)
        wanted = self.visit(node.annotation)
        if isinstance(wanted, (Scalar, Composite)) or wanted in (int, float, bool):
            type = wanted if isinstance(wanted, Composite) else scalar_of(wanted)
            value = self.typed(value, type)
            if value.type != type:
                text = f"`{ast.unparse(node.target)}` is declared {type} but gets {value.type}"
                raise self.error(text, "annotation", node.value, "", f"{type}({ast.unparse(node.value)})")
        self.assign(node.target, value)

    def visit_Assert(self, node: ast.Assert) -> None:
        message = node.msg.value if isinstance(node.msg, ast.Constant) else None
        if node.msg is not None and not isinstance(message, str):
            raise self.error("the message of `assert` is text in quotes", "assert", node.msg, "", 'assert n > 0, "..."')
        holds = self.condition(node.test)
        text = f"{message or 'this does not hold'}: {ast.unparse(node.test)}"
        self.claim(holds, control.Claim(text))

    # ---- expressions

    def visit_Constant(self, node: ast.Constant) -> Any:
        v = node.value
        if v is None or v is ... or isinstance(v, (str, bytes, complex)):
            name = {type(None): "None", type(...): "Ellipsis", complex: "Complex"}.get(type(v), "String")
            raise refused_syntax.refuse(name, self.where(node))
        return v

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self.state.names:
            found = self.state.names[node.id]
            return self.assigned(found, node) if isinstance(found, Unusable) else present_tiles(self, found)
        return self.outside(node)

    def assigned(self, x: Unusable, node: ast.Name) -> Any:
        """The value of a name that only some paths assign. Raises KernelError if this path may not."""
        if isinstance(x, Guarded) and not self.conditions.truth(x.flag) and not local_keys(x.tree):
            x = self.with_earlier_turns(x, node.id)
        return self.looked_at(x, node, f"`{node.id}` has no value here.")

    def with_earlier_turns(self, x: Guarded, name: str) -> Guarded:
        """Such a name, where it is first assigned in a loop around: a turn before may have assigned it."""
        inner = loop = self.state.names.get("$loop")
        while loop is not None and not loop.starts(name):
            loop = loop.before.names.get("$loop")
        if loop is None:
            return x
        found = loop.with_earlier(name, x)
        if loop is inner:
            self.state.names[name] = found
        return found

    def looked_at(self, x: Unusable, node: ast.AST, text: str) -> Any:
        refusal = x.error(self.where(node))
        if isinstance(x, Guarded):
            holds = self.conditions.truth(x.flag)
            looked_at = holds is None and (x.parts or self.likely.truth(x.flag) is True)
            if looked_at:
                assert isinstance(refusal, KernelError)
                self.claim(x.flag, Claim(text, refusal.slug or "", refusal.why, refusal.instead, always=True))
            if holds or looked_at:
                return x.tree
        raise refusal

    def outside(self, node: ast.Name) -> Any:
        """A Python variable around the function: a constant for the kernel."""
        if node.id in stores.names(self.frame.source.tree):
            text = f"`{node.id}` has no value here"
            why = "It is assigned further down only."
            raise self.error(text, "maybe-unbound", node, why, f"{node.id} = ..., before this line")
        known = [n for n in self.state.names if not n.startswith("$")]
        found = python_names.lookup(node.id, self.frame.around, known, self.where(node))
        self.note(node.id, found)
        return found

    def python_attribute(self, base: Meaning, node: ast.Attribute) -> Any:
        try:
            found = getattr(base, node.attr)
            if isinstance(found, Refused):
                text = f"`{found.__name__}` of NVIDIA Warp is not in the kernel language"
                raise self.error(text, "refused-builtin", node, found.__doc__ or "")
            self.lookups.link("attribute", base, node.attr, found)
            return found
        except AttributeError:
            reason = ops.why_refused(node.attr)
            name = getattr(base, "__name__", describe(base))
            close = "" if reason else ops.instead_of(node.attr, dir(base), ast.unparse(node.value))
            raise self.error(f"`{name}` has no `{node.attr}`", "unknown-name", node, reason or "", close) from None
        except Exception as failure:  # of the user's own object
            if isinstance(failure, KernelError):
                raise
            text, instead = f"`{ast.unparse(node)}` raises {failure!r}", "an attribute that is there"
            raise self.error(text, "unknown-name", node, "", instead) from None

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
        return tuple(self.checked(self.visit(item), item) for item in node.elts)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left = self.checked(self.visit(node.left), node.left)
        right = self.checked(self.visit(node.right), node.right)
        if isinstance(node.op, ast.Div) and _truncates(left, right) and not getattr(self.frame.fn, "snippet", ""):
            a, b = ast.unparse(node.left), ast.unparse(node.right)
            exact = f"float({a}) / {b}.0" if is_literal(right) else f"float({a}) / float({b})"
            caution(
                f"`{ast.unparse(node)}` of two whole numbers is rounded towards zero in a kernel, as in C."
                f" Write `{a} // {b}` if that is meant, else `{exact}`. [integer-division]",
                self.where(node),
            )
        with hints.mixed_types(self, node.left, node.right):
            return self.binary(node.op, left, right)

    def binary(self, op: ast.operator, a: Meaning, b: Meaning) -> Any:
        sign = SIGNS[refused_syntax.name_of(op)]
        if is_tile(a) or is_tile(b):
            return tile_binary(self, sign, a, b)
        if is_address(a) or is_address(b):
            return moved_address(self, sign, a, b)
        if is_literal(a) and is_literal(b):
            folded = fold(sign, a, b)
            if folded is not None:
                return folded
        a, b = self.operands(sign, a, b)
        if sign == "/" and is_int(a.type) and self.facts.non_negative(a) and (self.facts.lower(b) or 0) > 0:
            sign = "//"  # the same number, and known to the analysis of indices
        return ops.binary(sign, a, b)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        sign = UNARY[refused_syntax.name_of(node.op)]
        if sign == "not":
            condition = self.condition(node.operand)
            return not condition if isinstance(condition, bool) else ops.unary("not", condition)
        x = self.checked(self.visit(node.operand), node.operand)
        if is_literal(x) and not isinstance(x, bool) and (sign != "~" or isinstance(x, int)):
            return -x if sign == "-" else ~int(x) if sign == "~" else x
        if isinstance(x, StructParts) and is_tile(x) and sign == "-":
            return per_part(x, lambda part: ops.unary("-", part))
        return ops.unary(sign, self.value(x))

    def visit_Compare(self, node: ast.Compare) -> Any:
        """`a < b < c` evaluates b once, and c only where a < b."""
        left = self.checked(self.visit(node.left), node.left)
        held = [left]

        def part(op: ast.cmpop, right: ast.expr) -> Any:
            if isinstance(op, ast.Is | ast.IsNot) and isinstance(right, ast.Constant) and right.value is None:
                return is_none(self, op, held[0], node)
            a, b = held[0], self.checked(self.visit(right), right)
            held[0] = b
            return self.compared(op, a, b, node)

        return self.chain(
            node, True, [lambda o=o, r=r: part(o, r) for o, r in zip(node.ops, node.comparators, strict=True)]
        )

    def compared(self, op: ast.cmpop, a: Meaning, b: Meaning, node: ast.Compare) -> Any:
        name = refused_syntax.name_of(op)
        if name not in SIGNS:
            raise refused_syntax.refuse(name, self.where(node))
        if is_literal(a) and is_literal(b):
            return bool(LITERAL[SIGNS[name]](a, b))
        return ops.compare(SIGNS[name], *self.comparable(*self.operands(SIGNS[name], a, b)))

    def condition(self, node: ast.expr) -> Any:
        """A Python bool where it is known, else a bool value."""
        x = self.checked(self.visit(node), node)
        if is_literal(x):
            return bool(x)
        if is_array(x):
            return array_given(self, x)
        with self.at(node):
            v = self.value(x)
            if v.type == bool_:
                return v
            if not isinstance(v.type, Scalar):
                raise self.error(f"{v.type} is no condition", "condition", node, "", "length(v) > 0.0")
            return ops.convert(bool_, v)

    # ---- values

    def checked(self, x: Meaning, node: ast.AST) -> Any:
        """`x`, the value of an expression. Raises KernelError if it is none or unusable."""
        if isinstance(x, Unusable):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)
            return self.looked_at(x, node, f"`{called}` returned no value.")
        if x is None:
            f = self.python_object(node.func) if isinstance(node, ast.Call) else None
            if isinstance(f, Func):
                raise self.missing_return(f.fn, self.where(node))
            raise self.error("this call returns no value", "missing-return", node, "Its value is used.", "return ...")
        return x


def _truncates(a: Meaning, b: Meaning) -> bool:
    """True where `/` of these rounds: both are whole numbers, and not known to divide."""
    if is_literal(a) and is_literal(b):
        return isinstance(a, int) and isinstance(b, int) and b != 0 and a % b != 0
    return _whole(a) and _whole(b)


def _whole(x: Meaning) -> bool:
    if isinstance(x, ir.Value):
        return is_int(x.type)
    return isinstance(x, int | np.integer) and not isinstance(x, bool)

"""A decorated Python function becomes IR: names, types, structs and calls are resolved here and never again.

One visitor method per accepted node of Python's grammar; what has none is refused by `refused_syntax`. While it
reads, a name stands for a value, an array handle, a struct taken apart, or a Python object (`scope`).
`control_flow` reads branches and loops, `subscripts` parts and assignments, `calls` everything with parentheses.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from types import ModuleType
from typing import Any

import numpy as np

from ...errors import KernelError, Where, WorkbenchError
from ...records import record
from .. import ir, ops
from ..ir import constant
from ..ops.control import Claim
from ..types import Array, Composite, Scalar, Small, Struct, Type, bool_, is_int, scalar_of
from . import assigned_names as stores
from . import python_names, refused_syntax
from .addresses import Addresses, is_address
from .calls import Calls
from .checks import Checks
from .chosen_arrays import Chosen
from .conditions import Conditions, Guarded
from .control_flow import FRESH, ControlFlowReader
from .cuts import Cuts
from .declare import Func, Instance, Refused, struct_of, tid
from .func_grad import FuncGradReader
from .handles import HandlesReader, Opened
from .literals import LITERAL, LiteralsReader, fold
from .local_arrays import LocalArrays
from .lower_bounds import Facts
from .optional_arrays import NONE, AbsenceBuilder, LeftOut, MissingArrays, not_given
from .scope import (
    ArrayView,
    Fields,
    Shown,
    State,
    StructParts,
    Unusable,
    describe,
    is_array,
    is_literal,
    leaves,
    local_keys,
    rebuild,
)
from .source import Source, source
from .static_loops import StaticLoops
from .subscripts import Places
from .tile_parts import is_tile
from .tiles import Tiles

BINARY = {
    "Add": "+",
    "Sub": "-",
    "Mult": "*",
    "Div": "/",
    "FloorDiv": "//",
    "Mod": "%",
    "Pow": "**",
    "MatMult": "@",
    "BitAnd": "&",
    "BitOr": "|",
    "BitXor": "^",
    "LShift": "<<",
    "RShift": ">>",
}
COMPARE = {"Lt": "<", "LtE": "<=", "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!="}
UNARY = {"USub": "-", "UAdd": "+", "Invert": "~", "Not": "not"}


@record(eq=False)
class Reading:
    """One kernel as it was read: its IR, its parameters as the user wrote them, and what it took from Python."""

    function: ir.Function
    params: list[tuple[str, Type]]
    seen: list[tuple[dict[str, Any], str, Any]] = field(default_factory=list)
    cells: list[tuple[Any, Any]] = field(default_factory=list)
    attributes: list[tuple[Any, str, Any]] = field(default_factory=list)
    constants: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # vectors, and what they held
    statics: list[tuple[Any, dict[str, Any], Any]] = field(default_factory=list)  # of what may change in place
    gaps: MissingArrays = NONE
    presence_tests: set[str] = field(default_factory=set)  # flat array parameters used as conditions
    behind: dict[str, Opened] = field(default_factory=dict)  # flat parameters that stand behind numbers of others

    def current(self) -> bool:
        """True if the Python names that were used still mean the same, so that nothing need be read anew."""
        for base, name, then in self.attributes:
            now = getattr(base, name, self)
            if now is not then and not same_number(now, then):
                return False
        if self.constants and any(now.tobytes() != then.tobytes() for now, then in self.constants):
            return False
        if self.statics and not all(_same_static(*static) for static in self.statics):
            return False
        for holder, name, then in self.seen:
            now = holder.get(name, self)
            if now is not then and not same_number(now, then):
                return False
        for cell, then in self.cells:
            if cell.cell_contents is not then and not same_number(cell.cell_contents, then):
                return False
        return True


def same_number(a: Any, b: Any) -> bool:
    return (is_literal(a) or isinstance(a, np.generic)) and type(a) is type(b) and a == b


def _same_static(code: Any, around: dict[str, Any], then: Any) -> bool:
    try:
        now = eval(code, around)
    except Exception:  # noqa: BLE001  said with its line when the kernel is read anew
        return False
    return _same_object(now, then)


def _same_object(now: Any, then: Any) -> bool:
    """True for what a kernel would read alike; of lists and tuples the parts count."""
    if isinstance(then, np.ndarray):
        return isinstance(now, np.ndarray) and now.dtype == then.dtype and now.tobytes() == then.tobytes()
    if isinstance(then, list | tuple) and type(now) is type(then):
        return len(now) == len(then) and all(map(_same_object, now, then))
    if isinstance(then, Instance) and type(now) is type(then):
        return all(_same_object(getattr(now, name), getattr(then, name)) for name, _ in struct_of(then).fields)
    return now is then or same_number(now, then) or (isinstance(then, str) and now == then)


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
    reader = Reader(gaps)
    return reader.kernel(fn, name or fn.__name__, generic_types or {})


@record(eq=False)
class FunctionFrame:
    """The function being read: its text, the Python names around it, and the call it is read for."""

    fn: Callable[..., Any]
    source: Source
    around: dict[str, Any]
    caller: Where | None
    gradients: dict[str, Any] | None = None  # inside a func_grad: where the gradient of each argument is
    hides: Where | None = None  # inside a library func: the user's call, where all that it does has its place


class AtNode(ir.At):
    """`with reader.at(node)`."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, TypeError) and hasattr(error, "slug"):
            slug, instead = error.slug, getattr(error, "instead", "")  # type: ignore[attr-defined]
            raise KernelError(str(error), slug=slug, where=self.where, instead=instead) from None
        if isinstance(error, Exception) and not isinstance(error, KernelError | WorkbenchError):
            raise unread(error, self.where) from error


def unread(error: Exception, where: Where | None) -> KernelError:
    """The error for a line on which the reader itself failed."""
    if isinstance(error, RecursionError):
        text, why = "this is nested too deeply", "Each part of it is read inside of the one around it."
        return KernelError(text, slug="nesting", where=where, why=why, instead="several lines, or a func")
    text = f"this line cannot be read: {type(error).__name__}: {error}"
    return KernelError(text, slug="unread", where=where, why="The workbench should have said why: please report it.")


class Reader(
    ControlFlowReader,
    StaticLoops,
    Places,
    Cuts,
    LocalArrays,
    Addresses,
    Calls,
    LiteralsReader,
    Checks,
    LeftOut,
    Chosen,
    FuncGradReader,
    HandlesReader,
    Tiles,
):
    """Reads one kernel."""

    def __init__(self, gaps: MissingArrays = NONE) -> None:
        self.builder = AbsenceBuilder()
        self.gaps = gaps
        self.presence_tests: set[str] = set()
        self.state = State(dict(FRESH))
        self.facts = Facts()
        self.conditions = Conditions(self.builder.epochs)
        self.likely = Conditions(self.builder.own_epochs)  # looked at by each thread where it counts
        self.frames: list[FunctionFrame] = []
        self.callers: list[tuple[dict[str, Any], ast.AST, ast.AST]] = []  # names, text and call of each that waits
        self.widened: list[dict[str, Any]] = []  # of each loop around: names that it carries as one array or another
        self.merges = 0  # branches and loops so far
        self.merged_tiles: dict[ir.Value, tuple[int, list[ir.Value]]] = {}  # of which merge, and of what
        self.own_tiles: set[ir.Value] = set()  # copies: they share memory with nothing
        self.made_in: dict[int, set[ir.Value]] = {}  # by the turns of a loop
        self.changes: list[tuple[Any, ...]] = []  # of tiles in place: name, tile, what other names show, place
        self.rank: int | None = None
        self.unpacking: int | None = None  # how many names take the result of tid()
        self.seen: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        self.cells: dict[int, tuple[Any, Any]] = {}
        self.attributes: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self.constants: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.statics: dict[int, tuple[Any, dict[str, Any], Any]] = {}
        self.count = 0
        self.top = self.builder.region
        self.processor_only: Where | None = None
        self.behind: dict[str, Opened] = {}
        self.handles: dict[str, StructParts] = {}
        self.blanks: dict[str, ArrayView | Fields] = {}  # array fields of structs to which nothing was assigned

    # ---- functions

    def kernel(self, fn: Callable[..., Any], name: str, generic: dict[str, Type]) -> Reading:
        self.push(fn, None)
        src = self.frame.source
        params = [(a.arg, self.parameter_type(a, generic)) for a in self.parameters(src.tree)]
        with self.builder.open():
            for (param, type), node in zip(params, self.parameters(src.tree), strict=True):
                self.state.names[param] = self.parameter(param, type, self.where(node))
            self.body()
        self.refuse_writes()
        function = ir.Function(
            name,
            self.builder.region,
            self.rank or 1,
            self.where(src.tree),
            src.text,
            src.first,
            src.file,
            self.processor_only,
        )
        seen: tuple[Any, ...] = self.seen, self.cells, self.attributes, self.constants, self.statics
        return Reading(
            function,
            params,
            *[list(kept.values()) for kept in seen],
            gaps=self.gaps,
            presence_tests=self.presence_tests,
            behind=self.behind,
        )

    def parameters(self, tree: ast.FunctionDef) -> list[ast.arg]:
        a = tree.args
        for star in (a.vararg, a.kwarg):
            if star is not None:
                raise refused_syntax.refuse("StarParameter", self.where(star))
        return [*a.posonlyargs, *a.args, *a.kwonlyargs]

    def parameter_type(self, node: ast.arg, generic: dict[str, Type]) -> Type:
        found = generic.get(node.arg) or python_names.annotation(
            self.frame.fn, node.arg, self.frame.around, self.where(node)
        )
        if isinstance(found, Type) and getattr(found, "dtype", None) is not Any:
            return found
        why = "A kernel is compiled for the types of its parameters."
        raise self.error(
            f"the parameter `{node.arg}` needs a type", "annotation", node, why, f"{node.arg}: array(dtype=float)"
        )

    def parameter(self, name: str, type: Type, where: Where, given: bool = True) -> Any:
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

    def push(self, fn: Callable[..., Any], caller: Where | None) -> None:
        hides = self.frames[-1].hides if self.frames else None
        self.frames.append(FunctionFrame(fn, source(fn), python_names.surroundings(fn), caller, hides=hides))

    def pop(self) -> None:
        self.frames.pop()

    @property
    def frame(self) -> FunctionFrame:
        return self.frames[-1]

    def body(self) -> None:
        self.block(self.frame.source.tree.body)

    # ---- visiting

    def where(self, node: ast.AST) -> Where:
        return self.frame.hides or self.frame.source.where(node, self.frame.caller)

    def error(self, what: str, slug: str, node: ast.AST | None, why: str = "", instead: str = "") -> KernelError:
        return KernelError(what, slug=slug, where=self.located(node), why=why, instead=instead)

    def located(self, node: ast.AST | None) -> Where:
        """The place of `node`; of None, that of what is being read."""
        return self.builder.where if node is None else self.where(node)  # type: ignore[return-value]

    def at(self, node: ast.AST | None) -> AtNode:
        """Stamp what follows with the place of `node`; type errors of rows become the user's."""
        return AtNode(self.builder, self.located(node))

    def visit(self, node: ast.AST) -> Any:
        method = getattr(self, f"visit_{refused_syntax.name_of(node)}", None)
        if method is None:
            raise refused_syntax.refuse(refused_syntax.name_of(node), self.where(node))
        if isinstance(node, ast.Name | ast.Constant):  # writes nothing
            return method(node)
        with self.at(node):
            return method(node)

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
            value = self.tiles_copied(value)
        for target in node.targets:
            self.assign(target, value)

    def right_side(self, node: ast.expr, target: ast.expr) -> Any:
        """The value of an assignment; `i, j = tid()` is the one call that depends on what it is assigned to."""
        unpacks = isinstance(node, ast.Call) and isinstance(target, (ast.Tuple, ast.List))
        if unpacks and self.python_object(node.func) is tid:
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
                raise self.error(
                    f"`{ast.unparse(node.target)}` is declared {type} but gets {value.type}",
                    "annotation",
                    node.value,
                    "",
                    f"{type}({ast.unparse(node.value)})",
                )
        self.assign(node.target, value)

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
            return self.assigned(found, node) if isinstance(found, Unusable) else self.resolved(found)
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

    @contextmanager
    def supposing(self, condition: Any, truth: bool) -> Iterator[None]:
        """Inside, `condition` is known to be `truth`."""
        for known in (self.conditions, self.likely):
            known.push(condition, truth)
        around, self.builder.branch = self.builder.branch, object()
        try:
            yield
        finally:
            self.builder.branch = around
            for known in (self.conditions, self.likely):
                known.pop()

    def is_undecided(self, x: Any) -> bool:
        """True for what a name can stand for and no value can: then there is none for the paths without it."""
        return not (is_array(x) or isinstance(x, (StructParts, tuple)) or self.valued(x))

    def outside(self, node: ast.Name) -> Any:
        """A Python variable around the function: a constant for the kernel."""
        if self.assigned_later(node.id):
            raise self.error(
                f"`{node.id}` has no value here",
                "maybe-unbound",
                node,
                "It is assigned further down only.",
                f"{node.id} = ..., before this line",
            )
        known = [n for n in self.state.names if not n.startswith("$")]
        found = python_names.lookup(node.id, self.frame.around, known, self.where(node))
        self.note(node.id, found)
        return found

    def assigned_later(self, name: str) -> bool:
        return name in stores.names(self.frame.source.tree)

    def note(self, name: str, found: Any) -> None:
        """Remember where a Python object came from, to notice when the name means another one."""
        fn = self.frame.fn
        if name in fn.__code__.co_freevars and fn.__closure__:
            cell = fn.__closure__[fn.__code__.co_freevars.index(name)]
            self.cells[id(cell)] = cell, found
        elif name in fn.__globals__:
            self.watch(fn.__globals__, name, found)
        for f in found.parts if isinstance(found, Func) else ():
            self.watch(vars(f), "grad", f.grad)
            self.watch(vars(f), "replay", f.replay)

    def watch(self, holder: dict[str, Any], name: str, found: Any) -> None:
        self.seen[id(holder), name] = holder, name, found

    def python_attribute(self, base: Any, node: ast.Attribute) -> Any:
        try:
            found = getattr(base, node.attr)
            if isinstance(found, Refused):
                text = f"`{found.__name__}` of NVIDIA Warp is not in the kernel language"
                raise self.error(text, "refused-builtin", node, found.__doc__ or "", "")
            if is_literal(found) or isinstance(found, (np.generic, Small, Func)):
                if isinstance(base, ModuleType):
                    self.watch(vars(base), node.attr, found)
                else:
                    self.attributes[id(base), node.attr] = base, node.attr, found
            return found
        except AttributeError:
            reason = ops.why_refused(node.attr)
            name = getattr(base, "__name__", describe(base))
            close = "" if reason else ops.instead_of(node.attr, dir(base), ast.unparse(node.value))
            raise self.error(f"`{name}` has no `{node.attr}`", "unknown-name", node, reason or "", close) from None

    def python_object(self, node: ast.expr) -> Any:
        """The Python object that an expression of names and dots stands for, or None; reads nothing."""
        if isinstance(node, ast.Attribute):
            return getattr(self.python_object(node.value), node.attr, None)
        if not isinstance(node, ast.Name):
            return None
        if node.id in self.state.names:
            found = self.state.names[node.id]
            return None if isinstance(found, (ir.Value, StructParts, Shown, Unusable)) or is_array(found) else found
        try:
            return python_names.lookup(node.id, self.frame.around, [], self.where(node))
        except KernelError:
            return None

    def visit_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.checked(self.visit(item), item) for item in node.elts)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        left = self.checked(self.visit(node.left), node.left)
        return self.binary(node.op, left, self.checked(self.visit(node.right), node.right))

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        sign = BINARY[refused_syntax.name_of(op)]
        if is_tile(a) or is_tile(b):
            return self.tile_binary(sign, a, b)
        if is_address(a) or is_address(b):
            return self.moved_address(sign, a, b)
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
            return -x if sign == "-" else ~x if sign == "~" else x
        if isinstance(x, StructParts) and is_tile(x) and sign == "-":
            return self.negated(x)
        return ops.unary(sign, self.value(x))

    def visit_Compare(self, node: ast.Compare) -> Any:
        """`a < b < c` evaluates b once, and c only where a < b."""
        left = self.checked(self.visit(node.left), node.left)
        held = [left]

        def part(op: ast.cmpop, right: ast.expr) -> Any:
            if isinstance(op, ast.Is | ast.IsNot) and isinstance(right, ast.Constant) and right.value is None:
                return self.is_none(op, held[0], node)
            a, b = held[0], self.checked(self.visit(right), right)
            held[0] = b
            return self.compared(op, a, b, node)

        return self.chain(
            node, True, [lambda o=o, r=r: part(o, r) for o, r in zip(node.ops, node.comparators, strict=True)]
        )

    def compared(self, op: ast.cmpop, a: Any, b: Any, node: ast.Compare) -> Any:
        name = refused_syntax.name_of(op)
        if name not in COMPARE:
            raise refused_syntax.refuse(name, self.where(node))
        if is_literal(a) and is_literal(b):
            return bool(LITERAL[COMPARE[name]](a, b))
        return ops.compare(COMPARE[name], *self.comparable(*self.operands(COMPARE[name], a, b)))

    def condition(self, node: ast.expr) -> Any:
        """A Python bool where it is known, else a bool value."""
        x = self.checked(self.visit(node), node)
        if is_literal(x):
            return bool(x)
        if is_array(x):
            return self.given(x)
        with self.at(node):
            v = self.value(x)
            if v.type == bool_:
                return v
            if not isinstance(v.type, Scalar):
                raise self.error(f"{v.type} is no condition", "condition", node, "", "length(v) > 0.0")
            return ops.convert(bool_, v)

    # ---- values

    def checked(self, x: Any, node: ast.expr) -> Any:
        """`x`, the value of an expression. Raises KernelError if it is none or unusable."""
        if isinstance(x, Unusable):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)
            return self.looked_at(x, node, f"`{called}` returned no value.")
        if x is None:
            f = self.python_object(node.func) if isinstance(node, ast.Call) else None
            if isinstance(f, Func):
                raise self.missing_return(f.fn, self.where(node))
            raise self.error(
                "this call returns no value", "missing-return", node, "Its value is used here.", "return ..."
            )
        return x

    def valued(self, x: Any) -> bool:
        """True if `value` can make an IR value of it."""
        return isinstance(x, (ir.Value, np.generic)) or is_literal(x) or isinstance(getattr(x, "type", None), Composite)

    def zero(self, type: Type) -> ir.Value:
        scalar = type.scalar  # type: ignore[attr-defined]
        return constant(type, 0.0 if scalar.kind == "f" else False if scalar.kind == "b" else 0)

    def zeros_like(self, tree: Any, region: ir.Region) -> Any:
        """A tree of zeros, written into `region`."""
        with self.builder.inside(region):
            return rebuild(tree, iter([self.zero(v.type) for v in leaves(tree)]))

    def materialised(self, x: Any, name: str) -> Any:
        """The value as bound to a name: literals get their type, values the user's name."""
        if isinstance(x, tuple):
            return tuple(self.materialised(part, name) for part in x)
        if is_literal(x) or isinstance(x, (np.generic, Small)):
            x = self.value(x)
        if isinstance(x, ir.Value) and name and not x.name:
            x.name = name
        if isinstance(x, StructParts) and name:
            for field_name, part in x.fields.items():
                self.materialised(part, f"{name}.{field_name}")
        return x

    def stores(self, node: ast.AST) -> tuple[set[str], set[str]]:
        return stores.stores(node, self.changed_by)

    def read_outside(self, name: str, node: ast.AST) -> bool:
        """True if `name` is read anywhere in the function outside `node`."""
        return stores.reads(self.frame.source.tree, name) > stores.reads(node, name)

    def serial(self) -> int:
        self.count += 1
        return self.count

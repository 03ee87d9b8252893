"""The ground of the reader: the state, places in the source, refusals, and values of plain kinds."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ...errors import KernelError, Where, WorkbenchError
from .. import ir
from ..ir import constant
from ..ops import control
from ..types import Composite, Handle, Small, Type, is_int
from . import assigned_names as stores, python_names, refused_syntax
from .conditions import Conditions
from .declare import Func
from .lookups import Lookups
from .lower_bounds import Facts
from .optional_arrays import NONE, AbsenceBuilder, MissingArrays
from .scope import FRESH, ArrayView, Fields, State, StructParts, is_array, is_literal, leaves, rebuild
from .source import Source, source

# What a name or an expression stands for: an IR value, a literal, a tuple, what `scope` has for it, or any Python
# object around the kernel. So it is told apart where it is used.
Meaning: TypeAlias = object
Opened = tuple[str, Handle, str]  # the parameter with the number, what it stands for, and the field: `points`, `a.b`

READERS: dict[int, Callable[..., Any]] = {}  # of builtins with a form of their own, by the id of what is called


def reads(*builtins: Meaning, **fixed: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function reads calls of these builtins; it takes the reader, the call, and what is `fixed`."""

    def enter(read: Callable[..., Any]) -> Callable[..., Any]:
        READERS.update(dict.fromkeys(map(id, builtins), partial(read, **fixed)))
        return read

    return enter


@dataclass(eq=False)
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
        if isinstance(error, TypeError) and (slug := getattr(error, "slug", None)) is not None:
            instead = getattr(error, "instead", "")
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


class ReaderBase:
    """The state of reading a kernel. Statements and calls are read by `Reader`."""

    # What `Reader` adds, and what lies below it asks for: literals,
    value: Callable[[Any], ir.Value]
    typed: Callable[[Any, Type], Any]
    operands: Callable[[str, Any, Any], tuple[ir.Value, ir.Value]]
    beside: Callable[[Any, Sequence[Any]], Any]
    # statements and expressions,
    block: Callable[[list[ast.stmt]], None]
    branch: Callable[[ast.AST | None, Any, Callable[[], Any], Callable[[], Any]], Any]
    binary: Callable[[ast.operator, Any, Any], Any]
    condition: Callable[[ast.expr], Any]
    visit_Tuple: Callable[[ast.Tuple | ast.List], tuple[Any, ...]]
    checked: Callable[[Meaning, ast.AST], Any]
    python_attribute: Callable[[Any, ast.Attribute], Any]
    parameter: Callable[..., Any]
    # parts and places,
    place: Callable[[ast.expr], Any]
    assign: Callable[[ast.expr, Any], None]
    write: Callable[[Any, Any, ast.expr], None]
    fitting: Callable[[Any, Any, ast.expr], Any]
    unpacked: Callable[[Any, ast.expr], list[Any]]
    length: Callable[[Any, int], Any]
    element: Callable[[Any, list[ast.expr]], Any]
    loaded: Callable[[Any], Any]
    own: Callable[[Any], Any]
    cell: Callable[..., Any]
    cell_parts: Callable[..., list[tuple[ArrayView, ir.Value]]]
    component: Callable[[ir.Value, tuple[Any, ...]], ir.Value]
    picked: Callable[[Composite, list[ast.expr]], tuple[Any, ...]]
    inserted: Callable[[ir.Value, tuple[Any, ...], Any], ir.Value]
    # calls
    builtin: Callable[[Any, list[Any], ast.Call], Any]
    bound: Callable[..., dict[str, Any]]
    call_bound: Callable[..., Any]
    inlined: Callable[..., Any]
    argument: Callable[[str, Any], Any]
    returned: Callable[[], Any]
    changed_by: Callable[[ast.Call], Sequence[ast.expr]]

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
        self.lookups = Lookups()
        self.count = 0
        self.top = self.builder.region
        self.processor_only: Where | None = None
        self.behind: dict[str, Opened] = {}
        self.handles: dict[str, StructParts] = {}
        self.blanks: dict[str, ArrayView | Fields] = {}  # array fields of structs to which nothing was assigned

    def push(self, fn: Callable[..., Any], caller: Where | None) -> None:
        hides = self.frames[-1].hides if self.frames else None
        self.frames.append(FunctionFrame(fn, source(fn), python_names.surroundings(fn), caller, hides=hides))

    def pop(self) -> None:
        self.frames.pop()

    @property
    def frame(self) -> FunctionFrame:
        return self.frames[-1]

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

    @contextmanager
    def supposing(self, condition: ir.Value | bool, truth: bool) -> Iterator[None]:
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

    def note(self, name: str, found: Meaning) -> None:
        """Note where a free name of the function was found, to notice when it means another object."""
        fn = self.frame.fn
        if name in fn.__code__.co_freevars and fn.__closure__:
            cell = fn.__closure__[fn.__code__.co_freevars.index(name)]
            return self.lookups.link("attribute", cell, "cell_contents", found)
        for holder in () if python_names.is_ours(fn) else (fn.__globals__, vars(builtins)):
            if name in holder:
                return self.lookups.link("item", holder, name, found)
            self.lookups.link("presence", holder, name, False)

    def custom(self, f: Func) -> bool:
        """True if a func has an adjoint or a replay of its own."""
        for slot in ("grad", "replay"):
            self.lookups.link("attribute", f, slot, getattr(f, slot))
        return f.custom

    def python_object(self, node: ast.expr) -> Any:
        """The thing that names, dots and constant indices stand for; None for other expressions. Writes no IR."""
        if isinstance(node, ast.Attribute):
            base = self.python_object(node.value)
            if (found := getattr(base, node.attr, None)) is not None:
                self.lookups.link("attribute", base, node.attr, found)
            return found
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            base, k = self.python_object(node.value), node.slice.value
            return base[k] if isinstance(base, tuple) and isinstance(k, int) and k < len(base) else None
        if not isinstance(node, ast.Name):
            return None
        if node.id in self.state.names:
            return self.state.names[node.id]
        if node.id in stores.names(self.frame.source.tree):
            return None  # of the function itself, and not assigned yet
        try:
            found = python_names.lookup(node.id, self.frame.around, [], self.where(node))
        except KernelError:
            return None
        self.note(node.id, found)
        return found

    def valued(self, x: Meaning) -> bool:
        """True if `value` can make an IR value of it."""
        return isinstance(x, (ir.Value, np.generic)) or is_literal(x) or isinstance(getattr(x, "type", None), Composite)

    def zero(self, type: Type) -> ir.Value:
        scalar = ir.numeric(type).scalar
        return constant(type, 0.0 if scalar.kind == "f" else False if scalar.kind == "b" else 0)

    def zeros_like(self, tree: Meaning, region: ir.Region) -> Any:
        """A tree of zeros, written into `region`."""
        with self.builder.inside(region):
            return rebuild(tree, iter([self.zero(v.type) for v in leaves(tree)]))

    def materialised(self, x: Meaning, name: str) -> Any:
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

    def read_outside(self, name: str, node: ast.AST) -> bool:
        """True if `name` is read anywhere in the function outside `node`."""
        return stores.reads(self.frame.source.tree, name) > stores.reads(node, name)

    def serial(self) -> int:
        self.count += 1
        return self.count

    def claim(self, holds: Meaning, claim: control.Claim) -> None:
        """Write that `holds` is claimed here; nothing where that is known to be so."""
        if holds is not True:
            self.builder.emit(control.ASSERT, self.value(holds), attr=claim)

    def body(self) -> None:
        self.block(self.frame.source.tree.body)

    def is_undecided(self, x: Meaning) -> bool:
        """True for what a name can stand for and no value can: then there is none for the paths without it."""
        return not (is_array(x) or isinstance(x, (StructParts, tuple)) or self.valued(x))

    def stores(self, node: ast.AST) -> tuple[set[str], set[str]]:
        return stores.stores(node, self.changed_by)

    # ---- arguments of calls, results of funcs, indices

    def arguments(self, node: ast.Call) -> list[Any]:
        if node.keywords:
            raise self.error("it takes no named arguments", "arguments", node.keywords[0].value, "", "the value alone")
        return [self.visit(a) for a in node.args]

    def exactly(self, count: int, node: ast.Call) -> list[Any]:
        given = self.arguments(node)
        if len(given) != count:
            raise self.error(f"this takes {count} argument{'s' * (count > 1)}, got {len(given)}", "arguments", node)
        return given

    def named(self, node: ast.Call, known: tuple[str, ...]) -> dict[str, Any]:
        """The named arguments of a call that takes no others."""
        for k in node.keywords:
            if k.arg not in known:
                text = f"there is no argument `{k.arg}` here"
                raise self.error(text, "arguments", k.value, f"There are {' and '.join(known)}.")
        return {str(k.arg): self.visit(k.value) for k in node.keywords}

    def missing_return(self, fn: Callable[..., Any], at: Where | None) -> KernelError:
        """Names the func that was to return a value, and the line that uses it."""
        text = source(fn)
        what = f"`{fn.__name__}` does not return a value on every path"
        why = f"Line {at.line} uses its value: {at.text.strip()}" if at else ""
        instead = "a `return` with a value at its end"
        return KernelError(what, slug="missing-return", where=text.where(text.tree, at), why=why, instead=instead)

    def given(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The values of the arguments by place, and of those by name."""
        args = [self.checked(self.visit(a), a) for a in node.args]
        return args, {str(k.arg): self.checked(self.visit(k.value), k.value) for k in node.keywords}

    def as_float(self, x: float) -> float:
        try:
            return float(x)
        except OverflowError:
            raise self.error("this integer is larger than any float", "literal-range", None, "", "inf") from None

    def index(self, node: ast.expr) -> ir.Value:
        v = self.value(self.visit(node))
        if not is_int(v.type):
            raise self.error(f"an index is an integer, not {v.type}", "index-type", node, "", "int(...)")
        return v

    def component_within(self, k: int, size: int, node: ast.expr) -> int:
        if not -size <= k < size:
            raise self.error(f"component {k} is outside the {size} of it", "component-range", node, "", f"{size - 1}")
        return k % size

    def composite(self, type: Meaning, node: ast.expr) -> Composite:
        if not isinstance(type, Composite):
            raise self.error(f"{type} has no components", "not-indexable", node, "Vectors and matrices have.")
        return type

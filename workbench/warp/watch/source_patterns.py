"""Statements of a kernel that Warp's adjoint may get wrong, found in its source.

Warp makes a new variable for every assignment in straight-line code. Elsewhere its adjoint reads the variable's final
value: for a component that is written again. A loop with a trip count known only at launch is not replayed before the
backward: what it changes has, after it, its value from before, and inside not the value of each turn.
A suspect explains a gradient that was found wrong. By itself it proves nothing: sums in such loops are right.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warp._src import context

from ...kernels.reading.assigned_names import reads

DYNAMIC, BRANCH, COMPONENT, RULE, AGAIN, NONE = (
    "dynamic loop in the kernel",
    "local re-assignment in the kernel",
    "component write",
    "custom adjoint",
    "overwritten memory",
    "no adjoint",
)
SLOPES = set(  # what has a slope, and in some version of Warp no adjoint
    "frac tile_cholesky_inplace tile_cholesky_solve tile_cholesky_solve_inplace tile_diag_add tile_lower_solve_inplace "
    "tile_max tile_min tile_reduce tile_scan_exclusive tile_scan_inclusive tile_scan_max_inclusive "
    "tile_scan_min_inclusive tile_sort tile_upper_solve tile_upper_solve_inplace".split()
)


@dataclass(frozen=True)
class Suspect:
    """One suspicious statement: the cause, the expression written, file and line.

    used  the first line after a loop that uses a local which the loop changes; 0 otherwise.
    """

    cause: str
    name: str
    file: str
    line: int
    used: int = 0

    @property
    def said(self) -> tuple[str, str]:
        """Two sentences: the effect of Warp's adjoint on it, and the code to write instead."""
        kind = "break" if self.name == "break" else "used" if self.used else self.cause
        sentence, remedy = (text.format(self.name, self.line, self.used) for text in SAID[kind])
        return sentence, remedy


SAID = {  # by cause; {0}: the expression, {1}: its line, {2}: the line behind a loop that uses it
    "used": (
        (
            "`{0}` of line {1} is changed by the turns of a loop, and line {2} uses it; Warp's adjoint has not run the"
            " loop by then, and takes the value from before it"
        ),
        "turns whose number stands in the text (range(8), wp.static), or the loop in a wp.func that returns `{0}`",
    ),
    "break": (
        "`break` in line {1} leaves a loop that Warp's adjoint walks from its other end",
        "turns whose number stands in the text (range(8)), and `if` around what they do in place of `break`",
    ),
    DYNAMIC: (
        "`{0}` of line {1} goes from turn to turn of a loop, and Warp's adjoint has other values of it",
        "turns whose number stands in the text (range(8), wp.static), or a launch and an array per turn",
    ),
    BRANCH: (
        "`{0}` gets another value in line {1} in some turns of a loop; Warp's adjoint has the last one",
        "a new name for the new value, or a launch and an array per turn",
    ),
    COMPONENT: (
        "`{0}` is written in line {1}, and Warp's adjoint reads what the local holds at the end",
        (
            "a local number in place of `{0}`, and of the others written so; one vector made of them at the end:"
            " wp.vec3(a, b, c)"
        ),
    ),
    AGAIN: (
        "`{0}` is overwritten in line {1} once read, and Warp's adjoint reads it at the end",
        "a local variable instead of `{0}`, and one store at the end",
    ),
    RULE: (
        "the func_grad of `{0}`, line {1}, is not the derivative of its func",
        "the func_grad of `{0}` mended, or left out; if it differs on purpose, ignore this",
    ),
    NONE: (
        "`{0}` in line {1} has no adjoint in Warp: no gradient passes it",
        "`{0}` written out with builtins that have an adjoint",
    ),
}


def suspects(kernel: Any) -> list[Suspect]:
    """The suspicious statements of a kernel, in source order, then those of the funcs that it calls."""
    found: list[Suspect] = []
    seen: set[int] = set()
    waiting = [kernel]
    while waiting:
        thing = waiting.pop(0)
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if getattr(thing, "custom_grad_func", None) is not None:
            rule = thing.custom_grad_func.adj
            found.append(Suspect(RULE, thing.key, rule.filename, rule.fun_lineno))
            continue
        adj = thing.adj
        function = next((n for n in ast.walk(adj.tree) if isinstance(n, ast.FunctionDef)), None)
        if function is not None:
            reader = _SourceReader(thing, function)
            first = adj.fun_lineno - 1
            for cause, name, line, *used in reader.read():
                found.append(Suspect(cause, name, adj.filename, first + line, *(first + n for n in used)))
            waiting += _called(thing.func, function)
    return found


def given_to_funcs(kernel: Any) -> set[str]:
    """The kernel parameters passed to funcs: Warp runs those funcs again in the backward."""
    tree, names = kernel.adj.tree, _names_of(kernel.func)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    own = [c for c in calls if isinstance(f := names.get(c.func.id), context.Function) and not f.is_builtin()]  # type: ignore[attr-defined]
    given = [part for c in own for part in [*c.args, *(k.value for k in c.keywords)]]
    return {part.id for part in given if isinstance(part, ast.Name)}


def returned_by_atomics(kernel: Any) -> set[str]:
    """The kernel parameters of which an atomic's return value is used, which Warp does not replay."""
    values = [n.value for n in ast.walk(kernel.adj.tree) if isinstance(n, ast.Assign | ast.AnnAssign)]
    calls = [v for v in values if isinstance(v, ast.Call) and _last(v.func).startswith("atomic_") and v.args]
    return {ast.unparse(c.args[0]) for c in calls}


def _last(function: ast.expr) -> str:
    """The part of a function's dotted name after the last dot."""
    return ast.unparse(function).rpartition(".")[2]


def _called(func: object, function: ast.FunctionDef) -> list[Any]:
    """The funcs that a function's source names, as far as its globals and closure resolve them."""
    names = _names_of(func)
    used = dict.fromkeys(n.id for n in ast.walk(function) if isinstance(n, ast.Name))
    found = [names[n] for n in used if isinstance(names.get(n), context.Function)]
    return [f for f in found if not f.is_builtin() and f.func is not None]


def _names_of(func: Any) -> dict[str, Any]:
    closed = inspect.getclosurevars(func)
    return {**closed.globals, **closed.nonlocals}


class _SourceReader:
    """Reads one function. Yields (cause, name, line), and the line of its use where that differs."""

    def __init__(self, thing: Any, function: ast.FunctionDef):
        self.function = function
        self.parameters = {a.arg for a in function.args.args}
        self.numbers = {n for n, v in _names_of(thing.func).items() if isinstance(v, int)}
        options = getattr(getattr(thing, "module", None), "options", None) or {}
        self.unrolled = options.get("max_unroll") or 16

    def read(self) -> Iterator[tuple[Any, ...]]:
        yield from self.without_adjoint()
        yield from self.components()
        yield from self.cells()
        for node in ast.walk(self.function):
            if isinstance(node, ast.While) or (isinstance(node, ast.For) and not self.is_unrolled(node)):
                yield from self.carried(node)
                yield from self.used_behind(node)

    def without_adjoint(self) -> Iterator[tuple[str, str, int]]:
        """Yields calls of builtins that have a slope, but no adjoint in Warp."""
        for node in ast.walk(self.function):
            name = _last(node.func) if isinstance(node, ast.Call) else ""
            if name in SLOPES and (known := context.builtin_functions.get(name)) and not known.is_differentiable:
                yield NONE, name, node.lineno  # type: ignore[attr-defined]

    def components(self) -> Iterator[tuple[str, str, int]]:
        """Yields repeated writes to a component of a local vector, and all writes to cells of a local array."""
        touched: set[str] = set()
        calls = (n for n in ast.walk(self.function) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call))
        made = (n for n in calls if _last(n.value.func) in ("zeros", "empty"))  # type: ignore[attr-defined]
        tables = {t.id for n in made for t in n.targets if isinstance(t, ast.Name)}
        for node in _in_order(self.function):
            if isinstance(node, ast.Assign | ast.AugAssign):
                read = {ast.unparse(n) for n in ast.walk(node.value) if isinstance(n, ast.Subscript | ast.Attribute)}
                for target in _stores(node):
                    base = _base(target)
                    if base is None or base in self.parameters:
                        continue
                    text = ast.unparse(target)
                    if base in tables or text in touched or text in read or isinstance(node, ast.AugAssign):
                        yield COMPONENT, text, node.lineno
                    touched.add(text)
                touched |= read

    def cells(self) -> Iterator[tuple[str, str, int]]:
        """Yields stores to an array that the function has read before: one per array."""
        read: set[str] = set()
        for node in _in_order(self.function):
            if not isinstance(node, ast.Assign | ast.AugAssign):
                continue
            read |= {self.array(n) for n in ast.walk(node.value)}
            for target in node.targets if isinstance(node, ast.Assign) else []:  # `y[i] += v` is an atomic sum
                if (array := self.array(target)) and array in read:
                    yield AGAIN, ast.unparse(target), node.lineno
                    read.discard(array)

    def array(self, node: ast.AST) -> str:
        """The source of the array parameter (or struct field) that the node indexes; "" if it is none."""
        cell = isinstance(node, ast.Subscript) and _base(node) in self.parameters
        return ast.unparse(node.value) if cell else ""  # type: ignore[attr-defined]

    def is_unrolled(self, loop: ast.For) -> bool:
        """True if Warp unrolls this loop."""
        call = loop.iter
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "range":
            return False
        if not all(map(self.is_number, call.args)):
            return False
        try:
            turns = len(range(*[ast.literal_eval(a) for a in call.args]))
        except (ValueError, TypeError):
            return True  # a named constant or wp.static
        return turns <= self.unrolled

    def is_number(self, a: ast.expr) -> bool:
        if isinstance(a, ast.UnaryOp):
            return self.is_number(a.operand)
        if isinstance(a, ast.Call):
            return ast.unparse(a.func).endswith("static")
        return isinstance(a, ast.Constant) or (isinstance(a, ast.Name) and a.id in self.numbers)

    def carried(self, loop: ast.For | ast.While) -> Iterator[tuple[str, str, int]]:
        """Yields loop-carried locals used for more than a sum, and each `break`."""
        body = list(_in_order(loop))
        yield from ((DYNAMIC, "break", n.lineno) for n in body if isinstance(n, ast.Break))
        for node in body:
            for target in _stores(node):
                if not isinstance(target, ast.Name) or not self.lives_before(target.id, loop):
                    continue
                if any(_uses(other, target.id) for other in body):
                    branches = (n for n in ast.walk(loop) if isinstance(n, ast.If))
                    cause = BRANCH if any(m is node for n in branches for m in ast.walk(n)) else DYNAMIC
                    yield cause, target.id, node.lineno  # type: ignore[attr-defined]

    def used_behind(self, loop: ast.For | ast.While) -> Iterator[tuple[str, str, int, int]]:
        """Yields locals that the loop changes and whose value a later statement needs."""
        told: set[str] = set()
        for node in _in_order(loop):
            for stored in _stores(node):
                target = stored.id if isinstance(stored, ast.Name) else _base(stored)
                if target is None or target in told or not self.lives_before(target, loop):
                    continue
                told.add(target)
                behind = (n for n in _in_order(self.function) if n.lineno > (loop.end_lineno or 0))  # type: ignore[attr-defined]
                parts = ((n, e) for n in behind for e in ast.iter_child_nodes(n) if not isinstance(e, ast.stmt))
                used = next((n for n, e in parts if _needs(e, target)), None)
                if used is not None:
                    yield DYNAMIC, target, node.lineno, used.lineno  # type: ignore[attr-defined]

    def lives_before(self, name: str, loop: ast.AST) -> bool:
        found = (n for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name)
        return any(isinstance(n.ctx, ast.Store) and n.lineno < loop.lineno for n in found)  # type: ignore[attr-defined]


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements below a node in source order."""
    for child in [*getattr(node, "body", []), *getattr(node, "orelse", [])]:
        yield child
        yield from _in_order(child)


def _base(target: ast.expr) -> str | None:
    """The name whose component is written; None for a plain name and for the field of a struct."""
    if not isinstance(target, ast.Subscript) and not (isinstance(target, ast.Attribute) and target.attr in "xyzw"):
        return None
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def _uses(statement: ast.AST, name: str) -> bool:
    """True if a statement reads this local, other than to add to it."""
    if isinstance(statement, ast.AugAssign):
        own = isinstance(statement.target, ast.Name) and statement.target.id == name
        return reads(statement.value, name) > 0 or (own and not isinstance(statement.op, ast.Add | ast.Sub))
    if isinstance(statement, ast.Assign):
        value = statement.value
        adds = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub)
        plain = adds and isinstance(value.left, ast.Name) and value.left.id == name  # type: ignore[union-attr]
        own = any(isinstance(t, ast.Name) and t.id == name for t in statement.targets)
        return reads(value.right if plain and own else value, name) > 0  # type: ignore[union-attr]
    if isinstance(statement, ast.If):  # Warp's adjoint asks again, with what the local holds at the end
        return reads(statement.test, name) > 0
    if isinstance(statement, ast.Expr | ast.Return):
        return statement.value is not None and reads(statement.value, name) > 0
    return False


def _stores(node: ast.AST) -> list[ast.expr]:
    """The targets of an assignment; [] of any other statement."""
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []


def _needs(node: ast.AST, name: str) -> bool:
    """True if the derivative of an expression needs the local's value: the local occurs in it nonlinearly."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return _needs(node.left, name) or _needs(node.right, name)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        left, right = node.left, node.right
        if isinstance(right, ast.Constant) or (isinstance(left, ast.Constant) and isinstance(node.op, ast.Mult)):
            return _needs(left, name) or _needs(right, name)
    if isinstance(node, ast.UnaryOp):
        return _needs(node.operand, name)
    if isinstance(node, ast.Call) and _last(node.func) in _LINEAR:
        return any(_needs(part, name) for part in [*node.args, *(k.value for k in node.keywords)])
    return not isinstance(node, ast.Name) and reads(node, name) > 0


_LINEAR = ("atomic_add", "atomic_sub", "float", "vec2", "vec3", "vec4")

"""The table of Python syntax that kernels lack, each with the reason and a replacement.

A node without a `visit_` method in the reader is looked up here, so nothing is ever skipped in silence.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import KernelError, Where
from .source import Source, source


@dataclass(frozen=True)
class Fence:
    """A refused construct: the reason, and a replacement."""

    what: str
    why: str
    instead: str
    slug: str


def _no(what: str, why: str, instead: str, slug: str) -> Fence:
    return Fence(f"{what} cannot be used in a kernel", why, instead, slug)


NO_OBJECTS = "A kernel has numbers, vectors, matrices, structs and arrays; it cannot make Python objects."
NO_PYTHON = "A kernel is compiled; the Python interpreter is not there when it runs."
NO_RAISE = "Kernels raise no exceptions."
NO_ELSE = "Its else branch runs when no `break` was taken, which few readers expect."
BOOL_BEFORE = "a bool set before the `break` and an `if` after the loop"
NO_REBINDING = "Python variables are constants for a kernel: it cannot change them."
ONE_ELEMENT = "an array of one element as parameter"
ONE_RUN = "A thread runs once, from start to end."

FENCES: dict[str, Fence] = {
    "Lambda": _no("a lambda", NO_OBJECTS, "@func\ndef f(a: float): return a * a", "lambda"),
    "List": _no("a list", NO_OBJECTS, "v = vec3(a, b, c)", "list"),
    "ListComp": _no("a list comprehension", NO_OBJECTS, "for j in range(n): ...", "list"),
    "Dict": _no("a dict", NO_OBJECTS, "a struct with named fields", "dict"),
    "DictComp": _no("a dict comprehension", NO_OBJECTS, "for j in range(n): ...", "dict"),
    "Set": _no("a set", NO_OBJECTS, "an array of flags", "set"),
    "SetComp": _no("a set comprehension", NO_OBJECTS, "for j in range(n): ...", "set"),
    "GeneratorExp": _no("a generator", NO_OBJECTS, "s = 0.0, then: for j in range(n): s += x[j]", "generator"),
    "ForElse": Fence("`for ... else` is not part of the kernel language", NO_ELSE, BOOL_BEFORE, "for-else"),
    "WhileElse": Fence("`while ... else` is not part of the kernel language", NO_ELSE, BOOL_BEFORE, "while-else"),
    "Try": _no("`try`", NO_RAISE, "if b != 0.0: ...", "try"),
    "TryStar": _no("`try`", NO_RAISE, "if b != 0.0: ...", "try"),
    "Raise": _no("`raise`", NO_RAISE, "failed[0] = 1, in an array of flags", "raise"),
    "With": _no("`with`", NO_PYTHON, "the body without it", "with"),
    "AsyncWith": _no("`async with`", NO_PYTHON, "the body without it", "async"),
    "AsyncFor": _no("`async for`", NO_PYTHON, "for j in range(n): ...", "async"),
    "AsyncFunctionDef": Fence("a function cannot be defined in a kernel", NO_PYTHON, "a func outside", "nested-def"),
    "Await": _no("`await`", NO_PYTHON, "the plain call", "async"),
    "Yield": _no("`yield`", ONE_RUN, "out[i] = v", "yield"),
    "YieldFrom": _no("`yield from`", ONE_RUN, "out[i] = v", "yield"),
    "Global": _no("`global`", NO_REBINDING, ONE_ELEMENT, "global"),
    "Nonlocal": _no("`nonlocal`", NO_REBINDING, ONE_ELEMENT, "global"),
    "Delete": _no("`del`", "A local ends by itself.", "nothing: the line can go", "del"),
    "JoinedStr": _no("an f-string", NO_OBJECTS, 'printf("%f\\n", x)', "f-string"),
    "TemplateStr": _no("a t-string", NO_OBJECTS, 'printf("%f\\n", x)', "f-string"),
    "Starred": _no("`*` arguments", "The number of values must be known.", "f(a[0], a[1])", "star"),
    "StarParameter": Fence(
        "`*args` and `**kwargs` cannot be parameters of a kernel or func",
        "The number and types of the parameters must be known.",
        "one parameter per value",
        "star",
    ),
    "ClassDef": Fence("a class cannot be defined in a kernel", NO_PYTHON, "@struct outside the kernel", "nested-class"),
    "FunctionDef": Fence(
        "a function cannot be defined in a kernel", NO_PYTHON, "@func outside the kernel", "nested-def"
    ),
    "Import": _no("`import`", NO_PYTHON, "the import outside the kernel", "import"),
    "ImportFrom": _no("`import`", NO_PYTHON, "the import outside the kernel", "import"),
    "NamedExpr": _no("`:=`", "An assignment is a line of its own.", "n = f(x), on the line before", "walrus"),
    "Slice": Fence(
        "a slice cannot be taken of this", "Arrays, vectors, matrices and tuples have slices.", "an index", "slice"
    ),
    "Match": _no("`match`", "It needs Python objects.", "if k == 0: ... elif k == 1: ...", "match"),
    "TypeAlias": _no("`type`", NO_PYTHON, "the line outside the kernel", "type-alias"),
    "Is": _no("`is`", "Values have no identity.", "a == b", "is"),
    "IsNot": _no("`is not`", "Values have no identity.", "a != b", "is"),
    "In": _no("`in`", "There are no containers.", "a == b or a == c", "in"),
    "NotIn": _no("`not in`", "There are no containers.", "a != b and a != c", "in"),
    "String": Fence(
        "a string cannot be used in a kernel, except to be printed", NO_OBJECTS, "an integer code", "string"
    ),
    "None": Fence("`None` is not a value of the kernel language", NO_OBJECTS, "a number that marks the case", "none"),
    "Complex": Fence("complex numbers are not in the kernel language", "", "vec2(re, im)", "complex"),
    "Ellipsis": _no("`...`", NO_OBJECTS, "pass", "ellipsis"),
    "ForIter": Fence(
        "a `for` in a kernel runs over range(...)",
        "Nothing else can be counted.",
        "for j in range(n): ...",
        "for-range",
    ),
    "Method": Fence(
        "methods cannot be called in a kernel",
        "Values are numbers, not Python objects.",
        "a builtin: dot(a, b)",
        "method",
    ),
    "Expr": Fence(
        "this expression does nothing", "Its value is not used.", "name = ..., or nothing: the line can go", "no-effect"
    ),
}


def refuse(name: str, where: Where | None) -> KernelError:
    """The error for a construct by its name in the table; unknown ones are refused too."""
    f = FENCES.get(name) or _no(name, NO_PYTHON, "a form from the manual", "syntax")
    return KernelError(f.what, slug=f.slug, where=where, why=f.why, instead=f.instead)


def name_of(node: ast.AST) -> str:
    return type(node).__name__


def check(fn: Callable[..., Any]) -> Source:
    """Refuse at decoration what the table refuses by syntax alone. Raises KernelError."""
    text = source(fn)
    for stmt in text.tree.body:
        for node in inside(stmt):
            if type(node).__name__ in SYNTAX:
                raise refuse(name_of(node), text.where(node))
    return text


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that the kernel runs: what stands in static(...) is Python's."""
    found = [node]
    while found:
        node = found.pop()
        yield node
        if isinstance(node, ast.Call) and "static" in _called(node):
            continue
        if isinstance(node, ast.Call) and APPLY & _called(node) and node.args and isinstance(node.args[0], ast.Lambda):
            found += [*node.keywords, *node.args[1:], node.args[0].body][::-1]
            continue
        if not isinstance(node, ast.Name | ast.Constant):
            found += [*ast.iter_child_nodes(node)][::-1]


def _called(node: ast.Call) -> set[str]:
    return {getattr(node.func, "id", ""), getattr(node.func, "attr", "")}


APPLY = {"tile_map", "tile_reduce"}  # their first argument may be a lambda: it is read into its place
SYNTAX = frozenset(
    "Lambda ListComp Dict DictComp Set SetComp GeneratorExp Try TryStar Raise With AsyncWith AsyncFor "
    "AsyncFunctionDef Await Yield YieldFrom Global Nonlocal Delete ClassDef FunctionDef Import ImportFrom NamedExpr "
    "Match TypeAlias".split()
)

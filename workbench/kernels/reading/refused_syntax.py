"""The table of Python syntax that kernels lack (`refused_syntax.txt`), each with the reason and a replacement.

A node without a `visit_` method in the reader is looked up here, so nothing is ever skipped in silence.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import KernelError, Where
from ..ops.examples import paragraphs
from .source import Source, source

FENCES = {  # by the name of a node, what its error says
    name: {"what": what, "why": why.strip("-"), "instead": instead.replace("//", "\n"), "slug": slug}
    for why, rows in paragraphs("refused_syntax.txt", __file__).items()
    for row in rows.splitlines()  # node | slug | what cannot be | what to write, with // between its lines
    for name, slug, what, instead in [row.split(" | ")]
}


def refuse(name: str, where: Where | None) -> KernelError:
    """The error for a construct by its name in the table; unknown ones are refused too."""
    said = {"what": f"{name} cannot be used in a kernel", "instead": "a form from the manual", "slug": "syntax"}
    return KernelError(**FENCES.get(name) or FENCES["Import"] | said, where=where)


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

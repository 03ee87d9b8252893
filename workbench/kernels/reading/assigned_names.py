"""Names that a piece of syntax assigns, and certain exits from its block: from the tree, before any IR exists."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from ..lru import once_for_each


@once_for_each
def targets(node: ast.AST) -> list[ast.expr]:
    """Every expression that is assigned somewhere below `node`, tuples taken apart."""
    found: list[ast.expr] = []
    for n in _statements(node):
        if isinstance(n, ast.Assign):
            found += n.targets
        elif isinstance(n, (ast.AugAssign, ast.AnnAssign, ast.For)):
            found.append(n.target)
    return [part for target in found for part in parts(target)]


@once_for_each
def names(node: ast.AST) -> set[str]:
    """The names that are assigned as a whole somewhere below `node`."""
    return {t.id for t in targets(node) if isinstance(t, ast.Name)}


BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of `ast.walk` without expressions, which assign nothing in a kernel."""
    found = [node]
    for n in found:
        yield n
        for name in BLOCKS:
            block = getattr(n, name, None)
            if isinstance(block, list):
                found += block


def parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from parts(item)
    else:
        yield target


def base(node: ast.expr) -> str | None:
    """The name under components, fields and elements: `s` of `s.v[0].x`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def stores(node: ast.AST, changed_by: Callable[[ast.Call], Sequence[ast.expr]]) -> tuple[set[str], set[str]]:
    """Names rebound, and names of which a part is written, below `node`. Calls say which arguments they change."""
    rebound: set[str] = set()
    updated: set[str] = set()
    for target in targets(node):
        name = base(target)
        if name:
            (rebound if isinstance(target, ast.Name) else updated).add(name)
    for n in ast.walk(node):
        if isinstance(n, ast.Call):
            updated.update(name for arg in changed_by(n) if (name := base(arg)))
    return rebound, updated


def leaves_always(body: Sequence[ast.stmt]) -> bool:
    """True if every path through these statements ends in return, break or continue."""
    return any(_leaves(stmt) for stmt in body)


def _leaves(stmt: ast.stmt) -> bool:
    if isinstance(stmt, (ast.Return, ast.Break, ast.Continue)):
        return True
    return isinstance(stmt, ast.If) and leaves_always(stmt.body) and leaves_always(stmt.orelse)


def has_break(body: Sequence[ast.stmt]) -> bool:
    """True if a `break` belongs to the loop with this body."""
    branches = [inner for stmt in body if isinstance(stmt, ast.If) for inner in (stmt.body, stmt.orelse)]
    return any(isinstance(stmt, ast.Break) for stmt in body) or any(map(has_break, branches))


def returned_values(node: ast.AST) -> int:
    """The number of `return`s with a value below `node`."""
    return sum(isinstance(n, ast.Return) and n.value is not None for n in _statements(node))


def reads(node: ast.AST, name: str) -> int:
    """The number of reads of `name` below `node`."""
    return sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(node))


def assigned_first(name: str, body: Sequence[ast.stmt]) -> bool:
    """True if the first statement of a block that mentions a name assigns it as a whole, without reading it."""
    first = next((stmt for stmt in body if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(stmt))), None)
    return first is None or (isinstance(first, ast.Assign) and not reads(first, name))


def read_after(tree: ast.AST, name: str, node: ast.stmt) -> bool:
    """True if `name` is read further down in `tree` than where `node` ends."""
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))
    return any(n.lineno > (node.end_lineno or node.lineno) for n in found)

"""Aliases of a value: names that a plain copy `b = a`, which leaves no statement, gives it on a path that was taken."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Iterator
from typing import Any

from ...errors import Where
from ...kernels import ir
from .steps import StatementStep

# an `if` by call and line -> the turns in which it was met, and whether the condition held
Taken = dict[tuple[Any, int], list[tuple[tuple[int, ...], bool]]]


def frame_of(where: Where) -> tuple:
    """The call that a place belongs to, as a key: two calls of one func are two."""
    return where.file, where.function, where.caller


def aliases(
    steps: list[StatementStep], known: dict[int, dict[str, None]], taken: Taken, function: ir.Function
) -> dict[int, dict[str, None]]:
    """The further names of the value of each step: from control flow, and from plain copies."""
    found = {k: dict(names) for k, names in known.items()}
    trees: dict[tuple[str, str], ast.AST | None] = {}
    for k, step in enumerate(steps):
        if step.where is None or not step.name.isidentifier():
            continue
        key = step.where.file, step.where.function
        if key not in trees:
            trees[key] = _tree(step.where, function)
        tree = trees[key]
        names = {step.name: step.where.line}
        for target, source, line, inside in _copies(tree) if tree is not None else ():
            made = names.get(source)
            if made is None or not made < line or target == step.name:
                continue
            frame = frame_of(step.where)
            ran = all(_went(taken.get((frame, at), []), side, step.iteration) for at, side in inside)
            if ran and not _assigned_between(tree, source, made, line):
                names[target] = line
                found.setdefault(k, {})[target] = None
    return found


def _went(found: list[tuple[tuple[int, ...], bool]], side: bool, turn: tuple[int, ...]) -> bool:
    """True if the thread took this side of an `if` in this turn, or in one nested in it."""
    return any(taken is side for at, taken in found if at[: len(turn)] == turn[: len(at)])


def _tree(where: Where, function: ir.Function) -> ast.AST | None:
    """The syntax tree of the function that a place lies in, with the line numbers of its file."""
    if function.where is not None and (where.file, where.function) == (function.where.file, function.where.function):
        tree = _parsed(function.source)
        return ast.increment_lineno(tree, function.first_line - 1) if tree is not None else None
    whole = _parsed("".join(linecache.getlines(where.file)))
    inside = [n for n in ast.walk(whole) if isinstance(n, ast.FunctionDef)] if whole is not None else []
    around = [n for n in inside if n.lineno <= where.line <= (n.end_lineno or n.lineno)]
    return max(around, key=lambda n: n.lineno, default=None)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return None


def _copies(tree: ast.AST, inside: tuple = ()) -> Iterator[tuple[str, str, int, tuple[tuple[int, bool], ...]]]:
    """(new name, old name, line, the branches around it) of every plain copy, in the order of the source."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If):
            yield from _copies(ast.Module(node.body, []), (*inside, (node.lineno, True)))
            yield from _copies(ast.Module(node.orelse, []), (*inside, (node.lineno, False)))
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for t, v in _pairs(target, node.value):
                    yield t, v, node.lineno, inside
        elif isinstance(node, ast.stmt):
            yield from _copies(node, inside)


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Name) and isinstance(value, ast.Name):
        yield target.id, value.id
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for t, v in zip(target.elts, value.elts, strict=True):
            yield from _pairs(t, v)


def _assigned_between(tree: ast.AST | None, name: str, first: int, last: int) -> bool:
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name) if tree is not None else ()
    return any(isinstance(n.ctx, ast.Store) and first < n.lineno < last for n in found)

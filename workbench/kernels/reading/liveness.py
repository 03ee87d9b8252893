"""Tiles that a piece of syntax may change in place, and liveness of names: from the tree."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .assigned_names import BLOCKS, parts, reads, targets

IN_PLACE_TILES = ("Add", "Sub", "BitAnd", "BitOr", "BitXor")  # of these operators `t += u` changes the tile itself


def in_place(node: ast.AST) -> list[ast.expr]:
    """The targets that one statement may change in place: parts that it assigns, and a tile in front of `+=`."""
    if isinstance(node, ast.AugAssign):
        whole = isinstance(node.target, ast.Name) and type(node.op).__name__ not in IN_PLACE_TILES
        return [] if whole else [node.target]
    if isinstance(node, ast.Assign):
        return [p for t in node.targets for p in parts(t) if not isinstance(p, ast.Name)]
    return []


def replaced(node: ast.AST) -> set[str]:
    """The names that get another value below `node`, other than by a change in place."""
    changed = {id(t) for n in ast.walk(node) for t in in_place(n)}
    return {t.id for t in targets(node) if isinstance(t, ast.Name) and id(t) not in changed}


def live_after(text: ast.AST, node: ast.AST, name: str) -> bool:
    """True if `name` may be read after the statement with `node`, before it is assigned, or if that is not known."""
    found = _Later(node, name)
    found.block(getattr(text, "body", []), False, (False, False))
    return found.answer is not False


def read_beside(text: ast.AST, node: ast.AST, name: str) -> bool:
    """True if the statement with `node` reads `name` outside of it."""
    for stmt in ast.walk(text):
        if not isinstance(stmt, ast.stmt) or isinstance(stmt, ast.FunctionDef):
            continue
        own = [part for field, part in ast.iter_fields(stmt) if field not in BLOCKS]
        own = [n for part in own for n in (part if isinstance(part, list) else [part]) if isinstance(n, ast.AST)]
        if any(n is node for part in own for n in ast.walk(part)):
            return sum(reads(part, name) for part in own) > reads(node, name)
    return True


class _Later:
    """Liveness, backwards through blocks: whether a name is read before it is assigned anew."""

    def __init__(self, node: ast.AST, name: str):
        self.node, self.name = node, name
        self.answer: bool | None = None

    def block(self, body: Sequence[ast.stmt], after: bool, leaves: tuple[bool, bool]) -> bool:
        """True if live before these statements, given liveness `after` them; `leaves`: at break, at continue."""
        for stmt in reversed(body):
            after = self.statement(stmt, after, leaves)
        return after

    def statement(self, stmt: ast.stmt, after: bool, leaves: tuple[bool, bool]) -> bool:
        if isinstance(stmt, ast.If):
            sides = [self.block(side, after, leaves) for side in (stmt.body, stmt.orelse)]
            self.asked(stmt.test, any(sides))
            return any(sides) or self.reads(stmt.test)
        if isinstance(stmt, (ast.For, ast.While)):
            return self.loop(stmt, after)
        after = leaves[isinstance(stmt, ast.Continue)] if isinstance(stmt, (ast.Break, ast.Continue)) else after
        after = after and not isinstance(stmt, ast.Return)
        self.asked(stmt, after)
        plain = isinstance(stmt, (ast.Assign, ast.AnnAssign))
        if plain and any(isinstance(t, ast.Name) and t.id == self.name for t in targets(stmt)):
            after = False
        return after or self.reads(stmt)

    def loop(self, stmt: ast.For | ast.While, after: bool) -> bool:
        head = stmt.iter if isinstance(stmt, ast.For) else stmt.test
        live = after or (isinstance(stmt, ast.While) and self.reads(head))
        if live or self.block(stmt.body, False, (after, False)):  # what a turn needs of the one before it
            live = True
            self.block(stmt.body, True, (after, True))
        self.asked(head, live)
        return live or self.reads(head)

    def reads(self, node: ast.AST) -> bool:
        changed = isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == self.name
        return changed or reads(node, self.name) > 0

    def asked(self, around: ast.AST, after: bool) -> None:
        if any(n is self.node for n in ast.walk(around)):
            self.answer = after or bool(self.answer)

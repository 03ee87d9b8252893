"""Which names show one tile in Warp: there a change in place is seen by all of them, so here it is refused."""

from __future__ import annotations

import ast
from typing import Any

from ...errors import KernelError
from .. import ir
from ..ops import tiles
from ..types import Tile
from .conditions import Guarded
from .scope import leaves

VIEWS = (tiles.VIEW, tiles.RESHAPE, tiles.BROADCAST, tiles.TRANSPOSE)


class Sharing:
    """Part of the reader: tiles that are changed in place, and what branches and loops make of them."""

    def refuse_shared(self, old: Any, node: ast.AST) -> None:
        """A change in place of what is, in Warp, memory that another name shows too.

        It is kept: what names show inside a loop is known only where the loop ends (`recheck_shared`).
        """
        name = ast.unparse(node) if isinstance(node, ast.expr) else ""
        others = [
            (other, v)
            for names in (self.state.names, *self.outer_names)
            for other, tree in names.items()
            if not other.startswith("$") and not (names is self.state.names and _begins(name, other))
            for v in leaves(tree.tree if isinstance(tree, Guarded) else tree)
            if isinstance(v.type, Tile)
        ]
        first = len(self.changes)
        with self.at(node):
            self.changes.extend((name, part, others, self.where(node)) for part in leaves(old))
        self.recheck_shared(first)

    def recheck_shared(self, first: int) -> None:
        """Refuse the changes in place from number `first` on of which another name shows the tile."""
        for name, old, others, where in self.changes[first:]:
            for other, v in others:
                if self.may_share(old, v):
                    raise KernelError(
                        f"`{name}` is changed in place, and `{other}` is the same tile or a part of it, or may be",
                        slug="tile-alias", where=where,
                        why="Here each name is a value of its own: the other would not change, as in Warp it does.",
                        instead=f"{name} = {name} + 0.0 before it, for a tile of its own",
                    )  # fmt: skip

    def merged(self, merge: int, made: ir.Value, *sources: ir.Value) -> None:
        """Branch or loop number `merge` makes this value of one of these."""
        if isinstance(made.type, Tile):
            self.merged_tiles.setdefault(made, (merge, []))[1].extend(sources)

    def may_share(self, a: ir.Value, b: ir.Value) -> bool:
        """Whether two tiles, held at one moment, may be one tile in Warp, or parts of one.

        Results of one merge come from the same side. The later merge is followed first, so both sides of a pair stay
        values of one turn of a loop; what a turn made is nothing that the turn began with.
        """
        seen, left = set(), [(a, b)]
        while left:
            a, b = (_whole(v) for v in left.pop())
            if a is b:
                return True
            if (a, b) in seen:
                continue
            seen.add((a, b))
            (m, xs), (n, ys) = (self.merged_tiles.get(v, (0, [])) for v in (a, b))
            if m == n:
                left += zip(xs, ys, strict=False)
            elif m > n:
                left += [(v, b) for v in xs] if b not in self.made_in.get(m, ()) else []
            else:
                left += [(a, v) for v in ys] if a not in self.made_in.get(n, ()) else []
        return False


def _begins(target: str, name: str) -> bool:
    """Whether a target is this name, or a part of what it holds."""
    return target == name or target.startswith((f"{name}[", f"{name}."))


def _whole(v: ir.Value) -> ir.Value:
    """The tile of which this is a part or another form."""
    while v.stmt is not None and v.stmt.row in VIEWS:
        v = v.stmt.args[0]
    return v

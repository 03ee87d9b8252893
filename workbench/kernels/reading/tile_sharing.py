"""Aliasing of tiles: as in Warp, a change in place is seen by all names that show the tile.

`u = t` is a copy; a part or another form of a tile, and the parameter of a func, show memory of the tile that they were
made from. As soon as they have a name, all names stand for `Shown`: one cell of the state holds the whole tile, and
branches, loops and funcs carry it like the contents of a local array. Where it is known only when the kernel runs what
a name shows, a change in place is refused if that name, or the one that is changed, is read later.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container
from functools import partial
from typing import Any

from ...errors import KernelError
from .. import ir
from ..ops import tiles
from ..ops.signatures import CHANGED, TileBuiltin
from ..types import Tile
from .assigned_names import base
from .base import Meaning, ReaderBase
from .conditions import Guarded
from .declare import Func
from .liveness import in_place, live_after, read_beside
from .scope import Shown, State, StructParts, TilePart, Unusable, atoms, leaves, mapped

VIEWS = (tiles.VIEW, tiles.RESHAPE, tiles.BROADCAST, tiles.TRANSPOSE)
CELL = "[]tile "


# ---- names and what they show


def present_tiles(reader: ReaderBase, x: Meaning) -> Any:
    """`x` with each `Shown` replaced by the present value of its tile."""
    return mapped(x, Shown, partial(present, reader)) if has_shown(x) else x


def present(reader: ReaderBase, x: Shown) -> ir.Value:
    v = reader.state.cells[x.key]
    for step in x.steps:
        v = stepped(reader, v, step)
    return v


def stepped(reader: ReaderBase, v: ir.Value, step: TilePart) -> ir.Value:
    return reader.builder.emit(step.row, v, *step.indices, attr=step.attr)


def shared(reader: ReaderBase, x: Meaning, but: str = "") -> Any:
    """`x` as a name is bound to it: tiles that names other than `but` show too become `Shown`, there as well."""
    if not plain_tiles(x):
        return x
    kept = partial(storage, reader, cell=partial(cell_made, reader, but=but))
    return mapped(x, ir.Value, lambda v: (kept(v) or v) if isinstance(v.type, Tile) else v)


def storage(reader: ReaderBase, v: ir.Value, cell: Callable[[ir.Value], str | None]) -> Shown | None:
    """The `Shown` (cell, steps) that a tile is a view of; None if no cell holds it. `cell`: tile -> its cell."""
    whole, steps = v, []
    while True:
        key = cell(whole)
        if key is not None:
            return Shown(key, ir.type_as(v, Tile), tuple(reversed(steps)))
        if whole in reader.own_tiles or whole.stmt is None or whole.stmt.row not in VIEWS:
            return None
        stmt = whole.stmt
        steps.append(TilePart(stmt.row, stmt.args[1:], stmt.attr))
        whole = stmt.args[0]


def cell_of(reader: ReaderBase, v: ir.Value) -> str | None:
    return next((key for key, held in reader.state.cells.items() if held is v), None)


def cell_made(reader: ReaderBase, v: ir.Value, but: str) -> str | None:
    """The cell that holds this tile. If it is a name other than `but` that does, a cell is made of it."""
    for name, tree in reader.state.names.items():
        if name == but or name.startswith("$") or not only_tiles(tree):
            continue
        if any(v is part for part in plain_tiles(tree)):
            reader.state.names[name] = in_cells(reader, name, tree)
    return cell_of(reader, v)


def in_cells(reader: ReaderBase, name: str, tree: Meaning) -> Any:
    """The tree with its tiles moved to cells of the state, each replaced by a `Shown`."""

    def moved(v: ir.Value) -> Any:
        if not isinstance(v.type, Tile):
            return v
        key = cell_of(reader, v) or f"{CELL}{reader.serial()} {name}"
        reader.state.cells[key] = v
        return Shown(key, v.type)

    return mapped(tree, ir.Value, moved)


def put_name(reader: ReaderBase, name: str, new: Meaning) -> None:
    """Change what a name stands for, in place where it shows a tile."""
    old = reader.state.names[name]
    reader.state.names[name] = put_in_place(reader, old, new) if has_shown(old) else new


def put_in_place(reader: ReaderBase, old: Meaning, new: Meaning) -> Any:
    if isinstance(old, Shown):
        assert isinstance(new, ir.Value)
        write_shown(reader, old, new)
        return old
    if isinstance(old, StructParts) and isinstance(new, StructParts):
        return StructParts(new.type, {k: put_in_place(reader, old.fields[k], part) for k, part in new.fields.items()})
    if isinstance(old, tuple) and isinstance(new, tuple):
        return tuple([put_in_place(reader, a, b) for a, b in zip(old, new, strict=True)])
    return new


def write_shown(reader: ReaderBase, place: Shown, new: ir.Value) -> None:
    """Replace the part of a tile that a name shows."""
    wholes = [reader.state.cells[place.key]]
    for step in place.steps[:-1]:
        wholes.append(stepped(reader, wholes[-1], step))
    for step, whole in zip(reversed(place.steps), reversed(wholes), strict=False):
        new = written_back(reader, step, whole, new)
    held = reader.state.cells[place.key]
    new.name = new.name or held.name
    reader.state.cells[place.key] = new


def written_back(reader: ReaderBase, step: TilePart, whole: ir.Value, part: ir.Value) -> ir.Value:
    """The whole tile after its part, or view, got the value `part`."""
    if step.row is tiles.VIEW:
        return reader.builder.emit(tiles.ASSIGN, whole, *step.indices, part)
    if step.row is tiles.TRANSPOSE:
        return reader.builder.emit(tiles.TRANSPOSE, part)
    if step.row is tiles.RESHAPE:
        return reader.builder.emit(tiles.RESHAPE, part, attr=whole.type)
    text = "a tile that is repeated (`tile_broadcast`) is changed in place"
    why = "Several of its elements are one of the tile that it repeats, which another name shows."
    raise reader.error(text, "tile-alias", None, why, "a copy of it: tile_broadcast(...) + 0.0")


def tiles_copied(reader: ReaderBase, x: Meaning) -> Any:
    """`u = t` copies a tile, as in Warp."""

    def copied(v: ir.Value) -> ir.Value:
        if not isinstance(v.type, Tile):
            return v
        made = reader.builder.emit(tiles.RESHAPE, v, attr=v.type)
        reader.own_tiles.add(made)
        return made

    return mapped(x, ir.Value, copied) if has_tiles(x) else x


# ---- branches and loops


def part_ways(reader: ReaderBase, node: ast.AST | None, ends: list[Any]) -> None:
    """Before a join: replace `Shown` by values for names that do not show the same on both sides."""
    (one, a, _), (two, b, _) = ends
    for name in {**a.names, **b.names}:
        x, y = a.names.get(name), b.names.get(name)
        if not (has_shown(x) or has_shown(y)) or x is y:
            continue
        if x == y:
            b.names[name] = x
            continue
        for region, state in ((one, a), (two, b)):
            if has_shown(state.names.get(name)):
                state.names[name] = in_region(reader, node, region, state, state.names[name])


def in_region(reader: ReaderBase, node: ast.AST | None, region: ir.Region, state: State, tree: Meaning) -> Any:
    outer, reader.state = reader.state, state
    with reader.builder.inside(region), reader.at(node):
        found = present_tiles(reader, tree)
    reader.state = outer
    return found


def tiles_may_change(reader: ReaderBase, node: ast.AST, rebound: set[str]) -> bool:
    """True if a loop may change an earlier tile in place; such tiles are put in cells, which the loop carries."""
    names = reader.state.names
    held = {n: tree for n, tree in names.items() if only_tiles(tree) and not n.startswith("$")}
    if not held or not any(changes_tile(reader, n) for n in ast.walk(node)):
        return False
    for name in held.keys() - rebound:
        names[name] = in_cells(reader, name, held[name])
    return True


def changes_tile(reader: ReaderBase, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        callee = reader.python_object(node.func)
        return isinstance(callee, Func) or (isinstance(callee, TileBuiltin) and callee.__name__ in CHANGED)
    found = [reader.state.names.get(base(target) or "") for target in in_place(node)]
    return any(x is None or isinstance(x, Unusable) or has_tiles(x) for x in found)


def shown_after(reader: ReaderBase, before: Meaning, after: Meaning, runs: bool) -> Any:
    """The value after a loop of a name that it does not carry."""
    if not has_shown(after) or before == after:
        return before if has_shown(after) else after
    if before is not None and not has_shown(before) and has_tiles(before):
        now = present_tiles(reader, after)
        if all(a is b for a, b in zip(leaves(before), leaves(now), strict=False)):
            return before
        raise changed_unseen(reader)
    return after if runs else present_tiles(reader, after)


def refuse_changed_cells(reader: ReaderBase, before: dict[str, Any], carried: Container[str]) -> None:
    """A loop must have known which tiles its turns change."""
    now = reader.state.cells
    if any(is_tile_cell(k) and k not in carried and now.get(k) is not v for k, v in before.items()):
        raise changed_unseen(reader)


def changed_unseen(reader: ReaderBase) -> KernelError:
    text = "a tile of before this loop is changed in it through another name"
    why = "It does not show in the text of the loop."
    return reader.error(text, "tile-alias", None, why, "the change under the name of the tile")


# ---- what cannot be followed


def refuse_read_beside(reader: ReaderBase, outer: State, cells: dict[str, Any], node: ast.AST) -> None:
    """Raise KernelError if a func changes a tile that the line of its call also reads elsewhere."""
    for name, tree in outer.names.items():
        changed = [s for s in shown_in(tree) if cells.get(s.key) is not outer.cells.get(s.key)]
        if changed and read_beside(reader.frame.source.tree, node, name):
            text = f"the call changes `{name}` in place, and the same line reads it elsewhere"
            raise reader.error(text, "tile-alias", node, "Which comes first?", "the call on a line of its own")


def refuse_shared(reader: ReaderBase, old: Meaning, node: ast.AST) -> None:
    """Raise KernelError for a change in place of a tile that another name, live afterwards, may show.

    The change is also noted: what names show inside a loop is known only where the loop ends (`recheck_shared`).
    """
    name = ast.unparse(node) if isinstance(node, ast.expr) else ""
    known = {place.key for part in leaves(old) if (place := storage(reader, part, partial(cell_of, reader)))}
    others: list[tuple[str, ir.Value]] = []
    reading = (reader.state.names, reader.frame.source.tree, node)
    for names, text, at in (reading, *reader.callers):
        for other, tree in names.items():
            is_target = name == other or name.startswith((f"{other}[", f"{other}."))  # or it is a part of its value
            if other.startswith("$") or (names is reader.state.names and is_target):
                continue
            found = uncertain(reader, tree, known)
            if found and live_after(text, at, other):
                others += [(other, v) for v in found]
    first = len(reader.changes)
    with reader.at(node):
        reader.changes.extend((name, part, others, reader.where(node)) for part in leaves(old))
    recheck_shared(reader, first)


def uncertain(reader: ReaderBase, tree: Meaning, known: set[str]) -> list[ir.Value]:
    """The tiles of a name but for those in cells whose change it shows."""
    tree = tree.tree if isinstance(tree, Guarded) else tree
    held = [reader.state.cells[s.key] for s in shown_in(tree) if s.key not in known and s.key in reader.state.cells]
    return [*held, *plain_tiles(tree)]


def recheck_shared(reader: ReaderBase, first: int) -> None:
    """Refuse the changes in place from number `first` on of which another name may show the tile."""
    for name, old, others, where in reader.changes[first:]:
        for other, v in others:
            if may_share(reader, old, v):
                text = f"`{name}` is changed in place, and `{other}`, which is read later, may show the same tile"
                why = "Which tile it shows is known only when the kernel runs: a branch or a loop decides."
                instead = f"{name} = {name} + 0.0 before it, for a tile of its own"
                raise KernelError(text, slug="tile-alias", where=where, why=why, instead=instead)


def note_merge(reader: ReaderBase, merge: int, made: ir.Value, *sources: ir.Value) -> None:
    """Branch or loop number `merge` makes this value of one of these."""
    if isinstance(made.type, Tile):
        reader.merged_tiles.setdefault(made, (merge, []))[1].extend(sources)


def may_share(reader: ReaderBase, a: ir.Value, b: ir.Value) -> bool:
    """True if two tiles, live at one moment, may alias in Warp: be one tile, or parts of one.

    Results of one merge come from the same side. The later merge is followed first, so both sides of a pair stay
    values of one turn of a loop; what a turn made is nothing that the turn began with.
    """
    seen, left = set(), [(a, b)]
    while left:
        a, b = (whole_of(reader, v) for v in left.pop())
        if a is b:
            return True
        if (a, b) in seen:
            continue
        seen.add((a, b))
        (m, xs), (n, ys) = (reader.merged_tiles.get(v, (0, [])) for v in (a, b))
        if m == n:
            left += zip(xs, ys, strict=False)
        elif m > n:
            left += [(v, b) for v in xs] if b not in reader.made_in.get(m, ()) else []
        else:
            left += [(a, v) for v in ys] if a not in reader.made_in.get(n, ()) else []
    return False


def whole_of(reader: ReaderBase, v: ir.Value) -> ir.Value:
    """The tile of which this is a part or another form."""
    while v.stmt is not None and v.stmt.row in VIEWS and v not in reader.own_tiles:
        v = v.stmt.args[0]
    return v


def is_tile_cell(key: str) -> bool:
    return key.startswith(CELL)


def cell_name(key: str) -> str:
    """The name of the value that a cell holds."""
    return key.split(" ")[-1] if is_tile_cell(key) else key


def shown_in(x: Meaning) -> list[Shown]:
    return [atom for atom in atoms(x) if isinstance(atom, Shown)]


def plain_tiles(x: Meaning) -> list[ir.Value]:
    """The tiles that a tree holds itself."""
    return [atom for atom in atoms(x) if isinstance(atom, ir.Value) and isinstance(atom.type, Tile)]


def only_tiles(x: Meaning) -> bool:
    """True for tiles alone, in no tuple. A stack also has a count, which no cell holds."""
    return not isinstance(x, tuple) and all(isinstance(a, Shown) or plain_tiles(a) for a in atoms(x))


def has_shown(x: Meaning) -> bool:
    return any(isinstance(atom, Shown) for atom in atoms(x))


def has_tiles(x: Meaning) -> bool:
    return bool(plain_tiles(x)) or has_shown(x)

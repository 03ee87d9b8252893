"""Tiles in the text: each lives in a struct with an array, which is given to the next tile when nobody needs it more.

One idea: a tile is a value, but its text is a buffer. `TileText` knows which value a buffer holds and where in a region
a value is used last; there a row that changes a few elements, or works element by element, may write over it. So a
loop that changes an element per turn copies nothing. Every loop over elements is `WB_TILE`, which means all of them in
C, and each thread's share in CUDA, where what was written is complete for all threads behind `sync`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir import Region, Stmt, Value, numeric, type_as, used, walk
from ..ops import control, tiles
from ..ops.c_text import c_texts, c_turns
from ..types import Scalar, Tile
from .c_names import literal, type_name
from .components import ThreadText
from .signature import unsure_index

MACROS = """\
#define WB_TILE(k, n) for (int32_t k = 0; k < (n); ++k)
#define WB_ONE
"""
LESS = "#define WB_LESS(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))\n"  # NaN is behind all numbers

TOTAL, MATMUL, FMA, SOLVE, CHOLESKY, FFT, DFT, MATMUL_ADJOINT = c_texts(
    __file__, "tiles.c", "TOTAL MATMUL FMA SOLVE CHOLESKY FFT DFT MATMUL_ADJOINT"
)


def has_tiles(stmts: Sequence[Stmt]) -> bool:
    """True if any of the statements makes a tile."""
    return any(v.type.__class__ is Tile for s in stmts for v in s.outs) or any(s.row is control.EACH for s in stmts)


def helpers(lines: str) -> list[str]:
    """The helpers of the C text whose lines these are, in order."""
    out = [MACROS, LESS]
    if "WB_TOTAL" in lines:
        out.append(TOTAL)
    if "WB_MATMUL" in lines:
        out += [MATMUL, FMA]
        for T in ("float", "double"):
            if f"WB_MATMUL({T}," in lines or f"WB_MATMUL_ADJOINT({T}," in lines:
                out.append(f"WB_DEFINE_MATMUL({T}, WB_FMA_{T})")
        out.append(MATMUL_ADJOINT)
    if "WB_FFT(" in lines:
        out += [FFT, "WB_DEFINE_FFT(float, cosf, sinf)", "WB_DEFINE_FFT(double, cos, sin)"]
    if "WB_DFT(" in lines:
        out.append(DFT)
    for name, text in (("SOLVE", SOLVE), ("CHOLESKY", CHOLESKY)):
        if f"WB_{name}(" in lines:
            out += [text, *(f"WB_DEFINE_{name}({T})" for T in ("float", "double") if f"WB_{name}({T}," in lines)]
    return out


class TileText(ThreadText):
    """Mixin of `Body`: buffers of tiles, copies, and updates in place."""

    memory: dict
    region: Callable[[Region], None]
    statement: Callable[[Stmt], None]
    block: Callable[..., Any]
    _full: Callable[[Stmt], str]

    sync = ""  # what is written after every loop over elements

    def begin_tiles(self, stmts: list[Stmt]) -> None:
        self.tiled = has_tiles(stmts)
        self.splats: dict[Value, str] = {}  # tiles with one number everywhere: no buffer yet
        self.owned: dict[Value, Region] = {}  # the region in which a tile may be changed
        self.holder: dict[str, Value] = {}  # buffer -> the tile that it holds
        self.fixed: set[str] = set()  # buffers that outlive the region being written
        self.free: list[tuple[str, str]] = []  # (type, buffer)
        self.here: tuple[Region | None, int] = (None, 0)
        self.last_uses: dict[int, dict[Value, int]] = {}
        self.each_depth = 0
        self.taken: set[str] = set()

    # ---- who needs what how long

    def last(self, region: Region) -> dict[Value, int]:
        """The index in the region of the last use of each value; the region's length for its results."""
        if id(region) not in self.last_uses:
            found = self.last_uses[id(region)] = {}
            for k, stmt in enumerate(region.body):
                for s in walk(Region(body=[stmt])):
                    found.update(dict.fromkeys(s.operands, k))
            found.update(dict.fromkeys(region.results, len(region.body)))
        return self.last_uses[id(region)]

    def dies(self, value: Value) -> bool:
        """True if the statement being emitted is the last use of this tile, whose buffer is then free."""
        region, k = self.here
        return region is not None and self.owned.get(value) is region and self.last(region).get(value, -1) <= k

    def own(self, value: Value, name: str) -> None:
        self.texts[value] = name
        self.holder[name] = value
        if self.here[0] is not None:
            self.owned[value] = self.here[0]

    def release(self, region: Region, k: int) -> None:
        """Give free the buffers of tiles that statement k used last."""
        last = self.last(region)
        stmt = region.body[k]
        for v in {*stmt.args, *stmt.outs, *(a for r in stmt.regions for a in used(r))}:
            name = self.texts.get(v, "") if isinstance(v.type, Tile) and v not in self.splats else ""
            if name and self.owned.get(v) is region and last.get(v, -1) <= k and self.holder.get(name) is v:
                if name not in self.fixed:
                    self.free.append((type_name(v.type), name))
                del self.owned[v]

    def tiled_region(self, region: Region) -> None:
        here = self.here
        for k, stmt in enumerate(region.body):
            self.here = region, k
            self.statement(stmt)
            self.here = region, k
            self.release(region, k)
        self.here = here

    # ---- buffers

    def buffer(self, type: Tile, wish: str) -> str:
        """The name of a free buffer for a tile of this type, else of a new one."""
        for k, (kind, name) in enumerate(self.free):
            if kind == type_name(type):
                del self.free[k]
                return name
        name = self.names.new(wish or "tile")
        self.put(self.tile_declaration(type, name))
        return name

    def tile_declaration(self, type: Tile, name: str) -> str:
        return f"{type_name(type)} {name};"

    def scope(self) -> tuple:
        """A snapshot of the free buffers; `unscope` restores it where a block of C ends."""
        return (list(self.free),)

    def unscope(self, kept: tuple) -> None:
        self.free = kept[0]

    def fill(self, name: str, type: Tile, number: str) -> None:
        self.put(f"WB_TILE(wb_k, {type.size}) {name}.c[wb_k] = {number};")
        self.put_sync()

    def copy(self, name: str, value: Value) -> None:
        """Write the elements of a tile into a buffer."""
        text = self.splats.get(value) or f"{self.texts[value]}.c[wb_k]"
        self.fill(name, type_as(value, Tile), text)

    def put_sync(self) -> None:
        if self.sync and not self.each_depth and self.lines[-1].strip() != self.sync:
            self.put(self.sync)

    def tile(self, value: Value) -> str:
        """The buffer of a tile; a splat (one number everywhere) is written out to a buffer first."""
        if value not in self.splats:
            return self.texts[value]
        name = self.buffer(type_as(value, Tile), value.name or "tile")
        self.fixed.add(name)
        self.copy(name, value)
        return name

    def copied(self, value: Value, wish: str) -> str:
        """A buffer with the elements of a tile, that of no other value."""
        name = self.buffer(type_as(value, Tile), wish)
        self.put_sync()
        self.copy(name, value)
        return name

    def onto(self, value: Value, others: Sequence[Value], wish: str) -> str:
        """A buffer holding this tile that may be overwritten: its own at its last use, else a copy."""
        if value not in self.splats and value not in others and self.dies(value):
            return self.texts[value]
        return self.copied(value, wish)

    # ---- rows

    def tile_row(self, stmt: Stmt) -> None:
        """Emit a row whose result or operands are tiles."""
        row, (out,) = stmt.row, stmt.outs
        if row is tiles.FILL:
            self.splats[out] = self.text(stmt.args[0])
        elif row.block is None:
            self.tile_elementwise(stmt)
        elif isinstance(out.type, Tile):
            name = self.tile_filled(stmt, out.type)
            self.own(out, name)
        elif row is tiles.GET and stmt.args[0] in self.splats:
            self.texts[out] = self.splats[stmt.args[0]]
        else:
            operands = [self.tile(a) if isinstance(a.type, Tile) else self.text(a) for a in stmt.args]
            self.declare(out, literal(type_as(out, Scalar), 0))
            self.put_block(stmt, self.text(out), operands)

    def tile_filled(self, stmt: Stmt, type: Tile) -> str:
        row, wish = stmt.row, stmt.outs[0].name
        if row.onto is None:
            operands = [self.tile(a) if isinstance(a.type, Tile) else self.text(a) for a in stmt.args]
            name = self.buffer(type, wish)
        else:
            others = [a for k, a in enumerate(stmt.args) if k != row.onto]
            rest = {
                k: self.tile(a) if isinstance(a.type, Tile) else self.text(a)
                for k, a in enumerate(stmt.args)
                if k != row.onto
            }
            name = self.onto(stmt.args[row.onto], others, wish)
            operands = [rest.get(k, name) for k in range(len(stmt.args))]
        self.put_sync()
        if row is not tiles.RESHAPE:
            self.put_block(stmt, name, operands)
            self.put_sync()
        return name

    def put_block(self, stmt: Stmt, out: str, operands: list[str]) -> None:
        """Emit the C of a row; an index that may be out of range is tested first, and reported as an error."""
        text = self.block_text(stmt, out, operands)
        if not unsure_index(stmt):
            return self.put(text)
        dims = type_as(stmt.args[0], Tile).dims
        part = stmt.attr if stmt.row is tiles.VIEW else stmt.args[-1].type if stmt.row is tiles.ASSIGN else None
        indices = operands[1 : 1 + len(dims)]
        if part is None:
            tests = [f"wb_in({i} + ({i} < 0 ? {n} : 0), {n})" for i, n in zip(indices, dims, strict=True)]
        else:
            inner = type_as(part, Tile).dims
            tests = [f"wb_in({i}, {n - m + 1})" for i, n, m in zip(indices, dims, inner, strict=True)]
        with self.block(f"if ({' && '.join(tests)})"):
            self.put(text)
        self.lines[-1] += f" else {self.outside(stmt, indices, dims)}"

    def block_text(self, stmt: Stmt, out: str, operands: list[str]) -> str:
        row = stmt.row
        assert row.block is not None
        types = [a.type for a in stmt.args]
        return row.block(types, stmt.outs[0].type, out, *operands, **row.extra(stmt.attr))

    def tile_elementwise(self, stmt: Stmt) -> None:
        """Emit a scalar row over tiles, element by element; the result may reuse the buffer of a dead operand."""
        out = stmt.outs[0]
        assert isinstance(out.type, Tile)
        types = [numeric(a).scalar for a in stmt.args]
        tiles_in = [a for a in stmt.args if isinstance(a.type, Tile)]
        texts = [self.element(a, "wb_k") if isinstance(a.type, Tile) else self.text(a) for a in stmt.args]
        text = self.scalar_text(stmt.row, types, out.type.scalar, texts, stmt.attr)
        if all(a in self.splats for a in tiles_in):
            self.splats[out] = self.variable(out.type.scalar, text, out.name or "t")
            return
        name = self.target(out, tiles_in)
        self.put_sync()
        self.put(f"WB_TILE(wb_k, {out.type.size}) {name}.c[wb_k] = {text};")
        self.put_sync()
        self.own(out, name)

    def target(self, out: Value, operands: Sequence[Value]) -> str:
        """A buffer for an elementwise result: that of an operand dead after it, else a free one."""
        for a in operands:
            if a not in self.splats and type_name(a.type) == type_name(out.type) and self.dies(a):
                return self.texts[a]
        return self.buffer(type_as(out, Tile), out.name)

    def element(self, value: Value, k: str) -> str:
        return self.splats.get(value) or f"{self.texts[value]}.c[{k}]"

    # ---- every element

    def row_each(self, stmt: Stmt) -> None:
        names: list[str] = []
        for out in stmt.outs:
            free = [a for a in stmt.args if a not in self.splats and self.texts[a] not in names]
            names.append(self.target(out, free))
        self.put_sync()
        asks, self.asks = self.asks, False
        here = self.here
        self.each_loop(stmt, names)
        self.asks, self.here = asks, here
        self.put_sync()
        for out, name in zip(stmt.outs, names, strict=True):
            self.own(out, name)

    def each_loop(self, stmt: Stmt, names: list[str]) -> None:
        """The loop nest around a region; in CUDA threads share out the elements by one number."""
        (region,) = stmt.regions
        rank, scope = len(stmt.attr.shape), self.scope()
        self.each_depth += 1
        axes = [self.names.new(p.name or "i") for p in region.params[:rank]]
        self.texts.update(zip(region.params, axes, strict=False))
        depth = self.depth
        place = self.open_each(stmt.attr, axes, region)
        for param, tile in zip(region.params[rank:], stmt.args, strict=True):
            self.texts[param] = self.variable(param.type, self.element(tile, place), param.name or "e")
        self.region(region)
        for name, result in zip(names, region.results, strict=True):
            self.put(f"{name}.c[{place}] = {self.text(result)};")
        while self.depth > depth:
            self.depth -= 1
            self.put("}")
        self.each_depth -= 1
        self.unscope(scope)

    def open_each(self, attr: control.Each, axes: list[str], region: Region) -> str:
        """Open the loops over all elements; returns the flat index of an element."""
        place = ""
        for n, i in zip(attr.shape, axes, strict=True):
            self.put(f"for ({c_turns(i, n, attr.order < 0)}) {{")
            self.depth += 1
            place = f"({place}) * {n} + {i}" if place else i
        return place

    # ---- control flow

    def carry_tile(self, stmt: Stmt, value: Value, wish: str, others: Sequence[Value]) -> str:
        """The buffer of a tile that a loop carries: that of its initial value where this dies, else a copy."""
        inside = value in used(stmt.regions[-1]) or others.count(value) > 1
        dies = value not in self.splats and not inside and self.dies(value)
        name = self.texts[value] if dies else self.copied(value, wish)
        self.fixed.add(name)
        return name

    def branch_tile(self, stmt: Stmt, k: int) -> str:
        """The buffer of an `if`'s result: that of a dying tile one side yields or updates in place, else a free one."""
        out = stmt.outs[k]
        for region in stmt.regions:
            v = self.origin(region.results[k], region)
            if v is not None and v not in self.splats and self.dies(v) and type_name(v.type) == type_name(out.type):
                alone = all(v not in (*r.results[:k], *r.results[k + 1 :]) for r in stmt.regions)
                if alone and self.texts[v] not in self.taken:
                    self.taken.add(self.texts[v])
                    return self.texts[v]
        return self.buffer(type_as(out, Tile), out.name)

    def origin(self, value: Value, region: Region) -> Value | None:
        """The tile from outside a region that became this one by changes in place."""
        while value.stmt is not None and value.stmt in region.body:
            row = value.stmt.row
            if row.onto is None:
                return None
            value = value.stmt.args[row.onto]
        return value if value in self.texts else None

    def branch_names(self, stmt: Stmt) -> list[str]:
        """A variable for each result of an `if`. Tiles that it uses last may be changed by its branches."""
        self.taken: set[str] = set()
        names = [
            self.branch_tile(stmt, k) if isinstance(o.type, Tile) else self.variable(o.type, "", o.name or "t")
            for k, o in enumerate(stmt.outs)
        ]
        self.fixed.update(n for o, n in zip(stmt.outs, names, strict=True) if isinstance(o.type, Tile))
        return names

    def lend(self, stmt: Stmt) -> dict[Value, Region]:
        """The tiles whose last use is in this statement's regions -> the region that owns them."""
        reads = {a for r in stmt.regions for a in used(r)} if self.tiled else ()
        return {v: self.owned[v] for v in reads if isinstance(v.type, Tile) and v in self.owned and self.dies(v)}

    def assign_tiles(self, names: Sequence[str], values: Sequence[Value]) -> None:
        """Parallel assignment of tiles: one whose buffer is overwritten before it is read is copied first."""
        pairs = [(n, v) for n, v in zip(names, values, strict=True) if isinstance(v.type, Tile)]
        moves = [(n, v) for n, v in pairs if v in self.splats or self.texts[v] != n]
        targets = {n for n, _ in moves}
        if moves:
            self.put_sync()
        kept = {}
        for _, v in moves:
            if v not in self.splats and self.texts[v] in targets and v not in kept:
                kept[v] = self.buffer(type_as(v, Tile), "next")
                self.copy(kept[v], v)
        for n, v in moves:
            self.fill(n, type_as(v, Tile), f"{kept[v]}.c[wb_k]") if v in kept else self.copy(n, v)

    def push_tile(self, stmt: Stmt) -> None:
        name, type = self.tile(stmt.args[1]), type_name(stmt.args[1].type)
        self.put(f"if (wb_room(&wb_stack, sizeof({type}))) WB_PUSH({type}, {name}); else {self._full(stmt)}")

    def pop_tile(self, stmt: Stmt) -> None:
        out = stmt.outs[0]
        name = self.buffer(type_as(out, Tile), out.name)
        type = type_name(out.type)
        self.put(f"if (wb_left(&wb_stack, sizeof({type}))) WB_POP({type}, {name});")
        self.own(out, name)

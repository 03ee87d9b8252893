"""Tiles in CUDA: the threads of a block are one thread of the program, and share out the elements of its tiles.

Every thread of the block runs the scalar statements, with the same numbers; what changes memory is done by the first
of them. Tiles lie in shared memory. Threads wait for each other before and after whatever writes to a tile or to
memory, so every value is complete where it is read, and no wait lies in a branch that only some threads take.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import contextmanager

from ..ir import Region, Stmt, numeric, type_as, used, walk
from ..ops import control, memory as mem
from ..ops.c_text import c_texts, c_turns
from ..types import Tile
from .body import Body
from .c_names import type_name
from .signature import NOTED
from .tiles import DFT, LESS, MATMUL_ADJOINT

SHARED = "wb_shared"
THREADS = 128  # of a block
(MACROS,) = c_texts(__file__, "tiles.cu", "MACROS")


def note_on_gpu(self: Body, holds: str, bit: int) -> None:
    """Note a convention: rare, so by a branch."""
    self.put(f"if (!({holds})) atomicOr((unsigned int *)(args.status + {NOTED}), {1 << bit}u);")


class ThreadBlock(Body):
    """The statements of one block of threads."""

    note = note_on_gpu
    sync = "__syncthreads();"

    def begin_tiles(self, stmts: list[Stmt]) -> None:
        super().begin_tiles(stmts)
        self.taken_bytes = self.shared_bytes = 0
        self.used = used(self.function.body)

    # ---- shared memory

    def tile_declaration(self, type: Tile, name: str) -> str:
        at = self.taken_bytes
        self.taken_bytes += -(-type.itemsize // 16) * 16
        self.shared_bytes = max(self.shared_bytes, self.taken_bytes)
        return f"{type_name(type)} &{name} = *({type_name(type)} *)({SHARED} + {at});"

    def scope(self) -> tuple:
        return *super().scope(), self.taken_bytes

    def unscope(self, kept: tuple) -> None:
        self.taken_bytes = kept[1]
        super().unscope(kept)

    # ---- elements

    def open_each(self, attr: control.Each, axes: list[str], region: Region) -> str:
        k, size = self.names.new("wb_e"), 1
        for n in attr.shape:
            size *= n
        alone = attr.order or any(s.row is mem.LOG_STORE for s in walk(region))
        head = f"WB_ONE for ({c_turns(k, size, attr.order < 0)})" if alone else f"WB_TILE({k}, {size})"
        self.put(f"{head} {{")
        self.depth += 1
        step = size
        for n, i in zip(attr.shape, axes, strict=True):
            step //= n
            self.put(f"const int32_t {i} = {k} / {step} % {n};")
        return k

    # ---- memory: by the first thread

    @contextmanager
    def _alone(self):
        """Context: statements run by the first thread of the block alone, between two barriers."""
        if self.each_depth:
            yield
            return
        self.put_sync()
        with self.block("WB_ONE"):
            yield
        self.put_sync()

    def _by_one(self, write: Callable[[Stmt], None], stmt: Stmt) -> None:
        with self._alone():
            write(stmt)

    def row_store(self, stmt: Stmt) -> None:
        self._by_one(super().row_store, stmt)

    def row_log_store(self, stmt: Stmt) -> None:
        self._by_one(super().row_log_store, stmt)

    def row_accumulate(self, stmt: Stmt) -> None:
        self._by_one(super().row_accumulate, stmt)

    def row_printf(self, stmt: Stmt) -> None:
        self._by_one(super().row_printf, stmt)

    def row_rollback(self, stmt: Stmt) -> None:
        self.put_sync()
        super().row_rollback(stmt)
        self.put_sync()

    def _atomic(self, stmt: Stmt) -> None:
        (out,) = stmt.outs
        if self.each_depth or out not in self.used:
            return self._by_one(super()._atomic, stmt)
        slot = self.names.new("wb_old")
        self.put(f"__shared__ {type_name(out.type)} {slot};")
        with self._alone():
            super()._atomic(stmt)
            self.put(f"{slot} = {self.text(out)};")
        self.declare(out, slot)
        self.put(self.sync)

    # ---- stacks: each thread keeps its share of a tile

    def push_tile(self, stmt: Stmt) -> None:
        value = stmt.args[1]
        T = numeric(value).scalar.c
        with self.block(f"WB_TILE(wb_k, {numeric(value).size})"):
            self.put(f"{T} wb_v = {self.element(value, 'wb_k')};")
            self.put(f"if (wb_room(&wb_stack, sizeof({T}))) WB_PUSH({T}, wb_v); else {self._full(stmt)}")

    def pop_tile(self, stmt: Stmt) -> None:
        out = stmt.outs[0]
        type = type_as(out, Tile)
        name, size, T = self.buffer(type, out.name), type.size, type.scalar.c
        self.put_sync()
        last = f"({size} - 1 - (int32_t)threadIdx.x) / (int32_t)blockDim.x * (int32_t)blockDim.x + (int32_t)threadIdx.x"
        head = f"for (int32_t wb_k = {last}; wb_k >= 0; wb_k -= blockDim.x)"
        with self.block(f"if (threadIdx.x < {size}) {head}"):
            self.put(f"if (wb_left(&wb_stack, sizeof({T}))) WB_POP({T}, {name}.c[wb_k]);")
        self.put_sync()
        self.own(out, name)


HELPERS = [MACROS, MATMUL_ADJOINT, LESS, DFT]


def shared_bytes(text: str) -> int | None:
    """The bytes of shared memory per block of a text with tiles; None for a text without tiles."""
    found = re.search(rf"/\* {SHARED}: (\d+) bytes \*/", text)
    return int(found[1]) if found else None

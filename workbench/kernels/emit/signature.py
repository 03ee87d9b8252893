"""The calling convention of compiled kernels: the packed block of arguments, and the words of the status.

`Variant` is what the text may assume about the launch. Errors on the device go to `status`, the first one wins: code,
access id, thread, index count, six indices, six extents. Behind them one bit for each convention that was met.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from ...errors import Where
from ..ir import Function, Stmt, numeric, root, type_as, walk
from ..ops import control, memory as mem, tiles, vectors
from ..types import SCALARS, Array, Stack, Tile, Type
from .c_names import CNames, c_name, type_name

STATUS_WORDS = 17
NOTED = 16  # the word of conventions (`control.Convention`)
MAX_RANK = 4
BOUNDS, STACK_FULL, CLAIM = 1, 2, 3
_FORMAT = {t.name: letter for t, letter in zip(SCALARS, "efdbhiqBHIQ?", strict=True)}  # as `struct` writes each


@dataclass(frozen=True)
class Variant:
    """The assumptions under which a launch is compiled. Names are those of array parameters.

    contiguous: arrays in C order without gaps. restrict: no two arrays overlap. checked: access ids (see `accesses`)
    that are tested: indices not proven to stay inside, and asserts.
    atomic: arrays whose updates come from several workers at once. index32: every array, and the grid, has fewer than
    2**31 elements; heeded on GPUs alone, as wrapping 32-bit indices keep a C compiler from vectorising.
    inner: the function without its tests, for a box of threads that every launch gives. alone: threads
    outside the box do nothing.
    many: threads enough for code that takes compilers long, as it does much at once.
    tests: a function that notes where an index of `checked` may leave its array, and what threads that it notes nothing
    of run, without testing any.
    aligned: contiguous arrays of 8 or 16 bytes an element (or a multiple) begin at such a multiple; heeded on GPUs.
    """

    contiguous: frozenset[str] = frozenset()
    restrict: bool = False
    checked: frozenset[int] = frozenset()
    atomic: frozenset[str] = frozenset()
    index32: bool = False
    inner: Function | None = None
    alone: bool = False
    many: bool = False
    tests: tuple[Function, Function] | None = None
    aligned: bool = False


PLAIN = Variant()


class AccessPlace(NamedTuple):
    """One statement that can fail on the device: its place, the array (or stack) it uses, the row.

    `wrapped`: per index, True where a negative one has been counted from the end.
    """

    where: Where | None
    array: str
    row: str
    wrapped: tuple[bool, ...]
    claim: control.Claim | None = None


_ACCESSES = (mem.LOAD, mem.STORE, mem.LOG_STORE, mem.ACCUMULATE, control.PUSH, control.ASSERT)
_ACCESSES += (*mem.ATOMICS, *tiles.INDEXED, *vectors.AT_RUN_TIME)


def accesses(stmts: Iterable[Stmt]) -> list[Stmt]:
    """The statements that can fail on the device, in order: the access id in `status` is an index into them."""
    return [s for s in stmts if s.row in _ACCESSES]


def to_check(function: Function, inside: Container[Stmt]) -> frozenset[int]:
    """The access ids that a variant tests: asserts, and the accesses by index that are not among those `inside`."""
    return frozenset(
        k
        for k, s in enumerate(accesses(walk(function.body)))
        if s not in inside and s.row is not control.PUSH and s.row not in tiles.INDEXED
    )


def access_table(function: Function) -> tuple[AccessPlace, ...]:
    """The place of every access, by its access id."""
    return tuple(
        AccessPlace(
            s.where,
            root(s.args[0]).name or str(s.args[0].type),
            s.row.name,
            tuple(i.stmt is not None and i.stmt.row is mem.WRAP for i in s.args[1:]),
            s.attr if s.row is control.ASSERT else None,
        )
        for s in accesses(walk(function.body))
    )


def claims(stmts: Iterable[Stmt]) -> bool:
    """True if a statement may fail in every launch."""
    return any((s.row is control.ASSERT and s.attr.always) or unsure_index(s) for s in stmts)


def conventions(stmts: Iterable[Stmt]) -> list[Stmt]:
    """The statements that note that a slope is a convention."""
    return [s for s in stmts if s.row is control.ASSERT and isinstance(s.attr, control.Convention)]


def unsure_index(stmt: Stmt) -> bool:
    """True for an access to elements of a tile at indices that are no constants."""
    return stmt.row in tiles.INDEXED and any(
        i.stmt is None or i.stmt.row is not control.CONST
        for i in stmt.args[1 : 1 + len(type_as(stmt.args[0], Tile).dims)]
    )


def logs(stmts: Iterable[Stmt]) -> bool:
    """True if the thread undoes its stores from a log."""
    return any(s.row in (mem.LOG_STORE, mem.MARK, mem.ROLLBACK) for s in stmts)


def needs_scratch(function: Function) -> bool:
    """True if a launch on a GPU needs scratch memory: for a stack of unknown height, or the log of a replay."""
    stmts = list(walk(function.body))
    return logs(stmts) or any(isinstance(s.attr, Stack) and s.attr.capacity is None for s in stmts)


class Signature:
    """The argument block of a function: int64 dim[4]; per parameter a pointer, its shape and its byte strides, or a
    value padded to 8 bytes; then int64 *status, void *scratch, int64 scratch_bytes. The same bytes on every backend.
    With `boxed` there are first and one-past-last thread of a box along each launch dimension after the parameters.
    With `divided` the text reads `divisors` of the launch dimensions behind all that; on GPUs alone.
    """

    def __init__(self, function: Function, boxed: bool = False, divided: bool = False):
        names = CNames()
        self.function = function
        self.name = c_name(function.name)
        names.used |= {"dim", "scratch_bytes"}
        self.fields = {p: names.family(p.name, ("_shape", "_strides")) for p in function.params}
        parts = [self._part(p.type) for p in function.params]
        self.box, self.divided = 2 * function.rank if boxed else 0, divided
        self.struct = struct.Struct("=4q" + "".join(parts) + f"{self.box}q" + "QQq")
        self.size = self.struct.size
        self._pack = self.struct.pack
        self.count = sum(1 + 2 * p.type.ndim if isinstance(p.type, Array) else numeric(p).size for p in function.params)

    @staticmethod
    def _part(type: Type) -> str:
        if isinstance(type, Array):
            return f"Q{2 * type.ndim}q"
        held = numeric(type)
        size, scalar = held.itemsize, held.scalar
        return f"{held.size}{_FORMAT[scalar.name]}" + f"{-size % 8}x" * (size % 8 > 0)

    def pack(
        self, dims: Sequence[int], values: Sequence[Any], status: int = 0, scratch: int = 0, scratch_bytes: int = 0
    ) -> bytes:
        """The bytes. `values`: per array (pointer, *shape, *byte strides), per value its components, all in a row; the
        box after them.
        """
        return self._pack(*dims, *_ONES[len(dims)], *values, status, scratch, scratch_bytes)

    @cached_property
    def offsets(self) -> list[int]:
        """The byte offset of each parameter in the block; that of an array is its pointer's."""
        sizes = [struct.calcsize("=" + self._part(p.type)) for p in self.function.params]
        return list(itertools.accumulate([8 * MAX_RANK, *sizes[:-1]])) if sizes else []

    @cached_property
    def fields_of_numbers(self) -> dict[int, tuple[str, int]]:
        """Position of a parameter that is no array -> how `struct` writes each component, and where in the block."""
        places = enumerate(zip(self.function.params, self.offsets, strict=True))
        return {k: (_FORMAT[numeric(p).scalar.name], at) for k, (p, at) in places if not isinstance(p.type, Array)}

    @property
    def c_declaration(self) -> str:
        lines = ["typedef struct {", f"    int64_t dim[{MAX_RANK}];"]
        for p, name in self.fields.items():
            if isinstance(p.type, Array):
                shape = f"int64_t {name}_shape[{p.type.ndim}], {name}_strides[{p.type.ndim}];"
                lines.append(f"    union {{ {type_name(p.type.dtype)} *p; int64_t pad; }} {name}; {shape}")
            else:
                words = -(-numeric(p).itemsize // 8)
                lines.append(f"    union {{ {type_name(p.type)} v; int64_t pad[{words}]; }} {name};")
        lines += [f"    int64_t wb_box[{self.box}];"] * (self.box > 0)
        lines.append("    int64_t *status; void *scratch; int64_t scratch_bytes;")
        lines += [f"    struct {{ uint32_t factor, shift; }} wb_divisor[{MAX_RANK}];"] * self.divided
        return "\n".join([*lines, f"}} {self.name}_args;"])


@lru_cache(1024)
def divisors(dims: tuple[int, ...]) -> bytes:
    """Per launch dimension d a factor and a shift with `n // d == (2 * n * factor >> 32) >> shift` for n below 2**31.

    Granlund and Montgomery, "Division by invariant integers using multiplication", 1994: n times what a factor was
    rounded up by never reaches the next quotient.
    """
    words = []
    for d in (*dims, *_ONES[len(dims)]):
        shift = max(d - 1, 0).bit_length()
        words += [-(-(1 << 31 + shift) // max(d, 1)), shift]
    return struct.pack(f"={2 * MAX_RANK}I", *words)


_ONES = [(1,) * (MAX_RANK - n) for n in range(MAX_RANK + 1)]  # the extents that a launch of n dimensions leaves open

"""IR -> CUDA C++: the same statements as on the processor, one thread of the device per cell of the launch grid.

The arguments are one struct by value, byte for byte the block that `Signature` packs. A grid-stride loop takes any
grid, so a launch may use fewer threads than cells. Stacks of unknown height live in slices of `scratch`, one per
thread, the replay's log at the far end of the same slice; a full slice is reported in `status`. Needs no header.
What many threads add to one cell is summed before it reaches memory: in a block where the cell is the same for the
whole grid and nothing reads it, else in the warp if its threads meet in one cell (warp-aggregated atomics: Adinets,
2014). No other order of sums is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ...errors import KernelError, Where
from ..ir import Function, Stmt, Value, numeric, type_as, used, walk
from ..ops import control, memory as rows, prelude
from ..ops.c_text import c_texts
from ..row import Effect, Row
from ..types import Array, Composite, Scalar, Type, float16, float32, float64, int32, uint32, uint64
from . import cuda_tiles
from .body import ArrayNames, Body
from .c import TURNS, filled, head, plain
from .c_names import composites, type_name, typedef, zero
from .signature import PLAIN, Signature, Variant
from .tiles import has_tiles

TYPES, HALF, CHECKS, STACK, WITHIN, OVER, UPDATE, WARP_SUM, BLOCK_SUM, WORDS = c_texts(
    __file__, "device.cu", "TYPES HALF CHECKS STACK WITHIN OVER UPDATE WARP_SUM BLOCK_SUM WORDS"
)

SUMMED = "wb_block_add"  # a text with it gains from few blocks, each with many cells
_MOST_SUMS = 16  # numbers that a thread keeps in registers for the end; beyond, sums are taken in warps

_ADDED = (int32, uint32, uint64, float32, float64)  # the types that atomicAdd takes
_CAS_WORD = {16: "unsigned short", 32: "unsigned int", 64: "unsigned long long"}


def update(name: str, row: Row, scalar: Scalar, shared: bool, where: Where | None) -> str:
    """One read-modify-write as a device function returning the old value.

    Raises KernelError [atomic-type] for 8-bit types, which the device cannot exchange.
    """
    if not shared:
        return plain(name, row, scalar)
    if row is rows.ATOMIC_ADD and scalar in _ADDED:
        return f"{head(name, row, scalar)} {{ return atomicAdd(p, v); }}"
    word = _CAS_WORD.get(scalar.bits)
    if word is None:
        raise KernelError(
            f"a GPU has no atomic operation on {scalar}", slug="atomic-type", where=where, instead="an array of int32"
        )
    return filled(UPDATE, name, row, scalar, word)


SAME, ALIKE, OWN = range(3)  # an index: the same for the whole grid; mostly for a warp; of each thread its own


class Sum(NamedTuple):
    """A private sum of one thread, and the pointer to the cell that it is for; null as long as nothing was added."""

    place: str
    value: str
    type: Type


class GpuThread(Body):
    """The statements of one thread on a GPU. `sums`: by array and indices, what a block adds at its end."""

    note = cuda_tiles.note_on_gpu

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sums: dict[tuple, Sum] = {}
        self.spread = dict.fromkeys(self.function.params, SAME)
        stmts = list(walk(self.function.body))
        self.read = used(self.function.body)
        self.only_added = {p.name for p in self.function.arrays} - self._used_otherwise(stmts)

    def _used_otherwise(self, stmts: list[Stmt]) -> set[str]:
        """Arrays of which something is done beside adding."""
        roots: dict[Value, str] = {p: p.name for p in self.function.arrays}
        found = set()
        for s in stmts:
            if s.row is control.CALL:
                roots.update((p, roots[a]) for p, a in zip(s.regions[0].params, s.args, strict=True) if a in roots)
            elif s.row is rows.COMPONENTS:
                roots[s.outs[0]] = roots[s.args[0]]
            elif s.row is not rows.SHAPE and s.args and isinstance(s.args[0].type, Array) and not self._adds(s):
                found.add(roots[s.args[0]])
        return found

    def _adds(self, stmt: Stmt) -> bool:
        """True for `cell += value` and `-=` whose result, the old contents, is not used."""
        updates = (rows.ACCUMULATE, rows.ATOMIC_ADD, rows.ATOMIC_SUB)
        return stmt.row in updates and self.read.isdisjoint(stmt.outs)

    # -- how far an index is the same

    def _spread(self, value: Value) -> int:
        pending = [value]  # instead of a recursion: an index may have thousands of terms
        while pending:
            last = pending.pop()
            stmt = last.stmt
            if last in self.spread:
                continue
            if stmt is None or stmt.regions or stmt.row.effect is not Effect.PURE:
                self.spread[last] = OWN
            elif stmt.row is control.TID:  # the last axis runs fastest
                self.spread[last] = ALIKE if stmt.attr.axis < self.function.rank - 1 else OWN
            elif new := [a for a in stmt.args if a not in self.spread]:
                pending += [last, *new]
            else:
                self.spread[last] = max((self.spread[a] for a in stmt.args), default=SAME)
        return self.spread[value]

    def row_for(self, stmt: Stmt) -> None:
        start, _, step = stmt.args[:3]
        self.spread[stmt.regions[0].params[0]] = max(ALIKE, self._spread(start), self._spread(step))
        super().row_for(stmt)

    def row_call(self, stmt: Stmt) -> None:
        for param, value in zip(stmt.regions[0].params, stmt.args, strict=True):
            if not isinstance(value.type, Array):
                self.spread[param] = self._spread(value)
        super().row_call(stmt)

    # -- whole vectors

    def _word(self, m: ArrayNames) -> str:
        """The words in which elements are moved, as the text wants them; empty where it is component by component."""
        type = m.type.dtype
        size = word(type) if self.variant.aligned and m.contiguous and not m.inner else 0
        if not size:
            return ""
        self.helper("wb_load", WORDS)
        return f"{numeric(type).scalar.c}, {size // numeric(type).scalar.itemsize}"

    def loaded(self, m: ArrayNames, indices: list[str]) -> str:
        words, place = self._word(m), self.place(m, indices)
        return f"wb_load<{words}>(&{place})" if words else place

    def stored(self, m: ArrayNames, indices: list[str], value: str) -> str:
        words = self._word(m)
        return f"wb_store<{words}>(&{self.place(m, indices)}, {value});" if words else super().stored(m, indices, value)

    def _increase(self, stmt: Stmt) -> None:
        """A vector that no other thread adds to."""
        m, indices, (value,) = self.target_of(stmt, 1)
        words, type = self._word(m), stmt.args[-1].type
        if m.param in self.variant.atomic or not words:
            return super().row_accumulate(stmt)
        with self._inside(stmt, m, indices):
            place = f"&{self.place(m, indices)}"
            more = self.variable(type, f"wb_load<{words}>({place})", "more")
            self.put(f"for (int32_t wb_c = 0; wb_c < {numeric(type).size}; ++wb_c) {more}.c[wb_c] += {value}.c[wb_c];")
            self.put(f"wb_store<{words}>({place}, {more});")

    # -- adding

    def row_accumulate(self, stmt: Stmt) -> None:
        self._add(stmt, "+", self._increase)

    def _atomic(self, stmt: Stmt) -> None:
        self._add(stmt, "-" if stmt.row is rows.ATOMIC_SUB else "+", super()._atomic)

    def _add(self, stmt: Stmt, sign: str, plainly: Callable[[Stmt], None]) -> None:
        m, type = self.memory[stmt.args[0]], stmt.args[-1].type
        spread = max((self._spread(i) for i in stmt.args[1:-1]), default=SAME)
        scalar = numeric(type).scalar
        if m.param not in self.variant.atomic or spread == OWN or scalar not in (float32, float64):
            return plainly(stmt)
        if not self._adds(stmt):
            return plainly(stmt)
        self.helper("wb_warp_add", WARP_SUM)
        private = self._sum(stmt, m, type) if spread == SAME else None
        m, indices, (value,) = self.target_of(stmt, 1)
        part = ".c[wb_c]" if isinstance(type, Composite) else ""
        turns = f"for (int32_t wb_c = 0; wb_c < {numeric(type).size}; ++wb_c) " if part else ""
        with self._inside(stmt, m, indices):
            place = self.place(m, indices)
            if private is None:
                minus = "-" if sign == "-" else ""
                self.put(f"{turns}wb_warp_add(&{place}{part}, {minus}{value}{part});")
            else:
                self.put(f"{private.place} = &{place};")
                self.put(f"{turns}{private.value}{part} {sign}= {value}{part};")

    def _sum(self, stmt: Stmt, m: ArrayNames, type: Type) -> Sum | None:
        """The private sum for a cell; None where it has to reach memory at once, or there are too many of them."""
        if not self.variant.restrict or m.param not in self.only_added:
            return None
        key = (m.param, m.inner, tuple(map(_known, stmt.args[1:-1])))
        if key not in self.sums:
            if sum(numeric(s.type).size for s in self.sums.values()) + numeric(type).size > _MOST_SUMS:
                return None
            self.helper(SUMMED, BLOCK_SUM)
            self.sums[key] = Sum(f"wb_place{len(self.sums)}", f"wb_sum{len(self.sums)}", type)
        return self.sums[key]

    def begin_sums(self) -> list[str]:
        """The declarations of the private sums, before the loop over cells."""
        lines = []
        for s in self.sums.values():
            name = type_name(s.type)
            lines += [f"    {name} *{s.place} = 0;", f"    {name} {s.value} = {zero(s.type)};"]
        return lines

    def end_sums(self) -> None:
        for s in self.sums.values():
            if isinstance(s.type, Composite):
                self.put("#pragma unroll")
                place = f"{s.place} ? &{s.place}->c[wb_c] : 0"
                head = f"for (int32_t wb_c = 0; wb_c < {s.type.size}; ++wb_c)"
                self.put(f"{head} {SUMMED}({place}, {s.value}.c[wb_c]);")
            else:
                self.put(f"{SUMMED}({s.place}, {s.value});")


def word(type: Type) -> int:
    """Bytes of the widest word that elements of this type are made of, if that is more than a component: 8 or 16."""
    if not isinstance(type, Composite):
        return 0
    widest = next((n for n in (16, 8) if type.itemsize % n == 0), 0)
    return widest if widest > type.scalar.itemsize else 0


def wide_pointers(function: Function, variant: Variant) -> tuple[tuple[int, int], ...]:
    """(byte offset in the argument block, alignment) of each pointer that `Variant.aligned` is about."""
    found = zip(function.params, Signature(function).offsets, strict=True)
    arrays = [(at, word(p.type.dtype)) for p, at in found if isinstance(p.type, Array) and p.name in variant.contiguous]
    return tuple((at, width) for at, width in arrays if width)


def _known(index: Value) -> object:
    """A key that is equal for indices which are one number in the text."""
    return index.stmt.attr if index.stmt is not None and index.stmt.row is control.CONST else index


def text(function: Function, variant: Variant = PLAIN) -> str:
    """The whole CUDA text; its entry is `NAME(const NAME_args args)`, the packed block by value."""
    if function.processor_only is not None:
        text = "this func_native says something else for CUDA than for a processor"
        why = "The side of a processor was read: one thread at a time."
        instead = 'device="cpu", or a func without `#if defined(__CUDA_ARCH__)`'
        raise KernelError(text, slug="native-snippet", where=function.processor_only, why=why, instead=instead)
    signature = Signature(function, divided=variant.index32 and function.rank > 1)
    if has_tiles(list(walk(function.body))):
        return _tiled(function, variant, signature)
    if variant.inner is not None:
        return _boxed(function, variant)
    body = GpuThread(function, variant, signature, update, "int32_t" if variant.index32 else "int64_t")
    count = _begin(body)
    start = len(body.lines)
    with body.block(f"for ({count} wb_thread = wb_worker; wb_thread < wb_total; wb_thread += wb_workers)"):
        _axes(body)
        body.region(function.body)
    body.lines[start:start] = body.begin_sums()
    body.end_sums()
    return "\n".join([*_top([body], signature), *_entry(signature, body)])


def _boxed(function: Function, variant: Variant) -> str:
    """The text with a second body, without its tests, for the cells of a box; around it nothing is done if `alone`.

    Neither body can fail, nor shares a cell with another thread.
    """
    signature = Signature(function, boxed=True, divided=variant.index32 and function.rank > 1)
    rank, count = function.rank, _count(variant)
    at, dims = [f"wb_at{k}" for k in range(rank)], [f"wb_dim{k}" for k in range(rank)]
    inside = " && ".join(f"wb_within({at[k]}, args.wb_box[{2 * k}], args.wb_box[{2 * k + 1}])" for k in range(rank))
    assert variant.inner is not None
    bodies = [_cell(variant.inner, variant, at)]
    bodies += [] if variant.alone else [_cell(function, variant, at)]
    lines = _pointers(bodies[-1])
    lines += [f"    const int32_t {d} = (int32_t)args.dim[{k}];" for k, d in enumerate(dims)]
    lines += [
        f"    const {count} wb_workers = ({count})gridDim.x * blockDim.x;",
        f"    const {count} wb_total = {' * '.join([f'({count})1', *dims])};",
        f"    {count} wb_thread = ({count})blockIdx.x * blockDim.x + threadIdx.x;",
        "    for (; wb_thread < wb_total; wb_thread += wb_workers) {",
        *[f"        {line}" for line in _places(at, dims, count, signature.divided)],
        f"        if ({inside}) {{",
        *bodies[0].used_lines(),
        "        }",
    ]
    if not variant.alone:
        lines += ["        else {", *bodies[1].used_lines(), "        }"]
    name = signature.name
    entry = [f'extern "C" __global__ void {name}(const {name}_args args) {{', *lines, "    }", "}", ""]
    return "\n".join([*_top(bodies, signature, [WITHIN]), *entry])


def _begin(body: Body) -> str:
    """Emit the lines before the loop over cells; returns the C type that counts those."""
    body.lines += _pointers(body)
    body.unpack("args.")
    if body.fails:
        body.put("int64_t *status = args.status;")
    count = _count(body.variant)
    body.put(f"const {count} wb_workers = ({count})gridDim.x * blockDim.x;")
    body.put(f"const {count} wb_worker = ({count})blockIdx.x * blockDim.x + threadIdx.x;")
    body.put(f"const {count} wb_total = {' * '.join([f'({count})1', *body.dims])};")
    if body.grows or body.logs:
        body.put("wb_bytes wb_stack = {0, 0, 0, args.scratch_bytes / wb_workers / 8 * 8, false};")
        body.put("wb_stack.base = (char *)args.scratch + wb_worker * wb_stack.capacity;")
    return count


def _pointers(body: Body) -> list[str]:
    return [f"    {declared} = {argument.replace('->', '.')};" for declared, argument in body.pointer_parameters()]


def _cell(function: Function, variant: Variant, at: list[str]) -> GpuThread:
    """The statements of one thread for the grid cell with these coordinates, in a C scope of their own."""
    body = GpuThread(
        function, variant, Signature(function, boxed=True), update, "int32_t" if variant.index32 else "int64_t"
    )
    body.depth = 3
    body.unpack("args.")
    for axis, place in zip(body.axes, at, strict=True):
        body.put(f"const int32_t {axis} = {place};")
    body.region(function.body)
    return body


def _tiled(function: Function, variant: Variant, signature: Signature) -> str:
    """The text where a block of threads is one thread of the program."""
    names = frozenset(p.name for p in function.arrays if numeric(type_as(p, Array).dtype).scalar.bits > 8)
    shared = replace(variant, atomic=names)  # the threads of a block may meet in a cell
    body = cuda_tiles.ThreadBlock(function, shared, signature, update, "int32_t" if variant.index32 else "int64_t")
    count = _begin(body)
    with body.block(f"for ({count} wb_thread = blockIdx.x; wb_thread < wb_total; wb_thread += gridDim.x)"):
        _axes(body)
        body.region(function.body)
        body.put_sync()
    declaration = f"extern __shared__ __align__(16) char {cuda_tiles.SHARED}[]; "
    says = f"{declaration}/* {cuda_tiles.SHARED}: {body.shared_bytes} bytes */"
    return "\n".join([*_top([body], signature, [*cuda_tiles.HELPERS, says]), *_entry(signature, body)])


def _count(variant: Variant) -> str:
    """The C type that counts cells. Fewer than 2**31 cells and at most 2**31 threads: 32 bits never wrap around."""
    return "uint32_t" if variant.index32 else "int64_t"


def _axes(body: Body) -> None:
    """The thread's place in the grid."""
    for line in _places(body.axes, body.dims, _count(body.variant), body.signature.divided):
        body.put(line)
    if body.grows or body.logs:
        body.put("wb_stack.top = wb_stack.log = 0;")


def _places(axes: list[str], dims: list[str], count: str, divided: bool) -> list[str]:
    """The place in the grid of the linear index `wb_thread`: the last axis runs fastest.

    No GPU has an instruction that divides integers: 32-bit indices are multiplied by the reciprocals of the launch.
    """
    lines, rest = [], "wb_thread"
    for k in reversed(range(1, len(axes))):
        outer = f"wb_rest{k}"
        over = f"wb_over({rest}, args.wb_divisor[{k}])" if divided else f"{rest} / ({count}){dims[k]}"
        lines.append(f"const {count} {outer} = {over};")
        lines.append(f"const int32_t {axes[k]} = (int32_t)({rest} - {outer} * {dims[k]});")
        rest = outer
    return [*lines, f"const int32_t {axes[0]} = (int32_t){rest};"]


def _top(bodies: list[GpuThread] | list[Body], signature: Signature, more: list[str] | None = None) -> list[str]:
    helpers = dict.fromkeys(text for body in bodies for text in body.helpers.values())
    types = dict.fromkeys(typedef(t) for body in bodies for t in composites(body.function))
    code = "\n".join([*(line for body in bodies for line in body.lines), *helpers])
    lines = [TYPES]
    if float16.c in code + signature.c_declaration + "".join(types):
        lines.append(HALF)
    lines += [TURNS, prelude(code, TYPES)]
    if any(body.fails for body in bodies):
        lines.append(CHECKS)
    if any(body.grows or body.logs for body in bodies):
        lines.append(STACK)
    lines += [OVER] * signature.divided + (more or [])
    return [*lines, *types, *helpers, signature.c_declaration, ""]


def _entry(signature: Signature, body: Body) -> list[str]:
    name = signature.name
    return [f'extern "C" __global__ void {name}(const {name}_args args) {{', *body.used_lines(), "}", ""]

"""Executables: one function for one variant on one backend, and how each backend runs it."""

from __future__ import annotations

import math
import struct
from array import array as words
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import capture_log
from ..arrays.array import array, block_of
from ..config import config
from ..device import catch_up, get_device, let_follow, on_host, reports, xp
from ..display import BAR_AFTER_S, ProgressBar
from ..errors import GradientError, WorkbenchError, outside
from ..kernels.analysis import launch_form as cost, launch_ranges
from ..kernels.analysis.accesses import relevant_scalars
from ..kernels.analysis.launch_form import LaunchForm
from ..kernels.analysis.thread_conflicts import private
from ..kernels.compile import c_library, thread_pool
from ..kernels.emit.signature import (
    BOUNDS,
    MAX_RANK,
    NOTED,
    STATUS_WORDS,
    Signature,
    Variant,
    access_table,
    accesses,
    claims,
    conventions,
    divisors,
    needs_scratch,
    to_check,
)
from ..kernels.emit.tiles import has_tiles
from ..kernels.ir import Function, Stmt, root, used, walk
from ..kernels.ops import memory as rows
from ..kernels.passes import simplify
from ..kernels.passes.index_tests import index_tests
from ..kernels.program import Program
from ..kernels.recursion import recursive
from ..kernels.types import Array, Composite, Scalar
from . import thresholds

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..kernels.interpreter.lanes import LaneProgram

SCRATCH_BYTES = 256 << 20  # memory of a GPU for the loop values of the threads that run at once
SCRATCH_THREADS = 1 << 16
WORTH = 0.5  # the most that clearing and adding up copies may cost, as a part of the work of the launch
_SLICE, _ADDRESS = struct.Struct("=QQqq"), struct.Struct("=Q")
_ALIGNED = 64


@dataclass(eq=False)
class Executable:
    """One function, ready to run for launches of one form, in one variant of its text."""

    program: Program
    function: Function
    form: LaunchForm
    variant: Variant
    workers: int = 1
    contested: frozenset[str] = frozenset()  # arrays in which two threads may add to one element; see `executable_for`
    private_sums: Shares | None = None
    box: tuple[int, ...] = ()  # first and one-past-last thread per dimension that `variant.inner` runs
    one_thread: bool = False  # on a GPU: one thread runs all threads of the launch, in order
    slices: int = 1  # calls, one after the other, between which Python sees signals: of launches that take seconds
    hurry: bool = False  # launches are so short that unoptimised code will do at first
    chunks_per_worker: int = 1  # per worker: those who finish first take pieces of others (work stealing)
    signature: Signature = field(init=False)
    pool_code: int = field(init=False)  # workers and pieces, as the pool takes them
    call: Any = field(init=False, default=None)
    native_call: Any = field(init=False, default=None)  # (packed, begin, end), where a launch is nothing but this call
    noted: int = field(init=False, default=0)  # bits of conventions that were met and not asked for yet

    def __post_init__(self) -> None:
        self.signature = Signature(self.function, boxed=bool(self.box))
        self.pool_code = thread_pool.team(self.workers, self.chunks_per_worker)

    def run(self, values: list, views: Callable[[], list] | None, rows: tuple[int, int] | None = None) -> None:
        """Run it. `values`: flat, as `Signature.pack` takes them; `views()`: NumPy views, for the interpreter.

        `rows`: (first, one past the last) along the first launch dimension; C backend only.
        """
        dims = self.form.dims
        if 0 in dims:
            return
        if self.native_call is not None and self.private_sums is None and rows is None and capture_log.opened is None:
            packed = self.packed(values)
            if capture_log.written_list is not None and not self.can_fail:
                self.call.optimise()
                capture_log.written_list.native(self.call.address, packed, 0, dims[0], self.pool_code)
            elif capture_log.written_list is not None:
                capture_log.written_list.whole = False
            self.native_call(packed, 0, dims[0])
            return
        if capture_log.written_list is not None and (self.private_sums is None or self.can_fail or self.slices > 1):
            capture_log.written_list.whole = False
        noted = capture_log.opened is not None and capture_log.check()
        if self.form.backend == "numpy":
            assert views is not None
            arrays = views()
            capture_log.do(lambda: self._note(recursive(self.together.run)(arrays)))
            return
        call = self.call or self._compile()
        if self.form.backend == "cuda":
            self._run_cuda(values)
            return
        begin, end = rows or (0, dims[0])
        packed = self.packed(values)
        cuts = 1 if noted else min(self.slices, end - begin)
        for k in range(cuts):
            part = begin + (end - begin) * k // cuts, begin + (end - begin) * (k + 1) // cuts
            if self.private_sums is not None:
                self.private_sums.run(self, packed, part)
            elif noted:
                call.optimise()
                capture_log.native(call.address, packed, *part, self.pool_code)
            else:
                call(packed, *part, self.pool_code)
        if self.can_fail:
            if noted:
                self._watch(self.status)
            self._look(self.status)

    # ---- conventions

    @cached_property
    def conventions(self) -> dict[int, Stmt]:
        """The statements that note that a slope is a convention, by their bit."""
        return {1 << min(s.attr.number, 31): s for s in conventions(walk(self.function.body))}

    def _note(self, met: Iterable[Stmt]) -> None:
        for stmt in met:
            self.noted |= 1 << min(stmt.attr.number, 31)

    def met(self) -> list[Stmt]:
        """The conventions that launches have met since this was called last."""
        if not self.conventions:
            return []
        words = self.device_status if self.form.backend == "cuda" else self.status
        bits, self.noted = self.noted | int(words[NOTED]), 0
        words[NOTED] = 0
        return [stmt for bit, stmt in self.conventions.items() if bits & bit]

    @cached_property
    def together(self) -> LaneProgram:
        """The vectorised form for the interpreter."""
        from ..kernels.analysis import thread_conflicts
        from ..kernels.interpreter.lanes import LaneProgram

        return LaneProgram(self.function, self.form.dims, thread_conflicts.uses(self.function, self.form))

    def packed(self, values: list) -> bytes:
        """The block of arguments for `native_call`."""
        return self.signature.pack(self.form.dims, [*values, *self.box] if self.box else values, self.record)

    @cached_property
    def _ends(self) -> tuple[bytes, bytes]:
        """The bytes before and behind the arguments in their block."""
        count = self.signature.count
        whole = self.packed([0] * count)
        return whole[: 8 * MAX_RANK], whole[8 * (MAX_RANK + count) :]

    def joined(self, arrays: Sequence[array]) -> bytes:
        """`packed` for arguments that are all arrays."""
        head, tail = self._ends
        return b"".join((head, *map(block_of, arrays), tail))

    def _compile(self) -> Any:
        wanted = self.function, self.form.backend, self.variant, wait_with_bar, self.hurry
        made = self.call = self.program.executable(*wanted)
        if isinstance(made, c_library.Compiled) and self.slices == 1 and 0 not in self.form.dims:
            alone = self.pool_code == 1 and not made.asks
            self.native_call = (
                made.call if alone else lambda packed, begin, end: made(packed, begin, end, self.pool_code)
            )
            if (sums := self.private_sums) is not None:
                self.native_call = lambda packed, *rows: sums.run(self, packed, rows)
            if self.can_fail:
                self.native_call = self._looking(self.native_call)
            if made.optimised is not None:
                self.native_call = self._counting(made, self.native_call)
        return made

    def _counting(
        self, made: c_library.Compiled, call: Callable[[bytes, int, int], None]
    ) -> Callable[[bytes, int, int], None]:
        """The same call, which has the code optimised when it has run so often that this pays."""

        def counted(packed: bytes, begin: int, end: int) -> None:
            made.ran += 1
            if made.ran >= thresholds.OPTIMISED_FROM:
                made.optimise()
                self.native_call = call
            call(packed, begin, end)

        return counted

    def _looking(self, call: Callable[[bytes, int, int], None]) -> Callable[[bytes, int, int], None]:
        """The same call, after which a failure is raised."""
        status = self.status

        def looked(packed: bytes, begin: int, end: int) -> None:
            call(packed, begin, end)
            if status[0]:
                self._look(status)

        return looked

    def _look(self, status: MutableSequence[int]) -> None:
        """Raise the error that the code has reported in `status`, if any, and clear it."""
        record = on_host(status)
        if record[0]:
            found, status[0] = [int(n) for n in record], 0
            self.fail(found)

    @cached_property
    def status(self) -> words:
        """The error record of launches on a processor, one after the other, as they run under one lock."""
        return words("q", bytes(8 * STATUS_WORDS))

    @cached_property
    def record(self) -> int:
        """The address of `status` (of `device_status`); 0 where nothing can fail, or be noted."""
        if not (self.can_fail or self.conventions):
            return 0
        return int(self.device_status.data.ptr) if self.form.backend == "cuda" else self.status.buffer_info()[0]

    def _watch(self, status: MutableSequence[int]) -> None:
        """Make every replay of the open capture check this launch's error record at its end."""

        def look() -> WorkbenchError | None:
            try:
                self._look(status)
            except WorkbenchError as error:
                return error
            return None

        capture_log.keep(status)
        notes = capture_log.active_capture()
        assert notes is not None
        notes.checks.append(look)

    def _run_cuda(self, values: list) -> None:
        """Queue on CuPy's current stream, in order with torch's.

        An index outside its array is reported when somebody waits for the device; only what would spoil a gradient is
        waited for here. In a capture only the launch itself is repeated; error records of a replay are checked after
        it.
        """
        device = get_device("cuda")
        cupy, notes = xp(device), capture_log.active_capture()
        status = None
        if self.can_fail:
            status = self.device_status if notes is None else cupy.zeros(STATUS_WORDS, np.int64)
        scratch = _scratch(cupy, notes) if needs_scratch(self.function) else None
        record = self.record if status is None else int(status.data.ptr)
        room = (0, 0) if scratch is None else (int(scratch.data.ptr), SCRATCH_BYTES)
        packed = self.signature.pack(self.form.dims, [*values, *self.box], record, *room) + divisors(self.form.dims)
        size = {"most_threads": 2**31 if scratch is None else SCRATCH_THREADS}
        if self.one_thread:
            size = {"most_threads": 1, "block": 1}

        def launch() -> None:
            if notes is not None and status is not None:
                status.fill(0)
            self.call.launch(packed, math.prod(self.form.dims), cupy.cuda.get_current_stream().ptr, **size)

        catch_up(device)
        capture_log.do(launch, device.ordinal)
        let_follow(device)
        if status is None:
            return
        if notes is not None:
            self._watch(status)
        if notes is None and not self.waits:
            reports[self] = partial(self._look, status)
        else:
            self._look(status)

    @cached_property
    def device_status(self) -> Any:
        """The error record of launches on a GPU: int64 of CuPy, shape (STATUS_WORDS,)."""
        return xp(get_device("cuda")).zeros(STATUS_WORDS, np.int64)

    @cached_property
    def waits(self) -> bool:
        """True if a failure must be known before anything else runs: a claim, or scratch memory of an adjoint."""
        return needs_scratch(self.function) or claims(walk(self.function.body))

    @cached_property
    def can_fail(self) -> bool:
        """True if the code may write an error record: it checks bounds or claims, or may run out of scratch memory."""
        return bool(self.variant.checked) or self.waits

    def fail(self, status: list[int]) -> None:
        """Raise the error of an error record: [code, access, thread, number of indices, indices, extents]."""
        code, access, thread, n = status[:4]
        where, name, _, wrapped, claim = access_table(self.function)[access]
        if claim is not None:
            raise claim.error(self.function.name, where, thread)
        if code == BOUNDS:
            shape = tuple(status[10 : 10 + n])
            given = [i - m if i < 0 and wraps else i for i, m, wraps in zip(status[4:], shape, wrapped, strict=False)]
            at = tuple(int(k) for k in np.unravel_index(thread, self.form.dims))
            raise outside(self.function.name, name, at, tuple(given), shape, where)
        text = f"Kernel {self.function.name!r} ran out of the memory in which its reverse pass keeps loop values."
        why, instead = "A gradient from what is left would be wrong.", "several launches of fewer turns each"
        raise GradientError(text, slug="stack-full", where=where, why=why, instead=instead)


def wait_with_bar(coming: Future) -> Any:
    """Wait for what is being compiled, with a progress bar where that takes long."""
    from concurrent.futures import as_completed, wait

    compiling = c_library.coming()
    with ProgressBar(len(compiling), "compiling kernels") as bar:
        if not wait([coming], BAR_AFTER_S).done:
            bar.update(0)
            for _ in as_completed(compiling):
                bar.update()
    return coming.result()


def _scratch(cupy: ModuleType, notes: capture_log.CaptureRecorder | None) -> Any:
    """A uint8 CuPy array for the loop values of one launch. All launches of a capture share one."""
    if notes is None:
        return cupy.empty(SCRATCH_BYTES, np.uint8)
    if notes.scratch is None:
        notes.scratch = cupy.empty(SCRATCH_BYTES, np.uint8)
    return notes.scratch


def executable_for(program: Program, function: Function, form: LaunchForm, ordered: bool = False) -> Executable:
    """Choose code variant and workers for launches of this form: parallel only if no two threads update one address.

    `ordered`: run the threads serially, in their order, even where nothing in the function asks for it: a rerun
    repeats atomics as plain updates of one copy.
    """
    stmts = list(walk(function.body))
    ordered = ordered or any(s.row in rows.ATOMICS and s.outs[0] in used(function.body) for s in stmts)
    cells = math.prod(form.dims)
    work = cells * cost.work(function, form) if form.backend == "c" and not ordered else 0
    most = cells * cost.work(function, form, math.inf) if form.backend == "c" else math.inf
    hurry = most < thresholds.HURRIED_BELOW * max(1, len(stmts) / thresholds.LONG_TEXT) and not has_tiles(stmts)
    wide = work >= thresholds.PARALLEL_FROM and config.threads > 1
    asked = form.backend == "cuda" or (form.backend == "c" and (wide or thresholds.large(cells)))
    added = {root_name(s) for s in stmts if s.row is rows.ACCUMULATE or s.row in rows.ATOMICS} if asked else ()
    contested = frozenset(n for n in added if n in form.shared or not private(function, n, form))  # of two threads
    changed = {root_name(s) for s in stmts if s.row.writes}
    mixed = bool(changed & form.shared)  # does it write to memory that goes by several names here
    cut = None
    if wide and contested:
        if work >= thresholds.SUMS_FROM and not (mixed or config.deterministic):
            cut = shares(function, contested, form, config.threads, work)
        wide = False
    tested = form.checked and form.backend != "numpy"  # the interpreter tests every index
    variant = Variant(
        contiguous=form.contiguous,
        restrict=not mixed,
        checked=to_check(function, launch_ranges.inside(function, form)) if tested else frozenset(),
        atomic=contested if form.backend == "cuda" else frozenset(),
        index32=form.index32,
        many=work >= thresholds.MANY_FROM,
    )
    pieces = thread_pool.PIECES if work >= thresholds.LONG_FROM else int(work >= thresholds.WAKE_FROM)
    workers = config.threads if wide else 1
    slices = max(1, int(work // thresholds.SLICE))
    made = Executable(
        program, function, form, variant, workers, contested, cut, chunks_per_worker=pieces, slices=slices, hurry=hurry
    )
    may = variant.many and variant.restrict and form.index32 and not program.moving_positions
    return made if (may and _tested_before(made)) or ordered else _without_tests(made)


def _without_tests(made: Executable) -> Executable:
    """`made` with a second loop body without border tests for interior threads (loop peeling), where that pays."""
    form, program = made.form, made.program
    if form.backend == "numpy" or made.can_fail or made.contested or not thresholds.large(math.prod(form.dims)):
        return made
    if form.backend == "cuda" and has_tiles(list(walk(made.function.body))):
        return made
    names = {leaf.name for leaf in program.leaves}
    numbers = {*(program.leaves[k].name for k in program.index_positions), *(n for n in form.scalars if n not in names)}
    found = launch_ranges.interior(made.function, form, numbers)
    if found is None:
        return made
    if form.backend == "cuda" and found.whole:
        return made  # the box has as many tests as the text, and nothing there is vectorised
    inner = program.once(simplify.assume, made.function, found.taken)
    variant = replace(made.variant, inner=inner, alone=found.whole)
    ends = tuple(e for pair in found.box for e in pair)
    return replace(made, variant=variant, box=ends)


def _tested_before(made: Executable) -> bool:
    """Test many threads of `made` at once before they run, where there is a function for it; False if others may help.

    What is proven inside with loops written out is not tested: by numbers that plans differ in, and no others.
    """
    program, tested = made.program, list[Stmt]()
    function, checked = program.once(simplify.unrolled, made.function), bool(made.variant.checked)
    if checked:
        if not {program.leaves[k].name for k in program.index_positions}.issuperset(relevant_scalars(function)):
            return True
        stmts = accesses(walk(function.body))
        tested = [stmts[k] for k in to_check(function, launch_ranges.inside(function, made.form))]
        made.variant = made.variant if tested else replace(made.variant, checked=frozenset())
    tests = program.once(index_tests, function, frozenset(tested))
    made.variant = replace(made.variant, tests=tests)
    return checked or tests is not None


def root_name(stmt: Stmt) -> str:
    """The name of the parameter that a memory statement touches."""
    return root(stmt.args[0]).name


# ---- private sums: launches whose threads add to the same cells, cut among workers that add to memory of their own
# Worker 0 adds to the array itself, every other one to a copy that holds zeros between launches; the copies are added
# up at the end, in order, and cleared. The cut is fixed, so a run is repeated bit for bit as long as the number of
# workers stays.


@dataclass(frozen=True)
class Target:
    """An array that several workers add to. `parameter`: which of the function's; `offset`: in a worker's memory."""

    parameter: int
    offset: int
    count: int
    dtype: Any


@dataclass(eq=False)
class Shares:
    """Division of a launch among workers: targets, bytes of a private copy, and copies (`room`), made on first use."""

    targets: tuple[Target, ...]
    nbytes: int
    workers: int
    room: list[np.ndarray] = field(default_factory=list)
    broken: bool = False  # a launch was interrupted before its copies were cleared

    def run(self, executable: Any, packed: bytes, rows: tuple) -> None:
        """Run `executable` on the rows [first, last) of the first launch dimension; `packed`: its arguments."""
        while len(self.room) < self.workers - 1:
            self.room.append(np.zeros(self.nbytes, np.uint8))
        self.begin()
        places = [executable.signature.offsets[t.parameter] for t in self.targets]
        blocks, slices = [], b""
        first, last = rows
        for k in range(self.workers):
            block, at = capture_log.block_of(packed)
            for t, place in zip(self.targets, places, strict=True) if k else ():
                _ADDRESS.pack_into(block, place, capture_log.address(self.room[k - 1]) + t.offset)
            blocks.append((block, at))
            begin, end = (first + (last - first) * n // self.workers for n in (k, k + 1))
            slices += _SLICE.pack(executable.call.address, at, begin, end)
        if capture_log.opened is not None:
            capture_log.keep(blocks, self.room)
        if capture_log.written_list is not None:
            capture_log.written_list.share(self, blocks, self.room)
        try:
            capture_log.native(
                thread_pool.kernel_address("wb_slices"), slices, 0, self.workers, thread_pool.team(self.workers)
            )
            for t, place in zip(self.targets, places, strict=True):
                (to,) = _ADDRESS.unpack_from(packed, place)
                for mine in self.room:
                    end = t.offset + t.count * t.dtype.itemsize
                    capture_log.merge(to, t.dtype, mine[t.offset : end])
            self.broken = False
        finally:
            if self.broken:
                self._clear()  # now, as a capture that uses this memory too does not look

    def begin(self) -> None:
        """Call before using the copies: zeroes them if the last run broke off. Set `broken` to False when added up."""
        if self.broken:
            self._clear()
        self.broken = True

    def _clear(self) -> None:
        for mine in self.room:
            mine.fill(0)


def shares(function: Function, contested: frozenset[str], form: LaunchForm, workers: int, work: float) -> Shares | None:
    """The cut of a launch whose sums are contiguous, float32 or float64 and only added to; None if it does not pay."""
    if not contested <= form.contiguous or not _only_added(function, contested):
        return None
    targets, at = [], 0
    for k, p in enumerate(function.params):
        type = p.type
        if isinstance(type, Array) and p.name in contested:
            if not isinstance(type.dtype, Scalar | Composite):
                return None
            scalar = type.dtype.scalar
            if scalar.kind != "f" or scalar.bits == 16:
                return None
            count = int(np.prod(form.shapes[p.name])) * type.dtype.size
            targets.append(Target(k, at, count, scalar.numpy))
            at += -(-count * scalar.numpy.itemsize // _ALIGNED) * _ALIGNED
    copied = 2 * (workers - 1) * sum(t.count for t in targets)  # read and added, where there is anything
    if len(targets) != len(contested) or copied > WORTH * work:
        return None
    return Shares(tuple(targets), at, workers)


def _only_added(function: Function, names: frozenset[str]) -> bool:
    for s in walk(function.body):
        touched = [a for a in s.args if isinstance(a.type, Array) and root(a).name in names]
        if touched and s.row not in (rows.ACCUMULATE, rows.ATOMIC_ADD, rows.ATOMIC_SUB, rows.COMPONENTS, rows.SHAPE):
            return False
    return True

"""Two runs of one program: `tape.diagnose(against=other)` tells the first launch, array and numbers at which they part.

Both tapes run again with everything kept, and what each event read and wrote is compared in program order. Events go
by kind, label and call site: what both have in common is a longest common subsequence, found by the greedy algorithm
of Myers (1986). Memory goes by the names that the user gave, then by the order in which both tapes meet it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..device import on_host
from ..errors import KernelError, LaunchError, Where, WorkbenchError
from ..kernels import ir
from ..kernels.interpreter.run import LiveValues
from ..kernels.types import Struct
from ..tapes.events import Event
from ..tapes.jvp import passing
from ..tapes.replay import keep_all
from ..tapes.rerun import Enough, is_number, run_primal
from ..tapes.tape import Tape
from .finding import Finding, Findings
from .walk_step import EventAccess, accesses, written_names

ROUNDING = 32  # units in the last place of the largest number: the order of a sum is no difference
EDITS = 300  # events that may be lacking in the midst of two tapes; what differs more is not laid side by side
Pair = tuple[int, int]


def aligned(tape: Tape, other: Tape) -> list[Pair]:
    """The pairs (event of `tape`, event of `other`) that are the same step of both programs, by position, in order.

    A kernel that only one of them has counts as the same as what stands in its place in the other."""
    if tape is other:
        return [(n, n) for n in range(len(tape.events))]
    kinds = [[e.kind for e in t.events] for t in (tape, other)]
    sites = [[(e.where.file, e.where.line) if e.where else None for e in t.events] for t in (tape, other)]
    shared = set(sites[0]) & set(sites[1])  # a call site tells only where both tapes have events from there
    ours, theirs = (
        [(e.kind, e.label, site if site in shared else None) for e, site in zip(t.events, at, strict=True)]
        for t, at in ((tape, sites[0]), (other, sites[1]))
    )
    known = [{key[1] for key in keys} for keys in (ours, theirs)]
    pairs, i, j = [], 0, 0
    for n, m in [*_common(ours, theirs), (len(ours), len(theirs))]:
        if n - i == m - j and kinds[0][i:n] == kinds[1][j:m]:  # as many of each kind: renamed
            places = zip(range(i, n), range(j, m), strict=True)
            labels = ((a, b, ours[a][1], theirs[b][1]) for a, b in places)
            pairs += [(a, b) for a, b, x, y in labels if x == y or x not in known[1] or y not in known[0]]
        if n < len(ours):
            pairs.append((n, m))
        i, j = n + 1, m + 1
    return pairs


def _common(ours: Sequence[Any], theirs: Sequence[Any]) -> list[Pair]:
    """A longest common subsequence as pairs of positions; only common ends if the middle differs too much."""
    most = min(len(ours), len(theirs))
    head = next((k for k in range(most) if ours[k] != theirs[k]), most)
    tail = next((k for k in range(most - head) if ours[-1 - k] != theirs[-1 - k]), most - head)
    n, m = len(ours) - tail, len(theirs) - tail
    middle = _myers(ours[head:n], theirs[head:m])
    ends = zip(range(n, len(ours)), range(m, len(theirs)), strict=True)
    return [*((k, k) for k in range(head)), *((head + i, head + j) for i, j in middle), *ends]


def _myers(a: Sequence[Any], b: Sequence[Any]) -> list[Pair]:
    """E. W. Myers, An O(ND) difference algorithm and its variations, Algorithmica 1 (1986)."""
    reach: dict[int, tuple[int, tuple]] = {1: (0, ())}  # by x - y: the farthest x, and its last pair with those before
    for d in range(min(len(a) + len(b), EDITS) + 1):
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and reach[k - 1][0] < reach[k + 1][0])
            x, path = reach[k + 1] if down else (reach[k - 1][0] + 1, reach[k - 1][1])
            while x < len(a) and 0 <= x - k < len(b) and a[x] == b[x - k]:
                x, path = x + 1, ((x, x - k), path)
            reach[k] = x, path
            if x >= len(a) and x - k >= len(b):
                pairs = []
                while path:
                    pair, path = path
                    pairs.append(pair)
                return pairs[::-1]
    return []


def memories(tape: Tape, other: Tape, pairs: Sequence[Pair]) -> dict[Allocation, Allocation]:
    """{allocation of `other`: the corresponding allocation of `tape`}, without those that have none."""
    if tape is other:
        return {a: a for a in {a.allocation for a in tape.arrays.values()}}
    found: dict[Allocation, Allocation] = {}
    taken: set[Allocation] = set()
    steps = ((accesses(other, other.events[m]), accesses(tape, tape.events[n])) for n, m in pairs)
    met = ((b.span.allocation, a.span.allocation) for step in steps for b, a in zip(*step, strict=False))
    for theirs, ours in (*_by_name(tape, other), *met):
        if theirs not in found and ours not in taken:
            found[theirs] = ours
            taken.add(ours)
    return found


def _by_name(tape: Tape, other: Tape) -> Iterator[tuple[Allocation, Allocation]]:
    """Pairs of allocations with the same name: the whole name first, then its part after the last dot."""
    for whole in (True, False):
        ours, theirs = _names(tape, whole), _names(other, whole)
        for name, a in theirs.items():
            if a is not None and (b := ours.get(name)) is not None:
                yield a, b


def _names(tape: Tape, whole: bool) -> dict[str, Allocation | None]:
    """{name: its allocation}, None for a name that several have."""
    found: dict[str, Allocation | None] = {}
    for a in tape.arrays.values():
        name = tape.names.given(a)
        name = name if whole else name.rpartition(".")[2]
        if name:
            found[name] = a.allocation if found.get(name, a.allocation) is a.allocation else None
    return found


@dataclass(frozen=True)
class FirstDifference:
    """The first place where two arrays differ by more than rounding, how many do, and `most`, the largest difference.

    `most` is NaN if a difference is."""

    index: tuple[int, ...]
    here: float
    there: float
    count: int
    most: float


def first_difference(a: np.ndarray, b: np.ndarray) -> FirstDifference | None:
    """The first difference of two arrays of one shape beyond rounding in the coarser type; None if there is none."""
    if a.dtype == b.dtype and np.array_equal(a, b):
        return None
    differ = a != b
    floats = [x.dtype for x in (a, b) if x.dtype.kind == "f"]
    wide, wider = a.astype(float), b.astype(float)
    if floats:
        eps = max(float(np.finfo(kind).eps) for kind in floats)
        size = max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in (wide, wider))
        with np.errstate(invalid="ignore"):
            near = np.abs(wide - wider) <= ROUNDING * eps * size
        differ &= ~near & ~(np.isnan(wide) & np.isnan(wider))
    if not differ.any():
        return None
    at = tuple(int(i) for i in np.argwhere(differ)[0])
    with np.errstate(invalid="ignore"):
        most = float(np.abs(wide[differ] - wider[differ]).max())
    return FirstDifference(at, float(a[at]), float(b[at]), int(differ.sum()), most)


# ---- the first difference


MUCH = 1 << 28  # bytes of values that are held of one run
FIX = "make both the same here; what comes later follows from it"


@dataclass
class TapeRun:
    """One of the two tapes. `values[n]`: copies of what event n read and wrote, as far as memory allowed."""

    tape: Tape
    values: list[tuple[list[Any], list[Any]]]
    why: str = ""  # why there are no values
    again: Tape | None = None  # the same program with everything kept

    def __post_init__(self) -> None:
        self.met: dict[Any, int] = {}  # memories are numbered as they appear
        self.accesses = [accesses(self.tape, event) for event in self.tape.events]
        for found in self.accesses:
            for x in found:
                self.met.setdefault(x.span.allocation, len(self.met))


def against(tape: Tape, other: Tape, runs: tuple[TapeRun, TapeRun] | None = None) -> Findings:
    """The first difference between two runs of one program: one finding, `parted`, or none; `note`: how far both agree.

    runs    the results of `run_of` for both, if there are any already.
    Numbers that differ by rounding do not count. Raises LaunchError [against] if `other` is no tape.
    """
    if not isinstance(other, Tape):
        text = f"diagnose(against=...) takes a tape, not a {type(other).__name__}."
        raise LaunchError(text, slug="against", instead="tape.diagnose(against=other_tape)")
    other.names.guess()
    here, there = runs or (run_of(tape), run_of(other))
    both = min(len(tape.events), len(other.events))
    pairs = aligned(tape, other)
    same = next((k for k, pair in enumerate(pairs) if pair != (k, k)), len(pairs))
    for n in range(same):
        found = _parted(n, here, there)
        if found is not None:
            return Findings([found], len(tape.events))
    if same < max(len(tape.events), len(other.events)):
        return Findings([_lacking(same, tape, other)], len(tape.events))
    quiet = [f for n in range(both) if (f := _finding(n, here, there, "", ())) is not None]
    why = here.why or there.why
    note = f"Numbers were not compared: {why}." if why else "Both runs wrote the same."
    return Findings(quiet[:1], len(tape.events), note)


def run_of(tape: Tape) -> TapeRun:
    """The values that every event of a tape read and wrote, from running it again with everything kept."""
    held = TapeRun(tape, [])
    try:
        whole = tape.keep == "all" and not any(e.kind.calls_back for e in tape.events)
        again = held.again = tape if whole else keep_all(tape)
        room = MUCH

        def values(event: Event, writes: bool) -> list[Any]:
            nonlocal room
            found = [on_host(x.span.words()).copy() for x in accesses(again, event) if x.writes == writes]
            room -= sum(v.nbytes for v in found)
            return found if room >= 0 else []

        def before(event: Event, _: object) -> None:
            held.values.append((values(event, False), []))

        def behind(event: Event) -> None:
            held.values[-1][1].extend(values(event, True))

        passing(again, before, behind)
        if len(held.values) != len(tape.events):
            held.values, held.why = [], "memory was written by others while they were recorded"
        if room < 0:
            held.values, held.why = [], "the runs hold too much memory"
    except (WorkbenchError, KernelError) as error:
        held.values, held.why = [], str(getattr(error, "what", error)).rstrip(".")
    return held


def _lacking(n: int, tape: Tape, other: Tape) -> Finding:
    """The finding for tapes of different length: the first event that one of them lacks."""
    both = (tape, "here"), (other, "there")
    (longer, side), (shorter, short) = sorted(both, key=lambda one: len(one[0].events), reverse=True)
    event = longer.events[n]
    launch = f"#{n} {tape.events[n].label}" if n < len(tape.events) else f"#{n}"
    names = written_names(accesses(longer, event))
    text = f"the runs part here: {side} follows `{event.label}`, which writes {', '.join(names)}, and {short} "
    text += f"`{shorter.events[n].label}`." if n < len(shorter.events) else "the tape ends."
    text += f" {len(tape.events)} events here, {len(other.events)} there."
    return Finding("parted", "warning", launch, event.where, text, FIX, names)


def _parted(n: int, here: TapeRun, there: TapeRun) -> Finding | None:
    """The difference at event n as a finding, if its values differ; None if not."""
    ours, theirs = here.accesses[n], there.accesses[n]
    if n >= min(len(here.values), len(there.values)):
        return _finding(n, here, there, "", ()) if here.why or there.why else None
    for k, writes in enumerate((False, True)):
        a, b = ([x for x in found if x.writes == writes] for found in (ours, theirs))
        for one, two, v, w in zip(a, b, here.values[n][k], there.values[n][k], strict=False):
            text = _numbers(one, two, v, w)
            if text and writes:
                return _finding(n, here, there, f"it writes {text}", (one.name,))
            if text:  # nobody wrote other numbers: an earlier launch wrote them elsewhere, or it began so
                m = next((m for m in reversed(range(n)) if any(causes(m, m, here, there))), n)
                finds = "it" if m == n else f"so #{n} `{here.tape.events[n].label}`"
                return _finding(m, here, there, f"{finds} finds {text}", (one.name,))
    return None


def _finding(n: int, here: TapeRun, there: TapeRun, numbers: str, arrays: tuple[str, ...]) -> Finding | None:
    event, parting = here.tape.events[n], _parting_line(n, here, there)
    reasons = list(dict.fromkeys(causes(n, n, here, there, parting)))
    if not reasons and not numbers:
        return None
    text = "; ".join(filter(None, (", ".join(reasons), numbers)))
    quiet = not numbers and not (here.why or there.why)
    text += ". What it wrote is the same all the same." if quiet else "."
    names = arrays or written_names(here.accesses[n])
    severity, launch = "info" if quiet else "warning", f"#{n} {event.label}"
    brief, text = f"the runs part {{at}}: {text.rstrip('.')}", f"the runs part here: {text}"
    found = Finding("parted", severity, launch, event.where, text, FIX, names, brief=brief)
    if parting is None:
        return found
    return replace(found, thread=parting.thread, inside=parting.here, mended=parting.there.text.strip())


class PartingLine(NamedTuple):
    """The lines of two kernels that make the first other number, or say something else; a thread, where it is known."""

    here: Where
    there: Where
    thread: int | tuple[int, ...] | None = None

    @property
    def text(self) -> str:
        return "{} here, {} there".format(*(f"line {w.line} `{w.text.strip()}`" for w in self[:2]))


def causes(n: int, m: int, here: TapeRun, there: TapeRun, parting: PartingLine | None = None) -> Iterator[str]:
    """Yields the differences between event n here and event m there: kernel, source lines, grid, arguments.

    parting   the lines to name, where they are known: else the first whose text differs.
    """
    one, two = here.tape.events[n], there.tape.events[m]
    if one.label != two.label:
        yield f"`{one.label}` is launched here, `{two.label}` there"
    if one.command is None or two.command is None:
        return
    if found := parting or _other_line(one, two):
        yield found.text
    grids = [e.command.plan.form.dims for e in (one, two)]
    if grids[0] != grids[1]:
        yield "dim is {} here, {} there".format(*(grid[0] if len(grid) == 1 else grid for grid in grids))
    known = {leaf.name: a for leaf, a in two.arguments}
    for leaf, a in one.arguments:
        b = known.get(leaf.name)
        if b is None or isinstance(a, array) != isinstance(b, array):
            continue
        if not isinstance(a, array):
            if not np.array_equal(a, b):
                yield f"{leaf.name} is {_shown(a)} here, {_shown(b)} there"
            continue
        if (a.shape, a.dtype, here.met.get(a.allocation)) != (b.shape, b.dtype, there.met.get(b.allocation)):
            mine, yours = (f"{run.tape.names.of(x)} ({x.dtype} {x.shape})" for run, x in ((here, a), (there, b)))
            yield f"{leaf.name} is {mine} here, {yours} there"


def _other_line(one: Event, two: Event) -> PartingLine | None:
    """The first lines in which the texts of two kernels differ, None for none."""
    if one.command is None or two.command is None or one.command.program is two.command.program:
        return None
    pairs = zip(_statements(one), _statements(two), strict=False)
    return next((PartingLine(a, b) for a, b in pairs if a.text.strip() != b.text.strip()), None)


def _parting_line(n: int, here: TapeRun, there: TapeRun) -> PartingLine | None:
    """The first lines of two kernels whose numbers differ, where both can be run again; else whose text does."""
    one, two = here.tape.events[n], there.tape.events[n]
    found = _other_line(one, two)
    ours, theirs = (list(_statements(e)) for e in (one, two)) if found else ((), ())
    if not ours or len(ours) != len(theirs):
        return found
    mine, yours = _line_numbers(here, n), _line_numbers(there, n)
    for a, b in zip(ours, theirs, strict=True):
        v, w = (np.array(list(numbers.get(at.line, {}).values())) for numbers, at in ((mine, a), (yours, b)))
        if v.shape == w.shape and v.size and (first := first_difference(v, w)) is not None:
            thread, _ = list(mine[a.line])[first.index[0]]
            return PartingLine(a, b, thread[0] if len(thread) == 1 else thread)
    return found


def _line_numbers(run: TapeRun, n: int) -> dict[int, dict[tuple[tuple[int, ...], int], float]]:
    """By line of the kernel of an event the last numbers that each thread made there, by thread and component."""
    found: dict[int, dict[tuple[tuple[int, ...], int], float]] = {}

    def trace(thread: tuple[int, ...], stmt: ir.Stmt, values: LiveValues) -> None:
        made = (*stmt.outs, *(stmt.args[-1:] if stmt.row.writes else ()))
        line = found.setdefault(stmt.where.line, {}) if stmt.where is not None else {}
        for out in filter(is_number, made):
            numbers = enumerate(np.ravel(values[out]).tolist())
            line.update(((thread, k), x) for k, x in numbers)

    def before(event: Event, _: object) -> None:
        if run.again is not None and event is run.again.events[n]:
            run_primal(event, trace)
            raise Enough

    if run.again is not None and not run.why:
        with suppress(Enough):
            passing(run.again, before)
    return found


def _statements(event: Event) -> Iterator[Where]:
    """The lines of a kernel in the order of the file, each once."""
    found = {s.where.line: s.where for s in ir.walk(event.command.program.function.body) if s.where is not None}
    yield from (found[line] for line in sorted(found))


def numbers_of(access: EventAccess, words: Any) -> np.ndarray:
    """The scalars in the words of an access, components last; the raw bytes of a struct."""
    kind = np.dtype(np.uint8) if isinstance(access.array.dtype, Struct) else access.array.dtype.numpy
    return np.frombuffer(words.tobytes(), kind).reshape(*access.span.shape, access.span.itemsize // kind.itemsize)


def cell_text(name: str, index: tuple[int, ...], components: int) -> str:
    """`x[3]`, with the component behind it if there are several; the name alone for a single number."""
    cell = index if components > 1 else index[:-1]
    return f"{name}[{', '.join(map(str, cell))}]" if cell else name


def unlike(one: EventAccess, two: EventAccess) -> str:
    """The reason why two accesses cannot be compared element by element; "" if they can, even across precisions."""
    kinds = [x.array.dtype for x in (one, two)]
    alike = kinds[0] == kinds[1] or not any(isinstance(kind, Struct) for kind in kinds)
    shapes = [(x.span.shape, *getattr(x.array.dtype, "shape", ())) for x in (one, two)]
    if alike and shapes[0] == shapes[1]:
        return ""
    said = [f"of shape {x.span.shape}" if one.span.shape != two.span.shape else str(x.array.dtype) for x in (one, two)]
    return f"{one.name} {said[0]} here, {two.name} {said[1]} there"


def _numbers(one: EventAccess, two: EventAccess, v: object, w: object) -> str:
    """`x[3] = 1 here, 2 there` for the first numbers that differ by more than rounding."""
    if text := unlike(one, two):
        return text
    a = numbers_of(one, v)
    found = first_difference(a, numbers_of(two, w))
    if found is None:
        return ""
    if isinstance(one.array.dtype, Struct):
        return f"other structs in {one.name} than there in {two.name}"
    name = one.name if one.name == two.name else f"{one.name} ({two.name} there)"
    cell = cell_text(name, found.index, a.shape[-1])
    text = f"{cell} = {_shown(found.here)} here, {_shown(found.there)} there"
    more = found.count - 1
    return text + (f", and {more} more number{'' if more == 1 else 's'}" if more else "")


def _shown(value: Any) -> str:
    return f"{value:.7g}" if np.ndim(value) == 0 and not isinstance(value, bool | str) else str(value)

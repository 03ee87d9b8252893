"""`replay`: the recorded program once more, on new inputs and on private copies of all memory.

The launches and host writes of a tape are performed in order, from what the tape started from, and recorded by a new
tape: what the program would have computed, bit for bit, and its gradients too. No array of the user is touched. What
the first recording cannot tell (a start that was not kept, a change it did not record) is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.allocation import Allocation
from ..arrays.array import array, on_device, read_values
from ..arrays.copying import ask_alike
from ..arrays.scalar import scalar
from ..arrays.span import Span
from ..device import on_host
from ..display import offers
from ..errors import GradientError
from ..kernels.types import Struct
from .event_log import is_read, sure_writes
from .events import Event, Scope, checksum_of
from .jvp import passing
from .private_copies import CopiedArrays, Rerun, closed, name_of, pinned, refuse_foreign
from .seeds import check_pairs, check_start
from .tape import Tape


@offers("of original")
class ReplayedTape(Tape):
    """Tape returned by `Tape.replay`, on copies of the arrays of the `original`.

    `again.of(a)`, or `again[a]`, is the copy of an array or a view on memory of the first tape.
    """

    def __init__(self, original: Tape, copies: CopiedArrays, keep: str):
        super().__init__(keep)
        self.original, self._copies = original, copies
        self.positions: dict[Event, int] = {}  # of each event's twin on the original

    def of(self, a: array | scalar) -> array:
        """The copy of an array of the original tape. Raises GradientError [replay-array] for any other."""
        found = a.memory if isinstance(a, scalar) else a
        if not isinstance(found, array) or found.allocation not in self._copies.memory:
            raise _stranger(found)
        return self._copies.of(found)

    __getitem__ = of


def replay(tape: Tape, inputs: Mapping[Any, Any] | None = None) -> ReplayedTape:
    """Run the recorded program again. Returns a new tape: `again[y]` is the copy of `y`.

    inputs   {x: values}: what x holds when the tape starts, in place of what it held then. An array of x's dtype and
             shape, or numbers of shape (*x.shape, *components); x may be a view, or a declared `wb.scalar`.
    Raises GradientError [replay-func] for a tape with a function of the user's, [not-kept] where Tape(keep="needed")
    has not kept what the program started from, [overwritten] where memory changed behind the tape's back,
    [replay-array], [replay-input], [custom-op] for an op that returns something else on what it had read; and what the
    launches raise on the new inputs.
    """
    if not isinstance(inputs, Mapping | None):
        check_pairs("replay(inputs)", inputs, "values", "tape.replay({x: values})")
    with memory.LOCK, memory.unrecorded():
        again = _prepared(tape)
        made = ReplayedTape(tape, again.twins, tape.keep)
        _set_inputs(made, inputs)
        again.record(made)
    return made


def keep_all(tape: Tape) -> ReplayedTape:
    """Run the recorded program again as it was, with everything kept: to look at it, not to differentiate it.

    What nobody has written on the tape is taken as it is, and memory of zeros that nobody wrote before as zeros. Raises
    GradientError [replay-differs] if what the tape has kept or left is not, bit for bit, what the second run gives, and
    what `replay` raises.
    """
    with memory.LOCK, memory.unrecorded():
        again = _prepared(tape, looking=True)
        made = ReplayedTape(tape, again.twins, "all")
        again.record(made)
        _refuse_other_bits(tape, made, again.twins.memory)
    return made


class Runs:
    """The recorded program on copies, to run unrecorded as often as one likes. The caller holds the lock.

    What nobody has written on the tape is taken as it is, as by `keep_all`. Raises what `replay` raises.
    """

    def __init__(self, tape: Tape):
        self.tape, self._again = tape, _prepared(tape, looking=True)
        self._made = ReplayedTape(tape, self._again.twins, tape.keep)
        self._start = [(copy.span(), copy.span().copy_out()) for copy in self._again.twins.memory.values()]

    def of(self, a: array) -> array:
        """The copy of an array: before a run as the last one left it."""
        return self._made.of(a)

    def restart(self, inputs: Mapping[Any, Any] | None = None) -> None:
        """Put the copies back to where the tape started, but for these inputs. Raises what `replay` does of them."""
        for span, data in self._start:
            span.copy_in(data)
        _set_inputs(self._made, inputs)

    def run(self, take: Callable[[int], None]) -> None:
        """Run all events from where the copies are; `take(n)` is called before event `n`, and at the end."""
        done = 0
        with memory.unrecorded():
            for n, (event, end) in enumerate(zip(self.tape.events, self._again.ends, strict=True)):
                take(n)
                for step in self._again.steps[done:end]:
                    step(event.kind.cuts)  # unrecorded, a cut is a copy
                done = end
            take(len(self.tape.events))


def _refuse_other_bits(tape: Tape, made: ReplayedTape, copies: Mapping[Allocation, Allocation]) -> None:
    tape.log.tally()
    pairs = [(s, s.words(), s.on(b).words()) for a, b in copies.items() for s in tape.log.written.get(a, ())]
    for new, n in made.positions.items():
        again = {k.span: k.data for k in new.kept}
        kept = [k for k in tape.events[n].kept if k.span.allocation in copies]
        pairs += [(k.span, k.data, again[s]) for k in kept if (s := k.span.on(copies[k.span.allocation])) in again]
    for span, one, other in pairs:
        if not np.array_equal(on_host(one), on_host(other)):
            text = f"{name_of(tape, span)} holds other numbers when the recorded program runs again."
            why = "It was written since, or it depends on the order of threads."
            raise GradientError(text, slug="replay-differs", why=why)


def _began_as_zeros(tape: Tape, a: Allocation) -> bool:
    """True if this memory was made of zeros and, as far as is known, written only by events of this tape."""
    return a.blank >= 0 and a.version - sum(s.allocation is a for e in tape.events for s in e.writes) == a.blank


def _prepared(tape: Tape, looking: bool = False) -> _Again:
    _refuse_closed(tape, looking)
    again = _Again(tape).follow()
    again.verify(len(tape.events))
    if not tape.events:
        raise GradientError("replay() of a tape that has recorded nothing.", slug="replay-array")
    for a, copy in again.twins.memory.items():
        if looking and tape.keep != "all" and _began_as_zeros(tape, a):
            copy.bytes[...] = 0
    return again


def starts(tape: Tape, arrays: Sequence[array]) -> list[np.ndarray]:
    """NumPy copies of the contents of arrays when the tape started. Raises what `replay` raises."""
    found: list[np.ndarray] = []

    def take(*_: object) -> None:
        if not found:
            found.extend(read_values(a).copy() for a in arrays)

    with memory.LOCK, memory.unrecorded():
        _refuse_closed(tape, False)
        passing(tape, take)
    return found


class _Copies(CopiedArrays):
    """Copies of whole allocations: one array object per array, with the same gradients asked for."""

    def __init__(self, arrays: list[array]):
        self.made: dict[tuple[Span, Any], array] = {}
        super().__init__(arrays, False)
        for original, copy in self.memory.items():
            copy.bytes[...] = original.bytes
            ask_alike(copy, original)

    def of(self, a: array) -> array:
        key = a.span, a.dtype
        if key not in self.made:
            self.made[key] = self.whole(a)
            self.made[key].name = a.name
        return self.made[key]


class _Again(Rerun):
    """Steps that rerun a tape, and how many there are up to each event. Host values are those of the recording."""

    refuses_sources = on_other_inputs = False

    def __init__(self, tape: Tape):
        super().__init__(tape, False)
        self.ends: list[int] = []

    def before(self, event: Event) -> None:
        self.verify(len(self.ends))
        super().before(event)

    def copies(self, arrays: list[array]) -> _Copies:
        return _Copies(arrays)

    def behind(self, event: Event) -> None:
        super().behind(event)
        self.ends.append(len(self.steps))

    def verify(self, position: int) -> None:
        """Raise GradientError [overwritten] if exposed memory first met at event `position` was changed unseen."""
        for a, known in self.tape.needed.memories.items():
            when, checksum = known.met or (None, None)
            if when == position and checksum is not None and checksum != checksum_of(a.span()):
                text = f"{name_of(self.tape, a.span())} was changed behind the tape's back, through its raw memory."
                why = "What the program started from, or met on its way, is gone."
                instead = "a.assign(values), a.fill_(value) or a kernel"
                raise GradientError(text, slug="overwritten", why=why, instead=instead)

    def record(self, into: ReplayedTape) -> None:
        """Perform the steps under the new tape; its events get the lines, names and scopes of the old ones."""
        tape, starts, done = self.tape, [0], 0
        for n, (event, end) in enumerate(zip(tape.events, self.ends, strict=True)):
            with memory.recorded_by(into):
                for step in self.steps[done:end]:
                    step(True)
            for new in into.events[starts[-1] :]:
                new.place, new.label = event.place, event.label
                into.positions[new] = n
            done = end
            starts.append(len(into.events))
        into.scopes = [Scope(s.name, starts[s.first], None if s.last is None else starts[s.last]) for s in tape.scopes]
        for key, name in tape.names.noted.items():
            if (a := tape.arrays.get(key)) is not None:
                into.names.noted[id(into.of(a))] = name


# ---- inputs


def _set_inputs(made: ReplayedTape, inputs: Mapping[Any, Any] | None) -> None:
    """Write the new values of inputs to their copies, unless the recorded program depends on the old ones elsewhere."""
    tape = made.original
    if inputs and (known := next((e for e in tape.events if e.sources), None)) is not None:
        raise tape.host.lost(known)
    if inputs and (solved := next((e for e in tape.events if e.kind.pinned), None)) is not None:
        raise pinned(solved)
    for x, values in (inputs or {}).items():
        _set(made, x, values)


def _set(made: ReplayedTape, x: object, values: object) -> None:
    """Write the new values of an input to its copy."""
    a = x.memory if isinstance(x, scalar) else x
    if not isinstance(a, array) or not made.original.log.has_touched(a.span):
        raise _stranger(a)
    check_start(made.original, a)
    copy = made.of(a)
    if isinstance(values, array):
        if values.dtype != a.dtype or values.shape != a.shape:
            raise _misfit(a, f"{values.dtype} of shape {values.shape}")
        copy.data[...] = on_device(a, read_values(values))
        return
    if isinstance(a.dtype, Struct):
        raise _misfit(a, f"a {type(values).__name__}")
    given = np.asarray(values)
    want = copy.data.shape
    if isinstance(x, scalar):
        given = given.reshape(want) if given.size == np.prod(want) else given
    if given.shape != want or given.dtype.kind not in "biuf":
        raise _misfit(a, f"{given.dtype} of shape {given.shape}")
    cast = given.astype(copy.data.dtype)
    if cast.dtype.kind in "biu" and not np.array_equal(cast, given):
        raise _misfit(a, f"{given.dtype} with values that are no {a.dtype}")
    copy.data[...] = on_device(a, cast)


def _stranger(a: object) -> GradientError:
    name = a.label if isinstance(a, array) else f"a {type(a).__name__}"
    text = f"{name} was neither read nor written while the tape recorded."
    instead = "tape.replay({x: values}), with an x among the inputs of its launches"
    return GradientError(text, slug="replay-array", instead=instead)


def _misfit(a: array, got: str) -> GradientError:
    if isinstance(a.dtype, Struct):
        want, instead = f"an array of {a.dtype}", f"{{x.field({a.dtype.fields[0][0]!r}): values}}"
    else:
        want, instead = f"{a.dtype}, numbers of shape {a.data.shape}", f"np.ones({a.data.shape})"
    text = f"the new values of {a.label} are {got}; it takes {want}."
    return GradientError(text, slug="replay-input", instead=instead)


# ---- what cannot be run again


def _refuse_closed(tape: Tape, looking: bool) -> None:
    for event in tape.events:
        if event.kind.closed and event.op is None:
            raise closed(event)
    refuse_foreign(tape)
    if tape.keep != "all":
        _refuse_unknown(tape, looking)


def _refuse_unknown(tape: Tape, looking: bool) -> None:
    """Raise GradientError [not-kept] unless what events read is surely (`looking`: maybe) written, kept, unchanged."""
    right: dict[Allocation, dict[Span, None]] = {}
    for n, event in enumerate(tape.events):
        sure = sure_writes(event)
        for span in (*event.reads, *(s for s in event.writes if s not in sure)):
            known = right.setdefault(span.allocation, {})
            if not span.nbytes or any(s.contains(span) for s in known):
                continue
            if not _started(tape, n, span) and not (looking and _probably_started(tape, span)):
                name = name_of(tape, span)
                text = f"what {name} held when the tape started was not kept, and {event.label!r} uses it."
                raise _not_kept(event, text, "The program cannot be run again from where it started.")
            known[span] = None
        for span in sure:
            right.setdefault(span.allocation, {})[span] = None
        if event.kind.from_host and event.kind.own and event.value is None:
            for span in event.writes:
                if not _values_known(tape, n, span):
                    text = f"what {event.label!r} wrote to {name_of(tape, span)} was not kept, and written over since."
                    raise _not_kept(event, text, "The program cannot be run again without it.")


def _not_kept(event: Event, text: str, why: str) -> GradientError:
    return GradientError(text, slug="not-kept", where=event.where, why=why, instead='wb.Tape(keep="all")')


def _values_known(tape: Tape, n: int, span: Span) -> bool:
    """True if the walk meets what event `n` wrote to these bytes, or nobody reads it before it is written over."""
    later = tape.events[n + 1 :]
    if not is_read(later, span):
        return True
    for event in later:
        written = [s for s in event.writes if s.overlaps(span) is not False]
        if not all(any(k.span.contains(s) or k.span.contains(span) for k in event.kept) for s in written):
            return False
        if any(s.contains(span) for s in written):
            return True
    return not tape.needed.has_changed(span)


def _started(tape: Tape, n: int, span: Span) -> bool:
    """True if the walk can put back what event `n` found in these bytes, which no sure write has made."""
    event, known = tape.events[n], tape.needed.of(span.allocation)
    needed = any(need.event.id <= event.id and need.span.contains(span) for need in known)
    watched = known.followed and event.reverse is not None
    writer = next((e for e in tape.events[n:] if any(s.overlaps(span) is not False for s in e.writes)), None)
    if writer is not None:
        return watched and any(kept.span.contains(span) for kept in writer.kept)
    if tape.needed.has_changed(span):
        return False
    exposed = span.allocation.exposed
    return needed or (watched and (not exposed or known.left.get(span) == checksum_of(span)))


def _probably_started(tape: Tape, span: Span) -> bool:
    """True if no write to these bytes is known, or if they were zeros to begin with."""
    unwritten = all(s.overlaps(span) is False for e in tape.events for s in e.writes)
    return (unwritten and not tape.needed.has_changed(span)) or _began_as_zeros(tape, span.allocation)

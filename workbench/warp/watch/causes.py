"""The causes of wrong gradients of Warp's, each with the smallest change of the program that mends it, in Warp's terms.

Each rule looks for one cause, the surest first: a rule that can reproduce Warp's numbers, then facts of the tape, then
what stands in the text of the kernel. A rule may name another launch than the one where Warp's buffers were first seen
to differ: they can only be compared where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import warp
from warp._src import codegen

from ...arrays.array import array
from ...arrays.span import Span
from ...errors import GradientError
from ...kernels import ir
from ...kernels.ops.vectors import NORMALIZE
from ...tapes.events import Event, Need
from ...tapes.rerun import Enough, run_primal
from ...tapes.reverse import reverse
from .compare import VerdictRow, accuracy
from .hooks import is_installed
from .memory import Untranslated
from .session import Session, WarpStep, asks_mesh
from .source_patterns import given_to_funcs, returned_by_atomics, suspects
from .walks import Changed, GradientWalks, changed, meets, with_numbers

HOST = ("host", "assign", "fill_", "zero_")
WITHIN = 8  # times the effect of rounding each operation of one adjoint otherwise
NOTEBOOKS = {
    "host write": "02_torch_tensors",
    "missing requires_grad in a struct": "03_structs",
    "missing requires_grad": "03_structs",
    "leaked seed": "04_several_outputs",
    "component write": "05_components",
    "alias": "06_aliases",
    "race": "07_accumulation",
    "dynamic loop in the kernel": "08_loops",
    "local re-assignment in the kernel": "08_loops",
    "overwritten memory": "09_overwrites",
}
Found = tuple[str, str, WarpStep | None, str]  # the cause, what happened, where (None: where it was seen), the remedy


def explain(one: GradientWalks, row: VerdictRow) -> tuple[str, str]:
    """The cause of a wrong row, and the remedy: a sentence each, "" where nothing is known.

    The cause begins with its name, one of `NOTEBOOKS` or "adjoint switched off", "adjoint on the tape", "not on the
    tape", "custom adjoint", "precision", "adjoint of mesh queries", "adjoint of the kernel"; the remedy ends with the
    notebook that explains it. Rules that ask nothing of the row but its launch are asked once for each launch.
    Called when a row of `one` has been found wrong, with `row.step` the launch at which Warp's buffers first leave the
    exact ones; `row.step` becomes the launch to blame.
    """
    for rule in RULES:
        known = (rule, row.step)
        if rule in OF_ROWS or known not in one.answers:
            one.answers[known] = None
            with suppress(GradientError, Untranslated):
                one.answers[known] = rule(one, row)
        found = one.answers[known]
        if found is None:
            continue
        cause, sentence, step, remedy = found
        row.step = step or row.step
        notebook = f" (notebooks/{NOTEBOOKS[cause]})" if cause in NOTEBOOKS else ""
        if rule in OF_KERNELS and row.step is not None:
            remedy = _of_the_program(one.session, row.step, remedy)
        return f"{cause}: {sentence}", f"{remedy}{notebook}"
    return "", ""


def _of_the_program(session: Session, step: WarpStep, remedy: str) -> str:
    """The remedy; of a kernel in an installed library what the user can do at the call of it."""
    if step.kernel is None or not is_installed(step.kernel.func.__code__.co_filename):
        return remedy
    where = None if step.where is None else session.calls.get((step.where.file, step.where.line), step.where)
    line = "" if where is None else f" in {where}: {where.text.strip()}"
    return (
        f"seen.backward(grads={{...}}), whose gradients are exact, for what comes of the call{line}. `{step.label}`"
        f" belongs to {step.kernel.func.__module__.partition('.')[0]}: its makers could use {remedy}"
    )


# ---- what stood in gradients before


def leaked(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds gradients left by an earlier pass that Warp's walk took as seeds: with them Warp's numbers come out."""
    seeded = {id(twin) for twin, _ in one.seeds}
    left = [p for p in one.published if p.written and id(p.twin) not in seeded and p.holds]
    exact = one.with_seeds([*one.seeds, *((p.twin, p.before) for p in left)]) if left else {}
    mine = row.subject
    if id(mine.twin) not in exact or not accuracy(row.theirs, mine.whole(exact[id(mine.twin)]), None).fine:
        return None
    names = ", ".join(f"`{one.session.tape.names.of(p.twin)}.grad`" for p in left)
    sentence = f"{names} still held what an earlier backward had left, and was walked back again"
    return "leaked seed", sentence, None, "tape.zero() before the next tape.backward(...)"


# ---- launches without an adjoint, or with two


def launched_back(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds an adjoint launch that Warp's tape recorded as a forward launch, so that it is reversed a second time."""
    for step in _behind(one.steps, row):
        if step.kind == "adjoint":
            sentence = f"{step!r} ran inside `with tape:`, which takes it for the launch itself and walks it back too"
            return "adjoint on the tape", sentence, step, "wp.launch(..., adjoint=True, record_tape=False)"
    return None


def no_adjoint(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds a launch that Warp's walk skips: its kernel or module has enable_backward=False."""
    for step in _behind(one.steps, row):
        kernel = step.kernel
        if kernel is None or not _is_active(step):
            continue
        own, shared = kernel.options.get("enable_backward"), kernel.module.options.get("enable_backward")
        if own is False or (own is None and shared is False):
            mend = f"@wp.kernel(enable_backward=True) for `{kernel.key}`"
            if own is None:
                mend = f'wp.set_module_options({{"enable_backward": True}}) in {kernel.module.name}'
            return "adjoint switched off", f"Warp's walk passes {step!r} by: enable_backward is False", step, mend
    return None


def not_recorded(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds a step on the gradient's path that Warp's tape has not recorded."""
    own = {id(s) for s in one.steps}
    events = {id(e) for e in one.events}
    for step in _behind([s for s in one.past if id(s.event) in events], row):
        if id(step) in own or step.kind in ("host", "opaque", "adjoint") or not _is_active(step):
            continue
        if (bare := _without_gradient(one.session, step)) is not None:
            sentence = f"`{bare}` has no gradient, so that Warp's tape leaves {step!r} out, and the gradient with it"
            return "missing requires_grad", sentence, step, f"`{bare}` made with requires_grad=True"
        if step.kind == "launch":
            mend = f"wp.launch({step.label}, ...) inside `with tape:`; Warp's tape hears no launch of record_cmd=True"
        else:
            mend = f"a kernel in place of {step.label}, launched inside `with tape:`"
        sentence = f"{step!r} is no part of Warp's tape, and the gradient would have to pass it"
        return "not on the tape", sentence, step, mend
    return None


def _without_gradient(session: Session, step: WarpStep) -> str | None:
    """The name of an array without a gradient that a copy or assignment reads or writes; None if there is none."""
    if step.kind not in ("copy", "assign") or step.event is None:
        return None
    for known in list(session.twins.made.values()):
        a = known.ref()
        if a is not None and a.grad is None and _touches(step.event, known.twin.span):
            return session.tape.names.of(known.twin)
    return None


def argument_changed(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds a struct, vector or list argument changed since the launch: Warp's tape holds it by reference."""
    if "changed" not in one.answers:
        one.answers["changed"] = _changed_arguments(one)
    found, numbers, exact = one.answers["changed"]
    mine, step = row.subject, row.step
    moved = numbers and not np.array_equal(exact[id(mine.twin)], one.exact[id(mine.twin)], equal_nan=True)
    for at in [step, *_behind(one.steps, row)] if step is not None else []:
        for k, then, now in sorted(found.get(at, ()), key=lambda one: not isinstance(one[1], array)):
            assert at.event is not None
            leaf = at.event.command.program.leaves[k]
            what = f"`{leaf.name}` of {at!r}"
            if isinstance(then, array):
                sentence = f"its adjoint takes {what} as it is now: another array than when it ran"
            elif moved:
                sentence = f"its adjoint takes {what} as it is now; the host has changed it from {then} to {now} since"
            else:
                continue
            kind = "struct" if leaf.path else "vector, or list of arguments,"
            return "host write", sentence, at, f"a {kind} of its own for each launch in place of one that is changed"
    return None


def _changed_arguments(one: GradientWalks) -> tuple[dict[WarpStep, list[Changed]], bool, dict[int, np.ndarray]]:
    """(changed arguments by step, True if numbers are among them, the exact gradients with the present numbers)."""
    found: dict[WarpStep, list[Changed]] = {}
    numbers: dict[Event, dict[int, Any]] = {}
    for n, step in enumerate(one.by_entry):
        event = None if step is None else step.event
        if step is None or event is None or event.command is None or event.reverse is None:
            continue
        active = {*event.reverse.shadows, *event.reverse.needs}
        for k, then, now in changed(one.session.twins, event.command, one.moment.arguments[n]):
            if not isinstance(then, array):
                numbers.setdefault(event, {})[k] = now
            elif k not in active:
                continue
            found.setdefault(step, []).append((k, then, now))
    return found, bool(numbers), one.with_step(partial(with_numbers, numbers)) if numbers else {}


def without_gradient(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds an intermediate array without requires_grad: Warp's backward silently stops there."""
    written = {s.allocation for e in one.events for s in e.writes}
    ends = [(step, leaf, one.session.twins.array(a)) for step, leaf, a in _active_arrays(one, row) if a.grad is None]
    ends = [end for end in ends if end[2].allocation in written]
    if not ends or not _passes(one, row, *(twin for _, _, twin in ends)):
        return None
    for step, leaf, twin in ends:
        if not _passes(one, row, twin):
            continue
        name = one.session.tape.names.of(twin, leaf.name)
        if leaf.path:
            cause, name = "missing requires_grad in a struct", f"{leaf.name}"
        else:
            cause = "missing requires_grad"
        sentence = f"`{name}` of {step!r} has no gradient, and results depend on it"
        return cause, sentence, step, f"`{name}` made with requires_grad=True"
    return None


def _passes(one: GradientWalks, row: VerdictRow, *twins: array) -> bool:
    """True if the row's gradient flows through one of these arrays: cutting their adjoints changes it."""
    mine = id(row.subject.twin)
    return not np.array_equal(one.without(*twins)[mine], one.exact[mine], equal_nan=True)


def aliased(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds memory written (or asked about) as one array and read as another, each with a gradient of its own."""
    twin_of = one.session.twins.array
    mine = row.subject
    writers: dict[Any, dict[int, tuple[Any, set[Event]]]]  # by memory: the arrays, and the events that wrote them
    writers = {mine.twin.allocation: {id(mine.theirs): (mine.theirs, set())}}
    found: list[tuple[WarpStep, Any, Any]] = []
    for step, entry in zip(one.by_entry, one.entries, strict=True):
        if step is None or not isinstance(entry, list) or step.event is None:
            continue
        for _, a in _arrays_of(step, entry):
            for other, events in writers.get(twin_of(a).allocation, {}).values():
                offsets = {x.grad.ptr - x.ptr for x in (a, other) if x.grad is not None}
                if other is a or len(offsets) < 2 or events == {step.event}:
                    continue
                found += [(step, a, other)] if meets(twin_of(a).span, [twin_of(other).span]) else []
        for _, a in _arrays_of(step, entry):
            if meets(twin_of(a).span, step.event.writes):
                known = writers.setdefault(twin_of(a).allocation, {})
                known.setdefault(id(a), (a, set()))[1].add(step.event)
    for step, a, other in reversed(found):
        if row.step is None or step.number >= row.step.number:
            first, second = (one.session.tape.names.of(twin_of(b)) for b in (a, other))
            first = first if first != second else "another array"
            sentence = f"{step!r} takes `{first}`, which lies in the memory of `{second}` and has a gradient of its own"
            return "alias", sentence, step, f"`{second}` itself, or a view of it, as argument of {step!r}"
    return None


# ---- memory that is not what it was

BUILT = {"Mesh": ("mesh", "fitted anew"), "Bvh": ("tree of boxes", "fitted anew")}


def overwritten(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds memory that the wrong launch's adjoint reads and a later event has overwritten."""
    event = None if row.step is None else row.step.event
    if row.step is None or event is None or event.command is None:
        return None
    own = needed(event)
    for step in (s for s in one.past if s.number >= row.step.number):
        for kept in () if step.event is None else step.event.kept:
            if np.array_equal(kept.data, kept.span.copy_out()):  # what is there now is the same
                continue
            need = next((need for need in kept.needs if need.event is event), None)
            need = need or next((need for need in own if need.span.overlaps(kept.span) is not False), None)
            if need is not None:
                return _overwritten(one, row.step, step, need)
    return None


def needed(event: Event) -> list[Need]:
    """The memory that the adjoint of a launch reads, a `Need` each (unlike the tape, which keeps shared bytes once)."""
    needs = {} if event.reverse is None else event.reverse.needs
    spans = ((event.command.flat[k].span, box, k) for k, box in needs.items())
    return [Need(span if box is None else span.part(box), event, k) for span, box, k in spans]


def _overwritten(one: GradientWalks, wrong: WarpStep, by: WarpStep, need: Any) -> Found:
    if by.kind == "build":
        kind = by.label.partition(".")[0]
        what, built = BUILT.get(kind, ("hash grid", "built anew"))
        name = need.name.partition(".")[0] or what
        sentence = f"its adjoint reads the {what} `{name}` as it is now; it was {built} by {by!r}"
        if by.where is not None:
            sentence += f" in line {by.where.line}"
        mend = f"a {kind} of its own for each time that it is {built} and that {wrong!r} shares with others"
        return "overwritten memory", sentence, None, mend
    name = one.session.tape.names.of(need.array, need.name)
    sentence = f"its adjoint reads `{name}` as it is now; `{name}` was overwritten by {by!r}"
    if by.where is not None and by is not wrong:
        sentence += f" in line {by.where.line}"
    if by.kind in HOST[:2]:
        return "host write", sentence, None, _before_host(name)
    if by is wrong and wrong.kernel is not None and need.name in returned_by_atomics(wrong.kernel):
        mend = f"a wp.func around the atomic, whose wp.func_replay reads what it returned on `{name}` from an array"
    elif by is wrong:
        mend = f"an output of its own for `{wrong.label}` instead of writing `{name}` in place"
    elif by.kind in HOST or not _is_used(one, by):
        mend = f"{by!r} behind tape.backward(...), or wp.clone(`{name}`) as argument of {wrong!r}"
    else:
        mend = f"an array of its own for what {by!r} writes: one per step, not one for all"
    return "overwritten memory", sentence, None, mend


def _is_used(one: GradientWalks, by: WarpStep) -> bool:
    """True if a later event of the pass, or a seed, reads what a step has written."""
    at = next((n for n, e in enumerate(one.events) if e is by.event), None)
    if by.event is None or at is None:
        return False
    read = [span for e in one.events[at + 1 :] for span in e.reads] + [twin.span for twin, _ in one.seeds]
    return any(meets(span, by.event.writes) for span in read)


def host_wrote(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds memory that the adjoint reads and the host has changed since the watch last saw it."""
    event = None if row.step is None else row.step.event
    if event is None or event.reverse is None:
        return None
    needed = {id(event.command.places[k].allocation): k for k in event.reverse.needs}
    for region in one.moment.changed:
        k = needed.get(id(region.allocation))
        if k is not None:
            twin = event.command.places[k]
            name = one.session.tape.names.of(twin, event.command.program.leaves[k].name)
            if (again := _written_again(one, row, twin)) is not None:
                sentence = (
                    f"its adjoint reads `{name}`, to which Warp's adjoint of {again[0]!r} has written before: it runs"
                    f" the funcs of a kernel again, with what they write, here to `{again[1]}`"
                )
                mend = f"the writing to `{again[1]}` in the kernel itself, not in a wp.func"
                return "overwritten memory", sentence, None, mend
            sentence = f"its adjoint reads `{name}` as it is now; the host has written to `{name}` since"
            return "host write", sentence, None, _before_host(name)
    return None


def _written_again(one: GradientWalks, row: VerdictRow, twin: array) -> tuple[WarpStep, str] | None:
    """(step, parameter) of a launch reversed earlier that writes this memory in a wp.func; None if there is none."""
    for step in _behind(one.steps, row):
        command = None if step.event is None else step.event.command
        if step.kernel is None or command is None:
            continue
        passed = given_to_funcs(step.kernel)
        for k, _ in command.plan.writes:
            name = command.program.leaves[k].name
            if name in passed and meets(twin.span, [command.flat[k].span]):
                return step, name
    return None


def not_cleared(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds an overwrite that Warp's tape did not record: the gradient flows past it to the earlier value."""
    if row.step is None or row.step.event is None:
        return None
    own, events = {id(s) for s in one.steps}, {id(e) for e in one.events}
    unheard = [s for s in one.past if s.number > row.step.number and id(s) not in own and id(s.event) in events]
    met = [p for p in one.published if unheard and _touches(row.step.event, p.twin.span)]
    for p in met:
        last = max((s.number for s in one.steps if s.event and _touches(s.event, p.twin.span)), default=-1)
        seeded = any(meets(p.twin.span, [twin.span]) for twin, _ in one.seeds)
        for step in unheard:
            if (last > step.number or seeded) and step.event is not None and meets(p.twin.span, step.event.writes):
                name = one.session.tape.names.of(p.twin)
                sentence = f"Warp's tape misses {step!r}: the gradient of `{name}` flows past it to what was there"
                mend = f"an array of its own for what `{name}` holds after {step!r}, or a kernel that stores it"
                return "not on the tape", sentence, None, mend
    return None


def retained(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds an array with retain_grad that is written more than once: earlier values get the gradient of later ones."""
    if row.step is None or row.step.event is None:
        return None
    for p in (p for p in one.published if p.theirs.retain_grad and _touches(row.step.event, p.twin.span)):
        writers = [e for e in one.events if meets(p.twin.span, e.writes)]
        if len(writers) > 1:
            name = one.session.tape.names.of(p.twin)
            sentence = f"`{name}` has retain_grad=True and is written {len(writers)} times: a store leaves its gradient"
            mend = f"retain_grad=False, or an array of its own for each value of `{name}`"
            return "leaked seed", sentence, None, mend
    return None


def _before_host(name: str) -> str:
    return f"tape.backward(...) before the host writes `{name}`, or wp.clone(`{name}`) first"


# ---- the adjoint of the kernel itself


def beside_singular(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds a function without a derivative, of which the kernel makes one that has a derivative all the same."""
    event = None if row.step is None else row.step.event
    if row.step is None or event is None or event.command is None or event.reverse is None:
        return None
    found: list[tuple[ir.Stmt, Any]] = []

    def look(thread: tuple[int, ...], stmt: ir.Stmt, values: Any) -> None:
        if stmt.row is NORMALIZE and not np.any(values[stmt.args[0]]):
            found.append((stmt, thread[0] if len(thread) == 1 else thread))
            raise Enough

    def act(tape: Any, at: Event, space: Any, after: dict) -> None:
        if at is event and not found:
            run_primal(at, look)
        reverse(tape, at, space, after)

    one.with_step(act)
    if not found:
        return None
    stmt, thread = found[0]
    line = "" if stmt.where is None else f", line {stmt.where.line}"
    sentence = (
        f"`normalize` of a zero vector (thread {thread}{line}) has no slope, what {row.step!r} makes of it has one;"
        " Warp takes 0"
    )
    mend = "a formula without the direction, as -k * v in place of -k * wp.length(v) * wp.normalize(v)"
    return "adjoint of the kernel", sentence, None, mend


def infinite(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds numbers of Warp's that are infinite or NaN where the exact ones are finite."""
    if row.step is None or row.exact is None:
        return None
    odd = int(np.sum(~np.isfinite(row.theirs) & np.isfinite(row.exact.reshape(row.theirs.shape))))
    if not odd:
        return None
    sentence = (
        f"{odd} of {row.theirs.size} numbers of Warp's are infinite or NaN, the exact ones are finite: {row.step!r} has"
        " an infinite slope times 0, as of an operand that wp.where leaves out"
    )
    return "adjoint of the kernel", sentence, None, "`if` in place of wp.where, or operands whose slopes are finite"


def in_kernel(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds a statement in the kernel that Warp's adjoint does not reverse correctly."""
    if row.step is None or row.step.kernel is None:
        return None
    for found in suspects(row.step.kernel):
        sentence, remedy = found.said
        return found.cause, sentence, None, remedy
    return None


def behind_mesh(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds points of a mesh that kernels get by id: Warp's adjoints of mesh queries give them no gradient."""
    mine = row.subject
    if not np.array_equal(row.theirs, mine.before):
        return None
    for step in reversed(one.steps):
        if step.event is None or not asks_mesh(step.event):
            continue
        for leaf, place in step.event.arguments:
            if leaf.opened is not None and getattr(place, "allocation", None) is mine.twin.allocation:
                part = leaf.name.rpartition(".")[2]
                sentence = f"Warp's adjoint of {step!r} gives nothing to `{row.array}`, the {part} of a mesh"
                mend = "the corners of the face read from an array that is a parameter, and weighted in the kernel"
                return "adjoint of mesh queries", sentence, step, mend
    return None


def rounded(one: GradientWalks, row: VerdictRow) -> Found | None:
    """Finds cancellation: rounding alone moves the sum as far as Warp's gradient is off."""
    mine = row.subject
    if row.step is None or row.exact is None or row.step.event is None:
        return None
    if not accuracy(row.theirs, row.exact, one.noise_of(mine)).fine:
        within = one.moved_within(mine, row.step.event)
        if within is None or not accuracy(row.theirs, row.exact, within, WITHIN).fine:
            return None
    sentence = f"large contributions cancel in {row.step!r}, and {row.theirs.dtype} has no digits left for what remains"
    return "precision", sentence, None, "wp.float64, or a formula without the large terms"


def unexplained(one: GradientWalks, row: VerdictRow) -> Found | None:
    """The last resort: memory was unchanged, and no statement of the kernel is known to go wrong."""
    if row.step is None or row.step.kernel is None:
        return None
    sentence = (
        f"Warp's buffers first leave the exact adjoints at {row.step!r}, which found its memory as it was, and nothing "
        "in the text of its kernel is known to go wrong; rounding that large terms carry so far is not ruled out"
    )
    mend = f"a wp.func_grad for what `{row.step.label}` computes, or wp.float64 if large terms cancel in it"
    return "adjoint of the kernel", sentence, None, mend


RULES = (
    behind_mesh,
    leaked,
    launched_back,
    no_adjoint,
    not_recorded,
    argument_changed,
    without_gradient,
    aliased,
    overwritten,
    host_wrote,
    retained,
    not_cleared,
    rounded,
    infinite,
    beside_singular,
    in_kernel,
    unexplained,
)
# their remedies change the kernel, or the launch of it
OF_KERNELS = {no_adjoint, overwritten, not_cleared, aliased, infinite, beside_singular, in_kernel, unexplained}
# the others tell the same of all rows with one launch
OF_ROWS = {behind_mesh, leaked, argument_changed, without_gradient, rounded, infinite}


# ---- what the pass consists of


def _behind(steps: list[WarpStep], row: VerdictRow) -> list[WarpStep]:
    """The steps that the walk meets before or at the row's first wrong launch, last first."""
    first = -1 if row.step is None else row.step.number
    return [s for s in reversed(steps) if s.number >= first]


def _is_active(step: WarpStep) -> bool:
    """True if a step's result depends on what gradients are asked of."""
    event = step.event
    return event is not None and not event.kind.opaque and (event.reverse is not None or event.source is not None)


def _active_arrays(one: GradientWalks, row: VerdictRow) -> Iterator[tuple[WarpStep, Any, Any]]:
    """Yields (step, parameter, Warp's array) of all active arguments of recorded launches, the last launch first."""
    pairs = {id(s): e for s, e in zip(one.by_entry, one.entries, strict=True) if s is not None and isinstance(e, list)}
    for step in _behind(one.steps, row):
        entry = pairs.get(id(step))
        if entry is not None and step.event is not None and step.event.reverse is not None:
            active = {step.event.command.program.leaves[k].name for k in step.event.reverse.shadows}
            yield from ((step, leaf, a) for leaf, a in _arrays_of(step, entry) if leaf.name in active)


def _arrays_of(step: WarpStep, entry: list) -> Iterator[tuple[Any, Any]]:
    """Yields (parameter, Warp's array) of a launch, arrays in structs too."""
    values = [*entry[3], *entry[4]]
    if step.event is None or step.event.command is None:
        return
    for leaf in step.event.command.program.leaves:
        if not 0 <= leaf.arg < len(values):
            continue
        value = values[leaf.arg]
        for field in leaf.path:
            if isinstance(value, codegen.StructInstance):
                value = getattr(value, field)
        if isinstance(value, warp.array) and value.ptr:
            yield leaf, value


def _touches(event: Event, span: Span) -> bool:
    return meets(span, (*event.reads, *event.writes))

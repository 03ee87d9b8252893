"""Private copies of arrays, and launches on them, in float64 where wanted: derivatives are checked on these.

Two arrays on one memory are again two arrays on one memory: an allocation is copied as a whole, stretched so that
every float has room for a double. Nothing done here touches an array or a tape of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from ..arrays.allocation import Allocation, allocate, host_write
from ..arrays.array import array, array_on, read_values
from ..arrays.host_copies import write_array
from ..arrays.span import Span
from ..arrays.workspace import Shadow, Workspace, add_into, gradient_dtype, leaves as leaves
from ..device import on_host, xp
from ..errors import GradientError, Where
from ..kernels.ir import Function
from ..kernels.passes.tangent import joint
from ..kernels.passes.to_float64 import wide, widen
from ..kernels.program import Leaf, Program
from ..kernels.types import Composite, is_float
from ..launches.arguments import views
from ..launches.command import Command
from ..launches.plan import plan
from . import conventions
from .events import Event
from .jvp import add_numbers, passing, value_of
from .reverse import walk
from .tape import Tape


class CopiedArrays:
    """Copies of arrays that alias as the arrays do. `widened`: floats become float64."""

    def __init__(self, arrays: Iterable[array], widened: bool):
        self.widened = widened
        self.scale: dict[Allocation, int] = {}
        self.memory: dict[Allocation, Allocation] = {}
        known: dict[Span, array] = {}
        for whole in arrays:
            for a in leaves(whole):
                known.setdefault(a.span, a)
                factor = 8 // a.dtype.scalar.itemsize if widened and is_float(a.dtype) else 1  # type: ignore[attr-defined]
                self.scale[a.allocation] = max(self.scale.get(a.allocation, 1), factor)
        for memory, k in self.scale.items():
            self.memory[memory] = allocate(memory.nbytes * k, memory.device)
        self.arrays = list(known.values())
        for a in self.arrays:
            self.of(a).data[...] = a.data

    def of(self, a: array) -> array:
        """The copy of one array of numbers or vectors."""
        k, dtype = self.scale[a.allocation], wide(a.dtype) if self.widened else a.dtype
        if isinstance(dtype, Composite) and dtype.itemsize != k * a.dtype.itemsize:  # type: ignore[attr-defined]
            text = f"{a.label} shares its memory with floats of another width: it has no copy in float64."
            raise GradientError(text, slug="gradcheck-mixed", instead="gradcheck(..., dtype=None)")
        return array_on(self.memory[a.allocation], dtype, a.shape, tuple(n * k for n in a.strides), a.span.offset * k)

    def whole(self, a: array) -> array:
        """The copy of an array of any dtype, structs too; only if not `widened`."""
        assert not self.widened
        return array_on(self.memory[a.allocation], a.dtype, a.shape, a.strides, a.span.offset)


# ---- launches


def in_float64(of: Program) -> Program:
    """The program over float64, with one argument per flat parameter."""
    return of.once(flat_program, of, of.once(widen, of.function))


def flat_program(of: Program, function: Function) -> Program:
    """A program made from another one, with one argument per parameter of its function."""
    params = tuple((p.name, p.type) for p in function.params)
    flat = tuple(Leaf(name, type, k, ()) for k, (name, type) in enumerate(params))
    return Program(of.name, function, params, flat, of.enable_backward)


@dataclass(eq=False)
class Launch:
    """One launch on copies. `flat` are its arguments, with an array for every declared scalar."""

    program: Program
    dims: tuple[int, ...]
    flat: list[Any]
    declared: tuple[int, ...] = ()

    def run(self, record: bool) -> None:
        """Launch on the present contents of the copies; `record`: by the open tape."""
        flat = self._numbered()
        command = Command(self.program, plan(self.program, self.dims, flat, None), flat)
        command.declaring(list(self.flat), self.declared).launch(record)

    def values(self) -> list[Any]:
        """The arguments as the interpreter takes them, on the host, with the present contents of the copies."""
        found = views(self.program.function, self._numbered())
        return [on_host(v).copy() if isinstance(v, np.ndarray) or hasattr(v, "get") else v for v in found]

    def _numbered(self) -> list[Any]:
        return [self._number(a) if k in self.declared else a for k, a in enumerate(self.flat)]

    @staticmethod
    def _number(declared: array) -> Any:
        value = read_values(declared)[0]
        return value.copy() if np.ndim(value) else value.item()


def launch_of(command: Command, twins: CopiedArrays) -> Launch:
    """The launch of `command` on copies."""
    made = in_float64(command.program) if twins.widened else command.program
    flat = []
    for p, a in zip(made.function.params, command.places, strict=True):
        if isinstance(a, array):
            flat.append(twins.of(a))
        else:
            flat.append(a.astype(p.type.numpy) if isinstance(a, np.ndarray) else a)  # type: ignore[attr-defined]
    return Launch(made, command.plan.form.dims, flat, command.declared)


# ---- what is checked: something that runs, with inputs and outputs


@dataclass(eq=False)
class LaunchCase:
    """A program on copies, as a function of the contents of `inputs` to those of `outputs`. Arrays by label.

    memories   all that `restore` puts back.
    """

    label: str
    where: Where | None
    inputs: dict[str, array]
    outputs: dict[str, array]
    steps: list[Callable[[bool], None]]
    memories: Iterable[Allocation]

    def __post_init__(self) -> None:
        for a in (*self.inputs.values(), *self.outputs.values()):
            a.requires_grad = True
        self.start = [(m.span(), m.span().copy_out()) for m in self.memories]

    def restore(self) -> None:
        for span, data in self.start:
            span.copy_in(data)

    def run(self) -> dict[str, np.ndarray]:
        """Run once, unrecorded. Returns {label: contents in float64} of the outputs."""
        for step in self.steps:
            step(False)
        return {name: read_values(a).astype(np.float64) for name, a in self.outputs.items()}

    def pull_back(self, seeds: Mapping[str, np.ndarray]) -> tuple[Tape, dict[str, np.ndarray]]:
        """Run once under a tape, and walk back from {output: seed}. Returns the tape and {input: float64 gradient}."""
        tape, space = Tape(keep="all"), Workspace()
        with tape:
            for step in self.steps:
                step(True)
        for name, a in self.outputs.items():
            add_numbers(space, a, seeds[name])
        walk(tape, space)
        return tape, {name: value_of(a, space).astype(np.float64) for name, a in self.inputs.items()}


def case_of_launch(event: Event, number: int, widened: bool) -> LaunchCase:
    """One recorded launch, on copies of the present contents of its arrays. `number`: its position on the tape."""
    command, back = event.command, event.reverse
    twins = CopiedArrays([a for a in command.places if isinstance(a, array)], widened)
    made = launch_of(command, twins)
    names = [leaf.name for leaf in command.program.leaves]
    inputs, seen = {}, set()
    for k in back.shadows:
        if made.flat[k].span not in seen:  # one memory under two names is one input
            seen.add(made.flat[k].span)
            inputs[names[k]] = made.flat[k]
    outputs = {names[k]: made.flat[k] for k in sorted(command.plan.float_writes) if k in back.shadows}
    memories = twins.memory.values()
    return LaunchCase(f"#{number} {event.label}", event.where, inputs, outputs, [made.run], memories)


class Rerun:
    """A whole tape on copies, built while `jvp.passing` goes through its events.

    Values that the host made from active memory are refused: on the copies they would stay what they were.
    """

    refuses_sources = on_other_inputs = True

    def __init__(self, tape: Tape, widened: bool):
        self.tape, self.widened = tape, widened
        self.steps: list[Callable[[bool], None]] = []

    @cached_property
    def twins(self) -> CopiedArrays:
        """The copies, made at the first event, when memory is where the tape started."""
        found = [a for e in self.tape.events for a in e.places if isinstance(a, array)]
        return self.copies([*self.tape.arrays.values(), *found])

    def follow(self) -> Self:
        """Go through the events of the tape, and return this."""
        refuse_foreign(self.tape)
        passing(self.tape, lambda event, _: self.before(event), self.behind)
        return self

    def copies(self, arrays: list[array]) -> CopiedArrays:
        return CopiedArrays(arrays, self.widened)

    def before(self, event: Event) -> None:
        assert self.twins
        if event.sources and self.refuses_sources:
            raise self.tape.host.lost(event)
        if event.kind.pinned and self.on_other_inputs:
            raise pinned(event)
        if event.kind.closed and event.op is None:
            raise closed(event)
        if event.command is not None:
            self.steps.append(launch_of(event.command, self.twins).run)

    def behind(self, event: Event) -> None:
        if event.command is not None or not event.kind.own:
            return
        if event.op is not None:
            event.op.verify(event.where)  # on what it had read, which memory holds now
            self.steps.append(event.op.on(self.twins.of).run)
            return
        dst = list(leaves(event.arrays[0]))
        src = list(leaves(event.arrays[1])) if len(event.arrays) == 2 else [None] * len(dst)
        for to, of in zip(dst, src, strict=True):
            if event.kind.cuts:
                self.twins.of(to).data[...] = to.data
                assert of is not None
                self.steps.append(_cut(self.twins.of(to), self.twins.of(of)))
                continue
            values = event.value if event.value is not None else None if of is not None else to.data.copy()
            self.steps.append(_write(self.twins.of(to), None if of is None else self.twins.of(of), values))

    def case(self, inputs: dict[str, array], outputs: dict[str, array]) -> LaunchCase:
        ins, outs = ({n: self.twins.of(a) for n, a in given.items()} for given in (inputs, outputs))
        return LaunchCase("end to end", None, ins, outs, self.steps, self.twins.memory.values())


def _cut(to: array, of: array) -> Callable[[bool], None]:
    """A step for a `cut`. Unrecorded it does nothing: differences must not pass it either, so `to` stays constant."""
    return lambda record: write_array("cut", to, of) if record else None


def _write(to: array, of: array | None, values: object) -> Callable[[bool], None]:
    """A step for a host write: a copy of `of`, or constant `values`."""

    def perform() -> None:
        to.data[...] = values if of is None else of.data.copy()

    def step(record: bool) -> None:
        if record:
            host_write("fill_" if of is None else "copy", to, of, values, perform)
        else:
            perform()

    return step


def pinned(event: Event) -> GradientError:
    """The error for running again, on other inputs, a tape with what was solved for those that were recorded."""
    text = f"a tape with a {event.kind.words[0]} cannot run again on other inputs."
    why, instead = "What was solved then belongs to the inputs of then.", "the program itself, recorded anew"
    return GradientError(text, slug="replay-func", where=event.where, why=why, instead=instead)


def closed(event: Event) -> GradientError:
    """The error for running again what runs code of the user's."""
    text = f"a tape with {event.kind.closed} ({event.label}) cannot be replayed."
    why = event.reason or "It runs code of yours on your own arrays, not on copies."
    return GradientError(text, slug="replay-func", where=event.where, why=why, instead="wb.launch(...) in its place")


def name_of(tape: Tape, span: Span) -> str:
    """The user's name of these bytes, quoted; else the id of their memory."""
    near = sorted(tape.names.near(span), key=lambda a: (a.span != span, not tape.names.given(a)))
    return repr(tape.names.given(near[0]) or near[0].label) if near else str(span.allocation)


def refuse_foreign(tape: Tape) -> None:
    """Raises GradientError [overwritten] for a write that the tape met and that is no step of it, but before one."""
    for n, event in enumerate(tape.events):
        if event.kind.own:
            continue
        later = [s for e in tape.events[n + 1 :] for s in (*e.reads, *e.writes) if e.kind.own]
        if met := [w for w in event.writes if any(s.overlaps(w) is not False for s in later)]:
            text = f"{name_of(tape, met[0])} was changed by {event.label!r} between two events of this tape."
            why = "The tape has not recorded how."
            instead = "with tape:   around that write too"
            raise GradientError(text, slug="overwritten", where=event.where, why=why, instead=instead)


class InFloat64(Rerun):
    """A tape on copies whose launches also compute tangents, recorded for a reverse walk: second derivatives."""

    on_other_inputs = False

    def __init__(self, tape: Tape):
        super().__init__(tape, False)
        if tape.keep != "all":
            text = "second derivatives by a tape that keeps only what adjoints read."
            why = "Its launches cannot be run again."
            raise GradientError(text, slug="not-kept", why=why, instead='wb.Tape(keep="all")')

    def before(self, event: Event) -> None:
        by_rule = event.op is not None and (event.op.op.along is not None or not event.followed)
        if event.inner is not None and self.twins:  # made at the first event
            return
        if event.kind.own and not (event.kind.repeatable or event.kind.pinned or by_rule):
            text = f"{event.label} has no second derivative."
            why = "Its adjoint is a function of its own, not a program that could be differentiated again."
            raise GradientError(text, slug="jvp-func", where=event.where, why=why, instead="launches in its place")
        super().before(event)
        if event.reverse is not None:
            self.steps[-1] = self._joint(event).run

    @cached_property
    def moved(self) -> CopiedArrays:
        """The tangents of the copies: zeros at the start."""
        made = CopiedArrays(self.twins.arrays, False)
        for m in made.memory.values():
            m.bytes[...] = 0
        return made

    @property
    def both(self) -> tuple[CopiedArrays, CopiedArrays]:
        """The copies, and their tangents."""
        return self.twins, self.moved

    def _joint(self, event: Event) -> Launch:
        command, back, of = event.command, event.reverse, event.command.program
        function = of.once(joint, of.function, back.reverse.active, command.plan.changing)
        made = launch_of(command, self.twins)
        tangents = [self.moved.of(command.places[k]) for k in back.shadows]
        for k, p, t in zip(back.shadows, function.params[len(made.flat) :], tangents, strict=True):
            if p.type.dtype != t.dtype:  # type: ignore[attr-defined]
                name = self.tape.names.called_by(event, k)
                text = f"{event.label!r}: {name!r} is {t.dtype}, whose tangent is wider than it."
                raise GradientError(text, slug="hvp-half", where=event.where, instead="wb.array(values, dtype=float)")
        return Launch(of.once(flat_program, of, function), made.dims, [*made.flat, *tangents], made.declared)

    def behind(self, event: Event) -> None:
        if event.inner is not None:
            self.steps.append(event.inner.again(event, self))
            return
        done = len(self.steps)
        super().behind(event)
        if event.op is not None and event.followed:
            there, moved = event.op.on(self.twins.of), event.op.on(self.moved.of)
            self.steps.append(lambda _: there.carry(moved, event.where))
        if event.command is not None or event.op is not None or not event.kind.own:
            return
        dst, src = leaves(event.arrays[0]), leaves(event.arrays[-1])
        for to, of in zip(dst, src, strict=True):
            copied = self.moved.of(of) if len(event.arrays) == 2 else None
            if is_float(to.dtype) and not event.kind.cuts:
                self.steps.insert(done, _write(self.moved.of(to), copied, 0))

    def product(self, loss: array, tangents: Mapping[array, Any]) -> dict[array, np.ndarray]:
        """{array: NumPy gradient, by its start, of the final tangent of `loss`}, for the start tangents {array: v}."""
        for x, v in tangents.items():
            moved = self.moved.of(x)
            add_into(moved.data, xp(x.device).asarray(v), moved.span)
            self.twins.of(x).requires_grad = True
        end, seeds = self.moved.of(loss), Workspace()
        seeds[end.allocation].view(end.span, gradient_dtype(end))[...] = 1
        space = self._pulled(seeds)
        return {x: value_of(self.twins.of(x), space) for x in tangents}

    def pulled(
        self,
        seeds: dict[Allocation, Any],
        tangents: dict[Allocation, Any],
        changes: Mapping[array, Any] = MappingProxyType({}),
    ) -> dict[Allocation, Shadow]:
        """By memory the gradient, by its start, of <seeds, final tangents>, for tangents of the start; all as bytes.

        changes   {array: numbers} of seeds: <changes, final contents> is added.
        """
        for a, data in tangents.items():
            self.moved.memory[a].bytes[...] = data
        space = Workspace()
        for a, data in seeds.items():
            space[self.moved.memory[a]].data[...] = data
        for y, v in changes.items():
            add_numbers(space, self.twins.of(y), v)
        space = self._pulled(space)
        return {a: space[twin] for a, twin in self.twins.memory.items() if twin in space}

    def _pulled(self, seeds: Workspace) -> Workspace:
        """Run the steps under a tape and walk it with these seeds of tangents."""
        for a in self.twins.arrays:
            if is_float(a.dtype) and a.allocation in self.tape.active and a.requires_grad:
                self.twins.of(a).requires_grad = True
        again = Tape(keep="all")
        with again:
            for step in self.steps:
                step(True)
        found = walk(again, seeds)[0]
        conventions.collect(again)
        conventions.warn(again)
        return found

"""The classic mistakes of automatic differentiation, made on purpose: `tape.backward(loss, pitfall=pitfalls.alias)`.

Each is a named variation of the exact reverse pass: another adjoint of the kernels (the exact construction with one
thing left out, for the interpreter alone), or another way to walk the tape. It acts on any tape, and where a program
does not step into it, it changes nothing. The result is a `Wrong`: no `.grad` is ever written, no tensor touched, and
every view says what it shows.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import allocation as memory
from ..arrays.allocation import Allocation
from ..arrays.array import array
from ..arrays.grouping import grouped
from ..arrays.ports import arrays_behind
from ..arrays.workspace import Shadow, Workspace, shadow_view
from ..device import on_host
from ..errors import GradientError
from ..kernels import ir
from ..kernels.emit.signature import PLAIN
from ..kernels.ir import Region, Stmt, Value, walk
from ..kernels.ops import control as c, memory as mem, vectors
from ..kernels.passes import simplify
from ..kernels.passes.adjoint import Adjoint, Reverse, adjoint as exact
from ..kernels.reading.reader import Reader
from ..kernels.row import Row
from ..kernels.types import Scalar, is_float
from ..launches.adjoint_plan import Backward
from ..launches.executable import Executable
from ..launches.plan import Plan
from ..tapes.events import Event
from ..tapes.late_imports import ask
from ..tapes.recording import Recording
from ..tapes.reverse import reverse, walk as walk_back
from ..tapes.tape import Tape

if TYPE_CHECKING:
    from ..kernels.analysis.launch_form import Groups
    from ..kernels.program import Program

Mistake = Callable[["Program", frozenset[str], "Groups"], Reverse]

SHADOW = ir.Role.SHADOW

# passes its argument on, and no gradient back; not among the rows of the language
DETACH = Row("detach", type=lambda t: t, elementwise=True, meaning=lambda x: x, c="{0}")
PEEK = Row("peek", type=lambda stack: stack.dtype, meaning=lambda stack: stack.held[-1])


def without_components(program: Program, active: frozenset[str], groups: Groups) -> Reverse:
    """The adjoint in which a value written into a component of a vector gets no gradient."""
    made = simplify.rewrite(program.function)
    for region in _regions(made.body):
        body = []
        for stmt in region.body:
            if stmt.row in (vectors.INSERT, vectors.INSERT_AT) and is_float(stmt.args[-1].type):
                value = stmt.args[-1]
                out = Value(value.type, value.name, stmt.where)
                out.stmt = Stmt(DETACH, (value,), (out,), where=stmt.where)
                body.append(out.stmt)
                stmt.args = (*stmt.args[:-1], out)
            body.append(stmt)
        region.body[:] = body
    return exact(made, active, groups)


def _regions(region: Region) -> list[Region]:
    return [region, *(inner for stmt in walk(region) for inner in stmt.regions)]


class _AliasReader(Reader):
    """A reader that takes `b = a` for a copy that no gradient passes."""

    def right_side(self, node: ast.expr, target: ast.expr) -> Any:
        value = super().right_side(node, target)
        if isinstance(node, ast.Name) and isinstance(value, ir.Value) and is_float(value.type):
            return self.builder.emit(DETACH, value, name=value.name)
        return value


def without_aliases(program: Program, active: frozenset[str], groups: Groups) -> Reverse:
    """The adjoint in which a second name for a local (`b = a`) takes the gradient from the first."""
    kernel = program.kernel
    if kernel is None:  # of the library: it has no text, in which a variable could have two names
        return exact(program.function, active, groups)
    reading = _AliasReader().kernel(kernel.func, kernel.__name__, kernel.types)
    return exact(simplify.primal(reading.function), active, groups)


def with_frozen_loops(program: Program, active: frozenset[str], groups: Groups) -> Reverse:
    """The adjoint in which every turn of a loop sees the values of the last turn."""
    made = exact(program.function, active, groups)
    copy = simplify.rewrite(made.function)
    for stmt in walk(copy.body):
        if stmt.row is c.POP:
            stmt.row = PEEK
    return replace(made, function=copy)


def with_kept_outputs(program: Program, active: frozenset[str], groups: Groups) -> Reverse:
    """The adjoint in which a store does not clear the gradient of what it overwrote: the next backward gets it too."""
    made = Adjoint(simplify.rewrite(program.function), active, groups).reversed()
    for region in _regions(made.function.body):
        region.body[:] = [s for s in region.body if s.row is not mem.STORE or ir.root(s.args[0]).role is not SHADOW]
    return made


Hook = Callable[[Event, Workspace], None]


@dataclass(frozen=True, eq=False)
class Pitfall:
    """One mistake. `what` describes it; the rest implements it.

    adjoint   another adjoint of each kernel. rewinds=False: kept values are not put back. around: what is done to
    the workspace before and after a launch is reversed. start: what is done to the seeds.
    """

    name: str
    what: str
    adjoint: Mistake | None = None
    rewinds: bool = True
    around: Callable[[Event, Workspace], Callable[[], None] | None] | None = None
    start: Callable[[Tape, Workspace], None] | None = None
    end: Callable[[Tape, Workspace], None] | None = None

    def __repr__(self) -> str:
        return f"pitfalls.{self.name}: {self.what}"


class Wrong(Mapping):
    """Gradients that are wrong on purpose, by array (or tensor), as new NumPy arrays. Nothing is published.

    `pitfall` is the mistake that made them, `show()` draws the tape with them.
    """

    def __init__(self, tape: Tape, pitfall: Pitfall, seeds: dict[Allocation, Any], space: Workspace):
        self.tape, self.pitfall, self.seeds = tape, pitfall, seeds
        wanted = [a for a in tape.arrays.values() if a.requires_grad and a.allocation in tape.active]
        self._found = {a: on_host(shadow_view(a, space[a.allocation])).copy() for a in wanted}

    @property
    def title(self) -> str:
        return f"WRONG ON PURPOSE: pitfall {self.pitfall.name}"

    def __getitem__(self, key: object) -> np.ndarray:
        meant = [key] if isinstance(key, array) else [a for behind in arrays_behind for a in behind(key)]
        spans = [a.span for a in meant]
        found = next((g for a, g in self._found.items() if a.span in spans), None)
        if found is None:
            raise KeyError("no array of this tape with requires_grad")
        return found

    def __iter__(self) -> Iterator[array]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        names = {a: self.tape.names.noted.get(id(a)) or a.label for a in self}
        lines = [f"{names[a]}: {np.array2string(g, threshold=12, precision=6)}" for a, g in self._found.items()]
        return "\n".join([f"{self.title}. {self.pitfall.what}", *lines])

    def show(self, against: object = None) -> Any:
        """The static picture of the tape with this flow, marked as wrong. against=tape: with the exact one over it."""
        return ask("show", self.tape, self, against)

    def explore(self, against: object = None) -> Any:
        """The live picture of the tape with this flow, marked as wrong. against=tape: with the exact one over it."""
        return ask("explore", self.tape, self, against)

    def retrace(self, observe: Hook, before: Hook | None = None) -> Workspace:
        """Repeat the wrong walk for an observer."""
        with memory.LOCK, memory.unrecorded():
            space = Workspace({a: Shadow(a, start=data) for a, data in self.seeds.items()})
            return _wrong_walk(self.tape, self.pitfall, space, observe, before)


def backward(tape: Tape, pitfall: Pitfall, space: Workspace) -> Wrong:
    """The gradients of the reverse pass with this mistake, from these seeds. Raises GradientError [pitfall-device]."""
    if not isinstance(pitfall, Pitfall):
        raise TypeError(f"a pitfall is one of wb.pitfalls: {', '.join(p.name for p in ALL)}; not {pitfall!r}")
    if any(a.device.is_cuda for a in tape.active):
        text = "pitfalls are for tapes on the CPU."
        raise GradientError(text, slug="pitfall-device", why="They run in the interpreter.", instead='device="cpu"')
    if pitfall.start is not None:
        pitfall.start(tape, space)
    seeds = {a: shadow.data.copy() for a, shadow in space.items()}
    _wrong_walk(tape, pitfall, space)
    if pitfall.end is not None:
        pitfall.end(tape, space)
    return Wrong(tape, pitfall, seeds, space)


def _wrong_walk(
    tape: Tape, pitfall: Pitfall, space: Workspace, observe: Hook | None = None, before: Hook | None = None
) -> Workspace:
    """The reverse walk with this mistake."""

    def step(tape: Recording, event: Event, space: Workspace, after: dict) -> None:
        leave = pitfall.around(event, space) if pitfall.around is not None else None
        right = event.reverse
        if right is not None and pitfall.adjoint is not None:
            plan = event.command.plan
            event.reverse = plan.program.once(_other, plan, right, pitfall.adjoint)
        try:
            reverse(tape, event, space, after)
        finally:
            event.reverse = right
        if leave is not None:
            leave()

    return walk_back(tape, space, observe, before, step=step, rewinds=pitfall.rewinds)[0]


def _other(plan: Plan, right: Backward, mistake: Mistake) -> Backward:
    reverse = mistake(plan.program, right.reverse.active, plan.changing)
    position = {leaf.name: k for k, leaf in enumerate(plan.program.leaves)}
    private = tuple(position[n] for n in sorted(reverse.private))
    executable = Executable(plan.program, reverse.function, replace(plan.form, backend="numpy"), PLAIN)
    return replace(right, reverse=reverse, executable=executable, private=private, pull=None)


# ---- mistakes in how a tape is walked


def _values_as_gradients(tape: Tape, space: Workspace) -> None:
    """The mistake of one memory for both: a leaf's gradient starts as its values."""
    for a in tape.active:
        alike = isinstance(tape.scalars.get(a), Scalar) and (a.grad_scale or 1) == 1
        if alike and a.asked and a not in tape.log.written and a not in space:
            space[a] = Shadow(a, start=a.bytes)


def _unmarked(event: Event, space: Workspace) -> None:
    """The mistake that an array without requires_grad passes no gradient on."""
    for span in (*event.reads, *event.writes):
        if span.allocation in space and not span.allocation.asked:
            space[span.allocation].data[...] = 0


def _unmarked_field(event: Event, space: Workspace) -> Callable[[], None] | None:
    """The mistake that one array of a struct without requires_grad excludes the others too."""
    if event.command is None:
        return None
    leaves, flat = event.command.program.leaves, event.command.flat
    fields = (k for k in event.command.plan.floats if leaves[k].path)
    structs = grouped((leaves[k].arg, flat[k].allocation) for k in fields)
    lost = {a for found in structs.values() if not all(a.asked for a in found) for a in found}
    before = {a: space[a].data.copy() for a in lost if a in space}
    for a in before:
        space[a].data[...] = 0
    written = {span.allocation for span in event.writes}

    def leave() -> None:
        for a in lost:
            if a in space:
                space[a].data[...] = before[a] if a in before and a not in written else 0

    return leave


class _Memory(weakref.WeakKeyDictionary[Tape, dict[Allocation, Any]]):
    """The state that a mistake carries, per tape, from one backward call to the next."""

    def add(self, tape: Tape, space: Workspace) -> None:
        for a, data in self.get(tape, {}).items():
            wide = np.float32 if (a.grad_scale or 1) == 2 else tape.scalars[a].numpy
            mine = space[a].data.view(wide)
            mine += data.view(wide)

    def keep(self, tape: Tape, space: Workspace, which: Callable[[Allocation], bool]) -> None:
        floats = [a for a in space if which(a) and isinstance(tape.scalars.get(a), Scalar)]
        self[tape] = {a: space[a].data.copy() for a in floats}


_outputs, _seeds = _Memory(), _Memory()


def _add_seeds(tape: Tape, space: Workspace) -> None:
    _seeds.add(tape, space)
    _seeds.keep(tape, space, lambda a: True)


def forget(tape: Tape) -> None:
    """Let the mistakes that remember (`several_outputs`, `persistent_seeds`) begin anew on this tape."""
    _outputs.pop(tape, None)
    _seeds.pop(tape, None)


# ---- the list

values = Pitfall(
    "values",
    "The gradient of a leaf is added to its values, as if both were one memory: here are the values it"
    " would have become.",
    start=_values_as_gradients,
)
struct_field = Pitfall(
    "struct_field",
    "One array of a struct without requires_grad: none of the struct's arrays takes part.",
    around=_unmarked_field,
)
several_outputs = Pitfall(
    "several_outputs",
    "A store does not use up the gradient of what it overwrote, and it stays for the next call.",
    adjoint=with_kept_outputs,
    start=_outputs.add,
    end=lambda tape, space: _outputs.keep(tape, space, lambda a: a in tape.log.written),
)
components = Pitfall(
    "components", "What is written into a component of a vector gets no gradient.", adjoint=without_components
)
alias = Pitfall(
    "alias",
    "A second name for a local (`b = a`) gets the gradient, and keeps it from the first.",
    adjoint=without_aliases,
)
overwritten = Pitfall(
    "overwritten", "Adjoints read arrays as they are now, not as the launch found them.", rewinds=False
)
persistent_seeds = Pitfall(
    "persistent_seeds", "The seed of the last row is still there when the next row is seeded.", start=_add_seeds
)
frozen_loops = Pitfall(
    "frozen_loops", "The reverse of a loop finds the values of the last turn in every turn.", adjoint=with_frozen_loops
)
missing_requires_grad = Pitfall(
    "missing_requires_grad",
    "An array in the middle without requires_grad has no gradient to pass on.",
    around=_unmarked,
)

ALL = tuple(made for made in list(globals().values()) if isinstance(made, Pitfall))

__all__ = ["ALL", "Pitfall", "Wrong", *(made.name for made in ALL)]
__dir__ = __all__.copy

"""Calls as torch and JAX differentiate them: pure functions of their arguments, with derivatives of any order.

A recorded call, run again on copies together with its tangents, is a recorded call in turn (`RecordedCall.lifted`). Its
arguments are those of the first and a direction for some of them, its results are those of the first and their
derivatives in that direction. So a tape's reverse walk is all that is needed: the gradient of a lifted call is a second
derivative, that of a call lifted twice a third one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays import allocation as memory
from ..arrays.array import array, clone, on_device
from ..arrays.creation import zeros
from ..arrays.dtypes import differentiable
from ..arrays.host_reads import AfterReading
from ..arrays.read_values import HostRead
from ..arrays.workspace import Workspace, add_into, float_parts
from ..errors import GradientError, LaunchError
from ..kernels.analysis.accesses import accesses_by_array
from ..kernels.program import Leaf, Program
from ..kernels.types import Array, Struct, is_float
from ..launches.plan import grid as grid_of
from ..tapes import conventions
from ..tapes.jvp import shadow_of
from ..tapes.private_copies import InFloat64
from ..tapes.reverse import walk
from ..tapes.tape import Tape

Dims = tuple[int, ...]
Extent = int | Sequence[int]  # as users write a grid or a shape
GridLike = Extent | Callable[..., Extent] | None  # also a function of a call's arguments
Output = Extent | tuple[Extent, object]  # with a dtype to be checked
OutputsLike = Sequence[Output] | Callable[..., Sequence[Output]] | None


# ---- derivatives


class RecordedCall(NamedTuple):
    """A call on a tape of its own. `inputs`: the array behind each argument; None if it is constant."""

    tape: Tape
    inputs: list[array | None]
    outputs: list[array]

    def gradients(self, seeds: Mapping[int, Any], wanted: Iterable[int]) -> dict[int, Any]:
        """The adjoints {input: view} of these seeds {output: values}; without those that nothing arrives at."""
        space = Workspace()
        with memory.LOCK, memory.unrecorded():
            for k, seed in seeds.items():
                view = shadow_of(self.outputs[k], space)
                add_into(view, on_device(self.outputs[k], seed).astype(view.dtype), self.outputs[k].span)
            self.tape.border.run.chained = True  # nobody knows what these seeds were multiplied by
            walk(self.tape, space)
            conventions.warn(self.tape)
        known = ((k, self.inputs[k]) for k in wanted)
        return {k: shadow_of(a, space) for k, a in known if a is not None and a.allocation in space}

    def lifted(self, directions: Mapping[int, Any], wanted: Iterable[int]) -> RecordedCall:
        """This call and its derivative in one direction {input: values}, recorded on copies.

        Its inputs are those of this call, then the directions; its outputs those of this call, then a tangent for each
        float one. `wanted`: the inputs that it will be differentiated by. The tape must have been made with keep="all".
        Raises what `wb.hvp` raises.
        """
        with memory.LOCK, memory.unrecorded():
            twice = InFloat64(self.tape).follow()
            inputs = [None if a is None else _twin(twice, a) for a in self.inputs]
            moved = {k: _tangent(twice, a) for k in directions if (a := self.inputs[k]) is not None}
            for k, t in moved.items():
                add_into(t.data, on_device(t, directions[k]).astype(t.data.dtype), t.span)
            made = [*inputs, *(moved.get(k) for k in directions)]
            for k in wanted:
                if (a := made[k]) is not None:
                    a.requires_grad = True
            outputs = [_twin(twice, a) for a in self.outputs]
            outputs += [_tangent(twice, a) for a in self.outputs if is_float(a.dtype)]
        again = Tape(keep="all")
        with again:
            again.refuses_late = False
            for step in twice.steps:
                step(True)
        return RecordedCall(again, made, outputs)


class PureCall:
    """A function of a framework's values that can be recorded. `count`: of its outputs; `floats`: the float ones.

    `recorded`: the call as it ran, if it was recorded for a reverse pass, with the inputs that it follows; `needed`:
    those of its inputs of which the adjoint reads the values.
    """

    count = 0
    floats: Sequence[int] = ()
    recorded: RecordedCall | None = None
    followed: frozenset[int] = frozenset()
    needed: frozenset[int] = frozenset()

    def record(self, values: Sequence[Any], wanted: frozenset[int], keep: str) -> RecordedCall:
        """Run it on a tape of its own. `wanted`: the inputs that it will be differentiated by."""
        raise NotImplementedError

    def again(self) -> PureCall:
        """The same call, to be run on other values."""
        return self


class DerivativeCall(PureCall):
    """Another call together with its derivative in a direction: its inputs, then a direction for those in `which`.

    Its outputs are those of `base`, then the tangents of its float ones.
    """

    def __init__(self, base: PureCall, which: Sequence[int], inputs: int):
        self.base, self.which, self.inputs = base, tuple(which), inputs
        self.tangents = {k: base.count + at for at, k in enumerate(base.floats)}  # by the output that they belong to
        self.count = base.count + len(self.tangents)
        self.floats = [*base.floats, *self.tangents.values()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DerivativeCall) and self.base == other.base and self.which == other.which

    def __hash__(self) -> int:
        return hash((self.base, self.which))

    def again(self) -> DerivativeCall:
        return DerivativeCall(self.base.again(), self.which, self.inputs)

    def record(self, values: Sequence[Any], wanted: frozenset[int], keep: str) -> RecordedCall:
        own = frozenset(k for k in wanted if k < self.inputs) | frozenset(self.which)
        made = self.base.record(values[: self.inputs], own, "all")
        return made.lifted(dict(zip(self.which, values[self.inputs :], strict=True)), wanted)


def _twin(twice: InFloat64, a: array) -> array:
    return twice.twins.of(a) if a.allocation in twice.twins.memory else clone(a)


def _tangent(twice: InFloat64, a: array) -> array:
    return twice.moved.of(a) if a.allocation in twice.moved.memory else zeros(a.shape, a.dtype, a.device)


# ---- the grid and the outputs of a kernel


def form(
    program: Program, args: Sequence[object], dim: GridLike, outputs: OutputsLike, same: Callable[[Any], object]
) -> tuple[Dims, list[Dims]]:
    """The grid of a call with these arguments, and the shape of each output. `same`: a dtype of theirs as one of ours.

    Raises LaunchError [function] where they do not fit, or where the grid would leave a part of an input unread.
    """
    params, where = program.params[len(args) :], program.function.where
    given_dim = dim(*args) if callable(dim) else dim
    given = outputs(*args) if callable(outputs) else outputs
    dims = None if given_dim is None else grid_of(program.name, given_dim)
    if dims is None and given is None:
        dims = _grid_of_inputs(program, args)
    shapes: Sequence[Any] = [dims] * len(params) if given is None else list(given)
    if not params or len(shapes) != len(params):
        names = ", ".join(name for name, _ in program.params)
        text = f"function of {program.name!r}: {len(args)} arguments leave {len(params)} of the parameters ({names})"
        why = "The arguments of a call are the first parameters, the outputs are all the others."
        raise LaunchError(f"{text} for {len(shapes)} outputs.", slug="function", where=where, why=why)
    found = [_shape(program, name, type, shape, same) for (name, type), shape in zip(params, shapes, strict=True)]
    dims = found[0] if dims is None else dims
    if not callable(dim):
        _check_grid(program, args, dims)
    return dims, found


def _shape(program: Program, name: str, type: object, given: Any, same: Callable[[Any], object]) -> Dims:
    """The shape of an output from what the user wrote for it: an int, a tuple, or (shape, dtype)."""
    where = program.function.where
    if not isinstance(type, Array) or isinstance(type.dtype, Struct):
        text = f"function of {program.name!r}: the output {name!r} is {type}, not an array of numbers or vectors."
        raise LaunchError(text, slug="function", where=where)
    if isinstance(given, tuple | list) and len(given) == 2 and not isinstance(given[1], int | np.integer):
        given, dtype = given
        if same(dtype) not in (type.dtype, getattr(type.dtype, "scalar", None)):
            raise LaunchError(f"function of {program.name!r}: {name!r} is {type}, not {dtype}", slug="function")
    shape = (int(given),) if isinstance(given, int | np.integer) else tuple(int(n) for n in given)
    if len(shape) != type.ndim:
        text = f"function of {program.name!r}: the output {name!r} is {type}, its shape was given as {shape}."
        raise LaunchError(text, slug="function", where=where, instead="outputs=[shape, ...], without component axes")
    return shape


def _extents(program: Program, args: Sequence[object]) -> Iterable[tuple[Leaf, int, int, int]]:
    """Yields (input, axis, its extent, axis of the grid) where a kernel reads along an axis at `tid()` alone."""
    accesses = accesses_by_array(program.function)
    for leaf in program.leaves:
        if leaf.arg >= len(args) or not isinstance(leaf.type, Array) or leaf.name not in accesses:
            continue
        value: Any = args[leaf.arg]
        for name in leaf.path[: leaf.structs]:
            value = getattr(value, name, None)
        shape = getattr(value, "shape", ())
        for axis in range(min(leaf.type.ndim, len(shape))):
            forms = {access.indices[axis] for access in accesses[leaf.name].all}
            index = forms.pop()
            if not forms and index is not None and index.constant == 0 and len(index.terms) == 1:
                (symbol, factor), *_ = index.terms
                if symbol[0] == "tid" and factor == 1:
                    yield leaf, axis, int(shape[axis]), symbol[1]


def _grid_of_inputs(program: Program, args: Sequence[object]) -> Dims:
    found: dict[int, int] = {}
    for _, _, extent, along in _extents(program, args):
        found.setdefault(along, extent)
    if set(found) != set(range(program.function.rank)):
        text = f"function of {program.name!r} needs the grid or the shapes of the outputs."
        why = "It is taken from the inputs where the kernel reads them at `tid()`, along each of its indices."
        instead = f"function({program.name}, dim=n), or dim=lambda x, ...: x.shape[0]"
        raise LaunchError(text, slug="function", where=program.function.where, why=why, instead=instead)
    return tuple(found[k] for k in range(program.function.rank))


def _check_grid(program: Program, args: Sequence[object], dims: Dims) -> None:
    for leaf, axis, extent, along in _extents(program, args):
        if along < len(dims) and extent > dims[along]:
            text = f"function of {program.name!r}: {leaf.name!r} has {extent} elements along axis {axis}, the grid"
            text += f" {dims} only {dims[along]}."
            why = "The kernel reads it at `tid()` alone: the rest would be left out in silence."
            instead = f"function({program.name}), with the grid of its inputs, or {leaf.name}[:{dims[along]}]"
            raise LaunchError(text, slug="function", where=program.function.where, why=why, instead=instead)


def check_writes(program: Program, count: int, why: str) -> None:
    """Raises LaunchError [function] for a kernel that writes to one of its first `count` parameters, the inputs."""
    inputs = {leaf.name for leaf in program.leaves if leaf.arg < count}
    for name, group in accesses_by_array(program.function).items():
        if name in inputs and (group.writes or group.accumulates):
            text = f"function of {program.name!r}: the kernel writes to {name!r}, an input."
            instead = "a kernel that writes to another array, which is then an output"
            raise LaunchError(text, slug="function", where=program.function.where, why=why, instead=instead)


# ---- values that leave and arrive


def refuse_leaving(sources: Iterable[HostRead], library: str, instead: str) -> None:
    """Raises GradientError [host-values] for values that a recording tape follows, and the other library would not."""
    for tape in memory.recorders():
        if found := tape.host.live(tuple(sources)):
            text = f"{found[0].label} is on an active path of the open tape, and its values leave for {library}."
            why = "Nothing says what is computed from them there: the gradient would end in silence."
            raise GradientError(text, slug="host-values", where=memory.caller_where(), why=why, instead=instead)


def arrived(made: array, sources: tuple[HostRead, ...], fresh: bool = True) -> None:
    """Tell the tape of values of another library, now the array `made`.

    With certain `sources` a gradient that comes to them is refused. Without, in `fresh` memory, which that library may
    have made of anything, `backward` warns if a gradient comes there and values of the tape had been read before.
    """
    tape = memory.recorder()
    if tape is None or tape.muted or not differentiable(made.dtype):
        return
    if sources:
        elsewhere = tuple(s for s in sources if s.span.allocation is not made.allocation)
        if elsewhere:
            tape.values_written(made.allocation, made.span.offset, made.data, elsewhere, memory.caller_where())
    elif fresh and not tape.log.has_touched(made.span):
        read = tuple(s for s in tape.numbers.readings if s.span.allocation is not made.allocation)
        for part in float_parts(made).values() if (found := tape.host.live(read)) else ():
            tape.host.note(part, AfterReading(found), memory.caller_where(), "values of another library")

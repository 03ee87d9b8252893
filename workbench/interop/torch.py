"""Torch: tensors as arrays and back (`tensors`), and kernels as functions that torch differentiates to any order.

`CallNode` is a call, `GradientNode` its gradient; the derivatives of both are nodes of these two kinds again, of a
`DerivativeCall`. So torch finds what it needs wherever it asks, also under the transforms of `torch.func`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import _add_batch_dim, _remove_batch_dim  # pyright: ignore[reportPrivateImportUsage]  # of vmap
from torch._C._functorch import is_legacy_batchedtensor  # pyright: ignore[reportMissingModuleSource]
from torch.autograd import forward_ad

from ..arrays import allocation as memory
from ..arrays.array import array
from ..arrays.dtypes import dtype_of
from ..arrays.host_reads import sources_of
from ..arrays.read_values import united
from ..arrays.scalar import scalar
from ..arrays.span import Span
from ..device import xp
from ..errors import GradientError
from ..kernels import types
from ..kernels.program import Kernel
from ..kernels.reading.declare import Instance, struct_of
from ..kernels.types import Array
from ..launches.command import Command
from ..launches.launch import launch
from ..tapes.reverse import verify
from ..tapes.tape import Tape
from .pure_calls import DerivativeCall, Dims, GridLike, OutputsLike, PureCall, RecordedCall, check_writes, form
from .tensors import (
    carrying_tensor,
    device_from_torch,
    device_to_torch,
    dtype_from_torch,
    dtype_to_torch,
    from_torch,
    like_tensor,
    shaped_tensor,
    span_of,
    tensor_of,
    to_torch,
)
from .torch_op import op

if TYPE_CHECKING:
    from torch._functorch.autograd_function import VmapInfo


__all__ = [
    "device_from_torch",
    "device_to_torch",
    "dtype_from_torch",
    "dtype_to_torch",
    "from_torch",
    "function",
    "op",
    "to_torch",
]
__dir__ = __all__.copy

# ---- kernels as torch functions


def function(kernel: Kernel, dim: GridLike = None, outputs: OutputsLike = None) -> TorchFunction:
    """A kernel as a function of torch: `y = function(kernel)(x1, x2, 3.0)`, differentiable by torch.

    The arguments of a call are the first parameters of the kernel: tensors (also in fields of structs, and for numbers
    and vectors), numbers, vectors. The parameters that remain are the outputs: new tensors of zeros, which the kernel
    fills and the call returns, one alone or a tuple. The kernel must not write to its inputs.

    dim       the launch grid: an int, a tuple, or a function of the call's arguments. By default the shape of the
              first output; without `outputs` that of the inputs, where the kernel reads them at `tid()`.
    outputs   shapes of the outputs, without component axes: a list of ints or tuples, or a function of the call's
              arguments that gives one. By default every output has the shape of the grid. `(shape, dtype)` also checks
              the dtype, which the kernel's annotation decides.

    Derivatives are exact, in both modes and of any order (`create_graph=True`, `torch.autograd.functional`,
    `torch.func`); `vmap` launches once per element. Each argument has a gradient of its own, also where two tensors
    share memory. Changing an input in place that the adjoint reads is refused ([overwritten]), and so is what `wb.hvp`
    refuses, where a second derivative is asked for.
    Raises LaunchError [function] for arguments that do not fit, or that the grid would not read to the end.
    """
    return TorchFunction(kernel, dim, outputs)


class TorchFunction:
    """A kernel that torch can call and differentiate. Made by `function`."""

    def __init__(self, kernel: Kernel, dim: GridLike, outputs: OutputsLike):
        self.kernel, self.dim, self.outputs = kernel, dim, outputs
        self.__name__, self.__doc__ = kernel.__name__, kernel.__doc__

    def __repr__(self) -> str:
        return f"<torch function of {self.kernel!r}>"

    def __call__(self, *args: object) -> Any:
        program = self.kernel.program()
        found = [t for arg in args for t in _tensors(arg)]
        for t in found:
            dtype_from_torch(t.dtype)
        dtype = lambda d: dtype_from_torch(d) if isinstance(d, torch.dtype) else dtype_of(d)  # noqa: E731
        grid, shapes = form(program, args, self.dim, self.outputs, dtype)
        check_writes(program, len(args), "Torch would not know that its tensor has changed.")
        placed = repeat(_PLACE)
        call = TorchCall(self.kernel, [_replaced(arg, placed) for arg in args], grid, shapes)
        call.follows, frame = torch.is_grad_enabled(), memory.caller_frame()
        call.place = frame and (frame.f_code, frame.f_lasti)
        followed = call.follows and any(t.requires_grad for t in found)
        if followed or torch._C._are_functorch_transforms_active() or _forward_mode():
            made = _applied(CallNode, call, *found)
        else:
            made = call.run([t.detach() for t in found])
        sources = () if memory.recorder() is None else united(map(sources_of, (*args, *found)))
        made = tuple(carrying_tensor(t, sources) for t in made)
        return made[0] if len(made) == 1 else made


def _forward_mode() -> bool:
    """True inside `torch.autograd.forward_ad.dual_level()`."""
    return forward_ad._current_level >= 0


_PLACE = torch.empty(0)  # stands for a tensor in the arguments of a call, which hold none of the user's


def _tensors(arg: object) -> Iterator[torch.Tensor]:
    """The tensors of an argument in order: itself, or in the fields of a struct."""
    if isinstance(arg, torch.Tensor):
        yield arg
    elif isinstance(arg, Instance):
        for name, _ in struct_of(arg).fields:
            yield from _tensors(getattr(arg, name))
    elif isinstance(arg, array | scalar) and arg.requires_grad and torch.is_grad_enabled():
        tensor = "wb.to_torch(a, requires_grad=True)" if isinstance(arg, array) else "torch.tensor(a.value)"
        text = f"{arg.label} requires a gradient, and torch cannot carry it."
        raise GradientError(text, slug="array-in-function", instead=f"a tensor: {tensor}")


def _replaced(arg: object, tensors: Iterator[torch.Tensor]) -> Any:
    """The argument with its tensors replaced one by one."""
    if isinstance(arg, torch.Tensor):
        return next(tensors)
    if isinstance(arg, Instance):
        return type(arg)(**{name: _replaced(getattr(arg, name), tensors) for name, _ in struct_of(arg).fields})
    return arg


class TorchCall(PureCall):
    """One launch of a kernel. `args` has `_PLACE` for each tensor; `place`: of the user's call."""

    place: Any = None

    def __init__(self, kernel: Kernel, args: Sequence[Any], grid: Dims, shapes: Sequence[Dims]):
        self.kernel, self.args, self.grid, self.shapes = kernel, args, grid, shapes
        program = kernel.program()
        self.types: list[Array] = [type for _, type in program.params[len(args) :] if isinstance(type, Array)]
        self.count, self.follows = len(self.types), False
        self.values: frozenset[int] = frozenset()  # the tensors that are numbers or vectors to the kernel
        self.floats = [k for k, type in enumerate(self.types) if types.is_float(type.dtype)]

    def again(self) -> TorchCall:
        made = TorchCall(self.kernel, self.args, self.grid, self.shapes)
        made.follows, made.place = self.follows, self.place
        return made

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Launch, and return the outputs; recorded if torch follows one of the tensors."""
        followed = frozenset(k for k, t in enumerate(tensors) if t.requires_grad) if self.follows else frozenset()
        made = self._outputs(tensors)
        results = [t.detach() for t in made]  # the tape holds these: it must not hold what will hold the tape
        if not followed:
            self._command([t.detach() for t in tensors], results)[0].launch(record_tape=False)
            return made
        self.recorded, self.followed = self.record(tensors, followed, "needed", results), followed
        needed = self.recorded.tape.needed
        needed.settle()
        given = [(k, a) for k, a in enumerate(self.recorded.inputs) if a is not None]
        plain = {k for k, a in given if needed.of(a.allocation).recent is None}
        self.needed = frozenset(range(len(tensors))) - (plain - self.values)
        return made

    def _outputs(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        device = tensors[0].device if tensors else torch.device("cpu")
        return [
            torch.zeros((*shape, *getattr(t.dtype, "shape", ())), dtype=dtype_to_torch(t.dtype), device=device)
            for t, shape in zip(self.types, self.shapes, strict=True)
        ]

    def _command(self, own: list[torch.Tensor], results: list[torch.Tensor]) -> tuple[Command, list[array | None]]:
        """The launch, and the array that each tensor became; None for whole numbers given as values."""
        values, params = iter(own), self.kernel.program().params
        inputs = [_replaced(arg, values) for arg in self.args]
        given = [
            t.detach().cpu().numpy()[()] if isinstance(t, torch.Tensor) and not isinstance(type, Array) else t
            for t, (_, type) in zip(inputs, params, strict=False)
        ]
        command = launch(self.kernel, self.grid, given, results, record_cmd=True).command
        places, declared = list(command.flat), []
        found: dict[int, array] = {}
        for k, leaf in enumerate(command.program.leaves):
            value: Any = inputs[leaf.arg] if leaf.arg < len(inputs) else None
            for name in leaf.path[: leaf.structs]:
                value = getattr(value, name, None)
            if not isinstance(value, torch.Tensor):
                continue
            if not isinstance(leaf.type, Array) and types.is_float(leaf.type):
                places[k] = shaped_tensor(value, span_of(value), leaf.type)
                declared.append(k)
            if isinstance(places[k], array):
                found[id(value)] = places[k]
        self.values = frozenset(k for k, t in enumerate(own) if any(found.get(id(t)) is places[n] for n in declared))
        if declared:
            command = command.declaring(places, tuple(declared))
        return command, [found.get(id(t)) for t in own]

    def record(
        self,
        values: Sequence[torch.Tensor],
        wanted: frozenset[int],
        keep: str,
        results: list[torch.Tensor] | None = None,
    ) -> RecordedCall:
        command, inputs = self._command(_separate(values), self._outputs(values) if results is None else results)
        tape = Tape(keep)
        tape.refuses_late = False  # the tensors that torch follows decide its leaves, later requests do not
        tape.active.update((a.allocation, None) for k in wanted if (a := inputs[k]) is not None)
        with memory.recorded_by(tape):
            command.launch()
        for event in tape.events:
            event.place = self.place or event.place
        count = len(self.args)
        outputs = [a for leaf, a in zip(command.program.leaves, command.flat, strict=True) if leaf.arg >= count]
        return RecordedCall(tape, inputs, outputs)


def _separate(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors detached; those that share memory with themselves or with an earlier one as copies.

    To torch every argument is a variable of its own, to the tape every byte is.
    """
    done: list[torch.Tensor] = []
    spans: list[Span] = []
    for t in tensors:
        own = t.detach()
        span = span_of(own)
        if span.self_overlapping or any(span.overlaps(other) is not False for other in spans):
            own = own.clone(memory_format=torch.contiguous_format)
            span = span_of(own)
        done.append(own)
        spans.append(span)
    return done


def _values(t: torch.Tensor) -> Any:
    """The numbers of a tensor, as an array of NumPy or CuPy."""
    t = t.detach().resolve_neg()
    return t.numpy() if t.device.type == "cpu" else xp(device_from_torch(t.device)).asarray(t)


class NodeContext(Protocol):
    """The `ctx` of torch, kept between the forward and the backward of a call, with our attributes on it."""

    call: PureCall
    others: dict[int, torch.Tensor]
    wanted: tuple[int, ...]
    seeded: tuple[int, ...]
    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[torch.Tensor, ...]
    save_for_backward: Callable[..., None]
    save_for_forward: Callable[..., None]
    mark_non_differentiable: Callable[..., None]
    set_materialize_grads: Callable[[bool], None]


class CallNode(torch.autograd.Function):
    """Torch's side of a call: `apply(call, *tensors)` gives its outputs."""

    @staticmethod
    def forward(call: PureCall, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if isinstance(call, TorchCall):
            return tuple(call.run(tensors))
        made = call.record([t.detach().resolve_neg() for t in tensors], frozenset(), "all")
        return tuple(tensor_of(a.data, tensors[0].device) for a in made.outputs)

    @staticmethod
    def setup_context(ctx: NodeContext, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        call, *tensors = inputs
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[t for t in output if not t.dtype.is_floating_point])
        # tensors that the adjoint does not read may be changed by torch meanwhile
        own = call.recorded is not None and not (torch._C._are_functorch_transforms_active() or _forward_mode())
        ctx.others = {k: t.data for k, t in enumerate(tensors) if own and k not in call.needed}
        kept = [t for k, t in enumerate(tensors) if k not in ctx.others]
        ctx.save_for_backward(*kept)
        ctx.save_for_forward(*kept)

    @staticmethod
    def backward(ctx: NodeContext, *seeds: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        call: PureCall = ctx.call
        if call.recorded is not None:
            with memory.LOCK:
                verify(call.recorded.tape)  # names the array and the launch, where torch would name neither
        tensors = _saved(ctx)  # raises if the graph has been freed
        given = {k: s for k, s in enumerate(seeds) if s is not None and k in call.floats}
        return None, *_pulled(call, tensors, given, ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx: NodeContext, *directions: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        found = _pushed(ctx.call, _saved(ctx), directions[1:])
        return tuple(found.get(k) for k in range(ctx.call.count))

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        call, *tensors = args
        return _each(info, in_dims[1:], tensors, lambda parts: CallNode.apply(call.again(), *parts))


class GradientNode(torch.autograd.Function):
    """The gradients of a call: `apply(call, wanted, seeded, *tensors, *seeds)` gives one for each wanted tensor."""

    @staticmethod
    def forward(
        call: PureCall, wanted: tuple[int, ...], seeded: tuple[int, ...], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        count = len(tensors) - len(seeded)
        seeds = dict(zip(seeded, map(_values, tensors[count:]), strict=True))
        made = call.recorded if call.followed.issuperset(wanted) else None
        if made is None:
            made = call.record([t.detach().resolve_neg() for t in tensors[:count]], frozenset(wanted), "needed")
        found = made.gradients(seeds, wanted)
        return tuple(like_tensor(found[k], tensors[k]) if k in found else torch.zeros_like(tensors[k]) for k in wanted)

    @staticmethod
    def setup_context(ctx: NodeContext, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.call, ctx.wanted, ctx.seeded, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def parts(ctx: NodeContext) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
        """The tensors of the call, and the seeds by output."""
        saved = ctx.saved_tensors
        count = len(saved) - len(ctx.seeded)
        return list(saved[:count]), dict(zip(ctx.seeded, saved[count:], strict=True))

    @staticmethod
    def backward(ctx: NodeContext, *directions: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        tensors, seeds = GradientNode.parts(ctx)
        moved: list[torch.Tensor | None] = [None] * len(tensors)
        for k, v in zip(ctx.wanted, directions, strict=True):
            moved[k] = v
        needs = ctx.needs_input_grad[3:]
        which = [k for k, v in enumerate(moved) if v is not None]
        lifted = DerivativeCall(ctx.call, which, len(tensors))
        given = {lifted.tangents[k]: s for k, s in seeds.items()}
        both = [*tensors, *(v for v in moved if v is not None)]
        curved = _pulled(lifted, both, given, [*needs[: len(tensors)], *[False] * len(which)]) if which else []
        slopes = _pushed(ctx.call, tensors, moved) if any(needs[len(tensors) :]) else {}
        return None, None, None, *[*curved, *[None] * len(tensors)][: len(tensors)], *(slopes.get(k) for k in seeds)

    @staticmethod
    def jvp(ctx: NodeContext, *directions: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        tensors, seeds = GradientNode.parts(ctx)
        moved, turned = directions[3 : 3 + len(tensors)], directions[3 + len(tensors) :]
        which = [k for k, v in enumerate(moved) if v is not None]
        given = {k: s for k, s in zip(seeds, turned, strict=True) if s is not None}
        call, both = ctx.call, tensors
        if which:
            call = DerivativeCall(call, which, len(tensors))
            given |= {call.tangents[k]: s for k, s in seeds.items()}
            both = [*tensors, *(moved[k] for k in which)]
        found = _pulled(call, both, given, [k in ctx.wanted for k in range(len(both))])
        return tuple(found[k] for k in ctx.wanted)

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        call, wanted, seeded, *tensors = args
        same = all(d is None for d in in_dims[3 : len(in_dims) - len(seeded)])

        def one(parts: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            return GradientNode.apply(call if same else call.again(), wanted, seeded, *parts)

        return _each(info, in_dims[3:], tensors, one)


def _saved(ctx: NodeContext) -> list[torch.Tensor]:
    """The tensors of a call, in order."""
    saved = ctx.saved_tensors  # asked for once: torch's checkpoints give them out once
    kept, count = iter(saved), len(saved) + len(ctx.others)
    return [ctx.others[k] if k in ctx.others else next(kept) for k in range(count)]


def _pulled(
    call: PureCall, tensors: Sequence[torch.Tensor], seeds: dict[int, torch.Tensor], needs: Sequence[bool]
) -> list[torch.Tensor | None]:
    """The gradient of each tensor that needs one, else None."""
    wanted = tuple(k for k, (t, need) in enumerate(zip(tensors, needs, strict=True)) if need and t.is_floating_point())
    if not seeds or not wanted:
        return [None] * len(tensors)
    made = _applied(GradientNode, call, wanted, tuple(seeds), *tensors, *seeds.values())
    found = dict(zip(wanted, made, strict=True))
    return [found.get(k) for k in range(len(tensors))]


def _pushed(
    call: PureCall, tensors: Sequence[torch.Tensor], directions: Sequence[torch.Tensor | None]
) -> dict[int, torch.Tensor]:
    """The tangent of each float output of a call."""
    which = [k for k, v in enumerate(directions) if v is not None]
    if not which:
        return {}
    lifted = DerivativeCall(call, which, len(tensors))
    made = _applied(CallNode, lifted, *tensors, *(v for v in directions if v is not None))
    return {k: made[at] for k, at in lifted.tangents.items()}


def _applied(function: type[torch.autograd.Function], *args: Any, level: int | None = None) -> Any:
    """`function.apply(*args)`, also for what `is_grads_batched` and `vectorize=True` batch without torch.func."""
    places = [k for k, t in enumerate(args) if isinstance(t, torch.Tensor)]
    if not any(is_legacy_batchedtensor(args[k]) for k in places):
        return function.apply(*args)
    if level is None:
        level = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
    size = max(_remove_batch_dim(args[k], level, 1, 0).shape[0] for k in places)
    whole = {k: _remove_batch_dim(args[k], level, size, 0) for k in places}
    made = [
        _applied(function, *(whole[k][at] if k in whole else arg for k, arg in enumerate(args)), level=level - 1)
        for at in range(size)
    ]
    return tuple(_add_batch_dim(torch.stack(parts), 0, level) for parts in zip(*made, strict=True))


def _each(info: VmapInfo, dims: Sequence[int | None], tensors: Sequence[torch.Tensor], one: Callable[..., Any]) -> Any:
    """Call `one` for each element of a batch, and stack what it returns."""
    made = [
        one([t if d is None else t.select(d, k) for t, d in zip(tensors, dims, strict=True)])
        for k in range(info.batch_size)
    ]
    stacked = tuple(torch.stack(parts) for parts in zip(*made, strict=True))
    return stacked, (0,) * len(stacked)

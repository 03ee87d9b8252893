"""Torch tensors as arrays and back, on the same memory; kernels as differentiable torch functions.

A wrapped tensor is an array like any other: its allocation is torch's storage, its gradient the workbench's own.
`tensor.grad` is an output port: after `tape.backward()` every wrapped leaf tensor is given this call's increment by
torch's own engine, through the tensor object, so `None`, hooks and `zero_grad` behave as torch users know them.
Writes by the workbench raise the tensor's version, so torch too notices when a value it saved has gone.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import _add_batch_dim, _remove_batch_dim  # pyright: ignore[reportPrivateImportUsage]  # of vmap
from torch._C._functorch import is_legacy_batchedtensor  # pyright: ignore[reportMissingModuleSource]
from torch.autograd import forward_ad
from torch.utils.weak import WeakIdKeyDictionary

from ..arrays import allocation as memory
from ..arrays import ports
from ..arrays.allocation import Allocation
from ..arrays.array import array, array_on
from ..arrays.dtypes import dtype_of
from ..arrays.host_reads import sources_of
from ..arrays.provenance import united
from ..arrays.scalar import scalar
from ..arrays.span import Span, row_strides
from ..arrays.workspace import Workspace
from ..device import Device, followed, get_device, let_follow, xp
from ..errors import GradientError, LaunchError, Where
from ..kernels import types
from ..kernels.program import Kernel
from ..kernels.reading.declare import Instance, struct_of
from ..kernels.types import Array, Scalar, Struct, Type
from ..launches.command import Command
from ..launches.launch import launch
from ..tapes.recording import Recording
from ..tapes.reverse import verify
from ..tapes.tape import Tape
from .host_tensors import carrying_tensor, read_as, wrapped
from .pure_calls import DerivativeCall, Dims, GridLike, OutputsLike, PureCall, RecordedCall, check_writes, form

if TYPE_CHECKING:
    from torch._functorch.autograd_function import VmapInfo

__all__ = [
    "device_from_torch",
    "device_to_torch",
    "dtype_from_torch",
    "dtype_to_torch",
    "from_torch",
    "function",
    "to_torch",
]

Layout = tuple[int, tuple[int, ...], tuple[int, ...], int]  # offset, shape, strides in bytes, itemsize

_SCALARS: dict[torch.dtype, Scalar] = {getattr(torch, s.name): s for s in types.SCALARS if hasattr(torch, s.name)}


# ---- dtypes and devices


def dtype_from_torch(dtype: torch.dtype) -> Scalar:
    """The scalar type of a torch dtype. Raises LaunchError [dtype] for those that kernels do not have."""
    try:
        return _SCALARS[dtype]
    except (KeyError, TypeError):
        raise LaunchError(
            f"{dtype} has no dtype in the kernel language",
            slug="dtype",
            why=f"Known: {', '.join(str(d) for d in _SCALARS)}.",
            instead="tensor.to(torch.float32)",
        ) from None


def dtype_to_torch(dtype: object) -> torch.dtype:
    """The torch dtype of a scalar type, or of the components of a vector, matrix or quaternion type.

    Raises LaunchError [dtype] for structs.
    """
    scalar = getattr(dtype_of(dtype), "scalar", None)
    for theirs, ours in _SCALARS.items():
        if ours is scalar:
            return theirs
    raise LaunchError(f"{dtype} has no torch dtype", slug="dtype", instead="one field of it: to_torch(a.field(name))")


def device_from_torch(device: torch.device | str) -> Device:
    """The device that a torch device (or its name) stands for. Raises LaunchError [device]."""
    found = torch.device(device)
    return get_device(found.type if found.index is None or found.type == "cpu" else f"{found.type}:{found.index}")


def device_to_torch(device: Device | str | None) -> str:
    """The name by which torch knows a device."""
    return get_device(device).name


# ---- what is known of wrapped memory


class TensorWatch:
    """The tensors on one allocation: leaf tensors to give gradients to, version counters to read and raise.

    `aliases` are detached tensors, one per version counter as far as can be told, each with the number of steps
    that are our own writes. `ports` are the leaf tensors, held weakly: nobody reads the `.grad` of a dead one.
    Holds no reference to the allocation, which is its key.
    """

    def __init__(self) -> None:
        self.aliases: list[list[Any]] = []
        self.ports: dict[int, tuple[weakref.ref, Layout]] = {}

    def add(self, t: torch.Tensor) -> None:
        """Follow the version counter of `t`, which its views and detached forms share."""
        if not t.is_inference() and all(alias._version != t._version for alias, _ in self.aliases):
            self.aliases.append([t.detach(), 0])

    def stamp(self) -> int:
        """A number that grows with every in-place change by torch, and with none of ours."""
        return sum(alias._version - ours for alias, ours in self.aliases)

    deaf = False

    def foreign_write(self, span: Span, what: str, where: Where | None) -> None:
        """Raise the version counters before a write of ours, so that torch notices that saved values are gone."""
        before = [alias._version for alias, _ in self.aliases]
        for alias, _ in self.aliases:
            torch.autograd.graph.increment_version(alias)
        for entry, version in zip(self.aliases, before, strict=True):
            entry[1] += entry[0]._version - version

    def exposing(self, allocation: Allocation) -> None:
        """No-op: memory shared with torch is exposed from the start."""

    def living(self) -> Iterator[tuple[torch.Tensor, Layout]]:
        """Yields the leaf tensors that are still alive, with their layouts."""
        for key, (ref, layout) in list(self.ports.items()):
            t = ref()
            if t is None:
                del self.ports[key]
            else:
                yield t, layout


_watches: weakref.WeakKeyDictionary[Allocation, TensorWatch] = weakref.WeakKeyDictionary()
_straight = WeakIdKeyDictionary()  # tensor -> {(dtype, layout): weak reference to its array}


def _exposed(a: array) -> Any:
    """A CPU array's memory as a NumPy array, exposed; for gradients too, where `numpy()` may differ."""
    a.allocation.expose()
    return a.data[...]


def _watch(a: Allocation) -> TensorWatch:
    found = _watches.get(a)
    if found is None:
        found = _watches[a] = TensorWatch()
        a.watch(found)
    return found


def _stamp(a: Allocation) -> int | None:
    watch = _watches.get(a)
    return None if watch is None else watch.stamp()


# ---- tensor -> array


def from_torch(t: torch.Tensor, dtype: object = None, requires_grad: bool | None = None) -> array:
    """An array on the memory of a tensor: writes on either side are seen on both. Any strides.

    dtype          element type; for vec, mat and quat the trailing axes of the tensor are the components.
                   By default the tensor's own scalar type.
    requires_grad  by default that of the tensor. True on a leaf tensor makes `t.grad` an output port: `tape.backward`
                   adds to it as torch's own backward would. False cuts the tensor off, if nothing else asks for the
                   gradient of its memory: `t.detach()` is the same memory, `t.detach().clone()` is not.

    Inside a torch backward pass nothing is given to `t.grad`: what a `torch.autograd.Function` returns is what counts.
    Raises LaunchError [dtype], [components], [layout]; GradientError [non-leaf] for a tensor that torch computed and
    follows, [overlapping] for a leaf in which several elements are one cell of memory.
    """
    return _wrapped(t, dtype, requires_grad, False)


def _wrapped(t: torch.Tensor, dtype: object, requires_grad: bool | None, straight: bool) -> array:
    """`from_torch`; `straight`: for a launch."""
    if not isinstance(t, torch.Tensor):
        raise LaunchError(f"from_torch takes a torch tensor, got {type(t).__name__}", slug="argument-type")
    wanted = t.requires_grad if requires_grad is None else bool(requires_grad)
    element = dtype_from_torch(t.dtype) if dtype is None else dtype_of(dtype)
    if wanted:
        _check_leaf(t)
    a, layout = _place(t)
    fresh = not straight and a not in _watches
    watch = _watch(a)
    watch.add(t)
    made = _shaped(a, layout, element, t)
    if wanted:
        if t.requires_grad and made.span.self_overlapping:
            raise GradientError(
                f"elements of a leaf tensor of shape {tuple(t.shape)} with strides {t.stride()} share memory.",
                slug="overlapping",
                why="Memory has one gradient, torch wants one for each element.",
                instead="t = t.detach().clone().requires_grad_()",
            )
        made.requires_grad = True
        if t.requires_grad and t.is_leaf:
            watch.ports[id(t)] = (weakref.ref(t), layout)
    wrapped(made, t, fresh)
    return made


def _check_leaf(t: torch.Tensor) -> None:
    """Raises GradientError [non-leaf] for a tensor that torch computed and follows; not with grad mode off."""
    if t.requires_grad and not t.is_leaf and torch.is_grad_enabled():
        raise GradientError(
            f"a tensor of shape {tuple(t.shape)} computed by torch ({t.grad_fn}) cannot be wrapped with its gradient.",
            slug="non-leaf",
            why="The tape would end here, and what torch did before it would get no gradient.",
            instead="t.detach() to cut it off, or wb.interop.torch.function(kernel, ...)(t)",
        )


def _stream(ordinal: int) -> int:
    """The address of the stream on which torch queues work now."""
    return torch.cuda.current_stream(ordinal).cuda_stream


def _follow(device: Device) -> None:
    """Order our work on this device with torch's from now on."""
    if device.is_cuda and _stream not in followed:
        followed.append(_stream)
        let_follow(device)


def _place(t: torch.Tensor) -> tuple[Allocation, Layout]:
    """(the allocation that is the tensor's storage, the tensor's layout in it)."""
    if t.layout is not torch.strided or t.is_conj() or t.is_neg():
        raise LaunchError(f"a tensor with layout {t.layout} has no plain memory", slug="layout", instead="t.to_dense()")
    device, size = device_from_torch(t.device), t.element_size()
    _follow(device)
    if device.is_cpu:
        t.detach().numpy()  # from now on torch refuses to resize the storage, which would move it
    storage = t.untyped_storage()
    a = memory.allocation_at(storage.data_ptr(), storage.nbytes(), device, storage)
    offset = t.data_ptr() - a.address if t.numel() else 0
    return a, (offset, tuple(t.shape), tuple(s * size for s in t.stride()), size)


def _shaped(a: Allocation, layout: Layout, element: Type, t: torch.Tensor) -> array:
    """The tensor's memory as an array, trailing axes as components (a 0-d tensor has one axis). Raises LaunchError."""
    offset, shape, strides, size = layout
    inner = getattr(element, "shape", ())
    if getattr(element, "scalar", None) is not dtype_from_torch(t.dtype):
        raise LaunchError(
            f"a tensor of {t.dtype} as {element}: converting needs a copy",
            slug="dtype",
            instead=f"t.to({dtype_to_torch(element)})" if not isinstance(element, Struct) else "an array of structs",
        )
    outer = len(shape) - len(inner)
    if outer < 0 or shape[outer:] != inner:
        raise LaunchError(
            f"a tensor of shape {shape} does not hold elements of {element}",
            slug="components",
            why=f"Its last {len(inner)} axes are the components: they must be {inner}.",
        )
    if strides[outer:] != row_strides(inner, size) and t.numel():
        raise LaunchError("the components of one element are not side by side", slug="layout", instead="t.contiguous()")
    if outer == 0:
        return array_on(a, element, (1,), (size * math.prod(inner),), offset)
    return array_on(a, element, shape[:outer], strides[:outer], offset)


def straight(t: torch.Tensor, want: Array) -> array:
    """A tensor passed straight to a launch as `want`: the same array for one tensor while somebody holds it."""
    fits = getattr(want.dtype, "scalar", None) is _SCALARS.get(t.dtype)
    inner = getattr(want.dtype, "shape", ())
    fits = fits and t.ndim >= len(inner) and tuple(t.shape[t.ndim - len(inner) :]) == inner
    element = want.dtype if fits else dtype_from_torch(t.dtype)  # the launch refuses what does not fit
    known = _straight.get(t)
    if known is None:
        known = _straight[t] = {}
    key = (element, t.data_ptr(), tuple(t.shape), t.stride(), t.requires_grad)
    made = known[key]() if key in known else None
    if made is None:
        made = _wrapped(t, element, None, True)
        known[key] = weakref.ref(made)
    return made


def wrappers(t: torch.Tensor) -> Iterator[array]:
    """The arrays that launches have made of this tensor."""
    for ref in list((_straight.get(t) or {}).values()):
        made = ref()
        if made is not None:
            yield made


# ---- array -> tensor


def to_torch(a: array, requires_grad: bool = False) -> torch.Tensor:
    """A tensor on the memory of an array, components as trailing axes: writes on either side are seen on both.

    The tensor is new and torch follows it only with requires_grad=True, as a leaf of torch alone: no tape sees what
    torch computes from it, so a tape refuses a gradient that would have to pass there (`wb.detach(t)`: it is meant to
    end). Use `interop.torch.function` for gradients through both.
    Raises LaunchError [dtype] for structs, [layout] for negative strides.
    """
    if not isinstance(a, array):
        raise LaunchError(f"to_torch takes an array, got {type(a).__name__}", slug="argument-type")
    theirs = dtype_to_torch(a.dtype)
    if any(s < 0 for s in a.strides):
        raise LaunchError(f"{a.label} runs backwards, which torch cannot", slug="layout", instead="to_torch(clone(a))")
    made = _same_storage(a, theirs)
    if made is None:
        made = torch.as_tensor(a.data, device=a.device.name) if a.device.is_cuda else torch.from_numpy(_exposed(a))
        _watch(a.allocation).add(made)
        _follow(a.device)
    return read_as(a, made).requires_grad_(requires_grad)


def _same_storage(a: array, theirs: torch.dtype) -> torch.Tensor | None:
    """A view of a tensor already known on this memory, so that it shares its version counter."""
    watch = _watches.get(a.allocation)
    size = torch.empty(0, dtype=theirs).element_size()
    for alias, _ in watch.aliases if watch is not None else ():
        storage = alias.untyped_storage()
        same = storage.data_ptr() == a.allocation.address and storage.nbytes() == a.allocation.nbytes
        if same and alias.dtype == theirs and not any(s % size for s in (a.span.offset, *a.strides)):
            inner = getattr(a.dtype, "shape", ())
            strides = [s // size for s in (*a.strides, *row_strides(inner, size))]
            return alias.detach().as_strided((*a.shape, *inner), strides, a.span.offset // size)
    return None


# ---- the output port


def _in_backward() -> bool:
    """True inside torch's own backward: a Function's returned gradients count there, a port would add them twice."""
    return torch._C._current_graph_task_id() != -1


def _publish(tape: Recording, space: Workspace) -> None:
    """Give each wrapped leaf tensor the increment of this backward call."""
    if not _watches or _in_backward():
        return
    leaves, increments = [], []
    for a, shadow in list(space.items()):
        watch = _watches.get(a)
        for t, layout in watch.living() if watch is not None else ():
            span = Span(a, *layout)
            if t.requires_grad and t.is_leaf and tape.log.has_touched(span):
                _check_place(t, span)
                leaves.append(t)
                increments.append(_like(shadow.view(span, _wide(t.dtype)), t))
    if leaves:
        torch.autograd.backward(leaves, increments)


def _check_place(t: torch.Tensor, span: Span) -> None:
    now = t.data_ptr() - span.allocation.address if t.numel() else 0
    if tuple(t.shape) != span.shape or now != span.offset:
        raise GradientError(
            f"a leaf tensor of shape {span.shape} was given other memory (`t.data = ...`, `set_`, `resize_`) after"
            " it had been wrapped.",
            slug="moved",
            why="The launches read the old memory.",
            instead="x = wb.from_torch(tensor), again after the change",
        )


def _wide(dtype: torch.dtype) -> np.dtype:
    """The dtype of the adjoint of these values."""
    return np.dtype(np.float32) if dtype is torch.float16 else _SCALARS[dtype].numpy


def _like(view: Any, t: torch.Tensor) -> torch.Tensor:
    """A copy of a piece of shadow as a tensor like `t`."""
    return _tensor_of(view, t.device).reshape(t.shape).to(t.dtype)


def _tensor_of(view: Any, device: torch.device) -> torch.Tensor:
    """A copy of values of NumPy or CuPy as a tensor."""
    copied = view.copy()
    let_follow(device_from_torch(device))
    return torch.from_numpy(copied) if isinstance(copied, np.ndarray) else torch.as_tensor(copied, device=device)


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
        grid, shapes = form(program, args, self.dim, self.outputs, _dtype_of)
        check_writes(program, len(args), "Torch would not know that its tensor has changed.")
        placed = repeat(_PLACE)
        call = TorchCall(self.kernel, [_replaced(arg, placed) for arg in args], grid, shapes)
        call.follows = torch.is_grad_enabled()
        followed = call.follows and any(t.requires_grad for t in found)
        if followed or torch._C._are_functorch_transforms_active() or _forward_mode():
            made = _applied(_Forward, call, *found)
        else:
            made = call.run([t.detach() for t in found])
        sources = () if memory.recorder() is None else united(map(sources_of, (*args, *found)))
        made = tuple(carrying_tensor(t, sources) for t in made)
        return made[0] if len(made) == 1 else made


def _forward_mode() -> bool:
    """True inside `torch.autograd.forward_ad.dual_level()`."""
    return forward_ad._current_level >= 0


_PLACE = torch.empty(0)  # stands for a tensor in the arguments of a call, which hold none of the user's


def _dtype_of(dtype: object) -> object:
    return dtype_from_torch(dtype) if isinstance(dtype, torch.dtype) else dtype_of(dtype)


def _tensors(arg: object) -> Iterator[torch.Tensor]:
    """The tensors of an argument in order: itself, or in the fields of a struct."""
    if isinstance(arg, torch.Tensor):
        yield arg
    elif isinstance(arg, Instance):
        for name, _ in struct_of(arg).fields:
            yield from _tensors(getattr(arg, name))
    elif isinstance(arg, array | scalar) and arg.requires_grad and torch.is_grad_enabled():
        tensor = "wb.to_torch(a, requires_grad=True)" if isinstance(arg, array) else "torch.tensor(a.value)"
        raise GradientError(
            f"{arg.label} requires a gradient, and torch cannot carry it.",
            slug="array-in-function",
            instead=f"a tensor: {tensor}",
        )


def _replaced(arg: object, tensors: Iterator[torch.Tensor]) -> Any:
    """The argument with its tensors replaced one by one."""
    if isinstance(arg, torch.Tensor):
        return next(tensors)
    if isinstance(arg, Instance):
        return type(arg)(**{name: _replaced(getattr(arg, name), tensors) for name, _ in struct_of(arg).fields})
    return arg


class TorchCall(PureCall):
    """One launch of a kernel. `args` has `_PLACE` for each tensor."""

    def __init__(self, kernel: Kernel, args: Sequence[Any], grid: Dims, shapes: Sequence[Dims]):
        self.kernel, self.args, self.grid, self.shapes = kernel, args, grid, shapes
        program = kernel.program()
        self.types: list[Array] = [type for _, type in program.params[len(args) :] if isinstance(type, Array)]
        self.count, self.follows = len(self.types), False
        self.values: frozenset[int] = frozenset()  # the tensors that are numbers or vectors to the kernel
        self.floats = [k for k, type in enumerate(self.types) if types.is_float(type.dtype)]

    def again(self) -> TorchCall:
        made = TorchCall(self.kernel, self.args, self.grid, self.shapes)
        made.follows = self.follows
        return made

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Launch, and return the outputs; recorded if torch follows one of the tensors."""
        followed = frozenset(k for k, t in enumerate(tensors) if t.requires_grad) if self.follows else frozenset()
        made = self._outputs(tensors)
        results = [t.detach() for t in made]  # the tape holds these: it must not hold what will hold the tape
        if not followed:
            self._command([t.detach() for t in tensors], results)[0].launch(record_tape=False)
            return made
        self.recorded, self.followed = self._record(tensors, followed, "needed", results), followed
        needs = self.recorded.tape.needed.needs
        plain = {k for k, a in enumerate(self.recorded.inputs) if a is not None and a.allocation not in needs}
        self.needed = frozenset(range(len(tensors))) - (plain - self.values)
        return made

    def record(self, values: Sequence[torch.Tensor], wanted: frozenset[int], keep: str) -> RecordedCall:
        return self._record(values, wanted, keep, self._outputs(values))

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
            _value(t) if isinstance(t, torch.Tensor) and not isinstance(type, Array) else t
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
                places[k] = _shaped(*_place(value), leaf.type, value)
                declared.append(k)
            if isinstance(places[k], array):
                found[id(value)] = places[k]
        self.values = frozenset(k for k, t in enumerate(own) if any(found.get(id(t)) is places[n] for n in declared))
        if declared:
            command = command.declaring(places, tuple(declared))
        return command, [found.get(id(t)) for t in own]

    def _record(
        self, tensors: Sequence[torch.Tensor], wanted: frozenset[int], keep: str, results: list[torch.Tensor]
    ) -> RecordedCall:
        command, inputs = self._command(_separate(tensors), results)
        tape = CallTape(keep)
        tape.active.update((a.allocation, None) for k in wanted if (a := inputs[k]) is not None)
        memory.push_recorder(tape)
        try:
            command.launch()
        finally:
            memory.pop_recorder(tape)
        count = len(self.args)
        outputs = [a for leaf, a in zip(command.program.leaves, command.flat, strict=True) if leaf.arg >= count]
        return RecordedCall(tape, inputs, outputs)


class CallTape(Tape):
    """A tape of one call: the tensors that torch follows decide its leaves, later requests do not."""

    refuses_late = False


def _value(t: torch.Tensor) -> Any:
    """The value of a tensor for a parameter that is a number or a vector."""
    values = t.detach().cpu().numpy()
    return values if values.ndim else values[()]


def _separate(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors detached; those that share memory with themselves or with an earlier one as copies.

    To torch every argument is a variable of its own, to the tape every byte is.
    """
    done: list[torch.Tensor] = []
    spans: list[Span] = []
    for t in tensors:
        own = t.detach()
        a, layout = _place(own)
        span = Span(a, *layout)
        if span.self_overlapping or any(span.overlaps(other) is not False for other in spans):
            own = own.clone(memory_format=torch.contiguous_format)
            a, layout = _place(own)
            span = Span(a, *layout)
        done.append(own)
        spans.append(span)
    return done


def _values(t: torch.Tensor) -> Any:
    """The numbers of a tensor, as an array of NumPy or CuPy."""
    t = t.detach().resolve_neg()
    return t.numpy() if t.device.type == "cpu" else xp(device_from_torch(t.device)).asarray(t)


class Saved(Protocol):
    """What torch keeps of a call between its forward and its backward: its `ctx`, and our attributes on it."""

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


class _Forward(torch.autograd.Function):
    """Torch's side of a call: `apply(call, *tensors)` gives its outputs."""

    @staticmethod
    def forward(call: PureCall, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if isinstance(call, TorchCall):
            return tuple(call.run(tensors))
        made = call.record([t.detach().resolve_neg() for t in tensors], frozenset(), "all")
        return tuple(_tensor_of(a.data, tensors[0].device) for a in made.outputs)

    @staticmethod
    def setup_context(ctx: Saved, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        call, *tensors = inputs
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[t for t in output if not t.dtype.is_floating_point])
        _save(ctx, call, tensors)

    @staticmethod
    def backward(ctx: Saved, *seeds: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        call: PureCall = ctx.call
        if call.recorded is not None:
            with memory.LOCK:
                verify(call.recorded.tape)  # names the array and the launch, where torch would name neither
        tensors = _saved(ctx)  # raises if the graph has been freed
        given = {k: s for k, s in enumerate(seeds) if s is not None and k in call.floats}
        return None, *_pulled(call, tensors, given, ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx: Saved, *directions: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        found = _pushed(ctx.call, _saved(ctx), directions[1:])
        return tuple(found.get(k) for k in range(ctx.call.count))

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        call, *tensors = args
        return _each(info, in_dims[1:], tensors, lambda parts: _Forward.apply(call.again(), *parts))


class _Gradient(torch.autograd.Function):
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
        return tuple(_like(found[k], tensors[k]) if k in found else torch.zeros_like(tensors[k]) for k in wanted)

    @staticmethod
    def setup_context(ctx: Saved, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.call, ctx.wanted, ctx.seeded, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def parts(ctx: Saved) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
        """The tensors of the call, and the seeds by output."""
        saved = ctx.saved_tensors
        count = len(saved) - len(ctx.seeded)
        return list(saved[:count]), dict(zip(ctx.seeded, saved[count:], strict=True))

    @staticmethod
    def backward(ctx: Saved, *directions: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        tensors, seeds = _Gradient.parts(ctx)
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
    def jvp(ctx: Saved, *directions: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        tensors, seeds = _Gradient.parts(ctx)
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
            return _Gradient.apply(call if same else call.again(), wanted, seeded, *parts)

        return _each(info, in_dims[3:], tensors, one)


def _save(ctx: Saved, call: PureCall, tensors: list[torch.Tensor]) -> None:
    """Save the tensors of a call. Those that the adjoint does not read may be changed by torch meanwhile."""
    own = call.recorded is not None and not (torch._C._are_functorch_transforms_active() or _forward_mode())
    ctx.others = {k: t.data for k, t in enumerate(tensors) if own and k not in call.needed}
    kept = [t for k, t in enumerate(tensors) if k not in ctx.others]
    ctx.save_for_backward(*kept)
    ctx.save_for_forward(*kept)


def _saved(ctx: Saved) -> list[torch.Tensor]:
    kept = iter(ctx.saved_tensors)
    count = len(ctx.saved_tensors) + len(ctx.others)
    return [ctx.others[k] if k in ctx.others else next(kept) for k in range(count)]


def _pulled(
    call: PureCall, tensors: Sequence[torch.Tensor], seeds: dict[int, torch.Tensor], needs: Sequence[bool]
) -> list[torch.Tensor | None]:
    """The gradient of each tensor that needs one, else None."""
    wanted = tuple(k for k, (t, need) in enumerate(zip(tensors, needs, strict=True)) if need and t.is_floating_point())
    if not seeds or not wanted:
        return [None] * len(tensors)
    found = dict(zip(wanted, _applied(_Gradient, call, wanted, tuple(seeds), *tensors, *seeds.values()), strict=True))
    return [found.get(k) for k in range(len(tensors))]


def _pushed(
    call: PureCall, tensors: Sequence[torch.Tensor], directions: Sequence[torch.Tensor | None]
) -> dict[int, torch.Tensor]:
    """The tangent of each float output of a call."""
    which = [k for k, v in enumerate(directions) if v is not None]
    if not which:
        return {}
    lifted = DerivativeCall(call, which, len(tensors))
    made = _applied(_Forward, lifted, *tensors, *(v for v in directions if v is not None))
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


ports.gradient_takers.append(_publish)
ports.version_counters.append(_stamp)


def __dir__() -> list[str]:
    return __all__

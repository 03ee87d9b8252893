"""Torch tensors as arrays and back, on the same memory; kernels as differentiable torch functions.

A wrapped tensor is an array like any other: its allocation is torch's storage, its gradient the workbench's own.
`tensor.grad` is an output port: after `tape.backward()` every wrapped leaf tensor is given this call's increment by
torch's own engine, through the tensor object, so `None`, hooks and `zero_grad` behave as torch users know them.
Writes by the workbench raise the tensor's version, so torch too notices when a value it saved has gone.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..arrays import allocation as memory
from ..arrays import ports
from ..arrays.allocation import Allocation
from ..arrays.array import array, array_on
from ..arrays.dtypes import dtype_of
from ..arrays.scalar import scalar
from ..arrays.span import Span, row_strides
from ..arrays.workspace import Workspace
from ..device import Device, followed, get_device, let_follow, xp
from ..errors import GradientError, LaunchError, Where
from ..kernels import types
from ..kernels.program import Kernel, Program
from ..kernels.reading.declare import Instance, struct_of
from ..kernels.types import Array, Scalar, Struct, Type
from ..launches.launch import launch
from ..launches.plan import grid as grid_of
from ..tapes.recording import Recording
from ..tapes.reverse import verify, walk
from ..tapes.tape import Tape
from .host_tensors import read_as, wrapped

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


def dtype_to_torch(dtype: Any) -> torch.dtype:
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


def from_torch(t: torch.Tensor, dtype: Any = None, requires_grad: bool | None = None) -> array:
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
    if not isinstance(t, torch.Tensor):
        raise LaunchError(f"from_torch takes a torch tensor, got {type(t).__name__}", slug="argument-type")
    wanted = t.requires_grad if requires_grad is None else bool(requires_grad)
    element = dtype_from_torch(t.dtype) if dtype is None else dtype_of(dtype)
    if wanted:
        _check_leaf(t)
    a, layout = _place(t)
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
    wrapped(made, t)
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
        made = from_torch(t, element)
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
    copied = view.copy()
    let_follow(device_from_torch(t.device))
    made = torch.from_numpy(copied) if isinstance(copied, np.ndarray) else torch.as_tensor(copied, device=t.device)
    return made.reshape(t.shape).to(t.dtype)


# ---- kernels as torch functions


def function(kernel: Kernel, dim: Any = None, outputs: Any = None) -> TorchFunction:
    """A kernel as a function of torch: `y = function(kernel, dim=n)(x1, x2, 3.0)`, differentiable by torch.

    The arguments of a call are the first parameters of the kernel: tensors (also in fields of structs), numbers,
    vectors. The parameters that remain are the outputs: new tensors of zeros, which the kernel fills and the call
    returns, one alone or a tuple. The kernel must not write to its inputs.

    dim       the launch grid: an int, a tuple, or a function of the call's arguments. By default the shape of the
              first output.
    outputs   shapes of the outputs, without component axes: a list of ints or tuples, or a function of the call's
              arguments that gives one. By default every output has the shape of the grid. `(shape, dtype)` also checks
              the dtype, which the kernel's annotation decides.

    Each argument has a gradient of its own, also where two tensors share memory. Second derivatives are refused
    (GradientError [double-backward]), as is changing an input in place that the adjoint reads ([overwritten]).
    Raises LaunchError [function] for arguments that do not fit.
    """
    if dim is None and outputs is None:
        raise LaunchError("function needs the grid or the shapes of the outputs", slug="function", instead="dim=n")
    return TorchFunction(kernel, dim, outputs)


class TorchFunction:
    """A kernel that torch can call and differentiate. Made by `function`."""

    def __init__(self, kernel: Kernel, dim: Any, outputs: Any):
        self.kernel, self.dim, self.outputs = kernel, dim, outputs
        self.__name__, self.__doc__ = kernel.__name__, kernel.__doc__

    def __repr__(self) -> str:
        return f"<torch function of {self.kernel!r}>"

    def __call__(self, *args: Any) -> Any:
        found = [t for arg in args for t in _tensors(arg)]
        call = TorchCall(self, args)
        if torch.is_grad_enabled() and any(t.requires_grad for t in found):
            made = _Bridge.apply(call, *found)
        else:
            made = call.run(found, record=False)
        return made[0] if len(made) == 1 else tuple(made)


def _tensors(arg: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument in order: itself, or in the fields of a struct."""
    if isinstance(arg, torch.Tensor):
        yield arg
    elif isinstance(arg, Instance):
        for name, _ in struct_of(arg).fields:
            yield from _tensors(getattr(arg, name))
    elif isinstance(arg, array | scalar) and arg.requires_grad and torch.is_grad_enabled():
        tensor = "wb.to_torch(a, requires_grad=True)" if isinstance(arg, array) else "for an array parameter"
        raise GradientError(
            f"{arg.label} requires a gradient, and torch cannot carry it.",
            slug="array-in-function",
            instead=f"a tensor: {tensor}",
        )


def _replaced(arg: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The argument with its tensors replaced one by one."""
    if isinstance(arg, torch.Tensor):
        return next(tensors)
    if isinstance(arg, Instance):
        return type(arg)(**{name: _replaced(getattr(arg, name), tensors) for name, _ in struct_of(arg).fields})
    return arg


@dataclass(eq=False)
class TorchCall:
    """One call of a TorchFunction, with the state that its backward needs."""

    function: TorchFunction
    args: tuple
    tape: Tape | None = None
    own: list[torch.Tensor] = field(default_factory=list)  # the input tensors, each on memory of its own
    inputs: list[list[array]] = field(default_factory=list)  # per tensor: the arrays that the launch made of it
    outputs: list[array] = field(default_factory=list)
    needed: list[int] = field(default_factory=list)  # tensors whose values the adjoint reads

    def run(self, tensors: Sequence[torch.Tensor], record: bool) -> list[torch.Tensor]:
        """Launch, and return the outputs. `record`: keep what a backward needs."""
        kernel, args = self.function.kernel, self.args
        program = kernel.program()
        dim, shapes = self._shapes(program)
        own = self.own = _separate(tensors) if record else [t.detach() for t in tensors]
        device = tensors[0].device if tensors else torch.device("cpu")
        made = [
            self._output(leaf, shape, device) for leaf, shape in zip(program.params[len(args) :], shapes, strict=True)
        ]
        replaced = iter(own)
        inputs = [_replaced(arg, replaced) for arg in args]
        results = [t.detach() for t in made]  # the tape holds these: it must not hold what will hold the tape
        command = launch(kernel, dim, inputs, results, record_cmd=True)
        self._check_writes(command)
        if not record:
            command.launch(record_tape=False)
            return made
        self._arrays(command, inputs, own)
        self._record(command, tensors)
        self.args = ()
        return made

    def _shapes(self, program: Program) -> tuple[Any, list[tuple[int, ...]]]:
        """The grid and one shape for each output."""
        args, dim, outputs = self.args, self.function.dim, self.function.outputs
        params = program.params[len(args) :]
        dim = dim(*args) if callable(dim) else dim
        outputs: Any = outputs(*args) if callable(outputs) else outputs
        grid = None if dim is None else grid_of(program.name, dim)
        given = [grid] * len(params) if outputs is None else list(outputs)
        if not params or len(given) != len(params):
            names = ", ".join(name for name, _ in program.params)
            raise LaunchError(
                f"function of {program.name!r}: {len(args)} arguments leave {len(params)} of the parameters ({names})"
                f" for {len(given)} outputs.",
                slug="function",
                where=program.function.where,
                why="The arguments of a call are the first parameters, the outputs are all the others.",
            )
        shapes = [_shape(program, name, type, shape) for (name, type), shape in zip(params, given, strict=True)]
        return (shapes[0] if grid is None else grid), shapes

    def _output(self, param: tuple[str, Type], shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
        element = param[1].dtype  # type: ignore[attr-defined]
        return torch.zeros((*shape, *getattr(element, "shape", ())), dtype=dtype_to_torch(element), device=device)

    def _check_writes(self, command: Any) -> None:
        leaves = command.program.leaves
        for k, _ in command.plan.writes:
            if leaves[k].arg < len(self.args):
                raise LaunchError(
                    f"function of {command.program.name!r}: the kernel writes to {leaves[k].name!r}, an input.",
                    slug="function",
                    where=command.program.function.where,
                    why="Torch would not know that its tensor has changed.",
                    instead="a kernel that writes to another array, which is then an output",
                )

    def _arrays(self, command: Any, inputs: list, own: list[torch.Tensor]) -> None:
        """Set `inputs`, the launch arrays that each tensor became, and `outputs`."""
        leaves, flat = command.program.leaves, command.flat
        place = {id(t): n for n, t in enumerate(own)}
        self.inputs = [[] for _ in own]
        for leaf, a in zip(leaves, flat, strict=True):
            value = inputs[leaf.arg] if leaf.arg < len(inputs) else None
            for name in leaf.path[: leaf.structs]:
                value = getattr(value, name, None)
            if id(value) in place:
                self.inputs[place[id(value)]].append(a)
        self.outputs = [a for leaf, a in zip(leaves, flat, strict=True) if leaf.arg >= len(inputs)]

    def _record(self, command: Any, tensors: Sequence[torch.Tensor]) -> None:
        tape = self.tape = CallTape()
        for t, arrays in zip(tensors, self.inputs, strict=True):
            if t.requires_grad:
                tape.active.update((a.allocation, None) for a in arrays)
        memory.push_recorder(tape)
        try:
            command.launch()
        finally:
            memory.pop_recorder(tape)
        self.needed = [
            n for n, arrays in enumerate(self.inputs) if any(a.allocation in tape.needed.needs for a in arrays)
        ]

    def gradients(self, seeds: Sequence[torch.Tensor | None], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """One gradient per tensor. The seeds are copied: torch may hand the same one to others."""
        assert self.tape is not None
        space = Workspace()
        with memory.LOCK, memory.unrecorded():
            for a, seed in zip(self.outputs, seeds, strict=True):
                if seed is not None and types.is_float(a.dtype):
                    _add(space, a, seed.detach())
            walk(self.tape, space)
        found: list[torch.Tensor | None] = []
        for t, arrays, want in zip(self.own, self.inputs, wanted, strict=True):
            reached = want and bool(arrays) and arrays[0].allocation in space
            view = space[arrays[0].allocation].view(arrays[0].span, _wide(t.dtype)) if reached else None
            found.append(None if view is None else _like(view, t))
        return found


class CallTape(Tape):
    """A tape of one call: the tensors that torch follows decide its leaves, later requests do not."""

    refuses_late = False


def _shape(program: Program, name: str, type: Type, given: Any) -> tuple[int, ...]:
    """The shape of an output from what the user wrote for it: an int, a tuple, or (shape, dtype)."""
    if not isinstance(type, Array) or isinstance(type.dtype, Struct):
        raise LaunchError(
            f"function of {program.name!r}: the output {name!r} is {type}, not an array of numbers or vectors.",
            slug="function",
            where=program.function.where,
        )
    if isinstance(given, tuple | list) and len(given) == 2 and not isinstance(given[1], int | np.integer):
        given, dtype = given
        ours = dtype_from_torch(dtype) if isinstance(dtype, torch.dtype) else dtype_of(dtype)
        if ours not in (type.dtype, type.dtype.scalar):  # type: ignore[attr-defined]
            raise LaunchError(f"function of {program.name!r}: {name!r} is {type}, not {dtype}", slug="function")
    shape = (int(given),) if isinstance(given, int | np.integer) else tuple(int(n) for n in given)
    if len(shape) != type.ndim:
        raise LaunchError(
            f"function of {program.name!r}: the output {name!r} is {type}, its shape was given as {shape}.",
            slug="function",
            where=program.function.where,
            instead="outputs=[shape, ...], without component axes",
        )
    return shape


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


def _add(space: Workspace, a: array, seed: torch.Tensor) -> None:
    view = space[a.allocation].view(a.span, _wide(seed.dtype))
    values: Any = seed.numpy() if a.device.is_cpu else xp(a.device).asarray(seed)
    view += values.reshape(view.shape)


class _Bridge(torch.autograd.Function):
    """Torch's side of a call."""

    @staticmethod
    def forward(ctx: Any, call: TorchCall, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = call.run(tensors, record=True)
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[t for t in made if not t.dtype.is_floating_point])
        ctx.save_for_backward(*[tensors[n] for n in call.needed])
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *seeds: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        call = ctx.call
        if call.tape.needed.needs:
            with memory.LOCK:
                verify(call.tape)  # names the array and the launch, where torch would name neither
        _ = ctx.saved_tensors  # raises if the graph has been freed
        with torch.no_grad():
            found = call.gradients(seeds, ctx.needs_input_grad[1:])
        if torch.is_grad_enabled():
            found = _Once.apply(torch.zeros((), requires_grad=True), *found)
        return (None, *found)


class _Once(torch.autograd.Function):
    """Gradients that know they cannot be differentiated again: without it torch would take them for constants."""

    @staticmethod
    def forward(ctx: Any, follow: torch.Tensor, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return tuple(None if g is None else g.view_as(g) for g in gradients)

    @staticmethod
    def backward(ctx: Any, *seeds: torch.Tensor | None) -> Any:
        raise GradientError(
            "the gradient of a kernel was differentiated again by torch.",
            slug="double-backward",
            why="The adjoint of a kernel has no adjoint in torch.",
            instead="wb.hvp, or a kernel for the first derivative",
        )


ports.gradient_takers.append(_publish)
ports.version_counters.append(_stamp)


def __dir__() -> list[str]:
    return __all__

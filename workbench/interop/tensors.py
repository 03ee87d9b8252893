"""Torch tensors as arrays and back, on the same memory.

A wrapped tensor is an array like any other: its allocation is torch's storage, its gradient the workbench's own.
`tensor.grad` is an output port: after `tape.backward()` every wrapped leaf tensor is given this call's increment by
torch's own engine, through the tensor object, so `None`, hooks and `zero_grad` behave as torch users know them.
Writes by the workbench raise the tensor's version, so torch too notices when a value it saved has gone.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, SupportsIndex, TypeVar, cast

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..arrays import allocation as memory, ports
from ..arrays.allocation import Allocation, recorder
from ..arrays.array import array, array_on
from ..arrays.dtypes import DTypeLike, differentiable, dtype_of
from ..arrays.host_reads import carrying, given_away, received
from ..arrays.read_values import HostRead, source_of, united
from ..arrays.span import Span, row_strides
from ..arrays.workspace import Workspace
from ..device import Device, DeviceLike, followed, get_device, let_follow
from ..errors import GradientError, LaunchError, Where
from ..kernels import types
from ..kernels.types import Array, Scalar, Struct, Type
from ..tapes.recording import Recording
from .pure_calls import arrived, refuse_leaving

Tensor = TypeVar("Tensor", bound=torch.Tensor)


class HostTensor(torch.Tensor):
    """A tensor made by `to_torch` under a tape, or by torch from such ones. `sources`: the reads that it came from."""

    sources: tuple[HostRead, ...] = ()

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., object], types: Sequence[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        if recorder() is None:
            return result
        sources = united(map(sources_of_tensors, (*args, *(kwargs or {}).values())))
        name = getattr(func, "__name__", "")
        changes = name == "__setitem__" or (name.endswith("_") and not name.startswith("__")) or name.startswith("__i")
        target = args[0] if changes else (kwargs or {}).get("out")
        if isinstance(target, torch.Tensor) and name not in ("requires_grad_", "__int__", "__index__", "__iter__"):
            _changed(target, sources)
        if isinstance(result, float) and name == "__float__":  # Python takes no other
            return given_away(result, sources)
        return _carrying(result, sources)

    def detach(self) -> torch.Tensor:
        """The same memory; the gradient is meant to end here."""
        return _as(HostTensor, _plain(self))

    def __dlpack__(self, *args: object, **named: object) -> Any:
        refuse_leaving(self.sources, "a library that takes it by DLPack", "wb.detach(tensor), if it is meant")
        return _plain(self).__dlpack__(*args, **named)

    def __deepcopy__(self, memo: dict[int, object]) -> torch.Tensor:
        return copy.deepcopy(_plain(self), memo)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _plain(self).__reduce_ex__(protocol)


def _as(kind: type[Tensor], t: torch.Tensor) -> Tensor:
    """The tensor as one of this class, on the same memory."""
    return cast(Tensor, torch.Tensor.as_subclass(t, kind))


def _plain(t: torch.Tensor) -> torch.Tensor:
    return _as(torch.Tensor, torch.Tensor.detach(t))


def _changed(target: torch.Tensor, sources: tuple[HostRead, ...]) -> None:
    """Note that torch has written values with these sources into a tensor, which may lie on memory of ours."""
    setattr(target, "sources", united((getattr(target, "sources", ()), sources)))  # noqa: B010
    if target.device.type == "cpu" and target.layout is torch.strided:
        received(_plain(target).numpy(), sources)


def _carrying(result: object, sources: tuple[HostRead, ...]) -> Any:
    if isinstance(result, torch.Tensor):
        if sources and result.is_floating_point():
            setattr(result, "sources", sources)  # noqa: B010
        return result
    if isinstance(result, tuple):
        for item in result:
            _carrying(item, sources)
        return result
    return carrying(result, sources)


def carrying_tensor(t: torch.Tensor, sources: tuple[HostRead, ...]) -> torch.Tensor:
    """The tensor, which was computed from these readings."""
    if not sources or not t.is_floating_point():
        return t
    made = _as(HostTensor, t)
    made.sources = sources
    return made


def sources_of_tensors(value: object) -> tuple[HostRead, ...]:
    """The reads that tensors came from, those in lists too."""
    if isinstance(value, torch.Tensor):
        return getattr(value, "sources", ())
    return united(map(sources_of_tensors, value)) if isinstance(value, list | tuple) else ()


def read_as(a: array, t: torch.Tensor) -> torch.Tensor:
    """`t`, a tensor on the memory of `a`, with that read as its source if a tape records."""
    if recorder() is None or a.is_gradient or not differentiable(a.dtype):
        return t
    source = source_of(a.span, a)
    if a.device.is_cpu:
        recorder().numbers.read(a.carrying(a.data))
    return t if source is None else carrying_tensor(t, (source,))


_SCALARS: dict[torch.dtype, Scalar] = {getattr(torch, s.name): s for s in types.SCALARS if hasattr(torch, s.name)}


# ---- dtypes and devices


def dtype_from_torch(torch_dtype: torch.dtype) -> Scalar:
    """The scalar type of a torch dtype. Raises LaunchError [dtype] for those that kernels do not have.

    >>> import torch
    >>> wb.dtype_from_torch(torch.float64)
    float64
    """
    try:
        return _SCALARS[torch_dtype]
    except (KeyError, TypeError):
        text, why = f"{torch_dtype} has no dtype in the kernel language", f"Known: {', '.join(map(str, _SCALARS))}."
        raise LaunchError(text, slug="dtype", why=why, instead="tensor.to(torch.float32)") from None


def dtype_to_torch(warp_dtype: DTypeLike) -> torch.dtype:
    """The torch dtype of a scalar type, or of the components of a vector, matrix or quaternion type.

    Raises LaunchError [dtype] for structs.

    >>> wb.dtype_to_torch(wb.vec3)
    torch.float32
    """
    scalar = getattr(dtype_of(warp_dtype), "scalar", None)
    for theirs, ours in _SCALARS.items():
        if ours is scalar:
            return theirs
    text, instead = f"{warp_dtype} has no torch dtype", "one field of it: to_torch(a.field(name))"
    raise LaunchError(text, slug="dtype", instead=instead)


def device_from_torch(torch_device: torch.device | str) -> Device:
    """The device that a torch device (or its name) stands for. Raises LaunchError [device].

    >>> wb.device_from_torch("cpu")
    cpu
    """
    found = torch.device(torch_device)
    return get_device(found.type if found.index is None or found.type == "cpu" else f"{found.type}:{found.index}")


def device_to_torch(warp_device: DeviceLike) -> str:
    """The name by which torch knows a device.

    >>> wb.device_to_torch("cpu")
    'cpu'
    """
    return get_device(warp_device).name


# ---- what is known of wrapped memory


class TensorWatch:
    """The tensors on one allocation: leaf tensors to give gradients to, version counters to read and raise.

    `aliases` are detached tensors, one per version counter as far as can be told, each with the number of steps
    that are our own writes. `ports` are the leaf tensors, held weakly: nobody reads the `.grad` of a dead one.
    Holds no reference to the allocation, which is its key.
    """

    def __init__(self) -> None:
        self.aliases: list[list[Any]] = []
        self.ports: dict[int, tuple[weakref.ref, Span]] = {}

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

    def living(self) -> Iterator[tuple[torch.Tensor, Span]]:
        """Yields the leaf tensors that are still alive, with their bytes."""
        for key, (ref, span) in list(self.ports.items()):
            t = ref()
            if t is None:
                del self.ports[key]
            else:
                yield t, span


_watches: weakref.WeakKeyDictionary[Allocation, TensorWatch] = weakref.WeakKeyDictionary()
_straight: MutableMapping[torch.Tensor, dict[tuple, weakref.ref[array]]] = WeakIdKeyDictionary()  # by dtype and layout


def _watch(a: Allocation) -> TensorWatch:
    found = _watches.get(a)
    if found is None:
        found = _watches[a] = TensorWatch()
        a.watch(found)
    return found


# ---- tensor -> array


def from_torch(
    t: torch.Tensor,
    dtype: DTypeLike = None,
    requires_grad: bool | None = None,
    grad: object = None,
    return_ctype: bool = False,
    retain_grad: bool = False,
) -> array:
    """An array on the memory of a tensor: writes on either side are seen on both. Any strides.

    dtype          element type; for vec, mat and quat the trailing axes of the tensor are the components.
                   By default the tensor's own scalar type.
    requires_grad  by default that of the tensor. True on a leaf tensor makes `t.grad` an output port: `tape.backward`
                   adds to it as torch's own backward would. False cuts the tensor off, if nothing else asks for the
                   gradient of its memory: `t.detach()` is the same memory, `t.detach().clone()` is not.

    Inside a torch backward pass nothing is given to `t.grad`: what a `torch.autograd.Function` returns is what counts.
    Raises LaunchError [dtype], [components], [layout]; GradientError [non-leaf] for a tensor that torch computed and
    follows, [overlapping] for a leaf in which several elements are one cell of memory.

    >>> import torch
    >>> t = torch.ones(3)
    >>> x = wb.from_torch(t)
    >>> _ = x.fill_(2.0)  # one memory
    >>> t
    tensor([2., 2., 2.])
    """
    if grad is not None or return_ctype:
        text = f"from_torch({'return_ctype' if return_ctype else 'grad'}=...) is not here."
        why = "Gradients are made by backward(), and go out through t.grad."
        raise LaunchError(text, slug="from-torch", why=why, instead="wb.from_torch(t)")
    made = _wrapped(t, dtype, requires_grad, False)
    made.retain_grad = retain_grad or made.retain_grad
    return made


def _wrapped(t: torch.Tensor, dtype: DTypeLike, requires_grad: bool | None, straight: bool) -> array:
    """`from_torch`; `straight`: for a launch."""
    if not isinstance(t, torch.Tensor):
        raise LaunchError(f"from_torch takes a torch tensor, got {type(t).__name__}", slug="argument-type")
    wanted = t.requires_grad if requires_grad is None else bool(requires_grad)
    element = dtype_from_torch(t.dtype) if dtype is None else dtype_of(dtype)
    if wanted:
        _check_leaf(t)
    span = span_of(t)
    fresh = not straight and span.allocation not in _watches  # torch may have made it of anything
    watch = _watch(span.allocation)
    watch.add(t)
    made = shaped_tensor(t, span, element)
    if wanted:
        if t.requires_grad and made.span.self_overlapping:
            text = f"elements of a leaf tensor of shape {tuple(t.shape)} with strides {t.stride()} share memory."
            why = "Memory has one gradient, torch wants one for each element."
            raise GradientError(text, slug="overlapping", why=why, instead="t = t.detach().clone().requires_grad_()")
        made.requires_grad = True
        if t.requires_grad and t.is_leaf:
            watch.ports[id(t)] = (weakref.ref(t), span.weak())
    arrived(made, sources_of_tensors(t), fresh and not isinstance(t, HostTensor) and not t.requires_grad)
    return made


def _check_leaf(t: torch.Tensor) -> None:
    """Raises GradientError [non-leaf] for a tensor that torch computed and follows; not with grad mode off."""
    if t.requires_grad and not t.is_leaf and torch.is_grad_enabled():
        text = f"a tensor of shape {tuple(t.shape)} computed by torch ({t.grad_fn}) cannot be wrapped with its"
        why = "The tape would end here, and what torch did before it would get no gradient."
        instead = "t.detach() to cut it off, or wb.interop.torch.function(kernel, ...)(t)"
        raise GradientError(f"{text} gradient.", slug="non-leaf", why=why, instead=instead)


def _stream(ordinal: int) -> int:
    """The address of the stream on which torch queues work now."""
    return torch.cuda.current_stream(ordinal).cuda_stream


def _follow(device: Device) -> None:
    """Order our work on this device with torch's from now on."""
    if device.is_cuda and _stream not in followed:
        followed.append(_stream)
        let_follow(device)


def _check_layout(t: torch.Tensor) -> None:
    """Raise LaunchError [layout] for a tensor whose elements do not lie in memory as they are."""
    if t.layout is not torch.strided:
        raise LaunchError(f"a tensor with layout {t.layout} has no plain memory", slug="layout", instead="t.to_dense()")
    if t.is_conj() or t.is_neg():
        text = "a tensor that torch has conjugated or negated only by a mark has other numbers in memory"
        raise LaunchError(text, slug="layout", instead="t.resolve_conj().resolve_neg()")


def span_of(t: torch.Tensor) -> Span:
    """The bytes of a tensor, in the allocation that is its storage."""
    _check_layout(t)
    device, size = device_from_torch(t.device), t.element_size()
    _follow(device)
    if device.is_cpu:
        t.detach().numpy()  # from now on torch refuses to resize the storage, which would move it
    storage = t.untyped_storage()
    a = memory.allocation_at(storage.data_ptr(), storage.nbytes(), device, storage)
    offset = t.data_ptr() - a.address if t.numel() else 0
    return Span(a, offset, tuple(t.shape), tuple(s * size for s in t.stride()), size)


def shaped_tensor(t: torch.Tensor, span: Span, element: Type) -> array:
    """The tensor's memory as an array, trailing axes as components (a 0-d tensor has one axis). Raises LaunchError."""
    shape, strides, size = span.shape, span.strides, span.itemsize
    inner = getattr(element, "shape", ())
    if getattr(element, "scalar", None) is not dtype_from_torch(t.dtype):
        instead = f"t.to({dtype_to_torch(element)})" if not isinstance(element, Struct) else "an array of structs"
        raise LaunchError(f"a tensor of {t.dtype} as {element}: converting needs a copy", slug="dtype", instead=instead)
    outer = len(shape) - len(inner)
    if outer < 0 or shape[outer:] != inner:
        why = f"Its last {len(inner)} axes are the components: they must be {inner}."
        raise LaunchError(f"a tensor of shape {shape} does not hold elements of {element}", slug="components", why=why)
    if strides[outer:] != row_strides(inner, size) and t.numel():
        raise LaunchError("the components of one element are not side by side", slug="layout", instead="t.contiguous()")
    if outer == 0:
        return array_on(span.allocation, element, (1,), (size * math.prod(inner),), span.offset)
    return array_on(span.allocation, element, shape[:outer], strides[:outer], span.offset)


def straight(t: torch.Tensor, want: Array) -> array:
    """A tensor passed straight to a launch as `want`: the same array for one tensor while somebody holds it."""
    _check_layout(t)
    fits = getattr(want.dtype, "scalar", None) is _SCALARS.get(t.dtype)
    inner = getattr(want.dtype, "shape", ())
    fits = fits and t.ndim >= len(inner) and tuple(t.shape[t.ndim - len(inner) :]) == inner
    element = want.dtype if fits else dtype_from_torch(t.dtype)  # the launch refuses what does not fit
    known = _straight.setdefault(t, {})
    key = (element, t.data_ptr(), tuple(t.shape), t.stride(), t.requires_grad)
    made = known[key]() if key in known else None
    if made is None:
        made = _wrapped(t, element, None, True)
        known[key] = weakref.ref(made)
    return made


def wrappers(t: torch.Tensor) -> Iterator[array]:
    """The arrays that launches have made of this tensor."""
    for ref in list(_straight.get(t, {}).values()):
        if (made := ref()) is not None:
            yield made


# ---- array -> tensor


def to_torch(a: array, requires_grad: bool = False) -> torch.Tensor:
    """A tensor on the memory of an array, components as trailing axes: writes on either side are seen on both.

    The tensor is new and torch follows it only with requires_grad=True, as a leaf of torch alone: no tape sees what
    torch computes from it, so a tape refuses a gradient that would have to pass there (`wb.detach(t)`: it is meant to
    end). Use `interop.torch.function` for gradients through both.
    Raises LaunchError [dtype] for structs, [layout] for negative strides.

    >>> wb.to_torch(wb.ones(2))
    tensor([1., 1.])
    """
    if not isinstance(a, array):
        raise LaunchError(f"to_torch takes an array, got {type(a).__name__}", slug="argument-type")
    tensor = private_tensor(a)
    made = _same_storage(a, tensor.dtype)
    if made is None:
        if not a.device.is_cuda:
            a.allocation.expose()
        made = tensor
        _watch(a.allocation).add(made)
    return read_as(a, made).requires_grad_(requires_grad)


def private_tensor(a: array) -> torch.Tensor:
    """A tensor on the memory of an array of which tapes are not told: to be read. Raises as `to_torch`."""
    if any(s < 0 for s in a.strides):
        raise LaunchError(f"{a.label} runs backwards, which torch cannot", slug="layout", instead="to_torch(clone(a))")
    dtype_to_torch(a.dtype)
    if a.device.is_cpu:
        return torch.from_numpy(a.data)
    _follow(a.device)
    return torch.as_tensor(a.data[...], device=a.device.name)


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


def _publish(tape: Recording, space: Workspace) -> None:
    """Give each wrapped leaf tensor the increment of this backward call.

    Not inside torch's own backward: a Function's returned gradients count there, a port would add them twice.
    """
    if not _watches or torch._C._current_graph_task_id() != -1:
        return
    leaves, increments = [], []
    for a, shadow in list(space.items()):
        watch = _watches.get(a)
        for t, span in watch.living() if watch is not None else ():
            if t.requires_grad and t.is_leaf and (tape.needed.of(a).last == span or tape.log.has_touched(span)):
                _check_place(t, span)
                leaves.append(t)
                wide = np.dtype(np.float32) if t.dtype is torch.float16 else _SCALARS[t.dtype].numpy
                increments.append(like_tensor(shadow.view(span, wide), t))
    if leaves:
        torch.autograd.backward(leaves, increments)


def _check_place(t: torch.Tensor, span: Span) -> None:
    now = t.data_ptr() - span.allocation.address if t.numel() else 0
    if tuple(t.shape) != span.shape or now != span.offset:
        text = f"a leaf tensor of shape {span.shape} was given other memory (`t.data = ...`, `set_`, `resize_`) after"
        why, instead = "The launches read the old memory.", "x = wb.from_torch(tensor), again after the change"
        raise GradientError(f"{text} it had been wrapped.", slug="moved", why=why, instead=instead)


def like_tensor(view: object, t: torch.Tensor) -> torch.Tensor:
    """A copy of a piece of shadow as a tensor like `t`."""
    return tensor_of(view, t.device).reshape(t.shape).to(t.dtype)


def tensor_of(view: Any, device: torch.device) -> torch.Tensor:
    """A copy of values of NumPy or CuPy as a tensor."""
    copied = view.copy()
    let_follow(device_from_torch(device))
    return torch.from_numpy(copied) if isinstance(copied, np.ndarray) else torch.as_tensor(copied, device=device)


ports.gradient_takers.append(_publish)
ports.version_counters.append(lambda a: None if (watch := _watches.get(a)) is None else watch.stamp())

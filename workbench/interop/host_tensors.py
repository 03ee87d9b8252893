"""Tensors with provenance: the arrays that they were read from under a tape, as for NumPy (`arrays.host_reads`)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeVar, cast

import torch

from ..arrays.allocation import recorder
from ..arrays.array import array
from ..arrays.dtypes import differentiable
from ..arrays.host_reads import carrying, given_away, received
from ..arrays.provenance import HostRead, source_of, united
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

    def __dlpack__(self, *args: Any, **named: Any) -> Any:
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
    source = source_of(a.span, a.label)
    if a.device.is_cpu:
        recorder().numbers.read(a.carrying(a.data))
    return t if source is None else carrying_tensor(t, (source,))


def wrapped(made: array, t: torch.Tensor, fresh: bool) -> None:
    """Tell the tape if torch computed the values of `t`, now wrapped as the array `made`, from memory of ours.

    `fresh`: memory that nobody has wrapped before, so that torch may have made it of anything.
    """
    arrived(made, sources_of_tensors(t), fresh and not isinstance(t, HostTensor) and not t.requires_grad)

"""A module or function of torch as a custom op of arrays, `op`: it runs once, and the tape keeps torch's graph of it.

A walk asks that graph where it comes to the event, when the memory of the arrays is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ..arrays.array import array
from ..errors import GradientError, LaunchError
from ..kernels.types import Array
from ..tapes.custom_op import CustomOp, Pull, listed
from ..tapes.events import Event
from ..tapes.recording import Recording
from .tensors import HostTensor, dtype_from_torch, private_tensor, straight


def op(function: Callable[..., Any], name: str = "") -> TorchOp:
    """A module or function of torch as a function of arrays that is one event of a tape: a policy in a rollout.

    function   takes arrays as tensors on their memory (components as trailing axes), all else as it is, and returns a
               tensor or a tuple of them, which become new arrays. It must depend on its arguments and, as a module, on
               its parameters alone, and change no tensor that it is given.
    name       of its events; by default that of the function or of the module's class.

    The parameters of a module are arrays on their own memory: `tape.backward` adds to their `.grad`, an optimizer of
    torch may follow. The gradient is torch's, from the graph of the forward run, which the tape holds as long as it
    lives. `replay`, `trust`, captures and steps of a `checkpoint` run the function again; `jvp` and `hvp` refuse it.
    Raises LaunchError [custom-op] where results are no tensors or depend on tensors with a gradient that were not
    given, or arguments were changed; [dtype], [layout]. In walks GradientError [custom-op] where torch has no gradient
    or a parameter has been written by the workbench since, [overwritten] where it has been by others, [moved] where it
    has other memory.

    >>> import torch
    >>> net = torch.nn.Linear(2, 1, bias=False)
    >>> policy = wb.interop.torch.op(net, "policy")
    >>> x = wb.array([[1.0, 2.0]], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     u = policy(x)
    >>> tape.backward(grads={u: wb.ones_like(u)})
    >>> net.weight.grad
    tensor([[1., 2.]])
    """
    return TorchOp(function, name)


class TorchOp(CustomOp):
    """A function of torch as `op` makes it: its events take the arguments of a call, and behind them parameters."""

    def __init__(self, function: Callable[..., Any], name: str = ""):
        super().__init__(function, name or getattr(function, "__name__", type(function).__name__))
        self.parameters = dict(function.named_parameters()) if isinstance(function, torch.nn.Module) else {}
        self._own: tuple[Any, list[array]] = (), []
        self._arrays()  # so that parameters are known memory to loops that call the op later

    def _arrays(self) -> list[array]:
        """The parameters as arrays: the same ones while they stay where they are."""
        own = self.parameters.values()
        state = [(p.data_ptr(), p.shape, p.stride(), p.requires_grad) for p in own]
        if state != self._own[0]:
            self._own = state, [straight(p, Array(dtype_from_torch(p.dtype), p.ndim)) for p in own]
            for name, a in zip(self.parameters, self._own[1], strict=True):
                a.name = a.name or name
        return self._own[1]

    def __call__(self, *args: object, **named: object) -> Any:
        return super().__call__(*args, *self._arrays(), **named)

    def evaluate(self, args: Sequence[object], tape: Recording | None) -> tuple[Any, Pull | None]:
        first, follow = len(args) - len(self.parameters), tape is not None
        with torch.inference_mode(False), torch.set_grad_enabled(follow):
            given = [_given(a, follow) for a in args[:first]]
            for a, own, p in zip(args[first:], self._own[1], self.parameters.values(), strict=True):
                frozen = not p.requires_grad and tape is not None and tape.follows([own])
                hooks = follow and p._backward_hooks  # torch would call them at each event
                given.append(_given(a, follow, p.shape) if a is not own or frozen or hooks else p)
            tensors = [t for t, a in zip(given, args, strict=True) if isinstance(a, array)]
            stamps, places = [t._version for t in tensors], [t.data_ptr() for t in tensors]
            made = self._run(given)
        results = listed(made)
        self._check(results, tensors, [t._version for t in tensors] != stamps)

        def pull(event: Event, seeds: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
            if places != [t.data_ptr() for t in tensors]:
                text = f"a parameter of {event.label} was given other memory since (`t.data = ...`, `net.float()`)."
                raise GradientError(text, slug="moved", where=event.where, instead="tape.backward(...)   before that")
            if any(isinstance(t, torch.nn.Parameter) and t._backward_hooks for t in tensors):
                text, instead = f"a parameter of {event.label} got a hook after it.", "p.register_hook(f)   before it"
                raise GradientError(text, slug="custom-op", where=event.where, instead=instead)
            by = [k for k, want in enumerate(wanted) if want and tensors[k].requires_grad]
            pairs = [(y, s) for y, s in zip(results, seeds, strict=True) if s is not None and s.any()]
            if by and not all(y.requires_grad for y, _ in pairs):
                text, instead = f"torch has no graph of a result of {event.label}.", "wb.detach(y), if it is a constant"
                why = "It was made under no_grad(), by detach() or by NumPy."
                raise GradientError(text, slug="custom-op", where=event.where, why=why, instead=instead)
            found: list[Any] = [None] * len(tensors)
            try:
                adjoints = [torch.from_numpy(s).to(y).view(y.shape) for y, s in pairs]
                ends, inputs = [y for y, _ in pairs], [tensors[k] for k in by]
                slopes = map(torch.zeros_like, inputs)
                if by and pairs:
                    slopes = torch.autograd.grad(ends, inputs, adjoints, True, allow_unused=True)
            except RuntimeError as error:
                text = f"torch has no gradient of {event.label}: {error}"
                raise GradientError(text, slug="custom-op", where=event.where) from error
            for k, g in zip(by, slopes):
                found[k] = None if g is None else g.cpu().numpy()
            return found

        values = [np.atleast_1d(t.detach().cpu().numpy()) for t in results]
        return tuple(values) if isinstance(made, tuple | list) else values[0], pull if follow else None

    def _run(self, given: Sequence[Any]) -> Any:
        """The function of its arguments and the parameters."""
        first, own = len(given) - len(self.parameters), self.parameters.values()
        if all(t is p for t, p in zip(given[first:], own, strict=True)):
            return self.forward(*given[:first])
        values: Any = dict(zip(self.parameters, given[first:], strict=True))
        return torch.func.functional_call(self.forward, values, tuple(given[:first]))  # type: ignore[arg-type]

    def _check(self, results: list[Any], given: list[torch.Tensor], changed: bool) -> None:
        """Raise LaunchError [custom-op] for what no tape could follow, [dtype]."""
        text, instead = "", "return y   with a tensor y"
        if not all(isinstance(t, torch.Tensor) and t.layout is torch.strided for t in results):
            text = f"{self.__name__} returned {', '.join(type(t).__name__ for t in results)}, not tensors (dense ones)."
        elif any(isinstance(t, HostTensor) for t in results):
            text = f"{self.__name__} uses a tensor of to_torch(a) that it was not given."
            instead = "a   as an argument, or wb.to_torch(a) before the tape if it is meant as a constant"
        elif changed:
            text, instead = f"{self.__name__} changed a tensor that it was given.", "x = x + 1   in place of x += 1"
        elif (stranger := _stranger(results, given)) is not None:
            text = f"{self.__name__} uses a tensor with a gradient, {tuple(stranger.shape)}, that it was not given."
            instead = "wb.interop.torch.op(module)   of a torch.nn.Module with that parameter, or an array as argument"
        if text:
            raise LaunchError(text, slug="custom-op", instead=instead)
        for t in results:
            dtype_from_torch(t.dtype)


def _given(a: Any, follow: bool, shape: Sequence[int] | None = None) -> Any:
    """An argument: of an array with `follow` a leaf of torch on its memory, which refuses writes, or else a copy."""
    if not isinstance(a, array):
        return a
    t = private_tensor(a) if shape is None else private_tensor(a).reshape(shape)
    return t.requires_grad_() if follow and t.is_floating_point() else t.clone()


def _stranger(results: Iterable[torch.Tensor], given: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """A tensor at which the graph of these results begins, and which was not given."""
    known, todo = set(map(id, given)), [t.grad_fn for t in results if t.grad_fn is not None]
    seen = set(todo)
    for node in todo:  # which grows meanwhile
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                todo.append(before)
        if not node.next_functions and id(leaf := getattr(node, "variable", None)) not in known and leaf is not None:
            return leaf
    return None

"""A module or function of torch as a custom op of arrays, `op`: it runs once, and the tape keeps torch's graph of it.

A walk asks that graph where it comes to the event, when the memory of the arrays is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch

from ..arrays import capture_log
from ..arrays.array import array
from ..arrays.workspace import is_float_memory
from ..errors import GradientError, LaunchError, Where
from ..kernels.types import Array
from ..tapes.custom_op import CustomOp, OpCall, listed
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
    lives, and so are tangents: `jvp` and `jacobian` run nothing again. `replay`, `trust`, captures, steps of a
    `checkpoint` and, on copies, `hvp` and `hessian` run the function again.
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
        super().__init__(function, name or getattr(function, "__name__", type(function).__name__), tangent=function)
        self.parameters = dict(function.named_parameters()) if isinstance(function, torch.nn.Module) else {}
        self._own: tuple[Any, list[array]] = (), []
        self._buffers: dict[str, torch.Tensor] = {}  # in runs aside copies take their place
        self._arrays()  # so that parameters are known memory to loops that call the op later

    def _arrays(self) -> list[array]:
        """The parameters as arrays: the same ones while they stay where they are."""
        own = self.parameters.values()
        state = [(p.data_ptr(), p.shape, p.stride(), p.requires_grad) for p in own]
        if state != self._own[0]:
            with capture_log.paused():  # a capture may be the first to see a parameter frozen
                self._own = state, [straight(p, Array(dtype_from_torch(p.dtype), p.ndim)) for p in own]
            for name, a in zip(self.parameters, self._own[1], strict=True):
                a.name = a.name or name
        return self._own[1]

    def __call__(self, *args: object, **named: object) -> Any:
        return super().__call__(*args, *self._arrays(), **named)

    def evaluate(self, args: Sequence[object], tape: Recording | None) -> tuple[Any, Any]:
        with torch.inference_mode(False):
            return self._evaluate(args, self._tensors(args, tape), tape is not None)

    def aside(self) -> TorchOp:
        """As `CustomOp.aside`: its buffers stay what they are."""
        made = copy(self)
        if isinstance(self.forward, torch.nn.Module):
            made._buffers = dict(self.forward.named_buffers())
        return made

    def again(self, call: OpCall, tape: Recording | None) -> Callable[[], tuple[Any, Any]]:
        """As `CustomOp.again`: leaves on the memory of arrays serve every time, while nothing else has changed."""
        if tape is None or not all(is_float_memory(a) and a.device.is_cpu for a in call.ins):
            return super().again(call, tape)
        own = self.parameters.values()
        frozen, known = [p for p in own if not p.requires_grad], [None, []]

        def evaluate() -> tuple[Any, Any]:
            state = [(p.requires_grad, not p._backward_hooks) for p in own]
            with torch.inference_mode(False):
                if known[0] != state:
                    if any(p.requires_grad for p in frozen):
                        text = f"a parameter of {self.__name__} was frozen in the capture and follows gradients now."
                        raise GradientError(text, slug="custom-op", instead="a new capture, or wb.jit(function) anew")
                    known[:] = state, self._tensors(call.args, tape)
                return self._evaluate(call.args, known[1], True)

        return evaluate

    def _tensors(self, args: Sequence[object], tape: Recording | None) -> list[Any]:
        """The arguments as torch gets them."""
        first, follow = len(args) - len(self.parameters), tape is not None
        given = [_given(a, follow) for a in args[:first]]
        for a, own, p in zip(args[first:], self._own[1], self.parameters.values(), strict=True):
            frozen = not p.requires_grad and tape is not None and tape.follows([own])
            hooks = follow and p._backward_hooks  # torch would call them at each event
            given.append(_given(a, follow) if a is not own or frozen or hooks else p)
        return given

    def _evaluate(self, args: Sequence[object], given: list[Any], follow: bool) -> tuple[Any, Any]:
        tensors = [t for t, a in zip(given, args, strict=True) if isinstance(a, array)]
        stamps = [t._version for t in tensors]
        with torch.set_grad_enabled(follow):
            try:
                made = self._run(given)
            except RuntimeError as error:  # torch refuses to write to leaves and views of them
                self._check([], [], "requires grad is being used in an in-place operation" in str(error))
                raise
        results = listed(made)
        self._check(results, tensors, [t._version for t in tensors] != stamps)
        graph = _Graph(self.__name__, tensors, results) if follow else None
        values = [np.atleast_1d(t.detach().cpu().numpy()) for t in results]
        return tuple(values) if isinstance(made, tuple | list) else values[0], graph

    def carry(self, call: OpCall, tangents: Sequence[array], where: Where | None) -> list[Any]:
        """By an op in which the function runs again: torch then has its second derivatives."""
        count, name = len(call.args), self.__name__

        def moved(*given: Any) -> tuple[torch.Tensor, ...]:
            tensors, state = [t for t, a in zip(given, call.args) if isinstance(a, array)], _random_state()
            with torch.enable_grad():
                for t in tensors:
                    t.requires_grad_(t.is_floating_point())
                made = listed(self._run(given[:count]))
                if not all(map(torch.equal, state, _random_state())):
                    text = f"{name} draws random numbers: run again, it is another function."
                    raise GradientError(text, slug="custom-op", where=where, instead="net.eval()")
                return tuple(_Graph(name, tensors, made).tangents(where, given[count:]))

        return listed(TorchOp(moved, f"tangent of {name}")(*call.args, *tangents))

    def _run(self, given: Sequence[Any]) -> Any:
        """The function of its arguments and the parameters."""
        first, own = len(given) - len(self.parameters), self.parameters.values()
        if not self._buffers and all(t is p for t, p in zip(given[first:], own, strict=True)):
            return self.forward(*given[:first])
        values: Any = {n: t.reshape(p.shape) for (n, p), t in zip(self.parameters.items(), given[first:], strict=True)}
        values |= {n: b.clone() for n, b in self._buffers.items()}
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


class _Graph:
    """The graph that torch keeps of one call, from the tensors of its arrays to its results: the rules of the call."""

    def __init__(self, name: str, tensors: list[torch.Tensor], results: list[torch.Tensor]):
        self.name, self.tensors, self.results = name, tensors, results
        self.places = [t.data_ptr() for t in tensors]

    def pull(self, event: Event, seeds: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """The gradient of each wanted tensor, by the adjoints of the results."""
        by = [k for k, want in enumerate(wanted) if want and self.tensors[k].requires_grad]
        pairs = [(y, s) for y, s in zip(self.results, seeds, strict=True) if s is not None and s.any()]
        adjoints = [torch.from_numpy(s).to(y).view(y.shape) for y, s in pairs]
        slopes = self._grad(event.where, [y for y, _ in pairs], [self.tensors[k] for k in by], adjoints)
        known = dict(zip(by, slopes, strict=True))
        return [None if (g := known.get(k)) is None else g.cpu().numpy() for k in range(len(self.tensors))]

    def push(self, event: Event, tangents: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The tangent of each result, by those of the tensors."""
        with torch.inference_mode(False), torch.enable_grad():
            ways = [torch.from_numpy(v).to(t).view(t.shape) for v, t in zip(tangents, self.tensors, strict=True)]
            return [t.detach().cpu().numpy() for t in self.tangents(event.where, ways)]

    def tangents(self, where: Where | None, ways: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The same, as tensors that torch follows: gradients are linear in adjoints, by which theirs is the tangent."""
        if any(isinstance(node, torch.autograd.function.BackwardCFunction) for node in _nodes(self.results)):
            text = f"{self.name} has a torch.autograd.Function or a backward hook: of these only the gradient is known."
            raise GradientError(text, slug="custom-op", where=where, instead="operations of torch in its place")
        pairs = [(t, v) for t, v in zip(self.tensors, ways, strict=True) if t.requires_grad]
        zero = sum(v.flatten()[:0].sum() for _, v in pairs)  # one that torch follows
        ends = [y for y in self.results if y.is_floating_point()]
        seeds = [torch.linspace(1, 2, y.numel()).to(y).view(y.shape).requires_grad_() for y in ends]
        slopes = self._grad(where, ends, [t for t, _ in pairs], seeds, True)
        pairs = [(g, v) for g, (_, v) in zip(slopes, pairs) if g is not None]
        ways = [v for g, v in pairs if g.requires_grad]
        found = self._grad(where, [g for g, _ in pairs if g.requires_grad], seeds, ways, True)
        # <slopes, ways> = <seeds, found>, unless a hook has let torch lose what it does to adjoints
        parts = [g * v for g, v in pairs] + [-s * t for s, t in zip(seeds, found) if t is not None]
        least = 1e-6 * sum(v.abs().sum().item() for _, v in pairs)
        if abs(sum(p.sum().item() for p in parts)) > 1e-3 * sum(p.abs().sum().item() for p in parts) + least:
            text = f"the gradient of {self.name} is not linear in adjoints, or torch lost part of it: a hook is in it."
            raise GradientError(text, slug="custom-op", where=where, instead="the function without the hook")
        known = {id(y): (zero + (torch.zeros_like(y) if g is None else g)).to(y) for y, g in zip(ends, found)}
        return [known.get(id(y), y) for y in self.results]

    def _grad(self, where: Where | None, ends: Any, inputs: Any, seeds: Any, again: bool = False) -> Any:
        """`torch.autograd.grad`, with a graph of its own if `again`. Raises GradientError [custom-op], [moved]."""
        slug, instead = "custom-op", ""
        if self.places != [t.data_ptr() for t in self.tensors]:
            text = f"a parameter of {self.name} was given other memory since (`t.data = ...`, `net.float()`)."
            slug, instead = "moved", "tape.backward(...)   before that"
        elif any(t._backward_hooks and isinstance(t, torch.nn.Parameter) for t in self.tensors):
            text, instead = f"a parameter of {self.name} got a hook after it.", "p.register_hook(f)   before it"
        elif inputs and not all(y.requires_grad for y in ends):
            text = f"torch has no graph of a result of {self.name}: made under no_grad(), by detach() or by NumPy."
            instead = "wb.detach(y), if it is a constant"
        elif not (inputs and ends):
            return [torch.zeros_like(t) for t in inputs]
        else:
            try:
                return torch.autograd.grad(ends, inputs, seeds, True, again, allow_unused=True)
            except RuntimeError as error:
                text = f"torch has no gradient of {self.name}: {error}"
        raise GradientError(text, slug=slug, where=where, instead=instead)


def _random_state() -> list[torch.Tensor]:
    """Of torch's own generators."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ())]


def _given(a: Any, follow: bool) -> Any:
    """An argument: of an array with `follow` a leaf of torch on its memory, which refuses writes, or else a copy."""
    if not isinstance(a, array):
        return a
    t = private_tensor(a)
    return t.requires_grad_() if follow and t.is_floating_point() else t.clone()


def _nodes(results: Iterable[torch.Tensor]) -> list[Any]:
    """The nodes of torch's graph of these results."""
    todo = [t.grad_fn for t in results if t.grad_fn is not None]
    seen = set(todo)
    for node in todo:  # which grows meanwhile
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                todo.append(before)
    return todo


def _stranger(results: Iterable[torch.Tensor], given: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """A tensor at which the graph of these results begins, and which was not given."""
    known = set(map(id, given))
    leaves = (getattr(node, "variable", None) for node in _nodes(results) if not node.next_functions)
    return next((t for t in leaves if t is not None and id(t) not in known), None)

"""A module or function of torch as a custom op of arrays: `op`.

It runs once, on the memory of the arrays, and the tape keeps the graph that torch made of it. A walk asks that graph
where it comes to the event, when memory is as it was; it is made anew where a parameter has been written since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ..arrays import capture_log
from ..arrays.array import array
from ..arrays.workspace import is_float_memory
from ..errors import GradientError, LaunchError
from ..kernels.types import Array
from ..tapes.custom_op import CustomOp, Pull, listed
from ..tapes.events import Event
from .tensors import dtype_from_torch, private_tensor, straight


def op(function: Callable[..., Any], name: str = "") -> TorchOp:
    """A module or function of torch as a function of arrays that is one event of a tape: a policy in a rollout.

    function   takes its arguments in order, arrays as tensors on their memory (components as trailing axes), all else
               as it is, and returns a tensor or a tuple of them, always as many, which become new arrays. It must
               depend on its arguments, and the parameters of a module, alone, and change no tensor that it is given.
    name       of its events; by default that of the function or of the module's class.

    The parameters of a module are arrays on their own memory, named as torch names them: `tape.backward` adds to their
    `.grad`, and an optimizer of torch may follow. The gradient is torch's own, from the graph of the forward run, which
    the tape holds as long as it lives. `jvp` and `hvp` are exact too. They, `replay`, `trust` and steps of a
    `checkpoint` run the function again, on copies of the parameters by `torch.func.functional_call`.
    Raises LaunchError [custom-op] for results that are no tensors or depend on tensors with a gradient that were not
    given, and for arguments that were changed; [dtype], [layout]. In walks GradientError [custom-op] where torch has no
    gradient or a second run (of a dropout) gives something else, [overwritten] where parameters were changed meanwhile.

    >>> import torch
    >>> net = torch.nn.Linear(2, 1, bias=False)
    >>> policy = wb.interop.torch.op(net, "policy")
    >>> x = wb.array([[1.0, 2.0]], requires_grad=True)
    >>> with wb.Tape() as tape:
    ...     u = policy(x)
    >>> tape.backward(grads={u: wb.ones_like(u)})
    >>> net.weight.grad, torch.equal(wb.to_torch(x.grad), net.weight.detach())
    (tensor([[1., 2.]]), True)
    """
    return TorchOp(function, name)


class TorchOp(CustomOp):
    """What `op` makes. It takes the arguments of a call, and behind them the `parameters`."""

    def __init__(self, function: Callable[..., Any], name: str = ""):
        name = name or getattr(function, "__name__", type(function).__name__)
        super().__init__(lambda *values: self.evaluate(values, False)[0], name, self._vjp, self._tangent)
        self.function, self.__doc__, self.count = function, function.__doc__, 0
        self.parameters = dict(function.named_parameters()) if isinstance(function, torch.nn.Module) else {}
        self.own: list[array] = []
        self._state: list[Any] = []
        self.arguments(())  # so that parameters are known memory to loops that call the op later

    def arguments(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """Those of the call, and the parameters as arrays: the same ones while these stay where they are."""
        capture_log.refuse(f"{self.__name__}, a function of torch,", "the call outside of the capture, or jit=False")
        state = [(p.data_ptr(), p.shape, p.stride(), p.requires_grad) for p in self.parameters.values()]
        if state != self._state:
            self.own = [straight(p, Array(dtype_from_torch(p.dtype), p.ndim)) for p in self.parameters.values()]
            self._state = state
            for name, a in zip(self.parameters, self.own, strict=True):
                a.name = a.name or name
        return *args, *self.own

    def evaluate(self, args: Sequence[object], follow: bool) -> tuple[Any, Pull | None]:
        first = len(args) - len(self.parameters)
        given = [_given(a, follow) for a in args[:first]]
        for a, own, p in zip(args[first:], self.own, self.parameters.values(), strict=True):
            given.append(p if a is own else _given(a, follow, p.shape))
        graph = _Graph(self, given, follow)
        found = [np.atleast_1d(t.detach().cpu().numpy()) for t in graph.results]
        return tuple(found) if graph.several else found[0], graph.pull if follow else None

    def pure(self, given: Sequence[Any]) -> Any:
        """The function of its arguments and the parameters."""
        first, own = len(given) - len(self.parameters), self.parameters.values()
        if all(t is p for t, p in zip(given[first:], own, strict=True)):
            return self.function(*given[:first])
        values = dict(zip(self.parameters, given[first:], strict=True))
        return torch.func.functional_call(self.function, values, tuple(given[:first]))  # type: ignore[arg-type]

    def again(self, given: Sequence[Any], left: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What a second run returns. Raises GradientError [custom-op] unless that is what the first one `left`."""
        made = listed(self.pure(given))
        for t, before in zip(made, left, strict=True):
            least = 1e-6 * float(before.detach().abs().max()) if before.numel() else 0.0
            if not torch.allclose(t.detach(), before.detach().reshape(t.shape), 1e-4, least, equal_nan=True):
                text = f"{self.__name__} gave something else when it ran again."
                raise GradientError(text, slug="custom-op", why="Its gradient belongs to one run.", instead="net.eval()")
        return made

    def _vjp(self, *given: Any) -> list[Any]:
        """The rule on numbers."""
        args, seeds = given[: -2 * self.count], given[-self.count :]
        pull = self.evaluate(args, True)[1]
        assert pull is not None
        return list(pull(None, seeds, [True for a in args if isinstance(a, np.ndarray)]))

    def _tangent(self, *given: Any) -> list[Any]:
        """The rule on arrays: a function of torch again, which is an op too."""
        others = sum(not isinstance(a, array) for a in given)
        count = (len(given) - others - self.count) // 2 + others  # of the arguments
        floats = [is_float_memory(a) for a in given[count:]]

        def moved(*tensors: Any) -> tuple[torch.Tensor, ...]:
            args, left, along = tensors[:count], tensors[count : count + self.count], tensors[count + self.count :]
            arrays = [k for k, t in enumerate(args) if isinstance(t, torch.Tensor)]
            ways = {k: t for k, t in zip(arrays, along, strict=True) if t.is_floating_point()}
            with torch.enable_grad():
                at = {k: args[k] if args[k].requires_grad else args[k].detach().requires_grad_() for k in ways}
                made = self.again([at.get(k, t) for k, t in enumerate(args)], left)
                return _pushed([t for t in made if t.is_floating_point()], list(at.values()), list(ways.values()))

        found = iter(TorchOp(moved, f"tangent of {self.__name__}")(*given))
        return [next(found) if real else None for real in floats[: self.count]]


class _Graph:
    """One run, and with `follow` the graph that torch made of it."""

    def __init__(self, op: TorchOp, given: Sequence[Any], follow: bool):
        self.op, self.given = op, given
        self.tensors = [t for t in given if isinstance(t, torch.Tensor)]
        self.stamps = self._stamps()
        with torch.set_grad_enabled(follow):
            made = op.pure(given)
        self.several, self.results = isinstance(made, tuple | list), listed(made)
        self._check(_stranger(self.results, self.tensors) if follow else None)

    def _stamps(self) -> list[int]:
        return [t._version for t in self.tensors]

    def _check(self, stranger: torch.Tensor | None) -> None:
        op, results, text, instead = self.op, self.results, "", "return y   with a tensor y"
        if not results or not all(isinstance(t, torch.Tensor) for t in results) or op.count not in (0, len(results)):
            told = ", ".join(type(t).__name__ for t in results)
            text = f"{op.__name__} returned {told}: not tensors, or not as many as the last time."
        elif self._stamps() != self.stamps:
            text, instead = f"{op.__name__} changed a tensor that it was given.", "x = x + 1   in place of x += 1"
        elif stranger is not None:
            text = f"{op.__name__} uses a tensor of shape {tuple(stranger.shape)} with a gradient, which it was not given."
            instead = "wb.interop.torch.op(module)   of a torch.nn.Module with that parameter, or an argument more"
        if text:
            raise LaunchError(text, slug="custom-op", instead=instead)
        op.count = len(results)
        for t in results:
            dtype_from_torch(t.dtype)

    def pull(self, event: Event | None, seeds: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """The gradient of each wanted tensor for the adjoints of the results."""
        found: list[Any] = [None] * len(self.tensors)
        by = [k for k, want in enumerate(wanted) if want and self.tensors[k].requires_grad]
        with torch.enable_grad():  # a walk inside torch's own backward finds it off
            made = self.results if self._stamps() == self.stamps else self.op.again(self.given, self.results)
        ends = [(y, s) for y, s in zip(made, seeds, strict=True) if s is not None and y.requires_grad]
        if not by or not ends:
            return found
        adjoints = [torch.from_numpy(s).to(y).view(y.shape) for y, s in ends]
        outputs, inputs = [y for y, _ in ends], [self.tensors[k] for k in by]
        try:
            slopes = torch.autograd.grad(outputs, inputs, adjoints, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            text, where = f"torch has no gradient of {self.op.__name__}: {error}", event and event.where
            raise GradientError(text, slug="custom-op", where=where) from error
        for k, g in zip(by, slopes, strict=True):
            found[k] = None if g is None else g.cpu().numpy()
        return found


def _pushed(
    results: list[torch.Tensor], at: list[torch.Tensor], ways: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """The tangents of results: the gradient is linear in the adjoints, and its gradient by these is the tangent."""
    ends = [t for t in results if t.requires_grad]
    seeds = [torch.zeros_like(t, requires_grad=True) for t in ends]
    slopes = torch.autograd.grad(ends, at, seeds, create_graph=True, allow_unused=True) if ends else ()
    pairs = [(g, v) for g, v in zip(slopes, ways, strict=bool(slopes)) if g is not None and g.requires_grad]
    found = iter(
        torch.autograd.grad(
            [g for g, _ in pairs], seeds, [v for _, v in pairs], create_graph=True, materialize_grads=True
        )
        if pairs
        else map(torch.zeros_like, ends)
    )
    return tuple(next(found) if t.requires_grad else torch.zeros_like(t) for t in results)


def _given(a: Any, follow: bool, shape: Sequence[int] | None = None) -> Any:
    """An argument: of an array with `follow` a leaf of torch on its memory, which refuses writes, or else a copy."""
    if not isinstance(a, array | np.ndarray):
        return a
    t = private_tensor(a) if isinstance(a, array) else torch.from_numpy(a)
    t = t if shape is None else t.reshape(shape)
    return t.requires_grad_() if follow and t.is_floating_point() else t.clone()


def _stranger(results: Iterable[Any], given: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """A tensor at which the graph of these results begins, and which was not given."""
    known, todo = set(map(id, given)), [t.grad_fn for t in results if isinstance(t, torch.Tensor) and t.requires_grad]
    seen = {None, *todo}
    for node in todo:  # which grows meanwhile
        if following := getattr(node, "next_functions", ()):
            for before, _ in following:
                if before not in seen:
                    seen.add(before)
                    todo.append(before)
        elif (leaf := getattr(node, "variable", None)) is not None and id(leaf) not in known:
            return leaf
    return None

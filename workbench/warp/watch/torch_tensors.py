"""Tensors of torch behind arrays that `wp.from_torch` has made: their gradient and history, which Warp does not see."""

from __future__ import annotations

import sys
from typing import Any


def shares_gradient(a: Any) -> bool:
    """True if the tensor behind an array has the same memory as its gradient; no longer after `tensor.grad = None`."""
    tensor = getattr(a, "_tensor", None)
    return tensor is not None and tensor.is_leaf and tensor.grad is not None and tensor.grad.data_ptr() == a.grad.ptr


def leaves_behind(a: object) -> list[Any]:
    """The leaves of torch from which the tensor behind an array was computed; none behind a leaf."""
    found, seen = [], set()
    waiting = [getattr(getattr(a, "_tensor", None), "grad_fn", None)]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found += [node.variable] if hasattr(node, "variable") else []
            waiting += [before for before, _ in node.next_functions]
    return found


def in_backward() -> bool:
    """True inside a backward of torch, which carries on what a function of the program returns."""
    torch = sys.modules.get("torch")
    return torch is not None and torch._C._current_graph_task_id() != -1

"""Kernels run as the Python functions they are: the meaning of a program without reader, IR or compiler.

Threads run one after the other. Only programs on arrays of scalars can be run so: in Python, a vector is an object
that two names share, `m * v` is not a matrix product, and a random state is not rebound.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import workbench as wb


class Plain:
    """An array of scalars."""

    def __init__(self, data: np.ndarray):
        self.data = data

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        found = self.data[index]
        return Plain(found) if isinstance(found, np.ndarray) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        self.data[index] = value

    def transpose(self, axes: Any = None) -> Plain:
        return Plain(self.data.transpose(axes))

    def flatten(self) -> Plain:
        return Plain(self.data.reshape(-1))

    def reshape(self, shape: Any) -> Plain:
        return Plain(self.data.reshape(shape))

    def zero_(self) -> None:
        self.data[...] = 0

    def fill_(self, value: Any) -> None:
        self.data[...] = value

    def assign(self, other: Plain) -> None:
        self.data[...] = other.data


def _copy(dest: Plain, src: Plain, dest_offset: int = 0, src_offset: int = 0, count: int = 0) -> None:
    n = count or src.data.size - src_offset
    dest.data.reshape(-1)[dest_offset : dest_offset + n] = src.data.reshape(-1)[src_offset : src_offset + n]


def _atomic(combine: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def update(a: Plain, *rest: Any) -> Any:
        *index, value = rest
        old = a[tuple(index)]
        a[tuple(index)] = combine(old, value)
        return old

    return update


def _cas(a: Plain, *rest: Any) -> Any:
    *index, expected, new = rest
    old = a[tuple(index)]
    a[tuple(index)] = new if old == expected else old
    return old


def patch(monkeypatch: Any) -> None:
    """Let the names of the kernel language mean their plain Python selves."""
    thread: list[Any] = [0]

    def launch(kernel: Any, dim: Any, inputs: Any = (), outputs: Any = ()) -> None:
        for at in itertools.product(*map(range, (dim,) if isinstance(dim, int) else dim)):
            thread[0] = at[0] if len(at) == 1 else at
            kernel.func(*inputs, *outputs)

    names = {
        "launch": launch,
        "tid": lambda: thread[0],
        "printf": lambda *_: None,
        "static": lambda x: x,
        "copy": _copy,
        "clone": lambda a: Plain(a.data.copy()),
        "atomic_cas": _cas,
        "zeros": lambda shape, dtype, **_: Plain(np.zeros(shape, dtype.numpy)),
        "atomic_add": _atomic(operator.add),
        "atomic_sub": _atomic(operator.sub),
        "atomic_min": _atomic(min),
        "atomic_max": _atomic(max),
        "atomic_exch": _atomic(lambda old, new: new),
    }
    for name, meaning in names.items():
        monkeypatch.setattr(wb, name, meaning)


def run(program: Any, F: Any) -> dict[str, np.ndarray]:
    """The contents after."""
    arrays = {n: Plain(v.astype(program.contents[n].element(F).numpy)) for n, v in program.start().items()}
    if F not in program.made:
        program.made[F] = program.make(F)
    made = program.made[F]
    with np.errstate(all="ignore"):
        if isinstance(made, wb.Kernel):
            wb.launch(made, program.dim, list(arrays.values()))
        else:
            made(SimpleNamespace(**arrays))
    return {name: a.data.astype(np.float64) for name, a in arrays.items()}

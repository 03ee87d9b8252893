"""Optional arrays: launches with None for an array, for which the kernel is read anew without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..kernels.program import Kernel, Program
from ..kernels.reading.declare import Instance, struct_of
from ..kernels.reading.optional_arrays import MissingArrays
from ..kernels.types import Array
from .arguments import flatten


def is_left_out(kernel: Kernel, args: Sequence[Any]) -> frozenset[str]:
    """Paths of array arguments, and of array fields of structs, that are None."""
    names = kernel.func.__code__.co_varnames
    return frozenset(path for name, arg in zip(names, args, strict=False) for path in _missing(name, arg))


def _missing(path: str, arg: object) -> Iterator[str]:
    if arg is None:
        yield path
    elif isinstance(arg, Instance):
        for name, type in struct_of(arg).fields:
            part = getattr(arg, name)
            if isinstance(part, Instance) or isinstance(type, Array):
                yield from _missing(f"{path}.{name}", part)


def fitted(kernel: Kernel, args: Sequence[Any]) -> tuple[Program, list[Any]]:
    """The program of a kernel without the omitted arrays, and its flat arguments. Raises KernelError, LaunchError."""
    gaps = MissingArrays(is_left_out(kernel, args))
    while True:
        program = kernel.without(gaps).program()
        flat = flatten(program, args)
        names = frozenset(program.leaves[k].name for k in program.presence_tests if not flat[k].size)
        if names <= gaps.empty:
            return program, flat
        gaps = MissingArrays(gaps.absent, gaps.empty | names)

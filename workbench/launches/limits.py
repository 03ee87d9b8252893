"""Limits of every launch: its number of threads, what an int32 index can count, one store per element."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..arrays.dtypes import inner_shape
from ..errors import LaunchError, caution
from ..kernels.analysis import launch_ranges
from ..kernels.analysis.launch_form import LaunchForm
from ..kernels.analysis.thread_conflicts import write_race
from ..kernels.ir import Function
from ..kernels.types import Array
from .executable import root_name

LONGEST = 2**31 - 1  # elements along an axis: thread indices and extents are int32
MOST_THREADS = {"numpy": 2**32, "c": 2**40, "cuda": 2**42}  # hours of work even where a thread does nothing


def refuse_size(kernel: str, function: Function, form: LaunchForm) -> None:
    """Raise LaunchError [dim] for a grid that nobody could finish, [extent] for an axis that int32 cannot count."""
    threads, most = math.prod(form.dims), MOST_THREADS[form.backend]
    if threads > most or (len(form.dims) == 1 and threads > LONGEST):
        text = f"Kernel {kernel!r}: dim={form.dims} are {threads:,} threads."
        why = f"A launch on {form.backend!r} has at most {most:,}, and {LONGEST:,} along one axis."
        instead = "for start in range(0, n, m): wb.launch(kernel, dim=m, inputs=[start, ...])"
        raise LaunchError(text, slug="dim", where=function.where, why=why, instead=instead)
    for name, shape in form.shapes.items():
        for axis, n in enumerate(shape):
            if n > LONGEST:
                where = next((p.where for p in function.params if p.name == name), function.where)
                text = f"Kernel {kernel!r}, argument {name!r}: axis {axis} has {n:,} elements."
                why = f"An index in a kernel is an int32, which counts to {LONGEST:,}."
                instead = f"{name}.reshape((n, -1)), or {name}[:{LONGEST}]"
                raise LaunchError(text, slug="extent", where=where, why=why, instead=instead)


def tell_of_negatives(function: Function, form: LaunchForm) -> None:
    """Warn of indices that are computed and below 0 in some threads only: they count from the end there."""
    for access, axis, thread, index in launch_ranges.partly_negative(function, form):
        if access.where is None:
            continue
        n = f"{access.name}.shape[{axis}]"
        caution(
            f"Kernel {function.name!r}: thread {thread} uses index {index} of {access.name!r}, which counts from the"
            f" end, as in Python. Write `(index) % {n}` if that is meant, else `if index >= 0:` around it."
            " [negative-index]",
            access.where,
        )


def refuse_race(kernel: str, function: Function, form: LaunchForm) -> None:
    """Raises LaunchError [race] where two threads certainly store to one element."""
    race = write_race(function, form)
    if race is not None:
        stmt, name = race.stmt, root_name(race.stmt)
        lines = f"line {race.stmt.where.line if race.stmt.where else '?'}"
        if race.other_stmt is not stmt:
            lines += f" and line {race.other_stmt.where.line if race.other_stmt.where else '?'}"
        place = element_text(function, name, race.element, form.shapes[name])
        raise LaunchError(
            f"Kernel {kernel!r}: threads {race.thread} and {race.other} both store to one element of {name!r},"
            f" {place}, in {lines}.",
            slug="race",
            where=stmt.where,
            why="Threads have no order, so the result, and its gradient, would be a matter of luck.",
            instead=f"wb.atomic_add({name}, ..., value), or an index that differs between threads",
        )


def element_text(function: Function, name: str, words: Sequence[int], shape: tuple[int, ...]) -> str:
    """`y[3]`, or `y[3][1]` for a component. Negative indices count from the end."""
    type = next(p.type for p in function.arrays if p.name == name)
    inner = inner_shape(type.dtype) if isinstance(type, Array) else ()
    index = [i % n for i, n in zip(words, (*shape, *inner), strict=False)]
    parts = index[: len(shape)], index[len(shape) :]
    return name + "".join(str(part) for part in parts if part)

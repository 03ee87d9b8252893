"""Limits of every launch: the number of threads, and the length of an axis that an int32 index can count."""

from __future__ import annotations

import math

from ..errors import LaunchError
from ..kernels.analysis.launch_form import LaunchForm
from ..kernels.ir import Function

LONGEST = 2**31 - 1  # elements along an axis: thread indices and extents are int32
MOST_THREADS = {"numpy": 2**32, "c": 2**40, "cuda": 2**42}  # hours of work even where a thread does nothing


def refuse_size(kernel: str, function: Function, form: LaunchForm) -> None:
    """Raise LaunchError [dim] for a grid that nobody could finish, [extent] for an axis that int32 cannot count."""
    threads, most = math.prod(form.dims), MOST_THREADS[form.backend]
    if threads > most or (len(form.dims) == 1 and threads > LONGEST):
        raise LaunchError(
            f"Kernel {kernel!r}: dim={form.dims} are {threads:,} threads.",
            slug="dim",
            where=function.where,
            why=f"A launch on {form.backend!r} has at most {most:,}, and {LONGEST:,} along one axis.",
            instead="for start in range(0, n, m): wb.launch(kernel, dim=m, inputs=[start, ...])",
        )
    for name, shape in form.shapes.items():
        for axis, n in enumerate(shape):
            if n > LONGEST:
                where = next((p.where for p in function.params if p.name == name), function.where)
                raise LaunchError(
                    f"Kernel {kernel!r}, argument {name!r}: axis {axis} has {n:,} elements.",
                    slug="extent",
                    where=where,
                    why=f"An index in a kernel is an int32, which counts to {LONGEST:,}.",
                    instead=f"{name}.reshape((n, -1)), or {name}[:{LONGEST}]",
                )

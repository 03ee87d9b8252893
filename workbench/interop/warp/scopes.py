"""Blocks for the pictures of an engine's step: launches grouped by the library module that they come from."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ...tapes.events import Event, Scope
from .events import WarpStep

SHORTEST = 2  # events that make a block


def by_module(steps: list[WarpStep], events: list[Event]) -> Iterator[Scope]:
    """Blocks of consecutive events whose kernels are defined in one module of a package, named after the module.

    Copies and fills belong to the launch before them. Kernels of a script or a notebook have no block.
    """
    homes = {id(step.event): _home(step.kernel) for step in steps if step.kernel is not None}
    home, found = "", []
    for event in events:
        home = homes.get(id(event), home)
        found.append(home)
    first = 0
    for name, run in groupby(found):
        count = len(list(run))
        if name and count >= SHORTEST:
            yield Scope(name, first, first + count)
        first += count


def _home(kernel: Any) -> str:
    """The last part of a kernel's module name; "" outside of packages."""
    package, _, name = (kernel.func.__module__ or "").rpartition(".")
    return name if package else ""

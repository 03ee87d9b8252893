"""Arguments of an adjoint, a tangent or a race finder of a launch: the launch's own, then companion arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import capture_log
from ..arrays.allocation import Allocation
from ..arrays.array import array, pack_companions, pack_values
from ..arrays.workspace import Shadow, shadow_view
from ..device import XpArray
from .plan import PlannedLaunch

Beside = list[tuple[int, Shadow]]
"""(position of a parameter, its companion), in the order of the function's parameters behind the kernel's own."""


class AdjointArguments:
    """The arguments of a function that was derived from the kernel of a launch.

    command   the launch.
    private   positions of the arrays that the function writes to as it reruns the launch: it gets copies of them.
    beside    companions, each laid out like the argument that it belongs to.
    more      further arrays and numbers, behind the companions.

    `values` are what `Executable.run` packs, `first` is where those of `beside` begin.
    """

    def __init__(self, command: PlannedLaunch, private: Sequence[int], beside: Beside, more: Sequence[Any] = ()):
        self.command, self.beside, self.more = command, beside, more
        self.copies = _copies(private, command.flat) if private else {}
        self.values = _moved_values(command.flat, self.copies) if private else list(command.values)
        self.first = len(self.values)
        self.values += pack_companions(command.places, beside)
        for given in more:
            self.values += memory_values(given) if getattr(given, "shape", ()) else [given]

    def views(self) -> list:
        """The arguments for the interpreter: NumPy views and numbers."""
        command = self.command
        arrays = command.views()
        for k, (data, first) in self.copies.items():
            whole, offset = arrays[k], command.flat[k].span.offset - first
            arrays[k] = np.ndarray(whole.shape, whole.dtype, data, offset, whole.strides)
        return [*arrays, *(shadow_view(command.places[k], shadow) for k, shadow in self.beside), *self.more]


def memory_values(data: XpArray) -> list:
    """[pointer, *shape, *byte strides] of a NumPy or CuPy array."""
    return [capture_log.address(data), *data.shape, *data.strides]


def _copies(private: Sequence[int], flat: Sequence[Any]) -> dict[int, tuple[Any, int]]:
    """Copies of the memory of `private` for all arguments on it: {position: (uint8 array, offset of its start)}."""
    copies: dict[int, tuple[Any, int]] = {}
    made: dict[Allocation, tuple[Any, int]] = {}
    touched = {flat[k].allocation for k in private}
    for k, a in enumerate(flat):
        if isinstance(a, array) and a.allocation in touched:
            if a.allocation not in made:
                hulls = [b.span.hull() for b in flat if isinstance(b, array) and b.allocation is a.allocation]
                low, high = min(h[0] for h in hulls), max(h[1] for h in hulls)
                made[a.allocation] = (capture_log.copy(a.allocation.bytes[low:high]), low)
            copies[k] = made[a.allocation]
    return copies


def _moved_values(flat: Sequence[Any], copies: dict[int, tuple[Any, int]]) -> list:
    values: list = []
    for k, a in enumerate(flat):
        packed = pack_values((a,))
        if k in copies:
            data, first = copies[k]
            packed[0] = capture_log.address(data) + a.span.offset - first
        values += packed
    return values

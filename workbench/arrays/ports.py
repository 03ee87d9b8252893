"""The ports: lists that modules above fill when they are imported. Nothing else is reached upwards but `late_imports`.

Arithmetic on arrays is a launch, and arrays lie below launches; other libraries are known to `interop` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .allocation import Allocation

# by the name of Python's method or of NumPy's function (`__imul__`, `__add__`, `multiply`, ...): what it does on arrays
array_operators: dict[str, Callable[..., Any]] = {}
# (value) -> the arrays which stand behind it: behind a declared scalar, a tensor of another library
arrays_behind: list[Callable[[Any], Any]] = []
# (argument of a launch, its wanted type) -> an array on the memory of a foreign one; None if it is not theirs
wrappers: list[Callable[[Any, Any], Any]] = []
# (allocation) -> a number that grows whenever the library that owns the memory changes it; None if it is not theirs
version_counters: list[Callable[[Allocation], Any]] = []
# (tape, workspace), called after every publishing: they hand gradients on to other libraries
gradient_takers: list[Callable[[Any, Any], None]] = []

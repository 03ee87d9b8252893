"""Other libraries, each in its own file, imported on demand: importing the workbench imports none of them.

A tensor that is passed straight to a launch is recognised without an import, by asking whether its library has been
loaded. Imports `launches` and `tapes`. To add a library: a file of its own, that imports it, and its public functions
in the table of `workbench/__init__`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

from ..arrays import ports
from ..arrays.array import array
from ..kernels.types import Array, Type

__all__ = ["dlpack", "jax", "torch", "warp"]
__dir__ = __all__.copy


def __getattr__(name: str) -> Any:
    """`wb.interop.torch`: the module is imported when it is first named. What it defines for `wb` is found here too."""
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    root = sys.modules[__name__.partition(".")[0]]
    found = getattr(root, name) if name in root.__all__ else None
    if getattr(found, "__module__", "").startswith(f"{__name__}."):
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _bridge() -> Any:
    return importlib.import_module(".tensors", __name__)


def _wrapped(value: object, type: Type) -> array | None:
    """For `ports.wrappers`: a tensor passed straight to a launch."""
    return _bridge().straight(value, type) if is_tensor(value) and isinstance(type, Array) else None


def _known(value: object) -> Iterator[array]:
    """For `ports.arrays_behind`: the arrays that launches have wrapped a tensor as."""
    return _bridge().wrappers(value) if is_tensor(value) else iter(())


ports.wrappers.append(_wrapped)
ports.arrays_behind.append(_known)

"""The names of the kernel language as users have them: `wb.sqrt` in a func of this folder is the same as in theirs."""

from __future__ import annotations

from types import SimpleNamespace

from ..arrays.array import array
from ..arrays.creation import zeros
from ..kernels.ops import BUILTINS, STATEFUL, TILES
from ..kernels.types import AnyScalar, names, uint32

wb = SimpleNamespace(
    **names(), **BUILTINS, **STATEFUL, uint32=uint32, zeros=zeros, array=array, Scalar=AnyScalar, tile=TILES["tile"]
)

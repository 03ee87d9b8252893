"""workbench: differentiable physics in notebooks. Kernels in Python, exact gradients, and pictures of how they came about.

    import workbench as wb

    @wb.kernel
    def square(x: wb.array(dtype=float), y: wb.array(dtype=float)):
        i = wb.tid()
        y[i] = x[i] * x[i]
"""

from builtins import float as float, int as int
from math import e as e, inf as inf, nan as nan, pi as pi, tau as tau

from . import diagnose as diagnose
from . import interop as interop
from . import viz as viz
from .array import (
    array as array,
    array1d as array1d,
    array2d as array2d,
    array3d as array3d,
    array4d as array4d,
    clone as clone,
    copy as copy,
    empty as empty,
    empty_like as empty_like,
    from_numpy as from_numpy,
    full as full,
    full_like as full_like,
    ones as ones,
    ones_like as ones_like,
    zeros as zeros,
    zeros_like as zeros_like,
)
from .config import config as config
from .device import (
    ScopedDevice as ScopedDevice,
    get_device as get_device,
    get_devices as get_devices,
    init as init,
    is_cuda_available as is_cuda_available,
    set_device as set_device,
    synchronize as synchronize,
)
from .errors import (
    BoundsError as BoundsError,
    GradientError as GradientError,
    KernelError as KernelError,
    LaunchError as LaunchError,
)
from .interop import (
    device_from_torch as device_from_torch,
    device_to_torch as device_to_torch,
    dtype_from_torch as dtype_from_torch,
    dtype_to_torch as dtype_to_torch,
    from_dlpack as from_dlpack,
    from_jax as from_jax,
    from_torch as from_torch,
    to_jax as to_jax,
    to_torch as to_torch,
)
from .kernels import types as types
from .kernels.declare import (
    adjoint as adjoint,
    constant as constant,
    func as func,
    func_grad as func_grad,
    func_replay as func_replay,
    printf as printf,
    static as static,
    struct as struct,
    tid as tid,
)
from .kernels.kernel import Kernel as Kernel, kernel as kernel
from .kernels.ops import BUILTINS as _BUILTINS
from .kernels.ops import STATEFUL as _STATEFUL
from .kernels.declare import Refused as _Refused
from .kernels.ops import memory as _memory_rows
from .kernels.ops import why_refused as _why_refused
from .kernels.types import (
    bool_ as bool,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    matrix as matrix,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
    vector as vector,
)
from .launch import launch as launch
from .operate import map as map
from .reduce import utils as utils
from .scalar import scalar as scalar
from .tape import Tape as Tape

E, INF, NAN, PI, TAU = e, inf, nan, pi, tau
HALF_PI = half_pi = pi / 2

globals().update(types.names())
globals().update({name: made for name, made in _BUILTINS.items() if name not in globals()})
globals().update({row.name: row for row in _memory_rows.ATOMICS})
globals().update(_STATEFUL)


def __getattr__(name: str) -> object:
    """Names of NVIDIA Warp that are not here say why when they are used; all others are unknown."""
    reason = _why_refused(name)
    if reason is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _Refused(name, reason)

"""Differentiable physics in notebooks: kernels in Python, exact gradients, and pictures of how they came about.

A first session: `kernel launch array zeros Tape`, then `tape.backward x.grad`; `tape.show tape.explore tape.diagnose`
say how a gradient came about, `gradcheck` compares it with differences.

>>> @wb.kernel
... def square(x: wb.array[float], y: wb.array[float]):
...     y[wb.tid()] = x[wb.tid()] * x[wb.tid()]
>>> x, y = wb.array([3.0], requires_grad=True), wb.zeros(1)
>>> with wb.Tape() as tape: wb.launch(square, dim=1, inputs=[x], outputs=[y])
>>> tape.backward(y)
>>> assert x.grad.list() == [6.0]
"""

import copyreg as _copyreg
import sys as _sys
from builtins import float, int  # noqa: UP029 (they are offered by name)
from importlib import import_module as _import_module
from math import e, inf, log as _log, log10 as _log10, nan, pi, tau
from typing import TYPE_CHECKING as _TYPE_CHECKING

from .arrays.allocation import Allocation as _Allocation, GradientMemory as _GradientMemory
from .arrays.array import array, array1d, array2d, array3d, array4d, clone
from .arrays.creation import copy, empty, empty_like, from_numpy, full, full_like, ones, ones_like, zeros, zeros_like
from .arrays.indexed import indexedarray, of_axes as _of_axes
from .arrays.scalar import scalar
from .arrays.span import Span as _Span
from .config import DeterministicMode, config
from .device import (
    Device,
    DeviceLike,
    ScopedDevice,
    get_device,
    get_devices,
    is_cuda_available,
    set_device,
    synchronize,
)
from .errors import BoundsError, GradientError, KernelError, LaunchError, compose as _compose
from .interop.tracebacks import install as _install
from .kernels import Kernel, kernel, overload, types
from .kernels.ops import (
    BUILTINS as _BUILTINS,
    STATEFUL as _STATEFUL,
    TILES as _TILES,
    instead_of as _instead_of,
    why_refused as _why_refused,
)
from .kernels.ops.functions import ATOMICS as _ATOMICS
from .kernels.parameter_types import Reference as _Reference
from .kernels.program import Program as _Program
from .kernels.reading.checks import expect_eq, expect_near, expect_neq, print_ as print
from .kernels.reading.declare import (
    Func as _Func,
    Refused as _Refused,
    adjoint,
    constant,
    func,
    func_grad,
    func_replay,
    len_ as len,
    printf,
    static,
    struct,
    tid,
)
from .kernels.reading.gradients import grad
from .kernels.types import (
    Float,
    Int,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    matrix,
    quaternion,
    transformation,
    uint8,
    uint16,
    uint32,
    uint64,
    vector,
)
from .launches.launch import launch, launch_tiled
from .launches.operators import map
from .tapes.events import Event as _Event
from .tapes.tape import Tape
from .warp.names.imports import HostModules as _Names

if _TYPE_CHECKING:
    from . import diagnose, viz
    from .derivatives import pitfalls, verify
    from .derivatives.jacobian import hvp, jacobian, value_and_grad
    from .derivatives.sweep import sweep
    from .derivatives.verify import gradcheck
    from .interop.dlpack import from_dlpack
    from .interop.jax import from_jax, jax_callable, jax_kernel, to_jax
    from .interop.tensors import from_torch, to_torch
    from .kernels.reading.native import func_native
    from .launches.sums import utils
    from .rockets import demo
    from .tapes.capture import ScopedCapture, capture, capture_launch
    from .tapes.checkpoint import checkpoint
    from .tapes.jit import jit
    from .tapes.jvp import jvp
    from .tapes.vmap import vmap

bool = types.bool_
Scalar, Function, ref = types.AnyScalar, _Func, _Reference()
E, INF, NAN, PI, TAU = e, inf, nan, pi, tau
HALF_PI = half_pi = pi / 2
LN2, LN10 = ln2, ln10 = _log(2.0), _log(10.0)
LOG2E, LOG10E = log2e, log10e = 1 / ln2, _log10(e)
PHI = phi = (1 + 5**0.5) / 2

globals().update({f"indexedarray{_n}d": _of_axes(_n) for _n in (1, 2, 3, 4)})
globals().update(types.names())
globals().update({name: made for name, made in _BUILTINS.items() if name not in globals()})
globals().update(_ATOMICS)
globals().update(_STATEFUL)
globals().update(_TILES)

# Public, but no part of recording and walking a tape: imported when first asked for.
_LATER = {
    "autograd": "warp.autograd",
    "diagnose": "diagnose",
    "examples": "warp.names.examples",
    "fem": "warp.fem",
    "numerics": "optim.numerics",
    "optim": "optim",
    "pitfalls": "derivatives.pitfalls",
    "sparse": "sparse",
    "trust": "diagnose.trust:trust_function",
    "verify": "derivatives.verify",
    "viz": "viz",
}
for _room, _names in {
    "derivatives.integrate": "bdf2 implicit_midpoint integrate rk4 rk45 symplectic_euler velocity_verlet",
    "derivatives.jacobian": "covariance hessian hvp jacobian value_and_grad",
    "derivatives.root": "fixed_point minimize root",
    "derivatives.smoothed": "smoothed",
    "derivatives.sweep": "sweep",
    "derivatives.verify": "gradcheck",
    "interop.dlpack": "from_dlpack",
    "interop.jax": "device_from_jax device_to_jax dtype_from_jax dtype_to_jax from_jax jax_callable jax_kernel to_jax",
    "interop.tensors": "device_from_torch device_to_torch dtype_from_torch dtype_to_torch from_torch to_torch",
    "kernels.reading.native": "func_native",
    "launches.sums": "utils",
    "optim.descend": "descend",
    "arrays.packing": "pack",
    "rockets": "demo",
    "tapes.capture": "ScopedCapture capture capture_launch Graph",
    "tapes.checkpoint": "checkpoint",
    "tapes.custom_op": "custom_op",
    "tapes.jit": "jit",
    "tapes.jvp": "jvp",
    "tapes.vmap": "vmap",
    "geometry.hash_grid": "HashGrid HashGridQuery hash_grid_query hash_grid_query_next hash_grid_point_id "
    "minimum_image",
    "geometry.roots": "first_root",
    "geometry.search": "lower_bound poisson sample_cdf",
    "geometry.triangles": "closest_point_edge_edge intersect_tri_tri",
    "geometry.mesh": "Mesh mesh_get mesh_get_bvh mesh_get_group_root mesh_get_index mesh_get_point mesh_get_velocity "
    "mesh_eval_position mesh_eval_velocity mesh_eval_face_normal",
    "geometry.point_queries": "MeshQueryPoint mesh_query_point mesh_query_point_no_sign mesh_query_point_sign_normal "
    "mesh_query_point_sign_parity mesh_query_point_sign_winding_number mesh_query_furthest_point_no_sign",
    "geometry.ray_queries": "MeshQueryRay mesh_query_ray mesh_query_ray_anyhit mesh_query_ray_count_intersections",
    "geometry.box_queries": "Bvh BvhQuery bvh_get_group_root MeshQuery MeshQueryAABB bvh_query_aabb bvh_query_ray "
    "bvh_query_capsule bvh_query_sphere bvh_query_next mesh_query_aabb mesh_query_sphere mesh_query_next "
    "mesh_query_aabb_next BvhQueryTiled MeshQueryAABBTiled tile_query_valid tile_bvh_query_aabb "
    "tile_bvh_query_ray tile_bvh_query_next tile_mesh_query_aabb tile_mesh_query_aabb_next bvh_query_aabb_tiled "
    "bvh_query_ray_tiled bvh_query_next_tiled mesh_query_aabb_tiled mesh_query_aabb_next_tiled",
    "warp.names.streams": "Stream Event ScopedStream get_stream set_stream record_event "
    "synchronize_device synchronize_stream synchronize_event get_event_elapsed_time "
    "ScopedTimer LOG_DEBUG LOG_INFO LOG_WARNING LOG_ERROR TIMING_KERNEL TIMING_KERNEL_BUILTIN TIMING_MEMCPY "
    "TIMING_MEMSET TIMING_GRAPH TIMING_ALL",
    "warp.names.idle": "is_mempool_supported is_mempool_enabled is_mempool_access_supported "
    "is_mempool_access_enabled is_peer_access_supported is_peer_access_enabled set_mempool_enabled "
    "set_mempool_access_enabled set_peer_access_enabled wait_event wait_stream clear_kernel_cache clear_lto_cache "
    "clear_jax_callable_graph_cache JaxCallableGraphMode JaxModulePreloadMode is_conditional_graph_supported init "
    "is_cpu_available is_device_available get_preferred_device get_cuda_device_count get_cuda_devices get_cuda_device",
    "arrays.dtypes": "dtype_from_numpy dtype_to_numpy",
    "warp.names.modules": "Module get_module set_module_options get_module_options load_module force_load",
    "warp.names.graphs": "capture_begin capture_end capture_while capture_if",
}.items():
    _LATER.update({_name: f"{_room}:{_name}" for _name in _names.split()})
# Not offered: these modules (what is in them is) and what pytest writes into a module whose `assert` it explains.
_ROOMS = {"arrays", "derivatives", "device", "display", "errors", "geometry", "kernels", "launches", "tapes", "warp"}
__all__ = sorted({name for name in globals() if name[0] not in "_@"} - _ROOMS | set(_LATER))  # noqa: PLE0605
__dir__ = __all__.copy
_LATER["load_ipython_extension"] = "viz.live.tape_magic:load_ipython_extension"  # for IPython alone, so not offered


def __getattr__(name: str) -> object:
    """Import a lazy name; for a missing name of NVIDIA Warp a stand-in that says why when used. Else AttributeError."""
    if name in _LATER:
        module, _, inside = _LATER[name].partition(":")
        found = _import_module(f".{module}", __name__)
        return globals().setdefault(name, getattr(found, inside) if inside else found)
    if name == "__version__":
        return _import_module("importlib.metadata").version(__name__)
    reason = _why_refused(name)
    if reason is not None:
        return _Refused(name, reason)
    instead = "" if name.startswith("_") else _instead_of(name, __all__)
    raise AttributeError(_compose(f"module {__name__!r} has no attribute {name!r}", None, "", instead, "unknown-name"))


def _reduced(thing: object) -> object:
    """The reduction of an object of ours for `pickle`, by `derivatives.serialize`, imported on first need."""
    return _import_module(".derivatives.serialize", __name__).reduced(thing)


_objects = array, scalar, Tape, Kernel, _Func, _Allocation, _GradientMemory, _Span, _Event, _Program, types.Small
_kinds = types.Scalar, types.Vector, types.Matrix, types.Quat, types.Transform, types.Struct
for _kind in (*_objects, *_kinds):
    _copyreg.pickle(_kind, _reduced)  # type: ignore[arg-type]


_install()
_sys.meta_path.append(_Names())  # asked last, for names of this package that are no files

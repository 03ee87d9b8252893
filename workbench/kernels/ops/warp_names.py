"""Names of NVIDIA Warp that are not in the language, each with the reason and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .functions import BUILTINS
from .samples import STATEFUL

_OUTSIDE = "are not in the language"
_REASONS = {
    f"Volumes and textures {_OUTSIDE}: use arrays.": """
        volume_ texture_ Volume MarchingCubes Texture Texture1D Texture2D Texture3D TextureAddressMode
        TextureFilterMode TextureResourceFlags GLTextureResource RegisteredGLBuffer
    """,
    "Not in the language: mesh_query_aabb and mesh_query_ray are.": "is_cubql_available",
    "There is no such function of tiles: the reference lists those there are.": "tile_",
    "The order of its arguments (cond, if_false, if_true) misled; write where(cond, if_true, if_false).": """
        select
    """,
    f"Function values and linear-algebra helpers {_OUTSIDE}.": """
        reversed dense_gemm dense_chol dense_subs dense_solve mlp dense_gemm_batched dense_chol_batched
        dense_solve_batched
    """,
    "There is no bfloat16: use float16 or float32.": "bfloat16",
    f"Pointers and references {_OUTSIDE}: index the array, as x[i] = v.": """
        address address_of index indexref load store array_store view extract handle from_ptr
    """,
    "Operators are written as operators: x += v, v[0], a = b.": """
        assign assign_copy assign_inplace add_inplace sub_inplace transform_add_inplace transform_sub_inplace
        transform_set_rotation_copy transform_set_translation_copy bit_and_inplace bit_or_inplace
        bit_xor_inplace
    """,
    "In a kernel write for j in range(n), len(v), a, b = ...; there is no debugger in one, but tape.microscope().": """
        range iter_next tuple slice breakpoint
    """,
    "`with wb.capture() as graph:` records a block of launches, `graph.replay()` repeats it.": """
        CaptureMode capture_save capture_load capture_load_from_bytes capture_debug_dot_print
    """,
    "Scenes are not drawn here: matplotlib, or the package that reads your files; wb.viz and tape.show() draw "
    "tapes.": "render",
    "The simulator left Warp for the package newton; kernels of it are read here.": "sim",
    "They are for Warp's own tests.": "tests",
    "Not built yet.  ": "fabricarray fabricarrayarray indexedfabricarray indexedfabricarrayarray fixedarray",
    "Paddle is not connected; arrays go through from_numpy, from_torch, from_jax and from_dlpack.": """
        from_paddle to_paddle device_from_paddle device_to_paddle dtype_from_paddle dtype_to_paddle
        stream_from_paddle
    """,
    "Every launch records itself: wb.launch(..., record_cmd=True) gives one to launch again.": "Launch",
    "Devices are named by text: wb.get_device('cpu'), wb.get_devices().": """
        map_cuda_device unmap_cuda_device can_access
    """,
    "Work runs in order on one stream per device: wb.synchronize() waits for it.": """
        stream_from_torch stream_to_torch event_from_ipc_handle from_ipc_handle
    """,
    "Time with wb.ScopedTimer, time.perf_counter() after wb.synchronize(), or %timeit.": """
        ScopedCudaProfiler cuda_profiler_start cuda_profiler_stop timing_begin timing_end timing_print
        TimingResult
    """,
    "Memory is NumPy's and CuPy's: their allocators are set there. tape.memory() tells what a tape holds.": """
        Allocator CudaManagedAllocator MemoryKind ScopedAllocator ScopedMemoryTracker ScopedMempool
        ScopedMempoolAccess ScopedPeerAccess get_device_allocator set_device_allocator set_cuda_allocator
        get_mempool_release_threshold set_mempool_release_threshold get_mempool_used_mem_current
        get_mempool_used_mem_high print_memory_report
    """,
    "Every kernel is compiled by itself when first launched, and kept on disk under wb.config.cache_dir.": """
        ModuleBuildOptions load_aot_module compile_aot_module get_cpu_kernel_cache_key build_experimental
        print_diagnostics
    """,
    "k.resources tells what a kernel takes on a GPU.": """
        get_cuda_kernel_properties get_cuda_max_cluster_dim get_cuda_supported_archs get_cuda_toolkit_version
        get_cuda_driver_version get_suggested_block_size
    """,
    "Messages go to logging.getLogger('workbench').": """
        Logger ScopedLogger ScopedLogLevel get_logger set_logger
    """,
    "wb.config.deterministic = True gives one order of sums.": "WarpDeterminismError",
    "Kernels are refused with wb.KernelError.": """
        WarpCodegenError WarpCodegenAttributeError WarpCodegenIndexError WarpCodegenKeyError
        WarpCodegenTypeError WarpCodegenValueError
    """,
    "`from_dlpack` of the other library takes an array as it is.": "to_dlpack",
}
REFUSED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def why_refused(name: str) -> str | None:
    """The reason why a name of Warp is not in the language; None for names that are, or that Warp lacks."""
    if name in BUILTINS or name in STATEFUL:
        return None
    families = (reason for known, reason in REFUSED.items() if known.endswith("_") and name.startswith(known))
    return REFUSED.get(name) or next(families, None)


# What is asked for under the name that other libraries have for it.
_ELSEWHERE = {
    "wb.array(data)": "Array asarray tensor Tensor as_tensor ndarray DeviceArray array_from_numpy",
    "tape.backward(loss), then x.grad": "backward gradient grad_of vjp autodiff",
    "wb.detach(a), or the launch outside of the tape": "no_grad stop_gradient",
    "with wb.Tape() as tape:": "GradientTape tape record",
    "wb.utils.array_sum(a)": "sum mean reduce array_sum",
    "wb.utils.array_inner(a, b, out=...)": "inner vdot array_inner",
    "wb.scalar(value, requires_grad=True)": "Variable Parameter parameter variable",
    "@wb.kernel above the function": "jit njit vectorize compile",
    "wb.where(cond, a, b)": "cond ifelse",
    "wb.from_numpy(data) or wb.array(data)": "from_array fromarray asarray_numpy",
    "x.numpy()": "to_numpy as_numpy numpy",
    "wb.empty(shape)": "zeros_uninitialized alloc malloc",
    "wb.jacobian(tape, y, x)": "jac jacrev jacfwd",
    "wb.hvp(tape, loss, {x: v})": "hessian hess",
    "np.arange, linspace and random of NumPy, then wb.array(...)": "arange linspace random rand randint eye",
    "wb.length(v)": "norm magnitude",
    "wb.config.backend": "set_backend backend",
    "wb.optim.linear: cg, bicgstab, gmres": "linalg solve solver inv lu cholesky",
    "a kernel for one step of the method, launched once per step": "odeint solve_ivp ode rk4 integrate integrator",
}


def instead_of(name: str, known: Iterable[str], module: str = "wb") -> str:
    """The replacement for an unknown `wb.` name: its counterpart, else the closest spelling, else ""."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.lower(), known, n=1)
    if size := re.fullmatch(r"vec(\d+)([fdhi]?)", name):
        return f"wb.types.vector({size[1]}, {_SCALARS[size[2]]})"
    if size := re.fullmatch(r"mat(\d)(\d)([fdh]?)", name):
        return f"wb.types.matrix(({size[1]}, {size[2]}), {_SCALARS[size[3]]})"
    meant = next((line for line, names in _ELSEWHERE.items() if name in names.split()), None)
    return meant or (f"{module}.{close[0]}" if close else "")


_SCALARS = {"": "float", "f": "float", "d": "wb.float64", "h": "wb.float16", "i": "int"}

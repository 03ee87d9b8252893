"""Modules of kernels, as names: every kernel is compiled by itself when first launched."""

from __future__ import annotations

from typing import Any

# Options of Warp's modules. None of them changes what a kernel computes here: there is always an adjoint, no fast
# arithmetic, and loops are never unrolled for their derivative's sake.
OPTIONS: dict[str, Any] = {
    "max_unroll": 16, "enable_backward": True, "fast_math": False, "fuse_fp": True, "lineinfo": False,
    "cuda_output": None, "mode": None, "optimization_level": None, "block_dim": 256, "compile_time_trace": False,
    "cpu_compiler_flags": None, "strip_hash": False, "enable_mathdx_gemm": True, "enable_mathdx_fft": True,
    "enable_mathdx_solver": True, "deterministic": None, "deterministic_max_records": None,
    "use_precompiled_headers": True, "default_grid_stride": None, "grid_stride": None,
    "cuda_max_registers": None, "enable_cuda_smem_spilling": None,
    "cluster_dim": None, "extra_preamble": "", "verify_fp": False,
    "enable_tiles_in_stack_memory": None, "llvm_cuda": False,
    "generate_fast_code": False, "legacy_scalar_return_types": False, "enable_vector_component_overwrites": None,
    "launch_bounds": None, "line_directives": True, "ptx_target_arch": None, "cuda_arch_suffix": None,
}  # fmt: skip


class Module:
    """A module by name, with the options it was given. `load` has nothing to do.

    >>> wb.get_module("physics").name
    'physics'
    """

    def __init__(self, name: str):
        self.name = name
        self.options = dict(OPTIONS)

    def __repr__(self) -> str:
        return f"<module {self.name}>"

    def load(self, device: Any = None, block_dim: int | None = None) -> Module:
        """The module itself: its kernels are compiled when first launched."""
        return self

    def unload(self) -> None:
        """Nothing: compiled kernels stay in the cache on disk."""

    mark_modified = unload


_modules: dict[str, Module] = {}


def get_module(name: str) -> Module:
    """The module of this name, made if there is none.

    >>> wb.get_module("physics") is wb.get_module("physics")
    True
    """
    return _modules.setdefault(name, Module(name))

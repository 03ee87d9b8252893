"""Modules of kernels, as names: every kernel is compiled by itself when first launched."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ..errors import LaunchError

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


def _module(module: Any, depth: int) -> Module:
    if isinstance(module, Module):
        return module
    if module is None:
        return get_module(sys._getframe(depth).f_globals.get("__name__", "__main__"))
    return get_module(module.__name__ if isinstance(module, ModuleType) else str(module))


def set_module_options(options: dict[str, Any], module: Any = None) -> None:
    """Note options of Warp for a module (the caller's, if none is named). None changes what its kernels compute.

    `enable_backward=False` leaves the adjoint there: it costs nothing until it is asked for.
    Raises LaunchError [module-option] for a name that Warp does not have.

    >>> wb.set_module_options({"enable_backward": False})
    >>> wb.get_module_options()["enable_backward"]
    False
    """
    unknown = options.keys() - OPTIONS.keys()
    if unknown:
        raise LaunchError(
            f"there is no module option {min(unknown)!r}", slug="module-option", why=f"Known: {', '.join(OPTIONS)}."
        )
    _module(module, 2).options.update(options)


def get_module_options(module: Any = None) -> dict[str, Any]:
    """The options noted for a module (the caller's, if none is named).

    >>> wb.get_module_options()["max_unroll"]
    16
    """
    return dict(_module(module, 2).options)


def load_module(module: Any = None, device: Any = None, recursive: bool = False, **_: Any) -> Module:
    """The module, as it is: kernels are compiled when first launched, and kept on disk.

    >>> wb.load_module("physics")
    <module physics>
    """
    return _module(module, 2)


def force_load(device: Any = None, modules: Any = None, **_: Any) -> None:
    """Nothing: kernels are compiled when first launched, several at once, and kept on disk.

    >>> wb.force_load()
    """


def clear_kernel_cache() -> None:
    """Nothing: a kernel whose text has changed is compiled anew by itself. The folder is `config.cache_dir`.

    >>> wb.clear_kernel_cache()
    """


clear_lto_cache = clear_kernel_cache

"""Options of modules, and loading them: noted, for every kernel is compiled by itself when first launched."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ..errors import LaunchError
from ..kernels.modules import OPTIONS, Module, get_module


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

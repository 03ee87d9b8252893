"""Options of modules, which are noted, and compiling their kernels before they are launched."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ...device import get_device
from ...errors import LaunchError
from ...kernels.modules import Module, get_module, load, loaded_modules
from ...launches.executable import wait_with_bar


def _module(module: object) -> Module:
    if isinstance(module, Module):
        return module
    if module is None:
        return get_module(sys._getframe(2).f_globals.get("__name__", "__main__"))
    return get_module(module.__name__ if isinstance(module, ModuleType) else str(module))


def set_module_options(options: dict[str, Any], module: object = None) -> None:
    """Note options of Warp for a module (the caller's, if none is named). None changes what its kernels compute.

    `enable_backward=False` leaves the adjoint there: it costs nothing until it is asked for.
    Raises LaunchError [module-option] for a name that Warp does not have.

    >>> wb.set_module_options({"enable_backward": False})
    >>> wb.get_module_options()["enable_backward"]
    False
    """
    noted = _module(module).options
    if unknown := options.keys() - noted.keys():
        text = f"there is no module option {min(unknown)!r}"
        raise LaunchError(text, slug="module-option", why=f"Known: {', '.join(noted)}.")
    noted.update(options)


def get_module_options(module: object = None) -> dict[str, Any]:
    """The options noted for a module (the caller's, if none is named).

    >>> wb.get_module_options()["max_unroll"]
    16
    """
    return dict(_module(module).options)


def load_module(module: object = None, device: object = None, recursive: bool = False, **_: object) -> Module:
    """Compile the kernels of a module (the caller's, if none is named) now, several at once, and return it.

    Without this each is compiled when first launched. A bar shows where it takes longer than a second. What is compiled
    is kept on disk. It is what launches of small grids on contiguous arrays of their own run on a CPU, with the adjoint
    by all arrays of floats; another text (other layouts, aliases, the inside of large grids) is still compiled when
    a launch wants it. For GPUs, and without a compiler, there is nothing to do. Generic kernels are compiled for the
    types of their overloads.

    recursive  the modules below it (`physics.contacts` below `physics`) as well.
    Raises KernelError for a kernel that cannot be read.

    >>> wb.load_module("physics")
    <module physics>
    """
    found = _module(module)
    below = [m for m in loaded_modules() if recursive and m.name.startswith(f"{found.name}.")]
    _load([found, *below], device)
    return found


def force_load(device: Any = None, modules: Any = None, **_: object) -> None:
    """`load_module` for several modules: those given, else all that have defined kernels so far.

    Raises KernelError for a kernel that cannot be read.

    >>> wb.force_load(modules=["physics"])
    """
    _load(loaded_modules() if modules is None else [_module(m) for m in modules], device)


def _load(modules: list[Module], device: Any) -> None:
    if not get_device(device).is_cuda:
        load(modules, wait_with_bar)

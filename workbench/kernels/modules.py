"""Modules of kernels: every kernel is compiled by itself, when first launched or when its module is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ..config import MODULE_OPTIONS, config
from .compile import c_compiler

if TYPE_CHECKING:
    from concurrent.futures import Future


def result(coming: Future) -> Any:
    """The result of a future, waited for."""
    return coming.result()


class Module:
    """A module by name: its kernels, and the options it was given.

    >>> wb.get_module("physics").name
    'physics'
    """

    def __init__(self, name: str):
        self.name = name
        self.options = dict(MODULE_OPTIONS)
        self.kernels: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by `id`, in the order of definition

    def __repr__(self) -> str:
        return f"<module {self.name}>"

    def load(self, device: object = None, block_dim: int | None = None) -> Module:
        """Compile its kernels now, as `load_module` does, but without a bar. Returns the module itself."""
        load([self])
        return self

    def unload(self) -> None:
        """Nothing: compiled kernels stay in the cache on disk."""

    mark_modified = unload


def load(modules: Iterable[Module], wait: Callable[[Future], Any] = result) -> None:
    """Compile the kernels of these modules for the CPU, side by side; nothing where no compiler is used.

    `wait`: how to wait for each. Raises KernelError for a kernel that cannot be read.
    """
    if config.backend == "numpy" or not c_compiler.available():
        return
    begun = [part for module in modules for kernel in list(module.kernels.values()) for part in kernel.ahead()]
    for program, function, variant in begun:
        program.executable(function, "c", variant, wait)


_modules: dict[str, Module] = {}


def get_module(name: str) -> Module:
    """The module of this name, made if there is none.

    >>> wb.get_module("physics") is wb.get_module("physics")
    True
    """
    return _modules.setdefault(name, Module(name))


def loaded_modules() -> list[Module]:
    """All modules that were asked for or have kernels, but for those of the workbench itself."""
    root = __name__.split(".")[0]
    return [m for name, m in list(_modules.items()) if name.split(".")[0] != root]

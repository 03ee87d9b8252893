"""`import workbench.render` and the like: names of Warp's modules, which stand elsewhere here or are refused."""

from __future__ import annotations

import sys
from functools import reduce
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ...kernels.reading.declare import Refused

ROOT = __name__.partition(".")[0]
_ELSEWHERE = ("autograd", "examples", "types", "utils")  # `fem` too: names below it are refused
# Refused where they are used, not where they are imported; so are modules below them.
_REFUSED = ("render", "sim", "fem", "tests", "build_experimental")
# Where Warp had `jax_kernel` and `jax_callable` before 1.19.
_JAX = {f"{ROOT}.jax_experimental{below}" for below in ("", ".ffi", ".custom_call")}


class HostModules:
    """Import finder and loader of `workbench.x` that is no file: `wb.x` is a module, a set of names, or refused."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The import spec of this name, or None."""
        top, first, *below = [*name.split("."), ""]
        if name in _JAX or (top == ROOT and (first in _REFUSED or (first in _ELSEWHERE and below == [""]))):
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty module, which `exec_module` replaces."""
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Enter `wb.x` in `sys.modules` as `workbench.x`."""
        path = [] if module.__name__ in _JAX else module.__name__.split(".")[1:]
        found: Any = reduce(getattr, path, sys.modules[ROOT])
        if type(found) is Refused:
            vars(found).update(__path__=[], __spec__=module.__spec__)  # so that names below it are looked for
        sys.modules[module.__name__] = found  # type: ignore[assignment]

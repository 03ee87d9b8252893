"""The modules that are measured beside each other: NVIDIA Warp and the workbench, on one kernel text."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEERS = ("warp", "workbench")


def peer(name: str) -> Any:
    """The module, or None with a word on stderr where it cannot be imported or is not complete."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: left out ({error})", file=sys.stderr)
        return None
    if not hasattr(module, "kernel"):
        print(f"{name}: left out (it has no `kernel` yet)", file=sys.stderr)
        return None
    return module


def peers(names: Sequence[str] = PEERS) -> dict[str, Any]:
    return {name: module for name in names if (module := peer(name)) is not None}


def load(api: Any, file: str, real: Any = None) -> types.ModuleType:
    """Run a file of kernels with `wb` bound to the module and `real` to a type; kernels are read from files."""
    name = f"{Path(file).stem}_{api.__name__}_{getattr(real, '__name__', real)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, HERE / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(wb=api, real=real)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def cache_environment(folder: str) -> dict[str, str]:
    """Variables that make either module keep its compiled kernels in a folder of our own."""
    return {"WARP_CACHE_PATH": folder, "WORKBENCH_CACHE": str(Path(folder) / "workbench")}


def accepts(api: Any, parameter: str) -> bool:
    """Whether `launch` of this module names the parameter."""
    return parameter in inspect.signature(api.launch).parameters

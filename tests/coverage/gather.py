"""The kernels of a package: its modules are imported with the real Warp, and what it makes on the way is kept.

Packages that are not installed are stubbed by empty modules, whose names say so when a kernel uses one.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import warp

PACKAGES = {"warp": "warp.examples", "newton": "newton", "mujoco-warp": "mujoco_warp"}
# Imported by the three packages for pictures, files and other frameworks: no kernel needs them.
STUBS = (
    "pxr cupy pyglet imgui_bundle imgui trimesh usdrt newton_usd_schemas newton_actuators mpi4py nvtx cbor2 GitPython "
    "git requests pycollada embreex rerun viser pyvista coacd open3d alphashape meshio polyscope jax jaxlib paddle "
    "nccl nvshmem nvmath numba taichi absl etils mujoco_viewer psutil PIL torch blosc glfw onnx onnxruntime yaml "
    "resolve_robotics_uri_py matplotlib tqdm pytest"
).split()


@dataclass
class Gathered:
    """What importing a package made: its kernels, the modules that failed and why, the stubs that stood in."""

    kernels: list[Any] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    stubs: set[str] = field(default_factory=set)


class _Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, found: set[str]):
        self.found = found

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        if top not in STUBS:
            return None
        self.found.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        made = MagicMock(name=spec.name)
        made.__path__, made.__spec__, made.__name__ = [], spec, spec.name
        return made

    def exec_module(self, module: Any) -> None:
        return None


@contextlib.contextmanager
def noted(package: str) -> Iterator[Gathered]:
    """Within it every kernel that a module of `package` makes is kept, also those made by functions."""
    found, init = Gathered(), warp._src.context.Kernel.__init__
    finder = _Stub(found.stubs)  # asked last: what is installed is taken

    def keeping(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if self.func.__module__.startswith(package):
            found.kernels.append(self)

    warp._src.context.Kernel.__init__ = keeping
    sys.meta_path.append(finder)
    try:
        yield found
    finally:
        warp._src.context.Kernel.__init__ = init
        sys.meta_path.remove(finder)


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in what takes longer: seconds of the processor, since others may use it too.

    It is raised where Python is next asked, and again every second: a first one may end in a callback of a weak
    reference, where Python prints and forgets it.
    """

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def gather(package: str, only: str = "") -> Gathered:
    """All kernels that importing the modules of `package` makes; of modules with `only` in their names."""
    with noted(package) as found, contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = importlib.import_module(package)
        for name in sorted({package, *_modules(root)}):
            if only not in name:
                continue
            try:
                with limited(20):
                    importlib.import_module(name)
            except BaseException as error:  # noqa: BLE001  a module of theirs that does not come in is listed
                found.failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    kernels = {(k.func.__code__, k.module): k for k in found.kernels}
    found.kernels = [k for k in kernels.values() if only in k.func.__module__]
    return found


def _modules(root: Any) -> Iterator[str]:
    """The modules under a package by their files, since some folders of examples are no packages."""
    for base in map(Path, root.__path__):
        for file in sorted(base.rglob("*.py")):
            parts = [root.__name__, *file.relative_to(base).with_suffix("").parts]
            if not any(re.search(_SKIPPED, part) for part in parts[1:]):
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_SKIPPED = r"_test$|^tests$|^conftest$|^__main__$|^thirdparty$|^testspeed$|^record$|^cli$"
_SKIPPED += (
    r"|benchmark_(api|launches|cloth_\w*|cloth|interop_\w+|jax_\w+)$"  # work at import, or want other frameworks
)

"""Names that do little or nothing here: one table of what they take and answer.

What is said of them, and examples, stand in `idle.txt`.

Memory is NumPy's and CuPy's, work of a device runs in one order, and a kernel is compiled anew by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ...device import cuda_count, get_device, get_devices
from ...errors import LaunchError
from ...kernels.ops.examples import paragraphs


def _only_off(name: str, enable: object) -> None:
    if enable:
        text = f"{name}(..., True): memory is NumPy's and CuPy's."
        why = "CuPy takes memory of a GPU from a pool of its own already."
        raise LaunchError(text, slug="not-here", why=why, instead="cupy.cuda.set_allocator(...)")


_TABLE: dict[str, Callable[..., Any]] = {
    "init": lambda: None,
    "is_cpu_available": lambda: True,
    "is_device_available": lambda device: any(device == here for here in get_devices()),
    "get_preferred_device": lambda: get_devices()[min(cuda_count(), 1)],
    "get_cuda_device_count": lambda: cuda_count(),
    "get_cuda_devices": lambda: get_devices()[1:],
    "get_cuda_device": lambda ordinal=None: get_device(f"cuda:{ordinal or 0}"),
    "is_mempool_supported": lambda device=None: False,
    "is_mempool_enabled": lambda device=None: False,
    "is_mempool_access_supported": lambda target_device, peer_device: False,
    "is_mempool_access_enabled": lambda target_device, peer_device: False,
    "is_peer_access_supported": lambda target_device, peer_device: False,
    "is_peer_access_enabled": lambda target_device, peer_device: False,
    "set_mempool_access_enabled": lambda target_device, peer_device, enable: _only_off(
        "set_mempool_access_enabled", enable
    ),
    "set_peer_access_enabled": lambda target_device, peer_device, enable: _only_off("set_peer_access_enabled", enable),
    "set_mempool_enabled": lambda device, enable: _only_off("set_mempool_enabled", enable),
    "wait_event": lambda event, external=False: None,
    "wait_stream": lambda other_stream, event=None, external=False: None,
    "clear_kernel_cache": lambda: None,
    "clear_lto_cache": lambda: None,
    "clear_jax_callable_graph_cache": lambda callable=None: None,
    "is_conditional_graph_supported": lambda: True,
    "JaxCallableGraphMode": IntEnum("JaxCallableGraphMode", "NONE JAX WARP WARP_STAGED WARP_STAGED_EX", start=0),
    "JaxModulePreloadMode": IntEnum("JaxModulePreloadMode", "NONE CURRENT_DEVICE ALL_DEVICES", start=0),
}
for _name, _text in paragraphs("idle.txt", __file__).items():
    _made = _TABLE[_name]
    _said, _example = _text.split("\n", 1)
    _made.__name__ = _made.__qualname__ = _name
    _made.__module__ = __name__
    _made.__doc__ = f"{_said}\n\n{_example}\n"
    globals()[_name] = _made

"""Names that do little or nothing here: one table of what they take and answer, what is said of them, and examples.

Memory is NumPy's and CuPy's, work of a device runs in one order, and a kernel is compiled anew by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ...errors import LaunchError


def _only_off(name: str, enable: object) -> None:
    if enable:
        text = f"{name}(..., True): memory is NumPy's and CuPy's."
        why = "CuPy takes memory of a GPU from a pool of its own already."
        raise LaunchError(text, slug="not-here", why=why, instead="cupy.cuda.set_allocator(...)")


_NO_POOL = "False: no pool is managed here."
_AT_HOME = "False: arrays are used on the device where they live."
_OFF = "No-op for `enable=False`. Raises LaunchError [not-here] for True."
_ORDER = "No-op: work runs in the order in which it was launched."
_CACHE = "No-op: a kernel whose text has changed is recompiled by itself. The folder is `config.cache_dir`."
_GRAPHS = "Always True: `capture_while` and `capture_if` can be captured."
_PAIR = '("cpu", "cpu")\nFalse'
# what is done, what is said, the example
_TABLE: dict[str, tuple[Callable[..., Any], str, str]] = {
    "is_mempool_supported": (lambda device=None: False, _NO_POOL, '("cpu")\nFalse'),
    "is_mempool_enabled": (lambda device=None: False, _NO_POOL, '("cpu")\nFalse'),
    "is_mempool_access_supported": (lambda target_device, peer_device: False, _AT_HOME, _PAIR),
    "is_mempool_access_enabled": (lambda target_device, peer_device: False, _AT_HOME, _PAIR),
    "is_peer_access_supported": (lambda target_device, peer_device: False, _AT_HOME, _PAIR),
    "is_peer_access_enabled": (lambda target_device, peer_device: False, _AT_HOME, _PAIR),
    "set_mempool_access_enabled": (
        lambda target_device, peer_device, enable: _only_off("set_mempool_access_enabled", enable),
        _OFF,
        '("cpu", "cpu", False)',
    ),
    "set_peer_access_enabled": (
        lambda target_device, peer_device, enable: _only_off("set_peer_access_enabled", enable),
        _OFF,
        '("cpu", "cpu", False)',
    ),
    "set_mempool_enabled": (lambda device, enable: _only_off("set_mempool_enabled", enable), _OFF, '("cpu", False)'),
    "wait_event": (lambda event, external=False: None, _ORDER, "(wb.record_event())"),
    "wait_stream": (lambda other_stream, event=None, external=False: None, _ORDER, '(wb.get_stream("cpu"))'),
    "clear_kernel_cache": (lambda: None, _CACHE, "()"),
    "clear_lto_cache": (lambda: None, _CACHE, "()"),
    "clear_jax_callable_graph_cache": (
        lambda callable=None: None,
        "No-op: functions of `jax_callable` keep no graphs.",
        "()",
    ),
    "is_conditional_graph_supported": (lambda: True, _GRAPHS, "()\nTrue"),
}
for _name, (_made, _said, _example) in _TABLE.items():
    _made.__name__ = _made.__qualname__ = _name
    _made.__module__ = __name__
    _made.__doc__ = f"{_said}\n\n>>> wb.{_name}{_example}\n"
    globals()[_name] = _made

JaxCallableGraphMode = IntEnum("JaxCallableGraphMode", "NONE JAX WARP WARP_STAGED WARP_STAGED_EX", start=0)
JaxCallableGraphMode.__doc__ = """Warp's ways to capture a `jax_callable`. Without effect: it is called each time.

>>> wb.JaxCallableGraphMode.JAX.value
1
"""


JaxModulePreloadMode = IntEnum("JaxModulePreloadMode", "NONE CURRENT_DEVICE ALL_DEVICES", start=0)
JaxModulePreloadMode.__doc__ = """Warp's devices to preload on. Without effect: kernels compile at first launch.

>>> wb.JaxModulePreloadMode.NONE.value
0
"""

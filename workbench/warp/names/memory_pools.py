"""Questions about pools of GPU memory and about peers. Memory is NumPy's and CuPy's: there are none to switch here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...device import DeviceLike
from ...errors import LaunchError


def _question(name: str) -> Callable[..., bool]:
    def asked(device: DeviceLike = None) -> bool:
        return False

    return asked


def _question_of_two(name: str) -> Callable[..., bool]:
    def asked(target_device: DeviceLike, peer_device: DeviceLike) -> bool:
        return False

    return asked


def _switch(name: str) -> Callable[..., None]:
    def switch(device: DeviceLike, enable: bool) -> None:
        _only_off(name, enable)

    return switch


def _switch_of_two(name: str) -> Callable[..., None]:
    def switch(target_device: DeviceLike, peer_device: DeviceLike, enable: bool) -> None:
        _only_off(name, enable)

    return switch


def _only_off(name: str, enable: Any) -> None:
    if enable:
        text = f"{name}(..., True): memory is NumPy's and CuPy's."
        why = "CuPy takes memory of a GPU from a pool of its own already."
        raise LaunchError(text, slug="not-here", why=why, instead="cupy.cuda.set_allocator(...)")


_OFF = "No-op for `enable=False`. Raises LaunchError [not-here] for True."
_AT_HOME = "False: arrays are used on the device where they live."
# how it is made, what it says, its example, its names
_TABLE: tuple[tuple[Callable[[str], Any], str, str, str], ...] = (
    (_question, "False: no pool is managed here.", '("cpu")\nFalse', "is_mempool_supported is_mempool_enabled"),
    (_question_of_two, _AT_HOME, '("cpu", "cpu")\nFalse', "is_mempool_access_supported is_mempool_access_enabled"),
    (_question_of_two, _AT_HOME, '("cpu", "cpu")\nFalse', "is_peer_access_supported is_peer_access_enabled"),
    (_switch, _OFF, '("cpu", False)', "set_mempool_enabled"),
    (_switch_of_two, _OFF, '("cpu", "cpu", False)', "set_mempool_access_enabled set_peer_access_enabled"),
)
for _make, _said, _example, _names in _TABLE:
    for _name in _names.split():
        _made = _make(_name)
        _made.__name__ = _made.__qualname__ = _name
        _made.__doc__ = f"{_said}\n\n>>> wb.{_name}{_example}\n"
        globals()[_name] = _made

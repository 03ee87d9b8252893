"""Questions about pools of GPU memory and about peers. Memory is NumPy's and CuPy's: there are none to switch here."""

from __future__ import annotations

from typing import Any

from ..device import DeviceLike
from ..errors import LaunchError


def is_mempool_supported(device: DeviceLike = None) -> bool:
    """False: no pool is managed here.

    >>> wb.is_mempool_supported("cpu")
    False
    """
    return False


def is_mempool_enabled(device: DeviceLike = None) -> bool:
    """False: no pool is managed here.

    >>> wb.is_mempool_enabled("cpu")
    False
    """
    return False


def is_mempool_access_supported(target_device: DeviceLike, peer_device: DeviceLike) -> bool:
    """False: arrays are used on the device where they live.

    >>> wb.is_mempool_access_supported("cpu", "cpu")
    False
    """
    return False


def is_mempool_access_enabled(target_device: DeviceLike, peer_device: DeviceLike) -> bool:
    """False: arrays are used on the device where they live.

    >>> wb.is_mempool_access_enabled("cpu", "cpu")
    False
    """
    return False


def is_peer_access_supported(target_device: DeviceLike, peer_device: DeviceLike) -> bool:
    """False: arrays are used on the device where they live.

    >>> wb.is_peer_access_supported("cpu", "cpu")
    False
    """
    return False


def is_peer_access_enabled(target_device: DeviceLike, peer_device: DeviceLike) -> bool:
    """False: arrays are used on the device where they live.

    >>> wb.is_peer_access_enabled("cpu", "cpu")
    False
    """
    return False


def set_mempool_enabled(device: DeviceLike, enable: bool) -> None:
    """No-op for `enable=False`. Raises LaunchError [not-here] for True.

    >>> wb.set_mempool_enabled("cpu", False)
    """
    _only_off("set_mempool_enabled", enable)


def set_mempool_access_enabled(target_device: DeviceLike, peer_device: DeviceLike, enable: bool) -> None:
    """No-op for `enable=False`. Raises LaunchError [not-here] for True.

    >>> wb.set_mempool_access_enabled("cpu", "cpu", False)
    """
    _only_off("set_mempool_access_enabled", enable)


def set_peer_access_enabled(target_device: DeviceLike, peer_device: DeviceLike, enable: bool) -> None:
    """No-op for `enable=False`. Raises LaunchError [not-here] for True.

    >>> wb.set_peer_access_enabled("cpu", "cpu", False)
    """
    _only_off("set_peer_access_enabled", enable)


def _only_off(name: str, enable: Any) -> None:
    if enable:
        raise LaunchError(
            f"{name}(..., True): memory is NumPy's and CuPy's.",
            slug="not-here",
            why="CuPy takes memory of a GPU from a pool of its own already.",
            instead="cupy.cuda.set_allocator(...)",
        )
